"""Each check of the gate: what passes, and what must make it fail."""

from __future__ import annotations

from pathlib import Path

import handmade
import numpy as np
import pytest

from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError
from pocketbert.recipes import RECIPES
from pocketbert.tasks.base import Task
from pocketbert.tasks.registry import get_task
from pocketbert_export.checks import outputs as checks
from pocketbert_export.checks.outputs import ScoredOutputs
from pocketbert_export.tflite.op_histogram import OpHistogram, count_ops
from pocketbert_export.verification import file_checks

NAMES = {f"length_{length}": length for length in handmade.LENGTHS}
TASK = get_task(TaskConfig(kind="classification", labels=("a", "b", "c")))
LOGITS = np.array([[2.0, -1.0, 0.5], [-3.0, 0.25, 1.0], [0.5, 0.0, -2.0], [1.0, 4.0, -1.0]], np.float32)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> OpHistogram:
    return count_ops(handmade.write(tmp_path_factory.mktemp("good") / "good.tflite", handmade.Bag()))


@pytest.fixture(scope="module")
def int8(tmp_path_factory: pytest.TempPathFactory) -> OpHistogram:
    return count_ops(handmade.write(tmp_path_factory.mktemp("int8") / "int8.tflite", handmade.Bag(), int8=True))


def weight_shapes() -> list[tuple[int, ...]]:
    return [handmade.WORD_TABLE.shape, handmade.TYPE_TABLE.shape, handmade.KERNEL.shape]


def test_census_counts_each_buffer_once(good: OpHistogram) -> None:
    weights = 4 * (handmade.VOCAB_SIZE + 2 + 3) * handmade.WIDTH
    assert good.weight_bytes_by_type["float32"] == weights
    assert good.operators["FULLY_CONNECTED"] == len(handmade.LENGTHS)
    assert good.signatures["length_9"].inputs["input_mask"].shape == (1, 9)
    assert good.needed_versions == {}


def test_census_says_what_int8_weights_need(int8: OpHistogram) -> None:
    assert int8.int8_fully_connected == int8.channelwise_fully_connected == len(handmade.LENGTHS)
    assert int8.needed_versions == {"FULLY_CONNECTED": 12}


@pytest.mark.one_of_each("0", "5000")
@pytest.mark.parametrize("num_bytes", [0, 3, 7, 40, 5000])
def test_census_refuses_a_file_cut_short(tmp_path: Path, num_bytes: int) -> None:
    whole = handmade.write(tmp_path / "whole.tflite", handmade.Bag()).read_bytes()
    cut = tmp_path / "cut.tflite"
    cut.write_bytes(whole[:num_bytes])
    with pytest.raises(UserError, match="TFLite model"):
        count_ops(cut)


def test_operators(good: OpHistogram) -> None:
    assert file_checks.check_operators(good).passed


@pytest.mark.parametrize(("foreign", "name"), [("flex", "FlexMatrixInverse"), ("custom", "Erfinv")])
def test_operators_fail_on_foreign_ones(tmp_path: Path, foreign: str, name: str) -> None:
    histogram = count_ops(handmade.write(tmp_path / "foreign.tflite", handmade.Bag(foreign=foreign)))
    check = file_checks.check_operators(histogram)
    assert not check.passed
    assert name in check.reason


def test_signatures(good: OpHistogram) -> None:
    assert file_checks.check_signatures(good, NAMES, handmade.INPUT_NAMES).passed


@pytest.mark.parametrize(
    ("names", "inputs", "reason"),
    [
        ({**NAMES, "length_17": 17}, handmade.INPUT_NAMES, "length_17 is missing"),
        ({"length_5": 5}, handmade.INPUT_NAMES, "length_9 is not in bundle.json"),
        ({"length_5": 5, "length_9": 10}, handmade.INPUT_NAMES, "not int32"),
        (NAMES, ("ids", "input_mask", "input_type_ids"), "takes input_mask"),
    ],
)
def test_signatures_fail(good: OpHistogram, names: dict[str, int], inputs: tuple[str, ...], reason: str) -> None:
    check = file_checks.check_signatures(good, names, inputs)
    assert not check.passed
    assert reason in check.reason


