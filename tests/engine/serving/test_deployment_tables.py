"""Tables of deployments with columns of any type and shape: evaluated as plain numbers are, or refused."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

from engine import serving
from tests.properties.column_types import columns, meaning

SERVED = {"tensor_par": 2, "pipeline_par": 1, "batch": 2, "prompt": 128, "output": 16}


@pytest.mark.parametrize("field", ["batch", "weight_bits", "launch"])
def test_columns_of_any_type_are_deployments_or_refused_by_row(field: str) -> None:
    def served(series: pd.Series[Any]) -> pd.DataFrame:
        table = pd.DataFrame([SERVED] * len(series)).assign(**{field: series})
        return serving.evaluate("llama-3-8B", "h100_80g_sxm", table)

    @cache
    def plainly(values: tuple[Any, ...]) -> pd.DataFrame:
        return served(pd.Series(list(values), dtype=object))

    kind, good = ("str", "graphs") if field == "launch" else ("int64", 8)
    for name, cells, series in columns(8, "graphs"):
        means = [meaning(kind, cell) for cell in cells]
        fine = [row for row, value in enumerate(means) if value is not None]
        if len(fine) < len(cells):
            with pytest.raises(serving.DeploymentTableError, match=f"Row .* {field}") as refused:
                served(series)
            told = str(refused.value)
            assert not any(told.startswith(f"Row {row + 1} ") for row in fine), (name, told)
            assert told.isprintable(), (name, told)
            assert len(told) < 300, (name, told)
        if fine and name != "arrow string_view":  # pandas takes no rows of the latter
            plain = plainly(tuple(means[row] for row in fine))
            pd.testing.assert_frame_equal(served(series.iloc[fine].reset_index(drop=True)), plain)
    assert served(pd.Series([good])).loc[0, "status"] == "ok"


WRONG: dict[str, Any] = {
    "lengths": SERVED | {"batch": [1, 2], "prompt": [1, 2, 3]},
    "huge": SERVED | {"batch": [10**400]},
    "huger": SERVED | {"batch": 10**5000},
    "infinite": SERVED | {"batch": [float("inf")]},
    "nested": SERVED | {"batch": [[1], [2]]},
    "two dimensions": SERVED | {"batch": np.ones((2, 2))},
    "a mapping of rows": SERVED | {"batch": {0: 1}},
    "a set": SERVED | {"batch": {1}},
    "text": SERVED | {"batch": "12"},
    "none": SERVED | {"batch": None},
    "a list": [SERVED],
    "a number": 3,
    "no column": {},
    "twice": pd.DataFrame([[1, 2]], columns=["batch", "batch"]),
    "levels": pd.concat({"a": pd.DataFrame([SERVED])}, axis=1),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_table_of_deployments_is_one_sentence(name: str) -> None:
    with pytest.raises(serving.DeploymentTableError) as refused:
        serving.evaluate("llama-3-8B", "h100_80g_sxm", WRONG[name])
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300


def test_deployments_that_are_columns_values_or_none_at_all() -> None:
    def served(table: Any) -> pd.DataFrame:
        return serving.evaluate("llama-3-8B", "h100_80g_sxm", table)

    two = served(pd.DataFrame([SERVED, SERVED | {"batch": 4}], index=[5, 5]))
    pd.testing.assert_frame_equal(served(SERVED | {"batch": [2, 4]}), two)
    pd.testing.assert_frame_equal(served(SERVED | {"batch": pd.Series([2, 4], index=[9, 3])}), two)
    pd.testing.assert_frame_equal(served(SERVED), two[:1])
    empty = served({name: [] for name in SERVED})
    assert list(empty.columns) == list(two.columns)
    assert len(empty) == len(served(pd.DataFrame(columns=list(SERVED)))) == 0


@pytest.mark.parametrize(
    "value",
    [10**400, 10**5000, -1, "x" * 10_000, True, float("nan"), [], np.array([1, 2])],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("argument", ["price", "time_to_first_token", "time_per_output_token"])
def test_figures_that_are_none_are_one_sentence(argument: str, value: Any) -> None:
    with pytest.raises(serving.WorkloadError, match=argument) as refused:
        serving.evaluate("llama-3-8B", "h100_80g_sxm", SERVED, **{argument: value})
    assert len(str(refused.value)) < 300
