"""The quickstart of sentence embeddings on a tiny network."""

from __future__ import annotations

import dataclasses
import zipfile
from pathlib import Path

import bench_subjects
import cheap_tensorflow
import pytest
import tiny_finetuning
from scipy.spatial.distance import cosine
from scipy.stats import spearmanr

import pocketbert as pb
from pocketbert import cli
from pocketbert.data import assets
from pocketbert.distillation.methods.embedding import EmbeddingDistillation
from pocketbert_bench import host, results
from pocketbert_bench import quickstart_embedding as module
from pocketbert_export.bundles.bundle import Bundle


@pytest.fixture
def tiny_quickstart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The quickstart of a tiny network on a few sentences."""
    network = tiny_finetuning.write_model(tmp_path / "network", tiny_finetuning.CONFIG)
    sentences = [dataclasses.replace(tiny_finetuning.examples(count, count), labels=None) for count in (40, 24)]
    monkeypatch.setattr(assets, "fetch_asset", lambda name: network)
    monkeypatch.setattr(module, "rotten_tomatoes", lambda: sentences)
    monkeypatch.setattr(module, "TEACHER_LAYERS", (1,))
    monkeypatch.setattr(module, "LENGTHS", (23,))
    bench_subjects.measure_briefly(monkeypatch)
    method = EmbeddingDistillation(epochs=1, max_length=23, batch_size=10)
    monkeypatch.setattr(module, "PART_DISTILLATION", method)
    monkeypatch.setattr(pb, "distill", cheap_tensorflow.eager()(pb.distill))


@pytest.mark.usefixtures("without_plots")
def test_quickstart_resumes_and_shows_a_search(
    tiny_quickstart: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["quickstart", "--task=embedding", f"--output={tmp_path / 'run'}"]
    assert cli.main(flags) == 0
    shown = capsys.readouterr().out
    assert "spearman" in shown and f"nearest to {module.QUERIES[0]!r}:" in shown
    run = results.read(tmp_path / "run/results.json")
    scores = {(accuracy.model, accuracy.label): accuracy.value for accuracy in run.accuracies}
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
    monkeypatch.setattr(host, "bench_bundles", None)
    assert cli.main(flags) == 0
    assert "embedding" in (tmp_path / "run/quickstart.json").read_text()


@pytest.mark.nightly
def test_glue_scores_people(tiny_quickstart: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = tiny_finetuning.examples(14, 3).texts
    pairs = list(zip(texts[0::2], texts[1::2], strict=True))
    scores = (1.5, 0.2, 4.8, 3.1, 2.2, 5.0, 0.0)
    tiny_finetuning.write_stsb(tmp_path / "glue", "dev", pairs, scores)
    flags = ["quickstart", "--task=embedding", f"--glue={tmp_path / 'glue'}", f"--output={tmp_path / 'run'}"]
    assert cli.main(flags) == 0
    run = results.read(tmp_path / "run/results.json")
    teacher_accuracy = {(accuracy.model, accuracy.label): accuracy for accuracy in run.accuracies}["teacher", "model"]
    assert (teacher_accuracy.task, teacher_accuracy.split, teacher_accuracy.examples) == ("stsb", "dev", 7)
    teacher = pb.from_pretrained(tmp_path / "run/teacher")
    vectors = [[answer["embedding"] for answer in teacher.predict(list(side))] for side in zip(*pairs, strict=True)]
    cosines = [1 - cosine(first, second) for first, second in zip(*vectors, strict=True)]
    assert teacher_accuracy.value == pytest.approx(spearmanr(cosines, scores).statistic, abs=1e-9)
    assert "7 pairs of STS-B&#39;s dev split" in (tmp_path / "run/report/report.html").read_text(encoding="utf-8")
    # Another source is another run.
    assert cli.main(["quickstart", "--task=embedding", f"--output={tmp_path / 'run'}"]) == 2
    assert "glue" in capsys.readouterr().err


def test_glue_is_for_embeddings(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["quickstart", "--glue=glue"]) == 2
    assert "--glue is for --task=embedding; received it with classification" in capsys.readouterr().err
