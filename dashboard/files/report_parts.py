"""Parts of a report of an exploration: key figures, charts, tables; as data and escaped HTML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any, Final, NamedTuple

import pandas as pd

from dashboard.charts.elements.markup import Tile, legend, map_legend
from dashboard.charts.elements.palette import MEMORY_KINDS, kinds_of
from dashboard.charts.elements.template import Chart
from dashboard.charts.execution.efficiency_curve import efficiency_curve
from dashboard.charts.execution.memory_bars import memory_bars
from dashboard.charts.execution.time_bar import waterfall
from dashboard.charts.explored.choices import choices as choices_chart
from dashboard.charts.explored.degree_map import degree_map
from dashboard.charts.explored.pareto import pareto
from dashboard.charts.explored.reasons import reasons
from dashboard.compat.caches import computed
from dashboard.queries import accuracy, explorations
from dashboard.queries.economics import MFU_FORMULA, days_for, flops_formula, metrics, mfu_label, utilisation
from dashboard.words.executions import choices, recomputed
from dashboard.words.numbers import (
    count,
    counted,
    days,
    decimals_for,
    format_value,
    header,
    percent,
    scale_for,
    share_of,
)
from engine import Exploration, Scenario
from engine.columns import by_name, choice_label, fields_of
from engine.cost_models.registry import cost_model_of, named
from engine.executions.execution_names import execution_name
from engine.recommendation import FIGURES_OF, FiguresOf
from hardware import GIB, System, network_names

__all__ = ["Figure", "best_table", "figures", "key_figures", "top_table"]

TOP: Final = 20
FRONTIER: Final = ("proc_mem_tier1_cap_req", "sample_rate")
_DEGREES: Final = ("id", "tensor_par", "pipeline_par", "data_par")
_RESULTS: Final = (
    "sample_rate",
    "total_time",
    "total_efficiency",
    "proc_mem_tier1_cap_req",
    "proc_mem_tier2_cap_req",
)
_TOLD: Final = "selective_recompute"
"""Choices that another column of the table shows."""


class Figure(NamedTuple):
    """One figure of a report, drawn for either theme."""

    key: str
    title: str
    scope: str
    draw: Callable[[str], Chart]
    note: str = ""
    """HTML below the figure."""


def key_figures(exploration: Exploration, best: dict[str, Any] | None, figures_of: FiguresOf) -> list[Tile]:
    """Returns the headline figures of an execution, None if nothing runs, and of the space. figures_of: its role."""
    scenario = exploration.scenario
    space = Tile(
        "Feasible",
        count(exploration.feasible),
        f"{percent(exploration.feasible / exploration.total if exploration.total else 0)} of "
        f"{count(exploration.total)}",
    )
    if best is None:
        return [Tile("Throughput", "–", "nothing fits"), space]
    rate = float(best["sample_rate"])
    capacity = scenario.system.mem1.capacity_gib * GIB
    memory = float(best["proc_mem_tier1_cap_req"])
    tiles = [
        Tile("Throughput", format_value("sample_rate", rate), f"{FIGURES_OF[figures_of]}: {execution_name(best)}"),
        Tile(mfu_label(scenario), percent(utilisation(scenario, rate, bool(best["training"]))), "of the matrix peak"),
        Tile("Step time", format_value("total_time", best["total_time"]), counted(int(best["batch_size"]), "sequence")),
        Tile("1 T tokens take", days(days_for(scenario, rate)), "at this rate, no failures"),
        Tile("HBM per GPU", format_value("proc_mem_tier1_cap_req", memory), share_of(memory, capacity)),
        space,
    ]
    return accuracy.marked(tiles, scenario, best)


def figures(exploration: Exploration, best: dict[str, Any] | None) -> list[Figure]:
    """Returns the figures of a report, the answer first."""
    scenario, key = exploration.scenario, exploration.key
    metric = metrics(scenario)["sample_rate"]
    cells = explorations.cells_of(exploration, metric)
    unit = scale_for(metric.column, cells["value"]).unit
    found = [
        Figure(
            "map",
            "The whole space",
            "the fastest execution of every pair of degrees",
            lambda mode: degree_map(cells, metric.column, mode),
            map_legend(
                scenario.num_procs,
                unit,
                fastest=True,
                runs=best is not None,
                may_fit=bool(cells["may_fit"].any()),
            ),
        )
    ]
    if best is not None:
        capacities = (scenario.system.mem1.capacity_gib * GIB, scenario.system.mem2.capacity_gib * GIB)
        # A report is built in a thread of the server, outside any session, where Streamlit's cache does not belong.
        costs = computed(explorations.bests_of_choices)(exploration, key, metric.statistic, ())
        networks = network_names(scenario.system)
        front = exploration.frontier(*FRONTIER)
        rows = exploration.evaluate_ids(front["id"].to_numpy())
        found += [
            Figure(
                "time", "Where the time goes", f"one step of {execution_name(best)}", lambda mode: waterfall(best, mode)
            ),
            Figure(
                "memory",
                "Where the memory goes",
                "per GPU, peak",
                lambda mode: memory_bars([("", best)], capacities, mode),
                legend(kinds_of(MEMORY_KINDS, scenario.cost_model)),
            ),
            Figure(
                "choices",
                "What each choice costs",
                "best throughput with the choice fixed, everything else free",
                lambda mode: choices_chart(costs, metric.column, mode, networks=networks),
            ),
            Figure(
                "frontier",
                "Throughput against memory",
                "the executions that no other beats in both",
                lambda mode: pareto(rows, *FRONTIER, mode),
            ),
        ]
    if exploration.feasible < exploration.total:
        missing = f"{count(exploration.total - exploration.feasible)} of {count(exploration.total)}"
        found.append(
            Figure(
                "reasons",
                "Why executions are infeasible",
                missing,
                lambda mode: reasons(exploration.infeasible_by_reason, mode),
            )
        )
    if not cost_model_of(scenario).reads_efficiencies:
        return found
    system = scenario.system
    compute = [
        (f"{kind} {choice_label('datatype', name)}", engine.gflops_efficiency)
        for kind, engines in (("matrix", system.matrix), ("vector", system.vector))
        for name, engine in engines.items()
        if name == scenario.datatype
    ]
    memory = [("HBM", system.mem1.mb_efficiency)]
    memory += [("host memory", system.mem2.mb_efficiency)] if system.mem2.capacity_gib else []
    found += [
        Figure(
            "compute",
            "How much of the peak operations reach",
            f"{choice_label('datatype', scenario.datatype)}, by size in GFLOP",
            lambda mode: efficiency_curve(compute, "GFLOP", mode),
        ),
        Figure(
            "traffic",
            "How much of the bandwidth transfers reach",
            "by size in MB",
            lambda mode: efficiency_curve(memory, "MB", mode),
        ),
    ]
    return found


def best_table(best: dict[str, Any], system: System) -> str:
    """Returns the execution of the report in words."""
    pairs = [("degrees", execution_name(best)), *choices(best, system), ("execution id", f"{int(best['id']):,}")]
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in pairs)
    return f'<table class="ss-sheet"><tbody>{rows}</tbody></table>'


def top_table(exploration: Exploration) -> str:
    """Returns the fastest executions, one per row; choices that they share are listed once."""
    frame = exploration.top(TOP)
    frame = frame.assign(activation_recompute=[recomputed(row, brief=True) for row in frame.to_dict("records")])
    cost_model = exploration.scenario.cost_model
    choices_made = [
        column.name
        for column in fields_of(cost_model)
        if column.name not in (*_DEGREES, _TOLD, *named(cost_model).columns.implied)
        and frame[column.name].nunique() > 1
    ]
    same = ", ".join(
        f"{label} {cells[0]}"
        for label, _, cells in (
            _column_cells(column.name, frame[column.name].iloc[:1])
            for column in fields_of(cost_model)
            if column.name not in (*_DEGREES, _TOLD, *named(cost_model).columns.implied)
            and frame[column.name].nunique() == 1
        )
    )
    columns = [_column_cells(name, frame[name]) for name in (*_DEGREES, *choices_made, *_RESULTS)]
    heads = "".join(f'<th title="{escape(why)}">{escape(name)}</th>' for name, why, _ in columns)
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>"
        for line in zip(*(cells for _, _, cells in columns), strict=True)
    )
    return (
        f'<p class="muted">Fastest first, of the whole space. The same in all of them: {escape(same)}.</p>'
        f'<table class="ss-rows"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
    )


def _column_cells(name: str, values: pd.Series[Any]) -> tuple[str, str, list[str]]:
    """Head, explanation and cells of a column, in one unit and with as many decimals in every row."""
    column = by_name(name)
    if name == "activation_recompute":
        return column.short, column.description, [str(value) for value in values]
    if column.dtype == "float64":
        scale = scale_for(column, values)
        digits = decimals_for(values, scale, 4)
        return header(column, scale), column.description, [f"{value / scale.factor:,.{digits}f}" for value in values]
    if name == "id":
        return "id", column.description, [f"{int(value):,}" for value in values]
    return column.short, column.description, [format_value(column, value) for value in values]


def formulas(scenario: Scenario) -> Sequence[tuple[str, str]]:
    """Returns how the derived figures are computed."""
    return (
        (mfu_label(scenario), f"{MFU_FORMULA}, where model FLOP per sample = {flops_formula(scenario)}"),
        ("Throughput", "batch ÷ step time"),
        ("1 T tokens take", "10¹² ÷ (throughput · sequence length)"),
    )
