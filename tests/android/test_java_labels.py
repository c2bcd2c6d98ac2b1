"""Labels in Java: the same answers as in Python, with and without thresholds, from the same bundles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import bundle_folders
import numpy as np
import pytest
import tiny
from test_java_host import host

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.tasks.predictor import model_predictor
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.exporter import export
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import SPECIAL_TOKENS

pytestmark = pytest.mark.java

WORDS = "a quiet honest film not bad , . ! cafe in zurich the good room 東 京 ##s".split()
TWO, FOUR = ("low", "high"), ("sport", "née", "of art", '"quoted"')
TASKS = {
    "plain": TaskConfig(kind="classification", labels=FOUR),
    "reject": TaskConfig(kind="classification", labels=FOUR, decisions={"reject_below": 0.45}),  # type: ignore[arg-type]
    "two": TaskConfig(kind="classification", labels=TWO, decisions={"thresholds": (0.62, 0.38)}),  # type: ignore[arg-type]
    "several": TaskConfig(kind="multi_label", labels=FOUR),
    "labels": TaskConfig(kind="multi_label", labels=FOUR, decisions={"thresholds": (0.2, 0.5, 0.61, 0.4)}),  # type: ignore[arg-type]
}


def texts() -> list[Any]:
    """Texts and pairs, some longer than the longest length."""
    random = np.random.default_rng(4)
    single = [" ".join(random.choice(WORDS, count)) for count in (1, 2, 5, 9, 14, 25, *random.integers(1, 20, 50))]
    pairs = [(first, second) for first, second in zip(single[6:26], single[26:46], strict=True)]
    return ["Not bad, née\u0301 in Zürich!", "", *single, *pairs]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bundle]:
    """Networks with random weights, whose answers differ between texts."""
    folder = tmp_path_factory.mktemp("labels")
    vocabulary = folder / "vocab.txt"
    unused = [f"[unused{number}]" for number in range(tiny.BERT.vocab_size - len(WORDS) - len(SPECIAL_TOKENS))]
    vocabulary.write_text("\n".join([*SPECIAL_TOKENS, *WORDS, *unused]) + "\n", encoding="utf-8")
    made = {}
    for name, task in TASKS.items():
        config = tiny.BERT.replace(initializer_range=0.4)
        model = pb.from_preset(config, [task], pb.WordPieceTokenizer(vocabulary), seed=9)
        # Random logits differ more between labels than between texts.
        single = [one for one in texts() if isinstance(one, str)]
        mean = np.mean(model_predictor(model).logits(single), axis=0)
        next(iter(model.heads.values())).output_projection.bias.assign(-mean)
        model.save_pretrained(folder / f"{name}-model")
        made[name] = export(folder / f"{name}-model", folder / name, recipe="float32", lengths=(9, 17))
    return made


def rows(given: list[Any]) -> str:
    objects = [{"text": one} if isinstance(one, str) else {"text": one[0], "pair": one[1]} for one in given]
    return "".join(json.dumps(row) + "\n" for row in objects)


@pytest.mark.parametrize("name", TASKS)
def test_answers_equal_those_of_python(name: str, bundles: dict[str, Bundle]) -> None:
    bundle, given = bundles[name], texts()
    done = host("answer", bundle.directory, text=rows(given))
    assert done.returncode == 0, done.stderr
    single = [one for one in given if isinstance(one, str)]
    expected = [*bundle.predict(single), *bundle.predict(given[len(single) :])]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == len(expected)
    answers = set()
    for one, line, answer in zip(given, lines, expected, strict=True):
        text, pair = (one, None) if isinstance(one, str) else one
        assert (line.pop("text"), line.pop("pair", None)) == (text, pair)
        # Two releases of the kernels sum in another order; both round to six digits.
        probabilities = line.pop("probabilities")
        assert list(probabilities) == list(answer["probabilities"])
        assert [*probabilities.values()] == pytest.approx([*answer.pop("probabilities").values()], abs=2e-5)
        assert line == answer, ascii(text)
        answers.add(json.dumps(answer))
    # Each kind of answer occurs.
    assert len(answers) > 1
    assert ('{"label": null}' in answers) is (name == "reject")


@pytest.mark.parametrize(("with_them", "without"), [("reject", "plain"), ("labels", "several")])
def test_thresholds_change_answers(with_them: str, without: str, bundles: dict[str, Bundle]) -> None:
    given = rows([one for one in texts() if isinstance(one, str)])
    # The networks are equal, apart from their thresholds.
    outputs = [host("answer", bundles[name].directory, text=given).stdout.splitlines() for name in (with_them, without)]
    differing = sum(one != other for one, other in zip(*outputs, strict=True))
    assert 0 < differing < len(outputs[0])
    for one, other in zip(*outputs, strict=True):
        assert json.loads(one)["probabilities"] == json.loads(other)["probabilities"]


def test_faulty_decisions_are_refused_by_both(bundles: dict[str, Bundle], tmp_path: Path) -> None:
    import shutil

    for number, (decisions, words) in enumerate(
        [
            ({"thresholds": [0.5, 0.6], "reject_below": None}, "sum to 1"),
            ({"thresholds": [0.5, 0.5], "reject_below": 0.5}, "null for the other"),
            ({"thresholds": [0.5, 0.5]}, "reject_below must be a number"),
            ({"thresholds": None, "reject_below": 2}, "must lie in [0, 1]"),
            ({"thresholds": [0.5, 0.5], "reject_below": None, "more": 1}, "$.task.decisions.more is unknown"),
        ]
    ):
        changed = Path(shutil.copytree(bundles["two"].directory, tmp_path / str(number)))
        task = bundle_folders.description_of(changed)["task"]
        bundle_folders.describe_again(changed, task={**task, "decisions": decisions})
        with pytest.raises(pb.UserError):
            Bundle.open(changed)
        done = host("answer", changed, text="a\n")
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert words in done.stderr
