"""Pretraining runs: learning, output, resume and errors."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import forks
import numpy as np
import pytest
import tensorflow as tf
import tiny_finetuning
import tiny_pretraining
import toy_method
from oracles.pretraining import METRICS, scores
from safetensors.numpy import load_file

import pocketbert as pb
from pocketbert import cli
from pocketbert._keras import tf_keras
from pocketbert.commands.command_line import parse
from pocketbert.configs import TaskConfig
from pocketbert.data.pretraining.reader import PretrainingData
from pocketbert.data.task_data import TextData
from pocketbert.distillation.initialization import TeacherLayers
from pocketbert.distillation.method import DistillationSpec
from pocketbert.distillation.run import distill
from pocketbert.distillation.teacher import CachedTeacher
from pocketbert.errors import UserError
from pocketbert.training import plan
from pocketbert.training.config import RunConfig
from pocketbert.training.initialization import make_model, plan_model
from pocketbert.training.objectives.pretraining import Pretraining, pretraining_stage
from pocketbert.training.pretrain import pretrain
from pocketbert.training.pretrain_config import PretrainConfig
from pocketbert.training.pretraining_run_data import PretrainingEvaluator
from pocketbert.training.stage_batches import pretraining_batches
from pocketbert.training.step import TrainingModel

pytestmark = pytest.mark.usefixtures("eager_module")
HEADS = tuple(TaskConfig(kind=kind, dropout=0.0) for kind in ("masked_lm", "next_sentence"))


@pytest.fixture(scope="module")
def command_line(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return tiny_pretraining.command_line(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def inputs(command_line: list[str]) -> Path:
    return Path(command_line[1].partition("=")[2]).parent


@pytest.fixture(scope="module")
def finished(command_line: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    assert cli.main([*command_line, f"--output={folder}"]) == 0
    return folder


def log_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]


def test_run_writes_model_log_and_scores(finished: Path, inputs: Path) -> None:
    lines = log_of(finished)
    # Whole batches of 32 are an epoch, and evaluations come every 5 steps besides.
    epoch = len(PretrainingData.open(inputs / "data")) // 32
    assert 1 < epoch < 5
    evaluated = sorted({*range(epoch, 7, epoch), 5, 6})
    assert [(line["step"], line["split"]) for line in lines] == [
        (step, split) for step in evaluated for split in ("train", "dev")
    ]
    for line in lines[::2]:
        assert set(line) == {"step", "split", "stage", "loss", "masked_lm", "next_sentence", "learning_rate"}
        assert line["loss"] == pytest.approx(line["masked_lm"] + line["next_sentence"], rel=1e-6)
    assert all(set(line) == {"step", "split", "stage", "loss", *METRICS} for line in lines[1::2])
    result = json.loads((finished / "result.json").read_text("utf-8"))
    assert result["main_metric"] == "masked_lm_accuracy"
    assert result["metrics"] == {name: lines[-1][name] for name in METRICS}
    # transformers' class for both heads, which test_family_parity.py compares with ours.
    config = json.loads((finished / "model" / "config.json").read_text("utf-8"))
    assert config["architectures"] == ["BertForPreTraining"]
    model = pb.from_pretrained(finished / "model")
    assert model.config == tiny_pretraining.MODEL and model.tasks == HEADS and model.tokenizer is not None
    dev = PretrainingData.open(inputs / "dev")
    plan = dev.plan(batch_size=32, seed=0, epoch=0)[:2]
    batches = list(dev.dataset(plan, seed=0, epoch=0).as_numpy_iterator())
    # Sums of 64 and of about 200 float32 logarithms of order 1: within 1e-5.
    assert result["metrics"] == pytest.approx(scores(model, batches), rel=1e-5)


def test_frozen_embedding_keeps_its_bits(inputs: Path, tmp_path: Path) -> None:
    model = pb.from_preset(tiny_pretraining.MODEL, HEADS, seed=8)
    model.encoder.embeddings.trainable = False
    config = PretrainConfig(steps=2, batch_size=8, learning_rate=1e-2, warmup_steps=0)
    pretrain(model, PretrainingData.open(inputs / "data"), tmp_path / "run", config=config)
    trained = pb.from_pretrained(tmp_path / "run" / "model").weights_by_path()
    for path, before in model.weights_by_path().items():
        same = np.array_equal(before.numpy(), trained[path].numpy())
        assert same == path.startswith("encoder.embeddings."), path


@pytest.mark.nightly
def test_bfloat16_run_learns_and_resumes(inputs: Path, tmp_path: Path) -> None:
    result = pretrain(
        inputs / "config.json",
        PretrainingData.open(inputs / "data", inputs / "dev"),
        tmp_path / "run",
        config=PretrainConfig(
            steps=20, batch_size=30, micro_batches=3, optimizer="adamw", learning_rate=1e-2, warmup_steps=4
        ),
        run=RunConfig(precision="bfloat16", evaluation_batches=1),
    )
    # 12 of the 97 tokens are in the text: from about ln 97 = 4.6 down to ln 12 = 2.5 for one who has learned just that.
    first, *_, last = (line["masked_lm"] for line in log_of(tmp_path / "run") if line["split"] == "train")
    assert last < 0.8 * first and result.metrics["masked_lm_loss"] < 3.0 and result.steps == 20
    tensors = load_file(tmp_path / "run" / "model" / "model.safetensors")
    assert all(array.dtype == np.float32 for array in tensors.values())
    # A weight that has only bfloat16's 8 bits left would be one that was rounded on its way.
    table = tensors["bert.embeddings.word_embeddings.weight"]
    assert np.mean(table.view(np.uint32) & 0xFFFF != 0) > 0.9


KILLED_OFTEN = ("aside:1,placed:1,step:1,aside:4", "step:6,placed:6")


@pytest.mark.parametrize(
    "moments", ["step:3", *(pytest.param(moments, marks=pytest.mark.slow) for moments in KILLED_OFTEN)]
)
def test_killed_runs_resume_exactly(moments: str, finished: Path, command_line: list[str], tmp_path: Path) -> None:
    answer = forks.run_killed(moments, [*command_line, f"--output={tmp_path / 'run'}"], EAGER="1")
    assert "resuming after step" in answer.stderr
    tiny_pretraining.assert_same_run(tmp_path / "run", finished)


def batch_of(inputs: Path, rows: int) -> dict[str, tf.Tensor]:
    data = PretrainingData.open(inputs / "data")
    return next(iter(data.dataset([np.arange(rows)], seed=3, epoch=1)))


def distiller_of(micro_batches: int, batch_size: int) -> TrainingModel:
    config = PretrainConfig(batch_size=batch_size, micro_batches=micro_batches)
    stage = pretraining_stage(config, tiny_pretraining.MAX_LENGTH)
    stage = dataclasses.replace(stage, student_dropout=False)
    distiller = TrainingModel(pb.from_preset(tiny_pretraining.MODEL, HEADS, seed=4), Pretraining(), stage)
    # Without clipping and moments, so that the change of a weight is its gradients'.
    distiller.compile(optimizer=tf_keras.optimizers.SGD(0.05))
    return distiller


def test_patience_keeps_the_best_weights(inputs: Path, tmp_path: Path) -> None:
    data = PretrainingData.open(inputs / "data", inputs / "dev")
    # Weights that hardly change: the first evaluation stays the best one.
    config = PretrainConfig(steps=9, batch_size=32, optimizer="adamw", learning_rate=1e-30, warmup_steps=0)
    run = RunConfig(evaluation_steps=1, patience=2)
    result = pretrain(tiny_pretraining.MODEL, data, tmp_path / "run", config=config, run=run)
    assert (result.best_step, result.steps) == (1, 3)
    with pytest.raises(UserError, match="patience needs a dev split"):
        pretrain(
            tiny_pretraining.MODEL, PretrainingData.open(inputs / "data"), tmp_path / "none", config=config, run=run
        )


def test_terms_are_mlm_and_nsp(inputs: Path) -> None:
    distiller, batch = distiller_of(1, 6), batch_of(inputs, 6)
    arrays = {name: value.numpy() for name, value in batch.items()}
    # Rows with different numbers of masked tokens, and with none in some places.
    assert len(set((arrays["masked_lm_labels"] >= 0).sum(1))) > 1
    expected = scores(distiller.model, [arrays])
    words, sentences = expected["masked_lm_loss"], expected["next_sentence_loss"]
    assert np.allclose(distiller.losses(batch), [words + sentences, words, sentences], rtol=1e-5)


def test_uneven_micro_batches_change_nothing(inputs: Path) -> None:
    batch = batch_of(inputs, 12)
    counts = (batch["masked_lm_labels"].numpy() >= 0).reshape(4, -1).sum(1)
    assert len(set(counts)) > 1
    start = {name: value.numpy() for name, value in distiller_of(1, 12).named_variables().items()}
    results = []
    for micro_batches in (1, 4):
        distiller = distiller_of(micro_batches, 12)
        losses = [float(value) for value in tf.function(distiller.update)(batch).values()]
        results.append((losses, {name: value.numpy() for name, value in distiller.named_variables().items()}))
    (losses, weights), (other_losses, others) = results
    assert np.allclose(losses, other_losses, rtol=1e-5)
    for name in weights:
        # Each gradient is the same sum in another order.
        change = np.abs(weights[name] - start[name]).max()
        assert np.abs(weights[name] - others[name]).max() <= 1e-4 * max(change, 1e-3), name


def test_defaults_match_the_paper(inputs: Path) -> None:
    stage = pretraining_stage(PretrainConfig(), 23)
    assert stage.describe()["duration"] == {"steps": 500_000} and stage.batch_size == 4096
    optimizer = stage.optimizer
    assert (optimizer.algorithm, optimizer.bias_correction, optimizer.epsilon) == ("lamb", False, 1e-6)
    assert (optimizer.weight_decay, optimizer.clip_norm, optimizer.warmup(500_000)) == (0.01, 1.0, 10_000)
    epochs = pretraining_stage(PretrainConfig(epochs=3, clip_norm=0.0, steps=7), 23)
    assert epochs.describe()["duration"] == {"epochs": 3} and epochs.optimizer.clip_norm is None


def test_options_of_both_kinds_arrive() -> None:
    line = "--bias-correction --optimizer=adamw --epochs=2 --distribution=mirrored --evaluation-batches=7".split()
    values = parse("pretrain", ["--model=m", "--data=d", "--output=o", *line])
    options, run = values[PretrainConfig], values[RunConfig]
    assert (options.bias_correction, options.optimizer, options.epochs) == (True, "adamw", 2)
    assert (run.distribution, run.evaluation_batches) == ("mirrored", 7)


def test_only_pretraining_keeps_heads(finished: Path, tmp_path: Path) -> None:
    config = tiny_pretraining.MODEL
    student = make_model(plan_model(finished / "model"), HEADS, None, seed=8)
    weights = pb.from_pretrained(finished / "model").weights_by_path()
    for path, variable in student.weights_by_path().items():
        assert np.array_equal(variable, weights[path]), path
    pb.from_preset(config, HEADS[:1], seed=3).save_pretrained(tmp_path / "words")
    expected = pb.from_pretrained(tmp_path / "words").weights_by_path()
    actual = make_model(plan_model(tmp_path / "words"), HEADS, None, seed=8).weights_by_path()
    assert all(np.array_equal(actual[path], variable) for path, variable in expected.items())
    fresh = set(actual) - set(expected)
    assert fresh == {"heads.next_sentence.output.kernel", "heads.next_sentence.output.bias"}
    assert actual["heads.next_sentence.output.kernel"].numpy().any()
    classifier = pb.from_pretrained(finished / "model", task=tiny_finetuning.TASK).weights_by_path()
    encoder = {path: variable for path, variable in weights.items() if path.startswith("encoder.")}
    assert encoder and all(np.array_equal(classifier[path], variable) for path, variable in encoder.items())


def test_each_stage_has_own_order_masks(inputs: Path) -> None:
    data = PretrainingData.open(inputs / "data")
    stage = pretraining_stage(PretrainConfig(batch_size=32), tiny_pretraining.MAX_LENGTH)
    stages = [pretraining_batches(stage, data, 3, index=index) for index in (0, 0, 1)]
    rows = [batches.rows(0)[0] for batches in stages]
    assert np.array_equal(rows[0], rows[1]) and not np.array_equal(rows[0], rows[2])
    words = [next(iter(batches.elements(rows[:1], 0)))["input_word_ids"].numpy() for batches in stages]
    assert np.array_equal(words[0], words[1]) and not np.array_equal(words[0], words[2])


def test_whole_words_option_is_recorded(
    command_line: list[str],
    finished: Path,
    inputs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    record = json.loads((finished / "run.json").read_text("utf-8"))
    assert record["whole_words"] is False
    # Options of masked LM alone do not change the record.
    assert (record["objective"], record["option_steps"], record["option_optimizer"]) == ("pretraining", 6, "lamb")
    assert not {"option_objective", "option_max_length", "option_dev_every"} & set(record)
    assert cli.main([*command_line, "--whole-words", f"--output={finished}"]) == 2
    assert "a finished run with other options: whole_words=False, received True; " in capsys.readouterr().err
    fields: dict[str, Any] = {"model": inputs / "config.json", "data": PretrainingData.open(inputs / "data")}
    fields |= {"run": RunConfig(whole_words=True), "config": PretrainConfig(batch_size=32)}
    handed_on: list[dict[str, Any]] = []

    def open_batches(*arguments: Any, **options: Any) -> None:
        handed_on.append(options)
        raise UserError("seen")

    monkeypatch.setattr(plan, "pretraining_batches", open_batches)
    with pytest.raises(UserError, match="seen"):
        pretrain(**fields, output=tmp_path / "run")
    assert handed_on == [{"index": 0, "whole_words": True}]


class WithTeacher(toy_method.ToyMethod):
    """The last layer follows a teacher's; then words and sentences are learned, and its logits are read."""

    def stages(self, spec: DistillationSpec) -> Any:
        learned = pretraining_stage(PretrainConfig(steps=3, batch_size=30), tiny_pretraining.MAX_LENGTH)
        hidden = toy_method.hidden_stage(spec, data="pretraining", max_length=tiny_pretraining.MAX_LENGTH)
        stages = [hidden, dataclasses.replace(learned, teacher_features={"logits": ()})]
        return [dataclasses.replace(stage, **self.changes) for stage in stages if self.only in (None, stage.name)]

    def targets(self, stage: Any, teacher: Any, batch: Any) -> dict[str, tf.Tensor]:
        return super().targets(stage, teacher, batch) if stage.name == "hidden" else {}

    def loss(self, stage: Any, targets: Any, student: Any, adapters: Any, batch: Any) -> dict[str, tf.Tensor]:
        if stage.name == "hidden":
            assert not {name for name in batch if name.endswith("labels")}
            return super().loss(stage, targets, student, adapters, batch)
        return dict(Pretraining().loss(stage, targets, student, adapters, batch))


