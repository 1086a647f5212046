"""Widgets whose value is part of the link: they read it from `state.url_value` and write it back when changed."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import streamlit as st

from dashboard import state

__all__ = ["choose", "menu_key", "segments", "show", "shut", "switch", "whole", "whole_field", "whole_number"]

_SHUT: Final = "_times_shut_"
"""Begins the key of how often a menu was shut by what was clicked in it."""


def _prepare(
    name: str, default: str, accepted: Sequence[str], then: Callable[[], None] | None = None
) -> tuple[str, Callable[[], None]]:
    """Set the widget's value to the link's and return the widget's key and its callback, which ends with `then`."""
    state.settle()
    key = f"_{name}"
    st.session_state[key] = state.url_value(name, default, accepted)

    def changed() -> None:
        value = st.session_state[key]
        state.set_url_value(name, None if value in (None, default) else str(value))
        if then is not None:
            then()

    return key, changed


def segments(
    label: str,
    options: Mapping[str, str],
    name: str,
    *,
    default: str | None = None,
    then: Callable[[], None] | None = None,
) -> str:
    """Show a few alternatives side by side; return the chosen one.

    options: value in the link -> text on screen; the first is the default unless told. name: parameter of the link.
    then: done after another was chosen.
    """
    first = default or next(iter(options))
    key, changed = _prepare(name, first, list(options), then)
    chosen = st.segmented_control(
        label, list(options), format_func=lambda value: options[value], key=key, on_change=changed, required=True,
        label_visibility="collapsed",
    )  # fmt: skip
    return str(chosen) if chosen is not None else first


def choose(
    label: str,
    options: Mapping[str, str],
    name: str,
    *,
    default: str | None = None,
    help: str | None = None,
    width: int | Literal["stretch"] = "stretch",
) -> str:
    """Show a list to choose from; return the chosen value. See `segments`."""
    first = default or next(iter(options))
    key, changed = _prepare(name, first, list(options))
    chosen = st.selectbox(
        label, list(options), format_func=lambda value: options[value], key=key, on_change=changed, help=help,
        width=width,
    )  # fmt: skip
    return str(chosen) if chosen is not None else first


def switch(label: str, name: str, *, default: bool = False, help: str | None = None) -> bool:
    """Show a switch; return whether it is on."""
    state.settle()
    key = f"_{name}"
    words = {True: "on", False: "off"}
    st.session_state[key] = state.url_value(name, words[default], ("on", "off")) == "on"

    def changed() -> None:
        value = bool(st.session_state[key])
        state.set_url_value(name, None if value == default else words[value])

    return bool(st.toggle(label, key=key, on_change=changed, help=help))


def whole_number(label: str, low: int, high: int, name: str, *, default: int, step: int = 1, **more: Any) -> int:
    """Show a slider over whole numbers; return the chosen one."""
    state.settle()
    key = f"_{name}"
    accepted = {str(value) for value in range(low, high + 1)}
    st.session_state[key] = int(state.url_value(name, str(default), accepted))

    def changed() -> None:
        value = int(st.session_state[key])
        state.set_url_value(name, None if value == default else str(value))

    return int(st.slider(label, low, high, step=step, key=key, on_change=changed, **more))


def whole_field(
    label: str, low: int | None, high: int | None, key: str, *, on_change: Callable[..., None] | None = None,
    args: tuple[Any, ...] = (), **more: Any,
) -> float | None:  # fmt: skip
    """Show a field for a whole number; return what is in it, which `whole` turns into the number.

    It is a field of decimals: in one of integers, Streamlit takes "1e12" for 1 and "2e3" for 2.
    """
    found = st.number_input(
        label, None if low is None else float(low), None if high is None else float(high), key=key, step=1.0,
        format="%.0f", on_change=on_change, args=args, **more,
    )  # fmt: skip
    return None if found is None else float(found)


def whole(value: float) -> int:
    """The number that a `whole_field` shows: the nearest."""
    return math.floor(value + 0.5)


def menu_key(name: str) -> str:
    """The key for a menu (`streamlit.popover`) that `shut` can close.

    It is another one each time it was shut: the browser remembers of the old one that it was opened, and would open it
    again with the next click anywhere.
    """
    return f"{name}_{st.session_state.get(_SHUT + name, 0)}"


def shut(name: str) -> None:
    """Closes the menu of that name; for callbacks of what is in it."""
    st.session_state[_SHUT + name] = st.session_state.get(_SHUT + name, 0) + 1


def show(chart: Any, key: str, **more: Any) -> Any:
    """Show a chart of `dashboard.charts` with its finding as alternative text."""
    from dashboard.charts import CONFIG

    config = {**CONFIG, **more.pop("config", {})}
    return st.plotly_chart(chart.figure, config=config, alt=chart.alt, key=key, **more)
