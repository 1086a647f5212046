"""Systems of three networks through every question: the third carries what spans it, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hardware
from dashboard.charts.execution.networks import partners
from dashboard.words.executions import networks_of
from engine import Scenario, best_of, codesign
from engine.cost_models.registry import cost_model_of
from engine.launch import FRAMEWORKS
from engine.planners.contract import PlanError
from engine.planners.layerwise.library_models import system_cluster
from engine.questions import answer
from hardware import System

MODEL = "llama-3-8B"
BATCH = 64
WITHIN = {"gb200_186g_nvl72_rails": 16, "tpu_v5p_95g_cubes": 16, "h100_80g_pcie_pairs": 8}
"""System -> GPUs that its second network joins, of the copies below."""
BEYOND = 32
"""GPUs that only the third network joins."""
SLOW, FAST = 1 / 64, 2.0
"""Other bandwidths of the third network, as shares of its own. What the second network joins would take a third that is
faster still."""


@cache
def copied(name: str, factor: float = 1.0) -> System:
    """Return a system with the networks of the library's, so small that planners reach the third, and with another
    bandwidth of the third network."""
    system = hardware.load(name)
    sizes = {} if name == "h100_80g_pcie_pairs" else {"networks.0.size": 8, "networks.1.size": 16}
    third = factor * system.network_at(2).bandwidth_gb_per_s
    return hardware.edited(system, {**sizes, "networks.2.bandwidth_gb_per_s": third})


def document(system: System) -> dict[str, Any]:
    return hardware.to_document(system)


def scenario(system: System, gpus: int, cost_model: str = "calibrated", **limits: Any) -> dict[str, Any]:
    return {
        "model": MODEL,
        "system": document(system),
        "num_procs": gpus,
        "max_batch_size": BATCH,
        "datatype": "bfloat16",
        "cost_model": cost_model,
        "limits": {"batch_size": [BATCH], **limits},
    }


def best(system: System, gpus: int, cost_model: str = "calibrated", **limits: Any) -> Mapping[str, Any]:
    found = answer("best", {"scenario": scenario(system, gpus, cost_model, **limits)})["top"]
    assert found, "nothing runs"
    return dict(found[0])


def best_seconds(system: System, gpus: int) -> float:
    return float(best(system, gpus)["total_time"])


def explored_seconds(system: System, gpus: int) -> float:
    (found,) = answer("explore", {"scenario": scenario(system, gpus), "top": 1})["top"]
    return float(found["total_time"])


def calculon_seconds(system: System, gpus: int) -> float:
    """Seconds of one execution, whose gradients take the network that its GPUs need."""
    execution = {
        **best(copied(system.derived_from), 8, "calculon"),
        "num_procs": gpus,
        "tensor_par": 2,
        "pipeline_par": 1,
        "data_par": gpus // 2,
        "tensor_par_net": 0,
        "pipeline_par_net": 0,
        "data_par_net": system.tier_spanning(gpus),
    }
    question = {"model": MODEL, "system": document(system), "cost_model": "calculon", "executions": [execution]}
    (found,) = answer("evaluate", question)["executions"]
    assert found["status"] == "ok", found
    return float(found["total_time"])


def simulated_seconds(system: System, gpus: int) -> float:
    return float(answer("simulate_execution", {"scenario": scenario(system, gpus, pipeline_par=[4])})["makespan"])


def layer_seconds(system: System, gpus: int) -> float:
    systems = [{"system": document(system), "num_procs": gpus}]
    found = answer("plan_layers", {"global_batch": BATCH, "model": MODEL, "systems": systems, "tensor_par": 4})
    return BATCH / float(found["sample_rate"])


def elastic_seconds(system: System, gpus: int) -> float:
    question = {"model": MODEL, "system": document(system), "global_batch": BATCH, "gpus": [gpus]}
    (size,) = answer("plan_elastic", question)["sizes"]
    return BATCH / float(size["raw_best"])


def operator_seconds(system: System, gpus: int) -> float:
    question = {"model": MODEL, "devices": gpus, "system": document(system), "tiers": 2, "batch": gpus, "layers": 2}
    return float(answer("plan_operators", question)["chosen"]["seconds"])


def served_seconds(system: System, gpus: int) -> float:
    question = {
        "model": MODEL,
        "system": document(system),
        "num_procs": gpus,
        "prompt": 512,
        "output": 64,
        "limits": {"tensor_par": 8, "pipeline_par": gpus // 8, "batch": 32},
    }
    (found, *_) = answer("find_deployments", question)["top"]
    return float(found["time_to_first_token"])


def training_seconds(system: System, gpus: int) -> float:
    question = {"model": MODEL, "system": document(system), "execution": best(system, gpus)}
    return float(answer("cost", question)["compute_s"])


QUESTIONS = (
    best_seconds,
    explored_seconds,
    calculon_seconds,
    simulated_seconds,
    layer_seconds,
    elastic_seconds,
    operator_seconds,
    served_seconds,
    training_seconds,
)


@pytest.mark.parametrize("seconds", QUESTIONS)
@pytest.mark.parametrize("name", WITHIN)
def test_the_third_network_carries_what_spans_it_and_nothing_else(
    name: str, seconds: Callable[[System, int], float]
) -> None:
    slow, usual, fast = (copied(name, factor) for factor in (SLOW, 1.0, FAST))
    assert seconds(slow, WITHIN[name]) == seconds(fast, WITHIN[name])
    longest, middle, shortest = (seconds(system, BEYOND) for system in (slow, usual, fast))
    assert longest >= middle >= shortest
    assert longest > shortest


@pytest.mark.parametrize("seconds", [best_seconds, elastic_seconds, operator_seconds])
@pytest.mark.parametrize("name", WITHIN)
def test_the_second_network_carries_its_part_of_what_spans_the_third(
    name: str, seconds: Callable[[System, int], float]
) -> None:
    usual = copied(name)
    slow = hardware.edited(usual, {"networks.1.bandwidth_gb_per_s": usual.network_at(2).bandwidth_gb_per_s})
    assert seconds(slow, BEYOND) > seconds(usual, BEYOND)


def test_devices_of_a_layer_plan_exchange_over_the_closest_network_that_joins_them() -> None:
    """Two hosts of four pairs: 300, 64 and 25 GB/s, of which 0.65, 0.65 and 0.9 are reached."""
    bridge, pcie, infiniband = 300e9 * 0.65, 64e9 * 0.65, 25e9 * 0.9
    cluster = system_cluster("h100_80g_pcie_pairs", 16)
    pair, host, across, whole = range(2), range(8), range(4, 12), range(16)
    for group, rate in ((pair, bridge), (host, pcie), (across, infiniband), (whole, infiniband)):
        count = len(group)
        assert cluster.reduce_time(group, 1.0) == pytest.approx(2 * (count - 1) / count / rate)
    assert cluster.move_rate((0,), (1,)) == pytest.approx(1 / bridge)
    assert cluster.move_rate(range(4), range(4, 8)) == pytest.approx(1 / pcie)
    assert cluster.move_rate(range(8), range(8, 16)) == pytest.approx(1 / infiniband)
    # Of four senders one is in the receiver's machine, one elsewhere in its host, and two are in another host.
    assert cluster.move_rate((0, 2, 8, 9), (1,)) == pytest.approx(1 / 4 / pcie + 2 / 4 / infiniband)
    groups = system_cluster("h100_80g_pcie_pairs", 16, tensor_par=4)
    assert groups.reduce_time((0, 1), 1.0) == pytest.approx(1 / (4 * pcie))
    assert groups.reduce_time((1, 2), 1.0) == pytest.approx(1 / (4 * infiniband))


@pytest.mark.parametrize("name", WITHIN)
def test_what_if_asks_about_the_third_network(name: str) -> None:
    system = copied(name)
    third = system.network_at(2).bandwidth_gb_per_s
    listed = {
        each["name"]: each for each in answer("list_parameters", {"scenario": scenario(system, BEYOND)})["parameters"]
    }
    assert listed["net2_bandwidth"]["value"] == third
    assert hardware.network_names(system)[2].lower() in listed["net2_bandwidth"]["label"].lower()
    question = {
        "scenario": scenario(system, BEYOND),
        "changes": {"net2_bandwidth": SLOW * third},
        "figures_of": "fastest",
    }
    found = answer("what_if", question)
    assert found["best"]["total_time"] == best_seconds(copied(name, SLOW), BEYOND)
    assert found["gain"] < 0
    within = {
        "scenario": scenario(system, WITHIN[name]),
        "changes": {"net2_bandwidth": SLOW * third},
        "figures_of": "fastest",
    }
    assert answer("what_if", within)["gain"] == 0


@pytest.mark.parametrize("name", WITHIN)
def test_a_study_of_machines_values_and_prices_the_third_network(name: str, tmp_path: Path) -> None:
    study = codesign.Study.from_document(
        {
            "format": codesign.FORMAT,
            "name": "third network",
            "models": [MODEL],
            "systems": [document(copied(name))],
            "edits": [{"parameter": "net2_bandwidth", "values": [SLOW, 1, FAST], "relative": True}],
            "sizes": [WITHIN[name], BEYOND],
            "datatypes": ["bfloat16"],
            "batches": [BATCH],
            "costs": {"usd": {"processor": 30_000, "network_gb_per_s": [1, 2, 50]}},
        }
    )
    codesign.run(study, tmp_path / "results", workers=1)
    found = codesign.results(tmp_path / "results").designs().sort_values("net2_bandwidth")
    within, beyond = (found[found["processors"] == gpus] for gpus in (WITHIN[name], BEYOND))
    assert within["tokens_per_s"].nunique() == 1
    assert beyond["tokens_per_s"].is_monotonic_increasing
    assert beyond["tokens_per_s"].nunique() > 1
    # The third price of a list is that of the third network.
    third = copied(name).network_at(2).bandwidth_gb_per_s
    assert np.diff(beyond["usd"]) == pytest.approx(BEYOND * 50 * third * np.diff([SLOW, 1, FAST]))
    names = {each for design in found["design"] for each in codesign.breakdown(study, int(design))["item"]}
    assert {f"{each[:1].upper()}{each[1:]} bandwidth" for each in hardware.network_names(copied(name))} <= names


@pytest.mark.parametrize(
    ("name", "gpus"), [("gb200_186g_nvl72_rails", 1_152), ("tpu_v5p_95g_cubes", 17_920), ("h100_80g_pcie_pairs", 32)]
)
@pytest.mark.parametrize("cost_model", ["calibrated", "calculon"])
def test_executions_on_three_networks_are_placed_and_drawn(name: str, gpus: int, cost_model: str) -> None:
    system = hardware.load(name)
    asked = Scenario.of(MODEL, system, num_procs=gpus, max_batch_size=gpus, datatype="bfloat16", cost_model=cost_model)
    execution = dict(best_of(asked))
    account = cost_model_of(asked).account(asked.model, asked.system, execution, asked.calibration).communication()
    assert account is not None
    tiers = {tier for group in account.groups for tier in group.tiers}
    if cost_model == "calibrated":  # Calculon's networks are a choice of the execution, whatever lies where
        assert 2 in tiers
        assert execution["data_par_net"] == 2
    where = {group.name: networks_of(system, group.tiers) for group in account.groups}
    assert set(", ".join(where.values()).replace(" and ", ", ").split(", ")) <= set(hardware.network_names(system))
    drawn = partners(account.groups, where, gpus, system.node_size, around=system.network_at(1).size)
    assert all(where[group.name] in drawn.alt for group in account.groups if group.degree > 1)


@pytest.mark.parametrize("name", WITHIN)
def test_elastic_plans_fill_nodes_of_the_system(name: str) -> None:
    """Hosts of eight, though the innermost network of one system joins pairs."""
    question = {"model": MODEL, "system": document(copied(name)), "global_batch": BATCH, "gpus": [BEYOND]}
    (size,) = answer("plan_elastic", question)["sizes"]
    assert size["placement"] == "8888"


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", WITHIN)
def test_the_best_execution_is_exported_for_the_nodes_of_the_system(name: str, framework: str) -> None:
    system = copied(name)
    nodes = BEYOND // system.node_size
    question = {"execution": best(system, BEYOND), "model": MODEL, "framework": framework, "nodes": nodes}
    written = "\n".join(answer("export_launch", question)["files"].values())
    assert str(nodes) in re.findall(r"\d+", written)
    if framework == "megatron":
        assert f"--nproc_per_node {system.node_size} --nnodes {nodes}" in written


@pytest.mark.parametrize("name", WITHIN)
def test_more_gpus_than_the_third_network_joins_are_refused_in_a_sentence(name: str) -> None:
    system = hardware.edited(copied(name), {"networks.2.size": 64})
    gpus, said = 128, "join 64 processors, not 128"
    for seconds in (layer_seconds, elastic_seconds, operator_seconds):
        with pytest.raises(PlanError, match=said):
            seconds(system, gpus)
    names = hardware.network_names(system)
    half = best(system, 64)
    execution = {**half, "num_procs": gpus, "data_par": 2 * half["data_par"], "batch_size": 2 * half["batch_size"]}
    question = {"model": MODEL, "system": document(system), "cost_model": "calibrated", "executions": [execution]}
    (found,) = answer("evaluate", question)["executions"]
    assert found["reason"] == "network_too_small"
    assert names[2].lower() in found["reason_text"].lower()
