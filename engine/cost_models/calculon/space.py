"""The space of Calculon: the executions that its search tries, in the order in which it does.

Source of the rules: Calculon 0.1.0 (commit caa4b11), `all_executions.py` and `llm.py` `Llm.get_all_*`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.columns import FIELDS, by_name
from engine.executions.arrays import Ints
from engine.executions.codes import FULL, NETWORKS, OFFLOADS
from engine.executions.limits import LimitError, permits
from engine.executions.rules import mode_rules, most_blocks, tokens_undivided, undivided
from engine.executions.table import DATATYPES
from engine.space.space import MODE_FIELDS, MOST_CELLS, Cell, Modes, Space, divisors

__all__ = ["CalculonSpace"]


class CalculonSpace(Space):
    """All executions of Calculon; see `engine.space.space.Space` for arguments and errors.

    Without limits the space is exactly Calculon's: multi-head attention, training, fused activations, pipelines that
    divide the blocks, and per data-parallel degree the largest batch that it divides. Limits on `attention_type`,
    `training`, `fused_activation`, `batch_size` and `uneven_pipelines` also widen it.
    """

    cost_model = "calculon"
    mode_fields = MODE_FIELDS
    datatypes = tuple(DATATYPES)

    def mode_kind(self, cell: Cell) -> int:
        """Return the position of a cell's mode list, by tensor and data parallelism."""
        return (cell.tensor_par > 1) * 2 + (cell.data_par > 1)

    def _mode_lists(self) -> tuple[Modes, ...]:
        return tuple(self._modes(bool(kind & 2), bool(kind & 1)) for kind in range(4))

    def _modes(self, tensor: bool, data: bool) -> Modes:
        """Modes of the cells with or without tensor and data parallelism, in enumeration order."""
        offload = (True, False) if self.system.mem2.capacity_gib > 0 else (False,)
        values = {
            "activation_recompute": self._values("activation_recompute", by_name("activation_recompute").choices),
            "optimizer_sharding": self._values("optimizer_sharding", (True, False)),
            "tensor_par_comm_type": self._values("tensor_par_comm_type", by_name("tensor_par_comm_type").choices),
            "seq_par_ag_redo": self._values("seq_par_ag_redo", (True, False)),
            "data_par_overlap": self._values("data_par_overlap", (True, False)),
            "tensor_par_overlap": self._values("tensor_par_overlap", by_name("tensor_par_overlap").choices),
            "weight_offload": self._values("weight_offload", (True, False)),
            "activations_offload": self._values("activations_offload", (True, False)),
            "optimizer_offload": self._values("optimizer_offload", (True, False)),
        }
        for name in ("fused_activation", "attention_type", "training"):
            values[name] = self._values(name, (by_name(name).default,))
        return _list_modes(tuple(values[name] for name in MODE_FIELDS), offload, tensor, data)

    def _assignments(self, tensor: bool, pipeline: bool, data: bool) -> Ints:
        """Network assignments [assignments, 3] of tensor, pipeline and data parallelism; absent ones use tier 0."""
        options = []
        for name, present in zip(NETWORKS, (tensor, pipeline, data), strict=True):
            allowed = permits(self.limits, name)
            options.append([tier for tier in (range(self.tiers) if present else (0,)) if allowed(tier)])
        return np.array(list(product(*options)), np.int64).reshape(-1, 3)

    def _cells(self) -> tuple[Cell, ...]:
        model, limits = self.model, self.limits
        allow = {name: permits(limits, name) for name in (column.name for column in FIELDS)}
        uneven = bool(limits.get("uneven_pipelines"))
        # All batches are counted before the first cell is made: too many are refused at once, not after a minute.
        shapes: list[tuple[int, int, int, tuple[int, ...], Sequence[int]]] = []
        tried = 0
        for tensor in divisors(self.num_procs):
            # Not so the feedforward size, which Calculon's search tries and finds to be indivisible.
            broken = undivided(tensor, hidden=model.hidden, attn_heads=model.attn_heads)
            if any(broken.values()) or not allow["tensor_par"](tensor):
                continue
            rest = self.num_procs // tensor
            for pipeline in divisors(rest):
                if pipeline > model.num_blocks or (model.num_blocks % pipeline and not uneven):
                    continue
                data = rest // pipeline
                if data > self.max_batch_size or not allow["pipeline_par"](pipeline) or not allow["data_par"](data):
                    continue
                blocks = most_blocks(model.num_blocks, pipeline)
                interleavings = tuple(
                    v for v in (divisors(blocks) if pipeline > 1 else (1,)) if allow["pipeline_interleaving"](v)
                )
                batches = self._batches(data)
                tried += len(batches)
                if tried > MOST_CELLS:
                    raise LimitError(
                        f"The limit on the batch (batch_size) allows over {MOST_CELLS:,} combinations with tensor and "
                        "pipeline parallel degrees; give a list or a narrower range."
                    )
                shapes.append((tensor, pipeline, data, interleavings, batches))
        cells = []
        for tensor, pipeline, data, interleavings, batches in shapes:
            for batch in batches:
                microbatches = tuple(
                    m
                    for m in divisors(batch // data)
                    if allow["microbatch_size"](m) and not tokens_undivided(m, model.seq_size, tensor)
                )
                kind = (tensor > 1) * 4 + (pipeline > 1) * 2 + (data > 1)
                cell = Cell(
                    tensor, pipeline, data, batch, interleavings, microbatches, kind, len(self.assignments[kind])
                )
                if interleavings and microbatches and cell.assignments and len(self.modes[self.mode_kind(cell)]):
                    cells.append(cell)
        return tuple(cells)


@lru_cache(maxsize=256)
def _list_modes(values: tuple[tuple[Any, ...], ...], offload: tuple[bool, ...], tensor: bool, data: bool) -> Modes:
    """Return all valid combinations of the values of `MODE_FIELDS`; `offload` are the values of the offload fields."""
    columns: dict[str, npt.NDArray[Any]] = {}
    places = np.indices([len(each) for each in values]).reshape(len(values), -1)
    for name, each, place in zip(MODE_FIELDS, values, places, strict=True):
        choices = by_name(name).choices
        numbers = np.array([choices.index(value) for value in each], np.int64) if choices else np.array(each, bool)
        columns[name] = numbers[place]
    rules = mode_rules(columns, single_tensor=np.array(not tensor), single_data=np.array(not data))
    valid = ~np.logical_or.reduce(list(rules.values()))
    # Calculon runs these, but its search does not try them.
    valid &= ~(columns["activations_offload"] & (columns["activation_recompute"] == FULL))
    for name in OFFLOADS:
        valid &= np.isin(columns[name], offload)
    return Modes({name: array[valid] for name, array in columns.items()})
