"""Changes of predictions by group of the surface, and of errors by group of measured runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

import hardware
import models
from engine.cost_models.calibrated import OFFLOADS, aspects, kind_words
from engine.validation.mapping import Mapped
from engine.validation.predict import measured_seconds
from engine.validation.regression.evaluation import UNKNOWN_FIELD, UNKNOWN_MODEL
from engine.validation.regression.predictions import KEY, GatePredictions
from engine.validation.regression.surface import SurfacePart, generation_title, layer_titles
from engine.validation.selection import defective, reported, sets_of
from hardware import GIB

__all__ = [
    "FEWEST_RUNS",
    "LOST_PREDICTIONS",
    "RUNS_REFUSED",
    "WorseGroup",
    "compare_errors",
    "compare_executions",
    "count_gone",
    "find_worse_groups",
    "summarize_changes",
]

CHANGED = 1e-4
"""Relative change from which a prediction counts as changed."""
UNKNOWN = (UNKNOWN_MODEL, UNKNOWN_FIELD)
FEWEST_RUNS = 10
"""Runs of a group from which its mean error is judged; with fewer it is shown only."""
RUNS_REFUSED = "runs that ran, predicted not to fit [% of runs]"
LOST_PREDICTIONS = "measured runs that lost their prediction"
Rows = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class WorseGroup:
    """A group of measured runs whose mean error grew by more than is stated."""

    group: str
    up_to: float
    """Mean error of which the statement would suffice [%], or the number of runs that lost their prediction."""
    sentence: str


def compare_executions(before: pd.DataFrame, now: pd.DataFrame) -> pd.DataFrame:
    """Return the executions of one revision next to their predictions by an earlier one.

    Args:
        before, now: `surface` of `GatePredictions` of two revisions.

    Returns:
        The rows of `now` with the predictions of before (`outcome_before`, `seconds_before`, `gib_before`), `is_new`
        (the earlier revision does not have it), `has_other_outcome` (it runs in one revision only), `has_changed` (by
        more than 0.01 %), and `time` and `memory`, the changes of step time and memory [%]; NaN without one.
    """
    joined = now.merge(before, on=list(KEY), how="left", suffixes=("", "_before"))
    old, new = joined["outcome_before"], joined["outcome"]
    joined["is_new"] = old.isna() | old.isin(UNKNOWN)
    joined["has_other_outcome"] = ~joined["is_new"] & ((old == "ok") != (new == "ok"))
    for name, column in (("time", "seconds"), ("memory", "gib")):
        joined[name] = 100.0 * (joined[column] / joined[f"{column}_before"] - 1.0)
    joined["has_changed"] = (joined[["time", "memory"]].abs() > 100.0 * CHANGED).any(axis=1)
    return joined


def count_gone(before: pd.DataFrame, now: pd.DataFrame) -> int:
    """Return the number of executions that only the earlier revision predicts, as of a model that was removed.

    Args:
        before, now: `surface` of `GatePredictions` of two revisions.
    """
    known = before[~before["outcome"].isin(UNKNOWN)]
    return len(pd.MultiIndex.from_frame(known[list(KEY)]).difference(pd.MultiIndex.from_frame(now[list(KEY)])))


def summarize_changes(parts: Sequence[SurfacePart], changes: pd.DataFrame) -> pd.DataFrame:
    """Return the changes of predictions by group of executions.

    Args:
        parts: what `build_surface` returned.
        changes: what `compare_executions` returned for its executions.

    Returns:
        One row per group: `grouping`, `group`, `executions`, and of these the numbers of `new`, other `outcomes` and
        `changed`, the `median` and `largest` change of the step time, and `memory`, the largest change of memory [%].
    """
    time, memory = (changes[name].to_numpy(np.float64) for name in ("time", "memory"))
    records = [
        {
            "grouping": grouping,
            "group": group,
            "executions": int(rows.sum()),
            "new": int(changes["is_new"].to_numpy()[rows].sum()),
            "outcomes": int(changes["has_other_outcome"].to_numpy()[rows].sum()),
            "changed": int(changes["has_changed"].to_numpy()[rows].sum()),
            "median": _median(time[rows & np.isfinite(time)]),
            "largest": _largest(time[rows & np.isfinite(time)]),
            "memory": _largest(memory[rows & np.isfinite(memory)]),
        }
        for grouping, group, rows in _group_executions(parts)
    ]
    return pd.DataFrame(records)


def _median(values: npt.NDArray[np.float64]) -> float:
    return float(np.median(values)) if len(values) else float("nan")


def _largest(values: npt.NDArray[np.float64]) -> float:
    """Return the value that is farthest from 0; NaN without values."""
    return float(values[np.argmax(np.abs(values))]) if len(values) else float("nan")


def _group_executions(parts: Sequence[SurfacePart]) -> Iterator[tuple[str, str, Rows]]:
    """Yield the groups of a surface: what groups them, the name of a group, its executions."""
    titles = {name: layer_titles(models.load(name)) for name in {part.model for part in parts}}
    generations = {name: generation_title(hardware.load(name)) for name in {part.system for part in parts}}
    words: dict[str, list[Sequence[str]]] = {}
    for part in parts:
        for execution, change in zip(part.executions, part.changes, strict=True):
            layers = titles[part.model]
            for grouping, named in (
                ("all", ["all executions"]),
                ("model", [kind_words("experts" in layers)]),
                ("layer", layers),
                ("generation", [generations[part.system] or "not recorded"]),
                ("layout", [part.layout]),
                ("datatype", [execution["datatype"]]),
                ("schedule", [execution["schedule"]] if "schedule" in execution else []),
                ("varied field", [change] if change else []),
            ):
                words.setdefault(grouping, []).append(named)
    for grouping, rows in words.items():
        for group in dict.fromkeys(name for each in rows for name in each):
            yield grouping, group, np.array([group in each for each in rows], bool)


def compare_errors(mapped: Mapped, before: GatePredictions, now: GatePredictions) -> pd.DataFrame:
    """Return the mean errors of predicted step times of two revisions by group of measured runs.

    Errors count the runs of `selection.reported` that both revisions predict, so that more predictions do not change
    an error.

    Args:
        mapped: measured runs as the cost model reads them [runs].
        before, now: predictions of two revisions for these runs.

    Returns:
        One row per group: `group`, `runs` (predicted by both), `gained` and `lost` (predicted by one), `before` and
        `after`, the mean errors [%], `all` (mean error of all runs predicted now [%]), `median` and `largest` change of
        the prediction [%]. Groups named "memory, ..." have the errors of memory instead. The last row has, as if they
        were errors, the share of runs that do not fit.
    """
    measured = measured_seconds(mapped)
    old, new = (_align(predictions.runs, mapped) for predictions in (before, now))
    counted = reported(mapped.table) & ~defective(mapped.table) & np.isfinite(_fill(measured, mapped))
    records = []
    for group, rows in _group_runs(mapped):
        records.append(_compare_group(group, rows & counted, measured, old["seconds"], new["seconds"]))
    held = mapped.table["mem_gib"].to_numpy(np.float64)
    for group, rows in sets_of(mapped.table, ~defective(mapped.table)).items():
        has_memory = rows & reported(mapped.table) & np.isfinite(held)
        records.append(_compare_group(f"memory, {group}", has_memory, held, old["gib"], new["gib"]))
    capacity = np.broadcast_to(mapped.case.accelerator.capacity, measured.shape) / GIB
    refused = {"before": old["gib"] > capacity, "after": new["gib"] > capacity}
    both = counted & np.isfinite(old["gib"]) & np.isfinite(new["gib"])
    records.append(
        {"group": RUNS_REFUSED, "runs": int(both.sum())}
        | {name: 100.0 * float(np.mean(rows[both])) if both.any() else float("nan") for name, rows in refused.items()}
    )
    found = pd.DataFrame(records)
    found[["gained", "lost"]] = found[["gained", "lost"]].fillna(0).astype(int)
    return found[(found["runs"] > 0) | (found["gained"] > 0) | (found["lost"] > 0)].reset_index(drop=True)


def _fill(measured: npt.NDArray[np.float64], mapped: Mapped) -> npt.NDArray[np.float64]:
    """Return the measured seconds, and 1 where only a rate was measured of a run that is not predicted now."""
    rate = mapped.table["tokens_per_s_per_gpu"].to_numpy(np.float64)
    return np.where(np.isnan(measured) & np.isfinite(rate), 1.0, measured)


def _align(runs: pd.DataFrame, mapped: Mapped) -> dict[str, npt.NDArray[np.float64]]:
    """Return predicted seconds and memory in the order of the measured runs; NaN of runs without a prediction."""
    found = runs.drop_duplicates("id").set_index("id").reindex(mapped.table["id"])
    predicted = (found["status"] == "predicted").to_numpy(bool)
    names = {"seconds": "predicted_step_time_s", "gib": "predicted_mem_gib"}
    return {key: np.where(predicted, found[name].to_numpy(np.float64), np.nan) for key, name in names.items()}


def _compare_group(
    group: str,
    rows: Rows,
    measured: npt.NDArray[np.float64],
    before: npt.NDArray[np.float64],
    after: npt.NDArray[np.float64],
) -> dict[str, Any]:
    was, is_now = np.isfinite(before), np.isfinite(after)
    both = rows & was & is_now
    errors = [100.0 * np.abs(each / measured - 1.0) for each in (before, after)]
    change = 100.0 * (after[both] / before[both] - 1.0)
    every = rows & is_now
    return {
        "group": group,
        "runs": int(both.sum()),
        "gained": int((rows & ~was & is_now).sum()),
        "lost": int((rows & was & ~is_now).sum()),
        "before": float(errors[0][both].mean()) if both.any() else float("nan"),
        "after": float(errors[1][both].mean()) if both.any() else float("nan"),
        "all": float(errors[1][every].mean()) if every.any() else float("nan"),
        "median": _median(change),
        "largest": _largest(change),
    }


def _group_runs(mapped: Mapped) -> Iterator[tuple[str, Rows]]:
    """Yield the sets of measured runs, then the runs that share a property."""
    yield from sets_of(mapped.table, ~defective(mapped.table)).items()
    for words in aspects(mapped.case, dict.fromkeys(OFFLOADS, False), len(mapped.table)).values():
        for word in dict.fromkeys(words.tolist()):
            if word:
                # Rows that are not predicted have placeholders in place of their properties.
                yield word, (words == word) & mapped.supported


def find_worse_groups(errors: pd.DataFrame, worse: float, stated: Mapping[str, float]) -> list[WorseGroup]:
    """Return the groups whose mean error grew by more than is stated, and the loss of predictions.

    A statement is a mean error that the group may reach, so that it is used up once the error has been accepted: the
    next growth needs another one.

    Args:
        errors: what `compare_errors` returned.
        worse: growth of a mean error that is allowed in any group [percentage points].
        stated: mean error that a group may reach [%], by group, and the number of `LOST_PREDICTIONS`.
    """
    found = []
    for row in errors.to_dict("records"):
        group, before, after = str(row["group"]), float(row["before"]), float(row["after"])
        limit = max(before + worse, stated.get(group, 0.0))
        if row["runs"] >= FEWEST_RUNS and after > limit:
            sentence = f"{group}: {before:.2f} -> {after:.2f} % ({after - before:+.2f} points); limit {limit:.2f} %."
            found.append(WorseGroup(group, math.ceil(10.0 * after) / 10.0, sentence))
    lost, limit = int(errors["lost"].max()) if len(errors) else 0, stated.get(LOST_PREDICTIONS, 0.0)
    if lost > limit:
        sentence = f"{LOST_PREDICTIONS}: {lost}; limit {limit:.0f}."
        found.append(WorseGroup(LOST_PREDICTIONS, float(lost), sentence))
    return found
