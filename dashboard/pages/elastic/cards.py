"""Which model card is planned: one of the library, or one's own with its measurements, uploaded or changed here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
import streamlit as st

import hardware
import models
from dashboard.compat.caches import remembered
from dashboard.link import state
from dashboard.widgets.controls import choose
from dashboard.words.markdown import literal
from engine.planners import elastic
from engine.planners.contract import PlanError
from engine.planners.elastic import Measurements, ModelCard
from engine.planners.elastic.cards import changed_card, load_card_document, to_document
from engine.planners.elastic.measured import measurements_of

__all__ = ["Chosen", "ask_for_card", "chosen_card", "keep_card"]

OWN: Final = "own"
MOST_MEGABYTES: Final = 2
_CARD: Final = "_elastic_own_card"
_TRACE: Final = "_elastic_own_trace"
_UNITS: Final = {
    "parameters_mi": "Mi", "forward_ms": "ms", "global_batch": "samples", "layers": "", "hidden": "",
    "sequence": "tokens", "environment.pcie": "MiB/ms", "environment.nvlink": "MiB/ms", "performance.k_bwd": "",
    "performance.k_sync": "", "performance.k_opt": "ms per Mi", "performance.k_os_offload": "ms × threads per Mi",
    "performance.k_const": "ms", "performance.k_off": "ms", "performance.k_swap": "ms",
}  # fmt: skip
"""What can be changed here, with its unit."""
_WHOLE: Final = ("global_batch", "layers", "hidden", "sequence")


@dataclass(frozen=True, slots=True)
class Chosen:
    """A model card: `key` is its name or its JSON text, `trace` the text of measurements of one's own."""

    key: str
    trace: str | None = None

    @property
    def card(self) -> ModelCard:
        """Returns the card."""
        return _loaded(self.key)

    @property
    def measured(self) -> Measurements | None:
        """Returns its measurements, None where there are none."""
        own = None if self.trace is None else elastic.read_measurements(self.trace, name="own")
        return own if own is not None else measurements_of(self.card.name, None)


@remembered(64)
def _loaded(key: str) -> ModelCard:
    """The card of a name or of a JSON text."""
    return elastic.load_card(key) if key in elastic.card_names() else load_card_document(json.loads(key))


def chosen_card() -> Chosen | None:
    """Draws the choice of a model card and returns it; None where one of one's own is still wanted.

    Raises `engine.planners.contract.PlanError` for a file that is none.
    """
    titles = {name: elastic.load_card(name).title for name in elastic.card_names()}
    name = choose("Model card", {**titles, OWN: "My card"}, "elastic_card", default="llama7_bsz16", width=200)
    own = st.session_state.get(_CARD)
    trace = st.session_state.get(_TRACE) if name == OWN else None
    found = Chosen(name) if name != OWN else Chosen(own, trace) if own else None
    with st.popover("Card", icon=":material/edit:", help="Upload, change and download a card and its measurements."):
        _files()
        if found is not None:
            _editor(found)
            _downloads(found)
    return found


def ask_for_card() -> None:
    """Says where a card of one's own comes from."""
    st.info("Upload a card in the menu Card, or change one of the library there.", icon=":material/upload_file:")


def _files() -> None:
    """Takes a card and a trace; what is wrong with one is told below its field."""
    st.markdown(
        "A card as JSON, as downloaded here or with the artifact’s keys; measurements as CSV with `exec_plan`, "
        "`placement` and `iter_time` in seconds or `iteration_ms`. No time, or 0, says that a plan does not run. "
        "Files stay on this server while this page is open."
    )
    for label, kind, key, take in (
        ("Model card (JSON)", "json", "elastic_card_file", _take_card),
        ("Measurements (CSV)", "csv", "elastic_trace_file", _take_trace),
    ):
        file = st.file_uploader(label, type=[kind], key=key, max_upload_size=MOST_MEGABYTES)
        if file is None or st.session_state.get(f"_{key}") == file.file_id:
            continue
        try:
            # A line end makes it text: never the path of a file of the server.
            take(file.getvalue().decode("utf-8-sig") + "\n", file.name)
        except (PlanError, UnicodeDecodeError) as problem:
            sentence = f"{file.name} is no text in UTF-8." if isinstance(problem, UnicodeDecodeError) else str(problem)
            st.error(literal(sentence), icon=":material/error:")
            continue
        st.session_state[f"_{key}"] = file.file_id
        st.rerun()


