from __future__ import annotations

import itertools
from collections.abc import Sequence

import bench_subjects
import pytest
from matplotlib.text import Text

from pocketbert_bench import accuracy, charts, comparison
from pocketbert_bench.label_placement import overlap, place
from pocketbert_bench.results import Accuracy, ResultFile


def test_clustered_labels_do_not_overlap() -> None:
    # Three points on one another, two that are nearly there, and one alone.
    points = [(50.0, 40.0)] * 3 + [(53.0, 41.0), (47.5, 38.0), (200.0, 90.0)]
    sizes = [(11.0, 9.5), (16.5, 9.5), (5.5, 9.5), (16.5, 9.5), (11.0, 9.5), (16.5, 9.5)]
    offsets = place(points, sizes, radius=3.5)
    boxes = [
        (x + dx - w / 2, y + dy - h / 2, x + dx + w / 2, y + dy + h / 2)
        for (x, y), (dx, dy), (w, h) in zip(points, offsets, sizes, strict=True)
    ]
    marks = [(x - 3.5, y - 3.5, x + 3.5, y + 3.5) for x, y in points]
    assert not any(overlap(*pair) for pair in itertools.combinations(boxes, 2))
    assert not any(overlap(box, mark) for box in boxes for mark in marks)
    assert offsets[-1] == (0.0, 9.5 / 2 + 3.5 + 2.0), "a point alone has its label above"
    assert offsets == place(points, sizes, radius=3.5)


def test_overlap_needs_common_area() -> None:
    assert overlap((0, 0, 2, 2), (1, 1, 3, 3))
    assert not overlap((0, 0, 2, 2), (2, 0, 3, 2)) and not overlap((0, 0, 2, 2), (0, 2.5, 2, 3))


def test_labels_avoid_lines_and_stay_inside() -> None:
    points, sizes, within = [(10.0, 90.0), (60.0, 90.0)], [(11.0, 9.5)] * 2, (0.0, 0.0, 100.0, 100.0)
    line = (10.0, 95.0, 60.0, 97.0)
    boxes = [
        (x + dx - w / 2, y + dy - h / 2, x + dx + w / 2, y + dy + h / 2)
        for (x, y), (dx, dy), (w, h) in zip(
            points, place(points, sizes, radius=3.5, obstacles=[line], within=within), sizes, strict=True
        )
    ]
    assert not any(overlap(box, line) for box in boxes)
    assert all(min(box) >= 0 and max(box) <= 100 for box in boxes)


def test_labels_without_room_stand_outside() -> None:
    ((_, up),) = place([(5.0, 5.0)], [(11.0, 9.5)], radius=3.5, within=(0.0, 0.0, 10.0, 10.0))
    assert up > 0


def scored(label: str, model: str, value: float) -> Accuracy:
    return accuracy.record(
        label=label, model=model, recipe=label, task="mood", split="dev", metric="accuracy", value=value, examples=200
    )


def run_of(models: Sequence[str], lengths: Sequence[int], milliseconds: float, spread: float) -> ResultFile:
    """Three exports per model, whose latencies and accuracies differ by a fraction `spread`."""
    labels = ("float32", "float16", "dynamic_wi8")
    exports = [(model, label) for model in models for label in labels]
    return bench_subjects.result(
        *(
            bench_subjects.measurement(
                label, length, milliseconds * length * (1 + spread * index), recipe=label, model=model
            )
            for index, (model, label) in enumerate(exports)
            for length in lengths
        ),
        # It has one length, so its bars for the others are pale.
        bench_subjects.measurement(
            "TFLite converter float32", max(lengths), milliseconds * max(lengths), model=models[0], peer=True
        ),
        accuracies=tuple(
            scored(label, model, 0.8 + spread * index / 10) for index, (model, label) in enumerate(exports)
        ),
    )


@pytest.mark.one_of_each("equal figures", "seconds", "long names")
@pytest.mark.parametrize(
    "run",
    [
        pytest.param(run_of(["net"], [64], 0.1, 0.01), id="one length"),
        pytest.param(run_of(["teacher", "student"], [32, 64, 128], 0.1, 0.0), id="equal figures"),
        pytest.param(run_of(["teacher", "student"], [32, 64, 128], 0.03, 0.02), id="close figures"),
        pytest.param(run_of(["net"], [8, 16, 32, 64, 128, 256, 512], 20.0, 0.5), id="seconds"),
        pytest.param(
            run_of(["google_mobilebert-uncased-finetuned-on-sst2", "a rather long name of a student"], [64, 128], 1, 2),
            id="long names",
        ),
    ],
)
def test_texts_in_plots_do_not_overlap(run: ResultFile) -> None:
    figures = charts.figures(comparison.rows([run], {"student": "teacher"}))
    assert set(figures) == {"accuracy_latency", "size", "latency", "distribution"}
    for name, figure in figures.items():
        figure.canvas.draw()
        texts = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
        # `Text`'s own extent: an annotation's would include the line to its point.
        boxes = {text: Text.get_window_extent(text).extents for text in texts}
        axes = figure.axes[0]
        # Ticks outside the limits are not drawn.
        shown = [
            text
            for text in texts
            if text not in axes.get_xticklabels() or axes.get_xlim()[0] <= text.get_position()[0] <= axes.get_xlim()[1]
            if text not in axes.get_yticklabels()
            or min(axes.get_ylim()) <= text.get_position()[1] <= max(axes.get_ylim())
        ]
        for one, two in itertools.combinations(shown, 2):
            assert not overlap(tuple(boxes[one]), tuple(boxes[two])), (name, one.get_text(), two.get_text())
        for text in shown:
            left, bottom, right, top = boxes[text]
            inside = left >= 0 and bottom >= 0 and right <= figure.bbox.width and top <= figure.bbox.height
            assert inside, (name, text.get_text())
