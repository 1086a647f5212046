"""Volumes of the collectives of strategies, as tables over the few choices that each depends on.

A tensor is, along every mesh axis, replicated, split by tokens, split by its last dimension, or, inside experts, by
expert. The last axis of states and volumes is the mesh axis, the outer one first.

On one mesh axis an all-reduce of b bytes moves 2 (n-1)/n b, an all-gather or a reduce-scatter half of that, an
all-to-all a quarter (Alpa: half an all-gather). On two, the volume of an axis is divided by the devices of the other
one where that splits the tensor as well. A sum over both axes is scattered inside, added up outside and gathered
inside; a gather over both axes uses the outer axis first. Where both split one dimension, they cut it in the order that
suits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.executions.arrays import Flags, Floats, Ints
from engine.planners.intra_operator.mesh import COLLECTIVES

__all__ = [
    "BEFORE",
    "BY_EXPERT",
    "LAST",
    "REPLICATED",
    "TOKENS",
    "Factor",
    "LayerAccount",
    "all_states",
    "state_number",
]

REPLICATED, TOKENS, LAST, BY_EXPERT = range(4)
"""States of a tensor on a mesh axis: whole on every device, split by tokens, by the last dimension, or by experts."""
STATES: Final = 3
"""States of a tensor between layers."""
REDUCE, GATHER, EXCHANGE, SCATTER = range(4)
"""Collectives: all-reduce, all-gather, all-to-all and reduce-scatter, by their place in `COLLECTIVES`."""
BEFORE: Final = -1
"""Stands among blocks for the state before the layer."""


@dataclass(frozen=True, slots=True)
class Factor:
    """Costs that depend on the strategies of some blocks: axes of the arrays are those blocks, in `keys`, then mesh
    axis and collective for volumes [bytes] and counts; seconds of kernels [s], memory, and the share of it in use only
    while the layer is at work [bytes] have the blocks only."""

    keys: tuple[int, ...]
    volumes: Floats | None = None
    counts: Floats | None = None
    seconds: Floats | None = None
    memory: Floats | None = None
    working: Floats | None = None


class LayerAccount:
    """Makes the factors of a layer on a mesh of one axis or two.

    Args:
        shape: devices along every mesh axis, the outer one first.
        times: how often everything but memory is done in a step.
        forgets: whether stored tensors exist only while the layer is at work, because they are computed again.
    """

    def __init__(self, shape: Sequence[int], times: float = 1.0, *, forgets: bool = False) -> None:
        self.shape = tuple(shape)
        self.times, self.forgets = times, forgets
        self.share = [(devices - 1) / devices for devices in shape]
        self.factors: list[Factor] = []

    def convert(
        self, keys: tuple[int, ...], source: Ints, target: Ints, size: Floats | float, count: float = 1.0
    ) -> None:
        """Adds the collectives that bring a tensor from one state to another.

        Args:
            keys: the blocks that the axes of both states belong to, which broadcast.
            source, target: states [..., mesh axis].
            size: of the whole tensor [bytes]; broadcasts against the states without the mesh axis.
            count: how often.
        """
        source, target = np.broadcast_arrays(source, target)
        split, wanted = source != REPLICATED, target != REPLICATED
        volumes, counts = self._empty(source.shape[:-1])
        for axis, share in enumerate(self.share):
            gathers = split[..., axis] & ~wanted[..., axis]
            moves = split[..., axis] & wanted[..., axis] & (source[..., axis] != target[..., axis])
            here = np.ones(source.shape[:-1])
            left = np.ones(source.shape[:-1])
            for other, devices in enumerate(self.shape):
                if other == axis:
                    continue
                either = split[..., other] | wanted[..., other]
                here = here * np.where(either, devices, 1)
                # Axes before this one in order have already gathered.
                left = left * np.where(either if axis < other else wanted[..., other], devices, 1)
            # All-gather (n - 1)/n b;  all-to-all half of that: Alpa's (n - 1)/n^2 b times its penalty n/2.
            self._put(volumes, counts, axis, GATHER, gathers, share * size / left * count, count)
            self._put(volumes, counts, axis, EXCHANGE, moves, share / 2.0 * size / here * count, count)
        self._add(keys, volumes, counts)

    def reduce(
        self,
        keys: tuple[int, ...],
        partial: Flags,
        split: Flags,
        size: float,
        *,
        count: float = 1.0,
        scattered: Flags | bool = False,
    ) -> None:
        """Adds the collectives that add up a tensor whose parts are on all devices of an axis.

        Args:
            keys: the blocks that the axes belong to.
            partial: whether a mesh axis has parts of the sum [..., mesh axis].
            split: whether one splits the tensor [..., mesh axis].
            size: of the whole tensor [bytes].
            count: how often.
            scattered: whether every device of the axis gets its part of the sum only [..., mesh axis].
        """
        partial, split, only = np.broadcast_arrays(partial, split, np.asarray(scattered))
        volumes, counts = self._empty(partial.shape[:-1])
        for axis, share in enumerate(self.share):
            left = np.ones(partial.shape[:-1])
            for other, devices in enumerate(self.shape):
                if other != axis:
                    inside = partial[..., other] if axis < other else np.zeros(partial.shape[:-1], bool)
                    left = left * np.where(split[..., other] | inside, devices, 1)
            whole = partial[..., axis] & ~only[..., axis]
            part = partial[..., axis] & only[..., axis]
            # All-reduce 2 (n - 1)/n b;  reduce-scatter (n - 1)/n b.
            self._put(volumes, counts, axis, REDUCE, whole, 2.0 * share * size / left * count, count)
            self._put(volumes, counts, axis, SCATTER, part, share * size / left * count, count)
        self._add(keys, volumes, counts)

    def gather(self, keys: tuple[int, ...], apart: Flags, split: Flags, size: float, count: float = 1.0) -> None:
        """Adds the collectives that gather a tensor from the parts on the devices of an axis.

        Args:
            keys: the blocks that the axes belong to.
            apart: whether an axis has to gather [..., mesh axis].
            split: whether an axis splits the tensor and goes on to [..., mesh axis].
            size: of the whole tensor [bytes].
            count: how often.
        """
        source = np.where(apart | split, TOKENS, REPLICATED)
        self.convert(keys, source, np.where(split, TOKENS, REPLICATED), size, count)

    def keep(self, keys: tuple[int, ...], split: Flags, size: float) -> None:
        """Adds memory for a tensor that the backward pass needs, and that the axes split or not.

        Args:
            keys: the blocks that the axes belong to.
            split: whether an axis splits the tensor [..., mesh axis].
            size: of the whole tensor [bytes].
        """
        self.hold(keys, size / self.parts(split), needed=True)

    def parts(self, split: Flags) -> Floats:
        """Returns into how many parts a tensor is split.

        Args:
            split: whether an axis splits it [..., mesh axis].
        """
        return np.asarray(np.prod(np.where(split, np.array(self.shape, float), 1.0), axis=-1))

    def spend(self, keys: tuple[int, ...], seconds: Floats) -> None:
        """Adds seconds of kernels [s].

        Args:
            keys: the blocks that the axes belong to.
            seconds: of a device [s].
        """
        self.factors.append(Factor(keys, seconds=self.times * np.asarray(seconds, float)))

    def hold(self, keys: tuple[int, ...], memory: Floats, *, needed: bool = False) -> None:
        """Adds memory of a device [bytes].

        Args:
            keys: the blocks that the axes belong to.
            memory: of a device [bytes].
            needed: whether it is what the backward pass needs of the forward pass.
        """
        size = np.asarray(memory, float)
        forgotten = needed and self.forgets
        self.factors.append(Factor(keys, working=size) if forgotten else Factor(keys, memory=size))

    def _empty(self, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
        full = (*shape, len(self.shape), len(COLLECTIVES))
        return np.zeros(full), np.zeros(full)

    def _put(
        self, volumes: Floats, counts: Floats, axis: int, collective: int, where: Flags, size: Floats, count: float
    ) -> None:
        if self.share[axis]:
            volumes[..., axis, collective] += np.where(where, size, 0.0)
            counts[..., axis, collective] += np.where(where, count, 0.0)

    def _add(self, keys: tuple[int, ...], volumes: Floats, counts: Floats) -> None:
        flat = volumes.shape[:-2]
        once = self.times == 1.0
        self.factors.append(
            Factor(
                keys,
                *(
                    each.reshape(*flat, -1) if once else self.times * each.reshape(*flat, -1)
                    for each in (volumes, counts)
                ),
            )
        )


def all_states(axes: int) -> Ints:
    """Returns all states of a tensor between layers [states, mesh axes], by their number.

    Args:
        axes: of the mesh.
    """
    return np.stack(np.meshgrid(*[np.arange(STATES)] * axes, indexing="ij"), axis=-1).reshape(-1, axes)


def state_number(states: Ints) -> Ints:
    """Returns the number of states among `all_states`.

    Args:
        states: of every mesh axis [..., mesh axes].
    """
    found = np.zeros(states.shape[:-1], np.int64)
    for axis in range(states.shape[-1]):
        found = found * STATES + states[..., axis]
    return found
