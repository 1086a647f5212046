"""The points of designs: each one proven optimum, as rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from engine.codesign.design_space import Design
from engine.codesign.errors import StudyCancelled
from engine.codesign.study import Study
from engine.executions.arrays import Floats, Ints
from engine.executions.work_sizes import work_sizes
from engine.exploration.proven_optimum import best_of
from engine.exploration.result import Exploration
from engine.exploration.run import ExplorationTooLarge, explore_into
from engine.scenarios.scenario import Scenario
from engine.store.query import Rows
from engine.whatif.kept import Kept
from engine.whatif.prepared_spaces import AnyReadySpace, layout_key, ready
from engine.whatif.search import searchable

__all__ = ["EXPLORED", "FIELDS_KEPT", "LARGEST_SEARCHED", "STATUSES", "row_schema", "rows_of"]

STATUSES: Final = ("ok", "infeasible", "problem", "skipped")
"""Outcomes of a point; see `row_schema`."""

LARGEST_SEARCHED: Final = 2_000_000_000
"""Executions of the space of a point beyond which it is a problem: some minutes of work."""

FIELDS_KEPT: Final = (
    "tensor_par",
    "pipeline_par",
    "data_par",
    "batch_size",
    "microbatch_size",
    "pipeline_interleaving",
)
"""Fields of the best execution in a row; its id implies the others."""

EXPLORED: Final = ("executions", "median_samples_per_s", "p90_samples_per_s", "no_offload_samples_per_s")
"""Results of a point that only a whole exploration has: executions of its space, median and 90th percentile of the rate
of feasible executions [samples/s], and the best rate without offloading [samples/s]; absent if none runs."""

_OFFLOADS: Final = ("weight_offload", "activations_offload", "optimizer_offload")

EXECUTIONS_REMEMBERED: Final = 4_096
"""Executions kept in memory by their scenario and number. Source: stated by us."""


def row_schema(study: Study) -> pa.Schema:
    """Return the columns of a part.

    `status` is "ok", "infeasible" if nothing fits, "problem" if the scenario is invalid, with the reason, or "skipped"
    if bounds prove that the design loses; `bound` is then the highest rate that it can reach [samples/s]. For other
    points of a pruned study `bound` is a rate that neither they nor any worse design of their layout exceed. Studies of
    whole explorations also have the columns `EXPLORED`.

    Args:
        study: the study.
    """
    return pa.schema(
        [
            ("point", pa.int64()),
            ("status", pa.dictionary(pa.int8(), pa.string())),
            ("samples_per_s", pa.float64()),
            ("id", pa.int64()),
            ("feasible", pa.int64()),
            ("bound", pa.float64()),
            ("problem", pa.string()),
            *((name, pa.int32()) for name in FIELDS_KEPT),
            *((name, pa.float64()) for name in study.document.statistics),
            *((name, pa.float64()) for name in EXPLORED if study.document.evaluate == "exploration"),
        ],
        metadata={"study": study.key},
    )


def rows_of(
    study: Study,
    numbers: Ints,
    skipped: Mapping[int, float] | None = None,
    cancel: Callable[[], bool] | None = None,
    models: Iterable[int] | None = None,
) -> pa.Table:
    """Returns the rows of designs, in order of their points' models and then of the designs.

    Args:
        study: the study.
        numbers: of designs.
        skipped: what points can reach at most that are proven to lose [samples/s], by their numbers.
        cancel: says, between two points, whether to stop, which raises `StudyCancelled`.
        models: places of the models; None for all.
    """
    lost = skipped or {}

    def row(number: int, model: int) -> dict[str, Any]:
        if cancel is not None and cancel():
            raise StudyCancelled("The search was stopped.")
        point = number * len(study.models) + model
        if point in lost:
            return {"point": point, "status": "skipped", "bound": lost[point]}
        return _build_row(study, study.design(number), model)

    chosen = range(len(study.models)) if models is None else models
    # Models are outermost, since the space of a layout is of one model.
    return as_table(study, (row(number, model) for model in chosen for number in numbers.tolist()))


def as_table(study: Study, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Returns rows as a table with the study's columns; what a row does not have is absent there.

    Args:
        study: the study.
        rows: values by column.
    """
    schema = row_schema(study)
    listed = list(rows)
    columns = [pa.array([row.get(field.name) for row in listed], field.type) for field in schema]
    return pa.table(columns, schema=schema)


