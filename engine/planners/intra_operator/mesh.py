"""A mesh of one axis or two: devices that share every layer, their matrix rate, and the cost of their collectives.

On two axes the outer one joins groups of devices, such as nodes, and the inner one the devices of a group, such as the
processors of a node.

Source: Alpa (Zheng et al., OSDI 2022), cost of collectives on one mesh axis of n devices, b the bytes of the full
tensor: all-gather alpha + beta b (n-1)/n, reduce-scatter the same, all-reduce twice that volume, all-to-all half of it.
The small constants that Alpa adds to break ties are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from engine.cost_models.contract import KernelTimes
from engine.executions.arrays import Floats
from engine.planners.contract import PlanError
from engine.planners.intra_operator.kernels import kernels_of
from hardware import System
from hardware.loader import load_document, to_document

__all__ = ["COLLECTIVES", "Axis", "Mesh", "given_system", "mesh_of"]

COLLECTIVES: Final = ("all_reduce", "all_gather", "all_to_all", "reduce_scatter")
RATES: Final = ("bandwidth", "all_to_all_bandwidth", "alpha", "gather_alpha", "all_to_all_alpha")
FIELDS: Final = ("devices", "matrix_rate", *RATES[:1], "beta", *RATES[1:], "memory", "outer", "system", "datatype")
OF_OUTER: Final = ("devices", *RATES[:1], "beta", *RATES[1:])
MOST_DEVICES: Final = 4_096
"""Most devices along a mesh axis. Source: stated by us."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a mesh; its fields have the same meaning as in `Mesh`."""

    devices: int
    bandwidth: float
    alpha: float = 0.0
    all_to_all_bandwidth: float | None = None
    gather_alpha: float | None = None
    all_to_all_alpha: float | None = None

    @property
    def bandwidths(self) -> tuple[float, ...]:
        """Returns the bandwidth of every collective [bytes/s], in the order of `COLLECTIVES`."""
        exchange = self.bandwidth if self.all_to_all_bandwidth is None else self.all_to_all_bandwidth
        return (self.bandwidth, self.bandwidth, exchange, self.bandwidth)

    @property
    def alphas(self) -> tuple[float, ...]:
        """Returns the latency of each collective [s], in the order of `COLLECTIVES`."""
        gather = self.alpha if self.gather_alpha is None else self.gather_alpha
        exchange = self.alpha if self.all_to_all_alpha is None else self.all_to_all_alpha
        return (self.alpha, gather, exchange, gather)

    def document(self) -> dict[str, Any]:
        """Returns the axis as a document without absent fields."""
        return {name: value for name in ("devices", *RATES) if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True)
