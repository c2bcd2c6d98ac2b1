"""Tokenizer files in a model directory: they select the tokenizer, and contradictions are errors."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pocketbert.checkpoints.added_token_files import StatedTokens, read_added_tokens, write_added_tokens
from pocketbert.checkpoints.layout_selection import BARE_CLASSES, class_name, class_problems, layout_of
from pocketbert.checkpoints.roberta_tokenizer_files import (
    TokenizerJson,
    byte_bpe_parts,
    byte_layout_of,
    parse_byte_bpe,
    write_config,
)
from pocketbert.checkpoints.tokenizer_files import (
    added_token_parts,
    common_problems,
    kept_file,
    parse_tokenizer,
    read_tokenizer_config,
    wordpiece_parts,
    write_tokenizer_config,
)
from pocketbert.checkpoints.tokenizer_keys import CONFIG_NAME, TOKENIZER_NAME, config_key_problems
from pocketbert.checkpoints.truncation_keys import read_truncation, truncation_keys
from pocketbert.checkpoints.unigram_json import json_scores, parse_unigram, unigram_parts
from pocketbert.configs import EncoderConfig, TokenizerConfig, TokenizerKind
from pocketbert.errors import UserError
from pocketbert.files import write_json, write_text
from pocketbert.json_reading import read_json_object
from pocketbert.progress import log_info
from pocketbert_runtime.json_reading import read_json
from pocketbert_runtime.tokenizer_config import UNIGRAM_KIND
from pocketbert_runtime.tokenizers.added_tokens import appended
from pocketbert_runtime.tokenizers.byte_layouts import BYTE_LAYOUTS
from pocketbert_runtime.tokenizers.kinds.registry import ALL_RULES, TOKENIZER_RULES, rules_of
from pocketbert_runtime.tokenizers.layouts import LAYOUTS, XLM_R
from pocketbert_runtime.tokenizers.sentencepiece_model import load_model, make_model, read_model
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import read_tokens, token_problems

# What a tokenizer.json has for each kind.
_PARTS: dict[TokenizerKind, Callable[[Vocabulary], dict[str, Any]]] = {
    "wordpiece": wordpiece_parts,
    "byte_bpe": byte_bpe_parts,
    "unigram": unigram_parts,
}


def read_vocabulary_files(path: Path, problems: list[str]) -> Vocabulary | None:
    """Finds and checks a model directory's tokenizer; None if it has none, or a problem.

    The files select it: vocab.txt, vocab.json with merges.txt, or a sentencepiece model; or tokenizer.json, which
    otherwise must agree with them. A tokenizer.json's content becomes temporary files.
    """
    config = read_json_object(path / CONFIG_NAME, problems, required=False) or {}
    kinds_by_files = {rules.files: kind for kind, rules in ALL_RULES}
    all_present = [(names, [name for name in names if (path / name).exists()]) for names in kinds_by_files]
    tokenizers = [(names, present) for names, present in all_present if present]
    if len(tokenizers) > 1:
        names = ", ".join(name for _, present in tokenizers for name in present)
        problems.append(f"a model directory must have the files of one tokenizer; received {names}; remove the others")
        return None
    files, present = tokenizers[0] if tokenizers else ((), [])
    kind = kinds_by_files.get(files)
    if len(present) < len(files):
        problems.append(f"{' and '.join(files)} belong together; received only {present[0]}")
        return None
    parts: Mapping[str, Any] | None = None
    if (path / TOKENIZER_NAME).exists():
        try:
            content = read_json(path / TOKENIZER_NAME, where=TOKENIZER_NAME)
        except UserError as error:
            problems.append(str(error))
            return None
        parts = content if isinstance(content, dict) else {}
        model = parts.get("model")
        kinds_by_type = {rules.json_type: kind for kind, rules in TOKENIZER_RULES.items()}
        stored = kinds_by_type.get(str(model.get("type")) if isinstance(model, dict) else "")
        if stored is None:
            received = model.get("type") if isinstance(model, dict) else model
            *types, last = kinds_by_type
            problems.append(
                f"{TOKENIZER_NAME}: model must be of type {', '.join(types)} or {last}; received {received!r:.60}"
            )
            return None
        if kind is not None and stored != kind:
            problems.append(
                f"{TOKENIZER_NAME} and {present[0]} must agree; received {stored} and {kind}; remove one of them"
            )
            return None
        kind = stored
    if kind is None:
        return None
    layout = layout_of(path, "".join(present), config, parts) if kind == UNIGRAM_KIND else XLM_R
    layout = byte_layout_of(parts) if TOKENIZER_RULES[kind].tokens_are_bytes else layout
    rules = rules_of(kind, layout)
    problems += class_problems(config, kind, rules)
    problems += config_key_problems(config, kind, rules)
    if rules.has_options:
        vocabulary = _wordpiece(path, config, parts, problems)
    else:
        vocabulary = _roberta(path, (kind, layout), bool(present), config, parts, problems)
    if vocabulary is None:
        return None
    vocabulary = dataclasses.replace(vocabulary, truncation=read_truncation(config, parts, problems))
    stated = StatedTokens.read(path, config, None if parts is None else parts.get("added_tokens"), problems)
    try:
        tokens = vocabulary.base_tokens()
    except UserError:
        # `vocabulary_problems` reports it.
        return vocabulary
    return dataclasses.replace(vocabulary, added=read_added_tokens(stated, rules, tokens, problems))


def write_vocabulary_files(folder: Path, vocabulary: Vocabulary, max_length: int) -> None:
    """Copies a tokenizer's files into a model directory, with a tokenizer_config.json.

    Args:
      folder: the model directory.
      vocabulary: the files; a WordPiece vocabulary without options gets no tokenizer_config.json.
      max_length: maximum sequence length.
    """
    for source, name in zip(vocabulary.files, vocabulary.rules.files, strict=True):
        shutil.copyfile(source, folder / name)
    cut = truncation_keys(vocabulary.truncation)
    if not vocabulary.rules.has_options:
        content = write_config(vocabulary, max_length)
    elif vocabulary.config is not None or vocabulary.added or cut:
        content = write_tokenizer_config(vocabulary.options, max_length)
    else:
        return
    write_json(folder / CONFIG_NAME, content | cut | write_added_tokens(folder, vocabulary))
    if vocabulary.rules.special_behind or (vocabulary.rules.joins_spaces and vocabulary.added):
        write_tokenizer_json(folder, vocabulary)


def write_tokenizer_json(folder: Path, vocabulary: Vocabulary) -> None:
    """Writes `tokenizer_json` to a folder, on one line: XLM-R's has 250,000 tokens."""
    content = json.dumps(tokenizer_json(vocabulary), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    write_text(folder / TOKENIZER_NAME, f"{content}\n")


def tokenizer_json(vocabulary: Vocabulary) -> dict[str, Any]:
    """Returns the content of a tokenizer.json, from which Hugging Face's `tokenizers` makes the same tokenizer.

    It does not truncate or pad. `docs/reference/tokenizer.md` lists the texts that get other ids from it.

    Raises:
      UserError: a tokenizer file is invalid.
    """
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_token_parts(vocabulary),
        **_PARTS[vocabulary.kind](vocabulary),
    }


