"""Run a bundle's files with the real MediaPipe client, and compare its scores with the bundle's."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pocketbert_export.bounds import BOUNDS
from pocketbert_export.bundle import Bundle
from pocketbert_export.checks import Check
from pocketbert_export.environments import LockedEnvironment
from pocketbert_export.mediapipe_files import (
    CLIENTS,
    check_client,
    client_output,
    differing_tokenizations,
    has_pairs,
    task_file,
)
from pocketbert_export.runtimes import RuntimeRefused, last_words

MEDIAPIPE = LockedEnvironment(
    name="mediapipe", lock=Path(__file__).with_name("mediapipe.lock"), package="mediapipe 1.2.2", download="150 MB"
)
Client = Literal["TextClassifier", "TextEmbedder"]
SCRIPT = Path(__file__).with_name("mediapipe_process.py")
# A text takes milliseconds, at each length.
MOST_TEXTS = 200


def run_client(client: Client, models: Mapping[str, Sequence[str]]) -> tuple[str, dict[str, list[Any]]]:
    """Runs texts through a MediaPipe client.

    Args:
      client: `TextClassifier` or `TextEmbedder`.
      models: path of a file → texts.
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
        finished = subprocess.run(
            # Isolated: PYTHONPATH may have packages for another NumPy.
            [python, "-I", SCRIPT, client, calls, answers],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
        if finished.returncode != 0:
            raise RuntimeRefused(f"mediapipe ended with code {finished.returncode}: {last_words(finished.stderr)}")
        made = json.loads(answers.read_text(encoding="utf-8"))
    return made["version"], made["answers"]


def check_answers(bundle: Bundle, texts: Sequence[str]) -> tuple[str, Check]:
    """Compares MediaPipe's labels and scores, or vectors, with the bundle's, at every length.

    Texts that MediaPipe tokenizes differently are left out, and counted in the reason. Both run the same operators, but
    not the same build. The bound is the recipe's `own_difference`, which is relative to the root mean square of the
    outputs; a change of each logit by d changes a probability by at most d / 2.

    Args:
      bundle: a bundle with a client.
      texts: texts; `MOST_TEXTS` evenly spaced ones are run.
    Returns:
      MediaPipe's version, empty if it failed, and the check.
    Raises:
      UserError: MediaPipe has no client for the bundle, or cannot be installed.
    """
    check_client(bundle.task, bundle.vocabulary, has_pairs=has_pairs(bundle))
    texts = [texts[int(index)] for index in np.linspace(0, len(texts) - 1, min(len(texts), MOST_TEXTS))]
    differing = differing_tokenizations(bundle, texts)
    same = [text for text, differs in zip(texts, differing, strict=True) if not differs]
    assert bundle.task is not None
    client, labels = CLIENTS[bundle.task.kind], bundle.task.labels
    worst, bound, other_labels = 0.0, 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        paths = {length: os.path.join(folder, f"{length}.tflite") for length in bundle.lengths}
        for length, path in paths.items():
            Path(path).write_bytes(task_file(bundle, length))
        try:
            version, answers = run_client(client.name, dict.fromkeys(paths.values(), same))
        except RuntimeRefused as refusal:
            refused = Check(name="runs", passed=False, measured=None, bound=None, reason=str(refusal))
            return "", dataclasses.replace(refused, runtime=MEDIAPIPE.name)
    for length, path in paths.items():
        made = bundle.run(bundle.tokenizer(same, max_length=length, pad_to=length), length)
        ours = client_output(bundle, made)
        theirs = np.array([[each[label] for label in labels] if labels else each for each in answers[path]])
        worst = max(worst, float(np.abs(ours - theirs).max(initial=0.0)))
        (output,) = made.values()
        scale = float(np.sqrt(np.mean(np.square(output, dtype=np.float64)))) if len(same) else 0.0
        bound = max(bound, BOUNDS[bundle.recipe].own_difference * scale / (2 if labels else 1))
        other_labels += int((ours.argmax(axis=1) != theirs.argmax(axis=1)).sum()) if labels else 0
    found = f"{len(same)} texts at {len(paths)} lengths" + (f", {other_labels} other labels" if labels else "")
    return version, Check(
        name="mediapipe",
        passed=bool(same) and worst <= bound and not other_labels,
        measured=worst,
        bound=bound,
        reason=f"{found}; {sum(differing)} of {len(texts)} texts left out, which MediaPipe tokenizes differently",
        runtime=MEDIAPIPE.name,
    )
