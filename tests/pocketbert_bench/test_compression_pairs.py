"""`pocketbert compress` with a teacher that reads the texts of a pair one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import tiny_finetuning
from tiny_compression import TEACHER, compress_command, compress_fast

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError
from pocketbert.tasks.registry import get_task
from pocketbert_bench import host
from pocketbert_bench.compression.constraints import Constraints
from pocketbert_bench.compression.inputs import check
from pocketbert_bench.configurations import Configuration
from pocketbert_bench.network_latency import Host, RandomNetwork, Setting
from pocketbert_runtime.embedding_config import EmbeddingConfig

LABELS = ("differ", "same")
TASK = TaskConfig(kind="classification", labels=LABELS, pairs="separate", pooling="mean")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A teacher, and a table of 560 pairs, whose label says whether their moods are the same."""
    folder = tmp_path_factory.mktemp("pairs")
    tokenizer = pb.from_pretrained(tiny_finetuning.write_model(folder / "encoder", TEACHER)).tokenizer
    config = get_task(TASK).encoder_config(TEACHER)
    pb.from_preset(config, TASK, tokenizer, seed=4).save_pretrained(folder / "teacher")
    first, second = tiny_finetuning.examples(560, seed=1), tiny_finetuning.examples(560, seed=2)
    labels = np.array(LABELS)[(first.labels == second.labels).astype(int)]
    pandas.DataFrame({"text": first.texts, "pair": second.texts, "label": labels}).to_csv(
        folder / "train.csv", index=False
    )
    return folder


@pytest.mark.nightly
def test_candidates_read_pairs_as_the_teacher(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compress_fast(inputs, monkeypatch)
    command = compress_command(inputs, tmp_path / "out", monkeypatch)
    assert command("--pair-column=pair", "--trials=3", "--max-latency-ms=1.6") == 0
    assert "candidates read the two texts of a pair one by one, as the teacher does" in capsys.readouterr().err
    result = json.loads((tmp_path / "out" / "result.json").read_text("utf-8"))
    assert "ms for a pair of texts at 16 tokens" in result["sentence"]
    bundle = pb.Bundle.open(tmp_path / "out" / "bundle")
    assert bundle.pair_task is not None and bundle.pair_task.labels == LABELS
    trained = [row for row in result["leaderboard"] if row["commands"]]
    assert trained and all(row["model"] is None or reads_separately(tmp_path / "out" / row["model"]) for row in trained)
    finetuned = [line for row in trained for line in row["commands"] if line.startswith("pocketbert finetune")]
    assert finetuned and all("--pairs=separate" in line for line in finetuned)
    others = [line for row in trained for line in row["commands"] if not line.startswith("pocketbert finetune")]
    assert others and not any("--pairs=" in line for line in others)


@pytest.fixture
def embedding_inputs(inputs: Path, tmp_path: Path) -> Path:
    """A pair of one text twice is "same", which separate vectors show before the encoder trains."""
    embeds = TaskConfig(kind="embedding", embedding=EmbeddingConfig())
    tokenizer = pb.from_pretrained(inputs / "encoder").tokenizer
    pb.from_preset(TEACHER, embeds, tokenizer, seed=4).save_pretrained(tmp_path / "teacher")
    table = pandas.read_csv(inputs / "train.csv")
    table["pair"] = np.where(table["label"] == "same", table["text"], table["pair"])
    table.to_csv(tmp_path / "train.csv", index=False)
    return tmp_path


def test_form_of_pairs_is_chosen_by_their_vectors(embedding_inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = pb.data.table(embedding_inputs / "train.csv", pair="pair")
    checked = check(embedding_inputs / "teacher", data, constraints=Constraints(length=16), trials=1)
    assert "pairs=separate: cross-validated losses" in capsys.readouterr().err
    assert checked.pairs_note.startswith("the encoder reads the two texts of a pair one by one")
    assert checked.settings[0].task.pairs == checked.splits.data.task.pairs == "separate"


@pytest.mark.nightly
def test_form_of_pairs_is_chosen_before_the_teacher_trains(
    embedding_inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = compress_command(embedding_inputs, tmp_path / "out", monkeypatch)
    assert command("--pair-column=pair", "--trials=1", "--max-latency-ms=1.6") == 0
    assert "pairs=separate: cross-validated losses" in capsys.readouterr().err
    result = json.loads((tmp_path / "out" / "result.json").read_text("utf-8"))
    assert any(note.startswith("the encoder reads the two texts of a pair one by one") for note in result["notes"])
    assert pb.Bundle.open(tmp_path / "out" / "bundle").pair_task is not None
    first = next(row for row in result["leaderboard"] if row["commands"])["commands"][0]
    assert first.startswith("pocketbert finetune") and "--pairs=separate" in first


def reads_separately(model: Path) -> bool:
    task = pb.from_pretrained(model).task
    return task is not None and task.pairs == "separate"


@pytest.mark.one_of_each("mean")
@pytest.mark.parametrize("pooling", ["mean", None])
def test_networks_are_measured_on_pairs(pooling: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = TaskConfig(kind="classification", labels=LABELS, pairs="separate", pooling=pooling)
    config = get_task(task).encoder_config(TEACHER)
    measured: list[Any] = []
    measure = host.measure

    def record(configurations: list[Configuration], *_: Any) -> Any:
        schedule = host.Schedule(rounds=2, runs=4, seconds=0.0, longest_seconds=1.0, warm_up_seconds=0.0)
        measured.append((configurations, measure(configurations, schedule)))
        return measured[-1][1]

    monkeypatch.setattr(host, "measure", record)
    networks = [RandomNetwork(config, task), RandomNetwork(config.replace(num_layers=1), task)]
    costs = Host().measure(networks, Setting(task=task, recipe="float32", lengths=(9,)), tmp_path)
    assert len(costs) == 2 and all(cost.latency_us[0] > 0 for cost in costs)
    ((configurations, measurements),) = measured
    assert all(configuration.head_path is not None for configuration in configurations)
    assert [measurement.error for measurement in measurements] == [None, None]


def test_other_forms_and_phones_are_refused(inputs: Path, tmp_path: Path) -> None:
    texts, others, labels = (pandas.read_csv(inputs / "train.csv")[name].tolist() for name in ("text", "pair", "label"))
    data = pb.data.from_pairs(texts, labels, pairs=others)
    phone = Constraints(max_latency_ms=1, device="serial")
    with pytest.raises(UserError, match="a phone measures single texts; received a head on separate pairs"):
        check(inputs / "teacher", data, constraints=phone, trials=1)
    with pytest.raises(UserError, match="reads pairs of texts; received single texts"):
        single = pb.data.from_pairs(texts, labels)
        check(inputs / "teacher", single, constraints=Constraints(max_latency_ms=1), trials=1)
    tokenizer = pb.from_pretrained(inputs / "encoder").tokenizer
    joint = TaskConfig(kind="classification", labels=LABELS)
    pb.from_preset(TEACHER, joint, tokenizer, seed=4).save_pretrained(tmp_path / "joint")
    separate = pb.TaskData(
        task=TaskConfig(kind="classification", labels=LABELS, pairs="separate"),
        **{name: getattr(data, name) for name in ("train", "dev")},
    )
    with pytest.raises(UserError, match="must read pairs in the same form; received a teacher that reads them jointly"):
        check(tmp_path / "joint", separate, constraints=Constraints(max_latency_ms=1), trials=1)
