"""Tables of prediction errors: per set, per source, per hardware; Calculon's beside."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from engine.validation.ranking import layout_groups, ranking
from engine.validation.selection import defective, reported, sets_of

__all__ = ["ERROR_COLUMNS", "error_statistics", "error_table", "memory_table", "source_family"]

ERROR_COLUMNS = ("rows", "mean", "median", "p90", "bias", "within_10", "tau", "regret", "layout_groups")
"""Statistics of |predicted / measured - 1|: mean, median, 90th percentile, median of the signed error, share within
10 %; Kendall's tau and regret within groups of layouts. Errors in percent."""


def source_family(source: pd.Series) -> pd.Series:
    """Returns the source without its release or paper: "NVIDIA dgxc-benchmarking v25.02" and v25.04 are one.

    Args:
        source: what the runs name as their source [rows].
    """
    names = source.astype(str).str.replace(r"[ (]+(?:v?\d\d\.\d.*|\d{4}\.\d.*)$", "", regex=True)
    return names.str.replace(r" \([^)]*,$", "", regex=True)  # what is left of "(conference, paper)"


def error_statistics(
    predicted: npt.NDArray[np.float64],
    measured: npt.NDArray[np.float64],
    group: npt.NDArray[np.int64],
    batch: npt.NDArray[np.float64],
) -> dict[str, float]:
    """Returns `ERROR_COLUMNS` of some rows; rows without prediction or measurement do not count.

    Args:
        predicted, measured: step times [s].
        group: layout groups.
        batch: samples per step, for ranking by time per sample.
    """
    keep = np.isfinite(predicted) & np.isfinite(measured)
    error = predicted[keep] / measured[keep] - 1.0
    if len(error) == 0:
        return {"rows": 0.0} | dict.fromkeys(ERROR_COLUMNS[1:], float("nan"))
    size = np.abs(error)
    order = ranking((predicted / batch)[keep], (measured / batch)[keep], group[keep])
    return {
        "rows": float(len(error)),
        "mean": 100.0 * float(size.mean()),
        "median": 100.0 * float(np.median(size)),
        "p90": 100.0 * float(np.quantile(size, 0.9)),
        "bias": 100.0 * float(np.median(error)),
        "within_10": 100.0 * float(np.mean(size <= 0.1)),
        "tau": order.tau,
        "regret": 100.0 * order.regret,
        "layout_groups": float(order.groups),
    }


def error_table(table: pd.DataFrame, predictions: pd.DataFrame) -> pd.DataFrame:
    """Returns the errors per set, per source, per hardware, and per source and hardware.

    Args:
        table: typed runs.
        predictions: what `validate` returned for them, with Calculon's column or without.

    Returns:
        `kind` (set, source, hardware, source and hardware), `name`, `ERROR_COLUMNS`, `unsupported` (rows without
        prediction), and where there is Calculon's column its rows, mean, median, bias, tau and regret, prefixed
        `calculon_`, with `same_rows_mean`: our mean error on its rows.
    """
    chosen = reported(table)
    groups, batch = layout_groups(table), table["gbs"].to_numpy(np.float64)
    measured = predictions["measured_step_time_s"].to_numpy(np.float64)
    source = source_family(table["source"])
    hardware = table["hardware"].astype(str)
    parts: list[tuple[str, str, npt.NDArray[np.bool_]]] = [
        ("set", name, rows & chosen) for name, rows in sets_of(table, ~defective(table)).items()
    ]
    vtrain = source.str.startswith("vTrain").to_numpy(bool)
    for kind, names in (
        ("source", source),
        ("hardware", hardware.where(~vtrain, "A100-80GB-SXM (vTrain)")),
        ("source and hardware", source + ", " + hardware),
    ):
        parts += [(kind, str(name), (names == name).to_numpy(bool) & chosen) for name in sorted(set(names[chosen]))]
    rows = []
    for kind, name, mask in parts:
        if not mask.any():
            continue
        predicted = predictions["predicted_step_time_s"].to_numpy(np.float64)
        row: dict[str, Any] = {"kind": kind, "name": name}
        row |= error_statistics(predicted[mask], measured[mask], groups[mask], batch[mask])
        row["unsupported"] = float(np.sum(predictions["status"].to_numpy(object)[mask] != "predicted"))
        if "calculon_step_time_s" in predictions:
            row |= _compare_calculon(
                predictions["calculon_step_time_s"].to_numpy(np.float64), predicted, measured, groups, batch, mask
            )
        rows.append(row)
    return pd.DataFrame(rows)


def _compare_calculon(
    calculon: npt.NDArray[np.float64],
    predicted: npt.NDArray[np.float64],
    measured: npt.NDArray[np.float64],
    groups: npt.NDArray[np.int64],
    batch: npt.NDArray[np.float64],
    mask: npt.NDArray[np.bool_],
) -> dict[str, float]:
    both = mask & np.isfinite(calculon)
    theirs = error_statistics(calculon[both], measured[both], groups[both], batch[both])
    ours = error_statistics(predicted[both], measured[both], groups[both], batch[both])
    names = ("rows", "mean", "median", "bias", "tau", "regret")
    return {f"calculon_{name}": theirs[name] for name in names} | {
        "same_rows_mean": ours["mean"],
        "same_rows_tau": ours["tau"],
    }


def memory_table(table: pd.DataFrame, predictions: pd.DataFrame) -> pd.DataFrame:
    """Returns the errors of predicted memory per source: rows, mean, median, largest, bias [%].

    Args:
        table: typed runs [rows].
        predictions: what `validate` returned for them.
    """
    chosen = reported(table)
    error = predictions["memory_error"].to_numpy(np.float64)
    source = source_family(table["source"])
    found = []
    for name in sorted(set(source)):
        part = error[chosen & (source == name).to_numpy(bool) & np.isfinite(error)]
        if len(part):
            size = 100.0 * np.abs(part)
            found.append(
                {
                    "name": name,
                    "rows": len(part),
                    "mean": size.mean(),
                    "median": np.median(size),
                    "largest": size.max(),
                    "bias": 100.0 * np.median(part),
                }
            )
    return pd.DataFrame(found, columns=["name", "rows", "mean", "median", "largest", "bias"])
