"""Small valid models, configurations and records for `sample_files.READERS`, and what reads them."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import sample_tokenizers
from sample_tokenizers import TEXTS, write

EXPRESSION = "tanh(linear4_2(gelu(linear4_2(x))))"
CANDIDATE: dict[str, Any] = {
    "stage": 1, "index": 0, "genotype": [EXPRESSION, EXPRESSION], "costs": {"parameters": 8123.0}, "score": 0.75,
    "metrics": {"accuracy": 0.75}, "failure": "",
}  # fmt: skip
RUN_TOML = """# pocketbert finetune --config=FILE repeats this run.
command = "finetune"

# Task
train-file = "train.csv"
text-column = "review"
label-column = ["stars"]
separator = ","

# Training
model = "bert_base_uncased"
epochs = 3
learning-rate = 2e-05
seeds = [1, 2]
output = "runs/reviews"
class-weights = "balanced"
"""


def command(name: str, *arguments: str) -> object:
    """Runs a command as the command line does, without catching `UserError`; what it prints is dropped."""
    from pocketbert import cli

    with contextlib.redirect_stdout(io.StringIO()):
        return cli._run(name, arguments)


def _make_embedding(folder: Path) -> Path:
    """A directory of sentence-transformers with a dense layer and prompts."""
    import tiny_finetuning

    path = tiny_finetuning.write_model(folder / "model")
    width, modules = tiny_finetuning.CONFIG.hidden_size, []
    for index, kind in enumerate(("Transformer", "Pooling", "Dense", "Normalize")):
        module_folder = f"{index}_{kind}" if index else ""
        (path / module_folder).mkdir(exist_ok=True)
        modules.append(
            {"idx": index, "name": str(index), "path": module_folder, "type": f"sentence_transformers.models.{kind}"}
        )
    write(path / "modules.json", modules)
    write(path / "1_Pooling/config.json", {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True})
    write(path / "sentence_bert_config.json", {"max_seq_length": 9, "do_lower_case": False})
    prompts = {"prompts": {"query": "find: ", "passage": ""}, "default_prompt_name": "query"}
    write(path / "config_sentence_transformers.json", {**prompts, "similarity_fn_name": "cosine", "__version__": {}})
    activation = "torch.nn.modules.activation.Tanh"
    write(
        path / "2_Dense/config.json",
        {"in_features": width, "out_features": 3, "bias": True, "activation_function": activation},
    )
    _save(path / "2_Dense/model.safetensors", {"linear.weight": np.ones((3, width)), "linear.bias": np.ones(3)})
    return path


def _save(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    from safetensors.numpy import save_file

    save_file({name: array.astype(np.float32) for name, array in arrays.items()}, path, metadata={"format": "pt"})


def _make_cross_encoder(folder: Path) -> Path:
    shutil.copytree(Path(__file__).parents[1] / "goldens" / "huggingface" / "bert_classifier", folder / "model")
    path = folder / "model"
    content = json.loads((path / "config.json").read_text("utf-8"))
    write(
        path / "config.json", content | {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}
    )
    write(
        path / "modules.json", [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    )
    write(path / "config_sentence_transformers.json", {"model_type": "CrossEncoder", "prompts": {}})
    return path


def _make_shards(folder: Path) -> Path:
    import tiny_finetuning
    from safetensors.numpy import load_file

    path = tiny_finetuning.write_model(folder / "model")
    tensors = load_file(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    places = {name: f"model-0000{1 + index % 2}-of-00002.safetensors" for index, name in enumerate(tensors)}
    for file in sorted({*places.values()}):
        _save(path / file, {name: tensors[name] for name, file_name in places.items() if file_name == file})
    write(path / "model.safetensors.index.json", {"metadata": {"total_size": 1}, "weight_map": places})
    return path


def _make_keras_weights(folder: Path) -> Path:
    """Like tf_model.h5 of transformers' TensorFlow classes."""
    import h5py
    import tiny_finetuning
    from safetensors.numpy import load_file

    path = tiny_finetuning.write_model(folder / "model")
    with h5py.File(path / "tf_model.h5", "w") as file:
        for name, array in load_file(path / "model.safetensors").items():
            parts = name.replace(".weight", ".kernel" if array.ndim == 2 and "embeddings" not in name else ".weight")
            file[f"bert/{parts.replace('.', '/')}:0"] = array.T if parts.endswith("kernel") else array
    (path / "model.safetensors").unlink()
    return path


def _directory(path: Path) -> object:
    from pocketbert.checkpoints.directory import read_directory
    from pocketbert.tokenizers.opening import open_tokenizer

    directory = read_directory(path)
    return directory.vocabulary and open_tokenizer(directory.vocabulary).tokenize(TEXTS)


