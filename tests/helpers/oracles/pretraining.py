"""BERT's two pretraining losses in float64, one loop for each mean."""

from __future__ import annotations

import numpy as np

import pocketbert as pb

METRICS = ["masked_lm_loss", "masked_lm_accuracy", "next_sentence_loss", "next_sentence_accuracy"]


def log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def scores(model: pb.Model, batches: list[dict[str, np.ndarray]]) -> dict[str, float]:
    """Written from BERT's definition: masked tokens and examples of all batches count alike."""
    words, sentences = [], []
    for batch in batches:
        inputs = {name: value for name, value in batch.items() if not name.endswith("labels")}
        outputs = {name: log_softmax(value.numpy()) for name, value in model(inputs).items()}
        for row, (labels, sentence) in enumerate(
            zip(batch["masked_lm_labels"], batch["next_sentence_labels"], strict=True)
        ):
            for index, label in enumerate(labels):
                if label >= 0:
                    logs = outputs["prediction_logits"][row, index]
                    words.append((-logs[label], logs.argmax() == label))
            logs = outputs["seq_relationship_logits"][row]
            sentences.append((-logs[sentence], logs.argmax() == sentence))
    return dict(zip(METRICS, [*np.mean(words, axis=0), *np.mean(sentences, axis=0)], strict=True))
