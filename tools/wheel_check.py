"""Builds the wheel, installs it with plain pip into an empty environment, and uses it there.

`python tools/wheel_check.py` proves what `pip install` gives a user who has neither the checkout, nor the lock, nor the
constraints: the wheel holds every data file of the packages, pip finds versions that fit together, and the commands
below work on a tiny model outside the checkout. Exit codes: 0; 1 with the output of what failed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("modeling/pocketbert", "export/pocketbert_export", "benchmarks/pocketbert_bench")
FOLDER = ROOT / "out" / "wheel-check"
MAKE_MODEL = """
import pocketbert as pb
from pocketbert.presets import preset

words = "[PAD] [UNK] [CLS] [SEP] [MASK] a very good bad film ##s play ##ed ##ing .".split()
with open("vocab.txt", "w", encoding="utf-8") as stream:
    stream.write("\\n".join(words) + "\\n")
config = preset("minilmv2_6l_384d").config.replace(
    vocab_size=len(words), hidden_size=30, embedding_size=30, num_layers=2, num_attention_heads=3, head_size=10,
    intermediate_size=41, max_position_embeddings=29, activation="gelu_tanh",
)
task = pb.TaskConfig(kind="classification", name="films", labels=("negative", "positive"))
tokenizer = pb.WordPieceTokenizer("vocab.txt", lowercase=True)
pb.from_preset(config, tasks=[task], tokenizer=tokenizer, seed=1).save_pretrained("given")
"""
COMMANDS = (
    "--help",
    "convert --from=hf --input=given --output=model",
    "convert --to=model-garden --input=model --output=garden",
    "predict --model=model --input=texts.txt",
    "export --model=model --recipe=dynamic_wi8 --lengths=8 --output=bundle",
    "verify bundle",
    "bench bundle --quick --weights=random --output=result.json",
    "report result.json --output=report",
)


class CheckFailed(Exception):
    """A step failed; the message says which, with its output."""


def package_files() -> list[str]:
    """Every file of the packages, as its path in a wheel."""
    paths = [path for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file()]
    return sorted("/".join(path.relative_to(ROOT).parts[1:]) for path in paths if path.suffix != ".pyc")


def missing_files(wheel: Path) -> list[str]:
    """Files of the packages that the wheel lacks, as paths inside it."""
    with zipfile.ZipFile(wheel) as archive:
        return sorted(set(package_files()) - set(archive.namelist()))


def main() -> int:
    """Builds, installs and runs; prints the times."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    # setuptools packs everything that an earlier build left here, deleted modules too.
    shutil.rmtree(ROOT / "out" / "setuptools", ignore_errors=True)
    work = FOLDER / "work"
    work.mkdir(parents=True)
    try:
        _timed("build", sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", FOLDER, ROOT)
        (wheel,) = FOLDER.glob("*.whl")
        if missing := missing_files(wheel):
            raise CheckFailed(f"the wheel must hold every file of the packages; it lacks {', '.join(missing)}")
        _run(sys.executable, "-m", "venv", FOLDER / "venv")
        python, command = FOLDER / "venv/bin/python", FOLDER / "venv/bin/pocketbert"
        _timed("install", python, "-m", "pip", "install", "--quiet", "--progress-bar=off", wheel)
        _timed("pip check", python, "-m", "pip", "check")
        _timed("make a model", python, "-c", MAKE_MODEL, folder=work)
        (work / "texts.txt").write_text("a very good film .\na bad play .\n", encoding="utf-8")
        for arguments in COMMANDS:
            _timed(f"pocketbert {arguments}", command, *arguments.split(), folder=work)
    except CheckFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    # The installed stack takes gigabytes.
    shutil.rmtree(FOLDER)
    return 0


def _timed(name: str, *command: str | Path, folder: Path = FOLDER) -> None:
    began = time.monotonic()
    _run(*command, folder=folder)
    print(f"{time.monotonic() - began:6.1f} s  {name}", flush=True)


def _run(*command: str | Path, folder: Path = FOLDER) -> None:
    # Neither the checkout nor anybody's constraints may help.
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PIP_CONSTRAINT")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise CheckFailed(
            f"{' '.join(map(str, command[:8]))} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )


if __name__ == "__main__":
    sys.exit(main())
