"""Fine-tuning and distillation on pairs of texts that the encoder reads one by one."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import tiny_distillation
import tiny_finetuning
from scipy.special import softmax
from scipy.stats import pearsonr

import pocketbert as pb
from pocketbert.cli import main
from pocketbert.configs import TaskConfig
from pocketbert.data.assets import ASSETS
from pocketbert.data.examples import Examples
from pocketbert.data.task_data import TaskData
from pocketbert.distillation.cache_teacher import cache_stages
from pocketbert.distillation.methods.tinybert import TinyBERT
from pocketbert.distillation.planning import plan_distillation
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.tasks.registry import supervised_task
from pocketbert.training import trainer
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert.training.finetune import plan_finetuning
from pocketbert.training.head_start import fit_head
from pocketbert.training.state import write_checkpoint
from pocketbert_runtime.embedding_config import EmbeddingConfig

pytestmark = pytest.mark.usefixtures("eager_module")
LABELS = ("differ", "same")
TASK = TaskConfig(kind="classification", name="moods", labels=LABELS)
LENGTH = 21
CONFIG = FinetuneConfig(epochs=1, batch_size=16, max_length=LENGTH, pairs="separate")
RUN = RunConfig(seed=3, checkpoint_seconds=0.0)
SHORT = dataclasses.replace(RUN, max_steps=1)
# Predictions alone, and all that TinyBERT compares.
METHODS = {
    "predictions": TinyBERT(without=("embedding", "transformer"), max_length=LENGTH, prediction_epochs=1),
    "layers": TinyBERT(max_length=LENGTH, intermediate_epochs=1, prediction_epochs=1),
}


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_finetuning.write_model(tmp_path_factory.mktemp("models") / "tiny", tiny_distillation.TEACHER)


def examples(count: int, seed: int) -> Examples:
    """Pairs of texts of 2 to 19 words; the label says whether their moods are the same."""
    first, second = tiny_finetuning.examples(count, seed), tiny_finetuning.examples(count, seed + 50)
    assert first.labels is not None and second.labels is not None
    labels = (first.labels == second.labels).astype(np.int32)
    return Examples(first.texts, second.texts, labels, first.ids, first.source)


def data(**changes: Any) -> TaskData:
    return TaskData(**{"task": TASK, "train": examples(48, 0), "dev": examples(23, 1), **changes})


def scores(rows: Examples) -> Examples:
    assert rows.labels is not None
    return dataclasses.replace(rows, labels=rows.labels.astype(np.float32) * 4 + 1)


def weights(model: Model) -> dict[str, np.ndarray]:
    return {path: value.numpy() for path, value in model.weights_by_path().items()}


@pytest.fixture(scope="module")
def finished(start: Path, tmp_path_factory: pytest.TempPathFactory) -> pb.FinetuneResult:
    return pb.finetune(start, data(), tmp_path_factory.mktemp("runs") / "run", config=CONFIG, run=RUN)


@pytest.fixture(scope="module")
def teacher(finished: pb.FinetuneResult) -> Path:
    return Path(finished.model_directory)


def test_run_trains_evaluates_and_predicts(finished: pb.FinetuneResult, teacher: Path) -> None:
    model = finished.model
    assert model.task is not None and model.task.pairs == "separate"
    dev = data().dev
    answers = model.predict(list(zip(dev.texts, dev.pairs, strict=True)))
    right = [answer["label"] == LABELS[label] for answer, label in zip(answers, dev.labels, strict=True)]
    assert finished.metrics["accuracy"] == pytest.approx(np.mean(right))
    head = model.heads["classification"].output_projection
    assert head.kernel.shape == (4 * model.config.hidden_size, 2)
    assert "cross-validated" in finished.head["reason"]
    record = json.loads((teacher.parent / "run.json").read_text("utf-8"))
    assert (record["pairs"], record["task_pairs"]) == ("separate", "separate")


@pytest.mark.nightly
def test_scores_are_trained(start: Path, tmp_path: Path) -> None:
    task_data = data(task=TaskConfig(kind="regression"), train=scores(examples(48, 0)), dev=scores(examples(23, 1)))
    result = pb.finetune(start, task_data, tmp_path / "run", config=CONFIG, run=RUN)
    answers = result.model.predict(list(zip(task_data.dev.texts, task_data.dev.pairs, strict=True)))
    expected = pearsonr([answer["score"] for answer in answers], task_data.dev.labels).statistic
    assert result.metrics["pearson"] == pytest.approx(expected, abs=1e-5)


def test_run_of_joint_pairs_has_no_new_fields(start: Path, tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, pairs="joint")
    result = pb.finetune(start, data(), tmp_path / "run", config=config, run=SHORT)
    record = json.loads((tmp_path / "run/run.json").read_text("utf-8"))
    assert not {"pairs", "task_pairs"} & record.keys()
    assert "pairs" not in (tmp_path / "run/model/config.json").read_text("utf-8")
    assert result.model.task is not None and result.model.task.pairs is None
    with pytest.raises(UserError, match="other options: pairs"):
        pb.finetune(start, data(), tmp_path / "run", config=dataclasses.replace(config, pairs="separate"), run=SHORT)


class Interrupted(BaseException):
    pass


@pytest.mark.nightly
@pytest.mark.parametrize("form", ["separate", "auto"])
def test_interrupted_run_ends_with_the_same_bits(
    form: Any, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = dataclasses.replace(CONFIG, pairs=form, micro_batches=2)

    def train(name: str) -> pb.FinetuneResult:
        return pb.finetune(start, data(), tmp_path / name, config=config, run=RUN)

    calls = []

    def interrupting(*arguments: Any) -> None:
        write_checkpoint(*arguments)
        calls.append(arguments)
        if len(calls) == 2:
            raise Interrupted

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(trainer, "write_checkpoint", interrupting)
        train("interrupted")
    resumed, whole = train("interrupted"), train("whole")
    for path, value in weights(whole.model).items():
        np.testing.assert_array_equal(weights(resumed.model)[path], value, err_msg=path)
    assert resumed.metrics == whole.metrics and resumed.head == whole.head


def test_head_starts_from_a_fit_on_separate_vectors(start: Path) -> None:
    from sklearn.linear_model import Ridge

    task = TaskConfig(kind="regression", pairs="separate", pooling="mean")
    model = pb.from_pretrained(start, task=task)
    rows = scores(examples(40, 4))
    fitted = fit_head(model, supervised_task(task), rows, LENGTH, ("mean",), most_examples=40)
    assert fitted is not None and fitted.separates_pairs
    vectors = []
    for texts in (rows.texts, rows.pairs):
        sides = []
        for text in texts or ():
            inputs = model.tokenizer([text], max_length=LENGTH)
            mean = model.encoder(inputs)["sequence_output"].numpy()[0].mean(axis=0)
            sides.append(10 * mean / np.linalg.norm(mean))
        vectors.append(np.array(sides, np.float64))
    first, second = vectors
    features = np.concatenate([first, second, np.abs(first - second), first * second], axis=1)
    scale = 10 / np.linalg.norm(features, axis=1).mean()
    expected = Ridge(alpha=1 / (2 * fitted.fit.strength)).fit(scale * features, rows.labels)
    np.testing.assert_allclose(fitted.fit.kernel[:, 0], scale * expected.coef_, rtol=1e-2, atol=1e-4)
    assert fitted.fit.bias[0] == pytest.approx(expected.intercept_, abs=1e-3)


@pytest.mark.nightly
def test_auto_takes_the_form_with_the_smaller_loss(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pocketbert.training.objectives import finetuning

    for losses, form in (((0.5, 0.4), "separate"), ((0.4, 0.5), None)):
        rest = list(losses)

        def fit(*arguments: Any, rest: list[float] = rest, **options: Any) -> Any:
            fitted = fit_head(*arguments, **options)
            assert fitted is not None
            return dataclasses.replace(fitted, fit=dataclasses.replace(fitted.fit, loss=rest.pop(0)))

        with monkeypatch.context() as patch:
            patch.setattr(finetuning, "fit_head", fit)
            config = dataclasses.replace(CONFIG, pairs="auto")
            result = pb.finetune(start, data(), tmp_path / f"{form}", config=config, run=SHORT)
        assert result.model.task is not None and result.model.task.pairs == form and not rest
        chosen = f"pairs={form or 'joint'}: cross-validated losses of a linear fit on frozen features are joint "
        assert f"{chosen}{losses[0]:.3f} and separate {losses[1]:.3f}" in capsys.readouterr().err
        record = json.loads((tmp_path / f"{form}" / "run.json").read_text("utf-8"))
        assert record["pairs"] == "auto" and "task_pairs" not in record


@pytest.fixture(scope="module")
def sentence_encoder(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose only head embeds texts."""
    path = tmp_path_factory.mktemp("models") / "sentences"
    task = TaskConfig(kind="embedding", embedding=EmbeddingConfig())
    pb.from_preset(tiny_distillation.TEACHER, task, pb.from_pretrained(start).tokenizer, seed=4).save_pretrained(path)
    return path


