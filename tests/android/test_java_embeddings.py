"""Embeddings in Java: prompts, ids, vectors and searches of the same bundles as in Python."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bundle_folders
import golden_checks
import numpy as np
import pytest
import tiny
from awkward_texts import awkward_texts
from test_java_host import host

import pocketbert as pb
from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.tasks.embedding import SentenceEmbedding
from pocketbert.tasks.registry import get_task
from pocketbert_bench import results
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.checks import outputs as checks
from pocketbert_export.exporter import export
from pocketbert_export.recipes import get_recipe
from pocketbert_export.verification.comparisons import golden_answers
from pocketbert_runtime.embedding_config import EmbeddingConfig
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import SPECIAL_TOKENS

pytestmark = pytest.mark.java

WORDS = "query passage : how do i reset my pass ##word shop find ##s a new cafe zurich 東 京 , . ! ' e good bad".split()
PROMPTS = (("query", "query: "), ("passage", "passage : "), ("plain", "a "))
MAX_LENGTH = 12
TEXTS = [
    "How do I reset my password?",
    "Find a shop in Zürich, 東京!",
    "good 🙂 bad cafe\u0301",
    "a new good shop, a bad cafe . " * 5,
    "e",
]
RECIPES = ("float32", "dynamic_wi8", "dynamic_wi4")


def random_model(folder: Path) -> Path:
    """A tiny network with random weights and three prompts; the maximum length lies between two lengths."""
    vocabulary = folder / "vocab.txt"
    unused = [f"[unused{number}]" for number in range(tiny.BERT.vocab_size - len(WORDS) - len(SPECIAL_TOKENS))]
    vocabulary.write_text("\n".join([*SPECIAL_TOKENS, *WORDS, *unused]) + "\n", encoding="utf-8")
    options = EmbeddingConfig(max_length=MAX_LENGTH, prompts=PROMPTS, default_prompt="passage")
    task = TaskConfig(kind="embedding", embedding=options)
    pb.from_preset(tiny.BERT, [task], pb.WordPieceTokenizer(vocabulary), seed=11).save_pretrained(folder / "model")
    return folder / "model"


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same network in several recipes."""
    folder = tmp_path_factory.mktemp("bundles")
    model = random_model(folder)
    return {recipe: export(model, folder / recipe, recipe=recipe, lengths=(9, 17)).directory for recipe in RECIPES}


def embedding_task(bundle: Bundle) -> SentenceEmbedding:
    task = bundle.predictor().task
    assert isinstance(task, SentenceEmbedding)
    return task


@pytest.mark.parametrize("prompt", [None, "query", "plain"])
def test_ids_equal_those_of_python(
    prompt: str | None,
    java: Any,
    bundles: dict[str, Path],
    tmp_path: Path,
) -> None:
    texts = [*TEXTS, "", " ", *awkward_texts(500, [word for word in WORDS if word.isalpha()], seed=97)]
    inputs, outputs = tmp_path / "texts.jsonl", tmp_path / "ids.jsonl"
    inputs.write_text("".join(json.dumps(text) + "\n" for text in texts), encoding="utf-8")
    main = "org.pocketbert.bundle.EmbeddingInputsMain"
    java(main, bundles["float32"], inputs, outputs, *([] if prompt is None else [prompt]))
    tokenizer = Bundle.open(bundles["float32"]).tokenizer
    ahead = dict(PROMPTS)[prompt or "passage"]
    lengths = set()
    for text, line in zip(texts, outputs.read_text(encoding="utf-8").splitlines(), strict=True):
        ids, mask = json.loads(line)
        # Twelve tokens at most, padded to the shortest length.
        expected = tokenizer([ahead + text], max_length=MAX_LENGTH)
        (row,) = np.asarray(expected["input_word_ids"])
        length = 9 if len(row) <= 9 else 17
        assert ids == [*row, *[0] * (length - len(row))], ascii(text)
        assert mask == [1] * len(row) + [0] * (length - len(row)), ascii(text)
        lengths.add(length)
    assert lengths == {9, 17}


