"""Comparing two networks: the same answers as one by one, intervals that cover the truth, exit codes and messages."""

from __future__ import annotations

import csv
import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import tiny
import tiny_finetuning
import tiny_heads
import tiny_questions
from sklearn.metrics import f1_score

import pocketbert as pb
from pocketbert import cli
from pocketbert.data.examples import Examples
from pocketbert.data.readers.tables import column_values
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.tasks import scores
from pocketbert_bench import model_comparison, paired_scores
from pocketbert_bench.compression.folds import FoldScores, pooled
from pocketbert_runtime import windows
from pocketbert_runtime.answers import span
from pocketbert_runtime.decision_config import DecisionConfig
from pocketbert_runtime.forward import Forward
from pocketbert_runtime.rows import TokenRows
from pocketbert_runtime.windows import WindowOptions

LABELS = ("bad", "fair", "good")
COUNT = 237


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tiny_finetuning.write_model(tmp_path_factory.mktemp("encoder") / "model")
    return pb.from_pretrained(folder).tokenizer


def network(tokenizer: Any, seed: int, labels: tuple[str, ...] = LABELS, never: str = "", name: str = "") -> Model:
    """A network whose answers depend on the text; `never` is a class that it never chooses."""
    task = pb.TaskConfig(kind="classification", labels=labels, name=name)
    config = tiny.BERT.replace(num_layers=1, initializer_range=0.7, vocab_size=tokenizer.vocab_size)
    model = pb.from_preset(config, [task], tokenizer, seed=seed)
    bias = next(
        weight
        for path, weight in model.weights_by_path().items()
        if path.startswith("heads.") and tuple(weight.shape) == (len(labels),)
    )
    texts = tiny_finetuning.examples(COUNT, 3).texts
    mean = np.mean([list(answer["probabilities"].values()) for answer in model.predict(texts)], axis=0)
    bias.assign(np.where(np.array(labels) == never, -90.0, -np.log(mean)))
    return model


def answers(model: Model, texts: list[str]) -> np.ndarray:
    return np.array([answer["label"] for answer in model.predict(texts)])


@pytest.fixture(scope="module")
def pair(tokenizer: Any) -> tuple[Model, Model]:
    """Two networks; the labels of the second one have another order, and it never answers fair."""
    return network(tokenizer, 4), network(tokenizer, 9, ("good", "bad", "fair"), never="fair")


