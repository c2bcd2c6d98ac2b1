"""Files of `pocketbert compress`: trimmed vocabularies, mixed precision, and networks of other models."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tiny
import tiny_finetuning
from tiny_compression import export_once, train_briefly
from tiny_finetuning import BAD, GOOD, NEUTRAL

import pocketbert as pb
from pocketbert.checkpoints.directory import read_directory
from pocketbert.cli import main
from pocketbert_bench.compression import candidates, choice, final_scores, run
from pocketbert_bench.compression.costs import CostModel, LengthModel, write_costs
from pocketbert_bench.compression.inputs import check
from pocketbert_bench.compression.measurements import (
    COSTS_FILE,
    BundleMeasurements,
    Measured,
    read_measured,
    write_measured,
)
from pocketbert_bench.network_latency import Host
from pocketbert_export.bundles.bundle import MODEL_FILE, Bundle
from pocketbert_export.verification.verify import GateFailed

TEACHER = tiny.BERT.replace(num_layers=2, initializer_range=0.1)
EMBEDDING_MB = TEACHER.vocab_size * TEACHER.hidden_size / 1e6


def model_of(size: float) -> CostModel:
    """A layer takes 1 ms; the file is as large as its word embedding times a factor."""
    latency = [LengthModel(length=16, coefficients=[0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0])]
    return CostModel(first_token=False, latency=latency, size=[0.0, 0.0, 0.0, 0.0, size], memory=[9.0] + 4 * [0.0])


def measured(bundle: Bundle, *_: Any, **__: Any) -> Measured:
    return Measured(latency_ms=(1.0, 0.99, 1.01), teacher_ms=2.0, size_mb=0.0, memory_mb=9.0)


class Refused(GateFailed):
    def __init__(self) -> None:
        Exception.__init__(self, "the outputs differ")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    tokens = pb.from_pretrained(tiny_finetuning.write_model(folder / "usual", TEACHER)).tokenizer.vocabulary.tokens()
    # Unused tokens come before the others, so that a trimmed vocabulary has other ids.
    ordered = [*tokens[:5], *reversed(tokens[5:])]
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in ordered))
    tokenizer = pb.WordPieceTokenizer(folder / "vocab.txt")
    pb.from_preset(TEACHER, tokenizer=tokenizer, seed=11).save_pretrained(folder / "encoder")
    pb.from_preset(TEACHER, tiny_finetuning.TASK, tokenizer, seed=4).save_pretrained(folder / "teacher")
    tiny_finetuning.write_table(folder / "train.csv", tiny_finetuning.examples(560, seed=1))
    return folder


@pytest.fixture
def compress(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    monkeypatch.setattr("pocketbert_bench.compression.measurements.measure", measured)
    train_briefly(monkeypatch)
    export_once(inputs / "exports", monkeypatch)
    for module in (choice, final_scores):
        monkeypatch.setattr(module, "simple_methods", lambda *_: [])

    def command(costs: dict[str, CostModel], *options: str, model: str = "teacher") -> int:
        monkeypatch.setattr(run, "measured_costs", lambda _: costs)
        start = ["compress", f"--model={inputs / model}", f"--train-file={inputs / 'train'}.csv", "--length=16"]
        return main([*start, *options, f"--output={tmp_path / 'out'}"])

    yield command


def leaderboard(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((folder / "out" / "leaderboard.json").read_text())
    return rows


def test_trimmed_vocabularies_have_the_tokens_of_the_training_texts(
    compress: Callable[..., int], inputs: Path, tmp_path: Path
) -> None:
    costs = {"dynamic_wi8": model_of(1.0), "dynamic_wi4": model_of(0.5)}
    assert compress(costs, f"--max-mb={0.9 * EMBEDDING_MB}", "--trials=1", model="encoder") == 0
    (row,) = leaderboard(tmp_path)
    assert row["trimmed_vocabulary"] and row["recipe"] == "dynamic_wi8"
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    lost = 100 * (result["teacher_score"] - result["metrics"][result["main_metric"]])
    # The teacher's bundle has other ids; with those of the student, it would guess.
    assert result["teacher_score"] > 0.9
    assert result["points_lost"][0] == pytest.approx(lost, abs=1e-9)
    whole, trimmed = (pb.from_pretrained(path) for path in (inputs / "teacher", tmp_path / "out" / "model"))
    texts = [line.rpartition(",")[0] for line in (inputs / "train.csv").read_text().splitlines()[1:]]
    words = {word for text in texts for word in text.strip('"').split()}
    assert whole.tokenizer is not None and trimmed.tokenizer is not None
    assert trimmed.tokenizer.vocab_size < whole.tokenizer.vocab_size
    tokens = [*trimmed.tokenizer.vocabulary.tokens()]  # type: ignore[attr-defined]
    assert words <= {*tokens}
    assert not [token for token in tokens if token.startswith("filler")]
    assert main(["verify", str(tmp_path / "out" / "bundle"), f"--model={tmp_path / 'out' / 'model'}"]) == 0


def test_trimmed_vocabularies_know_no_dev_and_final_texts(
    inputs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = tiny_finetuning.examples(300, seed=1)
    count = TEACHER.vocab_size - len([*tiny_finetuning.SPECIAL, *GOOD, *BAD, *NEUTRAL])
    texts = [f"{text} filler{number % count}" for number, text in enumerate(rows.texts)]
    # Each of these words stands in one text.
    texts[count:] = rows.texts[count:]
    tiny_finetuning.write_table(tmp_path / "train.csv", dataclasses.replace(rows, texts=texts))
    limits = pb.Constraints(max_mb=1, length=16)
    checked = check(inputs / "teacher", pb.data.table(tmp_path / "train.csv"), constraints=limits, trials=1)
    tokens = [*pb.from_pretrained(inputs / "teacher").tokenizer.vocabulary.tokens()]  # type: ignore[union-attr]
    kept = {tokens[number] for number in checked.kept_tokens if tokens[number].startswith("filler")}
    training = " ".join(checked.splits.data.train.texts).split()
    assert kept == {word for word in training if word.startswith("filler")} and 0 < len(kept) < count


@pytest.mark.nightly
def test_refused_trimmed_weights_leave_those_of_another_rung(
    compress: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real, trimmed = choice.export, list[dict[str, Any]]()

    def export(model: Path, path: Path, **options: Any) -> Bundle:
        if path.parent.name == "exports":
            trimmed.append({name: np.array(array) for name, array in read_directory(model).tensors.items()})
            if len(trimmed) == 1:
                raise Refused
        return real(model, path, **options)

    monkeypatch.setattr(choice, "export", export)
    costs = {"dynamic_wi8": model_of(1.0), "dynamic_wi4": model_of(0.5)}
    assert compress(costs, f"--max-mb={0.9 * EMBEDDING_MB}", "--trials=1") == 0
    (row,) = leaderboard(tmp_path)
    assert row["trimmed_vocabulary"] and len(trimmed) == 2
    refused, accepted = trimmed
    assert any(not np.array_equal(refused[name], accepted[name]) for name in accepted)
    written = read_directory(tmp_path / "out" / "model").tensors
    assert all(np.array_equal(written[name], accepted[name]) for name in accepted)


def test_costs_of_another_file_are_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    new = Measured(latency_ms=(3.0, 2.9, 3.1), teacher_ms=7.0, size_mb=0.0037, memory_mb=11.0)
    monkeypatch.setattr("pocketbert_bench.compression.measurements.measure", lambda *_, **__: new)
    (tmp_path / MODEL_FILE).write_bytes(bytes(3700))
    bundle: Any = SimpleNamespace(directory=tmp_path, lengths=(16,))
    limits = pb.Constraints(max_mb=0.004)
    options: dict[str, Any] = {"device": Host(), "minutes": None, "teacher_ms": 7.0}
    for size_mb in (0.0041, 0.0037):
        earlier = dataclasses.replace(new, latency_ms=(5.0, 4.9, 5.1), size_mb=size_mb)
        write_measured({"candidate": earlier}, tmp_path)
        measurements = BundleMeasurements(tmp_path, {16: 1.0}, limits, **options)
        # Another limit of the size gives the candidate another recipe, and so another file.
        expected = earlier if size_mb == 0.0037 else new
        assert measurements.of("candidate", bundle, bundle) == expected
        assert read_measured(tmp_path) == {"candidate": expected}


def test_memory_of_lengths_is_measured_if_an_earlier_run_has_none(
    inputs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = dataclasses.replace(model_of(1.0), length_memory=[2.0, 0.0])
    monkeypatch.setattr(candidates, "fitted_model", lambda *_, **__: whole)
    limits = pb.Constraints(max_memory_mb=99, length=29)
    checked = check(inputs / "teacher", pb.data.table(inputs / "train.csv"), constraints=limits, trials=1)
    checked = dataclasses.replace(checked, measurements=tmp_path)
    for earlier, expected in (
        (model_of(3.0), whole),
        (dataclasses.replace(model_of(3.0), length_memory=[5.0, 0.0]),) * 2,
    ):
        write_costs({"dynamic_wi8": earlier}, tmp_path / COSTS_FILE)
        assert candidates.measured_costs(checked) == {"dynamic_wi8": expected}


def test_mixed_files_are_as_large_as_the_limit_allows(compress: Callable[..., int], tmp_path: Path) -> None:
    costs = {"dynamic_wi8": model_of(1000.0), "dynamic_wi4": model_of(0.5)}
    assert compress(costs, "--max-mb=0.05", "--recipe=mixed", "--trials=1") == 0
    assert {row["recipe"] for row in leaderboard(tmp_path)} == {"mixed"}
    assert (tmp_path / "out" / "bundle" / MODEL_FILE).stat().st_size <= 50_000


def test_second_recipes_are_measured_if_the_latency_leaves_larger_networks(
    inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pb.data.table(inputs / "train.csv")
    # A layer takes 1 ms and is as large as the word embedding.
    model = dataclasses.replace(model_of(1.0), size=[0.0, EMBEDDING_MB, 0.0, 0.0, 1.0])
    monkeypatch.setattr(candidates, "fitted_model", lambda *_, **__: model)
    for most_ms, most_mb, recipes in ((9, 1.9, 2), (1.2, 1.9, 1), (9, 3.1, 1)):
        limits = pb.Constraints(max_latency_ms=most_ms, max_mb=most_mb * EMBEDDING_MB, length=16)
        checked = check(
            inputs / "teacher",
            data,
            constraints=limits,
            minutes=None,
            trials=1,
            measurements=None,
            kfold=None,
            recipe=None,
            students=(),
            text=None,
            stop_below_baseline=False,
            seed=0,
        )
        assert len(candidates.measured_costs(checked)) == recipes


def test_students_of_other_models_are_trained(
    compress: Callable[..., int], inputs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(candidates, "structures", lambda *_, **__: [])
    costs = {"dynamic_wi8": model_of(0.0), "dynamic_wi8, student-1=encoder": model_of(0.0)}
    assert compress(costs, f"--students={inputs / 'encoder'}", "--trials=1", "--max-latency-ms=9") == 0
    assert {row["structure"] for row in leaderboard(tmp_path)} == {"student-1=encoder"}


def test_texts_and_networks_that_no_candidate_reads_are_named(
    compress: Callable[..., int], inputs: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "plain.txt").write_text("a film with a plot\n\nthe scene of a story\n")
    (tmp_path / "more.txt").write_text("a film that no one has seen\n")
    costs = {"dynamic_wi8": model_of(0.0), "dynamic_wi8, student-1=encoder": model_of(0.0)}
    options = [f"--students={inputs / 'encoder'}", f"--text={tmp_path / 'plain.txt'}", "--trials=1", "--dry-run"]
    options += [f"--unlabelled-file={tmp_path / 'more.txt'}"]
    line = "no candidate within the limits reads"
    assert compress(costs, *options) == 0
    assert line not in capsys.readouterr().err
    heads, neurons = TEACHER.num_attention_heads, TEACHER.intermediate_size
    assert compress(costs, *options, f"--like=layers=1-2,heads={heads},neurons={neurons},finetune") == 0
    names = f"{inputs / 'encoder'}, {tmp_path / 'plain.txt'}, {tmp_path / 'more.txt'}"
    assert f"{line} {names}" in capsys.readouterr().err


def test_mixed_files_of_other_networks_are_not_trimmed(
    compress: Callable[..., int], inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipes = [f"dynamic_wi{bits}{name}" for bits in (8, 4) for name in ("", ", student-1=encoder")]
    costs = dict.fromkeys(recipes, model_of(0.0))
    options = ["--recipe=mixed", "--max-mb=1", f"--students={inputs / 'encoder'}", "--trials=1", "--dry-run"]
    assert compress(costs, *options, "--like=student-1=encoder,finetune") == 0
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert row["structure"] == "student-1=encoder" and not row["trimmed_vocabulary"]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--students=tinybert_4l_312d", "--students: tinybert_4l_312d: both models need the same vocabulary"),
        ("--students=nowhere", "nowhere"),
        ("--recipe=mixed", "--recipe=mixed is for files that are too large with dynamic_wi8"),
        ("--text=nowhere.txt", "nowhere.txt"),
    ],
)
def test_bad_options_are_refused(
    option: str, message: str, compress: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compress({"dynamic_wi8": model_of(0.0)}, option, "--trials=1", "--max-latency-ms=9") == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()
