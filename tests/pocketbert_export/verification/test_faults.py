"""The fault table of docs/reference/verification.md: each fault in a real bundle, and the check that refuses it.

Every sum in `bundle.json` is made anew, so that no digest hides a fault.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import bundle_folders
import networks
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from faults import (
    Inject,
    answers,
    cut,
    described,
    edited,
    equal_type_rows,
    floats,
    gate_check,
    golden,
    graph,
    labels,
    mask_of,
    on_card,
    open_batch,
    outside,
    recorded,
    renamed,
    shuffled,
    swapped_answers,
    tensors,
    vocabulary,
    window,
    without_longest_signature,
    written,
)
from safetensors.numpy import load, save

from pocketbert import cli
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.tokenizers.wordpiece import WordPieceTokenizer
from pocketbert_export.bundles import bundle as layout
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.exporter import export
from pocketbert_export.tflite import runtimes
from pocketbert_export.verification.default_texts import default_examples
from pocketbert_export.verification.verify import Verification, verify_bundle

DOCS = Path(__file__).parents[3] / "docs" / "reference" / "verification.md"


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs files here: a process for each would take most of the time."""

    def run(runtime: str, model: Path, batches: runtimes.Batches) -> runtimes.RuntimeAnswers:
        interpreter = Interpreter(model_path=str(model), num_threads=1)
        answers: runtimes.RuntimeOutputs = {}
        for signature, inputs in batches.items():
            runner = interpreter.get_signature_runner(signature)
            try:
                rows = [
                    runner(**{name: array[row : row + 1] for name, array in inputs.items()})
                    for row in range(len(inputs["input_mask"]))
                ]
            except RuntimeError as error:
                raise runtimes.RuntimeRefused(str(error)) from error
            answers[signature] = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
        return runtimes.RuntimeAnswers("here", answers)

    monkeypatch.setattr("pocketbert_export.verification.verify.run_on", run)


@pytest.fixture(scope="module")
def tokenizers() -> Iterator[None]:
    """One for each vocabulary and its flags: tracing one takes a second."""
    cache: dict[object, WordPieceTokenizer] = {}
    with pytest.MonkeyPatch.context() as patch:

        def tokenizer(bundle: Bundle) -> WordPieceTokenizer:
            path = bundle.directory / layout.VOCAB_FILE
            key = path.read_bytes(), *bundle_folders.description_of(bundle.directory)["tokenizer"].values()
            return cache.setdefault(key, original(bundle))

        original = Bundle.__dict__["tokenizer"].func
        patch.setattr(Bundle, "tokenizer", property(tokenizer))
        yield


@pytest.fixture
def copy(small_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_bundle, tmp_path / "copy"))


HIDDEN = networks.bert_config().hidden_size
VOCAB_SIZE = networks.bert_config().vocab_size
MOODS, REVERSED = networks.SENTIMENT.labels, networks.SENTIMENT.labels[::-1]

# What a bundle is refused for before anything runs, by every command: fault → (injection, part of the message).
REFUSED: dict[str, tuple[Inject, str]] = {
    "a file changed after the export": (
        lambda folder: (folder / "vocab.txt").write_bytes((folder / "vocab.txt").read_bytes()[:-2] + b"x\n"),
        "vocab.txt must have the sha256",
    ),
    "a file outside the folder": (outside("../vocab.txt"), "'../vocab.txt' does not match"),
    "a file with an absolute path": (outside("/etc/hostname"), "'/etc/hostname' does not match"),
    "an unknown member": (edited(lambda all_: all_.update(colour="red")), "'colour' was unexpected"),
    "an earlier schema": (described(schema_version=3), "schema_version 4; received 3"),
    "an unknown recipe": (described(recipe="int3"), "the recipe must be one of float32, .* received 'int3'"),
    "no golden answers": (lambda folder: (folder / "answers.jsonl").unlink(), "answers.jsonl must be there"),
    "another digest of the golden answers": (
        edited(lambda all_: all_["answers"].update(sha256="0" * 64)),
        "answers must have the file answers.jsonl and its sha256",
    ),
    "ten vocabulary lines too many": (
        vocabulary(lambda pieces: pieces + [f"more{number}" for number in range(10)]),
        f"vocab.txt must have {VOCAB_SIZE} lines",
    ),
    "labels swapped in labels.txt alone": (labels(MOODS, REVERSED), "labels.txt must hold the labels"),
    "labels swapped in bundle.json alone": (labels(REVERSED, MOODS), "labels.txt must hold the labels"),
}

