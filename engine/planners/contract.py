"""Contract of all planners: problem, progress, cancellation and plan.

A planner is a function `plan(problem, progress, cancel)`. Every planner defines its own problem and returns a `Plan`:
stages with their devices, figures with units, and the examined alternatives, each with its value or the reason why it
was rejected. Drawing, exporting and storing a plan need nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from hardware import System

__all__ = [
    "Alternative",
    "Cancel",
    "Placement",
    "Plan",
    "PlanCancelledError",
    "PlanError",
    "PlanFigure",
    "Planner",
    "Problem",
    "Progress",
    "Stage",
    "check_joined",
    "never",
    "unheard",
]


class PlanError(ValueError):
    """Invalid problem, or no plan exists; the message says how to correct it."""


class PlanCancelledError(Exception):
    """The search was cancelled."""


Progress = Callable[[float, str], None]
"""Called with the share done (0 to 1) and the current step in words."""

Cancel = Callable[[], bool]
"""Says whether the search shall stop; it then raises `PlanCancelledError`."""


def unheard(share: float, doing: str) -> None:
    """Ignore progress.

    Args:
        share: done share of the work, 0 to 1.
        doing: current step in words.
    """


def check_joined(system: System, processors: int) -> None:
    """Raise `PlanError` if no network of a system joins so many processors.

    Args:
        system: whose networks.
        processors: of the plan.
    """
    if processors > system.reach:
        raise PlanError(f"The networks of {system.name} join {system.reach:,} processors, not {processors:,}.")


def never() -> bool:
    """Return False: the search goes on."""
    return False


@dataclass(frozen=True, slots=True)
class PlanFigure:
    """One figure of a plan: its name in links and files, its value, its unit (empty where it has none), and its
    title."""

    name: str
    value: float
    unit: str
    title: str


@dataclass(frozen=True, slots=True)
class Placement:
    """The devices of a stage, by number, in rising order."""

    devices: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.devices)


@dataclass(frozen=True, slots=True)
class Stage:
    """Layers that a group of devices computes.

    `start` and `stop` are a half-open range of the planner's layers; a planner that splits inside layers gives the
    whole range to every stage and reports the split in `figures`. `figures` are the stage's own.
    """

    start: int
    stop: int
    placement: Placement
    figures: tuple[PlanFigure, ...] = ()

    @property
    def devices(self) -> tuple[int, ...]:
        """Returns the devices, in rising order."""
        return self.placement.devices


@dataclass(frozen=True, slots=True)
class Alternative:
    """An examined plan that was not chosen: its search, its value of the objective, if any, and the reason."""

    name: str
    value: float | None
    reason: str
    stages: Sequence[Stage] = ()


@dataclass(frozen=True)
class Plan:
    """Result of a planner. `objective` names the optimised figure; `notes` are caveats on the figures in sentences,
    such as simplifications."""

    planner: str
    version: str
    problem: Problem
    stages: Sequence[Stage]
    figures: tuple[PlanFigure, ...]
    objective: str
    alternatives: Sequence[Alternative] = ()
    notes: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    def figure(self, name: str) -> PlanFigure:
        """Returns the figure of that name. Raises `KeyError`."""
        for each in self.figures:
            if each.name == name:
                return each
        raise KeyError(name)

    @property
    def value(self) -> float:
        """Returns the optimised figure, in its own unit."""
        return self.figure(self.objective).value


class Problem(Protocol):
    """Question to a planner as one serialisable value: equal documents have equal plans."""

    def document(self) -> dict[str, Any]:
        """Returns everything that the plan depends on, as JSON."""


Asked = TypeVar("Asked", bound=Problem, contravariant=True)


class Planner(Protocol[Asked]):
    """A search for plans."""

    name: str
    title: str
    version: str

    def plan(self, problem: Asked, progress: Progress = unheard, cancel: Cancel = never) -> Plan:
        """Returns the best plan found.

        Raises:
            PlanError: the problem is not understood, or nothing can run.
            PlanCancelledError: `cancel` said so.
        """
