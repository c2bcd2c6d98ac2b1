"""The input of a compression, checked before anything is written."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pocketbert.checkpoints.directory import DirectoryDescription, describe_directory
from pocketbert.configs import TaskConfig
from pocketbert.data.assets import minilm, model_directory
from pocketbert.data.constructors import text as text_data
from pocketbert.data.examples import LabelledData
from pocketbert.data.final_split import ThreeSplits, all_examples, fold_count, folds_of, three_splits
from pocketbert.data.label_order import in_label_order
from pocketbert.data.task_data import TaskData, TextData
from pocketbert.errors import UserError, raise_if_any
from pocketbert.files import sha256
from pocketbert.flops import encoder_flops
from pocketbert.hub.download import local
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert.pruning.vocabulary import used_tokens
from pocketbert.tasks.registry import supervised_kinds, supervised_task
from pocketbert.tokenizers.opening import open_tokenizer
from pocketbert.training.config import FinetuneConfig
from pocketbert.training.initialization import vocabulary_of
from pocketbert.training.plan import open_data
from pocketbert.training.run_data import TaskRunData
from pocketbert.training.state import digest_directory, recorded_origin
from pocketbert_bench.adb import HOST
from pocketbert_bench.compression.constraints import Constraints, budget_problems
from pocketbert_bench.compression.costs import SCHEDULE
from pocketbert_bench.compression.lengths import check_cuts, fewer_and_fewer, measured_shares, rounded_up
from pocketbert_bench.compression.measurements import MEASURED_FILE, check_measurements
from pocketbert_bench.compression.other_students import DEFAULT_SOURCE, OtherStudent, other_students
from pocketbert_bench.compression.outcome import winner_of
from pocketbert_bench.compression.sources import (
    can_teach,
    in_better_form,
    read_as_teacher,
    soft_label_note,
    soft_label_problems,
)
from pocketbert_bench.compression.structures import SMALL_RANK, can_be_cut
from pocketbert_bench.network_latency import Device, Setting, open_device
from pocketbert_bench.paired_scores import check_classes, slice_values
from pocketbert_export.bundles.model_card import CardOptions, with_base_model, with_model_card
from pocketbert_export.recipes import get_recipe
from pocketbert_runtime.heads_config import described_heads

# The others are for files that are too large with the first.
DEFAULT_RECIPE, SMALL_RECIPE, MIXED_RECIPE = "dynamic_wi8", "dynamic_wi4", "mixed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inputs:
    """Checked input.

    Attributes:
      directory: model directory of the teacher, or of an encoder.
      described: what it contains.
      is_teacher: whether it has a head for the task already.
      splits: the data.
      folds: the data of each fold, whose final splits give the score of small data; empty for one final split.
      final_is_given: whether the final split is a file of its own.
      compared: dev examples that compare the best two candidates; more than choose among all of them, if time is short.
      constraints: the limits.
      device: where latency and memory are measured.
      shares: length of a measured text in tokens → share in the mean latency; ascending.
      settings: task of the networks, recipe, and lengths of measured texts; one for each measured recipe, the preferred
        first.
      recipes: recipes of the files, the preferred first.
      students: networks that are not cut out of the teacher.
      supernet: model directory of the supernet from which some of them start, or None.
      kept_tokens: ids of the tokens in a trimmed vocabulary; empty if the size has no limit, and on a phone.
      text: plain text for distillation, or None.
      head_examples: most examples from which a new head starts.
      minutes: time of the run, or None.
      trials: number of first rungs, or None.
      measurements: folder of the run whose measured costs this one takes, or None.
      pairs_note: how the encoder reads pairs, and why; empty without a choice.
      slices: column → id of an example → its value; their values have rows on the page.
      like: name of the only candidate; empty for all.
      stop_below_baseline: whether a teacher that is worse than a simple method ends the run.
      card: facts for the model card.
      seed: random seed.
    """

    directory: Path
    described: DirectoryDescription
    is_teacher: bool
    splits: ThreeSplits
    folds: Sequence[ThreeSplits]
    final_is_given: bool
    compared: LabelledData
    constraints: Constraints
    device: Device
    shares: Mapping[int, float]
    settings: Sequence[Setting]
    recipes: Sequence[str]
    students: Sequence[OtherStudent]
    supernet: Path | None
    kept_tokens: Sequence[int]
    text: TextData | None
    head_examples: int = FinetuneConfig.head_start_examples
    minutes: float | None
    trials: int | None
    measurements: Path | None
    pairs_note: str
    slices: Mapping[str, Mapping[str, str]]
    like: str
    stop_below_baseline: bool
    card: CardOptions
    seed: int

    @property
    def length(self) -> int:
        """The bundle's longest length, in tokens."""
        return max(self.shares)

    @property
    def where(self) -> str:
        """What the latency is measured on, in words."""
        on = f" on {self.device.name}" if self.device.name else ""
        pair = "for a pair of texts " if self.settings[0].task.pairs else ""
        return pair + self.constraints.texts_with(self.length) + on

    @property
    def recipe(self) -> str:
        """The preferred recipe, also that of the teacher's bundle."""
        return self.settings[0].recipe

    @property
    def bundle_card(self) -> CardOptions:
        """Facts for the model card, also those of the teacher's own card."""
        return with_model_card(self.card, self.directory)

    @property
    def mean_pooling(self) -> bool:
        """Whether the measured networks have a head that reads the mean of all tokens."""
        return self.settings[0].task.pooling == "mean"

    @property
    def amount(self) -> float:
        """The minutes or trials of the budget."""
        return self.trials or 0 if self.minutes is None else self.minutes

    @property
    def budget(self) -> str:
        """The budget, in words."""
        return f"{self.amount:g} {'trials' if self.minutes is None else 'minutes'}"

    @property
    def small_embedding(self) -> bool:
        """Whether candidates may have a factored word embedding: if the size has a limit."""
        return self.constraints.max_mb is not None and self.described.config.hidden_size > SMALL_RANK

    @property
    def lengths(self) -> list[int]:
        """Lengths of the bundle; half of a single one, too."""
        if self.constraints.length == "data":
            return list(self.shares)
        return sorted({min(rounded_up(self.length / 2), self.length), self.length})

    @property
    def length_choices(self) -> list[tuple[int, ...]]:
        """Lengths that a file may have, the preferred first: each needs memory, so fewer if memory has a limit."""
        if self.constraints.max_memory_mb is None:
            return [tuple(self.lengths)]
        config = self.described.config
        return fewer_and_fewer(self.lengths, self.shares, lambda length: encoder_flops(config, length))

    @property
    def networks(self) -> dict[str, Any]:
        """What the networks and their costs depend on, as JSON values."""
        return {
            "model_sha256": digest_directory(self.directory),
            "recipes": list(self.recipes),
            "students": [
                [student.source, _identity(student.model)]
                for student in self.students
                if student.source and not student.layers
            ],
            "lengths": list(self.shares),
            "small_embedding": self.small_embedding,
            "device": self.device.name,
            "threads": self.constraints.threads,
            **({"pairs": self.settings[0].task.pairs} if self.settings[0].task.pairs else {}),
            **({"supernet_sha256": digest_directory(self.supernet)} if self.supernet else {}),
        }

    @property
    def recorded(self) -> dict[str, Any]:
        """What determines the result, as JSON values."""
        return {
            "objective": "compression",
            # No file has a serial number, and those of earlier commits have no limit of a class.
            "constraints": {
                name: value
                for name, value in dataclasses.asdict(self.constraints).items()
                if name != "max_class_points_lost" or value is not None
            }
            | {"device": self.device.name, "apk": None},
            # A finished run continues with more of it.
            "budget": "trials" if self.minutes is None else "minutes",
            "measurements_sha256": self.measurements and sha256(self.measurements / MEASURED_FILE),
            "stop_below_baseline": self.stop_below_baseline,
            "model_card": {**dataclasses.asdict(self.card), "limits": list(self.card.limits)},
            "seed": self.seed,
            **self.networks,
            **recorded_origin("model", self.directory),
            **(recorded_origin("supernet", self.supernet) if self.supernet else {}),
            **{
                name: value
                for student in self.students
                for name, value in recorded_origin(f"student_{student.number}", student.source).items()
            },
            **({"like": self.like} if self.like else {}),
            **({"slices": list(self.slices)} if self.slices else {}),
            "final_sha256": [split.final.dev.identity for split in self.folds or (self.splits,) if split.final],
            **(open_data(self.text).recorded() if self.text else {}),
            **open_data(self.splits.data).recorded(),
        }


