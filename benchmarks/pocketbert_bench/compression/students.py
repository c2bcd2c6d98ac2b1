"""The weights from which candidates start, cut out of the teacher."""

from __future__ import annotations

import math
from pathlib import Path

from pocketbert.checkpoints.directory import read_directory
from pocketbert.data.examples import evenly
from pocketbert.model import from_pretrained
from pocketbert.pruning.importance import Importance, measure_importance
from pocketbert.tasks.registry import supervised_task
from pocketbert.trials.clock import Record
from pocketbert_bench.compression.candidates import StudentCandidate
from pocketbert_bench.compression.inputs import Inputs
from pocketbert_bench.compression.structures import cuts_widths, write_student

STUDENTS_FOLDER, IMPORTANCE_FILE = "students", "importance.safetensors"
_MOST_EXAMPLES, _LONGEST = 1000, 128
# In a short time, so many for each minute.
_EXAMPLES_A_MINUTE = 75


def student(inputs: Inputs, folder: Path, teacher: Path, candidate: StudentCandidate, record: Record) -> Path:
    """Writes the initial weights of a candidate, once.

    Args:
      inputs: the input of the compression.
      folder: folder of the compression.
      teacher: model directory of the teacher.
      candidate: the candidate.
      record: returns the number with a name from an earlier attempt, or records a new one.
    """
    path = folder / STUDENTS_FOLDER / candidate.structure.name
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        whole = not cuts_widths(candidate.structure, inputs.described.config)
        importance = None if whole else _importance(inputs, folder, teacher, record)
        write_student(read_directory(teacher), importance, candidate.structure, path)
    return path.absolute()


def importance_options(inputs: Inputs, record: Record) -> dict[str, int]:
    """Fields of `PruneConfig`: the training examples for the importance, and their length."""
    count = min(_MOST_EXAMPLES, len(inputs.splits.data.train))
    if inputs.minutes is not None:
        # A larger time later does not change the importance.
        usual, minutes = count, inputs.minutes
        count = round(
            record("examples for the importance", lambda: min(usual, math.ceil(_EXAMPLES_A_MINUTE * minutes)))
        )
    return {"examples": count, "max_length": min(_LONGEST, inputs.described.config.max_position_embeddings)}


def _importance(inputs: Inputs, folder: Path, teacher: Path, record: Record) -> Importance:
    """Importance of the teacher's heads and neurons on some training examples."""
    model, train, options = from_pretrained(teacher), inputs.splits.data.train, importance_options(inputs, record)
    assert model.task is not None
    rows = train.select(evenly(len(train), options["examples"]))
    encoded = supervised_task(model.task).encode(rows, model.tokenizer, options["max_length"])
    return measure_importance(model, encoded, folder / IMPORTANCE_FILE, batch_size=32, seed=inputs.seed)
