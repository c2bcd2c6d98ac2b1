"""MobileBERT: stages compared with the paper, options, and validation."""

from __future__ import annotations

from typing import Any

import pytest

from pocketbert.configs import BottleneckConfig, EncoderConfig, TaskConfig
from pocketbert.distillation.method import DistillationSpec, plan_stages
from pocketbert.distillation.methods.mobilebert import MobileBERT
from pocketbert.errors import UserError
from pocketbert.presets import preset
from pocketbert.training.stage import Stage, Steps

TEACHER, STUDENT = preset("ib_bert_large").config, preset("mobilebert_paper").config
HEADS = ("masked_lm", "next_sentence")
ALL_LAYERS = tuple(range(1, 25))
DISTILLATION = {"masked_lm": 0.5, "distillation": 0.5, "next_sentence": 1.0}
TRANSFER = {"feature_map": 100.0, "attention": 1.0}
DECOMPOSED = {"feature_normalized": 100.0, "feature_mean": 5000.0, "feature_variance": 5.0, "attention": 1.0}


def setting(teacher: EncoderConfig = TEACHER, student: EncoderConfig = STUDENT, **more: Any) -> DistillationSpec:
    return DistillationSpec(**{"teacher": teacher, "student": student, "task": None, "teacher_heads": HEADS, **more})


def stages(where: DistillationSpec | None = None, **options: Any) -> dict[str, Stage]:
    plan = plan_stages(MobileBERT(**options), where or setting())
    return {stage.name: stage for stage in plan}


def layers_that_train(stage: Stage, layers: int = 24) -> list[int]:
    """From 1; 0 stands for embedding and heads."""
    others = ("mobilebert.embeddings.LayerNorm.weight", "cls.predictions.bias", "cls.seq_relationship.weight")
    trainable = [0] * any(map(stage.trainable, others))
    assert all(map(stage.trainable, others)) or not trainable
    for layer in range(1, layers + 1):
        names = [
            f"mobilebert.encoder.layer.{layer - 1}.{rest}"
            for rest in ("attention.self.query.weight", "ffn.1.output.LayerNorm.bias", "output.bottleneck.dense.weight")
        ]
        assert len({stage.trainable(name) for name in names}) == 1
        trainable += [layer] * stage.trainable(names[0])
    return trainable


# --- stages ---


def test_progressive_transfer_matches_the_paper() -> None:
    # Section 4.2: 240k steps over 24 layers, then 500k steps of 4096 with LAMB; section 3.6: what is below is frozen.
    plan = stages()
    assert list(plan) == [*(f"transfer_{layer:02}" for layer in ALL_LAYERS), "distillation"]
    for layer in ALL_LAYERS:
        stage = plan[f"transfer_{layer:02}"]
        assert (stage.duration, stage.batch_size, stage.data) == (Steps(10_000), 2048, "pretraining")
        assert stage.teacher_features == stage.student_features
        assert stage.student_features == {"hidden_states": (layer,), "attention_logits": (layer,)}
        assert stage.weights == TRANSFER
        assert layers_that_train(stage) == [layer]
        assert (stage.optimizer.algorithm, stage.optimizer.schedule) == ("lamb", "constant")
        assert stage.optimizer.warmup(10_000) == 0 and stage.optimizer_state == "fresh"
    last = plan["distillation"]
    assert (last.duration, last.batch_size, last.data) == (Steps(500_000), 4096, "pretraining")
    assert last.teacher_features == last.student_features == {"logits": ()}
    assert last.weights == DISTILLATION  # eq. 4 with appendix D's alpha
    assert layers_that_train(last) == [0, *ALL_LAYERS]
    assert last.learning_rate_multiplier("mobilebert.encoder.layer.0.output.dense.weight", 7) == 1.0  # type: ignore[arg-type]
    assert last.optimizer.warmup(500_000) == 10_000
    for stage in plan.values():
        assert not stage.student_dropout and stage.max_length == 512 and stage.keep == "last"
        optimizer = stage.optimizer
        assert (optimizer.algorithm, optimizer.learning_rate, optimizer.bias_correction) == ("lamb", 1.5e-3, False)
        assert (optimizer.weight_decay, optimizer.clip_norm, optimizer.epsilon) == (0.01, 1.0, 1e-6)
    assert last.optimizer.schedule == "linear"


