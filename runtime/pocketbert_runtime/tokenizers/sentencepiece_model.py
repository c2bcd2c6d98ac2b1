"""Reads and writes sentencepiece models in the layouts of `layouts`.

A model is a protocol buffer, defined in https://github.com/google/sentencepiece `sentencepiece_model.proto`. The module
in `sentencepiece` needs a newer protobuf than TensorFlow allows, so this one declares the necessary fields again.
Others are kept as they are.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from pocketbert_runtime.errors import UserError, raise_if_any
from pocketbert_runtime.tokenizers.extras import SENTENCEPIECE, needed
from pocketbert_runtime.tokenizers.layouts import LAYOUTS, NORMAL, USER_DEFINED, XLM_R, UnigramLayout

_MAX_FILE_BYTES = 1 << 26
_MAX_LISTED = 5
UNIGRAM = 1

_SCHEMA = """
name: "pocketbert/sentencepiece_model.proto" package: "sentencepiece" syntax: "proto2"
message_type { name: "Subword"
  field { name: "text" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "score" number: 2 label: LABEL_OPTIONAL type: TYPE_FLOAT }
  field { name: "type" number: 3 label: LABEL_OPTIONAL type: TYPE_INT32 default_value: "1" } }
message_type { name: "TrainerSpec"
  field { name: "model_type" number: 3 label: LABEL_OPTIONAL type: TYPE_INT32 default_value: "1" }
  field { name: "vocab_size" number: 4 label: LABEL_OPTIONAL type: TYPE_INT32 }
  field { name: "treat_whitespace_as_suffix" number: 24 label: LABEL_OPTIONAL type: TYPE_BOOL }
  field { name: "byte_fallback" number: 35 label: LABEL_OPTIONAL type: TYPE_BOOL }
  field { name: "unk_id" number: 40 label: LABEL_OPTIONAL type: TYPE_INT32 }
  field { name: "bos_id" number: 41 label: LABEL_OPTIONAL type: TYPE_INT32 }
  field { name: "eos_id" number: 42 label: LABEL_OPTIONAL type: TYPE_INT32 }
  field { name: "pad_id" number: 43 label: LABEL_OPTIONAL type: TYPE_INT32 }
  field { name: "unk_piece" number: 45 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "bos_piece" number: 46 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "eos_piece" number: 47 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "pad_piece" number: 48 label: LABEL_OPTIONAL type: TYPE_STRING } }
message_type { name: "NormalizerSpec"
  field { name: "name" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "precompiled_charsmap" number: 2 label: LABEL_OPTIONAL type: TYPE_BYTES }
  field { name: "add_dummy_prefix" number: 3 label: LABEL_OPTIONAL type: TYPE_BOOL default_value: "true" }
  field { name: "remove_extra_whitespaces" number: 4 label: LABEL_OPTIONAL type: TYPE_BOOL default_value: "true" }
  field { name: "escape_whitespaces" number: 5 label: LABEL_OPTIONAL type: TYPE_BOOL default_value: "true" } }
message_type { name: "Model"
  field { name: "subwords" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: "Subword" }
  field { name: "trainer_spec" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: "TrainerSpec" }
  field { name: "normalizer_spec" number: 3 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: "NormalizerSpec" } }
"""
# Field → value in every layout's models.
_TRAINER = {"model_type": UNIGRAM, "treat_whitespace_as_suffix": False, "byte_fallback": False}
_NORMALIZER = {"add_dummy_prefix": True, "remove_extra_whitespaces": True, "escape_whitespaces": True}


def read_model(
    path: str | os.PathLike[str], content: bytes | None = None, layout: UnigramLayout = LAYOUTS[XLM_R]
) -> Any:
    """Reads and checks a sentencepiece model.

    Args:
      path: the file.
      content: its bytes, if they are in memory.
      layout: the subwords that it must begin with.
    Returns:
      The message: `subwords` (`text`, `score`, `type`), `trainer_spec` and `normalizer_spec`.
    Raises:
      UserError: the file cannot be read, is damaged, or belongs to another family. One error lists all problems.
    """
    return parse_model(_content(path) if content is None else content, path, layout)


def load_model(
    path: str | os.PathLike[str], content: bytes | None = None, layout: UnigramLayout = LAYOUTS[XLM_R]
) -> Any:
    """Loads a `SentencePieceProcessor`. It checks more than `read_model`, such as the character map.

    For the arguments see `read_model`.

    Raises:
      UserError: see `read_model`; or the package refuses the model.
    """
    with needed(f"{layout.title}'s tokenizer", SENTENCEPIECE):
        import sentencepiece

    if content is None:
        content = _content(path)
    parse_model(content, path, layout)
    core = sentencepiece.SentencePieceProcessor()
    try:
        core.LoadFromSerializedProto(content)
    except RuntimeError as error:
        raise UserError(
            f"{path}: sentencepiece must be able to load a model; received: {' '.join(str(error).split())}; "
            "copy the file again"
        ) from error
    return core


def _content(path: str | os.PathLike[str]) -> bytes:
    try:
        with Path(path).open("rb") as stream:
            return stream.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UserError(
            f"{path}: a sentencepiece model must be a file; received: {error.strerror or error}; check the path"
        ) from error


def parse_model(content: bytes, where: str | os.PathLike[str], layout: UnigramLayout = LAYOUTS[XLM_R]) -> Any:
    """Parses and checks a model's content; see `read_model`."""
    from google.protobuf.message import DecodeError

    if len(content) > _MAX_FILE_BYTES:
        raise UserError(f"{where}: a sentencepiece model must have at most {_MAX_FILE_BYTES:,} bytes; check the path")
    model = _message_class()()
    try:
        model.ParseFromString(content)
    except DecodeError as error:
        raise UserError(
            f"{where}: a sentencepiece model must be a complete protocol buffer; received {len(content):,} bytes that "
            "end early or have another format; copy the file again"
        ) from error
    raise_if_any(_problems(model, layout), str(where))
    return model


