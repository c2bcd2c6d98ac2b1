"""Choose a bundle's lengths from its texts' token counts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from pocketbert.checkpoints.directory import DirectoryDescription
from pocketbert.data.examples import evenly
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.flops import encoder_flops
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert.tasks.data_checks import cut_warning
from pocketbert.tasks.registry import supervised_task
from pocketbert.tokenizers.opening import open_tokenizer
from pocketbert.training.initialization import vocabulary_of
from pocketbert_bench.compression.constraints import Constraints
from pocketbert_runtime.tokenizers.truncation import room_problem

# More lengths make the file larger, and save little.
MOST_LENGTHS = 4
_MULTIPLE, _PERCENTILE, _COUNTED, _SAMPLED = 16, 95, 2000, 100


def token_counts(directory: Path, described: DirectoryDescription, data: TaskData) -> np.ndarray:
    """Counts tokens in up to 2,000 training texts, within the model's positions; a `UserError` without a tokenizer."""
    vocabulary = vocabulary_of(directory)
    if vocabulary is None:
        raise UserError(f"compress: the model must have a tokenizer; {directory} has none; put its files there")
    rows = data.train.select(evenly(len(data.train), _COUNTED))
    longest = described.config.max_position_embeddings
    return np.diff(supervised_task(data.task).encode(rows, open_tokenizer(vocabulary), longest).offsets)


def windows_per_example(directory: Path, data: TaskData, length: int) -> float:
    """Returns the mean number of measured inputs for a dev example: a question on a long paragraph has several."""
    vocabulary, task = vocabulary_of(directory), supervised_task(data.task)
    assert vocabulary is not None
    few = data.dev.select(evenly(len(data.dev), _SAMPLED))
    encoded = task.encode(few, open_tokenizer(vocabulary), length)
    # Two texts that an encoder reads one by one are measured together.
    return (len(encoded.offsets) - 1) / len(few) / (encoded.rows_per_example if data.task.pairs else 1)


def check_cuts(directory: Path, data: TaskData, length: int) -> None:
    """Logs how many texts the longest length cuts; a `UserError` if it has no room for the model's way to cut."""
    vocabulary = vocabulary_of(directory)
    assert vocabulary is not None
    if problem := room_problem(vocabulary.truncation, length, argument("length")):
        raise UserError(f"compress: networks cut texts as the given model does: {problem}")
    parts = [part for part in (data.train, data.dev, data.test) if part is not None]
    cut = cut_warning(
        supervised_task(data.task), parts, open_tokenizer(vocabulary), length, f"pass a larger {argument('length')}"
    )
    if cut is not None:
        log_info(f"warning: {cut}")


def usual_length(counts: np.ndarray, positions: int) -> int:
    """Returns the 95th percentile of token counts, rounded up to a multiple of 16, within the model's positions."""
    return min(rounded_up(float(np.percentile(counts, _PERCENTILE))), positions)


def lengths_of(counts: Sequence[int] | np.ndarray, positions: int, cost: Callable[[int], float]) -> dict[int, float]:
    """Chooses at most four lengths for the least mean cost if each text is padded to the next length.

    The lengths are multiples of 16 within the model's positions.

    Args:
      counts: the texts' token counts, at most `positions`.
      positions: the model's positions.
      cost: returns the cost for a text with a length.
    Returns:
      Length → share of the texts padded to it; ascending, and the last one holds all texts.
    """
    lengths, numbers = np.unique([min(rounded_up(count), positions) for count in counts], return_counts=True)
    costs = [cost(int(length)) for length in lengths]
    texts = np.concatenate([[0], np.cumsum(numbers)])
    # Number of shortest lengths with padded texts → least cost for these, and their new lengths.
    least: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
    for _ in range(MOST_LENGTHS):
        least = {0: least[0]} | {
            end: min(
                (least[start][0] + (texts[end] - texts[start]) * costs[end - 1], (*least[start][1], end))
                for start in least
                if start < end
            )
            for end in range(1, len(lengths) + 1)
        }
    _, ends = least[len(lengths)]
    starts = (0, *ends[:-1])
    return {
        int(lengths[end - 1]): float((texts[end] - texts[start]) / texts[-1])
        for start, end in zip(starts, ends, strict=True)
    }


def measured_shares(
    constraints: Constraints, directory: Path, described: DirectoryDescription, data: TaskData
) -> dict[int, float]:
    """Returns a measured text's length → share in the mean latency."""
    if isinstance(constraints.length, int):
        return {constraints.length: 1.0}
    counts, positions = token_counts(directory, described, data), described.config.max_position_embeddings
    if constraints.length is None:
        return {usual_length(counts, positions): 1.0}
    shares = lengths_of(counts, positions, lambda length: encoder_flops(described.config, length))
    log_info(
        "lengths of the bundle: "
        + ", ".join(f"{length} tokens for {100 * share:.3g} % of the texts" for length, share in shares.items())
    )
    return shares


def padded_shares(shares: Mapping[int, float], lengths: Sequence[int]) -> dict[int, float]:
    """Returns length → share of the texts padded to it, without unused lengths.

    Args:
      shares: length → share of the texts.
      lengths: a file's lengths; the longest holds all texts.
    """
    padded = dict.fromkeys(sorted(lengths), 0.0)
    for length, share in shares.items():
        padded[min(longer for longer in padded if longer >= length)] += share
    return {length: share for length, share in padded.items() if share}


def fewer_and_fewer(
    lengths: Sequence[int], shares: Mapping[int, float], cost: Callable[[int], float]
) -> list[tuple[int, ...]]:
    """Returns all lengths, then the choices with one length less each, for the least mean cost.

    Args:
      lengths: ascending lengths; each choice has the longest.
      shares: length → share of the texts.
      cost: returns the cost for a text with a length.
    """

    def mean(chosen: tuple[int, ...]) -> float:
        return sum(share * cost(length) for length, share in padded_shares(shares, chosen).items())

    shorter, longest = lengths[:-1], lengths[-1]
    return [
        min(((*chosen, longest) for chosen in itertools.combinations(shorter, count)), key=mean)
        for count in range(len(shorter), -1, -1)
    ]


def rounded_up(count: float) -> int:
    """Rounds up to a multiple of 16."""
    return max(int(np.ceil(count / _MULTIPLE)), 1) * _MULTIPLE
