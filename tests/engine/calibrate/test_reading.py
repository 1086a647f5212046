"""Tables and logs of any content are read or refused in one sentence."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from engine import calibrate
from engine.calibrate import CalibrateError, read_contents
from engine.calibrate.logs import read_log
from engine.calibrate.template import FIELDS, NEEDED, template
from engine.validation.mapping import NEEDED as MAPPED
from tests.engine.calibrate.runs import LAYOUTS, LLAMA, plans

ARGUMENTS = {
    "accumulate_allreduce_grads_in_fp32": "True",
    "bf16": "True",
    "context_parallel_size": "1",
    "ffn_hidden_size": "14336",
    "group_query_attention": "True",
    "hidden_size": "4096",
    "micro_batch_size": "1",
    "global_batch_size": "128",
    "num_attention_heads": "32",
    "num_layers": "32",
    "num_query_groups": "8",
    "overlap_grad_reduce": "True",
    "pipeline_model_parallel_size": "2",
    "recompute_granularity": "None",
    "seq_length": "8192",
    "sequence_parallel": "True",
    "swiglu": "True",
    "tensor_model_parallel_size": "4",
    "untie_embeddings_and_output_weights": "True",
    "use_distributed_optimizer": "True",
    "world_size": "64",
    "num_experts": "None",
    "virtual_pipeline_model_parallel_size": "None",
    "num_layers_per_virtual_pipeline_stage": "4",
}
"""As Megatron-LM prints them."""


def dotted(arguments: dict[str, str]) -> str:
    lines = [f"  {name} {'.' * max(2, 48 - len(name))} {value}" for name, value in sorted(arguments.items())]
    return "\n".join(["-------- arguments --------", *lines, "-------- end of arguments ---------"])


def iteration(number: int, milliseconds: float, batch: int = 256) -> str:
    return (
        f" [2026-05-01 12:00:00] iteration {number:8d}/     100 | consumed samples: {number * batch:12d} | "
        f"elapsed time per iteration (ms): {milliseconds:.1f} | throughput per GPU (TFLOP/s/GPU): 412.3 | "
        f"global batch size: {batch:5d} | lm loss: 2.0E+00 | grad norm: 1.0 | number of nan iterations:   0 |"
    )


VOCABULARY = " > padded vocab (size: 128000) with 256 dummy tokens (new size: 128256)"


def megatron(times: list[float], batch: int = 256) -> str:
    steps = [iteration(number + 1, value, batch) for number, value in enumerate(times)]
    return "\n".join([dotted(ARGUMENTS), VOCABULARY, *steps])


EXPECTED = {
    "hidden": "4096",
    "ffn": "14336",
    "layers": "32",
    "heads": "32",
    "kv_heads": "8",
    "vocab": "128256",
    "seq_len": "8192",
    "num_gpus": "64",
    "tp": "4",
    "pp": "2",
    "mbs": "1",
    "gbs": "256",
    "vpp": "4",
    "gated_mlp": "True",
    "tied_embeddings": "False",
    "zero_stage": "1",
    "recompute": "none",
    "dtype": "bf16",
    "gradient_bytes": "4",
    "overlap_data": "True",
    "seq_parallel": "True",
    "framework": "Megatron-LM",
}


def test_a_megatron_log_becomes_one_run() -> None:
    times = [30_000.0, 9_000.0, *([4_300.0] * 7), 4_400.0, 15_000.0]
    log = read_log(megatron(times), "run.log")
    assert {name: log.fields.get(name) for name in EXPECTED} == EXPECTED
    # The first fifth (three steps) is warm-up; of 4.3 s seven times over six left, 4.4 s and 15 s the median is 4.3 s.
    assert float(log.fields["step_time_s"]) == pytest.approx(4.3)
    assert "8 of 11 steps" in log.remarks[0]
    assert "moe_experts" not in log.fields


def test_arguments_on_the_command_line_or_in_a_namespace_say_the_same() -> None:
    flags = " ".join(
        f"--{name.replace('_', '-')}" + ("" if value == "True" else f" {value}")
        for name, value in ARGUMENTS.items()
        if value != "None"
    )
    space = "Namespace(" + ", ".join(f"{name}={value}" for name, value in ARGUMENTS.items()) + ")"
    yaml = "\n".join(f"      {name}: {value}" for name, value in ARGUMENTS.items())
    colours = "\x1b[32m" + dotted(ARGUMENTS).replace("\n", "\n0: ") + "\x1b[0m"
    for text in (f"torchrun pretrain_gpt.py {flags}", space, yaml, colours):
        log = read_log("\n".join([text, VOCABULARY, iteration(1, 4_300.0), iteration(2, 4_300.0)]), "a.log")
        assert {name: log.fields.get(name) for name in EXPECTED} == EXPECTED, text[:80]


def test_the_line_about_the_world_gives_degrees() -> None:
    line = (
        "using world size: 64, data-parallel size: 8, context-parallel size: 2, tensor-model-parallel size: 4, "
        "pipeline-model-parallel size: 1"
    )
    fields = read_log(line, "a").fields
    assert {name: fields[name] for name in ("num_gpus", "dp", "cp", "tp", "pp")} == {
        "num_gpus": "64",
        "dp": "8",
        "cp": "2",
        "tp": "4",
        "pp": "1",
    }


@pytest.mark.parametrize(
    ("line", "field", "value", "framework"),
    [
        (
            "Epoch 0: : 100%|###| 100/100 [07:57<00:00, reduced_train_loss=7.3, train_step_timing in s=3.590]",
            "step_time_s",
            3.59,
            "NeMo",
        ),
        (
            "Training epoch 0, iteration 9/99 | global_batch_size: 256 | train_step_timing in s: 3.59 | lr: 1e-4",
            "step_time_s",
            3.59,
            "NeMo",
        ),
        ("Step Time : 3.59s GPU utilization: 675.4MODEL_TFLOP/s/GPU", "step_time_s", 3.59, "Megatron-Bridge"),
        (
            "[titan] step: 10  loss: 7.1  memory: 45.25GiB(57%)  tps: 5,432  tflops: 300.1  mfu: 30.3%",
            "tokens_per_s_per_gpu",
            5432.0,
            "torchtitan",
        ),
        ("Epoch 0:  20%|##  | 20/100 [00:40<02:40,  0.50it/s, v_num=1]", "step_time_s", 2.0, ""),
        ("Epoch 0:  20%|##  | 20/100 [00:40<02:40,  2.00s/it, v_num=1]", "step_time_s", 2.0, ""),
        ("elapsed time per iteration (s): 3.59 | ", "step_time_s", 3.59, "Megatron-LM"),
    ],
)
def test_lines_of_other_frameworks(line: str, field: str, value: float, framework: str) -> None:
    log = read_log("\n".join([line] * 5), "a.log")
    assert float(log.fields[field]) == pytest.approx(value)
    assert log.fields["framework"] == framework
    if framework == "torchtitan":
        assert float(log.fields["mem_gib"]) == 45.25


def test_only_the_last_batch_size_of_a_ramp_counts() -> None:
    steps = [iteration(step, 1_000.0, 64) for step in range(20)] + [iteration(20 + step, 4_000.0) for step in range(10)]
    fields = read_log("\n".join([dotted(ARGUMENTS), *steps]), "a").fields
    assert fields["gbs"] == "256"
    assert float(fields["step_time_s"]) == 4.0


def test_unsteady_logs_and_logs_without_steps_are_remarked() -> None:
    unsteady = read_log(megatron([4_000.0, 6_000.0] * 20), "a")
    assert "unsteady" in unsteady.remarks[0]
    empty = read_log(dotted(ARGUMENTS), "a")
    assert "step_time_s" not in empty.fields
    assert empty.remarks == ("The log has no line with the time of a step",)


def test_experts_recomputation_and_fp8_of_a_log() -> None:
    more = {
        **ARGUMENTS,
        "num_experts": "8",
        "moe_router_topk": "2",
        "moe_ffn_hidden_size": "14336",
        "fp8": "hybrid",
        "expert_model_parallel_size": "4",
        "moe_shared_expert_intermediate_size": "28672",
        "recompute_granularity": "full",
        "recompute_method": "block",
        "recompute_num_layers": "3",
        "expert_tensor_parallel_size": "1",
        "use_distributed_optimizer": "False",
        "group_query_attention": "False",
        "attention_backend": "AttnBackend.unfused",
    }
    fields = read_log(dotted(more), "a").fields
    wanted = {
        "moe_experts": "8",
        "moe_topk": "2",
        "moe_ffn": "14336",
        "moe_shared": "2",
        "ep": "4",
        "dtype": "fp8",
        "recompute": "full:24layers",
        "notes": "ETP=1",
        "zero_stage": "0",
        "kv_heads": "32",
        "attention_kernel": "unfused",
    }
    assert {name: fields.get(name) for name in wanted} == wanted


def test_logs_and_tables_are_read_together_and_keep_their_names() -> None:
    table = plans((LLAMA,), LAYOUTS[:2]).assign(step_time_s=3.0).to_csv(index=False).encode()
    found = read_contents({"one.log": megatron([4_300.0] * 9).encode(), "two.csv": table})
    assert found.labels == ("one.log", "two.csv, row 1", "two.csv, row 2")
    assert found.runs.table["step_time_s"].tolist() == [4.3, 3.0, 3.0]
    assert found.remarks[0].startswith("Median of")


def test_gaps_are_filled_and_nothing_else() -> None:
    text = "hidden,layers,heads,vocab,tp\n4096,32,32,,2\n4096,32,32,50000,2\n"
    found = read_contents({"a.csv": text.encode()}, calibrate.parse_given(["vocab=128256", "dtype = bf16"]))
    assert found.runs.table["vocab"].tolist() == [128256, 50000]
    assert set(found.runs.table["dtype"]) == {"bf16"}
    for pair in ("vocab", "vocab=", "wheels=4", "=3"):
        with pytest.raises(CalibrateError, match="gives no field of a run"):
            calibrate.parse_given([pair])


def test_semicolons_tabs_and_other_encodings_of_spreadsheets() -> None:
    table = plans((LLAMA,), LAYOUTS[:2]).assign(step_time_s=3.0)
    for separator in ";\t":
        content = table.to_csv(index=False, sep=separator).encode("utf-8-sig")
        assert len(read_contents({"a.csv": content}).labels) == 2
    assert len(read_contents({"a.csv": table.to_csv(index=False).encode("utf-16")}).labels) == 2


def test_the_template_has_what_the_mapping_needs_and_reads_back() -> None:
    assert set(MAPPED) <= set(NEEDED)
    found = read_contents({"t.csv": template().encode()})
    assert len(found.labels) == 1
    assert found.runs.faults[0] == ""
    assert set(template().splitlines()[0].split(",")) == set(FIELDS)


HUGE = b"hidden,layers,heads,tp\n" + b"4096,32,32,2\n" * 1_000_000


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (bytes(range(256)) * 50, "not text"),
        (b"\x00" * 5_000, "not text"),
        (b"\xff\xfe\x00", "not text"),
        (b"PK\x03\x04" + bytes(200), "not text"),
        (b"a,b\n1,2\n", "neither a table of runs"),
        (b"just words", "neither a table of runs"),
        (b"hidden,layers,heads,tp\n", "has no run"),
        (b"hidden,layers,heads,tp\n1,2,3,4\n1,2,3,4,5,6\n", "cannot be read as CSV"),
        (b"hidden,layers,heads,tp\n1,2,3,4,5,6\n", "cannot be read as CSV"),
        (b'hidden,layers,heads,tp\n"1,2,3,4\n', "cannot be read as CSV"),
        (b"hidden,layers,heads,tp," + b"c," * 2_000 + b"\n1\n", "columns"),
        (HUGE, "more than 5,000 runs"),
        (b"x" * 20_000_001, "MB"),
    ],
)
def test_what_is_no_table_of_runs_is_refused_in_one_sentence(content: bytes, told: str) -> None:
    began = time.perf_counter()
    with pytest.raises(CalibrateError, match=re.escape(told)) as refused:
        read_contents({"<script>alert(1)</script>.csv": content})
    assert time.perf_counter() - began < 60  # minutes, where it grows with the square
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    "line",
    [
        "1" * 19_000,
        "1,111" * 3_000,
        "a" * 19_000,
        "a-" * 9_000,
        ". " * 9_000,
        "--" * 9_000,
        "a " * 9_000,
        "x=" * 9_000,
        "elapsed time per iteration (ms): " * 500,
        "(" * 19_000,
        "9.9e" * 4_000,
    ],
)
def test_no_line_of_a_log_takes_long(line: str) -> None:
    text = "\n".join([line] * 40 + ["elapsed time per iteration (ms): 12.5 |"])
    began = time.perf_counter()
    log = read_log(text, "a.log")
    assert time.perf_counter() - began < 60  # minutes, where it grows with the square
    assert log.fields["step_time_s"] == "0.0125"


def test_too_many_files_or_none_and_paths_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(CalibrateError, match="no file"):
        read_contents({})
    with pytest.raises(CalibrateError, match="201 files"):
        read_contents({f"{number}.log": b"x" for number in range(201)})
    with pytest.raises(CalibrateError, match="does not exist"):
        calibrate.read_paths([tmp_path / "none.csv"])
    with pytest.raises(CalibrateError, match="is a folder"):
        calibrate.read_paths([tmp_path])
