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
from tiny_compression import compress_fast, train_briefly

import pocketbert as pb
from pocketbert.checkpoints.directory import read_directory
from pocketbert.cli import main
from pocketbert.configs import EncoderConfig
from pocketbert.data.final_split import three_splits
from pocketbert.errors import UserError
from pocketbert.pruning.importance import Importance
from pocketbert.trials.journal import Journal
from pocketbert_bench.compression import choice, costs
from pocketbert_bench.compression.constraints import Constraints, Cost
from pocketbert_bench.compression.costs import fit, fitted_networks
from pocketbert_bench.compression.journal import Trial
from pocketbert_bench.compression.measurements import Measured
from pocketbert_bench.compression.structures import Structure, structures, write_student
from pocketbert_bench.network_latency import Host, NetworkCost, Setting
from pocketbert_export.quantization.scored_texts import Loss
from pocketbert_export.verification.verify import GateFailed

TEACHER = tiny.BERT.replace(num_layers=5, initializer_range=0.1)
HEADS, NEURONS = TEACHER.num_attention_heads, TEACHER.intermediate_size
pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(scope="module", autouse=True)
def _few_steps() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        train_briefly(patched)
        yield


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


def formula_ms(config: EncoderConfig, *, first_token: bool) -> float:
    """A latency whose last layer may compute one token."""
    layers, heads, neurons = config.num_layers - first_token, config.num_attention_heads, config.intermediate_size
    rank = config.embedding_size if config.embedding_projection == "factors" else 0
    whole = 0.3 + layers * (0.05 + 0.02 * heads + 1e-4 * neurons) + 0.003 * rank
    return whole + (0.007 * heads + 3e-5 * neurons if first_token else 0)


def formula_mb(config: EncoderConfig) -> float:
    layers, heads, neurons = config.num_layers, config.num_attention_heads, config.intermediate_size
    columns = config.embedding_size if config.embedding_projection == "factors" else config.hidden_size
    return 2 + layers * (0.5 + 0.1 * heads + 1e-3 * neurons) + 1e-6 * config.vocab_size * (columns + 4)


@pytest.mark.parametrize(
    ("layers", "pooling", "small_embedding"),
    [(7, None, True), (7, "mean", True), (7, "mean", False), (2, "mean", True), (3, None, False)],
)
def test_costs_that_are_linear_in_the_terms_are_predicted(layers: int, pooling: Any, small_embedding: bool) -> None:
    base = TEACHER.replace(
        num_layers=layers,
        num_attention_heads=12,
        intermediate_size=1536,
        hidden_size=144,
        embedding_size=144,
        vocab_size=9001,
    )

    def cost(config: EncoderConfig, *, first_token: bool) -> NetworkCost:
        # A longer text takes thrice as long.
        latency, size = formula_ms(config, first_token=first_token), formula_mb(config)
        return NetworkCost(
            latency_us=(1e3 * latency, 3e3 * latency),
            file_bytes=round(1e6 * size),
            memory_bytes=round(3e6 * size + 7e6),
        )

    task, first = dataclasses.replace(tiny_finetuning.TASK, pooling=pooling), pooling is None
    networks = fitted_networks(base, task, small_embedding=small_embedding)
    costs = [cost(config, first_token=task.pooling is None) for config, task in networks]
    model = fit(networks, costs, Setting(task=task, recipe="float32", lengths=(64, 160)))
    other = base.replace(num_layers=min(layers, 4), num_attention_heads=9, intermediate_size=768, vocab_size=777)
    factored = other.replace(embedding_size=128, embedding_projection="factors")
    # The rank's time is unknown without a factored network.
    for config, share in ((other, 0.0), (other, 0.3), (factored if small_embedding else other, 1.0)):
        for first_token in (first, True):
            expected = cost(config, first_token=first_token)
            predicted = model.predict(config, {64: share, 160: 1 - share}, first_token=first_token)
            mean = share * expected.latency_us[0] + (1 - share) * expected.latency_us[1]
            assert predicted.latency_ms == pytest.approx(mean / 1e3, rel=1e-5)
            assert predicted.size_mb == pytest.approx(expected.file_bytes / 1e6, rel=1e-5)
            assert predicted.memory_mb == pytest.approx(expected.memory_bytes / 1e6, rel=1e-5)


def test_costs_are_measured_once_for_each_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POCKETBERT_CACHE", str(tmp_path))
    monkeypatch.setattr(costs, "_MOST_OTHERS", 25.0)
    calls: list[int] = []
    others = 0.0

    def measured(self: Host, networks: Any, setting: Setting, folder: Path) -> list[NetworkCost]:
        calls.append(setting.threads)
        return [NetworkCost((1.0 + number,), 2, 3, others) for number in range(len(networks))]

    monkeypatch.setattr(Host, "measure", measured)

    def fitted(threads: int) -> costs.CostModel:
        setting = Setting(task=tiny_finetuning.TASK, recipe="float32", lengths=(16,), threads=threads)
        return costs.fitted_model(TEACHER, setting, small_embedding=False, device=Host())

    first = fitted(1)
    assert fitted(1) == first and calls == [1]
    fitted(2)
    assert calls == [1, 2]
    for path in (tmp_path / "costs").iterdir():
        path.write_text('{"float32": {"latency": "fast"}}')
    assert fitted(1) == first and calls == [1, 2, 1]
    model = dataclasses.replace(first, latency=[costs.LengthModel(length=16, coefficients=8 * [1.0])])
    costs.write_costs({"float32": model}, tmp_path / "earlier.json")
    with pytest.raises(UserError, match="must have 7 coefficients for each length; received 8.*into a new folder"):
        costs.read_costs(tmp_path / "earlier.json")
    # What other programs disturb is measured again.
    others = 40.0
    assert fitted(3) == fitted(3) and calls == [1, 2, 1, 3, 3]


