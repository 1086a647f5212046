"""Contract of a cost model: one object with all that differs between cost models.

The space, the exploration, the store, the searches, the commands and the pages ask this object. None of them knows
which cost models there are; `engine.cost_models.registry` does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from engine.columns import ColumnSet
from engine.cost_models.account import ExecutionAccount
from engine.cost_models.protocols import (
    MODELLED,
    PROVENANCES,
    BoundSearch,
    Candidates,
    KernelTimes,
    LaidOut,
    PreparedCells,
    SustainedRate,
)
from engine.cost_models.words import CostModelWords
from engine.executions.arrays import Floats
from engine.executions.layer_splits import StageCut, stage_cut
from engine.space.rows import RowChunk, RowGroup
from engine.space.space import Space
from hardware import Calibration, System
from models import Model, dimensions
from models.token_flops import Convention, Recipe

__all__ = [
    "MODELLED",
    "PROVENANCES",
    "BoundSearch",
    "Candidates",
    "CostModel",
    "CostModelError",
    "KernelTimes",
    "LaidOut",
    "LayerError",
    "PreparedCells",
    "SustainedRate",
]


class CostModelError(ValueError):
    """A cost model that does not exist, or a calibration for one that takes none."""


class LayerError(ValueError):
    """The execution has no layers or operations to show: it is not well formed, or the system cannot run it."""


class CostModel(ABC):
    """Cost model. A default means that the cost model has nothing of the kind."""

    name: ClassVar[str]
    """Name in commands, links and documents."""
    words: ClassVar[CostModelWords]
    """Texts that exist only to be shown."""
    version: ClassVar[str]
    """Raised whenever a formula changes, so that stored results are not used again."""
    columns: ClassVar[ColumnSet]
    """The fields and statistics of an execution."""
    datatypes: ClassVar[tuple[str, ...]]
    """The datatypes that it computes in."""
    reference: ClassVar[str] = ""
    """The program whose figures it reproduces to the last digit; empty where it predicts measurements instead."""
    takes_calibration: ClassVar[bool] = False
    """True if its parameters come from a calibration, so that its figures can be compared with measured runs."""
    even_pipelines: ClassVar[bool] = False
    """True if pipelines divide the blocks of the model evenly unless a limit allows others."""
    reads_efficiencies: ClassVar[bool] = False
    """True if sustained rates are read from the efficiency curves of a system's description."""
    searches_by_bounds: ClassVar[bool] = False
    """True if it has a `bound_search`; otherwise a search reads the candidates of all prepared rows."""
    unread: ClassVar[frozenset[str]] = frozenset()
    """Parts of a system's description that it ignores, among `vector`, `latency`, `power` and `host`."""
    without_effect: ClassVar[tuple[str, ...]] = ()
    """Paths of a system's document that change no figure of an execution, such as "networks.*.latency_s"; prices, which
    enter costs alone, are not among them."""
    one_unit: ClassVar[frozenset[str]] = frozenset()
    """Datatypes that one matrix unit computes, so that their peaks change together."""
    flop_recipe: ClassVar[Recipe] = "published"
    """Recipe of the FLOP per token for figures of utilisation; see `models.token_flops.token_flops`."""
    flop_convention: ClassVar[Convention] = "full"
    """Convention of attention in figures of utilisation unless a scenario says otherwise; see `models.token_flops`."""
    rows_per_second: ClassVar[float] = 300_000.0
    """Executions that `evaluate` settles per second [1/s] on one core, as measured; estimates of time start from it."""

    @abstractmethod
    def space(
        self,
        model: Model,
        system: System,
        *,
        num_procs: int,
        max_batch_size: int,
        datatype: str,
        limits: Mapping[str, Any] | None = None,
        calibration: Calibration | None = None,
    ) -> Space:
        """Returns the space of a model on a system.

        Raises `engine.space.space.SpaceError` or `engine.executions.limits.LimitError`.

        Args:
            model: what runs.
            system: where it runs.
            num_procs: processors [count].
            max_batch_size: samples of a step at most [count].
            datatype: one of `datatypes`.
            limits: what each field may be, see `engine.executions.limits`.
            calibration: values to use; None for the library's, or where it takes none.
        """

    @abstractmethod
    def prepare(self, space: Any, numbers: range, *, rows: bool = True) -> PreparedCells:
        """Prepares cells of a space.

        Args:
            space: one that `space` returned.
            numbers: which of its cells.
            rows: whether rows are listed; callers that choose them do without.
        """

    @abstractmethod
    def evaluate_rows(self, prepared: Any, group: RowGroup, part: slice) -> RowChunk:
        """Returns the headline figures of all executions of a chunk of rows.

        Args:
            prepared: what `prepare` returned.
            group: one of its groups.
            part: which rows of the group.
        """

    @abstractmethod
    def evaluate(
        self, model: Model, system: System, executions: pd.DataFrame, calibration: Calibration | None
    ) -> pd.DataFrame:
        """Returns every statistic of a table of executions; see `engine.evaluate`.

        Args:
            model: what runs.
            system: where it runs.
            executions: a table with the fields [rows].
            calibration: values to use; None for the library's, or where it takes none.
        """

    def row(self, space: Any, number: int, calibration: Calibration | None) -> dict[str, Any]:
        """Returns the row that `evaluate` has of one execution of a space, by column name.

        Args:
            space: one that `space` returned.
            number: id of the execution.
            calibration: values to use; None for the library's, or where it takes none.
        """
        table = self.evaluate(space.model, space.system, space.table([number]), calibration)
        return {str(name): value for name, value in table.iloc[0].to_dict().items()}

    @abstractmethod
    def candidates(self, prepared: Any) -> Candidates:
        """Returns the rows of prepared cells that share a bound.

        Args:
            prepared: what `prepare` returned.
        """

    @abstractmethod
    def bounds(self, prepared: Any, rows: Any) -> Floats:
        """Returns the sample rate that no execution of a candidate exceeds [samples/s] [candidates], up to rounding.

        Args:
            prepared: what `prepare` returned.
            rows: what `candidates` returned, or some of it.
        """

    @abstractmethod
    def depends_on(self, model: Model, system: System, calibration: Calibration | None) -> dict[str, Any]:
        """Returns everything that results depend on of model, system and calibration, as JSON.

        Scenarios in which it is equal have equal results. Names and sources do not belong to it.

        Args:
            model: what runs.
            system: where it runs.
            calibration: values to use; None for the library's, or where it takes none.
        """

    def laid_out(self, space: Any, numbers: range) -> LaidOut:
        """Lays out cells for many systems. By default nothing is kept from one to the next.

        Args:
            space: one that `space` returned.
            numbers: which of its cells.
        """
        return _Anew(self, space, numbers)

    def bound_search(self, space: Any, numbers: range) -> BoundSearch:
        """Returns the cells as a search wants them, where `searches_by_bounds`.

        Args:
            space: one that `space` returned.
            numbers: which of its cells.
        """
        raise NotImplementedError

    def datatype_depends_on(self, system: System, datatype: str) -> dict[str, Any]:
        """Return what results in a datatype depend on that `depends_on` leaves out, as plain data; nothing by default.

        Args:
            system: the system that runs it.
            datatype: of the matrix arithmetic, one of `datatypes`.
        """
        return {}

    def layout_depends_on(
        self, model: Model, system: System, calibration: Calibration | None, limits: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns everything that the row table of a space depends on of model, system and calibration, as JSON.

        Args:
            model: what runs.
            system: where it runs.
            calibration: values to use; None for the library's, or where it takes none.
            limits: of the space, normalised.
        """
        return self.depends_on(model, system, calibration)

    def placed(self, system: System, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the fields of an execution that follow from its degrees on a system.

        Args:
            system: where it runs.
            fields: of the execution, at least its degrees.
        """
        return {}

    def calibration(self, calibration: Calibration | None) -> Calibration | None:
        """Returns the calibration that is used where this one is given; None where it takes none.

        Raises `hardware.CalibrationFileError` where it has no values for this cost model.

        Args:
            calibration: what was asked for; None where nothing was.
        """
        return None

    def sustained_rates(self, system: System, calibration: Calibration | None) -> Sequence[SustainedRate]:
        """Returns what long operations sustain of a system's peaks; empty where the cost model reads efficiencies
        instead.

        Args:
            system: the system.
            calibration: values to use; None for the library's, or where it takes none.
        """
        return ()

    def not_measured(self, model: Model, system: System, executions: pd.DataFrame) -> list[tuple[str, ...]]:
        """Return the properties of executions that no measured run had, in words, one entry per row; empty for cost
        models that predict no measurement.

        Args:
            model: what runs.
            system: where it runs.
            executions: a table with at least the 23 fields [rows].
        """
        return [()] * len(executions)

    def power_bounds(self, system: System) -> bool:
        """Return whether the design power of a system's processors limits its sustained rate of matrix products.

        Args:
            system: the system.
        """
        return False

    def rises_with(self, system: System, path: str) -> int:
        """Return how rates depend on a figure of a system, all else being equal, for proofs about systems not searched.

        1: rates never fall as the figure rises, and feasible executions stay feasible. -1: rates never rise. 0:
            unknown, proves nothing. A capacity with 1 decides only feasibility and changes no time.

        Args:
            system: the system.
            path: path of the figure in the system's document, such as "mem1.bandwidth_gb_per_s".
        """
        return 0

    def slower_on_worse(self, space: Space) -> bool:
        """Return whether no execution of a space is faster on a system that `rises_with` ranks below another one. Then
        the rates themselves can be compared; otherwise use `reach`.

        Args:
            space: space of executions; the rates and capacities of its system are not used.
        """
        return False

    def reach(self, prepared: Any, group: RowGroup, part: slice) -> Floats:
        """Returns the sample rate that no execution of a chunk of rows exceeds [samples/s] [rows], neither on this
        system nor on any that `rises_with` puts below it; endless where nothing is known. Not asked where
        `slower_on_worse`.

        Args:
            prepared: what `prepare` returned.
            group: one of its groups.
            part: which rows of the group.
        """
        return np.full(len(group.place[part]), np.inf)

    def operations(
        self, model: Model, system: System, execution: Mapping[str, Any], calibration: Calibration | None
    ) -> pd.DataFrame:
        """Returns what one block of an execution does, one row per layer or operation. Raises `LayerError`.

        Args:
            model: what runs.
            system: where it runs.
            execution: its fields by name.
            calibration: values to use; None for the library's, or where it takes none.
        """
        raise LayerError(f"The cost model {self.name} does not tell layers or operations apart.")

    def account(
        self, model: Model, system: System, execution: Mapping[str, Any], calibration: Calibration | None
    ) -> ExecutionAccount:
        """Return the derivation of the figures of an execution.

        Args:
            model: what runs.
            system: where it runs.
            execution: its fields and statistics by name.
            calibration: values to use; None for the library's, or where it takes none.
        """
        return ExecutionAccount()

    def stage_cut(self, model: Model, ranks: int, chunks: int, layout: str) -> StageCut:
        """Returns the layers of every stage of the model under a stage layout.

        Args:
            model: what runs.
            ranks: ranks of the pipeline.
            chunks: chunks of each rank.
            layout: in the words of the field `stage_layout`.

        Raises `engine.executions.layer_splits.LayerSplitError` where the layout does not divide the model's blocks.
        """
        return stage_cut(dimensions(model).num_blocks, 0, ranks, chunks, layout)

    def kernel_times(self, system: System, datatype: str, calibration: Calibration | None = None) -> KernelTimes | None:
        """Returns what single kernels and collectives of a system take; None where it does not tell them apart.

        Args:
            system: where they run.
            datatype: of the matrix arithmetic, one of `datatypes`.
            calibration: values to use; None for the library's, or where it takes none.
        """
        return None

    def unsupported(self, model: Model) -> Sequence[str]:
        """Return the reasons why the cost model cannot compute a model, in sentences; empty if it can.

        Args:
            model: model to compute.
        """
        return ()


class _Anew:
    """Cells that are prepared from the beginning for every system."""

    def __init__(self, cost_model: CostModel, space: Any, numbers: range) -> None:
        self._cost_model, self._space, self._numbers = cost_model, space, numbers

    def prepared(self, system: System) -> tuple[Any, Any]:
        """See `LaidOut.prepared`."""
        found = self._cost_model.prepare(self._space.on(system), self._numbers, rows=False)
        return found, self._cost_model.candidates(found)
