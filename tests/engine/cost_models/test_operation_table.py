"""`engine.operations` and `shardscape layers` by the calibrated cost model: the block, operation by operation."""

from __future__ import annotations

import json

import pandas as pd
import pytest

import engine
import hardware
from engine.cli.output import ExitCode
from engine.columns import ALL_FIELDS, UNITS
from engine.cost_models.calibrated.operation_columns import LABELS, OPERATION_COLUMNS

SYSTEM = "h100_80g_sxm"
DENSE = {
    "num_procs": 8,
    "tensor_par": 2,
    "pipeline_par": 1,
    "data_par": 4,
    "tensor_par_net": 0,
    "pipeline_par_net": 0,
    "data_par_net": 0,
    "batch_size": 16,
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
}
EXPERTS = {**DENSE, "tensor_par": 1, "data_par": 8, "expert_par": 8}


def test_work_of_projections_by_hand() -> None:
    """Llama 3 8B: hidden 4,096, 32 heads of 128 and 8 of keys and values, MLP 14,336; 2 samples of 8,192 tokens."""
    found = engine.operations("llama-3-8B", SYSTEM, DENSE, cost_model="calibrated").set_index("name")
    tokens, hidden = 2 * 8192, 4096
    weights = {
        "query_key_value": hidden * (32 + 8 + 8) * 128,
        "attention_output": 32 * 128 * hidden,
        "feedforward_up": 2 * hidden * 14336,
        "feedforward_down": hidden * 14336,
    }
    for name, number in weights.items():
        assert found.loc[name, "flops"] == pytest.approx(3 * 2 * tokens * number / 2), name  # half of it on each of two
    qkv, rows, columns = found.loc["query_key_value"], tokens, 48 * 128 / 2
    forward = 2 * (rows * hidden + hidden * columns + rows * columns)
    assert qkv["fw_mem_accessed"] == pytest.approx(forward)
    assert qkv["arithmetic_intensity"] == pytest.approx(2 * rows * hidden * columns / forward)
    assert qkv["rate"] == pytest.approx(qkv["flops"] / (qkv["fw_time"] + qkv["bw_time"]))
    assert qkv["bound"] == "compute"
    assert found["share"].sum() == pytest.approx(1)
    assert found.loc["norms", ["flops", "arithmetic_intensity", "rate"]].isna().all()
    assert found.loc["tensor_exchange", ["engine", "bound"]].tolist() == ["network", "network"]


@pytest.mark.parametrize(
    ("model", "system", "execution", "kind"),
    [("llama-3-8B", SYSTEM, DENSE, "dense"), ("mixtral-8x7B", "b200_180g_sxm", EXPERTS, "experts")],
)
def test_operations_add_up_to_the_block_and_blocks_to_the_step(model, system, execution, kind) -> None:
    found = engine.operations(model, system, execution, cost_model="calibrated")
    figures = engine.evaluate(model, system, pd.DataFrame([execution])).iloc[0]
    assert figures["status"] == "ok", figures["reason_text"]
    assert found["block"].unique().tolist() == [kind]
    forward, backward = (float(found[name].sum()) for name in ("fw_time", "bw_time"))
    assert forward == pytest.approx(figures["block_fw_time"], rel=1e-12)
    # Nothing is offloaded, repeated, or waited for in a pipeline: the rest is embedding, head and the update.
    microbatches, blocks = 16 // execution["data_par"] // 2, 32
    rest = figures["total_time"] - microbatches * blocks * (forward + backward)
    assert 0 < rest < 0.25 * figures["total_time"]


def test_models_with_both_kinds_of_blocks_have_both() -> None:
    found = engine.operations("deepseek-v2-lite", SYSTEM, EXPERTS, cost_model="calibrated")
    assert found["block"].unique().tolist() == ["experts", "dense"]
    shares = found.groupby("block")["share"].sum()
    assert shares.tolist() == pytest.approx([1, 1])
    assert set(found[found["block"] == "dense"]["name"]) >= {"feedforward_up", "feedforward_down"}
    assert set(found[found["block"] == "experts"]["name"]) >= {"experts_up", "shared_up", "expert_exchange"}


@pytest.fixture
def slow_memory(tmp_path):
    """A calibration file whose memory is half as fast as the library's."""
    document = hardware.calibration_document(hardware.load_calibration("global"))
    document["name"] = "slow"
    value = document["parameters"]["memory"]["value"]
    document["parameters"]["memory"] |= {"value": value / 2}
    for end in ("low", "high"):
        document["parameters"]["memory"].pop(end, None)
    path = tmp_path / "slow.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_another_calibration_counts(slow_memory) -> None:
    slow = hardware.load_calibration(str(slow_memory))
    plain, slower = (
        engine.operations("llama-3-8B", SYSTEM, DENSE, cost_model="calibrated", calibration=each).set_index("name")
        for each in (None, slow)
    )
    assert slower.loc["activation", "fw_time"] == pytest.approx(2 * plain.loc["activation", "fw_time"], rel=0.05)
    assert slower.loc["feedforward_up", "fw_time"] == plain.loc["feedforward_up", "fw_time"]


def test_register() -> None:
    names = [each.column.name for each in OPERATION_COLUMNS]
    assert len(set(names)) == len(names)
    assert {each.column.unit for each in OPERATION_COLUMNS} <= UNITS | {"FLOP/byte", "FLOP/s"}
    assert all(each.column.description.endswith(".") for each in OPERATION_COLUMNS)
    found = engine.operations("deepseek-v2-lite", SYSTEM, EXPERTS, cost_model="calibrated")
    assert set(names) <= set(found.columns)
    assert [LABELS[name] for name in found["name"]] == found["label"].tolist()


