"""Phones, the app and bundles before anything is measured: what cannot be used is named, all of it, in a sentence."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from fake_adb import APK, FakePhone
from phone_runs import BUNDLE, SERIAL, Changes, good

from pocketbert import cli
from pocketbert_bench import adb


def test_other_app_build_is_replaced(connect: Any, bench: Any, tmp_path: Path) -> None:
    apk = tmp_path / "app.apk"
    apk.write_bytes(b"an apk")
    same, other, bare = (
        FakePhone(name, good, installed=installed)
        for name, installed in (("A", b"an apk"), ("B", b"older"), ("C", None))
    )
    server = connect(same, other, bare)
    code, _, err = bench("--repeats=1", f"--apk={apk}", serials="A,B,C")
    assert code == 0 and err.count("installing app.apk") == 2
    assert sum(request.startswith("exec:cmd package") for request in server.requests) == 2
    assert same.files == other.files == bare.files == {APK: b"an apk"}
    # A new build must not continue what another began.
    apk.write_bytes(b"a new build")
    code, out, _ = bench("--repeats=1", f"--apk={apk}", serials="A", bundle=BUNDLE)
    assert code == 0 and len(same.starts) == 2
    next((tmp_path / "out").glob("*/configuration_0*.json")).unlink()
    phones = [bench("--repeats=1", f"--apk={apk}", serials=serial) for serial in "ABC"]
    assert sum(code == 1 and "has another app than before" in out for code, out, _ in phones) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"installed": None}, "build it with make android and name it by --apk"),
        ({"installed": None, "error": "INSTALL_FAILED_INSUFFICIENT_STORAGE"}, "the phone's storage is full"),
        ({"error": "INSTALL_FAILED_UPDATE_INCOMPATIBLE: signatures do not match"}, "adb uninstall org.pocketbert"),
        ({"error": "INSTALL_FAILED_VERIFICATION_FAILURE"}, "INSTALL_FAILED_VERIFICATION_FAILURE"),
    ],
)
def test_an_app_that_cannot_be_installed(
    connect: Any, bench: Any, tmp_path: Path, changes: Changes, message: str
) -> None:
    error = changes.pop("error", None)
    phone = FakePhone(SERIAL, good, **changes)
    phone.install_error = error
    server = connect(phone)
    (tmp_path / "app.apk").write_bytes(b"a new one")
    code, out, _ = bench(*([f"--apk={tmp_path / 'app.apk'}"] if error else []))
    assert code == 1 and message in out and not phone.starts
    assert sum(request.startswith("exec:cmd package") for request in server.requests) == (1 if error else 0)


@pytest.mark.nightly
def test_broken_install_is_retried(connect: Any, bench: Any, tmp_path: Path) -> None:
    phone = FakePhone(SERIAL, good, installed=None)
    phone.drops = {"install": 2}
    connect(phone)
    (tmp_path / "app.apk").write_bytes(b"an apk")
    assert bench("--repeats=1", f"--apk={tmp_path / 'app.apk'}")[0] == 0
    assert phone.drops["install"] == 0 and phone.files == {APK: b"an apk"}


def test_same_phone_twice_is_refused(connect: Any, bench: Any, tmp_path: Path) -> None:
    properties = {"ro.serialno": "9A231FFAZ00123"}
    cable, network = (FakePhone(name, good, **properties) for name in ("9A231FFAZ00123", "192.0.2.7:5555"))
    connect(cable, network)
    code, _, err = bench("--repeats=1", serials="9A231FFAZ00123,192.0.2.7:5555")
    assert code == 2 and "9A231FFAZ00123 and 192.0.2.7:5555 are one phone" in err and not cable.starts
    # A run started by cable resumes by network.
    assert bench("--repeats=1", serials="9A231FFAZ00123")[0] == 0
    assert bench("--repeats=1", serials="192.0.2.7:5555")[0] == 0
    assert cable.starts and not network.starts


def test_all_unusable_phones_are_listed_first(connect: Any, bench: Any) -> None:
    phones = {
        "GOOD": {},
        "OLD": {"ro.build.version.sdk": "25", "ro.build.version.release": "7.1.2"},
        "THIN": {"ro.product.cpu.abilist": "armeabi-v7a,armeabi"},
    }
    fakes = {name: FakePhone(name, good, **changes) for name, changes in phones.items()}
    locked, lost = FakePhone("LOCKED", good), FakePhone("LOST", good)
    locked.state, lost.state = "unauthorized", "offline"
    connect(*fakes.values(), locked, lost)
    code, _, err = bench(serials="GOOD,LOCKED,LOST,NOBODY")
    assert code == 2 and err.count("\n") == 1
    assert "LOCKED is unauthorized; unlock it and allow USB debugging" in err
    assert "LOST is offline; reconnect its cable" in err
    assert "NOBODY must be connected; adb lists GOOD, OLD, THIN, LOCKED, LOST" in err
    code, _, err = bench(serials="GOOD,OLD,THIN")
    assert code == 2 and "OLD must have Android 8.0 (API 26) or newer; it has 7.1.2 (API 25)" in err
    assert "THIN must run arm64-v8a code; it runs armeabi-v7a,armeabi" in err
    assert not fakes["GOOD"].starts and not fakes["GOOD"].pushed


def test_damaged_bundle_is_reported_not_pushed(connect: Any, bench: Any, tmp_path: Path) -> None:
    phone = FakePhone(SERIAL, good)
    connect(phone)
    damaged = shutil.copytree(BUNDLE, tmp_path / "damaged")
    (damaged / "vocab.txt").write_text("other\n", encoding="utf-8")
    code, out, _ = bench(str(damaged), "--lengths=9", "--repeats=1")
    assert code == 1 and "vocab.txt must have" in out and len(phone.starts) == 1
    assert not any("damaged" in path for path in phone.pushed)
    assert bench("--lengths=9", "--overwrite", bundle=damaged)[0] == 2
    assert bench("--lengths=8", "--overwrite")[0] == 2


def test_missing_adb_error_names_its_package(
    monkeypatch: pytest.MonkeyPatch, connect: Any, bench: Any, tmp_path: Path
) -> None:
    connect()
    for variable in ("ANDROID_HOME", "ANDROID_SDK_ROOT"):
        monkeypatch.delenv(variable, raising=False)
    real = shutil.which("adb")
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, err = bench()
    assert code == 2 and "Debian's package is adb" in err
    (tmp_path / "sdk" / "platform-tools").mkdir(parents=True)
    (tmp_path / "sdk" / "platform-tools" / "adb").symlink_to(str(real))
    monkeypatch.setenv("ANDROID_HOME", str(tmp_path / "sdk"))
    assert adb.find() == str(tmp_path / "sdk" / "platform-tools" / "adb")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device=A"], "--device needs --output"),
        (["--device=A,A", "--output=x"], "different serial numbers"),
        (["--device=A", "--output=x", "--baselines"], "--baselines is for this machine"),
        (["--device=A", "--output=x", "--quick"], "--quick is for this machine"),
        (["--device=A", "--output=x", "--apk=nowhere"], "--apk must be a file"),
        (["--delegate=gpu"], "--delegate is for phones"),
        (["--device=A", "--output=x", "--affinity=huge"], "affinity"),
        (["--device=A", "--output=x", "--repeats=101"], "repeats"),
        (["--device=A", f"--output={Path(__file__).parent}"], "must be a new folder"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], message: str, connect: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    connect(FakePhone("A", good))
    assert cli.main(["bench", str(BUNDLE), *arguments]) == 2
    printed = capsys.readouterr()
    assert message in printed.err and printed.err.count("\n") == 1 and printed.out == ""
    assert not (Path(__file__).parent / ".pocketbert").exists()
