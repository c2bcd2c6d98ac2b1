"""Runs golden examples on ARM64 kernels under QEMU, and counts the instructions of each inference.

Each output must be the recorded one, and that of `pocketbert_runtime` on this machine.

`python tools/arm64_check.py [BUNDLE…]` first checks reference bundles: a small network with random weights in every
recipe. It compares their instruction counts with android_app/arm64/instructions.json; `--record` rewrites this file.
It runs the app's TensorFlow Lite release, built for Linux, with XNNPACK and one thread on a Pixel 4's processor. It
measures no time, because an emulator's time does not predict a phone's. Exit codes: 0 for success; 1 if an output or a
count is off; 2 with one line if something is missing.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apk_artifacts import APP, BuildError, recorded, require_packages, require_sums, run_maven
from pocketbert.errors import UserError
from pocketbert_bench.configurations import Call, Configuration, from_bundle

ARM64 = APP / "arm64"
# The app's helper.
WEIGHT_CACHE = ARM64.with_name("app") / "src" / "javacpp" / "jni" / "weight_cache.c"
COUNTS = ARM64 / "instructions.json"
LIBRARY = "libjnitensorflowlite.so"
# Debian's folder for ARM64 libraries of cross compilers.
ROOT = Path("/usr/aarch64-linux-gnu")
PACKAGES = {
    "qemu-aarch64": "qemu-user",
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu",
    str(ROOT / "include" / "stdio.h"): "libc6-dev-arm64-cross",
    str(ROOT / "lib" / "libstdc++.so.6"): "libstdc++6-arm64-cross",
    "gcc": "gcc",
    "mvn": "maven",
}
# The large cores of a Pixel 4 derive from this one, with dot products of 8-bit integers.
PROCESSOR = "cortex-a76"
# Other releases of the emulator or compiler may lay out memory differently.
MOST_MORE = 0.02
LENGTHS = (32, 64)


@dataclass(frozen=True)
class KernelAnswer:
    """Result of one call.

    Attributes:
      values: output name → its flattened values.
      instructions: instructions of the inference.
      vector: those executed by the floating-point and vector unit.
    """

    values: dict[str, list[float]]
    instructions: int
    vector: int


@dataclass(frozen=True)
class Checked:
    """A bundle's results at one length.

    Attributes:
      name: the bundle's folder.
      recipe: its number formats.
      length: tokens.
      difference: the largest difference from the recorded outputs.
      tolerance: the largest allowed difference.
      instructions: instructions of the last call, after all memory is allocated.
      vector_share: fraction of them executed by the vector unit.
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
    parser.add_argument("--record", action="store_true", help=f"rewrite {COUNTS.name}")
    parser.add_argument("--output", type=Path, help="write the results to this .json file")
    chosen = parser.parse_args(arguments)
    try:
        require_packages(PACKAGES, "the check on ARM64")
        with tempfile.TemporaryDirectory() as folder:
            release, measured, problems = _check(Path(folder), chosen.bundles, record=chosen.record)
    except (BuildError, UserError) as error:
        print(error, file=sys.stderr)
        return 2
    print(table(release, measured))
    if chosen.output:
        content = {
            "measured_on": "qemu",
            "qemu": _qemu(),
            "processor": PROCESSOR,
            "runtime": release,
            "bundles": [vars(row) for row in measured],
        }
        chosen.output.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def _check(folder: Path, bundles: Sequence[Path], *, record: bool) -> tuple[str, list[Checked], list[str]]:
    build(folder)
    reference = reference_bundles(folder)
    measured, release = [], ""
    for bundle in (*reference, *bundles):
        for configuration in from_bundle(bundle, None, (1,), label=bundle.name):
            if configuration.problem or configuration.length is None:
                raise BuildError(f"{bundle}: {configuration.problem}")
            release, answers = ask(folder, configuration.model_path, configuration.calls)
            outputs = runtime_outputs(bundle, configuration.calls, configuration.length)
            measured.append(checked(configuration, configuration.length, answers, outputs))
    reference_counts = {
        f"{row.name} {row.length}": row.instructions for row in measured[: len(reference) * len(LENGTHS)]
    }
    if record:
        COUNTS.write_text(json.dumps(reference_counts, indent=2) + "\n", encoding="utf-8")
    expected = json.loads(COUNTS.read_text(encoding="utf-8"))
    return release, measured, [*answer_problems(measured), *count_problems(reference_counts, expected)]


