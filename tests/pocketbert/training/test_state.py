from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import killing
import numpy as np
import pytest
import tensorflow as tf

from pocketbert.errors import UserError
from pocketbert.training import kept_weights
from pocketbert.training import state as checkpointing
from pocketbert.training.run_folder import OPTIONS_FILE, begin_run, open_run, run_once
from pocketbert.training.state import TrainState
from pocketbert.trials.jobs import RESULT_FILE

OPTIONS = {"epochs": 3}


def variables(value: float = 0.0) -> dict[str, tf.Variable]:
    shapes = {"weights/a": (2, 3), "weights/b": (5,), "optimizer/iterations": ()}
    return {name: tf.Variable(np.full(shape, value, np.float32)) for name, shape in shapes.items()}


def mutations(content: bytes, count: int) -> Iterator[bytes]:
    """Seeded: bytes changed, left out, put in, and ends cut off."""
    draw = np.random.default_rng(0)
    for number in range(count):
        offset = int(draw.integers(len(content)))
        byte = bytes([content[offset] ^ int(draw.integers(1, 256))])
        yield (
            content[:offset] + byte + content[offset + 1 :],
            content[:offset] + content[offset + 1 :],
            content[:offset] + byte + content[offset:],
            content[:offset],
        )[number % 4]


def test_damaged_checkpoints_are_refused(tmp_path: Path) -> None:
    path, read = tmp_path / "checkpoint.safetensors", variables()
    checkpointing.write_checkpoint(path, variables(1.5), TrainState(epoch=2, step=17, losses=[[0.25]]))
    content = path.read_bytes()
    for number, damaged in enumerate(mutations(content, 200)):
        path.write_bytes(damaged)
        for reader in (
            lambda: checkpointing.read_checkpoint(path, read),
            lambda: checkpointing.read_state(path),
            lambda: checkpointing.read_arrays(path, "weights/"),
        ):
            try:
                reader()
            except UserError as error:
                assert "checkpoint.safetensors is damaged" in str(error) and "remove the file" in str(error)
                continue
            raise AssertionError(f"mutation {number} was accepted")
    assert all(np.all(variable.numpy() == 0) for variable in read.values())
    path.write_bytes(content)
    assert checkpointing.read_checkpoint(path, read) == TrainState(epoch=2, step=17, losses=[[0.25]])
    assert all(np.all(variable.numpy() == 1.5) for variable in read.values())


def test_checkpoint_of_other_shapes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    checkpointing.write_checkpoint(path, variables(), TrainState())
    other = {**variables(), "weights/b": tf.Variable(tf.zeros([6]))}
    with pytest.raises(UserError, match=r"must hold this run's variables; 1 differ \(weights/b"):
        checkpointing.read_checkpoint(path, other)


@pytest.mark.parametrize("content", ["", "{", "[]", "[" * 100_000, '{"epochs": 3', "\x00", "null"])
def test_damaged_options_are_refused(tmp_path: Path, content: str) -> None:
    finished(tmp_path / "run")
    (tmp_path / "run" / OPTIONS_FILE).write_text(content)
    with pytest.raises(UserError, match=r"run\.json is damaged: .* pass overwrite=True"):
        run_once(tmp_path / "run", OPTIONS, lambda folder: {}, overwrite=False)
    assert finished(tmp_path / "run", overwrite=True) == {"main_metric": "f1", "metrics": {"f1": 0.5}}


@pytest.mark.parametrize("content", ["", "{", "[]", "[" * 100_000, '{"metrics": 3, "main_metric": "f1"}', "\x00", "{}"])
def test_damaged_results_are_refused(tmp_path: Path, content: str) -> None:
    finished(tmp_path / "run")
    (tmp_path / "run" / RESULT_FILE).write_text(content)
    with pytest.raises(UserError, match=r"result\.json is damaged: .* pass overwrite=True"):
        run_once(tmp_path / "run", OPTIONS, lambda folder: {}, overwrite=False)
    assert finished(tmp_path / "run", overwrite=True)["metrics"] == {"f1": 0.5}


def finished(folder: Path, *, overwrite: bool = False, metric: float = 0.5) -> dict[str, object]:
    def train(folder: Path) -> dict[str, object]:
        begin_run(folder, OPTIONS)
        (folder / "model").mkdir(exist_ok=True)
        (folder / "model" / "weights").write_text(str(metric))
        return {"main_metric": "f1", "metrics": {"f1": metric}}

    return run_once(folder, OPTIONS, train, overwrite=overwrite)[1]


def test_failed_replacement_leaves_the_run(tmp_path: Path) -> None:
    finished(tmp_path / "run")
    before = killing.tree(tmp_path)

    def refuse(folder: Path) -> dict[str, object]:
        assert not (folder / RESULT_FILE).exists()
        (folder / "teacher.json").touch()
        raise UserError("bad input")

    with pytest.raises(UserError, match="bad input"):
        run_once(tmp_path / "run", {"epochs": 4}, refuse, overwrite=True)
    assert killing.tree(tmp_path) == before


def test_foreign_files_are_kept(tmp_path: Path) -> None:
    finished(tmp_path / "run")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    before = killing.tree(tmp_path)
    with pytest.raises(UserError, match=r"also holds notes\.txt; move it away"):
        finished(tmp_path / "run", overwrite=True)
    assert killing.tree(tmp_path) == before


def test_foreign_run_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / OPTIONS_FILE).write_text(json.dumps(OPTIONS))
    (tmp_path / "model").mkdir()
    with pytest.raises(UserError, match=r"which holds something else \(model, run\.json\)"):
        with open_run(tmp_path, OPTIONS, overwrite=True):
            pass


@pytest.mark.nightly
def test_killed_replacement_loses_no_run(tmp_path: Path) -> None:
    changes = killing.kill_at_each_change(
        lambda root: finished(root / "run", overwrite=True, metric=0.75) and None,
        lambda root: finished(root / "run") and None,
        tmp_path,
    )
    assert changes > 12


def test_changed_weights_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(b"trained")
    digest = kept_weights.digest_kept(tmp_path)
    kept_weights.check_kept(tmp_path, digest)
    weights.write_bytes(b"Trained")
    with pytest.raises(UserError, match="weights differ from those that the run saved"):
        kept_weights.check_kept(tmp_path, digest)
