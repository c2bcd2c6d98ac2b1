"""Networks that are not cut out of the teacher: presets, other models, and parts of a supernet."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pocketbert.checkpoints.directory import DirectoryDescription, read_with_heads, write_directory
from pocketbert.checkpoints.supernet import inheritance_problems, inherited_arrays, supernet_config
from pocketbert.configs import EncoderConfig
from pocketbert.distillation.method import DistillationSpec, vocabulary_problems
from pocketbert.errors import UserError, raise_if_any
from pocketbert.feedforward import DIVISORS, STACKS
from pocketbert.hub.names import short_name
from pocketbert.notation import argument
from pocketbert.presets import encoder_flops
from pocketbert.search.constraints import FlopsConstraint
from pocketbert.search.space import SearchSpace
from pocketbert.training.initialization import ModelInit, plan_model, with_options
from pocketbert.training.run_folder import ADAPTERS_FILE, MODEL_FOLDER
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

# The first weights of parts of a supernet, which commands by hand read, too.
STARTS_FOLDER = "starts"
# Parts drawn from a supernet: one for each part of the range of costs.
_DRAWN = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class OtherStudent:
    """A network that is not cut out of the teacher, with the teacher's vocabulary.

    Attributes:
      number: number among the students, or among the parts drawn from a supernet, from 1.
      source: a preset, a config.json, or a model directory; empty for a drawn part.
      architecture: its architecture.
      supernet: model directory of the supernet that gives the first weights; None for others.
    """

    number: int
    source: str
    architecture: EncoderConfig
    supernet: Path | None = None

    @property
    def name(self) -> str:
        """Name of a folder: `student-1=tinybert_4l_312d`, or `expression-2=` and a digest of the expressions."""
        if self.source:
            # Without its supernet, it is another candidate: it has random weights.
            slices = "" if self.supernet is None else ",slices"
            return f"student-{self.number}={short_name(self.source)}{slices}"
        assert self.architecture.feedforward is not None
        # Another seed draws other expressions, whose costs and leaderboards must not be taken for these.
        text = " ".join(self.architecture.feedforward.expressions)
        return f"expression-{self.number}={hashlib.sha256(text.encode()).hexdigest()[:6]}"

    def directory(self, folder: Path) -> Path | None:
        """The model directory with its first weights; None for random ones.

        Args:
          folder: folder of the compression, which gets the slices of a supernet.
        """
        if self.supernet is not None:
            return folder / STARTS_FOLDER / self.name / MODEL_FOLDER
        return Path(self.source) if Path(self.source).is_dir() else None

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
      sources: presets, paths of config.json, or model directories. With a supernet, an EfficientBERT without weights
        starts from slices of it (EfficientBERT, section 3.2).
      supernet: model directory of a supernet, or None.
      teacher: the teacher, or the encoder that becomes it.
      length: tokens of the longest text.
      seed: seed of the drawn parts.

    Raises:
      UserError: one does not exist, has another vocabulary, or fewer positions than the texts; the supernet is not
        one, or a student is no part of it; lists all problems.
    """
    students, problems = list[OtherStudent](), list[str]()
    whole: EncoderConfig | None = None
    if supernet is not None:
        planned, name = plan_model(supernet), f"{argument('supernet')}: {supernet}"
        whole = planned.config
        problems += _supernet_problems(name, whole) + _problems(name, planned, teacher, length)
    for number, source in enumerate(map(str, sources), 1):
        planned, name = plan_model(source), f"{argument('students')}: {source}"
        is_part = whole is not None and planned.directory is None and planned.config.feedforward is not None
        start = supernet if is_part else None
        students.append(OtherStudent(number=number, source=source, architecture=planned.config, supernet=start))
        problems += _problems(name, planned, teacher, length)
        if whole is not None and is_part:
            problems += [
                f"{name} must be a part of the supernet: {problem}; pass the supernet of a search for this student"
                for problem in inheritance_problems(whole, planned.config)
            ]
    raise_if_any(problems, "compress")
    parts = [] if whole is None else _drawn(whole, seed)
    students += [
        OtherStudent(number=number, source="", architecture=part, supernet=supernet)
        for number, part in enumerate(parts, 1)
    ]
    return students


def write_slices(student: OtherStudent, vocabulary: Vocabulary | None, folder: Path) -> None:
    """Writes a part of a supernet as a model directory, with slices of its weights and of its heads.

    The adapters of the supernet's run come beside it, since EfficientBERT's method continues them.

    Args:
      student: a student that starts from a supernet.
      vocabulary: vocabulary for a supernet without one.
      folder: the model directory.
    """
    assert student.supernet is not None
    whole = read_with_heads(student.supernet)
    arrays = inherited_arrays(whole.config, whole.tensors, student.architecture, whole.tasks)
    folder.parent.mkdir(parents=True, exist_ok=True)
    adapters = student.supernet.absolute().parent / ADAPTERS_FILE
    if adapters.exists():
        # First, since the model directory says that both are there.
        shutil.copyfile(adapters, folder.parent / ADAPTERS_FILE)
    write_directory(folder, student.architecture, whole.tasks, arrays, whole.vocabulary or vocabulary)


def _problems(name: str, planned: ModelInit, teacher: DirectoryDescription, length: int) -> list[str]:
    """Problems of a network beside the teacher."""
    spec = DistillationSpec(
        teacher=teacher.config,
        student=planned.config,
        task=None,
        teacher_vocabulary=with_options(teacher.vocabulary),
        student_vocabulary=planned.vocabulary,
    )
    problems = [f"{name}: {problem}" for problem in vocabulary_problems(spec)]
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
