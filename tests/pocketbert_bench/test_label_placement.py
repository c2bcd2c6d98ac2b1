from __future__ import annotations

import itertools

import bench_subjects
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from pocketbert_bench import accuracy, charts, comparison
from pocketbert_bench.label_placement import overlap, place


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


def test_plotted_labels_do_not_overlap() -> None:
    labels = ("float32", "dynamic_wi8", "float16")
    run = bench_subjects.result(
        *(
            bench_subjects.measurement(label, length, milliseconds + shift, recipe=label)
            for label, shift in zip(labels, (0.0, 0.05, 0.1), strict=True)
            for length, milliseconds in ((32, 1.0), (64, 1.2), (128, 9.0))
        ),
        accuracies=tuple(
            accuracy.record(
                label=label, model="net", recipe=label, task="mood", split="dev", metric="accuracy", value=value,
                examples=200,
            )
            for label, value in zip(labels, (0.8, 0.801, 0.799), strict=True)
        ),
    )  # fmt: skip
    figure = Figure(figsize=(5.0, 3.5), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    assert charts._accuracy_against_latency(axes, comparison.rows([run]))
    canvas.draw()
    boxes = [text.get_window_extent().extents for text in axes.texts if isinstance(text, Annotation)]
    assert len(boxes) == 9
    assert not any(overlap(tuple(one), tuple(two)) for one, two in itertools.combinations(boxes, 2))
