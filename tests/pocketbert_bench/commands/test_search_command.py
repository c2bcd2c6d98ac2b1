"""The command `search`: what it refuses, and where candidates train."""

from __future__ import annotations

import contextlib
import socket
import sys
import types
from pathlib import Path
from typing import Any

import leaking_candidates
import pytest
import tiny
import tiny_distillation
import tiny_finetuning
from resident_memory import resident_kib

from pocketbert.cli import main
from pocketbert.errors import TrainingFailed
from pocketbert.search import rounds, supernets
from pocketbert.search.config import SearchConfig, SearchResult
from pocketbert.search.run import search
from pocketbert.search.strategies import StrategyOptions
from pocketbert.trials import workers as trial_workers
from pocketbert_bench.commands import search as search_command


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_distillation.write_teacher(tmp_path_factory.mktemp("teacher") / "model")


@pytest.mark.parametrize(
    ("flag", "rule"),
    [
        ("--max-parameters=0", "--max-parameters must be positive; received 0"),
        ("--recipe=float32", "--recipe must be used with --max-latency-ms"),
        ("--device=PIXEL1", "--device must be used with --max-latency-ms"),
        *(
            (
                f"--max-latency-ms=2 --recipe={name}",
                f"float16, dynamic_wi8, since untrained networks are measured; received {name};",
            )
            for name in ("dynamic_wi4", "static_wi8_ai8", "static_wi8_ai8_full", "static_wi8_ai16", "mixed")
        ),
        ("--max-latency-ms=2 --recipe=int8", "a recipe must be one of float32"),
        ("--candidates=3", "candidates must be one number per stage, 2; received 1"),
        ("--score-share=1", "candidate_share, score_share and stage3_score_share must lie between 0 and 1"),
        ("--stage3-score-share=0.6", "at most 1; received 0.5, 0.2 and 0.6"),
        ("--left-out-share=1", "left_out_share must lie in [0, 1); received 1.0"),
        ("--stages=2,1", "stages must be ascending numbers"),
        ("--parallel=0", "--parallel must be positive; received 0"),
        ("--supernet-tasks=cola", "--supernet-teachers needs one model directory for each"),
    ],
)
def test_bad_flags_give_one_line(
    flag: str, rule: str, teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_finetuning.write_table(tmp_path / "train.csv", tiny_finetuning.examples(29, seed=3))
    arguments = [f"--teacher={teacher}", "--student=efficientbert_tiny", f"--train-file={tmp_path / 'train.csv'}"]
    assert main(["search", *arguments, f"--output={tmp_path / 'out'}", *flag.split()]) == 2
    captured = capsys.readouterr()
    assert rule in captured.err and captured.err.count("\n") == 1 and not (tmp_path / "out").exists()


def test_silent_ray_address_is_refused(
    teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", types.ModuleType("ray"))
    monkeypatch.setattr(trial_workers, "_SECONDS_TO_CONNECT", 0.2)
    tiny_finetuning.write_table(tmp_path / "train.csv", tiny_finetuning.examples(29, seed=3))
    arguments = [f"--teacher={teacher}", "--student=efficientbert_tiny", f"--train-file={tmp_path / 'train.csv'}"]
    with socket.socket() as silent, contextlib.ExitStack() as waiting:
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        # Nobody accepts these connections. When the queue is full, further ones get no answer.
        for _ in range(4):
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(silent.getsockname())
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert main(["search", *arguments, f"--output={tmp_path / 'out'}", f"--ray={address}"]) == 2
    captured = capsys.readouterr()
    assert f"a Ray cluster must answer within 0.2 s; received {address} (timed out)" in captured.err
    assert captured.err.count("\n") == 1 and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("candidates", "kind"),
    [((12, 8), trial_workers.InTurn), ((12, 9), trial_workers.Processes), ((), trial_workers.Processes)],
)
def test_many_candidates_leave_the_process(
    candidates: tuple[int, ...], kind: type, teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker_options: list[Any] = []

    def stop(*_: Any, **options: Any) -> SearchResult:
        worker_options.append(options["workers"])
        raise TrainingFailed("enough")

    monkeypatch.setattr("pocketbert.search.run.search", stop)
    tiny_finetuning.write_table(tmp_path / "train.csv", tiny_finetuning.examples(29, seed=3))
    flags = [f"--train-file={tmp_path / 'train.csv'}", f"--output={tmp_path / 'out'}"]
    flags += [f"--candidates={','.join(map(str, candidates))}"] if candidates else []
    assert main(["search", f"--teacher={teacher}", "--student=efficientbert_tiny", *flags]) == 1
    assert [(type(option), option.parallel) for option in worker_options] == [(kind, 1)]


@pytest.mark.slow
def test_parent_memory_is_flat(teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("plan_distillation", "distill_planned"):
        monkeypatch.setattr(supernets, name, lambda *_, **__: None)
    monkeypatch.setattr(rounds, "train_candidate", leaking_candidates.train)
    base = tiny.FACTORIZED_WORD.replace(num_layers=2, trigram=True, hidden_size=20, head_size=4, intermediate_size=24)

    def grown(count: int) -> int:
        """Growth of this process in KiB over a search."""
        before = resident_kib()
        config = SearchConfig(stages=(1,), candidates=(count,), max_length=tiny_distillation.MAX_LENGTH)
        result = search(
            base,
            tiny_distillation.task_data(teacher),
            tmp_path / str(count),
            teacher=teacher,
            config=config,
            strategy=StrategyOptions(strategy="random"),
            workers=search_command._workers(search_command.ParallelOptions(), 200),
        )
        assert result.candidates == [count]
        return resident_kib() - before

    # The first candidates load what a search needs.
    grown(10)
    # Candidates in this process would leave 1.6 GiB.
    assert grown(200) < 60 * 1024