@pytest.mark.nightly
def test_method_learns_from_pretraining_data(finished: Path, inputs: Path, tmp_path: Path) -> None:
    student = tiny_pretraining.MODEL.replace(hidden_size=20, embedding_size=20, head_size=4)
    result = distill(
        student,
        PretrainingData.open(inputs / "data", inputs / "dev"),
        tmp_path / "run",
        teacher=finished / "model",
        method=WithTeacher(),
        run=RunConfig(evaluation_batches=2),
    )
    # Two epochs of whole batches of 16.
    epoch = len(PretrainingData.open(inputs / "data")) // 16
    assert [(stage["name"], stage["steps"]) for stage in result.stages] == [("hidden", 2 * epoch), ("pretraining", 3)]
    expected = json.loads((finished / "result.json").read_text("utf-8"))["metrics"]
    assert result.teacher_metrics == pytest.approx(expected, rel=1e-6) and set(result.metrics) == set(METRICS)
    dev = [(line["stage"], line["step"]) for line in log_of(tmp_path / "run") if line["split"] == "dev"]
    assert dev == [("hidden", epoch), ("hidden", 2 * epoch), ("pretraining", 2 * epoch + 3)]
    assert pb.from_pretrained(result.model_directory).tasks == HEADS


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithoutTeacher(toy_method.ToyMethod):
    """Pretraining alone."""

    config: PretrainConfig = PretrainConfig()
    max_length: int = tiny_pretraining.MAX_LENGTH

    def stages(self, spec: DistillationSpec) -> Any:
        return [pretraining_stage(self.config, self.max_length)]

    def loss(self, stage: Any, targets: Any, student: Any, adapters: Any, batch: Any) -> dict[str, tf.Tensor]:
        return dict(Pretraining().loss(stage, targets, student, adapters, batch))


