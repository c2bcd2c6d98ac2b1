"""A `.tflite` file of two lengths whose answers can be worked out by hand."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from bundle_folders import describe
from scipy.special import softmax

from pocketbert.checkpoints.vocabulary_files import write_tokenizer_json
from pocketbert.tokenizers.wordpiece import WordPieceTokenizer
from pocketbert_export.bundles import goldens
from pocketbert_export.bundles.goldens import Golden
from pocketbert_runtime.bundles.golden_answers import GoldenLine, Window

LENGTHS = (5, 9)
VOCAB_SIZE = 67
# Wide enough for the converter to quantize the kernel: it leaves matrices below 1024 elements alone.
WIDTH = 360
INPUT_NAMES = ("input_word_ids", "input_mask", "input_type_ids")
_generator = np.random.default_rng(11)
WORD_TABLE = _generator.normal(size=[VOCAB_SIZE, WIDTH]).astype(np.float32)
TYPE_TABLE = _generator.normal(size=[2, WIDTH]).astype(np.float32)
KERNEL = _generator.normal(size=[WIDTH, 3]).astype(np.float32)


class Bag(tf.Module):
    """Logits of the sum over tokens of word and segment vectors, and what can be wrong with such a file.

    Args:
      leak: weight of padding.
      foreign: `flex` or `custom`: an operator that is no TFLite builtin.
      zero: all answers are 0.
      length_bias: added to every logit, times the length.
    """

    def __init__(
        self, leak: float = 0.0, foreign: str | None = None, zero: bool = False, length_bias: float = 0.0
    ) -> None:
        super().__init__()
        self.word, self.kind, self.kernel = (tf.Variable(value) for value in (WORD_TABLE, TYPE_TABLE, KERNEL))
        self.leak, self.foreign, self.zero, self.length_bias = leak, foreign, zero, length_bias

    def function(self, length: int) -> tf.types.experimental.ConcreteFunction:
        def answer(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
            vectors = tf.gather(self.word, inputs["input_word_ids"]) + tf.gather(self.kind, inputs["input_type_ids"])
            weights = tf.maximum(tf.cast(inputs["input_mask"], tf.float32), self.leak)[..., tf.newaxis]
            logits = tf.reduce_sum(vectors * weights, axis=1) @ self.kernel + self.length_bias * length
            if self.foreign == "custom":
                logits = logits + tf.math.erfinv(logits * 1e-9)
            if self.foreign == "flex":
                logits = logits @ tf.linalg.inv(tf.eye(3) * (2.0 + tf.reduce_mean(logits) * 1e-9))
            return {"logits": logits * 0.0 if self.zero else logits}

        specs = {name: tf.TensorSpec([1, length], tf.int32, name=name) for name in INPUT_NAMES}
        return tf.function(answer).get_concrete_function(**specs)


def write(path: Path, bag: Bag, int8: bool = False) -> Path:
    """Converts `bag` with one signature a length; the same bag once in a process."""
    path.write_bytes(_converted(bag.leak, bag.foreign, bag.zero, bag.length_bias, int8))
    return path


@functools.cache
def _converted(leak: float, foreign: str | None, zero: bool, length_bias: float, int8: bool) -> bytes:
    bag = Bag(leak, foreign, zero, length_bias)
    signatures = {f"length_{length}": bag.function(length) for length in LENGTHS}
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(bag, folder, signatures=signatures)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=[*signatures])
        if foreign == "flex":
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS]
        converter.allow_custom_ops = foreign == "custom"
        if int8:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        content: bytes = converter.convert()
    return content


def rows(length: int, count: int, seed: int = 5) -> dict[str, np.ndarray]:
    """Random texts of 2 tokens up to `length`, `[count, length]`."""
    generator = np.random.default_rng(seed)
    tokens = generator.integers(2, length + 1, [count, 1])
    mask = (np.arange(length) < tokens).astype(np.int32)
    return {
        "input_word_ids": (generator.integers(1, VOCAB_SIZE, [count, length]) * mask).astype(np.int32),
        "input_mask": mask,
        "input_type_ids": (generator.integers(0, 2, [count, length]) * mask).astype(np.int32),
    }


def truth(inputs: dict[str, np.ndarray]) -> np.ndarray:
    """The logits, `[count, 3]`, in float64."""
    vectors = WORD_TABLE.astype(np.float64)[inputs["input_word_ids"]] + TYPE_TABLE[inputs["input_type_ids"]]
    return (vectors * inputs["input_mask"][..., np.newaxis]).sum(axis=1) @ KERNEL


def vocabulary() -> list[str]:
    """67 tokens: the special tokens and words `a1` to `a62`."""
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"a{number}" for number in range(1, VOCAB_SIZE - 4))]


@functools.cache
def tokenizer() -> WordPieceTokenizer:
    """One for all handmade bundles."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "vocab.txt")
        path.write_text("\n".join(vocabulary()) + "\n", encoding="utf-8")
        return WordPieceTokenizer(path)


