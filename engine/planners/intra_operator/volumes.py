"""Communication volume of every strategy vector of dense layers on one axis, by collective, as Alpa counts it.

A tensor between contractions is replicated, split by tokens, or split by its last dimension. A contraction wants its
input and gives its result in one of these states; gradients go the same way back. A forward conversion counts twice
where a contraction with a weight uses it, for its result and for the gradient of its weight; a conversion of a gradient
counts once. Norms take the state of what comes before them, and four small all-reduces where that is split by its last
dimension. The gradient of the first layer's input does not exist.

Source: Alpa, cost of collectives with alpha 0 and beta 1 (bytes of a ring; an all-to-all counts half an all-gather).
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd

from engine.executions.arrays import Floats, Ints
from engine.planners.contract import PlanError
from engine.planners.intra_operator.parallel_blocks import ParallelBlock, layer_blocks
from engine.planners.intra_operator.suites import suite_layers

__all__ = ["vector_volumes"]

REPLICATED, TOKENS, LAST = range(3)
WANTS = np.array([REPLICATED, TOKENS, LAST])
GIVES = np.array([LAST, TOKENS, REPLICATED])
GIVES_ATTENTION = np.array([LAST, TOKENS, LAST])
"""A split along the contracted dimension of queries, keys and values is all-reduced and then split by heads."""
NORM_REDUCES = 4


def vector_volumes(model: str, *, batch: int, layers: int, devices: int, element_bytes: int = 4) -> pd.DataFrame:
    """Returns the volume of every strategy vector, the same in all layers, by collective [bytes].

    Args:
        model: a dense one of the suites, such as "gpt F".
        batch: sequences.
        layers: how many.
        devices: on the one axis.
        element_bytes: width of an element [bytes].

    Returns:
        One row per vector: vector, all_reduce, all_gather, all_to_all, volume.

    Raises:
        PlanError: the model has experts, or there is no such model.
    """
    found = suite_layers(model, batch=batch, layers=layers)
    if any(each.name == "experts" for each in found):
        raise PlanError(f"{model} has experts, whose volumes are not counted; take a dense model.")
    if isinstance(devices, bool) or not isinstance(devices, int) or devices < 1:
        raise PlanError(f"{str(devices)[:40]!r} devices; their number is at least 1.")
    blocks = layer_blocks(found[0])
    ids = np.array(list(product(*(range(block.space) for block in blocks))), np.int64)
    share = (devices - 1) / devices
    width = float(element_bytes)
    residual = blocks[0].root.left.elements(found[0].sizes) * width
    tokens = residual / found[0].sizes["h"]
    wants = [WANTS[ids[:, at]] for at in range(4)]
    gives = [(GIVES_ATTENTION if at == 0 else GIVES)[ids[:, at]] for at in range(4)]
    reduce = np.zeros(len(ids))
    gather = np.zeros(len(ids))
    exchange = np.zeros(len(ids))

    def convert(source: Ints, target: Ints, size: float, count: float = 1.0) -> None:
        gather[:] += np.where((source != REPLICATED) & (target == REPLICATED), count * share * size, 0.0)
        both = (source != REPLICATED) & (target != REPLICATED) & (source != target)
        exchange[:] += np.where(both, count * share / 2.0 * size, 0.0)

    for layer in range(layers):
        first = layer == 0
        before = np.zeros(len(ids), np.int64) if first else gives[3]
        states = (before, gives[0], gives[1], gives[2])
        for at, block in enumerate(blocks):
            size, weight, out = _bytes(block, width)
            split = ids[:, at]
            reduce += 2.0 * share * np.where(split == 1, weight, np.where(split == 2, out, 0.0))
            convert(states[at], wants[at], size, 2.0)
            if at or not first:
                reduce += 2.0 * share * np.where(split == 0, size, 0.0)
                convert(wants[at], states[at], size)
        for source, target in ((before, gives[1]), (gives[1], gives[3])):
            convert(source, target, residual)
            if source is not before or not first:
                convert(target, source, residual)
            reduce += np.where(source == LAST, NORM_REDUCES * 2.0 * share * tokens, 0.0)
    return _table(ids, reduce, gather, exchange)


def _table(ids: Ints, reduce: Floats, gather: Floats, exchange: Floats) -> pd.DataFrame:
    return pd.DataFrame({
        "vector": [tuple(int(one) for one in row) for row in ids],
        "all_reduce": reduce, "all_gather": gather, "all_to_all": exchange, "volume": reduce + gather + exchange,
    })  # fmt: skip


def _bytes(block: ParallelBlock, width: float) -> tuple[float, float, float]:
    """Input, weights and results of the contractions with weights [bytes]."""
    weighted = [each.contraction for each in block.members if each.contraction.weight is not None]
    return (
        block.root.left.elements(block.sizes) * width,
        sum(each.right.elements(block.sizes) for each in weighted) * width,
        sum(each.out.elements(block.sizes) for each in weighted) * width,
    )
