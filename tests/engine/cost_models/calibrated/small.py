"""Small spaces of the calibrated cost model, every kind of model and machine among them, and all that is said of them.

Memory is cut down so that some executions of each fit and some do not.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd

import engine
import hardware
import models
from hardware import System
from models import Model
from tests.engine.explored_with_rows import explored_with_rows

LLAMA: dict[str, Any] = {
    "hidden": 1024,
    "ffn": 2816,
    "layers": 6,
    "heads": 8,
    "kv_heads": 4,
    "head_dim": 128,
    "gated_mlp": True,
    "vocab": 32000,
    "vocab_padded": 32000,
    "tied_embeddings": False,
    "positions": "rotary",
    "max_seq": 8192,
    "norm": "RMSNorm",
}
EXPERTS: dict[str, Any] = {**LLAMA, "layers": 8, "experts": {"routed": 4, "top_k": 2, "ffn": 2816}}


def model_of(architecture: dict[str, Any], seq_size: int = 8192) -> Model:
    """A model with an architecture."""
    document = {"format": "shardscape-model/1", "name": "small", "source": "made up", "seq_size": seq_size}
    return models.load_document({**document, "architecture": architecture}, "small")


HYBRID: dict[str, Any] = {
    "hidden": 1024,
    "vocab": 32000,
    "tied_embeddings": False,
    "blocks": [
        {
            "mixers": [
                {
                    "kind": "gated_deltanet",
                    "key_heads": 4,
                    "value_heads": 8,
                    "key_head_dim": 128,
                    "value_head_dim": 128,
                    "kernel": 4,
                }
            ],
            "feedforwards": [{"kind": "experts", "routed": 4, "top_k": 2, "width": 1408}],
        },
        {
            "mixers": [{"kind": "attention", "heads": 8, "kv_heads": 2, "head_dim": 128}],
            "feedforwards": [{"kind": "experts", "routed": 4, "top_k": 2, "width": 1408}],
        },
        {
            "mixers": [{"kind": "mamba2", "heads": 16, "head_dim": 128, "states": 128, "groups": 2, "kernel": 4}],
            "norms": 1,
        },
        {"feedforwards": [{"kind": "feedforward", "width": 2816}], "norms": 1},
    ],
    "runs": [
        {"block": 3, "count": 1},
        {"block": 0, "count": 2},
        {"block": 1, "count": 1},
        {"block": 2, "count": 1},
        {"block": 0, "count": 2},
        {"block": 1, "count": 1},
    ],
}
"""Eight blocks of four kinds: linear attention and attention with experts, a state space and an MLP alone."""


def hybrid_model(seq_size: int = 4096, **changes: Any) -> Model:
    """A model with a pattern of layers."""
    document = {"format": "shardscape-model/1", "name": "hybrid", "source": "made up", "seq_size": seq_size}
    return models.load_document({**document, "layers": {**HYBRID, **changes}}, "hybrid")


def plain_model() -> Model:
    """A model of which only Calculon's six numbers are known."""
    shape = {"hidden": 1024, "feedforward": 4096, "seq_size": 2048, "attn_heads": 8, "attn_size": 128, "num_blocks": 8}
    return models.load_document(shape, "small")


def system_of(name: str, *, first: float, second: float, **changes: Any) -> System:
    """A system of the library with memory of `first` and `second` [GiB], and other keys replaced."""
    document = hardware.to_document(hardware.load(name))
    for tier, capacity in (("mem1", first), ("mem2", second)):
        document[tier] = {**document[tier], "capacity_gib": capacity}
    return hardware.load_document({**document, **changes}, "small")


def system_with(*networks: tuple[int, float]) -> System:
    """An H100 with networks of these sizes and rates [GB/s], innermost first."""
    document: dict[str, Any] = hardware.to_document(hardware.load("h100_80g_sxm"))
    plain = document["networks"][0]
    document["networks"] = [
        {**plain, "size": size, "bandwidth_gb_per_s": rate, "must_be_filled": False} for size, rate in networks
    ]
    document |= {"assumptions": [], "unverified_fields": [], "name": "machine"}
    return hardware.load_document(document)


