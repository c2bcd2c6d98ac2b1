"""Trials in local processes and on Ray, through a grid."""

from __future__ import annotations

import functools
import os
import signal
import socket
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import fake_runs
import killing
import pytest
from fake_runs import begun, search

from pocketbert.errors import TrainingFailed, UserError
from pocketbert.training.grids.points import Grid
from pocketbert.trials.jobs import Job
from pocketbert.trials.workers import Processes, Ray


def test_processes_share_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(7))
    log = tmp_path / "log"
    arguments: dict[str, Any] = {"seeds": (2,), "make_run": functools.partial(fake_runs.make, log, company=2)}
    summary = search(tmp_path / "many", workers=Processes(2), **arguments)
    lines = [line.split() for line in log.read_text("utf-8").splitlines()]
    assert {line[4] for line in lines if line[0] == "begin"} == {"3"}
    assert len({line[3] for line in lines} - {str(os.getpid())}) == 4
    at_work, most = 0, 0
    for line in lines:
        at_work += 1 if line[0] == "begin" else -1
        most = max(most, at_work)
    assert most == 2 and len(lines) == 8
    run_log = tmp_path / "many" / "runs" / "rate=3,kind=a" / "seed-2.log"
    assert run_log.read_text("utf-8") == "training says this\n"
    stderr = capsys.readouterr().err
    assert "4 runs, 0 finished; 2 at a time" in stderr and "training says this" not in stderr

    one = search(tmp_path / "one", **arguments)
    assert {**one, "best_model": ""} == {**summary, "best_model": ""}


def test_processes_take_several_jobs(tmp_path: Path) -> None:
    log, make = tmp_path / "log", functools.partial(fake_runs.make, tmp_path / "log")
    workers = Processes(1, jobs_a_process=2)
    for batch in ((0,), (1,), (2,)):
        list(workers.outcomes(make, [Job({"rate": 1, "kind": "a"}, seed, tmp_path / f"seed-{seed}") for seed in batch]))
    workers.close()
    numbers = [int(line.split()[3]) for line in log.read_text("utf-8").splitlines() if line.startswith("begin")]
    assert numbers[0] == numbers[1] != numbers[2]
    assert not any(map(killing.is_alive, numbers))


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ("refused", UserError, "the input must be good; received bad"),
        (
            "raised",
            TrainingFailed,
            r"seed-2: the process ended with exit code 1; see .*seed-2.log; the same command resumes",
        ),
        (
            "failed",
            TrainingFailed,
            "every point of the grid has a failed run; rate=3,kind=a, seed 2: the loss of seed-2",
        ),
    ],
)
def test_process_errors_reach_the_parent(how: str, error: type[Exception], message: str, tmp_path: Path) -> None:
    one = Grid({"rate": (3,), "kind": ("a",)})
    make = functools.partial(fake_runs.fail, how)
    with pytest.raises(error, match=message):
        search(tmp_path / "grid", make, grid=one, seeds=(2,), workers=Processes(2))


