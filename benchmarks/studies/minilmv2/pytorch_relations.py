"""A step with MiniLMv2's relation loss in PyTorch, eagerly, as a baseline: transformers' `BertModel` twice.

Arguments: `TEACHER STUDENT TEACHER_LAYER RELATION_HEADS BATCH LENGTH THREADS`; the first two are presets. A step is the
teacher's forward pass and the student's forward and backward pass, without an update; the batch is already in memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from studies.against_transformers.pytorch_process import bert_config, serve

_VECTORS = ("query", "key", "value")


def _step(
    teacher_name: str, student_name: str, layer: int, heads: int, batch_size: int, length: int, threads: int
) -> Callable[[], float]:
    import torch
    from transformers import BertModel

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    teacher = BertModel(bert_config(teacher_name), add_pooling_layer=False).eval()
    student = BertModel(bert_config(student_name), add_pooling_layer=False).train()
    # Nobody reads what is above the layer.
    teacher.encoder.layer = teacher.encoder.layer[:layer]
    targets, learned = _vectors(teacher), _vectors(student)
    ids = torch.randint(1000, 30_000, (batch_size, length))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def log_relation(vectors: torch.Tensor) -> torch.Tensor:
        split = vectors.unflatten(-1, (heads, -1)).transpose(1, 2)
        return torch.log_softmax(split @ split.transpose(-1, -2) / split.shape[-1] ** 0.5, -1)

    def take() -> float:
        student.zero_grad()
        with torch.no_grad():
            teacher(**inputs)
            relations = [log_relation(targets[name]) for name in _VECTORS]
        student(**inputs)
        loss = torch.zeros([])
        for name, target in zip(_VECTORS, relations, strict=True):
            divergence = torch.nn.functional.kl_div(
                log_relation(learned[name]), target, reduction="sum", log_target=True
            )
            loss = loss + divergence / (batch_size * heads * length)
        loss.backward()
        return float(loss.detach())

    return take


def _vectors(model: Any) -> dict[str, Any]:
    """Queries, keys and values of the last layer in the last forward pass."""
    caught: dict[str, Any] = {}

    def catch(name: str) -> Callable[[Any, Any, Any], None]:
        return lambda module, inputs, output: caught.update({name: output})

    attention = model.encoder.layer[-1].attention.self
    for name in _VECTORS:
        getattr(attention, name).register_forward_hook(catch(name))
    return caught


if __name__ == "__main__":
    serve(_step(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])))
