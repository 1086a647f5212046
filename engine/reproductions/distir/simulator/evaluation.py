"""DistIR's grid: latency, throughput and peak memory of a table of configurations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.executions.arrays import Floats, Ints
from engine.reproductions.distir.simulator.configurations import Configurations, read, reasons, sentence, size
from engine.reproductions.distir.simulator.cost_models import Allreduce, DistIRCostModel, revision_of
from engine.reproductions.distir.simulator.errors import ConfigurationError
from engine.reproductions.distir.simulator.memory import peak_bytes
from engine.reproductions.distir.simulator.recurrence import clocks
from engine.reproductions.distir.simulator.stages import durations

__all__ = ["RESULTS", "cost_model", "evaluate", "grid", "positive"]

RESULTS: Final = ("latency", "throughput", "peak_memory", "status", "reason", "reason_text")
"""Columns that `grid` adds."""


def grid(
    rows: pd.DataFrame | Iterable[Mapping[str, Any]],
    *,
    revision: str,
    width: int,
    layers: int,
    batch: int,
    bandwidth_gbps: float,
    filtered: bool = False,
    flops: float | None = None,
    dram_bandwidth: float | None = None,
    launch_overhead: float | None = None,
    allreduce: Mapping[int, Allreduce] | None = None,
    datatype_bytes: int | None = None,
    memory_limit: float | None = None,
) -> pd.DataFrame:
    """Return the table with `latency`, `throughput` and `peak_memory` of each configuration, or the reason that it has
    none.

    The model is DistIR's multilayer perceptron: `layers` square weights, each followed by a ReLU, and a loss. A step is
    forward, backward and the exchange of gradients; R3 also applies the optimizer.

    Args:
        rows: columns D (replicas), H (horizontal shards), P (stages) and m (microbatches of a replica); others are
            kept as they are.
        revision: "R1", "R2" or "R3", or "EuroMLSys21" for the simulator that made the published grid.
        width: rows and columns of each weight.
        layers: weights.
        batch: samples of a step, over all replicas.
        bandwidth_gbps: between any two devices [Gbps], as the revision understands it (see `CostModel.link`).
        filtered: counts a step with its weights already in place. R3 always does.
        flops: rate of a device [FLOP/s]; the revision's where left out, as are the following.
        dram_bandwidth: rate of its memory [bytes/s].
        launch_overhead: of every op that computes [s].
        allreduce: measured all-reduces by size of the group.
        datatype_bytes: of an element [bytes].
        memory_limit: of a device [bytes]; configurations that need more keep their figures and get a reason.

    Returns a DataFrame in the order of `rows` with `latency` [s], `throughput` [samples/s] and `peak_memory` of the
    fullest device [bytes], `status` (ok, infeasible, invalid), `reason` (a code) and `reason_text`. Where a reason
    other than memory stands, figures are NaN.

    Raises ConfigurationError for a table without these columns, for invalid sizes and rates, and for an unknown
    revision.
    """
    model = cost_model(
        revision,
        flops=flops,
        dram_bandwidth=dram_bandwidth,
        launch_overhead=launch_overhead,
        allreduce=allreduce,
        datatype_bytes=datatype_bytes,
    )
    bandwidth = positive("bandwidth_gbps", bandwidth_gbps)
    limit = None if memory_limit is None else positive("memory_limit", memory_limit)
    sizes = {name: size(name, value) for name, value in (("width", width), ("layers", layers), ("batch", batch))}
    table, degrees = read(rows)
    spread = {name: np.full(len(table), value, np.int64) for name, value in sizes.items()}
    return evaluate(table, Configurations(**degrees, **spread), model, bandwidth, filtered=filtered, memory_limit=limit)


def cost_model(
    revision: str,
    *,
    flops: float | None = None,
    dram_bandwidth: float | None = None,
    launch_overhead: float | None = None,
    allreduce: Mapping[int, Allreduce] | None = None,
    datatype_bytes: int | None = None,
) -> DistIRCostModel:
    """Return a revision's cost model, with the given constants instead of its own.

    Args:
        revision: "R1", "R2" or "R3", or "EuroMLSys21" for the simulator that made the published grid.
        flops: rate of a device [FLOP/s]; the revision's where None, as are the following.
        dram_bandwidth: rate of its memory [bytes/s].
        launch_overhead: of every op that computes [s].
        allreduce: measured all-reduces by size of the group.
        datatype_bytes: of an element [bytes].

    Raises ConfigurationError for an unknown revision, and for a constant that cannot be.
    """
    model = revision_of(revision)
    changes: dict[str, Any] = {}
    if flops is not None:
        changes["flops"] = positive("flops", flops)
    if dram_bandwidth is not None:
        changes["dram_bandwidth"] = positive("dram_bandwidth", dram_bandwidth)
    if launch_overhead is not None:
        changes["launch_overhead"] = positive("launch_overhead", launch_overhead, zero=True)
    if datatype_bytes is not None:
        if datatype_bytes not in (1, 2, 4, 8):
            raise ConfigurationError(f"datatype_bytes is {str(datatype_bytes)[:40]}; it must be 1, 2, 4 or 8.")
        changes["datatype_bytes"] = int(datatype_bytes)
    if allreduce is not None:
        for number, measured in allreduce.items():
            for name in ("per_gigabit", "per_device", "constant"):
                positive(f"allreduce of {number}: {name}", getattr(measured, name, None), zero=True)
        changes["allreduce"] = dict(allreduce)
    return replace(model, **changes)


def positive(name: str, value: Any, *, zero: bool = False) -> float:
    """Returns a rate or a time as a number.

    Args:
        name: of the number, for messages.
        value: the value to check, of any type.
        zero: whether 0 is allowed.

    Raises ConfigurationError if it is not a number, below 0, or 0 unless `zero`.
    """
    number = float(value) if isinstance(value, int | float | np.number) and not isinstance(value, bool) else np.nan
    if not (np.isfinite(number) and (number > 0 or (zero and number == 0))):
        least = "at least 0" if zero else "above 0"
        raise ConfigurationError(f"{name} is {str(value)[:40]}; it must be a number {least}.")
    return number


def evaluate(
    table: pd.DataFrame,
    c: Configurations,
    model: DistIRCostModel,
    bandwidth_gbps: float,
    *,
    filtered: bool = False,
    memory_limit: float | None = None,
    untransformed: bool = False,
) -> pd.DataFrame:
    """Return `table` with the columns of `RESULTS`; its rows match the configurations `c`, which may also differ in
    sizes.

    `untransformed` takes one device as the program before any transform, as the notebook does: (1, 1, 1, 1) of R1 and
    R2 otherwise sends inputs and labels to the device.

    Args:
        table: what the results are added to [rows].
        c: degrees and sizes of configurations [rows].
        model: cost model of the revision.
        bandwidth_gbps: between any two devices [Gbps], as the revision understands it (see `CostModel.link`).
        filtered: counts a step with its weights already in place. R3 always does.
        memory_limit: of a device [bytes]; configurations that need more keep their figures and get a reason.
        untransformed: takes one device as the program before any transform, as the notebook does.
    """
    found = reasons(c)
    latency, peak = np.full(len(c), np.nan), np.full(len(c), np.nan)
    feasible = np.flatnonzero([not code for code in found])
    single = untransformed & (c.D * c.H * c.P == 1)
    groups: dict[tuple[int, int, bool], list[int]] = {}
    for row in feasible.tolist():
        groups.setdefault((int(c.P[row]), int(c.m[row]), bool(single[row])), []).append(row)
    for (_, _, alone), members in groups.items():
        rows = np.array(members, np.int64)
        latency[rows], peak[rows] = _evaluate_group(c.at(rows), model, bandwidth_gbps, filtered, alone)
    if memory_limit is not None:
        for row in feasible.tolist():
            found[row] = "memory" if peak[row] > memory_limit else ""
    batch = c.batch.astype(np.float64)
    result = table.assign(latency=latency, throughput=batch / latency, peak_memory=peak)
    result["status"] = ["infeasible" if code == "memory" else "invalid" if code else "ok" for code in found]
    result["reason"] = pd.Series(found, dtype="str", index=result.index)
    numbers = [{name: int(getattr(c, name)[row]) for name in c.__slots__} for row in range(len(c))]
    texts = []
    for row, code in enumerate(found):
        more = {"share": numbers[row]["batch"] // max(numbers[row]["D"], 1)}
        if memory_limit is not None and code == "memory":
            more |= {"need": int(peak[row]), "limit": int(memory_limit)}
        texts.append(sentence(code, numbers[row] | more))
    result["reason_text"] = pd.Series(texts, dtype="str", index=result.index)
    return result


def _evaluate_group(
    c: Configurations, model: DistIRCostModel, bandwidth_gbps: float, filtered: bool, single: bool
) -> tuple[Floats, Ints]:
    """Latency [s] and peak memory [bytes] of configurations that have P and m in common."""
    stages, microbatches = int(c.P[0]), int(c.m[0])
    parts = durations(c, stages, model, bandwidth_gbps, filtered=filtered, single=single)
    peaks = peak_bytes(c, model, filtered=filtered, single=single)
    return clocks(parts, stages, microbatches).max(axis=0), peaks.max(axis=0)
