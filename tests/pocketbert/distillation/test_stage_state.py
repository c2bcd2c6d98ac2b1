"""Random states and moments at the start of each stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny_distillation
import toy_method

import pocketbert as pb
from pocketbert.data import batches
from pocketbert.distillation.distiller import Distiller
from pocketbert.training.stage_batches import encoded_batches
from pocketbert.training.state import TrainState, read_state, restore_stage, write_checkpoint


def test_each_stage_draws_its_own_dropout(tmp_path: Path) -> None:
    student = pb.from_preset(tiny_distillation.STUDENT, task=(tiny_distillation.TASK,), seed=1)
    encoded = batches.EncodedExamples(np.ones(40, np.int32), np.ones(40, np.int32), np.arange(41), 23, 0)
    stage = toy_method.label_stage()
    data = encoded_batches(stage, encoded, seed=0)

    def states(position: TrainState) -> list[list[int]]:
        distiller = Distiller(student, toy_method.toy(), stage)
        restore_stage(tmp_path / "checkpoint.safetensors", position, stage, distiller, data.total_steps, 5)
        return [generator.state.numpy().tolist() for generator in distiller.dropout_generators()]

    first, second = (states(TrainState(stage=number)) for number in (0, 1))
    assert first == states(TrainState()) and len(first) > 1
    # Every dropout of every stage begins somewhere else.
    assert len({tuple(state) for state in first + second}) == 2 * len(first)


def test_moments_are_carried_or_reset(tmp_path: Path) -> None:
    student = pb.from_preset(tiny_distillation.STUDENT, task=(tiny_distillation.TASK,), seed=1)
    encoded = batches.EncodedExamples(np.ones(40, np.int32), np.ones(40, np.int32), np.arange(41), 23, 0)

    def started(optimizer_state: str, position: TrainState) -> tuple[Any, dict[str, tf.Variable], TrainState]:
        stage = toy_method.label_stage(optimizer_state=optimizer_state)
        data = encoded_batches(stage, encoded, seed=0)
        distiller = Distiller(student, toy_method.toy(), stage)
        position, variables = restore_stage(checkpoint, position, stage, distiller, data.total_steps, 5)
        return distiller.optimizer, variables, position

    checkpoint = tmp_path / "checkpoint.safetensors"
    _, before, _ = started("fresh", TrainState())
    for value, (name, variable) in enumerate(before.items()):
        if name.startswith("optimizer/"):
            number = 12 if name.endswith("iterations") else value
            variable.assign(tf.cast(tf.fill(variable.shape, number), variable.dtype))
    ended = TrainState(step=12, finished=True)
    write_checkpoint(checkpoint, before, ended)
    carrying, carried, _ = started("carry", ended.next_stage())
    resetting, fresh, _ = started("fresh", ended.next_stage())
    for name, variable in before.items():
        if name.startswith("optimizer/"):
            assert np.array_equal(carried[name], variable), name
            assert not fresh[name].numpy().any(), name
    # 8 steps with a warm-up of 2 from this stage's beginning on, in both.
    assert float(carrying.learning_rate) == float(resetting.learning_rate) == 0.0
    carried["optimizer/iterations"].assign_add(2)
    write_checkpoint(checkpoint, carried, TrainState(stage=1, first_step=12, step=14))
    resuming, resumed, position = started("carry", read_state(checkpoint))
    assert position.step == 14 and resumed["optimizer/iterations"].numpy() == 14
    # Two steps into the stage the warm-up is over.
    rates = [float(optimizer._learning_rate(step)) for optimizer, step in ((resuming, 14), (resetting, 2))]
    assert rates == pytest.approx([3e-3, 3e-3])
