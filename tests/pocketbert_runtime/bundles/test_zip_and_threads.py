"""Bundles in zip files, answers by several threads, and closed bundles."""

from __future__ import annotations

import shutil
import threading
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import bundle_folders
import numpy as np
import pytest
from bundle_folders import zipped
from runtime_bundles import TEXTS

from pocketbert_runtime import Bundle, UserError
from pocketbert_runtime.bundles import bundle_forward


@pytest.mark.parametrize("inside", ["", "films/", "apps/films/"])
def test_zip_answers_as_its_folder(exported: Path, tmp_path: Path, inside: str) -> None:
    path = zipped(exported / "bundle", tmp_path / "films.zip", inside)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("__MACOSX/._films", b"other files")
    with Bundle.open(path) as bundle:
        path.unlink()
        assert bundle.predict(TEXTS) == Bundle.open(exported / "bundle").predict(TEXTS)
        assert repr(bundle).startswith(f"<Bundle {path}: mood classification")


def member(name: str, content: bytes = b"x") -> Callable[[Path], None]:
    def add(path: Path) -> None:
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(name, content)

    return add


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-50])


def flipped(path: Path) -> None:
    """Changes a byte of the model's packed content."""
    with zipfile.ZipFile(path) as archive:
        place = archive.getinfo("model.tflite").header_offset + 200
    content = bytearray(path.read_bytes())
    content[place] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (member("../secret.txt"), "names must stay in the bundle's folder; received '../secret.txt'; pack the folder"),
        (member("/etc/passwd"), "names must stay in the bundle's folder; received '/etc/passwd'"),
        (member("C:\\x"), "names must stay in the bundle's folder; received"),
        (member("vocab.txt"), "names must differ; received a name twice; pack the folder again"),
        (member("more/bundle.json"), "must have one bundle.json, written by pocketbert export; it has 2; pack"),
        (shortened, "must be a complete zip file; received: .*; copy it again"),
        (flipped, "must be a complete zip file; received: .*; copy it again"),
    ],
)
def test_damaged_zips_are_one_line(
    exported: Path, tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    path = zipped(exported / "bundle", tmp_path / "films.zip")
    damage(path)
    with pytest.raises(UserError, match=message) as raised:
        Bundle.open(path)
    assert str(path) in str(raised.value) and "\n" not in str(raised.value)


def test_zips_are_checked_as_folders(exported: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(exported / "bundle", tmp_path / "copy")
    bundle_folders.describe_again(folder)
    (folder / "vocab.txt").write_text("[PAD]\n")
    (folder / "labels.txt").unlink()
    with pytest.raises(UserError, match=r"vocab.txt must have \d+ bytes; it has 6") as raised:
        Bundle.open(zipped(folder, tmp_path / "films.zip"))
    assert "labels.txt must be there; it is missing" in str(raised.value)


def test_zips_without_bundle_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", b"x")
    with pytest.raises(UserError, match="must have one bundle.json, .*; it has 0; pack the bundle's folder alone"):
        Bundle.open(path)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_share_a_bundle(exported: Path, threads: int) -> None:
    """Six threads ask at the same time, also for the first answer, which makes interpreters and tokenizer."""
    expected = Bundle.open(exported / "bundle").predict_proba(TEXTS)
    bundle, together = Bundle.open(exported / "bundle", threads=threads), threading.Barrier(6)

    def answers(number: int) -> np.ndarray:
        together.wait()
        return np.stack([bundle.predict_proba(TEXTS[number % 3 :]) for _ in range(20)])

    with ThreadPoolExecutor(6) as executor:
        for number, repeated in enumerate(executor.map(answers, range(6))):
            assert (repeated == expected[number % 3 :]).all()


def test_each_thread_has_an_interpreter(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two texts are at work at the same time: each waits for the other."""
    bundle, together = Bundle.open(exported / "bundle", threads=2), threading.Barrier(2, timeout=60)
    run = bundle.run

    def waiting(inputs: dict[str, np.ndarray], length: int) -> dict[str, np.ndarray]:
        with bundle._model.runner(f"length_{length}"):
            together.wait()
        return run(inputs, length)

    monkeypatch.setattr(bundle, "run", waiting)
    assert len(bundle.predict(TEXTS[:2])) == 2


def test_many_texts_keep_their_order(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_forward, "ROWS_A_CALL", 3)
    texts = [text for text in TEXTS for _ in range(7)]
    assert Bundle.open(exported / "bundle", threads=3).predict(texts) == Bundle.open(exported / "bundle").predict(texts)


def test_errors_of_a_thread_are_raised(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = Bundle.open(exported / "bundle", threads=2)

    def failing(inputs: dict[str, np.ndarray], length: int) -> dict[str, np.ndarray]:
        raise UserError(f"no answer for {length} tokens")

    monkeypatch.setattr(bundle, "run", failing)
    with pytest.raises(UserError, match="^no answer for 7 tokens$"):
        bundle.predict(TEXTS[:2])


@pytest.mark.parametrize("pack", [False, True])
def test_closed_bundles_answer_no_more(exported: Path, tmp_path: Path, pack: bool) -> None:
    path = zipped(exported / "bundle", tmp_path / "films.zip") if pack else exported / "bundle"
    with Bundle.open(path) as bundle:
        bundle.predict(TEXTS)
    with pytest.raises(UserError, match="^a bundle must be open to answer; received a closed one; open it again$"):
        bundle.predict(TEXTS)
    # It would stay in memory.
    assert "tokenizer" not in vars(bundle)
    bundle.close()


@pytest.mark.parametrize("pack", [False, True])
def test_weight_cache_changes_no_answer(exported: Path, tmp_path: Path, pack: bool) -> None:
    path = zipped(exported / "bundle", tmp_path / "films.zip") if pack else exported / "bundle"
    texts = TEXTS * 9
    with Bundle.open(path, weight_cache=True) as bundle, Bundle.open(path) as plain:
        # Two kernels of XNNPACK may sum in another order.
        np.testing.assert_allclose(bundle.predict_proba(texts), plain.predict_proba(texts), atol=1e-6)
        (cache,) = Path(bundle._model._make._folder.name).iterdir()  # type: ignore[attr-defined]
        assert cache.stat().st_size > 1000
    assert not cache.exists()


def test_weight_cache_needs_floats_and_one_thread(exported: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(exported / "bundle", tmp_path / "copy"))
    bundle_folders.describe_again(copy, outputs=[{"name": "logits", "dtype": "int8"}])
    with pytest.raises(UserError, match="a weight cache is for float32 outputs; received int8; leave weight_cache out"):
        Bundle.open(copy, weight_cache=True)
    with pytest.raises(UserError, match="a weight cache is for one text at a time, .*; received threads=2; leave one"):
        Bundle.open(exported / "bundle", threads=2, weight_cache=True)


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, "2"])
def test_wrong_threads_are_refused(exported: Path, threads: Any) -> None:
    with pytest.raises(UserError, match=f"threads must be a whole number from 1; received {threads!r}"):
        Bundle.open(exported / "bundle", threads=threads)
