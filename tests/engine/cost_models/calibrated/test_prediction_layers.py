"""Layers for multi-token prediction that are trained with the model: what they add, where, and nothing without them."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

import engine
import hardware
import models
from engine import launch
from engine.cost_models.calibrated.account import CalibratedAccount
from engine.cost_models.calibrated.case_building import case_of, model_shapes
from engine.cost_models.calibrated.physics.inputs import Case
from engine.cost_models.calibrated.physics.memory import memory_use
from engine.cost_models.calibrated.physics.parameters import parameters
from engine.cost_models.calibrated.physics.step import update_level
from engine.cost_models.calibrated.words import WORDS
from engine.cost_models.chunk_times import microbatches_of
from engine.cost_models.registry import named
from engine.executions.layer_splits import LayerSplitError
from engine.exploration.proven_optimum import best_of
from engine.planners.layerwise import library_models as layer_wise
from engine.planners.layerwise.library_models import library_profile, plan_model
from engine.simulate import replay
from models.parameters import prediction_parameters
from models.token_flops import token_flops

PLAIN = models.load("deepseek-v3")
TRAINED = models.edited(PLAIN, {"architecture.trained_prediction_layers": 1})
SYSTEM = hardware.load("h200_141g_sxm")
P = parameters()
LISTED = "Et*3|(tt|)*29m|L"
ROW: dict[str, Any] = {
    "num_procs": 512,
    "tensor_par": 1,
    "pipeline_par": 16,
    "data_par": 32,
    "expert_par": 32,
    "batch_size": 1024,
    "microbatch_size": 1,
    "pipeline_interleaving": 1,
    "zero_stage": 1,
    "optimizer_sharding": True,
    "data_par_overlap": True,
    "tensor_par_comm_type": "ar",
    "activation_recompute": "full",
    "training": True,
    "tensor_par_overlap": "none",
    "seq_par_ag_redo": False,
    "weight_offload": False,
    "activations_offload": False,
    "optimizer_offload": False,
    "fused_activation": True,
    "attention_type": "multihead",
    "datatype": "bfloat16",
    "tensor_par_net": 0,
    "pipeline_par_net": 1,
    "data_par_net": 1,
    "schedule": "1f1b",
    "stage_layout": "even",
}


def evaluated(model: models.Model, **changes: Any) -> dict[str, Any]:
    found = engine.evaluate(model, SYSTEM, pd.DataFrame([{**ROW, **changes}]), cost_model="calibrated")
    return {str(name): value for name, value in found.iloc[0].items()}


def account_of(model: models.Model, **changes: Any) -> CalibratedAccount:
    row = evaluated(model, **changes)
    assert row["status"] == "ok", row["reason_text"]
    found = named("calibrated").account(model, SYSTEM, row, None)
    assert isinstance(found, CalibratedAccount)
    return found


def case(model: models.Model, **changes: Any) -> Case:
    return case_of(
        model,
        SYSTEM,
        {
            "tensor_par": 1,
            "pipeline_par": 1,
            "data_par": 1,
            "expert_par": 1,
            "microbatch_size": 1,
            "batch_size": 64,
            **changes,
        },
    )


def test_nothing_is_trained_unless_it_is_said_and_results_keep_their_names() -> None:
    for name in models.plain_names():
        assert model_shapes(models.load(name)).prediction_layers == 0
    depends = named("calibrated").depends_on
    assert "prediction_layers" not in depends(PLAIN, SYSTEM, None)["model"]
    assert depends(TRAINED, SYSTEM, None)["model"]["prediction_layers"] == 1
    assert "multi-token" in " ".join(WORDS.neglected(PLAIN))
    assert "multi-token" not in " ".join(WORDS.neglected(TRAINED))
    with pytest.raises(models.ModelFileError, match="at most as many"):
        models.edited(PLAIN, {"architecture.trained_prediction_layers": 2})


def test_work_and_parameters_are_those_of_the_published_description() -> None:
    """A block with experts, a projection of 2 x 7,168 to 7,168 columns, and the shared head (arXiv:2412.19437, 2.2)."""
    a = PLAIN.architecture_or_assumed()
    more, before = token_flops(TRAINED), token_flops(PLAIN)
    assert more.head == 2 * before.head
    assert more.attention - before.attention == pytest.approx(before.attention / 61)
    block = (before.weights - 2 * 3 * 3 * a.hidden * (a.ffn - 9 * 2048)) / 61
    assert more.weights - before.weights == pytest.approx(block + 2 * 2 * a.hidden**2, rel=2e-3)
    with_it, without = memory_use(case(TRAINED)), memory_use(case(PLAIN))
    assert float(with_it.weights - without.weights) == pytest.approx(2 * prediction_parameters(a), rel=1e-4)
    assert float(with_it.logits) == 2 * float(without.logits)
    # The last of several stages looks tokens up, too, and adds the gradients of that to the first stage's.
    ends = [memory_use(case(each, pipeline_par=61)) for each in (TRAINED, PLAIN)]
    assert float(ends[0].weights) > float(ends[1].weights)
    tied = [float(update_level(case(each, pipeline_par=8), P).tied) for each in (TRAINED, PLAIN)]
    assert tied[0] > 0 == tied[1]
    assert float(update_level(case(TRAINED, pipeline_par=8, schedule=4), P).tied) == 0


def test_they_are_on_the_last_stage_or_where_a_list_says() -> None:
    even = account_of(TRAINED).model_stages(16, 1)
    assert [part[:2] for part in even[-1].parts] == [
        ("blocks with experts", 3),
        ("head and loss", 1),
        ("prediction layers", 1),
    ]
    blocks, head, predicting = (part.seconds for part in even[-1].parts)
    assert blocks / 3 + head < predicting < 1.1 * (blocks / 3 + head)
    listed = account_of(TRAINED, pipeline_interleaving=2, stage_layout=LISTED).model_stages(16, 2)
    assert [part[:2] for part in listed[-2].parts] == [("prediction layers", 1)]
    assert sum(each.seconds for each in listed) == pytest.approx(sum(each.seconds for each in even))
    with pytest.raises(LayerSplitError, match="lists 0 prediction layers, m, and the model trains 1"):
        account_of(TRAINED).model_stages(16, 1, "Et*3|(t*4|)*14t*2L")
    refused = evaluated(TRAINED, stage_layout="Et*3|(t*4|)*14t*2L")
    assert refused["reason"] == "layout_not_of_blocks"
    assert "the model trains 1" in refused["reason_text"]
    assert evaluated(PLAIN, pipeline_interleaving=2, stage_layout=LISTED)["status"] == "ok"


def test_balanced_stages_leave_room_for_them_and_megatrons_list_names_them() -> None:
    even, balanced = (evaluated(TRAINED, stage_layout=each)["total_time"] for each in ("even", "balanced"))
    assert balanced < 0.9 * even
    told = launch.stage_options(TRAINED, {**ROW, "stage_layout": "balanced"})
    assert told.endswith("mL'")
    assert told.count("m") - "--pipeline-model-parallel-layout".count("m") == 1


@pytest.mark.parametrize("shape", [(1, "even", "1f1b"), (2, "balanced", "interleaved"), (2, LISTED, "interleaved")])
def test_a_step_with_them_is_a_replay_of_its_stages(shape: tuple[int, str, str]) -> None:
    chunks, layout, schedule = shape
    account = account_of(TRAINED, pipeline_interleaving=chunks, stage_layout=layout, schedule=schedule, pipeline_par=16)
    stages = account.model_stages(16, chunks)
    times = {
        "F": [each.forward for each in stages],
        "B": [each.input_gradient for each in stages],
        "W": [each.weight_gradient for each in stages],
    }
    told = replay(schedule, stages=16, microbatches=microbatches_of(ROW), chunks=chunks, times=times).makespan
    parts = account.step
    other = ("step", "data_exposed", "tied", "optimizer", "straggler", "fixed", "offload", "pipeline_exposed")
    assert sum(each for name, each in parts.items() if name not in other) == pytest.approx(told, rel=0.04)


def test_the_optimum_with_them_is_proven() -> None:
    scenario = engine.Scenario.of(
        TRAINED,
        SYSTEM,
        num_procs=256,
        max_batch_size=256,
        datatype="bfloat16",
        cost_model="calibrated",
        limits={
            "tensor_par": [1, 2],
            "pipeline_par": [4, 8, 16],
            "expert_par": [16, 32],
            "microbatch_size": [1],
            "weight_offload": False,
            "activations_offload": False,
            "optimizer_offload": False,
        },
    )
    explored = engine.explore_scenario(scenario)
    assert explored.best is not None
    assert dict(best_of(scenario))["sample_rate"] == explored.best["sample_rate"]


def test_a_layer_wise_plan_has_them_as_layers_and_is_an_execution() -> None:
    small = models.edited(TRAINED, {"architecture.layers": 7})
    profile, _ = library_profile(small, SYSTEM)
    plain, _ = library_profile(models.edited(PLAIN, {"architecture.layers": 7}), SYSTEM)
    assert [layer.id for layer in profile.layers][-3:] == ["block 6", "prediction 0", "head"]
    block, predicting, head = profile.layers[-3:]
    assert head == plain.layers[-1]
    assert block.forward + head.forward < predicting.forward < 1.1 * (block.forward + head.forward)
    found = plan_model(small, SYSTEM, 32, global_batch=64, tensor_par=8)
    assert found.layout is not None
    assert found.layout.count("m") == 1
    assert found.execution is not None
    (row,) = layer_wise.evaluated(found, small, SYSTEM).to_dict("records")
    assert row["status"] == "ok" or "GiB" in row["reason_text"]


def test_launch_configurations_say_and_write_them() -> None:
    execution = {**ROW, "pipeline_interleaving": 2, "schedule": "interleaved", "stage_layout": LISTED}
    for framework, key in (("megatron", "--mtp-num-layers"), ("megatron-bridge", "model.mtp_num_layers")):
        written = launch.write(execution, TRAINED, framework=framework)
        assert written.flags[key] == 1
        found = launch.read_flags(framework, written.flags, gpus=512)
        assert launch.model_of_shape(found.model).architecture == TRAINED.architecture
        plain = launch.write(
            {**execution, "stage_layout": "even", "pipeline_interleaving": 1, "schedule": "1f1b"},
            PLAIN,
            framework=framework,
        )
        assert key not in plain.flags
        assert launch.model_of_shape(launch.read_flags(framework, plain.flags, gpus=512).model) == PLAIN
        with pytest.raises(launch.LaunchError, match="lists 0 prediction layers, m, and the model trains 1"):
            launch.write({**execution, "stage_layout": "Et*3|(tt|)*29|L"}, TRAINED, framework=framework)
    untrained = launch.write(execution, PLAIN, framework="megatron")
    assert "m" not in untrained.flags["--pipeline-model-parallel-layout"]
    assert any("which the model does not train" in each for each in untrained.remarks)


@pytest.mark.parametrize("framework", ["torchtitan", "maxtext"])
def test_frameworks_that_are_not_told_of_them_say_so(framework: str) -> None:
    execution = {**ROW, "pipeline_par": 1, "data_par": 512, "expert_par": 64}
    for model in (TRAINED, PLAIN):
        told = launch.write(execution, model, framework=framework).not_expressible
        assert any("multi-token prediction" in each for each in told) == (model is TRAINED)
