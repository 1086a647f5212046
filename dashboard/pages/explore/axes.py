"""The axes of the map on the Explore page: any two fields, and small multiples by a third."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import pandas as pd
import streamlit as st

from dashboard.charts.elements.markup import MAY_FIT, NOT_FITTING, NOT_NUMBERED, in_unit
from dashboard.charts.explored.best_map import numbered
from dashboard.compat.caches import remembered
from dashboard.link import state
from dashboard.link.fields import LinkReader
from dashboard.link.shared import SharedView
from dashboard.pages.explore.link import MapLink
from dashboard.queries import explorations as data
from dashboard.queries.economics import Metric, metrics, unstored_metrics
from dashboard.queries.filters import FILTERABLE, PATTERN, Filter, conditions, parse, text
from dashboard.queries.scenario_edits import altered, datatypes_of
from dashboard.queries.tie_breaking import plainest
from dashboard.widgets.controls import given, key_for
from dashboard.widgets.needed_exploration import explorations_of
from dashboard.widgets.window import is_narrow
from dashboard.words.names import in_sentence, named_value
from dashboard.words.numbers import ABSENT, count, counted, scale_for, shortfall
from engine import Exploration
from engine.columns import Column
from hardware import network_names

__all__ = [
    "MOST_FACETS",
    "Axes",
    "BestOfFiltered",
    "best_rates",
    "cells_for",
    "chosen",
    "group_of",
    "in_other_datatypes",
    "pair_legend",
    "parse_axes",
    "pick",
    "pick_group",
    "without_facet",
]

MOST_FACETS: Final = 6
"""Most small multiples shown; for a field with more values, those with the best executions."""
_FIELDS: Final = (*data.OF_THE_MAP, *data.CHOICES)
_X: Final = ("map_x", "pipeline_par")
_Y: Final = ("map_y", "tensor_par")
_FACET: Final = "map_facet"
_DATATYPE: Final = "datatype"
"""A third field with one exploration per value."""
_AT: Final = "map_at"
"""Link parameter of the selected cell of a map with other axes than tensor by pipeline parallel."""


@dataclass(frozen=True, slots=True)
class Axes:
    """Names of the fields along the axes of the map and of its small multiples."""

    x: str
    y: str
    facet: str | None

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields that identify a cell of the map."""
        return (self.y, self.x) if self.facet is None else (self.y, self.x, self.facet)

    @property
    def columns(self) -> tuple[Column, Column, Column | None]:
        """The register's columns of the fields: across, down, panels."""
        return FILTERABLE[self.x], FILTERABLE[self.y], None if self.facet is None else FILTERABLE[self.facet]

    @property
    def degrees(self) -> bool:
        """True for a map of tensor and pipeline parallel degree, for which obstacles are known."""
        return {self.x, self.y} == {"tensor_par", "pipeline_par"}

    @property
    def of_cells(self) -> bool:
        """True if a cell of the map is a cell of the space."""
        return self.degrees and self.facet is None

    @property
    def usual(self) -> bool:
        """True for the default axes."""
        return self.of_cells and self.x == _X[1]

    @property
    def of_datatypes(self) -> bool:
        """True for a map per datatype of the system."""
        return self.facet == _DATATYPE


def parse_axes(exploration: Exploration) -> tuple[Axes, LinkReader[MapLink]]:
    """Parse the part of the link about the map: its axes, by default tensor by pipeline parallel, and all fields."""
    reader = LinkReader(MapLink, "map")
    offered = _offered_fields(exploration, exploration.key)
    x = reader.read("x", options=_labels([*offered, _X[1]]))
    first = _Y[1] if x != _Y[1] else _X[1]
    y = reader.read("y", default=first, options=_labels([one for one in [*offered, first] if one != x]))
    facets = [one for one in [*_facets_offered(exploration), "none"] if one not in (x, y)]
    facet = reader.read("facet", options=_labels(facets))
    reader.read("at", pattern=PATTERN)
    for name in ("domain", "table"):
        reader.read(name)
    none = facet == "none" or (facet != _DATATYPE and not exploration.feasible)  # no values without executions
    return Axes(x, y, None if none else facet), reader


@remembered(64)
def _offered_fields(_exploration: Exploration, key: str) -> list[str]:
    """Return the fields that take more than one value in the space."""
    return [name for name in _FIELDS if len(data.options_of(_exploration, name)) > 1]


def _labels(names: Sequence[str]) -> dict[str, str]:
    return {name: "no third field" if name == "none" else FILTERABLE[name].label for name in names}


