"""The Python API from a fetched model to a report: the README's seven lines, on tiny networks and a tiny table."""

from __future__ import annotations

import re
from pathlib import Path

import bench_subjects
import pytest
import tiny_finetuning

import pocketbert as pb
from pocketbert.data import assets

README = Path(__file__).resolve().parents[1] / "README.md"


def _lines() -> str:
    """The README's block of Python."""
    text = README.read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python[^\n]*\n(import pocketbert as pb\n.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return code


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """reviews.tsv, and a tiny network in place of `all-minilm`, with as many layers as the student reads."""
    config = tiny_finetuning.CONFIG.replace(num_layers=5, max_position_embeddings=128)
    teacher = tiny_finetuning.write_model(tmp_path / "fetched", config)
    monkeypatch.setattr(assets, "fetch_asset", lambda name: {"all-minilm": teacher}[name])
    rows = tiny_finetuning.examples(24, seed=3)
    assert rows.labels is not None
    names = tiny_finetuning.TASK.labels
    cells = [f"{text}\t{names[label]}" for text, label in zip(rows.texts, rows.labels, strict=True)]
    (tmp_path / "reviews.tsv").write_text("review\tmood\n" + "".join(f"{row}\n" for row in cells), encoding="utf-8")
    bench_subjects.measure_briefly(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("eager")
def test_seven_lines_lead_from_model_to_report(folder: Path) -> None:
    lines = _lines()
    assert len(lines.splitlines()) == 7
    names: dict[str, object] = {}
    exec(lines, names)  # noqa: S102
    student, bundle = names["student"], names["bundle"]
    assert isinstance(student, pb.Model) and isinstance(bundle, pb.Bundle)
    assert student.config.num_layers == 3
    assert (bundle.recipe, bundle.lengths) == ("dynamic_wi8", (32, 64, 128))
    assert (folder / "report" / "report.html").is_file()
    (answer,) = student.predict(["a superb film"])
    assert answer["label"] in ("low", "high") and sum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-5)
