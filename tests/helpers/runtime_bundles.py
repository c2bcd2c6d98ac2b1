"""A small bundle for tests of the runtime, with the answers of its model."""

from __future__ import annotations

import json
from pathlib import Path

import networks
from bundle_folders import golden_lines

from pocketbert.tasks.predictor import model_predictor
from pocketbert.tokenizers.wordpiece import WordPieceTokenizer
from pocketbert_export.exporter import export

LENGTHS = (7, 19)
TEXTS = [
    "the film is good .",
    "a dull cat walks",
    "the story begins well , but ends very badly , and is not good !",
    "",
]


def export_bundle(folder: Path) -> Path:
    """Writes a float32 bundle with three classes, and the float model's answers for `TEXTS` beside it."""
    tokenizer = WordPieceTokenizer(networks.vocabulary(folder))
    model = networks.network(networks.bert_config(), tokenizer=tokenizer)
    export(model, folder / "bundle", recipe="float32", lengths=LENGTHS)
    (folder / "answers.json").write_text(json.dumps(model.predict(TEXTS)), encoding="utf-8")
    golden = [line["text"] for line in golden_lines(folder / "bundle") if "pair" not in line]
    answers = model_predictor(model, max_length=LENGTHS[-1]).predict(golden)
    answers_by_text = dict(zip(golden, answers, strict=True))
    (folder / "golden_answers.json").write_text(json.dumps(answers_by_text), encoding="utf-8")
    return folder
