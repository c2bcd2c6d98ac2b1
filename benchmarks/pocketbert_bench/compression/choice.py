"""The choice: export the best candidates until one is within the limits, and score it on the final split."""

from __future__ import annotations

import dataclasses
import functools
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pocketbert.errors import TrainingFailed
from pocketbert.model import from_pretrained
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert.pruning.vocabulary import write_trimmed_model
from pocketbert.report.outcome import VERDICT_WORDS
from pocketbert.tasks.predictor import Predictor, model_predictor
from pocketbert.tasks.scores import Baseline, Scores
from pocketbert.training.outcome_notes import simple_methods
from pocketbert.training.run_folder import MODEL_FOLDER
from pocketbert_bench import machine
from pocketbert_bench.compression.candidates import StudentCandidate
from pocketbert_bench.compression.command_lines import CommandLines
from pocketbert_bench.compression.constraints import ROUNDING
from pocketbert_bench.compression.final_scores import class_notes, final_scores
from pocketbert_bench.compression.folds import FoldScores, pooled
from pocketbert_bench.compression.inputs import MIXED_RECIPE, Inputs
from pocketbert_bench.compression.lengths import padded_shares
from pocketbert_bench.compression.measurements import BundleMeasurements, Measured
from pocketbert_bench.compression.published import BUNDLE_FOLDER, kept_folders, link
from pocketbert_bench.compression.rungs import Rungs
from pocketbert_bench.compression.sources import soft_label_note
from pocketbert_bench.formats import faster
from pocketbert_bench.paired_scores import PairedScores, PartLoss, in_words, paired_loss, remembering
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.bundles.model_card import Latency, write_card
from pocketbert_export.exporter import export
from pocketbert_export.quantization.calibration_options import CalibrationOptions
from pocketbert_export.quantization.scored_texts import Loss
from pocketbert_export.verification.outcomes import ScoringData
from pocketbert_export.verification.verify import GateFailed

EXPORTS_FOLDER = "exports"
# Recipe for the teacher's bundle if its file would differ from it.
_EXACT = "float32"
# Another export may exceed the time by these parts of it: if there is a file that may be chosen, and if there is none.
_LATE, _LATEST = 0.05, 0.2


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Accepted:
    """A candidate with a file within the limits that passed the gate."""

    candidate: StudentCandidate
    bundle: Bundle
    measured: Measured


