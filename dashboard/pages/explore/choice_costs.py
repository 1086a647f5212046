"""The lower part of the Explore page: the cost of each choice, and reasons for infeasible executions."""

from __future__ import annotations

import math
from typing import Final

import pandas as pd
import streamlit as st

from dashboard.charts import Chart
from dashboard.charts.elements.markup import head
from dashboard.charts.explored.choices import choices
from dashboard.charts.explored.reasons import reasons
from dashboard.link import page_links, state
from dashboard.queries import explorations
from dashboard.queries.economics import Metric, metrics
from dashboard.queries.nearest_fit import lacking
from dashboard.widgets.chart import show
from dashboard.widgets.window import is_narrow
from dashboard.words.names import in_sentence
from dashboard.words.numbers import count, counted, percent
from engine import Exploration
from engine.columns import by_name
from hardware import network_names

__all__ = ["costs", "infeasible"]


NEGLIGIBLE: Final = 0.01
"""A choice whose every option comes within this share of the best is named in the caption only."""


def costs(exploration: Exploration, metric: Metric, where: explorations.Where = ()) -> None:
    """Draws the cost of fixing each choice, among the executions that meet conditions.

    The metric is throughput if the map shows a share of the step.
    """
    metric = metrics(exploration.scenario)[metric.ranked_by] if metric.of_fastest else metric
    scope = f"best {in_sentence(metric.column.label)} with the choice fixed, everything else free; % of the best"
    st.html(head("Cost of each choice", scope))
    if not exploration.feasible:
        st.caption("No execution runs, so no choice can be compared.")
        return
    if _best_value(exploration, metric, where) == 0:
        st.caption(f"The best {in_sentence(metric.column.label)} is 0, so there are no shares of it to compare.")
        return
    chart, cheap = _costs_chart(
        exploration, exploration.key, metric, (metric.key, metric.factor), state.theme_mode(), where, is_narrow()
    )
    if chart is not None:
        show(chart, "explore_choices")
    if cheap:
        names = ", ".join(in_sentence(by_name(field).label) for field in cheap)
        st.caption(f"Choices that cost at most {percent(NEGLIGIBLE, 0)}: {names}.")


def _best_value(exploration: Exploration, metric: Metric, where: explorations.Where) -> float:
    """Return the best value of a statistic among the executions that meet conditions."""
    if not where and metric.statistic in exploration.reductions.metrics:
        found = exploration.reductions.best(metric.statistic)
        return math.nan if found is None else found[1]
    low, high = explorations.span_of(exploration, exploration.key, metric.statistic, where) or (math.nan, math.nan)
    return low if metric.column.better == "lower" else high


@st.cache_resource(show_spinner=False, max_entries=64)
def _costs_chart(
    _exploration: Exploration,
    key: str,
    _metric: Metric,
    name: tuple[str, float],
    mode: str,
    where: explorations.Where,
    narrow: bool,
) -> tuple[Chart | None, list[str]]:
    """Return the chart of the choices that matter, or None, and the other choices. Cached: slow to build."""
    table = explorations.choice_costs(_exploration, _metric, where)
    dear, cheap = _by_weight(table, _metric.column.better == "lower")
    if not dear:
        return None, cheap
    shown = table[table["field"].isin(dear)].reset_index(drop=True)
    networks = network_names(_exploration.scenario.system)
    return choices(shown, _metric.column, mode, networks=networks, narrow=narrow), cheap


@st.cache_resource(show_spinner=False, max_entries=64)
def _reasons_chart(_exploration: Exploration, key: str, mode: str) -> tuple[Chart, str]:
    """Return the chart of the reasons and its summary, cached because clicks do not change them."""
    return reasons(_exploration.infeasible_by_reason, mode), _describe_infeasible(_exploration)


def _by_weight(table: pd.DataFrame, lower_is_better: bool) -> tuple[list[str], list[str]]:
    """(fields whose options differ; fields whose options hardly matter), both in the order of the table."""
    values = table["value"]
    best = values.min() if lower_is_better else values.max()
    share = (best / values if lower_is_better else values / best).fillna(0.0) if best else values * 0 + 1
    worst = share.groupby(table["field"], sort=False).min()
    dear = [field for field in worst.index if worst[field] < 1 - NEGLIGIBLE]
    return dear, [field for field in worst.index if field not in dear]


def infeasible(exploration: Exploration) -> None:
    """Draws why executions cannot run, and how much memory the nearest ones lack."""
    missing = exploration.total - exploration.feasible
    st.html(head("Why executions are infeasible", f"{count(missing)} of {count(exploration.total)}"))
    if not missing:
        st.caption("Every execution of this space runs.")
        return
    chart, account = _reasons_chart(exploration, exploration.key, state.theme_mode())
    show(chart, "explore_reasons")
    st.caption(account)
    if page_links.exists("whatif"):
        st.page_link(page_links.target("whatif"), label="Try it in What-if", icon=":material/tune:", width="content")


def _describe_infeasible(exploration: Exploration) -> str:
    """Return the infeasible executions in one or two sentences."""
    found = exploration.infeasible_by_reason
    missing = exploration.total - exploration.feasible
    memory = sum(number for code, number in found.items() if code.startswith("memory_"))
    sentences = []
    if memory:
        share = "All" if memory == missing else percent(memory / missing, 0 if memory < 0.99 * missing else 1)
        sentences.append(f"{share} of them need more memory than available.")
    pairs = exploration.by_pair()
    short = pairs[pairs["shortfall_bytes"].notna()]
    if len(short):
        nearest = short.sort_values("shortfall_bytes", kind="stable").iloc[0]
        sentences.append(
            f"In {counted(len(short), 'cell')} only memory is missing; the nearest lacks {lacking(nearest)}."
        )
    elif (pairs["feasible"] > 0).all():
        sentences.append("Every cell of the map has an execution that runs.")
    return " ".join(sentences)
