"""What the suites on MobileBERT compare is the same on both sides, and what they count is there."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny

import pocketbert as pb
import variants_table
from pocketbert.configs import EncoderConfig
from pocketbert.presets import preset
from pocketbert.tokenizers.vocabulary import SPECIAL_TOKENS
from pocketbert_bench import kept_arrays, results
from pocketbert_bench.suites import (
    mobilebert_memory,
    mobilebert_memory_process,
    mobilebert_setting,
    mobilebert_text,
    mobilebert_training,
    mobilebert_variants,
    model_garden_mobilebert,
    runner,
)
from pocketbert_bench.suites.mobilebert_setting import Shape

B, S = 3, 11
# Heads together are as wide as the block: the peer can have nothing else. Its dropout has no seed.
STUDENT = tiny.MOBILEBERT.replace(attention_dropout=0.0)
TEACHER = tiny.IB_BERT.replace(attention_dropout=0.0, hidden_dropout=0.0)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny architectures in place of the paper's, and a rate that shows within a few steps."""
    configs = {mobilebert_setting.TEACHER: TEACHER, mobilebert_setting.STUDENT: STUDENT}

    def config(name: str, shape: Shape) -> EncoderConfig:
        return configs[name].replace(num_layers=shape.layers)

    def batch(shape: Shape) -> dict[str, tf.Tensor]:
        ids = np.random.default_rng(1).integers(2, STUDENT.vocab_size, [shape.batch_size, shape.length])
        arrays = {
            "input_word_ids": ids,
            "input_mask": np.ones_like(ids),
            "input_type_ids": 0 * ids,
            "masked_lm_positions": ids[:, :2] % shape.length,
            "masked_lm_labels": ids[:, 2:4],
        }
        return {name: tf.constant(array, tf.int32) for name, array in arrays.items()}

    monkeypatch.setattr(mobilebert_setting, "use_threads", lambda: None)
    monkeypatch.setattr(mobilebert_setting, "LEARNING_RATE", 0.003)
    monkeypatch.setattr(mobilebert_setting, "config", config)
    monkeypatch.setattr(mobilebert_setting, "batch", batch)


def test_the_suites_are_found_and_their_parts_are_none() -> None:
    found = runner.suites()
    assert {"mobilebert_training", "mobilebert_text", "mobilebert_memory", "mobilebert_variants"} <= set(found)
    assert not {"mobilebert_setting", "mobilebert_memory_process", "model_garden_mobilebert"} & set(found)


