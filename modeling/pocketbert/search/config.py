"""Options and result for a search. Fields become flags and docs. Nothing here imports TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pocketbert.errors import raise_if_any
from pocketbert.options import option_problems

# Stage → what it searches (EfficientBERT, section 3.2).
STAGES = {1: "operations, stacks and widths", 2: "operations", 3: "stacks and widths"}
# Defaults for options that are None. The paper's are from section 4.3; table 6 counts the candidates.
_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "quick": {
        "stages": (1, 2),
        "candidates": (40, 20, 100),
        "supernet_epochs": 10,
        "candidate_epochs": 1,
        "candidate_share": 0.5,
        "score_share": 0.2,
        "stage3_score_share": 0.2,
        "left_out_share": 0.0,
        "candidate_text_share": 0.0,
        "batch_size": 32,
        "text_batch_size": 32,
        "retrained": 0,
    },
    "paper": {
        "stages": (1, 2, 3),
        "candidates": (1900, 100, 3000),
        "supernet_epochs": 10,
        "candidate_epochs": 3,
        "candidate_share": 0.1,
        "score_share": 0.01,
        "stage3_score_share": 0.1,
        "left_out_share": 0.1,
        "candidate_text_share": 0.02,
        "batch_size": 256,
        "text_batch_size": 256,
        "retrained": 8,
    },
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """Options to search for feed-forward networks (EfficientBERT, Dong et al. 2021, sections 3.2 and 4.3).

    The search first warms up a supernet: the base architecture with the most stacks and the full width. Each candidate
    starts from slices of it, trains briefly on some examples, and is scored on others. Stage 2 starts from the winner.

    Stage 3 warms up another supernet, with the operations of the stage 2 winner, and trains it with one random
    candidate per step. It scores candidates with slices of these weights, without further training.

    Departures: the seed draws the examples to train on and to score on; the authors take the first 10 % and the last
    1 %, in stage 3 the last 10 %. Without plain text, supernets are warmed up and candidates trained on the task's
    examples only. The stage 3 supernet trains on the searched task and on other tasks that you give; the paper combines
    all GLUE tasks. Each task has its own teacher; the paper has one for all. Stages 1 and 2 score on examples among
    those for stage 3, so no supernet learns from any of them.

    Attributes:
      method: search method: `efficientbert`.
      preset: source of defaults: `quick` for small data and small machines, or `paper`.
      stages: stages to run: 1 searches operations, stacks and widths, 2 operations only, 3 stacks and widths only
        (default: quick 1,2; paper 1,2,3).
      candidates: maximum candidates in each stage (default: quick 40,20,100; paper 1900,100,3000).
      minutes: time for all candidates; after it, no further candidate starts.
      supernet_epochs: passes over the data to warm up a supernet, and to train it in stage 3 (default: 10).
      candidate_epochs: each candidate's passes over its examples (default: quick 1, paper 3).
      candidate_share: share of training examples for training candidates (default: quick 0.5, paper 0.1).
      score_share: share of training examples for scoring candidates (default: quick 0.2, paper 0.01).
      stage3_score_share: share of training examples for scoring stage 3 candidates (default: quick 0.2, paper 0.1).
      left_out_share: share of other tasks' examples to hide from the stage 3 supernet (default: quick 0, paper 0.1).
      candidate_text_share: share of the plain text for training candidates, before their examples, for one pass
        (default: quick 0, paper 0.02).
      retrained: candidates to train again for `supernet_epochs`, spread evenly from the best score to the worst; with
        stage 3, only from stage 3. The report shows Kendall's rank correlation between both scores, as in figure 3
        (default: quick 0, paper 8).
      batch_size: batch size on examples (default: quick 32, paper 256).
      text_batch_size: batch size on plain text (default: quick 32, paper 256).
      learning_rate: peak learning rate on examples (paper).
      text_learning_rate: peak learning rate on plain text (paper).
      max_length: maximum sequence length.
      seed: seed for the search, new weights and example order.
    """

    GROUP: ClassVar = "Search"
    COMMON: ClassVar = ("method", "preset", "candidates", "minutes", "max_length", "seed")

    method: Literal["efficientbert"] = "efficientbert"
    preset: Literal["quick", "paper"] = "quick"
    stages: tuple[int, ...] = ()
    candidates: tuple[int, ...] = ()
    minutes: float | None = None
    supernet_epochs: int | None = None
    candidate_epochs: int | None = None
    candidate_share: float | None = None
    score_share: float | None = None
    stage3_score_share: float | None = None
    left_out_share: float | None = None
    candidate_text_share: float | None = None
    retrained: int | None = None
    batch_size: int | None = None
    text_batch_size: int | None = None
    learning_rate: float = 4e-4
    text_learning_rate: float = 1e-4
    max_length: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        problems = option_problems(self, may_be_zero=("seed", "left_out_share", "candidate_text_share", "retrained"))
        raise_if_any(problems, "search options")
        presets, stages = tuple(STAGES), self.stages or _PRESETS[self.preset]["stages"]
        if tuple(sorted(set(stages))) != stages or not set(stages) <= set(presets):
            problems.append(f"stages must be ascending numbers from {presets}; received {stages}")
        if self.candidates and len(self.candidates) != len(stages):
            problems.append(f"candidates must be one number per stage, {len(stages)}; received {len(self.candidates)}")
        if any(count < 1 for count in self.candidates):
            problems.append(f"candidates must be positive; received {self.candidates}")
        part, *scores = self.resolved_shares
        if not problems and not (0 < part < 1 and all(0 < score < 1 for score in scores) and part + max(scores) <= 1):
            problems.append(
                "candidate_share, score_share and stage3_score_share must lie between 0 and 1, and the first one and "
                f"the larger of the others add up to at most 1; received {part}, {scores[0]} and {scores[1]}"
            )
        for name in ("left_out_share", "candidate_text_share"):
            if (share := getattr(self, name)) is not None and share >= 1:
                problems.append(f"{name} must lie in [0, 1); received {share}")
        raise_if_any(problems, "search options")

    @property
    def resolved_shares(self) -> tuple[float, float, float]:
        """Shares of the training examples for candidates, for scores, and for stage 3 scores."""
        part, score, stage_3 = (
            _PRESETS[self.preset][name] if getattr(self, name) is None else getattr(self, name)
            for name in ("candidate_share", "score_share", "stage3_score_share")
        )
        return part, score, stage_3

    def resolved(self) -> SearchConfig:
        """Returns a copy with the preset's values for missing options."""
        values = dict(_PRESETS[self.preset])
        values["candidates"] = tuple(values["candidates"][stage - 1] for stage in self.stages or values["stages"])
        missing = {name: value for name, value in values.items() if getattr(self, name) in (None, ())}
        return dataclasses.replace(self, **missing)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchResult:
    """Result of a finished search.

    Attributes:
      student_config: path to the best architecture, a config.json for `distill`.
      supernet: model directory of the best candidate's supernet, for `distill`.
      main_metric: metric of the scores.
      metrics: the best candidate's metrics on the examples for scores.
      best: the best candidate's stage and index, its expressions (`genotype`), `score` and `costs`.
      front: the same for all candidates that no other one beats in both score and cost, from cheap to expensive; after
        stage 3 only for its candidates, since their scores have another meaning.
      cost: name of that cost.
      candidates: scored candidates in each stage.
      failed: candidates with failed training.
      retrained: stage and index, `score` and score after the second training (`retrained`), for retrained candidates.
      kendall_tau: rank correlation between both scores, from -1 to 1; None if fewer than two differ.
      seconds: candidate time over all attempts, without supernets and second trainings.
    """

    student_config: str
    supernet: str
    main_metric: str
    metrics: dict[str, float]
    best: dict[str, Any]
    front: list[dict[str, Any]]
    cost: str
    candidates: list[int]
    failed: int
    retrained: list[dict[str, Any]]
    kendall_tau: float | None
    seconds: float
