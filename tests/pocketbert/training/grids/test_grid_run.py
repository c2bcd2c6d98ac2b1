"""Grid search with fake runs."""

from __future__ import annotations

import functools
import json
import re
import statistics
from pathlib import Path
from typing import Any

import fake_runs
import pytest
from fake_runs import SEEDS, begun, search

from pocketbert.errors import TrainingFailed, UserError
from pocketbert.training.grids.points import Grid, point_name
from pocketbert.training.grids.report import page, sentence, table

# rate → accuracy of the seeds 7, 2 and 4; the median chooses 2, the mean 1 and the maximum 3; 4 equals 2.
SCORES = {1: (0.5, 0.6, 0.9), 2: (0.65, 0.67, 0.66), 3: (0.0, 0.62, 0.95), 4: (0.67, 0.66, 0.65)}
SCORED = Grid({"rate": (1, 2, 3, 4), "kind": ("a",)})


def scored(point: Any, seed: int, folder: Path) -> None:
    accuracy = SCORES[point["rate"]][SEEDS.index(seed)]
    fake_runs.finish(folder, seed, accuracy=accuracy, f1=accuracy / 2)


def test_every_point_runs_with_every_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make = functools.partial(fake_runs.make, tmp_path / "log")
    summary = search(tmp_path / "grid", make)
    expected = [
        f"rate={rate},kind={kind} {seed}" for rate in ("3", "1.5") for kind in ("a", "long") for seed in (7, 2, 4)
    ]
    assert begun(tmp_path / "log") == expected
    stderr = capsys.readouterr().err
    assert "12 runs, 0 finished" in stderr
    assert re.search(
        r"rate=3,kind=a/seed-7: accuracy 0\.8170 \(00:00\); 1 of 12 done, best 0\.8170, about 00:0\d left", stderr
    )
    assert re.search(r"12 of 12 done, best 0\.8470$", stderr, flags=re.MULTILINE)

    best = tmp_path / "grid" / "runs" / "rate=3,kind=long" / "seed-7"
    assert summary["best_model"] == str(best / "model")
    assert (
        json.loads((tmp_path / "grid" / "result.json").read_text("utf-8")) | {"best_model": str(best / "model")}
        == summary
    )
    # Again: nothing to do but to answer.
    assert search(tmp_path / "grid", make) == summary
    assert begun(tmp_path / "log") == expected
    assert "12 runs, 12 finished" in capsys.readouterr().err


@pytest.mark.parametrize(("choose", "rate", "seed"), [("median", 2, 2), ("mean", 1, 4), ("max", 3, 4)])
def test_best_point_is_chosen_over_seeds(choose: Any, rate: int, seed: int, tmp_path: Path) -> None:
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


def test_failed_run_excludes_point_and_retries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_bad_input_keeps_finished_runs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the input must be good"):
        search(tmp_path / "grid", functools.partial(fake_runs.fail, "refused"))
    assert not (tmp_path / "grid").exists()

    def make(point: Any, seed: int, folder: Path) -> None:
        fake_runs.fail("refused", point, seed, folder) if seed == 2 else scored(point, seed, folder)

    with pytest.raises(UserError, match="the input must be good"):
        search(tmp_path / "grid", make, grid=SCORED)
    assert (tmp_path / "grid" / "runs" / "rate=1,kind=a" / "seed-7" / "result.json").exists()
    with pytest.raises(
        UserError, match=r"seeds must be one or more.*received \[3, 3\]; choose must be.*received 'minimum'"
    ):
        search(tmp_path / "other", scored, seeds=(3, 3), choose="minimum")


def test_table_and_page_show_every_point(tmp_path: Path) -> None:
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
    assert "Fixed: kind=a." in html
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
def test_table_and_page_have_the_baseline(tmp_path: Path, seeds: tuple[int, ...], row: list[str]) -> None:
    metrics = {"accuracy": float(row[0]), "f1": float(row[1])}

    def make(point: Any, seed: int, folder: Path) -> None:
        scored(point, seed, folder)
        path = folder / "result.json"
        content = json.loads(path.read_text("utf-8"))
        path.write_text(json.dumps(content | {"baseline": {"answer": "always 'low'", "metrics": metrics}}), "utf-8")

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


def test_one_seed_page_escapes_without_spread(tmp_path: Path) -> None:
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
