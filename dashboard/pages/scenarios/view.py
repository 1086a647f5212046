"""The Scenarios page: scenarios saved and explored on this server, and their actions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements.markup import chips, facts, head
from dashboard.compat.front_end import rows
from dashboard.files import report
from dashboard.jobs import explored_scenarios
from dashboard.jobs.explored_scenarios import OUTDATED, BestExecution, Entry, age, best_of, size
from dashboard.jobs.server import explorations
from dashboard.link import page_links, state
from dashboard.link.document_validation import Refused
from dashboard.link.fields import LinkField, LinkReader
from dashboard.link.figures import PARAMETER, FiguresView, parse_figures
from dashboard.link.shared import parse_shared
from dashboard.link.user_files import LONGEST_TITLE, user_files
from dashboard.pages.scenarios import studies
from dashboard.pages.scenarios.link import ScenariosLink
from dashboard.pages.scenarios.upload import opener
from dashboard.queries.document_sheets import changes_in_words
from dashboard.queries.economics import mfu_label, utilisation
from dashboard.queries.figures import WORKING, ChosenExecution, choose_execution
from dashboard.widgets import compared_scenarios, share
from dashboard.widgets.clicks import was_clicked
from dashboard.widgets.controls import menu_key, shut
from dashboard.widgets.figures import draw_doubts, patience_s, watch_figures
from dashboard.widgets.link_fields import draw_segments
from dashboard.widgets.needed_exploration import seen_with
from dashboard.widgets.tables import ROW
from dashboard.words.limits import describe
from dashboard.words.markdown import literal
from dashboard.words.numbers import ABSENT, counted, format_value, percent, plain
from dashboard.words.scenarios import name_of, sentence_of
from dashboard.words.studies import told_of
from engine import Scenario
from engine.executions.execution_names import execution_name
from engine.store import StoreError

__all__ = ["ScenariosView", "parse", "render"]

PER_PAGE: Final = 20
MOST_COMPARED: Final = 4
_TWO_LINES: Final = rows(2)
"""Height of a row whose title has two lines [px]: in a window 1,280 wide most take both."""
_IDENTS: Final = re.compile(r"[0-9a-f.]{0,200}")


@dataclass(frozen=True, slots=True)
class ScenariosView:
    """The page's part of the link."""

    picked: tuple[str, ...]
    """Identifiers of the picked entries, in order; empty for the first of the list."""
    kind: LinkField
    """The kind of entries that are listed."""
    scenario: Scenario
    """The scenario that other pages are about."""
    figures: FiguresView
    """Choice of the execution whose figures a card shows."""


def parse() -> ScenariosView:
    """Parse the page's part of the link."""
    reader = LinkReader(ScenariosLink, "scenarios")
    picked = reader.read("pick", pattern=_IDENTS)
    reader.read("kind")
    idents = tuple(part for part in picked.split(".") if part)[:MOST_COMPARED]
    return ScenariosView(idents, reader.fields["kind"], parse_shared().scenario, parse_figures())


def render(view: ScenariosView) -> None:
    """Draws the page."""
    server, files = explorations(), user_files()
    for problem in files.problems:
        st.warning(literal(problem), icon=":material/draft:")
    with st.container(horizontal=True, vertical_alignment="center", key="scenarios_bar"):
        wanted = st.text_input(
            "Search",
            key="scenarios_search",
            placeholder="Search titles, models, systems",
            width=300,
            max_chars=200,
            label_visibility="collapsed",
            icon=":material/search:",
        )
        draw_segments(view.kind, label="Which")
        st.space("stretch")
        draw_segments(view.figures.choice)
        opener(view.scenario, view.figures.question)
    found = explored_scenarios.entries(files, server)
    if not found:
        st.info(
            "Nothing here yet. Every exploration appears on this page by itself; Save, above any map, gives one a "
            "title. Open a file opens a scenario or comparison that you received.",
            icon=":material/bookmarks:",
        )
        return
    shown = [entry for entry in explored_scenarios.searched(found, wanted or "") if _is_shown(entry, view.kind.value)]
    if not shown:
        st.info(f"None of the {len(found):,} entries matches.", icon=":material/search_off:")
        return
    page = _page_number(len(shown))
    here = shown[(page - 1) * PER_PAGE : page * PER_PAGE]
    left, right = st.columns([1.86, 1], gap="medium")
    with left:
        _draw_list(here, view.picked)
        _draw_tally(found, shown)
    picked = [entry for ident in view.picked for entry in found if entry.ident == ident] or here[:1]
    with right.container(border=True, gap="small", key="scenarios_panel"):
        if len(picked) > 1:
            _draw_entries(picked)
        else:
            _draw_entry(picked[0], view.figures)


