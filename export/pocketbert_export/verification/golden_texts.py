"""Choose the golden texts, and write their answers: `answers.jsonl` and `goldens.safetensors`.

The first lines have raw outputs, too: a text to fill each length, the shortest text, and texts to show the tokenizer's
options. Then come texts that other tokenizers often read otherwise, and ordinary texts from the user's data.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert import files
from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.data.readers.text_pairs import single_texts
from pocketbert.encoder import INPUT_NAMES
from pocketbert.layers.embeddings import padding_after_texts
from pocketbert.model import Model
from pocketbert.recipes import RECIPES, Bounds
from pocketbert.tasks.base import Task
from pocketbert.tasks.metrics import root_mean_square
from pocketbert.tasks.registry import get_task
from pocketbert.tasks.texts import TextTask
from pocketbert_export.bundles.bundle import GOLDENS_FILE, Bundle
from pocketbert_export.bundles.goldens import Golden, outputs_file, window_inputs
from pocketbert_export.checks.outputs import centred
from pocketbert_export.verification.default_texts import DEFAULT_QUESTION, DEFAULT_TEXTS
from pocketbert_runtime.bundles.description import ANSWERS_FILE
from pocketbert_runtime.bundles.golden_answers import MOST_BYTES, MOST_LINES, GoldenLine, GoldenReader
from pocketbert_runtime.forward import Outputs
from pocketbert_runtime.tokenizers.base import TextTokenizer

# Golden examples are few: with very many added tokens, the first ones are tried with their flags.
_MOST_ADDED_TEXTS = 16
_MOST_SHOWN_WITH_FLAGS = 64
# Enough to find a full text for every usual length.
_MOST_COUNTED = 128
# In byte-level BPE and unigram, these precede tokens behind a space.
_SPACE_MARKS = "\u0120\u2581"
# Texts that tokenizers of other libraries, or written by hand, often read otherwise.
_SPECIAL_TEXTS = (
    "",
    " \t\n ",
    "他说：“我们明天去北京。”",
    "So happy 🙂👍🏽 today 👩\u200d👩\u200d👧!",
    "A literal [SEP] and a [CLS], <s> or </s> in a text.",
    "Donau" + "dampfschifffahrtsgesellschaft" * 9 + " is one word.",
    "na\u00efve nai\u0308ve \u2014 \u201cquotes\u201d\u2026 1\u00bd km\u00b2 \ufb01ne\u00a0\u200btext",
    "don't  re-enter @user #1 $4.50 e.g. https://a.b/c?d=1",
)
# Six decimals are written; this leaves room for their rounding.
_LEAST_TOLERANCE = 1e-5
# A tenth of the largest of a vector's errors, if normally distributed, exceeds four root mean squares in 1,600 numbers.
_LARGEST_IN_VECTOR = 4.0


def write_golden_answers(
    folder: Path, description: Mapping[str, Any], model: Model, candidates: Examples, bounds: Bounds | None
) -> dict[str, Any]:
    """Chooses golden texts, and writes their answers and raw outputs.

    Args:
      folder: the bundle's folder, with all files for predictions.
      description: `bundle.json` without `files` and `answers`.
      model: the float model behind `model.tflite`: with separate pairs, the encoder.
      candidates: texts of the user, without labels and prompts.
      bounds: the gate's limits; None for the recipe's.
    Returns:
      `answers` in `bundle.json`.
    """
    # The files are listed when the golden answers are among them.
    unlisted = {"file": ANSWERS_FILE, "sha256": "", "tolerance": 0.0}
    exported = Bundle(folder, {**description, "files": {}, "answers": unlisted})
    bounds = bounds or RECIPES[exported.recipe].bounds
    reader, tokenizer = exported.golden_reader(), exported.runtime_tokenizer
    config = exported.pair_task or exported.task
    if config is not None and get_task(config).has_vectors:
        candidates = single_texts(candidates)
    inputs = _inputs(config, candidates)
    reads_pairs = config is None or (isinstance(get_task(config), TextTask) and config.pairs is None)
    as_pair = reads_pairs and model.config.type_vocab_size > 1
    raw = [
        *_full_texts(reader, inputs, exported.lengths),
        *_made(config, candidates, [_tokenizer_text(tokenizer)], as_pair=as_pair),
    ]
    room = exported.lengths[-1] - tokenizer.frame.num_special_tokens(pairs=len(inputs[0]) > 1)
    room = room // 2 if len(inputs[0]) > 1 else room
    raw += _made(config, candidates, _added_token_texts(tokenizer, room))
    special = _made(config, candidates, [*_SPECIAL_TEXTS, *_prompted(config), _long_text(tokenizer, room)])
    raw = _distinct(raw)
    chosen = _distinct([*raw, *special, *_evenly(inputs, MOST_LINES)])[:MOST_LINES]
    answered = [reader.line(one) for one in chosen]
    lines: list[bytes] = []
    for line, _ in answered:
        content = line.to_json().encode() + b"\n"
        if sum(map(len, lines)) + len(content) <= MOST_BYTES:
            lines.append(content)
        elif len(lines) < len(raw):
            # A later line may be shorter, but raw outputs have the lines' indices.
            break
    with_outputs = [line for line, _ in answered[: min(len(raw), len(lines))]]
    goldens = _with_outputs(model, exported, with_outputs, reader.pad_token_id)
    task = None if config is None else get_task(config)
    tolerance = _tolerance(task, [outputs for _, outputs in answered if outputs], bounds)
    files.write_bytes(folder / ANSWERS_FILE, b"".join(lines))
    files.write_bytes(folder / GOLDENS_FILE, outputs_file(goldens))
    return {"file": ANSWERS_FILE, "sha256": files.sha256(folder / ANSWERS_FILE), "tolerance": tolerance}


def _inputs(config: TaskConfig | None, examples: Examples) -> list[dict[str, str]]:
    """Returns examples by the names of `predict`'s JSONL files."""
    if examples.pairs is None:
        return [{"text": text} for text in examples.texts]
    names = ("question", "context") if _asks(config) else ("text", "pair")
    return [dict(zip(names, both, strict=True)) for both in zip(examples.texts, examples.pairs, strict=True)]