# What the golden answers are refused for when the gate, bench or an app reads them: fault → (injection, message).
UNREADABLE: dict[str, tuple[Inject, str]] = {
    "a golden without offsets": (window(offsets=None), "line 1: windows.0.: offsets must be a list; received None"),
    "a golden longer than the longest length": (
        window(ids=[2] * 20, type_ids=[0] * 20, offsets=[[0, 0]] * 20),
        "line 1: a window must have at most 19 ids; it has 20",
    ),
    "a golden with words as ids": (window(ids=["the", "film"]), r"ids\[0\] must be a whole number; received 'the'"),
    "a golden with ids outside the vocabulary": (
        window(ids=[VOCAB_SIZE], type_ids=[0], offsets=[[0, 0]]),
        f"ids must be below {VOCAB_SIZE}",
    ),
    "fewer offsets than ids": (window(offsets=[[0, 0]]), "a start and an end in offsets, and one of type_ids, for"),
    "a golden without text": (golden(lambda line: line.pop("text")), "must have text, text and pair, or question and"),
    "a cut line": (written("answers.jsonl", b'{"text":"a","windows":'), "must end with a line break; its last line is"),
    "no JSON in a line": (written("answers.jsonl", b"{}\n{\n"), "line 1: windows must be a list; received None"),
    "a golden probability that is no number": (
        written("answers.jsonl", b'{"text":"a","windows":[],"answer":{"score":NaN}}\n'),
        "line 1: a number must be finite; received NaN",
    ),
    "51 golden answers": (
        lambda folder: bundle_folders.write_lines(folder, bundle_folders.golden_lines(folder)[:1] * 51),
        "must have 1 to 50 lines and at most 200,000 bytes; received 51 lines",
    ),
    "a NaN golden answer": (answers("0/outputs/logits", lambda array: array * np.nan), "must be finite"),
    "a golden without an answer": (tensors(lambda all_: all_.pop("0/outputs/logits")), "it is missing"),
    "an answer without a golden": (tensors(lambda all_: all_.update({"90/outputs/x": np.ones(1)})), "must hold no"),
    "a golden answer of another shape": (
        answers("1/outputs/logits", lambda array: array[:, :2]),
        "must have one shape",
    ),
    "four labels for three logits": (labels((*MOODS, "more"), (*MOODS, "more")), "each of the 4 labels must have a"),
}

