"""Initial weights and vocabulary for a model: from a preset, a configuration or a model directory."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from pocketbert.checkpoints.directory import (
    CONFIG_NAME,
    DirectoryDescription,
    describe_with_heads,
    embedding_of,
    has_new_biases,
    read_described,
)
from pocketbert.checkpoints.huggingface import read_config
from pocketbert.checkpoints.module_layout import transformer_folder
from pocketbert.checkpoints.sentence_transformers import is_sentence_transformer
from pocketbert.checkpoints.spare_rows import without_spare_rows
from pocketbert.checkpoints.supernet import inheritance_problems, inherited_arrays
from pocketbert.checkpoints.vocabulary_files import read_vocabulary_files
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.data.assets import model_or_start, task_of_asset
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError, did_you_mean, raise_if_any
from pocketbert.json_reading import read_json_object
from pocketbert.model import Model, from_preset
from pocketbert.presets import preset, presets
from pocketbert.training.kept_heads import head_arrays, log_heads
from pocketbert.training.state import digest_directory
from pocketbert_runtime.embedding_config import EmbeddingConfig
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

if TYPE_CHECKING:
    from pocketbert.tokenizers.base import Tokenizer

Start: TypeAlias = Literal["random", "teacher-layers", "directory", "supernet"]
# config.json does not record whether there is a pooler; the tensor names do. BERT and MobileBERT have one.
_POOLERS = ("bert.pooler.dense.weight", "mobilebert.pooler.dense.weight")


@dataclass(frozen=True, kw_only=True)
class ModelInit:
    """A model before its weights are made.

    Attributes:
      start: source of the weights.
      config: the architecture.
      directory: model directory for `start="directory"`, or the supernet's for `start="supernet"`, else None.
      layers: the teacher's layers for `start="teacher-layers"`, counted from 1, else empty.
      vocabulary: the directory's vocabulary, or None.
      initial_biases: whether the directory has new, untrained weights.
      description: the directory's content.
    """

    start: Start
    config: EncoderConfig
    directory: Path | None = None
    layers: tuple[int, ...] = ()
    vocabulary: Vocabulary | None = None
    initial_biases: bool = False
    description: DirectoryDescription | None = field(default=None, repr=False, compare=False)

    @property
    def untrained(self) -> bool:
        """Whether all weights are random."""
        return self.start == "random" or self.initial_biases

    @property
    def embeds_sentences(self) -> bool:
        """Whether the model directory was trained for embeddings."""
        if self.directory is None or self.description is None:
            return False
        # Weights from `pocketbert fetch` have their task elsewhere.
        return is_sentence_transformer(self.description.tasks) or task_of_asset(self.directory) is not None

    def recorded(self, role: str) -> dict[str, Any]:
        """Returns everything that determines the initial weights, as JSON values; names begin with `role`."""
        recorded: dict[str, Any] = {"start": self.start, "layers": list(self.layers), **dataclasses.asdict(self.config)}
        if self.directory is not None:
            recorded["sha256"] = digest_directory(self.directory)
        return {f"{role}_{name}": value for name, value in recorded.items()}


def plan_model(model: str | os.PathLike[str] | EncoderConfig) -> ModelInit:
    """Finds a model's architecture and the source of its weights, without reading weights.

    Args:
      model: a preset name, an architecture or a config.json for new weights; or a model directory for its weights.
    Raises:
      UserError: there is no such model.
    """
    if isinstance(model, EncoderConfig):
        return ModelInit(start="random", config=model)
    if str(model) not in presets() and Path(model).is_dir():
        directory = Path(model)
        description = describe_with_heads(directory)
        return ModelInit(
            start="directory",
            config=description.config,
            directory=directory,
            description=description,
            vocabulary=with_options(description.vocabulary),
            initial_biases=has_new_biases(description, "encoder."),
        )
    return ModelInit(start="random", config=_named_config(str(model)))


def plan_slices(supernet: str | os.PathLike[str], student: str | os.PathLike[str] | EncoderConfig) -> ModelInit:
    """Plans a model that starts from slices of a supernet.

    Raises:
      UserError: one of the two does not exist, or the student is not a part of the supernet; lists all problems.
    """
    start, planned = plan_model(supernet), plan_model(student)
    problems = []
    if start.directory is None:
        problems.append(f"a supernet must be a model directory; received {supernet}")
    if planned.directory is not None:
        problems.append(
            "a student from a supernet must be a preset or a config.json, because the supernet gives the weights; "
            f"received the model directory {planned.directory}; give the config.json in it"
        )
    problems += inheritance_problems(start.config, planned.config)
    raise_if_any(problems, "the student must be a part of its supernet")
    return dataclasses.replace(start, start="supernet", config=planned.config)


def make_model(
    plan: ModelInit,
    tasks: Sequence[TaskConfig],
    tokenizer: Tokenizer | None,
    seed: int = 0,
    *,
    new_head: bool | None = None,
) -> Model:
    """Makes a planned model.

    A model directory gives weights for the encoder, and for heads with the tasks' kinds and labels; a supernet gives
    slices of them. Other weights are new. One log line per head says whether it is kept or replaced.

    Args:
      plan: the model. `start="teacher-layers"` gives new weights only; the caller copies the layers.
      tasks: one task per head.
      tokenizer: the model's tokenizer.
      seed: seed for new weights and dropout.
      new_head: replace the model directory's heads; None keeps heads in a run without this option.
    Raises:
      UserError: the directory cannot be read.
    """
    model = from_preset(plan.config, tasks, tokenizer, seed)
    if plan.description is None:
        return model
    start = read_described(plan.description)
    if plan.start == "supernet":
        # Slices of the encoder, and of the head with each task's labels.
        arrays = {path: array for path, array in start.tensors.items() if path.startswith("encoder.")}
        arrays |= head_arrays(start, tasks)
        assign_weights(model, inherited_arrays(start.config, arrays, plan.config, tasks))
    else:
        heads = {} if new_head else head_arrays(start, tasks)
        if tasks:
            log_heads(start.tasks, tasks, new_head=new_head)
        encoder = {path: array for path, array in start.tensors.items() if path.startswith("encoder.")}
        assign_weights(model, encoder | heads)
    return model


def with_own_embedding(data: TaskData, directory: str | os.PathLike[str]) -> TaskData:
    """Takes the embedding from a model directory, if the data leave pooling and dense layer at their defaults."""
    if data.task.embedding != EmbeddingConfig() or not Path(directory).is_dir():
        return data
    embedding = embedding_of(directory)
    task = data.task if embedding is None else dataclasses.replace(data.task, embedding=embedding)
    return dataclasses.replace(data, task=task)


def assign_weights(model: Model, arrays: Mapping[str, np.ndarray]) -> None:
    """Assigns `arrays` to the model's weights, by path."""
    for path, variable in model.weights_by_path().items():
        if path in arrays:
            variable.assign(arrays[path])


