"""Tables of the comparisons with other libraries."""

from __future__ import annotations

from pocketbert_bench import results
from studies.closed import CLOSED, LAST_COMMIT, measured_at
from studies.runner import RESULTS
from studies.tables.render import cell, interval, page, table, target_cells

# Study and ratio → metric, baseline.
RATIOS = {
    ("against_transformers/latency", "latency mobilebert"): (
        "MobileBERT latency, int8, 128 tokens",
        "transformers (TF)",
    ),
    ("against_transformers/latency", "latency tinybert_4l_312d"): (
        "TinyBERT-4 latency, int8, 128 tokens",
        "transformers (TF)",
    ),
    ("against_transformers/latency", "latency minilmv2_6l_384d"): (
        "6x384 latency, int8, 128 tokens",
        "transformers (TF)",
    ),
    ("ablations/lengths", "three lengths against fixed 128"): (
        "Inference speed on SST-2, lengths 32, 64 and 128",
        "length 128 only",
    ),
    ("against_transformers/training", "training step, transformers TF"): ("Training step speed", "transformers (TF)"),
    ("against_transformers/training", "training step, PyTorch eager"): ("Training step speed", "PyTorch, eager"),
    ("against_transformers/training", "training step, PyTorch compiled"): ("Training step speed", "PyTorch, compiled"),
    ("against_transformers/training", "training step, PyTorch eager, bfloat16"): (
        "Training step speed, bfloat16",
        "PyTorch, eager",
    ),
    ("against_transformers/training", "training step, PyTorch compiled, bfloat16"): (
        "Training step speed, bfloat16",
        "PyTorch, compiled",
    ),
    ("ablations/bucketed_training", "bucketed training"): ("Training speed on SST-2, bucketed", "padded to 128"),
    ("against_transformers/tokenizer", "tokenizer ids, SST-2"): (
        "Tokenizer speed, SST-2",
        "transformers' fast tokenizer",
    ),
    ("against_transformers/tokenizer", "tokenizer ids, Wikipedia paragraphs"): (
        "Tokenizer speed, Wikipedia",
        "transformers' fast tokenizer",
    ),
    ("java_tokenizers", "tokenizing, byte_bpe"): ("Java byte-level BPE, time for 2,000 characters", "Python"),
    ("java_tokenizers", "tokenizing, unigram"): ("Java unigram, time for 2,000 characters", "Python"),
    ("against_transformers/distillation", "distillation step, live against PyTorch eager"): (
        "Distillation step speed",
        "PyTorch, eager",
    ),
    ("against_transformers/distillation", "distillation step, live against PyTorch compiled"): (
        "Distillation step speed",
        "PyTorch, compiled",
    ),
    ("against_transformers/distillation", "distillation step, live, bfloat16 against PyTorch eager, bfloat16"): (
        "Distillation step speed, bfloat16",
        "PyTorch, eager",
    ),
    ("against_transformers/distillation", "distillation step, live, bfloat16 against PyTorch compiled, bfloat16"): (
        "Distillation step speed, bfloat16",
        "PyTorch, compiled",
    ),
    ("against_transformers/distillation", "distillation step, stored against live"): (
        "Distillation step speed, teacher cache",
        "live teacher",
    ),
    ("against_transformers/distillation", "store, bytes a token"): ("Teacher cache size", "float16 values alone"),
    ("against_transformers/distillation", "stored distillation, real lengths"): (
        "Distillation speed from the cache, bucketed",
        "padded to 128",
    ),
    ("tinybert/augmentation", "augmentation, default, against the authors' way"): (
        "Augmentation speed",
        "one network call per word",
    ),
    ("tinybert/augmentation", "augmentation, the same input pair, against the authors' way"): (
        "Augmentation speed, the authors' input",
        "one network call per word",
    ),
    ("tinybert/augmentation", "augmentation, the same input, one call per word with one position's logits"): (
        "Augmentation speed, our input",
        "one call per word, one position's logits",
    ),
    ("against_tf_models/pretraining_data", "pretraining data against tf-models-official"): (
        "Pretraining data, 2 processes",
        "tf-models-official",
    ),
    ("against_transformers/question_windows", "question windows, tf-models-official"): (
        "SQuAD preprocessing, 1 thread",
        "tf-models-official",
    ),
    ("against_transformers/question_windows", "question windows, transformers, Python"): (
        "SQuAD preprocessing, 1 thread",
        "transformers, Python",
    ),
    ("against_transformers/question_windows", "question windows, transformers, fast recipe"): (
        "SQuAD preprocessing, 1 thread",
        "transformers, fast",
    ),
    ("mobilebert/training", "masked LM, pocketbert against tf-models-official"): (
        "MobileBERT training step speed",
        "tf-models-official",
    ),
    ("mobilebert/training", "transfer, pocketbert against tf-models-official"): (
        "MobileBERT transfer step speed, 128 tokens",
        "tf-models-official",
    ),
    (
        "mobilebert/training",
        "transfer, pocketbert, teacher in bfloat16 against tf-models-official, teacher without dropout",
    ): ("MobileBERT transfer step speed, bfloat16 teacher", "tf-models-official, float32"),
    ("mobilebert/text", "transfer on text, pocketbert against tf-models-official, teacher without dropout"): (
        "MobileBERT transfer step speed, Wikipedia, bucketed",
        "tf-models-official, padded to 512",
    ),
    ("mobilebert/memory", "peak memory, length 128"): (
        "MobileBERT peak memory with transfer, 8 x 128 tokens",
        "both networks without transfer",
    ),
    ("mobilebert/memory", "peak memory, length 512"): (
        "MobileBERT peak memory with transfer, 2 x 512 tokens",
        "both networks without transfer",
    ),
    ("minilmv2/relations", "memory of the loss, in chunks against as a whole"): (
        "MiniLMv2 loss, peak memory, 8 x 512 tokens",
        "all relations in memory",
    ),
    ("minilmv2/relations", "time of the loss, in chunks against as a whole"): (
        "MiniLMv2 loss, time",
        "all relations in memory",
    ),
    ("minilmv2/relations", "memory of the step, in chunks against as a whole"): (
        "MiniLMv2 step, peak memory",
        "all relations in memory",
    ),
    ("minilmv2/relations", "step of MiniLMv2, against PyTorch eager"): (
        "MiniLMv2 step speed, 8 x 512 tokens",
        "PyTorch, eager",
    ),
    ("minilmv2/relations", "time of bert_base_uncased up to layer 12, against all layers"): (
        "MiniLMv2 teacher's time, BERT-base, layer 12",
        "all of the teacher",
    ),
    ("minilmv2/relations", "time of bert_large_uncased up to layer 19, against all layers"): (
        "MiniLMv2 teacher's time, 24 layers, layer 19",
        "all of the teacher",
    ),
    ("minilmv2/relations", "time of bert_large_uncased up to layer 21, against all layers"): (
        "MiniLMv2 teacher's time, BERT-large, layer 21",
        "all of the teacher",
    ),
    ("efficientbert/supernet_step", "supernet step, 32 x 128"): (
        "EfficientBERT supernet step, time, 32 x 128 tokens",
        "the candidate alone",
    ),
    ("efficientbert/supernet_step", "supernet step, 16 x 64"): (
        "EfficientBERT supernet step, time, 16 x 64 tokens",
        "the candidate alone",
    ),
    ("efficientbert/supernet_step", "new candidates per hour"): (
        "EfficientBERT, new candidates per hour in stage 3",
        "each one built and traced alone",
    ),
}


