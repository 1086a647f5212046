"""What ranks do and hold where the stages of a schedule are not alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from engine.cost_models.account import ModelStage
from engine.simulate import Replay
from engine.simulate.execution_stages import Cut
from engine.simulate.residence import weighted_peaks
from engine.simulate.schedules.contract import Placement

__all__ = ["ALIKE", "RankWork", "bytes_of_ranks", "ranks_of"]

ALIKE: Final = 0.005
"""Share of a mean rank up to which a rank counts as one."""


@dataclass(frozen=True, slots=True)
class RankWork:
    """What a rank does for a microbatch."""

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
    """What makes it longer or shorter than the mean, in some words."""

    @property
    def seconds(self) -> float:
        """Forward and backward [s]."""
        return self.forward + self.backward


def ranks_of(cut: Cut, ranks: int, placement: Placement) -> list[RankWork]:
    """Returns what every rank does for a microbatch; half of two stages each where it works in both directions."""
    held: list[list[tuple[ModelStage, float]]] = [[] for _ in range(ranks)]
    for number, stage in enumerate(cut.stages):
        if placement is Placement.BIDIRECTIONAL:
            held[number].append((stage, 0.5))
            held[ranks - 1 - number].append((stage, 0.5))
        else:
            held[placement.rank(number, 0, ranks, 1)].append((stage, 1.0))
    mean = sum(stage.seconds for stage in cut.stages) / ranks
    means = {name: took / ranks for name, (_, took) in _parts([(stage, 1.0) for stage in cut.stages]).items()}
    return [_work(rank, own, mean, means) for rank, own in enumerate(held)]


def bytes_of_ranks(cut: Cut, found: Replay, *, sharded: bool) -> list[tuple[float, float]]:
    """Returns the most bytes of activations that each rank of a replay holds, and all that it holds then [bytes]; empty
    where the cost model does not say what stages hold.

    cut: of the replay's stages. sharded: whether replicas share the optimizer's state, of which both directions of a
    pipeline are two.
    """
    held = [stage.held for stage in cut.stages if stage.held is not None]
    order = found.order
    if len(held) != len(cut.stages) or not held:
        return []
    both = order.placement is Placement.BIDIRECTIONAL
    kept = weighted_peaks(order, [each.activations for each in held])
    rows = []
    for rank, peak in enumerate(kept):
        own = [each for number, each in enumerate(held) if order.placement.rank(number, 0, order.ranks, 1) == rank]
        if both:
            own = [held[rank], held[order.ranks - 1 - rank]]
        optimizer = sum(each.optimizer for each in own) / (2.0 if both and sharded else 1.0)
        state = sum(each.weights for each in own) + optimizer
        working = max(each.working for each in own) + max(each.temporaries for each in own)
        rows.append((peak, peak + state + working))
    return rows


def _parts(stages: Sequence[tuple[ModelStage, float]]) -> dict[str, tuple[float, float]]:
    """Number and seconds of each part of some stages, by name."""
    found: dict[str, tuple[float, float]] = {}
    for stage, share in stages:
        for part in stage.parts:
            number, took = found.get(part.name, (0.0, 0.0))
            found[part.name] = number + share * part.number, took + share * part.seconds
    return found


def _work(rank: int, stages: Sequence[tuple[ModelStage, float]], mean: float, means: dict[str, float]) -> RankWork:
    parts = _parts(stages)
    forward = sum(share * stage.forward for stage, share in stages)
    whole = sum(share * stage.seconds for stage, share in stages)
    over = whole / mean - 1.0
    apart = {name: (parts.get(name, (0.0, 0.0))[1] - each) / mean for name, each in means.items()}
    why = "as the mean"
    if abs(over) > ALIKE:
        name = max(apart, key=lambda each: apart[each] if over > 0 else -apart[each])
        number = parts.get(name, (0.0, 0.0))[0]
        why = f"{'no' if number == 0 else f'{number:g}'} {name}: {100 * apart[name]:+.0f} % of the mean"
    holds = tuple((name, number, took) for name, (number, took) in parts.items())
    return RankWork(rank, holds, forward, whole - forward, over, why.replace("-", "\u2212"))
