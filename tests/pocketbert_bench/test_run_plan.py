"""The plan's arithmetic against numbers worked out by hand, and its page against the code."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import tiny

import pretraining_plan
from pocketbert.configs import TaskConfig
from pocketbert.presets import preset
from pocketbert_bench import run_plan
from pocketbert_bench.run_plan import ACCELERATORS, LENGTHS, Utilization

PHASES = {phase.name: phase for phase in run_plan.phases()}


def test_the_page_says_what_the_code_computes() -> None:
    assert pretraining_plan.BLOCK.read() == pretraining_plan.plan(), "run: python tools/pretraining_plan.py"


def test_the_phases_are_the_papers() -> None:
    updates = {name: (phase.steps, phase.batch_size) for name, phase in PHASES.items()}
    assert updates == {
        "teacher": (500_000, 4096),
        "progressive transfer": (240_000, 2048),
        "joint transfer, instead": (240_000, 2048),
        "distillation": (500_000, 4096),
    }


def test_the_teachers_operations_by_hand() -> None:
    # A token of a layer: into the block, queries, keys and values from 512 to 1024; out of attention; two maps of the
    # feed-forward network; out of the block. Then 128 keys and 128 values of 1024.
    layer = 512 * 1024 * 4 + 1024 * 1024 + 2 * 1024 * 4096 + 1024 * 512 + 2 * 128 * 1024
    embedding, pooler = 384 * 512, 512 * 512
    head = 20 * 512 * (512 + 30522)
    forward = 2 * (128 * (24 * layer + embedding) + pooler + head)
    assert PHASES["teacher"].teacher_flops(128) == 3 * forward
    assert PHASES["distillation"].teacher_flops(128) == forward


def test_progressive_transfer_by_hand() -> None:
    # 24 stages: stage l runs l layers of both forward, and layer l of the student backward (twice the forward).
    student = 512 * 128 + 2 * 512 * 128 + 512 * 128 + 128 * 128 + 4 * 2 * 128 * 512 + 128 * 512 + 2 * 128 * 128
    forward = sum(layers * student + 384 * 512 for layers in range(1, 25)) / 24
    assert PHASES["progressive transfer"].student_flops(128) == 2 * 128 * (forward + 2 * student)
    # The teacher has no backward pass.
    teacher = 512 * 1024 * 4 + 1024 * 1024 + 2 * 1024 * 4096 + 1024 * 512 + 2 * 128 * 1024
    forward = sum(layers * teacher + 384 * 512 for layers in range(1, 25)) / 24
    assert PHASES["progressive transfer"].teacher_flops(128) == 2 * 128 * forward


def test_hours_by_hand() -> None:
    phase, pod = PHASES["distillation"], ACCELERATORS[0]
    # 256 chips of 123 TFLOP/s; seconds of both networks add up, each at its own utilization.
    work = 500_000 * 4096 * (phase.teacher_flops(512) / 0.5 + phase.student_flops(512) / 0.2)
    hours = phase.hours(pod, 512, Utilization(teacher=0.5, student=0.2))
    assert math.isclose(hours, work / (256 * 123e12) / 3600, rel_tol=1e-12)


@pytest.mark.parametrize("name", [run_plan.TEACHER, run_plan.STUDENT])
def test_parameters_are_the_models(name: str) -> None:
    from pocketbert.checkpoints.name_maps import tensor_specs

    specs = tensor_specs(preset(name).config, [TaskConfig(kind="masked_lm")])
    assert run_plan.parameters(name) == sum(int(np.prod(spec.shape)) for spec in specs.values())


@pytest.mark.parametrize("accelerator", ACCELERATORS, ids=lambda each: each.name)
@pytest.mark.parametrize("length", LENGTHS)
def test_a_micro_batch_fits_and_twice_as_many_do_not(accelerator: run_plan.Accelerator, length: int) -> None:
    for phase in PHASES.values():
        found = run_plan.fit(phase, accelerator, length)
        share = phase.batch_size // accelerator.devices
        assert found.micro_batch * found.micro_batches == share, phase.name
        usable = run_plan.USABLE * accelerator.memory_bytes
        assert found.used_bytes <= usable
        example = (found.used_bytes - run_plan.weight_bytes(phase)) / found.micro_batch
        assert found.micro_batch == share or found.used_bytes + found.micro_batch * example > usable


@pytest.mark.parametrize("dropout", [False, True], ids=["", "dropout"])
@pytest.mark.parametrize("family", ["ib_bert", "mobilebert", "mobilebert_tiny"])
def test_a_layer_keeps_what_the_graph_keeps(family: str, dropout: bool) -> None:
    import tensorflow as tf

    import pocketbert as pb
    from pocketbert_bench.kept_arrays import kept_arrays

    batch, length = 3, 11

    def kept(layers: int) -> Counter:
        model = pb.build(tiny.FAMILIES[family].replace(num_layers=layers))
        ids = tf.zeros([batch, length], tf.int32)

        @tf.function
        def step() -> list[tf.Tensor]:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(model({"input_word_ids": ids}, training=dropout)["sequence_output"])
            return tape.gradient(loss, list(model.weights_by_path().values()), unconnected_gradients="zero")

        return Counter(each.shape for each in kept_arrays(step.get_concrete_function()))

    more = kept(3)
    more.subtract(kept(2))
    values = sum(count * int(np.prod(shape)) for shape, count in more.items())
    assert values == batch * run_plan.layer_values(tiny.FAMILIES[family], length, dropout=dropout), more
