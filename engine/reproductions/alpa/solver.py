"""Alpa's solver: costs of collectives, resharding and a chain of linear layers in its units.

On mesh axis j of n devices, b the bytes of the full tensor along that axis:

    all-gather      alpha_j + beta_j (n-1)/n   b + 0.1
    all-reduce      alpha_j + beta_j 2(n-1)/n  b + 0.01
    reduce-scatter  alpha_j + beta_j (n-1)/n   b + 0.001
    all-to-all      alpha_j + beta_j (n-1)/n^2 b (n/2) + 0.001

The small constants break ties; its C++ solver rounds the terms before them. A contraction itself costs nothing, because
every strategy computes the same. Source: Alpa (Zheng et al., OSDI 2022), sections 4.1 and 4.2, and its released code
(b8078a9f, alpa/shard_parallel/auto_sharding.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from engine.planners.contract import PlanError
from engine.planners.intra_operator.contractions import Contraction, Dim, Operand, ShardingStrategy, strategies

__all__ = ["AlpaMesh", "LinearChain", "linear_chain"]

TAILS: Final = {"all_gather": 0.1, "all_reduce": 0.01, "reduce_scatter": 0.001, "all_to_all": 0.001}
"""Constants that order collectives of equal cost [units of cost]. Source: as for the module."""
Spec = tuple[tuple[int, ...], ...]
"""For every dimension of a tensor the mesh axes that split it; none for a replicated one."""


@dataclass(frozen=True, slots=True)
class AlpaMesh:
    """A logical mesh of two axes: devices, latency and time of a byte of each; whether costs are rounded as the C++
    solver rounds them."""

    shape: tuple[int, int]
    alpha: tuple[float, float] = (1.0, 1.0)
    beta: tuple[float, float] = (1.0, 0.1)
    rounded: bool = False

    @classmethod
    def of_hosts(
        cls, shape: tuple[int, int], *, hosts: int, inside: float, between: float, rounded: bool = False
    ) -> AlpaMesh:
        """Returns a mesh of hosts on a tree network: devices numbered host by host fill it row by row.

        Along an axis neighbours of a ring on one host have the bandwidth inside it; rings over the same two hosts
        share the bandwidth between them. The slowest pair decides, and beta is its inverse.

        Args:
            shape: devices along both axes.
            hosts: with equally many devices.
            inside: bandwidth between devices of a host [units of volume per unit of cost].
            between: of a pair of hosts.
            rounded: as the C++ solver rounds.

        Raises:
            PlanError: the devices do not fill the hosts evenly, or a bandwidth is not more than 0.
        """
        devices = shape[0] * shape[1]
        if hosts < 1 or devices % hosts or min(inside, between) <= 0:
            told = f"with bandwidths {inside:g} and {between:g}"
            raise PlanError(f"{devices} devices on {hosts} hosts {told} are no mesh.")
        host = np.arange(devices).reshape(shape) // (devices // hosts)
        betas = []
        for axis in (0, 1):
            pairs = np.stack([host, np.roll(host, -1, axis=axis)], axis=-1).reshape(-1, 2)
            apart = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
            # Rings that join the same two hosts share the link between them.
            _, shared = np.unique(apart, axis=0, return_counts=True)
            betas.append(1.0 / min([inside, *(between / shared).tolist()]))
        return cls(shape, (1.0, 1.0), (betas[0], betas[1]), rounded)

    def all_gather_cost(self, size: float, axis: int) -> float:
        """Returns the cost of an all-gather.

        Args:
            size: of the full tensor along the axis [bytes].
            axis: 0 or 1.
        """
        return self._cost("all_gather", self._share(axis) * size, axis)

    def all_reduce_cost(self, size: float, axis: int) -> float:
        """Returns the cost of an all-reduce.

        Args:
            size: of the full tensor along the axis [bytes].
            axis: 0 or 1.
        """
        return self._cost("all_reduce", 2.0 * self._share(axis) * size, axis)

    def all_to_all_cost(self, size: float, axis: int) -> float:
        """Returns the cost of an all-to-all, with the penalty of n/2 that makes it half an all-gather.

        Args:
            size: of the full tensor along the axis [bytes].
            axis: 0 or 1.
        """
        return self._cost("all_to_all", self._share(axis) / 2.0 * size, axis)

    def resharding_cost(self, source: Spec, target: Spec, size: float) -> float:
        """Returns the cost of bringing a tensor from one sharding to another; infinite where Alpa has no way.

        A dimension that is split more is sliced, for nothing. One that is split less is gathered, axis by axis, from
        the local part up. One that changes its axis cannot be. A slice with a gather is an all-to-all, where only one
        mesh axis has more than one device.

        Args:
            source, target: for every dimension the mesh axes that split it.
            size: of the whole tensor [bytes].
        """
        if len(source) != len(target):
            raise PlanError(f"Shardings of {len(source)} and {len(target)} dimensions are none of one tensor.")
        many = [axis for axis in (0, 1) if self.shape[axis] > 1]
        source, target = (tuple(tuple(a for a in dim if a in many) for dim in each) for each in (source, target))
        slices, gathers = 0, list[int]()
        for before, after in zip(source, target, strict=True):
            if before == after:
                continue
            if before and after:
                return math.inf
            slices += bool(after)
            gathers += before
        if not gathers:
            return 0.0
        if slices:
            alone = min(self.shape) == 1 and slices == len(gathers) == 1
            return self.all_to_all_cost(size, gathers[0]) if alone else math.inf
        local = size / math.prod(self.shape[axis] for dim in source for axis in dim)
        cost = 0.0
        # The gathered part grows by each axis in turn.
        for axis in gathers:
            local *= self.shape[axis]
            cost += self.all_gather_cost(local, axis)
        return cost

    def _share(self, axis: int) -> float:
        return (self.shape[axis] - 1) / self.shape[axis]

    def _cost(self, collective: str, volume: float, axis: int) -> float:
        cost = self.alpha[axis] + self.beta[axis] * volume
        return (round(cost) if self.rounded else cost) + TAILS[collective]


@dataclass(frozen=True, slots=True)
class LinearChain:
    """The best strategies of a chain of linear layers: the cost, and the strategy of every layer by Alpa's name."""

    cost: float
    strategies: tuple[str, ...]