def refusals() -> list[Any]:
    model = tiny_pretraining.MODEL
    hidden = WithTeacher(only="hidden")
    return [
        ({"student": model.replace(vocab_size=98)}, "has 97 tokens, the student 98; make the examples with this"),
        ({"student": model.replace(pooler="none")}, "the student has pooler='none'; give one with a pooler"),
        ({"student": model.replace(max_position_embeddings=20)}, "texts of 21 tokens; the student has 20 positions"),
        ({"student": model.replace(type_vocab_size=1)}, "pairs of texts need 2 segments; the student has 1"),
        ({"method": WithoutTeacher(max_length=20)}, "must have at most 20 tokens; .*data has up to 21; make examples"),
        ({"data": TextData("x")}, "stage pretraining needs pretraining examples; received none"),
        ({"method": WithTeacher(only="pretraining")}, "stage pretraining reads logits from a teacher; received nei"),
        ({"method": hidden, "teacher": CachedTeacher("s")}, "s: a teacher cache has one folder per stage"),
        ({"method": WithoutTeacher(config=PretrainConfig(batch_size=999))}, "needs 999 examples per step; .* has"),
        ({"run": RunConfig(patience=2)}, "patience needs a dev split, and a stage that keeps its best weights"),
        ({"run": RunConfig(whole_words=True), "data": TextData("x")}, "whole_words needs pretraining examples; rec"),
        ({"student": TeacherLayers((1,), model)}, "initialized with layers of the teacher needs a teacher"),
    ]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), refusals())
