"""What the benchmark's tests measure: a file that answers by hand, a tiny network, and made-up results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.presets import preset
from pocketbert_bench import host
from pocketbert_bench.configurations import Call, Configuration
from pocketbert_bench.results import (
    Delegate,
    GoldenCheck,
    Machine,
    Measurement,
    ResultFile,
    Runtime,
)

BRIEF = host.Schedule(rounds=3, runs=9, seconds=0.0, longest_seconds=1.0, warm_up_seconds=0.0)
TABLE = np.arange(33, dtype=np.float32).reshape(11, 3) / 7
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the a film is good bad dull bright , . ! not very".split()
MOOD = TaskConfig(kind="classification", name="mood", labels=("bad", "fair", "good"))
MACHINE = Machine(
    cpu="a processor",
    architecture="x86_64",
    instruction_sets=("avx2",),
    cores=3,
    memory_bytes=5_000_000_000,
    system="a system",
    python="3.11.0",
    packages={"numpy": "2.0"},
    governor=None,
    load_average=(0.5, 0.25, 0.125),
)


def measure_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements have the schedule `BRIEF`."""
    for name in ("FULL", "QUICK"):
        monkeypatch.setattr(host, name, BRIEF)


def write_sum_model(path: Path, lengths: tuple[int, ...] = (5, 8)) -> Path:
    """A file with one signature a length whose logits are the sum of the ids' rows of `TABLE`."""
    import tensorflow as tf

    module = tf.Module()
    module.table = tf.Variable(TABLE)

    def function(length: int) -> tf.types.experimental.ConcreteFunction:
        def answer(ids: tf.Tensor, mask: tf.Tensor) -> dict[str, tf.Tensor]:
            rows = tf.gather(module.table, ids) * tf.cast(mask, tf.float32)[..., None]
            return {"logits": tf.reduce_sum(rows, axis=1)}

        specs = {name: tf.TensorSpec([1, length], tf.int32, name=name) for name in ("ids", "mask")}
        return tf.function(answer).get_concrete_function(**specs)

    signatures = {f"length_{length}": function(length) for length in lengths}
    folder = path.with_suffix(".saved_model")
    tf.saved_model.save(module, str(folder), signatures=signatures)
    path.write_bytes(tf.lite.TFLiteConverter.from_saved_model(str(folder), signature_keys=list(signatures)).convert())
    return path


def sum_call(length: int, ids: tuple[int, ...] = (1, 4, 10), wrong_by: float = 0.0) -> Call:
    """A call of `write_sum_model`'s file with its answer, or one that is wrong by so much."""
    padding = [0] * (length - len(ids))
    expected = TABLE[list(ids)].astype(np.float64).sum(axis=0) + wrong_by
    return Call(
        signature=f"length_{length}",
        inputs={"ids": [*ids, *padding], "mask": [1] * len(ids) + padding},
        expected={"logits": [expected.tolist()]},
    )


def configuration(path: Path, length: int = 5, label: str = "sum", **changes: object) -> Configuration:
    """A configuration of `write_sum_model`'s file."""
    fields = {"recipe": "float32", "threads": 1, "calls": (sum_call(length),), **changes}
    return Configuration(label=label, model="sum", model_path=path, length=length, **fields)  # type: ignore[arg-type]


def bert_config(**changes: object) -> EncoderConfig:
    """A BERT whose matrices are large enough for the converter to quantize, every size different."""
    sizes = {
        "vocab_size": len(WORDS),
        "hidden_size": 40,
        "embedding_size": 40,
        "num_layers": 2,
        "num_attention_heads": 3,
        "head_size": 12,
        "intermediate_size": 56,
        "max_position_embeddings": 23,
    }
    return preset("tinybert_4l_312d").config.replace(**{**sizes, **changes})


def write_network(folder: Path, config: EncoderConfig | None = None, task: TaskConfig = MOOD) -> Path:
    """A model directory with random weights, biases included."""
    import pocketbert as pb

    folder.parent.mkdir(parents=True, exist_ok=True)
    vocabulary = folder.parent / "vocab.txt"
    vocabulary.write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    model = pb.from_preset(config or bert_config(), [task], pb.WordPieceTokenizer(vocabulary), seed=5)
    generator = np.random.default_rng(7)
    for path, variable in model.weights_by_path().items():
        shape = variable.shape.as_list()
        deviation = shape[0] ** -0.5 if path.endswith("kernel") else 0.3
        variable.assign(generator.normal(float(path.endswith("gamma")), deviation, shape))
    model.save_pretrained(folder)
    return folder


def measurement(
    label: str, length: int, milliseconds: float, *, recipe: str = "float32", **changes: object
) -> Measurement:
    """A made-up measurement: 4 rounds of 3 calls around a latency."""
    latency = tuple(round(1e3 * milliseconds * factor, 1) for factor in (1.0, 0.99, 1.02) * 4)
    fields = {
        "label": label,
        "model": "net",
        "recipe": recipe,
        "peer": False,
        "weights": "trained",
        "model_file": "model.tflite",
        "model_sha256": "ab" * 32,
        "size_bytes": 4_000_000,
        "signature": f"length_{length}",
        "length": length,
        "threads": 1,
        "runtime": Runtime(name="litert", version="2.0"),
        "delegate": Delegate(name="XNNPACK", delegated_ops=19, total_ops=20),
        "status": "ok",
        "error": None,
        "golden": GoldenCheck(examples=2, max_absolute_difference=0.0, tolerance=0.1),
        "init_us": 1500.0,
        "first_inference_us": 9000.0,
        "warm_up_runs": 10,
        "latency_us": latency,
        "round_sizes": (3,) * 4,
        "peak_memory_bytes": 70_000_000,
        "base_memory_bytes": 40_000_000,
        "thermal_start": None,
        "thermal_end": None,
        **changes,
    }
    return Measurement(**fields)  # type: ignore[arg-type]


def failed(label: str, length: int, error: str) -> Measurement:
    """A made-up failure."""
    nothing = dict.fromkeys(("runtime", "delegate", "golden", "init_us", "first_inference_us"))
    return measurement(label, length, 1.0, status="failed", error=error, latency_us=(), round_sizes=(), **nothing)


def result(*measurements: Measurement, **changes: object) -> ResultFile:
    """A made-up run."""
    fields = {
        "schema_version": 1,
        "title": "a run",
        "created": "2026-01-02T03:04:05+00:00",
        "measured_on": "host",
        "commit": None,
        "quick": False,
        "machine": MACHINE,
        "measurements": measurements,
        "accuracies": (),
        "ratios": (),
        "notes": (),
        **changes,
    }
    return ResultFile(**fields)  # type: ignore[arg-type]
