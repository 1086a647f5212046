"""Work and memory of ranks whose stages are unequal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.cost_models.account import ModelStage, StageHeld
from engine.simulate import Replay
from engine.simulate.execution_stages import Cut
from engine.simulate.residence import weighted_peaks
from engine.simulate.schedules.contract import StagePlacement

__all__ = ["ALIKE", "Offloads", "RankWork", "bytes_of_ranks", "ranks_of"]

ALIKE: Final = 0.005
"""Largest share of a mean rank by which ranks count as equal."""


@dataclass(frozen=True, slots=True)
class RankWork:
    """Work of one rank for a microbatch."""

    rank: int
    holds: tuple[tuple[str, float, float], ...]
    """Parts: name, number, seconds [s]."""
    forward: float
    """Forward [s]."""
    backward: float
    """Backward [s]."""
    over: float
    """Its time over the mean of all ranks, less 1."""
    why: str
    """Main reason why it is longer or shorter than the mean."""

    @property
    def seconds(self) -> float:
        """Forward and backward [s]."""
        return self.forward + self.backward


def ranks_of(cut: Cut, ranks: int, placement: StagePlacement) -> list[RankWork]:
    """Returns the work of every rank for a microbatch; half of two stages each on a bidirectional pipeline."""
    held: list[list[tuple[ModelStage, float]]] = [[] for _ in range(ranks)]
    for number, stage in enumerate(cut.stages):
        if placement is StagePlacement.BIDIRECTIONAL:
            held[number].append((stage, 0.5))
            held[ranks - 1 - number].append((stage, 0.5))
        else:
            held[placement.rank(number, 0, ranks, 1)].append((stage, 1.0))
    mean = sum(stage.seconds for stage in cut.stages) / ranks
    means = {name: took / ranks for name, (_, took) in _sum_parts([(stage, 1.0) for stage in cut.stages]).items()}
    return [_rank_work(rank, own, mean, means) for rank, own in enumerate(held)]


@dataclass(frozen=True, slots=True)
class Offloads:
    """Parts of an execution that are kept in host memory."""

    weights: bool = False
    activations: bool = False
    state: bool = False
    """Gradients and the optimizer's state."""

    @classmethod
    def of(cls, execution: Mapping[str, Any]) -> Offloads:
        """Returns the offloads of an execution."""
        fields = ("weight_offload", "activations_offload", "optimizer_offload")
        return cls(*(bool(execution.get(name)) for name in fields))


def bytes_of_ranks(
    cut: Cut, found: Replay, *, sharded: bool, offloads: Offloads | None = None, growth: float = 1.0
) -> list[tuple[float, float]]:
    """Returns (the most bytes of activations that each rank keeps, all that it then holds in HBM) [bytes].

    Empty if the cost model does not give the stages' bytes.

    cut: of the replay's stages. sharded: True if replicas share the optimizer's state; both directions of a pipeline
    are two replicas. offloads: parts in host memory, except for two blocks (`engine.cost_models.account.StageHeld`).
    growth: ratio of a step's activations to the replay's, if that has fewer microbatches.
    """
    held = [stage.held for stage in cut.stages if stage.held is not None]
    order = found.order
    if len(held) != len(cut.stages) or not held:
        return []
    both = order.placement is StagePlacement.BIDIRECTIONAL
    kept = weighted_peaks(order, [each.activations for each in held])
    rows = []
    for rank, peak in enumerate(growth * each for each in kept):
        own = [each for number, each in enumerate(held) if order.placement.rank(number, 0, order.ranks, 1) == rank]
        if both:
            own = [held[rank], held[order.ranks - 1 - rank]]
        optimizer = sum(each.optimizer for each in own) / (2.0 if both and sharded else 1.0)
        state = sum(each.weights for each in own) + optimizer
        working = max(each.working for each in own) + max(each.temporaries for each in own)
        away = _offloaded_bytes(own, optimizer, peak, offloads) if offloads is not None else 0.0
        rows.append((peak, peak + state + working - away))
    return rows


def _offloaded_bytes(own: Sequence[StageHeld], optimizer: float, peak: float, offloads: Offloads) -> float:
    """Return the bytes that offloading takes from a rank; its two largest blocks stay: the current and the next one.

    own: bytes of the rank's stages. optimizer: its state [bytes]. peak: kept activations [bytes].
    """
    blocks = sum(each.block_weights for each in own)
    # Two blocks of one stage, or one each of two single-block stages.
    single = sorted((each.resident for each in own if each.blocks == 1), reverse=True)
    stay = max(max(each.resident for each in own), sum(single[:2]))
    left = 1.0 - stay / blocks if blocks else 0.0
    away = offloads.weights * blocks + offloads.state * (sum(each.gradients for each in own) + optimizer)
    kept = 0.0
    if offloads.activations:
        # With several microbatches the two largest may be the same block twice.
        twice = max(each.resident_kept * (2.0 if each.blocks == 1 else 1.0) for each in own)
        kept = max(peak - twice, 0.0)
    return away * max(left, 0.0) + kept


def _sum_parts(stages: Sequence[tuple[ModelStage, float]]) -> dict[str, tuple[float, float]]:
    """Return number and seconds of each part of several stages, by name."""
    found: dict[str, tuple[float, float]] = {}
    for stage, share in stages:
        for part in stage.parts:
            number, took = found.get(part.name, (0.0, 0.0))
            found[part.name] = number + share * part.number, took + share * part.seconds
    return found


def _rank_work(rank: int, stages: Sequence[tuple[ModelStage, float]], mean: float, means: dict[str, float]) -> RankWork:
    parts = _sum_parts(stages)
    forward = sum(share * stage.forward for stage, share in stages)
    whole = sum(share * stage.seconds for stage, share in stages)
    over = whole / mean - 1.0
    apart = {name: (parts.get(name, (0.0, 0.0))[1] - each) / mean for name, each in means.items()}
    why = "as the mean"
    if abs(over) > ALIKE:
        name = max(apart, key=lambda each: apart[each] if over > 0 else -apart[each])
        number = parts.get(name, (0.0, 0.0))[0]
        why = f"{'no' if number == 0 else f'{number:g}'} {name}: {100 * apart[name]:+.0f} % against the mean"
    holds = tuple((name, number, took) for name, (number, took) in parts.items())
    return RankWork(rank, holds, forward, whole - forward, over, why.replace("-", "\u2212"))
