"""Count the files, functions and classes on a path through the packages, as ADR 8 reports them.

The path runs from the first row that is read of a TSV file to the first TinyBERT loss, through the command line, with
tiny random models in a temporary folder.

Example:
  .venv/bin/python tools/call_path.py
  .venv/bin/python tools/call_path.py --list
"""

from __future__ import annotations

import argparse
import collections
import inspect
import json
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PACKAGES = {
    "pocketbert": ROOT / "modeling",
    "pocketbert_export": ROOT / "export",
    "pocketbert_bench": ROOT / "benchmarks",
}
WORDS = "a the film plot good bad dull great".split()


class Recorder:
    """Records what is entered between the first call of one function and the return of the first call of another.

    Args:
      first: the file and the function that begin the path.
      last: those that end it.
    """

    def __init__(self, first: tuple[str, str], last: tuple[str, str]) -> None:
        self._first, self._last = first, last
        self.functions: set[tuple[str, str]] = set()
        self.classes: set[str] = set()
        self.active = self.finished = False

    def __call__(self, frame: types.FrameType, event: str, argument: Any) -> None:
        """The hook of `sys.setprofile`."""
        if self.finished or event not in ("call", "return"):
            return
        code = frame.f_code
        path = code.co_filename
        if not any(path.startswith(f"{root / name}/") for name, root in PACKAGES.items()):
            return
        where = (str(Path(path).relative_to(ROOT)), code.co_qualname)
        if event == "call":
            self.active = self.active or (where[0].endswith(self._first[0]) and where[1] == self._first[1])
            # A module or a class that is being defined has no optimized locals.
            if self.active and code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<"):
                self.functions.add(where)
                owner = frame.f_locals.get("self")
                if owner is not None and type(owner).__module__.partition(".")[0] in PACKAGES:
                    self.classes.add(type(owner).__qualname__)
        elif self.active and where[0].endswith(self._last[0]) and where[1].endswith(self._last[1]):
            self.finished = True
            sys.setprofile(None)

    @property
    def files(self) -> set[str]:
        """The files whose functions were entered."""
        return {path for path, _ in self.functions}


class _Stop(BaseException):
    """Ends the command once the path has been walked."""


def write_inputs(folder: Path) -> list[str]:
    """A teacher, a student's architecture and two TSV files; the `distill` command line that reads them."""
    import numpy as np

    import pocketbert as pb
    from pocketbert.checkpoints.huggingface import write_config
    from pocketbert.presets import preset

    vocabulary = folder / "vocab.txt"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    vocabulary.write_text("\n".join(pieces) + "\n", encoding="utf-8")
    config = preset("tinybert_4l_312d").config.replace(vocab_size=len(pieces), num_layers=2)
    task = pb.TaskConfig(kind="classification", name="mood", labels=("high", "low"))
    teacher = pb.from_preset(config, (task,), pb.WordPieceTokenizer(vocabulary), seed=3)
    teacher.save_pretrained(folder / "teacher")
    (folder / "student.json").write_text(json.dumps(write_config(config.replace(num_layers=1), ())), encoding="utf-8")
    random = np.random.default_rng(0)
    for name in ("train", "dev"):
        rows = (f"{' '.join(random.choice(WORDS, 5))}\t{('low', 'high')[row % 2]}" for row in range(40))
        (folder / f"{name}.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return [
        "distill", "--method=tinybert", f"--teacher={folder / 'teacher'}",
        f"--student={folder / 'student.json'}", f"--train-file={folder / 'train.tsv'}",
        f"--dev-file={folder / 'dev.tsv'}", "--text-column=text", "--label-column=label", f"--output={folder / 'run'}",
    ]  # fmt: skip


def row_to_loss() -> Recorder:
    """Walks from the first row of a TSV file to the first TinyBERT loss."""
    from pocketbert import cli

    recorder = Recorder(("data/tables.py", "read_table"), ("methods/tinybert.py", "TinyBERT.loss"))

    def hook(frame: types.FrameType, event: str, argument: Any) -> None:
        recorder(frame, event, argument)
        if recorder.finished:
            raise _Stop

    with tempfile.TemporaryDirectory() as name:
        command = write_inputs(Path(name))
        sys.setprofile(hook)
        try:
            cli.main(command)
        except _Stop:
            pass
        finally:
            sys.setprofile(None)
    if not recorder.finished:
        raise SystemExit("the path must end in a loss; it did not: see the messages above")
    return recorder


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="name the functions of each file too")
    arguments = parser.parse_args()
    recorder = row_to_loss()
    functions = collections.defaultdict(list)
    for path, name in sorted(recorder.functions):
        functions[path].append(name)
    for path, names in functions.items():
        print(f"{len(names):4}  {path}" + (f"  {', '.join(names)}" if arguments.list else ""))
    print(
        f"TSV row to the first TinyBERT loss: {len(recorder.files)} files, {len(recorder.functions)} functions, "
        f"{len(recorder.classes)} classes"
    )
    print("classes: " + ", ".join(sorted(recorder.classes)))


if __name__ == "__main__":
    main()
