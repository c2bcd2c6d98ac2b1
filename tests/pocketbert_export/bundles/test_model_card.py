"""The model card: front matter that YAML reads, figures from the gate, facts from runs and flags."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pocketbert import cli
from pocketbert.data.assets import ASSETS
from pocketbert.data.examples import Examples
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.training.state import digest_directory
from pocketbert_bench import results
from pocketbert_bench.benchmark import benchmark, latencies_of
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.bundles.model_card import CardOptions, Latency, card_facts, render
from pocketbert_export.exporter import export


def front_matter(card: str) -> dict[str, Any]:
    _, matter, _ = card.split("---\n", 2)
    loaded = yaml.safe_load(matter)
    assert isinstance(loaded, dict)
    return loaded


def content(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def labelled(small_model: Model) -> Examples:
    """Sentences with the model's own answers, one of five changed."""
    texts = [
        f"the {first} is {second}" for first in ("cat", "dog", "film", "story") for second in ("good", "bad", "dull")
    ]
    answers = np.array(
        [small_model.task.labels.index(answer["label"]) for answer in small_model.predict(texts)], np.int32
    )
    answers[::5] = (answers[::5] + 1) % 3
    ids = [str(index) for index in range(len(texts))]
    return Examples(texts=texts, pairs=None, labels=answers, ids=ids, source="/srv/somebody/reviews.csv")


