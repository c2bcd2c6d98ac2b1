"""A stand-in for Hugging Face's hub: the requests of its client for models, on this machine.

From the sources of huggingface_hub 0.36: `GET /api/models/ORG/NAME/revision/REVISION` gives commit, files and card
metadata; `HEAD` and `GET /ORG/NAME/resolve/COMMIT/FILE` give a file with its ETag and commit. The header `X-Error-Code`
tells what is missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import re
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tiny_models import SENTIMENT, random_tensors, tiny_bert

from pocketbert.checkpoints.directory import write_directory
from pocketbert.configs import TokenizerConfig
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

_INFO = re.compile(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?")
_FILE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


@dataclass
class Repository:
    """One model.

    Attributes:
      commits: commit → path → content.
      branches: branch or tag → commit.
      gated: whether its files need permission.
      listed: further names in the list of files, which no honest hub has.
      answers: another status for everything, or 0.
      sha: another commit in the answer, or empty.
    """

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    gated: bool = False
    listed: tuple[str, ...] = ()
    status: int = 0
    sha: str = ""


@dataclass
class Hub:
    """The models, and the client's requests.

    Attributes:
      endpoint: address for `HF_ENDPOINT`.
      repositories: name → model.
      requests: method and path of each request.
      cut: file whose content ends too early, or empty.
    """

    endpoint: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    cut: str = ""

    def push(self, name: str, files: Path | Mapping[str, bytes], branch: str = "main") -> str:
        """Commits a folder's files to a branch; returns the commit."""
        if isinstance(files, Path):
            paths = [path for path in files.rglob("*") if path.is_file()]
            files = {path.relative_to(files).as_posix(): path.read_bytes() for path in paths}
        digest = hashlib.sha1(name.encode())
        for path, content in sorted(files.items()):
            digest.update(path.encode() + b"\0" + content)
        commit = digest.hexdigest()
        repository = self.repositories.setdefault(name, Repository())
        repository.commits[commit] = dict(files)
        repository.branches[branch] = commit
        return commit

    def files(self) -> list[str]:
        """The files whose content was requested, in order."""
        return [match[3] for request in self.requests if (match := re.fullmatch(f"GET {_FILE.pattern}", request))]


@contextlib.contextmanager
def serve() -> Iterator[Hub]:
    """Serves a hub on a free port."""
    hub = Hub()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(with_content=True)

        def do_HEAD(self) -> None:
            self._answer(with_content=False)

        def log_message(self, *_: Any) -> None:
            pass

        def _answer(self, *, with_content: bool) -> None:
            path = urllib.parse.unquote(self.path.partition("?")[0])
            hub.requests.append(f"{self.command} {path}")
            info, file = _INFO.fullmatch(path), _FILE.fullmatch(path)
            match = info or file
            assert match is not None, path
            repository = hub.repositories.get(match[1])
            if repository is None:
                # As the hub answers without a token, which must not tell whether there is a private model.
                return self._send(401, {"X-Error-Message": "Invalid username or password."})
            if repository.status:
                return self._send(repository.status, {})
            revision = match[2] or "main"
            commit = repository.branches.get(revision, revision)
            if commit not in repository.commits:
                return self._send(404, {"X-Error-Code": "RevisionNotFound"})
            files = repository.commits[commit]
            if info:
                return self._send(200, {}, json.dumps(self._info(match[1], repository, commit)).encode())
            assert file is not None
            if repository.gated:
                return self._send(403, {"X-Error-Code": "GatedRepo"})
            if file[3] not in files:
                return self._send(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
            content = files[file[3]]
            headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": commit}
            sent = content[: len(content) // 2] if file[3] == hub.cut else content
            self._send(200, headers, sent if with_content else b"", len(content))

        def _info(self, name: str, repository: Repository, commit: str) -> dict[str, Any]:
            files = repository.commits[commit]
            card = files.get("README.md", b"").decode().split("---\n")
            siblings = [{"rfilename": path, "size": len(content)} for path, content in files.items()]
            siblings += [{"rfilename": path, "size": 1} for path in repository.listed]
            metadata = {"cardData": yaml.safe_load(card[1])} if len(card) > 2 else {}
            return {"id": name, "sha": repository.sha or commit, "siblings": siblings, **metadata}

        def _send(self, status: int, headers: Mapping[str, str], content: bytes = b"", size: int | None = None) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content) if size is None else size))
            self.end_headers()
            self.wfile.write(content)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()


def connect(monkeypatch: Any, endpoint: str, cache: Path, *, offline: bool = False) -> None:
    """Points the client in this process to a hub and a cache, as its environment variables do at import."""
    import huggingface_hub
    from huggingface_hub import constants, file_download

    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    template = f"{endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(file_download, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    huggingface_hub.utils.reset_sessions()


def write_model(folder: Path, **sizes: int) -> Path:
    """A classifier's directory, without TensorFlow."""
    config = tiny_bert(**sizes)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "warm", "cold", "film"]
    words += [f"filler{number}" for number in range(config.vocab_size - len(words))]
    path = folder.with_name(f"{folder.name}-vocab.txt")
    path.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    vocabulary = Vocabulary(path=path, config=TokenizerConfig())
    write_directory(folder, config, (SENTIMENT,), random_tensors(config, (SENTIMENT,)), vocabulary)
    return folder
