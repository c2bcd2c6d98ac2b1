"""`pocketbert embed` and `evaluate` with embeddings, from a model directory and from its bundle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_finetuning
import tiny_tasks
from scipy.spatial.distance import cosine
from scipy.stats import pearsonr, spearmanr

import pocketbert as pb
from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert_export.exporter import export
from pocketbert_runtime.embedding_config import EmbeddingConfig

# Each predicts a few texts, for which a graph takes longer than it saves.
pytestmark = pytest.mark.usefixtures("eager")

TEXTS = tiny_tasks.TEXTS[:9]
PROMPTS = (("query", "the "), ("passage", "a film "))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("embed")
    task = TaskConfig(kind="embedding", embedding=EmbeddingConfig(pooling="max", dimensions=7, prompts=PROMPTS))
    config = tiny_finetuning.CONFIG.replace(initializer_range=0.3)
    model = pb.from_pretrained(tiny_finetuning.write_model(folder / "start", config), task=task)
    model.save_pretrained(folder / "model")
    export(folder / "model", folder / "bundle", recipe="float32", lengths=(9, 19))
    (folder / "texts.txt").write_text("\n".join([TEXTS[0], "", *TEXTS[1:]]), encoding="utf-8")
    return folder


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("form", ["model", "bundle"])
def test_array_holds_the_models_vectors(form: str, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "vectors.npy"
    arguments = [f"--model={folder / form}", f"--input={folder / 'texts.txt'}"]
    assert cli.main(["embed", *arguments, f"--output={path}"]) in (None, 0)
    expected = [answer["embedding"] for answer in pb.from_pretrained(folder / "model").predict(TEXTS)]
    array = np.load(path)
    assert array.dtype == np.float32 and array.shape == (9, 7)
    np.testing.assert_allclose(array, expected, atol=2e-5)


def test_search_finds_nearest_lines(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queries = tmp_path / "queries.jsonl"
    queries.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS[3:6]), encoding="utf-8")
    arguments = [f"--model={folder / 'bundle'}", f"--input={queries}", f"--search={folder / 'texts.txt'}", "--top-k=4"]
    assert cli.main(["embed", *arguments, "--prompt-name=query", "--search-prompt-name=passage"]) in (None, 0)
    model = pb.from_pretrained(folder / "model")
    vectors = {
        prompt: np.array([answer["embedding"] for answer in model.predict([prompt + text for text in TEXTS])])
        for _, prompt in PROMPTS
    }
    for row, line in zip((3, 4, 5), lines(capsys), strict=True):
        similar = [1 - cosine(vectors["the "][row], vector) for vector in vectors["a film "]]
        order = np.argsort(similar)[::-1][:4]
        # The second line is blank.
        assert [neighbour["line"] for neighbour in line["nearest"]] == [int(index) + 1 + (index > 0) for index in order]
        assert [neighbour["text"] for neighbour in line["nearest"]] == [TEXTS[index] for index in order]
        given_similar = [neighbour["similarity"] for neighbour in line["nearest"]]
        np.testing.assert_allclose(given_similar, np.array(similar)[order], atol=2e-5)


def test_pairs_give_cosines(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = tmp_path / "pairs.jsonl"
    rows = [{"text": TEXTS[index], "pair": TEXTS[index + 1]} for index in range(3)]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert cli.main(["embed", f"--model={folder / 'model'}", f"--input={pairs}"]) in (None, 0)
    vectors = [answer["embedding"] for answer in pb.from_pretrained(folder / "model").predict(TEXTS)]
    for index, line in enumerate(lines(capsys)):
        assert line["similarity"] == pytest.approx(1 - cosine(vectors[index], vectors[index + 1]), abs=2e-5)


def test_recall_counts_found_partners(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, count = tmp_path / "pairs.tsv", 23
    partners = [tiny_tasks.TEXTS[(index * 5 + 3) % count] for index in range(count)]
    rows = "".join(f"{text}\t{other}\n" for text, other in zip(tiny_tasks.TEXTS, partners, strict=False))
    table.write_text(f"query\tdocument\n{rows}", encoding="utf-8")
    arguments = [f"--model={folder / 'model'}", f"--file={table}", "--text-column=query", "--pair-column=document"]
    assert cli.main(["evaluate", *arguments]) in (None, 0)
    metrics = lines(capsys)[0]["metrics"]
    vectors = np.array(
        [answer["embedding"] for answer in pb.from_pretrained(folder / "model").predict(tiny_tasks.TEXTS)]
    )
    places = []
    for index, partner in enumerate(partners):
        partner_index = tiny_tasks.TEXTS.index(partner)
        # A text does not compete with its partner: it is the nearest to itself.
        others = [tiny_tasks.TEXTS.index(text) for text in partners if text != tiny_tasks.TEXTS[index]]
        nearer = [
            cosine(vectors[index], vectors[row]) < cosine(vectors[index], vectors[partner_index]) for row in others
        ]
        places.append(sum(nearer))
    assert metrics == pytest.approx({f"recall_at_{k}": np.mean(np.array(places) < k) for k in (1, 10)})
    assert 0 < metrics["recall_at_10"] < 1


@pytest.mark.parametrize("form", ["model", "bundle"])
def test_stsb_scores_are_correlations(
    form: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generator = np.random.default_rng(4)
    pairs = list(zip(TEXTS, TEXTS[1:], strict=False))
    scores = np.round(generator.uniform(0, 5, len(pairs)), 1)
    tiny_finetuning.write_stsb(tmp_path / "glue", "dev", pairs, scores)
    arguments = [f"--model={folder / form}", "--task=stsb", f"--data={tmp_path / 'glue'}"]
    assert cli.main(["evaluate", *arguments]) in (None, 0)
    (line,) = lines(capsys)
    model = pb.from_pretrained(folder / "model")
    vectors = [[answer["embedding"] for answer in model.predict(list(texts))] for texts in zip(*pairs, strict=True)]
    cosines = [1 - cosine(first, second) for first, second in zip(*vectors, strict=True)]
    # Ranks without ties, so the bundle's rounding changes none.
    expected = {"spearman": spearmanr(cosines, scores).statistic, "pearson": pearsonr(cosines, scores).statistic}
    assert line["metrics"] == pytest.approx(expected, abs=1e-4)
    assert line["examples"] == len(pairs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--prompt-name=question", "the model's prompts are query, passage; received 'question'"),
        ("--output=vectors.txt", "--output must end in .npy or .jsonl; received vectors.txt"),
        ("--output=x.npy --search=x.txt", "--search prints JSON lines; received --output=x.npy"),
        ("--search=/none", "/none: there is no such file; check the path"),
    ],
)
def test_bad_options_are_one_line(
    arguments: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [f"--model={folder / 'model'}", f"--input={folder / 'texts.txt'}"]
    assert cli.main(["embed", *options, *arguments.split()]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_other_models_are_refused(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pb.from_pretrained(folder / "start", task=tiny_finetuning.TASK).save_pretrained(tmp_path / "model")
    assert cli.main(["embed", f"--model={tmp_path / 'model'}", f"--input={folder / 'texts.txt'}"]) == 2
    assert "embed needs a model with sentence embeddings; received classification" in capsys.readouterr().err
