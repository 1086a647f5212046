"""Iterations from seven parameters that a card's measured runs determine: plans of models that no library describes.

Constants and fudges come from Rubick's artifact, whose cards were fitted with them.

Times are milliseconds, sizes MiB, bandwidths MiB/ms; parameters count in units of 2^20. Each function takes arrays, one
element per plan, and gives the parts of an iteration. Source of all formulas: AlibabaPAI/reconfigurable-dl-scheduler
@80e8524, restated; what an equation of ours leaves out no caller of the artifact uses.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, Protocol

import numpy as np

from engine.executions.arrays import Flags, Floats, Ints
from engine.planners.elastic.cards import Environment, ModelCard, PerformanceParameters
from engine.planners.elastic.performance.overlap import overlapped
from engine.planners.elastic.plan_names import OFFLOAD, PLAIN

__all__ = [
    "BETWEEN_NODES",
    "SLOW_NETWORK",
    "TENSOR_PENALTY",
    "IterationTerms",
    "ParameterSets",
    "data_parallel",
    "forward_data_parallel",
    "forward_three_dimensional",
    "gradient_volume",
    "three_dimensional",
]

SLOW_NETWORK: Final = 2.0
"""Bandwidth of gradient exchange at every bandwidth level except 0 [MiB/ms]."""

BETWEEN_NODES: Final = 20.0
"""Bandwidth between nodes that the 3D family counts with [MiB/ms]."""

TENSOR_PENALTY: Final = 1.15
"""Divisor of a forward pass for each tensor parallel rank."""


class ParameterSets(Protocol):
    """The seven fitted parameters, as numbers or as columns of many sets; see `cards.PerformanceParameters`."""

    @property
    def k_bwd(self) -> float | Floats:
        """Returns backward time over forward time."""

    @property
    def k_sync(self) -> float | Floats:
        """Returns the exponent of the overlap."""

    @property
    def k_opt(self) -> float | Floats:
        """Returns the optimizer's time on the GPU [ms per Mi-parameters]."""

    @property
    def k_os_offload(self) -> float | Floats:
        """Returns the optimizer's time on the CPU [ms x threads per Mi-parameters]."""

    @property
    def k_const(self) -> float | Floats:
        """Returns the constant of every iteration [ms]."""

    @property
    def k_off(self) -> float | Floats:
        """Returns the constant of copying gradients to the host [ms]."""

    @property
    def k_swap(self) -> float | Floats:
        """Returns the constant of the optimizer step [ms]."""


@dataclass(frozen=True)
class IterationTerms:
    """The parts of iterations, [plans] each [ms]; they add up to the iteration."""

    forward: Floats
    """Forward passes, recomputation and accumulation included."""
    backward: Floats
    """The backward pass alone, as if nothing overlapped with it."""
    synchronisation: Floats
    """Time that gradient exchange adds to it."""
    tensor: Floats
    """Exchange of tensor parallel ranks."""
    pipeline: Floats
    """Sends between pipeline stages, and idle time where the model has any."""
    to_host: Floats
    """Copies of gradients to the host, their constant included."""
    optimizer: Floats
    """Optimizer step, its constant included."""
    to_gpu: Floats
    """Copies of parameters back to the GPU."""
    constant: Floats

    @property
    def iteration(self) -> Floats:
        """Returns the whole iteration [ms]."""
        parts: list[Floats] = [getattr(self, each.name) for each in fields(self)]
        return np.asarray(np.sum(parts, axis=0), np.float64)


def gradient_volume(parameters_mi: Floats | float, ranks: Ints | Floats) -> Floats:
    """Returns the volume that each rank sends in a ring all-reduce of gradients in fp32 [MiB]: 8 P (n - 1) / n.

    Args:
        parameters_mi: parameters / 2^20.
        ranks: that share the gradients.
    """
    # 4 bytes per gradient, twice (n - 1)/n of them.
    return np.asarray(8.0 * parameters_mi * (ranks - 1.0) / ranks, np.float64)


def forward_data_parallel(card: ModelCard, gpus: Ints) -> Floats:
    """Returns the planner's forward time for the data-parallel family [ms]: one n-th of the time on one GPU, or by the
    card's speedup.

    Args:
        card: of the model.
        gpus: of each plan.
    """
    if not card.forward_speedup:
        return np.asarray(card.forward_ms / gpus, np.float64)
    speedup = np.ones(len(gpus))
    for number, factor in card.forward_speedup.items():
        speedup[gpus == number] = factor
    return np.asarray(card.forward_ms / speedup, np.float64)


def forward_three_dimensional(card: ModelCard, pp: Ints, tp: Ints, dp: Ints) -> Floats:
    """Returns the forward time that the planner counts with for the 3D family [ms]: F0 dp / pp / 1.15^tp.

    It rises with data parallelism and falls by 1.15 only per tensor parallel rank: no strong scaling, but a fudge.

    Args:
        card: of the model.
        pp, tp, dp: degrees of each plan.
    """
    return np.asarray(card.forward_ms * dp / pp / TENSOR_PENALTY ** tp.astype(np.float64), np.float64)