def _facets_offered(exploration: Exploration) -> list[str]:
    several = len(datatypes_of(exploration.scenario)) > 1
    return [*([_DATATYPE] if several else []), *_offered_fields(exploration, exploration.key)]


def in_other_datatypes(exploration: Exploration, axes: Axes) -> list[Exploration]:
    """Returns the same scenario in the other datatypes of the system, for a map per datatype.

    Shows the progress of the first that is not yet explored, and stops the page until then; empty for other maps.
    """
    if not axes.of_datatypes:
        return []
    scenario = exploration.scenario
    others = [name for name in datatypes_of(scenario) if name != scenario.datatype]
    return explorations_of([altered(scenario, datatype=name) for name in others], state.watcher())


def pick(exploration: Exploration, axes: Axes) -> None:
    """Draws the choosers of the axes."""
    offered = _offered_fields(exploration, exploration.key)

    def put(x: str, y: str, facet: str | None) -> None:
        usual = _Y[1] if x != _Y[1] else _X[1]
        across, up = None if x == _X[1] else x, None if y == usual else y
        state.set_url_values({_X[0]: across, _Y[0]: up, _FACET: facet, _AT: None})

    now = {_X[0]: axes.x, _Y[0]: axes.y, _FACET: axes.facet or "none"}
    keys = {name: key_for(f"_{name}", value) for name, value in now.items()}

    def changed() -> None:
        x, y, facet = (given(keys[name]) for name in (_X[0], _Y[0], _FACET))
        if x == y:  # swap the axes
            x, y = (axes.y, axes.x)
        put(x, y, None if facet in ("none", x, y) else facet)

    words = {_X[0]: "Across", _Y[0]: "Up", _FACET: "One map per"}
    with st.container(horizontal=True, gap="small"):
        for name, value in now.items():
            options = offered
            if name == _FACET:
                options = ["none", *(one for one in _facets_offered(exploration) if one not in (axes.x, axes.y))]
            options = options if value in options else [value, *options]
            st.selectbox(
                words[name],
                options,
                options.index(value),
                key=keys[name],
                on_change=changed,
                width=170,
                format_func=lambda one: "no third field" if one == "none" else FILTERABLE[one].label,
            )
    if not axes.usual:
        st.button("Back to TP × PP", key="map_reset", type="tertiary", on_click=put, args=(_X[1], _Y[1], None))


def without_facet() -> None:
    """Makes one map of the small multiples."""
    state.set_url_values({_FACET: None, _AT: None})


@remembered(128)
def _best_per_group(
    _exploration: Exploration, key: str, fields: tuple[str, ...], statistic: str, where: data.Where
) -> pd.DataFrame:
    """Return the number of executions, the best value, its id and whether it only may fit per combination of fields."""
    found = _exploration.rows.best_by(fields, statistic, where=where)
    table = pd.DataFrame({name: found[name].to_pylist() for name in found.column_names})
    return table.assign(may_fit=_exploration.exceed_capacity(table["id"]))


def cells_for(
    exploration: Exploration, axes: Axes, metric: Metric, where: data.Where, others: Sequence[Exploration] = ()
) -> tuple[pd.DataFrame, tuple[int, int]]:
    """Returns the cells of the map for `charts.best_map`, and (values of the third field shown, all its values).

    others: see `in_other_datatypes`.
    """
    if axes.of_datatypes:
        parts = []
        for one in (exploration, *others):
            known = metrics(one.scenario) | unstored_metrics(one.scenario)
            own = known[metric.key]  # utilisation is relative to the datatype's own peak
            part, _ = cells_for(one, replace(axes, facet=None), own, where)
            parts.append(part.assign(**{_DATATYPE: one.scenario.datatype}))
        cells = pd.concat(parts, ignore_index=True)
        return _name_cells(cells, axes, network_names(exploration.scenario.system)), (len(parts), len(parts))
    found = _best_per_group(exploration, exploration.key, axes.fields, metric.ranked_by, where)
    cells = found.assign(value=data.values_of(exploration, metric, found))
    shown, had = _best_facets(cells, axes, metric)
    if axes.facet is not None:
        cells = cells[cells[axes.facet].isin(shown)].reset_index(drop=True)
    cells["label"], cells["why"] = "", ""
    if axes.degrees:
        cells = pd.concat([cells, *_empty_cells(exploration, cells, axes, shown)], ignore_index=True)
    return _name_cells(cells, axes, network_names(exploration.scenario.system)), (len(shown), had)


