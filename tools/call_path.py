"""Count the files, functions and classes that a value passes through, as ADR 8 reports them.

A command walks each path with tiny random models in a temporary folder:

  loss    from the first row read of a TSV file to the first TinyBERT loss (`distill`)
  tflite  from the first weight read of a model directory to the written TFLite file (`export`)
  report  from the first recorded sample to the written HTML page (`bench`, its worker process, and `report`)

A call counts if it starts between both ends in the main thread. --checkout runs the code of another checkout, on models
written by this one. --save writes the figures, and those of module_counts.py, to a result file and to the tables in
ADR 8.

Example:
  .venv/bin/python tools/call_path.py --list tflite
  .venv/bin/python tools/call_path.py --checkout=../before --save=before
"""

from __future__ import annotations

import argparse
import inspect
import json
import multiprocessing
import os
import re
import runpy
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import module_counts
from module_counts import ROOT, SOURCES

ADR = ROOT / "docs" / "adr" / "0008-one-trainer.md"
RESULTS = ROOT / "docs" / "adr" / "0008-call-paths.json"
WORDS = "a the film plot good bad dull great".split()
WORKER = "pocketbert_bench.worker"


@dataclass(frozen=True, kw_only=True)
class CallPath:
    """A path through the packages.

    Attributes:
      title: description of both ends.
      first: end of a file's path, and the function whose first call starts the path.
      last: the same for the function whose first return ends the path.
      commands: folder with inputs → command lines in order.
    """

    title: str
    first: tuple[str, str]
    last: tuple[str, str]
    commands: Callable[[Path], Sequence[Sequence[str]]]


PATHS = {
    "loss": CallPath(
        title="TSV row to the first TinyBERT loss",
        first=("readers/tables.py", "read_table"),
        last=("methods/tinybert.py", "TinyBERT.loss"),
        commands=lambda folder: [
            [
                "distill", "--method=tinybert", f"--teacher={folder / 'teacher'}",
                f"--student={folder / 'student.json'}", f"--train-file={folder / 'train.tsv'}",
                f"--dev-file={folder / 'dev.tsv'}", "--text-column=text", "--label-column=label",
                f"--output={folder / 'run'}",
            ]
        ],
    ),
    "tflite": CallPath(
        title="Weight to the TFLite file",
        first=("checkpoints/stored_tensors.py", "StoredTensor.read"),
        last=("pocketbert/files.py", "write_bytes"),
        commands=lambda folder: [
            ["export", f"--model={folder / 'teacher'}", "--lengths=8", f"--output={folder / 'exported'}"]
        ],
    ),
    "report": CallPath(
        title="Benchmark sample to the HTML page",
        first=("pocketbert_bench/host.py", "_Subject.take_turn"),
        last=("pocketbert_bench/report.py", "build_report"),
        commands=lambda folder: [
            ["export", f"--model={folder / 'teacher'}", "--lengths=8", f"--output={folder / 'bundle'}"],
            ["bench", str(folder / "bundle"), "--quick", f"--output={folder / 'samples.json'}"],
            ["report", str(folder / "samples.json"), f"--output={folder / 'report'}"],
        ],
    ),
}  # fmt: skip
# The worker process's first call when it samples.
WORKER_FIRST = (f"{WORKER.replace('.', '/')}.py", "_waiting_seconds")


