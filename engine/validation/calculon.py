"""The cost model `calculon` on the same runs, for comparison: the column `calculon_step_time_s`.

Mapping: tensor parallelism on the scale-up tier where the group fits it, likewise pipeline and data parallelism with
all their inner groups; peaks, memory and link rates are the accelerator's, efficiency tables from Calculon's A100 and
H100 systems. Gated feed-forward layers count as 1.5 times as wide, grouped queries as multi-head, fully sharded data
parallelism as optimizer sharding; capacities are not checked, and embedding and head do not exist.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

import engine
import hardware
import models
from engine.cost_models.calibrated import GENERATIONS, RECOMPUTES
from engine.exploration.run import ExplorationCancelled
from engine.validation.mapping import Mapped

__all__ = ["calculon_step_times", "is_mappable"]

RECOMPUTE_WORDS = {"none": "none", "full": "full", "selective": "attn_only"}
UNLIMITED_GIB = 1e9
"""Capacity that no execution fills [GiB]: measured runs did fit."""
GATED_WIDTH = 1.5
"""Width of a plain feed-forward layer with as many weights as a gated one: three matrices in place of two."""


def is_mappable(mapped: Mapped) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows that Calculon can express: no context parallelism, no experts, no 4 bits, recomputation
    none, full or selective of all blocks [rows].

    Args:
        mapped: runs as the cost model reads them, with the reason why others cannot be read [rows].
    """
    layout, model = mapped.case.layout, mapped.case.model
    kinds = np.isin(layout.recompute, [RECOMPUTES.index(word) for word in RECOMPUTE_WORDS])
    found = mapped.supported & kinds & (layout.recompute_share == 1.0)
    found &= (layout.context_par == 1.0) & (model.experts == 0.0) & (layout.linear_bits >= 8.0)
    return np.asarray(found & (model.latent == 0.0), bool)