# What the gate finds: fault → (injection, the check that fails, whether it takes the float model).
FOUND: dict[str, tuple[Inject, str, bool]] = {
    "a shuffled vocabulary": (vocabulary(shuffled), "tokenizer", False),
    "a flipped lowercase flag": (
        vocabulary(lambda pieces: pieces, lowercase=False, strip_accents=False),
        "tokenizer",
        False,
    ),
    "a flipped flag for accents": (vocabulary(lambda pieces: pieces, strip_accents=False), "tokenizer", False),
    "a flipped flag for Chinese characters": (
        vocabulary(lambda pieces: pieces, tokenize_chinese_chars=False),
        "tokenizer",
        False,
    ),
    "a golden text of other ids": (golden(lambda one: one.update(text="film " + one["text"])), "tokenizer", False),
    "ten vocabulary lines too many, and a vocab_size to match": (
        vocabulary(lambda pieces: pieces + [f"more{number}" for number in range(10)], vocab_size=VOCAB_SIZE + 10),
        "vocabulary",
        False,
    ),
    "a golden text with other offsets": (
        golden(lambda line: line["windows"][0]["offsets"][1].__setitem__(1, 1)),
        "tokenizer",
        False,
    ),
    "a golden answer with another label": (
        golden(
            lambda line: line["answer"].update(label=next(mood for mood in MOODS if mood != line["answer"]["label"]))
        ),
        "answers",
        False,
    ),
    "a golden probability that is off": (
        golden(
            lambda line: line["answer"]["probabilities"].update(fair=line["answer"]["probabilities"]["fair"] + 0.01)
        ),
        "answers",
        False,
    ),
    "two golden answers swapped": (swapped_answers, "answers", False),
    "labels swapped everywhere": (labels(REVERSED, REVERSED), "task", True),
    "float golden answers of the wrong sign": (
        answers("/outputs/logits", np.negative),
        "goldens: largest difference",
        False,
    ),
    "own golden answers of the wrong sign": (
        answers("/exported_outputs/logits", np.negative),
        "goldens: outputs at export",
        False,
    ),
    "a mask constant of -1e9": (mask_of(1e9), "constants", False),
    "an open batch dimension": (graph(open_batch), "shapes", False),
    "an input with another name": (renamed("inputs", b"input_mask", b"mask"), "signatures", False),
    "a length without its signature": (graph(without_longest_signature), "signatures", False),
    "an output with another name": (renamed("outputs", b"logits", b"scores"), "outputs", False),
    "NaN weights": (floats([VOCAB_SIZE, HIDDEN], lambda table: table * np.nan), "finite", False),
    "one weight matrix changed": (
        floats([HIDDEN, HIDDEN], lambda matrix: matrix + 0.3),
        "goldens: largest difference",
        False,
    ),
    "ignored segment ids": (equal_type_rows(HIDDEN), "segments", True),
    "ignored segment ids, without the model": (
        equal_type_rows(HIDDEN),
        "goldens: largest difference",
        False,
    ),
    "a row of the last position changed": (
        floats([19, HIDDEN], lambda table: np.concatenate([table[:-1], -table[-1:]])),
        "weights",
        True,
    ),
    "rows of two words swapped": (
        floats([VOCAB_SIZE, HIDDEN], lambda table: table[[*range(VOCAB_SIZE - 2), VOCAB_SIZE - 1, VOCAB_SIZE - 2]]),
        "weights",
        True,
    ),
    "swapped segment rows": (floats([2, HIDDEN], lambda table: table[::-1]), "weights", True),
    "late positions shifted": (
        floats([19, HIDDEN], lambda table: np.concatenate([table[:14], np.roll(table[14:], 1, axis=0)])),
        "full rows",
        True,
    ),
    "one class's bias changed": (
        floats([3], lambda bias: bias + np.array([0.0, 3.0, 0.0])),
        "logits: largest difference",
        True,
    ),
    "a digest of other weights": (
        edited(lambda all_: all_["source"].update(dict.fromkeys(all_["source"], "0" * 64))),
        "source",
        True,
    ),
    "a weight file that the model lacks": (
        edited(lambda all_: all_["source"].update({"more.safetensors": "0" * 64})),
        "source",
        True,
    ),
    "a forged value in verification.json": (gate_check("labels", measured=0.9), "verification", True),
    "a forged size in verification.json": (gate_check("size", measured=1000.0), "verification", True),
    "a check that did not run, in verification.json": (
        recorded(lambda all_: all_["checks"].append({**all_["checks"][0], "name": "beauty"})),
        "verification",
        True,
    ),
    "a check left out of verification.json": (recorded(lambda all_: all_["checks"].pop()), "verification", True),
    "another recipe in verification.json": (recorded(lambda all_: all_.update(recipe="float16")), "verification", True),
    "a failed gate in verification.json": (recorded(lambda all_: all_.update(passed=False)), "verification", True),
    "more examples in verification.json": (
        recorded(lambda all_: all_["examples"].update(count=872)),
        "verification",
        True,
    ),
    "a score on the card, and none in the bundle": (
        on_card("## Score\n", "## Score\n\n| This file | 0.9900 |  |  |\n"),
        "card",
        True,
    ),
    "a forged gate value on the card": (on_card("| labels | 1 |", "| labels | 0.98 |"), "card", True),
}
# Faults of the kinds of others; test_record_checks puts those of records in more cheaply.
REPEATED = {
    "a flipped flag for accents",
    "a flipped flag for Chinese characters",
    "swapped segment rows",
    "a weight file that the model lacks",
    "a forged size in verification.json",
    "a check that did not run, in verification.json",
    "a check left out of verification.json",
    "another recipe in verification.json",
    "a failed gate in verification.json",
    "more examples in verification.json",
    "a forged gate value on the card",
}


def failed(verification: Verification) -> set[str]:
    return {check.name for check in verification.failures}


@pytest.mark.parametrize("fault", REFUSED)
def test_contradictory_bundle_does_not_open(fault: str, copy: Path) -> None:
    inject, message = REFUSED[fault]
    inject(copy)
    with pytest.raises(UserError, match=message) as raised:
        Bundle.open(copy)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("fault", UNREADABLE)
def test_damaged_goldens_are_one_line(fault: str, copy: Path) -> None:
    inject, message = UNREADABLE[fault]
    inject(copy)
    with pytest.raises(UserError, match=message) as raised:
        _ = Bundle.open(copy).goldens
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=[pytest.mark.nightly] * (fault in REPEATED)) for fault in FOUND]
)
def test_the_gate_names_the_fault(
    fault: str, copy: Path, small_model: Model, small_directory: Path, tokenizers: object
) -> None:
    inject, check, needs_model = FOUND[fault]
    inject(copy)
    examples = default_examples(small_model.task) if needs_model else None
    verification = verify_bundle(
        copy,
        reference=small_model if needs_model else None,
        examples=examples,
        model_directory=small_directory if needs_model else None,
    )
    assert check in failed(verification)


