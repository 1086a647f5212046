"""The oracle itself against Calculon's own figures: a witness has to be checked before it is believed."""

from __future__ import annotations

import math

import pytest

from tests import oracle, reference


@pytest.mark.parametrize("system", sorted(reference.systems()))
@pytest.mark.parametrize("model", sorted(reference.models()))
def test_golden_executions_exactly(model: str, system: str) -> None:
    table = reference.golden()
    rows = table[(table["model"] == model) & (table["system"] == system)]
    fields, statistics = reference.golden_fields(), reference.golden_statistics()
    assert len(rows) > 0
    for row in rows.to_dict("records"):
        execution = {name: row[name] for name in fields}
        outcome = oracle.evaluate(reference.models()[model], reference.systems()[system], execution)
        assert outcome[0] == row["status"], execution
        if outcome[0] != "ok":
            assert outcome[1:] == (row["reason"], row["error_text"]), execution
            continue
        assert list(outcome[1]) == statistics
        for name, value in outcome[1].items():
            expected = row[name]
            same = math.isnan(expected) if value is None else value == expected
            assert same, f"{name}: {value!r} instead of {expected!r} for {execution}"


@pytest.mark.parametrize("number", range(12))
def test_layers_exactly(number: int) -> None:
    entry = reference.layers()[number]
    model, system = reference.models()[entry["model"]], reference.systems()[entry["system"]]
    assert oracle.layer_table(model, system, entry["execution"]) == entry["layers"].to_dict("records")


def test_space_optima_exactly() -> None:
    searched = [space for space in reference.spaces() if "best_execution" in space]
    assert len(searched) == 9
    for space in searched:
        model, system = reference.models()[space["model"]], reference.systems()[space["system"]]
        outcome = oracle.evaluate(model, system, space["best_execution"])
        assert outcome[0] == "ok"
        assert outcome[1]["sample_rate"] == space["best_sample_rate"]


def test_no_time_to_hide_in_is_an_infinite_requirement() -> None:
    system = reference.systems()["a100_80g"]
    # a processor far faster than its memory: with roofline timing every layer lasts as long as its memory traffic
    fast = {"tflops": 1_000_000_000, "gflops_efficiency": [[0, 1]]}
    system = {**system, "processing_mode": "roofline", "matrix": {"float16": fast}, "vector": {"float16": fast}}
    row = reference.golden().query("model == 'gpt3-13B' and status == 'ok' and training and data_par > 1").iloc[0]
    execution = {name: row[name].item() if hasattr(row[name], "item") else row[name] for name in row.index}
    degrees = {"tensor_par": 1, "pipeline_par": 1, "data_par": 8, "num_procs": 8, "batch_size": 8}
    execution |= degrees | {"microbatch_size": 1, "pipeline_interleaving": 1, "tensor_par_overlap": "none"}
    execution |= {"activation_recompute": "none", "seq_par_ag_redo": False, "activations_offload": False}
    execution |= {"weight_offload": False, "optimizer_offload": True, "pipeline_par_net": 0, "data_par_net": 0}
    execution |= {"optimizer_sharding": False, "data_par_overlap": False, "tensor_par_net": 0, "datatype": "float16"}
    system["networks"] = [{**network, "latency": 0} for network in system["networks"]]
    system["mem1"] = {**system["mem1"], "GiB": 1e6}
    outcome = oracle.evaluate(reference.models()["gpt3-13B"], system, execution)
    assert outcome[0] == "ok"
    assert outcome[1]["weight_offload_bw_req"] == math.inf
    assert outcome[1]["offload_mem_bw_req"] == math.inf
