"""Stage layouts that a space tries at a pipeline degree, and the number of chunks of each.

Source: Megatron-LM, its options for counted layers and its list of layers; the choice among them, stated by us.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from engine.columns.stage_layouts import BALANCED, BOTH_COUNTED, EMBEDDING_COUNTED, EVEN, LOSS_COUNTED
from engine.cost_models.calibrated.physics.pipeline.layouts import (
    BlockPattern,
    LayoutWork,
    blocks_of_chunks,
    chunk_work,
    layout_at,
    problem_of,
)
from engine.cost_models.calibrated.physics.pipeline.pace import is_in_step
from engine.space.space import divisors

__all__ = ["layouts_tried"]

WORTH: Final = 0.995
"""Largest work of the busiest stage of another layout, as a share of the best layout so far, for which it is tried
[dimensionless]. Source: stated by us; measurements do not resolve half a percent."""
OFFERED: Final = (LOSS_COUNTED, BOTH_COUNTED, EMBEDDING_COUNTED, BALANCED)
"""Layouts that are tried without a limit, in addition to even ones."""
FURTHER_CHUNKS: Final = (2, 4)
"""Chunks that a balanced layout is tried with where blocks divide evenly in none."""


@lru_cache(maxsize=4096)
def layouts_tried(
    pattern: BlockPattern, work: LayoutWork, pipeline: int, wanted: tuple[int, ...] | None
) -> tuple[tuple[int, int], ...]:
    """Returns pairs of chunks per stage and a stage layout, the even ones first.

    Without a limit a layout is tried beside others where its busiest stage has less to do than theirs with the same
    chunks, unless stages would wait for each other's longer chunks. With one all those are that it names, but of equal
    ones the first.

    Args:
        pattern: where each kind of block stands in the model.
        work: what blocks and head do.
        pipeline: stages of the pipeline.
        wanted: positions among the words of the field `stage_layout`, in the order of the words; None without a limit.
    """
    blocks = pattern.blocks
    if pipeline == 1:
        return ((1, EVEN),) if wanted is None or EVEN in wanted else ()
    if pipeline > blocks:
        return ()
    even = sorted({v for total in (blocks, blocks + 2) if total % pipeline == 0 for v in divisors(total // pipeline)})
    # With two layers more than blocks every end stage holds one less: a chunk of one block would be empty there.
    even = [v for v in ([] if 1 in even else [1]) + even if v * pipeline <= blocks]
    several = even if len(even) > 1 else [*even, *(v for v in FURTHER_CHUNKS if v * pipeline <= blocks)]
    # As given: positions of lists depend on what else this process has met, and the order decides the ids.
    asked = OFFERED if wanted is None else [layout for layout in wanted if layout != EVEN]
    found = [(v, EVEN) for v in even] if wanted is None or EVEN in wanted else []
    for layout in asked:
        for v in several if layout == BALANCED else _chunks_of(layout, blocks, pipeline):
            if problem_of(pattern, pipeline, v, layout):
                continue
            beside = [other for chunks, other in found if chunks == v]
            if _is_worth_it(pattern, work, (pipeline, v), layout, beside, chosen=wanted is not None):
                found.append((v, layout))
    return tuple(found)


def _chunks_of(layout: int, blocks: int, pipeline: int) -> tuple[int, ...]:
    """Numbers of chunks that a layout may divide into."""
    if layout in (LOSS_COUNTED, BOTH_COUNTED, EMBEDDING_COUNTED):
        per_stage, left = divmod(blocks + (2 if layout == BOTH_COUNTED else 1), pipeline)
        return () if left else tuple(v for v in divisors(per_stage) if v * pipeline <= blocks)
    asked = layout_at(layout)
    if asked.layers:
        chunks, left = divmod(len(asked.layers), pipeline)
        return () if left else (chunks,)
    return divisors(asked.first or asked.last or 1)


def _is_worth_it(
    pattern: BlockPattern, work: LayoutWork, shape: tuple[int, int], layout: int, beside: list[int], *, chosen: bool
) -> bool:
    """Return whether a layout is tried in addition to others with the same number of chunks."""
    if chosen:
        mine = blocks_of_chunks(pattern, *shape, layout, work)
        return all(blocks_of_chunks(pattern, *shape, other, work) != mine for other in beside)
    chunks = [chunk_work(pattern, *shape, each, work) for each in (*beside, layout)]
    busiest = [float(each.sum(axis=0).max()) for each in chunks]
    in_step = shape[1] == 1 or is_in_step(chunks[-1])
    return in_step and (not beside or busiest[-1] <= WORTH * min(busiest[:-1]))
