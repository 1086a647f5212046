"""Microbatches through the pipeline: every stage's time from the blocks it holds, and what offloading adds to it.

Sources: the slowest stage sets the pace, the calibration study on 1,147 measured rows; which stages there are,
Narayanan et al. 2021 (arXiv:2104.04473, section 2.2); what offloading adds, stated by us after Calculon 0.1.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.cost_models.calibrated.physics.adapters import local_adapters
from engine.cost_models.calibrated.physics.case_cache import once_per_case
from engine.cost_models.calibrated.physics.communication.collectives import Tier, collective
from engine.cost_models.calibrated.physics.communication.sharding import (
    Gathers,
    data_hops,
    data_tiers,
    embedding_gathers,
    layer_gathers,
)
from engine.cost_models.calibrated.physics.inputs import Case, Floats
from engine.cost_models.calibrated.physics.layers.block import BlockTimes, blocks
from engine.cost_models.calibrated.physics.layers.head import Ends, end_shares, ends
from engine.cost_models.calibrated.physics.layers.pattern_blocks import pattern_blocks
from engine.cost_models.calibrated.physics.layers.rates import SustainedRates, sustained_rates
from engine.cost_models.calibrated.physics.parameters import Parameters
from engine.cost_models.calibrated.physics.pipeline.schedules import INTERLEAVED, PAIRED, SPLIT, among
from engine.cost_models.calibrated.physics.pipeline.stages import (
    BOTH,
    ENDS,
    TURN,
    BlockKind,
    StageBlocks,
    blocks_by_kind,
    kinds_of,
    placement_of,
    slowest_stages,
)
from engine.cost_models.calibrated.physics.pipeline.unequal_stages import (
    Load,
    StageCriticalPath,
    critical_path,
    message_time,
    messages_time,
    pairs_per_stage,
)
from engine.cost_models.calibrated.physics.weights import local_weights

__all__ = [
    "BLOCK_FIELDS",
    "BlockLevel",
    "Flow",
    "OffloadedFlow",
    "block_level",
    "largest",
    "of_kinds",
    "offloaded_flow",
    "pipeline_flow",
    "separation_time",
]

BLOCK_FIELDS = (
    "tensor_par",
    "context_par",
    "expert_par",
    "expert_tensor_par",
    "microbatch_size",
    "sequence_par",
    "linear_bits",
    "linear_format",
    "recompute",
    "recompute_share",
    "recompute_modules",
)
"""Fields of a layout that `BlockLevel.kinds` depends on; `.ends` also on whether there is a pipeline."""


@dataclass(frozen=True, slots=True)
class BlockLevel:
    """Seconds per microbatch [s]: a block of every kind of the model, and the ends of the model."""

    kinds: Mapping[BlockKind, BlockTimes]
    ends: Ends

    @property
    def heaviest(self) -> BlockKind:
        """Return the kind of block with most work: with experts and full attention, if the model has them."""
        return max(self.kinds, key=lambda kind: (kind.experts, not kind.windowed, -kind.position))

    def take(self, index: npt.NDArray[np.intp]) -> BlockLevel:
        """Returns the figures of the keys at `index`, for executions that share them [s]."""
        kinds = {kind: block.take(index) for kind, block in self.kinds.items()}
        return BlockLevel(kinds, Ends(*(end[index] for end in self.ends)))

    def together(self) -> BlockLevel:
        """Returns forward and backward as one: all that `running_seconds` reads where weights are not gathered [s]."""
        return BlockLevel({kind: block.together() for kind, block in self.kinds.items()}, self.ends)


def block_level(case: Case, p: Parameters) -> BlockLevel:
    """Returns the blocks and ends of every row [rows] [s]; 0 s for a kind of block that only other rows have.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        p: parameters of a calibration.
    """
    rates = sustained_rates(case.accelerator, case.software.age_years, p)
    numbers = zip(kinds_of(case.model), _model_blocks(case), strict=True)
    present = [kind for kind, number in numbers if np.any(number > 0)]
    both = ends(case, rates, p)
    if case.model.pattern is not None:
        return BlockLevel(pattern_blocks(case, rates, p, present), both)
    if np.all(case.model.experts > 0) or not any(kind.experts for kind in present):
        return BlockLevel(blocks(case, rates, p, present), both)
    # Formulas of experts do not hold where there are none.
    found = blocks(case, rates, p, [kind for kind in present if not kind.experts])
    shape = np.broadcast_shapes(np.shape(next(iter(found.values())).forward), np.shape(both.head))
    rows, part = _with_experts(case)
    there = sustained_rates(part.accelerator, part.software.age_years, p)
    for kind, block in blocks(part, there, p, [kind for kind in present if kind.experts]).items():
        spread = []
        for field in fields(BlockTimes):
            values = np.zeros(shape)
            values[rows] = getattr(block, field.name)
            spread.append(values)
        found[kind] = BlockTimes(*spread)
    return BlockLevel(found, both)


@once_per_case
def _model_blocks(case: Case) -> tuple[Floats, ...]:
    """Return the blocks of every kind of the whole model."""
    return blocks_by_kind(case.model)


@once_per_case
def _with_experts(case: Case) -> tuple[npt.NDArray[np.intp], Case]:
    """The rows whose model has experts, and a case of them alone."""
    rows = np.flatnonzero(case.model.experts > 0)
    part = case.take(rows)
    return rows, part if case.known is None else part.remembering()


@dataclass(frozen=True, slots=True)
class Flow:
    """All microbatches through the pipeline, arrays [rows].

    Per stage that may be the slowest: its blocks, the time of its ends per microbatch [s], its wait for messages
        [s], and its load per microbatch. `total` is the sum over all stages. The slowest stage is the one on the
        longest `path`. `gathers` are of one block of each kind; `messages` is the time of messages in addition to the
        path [s].
    """

    case: Case
    stages: tuple[StageBlocks, ...]
    edges: tuple[Floats, ...]
    waits: tuple[Floats, ...]
    loads: tuple[Load, ...]
    total: Load
    gathers: Mapping[BlockKind, Gathers]
    embedding_gather: Floats
    message: Floats
    path: StageCriticalPath
    messages: Floats

    @property
    def running(self) -> Floats:
        """Seconds of all microbatches [s]."""
        return self.path.seconds + self.messages

    @property
    def slowest(self) -> Floats:
        """Seconds per microbatch of the slowest stage, overlapped pairs as such [s]."""
        return busiest_stage_time(self.loads)

    @property
    def saved(self) -> Floats:
        """Seconds that overlapped pairs save of all microbatches of the slowest stage [s]."""
        layout = self.case.layout
        if not np.any(layout.schedule > INTERLEAVED):
            return np.zeros(())
        return pairs_per_stage(self.case) * self.of_slowest([load.saved for load in self.loads])

    def of_slowest(self, values: Sequence[Floats]) -> Floats:
        """Returns each row's value of its slowest stage, of `values` by stage [rows]."""
        found = values[0]
        for number, value in enumerate(values[1:], 1):
            found = np.where(self.path.critical == number, value, found)
        return found


