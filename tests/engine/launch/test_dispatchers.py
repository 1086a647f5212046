"""Token dispatchers and exchanges of context parallelism in the words of each framework."""

from __future__ import annotations

from typing import Any

import pytest

from engine import launch

MEGATRON = (
    "torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
    "--num-attention-heads 32 --seq-length 8192 --max-position-embeddings 8192 --vocab-size 32000 "
    "--micro-batch-size 1 --global-batch-size 64 --bf16 --num-experts 8 "
    "--moe-router-topk 2 --expert-model-parallel-size 8 "
)
MIXTRAL: dict[str, Any] = {
    "num_procs": 16,
    "tensor_par": 1,
    "pipeline_par": 1,
    "context_par": 2,
    "data_par": 8,
    "expert_par": 8,
    "batch_size": 64,
    "microbatch_size": 1,
    "optimizer_sharding": True,
    "zero_stage": 1,
    "datatype": "bfloat16",
}

ZERO_OF = {"torchtitan": 3}
"""ZeRO stages other than 1, which a framework needs to spread experts."""


@pytest.mark.parametrize(
    ("flags", "dispatcher"),
    [
        ("", "all_gather"),
        ("--moe-token-dispatcher-type allgather", "all_gather"),
        ("--moe-token-dispatcher-type alltoall", "all_to_all"),
        ("--moe-token-dispatcher-type flex", "deepep"),
        ("--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep", "hybridep"),
        ("--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep --moe-enable-deepep", "deepep"),
    ],
)
def test_megatrons_words_for_dispatchers(flags: str, dispatcher: str) -> None:
    """Without an argument Megatron-Core gathers all tokens."""
    found = launch.read_text(MEGATRON + flags, "run.sh")
    assert found.execution["token_dispatcher"] == dispatcher
    assert not any("dispatcher" in told for told in found.not_modelled)
    assert any("100 % of the mean" in told for told in found.remarks)


def test_a_dispatcher_without_a_field_is_named_and_left_open() -> None:
    flags = "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend ncclep"
    found = launch.read_text(MEGATRON + flags, "run.sh")
    assert "token_dispatcher" not in found.execution
    assert any("flex / ncclep" in told for told in found.not_modelled)


@pytest.mark.parametrize(
    ("words", "kind"),
    [("", "p2p"), ("p2p", "p2p"), ("allgather", "all_gather"), ("a2a", "a2a"), ("a2a+p2p", "hierarchical")],
)
def test_megatrons_words_for_exchanges_of_context_parallelism(words: str, kind: str) -> None:
    flags = f"--context-parallel-size 2 --cp-comm-type {words}" if words else "--context-parallel-size 2"
    assert launch.read_text(MEGATRON + flags, "run.sh").execution["context_par_comm"] == kind


def test_exchanges_that_differ_by_layer_are_named_and_left_open() -> None:
    found = launch.read_text(MEGATRON + "--context-parallel-size 2 --cp-comm-type p2p a2a", "run.sh")
    assert "context_par_comm" not in found.execution
    assert any("a2a p2p" in told for told in found.not_modelled)


@pytest.mark.parametrize(
    ("framework", "dispatcher", "kind", "unsaid"),
    [
        ("megatron", "hybridep", "hierarchical", ""),
        ("megatron-bridge", "deepep", "a2a", ""),
        ("maxtext", "all_gather", "all_gather", ""),
        ("maxtext", "deepep", "p2p", "(token_dispatcher) DeepEP"),
        ("maxtext", "all_to_all", "a2a", "(context_par_comm) all-to-all"),
        ("torchtitan", "hybridep", "p2p", "(token_dispatcher) HybridEP"),
        ("deepspeed", "all_to_all", "a2a", ""),
        ("deepspeed", "deepep", "p2p", "(token_dispatcher) DeepEP"),
    ],
)
def test_a_framework_writes_its_words_or_says_that_it_has_none(
    framework: str, dispatcher: str, kind: str, unsaid: str
) -> None:
    execution = MIXTRAL | {"token_dispatcher": dispatcher, "context_par_comm": kind}
    execution["zero_stage"] = ZERO_OF.get(framework, 1)
    written = launch.write(execution, "mixtral-8x7B", framework=framework)
    told = [each for each in written.not_expressible if "dispatcher" in each or "CP comm" in each]
    assert bool(told) == bool(unsaid)
    if unsaid:
        assert unsaid in " ".join(told)
        return
    found = launch.read_flags(framework, written.flags, gpus=16).execution
    assert (found["token_dispatcher"], found["context_par_comm"]) == (dispatcher, kind)


@pytest.mark.parametrize("framework", ["megatron", "megatron-bridge", "torchtitan", "deepspeed", "maxtext"])
def test_an_uneven_load_and_8_bits_on_the_way_are_named(framework: str) -> None:
    execution = MIXTRAL | {"expert_imbalance": 125, "dispatch_datatype": "float8"}
    execution["zero_stage"] = ZERO_OF.get(framework, 1)
    written = launch.write(execution, "mixtral-8x7B", framework=framework)
    told = " ".join(written.not_expressible)
    assert "(expert_imbalance) 125" in told
    assert "(dispatch_datatype) FP8" in told