def test_int8_single_texts_still_check_segments(
    small_directory: Path, small_model: Model, tokenizers: object, tmp_path: Path
) -> None:
    # Equal rows move no logit by more than int8's bounds allow.
    result = export(small_directory, tmp_path / "int8", recipe="dynamic_wi8", lengths=(7, 19))
    examples = default_examples(small_model.task)
    assert verify_bundle(result.directory, reference=small_model, examples=examples).passed
    equal_type_rows(HIDDEN)(result.directory)
    verification = verify_bundle(result.directory, reference=small_model, examples=examples)
    (segments,) = [check for check in verification.checks if check.name == "segments"]
    assert not segments.passed and "0 times as far" in segments.reason


def test_constant_hides_no_text_ignoring_head(copy: Path, small_model: Model, tokenizers: object) -> None:
    weights = small_model.weights_by_path()
    kernel, bias = (weights[f"heads.classification.output.{name}"] for name in ("kernel", "bias"))
    original_bias = bias.numpy()
    # Both answer 100 more: the bundle nothing else, the model as before.
    floats([3], lambda values: values + 100)(copy)
    floats([*map(int, kernel.shape[::-1])], lambda values: values * 0)(copy)
    answers("logits", lambda logits: logits + 100)(copy)
    try:
        bias.assign(original_bias + 100)
        verification = verify_bundle(copy, reference=small_model, examples=default_examples(small_model.task))
    finally:
        bias.assign(original_bias)
    assert {"sensitivity", "goldens: largest difference", "logits: largest difference"} <= failed(verification)


def test_truncated_file_fails_in_one_line(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut(layout.MODEL_FILE, 900)(copy)
    for command in (["verify", str(copy)], ["predict", f"--model={copy}", f"--input={copy / 'labels.txt'}"]):
        assert cli.main(command) == 2
        printed = capsys.readouterr()
        assert (printed.out, printed.err.strip().count("\n")) == ("", 0)
        assert "model.tflite must" in printed.err and "Traceback" not in printed.err


@pytest.mark.parametrize("form", ["bundle", "directory"])
def test_predict_prints_no_nan(
    form: str, copy: Path, small_model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copy
    if form == "bundle":
        floats([VOCAB_SIZE, HIDDEN], lambda table: table * np.nan)(copy)
    else:
        folder = tmp_path / "directory"
        small_model.save_pretrained(folder)
        weights = load((folder / "model.safetensors").read_bytes())
        (name,) = [name for name in weights if name.endswith("word_embeddings.weight")]
        weights[name] = weights[name] * np.nan
        (folder / "model.safetensors").write_bytes(save(weights, {"format": "pt"}))
    assert cli.main(["predict", f"--model={folder}", f"--input={copy / 'labels.txt'}"]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and re.search("must be finite", printed.err)
    assert printed.err.strip().count("\n") == 0


def test_outside_files_never_reach_a_phone(copy: Path) -> None:
    from pocketbert_bench.device import bundle_files

    assert layout.GOLDENS_FILE in bundle_files(copy)
    outside("../../secret")(copy)
    with pytest.raises(UserError, match="'../../secret' does not match"):
        bundle_files(copy)


@pytest.mark.parametrize("kind", ["/outputs/logits", "/exported_outputs/logits"])
def test_bench_reads_both_answers(kind: str, copy: Path, tokenizers: object) -> None:
    from pocketbert_bench.configurations import from_bundle

    assert all(subject.problem is None for subject in from_bundle(copy, None, [1]))
    answers(kind, np.negative)(copy)
    assert all(
        "of the file's outputs from the float" in str(subject.problem) for subject in from_bundle(copy, None, [1])
    )


def test_encoder_of_384_tokens_stays_small(tmp_path: Path) -> None:
    config = networks.bert_config(max_position_embeddings=384, num_layers=1)
    tokenizer = WordPieceTokenizer(networks.vocabulary(tmp_path))
    networks.network(config, (), tokenizer).save_pretrained(tmp_path / "model")
    result = export(tmp_path / "model", tmp_path / "bundle", recipe="float32", lengths=(128, 384))
    assert (result.directory / layout.BUNDLE_FILE).stat().st_size < 100_000
    shapes = {golden.outputs["sequence_output"].shape for golden in result.goldens}
    assert shapes == {(1, 128, HIDDEN), (1, 384, HIDDEN)}


def test_documented_fault_table_is_complete() -> None:
    page = DOCS.read_text(encoding="utf-8")
    listed = re.findall(r"^\| \d+ \| ([^|]+) \| ([^|]+) \|", page, re.MULTILINE)
    assert len(listed) >= 30
    documented = {name.strip(): check.strip(" `") for name, check in listed}
    for fault, (_, check, _) in FOUND.items():
        assert documented[fault] == check.partition(":")[0]
    for fault in REFUSED:
        assert documented[fault] == "opening"
    for fault in UNREADABLE:
        assert documented[fault] == "reading"