def vocabulary_of(directory: str | Path) -> Vocabulary | None:
    """Reads a model directory's vocabulary; None without one. WordPiece defaults to lower case."""
    problems: list[str] = []
    vocabulary = read_vocabulary_files(transformer_folder(directory), problems)
    raise_if_any(problems, str(directory))
    return with_options(vocabulary)


def with_options(vocabulary: Vocabulary | None) -> Vocabulary | None:
    """Adds WordPiece options to a vocabulary; their default is lower case."""
    if vocabulary is None or not vocabulary.rules.has_options:
        return vocabulary
    return dataclasses.replace(vocabulary, config=vocabulary.options)


def tokenizer_problems(one: Vocabulary, other: Vocabulary, ones: str, others: str, remedy: str) -> list[str]:
    """Compares two tokenizers: kinds, options, segmentation, and tokens in both vocabularies."""
    if one == other:
        return []
    if one.kind != other.kind:
        return [f"both need the same kind of tokenizer; {ones} has {one.kind}, {others} {other.kind}; {remedy}"]
    problems = []
    for name, value in dataclasses.asdict(one.options).items():
        if value != getattr(other.options, name):
            problems.append(
                f"both need the same tokenizer options; {ones} has {name}={value}, {others} "
                f"{name}={getattr(other.options, name)}; {remedy}"
            )
    if one.layout != other.layout:
        problems.append(f"both need the same layout; {ones} has {one.layout}, {others} {other.layout}; {remedy}")
    if one.add_prefix_space != other.add_prefix_space:
        problems.append(
            f"both need the same add_prefix_space; {ones} has {one.add_prefix_space}, {others} "
            f"{other.add_prefix_space}; {remedy}"
        )
    tokens = zip(one.tokens(), other.tokens(), strict=False)
    differ = [(index, *pair) for index, pair in enumerate(tokens) if pair[0] != pair[1]]
    if differ:
        index, token, other_token = differ[0]
        problems.append(
            f"both need the same vocabulary; {one.path} and {other.path} differ in {len(differ)} tokens, the first at "
            f"id {index}: {token!r} and {other_token!r}; {remedy}"
        )
    elif (one.added, one.keeps_space and one.added) != (other.added, other.keeps_space and other.added):
        counts = f"{ones} has {len(one.added)} and {others} {len(other.added)}"
        problems.append(f"both need the same added tokens with the same flags; {counts}; {remedy}")
    elif one.segmentation() != other.segmentation():
        files = (vocabulary.merges or vocabulary.path for vocabulary in (one, other))
        problems.append(f"both need the same {' and '.join(map(str, files))}; received different ones; {remedy}")
    return problems


@contextlib.contextmanager
def saved_models(*models: Any) -> Iterator[tuple[Any, ...]]:
    """Saves models in memory to temporary model directories, within the context; passes on anything else.

    A run identifies its models by file digests, so it resumes if you pass the same weights again.
    """
    with contextlib.ExitStack() as stack:
        sources: list[Any] = []
        for model in models:
            if isinstance(model, Model):
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pocketbert-"))) / "model"
                model.save_pretrained(folder)
                model = folder
            elif isinstance(model, str | os.PathLike):
                model = model_or_start(model)
            sources.append(model)
        yield tuple(sources)


def _named_config(model: str) -> EncoderConfig:
    if model in presets():
        return preset(model).config
    path = Path(model)
    if not path.is_file():
        raise UserError(
            f"a model must be a preset, a model directory or a {CONFIG_NAME}; received {model}"
            f"{did_you_mean(model, presets())}; the presets are {', '.join(presets())}"
        )
    problems: list[str] = []
    content = read_json_object(path, problems, required=True)
    raise_if_any(problems, model)
    assert content is not None
    config = read_config(content, _POOLERS, headless=True)[0]
    # A config.json beside a tokenizer may count rows without a token, which a model directory drops.
    vocabulary = read_vocabulary_files(path.parent, [])
    return config if vocabulary is None else without_spare_rows(config, (), {}, vocabulary)[0]
