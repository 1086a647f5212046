"""Reductions of every row that an exploration sees: the best per cell, the spread of executions, and reasons why cells
fail.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from engine.columns import HEADLINE_OF_ANY, by_name, headline_of
from engine.cost_models.contract import PreparedCells
from engine.executions import reasons
from engine.executions.arrays import Floats, Ints
from engine.executions.sentences import excess
from engine.space.rows import RowChunk
from engine.space.space import Space

__all__ = ["Reductions"]


PRIMARY = "sample_rate"

BINS_PER_OCTAVE = 16
_OCTAVES = 64
NO_ID = -1
_MEMORY = ("lacking_tier1", "lacking_tier2", "alone_tier1", "alone_tier2")
"""Column names, in the store, of the memory that cells lack."""


@dataclass(slots=True)
class Reductions:
    """Running reductions over the executions of a space.

    `value` [metrics, cells] is the best of each headline metric in each cell (NaN where nothing is feasible) and `id`
    an execution that reaches it; for the sample rate it is the first enumerated of equal ones. `feasible` [cells];
    `rejected` [cells, reasons + 1]. `lacking` is what the nearest execution of a cell that does not fit lacks of each
    memory tier [cells] ([bytes], inf where something runs or memory rejects nothing; NaN where it is not known, see
    `from_tables`), `alone` how much more of either tier would do without more of the other (inf where none would).
    `spread` counts executions by step time, in sixteenths of an octave.
    """

    space: Space
    value: Floats
    id: Ints
    feasible: Ints
    rejected: Ints
    lacking: tuple[Floats, Floats]
    alone: tuple[Floats, Floats]
    spread: Ints

    @classmethod
    def empty(cls, space: Space) -> Reductions:
        """Returns the reductions before anything was seen."""
        cells, metrics = len(space.cells), len(headline_of(space.cost_model))
        return cls(
            space=space,
            value=np.full((metrics, cells), np.nan),
            id=np.full((metrics, cells), NO_ID),
            feasible=np.zeros(cells, np.int64),
            rejected=np.zeros((cells, len(reasons.REASONS) + 1), np.int64),
            lacking=(np.full(cells, np.inf), np.full(cells, np.inf)),
            alone=(np.full(cells, np.inf), np.full(cells, np.inf)),
            spread=np.zeros(2 * _OCTAVES * BINS_PER_OCTAVE, np.int64),
        )

    def reject(self, prepared: PreparedCells) -> None:
        """Counts what was rejected when cells were prepared."""
        numbers = prepared.cells.number
        self.rejected[numbers] += prepared.rejected.counts
        self.measure(prepared)

    def measure(self, prepared: PreparedCells) -> None:
        """Takes over what the nearest executions of prepared cells lack."""
        found = (*prepared.rejected.lacking, *prepared.rejected.alone)
        for kept, new in zip((*self.lacking, *self.alone), found, strict=True):
            kept[prepared.cells.number] = new

    @property
    def unmeasured(self) -> npt.NDArray[np.bool_]:
        """Cells of which it is not known what their nearest execution lacks [cells]; an older store did not keep it."""
        return np.isnan(self.lacking[0]) | np.isnan(self.alone[0])

    def add(self, prepared: PreparedCells, rows: RowChunk) -> None:
        """Takes in the executions of evaluated rows."""
        if not len(rows.cell):
            return
        numbers = prepared.cells.number
        every = _find_cell_bounds(rows.cell)
        self._improve(tuple(rows.metrics), rows.metrics, self._any_id(rows), numbers[rows.cell[every[0]]], *every)
        for variant in rows.variants:
            cell = rows.cell if variant.rows is None else rows.cell[variant.rows]
            starts, ends = every if variant.rows is None else _find_cell_bounds(cell)
            cells = numbers[cell[starts]]
            self._improve(tuple(variant.metrics), variant.metrics, variant.ids, cells, starts, ends)
            self.feasible[cells] += ends - starts
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
        for kept, new in zip((*self.lacking, *self.alone), (*other.lacking, *other.alone), strict=True):
            np.minimum(kept, new, out=kept)  # at least one of the two is inf

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
        starts: npt.NDArray[np.intp],
        ends: npt.NDArray[np.intp],
    ) -> None:
        """Replaces the best of the cells where their rows, each from a start to an end, hold something better."""
        best = np.array([_REDUCE[name].reduceat(figures[name], starts) for name in names])
        metrics = np.array([_POSITION[name] for name in names])
        known = self.value[metrics[:, None], cells]
        sign = _SIGN[metrics][:, None]
        better = ~(best * sign >= known * sign)  # true also where nothing is known yet
        if PRIMARY in names:
            better[names.index(PRIMARY)] |= (best == known)[names.index(PRIMARY)]
        for which, position in zip(*(found.tolist() for found in np.nonzero(better)), strict=True):
            name, metric, cell = names[which], int(metrics[which]), int(cells[position])
            value, here = best[which, position], slice(starts[position], ends[position])
            found = int(ids[here][figures[name][here] == value].min())
            if value == known[which, position]:
                found = min(found, int(self.id[metric, cell]))
            self.value[metric, cell] = value
            self.id[metric, cell] = found

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics, in the order of `value`."""
        return tuple(column.name for column in headline_of(self.space.cost_model))

    def infeasible_by_reason(self) -> dict[str, int]:
        """Returns the rejected executions by reason code, most frequent first."""
        totals = self.rejected.sum(axis=0)
        found = {reasons.code_of(number): int(totals[number]) for number in np.flatnonzero(totals).tolist()}
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def best(self, metric: str = PRIMARY) -> tuple[int, float] | None:
        """Returns (id, value) of the best execution; of equal ones the first enumerated. None when nothing is
        feasible."""
        values = self.value[_POSITION[metric]]
        if np.isnan(values).all():
            return None
        top = np.nanmax(values) if _HIGHER[_POSITION[metric]] else np.nanmin(values)
        return int(self.id[_POSITION[metric]][values == top].min()), float(top)

    def by_cell(self, metric: str) -> pd.DataFrame:
        """Returns one row per cell: degrees, batch, counts, the best value and its id, and why nothing fits where
        nothing does.

        `reason` is, for a cell without feasible executions, the obstacle nearest to being overcome: memory if any
        execution got as far as the memory check, otherwise the most frequent one. `shortfall_bytes` is then how much
        memory the nearest execution lacks, in both tiers together; `shortfall_hbm_bytes` and `shortfall_host_bytes` are
        its parts. With that much more of either, that execution runs; with less in all, none does. `hbm_alone_bytes`
        and `host_alone_bytes` are how much more of one memory would do without more of the other, NaN where none would.
        """
        if metric not in self.metrics:
            by_name(metric)
            raise ValueError(f"{metric} is not a headline metric; choose one of {', '.join(self.metrics)}.")
        cells, column = self.space.cells, _POSITION[metric]
        position, (first, second) = self._obstacles()
        codes = [reasons.code_of(number) for number in position.tolist()]
        totals = self.feasible + self.rejected.sum(axis=1)
        return pd.DataFrame(
            {
                "tensor_par": [cell.tensor_par for cell in cells],
                "pipeline_par": [cell.pipeline_par for cell in cells],
                "data_par": [cell.data_par for cell in cells],
                "context_par": [cell.context_par for cell in cells],
                "expert_par": [cell.expert_par for cell in cells],
                "expert_tensor_par": [cell.expert_tensor_par for cell in cells],
                "batch_size": [cell.batch_size for cell in cells],
                "total": totals,
                "feasible": self.feasible,
                "value": self.value[column],
                "id": self.id[column],
                "reason": pd.array(codes, dtype="str"),
                "reason_text": pd.array(self._obstacle_texts(codes, first, second, self.rejected), dtype="str"),
                "shortfall_bytes": first + second,
                "shortfall_hbm_bytes": first,
                "shortfall_host_bytes": second,
                "hbm_alone_bytes": np.where(np.isfinite(first), _or_nan(self.alone[0]), np.nan),
                "host_alone_bytes": np.where(np.isfinite(first), _or_nan(self.alone[1]), np.nan),
            }
        )

    def _obstacles(self) -> tuple[npt.NDArray[np.int64], tuple[Floats, Floats]]:
        """(reason number, memory lacking of either tier [bytes] or NaN) per cell; 0 where something is feasible."""
        number = np.where(self.feasible > 0, 0, np.argmax(self.rejected[:, 1:], axis=1) + 1)
        first, second = (np.where((self.feasible == 0) & np.isfinite(part), part, np.nan) for part in self.lacking)
        number[first + second > 0] = reasons.number_of("memory_tier2")
        number[first > 0] = reasons.number_of("memory_tier1")  # as where an execution overflows both
        return number, (first, second)

    def by_pair(self, metric: str) -> pd.DataFrame:
        """Return one row per pair of tensor and pipeline degrees, with the columns of `by_cell`.

        A pair stands for all of its cells: the best of their values, the sum of their counts, and the nearest of their
        obstacles; degrees and batch belong to the cell of that value.
        """
        cells = self.by_cell(metric)
        degrees = ["tensor_par", "pipeline_par"]
        if not cells.duplicated(degrees).any():
            return cells
        sign = _SIGN[_POSITION[metric]]
        ordered = cells.assign(
            rank=(sign * cells["value"]).fillna(np.inf), miss=cells["shortfall_bytes"].fillna(np.inf)
        ).sort_values(["rank", "miss"], kind="stable")
        pairs = ordered.groupby(degrees, sort=True)
        merged = pairs.first(skipna=False).reset_index().drop(columns=["rank", "miss"])
        for names, together in ((["total", "feasible"], "sum"), (["hbm_alone_bytes", "host_alone_bytes"], "min")):
            merged[names] = pairs[names].agg(together).to_numpy()
        rejected = np.zeros((len(merged), self.rejected.shape[1]), np.int64)
        np.add.at(rejected, cells.groupby(degrees, sort=True).ngroup().to_numpy(), self.rejected)
        hbm, host = (merged[f"shortfall_{name}_bytes"].to_numpy(float) for name in ("hbm", "host"))
        most = np.where(merged["feasible"] > 0, 0, np.argmax(rejected[:, 1:], axis=1) + 1)
        memory = merged["shortfall_bytes"] > 0
        codes = [
            code if short else reasons.code_of(number)
            for code, short, number in zip(merged["reason"], memory, most.tolist(), strict=True)
        ]
        merged["reason"] = pd.array(codes, dtype="str")
        merged["reason_text"] = pd.array(self._obstacle_texts(codes, hbm, host, rejected), dtype="str")
        return merged

    def _obstacle_texts(self, codes: list[str], first: Floats, second: Floats, counts: Ints) -> list[str]:
        """Return the reason why nothing runs, a sentence per row of `counts` [rows, reasons + 1]; empty if something
        runs.
        """
        texts = []
        system = self.space.system
        lacking = zip(first.tolist(), second.tolist(), strict=True)
        for code, (hbm, host), rejected in zip(codes, lacking, counts.tolist(), strict=True):
            if not code:
                texts.append("")
            elif hbm + host > 0:
                tiers = (("HBM", system.mem1.capacity_gib, hbm), ("host memory", system.mem2.capacity_gib, host))
                needs = ", and ".join(_too_much(*tier) for tier in tiers if tier[2] > 0)
                both = f" ({excess((hbm + host) / 2**30, 0.0)['short']} in all)" if hbm > 0 and host > 0 else ""
                texts.append(f"None of {sum(rejected):,} executions runs: the nearest needs {needs}{both}.")
            else:
                count = rejected[reasons.number_of(code)]
                texts.append(f"{reasons.BY_CODE[code].label}: {count:,} of {sum(rejected):,} executions.")
        return texts

    def step_times(self) -> pd.DataFrame:
        """Return the distribution of feasible executions over step times.

        Returns:
            A row per bin that is not empty: `low` and `high` [s], and `count`, the executions in it.
        """
        bins = np.flatnonzero(self.spread)
        octave, sixteenth = np.divmod(bins, BINS_PER_OCTAVE)
        scale = 2.0 ** (octave - _OCTAVES)
        low = scale * (1.0 + sixteenth / BINS_PER_OCTAVE)
        return pd.DataFrame({"low": low, "high": low + scale / BINS_PER_OCTAVE, "count": self.spread[bins]})

    def to_tables(self) -> dict[str, pa.Table]:
        """Returns the reductions as Arrow tables, for the store."""
        cells = {name: self.value[position] for position, name in enumerate(self.metrics)}
        cells |= {f"{name}_id": self.id[position] for position, name in enumerate(self.metrics)}
        cells |= {"feasible": self.feasible, **dict(zip(_MEMORY, (*self.lacking, *self.alone), strict=True))}
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
        """Return the reductions from the tables of `to_tables`, of this version or an earlier one.

        Earlier versions kept the smallest overshoot of each tier by itself: of different executions, so it does not
        show what would let one run. The lacking memory is unknown then.
        """
        result = cls.empty(space)
        cells = tables["cells"]
        for position, name in enumerate(result.metrics):
            result.value[position] = cells[name].to_numpy()
            result.id[position] = cells[f"{name}_id"].to_numpy()
        result.feasible[:] = cells["feasible"].to_numpy()
        for kept, name in zip((*result.lacking, *result.alone), _MEMORY, strict=True):
            kept[:] = cells[name].to_numpy() if name in cells.column_names else math.nan
            kept[result.feasible > 0] = np.inf
        rejected = tables["rejected"]
        numbers = [reasons.number_of(code) for code in rejected["reason"].to_pylist()]
        result.rejected[rejected["cell"].to_numpy(), np.array(numbers, np.int64)] = rejected["count"].to_numpy()
        result.spread[tables["step_times"]["bin"].to_numpy()] = tables["step_times"]["count"].to_numpy()
        return result


