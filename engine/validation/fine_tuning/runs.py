"""Measured runs of fine-tuning, and what the calibrated cost model predicts for them.

A run becomes a row in the schema of the other measured runs, so that layout, software and accelerator are read by the
same rules; the tuning is added to its model. Nothing is fitted on these runs.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, Final

import numpy as np
import pandas as pd

import hardware
import models
from engine.cost_models.calibrated import Case, generation_of, model_shapes, parameters, step_times
from engine.cost_models.calibrated import memory_use as processor_memory
from engine.validation.mapping import map_runs
from engine.validation.reading import runs_of
from hardware import GIB
from models import Model

__all__ = ["OUT_OF_MEMORY", "current_residuals", "error_medians", "fine_tuning_runs", "predict_fine_tuning"]

OUT_OF_MEMORY: Final = "out of memory"
"""Outcome of a run that did not fit."""
_FRAMEWORKS: Final = {
    "prime-rl": "prime-rl (PyTorch FSDP)",
    "torchtune": "torchtune (PyTorch FSDP)",
    "PEFT": "PEFT (Hugging Face transformers)",
}
"""Words for frameworks with the stack below them, by which rules of software are found."""
_PURE_16_BIT: Final = frozenset({"torchtune", "PEFT"})
"""Frameworks that train all weights without a 32-bit copy, which no setting of an execution has. Source: 8 bytes per
parameter of weights, gradients and moments, torchtune README at bd2a0fc7c314."""


@cache
def _rows() -> pd.DataFrame:
    with files("engine.validation.fine_tuning").joinpath("runs.csv").open(encoding="utf-8") as file:
        table = pd.read_csv(file, dtype=str, keep_default_na=False)
    for name in ("gpus", "tp", "pp", "cp", "vp", "ep", "step_s", "peak_gib", "seq_len", "global_batch", "micro_batch"):
        table[name] = pd.to_numeric(table[name].replace("", np.nan))
    return table


def fine_tuning_runs() -> pd.DataFrame:
    """Return the measured runs, one row each, with their sources; see `README.md` next to them.

    `step_s` is the measured step [s], `peak_gib` the peak memory of a processor [GiB], not a number where not given;
    `outcome` is `ran` or `out of memory`.
    """
    return _rows().copy()


def predict_fine_tuning() -> pd.DataFrame:
    """Return predictions for the runs, in their order.

    Returns:
        `id`, `framework`, `method`, `outcome`; `step_s` and `predicted_step_s` [s], `error` (predicted over measured
        minus 1), not a number where time should not be compared; `peak_gib`, `predicted_gib` of tensors [GiB] and
        `memory_error`, not a number where memory is not predicted; `fits`, whether it is at most the capacity; and
        `reason`, why there is no prediction.
    """
    runs, p = _rows(), parameters()
    systems = {name: hardware.load(name) for name in runs["system"].unique()}
    rows: list[dict[str, Any]] = [{str(name): value for name, value in row.items()} for row in runs.to_dict("records")]
    tuned = [_tuned_model(row) for row in rows]
    table = pd.DataFrame([_measured_row(row, model) for row, model in zip(rows, tuned, strict=True)])
    mapped = map_runs(runs_of(table), systems)
    seconds, memory = np.full((2, len(runs)), np.nan)
    for row in np.flatnonzero(mapped.supported).tolist():
        case = mapped.case.take(np.array([row]))
        case = replace(case, model=model_shapes(tuned[row]))
        seconds[row] = np.ravel(step_times(case, p).step)[0]
        memory[row] = np.ravel(processor_memory(case).peak)[0] / GIB
        if "to host" in runs["recompute"][row]:
            memory[row] -= _offloaded_gib(tuned[row], case)
    pure = runs["framework"].isin(_PURE_16_BIT) & (runs["method"] == "full")
    elsewhere = runs["offload"].ne("") | runs["optimizer"].str.contains("8 bit")
    memory = np.where(pure | elsewhere, np.nan, memory)
    capacity = np.array([systems[name].mem1.capacity_gib for name in runs["system"]])
    timed = (runs["fits_time"] == "True") & ~runs["recompute"].str.contains("to host")
    reason = np.where(pure, "all weights in 16 bits", np.where(elsewhere, "tensors on the host", ""))
    return pd.DataFrame(
        {
            **{name: runs[name] for name in ("id", "framework", "method", "outcome", "step_s")},
            "predicted_step_s": seconds,
            "error": np.where(timed, seconds / runs["step_s"] - 1.0, np.nan),
            "peak_gib": runs["peak_gib"],
            "predicted_gib": memory,
            "memory_error": memory / runs["peak_gib"] - 1.0,
            "fits": memory <= capacity,
            "reason": np.where(mapped.supported, reason, mapped.reason_text),
        }
    )


def current_residuals() -> pd.DataFrame:
    """Return the errors of steps: `id`, `source` (a repository), `method`, `generation`, `experts`, `ratio` (measured
    over predicted)."""
    runs, found = _rows(), predict_fine_tuning()
    kept = found["error"].notna()
    systems = {name: generation_of(hardware.load(name)) for name in runs["system"].unique()}
    experts = {name: bool(model_shapes(models.load(name)).experts > 0) for name in runs["model_key"].unique()}
    return pd.DataFrame(
        {
            "id": runs["id"],
            "source": runs["source"].str.partition("@")[0],
            "method": runs["method"],
            "generation": runs["system"].map(systems),
            "experts": runs["model_key"].map(experts),
            "ratio": 1.0 / (1.0 + found["error"]),
        }
    )[kept].reset_index(drop=True)


def error_medians(predictions: pd.DataFrame) -> pd.DataFrame:
    """Return the median absolute errors of full training, of adapters and of memory [%], with the number of runs.

    Args:
        predictions: of `predict_fine_tuning`.
    """
    full = predictions["method"] == "full"
    parts = {
        "step, all weights": predictions.loc[full, "error"],
        "step, adapters": predictions.loc[~full, "error"],
        "peak memory": predictions["memory_error"],
    }
    found = [(name, int(each.notna().sum()), 100.0 * each.abs().median()) for name, each in parts.items()]
    return pd.DataFrame(found, columns=["figure", "runs", "median_error"])


_RESIDENT: Final = 2.0
"""Blocks whose inputs stay on the processor while others are on the host [blocks]: the one in use and the one in
transit."""


def _offloaded_gib(model: Model, case: Case) -> float:
    """Return the inputs of recomputed blocks that are on the host, of one microbatch in 16 bits [GiB]."""
    shape = model.architecture_or_assumed()
    inputs = 2.0 * float(np.ravel(case.split_tokens)[0]) * shape.hidden
    return inputs * max(shape.layers - _RESIDENT, 0.0) / GIB


def _tuned_model(row: dict[str, Any]) -> Model:
    """Return the library's model of a run at its length of sequence, tuned as the run was."""
    model = models.load(row["model_key"])
    seq_size = model.seq_size if np.isnan(row["seq_len"]) else int(row["seq_len"])
    model = models.load_document({**models.to_document(model), "seq_size": seq_size})
    tuning: dict[str, Any] = {"loss_chunk": int(row["loss_chunk"] or 0)}
    if row["method"] != "full":
        tuning |= {
            "adapter_rank": int(row["lora_rank"]),
            "adapter_targets": row["adapter_targets"],
            "frozen_weight_bits": int(row["frozen_weight_bits"]),
        }
    return models.tuned(model, tuning)


