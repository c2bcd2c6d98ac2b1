"""HSK's amounts, selections and loss against arithmetic from the paper."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny
import tiny_distillation
from oracles import hsk as oracle

import pocketbert as pb
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.data.batches import EncodedExamples, encode, plan_batches
from pocketbert.data.teacher_cache.reader import TeacherCache
from pocketbert.data.teacher_cache.targets import record_bytes
from pocketbert.distillation import hidden_selection
from pocketbert.distillation.cache_teacher import cache_targets
from pocketbert.distillation.distiller import Distiller
from pocketbert.distillation.initialization import initialize_adapters
from pocketbert.distillation.method import DistillationSpec, plan_stages
from pocketbert.distillation.methods.hsk import HSK
from pocketbert.distillation.methods.hsk_knowledge import TABLE_5, Knowledge, layer_map, static_mask
from pocketbert.distillation.teacher_cache_identity import teacher_cache_identity
from pocketbert.errors import UserError
from pocketbert.presets import preset
from pocketbert.training.stage import Epochs

TASK = TaskConfig(kind="classification", name="three", labels=("low", "middle", "high"))
# 3 layers of 30 and 2 layers of 20 activations.
TEACHER = tiny.BERT
STUDENT = tiny_distillation.STUDENT.replace(num_layers=2)
SEPARATOR = 7


def spec(teacher: EncoderConfig = TEACHER, student: EncoderConfig = STUDENT, **changes: Any) -> DistillationSpec:
    return DistillationSpec(teacher=teacher, student=student, **{"task": TASK, "teacher_task": TASK, **changes})


def method(**options: Any) -> HSK:
    return HSK(**{"separator_id": SEPARATOR, "max_length": 23, **options})


def inputs() -> dict[str, tf.Tensor]:
    """Texts of 7, 4 and 6 tokens; two, one and one of them are separators, and [CLS] comes first."""
    batch = {name: value.numpy() for name, value in tiny.batch(TEACHER, length=9).items()}
    ids = np.where(batch["input_word_ids"] == SEPARATOR, 8, batch["input_word_ids"])
    ids[[0, 0, 1, 2], [3, 6, 3, 5]] = SEPARATOR
    return {**{name: tf.constant(value) for name, value in batch.items()}, "input_word_ids": tf.constant(ids)}


@pytest.mark.parametrize(
    ("layers", "top", "expected"),
    [
        (4, 10, (0, 2, 5, 8, 10)),
        (6, 8, (0, 1, 3, 4, 5, 7, 8)),
        (6, 10, (0, 2, 3, 5, 7, 8, 10)),
        (3, 4, (0, 1, 3, 4)),
        (2, 5, (0, 2, 5)),
    ],
)
def test_layer_map_rounds_halves_to_even(layers: int, top: int, expected: tuple[int, ...]) -> None:
    assert layer_map(layers, top) == expected


def test_uniform_mask_is_equation_7() -> None:
    assert static_mask("uniform", 3, 7, 0) == (1, 4, 6)
    for width in range(1, 769):
        expected = np.rint(np.arange(1, width + 1) * 768 / width).astype(int) - 1
        assert static_mask("uniform", width, 768, 0) == tuple(expected)


def test_random_mask_belongs_to_its_seed() -> None:
    masks = [static_mask("rand", 11, 30, seed) for seed in (0, 0, 1)]
    assert masks[0] == masks[1] != masks[2]
    assert all(len(set(mask)) == 11 and list(mask) == sorted(mask) and mask[-1] < 30 for mask in masks)


@pytest.mark.parametrize(("column", "rows"), [("1", 13), ("3", 20), ("5", 31), ("10", 36), ("50", 21)])
def test_table_5_has_its_amounts(column: str, rows: int) -> None:
    """Table 1 has the numbers of rows, table 5 the tolerances."""
    assert len(set(TABLE_5[column])) == rows
    for row in range(1, rows + 1):
        knowledge = Knowledge.parse(f"table5-{column}-{row}")
        assert knowledge.layers is not None and knowledge.tokens is not None
        units = knowledge.layers * knowledge.tokens * knowledge.width
        assert abs(units / int(column) - 1) <= (0.1 if column == "1" else 0.05)


def test_amount_of_knowledge_is_measured() -> None:
    knowledge = Knowledge.parse("table5-1-3")
    assert str(knowledge) == "1,9,0.1" and knowledge.kept(768) == 77
    assert knowledge.units(5, 128, 768) == 9 * 77 / 768
    assert Knowledge.parse("all,all,1").units(7, 128, 768) == 896


@pytest.mark.parametrize(
    ("task", "epochs", "batch_size", "length", "rate"),
    [
        ("cola", 30, 32, 64, 2e-5),
        ("sst2", 10, 32, 64, 2e-5),
        ("qnli", 5, 64, 128, 2e-5),
        ("mnli", 5, 64, 128, 5e-5),
        ("rte", 20, 32, 128, 2e-5),
    ],
)
def test_schedules_match_table_4(task: str, epochs: int, batch_size: int, length: int, rate: float) -> None:
    named_task = dataclasses.replace(TASK, name=task)
    bert, small = preset("bert_base_uncased").config, preset("tinybert_4l_312d").config
    hidden, prediction = plan_stages(HSK(separator_id=102), spec(bert, small, task=named_task, teacher_task=named_task))
    assert (hidden.duration, hidden.batch_size, hidden.max_length) == (Epochs(epochs), batch_size, length)
    assert (hidden.optimizer.learning_rate, hidden.optimizer.schedule) == (5e-5, "constant")
    assert (prediction.duration, prediction.batch_size, prediction.max_length) == (Epochs(5), batch_size, length)
    assert (prediction.optimizer.learning_rate, prediction.optimizer.schedule) == (rate, "linear")
    assert hidden.data == prediction.data == "task"
    assert hidden.teacher_features == {"hidden_states": (10,), "attention_probs": (12,)}
    assert hidden.student_features == {"hidden_states": (4,)}


def test_hidden_stage_has_its_rate() -> None:
    options = method(hidden_learning_rate=7e-4, hidden_epochs=3, prediction_learning_rate=2e-4)
    hidden, prediction = plan_stages(options, spec())
    assert (hidden.optimizer.learning_rate, prediction.optimizer.learning_rate) == (7e-4, 2e-4)
    assert hidden.duration == Epochs(3)


def test_embedding_takes_attention_of_layer_1() -> None:
    (hidden, _) = plan_stages(method(knowledge="all,2,1", top_layer=1, tokens="att"), spec())
    assert hidden.teacher_features == {"hidden_states": (0, 0, 1), "attention_probs": (1, 1, 1)}
    (hidden, _) = plan_stages(method(knowledge="2,2,1", top_layer=1), spec())
    assert hidden.teacher_features == {"hidden_states": (0, 1), "attention_probs": (2, 3)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"knowledge": "0,9,0.1"}, "at least 1 layer and 1 token; received '0,9,0.1'"),
        ({"knowledge": "1,0,0.1"}, "at least 1 layer and 1 token; received '1,0,0.1'"),
        ({"knowledge": "1,9,0"}, r"a width in \(0, 1\]; received '1,9,0'"),
        ({"knowledge": "1,9,1.1"}, r"a width in \(0, 1\]; received '1,9,1.1'"),
        ({"knowledge": "table5-3-21"}, "must be N_D,N_L,N_W/d .*table5-3-1 to -20, .*; received 'table5-3-21'"),
        ({"knowledge": "4,9,0.1"}, "at most 3 pairs of layers .* the embedding counts; received 4; give 1 to 3"),
        ({"knowledge": "1,9,0.01"}, "must keep an activation of the teacher's width 30; received a share of 0.01"),
        ({"top_layer": 4}, "top_layer must be 1 to 3, the teacher's layers; received 4"),
        ({"separator_id": None}, "needs the id of .SEP.; received models without tokenizer files; give separator_id"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        plan_stages(method(**options), spec())


def test_summary_states_the_amount() -> None:
    lines = method(knowledge="2,4,0.5").summary(spec())
    assert lines[0] == "hsk: A^HSK = 4.00 of 69 units: N_D = 2, N_L = 4, N_W = 15 of 30, for 23 tokens"
    assert "fewer than 4 tokens" in lines[1]


def test_ties_take_the_lower_place() -> None:
    values, indices = hidden_selection.largest(tf.constant([[2.0, -3.0, 3.0, -2.0]]), 3)
    assert indices.numpy().tolist() == [[0, 1, 2]] and values.numpy().tolist() == [[2.0, -3.0, 3.0]]
    attention = tf.constant(np.full([1, 2, 5, 5], 0.2), tf.float32)
    available = tf.constant([[True, False, True, True, True]])
    assert hidden_selection.attended_positions(attention, available, 3).numpy().tolist() == [[0, 2, 3]]


STRATEGIES = [
    {"knowledge": "all,4,0.3"},
    {"knowledge": "2,2,1", "tokens": "att"},
    {"knowledge": "1,5,0.5", "tokens": "att-no-sep", "widths": "uniform"},
    {"knowledge": "all,8,0.4", "tokens": "left", "widths": "rand"},
    {"knowledge": "2,all,0.2"},
]


@pytest.fixture(scope="module")
def networks() -> tuple[pb.Model, pb.Model]:
    """Teacher and student."""
    return pb.from_preset(TEACHER, (TASK,), seed=12), pb.from_preset(STUDENT, (TASK,), seed=4)


@pytest.mark.one_of_each
@pytest.mark.parametrize("options", STRATEGIES, ids=lambda options: options["knowledge"])
@pytest.mark.parametrize("top", [3, 1])
def test_loss_matches_the_paper(options: dict[str, Any], top: int, networks: tuple[pb.Model, pb.Model]) -> None:
    tested, batch, (teacher, student) = method(**options, top_layer=top), inputs(), networks
    adapters = dict(tested.adapters(spec()))
    initialize_adapters(adapters, 0.2, seed=1)
    stage = plan_stages(tested, spec())[0]
    distiller = Distiller(student, tested, stage, teacher=teacher, adapters=adapters)
    loss = float(distiller.losses(batch)[0])

    count = len(stage.student_features["hidden_states"])
    everything = teacher.features(batch, {"hidden_states": range(4), "attention_probs": range(1, 4)}, training=False)
    states, attention = ([value.numpy() for value in everything[name]] for name in everything)
    kernel, bias = (variable.numpy().astype(np.float64) for variable in adapters["projection"].weights)
    learned = student.features(batch, {"hidden_states": range(3)}, training=False)["hidden_states"]
    ids, mask = batch["input_word_ids"].numpy(), batch["input_mask"].numpy()
    last = 3 if tested.tokens == "att-last-no-sep" else top
    # Halves go to even: 1.5 to 2, 0.5 to 0.
    depth = {1: (0, 0, 1), 3: (0, 2, 3)}
    attended = [attention[max(1, layer) - 1] for layer in depth[last]]
    width = round(float(tested.amounts.width) * 30)
    static = None if tested.widths == "mag" else static_mask(tested.widths, width, 30, 0)
    expected = oracle.loss(
        [states[layer] for layer in depth[top]][-count:],
        [value.numpy().astype(np.float64) @ kernel + bias for value in learned][-count:],
        None if tested.tokens == "left" or tested.amounts.tokens is None else attended[-count:],
        ids,
        mask,
        tokens=tested.amounts.tokens,
        separator=SEPARATOR if tested.tokens.endswith("no-sep") else None,
        width=width,
        static=static,
    )
    # Sums of some thousand float32 numbers of order 1.
    assert loss == pytest.approx(expected, rel=1e-5)


def test_equal_widths_need_no_projection() -> None:
    assert method().adapters(spec(student=TEACHER.replace(num_layers=2))) == {}


def test_authors_threshold_covers_the_batch() -> None:
    values = np.random.default_rng(5).standard_normal((3, 4, 5)).astype(np.float32)
    selected = hidden_selection.above_threshold(tf.constant(values), Knowledge.parse("1,1,0.3").width).numpy()
    # round(0.3 · 60)
    threshold = np.sort(np.abs(values).reshape(-1))[-18]
    np.testing.assert_array_equal(selected, np.where(np.abs(values) >= threshold, values, 0))
    stage = plan_stages(method(preset="authors-code", knowledge="1,3,0.3"), spec())[0]
    assert stage.teacher_features == {"hidden_states": (2,), "attention_logits": (3,)}
    assert "depend on the batch, so a teacher cache" in method(preset="authors-code").uncacheable(stage)
    assert method().uncacheable(stage) == ""


def test_authors_targets_keep_their_shape(networks: tuple[pb.Model, pb.Model]) -> None:
    tested, batch = method(preset="authors-code", knowledge="2,3,0.3"), inputs()
    stage = plan_stages(tested, spec())[0]
    teacher, _ = networks
    targets = tested.targets(stage, teacher.features(batch, stage.teacher_features, training=False), batch)
    assert {name: tuple(value.shape) for name, value in targets.items()} == {
        "values_1": (3, 3, 30),
        "positions_1": (3, 3),
        "values_2": (3, 3, 30),
        "positions_2": (3, 3),
    }


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, EncodedExamples]:
    directory = tiny_distillation.write_teacher(tmp_path_factory.mktemp("teacher") / "model", TEACHER)
    tokenizer = pb.from_pretrained(directory).tokenizer
    return directory, encode(tiny_distillation.labelled_by(directory, 21, seed=0), tokenizer, 23)


@pytest.mark.usefixtures("eager")
# Masks of bits are those of the conformance suite.
@pytest.mark.one_of_each("options6-int8-elias-fano-0.02")
@pytest.mark.parametrize(
    ("options", "dtype", "masks", "rel"),
    [
        *((options, "float16", "bits", 2e-3) for options in STRATEGIES),
        ({"knowledge": "all,4,0.3"}, "float16", "elias-fano", 2e-3),
        # An error of up to half of 1/127 of the largest activation in each value.
        ({"knowledge": "all,4,0.3"}, "int8", "elias-fano", 2e-2),
    ],
)
def test_cached_loss_equals_live_loss(
    stored: tuple[Path, EncodedExamples], tmp_path: Path, options: dict[str, Any], dtype: str, masks: str, rel: float
) -> None:
    directory, encoded = stored
    teacher = pb.from_pretrained(directory)
    tested = method(**options)
    setting = spec(task=None, teacher_task=None)
    (stage,) = plan_stages(tested, setting)
    adapters = dict(tested.adapters(setting))
    initialize_adapters(adapters, 0.2, seed=1)
    live = Distiller(pb.from_preset(STUDENT, seed=4), tested, stage, teacher=teacher, adapters=adapters)
    folder = cache_targets(teacher, directory, tested, stage, encoded, tmp_path, dtype=dtype, masks=masks)
    cache = TeacherCache.open(folder)
    shards = sum(path.stat().st_size for path in folder.glob("shard-*.bin"))
    assert shards == int(record_bytes(cache.targets, encoded.lengths, cache.candidates).sum())
    if tested.amounts.tokens is None:
        assert cache.candidates is None
    else:
        texts = np.split(encoded.word_ids, encoded.offsets[1:-1])
        excluded = SEPARATOR if tested.tokens.endswith("no-sep") else -1
        assert cache.candidates is not None
        assert cache.candidates.tolist() == [sum(word != excluded for word in text) for text in texts]
    for batch, targets in cache.dataset(encoded, plan_batches(encoded.lengths, batch_size=8, seed=0, epoch=0)):
        for name, value in live.targets(batch).items():
            assert targets[name].shape == value.shape and targets[name].dtype == value.dtype
            if value.dtype == tf.int32:
                np.testing.assert_array_equal(targets[name], value)
            elif dtype == "float16":
                # Half of float16's last place, and float32 sums in batches of other widths.
                np.testing.assert_allclose(targets[name], value, rtol=2**-11 + 2e-5, atol=2**-25 + 2e-6)
        assert float(live.losses(batch, targets)[0]) == pytest.approx(float(live.losses(batch)[0]), rel=rel)


@pytest.mark.usefixtures("eager")
def test_other_compression_is_refused(stored: tuple[Path, EncodedExamples], tmp_path: Path) -> None:
    directory, encoded = stored
    setting = spec(task=None, teacher_task=None)
    tested = method(knowledge="table5-1-3", tokens="left")
    (stage,) = plan_stages(tested, setting)
    folder = cache_targets(pb.from_pretrained(directory), directory, tested, stage, encoded, tmp_path)

    def open_for(**options: Any) -> None:
        other = method(**{"tokens": "left", **options})
        (stage,) = plan_stages(other, setting)
        TeacherCache.open(folder, teacher_cache_identity(other, stage, encoded, teacher_directory=None, tokenizer=None))

    # The same amounts under their other name, and options that targets do not read.
    open_for(knowledge="1,9,0.1", hidden_epochs=7, mask_seed=5)
    with pytest.raises(UserError, match="of options.knowledge .'1,9,0.1' in the cache, '1,9,0.2' here"):
        open_for(knowledge="1,9,0.2")
    with pytest.raises(UserError, match="other features of the teacher .*'attention_probs': .*here"):
        open_for(tokens="att")
