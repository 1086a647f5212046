"""Megatron-LM: published scripts mean what its parser makes of them."""

from __future__ import annotations

from typing import Any

import pytest

from engine import launch
from tests.launch import fixtures


@pytest.mark.parametrize("fixture", fixtures.of("megatron-lm"))
def test_published_flags_mean_what_the_parser_makes_of_them(fixture: dict[str, Any]) -> None:
    expected = fixture["expected"]
    found = launch.read_flags("megatron", fixture["flags"], gpus=fixture["gpus"]["count"])
    assert found.execution == expected["execution"]
    assert expected["model"].items() <= found.model.items()
    assert found.num_procs == fixture["gpus"]["count"]
    assert not found.unread
    assert bool(found.refused) == ("rejected_by_framework" in expected)
    for flag in (word for each in expected.get("not_modelled", ()) for word in each.split() if word.startswith("--")):
        assert any(flag.rstrip(",") in told for told in found.not_modelled), flag


DENSE = {
    "num_procs": 64, "tensor_par": 4, "pipeline_par": 4, "data_par": 4, "batch_size": 256, "microbatch_size": 1,
    "datatype": "bfloat16", "activation_recompute": "none", "pipeline_interleaving": 5, "optimizer_sharding": True,
    "tensor_par_comm_type": "rs_ag", "tensor_par_overlap": "ring", "seq_par_ag_redo": True, "data_par_overlap": True,
    "zero_stage": 1, "attention_kernel": "flash2", "launch": "fused",
}  # fmt: skip
FLAGS_OF_DENSE = """
    --tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 5
    --sequence-parallel --tp-comm-overlap --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather
    --micro-batch-size 1 --global-batch-size 256 --attention-backend flash --flash-attention-version 2
    --transformer-impl transformer_engine --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672
    --num-attention-heads 64 --group-query-attention --num-query-groups 8 --kv-channels 128 --seq-length 8192
    --max-position-embeddings 8192 --position-embedding-type rope --rotary-base 500000 --swiglu
    --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights --bf16"""


def test_the_published_example_is_written_flag_by_flag() -> None:
    written = launch.write(DENSE, "llama-3-70B", framework="megatron")
    text = " ".join(written.text.split())
    for flag in FLAGS_OF_DENSE.split(" --"):
        assert "--" + " ".join(flag.split()).removeprefix("--") in text
    assert "export CUDA_DEVICE_MAX_CONNECTIONS=1" in text
    assert "torchrun --nproc_per_node 8 --nnodes 8" in text
    again = launch.read_text(written.text, "launch.sh")
    assert DENSE.items() <= again.execution.items()
    assert launch.named_shape(again.model) == "llama-3-70B"
    assert again.num_procs == 64
    assert not again.unread
    assert not again.refused
