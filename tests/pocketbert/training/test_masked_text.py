"""Masked LM on plain text: the loss, masks, dev part, resume and errors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import forks
import numpy as np
import pytest
import tensorflow as tf
import tiny_adaptation
import tiny_pretraining
from oracles.pretraining import log_softmax
from safetensors.numpy import load_file
from tiny_adaptation import FAMILIES, MAX_LENGTH

import pocketbert as pb
from pocketbert import cli
from pocketbert.data.pretraining.reader import PretrainingData
from pocketbert.data.task_data import TextData
from pocketbert.errors import UserError
from pocketbert.training.adaptation import AdaptationPlan, plan_adaptation
from pocketbert.training.config import RunConfig
from pocketbert.training.frozen_weights import FrozenWeights
from pocketbert.training.pretrain_config import PretrainConfig

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.usefixtures("eager_module")
METRICS = ["masked_lm_loss", "masked_lm_perplexity", "masked_lm_accuracy"]


def adaptation(model: Path, text: Path, *, run: RunConfig = RunConfig(), **options: Any) -> AdaptationPlan:  # noqa: B008
    options = {"batch_size": 9, "max_length": MAX_LENGTH, "dev_every": 7, **options}
    config = PretrainConfig(objective="mlm", **options)
    return plan_adaptation(str(model), TextData(text), config, run, FrozenWeights())


def arrays_of(batch: Any) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in batch.items()}


def transformers_model(folder: Path, class_name: str) -> tuple[Any, Path]:
    """The class with the weights in `folder`, and the directory that it writes, with the tokenizer's files."""
    model = getattr(transformers, class_name)(transformers.AutoConfig.from_pretrained(folder))
    stored = load_file(folder / "model.safetensors")
    if "MobileBert" in class_name:
        # Tied in their PyTorch class, whose own files leave it out too; their TensorFlow class does not tie it.
        stored["cls.predictions.decoder.weight"] = stored["mobilebert.embeddings.word_embeddings.weight"]
    if "Albert" in class_name:
        # The same.
        stored["predictions.decoder.bias"] = stored["predictions.bias"]
    load = transformers.modeling_tf_pytorch_utils.load_pytorch_state_dict_in_tf2_model
    model, loading = load(model, stored, allow_missing_keys=False, output_loading_info=True)
    assert not loading["missing_keys"] and not loading["mismatched_keys"]
    written = folder.parent / f"{folder.name}-transformers"
    model.save_pretrained(written)
    for path in folder.iterdir():
        if path.name not in ("config.json", "model.safetensors"):
            (written / path.name).write_bytes(path.read_bytes())
    return model, written


@pytest.mark.one_of_each("roberta", "mobilebert")
@pytest.mark.parametrize("family", [family for family, (_, _, class_name) in FAMILIES.items() if class_name])
def test_loss_equals_transformers(family: str, tmp_path: Path) -> None:
    class_name = FAMILIES[family][2]
    reference_model, directory = transformers_model(
        tiny_adaptation.write_encoder(tmp_path / family, family), class_name
    )
    plan = adaptation(directory, tiny_adaptation.write_lines(tmp_path / "lines.txt"))
    batches = plan.open_batches(0, 1)
    (batch,) = batches.first(1, 9)
    training_model = plan.make_step(plan.stages[0], plan.make_model(None), {})  # type: ignore[arg-type]
    loss, term = training_model.losses(batch, training=False).numpy()

    arrays = arrays_of(batch)
    ids, mask = arrays["input_word_ids"], arrays["input_mask"]
    assert set(mask.sum(1)) > {MAX_LENGTH} and (arrays["masked_lm_labels"] >= 0).sum() > 9
    labels = np.full_like(ids, -100)
    for row, (places, row_labels) in enumerate(
        zip(arrays["masked_lm_positions"], arrays["masked_lm_labels"], strict=True)
    ):
        labels[row, places[row_labels >= 0]] = row_labels[row_labels >= 0]
    # One more column: each text has padding, as in training of MobileBERT, whose word reads the next one.
    pad = [[0, 0], [0, 1]]
    inputs = {
        "input_ids": np.pad(ids, pad, constant_values=plan.tokenizer.pad_token_id),
        "attention_mask": np.pad(mask, pad),
        "labels": np.pad(labels, pad, constant_values=-100),
    }
    answer = reference_model({name: tf.constant(array) for name, array in inputs.items()}, training=False)
    assert loss == term
    # Losses of 3 to 7 nats: 1e-5 is about twenty roundings of float32.
    assert loss == pytest.approx(float(tf.squeeze(answer.loss)), abs=1e-5)


