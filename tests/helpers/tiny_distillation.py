"""A tiny teacher, a tiny student and what the teacher says of some sentences."""

from __future__ import annotations

import functools
import hashlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tiny
import tiny_finetuning

from pocketbert.configs import EncoderConfig
from pocketbert.data.examples import Examples
from pocketbert.data.task_data import TaskData
from pocketbert.distillation.method import Method
from pocketbert.distillation.methods.efficientbert import EfficientBERT
from pocketbert.distillation.methods.hsk import HSK
from pocketbert.distillation.methods.minilmv2 import MiniLMv2
from pocketbert.distillation.methods.tinybert import TinyBERT

# Heads are matched one by one; every other size differs.
TEACHER = tiny.BERT.replace(num_layers=2)
STUDENT = tiny.BERT.replace(num_layers=1, hidden_size=20, embedding_size=20, head_size=4, intermediate_size=33)
TASK = tiny_finetuning.TASK
MAX_LENGTH = 23


def write_teacher(folder: Path, config: EncoderConfig = TEACHER) -> Path:
    """A model directory with a head, random weights and a vocabulary; each class is about as frequent as the other."""
    _write_bare(folder.parent, config)
    return tiny_finetuning.write_files(folder, _teacher_files(config))


def _write_bare(folder: Path, config: EncoderConfig) -> Path:
    bare = tiny_finetuning.CONFIG.replace(pad_token_id=config.pad_token_id)
    return tiny_finetuning.write_model(folder / "bare", bare)


@functools.cache
def _teacher_files(config: EncoderConfig) -> dict[str, bytes]:
    import pocketbert as pb

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "teacher"
        tokenizer = pb.from_pretrained(_write_bare(folder.parent, config)).tokenizer
        model = pb.from_preset(config, task=(TASK,), tokenizer=tokenizer, seed=12)
        low, high = _logits(model, tiny_finetuning.examples(50, seed=2).texts).T
        model.heads["classification"].output_projection.bias.assign([np.median(high - low), 0.0])
        model.save_pretrained(folder)
        return tiny_finetuning.read_files(folder)


def tag_methods(epochs: int) -> dict[str, Method]:
    """Methods by name, with rates at which a tiny student learns tags in so many passes."""
    tinybert = TinyBERT(
        max_length=19,
        intermediate_epochs=1,
        intermediate_learning_rate=3e-3,
        prediction_epochs=epochs,
        prediction_learning_rate=1e-2,
        prediction_batch_size=16,
    )
    minilmv2 = MiniLMv2(
        max_length=19,
        relation_heads=2,
        epochs=1,
        finetuning_epochs=epochs,
        finetuning_learning_rate=1e-2,
        warmup_steps=1,
    )
    hsk = HSK(
        max_length=19,
        knowledge="all,all,1",
        hidden_epochs=1,
        hidden_learning_rate=3e-3,
        prediction_epochs=epochs,
        prediction_learning_rate=1e-2,
        batch_size=16,
    )
    efficientbert = EfficientBERT(max_length=19, epochs=epochs + 1, learning_rate=1e-2, batch_size=16)
    return {"tinybert": tinybert, "minilmv2": minilmv2, "hsk": hsk, "efficientbert": efficientbert}


def labelled_by(teacher: Path, count: int, seed: int) -> Examples:
    """Sentences with the class that the teacher gives them, so that a student can learn it and its metric is 1."""
    import pocketbert as pb

    plain = tiny_finetuning.examples(count, seed)
    digest = hashlib.sha256(b"".join(content for _, content in sorted(tiny_finetuning.read_files(teacher).items())))
    key = digest.hexdigest(), count, seed
    if key not in _ANSWERS:
        _ANSWERS[key] = _logits(pb.from_pretrained(teacher), plain.texts).argmax(-1)
    return Examples(plain.texts, None, _ANSWERS[key].astype(np.int32), plain.ids, plain.source)


# Digest of a teacher, number of sentences, their seed → classes; many tests need the answers of one teacher.
_ANSWERS: dict[tuple[str, int, int], np.ndarray] = {}


def write_text(path: Path, sentences: int = 80, seed: int = 7) -> Path:
    """Plain text of documents of 1 to 5 sentences."""
    texts = [f"{text.capitalize()}." for text in tiny_finetuning.examples(sentences, seed).texts]
    ends = np.cumsum(np.random.default_rng(seed).integers(1, 6, sentences))
    documents = np.split(np.array(texts), ends[ends < sentences])
    path.write_text("\n\n".join(" ".join(document) for document in documents) + "\n", encoding="utf-8")
    return path


def task_data(teacher: Path, **changes: Any) -> TaskData:
    """90 examples to train on and 37 to choose by."""
    fields: dict[str, Any] = {
        "task": TASK,
        "train": labelled_by(teacher, 90, seed=0),
        "dev": labelled_by(teacher, 37, seed=1),
        "metrics": ("accuracy",),
        "main_metric": "accuracy",
    }
    return TaskData(**{**fields, **changes})


def _logits(model: Any, texts: list[str]) -> np.ndarray:
    return model(model.tokenizer(texts, max_length=MAX_LENGTH))["logits"].numpy()
