"""`pocketbert plot attention`: the files, the table, and what is refused."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny_finetuning
from attention_models import write
from PIL import Image

import pocketbert as pb
from pocketbert.cli import main
from pocketbert.plots.attention_maps import attention_maps
from pocketbert.plots.drawing import coloured
from pocketbert.plots.separator_shares import separator_shares

TEXT = "a warm film & <b>plot"


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> Path:
    changes = {"num_layers": 2, "num_attention_heads": 3, "head_size": 10}
    return write(tmp_path_factory.mktemp("student") / "small", "bert", **changes)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def images(page: str) -> list[bytes]:
    """The images on a page."""
    return [base64.b64decode(data) for data in re.findall(r'src="data:image/png;base64,([^"]+)"', page)]


@pytest.mark.usefixtures("eager")
def test_one_model_gets_its_files(
    directory: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, arguments = tmp_path / "out", ["plot", "attention", f"--model={directory('bert')}", f"--text={TEXT}"]
    arguments += ["--max-tokens=29", f"--output={folder}"]
    assert main(arguments) == 0
    assert capsys.readouterr().out == f"{folder / 'report.html'}\n"
    written = content(folder)
    assert {*written} == {".pocketbert", "attention.png", "report.html"}
    page = written["report.html"].decode()
    assert "http" not in page and "<script" not in page and 'src="data:' in page
    assert "a warm film &amp; &lt;b&gt;plot" in page and "read the first" not in page
    assert images(page) == [written["attention.png"]]
    shown = np.asarray(Image.open(folder / "attention.png").convert("RGB")).reshape(-1, 3)
    colours = {tuple(colour) for colour in shown.tolist()}
    expected = attention_maps(pb.from_pretrained(directory("bert")), TEXT, max_tokens=29)
    # Each map covers hundreds of pixels for each probability.
    assert {tuple(colour) for colour in coloured(expected.probs).reshape(-1, 3).tolist()} <= colours
    width, height = Image.open(folder / "attention.png").size
    assert width > height > 300

    assert main(arguments) == 2 and "the output must not exist yet" in capsys.readouterr().err
    assert main([*arguments, "--overwrite"]) == 0 and content(folder) == written


@pytest.mark.usefixtures("eager")
def test_two_models_of_different_depth(
    directory: Callable[[str], Path], student: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_finetuning.write_table(tmp_path / "texts.csv", tiny_finetuning.examples(11, seed=8))
    texts = tiny_finetuning.examples(11, seed=8).texts
    arguments = ["plot", "attention", f"--model={directory('roberta')}", f"--student={student}", f"--text={TEXT}"]
    arguments += ["--text-pair=a dull actor", "--max-tokens=11", f"--input={tmp_path / 'texts.csv'}"]
    assert main([*arguments, "--max-length=19", f"--output={tmp_path / 'out'}"]) == 0
    table = capsys.readouterr().out
    written = content(tmp_path / "out")
    assert {*written} == {".pocketbert", "attention.png", "report.html", "separators.json", "separators.png"}
    page = written["report.html"].decode()
    assert images(page) == [written["attention.png"], written["separators.png"]]
    assert "The teacher read the first 11 tokens" in page
    record = json.loads(written["separators.json"])
    assert (record["texts"], record["max_length"], record["separator"]) == (11, 19, "</s>")
    for row, folder in zip(record["models"], (directory("roberta"), student), strict=True):
        expected = separator_shares(pb.from_pretrained(folder), texts, max_length=19, show_progress=False)
        assert row["top_1"] == list(expected.counts[1]) and row["top_3"] == list(expected.counts[3])
        assert f"{row['top_3'][1]:,} ({row['top_3'][1] / 11:.1%})" in table
    assert "Teacher, top 1" in page and "Share of &lt;/s&gt;" in page


@pytest.mark.usefixtures("eager")
def test_lines_of_text_are_read(directory: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_bytes("a film\r\n\r\n  \nthe plot\u2028of it\n".encode())
    arguments = ["plot", "attention", f"--model={directory('bert')}", f"--input={tmp_path / 'texts.txt'}"]
    assert main([*arguments, "--max-length=19", f"--output={tmp_path / 'out'}"]) == 0
    assert {*content(tmp_path / "out")} == {".pocketbert", "report.html", "separators.json", "separators.png"}
    assert json.loads((tmp_path / "out" / "separators.json").read_bytes())["texts"] == 2


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model=missing"], "missing"),
        (["--layers=1,4"], "layers must be 1 to 3; received 4"),
        (["--student=model", "--layers=4"], "layers must be 1 to 3; received 4"),
        (["--text= "], "text must not be empty; received ' '"),
        (["--text=\x07"], "text must have at least one token; received"),
        (["--text-pair="], "text_pair must not be empty; received ''"),
        (["--text=off"], "pass a text or a file of texts; received neither"),
        (["--text=off", "--text-pair=a film", "--input=texts.txt"], "text_pair needs a text; received none"),
        (["--text=off", "--layers=1", "--input=texts.txt"], "layers are for the maps of a text; received no text"),
        (["--student-layers=1"], "student_layers need a student; received none"),
        (["--max-tokens=2"], "max_tokens must be more than the 2 special tokens; received 2"),
        (["--max-tokens=30"], "max_tokens must be at most the model's 29 positions; received 30"),
        (["--max-tokens=0"], "max_tokens must be positive; received 0"),
        (["--input=texts.txt"], "max_length must be at most the model's 29 positions; received 128"),
        (["--input=missing.csv"], "missing.csv: there is no such file"),
        (["--input=empty.txt"], "empty.txt: the file is empty"),
        (["--input=texts.txt", "--text-column=review"], "--text-column is for tables (.csv, .tsv, .jsonl); received"),
        (
            ["--output=foreign", "--overwrite"],
            "the output must be a folder of attention plots; foreign is another folder",
        ),
        (["--output=foreign"], "the output must not exist yet; received foreign"),
    ],
)
def test_bad_input_writes_nothing(
    options: list[str],
    message: str,
    directory: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").symlink_to(directory("bert"))
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.txt").write_text("precious")
    (tmp_path / "texts.txt").write_text("a film\n")
    (tmp_path / "empty.txt").write_text("\n")
    before = sorted(tmp_path.rglob("*"))
    arguments = ["--model=model", f"--text={TEXT}", "--max-tokens=29", "--output=out"]
    assert main(["plot", "attention", *arguments, *options]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "foreign" / "thesis.txt").read_text() == "precious"


def test_other_plots_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", "atention", "--model=m", "--output=o", "--text=x"]) == 2
    assert "PLOT must be attention or ffn; received atention (did you mean 'attention'?)" in capsys.readouterr().err
