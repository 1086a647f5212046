"""Slots of the scenario sentence for numbers: GPUs, GPUs per node, the batch and its sequences, tokens to train."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import streamlit as st

import hardware
import models
from dashboard.link import state
from dashboard.link.catalogue import model_of, system_of
from dashboard.link.figures import FiguresView
from dashboard.queries.scenario_edits import altered
from dashboard.widgets.controls import given, key_for, whole, whole_field
from dashboard.words.amounts import format_tokens
from dashboard.words.markdown import literal
from engine import Scenario
from engine.executions.table import LARGEST
from hardware import System
from models import Model

__all__ = ["apply_change", "batch_words", "draw_batch", "draw_gpus", "draw_node", "draw_tokens", "other_limits"]

PROCESSORS: Final = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
NODES: Final = (1, 2, 4, 8, 16, 32, 64, 128)
"""Nodes whose GPUs are suggested where a node has no power of two, such as a rack of 72."""
BATCHES: Final = (64, 128, 256, 512, 1024, 1536, 2048, 4096)
SEQUENCES: Final = (2_048, 4_096, 8_192, 16_384, 32_768, 65_536, 131_072)
LONGEST: Final = 10_000_000
"""Longest sequence of a training sample [tokens]."""
TOKENS: Final = (100.0, 300.0, 1_000.0, 2_000.0, 5_000.0, 15_000.0)
"""Suggested tokens of a training run [1e9 tokens]."""
_BATCH: Final = "batch_size"
_WAYS: Final[Mapping[str, str]] = {"most": "At most", "exact": "Exactly"}

Edit = Callable[[Scenario], Scenario]


def apply_change(make: Edit) -> None:
    """Apply a change of the scenario; a toast says why it is refused. For callbacks of widgets."""

    def changed(now: Scenario) -> Scenario:
        made = make(now)
        _ = made.space
        return now if made.key == now.key and made.model == now.model and made.system == now.system else made

    try:
        state.change_scenario(changed)
    except ValueError as problem:  # every refusal of models, hardware and engine is one
        st.toast(literal(str(problem)), icon=":material/error:")


def draw_gpus(scenario: Scenario) -> None:
    """Draw the number of GPUs, with numbers that fill nodes as suggestions."""
    node = scenario.system.node_size
    fit = PROCESSORS if node & (node - 1) == 0 else tuple(node * number for number in NODES)
    _draw_number("procs", "GPUs", fit, scenario.num_procs, LARGEST, lambda now, value: altered(now, num_procs=value))


def draw_node(system: System) -> None:
    """Draw the number of GPUs per node of a system."""
    node, whole_node = system.node_size, _original(system).node_size
    sizes = [size for size in range(1, whole_node + 1) if whole_node % size == 0 or size == node]
    _draw_number("node", "GPUs per node", sizes, node, LARGEST, lambda now, value: _with_node(now, value))
    if node != whole_node:
        st.caption(f"The library's system has {whole_node:,} GPUs per node.")


def batch_words(scenario: Scenario) -> str:
    """Return the batch in words: "1,024 × 8,192 tokens", "exactly 1,024 × 8,192 tokens"."""
    exactly = "exactly " if _is_exact(scenario) else ""
    return f"{exactly}{scenario.max_batch_size:,} × {scenario.model.seq_size:,} tokens"


def other_limits(scenario: Scenario) -> dict[str, Any]:
    """Return the limits that the batch's slot does not say."""
    return {name: limit for name, limit in scenario.field_limits.items() if name != _BATCH or not _is_exact(scenario)}


def draw_batch(scenario: Scenario) -> None:
    """Draw the sequences per step, whether they are the most or exact, and the tokens of a sequence."""
    way = "exact" if _is_exact(scenario) else "most"
    key = key_for("sentence_batch_way", way)

    def change_way() -> None:
        exact = given(key) == "exact"
        apply_change(lambda now: _with_batch(now, now.max_batch_size, exact=exact))

    st.segmented_control(
        "Sequences per step",
        list(_WAYS),
        default=way,
        key=key,
        on_change=change_way,
        required=True,
        format_func=_WAYS.__getitem__,
    )
    _draw_number(
        "batch",
        "Sequences",
        BATCHES,
        scenario.max_batch_size,
        LARGEST,
        lambda now, value: _with_batch(now, value, exact=_is_exact(now)),
    )
    st.caption(
        "Only executions of exactly this batch."
        if way == "exact"
        else "Each data parallel degree uses its largest multiple up to this."
    )
    _draw_number("sequence", "Tokens per sequence", SEQUENCES, scenario.model.seq_size, LONGEST, _with_sequence)
    if scenario.model.seq_size_basis:
        st.caption(literal(scenario.model.seq_size_basis))