def scenario(
    model: Model,
    system: System,
    limits: dict[str, Any] | None = None,
    *,
    num_procs: int = 8,
    max_batch_size: int = 4,
    datatype: str = "bfloat16",
    **further: Any,
) -> engine.Scenario:
    """A scenario of the calibrated cost model."""
    return engine.Scenario.of(
        model,
        system,
        num_procs=num_procs,
        max_batch_size=max_batch_size,
        datatype=datatype,
        limits=limits,
        cost_model="calibrated",
        **further,
    )


NAMES = (
    "dense",
    "experts",
    "plain",
    "one tier",
    "widened",
    "old software",
    "recomputing",
    "schedules",
    "layouts",
    "hybrid",
    "dispatched",
)


@cache
def named(name: str) -> engine.Scenario:
    """One of the small scenarios."""
    if name == "dense":
        return scenario(model_of(LLAMA), system_of("h100_80g_sxm", first=2.8, second=0.8), {"pipeline_par": [1, 2, 4]})
    if name == "experts":
        limits = {"activation_recompute": ["none", "attn_only"], "activations_offload": False, "tensor_par": [1, 2]}
        return scenario(model_of(EXPERTS, 4096), system_of("b200_180g_sxm", first=3.5, second=1.0), limits)
    if name == "plain":
        return scenario(
            plain_model(),
            system_of("a100_80g_sxm", first=1.5, second=0.5),
            {"uneven_pipelines": True},
            num_procs=12,
            max_batch_size=12,
            datatype="float16",
        )
    if name == "one tier":
        model = model_of({**LLAMA, "layers": 14, "tied_embeddings": True}, 4096)
        return scenario(model, system_of("tpu7x_192g", first=5.0, second=0.0), num_procs=16, max_batch_size=32)
    if name == "widened":
        limits = {
            "context_par": {"max": 2},
            "attention_kernel": ["unfused", "flash2", "native"],
            "launch": ["fused", "compiled", "graphs", "partial_graphs"],
            "gradient_datatype": ["float32", "bfloat16"],
            "optimizer_datatype": ["float32", "bfloat16"],
            "expert_overlap": [False, True],
            "pipeline_overlap": [False, True],
            "expert_par": [2],
            "data_par": [1, 2],
            "expert_tensor_par": 1,
            "activation_recompute": ["attn_only"],
            "tensor_par_overlap": ["none"],
            "selective_recompute": ["attention", "half"],
            "weight_offload": False,
            "tensor_par": 2,
            "activations_offload": False,
            "optimizer_offload": [False, True],
            "tensor_par_comm_type": ["rs_ag"],
        }
        return scenario(model_of(EXPERTS, 2048), system_of("h200_141g_sxm", first=2.7, second=1.0), limits)
    if name == "dispatched":
        limits = {
            "token_dispatcher": ["all_to_all", "all_gather", "deepep", "hybridep"],
            "dispatch_datatype": ["bfloat16", "float8"],
            "expert_imbalance": [100, 125],
            "context_par": [1, 2],
            "context_par_comm": ["p2p", "all_gather", "a2a", "hierarchical"],
            "tensor_par": [1, 2],
            "tensor_par_comm_type": "rs_ag",
            "tensor_par_overlap": "none",
            "data_par_overlap": True,
            "expert_overlap": [False, True],
            "activation_recompute": ["none", "full"],
            "zero_stage": [1],
            "weight_offload": False,
            "activations_offload": False,
            "optimizer_offload": False,
            "pipeline_par": [1, 2],
        }
        return scenario(model_of(EXPERTS, 2048), system_of("h200_141g_sxm", first=4.0, second=1.0), limits)
    if name == "schedules":
        limits = {
            "schedule": ["1f1b", "interleaved", "zb_h1", "zb_v", "dualpipe", "dualpipev", "combined_1f1b"],
            "activation_recompute": ["none", "full"],
            "tensor_par": [1, 2],
            "pipeline_par": [2, 3, 4],
            "weight_offload": False,
            "optimizer_offload": False,
            "pipeline_overlap": [False, True],
            "tensor_par_overlap": "none",
            "data_par_overlap": True,
            "context_par": 1,
            "expert_tensor_par": 1,
            "tensor_par_comm_type": "rs_ag",
        }
        model, machine = model_of({**EXPERTS, "layers": 8}, 2048), system_of("h100_80g_sxm", first=3.5, second=1.0)
        return scenario(model, machine, limits, num_procs=16, max_batch_size=32)
    if name == "layouts":
        limits = {
            "stage_layout": [
                "even",
                "balanced",
                "loss_counted",
                "last_1",
                "first_1_last_2",
                "Et*3|t|t|ttL",
                "Et|(t|)*6L",
                "Ett|t*5L",
            ],
            "schedule": ["1f1b", "interleaved", "zb_h1", "combined_1f1b"],
            "pipeline_par": [2, 4],
            "tensor_par": 2,
            "activation_recompute": ["none", "full"],
            "weight_offload": False,
            "tensor_par_overlap": "none",
            "tensor_par_comm_type": "rs_ag",
            "context_par": 1,
            "data_par_overlap": True,
        }
        model, machine = model_of({**EXPERTS, "layers": 7}, 2048), system_of("h100_80g_sxm", first=3.2, second=1.0)
        return scenario(model, machine, limits, num_procs=16, max_batch_size=16)
    if name == "hybrid":
        limits = {
            "activation_recompute": ["none", "attn_only", "full"],
            "tensor_par": [1, 2, 4],
            "weight_offload": [False, True],
            "context_par": {"max": 2},
            "tensor_par_overlap": "none",
            "stage_layout": ["even", "balanced"],
            "schedule": ["1f1b", "interleaved"],
        }
        machine = system_of("h100_80g_sxm", first=3.2, second=1.0)
        return scenario(hybrid_model(), machine, limits, max_batch_size=8)
    if name == "recomputing":
        limits = {
            "selective_recompute": ["modules", "moe_act+layernorm", "moe+mlp", "core_attn+shared_experts"],
            "recompute_blocks": [0, 1, 2],
            "fp8_param_gather": [False, True],
            "gradient_datatype": ["float32", "bfloat16"],
            "tensor_par": [1, 2],
            "tensor_par_comm_type": "rs_ag",
            "tensor_par_overlap": "none",
            "weight_offload": False,
            "context_par": 1,
            "expert_tensor_par": 1,
            "data_par_overlap": True,
        }
        model, machine = model_of(EXPERTS, 2048), system_of("h100_80g_sxm", first=3.2, second=0.5)
        return scenario(model, machine, limits, max_batch_size=8, datatype="float8")
    assert name == "old software"
    limits = {
        "attention_kernel": "flash1",
        "launch": "eager",
        "activation_recompute": ["attn_only", "full"],
        "selective_recompute": ["operators", "save_projections", "save_dots"],
        "weight_offload": False,
        "batch_size": [4, 8],
    }
    model = model_of({**LLAMA, "sliding_window": 512, "full_attention_every": 2}, 4096)
    machine = system_of("h100_80g_sxm", first=2.5, second=0.6)
    return scenario(model, machine, limits, max_batch_size=8, datatype="float8")


@cache
def evaluated(name: str) -> pd.DataFrame:
    """Every execution of a small scenario, evaluated one by one; the position is the id."""
    chosen = named(name)
    return chosen.evaluate(chosen.space.table(np.arange(chosen.space.total)))


@cache
def explored(name: str) -> engine.Exploration:
    """A small scenario, explored in memory."""
    return explored_with_rows(named(name))


def rows_of(found: engine.Exploration) -> pd.DataFrame:
    """The feasible executions of an exploration by id, words as text."""
    table: pd.DataFrame = found.rows.table().to_pandas().set_index("id").sort_index()
    return table.astype({name: str for name, kind in table.dtypes.items() if kind == "category"})


@cache
def feasible(name: str) -> pd.DataFrame:
    """The feasible executions of a small scenario."""
    return rows_of(explored(name))
