"""CamemBERT (Martin et al. 2020): RoBERTa's function and tensors, with sentencepiece's tokens in French."""

from __future__ import annotations

import dataclasses

from pocketbert.checkpoints.families import roberta
from pocketbert_runtime.tokenizers.layouts import CAMEMBERT

FAMILY = dataclasses.replace(
    roberta.FAMILY,
    model_type="camembert",
    title="CamemBERT",
    class_prefix="Camembert",
    tokenizer="unigram",
    tokenizer_layout=CAMEMBERT,
    sentence_config="sentence_camembert_config.json",
)
