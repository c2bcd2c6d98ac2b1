from __future__ import annotations

import dataclasses
import html.parser
import re
from pathlib import Path
from typing import Any

import bench_subjects
import pytest
from bench_subjects import measurement

from pocketbert.errors import UserError
from pocketbert_bench import accuracy, comparison, formats, report, results
from pocketbert_bench.results import ResultFile

VOID = {"meta", "br", "link", "img", "hr", "input"}
CHECK = {
    "name": "padding",
    "passed": True,
    "measured": 0.0,
    "bound": 0.0,
    "reason": "noise & <all>",
    "runtime": "litert",
}


@pytest.fixture
def run() -> ResultFile:
    def score(label: str, value: float) -> results.Accuracy:
        return accuracy.record(
            label=label,
            model="net",
            recipe=label,
            task="mood",
            split="dev",
            metric="accuracy",
            value=value,
            examples=80,
        )

    return bench_subjects.result(
        measurement("float32", 32, 3.0),
        measurement("float32", 128, 11.0),
        measurement("dynamic_wi8", 32, 1.0, recipe="dynamic_wi8", size_bytes=1_000_000),
        measurement("dynamic_wi8", 128, 4.0, recipe="dynamic_wi8", size_bytes=1_000_000),
        measurement("dynamic_wi8", 128, 2.5, recipe="dynamic_wi8", size_bytes=1_000_000, threads=2),
        measurement("TFLite converter float32", 128, 12.0, peer=True, size_bytes=3_500_000),
        measurement("TFLite converter dynamic_wi8", 128, 5.0, recipe="dynamic_wi8", peer=True, size_bytes=900_000),
        bench_subjects.failed("cut <short>", 32, "it does not answer"),
        accuracies=(score("float32", 0.8), score("dynamic_wi8", 0.7875)),
        notes=("a note",),
    )


