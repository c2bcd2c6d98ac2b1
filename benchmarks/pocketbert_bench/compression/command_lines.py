"""Commands to repeat a candidate by hand."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pocketbert.commands.command_line import as_flags
from pocketbert.commands.task_options import TaskOptions
from pocketbert.data.example_files import write_examples
from pocketbert.data.readers.iob import tags_of_types
from pocketbert.data.readers.soft_labels import PROBABILITIES
from pocketbert.hub.names import shown
from pocketbert.options import describe_options, format_value
from pocketbert.tasks.registry import supervised_task
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert.training.run_folder import MODEL_FOLDER
from pocketbert_bench.compression.candidates import StudentCandidate
from pocketbert_bench.compression.inputs import MIXED_RECIPE, Inputs
from pocketbert_bench.compression.journal import Trial
from pocketbert_bench.compression.methods import FINETUNE, TEXT, TrialShape, text_options, trial_options
from pocketbert_bench.compression.other_students import OtherStudent
from pocketbert_bench.compression.sources import sources_of
from pocketbert_bench.compression.structures import Structure
from pocketbert_export.recipes import get_recipe
from pocketbert_runtime.answers.tags import type_of
from pocketbert_runtime.embedding_config import EmbeddingConfig

SPLITS_FOLDER = "splits"


class CommandLines:
    """Writes a compression's examples as files, and names the commands to read them.

    Args:
      inputs: the compression's input.
      folder: the compression's folder; the commands write beside it.
      teacher: the teacher's fine-tuning options; None if the compression received a teacher.
      teacher_complete: whether it trained for all of its epochs.
      importance: the options in `PruneConfig` for the importance of heads and neurons.
    """

    def __init__(
        self,
        inputs: Inputs,
        folder: Path,
        *,
        teacher: FinetuneConfig | None,
        teacher_complete: bool,
        importance: dict[str, Any],
    ) -> None:
        self._inputs, self._importance, self._teacher_complete = inputs, importance, teacher_complete
        self._folder, self._by_hand = folder, folder.with_name(f"{folder.name}-by-hand")
        data, final = inputs.splits.data, inputs.splits.final
        splits = {"train": data.train, "dev": data.dev} | ({} if final is None else {"final": final.dev})
        splits |= {} if data.unlabelled is None else {"unlabelled": data.unlabelled}
        self._files = {
            name: write_examples(part, data.task.labels, folder / SPLITS_FOLDER / name) for name, part in splits.items()
        }
        self._teacher, self._first = inputs.directory, list[str]()
        if teacher is not None:
            output = self._by_hand / "teacher"
            self._teacher = output / MODEL_FOLDER
            run = RunConfig(seed=inputs.seed)
            self._first = [self._trains("finetune", teacher, run, output, model=inputs.directory)]

    def difference(self, candidate: StudentCandidate, trials: Sequence[tuple[Trial, float]]) -> str:
        """Explains why the commands make another bundle than these trials; empty if they make the same."""
        structure, training = candidate.structure, candidate.training
        if isinstance(structure, OtherStudent) and structure.directory(self._folder) is None:
            return "a preset has random weights here, which no command writes"
        if structure.first_token and training.method not in (FINETUNE, TEXT):
            return "the commands keep a head that reads all tokens, and the candidate has one for the first token"
        if candidate.trimmed:
            return "the commands keep the whole vocabulary; pocketbert trim-vocabulary removes tokens"
        if training.unlabelled:
            return "the candidate read as many unlabelled texts as it had steps, and these commands read all of them"
        whole = all(trial.complete and float(epochs).is_integer() for trial, epochs in trials)
        if not (self._teacher_complete and whole):
            whose = "its" if self._teacher_complete else "the teacher's"
            return f"{whose} time was too short for whole epochs, so these commands train for longer"
        task = self._inputs.splits.data.task
        if task.embedding not in (None, EmbeddingConfig(), self._pooled):
            return "the commands do not have your options of the embedding, except for its pooling"
        if task.rules.reads == "spans" and task.labels != tags_of_types(self._types):
            return "your model's tags have an order of their own, which the commands do not have"
        return ""

    def of(self, candidate: StudentCandidate, trials: Sequence[tuple[Trial, float]]) -> list[str]:
        """Returns a candidate's commands; its weights come from trials with some epochs each, in this order."""
        inputs, structure = self._inputs, candidate.structure
        models: dict[str, Any]
        commands, model = self._start(structure)
        if model is None:
            return []
        for trial, epochs in trials:
            shape = TrialShape(
                teacher=inputs.described.config,
                student=structure.config(inputs.described.config),
                kind=inputs.splits.data.task.kind,
                examples=len(inputs.splits.data.train),
                max_length=inputs.length,
                epochs=math.ceil(epochs),
                first_token=structure.first_token and not trial.rung,
                head_examples=inputs.head_examples,
            )
            output = self._by_hand / candidate.name / f"rung-{trial.rung}"
            if candidate.training.method == TEXT and inputs.text is not None:
                method, on_text = text_options(shape), output.with_name(f"{output.name}-{TEXT}")
                models = {"method": method.name, "teacher": self._teacher, "student": model}
                with_text = {**models, **self._seeds, "text": inputs.text.path}
                commands.append(_command("distill", *_flags(method), **with_text, output=on_text))
                model = on_text / MODEL_FOLDER
            options, run = trial_options(candidate.training, shape, inputs.seed)
            if isinstance(options, FinetuneConfig):
                commands.append(self._trains("finetune", options, run, output, model=model))
            else:
                sources = sources_of(options, inputs.splits.data, inputs.described, shape.student)
                teacher = {"teacher": self._teacher} if sources.teacher else {}
                models = {"method": options.name, **teacher, "student": model}
                models |= {"soft_label_columns": PROBABILITIES} if sources.soft_labels else {}
                if candidate.training.unlabelled:
                    least = inputs.splits.data.least_confidence
                    models |= {"unlabelled_file": self._files["unlabelled"]}
                    models |= {} if least is None else {"least_confidence": least}
                commands.append(self._trains("distill", options, run, output, **models))
            model = output / MODEL_FOLDER
        lengths = ",".join(map(str, candidate.lengths))
        calibrates = get_recipe(candidate.recipe).calibration != "none"
        files: dict[str, Any] = {"file": self._files["dev"]} | (
            {"calibration_file": self._files["train"]} if calibrates else {}
        )
        if candidate.recipe == MIXED_RECIPE:
            files["max_mb"] = inputs.constraints.max_mb
        named = {"model": model, "recipe": candidate.recipe, "lengths": lengths, **files, **self._pair}
        output = self._by_hand / candidate.name / "bundle"
        return [*commands, _command("export", *_flags(inputs.bundle_card), **named, output=output)]

    def _start(self, structure: Structure | OtherStudent) -> tuple[list[str], Path | None]:
        """The first commands, and the first trial's initial model directory; None for new weights."""
        if isinstance(structure, OtherStudent):
            return list(self._first), structure.directory(self._folder)
        sizes = dataclasses.replace(structure.sizes, seed=self._inputs.seed, **self._importance)
        output = self._by_hand / structure.name
        prune = _command("prune", *self._data, *_flags(sizes), model=self._teacher, output=output)
        return [*self._first, prune], output / MODEL_FOLDER

    @property
    def _seeds(self) -> dict[str, int]:
        return {"seeds": self._inputs.seed} if self._inputs.seed else {}

    def _trains(self, command: str, options: Any, run: RunConfig, output: Path, **models: Any) -> str:
        run_flags = _flags(dataclasses.replace(run, seed=0))
        data = self._inputs.splits.data
        if command == "finetune" and data.train.has_pairs and data.task.rules.head == "sentence":
            # A student in `distill` reads pairs as its teacher does.
            models["pairs"] = data.task.pairs or "joint"
        return _command(command, *self._data, *_flags(options), *run_flags, **models, **self._seeds, output=output)

    @property
    def _data(self) -> list[str]:
        """Flags for the training examples and the dev split."""
        data = self._inputs.splits.data
        task, registered = data.task, supervised_task(data.task)
        options: dict[str, Any] = {"train_file": self._files["train"], "dev_file": self._files["dev"], **self._pair}
        if task.kind != "classification" and task.rules.reads != "questions":
            options["kind"] = task.kind
        if labels := self._types if task.rules.reads == "spans" else task.labels:
            (field,) = (field for field in describe_options(TaskOptions) if field.name == "labels")
            options["labels"] = format_value(field, labels)
        if getattr(data.train, "negatives", None) is not None:
            options["negative_column"] = "negative"
        if task.embedding not in (None, EmbeddingConfig()):
            options["pooling"] = self._pooled.pooling
        if data.main_metric and data.main_metric != registered.main_metric:
            options["metric"] = data.main_metric
        return as_flags(options)

    @property
    def _pair(self) -> dict[str, str]:
        data = self._inputs.splits.data
        return {"pair_column": "pair"} if data.train.has_pairs and data.task.rules.reads != "questions" else {}

    @property
    def _types(self) -> tuple[str, ...]:
        """Span types, in the order of their tags."""
        return tuple(dict.fromkeys(filter(None, map(type_of, self._inputs.splits.data.task.labels))))

    @property
    def _pooled(self) -> EmbeddingConfig:
        embedding = self._inputs.splits.data.task.embedding or EmbeddingConfig()
        return EmbeddingConfig(pooling=embedding.pooling)


def _command(name: str, *flags: str, output: Path, **options: Any) -> str:
    # A folder in the hub's cache has a name for other machines.
    options = {option: shown(value) if isinstance(value, Path) else value for option, value in options.items()}
    return shlex.join(["pocketbert", name, *as_flags(options), *flags, *as_flags({"output": output})])


def _flags(options: Any) -> list[str]:
    """Flags for an options dataclass, except defaults; a length has another default for questions."""
    values = {field: getattr(options, field.name) for field in describe_options(type(options))}
    return as_flags(
        {
            field.name: format_value(field, value)
            for field, value in values.items()
            if value != field.default or field.name == "max_length"
        }
    )
