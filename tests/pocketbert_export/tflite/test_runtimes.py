"""Runtimes, judged on answers that are worked out by hand."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import handmade
import numpy as np
import old_runtime
import pytest

from pocketbert.errors import UserError
from pocketbert_export.tflite import interpreter_process, runtimes
from pocketbert_export.tflite.environments import LockedEnvironment
from pocketbert_export.tflite.runtimes import LITERT, RUNTIMES, TFLITE_2_16, RuntimeRefused, run

# 9 tokens of WIDTH=360 products: about sqrt(9·360)·2^-24·60, 60 being a usual logit here.
TOLERANCE = 5e-4


@pytest.fixture(params=list(RUNTIMES))
def runtime(request: pytest.FixtureRequest) -> str:
    """Every runtime; the old one where its environment exists already, and with CI=true, where it is made."""
    if request.param == TFLITE_2_16 and not old_runtime.is_here():
        pytest.skip("TFLite 2.16.1 has no environment here; pocketbert verify --runtime=tflite-2.16 makes one")
    return request.param


def batches() -> dict[str, dict[str, np.ndarray]]:
    return {f"length_{length}": handmade.rows(length, count) for length, count in zip((5, 9), (4, 3), strict=True)}


@pytest.mark.one_of_each("litert")
def test_answers(runtime: str, tmp_path: Path) -> None:
    model = handmade.write(tmp_path / "bag.tflite", handmade.Bag())
    ran = run(runtime, model, batches())
    assert ran.version.startswith({LITERT: "2.", TFLITE_2_16: "2.16.1"}[runtime])
    for signature, batch in batches().items():
        np.testing.assert_allclose(ran.answers[signature]["logits"], handmade.truth(batch), atol=TOLERANCE)


def test_version_needs_no_package_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    # In this process, where metadata can be hidden; the runtime itself has a child process.
    monkeypatch.setattr(importlib.metadata.MetadataPathFinder, "find_distributions", lambda *_: iter(()))
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("ai-edge-litert")
    assert interpreter_process._interpreter("litert")[0].startswith("2.")


@pytest.mark.parametrize("foreign", ["flex", "custom"])
def test_refuses_foreign_operators(foreign: str, tmp_path: Path) -> None:
    model = handmade.write(tmp_path / "foreign.tflite", handmade.Bag(foreign=foreign))
    with pytest.raises(RuntimeRefused, match="litert ended with code 1.*(MatrixInverse|Erfinv)"):
        run(LITERT, model, batches())


@pytest.mark.one_of_each("litert")
def test_old_runtime_refuses_channelwise_int8(runtime: str, tmp_path: Path) -> None:
    model = handmade.write(tmp_path / "int8.tflite", handmade.Bag(), int8=True)
    if runtime == LITERT:
        answers = run(runtime, model, batches()).answers["length_9"]["logits"]
        # int8 keeps about 1 % of logits near 60.
        np.testing.assert_allclose(answers, handmade.truth(batches()["length_9"]), atol=6)
    else:
        with pytest.raises(RuntimeRefused, match="FULLY_CONNECTED.*version"):
            run(runtime, model, batches())


def test_damaged_file_crashes_only_its_process(tmp_path: Path) -> None:
    model = handmade.write(tmp_path / "bag.tflite", handmade.Bag())
    model.write_bytes(model.read_bytes()[:600])
    with pytest.raises(RuntimeRefused, match="litert ended with code"):
        run(LITERT, model, batches())


def test_unknown_signature_is_refused(tmp_path: Path) -> None:
    model = handmade.write(tmp_path / "bag.tflite", handmade.Bag())
    with pytest.raises(RuntimeRefused, match="length_6"):
        run(LITERT, model, {"length_6": handmade.rows(6, 2)})


def test_unknown_runtime() -> None:
    with pytest.raises(UserError, match="litert, tflite-2.16; received 'tflite-1.0'"):
        run("tflite-1.0", "model.tflite", {})


@pytest.fixture
def python_3_13(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs as Python 3.13 where only the returned folder is on PATH."""
    monkeypatch.setattr(runtimes.sys, "version_info", (3, 13, 0))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return tmp_path


def fake_python(path: Path, code: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nexit {code}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_old_runtime_uses_an_older_python(python_3_13: Path) -> None:
    fake_python(python_3_13 / "python3.12", 127)
    expected = fake_python(python_3_13 / "pyenv/versions/3.11.7/bin/python3", 0)
    assert runtimes._python_for_tflite_2_16() == str(expected)


def test_old_runtime_without_an_older_python(python_3_13: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POCKETBERT_CACHE", str(python_3_13 / "cache"))
    with pytest.raises(UserError, match="needs Python 3.11 or 3.12 with venv.*Python 3.13; .*use runtime='litert'"):
        runtimes.tflite_2_16().python()


@pytest.mark.nightly
def test_failed_pip_leaves_no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "wrong.lock"
    lock.write_text("numpy==1.26.4 --hash=sha256:" + "0" * 64 + "\n", encoding="utf-8")
    monkeypatch.setattr(runtimes, "LOCK_FILE", lock)
    monkeypatch.setenv("POCKETBERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(UserError, match="tflite-2.16 needs tensorflow-cpu 2.16.1.*pip said"):
        runtimes.tflite_2_16().python()
    assert not runtimes.tflite_2_16().exists


FULL_DISK = "#!/bin/sh\necho No space left on device\nexit 1\n"
# In place of Python: `-m venv FOLDER` puts the first Python, which then runs pip, into the folder.
MAKES_ONE_THAT_FAILS = '#!/bin/sh\nmkdir -p "$3/bin" && cp "${0%/*}/failing" "$3/bin/python"\n'


@pytest.mark.parametrize(("step", "script"), [("venv", FULL_DISK), ("pip", MAKES_ONE_THAT_FAILS)])
def test_failed_step_is_one_line(step: str, script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POCKETBERT_CACHE", str(tmp_path))
    for name, content in (("python", script), ("failing", FULL_DISK)):
        (tmp_path / name).write_text(content, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    python = str(tmp_path / "python")
    environment = LockedEnvironment(
        name="old", lock=runtimes.LOCK_FILE, package="numpy 1", download="1 MB", base=lambda: python
    )
    with pytest.raises(UserError, match=rf"old needs numpy 1 in \S+; {step} said: No space left on device$"):
        environment.python()
    assert not environment.exists