def check(
    model: str | os.PathLike[str] | None,
    data: TaskData,
    *,
    constraints: Constraints,
    minutes: float | None = None,
    trials: int | None = None,
    measurements: str | os.PathLike[str] | None = None,
    kfold: int | None = None,
    recipe: str | None = None,
    students: Sequence[str | os.PathLike[str]] = (),
    supernet: str | os.PathLike[str] | None = None,
    text: str | os.PathLike[str] | None = None,
    slices: Mapping[str, Mapping[str, str]] = {},
    like: str | os.PathLike[str] | None = None,
    stop_below_baseline: bool = False,
    card: CardOptions = CardOptions(),  # noqa: B008
    seed: int = 0,
    pinned: Mapping[str, str] = {},
) -> Inputs:
    """Checks the arguments of `compress`; `pinned` has the commits of models on the hub in a run to resume.

    Raises:
      UserError: lists all problems.
    """
    problems = budget_problems(minutes, trials, measurements) + soft_label_problems(data)
    only, recipe_of_winner = ("", None) if like is None else winner_of(like)
    recipe = recipe or recipe_of_winner
    if data.task.kind not in supervised_kinds():
        problems.append(f"the task must be {', '.join(supervised_kinds())}; received {data.task.kind}")
    if data.task.tasks:
        problems.append(f"compress is for one head; received {described_heads(data.task)}; use pb.distill")
    elif not problems:
        opened = TaskRunData(data)
        data, problems = opened.given, opened.problems(supervised_kinds())
    if data.augmented is not None:
        problems.append(
            f"compress reads labelled examples and unlabelled texts; received {data.augmented.source}; leave it out, "
            "or use pb.distill"
        )
    if recipe == MIXED_RECIPE and constraints.max_mb is None:
        problems.append(
            f"{argument('recipe', MIXED_RECIPE)} is for files that are too large with {DEFAULT_RECIPE}; received no "
            f"limit of the size; pass {argument('max_mb')}"
        )
    elif recipe not in (None, MIXED_RECIPE) and get_recipe(str(recipe)).calibration == "required":
        problems.append(
            "networks are measured before they are trained, so the recipe must need no calibration; received "
            f"{recipe}; use dynamic_wi8, and export the model with your recipe afterwards"
        )
    raise_if_any(problems, "compress")
    directory = minilm() if model is None else model_directory(model, pinned=pinned)
    supernet_directory = None if supernet is None else model_directory(supernet, pinned=pinned)
    students = [local(student, pinned) for student in students]
    described = describe_directory(directory)
    is_teacher = can_teach(described, data)
    count, pairs_note = fold_count(data, kfold), ""
    if is_teacher:
        data = read_as_teacher(data, described)
    elif constraints.device == HOST:
        divided = (all_examples(data, seed) if count else three_splits(data, seed=seed)).data
        data, pairs_note = in_better_form(data, directory, described.config.max_position_embeddings, divided, seed)
        pairs_note += "; all examples chose, those of the final scores, too" if pairs_note and count else ""
    if data.task.pairs and constraints.device != HOST:
        raise UserError(
            "a phone measures single texts; received a head on separate pairs (pairs=separate); leave out "
            f"{argument('device')}"
        )
    if is_teacher and (labels := described.tasks[0].labels) != data.task.labels:
        log_info(f"labels in the model's order: {', '.join(labels)}")
        data = in_label_order(data, labels)
        data = dataclasses.replace(data, task=dataclasses.replace(data.task, labels=labels))
    shares = measured_shares(constraints, directory, described, data)
    positions = described.config.max_position_embeddings
    if max(shares) > positions:
        problems.append(f"length must be at most the model's {positions} positions; received {max(shares)}")
    if described.config.feedforward is not None:
        problems.append(
            "networks can be cut out of BERT, RoBERTa, XLM-R, DistilBERT, ELECTRA and MobileBERT; received an "
            "EfficientBERT; use pocketbert search for it"
        )
    raise_if_any(problems, "compress")
    check_cuts(directory, data, max(shares))
    if not (can_be_cut(described.config) or students or supernet):
        log_info(f"no network can be cut out of this model, so they are cut out of {DEFAULT_SOURCE}")
        students = (DEFAULT_SOURCE,)
    device = open_device(constraints.device, constraints.apk, directory, SCHEDULE)
    device.check()
    task = described.tasks[0] if is_teacher else _new_head(data.task)
    both = [DEFAULT_RECIPE, *([SMALL_RECIPE] if constraints.max_mb is not None else [])]
    measured = [recipe] if recipe and recipe != MIXED_RECIPE else both
    trims = constraints.max_mb is not None and not device.name
    if count:
        reason = ", since there are few examples" if kfold is None else ""
        log_info(f"{count} folds give the final score{reason}")
    splits = all_examples(data, seed) if count else three_splits(data, seed=seed)
    if constraints.max_class_points_lost is not None:
        check_classes(splits.data.dev)
    if slices and splits.final is None:
        raise UserError("slices need a final split; folds score these few examples; leave the slices out")
    slice_values(slices, splits.final.dev if splits.final else splits.data.dev)
    sizes = [f"{len(splits.data.train):,} for training", f"{len(splits.data.dev):,} for the choice (dev)"]
    sizes += [f"{len(splits.final.dev):,} for the final score"] if splits.final else []
    drawn = "splits of the compression" if data.undivided is None else "the compression draws splits anew"
    log_info(f"{drawn}: {', '.join(sizes)}")
    if note := soft_label_note(data):
        log_info(note)
    inputs = Inputs(
        directory=directory,
        described=described,
        is_teacher=is_teacher,
        splits=splits,
        folds=folds_of(data, count, seed) if count else (),
        final_is_given=data.test is not None,
        compared=splits.data.dev,
        constraints=constraints,
        device=device,
        shares=shares,
        settings=[
            Setting(task=task, recipe=name, lengths=tuple(shares), threads=constraints.threads) for name in measured
        ],
        recipes=[DEFAULT_RECIPE, MIXED_RECIPE] if recipe == MIXED_RECIPE else measured,
        students=other_students(students, supernet_directory, described, length=max(shares), seed=seed),
        supernet=supernet_directory,
        # Not those of dev and final texts: new texts have unknown words, too.
        kept_tokens=_kept_tokens(directory, described, splits.data) if trims else (),
        text=None if text is None else text_data(Path(text).absolute()),
        minutes=minutes,
        trials=trials,
        measurements=None if measurements is None else Path(measurements),
        pairs_note=pairs_note,
        slices=slices,
        like=only,
        stop_below_baseline=stop_below_baseline,
        card=with_base_model(card, directory),
        seed=seed,
    )
    if inputs.measurements:
        check_measurements(inputs.measurements, inputs.networks)
    return inputs


def _kept_tokens(directory: Path, described: DirectoryDescription, data: TaskData) -> list[int]:
    """Ids of a vocabulary with the tokens of the training texts."""
    vocabulary = vocabulary_of(directory)
    assert vocabulary is not None
    longest = described.config.max_position_embeddings
    encoded = supervised_task(data.task).encode(data.train, open_tokenizer(vocabulary), longest)
    return used_tokens(vocabulary, encoded.word_ids)


def _identity(model: Path | None) -> str:
    """Digest of a model directory; empty for a preset, whose weights depend on the seed."""
    return "" if model is None else digest_directory(model)


def _new_head(task: TaskConfig) -> TaskConfig:
    """A new head may read the mean of all tokens, which takes longer than the first one."""
    return dataclasses.replace(task, pooling="mean") if task.rules.head == "sentence" else task
