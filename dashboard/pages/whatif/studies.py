"""The What-if page's studies: which parameter matters, sweeps over one and two, and the system's size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import streamlit as st

from dashboard.charts.elements.markup import head
from dashboard.charts.what_if.surface import Side, Spot, gain_map
from dashboard.charts.what_if.sweep import Stop, sweep_line
from dashboard.charts.what_if.tornado import Swing, tornado
from dashboard.files import exports
from dashboard.link import state
from dashboard.pages.whatif import change_table, marginal, scaling_study
from dashboard.pages.whatif import files as whatif_files
from dashboard.pages.whatif.board import FACTORS, WhatIfBoard
from dashboard.pages.whatif.inputs import WhatIfView
from dashboard.queries.economics import token_flops
from dashboard.widgets.chart import clicked, show
from dashboard.widgets.hardware_changes import put
from dashboard.widgets.job_card import job_card
from dashboard.widgets.link_fields import draw_choice, draw_segments
from dashboard.words.executions import choices
from dashboard.words.numbers import MINUS
from engine import Scenario, whatif
from engine.executions.execution_names import execution_name
from engine.whatif import Parameter, Point
from hardware import System

__all__ = ["draw", "swings_of"]

_ABOUT: Final = {"system": "Hardware", "run": "Run", "model": "Model"}


def pending(view: WhatIfView, again: Callable[[], None]) -> bool:
    """Starts the studies of the page; returns whether any is still running."""
    return WhatIfBoard(view, again).pending


def draw(view: WhatIfView, again: Callable[[], None]) -> bool:
    """Draws the four cards; returns whether a study was still running when they were drawn."""
    board = WhatIfBoard(view, again)
    waiting = board.pending
    with st.container(horizontal=True, gap="small", vertical_alignment="center", key="whatif_around_row"):
        draw_segments(view.fields["around"], label="Around")
        st.caption(
            (
                "The studies change one thing at a time; everything else is as in the base."
                if view.link.around == "base"
                else "The studies keep your changes and change one thing more at a time."
            )
            + " They compare the fastest; System size follows Figures of."
        )
        st.space("stretch")
        name = exports.file_name(board.scenario, "studies", "csv")
        st.download_button(
            "Download",
            data=lambda: whatif_files.file(board),
            file_name=name,
            mime=exports.FORMATS["csv"].mime,
            key="whatif_studies_file",
            on_click="ignore",
            type="tertiary",
            icon=":material/download:",
            help="Results of the studies so far: CSV files and the scenario, in a zip archive.",
        )
    first, second = st.columns(2, gap="medium")
    with first.container(border=True, gap="xsmall", height="stretch"):
        _draw_tornado(board)
    with second.container(border=True, gap="xsmall", height="stretch"):
        _draw_sweep(board)
    first, second = st.columns(2, gap="medium")
    with first.container(border=True, gap="xsmall", height="stretch"):
        _sweep_two(board)
    with second.container(border=True, gap="xsmall", height="stretch"):
        scaling_study.card(board)
    with st.container(border=True, gap="xsmall", key="whatif_table"):
        change_table.card(board)
    return waiting


def _draw_tornado(board: WhatIfBoard) -> None:
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.html(head("Which parameter matters"))
        st.space("stretch")
        draw_segments(board.view.fields["step"], label="Step")
    low, high = FACTORS[board.step]
    told = (f"{MINUS}{board.step} %", f"+{board.step} %") if board.step != "2" else ("÷2", "×2")
    base = board.centre_rate
    swings = swings_of(board.scenario, list(board.tornado.found), base, (low, high))
    chart = board.chart(board.tornado, base, lambda: tornado(swings, told, board.mode))
    show(chart, "whatif_tornado", on_click=_pick_row)
    job_card(board.tornado, mark="tornado")
    if base > 0 and swings:
        marginal.draw(board, swings, high)
    if base > 0:
        together = " Compute grows with power, at the same energy per operation." if "compute" in board.every else ""
        st.caption(
            "Change of the best model FLOP/s when one parameter changes; for hardware it is that of throughput. Bars: "
            f"the whole space searched again. Lines: the layout fixed. Click a bar to sweep it.{together}"
        )
    elif board.tornado.state == "done":
        st.caption(_describe_remedies(board, told))


def swings_of(
    scenario: Scenario, found: Sequence[tuple[Parameter, float, Point]], base: float, factors: tuple[float, float]
) -> list[Swing]:
    """Returns the effect of each parameter on model FLOP per second, hardware parameters first.

    A sample of a longer sequence or of a larger model is more work, so samples per second do not compare.

    Args:
        scenario: scenario of the parameters. found: parameter, factor and point, as from `whatif.sensitivity`.
        base: best throughput without a change [samples/s]. factors: factors of the two bars.
    """
    before = _model_flop(scenario)
    gains: dict[Parameter, dict[float, tuple[float, float]]] = {}
    for which, factor, point in found:
        more = 1.0
        if which.about == "model":
            more = _model_flop(whatif.changed(scenario, {which.name: point.values[which.name]})) / before
        each = _relative_gain(more * point.rate, base), _relative_gain(more * point.kept, base)
        gains.setdefault(which, {})[factor] = each
    missing = (None, None)
    swings = []
    for which, by in gains.items():
        # Whole numbers of the hardware are halved and doubled whatever the factors are.
        down, down_kept = next((gain for factor, gain in by.items() if factor < 1), missing)
        up, up_kept = next((gain for factor, gain in by.items() if factor > 1), missing)
        own = "" if set(by) <= set(factors) else " ÷2, ×2"
        swings.append(Swing(which.name, f"{which.label}{own}", down, up, down_kept, up_kept, _ABOUT[which.about]))
    return sorted(swings, key=lambda swing: list(_ABOUT.values()).index(swing.group))


def _model_flop(scenario: Scenario) -> float:
    """Return the model FLOP of one sample."""
    return token_flops(scenario).model() * scenario.model.seq_size


def _describe_remedies(board: WhatIfBoard, told: tuple[str, str]) -> str:
    """Return a sentence on single changes that make something run."""
    found = [(which.label, factor > 1) for which, factor, point in board.tornado.found if math.isfinite(point.rate)]
    if not found:
        return f"No single parameter makes anything run at {told[0]} or {told[1]}. Try a larger step, or the sweeps."
    ways = ", ".join(f"{label} {told[up]}" for label, up in found)
    return f"Any of these alone makes something run: {ways}."


def _pick_row() -> None:
    if found := clicked("whatif_tornado"):
        state.set_url_value("whatif_one", str(found[0]))


def _draw_sweep(board: WhatIfBoard) -> None:
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.html(head("Sweep one"))
        _choose_parameter("Parameter", board, "one")
    name, which, run = board.one, board.every[board.one], board.sweep
    stops = [
        Stop(point.values[name], point.rate, point.kept, _point_name(point), _point_words(point, board.scenario.system))
        for point in list(run.found)
    ]
    ring = (board.now(name), board.rate) if board.changes else None
    chart = board.chart(
        run,
        ring,
        lambda: sweep_line(stops, which.label, which.unit, board.mode, at_base=which.value, whatif=ring),
    )
    show(chart, "whatif_sweep", on_click=lambda: _pick_value(board, name))
    job_card(run, mark="sweep")
    aside = [other for other in board.changes if other != name]
    tail = " The ring is off the line where other parameters are changed too." if aside and not board.around else ""
    if any(math.isfinite(stop.best) for stop in stops):
        st.caption(f"Bands: degrees of the best. Click a point to try its value.{tail}")


def _pick_value(board: WhatIfBoard, name: str) -> None:
    if found := clicked("whatif_sweep"):
        put(board.scenario, name, float(found[0]))
        board.again()


def _sweep_two(board: WhatIfBoard) -> None:
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.html(head("Sweep two"))
        _choose_parameter("Across", board, "x")
        st.markdown("×", width="content")
        _choose_parameter("Up", board, "y")
    run, x, y = board.two, board.x, board.y
    if run is None:
        st.info("Choose two different parameters.", icon=":material/grid_on:")
        return
    spots = [
        Spot(point.values[x], point.values[y], point.rate, execution_name(point.execution) if point.execution else "")
        for point in list(run.found)
    ]
    sides = _map_side(board, x), _map_side(board, y)
    framed = sides[0].whatif, sides[1].whatif
    against = "what-if" if board.around else "base"
    chart = board.chart(
        run, framed, lambda: gain_map(spots, *sides, board.centre_rate, board.mode, against, board.narrow)
    )
    show(chart, "whatif_two", on_click=lambda: _pick_pair(board, x, y))
    job_card(run, mark="two")
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        draw_segments(board.view.fields["grid"], label="Size")
        of = f"the {against}" if board.centre_rate > 0 else f"the best here, as nothing runs in the {against}"
        st.caption(f"% against {of}. Dotted: base. Frame: nearest to this what-if. Click a cell to try it.")


def _pick_pair(board: WhatIfBoard, x: str, y: str) -> None:
    if found := clicked("whatif_two"):
        with state.one_step():
            for name, value in zip((x, y), found, strict=True):
                put(board.scenario, name, float(value))
        board.again()


def _map_side(board: WhatIfBoard, name: str) -> Side:
    which, values = board.every[name], board.values(name)
    now = board.now(name)
    nearest = min(values, key=lambda value: abs(math.log(value / now)) if now > 0 and value > 0 else abs(value - now))
    return Side(which.label, which.unit, values, which.value, nearest if board.changes else None)


def _choose_parameter(label: str, board: WhatIfBoard, name: str) -> None:
    """Draw a list of parameters without a visible label. name: of the link's field."""
    draw_choice(board.fields[name], label=label, width=172, is_bare=True)


def _relative_gain(rate: float, base: float) -> float:
    return rate / base - 1 if base else math.nan


def _point_name(point: Point) -> str:
    return "" if point.execution is None else execution_name(point.execution)


def _point_words(point: Point, system: System) -> str:
    if point.execution is None:
        return ""
    facts = choices(point.execution, system)
    return f"{execution_name(point.execution)}<br>" + "<br>".join(
        ", ".join(f"{key} {value}" for key, value in facts[start : start + 3]) for start in range(0, len(facts), 3)
    )