def _name_cells(cells: pd.DataFrame, axes: Axes, networks: tuple[str, ...]) -> pd.DataFrame:
    """Add to cells their place on the map and their name. networks: names of the system's networks."""
    cells["x"], cells["y"] = cells[axes.x], cells[axes.y]
    cells["facet"] = cells[axes.facet] if axes.facet is not None else ""
    members = cells[list(axes.fields)].astype(object).values.tolist()
    parts = [_cell_filters(axes, row) for row in members]
    cells["at"], cells["name"] = [text(row) for row in parts], [_cell_title(row, networks) for row in parts]
    cells["may_fit"] = [bool(pd.notna(mark) and mark) for mark in cells["may_fit"]]  # cells of no execution have none
    marks = [" · the best may fit" if mark else "" for mark in cells["may_fit"]]
    tallies = [counted(number, "execution") if number else "" for number in cells["rows"]]
    cells["tally"] = [tally + mark for tally, mark in zip(tallies, marks, strict=True)]
    return cells


def _best_facets(cells: pd.DataFrame, axes: Axes, metric: Metric) -> tuple[list[Any], int]:
    """Return (values of the third field with the best executions, number of its values)."""
    if axes.facet is None:
        return [], 0
    lower = metric.column.better == "lower"
    values = cells.groupby(axes.facet)["value"]
    best = (values.min() if lower else values.max()).sort_values(ascending=lower, kind="stable")
    return best.index[:MOST_FACETS].tolist(), len(best)


def _empty_cells(exploration: Exploration, cells: pd.DataFrame, axes: Axes, shown: Sequence[Any]) -> list[pd.DataFrame]:
    """Return the cells of the space that have no matching execution, with the known reasons, once per panel."""
    known = data.cells_of(exploration, metrics(exploration.scenario)["sample_rate"])  # any metric will do
    pairs = ["tensor_par", "pipeline_par"]
    parts = []
    for panel in shown or [None]:
        here = cells if panel is None else cells[cells[axes.facet or ""] == panel]
        present = set(zip(here[pairs[0]], here[pairs[1]], strict=True))
        rows = [
            {
                pairs[0]: row[pairs[0]],
                pairs[1]: row[pairs[1]],
                "value": float("nan"),
                "rows": 0,
                "id": -1,
                "label": "" if row["feasible"] else shortfall(row["shortfall_bytes"]),
                "why": f"None of the {count(row['feasible'])} feasible executions with these degrees meets the filters."
                if row["feasible"]
                else str(row["reason_text"]),
                **({} if axes.facet is None else {axes.facet: panel}),
            }
            for row in known.to_dict("records")
            if (row[pairs[0]], row[pairs[1]]) not in present
        ]
        if rows:
            parts.append(pd.DataFrame(rows))
    return parts


def _cell_filters(axes: Axes, values: Sequence[Any]) -> list[Filter]:
    return [Filter(FILTERABLE[name], (value,)) for name, value in zip(axes.fields, values, strict=True)]


def _cell_title(members: Sequence[Filter], networks: tuple[str, ...]) -> str:
    """Return the name of a cell: "TP 8 × PP 4", "Microbatch 2 × Recompute none"."""
    parts = []
    for one in members:
        name = one.column.short if one.column.name in ("tensor_par", "pipeline_par", "data_par") else one.column.label
        parts.append(f"{name} {named_value(one.column, one.values[0], networks)}")
    return " × ".join(parts)


def chosen(axes: Axes, cells: pd.DataFrame, metric: Metric, shared: SharedView, given: str) -> str | None:
    """Returns the `at` of the panel's cell: the selected one, otherwise the best; None without any.

    given: the selected cell of a map with other axes than tensor by pipeline parallel, as the link has it.
    """
    wanted = ""
    if axes.of_cells:
        cell = shared.cell
        if cell is not None:
            value = dict(zip(("tensor_par", "pipeline_par"), cell, strict=True))
            wanted = text(_cell_filters(axes, [value[name] for name in axes.fields]))
    else:
        filters, problems = parse(given)
        wanted = text(filters)
        if problems or (wanted and wanted not in set(cells["at"])):
            state.complain(_AT, f"The link's cell {given[:40]!r} is not on this map. Showing the best instead.")
    if axes.of_datatypes:  # other datatypes' maps are only there to be chosen
        cells = cells[cells[_DATATYPE] == shared.scenario.datatype]
    if wanted and wanted in set(cells["at"]):
        return wanted
    known = cells[cells["value"].notna()]
    if not len(known):
        return None
    return str(known.sort_values("value", ascending=metric.column.better == "lower", kind="stable")["at"].iloc[0])


