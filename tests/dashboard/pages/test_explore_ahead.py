"""What is read for the panels of all cells at once is what each shows when it is asked about alone."""

from __future__ import annotations

import numpy as np
import pytest

from dashboard.queries import explorations, prefetch
from dashboard.queries.tie_breaking import plainest
from engine import Exploration, explore
from engine.store import StoreCondition
from tests.dashboard.page_runs import FEW, exploration

NAMES = ("total_time", "activation_recompute", "batch_size", "weight_offload", "context_par")


def read(found: Exploration, rank: str, names: tuple[str, ...]) -> None:
    reading = prefetch.read(found, rank, names)
    assert reading is not None
    reading.result()


@pytest.fixture(scope="module", params=["calculon", "calibrated", "batches"])
def found(request: pytest.FixtureRequest) -> Exploration:
    if request.param == "calculon":
        return exploration()
    several = request.param == "batches"
    limits = {**FEW, "batch_size": [16, 32]} if several else FEW
    return explore(
        "gpt3-13B",
        "h100_80g_nvl8",
        num_procs=8,
        max_batch_size=32,
        datatype="float16",
        limits=limits,
        cost_model="calculon" if several else "calibrated",
    )


def group(found: Exploration, cell: tuple[int, int], *more: StoreCondition) -> explorations.Group:
    return explorations.Group("", (*explorations.in_cell(cell), *more), -1, 0, 0.0, cell)


@pytest.mark.parametrize("rank", ["sample_rate", "proc_mem_tier1_cap_req", "bubble_time"])
def test_every_panel_shows_what_it_shows_alone(found: Exploration, rank: str) -> None:
    rows = found.rows.table().to_pandas()
    read(found, rank, (*NAMES, rank))
    shown = {
        cell: (
            prefetch.top(found, group(found, cell), rank, (*NAMES, rank)),
            prefetch.spread(found, group(found, cell)),
        )
        for cell in rows.groupby(["tensor_par", "pipeline_par"]).groups
    }
    lower = rank != "sample_rate"
    for cell, here in rows.groupby(["tensor_par", "pipeline_par"]):
        best, spread_out = shown[cell]
        ranked = here.sort_values([rank, "id"], ascending=[lower, True], kind="stable").head(explorations.TABLE_ROWS)
        assert [row["id"] for row in best] == ranked["id"].tolist()
        for name in (*NAMES, rank):
            if name in ranked:
                assert [row[name] for row in best] == ranked[name].tolist()
        times = here["total_time"].to_numpy()
        inside = times[times <= spread_out.edges[-1]]
        assert spread_out.edges[0] == times.min()
        assert sum(spread_out.counts) == len(inside) > 0
        np.testing.assert_array_equal(spread_out.counts, np.histogram(inside, bins=spread_out.edges)[0])
        assert spread_out == explorations.spread_of(found, found.key, explorations.in_cell(cell))


def test_the_best_of_cells_have_the_figures_of_the_engine(found: Exploration) -> None:
    read(found, "sample_rate", NAMES)
    for cell in found.by_cell().dropna(subset="value").to_dict("records"):
        where = explorations.in_cell((cell["tensor_par"], cell["pipeline_par"]))
        chosen = plainest(found, found.key, int(cell["id"]), "sample_rate", where).id
        shown = prefetch.execution(found, chosen)
        alone = found.evaluate_ids([chosen]).iloc[0].to_dict()
        assert shown.keys() == alone.keys()
        np.testing.assert_equal(dict(shown), alone)


def test_other_questions_are_not_answered_by_it() -> None:
    found = exploration()
    cell = tuple(found.rows.table(["tensor_par", "pipeline_par"]).to_pandas().iloc[0].tolist())
    read(found, "sample_rate", NAMES)
    narrow = StoreCondition("weight_offload", "=", False)
    part, rows = group(found, cell, narrow), found.rows.table(where=[*explorations.in_cell(cell), narrow]).to_pandas()
    assert sum(prefetch.spread(found, part).counts) <= len(rows)
    ids = rows.sort_values(["sample_rate", "id"], ascending=[False, True])["id"].head(explorations.TABLE_ROWS).tolist()
    assert [row["id"] for row in prefetch.top(found, part, "sample_rate", NAMES)] == ids
    least = found.rows.top(explorations.TABLE_ROWS, "total_time", where=explorations.in_cell(cell), names=["id"])[
        "id"
    ].to_pylist()
    assert [row["id"] for row in prefetch.top(found, group(found, cell), "total_time", NAMES)] == least
    other = exploration("tight")
    least = other.rows.top(explorations.TABLE_ROWS, "sample_rate", where=explorations.in_cell(cell), names=["id"])[
        "id"
    ].to_pylist()
    assert [row["id"] for row in prefetch.top(other, group(other, cell), "sample_rate", NAMES)] == least


def test_spaces_in_which_nothing_runs_are_not_read_ahead() -> None:
    assert prefetch.read(exploration("hopeless"), "sample_rate", NAMES) is None
