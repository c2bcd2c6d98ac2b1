"""Rules for heads in the kind `several`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pocketbert_runtime.errors import UserError
from pocketbert_runtime.label_names import shown

# A head's name begins names of outputs and metrics, followed by an underscore.
HEAD_NAME = re.compile("[A-Za-z][A-Za-z0-9]*")
# With `_logits`, the first ones would be other tasks' outputs; the last ones are columns beside the answers.
_OTHER_NAMES = ("token", "start", "end", "prediction", "text", "pair", "id")


def parts_of(values: Any, config: Any) -> tuple[Any, ...]:
    """Returns a `several` task's heads; objects with their fields, such as from JSON, become a `TaskConfig`.

    Args:
      values: a sequence of configurations or objects, or None.
      config: the class.
    Raises:
      UserError: a value is none of them, or has an unknown field.
    """
    parts = []
    for value in values or () if isinstance(values or (), list | tuple) else [values]:
        if isinstance(value, Mapping) and {"kind"} <= {*value} <= {*config.__dataclass_fields__}:
            value = config(**value)
        if not isinstance(value, config):
            raise UserError(f"tasks must be a list of heads, each with kind, name and labels; received {value!r:.80}")
        parts.append(value)
    return tuple(parts)


def part_kinds(rules: Mapping[str, Any]) -> list[str]:
    """Returns the kinds for a `several` task's heads, from `TASK_RULES`: an answer per text, or tags of words."""
    heads, files = ("sentence", "linear"), ("table", "spans")
    return [kind for kind, row in rules.items() if row.head in heads and row.reads in files]


def part_problems(parts: Sequence[Any], rules: Mapping[str, Any]) -> list[str]:
    """Returns problems with the heads, each a `TaskConfig`; `rules` is `TASK_RULES`."""
    names, kinds, problems = [part.name for part in parts], part_kinds(rules), []
    if len(parts) < 2:
        problems.append(f"several heads must be at least two; received {', '.join(names) or 'none'}")
    if wrong := [name for name in names if not HEAD_NAME.fullmatch(name) or name in _OTHER_NAMES]:
        problems.append(
            f"the name of a head must have letters and digits alone, and not be {', '.join(_OTHER_NAMES)}; received "
            f"{shown(wrong)}"
        )
    if len({name.casefold() for name in names}) < len(names):
        problems.append(f"heads must have different names; received {', '.join(names)}")
    if others := [part.kind for part in parts if part.kind not in kinds]:
        problems.append(f"the kind of a head must be one of {', '.join(kinds)}; received {', '.join(others)}")
    if pairs := [part.name for part in parts if part.pairs]:
        problems.append(f"several heads read single texts; received separate pairs for {', '.join(pairs)}")
    if parts and not any(loss_weight(part) for part in parts):
        problems.append("the loss of a head must have a weight above 0; received 0 for all of them")
    return problems


def weight_problems(weight: float | None) -> list[str]:
    """Returns problems with a loss weight."""
    if weight is None or 0 <= weight < math.inf:
        return []
    return [f"the weight of a head's loss must be a number of at least 0; received {weight}"]


def loss_weight(part: Any) -> float:
    """Returns the weight of a head's loss in the sum."""
    return 1.0 if part.weight is None else float(part.weight)


def described_heads(task: Any) -> str:
    """Describes a task's heads in a few words, such as `intent (classification: book, cancel)`; empty for one head."""
    described = [
        f"{part.name} ({part.kind}{': ' if part.labels else ''}{', '.join(part.labels)})" for part in task.tasks or ()
    ]
    return ", ".join(described)


def without_labels(task: Any) -> str:
    """Names a kind without labels, or the heads without, such as `stars (regression)`; empty if all have some."""
    if not task.tasks:
        return "" if task.labels else task.kind
    return ", ".join(f"{part.name} ({part.kind})" for part in task.tasks if not part.labels)
