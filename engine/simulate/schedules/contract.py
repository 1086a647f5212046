"""Contract of a schedule: a rule that lists, for every rank, its actions in order.

Actions are `(kind, stage, microbatch)`; an entry of a list is one action, or a pair of a forward and a whole backward
that run together. Stages are stages of the model: with several chunks per rank there are more of them than ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

__all__ = [
    "BACKWARD",
    "FORWARD",
    "INPUT_GRADIENT",
    "KINDS",
    "WEIGHT_GRADIENT",
    "Action",
    "Entry",
    "ScheduleError",
    "ScheduleRule",
    "ScheduleShape",
    "StagePlacement",
    "backward",
    "forward",
    "input_gradient",
    "pair",
    "weight_gradient",
]

FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, BACKWARD = range(4)
"""Kinds of actions: F, B (gradient of the inputs), W (gradient of the weights), BW (both in one)."""

KINDS: Final = ("F", "B", "W", "BW")
"""Text of each kind of action. "B" is the gradient of the input alone, as in papers on zero bubbles."""

Action = tuple[int, int, int]
"""Kind, stage of the model, microbatch."""
Entry = tuple[Action, ...]
"""One action, or a forward and a whole backward that run as one overlapped pair."""


class ScheduleError(ValueError):
    """Schedule that does not exist for these numbers, or actions that cannot run; the message says what would be
    right."""


class StagePlacement(StrEnum):
    """Assignment of stages to ranks."""

    LOOP = "loop"
    """Stage s on rank s mod P."""
    V = "v"
    """Two chunks per rank: stage s on rank s, or on rank 2P-1-s for s >= P, so the turn stays on one rank."""
    BIDIRECTIONAL = "bidir"
    """Stage s on rank s for the first half of the microbatches, on rank P-1-s for the other: parameters twice."""

    def rank(self, stage: int, microbatch: int, ranks: int, microbatches: int) -> int:
        """Return the rank that computes a stage for a microbatch."""
        if self is StagePlacement.LOOP:
            return stage % ranks
        if self is StagePlacement.V:
            return stage if stage < ranks else 2 * ranks - 1 - stage
        return stage if 2 * microbatch < microbatches else ranks - 1 - stage


@dataclass(frozen=True, slots=True)
class ScheduleShape:
    """Inputs of a rule."""

    ranks: int
    """P, the pipeline parallel degree."""
    microbatches: int
    """M, of one replica in one step."""
    chunks: int = 1
    """v, pieces of the model that a rank holds."""
    group: int | None = None
    """Microbatches that pass a chunk before the next chunk's turn, of interleaved schedules; None for the usual."""
    memory_limit: float | None = None
    """Most activations that a rank may hold, in units of one rank's share of the model for one microbatch."""
    durations: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 0.0)
    """Forward, input gradient, weight gradient of a chunk and a send, for rules that look at them."""


def _no_check(shape: ScheduleShape) -> None:
    del shape


def _no_remarks(shape: ScheduleShape) -> Sequence[str]:
    del shape
    return ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScheduleRule:
    """A schedule by name."""

    name: str
    title: str
    order: Callable[[ScheduleShape], list[list[Entry]]]
    """Lists the entries of every rank."""
    source: str
    """Paper and section, or program, that the rule is of."""
    placement: StagePlacement = StagePlacement.LOOP
    chunks: int | None = 1
    """Chunks per rank, where the schedule fixes them."""
    check: Callable[[ScheduleShape], None] = _no_check
    """Raises ScheduleError in words for numbers that the schedule is not defined for."""
    remarks: Callable[[ScheduleShape], Sequence[str]] = _no_remarks
    """Sentences about who would refuse these numbers although the order exists."""
    frameworks: Mapping[str, str] = field(default_factory=dict)
    """Framework that offers the schedule -> its option or name there."""
    pairs: bool = False
    """True if it runs forwards and backwards as overlapped pairs."""
    splits: bool = False
    """True if it computes gradients of weights separately from gradients of inputs."""
    grouped: bool = False
    """True if a group size may be given."""
    limited: bool = False
    """True if it keeps to a memory limit."""
    timed: bool = False
    """True if the order depends on the durations."""
    parameter_copies: int = 1
    """Number of copies of each parameter."""
    slots: Callable[[ScheduleShape], int] | None = None
    """Microbatches that the order has room for, where that is more than there are: the last ones stay empty."""

    def stages(self, shape: ScheduleShape) -> int:
        """Returns the stages of the model, S."""
        return shape.ranks * (shape.chunks if self.placement is not StagePlacement.BIDIRECTIONAL else 1)


def forward(stage: int, microbatch: int) -> Entry:
    """Returns the entry of a forward.

    Args:
        stage: of the model, from 0.
        microbatch: number of the microbatch, from 0.
    """
    return ((FORWARD, stage, microbatch),)


def backward(stage: int, microbatch: int) -> Entry:
    """Returns the entry of a whole backward.

    Args:
        stage: of the model, from 0.
        microbatch: number of the microbatch, from 0.
    """
    return ((BACKWARD, stage, microbatch),)


def input_gradient(stage: int, microbatch: int) -> Entry:
    """Returns the entry of a gradient of the input alone.

    Args:
        stage: of the model, from 0.
        microbatch: number of the microbatch, from 0.
    """
    return ((INPUT_GRADIENT, stage, microbatch),)


def weight_gradient(stage: int, microbatch: int) -> Entry:
    """Returns the entry of a gradient of the weights.

    Args:
        stage: of the model, from 0.
        microbatch: number of the microbatch, from 0.
    """
    return ((WEIGHT_GRADIENT, stage, microbatch),)


def pair(first: Entry, second: Entry) -> Entry:
    """Returns the entry of a forward and a whole backward that run together.

    Args:
        first: the forward.
        second: the whole backward.
    """
    return first + second
