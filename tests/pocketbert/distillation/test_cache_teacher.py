from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cheap_tensorflow
import numpy as np
import pytest
import tensorflow as tf
import tiny_finetuning

from pocketbert.configs import TokenizerConfig
from pocketbert.data.batches import EncodedExamples, encode, plan_batches
from pocketbert.data.teacher_cache.reader import TeacherCache
from pocketbert.data.teacher_cache.targets import TargetSpec
from pocketbert.data.teacher_cache.writer import TeacherCacheWriter
from pocketbert.distillation.cache_teacher import cache_targets, target_specs
from pocketbert.distillation.teacher_cache_identity import teacher_cache_identity, teacher_digest, tokenizer_digest
from pocketbert.errors import UserError
from pocketbert.model import Model, from_pretrained
from pocketbert.training.stage import OptimizerConfig, Stage, Steps
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

# Runs of a few steps: graphs would take longer to trace than to run.
pytestmark = pytest.mark.usefixtures("eager")
# Four shards or so of 41 sentences.
SHARD_BYTES = 60_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    scale: float = 0.5
    bonus: float = 0.0
    rate: float = 1e-3

    @property
    def doubled(self) -> float:
        return 2 * self.bonus


class Mimicry:
    """A method whose targets have every kind of axis; the loss is nobody's business here."""

    name = "mimicry"
    reference = "none"
    options = Options

    def targets(self, stage: Stage, teacher: Mapping[str, list[tf.Tensor]], batch: Any) -> dict[str, tf.Tensor]:
        values = {
            "hidden_0": teacher["hidden_states"][0],
            "hidden_2": teacher["hidden_states"][1],
            # 5 heads, which the first trial's length equals.
            "attention_2": teacher["attention_logits"][0],
            "logits": teacher["logits"][0] * stage.options.scale,
            "first_token": teacher["hidden_states"][1][:, 0],
            "norms": tf.norm(teacher["hidden_states"][1], axis=-1),
            "agreement": tf.cast(
                tf.argmax(teacher["logits"][0], -1, tf.int32) == batch["input_word_ids"][:, 1] % 2, tf.float32
            ),
        }
        if stage.options.scale > 1:
            values["bonus"] = values["logits"] + stage.options.doubled
        return values

    def index_limits(self, stage: Stage, teacher: Any) -> dict[str, int]:
        return {}

    def candidates(self, stage: Stage, encoded: EncodedExamples) -> None:
        return None


METHOD: Any = Mimicry()
STAGE = Stage(
    name="first",
    teacher_features={"hidden_states": (0, 2), "attention_logits": (2,), "logits": ()},
    student_features={"hidden_states": (0, 2)},
    weights={"hidden": 1.0},
    data="task",
    max_length=21,
    duration=Steps(1),
    batch_size=4,
    optimizer=OptimizerConfig(learning_rate=1e-3),
    options=Options(),
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("teacher")
    tiny_finetuning.write_model(folder / "encoder", tiny_finetuning.CONFIG.replace(num_layers=2))
    from_pretrained(folder / "encoder", tiny_finetuning.TASK, seed=3).save_pretrained(folder / "classifier")
    return folder / "classifier"


@pytest.fixture(scope="module")
def teacher(directory: Path) -> Model:
    return from_pretrained(directory)


@pytest.fixture(scope="module")
def encoded(teacher: Model) -> EncodedExamples:
    return encode(tiny_finetuning.examples(41, seed=8), teacher.tokenizer, STAGE.max_length)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, teacher: Model, directory: Path, encoded: EncodedExamples) -> Path:
    output = tmp_path_factory.mktemp("stores")
    with cheap_tensorflow.eager():
        return cache_targets(teacher, directory, METHOD, STAGE, encoded, output, shard_bytes=SHARD_BYTES)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_token_axes_follow_the_length(teacher: Model, encoded: EncodedExamples) -> None:
    specs, candidates, read = target_specs(teacher, METHOD, STAGE, encoded, "float16")
    assert candidates is None
    assert specs == (
        TargetSpec(name="agreement", shape=(), dtype="float16"),
        TargetSpec(name="attention_2", shape=(5, None, None), dtype="float16"),
        TargetSpec(name="first_token", shape=(30,), dtype="float16"),
        TargetSpec(name="hidden_0", shape=(None, 30), dtype="float16"),
        TargetSpec(name="hidden_2", shape=(None, 30), dtype="float16"),
        TargetSpec(name="logits", shape=(2,), dtype="float16"),
        TargetSpec(name="norms", shape=(None,), dtype="float16"),
    )
    assert read >= {"stage.options", "options.scale"} and "options.bonus" not in read