def test_golden_answers_are_the_models(bundles: dict[str, Path]) -> None:
    golden_checks.check_golden_answers(bundles["float32"], pb.from_pretrained(bundles["float32"].parent / "model"))
    done = host("check", *bundles.values())
    assert (done.returncode, done.stdout) == (0, "ok\n" * len(bundles)), done.stdout


@pytest.mark.parametrize("recipe", RECIPES)
def test_vectors_equal_those_of_python(recipe: str, bundles: dict[str, Path]) -> None:
    bundle = Bundle.open(bundles[recipe])
    predictor = bundle.predictor()
    # In floats, only the order of sums differs, as between the model and a float32 bundle. In int8, a value at a
    # rounding boundary may move by a step: the bound on outputs at export.
    exact = recipe == "float32"
    most = get_recipe("float32").bounds.rms_difference if exact else get_recipe(recipe).bounds.own_difference
    for name, ahead in [(None, None), *PROMPTS]:
        done = host(
            "answer",
            bundles[recipe],
            *([] if name is None else [f"--prompt-name={name}"]),
            text="".join(json.dumps({"text": text}) + "\n" for text in TEXTS),
        )
        assert done.returncode == 0, done.stderr
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert [row["text"] for row in rows] == TEXTS
        vectors = np.array([row["embedding"] for row in rows])
        expected = embedding_task(bundle).embed(
            TEXTS, predictor.forward, predictor.tokenizer, predictor.max_length, prompt=ahead
        )
        allowed = most * np.sqrt(np.mean(np.square(expected)))
        assert np.sqrt(np.mean(np.square(vectors - expected), axis=1)).max() <= allowed
        # The texts have other vectors, so mixed-up rows would show.
        assert np.sqrt(np.mean(np.square(expected[0] - expected[1:]), axis=1)).min() > 2 * allowed