def _measured_row(row: dict[str, Any], model: Model) -> dict[str, Any]:
    """Return a run in the schema of measured runs, without its measurements."""
    found = model.architecture_or_assumed()
    experts = found.experts
    sharding, compiled = row["sharding"], row["compiled"]
    # A single processor shards nothing, but prime-rl wraps its weights all the same.
    sharded = sharding.startswith("FSDP") or row["framework"] == "prime-rl"
    degrees = {name: 1 if np.isnan(row[name]) else int(row[name]) for name in ("tp", "pp", "cp", "vp", "ep")}
    return {
        "id": row["id"],
        "source": row["source"],
        "date": row["date"],
        "framework": _FRAMEWORKS.get(row["framework"], f"{row['framework']} {row['version']}"),
        "model": model.name,
        "hidden": found.hidden,
        "ffn": found.ffn,
        "layers": found.layers,
        "heads": found.heads,
        "kv_heads": found.kv_heads,
        "head_dim": found.head_dim,
        "vocab": found.vocab_padded,
        "seq_len": model.seq_size,
        "gated_mlp": found.gated_mlp,
        "tied_embeddings": found.tied_embeddings,
        "moe_experts": experts.routed if experts else 0,
        "moe_topk": experts.top_k if experts else 0,
        "moe_ffn": experts.ffn if experts else 0,
        "hardware": row["system"],
        "gpus_per_node": row["gpus_per_node"],
        "num_gpus": int(row["gpus"]),
        **{name: degrees[name] for name in ("tp", "pp", "cp", "ep")},
        "vpp": degrees["vp"],
        "dp": max(int(row["gpus"]) // (degrees["tp"] * degrees["pp"] * degrees["cp"]), 1),
        "mbs": int(row["micro_batch"]),
        "gbs": int(row["global_batch"]),
        "recompute": "full" if row["recompute"].startswith("full") else "none",
        "seq_parallel": row["sequence_par"],
        "fsdp": sharded,
        "zero_stage": 3 if sharded else 1 if sharding == "optimizer" else 0,
        "dtype": row["precision"],
        "notes": "torch.compile" if compiled == "True" else "no compile" if compiled == "False" else "",
        "kept_bytes": row["kept_bytes"],
        "attention_kernel": {"flash_attention_3": "native", "flash_attention_2": "flash2"}.get(row["attention"], ""),
    }
