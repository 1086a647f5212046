"""Grids of data, horizontal and pipeline parallelism by DistIR's simulator, for its own models and a scenario's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from dashboard.compat.caches import remembered
from engine import Scenario
from engine.simulate.distir import configurations, grid, over_devices, style, with_speedup
from models.parameters import active_parameters, embedding_weights

__all__ = ["Machine", "Stack", "curves", "grid_of", "machine_of", "stack_of"]

SERIES: Final = (4, 8, 16, 32)
"""Microbatch counts of the pipeline's curves."""


@dataclass(frozen=True, slots=True)
class Stack:
    """Model of DistIR's grids: number of square weights, and rows of a step."""

    layers: int
    width: int
    batch: int


@dataclass(frozen=True, slots=True)
class Machine:
    """A revision of DistIR and what differs from its constants: FLOP/s, bytes/s, Gbps."""

    revision: str
    bandwidth_gbps: float
    flops: float | None = None
    dram_bandwidth: float | None = None
    datatype_bytes: int | None = None

    def arguments(self) -> dict[str, Any]:
        """Returns its constants as arguments of `grid`."""
        told = {"flops": self.flops, "dram_bandwidth": self.dram_bandwidth, "datatype_bytes": self.datatype_bytes}
        return {name: value for name, value in told.items() if value is not None}


def stack_of(scenario: Scenario) -> tuple[int, int]:
    """Returns (layers, width) of a stack of square weights as wide as the model's hidden size, with as many weights.

    Counted are the weights that a token passes, without embedding and head; attention's products, norms and the loss
    over the vocabulary are not there. The number is even, as horizontal parallelism needs it.
    """
    architecture = scenario.model.architecture_or_assumed()
    weights = active_parameters(architecture) - embedding_weights(architecture)
    return max(2, 2 * round(weights / architecture.hidden**2 / 2)), architecture.hidden


def machine_of(scenario: Scenario, revision: str) -> Machine:
    """Returns a machine with the peaks of a scenario's system: matrix engine, memory, and the outermost network that
    the scenario's processors use between nodes.

    A peak is what no operation reaches, so steps come out too short.
    """
    system, datatype = scenario.system, scenario.datatype
    sizes = {"float8": 1, "float16": 2, "bfloat16": 2, "float32": 4}
    network = system.network_between_nodes(scenario.num_procs)
    return Machine(
        revision=revision,
        bandwidth_gbps=8.0 * network.bandwidth_gb_per_s,
        flops=1e12 * system.matrix[datatype].tflops,
        dram_bandwidth=1e9 * system.mem1.bandwidth_gb_per_s,
        datatype_bytes=sizes.get(datatype),
    )


@remembered(32)
def grid_of(
    stack: Stack, machine: Machine, devices: int, memory_limit: float | None, placed: bool = False
) -> pd.DataFrame:
    """Return every configuration of up to a number of devices, with style, devices and speedup.

    Args:
        stack: the model.
        machine: the devices and their links.
        devices: a power of two.
        memory_limit: of a device [bytes].
        placed: whether weights are in place before the step; in R3 they are.
    """
    numbers = [2**power for power in range(devices.bit_length())]
    table = grid(
        configurations(numbers, batch=stack.batch),
        revision=machine.revision,
        width=stack.width,
        layers=stack.layers,
        batch=stack.batch,
        bandwidth_gbps=machine.bandwidth_gbps,
        memory_limit=memory_limit,
        filtered=placed,
        **machine.arguments(),
    )
    degrees = zip(table["D"], table["H"], table["P"], strict=True)
    alone = table.loc[(table["D"] * table["H"] * table["P"]) == 1, "throughput"]
    return with_speedup(table.assign(style=[style(*each) for each in degrees]), float(alone.iloc[0]))


@remembered(32)
def curves(stack: Stack, machine: Machine, devices: int) -> pd.DataFrame:
    """Returns speedups of data and pipeline parallelism alone, a curve per batch and per number of microbatches."""
    batches = [stack.batch // 8 * part for part in (1, 2, 4, 8)] if stack.batch >= 8 else [stack.batch]
    return over_devices(
        revision=machine.revision,
        width=stack.width,
        layers=stack.layers,
        batch=stack.batch,
        bandwidth_gbps=machine.bandwidth_gbps,
        devices=[2**power for power in range(1, devices.bit_length())],
        batches=batches,
        microbatches=SERIES,
        **machine.arguments(),
    )