def test_search_prints_the_lines_of_python(
    bundles: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents, queries = tmp_path / "documents.txt", tmp_path / "queries.txt"
    documents.write_text("\n\n".join(TEXTS) + "\n", encoding="utf-8")
    queries.write_text("\n".join(TEXTS[:3]) + "\n", encoding="utf-8")
    flags = [f"--search={documents}", "--top-k=3", "--prompt-name=query", "--search-prompt-name=plain"]
    bundle = bundles["float32"]
    assert cli.main(["embed", f"--model={bundle}", f"--input={queries}", *flags]) == 0
    expected = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    done = host("answer", bundle, *flags, text=queries.read_text(encoding="utf-8"))
    answers = [json.loads(line) for line in io.StringIO(done.stdout)]
    assert len(answers) == len(expected) == 3
    for one, other in zip(answers, expected, strict=True):
        for neighbour, expected_neighbour in zip(one["nearest"], other["nearest"], strict=True):
            # Two unit vectors, each off by the bound on float32; rounded to six digits.
            most = 2 * get_recipe("float32").bounds.rms_difference
            assert neighbour.pop("similarity") == pytest.approx(expected_neighbour.pop("similarity"), abs=most)
        assert one == other


def test_bench_accepts_every_recipe(bundles: dict[str, Path], tmp_path: Path) -> None:
    output = tmp_path / "result.json"
    done = host(*bundles.values(), "--lengths=17", f"--output={output}")
    assert done.returncode == 0, done.stdout
    assert {measurement.recipe for measurement in results.read(output).measurements} == set(RECIPES)


def test_differences_equal_those_of_the_gate(bundles: dict[str, Path], tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    noisy = Path(shutil.copytree(bundles["dynamic_wi8"], tmp_path / "noisy"))
    # Half of the vectors' norm in one feature, more than the bounds allow.
    noise = {"exported_outputs/embedding": lambda vector: vector + 0.5 * np.eye(1, vector.size, random.integers(9))}
    bundle_folders.change_answers(noisy, noise)
    bundle = Bundle.open(noisy)
    assert bundle.task is not None
    float_answers, own_answers = golden_answers(bundle)
    bounds = get_recipe(bundle.recipe).bounds
    outcomes = checks.check_difference(float_answers, own_answers, bounds, task=get_task(bundle.task))
    done = host(noisy, "--lengths=17")
    assert done.returncode == 1
    match = re.search(r"they are off by (\S+) at most and (\S+) on average, but only", done.stdout)
    assert match, done.stdout
    # Java prints three digits.
    assert [float(group) for group in match.groups()] == [
        pytest.approx(outcome.measured, rel=6e-3) for outcome in outcomes
    ]


def edited(name: str, value: object) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        task = bundle_folders.description_of(folder)["task"]
        task["embedding"][name] = value
        bundle_folders.describe_again(folder, task=task)

    return change


# Name → change of a valid bundle, and part of Java's message.
FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "pooling": (edited("pooling", "sum"), "$.task.embedding.pooling must be one of mean, cls, max"),
    "activation": (edited("dense_activation", None), "$.task.embedding.dense_activation must be a string"),
    "normalize": (edited("normalize", 1), "$.task.embedding.normalize must be true or false"),
    "bias": (edited("dense_bias", None), "$.task.embedding.dense_bias must be true or false"),
    "dimensions": (edited("dimensions", 0), "$.task.embedding.dimensions must be a whole number of at least 1"),
    "short": (edited("max_length", 2), "$.task.embedding.max_length must be a whole number from 3 to 1048576"),
    "long": (edited("max_length", 1 << 21), "$.task.embedding.max_length must be a whole number from 3 to 1048576"),
    "prompt": (edited("default_prompt", "x"), "$.task.embedding.default_prompt must be one of the prompts or null"),
    "unknown": (edited("surplus", None), "$.task.embedding.surplus is unknown"),
    "no_pair": (edited("prompts", [["query", "a", "b"]]), "$.task.embedding.prompts must hold pairs of name and text"),
    "no_text": (edited("prompts", [["passage", 1]]), "$.task.embedding.prompts must hold pairs of name and text"),
    "no_list": (edited("prompts", 1), "$.task.embedding.prompts must be a list"),
}


def test_faulty_options_are_refused_by_both(bundles: dict[str, Path], tmp_path: Path) -> None:
    for name, (change, _) in FAULTS.items():
        change(Path(shutil.copytree(bundles["float32"], tmp_path / name)))
        with pytest.raises(pb.UserError):
            Bundle.open(tmp_path / name)
    done = host(*(tmp_path / name for name in FAULTS))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    for name, (_, words) in FAULTS.items():
        # The message about a bundle ends before the next bundle.
        sentence = done.stderr.partition(f"{tmp_path / name}/")[2].split(str(tmp_path))[0]
        assert words in sentence, (name, sentence)


def test_bad_input_gives_exit_code_2(bundles: dict[str, Path], tmp_path: Path) -> None:
    mood = Path(__file__).parents[2] / "android_app/core/src/test/resources/bundles/dynamic_wi8"
    bundle = bundles["float32"]
    for arguments, text, message in (
        ([bundle, "--prompt-name=document"], "a\n", "the model's (query, passage, plain); received document"),
        ([bundle, f"--search={tmp_path / 'no.txt'}"], "a\n", "--search must be a file of texts"),
        ([bundle, "--top-k=0", "--fast"], "a\n", "--top-k must be a positive number; received 0"),
        ([bundle, "--fast"], "a\n", "received --fast"),
        ([bundle], '{"text": 1}\n', "line 1 must be a JSON object with a string"),
        ([bundle], '{"text"\n', 'standard input: line 1 must be a JSON object with a string "text"; expected'),
        ([bundle], "\udcff\n", "standard input must be UTF-8 text"),
        ([mood], '{"text": "a", "pair": 1}\n', 'line 1: "pair" must be a string'),
        ([mood, "--top-k=2"], "a\n", "--top-k needs a bundle for embedding"),
        ([], "a\n", "pass one bundle; received none"),
    ):
        done = host("answer", *arguments, text=text)
        assert (done.returncode, done.stdout) == (2, ""), done
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
    done = host("answer", "--help")
    assert done.returncode == 0 and "--search=FILE" in done.stdout