def test_options_read_by_targets_are_found(teacher: Model, encoded: EncodedExamples) -> None:
    stage = dataclasses.replace(STAGE, options=Options(scale=2.0))
    _, _, read = target_specs(teacher, METHOD, stage, encoded, "float16")
    # `bonus` only through a property, and only where the scale asks for it.
    assert read >= {"stage.options", "options.scale", "options.bonus"} and "options.rate" not in read


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (lambda hidden: tf.reduce_mean(hidden, axis=0), r"the first axis of odd must be the batch; .*\(5, 30\)"),
        (lambda hidden: tf.reduce_mean(hidden), "the first axis of odd must be the batch"),
        (lambda hidden: hidden[:, 1:], r"axes of odd must equal the sequence length or be constant; .*\(2, 4, 30\)"),
        (lambda hidden: hidden > 0, "odd must have numbers; received bool"),
    ],
)
def test_uncacheable_targets_are_refused(
    teacher: Model, encoded: EncodedExamples, monkeypatch: pytest.MonkeyPatch, target: Any, message: str
) -> None:
    monkeypatch.setattr(
        Mimicry, "targets", lambda self, stage, features, batch: {"odd": target(features["hidden_states"][0])}
    )
    with pytest.raises(UserError, match=f"mimicry: the targets of stage first cannot be cached: {message}"):
        target_specs(teacher, METHOD, STAGE, encoded, "float16")


def test_cached_targets_equal_live_ones(
    stored: Path, teacher: Model, directory: Path, encoded: EncodedExamples
) -> None:
    expect = teacher_cache_identity(METHOD, STAGE, encoded, teacher_directory=directory, tokenizer=teacher.tokenizer)
    store = TeacherCache.open(stored, expect)
    assert len(list(stored.glob("shard-*"))) > 2
    plan = plan_batches(encoded.lengths, batch_size=6, seed=4, epoch=2)
    widths = set()
    for batch, targets in store.dataset(encoded, plan):
        inputs = {name: value for name, value in batch.items() if name != "labels"}
        features = teacher.features(inputs, STAGE.teacher_features, training=False)
        live = METHOD.targets(STAGE, features, batch)
        assert set(targets) == set(live)
        mask = batch["input_mask"].numpy().astype(bool)
        widths.add(mask.shape[1])
        for name, value in live.items():
            assert targets[name].shape == value.shape and targets[name].dtype == tf.float32
            real, other = value.numpy().copy(), targets[name].numpy()
            if name.startswith("hidden") or name == "norms":
                padding = ~mask
            elif name == "attention_2":
                padding = np.broadcast_to(~(mask[:, None, :, None] & mask[:, None, None, :]), real.shape)
            else:
                padding = np.zeros(len(mask), bool)
            assert not other[padding].any()
            # Half of float16's last place, relative; 2^-25 is half its smallest step. The teacher computed in batches
            # of other widths, which moves float32 sums by 1e-6 or so.
            np.testing.assert_allclose(other[~padding], real[~padding], rtol=2**-11 + 2e-5, atol=2**-25 + 2e-6)
    assert len(widths) > 1


def test_float32_stores_every_bit(tmp_path: Path, teacher: Model, directory: Path, encoded: EncodedExamples) -> None:
    folder = cache_targets(teacher, directory, METHOD, STAGE, encoded, tmp_path, dtype="float32")
    store = TeacherCache.open(folder)
    inputs, _ = encoded.batch(np.array([7]))
    features = teacher.features(inputs, STAGE.teacher_features, training=False)
    live = METHOD.targets(STAGE, features, inputs)
    length = encoded.lengths[7]
    np.testing.assert_allclose(store.example(7)["hidden_2"], live["hidden_2"][0, :length], rtol=2e-5, atol=2e-6)
    with pytest.raises(UserError, match="dtype must be one of float16, float32, int8; received int4"):
        cache_targets(teacher, directory, METHOD, STAGE, encoded, tmp_path, dtype="int4")


