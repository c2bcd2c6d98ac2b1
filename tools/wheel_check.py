"""Builds the wheels, installs them into fresh environments, and uses them there, outside the checkout.

Run `python tools/wheel_check.py pip 3.12 3.13`. `pip` installs the wheel with plain pip, without lock files and
constraints. A version installs it on that version's lock file with uv. The wheel must contain every data file of the
packages, versions must be compatible, the commands below must work on a tiny model, and every Python must build the
same tokenizer tables. `pip` also installs the small wheel, pocketbert-runtime, alone into an empty environment
(`runtime_wheel_check.py`). Missing versions are skipped with one line, or fail with `CI=true`. Exit codes: 0 for
success, 1 with the output of each failed step.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import runtime_wheel_check
from environment_steps import CheckFailed, run, timed

ROOT = Path(__file__).resolve().parents[1]
# Folder of each package → its folder in the wheel (setup.py).
PACKAGES = {
    "runtime/pocketbert_runtime": "pocketbert_wheel/pocketbert_runtime",
    "modeling/pocketbert": "pocketbert",
    "export/pocketbert_export": "pocketbert_export",
    "benchmarks/pocketbert_bench": "pocketbert_bench",
}
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
pb.from_preset(config, task=[task], tokenizer=tokenizer, seed=1).save_pretrained("given")
"""
TOKENIZER_DIGEST = """
import hashlib
from pocketbert.tokenizers.bert_unicode import normalization

tables = vars(normalization(True)).values()
print(hashlib.sha256(b"".join(table.tobytes() for table in tables)).hexdigest())
"""
COMMANDS = (
    "--help",
    "convert --from=hf --input=given --output=model",
    # Ten rows in pairs: five steps.
    "finetune --model=model --train-file=films.csv --dev-file=films.csv --batch-size=2 --epochs=1 --max-length=16 "
    "--output=run",
    "export --model=run/model --recipe=dynamic_wi8 --lengths=8 --output=bundle",
    "verify bundle",
)
# These commands need no second Python version, so they run once.
MORE_COMMANDS = (
    "convert --to=model-garden --input=model --output=garden",
    "predict --model=run/model --input=texts.txt",
    "bench bundle --quick --weights=random --output=result.json",
    "report result.json --output=report",
)


def package_files() -> list[str]:
    """Lists every file of the packages, as its path in a wheel."""
    return sorted(
        f"{inside}/{path.relative_to(ROOT / name).as_posix()}"
        for name, inside in PACKAGES.items()
        for path in (ROOT / name).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    )


def missing_files(wheel: Path) -> list[str]:
    """Lists files of the packages missing from the wheel, as paths inside it."""
    with zipfile.ZipFile(wheel) as archive:
        return sorted(set(package_files()) - set(archive.namelist()))


def main(installs: Sequence[str]) -> int:
    """Builds the wheel, tries each install and prints the times."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    failures: list[CheckFailed] = []
    digests: dict[str, str] = {}
    try:
        wheel = _built_wheel()
    except CheckFailed as failure:
        failures, installs = [failure], ()
    for install in installs:
        try:
            if python := _found_python(install):
                digests[install] = _tried(install, python, wheel)
        except CheckFailed as failure:
            failures.append(failure)
        # The installed packages take gigabytes.
        shutil.rmtree(FOLDER / install, ignore_errors=True)
    if len(set(digests.values())) > 1:
        failures.append(CheckFailed(f"every Python must build the same tokenizer tables; received {digests}"))
    for description in failures:
        print(description, file=sys.stderr)
    if not failures:
        shutil.rmtree(FOLDER)
    return 1 if failures else 0


def _built_wheel() -> Path:
    # setuptools would pack leftovers of earlier builds, including deleted modules.
    shutil.rmtree(ROOT / "out" / "setuptools", ignore_errors=True)
    timed(
        "build the wheel",
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        FOLDER,
        ROOT,
        folder=FOLDER,
    )
    (wheel,) = FOLDER.glob("*.whl")
    if missing := missing_files(wheel):
        raise CheckFailed(f"the wheel must have every file of the packages; it lacks {', '.join(missing)}")
    return wheel


def _found_python(install: str) -> str:
    """Returns the interpreter for an install; empty, with one line on stderr, if there is none outside CI."""
    if install == "pip":
        return sys.executable
    done = subprocess.run([ROOT / "tools" / "find_python.sh", install], capture_output=True, text=True, check=False)
    if done.returncode:
        if os.environ.get("CI", "").lower() == "true":
            raise CheckFailed(done.stderr.strip())
        print(f"skipped {install}: {done.stderr.strip()}", file=sys.stderr, flush=True)
    return done.stdout.strip()


def _tried(install: str, interpreter: str, wheel: Path) -> str:
    """Installs the wheel and runs the commands; returns a digest of the tokenizer's tables."""
    folder = FOLDER / install
    python, work = folder / "bin" / "python", folder / "work"
    if install == "pip":
        run(interpreter, "-m", "venv", folder, folder=FOLDER)
        # Python compiles the modules that it imports; pip would compile all of them.
        options = ("--quiet", "--progress-bar=off", "--no-compile")
        timed("pip: install", python, "-m", "pip", "install", *options, wheel, folder=FOLDER)
        timed("pip: pip check", python, "-m", "pip", "check", folder=FOLDER)
    else:
        uv = (Path(sys.executable).with_name("uv"), "pip")
        lock, quiet = ROOT / "requirements" / f"{install}.lock", ("--quiet", "--python", python)
        run(uv[0], "venv", "--quiet", "--python", interpreter, folder, folder=FOLDER)
        timed(f"{install}: install the lock", *uv, "sync", *quiet, "--require-hashes", lock, folder=FOLDER)
        run(*uv, "install", *quiet, "--no-deps", wheel, folder=FOLDER)
        run(*uv, "check", *quiet, folder=FOLDER)
    work.mkdir()
    timed(f"{install}: make a model", python, "-c", MAKE_MODEL, folder=work)
    (work / "texts.txt").write_text("a very good film .\na bad play .\n", encoding="utf-8")
    rows = ["text,label", *["a very good film .,positive", "a bad play .,negative"] * 5]
    (work / "films.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    for arguments in (*COMMANDS, *(MORE_COMMANDS if install == "pip" else ())):
        timed(f"{install}: pocketbert {arguments}", folder / "bin" / "pocketbert", *arguments.split(), folder=work)
    if install == "pip":
        runtime_wheel_check.check(FOLDER / "runtime", interpreter, python, work, wheel)
    return run(python, "-c", TOKENIZER_DIGEST, folder=work).strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["pip"]))