def build(folder: Path) -> None:
    """Fetches the runtime and compiles the program that runs it, into `folder`.

    Raises:
      BuildError: Maven or a compiler fails, or the runtime differs from the recorded one.
    """
    run_maven("arm64", "arm64")
    (archive,) = (ARM64 / "target" / "artifacts").glob("*.jar")
    require_sums([archive], recorded(ARM64 / "artifacts.sha256"))
    with zipfile.ZipFile(archive) as content:
        name = next(name for name in content.namelist() if name.endswith(f"/{LIBRARY}"))
        (folder / LIBRARY).write_bytes(content.read(name))
    strict = ("-O2", "-Wall", "-Wextra", "-Werror")
    # The loader finds the library's dependencies at run time.
    linked = (f"-L{folder}", f"-l:{LIBRARY}", "-Wl,-rpath,$ORIGIN", "-Wl,--allow-shlib-undefined")
    sources = (str(ARM64 / "answers.c"), str(WEIGHT_CACHE))
    _run("aarch64-linux-gnu-gcc", *strict, "-o", str(folder / "answers"), *sources, *linked)
    counter = (str(folder / "instruction_count.so"), str(ARM64 / "instruction_count.c"))
    _run("gcc", *strict, "-shared", "-fPIC", "-o", *counter)


def reference_bundles(folder: Path) -> list[Path]:
    """Exports a small network in every recipe; random weights are enough for kernels.

    For int16 activations, one channel of a feed-forward output is large, so that int8 would lose the others.
    """
    import pocketbert as pb
    from pocketbert.configs import TaskConfig
    from pocketbert.data.examples import Examples
    from pocketbert.presets import preset
    from pocketbert.recipes import RECIPES
    from pocketbert_export.exporter import export
    from pocketbert_export.quantization.calibration_options import CalibrationOptions
    from pocketbert_runtime.tokenizers.wordpiece_vocabulary import SPECIAL_TOKENS

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
    kernel = model.weights_by_path()["encoder.layers.1.feed_forwards.0.output.kernel"]
    values = kernel.numpy()
    values[:, 3] *= 30
    kernel.assign(values)
    model.save_pretrained(folder / "unequal")
    texts = [f"{first}{second} {second}" for first in "abcdef" for second in "ghijkl"]
    ids = [str(number) for number in range(len(texts))]
    examples = Examples(texts=texts, pairs=None, labels=None, ids=ids, source="letters")
    for recipe in RECIPES.values():
        is_int16 = recipe.name == "static_wi8_ai16"
        # About half of the layers become int4.
        most = 0.95 if recipe.name == "mixed" else None
        export(
            folder / ("unequal" if is_int16 else "model"),
            folder / recipe.name,
            recipe=recipe.name,
            lengths=LENGTHS,
            calibration=examples if recipe.calibration == "required" else None,
            calibration_options=CalibrationOptions(equalize=not is_int16, max_mb=most),
        )
    return [folder / name for name in RECIPES]


def ask(
    folder: Path, model: Path, calls: Sequence[Call], weight_cache: Path | None = None
) -> tuple[str, list[KernelAnswer]]:
    """Runs a model file under QEMU.

    Args:
      folder: the folder from `build`.
      model: the `.tflite` file.
      calls: at least one call.
      weight_cache: XNNPACK's weight cache, opened by the app's helper; written if it is missing.

    Returns:
      The runtime's release, and one answer per call.

    Raises:
      BuildError: the emulated program fails.
    """
    requests = "".join(f"{' '.join(_words(call))}\n" for call in calls)
    emulator = ("qemu-aarch64", "-cpu", PROCESSOR, "-L", str(ROOT), "-plugin", str(folder / "instruction_count.so"))
    files = [str(path) for path in (model, weight_cache) if path]
    done = _run(*emulator, str(folder / "answers"), *files, given=requests)
    release, *lines = done.stdout.splitlines()
    counts = re.findall(r"^instructions (\d+) (\d+)$", done.stderr, re.MULTILINE)
    if not len(lines) == len(counts) == len(calls):
        raise BuildError(
            f"{model} must give {len(calls)} answers; received {len(lines)} answers and {len(counts)} counts"
        )
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
    """Parses a line from `answers.c`: output name → values."""
    words = iter(line.split())
    return {next(words): [float(next(words)) for _ in range(int(next(words)))] for _ in range(int(next(words)))}


