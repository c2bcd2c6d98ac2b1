from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import tiny_finetuning

import pocketbert as pb
from pocketbert_bench.experiments.quantized import QUANTIZED, export_quantized
from pocketbert_export.bundle import Bundle
from pocketbert_export.predictors import ModelPredictor, open_predictor
from pocketbert_export.scoring import score_texts


def test_a_quantized_model_is_scored_whatever_it_answers(tmp_path: Path) -> None:
    start = tiny_finetuning.write_model(tmp_path / "start")
    model = pb.load(start, task=tiny_finetuning.TASK, seed=2)
    model.save_pretrained(tmp_path / "model")
    plain = tiny_finetuning.examples(40, seed=1)
    logits = ModelPredictor(model).logits(plain.texts)
    order = (logits[:, 1] - logits[:, 0]).argsort()
    # Labelled by the float model, but for nearly even answers; and then the other way round.
    rows = sorted([*order[:6], *order[-6:]])
    labels = logits.argmax(1)[rows].astype("int32")
    export_quantized(tmp_path / "model", tmp_path / "bundle", [23])
    right, wrong = (
        score_texts(
            open_predictor(tmp_path / "bundle"), dataclasses.replace(plain.select(rows), labels=given), ("accuracy",)
        ).metrics["accuracy"]
        for given in (labels, 1 - labels)
    )
    # Random weights answer with little between the two, so int8 may turn one or two of twelve.
    assert right >= 10 / 12 and right + wrong == pytest.approx(1.0)
    assert Bundle.open(tmp_path / "bundle").recipe == QUANTIZED
