"""XLM-R's tokenizer: a unigram language model over subwords by the library `sentencepiece`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pocketbert.errors import UserError
from pocketbert.tokenizers.base import SpecialTokensInText
from pocketbert.tokenizers.files import Vocabulary
from pocketbert.tokenizers.python_tokenizer import PythonTokenizer, Tokens
from pocketbert.tokenizers.sentencepiece_model import FAIRSEQ_OFFSET, fairseq_tokens, read_model
from pocketbert.tokenizers.special_tokens import ROBERTA_SPECIAL_TOKENS, UNK

_SPACE = "\u2581"
_LITERALS = re.compile(f"({'|'.join(map(re.escape, ROBERTA_SPECIAL_TOKENS))})")


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
        transformers by default, where the texts between are tokenized separately; "text" for ordinary characters, as
        with transformers' `split_special_tokens=True`. Use "text" for untrusted text.

    Attributes:
      vocabulary: the file.
      vocab_size: number of tokens.
      pad_token_id, unk_token_id, cls_token_id, sep_token_id, mask_token_id: ids of the special tokens.

    Raises:
      UserError: the file is damaged or of another family, or an option is invalid.
    """

    def __init__(
        self, model_path: str | os.PathLike[str], special_tokens_in_text: SpecialTokensInText = "token"
    ) -> None:
        import sentencepiece

        model = read_model(model_path)
        tokens = fairseq_tokens(model)
        ids = {token: tokens.index(token) for token in ROBERTA_SPECIAL_TOKENS}
        super().__init__("unigram_tokenizer", special_tokens_in_text, ids, len(tokens))
        self.vocabulary = Vocabulary(path=Path(model_path), kind="unigram")
        core = sentencepiece.SentencePieceProcessor()
        try:
            core.LoadFromSerializedProto(Path(model_path).read_bytes())
        except RuntimeError as error:
            raise UserError(
                f"{model_path}: sentencepiece must be able to load a model; received: {' '.join(str(error).split())}; "
                "copy the file again"
            ) from error
        self._special_ids = ids
        self._core = core

    def _ids_of(self, texts: list[str]) -> Iterable[Sequence[int]]:
        parts = [self._split(text) for text in texts]
        encoded = iter(self._core.encode([part for row in parts for part in row[::2]], return_type=int))
        for row in parts:
            ids: list[int] = []
            for position, part in enumerate(row):
                ids += [self._special_ids[part]] if position % 2 else self._fairseq_ids(next(encoded))
            yield ids

    def _tokens_of(self, texts: list[str]) -> Iterable[Tokens]:
        parts = [self._split(text) for text in texts]
        plain = [part for row in parts for part in row[::2]]
        encoded = iter(self._core.encode(plain, return_type="offset_mapping"))
        origins = iter(self._core.normalize(plain, with_offsets=True))
        for row in parts:
            tokens = Tokens([], [], [])
            begin = 0
            for position, part in enumerate(row):
                if position % 2:
                    found = Tokens([self._special_ids[part]], [0], [len(part)])
                else:
                    pieces = next(encoded)
                    spans = list(_spans(pieces["pieces"], next(origins)[1]))
                    found = Tokens(
                        self._fairseq_ids(pieces["ids"]), [each[0] for each in spans], [each[1] for each in spans]
                    )
                tokens = Tokens(
                    [*tokens.ids, *found.ids],
                    [*tokens.starts, *(begin + each for each in found.starts)],
                    [*tokens.ends, *(begin + each for each in found.ends)],
                )
                begin += len(part)
            yield tokens

    def _split(self, text: str) -> list[str]:
        """Splits a text at literal special tokens, which have odd positions in the result."""
        return _LITERALS.split(text) if self.special_tokens_in_text == "token" else [text]

    def _fairseq_ids(self, ids: Sequence[int]) -> list[int]:
        unknown = self._special_ids[UNK]
        return [each + FAIRSEQ_OFFSET if each else unknown for each in ids]


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
