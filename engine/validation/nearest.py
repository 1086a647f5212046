"""Measured runs that are nearest to a training setting.

The distance of two settings is a sum over parts, of which the earlier weigh more (`WEIGHTS`): kind of model, hardware,
datatype, model size, sequence length, processors, layout. Sizes and degrees count in doublings, |log2(a / b)|. A value
that a run does not state counts as one doubling. Runs at the same distance are in the order of their names, the last
measurement of a configuration (`core`) first, so that the order does not depend on that of the rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from engine.cost_models.calibrated import generation_of
from engine.executions.arrays import Floats
from engine.validation.model_flops import flops_of_runs
from engine.validation.reading import Runs, library_runs
from engine.validation.words import accelerator_named, datatype_of, recompute_of
from hardware import System
from models import Model, datatypes, dimensions
from models.token_flops import TokenFlops, token_flops

__all__ = ["WEIGHTS", "NearestRuns", "TrainingSetting", "find_nearest_runs", "hardware_distances", "settings_of_runs"]

WEIGHTS: Final[Mapping[str, float]] = {
    "kind": 16.0,
    "hardware": 8.0,
    "datatype": 4.0,
    "size": 2.0,
    "sequence": 1.0,
    "processors": 0.5,
    "layout": 0.25,
}
"""Part of the distance -> its weight, the most important first: each is twice the next. A run on another generation is
as far as one of a model of a sixteenth of the size. Source: stated by us."""
UNSTATED: Final = 1.0
"""Contribution of a value that a run does not state [doublings]. Source: stated by us."""
_OTHER_BOARD, _OTHER_CHIP = 0.25, 0.5
"""The same chip with another memory or form, and another chip of the same generation. Source: stated by us."""
_OTHER_FORMAT: Final = 0.25
"""Another format of the same width. Source: stated by us."""
_DEGREES: Final = ("tensor_par", "pipeline_par", "context_par", "expert_par", "chunks", "microbatch_size")
_RECOMPUTED: Final = {"none": 0.0, "attn_only": 0.5, "full": 1.0}
"""Recomputation of an execution as a share; a run's policy of some modules is between none and full."""

ModelKind = Literal["dense", "experts", "hybrid"]


@dataclass(frozen=True, slots=True)
class TrainingSetting:
    """Properties of a training run by which measured runs are compared; None where unknown."""

    kind: ModelKind
    accelerator: str
    """Maker's name, such as "H100-80GB-SXM"; empty where unknown."""
    generation: str
    datatype: str
    """Word of the datatype in tables of runs, such as "bf16" or "mxfp8"."""
    bits: float
    """Width of the linear layers [bits]."""
    size: float
    """Weights of products that a token passes, LM head included."""
    seq_size: float
    num_procs: float
    tensor_par: float
    pipeline_par: float
    context_par: float
    expert_par: float
    chunks: float
    """Chunks of the interleaved pipeline per processor."""
    microbatch_size: float
    recomputed: float
    """Recomputation: 0 none, 0.5 parts, 1 everything."""

    @classmethod
    def of(cls, model: Model, system: System, execution: Mapping[str, Any]) -> TrainingSetting:
        """Return the setting of an execution.

        Args:
            model: model that is trained.
            system: system that it runs on.
            execution: its fields by name.
        """
        datatype = str(execution["datatype"])
        return cls(
            kind=_kind_of_model(model),
            accelerator=system.accelerator.name if system.accelerator is not None else "",
            generation=generation_of(system),
            datatype=datatypes.word_for("runs", datatype) or datatype,
            bits=float(datatypes.named(datatype).bits),
            size=_passed_weights(token_flops(model)),
            seq_size=float(model.seq_size),
            num_procs=float(execution["num_procs"]),
            tensor_par=float(execution["tensor_par"]),
            pipeline_par=float(execution["pipeline_par"]),
            context_par=float(execution.get("context_par", 1)),
            expert_par=float(execution.get("expert_par", 1)),
            chunks=float(execution.get("pipeline_interleaving", 1)),
            microbatch_size=float(execution["microbatch_size"]),
            recomputed=_RECOMPUTED[str(execution["activation_recompute"])],
        )