def runtime_outputs(bundle: Path, calls: Sequence[Call], length: int) -> list[Mapping[str, Any]]:
    """Returns the outputs of pocketbert_runtime for each call, float32 `[1, ...]` by name."""
    import numpy as np

    from pocketbert_runtime import Bundle

    with Bundle.open(bundle) as opened:
        return [
            opened.run({name: np.array([ids], np.int32) for name, ids in call.inputs.items()}, length) for call in calls
        ]


def checked(
    configuration: Configuration,
    length: int,
    answers: Sequence[KernelAnswer],
    runtime: Sequence[Mapping[str, Any]] | None = None,
) -> Checked:
    """Compares outputs at one length with the bundle's golden outputs, and with the runtime's for each call."""
    import numpy as np

    differences = []
    for call, answer, of_runtime in zip(configuration.calls, answers, runtime or [{}] * len(answers), strict=True):
        expected = {name: np.ravel(values) for name, values in (call.expected or {}).items()}
        if not expected or answer.values.keys() != expected.keys():
            raise BuildError(
                f"{configuration.label} must have the outputs {', '.join(expected)}; received {[*answer.values]}"
            )
        # NaN counts as an infinite difference.
        off = [
            np.abs(np.asarray(answer.values[name]) - np.ravel(values)).max()
            for outputs in (expected, of_runtime)
            for name, values in outputs.items()
        ]
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


def answer_problems(measured: Sequence[Checked]) -> list[str]:
    """One line per bundle and length with outputs outside the tolerance."""
    return [
        f"{row.name} at {row.length} tokens must reproduce its golden examples and the runtime's outputs within "
        f"{row.tolerance:.3g}; it is off by {row.difference:.3g}"
        for row in measured
        if not row.difference <= row.tolerance
    ]


def count_problems(counts: dict[str, int], expected: dict[str, int]) -> list[str]:
    """One line per reference bundle with too many instructions or without a recorded count."""
    problems = []
    for name, count in counts.items():
        if name not in expected:
            problems.append(f"{name} has no recorded count; run with --record, and commit {COUNTS.name}")
        elif count > (1 + MOST_MORE) * expected[name]:
            problems.append(
                f"{name} must need at most {MOST_MORE:.0%} more than {expected[name]:,} instructions; it needs "
                f"{count:,}; if this is intended, run with --record"
            )
    return problems


def table(release: str, measured: Sequence[Checked]) -> str:
    """Formats the results as a table."""
    lines = [
        f"TensorFlow Lite {release} on {PROCESSOR}, emulated: outputs and instructions, no time",
        f"{'bundle':24} {'recipe':12} {'tokens':>6} {'off by':>9} {'allowed':>9} {'instructions':>14} {'vector':>7}",
    ]
    lines += [
        f"{row.name:24} {row.recipe:12} {row.length:6} {row.difference:9.2g} {row.tolerance:9.2g} "
        f"{row.instructions:14,} {row.vector_share:7.0%}"
        for row in measured
    ]
    return "\n".join(lines)


def _qemu() -> str:
    return _run("qemu-aarch64", "--version").stdout.splitlines()[0]


def _run(*command: str, given: str = "") -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        output = " ".join((done.stderr or done.stdout).split())
        raise BuildError(f"{command[0]} must succeed; it ended with {done.returncode}: {output[-500:]}")
    return done


if __name__ == "__main__":
    sys.exit(main())
