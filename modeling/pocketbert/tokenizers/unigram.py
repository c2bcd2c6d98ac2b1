"""Unigram tokenizers: a language model over subwords, for texts in tensors."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from pathlib import Path

from pocketbert.tokenizers.python_tokenizer import PythonTokenizer
from pocketbert_runtime.tokenizers.added_tokens import AddedToken
from pocketbert_runtime.tokenizers.base import SpecialTokensInText
from pocketbert_runtime.tokenizers.layouts import LAYOUTS, XLM_R
from pocketbert_runtime.tokenizers.sentencepiece_model import read_model
from pocketbert_runtime.tokenizers.truncation import HEAD
from pocketbert_runtime.tokenizers.unigram import Unigram
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary


class UnigramTokenizer(PythonTokenizer):
    """Unigram tokenizer with the results of `sentencepiece` and of transformers' slow classes.

    Source: sentencepiece (Kudo 2018, https://arxiv.org/abs/1804.10959), with the model's normalizer. The ids and inputs
    depend on the layout:

    - `xlm_r`, as `XLMRobertaTokenizer`: fairseq's ids, with `<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3, then the subwords
      from sentencepiece's id 3 on, moved by one, and `<mask>` last. Inputs are `<s> text </s>` or `<s> text </s></s>
      pair </s>`; all segments are 0.
    - `camembert`, as `CamembertTokenizer`: the same inputs; `<pad>` 1, `<unk>` 3, then the subwords from
      sentencepiece's id 1 on, moved by four (`<s>` 5, `</s>` 6), and `<mask>` last.
    - `albert`, as `AlbertTokenizer`: sentencepiece's ids. Inputs are `[CLS] text [SEP]` or `[CLS] text [SEP] pair
      [SEP]`, with segments 0 and 1. Texts lose accents and capitals; see `pocketbert_runtime.tokenizers.albert_text`.
    - `deberta`, as `DebertaV2Tokenizer`: the same inputs; sentencepiece's ids, and `[MASK]` behind them.

    Departure from transformers' fast classes: their normalizer drops combining marks in decomposed (NFD) text;
    sentencepiece composes them. Any text is valid. It runs eagerly, in `tf.function` and in `tf.data`, but not in a
    SavedModel. Invalid UTF-8 bytes and lone surrogates are U+FFFD, one code point each; XLM-R's normalizer makes them
    spaces.

    Spans exclude white space: a subword spans its original characters, without its leading `▁`. If one character
    becomes several (`½` becomes `1⁄2`), each subword in it spans the whole character. Characters dropped by the
    normalizer belong to the character before them. A subword with `▁` only has an empty span, where the following
    character begins.

    Args:
      model_path: a sentencepiece.bpe.model, spiece.model or spm.model.
      special_tokens_in_text: meaning of a literal `</s>` or similar in a text: "token" for the special token, as in
        transformers by default, where the texts between are tokenized separately and the mask token also takes the
        white space before it, except DeBERTa-v3's; "text" for ordinary characters, as with transformers'
        `split_special_tokens=True`. Use "text" for untrusted text.
      layout: the family's ids and special tokens.
      added_tokens: tokens to find before the split; with the flag `normalized`, in sentencepiece's normalized text.
      keeps_space: whether a space before an added token with the flag `normalized` is the token `▁`, as in
        transformers' tokenizers that split at white space by Metaspace only.
      truncation: "head", "tail", "head-tail:N" or "only-second"; see `pocketbert_runtime.tokenizers.truncation`.
    Attributes:
      vocabulary: the file.
      vocab_size: number of tokens.
      pad_token_id, unk_token_id, cls_token_id, sep_token_id, mask_token_id: the special tokens' ids.
    Raises:
      UserError: the file is damaged or of another family, or an option is invalid.
    """

    def __init__(
        self,
        model_path: str | os.PathLike[str],
        special_tokens_in_text: SpecialTokensInText = "token",
        *,
        layout: str = XLM_R,
        added_tokens: Sequence[AddedToken] = (),
        keeps_space: bool = False,
        truncation: str = HEAD,
    ) -> None:
        vocabulary = Vocabulary(
            path=Path(model_path),
            kind="unigram",
            layout=layout,
            added=tuple(added_tokens),
            keeps_space=keeps_space,
            truncation=truncation,
        )
        super().__init__("unigram_tokenizer", Unigram(vocabulary, special_tokens_in_text), special_tokens_in_text)


def open_vocabulary(vocabulary: Vocabulary, special_tokens_in_text: SpecialTokensInText) -> UnigramTokenizer:
    """Makes a vocabulary's tokenizer; raises `UserError` if the file is invalid."""
    return UnigramTokenizer(
        vocabulary.path,
        special_tokens_in_text,
        layout=vocabulary.layout,
        added_tokens=vocabulary.added,
        keeps_space=vocabulary.keeps_space,
        truncation=vocabulary.truncation,
    )


def write_kept(vocabulary: Vocabulary, kept_ids: Sequence[int], paths: Sequence[Path]) -> None:
    """Writes the file with some of a vocabulary's tokens, by ascending id; see `trimming.write_trimmed`."""
    layout = LAYOUTS[vocabulary.layout]
    whole = read_model(vocabulary.path, layout=layout)
    # The first subwords are special tokens, some with other ids.
    indices = {*range(len(layout.first)), *(position - layout.offset for position in kept_ids)}
    subwords = [copy.deepcopy(subword) for index, subword in enumerate(whole.subwords) if index in indices]
    del whole.subwords[:]
    whole.subwords.extend(subwords)
    whole.trainer_spec.vocab_size = len(subwords)
    paths[0].write_bytes(whole.SerializeToString(deterministic=True))
