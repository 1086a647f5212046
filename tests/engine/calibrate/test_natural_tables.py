"""Tables of runs as people write them give the same runs as the template."""

from __future__ import annotations

import numpy as np
import pytest

import hardware
import models
from engine import calibrate
from engine.calibrate import CalibrateError, check, parameters_of, read_contents
from engine.calibrate.natural_tables import field_of
from engine.cost_models.calibrated import library_calibration, model_shapes
from engine.validation.mapping import map_shapes

TEMPLATE = (
    "id,hidden,ffn,layers,heads,kv_heads,head_dim,vocab,seq_len,gated_mlp,tied_embeddings,num_gpus,tp,pp,dp,mbs,gbs,dtype,"
    "tokens_per_s_per_gpu\n"
    "a,4096,14336,32,32,8,128,128256,8192,True,False,64,2,1,32,1,256,bf16,10000\n"
)
"""A run in the columns of the template."""
SPELLINGS = {
    "num_gpus": ("gpus", "GPUs", "# GPUs", "n_gpus", "World size", "gpu count", "num devices"),
    "tp": ("TP", "tp_size", "tensor-parallel", "tensor_model_parallel_size", "Tensor parallelism"),
    "pp": ("PP", "pipeline parallel size", "pipeline_model_parallel_size"),
    "dp": ("DP", "data_parallel", "replicas"),
    "cp": ("CP", "context_parallel_size"),
    "ep": ("EP", "expert-model-parallel-size"),
    "vpp": ("VP", "virtual_pipeline_size", "interleaving"),
    "mbs": ("micro_batch", "Micro batch size", "microbatch", "micro-batch-size"),
    "gbs": ("batch", "global_batch_size", "Global Batch", "batch size"),
    "seq_len": ("seq", "sequence_length", "context length", "seqlen"),
    "dtype": ("precision", "datatype", "Data type"),
    "model": ("Model", "model name", "network"),
    "id": ("run", "Run ID", "name", "job"),
    "hardware": ("GPU", "gpu_type", "Accelerator"),
    "recompute": ("recomputation", "activation checkpointing"),
    "zero_stage": ("ZeRO", "zero stage"),
    "step_time_s": ("step time", "step_time (s)", "s/step", "sec/iteration", "iteration time [s]", "Time per step"),
    "step_time_ms": ("step time (ms)", "ms/step", "elapsed time per iteration (ms)", "iter_time_ms"),
    "tokens_per_s": ("tokens/s", "tok/s", "tokens/sec", "tokens_per_second", "Throughput (tokens/s)", "token / sec"),
    "tokens_per_s_per_gpu": ("tokens/s/GPU", "tok/sec/gpu", "tokens per gpu per second", "TGS"),
    "samples_per_s": ("samples/s", "sequences/sec"),
    "tflops_per_gpu": ("TFLOP/s", "tflops", "TFLOPs/GPU", "TFLOP/s/GPU", "model TFLOP/s per GPU", "tflops/s (causal)"),
    "mem_gib": ("memory (GiB)", "peak mem GiB"),
}


@pytest.mark.parametrize("field", SPELLINGS)
def test_usual_spellings_of_a_column(field: str) -> None:
    assert {header: field_of(header) for header in SPELLINGS[field]} == dict.fromkeys(SPELLINGS[field], field)