def vocabulary_problems(vocabulary: Vocabulary, config: EncoderConfig) -> list[str]:
    """Lists problems with an encoder's vocabulary: invalid files, or another number of tokens than embeddings."""
    name = vocabulary.path.name
    try:
        tokens = read_tokens(vocabulary.path) if vocabulary.rules.has_options else vocabulary.base_tokens()
        if vocabulary.rules.joins_spaces:
            # A damaged character map shows only here.
            load_model(vocabulary.path, layout=LAYOUTS[vocabulary.layout])
    except UserError as error:
        return [str(error)]
    problems = []
    if vocabulary.rules.has_options:
        problems += [f"{name}: {problem}" for problem in token_problems(tokens)]
    elif config.reads_padding_id and tokens.index(pad := vocabulary.rules.special_names["pad_token"]) != (
        config.pad_token_id
    ):
        problems.append(
            f"pad_token_id must be the id of {pad} in {name}, {tokens.index(pad)}; received {config.pad_token_id}"
        )
    behind = appended(vocabulary.added, len(tokens))
    if len(tokens) + len(behind) != config.vocab_size:
        added = f" and {len(behind)} added ones" if behind else ""
        problems.append(
            f"{name} must have one token per row of the word embedding table; received {len(tokens)} tokens{added} for "
            f"{config.vocab_size} rows; take the tokenizer files from the model's own folder"
        )
    return problems


def _wordpiece(
    path: Path, config: Mapping[str, Any], parts: Mapping[str, Any] | None, problems: list[str]
) -> Vocabulary | None:
    options = read_tokenizer_config(config, problems)
    vocab_path = path / "vocab.txt"
    if parts is None:
        return Vocabulary(path=vocab_path, config=TokenizerConfig(**options) if options else None)
    part_problems: list[str] = []
    tokens, stored = parse_tokenizer(parts, part_problems)
    problems += [f"{TOKENIZER_NAME}: {problem}" for problem in part_problems]
    if part_problems or stored is None:
        return None
    # As in transformers: a class changes only a normalizer without others.
    if isinstance(parts.get("normalizer"), dict) and "normalizers" not in parts["normalizer"]:
        _compare_options(config, options, stored, problems)
    if not vocab_path.exists():
        return Vocabulary(
            path=kept_file("".join(f"{token}\n" for token in tokens).encode(), "vocab.txt"), config=stored
        )
    try:
        agree = read_tokens(vocab_path) == list(tokens)
    except UserError:
        # `vocabulary_problems` reports it.
        agree = True
    if not agree:
        problems.append(
            f"{TOKENIZER_NAME} and {vocab_path.name} must have the same tokens; received different ones; remove the "
            "file that does not belong to the model"
        )
    return Vocabulary(path=vocab_path, config=stored)