def busiest_stage_time(loads: Sequence[Load]) -> Floats:
    """Return the seconds per microbatch of the busiest stage, with overlapped pairs [rows] [s].

    Args:
        loads: loads of the stages [rows] [s].
    """
    return largest([load.whole - load.saved if np.ndim(load.saved) else load.whole for load in loads])


def pipeline_flow(case: Case, level: BlockLevel, p: Parameters, *, split: bool = True) -> Flow:
    """Return the flow of all microbatches of every row through the pipeline, from its blocks [rows] [s].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        level: blocks and ends of every row [s].
        p: parameters of a calibration.
        split: whether `level` has forward and backward separately; otherwise an upper bound over all splits.
    """
    layout, software = case.layout, case.software
    rates = sustained_rates(case.accelerator, software.age_years, p)
    message = message_time(case, rates, p)
    sharded = np.any(layout.fully_sharded)
    tiers = data_tiers(case, rates) if sharded else ()
    gathers = _block_gathers(case, level, rates, p, tiers, split=split)
    # Time of a block per microbatch, with the part of its weight gathers that shows.
    per = _whole_blocks(case, level, gathers, split=split)
    gather: Floats = np.zeros(())
    if sharded:
        vocabulary = software.gather_bytes * local_weights(case).vocabulary
        # The vocabulary matrix is gathered like a block, but whole and without anything to hide behind.
        gather = embedding_gathers(case) * collective(vocabulary, tiers, p, passes=1.0, hops=data_hops(case))
        gather = np.where(layout.fully_sharded > 0, gather, 0.0)
    one = layout.pipeline_par == 1
    none: Floats = np.zeros(())
    stages = slowest_stages(case)
    edges = (*_edge_times(case, level, gather), *[none] * (len(stages) - ENDS))
    # Stages between others wait for messages on both sides, the first and the last on one.
    blocking = (layout.pipeline_interleaving == 1) & (software.overlap_pipeline == 0)
    wait = np.where(blocking, software.messages * message, 0.0)
    waits = (wait / 2.0, wait / 2.0, *(np.where(stage.position > 0, wait, 0.0) for stage in stages[ENDS:]))
    times = tuple(
        of_kinds(stage.blocks, per) + edge + late for stage, edge, late in zip(stages, edges, waits, strict=True)
    )
    everywhere = _model_blocks(case)
    ends_of_all = level.ends.embedding + level.ends.head + gather * np.where(one, 1.0, 2.0)
    # Sum over all stages, which fills and drains the pipeline.
    total = of_kinds(everywhere, per) + ends_of_all + wait * (layout.pipeline_par - 1.0)
    parts = _Parts(case, level, gathers, per, split)
    loads = tuple(
        parts.load(number, stage.blocks, time, edge, late, before)
        for number, (stage, time, edge, late, before) in enumerate(
            zip(stages, times, edges, waits, _times_before(stages, per, times, edges, wait, total), strict=True)
        )
    )
    of_all = parts.load(None, everywhere, total, ends_of_all, wait * (layout.pipeline_par - 1.0), Before(none))
    path = critical_path(case, loads, of_all, [stage.position for stage in stages], message, split=split)
    shown = messages_time(case, message, least=not split)
    return Flow(case, stages, edges, waits, loads, of_all, gathers, gather, message, path, shown)


