"""`pocketbert compress`: cut networks, predicted costs, trials that resume, and a page that says what was found."""

from __future__ import annotations

import dataclasses
import html
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import tiny_finetuning
from safetensors.numpy import load_file
from tiny_compression import compress_fast

import pocketbert as pb
from pocketbert.checkpoints.directory import read_directory
from pocketbert.cli import main
from pocketbert.data.final_split import three_splits
from pocketbert.pruning.importance import Importance
from pocketbert.trials.journal import Journal
from pocketbert_bench.compression import choice, costs, run
from pocketbert_bench.compression.journal import Trial
from pocketbert_bench.compression.measurements import COSTS_FILE, Measured
from pocketbert_bench.compression.structures import Structure, structures, write_student
from pocketbert_bench.network_latency import Host
from pocketbert_export.quantization.scored_texts import Loss
from pocketbert_export.verification.verify import GateFailed

TEACHER = tiny.BERT.replace(num_layers=5, initializer_range=0.1)
HEADS, NEURONS = TEACHER.num_attention_heads, TEACHER.intermediate_size
pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compression")
    tokenizer = pb.from_pretrained(tiny_finetuning.write_model(folder / "encoder", TEACHER)).tokenizer
    pb.from_preset(TEACHER, tiny_finetuning.TASK, tokenizer, seed=4).save_pretrained(folder / "teacher")
    return folder / "teacher"


def random_importance(seed: int) -> Importance:
    random = np.random.default_rng(seed)
    return Importance(random.random([TEACHER.num_layers, HEADS]), random.random([TEACHER.num_layers, NEURONS]), 1)


def test_whole_structure_keeps_every_bit(teacher: Path, tmp_path: Path) -> None:
    whole = Structure(layers=(1, 2, 3, 4, 5), heads=HEADS, intermediate_size=NEURONS)
    write_student(read_directory(teacher), random_importance(1), whole, tmp_path / "student")
    expected, received = (read_directory(path).tensors for path in (teacher, tmp_path / "student"))
    assert expected.keys() == received.keys()
    assert all(np.array_equal(expected[name], received[name]) for name in expected)


def test_layers_are_cut_as_in_transformers(teacher: Path, tmp_path: Path) -> None:
    import transformers

    few = Structure(layers=(2, 5), heads=HEADS, intermediate_size=NEURONS)
    write_student(read_directory(teacher), None, few, tmp_path / "student")
    oracle = transformers.TFBertForSequenceClassification(transformers.AutoConfig.from_pretrained(teacher))
    stored = {name: np.asarray(array) for name, array in load_file(teacher / "model.safetensors").items()}
    oracle = transformers.modeling_tf_pytorch_utils.load_pytorch_state_dict_in_tf2_model(oracle, stored)
    layers = oracle.bert.encoder.layer
    oracle.bert.encoder.layer = [layers[1], layers[4]]
    ids = np.array([[2, 7, 9, 11, 3]], np.int32)
    expected = oracle({"input_ids": ids, "attention_mask": np.ones_like(ids)}).logits.numpy()
    student = pb.from_pretrained(tmp_path / "student")
    inputs = {"input_word_ids": ids, "input_mask": np.ones_like(ids), "input_type_ids": np.zeros_like(ids)}
    np.testing.assert_allclose(student(inputs)["logits"].numpy(), expected, atol=2e-5)


def test_the_most_important_parts_of_each_layer_stay(teacher: Path, tmp_path: Path) -> None:
    importance = random_importance(3)
    structure = Structure(layers=(1, 4), heads=1, intermediate_size=7)
    write_student(read_directory(teacher), importance, structure, tmp_path / "student")
    before, after = (read_directory(path).tensors for path in (teacher, tmp_path / "student"))
    for index, layer in enumerate((0, 3)):
        neurons = np.sort(np.argsort(-importance.neurons[layer])[:7])
        name = "feed_forwards.0.intermediate.bias"
        expected = before[f"encoder.layers.{layer}.{name}"][neurons]
        assert np.array_equal(after[f"encoder.layers.{index}.{name}"], expected)
        head, size = int(np.argmax(importance.heads[layer])), TEACHER.head_size
        expected = before[f"encoder.layers.{layer}.attention.query.bias"][head * size : (head + 1) * size]
        assert np.array_equal(after[f"encoder.layers.{index}.attention.query.bias"], expected)


