"""Keys of widgets whose value can also be set elsewhere, fields for whole numbers, and menus that close themselves."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import streamlit as st

__all__ = [
    "given",
    "key_for",
    "menu_key",
    "shut",
    "whole",
    "whole_field",
]

_SHUT: Final = "_times_shut_"
"""Begins the key of how often a menu was shut by what was clicked in it."""
_SHOWN: Final = "_shown_"
"""Begins the key of a widget's `_Shown`."""
_REMEMBERED: Final = 8
"""Replaced widgets whose last values are remembered: the browser is never that far behind."""
_AGAIN: Final = "~"
"""Stands between the name of a widget and how often its value was set by others."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """State of a widget whose value can also be set elsewhere."""

    number: int
    """Number of replacements because the value was set elsewhere."""
    value: object
    typed: bool = False
    """True if the value was typed into the widget itself."""
    former: Mapping[int, object] = field(default_factory=dict)
    """Last values of replaced widgets, by their numbers."""

    def replaced(self, value: object) -> Self:
        former = {**self.former, self.number: self.value}
        kept = {one: each for one, each in former.items() if one > self.number - _REMEMBERED}
        return type(self)(self.number + 1, value, former=kept)


def key_for(name: str, value: object, *, clearable: bool = False) -> str:
    """Returns the key of a widget whose value can also be set elsewhere. The widget gets the value as its default.

    A widget whose value was set elsewhere is replaced by another one, with its own default. Setting it through the
    session's state would be an order that the browser carries out at any later time: an order from a run that began
    before the user chose takes the choice back. Nor does it reach a closed menu: the browser does not have that
    content, and goes on reporting the value that it showed there last as if the user had just chosen it.

    clearable: whether it is a number field that may be left empty. When emptied, a field returns to its default, which
    must then be None; here the session's state is the only way to show a number. It is used only until a number was
    typed: the browser keeps typed numbers.
    """
    shown = st.session_state.get(_SHOWN + name, _Shown(0, value))
    if not _is_same(shown.value, value):
        shown = shown.replaced(value)
    key = f"{name}{_AGAIN}{shown.number}" if shown.number else name
    if key not in st.session_state:  # not drawn meanwhile: the browser has forgotten what was typed
        shown = replace(shown, typed=False)
    st.session_state[_SHOWN + name] = replace(shown, value=value)
    if clearable and value is not None and not shown.typed:
        st.session_state[key] = value
    return key


def given(key: str) -> Any:
    """Returns what was chosen with the widget of that key, which `key_for` made; for its callback.

    With a quick second click the browser still reports a widget that the first has replaced, which Streamlit takes for
    a choice just made: unless it shows anything new, the answer is what holds now. So it is where Streamlit has
    forgotten the widget, since the run that drew it was interrupted.
    """
    name, _, text = key.partition(_AGAIN)
    number = int(text or 0)
    shown = st.session_state[_SHOWN + name]
    if key not in st.session_state:
        return shown.value
    value = st.session_state[key]
    if number == shown.number:  # otherwise the widget that took its place shows something else still
        st.session_state[_SHOWN + name] = replace(shown, value=value, typed=shown.typed or value != shown.value)
        return value
    return shown.value if number in shown.former and _is_same(shown.former[number], value) else value


def _is_same(one: object, other: object) -> bool:
    """Return True for equal values of a widget: several chosen values in any order, numbers up to rounding."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12)
    if isinstance(one, list) and isinstance(other, list):
        return sorted(map(repr, one)) == sorted(map(repr, other))
    return one == other


def whole_field(
    label: str,
    low: int | None,
    high: int | None,
    value: float | None,
    key: str,
    *,
    on_change: Callable[..., None] | None = None,
    args: tuple[Any, ...] = (),
    **more: Any,
) -> float | None:
    """Shows a field for a whole number; returns its value, which `whole` turns into the number.

    It is a field of decimals: in one of integers, Streamlit takes "1e12" for 1 and "2e3" for 2.
    """
    found = st.number_input(
        label,
        None if low is None else float(low),
        None if high is None else float(high),
        None if value is None else float(value),
        key=key,
        step=1.0,
        format="%.0f",
        on_change=on_change,
        args=args,
        **more,
    )
    return None if found is None else float(found)


def whole(value: float) -> int:
    """Returns the number that a `whole_field` shows: the nearest."""
    return math.floor(value + 0.5)


def menu_key(name: str) -> str:
    """Returns the key for a menu (`streamlit.popover`) that `shut` can close.

    It is another one each time it was shut: the browser remembers of the old one that it was opened, and would open it
    again with the next click anywhere.
    """
    return f"{name}_{st.session_state.get(_SHUT + name, 0)}"


def shut(name: str) -> None:
    """Closes the menu of that name; for callbacks of the menu's content."""
    st.session_state[_SHUT + name] = st.session_state.get(_SHUT + name, 0) + 1
