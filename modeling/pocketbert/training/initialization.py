"""What a model's weights are before training: fresh, or a directory's."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pocketbert.checkpoints.directory import CONFIG_NAME, read_directory, read_json_object, read_tokenizer_of
from pocketbert.checkpoints.huggingface import read_config
from pocketbert.configs import PRETRAINING_HEADS, EncoderConfig, TaskConfig, TokenizerConfig
from pocketbert.errors import UserError, did_you_mean, raise_if_any
from pocketbert.model import Model, from_preset
from pocketbert.presets import preset, presets
from pocketbert.training.state import digest_directory
from pocketbert.training.vocabulary import Start, Vocabulary

if TYPE_CHECKING:
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

# A config.json does not say whether there is a pooler, the tensors beside it do; BERT and MobileBERT have one.
_POOLERS = ("bert.pooler.dense.weight", "mobilebert.pooler.dense.weight")


@dataclass(frozen=True, kw_only=True)
class ModelInit:
    """A model before its weights are made.

    Attributes:
      start: where the weights come from.
      config: the architecture.
      directory: the model directory of `start="directory"`, else None.
      layers: the teacher's layers of `start="teacher-layers"`, counted from 1, else empty.
      vocabulary: the directory's own vocabulary, or None where it has none.
    """

    start: Start
    config: EncoderConfig
    directory: Path | None = None
    layers: tuple[int, ...] = ()
    vocabulary: Vocabulary | None = None

    def recorded(self) -> dict[str, Any]:
        """What decides the weights, as JSON values."""
        recorded: dict[str, Any] = {"student_start": self.start, "student_layers": list(self.layers)}
        recorded |= {f"student_{name}": value for name, value in dataclasses.asdict(self.config).items()}
        if self.directory is not None:
            recorded["student_sha256"] = digest_directory(self.directory)
        return recorded


def plan_model(model: str | os.PathLike[str] | EncoderConfig) -> ModelInit:
    """Finds a model's architecture and where its weights come from; no weights are read.

    Args:
      model: a preset's name, an architecture or a config.json for fresh weights; a model directory for its weights.

    Raises:
      UserError: there is no such model.
    """
    if isinstance(model, EncoderConfig):
        return ModelInit(start="random", config=model)
    if str(model) not in presets() and Path(model).is_dir():
        directory = Path(model)
        config = read_directory(directory, headless=True).config
        return ModelInit(start="directory", config=config, directory=directory, vocabulary=vocabulary_of(directory))
    return ModelInit(start="random", config=_named_config(str(model)))


def make_model(
    plan: ModelInit, tasks: Sequence[TaskConfig], tokenizer: WordPieceTokenizer | None, seed: int = 0
) -> Model:
    """Makes a planned model; whatever is not copied is fresh.

    From a directory everything but heads is copied; pretraining heads where the directory has them, since continuing
    with pretraining is going on with them.

    Args:
      plan: the model; where it starts from a teacher's layers, all of it is fresh.
      tasks: its heads.
      tokenizer: kept with it.
      seed: of fresh weights and of dropout.

    Raises:
      UserError: the directory cannot be read.
    """
    model = from_preset(plan.config, tasks, tokenizer, seed)
    if plan.directory is not None:
        goes_on = any(task.kind in PRETRAINING_HEADS for task in tasks)
        assign_weights(model, read_directory(plan.directory, headless=not goes_on).tensors)
    return model


def assign_weights(model: Model, arrays: Mapping[str, np.ndarray]) -> None:
    """Sets those weights of a model that there are arrays of, by their paths."""
    for path, variable in model.weights_by_path().items():
        if path in arrays:
            variable.assign(arrays[path])


def vocabulary_of(directory: str | Path) -> Vocabulary | None:
    """A model directory's vocabulary, or None if it holds none; a directory that does not say lower-cases."""
    problems: list[str] = []
    path, config = read_tokenizer_of(Path(directory), problems)
    raise_if_any(problems, str(directory))
    return Vocabulary(path=path, config=config or TokenizerConfig()) if path else None


@contextlib.contextmanager
def saved_models(*models: Any) -> Iterator[tuple[Any, ...]]:
    """The models, those in memory as folders that are there inside of the context; anything else as it is.

    A run knows its models by their files' digests, so that it resumes where the same weights are given again.
    """
    with contextlib.ExitStack() as stack:
        found: list[Any] = []
        for model in models:
            if isinstance(model, Model):
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pocketbert-"))) / "model"
                model.save_pretrained(folder)
                model = folder
            found.append(model)
        yield tuple(found)


def _named_config(model: str) -> EncoderConfig:
    if model in presets():
        return preset(model).config
    path = Path(model)
    if not path.is_file():
        raise UserError(
            f"a model is a preset, a model directory or a {CONFIG_NAME}; received {model}, which is none of them"
            f"{did_you_mean(model, presets())}; "
            f"the presets are {', '.join(presets())}"
        )
    problems: list[str] = []
    content = read_json_object(path, problems, required=True)
    raise_if_any(problems, model)
    assert content is not None
    return read_config(content, _POOLERS, headless=True)[0]