class Recorder:
    """A hook for `sys.setprofile` that writes every function and class on a path to a log, one per line.

    Args:
      checkout: root of the checkout whose code runs.
      log: the file to append to.
      first: see `CallPath`.
      last: see `CallPath`; None: records until the process ends.
    """

    def __init__(self, checkout: Path, log: Path, first: tuple[str, str], last: tuple[str, str] | None) -> None:
        self._checkout, self._first, self._last = checkout, first, last
        self._folders = tuple(f"{checkout / source / name}/" for name, source in SOURCES.items())
        self._log = open(log, "a", buffering=1, encoding="utf-8")
        self._seen: set[str] = set()
        self._active = False
        self.finished = False

    def __call__(self, frame: types.FrameType, event: str, argument: Any) -> None:
        """Records a call; raises `_Finished` at the end of the path."""
        if event not in ("call", "return") or not frame.f_code.co_filename.startswith(self._folders):
            return
        code = frame.f_code
        path = str(Path(code.co_filename).relative_to(self._checkout))
        if event == "call":
            self._active = self._active or _matches(self._first, path, code.co_qualname)
            # Code of modules and class definitions has no optimized locals.
            if self._active and code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<"):
                self._record(f"function {path} {code.co_qualname}")
                owner = type(frame.f_locals.get("self"))
                if owner.__module__.partition(".")[0] in SOURCES:
                    self._record(f"class {owner.__module__} {owner.__qualname__}")
        elif self._active and self._last and _matches(self._last, path, code.co_qualname):
            self.finished = True
            sys.setprofile(None)
            raise _Finished

    def _record(self, line: str) -> None:
        if line not in self._seen:
            self._seen.add(line)
            self._log.write(f"{line}\n")


class _Finished(BaseException):
    """Ends the command at the end of the path."""


def walk(name: str, checkout: Path, inputs: Path) -> list[str]:
    """Lists the functions and classes on a path, in the order of the first call.

    Args:
      name: a name of `PATHS`.
      checkout: root of the checkout whose code runs.
      inputs: folder from `write_inputs`.
    """
    log = inputs / f"{name}.log"
    _in_process(_run, name, checkout, inputs, log)
    return list(dict.fromkeys(log.read_text(encoding="utf-8").splitlines()))


def figures(entries: Sequence[str]) -> dict[str, int]:
    """The number of files, functions and classes on a path."""
    functions = [entry.split()[1] for entry in entries if entry.startswith("function ")]
    return {"files": len(set(functions)), "functions": len(functions), "classes": len(entries) - len(functions)}


def write_inputs(folder: Path) -> None:
    """Writes a teacher, a student's architecture and two TSV files."""
    import numpy as np

    import pocketbert as pb
    from pocketbert.checkpoints.huggingface import write_config
    from pocketbert.presets import preset

    vocabulary = folder / "vocab.txt"
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    vocabulary.write_text("\n".join(tokens) + "\n", encoding="utf-8")
    config = preset("tinybert_4l_312d").config.replace(vocab_size=len(tokens), num_layers=2)
    task = pb.TaskConfig(kind="classification", name="mood", labels=("high", "low"))
    teacher = pb.from_preset(config, (task,), pb.WordPieceTokenizer(vocabulary), seed=3)
    teacher.save_pretrained(folder / "teacher")
    (folder / "student.json").write_text(json.dumps(write_config(config.replace(num_layers=1), ())), encoding="utf-8")
    random = np.random.default_rng(0)
    for name in ("train", "dev"):
        rows = (f"{' '.join(random.choice(WORDS, 5))}\t{('low', 'high')[row % 2]}" for row in range(40))
        (folder / f"{name}.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n", encoding="utf-8")


def save(name: str, checkout: Path, paths: Mapping[str, Mapping[str, int]]) -> None:
    """Writes the figures of a checkout to the result file, and the tables of ADR 8."""
    commit = subprocess.check_output(["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"], text=True).strip()
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    earlier = results[name]["paths"] if results.get(name, {}).get("commit") == commit else {}
    results[name] = {"commit": commit, "paths": {**earlier, **paths}, "packages": module_counts.count(checkout)}
    RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    page = re.sub(
        r"(<!-- call_paths: begin.*?-->\n).*?(<!-- call_paths: end -->)",
        lambda match: match[1] + tables(results) + match[2],
        ADR.read_text(encoding="utf-8"),
        flags=re.DOTALL,
    )
    ADR.write_text(page, encoding="utf-8")


