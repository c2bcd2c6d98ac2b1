"""TinyBERT: stages compared with the paper, options, and validation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.data.readers.glue import GLUE
from pocketbert.distillation.method import DistillationSpec, plan_stages
from pocketbert.distillation.methods.tinybert import TinyBERT
from pocketbert.errors import UserError
from pocketbert.presets import preset
from pocketbert.training.stage import Epochs, Stage, Steps

BASE, TINY4 = preset("bert_base_uncased").config, preset("tinybert_4l_312d").config
ALL_TERMS = {"embedding": 1.0, "attention": 1.0, "hidden": 1.0}


def setting(
    task: str | None, teacher: EncoderConfig = BASE, student: EncoderConfig = TINY4, **more: Any
) -> DistillationSpec:
    if task is None:
        return DistillationSpec(teacher=teacher, student=student, task=None, **more)
    glue = GLUE[task]
    return DistillationSpec(
        teacher=teacher,
        student=student,
        task=glue.task,
        teacher_task=glue.task,
        pairs=glue.pair_column is not None,
        **more,
    )


def stages(task: str | None, **options: Any) -> dict[str, Stage]:
    plan = plan_stages(TinyBERT(**options), setting(task))
    return {stage.name: stage for stage in plan}


# --- stages ---


def test_general_distillation_matches_the_paper() -> None:
    # Section 4.2: length 128, 3 epochs, else as BERT's pretraining: batch 256, 1e-4, 10,000 steps of warm-up, linear
    # decay, weight decay 0.01 (Devlin et al. 2019, appendix A.2), on masked text; g(m) = 3m.
    (stage,) = stages(None).values()
    assert (stage.name, stage.data, stage.masked_text, stage.keep) == ("general", "text", True, "last")
    assert (stage.max_length, stage.duration, stage.batch_size) == (128, Epochs(3), 256)
    optimizer = stage.optimizer
    assert (optimizer.learning_rate, optimizer.schedule, optimizer.weight_decay) == (1e-4, "linear", 0.01)
    assert optimizer.warmup(1_000_000) == 10_000
    assert stage.weights == ALL_TERMS
    assert stage.teacher_features == {"hidden_states": (0, 3, 6, 9, 12), "attention_logits": (3, 6, 9, 12)}
    assert stage.student_features == {"hidden_states": (0, 1, 2, 3, 4), "attention_logits": (1, 2, 3, 4)}
    assert stages(None, general_steps=77)["general"].duration == Steps(77)


def test_two_token_types_give_two_segments() -> None:
    one_type, one_type_student = BASE.replace(type_vocab_size=1), TINY4.replace(type_vocab_size=1)
    for teacher, student, most in ((BASE, TINY4, 2), (one_type, TINY4, 1), (BASE, one_type_student, 1)):
        sides = setting(None, teacher, student)
        for options in (TinyBERT(), TinyBERT(preset="authors-code")):
            (stage,) = plan_stages(options, sides)
            assert stage.text_segments == most
        (stage,) = plan_stages(TinyBERT(text_segments=1), sides)
        assert stage.text_segments == 1
    assert stages(None, text_segments=2)["general"].text_segments == 2
    with pytest.raises(UserError, match="a teacher with 1 and a student with 2; give text_segments=1"):
        plan_stages(TinyBERT(text_segments=2), setting(None, one_type))
    # A task's examples have the segments that they have.
    plan_stages(TinyBERT(text_segments=2), setting("rte", one_type))
    with pytest.raises(UserError, match="text_segments must be 1 or 2; received 3"):
        TinyBERT(text_segments=3)


@pytest.mark.parametrize(
    ("task", "epochs", "max_length"),
    [  # section 4.2 and footnote 4
        ("cola", 50, 64),
        ("sst2", 20, 64),
        ("mrpc", 20, 128),
        ("stsb", 20, 128),
        ("qqp", 10, 128),
        ("mnli", 10, 128),
        ("qnli", 10, 128),
        ("rte", 20, 128),
        ("wnli", 20, 128),
    ],
)
def test_task_distillation_matches_the_paper(task: str, epochs: int, max_length: int) -> None:
    plan = stages(task)
    assert list(plan) == ["intermediate", "prediction"]
    first, second = plan.values()
    assert (first.duration, first.max_length, first.batch_size) == (Epochs(epochs), max_length, 32)
    assert (first.optimizer.learning_rate, first.optimizer.schedule) == (5e-5, "constant")
    assert (first.data, first.keep, first.weights) == ("augmented", "last", ALL_TERMS)
    assert first.optimizer.warmup(1000) == 0
    assert (second.duration, second.max_length, second.batch_size) == (Epochs(3), max_length, 32)
    assert (second.optimizer.learning_rate, second.optimizer.schedule) == (3e-5, "linear")
    assert (second.keep, second.weights) == ("best", {"prediction": 1.0})
    # Footnote 5: for STS-B the original data.
    assert second.data == ("task" if task == "stsb" else "augmented")
    assert second.teacher_features == second.student_features == {"logits": ()}


def test_other_tasks_have_20_epochs() -> None:
    task = TaskConfig(kind="classification", labels=("a", "b", "c"))
    custom = DistillationSpec(teacher=BASE, student=TINY4, task=task, teacher_task=task)
    assert TinyBERT().stages(custom)[0].duration == Epochs(20)


def test_own_options_override_the_paper() -> None:
    plan = stages("rte", max_length=48, intermediate_epochs=2, prediction_epochs=1, intermediate_batch_size=8,
                  prediction_batch_size=16, intermediate_learning_rate=1e-3, prediction_learning_rate=1e-5,
                  intermediate_schedule="linear", weight_decay=0.0, clip_norm=0.0, micro_batches=4)  # fmt: skip
    first, second = plan.values()
    assert (first.max_length, first.duration, first.batch_size, first.micro_batches) == (48, Epochs(2), 8, 4)
    assert (second.max_length, second.duration, second.batch_size, second.micro_batches) == (48, Epochs(1), 16, 4)
    assert (first.optimizer.learning_rate, first.optimizer.schedule) == (1e-3, "linear")
    assert second.optimizer.learning_rate == 1e-5
    for stage in (first, second):
        assert (stage.optimizer.weight_decay, stage.optimizer.clip_norm) == (0.0, None)


@pytest.mark.parametrize(
    ("task", "epochs"),
    [("cola", 50), ("mrpc", 20), ("stsb", 20), ("rte", 20), ("sst2", 10), ("qnli", 10), ("mnli", 5), ("qqp", 5)],
)
def test_preset_matches_the_authors_code(task: str, epochs: int) -> None:
    first, second = stages(task, preset="authors-code").values()
    assert first.duration == Epochs(epochs)
    assert (first.optimizer.learning_rate, first.optimizer.schedule) == (5e-5, "constant")
    assert not first.optimizer.bias_correction
    assert first.options.shared_projection and first.options.mean_over_classes
    # STS-B: the labels, on the original data, without the teacher.
    labels = task == "stsb"
    assert second.weights == ({"labels": 1.0} if labels else {"prediction": 1.0})
    assert second.teacher_features == ({} if labels else {"logits": ()})
    assert second.data == ("task" if labels else "augmented")


def test_preset_changes_general_distillation() -> None:
    stage = stages(None, preset="authors-code")["general"]
    assert not stage.masked_text and stage.optimizer.learning_rate == 5e-5
    assert (stage.batch_size, stage.duration, stage.max_length) == (256, Epochs(3), 128)
    assert stage.optimizer.warmup(1_000_000) == 100_000


def test_own_options_override_the_preset() -> None:
    fields = {
        "shared_projection": False,
        "mean_over_classes": False,
        "regression_target": "teacher",
        "masked_text": True,
        "general_learning_rate": 1e-4,
        "bias_correction": True,
    }
    for name, value in fields.items():
        resolved = TinyBERT(preset="authors-code", **{name: value}).resolved()  # type: ignore[arg-type]
        assert getattr(resolved, name) == value
        # The others stay the preset's: each differs from the paper's.
        paper = TinyBERT().resolved()
        assert [other for other in fields if getattr(resolved, other) == getattr(paper, other)] == [name]
    assert stages("cola", preset="authors-code", intermediate_epochs=3)["intermediate"].duration == Epochs(3)


# --- ablations, tables 2 to 4 ---

HIDDEN, ATTENTION = (3, 6, 9, 12), (3, 6, 9, 12)


@pytest.mark.parametrize("task", ["rte", None])
@pytest.mark.parametrize(
    ("without", "terms", "features"),
    [
        (("embedding",), {"attention", "hidden"}, {"hidden_states": HIDDEN, "attention_logits": ATTENTION}),
        (("attention",), {"embedding", "hidden"}, {"hidden_states": (0, *HIDDEN)}),
        (("hidden",), {"embedding", "attention"}, {"hidden_states": (0,), "attention_logits": ATTENTION}),
        (("transformer",), {"embedding"}, {"hidden_states": (0,)}),
        (("embedding", "hidden"), {"attention"}, {"attention_logits": ATTENTION}),
    ],
)
def test_removed_loss_removes_its_features(
    task: str | None, without: tuple[str, ...], terms: set[str], features: Mapping[str, tuple[int, ...]]
) -> None:
    plan = stages(task, without=without)
    stage = plan["general" if task is None else "intermediate"]
    assert stage.weights == dict.fromkeys(terms, 1.0)
    assert stage.teacher_features == features
    layer_map = {0: 0, 3: 1, 6: 2, 9: 3, 12: 4}
    assert stage.student_features == {name: tuple(layer_map[n] for n in layers) for name, layers in features.items()}
    if task is not None:
        assert plan["prediction"] == dataclasses.replace(stages(task)["prediction"], options=plan["prediction"].options)


def test_without_prediction_the_head_learns_labels() -> None:
    plan = stages("rte", without=("prediction",))  # footnote 10
    second = plan["prediction"]
    assert (second.weights, second.data, second.teacher_features) == ({"labels": 1.0}, "task", {})
    assert plan["intermediate"].data == "augmented" and plan["intermediate"].weights == ALL_TERMS


def test_without_augmentation_data_are_original() -> None:
    assert [stage.data for stage in stages("rte", without=("augmentation",)).values()] == ["task", "task"]


def test_without_task_distillation_labels_train() -> None:
    (stage,) = stages("rte", without=("task_distillation",)).values()
    assert (stage.name, stage.weights, stage.teacher_features) == ("finetuning", {"labels": 1.0}, {})
    assert (stage.data, stage.keep, stage.duration) == ("augmented", "best", Epochs(3))
    (stage,) = stages("rte", without=("task_distillation", "augmentation")).values()
    assert stage.data == "task"
    assert TinyBERT(without=("task_distillation",)).adapters(setting("rte")) == {}


def test_without_layer_losses_only_prediction_runs() -> None:
    assert list(stages("rte", without=("transformer", "embedding"))) == ["prediction"]
    with pytest.raises(UserError, match="general distillation needs a loss; received without="):
        stages(None, without=("attention", "hidden", "embedding"))


def test_without_general_distillation_directories_are_refused() -> None:
    options = TinyBERT(without=("general_distillation",))
    for start in ("random", "teacher-layers", None):
        plan = plan_stages(options, setting("rte", start=start))
        assert [stage.name for stage in plan] == ["intermediate", "prediction"]
    with pytest.raises(UserError, match="student with random weights; received a directory"):
        plan_stages(options, setting("rte", start="directory"))
    with pytest.raises(UserError, match="general_distillation needs a task; received none"):
        plan_stages(options, setting(None))


@pytest.mark.parametrize(
    ("mapping", "layers"), [("top", (9, 10, 11, 12)), ("bottom", (1, 2, 3, 4)), ("1,1,7,11", (1, 1, 7, 11))]
)
def test_mappings(mapping: str, layers: tuple[int, ...]) -> None:
    stage = stages("rte", mapping=mapping)["intermediate"]
    assert stage.teacher_features == {"hidden_states": (0, *layers), "attention_logits": layers}


# --- what cannot match ---


def test_one_error_lists_all_incompatibilities() -> None:
    words = TaskConfig(kind="masked_lm")
    wrong = DistillationSpec(
        teacher=BASE.replace(num_layers=3, num_attention_heads=8, head_size=96),
        student=TINY4.replace(vocab_size=30000),
        task=words,
        teacher_task=words,
        start="directory",
    )
    with pytest.raises(UserError) as refusal:
        plan_stages(TinyBERT(without=("general_distillation",)), wrong)
    for part in (
        "30522 tokens, the student's 30000",
        "the teacher has 8 heads, the student 12; give a student with 8 heads, or leave out attention",
        "received 4 for a teacher with 3",
        "classification, multi_label, regression, span, token_classification, several; received masked_lm",
        "received a directory",
    ):
        assert part in str(refusal.value)


def test_unmatched_heads_and_depths_may_differ() -> None:
    heads = setting("rte", student=TINY4.replace(num_attention_heads=6, head_size=52))
    with pytest.raises(UserError, match="the teacher has 12 heads, the student 6"):
        plan_stages(TinyBERT(), heads)
    for without in ("attention", "transformer", "task_distillation"):
        plan_stages(TinyBERT(without=(without,)), heads)
    deep = setting("rte", teacher=BASE.replace(num_layers=3))
    with pytest.raises(UserError, match="received 4 for a teacher with 3"):
        plan_stages(TinyBERT(), deep)
    plan_stages(TinyBERT(without=("transformer",)), deep)
    plan_stages(TinyBERT(mapping="1,2,2,3"), deep)


def test_one_error_lists_invalid_options() -> None:
    with pytest.raises(UserError) as refusal:
        TinyBERT(preset="code", without=("attn", "hidden"), temperature=0.0, weight_decay=-1.0)  # type: ignore[arg-type]
    for part in ("preset must be one of paper, authors-code; received 'code'", "received attn", "temperature", "decay"):
        assert part in str(refusal.value)
