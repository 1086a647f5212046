"""Microbatches through the pipeline: every stage's time from the blocks it holds, and what offloading adds to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from engine.calibrated.block import BlockTimes, blocks
from engine.calibrated.collectives import Tier, collective
from engine.calibrated.head import Ends, ends
from engine.calibrated.inputs import Case, Floats
from engine.calibrated.parameters import Parameters
from engine.calibrated.pipeline import Passes, message_time, messages_time, passes
from engine.calibrated.rates import Rates, sustained_rates
from engine.calibrated.sharding import EMBEDDING_GATHERS, Gathers, data_tiers, layer_gathers
from engine.calibrated.stages import KINDS, Kind, Stage, blocks_by_kind, slowest_stages
from engine.calibrated.weights import local_weights

__all__ = [
    "BLOCK_FIELDS", "BlockLevel", "Flow", "OffloadedFlow", "block_level", "largest", "of_kinds", "offloaded_flow",
    "pipeline_flow",
]  # fmt: skip

BLOCK_FIELDS = (
    "tensor_par", "context_par", "expert_par", "expert_tensor_par", "microbatch_size", "sequence_par", "linear_bits",
    "recompute", "recompute_share",
)  # fmt: skip
"""Fields of a layout that `BlockLevel.kinds` depends on; `.ends` also on whether there is a pipeline."""


@dataclass(frozen=True, slots=True)
class BlockLevel:
    """Seconds per microbatch [s]: a block of every kind that there is, and the ends of the model."""

    kinds: Mapping[Kind, BlockTimes]
    ends: Ends

    @property
    def heaviest(self) -> Kind:
        """The kind of block that has most to do: experts and attention to everything where there are such."""
        return max(self.kinds, key=lambda kind: (kind.experts, not kind.windowed))

    def take(self, index: npt.NDArray[np.intp]) -> BlockLevel:
        """The figures of the keys at `index`, for executions that share them."""
        kinds = {kind: block.take(index) for kind, block in self.kinds.items()}
        return BlockLevel(kinds, Ends(*(end[index] for end in self.ends)))

    def together(self) -> BlockLevel:
        """Forward and backward as one: all that `running_seconds` reads where weights are not gathered."""
        return BlockLevel({kind: block.together() for kind, block in self.kinds.items()}, self.ends)


def block_level(case: Case, p: Parameters) -> BlockLevel:
    """Blocks and ends of every row [s]. A kind of block that a row does not have takes 0 s where another row has it."""
    rates = sustained_rates(case.accelerator, case.software.age_years, p)
    present = [kind for kind, number in zip(KINDS, blocks_by_kind(case.model), strict=True) if np.any(number > 0)]
    both = ends(case, rates, p)
    if np.all(case.model.experts > 0) or not any(kind.experts for kind in present):
        return BlockLevel(blocks(case, rates, p, present), both)
    # Formulas of experts do not hold where there are none.
    found = blocks(case, rates, p, [kind for kind in present if not kind.experts])
    shape = np.broadcast_shapes(np.shape(next(iter(found.values())).forward), np.shape(both.head))
    rows = np.flatnonzero(np.broadcast_to(case.model.experts > 0, shape))
    part = case.take(rows)
    there = sustained_rates(part.accelerator, part.software.age_years, p)
    for kind, block in blocks(part, there, p, [kind for kind in present if kind.experts]).items():
        spread = []
        for field in fields(BlockTimes):
            values = np.zeros(shape)
            values[rows] = getattr(block, field.name)
            spread.append(values)
        found[kind] = BlockTimes(*spread)
    return BlockLevel(found, both)


@dataclass(frozen=True, slots=True)
class Flow:
    """Microbatches through the pipeline, arrays [rows]: `running` is the seconds of all of them [s].

    Per stage that may be the slowest: its blocks, what its ends add per microbatch [s], how long it waits for messages
    [s], and all of its time per microbatch [s]. `slowest` and `total` are the slowest of them and the sum over all
    stages [s], `critical` says which is the slowest. `gathers` are of one block of each kind.
    """

    stages: tuple[Stage, ...]
    edges: tuple[Floats, ...]
    waits: tuple[Floats, ...]
    times: tuple[Floats, ...]
    gathers: Mapping[Kind, Gathers]
    embedding_gather: Floats
    message: Floats
    slowest: Floats
    total: Floats
    critical: npt.NDArray[np.intp]
    path: Passes
    running: Floats

    def of_slowest(self, values: Sequence[Floats]) -> Floats:
        """Each row's value of its slowest stage, of arrays by stage [rows]."""
        found = values[0]
        for number, value in enumerate(values[1:], 1):
            found = np.where(self.critical == number, value, found)
        return found


