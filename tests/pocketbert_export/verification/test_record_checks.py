"""What a bundle says about its export: source, verification.json and card, true and forged in every number."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import bundle_folders
import networks
import numpy as np
import pytest
import yaml
from faults import edited, gate_check, on_card, recorded

from pocketbert import cli
from pocketbert.data.examples import Examples
from pocketbert.files import sha256
from pocketbert.model import Model, from_pretrained
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.checks.outputs import Check
from pocketbert_export.exporter import export
from pocketbert_export.verification.record_checks import check_records
from pocketbert_export.verification.verify import Verification, verify_bundle

RECORDS = ("source", "verification", "card")
TEXTS = [f"the {noun} is {mood}" for noun in ("cat", "dog", "film", "story") for mood in ("good", "bad", "dull")]


@pytest.fixture(scope="module")
def labelled(small_model: Model) -> Examples:
    """Texts with the model's own answers, every fifth changed."""
    labels = small_model.task.labels
    answers = np.array([labels.index(answer["label"]) for answer in small_model.predict(TEXTS)], np.int32)
    answers[::5] = (answers[::5] + 1) % 3
    return Examples(TEXTS, None, answers, [str(index) for index in range(len(TEXTS))], "reviews.csv")


@pytest.fixture(scope="module")
def bundle(small_directory: Path, labelled: Examples, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """int8, so that no measured value is near zero."""
    path = tmp_path_factory.mktemp("records") / "mood"
    export(small_directory, path, recipe="dynamic_wi8", lengths=(7, 19), examples=labelled)
    return path


@pytest.fixture
def copy(bundle: Path, tmp_path: Path) -> Path:
    # The name of the folder is the card's title.
    return Path(shutil.copytree(bundle, tmp_path / "mood"))


def checks_of(verification: Verification) -> dict[str, Check]:
    return {check.name: check for check in verification.checks if check.name in RECORDS}


Compare = Callable[..., dict[str, Check]]


@pytest.fixture
def verify(small_model: Model, small_directory: Path, labelled: Examples) -> Compare:
    """Runs the whole gate."""

    def run(folder: Path, **options: Any) -> dict[str, Check]:
        arguments = {"reference": small_model, "examples": labelled, "model_directory": small_directory, **options}
        return checks_of(verify_bundle(folder, **arguments))

    return run


@pytest.fixture(scope="module")
def made(bundle: Path, small_model: Model, labelled: Examples) -> dict[str, Any]:
    """A run of the gate: other records change nothing of it."""
    return verify_bundle(bundle, reference=small_model, examples=labelled, records=False).to_json()


@pytest.fixture
def compare(made: dict[str, Any], small_model: Model, small_directory: Path) -> Compare:
    """Compares the records of a bundle with `made`."""

    def run(folder: Path, reference: Model = small_model, directory: Path | None = small_directory) -> dict[str, Check]:
        return {
            check_record.name: check_record
            for check_record in check_records(Bundle.open(folder), made, reference, directory)
        }

    return run


def reasons(checks: dict[str, Check]) -> list[str]:
    return [f"{check.name}: {check.reason}" for check in checks.values() if not check.passed]


def content(folder: Path) -> dict[str, Any]:
    content = json.loads((folder / "verification.json").read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def test_true_records_pass(bundle: Path, verify: Compare, labelled: Examples) -> None:
    record = verify(bundle)
    assert [*record] == [*RECORDS] and reasons(record) == []
    assert record["verification"].reason == "verification.json: checks, values and counts are those of this run"
    # They are checks of records, so they are not recorded themselves.
    assert not {check["name"] for check in content(bundle)["checks"]} & {*RECORDS}
    # Without the float model, there is nothing to compare with.
    assert checks_of(verify_bundle(bundle)) == {}


def test_copied_model_and_model_in_memory_have_the_digests(
    bundle: Path, small_model: Model, small_directory: Path, tmp_path: Path, compare: Compare
) -> None:
    moved = shutil.copytree(small_directory, tmp_path / "elsewhere")
    assert reasons(compare(bundle, directory=moved)) == []
    in_memory = compare(bundle, directory=None)
    assert in_memory["source"].reason == "bundle.json has the SHA-256 of the model's weights"
    # Exported from memory, verified with the folder.
    export(small_model, tmp_path / "bundle", recipe="float32", lengths=(7,))
    loaded = compare(tmp_path / "bundle", from_pretrained(moved), moved)
    assert loaded["source"].passed


def test_weights_of_another_model_are_named(
    bundle: Path, copy: Path, small_model: Model, small_directory: Path, tmp_path: Path, compare: Compare
) -> None:
    other = networks.network(networks.bert_config(), tokenizer=small_model.tokenizer)
    weight = next(iter(other.weights_by_path().values()))
    weight.assign(weight + 1e-6)
    other.save_pretrained(tmp_path / "other")
    source = compare(bundle, other, tmp_path / "other")["source"]
    digests = [sha256(folder / "model.safetensors")[:12] for folder in (tmp_path / "other", small_directory)]
    assert not source.passed and "but model.safetensors must be {}…; it is {}…".format(*digests) in source.reason
    edited(lambda all_: all_["source"].update({"more.safetensors": "0" * 64}))(copy)
    assert compare(copy)["source"].reason.endswith("but more.safetensors must be absent; it is 000000000000…")
    # The files of a model in memory are unknown.
    source = compare(bundle, other, None)["source"]
    assert source.passed and source.reason.startswith("not compared") and "pass model_directory" in source.reason


def scaled(name: str, factor: float) -> Any:
    def change(all_: dict[str, Any]) -> None:
        (check,) = [check for check in all_["checks"] if check["name"] == name]
        assert check["measured"]
        check["measured"] *= factor

    return recorded(change)


def changed(*path: str | int, value: Any) -> Any:
    def change(all_: dict[str, Any]) -> None:
        for key in path[:-1]:
            all_ = all_[key]  # type: ignore[index]
        all_[path[-1]] = value  # type: ignore[index]

    return recorded(change)


FORGED: dict[str, tuple[Any, str]] = {
    "passed": (changed("passed", value=False), "passed must be true; it is false"),
    "recipe": (changed("recipe", value="float32"), 'recipe must be "dynamic_wi8"; it is "float32"'),
    "runtimes": (
        changed("runtimes", "tflite-2.16", value="2.16.1"),
        'runtimes must be ["litert"]; it is ["litert", "tf',
    ),
    "count": (changed("examples", "count", value=3000), "examples.count must be 12; it is 3000"),
    "labelled": (changed("examples", "labelled", value=False), "examples.labelled must be true; it is false"),
    "metric": (changed("metric", value="f1"), "metric must be accuracy; it is f1"),
    "needed versions": (changed("weights_need", value={}), "weights_need must be"),
    "optimizations": (changed("graph_optimizations", "fold_no_norm", value="applied"), "graph_optimizations must be"),
    "operators": (changed("operators", "GELU", value=99), "operators must be"),
    "delegates": (changed("delegates", 0, "delegated_ops", value=1), "delegates must be"),
    "other delegates": (changed("delegates", value=[]), "delegates must be"),
    "a failed check": (gate_check("padding", passed=False), "padding must have passed; it has not"),
    "largest difference": (scaled("logits: largest difference", 0.5), "logits: largest difference on litert must be"),
    "root mean square": (scaled("logits: RMS difference", 0.9), "logits: RMS difference on litert must be"),
    "goldens": (scaled("goldens: RMS difference", 0.5), "goldens: RMS difference on litert must be"),
    "size": (scaled("size", 0.99), "size must be"),
    "constants": (scaled("constants", 0.5), "constants must be"),
    "padding": (gate_check("padding", measured=0.25), "padding on litert must be 0; it is 0.25"),
    "drop": (gate_check("metric", measured=-60.0), "metric on litert must be"),
    "scores": (gate_check("metric", scores=[0.75, 0.99]), "the scores of metric on litert must have 0.75"),
    "bound": (gate_check("logits: RMS difference", bound=0.01), "the bound of logits: RMS difference on litert must"),
    "no value": (gate_check("labels", measured=None), "labels on litert must be 1; it is null"),
    "one check more": (
        recorded(lambda all_: all_["checks"].append({**all_["checks"][-1], "name": "beauty"})),
        "the check beauty on litert must not be there",
    ),
    "one check twice": (recorded(lambda all_: all_["checks"].append(all_["checks"][-1])), "one stands twice"),
    "one check less": (recorded(lambda all_: all_["checks"].pop()), "the check answers on litert must be there"),
    "a text as value": (gate_check("labels", measured="1.0"), "checks[21]: measured must be a number; received '1.0'"),
    "a list": (lambda folder: write_verification(folder, "[]"), "it must be an object; received []"),
    "garbage": (lambda folder: write_verification(folder, "\x00garbage"), "verification.json"),
}


def write_verification(folder: Path, text: str) -> None:
    (folder / "verification.json").write_text(text, encoding="utf-8")
    bundle_folders.describe_again(folder)


@pytest.mark.parametrize("forged", FORGED)
def test_forged_verification_fails(forged: str, copy: Path, compare: Compare) -> None:
    change, message = FORGED[forged]
    change(copy)
    check = compare(copy)["verification"]
    assert not check.passed and message in check.reason, check.reason


def test_missing_verification_fails(copy: Path, compare: Compare) -> None:
    (copy / "verification.json").unlink()
    bundle_folders.describe_again(copy)
    record = compare(copy)
    assert reasons(record) == [
        f"verification: verification.json: the record of the gate at export, but {copy / 'verification.json'}: the "
        "file cannot be read (No such file or directory); check the path; export the bundle again"
    ]
    assert "not compared" in record["card"].reason


def test_other_examples_compare_what_texts_do_not_change(copy: Path, labelled: Examples, verify: Compare) -> None:
    others = labelled.select(range(7))
    record = verify(copy, examples=others)
    assert reasons(record) == []
    assert "the 12 examples from reviews.csv at export are others" in record["verification"].reason
    scaled("logits: RMS difference", 0.5)(copy)
    assert verify(copy, examples=others)["verification"].passed
    scaled("goldens: RMS difference", 0.5)(copy)
    assert "goldens: RMS difference" in verify(copy, examples=others)["verification"].reason


def test_record_without_digest_counts_as_other_examples(copy: Path, compare: Compare) -> None:
    recorded(lambda all_: all_.pop("examples_sha256"))(copy)
    record = compare(copy)
    assert reasons(record) == [] and "are others" in record["verification"].reason


def test_activations_of_float16_are_compared(
    small_model: Model, small_directory: Path, labelled: Examples, tmp_path: Path, verify: Compare
) -> None:
    path = tmp_path / "mood"
    export(small_directory, path, recipe="float16", lengths=(7,), examples=labelled)
    verification = verify_bundle(path, reference=small_model, examples=labelled, model_directory=small_directory)
    assert reasons(checks_of(verification)) == []
    made = verification.to_json()
    made["checks"] = [check for check in made["checks"] if check["name"] not in RECORDS]

    def reason() -> str:
        checks = check_records(Bundle.open(path), made, small_model, small_directory)
        return next(check.reason for check in checks if check.name == "verification")

    maxima = content(path)["activation_range"]["maxima"]
    tensor = max(maxima, key=maxima.__getitem__)
    changed("activation_range", "maxima", tensor, value=maxima[tensor] * 1.01)(path)
    assert f"activation_range: {tensor} must be {maxima[tensor]:.6g}; it is" in reason()
    assert reasons(verify(path, examples=labelled.select(range(5)))) == []
    changed("activation_range", "maxima", value={tensor: maxima[tensor]})(path)
    assert "must name the activations of the file" in reason()
    changed("activation_range", value=None)(path)
    assert 'activation_range must be "given"; it is null' in reason()


def test_another_processor_may_round_otherwise(copy: Path, verify: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    gate_check("goldens: outputs at export", measured=0.0)(copy)
    scaled("logits: largest difference", 0.9)(copy)
    assert not verify(copy)["verification"].passed
    # The file's own outputs differ from those at export by 1 %: int8 steps of another processor.
    bundle_folders.change_answers(copy, {"/exported_outputs/logits": lambda logits: logits * 1.01})
    verification = verify(copy)["verification"]
    assert verification.passed, verification.reason


CARD: dict[str, tuple[Any, str]] = {
    "value in model-index": (on_card('"value": 0.75', '"value": 0.95'), "'model-index: accuracy 0.95'"),
    "metric in model-index": (
        on_card('{"type": "accuracy", "value"', '{"type": "f1", "value"'),
        "'model-index: f1 0.75'",
    ),
    "score": (on_card("| This file | 0.7500 |", "| This file | 0.9500 |"), "| This file | 0.9500 |"),
    "float model": (on_card("| Float model | 0.7500 |", "| Float model | 0.7000 |"), "| Float model | 0.7000 |"),
    "headline": (
        on_card("**Not learned from this many examples: accuracy 0.7", "**Good: accuracy 0.9"),
        "**Good: accuracy 0.95",
    ),
    "number of examples": (on_card("12 examples from", "1,200 examples from"), "1,200 examples from"),
    "checks": (on_card("with 12 examples and passed", "with 3,000 examples and passed"), "3,000 examples"),
    "measured": (on_card("| padding | 0 |", "| padding | 0.5 |"), "| padding | 0.5 |"),
}


@pytest.mark.parametrize("forged", CARD)
def test_forged_card_fails(forged: str, copy: Path, compare: Compare) -> None:
    change, message = CARD[forged]
    change(copy)
    record = compare(copy)
    assert len(reasons(record)) == 1 and message in record["card"].reason, record["card"].reason


def test_card_and_description_forged_together_fail(
    copy: Path, verify: Compare, small_model: Model, small_directory: Path, labelled: Examples
) -> None:
    edited(lambda all_: all_["outcome"].update(score=0.95))(copy)
    for old, new in (('"value": 0.75', '"value": 0.95'), ("| This file | 0.7500 |", "| This file | 0.9500 |")):
        on_card(old, new)(copy)
    verification = verify_bundle(copy, reference=small_model, examples=labelled, model_directory=small_directory)
    assert "outcome" in {check.name for check in verification.failures}


def edits(card: str) -> Sequence[str]:
    """What an author may make of a card."""
    _, matter, body = card.split("---\n", 2)
    rewritten = yaml.safe_dump(yaml.safe_load(matter), sort_keys=False)
    return (
        card.replace(
            "## Limits", "## Our phones\n\nIt takes 3 ms on 12 phones, and 0.99 of our users like it.\n\n## Limits"
        ),
        card.replace("# mood", "# Moods of 2026"),
        card.replace("| Licence | unknown |", "| Licence | apache-2.0 |"),
        card[: card.index("## Verification")],
        f"---\n{rewritten}---\n{body}",
        body,
        "",
    )


def test_authors_may_edit_the_rest_of_the_card(copy: Path, compare: Compare) -> None:
    path = copy / "README.md"
    card = path.read_text(encoding="utf-8")
    for edited_card in edits(card):
        assert edited_card != card
        path.write_text(edited_card, encoding="utf-8")
        assert reasons(compare(copy)) == []
    path.unlink()
    assert compare(copy)["card"].reason == "the bundle has no README.md"


def test_verify_command_names_forged_records(
    copy: Path, small_directory: Path, labelled: Examples, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = networks.SENTIMENT.labels
    assert labelled.labels is not None
    rows = [f"{text},{names[label]}\n" for text, label in zip(labelled.texts, labelled.labels, strict=True)]
    (tmp_path / "dev.csv").write_text("text,label\n" + "".join(rows), encoding="utf-8")
    call = ["verify", str(copy), f"--model={small_directory}", f"--file={tmp_path / 'dev.csv'}"]
    assert cli.main(call) == 0
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert [*checks][-3:] == [*RECORDS]
    # The command reads the same examples as the export did.
    assert "values and counts are those of this run" in checks["verification"]["reason"]
    on_card("| This file | 0.7500 |", "| This file | 0.9500 |")(copy)
    edited(lambda all_: all_["source"].update({"model.safetensors": "0" * 64}))(copy)
    gate_check("labels", measured=0.5)(copy)
    assert cli.main(call) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert all(f"{name}: " in line for name in RECORDS)
