"""Layouts for unigram: which ids a family gives to a sentencepiece model's subwords, and which of them are special.

The ids are those of transformers' slow classes: `XLMRobertaTokenizer`, `CamembertTokenizer`, `AlbertTokenizer` and
`DebertaV2Tokenizer`. For a new layout, add a row to `LAYOUTS`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pocketbert_runtime.tokenizers.special_tokens import BOS, EOS, MASK, PAD, ROBERTA_SPECIAL_NAMES, UNK

if TYPE_CHECKING:
    from pocketbert_runtime.tokenizers.framing import Frame

XLM_R, CAMEMBERT, ALBERT, DEBERTA = "xlm_r", "camembert", "albert", "deberta"
# Types of subwords in sentencepiece. Texts contain normal and user-defined ones.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4

_PIPELINE: dict[str, tuple[object, ...]] = {"add_prefix_space": (False, True), "sp_model_kwargs": ({},)}


@dataclass(frozen=True, kw_only=True)
class UnigramLayout:
    """A layout.

    Attributes:
      name: its name in `LAYOUTS`, bundles and records.
      title: the family, for messages.
      file: the model's name in a model directory, as in transformers.
      classes: transformers' classes, without "Tokenizer" and "Fast".
      first: the model's first subwords with their types. Each other one is normal, or user-defined if
        `has_user_defined`.
      before: tokens with the first ids.
      replaced: number of first subwords without an id of their own; the ids of the others follow `before`.
      after: tokens with the last ids.
      special_names: transformers' name, such as `sep_token` → special token.
      unused: further special tokens.
      has_user_defined: whether user-defined subwords may follow the first ones.
      mask_takes_space: whether the mask token includes the space before it.
      cleans_text: whether texts are cleaned first, and numbers with a comma split again; see `albert_text`.
      separators: number of tokens between two texts.
      second_segment: segment of the second text.
      config_keys: keys in tokenizer_config.json → supported values, besides those of all kinds.
    """

    name: str
    title: str
    file: str
    classes: tuple[str, ...]
    first: tuple[tuple[str, int], ...]
    before: tuple[str, ...] = ()
    replaced: int = 0
    after: tuple[str, ...] = ()
    special_names: Mapping[str, str]
    unused: tuple[str, ...] = ()
    has_user_defined: bool = False
    mask_takes_space: bool = True
    cleans_text: bool = False
    separators: int = 1
    second_segment: int = 1
    config_keys: Mapping[str, tuple[object, ...]] = field(default_factory=dict)

    @property
    def offset(self) -> int:
        """A token's id, minus its index in the model."""
        return len(self.before) - self.replaced

    @property
    def unknown(self) -> str:
        """The token for unknown characters."""
        return self.special_names["unk_token"]

    @functools.cached_property
    def leading(self) -> tuple[str, ...]:
        """All tokens before the first normal or user-defined subword, by id."""
        return (*self.before, *(text for text, _ in self.first[self.replaced :]))

    @functools.cached_property
    def special_tokens(self) -> tuple[str, ...]:
        """All special tokens by id; transformers finds them in texts."""
        special = {*self.special_names.values(), *self.unused}
        return tuple(token for token in (*self.leading, *self.after) if token in special)

    def frame(self, ids: Mapping[str, int]) -> Frame:
        """Returns the special tokens around texts, from token ids."""
        # With NumPy, which the options of commands do without.
        from pocketbert_runtime.tokenizers.framing import Frame

        first, last, pad = (ids[self.special_names[name]] for name in ("cls_token", "sep_token", "pad_token"))
        return Frame(first=first, last=last, pad=pad, separators=self.separators, second_segment=self.second_segment)


def _bert_names(pad: str, unknown: str) -> dict[str, str]:
    """Special tokens in BERT's words, with names for the ends as in transformers' classes."""
    cls, sep = "[CLS]", "[SEP]"
    return {
        "bos_token": cls,
        "cls_token": cls,
        "eos_token": sep,
        "sep_token": sep,
        "pad_token": pad,
        "unk_token": unknown,
        "mask_token": "[MASK]",
    }


_FAIRSEQ_FIRST = ((UNK, UNKNOWN), (BOS, CONTROL), (EOS, CONTROL))
_ROWS = (
    # XLM-R (Conneau et al. 2020): fairseq's ids.
    UnigramLayout(
        name=XLM_R,
        title="XLM-R",
        file="sentencepiece.bpe.model",
        classes=("XLMRoberta",),
        first=_FAIRSEQ_FIRST,
        before=(BOS, PAD, EOS, UNK),
        replaced=3,
        after=(MASK,),
        special_names=ROBERTA_SPECIAL_NAMES,
        separators=2,
        second_segment=0,
        # Metaspace's own option decides on spaces; transformers 5 writes `add_prefix_space` in every directory, and
        # counts `unk_id` in the sentencepiece model.
        config_keys={**_PIPELINE, "keep_accents": (True,), "unk_id": (0, 3)},
    ),
    # CamemBERT (Martin et al. 2020): fairseq's ids in front of a dictionary that has its own special tokens.
    UnigramLayout(
        name=CAMEMBERT,
        title="CamemBERT",
        file="sentencepiece.bpe.model",
        classes=("Camembert",),
        first=_FAIRSEQ_FIRST,
        before=(f"{BOS}NOTUSED", PAD, f"{EOS}NOTUSED", UNK, f"{UNK}NOTUSED"),
        replaced=1,
        after=(MASK,),
        special_names=ROBERTA_SPECIAL_NAMES,
        unused=(f"{BOS}NOTUSED", f"{EOS}NOTUSED", f"{UNK}NOTUSED"),
        separators=2,
        second_segment=0,
        config_keys={**_PIPELINE, "unk_id": (0, 3)},
    ),
    # ALBERT (Lan et al. 2020), English: the model's ids.
    UnigramLayout(
        name=ALBERT,
        title="ALBERT",
        file="spiece.model",
        classes=("Albert",),
        first=(("<pad>", CONTROL), ("<unk>", UNKNOWN), ("[CLS]", CONTROL), ("[SEP]", CONTROL), ("[MASK]", CONTROL)),
        special_names=_bert_names("<pad>", "<unk>"),
        has_user_defined=True,
        cleans_text=True,
        config_keys={
            **_PIPELINE,
            "do_lower_case": (True,),
            "keep_accents": (False,),
            "remove_space": (True,),
            "unk_id": (1,),
        },
    ),
    # DeBERTa-v3 (He et al. 2021): the model's ids, and a mask token behind them.
    UnigramLayout(
        name=DEBERTA,
        title="DeBERTa-v3",
        file="spm.model",
        classes=("DebertaV2",),
        first=(("[PAD]", CONTROL), ("[CLS]", CONTROL), ("[SEP]", CONTROL), ("[UNK]", UNKNOWN)),
        after=("[MASK]",),
        special_names=_bert_names("[PAD]", "[UNK]"),
        has_user_defined=True,
        mask_takes_space=False,
        config_keys={
            **_PIPELINE,
            "do_lower_case": (False,),
            "split_by_punct": (False,),
            "vocab_type": ("spm",),
            "unk_id": (3,),
        },
    ),
)
LAYOUTS: dict[str, UnigramLayout] = {layout.name: layout for layout in _ROWS}
