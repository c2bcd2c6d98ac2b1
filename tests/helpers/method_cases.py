"""Which method is checked with which kind of data."""

from __future__ import annotations

from typing import Any

import pytest

from pocketbert.conformance.cases import kinds
from pocketbert.distillation.methods import names

CASES = [pytest.param(method, kind, id=f"{method}-{kind}") for method in names() for kind in kinds(method)]


def cases(*excluded: str, one_a_method: bool = False) -> Any:
    """Every method with everything that it is given, but for some kinds; or the others of a method are nightly."""
    chosen: dict[str, list[Any]] = {name: [] for name in names()}
    for case in CASES:
        name, kind = case.values
        if kind not in excluded:
            nightly = [pytest.mark.nightly] if one_a_method and chosen[str(name)] else []
            chosen[str(name)].append(pytest.param(name, kind, id=case.id, marks=nightly))
    return pytest.mark.parametrize(("name", "kind"), [case for of_method in chosen.values() for case in of_method])


each_case = cases()


# What takes seconds.
each_method = cases(one_a_method=True)


# What does not depend on what the task's head is, too.
each_kind_of_data = cases("regression", one_a_method=True)


# Pretraining masks anew in each epoch, so a teacher's outputs cannot be cached.
each_kind_of_stored_data = cases("regression", "pretraining")
