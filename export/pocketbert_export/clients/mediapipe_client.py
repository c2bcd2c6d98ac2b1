"""Check the files from `export --mediapipe`: on LiteRT, and with the real MediaPipe client."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pocketbert.encoder import INPUT_NAMES
from pocketbert.errors import UserError
from pocketbert.notation import argument, command
from pocketbert.recipes import RECIPES
from pocketbert_export.bundles.bundle import LABELS_FILE, VOCAB_FILE, Bundle
from pocketbert_export.checks.outputs import Check
from pocketbert_export.clients.mediapipe_files import (
    CLIENTS,
    TOLERANCE,
    check_client,
    client_output,
    differing_tokenizations,
    has_pairs,
)
from pocketbert_export.tflite.environments import LockedEnvironment
from pocketbert_export.tflite.runtimes import LITERT, RuntimeRefused, run_script
from pocketbert_export.tflite.runtimes import run as run_on

MEDIAPIPE = LockedEnvironment(
    name="mediapipe", lock=Path(__file__).with_name("mediapipe.lock"), package="mediapipe 1.2.2", download="150 MB"
)
Client = Literal["TextClassifier", "TextEmbedder"]
SCRIPT = Path(__file__).with_name("mediapipe_process.py")
# A text takes milliseconds, at each length.
MOST_TEXTS = 200


def run_client(client: Client, models: Mapping[str, Sequence[str]]) -> tuple[str, dict[str, list[Any]]]:
    """Runs texts through a MediaPipe client; `models` is path → texts.

    Returns:
      MediaPipe's version, and path → for each text label → score, or the embedding without normalization.
    Raises:
      RuntimeRefused: MediaPipe failed, with its reason.
      UserError: MediaPipe cannot be installed.
    """
    python = MEDIAPIPE.python()
    with tempfile.TemporaryDirectory() as folder:
        calls, answers = Path(folder, "calls.json"), Path(folder, "answers.json")
        calls.write_text(json.dumps({model: list(texts) for model, texts in models.items()}), encoding="utf-8")
        # Isolated: PYTHONPATH may have packages for another NumPy.
        run_script("mediapipe", [python, "-I", SCRIPT, client, calls, answers])
        content = json.loads(answers.read_text(encoding="utf-8"))
    return content["version"], content["answers"]


def check_written(bundle: Bundle, folder: Path) -> None:
    """Raises a `UserError` if MediaPipe has no client for the bundle, or there is no folder with files to verify."""
    check_client(bundle.task, bundle.vocabulary, has_pairs=has_pairs(bundle))
    if not folder.is_dir():
        raise UserError(
            f"{argument('mediapipe', python='MediaPipe')} needs its files beside the bundle; received none in "
            f"{folder}; write them with {command('export', python='write_task_files', mediapipe=True)}"
        )


def check_files(bundle: Bundle, texts: Sequence[str], folder: Path) -> Check:
    """Runs the files for MediaPipe on LiteRT: scores or vectors must follow from the bundle's, on the same inputs.

    The vocabulary and labels behind each file must be the bundle's. MediaPipe need not be there.

    Args:
      bundle: a bundle with a client.
      texts: texts; `MOST_TEXTS` evenly spaced ones are run, and the golden examples.
      folder: the files' folder.
    """
    texts = _evenly(texts)
    expected = {length: f"{bundle.signature(length)}.tflite" for length in bundle.lengths}
    problems = [
        f"{name} is of no length of the bundle"
        for name in sorted(path.name for path in folder.glob("*.tflite"))
        if name not in expected.values()
    ]
    worst = 0.0
    for length, name in expected.items():
        rows = [bundle.tokenizer(texts, max_length=length, pad_to=length)] if texts else []
        rows += [golden.inputs for golden in bundle.goldens if golden.length == length]
        inputs = {name: np.concatenate([np.asarray(row[name], np.int32) for row in rows]) for name in INPUT_NAMES}
        try:
            difference = _difference(bundle, folder / name, inputs, length)
        except RuntimeRefused as refusal:
            problems.append(f"{name}: {refusal}")
            continue
        worst = max(worst, difference)
        if not difference <= TOLERANCE:
            problems.append(f"{name} gives other scores than the bundle; they differ by {difference:.3g}")
        problems += _attached_problems(bundle, folder / name)
    reason = (
        f"{len(expected)} files in {folder.name} give the bundle's scores on {len(texts)} texts and its golden examples"
    )
    reason += f", but {'; '.join(problems)}" if problems else ""
    name, passed = "mediapipe files", not problems
    return Check(name=name, passed=passed, measured=worst, bound=TOLERANCE, reason=reason, runtime=LITERT)


def _evenly(texts: Sequence[str]) -> list[str]:
    return [texts[int(index)] for index in np.linspace(0, len(texts) - 1, min(len(texts), MOST_TEXTS))]


def _difference(bundle: Bundle, path: Path, inputs: Mapping[str, np.ndarray], length: int) -> float:
    """Largest difference between a file's scores and those from the bundle's outputs."""
    if not path.is_file():
        raise RuntimeRefused("it is missing")
    signature = bundle.signature(length)
    answers = run_on(LITERT, path, {signature: inputs}).answers[signature]
    expected = client_output(bundle, bundle.run(inputs, length))
    if [answer.shape for answer in answers.values()] != [expected.shape]:
        shapes = ", ".join(str(answer.shape) for answer in answers.values())
        raise RuntimeRefused(f"it must give {expected.shape}; it gives {shapes}")
    (answer,) = answers.values()
    difference = float(np.abs(answer.astype(np.float64) - expected).max())
    return difference if np.isfinite(difference) else np.inf


def _attached_problems(bundle: Bundle, path: Path) -> list[str]:
    """Lists attachments behind a file that are not the bundle's."""
    assert bundle.task is not None
    names = [VOCAB_FILE, *([LABELS_FILE] if bundle.task.labels else [])]
    try:
        with zipfile.ZipFile(path) as archive:
            attached = {name: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, OSError) as error:
        return [f"{path.name} must hold {' and '.join(names)}; they cannot be read ({error})"]
    return [
        f"{path.name} must hold the bundle's {name}; {'its own differs' if name in attached else 'it has none'}"
        for name in names
        if attached.get(name) != (bundle.directory / name).read_bytes()
    ]


