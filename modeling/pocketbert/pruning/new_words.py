"""Extends a vocabulary with a text's words that a tokenizer splits most."""

from __future__ import annotations

import functools
import os
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pocketbert.checkpoints.vocabulary_extension import (
    ExtendResult,
    lost_tokens,
    read_extendable,
    with_tokens,
    write_extended,
)
from pocketbert.errors import UserError, raise_if_any
from pocketbert.output_folders import MODEL_KIND, check_directory, check_inputs
from pocketbert.progress import log_info
from pocketbert.pruning.vocabulary import MEASURED_EVERY, batches_of, paragraphs_of
from pocketbert.tokenizers.base import Tokenizer
from pocketbert.tokenizers.opening import open_tokenizer
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary


@dataclass(frozen=True)
class TextExtendResult(ExtendResult):
    """A model with more words, measured on paragraphs that took no part in their choice.

    Attributes:
      words: number of measured words, separated by white space.
      tokens_per_word: tokens, without special ones, per measured word before and after.
    """

    words: int
    tokens_per_word: tuple[float, float]


def extend_vocabulary_from_text(
    model: str | os.PathLike[str],
    text: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    count: int,
    min_count: int = 3,
    dev_text: Sequence[str | os.PathLike[str]] = (),
    overwrite: bool = False,
) -> TextExtendResult:
    """Writes a model directory with the words from your text that save the most tokens.

    A word is a run of letters, digits, marks and underscores with a letter. It saves its occurrences times its tokens
    minus one; a word with an unknown token counts as two tokens at least. Ties go to the more frequent word, then to
    the first by code points. An uncased model counts words in lower case. A new word is one token for the tokenizer,
    but not inside a longer word. Its embedding row is the mean over its earlier tokens' rows.

    Args:
      model: model directory with a tokenizer.
      text: files or folders with plain text; see `pocketbert.data.text`.
      output: model directory to create.
      count: number of new tokens; fewer if the text has no more.
      min_count: a new token's least number of occurrences.
      dev_text: texts for the measurement; by default, every tenth paragraph in `text`, which is then not counted.
      overwrite: replace an existing model directory.
    Raises:
      UserError: the model has no tokenizer, a text cannot be read, an option is invalid, or no word is split often
        enough. Nothing is written.
    """
    problems = [
        f"{name} must be at least 1; received {value}"
        for name, value in (("count", count), ("min_count", min_count))
        if value < 1
    ]
    if not text:
        problems.append("text must be at least one file or folder; received none")
    raise_if_any(problems, "extend_vocabulary_from_text")
    check_directory(output, MODEL_KIND, overwrite=overwrite)
    check_inputs(output, (model, *text, *dev_text))
    directory, vocabulary = read_extendable(model)
    before = open_tokenizer(vocabulary)
    last = MEASURED_EVERY - 1
    counted = paragraphs_of(text, lambda index: bool(dev_text) or index % MEASURED_EVERY != last)
    candidates = _useful_words(before, counted, min_count)
    extended, words = _with_words(vocabulary, candidates, count)
    if not words:
        raise UserError(
            f"no word occurs {min_count} times and has several tokens; received {', '.join(map(str, text))}; lower "
            "min_count, or give more text"
        )
    if len(words) < count:
        log_info(f"only {len(words)} words occur {min_count} times and have several tokens")
    measured = list(paragraphs_of(dev_text or text, lambda index: bool(dev_text) or index % MEASURED_EVERY == last))
    number = sum(len(paragraph.split()) for paragraph in measured)
    if not number:
        raise UserError(f"the measurement needs at least {MEASURED_EVERY} paragraphs; received fewer; give dev_text")
    rates = [_count_tokens(tokenizer, measured) / number for tokenizer in (before, open_tokenizer(extended))]
    space = " " if vocabulary.rules.tokens_are_bytes else ""
    result = write_extended(directory, extended, [space + word for word in words], output, overwrite=overwrite)
    return TextExtendResult(**vars(result), words=number, tokens_per_word=(rates[0], rates[1]))


def _useful_words(tokenizer: Tokenizer, paragraphs: Iterable[str], min_count: int) -> list[str]:
    """Returns words with several tokens, the most useful first; see `extend_vocabulary_from_text`."""
    lowercase = tokenizer.vocabulary.lowercase
    counts: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for batch in batches_of(paragraphs, "counting words"):
        split = tokenizer.tokenize_with_offsets(batch)
        bounds, ids = split.ends.row_splits.numpy(), split.ids.flat_values.numpy()
        ends, unknown = split.ends.flat_values.numpy(), np.cumsum([0, *(ids == tokenizer.unk_token_id)])
        for paragraph, first, last in zip(batch, bounds, bounds[1:], strict=False):
            spans = [match.span() for match in _words().finditer(paragraph)]
            if not spans:
                continue
            # A token may include the space before a word, and one character may have several tokens.
            places = first + np.searchsorted(ends[first:last], np.array(spans), side="right")
            for (start, end), (begin, behind) in zip(spans, places.tolist(), strict=True):
                word = paragraph[start:end]
                size = behind - begin
                # Parts of added tokens have no end here; numbers would be rare words.
                if size and any(map(str.isalpha, word)):
                    word = word.lower() if lowercase else word
                    counts[word] += 1
                    tokens[word] += max(size, 2) if unknown[behind] > unknown[begin] else size
    saved = {word: tokens[word] - number for word, number in counts.items() if number >= min_count}
    useful = sorted((word for word, value in saved.items() if value), key=lambda w: (-saved[w], -counts[w], w))
    return useful


def _with_words(vocabulary: Vocabulary, candidates: Sequence[str], count: int) -> tuple[Vocabulary, list[str]]:
    """Adds the first `count` candidates that the tokenizer finds as themselves; returns vocabulary and words."""
    known = {*vocabulary.tokens()}
    remaining = [word for word in candidates if word not in known]
    flags = {"single_word": True, "normalized": True, "lstrip": vocabulary.rules.takes_space}
    while True:
        words = remaining[:count]
        extended = with_tokens(vocabulary, words, **flags)
        # If words have one normalized form, such as café and cafe, the tokenizer finds the first.
        lost = {*(lost_tokens(extended, words) if words else ())}
        if not lost:
            return extended, words
        remaining = [word for word in remaining if word not in lost]


def _count_tokens(tokenizer: Tokenizer, paragraphs: Iterable[str]) -> int:
    return sum(
        int(tokenizer.tokenize(batch).flat_values.shape[0]) for batch in batches_of(paragraphs, "counting tokens")
    )


@functools.cache
def _words() -> re.Pattern[str]:
    """Finds words as `AddedToken.single_word` bounds them: with the marks of Indian scripts and Thai."""
    marks = "".join(chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code))[0] == "M")
    return re.compile(rf"[\w{re.escape(marks)}]+")
