"""Pretraining's examples as a run is given them: opened, and held against the models and the stages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pocketbert.configs import TokenizerConfig
from pocketbert.distillation.method import Setting, Stage, Vocabulary, tokenizer_mismatches
from pocketbert.distillation.run_options import RunOptions

if TYPE_CHECKING:
    from pocketbert.data.pretraining_data import PretrainingData


def open_data(folder: Path | None) -> PretrainingData | None:
    """The data in a folder, its files verified.

    Raises:
      UserError: it is missing, unfinished or damaged.
    """
    if folder is None:
        return None
    from pocketbert.data.pretraining_data import PretrainingData

    return PretrainingData.open(folder)


def pretraining_problems(
    stages: Sequence[Stage], setting: Setting, data: Sequence[PretrainingData | None]
) -> list[str]:
    """What keeps a run from learning from these data.

    Args:
      stages: the run's.
      setting: the run's.
      data: those to learn from, and held-out ones; each may be None.
    """
    learning = [stage for stage in stages if stage.data == "pretraining"]
    problems = []
    if learning and data[0] is None:
        problems.append(
            f"stage {learning[0].name} learns from pretraining's examples; received none; give the folder that "
            "pocketbert pretrain-data wrote (--pretraining-data)"
        )
    if not learning and any(each is not None for each in data):
        problems.append("no stage learns from pretraining's examples; received some; leave them out")
    if learning and setting.task is not None:
        problems.append(
            f"stage {learning[0].name} learns from pretraining's examples, for which the student has other heads than "
            "for a task; received both; make two runs of it"
        )
    if learning and setting.student.pooler == "none":
        problems.append(
            "next sentences are told from the pooled output; the student has pooler='none'; give one with a pooler"
        )
    if learning and data[0] is not None:
        largest = max(learning, key=lambda stage: stage.batch_size)
        if len(data[0]) < largest.batch_size:
            problems.append(
                f"stage {largest.name} takes {largest.batch_size} examples a step; {data[0].folder} has "
                f"{len(data[0])}; lower the batch size, or make more examples (of more text, or with --duplicates)"
            )
    for each in data:
        if each is not None and learning:
            problems += _mismatches(each, learning, setting)
    return list(dict.fromkeys(problems))


def unused_options(run: RunOptions, stages: Sequence[Stage], data: PretrainingData | None) -> list[str]:
    """Options of a run that none of its stages would heed.

    Args:
      run: the options.
      stages: the run's.
      data: pretraining's examples to learn from, or None.
    """
    problems = []
    if run.patience is not None and {stage.keep for stage in stages} == {"last"}:
        problems.append(
            f"patience waits for a new best, and no stage here keeps its best weights; received {run.patience}; leave "
            "it out"
        )
    if run.whole_words and data is None:
        problems.append("whole_words is for pretraining's examples; received it without any; leave it out")
    elif run.whole_words and data is not None and data.masked:
        problems.append(
            f"whole_words is for masks that are drawn while training; those of {data.folder} are baked in; leave it "
            "out, or make the examples with pocketbert pretrain-data --baked-masks --whole-words"
        )
    return problems


def _mismatches(data: PretrainingData, learning: Sequence[Stage], setting: Setting) -> list[str]:
    problems = []
    longest = min(stage.max_length for stage in learning)
    if data.max_length > longest:
        problems.append(
            f"the examples may have {longest} tokens; those of {data.folder} have up to {data.max_length}; make them "
            f"with pocketbert pretrain-data --max-length={longest}, or raise the stages' length"
        )
    if setting.student.type_vocab_size < 2:
        problems.append(
            f"pairs of texts need 2 segments; the student has {setting.student.type_vocab_size}; raise its "
            "type_vocab_size"
        )
    from pocketbert.tokenizers.vocabulary import read_vocabulary

    ours = Vocabulary(path=data.vocab_path, config=TokenizerConfig(lowercase=data.lowercase))
    remedy = "make the examples with this model's vocab.txt, or give a model with theirs"
    pieces = len(read_vocabulary(data.vocab_path))
    if pieces != setting.student.vocab_size:
        problems.append(
            f"both need one vocabulary; that of {data.folder} has {pieces} pieces, the student "
            f"{setting.student.vocab_size}; {remedy}"
        )
    if data.pad_token_id != setting.student.pad_token_id:
        problems.append(
            f"both need one padding id; that of {data.folder} is {data.pad_token_id}, the student's "
            f"{setting.student.pad_token_id}; {remedy}"
        )
    for whose, theirs in (("the teacher", setting.teacher_vocabulary), ("the student", setting.student_vocabulary)):
        if theirs is not None:
            problems += tokenizer_mismatches(ours, theirs, str(data.folder), whose, remedy)
    return problems
