"""Software facts and sites, as the rules state them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import hardware
import models
from engine.cost_models.calibrated import Software, case_of, parameters, step_times
from engine.cost_models.calibrated.case_building import SOFTWARE_DEFAULTS
from engine.cost_models.calibrated.physics.inputs import ATTENTION_KERNELS, CONTEXT_EXCHANGES, DISPATCHERS, LAUNCHES
from engine.validation.mapping import map_runs
from engine.validation.reading import runs_of
from engine.validation.sites import rate_per_processor
from engine.validation.software import DEFAULTS, RULES, release_year
from tests.engine.cost_models.calibrated.small import system_with
from tests.engine.validation.runs import table


def mapped(**change: Any) -> Any:
    return map_runs(runs_of(table(change)))


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"framework": "NeMo 24.12"}, {"overlap_data": 1, "overlap_tensor": 1, "gradient_bytes": 2}),
        ({"framework": "Megatron-Bridge 26.06"}, {"gradient_bytes": 2, "grouped_experts": 1}),
        ({"framework": "Megatron-Bridge 25.11"}, {"grouped_experts": 0}),
        ({"framework": "Megatron-DeepSpeed"}, {"messages": 4, "split_messages": 0, "gradient_bytes": 4}),
        ({"framework": "Megatron-LM+DeepSpeed ZeRO-3"}, {"gather_calls": 12, "messages": 2}),
        ({"framework": "torchtitan"}, {"pytorch_native": 1, "shard_gradient_bytes": 4}),
        ({"framework": "Composer", "notes": "MP mode DEFAULT"}, {"gather_bytes": 4, "gather_cast_bytes": 6}),
        ({"framework": "torchtitan", "notes": "AsyncTP"}, {"overlap_tensor": 1}),
        ({"framework": "NeMo 25.04", "notes": "MoE A2A overlap."}, {"overlap_expert": 1}),
        ({"framework": "something else"}, {"overlap_data": 0, "gradient_bytes": 2}),
    ],
)
def test_rules(change: dict[str, Any], facts: dict[str, float]) -> None:
    software = mapped(**change).case.software
    assert {name: float(getattr(software, name)[0]) for name in facts} == facts


@pytest.mark.parametrize(
    ("change", "kernel", "launch"),
    [
        ({"framework": "NeMo 24.12"}, "native", "fused"),
        ({"framework": "NeMo 24.12", "hardware": "A100-80GB-SXM"}, "flash2", "fused"),
        ({"framework": "NeMo 24.01"}, "flash2", "fused"),
        ({"framework": "NeMo 24.05"}, "native", "fused"),
        ({"framework": "Megatron-LM", "date": "2024-01"}, "native", "fused"),
        ({"framework": "PaXML", "date": "v24.11.1"}, "flash2", "fused"),
        ({"framework": "Composer/llm-foundry"}, "flash1", "eager"),
        ({"framework": "torchtitan"}, "flash2", "eager"),
        ({"framework": "torchtitan", "notes": "torch.compile"}, "flash2", "compiled"),
        ({"framework": "torchtitan", "dtype": "fp8"}, "flash2", "compiled"),
        ({"framework": "Megatron-LM", "source": "Megatron-LM SC21", "date": "2021-04"}, "unfused", "fused"),
        (
            {"framework": "Megatron-DeepSpeed", "notes": "CUDA_LAUNCH_BLOCKING=1", "date": "2022-02-20"},
            "unfused",
            "blocking",
        ),
        ({"framework": "Megatron-Bridge 26.04", "notes": "CUDA graphs local/full_iteration."}, "native", "graphs"),
        ({"framework": "Megatron-Bridge 26.04", "notes": "CUDA graphs x/['attn', 'moe']."}, "native", "partial_graphs"),
        ({"framework": "Megatron-Bridge 26.04", "notes": "CUDA graphs x/['moe_router']."}, "native", "fused"),
        ({"framework": "Megatron-LM dev", "notes": "Full-iteration CUDA graph, paged."}, "native", "graphs"),
        ({"framework": "Megatron-LM dev", "notes": "A2A overlap. Partial CUDA graphs."}, "native", "partial_graphs"),
        ({"framework": "Megatron-Bridge 26.08", "cuda_graph": "full_iteration"}, "native", "graphs"),
        ({"framework": "Megatron-Bridge 26.08", "cuda_graph": "attn+moe_router"}, "native", "partial_graphs"),
        ({"framework": "Megatron-Bridge 26.08", "cuda_graph": "moe_router"}, "native", "fused"),
    ],
)
def test_kernels_and_launches(change: dict[str, Any], kernel: str, launch: str) -> None:
    software = mapped(**change).case.software
    assert ATTENTION_KERNELS[int(software.attention_kernel[0])] == kernel
    assert LAUNCHES[int(software.launch[0])] == launch


@pytest.mark.parametrize(
    ("change", "dispatcher", "exchange"),
    [
        ({}, "all_to_all", "p2p"),
        ({"notes": "DeepEP. MoE: forced-balanced routing"}, "deepep", "p2p"),
        ({"notes": "HybridEP, A2A overlap"}, "hybridep", "p2p"),
        ({"notes": "without DeepEP"}, "all_to_all", "p2p"),
        ({"notes": "DeepEP off; Ulysses"}, "all_to_all", "a2a"),
        (
            {"notes": "DeepEP", "token_dispatcher": "allgather", "context_par_comm": "hierarchical"},
            "all_gather",
            "hierarchical",
        ),
    ],
)
def test_dispatchers_and_exchanges_of_context_parallelism(
    change: dict[str, Any], dispatcher: str, exchange: str
) -> None:
    software = mapped(framework="Megatron-LM", **change).case.software
    assert DISPATCHERS[int(software.token_dispatcher[0])] == dispatcher
    assert CONTEXT_EXCHANGES[int(software.context_par_comm[0])] == exchange


@pytest.mark.parametrize(
    ("column", "word", "fact", "value"),
    [
        ("dispatch_datatype", "float8", "dispatch_bytes", 1.0 + 4.0 / 128.0),
        ("dispatch_datatype", "bf16", "dispatch_bytes", 2.0),
        ("dispatch_datatype", "int3", "", "dispatch_datatype is 'int3'; it must be one of bfloat16, float8."),
        ("expert_imbalance", "125", "busiest_load", 1.25),
        (
            "expert_imbalance",
            "90",
            "",
            "expert_imbalance is 90 %; the busiest expert rank has at least the mean, 100 %.",
        ),
        (
            "token_dispatcher",
            "mori",
            "",
            "token_dispatcher is 'mori'; it must be one of all_to_all, all_gather, deepep, hybridep.",
        ),
        ("context_par_comm", "x", "", "context_par_comm is 'x'; it must be one of p2p, all_gather, a2a, hierarchical."),
    ],
)
def test_fields_of_an_execution_as_columns_mean_themselves(column: str, word: str, fact: str, value: Any) -> None:
    found = mapped(**{column: word})
    if fact:
        assert float(getattr(found.case.software, fact)[0]) == value
    else:
        assert (found.reason[0], found.reason_text[0]) == ("bad_value", value)


def test_what_no_rule_states_are_the_defaults_of_an_execution_with_16_bit_gradients() -> None:
    gradients = {"gradient_bytes", "shard_gradient_bytes"}
    assert set(DEFAULTS) == set(SOFTWARE_DEFAULTS) == set(Software.__dataclass_fields__)
    assert {name for name in DEFAULTS if DEFAULTS[name] != SOFTWARE_DEFAULTS[name]} == gradients
    run = mapped(framework="something else").case.software
    fields = ("tensor_par", "pipeline_par", "data_par", "microbatch_size", "batch_size")
    executed = case_of(models.load("llama-3.1-8B"), hardware.load("h100_80g_sxm"), dict.fromkeys(fields, 1)).software
    differing = {name for name in DEFAULTS if float(getattr(run, name)[0]) != float(getattr(executed, name))}
    assert differing == gradients
    assert {float(getattr(run, name)[0]) for name in gradients} == {2.0}
    assert {float(getattr(executed, name)) for name in gradients} == {4.0}


def test_columns_override_rules() -> None:
    software = mapped(
        framework="torchtitan", attention_kernel="native", launch="eager", overlap_data="False"
    ).case.software
    assert ATTENTION_KERNELS[int(software.attention_kernel[0])] == "native"
    assert LAUNCHES[int(software.launch[0])] == "eager"
    assert software.overlap_data[0] == 0


def test_rules_use_known_facts_only_and_look_at_no_model() -> None:
    for rule in RULES:
        assert set(rule.facts) <= set(DEFAULTS)
        assert rule.why
    one, other = mapped(model="GPT-OSS-120B"), mapped(model="LLAMA3-8B")
    assert one.case.software == other.case.software or all(
        np.array_equal(getattr(one.case.software, name), getattr(other.case.software, name)) for name in DEFAULTS
    )


@pytest.mark.parametrize(
    ("framework", "date", "year"),
    [
        ("NeMo 24.12", "v25.02", 2024 + 11.5 / 12),
        ("x", "2022-02-25", 2022 + 1.5 / 12),
        ("x", "v25.04", 2025 + 3.5 / 12),
        ("x", "2024", 2024.5),
    ],
)
def test_release_years(framework: str, date: str, year: float) -> None:
    assert release_year(framework, date) == pytest.approx(year)
    assert np.isnan(release_year("x", "some day"))


def test_age_counts_on_hopper_only() -> None:
    age = [
        float(mapped(framework="NeMo 24.01", hardware=name).case.software.age_years[0])
        for name in ("H100-80GB-SXM", "A100-80GB-SXM", "B200")
    ]
    assert age[0] == pytest.approx(2024 + 0.5 / 12 - 2022.8)
    assert age[1:] == [np.inf, np.inf]


@pytest.mark.parametrize(
    ("text", "gigabits"),
    [
        ("8x400Gb/s NDR IB (400Gb/s per GPU)", 400),
        ("4x Omni-Path 100Gb/s per node (50Gb/s per GPU)", 50),
        ("400Gb/s RDMA per GPU", 400),
        ("RoCE 200Gb/s per GPU (8x200Gb/s)", 200),
        ("8x400Gb/s IB", 400),
        ("4x200Gb/s HDR per node", 100),
        ("EFA 400Gb/s per node (p4d)", 50),
        ("single node", None),
        ("", None),
    ],
)
def test_rates_of_sites(text: str, gigabits: float | None) -> None:
    found = rate_per_processor(text, 8.0)
    assert found == (None if gigabits is None else pytest.approx(gigabits / 8 * 1e9))


def test_sites_change_the_networks() -> None:
    found = mapped(
        scaleup="NVLink5 1800GB/s bidir, 72-GPU domain", scaleout="8x100Gb/s IB", gpus_per_node=8
    ).case.accelerator
    assert found.domain[0] == 72
    assert found.network_bandwidths[-1][0] == pytest.approx(12.5e9)
    pairs = mapped(scaleup="NVLink x4 per GPU pairs").case.accelerator
    assert [float(size[0]) for size in pairs.network_sizes[:2]] == [4, 8]


SITES: tuple[dict[str, Any], ...] = (
    {},
    {"scaleout": "8x100Gb/s IB", "gpus_per_node": 8},
    {"scaleup": "NVLink x4 per GPU pairs"},
    {"scaleup": "NVLink5 1800GB/s bidir, 32-GPU domain", "scaleout": "400Gb/s per GPU"},
    {"hardware": "many tiers", "scaleout": "400Gb/s per GPU"},
    {"hardware": "one tier", "scaleout": "100Gb/s per GPU"},
)


def test_a_run_is_predicted_alike_whatever_networks_other_runs_have() -> None:
    systems = {
        "many tiers": system_with((8, 450.0), (32, 100.0), (256, 50.0), (65536, 12.5)),
        "one tier": system_with((8, 450.0)),
    }

    def seconds(rows: Sequence[dict[str, Any]]) -> list[float]:
        found = map_runs(runs_of(table(*rows)), systems)
        assert found.supported.all()
        return list(map(float, step_times(found.case, parameters()).step))

    alone = [seconds([row])[0] for row in SITES]
    assert seconds(SITES) == pytest.approx(alone, rel=1e-12)
    # What the row says of its links to the network holds for all networks that they lead to.
    slow, fast = seconds([{**SITES[4], "scaleout": "100Gb/s per GPU"}, {**SITES[4], "scaleout": "800Gb/s per GPU"}])
    assert slow > alone[4] > fast
    plain = {"many tiers": system_with((8, 450.0), (65536, 50.0))}
    assert alone[4] == pytest.approx(
        float(step_times(map_runs(runs_of(table({"hardware": "many tiers"})), plain).case, parameters()).step[0])
    )


def test_latent_attention_windows_and_packed_data() -> None:
    latent = mapped(attn="MLA(q_lora1536,kv_lora512,nope128,rope64,v128)").case.model
    assert [
        float(getattr(latent, name)[0])
        for name in ("latent", "attn_size", "value_size", "query_rank", "key_value_rank", "rope_size")
    ] == [1, 192, 128, 1536, 512, 64]
    window = mapped(attn="GQA,alternating sliding-window128").case.model
    assert (window.window[0], window.full_attention_every[0]) == (128, 2)
    packed = mapped(notes="Full SFT (packed 4096).").case.model
    assert (packed.window[0], packed.window_chunked[0], packed.full_attention_every[0]) == (256, 1, 0)


def test_expert_tensor_parallelism() -> None:
    moe = {"moe_experts": 8, "moe_topk": 2, "moe_ffn": 1024, "ep": 4}
    assert mapped(**moe).case.layout.expert_tensor_par[0] == 2
    assert mapped(notes="ETP=1.", **moe).case.layout.expert_tensor_par[0] == 1
    assert mapped(**{**moe, "moe_experts": 32, "ep": 32}).case.layout.expert_tensor_par[0] == 1
