"""`pocketbert glue-submission` and `glue-scores`: several models at once, from directories and from a bundle."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from pathlib import Path

import networks
import numpy as np
import pytest

from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.data.readers.glue import GLUE
from pocketbert.data.readers.submission import FILES
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert_export.glue.models import parse_models
from pocketbert_export.glue.scores import summarize, table

# Each predicts a few texts, for which a graph takes longer than it saves.
pytestmark = pytest.mark.usefixtures("eager")

# As other exporters number them: all differ from GLUE's order, and MNLI's is not its own inverse.
TASKS = {
    "cola": TaskConfig(kind="classification", name="cola", labels=("acceptable", "unacceptable")),
    "mnli": TaskConfig(kind="classification", name="mnli", labels=("contradiction", "entailment", "neutral")),
    "stsb": TaskConfig(kind="regression", name="stsb"),
}
WRITTEN = {"acceptable": "1", "unacceptable": "0"}
SENTENCES = ["the film is good", "dull", "a cat walks", "very bad", "so bright a story", "rain", "sun", "badly walked"]
PAIRS = list(zip(SENTENCES, [*SENTENCES[3:], *SENTENCES[:3]], strict=True))
MNLI_TEST = "index promptID pairID genre parse1 parse2 parse3 parse4 sentence1 sentence2".split()
STSB_TEST = "index genre filename year old_index source1 source2 sentence1 sentence2".split()


@pytest.fixture(scope="module")
def models(small_model: Model, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    models = {}
    for task, config in TASKS.items():
        model = models[task] = networks.network(networks.bert_config(), [config], small_model.tokenizer)
        if config.kind == "classification":
            # So that every label is the answer to some text.
            bias = model.weights_by_path()["heads.classification.output.bias"]
            logits = [logits_of(model, text, pair if task == "mnli" else None) for text, pair in PAIRS]
            bias.assign(bias - np.mean(logits, axis=0))
    # Scores from -1 to 6, some within STS-B's range.
    scores = [float(logits_of(models["stsb"], *pair)) for pair in PAIRS]
    slope = 7 / (max(scores) - min(scores))
    head = "heads.regression.output"
    kernel, bias = (models["stsb"].weights_by_path()[f"{head}.{name}"] for name in ("kernel", "bias"))
    kernel.assign(slope * kernel)
    bias.assign(slope * (bias - min(scores)) - 1)
    return models


@pytest.fixture(scope="module")
def paths(models: dict[str, Model], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Model directories, and of MNLI's model a bundle."""
    from pocketbert_export.exporter import export

    folder = tmp_path_factory.mktemp("glue models")
    for task, model in models.items():
        model.save_pretrained(folder / task)
    export(folder / "mnli", folder / "mnli bundle", recipe="float32", lengths=(9, 19))
    return {"cola": folder / "cola", "stsb": folder / "stsb", "mnli": folder / "mnli bundle"}


def logits_of(model: Model, text: str, pair: str | None = None) -> np.ndarray:
    """The model asked alone, without padding and without any of what is tested."""
    assert model.tokenizer is not None
    inputs = model.tokenizer([text], None if pair is None else [pair])
    return model(dict(inputs), training=False)["logits"].numpy()[0]


def answer(model: Model, text: str, pair: str | None = None) -> str:
    """The label's own name, or the score."""
    assert model.task is not None
    logits = logits_of(model, text, pair)
    return f"{float(logits):.6f}" if model.task.kind == "regression" else model.task.labels[int(logits.argmax())]