def _take_card(text: str, name: str) -> None:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise PlanError(f"{name} is no JSON document.") from None
    _keep(load_card_document(document, name))
    if st.session_state.get("_elastic_trace_file") is None:  # what was measured of the card before it
        st.session_state[_TRACE] = None


def _take_trace(text: str, name: str) -> None:
    elastic.read_measurements(text, name=name)
    st.session_state[_TRACE] = text


def _keep(card: ModelCard) -> None:
    """Keeps a card as one's own. Its model and system have to be of the library: no names become paths here."""
    for what, given, known in (
        ("model", card.library_model, models.names()),
        ("system", card.system, hardware.names(with_variants=True)),
    ):
        if given is not None and given not in known:
            raise PlanError(f"The card’s {what} {given[:60]!r} is none of the library.")
    # A name of its own: no trace of the library stands for what was measured of it.
    document = {**to_document(card), "name": card.name if card.name not in elastic.card_names() else f"my {card.name}"}
    st.session_state[_CARD] = json.dumps(document)
    state.set_url_value("elastic_card", OWN)


def keep_card(card: ModelCard, of: Chosen | str) -> None:
    """Keeps a changed card as one's own, with the measurements of the card that it was.

    Args:
        card: the changed one.
        of: the card that it was, or its name.
    """
    before = Chosen(of) if isinstance(of, str) else of
    measured = before.measured  # the card gets another name, by which these are not found any more
    _keep(card)
    st.session_state[_TRACE] = None if measured is None else measured.table.to_csv(index=False)
    st.session_state["_elastic_trace_file"] = None


def _editor(found: Chosen) -> None:
    """A table of the card's numbers, and a button that takes the changed ones as one's own card."""
    document = to_document(found.card)
    rows = pd.DataFrame(
        [(path, float(_at(document, path)), unit) for path, unit in _UNITS.items()],
        columns=["field", "value", "unit"],
    )
    changed = st.data_editor(
        rows, hide_index=True, disabled=["field", "unit"], key=f"elastic_editor_{hash(found.key)}", height=300,
        column_config={"value": st.column_config.NumberColumn("value", format="%g", required=True)},
    )  # fmt: skip
    if not st.button("Use as my card", icon=":material/check:", key="elastic_take"):
        return
    changes: dict[str, Any] = {
        path: int(value) if path in _WHOLE and float(value).is_integer() else float(value)
        for path, value, before in zip(changed["field"], changed["value"], rows["value"], strict=True)
        if value != before
    }
    try:
        keep_card(changed_card(found.card, changes), found)
    except PlanError as problem:
        st.error(literal(str(problem)), icon=":material/error:")
        return
    st.rerun()


def _at(document: Any, path: str) -> float:
    for part in path.split("."):
        document = document[part]
    return float(document)


def _downloads(found: Chosen) -> None:
    name = found.card.name.replace(" ", "_")
    st.download_button(
        "Card (JSON)", lambda: json.dumps(to_document(found.card), indent=1), f"{name}.json", "application/json",
        key="elastic_card_json", on_click="ignore", icon=":material/download:", type="tertiary",
    )  # fmt: skip
    measured = found.measured
    if measured is not None:
        table = measured.table
        st.download_button(
            "Measurements (CSV)", lambda: table.to_csv(index=False), f"{name}_measured.csv", "text/csv",
            key="elastic_trace_csv", on_click="ignore", icon=":material/download:", type="tertiary",
        )  # fmt: skip
        for note in measured.notes:
            st.markdown(literal(note))
