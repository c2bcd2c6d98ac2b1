"""Token classification from a CoNLL file to a verified bundle, on the command line."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
import tiny_finetuning
from seqeval.metrics import f1_score

from pocketbert import cli
from pocketbert.data.readers.tagged_texts import read_tagged
from pocketbert.recipes import RECIPES
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.bundles.predictors import open_predictor
from pocketbert_export.checks.outputs import check_labels
from pocketbert_runtime.answers.tags import iob2

WORDS = {"MOOD": tiny_finetuning.GOOD, "FLAW": tiny_finetuning.BAD}


def write_sentences(path: Path, count: int, seed: int) -> None:
    """Sentences with spans of one or two words, told apart by the word; the last one is longer than a window."""
    random, lines = np.random.default_rng(seed), []
    for sentence in range(count):
        words: list[tuple[str, str]] = []
        for _ in range(int(random.integers(2, 6)) if sentence < count - 1 else 25):
            words += [(word, "O") for word in random.choice(tiny_finetuning.NEUTRAL, random.integers(1, 4))]
            name = str(random.choice([*WORDS]))
            words.append((str(random.choice(WORDS[name][:3])), f"I-{name}"))
            if random.random() < 0.5:
                words.append((str(random.choice(WORDS[name][3:])), f"I-{name}"))
        lines.append("".join(f"{word} X {tag}\n" for word, tag in words))
    path.write_text("\n".join(lines), encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`run/`, fine-tuned on the words, `dev.conll` in IOB1 and `bundle/`."""
    folder = tmp_path_factory.mktemp("tokens")
    tiny_finetuning.write_model(folder / "start")
    write_sentences(folder / "train.conll", 200, 1)
    write_sentences(folder / "dev.conll", 43, 2)
    assert cli.main(
        f"finetune --model={folder / 'start'} --train-file={folder / 'train.conll'} --dev-file={folder / 'dev.conll'} "
        f"--max-length=24 --batch-size=16 --epochs=6 --learning-rate=3e-3 --output={folder / 'run'}".split()
    ) in (None, 0)
    assert cli.main(
        f"export --model={folder / 'run/model'} --recipe=dynamic_wi8 --lengths=16,24 --file={folder / 'dev.conll'} "
        f"--output={folder / 'bundle'}".split()
    ) in (None, 0)
    return folder


@pytest.mark.nightly
def test_training_learns_the_spans(folder: Path) -> None:
    result = json.loads((folder / "run" / "result.json").read_text())
    assert result["main_metric"] == "f1" and result["metrics"]["f1"] > 0.95
    assert result["baseline"]["answer"] == "never a span" and result["baseline"]["metrics"]["f1"] == 0
    assert "<td>MOOD</td>" in (folder / "run" / "report.html").read_text()
    config = json.loads((folder / "run/model/config.json").read_text())
    assert config["architectures"] == ["BertForTokenClassification"]
    assert [*config["id2label"].values()] == ["O", "B-FLAW", "I-FLAW", "B-MOOD", "I-MOOD"]


