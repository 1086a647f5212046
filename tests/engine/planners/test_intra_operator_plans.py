"""Plans as sharding annotations and as executions, against what frameworks and cost model do."""

import io
import json
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

import engine
import engine.reproductions
from engine.planners.contract import PlanCancelledError, PlanError
from engine.planners.intra_operator import (
    IntraOperatorPlan,
    IntraOperatorProblem,
    beside_exploration,
    described,
    mesh_of,
    plan_degrees,
    search,
    sharding_annotations,
    solve,
    system_mesh,
)

A100: dict[str, Any] = {"devices": 4, "bandwidth": 20.65e9, "matrix_rate": 83.8e12}
NODE: dict[str, Any] = {"devices": 8, "bandwidth": 360e9, "matrix_rate": 600e12}


@pytest.fixture(scope="module")
def llama() -> IntraOperatorPlan:
    return search("llama-3-8B", system_mesh("h100_80g_sxm", 8), batch=8, zero=True)


def _by_tensor(table: pd.DataFrame, column: str) -> dict[str, str]:
    return dict(zip(table["tensor"], table[column], strict=True))


def test_megatron_is_annotated_as_pytorch_tells_to_parallelize_a_llama(llama: IntraOperatorPlan) -> None:
    # PyTorch's tutorial "Large Scale Transformer model training with Tensor Parallel": wq, wk, wv, w1, w3 colwise, wo
    # and w2 rowwise, sequence-parallel norms between them: outputs are Shard(1) of [batch, sequence, hidden].
    found = sharding_annotations(llama, vectors=[(0, 2, 0, 2)] * 32, axis_names=["tp"])
    assert set(found["layers"]) == {"0-31"}
    placements, specs = _by_tensor(found, "placements"), _by_tensor(found, "partition_spec")
    for name in ("w_q", "w_k", "w_v", "w_gate_proj", "w_up_proj"):
        assert (placements[name], specs[name]) == ("[Shard(1)]", "P(None, 'tp')")
    for name in ("w_out", "w_down_proj"):
        assert (placements[name], specs[name]) == ("[Shard(0)]", "P('tp', None)")
    for name in ("out_out", "down_proj_out"):
        assert (placements[name], specs[name]) == ("[Shard(1)]", "P(None, 'tp', None)")
    reduced = found[found["collective"] != ""]
    assert list(reduced["tensor"]) == ["out_out", "down_proj_out"]
    assert set(reduced["collective"]) == {"reduce-scatter over tp"}


def test_two_axes_and_fsdp_are_annotated_together() -> None:
    mesh = {**NODE, "outer": {"devices": 2, "bandwidth": 40e9}}
    found = search("llama-3-8B", mesh, batch=8, layers=2, fsdp=True)
    table = sharding_annotations(found, vectors=[((1, 0), (1, 2), (1, 0), (1, 2))] * 2)
    specs = _by_tensor(table, "partition_spec")
    assert (specs["w_q"], specs["w_out"]) == ("P('data', 'model')", "P(('data', 'model'), None)")
    assert (specs["mlp_in"], specs["out_out"]) == ("P('data', None, None)", "P('data', 'model', None)")
    with pytest.raises(PlanError, match="are not 2 different identifiers"):
        sharding_annotations(found, axis_names=["data"])
    with pytest.raises(PlanError, match="is none of 0 to 2 for each axis"):
        sharding_annotations(found, vectors=[((1, 0), (1, 7), (1, 0), (1, 2))] * 2)


def test_experts_are_split_over_the_axis_that_holds_them() -> None:
    found = search("deepseek-v2-lite", NODE, batch=8, layers=3)
    table = sharding_annotations(found, vectors=[(1,) * 5, *[(1, 1, 1, 1, 3, 1)] * 2])
    assert list(table["layers"].unique()) == ["0", "1-2"]
    experts = table[table["layer"] == "experts, shared"]
    specs = _by_tensor(experts, "partition_spec")
    assert specs["w_expert_gate"] == "P('model', None, None)"
    assert specs["visits"] == "P('model', None, None)"
    assert specs["w_shared_gate"] == "P(None, None)"
    shapes = dict(zip(experts["tensor"], experts["shape"], strict=True))
    assert shapes["w_expert_down"] == (64, 1408, 2048)  # DeepSeek-V2-Lite: 64 experts, 1408 wide, hidden 2048