def linear_chain(mesh: AlpaMesh, *, batch: int, widths: Sequence[int], element_bytes: float = 4.0) -> LinearChain:
    """Returns the cheapest strategies of a step of training a chain of linear layers, by dynamic programming.

    The gradients of a layer take the strategies that follow from its own. The first layer's input needs no gradient.

    Args:
        mesh: of one axis or two.
        batch: rows of the input.
        widths: of the input and of every layer's result [elements].
        element_bytes: width of an element [bytes].

    Raises:
        PlanError: there is no layer, or only one device.
    """
    if len(widths) < 2 or max(mesh.shape) < 2:
        raise PlanError("A chain needs at least one layer of two widths, and a mesh at least two devices.")
    layers = [
        Contraction(
            "dot",
            Operand("x", (("t",), ("k",))),
            Operand("w", (("k",), ("n",)), weight=True),
            Operand("y", (("t",), ("n",))),
        )
    ] * (len(widths) - 1)
    options = strategies(layers[0], mesh.shape)
    sizes = [{"t": batch, "k": k, "n": n} for k, n in pairwise(widths)]
    own = np.array(
        [
            [_layer_cost(mesh, layers[0], each, size, at == 0, element_bytes) for each in options]
            for at, size in enumerate(sizes)
        ]
    )
    best, came = own[0], list[np.ndarray]()
    for at in range(1, len(sizes)):
        size = batch * widths[at] * element_bytes
        # best[j] = min over i of best[i] + resharding(i, j), plus j's own cost: exact, since the chain has no branches.
        between = np.array([[_resharding_between(mesh, a, b, size) for b in options] for a in options])
        total = best[:, None] + between
        came.append(total.argmin(axis=0))
        best = total.min(axis=0) + own[at]
    last = int(best.argmin())
    chosen = [last]
    for back in reversed(came):
        chosen.append(int(back[chosen[-1]]))
    return LinearChain(float(best[last]), tuple(options[at].name for at in reversed(chosen)))


def _layer_cost(
    mesh: AlpaMesh, layer: Contraction, strategy: ShardingStrategy, sizes: dict[str, int], first: bool, width: float
) -> float:
    """All-reduces of the result, of the gradient of the weight, and of that of the input."""
    cost = 0.0
    summed: list[tuple[str, Operand]] = [("k", layer.out), ("t", layer.right)]
    if not first:
        summed.append(("n", layer.left))
    for label, tensor in summed:
        for axis, dim in enumerate(strategy.splits):
            if dim == (label,):
                other = strategy.splits[1 - axis]
                parts = mesh.shape[1 - axis] if other in tensor.dims else 1
                cost += mesh.all_reduce_cost(tensor.elements(sizes) * width / parts, axis)
    return cost


def _resharding_between(mesh: AlpaMesh, before: ShardingStrategy, after: ShardingStrategy, size: float) -> float:
    """Cost of resharding a result to the next layer's input, and of the gradient back."""
    given, wanted = _sharding_spec(before, (("t",), ("n",))), _sharding_spec(after, (("t",), ("k",)))
    return mesh.resharding_cost(given, wanted, size) + mesh.resharding_cost(wanted, given, size)


def _sharding_spec(strategy: ShardingStrategy, dims: Sequence[Dim]) -> Spec:
    return tuple(tuple(axis for axis, dim in enumerate(strategy.splits) if dim == one) for one in dims)
