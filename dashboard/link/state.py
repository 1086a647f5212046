"""State of the session for pages: scenario, exploration, selection, theme.

Everything that a link must restore lives in the URL. Pages read and write it through this module only, which keeps a
copy in the session, because switching pages empties the URL.

Pages are drawn from the views that their `parse` reads with `dashboard.link.shared` and `dashboard.link.fields`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Literal, NoReturn

import streamlit as st

from dashboard.compat.session import went_back
from dashboard.link import scenario_parameters, vocabulary
from dashboard.link.open_sessions import mark_open
from engine import Scenario

__all__ = [
    "OWN_RUN",
    "before_switching",
    "begin",
    "change_scenario",
    "complain",
    "current_scenario",
    "has_parameter",
    "has_scenario",
    "link_parameters",
    "one_step",
    "open_scenario",
    "own_id",
    "page",
    "problems",
    "rerun_page",
    "reset_selection",
    "select",
    "select_cell",
    "selected_cell",
    "selected_id",
    "set_scenario",
    "set_url_value",
    "set_url_values",
    "settle",
    "theme_mode",
    "url_value",
    "watcher",
]

OWN_RUN: Final = ("run", "run_from", "run_measured", "run_measured_as")
"""Parameters of a person's own run, which stays when the scenario changes; see `dashboard.link.own_run`."""
_SHARED: Final = (*scenario_parameters.NAMES, "cell", "id", "own", "figures", "tokens", *OWN_RUN)
"""Parameters that every page carries on."""
_COPY: Final = "_url"
_WRITTEN: Final = "_url_written"
_PAGE: Final = "_url_page"
_ASKED: Final = "_url_asked"
"""Parameters that each page has read: on that page, the URL alone determines them."""
_PROBLEMS: Final = "_url_problems"
_HELD: Final = "_url_held"
"""True while writes are not yet sent to the browser, see `one_step`."""
_MENDED: Final = "_url_mended"
"""Set where something that was wrong with the link was put right without a run of the whole page."""
_DEGREES: Final = re.compile(r"(\d{1,9})x(\d{1,9})")


def begin(page: str) -> None:
    """Brings the URL and the session's copy of it together; called once per run, before anything else.

    page: path of the page about to run. A URL that says something about the scenario wins; one that was emptied by
    switching pages is filled in again.
    """
    session = st.session_state
    shown = {name: str(st.query_params[name]) for name in st.query_params}
    first = _COPY not in session
    switched = not first and session[_PAGE] != page
    copy: dict[str, str] = {} if first else session[_COPY]
    own = session.setdefault(_ASKED, {}).setdefault(page, set())
    back = went_back()  # its URL is then all there is
    if switched and not back and not any(name in shown for name in _SHARED):
        _write({name: copy[name] for name in (*_SHARED, *sorted(own)) if name in copy})
    elif first or switched or shown != session[_WRITTEN]:  # a link was opened, or the browser went back
        session.pop(_PROBLEMS, None)  # pages say again what is wrong with what the link says now
        # What other pages remember was not in the URL; what this one asks for is not there if it was not set then.
        gone = set() if first else {*_SHARED, *(own if back else ()), *(() if back and switched else session[_WRITTEN])}
        copy = {**{name: value for name, value in copy.items() if name not in gone}, **shown}
    session[_COPY], session[_PAGE] = copy, page
    session[_WRITTEN] = {name: str(st.query_params[name]) for name in st.query_params}
    session.pop(_MENDED, None)


def current_scenario() -> Scenario:
    """Returns the scenario that the URL names, or the default one. Never raises: see `problems`."""
    return _read_link().scenario


def has_scenario() -> bool:
    """Returns whether the link says anything about the scenario, or pages before did: otherwise it is the default
    one."""
    return any(name in _url_copy() for name in scenario_parameters.NAMES)


def has_parameter(name: str) -> bool:
    """Returns whether the link has a page's own parameter, or the page remembers it."""
    return name in _url_copy()


def problems() -> tuple[str, ...]:
    """Returns a sentence per part of the link that could not be taken as it stands, as far as pages have asked for
    it."""
    strange = vocabulary.unknown(list(st.query_params))
    return (*_read_link().problems, *strange.values(), *st.session_state.get(_PROBLEMS, {}).values())


def complain(name: str, sentence: str | None) -> None:
    """Sets the sentence above the page about a parameter of the link; None removes it."""
    if sentence is None:
        _clear_problem(name)
    else:
        st.session_state.setdefault(_PROBLEMS, {})[name] = sentence


