"""Inputs of the Serving page, which are part of the link."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

import streamlit as st

import hardware
import models
from dashboard.link import state
from dashboard.link.catalogue import model_of, system_of, systems
from dashboard.link.user_files import user_files
from dashboard.widgets.controls import given, key_for
from dashboard.widgets.link_numbers import DECIMAL, whole_in_link
from dashboard.words.scenarios import system_titles
from engine.serving.space import CHOICES, DEFAULTS
from hardware import System
from models import Model

__all__ = ["Inputs", "inputs", "model_names", "put"]

MOST_PROCESSORS: Final = 4096
MOST_TOKENS: Final = 1_000_000
_MOST: Final = 9_999_999.9999
"""The greatest number of that pattern."""
LABELS: Final = {"weight_bits": "Weight bits", "kv_bits": "KV cache bits", "launch": "Launch"}
WORDS: Final = {"eager": "One by one", "compiled": "Compiled", "graphs": "CUDA graphs"}
LAUNCHED: Final = {
    "eager": "kernels launched one by one",
    "compiled": "kernels fused by a compiler",
    "graphs": "kernels in CUDA graphs",
}
"""Launch modes in a sentence."""


@dataclass(frozen=True)
class Inputs:
    """A serving question: times in seconds, price in USD per processor and hour; `None` for no limit or the recorded
    price.
    """

    model: Model
    system: System
    num_procs: int
    prompt: int
    output: int
    time_to_first_token: float | None
    time_per_output_token: float | None
    price: float | None
    limits: dict[str, Any]

    @property
    def key(self) -> str:
        """Equal for equal questions."""
        rest = (
            self.num_procs,
            self.prompt,
            self.output,
            self.time_to_first_token,
            self.time_per_output_token,
            self.price,
            sorted(self.limits.items()),
        )
        return f"{self.model.model_dump_json()}{self.system.model_dump_json()}{rest}"


def put(**values: str | None) -> None:
    """Sets inputs, by their names without the page's; None restores the default.

    Another question has other deployments, so the picked deployment is reset.
    """
    state.set_url_values({f"serving_{name}": value for name, value in {"id": None, **values}.items()})


def inputs() -> Inputs:
    """Draws the inputs and returns them; model and system start as the scenario's."""
    scenario = state.current_scenario()
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        model = _choose_item("Model", "model", model_names(), scenario.model.name, _model_title, model_of)
        system = _choose_item(
            "System", "system", systems(), scenario.system.name, _system_titles().__getitem__, system_of
        )
        domain = system.node_size
        procs = _whole_field("GPUs", "procs", min(domain, 8, MOST_PROCESSORS), MOST_PROCESSORS, "All of them are used.")
        longest = None if model.architecture is None else model.architecture.max_seq
        start = 1024 if longest is None or longest >= 1536 else max(longest // 2, 1)
        prompt = _whole_field("Prompt, tokens", "prompt", start, MOST_TOKENS, "Tokens of a request's prompt.")
        output = _whole_field(
            "Output, tokens", "output", max(start // 4, 1), MOST_TOKENS, "Tokens that a request generates."
        )
        first = _decimal_field("First token, ms", "ttft", "Limit on the time to first token; empty for none.", 50)
        later = _decimal_field("Per token, ms", "tpot", "Limit on the time per output token; empty for none.", 5)
        with st.popover("Choices", icon=":material/tune:", help="Precisions and launch modes to try; price."):
            limits = _draw_choices()
            empty = "Empty for the middle of the recorded prices."
            price = _decimal_field("USD per GPU-hour", "price", empty, 0.5, "stretch")
    return Inputs(
        model,
        system,
        procs,
        prompt,
        output,
        None if first is None else first / 1e3,
        None if later is None else later / 1e3,
        price,
        limits,
    )


def model_names() -> list[str]:
    """Returns names of all models, kept ones first, then by family: serving needs no recipe of Calculon's."""
    found = sorted((models.load(name) for name in models.names()), key=lambda m: (m.family.lower(), m.title.lower()))
    return [*sorted(user_files().models(), key=str.lower), *(model.name for model in found)]


def _model_title(name: str) -> str:
    try:
        return model_of(name).title or name
    except models.ModelFileError:
        return name


def _system_titles() -> dict[str, str]:
    found = {}
    for name in systems():
        with suppress(hardware.SystemFileError):
            found[name] = system_of(name)
    return {name: name for name in systems()} | system_titles(found)


def _choose_item(label: str, name: str, options: list[str], scenario: str, shown: Any, load: Any) -> Any:
    """Draw a list of library names; return the chosen item, loaded."""
    default = scenario if scenario in options else options[0]
    value = state.url_value(f"serving_{name}", default, options)
    key = key_for(f"_serving_{name}", value)

    def changed() -> None:
        new = given(key)
        put(**{name: new if new != default else None})

    st.selectbox(label, options, options.index(value), format_func=shown, key=key, on_change=changed, width=210)
    return load(value)


def _whole_field(label: str, name: str, default: int, most: int, help: str) -> int:
    return whole_in_link(
        f"serving_{name}", label, default, most, help, width=116, put=lambda _, value: put(**{name: value})
    )


def _decimal_field(
    label: str, name: str, help: str, step: float, width: int | Literal["stretch"] = 124
) -> float | None:
    """Draw a field for a positive number; return it, or None if it is empty."""
    text = state.url_value(f"serving_{name}", "", DECIMAL)
    value = float(text) if text else None
    key = key_for(f"_serving_{name}", value, clearable=True)

    def changed() -> None:
        new = given(key)
        put(**{name: None if not new else f"{new:.4f}".rstrip("0").rstrip(".")})

    st.number_input(
        label,
        min_value=0.0,
        max_value=_MOST,
        value=None,
        step=float(step),
        key=key,
        on_change=changed,
        help=help,
        placeholder="none",
        format="%g",
        width=width,
    )
    return value or None


def _draw_choices() -> dict[str, Any]:
    """Draw the choice of precisions and launch modes; return the ones that differ from the defaults."""
    limits = {}
    for name, label in LABELS.items():
        options = [str(value) for value in CHOICES[name]]
        default = [str(value) for value in DEFAULTS[name]]
        known = re.compile(
            "|".join(options) + "|" + ",".join(["(?:" + "|".join(options) + ")"] * 2) + "|" + ",".join(options)
        )
        text = state.url_value(f"serving_{name}", ",".join(default), known)
        shown = text.split(",")
        key = key_for(f"_serving_{name}", shown)

        def changed(
            name: str = name, key: str = key, options: list[str] = options, default: list[str] = default
        ) -> None:
            picked = given(key)
            chosen = [value for value in options if value in picked]
            put(**{name: None if chosen in ([], default) else ",".join(chosen)})

        st.pills(
            label,
            options,
            default=shown,
            key=key,
            selection_mode="multi",
            on_change=changed,
            format_func=lambda value: WORDS.get(value, value),
        )
        values = [value if name == "launch" else int(value) for value in shown]
        if sorted(map(str, values)) != sorted(default):
            limits[name] = values
    return limits
