"""Library models on the networks of systems: shapes counted by hand, every pair of vectors, the cost model's times."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import engine
from engine.cost_models.registry import named
from engine.planners.contract import PlanError
from engine.planners.intra_operator import IntraOperatorPlan, blocks, mesh_of, search, system_mesh
from engine.planners.intra_operator.costs.options import Widths
from engine.planners.intra_operator.layer_costs import FIRST, layer_costs
from engine.planners.intra_operator.library import library_layers
from engine.reproductions.alpa.suite_models import suite_layers
from hardware import edited, system_of
from models import model_of
from models.parameters import embedding_weights, layer_weights, norm_weights

VOCABULARY = sum(count(model_of("llama-3-8B").architecture_or_assumed()) for count in (embedding_weights, norm_weights))
NODE: dict[str, Any] = {"devices": 8, "bandwidth": 360e9, "matrix_rate": 600e12, "all_to_all_bandwidth": 100e9}
TWO: dict[str, Any] = {**NODE, "devices": 4, "outer": {"devices": 2, "bandwidth": 40e9, "alpha": 1e-5}}


def _row(found: IntraOperatorPlan, vector: tuple[Any, ...]) -> "pd.Series[Any]":
    return found.vectors[[each == vector for each in found.vectors["vector"]]].iloc[0]


def test_latent_attention_and_sorted_experts_have_blocks_of_their_own() -> None:
    _, layers, _ = library_layers("deepseek-v3", batch=8, layers=4)
    dense, experts = (blocks_of for blocks_of in (blocks("deepseek-v3", batch=8, layers=each) for each in (3, 4)))
    assert [each.contractions for each in dense] == [
        ("q_down", "kv_down", "k_rope"),
        ("q_up", "kv_up", "qk", "av"),
        ("out",),
        ("gate_proj", "up_proj"),
        ("down_proj",),
    ]
    assert experts.spaces == {"dense": [3] * 5, "experts, shared": [3, 3, 3, 3, 4, 3]}
    up = dense[1]
    assert [member.labels for member in up.members] == [
        ("a", "b", "latent_q"),
        ("a", "b", "latent_kv"),
        ("a", "b", "a"),
        ("a", "b", "a"),
    ]
    assert len(layers) == 4


@pytest.mark.parametrize("model", ["llama-3-8B", "deepseek-v3", "deepseek-v2-lite", "mixtral-8x7B", "falcon-7B"])
def test_gradients_of_all_weights_are_what_data_parallelism_reduces(model: str) -> None:
    architecture = model_of(model).architecture
    assert architecture is not None
    _, layers, _ = library_layers(model, batch=8, layers=5)
    found = search(model, NODE, batch=8, layers=5, element_bytes=2)
    kinds = list({each.name: each for each in layers}.values())
    number = sum(each.layer in {kind.name for kind in kinds} for each in blocks(model, batch=8, layers=5))
    whole = _row(found, (1,) * number)
    weights = [
        sum(each.weight.elements(kind.sizes) for each in kind.contractions if each.weight is not None)
        for kind in layers
    ]
    assert whole["all_reduce"] == pytest.approx(2 * 7 / 8 * 2 * sum(weights), rel=1e-12)
    assert whole["volume"] == whole["all_reduce"]
    counted = [layer_weights(architecture, experts=each) for each in architecture.expert_layers[:5]]
    assert sum(weights) == pytest.approx(sum(counted), rel=2e-4)  # which counts norms and biases, too


def test_heads_of_keys_are_repeated_where_devices_are_more() -> None:
    asked: dict[str, Any] = {"batch": 16, "layers": 2, "memory_limit": 1e15}
    wide = search("llama-3-8B", {**NODE, "devices": 16}, **asked)
    split = _row(wide, (0, 2, 0, 2))
    assert split["reason"] == ""
    # As if there were 16 heads of keys and values, each two times the same.
    model = model_of("llama-3-8B")
    assert model.architecture is not None
    doubled = model.model_copy(update={"architecture": model.architecture.model_copy(update={"kv_heads": 16})})
    whole = _row(search(doubled, {**NODE, "devices": 16}, **asked), (0, 2, 0, 2))
    assert split["memory"] == pytest.approx(whole["memory"], rel=1e-12)
    mesh = system_mesh("gb200_186g_nvl72", 16)
    times = [_row(search(each, mesh, **asked), (0, 2, 0, 2))["compute_seconds"] for each in (model, doubled)]
    assert times[0] == pytest.approx(times[1], rel=1e-12)


def test_wide_gradients_move_more_unless_weights_come_back() -> None:
    asked: dict[str, Any] = {"batch": 8, "layers": 2, "element_bytes": 2}
    plain = _row(search("llama-3-8B", NODE, **asked), (1,) * 4)["volume"]
    ways: tuple[tuple[dict[str, Any], float], ...] = (({}, 2.0), ({"zero": True}, 1.5), ({"fsdp": True}, 2.0))
    for way, times in ways:
        found = _row(search("llama-3-8B", NODE, gradient_bytes=4, **asked, **way), (1,) * 4)
        assert found["volume"] == pytest.approx(times * plain)  # FSDP: half of it twice as wide, and two gathers


def test_a_token_is_sent_once_to_each_device_that_has_experts_for_it() -> None:
    found = search("mixtral-8x7B", NODE, batch=8, layers=2, element_bytes=2, memory_limit=1e15)
    split = _row(found, (1, 1, 1, 3))
    stream = 8 * found.layers[0].sizes["s"] * 4096 * 2
    reached = 8 * (1 - (7 / 8) ** 2)  # two experts of a token on eight devices
    # Sent and brought back, forward and back; an all-to-all counts half an all-gather.
    assert split["all_to_all"] == pytest.approx(2 * 4 * 7 / 16 * reached * stream)
    assert split["solution"] == "data and expert parallel"


def test_dense_layers_and_experts_in_turns_are_searched_as_all_pairs() -> None:
    mesh = mesh_of({**NODE, "devices": 4, "alpha": 1e-5})
    graphs = suite_layers("moe E", batch=64, layers=2)
    experts, dense = (layer_costs(each, mesh, Widths()) for each in graphs)
    time = experts.seconds(mesh)[FIRST][:, None] + dense.seconds(mesh)[experts.gives]
    memory = experts.memory[FIRST][:, None] + dense.memory[experts.gives]
    for share in (0.0, 0.2, 0.5, 1.0):
        limit = float(memory.min() + share * (memory.max() - memory.min()))
        found = search("moe E", mesh, batch=64, layers=2, memory_limit=limit)
        assert found.chosen is not None
        assert found.chosen.communication_seconds == pytest.approx(time[memory <= limit].min(), rel=1e-12)


def test_steps_are_near_those_of_the_cost_model() -> None:
    """Degrees alike, no overlap: the plan leaves out embedding, head, optimizer and launches only.

    Tokens go once to each of the 8 (1 - (7/8)^8) devices that 8 experts of 8 stand on, at the calibration's rate; the
    cost model's all-to-all sends all 8 copies, at 2.25 times that rate.
    """
    mesh = system_mesh("h100_80g_sxm", 8)
    limits = {"pipeline_par": [1], "batch_size": [8], "activation_recompute": ["none"], "tensor_par_overlap": ["none"]}
    limits["launch"] = ["graphs"]
    for model, vector, degrees, ratio in (
        ("llama-3-8B", (0, 2, 0, 2), {"tensor_par": [8], "microbatch_size": [8]}, 1.0),
        (
            "qwen3-30B-A3B",
            (1, 1, 1, 3),
            {"data_par": [8], "expert_par": [8], "microbatch_size": [1]},
            2.25 * (1 - (7 / 8) ** 8),
        ),
    ):
        plan = _row(search(model, mesh, batch=8, zero=True), vector)
        best = engine.best(
            model,
            "h100_80g_sxm",
            num_procs=8,
            max_batch_size=8,
            datatype="bfloat16",
            cost_model="calibrated",
            limits={**limits, **degrees},
        )
        passes = best["fw_time"] + best["bw_time"]
        assert 0.75 < plan["compute_seconds"] / passes < 1.0
        exchanged = best["ep_comm_exposed_time"] + best["tp_comm_exposed_time"]
        assert (plan["communication_seconds"] - plan["all_reduce_seconds"]) / exchanged == pytest.approx(ratio, abs=0.2)


def test_sequence_parallelism_moves_what_tensor_parallelism_does_and_keeps_less() -> None:
    asked: dict[str, Any] = {"batch": 8, "layers": 3, "element_bytes": 2}
    plain, split = (
        _row(search("llama-3-8B", NODE, sequence_parallel=each, **asked), (0, 2, 0, 2)) for each in (False, True)
    )
    stream, share = 8 * 8192 * 4096 * 2, 7 / 8
    assert plain["all_reduce"] == plain["volume"] == pytest.approx((3 * 4 - 1) * 2 * share * stream)
    # Forward: scattered by out and down; back: the same by their partners, but not to the first layer's input.
    assert split["reduce_scatter"] == pytest.approx((3 * 4 - 1) * share * stream)
    # Gathered for columns, but for the first input, and for the gradients that rows get.
    assert split["all_gather"] == pytest.approx((3 * 4 - 1) * share * stream)
    assert split["volume"] == pytest.approx(plain["volume"])
    assert split["memory"] < plain["memory"]
    assert split["solution"] == "Megatron tensor and sequence parallel"


def test_fsdp_gathers_weights_twice_and_scatters_gradients() -> None:
    asked: dict[str, Any] = {"batch": 8, "layers": 2, "element_bytes": 2}
    plain, split = (_row(search("llama-3-8B", NODE, fsdp=each, **asked), (1,) * 4) for each in (False, True))
    assert split["reduce_scatter"] == plain["all_reduce"] / 2
    assert split["all_gather"] == plain["all_reduce"]
    weights = plain["all_reduce"] / 2 / (7 / 8) / 2
    assert plain["memory"] - split["memory"] == pytest.approx((weights + VOCABULARY) * 16 * 7 / 8)
    assert split["solution"] == "fully sharded data parallel (FSDP)"
    # Weights are gathered, and gradients scattered, for every microbatch; without FSDP gradients are added up before.
    twice = _row(search("llama-3-8B", NODE, fsdp=True, accumulation=2, **{**asked, "batch": 16}), (1,) * 4)
    assert (twice["all_gather"], twice["reduce_scatter"]) == (2 * split["all_gather"], 2 * split["reduce_scatter"])
    once = _row(search("llama-3-8B", NODE, accumulation=2, **{**asked, "batch": 16}), (1,) * 4)
    assert once["all_reduce"] == plain["all_reduce"]


@pytest.mark.parametrize("fsdp", [False, True])
def test_two_axes_are_searched_as_all_pairs_of_vectors(fsdp: bool) -> None:
    found = search("llama-3-8B", TWO, batch=4, layers=2, fsdp=fsdp)
    (graph, _) = found.layers
    costs = layer_costs(graph, found.mesh, found.widths)
    assert len(costs.vectors) == 9**4
    seconds = costs.seconds(found.mesh)
    possible = costs.possible
    for share in (0.1,) if fsdp else (0.0, 0.3, 1.0):
        low, high = (
            one(
                [
                    one(costs.memory[FIRST][possible & (costs.gives == state)]) + one(costs.memory[state][possible])
                    for state in np.unique(costs.gives[possible])
                ]
            )
            for one in (np.min, np.max)
        )
        limit = float(low + share * (high - low))
        best = np.inf
        for state in np.unique(costs.gives[possible]):
            ahead, behind = possible & (costs.gives == state), possible
            order = np.argsort(costs.memory[state][behind])
            memory, time = costs.memory[state][behind][order], np.minimum.accumulate(seconds[state][behind][order])
            at = np.searchsorted(memory, limit - costs.memory[FIRST][ahead], side="right") - 1
            total = seconds[FIRST][ahead] + np.where(at >= 0, time[at], np.inf)
            best = min(best, float(total.min()))
        again = search("llama-3-8B", TWO, batch=4, layers=2, fsdp=fsdp, memory_limit=limit)
        assert again.chosen is not None
        assert again.chosen.communication_seconds == pytest.approx(best, rel=1e-9)
        assert again.chosen.memory <= limit


def test_thin_frontiers_lose_no_more_than_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = search("llama-3-8B", TWO, batch=4, layers=6)
    assert whole.exactness.startswith("The line is exact")
    monkeypatch.setattr("engine.planners.intra_operator.frontier.MOST_POINTS", 12)
    thin = search("llama-3-8B", TWO, batch=4, layers=6)
    assert thin.thinned is not None
    assert f"from layer {thin.thinned.layer} on" in thin.exactness
    assert thin.exactness.endswith("slower than the best.")
    assert len(thin.frontier) < len(whole.frontier)
    assert thin.frontier["memory"].iloc[0] == pytest.approx(whole.frontier["memory"].iloc[0])
    slower = []
    for memory, best in zip(whole.frontier["memory"], whole.frontier["seconds"], strict=True):
        under = thin.frontier.loc[thin.frontier["memory"] <= memory * (1 + 1e-12), "seconds"].min()
        slower.append(under - best)
    assert min(slower) >= -1e-12
    assert 0 < max(slower) <= thin.thinned.seconds * (1 + 1e-9)


def test_recomputation_and_microbatches_take_what_the_cost_model_says() -> None:
    """Llama 3 8B, TP 8: what changes in a step and in the memory of activations, against the calibrated cost model."""
    mesh = system_mesh("h100_80g_sxm", 8)
    base = {
        "tensor_par": [8],
        "pipeline_par": [1],
        "batch_size": [8],
        "tensor_par_overlap": ["none"],
        "weight_offload": [False],
        "activations_offload": [False],
        "optimizer_offload": [False],
    }
    steps, models, kept, spaces, inputs, logits = [], [], [], [], [], []
    for recompute, number in (("none", 1), ("full", 1), ("full", 4)):
        found = search("llama-3-8B", mesh, batch=8, recompute=recompute, accumulation=number)
        row = _row(found, (0, 2, 0, 2))
        limits = {**base, "microbatch_size": [8 // number], "activation_recompute": [recompute]}
        best = engine.best(
            "llama-3-8B",
            "h100_80g_sxm",
            num_procs=8,
            max_batch_size=8,
            datatype="bfloat16",
            cost_model="calibrated",
            limits=limits,
        )
        steps.append(row["seconds"])
        models.append(best["total_time"])
        kept.append(row["memory"])
        spaces.append(best["act_space"])
        inputs.append(best["act_checkpoint_size"])
        logits.append(best["logit_space"])
    for one, other in ((1, 0), (2, 1)):
        assert steps[one] - steps[other] == pytest.approx(models[one] - models[other], rel=0.05)
    stream = 8 * 8192 * 4096 * 2 / 8
    assert inputs[1] == 4 * inputs[2] == 32 * stream
    # The first layer's input comes whole here: seven further parts, kept, and once more while it is at work.
    fell = inputs[1] + spaces[1] + logits[1] + 2 * 7 * stream
    assert kept[1] - kept[2] == pytest.approx(fell * 3 / 4, rel=0.05)
    assert kept[0] - kept[1] == pytest.approx(spaces[0] - spaces[1] - inputs[1], rel=0.15)


def test_of_an_input_that_is_split_a_part_is_kept() -> None:
    """Behind a layer that gives tokens apart, sequence parallelism keeps the n-th part of what attention reads."""
    one, two, three = (
        _row(search("llama-3-8B", NODE, batch=8, layers=layers, element_bytes=2), (0, 2, 0, 2))["memory"]
        for layers in (1, 2, 3)
    )
    stream = 8 * 8192 * 4096 * 2
    assert three - two == pytest.approx(two - one)
    # The first layer's input comes whole, and embedding and head with their state are split as its weights are.
    assert one - (two - one) == pytest.approx(stream * 7 / 8 + 16 * VOCABULARY / 8)


@pytest.mark.parametrize("model", ["llama-3-8B", "llama-2-13B", "qwen3-8B", "mistral-7B-v0.1", "gpt3-6.7B"])
@pytest.mark.parametrize("choice", [{}, {"zero": True}, {"fsdp": True}])
def test_memory_is_that_of_the_same_degrees_as_an_execution(model: str, choice: dict[str, bool]) -> None:
    """Weights, gradients, optimizer, activations, embedding, head, logits and reserve, as the cost model counts."""
    wide = edited(system_of("h100_80g_sxm"), {"mem1.capacity_gib": 10_000.0})
    sequences = 8 * max(1, 8_192 // model_of(model).seq_size)
    found = search(model, system_mesh(wide, 8), batch=sequences, **choice)
    for vector, degrees in (((1, 1, 1, 1), {"tensor_par": 1, "data_par": 8}), ((0, 2, 0, 2), {"tensor_par": 8})):
        stages = [3] if "fsdp" in choice else [2] if "zero" in choice else [0]
        limits = {
            **{name: [value] for name, value in degrees.items()},
            "pipeline_par": [1],
            "batch_size": [sequences],
            "microbatch_size": [sequences // degrees.get("data_par", 1)],
            "activation_recompute": ["none"],
            "zero_stage": stages if degrees["tensor_par"] == 1 else [0],
            "weight_offload": [False],
            "activations_offload": [False],
            "optimizer_offload": [False],
        }
        best = engine.best(
            model,
            wide,
            num_procs=8,
            max_batch_size=sequences,
            datatype="bfloat16",
            cost_model="calibrated",
            limits=limits,
        )
        assert _row(found, vector)["memory"] == pytest.approx(best["proc_mem_tier1_cap_req"], rel=0.2), vector


def test_embedding_and_head_are_not_forgotten() -> None:
    """Llama 3 8B: 1.05 bn parameters at 16 bytes are 16.8 GB, whole on every device that works on tokens of its own."""
    rates = {"devices": 8, "matrix_rate": 1e15, "bandwidth": 1e11}
    found = search("llama-3-8B", rates, batch=8, layers=1)
    without = [replace(each, vocabulary=0, logits=0) for each in found.layers]
    costs, plain = (layer_costs(each, found.mesh, found.widths) for each in (found.layers[0], without[0]))
    more = costs.memory[FIRST] - plain.memory[FIRST]
    assert more.max() == pytest.approx(16.8e9, rel=0.01)
    assert more.min() == pytest.approx(16.8e9 / 8, rel=0.01)
    assert np.array_equal(costs.memory[:FIRST], plain.memory[:FIRST])
    assert any("reserve" in note for note in found.notes)


def test_an_outer_axis_gets_what_the_inner_one_left_of_gradients() -> None:
    found = search("llama-3-8B", TWO, batch=4, layers=2, element_bytes=2)
    weights = 2 * 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336) * 2
    whole = _row(found, ((1, 1),) * 4)
    assert whole["all_reduce"] == pytest.approx(2 * 1 / 2 * weights + 2 * 1 / 2 * weights / 2)
    seconds = 2 * 1 / 2 * weights / 360e9 + 2 * 1 / 2 * weights / 2 / 40e9 + 2 * 4 * 1e-5
    assert whole["communication_seconds"] == pytest.approx(seconds)
    both = _row(found, ((1, 0), (1, 2), (1, 0), (1, 2)))
    assert both["solution"] == "data parallel outside, Megatron tensor and sequence parallel inside"
    assert both["all_reduce"] == pytest.approx(2 * 1 / 2 * weights / 2)


def test_what_is_left_of_too_many_vectors_are_all_that_can_be_best(monkeypatch: pytest.MonkeyPatch) -> None:
    every = search("llama-3-8B", TWO, batch=4, layers=2)
    for module in ("layer_costs", "uniform"):
        monkeypatch.setattr(f"engine.planners.intra_operator.{module}.LISTED", 1000)
    few = search("llama-3-8B", TWO, batch=4, layers=2)
    assert (len(every.vectors), len(few.vectors) < 2000) == (9**4, True)
    assert any(note.startswith("Of 6,561 vectors of a layer") for note in few.notes)
    pd.testing.assert_frame_equal(few.frontier, every.frontier)


def test_a_mesh_of_a_system_has_the_times_of_the_calibrated_model() -> None:
    kernels = named("calibrated").kernel_times(system_of("h100_80g_sxm"), "bfloat16")
    assert kernels is not None
    mesh = system_mesh("h100_80g_sxm", 32, tiers=2)
    assert mesh.shape == (4, 8)
    for axis, stride in zip(mesh.axes, (8, 1), strict=True):
        for size in (1e6, 3e8):
            share = (axis.devices - 1) / axis.devices
            volumes = np.array([2 * share, share, share / 2, share]) * size
            seconds = np.array(axis.alphas) + volumes / np.array(axis.bandwidths)
            expected = [
                kernels.collective(size, axis.devices, stride, passes=2),
                kernels.collective(size, axis.devices, stride, passes=1),
                kernels.exchange(size, axis.devices, stride),
            ]
            assert seconds[:3] == pytest.approx(np.array(expected), rel=1e-9)
    found = search("llama-3-8B", mesh, batch=32, layers=1)
    parts = [(131072 // 16, 6144, 4096), (8192, 4096, 4096), (8192, 28672, 4096), (8192, 4096, 14336)]
    products = [kernels.product(float(m), float(n), float(k)) for m, n, k in parts]
    # The input of the first layer needs no gradient.
    total = sum(float(sum(each)) for each in products) - float(products[0][1])
    total += float(sum(kernels.attention(1, 32, 8192, 128, 128)))
    total += float(sum(kernels.activation(8192 * 14336, gated=True))) + 2 * float(sum(kernels.norm(8192 * 4096)))
    assert _row(found, ((1, 1),) * 4)["compute_seconds"] == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize(
    ("outer", "words"),
    [
        (3, "outer '3'"),
        ({"devices": 3, "bandwidth": 1e9}, "no multiple of the 3"),
        ({"devices": 2}, "outer axis of a mesh has either bandwidth"),
        ({"devices": 2, "bandwidth": 1e9, "memory": 1}, "no field 'memory'"),
    ],
)
def test_a_wrong_outer_axis_is_told(outer: Any, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        search("llama-3-8B", {**TWO, "outer": outer}, batch=4, layers=1)
