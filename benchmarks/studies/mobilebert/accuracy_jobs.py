"""Jobs of `mobilebert.accuracy`.

The result of a scoring job has `scores`: for each set of examples and each recipe `split`, `recipe`, `metrics` and
`examples`. The best value of every score is 1: a loss is stored as exp(−nats), the geometric mean of the correct
answer's probability.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pocketbert import files
from pocketbert.configs import PRETRAINING_HEADS, TaskConfig
from pocketbert.data.assets import minilm
from pocketbert.data.glue import GLUE
from pocketbert.distillation.methods.mobilebert import MobileBERT
from pocketbert.errors import TrainingFailed
from pocketbert.training.config import PretrainConfig
from studies.experiment import TRAINED
from studies.glue_examples import majority_label_metrics, task_parts
from studies.jobs import result_of
from studies.mobilebert import recipe as setting
from studies.mobilebert.recipe import BATCH_SIZE, STUDENT, TASK_LENGTH, TEACHER, MobileBERTVariant
from studies.quantized import QUANTIZED, export_quantized
from studies.shared_data import shared_data

if TYPE_CHECKING:
    from pocketbert.data.pretraining_data import PretrainingData
    from pocketbert.model import Model

DEV_TEXT = "dev articles"
WORDS, NEXT, LIKELIHOOD = "masked_lm_accuracy", "next_sentence_accuracy", "exp(-masked-LM loss)"
NEARNESS = "exp(-attention divergence)"
# Names of jobs, which are also their folders.
TEACHER_JOB, MAJORITY_TOKEN_JOB = "teacher", "constant/enwiki2015"
# A teacher must be better than token frequencies: at least this factor in masked-LM accuracy over the most frequent
# token, and at least this many nats below the frequencies' loss.
LEAST_TIMES, LEAST_NATS = 2.0, 0.5


def make_data(output: Path) -> dict[str, Any]:
    """Creates pretraining examples with dev articles; returns counts, and the SHA-256 of everything."""
    from pocketbert.data.pretraining_data import PretrainingData
    from pocketbert.data.pretraining_run import write_pretraining_data
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

    found = write_pretraining_data(
        shared_data(setting.TEXT_FILE),
        WordPieceTokenizer(minilm() / "vocab.txt", lowercase=True, special_tokens_in_text="text"),
        _data(output),
        setting.data_options(),
        shards=1,
        overwrite=True,
    )
    return {**found.train, "identity": PretrainingData.open(_data(output)).identity}


def score_majority_token(output: Path) -> dict[str, Any]:
    """Scores of counting: the most frequent token, the frequencies' loss, and the more frequent NSP label."""
    from pocketbert.data.pretraining_data import PretrainingData

    folder = _data(output)
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
    return {"scores": [_scores({name: float(value) for name, value in metrics.items()}, _evaluated())]}


