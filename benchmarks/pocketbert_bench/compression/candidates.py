"""Candidates: a structure, how it trains, and how its file is made. Those beyond the limits are refused untrained."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pocketbert.configs import EncoderConfig
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert_bench.compression.constraints import Constraints, Cost
from pocketbert_bench.compression.costs import CostModel, fitted_model, measured_model, read_costs
from pocketbert_bench.compression.inputs import DEFAULT_RECIPE, MIXED_RECIPE, SMALL_RECIPE, Inputs, check
from pocketbert_bench.compression.lengths import padded_shares
from pocketbert_bench.compression.measurements import COSTS_FILE
from pocketbert_bench.compression.methods import TEXT, Training, trainings
from pocketbert_bench.compression.other_students import OtherStudent
from pocketbert_bench.compression.structures import Structure, can_be_cut, structures
from pocketbert_bench.network_latency import Setting

# Predicted latencies must leave this share of the limit: the upper end of the measured interval counts.
_MARGIN = 0.08
# A latency above this share of a limit is near it. So many kinds near it need no smaller files.
_NEAR, _KINDS = 0.7, 3
# Without a limit of the latency, candidates are spread below these shares of the teacher's.
_SHARES = (0.9, 0.6, 0.4, 0.25, 0.15)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudentCandidate:
    """A structure, how it trains, how its file is made, and its predicted costs.

    Attributes:
      kind: kind of the structure; see `structures`.
      structure: the structure.
      training: how it trains.
      recipe: recipe of its file; the training does not depend on it.
      trimmed: whether its file has only the tokens of the training texts; it trains with the whole vocabulary.
      lengths: lengths of its file, ascending.
      cost: predicted latency, size and memory.
    """

    kind: str
    structure: Structure | OtherStudent
    training: Training
    recipe: str
    trimmed: bool
    lengths: tuple[int, ...]
    cost: Cost

    @property
    def name(self) -> str:
        """Name of a folder."""
        return f"{self.structure.name},{self.training.name}"

    def is_part_of(self, other: StudentCandidate) -> bool:
        """Whether both are cut out of the teacher, and this network has no parts that the other one lacks."""
        part, whole = self.structure, other.structure
        return isinstance(part, Structure) and isinstance(whole, Structure) and part.is_part_of(whole)


def measured_costs(inputs: Inputs) -> dict[str, CostModel]:
    """The model of each recipe, and of each recipe and student that is not cut out of the teacher.

    A second recipe is not measured if the teacher's file is small enough with the first, perhaps trimmed, or if the
    limit of the latency leaves no larger networks.
    """
    teacher, limits, costs = inputs.described.config, inputs.constraints, dict[str, CostModel]()
    smallest = teacher.replace(vocab_size=len(inputs.kept_tokens) or teacher.vocab_size)
    earlier = {} if inputs.measurements is None else read_costs(inputs.measurements / COSTS_FILE)
    for setting in inputs.settings:
        if costs and limits.max_mb is not None:
            whole = costs[inputs.recipe].predict(smallest, inputs.shares)
            if whole.size_mb <= limits.max_mb or _latency_decides(inputs, costs):
                break
        others = _other_lengths(inputs, setting)
        # The memory of a length is unknown in a run without a limit of the memory.
        fitting = {name: model for name, model in earlier.items() if model.length_memory or not others}
        if setting.recipe in fitting:
            costs[setting.recipe] = fitting[setting.recipe]
        elif can_be_cut(teacher):
            costs[setting.recipe] = fitted_model(
                teacher,
                setting,
                small_embedding=inputs.small_embedding,
                device=inputs.device,
                other_lengths=others,
            )
        else:
            costs[setting.recipe] = measured_model(teacher, setting, device=inputs.device, other_lengths=others)
        for student in inputs.students:
            name = _student_costs(setting.recipe, student)
            costs[name] = fitting.get(name) or measured_model(
                student.architecture, setting, device=inputs.device, other_lengths=others
            )
        if limits.max_memory_mb is not None and not any(costs[setting.recipe].memory):
            raise UserError(
                f"{argument('max_memory_mb')} needs a device that reports the memory of its processes; "
                f"{inputs.device.name or 'this machine'} does not; leave the limit out"
            )
    return costs


def _other_lengths(inputs: Inputs, setting: Setting) -> tuple[int, ...]:
    """Lengths in another number than the measured ones, to learn what a length adds to the memory; else empty."""
    if inputs.constraints.max_memory_mb is None:
        return ()
    others = (lengths for lengths in reversed(inputs.length_choices) if len(lengths) != len(setting.lengths))
    return next(others, ())


def predicted_latency_ms(model: str | Path | None, data: TaskData, length: int) -> float:
    """Predicted latency of a teacher's bundle on this machine, in ms, to choose a limit from.

    Args:
      model: see `pb.compress`.
      data: see `pb.compress`.
      length: tokens of a text.
    """
    inputs = check(model, data, constraints=Constraints(length=length), trials=1)
    return measured_costs(inputs)[inputs.recipe].predict(inputs.described.config, inputs.shares).latency_ms


def _latency_decides(inputs: Inputs, costs: Mapping[str, CostModel]) -> bool:
    """Whether several kinds of structure within all limits come near that of the latency."""
    limits = inputs.constraints
    if limits.max_latency_ms is None:
        return False
    near = {
        candidate.kind
        for candidate in _candidates(inputs, costs)
        if not limits.excess(candidate.cost, _MARGIN) and candidate.cost.latency_ms > _NEAR * limits.max_latency_ms
    }
    return len(near) >= _KINDS


def candidates_within(inputs: Inputs, costs: Mapping[str, CostModel]) -> list[StudentCandidate]:
    """Candidates within the limits, in the order of trials.

    Each has the first embedding, recipe, vocabulary and lengths that are within them. A factored embedding comes last,
    since it changes the weights before training.

    Args:
      inputs: the input of the compression.
      costs: the models of `measured_costs`.

    Raises:
      UserError: none is within the limits; the message names the nearest.
    """
    limits = inputs.constraints
    nearest: dict[tuple[object, ...], tuple[float, StudentCandidate]] = {}
    for candidate in _candidates(inputs, costs):
        if inputs.like not in ("", candidate.name):
            continue
        excess, structure = limits.excess(candidate.cost, _MARGIN), candidate.structure
        if isinstance(structure, Structure):
            structure = dataclasses.replace(structure, embedding_rank=None)
        key = structure, candidate.training
        if key not in nearest or excess < nearest[key][0]:
            nearest[key] = excess, candidate
    if not nearest:
        raise UserError(
            f"{argument('like')} must be a run of pocketbert compress, or a name in its leaderboard, with a candidate "
            f"that this run has, too; received {inputs.like}; pass model, {argument('text')}, {argument('students')}, "
            f"{argument('supernet')}, {argument('seed')}, {argument('max_mb')} and "
            f"{argument('unlabelled_file', python='pb.data.with_unlabelled')} of that run, or leave it out"
        )
    within = [candidate for excess, candidate in nearest.values() if excess == 0]
    if not within:
        _, candidate = min(nearest.values(), key=lambda pair: pair[0])
        memory = "" if limits.max_memory_mb is None else f" and {candidate.cost.memory_mb:.3g} MB of memory"
        raise UserError(
            f"no network within the limits can be cut out of this teacher; the nearest, {candidate.structure.name}, "
            f"has about {candidate.cost.latency_ms:.3g} ms {inputs.where}, {candidate.cost.size_mb:.3g} MB{memory} as "
            f"{candidate.recipe}; raise the limit, or use a smaller encoder as the model"
        )
    log_info(f"{len(within)} of {len(nearest)} candidates are within the limits by their predicted costs")
    if unread := _unread(inputs, within):
        log_info(f"no candidate within the limits reads {', '.join(unread)}")
    if fewer := sum(candidate.lengths != inputs.length_choices[0] for candidate in within):
        log_info(f"the files of {fewer} candidates have fewer lengths, to keep within the limit of the memory")
    shares = (math.inf,) if limits.max_latency_ms is not None else _SHARES
    slowest = costs[inputs.recipe].predict(inputs.described.config, inputs.shares).latency_ms
    # All kinds may be slower than a share of a teacher with one layer.
    ordered = in_order(within, [share * slowest for share in shares]) or in_order(within, [math.inf])
    if limits.max_points_lost is not None:
        # The fastest one within the limit may be any.
        names, most_ms = {candidate.name for candidate in ordered}, shares[0] * slowest
        ordered += [one for one in within if one.name not in names and one.cost.latency_ms <= most_ms]
    return ordered


def _unread(inputs: Inputs, within: Sequence[StudentCandidate]) -> list[str]:
    """Texts and networks that the user has passed and no candidate uses, because of the limits or `like`."""
    unlabelled, names = inputs.splits.data.unlabelled, {candidate.structure.name for candidate in within}
    read = {student.source for student in inputs.students if student.name in names}
    sources = dict.fromkeys(student.source for student in inputs.students if student.source)
    unread = [source for source in sources if source not in read]
    if inputs.supernet is not None and not any(one.supernet and one.name in names for one in inputs.students):
        unread.append(str(inputs.supernet))
    if inputs.text is not None and all(candidate.training.method != TEXT for candidate in within):
        unread.append(str(inputs.text.path))
    if unlabelled is not None and not any(candidate.training.unlabelled for candidate in within):
        unread.append(unlabelled.source)
    return unread


def in_order(candidates: Sequence[StudentCandidate], most_ms: Sequence[float]) -> list[StudentCandidate]:
    """Candidates in the order of trials.

    The slowest of each kind below each latency come first, fine-tuned; then those of the last layers, and those whose
    head reads the first token; then all of them with the other ways to train. Of those near a latency, the deepest are
    first: many narrow layers lose less than a few whole ones (docs/results/bake-off.md).

    Args:
      candidates: candidates within the limits.
      most_ms: latencies; several of them spread the trials over fast and slow networks. If infinite, none is near it.
    """
    ordered: dict[str, StudentCandidate] = {}
    for training in dict.fromkeys(candidate.training for candidate in candidates):
        trained = [candidate for candidate in candidates if candidate.training == training]
        slowest = [_slowest(trained, most) for most in most_ms]
        for candidate in itertools.chain.from_iterable(itertools.zip_longest(*slowest)):
            if candidate is not None:
                ordered.setdefault(candidate.name, candidate)
    return list(ordered.values())


def _slowest(candidates: Sequence[StudentCandidate], most_ms: float) -> list[StudentCandidate]:
    """The slowest candidate of each kind within a latency."""
    of_kind: dict[str, StudentCandidate] = {}
    for candidate in sorted(candidates, key=lambda candidate: -candidate.cost.latency_ms):
        if candidate.cost.latency_ms <= most_ms:
            of_kind.setdefault(candidate.kind, candidate)

    def claim(candidate: StudentCandidate) -> tuple[bool, bool, int]:
        near = candidate.cost.latency_ms > _NEAR * most_ms
        # Among equally slow ones, those from which a teacher's layers are most often taken.
        usual = candidate.structure.first_token, candidate.kind.startswith("last")
        return *usual, -candidate.structure.depth if near else 0

    return sorted(of_kind.values(), key=claim)


def _candidates(inputs: Inputs, costs: Mapping[str, CostModel]) -> Iterator[StudentCandidate]:
    """All candidates, of equal ones first the one that changes the teacher least."""
    teacher, data, text = inputs.described, inputs.splits.data, inputs.text is not None
    cut: Iterable[tuple[str, Structure]] = ()
    if can_be_cut(teacher.config):
        cut = structures(teacher.config, small_embedding=inputs.small_embedding, mean_pooling=inputs.mean_pooling)
    others = [(student.name, student) for student in inputs.students]
    for kind, structure in itertools.chain[tuple[str, Structure | OtherStudent]](cut, others):
        config = structure.config(teacher.config)
        vocabulary = structure.vocabulary if isinstance(structure, OtherStudent) else None
        ways = trainings(data, teacher, config, text=text, vocabulary=vocabulary)
        for recipe in inputs.recipes:
            trims = (False, True) if inputs.kept_tokens else (False,)
            for trimmed, lengths in itertools.product(trims, inputs.length_choices):
                cost = _cost(inputs, costs, structure, recipe, trimmed=trimmed, lengths=lengths)
                for training in ways if cost else ():
                    assert cost is not None
                    yield StudentCandidate(
                        kind=kind,
                        structure=structure,
                        training=training,
                        recipe=recipe,
                        trimmed=trimmed,
                        lengths=lengths,
                        cost=cost,
                    )


def _cost(
    inputs: Inputs,
    costs: Mapping[str, CostModel],
    structure: Structure | OtherStudent,
    recipe: str,
    *,
    trimmed: bool,
    lengths: tuple[int, ...],
) -> Cost | None:
    """Predicted costs; None for a recipe that is not needed."""
    if recipe == MIXED_RECIPE:
        # Its layers have the formats of these two recipes, and the file may be as large as the limit.
        large, small = (
            _cost(inputs, costs, structure, part, trimmed=trimmed, lengths=lengths)
            for part in (DEFAULT_RECIPE, SMALL_RECIPE)
        )
        most = inputs.constraints.max_mb
        assert most is not None
        if large is None or small is None:
            return None
        return Cost(
            latency_ms=max(large.latency_ms, small.latency_ms),
            size_mb=max(small.size_mb, min(large.size_mb, most)),
            memory_mb=max(large.memory_mb, small.memory_mb),
        )
    other = isinstance(structure, OtherStudent)
    name = _student_costs(recipe, structure) if isinstance(structure, OtherStudent) else recipe
    if name not in costs or (other and trimmed):
        return None
    config: EncoderConfig = structure.config(inputs.described.config)
    if trimmed:
        config = config.replace(vocab_size=len(inputs.kept_tokens))
    shares = padded_shares(inputs.shares, lengths)
    return costs[name].predict(config, shares, first_token=structure.first_token, lengths=len(lengths))


def _student_costs(recipe: str, student: OtherStudent) -> str:
    return f"{recipe}, {student.name}"
