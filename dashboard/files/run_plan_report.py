"""A plan of a training run on one page: figures, curve, sizes, assumptions; as data for the page and as HTML."""

from __future__ import annotations

import datetime
from functools import partial
from html import escape
from typing import Final

import pandas as pd

from dashboard.charts.elements.markup import Tile, figure_strip
from dashboard.charts.elements.template import Chart
from dashboard.charts.plans.run_plan import RunPoint, days_against_cost
from dashboard.files.exports import version
from dashboard.files.report import drawn, page, whole
from dashboard.files.report_parts import Figure
from dashboard.words.amounts import format_large, format_usd_range
from dashboard.words.numbers import ABSENT, percent, plain
from dashboard.words.scenarios import system_name
from engine.cost_models.words import told_not_measured
from engine.economics import INPUTS
from engine.questions.documents.cost import PlanRunQuestion
from engine.questions.run_plans import layout_words
from engine.recommendation.training_plans import PricedSystem, RunFigure, RunPlan, SizedRun, SystemRuns

__all__ = [
    "build_report",
    "cost_unit",
    "describe_basis",
    "describe_outlay",
    "plan_tiles",
    "run_points",
    "sizes_table",
    "system_label",
    "table_markup",
]

TERMS: Final = {"rent": "rented", "reserve": "reserved", "buy": "bought"}


def system_label(runs: SystemRuns) -> str:
    """Return the system of runs with its terms: "NVIDIA H100 80 GB SXM, bought".

    Args:
        runs: of one system.
    """
    name = system_name(runs.offer.system).partition(", ")[0]
    return name if runs.offer.terms == "rent" else f"{name}, {TERMS[runs.offer.terms]}"


def plan_tiles(run: SizedRun, label: str) -> list[Tile]:
    """Return the headline figures of a planned run, each with its interval.

    Args:
        run: the planned run.
        label: its system in words.
    """
    figures = run.figures
    usd, mwh, days = figures.get("usd"), figures.get("mwh"), figures["days"]
    outlay = "share of the purchase" if run.outlay_usd is not None else "failures included"
    return [
        Tile("GPUs", f"{run.num_procs:,}", label),
        Tile("Layout", layout_words(run), f"batch {int(run.execution['batch_size']):,}"),
        Tile("Wall-clock time", f"{plain(days.value)} days", "failures and checkpoints included", error=_ends(days)),
        Tile(
            "Cost",
            ABSENT if usd is None else format_usd_range((usd.value, usd.value)),
            "no price recorded" if usd is None else outlay,
            error="" if usd is None or usd.low is None or usd.high is None else format_usd_range((usd.low, usd.high)),
        ),
        Tile(
            "Energy",
            ABSENT if mwh is None else f"{format_large(mwh.value)} MWh",
            "no power recorded" if mwh is None else "server and building included",
            error="" if mwh is None else _ends(mwh),
        ),
        Tile("Failures", plain(figures["failures"].value), "expected", error=_ends(figures["failures"])),
        Tile(
            "Goodput",
            percent(figures["goodput"].value, 2),
            "of the time computes",
            error=_share_ends(figures["goodput"]),
        ),
        Tile("Tokens", format_large(run.run.inputs.tokens), f"{format_large(run.run.tokens_per_s)} tokens/s"),
    ]


def _ends(figure: RunFigure) -> str:
    if figure.low is None or figure.high is None:
        return "error unknown"
    return f"{plain(figure.low)} to {plain(figure.high)}"


def _share_ends(figure: RunFigure) -> str:
    if figure.low is None or figure.high is None:
        return "error unknown"
    low, high = percent(figure.low, 2), percent(figure.high, 2)
    return low if low == high else f"{low} to {high}"


def describe_basis(run: SizedRun) -> str:
    """Return a sentence on the intervals of a run.

    Args:
        run: the planned run.
    """
    if run.interval is None:
        unknown = run.not_measured
        reason = told_not_measured(unknown) if unknown else "Too few runs of this kind were measured."
        return f"The error of the time is unknown. {reason} Ranges of cost are prices."
    return (
        f"Ranges hold {run.interval.share:.0%} of {run.interval.rests_on}. Ranges of cost go from the lowest to the "
        "highest price. Failure rates have no range."
    )


def describe_outlay(run: SizedRun, offer: PricedSystem) -> str:
    """Return a sentence on the purchase of all GPUs; empty if they are not bought.

    Args:
        run: the planned run.
        offer: its system and price.
    """
    if run.outlay_usd is None:
        return ""
    power = "counted" if offer.usd_per_kwh > 0 else "not counted"
    return (
        f"All GPUs cost {format_usd_range(run.outlay_usd)}; the run pays its share of {offer.lifetime_years:g} years. "
        f"Electricity is {power}."
    )


def cost_unit(plan: RunPlan) -> str:
    """Return the unit of the curve's cost: USD if every system has a price, else GPU-hours.

    Args:
        plan: with its runs.
    """
    return "USD" if all("usd" in run.figures for each in plan.systems for run in each.runs) else "GPU-hours"