@pytest.fixture
def file(tmp_path):
    """A function that writes an execution into a file."""

    def write(execution: dict[str, object]) -> str:
        path = tmp_path / "execution.json"
        path.write_text(json.dumps(execution), encoding="utf-8")
        return str(path)

    return write


def test_the_command_lists_what_the_table_has(shardscape, file) -> None:
    expected = engine.operations("deepseek-v2-lite", SYSTEM, EXPERTS, cost_model="calibrated")
    arguments = ("layers", "deepseek-v2-lite", SYSTEM, file(EXPERTS))
    code, out, err = shardscape(*arguments, "--json")
    records = json.loads(out)
    assert code == 0
    assert err.startswith(f"{len(expected)} operations (cost model calibrated, calibration global).")
    assert [list(record) for record in records] == [list(expected.columns)] * len(expected)
    for name in ("block", "name", "bound", "fw_time", "wgrad_flops"):
        assert [record[name] for record in records] == expected[name].tolist()
    norms = records[0]
    assert (norms["name"], norms["flops"], norms["rate"]) == ("norms", None, None)
    code, out, _ = shardscape(*arguments)
    assert code == 0
    assert all(label in out for label in expected["label"])
    headers = out.splitlines()[1].split("  ")
    assert [cell.strip() for cell in headers if cell] == [
        "operation",
        "fw [µs]",
        "bw [µs]",
        "share of block [%]",
        "work [GFLOP]",
        "traffic [MiB]",
        "intensity [FLOP/B]",
        "rate [TFLOP/s]",
        "bound by",
    ]
    assert "With experts:" in out
    assert "Dense:" in out
    up = expected[expected["name"] == "feedforward_up"].iloc[0]
    (line,) = (line for line in out.splitlines() if line.startswith("MLP, linear 1"))
    assert f"{up['fw_time'] * 1e6:,.1f}" in line
    assert f"{up['flops'] / 1e9:,.1f}" in line


def test_the_command_takes_cost_model_and_calibration(shardscape, file, slow_memory) -> None:
    arguments = ("layers", "llama-3-8B", SYSTEM, file(DENSE))
    code, out, err = shardscape(*arguments, "--cost-model", "calculon", "--json")
    assert code == 0
    assert "cost model calculon" in err
    layers = engine.operations("llama-3-8B", SYSTEM, DENSE, cost_model="calculon")
    assert [record["name"] for record in json.loads(out)] == layers["name"].tolist()
    code, out, err = shardscape(*arguments, "--calibration", slow_memory, "--json")
    assert code == 0
    assert "calibration slow" in err
    slow = engine.operations("llama-3-8B", SYSTEM, DENSE, calibration=hardware.load_calibration(str(slow_memory)))
    assert [record["fw_time"] for record in json.loads(out)] == slow["fw_time"].tolist()
    code, _, err = shardscape(*arguments, "--cost-model", "calculon", "--calibration", "global")
    assert code == ExitCode.INPUT
    assert "takes no calibration" in err


def test_fields_that_the_cost_model_does_not_have_are_named(shardscape, file) -> None:
    path = file({**DENSE, "launch": "graphs"})
    _, _, err = shardscape("layers", "llama-3-8B", SYSTEM, path, "--cost-model", "calculon")
    assert "The cost model calculon does not read launch." in err
    _, _, err = shardscape("layers", "llama-3-8B", SYSTEM, path)
    assert "does not read" not in err


@pytest.mark.parametrize(
    ("changes", "sentence", "helps"),
    [
        ({"datatype": "float32"}, "float32", True),
        ({"batch_size": 7}, "batch_size", False),
        ({"tensor_par": 3, "data_par": 1}, "num_procs", False),
    ],
)
def test_executions_without_operations_say_why(shardscape, file, changes, sentence, helps) -> None:
    with pytest.raises(engine.LayerError, match=sentence):
        engine.operations("llama-3-8B", SYSTEM, {**DENSE, **changes}, cost_model="calibrated")
    code, out, err = shardscape("layers", "llama-3-8B", SYSTEM, file({**DENSE, **changes}))
    assert (code, out) == (ExitCode.NOTHING, "")
    assert sentence in err
    assert ("--cost-model calculon" in err) == helps


def test_an_execution_that_does_not_fit_has_operations_all_the_same(shardscape, file) -> None:
    assert engine.evaluate("mixtral-8x7B", SYSTEM, pd.DataFrame([EXPERTS]))["reason"].tolist() == ["memory_tier1"]
    assert len(engine.operations("mixtral-8x7B", SYSTEM, EXPERTS, cost_model="calibrated"))
    assert shardscape("layers", "mixtral-8x7B", SYSTEM, file(EXPERTS))[0] == 0


def test_the_best_of_a_result_is_listed_as_it_stands(tmp_path, shardscape) -> None:
    """What `best --json` prints is a file of executions: its first one has the operations of that execution."""
    asked = ("llama-3-8B", SYSTEM, "--procs", "8", "--max-batch", "8", "--datatype", "bfloat16")
    code, printed, _ = shardscape("best", *asked, "--json")
    assert code == 0
    result = tmp_path / "best.json"
    result.write_text(printed)
    code, out, _ = shardscape("layers", "llama-3-8B", SYSTEM, str(result), "--json")
    assert code == 0
    fields = {column.name for column in ALL_FIELDS}
    best = {name: value for name, value in json.loads(printed)["top"][0].items() if name in fields}
    expected = engine.operations("llama-3-8B", SYSTEM, best, cost_model="calibrated")
    assert [row["fw_time"] for row in json.loads(out)] == expected["fw_time"].tolist()