def test_size(good: OpHistogram, int8: OpHistogram) -> None:
    assert file_checks.check_size(good, weight_shapes(), "float32").passed
    assert file_checks.check_size(int8, weight_shapes(), "int8").passed


def test_size_check_fails_for_wide_weights(good: OpHistogram) -> None:
    assert not file_checks.check_size(good, weight_shapes(), "int8").passed
    assert not file_checks.check_size(good, weight_shapes(), "float16").passed


def test_size_check_fails_for_duplicate_table(good: OpHistogram) -> None:
    assert not file_checks.check_size(good, [handmade.KERNEL.shape, handmade.TYPE_TABLE.shape], "float32").passed


def test_finite() -> None:
    assert checks.check_finite({"logits": LOGITS}).passed
    assert not checks.check_finite({"logits": 0 * LOGITS}).passed
    assert not checks.check_finite({"logits": np.where(LOGITS > 3, np.nan, LOGITS)}).passed
    assert not checks.check_finite({"other": LOGITS, "logits": 0 * LOGITS}).passed


def test_difference_is_relative_to_rms() -> None:
    # The root mean square of these is 5, the difference 1 in one of four.
    reference = np.array([[5.0, -5.0], [5.0, 5.0]], np.float32)
    largest, rms = checks.check_difference(
        {"logits": reference}, {"logits": reference + [[0, 0], [0, 1]]}, RECIPES["dynamic_wi8"].bounds
    )
    assert largest.measured == pytest.approx(0.2)
    assert rms.measured == pytest.approx(0.1)
    assert largest.passed
    assert rms.passed


@pytest.mark.parametrize("recipe", list(RECIPES))
def test_difference_fails_beyond_each_recipes_bound(recipe: str) -> None:
    bounds = RECIPES[recipe].bounds
    scale = float(np.sqrt(np.mean(np.square(LOGITS))))
    for factor, passes in ((0.9, True), (1.1, False)):
        shifted = LOGITS + factor * bounds.rms_difference * scale
        _, rms = checks.check_difference({"logits": LOGITS}, {"logits": shifted}, bounds)
        assert rms.passed is passes
        one = LOGITS.copy()
        one[2, 1] += factor * bounds.largest_difference * scale
        largest, _ = checks.check_difference({"logits": LOGITS}, {"logits": one}, bounds)
        assert largest.passed is passes


@pytest.mark.parametrize(
    "answers",
    [{"logits": LOGITS * np.nan}, {"logits": LOGITS[:, :2]}, {"scores": LOGITS}],
    ids=["not a number", "other shape", "other name"],
)
def test_difference_fails_on_incomparable_outputs(answers: dict[str, np.ndarray]) -> None:
    outcome = checks.check_difference({"logits": LOGITS}, answers, RECIPES["dynamic_wi8"].bounds)
    assert [(check.passed, check.measured) for check in outcome] == [(False, None)] * 2


def test_difference_takes_the_worst_output() -> None:
    reference = {"start_logits": LOGITS, "end_logits": 2 * LOGITS}
    answers = {"start_logits": LOGITS, "end_logits": -2 * LOGITS}
    assert not checks.check_difference(reference, answers, RECIPES["dynamic_wi8"].bounds)[0].passed


