"""Writes the `answers.jsonl` of a bundle with one answer per text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert_runtime import Bundle


def write(bundle: Bundle, inputs: Sequence[Any], path: Path) -> list[dict[str, Any]]:
    """Writes a line for each text or pair, with its ids and answer; returns the answers."""
    answers = bundle.predict(inputs)
    lines = []
    for item, answer in zip(inputs, answers, strict=True):
        text, pair = (item, None) if isinstance(item, str) else item
        encoded = bundle.tokenizer([text], None if pair is None else [pair], max_length=bundle.lengths[-1])
        count = int(encoded["input_mask"].sum())
        ids, types = (np.asarray(encoded[name])[0, :count].tolist() for name in ("input_word_ids", "input_type_ids"))
        names = {"text": text} if pair is None else {"text": text, "pair": pair}
        lines.append({**names, "windows": [{"ids": ids, "type_ids": types}], "answer": answer})
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    return answers
