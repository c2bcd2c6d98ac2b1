"""The quickstart of sentence embeddings on a tiny network."""

from __future__ import annotations

import dataclasses
import zipfile
from pathlib import Path

import pytest
import tiny_finetuning

from pocketbert import cli
from pocketbert.data import assets
from pocketbert.distillation.methods.embedding import EmbeddingDistillation
from pocketbert_bench import quickstart_embedding as module
from pocketbert_bench import results
from pocketbert_export.bundle import Bundle


def test_quickstart_resumes_and_shows_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    network = tiny_finetuning.write_model(tmp_path / "network", tiny_finetuning.CONFIG.replace(num_layers=2))
    sentences = [dataclasses.replace(tiny_finetuning.examples(count, count), labels=None) for count in (40, 24)]
    monkeypatch.setattr(assets, "fetch_asset", lambda name: network)
    monkeypatch.setattr(module, "rotten_tomatoes", lambda: sentences)
    monkeypatch.setattr(module, "TEACHER_LAYERS", (2,))
    monkeypatch.setattr(module, "LENGTHS", (23,))
    method = EmbeddingDistillation(epochs=1, max_length=23, batch_size=10)
    monkeypatch.setattr(module, "PART_DISTILLATION", method)
    flags = ["quickstart", "--task=embedding", f"--output={tmp_path / 'run'}"]
    assert cli.main(flags) == 0
    shown = capsys.readouterr().out
    assert "spearman" in shown and f"nearest to {module.QUERIES[0]!r}:" in shown
    run = results.read(tmp_path / "run/results.json")
    scores = {(each.model, each.label): each.value for each in run.accuracies}
    # The dev split's labels are the teacher's own similarities.
    assert scores["teacher", "model"] == pytest.approx(1.0)
    assert scores.keys() == {(role, label) for role in ("teacher", "student") for label in ("model", "dynamic_wi8")}
    task = Bundle.open(tmp_path / "run/bundles/student").task
    assert task is not None and task.embedding is not None and task.embedding.pooling == "mean"
    for role in ("teacher", "student"):
        folder = tmp_path / f"run/bundles/{role}-mediapipe"
        assert f"MediaPipe files of the {role}: {folder}" in shown
        assert zipfile.ZipFile(folder / "length_23.tflite").namelist() == ["vocab.txt"]
    page = (tmp_path / "run/report/report.html").read_text(encoding="utf-8")
    assert all(query in page for query in module.QUERIES) and "mean cosine" in page
    # A second call trains and measures nothing again.
    monkeypatch.setattr(module, "_latencies", None)
    assert cli.main(flags) == 0
    assert "embedding" in (tmp_path / "run/quickstart.json").read_text()


def test_glue_is_for_embeddings(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["quickstart", "--glue=glue"]) == 2
    assert "--glue is for --task=embedding; received it with classification" in capsys.readouterr().err