@pytest.fixture(scope="module")
def labelled(pair: tuple[Model, Model]) -> Examples:
    """Sentences with the first network's answers, of which every fifth is changed."""
    texts = tiny_finetuning.examples(COUNT, 3).texts
    labels = np.array([LABELS.index(label) for label in answers(pair[0], texts)], np.int32)
    labels[::5] = (labels[::5] + 1) % 3
    return Examples(texts, None, labels, [str(index) for index in range(COUNT)], "here")


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bootstrap intervals take little time; their ends are inexact."""
    for module in (paired_scores, scores):
        monkeypatch.setattr(module, "_RESAMPLES", 20)


def test_scores_and_changed_answers_are_those_of_each_network(pair: tuple[Model, Model], labelled: Examples) -> None:
    compared = pb.compare(*pair, labelled)
    assert labelled.labels is not None
    labels = np.array(LABELS)[labelled.labels]
    first, second = (answers(model, labelled.texts) == labels for model in pair)
    assert compared.scores == pytest.approx((first.mean(), second.mean()))
    assert compared.points_lost == pytest.approx(100 * (first.mean() - second.mean())) and compared.examples == COUNT
    assert compared.newly_wrong == (first & ~second).sum() > 20
    assert compared.newly_right == (second & ~first).sum() > 0
    assert len(compared.wrong_texts) == 20
    for mistake in compared.wrong_texts:
        assert first[mistake.index] and not second[mistake.index]
        assert (mistake.text, mistake.label) == (labelled.texts[mistake.index], labels[mistake.index])
        assert mistake.prediction == answers(pair[1], [mistake.text])[0]
    assert all(second[mistake.index] and not first[mistake.index] for mistake in compared.right_texts)
    assert compared.latency_ms is None and compared.size_mb[0] > 0


def test_a_class_that_is_never_answered_is_named_first(pair: tuple[Model, Model], labelled: Examples) -> None:
    compared = pb.compare(*pair, labelled)
    assert labelled.labels is not None
    fair = labelled.labels == LABELS.index("fair")
    right = answers(pair[0], labelled.texts)[fair] == "fair"
    worst = compared.parts[0]
    assert (worst.column, worst.value, worst.examples) == ("label", "fair", fair.sum())
    assert worst.points == pytest.approx(100 * right.mean())
    assert "worst: label 'fair' loses" in str(compared).splitlines()[0]


@pytest.mark.usefixtures("few_resamples")
def test_slices_have_the_metric_of_their_examples(pair: tuple[Model, Model], labelled: Examples) -> None:
    values = ["de"] * 100 + ["fr"] * 108 + ["us"] * 29
    compared = pb.compare(*pair, labelled, metric="macro_f1", slices={"country": values})
    assert labelled.labels is not None
    labels = np.array(LABELS)[labelled.labels]
    parts = {part.value: part for part in compared.parts if part.column == "country"}
    assert parts.keys() == {"de", "fr"} and compared.small_parts == 1
    for value, places in (("de", slice(0, 100)), ("fr", slice(100, 208))):
        expected = [
            f1_score(labels[places], answers(model, labelled.texts[places]), average="macro", labels=LABELS)
            for model in pair
        ]
        assert parts[value].points == pytest.approx(100 * (expected[0] - expected[1]))
        assert parts[value].interval[0] < parts[value].points < parts[value].interval[1]
    assert "1 classes and slices have fewer than 30 examples" in str(compared)


def test_a_slice_by_label_is_shown_once(pair: tuple[Model, Model], labelled: Examples) -> None:
    assert labelled.labels is not None
    classes = pb.compare(*pair, labelled)
    labels = [LABELS[label] for label in labelled.labels]
    capitals = [label.upper() for label in labels]
    assert pb.compare(*pair, labelled, slices={"label": labels, "in_capitals": capitals}).parts == classes.parts
    # Equal values of other examples are no classes.
    others = pb.compare(*pair, labelled, slices={"guess": [*labels[1:], labels[0]]})
    assert [part.value for part in others.parts if part.column == "guess"] and len(others.parts) > len(classes.parts)


# With six answers that differ, the interval is rather too wide.
@pytest.mark.parametrize(("differ", "count", "most"), [(0.15, 300, 196), (0.4, 61, 196), (0.03, 200, 200)])
def test_intervals_cover_the_true_difference(differ: float, count: int, most: int) -> None:
    """200 pairs of networks; the second one loses a third of the differing answers more than it gains."""
    random = np.random.default_rng(2)
    truth, covered = 100 * differ / 3, 0
    for _ in range(200):
        change = random.choice([1.0, -1.0, 0.0], count, p=[2 * differ / 3, differ / 3, 1 - differ])
        _, (low, high) = paired_scores.mean_loss(100 * change, 0.95)
        covered += low <= truth <= high
    assert 186 <= covered <= most


def points_of_correlation(labels: np.ndarray, first: np.ndarray, second: np.ndarray) -> Callable[[np.ndarray], float]:
    rows = np.stack([labels, first, second])

    def points(some: np.ndarray) -> float:
        correlations = np.corrcoef(rows[:, some])[0]
        return float(100 * (correlations[1] - correlations[2]))

    return points


@pytest.mark.nightly
def test_bootstrap_intervals_cover_the_true_difference() -> None:
    random = np.random.default_rng(5)
    # Correlations of 0.9 and 0.8 with the labels.
    truth, covered, count = 10.0, 0, 150
    for _ in range(200):
        labels, noise = random.normal(size=count), random.normal(size=(2, count))
        guesses = [
            share * labels + (1 - share**2) ** 0.5 * values for share, values in zip((0.9, 0.8), noise, strict=True)
        ]
        lost = points_of_correlation(labels, *guesses)
        _, (low, high) = paired_scores.resampled_loss(lost, np.arange(count), 0.95)
        covered += low <= truth <= high
    assert 186 <= covered <= 197


@pytest.fixture(scope="module")
def folders(pair: tuple[Model, Model], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    paths = [tmp_path_factory.mktemp("models") / name for name in ("first", "second")]
    for model, path in zip(pair, paths, strict=True):
        model.save_pretrained(path)
    return [str(path) for path in paths]


@pytest.fixture(scope="module")
def others(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Networks with other labels and for another task."""
    folder = tmp_path_factory.mktemp("others")
    network(tokenizer, 2, ("no", "yes")).save_pretrained(folder / "other")
    config = tiny.BERT.replace(num_layers=1, vocab_size=tokenizer.vocab_size)
    pb.from_preset(config, [pb.TaskConfig(kind="regression")], tokenizer, seed=1).save_pretrained(folder / "scores")
    return folder


