"""The numbering of a space against Calculon's own enumeration and against nested loops."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine
import hardware
import models
from engine import LimitError, Space, SpaceError
from engine.cost_models.calculon.space import CalculonSpace
from models.documents import shown
from tests import reference
from tests.engine.small_spaces import FIELDS, Drawn, draw
from tests.properties import worlds

SEARCHES = [pytest.param(each, id=f"{each['model']} {each['num_procs']}") for each in reference.spaces()]


def space_of(search: dict[str, Any], **changes: Any) -> Space:
    asked = {name: search[name] for name in ("num_procs", "max_batch_size", "datatype")}
    limits = {"fused_activation": search["fused_activation"]}
    model, system = models.load(search["model"]), hardware.load(search["system"])
    return CalculonSpace(model, system, limits=limits, **{**asked, **changes})


@pytest.mark.parametrize("search", SEARCHES)
def test_as_many_executions_as_the_reference_lists(search: dict[str, Any]) -> None:
    assert space_of(search).total == search["total"]


@pytest.mark.parametrize("search", [each for each in SEARCHES if "best_execution" in each.values[0]])
def test_the_best_stand_where_the_reference_lists_them(search: dict[str, Any]) -> None:
    space = space_of(search)
    ids, rates = zip(*search["top10"], strict=True)
    table = space.table(ids)
    wanted = search["best_execution"]
    position = rates.index(search["best_sample_rate"])
    assert {name: table[name].iloc[position] for name in FIELDS} == wanted
    # found again from its fields alone, it is the only one with them
    cell = [c for c in space.cells if (c.tensor_par, c.pipeline_par) == (wanted["tensor_par"], wanted["pipeline_par"])]
    assert len(cell) == 1
    first = int(space.first_ids[space.cells.index(cell[0])])
    last = min([int(number) for number in space.first_ids if number > first] + [space.total])
    around = space.table(np.arange(first, last))
    same = np.logical_and.reduce([(around[name] == wanted[name]).to_numpy() for name in FIELDS])
    assert (first + np.flatnonzero(same)).tolist() == [ids[position]]


def assert_same_executions(found: pd.DataFrame, listed: pd.DataFrame) -> None:
    assert list(found.columns) == list(listed.columns) == FIELDS
    assert len(found) == len(listed)
    for name in FIELDS:
        differs = found[name].astype(object).to_numpy() != listed[name].astype(object).to_numpy()
        assert not differs.any(), f"{name} of execution {np.flatnonzero(differs)[0]}"


@given(random=st.randoms(use_true_random=False))
def test_ids_count_what_nested_loops_list(random: Random) -> None:
    drawn = draw(random, largest=12_000)
    space = drawn.scenario.space
    assert space.total == len(drawn.listed), drawn
    assert_same_executions(space.table(np.arange(space.total)), drawn.listed)
    assert not drawn.listed.duplicated().any()
    some = [random.randrange(space.total) for _ in range(9)] if space.total else []
    assert_same_executions(space.table(some), drawn.listed.iloc[some])


def drawn_with(limits: dict[str, Any], *, tiers: int = 3, **changes: Any) -> Drawn:
    """Four processors with every kind of parallelism among them, six blocks, under limits."""
    random = Random("fixed")
    shape = {"hidden": 96, "feedforward": 384, "seq_size": 128, "attn_heads": 12, "attn_size": 8, "num_blocks": 6}
    machine = worlds.system(random)
    machine["networks"] = (machine["networks"] * 4)[:tiers]
    machine["mem2"] = {**machine["mem2"], "GiB": 64, "GBps": 32}
    asked = {"num_procs": 4, "max_batch_size": 8, "datatype": sorted(machine["matrix"])[0]} | changes
    return Drawn(shape, machine, limits=limits, **asked)


NARROW = {"tensor_par_overlap": "none", "weight_offload": False, "data_par_overlap": False, "seq_par_ag_redo": False}


@pytest.mark.parametrize(
    ("limits", "wider"),
    [
        ({"attention_type": ["multiquery", "multihead"]}, ("attention_type", {"multihead", "multiquery"})),
        ({"training": [True, False]}, ("training", {True, False})),
        ({"fused_activation": [True, False]}, ("fused_activation", {True, False})),
        ({"batch_size": [8, 4, 3, 16]}, ("batch_size", {8, 4, 3})),
        ({"batch_size": {"min": 3}}, ("batch_size", {3, 4, 5, 6, 7, 8})),
        ({"uneven_pipelines": True}, ("pipeline_par", {1, 2, 4})),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_limits_also_widen(limits: dict[str, Any], wider: tuple[str, set[Any]]) -> None:
    drawn = drawn_with({**NARROW, **limits})
    space = drawn.scenario.space
    assert_same_executions(space.table(np.arange(space.total)), drawn.listed)
    assert set(drawn.listed[wider[0]]) == wider[1]


@pytest.mark.parametrize("tiers", [1, 2, 3, 5])
def test_every_network_may_carry_every_parallelism(tiers: int) -> None:
    drawn = drawn_with(NARROW, tiers=tiers, num_procs=8)
    space = drawn.scenario.space
    assert_same_executions(space.table(np.arange(space.total)), drawn.listed)
    eight = drawn.listed[(drawn.listed[["tensor_par", "pipeline_par", "data_par"]] > 1).all(axis=1)]
    nets = eight[["tensor_par_net", "pipeline_par_net", "data_par_net"]].drop_duplicates()
    assert len(nets) == tiers**3


def test_without_a_second_memory_nothing_is_offloaded() -> None:
    drawn = drawn_with({}, tiers=1)
    drawn.machine["mem2"] |= {"GiB": 0, "GBps": 0}
    space = drawn.scenario.space
    table = space.table(np.arange(space.total))
    assert_same_executions(table, drawn.listed)
    assert not table[["weight_offload", "activations_offload", "optimizer_offload"]].any(axis=None)


def test_a_space_may_be_empty_and_says_so() -> None:
    for limits in ({"tensor_par": 3}, {"batch_size": 9}, {"tensor_par_net": 7}):
        space = drawn_with(limits).scenario.space
        assert space.total == 0
        assert space.table([]).empty
        with pytest.raises(SpaceError, match="no executions"):
            space.table([0])


def test_a_million_processors_are_numbered_at_once() -> None:
    search = {**reference.spaces()[0], "model": "gpt3-175B", "system": "h100_80g_nvl8"}
    space = space_of(search, num_procs=2**20, max_batch_size=2**20)
    last = space.table([space.total - 1])
    assert (last[["tensor_par", "pipeline_par", "data_par"]].prod(axis=1) == 2**20).all()


@pytest.mark.parametrize(
    ("name", "label"), [("num_procs", "The number of GPUs"), ("max_batch_size", "The largest batch")]
)
@pytest.mark.parametrize("value", [0, -1, 2.0, True, "8", None, 2**31, 10**5000, float("nan"), [8]], ids=shown)
def test_impossible_sizes_are_refused(name: str, label: str, value: Any) -> None:
    accepted = r"it must be a whole number from 1 to 2,147,483,647\."
    with pytest.raises(SpaceError, match=rf"^{label} \({name}\) is .{{1,130}}; {accepted}$"):
        space_of(reference.spaces()[0], **{name: value})


@pytest.mark.parametrize("datatype", ["float32", "bfloat16"])
def test_a_system_without_a_datatype_of_the_cost_model_says_which_way_out(datatype: str) -> None:
    """What measuring a CPU gives. Naming the datatypes of the one beside those of the other leads in a circle."""
    document = hardware.to_document(hardware.load("a100_80g_sxm"))
    for engines in ("matrix", "vector"):
        document[engines] = {"float32": document[engines]["float32"]}
    document["assumptions"] = []
    cpu = hardware.load_document(document)
    sentence = (
        r"^'a100_80g_sxm' has rates for float32, but the cost model calibrated computes in .*other cost model.*\.$"
    )
    with pytest.raises(SpaceError, match=sentence):
        engine.best("gpt2-small", cpu, num_procs=1, max_batch_size=1, datatype=datatype)
    found = engine.best("gpt2-small", cpu, num_procs=1, max_batch_size=1, datatype="float32", cost_model="calculon")
    assert found["status"] == "ok"


@pytest.mark.parametrize("value", ["float17", "", None, [], {}, 16, "float8"])
def test_datatypes_that_the_system_lacks_are_refused(value: Any) -> None:
    with pytest.raises(SpaceError, match=r"^(The datatype is .* one of .*|'a100_80g' has no rates for float8.+)\.$"):
        space_of(reference.spaces()[0], datatype=value)


@pytest.mark.parametrize(
    "ids", [[-1], [147136], [0.5], [float("nan")], ["0"], [None], [[0, 1]], 0, [2**70], [True], "0"], ids=shown
)
def test_ids_outside_the_space_are_refused(ids: Any) -> None:
    space = space_of(reference.spaces()[0])
    with pytest.raises(SpaceError, match=r"^Execution ids of this space .*147,135.*\.$"):
        space.table(ids)


def test_a_space_too_large_to_list_its_cells_is_refused() -> None:
    search = {**reference.spaces()[0], "model": "gpt3-175B", "system": "h100_80g_nvl8"}
    asked = {"num_procs": 4096, "max_batch_size": 400_000, "datatype": "float16"}
    model, system = models.load(search["model"]), hardware.load(search["system"])
    with pytest.raises(LimitError, match=r"^The limit on the batch \(batch_size\) allows over 100,000 .*\.$"):
        CalculonSpace(model, system, limits={"batch_size": {"min": 1}}, **asked)
