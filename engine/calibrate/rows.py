"""Check of measured runs for a fit: accepted rows, and the reason why each other row is refused, in one sentence.

Rows are mapped as the validation maps them. Beyond its reasons, a row is refused if it has no measurement, ran on
another accelerator, has two contradicting measurements, or a time so far from any prediction that its unit must be
wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from engine.calibrate.reading import MeasuredRuns
from engine.calibrate.template import EXAMPLE
from engine.cost_models.calibrated import Case, Parameters, step_times, system_named
from engine.executions.arrays import Floats
from engine.validation.mapping import NEEDED, Mapped, map_runs
from engine.validation.model_flops import explain_unread_rates
from engine.validation.predict import measured_seconds
from engine.validation.reading import Runs
from hardware import System

__all__ = ["FURTHER_REASONS", "CheckedRuns", "check"]

FURTHER_REASONS: Final = {
    "example_row": "The row is the template's example.",
    "no_measurement": "The run ended without a measured step.",
    "other_hardware": "The run is of another accelerator.",
    "contradiction": "Two measurements of the row contradict each other.",
    "wrong_unit": "The measured time is so far from the expected one that its unit must be wrong.",
}
"""Codes beyond `engine.validation.REASONS`, with their meaning."""

FARTHEST: Final = 20.0
"""Ratio between measured and predicted time from which a row is refused; badly tuned runs reach five. Source: stated by
us."""
CONTRADICTION: Final = 0.05
"""Difference between two measurements of one row from which it is refused; published rows differ by up to 0.1 %."""


@dataclass(frozen=True, slots=True)
class CheckedRuns:
    """Measured runs, sorted into accepted and refused; arrays and tuples are [rows].

    `measured`: seconds per step, NaN where not known. `expected`: predicted by the calibration that a fit starts from,
    NaN where unsupported. `reason`: "" where accepted, else a code with its sentence in `reason_text`. `missing`: the
    needed fields that a row lacks.
    """

    system: System
    mapped: Mapped
    labels: tuple[str, ...]
    remarks: tuple[str, ...]
    measured: Floats
    expected: Floats
    reason: npt.NDArray[np.object_]
    reason_text: npt.NDArray[np.object_]
    missing: tuple[tuple[str, ...], ...]

    @property
    def accepted(self) -> npt.NDArray[np.bool_]:
        """Mask of the rows that a fit uses [rows]."""
        return np.asarray(self.reason == "", bool)

    @property
    def table(self) -> pd.DataFrame:
        """The runs as they were read."""
        return self.mapped.table

    def case(self) -> Case:
        """Returns what the cost model reads of the accepted rows."""
        return self.mapped.case.take(np.flatnonzero(self.accepted))


def check(measured: MeasuredRuns, system: System, start: Parameters) -> CheckedRuns:
    """Check runs for a fit on a system. Never raises because of a cell's content.

    Args:
        measured: the runs.
        system: the system that they ran on.
        start: parameters that a fit starts from.
    """
    runs = measured.runs
    given = [str(name) for name in runs.table["hardware"]]
    accelerator = system.accelerator
    word = accelerator.name if accelerator is not None else system.name
    table = runs.table.assign(hardware=word)
    mapped = map_runs(Runs(table, runs.faults), {word: system})
    expectable = mapped
    if (mapped.reason == "implausible_measurement").any():
        # The expected time does not depend on the measured one, however far off that is.
        unmeasured = table.assign(step_time_s=np.nan, tokens_per_s_per_gpu=np.nan, tflops_per_gpu=np.nan)
        expectable = map_runs(Runs(unmeasured, runs.faults), {word: system})
    expected = np.where(expectable.supported, step_times(expectable.case, start).step, np.nan)
    given_time = table["step_time_s"].to_numpy(np.float64)
    seconds = measured_seconds(replace(expectable, table=table))
    by_rate = measured_seconds(replace(expectable, table=table.assign(step_time_s=np.nan)))
    reason, text = mapped.reason.copy(), mapped.reason_text.copy()

    def refuse(code: str, tell: Callable[[int], str], over: Collection[str] = ("",)) -> None:
        """Refuse the rows with a message, in place of the reasons `over`."""
        for row in range(len(reason)):
            if (not over or reason[row] in over) and (sentence := tell(row)):
                reason[row], text[row] = code, sentence

    refuse("other_hardware", lambda row: _describe_other_accelerator(given[row], system), over=())
    refuse("example_row", lambda row: _refuse_example(str(table["id"].iloc[row])), over=())
    refuse("no_measurement", lambda row: _refuse_failed(str(table["status"].iloc[row])), over=())
    unread = explain_unread_rates(table)
    refuse("missing_field", lambda row: f"{unread[row]}." if unread[row] else "")
    refuse(
        "missing_field", lambda row: "" if seconds[row] == seconds[row] else _refuse_unmeasured(measured.remarks[row])
    )
    refuse("contradiction", lambda row: _refuse_contradiction(float(given_time[row]), float(by_rate[row])))
    refuse(
        "wrong_unit",
        lambda row: _wrong_unit(float(seconds[row]), float(expected[row]), bool(np.isnan(given_time[row]))),
        over=("", "implausible_measurement"),
    )
    return CheckedRuns(
        system, mapped, measured.labels, measured.remarks, seconds, expected, reason, text, _list_missing(table)
    )


def _describe_other_accelerator(given: str, system: System) -> str:
    """Return the mismatch of the accelerator that a row names, "" if it matches."""
    ours = _accelerator_name(system)
    word = given.strip().lower()
    if word in ("", system.name.lower(), ours.lower()):
        return ""
    found = system_named(word)
    if found is None:
        return f"{given[:60]!r} is not the accelerator of {system.name}; leave hardware empty or name {ours}."
    if _accelerator_name(found) == ours:
        return ""
    return f"The run is of {given[:60]}, the calibration of {ours}; calibrate each accelerator by itself."


def _accelerator_name(system: System) -> str:
    return system.accelerator.name if system.accelerator is not None else system.name


def _refuse_example(ident: str) -> str:
    return "This is the template's example row; it is no measurement." if ident.lower().startswith(EXAMPLE) else ""


def _refuse_failed(status: str) -> str:
    if status.lower() in ("", "ok"):
        return ""
    return f"Its status is {status[:40]!r}, so no step was measured; runs that ended well have ok or nothing."


def _refuse_unmeasured(remark: str) -> str:
    return (
        f"{remark}."
        if remark.startswith("The log has no line")
        else ("Not given: step_time_s, tokens_per_s_per_gpu, nor tflops_per_gpu with tflops_kind.")
    )


def _refuse_contradiction(seconds: float, by_rate: float) -> str:
    off = abs(seconds / by_rate - 1.0)
    if not off > CONTRADICTION:
        return ""
    return (
        f"step_time_s is {seconds:.4g}, but tokens_per_s_per_gpu means {by_rate:.4g} s per step; one of them, gbs or "
        "seq_len is wrong."
    )


def _wrong_unit(seconds: float, expected: float, by_rate: bool) -> str:
    ratio = seconds / expected
    if not (ratio > FARTHEST or ratio < 1.0 / FARTHEST):
        return ""
    field = "tokens_per_s_per_gpu" if by_rate else "step_time_s"
    size = f"{ratio:,.0f} times the" if ratio > 1 else f"1/{1 / ratio:,.0f} of the"
    thousand = 300 < max(ratio, 1 / ratio) < 3_000
    sentence = f"The measured {seconds:.4g} s per step is {size} expected {expected:.3g} s; check the unit of {field}"
    if thousand and not by_rate:
        return f"{sentence}, which is in seconds{', not milliseconds' if ratio > 1 else ''}."
    return f"{sentence}."


def _list_missing(table: pd.DataFrame) -> tuple[tuple[str, ...], ...]:
    """The needed fields that each row lacks."""
    lacks = {name: table[name].isna().to_numpy(bool) for name in NEEDED}
    lacks["dtype"] = (table["dtype"] == "").to_numpy(bool)
    lacks["num_gpus"] = (table["num_gpus"].isna() & table["dp"].isna()).to_numpy(bool)
    measured = table[["step_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu"]].notna().any(axis=1)
    lacks["step_time_s"] = ~measured.to_numpy(bool)
    return tuple(tuple(name for name, rows in lacks.items() if rows[row]) for row in range(len(table)))