def test_forms_are_compared_for_a_sentence_encoder_with_few_pairs(start: Path, sentence_encoder: Path) -> None:
    usual = dataclasses.replace(CONFIG, pairs=None)
    single = dataclasses.replace(data().train, pairs=None)
    joint: list[tuple[Path, TaskData, dict[str, Any], dict[str, Any]]] = [
        (start, data(), {}, {}),
        (sentence_encoder, data(train=examples(1001, 0)), {}, {}),
        (sentence_encoder, data(train=single, dev=single), {}, {}),
        (sentence_encoder, data(), {"head_start": "random"}, {}),
        (sentence_encoder, data(), {}, {"freeze": ("head",)}),
        (sentence_encoder, data(), {}, {"truncation": "only-second"}),
    ]
    for model, task_data, options, of_run in joint:
        config, run = dataclasses.replace(usual, **options), dataclasses.replace(RUN, **of_run)
        plan = plan_finetuning(model, task_data, config, run)
        assert not plan.objective.compares_pairs and "pairs" not in plan.recorded(), (model, options, of_run)
    plan = plan_finetuning(sentence_encoder, data(train=examples(1000, 0)), usual, RUN)
    assert plan.objective.compares_pairs and plan.recorded()["pairs"] == "auto"


@pytest.mark.nightly
def test_comparison_by_default_is_that_on_request(sentence_encoder: Path, tmp_path: Path) -> None:
    usual = dataclasses.replace(CONFIG, pairs=None)
    result = pb.finetune(sentence_encoder, data(), tmp_path / "run", config=usual, run=RUN)
    record = json.loads((tmp_path / "run/run.json").read_text("utf-8"))
    assert record["pairs"] == "auto"
    asked = pb.finetune(
        sentence_encoder, data(), tmp_path / "asked", config=dataclasses.replace(usual, pairs="auto"), run=RUN
    )
    for path, value in weights(asked.model).items():
        np.testing.assert_array_equal(weights(result.model)[path], value, err_msg=path)


