"""Methods: discovery, stages, options, and validation."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from tiny import BERT

from pocketbert.configs import TaskConfig, TokenizerConfig
from pocketbert.distillation import methods
from pocketbert.distillation.method import DistillationSpec, Method, plan_stages
from pocketbert.errors import UserError
from pocketbert.options import describe_options, option_problems
from pocketbert.training.stage import Epochs, OptimizerConfig, Stage, Steps
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

TASK = TaskConfig(kind="classification", name="mine", labels=("no", "yes"))
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a test.

    Attributes:
      rate: a number that
        takes two lines.
      names: some words.

    Other text: is no option.
    """

    rate: float | None = None
    names: tuple[str, ...] = ("a",)


def stage(**changes: Any) -> Stage:
    fields: dict[str, Any] = {
        "name": "only",
        "teacher_features": {"hidden_states": (3,), "logits": ()},
        "student_features": {"hidden_states": (1,), "logits": ()},
        "weights": {"hidden": 1.0},
        "data": "task",
        "max_length": 19,
        "duration": Epochs(2),
        "batch_size": 12,
        "optimizer": OptimizerConfig(learning_rate=1e-3),
    }
    return Stage(**fields | changes)


class OneStage(Method):
    name = "one-stage"
    reference = "none"

    def __init__(self, *stages: Stage, problems: tuple[str, ...] = ()) -> None:
        object.__setattr__(self, "made", (stages, problems))

    def stages(self, spec: DistillationSpec) -> tuple[Stage, ...]:
        return self.made[0]

    def validate(self, spec: DistillationSpec) -> list[str]:
        return list(self.made[1])

    def loss(self, stage: Stage, targets: Any, student: Any, adapters: Any, batch: Any) -> dict[str, Any]:
        return {}


# --- discovery ---

IMPORT = "from pocketbert.distillation.method import Method\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose files count as methods."""
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    methods._methods.cache_clear()
    yield tmp_path
    methods._methods.cache_clear()
    for name in list(sys.modules):
        if name.startswith("pocketbert.distillation.methods.zz_"):
            del sys.modules[name]


def test_every_method_satisfies_the_protocol() -> None:
    assert "tinybert" in methods.names()
    for name in methods.names():
        method = methods.get_method(name)
        # Made without arguments.
        assert isinstance(method(), Method) and method.name == name and method.reference
        assert describe_options(method)


def test_new_method_file_is_discovered(folder: Path) -> None:
    (folder / "zz_new.py").write_text(f"{IMPORT}class New(Method):\n    name = 'new'\n")
    (folder / "zz_helper.py").write_text("name = 'helper'\n")
    assert "new" in methods.names() and "helper" not in methods.names()
    assert methods.get_method("new").name == "new"


def test_duplicate_method_names_are_refused(folder: Path) -> None:
    (folder / "zz_twin.py").write_text(f"{IMPORT}class Twin(Method):\n    name = 'tinybert'\n")
    with pytest.raises(ValueError, match="different names; received 'tinybert' again"):
        methods.names()


def test_unknown_method_lists_the_names() -> None:
    with pytest.raises(
        UserError, match=r"no distillation method 'tinybird' \(did you mean 'tinybert'\?\); the methods are .*tinybert"
    ):
        methods.get_method("tinybird")


