"""Jobs of `mobilebert.accuracy`.

The result of a scoring job has `scores`: for each set of examples and each recipe `split`, `recipe`, `metrics` and
`examples`. The best value of every score is 1: a loss is stored as exp(−nats), the geometric mean of the correct
answer's probability.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pocketbert import files
from pocketbert.configs import PRETRAINING_HEADS, TaskConfig
from pocketbert.data.assets import minilm
from pocketbert.data.readers.glue import GLUE
from pocketbert.errors import TrainingFailed
from studies.glue_examples import majority_label_metrics, task_parts
from studies.jobs import result_of
from studies.mobilebert import recipe as setting
from studies.mobilebert.recipe import BATCH_SIZE, STUDENT, TASK_LENGTH, TEACHER, MobileBERTVariant
from studies.quantized import QUANTIZED, export_quantized
from studies.shared_data import shared_data
from studies.sweep import NOBODY, TRAINED, job_name

if TYPE_CHECKING:
    from pocketbert.data.pretraining.reader import PretrainingData
    from pocketbert.model import Model

DEV_TEXT = "dev articles"
WORDS, NEXT, LIKELIHOOD = "masked_lm_accuracy", "next_sentence_accuracy", "exp(-masked-LM loss)"
NEARNESS = "exp(-attention divergence)"
# Further scores of models: masked LM, and distance of the attention from the teacher's.
TEXT, ATTENTION = "enwiki2015", "attention"
STUDENT_MODEL, MAJORITY = "MobileBERT 6x256/64", "most frequent token or label"
# Names of jobs, which are also their folders.
DATA_JOB, TEACHER_JOB, CHECK_JOB = "data", "teacher", "check"
# A teacher must be better than token frequencies: at least this factor in masked-LM accuracy over the most frequent
# token, and at least this many nats below the frequencies' loss.
LEAST_TIMES, LEAST_NATS = 2.0, 0.5


def make_data(output: Path) -> dict[str, Any]:
    """Creates pretraining examples with dev articles; returns counts, and the SHA-256 of everything."""
    from pocketbert.data.pretraining.reader import PretrainingData
    from pocketbert.data.pretraining.run import write_pretraining_data
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

    counts = write_pretraining_data(
        shared_data(setting.TEXT_FILE),
        WordPieceTokenizer(minilm() / "vocab.txt", lowercase=True, special_tokens_in_text="text"),
        _data(output),
        setting.data_options(),
        shards=1,
        overwrite=True,
    )
    return {**counts.train, "identity": PretrainingData.open(_data(output)).identity}


def score_majority(task: str, _seed: None, output: Path) -> dict[str, Any]:
    """Scores the most frequent token and next-sentence label on text, or the most frequent label on a task."""
    if task == TEXT:
        return {"scores": [_scores(_counted(_data(output)), _evaluated())]}
    train, _, dev = task_parts(task)
    names = GLUE[task].metrics
    scores = [
        _scores(majority_label_metrics(names, train, examples), len(examples), split) for split, examples in dev.items()
    ]
    return {"scores": scores}


def _counted(folder: Path) -> dict[str, float]:
    """Scores of counting: the most frequent token, the frequencies' loss, and the more frequent NSP label."""
    from pocketbert.data.pretraining.reader import PretrainingData

    words, sentences = _labels(PretrainingData.open(folder), setting.COUNTED_BATCHES)
    dev_tokens, dev_sentences = _labels(PretrainingData.open(folder / "dev"), setting.EVALUATION_BATCHES)
    # Add one to each count, so that no token has probability 0.
    counts = np.bincount(words, minlength=STUDENT.vocab_size) + 1
    nats = -np.log(counts / counts.sum())[dev_tokens].mean()
    metrics = {
        WORDS: (dev_tokens == counts.argmax()).mean(),
        NEXT: (dev_sentences == np.bincount(sentences).argmax()).mean(),
        LIKELIHOOD: math.exp(-nats),
    }
    return {name: float(value) for name, value in metrics.items()}


