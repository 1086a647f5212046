"""Cost of every op in three revisions of DistIR's simulator, as data.

A revision is constants with their units, and switches for its differences from later ones: the three share every
formula. Times are in seconds, sizes in bytes, rates per second.

Source: microsoft/dist-ir (MIT), `dist_ir/executor/cost_model.py` and `simulator.py` at the commits named below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, TypeVar

import numpy as np

from engine.executions.arrays import Floats
from engine.reproductions.distir.simulator.errors import ConfigurationError

__all__ = ["LARGEST_GROUP", "REVISIONS", "SCALAR_BYTES", "Allreduce", "DistIRCostModel", "revision_of"]

Number = TypeVar("Number", float, Floats)

SCALAR_BYTES: Final = 4
"""The batch size, an input of R3's program beside the tensors: one 32-bit integer [bytes]."""

LARGEST_GROUP: Final = 8_192
"""Collectives have a cost for groups of 2, 4, ... up to this many devices; others DistIR refuses."""


@dataclass(frozen=True, slots=True)
class Allreduce:
    """A measured all-reduce over n devices: `per_gigabit` * gigabits + `per_device` * n + `constant` [s].

    Source: R3, `calibrate_simulator.py`: per group size a non-negative fit, in which the last two are collinear.
    """

    per_gigabit: float
    per_device: float = 0.0
    constant: float = 0.0


@dataclass(frozen=True, slots=True)
class DistIRCostModel:
    """One revision: constants and switches."""

    name: str
    commit: str
    what: str
    flops: float
    """Rate of every device [FLOP/s]."""
    dram_bandwidth: float
    """Rate of every device's memory [bytes/s]."""
    launch_overhead: float
    """Overhead of every computing op [s]."""
    bytes_per_gigabit: float
    """Bytes that one "Gb" of a link stands for: 1.25e8 is right. With R1's 8e9, 200 "Gbps" move 1.6e12 bytes/s."""
    matmul_bytes_per_element: float | None
    """Bytes that a matrix product reads per element; None stands for the datatype's size."""
    streamed_elementwise: bool
    """If true, elementwise ops read memory; earlier revisions divide bytes by FLOP/s and count nothing else."""
    transfer_factor: float | None
    """Number of times that a Send and an allgather count each byte; None stands for the bytes of the datatype (counted
    twice).
    """
    split_time: float
    """A Split within the step [s]."""
    placement_in_step: bool
    """If true, inputs, labels and weights reach their devices within the step; R3 places them before it."""
    outputs_gathered: bool
    """If true, loss and input gradient are gathered over replicas at the end of the step."""
    optimizer: bool
    """If true, the step ends with the optimizer, which costs the update of one weight, regardless of their number."""
    gradient_group_is_horizontal: bool = False
    """If true, gradients are reduced over groups of size H instead of D, where both exceed one."""
    datatype_bytes: int = 4
    """Bytes of an element."""
    allreduce: Mapping[int, Allreduce] = field(default_factory=lambda: MappingProxyType({}))
    """Measured all-reduces by size of the group; sizes that it lacks cost what a ring takes."""

    @property
    def transfer_count(self) -> float:
        """Number of times that a Send and an allgather count each byte."""
        return float(self.datatype_bytes) if self.transfer_factor is None else self.transfer_factor

    def link(self, bandwidth_gbps: Number) -> Number:
        """Return the rate of a link [bytes/s] from DistIR's bandwidth in Gbps."""
        return bandwidth_gbps * self.bytes_per_gigabit

    def matmul(self, rows: Floats, inner: Floats, columns: Floats) -> Floats:
        """Returns the time of a product of [rows x inner] and [inner x columns]: its operations, and reading both
        operands [s]."""
        element = float(self.datatype_bytes if self.matmul_bytes_per_element is None else self.matmul_bytes_per_element)
        read = element * (rows * inner + inner * columns) / self.dram_bandwidth
        return self.launch_overhead + read + 2.0 * rows * inner * columns / self.flops

    def matmul_gradient(self, rows: Floats, inner: Floats, columns: Floats) -> Floats:
        """Returns the time of both gradients of that product: dz w^T and x^T dz [s]."""
        return self.matmul(rows, columns, inner) + self.matmul(inner, rows, columns)

    def elementwise(self, elements: Floats, operands: int) -> Floats:
        """Returns the time of an op element by element [s].

        R3's Loss and LossGrad count one operand of two: arguments in wrong order.
        """
        if not self.streamed_elementwise:
            return self.datatype_bytes * elements / self.flops
        read = operands * self.datatype_bytes * elements / self.dram_bandwidth
        return self.launch_overhead + read + elements / self.flops

    def concatenation(self) -> float:
        """Returns the time of a Concat [s]: nothing, or a launch."""
        return self.launch_overhead

    def optimizer_step(self, elements: Floats) -> Floats:
        """Returns the time of the optimizer on one weight [s]."""
        read = 2.0 * self.datatype_bytes * elements / self.dram_bandwidth
        return self.launch_overhead + read + elements / self.flops

    def send(self, elements: Floats, bandwidth_gbps: float) -> Floats:
        """Returns the time of a Send, which blocks both ends [s]."""
        return self.transfer_count * self.datatype_bytes * elements / self.link(bandwidth_gbps)

    def all_gather(self, elements: Floats, group: Floats, bandwidth_gbps: float) -> Floats:
        """Returns the time of an allgather of `elements` from each of a group [s]; twice what a ring takes."""
        size = self.transfer_count * self.datatype_bytes * elements
        return 2.0 * size * (group - 1.0) / group / self.link(bandwidth_gbps)

    def all_reduce(self, elements: Floats, group: Floats, bandwidth_gbps: float) -> Floats:
        """Returns the time of a ring all-reduce, or what was measured for a group of that size [s]; nothing within a
        group of one."""
        size = self.datatype_bytes * elements
        time = 2.0 * size * (group - 1.0) / group / self.link(bandwidth_gbps)
        for number, measured in self.allreduce.items():
            gigabits = size / self.bytes_per_gigabit
            fitted = measured.per_gigabit * gigabits + measured.per_device * number + measured.constant
            time = np.where(group == number, fitted, time)
        return np.asarray(np.where(group > 1, time, 0.0), np.float64)


