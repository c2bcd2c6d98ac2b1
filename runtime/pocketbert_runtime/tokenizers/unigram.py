"""Unigram tokenizers: a language model over subwords by the library `sentencepiece`, in the layouts of `layouts`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pocketbert_runtime.tokenizers.added_token_search import (
    WHITE,
    AddedTokenSplitter,
    Normalized,
    SplitPart,
    span_without_space,
    unchanged,
)
from pocketbert_runtime.tokenizers.added_tokens import AddedToken, default_special, found_in_text
from pocketbert_runtime.tokenizers.albert_text import cleaned, split_numbers
from pocketbert_runtime.tokenizers.base import SpecialTokensInText, TextTokenizer, Tokens, without_surrogates
from pocketbert_runtime.tokenizers.layouts import LAYOUTS, UNKNOWN, UnigramLayout
from pocketbert_runtime.tokenizers.sentencepiece_model import load_model
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

_SPACE = "\u2581"


class Unigram(TextTokenizer):
    """Unigram tokenizer with the results of `sentencepiece` and of transformers' slow classes.

    Source: sentencepiece (Kudo 2018, https://arxiv.org/abs/1804.10959), with the model's normalizer. The vocabulary's
    layout has the ids and special tokens: those of `XLMRobertaTokenizer` (fairseq's: `<s>` 0, `<pad>` 1, `</s>` 2,
    `<unk>` 3, then the subwords, and `<mask>` last), `CamembertTokenizer`, `AlbertTokenizer` or `DebertaV2Tokenizer`.
    Inputs are `<s> text </s>` or `<s> text </s></s> pair </s>` with segment 0, or `[CLS] text [SEP]` or `[CLS] text
    [SEP] pair [SEP]` with segments 0 and 1.

    Departures from transformers' fast classes: their normalizer drops combining marks in decomposed (NFD) text;
    sentencepiece composes them. For ALBERT see `albert_text`. Any text is valid. Lone surrogates are U+FFFD; XLM-R's
    normalizer makes them spaces.

    Spans exclude white space: a subword spans its original characters, without its leading `▁`. If one character
    becomes several (`½` becomes `1⁄2`), each subword in it spans the whole character. Characters dropped by the
    normalizer belong to the character before them. A subword with `▁` only has an empty span, where the following
    character begins.

    Args:
      vocabulary: file and options. Added tokens with the flag `normalized` are found in the normalized text.
      special_tokens_in_text: meaning of a literal `</s>` or similar in a text: "token" for the special token, as in
        transformers by default, where the texts between are tokenized separately and the mask token also takes the
        white space before it, except DeBERTa-v3's; "text" for ordinary characters, as with transformers'
        `split_special_tokens=True`.
    Raises:
      UserError: the file is damaged or of another family, or a package is not installed.
    """

    def __init__(self, vocabulary: Vocabulary, special_tokens_in_text: SpecialTokensInText = "token") -> None:
        layout, rules = LAYOUTS[vocabulary.layout], vocabulary.rules
        self._core = load_model(vocabulary.path, vocabulary.held_content(vocabulary.path), layout)
        super().__init__(vocabulary, layout.frame)
        self._layout = layout
        self._unknown_id = self.ids[layout.unknown]
        self._unknown_index = [kind for _, kind in layout.first].index(UNKNOWN)
        special = {token: self.ids[token] for token in rules.special_tokens}
        self._special = {token: default_special(rules, token, token_id) for token, token_id in special.items()}
        self._literals = _literals(list(self._special.values()))
        self._space_id = self.ids.get(_SPACE, self._unknown_id)
        self._finds_special = special_tokens_in_text == "token"
        self._clean: Callable[[str], Normalized] = cleaned if layout.cleans_text else unchanged
        self._splitter: AddedTokenSplitter | None = None
        if vocabulary.added:
            in_text = found_in_text(rules, special, vocabulary.added)
            normalize = _normalizer(vocabulary.content(vocabulary.path), layout)
            self._splitter = AddedTokenSplitter(in_text, normalize, special=self._finds_special)

    def _ids_of(self, texts: Sequence[str]) -> list[list[int]]:
        parts = [self._split(text) for text in without_surrogates(texts)]
        plain = [part.text for row in parts for part in row if part.token is None]
        encoded = self._encoded(plain)
        rows = []
        for row in parts:
            ids: list[int] = []
            for part in row:
                ids += next(encoded) if part.token is None else [part.token.id]
                ids += [self._space_id] * self._is_space(part)
            rows.append(ids)
        return rows

    def _tokens_of(self, texts: Sequence[str]) -> list[Tokens]:
        parts = [self._split(text) for text in without_surrogates(texts)]
        plain = [self._clean(part.text) for row in parts for part in row if part.token is None]
        strings = [part.text for part in plain]
        encoded = iter(self._core.encode(strings, return_type="offset_mapping"))
        origins = iter(self._core.normalize(strings, with_offsets=True))
        cleaned_parts = iter(plain)
        rows = []
        for row in parts:
            ids: list[int] = []
            spans: list[tuple[int, int]] = []
            for part in row:
                if part.token is None:
                    subwords, texts_of_subwords = self._subwords(next(encoded))
                    ids += subwords
                    within = _spans(texts_of_subwords, next(origins)[1])
                    spans += _original(_original(within, next(cleaned_parts)), part)
                    if self._is_space(part):
                        ids.append(self._space_id)
                        spans.append((part.ends[-1], part.ends[-1]))
                else:
                    ids.append(part.token.id)
                    spans.append(span_without_space(part))
            rows.append(Tokens(ids, [start for start, _ in spans], [end for _, end in spans]))
        return rows

    def _split(self, text: str) -> list[SplitPart]:
        """Splits a text at special and added tokens."""
        if self._splitter is not None:
            return self._splitter.split(text)
        parts, begin = [], 0
        # Special tokens have odd positions.
        pieces = self._literals.split(text) if self._finds_special else [text]
        for position, piece in enumerate(pieces):
            end = begin + len(piece)
            token = self._special[piece.lstrip()] if position % 2 else None
            parts.append(SplitPart(token, piece, range(begin, end), range(begin + 1, end + 1)))
            begin = end
        return parts

    def _is_space(self, part: SplitPart) -> bool:
        """Whether the token `▁` follows a part's subwords."""
        return part.has_space and self.vocabulary.keeps_space

    def _encoded(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Yields each text's ids."""
        if not self._layout.cleans_text:
            yield from (self._moved(ids) for ids in self._core.encode(texts, return_type=int))
            return
        for subwords in self._core.encode([self._clean(text).text for text in texts], return_type=str):
            yield [self._id(subword) for subword, _ in split_numbers(subwords, self._encode_number)]

    def _subwords(self, encoded: dict[str, Any]) -> tuple[list[int], list[str]]:
        """A text's ids, and the parts of the text that they stand for."""
        if not self._layout.cleans_text:
            return self._moved(encoded["ids"]), encoded["pieces"]
        pairs = split_numbers(encoded["pieces"], self._encode_number)
        return [self._id(subword) for subword, _ in pairs], [text for _, text in pairs]

    def _encode_number(self, text: str) -> list[str]:
        subwords: list[str] = self._core.encode(text, return_type=str)
        return subwords

    def _id(self, subword: str) -> int:
        index = self._core.piece_to_id(subword)
        # Unknown characters may read like a special token.
        return self._unknown_id if index < len(self._layout.first) else index + self._layout.offset

    def _moved(self, indices: Sequence[int]) -> list[int]:
        """Ids of subwords from their indices in the model."""
        offset, unknown = self._layout.offset, self._unknown_index
        return [self._unknown_id if index == unknown else index + offset for index in indices]


def _literals(tokens: Sequence[AddedToken]) -> re.Pattern[str]:
    """Finds special tokens, the longest first.

    A match starts where white space does: a search from each of many spaces would take quadratic time.
    """
    longest_first = sorted(tokens, key=lambda token: -len(token.content))
    patterns = [
        f"(?<![{WHITE}])[{WHITE}]*{re.escape(token.content)}" if token.lstrip else re.escape(token.content)
        for token in longest_first
    ]
    return re.compile(f"({'|'.join(patterns)})")


def _normalizer(model: bytes, layout: UnigramLayout) -> Callable[[str], Normalized]:
    """A layout's cleaning and a model's character map, without changes to spaces; see `AddedTokenSplitter`."""
    import sentencepiece

    spaces: dict[str, Any] = {"add_dummy_prefix": False, "escape_whitespaces": False, "remove_extra_whitespaces": False}
    core: Any = sentencepiece.SentencePieceNormalizer(model_proto=model, **spaces)

    def normalize(text: str) -> Normalized:
        source = cleaned(text, joins_spaces=False) if layout.cleans_text else unchanged(text)
        normalized, offsets = core.normalize(source.text, with_offsets=True)
        spans = list(_original(zip(offsets[:-1], offsets[1:], strict=True), source))
        return Normalized(normalized, [start for start, _ in spans], [end for _, end in spans])

    return normalize


def _original(spans: Iterator[tuple[int, int]], source: Normalized | SplitPart) -> Iterator[tuple[int, int]]:
    """Yields spans in the text that a normalized text or a part comes from."""
    starts, ends = source.starts, source.ends
    for start, end in spans:
        if start < end:
            yield starts[start], ends[end - 1]
        else:
            offset = starts[end] if end < len(starts) else ends[-1] if ends else 0
            yield offset, offset


def _spans(subwords: Sequence[str], origins: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Subword spans in the text; `origins` are character offsets for each normalized code point, and the end."""
    end = 0
    for subword in subwords:
        begin, end = end + len(subword) - len(subword.lstrip(_SPACE)), end + len(subword)
        if begin == end:
            yield origins[end], origins[end]
            continue
        after = end
        while after < len(origins) - 1 and origins[after] <= origins[end - 1]:
            after += 1
        yield origins[begin], origins[after]
