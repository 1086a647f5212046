"""The space: all executions of a model on a number of processors under stated limits, numbered.

A space is a list of cells, one per (tensor, pipeline, batch) combination. Within a cell the choices are rectangular:

    id = first id of the cell + ((interleaving x modes + mode) x microbatches + microbatch) x assignments + assignment

where a mode is one combination of everything that is a choice of method (recomputation, sharding, communication,
overlap, offload, ...), and an assignment says which network carries which parallelism. So ids run in the enumeration
order of Calculon's `llm-all-executions`, decode by arithmetic, and no list of executions is ever made.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from engine.columns import Column, by_name, fields_of
from engine.executions.arrays import Ints
from engine.executions.codes import NETWORKS
from engine.executions.limits import capacity_factor, normalise
from engine.executions.table import LARGEST, Executions
from hardware import GIB, System
from models import Model
from models.documents import shown

__all__ = [
    "MODE_FIELDS",
    "MOST_CELLS",
    "Cell",
    "Modes",
    "Space",
    "SpaceError",
    "checked_size",
    "divisors",
]


LARGEST_SPACE = 2**62

MOST_CELLS = 100_000
"""Cells beyond which a space is refused: a second or two of listing them. Only batch sizes can make that many."""


_SIZES = {"num_procs": "The number of GPUs", "max_batch_size": "The largest batch", "step": "The step between sizes"}
"""Names of a space's sizes in messages."""


class SpaceError(ValueError):
    """A space that cannot be numbered: an impossible processor count, batch or datatype, or far too many executions."""


MODE_FIELDS: tuple[str, ...] = (
    "activation_recompute",
    "optimizer_sharding",
    "tensor_par_comm_type",
    "seq_par_ag_redo",
    "data_par_overlap",
    "tensor_par_overlap",
    "weight_offload",
    "activations_offload",
    "optimizer_offload",
    "fused_activation",
    "attention_type",
    "training",
)
"""Fields that a mode decides, in enumeration order."""


