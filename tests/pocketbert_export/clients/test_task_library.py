"""Files for questions: the TFLite Task Library 0.4.4 gives the answers that follow from the bundle's logits."""

from __future__ import annotations

import ctypes.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_finetuning
import tiny_questions
from ai_edge_litert import schema_py_generated as schema

import pocketbert as pb
from pocketbert import cli
from pocketbert.errors import UserError
from pocketbert.recipes import RECIPES
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.clients.mediapipe_files import task_file, write_task_files
from pocketbert_export.exporter import export
from pocketbert_export.tflite import runtimes
from pocketbert_export.tflite.environments import LockedEnvironment

LENGTH = 384
CONTEXTS = [
    "The actor in a Warm, superb story! And of the great film: with a dull plot scene... " * 3,
    "A great film, great actor; a   poor (weak) plot with AWFUL scene.",
    "Fine " * 400,
]
QUESTIONS = ["What film?", "the actor of a great story, and the plot", "a " * 90]


def python_3_11() -> str:
    """A Python with wheels of the library."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    interpreters = [shutil.which("python3.11"), *map(str, pyenv.glob("3.11.*/bin/python3"))]
    here = sys.executable if sys.version_info[:2] == (3, 11) else None
    usable = (
        interpreter
        for interpreter in [here, *interpreters]
        if interpreter and not subprocess.run([interpreter, "-c", "import ensurepip"]).returncode
    )
    return next(usable, "") or pytest.skip("the Task Library needs Python 3.11")


LIBRARY = LockedEnvironment(
    name="task-library",
    lock=Path(__file__).with_name("task_library.lock"),
    package="tflite-support 0.4.4",
    download="80 MB",
    base=python_3_11,
)
needs_library = pytest.mark.skipif(
    (os.environ.get("CI", "").lower() != "true" and not LIBRARY.exists) or not ctypes.util.find_library("usb-1.0"),
    reason="the Task Library has no environment here, or no libusb; CI=true makes the environment",
)
SCRIPT = """
import json, sys
from tflite_support.task import text
client = text.BertQuestionAnswerer.create_from_file(sys.argv[1])
calls = json.load(sys.stdin)
answers = [client.answer(context, question).answers for context, question in calls]
print(json.dumps([[[a.text, a.pos.start, a.pos.end, a.pos.logit] for a in each] for each in answers]))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    config = tiny_finetuning.CONFIG.replace(max_position_embeddings=LENGTH, initializer_range=0.5)
    bare = tiny_finetuning.write_model(folder / "bare", config)
    pb.from_pretrained(bare, task=tiny_questions.TASK, seed=3).save_pretrained(folder / "model")
    return folder / "model"


@pytest.fixture(scope="module")
def bundle(model: Path) -> Bundle:
    return export(model, model.parent / "bundle", recipe="float32", lengths=(19, LENGTH))


def expected_answers(bundle: Bundle, context: str, question: str) -> list[list[Any]]:
    """The library's rules, from bert_question_answerer.cc, on the bundle's own logits.

    Words are separated by spaces. A question has 64 tokens, an answer 32. The five best starts and ends are combined,
    and the words of the five best combinations are answers.
    """
    tokenizer, tokens = bundle.tokenizer, bundle.vocabulary.tokens()
    first_token, separator = tokens.index("[CLS]"), tokens.index("[SEP]")
    question_ids = tokenizer.tokenize([question])[0].numpy().tolist()[:64]
    words = [word for word in context.split(" ") if word]
    pieces = tokenizer.tokenize(words).to_list()
    piece_numbers = [number for number, piece in enumerate(pieces) for _ in piece][: LENGTH - len(question_ids) - 3]
    row = [first_token, *question_ids, separator, *sum(pieces, [])[: len(piece_numbers)], separator]
    rest = [0] * (LENGTH - len(row))
    inputs = {
        "input_word_ids": [*row, *rest],
        "input_mask": [1] * len(row) + rest,
        "input_type_ids": [0] * (len(question_ids) + 2) + [1] * (len(piece_numbers) + 1) + rest,
    }
    outputs = bundle.run({name: np.array([values], np.int32) for name, values in inputs.items()}, LENGTH)
    start, end = (outputs[name][0] for name in ("start_logits", "end_logits"))
    word_of = {len(question_ids) + 2 + index: number for index, number in enumerate(piece_numbers)}
    answers = [
        [" ".join(words[word_of[first] : word_of[last] + 1]), int(first), int(last), float(start[first] + end[last])]
        for first in np.argsort(-start)[:5]
        for last in np.argsort(-end)[:5]
        if first in word_of and last in word_of and first <= last < first + 32
    ]
    return sorted(answers, key=lambda answer: -answer[3])[:5]


