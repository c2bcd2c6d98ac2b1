"""Reads `bundle.json`: a bundle's files, task and network."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pocketbert_runtime.bundles.files import BUNDLE_FILE, BundleFiles
from pocketbert_runtime.bundles.pair_forward import HEAD_FILE
from pocketbert_runtime.errors import UserError
from pocketbert_runtime.json_reading import parse_json, read_members
from pocketbert_runtime.task_config import TaskConfig
from pocketbert_runtime.tokenizer_config import UNNAMED_KIND, TokenizerConfig, TokenizerKind
from pocketbert_runtime.tokenizers.added_tokens import AddedToken
from pocketbert_runtime.tokenizers.kinds.registry import TOKENIZER_RULES, layouts_of, rules_of
from pocketbert_runtime.tokenizers.layouts import XLM_R
from pocketbert_runtime.tokenizers.truncation import HEAD
from pocketbert_runtime.tokenizers.vocabulary import ADDED_NAME, Vocabulary

MODEL_FILE = "model.tflite"
LABELS_FILE = "labels.txt"
ANSWERS_FILE = "answers.jsonl"
SCHEMA_VERSION = 4
# No path may leave the folder. The last part rejects a trailing line break, which Python's `$` would match.
FILE_NAME = r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$(?!\n)"
# Larger files are refused before they are parsed.
MOST_BYTES = 1 << 24

# Members that the runtime reads; there are others.
_MEMBERS = {
    "schema_version": int, "task": dict[str, Any] | None, "pairs": dict[str, Any] | None,
    "signatures": list[dict[str, Any]], "outputs": list[dict[str, Any]], "tokenizer": dict[str, Any], "recipe": str,
    "files": dict[str, dict[str, Any]], "answers": dict[str, Any],
}  # fmt: skip
_TASK = {
    "kind": str, "name": str, "labels": list[str], "null_threshold": float | None, "embedding": dict[str, Any] | None,
    "activation": str | None, "decisions": dict[str, Any] | None, "tasks": list[dict[str, Any]] | None,
}  # fmt: skip
_TOKENIZER = {
    "vocab_size": int, "kind": str | None, "lowercase": bool | None, "strip_accents": bool | None,
    "tokenize_chinese_chars": bool | None, "keeps_space": bool | None, "add_prefix_space": bool | None,
    "truncation": str | None, "layout": str | None, "added_tokens": list[AddedToken] | None,
}  # fmt: skip
_OPTIONS = ("lowercase", "strip_accents", "tokenize_chinese_chars")
_SIGNATURE = {"name": str, "length": int}
_OUTPUT = {"name": str, "dtype": str}
_FILE = {"sha256": str, "size_bytes": int}
_ANSWERS = {"file": str, "sha256": str, "tolerance": float}


def signature_name(length: int) -> str:
    """Names the signature for texts up to `length` tokens."""
    return f"length_{length}"


def length_file(length: int) -> str:
    """Names the file with that signature alone, for clients without signatures; a bundle has them on request."""
    return f"model_{length}.tflite"


@dataclass(frozen=True, kw_only=True)
class Description:
    """The members of `bundle.json` for running a bundle.

    Attributes:
      task: the head's task; None for a bare encoder. With separate pairs, the encoder's task, embedding.
      pair_task: task of the head on separate pairs; None for other bundles.
      lengths: the signatures' sequence lengths in tokens, ascending.
      output_names: every signature's outputs.
      output_type: the outputs' type in the file.
      recipe: the recipe's name.
      vocabulary: the tokenizer's files and options.
      files: name → SHA-256 and size, for all other files.
      tolerance: largest difference of a probability, score or vector element from `answers.jsonl` on another runtime
        or processor.
    """

    task: TaskConfig | None
    pair_task: TaskConfig | None
    lengths: tuple[int, ...]
    output_names: tuple[str, ...]
    output_type: str
    recipe: str
    vocabulary: Vocabulary
    files: Mapping[str, Mapping[str, Any]]
    tolerance: float

    @classmethod
    def of(cls, content: Any, directory: Path) -> Description:
        """Reads the needed members from `bundle.json`'s content.

        Raises:
          UserError: a member is missing or has a wrong type, or a task or tokenizer contradicts itself.
        """
        where = str(directory / BUNDLE_FILE)
        members = read_members(content, _MEMBERS, where)
        pair_task = None
        if members["pairs"] is not None:
            pairs = read_members(members["pairs"], {"task": dict[str, Any]}, f"{where}: pairs")
            pair_task = _task(pairs["task"], f"{where}: pairs.task", pairs="separate")
        signatures = _entries(members["signatures"], _SIGNATURE, f"{where}: signatures")
        outputs = _entries(members["outputs"], _OUTPUT, f"{where}: outputs")
        lengths = tuple(sorted(signature["length"] for signature in signatures))
        if not outputs or not lengths or lengths[0] < 1:
            raise UserError(
                f"{where} must have outputs, and signatures with positive lengths; received {len(outputs)} outputs and "
                f"lengths {', '.join(map(str, lengths)) or 'none'}; export the bundle again"
            )
        files = {name: read_members(entry, _FILE, f"{where}: files.{name}") for name, entry in members["files"].items()}
        return cls(
            task=None if members["task"] is None else _task(members["task"], f"{where}: task"),
            pair_task=pair_task,
            lengths=lengths,
            output_names=tuple(output["name"] for output in outputs),
            output_type=outputs[0]["dtype"],
            recipe=members["recipe"],
            vocabulary=vocabulary_in(directory, members["tokenizer"]),
            files=files,
            tolerance=_tolerance(members["answers"], files, f"{where}: answers"),
        )


def read_content(files: BundleFiles) -> Any:
    """Reads `bundle.json` as JSON; raises a `UserError` if it is not JSON, or from an earlier version."""
    path = files.path / BUNDLE_FILE
    content = parse_json(files.read(BUNDLE_FILE, MOST_BYTES), path, most_bytes=MOST_BYTES)
    version = content.get("schema_version") if isinstance(content, dict) else None
    if type(version) is int and version < SCHEMA_VERSION:
        raise UserError(
            f"{path} must have schema_version {SCHEMA_VERSION}; received {version}, written by an earlier pocketbert; "
            "export the bundle again"
        )
    return content


def read_description(files: BundleFiles) -> Description:
    """Reads `bundle.json`.

    Raises:
      UserError: see `read_content` and `Description.of`; or a later version wrote it.
    """
    content = read_content(files)
    version = content.get("schema_version") if isinstance(content, dict) else None
    if type(version) is int and version > SCHEMA_VERSION:
        raise UserError(
            f"{files.path / BUNDLE_FILE} must have schema_version {SCHEMA_VERSION}; received {version}, written by a "
            "later pocketbert; update pocketbert-runtime"
        )
    return Description.of(content, files.path)


def file_problems(files: BundleFiles, described: Mapping[str, Mapping[str, Any]], required: Iterable[str]) -> list[str]:
    """Lists missing and damaged files, and those not in the description.

    Args:
      files: the bundle's files.
      described: `files` in its description.
      required: names that must be among them.
    """
    problems = []
    for name, expected in described.items():
        if not re.search(FILE_NAME, name):
            problems.append(f"a file must be in the folder, with a name of letters and digits; received {name!r:.120}")
        elif (size := files.size(name)) is None:
            problems.append(f"{name} must be there; it is missing")
        elif size != expected["size_bytes"]:
            problems.append(f"{name} must have {expected['size_bytes']} bytes; it has {size}")
        elif (digest := files.sha256(name)) != expected["sha256"]:
            problems.append(f"{name} must have the sha256 {expected['sha256']}; it has {digest}")
    return problems + [
        f"{name} must be listed among the files in {BUNDLE_FILE}; it is not"
        for name in required
        if name not in described
    ]


def labels_file_problems(files: BundleFiles, labels: Sequence[str]) -> list[str]:
    """Lists a labels.txt that has other labels than the task, or another order; without labels there is no file."""
    lines = "".join(f"{label}\n" for label in labels).encode()
    if not labels or files.read(LABELS_FILE, MOST_BYTES) == lines:
        return []
    return [f"{LABELS_FILE} must hold the labels of {BUNDLE_FILE} in their order, one per line; it does not"]


def required_files(vocabulary: Vocabulary, *, has_labels: bool, has_pairs: bool) -> list[str]:
    """Names the files needed for predictions.

    Args:
      vocabulary: the tokenizer.
      has_labels: whether the task has labels.
      has_pairs: whether a head reads separate pairs.
    """
    tokenizer = [*vocabulary.rules.files, *([ADDED_NAME] if vocabulary.added else [])]
    files = [MODEL_FILE, ANSWERS_FILE, *tokenizer]
    return [*files, *([LABELS_FILE] if has_labels else []), *([HEAD_FILE] if has_pairs else [])]


def vocabulary_in(directory: Path, tokenizer: Mapping[str, Any]) -> Vocabulary:
    """Reads a tokenizer's files and options from that member in `bundle.json`.

    Raises:
      UserError: an option is missing, unknown or has a wrong type.
    """
    where = f"{directory / BUNDLE_FILE}: tokenizer"
    members = _all_members(tokenizer, _TOKENIZER, where)
    kind: TokenizerKind = members["kind"] or UNNAMED_KIND
    if kind not in TOKENIZER_RULES:
        raise UserError(f"{where}: kind must be one of {', '.join(TOKENIZER_RULES)}; received {kind!r:.60}")
    rules, options = TOKENIZER_RULES[kind], {name: members[name] for name in _OPTIONS}
    if rules.has_options and None in options.values():
        raise UserError(f"{where} must have {', '.join(_OPTIONS)}; received {', '.join(tokenizer)}; export it again")
    layout = XLM_R if members["layout"] is None else members["layout"]
    if layout not in (layouts := layouts_of(kind)):
        raise UserError(f"{where}: layout must be one of {', '.join(layouts)}; received {layout!r:.60}")
    files = [directory / name for name in rules_of(kind, layout).files]
    try:
        return Vocabulary(
            path=files[0],
            merges=files[1] if len(files) > 1 else None,
            kind=kind,
            layout=layout,
            config=TokenizerConfig(**options) if rules.has_options else None,
            added=tuple(members["added_tokens"] or ()),
            keeps_space=bool(members["keeps_space"]),
            add_prefix_space=bool(members["add_prefix_space"]),
            truncation=members["truncation"] or HEAD,
        )
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _all_members(value: Any, kinds: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Reads all members in an object; see `read_members`."""
    members = read_members(value, kinds, where)
    if unknown := [name for name in value if name not in kinds]:
        raise UserError(f"{where}: {unknown[0]!r:.60} is unknown and may change answers; update pocketbert-runtime")
    return members


def _tolerance(value: Any, files: Mapping[str, Mapping[str, Any]], where: str) -> float:
    """Reads the tolerance of the golden answers; their digest is also among the files'."""
    members = read_members(value, _ANSWERS, where)
    listed = files.get(ANSWERS_FILE, {}).get("sha256")
    if members["file"] != ANSWERS_FILE or listed not in (None, members["sha256"]):
        raise UserError(
            f"{where} must have the file {ANSWERS_FILE} and its sha256 {listed}; received {members['file']!r:.60} and "
            f"{members['sha256']!r:.70}; export the bundle again"
        )
    if members["tolerance"] < 0:
        raise UserError(f"{where}: tolerance must be at least 0; received {members['tolerance']}; export it again")
    return float(members["tolerance"])


def _entries(values: list[Any], kinds: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    return [read_members(value, kinds, f"{where}[{number}]") for number, value in enumerate(values)]


def _task(value: Any, where: str, **options: Any) -> TaskConfig:
    """Reads a task."""
    members = _all_members(value, _TASK, where)
    parts = members.pop("tasks")
    tasks = None if parts is None else tuple(_task(part, f"{where}.tasks") for part in parts)
    try:
        return TaskConfig(**members, tasks=tasks, **options)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