class BestOfFiltered(NamedTuple):
    """Best and number of the executions that meet conditions."""

    id: int
    """Id of the execution with the best throughput; -1 without any."""
    number: int
    cells: int
    """Number of their pairs of tensor and pipeline parallel degree."""
    rate: float
    """Best throughput [samples/s]; NaN without any."""


def best_rates(exploration: Exploration, where: data.Where) -> BestOfFiltered:
    """Returns the best by throughput of the executions that meet conditions, and their number."""
    found = _best_per_group(exploration, exploration.key, ("tensor_par", "pipeline_par"), "sample_rate", where)
    if not len(found):
        return BestOfFiltered(-1, 0, 0, float("nan"))
    best = found.sort_values(["value", "id"], ascending=[False, True], kind="stable")
    return BestOfFiltered(int(best["id"].iloc[0]), int(found["rows"].sum()), len(found), float(best["value"].iloc[0]))


def pair_legend(axes: Axes, cells: pd.DataFrame, metric: Metric, facets: tuple[int, int], *, filtered: bool) -> str:
    """Returns the caption line under a map along any axes."""
    unit = scale_for(metric.column, cells["value"]).unit
    among = "the executions that meet the filters" if filtered else "all other choices"
    best = "fastest" if metric.ranked_by == "sample_rate" else "best"
    parts = [f"Each cell: the {best} of {among}{in_unit(unit)}.", f"★ {best} of {'these' if filtered else 'all'}"]
    if cells["may_fit"].any():
        parts.append(MAY_FIT)
    if not numbered(cells, narrow=is_narrow()):
        parts.append(NOT_NUMBERED)
    if axes.of_datatypes:
        parts.append("a click on a map of another datatype changes to it")
    if facets[1] > facets[0]:
        parts.append(f"{facets[0]} of {facets[1]} maps: those with the best executions")
    if axes.degrees:
        empty = cells[cells["value"].isna()]
        if (empty["label"] != "").any():
            parts.append(NOT_FITTING)
        if (empty["label"] == "").any():
            what = f"has this {in_sentence(FILTERABLE[axes.fields[-1]].label)}"
            what = "meets the filters" if filtered or axes.of_datatypes else what
            parts.append(f"{ABSENT} or grey: some fit, none of them {what}")
        parts.append("· no execution")
    else:
        parts.append("· nothing runs; distances from fitting are known for TP × PP only")
    return f'<div class="ss-legend">{"".join(f"<span>{part}</span>" for part in parts)}</div>'


def pick_group(
    explorations: Sequence[Exploration], axes: Axes, at: str, execution: int, metric: Metric, where: data.Where
) -> None:
    """Selects the clicked cell of the map, and its best execution if it is not a cell of the space.

    explorations: the explorations on the map, the scenario's own first, see `in_other_datatypes`. execution: the best
    by the metric; any of equal ones.
    """
    filters, problems = parse(at)
    if problems or {one.column.name for one in filters} != set(axes.fields):
        return
    values = {one.column.name: one.values[0] for one in filters if one.values}
    if axes.of_cells:
        state.select_cell(int(values["tensor_par"]), int(values["pipeline_par"]))
        return
    elsewhere = axes.of_datatypes and values[_DATATYPE] != explorations[0].scenario.datatype
    with state.one_step():
        if elsewhere:
            state.change_scenario(lambda now: altered(now, datatype=str(values[_DATATYPE])))
        state.set_url_value(_AT, at)
        if execution >= 0:
            one = next(e for e in explorations if not axes.of_datatypes or e.scenario.datatype == values[_DATATYPE])
            both = (*where, *data.frozen(conditions(filters)))
            state.select(plainest(one, one.key, execution, metric.ranked_by, both).id)
    if elsewhere:
        st.rerun()  # the whole page, not the part of it that holds the map


def group_of(
    exploration: Exploration, axes: Axes, cells: pd.DataFrame, at: str, metric: Metric, where: data.Where
) -> data.Group:
    """Returns the group of executions that the panel shows for a cell of the map."""
    row = cells[cells["at"] == at].iloc[0]
    filters, _ = parse(at)
    lower = metric.column.better == "lower"
    best = float(cells["value"].min() if lower else cells["value"].max())
    cell = (int(row["tensor_par"]), int(row["pipeline_par"])) if axes.of_cells else None
    both = (*where, *data.frozen(conditions(filters)))
    members = () if axes.of_cells else tuple(filters)
    return data.Group(str(row["name"]), both, int(row["id"]), int(row["rows"]), best, cell, members)