@pytest.mark.parametrize(
    ("header", "cell", "given"),
    [
        ("tokens/s", "640000", {}),
        ("tokens/s/GPU", "10000", {}),
        ("step time (s)", "3.2768", {}),
        ("ms/step", "3276.8", {}),
        ("samples/s", "78.125", {}),
        ("tokens/sec", "640000", {"batch": "256", "precision": "bf16"}),
    ],
)
def test_a_natural_row_is_the_run_of_the_template(header: str, cell: str, given: dict[str, str]) -> None:
    """Sizes come from the library by a usual spelling of the model; ids come back as given; what was taken is said."""
    columns = {"Run": "exp 007", "Model": "Llama 3 8B", "GPUs": 64, "TP": 2, "PP": 1, "DP": 32, "micro batch": 1}
    if not given:
        columns |= {"Global batch": 256, "precision": "bf16"}
    text = f"{','.join([*columns, header])}\n{','.join(map(str, [*columns.values(), cell]))}\n"
    natural = read_contents({"ours.csv": text.encode()}, calibrate.parse_given([f"{a}={b}" for a, b in given.items()]))
    formal = read_contents({"template.csv": TEMPLATE.encode()})
    system, start = hardware.load("h100_80g_sxm"), parameters_of(library_calibration())
    ours, theirs = check(natural, system, start), check(formal, system, start)
    assert ours.accepted.tolist() == theirs.accepted.tolist() == [True]
    assert ours.measured[0] == pytest.approx(theirs.measured[0], rel=1e-12)
    assert ours.expected[0] == theirs.expected[0]
    assert ours.table["id"].tolist() == ["exp 007"]
    assert "sizes and seq_len 8192 of llama-3-8B of the library" in ours.remarks[0]
    assert ("all GPUs together" in ours.remarks[0]) == (header in ("tokens/s", "tokens/sec"))


def test_the_sizes_of_a_model_by_name_are_those_of_the_library() -> None:
    """Every model that a table can state counts with its own sizes; others are refused by name."""
    names = ["llama-3-8B", "mixtral-8x7B", "deepseek-v3", "gpt3-175B", "qwen3-30B-A3B", "mistral-7B", "jamba-v0.1"]
    names = [name for name in names if name in models.names()]
    head = "model,gpus,tp,pp,dp,mbs,gbs,dtype,step time\n"
    text = head + "".join(f"{name},64,2,1,32,1,256,bf16,3\n" for name in (*names, "llama-3-9B"))
    found = read_contents({"ours.csv": text.encode()}).runs
    sizes = map_shapes(found.table)
    for row, name in enumerate(names[:-1]):
        shapes = model_shapes(models.load(name))
        assert not found.faults[row]
        for column, values in sizes.items():
            assert values[row] == float(np.asarray(getattr(shapes, column)).ravel()[0]), (name, column)
    assert "jamba-v0.1 has layers that a table of runs cannot state" in found.faults[len(names) - 1]
    assert "'llama-3-9B' is not in the library; did you mean llama-3-8B?" in found.faults[-1]


def test_a_convention_in_the_header_counts_and_without_one_the_row_says_what_to_give() -> None:
    row = "Llama 3 8B,64,2,1,32,1,256,bf16,480\n"
    head = "model,gpus,tp,pp,dp,mbs,gbs,dtype,"
    system, start = hardware.load("h100_80g_sxm"), parameters_of(library_calibration())
    told = check(read_contents({"a.csv": f"{head}TFLOP/s/GPU (causal)\n{row}".encode()}), system, start)
    open_ = check(read_contents({"a.csv": f"{head}TFLOP/s\n{row}".encode()}), system, start)
    assert told.accepted.tolist() == [True]
    assert open_.accepted.tolist() == [False]
    assert "tflops_kind" in open_.reason_text[0]


def test_two_columns_with_one_meaning_are_refused() -> None:
    text = "model,gpus,world size,tp,pp,dp,tokens/s\nllama-3-8B,8,8,1,1,8,1000\n"
    with pytest.raises(CalibrateError, match=r"The columns gpus and world size of .* both mean num_gpus"):
        read_contents({"a.csv": text.encode()})


def test_cells_that_are_no_numbers_keep_their_words() -> None:
    text = "model,gpus,tp,pp,dp,mbs,gbs,dtype,tokens/s\nllama-3-8B,64,2,1,32,1,256,bf16,fast\n"
    found = read_contents({"a.csv": text.encode()}).runs
    assert "tokens_per_s_per_gpu is 'fast', which is not a number" in found.faults[0]
