"""Which executions there are: degrees that divide, two ways to recompute, every group on the outermost network."""

from __future__ import annotations

import numpy as np

from engine.columns import by_name
from engine.executions.arrays import Ints
from engine.executions.limits import permits
from engine.executions.table import DATATYPES
from engine.space.space import MODE_FIELDS, Cell, Modes, Space, divisors
from models import dimensions

__all__ = ["ToySpace"]


class ToySpace(Space):
    """See `engine.space.space.Space`."""

    cost_model = "toy"
    mode_fields = MODE_FIELDS
    datatypes = tuple(DATATYPES)

    @property
    def num_blocks(self) -> int:
        """Blocks of the model."""
        return dimensions(self.model).num_blocks

    def mode_kind(self, cell: Cell) -> int:
        """Every cell has the same modes."""
        return 0

    def _mode_lists(self) -> tuple[Modes, ...]:
        kinds = by_name("activation_recompute").choices
        wanted = [kinds.index(kind) for kind in self._values("activation_recompute", ("full", "none"))]
        fields = {name: np.zeros(len(wanted), np.int64 if by_name(name).choices else bool) for name in MODE_FIELDS}
        fields["activation_recompute"] = np.array(wanted, np.int64)
        fields["training"][:] = True
        fields["fused_activation"][:] = True
        return (Modes(fields),)

    def _assignments(self, tensor: bool, pipeline: bool, data: bool) -> Ints:
        outermost = self.tiers - 1
        names = ("tensor_par_net", "pipeline_par_net", "data_par_net")
        there = all(permits(self.limits, name)(outermost) for name in names)
        return np.full((int(there), 3), outermost, np.int64)

    def _cells(self) -> tuple[Cell, ...]:
        allow = {
            name: permits(self.limits, name)
            for name in ("tensor_par", "pipeline_par", "data_par", "microbatch_size", "pipeline_interleaving")
        }
        sizes, cells = dimensions(self.model), []
        for tensor in divisors(self.num_procs):
            for pipeline in divisors(self.num_procs // tensor):
                data = self.num_procs // tensor // pipeline
                divide = sizes.attn_heads % tensor == 0 and sizes.num_blocks % pipeline == 0
                allowed = allow["tensor_par"](tensor) and allow["pipeline_par"](pipeline) and allow["data_par"](data)
                if not divide or not allowed or not allow["pipeline_interleaving"](1) or data > self.max_batch_size:
                    continue
                kind = (tensor > 1) * 4 + (pipeline > 1) * 2 + (data > 1)
                for batch in self._batches(data):
                    micro = tuple(m for m in divisors(batch // data) if m <= 4 and allow["microbatch_size"](m))
                    ways = len(self.assignments[kind])
                    if micro and ways and len(self.modes[0]):
                        cells.append(Cell(tensor, pipeline, data, batch, (1,), micro, kind, ways))
        return tuple(cells)