def make_model(
    subwords: Sequence[tuple[str, float]],
    charsmap: bytes,
    layout: UnigramLayout = LAYOUTS[XLM_R],
    user_defined: Collection[str] = (),
) -> Any:
    """Makes a model message, as `read_model` returns it, from a tokenizer.json's content.

    Args:
      subwords: subwords with their scores (log-probabilities), without the layout's first ones.
      charsmap: the normalizer's compiled map; empty for none.
      layout: the first subwords.
      user_defined: those among `subwords` that are user-defined.
    """
    model = _message_class()()
    for subword, kind in layout.first:
        model.subwords.add(text=subword, score=0.0, type=kind)
    for subword, score in subwords:
        if subword in user_defined:
            model.subwords.add(text=subword, score=score, type=USER_DEFINED)
        else:
            model.subwords.add(text=subword, score=score)
    for field, value in _TRAINER.items():
        setattr(model.trainer_spec, field, value)
    model.trainer_spec.vocab_size = len(model.subwords)
    if layout.first != LAYOUTS[XLM_R].first:
        # These differ from sentencepiece's defaults; transformers' conversion reads `unk_id`.
        _name_special(model.trainer_spec, layout)
    model.normalizer_spec.precompiled_charsmap = charsmap
    for field, value in _NORMALIZER.items():
        setattr(model.normalizer_spec, field, value)
    return model


def _name_special(trainer_spec: Any, layout: UnigramLayout) -> None:
    positions = {text: position for position, (text, _) in enumerate(layout.first)}
    for field in ("unk", "bos", "eos", "pad"):
        token = layout.special_names[f"{field}_token"]
        setattr(trainer_spec, f"{field}_id", positions[token])
        setattr(trainer_spec, f"{field}_piece", token)


def layout_tokens(model: Any, layout: UnigramLayout) -> list[str]:
    """A layout's tokens by id."""
    return [*layout.before, *(subword.text for subword in model.subwords[layout.replaced :]), *layout.after]


def scored_subwords(model: Any, layout: UnigramLayout) -> list[tuple[str, float]]:
    """The subwords with their scores, without the layout's first ones."""
    return [(subword.text, subword.score) for subword in model.subwords[len(layout.first) :]]


def user_defined(model: Any) -> list[str]:
    """The subwords that texts always have as tokens of their own."""
    return [subword.text for subword in model.subwords if subword.type == USER_DEFINED]


def subword_problems(subwords: Sequence[str], layout: UnigramLayout = LAYOUTS[XLM_R]) -> list[str]:
    """Lists empty, repeated or special subwords as problems; `subwords` are without the layout's first ones."""
    problems = []
    subword_set = set(subwords)
    if "" in subword_set:
        problems.append(f"subwords must not be empty; received {subwords.count('')} empty ones")
    if len(subword_set) != len(subwords):
        problems.append(f"subwords must be unique; received {len(subwords) - len(subword_set)} repetitions")
    if special := [subword for subword in layout.special_tokens if subword in subword_set]:
        problems.append(f"subwords must not be special tokens; received {' '.join(special)}")
    return problems


def _problems(model: Any, layout: UnigramLayout) -> list[str]:
    # One pass: an XLM-R model has 250,000 subwords.
    entries = [(subword.text, subword.type) for subword in model.subwords]
    count = len(layout.first)
    first, rest = tuple(entries[:count]), entries[count:]
    if first != layout.first:
        *names, last = (repr(subword) for subword, _ in layout.first)
        received = ", ".join(repr(subword) for subword, _ in first) or "no subwords"
        return [
            f"the first subwords of {layout.title}'s models are {', '.join(names)} and {last}; received {received}; "
            f"pass the {layout.file} of a model of this family"
        ]
    if not model.HasField("trainer_spec") or not model.HasField("normalizer_spec"):
        return [
            "a sentencepiece model must hold subwords, trainer_spec and normalizer_spec; received a file without one "
            "of them, which is cut off; copy it again"
        ]
    problems = subword_problems([subword for subword, _ in rest], layout)
    kinds = {NORMAL: "NORMAL"} | ({USER_DEFINED: "USER_DEFINED"} if layout.has_user_defined else {})
    if others := [subword for subword, kind in rest if kind not in kinds]:
        shown = ", ".join(map(repr, others[:_MAX_LISTED]))
        problems.append(
            f"all subwords but the first {count} must be of type {' or '.join(kinds.values())}; received "
            f"others: {shown}"
        )
    for part, required in (("trainer_spec", _TRAINER), ("normalizer_spec", _NORMALIZER)):
        for field, value in required.items():
            if getattr(getattr(model, part), field) != value:
                problems.append(
                    f"{part}.{field} must be {value}; received {getattr(getattr(model, part), field)}, which "
                    f"{layout.title}'s models do not have"
                )
    return problems


@functools.cache
def _message_class() -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

    schema = text_format.Parse(_SCHEMA, descriptor_pb2.FileDescriptorProto())
    # Not the default pool: the package `sentencepiece` or a test's library may register the original there.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(schema)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("sentencepiece.Model"))
