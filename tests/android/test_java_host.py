"""Runs the Java core as a command on bundles of every recipe, and reads its result files."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import zipfile
from pathlib import Path

import bundle_folders
import numpy as np
import pytest

from pocketbert.recipes import RECIPES
from pocketbert_bench import configurations, results
from pocketbert_runtime.bundles import bundle as runtime_bundle

pytestmark = pytest.mark.java

JAR = Path(__file__).parents[2] / "android_app" / "host" / "target" / "pocketbert-host.jar"


def host(*arguments: object, text: str = "") -> subprocess.CompletedProcess[str]:
    if not JAR.is_file():
        pytest.fail("android_app/host/target/pocketbert-host.jar is not there: run make android-test", pytrace=False)
    command = ["java", "-jar", str(JAR), *map(str, arguments)]
    return subprocess.run(
        command, input=text, capture_output=True, encoding="utf-8", errors="surrogateescape", timeout=300, check=False
    )


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tiny network in every recipe, and networks with numbers per token and with vectors.

    Accents, another script and a cut text are among the golden examples.
    """
    import tiny

    import pocketbert as pb
    from pocketbert.configs import TaskConfig
    from pocketbert.data.examples import Examples
    from pocketbert_export.exporter import export
    from pocketbert_export.quantization.calibration_options import CalibrationOptions
    from pocketbert_runtime.tokenizers.wordpiece_vocabulary import SPECIAL_TOKENS

    folder = tmp_path_factory.mktemp("bundles")
    words = "a quiet honest film not bad , . ! cafe in zurich the good room 東 京 ##s".split()
    unused = [f"[unused{number}]" for number in range(tiny.BERT.vocab_size - len(words) - len(SPECIAL_TOKENS))]
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join([*SPECIAL_TOKENS, *words, *unused]), encoding="utf-8")
    mood = TaskConfig(kind="classification", name="mood", labels=("bad", "fair", "good"))
    model = pb.from_preset(tiny.BERT, [mood], pb.WordPieceTokenizer(vocabulary), seed=5)
    model.save_pretrained(folder / "model")
    # One channel is so large that int8 loses the others, so int16 has layers to serve.
    kernel = model.weights_by_path()["encoder.layers.1.feed_forwards.0.output.kernel"]
    kernel.assign(kernel * np.where(np.arange(tiny.BERT.hidden_size) == 3, 30, 1))
    model.save_pretrained(folder / "unequal-model")
    texts = [f"{first} {second} film" for first in words[:6] for second in words[6:12]]
    ids = [str(index) for index in range(len(texts))]
    calibration = Examples(texts=texts, pairs=None, labels=None, ids=ids, source="calibration texts")
    for recipe, row in RECIPES.items():
        is_int16 = row.activation_bits == 16
        calibration_texts = calibration if row.calibration == "required" else None
        # float32 comes first. Blocks of 32 pad the small matrices, so int4 saves little.
        most = (folder / "float32" / "model.tflite").stat().st_size / 1.2e6 if row.chooses_formats else None
        options = CalibrationOptions(equalize=not is_int16, max_mb=most)
        export(
            folder / ("unequal-model" if is_int16 else "model"),
            folder / recipe,
            recipe=recipe,
            lengths=(9, 17),
            calibration=calibration_texts,
            calibration_options=options,
        )
    assert "int16" in dense_output_types(folder / "static_wi8_ai16")
    export(
        folder / "model",
        folder / "int8_outputs",
        recipe="static_wi8_ai8_full",
        output_type="int8",
        lengths=(9, 17),
        calibration=calibration,
    )
    others = {
        "spans": TaskConfig(kind="span", null_threshold=-0.5),
        "tags": TaskConfig(kind="token_classification", labels=("O", "B-LOC", "I-LOC")),
        "vectors": TaskConfig(kind="embedding"),
    }
    for name, task in others.items():
        pb.from_preset(tiny.BERT, [task], pb.WordPieceTokenizer(vocabulary), seed=6).save_pretrained(folder / task.kind)
        export(folder / task.kind, folder / name, recipe="float32", lengths=(9, 17))
    return {name: folder / name for name in (*RECIPES, "int8_outputs", *others)}


def dense_output_types(bundle: Path) -> set[str]:
    """Types of the outputs of the dense layers."""
    from pocketbert_export.tflite.graph import operator_name, read_model
    from pocketbert_export.tflite.op_histogram import TYPE_NAMES

    model = read_model((bundle / "model.tflite").read_bytes())
    graph = model.subgraphs[0]
    dense = [operator for operator in graph.operators if operator_name(model, operator) == "FULLY_CONNECTED"]
    return {TYPE_NAMES[graph.tensors[operator.outputs[0]].type] for operator in dense}


