"""A profile's graph as ordered states: everything that a pipeline may have computed when it is cut.

A state is the past of a frontier, an antichain of the graph, together with all that still feeds something outside: what
crosses a cut there. The states of a chain are its layers. Follows Narayanan et al., "PipeDream" (SOSP 2019), section 3,
as HPGO 0.9.2 does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from engine.executions.arrays import Flags, Floats
from engine.planners.layerwise.profiles.profile import LayerProfile

__all__ = ["MOST_STATES", "States", "states_of"]

MOST_STATES = 2_000
"""States up to which a graph is cut along all its frontiers; graphs with more are cut along one order of their
layers."""


@dataclass(frozen=True)
class States:
    """States in topological order, arrays [states]; the figures of a state sum over the layers computed so far.

    `time`, `forward` [s], `activation` (stored) and `out` (crossing a cut after the state) [bytes] are for the batch at
    hand, `parameters` [bytes] for any. `before` [states, states] says which state is in the past of which. `past` has
    the layers of each state as the bits of a number. `linearised` says that only one order of the layers was
    considered.
    """

    time: Floats
    forward: Floats
    activation: Floats
    parameters: Floats
    out: Floats
    before: Flags
    past: tuple[int, ...]
    profile: LayerProfile
    linearised: bool
    scale: float = 1.0

    def __len__(self) -> int:
        return len(self.past)

    def at(self, batch: float, profile_batch: float) -> States:
        """Returns the states of a batch, everything but parameters proportional to it [samples]."""
        # As in PipeDream and HPGO times and activations are proportional to the batch.
        share = batch / profile_batch
        return replace(
            self,
            time=self.time * share,
            forward=self.forward * share,
            activation=self.activation * share,
            out=self.out * share,
            scale=share,
        )

    def on(self, kind: str) -> tuple[Floats, Floats]:
        """Returns cumulated forward passes, and both passes, on one device of a kind [s] [states]."""
        if kind not in dict(self.profile.kinds):
            return self.forward, self.time
        layers = self.profile.kind(kind).layers
        forward = _sum_by_set([layer.forward for layer in layers], self.past)
        return forward * self.scale, _sum_by_set([layer.time for layer in layers], self.past) * self.scale

    @cached_property
    def total(self) -> float:
        """Returns the time of everything [s]."""
        return float(self.time[-1])

    def span(self, values: Floats, start: int, last: int) -> float:
        """Returns the part of cumulated `values` that states from `start` to `last`, both included, add."""
        return float(values[last] - (values[start - 1] if start else 0.0))

    def layers(self, start: int, stop: int) -> tuple[int, ...]:
        """Returns the positions of the layers that states `start` to `stop`, half-open, add."""
        if stop <= start:
            return ()
        added = self.past[stop - 1] & ~(self.past[start - 1] if start else 0)
        return _set_bits(added)

    @cached_property
    def nested(self) -> bool:
        """Returns whether every state contains the one before, so that the layers between two states are their
        difference."""
        return all(not a & ~b for a, b in zip(self.past, self.past[1:], strict=False))

    def by_layer(self) -> tuple[Floats, Floats]:
        """Returns time [s] and parameters [bytes] of the layers that each state adds if states are nested; if they
        branch, of each layer, in the order in which states reach them."""
        if self.nested:
            return np.diff(self.time, prepend=0.0), np.diff(self.parameters, prepend=0.0)
        seen, order = 0, list[int]()
        for past in self.past:
            order.extend(_set_bits(past & ~seen))
            seen |= past
        layers = [self.profile.layers[position] for position in order]
        scale = self.total / self.profile.time
        return np.array([layer.time * scale for layer in layers]), np.array([layer.parameters for layer in layers])


def states_of(profile: LayerProfile, most: int = MOST_STATES) -> States:
    """Returns the states of a profile, at its own batch; of one order of the layers where there are more than
    `most`.

    Args:
        profile: times and sizes of layers, with the graph that they form.
        most: states beyond which the graph is cut along one order of its layers only.
    """
    graph = _Graph(profile)
    found = graph.frontiers(most)
    if found is None:
        order = graph.topological()
        past = [0] * len(order)
        seen = 0
        for number, layer in enumerate(order):
            seen |= 1 << layer
            past[number] = seen
        live = [graph.live(each) | 1 << layer for each, layer in zip(past, order, strict=True)]
        return _build_states(profile, past, live, np.triu(np.ones((len(past), len(past)), bool), 1), linearised=True)
    past, live, before = found
    return _build_states(profile, past, live, before, linearised=False)


class _Graph:
    """The edges of a profile as bits of whole numbers: bit i stands for layer i."""

    def __init__(self, profile: LayerProfile) -> None:
        count = len(profile.layers)
        self.after: list[list[int]] = [[] for _ in range(count)]
        self.sources = (1 << count) - 1
        into: list[list[int]] = [[] for _ in range(count)]
        for a, b in profile.edges:
            self.after[a].append(b)
            into[b].append(a)
            self.sources &= ~(1 << b)
        self.fed = [sum(1 << b for b in each) for each in self.after]
        self.order = _depth_first(self.after, range(count))
        self.ancestors = [0] * count
        for layer in self.order:
            for a in into[layer]:
                self.ancestors[layer] |= self.ancestors[a] | 1 << a
        self.feeding = sum(1 << layer for layer in range(count) if self.fed[layer])
        self.whole = (1 << count) - 1

    def topological(self) -> list[int]:
        return self.order

    def live(self, past: int) -> int:
        """Returns the layers of a past that feed something outside."""
        return self.live_beside(past, past)

    def held(self, frontier: tuple[int, ...]) -> int:
        """Returns a frontier with the ancestors that still feed something outside of what one of its layers needs.

        As in PipeDream and HPGO each layer of the frontier is asked on its own, so that an ancestor that two of them
        share counts even where both have been fed.
        """
        held = 0
        for layer in frontier:
            past = self.ancestors[layer]
            held |= 1 << layer | self.live_beside(past, past | 1 << layer)
        return held

    def live_beside(self, past: int, done: int) -> int:
        """Returns the layers of a past that feed something that is not done."""
        return sum(1 << layer for layer in _set_bits(past & self.feeding) if self.fed[layer] & ~done)

    def _past(self, layers: tuple[int, ...]) -> int:
        past = 0
        for layer in layers:
            past |= self.ancestors[layer] | 1 << layer
        return past

    def frontiers(self, most: int) -> tuple[list[int], list[int], Flags] | None:
        """Returns pasts, live layers and precedence of all frontiers in topological order; None where there are too
        many."""
        start: tuple[int, ...] = (_set_bits(self.sources)[0],)
        number = {start: 0}
        after: list[list[int]] = []
        live: list[int] = []
        waiting = deque([start])
        while waiting:
            frontier = waiting.popleft()
            past, held = self._past(frontier), self.held(frontier)
            live.append(held)
            following: dict[tuple[int, ...], None] = {}
            for layer in _set_bits(held):
                for new in self.after[layer]:
                    if not past >> new & 1:
                        # The frontier moves one edge on, and what lies behind the new layer leaves it.
                        rest = (x for x in frontier if x != layer and not self.ancestors[new] >> x & 1)
                        following[tuple(sorted((*rest, new)))] = None
            for each in following:
                if each not in number:
                    number[each] = len(number)
                    waiting.append(each)
            if len(number) > most:
                return None
            after.append([number[each] for each in following])
        pasts = [0] * len(number)
        for frontier, position in number.items():
            pasts[position] = self._past(tuple(_set_bits(live[position] | sum(1 << x for x in frontier))))
        if not any(past == self.whole for past in pasts):
            return None  # parts that the first source does not lead to: no frontier has seen everything
        names = [f"antichain_{position}" for position in range(len(number))]
        order = _depth_first(after, sorted(range(len(number)), key=names.__getitem__), names)
        place = {position: index for index, position in enumerate(order)}
        before = np.zeros((len(order), len(order)), bool)
        for index in range(len(order) - 1, -1, -1):
            for position in after[order[index]]:
                before[index, place[position]] = True
                before[index] |= before[place[position]]
        return [pasts[position] for position in order], [live[position] for position in order], before


def _build_states(
    profile: LayerProfile, past: list[int], live: list[int], before: Flags, *, linearised: bool
) -> States:
    layers = profile.layers
    activations = [layer.activation for layer in layers]
    return States(
        time=_sum_by_set([layer.time for layer in layers], past),
        forward=_sum_by_set([layer.forward for layer in layers], past),
        activation=_sum_by_set([layer.stored for layer in layers], past),
        parameters=_sum_by_set([layer.parameters for layer in layers], past),
        out=_sum_by_set(activations, live),
        before=before,
        past=tuple(past),
        profile=profile,
        linearised=linearised,
    )


def _sum_by_set(values: list[float], sets: Sequence[int]) -> Floats:
    """The sum of the values of the layers of each set [sets]."""
    return np.array([sum(values[layer] for layer in _set_bits(each)) for each in sets])


def _set_bits(number: int) -> tuple[int, ...]:
    """The positions of the bits that are set, in rising order."""
    found = []
    while number:
        lowest = number & -number
        found.append(lowest.bit_length() - 1)
        number ^= lowest
    return tuple(found)


def _depth_first(after: list[list[int]], roots: Iterable[int], names: list[str] | None = None) -> list[int]:
    """A topological order: depth first, siblings by name, the last one finished first."""

    def siblings(position: int) -> list[int]:
        return sorted(after[position], key=names.__getitem__) if names else sorted(after[position])

    seen: set[int] = set()
    order: list[int] = []
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        stack = [(root, iter(siblings(root)))]
        while stack:
            position, rest = stack[-1]
            for each in rest:
                if each not in seen:
                    seen.add(each)
                    stack.append((each, iter(siblings(each))))
                    break
            else:
                order.append(position)
                stack.pop()
    return order[::-1]