def test_forms_are_compared_for_fetched_weights(start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights of all-minilm have no modules.json beside them."""
    monkeypatch.setenv("POCKETBERT_CACHE", str(tmp_path))
    asset = ASSETS["all-minilm"]
    folder = shutil.copytree(start, tmp_path / f"{asset.package}-{asset.version}")
    usual = dataclasses.replace(CONFIG, pairs=None)
    assert plan_finetuning(folder, data(), usual, RUN).objective.compares_pairs
    assert not plan_finetuning(start, data(), usual, RUN).objective.compares_pairs


@pytest.mark.nightly
def test_folds_read_pairs_separately(start: Path, tmp_path: Path) -> None:
    rows = examples(60, 0)
    names = [LABELS[label] for label in rows.labels]
    task_data = pb.data.from_pairs(rows.texts, names, pairs=rows.pairs)
    result = pb.finetune(start, task_data, tmp_path / "run", config=CONFIG, run=RUN, kfold=3)
    lines = [json.loads(line) for line in (tmp_path / "run/predictions.jsonl").read_text("utf-8").splitlines()]
    assert [line["pair"] for line in lines] == rows.pairs
    right = np.mean([line["label"] == line["true_label"] for line in lines])
    assert result.cross_validation["pooled"]["accuracy"] == pytest.approx(right)
    assert result.model.task is not None and result.model.task.pairs == "separate"


@pytest.mark.nightly
def test_head_continues_if_it_reads_pairs_in_the_same_form(teacher: Path, tmp_path: Path) -> None:
    still = dataclasses.replace(CONFIG, learning_rate=1e-9, calibrate=False)
    before = weights(pb.from_pretrained(teacher))["heads.classification.output.kernel"]
    for form, continues in (("separate", True), ("joint", False)):
        config = dataclasses.replace(still, pairs=form)
        result = pb.finetune(teacher, data(), tmp_path / form, config=config, run=SHORT)
        kernel = weights(result.model)["heads.classification.output.kernel"]
        assert (kernel.shape == before.shape and np.allclose(kernel, before, atol=1e-5)) == continues


@pytest.mark.one_of_each("layers")
@pytest.mark.parametrize("name", METHODS)
def test_student_reads_pairs_as_the_teacher(
    name: str, teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = pb.distill(tiny_distillation.STUDENT, data(), tmp_path / "run", teacher=teacher, method=METHODS[name])
    student = result.model
    assert student.task is not None and student.task.pairs == "separate"
    assert "the student reads the two texts of a pair one by one, as the teacher does" in capsys.readouterr().err
    dev, model = data().dev, pb.from_pretrained(teacher)
    right = {}
    for role, network in (("teacher", model), ("student", student)):
        answers = network.predict(list(zip(dev.texts, dev.pairs, strict=True)))
        right[role] = np.mean([answer["label"] == LABELS[label] for answer, label in zip(answers, dev.labels)])  # noqa: B905
    assert result.metrics["accuracy"] == pytest.approx(right["student"])
    assert result.teacher_metrics is not None
    assert result.teacher_metrics["accuracy"] == pytest.approx(right["teacher"])


@pytest.mark.nightly
def test_copied_student_has_the_teachers_predictions(teacher: Path, tmp_path: Path) -> None:
    method = dataclasses.replace(METHODS["predictions"], prediction_learning_rate=1e-9)
    layers = pb.TeacherLayers((1, 2))
    result = pb.distill(layers, data(), tmp_path / "run", teacher=teacher, method=method)
    for path, value in weights(pb.from_pretrained(teacher)).items():
        np.testing.assert_allclose(weights(result.model)[path], value, atol=1e-5, err_msg=path)


def soft_data(model: Model, reads: Callable[[Examples], Any]) -> TaskData:
    """Training examples with the probabilities of a model."""
    train = data().train
    answers = model.predict(reads(train))
    soft = np.array([[answer["probabilities"][label] for label in LABELS] for answer in answers], np.float32)
    return data(train=dataclasses.replace(train, soft_labels=soft))


@pytest.mark.nightly
def test_soft_labels_teach_as_the_teacher(teacher: Path, start: Path, tmp_path: Path) -> None:
    method = METHODS["predictions"]
    separate = dataclasses.replace(TASK, pairs="separate")
    live = pb.distill(start, data(), tmp_path / "live", teacher=teacher, method=method)
    soft = soft_data(pb.from_pretrained(teacher), lambda rows: list(zip(rows.texts, rows.pairs, strict=True)))
    task_data = dataclasses.replace(soft, task=separate)
    taught = pb.distill(start, task_data, tmp_path / "soft", teacher=None, method=method)
    for path, value in weights(live.model).items():
        # Some steps of Adam, whose updates keep the sign of small gradients.
        np.testing.assert_allclose(weights(taught.model)[path], value, atol=1e-4, err_msg=path)


def test_joint_teacher_is_refused_for_a_separate_student(start: Path, tmp_path: Path) -> None:
    joint = tmp_path / "joint"
    pb.from_pretrained(start, task=TASK, seed=5).save_pretrained(joint)
    separate = data(task=dataclasses.replace(TASK, pairs="separate"))
    method = METHODS["predictions"]
    with pytest.raises(UserError, match="received joint for the teacher and separate for the student; pass the teac"):
        pb.distill(start, separate, tmp_path / "run", teacher=joint, method=method)
    # Its probabilities teach a student of the other form.
    soft = soft_data(pb.from_pretrained(joint), lambda rows: list(zip(rows.texts, rows.pairs, strict=True)))
    task_data = dataclasses.replace(soft, task=separate.task)
    result = pb.distill(start, task_data, tmp_path / "run", teacher=None, method=method)
    assert result.model.task is not None and result.model.task.pairs == "separate"


def test_targets_of_separate_pairs_are_not_cached(teacher: Path, start: Path, tmp_path: Path) -> None:
    plan = plan_distillation(start, data(), teacher=teacher, method=METHODS["predictions"], run=RUN)
    with pytest.raises(UserError, match="reads the texts of a pair one by one, so its targets cannot be cached"):
        cache_stages(plan, tmp_path / "cache")


def test_options_without_meaning_are_refused(start: Path, teacher: Path, tmp_path: Path) -> None:
    single = dataclasses.replace(data(), **{name: tiny_finetuning.examples(30, 2) for name in ("train", "dev")})
    for model, task_data, changes, message in [
        (start, single, {}, "is for pairs of texts with one answer; received single texts; leave it out"),
        (start, data(), {"pairs": "auto", "head_start": "random"}, "pairs=auto compares linear fits"),
        (
            teacher,
            data(task=dataclasses.replace(TASK, pairs="separate")),
            {"pairs": "auto"},
            "is for a new head on pairs",
        ),
    ]:
        with pytest.raises(UserError, match=message):
            pb.finetune(model, task_data, tmp_path / "run", config=dataclasses.replace(CONFIG, **changes), run=RUN)
    with pytest.raises(UserError, match="received frozen weights or rates for the head"):
        config, run = dataclasses.replace(CONFIG, pairs="auto"), dataclasses.replace(RUN, freeze=("head",))
        pb.finetune(start, data(), tmp_path / "run", config=config, run=run)
    with pytest.raises(UserError, match="chooses a form for one model, and folds have several"):
        pb.finetune(start, data(), tmp_path / "run", config=dataclasses.replace(CONFIG, pairs="auto"), run=RUN, kfold=3)
    assert not (tmp_path / "run").exists()


def write_pairs(path: Path, rows: Examples) -> Path:
    assert rows.labels is not None
    columns = {"text": rows.texts, "pair": rows.pairs, "label": [LABELS[label] for label in rows.labels]}
    pandas.DataFrame(columns).to_csv(path, index=False)
    return path


@pytest.mark.nightly
def test_commands_train_evaluate_predict_and_distil(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: write_pairs(tmp_path / f"{name}.csv", getattr(data(), name)) for name in ("train", "dev")}
    table = [f"--train-file={files['train']}", f"--dev-file={files['dev']}", "--pair-column=pair"]
    lengths = [f"--max-length={LENGTH}", "--seeds=3"]
    run = tmp_path / "run"
    options = ["--pairs=separate", "--epochs=1", "--batch-size=16"]
    assert main(["finetune", f"--model={start}", *table, *options, *lengths, f"--output={run}"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert 'pairs = "separate"\n' in (run / "run.toml").read_text("utf-8")
    assert main(["finetune", f"--config={run / 'run.toml'}"]) == 0
    assert "this run is finished" in capsys.readouterr().err
    file = [f"--model={run / 'model'}", f"--file={files['dev']}", "--pair-column=pair"]
    assert main(["evaluate", *file]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["accuracy"] == pytest.approx(result["metrics"]["accuracy"])
    command = ["predict", f"--model={run / 'model'}", f"--input={files['dev']}", "--pair-column=pair"]
    assert main([*command, f"--output={tmp_path / 'answers.jsonl'}"]) == 0
    answers = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text("utf-8").splitlines()]
    expected = pb.from_pretrained(run / "model").predict(list(zip(data().dev.texts, data().dev.pairs, strict=True)))
    for answer, other in zip(answers, expected, strict=True):
        assert answer["probabilities"] == pytest.approx(other["probabilities"], abs=1e-4)
        assert sum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    method = ["--method=tinybert", "--without=embedding,transformer", "--prediction-epochs=1"]
    models = [f"--teacher={run / 'model'}", "--teacher-layers=1"]
    assert main(["distill", *method, *models, *table, *lengths, f"--output={tmp_path / 'student'}"]) == 0
    student = pb.from_pretrained(tmp_path / "student" / "model")
    assert student.task is not None and student.task.pairs == "separate" and student.config.num_layers == 1


@pytest.mark.nightly
def test_pruned_model_reads_pairs_separately(teacher: Path, tmp_path: Path) -> None:
    config = pb.PruneConfig(layers=1, heads=3, intermediate_size=17, embedding_rank=None, max_length=LENGTH)
    result = pb.prune(teacher, data(), tmp_path / "run", config=config)
    assert result.model.task is not None and result.model.task.pairs == "separate"
    dev = data().dev
    logits = result.model.predict(list(zip(dev.texts, dev.pairs, strict=True)))
    right = np.mean([answer["label"] == LABELS[label] for answer, label in zip(logits, dev.labels, strict=True)])
    assert result.metrics["accuracy"] == pytest.approx(right)


def test_probabilities_are_softmax_of_the_logits(teacher: Path) -> None:
    model, rows = pb.from_pretrained(teacher), examples(7, 9)
    answers = model.predict(list(zip(rows.texts, rows.pairs, strict=True)))
    from pocketbert.tasks.predictor import model_predictor

    logits = model_predictor(model).logits(rows.texts, rows.pairs)
    assert logits.shape == (7, 2)
    task_data = [[answer["probabilities"][label] for label in LABELS] for answer in answers]
    np.testing.assert_allclose(task_data, softmax(logits.astype(np.float64), axis=1), atol=1e-6)