@pytest.fixture(scope="module")
def table(labelled: Examples, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "dev.csv"
    assert labelled.labels is not None
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label", "shop"])
        for index, (text, label) in enumerate(zip(labelled.texts, labelled.labels, strict=True)):
            rows.writerow([text, LABELS[label], "north" if index % 2 else "south"])
    return path


@pytest.mark.parametrize(("most", "code"), [("90", 0), ("1.5", 1)])
def test_the_command_prints_the_comparison(
    folders: list[str], table: Path, labelled: Examples, pair: tuple[Model, Model], capsys: Any, most: str, code: int
) -> None:
    call = ["compare", *folders, f"--file={table}", "--slice-column=shop", f"--max-points-lost={most}"]
    assert cli.main(call) == code
    output = capsys.readouterr()
    compared = pb.compare(*pair, labelled, slices={"shop": ["south", "north"] * (COUNT // 2) + ["south"]})
    printed = json.loads(output.out)
    assert printed["points_lost"] == pytest.approx(compared.points_lost) and printed["first"] == folders[0]
    assert [part["points"] for part in printed["parts"]] == pytest.approx([part.points for part in compared.parts])
    assert ("at most 1.5 points may be lost" in output.err) == bool(code)


@pytest.fixture(scope="module")
def compared(folders: list[str], table: Path) -> model_comparison.ModelComparison:
    return pb.compare(*folders, pb.data.table(table), latency=False)


@pytest.mark.parametrize(("lost", "code"), [(100 * (0.9 - 0.89), 0), (1.001, 1)])
def test_a_loss_of_exactly_the_limit_is_allowed(
    folders: list[str],
    table: Path,
    compared: model_comparison.ModelComparison,
    monkeypatch: pytest.MonkeyPatch,
    lost: float,
    code: int,
) -> None:
    assert lost > 1
    changed = dataclasses.replace(compared, points_lost=lost)
    monkeypatch.setattr(model_comparison, "compare", lambda *_, **__: changed)
    assert cli.main(["compare", *folders, f"--file={table}", "--max-points-lost=1"]) == code


def test_a_slower_network_is_called_slower(compared: model_comparison.ModelComparison) -> None:
    lines = [str(dataclasses.replace(compared, latency_ms=ms, length=16)) for ms in ((2.0, 5.0), (5.0, 2.0))]
    assert "2.00 and 5.00 ms at 16 tokens: 2.50 times slower\n" in lines[0]
    assert "5.00 and 2.00 ms at 16 tokens: 2.50 times faster\n" in lines[1]


def test_several_heads_have_labels_in_one_order(tokenizer: Any) -> None:
    config = tiny.BERT.replace(num_layers=1, vocab_size=tokenizer.vocab_size)
    task = tiny_heads.task()
    mood, slots = task.tasks or ()
    turned = dataclasses.replace(task, tasks=(dataclasses.replace(mood, labels=mood.labels[::-1]), slots))
    models = [pb.from_preset(config, [one], tokenizer, seed=3) for one in (task, turned)]
    with pytest.raises(UserError, match="the same heads, with labels in the same order; received mood .*: high, low"):
        pb.compare(*models, tiny_heads.data().dev, latency=False)


def test_examples_without_labels_are_named(pair: tuple[Model, Model], labelled: Examples) -> None:
    with pytest.raises(UserError, match="^compare needs labels; here has none; pass labelled examples"):
        pb.compare(*pair, dataclasses.replace(labelled, labels=None))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "compare takes two models or bundles; received 1"),
        (["{second}", "--file={table}", "--slice-column=town"], "town"),
        (["{second}", "--file={plain}"], "label"),
        (["{second}"], "compare needs --data, a task's folder, or --file"),
        (
            ["{second}", "--file={table}", "--metric=bleu"],
            "--metric must be one of accuracy, macro_f1, matthews, auroc, f1:LABEL for classification; received 'bleu'",
        ),
        (
            ["{other}", "--file={table}"],
            "both networks must have the same labels; received bad, fair, good and no, yes",
        ),
        (
            ["{scores}", "--file={table}"],
            "both networks must have the same task; received classification and regression",
        ),
    ],
)
def test_bad_input_is_one_line(
    folders: list[str], table: Path, others: Path, tmp_path: Path, capsys: Any, arguments: list[str], message: str
) -> None:
    (tmp_path / "plain.csv").write_text("text\na film\n")
    names = {name: others / name for name in ("other", "scores")}
    names |= {"second": Path(folders[1]), "table": table, "plain": tmp_path / "plain.csv"}
    call = ["compare", folders[0], *(argument.format(**names) for argument in arguments)]
    assert cli.main(call) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("pocketbert compare: ")]
    assert len(lines) == 1 and message in lines[0]