def _is_shown(entry: Entry, kind: str) -> bool:
    if kind == "studies":
        return entry.study is not None
    if kind == "saved":
        return entry.saved is not None or entry.study is not None
    return kind == "all" or entry.record is not None or entry.job is not None


def _page_number(rows: int) -> int:
    pages = -(-rows // PER_PAGE)
    if pages == 1:
        return 1
    return min(pages, int(st.pagination(pages, key=f"scenarios_page_{pages}")))


def _pick_entries(idents: Sequence[str]) -> None:
    state.set_url_value("scenarios_pick", ".".join(idents) or None)


def _draw_list(here: Sequence[Entry], picked: Sequence[str]) -> None:
    """Draw the page of the list; picked rows are shown in the panel."""
    found = [best_of(entry, explorations()) for entry in here]
    frame_shown = pd.DataFrame(
        {
            "Title": [entry.title for entry in here],
            "Scenario": [_describe_entry(entry) for entry in here],
            "samples/s": [None if best is None else best.rate for best in found],
            "Fastest": [
                "outdated" if entry.problem == OUTDATED else _best_name(best)
                for entry, best in zip(here, found, strict=True)
            ],
            "Size": [size(entry.record.bytes) if entry.record is not None else _job_state(entry) for entry in here],
            "Age": [age(entry.seconds) if entry.seconds else "this session" for entry in here],
        }
    )
    idents = [entry.ident for entry in here]
    key = f"scenarios_table_{hash(tuple(idents)) & 0xFFFFFFFF:x}"

    def chosen() -> None:
        rows = st.session_state[key]["selection"]["rows"]
        _pick_entries([idents[row] for row in rows][:MOST_COMPARED])

    now = [index for index, ident in enumerate(idents) if ident in picked]
    written = frame_shown.style.format(_format_rate, subset=["samples/s"])
    st.dataframe(
        written,
        key=key,
        hide_index=True,
        on_select=chosen,
        selection_mode="multi-row",
        selection_default={"selection": {"rows": now, "columns": [], "cells": []}},
        height=min(738, ROW + 2 + _TWO_LINES * len(here)),
        row_height=_TWO_LINES,
        placeholder="–",
        column_config={
            "Title": st.column_config.TextColumn(width=266, help="Title given when saved, otherwise model and system."),
            "Scenario": st.column_config.TextColumn(
                width=188, help="What was edited in model and system, datatype, largest batch, limits, cost model."
            ),
            "samples/s": st.column_config.NumberColumn(width=72, help="Throughput of the fastest."),
            "Fastest": st.column_config.TextColumn(
                width=128, help="Degrees of the fastest execution; outdated: of an older version of the cost model."
            ),
            "Size": st.column_config.TextColumn(width=68, help="Size of the results in the store."),
            "Age": st.column_config.TextColumn(width=80, help="Time since it was saved, otherwise explored."),
        },
        alt=f"{len(here)} scenarios with their best throughput, size and age",
    )


def _format_rate(rate: object) -> str:
    """Return a throughput in the list's format; empty, drawn as a dash, without one."""
    return plain(rate, 4) if isinstance(rate, float) and not math.isnan(rate) else ""


def _describe_entry(entry: Entry) -> str:
    """Return the features that tell a scenario from others with the same title: edits first."""
    if entry.study is not None:
        return told_of(entry.study.study)
    scenario = entry.scenario
    if scenario is None:
        return "cannot be read"
    edited = [change for thing in (scenario.model, scenario.system) for change in changes_in_words(thing)]
    more = f" and {len(edited) - 2} more" if len(edited) > 2 else ""
    shown = f"{'; '.join(edited[:2])}{more}" if edited else ""
    return " · ".join(filter(None, (shown, sentence_of(scenario))))


def _best_name(best: BestExecution | None) -> str | None:
    if best is None:
        return None
    return best.name if best.rate is not None else "nothing fits"


def _job_state(entry: Entry) -> str:
    if entry.study is not None:
        return "–"
    if entry.job is None:
        return "not explored"
    return "in memory" if entry.job.ended else entry.job.state


def _draw_tally(found: Sequence[Entry], shown: Sequence[Entry]) -> None:
    records = {entry.key: entry.record for entry in found if entry.record is not None}
    room = size(sum(record.bytes for record in records.values()))
    saved = sum(entry.saved is not None or entry.study is not None for entry in found)
    words = f"{len(shown):,} of {len(found):,} shown · " if len(shown) < len(found) else ""
    st.caption(
        f"{words}{saved:,} saved · {counted(len(records), 'exploration')} in the store, {room}. "
        "All users of this server see this list."
    )


def _draw_duplicate(entry: Entry) -> None:
    st.button(
        "Duplicate",
        icon=":material/content_copy:",
        key="scenarios_duplicate",
        on_click=_toast_refusal,
        args=(lambda: _duplicate_entry(entry),),
        help="Saves a second entry to rename or change.",
    )


def _draw_entry(entry: Entry, figures: FiguresView) -> None:
    """Draw the content of an entry, and its actions."""
    if entry.study is not None:
        studies.summary(entry.study)
        with st.container(horizontal=True):
            studies.open_kept(entry.study)
            _draw_rename(entry)
            _draw_duplicate(entry)
            _draw_delete(entry)
        return
    st.html(head(entry.title, "saved" if entry.saved is not None else "explored"))
    if entry.problem:
        st.warning(literal(entry.problem), icon=":material/error:")
    scenario = entry.scenario
    if scenario is None:
        _draw_delete(entry)
        return
    best = best_of(entry, explorations())
    if best is not None and best.rate is not None:
        _draw_figures(entry, scenario, best, figures)
    elif best is not None:
        none = f"None of {counted(best.total, 'execution')} fits." if best.total else "No execution within the limits."
        st.caption(none)
    elif not entry.problem:
        st.caption(f"Not explored here: {counted(scenario.space.total, 'execution')}. Opening it explores them.")
    pairs = [
        ("model", scenario.model.title or scenario.model.name),
        ("GPUs", f"{scenario.num_procs:,}"),
        ("system", scenario.system.title or scenario.system.name),
        ("for", sentence_of(scenario)),
    ]
    if entry.record is not None:
        pairs += [("size", size(entry.record.bytes)), ("explored", age(entry.record.created_at.timestamp()))]
    st.html(chips(pairs))
    if scenario.field_limits:
        st.markdown(f":gray[Limits: {describe(scenario.field_limits, scenario.system)}]")
    for noun, thing in (("Model", scenario.model), ("System", scenario.system)):
        if thing.changes:
            st.caption(literal(f"{noun} edited from {thing.derived_from}: {'; '.join(changes_in_words(thing)[:4])}."))
    _draw_actions(entry, figures)


def _draw_figures(entry: Entry, scenario: Scenario, best: BestExecution, figures: FiguresView) -> None:
    """Draw the figures of the recommended or the fastest execution, with what speaks against it."""
    found = explorations().request(scenario, state.watcher()).exploration if _is_explored(entry) else None
    chosen = ChosenExecution(None, False)
    if found is not None:
        chosen = choose_execution(found, figures.question, patience_s=patience_s())
        if chosen.is_pending:
            watch_figures(found, figures.question, (), None, (), "scenarios_figures")
    shown = chosen.shown
    rate = best.rate if shown is None else float(shown.execution["sample_rate"])
    assert rate is not None
    feasible = ("feasible", percent(best.feasible / best.total if best.total else 0))
    if chosen.is_pending:
        st.html(facts([("recommended", ABSENT), (mfu_label(scenario), ABSENT), feasible]))
        st.caption(WORKING)
        return
    role = "fastest" if shown is None else shown.figures_of
    name = best.name if shown is None else execution_name(shown.execution)
    mfu = percent(utilisation(scenario, rate))
    st.html(facts([(role, format_value("sample_rate", rate)), (mfu_label(scenario), mfu), feasible]))
    st.caption(f"{name} is the {role} of {counted(best.total, 'execution')}.")
    if shown is not None:
        draw_doubts(scenario, shown.execution, shown.remark)


def _draw_actions(entry: Entry, figures: FiguresView) -> None:
    scenario = entry.scenario
    assert scenario is not None
    saved = entry.saved
    view = None if saved is None else saved.view
    page = "" if saved is None else saved.page
    compared = share.compared(scenario, page, view)
    with st.container(horizontal=True):
        if was_clicked("Open", type="primary", icon=":material/open_in_full:", key="scenarios_open"):
            parameters = state.before_switching(lambda: state.open_scenario(scenario, view), view or ())
            there = page if page_links.exists(page) else "explore"
            st.switch_page(page_links.target(there), query_params=parameters)
        with st.popover("Share", icon=":material/link:"):
            share.offer_link(share.link_to(scenario, page, view), whole=compared)
        _draw_rename(entry)
        st.download_button(
            "File",
            lambda: share.document(scenario),
            share.file_name(scenario, ".json"),
            "application/json",
            key="scenarios_file",
            on_click="ignore",
            icon=":material/data_object:",
            help="Model, system and limits whole, as JSON.",
        )
        if compared is not None:
            share.comparison_file(compared, "scenarios_comparison_file")
    with st.container(horizontal=True):
        _draw_duplicate(entry)
        found = explorations().request(scenario, state.watcher()).exploration if _is_explored(entry) else None
        if found is not None:
            choice = {} if figures.question.figures_of == "recommended" else {PARAMETER: figures.question.figures_of}
            address, exploration = share.link_to(scenario, view=choice), seen_with(found, scenario)
            st.download_button(
                "Report",
                lambda: report.build(exploration, address, entry.title, figures.question),
                share.file_name(scenario, ".html"),
                "text/html",
                key="scenarios_report",
                on_click="ignore",
                icon=":material/description:",
                help="One HTML file that opens offline.",
            )
        _draw_delete(entry)


def _is_explored(entry: Entry) -> bool:
    return not entry.problem and (entry.record is not None or (entry.job is not None and entry.job.state == "done"))


def _draw_entries(picked: Sequence[Entry]) -> None:
    st.html(head(f"{len(picked)} scenarios", "picked"))
    for entry in picked:
        best = best_of(entry, explorations())
        rate = format_value("sample_rate", best.rate) if best is not None and best.rate is not None else "–"
        st.html(chips([(entry.title, f"fastest {rate}")]))
    usable = [entry.scenario for entry in picked if entry.scenario is not None]
    if (
        page_links.exists("compare")
        and len(usable) > 1
        and was_clicked("Compare", type="primary", icon=":material/compare_arrows:", key="scenarios_compare")
    ):

        def compare() -> None:
            state.open_scenario(usable[0])
            compared_scenarios.put(usable[1:])

        parameters = state.before_switching(compare, compared_scenarios.SLOTS)
        st.switch_page(page_links.target("compare"), query_params=parameters)


def _draw_rename(entry: Entry) -> None:
    label = "Rename" if entry.saved is not None or entry.study is not None else "Save"
    with st.popover(label, icon=":material/edit:", key=menu_key("scenarios_title")):
        key = f"scenarios_title_{entry.ident}"
        with st.form("scenarios_title_form", border=False):  # so that Enter saves
            st.text_input("Title", entry.title[:LONGEST_TITLE], key=key, max_chars=LONGEST_TITLE)
            st.form_submit_button(
                "Keep this title",
                key="scenarios_rename",
                on_click=_toast_refusal,
                args=(lambda: _save_title(entry, key),),
            )


def _save_title(entry: Entry, key: str) -> None:
    title = str(st.session_state[key])
    if entry.study is not None:
        user_files().rename_study(entry.ident, title)
    elif entry.saved is not None:
        user_files().rename(entry.ident, title)
    elif entry.scenario is not None:
        _pick_entries([user_files().keep(title, entry.scenario)])
    shut("scenarios_title")


def _duplicate_entry(entry: Entry) -> None:
    if entry.study is not None:
        _pick_entries([user_files().keep_study(user_files().title_of_copy(entry.title), entry.study.study)])
    elif entry.saved is not None:
        _pick_entries([user_files().duplicate(entry.ident)])
    elif entry.scenario is not None:
        _pick_entries([user_files().keep(user_files().title_of_copy(name_of(entry.scenario)), entry.scenario)])


def _draw_delete(entry: Entry) -> None:
    with st.popover("Delete", icon=":material/delete:"):
        if entry.study is not None:
            st.caption("Deletes the study. Computed points stay cached.")
            st.button(
                "Delete the study",
                key="scenarios_forget",
                on_click=_toast_refusal,
                args=(lambda: _delete_saved(entry),),
            )
            return
        if entry.saved is not None:
            st.caption("Deletes the title. Results stay in the store.")
            st.button(
                "Delete the saved scenario",
                key="scenarios_forget",
                on_click=_toast_refusal,
                args=(lambda: _delete_saved(entry),),
            )
        if entry.record is not None:
            st.caption(f"Frees {size(entry.record.bytes)}; opening the scenario explores it again.")
            st.button(
                "Delete the results",
                key="scenarios_delete",
                on_click=_toast_refusal,
                args=(lambda: _delete_results(entry),),
            )
        if entry.saved is None and entry.record is None:
            st.caption("Not saved: lost when the server stops.")


def _delete_saved(entry: Entry) -> None:
    if entry.study is not None:
        user_files().drop_study(entry.ident)
    else:
        user_files().forget(entry.ident)
    _pick_entries([])


def _delete_results(entry: Entry) -> None:
    server = explorations()
    if server.store is not None and entry.record is not None:
        server.store.delete(entry.record.key)
        server.forget(entry.record.key)
    if entry.saved is None:
        _pick_entries([])


def _toast_refusal(action: Callable[[], None]) -> None:
    """Run a button's action; a refusal becomes a note instead of an error."""
    try:
        action()
    except (Refused, StoreError) as problem:
        st.toast(literal(str(problem)), icon=":material/error:")
