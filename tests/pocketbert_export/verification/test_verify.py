"""The gate as a whole, on bundles that are sound and on bundles that are wrong in one way each."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import bundle_folders
import flatbuffers
import handmade
import networks
import numpy as np
import old_runtime
import pytest
from ai_edge_litert import schema_py_generated as schema

from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.tokenizers.wordpiece import WordPieceTokenizer
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.tflite import runtimes
from pocketbert_export.tflite.runtimes import LITERT, TFLITE_2_16
from pocketbert_export.verification.validation_inputs import ValidationInputs, cut, with_noise
from pocketbert_export.verification.verify import GateFailed, Verification, verify_bundle
from pocketbert_runtime.bundles.length_buckets import bucket_by_length, fit_length


@pytest.fixture(autouse=True)
def one_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handmade bundles have one vocabulary: tracing a tokenizer for each would take most of the time."""
    original = Bundle.tokenizer

    def tokenizer(bundle: Bundle) -> WordPieceTokenizer:
        handmade_one = (bundle.directory / "vocab.txt").read_text(encoding="utf-8").split() == handmade.vocabulary()
        return handmade.tokenizer() if handmade_one else original.__get__(bundle, Bundle)

    monkeypatch.setattr(Bundle, "tokenizer", property(tokenizer))


def failed(verification: Verification) -> set[str]:
    return {check.name for check in verification.failures}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return handmade.write_bundle(tmp_path_factory.mktemp("sound") / "bundle", handmade.Bag())


def test_a_sound_bundle_passes(sound: Path) -> None:
    verification = verify_bundle(sound)
    assert verification.passed, verification.failures
    verification.require()
    described = json.loads(json.dumps(verification.to_json(), allow_nan=False))
    assert described["passed"] is True
    assert described["runtimes"] == {LITERT: "2.3.0"}
    assert {check["name"] for check in described["checks"]} == {
        "operators",
        "signatures",
        "outputs",
        "shapes",
        "constants",
        "vocabulary",
        "tokenizer",
        "segments",
        "finite",
        "goldens: largest difference",
        "goldens: RMS difference",
        "goldens: outputs at export",
        "padding",
        "lengths",
        "answers",
    }
    assert all(check["reason"] for check in described["checks"])


@pytest.mark.parametrize(
    ("bag", "names"),
    [
        (handmade.Bag(foreign="flex"), {"operators"}),
        (handmade.Bag(foreign="custom"), {"operators"}),
        (
            handmade.Bag(zero=True),
            {"finite", "segments", "goldens: largest difference", "goldens: RMS difference"},
        ),
        # The golden examples have the padding id in the padding, where its vector counts a thousandth.
        (
            handmade.Bag(leak=1e-3),
            {"padding", "lengths", "goldens: largest difference", "goldens: RMS difference"},
        ),
        (
            handmade.Bag(length_bias=0.5),
            {"lengths", "goldens: largest difference", "goldens: RMS difference"},
        ),
    ],
    ids=["flex", "custom", "zero", "leak", "length"],
)
def test_wrong_bundle_fails_with_its_reason(bag: handmade.Bag, names: set[str], tmp_path: Path) -> None:
    verification = verify_bundle(handmade.write_bundle(tmp_path / "wrong", bag))
    assert failed(verification) == names
    with pytest.raises(GateFailed, match="does not pass its gate: ") as caught:
        verification.require()
    for name in names:
        assert name in str(caught.value)


def test_uncallable_file_suggests_no_other_recipe(tmp_path: Path) -> None:
    folder = handmade.write_bundle(tmp_path / "flex", handmade.Bag(foreign="flex"), recipe="dynamic_wi8")
    with pytest.raises(GateFailed) as caught:
        verify_bundle(folder).require()
    assert "recipe=" not in str(caught.value)


def test_wrong_golden_answers_fail(tmp_path: Path) -> None:
    folder = handmade.write_bundle(tmp_path / "bundle", handmade.Bag())

    bundle_folders.change_answers(folder, {"2/outputs/logits": lambda logits: logits + [0.0, 1.0, 0.0]})
    assert failed(verify_bundle(folder)) == {"goldens: largest difference", "goldens: RMS difference"}


@pytest.mark.parametrize("name", ["model.tflite", "vocab.txt"])
def test_a_damaged_file_is_named(name: str, tmp_path: Path) -> None:
    folder = handmade.write_bundle(tmp_path / "bundle", handmade.Bag())
    content = bytearray((folder / name).read_bytes())
    content[-7] ^= 1
    (folder / name).write_bytes(bytes(content))
    with pytest.raises(UserError, match=f"{name} must have the sha256"):
        verify_bundle(folder)