def run_points(plan: RunPlan) -> list[RunPoint]:
    """Return the points of the curve of days against cost.

    Args:
        plan: with its runs.
    """
    name = "usd" if cost_unit(plan) == "USD" else "gpu_hours"
    found = []
    for each in plan.systems:
        for run in each.runs:
            days, cost = run.figures["days"], run.figures[name]
            mark = "chosen" if _is_size(run, each.chosen) else "knee" if _is_size(run, each.knee) else ""
            found.append(
                RunPoint(
                    system_label(each),
                    run.num_procs,
                    layout_words(run),
                    days.value,
                    cost.value,
                    None if days.low is None or days.high is None else (days.low, days.high),
                    None if cost.low is None or cost.high is None else (cost.low, cost.high),
                    mark,
                    not run.misses,
                )
            )
    return found


def _is_size(run: SizedRun, other: SizedRun | None) -> bool:
    return other is not None and other.num_procs == run.num_procs


def sizes_table(runs: SystemRuns) -> pd.DataFrame:
    """Return all sizes of a system in words, ascending.

    Args:
        runs: of the system.
    """
    rows = []
    for run in runs.runs:
        figures = run.figures
        usd, mwh = figures.get("usd"), figures.get("mwh")
        waste = None if runs.chosen is None else run.hours_per_token / runs.chosen.hours_per_token - 1
        words = [
            "chosen" if _is_size(run, runs.chosen) else "",
            "knee" if _is_size(run, runs.knee) else "",
            "too slow" if "days" in run.misses else "",
            "too dear" if "usd" in run.misses else "",
        ]
        rows.append(
            {
                "GPUs": f"{run.num_procs:,}",
                "Days": plain(figures["days"].value),
                "Cost": ABSENT if usd is None else format_usd_range((usd.value, usd.value)),
                "Energy, MWh": ABSENT if mwh is None else format_large(mwh.value),
                "GPU-hours": format_large(figures["gpu_hours"].value),
                "GPU-hours per token": ABSENT if waste is None else f"{100 * waste:+.1f} %".replace("-", "\u2212"),
                "Failures": plain(figures["failures"].value),
                "Goodput": percent(figures["goodput"].value, 2),
                "Layout": layout_words(run),
                "Remark": ", ".join(filter(None, words)),
            }
        )
    return pd.DataFrame(rows)


def describe_goal(asked: PlanRunQuestion, model: str) -> str:
    """Return the question in a sentence.

    Args:
        asked: the question.
        model: title of its model.
    """
    parts = [f"Train {model}"]
    parts.append("on as many tokens as possible" if asked.tokens is None else f"on {format_large(asked.tokens)} tokens")
    if asked.num_procs is not None:
        parts.append(f"on {asked.num_procs:,} GPUs")
    if asked.deadline_days is not None:
        parts.append(f"in {plain(asked.deadline_days)} days")
    if asked.budget_usd is not None:
        parts.append(f"for {format_usd_range((asked.budget_usd, asked.budget_usd))}")
    return f"{' '.join(parts)}, with a batch of up to {asked.max_batch_size:,} sequences in {asked.datatype}."


def build_report(asked: PlanRunQuestion, plan: RunPlan, title: str, address: str = "") -> bytes:
    """Return the report of a plan as a UTF-8 HTML document that opens offline and prints on one page or two.

    Args:
        asked: the question.
        plan: its plan.
        title: of the model.
        address: link to the plan, printed as text.
    """
    name = f"Training plan: {title}"
    run, chosen = plan.run, plan.chosen
    answer = "<p>Nothing reaches the goal.</p>"
    if run is not None and chosen is not None:
        answer = figure_strip(plan_tiles(run, system_label(chosen)), describe_basis(run))
        answer += f"<p>{escape(describe_outlay(run, chosen.offer))}</p>" if run.outlay_usd is not None else ""
    unit = cost_unit(plan)
    figure = Figure(
        "curve",
        "Days against cost",
        f"each size, {unit}",
        partial(_draw_curve, plan, unit),
    )
    places, data = drawn([figure])
    tables = "".join(
        f"<h2>{escape(system_label(each))}</h2>"
        + (f"<p>{escape(each.obstacle)}</p>" if each.obstacle else "")
        + (table_markup(sizes_table(each)) if each.runs else "")
        for each in plan.systems
    )
    document = asked.model_dump(mode="json", exclude_defaults=True)
    made = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    body = (
        f"<h1>{escape(name)}</h1><p>{escape(describe_goal(asked, title))}</p>{answer}{places}{tables}"
        f"<h2>Assumptions</h2><ul>{_assumption_items(run)}<li>Shardscape {escape(version())}, {made}.</li></ul>"
        f"{whole('question', document, address, 'as a question of the verb plan_run')}"
    )
    return page(name, body, data).encode("utf-8", "replace")


def _draw_curve(plan: RunPlan, unit: str, mode: str) -> Chart:
    budget = plan.goal.usd if unit == "USD" else None
    return days_against_cost(run_points(plan), unit, days=plan.goal.days, cost=budget, mode=mode)


def _assumption_items(run: SizedRun | None) -> str:
    if run is None:
        return ""
    inputs = run.run.inputs
    told = [
        f"{one.label}: {plain(value)} {one.unit}".strip()
        for name, one in INPUTS.items()
        if (value := getattr(inputs, name)) is not None
    ]
    return "".join(f"<li>{escape(each.replace('processor', 'GPU'))}</li>" for each in told)


def table_markup(frame: pd.DataFrame) -> str:
    """Return a table of words as HTML.

    Args:
        frame: of texts.
    """
    heads = "".join(f"<th>{escape(str(name))}</th>" for name in frame.columns)
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in frame.itertuples(index=False)
    )
    return (
        f'<div class="wide"><table class="ss-rows"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
    )