def _family(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        source = Path(__file__).parents[1] / "goldens" / "huggingface" / name
        shutil.copyfile(source / "config.json", folder / "config.json")
        return folder / "config.json"

    return make


def _make_expressions(folder: Path) -> Path:
    from pocketbert.checkpoints.huggingface import write_config
    from pocketbert.presets import preset

    write(folder / "config.json", write_config(preset("efficientbert_tiny").config, ()))
    return folder / "config.json"


def _start(path: Path) -> object:
    from pocketbert.training.initialization import plan_model

    return plan_model(path).config


def _expression(path: Path) -> object:
    from pocketbert.feedforward import parse

    return str(parse(path.read_bytes().decode("utf-8", "surrogateescape").strip()))


def _make_journal(folder: Path) -> Path:
    from pocketbert.search.journal import Candidate, SearchJournal, StageEnd
    from pocketbert_runtime.json_reading import from_json

    path = folder / "journal.jsonl"
    candidate = from_json(Candidate, CANDIDATE, "")
    failed = dataclasses.replace(candidate, index=1, score=None, metrics={}, failure="the loss is not finite")
    second = dataclasses.replace(candidate, stage=2, costs={"parameters": 7})
    SearchJournal(path).add(candidate, failed, StageEnd(1, "candidates"), second)
    return path


def _journal(path: Path) -> object:
    from pocketbert.search.config import STAGES
    from pocketbert.search.journal import SearchJournal, front
    from pocketbert.search.report import page
    from pocketbert.trials.scores import best

    journal = SearchJournal(path)
    scored = [candidate for candidate in journal.comparable if candidate.score is not None]
    if not scored:
        return None
    winner = best(journal.comparable)
    summary = {name: getattr(winner, name) for name in ("stage", "index", "genotype", "score", "costs")}
    cost = next(iter(winner.costs), "")
    if any(cost not in candidate.costs for candidate in journal.comparable):
        return None
    result = {"main_metric": "accuracy", "cost": cost, "failed": 0, "best": summary, "front": [], "retrained": []}
    assert front(journal.comparable, cost)
    return page(journal, result | {"kendall_tau": None}, list(STAGES), "evolution")


def _make_run(folder: Path) -> Path:
    """What a foreign tool may have left beside a model directory."""
    outcome = {"metric": "accuracy", "score": 0.5, "teacher": 0.75, "baselines": [{"name": "constant", "score": 0.5}]}
    outcome |= {"examples": 4, "interval": [0.25, 0.75], "warnings": [], "verdict": "good", "headline": "accuracy 0.5"}
    digest = "5e" * 32
    write(folder / "run.json", {"model_sha256": digest, "dev_sha256": digest, "seed": 1, "outcome": outcome})
    write(folder / "result.json", {"main_metric": "accuracy", "metrics": {"accuracy": 0.5}, "outcome": outcome})
    write(folder / "run.toml", RUN_TOML)
    (folder / "model").mkdir()
    return folder


def _run(path: Path) -> object:
    from types import SimpleNamespace

    from pocketbert.trials.jobs import read_result
    from pocketbert_export.bundles.model_card import CardOptions, card_facts
    from pocketbert_export.commands.stored_columns import stored_columns
    from pocketbert_export.verification.outcomes import recorded

    read_result(path / "result.json")
    stored_columns(path / "model")
    card_facts(CardOptions(), path / "model")
    data: Any = SimpleNamespace(identity="5e" * 32)
    scores: Any = SimpleNamespace(main_metric="accuracy", baseline=None)
    return recorded(path, data, scores)


def _make_config(folder: Path) -> Path:
    write(folder / "run.toml", RUN_TOML)
    return folder / "run.toml"


def _config(path: Path) -> object:
    from pocketbert.commands.command_line import parse

    options = parse("finetune", [f"--config={path}"])
    options.check()
    return options.to_toml()


def _make_exported(folder: Path) -> Path:
    """A bundle with verification and an outcome."""
    import tiny_finetuning

    from pocketbert_export.exporter import export

    model = tiny_finetuning.write_model(folder / "model")
    export(model, folder / "bundle", recipe="float32", lengths=(7,))
    for path in (model, folder / "model-vocab.txt"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return folder / "bundle"


def _make_results(folder: Path) -> Path:
    """A committed result file with one of its measurements."""
    committed = Path(__file__).parents[2] / "benchmarks" / "studies" / "results" / "mobilebert" / "variants.json"
    content = json.loads(committed.read_text("utf-8"))
    content["measurements"] = content["measurements"][:1]
    return write(folder / "result.json", content)


def _report(path: Path) -> object:
    return command("report", str(path), f"--output={path.with_name('page')}", "--overwrite")


def _card(path: Path) -> object:
    return command("card", str(path))


def _make_tf1(folder: Path) -> Path:
    import tensorflow as tf
    import tiny

    from pocketbert.checkpoints.name_maps import tensor_specs
    from pocketbert.checkpoints.tf1 import variable_name

    config = tiny.BERT.replace(activation="gelu_tanh")
    path = folder / "tf1"
    path.mkdir()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for weight, spec in tensor_specs(config).items():
            name = variable_name(config, weight, spec)
            tf.compat.v1.get_variable(name, initializer=np.zeros(spec.canonical_shape, np.float32))
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver().save(session, str(path / "bert_model.ckpt"), write_meta_graph=False)
    keys = {"num_hidden_layers": config.num_layers, "hidden_act": "gelu"}
    names = "vocab_size hidden_size num_attention_heads intermediate_size max_position_embeddings type_vocab_size"
    keys |= {name: getattr(config, name) for name in names.split()}
    keys |= {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "initializer_range": 0.02}
    write(path / "bert_config.json", keys)
    write(path / "vocab.txt", "".join(f"piece{index}\n" for index in range(config.vocab_size)))
    return path


def _tf1(path: Path) -> object:
    from pocketbert.checkpoints.tf1 import read_tf1

    return read_tf1(path)


def _make_model_garden(folder: Path) -> Path:
    import tiny

    from pocketbert.checkpoints.model_garden import write_model_garden
    from pocketbert.checkpoints.name_maps import tensor_specs

    config = tiny.BERT.replace(activation="gelu_tanh", num_layers=1)
    config = config.replace(layer_norm_eps=1e-12, embedding_layer_norm_eps=1e-12)
    tensors = {path: np.ones(spec.canonical_shape, np.float32) for path, spec in tensor_specs(config).items()}
    write_model_garden(folder / "garden", config, tensors)
    return folder / "garden"


def _model_garden(path: Path) -> object:
    from pocketbert.checkpoints.model_garden import read_model_garden

    return read_model_garden(path)


def _make_params(folder: Path) -> Path:
    path = _make_model_garden(folder)
    for file in path.iterdir():
        if file.suffix != ".yaml":
            file.unlink()
    text = (path / "params.yaml").read_text("utf-8")
    (path / "params.yaml").write_text(
        "task:\n  model:\n    encoder:\n" + "".join(f"      {x}\n" for x in text.splitlines())
    )
    return path


def _params(path: Path) -> object:
    from pocketbert.checkpoints.model_garden import read_model_garden
    from pocketbert.errors import UserError

    try:
        return read_model_garden(path)
    except UserError as error:
        # There is no checkpoint beside the parameters.
        if "must hold one checkpoint" not in str(error):
            raise
        return None


def _make_log(folder: Path) -> Path:
    lines = [{"step": step, "split": "dev", "stage": "", "loss": 3.0 / step, "accuracy": 0.5} for step in (1, 2, 3)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return folder


def _log(path: Path) -> object:
    from pocketbert.training.outcome_notes import falling_notes
    from pocketbert.training.stage_log import MetricsLog

    falling_notes(path, "")
    with MetricsLog(path, (path / "metrics.jsonl").stat().st_size):
        return None


# Name → what makes a valid file or folder in an empty folder, and what reads it.
SAMPLES: dict[str, tuple[Callable[[Path], Path], Callable[[Path], object]]] = {
    **sample_tokenizers.SAMPLES,
    "sentence-transformer": (_make_embedding, _directory),
    "cross-encoder": (_make_cross_encoder, _directory),
    "shards": (_make_shards, _directory),
    "keras-weights": (_make_keras_weights, _directory),
    "roberta-config": (_family("roberta"), _start),
    "mobilebert-config": (_family("mobilebert"), _start),
    "expressions-config": (_make_expressions, _start),
    "expression": (lambda folder: write(folder / "expression.txt", EXPRESSION), _expression),
    "search-journal": (_make_journal, _journal),
    "run-beside-model": (_make_run, _run),
    "metrics-log": (_make_log, _log),
    "config-option": (_make_config, _config),
    "card": (_make_exported, _card),
    "report": (_make_results, _report),
    "tf1-checkpoint": (_make_tf1, _tf1),
    "model-garden": (_make_model_garden, _model_garden),
    "model-garden-parameters": (_make_params, _params),
}