def test_file_broken_before_listing_is_refused(tmp_path: Path) -> None:
    folder = handmade.write_bundle(tmp_path / "bundle", handmade.Bag())
    (folder / "model.tflite").write_bytes((folder / "model.tflite").read_bytes()[:900])
    bundle_folders.describe_again(folder)
    with pytest.raises(UserError, match="damaged"):
        verify_bundle(folder)


@pytest.fixture(scope="module")
def old_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not old_runtime.is_here():
        pytest.skip("TFLite 2.16.1 has no environment here; pocketbert verify --runtime=tflite-2.16 makes one")
    return handmade.write_bundle(
        tmp_path_factory.mktemp("old") / "bundle",
        handmade.Bag(),
        recipe="dynamic_wi8",
        runtimes=(LITERT, TFLITE_2_16),
        int8=True,
    )


@pytest.mark.nightly
def test_unsupported_file_fails_on_old_runtime(old_bundle: Path) -> None:
    verification = verify_bundle(old_bundle)
    assert [(check.name, check.runtime) for check in verification.failures] == [("runs", TFLITE_2_16)]
    assert "FULLY_CONNECTED" in verification.failures[0].reason
    assert verification.weights_need == {"FULLY_CONNECTED": 12}
    assert list(verification.runtimes) == [LITERT]


@pytest.mark.nightly
def test_understated_versions_are_judged_by_outputs(old_bundle: Path) -> None:
    model = schema.ModelT.InitFromPackedBuf((old_bundle / "model.tflite").read_bytes(), 0)
    for code in model.operatorCodes:
        if code.builtinCode == schema.BuiltinOperator.FULLY_CONNECTED:
            assert code.version == 12
            code.version = 9
    builder = flatbuffers.Builder(0)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    (old_bundle / "model.tflite").write_bytes(bytes(builder.Output()))
    bundle_folders.describe_again(old_bundle)
    verification = verify_bundle(old_bundle)
    assert verification.weights_need == {"FULLY_CONNECTED": 12}
    # This one it happens to compute rightly; what it recorded played no part in that verdict.
    assert verification.passed, verification.failures
    assert verification.runtimes[TFLITE_2_16] == "2.16.1"
    measured = {
        check.runtime: check.measured for check in verification.checks if check.name == "goldens: largest difference"
    }
    assert 0 < measured[TFLITE_2_16] < 0.6


def test_a_runtime_that_answers_zeros_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def zeros_on_the_old_one(runtime: str, model: Path, batches: runtimes.Batches) -> runtimes.RuntimeAnswers:
        ran = runtimes.run(LITERT, model, batches)
        if runtime == LITERT:
            return ran
        zeros = {
            signature: {name: 0 * array for name, array in outputs.items()}
            for signature, outputs in ran.answers.items()
        }
        return runtimes.RuntimeAnswers("2.16.1", zeros)

    folder = handmade.write_bundle(tmp_path / "bundle", handmade.Bag(), runtimes=(LITERT, TFLITE_2_16))
    monkeypatch.setattr("pocketbert_export.verification.verify.run_on", zeros_on_the_old_one)
    verification = verify_bundle(folder)
    assert {check.runtime for check in verification.failures} == {TFLITE_2_16}
    assert "finite" in failed(verification)


TEXTS = ["the film is good .", "a cat walks", "the story begins well , but ends very badly", "dull", "rain or sun"]


def examples(labels: list[int] | None = None) -> Examples:
    return Examples(
        texts=TEXTS,
        pairs=None,
        labels=None if labels is None else np.array(labels, np.int32),
        ids=[str(index) for index in range(len(TEXTS))],
        source="written texts",
    )


@pytest.fixture
def model(small_model: Model) -> Model:
    return small_model


@pytest.fixture
def exported(small_directory: Path, small_bundle: Path) -> tuple[Path, Path]:
    return small_directory, small_bundle


def own_labels(model: Model) -> list[int]:
    inputs = dict(model.tokenizer(TEXTS, max_length=19))
    return model(inputs, training=False)["logits"].numpy().argmax(axis=1).tolist()


def test_real_texts_compare_with_float_model(model: Model, exported: tuple[Path, Path]) -> None:
    verification = verify_bundle(exported[1], reference=model, examples=examples(own_labels(model)))
    assert verification.passed, verification.failures
    by_name = {check.name: check for check in verification.checks}
    assert by_name["metric"].reason.startswith(
        "accuracy on 5 examples: 100.00 with the float model, 100.00 with the bundle"
    )
    assert by_name["labels"].measured == 1.0
    assert 0 < by_name["logits: largest difference"].measured < 1e-4
    assert by_name["size"].measured == (exported[1] / "model.tflite").stat().st_size