def test_joint_transfer_is_one_stage() -> None:
    plan = stages(strategy="joint")
    assert list(plan) == ["transfer", "distillation"]
    stage = plan["transfer"]
    assert stage.student_features == {"hidden_states": ALL_LAYERS, "attention_logits": ALL_LAYERS}
    assert (stage.duration, stage.weights) == (Steps(240_000), TRANSFER)
    assert layers_that_train(stage) == list(ALL_LAYERS)
    assert plan["distillation"].weights == DISTILLATION


def test_auxiliary_transfer_has_all_losses() -> None:
    # Section 4.2: it takes the additional 240k steps too.
    (stage,) = stages(strategy="auxiliary").values()
    assert (stage.name, stage.duration, stage.weights) == ("auxiliary", Steps(740_000), TRANSFER | DISTILLATION)
    assert stage.teacher_features == stage.student_features
    assert stage.student_features == {"hidden_states": ALL_LAYERS, "attention_logits": ALL_LAYERS, "logits": ()}
    assert layers_that_train(stage) == [0, *ALL_LAYERS]
    assert stage.optimizer.warmup(740_000) == 10_000


def test_without_transfer_only_distillation_runs() -> None:
    (stage,) = stages(strategy="none").values()
    assert (stage.name, stage.weights, stage.duration) == ("distillation", DISTILLATION, Steps(500_000))


def test_layers_share_the_steps_evenly() -> None:
    five = {"teacher": TEACHER.replace(num_layers=5), "student": STUDENT.replace(num_layers=5)}
    plan = stages(setting(**five), transfer_steps=17, distillation_steps=0)
    counts = [stage.duration.count for stage in plan.values()]
    assert len(counts) == 5 and sum(counts) == 17 and max(counts) - min(counts) == 1
    with pytest.raises(UserError, match="one step per layer; received transfer_steps=4 for 5 layers"):
        stages(setting(**five), transfer_steps=4)


def test_runs_can_be_split() -> None:
    whole = stages()
    first = stages(distillation_steps=0)
    assert list(first) == list(whole)[:-1]
    later = stages(setting(start="directory"), first_layer=20, distillation_steps=0)
    assert list(later) == list(whole)[19:-1]
    assert [stage.duration for stage in later.values()] == [Steps(10_000)] * 5
    assert list(stages(setting(start="directory"), strategy="none")) == ["distillation"]
    for start in ("random", "teacher-layers"):
        with pytest.raises(UserError, match="first_layer=20 needs a student with trained layers below"):
            stages(setting(start=start), first_layer=20)
    with pytest.raises(UserError, match="first_layer must be 1 to 24, a layer of the student; received 25"):
        stages(setting(start="directory"), first_layer=25)
    with pytest.raises(UserError, match="a run needs transfer or distillation; received neither"):
        stages(strategy="none", distillation_steps=0)


def test_preset_matches_the_authors_code() -> None:
    plan = stages(preset="authors-code")
    for layer in ALL_LAYERS:
        stage = plan[f"transfer_{layer:02}"]
        assert stage.weights == DECOMPOSED and stage.batch_size == 2048
        assert layers_that_train(stage) == list(range(1, layer + 1))
    assert plan["distillation"].batch_size == 2048


def test_own_options_override_the_preset() -> None:
    fields = {
        "feature_transfer": "mse",
        "lower_layers": "frozen",
        "distillation_batch_size": 4096,
    }
    for name, value in fields.items():
        resolved = MobileBERT(preset="authors-code", **{name: value}).resolved()  # type: ignore[arg-type]
        assert getattr(resolved, name) == value
        # The others stay the preset's: each differs from the paper's.
        paper = MobileBERT().resolved()
        assert [other for other in fields if getattr(resolved, other) == getattr(paper, other)] == [name]


