"""What `engine.evaluate` says by the calibrated cost model, against the same executions given to it in words, against
a restatement in plain numbers, and against itself where figures have to agree."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

import engine
import models
from engine.columns import (
    ALL_FIELDS,
    EXTENSIONS,
    FIELDS,
    NEUTRAL_EXTENSIONS,
    STATISTICS,
    by_name,
    headline_of,
    statistics_of,
)
from engine.columns.recompute_modules import module_bits, modules_of_word
from engine.cost_models.calibrated import (
    block_level,
    case_of,
    library_calibration,
    memory_use,
    model_shapes,
    parameters,
    step_times,
)
from engine.cost_models.calibrated.physics.inputs import Case
from hardware import Calibration
from models import Model
from models.token_flops import token_flops
from tests.engine.cost_models.calibrated.small import NAMES, evaluated, named, system_of

P = parameters()
OFFLOADS = ["weight_offload", "activations_offload", "optimizer_offload"]
GIB = 2.0**30
TIMES = [column.name for column in headline_of("calibrated") if column.group == "Time"]
FIGURES = [column.name for column in statistics_of("calibrated")]
KINDS = ["weight_space", "weight_grad_space", "optimizer_space", "act_space", "act_checkpoint_size", "act_grad_space"]
FURTHER_KINDS = ["logit_space", "temporary_space", "reserve_space"]
DIRECT = (
    "tensor_par",
    "pipeline_par",
    "data_par",
    "context_par",
    "expert_par",
    "expert_tensor_par",
    "microbatch_size",
    "batch_size",
    "pipeline_interleaving",
    "zero_stage",
    "attention_kernel",
    "launch",
    "datatype",
    "token_dispatcher",
    "context_par_comm",
)


CHOICES = by_name("selective_recompute").choices


def in_words(model: Model, table: pd.DataFrame) -> dict[str, Any]:
    """Executions as `case_of` takes them: the names of `Layout` and `Software`, words as words."""
    selective = {"attention": "selective"}
    selective |= {word: "by_module" for word in table["selective_recompute"] if word not in CHOICES}
    both = list(zip(table["activation_recompute"], table["selective_recompute"], strict=True))
    kinds = [{"attn_only": selective.get(kind, kind)}.get(recompute, recompute) for recompute, kind in both]
    sets = [module_bits(modules_of_word(kind)) if kind not in CHOICES else 0.0 for _, kind in both]
    # Blocks of each chunk.
    blocks = table["recompute_blocks"] * table["pipeline_par"] * table["pipeline_interleaving"]
    gradients = np.where(table["gradient_datatype"] == "float32", 4.0, 2.0)
    return {name: table[name].to_numpy() for name in DIRECT} | {
        "recompute": np.array(kinds),
        "recompute_modules": np.array(sets),
        "recompute_share": np.where(blocks > 0, np.minimum(blocks / float(model_shapes(model).num_blocks), 1.0), 1.0),
        "fp8_parameters": table["fp8_param_gather"].to_numpy(),
        "fully_sharded": (table["zero_stage"] == 3).to_numpy(),
        "sequence_par": (table["tensor_par_comm_type"] == "rs_ag").to_numpy(),
        "split_messages": (table["tensor_par_comm_type"] != "ar").to_numpy(),
        "overlap_tensor": (table["tensor_par_overlap"] != "none").to_numpy(),
        "overlap_data": table["data_par_overlap"].to_numpy(),
        "overlap_expert": table["expert_overlap"].to_numpy(),
        "overlap_pipeline": table["pipeline_overlap"].to_numpy(),
        "schedule": [by_name("schedule").choices.index(word) for word in table["schedule"]],
        "stage_layout": table["stage_layout"].to_numpy(),
        "unfused_elementwise": (table["launch"] == "eager").to_numpy(),
        "gradient_bytes": gradients,
        "shard_gradient_bytes": gradients,
        "moment_bytes": np.where(table["optimizer_datatype"] == "float32", 4.0, 2.0),
        "dispatch_bytes": np.where(table["dispatch_datatype"] == "float8", 1.0 + 4.0 / 128.0, 2.0),
        "busiest_load": table["expert_imbalance"].to_numpy() / 100.0,
    }


@cache
def without_offload(name: str) -> tuple[pd.DataFrame, Case]:
    """The executions of a small space that run and offload nothing, and their case."""
    table = evaluated(name)
    table = table[(table["status"] == "ok") & ~table[OFFLOADS].any(axis=1)]
    assert len(table) > 100
    return table, case_of(named(name).model, named(name).system, in_words(named(name).model, table))


def assert_near(found: Any, expected: Any, rel: float) -> None:
    """Every number is within a share of what is expected. `pytest.approx` takes them one by one, a second for 8,000."""
    np.testing.assert_allclose(found, expected, rtol=rel, atol=0.0, equal_nan=False)


@pytest.mark.parametrize("name", NAMES)
def test_times_are_those_of_the_executions_in_words(name: str) -> None:
    table, case = without_offload(name)
    found = step_times(case, P)

    def close(column: str, *parts: Any) -> None:
        scale = 1e-12 * np.asarray(found.step)
        assert (np.abs(table[column].to_numpy() - sum(parts)) <= scale).all(), column

    close("total_time", found.step)
    close("optim_step_time", found.optimizer)
    close("bubble_time", found.bubble)
    close("tp_comm_exposed_time", found.tensor_exposed)
    close("cp_comm_exposed_time", found.context_exposed)
    close("ep_comm_exposed_time", found.expert_exposed)
    close("pp_comm_exposed_time", found.pipeline_exposed)
    close("dp_comm_exposed_time", found.data_exposed, found.gather_exposed, found.tied)
    close("overhead_time", found.straggler, found.fixed)
    both = table["recompute_time"] + table["recomm_exposed_time"]
    assert_near(both, found.recompute, 1e-12)
    computed = table["fw_time"] + table["bw_time"]
    parts = found.linear + found.attention + found.elementwise + found.launch + found.ends
    assert_near(computed, parts, 1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_memory_is_that_of_the_executions_in_words(name: str) -> None:
    table, case = without_offload(name)
    found = memory_use(case)
    assert_near(table["proc_mem_tier1_cap_req"], found.peak + GIB, 1e-12)
    assert (table["proc_mem_tier2_cap_req"] == 0).all()
    assert_near(table["weight_space"], found.weights, 1e-12)
    assert_near(table["weight_grad_space"], found.gradients, 1e-12)
    assert_near(table["optimizer_space"], found.optimizer, 1e-12)
    kept = (table["act_space"] + table["act_checkpoint_size"]).to_numpy()
    assert_near(kept, found.activations, 1e-12)
    assert_near(table["logit_space"], found.logits, 1e-12)
    assert (table["reserve_space"] == GIB).all()
    total = table[[*KINDS, *FURTHER_KINDS]].sum(axis=1)
    assert_near(total, table["proc_mem_tier1_cap_req"], 1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_times_add_up_and_figures_are_numbers(name: str) -> None:
    table = evaluated(name)
    runs, others = table[table["status"] == "ok"], table[table["status"] != "ok"]
    total = runs["total_time"].to_numpy()
    assert_near(runs[TIMES].sum(axis=1), total, 1e-12)
    assert (runs[TIMES].to_numpy() >= 0).all()
    assert_near(runs["sample_rate"] * total, runs["batch_size"], 1e-14)
    headline = [column.name for column in headline_of("calibrated") if column.name != "offload_mem_bw_req"]
    assert np.isfinite(runs[headline].to_numpy()).all()
    assert (runs["offload_mem_bw_req"] >= 0).all()
    assert others[FIGURES].isna().all(axis=None)
    for efficiency in ("total_efficiency", "compute_efficiency", "system_efficiency"):
        assert runs[efficiency].between(0, 1).all(), efficiency
    product = runs["compute_efficiency"] * runs["system_efficiency"]
    assert_near(product, runs["total_efficiency"], 1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_total_efficiency_is_model_flop_utilisation(name: str) -> None:
    chosen, runs = named(name), evaluated(name).query("status == 'ok'").iloc[::97]
    peak = chosen.system.matrix[chosen.datatype].tflops * 1e12
    work = token_flops(chosen.model).model() * chosen.model.seq_size * runs["batch_size"]
    used = work / (runs["total_time"] * peak * runs["num_procs"])
    assert_near(runs["total_efficiency"], used, 1e-12)
    assert_near(runs["useful_flops"] * runs["num_procs"], work, 1e-12)


def test_what_describes_layers_as_calculon_does_is_not_a_number() -> None:
    runs = evaluated("dense").query("status == 'ok'")
    empty = {column.name for column in STATISTICS if runs[column.name].isna().all()}
    assert "block_fw_flops" in empty
    assert not any(runs[column.name].isna().any() for column in STATISTICS if column.name not in empty)
    assert not empty & {column.name for column in headline_of("calculon")}


# --- a step in plain numbers -------------------------------------------------------------------------------------


class Machine:
    """An H100 of the small spaces: sustained rates [bytes/s] from its datasheet and the shares of the calibration."""

    domain = 8
    scale_up = 450e9 * P.scale_up
    scale_out = 50e9 * P.scale_out
    host = 64e9 * P.scale_out
    memory = 3350e9 * P.memory


def gathered(size: float, inside: int, outside: int) -> float:
    """Seconds of an all-gather or reduce-scatter of `size` bytes over `inside` ranks of a domain and `outside` domains.

    The second tier carries what the ranks of the first have left of the buffer.
    """
    time = (inside - 1) / inside * size / Machine.scale_up + (outside - 1) / outside * size / inside / Machine.scale_out
    hops = 1 + 0.1 * (inside - 1) if inside > 1 else 0.0
    if outside > 1:
        # Two levels, or one that ignores the domains where that has fewer hops.
        hops = min(hops + 1.5 + math.log2(outside), 1.5 + math.log2(inside * outside))
    return time + P.latency / 2 * hops


def one_path(stage: int, microbatches: int, times: list[float], forwards: list[float]) -> float:
    """Seconds of 1F1B by one stage: those before it, its own work, and its waiting for those after it when the pipeline
    fills and when it drains."""
    stages, time, forward = len(times), times[stage], forwards[stage]
    if stages == 1:
        return microbatches * time
    after, behind = sum(times[stage + 1 :]), stages - 1 - stage
    waits = max(after - behind * forward, 0.0) + max(after - behind * (time - forward), 0.0)
    if microbatches < stages:
        waits = max(after - (microbatches - 1) * min(forward, time - forward), 0.0)
    return sum(times[:stage]) + microbatches * time + waits


def restated(e: dict[str, Any], shape: dict[str, float], block: dict[str, float]) -> float:
    """Seconds of a step of a dense model, from the seconds of a block and of the ends of the model.

    Not for fully sharded training, nor for offloading.
    """
    tensor, stages, data, context = (int(e[name]) for name in ("tensor_par", "pipeline_par", "data_par", "context_par"))
    chunks, replicas, blocks = int(e["pipeline_interleaving"]), data * context, int(shape["blocks"])
    microbatches = e["batch_size"] // data // e["microbatch_size"]
    tokens = e["microbatch_size"] * shape["seq"] / context
    # Blocks of each stage: equal, or with embedding and loss as layers, or the last before the end take the remainder.
    if stages == 1:
        held = [blocks]
    elif blocks % (stages * chunks) == 0:
        held = [blocks // stages] * stages
    elif (blocks + 2) % (stages * chunks) == 0:
        layers = (blocks + 2) // stages
        held = [layers - 1] + [layers] * (stages - 2) + [layers - 1]
    else:
        least, more = divmod(blocks, stages)
        held = [least] * (stages - 1 - more) + [least + 1] * more + [least]
    message = 0.0
    if stages > 1:
        link = Machine.scale_up if e["num_procs"] <= Machine.domain else Machine.scale_out
        split = 1 if e["tensor_par_comm_type"] == "ar" else tensor
        message = 2 * tokens * shape["hidden"] / split / link + P.latency
    times = [count * (block["forward"] + block["backward"]) for count in held]
    times[0] += block["embedding"]
    times[-1] += block["head"]
    # Messages that nothing hides: two on a stage between others, one at either end.
    waits = 2 * message if chunks == 1 and stages > 1 and not e["pipeline_overlap"] else 0.0
    for stage in range(stages):
        times[stage] += 0.0 if stages == 1 else waits / 2 if stage in (0, stages - 1) else waits
    slowest = max(times)
    total = sum(times)
    running = microbatches * slowest + (total - slowest) / chunks + 2 * (stages - 1) * message
    if chunks == 1:
        late = waits / 2
        forwards = [
            count * block["forward"] + late * (2 if 0 < stage < stages - 1 else 1) / 2
            for stage, count in enumerate(held)
        ]
        forwards[0] += block["embedding"] / 3
        forwards[-1] += block["head"] / 3
        paths = [one_path(stage, microbatches, times, forwards) for stage in range(stages)]
        if e["pipeline_overlap"]:
            # A round trip holds as many microbatches as there are stages.
            trips = (stages - 1) * (microbatches - 1) // stages
            paths.append(total + (microbatches - 1) * total / stages + 2 * trips * message)
        running = max(paths) + 2 * (stages - 1) * message
    # Parameters of the stage with most, and the exchange of their gradients.
    words = shape["words"] / tensor
    ends = [words] + [0.0] * (stages - 2) + [words] if stages > 1 else [words if shape["tied"] else 2 * words]
    parameters_held = max(count * shape["block"] / tensor + end for count, end in zip(held, ends, strict=True))
    inside = min(max(Machine.domain // tensor, 1), replicas)
    outside = replicas // inside
    exchange = 0.0
    if replicas > 1:
        reduce = gathered((4 if e["gradient_datatype"] == "float32" else 2) * parameters_held, inside, outside)
        exchange = reduce + (gathered(2 * parameters_held, inside, outside) if e["zero_stage"] >= 1 else reduce)
    hidden = P.overlap_data * min(exchange, slowest / chunks) if e["data_par_overlap"] else 0.0
    shown = exchange - hidden
    owned = parameters_held / (replicas if e["zero_stage"] >= 1 else 1)
    launch = P.launch * {"compiled": P.compiled_launch, "graphs": P.graphs_launch}.get(e["launch"], 1.0)
    each = 38 if e["optimizer_datatype"] == "float32" else 30  # two moments in and out
    update = (each * owned + 6 * parameters_held) / Machine.memory + 50 * launch
    tied = 0.0
    if shape["tied"] and stages > 1:
        size = (4 if e["gradient_datatype"] == "float32" else 2) * words
        near = e["num_procs"] // stages * (stages - 1) < Machine.domain
        tied = 2 * gathered(size, *((2, 1) if near else (1, 2)))
    waiting = P.straggler * math.log2(max(e["num_procs"] / 8, 1))
    return float((running + shown) * (1 + waiting) + update + tied + P.step_constant)


BASE: dict[str, Any] = {
    **NEUTRAL_EXTENSIONS,
    "num_procs": 64,
    "tensor_par": 4,
    "pipeline_par": 4,
    "data_par": 4,
    "tensor_par_net": 0,
    "pipeline_par_net": 0,
    "data_par_net": 0,
    "batch_size": 64,
    "microbatch_size": 2,
    "datatype": "bfloat16",
    "fused_activation": True,
    "attention_type": "multihead",
    "activation_recompute": "none",
    "pipeline_interleaving": 1,
    "optimizer_sharding": True,
    "tensor_par_comm_type": "rs_ag",
    "tensor_par_overlap": "none",
    "seq_par_ag_redo": False,
    "data_par_overlap": False,
    "weight_offload": False,
    "activations_offload": False,
    "optimizer_offload": False,
    "training": True,
    "zero_stage": 1,
    "attention_kernel": "native",
}
ALONE = {"pipeline_par": 1, "data_par": 16}
UNSHARDED = {"zero_stage": 0, "optimizer_sharding": False}
STEPS: list[tuple[str, dict[str, Any]]] = [
    ("llama-3-8B", {}),
    ("llama-3-8B", {"pipeline_interleaving": 4}),
    ("llama-3-8B", {"data_par_overlap": True, "tensor_par_overlap": "ring", "pipeline_overlap": True}),
    ("llama-3-8B", {"context_par": 2, "data_par": 2, "activation_recompute": "full", "launch": "graphs"}),
    ("llama-3-8B", {**ALONE, "data_par_overlap": True}),
    ("llama-3-8B", {**ALONE, **UNSHARDED, "gradient_datatype": "bfloat16", "optimizer_datatype": "bfloat16"}),
    ("llama-3-8B", {"num_procs": 1, "tensor_par": 1, "pipeline_par": 1, "data_par": 1, **UNSHARDED}),
    ("llama-3-8B", {"pipeline_par": 17, "num_procs": 34, "tensor_par": 1, "data_par": 2, "tensor_par_comm_type": "ar"}),
    ("llama-3-8B", {"pipeline_par": 10, "num_procs": 80, "tensor_par": 4, "data_par": 2}),
    ("gpt3-6.7B", {"tensor_par_comm_type": "p2p_rs_ag"}),
    ("gpt3-6.7B", {"pipeline_par": 2, "tensor_par": 2, "data_par": 2, "num_procs": 8, "datatype": "float8"}),
    ("gpt3-6.7B", {**ALONE, "launch": "compiled", "attention_kernel": "unfused"}),
]


@pytest.mark.parametrize(("name", "changes"), STEPS, ids=[f"{name} {','.join(what)}" for name, what in STEPS])
def test_a_step_is_what_plain_numbers_say(name: str, changes: dict[str, Any]) -> None:
    e = {**BASE, **changes}
    # Memory is not the question here.
    model, system = models.load(name), system_of("h100_80g_sxm", first=1e6, second=0)
    found = engine.evaluate(model, system, pd.DataFrame([e])).iloc[0]
    assert found["reason_text"] == ""
    level = block_level(case_of(model, system, in_words(model, pd.DataFrame([e]))), P)
    plain = level.kinds[level.heaviest]
    block = {"forward": plain.forward, "backward": plain.backward}
    block |= {"embedding": level.ends.embedding, "head": level.ends.head}
    a = model.architecture
    assert a is not None
    attention = a.hidden * a.head_dim * (2 * a.heads + 2 * a.kv_heads)
    feedforward = (3 if a.gated_mlp else 2) * a.hidden * a.ffn
    shape: dict[str, float] = {
        "seq": model.seq_size,
        "hidden": a.hidden,
        "blocks": a.layers,
        "block": attention + feedforward,
        "words": a.vocab_padded * a.hidden,
        "tied": a.tied_embeddings,
    }
    expected = restated(e, shape, {key: float(np.ravel(value)[0]) for key, value in block.items()})
    assert found["total_time"] == pytest.approx(expected, rel=1e-9)


# --- offloading by hand ------------------------------------------------------------------------------------------


def test_offloading_by_hand() -> None:
    """Weights, activations and optimizer of one execution, from the figures of the same one that offloads nothing."""
    e = {**BASE, "pipeline_interleaving": 2}
    moved = {**e, **dict.fromkeys(OFFLOADS, True)}
    shape = {"hidden": 4096, "feedforward": 16384, "seq_size": 2048, "attn_heads": 32, "attn_size": 128}
    model = models.load_document({**shape, "num_blocks": 32}, "plain")
    system = system_of("h100_80g_sxm", first=1e6, second=1e6)
    plain, away = (engine.evaluate(model, system, pd.DataFrame([row])).iloc[0] for row in (e, moved))
    level = block_level(case_of(model, system, in_words(model, pd.DataFrame([e]))), P)
    block = level.kinds[level.heaviest]
    forward, backward = (float(np.ravel(time)[0]) for time in (block.forward, block.backward))
    assert plain["logit_space"] == 0  # the first stage needs most, so it is the one that the figures are of
    # 32 blocks on 4 stages; the first keeps 2 (4 - 1) + (2 - 1) 4 + 1 = 11 chunks of 4 blocks, 44 blocks' worth.
    # A vocabulary of one word stays beside the processor.
    of_blocks = plain["weight_space"] - 2 * 4096 / 4
    weights, activations = of_blocks / 8, plain["act_space"] / 44
    state = plain["weight_grad_space"] + plain["optimizer_space"]
    link = 64e9 * P.scale_out
    # 8 microbatches of 8 blocks, and as the pipeline fills 3 more stages' worth of half their blocks.
    repeats = 8 * (8 + 3 / 2)
    wait_forward = repeats * max(max(weights, activations) / link - forward, 0)
    wait_backward = repeats * max((weights + activations) / link - backward, 0)
    wait_update = max(state / link - plain["optim_step_time"], 0)
    assert wait_update > 0
    assert away["fw_offload_exposed_time"] == pytest.approx(wait_forward, rel=1e-9)
    assert away["bw_offload_exposed_time"] == pytest.approx(wait_backward + wait_update, rel=1e-9)
    slower = (wait_forward + wait_backward) * (1 + P.straggler * math.log2(64 / 8)) + wait_update
    assert away["total_time"] == pytest.approx(plain["total_time"] + slower, rel=1e-12)
    needed = max(
        max(weights, activations) / forward, (weights + activations) / backward, state / plain["optim_step_time"]
    )
    assert away["offload_mem_bw_req"] == pytest.approx(needed, rel=1e-9)
    assert plain["offload_mem_bw_req"] == 0
    # Two blocks' worth stays: of 8 blocks' weights and state, of 44 blocks' activations.
    gone = (of_blocks + state) * 6 / 8 + plain["act_space"] * 42 / 44
    # So much stays on the last stage, too, which has the logits besides: of a vocabulary of one word, 8 bytes each.
    gone -= 8 * 2 * 2048 / 4
    assert away["proc_mem_tier1_cap_req"] == pytest.approx(plain["proc_mem_tier1_cap_req"] - gone, rel=1e-12)
    held = of_blocks + state + plain["act_space"]
    assert away["proc_mem_tier2_cap_req"] == pytest.approx(held, rel=1e-12)
    assert away["weight_offload_bw_req"] == pytest.approx(weights / forward, rel=1e-9)
    assert away["act_offload_bw_req"] == pytest.approx(activations / forward, rel=1e-9)


@pytest.mark.parametrize("name", ["dense", "experts", "plain"])
def test_offloading_frees_the_first_tier_and_never_speeds_up(name: str) -> None:
    table = evaluated(name).query("status == 'ok'")
    others = [column.name for column in ALL_FIELDS if column.name not in OFFLOADS]
    plain = table[~table[OFFLOADS].any(axis=1)].set_index(others)
    away = table[table[OFFLOADS].any(axis=1)].set_index(others)
    known = plain[["total_time", "proc_mem_tier1_cap_req"]].add_suffix("_plain")
    both = away.join(known, how="inner")
    assert len(both) > 500
    assert (both["total_time"] >= both["total_time_plain"]).all()
    assert (both["proc_mem_tier1_cap_req"] < both["proc_mem_tier1_cap_req_plain"]).all()
    assert (both["proc_mem_tier2_cap_req"] > 0).all()
    kept_or_moved = both["proc_mem_tier1_cap_req"] + both["proc_mem_tier2_cap_req"]
    assert (kept_or_moved >= both["proc_mem_tier1_cap_req_plain"] * (1 - 1e-12)).all()


# --- tables ------------------------------------------------------------------------------------------------------


def test_extensions_default_to_a_current_stack() -> None:
    table = evaluated("dense").query("context_par == 1").iloc[::211]
    found = named("dense").evaluate(table[[column.name for column in FIELDS]])
    assert found["zero_stage"].tolist() == table["optimizer_sharding"].astype(int).tolist()
    said = {column.name: set(found[column.name]) for column in EXTENSIONS if column.name != "zero_stage"}
    assert said == {
        "context_par": {1},
        "expert_par": {1},
        "expert_tensor_par": {1},
        "selective_recompute": {"attention"},
        "attention_kernel": {"native"},
        "launch": {"fused"},
        "gradient_datatype": {"float32"},
        "optimizer_datatype": {"float32"},
        "recompute_blocks": {0},
        "fp8_param_gather": {False},
        "token_dispatcher": {"all_to_all"},
        "dispatch_datatype": {"bfloat16"},
        "expert_imbalance": {100},
        "context_par_comm": {"p2p"},
        "expert_overlap": {False},
        "pipeline_overlap": {False},
        "schedule": {"1f1b", "interleaved"},
        "stage_layout": {"even"},
    }
    assert found["schedule"].eq("interleaved").equals(found["pipeline_interleaving"] > 1)
    pd.testing.assert_frame_equal(named("dense").evaluate(found), found)
    old = engine.evaluate("llama-3-8B", "a100_80g_sxm", table.head(3)[[column.name for column in FIELDS]])
    assert set(old["attention_kernel"]) == {"flash2"}


@pytest.mark.parametrize(("name", "every"), [("experts", 151), ("schedules", 53)])
def test_order_pieces_and_other_columns_do_not_matter(name: str, every: int) -> None:
    table = evaluated(name).iloc[::every]
    given = table[[column.name for column in ALL_FIELDS]]
    with engine.working_in(engine.WorkSizes(rows_tabulated=17)):
        pd.testing.assert_frame_equal(named(name).evaluate(given), table, check_exact=True)
    shuffled = given.sample(frac=1, random_state=1)[given.columns[::-1]].assign(note="x")
    pd.testing.assert_frame_equal(named(name).evaluate(shuffled).loc[table.index], table, check_exact=True)
    before = given.copy(deep=True)
    assert len(named(name).evaluate(given.iloc[:0])) == 0
    pd.testing.assert_frame_equal(given, before)


def test_results_name_what_they_were_evaluated_by() -> None:
    chosen, table = named("dense"), evaluated("dense").iloc[:3][[column.name for column in ALL_FIELDS]]
    assert chosen.evaluate(table).attrs == {"cost_model": "calibrated", "calibration": "global"}
    other = library_calibration().model_copy(update={"name": "mine"})
    found = engine.evaluate(chosen.model, chosen.system, table, calibration=other)
    assert found.attrs == {"cost_model": "calibrated", "calibration": "mine"}
    exact = engine.evaluate(chosen.model, chosen.system, table, cost_model="calculon")
    assert exact.attrs == {"cost_model": "calculon"}
    assert list(exact) == [c.name for c in FIELDS] + ["status", "reason", "reason_text"] + [c.name for c in STATISTICS]
    with pytest.raises(engine.CostModelError, match="must be one of calibrated, calculon"):
        engine.evaluate(chosen.model, chosen.system, table, cost_model="exact")
    with pytest.raises(engine.CostModelError, match="takes no calibration"):
        engine.evaluate(chosen.model, chosen.system, table, cost_model="calculon", calibration=other)


def changed(**values: float) -> Calibration:
    """The library's calibration with other values."""
    library = library_calibration()
    parts = {
        name: item.model_copy(update={"value": values.get(name, item.value), "low": None, "high": None})
        for name, item in library.parameters.items()
    }
    return library.model_copy(update={"name": "changed", "parameters": parts})


@pytest.mark.parametrize(
    ("parameter", "value"),
    [("sustained_hopper", 0.3), ("scale_up", 0.1), ("memory", 0.2), ("launch", 1e-3), ("step_constant", 10.0)],
)
def test_a_calibration_is_what_figures_come_from(parameter: str, value: float) -> None:
    chosen, table = named("dense"), evaluated("dense").query("status == 'ok' and tensor_par > 1").iloc[::301]
    found = engine.evaluate(chosen.model, chosen.system, table, calibration=changed(**{parameter: value}))
    # Host work hides what the arithmetic of a small model takes.
    assert (found["total_time"] >= table["total_time"]).all()
    assert (found["total_time"] > table["total_time"]).mean() > 0.5
    assert found["proc_mem_tier1_cap_req"].tolist() == table["proc_mem_tier1_cap_req"].tolist()
    if parameter == "step_constant":
        assert (found["total_time"] - table["total_time"]).to_numpy() == pytest.approx(10.0 - P.step_constant)
