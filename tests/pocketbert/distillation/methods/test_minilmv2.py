"""MiniLMv2's options, stages and features; `test_relations` and `test_losses` compare its loss with the paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny
import tiny_distillation

import pocketbert as pb
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.distillation.distiller import Distiller
from pocketbert.distillation.losses import attention_transfer
from pocketbert.distillation.method import DistillationSpec, plan_stages
from pocketbert.distillation.methods.minilmv2 import MiniLMv2, default_teacher_layer
from pocketbert.errors import UserError
from pocketbert.layers.attention import Attention
from pocketbert.presets import preset
from pocketbert.training.stage import Epochs, Stage, Steps

TASK = TaskConfig(kind="classification", name="three", labels=("low", "middle", "high"))


def spec(
    teacher: EncoderConfig | str = "bert_base_uncased", student: EncoderConfig | str = "minilmv2_6l_384d", **more: Any
) -> DistillationSpec:
    one, other = (preset(name).config if isinstance(name, str) else name for name in (teacher, student))
    return DistillationSpec(teacher=one, student=other, **{"task": None, **more})


def relations_stage(method: MiniLMv2, **more: Any) -> Stage:
    return plan_stages(method, spec(**more))[0]


@pytest.mark.parametrize(
    ("config", "layer"),
    [
        (preset("bert_base_uncased").config, 12),
        (preset("bert_large_uncased").config, 21),
        (preset("roberta_large").config, 19),
        (preset("xlm_r_large").config, 19),
        (preset("ib_bert_large").config, 24),
        (tiny.BERT.replace(num_layers=7), 7),
    ],
)
def test_default_layer_follows_the_paper(config: EncoderConfig, layer: int) -> None:
    assert default_teacher_layer(config) == layer


def test_paper_preset_has_its_schedule() -> None:
    """Section 4.1."""
    stage = relations_stage(MiniLMv2())
    assert (stage.batch_size, stage.duration, stage.max_length) == (256, Steps(400_000), 512)
    assert stage.weights == {"qq": 1.0, "kk": 1.0, "vv": 1.0} and stage.options.relation_heads == 48
    optimizer = stage.optimizer
    assert (optimizer.learning_rate, optimizer.warmup(400_000), optimizer.schedule) == (6e-4, 4_000, "linear")
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.weight_decay) == (0.9, 0.999, 0.01)
    assert optimizer.bias_correction and optimizer.algorithm == "adamw" and not stage.masked_text
    assert stage.teacher_features == dict.fromkeys(("queries", "keys", "values"), (12,))
    assert stage.student_features == dict.fromkeys(("queries", "keys", "values"), (6,))
    large = relations_stage(MiniLMv2(), teacher="bert_large_uncased")
    assert large.options.relation_heads == 64 and large.teacher_features["keys"] == (21,)
    roberta = relations_stage(MiniLMv2(), teacher="roberta_large", student="roberta_base")
    assert (roberta.duration, roberta.optimizer.beta_2) == (Steps(400_000), 0.98)
    xlm_r = relations_stage(MiniLMv2(), teacher="xlm_r_base", student="minilmv2_xlm_r_6l_384d")
    assert (xlm_r.duration, xlm_r.optimizer.beta_2) == (Steps(1_000_000), 0.999)


def test_only_needed_vectors_are_read() -> None:
    stage = relations_stage(MiniLMv2(relations=("qk", "kq"), teacher_layer=5))
    assert stage.teacher_features == {"queries": (5,), "keys": (5,)}


def test_task_adds_finetuning() -> None:
    stages = plan_stages(MiniLMv2(finetuning_epochs=4, finetuning_batch_size=9), spec(task=TASK))
    assert [stage.name for stage in stages] == ["relations", "finetuning"]
    assert (stages[0].data, stages[0].duration, stages[0].max_length) == ("task", Epochs(10), 128)
    assert (stages[1].data, stages[1].duration, stages[1].keep) == ("task", Epochs(4), "best")
    assert (stages[0].batch_size, stages[1].batch_size) == (32, 9)
    assert not stages[1].teacher_features


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"relations": ("qq", "qw")}, "received 'qw'"),
        ({"relations": ("vv", "vv")}, "relations must be different; received vv,vv"),
        ({"steps": 5, "epochs": 2}, "give steps or epochs; received steps=5 and epochs=2"),
        ({"relation_heads": 0}, "relation_heads must be positive; received 0"),
        ({"beta_2": 1.0}, "beta_2 must be below 1; received 1.0"),
        ({"text_segments": 3}, "text_segments must be 1 or 2; received 3"),
        ({"preset": "v1"}, "preset must be one of paper, minilm; received 'v1'"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        MiniLMv2(**options)


@pytest.mark.parametrize(
    ("method", "fields", "message"),
    [
        (
            MiniLMv2(),
            {"student": "tinybert_4l_312d"},
            "relation_heads must divide the teacher's width 768 and the student's 312; received 48; give one of 1, 2, "
            "3, 4, 6, 8, 12, 24",
        ),
        (MiniLMv2(teacher_layer=13), {}, "the teacher has queries for layers 1 to 12; stages request 13"),
        (MiniLMv2(preset="minilm"), {"student": tiny.BERT}, "the teacher has 12 heads, the student 5"),
        (MiniLMv2(masked_text=True), {"task": TASK}, "masked_text is for plain text"),
    ],
)
def test_unfit_models_are_refused(method: MiniLMv2, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        plan_stages(method, spec(**fields))
    assert message in str(error.value) and "\n" not in str(error.value)


def distiller(method: MiniLMv2, teacher: Any, student: Any) -> Distiller:
    (stage,) = plan_stages(method, spec(teacher.config, student.config))
    return Distiller(student, method, stage, teacher=teacher)


def test_first_version_distils_attention() -> None:
    """With R attention heads on both sides, the Q-K relation is the attention distribution (section 3.1)."""
    student_config = tiny_distillation.STUDENT.replace(num_layers=2)
    teacher, student = pb.from_preset(tiny_distillation.TEACHER, seed=3), pb.from_preset(student_config, seed=4)
    inputs = tiny.batch(tiny.BERT, length=9)
    method = MiniLMv2(preset="minilm", max_length=9, teacher_layer=1)
    assert teacher.config.num_attention_heads == student.config.num_attention_heads
    model = distiller(method, teacher, student)
    losses = dict(zip(model.loss_names, model.losses(inputs).numpy(), strict=True))
    logits = [
        model.features(inputs, {"attention_logits": (layer,)})["attention_logits"][0]
        for model, layer in ((teacher, 1), (student, 2))
    ]
    assert losses["qk"] == pytest.approx(float(attention_transfer(*logits, inputs["input_mask"])), rel=1e-5)
    assert set(losses) == {"loss", "qk", "vv"} and losses["loss"] == pytest.approx(
        losses["qk"] + losses["vv"], rel=1e-6
    )


def test_nothing_above_the_vectors_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two layers run as a whole before the vectors of layer 3; its attention does not."""
    runs = []
    attend = Attention.attend
    model = pb.from_preset(tiny.BERT.replace(num_layers=4), seed=3)
    monkeypatch.setattr(Attention, "attend", lambda self, *arguments: runs.append(self) or attend(self, *arguments))
    inputs = tiny.batch(tiny.BERT, length=9)
    vectors = model.features(inputs, {"values": (3,), "queries": (3,)})
    assert len(runs) == 2
    whole = model.features(inputs, {"values": (3,), "queries": (3,), "attention_probs": (3,)})
    assert len(runs) == 5
    for name in vectors:
        np.testing.assert_array_equal(vectors[name][0], whole[name][0])


def test_last_layer_learns_its_projections_only() -> None:
    student = pb.from_preset(tiny_distillation.STUDENT.replace(num_layers=2), seed=4)
    teacher = pb.from_preset(tiny_distillation.TEACHER, seed=3)
    model = distiller(MiniLMv2(relation_heads=2, max_length=9), teacher, student)
    variables = student.named_variables()
    with tf.GradientTape() as tape:
        loss = model.losses(tiny.batch(tiny.BERT, length=9), training=True)[0]
    reached = {name for name, gradient in tape.gradient(loss, variables).items() if gradient is not None}
    idle = {name for name in variables if name not in reached}
    last = [name for name in variables if ".layer.1." in name]
    assert {name for name in last if name in reached} == {name for name in last if ".attention.self." in name}
    assert idle == {name for name in variables if "pooler" in name} | {
        name for name in last if ".attention.self." not in name
    }
