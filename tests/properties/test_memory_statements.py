"""Memory of training stated once more, execution by execution, in plain Python: optimizer states, and what is held.

Bytes per parameter with 16-bit weights: 2 of weights, 4 of gradients, 4 of the master copy and 8 of moments. ZeRO
divides them among the replicas: from stage 1 on master copy and moments, from 2 on gradients, from 3 on weights
(Rajbhandari et al. 2020, figure 1). PyTorch's fully sharded training has 32-bit weights, which are the master copy.
What a rank holds of activations is counted by replaying its list of forwards and backwards.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest

import engine
import models
from engine.cost_models.calibrated import memory_use
from engine.cost_models.calibrated.physics.memory import activation_bytes, in_flight
from tests.engine.cost_models.calibrated.cases import DENSE, EXPERTS, case

REPLICAS, EXPERT_REPLICAS = 8, 2
WEIGHT, GRADIENT, MASTER, MOMENTS = 2, 4, 4, 8


def blocks_of(base: dict[str, Any]) -> tuple[float, float]:
    """Parameters outside and inside experts, of 32 blocks and one table of words."""
    hidden, feedforward, vocabulary = 4096, 16384, 51200
    attention = 4 * hidden**2
    if base is DENSE:
        return 32 * (attention + 2 * hidden * feedforward) + vocabulary * hidden, 0.0
    shared, router, gated = 3 * hidden * 1024, 64 * hidden, 3 * hidden * feedforward
    outside = 32 * attention + gated + 31 * (shared + router) + vocabulary * hidden
    return outside, 31 * 64 * 3 * hidden * 1024


@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("base", [DENSE, EXPERTS], ids=["dense", "experts"])
def test_every_stage_of_zero_divides_what_it_says(base: dict[str, Any], stage: int) -> None:
    spread = REPLICAS // EXPERT_REPLICAS if base is EXPERTS else 1
    found = memory_use(case(base, zero_stage=float(stage), expert_par=float(spread)))
    outside, inside = blocks_of(base)
    for name, size, divided_from in (
        ("weights", WEIGHT, 3),
        ("gradients", GRADIENT, 2),
        ("optimizer", MASTER + MOMENTS, 1),
    ):
        by, by_experts = (REPLICAS, EXPERT_REPLICAS) if stage >= divided_from else (1, 1)
        expected = size * (outside / by + inside / spread / by_experts)
        assert float(getattr(found, name)) == pytest.approx(expected, rel=2e-4), name


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_stage_that_an_execution_names_is_the_one_that_is_counted(stage: int) -> None:
    """Through the door of the engine: what memory a stage saves beside the one before it, on eight replicas."""
    fields: dict[str, Any] = {
        "num_procs": 8,
        "tensor_par": 1,
        "pipeline_par": 1,
        "data_par": 8,
        "tensor_par_net": 0,
        "pipeline_par_net": 0,
        "data_par_net": 0,
        "batch_size": 64,
        "microbatch_size": 1,
        "datatype": "bfloat16",
        "fused_activation": True,
        "attention_type": "multihead",
        "activation_recompute": "none",
        "pipeline_interleaving": 1,
        "optimizer_sharding": stage > 0,
        "tensor_par_comm_type": "ar",
        "tensor_par_overlap": "none",
        "seq_par_ag_redo": False,
        "data_par_overlap": stage > 1,
        "weight_offload": False,
        "activations_offload": False,
        "optimizer_offload": False,
        "training": True,
    }
    parameters = models.load("llama-3-8B").parameters
    assert parameters is not None
    extra = {"zero_stage": stage} if stage > 1 else {}
    table = pd.DataFrame([fields | extra, fields | {"optimizer_sharding": False, "data_par_overlap": False}])
    table["zero_stage"] = [stage, 0]
    found = engine.evaluate("llama-3-8B", "mi300x_192g", table, cost_model="calibrated")
    assert (found["status"] == "ok").all(), found["status"]
    needs = found["proc_mem_tier1_cap_req"].to_numpy()
    if stage < 3:
        kept = 1 - 1 / REPLICAS
        saved = parameters * ((MASTER + MOMENTS) * (stage >= 1) + GRADIENT * (stage >= 2)) * kept
        assert needs[1] - needs[0] == pytest.approx(saved, rel=0.01)
    else:  # fully sharded: 16 bytes of each parameter over all replicas, and two gathered blocks and the ends besides
        assert needs[1] - needs[0] == pytest.approx(parameters * (18 - 16 / REPLICAS), rel=0.1)


# What is held ---------------------------------------------------------------------------------------------------------


def actions_of(rank: int, ranks: int, microbatches: int, chunks: int) -> list[tuple[str, int, int]]:
    """Forwards and backwards of a rank in the order of Megatron-LM: 1F1B, interleaved in groups of as many microbatches
    as ranks (Narayanan et al. 2021, section 2.2)."""
    groups = [range(start, min(start + ranks, microbatches)) for start in range(0, microbatches, ranks)]
    forwards = [("F", one, chunk) for group in groups for chunk in range(chunks) for one in group]
    backwards = [("B", one, chunk) for group in groups for chunk in reversed(range(chunks)) for one in group]
    if chunks == 1:
        warm = min(ranks - rank - 1, microbatches)
    else:
        warm = min(2 * (ranks - rank - 1) + (chunks - 1) * ranks, len(forwards))
    order, forwards = forwards[:warm], forwards[warm:]
    for forward in forwards:
        order += [forward, backwards.pop(0)]
    return order + backwards


def peak_of(order: list[tuple[str, int, int]]) -> int:
    """The most chunks of microbatches that are forward and not yet backward."""
    held: set[tuple[int, int]] = set()
    peak = 0
    for kind, microbatch, chunk in order:
        if kind == "F":
            held.add((microbatch, chunk))
        else:
            held.remove((microbatch, chunk))
        peak = max(peak, len(held))
    assert not held
    return peak


SHAPES = [
    (ranks, rounds * ranks if chunks > 1 else few, chunks)
    for ranks, rounds, few, chunks in product((2, 3, 4, 8), (1, 2, 5), (1, 2, 3, 7, 40), (1, 2, 3, 4))
]


def test_microbatches_in_flight_are_those_of_a_replay() -> None:
    for ranks, microbatches, chunks in dict.fromkeys(SHAPES):
        asked = case(
            pipeline_par=float(ranks),
            pipeline_interleaving=float(chunks),
            data_par=1.0,
            microbatch_size=1.0,
            batch_size=float(microbatches),
        )
        for rank in range(ranks):
            expected = peak_of(actions_of(rank, ranks, microbatches, chunks)) / chunks
            assert float(in_flight(asked, float(rank))) == pytest.approx(expected), (ranks, microbatches, chunks, rank)


@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 1), (2, 8), (4, 2), (4, 16), (8, 3), (8, 8)])
def test_activations_of_the_first_stage_are_of_as_many_microbatches(ranks: int, microbatches: int) -> None:
    """Both cost models, 1F1B: what the fullest stage keeps in all, over what one microbatch takes on it."""
    held = peak_of(actions_of(0, ranks, microbatches, 1))
    layout = {"pipeline_par": float(ranks), "data_par": 1.0, "microbatch_size": 1.0, "batch_size": float(microbatches)}
    one_block = float(activation_bytes(case(**layout)).kept[0])
    assert float(memory_use(case(**layout)).activations) == pytest.approx(held * (32 / ranks) * one_block)
    fields = {
        "num_procs": ranks,
        "tensor_par": 1,
        "pipeline_par": ranks,
        "data_par": 1,
        "tensor_par_net": 0,
        "pipeline_par_net": 0,
        "data_par_net": 0,
        "microbatch_size": 1,
        "datatype": "float16",
        "fused_activation": True,
        "attention_type": "multihead",
        "activation_recompute": "none",
        "pipeline_interleaving": 1,
        "optimizer_sharding": False,
        "tensor_par_comm_type": "ar",
        "tensor_par_overlap": "none",
        "seq_par_ag_redo": False,
        "data_par_overlap": False,
        "weight_offload": False,
        "activations_offload": False,
        "optimizer_offload": False,
        "training": True,
    }
    table = pd.DataFrame([fields | {"batch_size": number} for number in (1, microbatches)])
    found = engine.evaluate("megatron-126M" if ranks < 8 else "gpt3-13B", "h100_80g_nvl8", table)
    assert (found["status"] == "ok").all()
    one, all_of_them = found["act_space"].to_numpy()
    assert all_of_them / one == pytest.approx(held, rel=1e-9)
    assert np.isfinite(one)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_pytorch_keeps_gathered_inputs_that_megatron_gathers_again(ranks: int) -> None:
    """With sequences divided over the ranks: the inputs of both halves of a block, 16 bits each, of 2 x 2048 tokens."""
    layout = {"tensor_par": float(ranks), "sequence_par": 1.0}
    megatron, pytorch = (float(activation_bytes(case(**layout, pytorch_native=kind)).kept[0]) for kind in (0.0, 1.0))
    assert pytorch - megatron == pytest.approx(2 * 2 * (2 * 2048) * 4096 * (ranks - 1) / ranks)
    whole = [float(activation_bytes(case(tensor_par=float(ranks), pytorch_native=kind)).kept[0]) for kind in (0.0, 1.0)]
    assert whole[0] == whole[1]