TEXTS = ("a1 a2", "a7", "a9 a60 a33 a20 a41", "a5 a1 a1", "a30 a31 a32 a33 a34 a35")


def answer_of(model: Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The file's own answer."""
    interpreter = Interpreter(model_path=str(model), num_threads=1)
    return interpreter.get_signature_runner(f"length_{inputs['input_mask'].shape[1]}")(**inputs)


def write_bundle(
    folder: Path, bag: Bag, *, recipe: str = "float32", runtimes: tuple[str, ...] = ("litert",), int8: bool = False
) -> Path:
    """A bundle around `bag`'s file, whose golden examples have the answers that a sound file gives."""
    folder.mkdir(parents=True)
    write(folder / "model.tflite", bag, int8)
    (folder / "vocab.txt").write_text("\n".join(vocabulary()) + "\n", encoding="utf-8")
    write_tokenizer_json(folder, tokenizer().vocabulary)
    examples, lines = [], []
    for text, length in zip(TEXTS, (5, 5, 9, 5, 9), strict=True):
        inputs = {
            name: np.asarray(array) for name, array in tokenizer()([text], max_length=length, pad_to=length).items()
        }
        answer = {"logits": truth(inputs).astype(np.float32)}
        examples.append(
            Golden(
                text=text,
                pair=None,
                length=length,
                inputs=inputs,
                outputs=answer,
                exported_outputs=answer if bag.foreign else answer_of(folder / "model.tflite", inputs),
            )
        )
        lines.append(_line(text, inputs, examples[-1].exported_outputs["logits"][0]).to_json() + "\n")
    (folder / "goldens.safetensors").write_bytes(goldens.outputs_file(examples))
    (folder / "answers.jsonl").write_text("".join(lines), encoding="utf-8")
    (folder / "labels.txt").write_text("low\nmiddle\nhigh\n", encoding="utf-8")
    description = {
        "schema_version": 4,
        "task": {"kind": "classification", "name": "", "labels": ["low", "middle", "high"]},
        "signatures": [{"name": f"length_{length}", "length": length} for length in LENGTHS],
        "inputs": [{"name": name, "dtype": "int32"} for name in INPUT_NAMES],
        "outputs": [{"name": "logits", "dtype": "float32"}],
        "tokenizer": {
            "lowercase": True,
            "strip_accents": True,
            "tokenize_chinese_chars": True,
            "vocab_size": VOCAB_SIZE,
        },
        "recipe": recipe,
        "runtimes": list(runtimes),
        "graph_optimizations": {"none": "off"},
        "num_parameters": WORD_TABLE.size + TYPE_TABLE.size + KERNEL.size,
        "source": {"model.safetensors": "0" * 64},
        "tools": {"python": "3.11"},
        "files": {},
        # Float32 sums of 360 products.
        "answers": {"file": "answers.jsonl", "sha256": "", "tolerance": 1e-3},
    }
    return describe(folder, description)


def _line(text: str, inputs: dict[str, np.ndarray], logits: np.ndarray) -> GoldenLine:
    """A line of `answers.jsonl`: words are tokens, and have one space between them."""
    count = int(inputs["input_mask"].sum())
    ends = np.cumsum([len(word) + 1 for word in text.split()]) - 1
    offsets = [
        (0, 0),
        *((int(end) - len(word), int(end)) for word, end in zip(text.split(), ends, strict=True)),
        (0, 0),
    ]
    window = Window(tuple(inputs["input_word_ids"][0, :count].tolist()), (0,) * count, tuple(offsets))
    labels, values = ("low", "middle", "high"), softmax(logits.astype(np.float64))
    probabilities = {label: round(float(value), 6) for label, value in zip(labels, values, strict=True)}
    answer = {"label": labels[int(values.argmax())], "probabilities": probabilities}
    return GoldenLine(inputs={"text": text}, windows=(window,), answer=answer)
