"""Counts oddities in labelled data and text that a tokenizer loses, for one line each before training."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Hashable, Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from pocketbert.data.examples import LabelledData, evenly
from pocketbert.data.readers.questions import QuestionFile
from pocketbert.data.readers.rows import listed, shown
from pocketbert.notation import argument
from pocketbert_runtime.tokenizers.truncation import HEAD

# Warning kinds about a network for another language.
FOREIGN_WORDS = ("unknown_words", "many_tokens")
# A class with so few examples is named.
FEW_EXAMPLES = 2
_TEXTS_SAMPLED = 1000
_TEXTS_A_CALL = 4096
# Fewer words say little about a language.
_FEWEST_WORDS = 50
_MOST_UNKNOWN = 0.05
# Measured on 1,000 XNLI sentences with BERT's uncased vocabulary: English 1.02, French 1.49, Spanish 1.60, German 1.79,
# Swahili 2.22; SST-2 1.11, CoLA 1.02, SQuAD 1.06 to 1.08. A multilingual vocabulary needs 1.08 to 2.16 for its own
# languages, so it has another limit.
_MOST_TOKENS, _MOST_TOKENS_MULTILINGUAL = 1.4, 3.0
_MULTILINGUAL_TOKENS = 100_000
# A character in a script without spaces is a word here: kana, Chinese characters, Thai, Lao, Myanmar, Khmer.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
# Vowel signs and accents belong to words, although they are no letters.
_MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u065f\u0900-\u0dff"
_WORD = re.compile(rf"[{_UNSPACED}]|(?:[^\W_{_UNSPACED}]|[{_MARKS}])+|[^\w\s]|_")


class DataWarning(str):
    """A sentence about data.

    Attributes:
      kind: what is counted: `conflicting_labels`, `train_in_dev`, `rare_classes`, `truncated`, `unknown_words`,
        `many_tokens` or `no_unanswerable_dev`.
      number: how many texts, classes or percent.
    """

    kind: str
    number: int

    def __new__(cls, sentence: str, kind: str, count: int) -> DataWarning:
        """Makes a sentence with its kind and count."""
        warning = super().__new__(cls, sentence)
        warning.kind, warning.number = kind, count
        return warning

    def __getnewargs__(self) -> tuple[str, str, int]:  # type: ignore[override]
        return str(self), self.kind, self.number

    def to_json(self) -> dict[str, Any]:
        """Returns the values for a result file."""
        return {"kind": self.kind, "count": self.number, "sentence": str(self)}


def label_warnings(train: LabelledData, dev: LabelledData, labels: Sequence[str] = ()) -> list[DataWarning]:
    """Warns about equal texts with different labels, texts in both splits, and classes with few examples."""
    warnings = [_conflicts(train), _shared(train, dev), _rare(train, labels)]
    return [warning for warning in warnings if warning is not None]


def _conflicts(train: LabelledData) -> DataWarning | None:
    answers = train.answers
    if answers is None:
        return None
    first: dict[Hashable, Any] = {}
    conflicting: dict[Hashable, None] = {}
    for key, label in zip(train.read_texts, answers, strict=True):
        if first.setdefault(key, label) != label:
            conflicting[key] = None
    if not conflicting:
        return None
    count = len(conflicting)
    what = "1 text occurs" if count == 1 else f"{count} texts occur"
    return DataWarning(
        f"{train.source}: {what} with different labels, such as {shown(next(iter(conflicting)))}; correct the labels, "
        "or remove the rows",
        "conflicting_labels",
        count,
    )


def _shared(train: LabelledData, dev: LabelledData) -> DataWarning | None:
    in_train = {*train.read_texts}
    shared = [key for key in dev.read_texts if key in in_train]
    if not shared:
        return None
    unit, count = dev.unit, len(shared)
    return DataWarning(
        f"{dev.source}: {count} of {len(dev)} dev {unit} {'is' if count == 1 else 'are'} among the training {unit}, "
        f"such as {shown(shared[0])}; the scores are too high; remove them from one of the files",
        "train_in_dev",
        count,
    )


def _rare(train: LabelledData, labels: Sequence[str]) -> DataWarning | None:
    rare = [name for name, count in train.label_counts(labels).items() if count <= FEW_EXAMPLES]
    if not rare:
        return None
    what = "1 label has" if len(rare) == 1 else f"{len(rare)} labels have"
    return DataWarning(
        f"{train.source}: {what} at most {FEW_EXAMPLES} training examples: {listed(rare)}; add examples, or merge "
        "labels",
        "rare_classes",
        len(rare),
    )


def count_truncated(texts: Sequence[str], pairs: Sequence[str] | None, tokenizer: Any, max_length: int) -> int:
    """Counts texts, or pairs, with more than `max_length` tokens, including special tokens."""
    # A token has at least one byte of the (compatibly decomposed) text, so short texts need no tokenizer.
    room = max_length - tokenizer.frame.num_special_tokens(pairs=pairs is not None)
    long = [index for index, text in enumerate(texts) if _most_tokens(text, pairs, index) > room]
    count = 0
    for start in range(0, len(long), _TEXTS_A_CALL):
        chunk = long[start : start + _TEXTS_A_CALL]
        second = None if pairs is None else [pairs[index] for index in chunk]
        encoded = tokenizer([texts[index] for index in chunk], second, max_length=max_length + 1)
        count += int((np.asarray(encoded["input_mask"]).sum(axis=1) > max_length).sum())
    return count


def _most_tokens(text: str, pairs: Sequence[str] | None, index: int) -> int:
    both = text if pairs is None else f"{text}  {pairs[index]}"
    if both.isascii():
        # A word may start with a token for the space before it.
        return len(both) + both.count(" ") + 2
    forms = (both, unicodedata.normalize("NFKD", both))
    return max(len(form.encode("utf-8", "replace")) for form in forms) + both.count(" ") + 2


def truncation_warning(
    source: str, truncated: int, count: int, max_length: int, remedy: str = "", truncation: str = HEAD
) -> DataWarning | None:
    """Warns about truncated texts; None without any.

    Args:
      source: data name.
      truncated: number of texts longer than the limit.
      count: number of texts.
      max_length: the limit in tokens.
      remedy: advice; empty for a larger `max_length`.
      truncation: how they are cut.
    """
    if not truncated:
        return None
    remedy = remedy or f"pass a larger {argument('max_length')}"
    return DataWarning(
        f"{source}: {truncated} of {count} texts are longer than {max_length} tokens and are cut ({truncation}); "
        f"{remedy}, or shorten them",
        "truncated",
        truncated,
    )


def vocabulary_warnings(texts: Iterable[str], tokenizer: Any) -> list[DataWarning]:
    """Warns if a vocabulary does not fit texts with at least 50 words: over 5 % unknown, or many tokens per word.

    Args:
      texts: any number of texts; at most 1,000 are read, evenly spaced.
      tokenizer: the network's tokenizer.
    """
    texts_read = [*texts]
    sample = [texts_read[index] for index in evenly(len(texts_read), _TEXTS_SAMPLED)]
    words = sum(len(_WORD.findall(text)) for text in sample)
    if words < _FEWEST_WORDS:
        return []
    ids = np.asarray(tokenizer.tokenize(sample).flat_values)
    unknown = float((ids == tokenizer.unk_token_id).sum()) / max(min(words, len(ids)), 1)
    remedy = "the vocabulary may be for another language or alphabet; use a network for your language"
    if unknown > _MOST_UNKNOWN:
        percent = round(100 * min(unknown, 1.0))
        return [
            DataWarning(f"{percent} % of the words are unknown to the tokenizer; {remedy}", "unknown_words", percent)
        ]
    tokens = len(ids) / words
    most = _MOST_TOKENS_MULTILINGUAL if tokenizer.vocab_size >= _MULTILINGUAL_TOKENS else _MOST_TOKENS
    if tokens > most:
        return [
            DataWarning(
                f"the tokenizer needs {tokens:.2f} tokens per word or mark, {most:g} at most for its own language; "
                f"{remedy}",
                "many_tokens",
                round(100 * tokens),
            )
        ]
    return []


def all_texts(data: LabelledData) -> list[str]:
    """Returns all texts, with the second texts in pairs; for questions, at most 1,000 pairs."""
    if isinstance(data, QuestionFile):
        data = data.first_texts(_TEXTS_SAMPLED)
    texts: list[str] = data.texts  # type: ignore[union-attr]
    pairs = getattr(data, "pairs", None)
    return texts if pairs is None else [*chain.from_iterable(zip(texts, pairs, strict=True))]
