"""Choice of the model card: one of the library, or the user's own with its measurements, uploaded or edited here."""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.compat.caches import remembered
from dashboard.files.own_cards import OwnCard, document_of, own_card_of, packed_card, unpacked_card
from dashboard.link import state
from dashboard.link.document_validation import Refused, parse
from dashboard.link.fields import LinkField, LinkReader
from dashboard.link.user_files import LONGEST_TITLE, user_files
from dashboard.pages.elastic.link import OWN, PAGE_NAME, ElasticLink
from dashboard.widgets.clicks import was_clicked
from dashboard.widgets.file_download import draw_download
from dashboard.widgets.link_fields import draw_choice
from dashboard.widgets.own_table import PACKED
from dashboard.widgets.upload import file_field, read_file
from dashboard.words.markdown import literal
from engine.planners import elastic
from engine.planners.contract import PlanError
from engine.planners.elastic import Measurements, ModelCard
from engine.planners.elastic.cards import changed_card, load_card_document, to_document
from engine.planners.elastic.measured import measurements_of, measurements_text

__all__ = [
    "CardView",
    "ChosenCard",
    "ask_for_card",
    "card_titles",
    "draw_card",
    "find_card",
    "keep_card",
    "parse_card",
    "parse_own_card",
]

MOST_MEGABYTES: Final = 2
_CARD: Final = "_elastic_own_card"
_TRACE: Final = "_elastic_own_trace"
_UNITS: Final = {
    "parameters_mi": "Mi",
    "forward_ms": "ms",
    "global_batch": "samples",
    "layers": "",
    "hidden": "",
    "sequence": "tokens",
    "environment.pcie": "MiB/ms",
    "environment.nvlink": "MiB/ms",
    "performance.k_bwd": "",
    "performance.k_sync": "",
    "performance.k_opt": "ms per Mi",
    "performance.k_os_offload": "ms × threads per Mi",
    "performance.k_const": "ms",
    "performance.k_off": "ms",
    "performance.k_swap": "ms",
    **{
        f"atom_batches.{family}.{kind}": "samples of a GPU at most"
        for family in ("dp", "zero_dp", "zero_offload")
        for kind in ("other", "recompute")
    },
}
"""Editable fields of a card, with their units."""
_WHOLE: Final = ("global_batch", "layers", "hidden", "sequence", *(each for each in _UNITS if "atom" in each))


@dataclass(frozen=True, slots=True)
class ChosenCard:
    """A chosen model card: `key` is its name or its JSON text, `trace` the text of the user's own measurements."""

    key: str
    trace: str | None = None

    @property
    def card(self) -> ModelCard:
        """Returns the card."""
        return _load_card(self.key)

    @property
    def measured(self) -> Measurements | None:
        """Returns its measurements, or None."""
        own = None if self.trace is None else elastic.read_measurements(self.trace, name="own")
        return own if own is not None else measurements_of(self.card.name, None)

    @property
    def arguments(self) -> dict[str, Any]:
        """Returns card and measurements as questions have them."""
        given = self.key if self.key in elastic.card_names() else json.loads(self.key)
        return {"card": given, "measurements": self.trace}


@remembered(64)
def _load_card(key: str) -> ModelCard:
    """Return the card of a name or of a JSON text."""
    return elastic.load_card(key) if key in elastic.card_names() else load_card_document(json.loads(key))


def card_titles() -> dict[str, str]:
    """Returns titles of cards by their names in links: those kept on this server, and the library's."""
    kept = {name: name for name in sorted(user_files().cards(), key=str.lower) if name != OWN}
    return {**kept, **{name: elastic.load_card(name).title for name in elastic.card_names()}}


@dataclass(frozen=True, slots=True)
class CardView:
    """Choice of a model card in the link."""

    field: LinkField
    own: OwnCard | None
    """The user's own card, whether or not it is chosen."""
    is_linked: bool
    """True if the link holds the user's own card."""
    chosen: ChosenCard | None
    """None until the user's own card is uploaded, or with a problem."""
    problem: str = ""
    """Sentence about an own card that cannot be read."""


def parse_card() -> CardView:
    """Parse the choice of a model card."""
    reader = LinkReader(ElasticLink, PAGE_NAME)
    name = reader.read("card", options={**card_titles(), OWN: "My card"})
    is_linked = bool(state.url_value("elastic_own", "", PACKED))
    own, chosen, problem = None, None, ""
    try:
        own = parse_own_card()
        chosen = find_card(name, own)
    except PlanError as error:
        problem = str(error)
    return CardView(reader.fields["card"], own, is_linked, chosen, problem)


def parse_own_card() -> OwnCard | None:
    """Parse the user's own card: from the link, or from the session if it is too long for a link.

    Raises `engine.planners.contract.PlanError` if it cannot be read.
    """
    text = state.url_value("elastic_own", "", PACKED)
    document = st.session_state.get(_CARD)
    try:
        if text:
            return unpacked_card(text)
        return None if document is None else own_card_of(json.loads(document), "The card")
    except Refused as problem:
        raise PlanError(str(problem)) from None


