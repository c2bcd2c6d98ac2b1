"""A page for your browser: type a text, and a bundle answers, run by LiteRT.js."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from markupsafe import Markup

from pocketbert import files
from pocketbert import output_folders as outputs
from pocketbert.checkpoints.tokenizer_keys import TOKENIZER_NAME
from pocketbert.data.assets import cache_folder
from pocketbert.errors import UserError, raise_if_any
from pocketbert.notation import argument
from pocketbert.report import render
from pocketbert_export.bundles.bundle import BUNDLE_FILE, MODEL_FILE, Bundle
from pocketbert_export.clients.mediapipe_files import has_pairs
from pocketbert_runtime.bundles.pair_forward import HEAD_FILE
from pocketbert_runtime.tokenizers.truncation import HEAD

PAGE = "index.html"
_SCRIPTS = ("try.js", "bundle.js", "normalizer.js")
# Tags and questions need the place of each token in the text; the JavaScript tokenizer gives none.
_KINDS = ("classification", "multi_label", "regression", "embedding", "several")


@dataclasses.dataclass(frozen=True)
class Package:
    """A package on npm.

    Attributes:
      name: its name.
      version: its version.
      sha256: digest of npm's archive.
      script: the file behind the package's name.
      others: further files that the page needs.
    """

    name: str
    version: str
    sha256: str
    script: str
    others: tuple[str, ...] = ()

    @property
    def archive(self) -> str:
        """The name of npm's archive."""
        return f"{self.name.removeprefix('@').replace('/', '-')}-{self.version}.tgz"

    @property
    def files(self) -> tuple[str, ...]:
        """The files that the page needs."""
        return ("package.json", self.script, *self.others)


# Some browsers have no relaxed SIMD; they load the compatible variant.
_WASM = tuple(f"wasm/litert_wasm_{name}.{kind}" for name in ("internal", "compat_internal") for kind in ("js", "wasm"))
LITERT = Package(
    "@litertjs/core",
    "2.5.3",
    "a97660833e9e7e1063c95e12016718881240b14f7438728a2f62785e912d30fd",
    "dist/index.js",
    _WASM,
)
PACKAGES = (
    LITERT,
    Package(
        "@litertjs/wasm-utils",
        "2.5.3",
        "ce2a1f8379c067be49e59752e5a7f40db6be09f6e497f0f11e59f17b515366a7",
        "dist/index.js",
    ),
    Package(
        "@huggingface/tokenizers",
        "0.2.0",
        "2800014c83b8186b2e4210c20672f1fb65a12cef85d7e95e0f2003e022611b4a",
        "dist/tokenizers.min.mjs",
        ("LICENSE",),
    ),
)


def write_try_page(
    bundle: Bundle, output: Path, *, title: str, overwrite: bool = False, group: outputs.Together | None = None
) -> Path:
    """Writes a folder for any web server: page, packages (about 20 MB) and the bundle's files; returns the page's path.

    The page loads nothing from other hosts; its content security policy forbids it.

    Args:
      bundle: a bundle for a model that answers texts or pairs.
      output: output folder.
      title: the page's heading.
      overwrite: replace an existing folder.
      group: see `pocketbert.output_folders.new_directory`.
    Raises:
      UserError: the page cannot run the bundle, npm cannot fetch a package, or `output` exists.
    """
    check_tryable(bundle)
    for package in PACKAGES:
        # Before anything is written.
        archive_of(package)
    with outputs.new_directory(output, outputs.TRY_KIND, overwrite=overwrite, group=group) as folder:
        for package in PACKAGES:
            unpack(package, folder / "packages")
        for name in (BUNDLE_FILE, MODEL_FILE, TOKENIZER_NAME, *([HEAD_FILE] if bundle.pair_task else [])):
            shutil.copyfile(bundle.directory / name, folder / name)
        for name in _SCRIPTS:
            files.write_bytes(folder / name, (Path(__file__).with_name("templates") / name).read_bytes())
        files.write_text(folder / PAGE, page(title, with_pairs=has_pairs(bundle) or bundle.pair_task is not None))
    return output / PAGE


def unpack(package: Package, folder: Path) -> None:
    """Writes the files that a page needs to a folder for packages; see `archive_of` for errors."""
    with tarfile.open(archive_of(package)) as opened:
        for name in package.files:
            target, member = folder / package.name / name, opened.extractfile(f"package/{name}")
            assert member is not None
            target.parent.mkdir(parents=True, exist_ok=True)
            files.write_bytes(target, member.read())


def page(title: str, *, with_pairs: bool) -> str:
    """Returns the page's HTML; `with_pairs` adds a field for a second text."""
    scripts = {package.name: f"./packages/{package.name}/{package.script}" for package in PACKAGES}
    import_map = json.dumps({"imports": scripts})
    digest = base64.b64encode(hashlib.sha256(import_map.encode()).digest()).decode()
    return render(
        "try.html",
        package="pocketbert_bench",
        title=title,
        has_pairs=with_pairs,
        # A content security policy has no other way to allow an import map.
        import_map=Markup(import_map),
        import_map_digest=f"sha256-{digest}",
        version=LITERT.version,
    )


def check_tryable(bundle: Bundle) -> None:
    """Raises `UserError` unless the page can run a bundle; lists all reasons."""
    task = bundle.pair_task or bundle.task
    kinds = [part.kind for part in (task, *(task.tasks or ()))] if task else ["no task"]
    problems = [
        f"the page answers {', '.join(_KINDS)}; received {kind}; leave it out" for kind in kinds if kind not in _KINDS
    ]
    if bundle.output_type != "float32":
        problems.append(f"LiteRT.js tells no scale of {bundle.output_type} outputs; export it with float32 outputs")
    if bundle.vocabulary.truncation != HEAD:
        problems.append(f"the page cuts the ends of long texts; received truncation {bundle.vocabulary.truncation}")
    if not (bundle.directory / TOKENIZER_NAME).is_file():
        problems.append(f"the page reads {TOKENIZER_NAME}; the bundle has none; export it again")
    raise_if_any(problems, _option())


def _option() -> str:
    return argument("try_", python="the page")


def archive_of(package: Package) -> Path:
    """Returns a package's archive, from the cache or npm; a `UserError` without the pinned one."""
    archive, pinned = cache_folder() / package.archive, f"{package.name}@{package.version}"
    if archive.is_file() and files.sha256(archive) == package.sha256:
        return archive
    remedy = f"run `npm pack {pinned}` on another machine and copy {package.archive} to {archive.parent}"
    with tempfile.TemporaryDirectory() as folder:
        try:
            command = ["npm", "pack", pinned, "--silent"]
            done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        except FileNotFoundError:
            raise UserError(f"{_option()} needs npm to fetch {pinned}; received none; {remedy}") from None
        if done.returncode:
            last_words = " ".join(done.stderr.split()[-30:]) or "nothing"
            raise UserError(f"{_option()} needs {pinned}; npm said: {last_words}; {remedy}")
        content = Path(folder, package.archive).read_bytes()
    if (digest := hashlib.sha256(content).hexdigest()) != package.sha256:
        raise UserError(f"{package.archive} must have the sha256 {package.sha256}; received {digest}; {remedy}")
    archive.parent.mkdir(parents=True, exist_ok=True)
    files.write_bytes(archive, content)
    return archive
