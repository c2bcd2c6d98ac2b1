"""`pocketbert prune`: what it writes, what transformers reads of it, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny
import tiny_distillation
import tiny_finetuning
from safetensors.numpy import load_file

import pocketbert as pb
from pocketbert.cli import main
from pocketbert.configs import EncoderConfig
from pocketbert.data.examples import Examples
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.pruning.importance import read_importance

SMALL = ["--layers=1", "--heads=3", "--intermediate-size=17", "--embedding-rank=11"]
WHOLE = ["--layers=off", "--heads=off", "--intermediate-size=off", "--embedding-rank=off"]
DEV = tiny_finetuning.examples(23, seed=4)


@pytest.fixture
def prune(tmp_path: Path) -> Callable[..., int]:
    tiny_distillation.write_teacher(tmp_path / "teacher")
    tiny_finetuning.write_table(tmp_path / "train.csv", tiny_finetuning.examples(29, seed=3))
    tiny_finetuning.write_table(tmp_path / "dev.csv", DEV)

    def run(*options: str, output: str = "out") -> int:
        arguments = [f"--model={tmp_path / 'teacher'}", f"--train-file={tmp_path / 'train.csv'}"]
        arguments += [f"--dev-file={tmp_path / 'dev.csv'}", f"--labels={','.join(tiny_finetuning.TASK.labels)}"]
        arguments += ["--max-length=19", "--batch-size=7", f"--output={tmp_path / output}"]
        return main(["prune", "--method=rosita", *arguments, *options])

    return run


def logits(model: pb.Model, examples: Examples) -> np.ndarray:
    return model(model.tokenizer(examples.texts, max_length=19))["logits"].numpy()


@pytest.mark.usefixtures("eager")
def test_command_writes_a_pruned_model(
    prune: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prune(*SMALL) == 0
    result = json.loads(capsys.readouterr().out)
    folder, model = tmp_path / "out", pb.from_pretrained(tmp_path / "out" / "model")
    teacher = pb.from_pretrained(tmp_path / "teacher")
    config = tiny_distillation.TEACHER.replace(
        num_layers=1,
        num_attention_heads=3,
        intermediate_size=17,
        embedding_size=11,
        embedding_projection="factors",
    )
    assert model.config == config and model.tasks == teacher.tasks
    assert result["parameters"] == [teacher.count_params(), model.count_params()]
    for name, network in (("teacher_metrics", teacher), ("metrics", model)):
        right = logits(network, DEV).argmax(-1) == DEV.labels
        assert result[name]["accuracy"] == pytest.approx(right.mean())
    importance = read_importance(folder / "importance.safetensors")
    assert importance.heads.shape == (2, 5) and importance.neurons.shape == (2, 41) and importance.batches == 5
    highest = np.argsort(importance.heads[0])[-3:]
    assert result["kept_heads"] == [sorted(highest.tolist())]
    share = importance.heads[0][highest].sum() / importance.heads[0].sum()
    assert result["kept_importance"]["heads"] == [pytest.approx(share)]
    page = (folder / "report.html").read_text("utf-8")
    assert page.count("<rect") == 10 and page.count("<polyline") == 2 and page.count('stroke="#111827"') == 3
    assert "http" not in page and "<script" not in page

    # The finished run is read again; with other sizes it is refused.
    written = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert prune(*SMALL) == 0 and json.loads(capsys.readouterr().out) == result
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == written
    assert prune(*SMALL, "--heads=2") == 2
    assert "other options: heads=3, received 2" in capsys.readouterr().err
    assert prune(*SMALL, "--overwrite") == 0
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == written


@pytest.mark.usefixtures("eager")
def test_nothing_pruned_writes_equal_files(prune: Callable[..., int], tmp_path: Path) -> None:
    assert prune(*WHOLE) == 0
    for name in ("config.json", "model.safetensors", "vocab.txt"):
        assert (tmp_path / "out" / "model" / name).read_bytes() == (tmp_path / "teacher" / name).read_bytes()


@pytest.mark.usefixtures("eager")
def test_transformers_reads_fewer_layers_and_neurons(prune: Callable[..., int], tmp_path: Path) -> None:
    import transformers

    assert prune("--layers=1", "--heads=off", "--intermediate-size=17", "--embedding-rank=off") == 0
    folder = tmp_path / "out" / "model"
    assert json.loads((folder / "config.json").read_text())["model_type"] == "bert"
    model = pb.from_pretrained(folder)
    inputs = model.tokenizer(DEV.texts, max_length=19)
    reference_model = transformers.TFBertForSequenceClassification(transformers.AutoConfig.from_pretrained(folder))
    stored = {name: np.asarray(array) for name, array in load_file(folder / "model.safetensors").items()}
    reference_model = transformers.modeling_tf_pytorch_utils.load_pytorch_state_dict_in_tf2_model(
        reference_model, stored
    )
    expected = reference_model(inputs["input_word_ids"], inputs["input_mask"], inputs["input_type_ids"]).logits
    # Two float32 networks of one layer.
    np.testing.assert_allclose(model(inputs)["logits"], expected, atol=1e-5)
    # A head of 6 in a model of width 30 has no class in transformers.
    assert prune(*SMALL, output="small") == 0
    assert json.loads((tmp_path / "small/model/config.json").read_text())["model_type"] == "pocketbert_bert"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--layers=3"], "layers must be at most the teacher's 2; received 3; lower it, or turn it off"),
        (["--teacher-layers=2,1"], "teacher_layers must be different layers from 1 in ascending order; received 2,1"),
        (["--teacher-layers=0"], "teacher_layers must be different layers from 1 in ascending order; received 0"),
        (["--teacher-layers=1,2", "--layers=1"], "give layers or teacher_layers; received both, with layers=1"),
        (
            ["--teacher-layers=1,3", "--layers=off"],
            "teacher_layers must be among the teacher's 2; received layer 3; leave it out",
        ),
        (["--heads=6"], "heads must be at most the teacher's 5; received 6"),
        (["--intermediate-size=42"], "intermediate_size must be at most the teacher's 41; received 42"),
        (["--embedding-rank=31"], "embedding_rank must be at most the teacher's 30; received 31"),
        (["--heads=0"], "heads must be positive; received 0"),
        (["--max-length=30"], "max_length must be at most the teacher's 29 positions; received 30"),
        (
            ["--labels=low,high,other"],
            "must have one head, fine-tuned on the task of the data (classification low high",
        ),
        (["--kind=regression", "--labels=off"], "the score must be a finite number; received 'high'"),
        (["--label-column=mood"], "the header must have the column 'mood'"),
        (["--model=bare"], "the teacher must have one head, fine-tuned on the task of the data (classification low"),
        (["--model=mobilebert"], "the teacher must be a BERT, RoBERTa, XLM-R, DistilBERT, ELECTRA, CamemBERT, "),
    ],
)
def test_bad_input_writes_nothing(
    options: list[str],
    message: str,
    prune: Callable[..., int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if options == ["--model=mobilebert"]:
        config = tiny.MOBILEBERT.replace(vocab_size=97)
        tokenizer = pb.from_pretrained("bare").tokenizer
        pb.from_preset(config, tiny_finetuning.TASK, tokenizer).save_pretrained("mobilebert")
    before = sorted(tmp_path.rglob("*"))
    assert prune(*SMALL, *options) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_examples_without_labels_are_refused(prune: Callable[..., int], tmp_path: Path) -> None:
    plain = dataclasses.replace(DEV, labels=None)
    data = TaskData(task=tiny_finetuning.TASK, train=plain, dev=DEV)
    with pytest.raises(UserError, match="training examples need labels; made for the test has none"):
        pb.prune(tmp_path / "teacher", data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("eager")
def test_chosen_layers_keep_their_own_parts(prune: Callable[..., int], tmp_path: Path) -> None:
    sizes = ["--teacher-layers=2", "--heads=3", "--intermediate-size=17", "--embedding-rank=off"]
    assert prune(*sizes, "--examples=10") == 0
    importance = read_importance(tmp_path / "out" / "importance.safetensors")
    # Ten examples in batches of seven; the options repeat the run.
    assert importance.batches == 2
    assert main(["prune", f"--config={tmp_path / 'out' / 'run.toml'}"]) == 0
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["examples"] == 10
    heads = np.sort(np.argsort(-importance.heads[1], kind="stable")[:3])
    assert result["kept_heads"] == [heads.tolist()]
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "<td>2</td>" in page.replace(' class="number"', "") and page.count('stroke="#111827"') == 3
    teacher, pruned = (pb.from_pretrained(tmp_path / path).weights_by_path() for path in ("teacher", "out/model"))
    columns = (heads[:, None] * 6 + np.arange(6)).ravel()
    kernel = teacher["encoder.layers.1.attention.value.kernel"].numpy()[:, columns]
    np.testing.assert_array_equal(pruned["encoder.layers.0.attention.value.kernel"], kernel)
    neurons = np.sort(np.argsort(-importance.neurons[1], kind="stable")[:17])
    bias = teacher["encoder.layers.1.feed_forwards.0.intermediate.bias"].numpy()[neurons]
    np.testing.assert_array_equal(pruned["encoder.layers.0.feed_forwards.0.intermediate.bias"], bias)


@pytest.mark.one_of_each("config0")
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("config", [tiny_distillation.TEACHER, tiny.MOBILEBERT.replace(vocab_size=97)])
def test_whole_layers_need_no_importance(config: EncoderConfig, prune: Callable[..., int], tmp_path: Path) -> None:
    tokenizer = pb.from_pretrained(tmp_path / "teacher").tokenizer
    pb.from_preset(config, tiny_finetuning.TASK, tokenizer, seed=3).save_pretrained(tmp_path / "whole")
    assert prune(f"--model={tmp_path / 'whole'}", *WHOLE[1:], "--teacher-layers=2") == 0
    assert not (tmp_path / "out" / "importance.safetensors").exists()
    assert "no importance was measured" in (tmp_path / "out" / "report.html").read_text("utf-8")
    before, after = (pb.from_pretrained(tmp_path / path).weights_by_path() for path in ("whole", "out/model"))
    second = {path: variable for path, variable in before.items() if path.startswith("encoder.layers.1.")}
    assert sum(path.startswith("encoder.layers.") for path in after) == len(second)
    for path, variable in second.items():
        np.testing.assert_array_equal(after[path.replace("layers.1.", "layers.0.")], variable)


@pytest.mark.usefixtures("eager")
def test_cut_texts_are_counted(prune: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prune("--max-length=9", "--layers=1", "--heads=off", "--intermediate-size=off", "--embedding-rank=off") == 0
    texts = [*tiny_finetuning.examples(29, seed=3).texts, *DEV.texts]
    long = sum(len(text.split()) + 2 > 9 for text in texts)
    line = f"{long} of 52 texts are longer than 9 tokens and are cut (head); pass a larger --max-length"
    assert capsys.readouterr().err.count(line) == 1
