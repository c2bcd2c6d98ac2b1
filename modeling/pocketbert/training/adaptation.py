"""Masked LM on plain text, to adapt a model with a tokenizer to its domain: plan and result."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from pocketbert.configs import EncoderConfig
from pocketbert.data.pretraining.masking import MaskingVocabulary
from pocketbert.data.pretraining.options import MaskingOptions
from pocketbert.data.pretraining.whole_words import never_masked_share
from pocketbert.data.task_data import TextData
from pocketbert.errors import UserError, raise_if_any
from pocketbert.files import write_json
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert.training.config import RunConfig, TrainResult
from pocketbert.training.frozen_weights import FrozenWeights
from pocketbert.training.initialization import plan_model
from pocketbert.training.masked_text_run_data import MaskedTextRunData
from pocketbert.training.objectives.pretraining import MaskedText, pretraining_stage
from pocketbert.training.plan import Plan, PlannedRun, unused_options
from pocketbert.training.pretrain_config import PretrainConfig
from pocketbert.training.run_folder import START_FILE
from pocketbert.training.stage import position_problems
from pocketbert.training.stage_batches import StageBatches
from pocketbert.training.stage_log import as_text

_METRICS_BEFORE = "metrics_before"
_NOTED_SHARE = 0.01


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaptationResult(TrainResult):
    """Result of masked LM on plain text.

    Attributes:
      metrics_before: the initial weights' metrics on the same dev part; None without one.
    """

    metrics_before: dict[str, float] | None = None


@dataclass(frozen=True, kw_only=True)
class AdaptationPlan(Plan):
    """A masked LM run on plain text that also scores the initial weights."""

    def open_batches(self, index: int, replicas: int) -> StageBatches:
        """See `Plan`; logs the share of words too long for whole-word masking."""
        batches = super().open_batches(index, replicas)
        encoded = self.encoded(self.stages[index])
        if self.run.whole_words and encoded is not None:
            options = MaskingOptions.of_length(encoded.max_length, whole_words=True)
            share = never_masked_share(encoded, MaskingVocabulary.of(self.tokenizer), options)
            if share == 1:
                raise UserError(
                    f"whole_words can mask no word: all words have more tokens than an input of {encoded.max_length} "
                    f"may mask; raise the length, or leave out {argument('whole_words')}"
                )
            if share >= _NOTED_SHARE:
                log_info(
                    f"whole words: {share:.0%} of the tokens are in words with more tokens than an input may mask, and "
                    f"are never masked; leave out {argument('whole_words')} to mask them too"
                )
        return batches

    def prepare(self, run: PlannedRun, *, resumes: bool) -> dict[str, Any]:
        """See `Plan`; scores the initial weights in a new run, and reads these scores in a resumed one."""
        if not resumes:
            evaluator = run.evaluator(self.stages[-1])
            before = None if evaluator is None else evaluator.metrics("before the first step")
            run.start[_METRICS_BEFORE] = before
            if run.distribution.is_chief:
                write_json(run.folder / START_FILE, run.start)
        before = run.start[_METRICS_BEFORE]
        if before is not None:
            log_info(f"before the first step: {as_text(before)}")
        return {_METRICS_BEFORE: before}


def plan_adaptation(
    model: str | EncoderConfig, data: TextData, config: PretrainConfig, run: RunConfig, frozen: FrozenWeights
) -> AdaptationPlan:
    """Plans masked LM on plain text.

    Raises:
      UserError: the options contradict each other, or the model has no tokenizer or too few positions.
    """
    if config.objective != "mlm":
        raise UserError(
            f"plain text is for {argument('objective', 'mlm')}; received {config.objective} for {data.path}; pass it, "
            "or make examples of the text with pocketbert pretrain-data"
        )
    if data.dev is not None:
        if config.dev_every is not None:
            raise UserError(
                f"the dev part is given or split off; received {data.dev} and dev_every={config.dev_every}; "
                "leave out one"
            )
        config = dataclasses.replace(config, dev_every=0)
    config = config.resolved()
    assert config.max_length is not None and config.dev_every is not None
    start = plan_model(model)
    text = MaskedTextRunData(data, config.dev_every)
    # Patience selects the best weights; otherwise the last ones stay.
    keep: Literal["best", "last"] = "best" if run.patience is not None and text.main_metric else "last"
    stages = (dataclasses.replace(pretraining_stage(config, config.max_length), keep=keep),)
    problems = [
        *position_problems("model", start.config, stages),
        *text.stage_problems(stages),
        *unused_options(run, stages, text),
    ]
    if start.vocabulary is None:
        received = start.directory or (model if isinstance(model, str) else "an architecture")
        problems.append(
            f"masked LM on plain text needs a model with a tokenizer; received {received} without a vocabulary; give "
            "a model directory with its vocabulary files"
        )
    raise_if_any(problems, "pretraining")
    assert start.vocabulary is not None
    return AdaptationPlan(
        objective=MaskedText(),
        options=config.recorded(),
        stages=stages,
        run=run,
        start=start,
        tasks=text.tasks,
        vocabulary=start.vocabulary,
        data=text,
        frozen=frozen,
    )
