"""Load beside a latency: pure arithmetic on counters, what is said of it, and one machine that is kept busy."""

from __future__ import annotations

import dataclasses
import html
import os
import re
import subprocess
import sys

import bench_subjects
import psutil
import pytest

from pocketbert_bench import host, load, report, results
from pocketbert_bench.load import Load, Processors, Turn

QUIET = Load(
    others_cpu_percent=1.5,
    steal_percent=0.0,
    waiting_percent=0.2,
    calibration_ratio=1.03,
    round_spread_percent=2.0,
)
# Two processors for 1.5 seconds: 0.9 s busy of which 0.04 s are the benchmark's own, 0.12 s stolen.
TURN = Turn(
    wall_seconds=1.5,
    processors=Processors(total=3.0, busy=1.9, steal=0.12, own=0.04),
    process_seconds=0.57,
    waiting_seconds=0.03,
    calibration_us=(700.0, 900.0),
)


def summarize(*turns: Turn, fastest: float = 400.0) -> Load:
    summary = load.summarize(turns, fastest, [10.0, 30.0, 12.0, 12.0, 14.0], [1, 4])
    assert summary
    return summary


def test_figures_follow_from_two_turns():
    summary_of_turn = summarize(
        TURN, dataclasses.replace(TURN, processors=Processors(total=3.0, busy=0.67, steal=0.0, own=0.01))
    )
    # (1.9 - 0.04 - 0.57) + (0.67 - 0.01 - 0.57) of 6 seconds; 0.12 of 6; 0.06 of 1.2 wanted; 800 over 400.
    assert summary_of_turn.others_cpu_percent == 23.0 and summary_of_turn.steal_percent == 2.0
    assert summary_of_turn.waiting_percent == 5.0 and summary_of_turn.calibration_ratio == 2.0
    # Rounds' medians are 10 and 13.
    assert summary_of_turn.round_spread_percent == round(100 * 3 / 11.5, 1)


def test_own_work_alone_counts_as_nothing():
    quiet = dataclasses.replace(TURN, processors=Processors(total=3.0, busy=0.6, steal=0.0, own=0.04))
    assert summarize(quiet).others_cpu_percent == 0.0


def test_unknown_counters_are_null():
    turn_summary = summarize(dataclasses.replace(TURN, processors=None, waiting_seconds=None))
    assert turn_summary.others_cpu_percent is turn_summary.steal_percent is turn_summary.waiting_percent is None


def test_short_turns_give_no_cpu_share():
    turn_summary = summarize(dataclasses.replace(TURN, wall_seconds=0.1))
    assert turn_summary.others_cpu_percent is turn_summary.steal_percent is None and turn_summary.waiting_percent == 5.0


@pytest.mark.parametrize(
    ("stat", "expected"),
    [
        # user nice system idle iowait irq softirq steal guest guest_nice, in ticks; a guest's are in user's.
        ("cpu  700 50 200 9000 100 30 20 400 300 20", (10500, 1000, 400)),
        ("cpu  700 50 200 9000 100 30 20 0 0 0", (10100, 1000, 0)),
        ("cpu  0 0 0 0 0 0 0 0 0 0", None),
    ],
)
def test_counters_are_read_from_proc_stat(stat, expected, tmp_path, monkeypatch):
    (tmp_path / "stat").write_text(stat + "\nbtime 1\n", encoding="ascii")
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    counters, tick = load.processors(), 1 / os.sysconf("SC_CLK_TCK")
    if expected is None:
        assert counters is None
    else:
        assert counters and (counters.total, counters.busy, counters.steal) == pytest.approx(
            [tick * count for count in expected]
        )


def test_absent_proc_stat_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    assert load.processors() is None


