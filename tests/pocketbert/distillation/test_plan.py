"""Checks before a run: cached stages, unused inputs, and one message with all problems."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

import cheap_tensorflow
import pytest
import tiny_distillation
import tiny_finetuning
import toy_method

import pocketbert
from pocketbert.data.task_data import TaskData, TextData
from pocketbert.data.teacher_cache.layout import read_manifest
from pocketbert.distillation import planning
from pocketbert.distillation.cache_teacher import cache_stages
from pocketbert.distillation.methods.tinybert import TinyBERT
from pocketbert.distillation.plan import DistillationPlan
from pocketbert.distillation.planning import plan_distillation
from pocketbert.distillation.run import distill
from pocketbert.distillation.teacher import CachedTeacher
from pocketbert.errors import UserError
from pocketbert.training.config import RunConfig
from pocketbert.training.stage import Epochs, OptimizerConfig

BOTH_STAGES = TinyBERT(max_length=19, without=("augmentation",))
PREDICTION = dataclasses.replace(BOTH_STAGES, without=("augmentation", "embedding", "transformer"))


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_distillation.write_teacher(tmp_path_factory.mktemp("models") / "teacher")


@pytest.fixture(scope="module")
def task_data() -> TaskData:
    return TaskData(
        task=tiny_finetuning.TASK,
        train=tiny_finetuning.examples(23, seed=0),
        dev=tiny_finetuning.examples(11, seed=1),
        metrics=("accuracy",),
        main_metric="accuracy",
    )


@pytest.fixture(scope="module")
def given(teacher: Path, task_data: TaskData) -> dict[str, Any]:
    return {
        "student": tiny_distillation.STUDENT,
        "data": task_data,
        "teacher": teacher,
        "method": BOTH_STAGES,
        "run": RunConfig(),
    }


@pytest.fixture(scope="module")
def dumped(given: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("stores") / "task"
    with cheap_tensorflow.eager():
        cache_stages(plan_distillation(**given), store)
    return store


@pytest.fixture
def store(dumped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(dumped, tmp_path / "store"))


@pytest.fixture
def from_store(given: dict[str, Any], store: Path) -> dict[str, Any]:
    return {**given, "teacher": CachedTeacher(store)}


def changed(folder: Path, **changes: Any) -> None:
    """Makes a store's folder that of something else; its other files stay."""
    manifest = read_manifest(folder)
    identity = {name: value for name, value in changes.items() if hasattr(manifest.identity, name)}
    others = {name: value for name, value in changes.items() if name not in identity}
    dataclasses.replace(manifest, identity=dataclasses.replace(manifest.identity, **identity), **others).write(folder)


def add_general(store: Path) -> None:
    """A folder beside the others, as general distillation from a bare and deeper encoder has it; it comes first."""
    shutil.copytree(store / "intermediate", store / "general")
    deeper = tiny_distillation.TEACHER.replace(num_layers=5)
    changed(store / "general", stage="general", teacher="0" * 64, teacher_config=deeper, teacher_task=None)


def test_other_cached_stages_change_nothing(from_store: dict[str, Any], store: Path) -> None:
    before = plan_distillation(**from_store)
    add_general(store)
    after = plan_distillation(**from_store)
    assert after.spec == before.spec and after.spec.teacher.num_layers == 2
    assert after.stages == before.stages and after.vocabulary.path.parent.name == "intermediate"
    assert after.recorded()["teacher_cache_sha256"] == before.recorded()["teacher_cache_sha256"]


def test_only_read_stages_are_recorded(from_store: dict[str, Any], store: Path) -> None:
    def digest(**options: Any) -> str:
        return str(plan_distillation(**{**from_store, **options}).recorded()["teacher_cache_sha256"])

    both, prediction = digest(), digest(method=PREDICTION)
    changed(store / "intermediate", dataset="0" * 64)
    assert digest() != both and digest(method=PREDICTION) == prediction


def test_foreign_teacher_metrics_are_ignored(
    from_store: dict[str, Any], store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = json.loads((store / "teacher.json").read_text("utf-8"))["metrics"]

    def found(**changes: Any) -> Any:
        return plan_distillation(**{**from_store, **changes}).cached_teacher_metrics()

    assert found() == found(method=PREDICTION) == metrics and set(metrics) == {"accuracy"}
    assert "was not measured" not in capsys.readouterr().err
    data = from_store["data"]
    assert found(data=dataclasses.replace(data, dev=data.dev.select(range(10)))) is None
    assert found(data=dataclasses.replace(data, metrics=("accuracy", "f1"))) is None
    assert found(method=dataclasses.replace(BOTH_STAGES, max_length=18)) is None
    assert capsys.readouterr().err.count("has no metrics of the teacher on this dev split") == 3
    # A run that reads nothing of a teacher compares itself to none.
    assert found(method=dataclasses.replace(BOTH_STAGES, without=("augmentation", "task_distillation"))) is None
    assert "was not measured" not in capsys.readouterr().err
    for what in ("teacher", "tokenizer"):
        before = getattr(read_manifest(store / "intermediate").identity, what)
        for digest in ("0" * 64, before):
            for stage in ("intermediate", "prediction"):
                changed(store / stage, **{what: digest})
            assert found() == (metrics if digest == before else None)
    (store / "teacher.json").write_text('{"origin": ')
    assert found() is None


@pytest.mark.parametrize("what", ["teacher", "tokenizer"])
def test_mixed_caches_are_refused(from_store: dict[str, Any], store: Path, what: str, tmp_path: Path) -> None:
    changed(store / "prediction", **{what: "0" * 64})
    message = (
        f"the caches of all stages must come from the same {what}; received SHA-256 [0-9a-f]{{12}}… in intermediate, "
        "SHA-256 000000000000… in prediction; create them with one cache-teacher command"
    )
    with pytest.raises(UserError, match=message):
        distill(output=tmp_path / "run", **from_store)
    assert not (tmp_path / "run").exists()


def edited_vocabulary(folder: Path) -> None:
    path = folder / "vocab.txt"
    pieces = path.read_text("utf-8").split("\n")
    pieces[5], pieces[6] = pieces[6], pieces[5]
    path.write_text("\n".join(pieces), encoding="utf-8")


def cased(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {"do_lower_case": False}), encoding="utf-8")


