"""Whether the engine says what the oracle says."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

import engine
from tests import oracle, reference
from tests.properties.worlds import Execution, Files, Model, System

STATISTICS = reference.golden_statistics()
FIELDS = reference.golden_fields()


def frame(executions: Sequence[Execution]) -> pd.DataFrame:
    return pd.DataFrame(list(executions), columns=FIELDS)


def assert_same(one: pd.DataFrame, other: pd.DataFrame) -> None:
    """Every value is the same, to the last bit; which is told column by column only where it is not so."""
    if not one.equals(other):
        pd.testing.assert_frame_equal(one, other, check_exact=True)


def assert_engine_agrees(model: Model, system: System, executions: Sequence[Execution], files: Files) -> int:
    """Evaluates all executions both ways and compares every row; returns how many run."""
    found = engine.evaluate(files.path(model), files.path(system), frame(executions))
    assert len(found) == len(executions)
    running = 0
    names = ["status", "reason", "reason_text", *STATISTICS]
    rows = zip(*(found[name].tolist() for name in names), strict=True)
    for execution, values in zip(executions, rows, strict=True):
        row = dict(zip(names, values, strict=True))
        outcome = oracle.evaluate(model, system, execution)
        place = f"\nmodel = {model}\nsystem = {system}\nexecution = {execution}"
        said = (row["status"], row["reason"])
        if outcome[0] != "ok":
            assert said == outcome[:2], f"engine says {said}, {row['reason_text']!r}; oracle {outcome}{place}"
            continue
        assert said == ("ok", ""), f"engine says {said}, {row['reason_text']!r}; oracle ok{place}"
        running += 1
        for name, want in outcome[1].items():
            assert agree(row[name], want), f"{name}: engine {row[name]!r}, oracle {want!r}{place}"
    return running


def agree(got: float, want: float | None) -> bool:
    """Equal within 1e-9 of the value; a missing figure is NaN, an infinite one the same infinity."""
    if want is None:
        return math.isnan(got)
    if math.isinf(want):
        return got == want
    return abs(got - want) <= 1e-9 * abs(want)
