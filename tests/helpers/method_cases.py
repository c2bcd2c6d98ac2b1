"""Which method is checked with which kind of data."""

from __future__ import annotations

from typing import Any

import pytest

from pocketbert.conformance.cases import kinds
from pocketbert.distillation.methods import names

CASES = [pytest.param(method, kind, id=f"{method}-{kind}") for method in names() for kind in kinds(method)]


def cases(*excluded: str) -> Any:
    """Every method with one kind of data, which is not excluded; with its other kinds it is nightly."""
    chosen: dict[str, list[Any]] = {name: [] for name in names()}
    for case in CASES:
        name, kind = case.values
        if kind not in excluded:
            nightly = [pytest.mark.nightly] if chosen[str(name)] else []
            chosen[str(name)].append(pytest.param(name, kind, id=case.id, marks=nightly))
    return pytest.mark.parametrize(("name", "kind"), [case for of_method in chosen.values() for case in of_method])


each_method = cases()


# What does not depend on what the task's head is, too.
each_kind_of_data = cases("regression")


# Pretraining masks anew in each epoch, so a teacher's outputs cannot be cached.
each_kind_of_stored_data = cases("regression", "pretraining")
