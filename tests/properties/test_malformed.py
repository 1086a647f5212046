"""Values no execution can have: each is refused by itself, with a reason, and the rows beside it are not touched."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine
from engine.executions import reasons
from tests.properties import worlds
from tests.properties.comparison import FIELDS, frame
from tests.texts import any_text

BOOLEANS = [name for name in FIELDS if name not in worlds.INTEGERS and name not in worlds.WORDS]
RUBBISH: tuple[Any, ...] = (
    None,
    float("nan"),
    pd.NA,
    pd.NaT,
    float("inf"),
    -float("inf"),
    "",
    "8",
    "true",
    "false",
    b"8",
    2.5,
    1e300,
    2**63,
    2**64,
    -(2**63),
    10**400,
    1 + 2j,
    Decimal("3.5"),
    [],
    [1],
    {},
    (1, 2),
    object(),
    np.float32("nan"),
    pd.Timestamp(0),
    -5,
    "ünï",
    "float16\x00",
    " float16",
)


Good = tuple[str, str, list[worlds.Execution], pd.DataFrame]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Good:
    """(model, system, four executions that run, what the engine says about them)."""
    files = worlds.Files(Path(tmp_path_factory.mktemp("drawn")))
    random = Random("rubbish")
    shape, machine = worlds.model(random), worlds.system(random)
    model, system = files.path(shape), files.path(machine)
    drawn = [worlds.execution(random, shape, machine, broken=0) for _ in range(200)]
    found = engine.evaluate(model, system, frame(drawn))
    running = [each for each, status in zip(drawn, found["status"], strict=True) if status == "ok"][:4]
    assert len(running) == 4
    return model, system, running, engine.evaluate(model, system, frame(running))


def _with(executions: list[worlds.Execution], changes: dict[tuple[int, str], Any]) -> pd.DataFrame:
    """The executions as columns of Python objects, with some values replaced."""
    return pd.DataFrame(
        {
            name: pd.Series([changes.get((row, name), each[name]) for row, each in enumerate(executions)], dtype=object)
            for name in FIELDS
        }
    )


COMPARED = ["status", "reason", "reason_text", "total_time", "proc_mem_tier1_cap_req", "sample_rate"]


def _assert_refused(row: pd.Series, name: str, value: Any) -> None:
    assert row["status"] == "invalid", (name, value, row["status"])
    assert row["reason"] in reasons.BY_CODE
    assert name in row["reason_text"], (name, value, row["reason_text"])


@pytest.mark.parametrize("names", [FIELDS[start : start + 4] for start in range(0, len(FIELDS), 4)], ids=" ".join)
def test_rubbish_in_a_field_is_refused_and_spoils_nothing_else(good: Good, names: list[str]) -> None:
    model, system, executions, clean = good
    # One row per field between good ones; each field has the first row in its turn, for what comes first may decide how
    # a column is read.
    several, rows = [executions[row % 4] for row in range(8)], [0, 2, 4, 6]
    others = [1, 3, 5, 7]
    expected = clean.loc[[row % 4 for row in others], COMPARED].set_axis(others)
    for number, value in enumerate((None, float("nan"), (1, 2), "8", [1], float("inf"), np.float32("nan"), 10**400)):
        places = dict(zip(names, np.roll(rows, number).tolist(), strict=False))
        found = engine.evaluate(model, system, _with(several, {(place, name): value for name, place in places.items()}))
        for name, place in places.items():
            _assert_refused(found.iloc[place], name, value)
        pd.testing.assert_frame_equal(found.loc[others, COMPARED], expected)


@pytest.mark.parametrize("name", FIELDS)
def test_all_rubbish_in_one_column_is_refused_row_by_row(good: Good, name: str) -> None:
    model, system, executions, clean = good
    several = [executions[row % 4] for row in range(len(RUBBISH) + 4)]
    found = engine.evaluate(model, system, _with(several, {(4 + n, name): value for n, value in enumerate(RUBBISH)}))
    for number, value in enumerate(RUBBISH):
        _assert_refused(found.iloc[4 + number], name, value)
    pd.testing.assert_frame_equal(found.loc[:3, COMPARED], clean[COMPARED])


@given(
    changes=st.dictionaries(
        st.tuples(st.integers(0, 3), st.sampled_from(FIELDS)),
        st.sampled_from(RUBBISH) | st.integers() | st.floats() | any_text(max_size=5),
        max_size=8,
    )
)
def test_any_mixture_of_rubbish_gives_an_answer(good: Good, changes: dict[tuple[int, str], Any]) -> None:
    model, system, executions, _ = good
    found = engine.evaluate(model, system, _with(executions, changes))
    assert len(found) == len(executions)
    assert set(found["status"]) <= {"ok", "infeasible", "invalid"}
    assert (found["reason_text"].astype(str).str.len() > 10).eq(found["status"] != "ok").all()


@pytest.mark.parametrize("name", FIELDS)
def test_a_missing_column_is_named(good: Good, name: str) -> None:
    model, system, executions, _ = good
    with pytest.raises(ValueError, match=name):
        engine.evaluate(model, system, frame(executions).drop(columns=name))


@pytest.mark.parametrize("name", BOOLEANS)
@pytest.mark.parametrize("text", ["true", "false", "True", "no", ""])
def test_truth_is_not_read_from_text(good: Good, name: str, text: str) -> None:
    """Calculon takes every non-empty text for true."""
    model, system, executions, _ = good
    found = engine.evaluate(model, system, frame([{**executions[0], name: text}]))
    assert found.loc[0, "reason"] == "not_a_boolean"


@pytest.mark.parametrize("name", ["tensor_par_net", "pipeline_par_net", "data_par_net"])
def test_networks_are_not_counted_from_the_end(good: Good, name: str) -> None:
    """Calculon takes -1 for the last tier."""
    model, system, executions, _ = good
    found = engine.evaluate(model, system, frame([{**executions[0], name: -1}]))
    assert (found.loc[0, "status"], found.loc[0, "reason"]) == ("invalid", "network_does_not_exist")
