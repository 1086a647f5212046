"""One configuration in time: what every stage does when, where its time goes, what lives on it.

All replicas and shards of a stage do the same at the same time, so the stages of the first stand for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.executions.arrays import Floats, Ints
from engine.reproductions.distir.simulator import memory
from engine.reproductions.distir.simulator.configurations import Configurations, reasons, sentence, size
from engine.reproductions.distir.simulator.cost_models import DistIRCostModel
from engine.reproductions.distir.simulator.errors import ConfigurationError
from engine.reproductions.distir.simulator.evaluation import cost_model, positive
from engine.reproductions.distir.simulator.recurrence import clocks
from engine.reproductions.distir.simulator.stages import StepPartDurations, durations

__all__ = ["DistIRTimeline", "timeline"]

ENDS: Final = ("source", "target")
MICROSECONDS: Final = 1e6
"""Microseconds of a second: the unit of trace events."""
NEIGHBOUR: Final = {"activation": -1, "gradient": 1}
"""Offset from the receiver of a transfer to its sender; other transfers come from the first stage."""
NAMES: Final[Mapping[str, str]] = {
    "f": "Forward",
    "b": "Backward",
    "activation": "Send activations",
    "gradient": "Send gradients",
    "label": "Send labels",
    "weights": "Send weights",
}
LARGEST: Final = 100_000
"""Items of a step that a timeline has at most."""


@dataclass(frozen=True)
class DistIRTimeline:
    """A step of one configuration.

    `items`: stage, kind (f, b), mb, start, end [s], as they begin; a forward of the last stage ends with its loss.
    `transfers`: kind (activation, gradient, label, weights), source and target stage, mb, start, end [s].
    `stages`: per stage seconds of computation, of all-reduces and exchanges, of sends, and of waiting, which add up to
    the latency, and `peak_memory` [bytes].
    """

    revision: str
    degrees: dict[str, int]
    latency: float
    items: pd.DataFrame
    transfers: pd.DataFrame
    stages: pd.DataFrame
    memory: pd.DataFrame
    """stage, time [s], live and fullest [bytes]: what lives after an event, and the most that did during it."""

    def chrome_trace(self) -> list[dict[str, Any]]:
        """Returns events as DistIR writes them for chrome://tracing; a stage is the thread of its first device."""
        bars = [(row, "stage") for row in self.items.to_dict("records")]
        bars += [(row, side) for row in self.transfers.to_dict("records") for side in ENDS]
        events = [(NAMES[row["kind"]], row[side], row["mb"], row["start"], row["end"]) for row, side in bars]
        events.sort(key=lambda event: (event[3], event[1]))
        return [
            {
                "name": f"{name} {mb}",
                "ph": "X",
                "ts": MICROSECONDS * start,
                "dur": MICROSECONDS * (end - start),
                "pid": 0,
                "tid": 1 + int(stage),
            }
            for name, stage, mb, start, end in events
        ]


