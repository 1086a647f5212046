"""Constants of a machine for DistIR's cost model: as a document, fitted to measurements, and set against them.

Source of the fit: `dist_ir/executor/calibrate_simulator.py` of microsoft/dist-ir: times of matrix products on bytes,
operations and one; of transfers on gigabits and one; of all-reduces, per size of the group, on gigabits, devices, one.
Steps are ours: without a pipeline a step is linear in 1/F, 1/M, launches and 1/W, so they can be fitted, too.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.executions.arrays import Floats
from engine.reproductions.distir.simulator.configurations import Configurations, reasons, sentence, size
from engine.reproductions.distir.simulator.cost_models import LARGEST_GROUP, Allreduce, DistIRCostModel, revision_of
from engine.reproductions.distir.simulator.errors import ConfigurationError
from engine.reproductions.distir.simulator.evaluation import cost_model, evaluate
from engine.reproductions.distir.simulator.stages import durations

__all__ = [
    "MEASURED_CONSTANTS",
    "Constants",
    "agreement",
    "fit_kernels",
    "fit_steps",
    "load_constants",
    "measured_steps",
    "overlay",
    "parse_measured",
    "read_measured",
    "read_text_file",
]

Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Time = Annotated[float, Field(ge=0, allow_inf_nan=False)]
LARGEST_FILE: Final = 2_000_000
"""Largest file of measurements that is read [bytes]. Source: stated by us."""
STEP_COLUMNS: Final = {"world_size": "D", "num_layers": "layers", "batch_size": "batch", "hidden_dim": "width"}


class Constants(BaseModel):
    """Constants of a machine, as a JSON document; omitted ones are the revision's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    revision: str = "R3"
    flops: Rate | None = None
    """[FLOP/s]"""
    dram_bandwidth: Rate | None = None
    """[bytes/s]"""
    launch_overhead: Time | None = None
    """[s]"""
    bandwidth_gbps: Rate | None = None
    """Between devices [Gbps]."""
    allreduce: dict[int, tuple[Time, Time, Time]] = {}
    """Size of the group -> seconds per gigabit, per device, and per collective."""
    datatype_bytes: Annotated[int, Field(ge=1, le=8)] | None = None
    """Width of an element [bytes]."""

    def model(self) -> DistIRCostModel:
        """Returns the revision's cost model with these constants."""
        return cost_model(self.revision, **self.arguments())

    def arguments(self) -> dict[str, Any]:
        """Returns them as arguments of `grid`, but for revision and bandwidth."""
        given = {name: getattr(self, name) for name in ("flops", "dram_bandwidth", "launch_overhead", "datatype_bytes")}
        arguments = {name: value for name, value in given.items() if value is not None}
        if self.allreduce:
            arguments["allreduce"] = {number: Allreduce(*values) for number, values in self.allreduce.items()}
        return arguments


MEASURED_CONSTANTS: Final = Constants(revision="R2", flops=1.38e13, dram_bandwidth=7e11, bandwidth_gbps=77.0)
"""Constants with which the notebook at 83d7fc3 compared its 81 measured steps."""


def load_constants(document: str | Path | Mapping[str, Any]) -> Constants:
    """Returns the constants of a JSON file, of its text, or of a mapping.

    Args:
        document: path of a file, its text, or its content as a mapping.

    Raises ConfigurationError for a document that cannot be read, naming the field at fault.
    """
    if isinstance(document, Path):
        document = read_text_file(document)
    try:
        data = json.loads(document) if isinstance(document, str) else dict(document)
        found = Constants.model_validate(data)
    except RecursionError as error:
        raise ConfigurationError("The constants are nested too deeply to be read.") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the document"
        raise ConfigurationError(f"The constants cannot be read: {place[:60]}: {first['msg'].lower()}.") from error
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"The constants are no JSON object: {str(error)[:120]}.") from error
    revision_of(found.revision)
    for number in found.allreduce:
        if not 2 <= number <= LARGEST_GROUP or number & (number - 1):
            raise ConfigurationError(f"allreduce.{number}: groups are of 2, 4, 8, ... {LARGEST_GROUP:,} devices.")
    return found


