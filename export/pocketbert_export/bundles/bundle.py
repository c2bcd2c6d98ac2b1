"""Open and run a bundle: a folder with a `.tflite` file, its description and golden examples."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jsonschema
import numpy as np

from pocketbert.configs import TASK_RULES, TaskConfig, TokenizerConfig, TokenizerKind
from pocketbert.data.task_data import described_task
from pocketbert.encoder import INPUT_NAMES
from pocketbert.errors import UserError, raise_if_any
from pocketbert.files import sha256
from pocketbert.recipes import RECIPES
from pocketbert.tasks.predictor import Predictor, fitting_windows, predicting_task
from pocketbert_export.bundles.forward import BundleForward
from pocketbert_export.bundles.goldens import Golden, read_goldens
from pocketbert_export.bundles.pair_head import HEAD_FILE, PairForward, is_separate
from pocketbert_export.bundles.schema import SCHEMA, SCHEMA_VERSION, SCHEMAS
from pocketbert_export.tflite.interpreter_process import real_outputs
from pocketbert_export.tflite.signatures import signature_name
from pocketbert_runtime.answers.inputs import as_inputs
from pocketbert_runtime.forward import Forward
from pocketbert_runtime.json_reading import read_json, read_members
from pocketbert_runtime.tokenizers.added_tokens import AddedToken
from pocketbert_runtime.tokenizers.truncation import HEAD
from pocketbert_runtime.tokenizers.vocabulary import ADDED_NAME, FILE_NAMES, Vocabulary

if TYPE_CHECKING:
    from pocketbert.tokenizers.base import Tokenizer
    from pocketbert_export.verification.outcomes import BundleScores

BUNDLE_FILE = "bundle.json"
MODEL_FILE = "model.tflite"
# Of WordPiece; `Bundle.vocabulary` has the files of all tokenizers.
VOCAB_FILE = "vocab.txt"
LABELS_FILE = "labels.txt"
GOLDENS_FILE = "goldens.safetensors"
VERIFICATION_FILE = "verification.json"
# Of mixed files: the measured files that the limit chose from.
PRECISION_FILE = "precision.json"
# Enough for goldens with long paragraphs. Larger files are refused before they are parsed.
_MOST_DESCRIPTION_BYTES = _MOST_VERIFICATION_BYTES = 1 << 24

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


class Bundle:
    """An opened bundle, run by LiteRT. Create it with `Bundle.open`.

    Args:
      directory: the folder.
      description: validated content of `bundle.json`.
      goldens: golden examples.

    Attributes:
      directory: the folder.
      model_path: path of the `.tflite` file.
      task: task of the head; None for a bare encoder. That of the encoder, embedding, for separate pairs.
      pair_task: task of the head on separate pairs (`pair_head`); None for other bundles.
      recipe: name of the recipe.
      lengths: sequence lengths in tokens, ascending.
      runtimes: names of the supported runtimes.
      graph_optimizations: name → `applied` (with a count of folded norms), `off`, or the reason why it does not suit
        the model.
      output_names: outputs of every signature.
      output_type: type of the outputs in the file; `run` returns float32.
      num_parameters: number of weights in the file.
      source: weight file of the exported model → SHA-256.
      vocab_size: number of tokens in the vocabulary, from `bundle.json`.
      vocabulary: files and options of the tokenizer.
      goldens: examples with the outputs of the float model and of the file.
      outcome: score of the file beside baselines, teacher and float model, as `Scores.outcome` gives it; None for a
        bundle exported without labelled examples.
      scored: scores in full, if this process has just exported the bundle with labelled examples; else None.
    """

    def __init__(self, directory: Path, description: Mapping[str, Any], goldens: Sequence[Golden] = ()) -> None:
        task = description["task"]
        self.directory = directory
        self.model_path = directory / MODEL_FILE
        self.task = TaskConfig(**{**task, "labels": tuple(task["labels"])}) if task else None
        pairs = description.get("pairs")
        self.pair_task = TaskConfig(**pairs["task"], pairs="separate") if pairs else None
        self.recipe: str = description["recipe"]
        self.lengths = tuple(sorted(signature["length"] for signature in description["signatures"]))
        self.runtimes: tuple[str, ...] = tuple(description["runtimes"])
        self.graph_optimizations: dict[str, str] = description["graph_optimizations"]
        self.output_names: tuple[str, ...] = tuple(output["name"] for output in description["outputs"])
        self.output_type: str = description["outputs"][0]["dtype"]
        self.num_parameters: int = description["num_parameters"]
        self.source: dict[str, str] = description["source"]
        self.vocab_size: int = description["tokenizer"]["vocab_size"]
        self.goldens = tuple(goldens)
        self.outcome: dict[str, Any] | None = description.get("outcome")
        self.scored: BundleScores | None = None
        self.vocabulary = vocabulary_in(directory, description)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Bundle:
        """Opens a bundle and checks all files against their digests.

        Args:
          path: the folder.
        Raises:
          UserError: lists every missing or damaged file and every error in `bundle.json`.
        """
        directory = Path(path)
        description = read_description(directory)
        problems = [*_file_problems(directory, description), *_description_problems(description)]
        goldens: list[Golden] = []
        if not problems:
            problems += _content_problems(directory, description)
            goldens = read_goldens(directory / GOLDENS_FILE, description, problems)
        if problems:
            problems.append("export it again, or copy all its files")
        raise_if_any(problems, f"bundle {directory}")
        return cls(directory, description, goldens)

    def __repr__(self) -> str:
        answered = self.pair_task or self.task
        task = "no task" if answered is None else described_task(answered)
        lengths = ", ".join(map(str, self.lengths))
        size = f"{self.model_path.stat().st_size / 1e6:.1f} MB" if self.model_path.exists() else "no file"
        return f"<Bundle {self.directory}: {task}, {self.recipe}, lengths {lengths}, {size}>"

    def signature(self, length: int) -> str:
        """The name of the signature for `length` tokens."""
        if length not in self.lengths:
            raise UserError(f"a length must be one of {', '.join(map(str, self.lengths))}; received {length}")
        return signature_name(length)

    def run(self, inputs: Mapping[str, np.ndarray], length: int | None = None) -> dict[str, np.ndarray]:
        """Runs the file, one text at a time, as a phone does.

        Args:
          inputs: int32 `[n, length]` by name.
          length: sequence length of the signature; None uses the length of the arrays.
        Returns:
          Outputs by name, float32 `[n, ...]`.
        Raises:
          UserError: the runtime cannot load the file or rejects these inputs.
        """
        rows, columns = inputs["input_word_ids"].shape
        signature = self.signature(columns if length is None else length)
        try:
            arrays = {name: np.ascontiguousarray(inputs[name], np.int32) for name in INPUT_NAMES}
            runner = self._interpreter.get_signature_runner(signature)
            answers = [
                real_outputs(runner, runner(**{name: array[row : row + 1] for name, array in arrays.items()}))
                for row in range(rows)
            ]
            return {name: np.concatenate([answer[name] for answer in answers]) for name in self.output_names}
        except (KeyError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise UserError(
                f"{self.model_path} must run as {BUNDLE_FILE} says; the runtime refused it: {reason}; export it again"
            ) from error

    def predict(self, inputs: Sequence[Any], **options: Any) -> list[dict[str, Any]]:
        """Predicts texts. Each text uses the shortest signature that fits.

        Example:
          ```python
          bundle.predict(["a charming journey"])  # [{"label": "positive", "probabilities": {…}}]
          ```

        Args:
          inputs: texts, pairs of texts, or pairs of question and paragraph, as for `Model.predict`. Texts longer than
            the longest signature are truncated; paragraphs are read in windows.
          **options: options of the task's `predict`: `top_k` for classes, `n_best` for questions, `soft_labels`; see
            `Predictor.predict`.
        Returns:
          One dict per input, as from `Model.predict`.
        Raises:
          UserError: the bundle has no task, the inputs mix texts and pairs, or an output is not finite.
        """
        texts = as_inputs(inputs)
        return self.predictor().predict(inputs if texts is None else texts, **options)

    def predictor(self, **windows: int | None) -> Predictor:
        """A predictor, which also scores the bundle on data.

        Args:
          **windows: `max_length`, up to the longest signature, and the task's `window_options`; see `model_predictor`.
        Raises:
          UserError: the bundle has no task that predicts, or no signature fits the window.
        """
        return self._predictor(self.pair_task or self.task, windows)

    def text_predictor(self) -> Predictor:
        """A predictor of single texts: for separate pairs that of their vectors, which `head.tflite` reads.

        Raises:
          UserError: the bundle has no task that predicts.
        """
        return self._predictor(self.task, {})

    def _predictor(self, config: TaskConfig | None, windows: dict[str, int | None]) -> Predictor:
        task = predicting_task(config, str(self.directory))
        longest = task.max_length(self.lengths[-1])
        room = f"the bundle's longest length, {longest}"
        max_length, windows = fitting_windows(task, windows, longest, longest, room)
        tokenizer = self.tokenizer
        forward: Forward = BundleForward(self.run, self.lengths, tokenizer.pad_token_id, task)
        forward = PairForward(forward, self.directory / HEAD_FILE) if is_separate(config) else forward
        return Predictor(task, forward, tokenizer, max_length, **windows)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, created on first use."""
        from pocketbert.tokenizers.opening import open_tokenizer

        return open_tokenizer(self.vocabulary)

    @cached_property
    def _interpreter(self) -> Any:
        from ai_edge_litert.interpreter import Interpreter

        return Interpreter(model_path=str(self.model_path), num_threads=1)


