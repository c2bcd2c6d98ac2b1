"""RoBERTa's and XLM-R's tokenizers in Java, against the same classes in Python: opening, and 2,000 characters.

    make android-test
    python -m studies java_tokenizers

Byte-level BPE has RoBERTa's vocabulary; unigram has XLM-R's 250,002 tokens. Java and Python take turns, one process
each. A turn opens the tokenizer once, warms it up with 300 calls, and takes the median of 51 calls.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pocketbert.data.readers.xnli import read_xnli
from pocketbert.errors import UserError
from pocketbert.progress import track
from pocketbert_bench import results
from studies.shared_data import shared_data
from studies.trimming.xlm_r_tokenizer import toy_model, xlmr_model

CHARACTERS = 2000
TURNS, QUICK_TURNS = 7, 2
WARM_UP, TIMED = 300, 51
KINDS = ("byte_bpe", "unigram")
# Milliseconds.
OPENING_LIMIT, TOKENIZING_LIMIT = 1500, 2
_CLASSES = [
    Path(__file__).resolve().parents[2] / "android_app/core/target" / name for name in ("classes", "test-classes")
]


def run(quick: bool) -> dict[str, Any]:
    """Measures both tokenizers; returns the content of a result file."""
    if not all(path.is_dir() for path in _CLASSES):
        raise UserError("the app's core must be built with its tests; there are no classes; run make android-test")
    created = results.now()
    samples: dict[tuple[str, str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.jsonl"
        text.write_text(json.dumps(_text()) + "\n", encoding="ascii")
        for kind in KINDS:
            _write_files(kind, Path(folder) / kind)
        for turn in track(range(QUICK_TURNS if quick else TURNS), "Java and Python", "turn"):
            for kind in KINDS:
                sides = (("Java", _java), ("Python", _python))
                for side, measure in sides[:: -1 if turn % 2 else 1]:
                    for what, value in zip(("opening", "tokenizing"), measure(Path(folder) / kind, text), strict=True):
                        samples.setdefault((kind, what, side), []).append(1000 * value)
    ratios = [
        results.ratio(
            name=f"{what}, {kind}",
            description=f"{what} in Java to {what} in Python; tokenizing is one text with {CHARACTERS:,} characters",
            ours="Java",
            peer="Python",
            unit="us",
            ours_samples=samples[kind, what, "Java"],
            peer_samples=samples[kind, what, "Python"],
            better="lower",
        )
        for kind in KINDS
        for what in ("opening", "tokenizing")
    ]
    notes = [
        f"{kind} in Java, median of {len(samples[kind, 'opening', 'Java'])} turns: opens in "
        f"{_milliseconds(samples, kind, 'opening'):.0f} ms (limit {OPENING_LIMIT}), tokenizes in "
        f"{_milliseconds(samples, kind, 'tokenizing'):.2f} ms (limit {TOKENIZING_LIMIT})"
        for kind in KINDS
    ]
    return results.to_json(
        results.result_file("tokenizers in Java", quick=quick, ratios=ratios, notes=notes, created=created)
    )


def _milliseconds(samples: dict[tuple[str, str, str], list[float]], kind: str, what: str) -> float:
    return statistics.median(samples[kind, what, "Java"]) / 1000


def _text() -> str:
    """XNLI's texts in English, German, Russian and Chinese, in turns."""
    rows = [read_xnli(shared_data("xnli"), "dev", [language]).texts for language in ("en", "de", "ru", "zh")]
    return " ".join(text for texts in zip(*rows, strict=True) for text in texts)[:CHARACTERS]


def _write_files(kind: str, folder: Path) -> None:
    folder.mkdir()
    if kind == "byte_bpe":
        for name in ("vocab.json", "merges.txt"):
            shutil.copyfile(shared_data(f"vocab/roberta.{name}"), folder / name)
    else:
        model = xlmr_model(shared_data("vocab").parent.parent, toy_model())
        (folder / "sentencepiece.bpe.model").write_bytes(model)


def _java(files: Path, text: Path) -> tuple[float, float]:
    """Milliseconds for opening and for tokenizing."""
    command = ["java", "-cp", ":".join(map(str, _CLASSES)), "org.pocketbert.tokenizer.RobertaTokenizeMain"]
    done = subprocess.run([*command, str(files), "speed", str(text)], capture_output=True, text=True, check=True)
    opening, tokenizing = re.findall(r": ([\d.]+) ms", done.stdout)
    return float(opening), float(tokenizing)


def _python(files: Path, text: Path) -> tuple[float, float]:
    """Milliseconds for opening and for tokenizing, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(files), str(text)], capture_output=True, text=True, check=True
    )
    opening, tokenizing = json.loads(done.stdout)
    return opening, tokenizing


def _time_python(files: Path, text: Path) -> None:
    import pocketbert as pb

    content = json.loads(text.read_text(encoding="ascii"))
    # Imports are no part of opening.
    start = time.perf_counter()
    tokenizer: pb.UnigramTokenizer | pb.ByteBPETokenizer
    if (model := files / "sentencepiece.bpe.model").exists():
        tokenizer = pb.UnigramTokenizer(model)
    else:
        tokenizer = pb.ByteBPETokenizer(files / "vocab.json", files / "merges.txt")
    opening = time.perf_counter() - start
    times = []
    for _ in range(WARM_UP + TIMED):
        start = time.perf_counter()
        tokenizer.tokenize_with_offsets([content])
        times.append(time.perf_counter() - start)
    print(json.dumps([1000 * opening, 1000 * statistics.median(times[WARM_UP:])]))


if __name__ == "__main__":
    _time_python(Path(sys.argv[1]), Path(sys.argv[2]))