@pytest.mark.parametrize(
    ("name", "recipe", "factor"),
    [
        ("logits", "dynamic_wi8", 1),
        ("start_logits", "dynamic_wi8", 2),
        ("answer_end_logits", "dynamic_wi4", 2),
        ("start_logits", "float16", 1),
        ("token_logits", "dynamic_wi8", 1),
        ("sequence_output", "dynamic_wi8", 1),
    ],
)
def test_one_span_logit_may_differ_twice_as_much_in_integers(name: str, recipe: str, factor: int) -> None:
    bounds = RECIPES[recipe].bounds
    reference = np.where(np.arange(7000) % 2, 3.0, -3.0).astype(np.float32)
    for share, passes in ((0.95, True), (1.05, False)):
        received = reference.copy()
        received[5] += share * factor * 3 * bounds.largest_difference
        # Another output is near its bound, too, but not as near.
        outputs = {name: reference, "logits": reference}
        answers = {"logits": reference + 2 * bounds.largest_difference * (np.arange(7000) == 9), name: received}
        largest, rms = checks.check_difference(outputs, answers, bounds)
        assert largest.passed is passes and rms.passed
        assert largest.bound == pytest.approx(factor * bounds.largest_difference)
        assert largest.measured == pytest.approx(share * factor * bounds.largest_difference, rel=1e-5)
    assert [check.measured for check in checks.check_difference(outputs, outputs, bounds)] == [0, 0]


def test_labels_count_near_ties_as_agreeing() -> None:
    # The third row's lead is 0.4; twice the bound of 15 % of 1.58, the centred root mean square, is 0.47.
    logits = LOGITS + [[0, 0, 0], [0, 0, 0], [0, 0.1, 0], [0, 0, 0]]
    swapped = logits.copy()
    swapped[2] = logits[2][[1, 0, 2]]
    # A constant in all logits makes no lead smaller.
    for constant in (0.0, 100.0):
        assert checks.check_labels(TASK, logits + constant, swapped + constant, RECIPES["dynamic_wi8"].bounds).passed
        assert not checks.check_labels(TASK, logits + constant, swapped + constant, RECIPES["float32"].bounds).passed


def test_labels_fail_when_clear_lead_flips() -> None:
    swapped = LOGITS.copy()
    swapped[3] = LOGITS[3][[1, 0, 2]]
    check = checks.check_labels(TASK, LOGITS, swapped, RECIPES["dynamic_wi8"].bounds)
    assert not check.passed
    assert check.measured == 0.75


def scored(metric: float, count: int, lost: int = 0, won: int = 0) -> list[ScoredOutputs]:
    """The float model's answers and the bundle's: half are right, but for those that change."""
    reference = np.arange(count) % 2
    answers = reference.copy()
    answers[1 : 2 * lost : 2] = 0
    answers[0 : 2 * won : 2] = 1
    return [ScoredOutputs(0.85, reference), ScoredOutputs(0.85 - metric / 100, answers)]


@pytest.mark.parametrize(
    ("points", "lost", "won", "passes"),
    [
        (0.49, 30, 20, True),
        (-5.0, 0, 100, True),
        # Beyond half a point, as many more lost than won as the exact sign test at 5 % lets pass (binomial tables).
        (0.51, 4, 0, True),
        (0.51, 5, 0, False),
        (0.51, 6, 1, True),
        (0.51, 7, 1, False),
        (0.51, 8, 2, True),
        (0.51, 9, 2, False),
        # What int8 cost MRPC, CoLA and SQuAD 1.1; the points are F1's, Matthews correlation's and F1's.
        (0.86, 6, 2, True),
        (0.91, 7, 4, True),
        (0.73, 13, 7, True),
        # A bundle that has forgotten a class.
        (25.0, 120, 60, False),
    ],
)
def test_int8_may_lose_what_chance_explains(points: float, lost: int, won: int, passes: bool) -> None:
    check = checks.check_metric("f1", 853, *scored(points, 853, lost, won), RECIPES["dynamic_wi8"].bounds)
    assert check.passed is passes
    assert check.measured == pytest.approx(points)
    assert f"correct predictions: {lost} lost, {won} won" in check.reason


@pytest.mark.parametrize(("recipe", "points"), [("float32", 0.0), ("float16", 0.1)])
def test_chance_excuses_nothing_in_floats(recipe: str, points: float) -> None:
    for more, lost, won, passes in ((0.0, 9, 1, True), (0.01, 1, 0, True), (0.01, 2, 0, False), (0.01, 5, 3, False)):
        check = checks.check_metric("f1", 400, *scored(points + more, 400, lost, won), RECIPES[recipe].bounds)
        assert check.passed is passes