class Mesh:
    """Devices on one axis, or on two where there is an outer one.

    `devices` are all of them. `matrix_rate` is that of one device [FLOP/s], `bandwidth` what a device sends in a ring
    of the inner axis [bytes/s], `all_to_all_bandwidth` the same of an all-to-all, None where it is no other, `alpha`
    what every collective takes besides [s], `gather_alpha` and `all_to_all_alpha` the same of all-gather with
    reduce-scatter and of all-to-all where they have another, `memory` that of one device [bytes], None where there is
    no limit. With a `system` of the library and a `datatype`, kernels take what the calibrated cost model says, instead
    of what their operations take at `matrix_rate`.
    """

    devices: int
    matrix_rate: float
    bandwidth: float
    alpha: float = 0.0
    all_to_all_bandwidth: float | None = None
    memory: float | None = None
    gather_alpha: float | None = None
    all_to_all_alpha: float | None = None
    outer: Axis | None = None
    system: str | System | None = None
    datatype: str | None = None

    @property
    def beta(self) -> float:
        """Returns the time of a byte [s/byte]."""
        return 1.0 / self.bandwidth

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Returns the axes, the outer one first."""
        inside = self.devices // (self.outer.devices if self.outer is not None else 1)
        inner = Axis(inside, *(getattr(self, name) for name in ("bandwidth", "alpha", *RATES[1:2], *RATES[3:])))
        return (inner,) if self.outer is None else (self.outer, inner)

    @property
    def shape(self) -> tuple[int, ...]:
        """Returns the devices along every axis, the outer one first."""
        return tuple(each.devices for each in self.axes)

    @property
    def kernels(self) -> KernelTimes | None:
        """Returns the times of kernels on its devices; None where they multiply at `matrix_rate`."""
        return None if self.system is None else kernels_of(self.system, self.datatype or "bfloat16")

    def seconds(self, volumes: Floats, counts: Floats) -> Floats:
        """Returns how long collectives take [s], in the shape of their volumes.

        Args:
            volumes: that a device sends, the last axis in the order of `COLLECTIVES` for every axis of the mesh, the
                outer one first [bytes].
            counts: how many collectives that are.
        """
        bandwidths = np.array([rate for each in self.axes for rate in each.bandwidths])
        alphas = np.array([alpha for each in self.axes for alpha in each.alphas])
        # alpha-beta model: each collective a latency, each byte 1 / bandwidth (Thakur et al. 2005).
        return np.asarray(alphas * counts + volumes / bandwidths)

    def document(self) -> dict[str, Any]:
        """Returns the mesh as a document that `mesh_of` reads, without absent fields."""
        named = [name for name in FIELDS if name not in ("beta", "outer")]
        found = {name: value for name in named if (value := getattr(self, name)) is not None}
        if isinstance(self.system, System):
            found["system"] = to_document(self.system)
        return found if self.outer is None else {**found, "outer": self.outer.document()}


def mesh_of(document: Mesh | Mapping[str, Any]) -> Mesh:
    """Returns the mesh that a document describes.

    Args:
        document: `devices`, `matrix_rate` [FLOP/s], `bandwidth` [bytes/s] or `beta` [s/byte], and optionally `alpha`
            [s], `all_to_all_bandwidth` [bytes/s], `memory` [bytes], `outer` (devices, bandwidth and the like of the
            outer axis; `devices` counts both together), `system` with `datatype`; or a mesh.

    Raises:
        PlanError: a field is missing, unknown or out of range.
    """
    if isinstance(document, Mesh):
        document = document.document()
    if not isinstance(document, Mapping):
        raise PlanError(f"A mesh is an object with devices, matrix_rate and bandwidth, not {str(document)[:40]!r}.")
    if unknown := [str(name)[:40] for name in document if name not in FIELDS]:
        raise PlanError(f"A mesh has no field {unknown[0]!r}; there are {', '.join(FIELDS)}.")
    bandwidth = _parse_bandwidth(document, "A mesh")
    if missing := [name for name in ("devices", "matrix_rate") if name not in document]:
        raise PlanError(f"The mesh has no {missing[0]}; it needs devices, matrix_rate [FLOP/s], bandwidth [bytes/s].")
    devices = _parse_devices(document)
    memory = None if document.get("memory") is None else _parse_number(document, "memory")
    outer = None if document.get("outer") is None else _parse_outer_axis(document["outer"], devices)
    system = None if document.get("system") is None else given_system(document["system"])
    datatype = None if document.get("datatype") is None else str(document["datatype"])
    found = Mesh(
        devices,
        _parse_number(document, "matrix_rate"),
        bandwidth,
        memory=memory,
        outer=outer,
        system=system,
        datatype=datatype,
        **_parse_optional_rates(document),
    )
    if system is not None:
        kernels_of(system, datatype or "bfloat16")
    return found


def _parse_outer_axis(document: object, devices: int) -> Axis | None:
    if not isinstance(document, Mapping):
        raise PlanError(f"outer {str(document)[:40]!r} of the mesh is no object with devices and bandwidth.")
    if unknown := [str(name)[:40] for name in document if name not in OF_OUTER]:
        raise PlanError(f"The outer axis of a mesh has no field {unknown[0]!r}; there are {', '.join(OF_OUTER)}.")
    if "devices" not in document:
        raise PlanError("The outer axis of the mesh has no devices.")
    number = _parse_devices(document)
    if devices % number:
        raise PlanError(f"devices {devices:,} of the mesh are no multiple of the {number:,} of its outer axis.")
    found = Axis(number, _parse_bandwidth(document, "The outer axis of a mesh"), **_parse_optional_rates(document))
    return found if number > 1 else None


def given_system(given: object) -> str | System:
    """Returns a system unchanged, its name or path, or the system of a description.

    Args:
        given: one of them.

    Raises:
        PlanError: it is anything else.
        hardware.SystemFileError: the description is wrong.
    """
    if isinstance(given, (str, System)):
        return given
    if isinstance(given, Mapping):
        return load_document(dict(given), "the system of the mesh")
    raise PlanError(f"system {str(given)[:40]!r} of the mesh is no name, path or description of a system.")


def _parse_devices(document: Mapping[str, Any]) -> int:
    devices = document["devices"]
    if isinstance(devices, bool) or not isinstance(devices, int) or not 1 <= devices <= MOST_DEVICES:
        raise PlanError(f"devices {str(devices)[:40]!r} is no whole number from 1 to {MOST_DEVICES:,}.")
    return devices


def _parse_bandwidth(document: Mapping[str, Any], what: str) -> float:
    if ("bandwidth" in document) == ("beta" in document):
        raise PlanError(f"{what} has either bandwidth [bytes/s] or beta [s/byte].")
    return 1.0 / _parse_number(document, "beta") if "beta" in document else _parse_number(document, "bandwidth")


def _parse_optional_rates(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the optional fields of an axis."""
    found: dict[str, Any] = {"alpha": _parse_number(document, "alpha", least=0.0)} if "alpha" in document else {}
    if document.get("all_to_all_bandwidth") is not None:
        found["all_to_all_bandwidth"] = _parse_number(document, "all_to_all_bandwidth")
    given = [name for name in ("gather_alpha", "all_to_all_alpha") if document.get(name) is not None]
    return found | {name: _parse_number(document, name, least=0.0) for name in given}


def _parse_number(document: Mapping[str, Any], name: str, least: float | None = None) -> float:
    value = document[name]
    right = not isinstance(value, bool) and isinstance(value, (int, float)) and abs(value) < 1e30
    if not right or not math.isfinite(value) or (value <= 1e-30 if least is None else value < least):
        wanted = "more than 0" if least is None else f"{least:g} or more"
        raise PlanError(f"{name} {str(value)[:40]!r} of the mesh is no number that is {wanted}.")
    return float(value)
