"""A teacher with byte-level BPE and a student with WordPiece: texts are tokenized twice."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny
import tiny_finetuning
import tiny_questions
from scipy.special import log_softmax, softmax
from tiny_tokenizers import byte_bpe_files

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.data.batches import EncodedExamples, dataset
from pocketbert.data.examples import Examples
from pocketbert.data.readers.questions import QuestionFile
from pocketbert.data.task_data import TaskData, TextData
from pocketbert.data.teacher_rows import without_teacher_rows
from pocketbert.distillation import cache_teacher
from pocketbert.distillation.cache_teacher import cache_stages
from pocketbert.distillation.distiller import Distiller
from pocketbert.distillation.ensemble import taught_by_all
from pocketbert.distillation.methods.embedding import EmbeddingDistillation
from pocketbert.distillation.methods.hsk import HSK
from pocketbert.distillation.methods.minilmv2 import MiniLMv2
from pocketbert.distillation.methods.tinybert import TinyBERT
from pocketbert.distillation.other_tokens import moved_logits
from pocketbert.distillation.plan import DistillationPlan
from pocketbert.distillation.planning import plan_distillation
from pocketbert.distillation.predictions import prediction_loss
from pocketbert.distillation.teacher import CachedTeacher
from pocketbert.errors import UserError
from pocketbert.tasks.question_partners import partners
from pocketbert.training import trainer
from pocketbert.training.config import RunConfig
from pocketbert.training.state import write_checkpoint
from pocketbert_runtime.embedding_config import EmbeddingConfig
from pocketbert_runtime.windows import WindowOptions, make_windows

MAX_LENGTH = 27
LOGITS = TinyBERT(
    max_length=MAX_LENGTH,
    without=("augmentation", "embedding", "transformer"),
    prediction_epochs=2,
    prediction_batch_size=8,
    prediction_learning_rate=1e-2,
)
TASKS = {
    "classification": tiny_finetuning.TASK,
    "pairs": tiny_finetuning.TASK,
    "regression": TaskConfig(kind="regression", name="stars"),
    "multi_label": TaskConfig(kind="multi_label", name="tags", labels=("low", "middle", "high")),
    "embedding": TaskConfig(kind="embedding", embedding=EmbeddingConfig()),
    "span": tiny_questions.TASK,
}


def examples(kind: str, count: int, seed: int) -> Examples:
    plain, random = tiny_finetuning.examples(count, seed), np.random.default_rng(seed)
    labels: dict[str, Any] = {
        "regression": random.random(count).astype(np.float32),
        "embedding": random.random(count).astype(np.float32),
        "multi_label": random.integers(0, 2, (count, 3)).astype(np.int32),
    }
    pairs = plain.texts[1:] + plain.texts[:1] if kind in ("pairs", "embedding") else None
    return dataclasses.replace(plain, pairs=pairs, labels=labels.get(kind, plain.labels))


def data_of(kind: str, folder: Path) -> TaskData:
    if kind == "span":
        files = [tiny_questions.write_questions(folder / f"{seed}.json", 9, seed) for seed in (1, 2)]
        train, dev = map(QuestionFile, files)
        return TaskData(task=TASKS[kind], train=train, dev=dev)
    return TaskData(task=TASKS[kind], train=examples(kind, 21, 1), dev=examples(kind, 11, 2))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    tokenizer = pb.ByteBPETokenizer(*byte_bpe_files(folder / "files"))
    # The tiny vocabulary has few words, so texts have several times as many tokens as the student's.
    config = tiny.ROBERTA.replace(vocab_size=tokenizer.vocab_size, num_layers=2, max_position_embeddings=110)
    for kind, task in TASKS.items():
        pb.from_preset(config, task=(task,), tokenizer=tokenizer, seed=12).save_pretrained(folder / kind)
    tiny_finetuning.write_model(folder / "student")
    return folder


def plan_of(kind: str, folder: Path, tmp_path: Path, **changes: Any) -> DistillationPlan:
    method = EmbeddingDistillation(max_length=MAX_LENGTH) if kind == "embedding" else LOGITS
    options = {"teacher": folder / kind, "method": method, "run": RunConfig(), **changes}
    student = options.pop("student", folder / "student")
    return plan_distillation(student, options.pop("data", None) or data_of(kind, tmp_path), **options)


def live_targets(plan: DistillationPlan, rows: list[np.ndarray]) -> list[tuple[dict[str, Any], dict[str, tf.Tensor]]]:
    """Batches with the targets that a live teacher gives."""
    (stage,) = plan.stages
    encoded = plan.encoded(stage)
    assert encoded is not None
    student = pb.from_preset(plan.start.config, task=plan.tasks, tokenizer=plan.tokenizer)
    step = Distiller(student, plan.objective, stage, teacher=plan.teacher)
    elements = [element[0] if isinstance(element, tuple) else element for element in dataset(encoded, rows)]
    return [(inputs, dict(step.targets(inputs))) for inputs in elements]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("kind", ["classification", "pairs", "regression", "multi_label", "embedding"])
def test_targets_are_those_of_the_teachers_tokens(kind: str, folder: Path, tmp_path: Path) -> None:
    plan, rows = plan_of(kind, folder, tmp_path), np.array([3, 17, 8])
    ((inputs, targets),) = live_targets(plan, [rows])
    data, teacher = plan.data.given.train, pb.from_pretrained(folder / kind)
    texts, pairs = [data.texts[row] for row in rows], data.pairs and [data.pairs[row] for row in rows]
    if kind == "embedding":
        texts, pairs = [text for both in zip(texts, pairs, strict=True) for text in both], None
    for name, model in (("", pb.from_pretrained(folder / "student")), ("teacher_", teacher)):
        expected = model.tokenizer(texts, pairs, max_length=MAX_LENGTH)  # type: ignore[misc]
        ids, length = inputs[f"{name}input_word_ids"].numpy(), expected["input_word_ids"].shape[1]
        np.testing.assert_array_equal(ids[:, :length], expected["input_word_ids"])
        np.testing.assert_array_equal(inputs[f"{name}input_mask"].numpy()[:, :length], expected["input_mask"])
    outputs = teacher(teacher.tokenizer(texts, pairs, max_length=MAX_LENGTH))  # type: ignore[misc]
    (expected,), (target,) = outputs.values(), targets.values()
    # Batches of other widths move float32 sums by 1e-6 or so.
    np.testing.assert_allclose(target, expected, rtol=2e-5, atol=2e-6)


def test_tokens_with_the_same_character_are_partners() -> None:
    # First characters of "un|happi|ly" for the teacher, "unhappy" cut as "unhap|pi|ly" for the student.
    np.testing.assert_array_equal(partners(np.array([0, 2, 7]), np.array([0, 5, 7])), [0, -1, 2])
    # The teacher has a character in three bytes, the student in one token, and the other way round.
    np.testing.assert_array_equal(partners(np.array([0, 4, 4, 4, 9]), np.array([0, 4, 9])), [0, 1, 1, 1, 2])
    np.testing.assert_array_equal(partners(np.array([0, 4, 9]), np.array([0, 4, 4, 4, 9])), [0, 1, 4])
    # Last characters are matched from the back.
    np.testing.assert_array_equal(partners(np.array([0, 4, 9]), np.array([0, 4, 4, 4, 9]), from_end=True), [0, 3, 4])
    np.testing.assert_array_equal(partners(np.array([4, 4, 4]), np.array([4, 4]), from_end=True), [0, 0, 1])


def test_probability_is_moved_dropped_and_renormalized() -> None:
    probabilities = np.array([[0.1, 0.2, 0.3, 0.15, 0.25]])
    moved = moved_logits(tf.constant(np.log(probabilities), tf.float32), tf.constant([[0, 2, -1, 2, 5]]), 7)
    # 0.3 has no partner; the rest is 0.7.
    expected = np.array([[0.1, 0, 0.35, 0, 0, 0.25, 0]]) / 0.7
    np.testing.assert_allclose(softmax(moved.numpy(), axis=1), expected, atol=1e-7)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_equal_tokenizers_give_the_same_loss(temperature: float) -> None:
    random = np.random.default_rng(4)
    teacher, student = (30 * random.standard_normal((2, 3, 11)).astype(np.float32) for _ in range(2))
    mask = (np.arange(11) < np.array([[11], [4], [7]])).astype(np.int32)
    keys = np.sort(random.integers(0, 8, 11))
    same = np.stack([np.where(row, partners(keys, keys), -1) for row in mask])
    names = ("start_logits", "end_logits")

    def loss(targets: list[Any]) -> float:
        of_names = [dict(zip(names, map(tf.constant, values), strict=True)) for values in (targets, student)]
        return float(prediction_loss(*of_names, tf.constant(mask), temperature=temperature))

    moved = [moved_logits(tf.constant(logits), tf.constant(same), 11).numpy() for logits in teacher]
    assert loss(moved) == pytest.approx(loss(list(teacher)), rel=1e-6)
    bias = np.where(mask, 0, -np.inf)
    by_hand = [
        -np.nansum(softmax(t / temperature + bias, -1) * np.maximum(log_softmax(s / temperature + bias, -1), -1e30), -1)
        for t, s in zip(teacher, student, strict=True)
    ]
    assert loss(moved) == pytest.approx(np.mean(by_hand), rel=1e-5)


def test_question_windows_have_partners(folder: Path, tmp_path: Path) -> None:
    plan = plan_of("span", folder, tmp_path)
    (stage,) = plan.stages
    encoded = plan.encoded(stage)
    assert encoded is not None and encoded.teacher_rows is not None
    questions = [*plan.data.given.train]
    windows = make_windows(questions, plan.tokenizer, WindowOptions(max_length=MAX_LENGTH))
    assert len(windows) > len(questions)
    teacher, rows = plan.teacher_tokenizer, encoded.teacher_rows
    np.testing.assert_array_equal(encoded.word_ids, windows.word_ids)
    for window, number in enumerate(windows.question_index):
        question = questions[number]
        tokens = slice(windows.offsets[window], windows.offsets[window + 1])
        starts, ends = windows.char_starts[tokens], windows.char_ends[tokens]
        low, high = starts[starts >= 0].min(), ends.max()
        of_question, of_context = (teacher.tokens([text]) for text in (question.question, question.context))
        inside = (of_context.starts >= low) & (of_context.ends <= high)
        expected = [0, *of_question.ids, 2, 2, *of_context.ids[inside], 2]
        own = slice(rows.offsets[window], rows.offsets[window + 1])
        np.testing.assert_array_equal(rows.word_ids[own], expected)
        first = len(of_question.ids) + 3
        for name, chars, others in (("start_logits", of_context.starts, starts), ("end_logits", of_context.ends, ends)):
            places = rows.partners[name][own]
            for place, char in zip(places[first:-1], chars[inside], strict=True):
                matches = np.flatnonzero(others == char)
                assert place == (matches[0] if len(matches) else -1)
            # First token, both separators and the last token go to [CLS] and [SEP].
            separator = int(windows.context_start[window]) - 1
            assert places[0] == 0 and list(places[first - 2 : first]) == [separator] * 2
            assert places[-1] == len(starts) - 1
        assert (rows.partners["start_logits"][own] < 0).any()


def test_same_tokenizer_gives_the_same_windows(folder: Path, tmp_path: Path) -> None:
    plan = plan_of("span", folder, tmp_path)
    task, data = pb.from_pretrained(folder / "span").task, plan.data.given.train
    assert task is not None
    from pocketbert.tasks.registry import supervised_task

    for tokenizer in (plan.tokenizer, plan.teacher_tokenizer):
        encoded = supervised_task(task).encode(data, tokenizer, MAX_LENGTH)
        rows = supervised_task(task).teacher_rows(data, tokenizer, tokenizer, MAX_LENGTH, 110)
        np.testing.assert_array_equal(rows.word_ids, encoded.word_ids)
        np.testing.assert_array_equal(rows.type_ids, encoded.type_ids)
        np.testing.assert_array_equal(rows.offsets, encoded.offsets)
        positions = np.concatenate([np.arange(length) for length in encoded.lengths])
        for places in rows.partners.values():
            np.testing.assert_array_equal(places, positions)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("kind", ["classification", "span"])
def test_cached_targets_equal_live_ones(kind: str, folder: Path, tmp_path: Path) -> None:
    plan = plan_of(kind, folder, tmp_path)
    (path,) = cache_stages(plan, tmp_path / "cache", dtype="float32")
    from_cache = plan_of(kind, folder, tmp_path, teacher=CachedTeacher(tmp_path / "cache"), data=plan.data.given)
    (stage,) = plan.stages
    encoded = from_cache.encoded(stage)
    assert encoded is not None and path.name == stage.name
    cache = from_cache.cached_targets(stage, encoded)
    assert cache is not None and cache.vocabulary.kind == "byte_bpe"
    # The batches of the cache, so that the teacher's sums have the same order.
    rows = cache_teacher._plan(encoded.read_by_teacher, 0, len(encoded))
    for (inputs, live), (batch, stored) in zip(live_targets(plan, rows), cache.dataset(encoded, rows), strict=True):
        assert set(without_teacher_rows(inputs)) | {"labels"} == set(batch) and set(live) == set(stored)
        mask = inputs["input_mask"].numpy() == 1
        for name, values in live.items():
            where = mask if kind == "span" else ...
            np.testing.assert_array_equal(values.numpy()[where], stored[name].numpy()[where])
    assert from_cache.cached_teacher_metrics() == plan.measure_teacher(plan.teacher)


@pytest.mark.usefixtures("eager")
def test_one_cache_teaches_students_with_any_tokens(folder: Path, tmp_path: Path) -> None:
    own = tiny.ROBERTA.replace(vocab_size=pb.from_pretrained(folder / "pairs").config.vocab_size)
    cache_stages(plan_of("pairs", folder, tmp_path, student=own), tmp_path / "cache")
    for teacher in (None, folder / "pairs"):
        plan = plan_of("pairs", folder, tmp_path, teacher=CachedTeacher(tmp_path / "cache", teacher))
        assert plan.vocabulary.kind == "wordpiece"
        encoded = plan.encoded(plan.stages[0])
        assert encoded is not None and plan.cached_targets(plan.stages[0], encoded) is not None
    other = dataclasses.replace(data_of("pairs", tmp_path), train=examples("pairs", 20, 1))
    plan = plan_of("pairs", folder, tmp_path, teacher=CachedTeacher(tmp_path / "cache"), data=other)
    encoded = plan.encoded(plan.stages[0])
    assert isinstance(encoded, EncodedExamples)
    with pytest.raises(UserError, match="another dataset"):
        plan.cached_targets(plan.stages[0], encoded)


@pytest.mark.usefixtures("eager")
def test_teachers_with_other_tokens_teach_their_mean(folder: Path, tmp_path: Path) -> None:
    student = pb.from_pretrained(folder / "student")
    pb.from_preset(student.config, task=(TASKS["pairs"],), tokenizer=student.tokenizer).save_pretrained(
        tmp_path / "bert"
    )
    teachers = [folder / "pairs", tmp_path / "bert"]
    plan = taught_by_all(plan_of("pairs", folder, tmp_path), teachers)
    (stage,) = plan.stages
    encoded, data = plan.encoded(stage), plan.data.given.train
    assert encoded is not None and encoded.teacher_rows is None and plan.vocabulary.kind == "wordpiece"
    models = [pb.from_pretrained(teacher) for teacher in teachers]
    logits = [model(model.tokenizer(data.texts, data.pairs, max_length=MAX_LENGTH)) for model in models]  # type: ignore[misc]
    mean = np.mean([softmax(output["logits"].numpy(), axis=1) for output in logits], axis=0)
    np.testing.assert_allclose(encoded.soft_labels, mean, atol=1e-5)


def test_student_with_more_tokens_has_its_own_tokenizer(folder: Path, tmp_path: Path) -> None:
    larger = tiny_finetuning.CONFIG.replace(vocab_size=101)
    tiny_finetuning.write_model(tmp_path / "larger", larger)
    student = pb.from_pretrained(folder / "student")
    pb.from_preset(student.config, task=(TASKS["pairs"],), tokenizer=student.tokenizer).save_pretrained(
        tmp_path / "pairs"
    )
    plan = plan_of("pairs", tmp_path, tmp_path, student=tmp_path / "larger")
    assert plan.spec.tokenizer_difference == "vocabulary: the teacher has 97 tokens, the student 101"
    assert len(plan.vocabulary.tokens()) == 101 and plan.teacher_vocabulary is not None


class Interrupted(BaseException):
    pass


@pytest.mark.parametrize("kind", ["span"])
def test_interrupted_run_resumes_exactly(
    kind: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = data_of(kind, tmp_path)

    def run(output: str) -> Any:
        return pb.distill(
            folder / "student", data, tmp_path / output, teacher=folder / kind, method=LOGITS,
            run=RunConfig(seed=5, checkpoint_seconds=0.0),
        )  # fmt: skip

    result = run("whole")
    line = "have different tokenizers (kind of tokenizer: the teacher has byte_bpe, the student wordpiece); each reads"
    assert line in capsys.readouterr().err
    assert pb.from_pretrained(result.model_directory).tokenizer.vocabulary.kind == "wordpiece"  # type: ignore[union-attr]
    calls = []

    def interrupting(*arguments: Any) -> None:
        write_checkpoint(*arguments)
        calls.append(arguments)
        if len(calls) == 2:
            raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "write_checkpoint", interrupting)
        with pytest.raises(Interrupted):
            run("interrupted")
    run("interrupted")
    for name in ("metrics.jsonl", "model/model.safetensors"):
        assert (tmp_path / "interrupted" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("method", "message"),
    [
        (
            TinyBERT(max_length=MAX_LENGTH),
            "tinybert: .*stage intermediate compares the hidden_states, attention_logits",
        ),
        (MiniLMv2(max_length=MAX_LENGTH, relation_heads=5), "minilmv2: .*compares the queries, keys, values of single"),
        (HSK(max_length=MAX_LENGTH), "hsk: .*compares the hidden_states"),
        (pb.EfficientBERT(max_length=MAX_LENGTH), "efficientbert: .*compares the hidden_states, attention_logits of"),
    ],
)
def test_methods_on_tokens_are_refused(method: Any, message: str, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message) as caught:
        plan_of("classification", folder, tmp_path, method=method)
    text = str(caught.value)
    assert "the teacher has byte_bpe, the student wordpiece); give a student with the teacher's vocabulary, or" in text
    assert "without=embedding,transformer" in text and "\n" not in text


def test_word_tags_and_plain_text_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the film\n")
    with pytest.raises(UserError, match="stage general compares the hidden_states, attention_logits of single tokens"):
        plan_of("classification", folder, tmp_path, method=TinyBERT(), data=TextData(tmp_path / "text.txt"))
    task = TaskConfig(kind="token_classification", labels=("O", "B-good", "I-good"))
    teacher = pb.from_pretrained(folder / "classification")
    pb.from_preset(teacher.config, task=(task,), tokenizer=teacher.tokenizer).save_pretrained(tmp_path / "tagger")
    (tmp_path / "train.conll").write_text("the O\nfine B-good\n\nbad O\n\n")
    data = pb.data.tagged(tmp_path / "train.conll", dev=tmp_path / "train.conll")
    with pytest.raises(UserError, match="stage prediction compares the word tags of single tokens") as caught:
        plan_of(
            "classification", tmp_path, tmp_path, teacher=tmp_path / "tagger", student=folder / "student", data=data
        )
    assert "write the teacher's predictions and give soft_labels" in str(caught.value)
