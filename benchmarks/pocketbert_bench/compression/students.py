"""The weights from which candidates start."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from pocketbert.checkpoints.directory import read_directory
from pocketbert.data.examples import evenly
from pocketbert.model import from_preset, from_pretrained
from pocketbert.pruning.importance import Importance, measure_importance
from pocketbert.tasks.registry import supervised_task
from pocketbert.tokenizers.opening import open_tokenizer
from pocketbert.training.initialization import vocabulary_of
from pocketbert.trials.clock import Record
from pocketbert_bench.compression.candidates import StudentCandidate
from pocketbert_bench.compression.inputs import Inputs
from pocketbert_bench.compression.other_students import OtherStudent, write_part
from pocketbert_bench.compression.structures import write_student

IMPORTANCE_FILE = "importance.safetensors"
_MOST_EXAMPLES, _LONGEST = 1000, 128
# In a short time, so many for each minute.
_EXAMPLES_A_MINUTE = 32


def prepare_importance(
    inputs: Inputs, folder: Path, teacher: Path, candidates: Sequence[StudentCandidate], record: Record
) -> None:
    """Measures the importance for `student`, before the time of the trials is divided."""
    cut = (candidate.structure for candidate in candidates if not isinstance(candidate.structure, OtherStudent))
    if any(structure.sizes.cuts_widths(inputs.described.config) for structure in cut):
        _importance(inputs, folder, teacher, record)


def student(
    inputs: Inputs, folder: Path, teacher: Path, candidate: StudentCandidate, path: Path, record: Record
) -> Path:
    """Writes the initial weights of a candidate, unless they exist; returns their model directory.

    Args:
      inputs: the input of the compression.
      folder: folder of the compression.
      teacher: model directory of the teacher.
      candidate: the candidate.
      path: model directory for weights that are not in one of the user, nor a part of another model.
      record: returns the number with a name from an earlier attempt, or records a new one.
    """
    structure = candidate.structure
    if isinstance(structure, OtherStudent) and (directory := structure.directory(folder)) is not None:
        if structure.is_part and not directory.exists():
            write_part(structure, vocabulary_of(teacher), directory)
        return directory.absolute()
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(structure, OtherStudent):
        vocabulary = vocabulary_of(teacher)
        assert vocabulary is not None
        from_preset(structure.architecture, (), open_tokenizer(vocabulary), inputs.seed).save_pretrained(path)
        return path
    whole = not structure.sizes.cuts_widths(inputs.described.config)
    importance = None if whole else _importance(inputs, folder, teacher, record)
    write_student(read_directory(teacher), importance, structure, path)
    return path


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
