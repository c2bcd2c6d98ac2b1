"""Runs that cut long texts at the front, in the middle, or of pairs the second one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_distillation
import tiny_finetuning

import pocketbert as pb
from pocketbert._keras import tf_keras
from pocketbert.cli import main
from pocketbert.data.examples import Examples
from pocketbert.distillation.cache_teacher import cache_stages
from pocketbert.distillation.methods.tinybert import TinyBERT
from pocketbert.distillation.planning import plan_distillation
from pocketbert.distillation.run import distill
from pocketbert.distillation.teacher import CachedTeacher
from pocketbert.errors import UserError
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert.training.finetune import finetune
from pocketbert.training.grids.published import PUBLISHED_HEAD

pytestmark = pytest.mark.usefixtures("eager_module")
LENGTH = 9
CONFIG = FinetuneConfig(learning_rate=1e-2, epochs=1, batch_size=16, max_length=LENGTH, **PUBLISHED_HEAD)
RUN = RunConfig(seed=5, checkpoint_seconds=0.0, max_steps=2)
METHOD = TinyBERT(without=("embedding", "transformer"), max_length=LENGTH, prediction_epochs=1)


def data(cut: Callable[[list[str]], list[str]] = lambda words: words, pairs: bool = False) -> pb.TaskData:
    """Sentences of 2 to 19 words, each a token; `cut` shortens the words that a text, or the second of a pair, has."""
    parts = []
    for count, seed in ((50, 0), (20, 1)):
        rows = tiny_finetuning.examples(count, seed)
        texts = [" ".join(cut(text.split())) for text in rows.texts]
        given = (["the film"] * count, texts) if pairs else (texts, None)
        parts.append(Examples(*given, rows.labels, rows.ids, rows.source))
    return pb.TaskData(task=tiny_finetuning.TASK, train=parts[0], dev=parts[1])


def weights(model: pb.Model) -> dict[str, np.ndarray]:
    return {path: variable.numpy() for path, variable in model.weights_by_path().items()}


def assert_same_weights(first: pb.Model, second: pb.Model) -> None:
    expected = weights(second)
    for path, array in weights(first).items():
        np.testing.assert_array_equal(array, expected[path], path)


def tail(words: Sequence[str]) -> list[str]:
    return [*words[-(LENGTH - 2) :]]


def head_tail(words: Sequence[str]) -> list[str]:
    return [*words] if len(words) <= LENGTH - 2 else [*words[:3], *words[3 - (LENGTH - 2) :]]


@pytest.mark.one_of_each("head-tail:3-head_tail")
@pytest.mark.parametrize(("truncation", "cut"), [("tail", tail), ("head-tail:3", head_tail)])
def test_run_equals_one_on_cut_texts(truncation: str, cut: Any, start: Path, tmp_path: Path) -> None:
    run = replace(RUN, truncation=truncation)
    trained = finetune(start, data(), tmp_path / "run", config=CONFIG, run=run)
    expected = finetune(start, data(cut), tmp_path / "expected", config=CONFIG, run=RUN)
    assert_same_weights(trained.model, expected.model)
    assert trained.metrics == expected.metrics
    plain = finetune(start, data(), tmp_path / "plain", config=CONFIG, run=RUN)
    assert any((array != weights(plain.model)[path]).any() for path, array in weights(trained.model).items())
    # The model directory keeps it, and a run without the option continues with it.
    texts = tiny_finetuning.examples(30, seed=3).texts
    inputs = trained.model.tokenizer(texts, max_length=LENGTH)
    head = plain.model.tokenizer([" ".join(cut(text.split())) for text in texts], max_length=LENGTH)
    np.testing.assert_array_equal(inputs["input_word_ids"], head["input_word_ids"])
    again = finetune(trained.model, data(), tmp_path / "again", config=CONFIG, run=RUN).model
    assert again.tokenizer.vocabulary.truncation == truncation
    back = finetune(trained.model, data(), tmp_path / "back", config=CONFIG, run=replace(RUN, truncation="head")).model
    assert back.tokenizer.vocabulary.truncation == "head"


@pytest.mark.nightly
def test_second_text_of_pairs_is_cut(start: Path, tmp_path: Path) -> None:
    # [CLS] the film [SEP] second [SEP]
    run = replace(RUN, truncation="only_second")
    trained = finetune(start, data(pairs=True), tmp_path / "run", config=CONFIG, run=run).model
    cut = data(lambda words: words[: LENGTH - 5], pairs=True)
    assert_same_weights(trained, finetune(start, cut, tmp_path / "expected", config=CONFIG, run=RUN).model)
    assert trained.tokenizer.vocabulary.truncation == "only-second"


def test_records_and_resuming(start: Path, tmp_path: Path) -> None:
    run = replace(RUN, truncation="tail")
    finetune(start, data(), tmp_path / "run", config=CONFIG, run=run)
    assert json.loads((tmp_path / "run" / "run.json").read_text("utf-8"))["truncation"] == "tail"
    with pytest.raises(UserError, match="truncation"):
        finetune(start, data(), tmp_path / "run", config=CONFIG, run=replace(run, truncation="head-tail:2"))
    finetune(start, data(), tmp_path / "plain", config=CONFIG, run=RUN)
    assert "truncation" not in (tmp_path / "plain" / "run.json").read_text("utf-8")
    name = "tokenizer_config.json"
    assert (tmp_path / "plain" / "model" / name).read_bytes() == (start / name).read_bytes()


class Stop(tf_keras.callbacks.Callback):
    """Ends a run with an error after its second step."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 1:
            raise RuntimeError("stopped")


