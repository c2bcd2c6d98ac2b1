"""Downloads models by name from Hugging Face's hub into the cache that its client shares with other programs.

Nothing from the hub is executed. `HF_HOME`, `HF_HUB_OFFLINE`, `HF_ENDPOINT` and `HF_TOKEN` apply.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pocketbert.errors import UserError
from pocketbert.files import write_text
from pocketbert.hub.files import MODULES_NAME, has_weights, select_files
from pocketbert.hub.names import HubName, is_commit, is_hub_name, joined, license_of, name_of, parse_hub_name
from pocketbert.progress import log_info

_SECONDS = 10
# Without a token, the hub does not tell one from the other.
_UNKNOWN = "the hub has no such model, or it is private", "check the name and HF_TOKEN"
# Folder → revision in the name that this process resolved to it.
_revisions: dict[Path, str] = {}


class _Failed(Exception):
    """The client failed, for a reason with a remedy."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason, self.remedy = reason, remedy


def local(model: Any, pinned: Mapping[str, str] = {}) -> Any:
    """Returns the folder for a model on the hub, downloaded if necessary; anything else as it is.

    Args:
      model: a name such as `hf:ORG/NAME`, or another model.
      pinned: name → commit, from a run to resume (`run_folder.pinned_commits`).
    Raises:
      UserError: as for `download`.
    """
    return download(os.fspath(model), pinned) if is_hub_name(model) else model


def origin(folder: str | os.PathLike[str]) -> dict[str, str | None] | None:
    """Returns a downloaded model's `name` with its commit, requested `revision` and `license`; None for other folders.

    A process that did not resolve the name itself records the commit as the revision.
    """
    path = Path(folder).resolve()
    name = name_of(path)
    if name is None:
        return None
    return {"name": str(name), "revision": _revisions.get(path, name.revision), "license": license_of(path)}


def download(text: str, pinned: Mapping[str, str] = {}, *, keras: bool = False) -> Path:
    """Returns the folder with a model's files, from the cache or the hub.

    If the hub does not answer, a complete model in the cache is used; a log line says so.

    Args:
      text: `hf:ORG/NAME` or `hf:ORG/NAME@REVISION`.
      pinned: as for `local`.
      keras: whether `tf_model.h5` may replace missing safetensors.
    Returns:
      The commit's folder in the cache. Do not write to it.
    Raises:
      UserError: the name is invalid, the hub's client is missing, the hub has no such model or does not show it, the
        model has no suitable weights, or there is neither a connection nor a copy in the cache.
    """
    name = parse_hub_name(text)
    try:
        import huggingface_hub
    except ImportError:
        raise UserError(f"{name} needs the hub's client, huggingface_hub; run pip install 'pocketbert[hub]'") from None
    exact = HubName(name.repository, pinned.get(str(name), name.revision))
    if exact != name:
        log_info(f"{name}: resuming the run with its commit, {exact.revision}")
    try:
        folder = _download(huggingface_hub, exact, keras=keras)
    except _Failed as failure:
        folder = _cached(exact, failure, keras=keras)
    _revisions[folder.resolve()] = name.revision
    return folder