def separation_time(case: Case, block: BlockTimes) -> Floats:
    """Return how much longer a backward pass takes whose gradients of weights have a pass of their own [rows] [s].

    The launches of one pass then hide nothing of the other's; 0 for schedules that do not separate them.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        block: a block with forward and backward known separately [s].
    """
    separate = among(case.layout.schedule, SPLIT)
    if not separate.any():
        return np.zeros(())
    return np.where(separate, block.input_gradient + block.weight_gradient - block.backward, 0.0)


def _whole_blocks(
    case: Case, level: BlockLevel, gathers: Mapping[BlockKind, Gathers], *, split: bool
) -> dict[BlockKind, Floats]:
    """Return the time of a block of every kind, forward and backward with its gathers [s]."""
    found = {
        kind: block.forward + block.backward + gathers[kind].forward + gathers[kind].backward
        for kind, block in level.kinds.items()
    }
    if split and among(case.layout.schedule, SPLIT).any():
        found = {kind: each + separation_time(case, level.kinds[kind]) for kind, each in found.items()}
    return found


def _edge_times(case: Case, level: BlockLevel, gather: Floats) -> tuple[Floats, Floats]:
    """Return the time per microbatch that the ends of the model add to the first and the last stage [s]."""
    embedding, head, one = level.ends.embedding, level.ends.head, case.layout.pipeline_par == 1
    first = embedding + np.where(one, head, 0.0) + gather
    last = head + np.where(one, embedding, 0.0) + gather
    placement = placement_of(case)
    if placement.any():
        turned, both = (placement == TURN) & ~one, (placement == BOTH) & ~one
        half = (embedding + head) / 2.0 + gather
        first = np.where(turned, embedding + head + 2.0 * gather, np.where(both, half, first))
        last = np.where(turned, 0.0, np.where(both, half, last))
    return first, last


def _times_before(
    stages: Sequence[StageBlocks],
    per: Mapping[BlockKind, Floats],
    times: Sequence[Floats],
    edges: Sequence[Floats],
    wait: Floats,
    total: Floats,
) -> tuple[Before, ...]:
    """Return the work per microbatch of all stages before each of these stages."""
    between = []
    for stage in stages[ENDS:]:
        late = wait * np.maximum(stage.position - 0.5, 0.0)
        between.append(Before(of_kinds(stage.before, per) + edges[0] + late, stage.before, edges[0], late))
    return (Before(np.zeros(())), Before(total - times[1]), *between)