def test_own_options_override_the_paper() -> None:
    plan = stages(
        strategy="joint",
        max_length=64,
        transfer_steps=70,
        transfer_batch_size=12,
        transfer_learning_rate=2e-3,
        distillation_steps=90,
        distillation_batch_size=18,
        distillation_learning_rate=3e-3,
        distillation_warmup_steps=4,
        distillation_schedule="constant",
        alpha=0.25,
        feature_map_weight=7.0,
        attention_weight=3.0,
        weight_decay=0.0,
        clip_norm=0.0,
        micro_batches=6,
        student_dropout=True,
        bias_correction=True,
    )
    first, second = plan.values()
    assert (first.duration, first.batch_size, first.optimizer.learning_rate) == (Steps(70), 12, 2e-3)
    assert (second.duration, second.batch_size, second.optimizer.learning_rate) == (Steps(90), 18, 3e-3)
    assert (second.optimizer.schedule, second.optimizer.warmup(90)) == ("constant", 4)
    assert first.weights == {"feature_map": 7.0, "attention": 3.0}
    assert second.weights == {"masked_lm": 0.25, "distillation": 0.75, "next_sentence": 1.0}
    for stage in (first, second):
        assert (stage.max_length, stage.micro_batches, stage.student_dropout) == (64, 6, True)
        assert (stage.optimizer.weight_decay, stage.optimizer.clip_norm) == (0.0, None)
        assert stage.optimizer.bias_correction
    weights = {"feature_normalized_weight": 2.0, "feature_mean_weight": 3.0, "feature_variance_weight": 4.0}
    (stage, _) = stages(strategy="joint", feature_transfer="decomposed", **weights).values()
    assert stage.weights == {
        "feature_normalized": 2.0, "feature_mean": 3.0, "feature_variance": 4.0, "attention": 1.0
    }  # fmt: skip


# --- ablations, table 9 ---


def test_removed_loss_removes_its_features() -> None:
    layer = stages(without=("attention",))["transfer_03"]
    assert (layer.weights, layer.student_features) == ({"feature_map": 100.0}, {"hidden_states": (3,)})
    layer = stages(without=("feature_map",))["transfer_03"]
    assert (layer.weights, layer.teacher_features) == ({"attention": 1.0}, {"attention_logits": (3,)})
    (stage,) = stages(strategy="auxiliary", without=("attention",)).values()
    assert stage.weights == {"feature_map": 100.0} | DISTILLATION
    assert stage.teacher_features == {"hidden_states": ALL_LAYERS, "logits": ()}


def test_ablation_keeps_pretraining_distillation() -> None:
    plan = stages(without=("feature_map", "attention"))
    assert {name: stage.weights for name, stage in plan.items()} == {"distillation": DISTILLATION}


@pytest.mark.parametrize("strategy", ["progressive", "joint", "none"])
def test_full_ablation_needs_no_teacher(strategy: str) -> None:
    (stage,) = stages(strategy=strategy, without=("distillation", "feature_map", "attention")).values()
    assert stage.weights == {"masked_lm": 1.0, "next_sentence": 1.0}
    assert stage.teacher_features == {} and stage.student_features == {"logits": ()}


def test_transfer_runs_without_mlm_distillation() -> None:
    plan = stages(strategy="joint", without=("distillation",))
    assert plan["transfer"].weights == TRANSFER
    assert plan["distillation"].weights == {"masked_lm": 1.0, "next_sentence": 1.0}
    (stage,) = stages(strategy="auxiliary", without=("distillation",)).values()
    assert stage.weights == TRANSFER | {"masked_lm": 1.0, "next_sentence": 1.0}
    assert "logits" not in stage.teacher_features


# --- what cannot match ---


