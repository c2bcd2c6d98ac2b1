"""General distillation: inputs from plain text, and teachers with other architectures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny
import tiny_distillation
import toy_method
from safetensors.numpy import load_file

import pocketbert as pb
from pocketbert.configs import EncoderConfig
from pocketbert.data.batches import EncodedExamples
from pocketbert.data.packing import pack
from pocketbert.data.readers.text import read_documents
from pocketbert.data.task_data import TextData
from pocketbert.distillation.methods.tinybert import TinyBERT
from pocketbert.distillation.run import distill
from pocketbert.errors import UserError
from pocketbert.training.config import RunConfig
from pocketbert.training.stage_batches import StageBatches, encoded_batches

MAX_LENGTH, BATCH_SIZE, SEED = 23, 8, 5
Batches = list[Mapping[str, np.ndarray]]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_distillation.write_teacher(tmp_path_factory.mktemp("models") / "teacher")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_distillation.write_text(tmp_path_factory.mktemp("text") / "text.txt", sentences=50)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Batches:
    """What the steps of all later runs take, in their order; taking it twice changes nothing."""
    taken: Batches = []
    make = StageBatches.__init__

    def recorded(self: StageBatches, *arguments: Any) -> None:
        make(self, *arguments)
        elements = self.elements

        def taking(rows: Any, epoch: int) -> tf.data.Dataset:
            batches = elements(rows, epoch)
            taken.extend(batches.as_numpy_iterator())
            return batches

        self.elements = taking

    monkeypatch.setattr(StageBatches, "__init__", recorded)
    return taken


def general(teacher: Path, text: Path, output: Path, student: Any = tiny_distillation.STUDENT, **options: Any) -> Any:
    fields = {"max_length": MAX_LENGTH, "general_epochs": 1, "general_batch_size": BATCH_SIZE, **options}
    return distill(
        student, TextData(text), output, teacher=teacher, method=TinyBERT(**fields), run=RunConfig(seed=SEED)
    )


def packed(teacher: Path, text: Path, segments: Any) -> EncodedExamples:
    tokenizer = pb.from_pretrained(teacher).tokenizer
    return pack(read_documents(text), tokenizer, MAX_LENGTH, segments=segments, seed=SEED)


def rows_of(batches: Batches, name: str) -> list[tuple[int, ...]]:
    """Every row without its padding."""
    return [
        tuple(row[: mask.sum()])
        for batch in batches
        for row, mask in zip(batch[name], batch["input_mask"], strict=True)
    ]


def pieces(encoded: EncodedExamples, values: np.ndarray) -> list[tuple[int, ...]]:
    return [tuple(row) for row in np.split(values, encoded.offsets[1:-1])]


# --- what the networks see ---


@pytest.mark.usefixtures("eager")
def test_masks_and_segments_reach_the_networks(teacher: Path, text: Path, tmp_path: Path, seen: Batches) -> None:
    general(teacher, text, tmp_path / "run", general_epochs=2)
    encoded = packed(teacher, text, segments=2)
    assert encoded.type_ids.any() and len(seen) == 2 * -(-len(encoded) // BATCH_SIZE)
    segments = rows_of(seen, "input_type_ids")
    assert sorted(segments) == sorted(2 * pieces(encoded, encoded.type_ids))
    words, mask_id = rows_of(seen, "input_word_ids"), pb.from_pretrained(teacher).tokenizer.mask_token_id
    # Of n tokens max(1, round(0.15 n)) are chosen, and of these 80 % become [MASK]: five standard deviations about it.
    chosen = 2 * sum(max(1, round(0.15 * length)) for length in encoded.lengths)
    num_masked = sum(row.count(mask_id) for row in words)
    assert abs(num_masked - 0.8 * chosen) < 5 * (0.8 * 0.2 * chosen) ** 0.5
    # A second epoch masks other words.
    masks = [tuple(np.flatnonzero(np.array(row) == mask_id)) for row in words]
    halves = [
        set(zip(segments[part], masks[part], strict=True)) for part in (slice(len(encoded)), slice(len(encoded), None))
    ]
    assert len(halves[0] & halves[1]) < len(encoded) / 2


@pytest.mark.usefixtures("eager")
def test_the_authors_text_is_not_masked(teacher: Path, text: Path, tmp_path: Path, seen: Batches) -> None:
    general(teacher, text, tmp_path / "run", preset="authors-code", text_segments=1)
    encoded = packed(teacher, text, segments=1)
    assert sorted(rows_of(seen, "input_word_ids")) == sorted(pieces(encoded, encoded.word_ids))
    assert not any(batch["input_type_ids"].any() for batch in seen)


@pytest.mark.one_of_each("128-11-19")
@pytest.mark.parametrize(("length", "fewest", "most"), [(128, 11, 19), (300, 21, 45)])
def test_long_inputs_have_berts_mask_count(teacher: Path, length: int, fewest: int, most: int) -> None:
    tokenizer = pb.from_pretrained(teacher).tokenizer
    words = np.full(length, 20, np.int32)
    words[0], words[-1] = tokenizer.cls_token_id, tokenizer.sep_token_id
    encoded = EncodedExamples(words, np.zeros(length, np.int8), np.array([0, length]), length, 0)
    stage = toy_method.label_stage()
    (batch,) = encoded_batches(stage, encoded, seed=3, masks=tokenizer).elements([np.array([0])], 0)
    # round(0.15 * 128) = 19 and round(0.15 * 300) = 45 are chosen, of which nine tenths change: 17 and 40 on average,
    # with standard deviations of 1.3 and 2.0.
    changed = (batch["input_word_ids"].numpy()[0] != words).sum()
    assert fewest <= changed <= most


@pytest.mark.usefixtures("eager")
def test_one_segment_run_refuses_two_segments(teacher: Path, text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    general(teacher, text, run, general_steps=1)
    with pytest.raises(UserError, match="option_text_segments=None, received 1;"):
        general(teacher, text, run, general_steps=1, text_segments=1)


# --- other teachers ---

LARGE = tiny.BERT.replace(
    num_layers=4, hidden_size=42, embedding_size=42, num_attention_heads=6, head_size=7, intermediate_size=67
)
# Without dropout, so that the losses of a step are a function of its batch.
STUDENT = tiny_distillation.STUDENT.replace(hidden_dropout=0.0, attention_dropout=0.0)
# Architecture → teacher, student, the teacher's layer for each of the student's, segments of text.
TEACHERS: dict[str, tuple[EncoderConfig, EncoderConfig, tuple[int, ...], int]] = {
    # Deeper and wider, with more heads, which a student for it needs too.
    "bert-large": (
        LARGE,
        STUDENT.replace(num_layers=2, num_attention_heads=6, hidden_size=24, embedding_size=24),
        (2, 4),
        2,
    ),
    # Positions from 2, one token type, [PAD] at 1, no pooler; BERT's tokenizer, since the student shares it.
    "roberta": (tiny.ROBERTA.replace(num_layers=2), STUDENT.replace(pad_token_id=1), (2,), 1),
}


def embedded(model: Any, batch: Mapping[str, np.ndarray]) -> np.ndarray:
    """Devlin et al. 2019, figure 2, and the layer norm behind it; RoBERTa's first position has the number 2."""
    config = model.config
    weights = {path: value.numpy().astype(np.float64) for path, value in model.weights_by_path().items()}
    word, position, token_type = (
        weights[f"encoder.embeddings.{name}.table"] for name in ("word", "position", "token_type")
    )
    ids = batch["input_word_ids"]
    first = 2 if config.model_type == "roberta" else 0
    x = word[ids] + position[first + np.arange(ids.shape[1])] + token_type[batch["input_type_ids"]]
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + config.embedding_layer_norm_eps)
    return x * weights["encoder.embeddings.norm.gamma"] + weights["encoder.embeddings.norm.beta"]


