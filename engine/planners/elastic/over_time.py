"""Throughput over phases in which resources change, under the planner and under static strategies: figure 7."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from numbers import Real
from typing import Any, Final

import pandas as pd

from engine.planners.contract import PlanError
from engine.planners.elastic.best import CardLike
from engine.planners.elastic.cards import ModelCard, load_card
from engine.planners.elastic.enumeration import ResourceLimits, plan_table
from engine.planners.elastic.limits import checked_bandwidth, checked_threads
from engine.planners.elastic.measured import Measurements, measurements_of
from engine.planners.elastic.measured.csv_rows import csv_rows, csv_text, number
from engine.planners.elastic.performance.variants import PerformanceVariant, variant_of
from engine.planners.elastic.placements import gpus_on_nodes, placement_text
from engine.planners.elastic.plan_names import PlanName
from engine.planners.elastic.resource_curve import winners
from engine.planners.elastic.strategies import STATIC, ElasticStrategy, strategy_of
from models.documents import shown

__all__ = ["FIGURE_7", "PLANNER", "Phase", "Timeline", "phases_of", "timeline"]

PLANNER: Final = "Morphling"
"""Name of the planner's series, as in figure 7."""

BASES: Final = ("measured", "predicted")
MOST_PHASES: Final = 10_000
"""Most phases of a timeline. Source: stated by us."""


@dataclass(frozen=True, slots=True)
class Phase:
    """Resources for some time [s]: GPUs on each node, CPU threads per GPU, the limit of bandwidth between nodes. A
    phase without GPUs, such as an outage, has no nodes."""

    duration_s: float
    nodes: tuple[int, ...]
    cpu_threads: int = 1
    bandwidth: float = 0.0


FIGURE_7: Final = tuple(
    Phase(1800.0, nodes, threads) for nodes, threads in (((8,) * 4, 2), ((4,) * 4, 2), ((4,), 2), ((1,), 2), ((1,), 4))
)
"""The phases of figure 7: half an hour each."""


@dataclass(frozen=True)
class Timeline:
    """Throughput over time.

    `table` has one row per strategy and phase: `strategy`, `phase`, `start_s`, `end_s`, `paused_s`, `placement`,
    `cpu_threads`, `plan`, `iteration_s` and `throughput` [samples/s] on the requested basis, NaN and 0 where nothing
    runs, and `predicted_s` and `measured_s`, NaN where missing.
    """

    table: pd.DataFrame
    basis: str

    def series(self, column: str = "iteration_s") -> dict[str, list[float]]:
        """Returns one column of every strategy, phase by phase; where a plan does not run it is NaN, or 0 for rates.

        Args:
            column: of the table.
        """
        return {str(name): group[column].tolist() for name, group in self.table.groupby("strategy", sort=False)}

    def summary(self) -> pd.DataFrame:
        """Returns one row per strategy: its `mean` throughput over all time, pauses included [samples/s], `samples`,
        and `gain`, the planner's mean over it, less one; infinite where it runs nothing."""
        rows = []
        for name, group in self.table.groupby("strategy", sort=False):
            spans = group["end_s"] - group["start_s"]
            samples = float((group["throughput"] * (spans - group["paused_s"])).sum())
            rows.append({"strategy": name, "mean": samples / float(spans.sum()), "samples": samples})
        table = pd.DataFrame(rows)
        first = float(table["mean"].iloc[0])
        return table.assign(gain=[first / mean - 1 if mean else math.inf for mean in table["mean"]])

    def steps(self, strategy: str) -> tuple[list[float], list[float]]:
        """Returns times [s] and throughputs of a line with steps, pauses at zero.

        Args:
            strategy: of the table.
        """
        times: list[float] = []
        rates: list[float] = []
        for row in self.table[self.table["strategy"] == strategy].to_dict("records"):
            begin = row["start_s"] + row["paused_s"]
            if row["paused_s"] > 0:
                times += [row["start_s"], begin]
                rates += [0.0, 0.0]
            times += [begin, row["end_s"]]
            rates += [row["throughput"]] * 2
        return times, rates


