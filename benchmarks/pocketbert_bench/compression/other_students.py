"""Networks that are not cut out of the teacher: presets, other models and their layers, and parts of a supernet."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pocketbert.checkpoints.directory import (
    DirectoryDescription,
    read_directory,
    read_with_heads,
    write_directory,
)
from pocketbert.checkpoints.supernet import inheritance_problems, inherited_arrays, supernet_config
from pocketbert.configs import EncoderConfig
from pocketbert.data.assets import model_or_start
from pocketbert.distillation.method import DistillationSpec, vocabulary_problems
from pocketbert.errors import UserError, raise_if_any
from pocketbert.feedforward import DIVISORS, STACKS
from pocketbert.flops import encoder_flops
from pocketbert.hub.names import short_name
from pocketbert.notation import argument
from pocketbert.search.constraints import FlopsConstraint
from pocketbert.search.space import SearchSpace
from pocketbert.training.initialization import ModelInit, plan_model, with_options
from pocketbert.training.run_folder import ADAPTERS_FILE, MODEL_FOLDER
from pocketbert_bench.compression.structures import Structure, even_layers, write_student
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

# The first weights of parts of a supernet, which commands by hand read, too.
STARTS_FOLDER = "starts"
# Parts drawn from a supernet: one for each part of the range of costs.
_DRAWN = 4
# A model with a tokenizer of its own is also tried with so many thirds of its layers.
_THIRDS = (3, 2, 1)
# The source of networks for a teacher of which none can be cut.
DEFAULT_SOURCE = "all-minilm"


@dataclasses.dataclass(frozen=True, kw_only=True)
class OtherStudent:
    """A network that is not cut out of the teacher, with the teacher's vocabulary or its own.

    Attributes:
      number: number among the students, or among the parts drawn from a supernet, from 1.
      source: a preset, a config.json, or a model; empty for a drawn part.
      architecture: its architecture.
      supernet: model directory of the supernet that gives the first weights; None for others.
      model: model directory with its weights, or with more layers; None for random weights.
      layers: layers of the model that it keeps, counted from 1; empty for all.
      vocabulary: its vocabulary, if its tokenizer differs from the teacher's; else None.
    """

    number: int
    source: str
    architecture: EncoderConfig
    supernet: Path | None = None
    model: Path | None = None
    layers: tuple[int, ...] = ()
    vocabulary: Vocabulary | None = dataclasses.field(default=None, compare=False)

    @property
    def name(self) -> str:
        """Name of a folder: `student-1=tinybert_4l_312d`, or `expression-2=` and a digest of the expressions."""
        if self.source:
            # Without its supernet, it is another candidate: it has random weights.
            slices = "" if self.supernet is None else ",slices"
            layers = f",layers={'-'.join(map(str, self.layers))}" if self.layers else ""
            return f"student-{self.number}={short_name(self.source)}{slices}{layers}"
        assert self.architecture.feedforward is not None
        # Another seed draws other expressions, whose costs and leaderboards must not be taken for these.
        text = " ".join(self.architecture.feedforward.expressions)
        return f"expression-{self.number}={hashlib.sha256(text.encode()).hexdigest()[:6]}"

    def directory(self, folder: Path) -> Path | None:
        """The model directory with its first weights; None for random ones.

        Args:
          folder: folder of the compression, which gets the slices of a supernet, and the layers of a model.
        """
        if self.is_part:
            return folder / STARTS_FOLDER / self.name / MODEL_FOLDER
        return self.model

    @property
    def is_part(self) -> bool:
        """Whether its first weights are a part of another model's; see `write_part`."""
        return self.supernet is not None or bool(self.layers)

    @property
    def depth(self) -> int:
        """Number of layers."""
        return self.architecture.num_layers

    @property
    def first_token(self) -> bool:
        """Its head reads what fine-tuning chooses."""
        return False

    def config(self, teacher: EncoderConfig) -> EncoderConfig:
        """The architecture."""
        return self.architecture


def other_students(
    sources: Sequence[str | os.PathLike[str]],
    supernet: Path | None,
    teacher: DirectoryDescription,
    *,
    length: int,
    seed: int,
) -> list[OtherStudent]:
    """The networks that the user names, and a few parts of a supernet.

    Args:
      sources: presets, paths of config.json, or models. With a supernet, an EfficientBERT without weights starts from
        slices of it (EfficientBERT, section 3.2). A model with another tokenizer than the teacher's also gives networks
        with two thirds and one third of its layers.
      supernet: model directory of a supernet, or None.
      teacher: the teacher, or the encoder that becomes it.
      length: tokens of the longest text.
      seed: seed of the drawn parts.

    Raises:
      UserError: one does not exist, has another vocabulary and no tokenizer, or fewer positions than the texts; the
        supernet is not one, or a student is no part of it; lists all problems.
    """
    students, problems = list[OtherStudent](), list[str]()
    whole: EncoderConfig | None = None
    vocabulary: Vocabulary | None = None
    if supernet is not None:
        planned, name = plan_model(supernet), f"{argument('supernet')}: {supernet}"
        whole, vocabulary = planned.config, None if _shares_tokens(planned, teacher) else planned.vocabulary
        problems += _supernet_problems(name, whole) + _problems(name, planned, teacher, length)
    for number, source in enumerate(map(str, sources), 1):
        planned, name = plan_model(model_or_start(source)), f"{argument('students')}: {source}"
        is_part = whole is not None and planned.directory is None and planned.config.feedforward is not None
        start = supernet if is_part else None
        student = OtherStudent(
            number=number, source=source, architecture=planned.config, supernet=start, model=planned.directory
        )
        students += [student] if _shares_tokens(planned, teacher) else _with_fewer_layers(student, planned.vocabulary)
        problems += _problems(name, planned, teacher, length)
        if whole is not None and is_part:
            problems += [
                f"{name} must be a part of the supernet: {problem}; pass the supernet of a search for this student"
                for problem in inheritance_problems(whole, planned.config)
            ]
    raise_if_any(problems, "compress")
    parts = [] if whole is None else _drawn(whole, seed)
    students += [
        OtherStudent(number=number, source="", architecture=part, supernet=supernet, vocabulary=vocabulary)
        for number, part in enumerate(parts, 1)
    ]
    return students


