"""A measured step beside a predicted one: the same rows, their differences, and what explains the difference.

The rows of a measured step add up to its time, as the model's parts do. Where the trace does not tell two terms
apart, their rows are joined on both sides. The model's parts are of the slowest stage of the pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from engine.traces.terms import StepTerms

__all__ = ["StepBesideModel", "TermRow", "compare_step"]

NAMED_SHARE: Final = 0.01
"""Least share of the step that a difference must have to be named [dimensionless]. Source: stated by us."""
NAMED_SPREADS: Final = 3.0
"""Spreads of the steps by which a named difference exceeds zero [dimensionless]. Source: stated by us."""
UNKNOWN_SHARE: Final = 0.01
"""Share of the step from which communication of unknown groups joins the rows of all groups [dimensionless]. Source:
stated by us."""


class TermRow(NamedTuple):
    """A row of both steps: its name, and times [s]."""

    name: str
    measured_s: float
    predicted_s: float

    @property
    def difference_s(self) -> float:
        """Measured less predicted time [s]."""
        return self.measured_s - self.predicted_s


class _SharedRow(NamedTuple):
    """Parts of a trace, and statistics of the cost model, that are the same; what to try where it takes longer."""

    name: str
    terms: tuple[str, ...]
    statistics: tuple[str, ...]
    advice: str


_FORWARD: Final = _SharedRow(
    "Forward pass",
    ("forward",),
    ("fw_time",),
    "Kernels take longer than predicted: look at the longest ones, at fused kernels and datatypes that are not used, "
    "and at clocks under the power limit.",
)
_BACKWARD: Final = _SharedRow("Backward pass", ("backward",), ("bw_time",), _FORWARD.advice)
_RECOMPUTATION: Final = _SharedRow(
    "Recomputation",
    ("recomputation",),
    ("recompute_time",),
    "More is recomputed than the execution says: compare its recomputation with the launch file.",
)
_GROUPS: Final = (
    _SharedRow(
        "Tensor-parallel communication",
        ("tensor communication",),
        ("tp_comm_exposed_time", "recomm_exposed_time"),
        "Overlap it with products (user buffers, asynchronous all-gather), and see that the group stays within NVLink.",
    ),
    _SharedRow(
        "Context-parallel communication",
        ("context communication",),
        ("cp_comm_exposed_time",),
        "Try another exchange of keys and values, and see that the group stays within NVLink.",
    ),
    _SharedRow(
        "Expert-parallel communication",
        ("expert communication",),
        ("ep_comm_exposed_time",),
        "Try another dispatcher, overlap with the shared expert or the other microbatch, and look at the load of the "
        "experts.",
    ),
    _SharedRow(
        "Pipeline communication",
        ("pipeline communication",),
        ("pp_comm_exposed_time",),
        "It waits for the neighbouring stage: look at the balance of the stages, and at the overlap of sends.",
    ),
    _SharedRow(
        "Data-parallel communication",
        ("data communication",),
        ("dp_comm_exposed_time",),
        "Overlap the reduction of gradients and the gathering of weights, and look at the size of the buckets.",
    ),
)
_OPTIMIZER: Final = _SharedRow(
    "Optimizer", ("optimizer",), ("optim_step_time",), "Use a fused optimizer, and shard its states."
)
_COPIES: Final = _SharedRow(
    "Copies to and from the host",
    ("copies",),
    ("fw_offload_exposed_time", "bw_offload_exposed_time"),
    "Copies block the device: pin memory, copy asynchronously, and look for values that the host reads in every step.",
)
_IDLE: Final = _SharedRow(
    "Idle: pipeline, host, slower ranks",
    ("host", "other idle time"),
    ("bubble_time", "overhead_time"),
    "",
)
_LATE_HOST: Final = (
    "The host launches too late: use CUDA graphs or compiled blocks, and look at data loading and garbage collection."
)
_WAITING: Final = "The device waits for other ranks: look at the balance of the stages and at the slowest rank."


@dataclass(frozen=True, slots=True)
class StepBesideModel:
    """A measured step and the predicted one. `sentences`: the difference and what explains it, the largest first."""

    measured_s: float
    predicted_s: float
    rows: tuple[TermRow, ...]
    sentences: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return times, rows and sentences as values of JSON."""
        return {
            "measured_s": self.measured_s,
            "predicted_s": self.predicted_s,
            "rows": [{**row._asdict(), "difference_s": row.difference_s} for row in self.rows],
            "sentences": list(self.sentences),
        }


