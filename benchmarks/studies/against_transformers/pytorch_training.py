"""A training step of transformers' BERT classifier in PyTorch, as a baseline.

Arguments: `PRESET MODE BATCH LENGTH LABELS THREADS`; for the mode see `pytorch_process.MODES`. Plain Adam, no decay, no
clipping; the batch is already in memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from studies.against_transformers.pytorch_process import bert_config, prepared, serve


def _step(name: str, mode: str, batch_size: int, length: int, labels: int, threads: int) -> Callable[[], float]:
    import torch
    from transformers import BertForSequenceClassification

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = BertForSequenceClassification(bert_config(name, num_labels=labels)).train()
    forward, precision = prepared(model, mode)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-5)
    ids = torch.randint(1000, 30_000, (batch_size, length))
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "labels": torch.randint(0, labels, (batch_size,)),
    }

    def take() -> float:
        optimizer.zero_grad()
        with precision:
            loss = forward(**inputs).loss
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return take


if __name__ == "__main__":
    serve(_step(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])))
