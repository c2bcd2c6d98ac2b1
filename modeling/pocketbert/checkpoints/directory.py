"""Model directories in transformers' layout: config.json, weights, and tokenizer files."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pocketbert.checkpoints.cross_encoders import with_activation
from pocketbert.checkpoints.families.family import Family
from pocketbert.checkpoints.families.registry import FAMILIES, family_of
from pocketbert.checkpoints.huggingface import read_config, write_config
from pocketbert.checkpoints.module_layout import MODULES_NAME, load_headless, transformer_folder
from pocketbert.checkpoints.name_maps import TensorSpec, tensor_specs
from pocketbert.checkpoints.own_config import OWN_PREFIX
from pocketbert.checkpoints.sentence_transformers import is_sentence_transformer, read_modules, write_modules
from pocketbert.checkpoints.spare_rows import without_spare_rows
from pocketbert.checkpoints.stored_tensors import WEIGHTS_NAME, StoredTensor, open_weights
from pocketbert.checkpoints.vocabulary_files import read_vocabulary_files, vocabulary_problems, write_vocabulary_files
from pocketbert.configs import EncoderConfig, TaskConfig, TokenizerConfig
from pocketbert.errors import UserError, raise_if_any
from pocketbert.files import write_json, write_tensors
from pocketbert.hub.names import shown
from pocketbert.json_reading import read_json_object
from pocketbert.output_folders import MODEL_KIND, new_directory
from pocketbert.progress import log_info
from pocketbert_runtime.embedding_config import EmbeddingConfig
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

CONFIG_NAME = "config.json"
VOCAB_NAME = "vocab.txt"

_NUMPY_TYPES = {"F32", "F16", "BF16", "F64"}
_NAMES_SHOWN = 12


@dataclass(kw_only=True)
class DirectoryDescription:
    """A model directory without tensor values.

    Attributes:
      config: the encoder's architecture.
      tasks: tasks of the heads in the directory.
      vocabulary: the tokenizer's files and options, or None if there is no tokenizer.
      path: the folder; None for a model from another source.
      headless: whether the heads in weights and config.json are ignored.
      values: tensors read so far, by their names in the file; `read_described` takes them.
    """

    config: EncoderConfig
    tasks: tuple[TaskConfig, ...]
    vocabulary: Vocabulary | None
    path: Path | None = None
    headless: bool = False
    values: dict[str, np.ndarray] = field(default_factory=dict, repr=False)

    @property
    def vocab_path(self) -> Path | None:
        """The WordPiece vocabulary, or None if the directory has none."""
        return self.vocabulary.path if self.vocabulary and self.vocabulary.rules.has_options else None

    @property
    def tokenizer(self) -> TokenizerConfig | None:
        """The WordPiece tokenizer's options, or None if the directory has none."""
        return self.vocabulary.config if self.vocabulary else None


@dataclass(kw_only=True)
class ModelDirectory(DirectoryDescription):
    """A model directory's contents.

    Attributes:
      tensors: canonical path → float32 array in the model's orientation ([in, out] for a linear map). Do not write to
        these arrays: they can be views of a mapped file.
    """

    tensors: dict[str, np.ndarray]


def describe_directory(path: str | os.PathLike[str], *, headless: bool = False) -> DirectoryDescription:
    """Reads a model directory without tensor values.

    Checks as much as `read_directory`, except the values of tied tensors and buffers.

    Raises:
      UserError: lists all problems.
    """
    return _read(path, headless, None)


def read_described(description: DirectoryDescription) -> ModelDirectory:
    """Reads a described directory's tensors, unless it has them; leaves out unreadable heads, as `read_with_heads`."""
    if isinstance(description, ModelDirectory) and description.tensors:
        return description
    assert description.path is not None
    if description.headless:
        return _read(description.path, True, description.values)
    return _or_headless(description.path, description.values)


def read_directory(path: str | os.PathLike[str], *, headless: bool = False) -> ModelDirectory:
    """Reads a model directory written by us or by transformers (PyTorch or TensorFlow classes), without torch.

    float16, bfloat16 and float64 weights become float32. Tied copies such as `cls.predictions.decoder.weight` and
    buffers such as `position_ids` are allowed if their values are as expected. Old names (`LayerNorm.gamma`) and bare
    encoders' names (without the prefix `bert.`) are understood. A `modules.json` from sentence-transformers makes the
    model a sentence encoder, or a cross-encoder. Word embedding rows without a token are dropped.

    Raises:
      UserError: lists all problems.
    """
    return _read(path, headless, {})