def write(path: Path, columns: list[str], rows: list[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["\t".join(columns), *("\t".join(row.get(name, f"{name}!") for name in columns) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def rows_of(count: int) -> list[dict[str, str]]:
    return [{"index": str(i), "sentence1": a, "sentence2": b} for i, (a, b) in enumerate(PAIRS[:count])]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The test files of the three tasks; all of different lengths."""
    folder = tmp_path_factory.mktemp("glue data")
    sentences = [{"index": str(index), "sentence": text} for index, text in enumerate(SENTENCES[:5])]
    write(folder / "CoLA" / "test.tsv", ["index", "sentence"], sentences)
    write(folder / "STS-B" / "test.tsv", STSB_TEST, rows_of(8))
    write(folder / "MNLI" / "test_matched.tsv", MNLI_TEST, rows_of(4))
    write(folder / "MNLI" / "test_mismatched.tsv", MNLI_TEST, rows_of(7)[1:])
    write(folder / "diagnostic" / "diagnostic.tsv", ["index", "sentence1", "sentence2"], rows_of(6)[3:])
    return folder


def flags(paths: dict[str, Path]) -> list[str]:
    return [f"--model={task}={path}" for task, path in paths.items()]


def table_of(texts: list[str]) -> bytes:
    return "".join(["index\tprediction\n", *(f"{i}\t{text}\n" for i, text in enumerate(texts))]).encode()


@pytest.mark.nightly
def test_a_submission(
    models: dict[str, Model], paths: dict[str, Path], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "submission.zip"
    arguments = ["glue-submission", *flags(paths), f"--data={data}", f"--output={output}"]
    constant = "--constant=sst2,mrpc,qqp,qnli,rte,wnli"
    assert cli.main([*arguments, constant]) == 0
    printed = capsys.readouterr()
    report = json.loads(printed.out)

    mnli = [answer(models["mnli"], *pair) for pair in PAIRS]
    cola = [WRITTEN[answer(models["cola"], text)] for text in SENTENCES[:5]]
    scores = [float(answer(models["stsb"], *pair)) for pair in PAIRS]
    assert len(set(mnli)) == 3 and len(set(cola)) == 2 and min(scores) < 0 and max(scores) > 5
    clipped = [min(max(score, 0.0), 5.0) for score in scores]
    with zipfile.ZipFile(output) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    assert set(content) == {file.name for file in FILES}
    assert content["CoLA.tsv"] == table_of(cola)
    assert content["MNLI-m.tsv"] == table_of(mnli[:4])
    assert content["MNLI-mm.tsv"] == table_of(mnli[1:7])
    assert content["AX.tsv"] == table_of(mnli[3:6])
    rows = [line.split("\t") for line in content["STS-B.tsv"].decode().splitlines()[1:]]
    # Three decimals are written.
    assert [float(score) for _, score in rows] == pytest.approx(clipped, abs=6e-4)
    # Without a test file: as many rows as the official one has.
    assert content["WNLI.tsv"] == table_of(["0"] * 146)
    assert content["RTE.tsv"] == table_of(["entailment"] * 3000)

    assert report["output"] == str(output) and report["seconds"] >= 0
    files = report["files"]
    assert files["STS-B.tsv"] == {
        "rows": 8, "answered_by": str(paths["stsb"]), "clipped": sum(not 0 <= score <= 5 for score in scores)
    }  # fmt: skip
    assert files["AX.tsv"] == {"rows": 3, "answered_by": str(paths["mnli"])}
    assert files["WNLI.tsv"] == {"rows": 146, "answered_by": "constant 0"}
    assert "5 rows, but the official file has 1063" in printed.err

    first = output.read_bytes()
    assert cli.main([*arguments, constant]) == 2
    assert "must not exist yet" in capsys.readouterr().err
    assert cli.main([*arguments, constant, "--overwrite"]) == 0
    assert output.read_bytes() == first


def test_scores_of_both_mnli_sets(
    models: dict[str, Model], paths: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = [answer(models["mnli"], *pair) for pair in PAIRS]
    following = {"entailment": "neutral", "neutral": "contradiction", "contradiction": "entailment"}
    columns = ["index", "genre", "sentence1", "sentence2", "label1", "gold_label"]
    for name, count, wrong in (("dev_matched", 8, {1, 6}), ("dev_mismatched", 5, {2})):
        rows = [
            row | {"gold_label": following[label] if index in wrong else label}
            for index, (row, label) in enumerate(zip(rows_of(count), labels, strict=False))
        ]
        write(tmp_path / "MNLI" / f"{name}.tsv", columns, rows)
    assert cli.main(["glue-scores", f"--model=mnli={paths['mnli']}", f"--data={tmp_path}"]) == 0
    printed = capsys.readouterr()
    scores = json.loads(printed.out)
    assert scores["columns"] == {"MNLI-m": 6 / 8, "MNLI-mm": 4 / 5}
    assert scores["metrics"] == {"mnli": {"dev_matched": {"accuracy": 6 / 8}, "dev_mismatched": {"accuracy": 4 / 5}}}
    assert scores["papers_average"] is None and scores["glue_average"] is None
    assert scores["models"] == {"mnli": str(paths["mnli"])}
    titles, values, constant = (line.split() for line in printed.err.splitlines()[-4:-1])
    assert titles[:2] == ["MNLI-m", "MNLI-mm"] and values == ["model", "75.0", "80.0", "-", "-"]
    expected = {}
    for title, split in (("MNLI-m", "dev_matched"), ("MNLI-mm", "dev_mismatched")):
        rows = (tmp_path / "MNLI" / f"{split}.tsv").read_text("utf-8").splitlines()[1:]
        expected[title] = max(Counter(row.split("\t")[-1] for row in rows).values()) / len(rows)
    assert scores["baseline"]["columns"] == pytest.approx(expected)
    assert constant == ["baseline", *(f"{100 * value:.1f}" for value in expected.values()), "-", "-"]
    # 6 of 8 are within two standard errors of 4 of 8; 4 of 5 are not within two of 2 of 5.
    (warning,) = scores["warnings"]
    assert warning.startswith("mnli, dev_matched: not learned from this many examples: accuracy 0.7500; the baseline")

    # Every answer wrong: no constant answer is as bad.
    for name in ("dev_matched", "dev_mismatched"):
        rows = [row | {"gold_label": following[label]} for row, label in zip(rows_of(8), labels, strict=True)]
        write(tmp_path / "MNLI" / f"{name}.tsv", columns, rows)
    assert cli.main(["glue-scores", f"--model=mnli={paths['mnli']}", f"--data={tmp_path}"]) == 0
    printed = capsys.readouterr()
    first, second = json.loads(printed.out)["warnings"]
    assert first.startswith(
        "mnli, dev_matched: the model does not beat the baseline: accuracy 0.0000; the baseline, al"
    )
    assert second.startswith("mnli, dev_mismatched: ") and f"warning: {first}" in printed.err


# The metric that the papers' columns show (TinyBERT, appendix; BERT, table 1).
SHOWN = {
    "MNLI-m": ("mnli", "dev_matched", "accuracy"),
    "MNLI-mm": ("mnli", "dev_mismatched", "accuracy"),
    "QQP": ("qqp", "dev", "f1"),
    "QNLI": ("qnli", "dev", "accuracy"),
    "SST-2": ("sst2", "dev", "accuracy"),
    "CoLA": ("cola", "dev", "matthews"),
    "STS-B": ("stsb", "dev", "spearman"),
    "MRPC": ("mrpc", "dev", "f1"),
    "RTE": ("rte", "dev", "accuracy"),
    "WNLI": ("wnli", "dev", "accuracy"),
}


def measured(row: dict[str, float | tuple[float, float]]) -> dict[str, dict[str, dict[str, float]]]:
    """A published row: a number, or both metrics as GLUE prints them (F1/accuracy, Pearson/Spearman)."""
    scores: dict[str, dict[str, dict[str, float]]] = {}
    for title, value in row.items():
        task, split, shown = SHOWN[title]
        if isinstance(value, float):
            values = {shown: value}
        else:
            names = ("f1", "accuracy") if shown == "f1" else ("pearson", "spearman")
            values = dict(zip(names, value, strict=True))
        scores.setdefault(task, {})[split] = {name: percentage / 100 for name, percentage in values.items()}
    return scores


# MNLI-m, MNLI-mm, QQP F1, QNLI, SST-2, CoLA, STS-B, MRPC F1, RTE, and the printed average.
# TinyBERT (Jiao et al. 2020), table 1; EfficientBERT (Dong et al. 2021), table 1, whose BERT row is Devlin et al.'s.
PAPERS = {
    "TinyBERT 4": (82.5, 81.8, 71.3, 87.7, 92.6, 44.1, 80.4, 86.4, 66.6, 77.0),
    "TinyBERT 6": (84.6, 83.2, 71.6, 90.4, 93.1, 51.1, 83.7, 87.3, 70.0, 79.4),
    "TinyBERT's teacher": (83.9, 83.4, 71.1, 90.9, 93.4, 52.8, 85.2, 87.5, 67.0, 79.5),
    "BERT base": (84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4, 79.6),
    "EfficientBERT": (83.3, 82.3, 71.0, 90.2, 92.1, 43.8, 82.9, 88.2, 65.7, 77.7),
}


@pytest.mark.parametrize("name", PAPERS)
def test_the_papers_average(name: str) -> None:
    *values, average = PAPERS[name]
    titles = list(SHOWN)[:9]
    summary = summarize(measured(dict(zip(titles, values, strict=True))))
    assert summary["columns"] == {title: value / 100 for title, value in zip(titles, values, strict=True)}
    # Printed with one decimal, like the nine that it is the mean of: both sides are off by at most 0.05.
    assert 100 * summary["papers_average"] == pytest.approx(average, abs=0.101)


# The leaderboard's own scores, with WNLI, as google-research/bert's README has them for its small models.
LEADERBOARD = {
    "BERT-Mini": ((74.8, 74.3, (66.4, 86.2), 84.1, 85.9, 0.0, (75.4, 73.3), (81.1, 71.8), 57.9, 62.3), 65.8),
    "BERT-Small": ((77.6, 77.0, (68.1, 87.0), 86.4, 89.7, 27.8, (78.8, 77.0), (83.4, 76.2), 61.8, 62.3), 71.2),
    "BERT-Medium": ((80.0, 79.1, (69.6, 87.9), 87.7, 89.6, 38.0, (80.4, 78.4), (86.6, 81.6), 62.2, 62.3), 73.5),
}


@pytest.mark.parametrize("name", LEADERBOARD)
def test_the_leaderboards_average(name: str) -> None:
    values, score = LEADERBOARD[name]
    summary = summarize(measured(dict(zip(SHOWN, values, strict=True))))
    shown = [
        value if isinstance(value, float) else value[title == "STS-B"]
        for title, value in zip(SHOWN, values, strict=True)
    ]
    assert list(summary["columns"].values()) == pytest.approx([value / 100 for value in shown])
    assert list(summary["columns"]) == list(SHOWN)
    # Ours is over eight tasks, theirs over nine. Rounding: 0.05 on either side.
    assert (8 * 100 * summary["glue_average"] + 62.3) / 9 == pytest.approx(score, abs=0.101)
    assert abs(100 * summary["papers_average"] - 100 * summary["glue_average"]) > 0.15


def test_an_average_needs_all_its_tasks() -> None:
    complete = {task: {split: dict.fromkeys(glue.metrics, 0.5) for split in glue.dev_splits}
                for task, glue in GLUE.items()}  # fmt: skip
    assert summarize(complete)["papers_average"] == summarize(complete)["glue_average"] == 0.5
    assert summarize({task: complete[task] for task in complete if task != "wnli"})["glue_average"] == 0.5
    part = summarize({task: complete[task] for task in complete if task != "rte"})
    assert part["papers_average"] is None and part["glue_average"] is None
    titles, values, baseline = table({**part, "baseline": part})
    assert "RTE" not in titles and values.split() == ["model"] + ["50.0"] * 9 + ["-", "-"]
    assert len(titles) == len(values) == len(baseline)


def test_models_are_named_by_task() -> None:
    assert parse_models(["sst2=a=b", "cola=c d"]) == {"cola": "c d", "sst2": "a=b"}
    with pytest.raises(UserError) as caught:
        parse_models(["sst2", "sst-2=a", "rte=a", "rte=b"])
    for message in ("such as sst2=runs/sst2/model; received sst2", "no GLUE task 'sst-2'", "received a and b for rte"):
        assert message in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--data is required; received none; --output is required"),
        (["--data=x", "--output=y.zip"], "no model for cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli; give"),
        (["{models}", "--data={data}", "--output=y.zip"], "--constant=sst2,mrpc,qqp,qnli,rte,wnli for files"),
        (["{models}", "--constant=cola,sst3", "--data=x", "--output=y"], "no GLUE task 'sst3' for a constant"),
        (["{models}", "--constant=cola", "--data=x", "--output=y"], "not both; received both for cola"),
        (
            ["--model=cola={cola}", "--model=stsb={cola}", "--model=mnli=nowhere", "{rest}", "--data={data}",
             "--output=y"],
            "must be the model's, acceptable, unacceptable; received stsb with regression",
        ),
        (
            ["--model=cola={cola}", "--model=stsb={stsb}", "--model=mnli=nowhere", "{rest}", "--data={data}",
             "--output=y"],
            "mnli: a model must be a folder",
        ),
        (
            ["{models}", "{rest}", "--data={data}/CoLA", "--output=y"],
            "needs the file MNLI/test_matched.tsv or test_matched.tsv; found none",
        ),
    ],
)  # fmt: skip
def test_bad_input_fails_before_any_prediction(
    arguments: list[str],
    message: str,
    paths: dict[str, Path],
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pocketbert_export.glue.models.GlueModel.predictions", lambda *_: pytest.fail("it answered"))
    options = [
        text
        for argument in arguments
        for text in (
            flags(paths)
            if argument == "{models}"
            else [argument.format(data=data, rest="--constant=sst2,mrpc,qqp,qnli,rte,wnli", **paths)]
        )
    ]
    assert cli.main(["glue-submission", *options]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_nonfinite_outputs_give_no_submission(
    models: dict[str, Model], paths: dict[str, Path], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bias = models["stsb"].weights_by_path()["heads.regression.output.bias"]
    before = bias.numpy()
    bias.assign(np.array([np.nan], np.float32))
    try:
        models["stsb"].save_pretrained(tmp_path / "broken")
    finally:
        bias.assign(before)
    constant = "--constant=cola,sst2,mrpc,qqp,mnli,qnli,rte,wnli"
    arguments = [f"--model=stsb={tmp_path / 'broken'}", constant, f"--data={data}", f"--output={tmp_path / 'a.zip'}"]
    assert cli.main(["glue-submission", *arguments]) == 2
    assert "answers must be finite" in capsys.readouterr().err
    assert not (tmp_path / "a.zip").exists()