class Page(html.parser.HTMLParser):
    """Checks that elements close in order and collects what a browser would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "data") and not str(value).startswith(("#", "data:")):
                self.outside.append(f"{tag} {name}={value}")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data


def test_rows_compare_with_plain_float_export(run: ResultFile) -> None:
    rows = {row.label: row for row in comparison.rows([run])}
    assert list(rows)[:2] == ["TFLite converter float32", "TFLite converter dynamic_wi8"]
    int8 = rows["dynamic_wi8"]
    assert int8.reference and int8.reference.label == "TFLite converter float32" and int8.smaller == 3.5
    assert int8.faster and 1 / int8.faster.value == pytest.approx(3.0) and int8.faster_at == (128, 1)
    assert int8.latency_us(128, 2) == pytest.approx(2500) and int8.latency_us(64, 1) is None
    assert int8.accuracy and int8.accuracy.value == 0.7875
    assert rows["cut <short>"].failures == ("it does not answer",) and not rows["cut <short>"].latencies


def test_text_costs_shortest_sufficient_length(run: ResultFile) -> None:
    rows = {row.label: row for row in comparison.rows([run])}
    assert rows["dynamic_wi8"].effective_latency_us(20, 1) == pytest.approx(1000)
    assert rows["dynamic_wi8"].effective_latency_us(33, 1) == pytest.approx(4000)
    assert rows["TFLite converter dynamic_wi8"].effective_latency_us(20, 1) == pytest.approx(5000)
    assert rows["dynamic_wi8"].effective_latency_us(129, 1) is None


def test_runs_are_never_compared(run: ResultFile) -> None:
    alone = bench_subjects.result(measurement("dynamic_wi8", 128, 1.0, recipe="dynamic_wi8", size_bytes=10))
    rows = comparison.rows([run, alone])
    (other,) = (row for row in rows if row.run is alone)
    assert other.reference is None and other.faster is None and other.smaller is None


def test_page_is_complete_and_self_contained(run: ResultFile, tmp_path: Path) -> None:
    path = report.build_report(
        [run],
        tmp_path / "report",
        verification={"dynamic_wi8": {"checks": [CHECK, {**CHECK, "passed": False, "measured": 1.5}]}},
        title="A <title>",
        summary="What & why.",
    )
    assert path == tmp_path / "report" / "report.html"
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == [] and page.outside == []
    assert not re.search(r"url\((?!#)|@import|<script|https?://", text)
    for expected in (
        "A <title>", "What & why.", "cut <short> failed: it does not answer", "noise & <all>",
        "3.50×", "3.00×", "78.75 %", "1 of 2 checks passed", "a note", "a processor", "XNNPACK 95 %", "numpy 2.0",
    ):  # fmt: skip
        assert expected in page.text, expected
    assert 'name="viewport"' in text
    names = {"accuracy_latency.png", "latency.png", "size.png", "distribution.png", "report.html", "results.json"}
    assert {file.name for file in path.parent.glob("[!.]*")} == names
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in path.parent.glob("*.png"))
    assert text.count("<svg") == 4
    assert results.read(path.parent / "results.json") == run


def test_headline_is_our_smallest_export(run: ResultFile) -> None:
    tiles = {name: (figure, detail) for figure, name, detail in report._tiles(comparison.rows([run]), {})}
    assert tiles["smaller"][0] == "3.50×" and tiles["faster"][0] == "3.00×"
    # 5 ms over 4 ms at 128 tokens; for 32 tokens the baseline pads and still takes 5 ms, ours 1 ms.
    assert tiles["faster with the same recipe"][0] == "1.25×"
    assert tiles["faster on short texts"][0] == "5.00×" and "pads to 128" in tiles["faster on short texts"][1]
    # 78.75 rounds to even.
    assert tiles["accuracy"][0] == "78.8 %" and "float32 80.0 %" in tiles["accuracy"][1]


@pytest.mark.parametrize(("rounds", "compared"), [(1, False), (2, False), (3, True)])
def test_few_rounds_are_no_comparison(rounds: int, compared: bool) -> None:
    sizes = {"round_sizes": (12 - rounds + 1,) + (1,) * (rounds - 1)}
    run = bench_subjects.result(
        measurement("TFLite converter float32", 128, 10.0, peer=True, **sizes), measurement("ours", 128, 5.0, **sizes)
    )
    measured_row = next(row for row in comparison.rows([run]) if row.label == "ours")
    assert (measured_row.faster is not None) == compared and measured_row.smaller is not None


def test_lone_export_has_no_comparison(run: ResultFile) -> None:
    alone = bench_subjects.result(measurement("float32", 32, 3.0), accuracies=run.accuracies)
    assert report._tiles(comparison.rows([alone]), {}) == [("80.0 %", "accuracy", "80 examples")]


@pytest.mark.usefixtures("without_plots")
def test_a_quick_run_says_so(run: ResultFile, tmp_path: Path) -> None:
    whole = report.build_report([run], tmp_path / "a").read_text(encoding="utf-8")
    quick = report.build_report([dataclasses.replace(run, quick=True)], tmp_path / "b").read_text(encoding="utf-8")
    assert "short measurements" in quick and "short measurements" not in whole


def device_run(**changes: Any) -> ResultFile:
    on_phone = results.Runtime(name="tflite", version="2.21.0")
    return bench_subjects.result(
        measurement("phone int8", 128, 55.0, recipe="dynamic_wi8", threads=4, runtime=on_phone),
        measurement("phone int8", 32, 15.0, recipe="dynamic_wi8", threads=4, runtime=on_phone),
        **{"measured_on": "device", "title": "A phone's run", **changes},
    )


def test_every_run_has_section_and_plots(run: ResultFile, tmp_path: Path) -> None:
    path = report.build_report([run, device_run(), device_run(title="Another phone's")], tmp_path / "report")
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    headings = re.findall(r"<h2>([^<]*:[^<]*)</h2>", text)
    assert headings == [
        "a run: host, litert 2.0", "A phone&#39;s run: device, tflite 2.21.0",
        "Another phone&#39;s: device, tflite 2.21.0",
    ]  # fmt: skip
    sections = re.split(r"<h2>[^<]*:[^<]*</h2>", text.split("<h2>Method")[0])[1:]
    # A plot or a table that had both would hold both labels.
    assert ["TFLite converter" in section for section in sections] == [True, False, False]
    assert ["phone int8" in section for section in sections] == [False, True, True]
    assert {row.name for row in path.parent.glob("*_latency.png")} >= {f"{n}_latency.png" for n in (1, 2, 3)}
    assert {row.name for row in path.parent.glob("*.json")} == {f"results_{n}.json" for n in (1, 2, 3)}


@pytest.mark.usefixtures("without_plots")
def test_report_separates_runtimes_with_their_baselines(tmp_path: Path) -> None:
    new, old = (results.Runtime(name="tflite", version=version) for version in ("2.21.0", "2.16.1"))
    onnx = results.Runtime(name="onnxruntime", version="1.0")
    mixed = bench_subjects.result(
        measurement("float32", 32, 3.0, runtime=new),
        measurement("on the GPU", 32, 1.0, recipe="float16", runtime=old),
        measurement("ONNX Runtime float32", 32, 2.0, runtime=onnx, peer=True),
        bench_subjects.failed("broken", 32, "it died"),
    )
    parts = comparison.rankings(mixed)
    assert [[measurement.label for measurement in part.measurements] for part in parts] == [
        ["float32", "ONNX Runtime float32", "broken"],
        ["on the GPU"],
    ]
    rows = {row.label: row for part in parts for row in comparison.rows([part])}
    assert rows["on the GPU"].reference is None
    assert rows["float32"].reference and rows["float32"].reference.label == "ONNX Runtime float32"
    text = report.build_report([mixed], tmp_path / "report").read_text(encoding="utf-8")
    assert len(re.findall(r"<h2>a run: host, tflite 2\.(21\.0|16\.1)</h2>", text)) == 2
    alone = bench_subjects.result(
        measurement("float32", 32, 3.0), measurement("onnx", 32, 2.0, peer=True, runtime=onnx)
    )
    assert comparison.rankings(alone) == [alone]


@pytest.mark.usefixtures("without_plots")
def test_gpu_and_cpu_get_separate_sections(tmp_path: Path) -> None:
    archive = results.Runtime(name="tflite-aar", version="2.16.1")
    gpu = results.Delegate(name="GPU", delegated_ops=9, total_ops=10)
    both = device_run(
        measurements=(
            measurement("float32", 128, 30.0, threads=4, runtime=archive),
            measurement("float16", 128, 10.0, recipe="float16", threads=4, runtime=archive, delegate=gpu),
        )
    )
    assert [[measurement.label for measurement in part.measurements] for part in comparison.rankings(both)] == [
        ["float32"], ["float16"],
    ]  # fmt: skip
    text = report.build_report([both], tmp_path / "report").read_text(encoding="utf-8")
    assert re.findall(r"<h2>A phone&#39;s run: ([^<]*)</h2>", text) == [
        "device, tflite-aar 2.16.1", "device, tflite-aar 2.16.1, GPU for 90% of operators",
    ]  # fmt: skip
    # The paper measured the processor.
    (table,) = text.split("Published latencies")[1:]
    assert "342 ms" in table and "10.0 ms" not in table.split("</table>")[0]
    alone = device_run(measurements=both.measurements[1:])
    assert "342 ms" not in report.build_report([alone], tmp_path / "alone").read_text(encoding="utf-8")


@pytest.mark.usefixtures("without_plots")
def test_page_shows_a_phones_conditions(tmp_path: Path) -> None:
    conditions = results.DeviceConditions(
        affinity="big",
        processors_allowed="4-7",
        processors_khz={"0": 1_785_600, "4": 2_419_200, "5": 2_100_000, "7": 2_841_600},
        processors_highest_khz={"0": 1_785_600, "1": 1_785_600, "4": 2_419_200, "5": 2_419_200, "7": 2_841_600},
        battery_percent=81,
        charging=True,
        power_save=False,
        thermal_headroom=0.456,
        repeat=3,
    )
    heat = {"thermal_start": results.Thermal(status="none", celsius=None), "thermal_end": None}
    run = device_run()
    measurements = [dataclasses.replace(run.measurements[0], device=conditions, **heat), run.measurements[1]]
    machine = dataclasses.replace(run.machine, product="Google Pixel 4")
    whole = device_run(measurements=tuple(measurements), machine=machine)
    text = Page(report.build_report([whole], tmp_path / "a").read_text(encoding="utf-8")).text
    for text_part in (
        "Google Pixel 4", "big", "4-7", "none to unknown", "0.46", "81 %, charging",
        "1 at 1.79 of 1.79 GHz, 2 at 2.10 of 2.42 GHz, 1 at 2.84 of 2.84 GHz",
    ):  # fmt: skip
        assert text_part in text, text_part
    page = report.build_report([device_run()], tmp_path / "b").read_text(encoding="utf-8")
    assert "State of the phone" not in page


@pytest.mark.usefixtures("without_plots")
def test_papers_figures_appear_for_phones_only(run: ResultFile, tmp_path: Path) -> None:
    host = Page(report.build_report([run], tmp_path / "host").read_text(encoding="utf-8")).text
    assert "Pixel 4" not in host and "342" not in host
    phone = Page(report.build_report([device_run()], tmp_path / "phone").read_text(encoding="utf-8")).text
    table = phone.split("Published latencies")[1].split("Method")[0]
    assert "not as a ranking" in table and "Sun et al. 2020" in table
    for network, milliseconds in (
        ("BERT-base", "342 ms"), ("without operational optimizations", "192 ms"), ("MobileBERT", "62.0 ms"),
        ("MobileBERT-TINY", "40.0 ms"), ("phone int8", "55.0 ms"),
    ):  # fmt: skip
        assert re.search(f"{network}\\s*(this run|Sun et al. 2020 \\(MobileBERT\\))\\s*{milliseconds}", table), network
    assert "15.0 ms" not in table and "no measurement with 128 tokens" not in table
    short = bench_subjects.result(measurement("a", 32, 1.0), measured_on="device")
    assert "no measurement with 128 tokens and 4 threads" in report.build_report([short], tmp_path / "s").read_text(
        "utf-8"
    )


def test_an_emulators_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="measured on qemu; leave it out"):
        report.build_report([device_run(measured_on="qemu")], tmp_path / "report")


@pytest.mark.parametrize("met", [True, False])
def test_ratios_alone_make_a_page(tmp_path: Path, met: bool) -> None:
    ratio = results.ratio(
        name="a", description="one over another", ours="ours", peer="theirs", unit="us", ours_samples=[2.0, 2.0],
        peer_samples=[4.0, 4.0], better="lower", target=0.6 if met else 0.4,
    )  # fmt: skip
    path = report.build_report([bench_subjects.result(ratios=(ratio,))], tmp_path / "report")
    text = Page(path.read_text(encoding="utf-8")).text
    assert "one over another" in text and "0.5 to 0.5" in text
    assert ("missed" in text) is not met


@pytest.mark.usefixtures("without_plots")
def test_existing_or_empty_report_is_refused(run: ResultFile, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least one measurement or ratio"):
        report.build_report([bench_subjects.result()], tmp_path / "empty")
    report.build_report([run], tmp_path / "report")
    with pytest.raises(UserError, match="must not exist yet"):
        report.build_report([run], tmp_path / "report")
    report.build_report([run], tmp_path / "report", overwrite=True)


def test_the_table_for_a_terminal(run: ResultFile) -> None:
    lines = report.table(run).splitlines()
    assert lines[0].split() == "export MB accuracy % ms@32 ms@128 ms@32/2t ms@128/2t smaller faster".split()
    int8_row = next(line for line in lines if line.startswith("dynamic_wi8"))
    assert int8_row.split() == ["dynamic_wi8", "1.0", "78.75", "1.00", "4.00", "2.50", "3.50×", "3.00×"]
    assert lines[-1] == "failed: cut <short>: it does not answer"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1.5, "1.5"), (23_111_222.0, "23,111,222"), (1.2e-6, "1.2e-06"), (None, ""), (0.99912, "0.999")],
)
def test_figures_are_short(value: Any, text: str) -> None:
    assert formats.number(value) == text
