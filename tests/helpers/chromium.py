"""Headless Chromium, driven over the DevTools protocol on pipes."""

from __future__ import annotations

import contextlib
import functools
import http.server
import itertools
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_SECONDS = 60.0


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript"}

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serves a folder on this machine; yields its address."""
    handler = functools.partial(_QuietHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextlib.contextmanager
def opened(folder: Path, profile: Path) -> Iterator[Browser]:
    """Serves a folder and opens its index.html; yields the browser."""
    with served(folder) as address:
        browser = Browser(profile)
        try:
            browser.call("Page.navigate", url=f"{address}/index.html")
            browser.address = address
            yield browser
        finally:
            browser.close()


class Browser:
    """One page in a new profile.

    Attributes:
      requests: addresses of all requests so far.
      log: messages and uncaught errors so far.
      address: of the server, for tests.
    """

    def __init__(self, profile: Path) -> None:
        assert PROGRAM is not None
        commands, self._commands = os.pipe()
        self._events, events = os.pipe()

        def connect() -> None:
            # Chromium reads from 3 and writes to 4; either may be one of the others' numbers.
            reading, writing = os.dup(commands), os.dup(events)
            high = [os.dup(descriptor) for descriptor in (reading, writing)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self._process = subprocess.Popen(
            [
                PROGRAM,
                *"--headless=new --no-sandbox --disable-gpu --no-first-run --disable-background-networking".split(),
                "--remote-debugging-pipe",
                f"--user-data-dir={profile}",
            ],
            close_fds=False,
            preexec_fn=connect,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(events)
        self._numbers, self._received, self._rest = itertools.count(1), [], b""
        self.requests: list[str] = []
        self.log: list[str] = []
        self.address = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    _session: str | None = None

    def call(self, method: str, **parameters: Any) -> Any:
        """Calls a method and returns its result."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page, or of the promise that it gives."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """Waits until an expression is true and returns its value."""
        end = time.monotonic() + _SECONDS
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < end, f"{expression} stays {value!r}; {self.log}"
            time.sleep(0.05)
        return value

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._commands)
        os.close(self._events)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._events, 1 << 16)
            assert part, "Chromium ended"
            self._rest += part
        line, self._rest = self._rest.split(b"\0", 1)
        message = json.loads(line)
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])
        if message.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
            self.log.append(json.dumps(message["params"])[:500])
        return message