@pytest.mark.parametrize("model", ["run/model", "bundle"])
def test_evaluate_scores_the_predicted_spans(
    model: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dev = folder / "dev.conll"
    assert cli.main(["evaluate", f"--model={folder / model}", f"--file={dev}", "--max-length=24"]) in (None, 0)
    content = json.loads(capsys.readouterr().out)
    flags = [f"--input={dev}", "--max-length=24", f"--output={tmp_path / 'spans.jsonl'}"]
    assert cli.main(["predict", f"--model={folder / model}", *flags]) in (None, 0)
    data, tagged = read_tagged(dev), []
    rows = map(json.loads, (tmp_path / "spans.jsonl").read_text().splitlines())
    for text, words, tags, row in zip(data.texts, data.words, data.tags or (), rows, strict=True):
        assert row["text"] == text
        starts, ends = words.T.tolist()
        for span in row["spans"]:
            assert text[span["start"] : span["end"]] == span["text"] and 0.2 < span["probability"] <= 1
        spans = [(starts.index(span["start"]), ends.index(span["end"]), span["label"]) for span in row["spans"]]
        tagged.append(iob2(spans, len(tags)))
    assert content["metrics"]["f1"] == pytest.approx(f1_score(data.tags, tagged))
    # The last sentence has more words than a window, and spans to its end.
    assert len(tagged[-1]) > 50 and set(tagged[-1][-12:]) > {"O"}
    assert [*content["classes"]["by_label"]] == ["FLAW", "MOOD"]


def test_gate_compares_words_and_spans(folder: Path) -> None:
    checks = {check["name"]: check for check in json.loads((folder / "bundle/verification.json").read_text())["checks"]}
    words = sum(map(len, read_tagged(folder / "dev.conll").words))
    assert checks["labels"]["passed"] and f"of {words:,} tokens match the float model" in checks["labels"]["reason"]
    assert checks["metric"]["reason"].startswith("f1 on 43 examples")
    assert Bundle.open(folder / "bundle").lengths == (16, 24)


def test_changed_tags_fail_the_gate(folder: Path) -> None:
    task = open_predictor(folder / "run/model").task
    reference = 4 * np.eye(5, dtype=np.float32)[np.random.default_rng(0).integers(0, 5, 900)]
    changed = reference.copy()
    changed[:40] = changed[:40, ::-1]
    check = check_labels(task, reference, changed, RECIPES["dynamic_wi8"].bounds)
    # A fifth of the reversed tags stay, in the middle.
    assert check is not None and not check.passed and check.measured < 1 - 25 / 900
    shifted = check_labels(task, reference, reference + 3, RECIPES["dynamic_wi8"].bounds)
    assert shifted is not None and shifted.measured == 1


def test_csv_has_a_column_of_spans(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "texts.txt").write_text("the lovely film\nthe film\n", encoding="utf-8")
    flags = [f"--model={folder / 'bundle'}", f"--input={tmp_path / 'texts.txt'}", "--output-format=csv"]
    assert cli.main(["predict", *flags]) in (None, 0)
    one, two = csv.DictReader(io.StringIO(capsys.readouterr().out))
    (span,) = json.loads(one["spans"])
    assert (span["text"], span["label"], span["start"], span["end"]) == ("lovely", "MOOD", 4, 10)
    assert two == {"text": "the film", "spans": "[]"}


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("evaluate --model={0}/bundle --file={0}/dev.conll --max-question-tokens=9", "answers questions"),
        ("evaluate --model={0}/bundle --file={0}/dev.conll --labels=A,B", "pass --file alone"),
        ("evaluate --model={0}/bundle --data={0} --task=sst2", "reads a file of your own; received --task"),
        (
            "evaluate --model={0}/bundle --file={0}/other.conll",
            "line 3: the type must be one of FLAW, MOOD",
        ),
        ("evaluate --model={0}/bundle --file={0}/dev.conll --max-length=99", "windows must fit into"),
        ("predict --model={0}/bundle --input={0}/dev.conll --top-k=2", "--top-k is for a model with labels"),
        (
            "finetune --model={0}/start --train-file={0}/mixed.conll --output={0}/no",
            "line 4: the tags must follow",
        ),
        (
            "finetune --model={0}/start --train-file={0}/train.conll --dev-file={0}/other.conll --output={0}/no",
            "other.conll: line 3: the type must be one of FLAW, MOOD; received 'PER'",
        ),
        (
            "finetune --model={0}/start --train-file={0}/train.conll --class-weights=FLAW=2 --output={0}/no",
            "class_weights must name labels of the task, 'O', 'B-FLAW', 'I-FLAW', 'B-MOOD', 'I-MOOD'; received 'FLAW'",
        ),
    ],
)
def test_bad_input_is_one_line(command: str, problem: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "other.conll").write_text("a O\nfilm O\nAda I-PER\n", encoding="utf-8")
    (folder / "mixed.conll").write_text("a B-X\nb I-X\n\nc I-X\n\nd O\n", encoding="utf-8")
    assert cli.main(command.format(folder).split()) == 2
    assert problem in capsys.readouterr().err.strip().splitlines()[-1]
    assert not (folder / "no").exists()
