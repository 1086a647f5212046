"""The part of a link that all pages share: the scenario, the selected cell and execution, the reader's own one."""

from __future__ import annotations

from dataclasses import dataclass

from dashboard.link import state
from engine import Scenario

__all__ = ["SharedView", "parse_shared"]


@dataclass(frozen=True, slots=True)
class SharedView:
    """Scenario and selection of a link."""

    scenario: Scenario
    cell: tuple[int, int] | None
    """The selected (tensor_par, pipeline_par)."""
    id: int | None
    """The selected execution."""
    own: int | None
    """The execution that the reader runs, read from a launch configuration."""


def parse_shared() -> SharedView:
    """Parse the shared part of the link; invalid parts are reported above the page."""
    return SharedView(state.current_scenario(), state.selected_cell(), state.selected_id(), state.own_id())