@pytest.mark.one_of_each("9-the process ended with signal 9, twice")
@pytest.mark.parametrize(("times", "failure"), [(1, ""), (9, "the process ended with signal 9, twice")])
def test_killed_process_loses_only_its_run(
    times: int, failure: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make = functools.partial(fake_runs.die, tmp_path / "log", times)
    jobs = [Job({"rate": 3, "kind": "a"}, seed, tmp_path / "runs" / f"seed-{seed}") for seed in (7, 2, 4)]
    outcomes = {outcome.job.seed: outcome for outcome in Processes(2).outcomes(make, jobs)}
    assert {seed: outcome.failure for seed, outcome in outcomes.items()} == {7: "", 2: failure, 4: ""}
    assert sorted(begun(tmp_path / "log")) == [f"rate=3,kind=a {seed}" for seed in (2, 2, 4, 7)]
    lines = [line for line in capsys.readouterr().err.splitlines() if "signal 9" in line]
    assert [line.endswith("/seed-2.log; it starts once more") for line in lines] == [True, False][: min(times, 2)]
    assert outcomes[7].score == fake_runs.score(jobs[0].point, 7)


@pytest.mark.parametrize("how", ["killed", "interrupted"])
def test_killed_parent_ends_its_processes(how: str, tmp_path: Path) -> None:
    # A shell that starts tests in the background has them ignore SIGINT, and what they start too.
    program = f"""
import functools, signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path[:0] = {sys.path!r}
import fake_runs
from pocketbert.trials.jobs import Job
from pocketbert.trials.workers import Processes
if __name__ == "__main__":
    jobs = [Job({{"rate": 1}}, seed, Path({str(tmp_path)!r}) / f"seed-{{seed}}") for seed in (0, 1)]
    list(Processes(2).outcomes(functools.partial(fake_runs.wait, Path({str(tmp_path / "log")!r})), jobs))
"""
    script = tmp_path / "program.py"
    script.write_text(program, encoding="utf-8")
    parent = subprocess.Popen([sys.executable, str(script)], stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        children = wait_for(lambda: found if len(found := pids(tmp_path / "log")) == 2 else None)
        if how == "interrupted":
            # Ctrl-C is for every process of a terminal; the parent alone answers.
            os.kill(children[0], signal.SIGINT)
            time.sleep(0.3)
            assert killing.is_alive(children[0]) and parent.poll() is None
            os.killpg(parent.pid, signal.SIGINT)
            parent.wait(timeout=30)
    finally:
        parent.kill()
        parent.wait()
    wait_for(lambda: not any(map(killing.is_alive, children)) or None)


def pids(log: Path) -> list[int]:
    return [int(line) for line in log.read_text("utf-8").split()] if log.exists() else []


def wait_for(condition: Any) -> Any:
    until = time.monotonic() + 30
    while (answer := condition()) is None:
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.05)
    return answer


class RayError(Exception):
    """The base of Ray's errors."""


class NodeDiedError(RayError):
    """What Ray raises in `get` for a run whose machine is gone."""


class RayTaskError(RayError):
    """What Ray raises in `get` for a run that has raised an error."""


class FakeRay(types.ModuleType):
    """Ray's functions that are used, in this process; what was asked of them is in `asked`."""

    def __init__(self, nodes: list[dict[str, Any]]) -> None:
        super().__init__("ray")
        self.asked: list[Any] = []
        self.exceptions = types.SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)
        self._nodes, self._waiting = nodes, dict[str, Any]()

    def init(self, address: str, log_to_driver: bool) -> None:
        self.asked.append(("init", address))

    def cluster_resources(self) -> dict[str, float]:
        alive = [node["Resources"] for node in self._nodes if node["Alive"]]
        return {kind: sum(resources.get(kind, 0) for resources in alive) for kind in ("CPU", "GPU")}

    def nodes(self) -> list[dict[str, Any]]:
        return self._nodes

    def remote(self, **options: Any) -> Any:
        self.asked.append(("remote", options))

        def decorate(function: Any) -> Any:
            def submit(*arguments: Any) -> str:
                reference = f"reference {len(self.asked)}"
                self._waiting[reference] = functools.partial(function, *arguments)
                self.asked.append(("at work", len(self._waiting)))
                return reference

            return types.SimpleNamespace(remote=submit)

        return decorate

    def wait(self, references: list[str], num_returns: int) -> tuple[list[str], list[str]]:
        # The last handed in is the first done.
        return references[-num_returns:], references[:-num_returns]

    def get(self, reference: str) -> Any:
        return self._waiting.pop(reference)()

    def shutdown(self) -> None:
        self.asked.append(("shutdown",))


