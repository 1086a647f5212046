"""The Memory page: memory by part, of one execution and of the best of each cell, and other capacities."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts import Chart
from dashboard.charts.elements import markup
from dashboard.charts.elements.palette import MEMORY_KINDS
from dashboard.charts.execution.memory_bars import memory_bars, memory_rows, tier_pieces
from dashboard.charts.explored.memory_requirements import memory_needs
from dashboard.compat.caches import remembered
from dashboard.link import state
from dashboard.link.fields import LinkField, LinkReader
from dashboard.link.figures import FiguresView, parse_figures
from dashboard.link.shared import SharedView, parse_shared
from dashboard.pages.memory.link import MOST_GIB, PAGE_NAME, MemoryLink
from dashboard.queries import accuracy
from dashboard.queries.executions import evaluated
from dashboard.queries.memory_requirements import needs_of, with_hbm
from dashboard.queries.tie_breaking import best_of, plainest
from dashboard.widgets.chart import clicked, show
from dashboard.widgets.controls import given, key_for
from dashboard.widgets.figures import doubts_markup
from dashboard.widgets.link_fields import draw_segments, draw_slider
from dashboard.widgets.memory import capacities, memory_legends, offload_sentence
from dashboard.widgets.nothing_runs import nothing_runs
from dashboard.widgets.subject import Subject, refusal, subject
from dashboard.words.executions import choices
from dashboard.words.names import cell_name
from dashboard.words.numbers import UNLIMITED, count, counted, format_value, gibibytes, plain, relative, share_of
from engine import Exploration
from engine.columns import by_name
from engine.executions.execution_names import execution_name
from engine.store import StoreCondition
from hardware import GIB

HBM: Final = "proc_mem_tier1_cap_req"
HOST: Final = "proc_mem_tier2_cap_req"
_FEW: Final = 14
"""Cells whose bars are shown without scrolling."""


@dataclass(frozen=True, slots=True)
class MemoryView:
    """All that the link says of the page."""

    exploration: Exploration
    mode: str
    """The theme: "light" or "dark"."""
    selection: SharedView
    figures: FiguresView
    """Choice of the execution whose figures are shown."""
    link: MemoryLink
    fields: Mapping[str, LinkField]


def parse(exploration: Exploration) -> MemoryView:
    """Parse the page's part of the link."""
    page = LinkReader(MemoryLink, PAGE_NAME)
    for name in MemoryLink.model_fields:
        page.read(name)
    return MemoryView(exploration, state.theme_mode(), parse_shared(), parse_figures(), page.build(), page.fields)


def render(view: MemoryView) -> None:
    """Draws the page."""
    exploration, mode = view.exploration, view.mode
    needs = _memory_needs(exploration, exploration.key)
    chosen = _nearest_in_cell(exploration, needs, view.selection) or subject(
        exploration, view.selection, view.figures, PAGE_NAME
    )
    if chosen is None:
        nothing_runs(exploration, "memory")
    else:
        refusal(exploration, chosen)
        if chosen.has_figures:
            _draw_strip(exploration, chosen, needs)
        left, right = st.columns([1.45, 1], gap="medium")
        with left.container(border=True, gap="xsmall", height="stretch"):
            _draw_execution(exploration, chosen, mode)
        with right.container(border=True, gap="xsmall", height="stretch"):
            _with_less(view, needs)
    best, least = st.columns(2, gap="medium") if chosen is not None else (None, st.container())
    if best is not None:
        with best.container(border=True, gap="xsmall", height="stretch"):
            _best_of_cells(view)
    with least.container(border=True, gap="xsmall", height="stretch"):
        if chosen is None:
            _another_cell(exploration, None)
        _draw_needs(exploration, needs, mode)


def _nearest_in_cell(exploration: Exploration, needs: pd.DataFrame, selection: SharedView) -> Subject | None:
    """Return the least demanding execution of the selected cell if nothing in it fits; None otherwise."""
    cell = selection.cell
    if cell is None or selection.id is not None:
        return None
    here = needs[(needs["tensor_par"] == cell[0]) & (needs["pipeline_par"] == cell[1]) & ~needs["fits"].astype(bool)]
    if not len(here):
        return None
    return Subject(evaluated(exploration, exploration.key, int(here["id"].iloc[0])), "nearest to fitting in its cell")


