"""Files for MediaPipe Tasks: metadata, scores, tokenization, refusals, and the real client."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest
import tiny_finetuning
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from faults import floats

from pocketbert import cli
from pocketbert.configs import TaskConfig, TokenizerConfig
from pocketbert.data import assets
from pocketbert.errors import UserError
from pocketbert.tokenizers.wordpiece import WordPieceTokenizer
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.clients import mediapipe_client, mediapipe_files
from pocketbert_export.clients.mediapipe_files import (
    check_client,
    differing_tokenizations,
    folder_beside,
    mediapipe_ids,
    prepare,
    task_file,
    write_task_files,
)
from pocketbert_export.exporter import export
from pocketbert_export.tflite.graph import operator_name
from pocketbert_export.tflite.model_metadata import append_files
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

TEXTS = ("the film is good .", "a Dull, DULL story", "Gööd film", "the sun walks\u00a0and rain", "[MASK] dog")


@pytest.fixture(scope="module")
def bundle(small_bundle: Path) -> Bundle:
    return Bundle.open(small_bundle)


def read_zip(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_files_hold_one_length_with_scores(bundle: Bundle, tmp_path: Path) -> None:
    written = write_task_files(bundle, tmp_path / "files", ["the film is good ."])
    assert written["files"] == [str(tmp_path / "files" / f"length_{length}.tflite") for length in (7, 19)]
    for length, path in zip((7, 19), written["files"], strict=True):
        model = schema.ModelT.InitFromPackedBuf(Path(path).read_bytes(), 0)
        assert len(model.subgraphs) == 1
        assert [operator_name(model, operator) for operator in model.subgraphs[0].operators][-1] == "SOFTMAX"
        interpreter = Interpreter(path)
        assert [list(tensor["shape"]) for tensor in interpreter.get_input_details()] == [[1, length]] * 3
        inputs = bundle.tokenizer(["the film is good ."], max_length=length, pad_to=length)
        logits = bundle.run(inputs)["logits"].astype(np.float64)
        expected = np.exp(logits) / np.exp(logits).sum()
        received = interpreter.get_signature_runner()(**{name: np.asarray(array) for name, array in inputs.items()})
        # float32 rounding of three probabilities.
        np.testing.assert_allclose(received["scores"], expected, atol=1e-6)


def test_vocabulary_and_labels_are_in_the_zip(bundle: Bundle) -> None:
    assert read_zip(task_file(bundle, 7)) == {
        name: (bundle.directory / name).read_bytes() for name in ("vocab.txt", "labels.txt")
    }


def test_equal_bundles_give_equal_bytes(bundle: Bundle) -> None:
    assert task_file(bundle, 7) == task_file(bundle, 7)


def test_multi_label_scores_are_independent(tmp_path: Path, small_model) -> None:
    from pocketbert_export.exporter import export

    task = TaskConfig(kind="multi_label", labels=("wet", "dry"))
    model = networks.network(networks.bert_config(), [task], small_model.tokenizer)
    result = export(model, tmp_path / "bundle", recipe="float32", lengths=[7])
    inputs = result.tokenizer(["rain ."], max_length=7, pad_to=7)
    logits = result.run(inputs)["logits"].astype(np.float64)
    runner = Interpreter(model_content=task_file(result, 7)).get_signature_runner()
    received = runner(**{name: np.asarray(array) for name, array in inputs.items()})["scores"]
    np.testing.assert_allclose(received, 1 / (1 + np.exp(-logits)), atol=1e-6)


@pytest.mark.nightly
def test_int4_blocks_keep_their_scales(small_directory: Path, tmp_path: Path) -> None:
    # No operator reads the scales; writing compares each file with the golden outputs.
    bundle = export(small_directory, tmp_path / "bundle", recipe="dynamic_wi4", lengths=(7, 19))
    assert len(write_task_files(bundle, tmp_path / "files", TEXTS)["files"]) == 2


def test_differing_tokenizations_are_counted(bundle: Bundle) -> None:
    # Accents and the no-break space differ until the app prepares the text; special tokens always do.
    assert differing_tokenizations(bundle, TEXTS) == [False, False, True, True, True]
    assert differing_tokenizations(bundle, TEXTS, prepared=True) == [False, False, False, False, True]
    assert prepare("Gööd\u00a0FİLM\u200b") == "good film"
    # Control characters go, as in BERT, though Python counts them as spaces.
    assert prepare("a\x0bb\x85c\x1c d\u2028e") == "abc d e"


def test_mediapipe_ids_by_hand(bundle: Bundle) -> None:
    tokens = bundle.vocabulary.tokens()
    ids = mediapipe_ids(tokens, ["The walks!", "Gööd rain", ""])
    assert [[tokens[index] for index in row] for row in ids] == [["the", "walk", "##s", "!"], ["[UNK]", "rain"], []]


def test_models_without_client_are_refused(bundle: Bundle) -> None:
    task, vocabulary = bundle.task, bundle.vocabulary
    check_client(task, vocabulary, has_pairs=False)
    regression = TaskConfig(kind="regression")
    for changed, reason in (
        ({"task": None}, "received a bare encoder"),
        ({"task": regression}, "one of classification, multi_label, embedding; received regression"),
        ({"has_pairs": True}, r"takes one text; received a task on pairs of texts \(mood\)"),
        ({"task": dataclasses.replace(task, name="mrpc")}, r"pairs of texts \(mrpc\)"),
        ({"task": dataclasses.replace(task, name="xnli")}, r"pairs of texts \(xnli\)"),
        ({"vocabulary": Vocabulary(path=Path("vocab.json"), kind="byte_bpe")}, r"received byte_bpe \(vocab.json\)"),
        (
            {"vocabulary": dataclasses.replace(vocabulary, config=TokenizerConfig(lowercase=False))},
            "received a cased model",
        ),
    ):
        with pytest.raises(UserError, match=f"MediaPipe: .*{reason}.*leave MediaPipe out"):
            check_client(**{"task": task, "vocabulary": vocabulary, "has_pairs": False, **changed})


def test_command_writes_beside_the_bundle(
    small_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "dev.csv"
    table.write_text("text,label\nthe film is gööd,good\na dull film,bad\n", encoding="utf-8")
    arguments = [
        "export",
        f"--model={small_directory}",
        "--recipe=float32",
        "--lengths=7",
        f"--output={tmp_path / 'bundle'}/",
        f"--file={table}",
        "--mediapipe",
    ]
    assert cli.main(arguments) == 0
    captured = capsys.readouterr()
    written = json.loads(captured.out)["mediapipe"]
    assert written == {
        "files": [str(tmp_path / "bundle-mediapipe" / "length_7.tflite")],
        "texts": 2,
        "differing": 1,
        "differing_prepared": 0,
    }
    assert "tokenizes 1 of 2 texts differently" in captured.err
    Path(written["files"][0]).unlink()


def test_command_skips_files_without_client(
    small_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "dev.csv"
    table.write_text("text,other,label\nthe film,a dog,good\na dull film,rain,bad\n", encoding="utf-8")
    arguments = [
        "export",
        f"--model={small_directory}",
        "--recipe=float32",
        "--lengths=7",
        f"--output={tmp_path / 'bundle'}",
        f"--file={table}",
        "--pair-column=other",
        "--mediapipe",
    ]
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert "mediapipe" not in json.loads(captured.out)
    (message,) = [line for line in captured.err.splitlines() if line.startswith("pocketbert export:")]
    assert "TextClassifier takes one text; received a task on pairs of texts (mood)" in message
    assert f"wrote the bundle and skipped {tmp_path / 'bundle-mediapipe'} (see" in message
    assert Bundle.open(tmp_path / "bundle").lengths == (7,)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "dev.csv"]


def test_command_takes_fetchable_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = tiny_finetuning.write_model(tmp_path / "network", tiny_finetuning.CONFIG.replace(num_layers=1))
    monkeypatch.setattr(assets, "_folder", lambda asset, root: network)
    monkeypatch.setattr(assets, "_is_whole", lambda asset, folder: True)
    monkeypatch.chdir(tmp_path)
    flags = ["--recipe=float32", "--lengths=9", "--output=bundle", "--mediapipe"]
    assert cli.main(["export", "--model=all-minilm", *flags]) == 0
    assert json.loads(capsys.readouterr().out)["mediapipe"]["files"] == ["bundle-mediapipe/length_9.tflite"]
    model = schema.ModelT.InitFromPackedBuf(Path("bundle-mediapipe/length_9.tflite").read_bytes(), 0)
    # The asset's own task: one vector as wide as the encoder.
    (output,) = model.subgraphs[0].outputs
    assert model.subgraphs[0].tensors[output].shape.tolist() == [1, tiny_finetuning.CONFIG.hidden_size]
    assert cli.main(["export", "--model=all-minilmm", *flags]) == 2
    assert "did you mean 'all-minilm'" in capsys.readouterr().err


@pytest.fixture
def written(small_bundle: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A bundle and the folder of its files."""
    copied = Path(shutil.copytree(small_bundle, tmp_path / "mood"))
    write_task_files(Bundle.open(copied), folder_beside(copied), TEXTS[:1])
    return copied, folder_beside(copied)


