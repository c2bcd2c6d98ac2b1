"""Tiny networks of five families: do their int8 bundles pass the gate, and can two teach a BERT with other tokens?

Networks of ELECTRA, CamemBERT, ALBERT, DeBERTa-v3 and ModernBERT start from random weights, 128 wide. Except for
ELECTRA's, their tokenizers are trained on the same sentences. Each network is fine-tuned on a table with 40,000
sentences of SST-2, and exported as `dynamic_wi8` through the gate, with SST-2's dev set. The DeBERTa and the ModernBERT
then teach a student with three layers of all-MiniLM and its WordPiece. Another student learns the labels of the same
table. The dev set tells how often each answers like the teacher. The teachers are poor, since nothing was pretrained:
the study is about learning from another tokenizer.

    python -m studies families/teachers
"""

from __future__ import annotations

import csv
import io
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import pocketbert as pb
from pocketbert.configs import EncoderConfig, RelativeConfig
from pocketbert.data.assets import minilm
from pocketbert.data.examples import Examples
from pocketbert.data.task_data import TaskData
from pocketbert.presets import PRESETS
from pocketbert.progress import log_info
from pocketbert.tasks.predictor import model_predictor
from pocketbert_bench import accuracy, results
from pocketbert_bench.host import bench_bundles
from studies.glue_examples import majority_label_metrics, task_examples

