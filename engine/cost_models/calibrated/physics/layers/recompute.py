"""Recomputed shares of a block's forward pass, for each kind of activation recomputation.

Sources: see `SHARES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from engine.columns.recompute_modules import MODULES
from engine.cost_models.calibrated.physics.case_cache import once_per_case
from engine.cost_models.calibrated.physics.inputs import ATTENTION_KERNELS, BY_MODULE, RECOMPUTES, Case, Floats

__all__ = ["SHARES", "Recomputed", "recomputed", "repeated_modules"]

SHARES: dict[str, tuple[float, float, float, float, float]] = {
    # linear layers, attention core with its exchange of keys and values, element-wise, tensor-parallel communication,
    # exchange of tokens between experts
    "none": (0.0, 0.0, 0.0, 0.0, 0.0),
    "selective": (0.0, 1.0, 0.0, 0.0, 0.0),
    "full": (1.0, 1.0, 1.0, 1.0, 1.0),
    "half": (0.5, 0.5, 0.5, 0.5, 0.5),
    "operators": (0.3, 0.0, 1.0, 0.5, 0.0),
    "save_projections": (1.0 / 3.0, 1.0, 1.0, 0.0, 1.0),
    "save_dots": (0.0, 1.0, 1.0, 0.0, 0.5),
    "modules": (0.0, 0.0, 0.5, 0.0, 0.0),
    "by_module": (0.0, 0.0, 0.0, 0.0, 0.0),
}
"""Shares done again. `selective` (Korthikanti et al. 2022) drops the scores: nothing to redo in a fused kernel, which
recomputes them anyway. `half` is every second block. `operators` is torchtitan's per-operator policy, which keeps every
second product; the two `save_` kinds are PaxML's policies; `modules` are norms and activation functions. What
`by_module` repeats depends on the block: see `modules_again`. What recomputes the feed-forward layer sends its tokens
to the experts and back again; where products are saved they need not come back."""

_TABLE = np.array([SHARES[name] for name in RECOMPUTES])


@dataclass(frozen=True, slots=True)
class Recomputed:
    """Shares of the forward pass that the backward pass does again, arrays [rows]."""

    linear: Floats
    attention: Floats
    elementwise: Floats
    tensor: Floats
    experts: Floats


@once_per_case
def recomputed(case: Case) -> Recomputed:
    """Returns the shares of every row that are computed again, scaled by the share of blocks that are recomputed [rows]
    [dimensionless].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    kind = case.layout.recompute.astype(int)
    share = case.layout.recompute_share
    unfused = case.software.attention_kernel == ATTENTION_KERNELS.index("unfused")
    selective = kind == RECOMPUTES.index("selective")
    columns = [_TABLE[kind, position] * share for position in range(5)]
    columns[1] = np.where(selective & ~unfused, 0.0, columns[1])
    if modules := repeated_modules(case):
        # As `selective`: fused kernels compute scores again in any case.
        columns[1] = np.where(kind == BY_MODULE, np.where(unfused, modules["core_attn"], 0.0), columns[1])
    return Recomputed(*columns)


@once_per_case
def repeated_modules(case: Case) -> Mapping[str, Floats]:
    """Return 1.0 where a module is recomputed by itself, else 0.0, by its name [rows] [dimensionless]; empty if no row
    names modules.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    chosen = case.layout.recompute == BY_MODULE
    if not np.any(chosen):
        return {}
    sets = np.where(chosen, case.layout.recompute_modules, 0.0).astype(np.int64)
    return {name: ((sets >> place) & 1).astype(np.float64) for place, name in enumerate(MODULES)}
