"""Layer maps, compared with sections 4.2 and 4.6 in the TinyBERT paper."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace

import pytest

from pocketbert import UserError
from pocketbert.distillation import layer_maps


@pytest.mark.parametrize(
    ("teacher", "student", "expected"),
    [
        (12, 4, (3, 6, 9, 12)),  # g(m) = 3m, section 4.2
        (12, 6, (2, 4, 6, 8, 10, 12)),
        (6, 3, (2, 4, 6)),
        (6, 4, (2, 3, 5, 6)),  # 1.5 and 4.5 go up
        (6, 6, (1, 2, 3, 4, 5, 6)),
        (12, 5, (2, 5, 7, 10, 12)),  # 2.4, 4.8, 7.2, 9.6
        (7, 1, (7,)),
    ],
)
def test_uniform(teacher: int, student: int, expected: tuple[int, ...]) -> None:
    assert layer_maps.uniform(student, teacher) == expected


def test_uniform_rounds_for_all_depths() -> None:
    for teacher in range(1, 25):
        for student in range(1, teacher + 1):
            exact = [Fraction(m * teacher, student) for m in range(1, student + 1)]
            rounded = tuple(int(x + Fraction(1, 2)) for x in exact)  # int() cuts off, so halves go up
            layers = layer_maps.uniform(student, teacher)
            assert layers == rounded
            assert len(set(layers)) == student and layers[-1] == teacher


def test_top_and_bottom() -> None:
    # g(m) = m + N − M and g(m) = m, section 4.6.
    assert layer_maps.last(4, 12) == (9, 10, 11, 12)
    assert layer_maps.first(4, 12) == (1, 2, 3, 4)


@pytest.mark.parametrize("strategy", [layer_maps.uniform, layer_maps.first, layer_maps.last])
def test_deeper_student_is_refused(strategy: object) -> None:
    with pytest.raises(UserError, match="received 5 for a teacher with 3"):
        strategy(5, 3)  # type: ignore[operator]
    with pytest.raises(UserError, match="received 0 for a teacher with 3"):
        strategy(0, 3)  # type: ignore[operator]


def test_explicit() -> None:
    assert layer_maps.explicit([2, 5, 6], 3, 6) == (2, 5, 6)
    assert layer_maps.explicit([6, 6, 1], 3, 6) == (6, 6, 1)
    with pytest.raises(UserError) as refusal:
        layer_maps.explicit([0, 5, 6, 9], 3, 6)
    # Both problems in one message.
    assert "each of the student's 3 layers; received 4: 0,5,6,9" in str(refusal.value)
    assert "teacher layers must be 1 to 6; received 0,9" in str(refusal.value)


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        ("uniform", (4, 8, 12)),
        ("top", (10, 11, 12)),
        ("bottom", (1, 2, 3)),
        ("1,5,12", (1, 5, 12)),
        ("2, 3,4", (2, 3, 4)),
    ],
)
def test_named(mapping: str, expected: tuple[int, ...]) -> None:
    assert layer_maps.named(mapping, 3, 12) == expected


@pytest.mark.parametrize("mapping", ["middle", "", "1;2;3", "1,2,", "1.5,2,3"])
def test_unknown_names_are_refused(mapping: str) -> None:
    with pytest.raises(UserError, match="uniform, top, bottom, or layers such as"):
        layer_maps.named(mapping, 3, 12)


def test_pairs_follow_the_requests() -> None:
    stage = SimpleNamespace(
        teacher_features={"hidden_states": (0, 4, 4), "logits": ()},
        student_features={"hidden_states": (0, 2, 3), "logits": ()},
    )
    targets = layer_maps.layer_targets(stage, {"hidden_states": ["e", "f", "f"]}, ("hidden_states", "keys"))
    assert targets == {"hidden_states_0": "e", "hidden_states_4": "f"}
    pairs = list(layer_maps.layer_pairs("hidden_states", stage, {"hidden_states": ["a", "b", "c"]}, targets))
    assert pairs == [(0, "a", "e"), (2, "b", "f"), (3, "c", "f")]
    assert list(layer_maps.layer_pairs("attention_logits", stage, {}, targets)) == []
