"""`decision_thresholds` and `reject`: chosen on the dev split, stored, applied, resumed, and refused elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_distillation
import tiny_finetuning
from sklearn.metrics import f1_score

import pocketbert as pb
from pocketbert import cli
from pocketbert.data.examples import Examples
from pocketbert.errors import UserError
from pocketbert.training.config import FinetuneConfig, FinetuneResult, RunConfig
from pocketbert.training.finetune import finetune
from pocketbert.training.grids.published import PUBLISHED_HEAD

pytestmark = pytest.mark.usefixtures("eager_module", "few_resamples")
CONFIG = FinetuneConfig(**PUBLISHED_HEAD, learning_rate=3e-3, epochs=2, batch_size=16, max_length=23)
THRESHOLDS = RunConfig(seed=5, decision_thresholds=True, checkpoint_seconds=0.0)
REJECT = RunConfig(seed=5, reject=0.8, checkpoint_seconds=0.0)


def rare(count: int, seed: int) -> Examples:
    """Sentences of which a sixth have class 1."""
    plain = tiny_finetuning.examples(4 * count, seed)
    assert plain.labels is not None
    positives = count // 6
    chosen = [*np.flatnonzero(plain.labels == 0)[: count - positives], *np.flatnonzero(plain.labels == 1)[:positives]]
    return plain.select(np.sort(chosen))


def data(main_metric: str = "f1") -> pb.TaskData:
    return pb.TaskData(task=tiny_finetuning.TASK, train=rare(80, 0), dev=rare(43, 1), main_metric=main_metric)


@pytest.fixture(scope="module")
def chosen(start: Path, tmp_path_factory: pytest.TempPathFactory) -> FinetuneResult:
    """A run with thresholds."""
    return finetune(start, data(), tmp_path_factory.mktemp("runs") / "chosen", config=CONFIG, run=THRESHOLDS)


@pytest.fixture(scope="module")
def plain(start: Path, tmp_path_factory: pytest.TempPathFactory) -> FinetuneResult:
    """The same run without them."""
    run = replace(THRESHOLDS, decision_thresholds=False)
    return finetune(start, data(), tmp_path_factory.mktemp("runs") / "plain", config=CONFIG, run=run)


def folder_of(result: FinetuneResult) -> Path:
    return Path(result.model_directory).parent


def predicted(folder: Path, texts: list[str]) -> list[Any]:
    return [answer["label"] for answer in pb.from_pretrained(folder / "model").predict(texts)]


def stored(folder: Path) -> Any:
    (task,) = json.loads((folder / "model/config.json").read_text("utf-8"))["pocketbert"]["tasks"]
    return task["decisions"]


def test_thresholds_are_stored_and_applied(chosen: FinetuneResult, plain: FinetuneResult) -> None:
    examples, folder = data(), folder_of(chosen)
    gold = np.asarray(examples.dev.labels)
    by_label = chosen.decisions["thresholds"]  # type: ignore[index]
    # A rare class needs less than 0.5; the metrics of the run are those of the answers.
    assert by_label["high"] < 0.5 and sum(by_label.values()) == pytest.approx(1)
    answers = predicted(folder, examples.dev.texts)
    assert chosen.metrics["f1"] == pytest.approx(f1_score(gold, [label == "high" for label in answers]))
    assert chosen.metrics["f1"] > plain.metrics["f1"] and plain.decisions is None
    kept = stored(folder)
    assert kept["reject_below"] is None and kept["thresholds"] == pytest.approx([*by_label.values()], rel=1e-4)
    page = (folder / "report.html").read_text("utf-8")
    assert "Decision thresholds" in page and f"{by_label['high']:.4f}" in page
    # Training itself is the same.
    both = [pb.from_pretrained(result.model_directory).weights_by_path() for result in (chosen, plain)]
    if chosen.best_step == plain.best_step:
        assert all(np.array_equal(value.numpy(), both[1][path].numpy()) for path, value in both[0].items())


def test_other_options_are_refused(start: Path, chosen: FinetuneResult) -> None:
    for run in (replace(THRESHOLDS, decision_thresholds=False), replace(REJECT, reject=0.5)):
        with pytest.raises(UserError, match="finished run with other options: .*decision_thresholds"):
            finetune(start, data(), folder_of(chosen), config=CONFIG, run=run)


@pytest.mark.nightly
def test_calibrated_model_makes_the_same_decisions(start: Path, tmp_path: Path) -> None:
    examples = data("macro_f1")
    result = finetune(start, examples, tmp_path / "run", config=replace(CONFIG, calibrate=True), run=THRESHOLDS)
    assert result.head is not None and result.head["temperature"] != 1
    answers = [label == "high" for label in predicted(tmp_path / "run", examples.dev.texts)]
    expected = f1_score(np.asarray(examples.dev.labels), answers, average="macro")
    assert result.metrics["macro_f1"] == pytest.approx(expected)


@pytest.mark.one_of_each("True")
@pytest.mark.parametrize("calibrate", [True, False])
def test_rejection_keeps_right_answers(calibrate: bool, start: Path, tmp_path: Path) -> None:
    examples = data("accuracy")
    config = replace(CONFIG, calibrate=calibrate)
    result = finetune(start, examples, tmp_path / "run", config=config, run=REJECT)
    labels = np.array(tiny_finetuning.TASK.labels)[np.asarray(examples.dev.labels)]
    answers = pb.from_pretrained(tmp_path / "run/model").predict(examples.dev.texts)
    best = np.array([max(answer["probabilities"], key=answer["probabilities"].get) for answer in answers])
    given = np.array([answer["label"] is not None for answer in answers])
    assert 0 < given.sum() < len(given)
    assert all(answer["label"] in (None, label) for answer, label in zip(answers, best, strict=True))
    # At least 80 % of the right answers stay, and one fewer would not be enough.
    right, least = best == labels, REJECT.reject
    assert least is not None and right[given].sum() / right.sum() >= least
    assert (right[given].sum() - 1) / right.sum() < least
    chosen, everything = result.decisions["coverage"][:2]  # type: ignore[index]
    assert chosen["coverage"] == given.mean() and chosen["accuracy"] == pytest.approx(right[given].mean())
    assert everything["accuracy"] == pytest.approx(result.metrics["accuracy"]) == right.mean()
    assert stored(tmp_path / "run")["reject_below"] == pytest.approx(result.decisions["reject_below"], rel=1e-4)  # type: ignore[index]
    assert "Coverage and accuracy" in (tmp_path / "run/report.html").read_text("utf-8")


@pytest.mark.nightly
@pytest.mark.parametrize("run", [THRESHOLDS, REJECT], ids=["thresholds", "reject"])
def test_resumed_run_is_the_same(run: RunConfig, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pocketbert.training.trainer import Trainer

    examples = data()
    whole = finetune(start, examples, tmp_path / "whole", config=CONFIG, run=replace(run, evaluation_steps=3))
    written, checkpoints = Trainer._write_checkpoint, iter(range(99))

    def interrupted(self: Trainer) -> None:
        written(self)
        if next(checkpoints) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "_write_checkpoint", interrupted)
    with pytest.raises(KeyboardInterrupt):
        finetune(start, examples, tmp_path / "run", config=CONFIG, run=replace(run, evaluation_steps=3))
    monkeypatch.setattr(Trainer, "_write_checkpoint", written)
    for changed in (
        replace(run, decision_thresholds=False, reject=None),
        replace(run, decision_thresholds=False, reject=0.5),
    ):
        with pytest.raises(UserError, match="reject|decision_thresholds"):
            finetune(start, examples, tmp_path / "run", config=CONFIG, run=replace(changed, evaluation_steps=3))
    resumed = finetune(start, examples, tmp_path / "run", config=CONFIG, run=replace(run, evaluation_steps=3))
    assert (resumed.metrics, resumed.decisions) == (whole.metrics, whole.decisions)
    names = ["model/model.safetensors", "model/config.json"]
    assert [(tmp_path / "run" / name).read_bytes() for name in names] == [
        (tmp_path / "whole" / name).read_bytes() for name in names
    ]


@pytest.mark.nightly
def test_models_after_each_epoch_have_their_own_thresholds(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pocketbert.training.trainer import Trainer

    # Epochs of 5 steps; there are evaluations after steps 20 and 25 only.
    examples, config = data(), replace(CONFIG, epochs=5)
    run = replace(THRESHOLDS, keep_checkpoints="every-epoch")
    finetune(start, examples, tmp_path / "whole", config=config, run=run)
    written, checkpoints = Trainer._write_checkpoint, iter(range(99))

    def interrupted(self: Trainer) -> None:
        written(self)
        if next(checkpoints) == 12:
            raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "_write_checkpoint", interrupted)
    with pytest.raises(KeyboardInterrupt):
        finetune(start, examples, tmp_path / "run", config=config, run=run)
    monkeypatch.setattr(Trainer, "_write_checkpoint", written)
    finetune(start, examples, tmp_path / "run", config=config, run=run)
    gold = np.asarray(examples.dev.labels)
    for step in (5, 10, 15, 20, 25):
        folder = tmp_path / "run/checkpoints" / f"step-{step:07d}"
        model = pb.from_pretrained(folder)
        scores = np.diff(model(model.tokenizer(examples.dev.texts, max_length=23))["logits"].numpy())[:, 0]
        best = max(f1_score(gold, scores > cut) for cut in [-np.inf, *scores])
        answers = [label == "high" for label in predicted(folder, examples.dev.texts)]
        assert f1_score(gold, answers) == pytest.approx(best), step
        assert stored(folder) == stored(tmp_path / "whole/checkpoints" / folder.name), step


def test_records_without_the_options_are_as_before(plain: FinetuneResult) -> None:
    folder = folder_of(plain)
    record = json.loads((folder / "run.json").read_text("utf-8"))
    assert not {"decision_thresholds", "reject", "task_decisions"} & record.keys()
    result = json.loads((folder / "result.json").read_text("utf-8"))
    assert "decisions" not in result
    assert "decisions" not in (folder / "model/config.json").read_text("utf-8")


def test_continued_head_takes_new_thresholds(
    chosen: FinetuneResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = finetune(chosen.model_directory, data(), tmp_path / "run", config=CONFIG, run=RunConfig(max_steps=1))
    assert result.decisions is None and result.model.task is not None and result.model.task.decisions is None
    assert "the thresholds of its answers do not continue" in capsys.readouterr().err


def test_teacher_with_another_label_order_keeps_its_decisions(chosen: FinetuneResult) -> None:
    from pocketbert.training.kept_heads import reorder_head

    examples, model = data(), pb.from_pretrained(chosen.model_directory)
    before = [answer["label"] for answer in model.predict(examples.dev.texts)]
    reorder_head(model, tiny_finetuning.TASK.labels[::-1])
    assert [answer["label"] for answer in model.predict(examples.dev.texts)] == before
    assert 0 < before.count("high") < len(before)


@pytest.mark.nightly
@pytest.mark.parametrize("flag", ["--reject=0.8", "--decision-thresholds"])
def test_distillation_chooses_them_for_the_student(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    teacher = tiny_distillation.write_teacher(tmp_path / "teacher")
    train = tiny_finetuning.write_table(tmp_path / "train.csv", tiny_finetuning.examples(60, seed=0))
    command = ["distill", "--method=tinybert", f"--teacher={teacher}", "--teacher-layers=1", "--max-length=16",
               "--intermediate-epochs=1", "--prediction-epochs=1", "--labels=low,high", "--metric=macro_f1",
               f"--train-file={train}", f"--dev-file={train}", f"--output={tmp_path / 'run'}"]  # fmt: skip
    assert cli.main([*command, flag]) == 0
    printed = json.loads(capsys.readouterr().out)
    decisions = stored(tmp_path / "run")
    chosen = "reject_below" if "reject" in flag else "thresholds"
    assert decisions[chosen] is not None and chosen in printed["decisions"]
    # The same command reads its result; run.toml has the flag.
    assert cli.main([*command, flag]) == 0
    assert json.loads(capsys.readouterr().out) == printed
    name, _, value = flag.removeprefix("--").partition("=")
    assert f"{name} = {value or 'true'}" in (tmp_path / "run/run.toml").read_text("utf-8")
    with_file = ["distill", f"--config={tmp_path / 'run/run.toml'}", f"--output={tmp_path / 'again'}"]
    assert cli.main([*with_file, f"--{name}={'off' if value else 'false'}"]) == 0
    assert json.loads(capsys.readouterr().out)["decisions"] is None


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Path]:
    rows = [("the good film", "1.5"), ("a dull plot", "0.25"), ("of story", "0.5")] * 3
    (tmp_path / "scores.csv").write_text("text,label\n" + "".join(f"{a},{b}\n" for a, b in rows), "utf-8")
    (tmp_path / "three.csv").write_text(
        "text,label\n" + "".join(f"{a} {index},{'abc'[index % 3]}\n" for index, (a, _) in enumerate(rows)), "utf-8"
    )
    (tmp_path / "tags.conll").write_text("good\tB-A\nfilm\tO\n\ndull\tB-B\nplot\tO\n\n", "utf-8")
    (tmp_path / "several.csv").write_text(
        "text,label\n" + "".join(f"{a} {index},{'x|y' if index % 2 else 'y'}\n" for index, (a, _) in enumerate(rows)),
        "utf-8",
    )
    yield tmp_path


@pytest.mark.parametrize(
    ("file", "kind", "flags", "message"),
    [
        ("scores.csv", "regression", ["--reject=0.9"], "received it for regression; leave it out"),
        ("scores.csv", "regression", ["--decision-thresholds"], "received it for regression; leave it out"),
        ("tags.conll", "token_classification", ["--reject=0.9"], "received it for token_classification"),
        ("three.csv", "classification", ["--decision-thresholds"], "two classes or several labels; received 3 classes"),
        ("several.csv", "multi_label", ["--reject=0.9"], "one of several classes; received it for several labels"),
        ("several.csv", "multi_label", ["--decision-thresholds", "--metric=subset_accuracy"],
         "received metric=subset_accuracy; choose micro_f1 or macro_f1"),
        ("three.csv", "classification", ["--reject=1.5"], "reject must lie in (0, 1]; received 1.5"),
        ("three.csv", "classification", ["--reject=0"], "reject must be positive; received 0"),
        ("three.csv", "classification", ["--reject=0.9", "--decision-thresholds"], "exclude each other; received both"),
    ],
)  # fmt: skip
def test_meaningless_options_are_refused(
    file: str, kind: str, flags: list[str], message: str, start: Path, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = [f"--train-file={files / file}", f"--dev-file={files / file}", f"--kind={kind}"]
    assert (
        cli.main(["finetune", f"--model={start}", *table, "--max-length=16", *flags, f"--output={files / 'run'}"]) == 2
    )
    error = capsys.readouterr().err.strip().splitlines()
    assert message in error[-1] and not (files / "run").exists()


def test_runs_without_a_trained_head_are_refused(start: Path, tmp_path: Path) -> None:
    from pocketbert.distillation.methods.minilmv2 import MiniLMv2

    teacher = tiny_distillation.write_teacher(tmp_path / "teacher")
    text = pb.data.text(tiny_distillation.write_text(tmp_path / "text.txt"))
    for run in (THRESHOLDS, REJECT):
        with pytest.raises(UserError, match="needs a task with labels; received it without one; leave it out"):
            pb.distill(start, text, tmp_path / "run", teacher=teacher, method=MiniLMv2(), run=run)
