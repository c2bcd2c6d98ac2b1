"""WordPiece, BERT's kind of tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pocketbert_runtime.tokenizers.kinds.rules import TokenizerRules
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import (
    CLS,
    MASK,
    PAD,
    SEP,
    SPECIAL_TOKENS,
    UNK,
    read_vocabulary,
)

if TYPE_CHECKING:
    from pocketbert_runtime.tokenizers.base import TextTokenizer
    from pocketbert_runtime.tokenizers.vocabulary import Vocabulary


class WordPieceRules(TokenizerRules):
    """The longest token at each position of a word; a text is normalized by BERT's rules."""

    def tokens(self, vocabulary: Vocabulary) -> Sequence[str]:
        return read_vocabulary(vocabulary.path, vocabulary.held_content(vocabulary.path))

    def segmentation(self, vocabulary: Vocabulary) -> str:
        return ""

    def open(self, vocabulary: Vocabulary) -> TextTokenizer:
        from pocketbert_runtime.tokenizers.added_wordpiece import AddedWordPiece
        from pocketbert_runtime.tokenizers.wordpiece import WordPiece

        return AddedWordPiece(vocabulary) if vocabulary.added else WordPiece(vocabulary)


RULES = WordPieceRules(
    files=("vocab.txt",),
    special_tokens=SPECIAL_TOKENS,
    special_names={"unk_token": UNK, "sep_token": SEP, "pad_token": PAD, "cls_token": CLS, "mask_token": MASK},
    json_type="WordPiece",
    classes=("Bert", "ConvBert", "DistilBert", "Electra", "MobileBert", "SqueezeBert"),
    config_keys={
        "add_prefix_space": (False,),
        "clean_text": (True,),
        "do_basic_tokenize": (True,),
        "max_input_chars_per_word": (100,),
        "wordpieces_prefix": ("##",),
    },
    has_options=True,
    continuation="##",
    takes_space=False,
    mask_takes_space=False,
    unit="lines",
)