def _download(client: Any, name: HubName, *, keras: bool) -> Path:
    """Resolves a name to a commit, and downloads what the cache lacks."""
    with _failures(name):
        info = client.HfApi().model_info(name.repository, revision=name.revision, files_metadata=True, timeout=_SECONDS)
    if not is_commit(info.sha) or (is_commit(name.revision) and info.sha != name.revision):
        raise UserError(f"{name}: the hub must answer with the model's commit; received {info.sha!r:.60}; try later")
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    repository = _repository_folder(name)
    snapshot = repository / "snapshots" / info.sha

    def get(file: str) -> None:
        with _failures(name):
            path = client.hf_hub_download(name.repository, file, revision=info.sha, etag_timeout=_SECONDS)
        if Path(path) != snapshot / file:
            raise UserError(f"{name}: the hub must answer for commit {info.sha}; received {path}; try later")

    if MODULES_NAME in sizes:
        get(MODULES_NAME)
    files = select_files(name, sizes, snapshot / MODULES_NAME, keras=keras)
    missing = [file for file in files if not (snapshot / file).exists()]
    if missing:
        size = f"{sum(sizes[file] for file in missing) / 1e6:,.1f} MB"
        licence = joined(getattr(info.card_data, "license", None)) or "unknown"
        exact = HubName(name.repository, info.sha)
        log_info(f"downloading {exact}: {size} in {len(missing)} files, licence {licence}, into {repository}")
    for file in missing:
        get(file)
    # For use without a connection. Only now, so that they name a complete snapshot.
    records = {_mark(repository, info.sha): ""}
    if not is_commit(name.revision):
        records[repository / "refs" / name.revision] = info.sha
    # A shared cache may be read-only; now there is a connection.
    with contextlib.suppress(OSError, UserError):
        for path, content in records.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, content)
    return snapshot


def _mark(repository: Path, commit: str) -> Path:
    """A file that says that `_download` has completed a commit's snapshot."""
    return repository / "pocketbert" / commit


def _cached(name: HubName, failure: _Failed, *, keras: bool) -> Path:
    """Returns a complete model in the cache after a failure; raises a `UserError` without one."""
    repository = _repository_folder(name)
    ref = repository / "refs" / name.revision
    commit = ref.read_text(encoding="utf-8") if ref.is_file() else name.revision
    snapshot = repository / "snapshots" / commit
    if not is_commit(commit) or not snapshot.is_dir():
        copy = f"the cache in {repository.parent} has no copy"
    elif not has_weights(snapshot, keras=keras):
        copy = f"the copy in {snapshot} is incomplete"
    else:
        hint = (
            ""
            if _mark(repository, commit).exists()
            else "; another program downloaded it, perhaps without tokenizer or pooling; connect once to complete it"
        )
        log_info(f"{name}: {failure.reason}; using commit {commit} from the cache{hint}")
        return snapshot
    raise UserError(f"{name}: {failure.reason}, and {copy}; {failure.remedy}")


def _repository_folder(name: HubName) -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / f"models--{name.repository.replace('/', '--')}"


@contextlib.contextmanager
def _failures(name: HubName) -> Iterator[None]:
    """Turns the client's errors into `_Failed`."""
    from huggingface_hub import errors

    try:
        yield
    except errors.OfflineModeIsEnabled:
        raise _Failed("HF_HUB_OFFLINE forbids connections", "unset it and repeat the command") from None
    except errors.GatedRepoError:
        page = f"https://huggingface.co/{name.repository}"
        raise _Failed("the model is gated", f"accept its terms on {page} and set HF_TOKEN") from None
    except errors.RepositoryNotFoundError:
        raise _Failed(*_UNKNOWN) from None
    except errors.RevisionNotFoundError:
        raise _Failed(f"the model has no revision {name.revision}", "check the name behind @") from None
    except errors.LocalEntryNotFoundError as error:
        # The cause of a file's first request has the message.
        raise _Failed(_broken(error.__cause__ or error), "check the connection") from None
    except errors.HfHubHTTPError as error:
        # The client knows the hub's 401 by the address of the public one alone.
        status = getattr(error.response, "status_code", "unknown")
        answered = f"the hub answered with status {status}", "try later"
        raise _Failed(*(_UNKNOWN if status == 401 else answered)) from None
    except (OSError, ValueError) as error:
        # From several libraries; only an error of the system has a number.
        if isinstance(error, OSError) and error.errno is not None:
            reason = f"the cache must be a writable folder with space; received the error {error.strerror}"
            raise _Failed(reason, "set HF_HOME to another folder") from None
        raise _Failed(_broken(error), "check the connection") from None


def _broken(error: BaseException) -> str:
    return f"the connection to the hub failed ({' '.join(str(error).split())[:200]})"
