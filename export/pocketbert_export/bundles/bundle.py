"""Open a bundle with its export's records: description, golden examples and verification."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jsonschema

from pocketbert.configs import TASK_RULES, TaskConfig
from pocketbert.encoder import INPUT_NAMES
from pocketbert.errors import UserError, raise_if_any
from pocketbert.recipes import RECIPES
from pocketbert.tasks.predictor import Predictor, predicting_task
from pocketbert_export.bundles.goldens import Golden, golden_task, read_goldens
from pocketbert_export.bundles.schema import SCHEMA
from pocketbert_runtime.answers.table import ANSWERS
from pocketbert_runtime.bundles import bundle as runtime
from pocketbert_runtime.bundles.description import LABELS_FILE as LABELS_FILE
from pocketbert_runtime.bundles.description import MODEL_FILE as MODEL_FILE
from pocketbert_runtime.bundles.description import (
    MOST_BYTES,
    Description,
    file_problems,
    labels_file_problems,
    length_file,
    read_content,
    required_files,
    signature_name,
    vocabulary_in,
)
from pocketbert_runtime.bundles.files import BUNDLE_FILE as BUNDLE_FILE
from pocketbert_runtime.bundles.files import FolderFiles, folder_files
from pocketbert_runtime.bundles.golden_answers import GoldenReader
from pocketbert_runtime.json_reading import read_json, read_members
from pocketbert_runtime.tokenizers.opening import open_tokenizer as open_runtime_tokenizer
from pocketbert_runtime.tokenizers.vocabulary import ADDED_NAME

if TYPE_CHECKING:
    from pocketbert.tokenizers.base import Tokenizer
    from pocketbert_export.verification.outcomes import BundleScores
    from pocketbert_runtime.tokenizers.base import TextTokenizer

# For WordPiece; `Bundle.vocabulary` has every tokenizer's files.
VOCAB_FILE = "vocab.txt"
GOLDENS_FILE = "goldens.safetensors"
VERIFICATION_FILE = "verification.json"
# For mixed files: the measured files behind the limit's choice.
PRECISION_FILE = "precision.json"
_LENGTH_FILES = r"model_\d+\.tflite"

# Members of `verification.json`, of its examples, and of its checks.
_VERIFICATION = {
    "schema_version": Literal[1], "passed": bool, "recipe": str, "runtimes": dict[str, str], "examples": dict[str, Any],
    "examples_sha256": str | None, "metric": str | None, "weights_need": dict[str, int],
    "graph_optimizations": dict[str, str], "operators": dict[str, int], "delegates": list[dict[str, Any]],
    "checks": list[dict[str, Any]], "activation_range": dict[str, Any] | None,
}  # fmt: skip
_EXAMPLES = {"count": int, "source": str, "labelled": bool}
_CHECK = {
    "name": str, "passed": bool, "measured": float | None, "bound": float | None, "reason": str, "runtime": str | None,
    "scores": list[float] | None,
}  # fmt: skip


class Bundle(runtime.Bundle):
    """An opened bundle with its export's records. Create it with `Bundle.open`.

    Args:
      directory: the folder.
      description: validated content of `bundle.json`.
      threads: see `open`.
      weight_cache: see `open`.
    Attributes:
      runtimes: names of the supported runtimes.
      graph_optimizations: name → `applied` (with a count of folded norms), `off`, or the reason why it does not suit
        the model.
      num_parameters: number of weights in the file.
      source: the exported model's weight file → SHA-256.
      vocab_size: number of tokens in the vocabulary, from `bundle.json`.
      length_files: length → file with this signature alone; empty if the bundle was exported without them.
      outcome: the file's score beside baselines, teacher and float model, as in `Scores.outcome`; None for a bundle
        exported without labelled examples.
      scored: full scores, if this process has just exported the bundle with labelled examples; else None.
    """

    def __init__(
        self,
        directory: Path,
        description: Mapping[str, Any],
        threads: int = 1,
        weight_cache: bool = False,
    ) -> None:
        super().__init__(FolderFiles(directory), Description.of(description, directory), threads, weight_cache)
        self._description = description
        self.runtimes: tuple[str, ...] = tuple(description["runtimes"])
        self.graph_optimizations: dict[str, str] = description["graph_optimizations"]
        self.num_parameters: int = description["num_parameters"]
        self.source: dict[str, str] = description["source"]
        self.vocab_size: int = description["tokenizer"]["vocab_size"]
        names = {length: length_file(length) for length in self.lengths}
        self.length_files = {length: name for length, name in names.items() if name in description["files"]}
        self.outcome: dict[str, Any] | None = description.get("outcome")
        self.scored: BundleScores | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, threads: int = 1, weight_cache: bool = False) -> Bundle:
        """Opens a bundle and checks all files against their digests.

        Args:
          path: the folder.
          threads: number of texts that `predict` answers at the same time.
          weight_cache: share packed weights between all lengths; see `pocketbert_runtime.bundles.bundle`.
        Raises:
          UserError: lists every missing or damaged file and every error in `bundle.json`.
        """
        directory = Path(path)
        description = read_description(directory)
        problems = [*_file_problems(directory, description), *_description_problems(description)]
        if not problems:
            problems += _content_problems(directory, description)
        if problems:
            problems.append("export it again, or copy all its files")
        raise_if_any(problems, f"bundle {directory}")
        return cls(directory, description, threads, weight_cache)

    def length_file_sizes(self) -> dict[str, int]:
        """Returns the size of each file in `length_files`, in bytes, by name."""
        return {name: (self.directory / name).stat().st_size for name in self.length_files.values()}

    def predictor(self, **windows: int | None) -> Predictor:
        """Returns a predictor, which also scores the bundle on data.

        Args:
          **windows: `max_length`, up to the longest signature, and the task's `window_options`; see `model_predictor`.
        Raises:
          UserError: the bundle's task predicts nothing, or no signature fits the window.
        """
        return self._scoring_predictor(self.pair_task or self.task, windows)

    def text_predictor(self) -> Predictor:
        """Returns a predictor for single texts; with separate pairs, it gives the vectors for `head.tflite`.

        Raises:
          UserError: the bundle's task predicts nothing.
        """
        return self._scoring_predictor(self.task, {})

    def _scoring_predictor(self, config: TaskConfig | None, windows: dict[str, int | None]) -> Predictor:
        return self._predictor(config, predicting_task(config, str(self.directory)), windows, Predictor)

    @cached_property
    def goldens(self) -> tuple[Golden, ...]:
        """The first golden lines with the float model's and the file's outputs, read on first use.

        Raises:
          UserError: `answers.jsonl` or `goldens.safetensors` is damaged, or one contradicts the other.
        """
        arguments = self.golden_lines, self._description, self.runtime_tokenizer.pad_token_id
        return tuple(read_goldens(self.directory / GOLDENS_FILE, *arguments))

    def golden_reader(self) -> GoldenReader:
        """See the runtime's: apps answer golden texts with its tokenizer, but know no task of another package."""
        config = self.pair_task or self.task
        if config is None or config.kind in ANSWERS or golden_task(config) is None:
            description = Description.of(self._description, self.directory)
            in_app = runtime.Bundle(FolderFiles(self.directory), description, self.threads)
            return in_app.golden_reader()
        predictor = self.predictor()
        return GoldenReader(predictor.task, self.tokenizer, predictor.max_length, predictor.forward)

    @cached_property
    def runtime_tokenizer(self) -> TextTokenizer:
        """The tokenizer that apps use, created on first use."""
        return open_runtime_tokenizer(self.vocabulary)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, created on first use."""
        from pocketbert.tokenizers.opening import open_tokenizer

        return open_tokenizer(self.vocabulary)


def read_description(directory: Path) -> dict[str, Any]:
    """Reads and validates `bundle.json`; raises a `UserError` if it is missing, or with all violations."""
    description = read_content(folder_files(directory))
    errors = sorted(jsonschema.Draft202012Validator(SCHEMA).iter_errors(description), key=lambda error: error.json_path)
    problems = [f"{error.json_path}: {error.message[:200]}" for error in errors]
    raise_if_any(problems, str(directory / BUNDLE_FILE))
    validated: dict[str, Any] = description
    return validated


def read_verification(directory: Path) -> dict[str, Any]:
    """Reads `verification.json`, with None for absent members; raises a `UserError` if it is missing or damaged."""
    path = directory / VERIFICATION_FILE
    try:
        content = read_members(read_json(path, most_bytes=MOST_BYTES), _VERIFICATION, str(path))
        content["examples"] = read_members(content["examples"], _EXAMPLES, f"{path}: examples")
        content["checks"] = [
            read_members(check, _CHECK, f"{path}: checks[{number}]") for number, check in enumerate(content["checks"])
        ]
    except UserError as error:
        raise UserError(f"{error}; export the bundle again") from None
    return content


def _file_problems(directory: Path, description: Mapping[str, Any]) -> list[str]:
    """Lists missing or damaged files, and files without an entry in the description."""
    has_labels = bool(description["task"] and description["task"]["labels"])
    vocabulary = vocabulary_in(directory, description["tokenizer"])
    required = required_files(vocabulary, has_labels=has_labels, has_pairs="pairs" in description)
    of_lengths = [length_file(signature["length"]) for signature in description["signatures"]]
    stated = [name for name in description["files"] if re.fullmatch(_LENGTH_FILES, name)]
    # One for each length, or none.
    required += [GOLDENS_FILE, *(of_lengths if stated else [])]
    problems = file_problems(FolderFiles(directory), description["files"], required)
    problems += [
        f"{name} must be for one of the signatures; there is none with its length"
        for name in stated
        if name not in of_lengths
    ]
    if not has_labels and LABELS_FILE in description["files"]:
        problems.append(f"{LABELS_FILE} must not be there for a task without labels; it is listed in {BUNDLE_FILE}")
    return problems


def _description_problems(description: Mapping[str, Any]) -> list[str]:
    """Checks rules between fields in `bundle.json`, beyond JSON Schema."""
    signatures = description["signatures"]
    problems = [
        f"the signature for {signature['length']} tokens must be called {signature_name(signature['length'])}; it is "
        f"called {signature['name']}"
        for signature in signatures
        if signature["name"] != signature_name(signature["length"])
    ]
    if len({signature["length"] for signature in signatures}) < len(signatures):
        problems.append("each length must have one signature; a length has several")
    for kind in ("inputs", "outputs"):
        names = [tensor["name"] for tensor in description[kind]]
        if len(set(names)) < len(names):
            problems.append(f"the names of the {kind} must differ; received {', '.join(names)}")
    if description["task"] and description["task"]["kind"] not in TASK_RULES:
        problems.append(
            f"the task's kind must be one of {', '.join(TASK_RULES)}; received {description['task']['kind']!r}"
        )
    if description["recipe"] not in RECIPES:
        problems.append(f"the recipe must be one of {', '.join(RECIPES)}; received {description['recipe']!r}")
    else:
        calibration, recorded = RECIPES[description["recipe"]].calibration, "calibration" in description
        if calibration != "optional" and recorded != (calibration == "required"):
            rule, state = ("must not", "there") if recorded else ("must", "not there")
            problems.append(f"calibration {rule} be recorded for the recipe {description['recipe']}; it is {state}")
    inputs = [tensor["name"] for tensor in description["inputs"]]
    if sorted(inputs) != sorted(INPUT_NAMES):
        problems.append(f"the inputs must be {', '.join(INPUT_NAMES)}; received {', '.join(inputs)}")
    return problems


def _content_problems(directory: Path, description: Mapping[str, Any]) -> list[str]:
    """Lists files that contradict `bundle.json`."""
    problems = []
    vocabulary = vocabulary_in(directory, description["tokenizer"])
    tokens, size = len(vocabulary.tokens()), description["tokenizer"]["vocab_size"]
    if tokens != size:
        problems.append(
            f"{vocabulary.path.name} must have {size} {vocabulary.rules.unit}, the vocab_size of {BUNDLE_FILE}; it has "
            f"{tokens}"
        )
    stated = {token.content: token.id for token in vocabulary.added}
    if stated and read_json(directory / ADDED_NAME, where=ADDED_NAME) != stated:
        problems.append(f"{ADDED_NAME} must have the added_tokens of {BUNDLE_FILE}; it has others")
    labels = description["task"]["labels"] if description["task"] else []
    return problems + labels_file_problems(FolderFiles(directory), labels)