class Before(NamedTuple):
    """Work per microbatch of all stages before one: all of it [s]; and, of stages between the ends, the blocks, the end
    of the model [s] and the waits for messages [s] that it consists of."""

    whole: Floats
    blocks: Sequence[Floats] | None = None
    edge: Floats = np.zeros(())
    late: Floats = np.zeros(())


class _Parts:
    """Parts of the blocks of a stage: forward, gradients of weights, and time saved by overlapped pairs."""

    def __init__(
        self,
        case: Case,
        level: BlockLevel,
        gathers: Mapping[BlockKind, Gathers],
        whole: Mapping[BlockKind, Floats],
        split: bool,
    ) -> None:
        schedule = case.layout.schedule
        self._of_ends = end_shares(case)
        further = bool(np.any(schedule > INTERLEAVED))
        self._split = further and split and bool(among(schedule, SPLIT).any())
        self._staged = split and bool(np.any(case.layout.pipeline_par > 1))
        self._forward = {kind: block.forward + gathers[kind].forward for kind, block in level.kinds.items()}
        self._weights = {kind: block.weight_gradient + gathers[kind].weights for kind, block in level.kinds.items()}
        self._saved = None
        paired = among(schedule, PAIRED)
        if further and paired.any():
            self._saved = {
                kind: np.where(paired, whole[kind] - (block.paired + gathers[kind].paired), 0.0)
                for kind, block in level.kinds.items()
            }

    def load(
        self, number: int | None, blocks: Sequence[Floats], whole: Floats, edge: Floats, late: Floats, before: Before
    ) -> Load:
        """Return the load of a stage with these blocks; `number` is its position among the candidates, None for the sum
        of all."""
        forward = weights = saved = np.zeros(())
        # What the last stage does forward matters only where weights have gradients of their own.
        if self._split or (self._staged and number not in (None, 1)):
            forward = of_kinds(blocks, self._forward) + self._of_ends.forward * edge + late / 2.0
        if self._split:
            weights = of_kinds(blocks, self._weights) + self._of_ends.weights * edge
        if self._saved is not None:
            saved = of_kinds(blocks, self._saved)
        found = Load(whole, forward, weights, saved, before.whole)
        if self._split and before.blocks is not None:
            first = self._of_ends.forward * before.edge
            own = self._of_ends.weights * before.edge
            return replace(
                found,
                forward_before=of_kinds(before.blocks, self._forward) + first + before.late / 2.0,
                weights_before=of_kinds(before.blocks, self._weights) + own,
            )
        return found


def of_kinds(numbers: Sequence[Floats], each: Mapping[BlockKind, Floats]) -> Floats:
    """Return the sum over kinds of number of blocks times a figure of the kind [rows], in the figure's unit.

    Args:
        numbers: blocks of every kind, in the order of `kinds_of` [rows].
        each: figure of one block by kind [rows]; kinds without one count as 0.
    """
    found: Floats | None = None
    for kind in sorted(each, key=_position_of):
        number = numbers[kind.position]
        if np.ndim(number) or number > 0:
            found = number * each[kind] if found is None else found + number * each[kind]
    return np.zeros(()) if found is None else found


def _position_of(kind: BlockKind) -> int:
    return kind.position


def _block_gathers(
    case: Case, level: BlockLevel, rates: SustainedRates, p: Parameters, tiers: Sequence[Tier], *, split: bool
) -> dict[BlockKind, Gathers]:
    local, trained = local_weights(case), local_adapters(case)
    return {
        kind: layer_gathers(
            case,
            rates,
            p,
            tiers,
            local.blocks[kind.size],
            block,
            local.experts[kind.size] if kind.experts else None,
            split=split,
            trained=trained[kind.size] if trained else None,
        )
        for kind, block in level.kinds.items()
    }