@remembered(32)
def _memory_needs(_exploration: Exploration, key: str) -> pd.DataFrame:
    return needs_of(_exploration.scenario)


@remembered(32)
def _best_per_cell(_exploration: Exploration, key: str) -> pd.DataFrame:
    """Return the fastest execution of every cell, with all statistics."""
    cells = _exploration.by_cell()
    cells = cells[cells["feasible"] > 0].sort_values("value", ascending=False, kind="stable")
    cells = cells.drop_duplicates(["tensor_par", "pipeline_par"])
    # The same one of tied executions represents a cell here, in Explore, and in the bar above when picked.
    ids = [plainest(_exploration, key, int(found), "sample_rate").id for found in cells["id"]]
    return _exploration.evaluate_ids(ids)


def _draw_strip(exploration: Exploration, chosen: Subject, needs: pd.DataFrame) -> None:
    row, (capacity, host) = chosen.row, capacities(exploration)
    first, _ = tier_pieces(row)
    names = {kind.key: kind.name for kind in MEMORY_KINDS}
    largest = max(first, key=lambda kind: first[kind])
    need, host_need = float(row[HBM]), float(row[HOST])
    least = needs.sort_values("need", kind="stable").iloc[0]
    fits = int(needs["fits"].sum())
    tiles = [
        markup.Tile("HBM needed", gibibytes(need), share_of(need, capacity), formula=by_name(HBM).description),
        markup.Tile(
            "Free" if need <= capacity else "Too much",
            gibibytes(abs(capacity - need)),
            "of HBM, per GPU",
            "worse" if need > capacity else "",
        ),
        markup.Tile("Largest part", gibibytes(first[largest]), names[largest].lower() + " in HBM"),
        markup.Tile(
            "Host memory",
            gibibytes(host_need),
            f"of {gibibytes(host)}" if math.isfinite(host) and host > 0 else "no second tier",
            formula=by_name(HOST).description,
        ),
        markup.Tile("Throughput", format_value("sample_rate", row["sample_rate"]), execution_name(row)),
        markup.Tile("Cells that fit", f"{fits}", f"of {counted(len(needs), 'TP × PP pair')}"),
        markup.Tile(
            "Least HBM for any",
            gibibytes(least["need"]),
            f"TP {int(least['tensor_par'])} × PP {int(least['pipeline_par'])}",
        ),
    ]
    scenario = exploration.scenario
    strip = markup.figure_strip(accuracy.marked(tiles, scenario, row), accuracy.basis(scenario, row))
    st.html(strip + doubts_markup(scenario, row, chosen.remark))


def _draw_execution(exploration: Exploration, chosen: Subject, mode: str) -> None:
    """Draw the memory of one execution by part."""
    row = chosen.row
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.html(markup.head("Where the memory goes", f"{execution_name(row)}, {chosen.why}; per GPU, peak"))
        st.space("stretch")
        _another_cell(exploration, (int(row["tensor_par"]), int(row["pipeline_par"])))
    if not chosen.has_figures:
        st.caption("An execution rejected for a reason other than memory has no memory figures.")
        st.html(markup.chips(choices(row, exploration.scenario.system)))
        return
    bars = [("", row)]
    best = best_of(exploration)
    if best is not None and best["id"] != chosen.id:
        bars = [("this", row), ("fastest", best)]
    show(memory_bars(bars, capacities(exploration), mode), "memory_one")
    memory_legends(exploration, bars)
    st.html(markup.chips(choices(row, exploration.scenario.system)))
    st.caption(offload_sentence(exploration, row))


def _another_cell(exploration: Exploration, shown: tuple[int, int] | None) -> None:
    """Draw a list of all cells, an alternative to clicking bars. shown: the current one."""
    cells = exploration.by_cell()[["tensor_par", "pipeline_par"]].drop_duplicates().astype(int)
    every = sorted((int(tensor), int(pipeline)) for tensor, pipeline in cells.itertuples(index=False))
    now = shown if shown in every else None
    key = key_for("_memory_cell", now)

    def changed() -> None:
        picked = given(key)
        if picked is not None:
            state.select_cell(*picked)

    st.selectbox(
        "Cell",
        every,
        None if now is None else every.index(now),
        key=key,
        on_change=changed,
        width=150,
        format_func=lambda cell: cell_name(*cell),
        label_visibility="collapsed",
        placeholder="Choose a cell",
    )


