"""Does masked LM on texts of your domain help a model that is fine-tuned and distilled afterwards?

The domain is Wikinews. The task is to find names in lower-cased sentences: all-MiniLM's vocabulary has no capital
letters, so the model needs the words around a name. A name is a run of words with capital letters behind the first word
of a sentence. Sentences for training, dev split and test come from articles that the masked LM does not read.

For each of three seeds, all-MiniLM is fine-tuned as it is, and after masked LM on other articles. A student with three
layers is distilled from each. The study takes about an hour on two cores.

    python -m studies domain_adaptation
"""

from __future__ import annotations

import json
import lzma
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import pocketbert as pb
from pocketbert.data.assets import minilm
from pocketbert.data.task_data import TaskData
from pocketbert.progress import log_info
from pocketbert.tasks.predictor import model_predictor
from pocketbert_bench import accuracy, results
from studies.shared_data import shared_data

SEEDS, ARTICLES, TRAIN, DEV, TEST = (0, 1, 2), 3000, 400, 100, 1000
ADAPTED, AS_IS = "after masked LM", "as it is"
TEACHER, STUDENT = "teacher", "student with 3 layers"
_LAYERS, _LENGTH, _NAME = (2, 4, 6), 64, "NAME"
_STEPS, _QUICK_STEPS, _STUDENT_STEPS = 400, 10, 300
# More passes than a student needs for its steps.
_EPOCHS = 100
_MARKUP = re.compile(r"[{}\[\]<>|=_&#*]|http|\(\s*\)|\( ?,")
_WORD = re.compile(r"\S+")


def run(quick: bool) -> dict[str, Any]:
    """Scores both teachers and both students for each seed."""
    records: list[results.Accuracy] = []
    notes: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        for seed in SEEDS[:1] if quick else SEEDS:
            records += _of_seed(seed, Path(name, str(seed)), notes, quick=quick)
    for network in (TEACHER, STUDENT):
        adapted, as_is = (
            np.array([record.value for record in records if record.model == f"{network}, {start}"])
            for start in (ADAPTED, AS_IS)
        )
        gains = 100 * (adapted - as_is)
        by_seed = ", ".join(f"{gain:.1f}" for gain in gains)
        notes.append(f"points of F1 gained by the {network}: {gains.mean():.1f} as a mean over seeds ({by_seed})")
    return results.to_json(results.result_file("domain adaptation", quick=quick, accuracies=records, notes=notes))


def _of_seed(seed: int, folder: Path, notes: list[str], *, quick: bool) -> list[results.Accuracy]:
    """Scores of a seed; adds the perplexities to the notes."""
    folder.mkdir()
    data = _write_texts(seed, folder)
    run_options = pb.RunConfig(seed=seed)
    # The masked-LM head is new, so it takes a larger rate than the default for a trained one.
    config = pb.PretrainConfig(
        objective="mlm",
        steps=_QUICK_STEPS if quick else _STEPS,
        batch_size=16,
        max_length=_LENGTH,
        learning_rate=1e-4,
    )
    adapted: Any = pb.pretrain(
        minilm(), pb.data.text(folder / "articles.txt"), folder / "lm", config=config, run=run_options
    )
    before, after = (
        metrics["masked_lm_perplexity"] for metrics in (adapted.metrics_before or {}, adapted.metrics or {})
    )
    notes.append(f"seed {seed}: perplexity of the masked LM: {before:,.0f} before, {after:,.0f} after")
    records = []
    for start, directory in ((AS_IS, minilm()), (ADAPTED, Path(adapted.model_directory))):
        stem = folder / start.replace(" ", "-")
        limits = pb.RunConfig(seed=seed, max_steps=_QUICK_STEPS) if quick else run_options
        tuning = pb.FinetuneConfig(max_length=_LENGTH, epochs=5)
        teacher = pb.finetune(directory, data, stem / "teacher", config=tuning, run=limits)
        steps = _QUICK_STEPS if quick else _STUDENT_STEPS
        student = pb.distill(
            pb.TeacherLayers(_LAYERS),
            data,
            stem / "student",
            teacher=teacher.model_directory,
            method=pb.TinyBERT(max_length=_LENGTH, intermediate_epochs=_EPOCHS, prediction_epochs=_EPOCHS),
            run=pb.RunConfig(seed=seed, max_steps=steps, evaluation_steps=steps),
        )
        for network, model in ((TEACHER, teacher.model), (STUDENT, student.model)):
            records.append(_record(f"seed {seed}", f"{network}, {start}", model, data))
            log_info(f"{records[-1].label}: {records[-1].model}: {100 * records[-1].value:.1f}")
    return records


def _write_texts(seed: int, folder: Path) -> TaskData:
    """Writes `articles.txt` for the masked LM, and reads sentences with names of other articles."""
    random = np.random.default_rng(seed)
    articles = _articles()
    order = random.permutation(len(articles))
    read, unread = order[:ARTICLES], order[ARTICLES:]
    text = "\n\n".join("\n".join(articles[index]) for index in read)
    (folder / "articles.txt").write_text(text + "\n", encoding="utf-8")
    counts = {"train": TRAIN, "dev": DEV, "test": TEST}
    sentences = (sentence for index in unread for sentence in articles[index])
    for name, count in counts.items():
        lines: list[str] = []
        while len(lines) < count:
            row = _with_names(next(sentences))
            if row is not None:
                lines.append(json.dumps(row, ensure_ascii=False))
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    files = (folder / f"{name}.jsonl" for name in counts)
    return pb.data.tagged(next(files), dev=next(files), test=next(files))


def _articles() -> list[list[str]]:
    """Sentences of the articles that have at least three without markup."""
    with lzma.open(shared_data("text/enwikinews2022.jsonl.xz"), "rt", encoding="utf-8") as file:
        articles = [list(_sentences(json.loads(line)["text"])) for line in file]
    return [sentences for sentences in articles if len(sentences) >= 3]


def _sentences(text: str) -> Iterator[str]:
    for line in text.splitlines():
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z])", line.strip()):
            if 8 <= len(sentence.split()) <= 40 and sentence.isascii() and not _MARKUP.search(sentence):
                yield sentence


def _with_names(sentence: str) -> dict[str, Any] | None:
    """The lower-cased sentence with the places of its names; None without one."""
    spans: list[list[Any]] = []
    after_name = False
    for number, word in enumerate(_WORD.finditer(sentence)):
        # Quotes, brackets and points are no part of a name.
        core = re.search(r"[A-Za-z0-9][A-Za-z0-9'.-]*[A-Za-z0-9]", word.group())
        is_name = number > 0 and core is not None and core.group()[0].isupper() and core.end() > 1
        if is_name and core is not None:
            start, end = word.start() + core.start(), word.start() + core.end()
            if after_name:
                spans[-1][1] = end
            else:
                spans.append([start, end, _NAME])
            # A comma ends a name.
            after_name = core.end() == len(word.group())
        else:
            after_name = False
    return {"text": sentence.lower(), "spans": spans} if spans else None


def _record(label: str, name: str, network: pb.Model, data: TaskData) -> results.Accuracy:
    metrics = model_predictor(network, max_length=_LENGTH).evaluator(data.test).metrics("at the end")
    return accuracy.record(
        label=label,
        model=name,
        recipe="float32",
        task="names in lower-cased news",
        split=f"{TEST:,} sentences of other articles",
        metric="f1",
        value=metrics["f1"],
        examples=TEST,
    )
