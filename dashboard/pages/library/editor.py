"""Editing a copy of a model or system: a field per value, checked as it is typed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any

import streamlit as st

import hardware
import models
from dashboard.charts.elements.markup import head
from dashboard.link import page_links, state
from dashboard.link.document_validation import PROBLEMS, Refused, sentence
from dashboard.link.user_files import LONGEST_TITLE, user_files
from dashboard.pages.library.curves import curves
from dashboard.queries.document_fields import MIRRORED, Field, fields_of, value_at
from dashboard.queries.document_sheets import shown_value
from dashboard.queries.scenario_edits import scenario_with
from dashboard.widgets.clicks import was_clicked
from dashboard.widgets.controls import whole, whole_field
from dashboard.words.markdown import literal
from hardware import System
from models import Model

__all__ = ["copy_of", "editor", "table_from_text"]


def editor(thing: Model | System, done: Callable[[], None]) -> None:
    """Draws the editor. done: called when it is closed."""
    st.html(head(f"Edit a copy of {thing.title or thing.name}", "nothing is saved until you keep it"))
    names = st.columns(2, gap="medium")
    suggested = thing.name if thing.derived_from else f"{thing.name} (edited)"
    name = names[0].text_input("Name", suggested[:LONGEST_TITLE], key="library_value__name", max_chars=LONGEST_TITLE)
    called, bracket, remark = (thing.title or thing.name).partition(" (")  # the sentence leaves remarks out
    suggested_title = called + ("" if thing.derived_from else ", edited") + bracket + remark
    title = names[1].text_input(
        "Title", suggested_title[:LONGEST_TITLE], key="library_value__title", max_chars=LONGEST_TITLE
    )
    place = st.container()
    changes, faults = _draw_fields(thing)
    with place:
        copied = _check_copy(thing, changes, faults, name or suggested, title or "")
        _draw_buttons(copied, bool(changes), done)
        if isinstance(copied, System) and any(isinstance(value, tuple) for value in changes.values()):
            curves(copied)


def _draw_fields(thing: Model | System) -> tuple[dict[str, Any], list[str]]:
    """Draw a widget per value; return the changed values, and errors of unreadable ones."""
    changes: dict[str, Any] = {}
    faults: list[str] = []
    shown = [field for field in fields_of(thing) if field.editable and field.kind != "text"]
    for section, found in groupby(shown, key=lambda field: field.section):
        st.html(head(section))
        inside = list(found)
        wide = 2 if any(field.kind == "table" for field in inside) and len(inside) > 3 else 3
        for index, field in enumerate(inside):
            if index % wide == 0:
                columns = st.columns(wide, gap="medium")  # one row at a time, so that fields stay aligned
            base = value_at(thing, field.path)
            with columns[index % wide]:
                try:
                    value = _draw_widget(field, base)
                except Refused as problem:
                    faults.append(str(problem))
                    continue
            if value != base and not (value is None and not field.optional):
                changes[field.path] = value
            elif value is None and base is not None and not field.optional:
                faults.append(f"{field.label} is empty; give a value.")
    return changes, faults


def _draw_widget(field: Field, base: Any) -> Any:
    """Draw the widget of one value; return its value in the document's unit. Raises `Refused`."""
    key = f"library_value_{field.path}"
    shown = st.session_state.get(key)
    label = f"{field.label} [{field.unit}]" if field.unit else field.label
    if field.kind == "switch":
        return st.toggle(label, bool(base), key=key, help=field.help or None)
    if field.kind == "choice":
        return st.selectbox(
            label,
            field.options,
            field.options.index(base),
            key=key,
            help=field.help or None,
            format_func=lambda value: shown_value(field, value),
        )
    if field.kind == "table":
        text = st.text_input(label, _text_of_table(base), key=key, help=field.help, max_chars=2_000)
        if text == _text_of_table(base):
            return base
        return table_from_text(text or "", field.label)
    start = None if base is None else base if field.kind == "whole" else _round_scaled(float(base) / field.factor)
    if shown is not None and shown != start:
        label = f":primary[**{label} · was {shown_value(field, base)}**]"
    more: dict[str, Any] = {"help": field.help or None, "placeholder": "none"}
    if field.kind == "whole":
        value = whole_field(label, None, None, start, key, **more)
    else:
        value = st.number_input(label, value=start, key=key, format="%.10g", **more)
    if value is None or value == start:
        return None if value is None else base
    return whole(value) if field.kind == "whole" else _round_scaled(float(value) * field.factor)


