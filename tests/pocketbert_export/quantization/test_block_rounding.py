"""GPTQ in blocks, against plain rounding and against a search over all roundings."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import networks
import numpy as np
import pytest

from pocketbert import cli
from pocketbert_export.quantization.block_rounding import pack, round_blocks, round_with_moments

OUTPUTS, WIDTH, TOKENS, SIZE = 23, 96, 700, 32


def layer(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights, and inputs that are correlated and differ in size, as activations do."""
    generator = np.random.default_rng(seed)
    mixing = generator.normal(size=[WIDTH // 4, WIDTH]) * generator.lognormal(size=WIDTH)
    inputs = generator.normal(size=[TOKENS, WIDTH // 4]) @ mixing + 0.3 * generator.normal(size=[TOKENS, WIDTH])
    return generator.normal(size=[OUTPUTS, WIDTH]).astype(np.float32), inputs


def dequantized(numbers: np.ndarray, scales: np.ndarray) -> np.ndarray:
    return numbers * np.repeat(scales.astype(np.float64), numbers.shape[1] // scales.shape[1], axis=1)


def output_error(matrix: np.ndarray, rounded: np.ndarray, inputs: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(inputs @ (rounded - matrix).T))))


@pytest.mark.parametrize(("seed", "size"), [(1, 32), (2, 48), (3, 96)])
def test_compensation_halves_the_error_on_new_inputs(seed: int, size: int) -> None:
    matrix, inputs = layer(seed)
    # The second half of the tokens was not seen.
    seen, new = inputs[: TOKENS // 2], inputs[TOKENS // 2 :]
    plain = output_error(matrix, dequantized(*round_blocks(matrix, size)), new)
    compensated = output_error(matrix, dequantized(*round_with_moments(matrix, seen.T @ seen, size)), new)
    assert compensated < 0.5 * plain


def test_uncorrelated_inputs_need_no_compensation() -> None:
    matrix, _ = layer(4)
    compensated = round_with_moments(matrix, 3.0 * np.eye(WIDTH), SIZE)
    for expected, received in zip(round_blocks(matrix, SIZE), compensated, strict=True):
        np.testing.assert_array_equal(expected, received)


def test_inputs_without_values_keep_their_weights_roundings() -> None:
    matrix, inputs = layer(5)
    inputs[:, 40:] = 0
    numbers, scales = round_with_moments(matrix, inputs.T @ inputs, SIZE)
    assert np.isfinite(scales.astype(np.float32)).all()
    plain_numbers, plain_scales = round_blocks(matrix, SIZE)
    # The last block is read by no token.
    np.testing.assert_array_equal(numbers[:, 64:], plain_numbers[:, 64:])
    np.testing.assert_array_equal(scales[:, 2], plain_scales[:, 2])


def test_compensation_is_near_the_best_of_all_roundings() -> None:
    generator = np.random.default_rng(6)
    matrix = np.zeros([1, 32], np.float32)
    matrix[0, :9] = generator.normal(size=9)
    inputs = np.zeros([200, 32])
    inputs[:, :9] = generator.normal(size=[200, 3]) @ generator.normal(size=[3, 9]) + 0.1 * generator.normal(
        size=[200, 9]
    )
    numbers, scales = round_with_moments(matrix, inputs.T @ inputs, SIZE)
    step = float(scales[0, 0])
    # Every weight rounded down or up: all 2^9 ways with the same scale.
    low = np.floor(matrix[0, :9] / step)
    errors = [
        output_error(matrix[:, :9], ((np.clip(low + ups, -8, 7)) * step)[None], inputs[:, :9])
        for ups in itertools.product((0, 1), repeat=9)
    ]
    received = output_error(matrix, dequantized(numbers, scales), inputs)
    plain = output_error(matrix[:, :9], (np.clip(np.round(matrix[0, :9] / step), -8, 7) * step)[None], inputs[:, :9])
    assert received < plain
    assert received < np.quantile(errors, 0.02)


def test_zero_matrix_stays_zero() -> None:
    matrix = np.zeros([3, 64], np.float32)
    for numbers, scales in (round_blocks(matrix, SIZE), round_with_moments(matrix, np.eye(64), SIZE)):
        assert not numbers.any()
        assert np.isfinite(scales.astype(np.float32)).all()


def test_pack_puts_the_first_number_in_the_lower_half() -> None:
    assert pack(np.array([[1, -1, 7, -8]], np.int8)) == bytes([0xF1, 0x87])


def test_calibrated_bundle_records_gptq_and_loses_less(small_directory: Path, tmp_path: Path) -> None:
    words = [word for word in networks.WORDS.split() if word.isalpha()]
    generator = np.random.default_rng(7)
    lines = [" ".join(generator.choice(words, generator.integers(3, 12))) for _ in range(180)]
    gate, calibration_table = tmp_path / "gate.csv", tmp_path / "own.csv"
    gate.write_text("text\n" + "\n".join(lines[:80]) + "\n", encoding="utf-8")
    calibration_table.write_text("text\n" + "\n".join(lines[80:]) + "\n", encoding="utf-8")
    errors = {}
    for name, flags in {"plain": [], "calibrated": [f"--calibration-file={calibration_table}"]}.items():
        common = [f"--model={small_directory}", "--recipe=dynamic_wi4", "--lengths=19", f"--file={gate}"]
        assert cli.main(["export", *common, "--label-column=", f"--output={tmp_path / name}", *flags]) == 0
        checks = json.loads((tmp_path / name / "verification.json").read_text(encoding="utf-8"))["checks"]
        errors[name] = next(check["measured"] for check in checks if check["name"] == "logits: RMS difference")
    recorded = json.loads((tmp_path / "calibrated" / "bundle.json").read_text(encoding="utf-8"))["calibration"]
    assert recorded["method"] == "gptq"
    assert "calibration" not in json.loads((tmp_path / "plain" / "bundle.json").read_text(encoding="utf-8"))
    assert errors["calibrated"] < 0.9 * errors["plain"]