def _asks(config: TaskConfig | None) -> bool:
    return config is not None and config.rules.reads == "questions"


def _made(
    config: TaskConfig | None, examples: Examples, texts: Iterable[str], *, as_pair: bool = False
) -> list[dict[str, str]]:
    """Returns made texts in the examples' form: the second text alternates with the first; questions have both."""
    texts = list(texts)
    if _asks(config):
        questions = [{"question": DEFAULT_QUESTION, "context": text} for text in texts]
        return questions + [{"question": text, "context": DEFAULT_TEXTS[3]} for text in texts[:1]]
    if examples.pairs is None and not as_pair:
        return [{"text": text} for text in texts]
    pairs = [(text, DEFAULT_TEXTS[3]) if row % 2 == 0 else (DEFAULT_TEXTS[0], text) for row, text in enumerate(texts)]
    return [{"text": first, "pair": second} for first, second in pairs]


def _full_texts(
    reader: GoldenReader, inputs: Sequence[Mapping[str, str]], lengths: Sequence[int]
) -> list[Mapping[str, str]]:
    """Chooses the fullest text per length, or makes one, and the shortest text."""
    counted = [(_count(reader, one), one) for one in _evenly(inputs, _MOST_COUNTED)]
    chosen: list[Mapping[str, str]] = []
    shorter = 0
    for length in lengths:
        fitting = [one for one in counted if shorter < one[0] <= length]
        joined = None if fitting else _joined(reader, inputs, length)
        if fitting:
            chosen.append(max(fitting, key=lambda one: one[0])[1])
        elif joined is not None and shorter < _count(reader, joined) <= length:
            chosen.append(joined)
        shorter = length
    return [*chosen, min(counted, key=lambda one: one[0])[1]]


def _joined(reader: GoldenReader, inputs: Sequence[Mapping[str, str]], length: int) -> Mapping[str, str] | None:
    """Makes a text of so many words that it just fits; None if no word does."""
    *names, last = inputs[0]
    words = " ".join(one[last] for one in [*inputs[:_MOST_COUNTED]] * 2).split()[: 2 * length] or ["a"] * length
    for first in ({name: inputs[0][name] for name in names}, dict.fromkeys(names, "")):

        def of_words(count: int, first: Mapping[str, str] = first) -> dict[str, str]:
            return {**first, last: " ".join(words[:count])}

        if _count(reader, of_words(0)) <= length:
            low, high = 0, len(words)
            while low < high:
                middle = (low + high + 1) // 2
                low, high = (middle, high) if _count(reader, of_words(middle)) <= length else (low, middle - 1)
            return of_words(low)
    return None


def _count(reader: GoldenReader, one: Mapping[str, str]) -> int:
    return max(len(window.ids) for window in reader.windows([one])[:1])


