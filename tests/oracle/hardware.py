"""The machine as the oracle sees it: four small timing rules over a Calculon system dictionary.

Sizes in [bytes] or [FLOP], results in [s].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

DATATYPE_BYTES = {"float8": 1, "float16": 2, "bfloat16": 2, "float32": 4}


class TableGapError(Exception):
    """An efficiency table has no entry for a size: Calculon asserts there."""


def step(table: Sequence[Sequence[float]], unit: float, size: float) -> float:
    """Efficiency of the first entry whose threshold is reached, in listed order."""
    for threshold, efficiency in table:
        if size >= threshold * unit:
            return efficiency
    raise TableGapError(f"no efficiency for a size of {size}")


class Tier:
    """One network tier."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        self.bandwidth: float = description["bandwidth"] * 1e9
        self.efficiency: float = description["efficiency"]
        self.size: int = description["size"]
        self.latency: float = description["latency"]
        self.operations: dict[str, tuple[float, float]] = {
            name: (scalar, 0.0 if offset is None else offset) for name, (scalar, offset) in description["ops"].items()
        }
        self.must_be_filled: bool = description["must_be_filled"]
        self.processor_usage: float = description["processor_usage"]

    def time(self, operation: str, size: float, members: int) -> float:
        """Duration of one collective of `size` bytes over `members` processors."""
        scalar, offset = self.operations[operation]
        scaled = size * scalar
        moved = scaled + (1 / members * scaled) * offset
        return self.latency + moved / (self.bandwidth * self.efficiency)

    def scalar(self, operation: str) -> float:
        return self.operations[operation][0]


class Machine:
    """A system seen through one datatype."""

    def __init__(self, system: Mapping[str, Any], datatype: str) -> None:
        self.system = system
        self.datatype = datatype
        self.roofline = system["processing_mode"] == "roofline"
        self.tiers = [Tier(network) for network in system["networks"]]

    def compute_time(self, flops: float, engine: str) -> float:
        """Seconds for `flops` on the "matrix" or "vector" engine."""
        processor = self.system[engine][self.datatype]
        peak: float = processor["tflops"] * 1e12
        return flops / (peak * step(processor["gflops_efficiency"], 1e9, flops))

    def memory_time(self, size: float, memory: str = "mem1") -> float:
        """Seconds for `size` bytes through "mem1" or "mem2".

        A tier with neither capacity nor bandwidth is absent. Calculon dies on it; here moving nothing through it takes
        no time, and moving something is never timed because no execution needing it fits.
        """
        tier = self.system[memory]
        if tier["GBps"] == 0 and tier["GiB"] == 0:
            return 0.0
        bandwidth: float = tier["GBps"] * 1e9
        return size / (bandwidth * step(tier["MB_efficiency"], 1e6, size))

    def combine(self, compute: float, memory: float) -> float:
        return max(compute, memory) if self.roofline else compute + memory

    def capacity(self, memory: str) -> float:
        capacity: float = self.system[memory]["GiB"] * 2**30
        return capacity

    def matrix_peak(self) -> float:
        peak: float = self.system["matrix"][self.datatype]["tflops"] * 1e12
        return peak