def test_every_recipe_at_every_length(bundles: dict[str, Path], tmp_path: Path) -> None:
    output = tmp_path / "result.json"
    done = host(*bundles.values(), "--threads=1,2", f"--output={output}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("median") == len(bundles) * 2 * 2
    # Reading checks the schema and every summary.
    result = results.read(output)
    assert (result.measured_on, result.machine.python) == ("host", None)
    expected = [
        subject
        for path in bundles.values()
        for subject in configurations.from_bundle(path, None, (1, 2), label=path.name)
    ]
    by_key = {
        (measurement.label, measurement.length, measurement.threads): measurement for measurement in result.measurements
    }
    assert len(by_key) == len(result.measurements) == len(expected)
    for subject in expected:
        java_measurement = by_key[subject.label, subject.length, subject.threads]
        assert (java_measurement.recipe, java_measurement.model, java_measurement.signature) == (
            subject.recipe,
            subject.model,
            subject.calls[0].signature,
        )
        # A bundle does not record this.
        assert java_measurement.weights is None
        assert java_measurement.golden and java_measurement.delegate and java_measurement.runtime
        # Compared with LiteRT's outputs at export: same mathematics, but another release and order of sums.
        assert java_measurement.golden.examples == len(subject.calls)
        assert java_measurement.golden.tolerance == pytest.approx(subject.tolerance(), rel=1e-12)
        assert java_measurement.golden.max_absolute_difference <= subject.tolerance()
        assert java_measurement.runtime.name == "tflite"
        assert java_measurement.delegate.name == "XNNPACK"
        # Without XNNPACK, outputs are right too, but several times slower.
        assert java_measurement.delegate.delegated_ops > 0.8 * java_measurement.delegate.total_ops
        assert len(java_measurement.latency_us) >= 50


def test_name_and_weights_reach_the_result(bundles: dict[str, Path], tmp_path: Path) -> None:
    namesake = shutil.copytree(bundles["float32"], tmp_path / "float32")
    for arguments, network in (
        ([], ("float32", None)),
        (["--name=mood", "--weights=random"], ("mood", "random")),
    ):
        output = tmp_path / f"{len(arguments)}.json"
        done = host(bundles["float32"], namesake, "--lengths=9", *arguments, f"--output={output}")
        assert done.returncode == 0, done.stderr
        result = results.read(output)
        assert [measurement.label for measurement in result.measurements] == [str(bundles["float32"]), str(namesake)]
        assert {(measurement.model, measurement.weights) for measurement in result.measurements} == {network}
        assert (results.RANDOM_WEIGHTS_NOTE in result.notes) == (network[1] == "random")


def test_delegated_operators_equal_litert(bundles: dict[str, Path], tmp_path: Path) -> None:
    from ai_edge_litert.interpreter import Interpreter

    from pocketbert_export.tflite.interpreter_process import delegate

    output = tmp_path / "result.json"
    assert host(bundles["float32"], "--lengths=9", f"--output={output}").returncode == 0
    (measurement,) = results.read(output).measurements
    interpreter = Interpreter(model_path=str(bundles["float32"] / "model.tflite"), num_threads=1)
    interpreter.allocate_tensors()
    python_delegate = delegate(interpreter)
    assert python_delegate and measurement.delegate
    assert measurement.delegate.total_ops == python_delegate["total_ops"]
    # Another release of XNNPACK may support one operator more or less.
    assert measurement.delegate.delegated_ops == pytest.approx(python_delegate["delegated_ops"], abs=2)


def test_base_memory_excludes_the_model(bundles: dict[str, Path], tmp_path: Path) -> None:
    padded = shutil.copytree(bundles["float32"], tmp_path / "padded")
    model, extra = padded / "model.tflite", 2**28
    with model.open("rb+") as file:
        # Bytes after the graph are hashed, but no runtime reads them.
        file.truncate(model.stat().st_size + extra)
    description = json.loads((padded / "bundle.json").read_text(encoding="utf-8"))
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    description["files"]["model.tflite"] = {"sha256": digest, "size_bytes": model.stat().st_size}
    (padded / "bundle.json").write_text(json.dumps(description), encoding="utf-8")
    output = tmp_path / "result.json"
    done = host(padded, "--lengths=9", f"--output={output}")
    assert done.returncode == 0, done.stdout
    (measurement,) = results.read(output).measurements
    assert measurement.base_memory_bytes and measurement.peak_memory_bytes
    assert measurement.base_memory_bytes < extra < measurement.peak_memory_bytes


def test_wrong_outputs_give_no_number(bundles: dict[str, Path], tmp_path: Path) -> None:
    broken = shutil.copytree(bundles["float32"], tmp_path / "broken")
    # Change both recorded outputs, so that they still agree.
    bundle_folders.change_answers(broken, {"outputs/logits": lambda logits: logits + [0.0, 0.5, 0.0]})
    output = tmp_path / "result.json"
    done = host(broken, bundles["float32"], "--lengths=17", f"--output={output}")
    assert done.returncode == 1
    bad, good = results.read(output).measurements
    assert (bad.status, good.status) == ("failed", "ok")
    assert bad.error and "those recorded at export; an output is off by 0.500" in bad.error
    assert not bad.latency_us


def test_bad_input_gives_exit_code_2(bundles: dict[str, Path], tmp_path: Path) -> None:
    damaged = shutil.copytree(bundles["float16"], tmp_path / "damaged")
    model = damaged / "model.tflite"
    model.write_bytes(model.read_bytes()[:-1] + b"x")
    relabelled = shutil.copytree(bundles["float16"], tmp_path / "relabelled")
    lines = bundle_folders.golden_lines(relabelled)
    for line in (lines[0], lines[-1]):
        line["text"] = f"good {line['text']}"
    bundle_folders.write_lines(relabelled, lines)
    for arguments, message in (
        ([damaged], "model.tflite must have the sha256"),
        ([relabelled], "must have the tokenizer's ids"),
        ([bundles["float32"], "--lengths=10"], "a length must be one of [9, 17]; received 10"),
        ([bundles["float32"], "--fast"], "received --fast"),
        ([tmp_path / "nothing"], "a bundle must be a folder written by pocketbert export"),
        ([], "pass at least one bundle"),
    ):
        done = host(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert message in done.stderr
        assert done.stderr.count("\n") == 1


def test_questions_of_a_zip_file_have_pythons_answers(bundles: dict[str, Path], tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "spans"), "zip", bundles["spans"])
    context = "a quiet honest film in zurich , not bad ! the good cafe , 東京"
    rows = [
        {"question": "a good room", "context": context, "id": "q1"},
        {"question": "", "context": "caf\u00e9 in Z\u00fcrich"},
        {"question": "the film", "context": ""},
    ]
    done = host("answer", archive, "--n-best=2", text="".join(json.dumps(row) + "\n" for row in rows))
    assert done.returncode == 0, done.stderr
    expected = runtime_bundle.Bundle.open(archive).predict(rows, n_best=2)
    for row, line, answer in zip(rows, done.stdout.splitlines(), expected, strict=True):
        content = json.loads(line)
        assert list(content) == [*row, *answer]
        # Two releases of the kernels sum in another order; both round to six digits.
        for one, other in ((content, row | answer), *zip(content.pop("answers"), answer.pop("answers"), strict=True)):
            other.pop("answers", None)
            numbers = {name: pytest.approx(other[name], abs=2e-5) for name in ("score", "probability")}
            assert one == other | numbers


def test_bad_inputs_of_answer_are_one_line(bundles: dict[str, Path], tmp_path: Path) -> None:
    whole = Path(shutil.make_archive(str(tmp_path / "whole"), "zip", bundles["float32"])).read_bytes()
    cut, other = tmp_path / "cut.zip", tmp_path / "other.txt"
    cut.write_bytes(whole[: len(whole) // 2])
    other.write_text("text", encoding="utf-8")
    outside = tmp_path / "outside.zip"
    with zipfile.ZipFile(outside, "w") as archive:
        archive.writestr("../bundle.json", "{}")
    old = shutil.copytree(bundles["float32"], tmp_path / "old")
    bundle_folders.describe_again(old, schema_version=1)
    question, spans = '{"question": "a", "context": "b"}', bundles["spans"]
    for arguments, text, words in (
        ([cut], "a", "cut.zip must be a complete zip file; received: "),
        ([other], "a", "other.txt must be a complete zip file; received: no file in it"),
        ([outside], "a", "names must stay in the bundle's folder; received '../bundle.json'"),
        ([old], "a", "schema_version must be "),
        (
            [spans],
            "a",
            'line 1 must be a JSON object with a string "question" and a string "context"; expected a value',
        ),
        ([spans], '{"question": "a"}', 'line 1 must be a JSON object with a string "question" and a string "context"'),
        ([spans], '{"question": "a", "context": "b", "id": 1}', 'line 1: "id" must be a string'),
        ([spans, "--n-best=0"], question, "--n-best must be a positive number; received 0"),
        ([bundles["float32"], "--n-best=2"], "a", "--n-best needs a bundle for span; float32 is for classification"),
        ([bundles["float32"]], '{"text": 3}', 'line 1 must be a JSON object with a string "text"'),
        ([bundles["tags"]], '{"text": "a", "pair": "b"}', "inputs must be texts; received a pair"),
    ):
        done = host("answer", *arguments, text=text + "\n")
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
        assert words in done.stderr


def test_help() -> None:
    done = host("--help")
    assert done.returncode == 0
    assert "--lengths" in done.stdout
