"""A unigram language model over subwords, the kind of tokenizer in XLM-R."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pocketbert_runtime.tokenizers.kinds.rules import TokenizerRules
from pocketbert_runtime.tokenizers.special_tokens import ROBERTA_SPECIAL_NAMES, ROBERTA_SPECIAL_TOKENS

if TYPE_CHECKING:
    from pocketbert_runtime.tokenizers.base import TextTokenizer
    from pocketbert_runtime.tokenizers.vocabulary import Vocabulary


class UnigramRules(TokenizerRules):
    """The most probable subwords by sentencepiece, after its model's normalizer."""

    def tokens(self, vocabulary: Vocabulary) -> Sequence[str]:
        from pocketbert_runtime.tokenizers.sentencepiece_model import fairseq_tokens, read_model

        return fairseq_tokens(read_model(vocabulary.path, vocabulary.held_content(vocabulary.path)))

    def segmentation(self, vocabulary: Vocabulary) -> str:
        from pocketbert_runtime.tokenizers.sentencepiece_model import fairseq_scores, read_model

        model = read_model(vocabulary.path, vocabulary.held_content(vocabulary.path))
        return repr((fairseq_scores(model), model.normalizer_spec.precompiled_charsmap))

    def open(self, vocabulary: Vocabulary) -> TextTokenizer:
        from pocketbert_runtime.tokenizers.unigram import Unigram

        return Unigram(vocabulary)


RULES = UnigramRules(
    files=("sentencepiece.bpe.model",),
    special_tokens=ROBERTA_SPECIAL_TOKENS,
    special_names=ROBERTA_SPECIAL_NAMES,
    json_type="Unigram",
    classes=("XLMRoberta",),
    # Metaspace's own option decides; transformers 5 writes this one in every directory.
    # transformers 5 counts `unk_id` in the sentencepiece model.
    config_keys={
        "add_prefix_space": (False, True),
        "keep_accents": (True,),
        "sp_model_kwargs": ({},),
        "unk_id": (0, 3),
    },
    joins_spaces=True,
)
