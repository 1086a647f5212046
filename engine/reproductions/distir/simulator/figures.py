"""The figures of the notebook and the paper, for any sizes and constants: speedup over devices, and over strategies.

Figure 3 is data and pipeline parallelism alone, weights in place, against the program on one device before any
transform. Figure 4 is the whole grid, against the configuration (1, 1, 1, 1), with the envelope of each strategy.

Source: Santhanam et al. (EuroMLSys 2021), figures 3 and 4; the notebook of microsoft/dist-ir at 3386edc.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.reproductions.distir.simulator.configurations import Configurations
from engine.reproductions.distir.simulator.evaluation import cost_model, evaluate, grid

__all__ = ["ENVELOPES", "envelopes", "over_devices", "with_speedup"]

ENVELOPES: Final = ("D", "H", "P", "D=H")
"""Strategies that Figure 4 draws as lines: one kind of parallelism alone, and as many replicas as shards."""


def over_devices(
    *,
    revision: str,
    width: int,
    layers: int,
    batch: int,
    bandwidth_gbps: float,
    devices: Sequence[int] = (2, 4, 8, 16, 32),
    batches: Sequence[int] = (),
    microbatches: Sequence[int] = (),
    **constants: Any,
) -> pd.DataFrame:
    """Return Figure 3 as a table: kind ("data", "pipeline"), series, devices, speedup, and the columns of `grid`.

    Args:
        revision: of DistIR.
        width: of the weights.
        layers: weights.
        batch: of the pipeline's curves.
        bandwidth_gbps: between devices.
        devices: the horizontal axis.
        batches: a curve of data parallelism for each.
        microbatches: a curve of pipeline parallelism for each.
        constants: further arguments of `grid`.
    """
    model = cost_model(revision, **constants)
    found = []
    for kind, values in (("data", batches), ("pipeline", microbatches)):
        for value in values:
            samples = value if kind == "data" else batch
            rows = [
                {
                    "kind": kind,
                    "series": value,
                    "devices": number,
                    "D": number if kind == "data" else 1,
                    "H": 1,
                    "P": 1 if kind == "data" else number,
                    "m": 1 if kind == "data" or number == 1 else value,
                }
                for number in devices
            ]
            table = grid(
                rows,
                revision=revision,
                width=width,
                layers=layers,
                batch=samples,
                bandwidth_gbps=bandwidth_gbps,
                filtered=True,
                **constants,
            )
            one = Configurations(*(np.array([each], np.int64) for each in (1, 1, 1, 1, width, layers, samples)))
            alone = evaluate(pd.DataFrame(index=[0]), one, model, bandwidth_gbps, untransformed=True)["latency"][0]
            found.append(table.assign(speedup=alone / table["latency"]))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=["kind", "series", "devices"])


def with_speedup(table: pd.DataFrame, baseline: float | None = None) -> pd.DataFrame:
    """Returns a grid with `devices` and `speedup` over a throughput, by default that of (1, 1, 1, 1) in the grid.

    Where there is no such configuration that runs, speedups are NaN.

    Args:
        table: a grid, as `grid` returns it.
        baseline: throughput over which speedups are [samples/s]; that of (1, 1, 1, 1) in the grid where None.
    """
    devices = table["D"] * table["H"] * table["P"]
    if baseline is None:
        alone = table.loc[(devices == 1) & (table["m"] == 1), "throughput"]
        baseline = float(alone.iloc[0]) if len(alone) else float("nan")
    return table.assign(devices=devices, speedup=table["throughput"] / baseline)


def envelopes(table: pd.DataFrame) -> pd.DataFrame:
    """Returns Figure 4's lines: strategy, devices, speedup and m of the best configuration of each.

    For pipelines the best microbatch count is often not the largest: more of them fill the pipeline, and each computes
    less efficiently and sends more often.

    Args:
        table: a grid with `speedup` (see `with_speedup`).
    """
    runs = table[table["reason"] == ""] if "reason" in table else table
    where = {
        "D": (runs["H"] == 1) & (runs["P"] == 1),
        "H": (runs["D"] == 1) & (runs["P"] == 1),
        "P": (runs["D"] == 1) & (runs["H"] == 1),
        "D=H": (runs["D"] == runs["H"]) & (runs["P"] == 1),
    }
    found = []
    for name in ENVELOPES:
        mine = runs[where[name] & runs["speedup"].notna()]
        best = mine.sort_values("speedup", kind="stable").groupby("devices").tail(1).sort_values("devices")
        found.append(best.assign(strategy=name)[["strategy", "devices", "D", "H", "P", "m", "speedup"]])
    return pd.concat(found, ignore_index=True)