def test_a_plan_stands_beside_the_proven_best_of_all_executions(llama: IntraOperatorPlan) -> None:
    found = beside_exploration(llama, "llama-3-8B", "h100_80g_sxm", batch=8)
    best = engine.best(
        "llama-3-8B", "h100_80g_sxm", num_procs=8, max_batch_size=8, datatype="bfloat16", cost_model="calibrated"
    )
    assert list(found["what"]) == ["this plan", "its degrees as an execution", "best of all executions"]
    assert found["sample_rate"].iloc[2] == best["sample_rate"]
    assert found["sample_rate"].iloc[1] <= best["sample_rate"] * (1 + 1e-9)
    assert plan_degrees(llama) == {"tensor_par": 1, "data_par": 8}
    # The plan leaves out embedding, head, optimizer and launches; what is left is near the cost model's step.
    assert 0.9 < found["seconds"].iloc[0] / found["seconds"].iloc[1] < 1.0


@pytest.mark.parametrize(
    ("vectors", "degrees"),
    [
        ([((1, 0), (1, 2), (1, 0), (1, 2))] * 2, {"tensor_par": 8, "data_par": 2}),
        ([((1, 1),) * 4] * 2, {"tensor_par": 1, "data_par": 16}),
        ([((1, 1),) * 4, ((1, 0), (1, 2), (1, 0), (1, 2))], None),
        ([((1, 0), (1, 1), (1, 0), (1, 2))] * 2, None),
    ],
)
def test_degrees_are_those_of_plans_that_are_executions(vectors: Any, degrees: Any) -> None:
    mesh = {**NODE, "devices": 16, "outer": {"devices": 2, "bandwidth": 40e9}}
    found = search("llama-3-8B", mesh, batch=16, layers=2, memory_limit=1e15)
    assert plan_degrees(found, vectors) == degrees


def test_the_contract_gets_figures_and_alternatives_with_reasons() -> None:
    told: list[float] = []
    problem = IntraOperatorProblem("gpt F", mesh_of({**A100, "memory": 12 * 2**30}), batch=24, layers=2)
    plan = solve(problem, progress=lambda share, _: told.append(share))
    assert (told, plan.value, plan.figure("step_time").unit) == ([0.0, 1.0], plan.value, "s")
    assert json.loads(json.dumps(problem.document()))["mesh"]["devices"] == 4
    (megatron,) = [each for each in plan.alternatives if each.name == "Megatron tensor parallel"]
    assert megatron.value is not None
    assert plan.value < megatron.value
    assert plan.stages[0].devices == (0, 1, 2, 3)
    assert plan.notes[0] == "2 layers (dense): attention data parallel; MLP data parallel."
    with pytest.raises(PlanCancelledError):
        solve(problem, cancel=lambda: True)
    with pytest.raises(PlanError, match="No plan fits"):
        solve(replace(problem, memory_limit=1e9))


def test_mixed_plans_are_told_by_their_parts() -> None:
    found = described([((1, 1), (1, 1), (1, 0), (1, 2))] * 3, ["dense"] * 3)
    assert found == ["3 layers (dense): attention data parallel; MLP data parallel outside and tensor parallel inside."]
    experts = described([(1, 1, 1, 3, 0)], ["experts, shared"])
    assert experts == [
        "1 layer (experts, shared): attention data parallel; experts expert parallel; shared experts tensor parallel."
    ]


def test_a_system_with_its_devices_is_a_mesh() -> None:
    asked: dict[str, Any] = {"batch": 16, "layers": 1, "memory_limit": 1e15}
    found = search("llama-3-8B", {"system": "h100_80g_sxm", "devices": 16, "tiers": 2}, **asked)
    assert found.mesh == system_mesh("h100_80g_sxm", 16, tiers=2)
    assert mesh_of(found.mesh.document()) == found.mesh
    with pytest.raises(PlanError, match="joins 8 processors, not 16"):
        search("llama-3-8B", {"system": "h100_80g_sxm", "devices": 16}, **asked)


def test_the_command_prints_annotations_and_the_comparison(shardscape: Any) -> None:
    ask = ("plan", "operators", "llama-3-8B", "--devices", 8, "--batch", 8, "--system", "h100_80g_sxm", "--zero")
    code, out, _ = shardscape(*ask, "--annotations", "--csv")
    table = pd.read_csv(io.StringIO(out))
    assert (code, table["partition_spec"].iloc[0]) == (0, "P('model', None, None)")
    code, out, _ = shardscape(*ask, "--beside", "--json")
    assert (code, len(json.loads(out))) == (0, 3)
    code, out, _ = shardscape(*ask[:3], "--devices", 16, "--batch", 16, "--tiers", 2, *ask[7:], "--layers", 2)
    assert (code, out.startswith("Data parallel:"), "11,11,11,11 x 2" in out) == (0, True, True)
    code, _, told = shardscape("plan", "operators", "gpt F", "--devices", 4, "--beside")
    assert (code, "--beside needs --system." in told) == (2, True)