def _read(path: str | os.PathLike[str], headless: bool, values: dict[str, np.ndarray] | None) -> ModelDirectory:
    """Reads a directory; `values` are tensors read so far, None for a description without tensors."""
    ignores_heads, path = headless, Path(path)
    if not path.is_dir():
        raise UserError(f"a model directory must be a folder; received {path}")
    problems: list[str] = []
    folder = transformer_folder(path)
    content = read_json_object(folder / CONFIG_NAME, problems, required=True)
    modules = None if headless else read_modules(path)
    # The modules are the head; others, such as a pretraining head, are left over.
    headless = headless or (modules is not None and modules.task is not None)
    config: EncoderConfig | None = None
    tasks: tuple[TaskConfig, ...] = ()
    tensors: dict[str, np.ndarray] = {}
    with ExitStack() as stack:
        stored = open_weights(folder, stack, problems)
        if content is not None:
            if modules is not None and modules.task is None:
                content = with_activation(content, modules.activation)
            names = _canonical_names(stored, str(content.get("model_type")))
            try:
                config, tasks = read_config(content, names.keys(), headless=headless)
            except UserError as error:
                problems.append(str(error))
            layers = {family_of(config.model_type).layer_of(name) for name in names} - {""} if config else set()
            if config and stored and config.num_stored_layers > len(layers):
                # Before anything is allocated.
                problems.append(
                    f"the number of layers must be that of the tensors, {len(layers)}; received "
                    f"{config.num_stored_layers}"
                )
            elif config and stored:
                specs = tensor_specs(config, tasks)
                earlier = values or {}
                for name in names.keys() & earlier.keys():
                    load = functools.partial(earlier.pop, name)
                    names[name] = dataclasses.replace(names[name], load=load, transposed=False)
                tensors = _read_tensors(names, specs, config, headless, problems, values is not None)
    vocabulary = read_vocabulary_files(folder, problems)
    if headless:
        tasks = ()
    if vocabulary and config:
        config, tensors = without_spare_rows(config, tasks, tensors, vocabulary)
        problems += vocabulary_problems(vocabulary, config)
    if modules is not None and config is not None:
        problems += modules.problems(config.hidden_size, vocabulary)
        if values is not None:
            tensors |= modules.read_dense(config.hidden_size, problems)
        if modules.task is not None:
            tasks = (modules.task_for(config),)
        elif not tasks and not problems:
            problems.append(f"a cross-encoder must have a classifier; received an encoder alone; {load_headless()}")
    raise_if_any(problems, shown(path))
    assert config is not None
    return ModelDirectory(
        config=config, tasks=tasks, vocabulary=vocabulary, path=path, headless=ignores_heads, tensors=tensors
    )


def has_new_biases(description: DirectoryDescription, prefix: str) -> bool:
    """Whether all biases in a part are zero, as in new models; the first training step changes them.

    Args:
      description: a described directory; keeps the biases read here.
      prefix: first part of the weights' paths, for example `encoder.`.
    """
    problems: list[str] = []
    assert description.path is not None
    specs = tensor_specs(description.config, description.tasks)
    biases = {path: spec.name for path, spec in specs.items() if path.startswith(prefix) and path.endswith("bias")}
    with ExitStack() as stack:
        folder = transformer_folder(description.path)
        content = read_json_object(folder / CONFIG_NAME, problems, required=True) or {}
        names = _canonical_names(open_weights(folder, stack, problems), str(content.get("model_type")))
        modules = read_modules(description.path) if biases and not names.keys() & set(biases.values()) else None
        dense = {} if modules is None else modules.read_dense(description.config.hidden_size, problems)
        raise_if_any(problems, shown(description.path))
        for path, name in biases.items():
            values = dense.get(path)
            if values is None:
                values = description.values[name] = names[name].read()
            if values.any():
                return False
    return bool(biases)