def draw_tokens(figures: FiguresView) -> None:
    """Draw the tokens of the training run, which scale the time and cost of every page."""
    field, now = figures.tokens, float(figures.tokens.value)

    def put(value: float | None) -> None:
        if value is not None and 1e-3 <= value <= 9_999_999:
            state.set_url_value(field.parameter, field.text(float(value)))

    key = key_for("sentence_tokens", now)
    st.number_input(
        "Tokens to train, bn",
        1e-3,
        9_999_999.0,
        now,
        key=key,
        format="%.6g",
        on_change=lambda: put(given(key)),
    )
    pick = key_for("sentence_tokens_pick", now if now in TOKENS else None)
    st.pills(
        "Suggested tokens",
        TOKENS,
        default=now if now in TOKENS else None,
        key=pick,
        format_func=lambda number: format_tokens(number * 1e9).removesuffix(" tokens"),
        on_change=lambda: put(given(pick)),
        label_visibility="collapsed",
        width=300,
    )
    st.caption("Times and costs of a run are for so many tokens. They change no layout.")


def _is_exact(scenario: Scenario) -> bool:
    return scenario.field_limits.get(_BATCH) == [scenario.max_batch_size]


def _with_batch(now: Scenario, batch: int, *, exact: bool) -> Scenario:
    limits = other_limits(now)
    return altered(now, max_batch_size=batch, limits={**limits, _BATCH: [batch]} if exact else limits)


def _with_sequence(now: Scenario, sequence: int) -> Scenario:
    """Return the scenario with sequences of another length; the library's model again with its own length."""
    model = now.model
    if model.derived_from in models.names() and model_of(model.derived_from).seq_size == sequence:
        original = model_of(model.derived_from)
        if {change.field for change in model.changes} <= {"seq_size", "seq_size_basis"}:
            return altered(now, model=original)
    return altered(now, model=models.edited(model, {"seq_size": sequence, **_chosen_basis(model)}))


def _chosen_basis(model: Model) -> dict[str, str]:
    return {"seq_size_basis": "Chosen in the sentence."} if model.calculon is None else {}


def _with_node(now: Scenario, size: int) -> Scenario:
    """Return the scenario with nodes of another size; the library's system again with its own nodes."""
    limited = hardware.limit_nodes(now.system, size)
    if not limited.changes and limited.derived_from:
        limited = _original(limited)
    limits = {name: limit for name, limit in now.field_limits.items() if not name.endswith("_net")}
    return altered(now, system=limited, limits=limits)


def _original(system: System) -> System:
    """Return the library's system that an edited one was made from; the system itself without one."""
    known = system.derived_from in hardware.names(with_variants=True)
    return system_of(system.derived_from) if known else system


def _draw_number(
    name: str,
    label: str,
    suggestions: Sequence[int],
    value: int,
    most: int,
    make: Callable[[Scenario, int], Scenario],
) -> None:
    """Draw a field for a whole number, with suggestions below. make: returns the scenario with another number."""

    def put(key: str) -> None:
        value = given(key)
        if value is not None:
            apply_change(lambda now: make(now, whole(value)))

    key = key_for(f"sentence_{name}", float(value))
    whole_field(label, 1, most, value, key, on_change=put, args=(key,))
    suggested = value if value in suggestions else None
    pick = key_for(f"sentence_{name}_pick", suggested)
    st.pills(
        "Suggestions",
        suggestions,
        default=suggested,
        key=pick,
        format_func=lambda number: f"{number:,}",
        on_change=put,
        args=(pick,),
        label_visibility="collapsed",
        width=300,
    )