@pytest.mark.usefixtures("few_resamples")
def test_label_orders_do_not_matter(tokenizer: Any, labelled: Examples) -> None:
    first = network(tokenizer, 4)
    task = pb.TaskConfig(kind="classification", labels=LABELS[::-1])
    second = pb.from_preset(first.config, [task], tokenizer)
    for path, weight in second.weights_by_path().items():
        value = first.weights_by_path()[path].numpy()
        weight.assign(value[..., ::-1] if path.startswith("heads.") and value.shape[-1] == 3 else value)
    compared = pb.compare(first, second, labelled, metric="macro_f1")
    assert compared.points_lost == 0 and compared.newly_wrong == compared.newly_right == 0
    assert str(compared).count("loses 0.0 points (0.0 to 0.0)") == 1


def test_thresholds_follow_the_order_of_the_labels(tokenizer: Any) -> None:
    examples, labels = tiny_finetuning.examples(90, 6), ("low", "high")
    models = [network(tokenizer, 4, labels), network(tokenizer, 4, labels[::-1])]
    heads = [next(iter(model.heads.values())).output_projection for model in models]
    for weight, turned in zip(heads[0].weights, heads[1].weights, strict=True):
        turned.assign(weight.numpy()[..., ::-1])
    for model in models:
        thresholds = tuple({"low": 0.2, "high": 0.8}[label] for label in model.task.labels)
        model.tasks = (dataclasses.replace(model.task, decisions=DecisionConfig(thresholds=thresholds)),)
    of_both = [answers(model, examples.texts) for model in models]
    assert np.array_equal(*of_both) and 45 < np.mean(of_both[0] == "low") * 90 < 90
    compared = pb.compare(*models, examples)
    assert compared.scores[0] == compared.scores[1] and compared.newly_wrong == compared.newly_right == 0


@pytest.mark.usefixtures("few_resamples")
def test_the_second_network_is_scored_by_the_metric_of_the_first(tokenizer: Any) -> None:
    examples = tiny_finetuning.examples(90, 6)
    first, second = network(tokenizer, 4, ("low", "high"), name="mrpc"), network(tokenizer, 5, ("high", "low"))
    compared = pb.compare(first, second, examples)
    assert examples.labels is not None and compared.metric == "f1"
    labels = np.array(["low", "high"])[examples.labels]
    expected = [f1_score(labels, answers(model, examples.texts), pos_label="high") for model in (first, second)]
    assert compared.scores == pytest.approx(expected)


def test_placeholder_labels_get_names(tokenizer: Any, labelled: Examples, pair: tuple[Model, Model]) -> None:
    unnamed = network(tokenizer, 4, ("LABEL_0", "LABEL_1", "LABEL_2"))
    with pytest.raises(UserError, match="received bad, fair, good and LABEL_0, .*; name placeholders with labels"):
        pb.compare(pair[0], unnamed, labelled)
    assert pb.compare(pair[0], unnamed, labelled, labels=LABELS).points_lost == pytest.approx(0)


def test_slices_need_a_value_for_each_example(pair: tuple[Model, Model], labelled: Examples) -> None:
    with pytest.raises(UserError, match="slices must have a value for each of the 237 examples; received 2"):
        pb.compare(*pair, labelled, slices={"country": ["de", "fr"]})


def test_slices_are_read_by_line(table: Path, labelled: Examples) -> None:
    data = pb.data.table(table, text="text", label="label").train
    shops = column_values(table, "shop")
    values = paired_scores.slice_values({"shop": shops}, data)["shop"]
    # Line 1 has the names of the columns.
    assert values == ["south" if int(name) % 2 == 0 else "north" for name in data.ids]
    with pytest.raises(UserError, match=rf"shop has none for '{data.ids[0]}' and {len(data) - 1} others"):
        paired_scores.slice_values({"shop": dict(enumerate(values))}, data)  # type: ignore[dict-item]


