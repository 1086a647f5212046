"""Sharing: a link to the current view, scenario or comparison as a file, a report, and saving it under a title."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode, urlsplit, urlunsplit

import streamlit as st

from dashboard.files import comparison_report, report
from dashboard.jobs.server import explorations
from dashboard.link import scenario_parameters, state
from dashboard.link.comparison import Comparison
from dashboard.link.document_validation import Refused
from dashboard.link.figures import parse_figures
from dashboard.link.shared import parse_shared
from dashboard.link.user_files import LONGEST_TITLE, user_files
from dashboard.widgets import compared_scenarios
from dashboard.widgets.controls import menu_key, shut
from dashboard.widgets.needed_exploration import seen_with
from dashboard.words.markdown import literal
from dashboard.words.scenarios import name_of
from engine import Scenario

__all__ = [
    "LONGEST",
    "compared",
    "comparison_file",
    "current_link",
    "document",
    "file_name",
    "link_of",
    "link_on",
    "link_to",
    "offer_link",
    "opener",
]

LONGEST: Final = 2_000
"""Characters of a link that every browser, proxy and chat program passes on."""
_OTHERS: Final = tuple(f"{page}_{letter}" for page in ("compare", "pareto") for letter in "bcd")
"""Parameters of scenarios other than the current one."""


def opener(scenario: Scenario) -> None:
    """Draws Share and Save. scenario: of the page."""
    _draw_share()
    tip = "Keep this scenario on the server."
    with st.popover("Save", type="tertiary", icon=":material/bookmark:", help=tip, key=menu_key("save")):
        if user_files().folder is None:
            st.caption("This server keeps nothing. The file holds model, system and limits whole.")
            _draw_file_buttons(scenario, _parse_comparison(), "save_file")
            return
        key = f"save_title_{scenario.key[:12]}"
        with st.form("save_form", border=False):  # so that Enter saves
            st.text_input("Title", name_of(scenario)[:LONGEST_TITLE], key=key, max_chars=LONGEST_TITLE)
            st.caption("It appears on the Scenarios page for all users of this server, with the current view.")
            st.form_submit_button(
                "Save",
                key="save_now",
                type="primary",
                on_click=_save_scenario,
                args=(key,),
                icon=":material/bookmark_add:",
            )


@st.fragment
def _draw_share() -> None:
    """Link, file and report; made when it is opened, because parts of a page change without the frame around them."""
    tip = "A link to exactly what is shown."
    with st.popover("Share", type="tertiary", icon=":material/link:", help=tip, key="share", on_change="rerun") as menu:
        if menu.open:
            scenario, found = parse_shared().scenario, _parse_comparison()
            offer_link(current_link(), beside=sum(name in _OTHERS for name in state.link_parameters()), whole=found)
            with st.container(horizontal=True):
                _draw_file_buttons(scenario, found, "share_file")
                _report(scenario, found)


def _parse_comparison() -> Comparison | None:
    """Parse the comparison that the page shows; None if it shows none."""
    return compared(parse_shared().scenario, state.page(), state.link_parameters())


def compared(scenario: Scenario, page: str, view: Mapping[str, str] | None) -> Comparison | None:
    """Returns what a page compares with a scenario; None for other pages, and where it is alone."""
    return compared_scenarios.whole(scenario, view or {}) if page == "compare" else None


def offer_link(
    text: str, beside: int = 0, whole: Comparison | None = None, *, holds: str = "scenario", instead: str = ""
) -> None:
    """Show a link to copy, or an alternative if it is too long.

    beside: number of scenarios in the link that a scenario file would not hold. whole: the comparison, if there is a
    file of all. holds: noun of the link's content. instead: alternative to a link that is too long, if that is no file
    of scenarios.
    """
    if len(text) <= LONGEST:
        st.caption(f"The link opens this view on any Shardscape server. It contains the whole {holds}.")
        st.code(text, language=None, wrap_lines=True)
    else:
        file = f"the scenario file instead: the Scenarios page opens it.{_left_out(beside)}"
        if whole is not None:
            held = f"it contains all {len(whole.scenarios)} scenarios"
            file = f"the comparison file instead: {held}, and the Scenarios page opens it."
        st.caption(
            f"The link would have {len(text):,} characters; some programs cut links beyond {LONGEST:,}. "
            f"Send {instead or file}"
        )


def _left_out(beside: int) -> str:
    """Return a sentence about the scenarios that a scenario file leaves out."""
    if not beside:
        return ""
    others = "the one scenario" if beside == 1 else f"the {beside} scenarios"
    return f" It does not contain {others} next to it: the Scenarios page has a file of each explored scenario."


def current_link() -> str:
    """Returns the address of the current view."""
    return _page_address(None, state.link_parameters())


def link_of(parameters: Mapping[str, str]) -> str:
    """Returns the address of the page that is shown, with these parameters alone."""
    return _page_address(None, parameters)


def link_on(page: str, parameters: Mapping[str, str]) -> str:
    """Returns the address of a page with these parameters alone."""
    return _page_address(page, parameters)


def link_to(scenario: Scenario, page: str = "", view: Mapping[str, str] | None = None) -> str:
    """Returns the address of a scenario on a page, with parameters of that page's own."""
    return _page_address(page, {**(view or {}), **scenario_parameters.parameters_of(scenario)})