def tables(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The tables of ADR 8: paths and packages, with one column for each saved state."""
    heads = "".join(f" {name.capitalize()} ({result['commit']}) |" for name, result in results.items())
    rule = "|---" * (len(results) + 1) + "|"
    paths = {path.title: [result["paths"].get(key, {}) for result in results.values()] for key, path in PATHS.items()}
    names = {name: None for result in results.values() for name in result["packages"]}
    packages = {f"`{name}`": [result["packages"].get(name, {}) for result in results.values()] for name in names}
    return "\n".join(
        [f"| Files, functions, classes |{heads}", rule, *_rows(paths), ""]
        + [f"| Modules, imports inside, outgoing |{heads}", rule, *_rows(packages), ""]
    )


def main() -> None:
    """The command line: prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", metavar="PATH", nargs="*", help=f"{', '.join(PATHS)} (default: all)")
    parser.add_argument("--list", action="store_true", help="print functions in the order of their first calls")
    parser.add_argument("--checkout", type=Path, default=ROOT, help="checkout whose code runs (default: this one)")
    parser.add_argument("--save", metavar="NAME", help="column of ADR 8 to write: before or after")
    arguments = parser.parse_args()
    checkout, names = arguments.checkout.resolve(), arguments.paths or list(PATHS)
    if unknown := set(names) - set(PATHS):
        parser.error(f"a path must be one of {', '.join(PATHS)}; received {', '.join(sorted(unknown))}")
    paths = {}
    with tempfile.TemporaryDirectory() as name:
        _in_process(write_inputs, Path(name))
        for path in names:
            entries = walk(path, checkout, Path(name))
            paths[path] = figures(entries)
            print("\n".join(entries) if arguments.list else "", end="\n" if arguments.list else "")
            print(f"{PATHS[path].title}: " + ", ".join(f"{number} {kind}" for kind, number in paths[path].items()))
    if arguments.save:
        save(arguments.save, checkout, paths)


def _rows(table: Mapping[str, Sequence[Mapping[str, int]]]) -> list[str]:
    return [
        f"| {name} |" + "".join(f" {', '.join(map(str, cell.values())) or '–'} |" for cell in cells)
        for name, cells in table.items()
    ]


def _in_process(function: Callable[..., None], *arguments: Any) -> None:
    """Runs a function in a fresh process, since checkouts share module names."""
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{function.__name__} must succeed; received exit code {process.exitcode}; see above")


def _run(name: str, checkout: Path, inputs: Path, log: Path) -> None:
    """Runs a path's commands with the checkout's code until the path ends."""
    sources = [str(checkout / source) for source in dict.fromkeys(SOURCES.values())]
    sys.path[:0] = sources
    os.environ["PYTHONPATH"] = os.pathsep.join([*sources, str(Path(__file__).parent)])
    from pocketbert import cli

    class Process(subprocess.Popen[bytes]):
        """Starts the worker process of `bench` with its own recorder."""

        def __init__(self, command: Sequence[str], *positional: Any, **options: Any) -> None:
            if list(command[1:]) == ["-m", WORKER]:
                code = f"import call_path; call_path.run_worker({str(checkout)!r}, {str(log)!r})"
                command = [sys.executable, "-c", code]
            super().__init__(command, *positional, **options)

    subprocess.Popen = Process  # type: ignore[assignment,misc]
    recorder = Recorder(checkout, log, PATHS[name].first, PATHS[name].last)
    sys.setprofile(recorder)
    try:
        for command in PATHS[name].commands(inputs):
            cli.main(command)
    except _Finished:
        pass
    finally:
        sys.setprofile(None)
    if not recorder.finished:
        raise SystemExit(f"the path must end in {PATHS[name].last[1]}; it did not; see the messages above")


def run_worker(checkout: str, log: str) -> None:
    """Runs the worker process of `bench` and records it from its first sample."""
    sys.setprofile(Recorder(Path(checkout), Path(log), WORKER_FIRST, None))
    runpy.run_module(WORKER, run_name="__main__", alter_sys=True)


def _matches(end: tuple[str, str], path: str, function: str) -> bool:
    return path.endswith(end[0]) and function == end[1]


if __name__ == "__main__":
    main()
