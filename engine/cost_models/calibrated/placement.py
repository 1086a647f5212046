"""The three fields of an execution that name networks, as the placement of its ranks decides them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from engine.cost_models.calibrated.physics.communication.networks import networks_used
from engine.executions.arrays import Ints
from hardware import System

__all__ = ["networks_of"]


_GROUPS: Final = {"tensor_par": "tensor", "pipeline_par": "pipeline", "data_par": "data"}
"""Degrees whose network has a field -> what `physics.communication.networks` calls the group."""


def networks_of(system: System, fields: Mapping[str, Any]) -> dict[str, Ints]:
    """Returns `tensor_par_net`, `pipeline_par_net` and `data_par_net` of executions, arrays of the fields' shape.

    Each is the outermost network that the group needs. A degree of one needs none and says 0, as Calculon's enumeration
    does; what reaches further than all networks says the last.

    Args:
        system: whose networks.
        fields: as for `engine.cost_models.calibrated.physics.communication.networks.networks_used`.
    """
    used, last = networks_used(system, fields), system.tiers - 1
    return {
        f"{degree}_net": np.where(np.asarray(fields[degree]) > 1, np.minimum(used[group], last), 0)
        for degree, group in _GROUPS.items()
    }
