"""Of executions that tie exactly, pages show the plainest, and say that there are others."""

from __future__ import annotations

import pandas as pd
import pytest

from dashboard.queries.explorations import in_cell
from dashboard.queries.tie_breaking import best_of, plainest, ties_of_best
from engine.store import StoreCondition
from tests.dashboard.page_runs import exploration, html, run

OFFLOADS = ["weight_offload", "activations_offload", "optimizer_offload"]
PLAIN = {"none": 0, "pipe": 1, "attn_only": 1, "ring": 2, "full": 2}


def ties_of(metric: str, where: list[StoreCondition] | None = None) -> pd.DataFrame:
    """Every execution with exactly the best value, found by reading all of them."""
    rows = exploration("none").rows.table(where=where or []).to_pandas()
    best = rows[metric].max() if metric == "sample_rate" else rows[metric].min()
    return rows[rows[metric] == best]


def by_hand(ties: pd.DataFrame) -> int:
    """The plainest of those in the cell of the first enumerated, by sorting them in full."""
    first = ties.loc[ties["id"].idxmin()]
    here = ties[(ties["tensor_par"] == first["tensor_par"]) & (ties["pipeline_par"] == first["pipeline_par"])]
    ranked = sorted(
        here.to_dict("records"),
        key=lambda row: (
            sum(row[name] for name in OFFLOADS),
            PLAIN[row["tensor_par_overlap"]],
            row["data_par_overlap"],
            PLAIN[row["activation_recompute"]],
            row["seq_par_ag_redo"],
            row["optimizer_sharding"],
            row["pipeline_interleaving"],
            row["id"],
        ),
    )
    return int(ranked[0]["id"])


@pytest.mark.parametrize("metric", ["sample_rate", "proc_mem_tier1_cap_req"])
def test_the_plainest_stands_for_every_cell_of_the_map(metric: str) -> None:
    found = exploration("none")
    rows = found.rows.table().to_pandas()
    for cell in found.by_cell(metric).dropna(subset="value").to_dict("records"):
        here = rows[(rows["tensor_par"] == cell["tensor_par"]) & (rows["pipeline_par"] == cell["pipeline_par"])]
        ties = here[here[metric] == cell["value"]]
        where = in_cell((cell["tensor_par"], cell["pipeline_par"]))
        chosen = plainest(found, found.key, int(cell["id"]), metric, where)
        assert (chosen.id, chosen.number) == (by_hand(ties), len(ties))
        everywhere = plainest(found, found.key, int(cell["id"]), metric)
        assert everywhere == (chosen.id, int((rows[metric] == cell["value"]).sum()))


@pytest.mark.parametrize("metric", ["sample_rate", "proc_mem_tier1_cap_req", "bubble_time"])
def test_the_plainest_of_those_that_tie_stands_for_the_best(metric: str) -> None:
    found = exploration("none")
    ties = ties_of(metric)
    chosen = plainest(found, found.key, int(ties["id"].min()), metric)
    assert chosen.number == len(ties)
    assert chosen.id == by_hand(ties)


def test_conditions_narrow_what_ties() -> None:
    found = exploration("none")
    where = (StoreCondition("weight_offload", "=", True), StoreCondition("optimizer_offload", "=", True))
    ties = ties_of("sample_rate", list(where))
    chosen = plainest(found, found.key, int(ties["id"].min()), "sample_rate", where)
    assert (chosen.id, chosen.number) == (by_hand(ties), len(ties))


def test_pages_show_it_and_say_that_it_is_tied() -> None:
    found = exploration("none")
    ties = ties_of("sample_rate")
    assert len(ties) > 1  # else this test says nothing
    best = best_of(found)
    assert best is not None
    assert best["id"] == by_hand(ties) != found.best["id"]  # type: ignore[index]
    assert best["sample_rate"] == found.best["sample_rate"]  # type: ignore[index]
    assert ties_of_best(found) == len(ties)
    app = run("explore", found, {"figures": "fastest"})
    assert f"simplest of {len(ties):,} equal layouts" in html(app)
    assert f"per GPU · {len(ties):,} tied" in html(app)
    best_row = app.dataframe[0].value.iloc[0]
    assert best_row["total_time"] == pytest.approx(1000 * best["total_time"], rel=1e-12)


def test_one_that_nothing_ties_with_stands_for_itself() -> None:
    found = exploration("none")
    rows = found.rows.table(["id", "total_time"]).to_pandas()
    alone = rows[~rows["total_time"].duplicated(keep=False)]
    assert len(alone)
    chosen = int(alone["id"].iloc[0])
    assert plainest(found, found.key, chosen, "total_time") == (chosen, 1)
