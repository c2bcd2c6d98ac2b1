"""Searching a grid, with runs that train nothing."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import fake_runs
import pytest

from pocketbert.errors import TrainingFailed, UserError
from pocketbert.training.grid import Grid, point_name
from pocketbert.training.grid_report import page, sentence, table
from pocketbert.training.grid_run import run_grid
from pocketbert.training.grid_workers import Processes, Ray

GRID = Grid({"rate": (3, 1.5), "kind": ("a", "long")})
SEEDS = (7, 2, 4)
RECORDED = {"data": "some"}
# rate → accuracy of the seeds 7, 2 and 4; the median chooses 2, the mean 1 and the maximum 3; 4 equals 2.
SCORES = {1: (0.5, 0.6, 0.9), 2: (0.65, 0.67, 0.66), 3: (0.0, 0.62, 0.95), 4: (0.67, 0.66, 0.65)}
SCORED = Grid({"rate": (1, 2, 3, 4), "kind": ("a",)})


def scored(point: Any, seed: int, folder: Path) -> None:
    accuracy = SCORES[point["rate"]][SEEDS.index(seed)]
    fake_runs.finish(folder, seed, accuracy=accuracy, f1=accuracy / 2)


def search(output: Path, make_run: Any, **changes: Any) -> dict[str, Any]:
    return run_grid(
        **{"grid": GRID, "seeds": SEEDS, "output": output, "recorded": RECORDED, "make_run": make_run, **changes}
    )


def begun(log: Path) -> list[str]:
    lines = log.read_text("utf-8").splitlines() if log.exists() else []
    return [" ".join(line.split()[1:3]) for line in lines if line.startswith("begin")]


def test_every_point_runs_with_every_seed_once_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make = functools.partial(fake_runs.make, tmp_path / "log")
    summary = search(tmp_path / "grid", make)
    expected = [
        f"rate={rate},kind={kind} {seed}" for rate in ("3", "1.5") for kind in ("a", "long") for seed in (7, 2, 4)
    ]
    assert begun(tmp_path / "log") == expected
    said = capsys.readouterr().err
    assert "12 runs, 0 of them finished" in said
    assert re.search(
        r"rate=3,kind=a/seed-7: accuracy 0\.8170 \(00:00\); 1 of 12 runs are done, about 00:0\d left", said
    )
    assert re.search(r"12 of 12 runs are done$", said, flags=re.MULTILINE)

    best = tmp_path / "grid" / "runs" / "rate=3,kind=long" / "seed-7"
    assert summary["best_model"] == str(best / "model")
    assert (
        json.loads((tmp_path / "grid" / "result.json").read_text("utf-8")) | {"best_model": str(best / "model")}
        == summary
    )
    # Again: nothing to do but to answer.
    assert search(tmp_path / "grid", make) == summary
    assert begun(tmp_path / "log") == expected
    assert "12 runs, 12 of them finished" in capsys.readouterr().err


@pytest.mark.parametrize(("choose", "rate", "seed"), [("median", 2, 2), ("mean", 1, 4), ("max", 3, 4)])
def test_the_best_point_is_chosen_over_the_seeds(choose: Any, rate: int, seed: int, tmp_path: Path) -> None:
    summary = search(tmp_path / "grid", scored, grid=SCORED, choose=choose)
    assert (summary["best"]["options"], summary["best"]["seed"]) == ({"rate": rate, "kind": "a"}, seed)
    for point in summary["points"]:
        values = SCORES[point["options"]["rate"]]
        mean, variance = sum(values) / 3, sum((value - sum(values) / 3) ** 2 for value in values) / 2
        assert point["metrics"]["accuracy"] == pytest.approx(
            {
                "mean": mean,
                "median": sorted(values)[1],
                "standard_deviation": variance**0.5,
                "minimum": min(values),
                "maximum": max(values),
            }
        )
        of = {"mean": statistics.fmean, "median": statistics.median, "max": max}[choose]
        assert point["value"] == pytest.approx(of(values))
        assert [run["seed"] for run in point["runs"]] == list(SEEDS)
        assert all((tmp_path / "grid" / run["run"] / "result.json").is_file() for run in point["runs"])
    # The runs stay as they are when another number of theirs is requested.
    again = search(tmp_path / "grid", None, grid=SCORED, choose="median")
    assert again["best"]["options"]["rate"] == 2


def test_a_failed_run_takes_its_point_out_and_is_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def make(point: Any, seed: int, folder: Path) -> None:
        if point["rate"] == 2 and seed == 4:
            raise TrainingFailed("the loss must stay finite")
        scored(point, seed, folder)

    summary = search(tmp_path / "grid", make, grid=SCORED)
    failed = summary["points"][1]
    assert failed["value"] is None and failed["metrics"] == {} and len(failed["runs"]) == 2
    assert failed["failures"] == {"4": "the loss must stay finite"}
    # The second of the two equal points is left.
    assert summary["best"]["options"]["rate"] == 4
    assert "rate=2,kind=a/seed-4: failed: the loss must stay finite" in capsys.readouterr().err
    assert "seed 4 failed: the loss must stay finite" in "\n".join(table(summary))
    assert "seed 4 failed: the loss must stay finite" in (tmp_path / "grid" / "report.html").read_text("utf-8")

    assert search(tmp_path / "grid", scored, grid=SCORED)["best"]["options"]["rate"] == 2
    with pytest.raises(
        TrainingFailed, match="every point of the grid has a failed run; rate=3,kind=a, seed 7: the loss"
    ):
        search(tmp_path / "failing", functools.partial(fake_runs.fail, "failed"))


def test_killed_grid_resumes_refusing_another_grid(tmp_path: Path) -> None:
    class Killed(BaseException):
        """Stands for the end of the process."""

    make = functools.partial(fake_runs.make, tmp_path / "log")

    def until_the_fifth(point: Any, seed: int, folder: Path) -> None:
        make(point, seed, folder)
        if len(begun(tmp_path / "log")) == 5:
            (folder / "result.json").unlink()
            raise Killed

    output = tmp_path / "grid"
    with pytest.raises(Killed):
        search(output, until_the_fifth)
    assert not (output / "result.json").exists()
    other = Grid({"rate": (3, 1.5), "kind": ("a", "longer")})
    with pytest.raises(
        UserError, match=r"an unfinished run with other options: grid=\{.*'long'\]\}, received \{.*'longer'\]\}"
    ):
        search(output, make, grid=other)
    with pytest.raises(UserError, match=r"seeds=\[7, 2, 4\], received \[7, 2\];"):
        search(output, make, seeds=SEEDS[:2])
    with pytest.raises(UserError, match="data='some', received 'others'"):
        search(output, make, recorded={"data": "others"})
    # Going on, with --overwrite too as long as it is not finished.
    search(output, make, overwrite=True)
    names = begun(tmp_path / "log")
    assert len(names) == 13 and names[4] == names[5] and len(set(names)) == 12

    summary = search(output, make, grid=other, overwrite=True)
    assert len(begun(tmp_path / "log")) == 13 + 12
    assert {path.name for path in (output / "runs").iterdir()} == {point_name(point) for point in other.points()}
    assert summary["best"]["options"]["kind"] == "longer"


def test_bad_input_leaves_nothing_but_what_was_made(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the input must be good"):
        search(tmp_path / "grid", functools.partial(fake_runs.fail, "refused"))
    assert not (tmp_path / "grid").exists()

    def make(point: Any, seed: int, folder: Path) -> None:
        fake_runs.fail("refused", point, seed, folder) if seed == 2 else scored(point, seed, folder)

    with pytest.raises(UserError, match="the input must be good"):
        search(tmp_path / "grid", make, grid=SCORED)
    assert (tmp_path / "grid" / "runs" / "rate=1,kind=a" / "seed-7" / "result.json").exists()
    with pytest.raises(
        UserError, match=r"seeds must be given.*received \[3, 3\]; the best point is.*received 'minimum'"
    ):
        search(tmp_path / "other", scored, seeds=(3, 3), choose="minimum")


def test_the_table_and_the_page_show_every_point(tmp_path: Path) -> None:
    summary = search(tmp_path / "grid", scored, grid=SCORED)
    assert table(summary) == [
        "   rate  median accuracy  ± sample  lowest  highest  median f1",
        "      1           0.6000    0.2082  0.5000   0.9000     0.3000",
        "*     2           0.6600    0.0100  0.6500   0.6700     0.3300",
        "      3           0.6200    0.4823  0.0000   0.9500     0.3100",
        "      4           0.6600    0.0100  0.6500   0.6700     0.3300",
    ]
    html = (tmp_path / "grid" / "report.html").read_text("utf-8")
    assert html == page(summary)
    assert "Best of 4 points: rate=2, kind=a, with accuracy 0.6600, the median of 3 seeds" in html
    assert "The same for all: kind=a." in html
    assert not re.search(r"(src|href)=|https?://", html), "the page must need nothing else"
    # One picture, of the option that varies: a dot a run, and a corner of the line a value.
    assert html.count("<svg") == 1 and html.count("<circle") == 12
    line = re.search(r'<polyline points="([^"]*)"', html)
    assert line is not None
    heights = [float(corner.split(",")[1]) for corner in line[1].split()]
    # The axis goes down; 0.6, 0.66, 0.62, 0.66.
    assert len(heights) == 4 and heights[0] > heights[2] > heights[1] == heights[3]
    assert (heights[0] - heights[2]) / (heights[0] - heights[1]) == pytest.approx(1 / 3, abs=0.02)
    assert html.count('<tr class="best">') == 1


@pytest.mark.parametrize(("seeds", "row"), [(SEEDS, ["0.6600", "0.2000"]), ((7,), ["0.6700", "0.2000"])])
def test_the_table_and_the_page_have_the_baseline(tmp_path: Path, seeds: tuple[int, ...], row: list[str]) -> None:
    metrics = {"accuracy": float(row[0]), "f1": float(row[1])}

    def make(point: Any, seed: int, folder: Path) -> None:
        scored(point, seed, folder)
        path = folder / "result.json"
        found = json.loads(path.read_text("utf-8"))
        path.write_text(json.dumps(found | {"baseline": {"answer": "always 'low'", "metrics": metrics}}), "utf-8")

    summary = search(tmp_path / "grid", make, grid=SCORED, seeds=seeds)
    assert table(summary)[-1].split() == ["baseline", *row]
    widths = {len(line) for line in table(summary)}
    assert len(widths) == 1
    assert sentence(summary).endswith(f"The baseline, always 'low', has {row[0]}.")
    # The best point has as much, and no more.
    (warning,) = summary["warnings"]
    assert warning.startswith("the model does not beat the baseline: accuracy 0.6")
    html = (tmp_path / "grid" / "report.html").read_text("utf-8")
    assert "<td>baseline</td>" in html and "does not beat the baseline" in html


def test_one_seed_has_no_spread_and_the_page_escapes_what_it_is_told(tmp_path: Path) -> None:
    def make(point: Any, seed: int, folder: Path) -> None:
        if point["kind"] == "<b>":
            raise TrainingFailed("<script>")
        fake_runs.finish(folder, seed, accuracy=0.25)

    summary = search(tmp_path / "grid", make, grid=Grid({"rate": (1, 2), "kind": ("<b>", "c")}), seeds=(3,))
    assert table(summary)[0].split() == ["rate", "kind", "accuracy"]
    assert "with accuracy 0.2500 on the development examples" in sentence(summary)
    html = page(summary)
    # All values are the same, and the picture has a height all the same.
    assert html.count("<svg") == 2 and "nan" not in html
    assert "<script>" not in html and "&lt;script&gt;" in html and "<b>" not in html


def test_processes_work_side_by_side_each_with_its_share(
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
    said = capsys.readouterr().err
    assert "4 runs, 0 of them finished; 2 at a time" in said and "training says this" not in said

    one = search(tmp_path / "one", **arguments)
    assert {**one, "best_model": ""} == {**summary, "best_model": ""}


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ("refused", UserError, "the input must be good; received bad"),
        (
            "killed",
            TrainingFailed,
            r"seed-2: the process ended with signal 9; see .*seed-2.log; the same command resumes",
        ),
        (
            "failed",
            TrainingFailed,
            "every point of the grid has a failed run; rate=3,kind=a, seed 2: the loss of seed-2",
        ),
    ],
)
def test_what_goes_wrong_in_a_process_is_said_here(
    how: str, error: type[Exception], message: str, tmp_path: Path
) -> None:
    one = Grid({"rate": (3,), "kind": ("a",)})
    make = functools.partial(fake_runs.fail, how)
    with pytest.raises(error, match=message):
        search(tmp_path / "grid", make, grid=one, seeds=(2,), workers=Processes(2))


@pytest.mark.parametrize("how", ["killed", "interrupted"])
def test_processes_end_with_the_one_that_began_them(how: str, tmp_path: Path) -> None:
    # A shell that starts tests in the background has them ignore SIGINT, and what they start too.
    program = f"""
