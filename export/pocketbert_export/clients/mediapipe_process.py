"""Run texts through a MediaPipe client; `mediapipe_client.py` starts this script in MediaPipe's environment.

It runs in an environment without PocketBERT, so it does not import it.

Usage: mediapipe_process.py TextClassifier|TextEmbedder CALLS.json ANSWERS.json
CALLS: file path → list of texts. ANSWERS: {"version": …, "answers": path → list of {label: score} or embeddings, in
text order}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main(client: str, calls_path: str, answers_path: str) -> None:
    """Runs all texts with each file."""
    import mediapipe

    calls = json.loads(Path(calls_path).read_text(encoding="utf-8"))
    run = {"TextClassifier": _classify, "TextEmbedder": _embed}[client]
    answers = {"version": mediapipe.__version__, "answers": {path: run(path, texts) for path, texts in calls.items()}}
    Path(answers_path).write_text(json.dumps(answers), encoding="utf-8")


def _classify(path: str, texts: list[str]) -> list[Any]:
    from mediapipe.tasks.python import BaseOptions, text

    options = text.TextClassifierOptions(base_options=BaseOptions(model_asset_path=path))
    with text.TextClassifier.create_from_options(options) as classifier:
        answers = [classifier.classify(text).classifications[0].categories for text in texts]
    return [{category.category_name: category.score for category in answer} for answer in answers]


def _embed(path: str, texts: list[str]) -> list[Any]:
    from mediapipe.tasks.python import BaseOptions, text

    options = text.TextEmbedderOptions(base_options=BaseOptions(model_asset_path=path))
    with text.TextEmbedder.create_from_options(options) as embedder:
        return [embedder.embed(text).embeddings[0].embedding.tolist() for text in texts]


if __name__ == "__main__":
    main(*sys.argv[1:])