def test_another_model_fails(model: Model, exported: tuple[Path, Path]) -> None:
    other = networks.network(networks.bert_config(), tokenizer=model.tokenizer)
    # The class after the one that the bundle finds in the first text always wins.
    winner = (own_labels(model)[0] + 1) % 3
    bias = other.weights_by_path()["heads.classification.output.bias"]
    bias.assign(bias + 40.0 * np.eye(3, dtype=np.float32)[winner])
    verification = verify_bundle(exported[1], reference=other, examples=examples([winner] * 5))
    assert failed(verification) == {
        "logits: largest difference",
        "logits: RMS difference",
        "full rows",
        "labels",
        "metric",
    }


@pytest.mark.one_of_each("regression", "labels", "encoder")
@pytest.mark.parametrize(
    ("task", "bundle_has", "model_has"),
    [
        (TaskConfig(kind="regression", name="mood"), "kind 'classification'", "kind 'regression'"),
        (TaskConfig(kind="span", name="mood"), "kind 'classification'", "kind 'span'"),
        (
            TaskConfig(kind="classification", name="mood", labels=("no", "yes")),
            "labels ('bad', ",
            "labels ('no', 'yes')",
        ),
        (None, "kind 'classification'", "no task"),
    ],
    ids=["regression", "span", "labels", "encoder"],
)
def test_bundle_of_another_task_is_named(
    task: TaskConfig | None, bundle_has: str, model_has: str, model: Model, exported: tuple[Path, Path], tmp_path: Path
) -> None:
    folder = bundle_folders.describe_again(Path(shutil.copytree(exported[1], tmp_path / "bundle")), recipe="float16")
    tasks = [task] if task else []
    verification = verify_bundle(folder, reference=networks.network(networks.bert_config(), tasks, model.tokenizer))
    # Other outputs have no differences to measure, and no number format brings them nearer.
    assert failed(verification) == {"task"}
    with pytest.raises(GateFailed) as failure:
        verification.require()
    message = str(failure.value)
    assert (
        f"task: the tasks differ: the bundle has {bundle_has}" in message and f"; the model has {model_has}" in message
    )
    assert message.endswith("; pass the model that the bundle was exported from, or export it again")
    assert "recipe" not in message