import functools, signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path[:0] = {sys.path!r}
import fake_runs
from pocketbert.training.grid_workers import Job, Processes
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
            assert is_alive(children[0]) and parent.poll() is None
            os.killpg(parent.pid, signal.SIGINT)
            parent.wait(timeout=30)
    finally:
        parent.kill()
        parent.wait()
    wait_for(lambda: not any(map(is_alive, children)) or None)


def pids(log: Path) -> list[int]:
    return [int(line) for line in log.read_text("utf-8").split()] if log.exists() else []


def is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        # A dead process that nobody has asked about yet is a Z.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_for(found: Any) -> Any:
    until = time.monotonic() + 30
    while (answer := found()) is None:
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.05)
    return answer


class FakeRay(types.ModuleType):
    """Ray's functions that are used, in this process; what was asked of them is in `asked`."""

    def __init__(self, nodes: list[dict[str, Any]]) -> None:
        super().__init__("ray")
        self.asked: list[Any] = []
        self._nodes, self._waiting = nodes, dict[str, Any]()

    def init(self, address: str, log_to_driver: bool) -> None:
        self.asked.append(("init", address))

    def cluster_resources(self) -> dict[str, float]:
        alive = [node["Resources"] for node in self._nodes if node["Alive"]]
        return {kind: sum(each.get(kind, 0) for each in alive) for kind in ("CPU", "GPU")}

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


