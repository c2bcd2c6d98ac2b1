"""Small networks with sizes that all differ, random norms and biases, and a vocabulary of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pocketbert import from_preset
from pocketbert.configs import BottleneckConfig, EncoderConfig, QueryKeySource, TaskConfig
from pocketbert.feedforward import FeedForwardConfig
from pocketbert.model import Model
from pocketbert.presets import preset
from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

SENTIMENT = TaskConfig(kind="classification", name="mood", labels=("bad", "fair", "good"))
WORDS = (
    "the a film is was good bad dull bright and or not very so story ends begins well badly . , ! cat dog sun rain "
    "walk ##s ##ed ##ing"
)
SPECIAL = "[PAD] [UNK] [CLS] [SEP] [MASK]"


def bert_config(**changes: object) -> EncoderConfig:
    """A BERT whose matrices are large enough for the converter to quantize (1024 elements)."""
    sizes = {
        "vocab_size": len((SPECIAL + " " + WORDS).split()),
        "hidden_size": 40,
        "embedding_size": 40,
        "num_layers": 1,
        "num_attention_heads": 3,
        "head_size": 10,
        "intermediate_size": 56,
        "max_position_embeddings": 23,
    }
    return preset("tinybert_4l_312d").config.replace(**{**sizes, **changes})


def mobilebert_config(query_key: QueryKeySource = "shared", **changes: object) -> EncoderConfig:
    """A MobileBERT; heads together are as wide as the block where the family has it so."""
    sizes = {
        "vocab_size": len((SPECIAL + " " + WORDS).split()),
        "hidden_size": 28,
        "embedding_size": 11,
        "num_layers": 2,
        "num_attention_heads": 2,
        "head_size": 8,
        "intermediate_size": 19,
        "num_feedforward_networks": 2,
        "max_position_embeddings": 23,
        "bottleneck": BottleneckConfig(size=16, query_key=query_key),
    }
    return preset("mobilebert").config.replace(**{**sizes, **changes})


def efficientbert_config(*expressions: str) -> EncoderConfig:
    """An EfficientBERT with these expressions, one per layer."""
    sizes = {
        "vocab_size": len((SPECIAL + " " + WORDS).split()),
        "hidden_size": 40,
        "embedding_size": 12,
        "num_layers": len(expressions),
        "num_attention_heads": 4,
        "head_size": 10,
        "intermediate_size": 40,
        "max_position_embeddings": 23,
        "feedforward": FeedForwardConfig(expressions=expressions),
    }
    return preset("efficientbert").config.replace(**sizes)


def network(
    config: EncoderConfig, tasks: Sequence[TaskConfig] = (SENTIMENT,), tokenizer: WordPieceTokenizer | None = None
) -> Model:
    """Random weights, with gammas of both signs away from zero and biases that matter."""
    model = from_preset(config, tasks, tokenizer, seed=5)
    generator = np.random.default_rng(7)
    for path, variable in model.weights_by_path().items():
        shape = variable.shape.as_list()
        if path.endswith("gamma"):
            variable.assign(generator.uniform(0.6, 1.6, shape) * generator.choice([-1, 1], shape))
        elif path.endswith(("beta", "bias")):
            variable.assign(generator.normal(0, 0.3, shape))
        else:
            variable.assign(generator.normal(0, shape[0] ** -0.5 if path.endswith("kernel") else 1.0, shape))
    return model


def inputs_of(config: EncoderConfig, rows: int = 3, length: int = 13) -> dict[str, np.ndarray]:
    """Random ids; the first row has no padding, the others more and more."""
    generator = np.random.default_rng(3)
    counts = np.linspace(length, 3, rows).astype(int)
    mask = (np.arange(length) < counts[:, None]).astype(np.int32)
    return {
        "input_word_ids": (generator.integers(5, config.vocab_size, [rows, length]) * mask).astype(np.int32),
        "input_mask": mask,
        "input_type_ids": (generator.integers(0, max(config.type_vocab_size, 1), [rows, length]) * mask).astype(
            np.int32
        ),
    }


def vocabulary(folder: Path) -> Path:
    """Writes the vocabulary, one token a line."""
    path = folder / "vocab.txt"
    path.write_text("\n".join((SPECIAL + " " + WORDS).split()) + "\n", encoding="utf-8")
    return path


def relative(expected: np.ndarray, received: np.ndarray) -> float:
    """Largest difference over the largest expected value."""
    return float(np.abs(expected - received).max() / np.abs(expected).max())
