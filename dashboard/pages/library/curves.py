"""The efficiency tables of a system as curves, side by side."""

from __future__ import annotations

import streamlit as st

from dashboard.charts.elements.markup import head
from dashboard.charts.execution.efficiency_curve import efficiency_curve
from dashboard.link import state
from dashboard.widgets.chart import show
from engine.columns import choice_label
from hardware import System

__all__ = ["curves"]


def curves(system: System) -> None:
    """Draws both kinds of efficiency tables as curves."""
    compute = [
        (f"{kind} {choice_label('datatype', name)}", engine.gflops_efficiency)
        for kind, engines in (("matrix", system.matrix), ("vector", system.vector))
        for name, engine in engines.items()
    ]
    memory = [("HBM", system.mem1.mb_efficiency)]
    if system.mem2.capacity_gib:
        memory.append(("host memory", system.mem2.mb_efficiency))
    left, right = st.columns(2, gap="medium")
    mode = state.theme_mode()
    with left:
        st.html(head("How much of the peak", "by size of the operation; calculon cost model"))
        show(efficiency_curve(compute, "GFLOP", mode), "library_compute")
    with right:
        st.html(head("How much of the bandwidth", "by size of the transfer; calculon cost model"))
        show(efficiency_curve(memory, "MB", mode), "library_traffic")