def pipeline_flow(case: Case, level: BlockLevel, p: Parameters) -> Flow:
    """All microbatches of every row through the pipeline from its blocks [s]."""
    layout, software = case.layout, case.software
    rates = sustained_rates(case.accelerator, software.age_years, p)
    message = message_time(case, rates, p)
    sharded = np.any(layout.fully_sharded)
    tiers = data_tiers(case, rates, layout.data_par * layout.context_par) if sharded else ()
    gathers = _gathers(case, level, rates, p, tiers)
    per = {
        kind: block.forward + block.backward + gathers[kind].forward + gathers[kind].backward
        for kind, block in level.kinds.items()
    }
    gather: Floats = np.zeros(())
    if sharded:
        vocabulary = software.gather_bytes * local_weights(case).vocabulary
        gather = EMBEDDING_GATHERS * collective(vocabulary, tiers, p, passes=1.0)
        gather = np.where(layout.fully_sharded > 0, gather, 0.0)
    one = layout.pipeline_par == 1
    none: Floats = np.zeros(())
    stages = slowest_stages(case)
    inner = len(stages) - 2
    edges = (
        level.ends.embedding + np.where(one, level.ends.head, 0.0) + gather,
        level.ends.head + np.where(one, level.ends.embedding, 0.0) + gather,
        *[none] * inner,
    )
    # Stages between others wait for messages on both sides, the first and the last on one.
    blocking = (layout.pipeline_interleaving == 1) & (software.overlap_pipeline == 0)
    wait = np.where(blocking, software.messages * message, 0.0)
    waits = (wait / 2.0, wait / 2.0, *(np.where(stage.position > 0, wait, 0.0) for stage in stages[2:]))
    times = tuple(
        of_kinds(stage.blocks, per) + edge + late for stage, edge, late in zip(stages, edges, waits, strict=True)
    )
    slowest, critical = times[0], np.zeros(np.shape(times[0]), np.intp)
    for number, time in enumerate(times[1:], 1):
        critical = np.where(time > slowest, number, critical)
        slowest = np.maximum(slowest, time)
    ends_of_all = level.ends.embedding + level.ends.head + gather * np.where(one, 1.0, 2.0)
    total = of_kinds(blocks_by_kind(case.model), per) + ends_of_all
    total = _whole(case, total + wait * (layout.pipeline_par - 1.0), slowest)
    path = passes(case)
    running = path.seconds(slowest, total) + messages_time(case, message)
    return Flow(stages, edges, waits, times, gathers, gather, message, slowest, total, critical, path, running)


def _whole(case: Case, total: Floats, slowest: Floats) -> Floats:
    """The sum over stages [s]; a stage alone waits for nobody, not even for what rounding leaves."""
    return np.where(case.layout.pipeline_par == 1, slowest, np.maximum(total, slowest))


def of_kinds(numbers: Sequence[Floats], each: Mapping[Kind, Floats]) -> Floats:
    """The sum over kinds of so many blocks times a figure of each."""
    found: Floats | None = None
    for kind, number in zip(KINDS, numbers, strict=True):
        if kind in each and (np.ndim(number) or number > 0):
            found = number * each[kind] if found is None else found + number * each[kind]
    return np.zeros(()) if found is None else found


def _gathers(case: Case, level: BlockLevel, rates: Rates, p: Parameters, tiers: Sequence[Tier]) -> dict[Kind, Gathers]:
    local = local_weights(case)
    return {
        kind: layer_gathers(
            case, rates, p, tiers, local.sparse if kind.experts else local.dense, block.forward, block.backward,
            local.experts if kind.experts else None,
        )
        for kind, block in level.kinds.items()
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class OffloadedFlow:
    """Weights or kept activations through the link to the second memory tier, arrays [rows].

    `forward` and `backward` are what it adds to a step [s], `slowest` the slowest stage with it, per microbatch [s],
    `bandwidth` the rate of the link that would add nothing [bytes/s], infinite where nothing can hide it.
    """

    forward: Floats
    backward: Floats
    slowest: Floats
    bandwidth: Floats


def offloaded_flow(
    case: Case,
    level: BlockLevel,
    flow: Flow,
    *,
    weights: tuple[Floats, Floats],
    activations: tuple[Floats, Floats],
    rate: float,
) -> OffloadedFlow:
    """What moving weights and activations block by block adds to a pipeline.

    A block takes as long as its computation or its transfers, whichever is longer, in either direction of the pass; so
    a quicker processor or a quicker link never makes a step longer.

    Args:
        weights, activations: bytes per microbatch that go through the link for a dense block, and for one with
            experts [bytes]; 0 where they are not offloaded.
        rate: rate of the link per direction [bytes/s].
    """
    forwards, backwards, both, needed = {}, {}, {}, np.zeros(())
    for kind, block in level.kinds.items():
        there, kept = weights[kind.experts], activations[kind.experts]
        computing = block.forward + flow.gathers[kind].forward, block.backward + flow.gathers[kind].backward
        # Forward weights come while activations go, so that the larger counts; backward both come.
        moved = np.maximum(there, kept), there + kept
        late = [np.maximum(size / rate - hidden, 0.0) for size, hidden in zip(moved, computing, strict=True)]
        forwards[kind], backwards[kind] = late
        both[kind] = late[0] + late[1]
        with np.errstate(divide="ignore", invalid="ignore"):
            needed = np.fmax(needed, np.fmax(moved[0] / computing[0], moved[1] / computing[1]))
    times = [time + of_kinds(stage.blocks, both) for time, stage in zip(flow.times, flow.stages, strict=True)]
    slowest, everywhere = largest(times), blocks_by_kind(case.model)
    late_whole = of_kinds(everywhere, both)
    total = _whole(case, flow.total + late_whole, slowest)
    added = flow.path.seconds(slowest - flow.slowest, total - flow.total)
    share = of_kinds(everywhere, forwards) / np.where(late_whole > 0, late_whole, 1.0)
    return OffloadedFlow(added * share, added * (1.0 - share), slowest, np.asarray(needed))


def largest(values: Sequence[Floats]) -> Floats:
    """The largest of several arrays, row by row."""
    found = values[0]
    for value in values[1:]:
        found = np.maximum(found, value)
    return found