def check_answers(bundle: Bundle, texts: Sequence[str], folder: Path) -> tuple[str, Check]:
    """Compares MediaPipe's labels and scores, or vectors, with the bundle's, at every length.

    Texts that MediaPipe tokenizes differently are left out, and counted in the reason. Both run the same operators, but
    not the same build. The bound is the recipe's `own_difference`, relative to the outputs' root mean square; a change
    by d in each logit changes a probability by at most d / 2.

    Returns:
      MediaPipe's version, empty if it failed, and the check.
    Raises:
      UserError: MediaPipe has no client for the bundle, or cannot be installed.
    """
    check_client(bundle.task, bundle.vocabulary, has_pairs=has_pairs(bundle))
    texts = _evenly(texts)
    differing = differing_tokenizations(bundle, texts)
    same = [text for text, differs in zip(texts, differing, strict=True) if not differs]
    assert bundle.task is not None
    client, labels = CLIENTS[bundle.task.kind], bundle.task.labels
    worst, bound, other_labels = 0.0, 0.0, 0
    paths = {length: os.path.abspath(folder / f"{bundle.signature(length)}.tflite") for length in bundle.lengths}
    try:
        version, answers = run_client(client.name, dict.fromkeys(paths.values(), same))
    except RuntimeRefused as refusal:
        return "", Check(name="runs", passed=False, reason=str(refusal), runtime=MEDIAPIPE.name)
    for length, path in paths.items():
        outputs = bundle.run(bundle.tokenizer(same, max_length=length, pad_to=length), length)
        bundle_answers = client_output(bundle, outputs)
        client_answers = np.array(
            [[answer[label] for label in labels] if labels else answer for answer in answers[path]]
        )
        worst = max(worst, float(np.abs(bundle_answers - client_answers).max(initial=0.0)))
        (output,) = outputs.values()
        scale = float(np.sqrt(np.mean(np.square(output, dtype=np.float64)))) if len(same) else 0.0
        bound = max(bound, RECIPES[bundle.recipe].bounds.own_difference * scale / (2 if labels else 1))
        other_labels += int((bundle_answers.argmax(axis=1) != client_answers.argmax(axis=1)).sum()) if labels else 0
    summary = f"{len(same)} texts at {len(paths)} lengths" + (f", {other_labels} other labels" if labels else "")
    return version, Check(
        name="mediapipe",
        passed=bool(same) and worst <= bound and not other_labels,
        measured=worst,
        bound=bound,
        reason=f"{summary}; {sum(differing)} of {len(texts)} texts left out, which MediaPipe tokenizes differently",
        runtime=MEDIAPIPE.name,
    )