def _with_less(view: MemoryView, needs: pd.DataFrame) -> None:
    """Draw the effect of a smaller or larger HBM."""
    exploration = view.exploration
    capacity = exploration.scenario.system.mem1.capacity_gib
    st.html(markup.head("What would fit if", "a GPU had another amount of HBM"))
    largest = float(needs["need"].max()) / GIB if len(needs) else 0.0
    limit = 8 * capacity if capacity * GIB < UNLIMITED else largest
    most = min(max(2, math.ceil(max(min(2 * capacity, limit), min(largest, limit)))), MOST_GIB)
    told = plain(capacity) if capacity * GIB < UNLIMITED else "no limit"
    options = {size: str(size) for size in range(1, most + 1)}
    field = view.fields["hbm"].among(options, max(1, min(most, _default_capacity(exploration, needs))))
    draw_slider(field, label=f"HBM capacity [GiB] · this system has {told}", format="%d GiB")
    wanted = int(field.value)
    now, then = with_hbm(needs, capacity), with_hbm(needs, wanted)
    st.html(
        markup.facts(
            [
                ("cells with an execution", f"{then} of {len(needs)}"),
                ("now", f"{now} of {len(needs)}"),
                ("HBM against now", relative(wanted, capacity) if capacity * GIB < UNLIMITED else "no limit now"),
            ]
        )
    )
    if wanted > capacity:
        gained = then - now
        st.markdown(
            f"**{gained} more cell{'s' if gained != 1 else ''}** would have an execution."
            if gained
            else "No other cell would have an execution."
        )
        st.caption("Their speed needs an exploration with that capacity: change the system.")
        return
    found = _best_within(exploration, exploration.key, wanted)
    if found is None:
        least = gibibytes(needs["need"].min()) if len(needs) else "more"
        st.markdown(f"**Nothing fits in {wanted:,} GiB.** The least demanding execution needs {least}.")
        return
    best = exploration.best
    assert best is not None
    rate = format_value("sample_rate", found["sample_rate"])
    st.html(
        markup.facts(
            [
                ("best throughput then", rate),
                ("against now", relative(found["sample_rate"], best["sample_rate"])),
                ("executions left", f"{count(found['left'])} of {count(exploration.feasible)}"),
            ]
        )
    )
    st.html(markup.chips([("best then", execution_name(found)), *choices(found, exploration.scenario.system)]))
    st.button(
        "Show this execution",
        icon=":material/open_in_full:",
        on_click=state.select,
        args=(int(found["id"]),),
        key="memory_show_within",
    )


def _default_capacity(exploration: Exploration, needs: pd.DataFrame) -> int:
    """Return the slider's default [GiB]: the most HBM with which the best throughput is out of reach.

    If nothing runs: the least HBM with which something would.
    """
    if exploration.best is None:
        return math.ceil(float(needs["need"].min()) / GIB) if len(needs) else 1
    return math.ceil(_least_of_best(exploration, exploration.key) / GIB) - 1


@remembered(64)
def _least_of_best(_exploration: Exploration, key: str) -> float:
    """Return the least HBM of the executions with the best throughput [bytes]."""
    assert _exploration.best is not None
    fastest = [StoreCondition("sample_rate", ">=", float(_exploration.best["sample_rate"]))]
    least = _exploration.rows.page(0, 1, order_by=((HBM, "ascending"),), where=fastest, names=[HBM])
    return float(least.to_pylist()[0][HBM])


@remembered(256)
def _best_within(_exploration: Exploration, key: str, capacity: int) -> dict[str, Any] | None:
    """Return the fastest feasible execution within an HBM capacity [GiB], and the number of such executions; None
    without any.
    """
    where = [StoreCondition(HBM, "<=", capacity * GIB)]
    found = _exploration.rows.top(1, where=where).to_pylist()
    if not found:
        return None
    chosen = plainest(_exploration, key, int(found[0]["id"]), "sample_rate", tuple(where))
    row = _exploration.evaluate_ids([chosen.id]).to_dict("records")[0]
    return {**{str(name): value for name, value in row.items()}, "left": _exploration.rows.count(where)}