def test_labels_of_another_task_do_not_hide_it(
    exported: tuple[Path, Path], small_model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = networks.network(networks.bert_config(), [TaskConfig(kind="regression")], small_model.tokenizer)
    scores.save_pretrained(tmp_path / "scores")
    (tmp_path / "dev.csv").write_text("text,label\na dull film,bad\na cat,good\n", encoding="utf-8")
    assert (
        cli.main(["verify", str(exported[1]), f"--model={tmp_path / 'scores'}", f"--file={tmp_path / 'dev.csv'}"]) == 1
    )
    assert "the bundle does not pass its gate: task: the tasks differ" in capsys.readouterr().err


def test_float_file_exceeds_int8_size(model: Model, exported: tuple[Path, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(exported[1], tmp_path / "bundle"))
    bundle_folders.describe_again(folder, recipe="dynamic_wi8")
    verification = verify_bundle(folder, reference=model, examples=examples())
    shapes = [variable.shape for variable in model.weights_by_path().values()]
    # In so small a network the graph outweighs the weights: its share is taken off to see the weights'.
    size = next(check for check in verification.checks if check.name == "size")
    assert size.measured > 4 * sum(int(np.prod(shape)) for shape in shapes) * 0.8
    assert size.bound < size.measured + 512 * sum(verification.operators.values()) + 16_384


def test_verify_prints_json_and_exits_0(
    exported: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory, bundle = exported
    table = tmp_path / "dev.jsonl"
    table.write_text('{"text": "a dull film", "label": "bad"}\n{"text": "a cat", "label": "good"}\n', encoding="utf-8")
    assert cli.main(["verify", str(bundle)]) == 0
    assert json.loads(capsys.readouterr().out)["examples"]["source"] == "the bundle's golden examples"
    assert cli.main(["verify", str(bundle), f"--model={directory}", f"--file={table}"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described["examples"] == {"count": 2, "source": str(table), "labelled": True}


def test_failed_verify_exits_1_with_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = handmade.write_bundle(tmp_path / "zero", handmade.Bag(zero=True))
    assert cli.main(["verify", str(folder)]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["passed"] is False
    assert "logits: all zero or not finite" in captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "takes one BUNDLE; received none"),
        (["{bundle}", "--file=x.csv"], "need --model"),
        (["{bundle}", "--runtime=tflite-9"], "--runtime=tflite-9: must be one of litert, tflite-2.16"),
        (["{bundle}/nothing"], "a bundle must be a folder written by pocketbert export; received "),
    ],
)
def test_the_command_refuses_bad_input(
    arguments: list[str], message: str, sound: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["verify", *(argument.format(bundle=sound) for argument in arguments)]) == 2
    assert message in capsys.readouterr().err


def test_bucketing_takes_shortest_sufficient_length() -> None:
    inputs = handmade.rows(11, 40)
    counts = inputs["input_mask"].sum(axis=1)
    placed = bucket_by_length(inputs, [11, 3, 6], pad_token_id=65)
    assert [part.length for part in placed] == [3, 6, 11]
    assert sorted(np.concatenate([part.indices for part in placed])) == list(range(40))
    for part, fewest in zip(placed, (1, 4, 7), strict=True):
        assert (counts[part.indices] <= part.length).all()
        assert (counts[part.indices] >= fewest).all()
        real = part.inputs["input_mask"] == 1
        np.testing.assert_array_equal(
            part.inputs["input_word_ids"][real],
            inputs["input_word_ids"][part.indices][inputs["input_mask"][part.indices] == 1],
        )
        assert part.inputs["input_word_ids"].shape == (len(part.indices), part.length)


def test_fit_length_pads_with_padding_id() -> None:
    inputs = handmade.rows(4, 3)
    fitted = fit_length(inputs, 7, pad_token_id=65)
    for name, fill in zip(handmade.INPUT_NAMES, (65, 0, 0), strict=True):
        np.testing.assert_array_equal(fitted[name][:, :4], inputs[name])
        assert (fitted[name][:, 4:] == fill).all()


def test_place_refuses_what_fits_nowhere() -> None:
    inputs = {name: np.ones([2, 8], np.int32) for name in handmade.INPUT_NAMES}
    with pytest.raises(ValueError, match="must fit into 7 tokens; the longest has 8"):
        bucket_by_length(inputs, [5, 7], pad_token_id=0)
    with pytest.raises(ValueError, match="must fit into 7 tokens; the longest has 8"):
        fit_length(inputs, 7, pad_token_id=0)


def test_noise_stays_in_vocabulary_and_padding() -> None:
    inputs = cut(handmade.rows(9, 50), 6, pad_token_id=0)
    assert inputs["input_mask"][:, 6:].sum() == 0
    noisy = with_noise(inputs, np.random.default_rng(1), vocab_size=handmade.VOCAB_SIZE, type_vocab_size=2)
    padding = inputs["input_mask"] == 0
    for name in ("input_word_ids", "input_type_ids"):
        np.testing.assert_array_equal(noisy[name][~padding], inputs[name][~padding])
        assert len(np.unique(noisy[name][padding])) > 1
    np.testing.assert_array_equal(noisy["input_mask"], inputs["input_mask"])
    assert noisy["input_word_ids"].min() >= 0
    assert noisy["input_word_ids"].max() == handmade.VOCAB_SIZE - 1
    assert noisy["input_type_ids"].max() == 1


def test_validation_inputs_return_outputs_by_row() -> None:
    goldens = [handmade.rows(9, 1, seed=seed) for seed in (1, 2)]
    validation_inputs = ValidationInputs(
        handmade.rows(9, 12), (5, 9), pad_token_id=0, vocab_size=67, type_vocab_size=2, goldens=goldens
    )
    batches = validation_inputs.batches("length_{}".format)
    # A stand-in for a runtime: each row answers with its own ids.
    answers = {length: {"logits": batches[f"length_{length}"]["input_word_ids"]} for length in (5, 9)}
    for part, answer in zip(validation_inputs.examples, validation_inputs.answers("examples", answers), strict=True):
        np.testing.assert_array_equal(answer["logits"], part.inputs["input_word_ids"])
    for golden, answer in zip(goldens, validation_inputs.answers("goldens", answers), strict=True):
        np.testing.assert_array_equal(answer["logits"], golden["input_word_ids"])
    for mask, answer in zip(
        validation_inputs.masks("padding"), validation_inputs.answers("padding", answers), strict=True
    ):
        assert answer["logits"].shape == mask.shape
        assert (answer["logits"][mask == 0] == 0).all()