def test_each_structure_has_another_name_and_fits_its_teacher() -> None:
    everything = list(structures(TEACHER, small_embedding=False))
    assert len({structure.name for _, structure in everything}) == len(everything)
    for _, structure in everything:
        config = structure.config(TEACHER)
        assert config.num_layers == len(structure.layers) <= TEACHER.num_layers
        assert max(structure.layers) <= TEACHER.num_layers and len({*structure.layers}) == len(structure.layers)
    assert {len(structure.layers) for _, structure in everything} == {1, 2, 3, 4, 5}


@pytest.fixture(scope="module")
def finished(
    training: str, compression_inputs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[list[str], Path]]:
    """The command of a finished compression, and its folder."""
    output = tmp_path_factory.mktemp(f"compress-{training}") / "out"
    command = ["compress", f"--model={compression_inputs / 'encoder'}", "--trials=4"]
    command += [f"--train-file={compression_inputs / 'train.csv'}", "--length=16", "--max-mb=0.2"]
    command += ["--license=mit", "--base-model=example/encoder", f"--output={output}"]
    few = costs.fitted_networks
    with pytest.MonkeyPatch.context() as patched:
        if training == "untrained":
            patched.setattr(costs, "fitted_networks", lambda *arguments, **options: few(*arguments, **options)[:2])
        assert main(command) == 0
        yield command, output


def test_page_and_files_say_the_same(finished: tuple[list[str], Path]) -> None:
    _, folder = finished
    result = json.loads((folder / "result.json").read_text())
    board = json.loads((folder / "leaderboard.json").read_text())
    page = html.unescape((folder / "report.html").read_text())
    assert f'<p class="lead">{result["sentence"]}</p>' in page
    assert board == result["leaderboard"] and len(board) == 4
    (winner,) = [row for row in board if row["chosen"]]
    # The dev split may not tell the best one from a faster one.
    told = any("dev examples do not tell this candidate from" in note for note in result["notes"])
    assert (winner["score"] == max(row["score"] for row in board)) or told
    assert all(f">{row['stopped']}</td>" in page for row in board if not row["chosen"])
    size = (folder / "bundle" / "model.tflite").stat().st_size / 1e6
    assert result["size_mb"] == size <= 0.2
    checks = json.loads((folder / "bundle" / "verification.json").read_text())["checks"]
    assert f"{len(checks)} of {len(checks)} checks passed" in page and all(check["reason"] in page for check in checks)


def test_page_and_options_have_the_commands(finished: tuple[list[str], Path]) -> None:
    _, folder = finished
    board = json.loads((folder / "leaderboard.json").read_text())
    page, options = html.unescape((folder / "report.html").read_text()), (folder / "run.toml").read_text()
    assert {row["method"] for row in board} == {"finetune", "predictions"}
    assert not any(row["difference"] for row in board)
    for row in board:
        assert "\n".join(row["commands"]) in page
        assert "".join(f"# {line}\n" for line in row["commands"]) in options
        names = [line.split()[1] for line in row["commands"]]
        trains = "finetune" if row["method"] == "finetune" else "distill"
        assert names[:3] == ["finetune", "prune", trains] and names[-1] == "export"
        assert {*names[2:-1]} == {trains}
    # The finished result, by the file of its options.
    assert main(["compress", f"--config={folder / 'run.toml'}"]) == 0


def test_model_card_has_licence_base_model_and_measured_latency(finished: tuple[list[str], Path]) -> None:
    _, folder = finished
    card, page = (folder / "bundle" / "README.md").read_text(), html.unescape((folder / "report.html").read_text())
    assert card in page and card.splitlines()[1] == 'license: "mit"'
    assert "# out" in card and "example/encoder" in card
    median = json.loads((folder / "result.json").read_text())["latency_ms"][0]
    (latency,) = json.loads((folder / "bundle" / "bundle.json").read_text())["model_card"]["latencies"]
    assert (latency["length"], latency["threads"], latency["median_ms"]) == (16, 1, median)
    assert latency["runtime"].startswith("litert 2")


def test_score_is_that_of_the_bundle_on_unseen_examples(
    finished: tuple[list[str], Path], compression_inputs: Path
) -> None:
    _, folder = finished
    result = json.loads((folder / "result.json").read_text())
    bundle = pb.Bundle.open(folder / "bundle")
    final = three_splits(pb.data.table(compression_inputs / "train.csv")).final
    assert final is not None
    predicted = [answer["label"] for answer in bundle.predict(list(final.dev.texts))]
    truths = [bundle.task.labels[number] for number in final.dev.labels]
    right = np.mean([label == truth for label, truth in zip(predicted, truths, strict=True)])
    assert result["metrics"]["accuracy"] == pytest.approx(right)


