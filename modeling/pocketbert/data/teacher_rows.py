"""Examples as token rows for a teacher with its own tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pocketbert_runtime.rows import TokenRows
from pocketbert_runtime.tokenizers.framing import INPUT_NAMES

# A batch has the teacher's inputs under these names, such as `teacher_input_word_ids`.
TEACHER_PREFIX = "teacher_"
_NO_PARTNER = -1


@dataclass(frozen=True)
class TeacherRows(TokenRows):
    """The teacher's token ids for the examples in `EncodedExamples`, row by row.

    Attributes:
      partners: name of a token output → for each token, the position of the student's token in the same row that takes
        its probability, or -1; int32 `[tokens]`. Empty for outputs per text.
    """

    partners: Mapping[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: TokenRows) -> TeacherRows:
        """Returns the rows without partners, for outputs per text."""
        return cls(**{name: getattr(rows, name) for name in TokenRows.__dataclass_fields__})

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arrays in `batch`."""
        return tuple(f"{TEACHER_PREFIX}{name}" for name in (*INPUT_NAMES, *self.partners))

    def batch(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Returns inputs and partners by prefixed name, int32 `[B, L]`, for the examples at `indices`."""
        arrays = self.inputs(indices)
        rows, is_token = self.rows(indices), arrays["input_mask"] == 1
        for name, partners in self.partners.items():
            padded = np.full(is_token.shape, _NO_PARTNER, np.int32)
            padded[is_token] = np.concatenate([partners[self.offsets[row] : self.offsets[row + 1]] for row in rows])
            arrays[name] = padded
        return {f"{TEACHER_PREFIX}{name}": array for name, array in arrays.items()}


def without_teacher_rows(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a batch without the teacher's inputs."""
    return {name: value for name, value in inputs.items() if not name.startswith(TEACHER_PREFIX)}
