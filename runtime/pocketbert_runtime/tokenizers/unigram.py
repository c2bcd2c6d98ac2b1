"""XLM-R's tokenizer: a unigram language model over subwords by the library `sentencepiece`."""

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
)
from pocketbert_runtime.tokenizers.added_tokens import default_special, found_in_text
from pocketbert_runtime.tokenizers.base import SpecialTokensInText, TextTokenizer, Tokens, without_surrogates
from pocketbert_runtime.tokenizers.framing import roberta_frame
from pocketbert_runtime.tokenizers.sentencepiece_model import FAIRSEQ_OFFSET, load_model
from pocketbert_runtime.tokenizers.special_tokens import MASK, ROBERTA_SPECIAL_TOKENS, UNK
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

_SPACE = "\u2581"
# Among special tokens, only <mask> takes the space before it. A match starts where white space does: a search from each
# of many spaces would take quadratic time.
_LITERALS = re.compile(
    f"((?:{'|'.join(map(re.escape, ROBERTA_SPECIAL_TOKENS[:-1]))}|(?<![{WHITE}])[{WHITE}]*{re.escape(MASK)}))"
)


class Unigram(TextTokenizer):
    """Unigram tokenizer with the results of `sentencepiece` and of transformers' slow `XLMRobertaTokenizer`.

    Source: XLM-R (Conneau et al. 2020) and sentencepiece (Kudo 2018, https://arxiv.org/abs/1804.10959), with the
    model's normalizer. Ids are fairseq's: `<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3, then the subwords from
    sentencepiece's id 3 on, moved by one, and `<mask>` last. Inputs are `<s> text </s>` or `<s> text </s></s> pair
    </s>`; all segments are 0.

    Departure from transformers' fast class: its normalizer drops combining marks in decomposed (NFD) text;
    sentencepiece composes them. Any text is valid. Lone surrogates are U+FFFD; XLM-R's normalizer makes them spaces.

    Spans exclude white space: a subword spans its original characters, without its leading `▁`. If one character
    becomes several (`½` becomes `1⁄2`), each subword in it spans the whole character. Characters dropped by the
    normalizer belong to the character before them. A subword with `▁` only has an empty span, where the following
    character begins.

    Args:
      vocabulary: file and options. Added tokens with the flag `normalized` are found in the normalized text.
      special_tokens_in_text: meaning of a literal `</s>` or similar in a text: "token" for the special token, as in
        transformers by default, where the texts between are tokenized separately and `<mask>` also takes the white
        space before it; "text" for ordinary characters, as with transformers' `split_special_tokens=True`.
    Raises:
      UserError: the file is damaged or of another family, or a package is not installed.
    """

    def __init__(self, vocabulary: Vocabulary, special_tokens_in_text: SpecialTokensInText = "token") -> None:
        self._core = load_model(vocabulary.path, vocabulary.held_content(vocabulary.path))
        super().__init__(vocabulary, roberta_frame)
        special = {token: self.ids[token] for token in ROBERTA_SPECIAL_TOKENS}
        self._special = {token: default_special("unigram", token, token_id) for token, token_id in special.items()}
        self._space_id = self.ids.get(_SPACE, self.ids[UNK])
        self._finds_special = special_tokens_in_text == "token"
        self._splitter: AddedTokenSplitter | None = None
        if vocabulary.added:
            in_text = found_in_text("unigram", special, vocabulary.added)
            normalize = _normalizer(vocabulary.content(vocabulary.path))
            self._splitter = AddedTokenSplitter(in_text, normalize, special=self._finds_special)

    def _ids_of(self, texts: Sequence[str]) -> list[list[int]]:
        parts = [self._split(text) for text in without_surrogates(texts)]
        plain = [part.text for row in parts for part in row if part.token is None]
        encoded = iter(self._core.encode(plain, return_type=int))
        rows = []
        for row in parts:
            ids: list[int] = []
            for part in row:
                ids += self._fairseq_ids(next(encoded)) if part.token is None else [part.token.id]
                ids += [self._space_id] * self._is_space(part)
            rows.append(ids)
        return rows

    def _tokens_of(self, texts: Sequence[str]) -> list[Tokens]:
        parts = [self._split(text) for text in without_surrogates(texts)]
        plain = [part.text for row in parts for part in row if part.token is None]
        encoded = iter(self._core.encode(plain, return_type="offset_mapping"))
        origins = iter(self._core.normalize(plain, with_offsets=True))
        rows = []
        for row in parts:
            ids: list[int] = []
            spans: list[tuple[int, int]] = []
            for part in row:
                if part.token is None:
                    pieces = next(encoded)
                    ids += self._fairseq_ids(pieces["ids"])
                    piece_spans = _spans(pieces["pieces"], next(origins)[1])
                    offsets = [*part.starts, part.ends[-1]] if part.text else [0]
                    spans += [(offsets[start], offsets[end]) for start, end in piece_spans]
                    if self._is_space(part):
                        ids.append(self._space_id)
                        spans.append((offsets[-1], offsets[-1]))
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
        pieces = _LITERALS.split(text) if self._finds_special else [text]
        for position, piece in enumerate(pieces):
            end = begin + len(piece)
            if position % 2:
                token = self._special[piece[piece.index("<") :]]
                parts.append(SplitPart(token, piece, range(begin, end), range(begin + 1, end + 1)))
            else:
                parts.append(SplitPart(None, piece, range(begin, end), range(begin + 1, end + 1)))
            begin = end
        return parts

    def _is_space(self, part: SplitPart) -> bool:
        """Whether the token `▁` follows a part's subwords."""
        return part.has_space and self.vocabulary.keeps_space

    def _fairseq_ids(self, ids: Sequence[int]) -> list[int]:
        unknown = self.ids[UNK]
        return [token_id + FAIRSEQ_OFFSET if token_id else unknown for token_id in ids]


def _normalizer(model: bytes) -> Callable[[str], Normalized]:
    """A model's character map, without its changes to spaces; see `AddedTokenSplitter`."""
    import sentencepiece

    spaces: dict[str, Any] = {"add_dummy_prefix": False, "escape_whitespaces": False, "remove_extra_whitespaces": False}
    core: Any = sentencepiece.SentencePieceNormalizer(model_proto=model, **spaces)

    def normalize(text: str) -> Normalized:
        normalized, offsets = core.normalize(text, with_offsets=True)
        return Normalized(normalized, offsets[:-1], offsets[1:])

    return normalize


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