def test_bundle_verifies_against_its_model(finished: tuple[list[str], Path]) -> None:
    _, folder = finished
    assert main(["verify", str(folder / "bundle"), f"--model={folder / 'model'}"]) == 0


def test_limits_that_nothing_meets_are_refused_before_anything_is_written(
    finished: tuple[list[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    model = costs.read_costs(finished[1] / COSTS_FILE)["dynamic_wi8"]
    monkeypatch.setattr(run, "measured_costs", lambda _: {"dynamic_wi8": model, "dynamic_wi4": model})
    command = [option for option in finished[0] if not option.startswith(("--output", "--max-mb"))]
    assert main([*command, "--max-mb=0.001", f"--output={tmp_path / 'out'}"]) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert "no network within the limits" in message and "the nearest, layers=" in message
    assert not (tmp_path / "out").exists()
    before = (finished[1] / "result.json").read_bytes()
    assert main([*command, "--max-mb=0.001", "--overwrite", f"--output={finished[1]}"]) == 2
    assert (finished[1] / "result.json").read_bytes() == before
    assert main(finished[0]) == 0


def test_killed_run_resumes_with_the_same_trials(
    finished: tuple[list[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = [*finished[0][:-1], f"--output={tmp_path / 'out'}"]
    add = Journal.add

    def add_and_die(self: Journal[Trial], one: Trial) -> None:
        add(self, one)
        raise SystemExit(9)

    with monkeypatch.context() as patched, pytest.raises(SystemExit):
        patched.setattr(Journal, "add", add_and_die)
        main(command)
    first = (tmp_path / "out" / "journal.jsonl").read_bytes()
    assert main(command) == 0
    assert (tmp_path / "out" / "journal.jsonl").read_bytes().startswith(first)
    expected, received = (
        [
            dataclasses.replace(one, seconds=0.0, training_seconds=0.0)
            for one in Journal(folder / "journal.jsonl", (Trial,)).records
        ]
        for folder in (finished[1], tmp_path / "out")
    )
    assert {one.candidate for one in received} == {one.candidate for one in expected}
    by_name = {(one.candidate, one.rung): one for one in expected}
    assert all(one == by_name[one.candidate, one.rung] for one in received if (one.candidate, one.rung) in by_name)


def test_measurements_of_an_earlier_run_give_the_same_winner(
    finished: tuple[list[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("measured again")

    command = [*finished[0][:-1], f"--measurements={finished[1]}", f"--output={tmp_path / 'out'}"]
    monkeypatch.setattr(Host, "measure", fail)
    monkeypatch.setattr(Host, "bench", fail)
    monkeypatch.setenv("POCKETBERT_CACHE", str(tmp_path / "cache"))
    assert main(command) == 0
    boards, results = (
        [json.loads((folder / name).read_text()) for folder in (finished[1], tmp_path / "out")]
        for name in ("leaderboard.json", "result.json")
    )
    for row in (*boards[0], *boards[1]):
        del row["seconds"], row["training_seconds"], row["commands"]
    assert boards[0] == boards[1]
    assert results[0]["latency_ms"] == results[1]["latency_ms"] and results[0]["sentence"] == results[1]["sentence"]
    models = [(folder / "bundle" / "model.tflite").read_bytes() for folder in (finished[1], tmp_path / "out")]
    assert models[0] == models[1]
    for options, message in (
        (["--length=24"], "it has other lengths; leave it out to measure them"),
        (["--threads=2"], "it has other threads; leave it out"),
        ([f"--measurements={tmp_path}"], "must be a finished run of pocketbert compress; it has no run.json, result"),
        (["--trials=off", "--minutes=1"], "--measurements repeats a run with --trials; received none"),
    ):
        assert main([*command[:-1], *options, f"--output={tmp_path / 'other'}"]) == 2
        assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "other").exists()
    assert main([*command[:-1], "--overwrite", f"--output={finished[1]}"]) == 2
    assert "an input must not be in the output" in capsys.readouterr().err.splitlines()[-1]


@pytest.fixture
def untrained(
    finished: tuple[list[str], Path], compression_inputs: Path, monkeypatch: pytest.MonkeyPatch, eager: None
) -> list[str]:
    """The command of a compression of the finished run's teacher, without its output, measurements and training."""
    compress_fast(compression_inputs, monkeypatch)
    monkeypatch.setattr(run, "measured_costs", lambda _: costs.read_costs(finished[1] / COSTS_FILE))
    command = [option for option in finished[0] if not option.startswith(("--model", "--output", "--trials"))]
    return [*command, f"--model={finished[1] / 'teacher' / 'model'}", "--trials=2"]


def test_ctrl_c_exports_the_best_candidate_so_far(
    untrained: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    add = Journal.add

    def add_and_interrupt(self: Journal[Trial], one: Trial) -> None:
        add(self, one)
        raise KeyboardInterrupt

    monkeypatch.setattr(Journal, "add", add_and_interrupt)
    assert main([*untrained, f"--output={tmp_path / 'out'}"]) == 0
    (row,) = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    assert row["chosen"] and (tmp_path / "out" / "bundle" / "model.tflite").exists()


class Refused(GateFailed):
    def __init__(self) -> None:
        Exception.__init__(self, "the outputs differ")


def test_files_that_fail_the_gate_are_not_chosen(
    untrained: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    # The dev split tells the candidates apart, so the better one is exported first. They are compared if the other one
    # is faster by this run's measurements; without training, they have no head.
    monkeypatch.setattr(choice, "model_predictor", lambda *_, **__: None)
    monkeypatch.setattr(choice, "paired_loss", lambda *_: Loss(3.0, (1.0, 5.0)))
    real, exported = choice.export, []

    def export(model: Path, path: Path, **options: Any) -> pb.Bundle:
        if path.parent.name == "exports":
            exported.append(path.name)
            raise Refused
        return real(model, path, **options)

    monkeypatch.setattr(choice, "export", export)
    assert main([*untrained, f"--output={tmp_path / 'out'}"]) == 1
    assert "no trained candidate met limits and gate" in capsys.readouterr().err.splitlines()[-1]
    # Both candidates, and the best one also with the weights of its first rung.
    names = [(name.rpartition(",")[0], name.rpartition("=")[2]) for name in exported]
    assert [rung for _, rung in names] == ["2", "0", "0"] and len({name for name, _ in names}) == 2
    assert not (tmp_path / "out" / "bundle").exists()
    # With a limit of the points lost, no candidate is left that could be the nearest.
    assert main([*untrained, "--max-points-lost=90", f"--output={tmp_path / 'points'}"]) == 1
    assert "no trained candidate met limits and gate" in capsys.readouterr().err.splitlines()[-1]


def test_result_names_better_weights_that_fail_the_gate(
    untrained: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = choice.export

    def export(model: Path, path: Path, **options: Any) -> pb.Bundle:
        if path.name.endswith("rung=2"):
            raise Refused
        return real(model, path, **options)

    monkeypatch.setattr(choice, "export", export)
    monkeypatch.setattr(choice.Choice, "_faster_of_equals", lambda *_: False)
    assert main([*untrained, f"--output={tmp_path / 'out'}"]) == 0
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    (row,) = [row for row in result["leaderboard"] if row["chosen"]]
    best = max(json.loads(line)["score"] for line in (tmp_path / "out" / "journal.jsonl").read_text().splitlines())
    note = f"other weights, with {best:.4f} on the dev split, fail the gate: the outputs differ"
    assert row["rungs"] == 3 and note in result["notes"]
    assert note in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(("again", "code"), [(4.9, 0), (5.1, 1)])
def test_near_misses_are_measured_again(
    again: float, code: int, untrained: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    latencies = iter([5.2, again])

    def measure(*_: Any, **__: Any) -> Measured:
        # The teacher is as fast as ever, so the machine is.
        latency = next(latencies, 99.0)
        return Measured(latency_ms=(latency - 0.1, latency - 0.2, latency), teacher_ms=1e-6, size_mb=0.1, memory_mb=9.0)

    monkeypatch.setattr("pocketbert_bench.compression.measurements.measure", measure)
    assert main([*untrained, "--max-latency-ms=5", f"--output={tmp_path / 'out'}"]) == code
    assert next(latencies, None) is None
    if code == 0:
        assert json.loads((tmp_path / "out" / "result.json").read_text())["latency_ms"] == pytest.approx(
            [4.8, 4.7, 4.9]
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--recipe=static_wi8_ai8"], "the recipe must need no calibration; received static_wi8_ai8"),
        (["--length=30"], "length must be at most the model's 29 positions; received 30"),
        (["--minutes=5"], "pass either --minutes or --trials; received both"),
        (["--trials=0"], "--trials must be positive; received 0"),
    ],
)
def test_bad_options_are_refused(
    options: list[str],
    message: str,
    finished: tuple[list[str], Path],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    names = {option.partition("=")[0] for option in options}
    command = [option for option in finished[0][:-1] if option.partition("=")[0] not in names]
    assert main([*command, *options, f"--output={tmp_path / 'out'}"]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()
