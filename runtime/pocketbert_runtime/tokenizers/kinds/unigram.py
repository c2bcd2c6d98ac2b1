"""A unigram language model over subwords, the kind of tokenizer in XLM-R, CamemBERT, English ALBERT and DeBERTa-v3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pocketbert_runtime.tokenizers.kinds.rules import TokenizerRules
from pocketbert_runtime.tokenizers.layouts import LAYOUTS, XLM_R, UnigramLayout

if TYPE_CHECKING:
    from pocketbert_runtime.tokenizers.base import TextTokenizer
    from pocketbert_runtime.tokenizers.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class UnigramRules(TokenizerRules):
    """The most probable subwords by sentencepiece, after its model's normalizer.

    Attributes:
      layout: ids and special tokens.
    """

    layout: UnigramLayout

    def tokens(self, vocabulary: Vocabulary) -> Sequence[str]:
        from pocketbert_runtime.tokenizers.sentencepiece_model import layout_tokens, read_model

        model = read_model(vocabulary.path, vocabulary.held_content(vocabulary.path), self.layout)
        return layout_tokens(model, self.layout)

    def segmentation(self, vocabulary: Vocabulary) -> str:
        from pocketbert_runtime.tokenizers.sentencepiece_model import read_model, scored_subwords, user_defined

        model = read_model(vocabulary.path, vocabulary.held_content(vocabulary.path), self.layout)
        rules = repr((scored_subwords(model, self.layout), model.normalizer_spec.precompiled_charsmap))
        # Digests from before layouts stay valid.
        return rules if self.layout.name == XLM_R else f"{self.layout.name} {rules} {user_defined(model)!r}"

    def unseen(self, vocabulary: Vocabulary) -> Sequence[str]:
        from pocketbert_runtime.tokenizers.albert_text import is_split_again

        if not self.layout.cleans_text:
            return ()
        return [token for token in vocabulary.base_tokens() if is_split_again(token)]

    def open(self, vocabulary: Vocabulary) -> TextTokenizer:
        from pocketbert_runtime.tokenizers.unigram import Unigram

        return Unigram(vocabulary)


LAYOUT_RULES = {
    name: UnigramRules(
        layout=layout,
        files=(layout.file,),
        special_tokens=layout.special_tokens,
        special_names=layout.special_names,
        json_type="Unigram",
        classes=layout.classes,
        config_keys=layout.config_keys,
        mask_takes_space=layout.mask_takes_space,
        joins_spaces=True,
    )
    for name, layout in LAYOUTS.items()
}
RULES = LAYOUT_RULES[XLM_R]