def data_parallel(
    parameters: ParameterSets,
    environment: Environment,
    *,
    parameters_mi: Floats | float,
    forward_ms: Floats,
    gpus: Ints,
    cpu_threads: Ints,
    zero: Ints,
    slow_network: Flags,
    forward_factor: Floats | float = 1.0,
    backward_factor: Floats | float = 1.0,
    exchange_factor: Floats | float = 1.0,
) -> IterationTerms:
    """Returns the iteration of plans of the data-parallel family: data parallelism, ZeRO-DP, ZeRO-Offload.

    Recomputation is a forward factor of 2; gradient accumulation is all three factors at the number of steps.

    Args:
        parameters: the seven fitted ones; arrays [sets, 1] give terms [sets, plans].
        environment: bandwidths [MiB/ms].
        parameters_mi: parameters / 2^20.
        forward_ms: one forward pass of what a GPU has of the batch [ms].
        gpus: of each plan.
        cpu_threads: of the host, per GPU.
        zero: kind of each plan, `plan_names.PLAIN`, `OFFLOAD` or `ZERO_DP`.
        slow_network: whether gradients go over the network rather than NVLink.
        forward_factor, backward_factor, exchange_factor: multipliers of the strategy.
    """
    backward = np.asarray(parameters.k_bwd * forward_ms, np.float64)
    bandwidth = np.where(slow_network, SLOW_NETWORK, environment.nvlink)
    exchange = np.asarray(exchange_factor * gradient_volume(parameters_mi, gpus) / bandwidth, np.float64)
    exchange, backward = np.broadcast_arrays(exchange, backward)
    # (V/B)^k + T_b^k)^(1/k): k = 1 adds both, k -> infinity hides the shorter.
    synchronised = overlapped(exchange, backward, parameters.k_sync)
    offloaded = zero == OFFLOAD
    # ZeRO-Offload copies each GPU's share of fp32 gradients to the host, and of parameters back.
    copy = np.where(offloaded, 4.0 * parameters_mi / gpus / environment.pcie, 0.0)
    on_gpu = parameters.k_opt * parameters_mi / np.where(zero == PLAIN, 1, gpus)
    # Adam on the CPU: inverse in the threads of all GPUs.
    on_host = parameters.k_os_offload * parameters_mi / (gpus * cpu_threads)
    zeros = np.zeros(synchronised.shape)
    return IterationTerms(
        forward=zeros + forward_factor * forward_ms,
        backward=zeros + backward_factor * backward,
        synchronisation=synchronised - backward,
        tensor=zeros,
        pipeline=zeros,
        to_host=zeros + copy + np.where(offloaded, parameters.k_off, 0.0),
        optimizer=zeros + np.where(offloaded, on_host, on_gpu) + parameters.k_swap,
        to_gpu=zeros + copy,
        constant=zeros + parameters.k_const,
    )


def three_dimensional(
    parameters: PerformanceParameters,
    environment: Environment,
    *,
    parameters_mi: float,
    global_batch: int,
    tokens_hidden: float,
    layers: int,
    forward_ms: Floats,
    pp: Ints,
    tp: Ints,
    nodes: Ints,
    gpus_per_node: Ints,
) -> IterationTerms:
    """Returns the iteration of plans of the 3D family: pipeline, tensor and data parallelism.

    There is no bubble, no microbatch and no memory in it. Data parallel degrees are what nodes and GPUs leave.

    Args:
        parameters: the seven fitted ones, of which it reads k_bwd, k_sync, k_opt and k_const.
        environment: bandwidths [MiB/ms].
        parameters_mi: parameters / 2^20.
        global_batch: samples of an iteration.
        tokens_hidden: elements of one layer's activations for one sample.
        layers: of the model.
        forward_ms: forward time that is counted with for each plan [ms].
        pp, tp: degrees of each plan.
        nodes: of its placement.
        gpus_per_node: GPUs on the first of them.
    """
    # Where nodes are unequal there may be less than one replica; such a plan does not run, but has to have figures.
    dp = np.maximum(nodes * gpus_per_node // tp // pp, 1)
    samples = global_batch // dp
    backward = parameters.k_bwd * forward_ms
    # Four all-reduces of activations per layer and sample, 2 (t - 1)/t of 4 bytes each.
    tensor = 32.0 * tokens_hidden * samples * layers * (tp - 1.0) / tp / 2**20 / environment.nvlink
    # As the artifact counts: 16 bytes per activation of the boundary, once per stage.
    sent = np.floor_divide(16.0 * samples * tokens_hidden, tp)
    pipeline = np.where(pp == 1, 0.0, sent / BETWEEN_NODES / 2**20 * pp)
    # As the artifact decides it: replicas share a node where stages fill whole nodes and ranks leave room.
    inside = (gpus_per_node > tp) & (pp == nodes)
    share = np.floor_divide(8.0 * (dp - 1.0) / dp * parameters_mi, tp) / pp
    exchange = share / np.where(inside, environment.nvlink, BETWEEN_NODES)
    zeros = np.zeros(len(pp))
    return IterationTerms(
        forward=forward_ms + zeros,
        backward=backward + zeros,
        synchronisation=overlapped(exchange, backward, parameters.k_sync) - backward,
        tensor=tensor,
        pipeline=pipeline,
        to_host=zeros,
        optimizer=parameters.k_opt * parameters_mi / (tp * pp),
        to_gpu=zeros,
        constant=zeros + parameters.k_const,
    )
