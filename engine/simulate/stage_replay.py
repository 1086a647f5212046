"""Replay of an execution's pipeline with the times of every stage, compared with the cost model's closed form.

Closed forms are exact for stages that are alike. Where they are not, 1F1B and ZB-H1 take the longest path through any
stage; for the others the slowest stage waits for the mean of all (`cost_models.calibrated.physics.pipeline`), and a
replay says how far off that is. Of 300 random cuts each, with up to two blocks fewer at the ends of four everywhere,
closed forms are 0.0 % (1F1B), 0.2 % (ZB-H1), 0.7 % (ZB-V), 1.9 % (DualPipe), 1.5 % (DualPipeV), 1.8 % (interleaved) and
0.8 % (combined 1F1B) off on average, and 11 % at most; with one to five blocks anywhere 0.04, 0.2, 1.6, 3.4, 3.0, 3.0
and 2.3 %, and 16 % at most. They are high more often than low.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.cost_models.account import ExecutionAccount, ModelStage, StepPart
from engine.cost_models.chunk_times import microbatches_of, tells_blocks_apart
from engine.simulate.folding import kept_microbatches
from engine.simulate.replay import replay, shape_of
from engine.simulate.schedules.contract import ScheduleError, ScheduleRule
from engine.simulate.schedules.registry import rule

__all__ = ["StageReplay", "besides_sentence", "stage_replay", "stage_times", "whole_makespan"]

MOST_ACTIONS: Final = 60_000
"""Actions that are replayed; of longer schedules the steady state is taken from two shorter ones."""
ALIKE: Final = 5e-4
"""Share of a step up to which two times of it count as one. Source: stated by us."""


@dataclass(frozen=True, slots=True)
class StageReplay:
    """A step by the cost model's closed form and by replay of its stages, term by term [s].

    Both have the same `besides`; they differ in what stages take, which the closed form knows exactly for stages that
    are alike, and in messages, which a replay sends one by one.
    """

    replayed: float
    """All microbatches through the stages, without messages, by replay [s]."""
    stated: float
    """The same by the cost model's closed form [s]."""
    messages: float
    """Time that messages add, by replay [s]."""
    stated_messages: float
    """Time that messages add, by the closed form [s]."""
    besides: tuple[StepPart, ...]
    """Parts of a step other than the pipeline [s]."""
    total: float
    """The cost model's step, which all pages show [s]."""

    @property
    def apart(self) -> float:
        """The closed form of the stages over their replay, less 1."""
        return self.stated / self.replayed - 1.0

    @property
    def step(self) -> float:
        """The whole step by replay [s]."""
        return self.replayed + self.messages + sum(part.seconds for part in self.besides)

    def sentence(self) -> str:
        """Returns both times of the step and what sets them apart, in a sentence."""
        change = self.total / self.step - 1.0
        if abs(change) < ALIKE:
            return f"The step takes {self.total:.4g} s by the cost model's closed form and by replay of its stages."
        shares = [
            (name, 100.0 * each / self.step)
            for name, each in (
                ("stages", self.stated - self.replayed),
                ("messages", self.stated_messages - self.messages),
            )
        ]
        why = " and ".join(f"{name} {each:+.2g} %" for name, each in shares if abs(each) > 100.0 * ALIKE)
        return (
            f"The step takes {self.total:.4g} s by the cost model's closed form, which all pages show, and "
            f"{self.step:.4g} s by replay of its stages: {why or f'{100.0 * change:+.2g} %'} in the closed form."
        ).replace("-", "\u2212")


def besides_sentence(parts: Sequence[StepPart]) -> str:
    """Return a sentence on the parts of a step outside its pipeline.

    Args:
        parts: of the step, at least one [s].
    """
    each = ", ".join(
        f"{part.name if part.name[1:2].isupper() else part.name.lower()} {part.seconds:.3g} s" for part in parts
    )
    return f"Besides the pipeline a step takes {sum(part.seconds for part in parts):.4g} s: {each}."


def stage_replay(execution: Mapping[Any, Any], account: ExecutionAccount) -> StageReplay | None:
    """Returns an execution's step by replay and by closed form; None without a pipeline, and where the cost model does
    not tell stages apart or has a replay's figures anyway.

    Args:
        execution: its fields and statistics, feasible.
        account: how its figures come about.
    """
    ranks, chunks = int(execution["pipeline_par"]), int(execution["pipeline_interleaving"])
    if ranks == 1 or tells_blocks_apart(execution) or not bool(execution["training"]):
        return None
    stages = account.model_stages(ranks, chunks)
    if not stages:
        return None
    known, microbatches = rule(str(execution.get("schedule") or "1f1b")), microbatches_of(execution)
    times, total = stage_times(stages, pairs=known.pairs), float(execution["total_time"])
    besides, messages = tuple(account.besides_pipeline()), account.messages_in_step()
    try:
        alone = whole_makespan(known, ranks, microbatches, chunks, times)
        sending = whole_makespan(known, ranks, microbatches, chunks, times, account.message_seconds())
    except ScheduleError:  # a schedule that no program runs with so many microbatches
        return None
    stated = total - sum(part.seconds for part in besides) - messages
    return StageReplay(alone, stated, sending - alone, messages, besides, total)


def stage_times(stages: Sequence[ModelStage], *, pairs: bool) -> dict[str, list[float]]:
    """Returns durations by stage of the model as `replay` takes them [s].

    Args:
        stages: in the order in which a token passes them.
        pairs: whether overlapped pairs are among them.
    """
    times = {
        "F": [stage.forward for stage in stages],
        "B": [stage.input_gradient for stage in stages],
        "W": [stage.weight_gradient for stage in stages],
    }
    return times | {"FB": [stage.pair for stage in stages]} if pairs else times


def whole_makespan(
    known: ScheduleRule, ranks: int, microbatches: int, chunks: int, times: Mapping[str, Any], message: float = 0.0
) -> float:
    """Return the time of all microbatches through a pipeline [s]; long schedules are extrapolated from their steady
    state.

    Args:
        known: the schedule.
        ranks: ranks of the pipeline.
        microbatches: of one replica in a step.
        chunks: chunks of each rank.
        times: durations by kind, as `replay` takes them [s].
        message: seconds of one message between ranks, which runs next to computation [s].

    Raises `ScheduleError` where the schedule does not exist for these numbers.
    """
    sends = {"mode": "overlap", "c": message} if message else None

    def of(number: int) -> float:
        return replay(known.name, stages=ranks, microbatches=number, chunks=chunks, times=times, sends=sends).makespan

    kept = kept_microbatches(known, shape_of(known, ranks, microbatches, chunks), MOST_ACTIONS)
    found = of(kept)
    if kept == microbatches:
        return found
    # In the steady state every microbatch adds the same time, measured over 2 P of them.
    more = of(kept + 2 * ranks)
    return found + (microbatches - kept) * (more - found) / (2 * ranks)