def test_interrupted_cache_has_same_bytes(
    tmp_path: Path,
    stored: Path,
    teacher: Model,
    directory: Path,
    encoded: EncodedExamples,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write, written = TeacherCacheWriter.write, []

    def interrupted(self: TeacherCacheWriter, content: Any) -> None:
        if len(written) == 1:
            raise KeyboardInterrupt
        write(self, content)
        written.append(content.shard.name)

    monkeypatch.setattr(TeacherCacheWriter, "write", interrupted)
    arguments: Any = (teacher, directory, METHOD, STAGE, encoded, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        cache_targets(*arguments, shard_bytes=SHARD_BYTES)
    assert [path.name for path in (tmp_path / "first").glob("shard-*")] == ["shard-00000.bin"]
    monkeypatch.undo()
    cache_targets(*arguments, shard_bytes=SHARD_BYTES)
    assert "shards are already complete" in capsys.readouterr().err
    assert contents(tmp_path / "first") == contents(stored)
    # Nothing is left to do, and nothing is done.
    monkeypatch.setattr(TeacherCacheWriter, "write", interrupted)
    cache_targets(*arguments, shard_bytes=SHARD_BYTES)


def test_other_teacher_or_option_is_refused(
    stored: Path, tmp_path: Path, teacher: Model, directory: Path, encoded: EncodedExamples
) -> None:
    def opened(stage: Stage = STAGE, **changes: Any) -> TeacherCache:
        arguments = {"encoded": encoded, "teacher_directory": directory, "tokenizer": teacher.tokenizer} | changes
        return TeacherCache.open(stored, teacher_cache_identity(METHOD, stage, **arguments), verify=False)

    opened()
    opened(teacher_directory=None, tokenizer=None)
    # What the targets do not depend on may change.
    opened(dataclasses.replace(STAGE, weights={"hidden": 3.0}, options=Options(rate=1.0, bonus=2.0)))
    with pytest.raises(UserError, match=r"another value of options.scale \(0.5 in the cache, 0.25 here\)"):
        opened(dataclasses.replace(STAGE, options=Options(scale=0.25)))
    features = {**STAGE.teacher_features, "hidden_states": (0, 1)}
    with pytest.raises(UserError, match="other features of the teacher"):
        opened(dataclasses.replace(STAGE, teacher_features=features))
    other = from_pretrained(directory)
    other.named_variables()["bert.pooler.dense.bias"].assign_add(tf.ones([30]))
    other.save_pretrained(tmp_path / "other")
    with pytest.raises(UserError, match="another teacher"):
        opened(teacher_directory=tmp_path / "other")
    fewer = encode(tiny_finetuning.examples(40, seed=8), teacher.tokenizer, STAGE.max_length)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="another dataset"):
        opened(encoded=fewer)


def test_identities_of_teacher_and_tokenizer(tmp_path: Path, teacher: Model, directory: Path) -> None:
    assert teacher_digest(directory) == teacher_digest(directory) != teacher_digest(directory.parent / "encoder")
    with pytest.raises(UserError, match="the teacher must be a model directory"):
        teacher_digest(tmp_path)
    tokenizer: Any = dataclasses.make_dataclass("T", ["vocabulary"])
    vocabulary = directory / "vocab.txt"
    (tmp_path / "other.txt").write_text(vocabulary.read_text() + "more\n")
    digests = {
        tokenizer_digest(tokenizer(Vocabulary(path=path, config=TokenizerConfig(lowercase=lowercase))))
        for path in (vocabulary, tmp_path / "other.txt")
        for lowercase in (True, False)
    }
    assert len(digests) == 4


def test_float16_overflow_names_the_target(
    tmp_path: Path, teacher: Model, directory: Path, encoded: EncodedExamples
) -> None:
    large = dataclasses.replace(STAGE, options=Options(scale=1e7))
    message = "the target (logits|bonus) must fit into float16, at most 65504; received .*; use dtype='float32'"
    with pytest.raises(UserError, match=message):
        cache_targets(teacher, directory, METHOD, large, encoded, tmp_path)
    folder = cache_targets(teacher, directory, METHOD, large, encoded, tmp_path, dtype="float32", overwrite=True)
    assert max(abs(TeacherCache.open(folder).example(i)["logits"]).max() for i in range(41)) > 65504


def test_stage_without_teacher_is_refused(
    tmp_path: Path, teacher: Model, directory: Path, encoded: EncodedExamples
) -> None:
    bare = dataclasses.replace(STAGE, teacher_features={})
    with pytest.raises(UserError, match="stage first does not read the teacher"):
        cache_targets(teacher, directory, METHOD, bare, encoded, tmp_path)
