"""What a report shows of an exploration: key figures, figures, tables; as data and escaped HTML."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, Final, NamedTuple

from dashboard import accuracy, explore_data
from dashboard.charts.cell_map import cell_map
from dashboard.charts.choices import choices as choices_chart
from dashboard.charts.efficiency_curve import efficiency_curve
from dashboard.charts.markup import Tile, map_legend
from dashboard.charts.memory_bars import memory_bars
from dashboard.charts.pareto import pareto
from dashboard.charts.reasons import reasons
from dashboard.charts.template import Chart
from dashboard.charts.time_bar import waterfall
from dashboard.derived import MFU_FORMULA, days_for, flops_formula, metrics, utilisation
from dashboard.format import count, counted, days, format_value, percent
from dashboard.wording import choices, title
from engine import Exploration, Scenario
from engine.columns import by_name

__all__ = ["Figure", "best_table", "figures", "key_figures", "top_table"]

GIB: Final = 2**30
TOP: Final = 20
FRONTIER: Final = ("proc_mem_tier1_cap_req", "sample_rate")
_TABLE: Final = (
    "id", "tensor_par", "pipeline_par", "data_par", "pipeline_interleaving", "microbatch_size",
    "activation_recompute", "tensor_par_comm_type", "tensor_par_overlap", "optimizer_sharding", "weight_offload",
    "activations_offload", "optimizer_offload", "sample_rate", "total_time", "total_efficiency",
    "proc_mem_tier1_cap_req", "proc_mem_tier2_cap_req",
)  # fmt: skip


class Figure(NamedTuple):
    """One figure of a report, drawn for either theme."""

    key: str
    title: str
    scope: str
    draw: Callable[[str], Chart]
    note: str = ""
    """HTML below the figure."""


def key_figures(exploration: Exploration, best: dict[str, Any] | None) -> list[Tile]:
    """The headline figures of the best execution and of the space."""
    scenario = exploration.scenario
    space = Tile("Feasible", count(exploration.feasible),
                 f"{percent(exploration.feasible / exploration.total if exploration.total else 0)} of "
                 f"{count(exploration.total)}")  # fmt: skip
    if best is None:
        return [Tile("Best throughput", "–", "nothing fits"), space]
    rate = float(best["sample_rate"])
    capacity = scenario.system.mem1.capacity_gib * GIB
    memory = float(best["proc_mem_tier1_cap_req"])
    tiles = [
        Tile("Best throughput", format_value("sample_rate", rate), title(best)),
        Tile("MFU", percent(utilisation(scenario, rate, bool(best["training"]))), "of the matrix peak"),
        Tile("Step time", format_value("total_time", best["total_time"]), counted(int(best["batch_size"]), "sequence")),
        Tile("1 T tokens take", days(days_for(scenario, rate)), "at this rate, no failures"),
        Tile("HBM per GPU", format_value("proc_mem_tier1_cap_req", memory),
             f"{percent(memory / capacity, 0)} of {format_value('proc_mem_tier1_cap_req', capacity)}"),
        space,
    ]  # fmt: skip
    return accuracy.marked(tiles, scenario, best)


def figures(exploration: Exploration, best: dict[str, Any] | None) -> list[Figure]:
    """The figures of a report, the answer first."""
    scenario, key = exploration.scenario, exploration.key
    metric = metrics(scenario)["sample_rate"]
    cells = explore_data.cells_of(exploration, metric)
    found = [
        Figure("map", "The whole space", "best throughput of every pair of degrees, samples/s",
               lambda mode: cell_map(cells, metric.column, mode), map_legend(scenario.num_procs))
    ]  # fmt: skip
    if best is not None:
        capacities = (scenario.system.mem1.capacity_gib * GIB, scenario.system.mem2.capacity_gib * GIB)
        # A report is built in a thread of the server, outside any session, where Streamlit's cache does not belong.
        uncached = inspect.unwrap(explore_data.choice_costs)
        costs = uncached(exploration, key, metric.statistic, metric.factor)
        tiers = tuple(f"tier {number}" for number in range(len(scenario.system.networks)))
        front = exploration.frontier(*FRONTIER)
        rows = exploration.evaluate_ids(front["id"].to_numpy())
        found += [
            Figure("time", "Where the time goes", f"one step of {title(best)}", lambda mode: waterfall(best, mode)),
            Figure("memory", "Where the memory goes", "per GPU, peak",
                   lambda mode: memory_bars([("", best)], capacities, mode)),
            Figure("choices", "What each choice costs", "best throughput with the choice fixed, everything else free",
                   lambda mode: choices_chart(costs, metric.column, mode, tier_names=tiers)),
            Figure("frontier", "Throughput against memory", "the executions that no other beats in both",
                   lambda mode: pareto(rows, *FRONTIER, mode)),
        ]  # fmt: skip
    if exploration.feasible < exploration.total:
        missing = f"{count(exploration.total - exploration.feasible)} of {count(exploration.total)}"
        found.append(Figure("reasons", "Why executions are infeasible", missing,
                            lambda mode: reasons(exploration.infeasible_by_reason, mode)))  # fmt: skip
    if scenario.cost_model != "calculon":
        return found  # the curves of efficiency by size are Calculon's
    system = scenario.system
    compute = [(f"{kind} {name}", engine.gflops_efficiency)
               for kind, engines in (("matrix", system.matrix), ("vector", system.vector))
               for name, engine in engines.items() if name == scenario.datatype]  # fmt: skip
    memory = [("HBM", system.mem1.mb_efficiency)]
    memory += [("host memory", system.mem2.mb_efficiency)] if system.mem2.capacity_gib else []
    found += [
        Figure("compute", "How much of the peak operations reach", f"{scenario.datatype}, by size in GFLOP",
               lambda mode: efficiency_curve(compute, "GFLOP", mode)),
        Figure("traffic", "How much of the bandwidth transfers reach", "by size in MB",
               lambda mode: efficiency_curve(memory, "MB", mode)),
    ]  # fmt: skip
    return found


def best_table(best: dict[str, Any]) -> str:
    """The best execution in words."""
    pairs = [("degrees", title(best)), *choices(best), ("execution id", f"{int(best['id']):,}")]
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in pairs)
    return f'<table class="ss-sheet"><tbody>{rows}</tbody></table>'


def top_table(exploration: Exploration) -> str:
    """The best executions, one per row."""
    frame = exploration.top(TOP)
    heads = "".join(f'<th title="{escape(by_name(name).description)}">{escape(_short(name))}</th>' for name in _TABLE)
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(_cell(name, row[name]))}</td>' for name in _TABLE)}</tr>"
        for row in frame.to_dict("records")
    )
    return f'<table class="ss-rows"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'


def _short(name: str) -> str:
    return "id" if name == "id" else by_name(name).short


def _cell(name: str, value: Any) -> str:
    return f"{int(value):,}" if name == "id" else format_value(name, value, 4)


def formulas(scenario: Scenario) -> Sequence[tuple[str, str]]:
    """How the derived figures are computed."""
    return (
        ("MFU", f"{MFU_FORMULA}, where model FLOP per sample = {flops_formula(scenario)}"),
        ("Throughput", "batch ÷ step time"),
        ("1 T tokens take", "10¹² ÷ (throughput · sequence length)"),
    )
