"""What an exploration keeps of every row it sees: the best per cell, how executions spread, why cells fail."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from engine import reasons
from engine.columns import HEADLINE, by_name, headline_of
from engine.cost_models import AnyPlan
from engine.space import Space
from engine.steps import RowChunk

__all__ = ["METRICS", "Reductions"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

METRICS: tuple[str, ...] = tuple(column.name for column in HEADLINE)
"""Headline metrics of the exact cost model; another may have more, which come after these."""
PRIMARY = "sample_rate"

BINS_PER_OCTAVE = 16
_OCTAVES = 64
NO_ID = -1


@dataclass(slots=True)
class Reductions:
    """Running reductions over the executions of a space.

    `value` [metrics, cells] is the best of each headline metric in each cell (NaN where nothing is feasible) and `id`
    an execution that reaches it; for the sample rate it is the first enumerated of equal ones. `feasible` [cells];
    `rejected` [cells, reasons + 1]; `excess` the smallest overshoot of each memory tier [cells] ([bytes], inf without).
    `spread` counts executions by step time, in sixteenths of an octave.
    """

    space: Space
    value: Floats
    id: Ints
    feasible: Ints
    rejected: Ints
    excess: tuple[Floats, Floats]
    spread: Ints

    @classmethod
    def empty(cls, space: Space) -> Reductions:
        """Before anything was seen."""
        cells, metrics = len(space.cells), len(headline_of(space.cost_model))
        return cls(
            space=space,
            value=np.full((metrics, cells), np.nan),
            id=np.full((metrics, cells), NO_ID),
            feasible=np.zeros(cells, np.int64),
            rejected=np.zeros((cells, len(reasons.REASONS) + 1), np.int64),
            excess=(np.full(cells, np.inf), np.full(cells, np.inf)),
            spread=np.zeros(2 * _OCTAVES * BINS_PER_OCTAVE, np.int64),
        )

    def reject(self, plan: AnyPlan) -> None:
        """Counts what a plan rejected."""
        numbers = plan.cells.number
        self.rejected[numbers] += plan.rejected.counts
        for kept, new in zip(self.excess, plan.rejected.excess, strict=True):
            kept[numbers] = np.minimum(kept[numbers], new)

    def add(self, plan: AnyPlan, rows: RowChunk) -> None:
        """Takes in the executions of evaluated rows."""
        if not len(rows.cell):
            return
        numbers = plan.cells.number
        cuts = _cuts(rows.cell)
        self._improve(tuple(rows.metrics), rows.metrics, self._any_id(rows), numbers[rows.cell[cuts]], cuts)
        for variant in rows.variants:
            cell = rows.cell if variant.rows is None else rows.cell[variant.rows]
            cuts = _cuts(cell)
            cells = numbers[cell[cuts]]
            self._improve(tuple(variant.metrics), variant.metrics, variant.ids, cells, cuts)
            self.feasible[cells] += np.diff(np.append(cuts, len(cell)))
            # The upper bits of a positive float64 are its octave and its sixteenth within it.
            sixteenth = (variant.metrics["total_time"].view(np.int64) >> 48) - (1023 - _OCTAVES) * BINS_PER_OCTAVE
            counts = np.bincount(np.clip(sixteenth, 0, len(self.spread) - 1))
            self.spread[: len(counts)] += counts

    def merge(self, other: Reductions) -> None:
        """Takes in the reductions of other cells of the same space."""
        sign = _SIGN[: len(self.value), None]
        with np.errstate(invalid="ignore"):
            better = ~np.isnan(other.value) & ~(self.value * sign <= other.value * sign)
        self.value[better], self.id[better] = other.value[better], other.id[better]
        self.feasible += other.feasible
        self.rejected += other.rejected
        self.spread += other.spread
        for kept, new in zip(self.excess, other.excess, strict=True):
            np.minimum(kept, new, out=kept)

    def _any_id(self, rows: RowChunk) -> Ints:
        """An id for each row: of the first variant that it has."""
        result = np.full(len(rows.cell), NO_ID)
        for variant in reversed(rows.variants):
            result[slice(None) if variant.rows is None else variant.rows] = variant.ids
        return result

    def _improve(
        self,
        names: tuple[str, ...],
        figures: dict[str, Floats],
        ids: Ints,
        cells: Ints,
        cuts: npt.NDArray[np.intp],
    ) -> None:
        """Replaces the best of the cells where these rows, cut into cells, hold something better."""
        best = np.array([_REDUCE[name].reduceat(figures[name], cuts) for name in names])
        metrics = np.array([_POSITION[name] for name in names])
        known = self.value[np.ix_(metrics, cells)]
        sign = _SIGN[metrics][:, None]
        better = ~(best * sign >= known * sign)  # true also where nothing is known yet
        if PRIMARY in names:
            better[names.index(PRIMARY)] |= (best == known)[names.index(PRIMARY)]
        ends = np.append(cuts[1:], len(ids))
        for which, position in zip(*(found.tolist() for found in np.nonzero(better)), strict=True):
            name, metric, cell = names[which], int(metrics[which]), int(cells[position])
            value, start = best[which, position], int(cuts[position])
            here = start + np.flatnonzero(figures[name][start : int(ends[position])] == value)
            found = int(ids[here].min())
            if value == known[which, position]:
                found = min(found, int(self.id[metric, cell]))
            self.value[metric, cell] = value
            self.id[metric, cell] = found

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics, in the order of `value`."""
        return tuple(column.name for column in headline_of(self.space.cost_model))

    def infeasible_by_reason(self) -> dict[str, int]:
        """Rejected executions by reason code, most frequent first."""
        totals = self.rejected.sum(axis=0)
        found = {reasons.code_of(number): int(totals[number]) for number in np.flatnonzero(totals).tolist()}
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def best(self, metric: str = PRIMARY) -> tuple[int, float] | None:
        """(id, value) of the best execution; of equal ones the first enumerated. None when nothing is feasible."""
        values = self.value[_POSITION[metric]]
        if np.isnan(values).all():
            return None
        top = np.nanmax(values) if _HIGHER[_POSITION[metric]] else np.nanmin(values)
        return int(self.id[_POSITION[metric]][values == top].min()), float(top)

    def by_cell(self, metric: str) -> pd.DataFrame:
        """One row per cell: degrees, batch, counts, the best value and its id, and why nothing fits where nothing does.

        `reason` is, for a cell without feasible executions, the obstacle nearest to being overcome: memory if any
        execution got as far as the memory check, otherwise the most frequent one. `shortfall_bytes` is then how much
        memory its least demanding execution lacks.
        """
        if metric not in self.metrics:
            by_name(metric)
            raise ValueError(f"{metric} is not a headline metric; choose one of {', '.join(self.metrics)}.")
        cells, column = self.space.cells, _POSITION[metric]
        position, shortfall = self._obstacles()
        codes = [reasons.code_of(number) for number in position.tolist()]
        totals = self.feasible + self.rejected.sum(axis=1)
        return pd.DataFrame(
            {
                "tensor_par": [cell.tensor_par for cell in cells],
                "pipeline_par": [cell.pipeline_par for cell in cells],
                "data_par": [cell.data_par for cell in cells],
                "batch_size": [cell.batch_size for cell in cells],
                "total": totals,
                "feasible": self.feasible,
                "value": self.value[column],
                "id": self.id[column],
                "reason": pd.array(codes, dtype="str"),
                "reason_text": pd.array(self._obstacle_texts(codes, shortfall), dtype="str"),
                "shortfall_bytes": shortfall,
            }
        )

    def _obstacles(self) -> tuple[npt.NDArray[np.int64], Floats]:
        """(reason number, memory lacking [bytes] or NaN) per cell; 0 where something is feasible."""
        number = np.where(self.feasible > 0, 0, np.argmax(self.rejected[:, 1:], axis=1) + 1)
        shortfall = np.full(len(number), np.nan)
        # A tier-2 overshoot got past tier 1, so it is nearer.
        for code, excess in (("memory_tier1", self.excess[0]), ("memory_tier2", self.excess[1])):
            reached = (self.feasible == 0) & np.isfinite(excess)
            number[reached] = reasons.number_of(code)
            shortfall[reached] = excess[reached]
        return number, shortfall

    def _obstacle_texts(self, codes: list[str], shortfall: Floats) -> list[str]:
        texts = []
        capacity = {"memory_tier1": self.space.system.mem1, "memory_tier2": self.space.system.mem2}
        for code, lacking, rejected in zip(codes, shortfall.tolist(), self.rejected.tolist(), strict=True):
            if not code:
                texts.append("")
            elif code in capacity:
                have, short = capacity[code].capacity_gib, lacking / 2**30
                kind = "HBM" if code == "memory_tier1" else "host memory"
                texts.append(
                    f"None of {sum(rejected):,} executions runs: the nearest needs {have + short:,.1f} GiB of the "
                    f"{f'{have:,.1f}'.removesuffix('.0')} GiB of {kind}, "
                    f"{f'{short:,.1f}' if short >= 0.05 else 'under 0.1'} GiB too much."
                )
            else:
                count = rejected[reasons.number_of(code)]
                texts.append(f"{reasons.BY_CODE[code].label}: {count:,} of {sum(rejected):,} executions.")
        return texts

    def step_times(self) -> pd.DataFrame:
        """How feasible executions spread over step times: `low`, `high` [s] of each bin that is not empty, `count`."""
        bins = np.flatnonzero(self.spread)
        octave, sixteenth = np.divmod(bins, BINS_PER_OCTAVE)
        scale = 2.0 ** (octave - _OCTAVES)
        low = scale * (1.0 + sixteenth / BINS_PER_OCTAVE)
        return pd.DataFrame({"low": low, "high": low + scale / BINS_PER_OCTAVE, "count": self.spread[bins]})

    def to_tables(self) -> dict[str, pa.Table]:
        """As Arrow tables, for the store."""
        cells = {name: self.value[position] for position, name in enumerate(self.metrics)}
        cells |= {f"{name}_id": self.id[position] for position, name in enumerate(self.metrics)}
        cells |= {"feasible": self.feasible, "excess_tier1": self.excess[0], "excess_tier2": self.excess[1]}
        cell, number = np.nonzero(self.rejected)
        return {
            "cells": pa.table(cells),
            "rejected": pa.table(
                {
                    "cell": cell,
                    "reason": [reasons.code_of(item) for item in number.tolist()],
                    "count": self.rejected[cell, number],
                }
            ),
            "step_times": pa.table({"bin": np.flatnonzero(self.spread), "count": self.spread[self.spread > 0]}),
        }

    @classmethod
    def from_tables(cls, space: Space, tables: dict[str, pa.Table]) -> Reductions:
        """From what `to_tables` gave."""
        result = cls.empty(space)
        cells = tables["cells"]
        for position, name in enumerate(result.metrics):
            result.value[position] = cells[name].to_numpy()
            result.id[position] = cells[f"{name}_id"].to_numpy()
        result.feasible[:] = cells["feasible"].to_numpy()
        for kept, name in zip(result.excess, ("excess_tier1", "excess_tier2"), strict=True):
            kept[:] = cells[name].to_numpy()
        rejected = tables["rejected"]
        numbers = [reasons.number_of(code) for code in rejected["reason"].to_pylist()]
        result.rejected[rejected["cell"].to_numpy(), np.array(numbers, np.int64)] = rejected["count"].to_numpy()
        result.spread[tables["step_times"]["bin"].to_numpy()] = tables["step_times"]["count"].to_numpy()
        return result


_EVERY = [column.name for column in headline_of("calibrated")]
_POSITION = {name: position for position, name in enumerate(_EVERY)}
_HIGHER = [by_name(name).better == "higher" for name in _EVERY]
_SIGN = np.where(_HIGHER, -1.0, 1.0)  # with it, lower is better for every metric
_REDUCE = {name: np.maximum if higher else np.minimum for name, higher in zip(_EVERY, _HIGHER, strict=True)}


def _cuts(cell: Ints) -> npt.NDArray[np.intp]:
    """Where a new cell begins in ascending cell numbers [rows]; the first row included."""
    return np.concatenate(([0], np.flatnonzero(np.diff(cell)) + 1))