def _build_row(study: Study, design: Design, model: int) -> dict[str, Any]:
    point = design.number * len(study.models) + model
    try:
        scenario = study.scenario_at(design, model)
        space = ready(scenario)
        if space is None:
            searchable(scenario, LARGEST_SEARCHED)
        found = _find_optimum(study, scenario, space)
    except ValueError as problem:  # every refusal of models, hardware and engine is one
        return {"point": point, "status": "problem", "problem": str(problem)}
    if found["id"] is None:
        return {"point": point, "status": "infeasible", "feasible": 0} | found
    return {"point": point, "status": "ok", **found}


def _find_optimum(study: Study, scenario: Scenario, space: AnyReadySpace | None) -> dict[str, Any]:
    """Return id, rate and count of a point, with the stored values of its best execution."""
    number: int | None
    bound: float | None = None
    known: dict[str, float] = {}
    if study.document.evaluate == "exploration":
        rows = _Rates()
        reductions, _ = explore_into(scenario, rows, workers=1)
        best = Exploration(scenario, reductions, {}, _no_rows).best or {}
        number, rate, feasible = best.get("id"), best.get("sample_rate", math.nan), int(reductions.feasible.sum())
        known = {"executions": float(scenario.space.total)} | rows.known
    elif space is None:
        optimum = best_of(scenario)
        number, rate, feasible = optimum.get("id"), optimum.get("sample_rate", math.nan), optimum.feasible
    else:
        found = space.best(scenario.system, watched=study.document.prune)
        number, rate, feasible = found.id, found.rate, found.feasible
        bound = found.reach if study.document.prune and found.id is not None else None
    if number is None:
        return {"id": None} | known
    fields = _execution_fields(scenario, space, number)
    kept: dict[str, Any] = {name: int(fields[name]) for name in FIELDS_KEPT}
    if study.document.statistics:
        own = None if space is None else space.space.on(scenario.system)
        whole = scenario.row(number, own)
        kept |= {name: float(whole[name]) for name in study.document.statistics}
    return {"id": int(number), "samples_per_s": float(rate), "feasible": int(feasible), "bound": bound, **kept, **known}


class _Rates:
    """Receiver of an exploration's rows that keeps only their rates, eight bytes each."""

    def __init__(self) -> None:
        self._rates: list[Floats] = []
        self._count = 0
        self._plain = -math.inf

    def append(self, rows: pa.Table) -> None:
        """Add rows. Raises `ExplorationTooLarge` beyond the limit of explorations in memory."""
        self._count += len(rows)
        if self._count > work_sizes().largest_in_memory:
            raise ExplorationTooLarge(
                f"More than {work_sizes().largest_in_memory:,} executions run, too many for a whole exploration of a "
                "point; limit some fields, or evaluate the optimum."
            )
        rates = rows["sample_rate"].to_numpy()
        offloads = [rows[name].to_numpy() for name in _OFFLOADS if name in rows.column_names]
        plain = rates[~np.logical_or.reduce(offloads)] if offloads else rates
        self._rates.append(rates)
        self._plain = max(self._plain, float(plain.max(initial=-math.inf)))

    def complete(self, **found: object) -> None:
        """Takes what else is found, which is known by the reductions."""

    @property
    def known(self) -> dict[str, float]:
        """Return the stored results of a point; empty if nothing runs."""
        if not self._rates:
            return {}
        median, high = np.quantile(np.concatenate(self._rates), (0.5, 0.9))
        best = {"no_offload_samples_per_s": self._plain} if math.isfinite(self._plain) else {}
        return {"median_samples_per_s": float(median), "p90_samples_per_s": float(high)} | best


def _no_rows() -> Rows:
    raise NotImplementedError("A point keeps no rows.")


def _execution_fields(scenario: Scenario, space: AnyReadySpace | None, number: int) -> Mapping[str, Any]:
    if space is None:
        return scenario.space.row(number)
    row = space.space.on(scenario.system).row
    key = layout_key(scenario), tuple(network.size for network in scenario.system.networks), number
    return _executions.get(key, lambda: row(number))


_executions: Kept[Mapping[str, Any]] = Kept(EXECUTIONS_REMEMBERED)