def _compare_options(
    config: Mapping[str, Any], options: Mapping[str, bool], stored: TokenizerConfig, problems: list[str]
) -> None:
    """Compares the options in both files, by the rules in transformers' classes."""
    stored_options = dataclasses.asdict(stored)
    differing = [name for name, value in options.items() if value != stored_options[name]]
    name = class_name(config)
    if differing and name in BARE_CLASSES:
        log_info(f"{TOKENIZER_NAME} decides on {', '.join(differing)}; {CONFIG_NAME} says something else")
    elif differing:
        shown = " and ".join(
            ", ".join(f"{key}={values[key]}" for key in differing) for values in (dict(options), stored_options)
        )
        problems.append(
            f"{CONFIG_NAME} and {TOKENIZER_NAME} must agree; received {shown}; correct the file that does not suit the "
            "model's training"
        )
    elif name not in BARE_CLASSES and TokenizerConfig(**options) != stored:
        log_info(
            f"{TOKENIZER_NAME} decides on lower case, accents and ideographs: {CONFIG_NAME} states no options, and "
            "transformers' own classes would take their defaults"
        )


def _roberta(
    path: Path,
    kind_and_layout: tuple[TokenizerKind, str],
    has_files: bool,
    config: Mapping[str, Any],
    parts: Mapping[str, Any] | None,
    problems: list[str],
) -> Vocabulary | None:
    """The byte-level BPE or unigram vocabulary, from files, from a tokenizer.json, or both."""
    kind, layout = kind_and_layout
    rules, vocabulary = rules_of(kind, layout), None
    names = rules.files
    if has_files:
        merges = path / names[1] if len(names) > 1 else None
        prefix = rules.tokens_are_bytes and config.get("add_prefix_space") is True
        vocabulary = Vocabulary(path=path / names[0], merges=merges, kind=kind, layout=layout, add_prefix_space=prefix)
    if parts is None:
        return vocabulary
    part_problems: list[str] = []
    part_problems += common_problems(parts, rules.special_names["pad_token"])
    if rules.tokens_are_bytes:
        stored = parse_byte_bpe(parts, BYTE_LAYOUTS[layout], part_problems)
    else:
        stored = parse_unigram(parts, LAYOUTS[layout], part_problems)
    problems += [f"{TOKENIZER_NAME}: {problem}" for problem in part_problems]
    if part_problems:
        return None
    own_prefix = config.get("add_prefix_space")
    if own_prefix is None and class_name(config) not in BARE_CLASSES:
        # The default in transformers' class; it replaces the value in tokenizer.json.
        own_prefix = False if class_name(config) else stored.add_prefix_space
    if rules.tokens_are_bytes and own_prefix is not None and own_prefix != stored.add_prefix_space:
        problems.append(
            f"add_prefix_space must be the same in {CONFIG_NAME} and {TOKENIZER_NAME}; received {own_prefix} and "
            f"{stored.add_prefix_space}; correct the file that does not suit the model's training"
        )
    if vocabulary is None:
        return _made(kind, layout, stored)
    try:
        agrees = _agrees(vocabulary, stored)
    except UserError:
        # `vocabulary_problems` reports it.
        return vocabulary
    if not agrees:
        problems.append(
            f"{TOKENIZER_NAME} and {' and '.join(names)} must have the same tokens; received different ones; remove "
            "the file that does not belong to the model"
        )
    return dataclasses.replace(vocabulary, keeps_space=stored.keeps_space, add_prefix_space=stored.add_prefix_space)


def _agrees(vocabulary: Vocabulary, stored: TokenizerJson) -> bool:
    if vocabulary.merges is not None:
        files = vocabulary.byte_bpe
        return (files.tokens, files.merges) == (stored.tokens, stored.merges)
    layout = LAYOUTS[vocabulary.layout]
    model = read_model(vocabulary.path, layout=layout)
    same_map = model.normalizer_spec.precompiled_charsmap == stored.charsmap
    return list(stored.scores) in json_scores(model, layout) and same_map


def _made(kind: TokenizerKind, layout: str, stored: TokenizerJson) -> Vocabulary:
    """Writes temporary files with a tokenizer.json's content."""
    rules = rules_of(kind, layout)
    names = rules.files
    if rules.tokens_are_bytes:
        ids = {token: index for index, token in enumerate(stored.tokens)}
        merges = "".join(f"{left} {right}\n" for left, right in stored.merges)
        path = kept_file(json.dumps(ids, ensure_ascii=False).encode(), names[0])
        merges_path = kept_file(f"#version: 0.2\n{merges}".encode(), names[1])
        prefix = stored.add_prefix_space
        return Vocabulary(path=path, merges=merges_path, kind=kind, layout=layout, add_prefix_space=prefix)
    model = make_model(stored.scores, stored.charsmap, LAYOUTS[layout], stored.user_defined)
    path = kept_file(model.SerializeToString(deterministic=True), names[0])
    return Vocabulary(path=path, kind=kind, layout=layout, keeps_space=stored.keeps_space)
