"""Designs of a study: axes, numbering, and the scenario of each point.

A *design* is all that is chosen about a machine and how it is used: system, datatype, size, batch, and a value of every
edit. A *point* is a design with one model of the mix; its number is design * models + model. Designs that share a
*layout* - everything but rates and capacities - share the space that their best execution is searched in, and form a
group: the number of a design is group * designs of a group + its place in the group.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np

from engine.codesign.errors import StudyError
from engine.codesign.order import digits_of, spread_ranks
from engine.codesign.schema import StudyDocument
from engine.cost_models.registry import chosen_cost_model
from engine.executions.arrays import Floats, Ints
from engine.executions.limits import LimitError, normalise
from engine.scenarios.scenario import Scenario
from engine.whatif.parameters import changed, parameters
from hardware import Calibration, System
from models import Model

__all__ = ["MOST_POINTS", "Design", "DesignSpace"]

MOST_POINTS: Final = 10_000_000
"""Points that a study may have: at a hundred a second some 28 hours of one core."""

BLOCK: Final = 16
"""Designs of one layout that follow each other, so that laying out its space once serves several."""

GROUPS_REMEMBERED: Final = 64
"""Scenarios of a study that are kept in memory. Source: stated by us."""


@dataclass(frozen=True, slots=True)
class Design:
    """One design by the positions of its values: `system`, `datatype`, `size` and `batch` in their lists, and `edits`,
    one position per edit in the order of the document."""

    number: int
    system: int
    datatype: int
    size: int
    batch: int
    edits: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class DesignSpace:
    """Designs of a study, before it is checked: axes, numbering, order of search, and the scenario of each point."""

    document: StudyDocument
    models: tuple[Model, ...]
    systems: tuple[System, ...]
    calibration: Calibration | None

    @cached_property
    def radices(self) -> tuple[int, ...]:
        """Number of values of each axis, in the order of the numbering: system, datatype, size, batch, edits of the
        layout, other edits."""
        said = self.document
        return (
            len(self.systems),
            len(said.datatypes),
            len(said.sizes),
            len(said.batches),
            *(len(said.edits[number].rows) for number in self._edit_order),
        )

    @cached_property
    def _edit_order(self) -> tuple[int, ...]:
        """Positions of the edits in the numbering: first the edits that change the layout."""
        first = parameters(self._first_scenario)
        layout = {each.name for each in first if each.layout}
        order = range(len(self.document.edits))
        return tuple(sorted(order, key=lambda number: not layout & set(self.document.edits[number].names)))

    @cached_property
    def _layout_axes(self) -> int:
        """Number of axes that distinguish groups."""
        layout = {each.name for each in parameters(self._first_scenario) if each.layout}
        return 4 + sum(bool(layout & set(edit.names)) for edit in self.document.edits)

    @property
    def _first_scenario(self) -> Scenario:
        return self.scenario(0, 0, 0, 0, 0)

    @property
    def designs(self) -> int:
        """Number of designs."""
        return math.prod(self.radices)

    @property
    def points(self) -> int:
        """Number of points: designs times models."""
        return self.designs * len(self.models)

    @property
    def groups(self) -> int:
        """Number of groups of designs that share their layout."""
        return math.prod(self.radices[: self._layout_axes])

    @property
    def designs_per_group(self) -> int:
        """Number of designs of a group."""
        return math.prod(self.radices[self._layout_axes :])

    @cached_property
    def block(self) -> int:
        """Number of designs of one layout that follow each other in the order."""
        return min(BLOCK, self.designs_per_group)

    @property
    def places(self) -> int:
        """Number of places in the order of all designs; some at its end are empty if blocks are not full."""
        return -(-self.designs_per_group // self.block) * self.block * self.groups

    def designs_before(self, place: int) -> int:
        """Return the number of designs before a place of the order."""
        rounds, block = -(-self.designs_per_group // self.block), self.block
        last = (rounds - 1) * block * self.groups
        if place <= last:
            return place
        filled = self.designs_per_group - (rounds - 1) * block
        whole, rest = divmod(place - last, block)
        return last + whole * filled + min(rest, filled)

    def designs_at(self, first: int, count: int) -> Ints:
        """Return the numbers of the designs at a range of places of the order, in order; fewer if places are empty.

        Blocks of designs that share a layout stay together; the order goes through all groups before it comes to a
        second block of any.
        """
        place = np.arange(first, min(first + count, self.places))
        block, within = np.divmod(place, self.block)
        turn, group = np.divmod(block, self.groups)
        rank = turn * self.block + within
        there = rank < self.designs_per_group
        inner = spread_ranks(self.radices[self._layout_axes :], rank[there])
        return spread_ranks(self.radices[: self._layout_axes], group[there]) * self.designs_per_group + inner

    def positions(self, numbers: Ints) -> dict[str, Ints]:
        """Return the positions of the values of designs: `system`, `datatype`, `size`, `batch`, and the edits by `edit
        0`, `edit 1` and so on, each an array [designs]."""
        digits = digits_of(numbers, self.radices)
        names = ["system", "datatype", "size", "batch", *(f"edit {number}" for number in self._edit_order)]
        return dict(zip(names, digits, strict=True))

    def design(self, number: int) -> Design:
        """Return a design. Raises `StudyError` for a number out of range."""
        if not 0 <= number < self.designs:
            raise StudyError(f"There is no design {number:,}; they are numbered from 0 to {self.designs - 1:,}.")
        at = {name: int(digit[0]) for name, digit in self.positions(np.array([number])).items()}
        edits = tuple(at[f"edit {position}"] for position in range(len(self.document.edits)))
        return Design(number, at["system"], at["datatype"], at["size"], at["batch"], edits)

    def base(self, design: Design, model: int) -> Scenario:
        """Returns the scenario of a point before its edits."""
        return self.scenario(model, design.system, design.datatype, design.size, design.batch)

    def scenario(self, model: int, system: int, datatype: int, size: int, batch: int) -> Scenario:
        """Returns the scenario of these positions, without any edit."""
        return _build_scenario(self, model, system, datatype, size, batch)

    def changes(self, design: Design, model: int) -> dict[str, float]:
        """Returns the values of the What-if parameters that a design changes, in their units."""
        own = _own_values(self, model, design.system, design.datatype, design.size, design.batch)
        found: dict[str, float] = {}
        for edit, position in zip(self.document.edits, design.edits, strict=True):
            for name, value in zip(edit.names, edit.rows[position], strict=True):
                found[name] = own[name] * value if edit.relative else value
        for each in self.document.follow:
            found[each.parameter] = own[each.parameter] * (found[each.follows] / own[each.follows]) ** each.exponent
        return found

    @property
    def edited_names(self) -> tuple[str, ...]:
        """The parameters that designs differ in, in the order of `edited_values`."""
        said = self.document
        return (*(name for edit in said.edits for name in edit.names), *(each.parameter for each in said.follow))

    def edited_values(self, numbers: Ints) -> Floats:
        """Return the values of edits as in the document, and the multiples of parameters that follow them [designs,
        parameters]. Within a group they are in the order of the parameters themselves."""
        at, said = self.positions(numbers), self.document
        found = {
            name: np.array(edit.rows, np.float64)[at[f"edit {number}"], place]
            for number, edit in enumerate(said.edits)
            for place, name in enumerate(edit.names)
        }
        followed = [found[each.follows] ** each.exponent for each in said.follow]
        return np.column_stack([*found.values(), *followed]) if found else np.zeros((len(numbers), 0))

    def sample_lengths(self, numbers: Ints) -> Floats:
        """Returns the tokens of a sample of each model [designs, models]; an edit may change them."""
        own = np.array([model.seq_size for model in self.models], np.float64)
        found = np.broadcast_to(own, (len(numbers), len(own)))
        for number, edit in enumerate(self.document.edits):
            if "sequence" in edit.names:
                rows = np.array(edit.rows, np.float64)[self.positions(numbers)[f"edit {number}"]]
                values = rows[:, edit.names.index("sequence")]
                found = found * values[:, None] if edit.relative else np.broadcast_to(values[:, None], found.shape)
        return found

    def scenario_at(self, design: Design, model: int = 0) -> Scenario:
        """Returns the scenario of a point, edits included.

        Raises what `engine.whatif.changed` raises for a value that its system or model cannot have.
        """
        return changed(self.base(design, model), self.changes(design, model))

    def cost_model(self, system: int) -> str:
        """Returns the name of the cost model that computes on one of the systems. Raises `engine.CostModelError`."""
        return chosen_cost_model(self.document.cost_model, self.systems[system], self.calibration).name

    def limits(self, system: int) -> Mapping[str, Any]:
        """Returns the limits of the spaces on one of the systems, normalised. Raises `StudyError`."""
        try:
            return normalise(self.document.limits, self.cost_model(system))
        except LimitError as problem:
            raise StudyError(str(problem)) from None


@lru_cache(maxsize=GROUPS_REMEMBERED)
def _build_scenario(study: DesignSpace, model: int, system: int, datatype: int, size: int, batch: int) -> Scenario:
    said = study.document
    processors = said.sizes[size]
    return Scenario.of(
        study.models[model],
        study.systems[system],
        num_procs=processors,
        max_batch_size=said.batches[batch].batch(processors),
        datatype=said.datatypes[datatype],
        limits=study.document.limits,
        cost_model=said.cost_model,
        calibration=study.calibration,
    )


@lru_cache(maxsize=GROUPS_REMEMBERED)
def _own_values(study: DesignSpace, *positions: int) -> Mapping[str, float]:
    scenario = _build_scenario(study, *positions)
    return {each.name: each.value for each in parameters(scenario)}