_R1: Final = DistIRCostModel(
    name="R1",
    commit="3386edc",
    what="source of the notebook, 2021-03-16",
    flops=1e14,
    dram_bandwidth=1.2e12,
    launch_overhead=0.0,
    bytes_per_gigabit=8e9,
    matmul_bytes_per_element=2.0,
    streamed_elementwise=False,
    transfer_factor=None,
    split_time=1e-6,
    placement_in_step=True,
    outputs_gathered=True,
    optimizer=False,
)
_R2: Final = replace(
    _R1,
    name="R2",
    commit="83d7fc3",
    what="units mended, 2021-04-05",
    bytes_per_gigabit=1.25e8,
    matmul_bytes_per_element=None,
)
_R3: Final = DistIRCostModel(
    name="R3",
    commit="7cfa1b0",
    what="submission to MLSys 2022, 2022-01-05",
    flops=1.4e13,
    dram_bandwidth=9e11,
    launch_overhead=1e-5,
    bytes_per_gigabit=1.25e8,
    matmul_bytes_per_element=None,
    streamed_elementwise=True,
    transfer_factor=1.0,
    split_time=0.0,
    placement_in_step=False,
    outputs_gathered=False,
    optimizer=True,
)
_PUBLISHED: Final = replace(
    _R1,
    name="EuroMLSys21",
    commit="before 3386edc",
    what="what made the published grid: no allgathers, and gradients reduced over groups of H where H and D exceed one",
    outputs_gathered=False,
    gradient_group_is_horizontal=True,
)

REVISIONS: Final[Mapping[str, DistIRCostModel]] = {model.name: model for model in (_R1, _R2, _R3, _PUBLISHED)}
"""The cost models by name: R1, R2, R3, and EuroMLSys21, which made the published grid."""


def revision_of(name: str) -> DistIRCostModel:
    """Returns the cost model of that name.

    Args:
        name: "R1", "R2" or "R3", or "EuroMLSys21" for what made the published grid.

    Raises ConfigurationError for a name that there is not.
    """
    if not isinstance(name, str) or name not in REVISIONS:
        raise ConfigurationError(f"{str(name)[:60]!r} is no revision of DistIR; there are {', '.join(REVISIONS)}.")
    return REVISIONS[name]
