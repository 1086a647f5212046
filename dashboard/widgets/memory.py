"""Notes of pages on the memory of executions, next to its bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.elements.palette import MEMORY_KINDS, kinds_of
from dashboard.charts.execution.memory_bars import tier_pieces
from dashboard.words.numbers import format_value
from engine import Exploration
from engine.executions.codes import OFFLOADS
from hardware import GIB

__all__ = ["capacities", "memory_legends", "offload_sentence"]


def capacities(exploration: Exploration) -> tuple[float, float]:
    """Returns capacity of both tiers [bytes]."""
    system = exploration.scenario.system
    return system.mem1.capacity_gib * GIB, system.mem2.capacity_gib * GIB


def memory_legends(exploration: Exploration, bars: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Draws what each colour of such bars is, and how much of it there is."""
    kinds = kinds_of(MEMORY_KINDS, exploration.scenario.cost_model)
    st.html("".join(markup.memory_legend(tier_pieces(row), kinds, name) for name, row in bars))


def offload_sentence(exploration: Exploration, row: dict[str, Any]) -> str:
    """Returns what offloading asks of the link to host memory."""
    system = exploration.scenario.system
    if not any(bool(row[name]) for name in OFFLOADS):
        if system.mem2.capacity_gib == 0:
            return "This system has no second memory tier, so nothing can be offloaded."
        return "Nothing is offloaded; host memory stays empty."
    need = format_value("offload_mem_bw_req", row["offload_mem_bw_req"])
    given = format_value("offload_mem_bw_req", system.mem2.bandwidth_gb_per_s * 1e9)
    exposed = float(row["fw_offload_exposed_time"]) + float(row["bw_offload_exposed_time"])
    lost = format_value("total_time", exposed)
    tail = f"{lost} of each step waits for it." if exposed > 0 else "No step waits for it."
    return f"Offload would be hidden at {need} to host memory; the link has {given} at its peak. {tail}"