def _labels(data: PretrainingData, batches: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels of masked tokens and next sentences; for dev data the same as in evaluation."""
    plan = data.plan(batch_size=BATCH_SIZE, seed=0, epoch=0)[:batches]
    labels = [
        (batch["masked_lm_labels"].numpy().ravel(), batch["next_sentence_labels"].numpy())
        for batch in data.dataset(plan, seed=0, epoch=0)
    ]
    words, sentences = (np.concatenate(arrays) for arrays in zip(*labels, strict=True))
    return words[words >= 0], sentences


def pretrain_teacher(output: Path) -> str:
    """Pretrains the IB-BERT teacher; returns the SHA-256 of its weights."""
    from pocketbert.data.pretraining.reader import PretrainingData
    from pocketbert.training.pretrain import pretrain

    outcome = pretrain(
        TEACHER,
        PretrainingData.open(_data(output), _data(output) / "dev"),
        output / TEACHER_JOB,
        config=setting.teacher_options(),
        run=setting.run_options(setting.TEACHER_SEED),
    )
    files.write_json(output / TEACHER_JOB / "scores.json", _text_scores(outcome.metrics))
    return files.sha256(Path(outcome.model) / "model.safetensors")


def score_teacher(task: str, _seed: None, output: Path) -> dict[str, Any]:
    """The teacher's scores on dev text, or after fine-tuning on a task."""
    if task == TEXT:
        return {"scores": [json.loads((output / TEACHER_JOB / "scores.json").read_text(encoding="utf-8"))]}
    return _finetune_on(output / TEACHER_JOB / "finetuned" / task, output / TEACHER_JOB, task, setting.SEEDS[0])


def check_teacher(output: Path) -> dict[str, Any]:
    """Accepts a teacher that is good enough to learn from.

    Raises:
      TrainingFailed: the teacher is hardly better than token frequencies.
    """
    counting = result_of(output, job_name(NOBODY, MAJORITY, TEXT))["scores"][0]["metrics"]
    teacher = score_teacher(TEXT, None, output)["scores"][0]["metrics"]
    right, least = teacher[WORDS], LEAST_TIMES * counting[WORDS]
    nats, most = -math.log(teacher[LIKELIHOOD]), -math.log(counting[LIKELIHOOD]) - LEAST_NATS
    if right < least or nats > most:
        raise TrainingFailed(
            f"a teacher's masked-LM accuracy must be at least {least:.1%}, {LEAST_TIMES:g} times that of the most "
            f"frequent token, and its loss at most {most:.2f} nats, {LEAST_NATS:g} below token frequencies; "
            f"received {right:.1%} and {nats:.2f}; find a better rate, or take more steps"
        )
    return {"masked-LM accuracy": right, "nats": nats}


def copy_start(seed: int, output: Path) -> dict[str, Any]:
    """Makes a student with new layers and the teacher's embedding and heads, as in progressive transfer."""
    import pocketbert as pb
    from pocketbert.distillation.methods.mobilebert import MobileBERT

    student = _fresh_student(seed, output)
    MobileBERT().initialize(pb.from_pretrained(output / TEACHER_JOB / "model"), student)
    student.save_pretrained(output / start_name(seed) / "model", overwrite=True)
    return {}


def start_name(seed: int | None) -> str:
    """Name of the job that copies the teacher's embedding and heads into a student."""
    return f"copied-start/{seed}"


def score_student(variant: MobileBERTVariant, task: str, seed: int, output: Path) -> dict[str, Any]:
    """Makes a student and scores it on dev text; on a task, scores that student after fine-tuning.

    Args:
      variant: training of the student.
      task: a task, or `TEXT` to train, or `ATTENTION` to compare the attention with the teacher's.
      seed: seed of weights, order and masks.
      output: folder of the sweep.
    """
    student = output / job_name(STUDENT_MODEL, variant.label, TEXT, seed)
    if task == TEXT:
        return {"scores": [_make_student(variant, seed, student, output)]}
    if task == ATTENTION:
        nats = attention_divergence(output / TEACHER_JOB / "model", student / "model", _data(output) / "dev")
        return {"scores": [_scores({NEARNESS: math.exp(-nats)}, setting.DIVERGENCE_BATCHES * BATCH_SIZE)]}
    return _finetune_on(output / job_name(STUDENT_MODEL, variant.label, task, seed), student, task, seed)


def _make_student(variant: MobileBERTVariant, seed: int, folder: Path, output: Path) -> dict[str, Any]:
    from pocketbert.data.pretraining.reader import PretrainingData
    from pocketbert.distillation.run import distill
    from pocketbert.training.pretraining_run_data import PretrainingEvaluator

    data = PretrainingData.open(_data(output), _data(output) / "dev")
    if not variant.trained:
        student = _fresh_student(seed, output)
        student.save_pretrained(folder / "model", overwrite=True)
        dev = PretrainingData.open(_data(output) / "dev")
        evaluator = PretrainingEvaluator(student, dev, setting.EVALUATION_BATCHES)
        return _text_scores(evaluator.metrics("before training"))
    outcome = distill(
        output / start_name(seed) / "model" if variant.copied else STUDENT,
        data,
        folder,
        teacher=output / TEACHER_JOB / "model" if variant.taught else None,
        method=setting.student_options(variant),
        run=setting.run_options(seed, taught=variant.taught),
    )
    return _text_scores(outcome.metrics)


def _fresh_student(seed: int, output: Path) -> Model:
    """Weights at the start of every student with this seed."""
    import pocketbert as pb
    from pocketbert.data.pretraining.reader import PretrainingData
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

    data = PretrainingData.open(_data(output), verify=False)
    heads = [TaskConfig(kind=kind, dropout=0.0) for kind in PRETRAINING_HEADS]
    return pb.from_preset(STUDENT, heads, WordPieceTokenizer(data.vocab_path, lowercase=data.lowercase), seed=seed)


def attention_divergence(teacher_directory: Path, student_directory: Path, data: Path) -> float:
    """KL of the student's attention from the teacher's in nats, mean over layers, heads and dev tokens."""
    import tensorflow as tf

    import pocketbert as pb
    from pocketbert.data.pretraining.reader import PretrainingData
    from pocketbert.distillation.losses import attention_transfer

    teacher, student = pb.from_pretrained(teacher_directory), pb.from_pretrained(student_directory)
    examples = PretrainingData.open(data)
    plan = examples.plan(batch_size=BATCH_SIZE, seed=0, epoch=0)[: setting.DIVERGENCE_BATCHES]

    @tf.function(autograph=False, reduce_retracing=True)
    def divergence(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        inputs = {name: batch[name] for name in ("input_word_ids", "input_mask", "input_type_ids")}
        logits = [model.features(inputs, ["attention_logits"])["attention_logits"] for model in (teacher, student)]
        layers = [
            attention_transfer(first, second, inputs["input_mask"]) for first, second in zip(*logits, strict=True)
        ]
        tokens = tf.cast(tf.reduce_sum(inputs["input_mask"]), tf.float32)
        return tf.stack([tf.add_n(layers) / len(layers) * tokens, tokens])

    batches = examples.dataset(plan, seed=0, epoch=0)
    total, tokens = sum(divergence(batch).numpy().astype(np.float64) for batch in batches)
    return float(total / tokens)


def _finetune_on(folder: Path, pretrained: Path, task: str, seed: int) -> dict[str, Any]:
    """Fine-tunes a pretrained model, exports it with int8 weights, and scores both.

    The best epoch is chosen on examples that are not scored. Model and file predict the same examples.
    """
    from pocketbert.data.task_data import TaskData
    from pocketbert.training.config import RunConfig
    from pocketbert.training.finetune import finetune
    from pocketbert_export.bundles.predictors import open_predictor
    from pocketbert_export.glue.scoring import score

    glue = GLUE[task]
    train, choosing, dev = task_parts(task)
    data = TaskData(task=glue.task, train=train, dev=choosing, metrics=glue.metrics, main_metric=glue.main_metric)
    finetune(pretrained / "model", data, folder, config=setting.finetune_options(), run=RunConfig(seed=seed))
    bundle = folder / QUANTIZED
    export_quantized(folder / "model", bundle, [TASK_LENGTH])
    predictors = {TRAINED: open_predictor(folder / "model"), QUANTIZED: open_predictor(bundle)}
    return {
        "scores": [
            _scores(score(predictor, examples, glue.metrics).metrics, len(examples), split, recipe)
            for recipe, predictor in predictors.items()
            for split, examples in dev.items()
        ]
    }


def _text_scores(metrics: Mapping[str, float]) -> dict[str, Any]:
    likelihood = math.exp(-metrics["masked_lm_loss"])
    return _scores({WORDS: metrics[WORDS], NEXT: metrics[NEXT], LIKELIHOOD: likelihood}, _evaluated())


def _scores(
    metrics: Mapping[str, float], examples: int, split: str = DEV_TEXT, recipe: str = TRAINED
) -> dict[str, Any]:
    return {"split": split, "recipe": recipe, "metrics": dict(metrics), "examples": examples}


def _evaluated() -> int:
    return setting.EVALUATION_BATCHES * BATCH_SIZE


def _data(output: Path) -> Path:
    return output / "pretraining-data"
