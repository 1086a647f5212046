"""Widgets that draw the fields of a page's view, and write them to the link when they are changed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal

import streamlit as st

from dashboard.link import state
from dashboard.link.fields import LinkField
from dashboard.widgets.controls import given, key_for, whole, whole_field

__all__ = [
    "draw_choice",
    "draw_decimal",
    "draw_list",
    "draw_segments",
    "draw_several",
    "draw_slider",
    "draw_switch",
    "draw_text",
    "draw_whole",
]


def _prepare(
    field: LinkField, resets: Collection[str], then: Callable[[], None] | None, *, shown: Any = None
) -> tuple[str, Callable[[], None]]:
    """Return the key of a field's widget, and the callback that writes what was chosen.

    resets: parameters of the link that lose their meaning with the change. then: called after the change.
    """
    state.settle()
    key = key_for(f"_{field.parameter}", field.value if shown is None else shown)

    def change() -> None:
        state.set_url_values({field.parameter: field.text(_chosen(field, given(key))), **dict.fromkeys(resets)})
        if then is not None:
            then()

    return key, change


def _chosen(field: LinkField, new: Any) -> Any:
    """Return what a widget reports as a value of the field: nothing chosen is the default."""
    if new is None or new == []:
        return field.default
    if isinstance(new, list):
        return [each for each in field.options if each in new]
    return whole(new) if isinstance(new, float) and isinstance(field.default, int) else new


def draw_choice(
    field: LinkField,
    *,
    label: str = "",
    help: str | None = None,
    width: int | Literal["stretch"] = "stretch",
    resets: Collection[str] = (),
    then: Callable[[], None] | None = None,
    is_bare: bool = False,
) -> None:
    """Draw a list to choose from.

    Args:
        field: with options.
        label: instead of the field's own.
        help: instead of the field's own; "" for none.
        width: of the widget [px].
        resets: parameters of the link that are removed with a change.
        then: called after a change.
        is_bare: True if the label is for screen readers only.
    """
    key, change = _prepare(field, resets, then)
    options = list(field.options)
    st.selectbox(
        label or field.label,
        options,
        options.index(field.value),
        format_func=lambda each: field.options[each],
        key=key,
        on_change=change,
        help=(field.declared.help if help is None else help) or None,
        label_visibility="collapsed" if is_bare else "visible",
        width=width,
    )


def draw_segments(
    field: LinkField, *, label: str = "", resets: Collection[str] = (), then: Callable[[], None] | None = None
) -> None:
    """Draw a few alternatives side by side. See `draw_choice`."""
    key, change = _prepare(field, resets, then)
    st.segmented_control(
        label or field.label,
        list(field.options),
        format_func=lambda each: field.options[each],
        default=field.value,
        key=key,
        on_change=change,
        required=True,
        label_visibility="collapsed",
    )


def draw_several(
    field: LinkField, *, label: str = "", resets: Collection[str] = (), then: Callable[[], None] | None = None
) -> None:
    """Draw alternatives of which several may be chosen; none is the default. See `draw_choice`."""
    key, change = _prepare(field, resets, then)
    st.pills(
        label or field.label,
        list(field.options),
        default=field.value,
        key=key,
        selection_mode="multi",
        on_change=change,
        format_func=lambda each: field.options[each],
    )


def draw_list(field: LinkField, *, label: str = "", most: int | None = None, resets: Collection[str] = ()) -> None:
    """Draw a searchable list of which several may be chosen; none is the default. See `draw_choice`.

    most: choices at once.
    """
    key, change = _prepare(field, resets, None)
    st.multiselect(
        label or field.label,
        list(field.options),
        field.value,
        format_func=lambda each: field.options[each],
        key=key,
        on_change=change,
        help=field.declared.help or None,
        max_selections=most,
    )


def draw_slider(
    field: LinkField,
    *,
    label: str = "",
    help: str | None = None,
    format: str | None = None,
    resets: Collection[str] = (),
) -> None:
    """Draw a slider over whole numbers, from the least to the greatest option. See `draw_choice`."""
    key, change = _prepare(field, resets, None)
    shown = (field.declared.help if help is None else help) or None
    low, high = min(field.options), max(field.options)
    st.slider(label or field.label, low, high, field.value, 1, format=format, key=key, on_change=change, help=shown)


def draw_switch(
    field: LinkField,
    *,
    label: str = "",
    help: str | None = None,
    resets: Collection[str] = (),
    then: Callable[[], None] | None = None,
) -> None:
    """Draw a switch. See `draw_choice`."""
    key, change = _prepare(field, resets, then)
    shown = (field.declared.help if help is None else help) or None
    st.toggle(label or field.label, bool(field.value), key=key, on_change=change, help=shown)


def draw_text(
    field: LinkField,
    *,
    label: str = "",
    help: str | None = None,
    width: int | Literal["stretch"] = "stretch",
    most: int = 200,
    placeholder: str | None = None,
    resets: Collection[str] = (),
) -> None:
    """Draw a field for a text; an empty one is the default. See `draw_choice`.

    most: characters. placeholder: shown in an empty field.
    """
    value = field.value or ""
    state.settle()
    key = key_for(f"_{field.parameter}", value)

    def change() -> None:
        state.set_url_values({field.parameter: field.text(str(given(key)).strip() or None), **dict.fromkeys(resets)})

    st.text_input(
        label or field.label,
        value,
        key=key,
        on_change=change,
        max_chars=most,
        width=width,
        placeholder=placeholder,
        help=(field.declared.help if help is None else help) or None,
    )


def draw_whole(
    field: LinkField, *, label: str = "", help: str | None = None, width: int = 104, resets: Collection[str] = ()
) -> None:
    """Draw a field for a whole number. See `draw_choice`."""
    key, change = _prepare(field, resets, None, shown=float(field.value))
    least, most = field.declared.least, field.most
    whole_field(
        label or field.label,
        1 if least is None else int(least),
        None if most is None else int(most),
        field.value,
        key,
        on_change=change,
        help=(field.declared.help if help is None else help) or None,
        width=width,
    )


def draw_decimal(
    field: LinkField,
    *,
    label: str = "",
    help: str | None = None,
    step: float = 1.0,
    width: int | Literal["stretch"] = "stretch",
    resets: Collection[str] = (),
    placeholder: str = "none",
) -> None:
    """Draw a field for a number; where the field can be None it may be left empty. See `draw_choice`.

    placeholder: shown in an empty field.
    """
    clearable = field.default is None or field.is_clearable
    state.settle()
    value = None if field.value is None else float(field.value)
    key = key_for(f"_{field.parameter}", value, clearable=clearable)

    def change() -> None:
        new = given(key)
        state.set_url_values({field.parameter: field.text(new), **dict.fromkeys(resets)})

    st.number_input(
        label or field.label,
        min_value=0.0 if field.default == 0 or field.declared.takes_zero else 0.0001,
        max_value=9_999_999.0 if field.most is None else min(float(field.most), 9_999_999.0),
        value=None if clearable else value,
        step=step,
        key=key,
        on_change=change,
        help=(field.declared.help if help is None else help) or None,
        placeholder=placeholder if clearable else None,
        format="%g",
        width=width,
    )