@pytest.mark.parametrize(("lost", "won", "passes"), [(12, 0, False), (5, 0, False), (4, 0, True), (5, 1, True)])
def test_answers_may_be_right_in_part(lost: int, won: int, passes: bool) -> None:
    # F1 of words, and each loses or wins a half: twice the root of 12 quarters is 3.5, of 5 2.2, of 4 2, of 6 2.4.
    reference, answers = np.full(500, 0.5), np.full(500, 0.5)
    reference[:lost], answers[-1 - won : -1] = 1.0, 1.0
    check = checks.check_metric(
        "f1", 500, ScoredOutputs(0.7, reference), ScoredOutputs(0.69, answers), RECIPES["dynamic_wi8"].bounds
    )
    assert f"{lost / 2:g} lost, {won / 2:g} won" in check.reason
    assert check.passed is passes


def test_scores_may_lose_one_examples_worth() -> None:
    for recipe, count, points, passes in (
        ("dynamic_wi8", 1500, 0.49, True),
        ("dynamic_wi8", 1500, 0.51, False),
        # One of 50 is two points.
        ("dynamic_wi8", 50, 1.9, True),
        ("dynamic_wi8", 50, 2.1, False),
        ("float32", 1000, 0.09, True),
        ("float32", 1000, 0.11, False),
    ):
        both = (ScoredOutputs(0.85, None), ScoredOutputs(0.85 - points / 100, None))
        assert checks.check_metric("spearman", count, *both, RECIPES[recipe].bounds).passed is passes


@pytest.mark.parametrize(("cosine", "passes"), [(0.9989, False), (0.9991, True)])
def test_rotated_embeddings_fail(cosine: float, passes: bool) -> None:
    generator = np.random.default_rng(8)
    # Orthogonal to the reference; lengths do not matter.
    reference, other = generator.normal(size=[2, 5, 7])
    reference /= np.linalg.norm(reference, axis=1, keepdims=True)
    other -= np.sum(other * reference, axis=1, keepdims=True) * reference
    other /= np.linalg.norm(other, axis=1, keepdims=True)
    rotated = cosine * reference + np.sqrt(1 - cosine**2) * other
    check = checks.check_angles({"embedding": reference}, {"embedding": 3 * rotated}, RECIPES["dynamic_wi8"].bounds)
    assert check.passed is passes
    assert check.measured == pytest.approx(cosine, abs=1e-12)
    assert f"largest angle {np.degrees(np.arccos(cosine)):.2f} degrees" in check.reason


def test_angles_are_averaged() -> None:
    vectors = np.eye(4)
    half = np.array([*vectors[:2], -vectors[2], vectors[3]])
    check = checks.check_angles({"embedding": vectors}, {"embedding": half}, RECIPES["dynamic_wi4"].bounds)
    assert not check.passed and check.measured == 0.5
    assert not checks.check_angles(
        {"embedding": vectors}, {"embedding": vectors * np.nan}, RECIPES["dynamic_wi4"].bounds
    ).passed


def test_padding_must_change_nothing_at_all() -> None:
    assert checks.check_padding({"logits": LOGITS}, {"logits": LOGITS.copy()}).passed
    assert not checks.check_padding({"logits": LOGITS}, {"logits": np.nextafter(LOGITS, np.float32(9))}).passed
    assert not checks.check_padding({"logits": LOGITS}, {"logits": LOGITS * np.nan}).passed


def test_lengths_must_agree() -> None:
    bounds = RECIPES["float32"].bounds
    same = {7: {"logits": LOGITS}, 5: {"logits": LOGITS}, 11: {"logits": LOGITS}}
    assert checks.check_lengths(same, bounds).passed
    assert not checks.check_lengths({**same, 11: {"logits": LOGITS * 1.01}}, bounds).passed