def write_part(student: OtherStudent, vocabulary: Vocabulary | None, folder: Path) -> None:
    """Writes some layers of a model, or a part of a supernet with slices of its weights and of its heads.

    The adapters of the supernet's run come beside it, since EfficientBERT's method continues them.

    Args:
      student: a student with `is_part`.
      vocabulary: vocabulary for a supernet without one.
      folder: the model directory.
    """
    if student.supernet is None:
        assert student.model is not None
        config = student.architecture
        structure = Structure(
            layers=student.layers, heads=config.num_attention_heads, intermediate_size=config.intermediate_size
        )
        folder.parent.mkdir(parents=True, exist_ok=True)
        write_student(read_directory(student.model), None, structure, folder)
        return
    whole = read_with_heads(student.supernet)
    arrays = inherited_arrays(whole.config, whole.tensors, student.architecture, whole.tasks)
    folder.parent.mkdir(parents=True, exist_ok=True)
    adapters = student.supernet.absolute().parent / ADAPTERS_FILE
    if adapters.exists():
        # First, since the model directory says that both are there.
        shutil.copyfile(adapters, folder.parent / ADAPTERS_FILE)
    write_directory(folder, student.architecture, whole.tasks, arrays, whole.vocabulary or vocabulary)


def _spec(planned: ModelInit, teacher: DirectoryDescription) -> DistillationSpec:
    return DistillationSpec(
        teacher=teacher.config,
        student=planned.config,
        task=None,
        teacher_vocabulary=with_options(teacher.vocabulary),
        student_vocabulary=planned.vocabulary,
    )


def _shares_tokens(planned: ModelInit, teacher: DirectoryDescription) -> bool:
    return not _spec(planned, teacher).tokenizer_difference


def _with_fewer_layers(student: OtherStudent, vocabulary: Vocabulary | None) -> list[OtherStudent]:
    """A model with its own tokenizer, and networks with thirds of its layers, evenly with the last one."""
    total = student.architecture.num_layers
    counts = dict.fromkeys(math.ceil(total * thirds / 3) for thirds in _THIRDS)
    return [
        dataclasses.replace(
            student,
            architecture=student.architecture.replace(num_layers=count),
            layers=() if count == total else even_layers(count, total),
            vocabulary=vocabulary,
        )
        for count in counts
    ]


def _problems(name: str, planned: ModelInit, teacher: DirectoryDescription, length: int) -> list[str]:
    """Problems of a network beside the teacher."""
    problems = [f"{name}: {problem}" for problem in vocabulary_problems(_spec(planned, teacher))]
    if (positions := planned.config.max_position_embeddings) < length:
        problems.append(
            f"{name} must have {length} positions; received {positions}; pass a smaller {argument('length')}"
        )
    return problems


def _supernet_problems(name: str, config: EncoderConfig) -> list[str]:
    """The problem with a model directory that is no supernet of a search."""
    layers = range(config.num_layers) if config.feedforward else ()
    networks = {config.feedforward_networks(layer) for layer in layers}
    if networks == {(max(STACKS), config.intermediate_size)}:
        return []
    received = " and ".join(f"{stacks} of width {width}" for stacks, width in sorted(networks))
    return [
        f"{name} must be a supernet of pocketbert search, with {max(STACKS)} stacked feed-forward networks of width "
        f"{config.intermediate_size} in each layer; received {received or 'a network without expressions'}; pass "
        "supernet/model of a search"
    ]


def _drawn(supernet: EncoderConfig, seed: int) -> list[EncoderConfig]:
    """Parts of a supernet, cheap ones first: one for each quarter of the range of operations, without equal ones."""
    assert supernet.feedforward is not None
    smallest = supernet.replace(feedforward=None, intermediate_size=max(supernet.intermediate_size // max(DIVISORS), 1))
    # At the usual length, so that the texts do not change the draw.
    least, most = (encoder_flops(config, FlopsConstraint.length) for config in (smallest, supernet))
    step, random = (most - least) / _DRAWN, np.random.default_rng(seed)
    # The supernet of stage 3 has learned the operations of a winner, and fits no others.
    is_learned = supernet.feedforward != supernet_config(supernet).feedforward
    parts: dict[tuple[str, ...], EncoderConfig] = {}
    for number in range(_DRAWN):
        space = SearchSpace(
            encoder=supernet,
            stage=3 if is_learned else 1,
            winner=supernet.feedforward.expressions if is_learned else (),
            constraints=(FlopsConstraint(minimum=least + number * step, limit=least + (number + 1) * step),),
        )
        # The widths of a winner's operations may leave a part of the range empty.
        with contextlib.suppress(UserError):
            genotype = space.sample(random)
            parts.setdefault(space.key(genotype), space.config(genotype))
    return list(parts.values())
