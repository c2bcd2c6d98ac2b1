"""What a model calls its heads' outputs, and which labels belong to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pocketbert.encoder import complete_inputs
from pocketbert.errors import UserError
from pocketbert.tasks.losses import Labelled

Heads = Mapping[str, Any]


def output_names(heads: Heads) -> dict[str, dict[str, str]]:
    """Head → its own name for each of its outputs → the model's, with the head's in front if several heads give it."""
    own = {head: list(layer.losses_by_output()) for head, layer in heads.items()}
    given = Counter(name for names in own.values() for name in names)
    return {
        head: {name: f"{head}_{name}" if given[name] > 1 else name for name in names} for head, names in own.items()
    }


def labelled_outputs(heads: Heads, inputs: Any, labels: Any, outputs: Any, weights: Any) -> dict[str, Labelled]:
    """The outputs that there are labels of, as loss and metrics take them, by the model's names.

    Args:
      heads: at least one.
      inputs: the model's.
      labels: by output; plain ones are the only head's.
      outputs: the model's.
      weights: of examples, by output; plain ones are the only head's.
    Raises:
      UserError: labels or weights of no output, or plain ones though there are several heads.
    """
    names = output_names(heads)
    labels, weights = (_by_output(heads, names, *each) for each in (("labels", labels), ("weights", weights)))
    found: dict[str, Labelled] = {}
    for head, layer in heads.items():
        of_head = {
            own: Labelled(outputs[name], labels[name], weights.get(name))
            for own, name in names[head].items()
            if labels.get(name) is not None
        }
        if of_head and hasattr(layer, "learned"):
            of_head = layer.learned(of_head, complete_inputs(inputs))
        found.update({names[head][own]: each for own, each in of_head.items()})
    return found


def _by_output(heads: Heads, names: Mapping[str, Mapping[str, str]], what: str, values: Any) -> Mapping[str, Any]:
    every = [name for of_head in names.values() for name in of_head.values()]
    if values is None:
        return {}
    if isinstance(values, Mapping):
        if unknown := sorted(set(values) - set(every)):
            raise UserError(f"{what} must be of the outputs {', '.join(every)}; received {', '.join(unknown)}")
        return values
    if len(heads) != 1:
        raise UserError(f"{what} must be a dict by output name; this model gives {', '.join(every)}")
    (head,) = heads.values()
    if what == "labels" and hasattr(head, "labels_by_output"):
        return head.labels_by_output(values)
    return dict.fromkeys(every, values)