def phases_of(given: Iterable[Phase | Mapping[str, Any] | Sequence[Any]] | pd.DataFrame | str) -> tuple[Phase, ...]:
    """Returns phases from phases, (seconds, placement, threads), rows with `duration_s`, `placement`, `cpu_threads` and
    `bandwidth`, a table, or a CSV file with these columns. A placement of 0 has no GPUs.

    Args:
        given: any of these.

    Raises `engine.planners.contract.PlanError` naming the phase at fault.
    """
    rows: list[Any]
    if isinstance(given, str):
        text, where = csv_text(given)
        rows = [
            {
                "duration_s": number(row, "duration_s", f"{where}, line {line}"),
                "placement": row["placement"],
                "cpu_threads": int(number(row, "cpu_threads", f"{where}, line {line}", absent=1.0)),
                "bandwidth": number(row, "bandwidth", f"{where}, line {line}", absent=0.0),
            }
            for line, row in csv_rows(text, where, ("duration_s", "placement"))
        ]
    elif isinstance(given, pd.DataFrame):
        rows = list(given.to_dict("records"))
    elif isinstance(given, Iterable) and not isinstance(given, Mapping):
        rows = list(islice(given, MOST_PHASES + 1))
    else:
        raise PlanError(f"{shown(given)} are no phases; give rows, a table or a CSV file.")
    if not 1 <= len(rows) <= MOST_PHASES:
        raise PlanError(f"A timeline has 1 to {MOST_PHASES:,} phases; {'more' if rows else 'none'} were given.")
    return tuple(_phase_of(row, at) for at, row in enumerate(rows, start=1))


def _phase_of(row: Any, at: int) -> Phase:
    parts: list[Any]
    if isinstance(row, Phase):
        parts = [row.duration_s, row.nodes, row.cpu_threads, row.bandwidth]
    elif isinstance(row, Mapping):
        unknown = [key for key in row if key not in ("duration_s", "placement", "cpu_threads", "bandwidth")]
        if unknown or "duration_s" not in row or "placement" not in row:
            raise PlanError(f"Phase {at} needs duration_s and placement, and may have cpu_threads and bandwidth.")
        parts = [row["duration_s"], row["placement"], row.get("cpu_threads", 1), row.get("bandwidth", 0.0)]
    elif isinstance(row, Sequence) and not isinstance(row, str) and 2 <= len(row) <= 4:
        parts = [*row, *(1, 0.0)[len(row) - 2 :]]
    else:
        raise PlanError(f"Phase {at} is {shown(row)}; give seconds, placement and CPU threads per GPU.")
    seconds = parts[0]
    if isinstance(seconds, bool) or not isinstance(seconds, Real) or not 0 < float(seconds) <= 1e12:
        raise PlanError(f"Phase {at} takes {shown(seconds)} seconds; give a number above 0.")
    try:
        nodes = () if parts[1] in (0, "0", "", [], ()) else gpus_on_nodes(parts[1])
        return Phase(float(seconds), nodes, checked_threads(parts[2]), checked_bandwidth(parts[3]))
    except PlanError as error:
        raise PlanError(f"Phase {at}: {error}") from None


def timeline(
    model_card: CardLike = "llama7_bsz16",
    phases: Iterable[Phase | Mapping[str, Any] | Sequence[Any]] | pd.DataFrame | str = FIGURE_7,
    *,
    strategies: Iterable[str | ElasticStrategy] = tuple(STATIC),
    measured: Measurements | str | None = None,
    basis: str | None = None,
    pause_s: float = 0.0,
    variant: str | PerformanceVariant = "artifact",
    restricted: bool | None = None,
) -> Timeline:
    """Returns throughput over the phases, the planner first, which takes the best plan of each by its predictions.

    Args:
        model_card: a card, a document of one, a name of the library, or the path of a file.
        phases: see `phases_of`; the phases of figure 7 by default.
        strategies: static ones next to the planner; see `strategies.strategy_of`.
        measured: measurements, or the name of a trace; the card's trace where None, if it exists.
        basis: `measured`, the measured iteration of the chosen plan, or `predicted`; where None, measured if
            measurements exist.
        pause_s: downtime at each change of resources or plan [s].
        variant, restricted: see `best_plan`.

    Raises `engine.planners.contract.PlanError` for an invalid argument.
    """
    card, given, model = load_card(model_card), phases_of(phases), variant_of(variant)
    known = measurements_of(card.name, measured)
    chosen = basis or ("measured" if known is not None else "predicted")
    if chosen not in BASES:
        raise PlanError(f"There is no basis {shown(chosen)}; choose measured or predicted.")
    if chosen == "measured" and known is None:
        raise PlanError(f"There are no measurements of {card.name}; give some, or take the basis predicted.")
    if isinstance(pause_s, bool) or not isinstance(pause_s, Real) or not 0 <= float(pause_s) <= 1e12:
        raise PlanError(f"The pause is {shown(pause_s)}; give seconds from 0 on.")
    limits = [ResourceLimits(phase.nodes, phase.cpu_threads, phase.bandwidth) for phase in given if phase.nodes]
    rules = [strategy_of(each) for each in strategies]
    taken: dict[str, list[tuple[PlanName | None, float]]] = {
        PLANNER: _plans_by_planner(card, limits, model, restricted)
    }
    for rule in rules:
        taken[rule.name] = _plans_by_rule(card, limits, model, rule)
    rows: list[dict[str, Any]] = []
    for name, plans in taken.items():
        rows += _phase_rows(card, given, name, plans, known, chosen, float(pause_s))
    return Timeline(pd.DataFrame(rows), chosen)