def read_text_file(path: Path) -> str:
    """Return the text of a file of constants or measurements.

    Args:
        path: of a file of at most `LARGEST_FILE` bytes in UTF-8.

    Raises ConfigurationError for a file that is too large or cannot be read.
    """
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ConfigurationError(f"{path} is larger than {LARGEST_FILE:,} bytes.")
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not text in UTF-8.") from error
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}.") from error


def measured_steps() -> pd.DataFrame:
    """Returns the 81 measured steps of the notebook at 83d7fc3: D, layers, batch, width, seconds.

    Their source is in `data/SOURCES.md`.
    """
    file = resources.files("engine.reproductions.distir.simulator") / "data" / "measured.csv"
    with file.open(encoding="utf-8") as lines:
        return _parse_steps(pd.read_csv(lines), "measured.csv")


def read_measured(path: Path) -> tuple[str, pd.DataFrame]:
    """Returns ("steps" or "kernels", table) of a CSV file of measurements.

    Steps have the columns world_size, num_layers, batch_size, hidden_dim, real_ms, as the notebook wrote them. Kernels
    have op (matmul, send, allreduce), devices, rows, inner, columns and seconds; tensors are rows x columns, and the
    factors of a matmul rows x inner and inner x columns.

    Args:
        path: of a CSV file.

    Raises ConfigurationError for another kind of file, naming the row at fault.
    """
    return parse_measured(read_text_file(path), str(path))


def parse_measured(text: str, where: str = "The measurements") -> tuple[str, pd.DataFrame]:
    """Return ("steps" or "kernels", table) of the text of a CSV file of measurements; see `read_measured`.

    Args:
        text: content of the file.
        where: name of the file in messages.

    Raises ConfigurationError for another kind of file, naming the row at fault.
    """
    try:
        table = pd.read_csv(io.StringIO(text), sep=None, engine="python", skipinitialspace=True, on_bad_lines="error")
    except (pd.errors.ParserError, pd.errors.EmptyDataError, csv.Error, ValueError) as error:
        raise ConfigurationError(f"{where} is no table: {str(error).splitlines()[0][:120]}.") from error
    if "real_ms" in table:
        return "steps", _parse_steps(table, where)
    if "op" in table and "seconds" in table:
        return "kernels", _parse_kernels(table, where)
    raise ConfigurationError(
        f"{where} has neither real_ms (measured steps) nor op and seconds (measured kernels) among its columns."
    )


def _parse_positive_column(
    table: pd.DataFrame, name: str, where: str, rows: pd.Series | None = None, *, whole: bool = True
) -> Floats:
    """A column of positive numbers."""
    if name not in table:
        raise ConfigurationError(f"{where} has no column {name}.")
    values = pd.to_numeric(table[name], errors="coerce").to_numpy(np.float64)
    wrong = ~(np.isfinite(values) & (values > 0)) | (whole & (values != np.floor(values)))
    if rows is not None:
        wrong &= rows.to_numpy()
    if wrong.any():
        line = int(np.flatnonzero(wrong)[0])
        kind = "whole number of at least 1" if whole else "number above 0"
        raise ConfigurationError(
            f"{where}, line {line + 2}: {name} is {str(table[name].iloc[line])[:40]}, not a {kind}."
        )
    return values


def _parse_steps(table: pd.DataFrame, where: str) -> pd.DataFrame:
    if not len(table):
        raise ConfigurationError(f"{where} has no rows.")
    columns = {
        ours: _parse_positive_column(table, theirs, where).astype(np.int64) for theirs, ours in STEP_COLUMNS.items()
    }
    return pd.DataFrame(columns | {"seconds": _parse_positive_column(table, "real_ms", where, whole=False) / 1e3})


def _parse_kernels(table: pd.DataFrame, where: str) -> pd.DataFrame:
    unknown = ~table["op"].isin(["matmul", "send", "allreduce"])
    if unknown.any() or not len(table):
        line = int(np.flatnonzero(unknown)[0]) if len(table) else 0
        shown = str(table["op"].iloc[line])[:40] if len(table) else "missing"
        raise ConfigurationError(f"{where}, line {line + 2}: op is {shown}; it must be matmul, send or allreduce.")
    result = pd.DataFrame({"op": table["op"].astype(str)})
    for name, ops in (("rows", None), ("columns", None), ("inner", "matmul"), ("devices", "allreduce")):
        needed = None if ops is None else table["op"] == ops
        if needed is None or needed.any():
            result[name] = _parse_positive_column(table, name, where, needed)
    result["seconds"] = _parse_positive_column(table, "seconds", where, whole=False)
    return result