def embedding_of(path: str | os.PathLike[str]) -> EmbeddingConfig | None:
    """The embedding in a sentence-transformers directory, else None; raises `UserError` with all its problems."""
    if not (Path(path) / MODULES_NAME).is_file():
        return None
    return next((task.embedding for task in describe_directory(path).tasks), None)


def describe_with_heads(path: str | os.PathLike[str]) -> DirectoryDescription:
    """Describes a model directory as `read_with_heads` reads it, with the same errors."""
    return _or_headless(path, None)


def read_with_heads(path: str | os.PathLike[str], replacement: str = "") -> ModelDirectory:
    """Reads a model directory with its heads, or without unreadable heads; a line names the reason.

    Args:
      path: the folder.
      replacement: kind of the new head, for a line with the heads that it replaces; empty to keep heads.
    Raises:
      UserError: the directory has problems that do not come from its heads; lists all of them.
    """
    directory = _or_headless(path, {})
    if replacement and directory.tasks:
        kinds = " and ".join(task.kind for task in directory.tasks)
        where = shown(path)
        log_info(f"a new head for {replacement} replaces the head for {kinds} in {where}; leave task out to keep it")
    return directory


def _or_headless(path: str | os.PathLike[str], values: dict[str, np.ndarray] | None) -> ModelDirectory:
    try:
        return _read(path, False, values)
    except UserError as error:
        directory = _read(path, True, values)
        log_info(f"leaving out the head in {shown(path)}, because it cannot be read: {error}")
        return directory


def write_directory(
    path: str | os.PathLike[str],
    config: EncoderConfig,
    tasks: Sequence[TaskConfig],
    tensors_by_path: Mapping[str, np.ndarray],
    vocabulary: Vocabulary | None,
    overwrite: bool = False,
) -> None:
    """Writes a model directory that transformers can also read, completely or not at all.

    Args:
      path: the folder to create.
      config: the encoder's architecture.
      tasks: the heads' tasks.
      tensors_by_path: canonical path → array, exactly for the weights of encoder and heads.
      vocabulary: tokenizer files to copy, or None.
      overwrite: replace an existing folder.
    Raises:
      UserError: weights are missing, unexpected or have a wrong shape, the vocabulary does not match, or `path` exists.
    """
    specs = tensor_specs(config, tasks)
    problems = name_problems("weights", set(specs), set(tensors_by_path))
    for weight in specs.keys() & tensors_by_path.keys():
        expected, received = specs[weight].canonical_shape, tuple(tensors_by_path[weight].shape)
        if expected != received:
            problems.append(f"{weight} must have shape {list(expected)}; received {list(received)}")
    if vocabulary is not None:
        problems += vocabulary_problems(vocabulary, config)
    raise_if_any(problems, f"cannot write {path}")

    arrays = {}
    embeds = is_sentence_transformer(tasks)
    for weight, spec in specs.items():
        if embeds and weight.startswith("heads."):
            continue
        array = np.asarray(tensors_by_path[weight], dtype=np.float32)
        array = np.ascontiguousarray(array.T if spec.transpose else array)
        if spec.stored_rows is None:
            arrays[spec.name] = array
        else:
            whole = arrays.setdefault(spec.name, np.empty(spec.stored_shape, np.float32))
            whole[spec.first_row : spec.first_row + len(array)] = array
    with new_directory(path, MODEL_KIND, overwrite=overwrite) as folder:
        if embeds:
            write_modules(folder, tasks[0], config.hidden_size, tensors_by_path)
        write_json(folder / CONFIG_NAME, write_config(config, () if embeds else tasks))
        write_tensors(folder / WEIGHTS_NAME, arrays, {"format": "pt"})
        if vocabulary is not None:
            write_vocabulary_files(folder, vocabulary, config.max_position_embeddings)


def _canonical_names(stored: Mapping[str, StoredTensor], model_type: str) -> dict[str, StoredTensor]:
    """Adds the family's prefix to an encoder saved without it."""
    family = FAMILIES.get(model_type.removeprefix(OWN_PREFIX))
    if family is None or family.word_table.removeprefix(f"{family.tensor_prefix}.") not in stored:
        return dict(stored)
    return {family.prefixed(name): tensor for name, tensor in stored.items()}


