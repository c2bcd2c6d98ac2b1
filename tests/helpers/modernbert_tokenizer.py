"""A small tokenizer as ModernBERT has it: tokenizer.json alone, with special tokens behind the vocabulary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TEXTS = ["the cat sat on a mat", "a charming journey, don't you think?", "ein Café in der Straße am 7. Mai 2024"] * 9
SPACES = [" " * count for count in (4, 3, 2)]
SPECIAL = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")
# As published: rows that no text needs.
UNUSED = [f"[unused{number}]" for number in range(3)]


def write(folder: Path) -> Path:
    """Writes tokenizer.json and tokenizer_config.json; merges are learned from `TEXTS`."""
    from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=340, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_tokens([AddedToken(token, normalized=True) for token in SPACES])
    special = [AddedToken(token, normalized=False, lstrip=token == "[MASK]") for token in SPECIAL]
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens([AddedToken(token, normalized=True) for token in UNUSED])
    ids = {token: tokenizer.token_to_id(token) for token in SPECIAL}
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    stored = json.loads((folder / "tokenizer.json").read_text("utf-8"))["added_tokens"]
    config = {
        "added_tokens_decoder": {
            str(token["id"]): {key: value for key, value in token.items() if key != "id"} for token in stored
        },
        "clean_up_tokenization_spaces": True,
        "cls_token": "[CLS]",
        "mask_token": "[MASK]",
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": 8192,
        "pad_token": "[PAD]",
        "sep_token": "[SEP]",
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "[UNK]",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    return folder
