"""Per-layer figures of single executions against Calculon's."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import engine
from tests import reference

LAYERS = reference.layers()


def _table(number: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    entry = LAYERS[number]
    return entry["layers"], engine.operations(
        entry["model"], entry["system"], entry["execution"], cost_model="calculon"
    )


@pytest.mark.parametrize("number", range(len(LAYERS)))
def test_layers_and_their_figures(number: int) -> None:
    expected, found = _table(number)
    assert found["name"].tolist() == expected["name"].tolist()
    missing = [column for column in expected.columns if column not in found.columns]
    assert not missing
    for column in map(str, expected.columns.drop("name")):
        got, want = found[column].to_numpy(float), expected[column].to_numpy(float)
        assert np.allclose(got, want, rtol=1e-9, atol=0), f"{column}: {got.tolist()} instead of {want.tolist()}"


def test_figures_are_equal_to_the_last_bit() -> None:
    for number in range(len(LAYERS)):
        expected, found = _table(number)
        for column in map(str, expected.columns.drop("name")):
            assert found[column].tolist() == expected[column].tolist(), (number, column)


@pytest.mark.parametrize("number", range(len(LAYERS)))
def test_layers_add_up_to_the_block(number: int) -> None:
    entry = LAYERS[number]
    _, table = _table(number)
    execution = pd.DataFrame([entry["execution"]])
    block = engine.evaluate(entry["model"], "a100_80e" if entry["system"] == "a100_80g" else entry["system"], execution)
    sums = {
        "block_fw_flops": "fw_flops",
        "block_agrad_flops": "agrad_flops",
        "block_wgrad_flops": "wgrad_flops",
        "block_optim_flops": "optim_flops",
        "block_fw_mem_accessed": "fw_mem_accessed",
        "block_agrad_mem_accessed": "agrad_mem_accessed",
        "block_weight_space": "weight",
        "block_act_grad_space": "activation_grad",
        "block_optimizer_space": "optimizer",
        "baseblock_fw_tp_size": "baseblock_fw_tp_comm_size",
        "edgeblock_bw_tp_size": "edgeblock_bw_tp_comm_size",
    }
    assert block.loc[0, "status"] == "ok", block.loc[0, "reason_text"]
    for statistic, column in sums.items():
        assert table[column].sum() == pytest.approx(block.loc[0, statistic], rel=1e-12), statistic


def test_recommunication_of_tiled_products_is_shown_as_calculon_shows_it() -> None:
    """Its per-layer exposed re-communication is that of the weight-gradient stage; the block counts the forward one.

    The two stages move the same bytes in different windows, so the printed figures need not add up to the block's.
    """
    overlapped = [
        number
        for number, entry in enumerate(LAYERS)
        if entry["execution"]["tensor_par_overlap"] != "none"
        and (entry["layers"]["baseblock_recomm_time_exposed"] > 0).any()
    ]
    assert overlapped
    for number in overlapped:
        entry = LAYERS[number]
        _, table = _table(number)
        assert (
            table["baseblock_recomm_time_exposed"].tolist() == entry["layers"]["baseblock_recomm_time_exposed"].tolist()
        )


RUNNING = {
    "num_procs": 8,
    "tensor_par": 4,
    "pipeline_par": 1,
    "data_par": 2,
    "tensor_par_net": 0,
    "pipeline_par_net": 0,
    "data_par_net": 0,
    "batch_size": 8,
    "microbatch_size": 1,
    "datatype": "bfloat16",
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


def test_layers_are_calculons_whichever_cost_model_a_system_is_for() -> None:
    """A forward pass and 32 bits are nothing for the calibrated cost model, but they have layers."""
    trained = engine.operations("llama-3-8B", "b200_180g_sxm", RUNNING, cost_model="calculon")
    served = engine.operations("llama-3-8B", "b200_180g_sxm", {**RUNNING, "training": False}, cost_model="calculon")
    wide = engine.operations("llama-3-8B", "b200_180g_sxm", {**RUNNING, "datatype": "float32"}, cost_model="calculon")
    assert trained["name"].tolist() == served["name"].tolist() == wide["name"].tolist()
    assert served["fw_flops"].tolist() == trained["fw_flops"].tolist()
    assert wide["weight"].tolist() == (2 * trained["weight"]).tolist()
    assert wide["fw_processing_time"].sum() > trained["fw_processing_time"].sum()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"datatype": "float4"}, "computed in float8, float16, bfloat16, float32, not float4."),
        ({"context_par": 2, "data_par": 1}, "has no context parallelism; this one has 2."),
        ({"batch_size": 7}, "batch_size 7 is not a multiple of data_par 2."),
        ({"training": False, "data_par": 3}, "but num_procs is 8; they must be equal."),
    ],
)
def test_executions_without_such_layers_say_why(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(engine.LayerError, match=sentence):
        engine.operations("llama-3-8B", "b200_180g_sxm", {**RUNNING, **changes}, cost_model="calculon")
