"""The rules of the register are true: where a field does not apply, no figure depends on it."""

from __future__ import annotations

from functools import cache
from itertools import compress

import numpy as np
import pandas as pd
import pytest

import engine
from engine.columns import (
    ALL_FIELDS,
    EXPERTS,
    GROUPS,
    SECOND_TIER,
    applies,
    by_name,
    choices_of,
    fields_of,
    in_order,
    statistics_of,
)
from tests.engine.cost_models.calibrated import small

EXACT = {
    "num_procs": 16,
    "max_batch_size": 16,
    "datatype": "float16",
    "cost_model": "calculon",
    "limits": {"batch_size": 16, "weight_offload": False, "optimizer_offload": False, "activations_offload": False},
}
READ_ALL_THE_SAME = {("calculon", "pipeline_par_net")}
"""Calculon asks whether the networks of pipeline and replicas are the same one even where there is no pipeline. Its
spaces have no such execution: what there is none of is on the innermost network."""
NAMES = {column.name for column in ALL_FIELDS}
RULED = [
    (name, column.name)
    for name, model in (("exact", "calculon"), ("dense", "calibrated"), ("experts", "calibrated"))
    for column in fields_of(model)
    if any(NAMES & {*one.names} for one in column.applies) and (model, column.name) not in READ_ALL_THE_SAME
]


def scenario_of(name: str) -> engine.Scenario:
    """Returns a small scenario of either cost model."""
    return engine.Scenario.of("gpt3-6.7B", "h100_80g_nvl8", **EXACT) if name == "exact" else small.named(name)


@cache
def running(name: str) -> pd.DataFrame:
    """Returns some executions of a scenario that run, with all figures."""
    scenario = scenario_of(name)
    ids = np.unique(np.random.default_rng(15).integers(0, scenario.space.total, 3_000))
    found = scenario.evaluate(scenario.space.table(ids))
    return found[found["status"] == "ok"].reset_index(drop=True)


@pytest.mark.parametrize(("name", "field"), RULED)
def test_no_figure_depends_on_a_field_where_it_does_not_apply(name: str, field: str) -> None:
    scenario, column, every = scenario_of(name), by_name(field), running(name)
    fields = [each.name for each in fields_of(scenario.cost_model)]
    statistics = [each.name for each in statistics_of(scenario.cost_model)]
    idle = every[~np.broadcast_to(applies(column, every), len(every))].head(150)
    values = column.choices or column.numbers or ((True, False) if column.dtype == "bool" else (0, 1, 2))
    tables = [idle[fields].assign(**{field: value}) for value in values]
    others = scenario.evaluate(pd.concat(tables, ignore_index=True))
    for place, value in enumerate(values):
        other = others.iloc[place * len(idle) : (place + 1) * len(idle)]
        same = (other["status"] == "ok").to_numpy()  # what the rules refuse is another matter
        here, there = (table[statistics].to_numpy(float)[same] for table in (idle, other))
        differs = ((here != there) & ~(np.isnan(here) & np.isnan(there))).any(axis=0)
        assert not differs.any(), f"{field} = {value} changes {[*compress(statistics, differs)]}"


def test_rules_name_what_there_is_and_hold_where_nothing_is_known() -> None:
    known = {column.name: column for column in ALL_FIELDS}
    for column in ALL_FIELDS:
        assert applies(column, {}) is True
        assert column.group in GROUPS
        assert column.after in ("", *known)
        for one in column.applies:
            assert {*one.names} <= {*known, EXPERTS, SECOND_TIER}
            assert {*one.words} <= {*known[one.names[0]].choices} if one.words else True
        if column.default is not None and column.choices:
            assert column.default in column.choices


def test_rules_say_the_same_of_one_execution_and_of_a_table() -> None:
    table = running("dense")
    rows = table.head(40).to_dict("records")
    for column in ALL_FIELDS:
        together = np.broadcast_to(applies(column, table), len(table))
        assert [applies(column, row) for row in rows] == together[:40].tolist()


def test_a_scenario_alone_can_be_asked() -> None:
    assert not applies("expert_par", {EXPERTS: 0})
    assert applies("expert_par", {EXPERTS: 8})
    assert not applies("weight_offload", {SECOND_TIER: 0.0})
    assert applies("tensor_par_overlap", {EXPERTS: 0, SECOND_TIER: 0.0})


@pytest.mark.parametrize("cost_model", ["calculon", "calibrated"])
def test_lists_show_choices_by_group_each_behind_what_it_belongs_to(cost_model: str) -> None:
    chosen = choices_of(cost_model)
    places = [GROUPS.index(column.group) for column in chosen]
    assert places == sorted(places)
    assert not any(column.of_scenario for column in chosen)
    names = [column.name for column in in_order(ALL_FIELDS)]
    for column in ALL_FIELDS:
        if column.after and by_name(column.after).group == column.group:
            assert names.index(column.after) == names.index(column.name) - 1