def test_ray_gets_the_runs_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert ray.asked[0] == ("init", "auto") and ray.asked[-1] == ("shutdown",)
    # 22 cores and one GPU for 3 runs.
    assert ray.asked[1] == (
        "remote",
        {"num_cpus": 7, "num_gpus": pytest.approx(1 / 3), "max_retries": 0, "max_calls": 1},
    )
    assert [asked[1] for asked in ray.asked if asked[0] == "at work"] == [1, 2, 3, 3]

    # No run asks for more than a machine has.
    monkeypatch.setitem(sys.modules, "ray", few := FakeRay(machines))
    search(tmp_path / "few", make, seeds=(2,), workers=Ray(1, "auto"))
    assert few.asked[1][1]["num_cpus"] == 16

    with pytest.raises(UserError, match="the input must be good"):
        search(tmp_path / "bad", functools.partial(fake_runs.fail, "refused"), workers=Ray(2, "auto"))
    assert few.asked[-1] == ("shutdown",)
    with pytest.raises(UserError, match="storage that all machines share"):
        search(tmp_path / "elsewhere", lambda point, seed, folder: None, workers=Ray(2, "auto"))


def test_without_ray_its_absence_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"several machines need Ray; .*pip install 'pocketbert\[ray\]'"):
        Ray(2, "auto")
