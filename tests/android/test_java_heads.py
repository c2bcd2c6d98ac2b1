"""Several heads in Java: the same answers as in Python, from one bundle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny
from test_java_host import host

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert_export.exporter import export
from pocketbert_runtime.decision_config import DecisionConfig
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import SPECIAL_TOKENS

pytestmark = pytest.mark.java

WORDS = "new york ##er ##s lives in un ##aff ##able zurich cafe 東 京 , . ! ' 🙂 a b c d e".split()
TASK = TaskConfig(
    kind="several",
    tasks=(
        TaskConfig(
            kind="classification",
            name="intent",
            labels=("ask", "book", "cancel"),
            decisions=DecisionConfig(reject_below=0.45),
        ),
        TaskConfig(kind="token_classification", name="slots", labels=("O", "B-LOC", "I-LOC")),
        TaskConfig(
            kind="multi_label",
            name="topics",
            labels=("travel", "food"),
            decisions=DecisionConfig(thresholds=(0.15, 0.85)),
        ),
        TaskConfig(kind="regression", name="stars"),
    ),
)
TEXTS = ["New Yorkers lives in Zürich, 東京!", "🙂🙂 cafe unaffable  New York's", "a b c d e " * 9 + "New York", "e"]


def test_heads_answer_as_in_python(tmp_path: Path) -> None:
    vocabulary = tmp_path / "vocab.txt"
    unused = [f"[unused{number}]" for number in range(tiny.BERT.vocab_size - len(WORDS) - 5)]
    vocabulary.write_text("\n".join([*SPECIAL_TOKENS, *WORDS, *unused]) + "\n", encoding="utf-8")
    model = pb.from_preset(tiny.BERT.replace(initializer_range=0.4), [TASK], pb.WordPieceTokenizer(vocabulary), seed=7)
    # So that all tags occur.
    logits = model(dict(model.tokenizer(TEXTS, max_length=17)))["slots_token_logits"].numpy()
    model.heads["several"].parts["slots"].output_projection.bias.assign(-logits.mean(axis=(0, 1)))
    model.save_pretrained(tmp_path / "model")
    bundle = export(tmp_path / "model", tmp_path / "bundle", recipe="float32", lengths=(9, 17))
    done = host("answer", bundle.directory, text="".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    assert done.returncode == 0, done.stderr
    spans = 0
    for line, expected in zip(done.stdout.splitlines(), bundle.predict(TEXTS), strict=True):
        answer = json.loads(line)
        assert answer["intent"]["label"] == expected["intent"]["label"]
        assert answer["topics"]["labels"] == expected["topics"]["labels"]
        assert answer["topics"]["probabilities"] == pytest.approx(expected["topics"]["probabilities"], abs=1e-4)
        assert answer["stars"]["score"] == pytest.approx(expected["stars"]["score"], abs=1e-4)
        found, named = ([{**span, "probability": 0} for span in one["slots"]["spans"]] for one in (answer, expected))
        assert found == named
        spans += len(named)
    assert spans > 3
