"""Numbers of blocks per stage of the model: the rules of a stage layout.

A stage of the model is one chunk of one rank, in the order in which a token passes them. *Even* is the default of
frameworks (`engine.executions.layer_splits.even_cut`): as many everywhere; where blocks + 2
divide and blocks do not, embedding and loss count as layers, so the first and the last chunk hold one block less
(Megatron-LM, `account_for_embedding_in_pipeline_split`); otherwise the remainder goes to the last chunks before the
last one, as they keep the fewest microbatches, and the ends have embedding and head to do. *Balanced* makes the stage
with most work as light as contiguous stages can be, where the head is work of the last, and evens the others out from
the end.

Sources: Megatron-LM, as cited; work of a block and of the head, multiplications per token; balanced, stated by us.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from itertools import accumulate
from math import lcm
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.columns import by_name
from engine.columns.stage_layouts import BALANCED, EVEN, StageLayout, layout_of_word
from engine.cost_models.calibrated.physics.inputs import SIZES, Floats, ModelShapes
from engine.cost_models.calibrated.physics.layers.matrices import (
    attention_weights,
    dense_weights,
    embedding_weights,
    expert_weights,
    router_weights,
    shared_weights,
)
from engine.executions.arrays import Ints, distinct
from engine.executions.layer_splits import LayerSplitError, StageCut, even_cut, split_of
from models import LayerPattern

__all__ = [
    "UNWEIGHED",
    "BlockPattern",
    "LayoutWork",
    "alike",
    "blocks_of_chunks",
    "chunk_work",
    "counted",
    "cut_of",
    "kinds_of_chunks",
    "last_kind",
    "layout_at",
    "pattern_of",
    "patterns_of",
    "problem_of",
    "sizes_of",
    "work_of",
    "works_of",
]

UNIT = 1000.0
"""Units in which the work of the heaviest kind of block is counted [dimensionless]: whole numbers tell rows apart.
Source: stated by us."""


class BlockPattern(NamedTuple):
    """The order of a model's blocks as whole numbers.

    `experts_every` is 0 without experts; `full_every` 0 where no block, 1 where every block attends to everything.
    `predictions` are further blocks like the last, for multi-token prediction, which no layout counts as blocks. With
    `runs` of (kind, number of blocks), those are the order, and the other numbers say nothing.
    """

    blocks: int
    leading_dense: int
    experts_every: int
    full_every: int
    predictions: int = 0
    runs: tuple[tuple[int, int], ...] = ()

    @property
    def sizes(self) -> tuple[tuple[int, ...], ...]:
        """Kinds of blocks, by position, that have equal weights and keep equal activations."""
        if self.runs:
            return tuple((kind,) for kind in range(1 + max(kind for kind, _ in self.runs)))
        return PLAIN_SIZES


class LayoutWork(NamedTuple):
    """Work of the head and of a block of every kind per token, as whole numbers; the largest block is 1,000."""

    head: int
    blocks: tuple[int, ...]


PLAIN_KINDS = 4
"""Kinds of blocks of a model without a pattern [kinds]: dense or with experts, attention to everything or within a
window. Source: the published architectures that `models.Architecture` describes."""
PLAIN_SIZES = ((0, 1), (2, 3))
"""Kinds with equal weights, by position [kinds]. Source: a window changes nothing of what a block keeps."""
UNWEIGHED = LayoutWork(0, ())
"""No head, and blocks of equal work."""


def patterns_of(model: ModelShapes) -> tuple[tuple[BlockPattern, ...], Floats]:
    """Returns the different orders of blocks, and the position of each row's among them [rows].

    Args:
        model: shapes of the models, numbers or arrays [rows].
    """
    if model.pattern is not None:
        runs = tuple((run.block, run.count) for run in model.pattern.runs)
        predictions = int(np.ravel(model.prediction_layers)[0])
        return (BlockPattern(model.pattern.layers, 0, 0, 0, predictions, runs),), np.zeros(())
    told = (
        model.num_blocks,
        model.leading_dense,
        model.experts,
        model.experts_every,
        model.window,
        model.full_attention_every,
        model.prediction_layers,
    )
    if all(np.ndim(each) == 0 for each in told):
        # One model is asked about again and again.
        return (_pattern_of_one(*map(float, told)),), np.zeros(())
    with_experts = np.where(model.experts > 0, model.experts_every, 0.0)
    with_full = np.where(model.window > 0, model.full_attention_every, 1.0)
    found, which, shape = alike(model.num_blocks, model.leading_dense, with_experts, with_full, model.prediction_layers)
    patterns = (
        BlockPattern(blocks, leading, every, full, predictions) for blocks, leading, every, full, predictions in found
    )
    return tuple(patterns), which.reshape(shape).astype(np.float64)


@lru_cache(maxsize=256)
def _pattern_of_one(
    blocks: float, leading: float, experts: float, every: float, window: float, full: float, predictions: float
) -> BlockPattern:
    with_experts, with_full = every if experts > 0 else 0.0, full if window > 0 else 1.0
    return BlockPattern(int(blocks), int(leading), int(with_experts), int(with_full), int(predictions))


def sizes_of(model: ModelShapes) -> tuple[tuple[int, ...], ...]:
    """Returns kinds of blocks, by position, that have equal weights and keep equal activations.

    Args:
        model: shapes of the models, numbers or arrays [rows].
    """
    if model.pattern is None:
        return PLAIN_SIZES
    return tuple((kind,) for kind in range(len(model.pattern.blocks)))


def pattern_of(model: ModelShapes) -> BlockPattern:
    """Returns the order of the blocks of one model.

    Args:
        model: shapes of the model, plain numbers or arrays of one row.
    """
    return patterns_of(model)[0][0]


def works_of(model: ModelShapes) -> tuple[tuple[LayoutWork, ...], Floats]:
    """Returns the different works of blocks and heads, and the position of each row's among them [rows].

    A multiplication per parameter that a token meets, and per element of the scores and values of half the sequence.

    Args:
        model: shapes of the models, numbers or arrays [rows].
    """
    if model.pattern is not None:
        return (_work_of_pattern(model.pattern, float(np.ravel(model.seq_size)[0])),), np.zeros(())
    head, dense, sparse = _work_of_rows(model)
    found, which, shape = alike(head, dense, sparse)
    works = tuple(LayoutWork(head, (dense, dense, sparse, sparse)) for head, dense, sparse in found)
    return works, which.reshape(shape).astype(np.float64)


def work_of(model: ModelShapes) -> LayoutWork:
    """Returns the work of blocks and head of one model.

    Args:
        model: shapes of the model, plain numbers or arrays of one row.
    """
    return works_of(model)[0][0]


def _work_of_rows(model: ModelShapes) -> tuple[Floats, ...]:
    columns = [getattr(model, name) for name in SIZES]
    if all(np.ndim(column) == 0 for column in columns):
        # One model is asked about again and again.
        return _work_of_one(*map(float, columns))
    return _work_of_plain(model)


@lru_cache(maxsize=256)
def _work_of_one(*columns: float) -> tuple[Floats, ...]:
    return _work_of_plain(ModelShapes.of(dict(zip(SIZES, columns, strict=True))))


@lru_cache(maxsize=256)
def _work_of_pattern(pattern: LayerPattern, tokens: float) -> LayoutWork:
    hidden = pattern.hidden
    each = [
        sum(
            sum(product.visited_parameters for product in layer.products(hidden))
            + layer.mixing(hidden, tokens, causal=True).matrix / 2.0
            for layer in block.layers
        )
        for block in pattern.blocks
    ]
    most = max(each)
    blocks = tuple(max(round(UNIT * work / most), 1) for work in each)
    return LayoutWork(round(UNIT * pattern.vocab * hidden / most), blocks)


def _work_of_plain(model: ModelShapes) -> tuple[Floats, ...]:
    scores = model.seq_size / 2.0 * model.attn_heads * (model.attn_size + model.value_size)
    attention = attention_weights(model) + scores
    dense = attention + dense_weights(model)
    active = expert_weights(model) * model.experts_per_token / np.maximum(model.experts, 1.0)
    sparse = attention + active + shared_weights(model) + router_weights(model)
    first = np.maximum(model.leading_dense, model.experts_every - 1.0)
    any_dense = (model.experts == 0) | (np.minimum(first, model.num_blocks) > 0)
    most = np.where(model.experts > 0, np.maximum(np.where(any_dense, dense, 0.0), sparse), dense)
    return tuple(np.round(UNIT * each / most) for each in (embedding_weights(model), dense, sparse))


def alike(*columns: Floats) -> tuple[list[tuple[int, ...]], npt.NDArray[np.intp], tuple[int, ...]]:
    """Return the distinct combinations of whole numbers, the combination of each row, and the shape of the rows.

    Args:
        columns: whole numbers, plain or arrays that broadcast to [rows].
    """
    shape = np.broadcast_shapes(*(np.shape(column) for column in columns))
    # Plain numbers tell no rows apart, and most models come as plain numbers.
    telling = [position for position, column in enumerate(columns) if np.size(column) != 1]
    spread = [np.broadcast_to(columns[position], shape).ravel().astype(np.int64) for position in telling]
    first, which = distinct(*spread) if spread else (np.zeros(1, np.intp), np.zeros(1, np.intp))
    keys = [[int(number) for number in np.ravel(column)[:1]] * len(first) for column in columns]
    for position, column in zip(telling, spread, strict=True):
        keys[position] = column[first].tolist()
    return list(zip(*keys, strict=True)), which, shape


def layout_at(position: int) -> StageLayout:
    """Returns the stage layout at a position among the words of the field.

    Args:
        position: as arrays of executions hold it.
    """
    return layout_of_word(by_name("stage_layout").words[position])


@lru_cache(maxsize=8192)
def blocks_of_chunks(
    pattern: BlockPattern, stages: int, chunks: int, layout: int = EVEN, work: LayoutWork = UNWEIGHED
) -> tuple[int, ...]:
    """Returns how many blocks every stage of the model holds [stages x chunks] [blocks].

    Args:
        pattern: where each kind of block stands in the model.
        stages: stages of the pipeline.
        chunks: chunks of each stage.
        layout: position among the words of the field `stage_layout`.
        work: what blocks and head do, which the balanced layout reads.

    Raises `engine.executions.layer_splits.LayerSplitError` where the layout does not divide these blocks.
    """
    slots = stages * chunks
    if layout == BALANCED:
        return _balanced_blocks(pattern, slots, work)
    if layout != EVEN:
        return split_of(layout_at(layout), pattern.blocks, stages, chunks)
    return even_cut(pattern.blocks, slots)


def cut_of(model: ModelShapes, stages: int, chunks: int, layout: int) -> StageCut:
    """Returns the blocks and prediction layers of every stage of one model.

    Args:
        model: shapes of the model, plain numbers.
        stages: stages of the pipeline.
        chunks: chunks of each stage.
        layout: position among the words of the field `stage_layout`.

    Raises `engine.executions.layer_splits.LayerSplitError` as `kinds_of_chunks` does.
    """
    pattern, work = pattern_of(model), work_of(model)
    blocks = blocks_of_chunks(pattern, stages, chunks, layout, work)
    everything = kinds_of_chunks(pattern, stages, chunks, layout, work).sum(axis=0)
    return StageCut(blocks, tuple(int(each) for each in everything - np.array(blocks)))


@lru_cache(maxsize=8192)
def kinds_of_chunks(
    pattern: BlockPattern, stages: int, chunks: int, layout: int = EVEN, work: LayoutWork = UNWEIGHED
) -> npt.NDArray[Any]:
    """Return the number of blocks of every kind in every stage of the model, including the blocks of prediction layers
    [kinds, stages x chunks] [blocks].

    A list places prediction layers; otherwise they are on the last stage.

    Args:
        pattern: order of the kinds of blocks in the model.
        stages: stages of the pipeline.
        chunks: chunks of each stage.
        layout: position among the words of the field `stage_layout`.
        work: work of blocks and head, read by the balanced layout.

    Raises `engine.executions.layer_splits.LayerSplitError` if the layout does not divide these blocks, or lists a wrong
    number of prediction layers.
    """
    sizes = blocks_of_chunks(pattern, stages, chunks, layout, work)
    found = np.diff(counted(pattern, np.cumsum([0, *sizes])), axis=1)
    if pattern.predictions:
        found = found + last_kind(pattern)[:, None] * np.array(_prediction_layers(pattern, len(sizes), layout))
    found.setflags(write=False)
    return found


def last_kind(pattern: BlockPattern) -> npt.NDArray[Any]:
    """Returns which kind of block the last one is, 1 for that and 0 for others [kinds] [blocks].

    Args:
        pattern: where each kind of block stands in the model.
    """
    return np.diff(counted(pattern, np.array([pattern.blocks - 1, pattern.blocks])), axis=1)[:, 0]


def _prediction_layers(pattern: BlockPattern, slots: int, layout: int) -> tuple[int, ...]:
    """Return the prediction layers of every stage of the model."""
    listed = layout_at(layout)
    if not listed.layers:
        return (*[0] * (slots - 1), pattern.predictions)
    if sum(listed.predictions) != pattern.predictions:
        raise LayerSplitError(
            f"it lists {sum(listed.predictions)} prediction layers, m, and the model trains {pattern.predictions}"
        )
    return listed.predictions


def counted(pattern: BlockPattern, layers: Ints) -> npt.NDArray[Any]:
    """Return the number of blocks of every kind among the first `layers` [kinds, layers] [blocks].

    Args:
        pattern: order of the kinds of blocks in the model.
        layers: numbers of blocks from the beginning [layers].
    """
    if pattern.runs:
        return _count_runs(pattern, layers)
    leading, every, full = pattern.leading_dense, pattern.experts_every, pattern.full_every
    none = np.zeros_like(layers)

    def multiples(step: int, after: int) -> Ints:
        return layers // step - np.minimum(layers, after) // step if step else none

    experts, everything = multiples(every, leading), multiples(full, 0)
    both = multiples(lcm(every, full), leading)
    return np.array([everything - both, layers - everything - experts + both, both, experts - both])


def _count_runs(pattern: BlockPattern, layers: Ints) -> npt.NDArray[Any]:
    """Return the blocks of every kind among the first `layers` of a model whose runs are known [kinds, layers]."""
    kinds, counts = np.array(pattern.runs).T
    # Blocks of every kind before each run, and the run that each number of layers ends in.
    held = np.zeros((len(pattern.sizes), len(kinds) + 1), np.int64)
    held[kinds, np.arange(1, len(kinds) + 1)] = counts
    before, starts = held.cumsum(axis=1), np.cumsum([0, *counts])
    last = np.clip(np.searchsorted(starts, layers, side="right") - 1, 0, len(kinds) - 1)
    found: npt.NDArray[Any] = before[:, last]
    np.add.at(found, (kinds[last], np.arange(len(layers))), layers - starts[last])
    return found


def chunk_work(pattern: BlockPattern, stages: int, chunks: int, layout: int, work: LayoutWork) -> npt.NDArray[Any]:
    """Returns what every chunk of every stage does for a token, with chunks in a loop [chunks, stages].

    Args:
        pattern: where each kind of block stands in the model.
        stages: stages of the pipeline.
        chunks: chunks of each stage.
        layout: position among the words of the field `stage_layout`.
        work: what blocks and head do.
    """
    kinds = kinds_of_chunks(pattern, stages, chunks, layout, work)
    each = _weights_of(work, len(kinds)) @ kinds
    each[-1] += work.head * (1 + pattern.predictions)
    return np.asarray(each.reshape(chunks, stages), np.float64)


def _weights_of(work: LayoutWork, kinds: int) -> npt.NDArray[np.int64]:
    """Return the work of a block of every kind, equal where none is known [kinds]."""
    return np.array(work.blocks or (int(UNIT),) * kinds, np.int64)


def _balanced_blocks(pattern: BlockPattern, slots: int, work: LayoutWork) -> tuple[int, ...]:
    """Return the blocks of every stage that minimise the work of the busiest stage; every stage but the last has at
    least one."""
    if pattern.blocks < slots:
        raise LayerSplitError(f"{pattern.blocks} blocks are too few for {slots} stages of the model")
    kinds = np.diff(counted(pattern, np.arange(pattern.blocks + 1)), axis=1)
    if pattern.predictions:
        # To divide the blocks, prediction layers are more of the head.
        block = int(_weights_of(work, len(kinds)) @ last_kind(pattern))
        work = work._replace(head=work.head + pattern.predictions * (block + work.head))
    each = (_weights_of(work, len(kinds)) @ kinds).tolist()
    before = [0, *accumulate(each)]
    low, high = max(*each, work.head), before[-1] + work.head
    while low < high:
        middle = (low + high) // 2
        if _stages_needed(before, middle)[_blocks_left(before, middle - work.head, slots)] <= slots - 1:
            high = middle
        else:
            low = middle + 1
    needed, left, sizes = _stages_needed(before, low), pattern.blocks, []
    for slot in range(slots - 1, -1, -1):
        extra = work.head if slot == slots - 1 else 0
        share = (before[left] + extra) / (slot + 1)
        # The fewest blocks with as much work as the mean of what is left, of those that leave the others enough room.
        start = bisect_left([extra + before[left] - before[left - number] for number in range(left + 1)], share)
        number = max(min(start, left - slot), 0 if extra else 1)
        while number > 0 and extra + before[left] - before[left - number] > low:
            number -= 1
        while slot and needed[left - number] > slot:
            number += 1
        number = left if slot == 0 else number
        sizes.append(number)
        left -= number
    return tuple(reversed(sizes))


def _stages_needed(before: list[int], most: int) -> list[int]:
    """Return the number of stages of at most `most` work that the first blocks need, by the number of blocks."""
    found, start = [0], 0
    for end in range(1, len(before)):
        while before[end] - before[start] > most:
            start += 1
        found.append(found[start] + 1)
    return found


def _blocks_left(before: list[int], room: int, slots: int) -> int:
    """Return the number of blocks left for the other stages when the last one takes as many as fit into its room."""
    blocks = len(before) - 1
    most = blocks - (slots - 1)
    number = 0
    while number < most and before[blocks] - before[blocks - number - 1] <= room:
        number += 1
    return blocks - number


@lru_cache(maxsize=8192)
def problem_of(pattern: BlockPattern, stages: int, chunks: int, layout: int) -> str:
    """Returns why a stage layout does not divide the blocks of a model, as the end of a sentence; empty where it does.

    Args:
        pattern: where each kind of block stands in the model.
        stages: stages of the pipeline.
        chunks: chunks of each stage.
        layout: position among the words of the field `stage_layout`.
    """
    if layout == EVEN:
        return ""
    try:
        kinds_of_chunks(pattern, stages, chunks, layout)
    except LayerSplitError as error:
        return str(error).rstrip(".")
    return ""