@pytest.mark.parametrize("config", [TEACHER, STUDENT, tiny.MOBILEBERT_RAW], ids=["teacher", "student", "paper"])
def test_the_peer_has_the_same_weights(config: EncoderConfig) -> None:
    theirs = model_garden_mobilebert.encoder(config)
    shapes = Counter(int(np.prod(weight.shape)) for weight in theirs.trainable_weights)
    ours = Counter(int(np.prod(weight.shape)) for weight in pb.build(config).trainable_variables)
    assert shapes == ours


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", ["masked_words", pytest.param("transfer", marks=pytest.mark.slow)])
def test_every_step_learns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mobilebert_training, "SHAPE", Shape(layers=1, batch_size=B, length=S))
    make = getattr(mobilebert_training, f"_{name}")
    for side, step in make(mobilebert_setting.batch(mobilebert_training.SHAPE)).items():
        losses = [float(step()) for _ in range(5)]
        assert np.isfinite(losses).all() and min(losses) < losses[0], side


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Articles of 1 to 5 sentences, and as many pieces as the tiny networks know."""
    words = [f"w{number}" for number in range(STUDENT.vocab_size - 6)]
    articles = [
        "\n".join(
            f"{' '.join(words[first : first + 4 + first % 3])}."
            for first in range(start, start + 9 * (start % 5 + 1), 9)
        )
        for start in range(40)
    ]
    files = {
        "text/enwiki2015-train.txt.xz": ("text.txt", "\n\n".join(articles)),
        "vocab/bert-base-uncased.vocab.txt": ("vocab.txt", "\n".join([*SPECIAL_TOKENS, ".", *words])),
    }
    for name, content in files.values():
        (tmp_path / name).write_text(content + "\n", encoding="utf-8")
    monkeypatch.setattr(mobilebert_text, "shared_data", lambda name: tmp_path / files[name][0])
    monkeypatch.setattr(mobilebert_text, "SHAPE", Shape(layers=1, batch_size=B, length=17))
    monkeypatch.setattr(mobilebert_text, "STEPS_A_ROUND", 2)


@pytest.mark.usefixtures("small", "text")
def test_both_sides_get_the_same_examples_of_text(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: dict[str, list[dict[str, np.ndarray]]] = {"ours": [], "theirs": []}

    def ours(shape: Shape) -> Any:
        return lambda batch: tf.py_function(lambda *rows: take("ours", *rows), list(batch.values()), tf.float32)

    def theirs(teacher: EncoderConfig, student: EncoderConfig, *, teacher_dropout: bool) -> Any:
        assert teacher_dropout is False
        return lambda batch: tf.py_function(lambda *rows: take("theirs", *rows), list(batch.values()), tf.float32)

    def take(side: str, *rows: tf.Tensor) -> float:
        taken[side].append({str(index): row.numpy() for index, row in enumerate(rows)})
        return 0.0

    monkeypatch.setattr(mobilebert_text, "our_transfer_step", ours)
    monkeypatch.setattr(model_garden_mobilebert, "transfer_step", theirs)
    content = mobilebert_text.run(quick=True)
    assert results.problems(content) == []
    assert [len(ratio["ours_samples"]) for ratio in content["ratios"]] == [mobilebert_text.QUICK_ROUNDS]
    assert len(taken["ours"]) == len(taken["theirs"]) == 2 * (1 + mobilebert_text.QUICK_ROUNDS)
    widths = set()
    for narrow, wide in zip(taken["ours"], taken["theirs"], strict=True):
        for name, rows in narrow.items():
            width = rows.shape[1]
            widths.add(width)
            assert rows.shape == (B, width) and wide[name].shape == (B, 17)
            np.testing.assert_array_equal(rows, wide[name][:, :width])
            assert not wide[name][:, width:].any()
    # Some were narrower, or the two sides would compute the same.
    assert min(widths) < 17
    assert "padded to 17; " in content["notes"][0]


@pytest.mark.slow
@pytest.mark.usefixtures("small", "text")
def test_the_step_on_text_is_timed_on_both_sides() -> None:
    content = mobilebert_text.run(quick=True)
    assert results.problems(content) == [] and all(rate > 0 for rate in content["ratios"][0]["ours_samples"])


@pytest.mark.usefixtures("small")
def test_transfer_keeps_no_more_than_its_gradient_needs() -> None:
    """Of attention the difference of the distributions; of features that of the normalized ones, and one centred."""
    counts = {kind: _kept_of_a_layer(kind) for kind in ("passes", "transfer")}
    pairs, hidden = (B, STUDENT.num_attention_heads, S, S), (B, S, STUDENT.hidden_size)
    # The probabilities alone: softmax's gradient and the mixing's read the same array.
    assert counts["passes"][pairs] == 1
    assert counts["transfer"][pairs] == 2
    assert counts["transfer"][hidden] - counts["passes"][hidden] == 2


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", ["passes", "transfer"])
def test_both_kinds_run_both_networks(kind: str) -> None:
    """TensorFlow leaves out what no result depends on, and a gradient of a sum depends on no value."""
    step = mobilebert_memory_process.gradients(kind, Shape(layers=2, batch_size=B, length=S)).get_concrete_function()
    softmaxes = [operation for operation in kept_arrays.live_operations(step) if operation.type == "Softmax"]
    assert len(softmaxes) == 2 * 2


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", ["passes", "transfer"])
def test_the_word_table_alone_takes_no_weights_gradient_on_the_way(kind: str) -> None:
    """A matrix product forward has two backward, for its input and for its weight: the latter are gone."""
    shape = Shape(layers=2, batch_size=B, length=S)
    products = {}
    for learns in (mobilebert_memory_process.ALL_WEIGHTS, mobilebert_memory_process.WORD_TABLE):
        step = mobilebert_memory_process.gradients(kind, shape, learns).get_concrete_function()
        live = kept_arrays.live_operations(step)
        products[learns] = [each for each in live if each.type == "MatMul"]
    kernels = [
        path
        for path, weight in pb.build(STUDENT.replace(num_layers=2)).weights_by_path().items()
        if ".layer" in path and path.endswith("kernel")
    ]
    assert len(products["all"]) - len(products["word-table"]) >= len(kernels) > 0


def _kept_of_a_layer(kind: str) -> Counter:
    two, one = (
        Counter(each.shape for each in mobilebert_memory.kept(kind, Shape(layers=layers, batch_size=B, length=S)))
        for layers in (2, 1)
    )
    two.subtract(one)
    return two


def test_kept_arrays_by_hand() -> None:
    weight = tf.Variable(tf.ones([5, 7]))

    @tf.function(input_signature=[tf.TensorSpec([3, 5])])
    def step(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            inner = tf.tanh(x @ weight)
            # Nobody reads it.
            tf.exp(inner)
            loss = tf.reduce_sum(tf.square(tf.reshape(inner, [21])))
        return tape.gradient(loss, weight)

    # tanh's gradient and the square's read tanh's result, under two shapes; the argument does not count.
    (kept,) = kept_arrays.kept_arrays(step.get_concrete_function())
    assert kept.shape == (3, 7) and kept.size_bytes == 4 * 21 and "Tanh" in kept.name


@pytest.mark.usefixtures("small")
def test_memory_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = {
        "passes": [10.0 * 2**20, 11.0 * 2**20, 12.0 * 2**20],
        "transfer": [19.0 * 2**20, 13.0 * 2**20, 16.0 * 2**20],
    }
    taken = {kind: iter(values * 9) for kind, values in peaks.items()}
    monkeypatch.setattr(mobilebert_memory, "SHAPES", (Shape(layers=2, batch_size=B, length=S),))
    without = {"passes": 4.0 * 2**20, "transfer": 5.0 * 2**20}
    monkeypatch.setattr(
        mobilebert_memory,
        "_peak",
        lambda kind, _, learns="all": next(taken[kind]) if learns == "all" else without[kind],
    )
    content = mobilebert_memory.run(quick=False)
    assert results.problems(content) == []
    (note,) = content["notes"]
    # Of 9, 2, 4 the median is 4; of 10, 11, 12 it is 11.
    assert note.startswith(
        "2 layers, batch 3 x 11: with transfer the peak is +4 MiB from the passes' 11 MiB (medians)."
    )
    assert note.endswith("the peaks are 4 MiB (passes) and 5 MiB (transfer)")


def test_the_page_says_what_the_result_file_says() -> None:
    root = Path(__file__).parents[2]
    page = " ".join((root / "docs" / "methods" / "mobilebert.md").read_text(encoding="utf-8").split())
    content = json.loads((root / "benchmarks" / "results" / "mobilebert_memory.json").read_text(encoding="utf-8"))
    pattern = (
        r"24 layers, batch (\d+ x \d+): with transfer the peak is ([+-]\d+) MiB from the passes' (\d+) MiB.*"
        r"keeps ([\d.]+) MiB of attention and ([\d.]+) MiB.*and ([\d.]+) MiB of attention and ([\d.]+) MiB.*"
        r"the peaks are (\d+) MiB \(passes\) and (\d+) MiB \(transfer\)"
    )
    extra, waiting, waiting_transfer = [], [], []
    for note in content["notes"]:
        found = re.match(pattern, note)
        assert found, note
        batch, *numbers = found.groups()
        above, passes, own, others, transferred, more, bare_passes, bare_transfer = map(float, numbers)
        row = f"| {batch} tokens | {passes:.0f} MiB | {abs(above):.0f} MiB {'more' if above > 0 else 'less'} "
        row += f"| {own + others:.1f} MiB, {own} of it attention "
        row += f"| {transferred + more:.1f} MiB, {transferred} of it attention "
        row += f"| {bare_passes:.0f} MiB | {bare_transfer:.0f} MiB |"
        assert row in page
        extra.append(f"{24 * (transferred + more - own - others):.0f}")
        waiting.append(f"{passes - bare_passes:.0f}")
        waiting_transfer.append(f"{passes + above - bare_transfer:.0f}")
    assert f"these are {' and '.join(extra)} MiB in 24 layers" in page
    assert f"{' and '.join(waiting)} MiB of the passes' peak" in page
    assert f"({' and '.join(waiting_transfer)} MiB)" in page


@pytest.mark.slow
def test_a_process_measures_itself() -> None:
    shape = Shape(layers=1, batch_size=1, length=8)
    assert mobilebert_memory._peak(mobilebert_memory_process.PASSES, shape) > 1e6


def test_the_page_on_variants_says_what_the_result_file_says() -> None:
    table = variants_table.table(results.read(variants_table.RESULT))
    assert variants_table.BLOCK.read() == table, "run: python tools/variants_table.py"


def test_variants_are_the_papers_four() -> None:
    configs = [variant.config(mobilebert_variants.LAYERS) for variant in mobilebert_variants.VARIANTS]
    assert len({(config.norm, config.activation) for config in configs}) == 4
    without = preset("mobilebert_paper_without_opt").config
    assert configs[0] == without and configs[3] == preset("mobilebert_paper").config


@pytest.mark.slow
@pytest.mark.data
def test_the_variants_suite_runs_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *_, last = mobilebert_variants.VARIANTS
    monkeypatch.setattr(mobilebert_variants, "VARIANTS", (first, last))
    content = mobilebert_variants.run(quick=True)
    assert results.problems(content) == [] and json.dumps(content, allow_nan=False)
    assert [each["error"] for each in content["measurements"]] == [None] * 4
    assert all(ratio["value"] < 1 for ratio in content["ratios"])
