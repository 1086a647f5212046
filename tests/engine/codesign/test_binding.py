"""Which constraints bind, against every subset of them lifted in turn."""

from __future__ import annotations

import json
import math
from itertools import chain, combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import codesign
from engine.codesign.answers import Results
from engine.codesign.points import as_table
from tests.engine.codesign.small_study import study

LIMITED = ("usd", "watts", "processors", "tokens_per_s", "days")
STUDY = study(
    models=["megatron-126M"],
    follow=[],
    edits=[
        {"parameter": "hbm_capacity", "values": [20, 40, 80]},
        {"parameter": "host_capacity", "values": [64, 256]},
    ],
)
"""24 designs, whose rates the tests make up."""


def results(rates: list[float | None]) -> Results:
    """Results of the study with these rates; designs without one do not run."""
    rows = [
        {"point": number, "status": "infeasible", "feasible": 0}
        if rate is None
        else {"point": number, "status": "ok", "samples_per_s": rate, "id": 0, "feasible": 1, "batch_size": 16}
        for number, rate in enumerate(rates)
    ]
    return Results(STUDY, as_table(STUDY, rows).to_pandas())


def constraint(name: str, quantile: float, table: pd.DataFrame, side: str) -> codesign.Constraint:
    return codesign.Constraint(quantity=name, **{side: float(np.nanquantile(table[name], quantile))})


@st.composite
def asked(draw: st.DrawFn) -> tuple[Results, list[codesign.Constraint], str]:
    rate = st.one_of(st.none(), st.sampled_from([1.0, 2.0, 3.0]), st.floats(0.5, 50.0))
    found = results([1.0, *draw(st.lists(rate, min_size=STUDY.designs - 1, max_size=STUDY.designs - 1))])
    table = found.designs()
    made = [
        constraint(
            draw(st.sampled_from(LIMITED)), draw(st.floats(0, 1)), table, draw(st.sampled_from(["at_most", "at_least"]))
        )
        for _ in range(draw(st.integers(0, 4)))
    ]
    return found, made, draw(st.sampled_from(["tokens_per_s", "usd", "tokens_per_joule"]))


@settings(max_examples=80, deadline=None)
@given(asked())
def test_the_report_is_that_of_all_subsets(case: tuple[Results, list[codesign.Constraint], str]) -> None:
    found, bounds, objective = case
    report = found.binding_report(objective, constraints=bounds)
    sign = 1.0 if codesign.QUANTITIES[objective].better == "higher" else -1.0

    def best(kept: set[int]) -> float:
        row = found.best(objective, constraints=[bounds[number] for number in kept])
        return -math.inf if row is None else sign * float(row[objective])

    every = set(range(len(bounds)))
    base = best(every)
    assert report.best == pytest.approx(sign * base) or (math.isnan(report.best) and base == -math.inf)
    assert sign * report.without_all == best(set())
    for number in every:
        row = report.table.iloc[number]
        assert sign * row["without"] == best(every - {number}) or (math.isnan(row["without"]) and base == -math.inf)
        assert row["binds"] == (best(every - {number}) > base)
    subsets = chain.from_iterable(combinations(every, size) for size in range(1, len(bounds) + 1))
    useful = [
        (len(subset), -best(every - set(subset)), subset) for subset in subsets if best(every - set(subset)) > base
    ]
    if not useful:
        assert report.smallest_set == ()
        assert report.smallest_set_design is None
        return
    size, value, _ = min(useful)
    assert (len(report.smallest_set), -sign * report.smallest_set_value) == (size, value)
    assert best(every - set(report.smallest_set)) == sign * report.smallest_set_value


def test_two_constraints_that_bind_together_are_named_together(tmp_path: Any, shardscape: Any) -> None:
    """The more processors, the faster, dearer and hungrier: with either bound lifted the other one still holds."""
    document = {
        **STUDY.to_document(),
        "sizes": [4, 8, 16, 32],
        "edits": [],
        "constraints": [
            {"quantity": "usd", "at_most": 4.2e5},
            {"quantity": "watts", "at_most": 1.3e4},
            {"quantity": "processors", "at_most": 1024},
        ],
    }
    asked = codesign.Study.from_document(document)
    codesign.run(asked, tmp_path / "results", workers=1)
    found = codesign.results(tmp_path / "results")
    report = found.binding_report()
    table = report.table.set_index("constraint")
    assert table["binds"].tolist() == [False] * 3
    assert report.smallest_set == (0, 1)
    best, free = found.best(), found.best(constraints=[])
    assert best is not None
    assert free is not None
    assert (best["processors"], free["processors"]) == (8, 32)
    assert report.smallest_set_gain == report.without_all_gain == free["tokens_per_s"] / best["tokens_per_s"] - 1
    assert (report.allowed, report.refused) == (4, 4)
    assert table["refuses"].tolist() == [4, 4, 0]
    assert table["refuses_alone"].tolist() == [0, 0, 0]
    assert table["slack"].tolist() == [4.2e5 - best["usd"], 1.3e4 - best["watts"], 1016]
    shares = [1 - best["usd"] / 4.2e5, 1 - best["watts"] / 1.3e4, 127 / 128]
    assert table["slack_share"].tolist() == pytest.approx(shares)
    code, out, _ = shardscape("codesign", tmp_path / "results")
    assert code == 0
    assert "4 of 8 designs that run are allowed, 4 refused" in out
    assert "Smallest binding set: Price at most 420,000 USD and Power at most 13,000 W. Without it: tokens" in out
    code, out, _ = shardscape("codesign", tmp_path / "results", "--json")
    answer = json.loads(out)
    assert (code, len(answer["binding"])) == (0, 3)
    smallest = answer["constraints"]["smallest_set"]
    assert smallest["constraints"] == ["Price at most 420,000 USD", "Power at most 13,000 W"]
    assert answer["constraints"]["refused"] == 4