def client(name: str, models: Mapping[str, Sequence[str]]) -> tuple[str, dict[str, list[Any]]]:
    """In place of MediaPipe: runs the same files, with the vocabulary and labels behind them."""
    answers = {}
    for path, texts in models.items():
        attached = read_zip(Path(path).read_bytes())
        labels = attached["labels.txt"].decode().splitlines()
        vocabulary = Path(path).with_suffix(".txt")
        vocabulary.write_bytes(attached["vocab.txt"])
        length = int(Path(path).stem.removeprefix("length_"))
        inputs = WordPieceTokenizer(vocabulary)(list(texts), max_length=length, pad_to=length)
        runner = Interpreter(path).get_signature_runner()
        arrays = [{key: np.asarray(array)[row : row + 1] for key, array in inputs.items()} for row in range(len(texts))]
        rows = [runner(**array)["scores"][0] for array in arrays]
        answers[path] = [dict(zip(labels, map(float, row), strict=True)) for row in rows]
    return "1.2.2", answers


@pytest.fixture
def clients_calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Paths of the files that the client was asked to open."""
    calls: list[list[str]] = []

    def run(name: str, models: Mapping[str, Sequence[str]]) -> tuple[str, dict[str, list[Any]]]:
        calls.append([*models])
        return client(name, models)

    monkeypatch.setattr(mediapipe_client, "run_client", run)
    return calls


def test_verify_opens_the_written_files(
    written: tuple[Path, Path], clients_calls: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    bundle, folder = written
    assert cli.main(["verify", str(bundle), "--mediapipe"]) == 0
    assert clients_calls == [[str(folder / f"length_{length}.tflite") for length in (7, 19)]]
    verified = json.loads(capsys.readouterr().out)
    assert verified["runtimes"]["mediapipe"] == "1.2.2"
    of_files, of_client = verified["checks"][-2:]
    assert (of_files["name"], of_client["name"]) == ("mediapipe files", "mediapipe")
    assert of_files["reason"].startswith("2 files in mood-mediapipe give the bundle's scores")
    assert of_files["measured"] <= 1e-6 and of_client["measured"] <= 1e-6


def rewritten(change: Callable[[Bundle], bytes], length: int = 19) -> Callable[[Path, Path], object]:
    def inject(bundle: Path, folder: Path) -> None:
        (folder / f"length_{length}.tflite").write_bytes(change(Bundle.open(bundle)))

    return inject


def with_sigmoid(bundle: Bundle) -> bytes:
    row = mediapipe_files.CLIENTS["classification"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(mediapipe_files.CLIENTS, "classification", row._replace(operator="LOGISTIC"))
        return task_file(bundle, 19)


def of_other_weights(bundle: Bundle) -> bytes:
    """The file of a bundle in which each label has another bias."""
    other = bundle.directory.with_name("other")
    shutil.copytree(bundle.directory, other)
    floats([3], lambda bias: bias[::-1] + np.arange(3))(other)
    return task_file(Bundle.open(other), 19)


def behind(name: str, content: bytes) -> Callable[[Bundle], bytes]:
    """The file with other content of a file behind it."""

    def change(bundle: Bundle) -> bytes:
        whole = task_file(bundle, 19)
        attached = {**read_zip(whole), name: content}
        with zipfile.ZipFile(io.BytesIO(whole)) as archive:
            start = min(entry.header_offset for entry in archive.infolist())
        return append_files(whole[:start], attached)

    return change


LABELS = "\n".join(reversed(networks.SENTIMENT.labels)) + "\n"
# Fault → what makes it, and the message.
FAULTS: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "deleted": (lambda bundle, folder: (folder / "length_7.tflite").unlink(), "length_7.tflite: it is missing"),
    "garbage": (rewritten(lambda bundle: bytes(range(256)) * 40), "length_19.tflite: litert ended with code 1"),
    "empty": (rewritten(lambda bundle: b""), "length_19.tflite: litert ended with code 1"),
    "cut": (rewritten(lambda bundle: task_file(bundle, 19)[:2000]), "length_19.tflite: litert ended with code"),
    "sigmoid": (rewritten(with_sigmoid), "length_19.tflite gives other scores than the bundle; they differ by 0."),
    "logits": (rewritten(lambda bundle: bundle.model_path.read_bytes()), "length_19.tflite gives other scores"),
    "other weights": (rewritten(of_other_weights), "length_19.tflite gives other scores"),
    "another length": (rewritten(lambda bundle: task_file(bundle, 7)), "length_19.tflite: litert ended with code 1"),
    "swapped labels": (
        rewritten(behind("labels.txt", LABELS.encode())),
        "must hold the bundle's labels.txt; its own d",
    ),
    "other words": (rewritten(behind("vocab.txt", b"[UNK]\n")), "must hold the bundle's vocab.txt; its own differs"),
    "nothing behind it": (rewritten(lambda bundle: bare(task_file(bundle, 19))), "they cannot be read"),
    "an older file": (
        lambda bundle, folder: shutil.copy(folder / "length_7.tflite", folder / "length_64.tflite"),
        "length_64.tflite is of no length of the bundle",
    ),
}


def bare(content: bytes) -> bytes:
    """A file without what stands behind it."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return content[: min(entry.header_offset for entry in archive.infolist())]


@pytest.mark.parametrize("fault", FAULTS)
def test_verify_refuses_faulty_files(
    fault: str,
    written: tuple[Path, Path],
    clients_calls: list[list[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    inject, message = FAULTS[fault]
    inject(*written)
    assert cli.main(["verify", str(written[0]), "--mediapipe"]) == 1
    printed = capsys.readouterr()
    (failure,) = [check for check in json.loads(printed.out)["checks"] if not check["passed"]]
    assert failure["name"] == "mediapipe files" and message in failure["reason"], failure["reason"]
    assert message in printed.err.splitlines()[-1]
    # Faulty files are found without an installed client.
    assert clients_calls == []


def test_verify_without_files_says_how_to_write_them(
    written: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    bundle, folder = written
    shutil.rmtree(folder)
    assert cli.main(["verify", f"{bundle}/", "--mediapipe"]) == 2
    printed = capsys.readouterr()
    assert (
        printed.out == "" and f"received none in {folder}; write them with pocketbert export --mediapipe" in printed.err
    )
    assert printed.err.strip().count("\n") == 0