def test_reading_options_loads_no_tensorflow() -> None:
    program = (
        "import sys; from pocketbert.distillation import methods; from pocketbert.options import *;"
        "[describe_options(methods.get_method(name)) for name in methods.names()];"
        "print(sorted({'tensorflow', 'tf_keras', 'numpy'} & {*sys.modules}))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


# --- stages ---


def test_one_error_lists_stage_problems() -> None:
    with pytest.raises(UserError) as refusal:
        stage(name="Two words", weights={"hidden": -1.0}, student_features={}, max_length=2, data="all", batch_size=7,
              micro_batches=2, keep="first", masked_text=True, text_segments=2)  # fmt: skip
    for part in ("'Two words'", "hidden must be >= 0", "no student_features", "got 2", "'all'", "7 and 2", "'first'"):
        assert part in str(refusal.value)
    assert "masked_text is for data='text'" in str(refusal.value)
    assert "text_segments is for data='text'" in str(refusal.value)
    with pytest.raises(UserError, match="text_segments must be one of 1, 2; received 3"):
        stage(data="text", text_segments=3)
    with pytest.raises(UserError, match="no weights"):
        stage(weights={})
    with pytest.raises(UserError, match="batch_size must be positive; received 0"):
        stage(batch_size=0)


@pytest.mark.parametrize("duration", [Steps, Epochs])
def test_duration_must_be_positive(duration: type) -> None:
    assert duration(1).count == 1
    with pytest.raises(UserError, match="count must be positive; received 0"):
        duration(0)


def test_stage_describes_itself_as_json() -> None:
    described = stage(duration=Steps(31), options=Options(names=("a", "b"))).describe()
    assert json.loads(json.dumps(described)) == described
    assert described["duration"] == {"steps": 31}
    assert described["teacher_features"] == {"hidden_states": [3], "logits": []}
    assert described["optimizer"]["learning_rate"] == 1e-3
    assert described["options"] == {"rate": None, "names": ["a", "b"]}
    assert not {"trainable", "learning_rate_multiplier"} & described.keys()


def test_warmup() -> None:
    assert OptimizerConfig(learning_rate=1.0).warmup(100) == 0
    assert OptimizerConfig(learning_rate=1.0, warmup_ratio=0.1).warmup(57) == 5
    counted = OptimizerConfig(learning_rate=1.0, warmup_ratio=0.5, warmup_steps=10_000)
    assert [counted.warmup(total) for total in (1_000_000, 100_000, 5_000, 9)] == [10_000, 10_000, 500, 0]


def test_one_error_lists_optimizer_problems() -> None:
    with pytest.raises(UserError) as refusal:
        OptimizerConfig(learning_rate=0.0, warmup_ratio=1.0, weight_decay=-0.1, clip_norm=0.0, algorithm="sgd",
                        schedule="step", warmup_steps=-1)  # type: ignore[arg-type]  # fmt: skip
    for part in ("learning_rate", "warmup_ratio", "weight_decay", "clip_norm", "'sgd'", "'step'", "warmup_steps"):
        assert part in str(refusal.value)


# --- the check before training ---


def test_matching_models_give_the_stages() -> None:
    setting = DistillationSpec(teacher=BERT, student=BERT.replace(num_layers=1), task=TASK, teacher_task=TASK)
    first = stage()
    assert plan_stages(OneStage(first), setting) == (first,)


def test_one_error_lists_every_mismatch() -> None:
    setting = DistillationSpec(
        teacher=BERT.replace(max_position_embeddings=18),
        student=BERT.replace(
            vocab_size=89,
            pad_token_id=1,
            position_offset=2,
            type_vocab_size=1,
            max_position_embeddings=17,
            num_layers=2,
        ),
        task=TASK,
        pairs=True,
        teacher_task=TaskConfig(kind="classification", labels=("yes", "no")),
    )
    wrong = stage(
        student_features={"hidden_states": (0, 3), "attention_logits": (0,)},
        teacher_features={"hidden_states": (4,), "logits": ()},
    )
    with pytest.raises(UserError) as refusal:
        plan_stages(OneStage(wrong, wrong, problems=("one of its own",)), setting)
    message = str(refusal.value)
    for part in (
        "the teacher's has 97 tokens, the student's 89",
        "padding id; the teacher's is 0, the student's 1",
        "pairs need the teacher's 2 segments; the student has 1",
        "one of its own",
        "texts of 19 tokens; the student has 17",
        "texts of 19 tokens; the teacher has 18",
        "the student has hidden_states for layers 0 to 2; stages request 3",
        "the student has attention_logits for layers 1 to 2; stages request 0",
        "the teacher has hidden_states for layers 0 to 3; stages request 4",
        "no, yes; received yes, no",
        "different names; received only, only",
    ):
        assert part in message
    # Two stages have this problem.
    assert message.count("the student has 17") == 1 and message.count("\n") == 0


def test_single_texts_need_one_segment() -> None:
    setting = DistillationSpec(teacher=BERT, student=BERT.replace(type_vocab_size=1), task=TASK, teacher_task=TASK)
    plan_stages(OneStage(stage()), setting)
    with pytest.raises(UserError, match="pairs need the teacher's 2 segments"):
        plan_stages(OneStage(stage()), dataclasses.replace(setting, pairs=True))


def test_unused_teacher_needs_no_match() -> None:
    short = DistillationSpec(teacher=BERT.replace(max_position_embeddings=5), student=BERT, task=TASK)
    plan_stages(OneStage(stage(teacher_features={})), short)


@pytest.mark.parametrize(
    ("teacher_task", "message"),
    [
        (None, "a bare encoder; fine-tune it first"),
        (TaskConfig(kind="regression"), "for classification; it has a head for regression"),
        (TaskConfig(kind="classification", labels=("no", "yes", "maybe")), "received no, yes, maybe"),
    ],
)
def test_other_teacher_tasks_are_refused(teacher_task: TaskConfig | None, message: str) -> None:
    setting = DistillationSpec(teacher=BERT, student=BERT, task=TASK, teacher_task=teacher_task)
    with pytest.raises(UserError, match=message):
        plan_stages(OneStage(stage()), setting)
    # Hidden states can be learned from any head's encoder.
    plan_stages(OneStage(stage(teacher_features={"hidden_states": (1,)})), setting)


def test_logits_without_a_task_are_refused() -> None:
    setting = DistillationSpec(teacher=BERT, student=BERT, task=None)
    with pytest.raises(UserError, match="stage only reads logits and needs a task; received none"):
        plan_stages(OneStage(stage()), setting)


def test_vocabularies_are_compared_by_content(tmp_path: Path) -> None:
    pieces = SPECIAL + [f"piece{index}" for index in range(BERT.vocab_size - len(SPECIAL))]
    swapped = [*pieces[:-2], pieces[-1], pieces[-2]]
    paths = tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "c.txt"
    for path, lines in zip(paths, (pieces, pieces, swapped), strict=True):
        path.write_text("\n".join(lines) + "\n")
    first, same, other = (Vocabulary(path=path, config=TokenizerConfig()) for path in paths)
    setting = DistillationSpec(teacher=BERT, student=BERT, task=TASK, teacher_task=TASK, teacher_vocabulary=first)
    plan_stages(OneStage(stage()), dataclasses.replace(setting, student_vocabulary=same))
    with pytest.raises(UserError, match="differ in 2 tokens, the first at id 95: 'piece90' and 'piece91'"):
        plan_stages(OneStage(stage()), dataclasses.replace(setting, student_vocabulary=other))
    cased = Vocabulary(path=paths[1], config=TokenizerConfig(lowercase=False))
    with pytest.raises(UserError, match="lowercase=True, the student lowercase=False"):
        plan_stages(OneStage(stage()), dataclasses.replace(setting, student_vocabulary=cased))


# --- options ---


def test_options_are_described_by_their_docstring() -> None:
    rate, names = describe_options(Options)
    assert (rate.name, rate.kind, rate.many, rate.optional, rate.default) == ("rate", "float", False, True, None)
    assert rate.help == "a number that takes two lines."
    assert (names.kind, names.many, names.default, names.help) == ("str", True, ("a",), "some words.")


def test_option_without_description_is_a_bug() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Silent:
        """Nothing."""

        rate: float = 1.0

    with pytest.raises(ValueError, match="Silent.rate must be described"):
        describe_options(Silent)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checked:
    word: Literal["one", "two"] | None = None
    count: int = 1
    rate: float | None = None
    decay: float = 0.0
    switch: bool = False
    names: tuple[str, ...] = ()


def test_annotations_check_option_values() -> None:
    assert option_problems(Checked(), may_be_zero=("decay",)) == []
    wrong = Checked(word="three", count=0, rate=-1.0, decay=-0.5)  # type: ignore[arg-type]
    assert option_problems(wrong, may_be_zero=("decay",)) == [
        "word must be one of one, two; received 'three'",
        "count must be positive; received 0",
        "rate must be positive; received -1.0",
        "decay must not be negative; received -0.5",
    ]
