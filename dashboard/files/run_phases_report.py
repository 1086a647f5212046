"""A plan of phases on one page: figures, phases, front and what binds; as data for the page and as HTML."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from html import escape
from typing import Any, Final

import pandas as pd

from dashboard.charts.elements.markup import Tile, figure_strip
from dashboard.charts.elements.template import Chart
from dashboard.charts.plans.run_phases import PhaseBar, phases_over_time
from dashboard.charts.plans.run_plan import RunPoint, days_against_cost
from dashboard.files.exports import version
from dashboard.files.report import drawn, page, whole
from dashboard.files.report_parts import Figure
from dashboard.files.run_plan_report import table_markup
from dashboard.link.catalogue import system_of
from dashboard.words.amounts import format_large, format_usd_range
from dashboard.words.numbers import ABSENT, counted, plain, with_unit
from dashboard.words.scenarios import system_name
from engine.questions.documents.cost import PlanRunQuestion

__all__ = [
    "bars_of",
    "binds_table",
    "build_phases_report",
    "chain_points",
    "chain_tiles",
    "chain_unit",
    "phases_table",
    "question_document",
    "system_title",
]

HOURS: Final = 24.0
"""Hours of a day [h]."""
TERMS: Final = {"rent": "", "reserve": ", reserved", "buy": ", bought"}


def system_title(row: Mapping[str, Any]) -> str:
    """Return the system of a row with its terms: "NVIDIA H100 80 GB SXM, bought".

    Args:
        row: of a system in a plan of phases.
    """
    name = row["system"]
    with suppress(KeyError, ValueError):  # a document of one's own
        name = system_name(system_of(name)).partition(", ")[0]
    return f"{name}{TERMS[row['terms']]}"


def chain_tiles(plan: Mapping[str, Any]) -> list[Tile]:
    """Return the headline figures of a plan with a chosen chain.

    Args:
        plan: of phases, as the answer has it.
    """
    chain = plan["chosen"]
    system = next(each for each in plan["systems"] if each["system"] == plan["system"])
    usd, mwh = chain["usd"], chain["mwh"]
    held = "held throughout" if system["is_held"] else "at most at once"
    beside = sum(each["num_procs"] for each in chain["services"] if each["when"] == "meanwhile")
    held += f"; {beside:,} more serve" if beside else ""
    return [
        Tile("GPUs", f"{chain['num_procs']:,}", f"{system_title(system)}, {held}"),
        Tile(
            "Days",
            f"{plain(chain['days']['value'])} days",
            f"deadline {chain['deadline']}" if chain["deadline"] else "of all phases",
            error=_ends(chain["days"]),
        ),
        Tile(
            "Cost",
            ABSENT if usd is None else format_usd_range((usd["value"], usd["value"])),
            "no price recorded; give one under Prices"
            if usd is None
            else f"budget {chain['budget']}"
            if chain["budget"]
            else "services included",
            error="" if usd is None or usd["low"] is None else format_usd_range((usd["low"], usd["high"])),
        ),
        Tile("Energy", ABSENT if mwh is None else f"{format_large(mwh)} MWh", "of the training phases"),
        Tile("Failures", plain(chain["failures"]), f"expected; keep {counted(chain['spares'], 'GPU')} spare"),
        Tile("GPU-hours", format_large(chain["gpu_hours"]["value"]), "of the training phases"),
    ]


def _ends(figure: Mapping[str, Any]) -> str:
    if figure["low"] is None or figure["high"] is None:
        return "error unknown"
    return f"{plain(figure['low'])} to {plain(figure['high'])}"


def phases_table(plan: Mapping[str, Any]) -> pd.DataFrame:
    """Return phases and services of the chosen chain in words.

    Args:
        plan: of phases with a chosen chain.
    """
    chain = plan["chosen"]
    rows = [
        {
            "Phase": each["name"],
            "GPUs": f"{each['num_procs']:,}",
            "From day": plain(each["start_day"]),
            "Days": plain(each["days"]["value"]),
            "Interval, days": _ends(each["days"]),
            "Cost": ABSENT if each["usd"] is None else format_usd_range((each["usd"]["value"],) * 2),
            "Energy, MWh": ABSENT if each["mwh"] is None else format_large(each["mwh"]),
            "Failures": plain(each["failures"]),
            "Layout": each["layout"],
        }
        for each in chain["phases"]
    ]
    for each in chain["services"]:
        daily = each["usd_per_day"]
        rows.append(
            {
                "Phase": f"{each['name']}, {'afterwards' if each['when'] == 'after' else 'meanwhile'}",
                "GPUs": f"{each['num_procs']:,}",
                "From day": plain(chain["days"]["value"] if each["when"] == "after" else 0.0),
                "Days": ABSENT if each["days"] is None else plain(each["days"]),
                "Interval, days": "",
                "Cost": ABSENT if daily is None else f"{format_usd_range((daily[0], daily[1]))} per day",
                "Energy, MWh": ABSENT,
                "Failures": ABSENT,
                "Layout": f"{counted(each['replicas'], 'replica')}, {each['layout']}",
            }
        )
    return pd.DataFrame(rows)


def binds_table(plan: Mapping[str, Any]) -> pd.DataFrame:
    """Return moved limits and their gains, in words.

    Args:
        plan: of phases.
    """
    chain = plan["chosen"]
    rows = []
    for each in plan["changes"]:
        cells = {"Change": each["words"], "Days": ABSENT, "Cost": ABSENT, "Gain": "still nothing holds"}
        if each["holds"]:
            cells |= {
                "Days": plain(each["days"]),
                "Cost": ABSENT if each["usd"] is None else format_usd_range((each["usd"],) * 2),
                "Gain": "holds the limits" if each["gain"] is None else _gain(each, chain),
            }
        rows.append(cells)
    return pd.DataFrame(rows)


def _gain(change: Mapping[str, Any], chain: Mapping[str, Any]) -> str:
    days = chain["days"]["value"] - change["days"]
    if not change["gain"]:
        return "none: does not bind"
    usd = "" if change["usd"] is None or chain["usd"] is None else _signed_usd(change["usd"] - chain["usd"]["value"])
    return ", ".join(filter(None, [f"{plain(abs(days))} days {'less' if days > 0 else 'more'}", usd]))


def _signed_usd(usd: float) -> str:
    return f"{format_usd_range((abs(usd),) * 2)} {'more' if usd > 0 else 'less'}"


def chain_unit(plan: Mapping[str, Any]) -> str:
    """Return the unit of the front's cost: USD if every system has a price, else GPU-hours.

    Args:
        plan: of phases.
    """
    return "USD" if all(row["usd"] is not None for each in plan["systems"] for row in each["front"]) else "GPU-hours"


def chain_points(plan: Mapping[str, Any]) -> list[RunPoint]:
    """Return the points of the fronts of days against cost.

    Args:
        plan: of phases.
    """
    unit = "usd" if chain_unit(plan) == "USD" else "gpu_hours"
    found = []
    for each in plan["systems"]:
        chosen = each["chosen"]
        names = [curve["name"] for curve in each["curves"]]
        for row in each["front"]:
            is_chosen = chosen is not None and all(row[name] == chosen[name] for name in ("sizes", "num_procs"))
            found.append(
                RunPoint(
                    system_title(each),
                    row["num_procs"],
                    "<br>".join(f"{name} {size:,}" for name, size in zip(names, row["sizes"], strict=True)),
                    row["days"]["value"],
                    row[unit]["value"],
                    _pair(row["days"]),
                    _pair(row[unit]),
                    "chosen" if is_chosen else "",
                    not row["misses"],
                )
            )
    return found


def _pair(figure: Mapping[str, Any]) -> tuple[float, float] | None:
    return None if figure["low"] is None or figure["high"] is None else (figure["low"], figure["high"])


def bars_of(plan: Mapping[str, Any]) -> list[PhaseBar]:
    """Return the bars of the chosen chain over time.

    Args:
        plan: of phases with a chosen chain.
    """
    chain = plan["chosen"]
    bars = []
    for each in chain["phases"]:
        start, days = each["start_day"], each["days"]
        ends = None if days["low"] is None else (start + days["low"], start + days["high"])
        value = days["value"]
        span = with_unit(plain(value), "days") if value >= 1 else with_unit(plain(HOURS * value), "h")
        words = f"{counted(each['num_procs'], 'GPU')}, {span}"
        bars.append(PhaseBar(each["name"], start, start + days["value"], words, ends))
    total = chain["days"]["value"]
    for each in chain["services"]:
        start = total if each["when"] == "after" else 0.0
        words = f"{counted(each['num_procs'], 'GPU')}, {'afterwards' if each['when'] == 'after' else 'meanwhile'}"
        # Serving afterwards may go on for years: its first tenth is enough.
        end = total + min(each["days"] or 0.1 * total, 0.1 * total) if each["when"] == "after" else total
        bars.append(PhaseBar(each["name"], start, end, words, is_service=True))
    return bars


def question_document(asked: PlanRunQuestion) -> dict[str, Any]:
    """Return a question as JSON has it, as `shardscape plan run FILE` takes it.

    Args:
        asked: the question.
    """
    return asked.model_dump(mode="json", exclude_defaults=True)


def build_phases_report(asked: PlanRunQuestion, plan: Mapping[str, Any], title: str, address: str = "") -> bytes:
    """Return the report of a plan of phases as a UTF-8 HTML document that opens offline.

    Args:
        asked: the question.
        plan: its answer's `chain`.
        title: of the model.
        address: link to the plan, printed as text.
    """
    name = f"Plan of phases: {title}"
    unit = chain_unit(plan)
    figures = [
        Figure("front", "Days against cost", f"the front of each system, {unit}", partial(_draw_front, asked, plan))
    ]
    answer = f"<p>Nothing reaches the goal. {escape(plan['relaxation'])}</p>"
    if plan["chosen"] is not None:
        answer = figure_strip(chain_tiles(plan), plan["basis"])
        figures.insert(0, Figure("phases", "Phases", "over days", partial(_draw_bars, asked, plan)))
    places, data = drawn(figures)
    tables = "" if plan["chosen"] is None else f"<h2>Phases</h2>{table_markup(phases_table(plan))}"
    tables += f"<h2>What binds</h2>{table_markup(binds_table(plan))}" if plan["changes"] else ""
    tables += "".join(
        f"<p>{escape(system_title(each))}: {escape(each['obstacle'])} {escape(each['relaxation'])}</p>"
        for each in plan["systems"]
        if each["obstacle"]
    )
    made = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    left_out = "".join(f"<li>{escape(each)}</li>" for each in plan["not_modelled"])
    body = (
        f"<h1>{escape(name)}</h1>{answer}{places}{tables}<h2>Not modelled</h2><ul>{left_out}"
        f"<li>Shardscape {escape(version())}, {made}.</li></ul>"
        f"{whole('question', question_document(asked), address, 'as a question of the verb plan_run')}"
    )
    return page(name, body, data).encode("utf-8", "replace")


def _draw_front(asked: PlanRunQuestion, plan: Mapping[str, Any], mode: str) -> Chart:
    unit = chain_unit(plan)
    budget = asked.budget_usd if unit == "USD" else None
    return days_against_cost(chain_points(plan), unit, days=asked.deadline_days, cost=budget, mode=mode)


def _draw_bars(asked: PlanRunQuestion, plan: Mapping[str, Any], mode: str) -> Chart:
    return phases_over_time(bars_of(plan), deadline=asked.deadline_days, mode=mode)
