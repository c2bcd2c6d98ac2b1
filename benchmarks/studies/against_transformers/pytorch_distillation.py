"""TinyBERT's intermediate stage in PyTorch as a baseline: transformers' `BertModel` as teacher and student.

Arguments: `TEACHER STUDENT MODE BATCH LENGTH THREADS`; the first two are presets; for the mode see
`pytorch_process.MODES`. The batch is already in memory.
`BertModel`'s fused attention does not return its logits, so those of the mapped layers are computed again from queries
and keys, one matrix product per layer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from pocketbert.presets import preset
from studies.against_transformers.pytorch_process import bert_config, prepared, serve


def _step(
    teacher_name: str, student_name: str, mode: str, batch_size: int, length: int, threads: int
) -> Callable[[], float]:
    import torch
    from transformers import BertModel

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    teacher_config, student_config = preset(teacher_name).config, preset(student_name).config
    teacher = BertModel(bert_config(teacher_name), add_pooling_layer=False).eval()
    student = BertModel(bert_config(student_name), add_pooling_layer=False).train()
    projections = torch.nn.ModuleDict(
        {
            name: torch.nn.Linear(student_config.hidden_size, teacher_config.hidden_size)
            for name in ("embedding", "hidden")
        }
    )
    weights = [*student.parameters(), *projections.parameters()]
    optimizer = torch.optim.AdamW(weights, lr=5e-5, weight_decay=0.01)
    every = teacher_config.num_layers // student_config.num_layers
    mapped = range(1, student_config.num_layers + 1)
    teacher_attention = _attention_logits(teacher, [every * layer for layer in mapped])
    student_attention = _attention_logits(student, mapped)
    # After the hooks, which are compiled with the networks.
    run_teacher, precision = prepared(teacher, mode)
    run_student, _ = prepared(student, mode)
    ids = torch.randint(1000, 30_000, (batch_size, length))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    distance = torch.nn.functional.mse_loss

    def take() -> float:
        optimizer.zero_grad()
        with precision:
            with torch.no_grad():
                target = run_teacher(**inputs, output_hidden_states=True).hidden_states
                attention = teacher_attention()
            learned = run_student(**inputs, output_hidden_states=True).hidden_states
            loss = distance(projections["embedding"](learned[0]), target[0])
            for layer in mapped:
                loss = loss + distance(projections["hidden"](learned[layer]), target[every * layer])
            for ours, theirs in zip(student_attention(), attention, strict=True):
                loss = loss + distance(ours, theirs)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        return float(loss.detach())

    return take


def _attention_logits(model: Any, layers: Iterable[int]) -> Callable[[], list[Any]]:
    """Scaled dot products of some layers, counted from 1, in the last forward pass."""
    chosen = list(layers)
    heads = model.config.num_attention_heads
    caught: dict[tuple[int, str], Any] = {}

    def catch(layer: int, name: str) -> Callable[[Any, Any, Any], None]:
        return lambda module, inputs, output: caught.update({(layer, name): output})

    for layer in chosen:
        attention = model.encoder.layer[layer - 1].attention.self
        attention.query.register_forward_hook(catch(layer, "query"))
        attention.key.register_forward_hook(catch(layer, "key"))

    def logits() -> list[Any]:
        logits = []
        for layer in chosen:
            query, key = (caught[layer, name].unflatten(-1, (heads, -1)).transpose(1, 2) for name in ("query", "key"))
            logits.append(query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5)
        return logits

    return logits


if __name__ == "__main__":
    _teacher, _student, _mode = sys.argv[1:4]
    serve(_step(_teacher, _student, _mode, *map(int, sys.argv[4:])))