def _plans_by_planner(
    card: ModelCard, limits: Sequence[ResourceLimits], model: PerformanceVariant, restricted: bool | None
) -> list[tuple[PlanName | None, float]]:
    """The best plan under each limit with its iteration [s]."""
    if not limits:
        return []
    distinct = list(dict.fromkeys(limits))
    found = winners(card, distinct, variant=model, restricted=restricted)
    best = {
        limit: (found.plans.names[at], card.global_batch / rate) if at >= 0 else (None, math.nan)
        for limit, at, rate in zip(distinct, found.at, found.throughput, strict=True)
    }
    return [best[limit] for limit in limits]


def _plans_by_rule(
    card: ModelCard, limits: Sequence[ResourceLimits], model: PerformanceVariant, rule: ElasticStrategy
) -> list[tuple[PlanName | None, float]]:
    """Return the plan of a rule under each limit with its predicted iteration [s], NaN if it cannot run."""
    if not limits:
        return []
    wanted = [rule.plan(each.nodes) for each in limits]
    names = frozenset(name for name in wanted if name is not None)
    found = {each: dict[str, float]() for each in limits}

    plans = plan_table(card, list(found), restricted=False, atom_limits=model.restricted)
    figures = model.figures(card, plans)
    for at, name in enumerate(plans.names):
        if name in names and not figures.reasons[at]:
            found[plans.limits[plans.limit[at]]][name.text] = float(figures.iteration_ms[at]) / 1e3
    return [
        (name, math.nan if name is None else found[each].get(name.text, math.nan))
        for each, name in zip(limits, wanted, strict=True)
    ]


def _phase_rows(
    card: ModelCard,
    phases: Sequence[Phase],
    strategy: str,
    plans: Sequence[tuple[PlanName | None, float]],
    known: Measurements | None,
    basis: str,
    pause_s: float,
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    looked_up: dict[tuple[tuple[int, ...], int, str], float] = {}
    start, at, before = 0.0, 0, None
    for number_, phase in enumerate(phases, start=1):
        name, predicted = plans[at] if phase.nodes else (None, math.nan)
        at += bool(phase.nodes)
        text = "" if name is None else name.text
        state = (phase.nodes, phase.cpu_threads, text)
        if known is not None and name is not None and state not in looked_up:
            looked_up[state] = known.iteration_s(text, phase.nodes, phase.cpu_threads)
        real = looked_up.get(state, math.nan)
        iteration = real if basis == "measured" else predicted
        paused = min(pause_s, phase.duration_s) if before not in (None, state) and phase.nodes else 0.0
        rows.append(
            {
                "strategy": strategy,
                "phase": number_,
                "start_s": start,
                "end_s": start + phase.duration_s,
                "paused_s": paused,
                "placement": placement_text(phase.nodes),
                "cpu_threads": phase.cpu_threads,
                "plan": text,
                "iteration_s": iteration,
                "throughput": 0.0 if math.isnan(iteration) else card.global_batch / iteration,
                "predicted_s": predicted,
                "measured_s": real,
            }
        )
        start, before = start + phase.duration_s, state
    return rows