@pytest.fixture(scope="module")
def command_line(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return tiny_adaptation.command_line(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def finished(command_line: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    assert cli.main([*command_line, f"--output={folder}"]) == 0
    return folder


def log_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]


def dev_metrics(model: pb.Model, folder: Path) -> dict[str, float]:
    """Metrics in float64, one masked token after another, on the dev part of the run in `folder`."""
    values = json.loads((folder / "run.json").read_text("utf-8"))
    assert (values["option_dev_every"], values["option_max_length"]) == (7, MAX_LENGTH)
    plan = adaptation(folder / "model", tiny_adaptation.write_lines(folder.parent / "again.txt"))
    plan.encoded(plan.stages[0])
    evaluator: Any = plan.data.evaluator(model, MAX_LENGTH, plan.run, {}, 32)
    losses, right = [], []
    for inputs, labels in evaluator._batches.as_numpy_iterator():
        logs = log_softmax(model(inputs)["prediction_logits"].numpy())
        for row, place in zip(*np.nonzero(labels >= 0), strict=True):
            losses.append(-logs[row, place, labels[row, place]])
            right.append(logs[row, place].argmax() == labels[row, place])
    assert len(losses) > 9
    return dict(zip(METRICS, [np.mean(losses), np.exp(np.mean(losses)), np.mean(right)], strict=True))


def test_run_writes_loss_and_perplexity(finished: Path, command_line: list[str]) -> None:
    lines = log_of(finished)
    train = [line for line in lines if line["split"] == "train"]
    dev = [line for line in lines if line["split"] == "dev"]
    assert {2, 4, 5} <= {line["step"] for line in dev}
    assert all(set(line) == {"step", "split", "stage", "loss", "masked_lm", "learning_rate"} for line in train)
    assert all(set(line) == {"step", "split", "stage", "loss", *METRICS} for line in dev)
    result = json.loads((finished / "result.json").read_text("utf-8"))
    model = pb.from_pretrained(finished / "model")
    assert [task.kind for task in model.tasks] == ["masked_lm"]
    assert result["metrics"] == {name: dev[-1][name] for name in METRICS}
    assert result["metrics"] == pytest.approx(dev_metrics(model, finished), rel=1e-5)
    start = pb.from_pretrained(Path(command_line[2].partition("=")[2]))
    assert result["metrics_before"] == pytest.approx(dev_metrics(start, finished), rel=1e-5)
    assert result["metrics"]["masked_lm_loss"] < result["metrics_before"]["masked_lm_loss"]


@pytest.mark.nightly
def test_killed_runs_resume_exactly(finished: Path, command_line: list[str], tmp_path: Path) -> None:
    answer = forks.run_killed("step:3", [*command_line, f"--output={tmp_path / 'run'}"], EAGER="1")
    assert "resuming after step" in answer.stderr
    tiny_pretraining.assert_same_run(tmp_path / "run", finished)


@pytest.mark.nightly
def test_two_replicas_match_one(command_line: list[str], tmp_path: Path) -> None:
    # Less than an epoch, whose last batch may not divide among the replicas.
    command = [*command_line, "--dropout=0", "--steps=3", "--learning-rate=1e-3"]
    assert cli.main([*command, f"--output={tmp_path / 'one'}"]) == 0
    forks.run_killed("", [*command, "--distribution=mirrored", f"--output={tmp_path / 'two'}"], REPLICAS="2")
    one, two = ([line["loss"] for line in log_of(tmp_path / name)] for name in ("one", "two"))
    # The same terms in other sums: a few units in float32's last place, carried on by later steps.
    assert len(one) > 3 and two == pytest.approx(one, rel=1e-4)


def test_changed_options_are_refused_by_name(
    finished: Path, command_line: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for flag, message in (
        ("--max-length=12", "option_max_length=13, received 12"),
        ("--dev-every=6", "option_dev_every=7, received 6"),
        ("--whole-words", "whole_words=False, received True"),
        (f"--text={tiny_adaptation.write_lines(finished.parent / 'other.txt', seed=1)}", "text_sha256="),
    ):
        assert cli.main([*command_line, flag, f"--output={finished}"]) == 2
        assert f"a finished run with other options: {message}" in capsys.readouterr().err


def test_run_toml_repeats_the_run(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pretrain", f"--config={finished / 'run.toml'}", f"--output={finished}"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["metrics"] == json.loads((finished / "result.json").read_text("utf-8"))["metrics"]


def test_pooler_and_types_reach_finetuning(finished: Path, command_line: list[str]) -> None:
    start = pb.from_pretrained(Path(command_line[2].partition("=")[2]))
    adapted = pb.from_pretrained(finished / "model", task=pb.TaskConfig(kind="classification", labels=("a", "b")))
    assert adapted.config == start.config and start.config.pooler == "tanh"
    before, after = start.weights_by_path(), adapted.weights_by_path()
    paths = [path for path in before if path.startswith("encoder.")]
    changed = {path for path in paths if not np.array_equal(before[path].numpy(), after[path].numpy())}
    # The pooled output has no part in masked LM.
    assert {path for path in paths if path not in changed} == {path for path in paths if "pooler" in path}
    assert any("pooler" in path for path in paths)


def masked_places(batch: Any) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """For each row, its ids without masks, and the masked places."""
    arrays, rows = arrays_of(batch), []
    for ids, mask, places, labels in zip(
        *(arrays[f"input_{name}"] for name in ("word_ids", "mask")),
        *(arrays[f"masked_lm_{name}"] for name in ("positions", "labels")),
        strict=True,
    ):
        ids = ids.copy()
        ids[places[labels >= 0]] = labels[labels >= 0]
        rows.append((tuple(ids[mask == 1].tolist()), tuple(places[labels >= 0].tolist())))
    return rows


def test_each_pass_has_new_masks(tmp_path: Path) -> None:
    model = tiny_adaptation.write_encoder(tmp_path / "roberta", "roberta")
    plan = adaptation(model, tiny_adaptation.write_lines(tmp_path / "lines.txt"))
    batches = plan.open_batches(0, 1)
    rows = batches.rows(0)[:1]
    first, again, other = (masked_places(next(iter(batches.elements(rows, epoch)))) for epoch in (0, 0, 1))
    assert first == again
    assert [ids for ids, _ in first] == [ids for ids, _ in other]
    assert [places for _, places in first] != [places for _, places in other]
    # 15 % of at most 13 tokens: 1 or 2.
    assert {len(places) for _, places in first} <= {1, 2}


@pytest.mark.one_of_each("False-roberta", "True-bert", "True-xlm_roberta")
@pytest.mark.parametrize("family", ["bert", "roberta", "xlm_roberta"])
@pytest.mark.parametrize("whole_words", [False, True])
def test_whole_words_are_masked(family: str, whole_words: bool, tmp_path: Path) -> None:
    model = tiny_adaptation.write_encoder(tmp_path / family, family)
    text = tiny_adaptation.write_lines(tmp_path / "lines.txt")
    plan = adaptation(model, text, run=RunConfig(whole_words=whole_words), max_length=16, batch_size=64)
    (batch,) = plan.open_batches(0, 1).first(1, 64)
    vocabulary = plan.tokenizer.vocabulary.tokens()
    cut = several = 0
    for ids, places in masked_places(batch):
        tokens = [vocabulary[token] for token in ids]
        begins = [token[:2] != "##" if family == "bert" else token[0] in "Ġ▁" for token in tokens]
        starts = [place for place in range(1, len(ids) - 1) if place == 1 or begins[place]]
        for start, end in zip(starts, [*starts[1:], len(ids) - 1], strict=True):
            masked = {place in places for place in range(start, end)}
            several += end - start > 1 and True in masked
            cut += len(masked) == 2
    assert several > 4 and (cut == 0) is whole_words


def test_long_words_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny_adaptation.write_encoder(tmp_path / "xlm_roberta", "xlm_roberta")
    text = tiny_adaptation.write_lines(tmp_path / "lines.txt")
    run = RunConfig(whole_words=True)
    adaptation(model, text, run=run, batch_size=64).open_batches(0, 1)
    (share,) = re.findall(r"whole words: (\d+)% of the tokens", capsys.readouterr().err)
    plan = adaptation(model, text, batch_size=64)
    vocabulary, batches = plan.tokenizer.vocabulary.tokens(), plan.open_batches(0, 1)
    long = count = 0
    for batch in batches.elements(batches.rows(0), 0):
        for ids, _ in masked_places(batch):
            words: list[int] = []
            for token in ids[1:-1]:
                if not words or vocabulary[token].startswith("▁"):
                    words.append(0)
                words[-1] += 1
            # 15 % of the tokens, at least one.
            long += sum(size for size in words if size > max(1, round(0.15 * len(ids))))
            count += len(ids) - 2
    assert 0 < long < count and int(share) == round(100 * long / count)
    text.write_text("ไทยहिन्दी日本語中文한국어\n" * 9, "utf-8")
    with pytest.raises(UserError, match="whole_words can mask no word: all words have more tokens than an input of 13"):
        adaptation(model, text, run=run, dev_every=0).open_batches(0, 1)


def test_byte_bpe_keeps_spaces_between_sentences(tmp_path: Path) -> None:
    model = tiny_adaptation.write_encoder(tmp_path / "roberta", "roberta")
    text = tmp_path / "text.txt"
    text.write_text("The cat sat. The mat is a café.\nA film! Better films.\n\nThe mat.\n", "utf-8")
    encoded = adaptation(model, text, dev_every=0).open_batches(0, 1)
    rows = sorted(masked_places(next(iter(encoded.elements([np.arange(encoded.count)], 0)))))
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    documents = ["The cat sat. The mat is a café. A film! Better films.", "The mat."]
    expected = [tokenizer(document, add_special_tokens=False)["input_ids"] for document in documents]
    assert sorted(token for ids, _ in rows for token in ids[1:-1]) == sorted(sum(expected, []))


def test_patience_keeps_the_best_weights(tmp_path: Path) -> None:
    model = tiny_adaptation.write_encoder(tmp_path / "distilbert", "distilbert")
    data = pb.data.text(
        tiny_adaptation.write_lines(tmp_path / "lines.txt"), tiny_adaptation.write_lines(tmp_path / "dev.txt", 9, 1)
    )
    # Weights that hardly change: the first evaluation stays the best one.
    config = PretrainConfig(
        objective="mlm", steps=9, batch_size=32, learning_rate=1e-30, max_length=MAX_LENGTH, warmup_steps=0
    )
    run = RunConfig(evaluation_steps=1, patience=2)
    result = pb.pretrain(model, data, tmp_path / "run", config=config, run=run)
    assert (result.best_step, result.steps) == (1, 3)
    assert json.loads((tmp_path / "run/run.json").read_text("utf-8"))["option_dev_every"] == 0
    with pytest.raises(UserError, match="patience needs a dev split"):
        config = PretrainConfig(objective="mlm", dev_every=0, max_length=MAX_LENGTH)
        pb.pretrain(model, pb.data.text(tmp_path / "lines.txt"), tmp_path / "none", config=config, run=run)


@pytest.mark.one_of_each("roberta")
@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "xlm_roberta"])
def test_lines_alone_adapt_an_encoder(family: str, tmp_path: Path) -> None:
    model = tiny_adaptation.write_encoder(tmp_path / family, family, ())
    text = tiny_adaptation.write_lines(tmp_path / "lines.txt", 40)
    arguments = [f"--model={model}", f"--text={text}", "--steps=1", f"--max-length={MAX_LENGTH}"]
    assert cli.main(["pretrain", "--objective=mlm", *arguments, f"--output={tmp_path / 'run'}"]) == 0
    assert {key for line in log_of(tmp_path / "run") for key in line if "next_sentence" in key} == set()
    adapted = pb.from_pretrained(tmp_path / "run" / "model")
    assert [task.kind for task in adapted.tasks] == ["masked_lm"]


@pytest.mark.nightly
def test_adapted_model_is_finetuned(finished: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("text,label\n" + "".join(f"the cat sat {n},{'ab'[n % 2]}\n" for n in range(20)), "utf-8")
    arguments = [f"--train-file={table}", f"--dev-file={table}", "--epochs=1", "--head-start=random"]
    arguments += [f"--max-length={MAX_LENGTH}", f"--output={tmp_path / 'tuned'}", "--contrastive-steps=0"]
    assert cli.main(["finetune", f"--model={finished}", *arguments]) == 0
    assert [task.kind for task in pb.from_pretrained(tmp_path / "tuned" / "model").tasks] == ["classification"]


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs `pretrain` with other values, and returns its one line."""
    model = tiny_adaptation.write_encoder(tmp_path / "bert", "bert")
    values = {"objective": "mlm", "model": model, "text": tiny_adaptation.write_lines(tmp_path / "lines.txt")}

    def run(**changes: Any) -> str:
        chosen = {**values, "max-length": MAX_LENGTH, "output": tmp_path / "run", **changes}
        capsys.readouterr()
        code = cli.main(["pretrain", *(f"--{name}={value}" for name, value in chosen.items() if value is not None)])
        error = capsys.readouterr().err.splitlines()
        assert code == 2 and not (tmp_path / "run").exists()
        return error[-1]

    return run


def test_bad_texts_are_refused(refused: Any, tmp_path: Path) -> None:
    empty, signs, few = (tmp_path / name for name in ("empty.txt", "signs.txt", "few.txt"))
    empty.write_bytes(b"")
    signs.write_text("...\n\n— !\n", "utf-8")
    few.write_text("the cat\n\nthe mat\n", "utf-8")
    for path in (empty, signs):
        assert f"{path}: the text must have at least one paragraph with words" in refused(text=path)
        assert "must have at least one paragraph with words" in refused(**{"dev-text": path})
    message = refused(text=few)
    assert "one in 20 lines needs at least 20 lines with words; received 2; lower --dev-every, or give" in message
    assert "has every text; none is left for training" in refused(text=few, **{"dev-text": few})
    assert "there is no such file or folder" in refused(text=tmp_path / "none.txt")


def test_contradictions_are_refused(refused: Any, tmp_path: Path) -> None:
    data = tiny_pretraining.write_data(tmp_path / "data", documents=9)
    text = tmp_path / "lines.txt"
    assert f"--data is not for --objective=mlm; received {data}; leave it out" in refused(data=data)
    assert "--text is required for --objective=mlm; received none" in refused(text=None)
    message = refused(objective="mlm-nsp", data=data, **{"max-length": None})
    assert f"--text is not for --objective=mlm-nsp; received {text}; pass --objective=mlm" in message
    message = refused(objective="mlm-nsp", data=data, text=None)
    assert re.search("max_length is for plain text with --objective=mlm; received 13 for examples", message)
    assert "--dev-text replaces --dev-every" in refused(**{"dev-text": text, "dev-every": 5})
    assert "the duration is steps or epochs; received 3 and 2; leave out one" in refused(steps=3, epochs=2)
    assert "several --seeds need --dev-text or --dev-every" in refused(**{"dev-every": 0, "seeds": "1,2"})
    assert "texts of 18 tokens; the model has 17 positions" in refused(**{"max-length": 18})
    assert "needs a model with a tokenizer; received bert_base_uncased without" in refused(model="bert_base_uncased")
    (tmp_path / "bert" / "vocab.txt").unlink()
    assert "without a vocabulary; give a model directory" in refused()


def test_python_calls_name_the_objective(tmp_path: Path) -> None:
    model = tiny_adaptation.write_encoder(tmp_path / "bert", "bert")
    text = pb.data.text(tiny_adaptation.write_lines(tmp_path / "lines.txt"))
    with pytest.raises(UserError, match="plain text is for objective='mlm'; received mlm-nsp for .*lines.txt; pass it"):
        pb.pretrain(model, text, tmp_path / "run")
    data = PretrainingData.open(tiny_pretraining.write_data(tmp_path / "data", documents=9))
    with pytest.raises(UserError, match="objective='mlm' reads plain text; received examples of pretrain-data in"):
        pb.pretrain(model, data, tmp_path / "run", config=PretrainConfig(objective="mlm"))
    with pytest.raises(UserError, match="distillation on plain text has no dev part; received .*dev.txt"):
        dev = tiny_adaptation.write_lines(tmp_path / "dev.txt", 9)
        method = pb.TinyBERT(general=True) if hasattr(pb.TinyBERT, "general") else pb.TinyBERT()
        pb.distill(model, pb.data.text(tmp_path / "lines.txt", dev), tmp_path / "run", teacher=model, method=method)