@pytest.mark.usefixtures("without_plots")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"others_cpu_percent": 43.2}, "other processes used 43 % of the CPU"),
        ({"steal_percent": 12.4}, "the virtual machine's host kept 12 % of the CPU"),
        ({"waiting_percent": 7.0}, "the measured process waited for a CPU 7 % of the time"),
        ({"calibration_ratio": 1.4}, "a fixed calculation took 1.40 times its shortest time"),
    ],
)
def test_busy_machine_warns_everywhere(change, message, tmp_path):
    busy = dataclasses.replace(QUIET, **change)
    assert load.warning([QUIET, busy, QUIET]) == (
        f"the machine was busy in 1 of 3 measurements ({message}); these latencies are too high: close other programs "
        "and measure again"
    )
    run = bench_subjects.result(
        bench_subjects.measurement("quiet", 32, 2.0, load=QUIET),
        bench_subjects.measurement("slow", 64, 6.4, load=busy, size_bytes=3_000_000),
    )
    assert results.problems(results.to_json(run)) == []
    table = report.table(run)
    assert f"* The machine was busy in 1 of 2 measurements ({message})." in table
    assert "6.40*" in table and "2.00*" not in table
    page = html.unescape(report.build_report([run], tmp_path / "page").read_text(encoding="utf-8"))
    assert f"* The machine was busy in 1 of 2 measurements ({message})." in page
    assert "6.40 ms*" in page and "2.00 ms*" not in page


@pytest.mark.usefixtures("without_plots")
def test_busy_measurements_share_one_note(tmp_path):
    others = (43.2, 35.4, 38.0)
    run = bench_subjects.result(
        *(
            bench_subjects.measurement("slow", length, 2.0, load=dataclasses.replace(QUIET, others_cpu_percent=percent))
            for length, percent in zip((32, 64, 128), others, strict=True)
        ),
        bench_subjects.measurement("quiet", 32, 2.0, load=QUIET),
    )
    note = "busy in 3 of 4 measurements (other processes used 35–43 % of the CPU)"
    table = report.table(run).splitlines()
    assert [note in line for line in table].count(True) == 1
    assert sum("busy" in line for line in table) == 1
    page = report.build_report([run], tmp_path / "page").read_text(encoding="utf-8")
    before, details = page.split("Measurements marked with *")
    assert before.count(note) == 1 and note not in details
    # Each measurement's own figure is in the collapsed table only.
    rows = re.findall(r"<li><strong>slow</strong>.*?</li>", details, re.DOTALL)
    assert [re.search(r"used (\d+) %", row)[1] for row in rows] == ["43", "35", "38"]
    assert "used 38 %" not in before


def test_quiet_machine_gives_no_warning():
    assert QUIET.busy_because == "" and load.warning([QUIET, QUIET]) is None


def test_warning_has_ranges_of_busy_measurements():
    first = dataclasses.replace(QUIET, others_cpu_percent=20.0, steal_percent=None)
    second = dataclasses.replace(QUIET, others_cpu_percent=30.0, waiting_percent=None, steal_percent=9.0)
    text = load.warning([first, second])
    assert text and "2 of 2" in text and "used 20–30 % of the CPU, the virtual machine's host kept 9 %" in text


def test_real_measurement_detects_busy_processes(tmp_path, capsys, monkeypatch):
    # The model answers within microseconds; ticks need more calls.
    monkeypatch.setattr(host, "MOST_RUNS", 100_000)
    model_path = bench_subjects.write_sum_model(tmp_path / "sum.tflite")
    schedule = host.Schedule(rounds=3, runs=12, seconds=0.6, longest_seconds=2.0, warm_up_seconds=0.0)
    spin = [sys.executable, "-c", "while True: pass"]
    spinning = [subprocess.Popen(spin) for _ in range(os.cpu_count() or 1)]
    try:
        (measured,) = host.measure([bench_subjects.configuration(model_path)], schedule)
    finally:
        for process in spinning:
            process.kill()
            process.wait()
    assert measured.status == "ok" and measured.load
    # As many spinning processes as processors leave at most half of each.
    assert measured.load.others_cpu_percent and measured.load.others_cpu_percent > 30
    assert "other processes used" in measured.load.busy_because
    printed = [line for line in capsys.readouterr().err.splitlines() if "machine was busy" in line]
    assert len(printed) == 1 and "1 of 1 measurements" in printed[0]
