"""Asks bundles their golden examples on ARM64's kernels, under QEMU, and counts the instructions of each answer.

`python tools/arm64_check.py [BUNDLE…]` begins with reference bundles of its own, a small network of random weights in
every recipe, and compares their counts with those in android_app/arm64/instructions.json; `--record` writes that file
anew. What answers is the release of TensorFlow Lite that the app runs, compiled for Linux, with XNNPACK and one thread
on a processor as a Pixel 4 has. Nothing is timed: an emulator's time says nothing of a phone's. Exit codes: 0; 1 if an
answer or a count is off; 2 with one line if something is missing.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from apk_artifacts import APP, BuildError, recorded, require_packages, require_sums, run_maven
from pocketbert.errors import UserError
from pocketbert_bench.configurations import Call, Configuration, from_bundle

ARM64 = APP / "arm64"
COUNTS = ARM64 / "instructions.json"
LIBRARY = "libjnitensorflowlite.so"
# Where Debian puts libraries of ARM64 for cross compilers.
ROOT = Path("/usr/aarch64-linux-gnu")
PACKAGES = {
    "qemu-aarch64": "qemu-user",
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu",
    str(ROOT / "include" / "stdio.h"): "libc6-dev-arm64-cross",
    str(ROOT / "lib" / "libstdc++.so.6"): "libstdc++6-arm64-cross",
    "gcc": "gcc",
    "mvn": "maven",
}
# The large cores of a Pixel 4 (its chip's are made after this one); it has the dot products of 8-bit integers.
PROCESSOR = "cortex-a76"
# Another release of the emulator or the compiler may place memory differently.
MOST_MORE = 0.02
LENGTHS = (32, 64)


@dataclass(frozen=True)
class KernelAnswer:
    """What came of one call.

    Attributes:
      values: output name → its values, in a row.
      instructions: of the inference.
      vector: how many of them the floating-point and vector unit carried out.
    """

    values: dict[str, list[float]]
    instructions: int
    vector: int


@dataclass(frozen=True)
class Checked:
    """A bundle's answers at one length.

    Attributes:
      name: the bundle's folder.
      recipe: its number formats.
      length: tokens.
      difference: the largest from the recorded answers.
      tolerance: the most that is allowed.
      instructions: of the last call, when everything has its place in memory.
      vector_share: the part of them that the vector unit carried out.
    """

    name: str
    recipe: str
    length: int
    difference: float
    tolerance: float
    instructions: int
    vector_share: float


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bundles", nargs="*", type=Path, metavar="BUNDLE", help="a bundle's folder")
    parser.add_argument("--record", action="store_true", help=f"write {COUNTS.name} anew")
    parser.add_argument("--output", type=Path, help="a .json file for what was found")
    chosen = parser.parse_args(arguments)
    try:
        require_packages(PACKAGES, "the check on ARM64")
        with tempfile.TemporaryDirectory() as folder:
            release, found, problems = _check(Path(folder), chosen.bundles, record=chosen.record)
    except (BuildError, UserError) as error:
        print(error, file=sys.stderr)
        return 2
    print(table(release, found))
    if chosen.output:
        content = {
            "measured_on": "qemu",
            "qemu": _qemu(),
            "processor": PROCESSOR,
            "runtime": release,
            "bundles": [vars(each) for each in found],
        }
        chosen.output.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def _check(folder: Path, bundles: Sequence[Path], *, record: bool) -> tuple[str, list[Checked], list[str]]:
    build(folder)
    reference = reference_bundles(folder)
    found, release = [], ""
    for bundle in (*reference, *bundles):
        for configuration in from_bundle(bundle, None, (1,), label=bundle.name):
            if configuration.problem or configuration.length is None:
                raise BuildError(f"{bundle}: {configuration.problem}")
            release, answers = ask(folder, configuration.model_path, configuration.calls)
            found.append(checked(configuration, configuration.length, answers))
    own = {f"{each.name} {each.length}": each.instructions for each in found[: len(reference) * len(LENGTHS)]}
    if record:
        COUNTS.write_text(json.dumps(own, indent=2) + "\n", encoding="utf-8")
    expected = json.loads(COUNTS.read_text(encoding="utf-8"))
    return release, found, [*answer_problems(found), *count_problems(own, expected)]


def build(folder: Path) -> None:
    """Fetches the runtime and compiles what asks it, into `folder`.

    Raises:
      BuildError: Maven or a compiler fails, or the runtime has another content than the recorded one.
    """
    run_maven("arm64", "arm64")
    (archive,) = (ARM64 / "target" / "artifacts").glob("*.jar")
    require_sums([archive], recorded(ARM64 / "artifacts.sha256"))
    with zipfile.ZipFile(archive) as content:
        name = next(name for name in content.namelist() if name.endswith(f"/{LIBRARY}"))
        (folder / LIBRARY).write_bytes(content.read(name))
    strict = ("-O2", "-Wall", "-Wextra", "-Werror")
    # The library's own needs are looked for when it is run.
    linked = (f"-L{folder}", f"-l:{LIBRARY}", "-Wl,-rpath,$ORIGIN", "-Wl,--allow-shlib-undefined")
    _run("aarch64-linux-gnu-gcc", *strict, "-o", str(folder / "answers"), str(ARM64 / "answers.c"), *linked)
    counter = (str(folder / "instruction_count.so"), str(ARM64 / "instruction_count.c"))
    _run("gcc", *strict, "-shared", "-fPIC", "-o", *counter)


def reference_bundles(folder: Path) -> list[Path]:
    """The same small network in every recipe; random weights are enough to tell kernels apart."""
    import pocketbert as pb
    from pocketbert.configs import TaskConfig
    from pocketbert.presets import preset
    from pocketbert.tokenizers.vocabulary import SPECIAL_TOKENS
    from pocketbert_export.exporter import export
    from pocketbert_export.recipes import RECIPES

    vocabulary = folder / "vocab.txt"
    letters = [f"{before}{letter}" for letter in "abcdefghijklmnopqrstuvwxyz" for before in ("", "##")]
    vocabulary.write_text("\n".join([*SPECIAL_TOKENS, *letters]) + "\n", encoding="utf-8")
    config = preset("bert_base_uncased").config.replace(
        num_layers=2,
        hidden_size=192,
        embedding_size=192,
        head_size=32,
        intermediate_size=768,
        vocab_size=len(SPECIAL_TOKENS) + len(letters),
        max_position_embeddings=max(LENGTHS),
    )
    task = TaskConfig(kind="classification", labels=("no", "yes", "perhaps"))
    model = pb.from_preset(config, [task], pb.WordPieceTokenizer(vocabulary), seed=3)
    model.save_pretrained(folder / "model")
    for recipe in RECIPES:
        export(folder / "model", folder / recipe, recipe=recipe, lengths=LENGTHS)
    return [folder / recipe for recipe in RECIPES]


def ask(folder: Path, model: Path, calls: Sequence[Call]) -> tuple[str, list[KernelAnswer]]:
    """Runs a model file under QEMU.

    Args:
      folder: what `build` made.
      model: the `.tflite` file.
      calls: at least one.

    Returns:
      The runtime's release, and an answer a call.

    Raises:
      BuildError: the emulated program fails.
    """
    requests = "".join(f"{' '.join(_words(call))}\n" for call in calls)
    emulator = ("qemu-aarch64", "-cpu", PROCESSOR, "-L", str(ROOT), "-plugin", str(folder / "instruction_count.so"))
    done = _run(*emulator, str(folder / "answers"), str(model), given=requests)
    release, *lines = done.stdout.splitlines()
    counts = re.findall(r"^instructions (\d+) (\d+)$", done.stderr, re.MULTILINE)
    if not len(lines) == len(counts) == len(calls):
        raise BuildError(f"{model} must give {len(calls)} answers; it gave {len(lines)}, and {len(counts)} counts")
    answers = [
        KernelAnswer(values_of(line), int(every), int(vector))
        for line, (every, vector) in zip(lines, counts, strict=True)
    ]
    return release, answers


def _words(call: Call) -> Iterator[str]:
    yield from (call.signature, str(len(call.inputs)))
    for name, ids in call.inputs.items():
        yield from (name, str(len(ids)), *map(str, ids))


def values_of(line: str) -> dict[str, list[float]]:
    """Output name → values, of a line that `answers.c` wrote."""
    words = iter(line.split())
    return {next(words): [float(next(words)) for _ in range(int(next(words)))] for _ in range(int(next(words)))}


def checked(configuration: Configuration, length: int, answers: Sequence[KernelAnswer]) -> Checked:
    """Compares a bundle's answers at one length with those that it brings."""
    import numpy as np

    differences = []
    for call, answer in zip(configuration.calls, answers, strict=True):
        expected = {name: np.ravel(values) for name, values in (call.expected or {}).items()}
        if not expected or answer.values.keys() != expected.keys():
            raise BuildError(f"{configuration.label} must answer {', '.join(expected)}; received {[*answer.values]}")
        # What is no number is infinitely wrong.
        off = [np.abs(np.asarray(answer.values[name]) - values).max() for name, values in expected.items()]
        differences.append(float(np.nan_to_num(off, nan=np.inf, posinf=np.inf).max()))
    last = answers[-1]
    return Checked(
        name=configuration.label,
        recipe=configuration.recipe,
        length=length,
        difference=max(differences),
        tolerance=configuration.tolerance(),
        instructions=last.instructions,
        vector_share=last.vector / last.instructions,
    )


