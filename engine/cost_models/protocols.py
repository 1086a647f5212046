"""Parts of the cost model contract for searches, explorations and pages, apart from the cost model itself.

Import them from `engine.cost_models.contract`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from engine.executions.arrays import Flags, Floats, Ints
from engine.space.rejection import MemoryRequirements, Rejected
from engine.space.rows import RowGroup
from engine.space.schedule_points import CellColumns, SchedulePoints, StepModes
from hardware import System

__all__ = [
    "MODELLED",
    "PROVENANCES",
    "BoundSearch",
    "Candidates",
    "KernelTimes",
    "LaidOut",
    "PreparedCells",
    "SustainedRate",
]


MODELLED = "no measurements: modelled"
PROVENANCES = ("fitted", "measured", "stated", MODELLED)
"""Provenance of a rate, best first: fitted to measured runs of its precision and generation; measured by a benchmark;
set by hand in part; or modelled, without a measurement on its generation."""


@dataclass(frozen=True, slots=True)
class SustainedRate:
    """One rate of a system: what the datasheet prints, and what long operations sustain of it, in `unit`.

    `parameters` are the names of the calibrated values that make the difference; `provenance` is one of `PROVENANCES`;
    `basis` says in words which runs and values it rests on.
    """

    name: str
    unit: str
    peak: float
    sustained: float
    parameters: tuple[str, ...]
    provenance: str
    basis: str

    @property
    def share(self) -> float:
        """Sustained over peak [dimensionless]."""
        return self.sustained / self.peak


class Candidates(Protocol):
    """Rows of prepared cells that share a bound on their sample rate, each an array [candidates].

    `group` and `place` say which rows of which group, `time` which block times their modes have, `cell` their cell.
    """

    group: Ints
    place: Ints
    time: Ints
    cell: Ints


class PreparedCells(Protocol):
    """Prepared cells of a space: executions that cannot run are rejected and counted, the others are grouped into rows.

    `fits` [memory modes, schedule points] is True where memory suffices, `feasible` counts feasible executions.
    """

    space: Any
    fits: Flags
    groups: list[RowGroup]
    rejected: Rejected
    feasible: int

    @property
    def cells(self) -> CellColumns:
        """The cells."""

    @property
    def points(self) -> SchedulePoints:
        """Their schedule points."""

    @property
    def modes(self) -> StepModes:
        """The modes of the space."""

    def memory_requirements(self) -> MemoryRequirements:
        """Returns the memory that everything in the cells needs."""


class LaidOut(Protocol):
    """Cells laid out once for many systems that differ in rates and capacities only."""

    def prepared(self, system: System) -> tuple[Any, Any]:
        """Returns the cells prepared for a system, as `PreparedCells`, and their `Candidates`."""


class BoundSearch(Protocol):
    """Cells of a space for a search for the best execution: bounds first, rows only for promising schedule points.

    Systems may differ in rates and capacities. Ids are the ids of the space.
    """

    @property
    def few(self) -> bool:
        """Return whether there are so few schedule points that they are all evaluated together."""

    def feasible(self, space: Any) -> int:
        """Counts the executions that run on the space's system."""

    def promising(self, space: Any) -> Ints:
        """Return some schedule points with the highest bounds, to be evaluated whole first; all points if there are
        `few`."""

    def bounds(
        self, space: Any, least: Callable[[], float] = ..., known: Ints | None = None
    ) -> Iterator[tuple[Ints, Ints, Floats]]:
        """Yield schedule points, block modes and upper bounds of the sample rate of their executions [samples/s], in
        parts, the most promising first. Each part omits points that cannot reach `least()` or are `known`."""

    def prepare(self, space: Any, point: Ints, mode: Ints | None = None) -> tuple[Any, Any]:
        """Prepares these schedule points with these block modes, or all: `PreparedCells`, and its `Candidates`."""

    def point_of(self, execution: int) -> Ints:
        """Returns the schedule point of an execution, an array of one; empty where the execution is of other cells."""


class KernelTimes(Protocol):
    """Times of single kernels and collectives of a system, for callers that compose their own steps. Sizes are numbers
    or arrays that broadcast."""

    @property
    def reserve(self) -> float:
        """Memory of a processor that holds no tensor: context, buffers of communication, fragmentation [bytes]."""

    @property
    def logit_bytes(self) -> float:
        """Memory of one logit with its copies and its gradient [bytes]."""

    def product(
        self, m: Floats | float, n: Floats | float, k: Floats | float, count: Floats | float = 1.0
    ) -> tuple[Floats, Floats, Floats]:
        """Returns the seconds of products [m, k] x [k, n] on one processor [s]: results, gradients of the left and of
        the right factor."""

    def attention(
        self,
        sequences: Floats | float,
        heads: Floats | float,
        length: int,
        key_size: int,
        value_size: int,
        window: int | None = None,
    ) -> tuple[Floats, Floats]:
        """Returns the seconds of the core of attention on one processor, forward and backward [s]."""

    def norm(self, elements: Floats | float) -> tuple[Floats, Floats]:
        """Return the seconds of a norm with its residual addition, by elements, forward and backward [s]."""

    def activation(self, elements: Floats | float, *, gated: bool) -> tuple[Floats, Floats]:
        """Return the seconds of an activation function, by results, forward and backward [s]."""

    def recomputed(self, kind: str) -> tuple[float, float, float, float, float]:
        """Returns which shares of a forward pass a kind of recomputation, "none", "selective" or "full", does again:
        products of weights, attention, norms and activation functions, collectives of the residual stream, exchanges
        between experts."""

    def collective(self, size: Floats | float, ranks: int, stride: int, *, passes: float) -> Floats:
        """Return the seconds of a collective over ranks at a stride in processors, by size of the full buffer [s];
        passes is 1 for an all-gather or reduce-scatter, 2 for an all-reduce."""

    def exchange(self, size: Floats | float, ranks: int, stride: int) -> Floats:
        """Returns the seconds of an all-to-all of a buffer that is spread over the ranks [s]."""