def _build_configurations(steps: pd.DataFrame) -> Configurations:
    one = np.ones(len(steps), np.int64)
    columns = {name: steps[name].to_numpy(np.int64) for name in STEP_COLUMNS.values()}
    for name in ("width", "layers", "batch"):
        for value in columns[name].tolist():
            size(name, value)
    c = Configurations(
        D=columns["D"], H=one, P=one, m=one, width=columns["width"], layers=columns["layers"], batch=columns["batch"]
    )
    for row, code in enumerate(reasons(c)):
        if code:
            numbers = {name: int(getattr(c, name)[row]) for name in c.__slots__}
            raise ConfigurationError(f"Measured row {row + 1}: " + sentence(code, numbers | {"share": 0}))
    return c


def overlay(steps: pd.DataFrame, constants: Constants = MEASURED_CONSTANTS) -> pd.DataFrame:
    """Returns measured steps of data parallelism with `simulated` [s], weights in place.

    Args:
        steps: as `measured_steps` returns them.
        constants: of the machine.

    Raises ConfigurationError where the constants have no bandwidth, and for a step that cannot run.
    """
    c = _build_configurations(steps)
    bandwidth = 1.0 if constants.bandwidth_gbps is None else constants.bandwidth_gbps
    if constants.bandwidth_gbps is None and (c.D > 1).any():
        raise ConfigurationError("The constants lack bandwidth_gbps, which steps on several devices need.")
    found = evaluate(steps, c, constants.model(), bandwidth, filtered=True, untransformed=True)
    return steps.assign(simulated=found["latency"])


def agreement(table: pd.DataFrame) -> pd.DataFrame:
    """Returns how simulated steps agree with measured ones, per number of devices and for all.

    Columns: devices ("all" last), rows; Pearson's and Spearman's correlation of throughput, as the notebook has them,
    and of times; mean absolute error [s] and percentage error [%]; bias, the mean of simulated less measured [s], and
    the median of simulated over measured.

    Args:
        table: with D, seconds, simulated.
    """
    rows = []
    groups = [(str(devices), table["D"] == devices) for devices in sorted(table["D"].unique())]
    for name, where in (*groups, ("all", table["D"] > 0)):
        measured, simulated = (table.loc[where, column] for column in ("seconds", "simulated"))
        error, rates = simulated - measured, [table.loc[where, "batch"] / times for times in (measured, simulated)]
        rows.append(
            {
                "devices": name,
                "rows": len(error),
                "pearson": _pearson_correlation(*rates),
                "spearman": _pearson_correlation(rates[0].rank(), rates[1].rank()),
                "pearson_time": _pearson_correlation(measured, simulated),
                "spearman_time": _pearson_correlation(measured.rank(), simulated.rank()),
                "mean_absolute_error": error.abs().mean(),
                "mean_absolute_percentage_error": 100.0 * (error / measured).abs().mean(),
                "bias": error.mean(),
                "median_ratio": (simulated / measured).median(),
            }
        )
    return pd.DataFrame(rows)


def _pearson_correlation(x: pd.Series, y: pd.Series) -> float:
    """Pearson's; NaN where one of them does not vary."""
    if len(x) < 2 or x.nunique() < 2 or y.nunique() < 2:
        return float("nan")
    return float(np.corrcoef(x.to_numpy(np.float64), y.to_numpy(np.float64))[0, 1])