def set_scenario(scenario: Scenario) -> None:
    """Makes a scenario the current one. The selected execution and the reader's own are given up, because ids mean
    other executions now, and a cell that it has not.

    Call it in a widget's callback, or follow it with `st.rerun()`.
    """
    copy = st.session_state[_COPY]
    gone = (
        *scenario_parameters.NAMES,
        "id",
        "own",
        *(() if _cell_of(copy.get("cell", "")) in _scenario_cells(scenario) else ("cell",)),
    )
    for name in gone:
        copy.pop(name, None)
    copy.update(scenario_parameters.parameters_of(scenario))
    st.session_state.pop(_PROBLEMS, None)
    _write({name: copy[name] for name in _SHARED if name in copy}, gone=gone)


def change_scenario(make: Callable[[Scenario], Scenario]) -> None:
    """Replaces the current scenario by one that is made from it; for callbacks, which may come after another change.

    make: returns the new scenario, or its argument if nothing changes; its errors are passed on.
    """
    now = current_scenario()
    changed = make(now)
    if changed is not now:
        set_scenario(changed)


def settle() -> None:
    """Runs the whole page if a fragment has corrected a problem that the box above the page shows.

    Not for callbacks.
    """
    if st.session_state.pop(_MENDED, False):
        rerun_page()


def rerun_page() -> NoReturn:
    """Runs the whole page, from a part of it that runs alone."""
    written = st.session_state.get(_WRITTEN)
    if written is not None and written != {name: str(st.query_params[name]) for name in st.query_params}:
        st.query_params.from_dict(written)  # of two quick clicks the run may know the URL of the first, see `begin`
    st.rerun()


def selected_cell() -> tuple[int, int] | None:
    """Returns the selected (tensor_par, pipeline_par); None when nothing is selected or the scenario has no such
    cell."""
    text = _url_copy().get("cell", "")
    cell, cells = _cell_of(text), _scenario_cells(current_scenario())
    sentence = None
    if text and cell is None:
        sentence = f"The link's cell {text[:40]!r} cannot be read; cells look like 8x4, TP by PP. None is selected."
    elif cell is not None and cell not in cells:
        most = [max((each[place] for each in cells), default=0) for place in (0, 1)]
        there = f"TP goes up to {most[0]:,} and PP up to {most[1]:,} here" if cells else "there are none here"
        sentence = f"The link's cell TP {cell[0]:,} × PP {cell[1]:,} does not exist; {there}. None is selected."
    complain("cell", sentence)
    return cell if sentence is None else None


def select_cell(tensor_par: int | None, pipeline_par: int | None = None) -> None:
    """Selects a cell and gives up the selected execution; None selects nothing."""
    cell = None if tensor_par is None or pipeline_par is None else f"{int(tensor_par)}x{int(pipeline_par)}"
    _set_parameters({"cell": cell, "id": None})


def selected_id() -> int | None:
    """Returns id of the selected execution in the current exploration; None when none is selected."""
    return _id_in("id", "None is selected.")


def own_id() -> int | None:
    """Returns id of the execution that the reader runs, read from a launch configuration; None without one."""
    return _id_in("own", "None is marked as yours.")


def _id_in(name: str, instead: str) -> int | None:
    text = _url_copy().get(name, "")
    if not text:
        _clear_problem(name)
        return None
    if not (text.isdecimal() and len(text) <= 18 and int(text) < current_scenario().space.total):
        last = current_scenario().space.total - 1
        complain(name, f"The link's execution {text[:40]!r} does not exist; ids run from 0 to {last:,}. {instead}")
        return None
    _clear_problem(name)
    return int(text)


def select(execution: int | None) -> None:
    """Selects an execution by id, together with its cell; None selects nothing."""
    if execution is None:
        _set_parameters({"id": None})
    else:
        row = current_scenario().space.table([int(execution)]).iloc[0]
        _set_parameters({"id": str(int(execution)), "cell": f"{row['tensor_par']}x{row['pipeline_par']}"})


def reset_selection() -> None:
    """Selects neither a cell nor an execution."""
    select_cell(None)


def url_value(name: str, default: str, accepted: Collection[str] | re.Pattern[str]) -> str:
    """Returns a page's own parameter of the URL, remembered when pages are switched.

    name: begins with the page's name, such as "pareto_x". accepted: the values there are, or a pattern. Anything else
    in a link counts as the default, and the page says so.
    """
    text = _url_copy().get(name)
    st.session_state.setdefault(_ASKED, {}).setdefault(page(), set()).add(name)
    if text is None:
        _clear_problem(name)
        return default
    good = accepted.fullmatch(text) is not None if isinstance(accepted, re.Pattern) else text in accepted
    if not good:
        sentence = vocabulary.refused(name, text, default, accepted)
        # A second widget for the same parameter may offer less.
        if vocabulary.about(name, text) not in st.session_state.get(_PROBLEMS, {}).get(name, ""):
            complain(name, sentence)
        return default
    _clear_problem(name)
    if name not in st.query_params and text != default:
        _write({name: text})  # remembered from before the page was switched
    return text


