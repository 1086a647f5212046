"""Other scenarios on the Pareto page: their choice, their frontiers, and their best at the same price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.explored.pareto import Named
from dashboard.queries.compared_scenarios import Member, told
from dashboard.queries.economics import Metric
from dashboard.queries.filters import Filter, asked_of, derived_of, parse, text
from dashboard.queries.pareto_fronts import axes_of, frontier
from dashboard.widgets import compared_scenarios
from dashboard.widgets.compared_scenarios import explored, remove
from dashboard.widgets.filters.popover import where_of
from dashboard.widgets.needed_statistics import there
from dashboard.widgets.scenario_adder import adder
from dashboard.widgets.tables import ROW, height_of
from dashboard.words.markdown import literal
from dashboard.words.names import in_sentence
from dashboard.words.numbers import ABSENT, format_value, relative
from engine import Exploration, Scenario
from engine.executions.execution_names import execution_name
from engine.recommendation import fit_bounds_of

__all__ = ["chooser", "frontiers", "side_by_side"]

SLOTS: Final = ("pareto_b", "pareto_c", "pareto_d")
"""Link parameters that hold scenarios B to D."""


def chooser(
    first: Scenario, others: Sequence[Member], compared: Sequence[Member], changes: Mapping[str, float]
) -> None:
    """Draws the button behind which scenarios are added and removed.

    others: scenarios B to D. compared: scenarios of the Compare page, the first one included. changes: of
    the What-if page.
    """
    label = f"Other scenarios · {len(others)}" if others else "Other scenarios"
    with st.popover(
        label,
        icon=":material/compare_arrows:",
        key="pareto_others",
        help="Draws the frontiers of up to three other scenarios on the same axes.",
    ):
        for member in others:
            name, more = told(member, first)
            st.button(
                f"{member.letter} · {literal(name)}",
                key=f"pareto_remove_{member.slot}",
                icon=":material/close:",
                on_click=remove,
                args=(member.slot,),
                help=literal(f"Remove it. {more}"),
                width="stretch",
            )
        if len(others) == len(SLOTS):
            st.caption("At most three scenarios can be overlaid. Remove one first.")
            return
        if len(compared) > 1 and not others:
            st.button(
                f"The {len(compared) - 1} of the Compare page",
                key="pareto_compared",
                icon=":material/compare:",
                on_click=compared_scenarios.copy,
                args=(compared_scenarios.SLOTS, SLOTS),
                width="stretch",
            )
        adder(first, changes, SLOTS)


def frontiers(
    exploration: Exploration,
    members: Sequence[Member],
    axes: Sequence[Metric],
    filters: Sequence[Filter],
    upward: tuple[str, ...],
) -> list[Named] | None:
    """Returns the frontiers of the other scenarios, explored if necessary; a caption names those without one.

    Returns None while figures of one are being evaluated, which is drawn then. Filters apply to them, too. members: the
    other scenarios. upward: as in `frontier`.
    """
    others = []
    for member, other in zip(members, explored(members), strict=True):
        name = told(member, exploration.scenario)[0]
        keys = tuple(axis.key for axis in axes)
        missing = set(keys) - set(axes_of(other))
        # The same text, but figures may be derived with another factor there.
        theirs, unread = parse(text(filters), derived_of(other.scenario), bounds=fit_bounds_of(other.scenario))
        why = _why_not(exploration, member, missing) if missing or not other.feasible else " ".join(unread)
        if not why:
            if not there(other, asked_of(theirs, *axes)):
                return None
            ours = frontier(other, other.key, keys, where_of(theirs), upward)
            why = "" if len(ours) else "none of its executions meets the filters."
            others.append(Named(member.letter, name, ours))
        if why:
            st.caption(f"{member.letter} · {literal(name)} is left out: {literal(why)}")
    return [one for one in others if len(one.frontier)]


def _why_not(exploration: Exploration, member: Member, missing: set[str]) -> str:
    if not missing:
        return "none of its executions runs."
    known = axes_of(exploration)
    names = ", ".join(in_sentence(known[key].column.label) for key in sorted(missing))
    return f"{member.scenario.system.name} has no {names}."


def side_by_side(found: pd.DataFrame, axes: Sequence[Metric], others: Sequence[Named], chosen: int | None) -> None:
    """Draws the best of every scenario on the vertical axis within the chosen execution's value on the other axis."""
    if not others or chosen is None or not len(found):
        return
    y, x = axes[0], axes[1]
    here = found[found["id"] == chosen].iloc[0]
    bound = float(here[x.key])
    limit = f"{'at most' if x.column.better == 'lower' else 'at least'} {format_value(x.column, bound)}"
    st.html(markup.head("The same for each scenario", f"the best with {limit} of {in_sentence(x.column.label)}"))
    rows = []
    for letter, name, frontier_of in (("A", "this scenario", found), *others):
        within = (
            frontier_of[frontier_of[x.key] <= bound]
            if x.column.better == "lower"
            else (frontier_of[frontier_of[x.key] >= bound])
        )
        best = _best_row(within, y)
        top = _best_row(frontier_of, y)
        rows.append(
            {
                "": letter,
                "Scenario": name,
                f"{y.column.label} then": ABSENT if best is None else format_value(y.column, best[y.key]),
                "against A": "" if letter == "A" else ABSENT if best is None else relative(best[y.key], here[y.key]),
                "with": ABSENT if best is None else execution_name(best),
                "without the bound": ABSENT if top is None else format_value(y.column, top[y.key]),
                "on its frontier": f"{len(frontier_of):,}",
            }
        )
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        key="pareto_scenarios",
        height=height_of(len(rows)),
        row_height=ROW,
        column_config={"": st.column_config.TextColumn(width=30), "Scenario": st.column_config.TextColumn(width=330)},
        alt="; ".join(f"{row['']} reaches {row[f'{y.column.label} then']}" for row in rows),
    )


def _best_row(rows: pd.DataFrame, axis: Metric) -> dict[str, Any] | None:
    """Return the row that is best on an axis; None without rows."""
    if not len(rows):
        return None
    values = rows[axis.key]
    row = rows.iloc[int(values.argmin() if axis.column.better == "lower" else values.argmax())]
    return {str(name): value for name, value in row.to_dict().items()}