EXAMPLES, EPOCHS = 40_000, 3
LEAST_AGREEMENT = 0.85
RECIPE = "dynamic_wi8"
# They teach.
TEACHERS = ("DeBERTa-v3", "ModernBERT")
LABELS = ("negative", "positive")
_QUICK_EXAMPLES = 640
_LENGTH, _LAYERS, _TOKENS, _WIDTH, _HEADS = 48, (1, 3, 5), 4000, 128, 4
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# Options of sentencepiece for a layout.
_UNIGRAM: dict[str, dict[str, Any]] = {
    "camembert": {},
    "albert": {
        **{"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1},
        "control_symbols": "[CLS],[SEP],[MASK]",
        "user_defined_symbols": [*'()"-.–£€'],
    },
    "deberta": {
        **{"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3},
        **{"pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"},
    },
}


def run(quick: bool) -> dict[str, Any]:
    """Scores networks, bundles and students, and compares their answers."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = _table(folder, _QUICK_EXAMPLES if quick else EXAMPLES)
        assert isinstance(data.train, Examples) and isinstance(data.dev, Examples)
        majority = majority_label_metrics(("accuracy",), data.train, data.dev)["accuracy"]
        records = [_record("SST-2", "most frequent label", "", majority, data.dev)]
        notes, networks, bundles = [], {}, {}
        config = pb.FinetuneConfig(max_length=_LENGTH, epochs=EPOCHS, learning_rate=1e-3)
        for family, write in NETWORKS.items():
            trained = pb.finetune(
                write(data.train.texts, folder / family), data, folder / f"{family}-run", config=config
            )
            networks[family] = Path(trained.model_directory)
            path = folder / f"{family}-bundle"
            bundles[family] = pb.export(trained.model, path, recipe=RECIPE, lengths=(_LENGTH,), examples=data)
            records += _scored(family, "network", trained.model, bundles[family], data.dev)
            notes.append(_gate_note(family, records[-2].value, majority, bundles[family], trained.model.config))
            log_info(notes[-1])
        student = _student(folder / "student")
        config = pb.FinetuneConfig(max_length=_LENGTH, epochs=EPOCHS)
        alone = pb.finetune(student, data, folder / "alone", config=config).model
        records.append(_scored("SST-2", "student of the labels", alone, None, data.dev)[0])
        for family in TEACHERS:
            distilled = pb.distill(
                student, data, folder / f"{family}-student", teacher=networks[family], method=_predictions()
            )
            path = folder / f"{family}-student-bundle"
            bundle = pb.export(distilled.model, path, recipe=RECIPE, lengths=(_LENGTH,), examples=data)
            records += _scored(family, "its student", distilled.model, bundle, data.dev)
            notes.append(_agreement_note(family, networks[family], distilled.model, bundle, alone, data.dev))
            log_info(notes[-1])
            bundles[f"{family}'s student"] = bundle
        names = {bundle.directory: family for family, bundle in bundles.items()}
        measured = bench_bundles(list(names), quick=quick, weights="trained", names=names, labels=names)
    return results.to_json(
        results.result_file(
            "teachers of other families",
            quick=quick,
            accuracies=records,
            measurements=measured.measurements,
            notes=notes,
        )
    )


def _table(folder: Path, count: int) -> TaskData:
    """Writes sentences of SST-2 as tables, and reads them."""
    paths = {}
    train, dev = task_examples("sst2", count)
    for name, examples in (("train", train), ("dev", dev)):
        assert examples.labels is not None
        paths[name] = folder / f"{name}.csv"
        with paths[name].open("w", encoding="utf-8", newline="") as stream:
            rows = csv.writer(stream)
            rows.writerow(["text", "label"])
            rows.writerows(zip(examples.texts, (LABELS[label] for label in examples.labels), strict=True))
    return pb.data.table(paths["train"], dev=paths["dev"])


def _predictions() -> pb.TinyBERT:
    return pb.TinyBERT(
        max_length=_LENGTH,
        without=("embedding", "transformer"),
        prediction_epochs=EPOCHS,
        prediction_learning_rate=1e-4,
    )


def _student(folder: Path) -> Path:
    """Writes an encoder with some layers of all-MiniLM, and its tokenizer."""
    whole = pb.from_pretrained(minilm(), headless=True)
    part = pb.from_preset(whole.config.replace(num_layers=len(_LAYERS)), tokenizer=whole.tokenizer)
    weights = whole.weights_by_path()
    for path, variable in part.weights_by_path().items():
        for number, layer in enumerate(_LAYERS):
            prefix = f"encoder.layers.{number}."
            if path.startswith(prefix):
                path = path.replace(prefix, f"encoder.layers.{layer - 1}.")
                break
        variable.assign(weights[path])
    part.save_pretrained(folder)
    return folder


def _electra(texts: Sequence[str], folder: Path) -> Path:
    tokenizer = pb.from_pretrained(minilm(), headless=True).tokenizer
    return _written("electra_base", 2, tokenizer, folder)


def _camembert(texts: Sequence[str], folder: Path) -> Path:
    return _written("camembert_base", 2, _unigram(texts, folder, "camembert", "sentencepiece.bpe.model"), folder)


def _albert(texts: Sequence[str], folder: Path) -> Path:
    tokenizer = _unigram(texts, folder, "albert", "spiece.model")
    return _written("albert_base", 2, tokenizer, folder, embedding_size=64)


def _deberta(texts: Sequence[str], folder: Path) -> Path:
    tokenizer = _unigram(texts, folder, "deberta", "spm.model")
    return _written("deberta_v3_xsmall", 3, tokenizer, folder, relative=RelativeConfig(buckets=32, max_distance=64))


def _modernbert(texts: Sequence[str], folder: Path) -> Path:
    """A gated network with two thirds of the usual inner width has as many weights."""
    return _written("modernbert_base", 4, _byte_bpe(texts, folder), folder, intermediate_size=8 * _WIDTH // 3)


# Family → its network with random weights and a tokenizer for texts; returns a model directory.
NETWORKS: dict[str, Callable[[Sequence[str], Path], Path]] = {
    "ELECTRA": _electra,
    "CamemBERT": _camembert,
    "ALBERT": _albert,
    "DeBERTa-v3": _deberta,
    "ModernBERT": _modernbert,
}


def _byte_bpe(texts: Sequence[str], folder: Path) -> pb.ByteBPETokenizer:
    """ModernBERT's tokenizer, trained on texts."""
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer

    core = Tokenizer(BPE())
    core.pre_tokenizer = ByteLevel(add_prefix_space=False)
    trainer = BpeTrainer(
        vocab_size=_TOKENS,
        special_tokens=list(_SPECIAL),
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    model = json.loads(core.to_str())["model"]
    folder.mkdir()
    vocab, merges = folder / "vocab.json", folder / "merges.txt"
    vocab.write_text(json.dumps(model["vocab"]), encoding="utf-8")
    lines = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    merges.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return pb.ByteBPETokenizer(vocab, merges, layout="modernbert")


def _unigram(texts: Sequence[str], folder: Path, layout: str, name: str) -> pb.UnigramTokenizer:
    """A sentencepiece model in a layout, trained on texts."""
    import sentencepiece

    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=stream,
        vocab_size=_TOKENS,
        hard_vocab_limit=False,
        minloglevel=2,
        **_UNIGRAM[layout],
    )
    folder.mkdir()
    (folder / name).write_bytes(stream.getvalue())
    return pb.UnigramTokenizer(folder / name, layout=layout)


def _written(preset: str, layers: int, tokenizer: Any, folder: Path, **fields: Any) -> Path:
    """Writes a small network with a preset's architecture."""
    sizes: dict[str, Any] = {
        "hidden_size": _WIDTH,
        "embedding_size": _WIDTH,
        "num_layers": layers,
        "num_attention_heads": _HEADS,
        "head_size": _WIDTH // _HEADS,
        "intermediate_size": 4 * _WIDTH,
        "max_position_embeddings": 128,
        "vocab_size": tokenizer.vocab_size,
        "pad_token_id": tokenizer.pad_token_id,
    }
    config = PRESETS[preset].config.replace(**{**sizes, **fields})
    pb.from_preset(config, tokenizer=tokenizer, seed=1).save_pretrained(folder / "model")
    return folder / "model"


def _gate_note(family: str, score: float, majority: float, bundle: pb.Bundle, config: EncoderConfig) -> str:
    """Points above the most frequent label, the gate's result, and parts that XNNPACK runs."""
    from ai_edge_litert.interpreter import Interpreter

    record = json.loads((bundle.directory / "verification.json").read_text(encoding="utf-8"))
    examples = record["examples"]["count"]
    interpreter = Interpreter(str(bundle.model_path))
    interpreter.allocate_tensors()
    parts = [entry for entry in interpreter._get_ops_details() if entry["op_name"] == "DELEGATE"]
    error = np.sqrt(score * (1 - score) / examples)
    passed = "passed" if record["passed"] else "FAILED"
    return (
        f"{family}: {100 * (score - majority):.1f} points above the most frequent label "
        f"({(score - majority) / error:.1f} standard errors); {RECIPE} {passed} the gate with "
        f"{examples} labelled texts; {len(parts)} XNNPACK parts for {config.num_layers} layers"
    )


def _agreement_note(
    family: str, teacher: Path, distilled: pb.Model, bundle: pb.Bundle, alone: pb.Model, dev: Examples
) -> str:
    labels = _labels(model_predictor(pb.from_pretrained(teacher), max_length=_LENGTH), dev)
    student, int8, other = (
        100 * float(np.mean(_labels(predictor, dev) == labels))
        for predictor in (
            model_predictor(distilled, max_length=_LENGTH),
            bundle.predictor(),
            model_predictor(alone, max_length=_LENGTH),
        )
    )
    met = min(student, int8) >= 100 * LEAST_AGREEMENT and min(student, int8) > other
    return (
        f"{family}: answers like the teacher's: student {student:.1f} %, its int8 bundle {int8:.1f} %, student of the "
        f"labels {other:.1f} %; the target is at least {100 * LEAST_AGREEMENT:.0f} %, and more than without the "
        f"teacher: {'met' if met else 'MISSED'}"
    )


def _labels(predictor: Any, dev: Examples) -> np.ndarray:
    return predictor.logits(dev.texts).argmax(axis=1)


def _scored(
    label: str, model: str, network: pb.Model, bundle: pb.Bundle | None, dev: Examples
) -> list[results.Accuracy]:
    """Accuracies of a network, and of its bundle."""
    predictors = {"float32": model_predictor(network, max_length=_LENGTH)}
    if bundle is not None:
        predictors[RECIPE] = bundle.predictor()
    return [
        _record(label, model, recipe, float(np.mean(_labels(predictor, dev) == dev.labels)), dev)
        for recipe, predictor in predictors.items()
    ]


def _record(label: str, model: str, recipe: str, value: float, dev: Examples) -> results.Accuracy:
    return accuracy.record(
        label=label,
        model=model,
        recipe=recipe,
        task="sst2",
        split="SST-2's dev set",
        metric="accuracy",
        value=value,
        examples=len(dev),
    )