def find_card(name: str, own: OwnCard | None) -> ChosenCard | None:
    """Return the card of a name: from the library, kept on this server, or `OWN`; None if unknown.

    The name is never opened as a path.

    Args:
        name: of the card.
        own: the user's own card.
    """
    if name in elastic.card_names():
        return ChosenCard(name)
    found = own if name == OWN else _kept_card(name)
    return None if found is None else _choose_own_card(found)


def draw_card(view: CardView) -> None:
    """Draw the choice of a model card, and the menu in which a card is uploaded, changed, kept and downloaded.

    Args:
        view: as `parse_card` returned it.

    Raises `engine.planners.contract.PlanError` if the user's own card cannot be read.
    """
    draw_choice(view.field, width=200)
    name, found = str(view.field.value), view.chosen
    with st.popover("Card", icon=":material/edit:", help="Upload, change, keep and download a card and its times."):
        _draw_uploads(view.own)
        if found is not None:
            _draw_editor(found)
            _draw_downloads(found)
            _draw_keeping(found, name)
    if view.problem and name == OWN:
        raise PlanError(view.problem)
    if name == OWN and found is not None and not view.is_linked:
        st.warning(
            "This card with its measurements is too long for a link: a reload loses it. Keep or download it in the "
            "menu Card.",
            icon=":material/warning:",
        )


def ask_for_card() -> None:
    """Asks for the user's own card."""
    st.info("Upload a card in the menu Card, or change one of the library there.", icon=":material/upload_file:")


def _kept_card(name: str) -> OwnCard | None:
    """Return a card that is kept on this server."""
    document = user_files().cards().get(name)
    try:
        return None if document is None else own_card_of(document, f"The card {name}")
    except Refused as problem:
        raise PlanError(str(problem)) from None


def _choose_own_card(own: OwnCard) -> ChosenCard:
    return ChosenCard(json.dumps(to_document(own.card)), own.measurements)


def _use_card(own: OwnCard) -> None:
    """Make a card with its measurements the user's own: in the link, and in the session in case it is too long."""
    st.session_state[_CARD] = json.dumps(document_of(own))
    state.set_url_values({"elastic_card": OWN, "elastic_own": packed_card(own)})


def _draw_uploads(own: OwnCard | None) -> None:
    """Draw the uploads of a card and a trace; errors appear below each field."""
    st.markdown(
        "A card as JSON, as downloaded here or with the artifact’s keys; measurements as CSV with `exec_plan`, "
        "`placement` and `iter_time` in seconds or `iteration_ms`. No time, or 0, marks a plan that does not run. "
        "Short cards and measurements are part of the link."
    )
    for label, kind, key, take in (
        ("Model card (JSON)", "json", "elastic_card_file", _take_card),
        ("Measurements (CSV)", "csv", "elastic_trace_file", _take_trace),
    ):
        file = file_field(label, [kind], key, MOST_MEGABYTES)
        if file is None or st.session_state.get(f"_{key}") == file.file_id:
            continue
        try:
            take(file.getvalue(), file.name, own)
        except (PlanError, Refused) as problem:
            st.error(literal(str(problem)), icon=":material/error:")
            continue
        st.session_state[f"_{key}"] = file.file_id
        st.rerun()


def _take_card(content: bytes, name: str, _: OwnCard | None) -> None:
    own = read_file(_card_in, content, name)
    trace = st.session_state.pop(_TRACE, None)  # uploaded before its card
    _use_card(own if own.measurements is not None or trace is None else OwnCard(own.card, trace))


def _take_trace(content: bytes, name: str, own: OwnCard | None) -> None:
    text = read_file(_trace_in, content, name)
    if own is None:
        st.session_state[_TRACE] = text
    else:
        _use_card(OwnCard(own.card, text))


def _card_in(content: bytes, name: str) -> OwnCard:
    return own_card_of(parse(content, name, "model card"), name)


def _trace_in(content: bytes, name: str) -> str:
    # A line end makes it text, so that it is never opened as a path on the server.
    text = content.decode("utf-8-sig") + "\n"
    elastic.read_measurements(text, name=name)
    return text


def keep_card(card: ModelCard, of: ChosenCard | str, times: pd.DataFrame | None = None) -> None:
    """Makes a changed card the user's own, with the measurements of the original card.

    Args:
        card: the changed card.
        of: the original card, or its name.
        times: other measurements, as texts in the columns of their file; without rows the card has no measurements.

    Raises `engine.planners.contract.PlanError` naming row and field.
    """
    measured = (ChosenCard(of) if isinstance(of, str) else of).measured
    text = None if measured is None else measurements_text(measured)
    if times is not None:
        rows = times.fillna("")
        rows = rows[(rows != "").any(axis=1)]
        text = rows.to_csv(index=False) if len(rows) else None
        if text is not None:
            elastic.read_measurements(text, name="measurements")
    try:
        own = own_card_of(to_document(card), "The card")
    except Refused as problem:
        raise PlanError(str(problem)) from None
    _use_card(OwnCard(own.card, text))


