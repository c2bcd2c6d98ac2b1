"""Fine-tuning: one stage trains a head on a task's labels."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from pocketbert.configs import TaskConfig
from pocketbert.data.batches import EncodedExamples, encode
from pocketbert.data.examples import Examples
from pocketbert.data.task_data import TaskData
from pocketbert.files import write_json, write_text
from pocketbert.heads_config import with_pooling
from pocketbert.layers.core import weights_by_path
from pocketbert.model import Model, from_preset
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert.tasks.classification import MEAN_LENGTH
from pocketbert.tasks.data_checks import training_warnings
from pocketbert.tasks.outputs import mean_over_examples
from pocketbert.tasks.pair_losses import triplet_losses
from pocketbert.tasks.registry import get_task, supervised_task
from pocketbert.tasks.scores import Baseline, Scores
from pocketbert.training.config import FinetuneConfig
from pocketbert.training.contrastive_start import train_contrastively
from pocketbert.training.decision_options import log_heads_without_choice
from pocketbert.training.head_start import HeadStart, Pooling, fit_head, frozen_means, start_head
from pocketbert.training.initialization import assign_weights, make_model
from pocketbert.training.label_losses import labels_loss
from pocketbert.training.objective import Adapters, Batch, Features, Objective, Targets
from pocketbert.training.outcome_notes import falling_notes, flat_notes, simple_methods, with_notes
from pocketbert.training.plan import Plan, PlannedRun
from pocketbert.training.run_data import TaskRunData
from pocketbert.training.run_folder import REPORT_FILE, START_FILE
from pocketbert.training.score_report import page
from pocketbert.training.stage import Epochs, OptimizerConfig, Stage

# Steps between evaluations if epochs are short.
_SHORT_EPOCH_STEPS = 20
_FROZEN_REMEDY = "training made the model worse; use fewer epochs or a lower learning rate"
_CONTRASTIVE_REMEDY = "training made the model worse; try it without contrastive steps ({})"


@dataclass(frozen=True, kw_only=True, eq=False)
class Finetuning(Objective):
    """The label loss (Devlin et al. 2019, BERT, section 3.2, https://arxiv.org/abs/1810.04805).

    Attributes:
      class_weights: float32 `[classes]`, or by head, loss weights for the task's `weighted_classes`; None for 1.
      head_pooling: see `FinetuneConfig`.
      head_start: see `FinetuneConfig`.
      head_start_examples: see `FinetuneConfig`.
      contrastive_steps: see `FinetuneConfig`.
      continues: whether the model directory's head continues.
      triplet_margin: see `FinetuneConfig`.
      compares_pairs: whether the run chooses the form of pairs (`FinetuneConfig.pairs`).
    """

    name: ClassVar[str] = "finetuning"
    class_weights: Any = None
    head_pooling: str = "first"
    head_start: str = "random"
    head_start_examples: int = FinetuneConfig.head_start_examples
    contrastive_steps: int = 0
    continues: bool = False
    triplet_margin: float | None = None
    compares_pairs: bool = False

    def loss(
        self, stage: Stage, targets: Targets, model: Features, adapters: Adapters, batch: Batch
    ) -> Mapping[str, tf.Tensor]:
        """`labels`: cross-entropy for classes and spans, squared difference for scores; see `Task.loss`.

        With `triplet_margin`, mean `triplet_losses`.
        """
        if self.triplet_margin is not None:
            losses = triplet_losses(model["logits"][0], self.triplet_margin)
            return {"labels": mean_over_examples(losses, batch["labels"][0::3, 0])}
        weights = None
        if self.class_weights is not None:
            assert stage.task is not None
            weights = get_task(stage.task).loss_factors(self.class_weights, batch["labels"])
        return {"labels": labels_loss(stage, model, batch, weights)}


def label_stage(task: TaskConfig, **fields: Any) -> Stage:
    """Makes a stage that trains a head on labels and keeps the best weights; `fields` are other `Stage` fields."""
    labels: dict[str, Any] = {"student_features": {"logits": ()}, "weights": {"labels": 1.0}, "data": "task"}
    return Stage(**{**labels, "task": task, "keep": "best", **fields})


def finetuning_stage(config: FinetuneConfig, task: TaskConfig) -> Stage:
    """Makes the stage for a fine-tuning."""
    assert config.learning_rate is not None
    return label_stage(
        task,
        name="",
        short_epoch_steps=_SHORT_EPOCH_STEPS,
        calibrate=config.calibrate,
        max_length=config.max_length,
        duration=Epochs(config.epochs),
        batch_size=config.batch_size,
        micro_batches=config.micro_batches,
        optimizer=OptimizerConfig(
            learning_rate=config.learning_rate,
            schedule=config.schedule,
            warmup_ratio=config.warmup_ratio,
            weight_decay=config.weight_decay,
            clip_norm=config.clip_norm or None,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class FinetuningPlan(Plan):
    """A fine-tuning: it starts a new head, compares with simple methods, and writes a report."""

    objective: Finetuning

    def recorded(self) -> dict[str, Any]:
        """See `Plan`; omits the form of pairs if a comparison chooses it."""
        recorded = super().recorded()
        if self.objective.compares_pairs:
            recorded.pop("task_pairs", None)
        return recorded

    def encoded(self, stage: Stage) -> EncodedExamples | None:
        """See `Plan`; the first call compares the forms of pairs, if the run chooses between them."""
        if self.objective.compares_pairs and self.compared.separates_pairs and self.tasks[0].pairs is None:
            self._separate_pairs()
        return super().encoded(stage)

    @functools.cached_property
    def compared(self) -> HeadStart:
        """The head start with the better form of pairs, by the loss of a linear fit on frozen features."""
        model, joint = make_model(self.start, self.tasks, self.tokenizer, self.run.seed, new_head=True), self.tasks[0]
        tasks = (joint, dataclasses.replace(joint, pairs="separate"))
        starts = [self._fit_head(model, self._poolings, task) for task in tasks]
        first, second = (start for start in starts if start is not None)
        better = second if second.fit.loss < first.fit.loss else first
        log_info(
            f"pairs={'separate' if better is second else 'joint'}: cross-validated losses of a linear fit on frozen "
            f"features are joint {first.fit.loss:.3f} and separate {second.fit.loss:.3f}"
        )
        return better

    @property
    def _poolings(self) -> tuple[Any, ...]:
        pooling = self.objective.head_pooling
        return ("first", "mean") if pooling == "auto" else (pooling,)

    def _separate_pairs(self) -> None:
        """Makes the task read the two texts in a pair one by one."""

        def changed(task: TaskConfig) -> TaskConfig:
            return dataclasses.replace(task, pairs="separate")

        examples = self.data.given
        data = TaskRunData(dataclasses.replace(examples, task=changed(examples.task)))
        stages = [dataclasses.replace(stage, task=stage.task and changed(stage.task)) for stage in self.stages]
        for name, value in (("data", data), ("stages", tuple(stages)), ("tasks", tuple(map(changed, self.tasks)))):
            object.__setattr__(self, name, value)

    def make_model(self, run: PlannedRun) -> Model:
        """Makes the model; a new head starts from a fit on encoder features.

        A resumed run has the weights in its checkpoint and needs only the pooling.
        """
        model, objective = super().make_model(run), self.objective
        if run.start:
            return self._pooled(model, str(run.start["pooling"]))
        if objective.continues:
            run.start = {"pooling": self.tasks[0].pooling or "first", "reason": "the head continues"}
            return model
        if objective.head_start == "random":
            return self._start_random(model, run)
        if get_task(self.tasks[0]).parts:
            return self._start_parts(model, run, self._poolings)
        start = self.compared if objective.compares_pairs else self._fit_head(model, self._poolings)
        if start is None:
            return model
        log_info(start.reason)
        if start.pooling == "mean":
            model = self._on_mean(model)
        start_head(model, start.fit)
        run.start = {"pooling": start.pooling, "reason": start.reason, "fitted": True}
        return model

    def prepare(self, run: PlannedRun, *, resumes: bool) -> dict[str, Any]:
        """See `Plan`; scores simple methods on the dev split, and records them with the head start."""
        if resumes:
            return {}
        methods: list[Baseline] = []
        if self.compares:
            vectors = functools.partial(self._vectors, run.model)
            methods = simple_methods(self.data.given, self.data.main_metric, vectors)
        if self.compares and run.start.get("fitted"):
            evaluator: Any = run.evaluator(self.stages[-1])
            score = evaluator.metrics("before training")[self.data.main_metric]
            steps = self.objective.contrastive_steps
            remedy = _CONTRASTIVE_REMEDY.format(argument("contrastive_steps", 0)) if steps else _FROZEN_REMEDY
            methods.append(Baseline(name="a linear model on frozen features", score=score, remedy=remedy))
        run.start = {"pooling": "first", **run.start, "methods": [dataclasses.asdict(method) for method in methods]}
        if self.objective.contrastive_steps:
            self._start_contrastively(run)
        if run.distribution.is_chief:
            write_json(run.folder / START_FILE, run.start)
        return {}

    def scores(self, run: PlannedRun) -> dict[str, Any]:
        """See `Plan`; adds outcome and class scores, and writes `report.html`."""
        state, dev = run.state, self.data.given.dev
        evaluator: Any = run.evaluator(self.stages[-1])
        run.load_kept()
        scores: Scores = evaluator.scores(self.data.main_metric, state.best_metrics)
        notes = [*flat_notes(evaluator, self.tasks[0].labels), *falling_notes(run.folder, "")]
        scores = with_notes(scores, run.start.get("methods", ()), notes, self.data_notes, self.data.paths())
        if self.compares:
            scores.log(f"best, after step {state.best_step}")
        if run.distribution.is_chief:
            mistakes = evaluator.mistakes() if self.run.show_texts else None
            train = self.data.given.train.source
            text = page({"model": scores}, len(dev), dev.source, data=train, mistakes=mistakes)
            write_text(run.folder / REPORT_FILE, text)
        head = {name: run.start[name] for name in ("pooling", "reason") if name in run.start}
        return {**scores.to_json(), "head": {**head, "temperature": state.temperature}}

    def _start_contrastively(self, run: PlannedRun) -> None:
        """Trains on pairs of texts, and fits the head again."""
        steps, pooling = self.objective.contrastive_steps, run.start["pooling"]
        task, train, length = supervised_task(self.tasks[0]), self.data.given.train, self.stages[-1].max_length
        encoded = task.encode(train, self.tokenizer, length)
        train_contrastively(
            run.model,
            pooling,
            encoded,
            steps,
            most_per_batch=self.stages[-1].batch_size,
            seed=self.run.seed,
            frozen=self.frozen_paths,
            rate_factors=self.stages[-1].rate_factors,
        )
        start = self._fit_head(run.model, (pooling,))
        assert start is not None
        start_head(run.model, start.fit)
        line = f"{steps} contrastive steps on pairs of the {len(train)} examples, and a new fit of the head"
        log_info(line)
        run.start["reason"] += f"; then {line}"

    def _fit_head(self, model: Model, poolings: Sequence[Pooling], task: TaskConfig | None = None) -> HeadStart | None:
        return fit_head(
            model,
            supervised_task(task or self.tasks[0]),
            self.data.given.train,
            self.stages[-1].max_length,
            poolings,
            self.objective.class_weights,
            most_examples=self.objective.head_start_examples,
        )

    def _start_random(self, model: Model, run: PlannedRun) -> Model:
        pooling = "mean" if self.objective.head_pooling == "mean" else "first"
        if pooling == "mean":
            model = self._on_mean(model)
        if self.tasks[0].kind == "regression":
            bias = float(np.mean(self.data.given.train.labels))
            next(iter(model.heads.values())).output_projection.bias.assign([bias])
        run.start = {"pooling": pooling}
        return model

    def _start_parts(self, model: Model, run: PlannedRun, poolings: Sequence[Pooling]) -> Model:
        """Starts each of several heads where it would start alone."""
        train: Any = self.data.given.train
        weights = self.objective.class_weights or {}
        starts: dict[str, HeadStart] = {}
        alone: dict[str, Model] = {}
        for name, part in get_task(self.tasks[0]).parts.items():
            alone[name] = self._with_head(model, part.config)
            start = fit_head(
                alone[name],
                supervised_task(part.config),
                train.parts[name],
                self.stages[-1].max_length,
                poolings,
                weights.get(name),
                most_examples=self.objective.head_start_examples,
            )
            assert start is not None
            starts[name] = start
            log_info(f"{name}: {start.reason}")
        pooling = ",".join(f"{name}={start.pooling}" for name, start in starts.items())
        model = self._pooled(model, pooling)
        for name, start in starts.items():
            # A head may have its own layers before the map, and the fit has read them.
            parts, others = (next(iter(one.heads.values())) for one in (model, alone[name]))
            values = weights_by_path(others)
            for path, variable in weights_by_path(parts.parts[name]).items():
                variable.assign(values[path])
            start_head(model, start.fit, name)
        reason = "; ".join(f"{name}: {start.reason}" for name, start in starts.items())
        run.start = {"pooling": pooling, "reason": reason, "fitted": True}
        return model

    def _pooled(self, model: Model, pooling: str) -> Model:
        """Gives the model heads on a pooling: `first`, `mean`, or `name=pooling,…` for several heads."""
        if "=" not in pooling:
            return self._on_mean(model) if pooling == "mean" else model
        of_part = dict(part.split("=") for part in pooling.split(","))
        parts = [
            with_pooling(part, "mean") if of_part[part.name] == "mean" else part for part in self.tasks[0].tasks or ()
        ]
        return self._with_head(model, dataclasses.replace(self.tasks[0], tasks=tuple(parts)))

    def _on_mean(self, model: Model) -> Model:
        """Gives the encoder a new head on the mean over tokens."""
        return self._with_head(model, with_pooling(self.tasks[0], "mean"))

    def _with_head(self, model: Model, task: TaskConfig) -> Model:
        """Gives the encoder a new head for a task."""
        if model.tasks == (task,):
            return model
        other = from_preset(get_task(task).encoder_config(model.config), (task,), self.tokenizer, self.run.seed)
        weights = model.weights_by_path().items()
        assign_weights(other, {path: value.numpy() for path, value in weights if path.startswith("encoder.")})
        return other

    def _vectors(self, model: Model, texts: Sequence[str]) -> np.ndarray:
        """Computes unit vectors for texts, float32 [N, H]: mean token vectors before training."""
        examples = Examples(list(texts), None, None, [str(index) for index in range(len(texts))], "the texts")
        encoded = encode(examples, self.tokenizer, self.stages[-1].max_length, show_progress=False)
        return frozen_means(model, supervised_task(self.tasks[0]), encoded) / MEAN_LENGTH


def log_defaults(plan: FinetuningPlan, config: FinetuneConfig, data: TaskData) -> FinetuningPlan:
    """Logs data warnings and defaults that depend on the data; returns the plan with the warnings."""
    warnings = training_warnings(data, plan.vocabulary, config.max_length)
    for warning in warnings:
        log_info(f"warning: {warning}")
    plan = dataclasses.replace(plan, data_notes=tuple(warnings))
    log_heads_without_choice(plan.run, plan.data)
    if config.learning_rate is None:
        rate, width = plan.options["learning_rate"], plan.start.config.hidden_size
        after = " after contrastive steps" if plan.objective.contrastive_steps else ""
        log_info(f"learning_rate={rate:g}: the default for {data.task.kind} with a network {width} wide{after}")
    if config.contrastive_steps is None and plan.objective.contrastive_steps:
        log_info(
            f"contrastive_steps={plan.objective.contrastive_steps}: the default for {len(plan.data.given.train)} "
            "examples; texts with one label move together before the head is fitted"
        )
    return plan