def _round_scaled(value: float) -> float:
    """Return a number without the last digits left behind by a change of unit."""
    return float(f"{value:.12g}")


def _text_of_table(table: Any) -> str:
    return ", ".join(f"{threshold:g}: {share:g}" for threshold, share in table)


def table_from_text(text: str, label: str) -> tuple[tuple[float, float], ...]:
    """Returns an efficiency table from "128: 0.95, 16: 0.9, 0: 0.1". Raises `Refused`."""
    pairs = []
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        size, colon, share = piece.partition(":")
        try:
            if not colon:
                raise ValueError
            pairs.append((float(size), float(share)))
        except ValueError:
            raise Refused(
                f"{label}: {piece[:40]!r} cannot be read; write sizes and shares such as 128: 0.95, 16: 0.9, 0: 0.1."
            ) from None
    if not pairs:
        raise Refused(f"{label} is empty; write sizes and shares such as 128: 0.95, 0: 0.1.")
    return tuple(pairs)


def copy_of(thing: Model | System, changes: Mapping[str, Any], name: str, title: str) -> Model | System:
    """Returns an edited copy with its origin recorded. Raises `Refused`.

    A block number that is also in the recorded architecture is changed in both.
    """
    every = {
        path: [list(pair) for pair in value] if isinstance(value, tuple) else value for path, value in changes.items()
    }
    try:
        if isinstance(thing, System):
            return hardware.edited(thing, every, name=name, title=title)
        if thing.calculon is not None and thing.architecture is not None:
            every |= {MIRRORED[path]: value for path, value in changes.items() if path in MIRRORED}
            if "attn_heads" in changes and thing.architecture.kv_heads == thing.architecture.heads:
                every["architecture.kv_heads"] = changes["attn_heads"]
        return models.edited(thing, every, name=name, title=title)
    except PROBLEMS as problem:
        raise Refused(sentence(problem)) from None


def _check_copy(
    thing: Model | System, changes: Mapping[str, Any], faults: list[str], name: str, title: str
) -> Model | System | None:
    """Draw whether the copy is possible; return it if so."""
    copied = None
    if not faults:
        try:
            copied = copy_of(thing, changes, " ".join(name.split()), title)
        except Refused as problem:
            faults = [_in_words(thing, str(problem))]
    if copied is None:
        st.error("\n\n".join(map(literal, faults)), icon=":material/error:")
    elif not changes:
        st.info("Nothing differs from the original yet.", icon=":material/info:")
    else:
        number = len(copied.changes)
        st.success(
            f"{number} value{'s' if number != 1 else ''} will differ from "
            f"{literal(copied.derived_from)}; the copy remembers which.",
            icon=":material/check:",
        )
    return copied


def _in_words(thing: Model | System, refusal: str) -> str:
    """Return a refusal with labels of fields for their paths in the document."""
    for field in fields_of(thing):
        place = re.sub(r"\.(\d+)", r"[\1]", field.path)
        unit = f", there {place.rpartition('.')[2]}" if field.factor != 1.0 else ""  # the figure is in that unit
        refusal = refusal.replace(f"'{place}'", f"{field.label} ({field.section}{unit})")
    return refusal


def _draw_buttons(copied: Model | System | None, changed: bool, done: Callable[[], None]) -> None:
    keeps = user_files().folder is not None
    with st.container(horizontal=True):
        if was_clicked(
            "Use in the scenario",
            type="primary",
            key="library_use_copy",
            icon=":material/play_arrow:",
            disabled=copied is None or not changed,
        ):
            assert copied is not None
            try:
                state.change_scenario(lambda now: scenario_with(now, copied))
            except Refused as problem:
                st.error(literal(str(problem)), icon=":material/error:")
            else:
                done()
                st.switch_page(page_links.target("explore"))
        why_not = None if keeps else "This server keeps no files; use the copy in a scenario instead."
        if was_clicked(
            "Keep in the library",
            key="library_keep_copy",
            icon=":material/save:",
            disabled=copied is None or not keeps,
            help=why_not,
        ):
            assert copied is not None
            _keep_copy(copied, done)
        st.button("Close", key="library_close", type="tertiary", on_click=done, icon=":material/close:")


def _keep_copy(copied: Model | System, done: Callable[[], None]) -> None:
    try:
        if isinstance(copied, Model):
            user_files().keep_model(copied)
        else:
            user_files().keep_system(copied)
    except Refused as problem:
        st.error(literal(str(problem)), icon=":material/error:")
        return
    done()
    state.set_url_value("library_item", copied.name)
    st.rerun()