@dataclass(frozen=True, slots=True)
class OffloadedFlow:
    """Offloaded weights or kept activations on the link to the second memory tier, arrays [rows].

    `forward` and `backward` are its additions to a step [s], `slowest` the slowest stage with it, per microbatch [s],
    `bandwidth` the rate of the link that would add nothing [bytes/s], infinite if nothing can hide it.
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
    weights: Sequence[Floats],
    activations: Sequence[Floats],
    rate: float,
) -> OffloadedFlow:
    """Returns what moving weights and activations block by block adds to a pipeline [rows] [s, bytes/s].

    A block takes as long as its computation or its transfers, whichever is longer, in either direction of the pass; so
    a quicker processor or a quicker link never makes a step longer.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        level: blocks and ends of every row [s].
        flow: the pipeline without offloading [s].
        weights, activations: bytes per microbatch that go through the link for a block of every size [rows] [bytes]; 0
            where they are not offloaded.
        rate: rate of the link per direction [bytes/s].
    """
    forwards, backwards, both, needed = {}, {}, {}, np.zeros(())
    paired, separate = among(case.layout.schedule, PAIRED), among(case.layout.schedule, SPLIT)
    saved: dict[BlockKind, Floats] | None = {} if paired.any() else None
    for kind, block in level.kinds.items():
        there, kept = weights[kind.size], activations[kind.size]
        gathers = flow.gathers[kind]
        computing = block.forward + gathers.forward, block.backward + gathers.backward
        # Gradients of weights that have a pass of their own come after what the transfers are for.
        inputs = block.input_gradient + gathers.backward - gathers.weights
        hiding = computing[0], np.where(separate, inputs, computing[1])
        # Forward weights come while activations go, so that the larger counts; backward both come.
        moved = np.maximum(there, kept), there + kept
        # A block waits for the part of its transfer that its computation does not cover.
        late = [np.maximum(size / rate - hidden, 0.0) for size, hidden in zip(moved, hiding, strict=True)]
        forwards[kind], backwards[kind] = late
        both[kind] = late[0] + late[1]
        if saved is not None:
            # A pair takes as long as its computation or the transfers of both, whichever is longer.
            pair = np.maximum(block.paired + gathers.paired, (moved[0] + moved[1]) / rate)
            alone = computing[0] + computing[1] + separation_time(case, block) + both[kind]
            saved[kind] = np.where(paired, np.maximum(alone - pair, 0.0), 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            needed = np.fmax(needed, np.fmax(moved[0] / hiding[0], moved[1] / hiding[1]))
    everywhere = _model_blocks(case)
    loads = [
        _lengthen_load(load, stage.blocks, forwards, both, saved)
        for load, stage in zip(flow.loads, flow.stages, strict=True)
    ]
    first, last, *others = loads
    total = _lengthen_load(flow.total, everywhere, forwards, both, saved)
    # The work before each stage has grown by the same waits.
    last = replace(last, before=total.whole - last.whole)
    others = [
        replace(
            load,
            before=load.before + of_kinds(stage.before, both),
            forward_before=load.forward_before + of_kinds(stage.before, forwards),
        )
        for load, stage in zip(others, flow.stages[ENDS:], strict=True)
    ]
    loads = [first, last, *others]
    path = critical_path(case, loads, total, [stage.position for stage in flow.stages], flow.message)
    added = np.maximum(path.seconds - flow.path.seconds, 0.0)
    late_whole = of_kinds(everywhere, both)
    # The addition to the path is divided between both passes as the waits of all blocks are.
    share = of_kinds(everywhere, forwards) / np.where(late_whole > 0, late_whole, 1.0)
    return OffloadedFlow(added * share, added * (1.0 - share), busiest_stage_time(loads), np.asarray(needed))


def _lengthen_load(
    load: Load,
    blocks: Sequence[Floats],
    forwards: Mapping[BlockKind, Floats],
    both: Mapping[BlockKind, Floats],
    saved: Mapping[BlockKind, Floats] | None,
) -> Load:
    """Return the load of a stage whose blocks take longer by `forwards` forward and by `both` in both passes, and whose
    overlapped pairs save `saved` [s]."""
    return replace(
        load,
        whole=load.whole + of_kinds(blocks, both),
        forward=load.forward + of_kinds(blocks, forwards),
        saved=load.saved if saved is None else of_kinds(blocks, saved),
    )


def largest(values: Sequence[Floats]) -> Floats:
    """Returns the largest of several arrays, row by row [rows].

    Args:
        values: arrays [rows] of one unit, at least one.
    """
    found = values[0]
    for value in values[1:]:
        found = np.maximum(found, value)
    return found
