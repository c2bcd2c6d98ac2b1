"""Checks of pretraining examples against the models and stages of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pocketbert.configs import PRETRAINING_HEADS, EncoderConfig, TaskConfig, TokenizerConfig
from pocketbert.data.pretraining_data import PretrainingData
from pocketbert.training.config import RunConfig
from pocketbert.training.stage import Stage
from pocketbert.training.vocabulary import Vocabulary, tokenizer_problems


def pretraining_heads() -> tuple[TaskConfig, ...]:
    """The heads that learn: their logits come straight from the encoder's outputs, without dropout, as in BERT."""
    return tuple(TaskConfig(kind=kind, dropout=0.0) for kind in PRETRAINING_HEADS)


def pretraining_vocabulary(data: PretrainingData) -> Vocabulary:
    """What the examples were made with."""
    return Vocabulary(path=data.vocab_path, config=TokenizerConfig(lowercase=data.lowercase))


def pretraining_problems(
    stages: Sequence[Stage],
    data: PretrainingData,
    model: EncoderConfig,
    vocabularies: Mapping[str, Vocabulary | None],
) -> list[str]:
    """What keeps a run from learning from these data.

    Args:
      stages: the run's, all on pretraining examples.
      data: those to learn from, and development examples.
      model: what is trained.
      vocabularies: whose → a model's vocabulary, or None where it is not known.
    """
    problems = []
    if model.pooler == "none":
        problems.append(
            "next sentences are told from the pooled output; the student has pooler='none'; give one with a pooler"
        )
    largest = max(stages, key=lambda stage: stage.batch_size)
    if len(data) < largest.batch_size:
        problems.append(
            f"stage {largest.name} takes {largest.batch_size} examples a step; {data.folder} has {len(data)}; lower "
            "the batch size, or make more examples (of more text, or with --duplicates)"
        )
    longest = min(stage.max_length for stage in stages)
    for each in (data, data.dev):
        if each is not None:
            problems += _problems(each, longest, model, vocabularies)
    return list(dict.fromkeys(problems))


def unused_options(run: RunConfig, stages: Sequence[Stage], data: object) -> list[str]:
    """Options of a run that none of its stages would heed.

    Args:
      run: the options.
      stages: the run's.
      data: what it learns from.
    """
    problems = []
    if run.patience is not None and {stage.keep for stage in stages} == {"last"}:
        problems.append(
            f"patience waits for a new best, and no stage here keeps its best weights; received {run.patience}; leave "
            "it out"
        )
    if run.whole_words and not isinstance(data, PretrainingData):
        problems.append("whole_words is for pretraining examples; received it without any; leave it out")
    elif run.whole_words and isinstance(data, PretrainingData) and data.masked:
        problems.append(
            f"whole_words is for masks that are drawn while training; those of {data.folder} are baked in; leave it "
            "out, or make the examples with pocketbert pretrain-data --baked-masks --whole-words"
        )
    return problems


def _problems(
    data: PretrainingData, longest: int, model: EncoderConfig, vocabularies: Mapping[str, Vocabulary | None]
) -> list[str]:
    problems = []
    if data.max_length > longest:
        problems.append(
            f"the examples may have {longest} tokens; those of {data.folder} have up to {data.max_length}; make them "
            f"with pocketbert pretrain-data --max-length={longest}, or raise the stages' length"
        )
    if model.type_vocab_size < 2:
        problems.append(
            f"pairs of texts need 2 segments; the student has {model.type_vocab_size}; raise its type_vocab_size"
        )
    from pocketbert.tokenizers.vocabulary import read_vocabulary

    remedy = "make the examples with this model's vocab.txt, or give a model with theirs"
    pieces = len(read_vocabulary(data.vocab_path))
    if pieces != model.vocab_size:
        problems.append(
            f"both need one vocabulary; that of {data.folder} has {pieces} tokens, the student {model.vocab_size}; "
            f"{remedy}"
        )
    if data.pad_token_id != model.pad_token_id:
        problems.append(
            f"both need one padding id; that of {data.folder} is {data.pad_token_id}, the student's "
            f"{model.pad_token_id}; {remedy}"
        )
    ours = pretraining_vocabulary(data)
    for whose, theirs in vocabularies.items():
        if theirs is not None:
            problems += tokenizer_problems(ours, theirs, str(data.folder), whose, remedy)
    return problems
