"""STS-B scores, size, latency and search of all-MiniLM-L6-v2's embeddings, and of students with half its layers.

Two students learn from STS-B's training sentences without their scores; one of them with nested dimensions. MediaPipe's
own client searches among SST-2's sentences. Run it with `python -m studies sentence_embeddings`; it takes about nine
minutes of one core.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from pocketbert.data.examples import Examples
from pocketbert.data.readers.glue import read_glue
from pocketbert.data.task_data import TaskData
from pocketbert.distillation.initialization import TeacherLayers
from pocketbert.distillation.methods.embedding import EmbeddingDistillation
from pocketbert.distillation.run import distill
from pocketbert.model import from_pretrained
from pocketbert_bench import accuracy, host, results
from pocketbert_bench.quickstart_embedding import NETWORK, TEACHER_LAYERS
from pocketbert_bench.results import Accuracy
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.bundles.predictors import open_predictor
from pocketbert_export.clients.mediapipe_client import run_client
from pocketbert_export.clients.mediapipe_files import task_file
from pocketbert_export.exporter import export
from pocketbert_runtime.answers.vectors import cosines, search
from studies.shared_data import shared_data

TEACHER, STUDENT, NESTED = "all-MiniLM-L6-v2", "student", "nested student"
FLOAT, MODEL, RECIPE = "float32", "float32 model", "dynamic_wi8"
WIDTH, DIMENSIONS = 384, (64, 128, 256)
LENGTHS, TIMED_LENGTH, SEARCH_LENGTH = (32, 64), 32, 64
TOP_K = 10
_METHOD = EmbeddingDistillation(epochs=2, max_length=48, learning_rate=3e-4)
# Training pairs that select the checkpoint, by their agreement with the teacher.
_DEV_PAIRS = 300
_SENTENCES = 1000
_QUICK_PAIRS, _QUICK_SENTENCES = 96, 50


def run(quick: bool) -> dict[str, Any]:
    """Distils, exports, scores, times and searches; returns the figures."""
    glue = shared_data("glue")
    scored = read_glue("stsb", glue, "dev")
    train = dataclasses.replace(read_glue("stsb", glue, "train"), labels=None)
    if quick:
        scored, train = (data.select(np.arange(_QUICK_PAIRS)) for data in (scored, train))
    sentences = ascii_sentences(read_glue("sst2", glue, "train").texts, _QUICK_SENTENCES if quick else _SENTENCES)
    accuracies: list[Accuracy] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        from_pretrained(NETWORK).save_pretrained(folder / "teacher")
        models = {TEACHER: folder / "teacher", **_students(folder, train, quick)}
        bundles = {}
        for model, path in models.items():
            bundles[model] = export(path, folder / f"{path.parent.name}-{path.name}-int8", **_exported(RECIPE, scored))
            accuracies += _scores(model, {MODEL: path, RECIPE: bundles[model].directory}, scored)
        exact = export(models[TEACHER], folder / "float32", **_exported(FLOAT, scored))
        accuracies += _searches(models[TEACHER], {FLOAT: exact, RECIPE: bundles[TEACHER]}, sentences, folder)
        timed = host.bench_bundles(
            [exact.directory, *(bundle.directory for bundle in bundles.values())],
            lengths=(TIMED_LENGTH,),
            quick=quick,
            weights="trained",
            names={exact.directory: TEACHER, **{bundle.directory: model for model, bundle in bundles.items()}},
            title="sentence embeddings",
        )
    notes = [
        f"students: layers {', '.join(map(str, TEACHER_LAYERS))} of the teacher, {_METHOD.epochs} epochs on "
        f"{len(train) - _dev_pairs(train):,} pairs of STS-B's training sentences without scores",
        f"search: {len(sentences):,} ASCII sentences of SST-2's training split, each among the others, by MediaPipe's "
        f"TextEmbedder at {SEARCH_LENGTH} tokens",
    ]
    return results.to_json(dataclasses.replace(timed, accuracies=tuple(accuracies), notes=(*timed.notes, *notes)))


def ascii_sentences(texts: Sequence[str], count: int) -> list[str]:
    """Evenly spaced different ASCII texts."""
    different = list(dict.fromkeys(text for text in texts if text.isascii()))
    return different[:: max(1, len(different) // count)][:count]


def recall(reference: np.ndarray, received: np.ndarray, top_k: int = TOP_K) -> tuple[float, float]:
    """Recall of a search among texts, each text among the others, in two definitions.

    Args:
      reference: vectors [N, D] that define the right answers.
      received: vectors [N, E] of the same texts.
      top_k: number of found texts.

    Returns:
      How often the nearest text by the reference is among the found ones, and the mean share of the reference's top k
      among the found ones.
    """
    wanted, found = (_others(vectors, top_k) for vectors in (reference, received))
    nearest = (found == wanted[:, :1]).any(axis=1).mean()
    return float(nearest), float(np.mean([len(set(a) & set(b)) for a, b in zip(wanted, found, strict=True)]) / top_k)


def _others(vectors: np.ndarray, top_k: int) -> np.ndarray:
    """Indices [N, K] of the texts nearest to each text, without itself."""
    places, _ = search(vectors, vectors, top_k + 1)
    own = np.arange(len(vectors))[:, np.newaxis]
    return np.array([[place for place in row if place != mine][:top_k] for row, mine in zip(places, own, strict=True)])


def _students(folder: Path, train: Examples, quick: bool) -> dict[str, Path]:
    dev = train.select(np.arange(_dev_pairs(train)))
    first, second = _pair_vectors(folder / "teacher", dev)
    task = from_pretrained(NETWORK).task
    assert task is not None
    data = TaskData(
        task=task,
        train=train.select(np.arange(len(dev), len(train))),
        dev=dataclasses.replace(dev, labels=cosines(first, second).astype(np.float32)),
    )
    method = dataclasses.replace(_METHOD, epochs=1) if quick else _METHOD
    students = {}
    for model, dimensions in ((STUDENT, ()), (NESTED, DIMENSIONS)):
        output = folder / model.replace(" ", "-")
        made = distill(
            TeacherLayers(TEACHER_LAYERS),
            data,
            output,
            teacher=folder / "teacher",
            method=dataclasses.replace(method, dimensions=dimensions),
        )
        students[model] = Path(made.model_directory)
    return students


def _dev_pairs(train: Examples) -> int:
    return min(_DEV_PAIRS, len(train) // 3)


def _exported(recipe: str, judged: Examples) -> dict[str, Any]:
    every = max(1, len(judged) // 250)
    return {"recipe": recipe, "lengths": LENGTHS, "examples": judged.select(np.arange(0, len(judged), every))}


def _vectors(path: Path, texts: Sequence[str]) -> np.ndarray:
    return np.array([answer["embedding"] for answer in open_predictor(path).predict(list(texts))], np.float32)


def _pair_vectors(path: Path, pairs: Examples) -> tuple[np.ndarray, np.ndarray]:
    assert pairs.pairs is not None
    both = _vectors(path, [*pairs.texts, *pairs.pairs])
    return both[: len(pairs)], both[len(pairs) :]


def _scores(model: str, forms: Mapping[str, Path], scored: Examples) -> list[Accuracy]:
    """Spearman correlations of a model and its bundle with leading features, and the angle between both."""
    found, vectors = [], {}
    for recipe, path in forms.items():
        first, second = _pair_vectors(path, scored)
        vectors[recipe] = np.concatenate([first, second])
        values = {
            f"spearman_at_{width}": spearmanr(cosines(first[:, :width], second[:, :width]), scored.labels).statistic
            for width in (*DIMENSIONS, WIDTH)
        }
        if recipe == RECIPE:
            values["mean_cosine"] = cosines(vectors[MODEL], vectors[RECIPE]).mean()
        found += [_record(model, recipe, "stsb", "dev", metric, value, scored) for metric, value in values.items()]
    return found


def _searches(model: Path, bundles: Mapping[str, Bundle], sentences: Sequence[str], folder: Path) -> list[Accuracy]:
    """Recall of MediaPipe's client on the bundles' files, with the float model's search as the reference."""
    paths = {}
    for recipe, bundle in bundles.items():
        paths[recipe] = folder / f"{recipe}.tflite"
        paths[recipe].write_bytes(task_file(bundle, SEARCH_LENGTH))
    _, answers = run_client("TextEmbedder", {str(path): sentences for path in paths.values()})
    reference, found = _vectors(model, sentences), []
    for recipe, path in paths.items():
        values = recall(reference, np.array(answers[str(path)], np.float32))
        for metric, value in zip(("nearest_at_10", "overlap_at_10"), values, strict=True):
            found.append(_record(TEACHER, recipe, "search", "sst2 train, ASCII", metric, value, sentences))
    return found


def _record(
    model: str, recipe: str, task: str, split: str, metric: str, value: float, examples: Examples | Sequence[str]
) -> Accuracy:
    return accuracy.record(
        label=recipe,
        model=model,
        recipe=recipe,
        task=task,
        split=split,
        metric=metric,
        value=value,
        examples=len(examples),
    )
