"""Widgets whose value is part of the link: they read it from `state.url_value` and write it back when changed."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import streamlit as st

from dashboard import state

__all__ = [
    "choose", "given", "key_for", "menu_key", "segments", "show", "shut", "switch", "whole", "whole_field",
    "whole_number",
]  # fmt: skip

_SHUT: Final = "_times_shut_"
"""Begins the key of how often a menu was shut by what was clicked in it."""
_SHOWN: Final = "_shown_"
"""Begins the key of (how often a widget's value was set by others than itself, the value)."""


def key_for(name: str, value: object, *, hidden: bool = True) -> str:
    """The key of a widget that shows a value which others set too; sets the widget to it.

    What is in a shut menu is not there for the browser, which would go on reporting the value that it showed there
    last, as if somebody had chosen it just now. A widget whose value was set elsewhere is therefore another one.

    hidden: whether it may be in such a menu, and has to be told its value at every run until the browser draws it. One
    that is always there is told once: later that would take back what was chosen since the run began.
    """
    number, shown = st.session_state.get(_SHOWN + name, (0, value))
    number += not _same(shown, value)
    st.session_state[_SHOWN + name] = number, value
    key = f"{name}_{number}" if number else name
    if hidden or key not in st.session_state:
        st.session_state[key] = value
    return key


def given(name: str) -> Any:
    """What was chosen with the widget of `key_for`; for its callback."""
    number, _ = st.session_state[_SHOWN + name]
    value = st.session_state[f"{name}_{number}" if number else name]
    st.session_state[_SHOWN + name] = number, value
    return value


def _same(one: object, other: object) -> bool:
    """Whether two values of a widget are one: in whatever order several were chosen, and but for rounding."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12)
    if isinstance(one, list) and isinstance(other, list):
        return sorted(map(repr, one)) == sorted(map(repr, other))
    return one == other


def _prepare(name: str, default: str, accepted: Sequence[str]) -> tuple[str, Callable[[], None]]:
    """Set the widget's value to the link's and return the widget's key and its callback."""
    state.settle()
    key = key_for(f"_{name}", state.url_value(name, default, accepted))

    def changed() -> None:
        value = given(f"_{name}")
        state.set_url_value(name, None if value in (None, default) else str(value))

    return key, changed


def segments(label: str, options: Mapping[str, str], name: str, *, default: str | None = None) -> str:
    """Show a few alternatives side by side; return the chosen one.

    options: value in the link -> text on screen; the first is the default unless told. name: parameter of the link.
    """
    first = default or next(iter(options))
    key, changed = _prepare(name, first, list(options))
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
    words = {True: "on", False: "off"}
    key = key_for(f"_{name}", state.url_value(name, words[default], ("on", "off")) == "on")

    def changed() -> None:
        value = bool(given(f"_{name}"))
        state.set_url_value(name, None if value == default else words[value])

    return bool(st.toggle(label, key=key, on_change=changed, help=help))


def whole_number(label: str, low: int, high: int, name: str, *, default: int, step: int = 1, **more: Any) -> int:
    """Show a slider over whole numbers; return the chosen one."""
    state.settle()
    accepted = {str(value) for value in range(low, high + 1)}
    key = key_for(f"_{name}", int(state.url_value(name, str(default), accepted)))

    def changed() -> None:
        value = int(given(f"_{name}"))
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