def test_real_values_leave_out_padding() -> None:
    mask = np.array([[1, 1, 0], [1, 0, 0]])
    outputs = {"sequence_output": np.arange(12.0).reshape(2, 3, 2), "pooled_output": np.ones([2, 5])}
    real = checks.real_values(outputs, mask)
    assert real["sequence_output"].tolist() == [[0, 1], [2, 3], [6, 7]]
    assert real["pooled_output"].shape == (2, 5)


def test_constant_score_with_large_mean_fails() -> None:
    scores = np.array([3.5, 2.5, 3.4, 2.6, 3.0], np.float32)
    constant = np.full_like(scores, 3.0)
    bounds, task = RECIPES["dynamic_wi8"].bounds, get_task(TaskConfig(kind="regression"))
    outcome = checks.check_difference({"logits": scores}, {"logits": constant}, bounds, task=task)
    assert [check.passed for check in outcome] == [False, False]
    # As it is, it lies within 13.4 %.
    assert all(check.passed for check in checks.check_difference({"x": scores}, {"x": constant}, bounds))


@pytest.mark.parametrize("task", [TASK, get_task(TaskConfig(kind="span"))], ids=["classification", "span"])
def test_constant_in_logits_hides_no_difference(task: Task) -> None:
    logits = LOGITS if task is TASK else LOGITS.ravel()
    wrong = logits[::-1].copy()
    bounds = RECIPES["dynamic_wi8"].bounds
    for constant in (0.0, 100.0):
        both = ({"logits": logits + constant}, {"logits": wrong + constant})
        assert not any(check.passed for check in checks.check_difference(*both, bounds, task=task))


def response(slope: float, noise: float, rows: int = 12) -> checks.Check:
    """Answers that follow the text by a share, with noise as a part of what they should follow."""
    generator = np.random.default_rng(4)
    moves = generator.normal(size=[rows, 2])
    moved = slope * moves + noise * generator.normal(size=[rows, 2])
    return checks.check_response("sensitivity", "text", {"x": moves}, {"x": moved}, {"x": moves})


@pytest.mark.parametrize(
    ("slope", "noise", "passes"),
    [
        (1.0, 0.0, True),
        # Noise of int8 that is as large as the change says nothing.
        (1.0, 1.0, True),
        (0.9, 0.1, True),
        (0.0, 0.0, False),
        (0.0, 0.05, False),
        (-1.0, 0.1, False),
        (2.0, 0.1, False),
    ],
)
def test_answers_must_follow_the_text(slope: float, noise: float, passes: bool) -> None:
    assert response(slope, noise).passed is passes


@pytest.mark.parametrize(
    ("slope", "rounding", "passes"),
    [
        # int4 can move the segments' direction as far as it moves the outputs.
        (1.8, 1.0, True),
        (1.8, 0.2, False),
        # A file that ignores segments fails if they change the outputs twice as far as rounding does.
        (0.0, 0.4, False),
        (-1.0, 1.0, False),
    ],
)
def test_rounding_of_all_texts_alike_is_no_fault(slope: float, rounding: float, passes: bool) -> None:
    moves = np.random.default_rng(5).normal(size=[8, 2])
    size = np.sqrt(np.mean(np.square(moves)))
    unchanged = {"x": np.full([8, 2], rounding * size)}
    check = checks.check_response(
        "segments", "segment ids", {"x": moves}, {"x": slope * moves}, {"x": moves}, unchanged
    )
    assert check.passed is passes
    assert check.measured == pytest.approx(max(0.0, abs(1 - slope) - rounding))


def test_float32_rounding_is_not_compared() -> None:
    tiny, nothing, scale = {"x": np.full([3, 2], 1e-6)}, {"x": np.zeros([3, 2])}, {"x": np.ones([3, 2])}
    assert checks.check_response("segments", "other segment ids", tiny, nothing, scale).passed
    assert not checks.check_response("segments", "other segment ids", {"x": tiny["x"] * 1e3}, nothing, scale).passed
