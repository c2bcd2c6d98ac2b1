"""XLM-R (Conneau et al. 2020): RoBERTa's function and tensors, with sentencepiece's tokens in 100 languages."""

from __future__ import annotations

import dataclasses

from pocketbert.checkpoints.families import roberta

FAMILY = dataclasses.replace(
    roberta.FAMILY,
    model_type="xlm-roberta",
    title="XLM-R",
    class_prefix="XLMRoberta",
    tokenizer="unigram",
    sentence_config="sentence_xlm-roberta_config.json",
    relation_steps=1_000_000,
    relation_beta_2=0.999,
)