def compare_step(step: StepTerms, predicted: Mapping[str, Any]) -> StepBesideModel:
    """Return a measured step beside the prediction for its execution.

    Args:
        step: of one rank.
        predicted: statistics of the execution by name [s], of a cost model whose parts of the step are columns.
    """
    listed = _rows_for(step)
    rows = tuple(
        TermRow(
            row.name,
            sum(step.parts_s.get(term, 0.0) for term in row.terms),
            sum(float(predicted.get(name) or 0.0) for name in row.statistics),
        )
        for row in listed
    )
    total = float(predicted["total_time"])
    kept = [(row, found) for row, found in zip(listed, rows, strict=True) if found.measured_s or found.predicted_s]
    sentences = _describe(step, total, kept)
    return StepBesideModel(step.window_s, total, tuple(found for _, found in kept), tuple(sentences))


def _rows_for(step: StepTerms) -> list[_SharedRow]:
    """Return the rows that the trace can tell apart, in the order of a step."""
    computing = [_FORWARD, _BACKWARD, _RECOMPUTATION]
    if step.parts_s.get("unknown phase", 0.0) > UNKNOWN_SHARE * step.window_s or "backward" not in step.parts_s:
        computing = [_join("Forward and backward pass", computing, "unknown phase")]
    elif "recomputation" not in step.parts_s:
        computing = [_FORWARD, _join("Backward pass and recomputation", [_BACKWARD, _RECOMPUTATION], "unknown phase")]
    else:
        computing[0] = _join(_FORWARD.name, [_FORWARD], "unknown phase")
    groups = list(_GROUPS)
    if step.parts_s.get("unknown communication", 0.0) > UNKNOWN_SHARE * step.window_s:
        groups = [_join("Communication of all groups", groups, "unknown communication")]
    else:
        groups[-1] = _join(groups[-1].name, groups[-1:], "unknown communication")
    return [*computing, *groups, _OPTIMIZER, _COPIES, _IDLE]


def _join(name: str, rows: Sequence[_SharedRow], *terms: str) -> _SharedRow:
    return _SharedRow(
        name,
        (*(term for row in rows for term in row.terms), *terms),
        tuple(statistic for row in rows for statistic in row.statistics),
        rows[0].advice if len(rows) < len(_GROUPS) else "Give groups names, so that traces tell which group waits.",
    )


def _describe(step: StepTerms, predicted_s: float, rows: Sequence[tuple[_SharedRow, TermRow]]) -> list[str]:
    difference = step.window_s - predicted_s
    steps = f"median of {step.num_steps}" if step.num_steps > 1 else "one step"
    longer = "longer" if difference > 0 else "shorter"
    sentences = [
        f"Step {_time(step.window_s)} measured ({steps}), {_time(predicted_s)} predicted: {_time(abs(difference))} "
        f"{longer} ({abs(difference) / predicted_s:.0%})."
    ]
    least = step.window_s * max(NAMED_SHARE, NAMED_SPREADS * step.spread)
    named = sorted(
        ((row, found) for row, found in rows if abs(found.difference_s) > least),
        key=lambda each: -abs(each[1].difference_s),
    )
    for row, found in named:
        apart = "longer" if found.difference_s > 0 else "shorter"
        said = (
            f"{row.name}: {_time(abs(found.difference_s))} {apart} "
            f"({_time(found.measured_s)} against {_time(found.predicted_s)})."
        )
        if found.difference_s > 0:
            advice = _advice_on_idle(step) if row is _IDLE else row.advice
            said += f" {advice}"
        sentences.append(said)
    if not named:
        sentences.append(f"No row differs by more than {_time(least)}, which is what the steps allow to tell.")
    return sentences


def _advice_on_idle(step: StepTerms) -> str:
    host, other = step.parts_s.get("host", 0.0), step.parts_s.get("other idle time", 0.0)
    return _LATE_HOST if host > other else _WAITING


def _time(seconds: float) -> str:
    """Return a time with four digits and its unit."""
    rounded = float(f"{seconds:.4g}")
    for scale, unit in ((1.0, "s"), (1e3, "ms")):
        if rounded * scale >= 1.0:
            return f"{rounded * scale:,.4g} {unit}"
    return f"{rounded * 1e6:,.4g} µs"