@lru_cache(maxsize=4096)
def divisors(number: int) -> tuple[int, ...]:
    """Returns all divisors in ascending order.

    Args:
        number: at least 1.
    """
    small = np.arange(1, int(number**0.5) + 1)
    small = small[number % small == 0]
    return tuple(sorted({*small.tolist(), *(number // small).tolist()}))


@dataclass(frozen=True, eq=False, slots=True)
class Modes:
    """The modes of cells of one kind: an array [modes] per field of `MODE_FIELDS`, words as positions."""

    fields: Mapping[str, npt.NDArray[Any]]

    def __len__(self) -> int:
        return len(self.fields["training"])


@dataclass(frozen=True, slots=True)
class Cell:
    """One (tensor, pipeline, batch) combination and its rectangle of choices."""

    tensor_par: int
    pipeline_par: int
    data_par: int
    batch_size: int
    interleavings: tuple[int, ...]
    microbatches: tuple[int, ...]
    kind: int
    assignments: int
    context_par: int = 1
    expert_par: int = 1
    expert_tensor_par: int = 1
    schedules: tuple[int, ...] = ()
    """Pipeline schedule of each of `interleavings`, as a position among the choices; empty if the cost model has only
    one."""
    layouts: tuple[int, ...] = ()
    """Stage layout of each of `interleavings`, as a position among the words; empty if the cost model has only one."""
    mode_list: int = -1
    """Position of the mode list where a framework restricts modes; -1 where the kind decides it."""


class Space(ABC):
    """All executions of `model` on `num_procs` processors of `system`, at most `max_batch_size` samples per step.

    `limits` restrict fields (see `engine.executions.limits`). Which executions there are is for each cost model to say:
    it gives the modes, the network assignments and the cells, and this class numbers them.

    Raises `SpaceError` or `engine.executions.limits.LimitError`.
    """

    cost_model: ClassVar[str]
    """The name of the cost model whose executions these are."""
    mode_fields: ClassVar[tuple[str, ...]]
    """The fields that a mode decides, in enumeration order."""
    datatypes: ClassVar[tuple[str, ...]]
    """The datatypes that the cost model computes in."""

    def __init__(
        self,
        model: Model,
        system: System,
        *,
        num_procs: int,
        max_batch_size: int,
        datatype: str,
        limits: Mapping[str, Any] | None = None,
    ) -> None:
        self.model, self.system = model, system
        self.num_procs = checked_size("num_procs", num_procs)
        self.max_batch_size = checked_size("max_batch_size", max_batch_size)
        if not any(map(system.has_rate, self.datatypes)):
            raise SpaceError(
                f"{shown(system.name)} has rates for {', '.join(system.matrix)}, but the cost model {self.cost_model} "
                f"computes in {', '.join(self.datatypes)}; choose another cost model, or a system with such rates."
            )
        if not isinstance(datatype, str) or datatype not in self.datatypes:
            raise SpaceError(f"The datatype is {shown(datatype)}; it must be one of {', '.join(self.datatypes)}.")
        self.datatype = datatype
        if not system.has_rate(datatype):
            there = ", ".join(system.offered_datatypes)
            raise SpaceError(f"{shown(system.name)} has no rates for {datatype}; it has {there}.")
        self.limits = normalise(limits, self.cost_model)
        self.tiers = system.tiers
        self.modes = self._mode_lists()
        self.assignments = tuple(self._assignments(bool(kind & 4), bool(kind & 2), bool(kind & 1)) for kind in range(8))
        self.cells = self._cells()
        sizes = [
            len(cell.interleavings) * len(self.modes[self.mode_kind(cell)]) * len(cell.microbatches) * cell.assignments
            for cell in self.cells
        ]
        self.total = sum(sizes)
        if self.total > LARGEST_SPACE:
            raise SpaceError(f"The space has {self.total:.3g} executions, which cannot be numbered; set limits.")
        self.first_ids: Ints = np.concatenate(([0], np.cumsum(np.array(sizes, np.int64))))[:-1].astype(np.int64)

    @property
    def num_blocks(self) -> int:
        """Blocks of the model."""
        return self.model.num_blocks

    @property
    def capacities(self) -> tuple[float, float]:
        """Memory up to which an execution runs, of both tiers: capacities, with the excess of a limit [bytes]."""
        factor = capacity_factor(self.limits)
        first, second = self.system.mem1.capacity_gib * GIB, self.system.mem2.capacity_gib * GIB
        return (first, second) if factor == 1.0 else (first * factor, second * factor)

    @abstractmethod
    def mode_kind(self, cell: Cell) -> int:
        """Returns the position of the mode list that a cell uses."""

    @abstractmethod
    def _mode_lists(self) -> tuple[Modes, ...]:
        """The lists of modes, by kind of cell."""

    @abstractmethod
    def _assignments(self, tensor: bool, pipeline: bool, data: bool) -> Ints:
        """Network assignments [assignments, 3] of tensor, pipeline and data parallelism where these are present."""

    @abstractmethod
    def _cells(self) -> tuple[Cell, ...]:
        """The cells, in enumeration order. Raises `engine.executions.limits.LimitError` for far too many."""

    def _values(self, name: str, default: tuple[Any, ...]) -> tuple[Any, ...]:
        """Choices of a mode field in enumeration order; the defaults without a limit."""
        limit = self.limits.get(name)
        if limit is None:
            return default
        every = by_name(name).choices or (True, False)
        # Further words of an open field follow, in the order of the limit.
        return (*(value for value in every if value in limit), *(value for value in limit if value not in every))

    def _batches(self, data_par: int) -> Sequence[int]:
        """Batch sizes tried at a data-parallel degree."""
        limit = self.limits.get("batch_size")
        if limit is None:
            return [self.max_batch_size // data_par * data_par]
        if isinstance(limit, dict):
            low, high = max(limit["min"], data_par), min(limit["max"], self.max_batch_size)
            return range(-(-low // data_par) * data_par, high + 1, data_par)
        return [batch for batch in limit if 0 < batch <= self.max_batch_size and batch % data_par == 0]

    @cached_property
    def _columns(self) -> dict[str, Ints]:
        """Per cell [cells]: degrees, batch, and the counts that decoding divides by."""

        def column(values: list[int]) -> Ints:
            return np.array(values, np.int64)

        return {
            "tensor_par": column([cell.tensor_par for cell in self.cells]),
            "pipeline_par": column([cell.pipeline_par for cell in self.cells]),
            "data_par": column([cell.data_par for cell in self.cells]),
            "batch_size": column([cell.batch_size for cell in self.cells]),
            "kind": column([cell.kind for cell in self.cells]),
            "mode_kind": column([self.mode_kind(cell) for cell in self.cells]),
            "modes": column([len(self.modes[self.mode_kind(cell)]) for cell in self.cells]),
            "interleavings": column([len(cell.interleavings) for cell in self.cells]),
            "microbatches": column([len(cell.microbatches) for cell in self.cells]),
            "assignments": column([cell.assignments for cell in self.cells]),
        }

    def decode(self, ids: npt.ArrayLike) -> Executions:
        """Returns the executions with these ids [rows]. Raises `SpaceError` for anything but whole numbers in
        0..total-1."""
        return Executions(**self.fields(ids))

    def fields(self, ids: npt.ArrayLike) -> dict[str, npt.NDArray[Any]]:
        """Returns the fields of these executions, arrays [rows] by name; words as positions. Raises as `decode`."""
        numbers = self._checked_ids(ids)
        c = self._columns
        cell = np.searchsorted(self.first_ids, numbers, side="right") - 1
        rest, assignment = np.divmod(numbers - self.first_ids[cell], c["assignments"][cell])
        rest, microbatch = np.divmod(rest, c["microbatches"][cell])
        interleaving, mode = np.divmod(rest, c["modes"][cell])
        rows = len(numbers)
        fields: dict[str, npt.NDArray[Any]] = {
            name: c[name][cell] for name in ("tensor_par", "pipeline_par", "data_par", "batch_size")
        }
        fields["num_procs"] = np.full(rows, self.num_procs)
        fields["datatype"] = np.full(rows, self.datatypes.index(self.datatype))
        fields["pipeline_interleaving"] = _take_ragged([item.interleavings for item in self.cells], cell, interleaving)
        fields["microbatch_size"] = _take_ragged([item.microbatches for item in self.cells], cell, microbatch)
        kind = c["kind"][cell]
        for position, name in enumerate(NETWORKS):
            fields[name] = _take_ragged([table[:, position] for table in self.assignments], kind, assignment)
        modes = c["mode_kind"][cell]
        for name in self.mode_fields:
            fields[name] = _take_ragged([table.fields[name] for table in self.modes], modes, mode)
        if any(column.name == "schedule" for column in fields_of(self.cost_model)):
            fields["schedule"] = _take_ragged([item.schedules for item in self.cells], cell, interleaving)
        if any(column.name == "stage_layout" for column in fields_of(self.cost_model)):
            fields["stage_layout"] = _take_ragged([item.layouts for item in self.cells], cell, interleaving)
        return fields | self.further(cell)

    def further(self, cell: Ints) -> dict[str, npt.NDArray[Any]]:
        """Return the fields that follow from the cell alone [rows] and replace enumerated ones; `cell` holds cell
        numbers."""
        return {}

    def _checked_ids(self, ids: npt.ArrayLike) -> Ints:
        try:
            given = np.asarray(ids)
        except ValueError:  # rows of different lengths
            given = np.asarray(None)
        whole = given.ndim == 1 and (given.dtype.kind in "iu" or not len(given))
        if whole and (not len(given) or (int(given.min()) >= 0 and int(given.max()) < self.total)):
            return given.astype(np.int64)
        if not self.total:
            raise SpaceError("Execution ids of this space do not exist: it has no executions.")
        raise SpaceError(f"Execution ids of this space are a list of whole numbers from 0 to {self.total - 1:,}.")

    def on(self, system: System) -> Self:
        """Returns the same executions on another system that has the same ones; its networks may carry them
        otherwise."""
        other = copy.copy(self)
        other.system = system
        return other

    def table(self, ids: npt.ArrayLike) -> pd.DataFrame:
        """Returns the executions with these ids as a table of all fields, words written out."""
        return to_table(self.fields(ids), fields_of(self.cost_model), self.datatypes)

    def row(self, number: int) -> dict[str, Any]:
        """Returns all fields of one execution by name, words written out: as its row of a `table`, many times sooner.

        Args:
            number: id of the execution. Raises as `decode`.
        """
        fields = self.fields([number])
        return {
            column.name: (column.words or self.datatypes)[int(fields[column.name][0])]
            if column.dtype == "str"
            else fields[column.name][0].item()
            for column in fields_of(self.cost_model)
        }


def to_table(
    fields: Mapping[str, npt.NDArray[Any]], wanted: Sequence[Column], datatypes: Sequence[str]
) -> pd.DataFrame:
    """Returns the fields by name as a table of the `wanted` ones, words written out.

    Args:
        fields: arrays [rows] by name, words as positions.
        wanted: the columns of the table.
        datatypes: the words of the datatype, which the register leaves open.
    """
    columns: dict[str, Any] = {}
    for column in wanted:
        values = fields[column.name]
        if column.dtype == "str":
            words = np.array(column.words or tuple(datatypes), dtype=object)
            columns[column.name] = pd.array(words[values], dtype="str")
        else:
            columns[column.name] = values
    return pd.DataFrame(columns)


def _take_ragged(lists: list[Any], which: Ints, position: Ints) -> npt.NDArray[Any]:
    """`lists[which][position]` for arrays of both, over lists of different lengths."""
    if len(which) == 1:
        only: npt.NDArray[Any] = np.asarray(lists[int(which[0])])[position]
        return only
    arrays = [np.asarray(item) for item in lists]
    starts = np.concatenate(([0], np.cumsum([len(item) for item in arrays])))[:-1].astype(np.int64)
    joined = np.concatenate(arrays) if arrays else np.zeros(0, np.int64)
    result: npt.NDArray[Any] = joined[starts[which] + position]
    return result


def checked_size(name: str, value: Any) -> int:
    """Returns a processor count or batch size.

    Raises `SpaceError` for anything but a whole number that a field could hold.

    Args:
        name: the field that it is for.
        value: what was given.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= LARGEST:
        label = _SIZES.get(name, name)
        raise SpaceError(f"{label} ({name}) is {shown(value)}; it must be a whole number from 1 to {LARGEST:,}.")
    return int(value)
