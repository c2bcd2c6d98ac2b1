"""Pretraining data: our command with two processes against tf-models-official's `create_pretraining_data`.

    python -m studies against_tf_models/pretraining_data [--quick]

Both create examples of 128 tokens with static masks, in tf-models-official's record format, from the same Wikipedia
articles, once. Ours reads paragraphs and splits them into sentences; the baseline reads these sentences, one per line,
as it requires. Each side is a whole program, including its imports. Rounds alternate, in alternating order. Tokens and
examples of both are compared before the ratio is reported.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pocketbert import progress
from pocketbert_bench import results
from studies.shared_data import shared_data

WORKERS = 2
MAX_LENGTH = 128
# All articles: each program takes some seconds to start, ours twice, which is negligible for real pretraining texts.
DOCUMENTS: int | None = None
QUICK_DOCUMENTS = 400
ROUNDS, QUICK_ROUNDS = 3, 1
TARGET = 3.0


def run(quick: bool) -> dict[str, Any]:
    """Times both programs.

    Args:
      quick: a few articles, once; this mostly times the start of the programs.

    Returns:
      Content of a result file: sentences per second of both.

    Raises:
      UserError: the data are missing.
    """
    vocabulary = shared_data("vocab/bert-base-uncased.vocab.txt")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sentences = _write_texts(folder, QUICK_DOCUMENTS if quick else DOCUMENTS)
        sides: dict[str, Callable[[], dict[str, int]]] = {
            "ours": lambda: _ours(folder, vocabulary),
            "peer": lambda: _peer(folder, vocabulary),
        }
        rates: dict[str, list[float]] = {side: [] for side in sides}
        counts: dict[str, dict[str, int]] = {}
        for turn in progress.track(range(QUICK_ROUNDS if quick else ROUNDS), "rounds", "round"):
            for side in list(sides)[:: 1 if turn % 2 else -1]:
                start = time.perf_counter()
                counts[side] = sides[side]()
                rates[side].append(sentences / (time.perf_counter() - start))
    ours, peer = counts["ours"], counts["peer"]
    # Examples are drawn at random; their number varies by less than 1 % between seeds.
    if abs(ours["examples"] / peer["examples"] - 1) > 0.03:
        raise AssertionError(f"both must make the same examples for a comparison; received {counts}")
    ratio = results.ratio(
        name="pretraining data against tf-models-official",
        description=f"text to masked examples of {MAX_LENGTH} tokens, whole programs; ours with {WORKERS} processes",
        ours="pocketbert pretrain-data",
        peer="tf-models-official create_pretraining_data",
        unit="sentences/s",
        ours_samples=rates["ours"],
        peer_samples=rates["peer"],
        better="higher",
        target=TARGET,
    )
    notes = [
        f"{sentences} sentences, {ours['tokens']} tokens; {ours['examples']} examples here, {peer['examples']} there; "
        "the baseline cannot use a second processor for one text, and does not split sentences"
    ]
    return results.to_json(results.result_file("pretraining data", quick=quick, ratios=[ratio], notes=notes))


def _write_texts(folder: Path, count: int | None) -> int:
    """Writes articles (all for None) as paragraphs and as sentences; returns the number of sentences."""
    from pocketbert.data.sentences import split_sentences
    from pocketbert.data.text import read_documents

    total = 0
    with (
        open(folder / "paragraphs.txt", "w", encoding="utf-8") as ours,
        open(folder / "sentences.txt", "w", encoding="utf-8") as peer,
    ):
        for document in itertools.islice(read_documents(shared_data("text/enwiki2015-train.txt.xz")), count):
            sentences = [sentence for paragraph in document.paragraphs for sentence in split_sentences(paragraph)]
            ours.write("\n".join(document.paragraphs) + "\n\n")
            peer.write("\n".join(sentences) + "\n\n")
            total += len(sentences)
    return total


def _ours(folder: Path, vocabulary: Path) -> dict[str, int]:
    printed = _python(
        *("-c", "from pocketbert.cli import run; run()", "pretrain-data", f"--text={folder / 'paragraphs.txt'}"),
        *(f"--vocab={vocabulary}", f"--output={folder / 'ours'}", "--overwrite", "--baked-masks"),
        *(f"--max-length={MAX_LENGTH}", f"--shards={WORKERS}", f"--workers={WORKERS}"),
    )
    train = json.loads(printed)["train"]
    return {"examples": train["examples"], "tokens": train["tokens"]}


def _peer(folder: Path, vocabulary: Path) -> dict[str, int]:
    module = "studies.against_tf_models.official_pretraining_data"
    arguments = map(str, (folder / "sentences.txt", vocabulary, folder / "peer.tfrecord", MAX_LENGTH))
    return {"examples": int(_python("-m", module, *arguments))}


def _python(*arguments: str) -> str:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    answer = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise RuntimeError(f"{' '.join(arguments[:3])}: {answer.stderr[-2000:]}")
    return answer.stdout
