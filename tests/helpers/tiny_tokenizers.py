"""Tiny files of RoBERTa's and XLM-R's tokenizers, trained here by `tokenizers` and `sentencepiece`."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
SENTENCES = [
    "the cat sat on the mat",
    "a naïve café, and über-cool straße!",
    "don't you think it's 9.99 or ½ of 100?",
    "the cats weren't charming journeys",
    "中文 日本語 한국어 ไทย हिन्दी",
    "Привет мир, это слова и предложения",
    "an ﬁnal oﬃce ① word - e\u0323\u0302 Ａ１",
    "I've seen better films; what a charming journey",
]


def byte_bpe_files(folder: Path, vocab_size: int = 420) -> tuple[Path, Path]:
    """Writes vocab.json and merges.txt in RoBERTa's layout and returns their paths."""
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer

    core = Tokenizer(BPE())
    core.pre_tokenizer = ByteLevel(add_prefix_space=False)
    size = vocab_size - len(SPECIAL)
    trainer = BpeTrainer(vocab_size=size, initial_alphabet=ByteLevel.alphabet(), show_progress=False)
    core.train_from_iterator(SENTENCES * 3, trainer)
    model = json.loads(core.to_str())["model"]
    tokens = [*SPECIAL[:4], *sorted(model["vocab"], key=model["vocab"].__getitem__), SPECIAL[4]]
    folder.mkdir(parents=True, exist_ok=True)
    vocab, merges = folder / "vocab.json", folder / "merges.txt"
    vocab.write_text(json.dumps({token: index for index, token in enumerate(tokens)}), "utf-8")
    lines = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    merges.write_text("".join(f"{line}\n" for line in ["#version: 0.2", *lines]), "utf-8")
    return vocab, merges


def unigram_file(
    folder: Path,
    vocab_size: int = 150,
    name: str = "sentencepiece.bpe.model",
    sentences: Sequence[str] = SENTENCES,
    **options: Any,
) -> Path:
    """Writes a sentencepiece model with the normalizer `nmt_nfkc`, as XLM-R's, and returns its path."""
    import sentencepiece

    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*sentences] * 5),
        model_writer=stream,
        vocab_size=vocab_size,
        model_type=options.pop("model_type", "unigram"),
        normalization_rule_name="nmt_nfkc",
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(stream.getvalue())
    return path


# The papers' settings for sentencepiece, besides those of `unigram_file`: layout → file name, and options.
LAYOUT_FILES: dict[str, tuple[str, dict[str, Any]]] = {
    "xlm_r": ("sentencepiece.bpe.model", {}),
    "camembert": ("sentencepiece.bpe.model", {"vocab_size": 170}),
    "albert": (
        "spiece.model",
        {
            "vocab_size": 190,
            "pad_id": 0,
            "unk_id": 1,
            "bos_id": -1,
            "eos_id": -1,
            "control_symbols": "[CLS],[SEP],[MASK]",
            "user_defined_symbols": '(,),",-,.,–,£,€',
        },
    ),
    "deberta": (
        "spm.model",
        {
            "vocab_size": 160,
            "pad_id": 0,
            "bos_id": 1,
            "eos_id": 2,
            "unk_id": 3,
            "pad_piece": "[PAD]",
            "bos_piece": "[CLS]",
            "eos_piece": "[SEP]",
            "unk_piece": "[UNK]",
        },
    ),
}
# With numbers, so that ALBERT's model has subwords such as `9,`.
LAYOUT_SENTENCES = [
    *SENTENCES,
    *(
        f"in {year}, {year}, about 9,{year % 900 + 100} or 1,{year % 7}5{year % 3}, and 5,9"
        for year in range(1990, 2024)
    ),
]


def layout_file(folder: Path, layout: str, **options: Any) -> Path:
    """Writes a sentencepiece model in a layout under its usual name, and returns its path."""
    name, settings = LAYOUT_FILES[layout]
    return unigram_file(folder, name=name, sentences=LAYOUT_SENTENCES, **{**settings, **options})


def added_tokens(ids: dict[str, int]) -> list[dict[str, Any]]:
    """The special tokens as transformers writes them."""
    flags = {"single_word": False, "rstrip": False, "normalized": False, "special": True}
    return [{"id": ids[token], "content": token, "lstrip": token == "<mask>", **flags} for token in SPECIAL]


def byte_bpe_json(vocab: Path, merges: Path) -> dict[str, Any]:
    """Content of a tokenizer.json with the same tokens."""
    ids = json.loads(vocab.read_text("utf-8"))
    pairs = merges.read_text("utf-8").splitlines()[1:]
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
        "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": ids, "merges": pairs,
    }  # fmt: skip
    return {
        "version": "1.0",
        "added_tokens": added_tokens(ids),
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": {
            "type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True,
            "add_prefix_space": False,
        },
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": model,
    }  # fmt: skip


def unigram_json(model_path: Path) -> dict[str, Any]:
    """Content of a tokenizer.json with the same subwords, scores and normalizer, as transformers converts them."""
    import sentencepiece

    core = sentencepiece.SentencePieceProcessor(model_file=str(model_path))
    pieces = [[core.id_to_piece(index), core.get_score(index)] for index in range(3, core.vocab_size())]
    vocab = [["<s>", 0.0], ["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0], *pieces, ["<mask>", 0.0]]
    ids = {token: index for index, (token, _) in enumerate(vocab)}

    def template(*parts: str) -> list[dict[str, Any]]:
        return [{"Sequence" if part in "AB" else "SpecialToken": {"id": part, "type_id": 0}} for part in parts]

    return {
        "version": "1.0",
        "added_tokens": added_tokens(ids),
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap(model_path)).decode()},
                {"type": "Strip", "strip_left": False, "strip_right": True},
                {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"},
            ],
        },
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": template("<s>", "A", "</s>"),
            "pair": template("<s>", "A", "</s>", "</s>", "B", "</s>"),
            "special_tokens": {
                token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in ("<s>", "</s>")
            },
        },
        "model": {"type": "Unigram", "unk_id": 3, "vocab": vocab, "byte_fallback": False},
    }


def charsmap(model_path: Path) -> bytes:
    """The compiled character map in a model, by sentencepiece's own reader of the specification."""
    import sentencepiece

    spec = sentencepiece.SentencePieceNormalizer(model_file=str(model_path)).serialized_normalizer_spec()
    # Field 2, bytes: the tag 0x12, the length in seven-bit groups, the map.
    position = spec.index(b"\x0a") + 2 + spec[spec.index(b"\x0a") + 1]
    assert spec[position] == 0x12
    position, length, shift = position + 1, 0, 0
    while True:
        byte = spec[position]
        length |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return spec[position : position + length]