def _best_of_cells(view: MemoryView) -> None:
    """Draw the memory of the fastest execution of each cell; a click selects it."""
    exploration, tier, order = view.exploration, view.link.tier, view.link.sort
    st.html(markup.head("The best of each cell", "fastest of every TP × PP pair; click a bar to see it above"))
    with st.container(horizontal=True, gap="small"):
        draw_segments(view.fields["tier"])
        draw_segments(view.fields["sort"])
    rows = _best_per_cell(exploration, exploration.key)
    column = HBM if tier == "hbm" else HOST
    if order == "need":
        rows = rows.sort_values(column, ascending=False, kind="stable")
    elif order == "degrees":
        rows = rows.sort_values(["tensor_par", "pipeline_par"], kind="stable")
    if tier == "host" and not rows[HOST].any():
        st.info("No cell's best execution offloads anything, so host memory is empty.", icon=":material/info:")
        return
    chart = _cells_chart(exploration, exploration.key, tuple(int(value) for value in rows["id"]), tier, view.mode)
    with st.container(height=430 if len(rows) > _FEW else "content", border=False, key="memory_cells_scroll"):
        show(chart, "memory_cells", on_click=_pick_execution)


@st.cache_resource(show_spinner=False, max_entries=32)
def _cells_chart(_exploration: Exploration, key: str, ids: tuple[int, ...], tier: str, mode: str) -> Chart:
    """Return the chart of the best of each cell, cached so that a selection does not redraw it."""
    rows = _best_per_cell(_exploration, key).set_index("id", drop=False).loc[list(ids)]
    number, name = (1, "HBM") if tier == "hbm" else (2, "Host")
    return memory_rows(rows, capacities(_exploration)[number - 1], mode, tier=number, name=name)


@st.cache_resource(show_spinner=False, max_entries=32)
def _needs_chart(_exploration: Exploration, key: str, mode: str) -> Chart:
    return memory_needs(_memory_needs(_exploration, key), capacities(_exploration)[0], mode)


def _pick_execution() -> None:
    if found := clicked("memory_cells"):
        state.select(int(found[2]))


def _pick_cell() -> None:
    if found := clicked("memory_needs"):
        tensor, pipeline = found[:2]
        state.select_cell(int(tensor), int(pipeline))


def _draw_needs(exploration: Exploration, needs: pd.DataFrame, mode: str) -> None:
    """Draw the least HBM with which each cell would have an execution."""
    st.html(markup.head("Minimum HBM per cell", "over all settings; hatched does not fit"))
    fits = int(needs["fits"].sum())
    if len(needs) and fits == len(needs):
        which = "The one cell has" if fits == 1 else f"All {fits:,} cells have"
        st.caption(f"{which} an execution that fits. The bars show how much smaller HBM could be.")
    elif len(needs):
        nearest = needs.iloc[0]
        lacking = gibibytes(float(nearest["need"]) - capacities(exploration)[0])
        where = f"TP {int(nearest['tensor_par'])} × PP {int(nearest['pipeline_par'])}"
        st.caption(
            f"In {len(needs) - fits:,} of {counted(len(needs), 'cell')} nothing fits. With no more host memory than "
            f"there is, {where} is nearest: it lacks {lacking} of HBM. {_describe_remedies(needs)}"
        )
    others = len(exploration.by_cell().drop_duplicates(["tensor_par", "pipeline_par"])) - len(needs)
    if others > 0:
        fail = "cell fails" if others == 1 else "cells fail"
        st.caption(f"{others:,} other {fail} for reasons besides HBM; the map names them.")
    # Long lists scroll; short ones are as high as their rows.
    with st.container(height=430 if len(needs) > _FEW else "content", border=False, key="memory_needs_scroll"):
        chart = _needs_chart(exploration, exploration.key, mode)
        show(chart, "memory_needs", on_click=_pick_cell)


def _describe_remedies(needs: pd.DataFrame) -> str:
    """Return a sentence on remedies besides more memory, which are named at the bars."""
    without = int((~needs["fits"] & (needs["remedy"] == "")).sum())
    if without == int((~needs["fits"]).sum()):
        return "Only more memory would make any of them fit." if without > 1 else "Only more memory would make it fit."
    told = "At each bar: what would make it fit besides more memory"
    return f"{told}; no remedy named: only more memory helps." if without else f"{told}."