def test_ray_limits_parallel_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "TF_FORCE_GPU_ALLOW_GROWTH"):
        monkeypatch.setenv(name, "1")
    machines = [
        {"Alive": True, "Resources": {"CPU": 6.0, "GPU": 1.0}},
        {"Alive": True, "Resources": {"CPU": 16.0}},
        {"Alive": False, "Resources": {"CPU": 64.0}},
    ]
    ray = FakeRay(machines)
    monkeypatch.setitem(sys.modules, "ray", ray)
    make = functools.partial(fake_runs.make, tmp_path / "log")
    summary = search(tmp_path / "grid", make, seeds=(2,), workers=Ray(3, "auto"))
    assert len(begun(tmp_path / "log")) == 4 and summary["best"]["options"] == {"rate": 3, "kind": "long"}
    # It connects once to check the address.
    assert ray.asked[:3] == [("init", "auto"), ("shutdown",), ("init", "auto")] and ray.asked[-1] == ("shutdown",)
    # 22 cores and one GPU for 3 runs.
    assert ray.asked[3] == (
        "remote",
        {"num_cpus": 7, "num_gpus": pytest.approx(1 / 3), "max_retries": 0, "max_calls": 1},
    )
    assert [request[1] for request in ray.asked if request[0] == "at work"] == [1, 2, 3, 3]

    # No run asks for more than a machine has.
    monkeypatch.setitem(sys.modules, "ray", few := FakeRay(machines))
    search(tmp_path / "few", make, seeds=(2,), workers=Ray(1, "auto"))
    assert few.asked[3][1]["num_cpus"] == 16

    with pytest.raises(UserError, match="the input must be good"):
        search(tmp_path / "bad", functools.partial(fake_runs.fail, "refused"), workers=Ray(2, "auto"))
    assert few.asked[-1] == ("shutdown",)
    with pytest.raises(UserError, match="storage shared by all machines"):
        search(tmp_path / "elsewhere", lambda point, seed, folder: None, workers=Ray(2, "auto"))


@pytest.mark.parametrize(
    ("kind", "message", "begun_runs"),
    [
        (NodeDiedError, r"has a failed run; .*: Ray lost the run \(NodeDiedError; see ray status\), twice$", 8),
        (RayTaskError, r"seed-2: Ray lost the run \(RayTaskError; .*\); see .*seed-2.log; the same command resumes", 1),
    ],
)
def test_ray_errors_are_one_line(
    kind: type[Exception], message: str, begun_runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", ray := FakeRay([{"Alive": True, "Resources": {"CPU": 2.0}}]))

    def died(reference: str) -> None:
        raise kind("The task failed because its node died.\nSee more.")

    monkeypatch.setattr(ray, "get", died)
    with pytest.raises(TrainingFailed, match=message):
        search(
            tmp_path / "grid", functools.partial(fake_runs.make, tmp_path / "log"), seeds=(2,), workers=Ray(1, "auto")
        )
    assert len([request for request in ray.asked if request[0] == "remote"]) == begun_runs
    assert ray.asked[-1] == ("shutdown",)


def test_run_of_a_dead_node_starts_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machines = [{"Alive": True, "Resources": {"CPU": 16.0}}, {"Alive": True, "Resources": {"CPU": 2.0}}]
    monkeypatch.setitem(sys.modules, "ray", ray := FakeRay(machines))
    get = ray.get

    def die_once(reference: str) -> Any:
        if machines[0]["Alive"]:
            machines[0]["Alive"] = False
            raise NodeDiedError("The task failed because its node died.")
        return get(reference)

    monkeypatch.setattr(ray, "get", die_once)
    make = functools.partial(fake_runs.make, tmp_path / "log")
    search(tmp_path / "grid", make, seeds=(2,), workers=Ray(1, "auto"))
    assert len(begun(tmp_path / "log")) == 4
    cores = [request[1]["num_cpus"] for request in ray.asked if request[0] == "remote"]
    # The other machine has fewer cores.
    assert cores == [16, 2, 2, 2, 2]
    assert capsys.readouterr().err.count("Ray lost the run (NodeDiedError; see ray status)") == 1


def test_missing_ray_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"several machines need Ray; .*pip install 'pocketbert\[ray\]'"):
        Ray(2, "auto")


def test_missing_cluster_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay([])

    def missing(**_: Any) -> None:
        raise ConnectionError("Could not find any\nrunning Ray instance")

    monkeypatch.setattr(ray, "init", missing)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(UserError, match=r"received auto \(Could not find any running Ray instance\); start it with"):
        Ray(2, "auto")


def test_silent_ray_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", FakeRay([]))
    with socket.socket() as taken:
        # Bound but not listening: connections are refused.
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for cluster in (address, f"ray://{address}", "127.0.0.1:port"):
            with pytest.raises(UserError, match=f"must answer within 10 s; received {cluster}"):
                Ray(2, cluster)
        taken.listen()
        Ray(2, address)