class Choice:
    """Exports candidates and chooses one.

    Args:
      inputs: the compression's input.
      folder: the compression's folder.
      teacher_ms: predicted latency of the teacher's bundle.
      spare_seconds: returns the time left after another export and the final scores; negative if they exceed the time.
    """

    def __init__(self, inputs: Inputs, folder: Path, teacher_ms: float, spare_seconds: Callable[[], float]) -> None:
        self._inputs, self._folder, self._spare_seconds = inputs, folder, spare_seconds
        limits = inputs.constraints
        self._measurements = BundleMeasurements(
            folder, inputs.shares, limits, device=inputs.device, minutes=inputs.minutes, teacher_ms=teacher_ms
        )
        self._misses: list[str] = []
        # Measured latency over the predicted one, corrected by the first measured candidate.
        self._ratio = 1.0
        # Candidate's name → why it is chosen instead of a slower one, or with other weights than its best ones.
        self._remarks: dict[str, str] = {}

    def export_teacher(self, model: Path, path: Path, timed: Callable[[], AbstractContextManager[None]]) -> None:
        """Exports the teacher, unless an earlier attempt did, and compares it with simple methods.

        If its file differs from the model, candidates are compared with its float32 file.

        Args:
          model: its model directory.
          path: its bundle's folder.
          timed: receives the duration of the export that passes the gate.
        Raises:
          GateFailed: the float32 file differs, too.
          TrainingFailed: a simple method is better, and the options stop the compression then.
        """
        # Candidates may have another length for short texts; comparisons do not need it.
        lengths = list(self._inputs.shares)
        try:
            with timed():
                self._teacher = self._export(model, path, self._inputs.recipe, lengths)
        except GateFailed as failure:
            log_info(f"the teacher's bundle is {_EXACT}, since as {self._inputs.recipe} it fails the gate: {failure}")
            with timed():
                self._teacher = self._export(model, path, _EXACT, lengths)
        if self._teacher_remark:
            self._measurements.teacher_ms = math.inf
        outcome = self.teacher_outcome
        methods = [Baseline(**method) for method in outcome["baselines"]]
        if self._inputs.is_teacher:
            methods += simple_methods(self._inputs.splits.data, outcome["metric"])
        better = max(methods, key=lambda method: method.score, default=None)
        if better is None or better.score <= outcome["score"]:
            return
        sentence = (
            f"the teacher is below the baseline: {outcome['metric']} {outcome['score']:.4f}, but {better.name} has "
            f"{better.score:.4f}; {better.remedy}"
        )
        if self._inputs.stop_below_baseline:
            raise TrainingFailed(sentence)
        log_info(f"warning: {sentence}")

    def answer_final_examples(self) -> None:
        """Lets the teacher's bundle answer the final examples: a candidate takes no longer later."""
        if (final := self._inputs.splits.final) is not None:
            ScoringData.of_dev(final).score(self._teacher_network)

    @property
    def teacher_outcome(self) -> dict[str, Any]:
        """Scores on the dev split for the teacher's bundle."""
        outcome = self._teacher.outcome
        assert outcome is not None
        return outcome

    def result(
        self,
        rungs: Rungs,
        candidates: Sequence[StudentCandidate],
        folds: Sequence[FoldScores],
        commands: CommandLines,
        aside: Path,
    ) -> dict[str, Any]:
        """Chooses, and returns the fields of `CompressResult` but for paths and seconds.

        Args:
          rungs: the trials.
          candidates: all candidates.
          folds: the folds' scores, as final scores; empty to score on the final split.
          commands: each row's commands.
          aside: folder that receives bundle and models, anew.
        Raises:
          TrainingFailed: no candidate met limits and gate.
        """
        winner = self._winner(rungs, candidates)
        inputs, measured = self._inputs, winner.measured
        shares = padded_shares(inputs.shares, winner.candidate.lengths)
        board = rungs.leaderboard(winner.candidate)
        models = kept_folders([(candidate, row) for candidate, row in board if rungs.has_weights(candidate)])
        shutil.rmtree(aside, ignore_errors=True)
        link(winner.bundle.directory, aside / BUNDLE_FOLDER)
        for candidate, path in models.items():
            link(rungs.model(candidate), aside / path)
        if winner.candidate.trimmed:
            link(self._model(rungs, winner.candidate), aside / MODEL_FOLDER)
        write_card(aside / BUNDLE_FOLDER, self._folder.absolute().name, self._latencies(measured))
        scores, loss, parts, small = (
            (*pooled(folds), [], "") if folds else final_scores(inputs, winner.bundle, self._teacher_network)
        )
        notes = [*class_notes(inputs, parts), self._reason(winner.candidate), measured.doubt, inputs.pairs_note]
        notes += [self._teacher_remark, small, *scores.warnings, soft_label_note(inputs.splits.data)]
        return {
            "main_metric": scores.main_metric,
            "metrics": dict(scores.metrics),
            "interval": list(scores.interval or (scores.score, scores.score)),
            "teacher_score": scores.teacher,
            "teacher_dev_score": self.teacher_outcome["score"],
            "points_lost": [loss.points, *loss.interval],
            "parts": [dataclasses.asdict(part) for part in parts],
            "latency_ms": list(measured.latency_ms),
            "teacher_latency_ms": measured.teacher_ms,
            "size_mb": measured.size_mb,
            "memory_mb": measured.memory_mb,
            "lengths": list(shares),
            "shares": list(shares.values()),
            "sentence": self._sentence(measured, scores, loss),
            "outcome": scores.outcome(),
            "notes": [note for note in notes if note],
            "leaderboard": [
                {
                    **row,
                    "model": models.get(candidate),
                    "commands": commands.of(candidate, trials) if trials else [],
                    "difference": commands.difference(candidate, trials),
                }
                for candidate, row in board
                for trials in [rungs.training(candidate)]
            ],
        }

    @property
    def _teacher_remark(self) -> str:
        """A remark if the teacher's bundle has another recipe than the candidates."""
        recipe, usual = self._teacher.recipe, self._inputs.recipe
        return "" if recipe == usual else f"the teacher's bundle is {recipe}, since as {usual} it fails the gate"

    def _latencies(self, measured: Measured) -> list[Latency]:
        """The latency for the model card; none if it is a mean over lengths."""
        inputs = self._inputs
        latency = Latency(
            length=inputs.length,
            threads=inputs.constraints.threads,
            median_ms=measured.latency_ms[0],
            runtime=measured.runtime,
            machine=inputs.device.name or machine.machine().cpu,
        )
        return [] if len(inputs.shares) > 1 else [latency]

    def _sentence(self, measured: Measured, scores: Scores, loss: Loss) -> str:
        """The answer in one line."""
        inputs = self._inputs
        seen = inputs.is_teacher and not inputs.final_is_given
        unread = "new examples, unless your model was trained on them" if seen else "examples that no choice has read"
        if inputs.folds:
            unread = f"examples in {len(inputs.folds)} folds" + (" that your model may know" if seen else "")
        # Folds score float models.
        teacher = "the teacher" if inputs.folds else "the teacher's bundle"
        side = "below" if loss.points >= 0 else "above"
        low, high = scores.interval or (scores.score, scores.score)
        sentence = (
            f"{measured.latency_ms[0]:.2f} ms {inputs.where}, {measured.size_mb:.1f} MB, "
            f"{scores.main_metric} {100 * scores.score:.1f} ± {50 * (high - low):.1f} on {scores.examples} {unread}, "
            f"{abs(loss.points):.1f} points {side} {teacher}, "
            f"{faster(measured.teacher_ms / measured.latency_ms[0], 1)}"
        )
        if now := self._measurements.misses_only_now(measured):
            sentence = f"{now}: {sentence}"
        most = inputs.constraints.max_points_lost
        if most is not None and loss.interval[1] > most + ROUNDING:
            sentence = f"{scores.examples} examples cannot show that at most {most:g} points are lost: {sentence}"
        if scores.verdict != "good":
            best = max(scores.baselines, key=lambda method: method.score, default=None)
            better = f" ({best.name} has {100 * best.score:.1f})" if best and best.score > scores.score else ""
            sentence = f"{VERDICT_WORDS[scores.verdict]}{better}: {sentence}"
        return sentence

    def _winner(self, rungs: Rungs, candidates: Sequence[StudentCandidate]) -> _Accepted:
        """The candidate to choose within the limits."""
        if self._inputs.constraints.max_points_lost is not None:
            return self._fastest_within_points(rungs, candidates)
        winner = next(self._accepted(rungs, rungs.preferred(candidates)), None)
        if winner is None:
            raise self._failed()
        return winner

    def _reason(self, candidate: StudentCandidate) -> str:
        """A remark on the choice of a candidate."""
        limits, remark = self._inputs.constraints, self._remarks.get(candidate.name, "")
        if limits.limits_costs or limits.max_points_lost is not None:
            return remark
        return "the fastest candidate within one standard error of the best dev score" + (remark and f"; {remark}")

    def _faster_of_equals(self, rungs: Rungs, first: StudentCandidate, second: StudentCandidate) -> bool:
        """Whether the second one is faster, and the dev examples do not tell them apart; this needs no file."""
        limits, examples = self._inputs.constraints, self._inputs.compared
        faster = second.cost.latency_ms < first.cost.latency_ms
        if not faster or not limits.limits_costs or limits.max_points_lost is not None:
            return False
        best, other = (
            model_predictor(from_pretrained(rungs.model(candidate)), max_length=self._inputs.length)
            for candidate in (first, second)
        )
        loss = paired_loss(best, other, examples, self.teacher_outcome["metric"])
        if loss.interval[0] > 0:
            return False
        self._remarks[second.name] = (
            f"{len(examples)} dev examples do not tell this candidate from {first.name}, which is slower: "
            f"it {in_words(loss.points, loss.interval)}, with its 95 % interval; so the faster one is chosen"
        )
        return True

    def _fastest_within_points(self, rungs: Rungs, candidates: Sequence[StudentCandidate]) -> _Accepted:
        teacher = self.teacher_outcome["score"]
        for accepted in self._accepted(rungs, rungs.preferred(candidates)):
            assert accepted.bundle.outcome is not None
            score = accepted.bundle.outcome["score"]
            if score >= self._inputs.constraints.least_score(teacher):
                return accepted
            lost = 100 * (teacher - score)
            self._miss(f"{accepted.candidate.name}: its file loses {lost:.1f} points on the dev split")
        ranked = rungs.ranked(candidates)
        if not ranked:
            # The gate has refused all.
            raise self._failed()
        least = 100 * (teacher - rungs.score(ranked[0]))
        raise self._failed(f"the nearest, {ranked[0].name}, loses {least:.1f} points on the dev split")

    def _failed(self, nearest: str = "") -> TrainingFailed:
        """The error for a compression without a winner."""
        reasons = "; ".join([*([nearest] if nearest else []), *self._misses])
        return TrainingFailed(
            f"no trained candidate met limits and gate: {reasons}; raise the limit, use a smaller encoder, or give "
            f"more time ({argument('minutes')})"
        )

    def _accepted(self, rungs: Rungs, ordered: Sequence[StudentCandidate]) -> Iterator[_Accepted]:
        """Exports and measures candidates in order; yields those that pass the gate within the limits.

        After a failed gate, a candidate is tried again with weights from an earlier rung. Candidates that are too slow
        only because the machine has become slower come last, or if it is too late for others.
        """
        limits, waiting = self._inputs.constraints, list(ordered)
        uncertain, exported = list[_Accepted](), False
        while waiting and not (exported and self._is_late(_LATE if uncertain else _LATEST)):
            faster = len(waiting) > 1 and self._faster_of_equals(rungs, *waiting[:2])
            candidate = waiting.pop(1 if faster else 0)
            predicted = dataclasses.replace(candidate.cost, latency_ms=self._ratio * candidate.cost.latency_ms)
            if limits.excess(predicted):
                self._miss(f"{candidate.name}: about {predicted.latency_ms:.3g} ms by measurement of another")
                continue
            exported = True
            try:
                # An attempt with a smaller budget may have exported it before it trained further.
                path = self._folder / EXPORTS_FOLDER / f"{candidate.name},rung={rungs.best_rung(candidate)}"
                bundle = self._export(self._model(rungs, candidate), path, candidate.recipe, candidate.lengths)
            except GateFailed as failure:
                self._miss(f"{candidate.name}: {failure}")
                better = f"other weights, with {rungs.refuse(candidate):.4f} on the dev split, fail the gate: {failure}"
                self._remarks.setdefault(candidate.name, better)
                waiting = rungs.preferred([candidate, *waiting])
                continue
            measured = self._measurements.of(candidate.name, bundle, self._teacher)
            accepted = _Accepted(candidate=candidate, bundle=bundle, measured=measured)
            now = self._measurements.misses_only_now(measured)
            within = not limits.excess(measured.upper)
            if (within or now) and (worst := self._class_beyond(bundle)):
                self._miss(f"{candidate.name}: {worst} of the dev split")
                continue
            if within:
                yield accepted
                continue
            uncertain += [accepted] if now else []
            memory = "" if limits.max_memory_mb is None else f", {measured.memory_mb:.3g} MB of memory"
            self._miss(
                f"{candidate.name}: {measured.latency_ms[2]:.3g} ms, {measured.size_mb:.3g} MB{memory} by measurement"
            )
            self._ratio = max(self._ratio, measured.latency_ms[2] / candidate.cost.latency_ms)
        yield from uncertain
        if waiting:
            self._misses.append("the time was over before all candidates were exported")

    def _is_late(self, share: float) -> bool:
        """Whether another export would exceed the time by more than a part of it."""
        return self._spare_seconds() < -share * 60 * (self._inputs.minutes or 0)

    @functools.cached_property
    def _teacher_network(self) -> Predictor:
        """The teacher's bundle; it computes dev and final split once."""
        return remembering(self._teacher.predictor(max_length=self._inputs.length))

    def _class_beyond(self, bundle: Bundle) -> PartLoss | None:
        """The class with the largest loss on the dev split, if it is beyond the limit."""
        most, dev = self._inputs.constraints.max_class_points_lost, self._inputs.splits.data.dev
        if most is None:
            return None
        network = bundle.predictor(max_length=self._inputs.length)
        parts, _ = PairedScores((self._teacher_network, network), dev, self.teacher_outcome["metric"]).parts()
        return next((part for part in parts if part.points > most + ROUNDING), None)

    def _miss(self, sentence: str) -> None:
        self._misses.append(sentence)
        log_info(f"{sentence}; beyond the limits")

    def _model(self, rungs: Rungs, candidate: StudentCandidate) -> Path:
        """Model directory for a candidate's file, perhaps with a trimmed vocabulary."""
        if not candidate.trimmed:
            return rungs.model(candidate)
        # As for exports: another rung has other weights.
        path = self._folder / EXPORTS_FOLDER / f"{candidate.name},rung={rungs.best_rung(candidate)},trimmed"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            write_trimmed_model(rungs.model(candidate), self._inputs.kept_tokens, path)
        return path

    def _export(self, model: Path, path: Path, recipe: str, lengths: Sequence[int]) -> Bundle:
        if path.exists():
            return Bundle.open(path)
        path.parent.mkdir(exist_ok=True)
        inputs = self._inputs
        most = inputs.constraints.max_mb if recipe == MIXED_RECIPE else None
        return export(
            model,
            path,
            recipe=recipe,
            lengths=lengths,
            examples=inputs.splits.data,
            card=inputs.bundle_card,
            calibration_options=CalibrationOptions(max_mb=most),
        )