@pytest.mark.one_of_each("edited_vocabulary")
@pytest.mark.parametrize("edit", [edited_vocabulary, cased])
def test_changed_tokenizer_refuses_the_cache(
    from_store: dict[str, Any], store: Path, teacher: Path, tmp_path: Path, edit: Any
) -> None:
    now = Path(shutil.copytree(teacher, tmp_path / "teacher"))
    edit(now)
    with pytest.raises(UserError, match="the cache must match this run; received another tokenizer"):
        distill(output=tmp_path / "run", **{**from_store, "teacher": CachedTeacher(store, now)})
    assert not (tmp_path / "run").exists()
    # Nothing but the tokenizer differs, and without the teacher there is nothing to differ from.
    assert plan_distillation(**from_store).vocabulary.path.parent.parent == store


@pytest.mark.parametrize("given_teacher", [True, False])
def test_unused_input_is_refused(
    given: dict[str, Any], from_store: dict[str, Any], tmp_path: Path, given_teacher: bool
) -> None:
    text = tmp_path / "wikipedia.txt"
    text.write_text("the film .\n")
    start = given if given_teacher else from_store
    augmented = dataclasses.replace(given["data"].train, source="more.jsonl")
    data = dataclasses.replace(given["data"], augmented=augmented)
    with pytest.raises(UserError, match="no stage uses augmented examples; received more.jsonl; leave out"):
        plan_distillation(**{**start, "data": data})
    with pytest.raises(UserError) as caught:
        plan_distillation(**{**start, "method": toy_method.toy(), "data": TextData(text)})
    message = str(caught.value)
    assert f"no stage uses plain text; received {text}; leave out pb.data.text(…)" in message
    reads = dataclasses.replace(BOTH_STAGES, without=())
    assert isinstance(plan_distillation(**{**given, "data": data, "method": reads}), DistillationPlan)
    assert isinstance(plan_distillation(**{**given, "data": TextData(text)}), DistillationPlan)


def test_one_error_lists_all_incompatibilities(given: dict[str, Any], store: Path) -> None:
    best = {"duration": Epochs(1), "optimizer": OptimizerConfig(learning_rate=1e-3)}
    wrong = {
        **given,
        "method": toy_method.toy(only="hidden", data="text", max_length=30, keep="best", **best),
        "student": tiny_distillation.STUDENT.replace(vocab_size=98),
        "teacher": CachedTeacher(store, given["teacher"]),
    }
    with pytest.raises(UserError) as caught:
        plan_distillation(**wrong)
    for problem in (
        "toy: teacher and student do not match: both models need the same vocabulary; the teacher's has 97 tokens, the "
        "student's 98",
        "stage hidden has texts of 30 tokens; the student has 29",
        "stage hidden needs plain text; received none",
        "stage hidden keeps its best weights by a metric",
        f"stage hidden needs targets in {store / 'hidden'}; found none",
    ):
        assert str(caught.value).count(problem) == 1, problem


def test_one_error_lists_unreadable_inputs(given: dict[str, Any], task_data: TaskData) -> None:
    empty = dataclasses.replace(task_data, dev=task_data.dev.select([]), main_metric="spearman")
    with pytest.raises(UserError) as caught:
        plan_distillation(**{**given, "data": empty, "student": "no_such_student"})
    for problem in (
        "must be one of accuracy, f1, macro_f1, matthews, auroc, f1:LABEL; received spearman",
        "there must be development examples; made for the test holds none",
        "a model must be a preset, a model directory or a config.json; received no_such_student",
    ):
        assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("many", "cached", "line"),
    [
        (23, False, ""),
        (24, False, r"pass pb.TeacherLayers\(\(2,\)\) instead of new weights"),
        (24, True, r"model directory instead \(student='DIR'"),
    ],
)
def test_few_examples_depend_on_the_limit(
    many: int,
    cached: bool,
    line: str,
    given: dict[str, Any],
    from_store: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(planning, "_MANY_EXAMPLES", many)
    planning.warn_of_few_examples(plan_distillation(**(from_store if cached else given)))
    stderr = capsys.readouterr().err
    assert ("random weights" in stderr) == bool(line) and re.search(line, stderr)
    remedy = re.search(r"pb\.\S+", stderr)
    if remedy:
        student = eval(remedy[0], {"pb": pocketbert})
        planning.warn_of_few_examples(plan_distillation(**{**given, "student": student}))
        assert "random weights" not in capsys.readouterr().err
