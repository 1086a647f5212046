"""Where ranks are placed, and so which network of the system each kind of parallelism goes over.

Ranks are placed innermost first: tensor, context, data, pipeline. A group reaches as far as the ranks that are placed
inside it take, times its own; context and data parallel ranks exchange gradients together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hardware import System

__all__ = ["NETWORKS", "networks_of"]

Ints = npt.NDArray[np.int64]

NETWORKS: Final = ("tensor_par_net", "pipeline_par_net", "data_par_net")
"""The fields that say which network carries what."""


def networks_of(system: System, degrees: Mapping[str, Any]) -> dict[str, Ints]:
    """The outermost network that each kind of parallelism goes over, arrays [rows] by name of `NETWORKS`.

    A group of one goes over none and says 0, as Calculon's enumeration does.

    Args:
        degrees: `tensor_par`, `context_par`, `data_par` and `pipeline_par`, arrays [rows] or plain numbers.
    """
    names = ("tensor_par", "context_par", "data_par", "pipeline_par")
    tensor, context, data, pipeline = (np.asarray(degrees[name], np.int64) for name in names)
    reach = {
        "tensor_par_net": (tensor, tensor),
        "pipeline_par_net": (pipeline, tensor * context * data * pipeline),
        "data_par_net": (data, tensor * context * data),
    }
    sizes = np.maximum.accumulate(np.array([network.size for network in system.networks], np.int64))
    outermost = len(sizes) - 1
    return {
        name: np.where(degree > 1, np.minimum(np.searchsorted(sizes, extent), outermost), 0)
        for name, (degree, extent) in reach.items()
    }
