"""The C program in the documentation, compiled for this machine, gives a bundle's answers from ids."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path

import networks
import numpy as np
import pytest

import pocketbert as pb
from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

pytestmark = pytest.mark.java

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "docs" / "examples" / "labels.c"
# `make android-test` has checked its SHA-256.
JARS = ROOT / "android_app" / "host" / "target" / "lib"
LIBRARY = "libjnitensorflowlite.so"
TEXTS = [
    "the film is good .",
    "",
    'a "dull" film, "ids": [7, 7] \\"ids\\": [5]',
    "日本 film 😀 é",
    "bright " * 40,
    "[SEP] dog",
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, compiled with the presets' library."""
    archives = sorted(JARS.glob("tensorflow-lite-*-linux-x86_64.jar"))
    if not archives:
        pytest.fail(f"{JARS} has no tensorflow-lite-…-linux-x86_64.jar: run make android-test", pytrace=False)
    folder = tmp_path_factory.mktemp("c")
    with zipfile.ZipFile(archives[-1]) as archive:
        (member,) = (name for name in archive.namelist() if name.endswith(f"/{LIBRARY}"))
        (folder / LIBRARY).write_bytes(archive.read(member))
    # The loader finds the library's dependencies at run time.
    linked = [f"-L{folder}", f"-l:{LIBRARY}", "-Wl,-rpath,$ORIGIN", "-Wl,--allow-shlib-undefined", "-lm"]
    strict = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *strict, "-o", folder / "labels", PROGRAM, *linked], check=True)
    return folder / "labels"


def run(program: Path, bundle: Path, answers: Path) -> list[tuple[str, float]]:
    """The program's label and probability for each line."""
    with answers.open(encoding="utf-8") as stream:
        command = [program, bundle / "model.tflite", bundle / "labels.txt"]
        done = subprocess.run(command, stdin=stream, capture_output=True, text=True, check=True)
    rows = [line.rpartition(" ") for line in done.stdout.splitlines()]
    return [(label, float(probability)) for label, _, probability in rows]


@pytest.mark.parametrize("recipe", ["float32", "dynamic_wi8"])
def test_labels_are_the_bundles(recipe: str, program: Path, tmp_path: Path) -> None:
    tokenizer = WordPieceTokenizer(networks.vocabulary(tmp_path))
    task = pb.TaskConfig(kind="classification", labels=("very bad", "fair", "good"))
    model = networks.network(networks.bert_config(), [task], tokenizer)
    # So that several labels are the answer to some text.
    logits = model(tokenizer([*TEXTS], max_length=19))["logits"].numpy()
    next(iter(model.heads.values())).output_projection.bias.assign_sub(np.median(logits, axis=0))
    pb.export(model, tmp_path / "bundle", recipe=recipe, lengths=(7, 19))
    answers = tmp_path / "bundle" / "answers.jsonl"
    expected = [json.loads(line)["answer"] for line in answers.read_text(encoding="utf-8").splitlines()]
    received = run(program, tmp_path / "bundle", answers)
    assert len(received) == len(expected) >= len(TEXTS)
    # The gate lets a runtime differ by 0.001 and 0.1 of the logits' root mean square, 0.2; a probability moves by at
    # most half as much as a logit. The program prints six decimals.
    tolerance = 1e-4 if recipe == "float32" else 1e-2
    for (label, probability), answer in zip(received, expected, strict=True):
        assert label == answer["label"]
        assert probability == pytest.approx(answer["probabilities"][label], abs=tolerance)
    assert len({label for label, _ in received}) > 1


def test_short_program_says_what_is_wrong(program: Path, tmp_path: Path) -> None:
    assert len(PROGRAM.read_text(encoding="utf-8").splitlines()) < 100
    command = [program, tmp_path / "model.tflite", tmp_path / "labels.txt"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "file != NULL does not hold\n")