def _with_outputs(model: Model, exported: Bundle, lines: Sequence[GoldenLine], pad_token_id: int) -> list[Golden]:
    """Runs the float model and the file on each line's first window."""
    rows = [window_inputs(line.windows[0], exported.lengths, pad_token_id) for line in lines]
    outputs: list[dict[str, np.ndarray]] = [{} for _ in rows]
    for length in {row["input_mask"].shape[1] for row in rows}:
        indices = [index for index, row in enumerate(rows) if row["input_mask"].shape[1] == length]
        batch = {name: np.concatenate([rows[index][name] for index in indices]) for name in INPUT_NAMES}
        with padding_after_texts(model):
            answers = {name: array.numpy() for name, array in model(batch, training=False).items()}
        for number, index in enumerate(indices):
            outputs[index] = {name: array[number : number + 1] for name, array in answers.items()}
    return [
        Golden(
            text=line.text,
            pair=line.pair,
            length=row["input_mask"].shape[1],
            inputs=row,
            outputs=of_model,
            exported_outputs=exported.run(row),
        )
        for line, row, of_model in zip(lines, rows, outputs, strict=True)
    ]


def _tolerance(task: Task | None, outputs: Sequence[Outputs], bounds: Bounds) -> float:
    """Derives the largest difference of a probability, score or vector element from `own_difference`.

    A logit may differ by d, this bound times the logits' root mean square, after the constant is subtracted that the
    task ignores. A softmax then differs by at most d / 2, a sigmoid by d / 4, and a score by d. An answer to a question
    has the sum of two logits, 2 d. A vector differs by d in its root mean square, one element by four times as much.
    """
    largest = _LEAST_TOLERANCE
    for name in outputs[0] if task is not None and outputs else ():
        assert task is not None
        values = {name: np.concatenate([part[name] for part in outputs])}
        of_output = task.of_output(name)
        scale = root_mean_square(values[name])
        share = 2.0 if of_output.per_token and not of_output.config.labels else 1.0
        if of_output.has_independent_labels:
            share = 0.25
        elif of_output.config.labels:
            least = of_output.least_centred_scale * scale
            scale, share = max(root_mean_square(centred(values, task)[name]), least), 0.5
        elif of_output.has_vectors:
            share = _LARGEST_IN_VECTOR
        largest = max(largest, bounds.own_difference * scale * share)
    # Two digits, rounded up.
    step = 10.0 ** (np.floor(np.log10(largest)) - 1)
    return float(f"{np.ceil(largest / step - 1e-9) * step:.6g}")


def _distinct(inputs: Iterable[Mapping[str, str]]) -> list[Mapping[str, str]]:
    return [*{(*one.items(),): one for one in inputs}.values()]


def _evenly(inputs: Sequence[Any], count: int) -> list[Any]:
    return [inputs[int(index)] for index in np.linspace(0, len(inputs) - 1, min(len(inputs), count))]


def _prompted(config: TaskConfig | None) -> list[str]:
    """A text behind each prompt, unless a default prompt precedes all texts."""
    if config is None or config.embedding is None or config.embedding.prompt:
        return []
    return [f"{prompt}{DEFAULT_TEXTS[0]}" for _, prompt in config.embedding.prompts]


def _long_text(tokenizer: TextTokenizer, room: int) -> str:
    """Text with more tokens than the longest length has room for, so that it is cut, or read in windows."""
    text = " ".join(DEFAULT_TEXTS)
    starts = tokenizer.tokens([text]).starts
    return text[: int(starts[min(room + room // 4 + 2, len(starts) - 1)])].strip()


def _tokenizer_text(tokenizer: TextTokenizer) -> str:
    """Text with capitals, accents and CJK characters in known words: any other flag changes ids."""
    tokens = (token.lstrip(_SPACE_MARKS) for token in tokenizer.vocabulary.tokens())
    word = next((token for token in tokens if re.fullmatch("[a-z]{2,}", token)), "the")
    # The acute accent is a separate character. Short lengths truncate the end.
    text = f"東京 {word.upper()} {word[0]}\u0301{word[1:]} Café Ångström, ÎLE de l'Été, GRÖSSE 大"
    # A normalizer decomposes these, and joins the spaces.
    return text if tokenizer.vocabulary.rules.has_options else f"½  {text} ﬁ"


def _added_token_texts(tokenizer: TextTokenizer, room: int) -> list[str]:
    """Texts with each added token, alone, inside a word and in other case: any other flag changes ids."""
    if not tokenizer.vocabulary.added:
        return []
    tokens = [token.content for token in tokenizer.vocabulary.added]
    samples = [f" {token}  the{token}the {token.swapcase()}" for token in tokens]
    if len(tokens) > _MOST_SHOWN_WITH_FLAGS:
        samples[_MOST_SHOWN_WITH_FLAGS:] = [f" {token}" for token in tokens[_MOST_SHOWN_WITH_FLAGS:]]
    texts, used = [""], 0
    for sample, ids in zip(samples, tokenizer.id_rows(samples), strict=True):
        if texts[-1] and used + len(ids) > room:
            texts, used = [*texts, ""], 0
        texts[-1] += sample
        used += len(ids)
    return texts[:_MOST_ADDED_TEXTS]