def test_one_error_lists_all_incompatibilities() -> None:
    wrong = setting(
        student=STUDENT.replace(
            hidden_size=384,
            embedding_size=96,
            num_layers=12,
            num_attention_heads=6,
            max_position_embeddings=256,
            vocab_size=30000,
        ),
        task=TaskConfig(kind="span", name="squad"),
        teacher_heads=("next_sentence",),
        start="random",
    )
    with pytest.raises(UserError) as refusal:
        plan_stages(MobileBERT(first_layer=13), wrong)
    for part in (
        "30522 tokens, the student's 30000",
        "received the task squad; distil without a task",
        "the teacher has 24 layers, the student 12; give a student with 24 layers",
        "the teacher has 4 heads, the student 6; give a student with 4 heads, or a teacher with 6, or leave out",
        "needs hidden_size=512, received 384; embedding_size=128, received 96; "
        "max_position_embeddings=512, received 256; give",
        "it lacks masked_lm; give a teacher from pretraining",
        "must be 1 to 12, a layer of the student; received 13",
        "the student has random weights",
    ):
        assert part in str(refusal.value)


def test_missing_layers_are_listed_once() -> None:
    shallow = setting(teacher=TEACHER.replace(num_layers=3))
    with pytest.raises(UserError) as refusal:
        plan_stages(MobileBERT(max_length=520), shallow)
    message = str(refusal.value)
    for part in (
        "the teacher has hidden_states for layers 0 to 3; stages request 4 to 24",
        "the teacher has attention_logits for layers 1 to 3; stages request 4 to 24",
        "texts of 520 tokens; the teacher has 512",
        "texts of 520 tokens; the student has 512",
    ):
        assert message.count(part) == 1
    assert message.count("layers") < 10 and message.count(" texts ") == 2


def test_unused_sizes_may_differ() -> None:
    heads = setting(
        student=STUDENT.replace(num_attention_heads=6, bottleneck=BottleneckConfig(size=192, query_key="raw"))
    )
    with pytest.raises(UserError, match="or leave out attention"):
        plan_stages(MobileBERT(), heads)
    stages(heads, without=("attention",))
    stages(heads, strategy="none")
    narrow = setting(student=STUDENT.replace(hidden_size=384))
    for strategy in ("progressive", "joint"):
        with pytest.raises(UserError, match="student needs hidden_size=512, received 384; give"):
            stages(narrow, strategy=strategy)
    with pytest.raises(
        UserError, match="feature maps must have the same width; the teacher's is 512, the student's 384"
    ):
        stages(narrow, strategy="auxiliary")
    stages(narrow, strategy="auxiliary", without=("feature_map",))
    stages(narrow, strategy="none")
    table = setting(student=STUDENT.replace(embedding_size=96))
    with pytest.raises(UserError, match="embedding_size=128, received 96"):
        stages(table)
    stages(table, strategy="auxiliary")
    shallow = setting(student=STUDENT.replace(num_layers=12))
    for strategy in ("progressive", "joint", "auxiliary"):
        with pytest.raises(UserError, match="transfer needs the same depth"):
            stages(shallow, strategy=strategy)
    stages(shallow, strategy="none")


def test_copied_heads_must_exist() -> None:
    words_only = setting(teacher_heads=("masked_lm",))
    for strategy in ("progressive", "joint"):
        with pytest.raises(UserError, match="the teacher needs masked_lm and next_sentence; it lacks next_sentence"):
            stages(words_only, strategy=strategy, without=("distillation",))
    for strategy in ("auxiliary", "none"):
        stages(words_only, strategy=strategy, without=("distillation",))
    stages(setting(teacher_heads=None))


def test_student_needs_a_pooler() -> None:
    with pytest.raises(UserError, match="the next-sentence head needs a pooler"):
        stages(setting(student=STUDENT.replace(pooler="none")))


def test_one_error_lists_invalid_options() -> None:
    with pytest.raises(UserError) as refusal:
        MobileBERT(preset="code", strategy="joint", without=("at",), alpha=1.0, first_layer=3, transfer_steps=0)  # type: ignore[arg-type]
    for part in (
        "preset must be one of paper, authors-code; received 'code'",
        "received at",
        "alpha must be below 1; received 1.0; to learn from labels",
        "first_layer needs strategy=progressive; received 3 with strategy=joint",
        "transfer_steps must be positive; received 0",
    ):
        assert part in str(refusal.value)