def expected_losses(
    teacher: Any, student: Any, adapters: Mapping[str, np.ndarray], layers: tuple[int, ...], batch: Any
) -> dict[str, float]:
    """Eq. 7, 8 and 9 of the paper, over the texts' own tokens."""
    names = {"hidden_states", "attention_logits"}
    teacher_outputs, student_outputs = (
        {name: [tensor.numpy() for tensor in values] for name, values in model.features(batch, sorted(names)).items()}
        for model in (teacher, student)
    )
    np.testing.assert_allclose(teacher_outputs["hidden_states"][0], embedded(teacher, batch), atol=2e-5)
    mask = batch["input_mask"].astype(bool)

    def projected(layer: int, name: str) -> np.ndarray:
        kernel, bias = (adapters[f"adapters.{name}_projection.{part}"] for part in ("kernel", "bias"))
        return student_outputs["hidden_states"][layer] @ kernel + bias

    def error(one: np.ndarray, other: np.ndarray) -> float:
        return float(np.square(one.astype(np.float64) - other).mean())

    losses = {"embedding": error(projected(0, "embedding")[mask], teacher_outputs["hidden_states"][0][mask])}
    pairs = mask[:, :, None] & mask[:, None, :]
    mapped = list(enumerate(layers, start=1))
    losses["hidden"] = sum(
        error(projected(m, "hidden")[mask], teacher_outputs["hidden_states"][g][mask]) for m, g in mapped
    )
    losses["attention"] = sum(
        error(*(side["attention_logits"][layer - 1].transpose(0, 2, 3, 1)[pairs] for side, layer in sides))
        for sides in (((student_outputs, m), (teacher_outputs, g)) for m, g in mapped)
    )
    return losses


# BERT's losses are those of methods/test_tinybert_losses.py.
@pytest.mark.nightly
@pytest.mark.parametrize("architecture", TEACHERS)
@pytest.mark.usefixtures("eager")
def test_teachers_of_other_architectures(architecture: str, text: Path, tmp_path: Path, seen: Batches) -> None:
    config, student, layers, segments = TEACHERS[architecture]
    directory = tiny_distillation.write_teacher(tmp_path / "teacher", config)
    # A step that is too short to move a weight leaves what its losses were computed from.
    result = general(
        directory, text, tmp_path / "general", student, general_steps=1, general_learning_rate=1e-30, weight_decay=0.0
    )
    (batch,) = seen
    assert batch["input_type_ids"].max() == segments - 1
    padding = batch["input_word_ids"][batch["input_mask"] == 0]
    assert padding.size and (padding == config.pad_token_id).all()
    adapters = load_file(tmp_path / "general" / "adapters.safetensors")
    trained = pb.from_pretrained(directory), pb.from_pretrained(result.model_directory)
    line = json.loads((tmp_path / "general" / "metrics.jsonl").read_text("utf-8"))
    expected = expected_losses(*trained, adapters, layers, batch)
    # Sums of some thousand float32 numbers of order 1.
    assert {name: line[name] for name in expected} == pytest.approx(expected, rel=1e-5)
    assert line["loss"] == pytest.approx(sum(expected.values()), rel=1e-5)

    tuned = distill(
        result.model_directory,
        tiny_distillation.task_data(directory),
        tmp_path / "task",
        teacher=directory,
        method=TinyBERT(max_length=MAX_LENGTH, prediction_epochs=1, without=("embedding", "transformer")),
    )
    assert [stage["name"] for stage in tuned.stages] == ["prediction"]
    assert tuned.teacher_metrics == {"accuracy": 1.0} and tuned.model.config == student