def _labels(data: PretrainingData, batches: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels of masked tokens and next sentences; for dev data the same as in evaluation."""
    plan = data.plan(batch_size=BATCH_SIZE, seed=0, epoch=0)[:batches]
    found = [
        (batch["masked_lm_labels"].numpy(), batch["next_sentence_labels"].numpy())
        for batch in data.dataset(plan, seed=0, epoch=0)
    ]
    words = np.concatenate([each.ravel() for each, _ in found])
    return words[words >= 0], np.concatenate([each for _, each in found])


def score_majority_label(task: str) -> dict[str, Any]:
    """Scores the training examples' most frequent label."""
    train, _, scored = task_parts(task)
    names = GLUE[task].metrics
    metrics = {split: majority_label_metrics(names, train, examples) for split, examples in scored.items()}
    return {"scores": [_scores(metrics[split], len(examples), split) for split, examples in scored.items()]}


def pretrain_teacher(name: str, options: PretrainConfig, output: Path) -> dict[str, Any]:
    """Pretrains an IB-BERT teacher; returns its scores on dev text and the SHA-256 of its weights."""
    from pocketbert.data.pretraining_data import PretrainingData
    from pocketbert.training.pretrain import pretrain

    found = pretrain(
        TEACHER,
        PretrainingData.open(_data(output), _data(output) / "dev"),
        output / name,
        config=options,
        run=setting.run_options(setting.TEACHER_SEED),
    )
    return {
        "scores": [_text_scores(found.metrics)],
        "sha256": files.sha256(Path(found.model) / "model.safetensors"),
        "seconds": found.seconds,
    }


def check_teacher(output: Path) -> dict[str, Any]:
    """Accepts a teacher that is good enough to learn from.

    Raises:
      TrainingFailed: the teacher is hardly better than token frequencies.
    """
    teacher, counted = (result_of(output, name)["scores"][0]["metrics"] for name in (TEACHER_JOB, MAJORITY_TOKEN_JOB))
    right, least = teacher[WORDS], LEAST_TIMES * counted[WORDS]
    nats, most = -math.log(teacher[LIKELIHOOD]), -math.log(counted[LIKELIHOOD]) - LEAST_NATS
    if right < least or nats > most:
        raise TrainingFailed(
            f"a teacher's masked-LM accuracy must be at least {least:.1%}, {LEAST_TIMES:g} times that of the most "
            f"frequent token, and its loss at most {most:.2f} nats, {LEAST_NATS:g} below token frequencies; "
            f"received {right:.1%} and {nats:.2f}; find a better rate (studies.mobilebert.rates), or take more steps"
        )
    return {"masked-LM accuracy": right, "nats": nats}


def copy_start(name: str, seed: int, output: Path) -> dict[str, Any]:
    """Makes a student with new layers and the teacher's embedding and heads, as in progressive transfer."""
    import pocketbert as pb
    from pocketbert.distillation.methods.mobilebert import MobileBERT

    student = _fresh_student(seed, output)
    MobileBERT().initialize(pb.from_pretrained(output / TEACHER_JOB / "model"), student)
    student.save_pretrained(output / name / "model", overwrite=True)
    return {}


def make_student(name: str, variant: MobileBERTVariant, start: str | None, seed: int, output: Path) -> dict[str, Any]:
    """Makes one student; returns its scores on dev text.

    Args:
      name: name of the job.
      variant: training of the student.
      start: job whose model is the starting point; None for new weights.
      seed: seed of weights, order and masks.
      output: folder of the experiment.
    """
    if variant.trained:
        return distil_student(name, setting.student_options(variant), start, seed, output)
    from pocketbert.data.pretraining_data import PretrainingData
    from pocketbert.training.pretraining_run_data import PretrainingEvaluator

    student = _fresh_student(seed, output)
    student.save_pretrained(output / name / "model", overwrite=True)
    dev = PretrainingData.open(_data(output) / "dev")
    metrics = PretrainingEvaluator(student, dev, setting.EVALUATION_BATCHES).metrics("before training")
    return {"scores": [_text_scores(metrics)]}


def distil_student(name: str, options: MobileBERT, start: str | None, seed: int, output: Path) -> dict[str, Any]:
    """Trains one student; returns its scores on dev text. See `make_student`."""
    from pocketbert.data.pretraining_data import PretrainingData
    from pocketbert.distillation.run import distill

    taught = options.strategy != "none" or "distillation" not in options.without
    found = distill(
        STUDENT if start is None else output / start / "model",
        PretrainingData.open(_data(output), _data(output) / "dev"),
        output / name,
        teacher=output / TEACHER_JOB / "model" if taught else None,
        method=options,
        run=setting.run_options(seed, taught=taught),
    )
    return {"scores": [_text_scores(found.metrics)], "seconds": found.seconds}


def _fresh_student(seed: int, output: Path) -> Model:
    """Weights at the start of every student with this seed."""
    import pocketbert as pb
    from pocketbert.data.pretraining_data import PretrainingData
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

    data = PretrainingData.open(_data(output), verify=False)
    heads = [TaskConfig(kind=kind, dropout=0.0) for kind in PRETRAINING_HEADS]
    return pb.from_preset(STUDENT, heads, WordPieceTokenizer(data.vocab_path, lowercase=data.lowercase), seed=seed)


def score_attention(student: str, output: Path) -> dict[str, Any]:
    """Similarity of a student's attention to the teacher's on dev text; 1 if equal."""
    divergence = attention_divergence(output / TEACHER_JOB / "model", output / student / "model", _data(output) / "dev")
    return {"scores": [_scores({NEARNESS: math.exp(-divergence)}, setting.DIVERGENCE_BATCHES * BATCH_SIZE)]}


def attention_divergence(teacher_directory: Path, student_directory: Path, data: Path) -> float:
    """KL of the student's attention from the teacher's in nats, mean over layers, heads and dev tokens."""
    import tensorflow as tf

    import pocketbert as pb
    from pocketbert.data.pretraining_data import PretrainingData
    from pocketbert.distillation.losses import attention_transfer

    teacher, student = pb.from_pretrained(teacher_directory), pb.from_pretrained(student_directory)
    examples = PretrainingData.open(data)
    plan = examples.plan(batch_size=BATCH_SIZE, seed=0, epoch=0)[: setting.DIVERGENCE_BATCHES]

    @tf.function(autograph=False, reduce_retracing=True)
    def divergence(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        inputs = {name: batch[name] for name in ("input_word_ids", "input_mask", "input_type_ids")}
        theirs, ours = (
            model.features(inputs, ["attention_logits"])["attention_logits"] for model in (teacher, student)
        )
        layers = [attention_transfer(*pair, inputs["input_mask"]) for pair in zip(theirs, ours, strict=True)]
        tokens = tf.cast(tf.reduce_sum(inputs["input_mask"]), tf.float32)
        return tf.stack([tf.add_n(layers) / len(layers) * tokens, tokens])

    batches = examples.dataset(plan, seed=0, epoch=0)
    total, tokens = sum(divergence(batch).numpy().astype(np.float64) for batch in batches)
    return float(total / tokens)


def finetune_on(name: str, pretrained: str, task: str, seed: int, output: Path) -> dict[str, Any]:
    """Fine-tunes a pretrained model, exports it with int8 weights, and scores both.

    The best epoch is chosen on examples that are not scored. Model and file predict the same examples.
    """
    from pocketbert.data.task_data import TaskData
    from pocketbert.training.config import RunConfig
    from pocketbert.training.finetune import finetune
    from pocketbert_export.predictors import open_predictor
    from pocketbert_export.scoring import score

    glue = GLUE[task]
    train, choosing, scored = task_parts(task)
    start, folder, bundle = output / pretrained / "model", output / name, output / QUANTIZED / name
    data = TaskData(task=glue.task, train=train, dev=choosing, metrics=glue.metrics, main_metric=glue.main_metric)
    finetune(start, data, folder, config=setting.finetune_options(), run=RunConfig(seed=seed))
    export_quantized(folder / "model", bundle, [TASK_LENGTH])
    predictors = {TRAINED: open_predictor(folder / "model"), QUANTIZED: open_predictor(bundle)}
    return {
        "scores": [
            _scores(score(predictor, examples, glue.metrics).metrics, len(examples), split, recipe)
            for recipe, predictor in predictors.items()
            for split, examples in scored.items()
        ]
    }


def _text_scores(metrics: Mapping[str, float]) -> dict[str, Any]:
    kept = {name: metrics[name] for name in (WORDS, NEXT)}
    return _scores({**kept, LIKELIHOOD: math.exp(-metrics["masked_lm_loss"])}, _evaluated())


def _scores(
    metrics: Mapping[str, float], examples: int, split: str = DEV_TEXT, recipe: str = TRAINED
) -> dict[str, Any]:
    return {"split": split, "recipe": recipe, "metrics": dict(metrics), "examples": examples}


def _evaluated() -> int:
    return setting.EVALUATION_BATCHES * BATCH_SIZE


def _data(output: Path) -> Path:
    return output / "pretraining-data"