def text() -> str:
    """Ratios, accuracies, and the commits of closed measurements."""
    contents = {name: results.read(RESULTS / f"{name}.json") for name in dict.fromkeys(study for study, _ in RATIOS)}
    ratios = {(study, ratio.name): ratio for study, content in contents.items() for ratio in content.ratios}
    rows = [(*cells, interval(ratios[key]), *target_cells(ratios[key])) for key, cells in RATIOS.items()]
    sst2 = results.read(RESULTS / "tasks" / "sst2.json").accuracies
    formats = [
        ("float model" if record.label == "model" else record.label, f"{100 * record.value:.2f} %") for record in sst2
    ]
    models: dict[str, list[float]] = {}
    for record in results.read(RESULTS / "quickstart_accuracy.json").accuracies:
        models.setdefault(record.model, []).append(record.value)
    quickstart = [(model, f"{cell(values, 3, digits='.2f')} %") for model, values in models.items()]
    # It has no table: docs/how-to/export.md names its file.
    optimizations = "ablations/graph_optimizations"
    contents[optimizations] = results.read(RESULTS / f"{optimizations}.json")
    studies = [
        (f"`{name}`", measured_at(content), "closed" if name in CLOSED else "") for name, content in contents.items()
    ]
    return page(
        table(["Metric", "Baseline", ">Ours ÷ baseline (95 % CI)", ">Target", "Met"], rows),
        ["Accuracy of the 6x384 network on the SST-2 development set:"],
        table(["Format", ">Accuracy"], formats),
        ["Accuracy of `pocketbert quickstart --full`, three seeds:"],
        table(["Model", ">Accuracy"], quickstart),
        [
            "To repeat a study, run `PYTHONPATH=benchmarks python -m studies STUDY`; for a closed one, check out "
            f"commit `{LAST_COMMIT}` first."
        ],
        table(["Study", "Measured at commit", "Code"], studies),
    )
