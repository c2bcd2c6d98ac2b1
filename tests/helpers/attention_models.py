"""Tiny models with each kind of tokenizer, and transformers' classes with the same weights and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tiny
import tiny_finetuning
import tiny_tokenizers
from safetensors.numpy import load_file

import pocketbert as pb


class Reference:
    """transformers' tokenizer and TensorFlow class for a model directory."""

    def __init__(self, folder: Path) -> None:
        import transformers

        config = transformers.AutoConfig.from_pretrained(folder)
        kind = config.model_type
        self.tokenizer = {
            "bert": lambda: transformers.BertTokenizerFast(str(folder / "vocab.txt")),
            "roberta": lambda: transformers.RobertaTokenizerFast(
                str(folder / "vocab.json"), str(folder / "merges.txt")
            ),
            "xlm-roberta": lambda: transformers.XLMRobertaTokenizer(str(folder / "sentencepiece.bpe.model")),
        }[kind]()
        names = {"bert": "TFBertModel", "roberta": "TFRobertaModel", "xlm-roberta": "TFXLMRobertaModel"}
        model = getattr(transformers, names[kind])(config)
        self._model = transformers.modeling_tf_pytorch_utils.load_pytorch_state_dict_in_tf2_model(
            model, load_file(folder / "model.safetensors")
        )

    def __call__(self, text: str, pair: str | None = None, max_length: int = 29) -> tuple[list[int], list[np.ndarray]]:
        """Ids, and attention [N, S, S] by layer, without padding."""
        encoded = self.tokenizer(text, pair, truncation=True, max_length=max_length, return_tensors="tf")
        attentions = self._model(dict(encoded), output_attentions=True).attentions
        return encoded["input_ids"][0].numpy().tolist(), [attention[0].numpy() for attention in attentions]


def write(folder: Path, kind: str, **changes: Any) -> Path:
    """A model directory of a kind: 3 layers with 5 heads of random weights."""
    if kind == "bert":
        return tiny_finetuning.write_model(folder, tiny.BERT.replace(**changes))
    if kind == "roberta":
        tokenizer: Any = pb.ByteBPETokenizer(*tiny_tokenizers.byte_bpe_files(folder.parent / "files"))
    else:
        tokenizer = pb.UnigramTokenizer(tiny_tokenizers.unigram_file(folder.parent / "files"))
    config = tiny.ROBERTA.replace(model_type=kind, vocab_size=tokenizer.vocab_size, pooler="tanh", **changes)
    pb.from_preset(config, tokenizer=tokenizer, seed=11).save_pretrained(folder)
    return folder
