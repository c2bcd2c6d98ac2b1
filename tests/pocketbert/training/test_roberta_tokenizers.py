"""RoBERTa and XLM-R directories through the commands, with their own tokenizers."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import tiny_finetuning
import tiny_questions
from tiny_tokenizers import SENTENCES, byte_bpe_files, unigram_file

import pocketbert as pb
from pocketbert import cli
from pocketbert.checkpoints.huggingface import write_config
from pocketbert.configs import TaskConfig
from pocketbert.data.pretraining.masking import MaskingVocabulary
from pocketbert.data.readers.questions import QuestionFile
from pocketbert.errors import UserError
from pocketbert.tokenizers.base import Tokenizer
from pocketbert_runtime.windows import WindowOptions, make_windows

pytestmark = pytest.mark.usefixtures("eager_module")
KINDS = ("byte_bpe", "unigram")
# All positions of the tiny models, so that every command truncates at the same place.
MAX_LENGTH = tiny.ROBERTA.max_position_embeddings
TEXTS = ["a charming journey", "the café (½)", ""]


def tokenizer_of(kind: str, folder: Path) -> Tokenizer:
    if kind == "byte_bpe":
        return pb.ByteBPETokenizer(*byte_bpe_files(folder))
    return pb.UnigramTokenizer(unigram_file(folder))


def config_of(kind: str, tokenizer: Tokenizer, **changes: Any) -> Any:
    family = {"byte_bpe": "roberta", "unigram": "xlm-roberta"}[kind]
    return tiny.ROBERTA.replace(model_type=family, vocab_size=tokenizer.vocab_size, **changes)


def write_pairs(path: Path, count: int, seed: int) -> Path:
    """A table of pairs: is the second text the first one?"""
    rows = tiny_finetuning.examples(count, seed)
    with open(path, "w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["first", "second", "label"])
        for index, (text, other) in enumerate(zip(rows.texts, rows.texts[1:] + rows.texts[:1], strict=True)):
            writer.writerow([text, other if index % 2 else text, ("same", "other")[index % 2]])
    return path


@pytest.fixture(scope="module", params=KINDS)
def task(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, list[str]]:
    """Kind, folder with an encoder in `model`, and the flags of the task."""
    folder = tmp_path_factory.mktemp(request.param)
    tokenizer = tokenizer_of(request.param, folder)
    config = config_of(request.param, tokenizer, num_layers=1)
    pb.from_preset(config, tokenizer=tokenizer, seed=3).save_pretrained(folder / "model")
    train, dev = write_pairs(folder / "train.csv", 24, 1), write_pairs(folder / "dev.csv", 7, 2)
    flags = [
        f"--train-file={train}", f"--dev-file={dev}",
        "--text-column=first", "--pair-column=second", "--labels=same,other", f"--max-length={MAX_LENGTH}",
    ]  # fmt: skip
    return request.param, folder, flags


@pytest.fixture(scope="module")
def teacher(task: tuple[str, Path, list[str]]) -> Path:
    _, folder, flags = task
    command = ["finetune", f"--model={folder / 'model'}", "--epochs=1", "--batch-size=8", "--seeds=5", *flags]
    assert cli.main([*command, f"--output={folder / 'run'}"]) == 0
    return folder / "run" / "model"


@pytest.mark.nightly
def test_finetune_predict_and_evaluate(
    task: tuple[str, Path, list[str]], teacher: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, folder, _ = task
    model = pb.from_pretrained(teacher)
    assert model.tokenizer is not None and model.tokenizer.vocabulary.kind == kind
    (folder / "input.jsonl").write_text(
        "".join(json.dumps({"text": text, "pair": text}) + "\n" for text in TEXTS), encoding="utf-8"
    )
    assert cli.main(["predict", f"--model={teacher}", f"--input={folder / 'input.jsonl'}"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    logits = model(model.tokenizer(TEXTS, TEXTS, max_length=MAX_LENGTH))["logits"].numpy()
    assert [answer["label"] for answer in answers] == [model.task.labels[index] for index in logits.argmax(-1)]
    flags = ["--text-column=first", "--pair-column=second"]
    command = ["evaluate", f"--model={teacher}", f"--file={folder / 'dev.csv'}", *flags]
    assert cli.main(command) == 0
    result = json.loads((folder / "run" / "result.json").read_text())
    scores = json.loads(capsys.readouterr().out)["metrics"]
    assert scores["accuracy"] == pytest.approx(result["metrics"]["accuracy"])


@pytest.mark.nightly
@pytest.mark.parametrize("task", ["byte_bpe", pytest.param("unigram", marks=pytest.mark.slow)], indirect=True)
def test_distill_live_equals_cached(task: tuple[str, Path, list[str]], teacher: Path, tmp_path: Path) -> None:
    """Both stages from a cache that has the tokenizer's files, without the teacher's folder."""
    kind, folder, flags = task
    student = tmp_path / "config.json"
    tokenizer = pb.from_pretrained(folder / "model").tokenizer
    assert tokenizer is not None
    sizes = {"hidden_size": 20, "embedding_size": 20, "head_size": 4, "num_layers": 1, "pooler": "none"}
    student.write_text(json.dumps(write_config(config_of(kind, tokenizer, **sizes), ())), encoding="utf-8")
    common = ["--method=tinybert", f"--student={student}", *flags]
    train = ["--intermediate-epochs=1", "--prediction-epochs=1", "--seeds=2"]
    cache = tmp_path / "cache"
    assert cli.main(["cache-teacher", f"--teacher={teacher}", *common, "--dtype=float32", f"--output={cache}"]) == 0
    names = {"byte_bpe": {"vocab.json", "merges.txt"}, "unigram": {"sentencepiece.bpe.model"}}[kind]
    assert names <= {path.name for path in (cache / "prediction").iterdir()}
    results = []
    for name, source in (("live", f"--teacher={teacher}"), ("cached", f"--teacher-cache={cache}")):
        assert cli.main(["distill", source, *common, *train, f"--output={tmp_path / name}"]) == 0
        results.append(pb.from_pretrained(tmp_path / name / "model"))
    for one, other in zip(results[0].weights, results[1].weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-5)
    assert results[1].tokenizer.tokenize(TEXTS).to_list() == tokenizer.tokenize(TEXTS).to_list()


@pytest.mark.one_of_each("byte_bpe")
def test_other_tokenizers_are_refused(task: tuple[str, Path, list[str]], teacher: Path, tmp_path: Path) -> None:
    kind, _, flags = task
    other = tmp_path / "bert"
    pb.from_preset(tiny_finetuning.CONFIG).save_pretrained(tmp_path / "config")
    tiny_finetuning.write_model(other, tiny_finetuning.CONFIG)
    from pocketbert.training.initialization import tokenizer_problems, vocabulary_of

    vocabulary, other_vocabulary = vocabulary_of(teacher), vocabulary_of(other)
    assert vocabulary is not None and other_vocabulary is not None
    problems = tokenizer_problems(vocabulary, other_vocabulary, "the teacher", "the student", "use one")
    assert problems == [f"both need the same kind of tokenizer; the teacher has {kind}, the student wordpiece; use one"]
    assert tokenizer_problems(vocabulary, vocabulary, "the teacher", "the student", "use one") == []


def test_only_wordpiece_augments(task: tuple[str, Path, list[str]]) -> None:
    from pocketbert.augmentation.mlm_candidates import MLMCandidates

    kind, folder, _ = task
    tokenizer = pb.from_pretrained(folder / "model").tokenizer
    model = pb.from_preset(config_of(kind, tokenizer, num_layers=1), TaskConfig(kind="masked_lm"), tokenizer)
    with pytest.raises(UserError, match=f"augmentation needs a WordPiece tokenizer .*received {kind}"):
        MLMCandidates(model, count=3)


@pytest.mark.parametrize("kind", KINDS)
def test_words_begin_with_a_space(kind: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(kind, tmp_path)
    vocabulary = MaskingVocabulary.of(tokenizer)
    tokens = tokenizer.vocabulary.tokens()
    begins = {token for token, continues in zip(tokens, vocabulary.continues, strict=True) if not continues}
    marks = {"byte_bpe": "Ġ", "unigram": "▁"}[kind]
    assert begins == {token for token in tokens if token.startswith(marks)} | {"<s>", "<pad>", "</s>", "<mask>"}


@pytest.mark.parametrize("kind", KINDS)
def test_windows_have_exact_spans(kind: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(kind, tmp_path)
    questions = [*QuestionFile(tiny_questions.write_questions(tmp_path / "questions.json", 20, 5))]
    windows = make_windows(questions, tokenizer, WindowOptions(max_length=31, stride=6))
    assert not windows.type_ids.any()
    answered = set()
    for window, index in enumerate(windows.question_index):
        row = slice(*windows.offsets[window : window + 2])
        first, last = windows.positions[window]
        if first:
            answered.add(int(index))
            start, end = windows.char_starts[row][first], windows.char_ends[row][last]
            assert questions[index].context[start:end] == questions[index].answers[0]
    assert len(answered) == len(questions) < len(windows)


def test_windows_are_transformers(tmp_path: Path) -> None:
    from transformers import RobertaTokenizerFast

    files = byte_bpe_files(tmp_path)
    questions = [*QuestionFile(tiny_questions.write_questions(tmp_path / "questions.json", 20, 5))]
    tokenizer = pb.ByteBPETokenizer(*files)
    windows = make_windows(questions, tokenizer, WindowOptions(max_length=31, stride=6))
    room = 31 - 4 - tokenizer.tokenize("the film").values.shape[0]
    expected = RobertaTokenizerFast(str(files[0]), str(files[1]))(
        [question.question for question in questions],
        [question.context for question in questions],
        truncation="only_second",
        max_length=31,
        stride=room - 6,
        return_overflowing_tokens=True,
    )
    window_ids = [windows.word_ids[slice(*windows.offsets[w : w + 2])].tolist() for w in range(len(windows))]
    assert window_ids == expected["input_ids"]
    assert windows.question_index.tolist() == expected["overflow_to_sample_mapping"]


@pytest.fixture(scope="module")
def student(task: tuple[str, Path, list[str]]) -> Path:
    """The configuration of a student with other heads and another width."""
    kind, folder, _ = task
    tokenizer = pb.from_pretrained(folder / "model").tokenizer
    assert tokenizer is not None
    config = config_of(kind, tokenizer, hidden_size=20, embedding_size=20, head_size=4, num_layers=1)
    (folder / "student.json").write_text(json.dumps(write_config(config, ())), encoding="utf-8")
    return folder / "student.json"


RELATIONS = ["--method=minilmv2", "--relation-heads=10", "--seeds=2"]


@pytest.mark.nightly
def test_xnli_from_two_languages(
    task: tuple[str, Path, list[str]], student: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Teacher and student are selected by the mean over both languages."""
    _, folder, _ = task
    rows = [("the cat sat", "the cat", "entailment"), ("a naïve café", "the mat", "neutral")]
    rows += [("Привет мир", "это слова", "contradiction")]
    text = "".join("\t".join(row) + "\n" for row in rows)
    for name in ("dev-en.tsv", "dev-ru.tsv", "train.tsv"):
        (tmp_path / name).write_text(text * 4, encoding="utf-8")
    data = ["--task=xnli", f"--data={tmp_path}", "--languages=en,ru", f"--max-length={MAX_LENGTH}"]
    data += [f"--train-file={tmp_path / 'train.tsv'}"]
    command = ["finetune", f"--model={folder / 'model'}", "--epochs=1", "--batch-size=8", *data]
    assert cli.main([*command, f"--output={tmp_path / 'teacher'}"]) == 0
    command = ["distill", *RELATIONS, f"--teacher={tmp_path / 'teacher' / 'model'}", f"--student={student}", *data]
    command += ["--epochs=1", "--finetuning-epochs=1", f"--output={tmp_path / 'run'}"]
    assert cli.main(command) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))
    assert [stage["name"] for stage in result["stages"]] == ["relations", "finetuning"]
    capsys.readouterr()
    assert cli.main(["evaluate", f"--model={tmp_path / 'run' / 'model'}", f"--data={tmp_path}"]) == 0
    scores = json.loads(capsys.readouterr().out)["metrics"]
    assert scores == pytest.approx(result["metrics"])
    assert scores["accuracy"] == pytest.approx((scores["accuracy_en"] + scores["accuracy_ru"]) / 2)