def _page_address(page: str | None, parameters: Mapping[str, str]) -> str:
    parts = urlsplit(st.context.url or "http://localhost/")
    path = parts.path if page is None else parts.path.rpartition("/")[0] + "/" + page
    return urlunsplit((parts.scheme, parts.netloc, path or "/", urlencode(parameters), ""))


def document(scenario: Scenario) -> bytes:
    """Returns the scenario as a JSON file."""
    return _json_bytes(scenario.to_document())


def _json_bytes(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    return text.encode("utf-8", "replace")


def file_name(scenario: Scenario, suffix: str) -> str:
    """Returns a name for a file about a scenario, of harmless characters."""
    text = f"{scenario.model.name}_{scenario.num_procs}x{scenario.system.name}_{scenario.datatype}"
    return re.sub(r"[^\w.-]+", "-", text)[:100] + suffix


def _draw_file_buttons(scenario: Scenario, found: Comparison | None, key: str) -> None:
    """Draw the buttons for the files of the current view: the whole comparison, and the one scenario."""
    if found is not None:
        comparison_file(found, f"{key}_comparison")
    st.download_button(
        "Scenario file" if found is None else "Scenario file of A",
        lambda: document(scenario),
        file_name(scenario, ".json"),
        "application/json",
        key=key,
        on_click="ignore",
        icon=":material/data_object:",
        help="Model, system and limits whole, as JSON; the Scenarios page of any Shardscape opens it.",
    )


def comparison_file(found: Comparison, key: str) -> None:
    """Draws the button for the file of a whole comparison."""
    st.download_button(
        "Comparison file",
        lambda: _json_bytes(found.to_document()),
        file_name(found.scenarios[0], f"_and_{len(found.scenarios) - 1}_more.json"),
        "application/json",
        key=key,
        on_click="ignore",
        icon=":material/compare:",
        help=f"All {len(found.scenarios)} scenarios whole and how they are shown, as JSON; the Scenarios page of any "
        "Shardscape opens it.",
    )


def _report(scenario: Scenario, found: Comparison | None) -> None:
    """The button for the report of the scenario, or of all that is compared."""
    explored = []
    for each in (scenario,) if found is None else found.scenarios:
        job = explorations().find(each.key)
        if job is None or job.exploration is None:
            return
        explored.append(seen_with(job.exploration, each))
    address, figures = current_link(), parse_figures().question

    def build() -> bytes:
        if found is None:
            return report.build(explored[0], address, asked=figures)
        return comparison_report.build(found, explored, address)

    what = "the scenario" if found is None else f"all {len(found.scenarios)} scenarios"
    st.download_button(
        "Report",
        build,
        file_name(scenario, ".html" if found is None else "_compared.html"),
        "text/html",
        key="share_report",
        on_click="ignore",
        icon=":material/description:",
        help=f"Figures, tables, assumptions and {what} in one HTML file that opens offline.",
    )


def _save_scenario(key: str) -> None:
    title = str(st.session_state[key])
    view = {name: value for name, value in state.link_parameters().items() if name not in scenario_parameters.NAMES}
    try:
        user_files().keep(title, parse_shared().scenario, state.page(), view)
    except Refused as problem:
        st.toast(literal(str(problem)), icon=":material/error:")
    else:
        st.toast(f"Saved as **{literal(' '.join(title.split()))}**.", icon=":material/bookmark_added:")
        shut("save")
