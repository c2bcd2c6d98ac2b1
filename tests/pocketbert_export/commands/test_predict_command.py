"""`pocketbert predict`: lines in, JSON lines out."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import networks
import numpy as np
import pytest

from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.tokenizers.wordpiece import WordPieceTokenizer
from pocketbert_export.commands import predict

# Each predicts a few texts, for which a graph takes longer than it saves.
pytestmark = pytest.mark.usefixtures("eager")

Reader = Callable[[str], list[dict[str, object]]]


@pytest.fixture
def paths(small_directory: Path, small_bundle: Path) -> dict[str, Path]:
    return {"directory": small_directory, "bundle": small_bundle}


def expected(model: Model, text: str, pair: str | None = None) -> np.ndarray:
    inputs = model.tokenizer([text], None if pair is None else [pair], max_length=19)
    exponents = np.exp(model(dict(inputs), training=False)["logits"].numpy()[0].astype(np.float64))
    return exponents / exponents.sum()


@pytest.mark.parametrize("form", ["directory", "bundle"])
def test_lines(
    form: str,
    small_model: Model,
    paths: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(predict, "LINES_A_CHUNK", 2)
    texts = ["the film is good .", "dull", '"a" cat, walking on and on', "größe 東京"]
    file = tmp_path / "texts.txt"
    file.write_bytes(("\n\n".join(texts) + "\r\n").encode())
    assert cli.main(["predict", f"--model={paths[form]}", f"--input={file}"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [answer["text"] for answer in answers] == texts
    for answer in answers:
        probabilities = expected(small_model, answer["text"])
        assert answer["label"] == ("bad", "fair", "good")[int(probabilities.argmax())]
        assert list(answer["probabilities"]) == ["bad", "fair", "good"]
        # Printed with six digits; the runtimes agree to 1e-5.
        np.testing.assert_allclose(list(answer["probabilities"].values()), probabilities, atol=2e-5)


@pytest.mark.parametrize("content", ['{"text": "the film"}', "the film"])
@pytest.mark.parametrize("from_file", [True, False])
def test_byte_order_mark_is_no_text(
    content: str,
    from_file: bool,
    paths: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Windows writes the mark into UTF-8 files.
    file, source = tmp_path / "texts.txt", []
    file.write_bytes(f"\ufeff{content}\r\n".encode())
    if from_file:
        source = [f"--input={file}"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes()), encoding="ascii"))
    assert cli.main(["predict", f"--model={paths['directory']}", *source]) == 0
    assert [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()] == ["the film"]


def test_stdin_json_may_mix_pairs_texts(
    small_model: Model, paths: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"text": "the film"},
        {"text": "the film", "pair": "is good"},
        {"text": "a dog", "pair": ""},
        {"text": "the sun", "id": 5},
    ]
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(json.dumps(row) + "\n" for row in rows)))
    assert cli.main(["predict", f"--model={paths['directory']}"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [answer.get("pair") for answer in answers] == [None, "is good", "", None]
    for row, answer in zip(rows, answers, strict=True):
        pair = row.get("pair")
        assert pair is None or isinstance(pair, str)
        np.testing.assert_allclose(
            list(answer["probabilities"].values()), expected(small_model, str(row["text"]), pair), atol=2e-5
        )


def test_c_locale_writes_lone_surrogates(
    paths: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # JSON may name half of a surrogate pair, which no encoding of Unicode has bytes for.
    texts = ["ok \ud83d", "größe", "the film is good"]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert cli.main(["predict", f"--model={paths['directory']}", f"--input={tmp_path / 'texts.jsonl'}"]) == 0
    lines = written.getvalue().decode("utf-8").splitlines()
    assert [json.loads(line)["text"] for line in lines] == texts
    assert "größe" in lines[1]


def test_regression_gives_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = WordPieceTokenizer(networks.vocabulary(tmp_path))
    model = networks.network(networks.bert_config(), [TaskConfig(kind="regression")], tokenizer)
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "texts").write_text("the film\n", encoding="utf-8")
    assert cli.main(["predict", f"--model={tmp_path / 'model'}", f"--input={tmp_path / 'texts'}"]) == 0
    answer = json.loads(capsys.readouterr().out)
    score = model(dict(tokenizer(["the film"])), training=False)["logits"].numpy()[0]
    assert answer == {"text": "the film", "score": pytest.approx(score, abs=2e-5)}


def test_answers_come_before_the_input_ends(
    paths: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predict, "LINES_A_CHUNK", 2)

    class Slow(io.StringIO):
        """A stream whose third line is there only once the first two are answered."""

        def __init__(self) -> None:
            super().__init__("dull\ngood\nbad\n")
            self.answered: list[int] = []

        def __next__(self) -> str:
            self.answered.append(len(capsys.readouterr().out.splitlines()))
            return super().__next__()

    stream = Slow()
    monkeypatch.setattr("sys.stdin", stream)
    assert cli.main(["predict", f"--model={paths['directory']}"]) == 0
    assert stream.answered == [0, 0, 2, 0]


@pytest.mark.parametrize(
    ("content", "form", "message"),
    [
        ('{"text": "a"}\n{"text": 5}\n', "auto", 'line 2 must be a JSON object with a string "text"'),
        ('{"text": "a", "pair": 7}\n', "auto", 'line 1: "pair" must be a string; received 7'),
        ('{"text": "a"\n', "auto", "line 1: this must be JSON"),
        ("\n\nplain\n", "jsonl", "line 3: this must be JSON"),
        ("[1]\n", "jsonl", "line 1 must be a JSON object with a string"),
    ],
)
def test_bad_lines_are_named(content: str, form: str, message: str) -> None:
    with pytest.raises(UserError, match="input: " + message):
        list(predict.read_rows(io.StringIO(content), form, "input"))


def test_a_brace_may_begin_a_text() -> None:
    assert list(predict.read_rows(io.StringIO("{curly\n"), "lines", "input")) == [{"text": "{curly"}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--model is required"),
        (["--model={directory}", "--input={directory}/none.txt"], "No such file"),
        (["--model={directory}/none", "--input={directory}/vocab.txt"], "config.json (a model directory)"),
        (["--model={directory}", "--input={directory}/model.safetensors"], "UTF-8"),
        (
            ["--model={bundle}", "--input={directory}/vocab.txt", "--n-best=2", "--max-length=9"],
            "--max-length is for a model that answers questions; received one for classification; --n-best is",
        ),
    ],
)
def test_bad_input_is_refused(
    arguments: list[str], message: str, paths: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["predict", *(argument.format(**paths) for argument in arguments)]) == 2
    assert message in capsys.readouterr().err
