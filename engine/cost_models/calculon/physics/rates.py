"""Rates of engines, memories and networks of a system, as functions of size.

Source: Calculon 0.1.0 (commit caa4b11), `processor.py`, `memory.py`, `network.py`, `system.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from engine.executions.arrays import Floats
from hardware import GIB, Memory, Processor, System

__all__ = ["Collective", "NetworkRates", "StepTable", "SystemRates", "rates"]


Collective = Literal["p2p", "reduce_scatter", "all_gather", "all_reduce"]


@dataclass(frozen=True, slots=True)
class StepTable:
    """Efficiency by size: the first entry, in listed order, whose threshold the size reaches.

    `thresholds` ascend; `efficiencies` belong to them. Entries that an earlier listed one always beats are dropped.
    """

    thresholds: Floats
    efficiencies: Floats

    @classmethod
    def from_listed(cls, entries: Sequence[tuple[float, float]], unit: float) -> StepTable:
        """Returns the table of entries (threshold in `unit`, efficiency) in listed order."""
        kept: list[tuple[float, float]] = []
        for threshold, efficiency in entries:
            # The first listed entry that a size reaches counts: after one with a lower threshold none is ever met.
            if not kept or threshold * unit < kept[-1][0]:
                kept.append((threshold * unit, efficiency))
        kept.reverse()
        return cls(np.array([entry[0] for entry in kept]), np.array([entry[1] for entry in kept]))

    def at(self, size: Floats) -> Floats:
        """Returns the efficiency at each size; sizes are at least 0, which every table reaches."""
        reached = np.zeros(np.shape(size), np.int8)
        for threshold in self.thresholds[1:].tolist():
            reached += size >= threshold
        result: Floats = self.efficiencies.take(reached)
        return result


@dataclass(frozen=True, slots=True)
class _Rate:
    """A peak rate [units/s] and its efficiency by size."""

    peak: float
    table: StepTable

    def seconds(self, amount: Floats) -> Floats:
        """Time [s] for an amount of operations [FLOP] or data [bytes]."""
        if self.peak == 0.0:  # A second tier that does not exist: nothing is moved, and moving anything takes forever.
            return np.where(amount == 0.0, 0.0, np.inf)
        # t = x / (peak e(x)), with the efficiency of the size of this one operation.
        return amount / (self.peak * self.table.at(amount))


@dataclass(frozen=True, slots=True)
class NetworkRates:
    """The network tiers, one entry per tier in each array [tiers].

    `rate` is bandwidth times efficiency [bytes/s], `latency` [s], `busy` the share of a processor's compute that
    communication takes, `scalar` and `offset` the operation factors by collective.
    """

    size: npt.NDArray[np.int64]
    must_be_filled: npt.NDArray[np.bool_]
    rate: Floats
    latency: Floats
    busy: Floats
    scalar: dict[Collective, Floats]
    offset: dict[Collective, Floats]

    def seconds(
        self, tier: npt.NDArray[np.int64], operation: Collective, payload: Floats, members: Floats | float
    ) -> Floats:
        """Returns the time [s] of a collective of `payload` [bytes] over `members` processors on network `tier`.

        t = latency + (y + (y / n) offset) / rate with y = payload x scalar: an all-reduce with scalar 2 and offset -1
        moves 2 y (1 - 1/n). A collective runs on one tier; hierarchical collectives are not modelled.
        """
        moved = payload * self.scalar[operation][tier]
        offset = self.offset[operation][tier]
        if offset.any():
            moved = moved + (1.0 / members * moved) * offset
        return self.latency[tier] + moved / self.rate[tier]


@dataclass(frozen=True, slots=True)
class SystemRates:
    """Everything about a system that a block's time depends on, for one datatype."""

    matrix: _Rate
    vector: _Rate
    memory: _Rate
    second_memory: _Rate
    roofline: bool
    networks: NetworkRates
    capacity: float
    second_capacity: float

    def processing(self, compute: Floats, memory: Floats) -> Floats:
        """Returns the time [s] of a stage from its compute and memory times: the longer one, or their sum without
        overlap."""
        return np.maximum(compute, memory) if self.roofline else compute + memory


def _processor_rate(processor: Processor) -> _Rate:
    # Peak in TFLOP/s, thresholds in GFLOP.
    return _Rate(processor.tflops * 1e12, StepTable.from_listed(processor.gflops_efficiency, 1e9))


def _memory_rate(memory: Memory) -> _Rate:
    # Bandwidth in GB/s, thresholds in MB, both decimal; capacities below are in GiB.
    return _Rate(memory.bandwidth_gb_per_s * 1e9, StepTable.from_listed(memory.mb_efficiency, 1e6))


_COLLECTIVES: tuple[Collective, ...] = ("p2p", "reduce_scatter", "all_gather", "all_reduce")


def rates(system: System, datatype: str) -> SystemRates:
    """Return the rates of a system for one datatype. Raises KeyError for a datatype without a rate.

    Args:
        system: the system.
        datatype: such as "float16".
    """
    return SystemRates(
        matrix=_processor_rate(system.matrix[datatype]),
        vector=_processor_rate(system.vector[datatype]),
        memory=_memory_rate(system.mem1),
        second_memory=_memory_rate(system.mem2),
        roofline=system.processing_mode == "roofline",
        networks=network_rates(system),
        capacity=system.mem1.capacity_gib * GIB,
        second_capacity=system.mem2.capacity_gib * GIB,
    )


def network_rates(system: System) -> NetworkRates:
    """Returns the network tiers of a system as arrays.

    Args:
        system: where it runs.
    """
    networks = system.networks
    return NetworkRates(
        size=np.array([network.size for network in networks], np.int64),
        must_be_filled=np.array([network.must_be_filled for network in networks], bool),
        rate=np.array([(network.bandwidth_gb_per_s * 1e9) * network.efficiency for network in networks]),
        latency=np.array([network.latency_s for network in networks]),
        busy=np.array([network.processor_usage for network in networks]),
        scalar={name: np.array([network.operations[name].scalar for network in networks]) for name in _COLLECTIVES},
        offset={
            name: np.array([network.operations[name].offset or 0.0 for network in networks]) for name in _COLLECTIVES
        },
    )