def _draw_keeping(found: ChosenCard, name: str) -> None:
    """Draw the buttons that keep the user's own card on this server under a name, or delete it there."""
    if name in elastic.card_names():
        return
    files = user_files()
    if name != OWN:
        st.button(
            "Delete from this server",
            on_click=_drop_card,
            args=(name,),
            icon=":material/delete:",
            type="tertiary",
            key="elastic_card_drop",
        )
        return
    now = found.card.name[:LONGEST_TITLE]
    called = st.text_input("Name of the card", now, key=f"elastic_card_name_{now}", max_chars=LONGEST_TITLE)
    st.button(
        "Keep on this server",
        on_click=_keep_on_server,
        args=(found, called),
        icon=":material/save:",
        key="elastic_card_keep",
        disabled=files.folder is None,
        help="With its measurements, visible to all users of this server.",
    )


def _keep_on_server(found: ChosenCard, called: str) -> None:
    name = " ".join(called.split()) or found.card.name
    try:
        if name == OWN:
            raise Refused(f"{OWN!r} is reserved for cards that are not kept; choose another name.")
        own = OwnCard(found.card.model_copy(update={"name": name}), found.trace)
        user_files().keep_card(name, document_of(own), elastic.card_names())
    except Refused as problem:
        st.toast(literal(str(problem)), icon=":material/error:")
        return
    state.set_url_values({"elastic_card": name, "elastic_own": None})
    st.toast(f"Kept as **{literal(name)}**.", icon=":material/check:")


def _drop_card(name: str) -> None:
    try:
        user_files().drop_card(name)
    except Refused as problem:
        st.toast(literal(str(problem)), icon=":material/error:")
        return
    state.set_url_value("elastic_card", None)


def _draw_editor(found: ChosenCard) -> None:
    """Draw tables of the card's numbers, allowed plans and measurements, and a button that makes the edits the user's
    own card.
    """
    document = to_document(found.card)
    told = hash((found.key, found.trace))
    numbers, plans, runs = st.tabs(["Numbers", "Allowed plans", "Measurements"])
    rows = pd.DataFrame(
        [(path, float(_value_at(document, path)), unit) for path, unit in _UNITS.items()],
        columns=["field", "value", "unit"],
    )
    changed = numbers.data_editor(
        rows,
        hide_index=True,
        disabled=["field", "unit"],
        key=f"elastic_editor_{told}",
        height=300,
        column_config={"value": st.column_config.NumberColumn("value", format="%g", required=True)},
    )
    allowed = pd.DataFrame(
        [(plan, " ".join(placements)) for plan, placements in document["allowed_plans"].items()],
        columns=["allowed plan", "placements"],
        dtype=str,
    )
    asked = plans.data_editor(allowed, hide_index=True, num_rows="dynamic", key=f"elastic_allowed_{told}", height=300)
    plans.markdown("Plans with degrees and the placements on which each may run, separated by spaces.")
    measured = found.measured
    times = pd.DataFrame({"exec_plan": [], "placement": [], "cpu_threads": [], "iteration_s": []}, dtype=str)
    if measured is not None:
        times = pd.read_csv(io.StringIO(measurements_text(measured)), dtype=str, keep_default_na=False)
    taken = runs.data_editor(times, hide_index=True, num_rows="dynamic", key=f"elastic_times_{told}", height=300)
    runs.markdown("No time, or 0, marks a plan that does not run.")
    if not was_clicked("Use as my card", icon=":material/check:", key="elastic_take"):
        return
    changes: dict[str, Any] = {
        path: int(value) if path in _WHOLE and float(value).is_integer() else float(value)
        for path, value, before in zip(changed["field"], changed["value"], rows["value"], strict=True)
        if value != before
    }
    if not asked.equals(allowed):
        changes["allowed_plans"] = _parse_allowed_plans(asked)
    try:
        keep_card(changed_card(found.card, changes), found, None if taken.equals(times) else taken)
    except PlanError as problem:
        st.error(literal(str(problem)), icon=":material/error:")
        return
    st.rerun()


def _parse_allowed_plans(rows: pd.DataFrame) -> dict[str, list[str]]:
    """Return the allowed plans and their placements from an edited table; empty rows are skipped."""
    told = rows.fillna("").to_dict("records")
    return {
        str(row["allowed plan"]).strip(): str(row["placements"]).split()
        for row in told
        if row["allowed plan"] or row["placements"]
    }


def _value_at(document: Any, path: str) -> float:
    for part in path.split("."):
        document = document[part]
    return float(document)


def _draw_downloads(found: ChosenCard) -> None:
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", found.card.name)
    measured = found.measured
    draw_download(
        "Card (JSON)",
        lambda: json.dumps(to_document(found.card), indent=1),
        f"{name}.json",
        "application/json",
        key="elastic_card_json",
    )
    if measured is not None:
        text = measurements_text(measured)
        draw_download(
            "Measurements (CSV)",
            text,
            f"{name}_measured.csv",
            "text/csv",
            key="elastic_trace_csv",
        )
        draw_download(
            "Both in one (JSON)",
            lambda: json.dumps(document_of(OwnCard(found.card, text)), indent=1),
            f"{name}_with_measurements.json",
            "application/json",
            key="elastic_both_json",
        )
        for note in measured.notes:
            st.markdown(literal(note))