def test_mismatch_writes_nothing(changes: dict[str, Any], message: str, inputs: Path, tmp_path: Path) -> None:
    data = PretrainingData.open(inputs / "data")
    arguments = {"method": WithoutTeacher(), "student": tiny_pretraining.MODEL, "data": data}
    with pytest.raises(UserError, match=message):
        distill(**{**arguments, **changes}, output=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_other_vocabularies_and_heads_are_refused(finished: Path, inputs: Path, tmp_path: Path) -> None:
    model, data = tiny_pretraining.MODEL, PretrainingData.open(inputs / "data")
    pieces = [*tiny_pretraining.PIECES]
    pieces[40:42] = reversed(pieces[40:42])
    tokenizer = pb.WordPieceTokenizer(tiny_pretraining.write_vocabulary(tmp_path / "vocab.txt", pieces))
    pb.from_preset(model, HEADS, tokenizer=tokenizer).save_pretrained(tmp_path / "other")
    with pytest.raises(UserError, match="differ in 2 tokens, the first at id 40: 'word35' and 'word36'; make the"):
        pretrain(tmp_path / "other", data, tmp_path / "run")
    pb.from_pretrained(finished / "model", task=tiny_finetuning.TASK).save_pretrained(tmp_path / "tuned")
    with pytest.raises(
        UserError, match="exactly the heads masked_lm and next_sentence; received classification; pretrain"
    ):
        distill(model, data, tmp_path / "run", teacher=tmp_path / "tuned", method=WithTeacher(only="pretraining"))
    with pytest.raises(UserError, match="reads hidden_states .*received neither"):
        distill(model, data, tmp_path / "run", method=WithTeacher())
    with pytest.raises(UserError, match="a finished run with other options: .*pretraining_sha256="):
        dev = PretrainingData.open(inputs / "dev")
        pretrain(inputs / "config.json", dev, finished, config=PretrainConfig(batch_size=32))
    assert not (tmp_path / "run").exists()


def test_dev_examples_are_fixed_and_bounded(inputs: Path) -> None:
    model, data = pb.from_preset(tiny_pretraining.MODEL, HEADS, seed=2), PretrainingData.open(inputs / "dev")
    evaluators = [PretrainingEvaluator(model, data, max_batches) for max_batches in (1, 1, 2)]
    once, again, more = (evaluator.metrics("now") for evaluator in evaluators)
    assert once == again == evaluators[0].metrics("later") and more != once
    plan = data.plan(batch_size=32, seed=0, epoch=0)[:1]
    batches = list(data.dataset(plan, seed=0, epoch=0).as_numpy_iterator())
    assert once == pytest.approx(scores(model, batches), rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--model="], "--model is required; received none"),
        (["--model=ib_bert_larg"], "did you mean 'ib_bert_large'"),
        (["--dev-data=", "--seeds=1,2"], "several --seeds need --dev-data"),
        (["--batch-size=31"], "batch_size must divide into micro_batches; received 31 and 2"),
        (["--learning-rate=0"], "learning_rate must be positive; received 0"),
        (["--tpu=x"], "tpu needs distribution=tpu; received 'x' with 'one'"),
        (["--distribution=multi-worker"], "in the environment variable TF_CONFIG.*received none"),
    ],
)
def test_bad_input_leaves_nothing(
    changes: list[str],
    message: str,
    command_line: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    code = cli.main([*command_line, f"--output={tmp_path / 'run'}", *changes])
    output = capsys.readouterr()
    assert code == 2 and not output.out
    assert re.search(message, output.err.splitlines()[-1]), output.err
    assert not (tmp_path / "run").exists()


def test_missing_flags_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pretrain"]) == 2
    stderr = capsys.readouterr().err
    for message in ("--model is required", "--output is required"):
        assert message in stderr
    assert cli.main(["pretrain", "--model=m", "--output=o"]) == 2
    assert "--data is required for --objective=mlm-nsp; received none" in capsys.readouterr().err