@pytest.mark.nightly
def test_stopped_run_ends_with_the_same_bits(start: Path, tmp_path: Path) -> None:
    run = replace(RUN, truncation="head-tail:2", max_steps=None)
    with pytest.raises(RuntimeError, match="stopped"):
        finetune(start, data(), tmp_path / "stopped", config=CONFIG, run=run, callbacks=[Stop()])
    assert not (tmp_path / "stopped" / "result.json").exists()
    resumed = finetune(start, data(), tmp_path / "stopped", config=CONFIG, run=run)
    whole = finetune(start, data(), tmp_path / "whole", config=CONFIG, run=run)
    assert resumed.metrics == whole.metrics
    assert_same_weights(resumed.model, whole.model)


@pytest.mark.parametrize(
    ("truncation", "pairs", "message"),
    [
        ("head-tail:7", False, "head-tail:N needs N below 7, .* max_length=9 .*; received head-tail:7; pass a smaller"),
        ("head-tail:0", False, "N is a number of tokens of at least 1; received 'head-tail:0'"),
        ("middle", False, "truncation must be one of head, tail, .*; received 'middle'"),
        ("only-second", False, "only-second is for pairs of texts; the run reads single texts; leave it out"),
        ("longest-first", False, "longest-first is for pairs of texts; the run reads single texts"),
        ("head-tail:3", True, "head-tail:3 is for single texts; the run reads pairs of texts"),
    ],
)
def test_truncation_without_meaning(truncation: str, pairs: bool, message: str, start: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        finetune(start, data(pairs=pairs), tmp_path / "run", config=CONFIG, run=replace(RUN, truncation=truncation))
    assert not (tmp_path / "run").exists()


def test_stored_truncation_without_meaning(start: Path, tmp_path: Path) -> None:
    run = replace(RUN, truncation="head-tail:3", max_steps=1)
    trained = finetune(start, data(), tmp_path / "run", config=CONFIG, run=run)
    with pytest.raises(UserError, match="the model is stored with it; pass truncation='head'"):
        finetune(trained.model, data(pairs=True), tmp_path / "pairs", config=CONFIG, run=RUN)


def test_tags_and_text_are_never_cut(start: Path, tmp_path: Path) -> None:
    table = tmp_path / "spans.jsonl"
    spans = [{"start": 4, "end": 8, "label": "THING"}]
    rows = [{"text": f"the film {number}", "spans": spans} for number in range(12)]
    table.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    tags = pb.data.tagged(table)
    with pytest.raises(UserError, match="token_classification reads long texts in windows; received tail"):
        finetune(start, tags, tmp_path / "run", config=CONFIG, run=replace(RUN, truncation="tail"))
    text = tiny_distillation.write_text(tmp_path / "text.txt")
    with pytest.raises(UserError, match="packed texts are never cut; received tail"):
        distill(start, pb.data.text(text), tmp_path / "run", teacher=start, run=replace(RUN, truncation="tail"))


def test_command_refuses_in_one_line(start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tiny_finetuning.write_table(tmp_path / "train.csv", tiny_finetuning.examples(40, seed=0))
    arguments = [f"--model={start}", f"--train-file={table}", f"--output={tmp_path / 'run'}", "--max-length=9"]
    for flag, message in (("head-tail:7", "N below 7"), ("only-second", "single texts"), ("end", "received 'end'")):
        assert main(["finetune", *arguments, f"--truncation={flag}"]) == 2
        (line,) = [line for line in capsys.readouterr().err.splitlines() if "truncation" in line]
        assert message in line
    assert main(["finetune", *arguments, "--truncation=tail", "--epochs=1", "--contrastive-steps=0"]) == 0
    log = capsys.readouterr().err
    lines = [line for line in log.splitlines() if line.startswith(f"warning: {table}: ")]
    assert len([line for line in lines if "are longer than 9 tokens and are cut (tail)" in line]) == 1
    assert pb.from_pretrained(tmp_path / "run" / "model").tokenizer.vocabulary.truncation == "tail"


@pytest.mark.nightly
def test_distillation_on_the_ends_of_texts(tmp_path: Path) -> None:
    """Equal to one on cut texts: targets, dev scores and the teacher's score."""
    teacher = tiny_distillation.write_teacher(tmp_path / "teacher")
    student, run = tiny_distillation.STUDENT, replace(RUN, truncation="tail")
    trained = distill(student, data(), tmp_path / "run", teacher=teacher, method=METHOD, run=run)
    expected = distill(student, data(tail), tmp_path / "expected", teacher=teacher, method=METHOD, run=RUN)
    assert_same_weights(trained.model, expected.model)
    assert trained.teacher_metrics == expected.teacher_metrics
    assert trained.model.tokenizer.vocabulary.truncation == "tail"
    # A student learns to read what its teacher reads.
    taught = distill(student, data(), tmp_path / "taught", teacher=trained.model_directory, method=METHOD, run=RUN)
    assert taught.model.tokenizer.vocabulary.truncation == "tail"


@pytest.mark.nightly
def test_cached_targets_are_of_the_ends_of_texts(tmp_path: Path) -> None:
    teacher = tiny_distillation.write_teacher(tmp_path / "teacher")
    student, run = tiny_distillation.STUDENT, replace(RUN, truncation="tail")
    trained = distill(student, data(), tmp_path / "run", teacher=teacher, method=METHOD, run=run)
    plan = plan_distillation(student, data(), teacher=teacher, method=METHOD, run=run)
    cache_stages(plan, tmp_path / "cache", dtype="float32")
    for source in (CachedTeacher(tmp_path / "cache", None), CachedTeacher(tmp_path / "cache", teacher)):
        again = replace(run, overwrite=True)
        cached = distill(student, data(), tmp_path / "cached", teacher=source, method=METHOD, run=again).model
        for path, array in weights(cached).items():
            # Targets from a file and from the live teacher differ by float32 rounding.
            np.testing.assert_allclose(array, weights(trained.model)[path], rtol=1e-5, atol=1e-7, err_msg=path)
    # The cache says how its texts were cut, and another cut is refused.
    distill(
        student, data(), tmp_path / "again", teacher=CachedTeacher(tmp_path / "cache", None), method=METHOD, run=RUN
    )
    with pytest.raises(UserError, match="another tokenizer"):
        other = replace(RUN, truncation="head")
        distill(
            student,
            data(),
            tmp_path / "other",
            teacher=CachedTeacher(tmp_path / "cache", None),
            method=METHOD,
            run=other,
        )


@pytest.mark.nightly
def test_several_teachers_read_the_ends(tmp_path: Path) -> None:
    teacher = tiny_distillation.write_teacher(tmp_path / "teacher")
    student = tiny_distillation.STUDENT
    runs = [
        distill(student, rows, tmp_path / name, teacher=[teacher, teacher], method=METHOD, run=run).model
        for name, rows, run in (("run", data(), replace(RUN, truncation="tail")), ("expected", data(tail), RUN))
    ]
    assert_same_weights(*runs)
