"""The whole path on a tiny network: what it leaves, that it goes on where it was, that it refuses another's folder."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import tiny_finetuning

from pocketbert.data.examples import Examples
from pocketbert.errors import UserError
from pocketbert.training.options import FinetuneOptions
from pocketbert_bench import quickstart as module
from pocketbert_bench import results

TRAIN, DEV = 96, 24


@pytest.fixture
def tiny_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The quickstart with a network and sentences that take seconds instead of minutes."""
    network = tiny_finetuning.write_model(tmp_path / "network")
    monkeypatch.setattr(module, "minilm", lambda: network)
    sentences = (tiny_finetuning.examples(TRAIN, 1), tiny_finetuning.examples(DEV, 2))
    monkeypatch.setattr(module, "rotten_tomatoes", lambda: sentences)
    monkeypatch.setattr(module, "LENGTHS", (8, 23))
    monkeypatch.setattr(module, "PEER_LENGTH", 23)
    monkeypatch.setattr(module, "QUICK_TRAIN_EXAMPLES", TRAIN)
    monkeypatch.setattr(module, "QUICK_DEV_EXAMPLES", DEV)
    options = FinetuneOptions(learning_rate=3e-3, epochs=1, batch_size=8, max_length=23)
    monkeypatch.setattr(module, "quickstart_options", lambda quick, seed: options)
    return tmp_path / "run"


def test_goes_on_where_it_was_and_shows_everything(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    measure = module.host.bench_bundles
    monkeypatch.setattr(module.host, "bench_bundles", killed)
    with pytest.raises(KeyboardInterrupt):
        module.quickstart(tiny_path, quick=True)
    kept = {path: path.stat().st_mtime_ns for path in tiny_path.rglob("*.tflite") if "bundles" in path.parts}
    assert len(kept) == 2
    assert "[4/6]" in capsys.readouterr().err

    monkeypatch.setattr(module.host, "bench_bundles", measure)
    text = module.quickstart(tiny_path, quick=True)
    progress = capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert "dynamic_wi8: already exported" in progress and "this run is finished" in progress
    assert "--quick" in progress

    assert re.search(r"^dynamic_wi8 +\d", text, re.MULTILINE) and re.search(
        "^plain converter float32", text, re.MULTILINE
    )
    page = Path(text.rsplit("report: ")[-1])
    content = page.read_text()
    assert page.name == "report.html" and "<svg" in content
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", content), "the page stands alone"
    assert content.count("12 of 12 passed") == 2
    sentences = tiny_finetuning.examples(DEV, 2).texts
    assert sum(sentence in content for sentence in sentences) == module.SHOWN_SENTENCES

    measured = results.read(tiny_path / "results.json")
    assert {each.label for each in measured.measurements} >= {"float32", "dynamic_wi8"}
    assert all(each.status == "ok" for each in measured.measurements)
    scores = {each.label: each.value for each in measured.accuracies}
    assert set(scores) == {"model", "float32", "dynamic_wi8"}
    logits = json.loads((tiny_path / "logits.json").read_text())
    labels = tiny_finetuning.examples(DEV, 2).labels
    right = sum(int(row[1] > row[0]) == label for row, label in zip(logits["dynamic_wi8"], labels, strict=True))
    assert scores["dynamic_wi8"] == pytest.approx(right / DEV)


def test_refuses_a_folder_with_other_settings(tiny_path: Path) -> None:
    tiny_path.mkdir()
    (tiny_path / "quickstart.json").write_text('{"quick": false, "seed": 3}')
    with pytest.raises(UserError, match="holds a run with .*'seed': 3.*choose another --output"):
        module.quickstart(tiny_path, quick=True)


def test_quick_part_is_the_same_every_time() -> None:
    train, dev = tiny_finetuning.examples(5000, 1), tiny_finetuning.examples(700, 2)
    first, second = module.quick_part(train, dev), module.quick_part(train, dev)
    assert [len(part) for part in first] == [module.QUICK_TRAIN_EXAMPLES, module.QUICK_DEV_EXAMPLES]
    assert first[0].ids == second[0].ids and first[1].ids == second[1].ids


def test_the_quick_part_is_balanced_where_kinds_take_turns() -> None:
    def in_turn(count: int) -> Examples:
        numbers = [str(number) for number in range(count)]
        return Examples(numbers, None, (np.arange(count) % 2).astype(np.int32), numbers, "in turn")

    train, dev = module.quick_part(in_turn(7676), in_turn(854))
    assert (len(train), len(dev)) == (module.QUICK_TRAIN_EXAMPLES, module.QUICK_DEV_EXAMPLES)
    for part in (train, dev):
        assert part.labels is not None
        # Four standard deviations of as many fair coins.
        assert abs(part.labels.mean() - 0.5) < 4 * 0.5 / len(part) ** 0.5