def set_url_value(name: str, value: str | None) -> None:
    """Sets a page's own parameter of the URL; None takes it away."""
    _set_parameters({name: value})


def set_url_values(values: Mapping[str, str | None]) -> None:
    """Sets several parameters in one step of the browser's history; None takes one away."""
    _set_parameters(values)


@contextmanager
def one_step() -> Iterator[None]:
    """Makes all changes inside one step of the browser's history, for a click that takes several calls."""
    session = st.session_state
    if session.get(_HELD):
        yield
        return
    session[_HELD] = True
    try:
        yield
    finally:
        session[_HELD] = False
        _tell()


def before_switching(change: Callable[[], None], names: Collection[str] = ()) -> dict[str, str]:
    """Makes a change that the browser learns with the next page; returns that page's parameters.

    names: of that page's own parameters. `st.switch_page` takes the result as `query_params`: sent before it, and once
    more by every parameter that the page remembers, each would be a step of the browser's history.
    """
    session = st.session_state
    held = session.get(_HELD, False)
    session[_HELD] = True
    try:
        change()
    finally:
        session[_HELD] = held
    copy = _url_copy()
    return {name: copy[name] for name in (*_SHARED, *names) if name in copy}


def link_parameters() -> dict[str, str]:
    """Returns the parameters of a link to the current view: scenario, selection, and the page's own."""
    shown = {name: str(st.query_params[name]) for name in st.query_params}
    return {**shown, **scenario_parameters.parameters_of(current_scenario())}


def page() -> str:
    """Returns path of the page that is shown; empty for the first one."""
    return str(st.session_state.get(_PAGE, ""))


def open_scenario(scenario: Scenario, view: Mapping[str, str] | None = None) -> None:
    """Makes a scenario the current one; with a view, the parameters beside it become exactly that.

    What a view says is checked by the page that reads it.
    """
    with one_step():
        set_scenario(scenario)
        if view is None:
            return
        copy = _url_copy()
        for name in [name for name in copy if name not in scenario_parameters.NAMES]:
            del copy[name]
        copy.update({name: value for name, value in view.items() if name not in scenario_parameters.NAMES})
        shared = {name: copy[name] for name in _SHARED if name in copy}
        _write(shared, gone=[name for name in st.session_state[_WRITTEN] if name not in shared])


def theme_mode() -> Literal["light", "dark"]:
    """Returns which of the two themes the browser shows."""
    return "dark" if st.context.theme.type == "dark" else "light"


def watcher() -> str:
    """Returns a name for this session, so that one person's cancelling does not stop what another waits for."""
    return mark_open(str(st.session_state.setdefault("_watcher", secrets.token_hex(8))))


def _read_link() -> scenario_parameters.LinkReading:
    return scenario_parameters.read_scenario(_url_copy())


def _cell_of(text: str) -> tuple[int, int] | None:
    found = _DEGREES.fullmatch(text)
    return None if found is None else (int(found.group(1)), int(found.group(2)))


def _scenario_cells(scenario: Scenario) -> set[tuple[int, int]]:
    return {(cell.tensor_par, cell.pipeline_par) for cell in scenario.space.cells}


def _url_copy() -> dict[str, str]:
    """The session's copy of the URL; empty outside `app.py`, as in a test of a single page."""
    found: dict[str, str] = st.session_state.setdefault(_COPY, {})
    return found


def _set_parameters(values: Mapping[str, str | None]) -> None:
    """Sets parameters in one go; None takes one away."""
    copy = _url_copy()
    for name in values:
        if name in st.session_state.get(_PROBLEMS, {}):
            st.session_state[_MENDED] = True
        _clear_problem(name)
    changed = {name: value for name, value in values.items() if copy.get(name) != value}
    if not changed:
        return
    gone = [name for name, value in changed.items() if value is None]
    for name in gone:
        copy.pop(name, None)
    kept = {name: value for name, value in changed.items() if value is not None}
    copy.update(kept)
    _write(kept, gone=gone)


def _write(values: Mapping[str, str], gone: Collection[str] = ()) -> None:
    """Changes the URL in one step of the browser's history."""
    now = {name: str(st.query_params[name]) for name in st.query_params}
    # Not what the browser says: with a quick second click it does not know yet what the first changed.
    last = st.session_state.get(_WRITTEN, now)
    st.session_state[_WRITTEN] = {**{name: value for name, value in last.items() if name not in gone}, **values}
    if not st.session_state.get(_HELD):
        _tell()


def _tell() -> None:
    """Gives the browser the URL that was written."""
    wanted = st.session_state.get(_WRITTEN)
    if wanted is not None and wanted != {name: str(st.query_params[name]) for name in st.query_params}:
        st.query_params.from_dict(wanted)


def _clear_problem(name: str) -> None:
    st.session_state.get(_PROBLEMS, {}).pop(name, None)