@dataclass(frozen=True, slots=True)
class NearestRuns:
    """Measured runs in the order of their distance."""

    runs: Runs
    """The nearest runs [rows]."""
    kinds: tuple[str, ...]
    """Kind of model of each: "dense", "experts" or "hybrid" [rows]."""
    distances: Floats
    """Distance of each [rows]."""
    parts: pd.DataFrame
    """Contribution of each part to the distance, by the names of `WEIGHTS` [rows]."""


def _passed_weights(flops: TokenFlops) -> float:
    """Two FLOP per weight of a product."""
    return (flops.weights + flops.head) / 2.0


def _kind_of_model(model: Model) -> ModelKind:
    if model.layers is not None and any(layer.is_scan for block in model.layers.blocks for layer in block.mixers):
        return "hybrid"
    return "experts" if dimensions(model).experts > 0 else "dense"


def settings_of_runs(table: pd.DataFrame) -> pd.DataFrame:
    """Return the settings of measured runs, a column per field of `TrainingSetting` [rows].

    Args:
        table: runs in one type per field, as `engine.validation.reading` returns them [rows].
    """
    boards = {name: accelerator_named(name) for name in set(table["hardware"])}
    systems = [None if (found := boards[name]) is None else found[0] for name in table["hardware"]]
    hybrid = table["family"].str.contains("mamba|hybrid", case=False) | table["notes"].str.contains(
        "Hybrid Mamba|linear.attention", case=False
    )
    stated = _stated_parameters(table)
    flops = flops_of_runs(table)
    columns: dict[str, Any] = {
        "kind": np.where(hybrid, "hybrid", np.where(table["moe_experts"] > 0, "experts", "dense")),
        "accelerator": ["" if each is None or each.accelerator is None else each.accelerator.name for each in systems],
        "generation": ["" if each is None else generation_of(each) for each in systems],
        "datatype": table["dtype"].str.lower(),
        "bits": [_bits_of(text) for text in table["dtype"]],
        "size": [other if each is None else _passed_weights(each) for each, other in zip(flops, stated, strict=True)],
        "seq_size": table["seq_len"],
        "num_procs": table["num_gpus"],
        "tensor_par": table["tp"],
        "pipeline_par": table["pp"],
        "context_par": table["cp"].fillna(1.0),
        "expert_par": table["ep"].fillna(1.0),
        "chunks": table["vpp"].fillna(1.0),
        "microbatch_size": table["mbs"],
        "recomputed": [
            _recomputed_share(text, layers) for text, layers in zip(table["recompute"], table["layers"], strict=True)
        ],
    }
    return pd.DataFrame(columns, columns=[each.name for each in fields(TrainingSetting)], index=table.index)


def _bits_of(text: str) -> float:
    datatype = datatype_of(text)
    return math.nan if datatype is None else datatype.bits


def _stated_parameters(table: pd.DataFrame) -> Floats:
    """Return the parameters of dense models that rows state; not a number where none are stated."""
    if "params_b" not in table:
        return np.full(len(table), np.nan)
    stated = pd.to_numeric(table["params_b"], errors="coerce").to_numpy(np.float64)
    return np.where(table["moe_experts"] > 0, np.nan, 1e9 * stated)


def _recomputed_share(text: str, layers: float) -> float:
    policy = recompute_of(text or "none", layers)
    if policy is None:
        return math.nan
    return 0.0 if policy.kind == "none" else 1.0 if (policy.kind, policy.share) == ("full", 1.0) else 0.5


