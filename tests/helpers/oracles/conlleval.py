"""Span scores by the rules of the script conlleval, for the tags B, I and O.

Source: the script of CoNLL-2000 (Tjong Kim Sang and Buchholz 2000), functions endOfChunk and startOfChunk and the loop
that calls them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def _parts(tag: str) -> tuple[str, str]:
    prefix, _, kind = tag.partition("-")
    return prefix, kind


def _ends(before: str, after: str) -> bool:
    (first, kind), (second, other) = _parts(before), _parts(after)
    return first != "O" and (second in "BO" or kind != other)


def _starts(before: str, after: str) -> bool:
    (first, kind), (second, other) = _parts(before), _parts(after)
    return second == "B" or (second == "I" and (first == "O" or kind != other))


def scores(right: Sequence[Sequence[str]], guessed: Sequence[Sequence[str]]) -> dict[str, dict[str, float]]:
    """Precision, recall and F1 by type, and over all types with the accuracy of all tags (key "").

    One pass over the words, as in the script: a chunk is correct if both sequences start it at the same word with the
    same type, and neither ends before the other.
    """
    correct, predicted, labelled = Counter[str](), Counter[str](), Counter[str]()
    same = total = 0
    for sentence, guess in zip(right, guessed, strict=True):
        before, before_guess, inside = "O", "O", False
        # Each sentence ends with a boundary.
        for tag, guess_tag in zip([*sentence, "O"], [*guess, "O"], strict=True):
            kind, own_kind = _parts(tag)[1], _parts(guess_tag)[1]
            if inside:
                ended, own_ended = _ends(before, tag), _ends(before_guess, guess_tag)
                if ended and own_ended and _parts(before)[1] == _parts(before_guess)[1]:
                    inside = False
                    correct[_parts(before)[1]] += 1
                elif ended != own_ended or kind != own_kind:
                    inside = False
            started, own_started = _starts(before, tag), _starts(before_guess, guess_tag)
            inside = inside or (started and own_started and kind == own_kind)
            labelled[kind] += started
            predicted[own_kind] += own_started
            before, before_guess = tag, guess_tag
        same += sum(tag == predicted_tag for tag, predicted_tag in zip(sentence, guess, strict=True))
        total += len(sentence)
    kinds = sorted({*labelled, *predicted} - {""})
    results = {kind: _of(correct[kind], predicted[kind], labelled[kind]) for kind in kinds}
    everything = _of(*(sum(counts[kind] for kind in kinds) for counts in (correct, predicted, labelled)))
    return {**results, "": {**everything, "accuracy": same / total}}


def _of(correct: int, predicted: int, labelled: int) -> dict[str, float]:
    precision, recall = correct / predicted if predicted else 0.0, correct / labelled if labelled else 0.0
    f1 = 2 * precision * recall / (precision + recall) if correct else 0.0
    return {"precision": precision, "recall": recall, "f1": f1}