@pytest.mark.one_of_each("unigram")
def test_mlqa_from_english_questions(
    task: tuple[str, Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Training on English questions, an English dev file, and official scores for each pair of languages."""
    from official.nlp.tools import squad_evaluate_v1_1

    _, folder, _ = task
    files = {}
    for seed, name in enumerate(("train", "dev-context-en-question-en", "dev-context-de-question-en")):
        (tmp_path / name).mkdir()
        files[name] = tiny_questions.write_questions(tmp_path / name / f"{name}.json", 6, seed)
    command = ["finetune", f"--model={folder / 'model'}", f"--train-file={files['train']}", "--epochs=1"]
    command += [f"--dev-file={files['dev-context-en-question-en']}", f"--max-length={MAX_LENGTH}", "--batch-size=8"]
    assert cli.main([*command, f"--output={tmp_path / 'run'}"]) == 0
    mlqa, answers = tmp_path / "mlqa", tmp_path / "answers.json"
    mlqa.mkdir()
    for name in list(files)[1:]:
        files[name].rename(mlqa / f"{name}.json")
    capsys.readouterr()
    command = ["evaluate", f"--model={tmp_path / 'run' / 'model'}", "--task=mlqa", f"--data={mlqa}"]
    assert cli.main([*command, f"--max-length={MAX_LENGTH}", f"--predictions={answers}"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result["parts"]) == {"en-en", "de-en"} and result["examples"] == 12
    answers_of_task = json.loads(answers.read_text())["en-en"]
    content = json.loads((mlqa / "dev-context-en-question-en.json").read_text())["data"]
    official = squad_evaluate_v1_1.evaluate(content, answers_of_task)
    assert result["parts"]["en-en"]["metrics"]["exact_match"] == pytest.approx(official["exact_match"])


@pytest.mark.one_of_each("byte_bpe")
def test_relations_are_learned_from_text(task: tuple[str, Path, list[str]], student: Path, tmp_path: Path) -> None:
    kind, folder, _ = task
    (tmp_path / "text.txt").write_text("\n\n".join(SENTENCES * 6) + "\n", encoding="utf-8")
    command = ["distill", *RELATIONS, f"--teacher={folder / 'model'}", f"--student={student}", "--steps=2"]
    command += [f"--text={tmp_path / 'text.txt'}", f"--max-length={MAX_LENGTH}", "--batch-size=3"]
    assert cli.main([*command, f"--output={tmp_path / 'run'}"]) == 0
    learned = pb.from_pretrained(tmp_path / "run" / "model")
    assert learned.tokenizer is not None and learned.tokenizer.vocabulary.kind == kind
    start = pb.from_preset(learned.config, seed=2).weights_by_path()
    changed = {path for path, weight in learned.weights_by_path().items() if not np.array_equal(weight, start[path])}
    # Nothing above the vectors runs in the student's last layer.
    above = ("attention.output", "attention.norm", "feed_forward")
    assert changed == {path for path in start if not any(part in path for part in above)}
