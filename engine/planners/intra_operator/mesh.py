"""A mesh of one axis: devices that share every layer, how fast they multiply, and what a collective costs them.

Source: Alpa (Zheng et al., OSDI 2022), cost of collectives on one mesh axis of n devices, b the bytes of the full
tensor: all-gather alpha + beta b (n-1)/n, all-reduce twice that volume, all-to-all half of it. The small constants that
Alpa adds to break ties are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from engine.executions.arrays import Floats
from engine.planners.contract import PlanError

__all__ = ["COLLECTIVES", "Mesh", "mesh_of"]

COLLECTIVES: Final = ("all_reduce", "all_gather", "all_to_all")
FIELDS: Final = ("devices", "matrix_rate", "bandwidth", "beta", "all_to_all_bandwidth", "alpha", "memory")
MOST_DEVICES: Final = 4_096


@dataclass(frozen=True, slots=True)
class Mesh:
    """Devices on one axis.

    `matrix_rate` is that of one device [FLOP/s], `bandwidth` what a device sends in a ring [bytes/s],
    `all_to_all_bandwidth` the same of an all-to-all, None where it is no other, `alpha` what every collective takes
    besides [s], `memory` that of one device [bytes], None where there is no limit.
    """

    devices: int
    matrix_rate: float
    bandwidth: float
    alpha: float = 0.0
    all_to_all_bandwidth: float | None = None
    memory: float | None = None

    @property
    def beta(self) -> float:
        """Returns the time of a byte [s/byte]."""
        return 1.0 / self.bandwidth

    def seconds(self, volumes: Floats, counts: Floats) -> Floats:
        """Returns how long collectives take [s], in the shape of their volumes.

        Args:
            volumes: that a device sends, the last axis in the order of `COLLECTIVES` [bytes].
            counts: how many collectives that are.
        """
        exchange = self.bandwidth if self.all_to_all_bandwidth is None else self.all_to_all_bandwidth
        return np.asarray(self.alpha * counts + volumes / np.array([self.bandwidth, self.bandwidth, exchange]))

    def document(self) -> dict[str, Any]:
        """Returns the mesh as a document that `mesh_of` reads; what is not given is left out."""
        return {name: value for name in FIELDS if name != "beta" and (value := getattr(self, name)) is not None}


def mesh_of(document: Mesh | Mapping[str, Any]) -> Mesh:
    """Returns the mesh that a document describes.

    Args:
        document: `devices`, `matrix_rate` [FLOP/s], `bandwidth` [bytes/s] or `beta` [s/byte], and where wanted `alpha`
            [s], `all_to_all_bandwidth` [bytes/s], `memory` [bytes]; or a mesh.

    Raises:
        PlanError: a field is missing, unknown, or no number that it can be.
    """
    if isinstance(document, Mesh):
        document = document.document()
    if not isinstance(document, Mapping):
        raise PlanError(f"A mesh is an object with devices, matrix_rate and bandwidth, not {str(document)[:40]!r}.")
    if unknown := [str(name)[:40] for name in document if name not in FIELDS]:
        raise PlanError(f"A mesh has no field {unknown[0]!r}; there are {', '.join(FIELDS)}.")
    if ("bandwidth" in document) == ("beta" in document):
        raise PlanError("A mesh has either bandwidth [bytes/s] or beta [s/byte].")
    if missing := [name for name in ("devices", "matrix_rate") if name not in document]:
        raise PlanError(f"The mesh has no {missing[0]}; it needs devices, matrix_rate [FLOP/s], bandwidth [bytes/s].")
    devices = document["devices"]
    if isinstance(devices, bool) or not isinstance(devices, int) or not 1 <= devices <= MOST_DEVICES:
        raise PlanError(f"devices {str(devices)[:40]!r} is no whole number from 1 to {MOST_DEVICES:,}.")
    bandwidth = 1.0 / _number(document, "beta") if "beta" in document else _number(document, "bandwidth")
    exchange, memory = (
        None if document.get(name) is None else _number(document, name) for name in ("all_to_all_bandwidth", "memory")
    )
    alpha = _number(document, "alpha", least=0.0) if "alpha" in document else 0.0
    return Mesh(devices, _number(document, "matrix_rate"), bandwidth, alpha, exchange, memory)


def _number(document: Mapping[str, Any], name: str, least: float | None = None) -> float:
    value = document[name]
    right = not isinstance(value, bool) and isinstance(value, (int, float)) and abs(value) < 1e30
    if not right or not math.isfinite(value) or (value <= 1e-30 if least is None else value < least):
        wanted = "more than 0" if least is None else f"{least:g} or more"
        raise PlanError(f"{name} {str(value)[:40]!r} of the mesh is no number that is {wanted}.")
    return float(value)
