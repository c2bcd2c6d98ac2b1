"""XLM-R's tokenizer: a unigram language model over subwords by the library `sentencepiece`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pocketbert.errors import raise_if_any
from pocketbert.tokenizers.added_tokens import AddedTokenSplitter, SplitPart
from pocketbert.tokenizers.base import SpecialTokensInText
from pocketbert.tokenizers.python_tokenizer import PythonTokenizer
from pocketbert_runtime.tokenizers.added_tokens import (
    AddedToken,
    added_problems,
    appended,
    default_special,
    found_in_text,
)
from pocketbert_runtime.tokenizers.base import Tokens
from pocketbert_runtime.tokenizers.sentencepiece_model import FAIRSEQ_OFFSET, fairseq_tokens, load_model, read_model
from pocketbert_runtime.tokenizers.special_tokens import MASK, ROBERTA_SPECIAL_TOKENS, UNK
from pocketbert_runtime.tokenizers.truncation import HEAD
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

_SPACE = "\u2581"
# As in `tokenizers`: Unicode's White_Space. Of the special tokens, only <mask> takes the space before it.
_WHITE = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_LITERALS = re.compile(f"((?:{'|'.join(map(re.escape, ROBERTA_SPECIAL_TOKENS[:-1]))}|[{_WHITE}]*{re.escape(MASK)}))")


class UnigramTokenizer(PythonTokenizer):
    """Unigram tokenizer with the results of `sentencepiece` and of transformers' slow `XLMRobertaTokenizer`.

    Source: XLM-R (Conneau et al. 2020) and sentencepiece (Kudo 2018, https://arxiv.org/abs/1804.10959), with the
    normalizer in the model. Ids are fairseq's: `<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3, then the subwords from
    sentencepiece's id 3 on, moved by one, and `<mask>` last. Inputs are `<s> text </s>` or
    `<s> text </s></s> pair </s>`, and all segments are 0.

    Departure from transformers' fast class: its normalizer drops combining marks in decomposed (NFD) text, which
    sentencepiece composes. Any text is valid. It runs eagerly, in `tf.function` and in `tf.data`, but not in a
    SavedModel. Invalid UTF-8 bytes and lone surrogates are U+FFFD, one code point each, which XLM-R's normalizer makes
    spaces.

    Spans exclude white space: a subword spans the characters from which its own characters come, without its leading
    `▁`. If one character becomes several (`½` becomes `1⁄2`), each subword of it spans the whole character. Characters
    that the normalizer drops belong to the character before them. A subword that is only `▁` has an empty span, at the
    beginning of the following character.

    Args:
      model_path: a sentencepiece.bpe.model.
      special_tokens_in_text: meaning of a literal `</s>` or similar in a text: "token" for the special token, as in
        transformers by default, where the texts between are tokenized separately and `<mask>` also takes the white
        space before it; "text" for ordinary characters, as with transformers' `split_special_tokens=True`. Use "text"
        for untrusted text.
      added_tokens: tokens to find in a text before it is split. Those with the flag `normalized` are found in
        sentencepiece's normalized text.
      keeps_space: whether a space before an added token with the flag `normalized` is the token `▁`, as for
        transformers' tokenizers that split at white space only with Metaspace.
      truncation: how longer texts are cut: "head", "tail", "head-tail:N" or "only-second"; see
        `pocketbert_runtime.tokenizers.truncation`.

    Attributes:
      vocabulary: the file.
      vocab_size: number of tokens.
      pad_token_id, unk_token_id, cls_token_id, sep_token_id, mask_token_id: ids of the special tokens.

    Raises:
      UserError: the file is damaged or of another family, or an option is invalid.
    """

    def __init__(
        self,
        model_path: str | os.PathLike[str],
        special_tokens_in_text: SpecialTokensInText = "token",
        *,
        added_tokens: Sequence[AddedToken] = (),
        keeps_space: bool = False,
        truncation: str = HEAD,
    ) -> None:
        core = load_model(model_path)
        model = read_model(model_path)
        tokens = fairseq_tokens(model)
        raise_if_any(added_problems(added_tokens, tokens), str(model_path))
        ids = {token: tokens.index(token) for token in ROBERTA_SPECIAL_TOKENS}
        size = len(tokens) + len(appended(added_tokens, len(tokens)))
        super().__init__("unigram_tokenizer", special_tokens_in_text, ids, size)
        self.vocabulary = Vocabulary(
            path=Path(model_path),
            kind="unigram",
            added=tuple(added_tokens),
            keeps_space=keeps_space,
            truncation=truncation,
        )
        self._special = {token: default_special("unigram", token, token_id) for token, token_id in ids.items()}
        self._core = core
        self._space_id = tokens.index(_SPACE) if _SPACE in tokens else ids[UNK]
        self._splitter: AddedTokenSplitter | None = None
        if added_tokens:
            in_text = found_in_text("unigram", ids, added_tokens)
            normalize = _normalizer(Path(model_path).read_bytes())
            self._splitter = AddedTokenSplitter(in_text, normalize, special=special_tokens_in_text == "token")

    def _ids_of(self, texts: list[str]) -> Iterable[Sequence[int]]:
        parts = [self._split(text) for text in texts]
        plain = [part.text for row in parts for part in row if part.token is None]
        encoded = iter(self._core.encode(plain, return_type=int))
        for row in parts:
            ids: list[int] = []
            for part in row:
                ids += self._fairseq_ids(next(encoded)) if part.token is None else [part.token.id]
                ids += [self._space_id] * self._is_space(part)
            yield ids

    def _tokens_of(self, texts: list[str]) -> Iterable[Tokens]:
        parts = [self._split(text) for text in texts]
        plain = [part.text for row in parts for part in row if part.token is None]
        encoded = iter(self._core.encode(plain, return_type="offset_mapping"))
        origins = iter(self._core.normalize(plain, with_offsets=True))
        for row in parts:
            ids: list[int] = []
            spans: list[tuple[int, int]] = []
            for part in row:
                if part.token is None:
                    pieces = next(encoded)
                    ids += self._fairseq_ids(pieces["ids"])
                    piece_spans = _spans(pieces["pieces"], next(origins)[1])
                    spans += [(part.origins[start], part.origins[end]) for start, end in piece_spans]
                    if self._is_space(part):
                        ids.append(self._space_id)
                        spans.append((part.origins[-1], part.origins[-1]))
                else:
                    ids.append(part.token.id)
                    spans.append((part.origins[0], part.origins[1]))
            yield Tokens(ids, [start for start, _ in spans], [end for _, end in spans])

    def _split(self, text: str) -> list[SplitPart]:
        """Splits a text at special and added tokens."""
        if self._splitter is not None:
            return self._splitter.split(text)
        parts, begin = [], 0
        # Special tokens have odd positions.
        pieces = _LITERALS.split(text) if self.special_tokens_in_text == "token" else [text]
        for position, piece in enumerate(pieces):
            end = begin + len(piece)
            if position % 2:
                token = self._special[piece[piece.index("<") :]]
                parts.append(SplitPart(token, "", (end - len(token.content), end)))
            else:
                parts.append(SplitPart(None, piece, range(begin, end + 1)))
            begin = end
        return parts

    def _is_space(self, part: SplitPart) -> bool:
        """Whether the token `▁` follows the subwords of a part."""
        return part.has_space and self.vocabulary.keeps_space

    def _fairseq_ids(self, ids: Sequence[int]) -> list[int]:
        unknown = self.unk_token_id
        return [token_id + FAIRSEQ_OFFSET if token_id else unknown for token_id in ids]


def _normalizer(model: bytes) -> Callable[[str], tuple[str, Sequence[int]]]:
    """A model's map of characters, without what it does to spaces; see `AddedTokenSplitter`."""
    import sentencepiece

    spaces: dict[str, Any] = {"add_dummy_prefix": False, "escape_whitespaces": False, "remove_extra_whitespaces": False}
    core: Any = sentencepiece.SentencePieceNormalizer(model_proto=model, **spaces)
    return lambda text: core.normalize(text, with_offsets=True)


def _spans(subwords: Sequence[str], origins: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Spans of subwords in the text.

    Args:
      subwords: the subwords of a text; together they are the normalized text.
      origins: for each code point of the normalized text, and its end: the offset of the character from which it comes.
    """
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