_EVERY = [column.name for column in HEADLINE_OF_ANY]
_POSITION = {name: position for position, name in enumerate(_EVERY)}
_HIGHER = [by_name(name).better == "higher" for name in _EVERY]
_SIGN = np.where(_HIGHER, -1.0, 1.0)  # with it, lower is better for every metric
_REDUCE = {name: np.maximum if higher else np.minimum for name, higher in zip(_EVERY, _HIGHER, strict=True)}


def _or_nan(values: Floats) -> Floats:
    """The values with NaN in the place of infinite ones."""
    return np.where(np.isfinite(values), values, np.nan)


def _too_much(kind: str, have: float, lacking: float) -> str:
    """Return the need of an execution for a kind of memory, such as "80.6 GiB of HBM where a GPU has 80.0 GiB, 614 MiB
    too much".

    Args:
        kind: name of the memory.
        have: capacity [GiB].
        lacking: shortfall [bytes].
    """
    amounts = excess(have + lacking / 2**30, have)
    return f"{amounts['need']} of {kind} where a GPU has {amounts['have']}, {amounts['short']} too much"


def _find_cell_bounds(cell: Ints) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the begin and end of each cell in ascending cell numbers [rows]; there must be at least one row."""
    bounds = np.concatenate(([0], np.flatnonzero(cell[1:] != cell[:-1]) + 1, [len(cell)]))
    return bounds[:-1], bounds[1:]