def answer_problems(found: Sequence[Checked]) -> list[str]:
    """A line for each length at which a bundle answers otherwise than at its export."""
    return [
        f"{each.name} at {each.length} tokens must answer its golden examples to {each.tolerance:.3g}; it is off by "
        f"{each.difference:.3g}"
        for each in found
        if not each.difference <= each.tolerance
    ]


def count_problems(found: dict[str, int], expected: dict[str, int]) -> list[str]:
    """A line for each reference bundle that takes more instructions than recorded, or of which nothing is."""
    problems = []
    for name, count in found.items():
        if name not in expected:
            problems.append(f"{name} has no recorded count; run with --record, and commit {COUNTS.name}")
        elif count > (1 + MOST_MORE) * expected[name]:
            problems.append(
                f"{name} must take {expected[name]:,} instructions and {MOST_MORE:.0%} more at most; it takes "
                f"{count:,}; if that is meant, run with --record"
            )
    return problems


def table(release: str, found: Sequence[Checked]) -> str:
    """What was found, for people."""
    lines = [
        f"TensorFlow Lite {release} on {PROCESSOR}, emulated: answers and instructions, no time",
        f"{'bundle':24} {'recipe':12} {'tokens':>6} {'off by':>9} {'allowed':>9} {'instructions':>14} {'vector':>7}",
    ]
    lines += [
        f"{each.name:24} {each.recipe:12} {each.length:6} {each.difference:9.2g} {each.tolerance:9.2g} "
        f"{each.instructions:14,} {each.vector_share:7.0%}"
        for each in found
    ]
    return "\n".join(lines)


def _qemu() -> str:
    return _run("qemu-aarch64", "--version").stdout.splitlines()[0]


def _run(*command: str, given: str = "") -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())
        raise BuildError(f"{command[0]} must end well; it ended with {done.returncode}: {said[-500:]}")
    return done


if __name__ == "__main__":
    sys.exit(main())
