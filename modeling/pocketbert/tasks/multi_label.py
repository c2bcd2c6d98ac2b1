"""Multi-label classification: any number of labels for a text or a pair of texts, each with its own probability."""

from __future__ import annotations

from pocketbert._keras import tf_keras
from pocketbert.tasks.classification import ClassificationHead


class MultiLabelHead(ClassificationHead):
    """The classification head with a sigmoid for each label, as transformers' `multi_label_classification`."""

    def losses_by_output(self) -> dict[str, tf_keras.losses.Loss]:
        """Binary cross-entropy against 0 and 1 [B, labels], in nats: the mean over labels and examples."""
        return {"logits": tf_keras.losses.BinaryCrossentropy(from_logits=True)}
