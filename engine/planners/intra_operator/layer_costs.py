"""What every strategy vector of a layer costs on one axis: volume by collective, memory, and whether it can be.

A tensor between contractions is replicated, split by tokens, or split by its last dimension. A contraction wants its
input and gives its result in one of these states; gradients go the same way back. A forward conversion counts twice
where a contraction with a weight uses it, for its result and for the gradient of its weight; a conversion of a gradient
counts once. Norms take the state of what comes before them, and four small all-reduces where that is split by its last
dimension. The gradient of the first layer's input does not exist. Experts are reached by conversions of all places.

A layer knows of those before it only the state in which the last one gives its result, so that its costs are one table
per state and one for the first layer.

Source: Alpa, cost of collectives in bytes of a ring; an all-to-all counts half an all-gather.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from engine.executions.arrays import Flags, Floats, Ints
from engine.planners.intra_operator.layer_graphs import LayerGraph
from engine.planners.intra_operator.parallel_blocks import ParallelBlock, layer_blocks

__all__ = ["FIRST", "STATES", "LayerCosts", "Widths", "layer_costs"]

REPLICATED, TOKENS, LAST = range(3)
STATES: Final = 3
FIRST: Final = STATES
"""Where the first layer stands in the tables by the state before."""
REDUCE, GATHER, EXCHANGE = range(3)
BY_EXPERT: Final = 3
WANTS: Final = np.array([REPLICATED, TOKENS, LAST, BY_EXPERT])
GIVES: Final = np.array([LAST, TOKENS, REPLICATED, BY_EXPERT])
GIVES_ATTENTION: Final = np.array([LAST, TOKENS, LAST])
"""A split along the contracted dimension of queries, keys and values is all-reduced and then split by heads."""
NORM_REDUCES: Final = 4
EXPERTS: Final = "experts"


@dataclass(frozen=True, slots=True)
class Widths:
    """Bytes of an element, and of a parameter with gradient and optimizer state; whether gradients and optimizer state
    are split over the axis where the weight is not (ZeRO), which changes no volume; whether scores are kept, which
    fused attention computes again."""

    element: float = 4.0
    parameter: float = 16.0
    zero: bool = False
    scores: bool = True


@dataclass(frozen=True)
class LayerCosts:
    """The vectors of a layer, and arrays along them.

    `volumes` [bytes] and `counts` have the axes state before the layer (and `FIRST`), vector, collective; `gives` is
    the state behind it, `memory` what a device keeps [bytes], `reasons` why a vector cannot be, empty where it can.
    """

    name: str
    vectors: Ints
    gives: Ints
    volumes: Floats
    counts: Floats
    memory: Floats
    reasons: tuple[str, ...]
    flop: float
    first_flop: float

    @property
    def possible(self) -> Flags:
        """Returns which vectors can be."""
        return np.array([not each for each in self.reasons])


class _Account:
    """Volumes and numbers of collectives of all vectors."""

    def __init__(self, vectors: int, devices: int) -> None:
        self.share = (devices - 1) / devices
        self.volumes = np.zeros((vectors, 3))
        self.counts = np.zeros((vectors, 3))

    def reduce(self, where: Flags, size: float, count: float = 1.0) -> None:
        self._add(REDUCE, where, 2.0 * self.share * size, count)

    def convert(self, source: Ints, target: Ints, size: float, count: float = 1.0) -> None:
        split = source != REPLICATED
        self._add(GATHER, split & (target == REPLICATED), self.share * size, count)
        self._add(EXCHANGE, split & (target != REPLICATED) & (source != target), self.share / 2.0 * size, count)

    def _add(self, collective: int, where: Flags, size: float, count: float) -> None:
        if self.share:
            self.volumes[:, collective] += np.where(where, count * size, 0.0)
            self.counts[:, collective] += np.where(where, count, 0.0)


def layer_costs(graph: LayerGraph, devices: int, widths: Widths) -> LayerCosts:
    """Returns what every strategy vector of a layer costs.

    Args:
        graph: a dense layer, or one of experts.
        devices: on the one axis.
        widths: of elements and parameters.
    """
    blocks = layer_blocks(graph)
    ids = np.array(list(product(*(range(block.space) for block in blocks))), np.int64)
    accounts = [_account(graph, ids, blocks, devices, widths.element, state) for state in range(STATES + 1)]
    root = blocks[0].root.left
    spared = sum(each.flop(graph.sizes) for each in graph.contractions if each.left == root)
    return LayerCosts(
        graph.name,
        ids,
        _behind(graph, ids),
        np.stack([each.volumes for each in accounts]),
        np.stack([each.counts for each in accounts]),
        _memory(graph, ids, blocks, devices, widths),
        tuple(_reason(row, blocks, devices) for row in ids),
        3.0 * graph.flop,
        3.0 * graph.flop - spared,
    )


def _account(
    graph: LayerGraph, ids: Ints, blocks: tuple[ParallelBlock, ...], devices: int, width: float, state: int
) -> _Account:
    account = _Account(len(ids), devices)
    first = state == FIRST
    before = np.full(len(ids), REPLICATED if first else state, np.int64)
    residual = blocks[0].root.left.elements(graph.sizes) * width
    tokens = residual / graph.sizes["h"]
    dense = graph.name != EXPERTS
    wants = [WANTS[ids[:, at]] for at in range(4)]
    gives = [(GIVES_ATTENTION if at == 0 else GIVES)[ids[:, at]] for at in range(4)]
    behind = _behind(graph, ids)
    states = (before, gives[0], gives[1], gives[2])
    for at, block in enumerate(blocks[: 4 if dense else 3]):
        size, weight, out = _bytes(block, width)
        split = ids[:, at]
        account.reduce(split == 1, weight)
        account.reduce(split == 2, out)
        account.convert(states[at], wants[at], size, 2.0)
        if at or not first:
            account.reduce(split == 0, size)
            account.convert(wants[at], states[at], size)
    if not dense:
        _experts(account, ids, blocks, gives, residual, width)
    for source, target in ((before, gives[1]), (gives[1], behind)):
        account.convert(source, target, residual)
        if source is not before or not first:
            account.convert(target, source, residual)
        account.reduce(source == LAST, tokens, NORM_REDUCES)
    return account


def _behind(graph: LayerGraph, ids: Ints) -> Ints:
    """The state behind a layer; experts give their results back by groups of tokens."""
    return np.full(len(ids), TOKENS, np.int64) if graph.name == EXPERTS else GIVES[ids[:, 3]]


def _experts(
    account: _Account, ids: Ints, blocks: tuple[ParallelBlock, ...], gives: list[Ints], residual: float, width: float
) -> None:
    """What tokens take on their way to the experts and back: masks and both products with them are split by groups.

    What is converted for an expert is kept for its gradients, so that it counts once forward and once back: a split of
    the experts has four all-to-alls of all places.
    """
    tokens = np.full(len(ids), TOKENS, np.int64)
    logits = blocks[2].root.out.elements(blocks[2].sizes) * width
    for source, target, size in ((gives[2], tokens, logits), (gives[1], tokens, residual)):
        account.convert(source, target, size)
        account.convert(target, source, size)
    up, down = (each.contraction for each in blocks[3].members)
    split = ids[:, 3]
    inside = WANTS[split]
    sent, hidden, back = (each.elements(blocks[3].sizes) * width for each in (up.left, up.out, down.out))
    for size in (sent, back):  # the second product splits the other way round, so that both ends are alike
        account.convert(tokens, inside, size)
        account.convert(inside, tokens, size)
        account.reduce(split == 0, size)
    account.reduce(split == 1, sum(each.weight.elements(blocks[3].sizes) for each in (up, down) if each.weight) * width)
    account.reduce(split == 2, hidden, 2.0)


def _memory(graph: LayerGraph, ids: Ints, blocks: tuple[ParallelBlock, ...], devices: int, widths: Widths) -> Floats:
    """What a device keeps: parameters with their states, the inputs of contractions with weights in the state that they
    want, queries, keys and values, two tensors of scores, and what the activation function reads; of experts also
    their masks and places."""
    found = np.zeros(len(ids))
    for at, block in enumerate(blocks):
        size, weight, out = _bytes(block, widths.element)
        found += _parameters(weight / widths.element, ids[:, at] == 1, devices, widths)
        if at < 3 or graph.name != EXPERTS:
            found += _kept(size, WANTS[ids[:, at]], devices)
        if at == 0:
            scores = next(each.contraction.out for each in block.members if each.contraction.name == "qk")
            both = 2.0 * scores.elements(graph.sizes) * widths.element if widths.scores else 0.0
            found += (out + both) / devices
        if at == 2 and graph.name != EXPERTS:
            found += _kept(out, GIVES[ids[:, at]], devices)
    if graph.name == EXPERTS:
        dispatch, combine = (each.contraction for each in blocks[2].members[1:])
        grouped = sum(each.elements(graph.sizes) for each in (dispatch.left, dispatch.right, combine.right))
        up = blocks[3].root
        sent, hidden = (each.elements(graph.sizes) * widths.element for each in (up.left, up.out))
        split = ids[:, 3]
        found += grouped * widths.element / devices
        found += _kept(sent, WANTS[split], devices)
        found += 2.0 * _kept(hidden, np.where(split == 2, REPLICATED, TOKENS), devices)
    return found


def _parameters(number: float, whole: Flags, devices: int, widths: Widths) -> Floats:
    """Memory of parameters that are split over the devices, or whole on each [bytes]."""
    rest = widths.parameter - widths.element
    apart = widths.element + (rest / devices if widths.zero else rest)
    return np.asarray(number * np.where(whole, apart, widths.parameter / devices))


def _kept(size: float, state: Ints, devices: int) -> Floats:
    return np.where(state == REPLICATED, size, size / devices)


def _bytes(block: ParallelBlock, width: float) -> tuple[float, float, float]:
    """Input, weights and results of the contractions with weights [bytes]."""
    weighted = [each.contraction for each in block.members if each.contraction.weight is not None]
    return (
        block.root.left.elements(block.sizes) * width,
        sum(each.weight.elements(block.sizes) for each in weighted if each.weight is not None) * width,
        sum(each.out.elements(block.sizes) for each in weighted) * width,
    )


WORDS: Final = {"b": "sequences", "a": "heads of keys", "g": "groups", "e": "experts", "f": "columns", "h": "columns"}


def _reason(row: Ints, blocks: tuple[ParallelBlock, ...], devices: int) -> str:
    """Why a vector cannot be: something that it splits is no multiple of the devices."""
    for number, block in zip(row, blocks, strict=True):
        for member in block.members:
            label = member.labels[number]
            dim = member.contraction.split_by(label) or (label,)
            size = block.sizes[label]
            inside = 1 if member.contraction.weight is None or label == "a" else _product(block, dim[1:])
            if size * inside % devices:
                called = WORDS.get(label, "elements")
                return f"{member.contraction.name} splits {size:,} {called}, no multiple of {devices} devices."
    return ""


def _product(block: ParallelBlock, labels: tuple[str, ...]) -> int:
    found = 1
    for label in labels:
        found *= block.sizes[label]
    return found
