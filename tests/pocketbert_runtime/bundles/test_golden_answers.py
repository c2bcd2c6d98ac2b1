"""Golden answers in the runtime: what `Bundle.check` notices, in folders and zip files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bundle_folders
import pytest

from pocketbert_runtime import Bundle, UserError

Change = Callable[[list[dict[str, Any]]], object]


@pytest.fixture
def copy(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported / "bundle", tmp_path / "copy"))


def other_label(line: dict[str, Any]) -> str:
    return next(label for label in line["answer"]["probabilities"] if label != line["answer"]["label"])


def test_unchanged_bundles_pass(exported: Path, tmp_path: Path) -> None:
    Bundle.open(exported / "bundle").check()
    Bundle.open(bundle_folders.zipped(exported / "bundle", tmp_path / "bundle.zip")).check()


def test_golden_answers_are_the_models(exported: Path) -> None:
    # The float model's own answers were written beside the bundle before the export changed anything.
    lines = {line["text"]: line for line in bundle_folders.golden_lines(exported / "bundle") if "pair" not in line}
    expected = json.loads((exported / "golden_answers.json").read_text("utf-8"))
    tolerance = bundle_folders.description_of(exported / "bundle")["answers"]["tolerance"]
    assert expected.keys() == lines.keys() and tolerance < 0.01
    for text, answer in expected.items():
        assert lines[text]["answer"]["label"] == answer["label"]
        assert lines[text]["answer"]["probabilities"] == pytest.approx(answer["probabilities"], abs=tolerance)


def test_file_is_small_and_has_special_texts(exported: Path) -> None:
    lines = bundle_folders.golden_lines(exported / "bundle")
    assert len(lines) == 50 and (exported / "bundle" / "answers.jsonl").stat().st_size <= 200_000
    texts = " ".join(line["text"] for line in lines)
    assert "" in [line["text"] for line in lines]
    assert all(part in texts for part in ("é", "他说", "🙂", "[SEP]", "dampfschifffahrtsgesellschaft" * 9))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[2]["windows"][0]["ids"].__setitem__(1, 5), r'line 3 \(".*"\) must have the ids \[.*; the'),
        (lambda lines: lines[1]["windows"][0]["offsets"].__setitem__(1, [0, 99]), "line 2 .* must have the offsets"),
        (lambda lines: lines[1]["windows"].append(lines[0]["windows"][0]), "line 2 .* must have 2 windows; the token"),
        (lambda lines: lines[0]["windows"][0].pop("type_ids"), "line 1 .* must have the type_ids null; the tokenizer"),
        (lambda lines: lines[4]["answer"].update(label=other_label(lines[4])), "line 5 .* must have the label"),
        (lambda lines: lines[4]["answer"]["probabilities"].update(fair=0.9), "line 5 .* probabilities.fair 0.9, up to"),
        (lambda lines: lines[4]["answer"].update(score=1.0), "line 5 .* must have an answer with label, probabilities"),
        (lambda lines: lines[4].update(answer=None), "line 5 .* must have an answer; received None"),
        (lambda lines: lines.__setitem__(0, {**lines[0], "text": "film"}), r'line 1 \("film"\) must have the ids'),
    ],
)
def test_changed_lines_are_named(copy: Path, change: Change, message: str) -> None:
    lines = bundle_folders.golden_lines(copy)
    change(lines)
    bundle = Bundle.open(bundle_folders.write_lines(copy, lines))
    with pytest.raises(UserError, match=f"^bundle .* must give its golden answers; answers.jsonl: {message}") as raised:
        bundle.check()
    assert "\n" not in str(raised.value)


def test_swapped_answers_are_noticed(copy: Path) -> None:
    lines = bundle_folders.golden_lines(copy)
    # The first and the fourth text have different probabilities.
    lines[0]["answer"], lines[3]["answer"] = lines[3]["answer"], lines[0]["answer"]
    bundle = Bundle.open(bundle_folders.write_lines(copy, lines))
    with pytest.raises(UserError, match="line 1 .*; line 4 "):
        bundle.check()


def test_other_weights_change_answers(copy: Path, exported: Path) -> None:
    lines = bundle_folders.golden_lines(copy)
    for line in lines:
        line["answer"]["probabilities"] = dict(zip(("bad", "fair", "good"), (0.2, 0.3, 0.5), strict=True))
    bundle = Bundle.open(bundle_folders.write_lines(copy, lines))
    with pytest.raises(UserError, match=r"and \d+ more$"):
        bundle.check()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"text":"a"', "answers.jsonl must end with a line break; its last line is cut; copy it again"),
        (b"", "must have 1 to 50 lines and at most 200,000 bytes; received 0 lines"),
        (b'{"text":"a","windows":[{"ids":[2],"offsets":[[0,0]]}],"answer":{"score":NaN}}\n', "line 1: .* received NaN"),
        (b'{"text":"a","windows":[],"answer":null}\n', "line 1 must have windows; received none"),
        (
            b'{"text":"a","question":"b","windows":[{}],"answer":null}\n',
            "line 1 must have text, text and pair, or quest",
        ),
        (b'{"text":"a","windows":[{"ids":[1],"offsets":[[0]]}],"answer":null}\n', "a start and an end in offsets"),
        (b'{"text":"a","windows":[{"ids":[-1],"offsets":[[0,0]]}],"answer":null}\n', "ids must be at least 0"),
        (b"[]\n", "line 1: it must be an object"),
        (b"\xff\n", "line 1: JSON must be UTF-8"),
    ],
)
def test_damaged_files_are_one_line(copy: Path, content: bytes, message: str) -> None:
    (copy / "answers.jsonl").write_bytes(content)
    bundle = Bundle.open(bundle_folders.describe_again(copy))
    with pytest.raises(UserError, match=message) as raised:
        bundle.check()
    assert "\n" not in str(raised.value) and "answers.jsonl" in str(raised.value)


def test_a_missing_file_does_not_open(copy: Path) -> None:
    (copy / "answers.jsonl").unlink()
    with pytest.raises(UserError, match="answers.jsonl must be there; it is missing"):
        Bundle.open(copy)
    with pytest.raises(UserError, match="answers.jsonl must be listed among the files in bundle.json"):
        Bundle.open(bundle_folders.describe_again(copy))


def test_near_ties_may_have_another_label(copy: Path) -> None:
    lines = bundle_folders.golden_lines(copy)
    line = lines[4]
    best, other = sorted(line["answer"]["probabilities"].values(), reverse=True)[:2]
    line["answer"]["label"] = next(name for name, value in line["answer"]["probabilities"].items() if value == other)
    answers = bundle_folders.description_of(copy)["answers"]
    bundle_folders.write_lines(copy, lines)
    for tolerance, passes in ((0.51 * (best - other), True), (0.49 * (best - other), False)):
        bundle = Bundle.open(bundle_folders.describe_again(copy, answers={**answers, "tolerance": tolerance}))
        assert bool(bundle.golden_problems()) is not passes


def test_closed_bundles_check_nothing(exported: Path) -> None:
    bundle = Bundle.open(exported / "bundle")
    bundle.close()
    with pytest.raises(UserError, match="closed"):
        bundle.check()


def test_misspelt_options_are_refused(exported: Path) -> None:
    bundle = Bundle.open(exported / "bundle")
    with pytest.raises(
        UserError, match=r"for classification; received 'topk' \(did you mean 'top_k'\?\); leave it out"
    ):
        bundle.predict(["a"], topk=3)
    with pytest.raises(UserError, match="received 'n_best'"):
        bundle.predict(["a"], n_best=3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda it: it["outputs"][0].update(name="scores"),
            "must have the output logits for classification; received s",
        ),
        (lambda it: it["task"].update(kind="token_classification"), "must have the output token_logits for token_"),
        (lambda it: it["task"].update(kind="regression", labels=[]), "score"),
    ],
)
def test_edited_descriptions_give_one_line(copy: Path, change: Callable[[Any], object], message: str) -> None:
    content = bundle_folders.description_of(copy)
    change(content)
    (copy / "bundle.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UserError, match=message) as raised:
        Bundle.open(copy).check()
    assert "\n" not in str(raised.value)


def test_labels_without_logits_give_one_line(copy: Path) -> None:
    labels = ["bad", "fair", "good", "best"]
    (copy / "labels.txt").write_text("".join(f"{label}\n" for label in labels), encoding="utf-8")
    task = {**bundle_folders.description_of(copy)["task"], "labels": labels}
    bundle = Bundle.open(bundle_folders.describe_again(copy, task=task))
    with pytest.raises(UserError, match="a logit for each label, of which there are 4; received 3 logits"):
        bundle.predict(["a film"])
