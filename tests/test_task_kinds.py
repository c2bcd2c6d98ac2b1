"""Outside `tasks`, code compares kinds of tasks and asks for the type of data only with a reason."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pocketbert.configs import TASK_RULES

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "runtime/pocketbert_runtime",
    "modeling/pocketbert",
    "export/pocketbert_export",
    "benchmarks/pocketbert_bench",
)
DATA = {"Examples", "QuestionFile", "TaggedTexts", "TaskData"}
_ARGUMENT = "an argument that may be a run's data or a file"
_METHOD = "a method says which tasks its paper or its losses know"
# File → number of places, and the reason.
ALLOWED = {
    "checkpoints/cross_encoders.py": (1, "a stored cross-encoder says what it is; the kind is the answer"),
    "data/constructors.py": (2, "several label columns are labels of the kind multi_label, with a probability each"),
    "data/data_warnings.py": (1, "questions are sampled, since their file is not in memory"),
    "data/head_tables.py": (1, "an empty cell is a set without labels, or no label"),
    "data/label_order.py": (1, "only class indices can be renumbered"),
    "data/readers/tables.py": (5, "the form of the labels in a table is what it reads"),
    "conformance/cases.py": (7, "labels and metrics of tiny examples"),
    "distillation/methods/efficientbert.py": (2, _METHOD),
    "distillation/methods/hsk.py": (1, _METHOD),
    "distillation/methods/tinybert.py": (2, _METHOD),
    "distillation/ensemble.py": (1, _ARGUMENT),
    "distillation/planning.py": (4, _ARGUMENT),
    "distillation/run.py": (1, _ARGUMENT),
    "training/finetune.py": (1, "only texts with one class each have pairs with and without a common label"),
    "training/config.py": (1, "a default that a study found for this kind"),
    "training/objectives/finetuning.py": (1, "the bias of a new head starts at the mean score"),
    "training/plan.py": (1, _ARGUMENT),
    "checks/label_order.py": (2, _ARGUMENT),
    "checks/validation_set.py": (1, "a bare encoder has no task that reads its texts"),
    "exporter.py": (2, _ARGUMENT),
    "quantization/calibration_data.py": (1, _ARGUMENT),
    "data/unlabelled.py": (1, "texts without labels join texts alone"),
    "data/example_files.py": (3, "the form of the examples is what it writes"),
    "compression/command_lines.py": (1, "the default of a flag is left out"),
    "model_comparison.py": (1, _ARGUMENT),
    "paired_scores.py": (1, "only rows of a table have slices"),
    "compression/sources.py": (1, "only class indices can be renumbered"),
}


def is_kind(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "kind" or isinstance(node, ast.Name) and "kind" in node.id


def places(source: str) -> Iterator[str]:
    """Comparisons of a kind with a name in `TASK_RULES`, and `isinstance` of data."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            inside = [*ast.walk(node)]
            names = {part.value for part in inside if isinstance(part, ast.Constant) and isinstance(part.value, str)}
            if names & {*TASK_RULES} and any(is_kind(part) for part in inside if isinstance(part, ast.expr)):
                yield ast.unparse(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            if DATA & {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}:
                yield ast.unparse(node)


def test_kinds_and_data_are_compared_for_a_reason() -> None:
    counts: Counter[str] = Counter()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            name = path.relative_to(ROOT / package).as_posix()
            if not name.startswith("tasks/"):
                counts[name] += len([*places(path.read_text(encoding="utf-8"))])
    assert {name: count for name, count in counts.items() if count} == {
        name: reason[0] for name, reason in ALLOWED.items()
    }


def test_comparisons_are_seen() -> None:
    assert [*places("x = task.kind == 'span'\ny = kind in ('regression',)\nz = vocabulary.kind == 'wordpiece'")] == [
        "task.kind == 'span'",
        "kind in ('regression',)",
    ]
    assert [*places("isinstance(data, (str, Examples)) or isinstance(data, str)")] == [
        "isinstance(data, (str, Examples))"
    ]