def vocabulary_in(directory: Path, description: Mapping[str, Any]) -> Vocabulary:
    """Files and options of a bundle's tokenizer, from its valid `bundle.json`."""
    options = {key: value for key, value in description["tokenizer"].items() if key != "vocab_size"}
    kind: TokenizerKind = options.pop("kind", "wordpiece")
    added = tuple(AddedToken(**token) for token in options.pop("added_tokens", ()))
    flags = {name: options.pop(name, False) for name in ("keeps_space", "add_prefix_space")}
    truncation = options.pop("truncation", HEAD)
    files = [directory / name for name in FILE_NAMES[kind]]
    return Vocabulary(
        path=files[0],
        merges=files[1] if len(files) > 1 else None,
        kind=kind,
        config=TokenizerConfig(**options) if kind == "wordpiece" else None,
        added=added,
        truncation=truncation,
        **flags,
    )


def read_description(directory: Path) -> dict[str, Any]:
    """Reads `bundle.json` and validates it against its schema.

    Raises:
      UserError: the file is missing or not JSON, or lists all violations of the schema.
    """
    path = directory / BUNDLE_FILE
    if not path.is_file():
        raise UserError(
            f"a bundle must be a folder with {BUNDLE_FILE}, written by pocketbert export; received {directory}"
        )
    description = read_json(path, most_bytes=_MOST_DESCRIPTION_BYTES)
    version = description.get("schema_version") if isinstance(description, dict) else None
    if isinstance(version, int) and version < SCHEMA_VERSION:
        raise UserError(
            f"{path} must have schema_version {SCHEMA_VERSION}; received {version}, written by an earlier pocketbert; "
            "export the bundle again"
        )
    schema = SCHEMAS.get(version, SCHEMA) if type(version) is int else SCHEMA
    errors = sorted(jsonschema.Draft202012Validator(schema).iter_errors(description), key=lambda error: error.json_path)
    raise_if_any([f"{error.json_path}: {error.message[:200]}" for error in errors], str(path))
    return description


