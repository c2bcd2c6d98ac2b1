"""An adb server with phones that are not there, for the real adb client: Android's wire protocol over a socket.

Protocol: system/core/adb/OVERVIEW.TXT, SERVICES.TXT and SYNC.TXT of Android. A request is four hexadecimal digits of
length and its text; the answer begins with OKAY or FAIL. `shell,v2` carries packets of one byte of stream number, four
of length and the bytes; `sync:` carries four letters, a length and the bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shlex
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

APPLICATION = "org.pocketbert.benchmark"
FILES = f"/sdcard/Android/data/{APPLICATION}/files"
APK = f"/data/app/~~x==/{APPLICATION}-y==/base.apk"
# As adb 1.0.41 says it: a client asks for it first, and replaces a server of another version.
VERSION = b"0029"
STDOUT, STDERR, EXIT = 1, 2, 3

# What the app does with a run: gets the extras and `say`, gives the text of the result file or None.
App = Callable[["FakePhone", dict[str, str], Callable[..., None]], str | None]


class Dropped(Exception):
    """The connection breaks here."""


class FakePhone:
    """A phone: properties, files, one app, a log; and what goes wrong with it.

    Attributes:
      state: what `adb devices` shows; None: it is not connected.
      files: path → content.
      drops: service (`push`, `pull`, `logcat`, `install`, or a shell's command) → how many more times its connection
        breaks off halfway.
      unplug_at: the service at which, halfway, the phone is unplugged.
      spoils: whether files arrive with a byte changed.
      log_delay: seconds by which the log's stream is late.
      room: bytes that its storage still takes.
      commands: everything that its shell was asked.
      starts: the extras of every run.
    """

    def __init__(self, serial: str, app: App, *, installed: bytes | None = b"an apk", **properties: str) -> None:
        self.serial = serial
        self.app = app
        self.state: str | None = "device"
        self.properties = {
            "ro.build.version.sdk": "33",
            "ro.build.version.release": "13",
            "ro.product.cpu.abilist": "arm64-v8a,armeabi-v7a",
            "ro.product.model": "Pixel 4",
            "ro.build.fingerprint": "google/flame/flame:13/TQ/1:user/release-keys",
            **properties,
        }
        self.files: dict[str, bytes] = {} if installed is None else {APK: installed}
        self.drops: dict[str, int] = {}
        self.unplug_at: str | None = None
        self.spoils = False
        self.log_delay = 0.0
        self.room = 10**9
        self.install_error: str | None = None
        self.commands: list[str] = []
        self.pushed: list[str] = []
        self.starts: list[dict[str, str]] = []
        self.log: list[str] = ["a line of another time"]
        self.running = False
        self.lock = threading.Condition()

    def breaks(self, service: str) -> None:
        """Breaks the connection off, if that is due."""
        if self.unplug_at == service:
            self.unplug_at, self.state = None, None
            with self.lock:
                self.lock.notify_all()
            raise Dropped
        if self.drops.get(service, 0):
            self.drops[service] -= 1
            raise Dropped

    def write(self, path: str, content: bytes) -> str | None:
        """Puts a file there; what is wrong if it cannot."""
        if len(content) > self.room:
            return "write failed: No space left on device"
        self.room -= len(content)
        self.files[path] = content
        return None

    def say(self, run: str | None, state: str, done: int = 0, of: int = 1, **more: str | None) -> None:
        """Writes the app's line to the log."""
        line = {"run": run, "state": state, "done": done, "of": of, "reason": None, "result": None, **more}
        with self.lock:
            self.log.append(json.dumps(line))
            self.lock.notify_all()

    def command(self, text: str) -> tuple[int, str, str]:
        """Runs a shell command: exit code, stdout, stderr."""
        self.commands.append(text)
        name, *words = shlex.split(text)
        if name == "getprop":
            return 0, "".join(f"[{key}]: [{value}]\n" for key, value in self.properties.items()), ""
        if name == "sha256sum":
            paths = [path for path in words if path in self.files]
            lines = [f"{hashlib.sha256(self.files[path]).hexdigest()}  {path}\n" for path in paths]
            missing = [f"sha256sum: {path}: No such file or directory\n" for path in words if path not in paths]
            return int(bool(missing)), "".join(lines), "".join(missing)
        if (name, words[0]) == ("pm", "path"):
            return (0, f"package:{APK}\n", "") if APK in self.files else (1, "", "")
        if (name, words[0]) == ("am", "start"):
            return self._start(words)
        if (name, words[0]) == ("am", "force-stop"):
            self.running = False
        if name == "pidof":
            return (0, "4711\n", "") if self.running and words == [f"{APPLICATION}:measure"] else (1, "", "")
        if name == "rm":
            self.files = {path: content for path, content in self.files.items() if not path.startswith(words[-1] + "/")}
        if name == "sh":
            prefix = words[1].split()[-1].split("*")[0]
            self.files = {path: content for path, content in self.files.items() if not path.startswith(prefix)}
        if name == "logcat":
            return 0, "".join(f"{line}\n" for line in self.log), ""
        assert name in ("am", "rm", "sh", "mkdir", "input", "wm"), text
        return 0, "", ""

    def _start(self, words: list[str]) -> tuple[int, str, str]:
        component = words[words.index("-n") + 1]
        if APK not in self.files:
            return 0, f"Error type 3\nError: Activity class {{{component}}} does not exist.\n", ""
        if component.endswith(".BenchmarkActivity"):
            flags = range(words.index("-n") + 2, len(words), 3)
            assert all(words[flag] in ("--es", "--ei") for flag in flags)
            extras = {words[flag + 1]: words[flag + 2] for flag in flags}
            self.starts.append(extras)
            assert not self.running, "the app measures already"
            self.running = True
            threading.Thread(target=self._run, args=(extras,), daemon=True).start()
        return 0, "Status: ok\nComplete\n", ""

    def _run(self, extras: dict[str, str]) -> None:
        run = extras["run"]

        def say(state: str, done: int = 0, of: int = 1, **more: str | None) -> None:
            self.say(run, state, done, of, **more)

        result = self.app(self, extras, say)
        if result is not None:
            self.files[f"{FILES}/results/{run}.json"] = result.encode()
            failed = None
            with contextlib.suppress(ValueError, LookupError):
                failed = json.loads(result)["measurements"][0]["error"]
            say("failed" if failed else "done", 1, reason=failed, result=f"{run}.json")
        self.running = False


class FakeServer:
    """The server; a context in which `port` takes connections."""

    def __init__(self, *phones: FakePhone) -> None:
        self.phones = {phone.serial: phone for phone in phones}
        self.requests: list[str] = []
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(Dropped, ConnectionError):
                    _Connection(outer, self.request).serve()

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]

    def __enter__(self) -> FakeServer:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Connection:
    """One client's connection."""

    def __init__(self, server: FakeServer, stream: socket.socket) -> None:
        self._server = server
        self._stream = stream
        self._phone: FakePhone | None = None

    def serve(self) -> None:
        request = self._request()
        # A phone in the network has a colon in its name.
        if serial := re.match("host:transport:|host:tport:serial:", request):
            if self._chosen(request[serial.end() :]):
                self._stream.sendall(b"OKAY" + (struct.pack("<Q", 1) if "tport" in request else b""))
                assert self._phone
                self._service(self._phone, self._request())
        elif request.startswith("host-serial:"):
            name, _, what = request.removeprefix("host-serial:").rpartition(":")
            if self._chosen(name):
                assert self._phone
                self._okay({"features": b"shell_v2,cmd", "get-state": (self._phone.state or "").encode()}[what])
        else:
            shown = [(phone.serial, phone.state) for phone in self._server.phones.values() if phone.state]
            listing = "".join(f"{serial}\t{state}\n" for serial, state in shown).encode()
            self._okay(
                {"host:version": VERSION, "host:devices": listing, "host:host-features": b"shell_v2,cmd"}[request]
            )

    def _chosen(self, serial: str) -> bool:
        phone = self._server.phones.get(serial)
        if not phone or not phone.state:
            self._fail(f"device '{serial}' not found")
            return False
        if phone.state != "device":
            self._fail(f"device {phone.state}")
            return False
        self._phone = phone
        return True

    def _service(self, phone: FakePhone, request: str) -> None:
        self._server.requests.append(request)
        self._stream.sendall(b"OKAY")
        if request.startswith("shell,v2"):
            command = request.partition(":")[2]
            if command.startswith("logcat") and not command.endswith(" -d"):
                self._follow_log(phone)
            else:
                phone.breaks(command.split()[0])
                code, out, err = phone.command(command)
                for number, text in ((STDOUT, out.encode()), (STDERR, err.encode()), (EXIT, bytes([code]))):
                    if text:
                        self._packet(number, text)
        elif request.startswith("exec:cmd package"):
            size = int(shlex.split(request)[-1])
            phone.breaks("install")
            content = self._exactly(size)
            error = phone.install_error or phone.write(APK, content)
            self._stream.sendall(f"Failure [{error}]\n".encode() if error else b"Success\n")
        elif request == "sync:":
            self._sync(phone)
        else:
            raise AssertionError(f"not spoken here: {request}")

    def _follow_log(self, phone: FakePhone) -> None:
        shown = 0
        while phone.state == "device":
            with phone.lock:
                if shown == len(phone.log):
                    phone.lock.wait(0.2)
                lines, shown = phone.log[shown:], len(phone.log)
            time.sleep(phone.log_delay)
            for line in lines:
                if '"measuring"' in line:
                    # Half a line is on its way when the connection breaks.
                    try:
                        phone.breaks("logcat")
                    except Dropped:
                        self._packet(STDOUT, line[:20].encode())
                        raise
                self._packet(STDOUT, f"{line}\n".encode())
            self._packet(STDOUT, b"")

    def _sync(self, phone: FakePhone) -> None:
        while True:
            kind, size = self._head()
            if kind == b"QUIT":
                return
            text = self._exactly(size).decode()
            if kind == b"STAT":
                content = phone.files.get(text)
                status = (0o100644, len(content), 1) if content is not None else (0, 0, 0)
                self._stream.sendall(b"STAT" + struct.pack("<III", *status))
            elif kind == b"SEND":
                self._receive_file(phone, text.rpartition(",")[0])
            elif kind == b"RECV":
                content = phone.files[text]
                try:
                    phone.breaks("pull")
                except Dropped:
                    self._stream.sendall(b"DATA" + struct.pack("<I", len(content)) + content[: len(content) // 2])
                    raise
                self._stream.sendall(b"DATA" + struct.pack("<I", len(content)) + content + b"DONE\0\0\0\0")
            else:
                raise AssertionError(f"not spoken here: {kind!r}")

    def _receive_file(self, phone: FakePhone, path: str) -> None:
        content = b""
        while (head := self._head())[0] == b"DATA":
            content += self._exactly(head[1])
            if len(content) > 1000:
                # What arrived before stays on the phone, as with the real one.
                try:
                    phone.breaks("push")
                except Dropped:
                    phone.files[path] = content[: len(content) // 2]
                    raise
        assert head[0] == b"DONE"
        phone.pushed.append(path)
        error = phone.write(path, b"x" + content[1:] if phone.spoils else content)
        answer = error.encode() if error else b""
        self._stream.sendall((b"FAIL" if error else b"OKAY") + struct.pack("<I", len(answer)) + answer)

    def _request(self) -> str:
        head = self._stream.recv(4)
        if len(head) < 4:
            return ""
        return self._exactly(int(head, 16)).decode()

    def _head(self) -> tuple[bytes, int]:
        head = self._exactly(8)
        return head[:4], struct.unpack("<I", head[4:])[0]

    def _exactly(self, count: int) -> bytes:
        content = b""
        while len(content) < count:
            piece = self._stream.recv(min(count - len(content), 65536))
            if not piece:
                raise Dropped
            content += piece
        return content

    def _okay(self, text: bytes) -> None:
        self._stream.sendall(b"OKAY" + f"{len(text):04x}".encode() + text)

    def _fail(self, text: str) -> None:
        self._stream.sendall(b"FAIL" + f"{len(text):04x}".encode() + text.encode())

    def _packet(self, number: int, text: bytes) -> None:
        self._stream.sendall(struct.pack("<BI", number, len(text)) + text)


def ending(result: Callable[[FakePhone, dict[str, str]], Any]) -> App:
    """An app that says what the real one says and gives this result file's content, or a text that is none."""

    def app(phone: FakePhone, extras: dict[str, str], say: Callable[..., None]) -> str | None:
        for state in ("started", "checking", "warming_up", "measuring"):
            say(state)
            time.sleep(0.01)
        content = result(phone, extras)
        return content if isinstance(content, str) else json.dumps(content)

    return app
