"""What a family of encoders is: how transformers stores it, and in what it departs from BERT."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pocketbert.configs import BlockKind, EncoderConfig, TokenizerKind
from pocketbert_runtime.tokenizers.layouts import XLM_R


@dataclass(frozen=True, kw_only=True)
class Family:
    """A family of encoders. Names of keys and tensors that differ from BERT's are mapped from BERT's.

    Attributes:
      model_type: value of `model_type` in config.json, and of `EncoderConfig.model_type`.
      title: name in messages and docs.
      class_prefix: first part of the names of transformers' classes, as in `architectures`.
      tensor_prefix: first part of the names of the encoder's tensors, without a dot.
      tokenizer: tokenizer of the published checkpoints. A model may have another one.
      tokenizer_layout: for unigram: its layout, a name in `pocketbert_runtime.tokenizers.layouts.LAYOUTS`.
      keys: key in config.json → type, and default in transformers' configuration class or `REQUIRED`.
      renamed: this family's key → BERT's key for the same value.
      implied: BERT's key → value, for keys that this family's configuration class lacks.
      fixed: keys that change the mathematics → the only supported value, besides those of all families.
      fixed_of_sentence_heads: the same for keys that change only heads for sentences.
      fixed_of_masked_lm: the same for keys that change only a masked-LM head.
      same_as: keys that repeat another key, besides those of all families.
      harmless: keys that change neither weights nor outputs, besides those of all families. A key here is not
        checked, even if other families fix it.
      written: further keys that transformers writes, with their values.
      names: part of BERT's tensor names → part of this family's, in the order of replacement.
      sentence_dense: BERT's name for the linear map before a sentence head's last one, on an encoder without a pooler.
      sentence_output: end of the name of a sentence head's last map; empty for none.
      pooler_in_head: whether transformers' sentence head owns the pooler's linear map.
      head_activation: activation between a sentence head's two linear maps on an encoder without a pooler.
      head_drops_inputs: whether such a head has dropout before the first map, too.
      tokens_drop_states: whether a head for tokens has the hidden states' dropout, whatever `classifier_dropout` says.
      pooling_key: key for what a sentence head reads, `cls` for the first token or `mean`; empty for the first token.
      has_prediction_layers: whether each head begins with a linear map without bias, gelu and a norm (ModernBERT).
      has_next_sentence: whether the family is pretrained with next sentences.
      unread_heads: end of a class in transformers → first part of the names of its head's tensors, which no task here
        has. They are left out.
      unread_tensors: first parts of further tensor names in published checkpoints that no class in transformers reads.
      masked_lm_activation: the only `hidden_act` that suits a masked-LM head; empty for any.
      positions_follow_padding: whether positions count from `pad_token_id` + 1.
      head_width_key: BERT's key for the width of all attention heads together.
      block: kind of block; see `EncoderConfig.block`.
      sentence_config: name of the Transformer module's file in sentence-transformers 0.2, unless it is BERT's.
      relation_layer: MiniLMv2's teacher layer for teachers with 24 layers, counted from 1 (section 3.2); None for the
        last one.
      relation_steps: MiniLMv2's training steps on plain text (section 4.1).
      relation_beta_2: MiniLMv2's β₂ for students with 12 layers of width 768 (section 4.1).
    """

    model_type: str
    title: str
    class_prefix: str
    tensor_prefix: str
    tokenizer: TokenizerKind
    keys: Mapping[str, tuple[type, object]]
    sentence_dense: str
    tokenizer_layout: str = XLM_R
    renamed: Mapping[str, str] = field(default_factory=dict)
    implied: Mapping[str, object] = field(default_factory=dict)
    fixed: Mapping[str, object] = field(default_factory=dict)
    fixed_of_sentence_heads: Mapping[str, object] = field(default_factory=dict)
    fixed_of_masked_lm: Mapping[str, object] = field(default_factory=dict)
    same_as: Mapping[str, str] = field(default_factory=dict)
    harmless: Collection[str] = ()
    written: Mapping[str, object] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    sentence_output: str = ""
    pooler_in_head: bool = False
    head_activation: Literal["tanh", "relu", "gelu"] = "tanh"
    head_drops_inputs: bool = True
    tokens_drop_states: bool = False
    pooling_key: str = ""
    has_prediction_layers: bool = False
    has_next_sentence: bool = True
    unread_heads: Mapping[str, str] = field(default_factory=dict)
    unread_tensors: tuple[str, ...] = ()
    masked_lm_activation: str = ""
    positions_follow_padding: bool = False
    head_width_key: str = "hidden_size"
    block: BlockKind = "plain"
    sentence_config: str = ""
    relation_layer: int | None = None
    relation_steps: int = 400_000
    relation_beta_2: float = 0.999

    def tensor_name(self, bert_name: str) -> str:
        """Returns this family's name for a tensor of BERT's classes, such as `bert.pooler.dense.weight`."""
        name = re.sub(r"^bert\.", f"{self.tensor_prefix}.", bert_name)
        for part, replacement in self.names.items():
            name = name.replace(part, replacement)
        return name

    @property
    def word_table(self) -> str:
        """Name of the word embedding table's tensor."""
        return self.tensor_name("bert.embeddings.word_embeddings.weight")

    def prefixed(self, name: str) -> str:
        """Returns the name of a tensor from an encoder that was saved without its prefix; heads keep their names."""
        stored = ("embeddings", "embeddings.embedding_transformation", "encoder.layer", "pooler")
        parts = (self.tensor_name(f"bert.{part}.").split(".")[1] for part in stored)
        return f"{self.tensor_prefix}.{name}" if name.split(".")[0] in parts else name

    def layer_of(self, name: str) -> str:
        """Returns the number of a tensor's layer, counted from 0; empty for a tensor outside the layers."""
        layers = self.tensor_name("bert.encoder.layer.").split(".")[-2]
        match = re.search(rf"\.{re.escape(layers)}\.(\d+)\.", name)
        return match[1] if match else ""

    def key(self, bert_key: str) -> str:
        """Returns this family's key for a key of BERT's."""
        return next((key for key, same in self.renamed.items() if same == bert_key), bert_key)

    def bert_values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns values from config.json under BERT's keys."""
        return {self.renamed.get(key, key): value for key, value in values.items()} | dict(self.implied)

    def problems(self, values: Mapping[str, Any]) -> list[str]:
        """Lists problems with values, under BERT's keys, that the rules for all families do not cover."""
        return []

    def encoder_fields(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the fields of `EncoderConfig` in which this family departs from BERT, from valid values."""
        return {}

    def config_values(self, config: EncoderConfig, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns config.json's content for an encoder from values under BERT's keys."""
        return {self.key(key): value for key, value in values.items() if key not in self.implied} | dict(self.written)
