"""Parts of a search's examples and text."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import tiny_distillation
import tiny_finetuning

from pocketbert.data.readers.text import read_documents
from pocketbert.search.config import SearchConfig
from pocketbert.search.parts import divide, draw_text, leave_out


def test_paper_shares_divide_the_examples(tmp_path: Path) -> None:
    data = tiny_distillation.task_data(tiny_distillation.write_teacher(tmp_path / "model"))
    data = dataclasses.replace(data, train=tiny_finetuning.examples(1000, seed=4))
    config = SearchConfig(preset="paper").resolved()
    parts = divide(data, config)
    sizes = [
        len(part) for part in (parts.candidates.train, parts.candidates.dev, parts.stage_3.dev, parts.supernets.train)
    ]
    # Section 4.3: 10 % and 1 % in stages 1 and 2; 90 % and 10 % in stage 3. Equal sentences stay together.
    assert sizes == pytest.approx([100, 10, 100, 900], abs=4)
    learned, scored = set(parts.supernets.train.texts), set(parts.stage_3.dev.texts)
    assert set(parts.candidates.dev.texts) <= scored and not learned & scored
    assert set(parts.candidates.train.texts) <= learned and parts.supernets.dev is data.dev
    assert len(leave_out(data, config).train) == pytest.approx(900, abs=4)
    assert config.candidate_text_share == 0.02 and leave_out(data, SearchConfig().resolved()) is data


def test_text_is_drawn_once(tmp_path: Path) -> None:
    text = tiny_distillation.write_text(tmp_path / "text.txt", sentences=3000)
    every = list(read_documents(text))
    draw_text(text, 0.1, 3, tmp_path / "drawn.jsonl")
    drawn = list(read_documents(tmp_path / "drawn.jsonl"))
    # About 1,000 documents: 100 drawn with a standard deviation of 9.5.
    assert len(drawn) == pytest.approx(len(every) / 10, abs=40) and set(drawn) <= set(every)
    draw_text(text, 0.9, 3, tmp_path / "drawn.jsonl")
    assert list(read_documents(tmp_path / "drawn.jsonl")) == drawn
    draw_text(text, 1e-9, 3, tmp_path / "few.jsonl")
    assert list(read_documents(tmp_path / "few.jsonl")) == every[:1]