def _read_tensors(
    stored: Mapping[str, StoredTensor],
    specs: Mapping[str, TensorSpec],
    config: EncoderConfig,
    headless: bool,
    problems: list[str],
    reads_values: bool,
) -> dict[str, np.ndarray]:
    """Checks names, shapes and types; with `reads_values` also reads the tensors and checks tied ones and buffers."""
    by_path = {path: spec for path, spec in specs.items() if not (headless and path.startswith("heads."))}
    named = {spec.name: spec for spec in by_path.values()}
    ignored = {spec.name for spec in specs.values()} - named.keys()
    present = dict(stored)
    family = family_of(config.model_type)
    aliases = dict(_aliases(present, family))
    for alias, original in aliases.items():
        # A file may hold either of two tied tensors.
        if original not in present and original in named:
            present[original] = present.pop(alias)
    extra: set[str] = set()
    encoder = f"{family.tensor_prefix}."
    for name in present.keys() - named.keys():
        tied_to = aliases.get(name)
        if 0 in present[name].shape or name in ignored or (headless and not name.startswith(encoder)):
            continue
        if name.startswith((*family.unread_heads.values(), *family.unread_tensors)):
            continue
        if tied_to is not None:
            if reads_values and tied_to in named and not _is_copy(name, tied_to, present):
                problems.append(f"{name} must equal {tied_to}, since they are tied; they differ; {load_headless()}")
        elif not _is_buffer(name, present[name], reads_values):
            extra.add(name)
    remedy = f"; if they belong to a head that you do not need, {load_headless()}" if not headless else ""
    problems += name_problems("tensors", set(named), named.keys() & present.keys() | extra, remedy)
    for name in sorted(named.keys() & present.keys()):
        tensor, shape = present[name], named[name].stored_shape
        if tensor.shape != shape:
            problems.append(f"{name} must have shape {list(shape)}; received {list(tensor.shape)}")
        if tensor.dtype not in _NUMPY_TYPES:
            problems.append(f"{name} must be of type {', '.join(sorted(_NUMPY_TYPES))}; received {tensor.dtype}")
    if problems or not reads_values:
        return {}
    tensors, whole = {}, dict[str, np.ndarray]()
    for path, spec in by_path.items():
        if spec.name not in whole:
            # A tensor with several weights is read once. They follow each other.
            whole = {spec.name: present[spec.name].read().astype(np.float32, copy=False)}
        array = whole[spec.name]
        if spec.stored_rows is not None:
            array = array[spec.first_row : spec.first_row + spec.shape[0]]
        tensors[path] = array.T if spec.transpose else array
    return tensors


def _aliases(names: Mapping[str, StoredTensor], family: Family) -> Iterator[tuple[str, str]]:
    """Yields optional copies in transformers' files, each with its original tensor."""
    table = family.word_table if family.word_table in names else ""
    bias = family.tensor_name("cls.predictions.bias")
    for part, original in (("weight", table), ("bias", bias)):
        if (alias := family.tensor_name(f"cls.predictions.decoder.{part}")) in names:
            yield alias, original


def _is_copy(name: str, original: str, present: dict[str, StoredTensor]) -> bool:
    """Whether two tied tensors are equal; keeps the original's values for the next reading."""
    array, tensor = present[original].read(), present[original]
    present[original] = StoredTensor(tensor.shape, tensor.dtype, lambda: array)
    return np.array_equal(present[name].read(), array)


def _is_buffer(name: str, tensor: StoredTensor, reads_values: bool) -> bool:
    """Whether a tensor is a buffer with transformers' values: positions 0, 1, … or zero segments."""
    if name.endswith(".embeddings.position_ids"):
        return not reads_values or np.array_equal(tensor.read().ravel(), np.arange(np.prod(tensor.shape)))
    return name.endswith(".embeddings.token_type_ids") and not (reads_values and tensor.read().any())


def name_problems(what: str, expected: set[str], received: set[str], remedy: str = "") -> list[str]:
    """Lists one problem for missing and one for unexpected names, with the first dozen names each."""
    problems = []
    for names, verb, end in ((expected - received, "missing", ""), (received - expected, "unexpected", remedy)):
        if names:
            shown = ", ".join(sorted(names)[:_NAMES_SHOWN])
            more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
            problems.append(f"{len(names)} {verb} {what}: {shown}{more}{end}")
    return problems