def fit_steps(steps: pd.DataFrame, revision: str = "R2", *, relative: bool = True) -> Constants:
    """Returns the constants with which steps of data parallelism come nearest to those measured.

    A step is linear in 1/F, 1/M, k0 and 1/W: each column of the fit is the step of a machine on which only that counts.

    Args:
        steps: as `measured_steps` returns them.
        revision: whose formulas.
        relative: weighs every row by its time, so that short steps count as much as long ones.

    Constants that the steps do not determine, because their best value is no time at all, are left out.
    """
    c, model = _build_configurations(steps), revision_of(revision)
    never = 1e300
    nothing = replace(model, flops=never, dram_bandwidth=never, launch_overhead=0.0)
    machines = (
        (replace(nothing, flops=1.0), never),
        (replace(nothing, dram_bandwidth=1.0), never),
        (replace(nothing, launch_overhead=1.0 if model.streamed_elementwise else 0.0), never),
        (replace(nothing, bytes_per_gigabit=1.0), 1.0),
    )
    columns = []
    for machine, bandwidth in machines:
        parts = durations(c, 1, machine, bandwidth, filtered=True, single=False)
        columns.append((parts.forward + parts.backward + parts.end)[0] + parts.loss)
    matrix, target = np.stack(columns, axis=1), steps["seconds"].to_numpy(np.float64)
    weight = 1.0 / target if relative else np.ones(len(target))
    x = _fit_non_negative(matrix * weight[:, None], target * weight)
    return Constants(
        revision=revision,
        flops=_invert_rate(x[0]),
        dram_bandwidth=_invert_rate(x[1]),
        launch_overhead=float(x[2]) if model.streamed_elementwise else None,
        bandwidth_gbps=_invert_rate(x[3] * model.bytes_per_gigabit),
    )


def fit_kernels(kernels: pd.DataFrame, *, element_bytes: int = 4) -> Constants:
    """Returns R3's constants from times of single operations, as DistIR calibrates them.

    Args:
        kernels: as `read_measured` returns them; operations without a row leave their constants out.
        element_bytes: of the tensors.
    """
    model = revision_of("R3")
    found: dict[str, Any] = {}
    rows, columns, seconds = (kernels[name].to_numpy(np.float64) for name in ("rows", "columns", "seconds"))
    gigabits = element_bytes * rows * columns / model.bytes_per_gigabit
    at = (kernels["op"] == "matmul").to_numpy()
    if at.any():
        inner = kernels["inner"].to_numpy(np.float64)[at]
        read = element_bytes * (rows[at] * inner + inner * columns[at])
        matrix = np.stack([read, 2.0 * rows[at] * inner * columns[at], np.ones(len(inner))], axis=1)
        x = _fit_non_negative(matrix, seconds[at])
        found |= {"dram_bandwidth": _invert_rate(x[0]), "flops": _invert_rate(x[1]), "launch_overhead": float(x[2])}
    at = (kernels["op"] == "send").to_numpy()
    if at.any():
        x = _fit_non_negative(np.stack([gigabits[at], np.ones(at.sum())], axis=1), seconds[at])
        found["bandwidth_gbps"] = _invert_rate(x[0])
    at = (kernels["op"] == "allreduce").to_numpy()
    if at.any():
        devices = kernels["devices"].to_numpy(np.float64)
        groups = {}
        for number in sorted(set(devices[at].tolist())):
            mine = at & (devices == number)
            ones = np.ones(mine.sum())
            x = _fit_non_negative(np.stack([gigabits[mine], number * ones, ones], axis=1), seconds[mine])
            groups[int(number)] = (float(x[0]), float(x[1]), float(x[2]))
        found["allreduce"] = groups
    return load_constants({"revision": "R3", **{name: value for name, value in found.items() if value is not None}})


def _fit_non_negative(matrix: Floats, target: Floats) -> Floats:
    """Return the x without negative elements that minimises |matrix x - target| [columns].

    Columns differ by many orders of magnitude and are scaled to one length first. Raises ConfigurationError where
    the search does not end.
    """
    from scipy.optimize import nnls  # slow to import, and only fits need it

    length = np.linalg.norm(matrix, axis=0)
    length[length == 0] = 1.0
    try:
        return np.asarray(nnls(matrix / length, target, maxiter=10 * matrix.shape[1])[0] / length, np.float64)
    except RuntimeError as error:
        raise ConfigurationError("The measurements determine no constants; give more of different sizes.") from error


def _invert_rate(value: float) -> float | None:
    """A rate from what one unit takes; None where it takes no time."""
    return 1.0 / float(value) if value > 0 else None