def client_answers(path: Path, calls: list[tuple[str, str]]) -> list[list[list[Any]]]:
    finished = subprocess.run(
        [LIBRARY.python(), "-I", "-c", SCRIPT, path], input=json.dumps(calls), capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    return json.loads(finished.stdout)


@pytest.mark.nightly
@needs_library
def test_client_gives_the_bundles_answers(bundle: Bundle, tmp_path: Path) -> None:
    path = tmp_path / "file.tflite"
    path.write_bytes(task_file(bundle, LENGTH))
    calls = [(context, question) for context in CONTEXTS for question in QUESTIONS]
    received = client_answers(path, calls)
    for call, answers in zip(calls, received, strict=True):
        expected = expected_answers(bundle, *call)
        assert [answer[:3] for answer in answers] == [answer[:3] for answer in expected], call
        # float32, in two builds of the same operators.
        np.testing.assert_allclose([answer[3] for answer in answers], [answer[3] for answer in expected], atol=1e-4)
    assert sum(map(len, received)) >= 10


@pytest.mark.nightly
@needs_library
@pytest.mark.skipif(
    os.environ.get("CI", "").lower() != "true" and not runtimes.tflite_2_16().exists,
    reason="TFLite 2.16.1 has no environment here",
)
def test_client_runs_int8_for_old_runtimes(model: Path, tmp_path: Path) -> None:
    result = export(model, tmp_path / "bundle", recipe="dynamic_wi8", lengths=(LENGTH,), runtime=runtimes.TFLITE_2_16)
    (path,) = map(Path, write_task_files(result, tmp_path / "files", [])["files"])
    ((best, *_),) = client_answers(path, [(CONTEXTS[0], QUESTIONS[0])])
    expected = expected_answers(result, CONTEXTS[0], QUESTIONS[0])
    logits = [golden.exported_outputs["start_logits"] for golden in result.goldens]
    # Two logits in two builds, each within the recipe's bound.
    bound = 2 * RECIPES["dynamic_wi8"].bounds.own_difference * float(np.sqrt(np.mean(np.square(logits))))
    assert best[3] == pytest.approx(expected[0][3], abs=bound)
    assert best[:3] in [answer[:3] for answer in expected]


def test_outputs_are_end_and_start(bundle: Bundle, tmp_path: Path) -> None:
    written = write_task_files(bundle, tmp_path / "files", ["the film"])
    assert written["files"] == [str(tmp_path / "files" / "length_384.tflite")]
    model = schema.ModelT.InitFromPackedBuf(Path(written["files"][0]).read_bytes(), 0)
    (signature,), (graph,) = model.signatureDefs, model.subgraphs
    names = {output.tensorIndex: output.name for output in signature.outputs}
    assert [names[index] for index in graph.outputs] == [b"end_logits", b"start_logits"]
    assert [graph.tensors[index].shape.tolist() for index in [*graph.inputs, *graph.outputs]] == [[1, LENGTH]] * 5


def test_new_operators_are_refused(model: Path, tmp_path: Path) -> None:
    result = export(model, tmp_path / "bundle", recipe="dynamic_wi8", lengths=(LENGTH,))
    with pytest.raises(UserError, match="FULLY_CONNECTED version 12; pass runtime='tflite-2.16'"):
        write_task_files(result, tmp_path / "files", [])
    assert not (tmp_path / "files").exists()


def test_other_lengths_skip_the_file(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--recipe=float32", "--lengths=19", f"--output={tmp_path / 'bundle'}", "--mediapipe"]
    assert cli.main(["export", f"--model={model}", *flags]) == 2
    message = capsys.readouterr().err
    assert "BertQuestionAnswerer reads 384 tokens; received lengths 19; add 384 to --lengths" in message
    assert Bundle.open(tmp_path / "bundle").lengths == (19,)
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_mediapipe_has_no_client_for_questions(bundle: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", str(bundle.directory), "--mediapipe"]) == 2
    assert "MediaPipe must have a client for the task" in capsys.readouterr().err