def timeline(
    *,
    revision: str,
    D: int = 1,  # noqa: N803 - the letters of the paper
    H: int = 1,  # noqa: N803 - the letters of the paper
    P: int = 1,  # noqa: N803 - the letters of the paper
    m: int = 1,
    width: int,
    layers: int,
    batch: int,
    bandwidth_gbps: float,
    filtered: bool = False,
    **constants: Any,
) -> DistIRTimeline:
    """Return the simulated step of one configuration. Arguments are as for `grid`.

    Args:
        revision: "R1", "R2" or "R3", or "EuroMLSys21" for the simulator that made the published grid.
        D: replicas.
        H: horizontal shards.
        P: stages.
        m: microbatches of a replica.
        width: rows and columns of each weight.
        layers: weights of the model.
        batch: samples of a step, over all replicas.
        bandwidth_gbps: between any two devices [Gbps], as the revision understands it (see `CostModel.link`).
        filtered: counts a step with its weights already in place. R3 always does.
        constants: of one's own, as `cost_model` takes them.

    Raises ConfigurationError for a configuration that cannot run, with its reason, or that has too many items.
    """
    model, bandwidth = cost_model(revision, **constants), positive("bandwidth_gbps", bandwidth_gbps)
    sizes = {name: size(name, value) for name, value in (("width", width), ("layers", layers), ("batch", batch))}
    degrees = {"D": D, "H": H, "P": P, "m": m}
    for name, degree in degrees.items():
        if not isinstance(degree, int | np.integer) or isinstance(degree, bool) or not 1 <= degree <= 2**40:
            raise ConfigurationError(f"{name} is {str(degree)[:40]}; it must be a whole number of at least 1.")
    c = Configurations(**{name: np.array([int(value)], np.int64) for name, value in (degrees | sizes).items()})
    code = reasons(c)[0]
    if code:
        numbers = {name: int(value) for name, value in (degrees | sizes).items()}
        raise ConfigurationError(sentence(code, numbers | {"share": batch // D}))
    if P * m > LARGEST // 2:
        raise ConfigurationError(f"P {P} x m {m} has more than the {LARGEST:,} items of a timeline.")
    return _simulate_timeline(c, model, bandwidth, filtered, {name: int(degree) for name, degree in degrees.items()})


def _simulate_timeline(
    c: Configurations, model: DistIRCostModel, bandwidth: float, filtered: bool, degrees: dict[str, int]
) -> DistIRTimeline:
    stages, microbatches = degrees["P"], degrees["m"]
    parts = durations(c, stages, model, bandwidth, filtered=filtered, single=False)
    items: list[tuple[str, int, int, float, float]] = []
    transfers: list[tuple[str, int, int, int, float, float]] = []

    def observe(kind: str, stage: int, mb: int, start: Floats, end: Floats) -> None:
        if kind in ("f", "b"):
            items.append((kind, stage, mb, float(start[0]), float(end[0])))
        else:
            source = stage + NEIGHBOUR[kind] if kind in NEIGHBOUR else 0
            transfers.append((kind, source, stage, mb, float(start[0]), float(end[0])))

    ends = clocks(parts, stages, microbatches, observe)[:, 0]
    latency = float(ends.max())
    item_table = pd.DataFrame(items, columns=["kind", "stage", "mb", "start", "end"])
    transfer_table = pd.DataFrame(transfers, columns=["kind", "source", "target", "mb", "start", "end"])
    peaks = memory.peak_bytes(c, model, filtered=filtered)[:, 0]
    return DistIRTimeline(
        revision=model.name,
        degrees=degrees,
        latency=latency,
        items=item_table[["stage", "kind", "mb", "start", "end"]],
        transfers=transfer_table,
        stages=_account_stage_times(parts, degrees, latency, transfer_table, peaks),
        memory=_trace_memory(c, model, filtered, item_table, transfer_table),
    )


def _account_stage_times(
    d: StepPartDurations, degrees: dict[str, int], latency: float, transfers: pd.DataFrame, peaks: Ints
) -> pd.DataFrame:
    """Return the time of each stage by cause."""
    stages, m = degrees["P"], degrees["m"]
    last = np.arange(stages) == stages - 1
    forward, backward = (m * getattr(d, name)[:, 0] for name in ("forward", "backward"))
    loss = np.where(last, m * d.loss[0] + (m - 1) * d.loss_accumulation[0], 0.0)
    reductions = m * (d.forward_reductions + d.backward_reductions)[:, 0]
    optimizer = (d.end - d.end_transfers)[:, 0]
    compute = forward + backward + (m - 1) * d.accumulation[:, 0] + loss - reductions + optimizer
    sends = np.zeros(stages)
    for side in ENDS:
        if len(transfers):
            times = (transfers["end"] - transfers["start"]).groupby(transfers[side]).sum()
            sends[times.index.to_numpy(np.int64)] += times.to_numpy()
    sends[0] += d.start[0]
    exchanges = reductions + d.end_transfers[:, 0]
    waiting = latency - compute - exchanges - sends
    return pd.DataFrame(
        {
            "stage": range(stages),
            "compute": compute,
            "exchange": exchanges,
            "send": sends,
            "waiting": np.maximum(waiting, 0.0),
            "peak_memory": peaks,
        }
    )


def _trace_memory(
    c: Configurations, model: DistIRCostModel, filtered: bool, items: pd.DataFrame, transfers: pd.DataFrame
) -> pd.DataFrame:
    """Return the live memory of every stage's device over time."""
    done: dict[Any, float] = {(r["kind"], r["stage"], r["mb"]): r["end"] for r in items.to_dict("records")}
    sent: dict[Any, float] = {(r["kind"], r["target"], r["mb"]): r["end"] for r in transfers.to_dict("records")}
    pulled = transfers.loc[transfers["kind"] == "weights", "end"].tolist()
    found = []
    for stage in range(int(c.P[0])):
        kinds, numbers, live, fullest = memory.memory_curve(c, 0, stage, model, filtered=filtered)
        weights = iter(pulled)
        times = [0.0]
        for kind, mb in zip(kinds.tolist(), numbers.tolist(), strict=True):
            if kind <= memory.F_LATER:
                times.append(done["f", stage, mb])
            elif kind <= memory.B_LAST:
                times.append(done["b", stage, mb])
            elif kind in (memory.ACTIVATION_IN, memory.ACTIVATION_OUT):
                times.append(sent["activation", stage + (kind == memory.ACTIVATION_OUT), mb])
            elif kind in (memory.GRADIENT_IN, memory.GRADIENT_OUT):
                times.append(sent["gradient", stage - (kind == memory.GRADIENT_OUT), mb])
            else:
                label = sent.get(("label", int(c.P[0]) - 1, mb), times[-1])
                times.append(label if kind == memory.LABEL_OUT else next(weights, times[-1]))
        found.append(pd.DataFrame({"stage": stage, "time": times, "live": live, "fullest": [live[0], *fullest]}))
    return pd.concat(found, ignore_index=True)