def test_absent_members_are_an_empty_value(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "a", "label": "x", "shop": 3}\n{"text": "b", "label": "y"}\n', encoding="utf-8")
    assert column_values(path, "shop") == {"1": "3", "2": ""}


def test_a_limit_of_a_class_needs_examples(labelled: Examples) -> None:
    paired_scores.check_classes(labelled)
    with pytest.raises(UserError, match="max_class_points_lost= needs at least 30 dev examples .* at most 8"):
        paired_scores.check_classes(
            Examples(["a"] * 11, None, np.array([0] * 3 + [2] * 8, np.int32), [*"abcdefghijk"], "")
        )


def test_a_limit_of_a_class_is_for_one_class_each() -> None:
    several = Examples(["a"] * 90, None, np.ones((90, 2), np.int32), [str(index) for index in range(90)], "tags.csv")
    with pytest.raises(UserError, match="is for texts with one class each; received tags.csv; leave it out"):
        paired_scores.check_classes(several)


def test_intervals_over_folds_are_those_of_a_t_test() -> None:
    students, teachers = [0.71, 0.8, 0.62, 0.77], [0.75, 0.79, 0.7, 0.83]
    folds = [
        FoldScores(metric="f1", examples=30 + number, student=student, teacher=teacher, methods={"words": 0.5})
        for number, (student, teacher) in enumerate(zip(students, teachers, strict=True))
    ]
    scores, loss = pooled(folds)
    expected = scipy.stats.ttest_1samp(students, 0).confidence_interval()
    assert scores.interval == pytest.approx((expected.low, expected.high)) and scores.examples == 126
    expected = scipy.stats.ttest_rel(teachers, students).confidence_interval()
    assert loss.interval == pytest.approx((100 * expected.low, 100 * expected.high))
    assert loss.points == pytest.approx(100 * (np.mean(teachers) - np.mean(students)))
    # No score is above 1.
    folds = [dataclasses.replace(fold, student=fold.student + 0.2) for fold in folds]
    assert scipy.stats.ttest_1samp([fold.student for fold in folds], 0).confidence_interval().high > 1
    assert pooled(folds)[0].interval == (pytest.approx(scores.interval[0] + 0.2), 1.0)


def test_cut_texts_are_counted_once(pair: tuple[Model, Model], labelled: Examples, capsys: Any) -> None:
    lengths = pair[0].tokenizer.tokenize(labelled.texts).row_lengths().numpy() + 2
    pb.compare(*pair, labelled, max_length=9)
    line = (
        f"{(lengths > 9).sum()} of {COUNT} texts are longer than 9 tokens and are cut (head); pass a larger max_length="
    )
    assert capsys.readouterr().err.count(line) == 1
    pb.compare(*pair, labelled)
    assert "are cut" not in capsys.readouterr().err


def test_each_window_of_a_question_is_computed_once(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = pb.data.questions(
        tiny_questions.write_questions(tmp_path / "train.json", 23, 1),
        dev=tiny_questions.write_questions(tmp_path / "dev.json", 41, 2),
    )
    config = tiny.BERT.replace(num_layers=1, initializer_range=0.7, vocab_size=tokenizer.vocab_size)
    models = [pb.from_preset(config, [tiny_questions.TASK], tokenizer, seed=seed) for seed in (4, 9)]
    chunks = functools.partial(windows.stream_windows, questions_a_chunk=7)
    monkeypatch.setattr(span, "stream_windows", chunks)
    rows: list[tuple[int, int]] = []

    def counted(index: int, forward: Forward, encoded: TokenRows, **options: Any) -> Any:
        rows.append((index, len(encoded)))
        return forward(encoded, **options)

    for index, model in enumerate(models):
        monkeypatch.setitem(vars(model), "forward", functools.partial(counted, index, model.forward))
    options = WindowOptions(max_length=tiny_questions.MAX_LENGTH)
    expected = [
        (index, len(part)) for index in (0, 1) for _, part in chunks(data.dev, models[index].tokenizer, options)
    ]
    compared = pb.compare(*models, data, max_length=tiny_questions.MAX_LENGTH)
    assert rows == expected and len(expected) == 12
    assert compared.points_lost == pytest.approx(100 * (compared.scores[0] - compared.scores[1]))