@pytest.fixture(scope="module")
def bundle(small_directory: Path, labelled: Examples, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("card") / "mood"
    facts = CardOptions(
        license="mit", base_model="some/model", dataset='reviews: "all" | some', limits=("Irony confuses it.",)
    )
    export(small_directory, path, recipe="float32", lengths=(7, 19), examples=labelled, card=facts)
    return path


def test_front_matter_has_the_hub_fields(bundle: Path, labelled: Examples) -> None:
    fields = front_matter((bundle / "README.md").read_text(encoding="utf-8"))
    (result,) = fields.pop("model-index")[0]["results"]
    assert fields == {
        "license": "mit",
        "library_name": "litert",
        "pipeline_tag": "text-classification",
        "tags": ["pocketbert", "tflite", "float32"],
        "base_model": "some/model",
        "datasets": ['reviews: "all" | some'],
    }
    assert result["dataset"]["type"] == "mood"
    # Three of twelve labels differ from the model's answers.
    assert result["metrics"] == [{"type": "accuracy", "value": 0.75}]
    assert len(labelled) == 12


def test_card_shows_scores_without_paths_of_the_machine(bundle: Path) -> None:
    card = (bundle / "README.md").read_text(encoding="utf-8")
    assert "| This file | 0.7500 | " in card and "| Float model | 0.7500 |  | +0.00 points |" in card
    assert "12 examples from reviews.csv." in card
    assert card.index("**Not learned") < card.index("| Size |") < card.index("## Latency") < card.index("## Verif")
    assert "/srv/somebody" not in card
    assert "- Irony confuses it.\n" in card
    assert "at most 19 tokens" in card
    # A bar in a value would split a cell.
    assert "reviews: &quot;" not in card
    assert '| reviews: "all" &#124; some (licence: unknown) |' in card


def test_bundle_json_has_the_same_facts(bundle: Path) -> None:
    description = content(bundle, "bundle.json")
    facts, outcome = description["model_card"], description["outcome"]
    assert facts["license"] == "mit"
    assert facts["limits"] == ["Irony confuses it."]
    assert facts["base_model_license"] is None
    assert facts["run_sha256"] is None
    assert (outcome["metric"], outcome["float_model"], outcome["score"]) == ("accuracy", 0.75, 0.75)
    assert outcome["examples"] == 12
    assert "latencies" not in facts


def test_edited_card_leaves_the_bundle_valid(bundle: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(bundle, tmp_path / "copy")
    (copy / "README.md").write_text("my own words\n", encoding="utf-8")
    assert Bundle.open(copy).recipe == "float32"


def test_run_names_its_base_model(small_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asset = ASSETS["all-minilm"]
    listing = "".join(f"{name} {digest}\n" for name, digest in sorted(asset.files.items()))
    run = tmp_path / "run.json"
    run.write_text(json.dumps({"model_sha256": hashlib.sha256(listing.encode()).hexdigest()}), encoding="utf-8")
    facts = card_facts(CardOptions(), tmp_path / "model")
    assert (facts["base_model"], facts["base_model_license"]) == (
        "sentence-transformers/all-MiniLM-L6-v2",
        "apache-2.0",
    )
    assert facts["run_sha256"] == hashlib.sha256(run.read_bytes()).hexdigest()
    # A model of the user's own is never called all-MiniLM.
    run.write_text(json.dumps({"model_sha256": digest_directory(small_directory)}), encoding="utf-8")
    assert card_facts(CardOptions(), tmp_path / "model")["base_model"] is None
    assert card_facts(CardOptions(base_model="mine"), tmp_path / "model")["base_model"] == "mine"


def test_cross_validated_run_is_a_limit(tmp_path: Path) -> None:
    headline = "accuracy 0.856 ± 0.017 over 3 folds on 97 examples"
    run = {"model_sha256": "", "kfold": 3, "outcome": {"headline": headline}}
    (tmp_path / "run.json").write_text(json.dumps(run), encoding="utf-8")
    limits = card_facts(CardOptions(limits=("It knows films only.",)), tmp_path / "model")["limits"]
    assert limits[0] == "It knows films only." and len(limits) == 2
    assert "trained on all its labelled examples" in limits[1] and headline in limits[1]
    for option in ({"decision_thresholds": True}, {"reject": 0.9}):
        (tmp_path / "run.json").write_text(json.dumps({**run, **option}), encoding="utf-8")
        limit = card_facts(CardOptions(), tmp_path / "model")["limits"][0]
        assert limit == f"{limits[1]} Its predictions for them chose the thresholds of the answers."


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ("---\nlicense: apache-2.0\nbase_model: lab/bert\ntags: [x]\n---\n# Mine\n", ("apache-2.0", "lab/bert")),
        ("---\nbase_model:\n- lab/one\n- lab/two\n---\n", (None, "lab/one, lab/two")),
        ("---\nlicense: 3\n---\n", (None, None)),
        ("---\n- a list\n---\n", (None, None)),
        ("license: mit\n", (None, None)),
        ("---\nlicense: [\n---\n", (None, None)),
    ],
)
def test_the_card_of_a_model_directory_is_read(
    card: str, expected: tuple[str | None, str | None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "README.md").write_text(card, encoding="utf-8")
    facts = card_facts(CardOptions(dataset="films"), tmp_path)
    assert (facts["license"], facts["base_model"]) == expected and facts["dataset"] == "films"
    own = card_facts(CardOptions(license="mit"), tmp_path)
    assert (own["license"], own["base_model"]) == ("mit", expected[1])
    assert ("are not YAML" in capsys.readouterr().err) == (card.count("[") == 1 and "x" not in card)


@pytest.mark.parametrize("record", ["[1]", "3", '"a"', '{"model_sha256": 5}', "[", "NaN"])
def test_foreign_run_file_is_one_line(record: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(record, encoding="utf-8")
    with pytest.raises(UserError, match=r"run\.json: .* must be"):
        card_facts(CardOptions(), tmp_path / "model")
    (tmp_path / "run.json").write_text('{"name": "of another tool"}', encoding="utf-8")
    assert card_facts(CardOptions(), tmp_path / "model")["base_model"] is None


def test_markup_in_texts_is_shown_as_it_is(small_bundle: Path) -> None:
    description, verification = content(small_bundle, "bundle.json"), content(small_bundle, "verification.json")
    odd = "<script>x</script> & [a](http://b) `c` *d* _e_ f_g |\x1b[2J\nh"
    task = description["task"] | {"labels": [odd, "no", "yes"], "name": odd}
    limits = [odd, "# heading", "- item", "12. item", "---"]
    facts = dict.fromkeys(("license", "base_model", "base_model_license", "dataset", "dataset_license"), odd)
    card = render(
        f"# {odd}",
        description | {"task": task, "model_card": {**facts, "limits": limits, "run_sha256": None}},
        verification | {"runtimes": {odd: odd}},
        [Latency(7, 1, 0.5, odd, odd)],
    )
    shown = r"&lt;script&gt;x&lt;/script&gt; &amp; \[a\](http://b) \`c\` \*d\* \_e\_ f_g &#124;\\u001b\[2J h"
    body = card.split("---\n", 2)[2]
    assert "<script" not in body and "\x1b" not in card and "[a]" not in body
    assert f"# \\# {shown}\n" in body
    assert f"with the labels {shown}, no, yes as" in body
    assert f"| Licence | {shown} |\n" in body
    assert f"| 7 | 1 | 0.50 ms | {shown} | {shown} |\n" in body
    for limit in (shown, r"\# heading", r"\- item", r"12\. item", r"\---"):
        assert f"- {limit}\n" in body
    assert front_matter(card)["license"] == odd


def test_fetched_directory_names_its_base_model(tmp_path: Path) -> None:
    assert cli.main(["fetch", "all-minilm", f"--output={tmp_path / 'fetched'}"]) == 0
    digest = digest_directory(tmp_path / "fetched")
    (tmp_path / "run.json").write_text(json.dumps({"model_sha256": digest}), encoding="utf-8")
    assert card_facts(CardOptions(), tmp_path / "model")["base_model"] == "sentence-transformers/all-MiniLM-L6-v2"


def test_bundle_without_facts_or_labels_says_so(small_bundle: Path) -> None:
    description, verification = content(small_bundle, "bundle.json"), content(small_bundle, "verification.json")
    del description["model_card"]
    card = render("mood", description, verification, [Latency(19, 2, 1.25, "litert 2.3.0", "a phone")])
    assert front_matter(card)["license"] == "unknown"
    assert "model-index" not in front_matter(card)
    assert "the score of this file is unknown" in card and "No score: export with `examples=…`" in card
    assert "| 19 | 2 | 1.25 ms | litert 2.3.0 | a phone |" in card


def test_command_adds_the_bundles_own_latencies(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = benchmark([bundle], quick=True).result
    path = tmp_path / "result.json"
    results.write(path, measured)
    assert cli.main(["card", str(bundle), f"--results={path}", "--name=Moods"]) == 0
    card = (bundle / "README.md").read_text(encoding="utf-8")
    assert card.count(" ms | litert") == len(latencies_of(bundle, [measured])) == 2
    assert "# Moods\n" in card
    facts = content(bundle, "bundle.json")["model_card"]
    assert [latency["length"] for latency in facts["latencies"]] == [
        latency.length for latency in latencies_of(bundle, [measured])
    ]
    assert "| This file | 0.7500 | " in card and Bundle.open(bundle).recipe == "float32"
    others = tuple(dataclasses.replace(measurement, model_sha256="0" * 64) for measurement in measured.measurements)
    results.write(tmp_path / "other.json", dataclasses.replace(measured, measurements=others))
    capsys.readouterr()
    assert cli.main(["card", str(bundle), f"--results={tmp_path / 'other.json'}"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "must measure this bundle" in error