def test_excess_is_the_sum_of_shares_beyond_the_limits() -> None:
    limits = Constraints(max_latency_ms=2, max_mb=10, max_memory_mb=50)

    def excess(latency_ms: float, size_mb: float, memory_mb: float, margin: float = 0.0) -> float:
        return limits.excess(Cost(latency_ms=latency_ms, size_mb=size_mb, memory_mb=memory_mb), margin)

    assert excess(2, 10, 50) == 0
    assert excess(3, 11, 60) == pytest.approx(0.8)
    assert excess(1.95, 9.99, 1, 0.03) == pytest.approx(1.95 / 1.94 - 1)
    assert Constraints().excess(Cost(latency_ms=1e9, size_mb=1e9, memory_mb=1e9)) == 0


@pytest.mark.parametrize("count", [7, 300, 913])
def test_loss_of_exactly_the_limit_is_allowed(count: int) -> None:
    for lost in range(1, 6):
        limits = Constraints(max_points_lost=100 * lost / count)
        for right in range(lost, count + 1):
            least = limits.least_score(right / count)
            assert (right - lost) / count >= least > (right - lost - 1) / count


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """The command of a finished compression, and its folder."""
    folder = tmp_path_factory.mktemp("compress")
    tiny_finetuning.write_model(folder / "encoder", TEACHER.replace(num_layers=2))
    tiny_finetuning.write_table(folder / "train.csv", tiny_finetuning.examples(560, seed=1))
    command = ["compress", f"--model={folder / 'encoder'}", f"--train-file={folder / 'train.csv'}", "--trials=2"]
    command += ["--length=16", "--max-mb=0.2", "--license=mit", "--base-model=example/encoder"]
    command.append(f"--output={folder / 'out'}")
    assert main(command) == 0
    return command, folder / "out"


def test_page_and_files_say_the_same(finished: tuple[list[str], Path]) -> None:
    _, folder = finished
    result = json.loads((folder / "result.json").read_text())
    board = json.loads((folder / "leaderboard.json").read_text())
    page = html.unescape((folder / "report.html").read_text())
    assert f'<p class="lead">{result["sentence"]}</p>' in page
    assert board == result["leaderboard"] and len(board) == 2
    (winner,) = [row for row in board if row["chosen"]]
    assert winner["score"] == max(row["score"] for row in board)
    assert all(f">{row['stopped']}</td>" in page for row in board if not row["chosen"])
    size = (folder / "bundle" / "model.tflite").stat().st_size / 1e6
    assert result["size_mb"] == size <= 0.2
    checks = json.loads((folder / "bundle" / "verification.json").read_text())["checks"]
    assert f"{len(checks)} of {len(checks)} checks passed" in page and all(check["reason"] in page for check in checks)


def test_model_card_has_licence_base_model_and_measured_latency(finished: tuple[list[str], Path]) -> None:
    _, folder = finished
    card, page = (folder / "bundle" / "README.md").read_text(), html.unescape((folder / "report.html").read_text())
    assert card in page and card.splitlines()[1] == 'license: "mit"'
    assert "# out" in card and "example/encoder" in card
    median = json.loads((folder / "result.json").read_text())["latency_ms"][0]
    (latency,) = json.loads((folder / "bundle" / "bundle.json").read_text())["model_card"]["latencies"]
    assert (latency["length"], latency["threads"], latency["median_ms"]) == (16, 1, median)
    assert latency["runtime"].startswith("litert 2")


def test_score_is_that_of_the_bundle_on_unseen_examples(finished: tuple[list[str], Path]) -> None:
    _, folder = finished
    result = json.loads((folder / "result.json").read_text())
    bundle = pb.Bundle.open(folder / "bundle")
    final = three_splits(pb.data.table(folder.parent / "train.csv")).final
    assert final is not None
    predicted = [answer["label"] for answer in bundle.predict(list(final.dev.texts))]
    truths = [bundle.task.labels[number] for number in final.dev.labels]
    right = np.mean([label == truth for label, truth in zip(predicted, truths, strict=True)])
    assert result["metrics"]["accuracy"] == pytest.approx(right)


def test_bundle_verifies_against_its_model(finished: tuple[list[str], Path]) -> None:
    _, folder = finished
    assert main(["verify", str(folder / "bundle"), f"--model={folder / 'model'}"]) == 0


def test_limits_that_nothing_meets_are_refused_before_anything_is_written(
    finished: tuple[list[str], Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
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
def untrained(finished: tuple[list[str], Path], monkeypatch: pytest.MonkeyPatch, eager: None) -> list[str]:
    """The command of a compression of the finished run's teacher, without its output and training."""
    compress_fast(finished[1].parent, monkeypatch)
    return ["compress", f"--model={finished[1] / 'teacher' / 'model'}", *finished[0][2:-1]]


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
    # The dev split tells the candidates apart, so the better one is exported first.
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