def calculon_step_times(
    mapped: Mapped,
    *,
    progress: Callable[[int, int], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> npt.NDArray[np.float64]:
    """Return the step times by `calculon` [s] [rows], NaN where it cannot express the row or finds it impossible.

    Args:
        mapped: runs as the cost model reads them, with the reason why others cannot be read [rows].
        progress: called with (done, all) runs.
        cancel: returns True to stop.

    Raises `engine.ExplorationCancelled` if cancelled.
    """
    seconds = np.full(len(mapped.reason), np.nan)
    rows = np.flatnonzero(is_mappable(mapped))
    if len(rows) == 0:
        return seconds
    fields = pd.DataFrame(_build_executions(mapped))
    keys = pd.DataFrame({**_model_numbers(mapped), **_system_numbers(mapped)}).iloc[rows]
    shapes, machines = list(_model_numbers(mapped)), list(_system_numbers(mapped))
    done = 0
    for _, part in keys.groupby(list(keys.columns), sort=False):
        if cancel is not None and cancel():
            raise ExplorationCancelled("The predictions were cancelled.")
        values = {str(name): float(value) for name, value in part.iloc[0].items()}
        model = models.load_document({name: int(values[name]) for name in shapes}, name="run")
        system = _build_system(**{name: values[name] for name in machines})
        table = engine.evaluate(model, system, fields.loc[part.index].reset_index(drop=True))
        seconds[part.index] = table["total_time"].where(table["status"] == "ok").to_numpy(np.float64)
        done += len(part)
        if progress is not None:
            progress(done, len(rows))
    return seconds


def _model_numbers(mapped: Mapped) -> dict[str, npt.NDArray[np.float64]]:
    model = mapped.case.model
    return {
        "hidden": model.hidden,
        "feedforward": np.round(model.feedforward * np.where(model.gated > 0, GATED_WIDTH, 1.0)),
        "seq_size": model.seq_size,
        "attn_heads": model.attn_heads,
        "attn_size": np.maximum(np.round(model.attn_size), 1.0),
        "num_blocks": model.num_blocks,
    }


def _system_numbers(mapped: Mapped) -> dict[str, npt.NDArray[np.float64]]:
    facts = mapped.case.accelerator
    return {
        "flops16": facts.flops16,
        "flops8": np.where(facts.flops8 > 0, facts.flops8, facts.flops16),
        "memory": facts.memory_bandwidth,
        "inner": facts.network_bandwidths[0],
        "outer": facts.network_bandwidths[-1],
        "domain": _domain_size(mapped),
        "ampere": (facts.generation == GENERATIONS.index("ampere")).astype(np.float64),
    }


@cache
def _build_system(
    *, flops16: float, flops8: float, memory: float, inner: float, outer: float, domain: float, ampere: float
) -> hardware.System:
    document: dict[str, Any] = hardware.to_document(hardware.load("a100_80g" if ampere else "h100_80g_nvl8"))
    for units in ("matrix", "vector"):
        # The A100 of Calculon has no 8 bits; its 16-bit engine does them at the same rate.
        document[units].setdefault("float8", dict(document[units]["float16"]))
    document["matrix"]["float16"]["tflops"] = flops16 / 1e12
    document["matrix"]["float8"]["tflops"] = flops8 / 1e12
    document["mem1"]["bandwidth_gb_per_s"] = memory / 1e9
    document["mem1"]["capacity_gib"] = document["mem2"]["capacity_gib"] = UNLIMITED_GIB
    for network, rate, size in zip(document["networks"], (inner, outer), (int(domain), 2**20), strict=True):
        network["bandwidth_gb_per_s"] = rate / 1e9
        network["size"] = size
        network["must_be_filled"] = False
    document["name"] = "run"
    for key in ("assumptions", "unverified_fields", "accelerator", "derived_from", "changes", "notes"):
        document.pop(key, None)
    return hardware.load_document(document)


def _domain_size(mapped: Mapped) -> npt.NDArray[np.float64]:
    """Processors of the one inner tier that runs have there: hosts of several domains count as one."""
    return mapped.case.accelerator.network_sizes[1]


def _build_executions(mapped: Mapped) -> dict[str, Any]:
    layout, software = mapped.case.layout, mapped.case.software
    domain = _domain_size(mapped)
    t, p, d = (values.astype(np.int64) for values in (layout.tensor_par, layout.pipeline_par, layout.data_par))
    overlap = np.where((software.overlap_tensor > 0) & (t > 1), "ring", "none")
    words = np.array([RECOMPUTE_WORDS.get(name, "none") for name in RECOMPUTES])
    split = layout.sequence_par > 0
    return {
        "num_procs": t * p * d,
        "tensor_par": t,
        "pipeline_par": p,
        "data_par": d,
        "tensor_par_net": (t > domain).astype(np.int64),
        "pipeline_par_net": (t * p > domain).astype(np.int64),
        "data_par_net": (t * p * d > domain).astype(np.int64),
        "batch_size": layout.batch_size.astype(np.int64),
        "microbatch_size": layout.microbatch_size.astype(np.int64),
        "datatype": np.where(layout.linear_bits < 16, "float8", "float16"),
        "fused_activation": np.ones(len(t), bool),
        "attention_type": np.full(len(t), "multihead"),
        "activation_recompute": words[layout.recompute.astype(int)],
        "pipeline_interleaving": layout.pipeline_interleaving.astype(np.int64),
        "optimizer_sharding": ((layout.zero_stage >= 1) | (layout.fully_sharded > 0)) & (d > 1),
        "tensor_par_comm_type": np.where(split & (t > 1), "rs_ag", "ar"),
        "tensor_par_overlap": np.where(split, overlap, "none"),
        "seq_par_ag_redo": np.zeros(len(t), bool),
        "data_par_overlap": (software.overlap_data > 0) & (d > 1),
        "weight_offload": np.zeros(len(t), bool),
        "activations_offload": np.zeros(len(t), bool),
        "optimizer_offload": np.zeros(len(t), bool),
        "training": np.ones(len(t), bool),
    }
