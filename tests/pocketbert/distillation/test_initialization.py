"""Initialization of students."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import BERT, IB_BERT, MOBILEBERT, batch

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.distillation import initialization
from pocketbert.distillation.initialization import TeacherLayers, initialize_adapters, teacher_arrays
from pocketbert.errors import UserError
from pocketbert.layers.core import Dense
from pocketbert.presets import preset
from pocketbert.training.initialization import ModelInit, assign_weights, make_model, vocabulary_of

TEACHER = BERT.replace(num_layers=4, hidden_dropout=0.0, attention_dropout=0.0)
TASK = TaskConfig(kind="classification", name="mine", labels=("no", "so", "yes"))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "teacher"
    pb.from_preset(TEACHER, (TASK,), seed=11).save_pretrained(path)
    return path


def arrays(model: pb.Model) -> dict[str, np.ndarray]:
    return {path: variable.numpy() for path, variable in model.weights_by_path().items()}


def differing(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> set[str]:
    assert first.keys() == second.keys()
    return {path for path in first if not np.array_equal(first[path], second[path])}


def plan_student(student: Any, teacher: Any, teacher_layers: Any = ()) -> ModelInit:
    start = TeacherLayers(tuple(teacher_layers), student) if teacher_layers else student
    return initialization.plan_student(start, teacher)


def make_student(
    plan: ModelInit,
    *,
    tasks: Any,
    tokenizer: Any,
    teacher_directory: Any = None,
    seed: int = 0,
    teacher_task: Any = None,
) -> Any:
    student = make_model(plan, tasks, tokenizer, seed)
    if plan.layers:
        assign_weights(student, teacher_arrays(student, teacher_directory, teacher_task, plan.layers))
    return student


# --- plans ---


def test_presets_start_with_random_weights() -> None:
    plan = plan_student("tinybert_4l_312d", preset("bert_base_uncased").config)
    assert plan == ModelInit(start="random", config=preset("tinybert_4l_312d").config)
    assert plan_student(TEACHER, BERT) == ModelInit(start="random", config=TEACHER)


def test_only_directories_provide_weights(directory: Path) -> None:
    expected = ModelInit(start="directory", config=TEACHER, directory=directory, initial_biases=True)
    assert plan_student(directory, BERT) == expected
    assert plan_student(str(directory), BERT).start == "directory"
    alone = plan_student(directory / "config.json", BERT)
    assert alone == ModelInit(start="random", config=TEACHER)


@pytest.mark.parametrize("config", [MOBILEBERT, IB_BERT], ids=["mobilebert", "ib_bert"])
def test_config_file_keeps_its_pooler(config: object, tmp_path: Path) -> None:
    pb.from_preset(config).save_pretrained(tmp_path / "model")  # type: ignore[arg-type]
    assert plan_student(tmp_path / "model" / "config.json", BERT).config == config


def test_layers_give_the_teachers_architecture() -> None:
    plan = plan_student(None, TEACHER, teacher_layers=(1, 3, 4))
    assert plan == ModelInit(start="teacher-layers", config=TEACHER.replace(num_layers=3), layers=(1, 3, 4))
    shallow = TEACHER.replace(num_layers=2, hidden_dropout=0.3)
    assert plan_student(shallow, TEACHER, teacher_layers=[4, 2]).layers == (4, 2)


@pytest.mark.parametrize("layers", [(1, 3), [1, 3], range(1, 4, 2), np.array([1, 3])])
def test_teacher_layers_take_any_sequence(layers: Any) -> None:
    assert pb.TeacherLayers(layers) == pb.TeacherLayers((1, 3))
    assert all(type(layer) is int for layer in pb.TeacherLayers(layers).layers)


@pytest.mark.parametrize("layers", [(), "1,3", 4, (1.0, 3.0), (True,), None, ("1", "3")])
def test_other_teacher_layers_are_refused(layers: Any) -> None:
    with pytest.raises(UserError, match=r"must be at least one number.*such as \(2, 4, 6\); received "):
        pb.TeacherLayers(layers)


def test_one_error_lists_layer_incompatibilities() -> None:
    narrow = BERT.replace(num_layers=2, hidden_size=20, embedding_size=20, head_size=4, layer_norm_eps=1e-5)
    with pytest.raises(UserError) as refusal:
        plan_student(narrow, TEACHER, teacher_layers=(1, 3, 9))
    for part in (
        "each of the student's 2 layers; received 3: 1,3,9",
        "teacher layers must be 1 to 4; received 9",
        "hidden_size must equal the teacher's 30; received 20",
        "embedding_size must equal the teacher's 30; received 20",
        "head_size must equal the teacher's 6; received 4",
        "layer_norm_eps must equal the teacher's 1e-12; received 1e-05",
        "or start from random weights",
    ):
        assert part in str(refusal.value)
    assert "dropout" not in str(refusal.value)


def test_invalid_students_are_refused(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="received no_such; the presets are bert_base_uncased"):
        plan_student("no_such", TEACHER)
    with pytest.raises(UserError, match="a directory or from layers of the teacher"):
        plan_student(directory, TEACHER, teacher_layers=(1, 2, 3, 4))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match="config.json: this must be JSON"):
        plan_student(tmp_path / "config.json", TEACHER)


# --- weights ---


def test_random_weights_depend_on_the_seed() -> None:
    plan = plan_student(BERT, TEACHER)
    first, again, other = (arrays(make_student(plan, tasks=(TASK,), tokenizer=None, seed=seed)) for seed in (1, 1, 2))
    assert not differing(first, again) and differing(first, other)


def test_teacher_layers_and_embedding_are_copied(directory: Path) -> None:
    plan = plan_student(None, TEACHER, teacher_layers=(1, 3))
    student = make_student(plan, tasks=(TASK,), tokenizer=None, teacher_directory=directory, seed=1)
    teacher, copied = arrays(pb.from_pretrained(directory)), arrays(student)
    for path, array in copied.items():
        source = path.replace("encoder.layers.1.", "encoder.layers.2.")
        np.testing.assert_array_equal(array, teacher[source], err_msg=path)
    # An embedding output and a first layer like the teacher's: the same features.
    request = {"hidden_states": (0, 1)}
    inputs = batch(TEACHER)
    states, expected = (
        model.features(inputs, request)["hidden_states"] for model in (student, pb.from_pretrained(directory))
    )
    for state, other in zip(states, expected, strict=True):
        np.testing.assert_array_equal(state, other)


def test_teacher_task_replaces_default_labels(tmp_path: Path) -> None:
    nameless = TaskConfig(kind="classification", name="", labels=("LABEL_0", "LABEL_1", "LABEL_2"))
    model = pb.from_preset(TEACHER, (nameless,), seed=11)
    model.save_pretrained(tmp_path / "teacher")
    plan = plan_student(None, TEACHER, teacher_layers=(2,))
    weights = {}
    for name, taken in (("resolved", TASK), ("raw", None)):
        weights[name] = arrays(
            make_student(
                plan, tasks=(TASK,), tokenizer=None, teacher_directory=tmp_path / "teacher", teacher_task=taken, seed=1
            )
        )
    heads = {path for path in weights["raw"] if path.startswith("heads.")}
    assert differing(weights["resolved"], weights["raw"]) == {path for path in heads if path.endswith("kernel")}
    assert not {path for path in heads if not np.array_equal(weights["resolved"][path], arrays(model)[path])}


def test_other_labels_give_new_heads(directory: Path) -> None:
    plan = plan_student(None, TEACHER, teacher_layers=(2,))
    other = TaskConfig(kind="classification", name="mine", labels=("so", "no", "no way"))
    fresh = arrays(pb.from_preset(plan.config, (other,), seed=1))
    copied = arrays(make_student(plan, tasks=(other,), tokenizer=None, teacher_directory=directory, seed=1))
    heads = {path for path in fresh if path.startswith("heads.")}
    assert heads and not heads & differing(fresh, copied)
    assert "encoder.layers.0.attention.query.kernel" in differing(fresh, copied)


def test_directory_gives_encoder_and_same_head(directory: Path) -> None:
    plan = plan_student(directory, TEACHER)
    student = make_student(plan, tasks=(TASK,), tokenizer=None, seed=1)
    source = arrays(pb.from_pretrained(directory))
    assert not differing(arrays(student), source)
    bare = make_student(plan, tasks=(), tokenizer=None, seed=1)
    assert bare.task is None and not differing(arrays(bare), {k: v for k, v in source.items() if k in arrays(bare)})


def test_layers_need_a_teacher_directory() -> None:
    plan = plan_student(None, TEACHER, teacher_layers=(1,))
    with pytest.raises(UserError, match="copied from its directory; received none"):
        make_student(plan, tasks=(), tokenizer=None)


# --- vocabulary and adapters ---


def test_directory_provides_the_vocabulary(tmp_path: Path) -> None:
    assert vocabulary_of(tmp_path) is None
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    vocabulary = vocabulary_of(tmp_path)
    assert vocabulary is not None and (vocabulary.path, vocabulary.config.lowercase) == (tmp_path / "vocab.txt", True)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    vocabulary = vocabulary_of(tmp_path)
    assert vocabulary is not None and vocabulary.config.lowercase is False


def test_adapters_have_different_weights() -> None:
    def drawn(seed: int) -> dict[str, np.ndarray]:
        adapters = {"first": Dense(37, 41), "second": Dense(37, 41)}
        initialize_adapters(adapters, standard_deviation=0.02, seed=seed)
        assert not any(adapter.bias.numpy().any() for adapter in adapters.values())
        return {name: adapter.kernel.numpy() for name, adapter in adapters.items()}

    first, again, other = drawn(1), drawn(1), drawn(2)
    assert not differing(first, again) and differing(first, other) == {"first", "second"}
    assert not np.array_equal(first["first"], first["second"])
    # 1517 draws, truncated at two standard deviations, which leaves 0.88 of one; its standard error is 2 %.
    assert first["first"].std() == pytest.approx(0.88 * 0.02, rel=0.08)
