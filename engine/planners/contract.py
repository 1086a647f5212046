"""What a planner takes and what it returns, the same for every planner.

A planner is a function `plan(problem, progress, cancel)`. What a problem consists of is the planner's own; what comes
back is a `Plan`: stages with their devices, figures with units, and the alternatives that were looked at, each with its
value or with the reason for which it was rejected. Whoever draws, exports or stores a plan needs no more than this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

__all__ = [
    "Alternative",
    "Cancel",
    "Figure",
    "Placement",
    "Plan",
    "PlanCancelledError",
    "PlanError",
    "Planner",
    "Problem",
    "Progress",
    "Stage",
    "never",
    "unheard",
]


class PlanError(ValueError):
    """The problem is not understood, or no plan of it exists; the message says what would be right."""


class PlanCancelledError(Exception):
    """Whoever asked for the plan does not want it any more."""


Progress = Callable[[float, str], None]
"""Is told the share of the work that is done, 0 to 1, and what is being done."""

Cancel = Callable[[], bool]
"""Says whether the search shall stop; it then raises `PlanCancelledError`."""


def unheard(share: float, doing: str) -> None:
    """Does nothing: progress that nobody listens to.

    Args:
        share: of the work that is done, 0 to 1.
        doing: what is being done, in words.
    """


def never() -> bool:
    """Returns that the search shall go on."""
    return False


@dataclass(frozen=True, slots=True)
class Figure:
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
    whole range to every stage and says in `figures` what is split. `figures` are the stage's own.
    """

    start: int
    stop: int
    placement: Placement
    figures: tuple[Figure, ...] = ()

    @property
    def devices(self) -> tuple[int, ...]:
        """Returns the devices, in rising order."""
        return self.placement.devices


@dataclass(frozen=True, slots=True)
class Alternative:
    """Something else that was looked at: how it was found, its value of the objective, None where it has none, and why
    it is not the answer."""

    name: str
    value: float | None
    reason: str
    stages: Sequence[Stage] = ()


@dataclass(frozen=True)
class Plan:
    """What a planner returns. `objective` names the figure that was optimised; `notes` are sentences that whoever reads
    the figures has to know, such as what was simplified."""

    planner: str
    version: str
    problem: Problem
    stages: Sequence[Stage]
    figures: tuple[Figure, ...]
    objective: str
    alternatives: Sequence[Alternative] = ()
    notes: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    def figure(self, name: str) -> Figure:
        """Returns the figure of that name. Raises `KeyError`."""
        for each in self.figures:
            if each.name == name:
                return each
        raise KeyError(name)

    @property
    def value(self) -> float:
        """Returns what was optimised, in the unit of its figure."""
        return self.figure(self.objective).value


class Problem(Protocol):
    """What shall be planned, as one value that can be written down: equal documents have equal plans."""

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