def read_verification(directory: Path) -> dict[str, Any]:
    """Reads `verification.json`; a member that is absent is None.

    Raises:
      UserError: the file is missing or damaged.
    """
    path = directory / VERIFICATION_FILE
    try:
        content = read_members(read_json(path, most_bytes=_MOST_VERIFICATION_BYTES), _VERIFICATION, str(path))
        content["examples"] = read_members(content["examples"], _EXAMPLES, f"{path}: examples")
        content["checks"] = [
            read_members(check, _CHECK, f"{path}: checks[{number}]") for number, check in enumerate(content["checks"])
        ]
    except UserError as error:
        raise UserError(f"{error}; export the bundle again") from None
    return content


def _file_problems(directory: Path, description: Mapping[str, Any]) -> list[str]:
    """Lists files that are missing, damaged or not in the description."""
    problems = []
    listed = description["files"]
    for name, expected in listed.items():
        file = directory / name
        if not file.is_file():
            problems.append(f"{name} must be there; it is missing")
        elif (size := file.stat().st_size) != expected["size_bytes"]:
            problems.append(f"{name} must have {expected['size_bytes']} bytes; it has {size}")
        elif (digest := sha256(file)) != expected["sha256"]:
            problems.append(f"{name} must have the sha256 {expected['sha256']}; it has {digest}")
    has_labels = bool(description["task"] and description["task"]["labels"])
    vocabulary = vocabulary_in(directory, description)
    tokenizer = [*FILE_NAMES[vocabulary.kind], *([ADDED_NAME] if vocabulary.added else [])]
    required = [MODEL_FILE, *tokenizer, GOLDENS_FILE, *([LABELS_FILE] if has_labels else [])]
    required += [HEAD_FILE] if "pairs" in description else []
    problems += [
        f"{name} must be listed among the files in {BUNDLE_FILE}; it is not" for name in required if name not in listed
    ]
    if not has_labels and LABELS_FILE in listed:
        problems.append(f"{LABELS_FILE} must not be there for a task without labels; it is listed in {BUNDLE_FILE}")
    return problems


def _description_problems(description: Mapping[str, Any]) -> list[str]:
    """Checks rules between fields of `bundle.json` that JSON Schema cannot express."""
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
    vocabulary = vocabulary_in(directory, description)
    tokens, size = len(vocabulary.tokens()), description["tokenizer"]["vocab_size"]
    if tokens != size:
        unit = "lines" if vocabulary.kind == "wordpiece" else "tokens"
        problems.append(
            f"{vocabulary.path.name} must have {size} {unit}, the vocab_size of {BUNDLE_FILE}; it has {tokens}"
        )
    stated = {token.content: token.id for token in vocabulary.added}
    if stated and read_json(directory / ADDED_NAME, where=ADDED_NAME) != stated:
        problems.append(f"{ADDED_NAME} must have the added_tokens of {BUNDLE_FILE}; it has others")
    labels = description["task"]["labels"] if description["task"] else []
    lines = "".join(f"{label}\n" for label in labels).encode()
    if labels and (directory / LABELS_FILE).read_bytes() != lines:
        problems.append(
            f"{LABELS_FILE} must hold the labels of {BUNDLE_FILE} in their order, one per line; it does not"
        )
    return problems
