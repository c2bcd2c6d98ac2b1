"""The choice: exports of the best candidates until one is within the limits, and its scores on the final split."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pocketbert.errors import TrainingFailed
from pocketbert.progress import log_info
from pocketbert.training.run_folder import MODEL_FOLDER
from pocketbert_bench.compression.candidates import StudentCandidate
from pocketbert_bench.compression.costs import Cost, CostModel
from pocketbert_bench.compression.inputs import Inputs
from pocketbert_bench.compression.outcome import Measured, measure, paired_loss
from pocketbert_bench.compression.rungs import Rungs
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.exporter import export
from pocketbert_export.verification.outcomes import ScoringData
from pocketbert_export.verification.verify import GateFailed

BUNDLE_FOLDER, EXPORTS_FOLDER = "bundle", "exports"
# Share of the limit by which a busy machine may miss it.
_NEAR = 0.1


class Choice:
    """Exports candidates and chooses one.

    Args:
      inputs: the input of the compression.
      folder: folder of the compression.
      costs: the predictions, which the first measured candidate corrects.
    """

    def __init__(self, inputs: Inputs, folder: Path, costs: CostModel) -> None:
        self._inputs, self._folder, self._costs = inputs, folder, costs

    def export_teacher(self, model: Path, path: Path) -> None:
        """Exports the teacher, unless an earlier attempt did.

        Raises:
          GateFailed: its file differs from the model.
        """
        self._teacher = self._export(model, path)

    def result(self, rungs: Rungs, ranked: Sequence[StudentCandidate]) -> dict[str, Any]:
        """Chooses, and returns the fields of `CompressResult` but for paths and seconds.

        Args:
          rungs: the trials.
          ranked: candidates with a score, the best first.

        Raises:
          TrainingFailed: no candidate met limits and gate.
        """
        winner, bundle, measured = self._first_within(rungs, ranked)
        for name, source in ((BUNDLE_FOLDER, bundle.directory), (MODEL_FOLDER, rungs.model(winner))):
            shutil.rmtree(self._folder / name, ignore_errors=True)
            shutil.copytree(source, self._folder / name)
        bundle = Bundle.open(self._folder / BUNDLE_FOLDER)
        final = self._inputs.splits.final
        examples = ScoringData(
            data=final.dev, metrics=tuple(final.metrics) or None, main_metric=final.main_metric or None
        )
        longest = {"max_length": max(bundle.lengths)}
        scores, _ = examples.score(bundle.predictor(**longest))
        of_teacher, _ = examples.score(self._teacher.predictor(**longest))
        loss = paired_loss(self._teacher, bundle, final, scores.main_metric)
        side = "below" if loss.points >= 0 else "above"
        seen = self._inputs.is_teacher and not self._inputs.final_is_given
        unread = "new examples, unless your model was trained on them" if seen else "examples that no choice has read"
        sentence = (
            f"{measured.latency_ms[0]:.2f} ms at {self._inputs.length} tokens, {measured.size_mb:.1f} MB, "
            f"{scores.main_metric} {100 * scores.score:.1f} on {scores.examples} {unread}, "
            f"{abs(loss.points):.1f} points {side} the teacher's bundle, "
            f"{measured.teacher_ms / measured.latency_ms[0]:.1f} times faster"
        )
        return {
            "main_metric": scores.main_metric,
            "metrics": dict(scores.metrics),
            "interval": list(scores.interval or (scores.score, scores.score)),
            "teacher_score": of_teacher.score,
            "points_lost": [loss.points, *loss.interval],
            "latency_ms": list(measured.latency_ms),
            "teacher_latency_ms": measured.teacher_ms,
            "size_mb": measured.size_mb,
            "length": self._inputs.length,
            "sentence": sentence,
            "leaderboard": rungs.leaderboard(winner, self._inputs.setting.recipe),
        }

    def _first_within(
        self, rungs: Rungs, ranked: Sequence[StudentCandidate]
    ) -> tuple[StudentCandidate, Bundle, Measured]:
        """Exports and measures candidates, the best first, until one passes the gate within the limits."""
        limits, misses, ratio = self._inputs.constraints, [], 1.0
        for candidate in ranked:
            predicted = Cost(latency_ms=ratio * candidate.cost.latency_ms, size_mb=candidate.cost.size_mb)
            if limits.excess(predicted):
                misses.append(f"{candidate.name}: about {predicted.latency_ms:.3g} ms by measurement of another")
                continue
            try:
                bundle = self._export(rungs.model(candidate), self._folder / EXPORTS_FOLDER / candidate.name)
            except GateFailed as failure:
                misses.append(f"{candidate.name}: {failure}")
                log_info(misses[-1])
                continue
            measured = measure(bundle, self._teacher, self._inputs.length, limits.threads)
            if 0 < limits.excess(Cost(latency_ms=measured.latency_ms[2], size_mb=0.0)) < _NEAR:
                log_info(f"{candidate.name}: {measured.latency_ms[2]:.3g} ms is just beyond the limit: measuring again")
                # Other programs only add time.
                again = measure(bundle, self._teacher, self._inputs.length, limits.threads)
                measured = min(measured, again, key=lambda one: one.latency_ms)
            if not limits.excess(Cost(latency_ms=measured.latency_ms[2], size_mb=measured.size_mb)):
                return candidate, bundle, measured
            misses.append(f"{candidate.name}: {measured.latency_ms[2]:.3g} ms, {measured.size_mb:.3g} MB")
            log_info(f"{misses[-1]}, beyond the limit by measurement")
            ratio = max(ratio, measured.latency_ms[2] / candidate.cost.latency_ms)
        raise TrainingFailed(
            f"no trained candidate met limits and gate: {'; '.join(misses)}; raise the limit, or use a smaller encoder"
        )

    def _export(self, model: Path, path: Path) -> Bundle:
        if path.exists():
            return Bundle.open(path)
        path.parent.mkdir(exist_ok=True)
        data = self._inputs.splits.data
        return export(model, path, recipe=self._inputs.setting.recipe, lengths=self._inputs.lengths, examples=data)