def find_nearest_runs(setting: TrainingSetting, count: int, runs: Runs | None = None) -> NearestRuns:
    """Return the measured runs that are nearest to a setting, the nearest first.

    Runs without a measured step do not count.

    Args:
        setting: of the run to compare with.
        count: how many runs to return at most.
        runs: measured runs; the package's where None.
    """
    if runs is None:
        runs, settings = _library_settings()
    else:
        settings = settings_of_runs(runs.table)
    table = runs.table
    measured = table["step_time_s"].notna() | table["tokens_per_s_per_gpu"].notna()
    rows = np.flatnonzero(measured.to_numpy(bool))
    parts = _distance_parts(setting, settings.iloc[rows])
    # Sums of the same numbers may differ in their last digit.
    total = parts.to_numpy(np.float64).sum(axis=1).round(9)
    repeated = np.nan_to_num(table["core"].to_numpy(np.float64)[rows], nan=0.0)
    names = table["id"].to_numpy(object)[rows].astype(str)
    order = np.lexsort((names, -repeated, total))[:count]
    chosen = rows[order]
    return NearestRuns(
        Runs(table.iloc[chosen].reset_index(drop=True), runs.faults[chosen]),
        tuple(settings["kind"].iloc[chosen]),
        total[order],
        parts.iloc[order].reset_index(drop=True),
    )


@cache
def _library_settings() -> tuple[Runs, pd.DataFrame]:
    runs = library_runs()
    return runs, settings_of_runs(runs.table)


def _distance_parts(setting: TrainingSetting, settings: pd.DataFrame) -> pd.DataFrame:
    """Return the weighted parts of the distance of every run [rows]."""
    own = asdict(setting)

    def doublings(name: str) -> npt.NDArray[np.float64]:
        values = settings[name].to_numpy(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.abs(np.log2(values / float(own[name])))
        return np.where(np.isfinite(found), found, UNSTATED)

    def agrees(name: str) -> npt.NDArray[np.bool_]:
        return np.asarray(settings[name] == own[name], bool) & (settings[name] != "").to_numpy(bool)

    recomputed = np.abs(settings["recomputed"].to_numpy(np.float64) - setting.recomputed)
    found = {
        "kind": np.where(agrees("kind"), 0.0, 1.0),
        "hardware": hardware_distances(
            setting.accelerator, setting.generation, settings["accelerator"], settings["generation"]
        ),
        "datatype": np.where(
            agrees("datatype"), 0.0, np.where(agrees("bits"), _OTHER_FORMAT, np.maximum(doublings("bits"), 0.5))
        ),
        "size": doublings("size"),
        "sequence": doublings("seq_size"),
        "processors": doublings("num_procs"),
        "layout": sum(doublings(name) for name in _DEGREES) + np.nan_to_num(recomputed, nan=UNSTATED),
    }
    return pd.DataFrame({name: weight * found[name] for name, weight in WEIGHTS.items()}, index=settings.index)


def hardware_distances(
    accelerator: str, generation: str, accelerators: Iterable[str], generations: Iterable[str]
) -> npt.NDArray[np.float64]:
    """Return the distances of accelerators from one: 0 for the same, 1 for another generation [rows].

    Args:
        accelerator: maker's name of the one, such as "H100-80GB-SXM"; empty where unknown.
        generation: its generation.
        accelerators: the others' names [rows].
        generations: their generations [rows].
    """
    found = []
    ours = _chip_of(accelerator)
    for name, other in zip(accelerators, generations, strict=True):
        if name != "" and name == accelerator:
            found.append(0.0)
        elif ours != "" and _chip_of(name) == ours:
            found.append(_OTHER_BOARD)
        else:
            # Chips that were not calibrated have no generation in common.
            found.append(_OTHER_CHIP if other == generation and generation not in ("", "other") else 1.0)
    return np.array(found, np.float64)


@cache
def _chip_of(accelerator: str) -> str:
    """Return the chip in a maker's name: "H100" of "H100-80GB-SXM"."""
    return next((word for word in accelerator.split("-") if re.search(r"\d", word)), accelerator)
