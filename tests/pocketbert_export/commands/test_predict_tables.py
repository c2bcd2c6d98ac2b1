"""`pocketbert predict` on tables, with CSV answers and the best labels."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest

from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.data.readers.tables import read_table
from pocketbert.model import Model
from pocketbert_export.commands import answer_lines, predict
from pocketbert_runtime.answers.probabilities import described_probabilities

# Each predicts a few texts, for which a graph takes longer than it saves.
pytestmark = pytest.mark.usefixtures("eager")

# What CSV must quote, a formula, a text that begins like JSON, and the name of the column.
TEXTS = ['a "good", dull film', "so\nbright", "a cat,\r\nwalking", "bad\rly", "=1+1", "{film", "review"]
LABELS = ("bad", "fair", "good")


def answers_of(model: Model, texts: list[str], pairs: list[str] | None = None) -> np.ndarray:
    logits = model(dict(model.tokenizer(texts, pairs, max_length=19)), training=False)["logits"].numpy()
    exponents = np.exp(logits.astype(np.float64))
    return exponents / exponents.sum(axis=1, keepdims=True)


def write_csv(path: Path, rows: list[list[str]], **form: Any) -> Path:
    with open(path, "w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, **form).writerows(rows)
    return path


def call(directory: Path, *arguments: object) -> int:
    return cli.main(["predict", f"--model={directory}", *map(str, arguments)])


def test_csv_rows_are_predicted_without_header(
    small_model: Model, small_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_csv(tmp_path / "x.csv", [["id", "review"], *([str(row), text] for row, text in enumerate(TEXTS))])
    assert call(small_directory, f"--input={path}", "--text-column=review") == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.split("\n")[:-1]]
    assert [answer["text"] for answer in answers] == TEXTS
    probabilities = [list(answer["probabilities"].values()) for answer in answers]
    np.testing.assert_allclose(probabilities, answers_of(small_model, TEXTS), atol=2e-5)
    # A file may still be read line by line.
    assert call(small_directory, f"--input={path}", "--format=lines") == 0
    assert json.loads(capsys.readouterr().out.split("\n")[0])["text"] == "id,review"


@pytest.mark.parametrize("name", ["x.csv", "x.TSV", "x.jsonl"])
def test_pairs_in_columns(
    name: str, small_model: Model, small_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = ["the film", "a dog", "dull"], ["is good", "walks", "rain"]
    path = tmp_path / name
    if name == "x.jsonl":
        path.write_text(
            "".join(json.dumps({"a": a, "b": b, "label": 3}) + "\n" for a, b in zip(first, second, strict=True))
        )
    else:
        form = {"delimiter": ";"} if name == "x.csv" else {"delimiter": "\t"}
        write_csv(path, [["b", "label", "a"], *([b, "x", a] for a, b in zip(first, second, strict=True))], **form)
    more = ["--separator=;"] if name == "x.csv" else []
    assert call(small_directory, f"--input={path}", "--text-column=a", "--pair-column=b", "--top-k=1", *more) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(answer["text"], answer["pair"]) for answer in answers] == [*zip(first, second, strict=True)]
    best = answers_of(small_model, first, second)
    assert [answer["label"] for answer in answers] == [LABELS[index] for index in best.argmax(axis=1)]
    np.testing.assert_allclose([answer["top"][0]["probability"] for answer in answers], best.max(axis=1), atol=2e-5)


def test_csv_predictions_survive_a_round_trip(
    small_model: Model, small_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predict, "LINES_A_CHUNK", 2)
    path = write_csv(tmp_path / "x.csv", [["text"], *([text] for text in TEXTS)])
    output = tmp_path / "answers.csv"
    assert call(small_directory, f"--input={path}", f"--output={output}") == 0
    # Our own reader and Python's.
    examples, _ = read_table(output, text_column="text")
    assert examples.texts == TEXTS
    with open(output, encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, strict=True))
    assert list(rows[0]) == ["text", "label", "probability_bad", "probability_fair", "probability_good"]
    probabilities = answers_of(small_model, TEXTS)
    table = [[float(row[f"probability_{label}"]) for label in LABELS] for row in rows]
    np.testing.assert_allclose(table, probabilities, atol=2e-5)
    assert [row["label"] for row in rows] == [LABELS[index] for index in probabilities.argmax(axis=1)]


def test_safe_csv_has_no_formulas(
    small_model: Model, small_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    formulas = ["=1+1", "+a", "-a", "@a", "\ta", "\ra", "-1-1", "+", "-inf", "=1,2"]
    others = ["a =b", "-1.5", "+2", "-.5e-3", "'=a", "1-1", ""]
    path = write_csv(tmp_path / "x.csv", [["text"], *([text] for text in [*formulas, *others[:-1]])])
    output = tmp_path / "answers.csv"
    for flags, prefix in (([], ""), (["--safe-csv"], "'")):
        assert call(small_directory, f"--input={path}", f"--output={output}", "--overwrite", *flags) == 0
        with open(output, encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream, strict=True))
        assert [row["text"] for row in rows] == [*(prefix + text for text in formulas), *others[:-1]]
        assert all(float(row["probability_bad"]) < 1 for row in rows)
    assert [answer_lines.safe_cell(text) for text in others] == others
    assert answer_lines.safe_cell(-0.5) == -0.5
    capsys.readouterr()
    assert call(small_directory, f"--input={path}", "--safe-csv") == 2
    assert "--safe-csv is for CSV; received it with jsonl; leave it out, or write CSV" in capsys.readouterr().err


@pytest.mark.parametrize("top", [2, 9])
def test_best_labels(
    top: int, small_model: Model, small_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.txt"
    path.write_text("the film is good\ndull\n")
    probabilities = answers_of(small_model, ["the film is good", "dull"])
    expected = [sorted(zip(-row, LABELS, strict=True))[:top] for row in probabilities]
    assert call(small_directory, f"--input={path}", f"--top-k={top}") == 0
    for line, best in zip(capsys.readouterr().out.splitlines(), expected, strict=True):
        answer = json.loads(line)
        assert list(answer) == ["text", "label", "top"]
        assert [label_row["label"] for label_row in answer["top"]] == [label for _, label in best]
        assert [label_row["probability"] for label_row in answer["top"]] == pytest.approx(
            [-p for p, _ in best], abs=2e-5
        )
        assert answer["label"] == best[0][1]
    assert call(small_directory, f"--input={path}", f"--top-k={top}", "--output-format=csv") == 0
    header, *rows = csv.reader(io.StringIO(capsys.readouterr().out, newline=""))
    places = range(1, min(top, 3) + 1)
    assert header == ["text", "label", *(f"{name}_{number}" for number in places for name in ("label", "probability"))]
    assert [row[2::2] for row in rows] == [[label for _, label in best] for best in expected]


def test_csv_predictions_stream_before_input_ends(
    small_directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predict, "LINES_A_CHUNK", 2)

    class Slow(io.StringIO):
        """A stream whose third line is there only once the first two are answered."""

        def __init__(self) -> None:
            super().__init__('{"text": "dull"}\n{"text": "good", "pair": "bad"}\n{"text": "bad"}\n')
            self.answered: list[list[str]] = []

        def __next__(self) -> str:
            self.answered.append([line[:8] for line in capsys.readouterr().out.splitlines()])
            return super().__next__()

    stream = Slow()
    monkeypatch.setattr("sys.stdin", stream)
    assert call(small_directory, "--output-format=csv") == 0
    # Pairs and texts are answered apart from one another; all rows have the columns of both.
    assert stream.answered == [[], [], ["text,pai", stream.answered[2][1]], ["good,bad"]]
    assert stream.answered[2][1].startswith("dull,,")


def test_regression_as_csv(tmp_path: Path, small_model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    model = networks.network(networks.bert_config(num_layers=1), [TaskConfig(kind="regression")], small_model.tokenizer)
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "x.txt").write_text("dull\n")
    assert call(tmp_path / "model", f"--input={tmp_path / 'x.txt'}", "--output-format=csv") == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    score = model(dict(small_model.tokenizer(["dull"])), training=False)["logits"].numpy()[0]
    assert row["text"] == "dull" and float(row["score"]) == pytest.approx(float(score), abs=2e-5)
    assert call(tmp_path / "model", f"--input={tmp_path / 'x.txt'}", "--top-k=2") == 2
    assert "--top-k is for a model with labels; received it for regression" in capsys.readouterr().err


def test_several_labels_as_csv(capsys: pytest.CaptureFixture[str]) -> None:
    description = described_probabilities(("a", "b", "c"), [0.7, 0.1, 0.7000001], None)
    with answer_lines.opened(None, "csv", ["text", "pair"]) as write:
        write(
            [
                {"text": "x,y", "labels": ["a", "c"], **description},
                {"text": "z", "pair": "p", "labels": [], **description},
            ]
        )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "text,pair,labels,probability_a,probability_b,probability_c"
    assert lines[1:] == ['"x,y",,a|c,0.7,0.1,0.7', "z,p,,0.7,0.1,0.7"]
    # Rounding makes no ties.
    assert [row["label"] for row in described_probabilities(("a", "b", "c"), [0.7, 0.1, 0.7000001], 2)["top"]] == [
        "c",
        "a",
    ]


def test_nonfinite_outputs_are_refused(tmp_path: Path, small_model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    model = networks.network(networks.bert_config(num_layers=1), tokenizer=small_model.tokenizer)
    model.weights_by_path()["heads.classification.output.bias"].assign(np.array([0, np.nan, 0], np.float32))
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "x.txt").write_text("dull\n")
    assert call(tmp_path / "model", f"--input={tmp_path / 'x.txt'}", f"--output={tmp_path / 'y.jsonl'}") == 2
    output = capsys.readouterr()
    assert "answers must be finite" in output.err and not output.out
    assert not (tmp_path / "y.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input={x}.csv"], "x.csv: line 1: the header must have the column 'text'"),
        (["--input={x}.csv", "--text-column=review", "--pair-column=other"], "the column 'other'"),
        (["--input={x}.csv", "--format=jsonl"], "line 1: this must be JSON"),
        (["--input={x}.txt", "--pair-column=b"], "--pair-column is for tables and JSON; received it for lines of text"),
        (["--input={x}.txt", "--text-column=b"], "--text-column is for tables and JSON; received it for lines of text"),
        (["--input={x}.txt", "--separator=;"], "--separator is for tables; received it for lines of text"),
        (["--input={x}.jsonl", "--skip-bad-rows"], "--skip-bad-rows is for .csv and .tsv files; received it for JSON"),
        (["--input={x}.jsonl", "--text-column=b"], 'line 1 must be a JSON object with a string "b"'),
        (["--input={x}.txt", "--output={x}.txt", "--overwrite"], "an input must not be in the output"),
        (["--input={x}.txt", "--output={x}.jsonl"], "the output must not exist yet"),
        (["--input={x}.txt", "--output={x}.xml"], "--output must end in .csv or .jsonl, or --output-format must name"),
    ],
)
def test_bad_input_is_refused(
    arguments: list[str], message: str, small_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = tmp_path / "x"
    write_csv(tmp_path / "x.csv", [["review", "stars"], ["dull", "3"]])
    x.with_suffix(".txt").write_text("dull\n")
    x.with_suffix(".jsonl").write_text('{"text": "dull"}\n')
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert call(small_directory, *(argument.format(x=x) for argument in arguments)) == 2
    output = capsys.readouterr()
    assert message in output.err.splitlines()[-1] and not output.out
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
