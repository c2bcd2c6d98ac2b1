"""A page for your browser: type a text, and a bundle answers, run by MediaPipe Tasks for Web."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from pocketbert import files
from pocketbert import output_folders as outputs
from pocketbert.data.assets import cache_folder
from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert.report import render
from pocketbert_export.bundles.bundle import VOCAB_FILE, Bundle
from pocketbert_export.clients.mediapipe_files import CLIENTS, check_client, has_pairs, log_decisions, task_file

PAGE = "index.html"
# Later versions (1.0.1) post usage metrics to Google.
PACKAGE, VERSION = "@mediapipe/tasks-text", "0.10.35"
ARCHIVE = "mediapipe-tasks-text-0.10.35.tgz"
SHA256 = "c12de088be9b099b32ad29d6bf1ba92ddfb3fe133787d58e14bb262c35663342"
# All browsers since 2021 have SIMD, so the other variants are left out.
_FILES = ("text_bundle.mjs", "wasm/text_wasm_internal.js", "wasm/text_wasm_internal.wasm", "package.json")


def write_try_page(
    bundle: Bundle, output: Path, *, title: str, overwrite: bool = False, group: outputs.Together | None = None
) -> Path:
    """Writes a folder for any web server: page, MediaPipe (about 7 MB) and a file per length; returns the page's path.

    The page loads nothing from other hosts; its content security policy forbids it.

    Args:
      bundle: a bundle for a model that classifies single texts.
      output: output folder.
      title: the page's heading.
      overwrite: replace an existing folder.
      group: see `pocketbert.output_folders.new_directory`.
    Raises:
      UserError: MediaPipe has no client for the bundle, npm cannot fetch the package, or `output` exists.
    """
    check_tryable(bundle)
    log_decisions(bundle)
    archive = tasks_text()
    with outputs.new_directory(output, outputs.TRY_KIND, overwrite=overwrite, group=group) as folder:
        with tarfile.open(archive) as opened:
            for name in _FILES:
                target, member = folder / "mediapipe" / name, opened.extractfile(f"package/{name}")
                assert member is not None
                target.parent.mkdir(parents=True, exist_ok=True)
                files.write_bytes(target, member.read())
        for length in bundle.lengths:
            files.write_bytes(folder / f"{bundle.signature(length)}.tflite", task_file(bundle, length))
        shutil.copyfile(bundle.directory / VOCAB_FILE, folder / VOCAB_FILE)
        script = Path(__file__).with_name("templates") / "try.js"
        files.write_bytes(folder / script.name, script.read_bytes())
        settings = {"lengths": bundle.lengths, "tokenizer": dataclasses.asdict(bundle.vocabulary.options)}
        files.write_text(folder / "settings.json", json.dumps(settings))
        files.write_text(folder / PAGE, render("try.html", package="pocketbert_bench", title=title))
    return output / PAGE


def check_tryable(bundle: Bundle) -> None:
    """Raises `UserError` unless the page can run a bundle: classes for single texts, from a WordPiece tokenizer."""
    if bundle.task is not None and bundle.task.kind in CLIENTS and not bundle.task.labels:
        raise UserError(f"{_option()} needs a bundle with labels; received {bundle.task.kind}; leave it out")
    check_client(bundle.task, bundle.vocabulary, has_pairs=has_pairs(bundle), subject=_option())


def _option() -> str:
    return argument("try_", python="the page")


def tasks_text() -> Path:
    """Returns MediaPipe Tasks for Web as an archive, from the cache or npm; a `UserError` without the pinned one."""
    archive = cache_folder() / ARCHIVE
    if archive.is_file() and files.sha256(archive) == SHA256:
        return archive
    remedy = f"run `npm pack {PACKAGE}@{VERSION}` on another machine and copy {ARCHIVE} to {archive.parent}"
    with tempfile.TemporaryDirectory() as folder:
        try:
            command = ["npm", "pack", f"{PACKAGE}@{VERSION}", "--silent"]
            done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        except FileNotFoundError:
            raise UserError(f"{_option()} needs npm to fetch {PACKAGE} {VERSION}; received none; {remedy}") from None
        if done.returncode:
            last_words = " ".join(done.stderr.split()[-30:]) or "nothing"
            raise UserError(f"{_option()} needs {PACKAGE} {VERSION}; npm said: {last_words}; {remedy}")
        content = Path(folder, ARCHIVE).read_bytes()
    if (digest := hashlib.sha256(content).hexdigest()) != SHA256:
        raise UserError(f"{ARCHIVE} must have the sha256 {SHA256}; received {digest}; {remedy}")
    archive.parent.mkdir(parents=True, exist_ok=True)
    files.write_bytes(archive, content)
    return archive
