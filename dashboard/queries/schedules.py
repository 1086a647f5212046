"""Replays of the Schedules page: the numbers shared by all schedules, and each schedule's inputs derived from them.

Schedules are compared at equal devices, tokens and model: a rank's share of the model takes the same time with any
number of chunks, so a chunk of v takes 1/v of it, and memory is counted in activations of a rank's whole share for
one microbatch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from dashboard.compat.caches import remembered
from engine.questions.documents.schedules import ScheduleReplayQuestion
from engine.questions.schedules import find_schedule_replay
from engine.simulate import Many, Replay, ScheduleError, replay_many
from engine.simulate.execution_stages import Cut, chunks_for, cut_for, cut_times, replay_stages
from engine.simulate.folding import kept_microbatches
from engine.simulate.replay import shape_of
from engine.simulate.schedules.contract import ScheduleRule, StagePlacement
from engine.simulate.schedules.registry import NAMES, RULES, rule

__all__ = [
    "OFFERED",
    "ScheduleOutcome",
    "ScheduleQuestion",
    "chunks_of",
    "compare_along",
    "curve_values",
    "drawn_replay",
    "find_outcome",
    "find_outcomes",
    "most_microbatches",
    "plans_along",
    "replay_schedule",
    "schedule_question",
    "titles",
]

OFFERED: Final = tuple(name for name in NAMES if name != "calculon-1f1b")
REPLAYED: Final = 10_000
"""Most actions of a schedule on this page, so that all are replayed in an instant."""
VALUES: Final = 21
"""Number of values of a slider at which schedules are compared."""
PLANNED: Final = 512
"""Most microbatches times ranks for which planned orders are computed along a slider."""
DRAWN: Final = 1_400
"""Most actions in a picture; of longer schedules the repeating middle is left out."""


@dataclass(frozen=True, slots=True)
class ScheduleQuestion:
    """Numbers shared by all schedules. Durations are of a rank's whole share of the model for one microbatch [s]."""

    ranks: int
    microbatches: int
    chunks: int
    group: int | None
    forward: float
    input_gradient: float
    weight_gradient: float
    hidden: float
    """Share of a forward and a backward that an overlapped pair hides."""
    uneven: float
    """Extra time of the model's last stage, as a share of a rank's."""
    send: float
    """Time of a send, as a share of a rank's forward."""
    mode: str
    """Mode of a send: overlap or block."""
    memory: float | None
    """Most activations that a rank may hold, in units of its whole share; None for no limit."""
    own: tuple[Cut, ...] = ()
    """The stages of a model for every number of chunks per rank, with the durations above as a rank's mean; empty for
    equal stages.
    """
    span: bool = False
    """True to count a step as the longest span of a rank, from its first start to its last end."""
    wanted: int = 0
    """Microbatches of a step; those beyond `microbatches` take the time of the last rounds. 0 for no more."""
    besides: float = 0.0
    """Time of a step outside the pipeline, with any schedule [s]."""

    @property
    def ideal(self) -> float:
        """Work of a rank without any waiting [s]."""
        each = self.forward + self.input_gradient + self.weight_gradient
        return self.microbatches * each

    @property
    def send_time(self) -> float:
        """Time of a send [s]."""
        return self.send * self.forward


@dataclass(frozen=True, slots=True)
class ScheduleOutcome:
    """Result of one schedule: a replay, or the reason why it does not run."""

    name: str
    rule: ScheduleRule
    found: Replay | None
    reason: str = ""
    too_much: bool = False
    """True if it holds more than the limit."""
    span: bool = False
    """True if its time is the longest span."""
    rest: float = 0.0
    """Time of the microbatches that are not replayed [s]."""
    rest_busy: float = 0.0
    """Time in which ranks work on them, the mean of all ranks [s]."""
    repeated: float = 1.0
    """Microbatches of a step over the replayed ones."""
    besides: float = 0.0
    """Time of a step outside the pipeline [s]."""

    @property
    def runs(self) -> bool:
        """True if it can be used."""
        return self.found is not None and not self.too_much

    @property
    def took(self) -> float:
        """Time of all microbatches, whole or as the longest span [s]; NaN if the schedule does not exist."""
        if self.found is None:
            return float("nan")
        return (self.found.longest_span if self.span else self.found.makespan) + self.rest

    @property
    def step(self) -> float:
        """Time of a whole step [s]; NaN if the schedule does not exist."""
        return self.took + self.besides

    @property
    def idle(self) -> float:
        """Mean share of the pipeline's time in which ranks are idle [dimensionless]."""
        if self.found is None or not self.took:
            return 0.0
        return 1.0 - (float(np.mean(self.found.busy)) + self.rest_busy) / self.took

    @property
    def peak(self) -> float:
        """Most activations that any rank holds, in units of a rank's whole share of the model."""
        if self.found is None:
            return float("nan")
        return self.growth * max(self.found.peak_activations) / self.found.order.chunks

    @property
    def growth(self) -> float:
        """Ratio of all microbatches' activations to the replayed ones': 1 unless ranks hold every microbatch."""
        if self.found is None or self.repeated == 1.0:
            return 1.0
        order = self.found.order
        return self.repeated if max(self.found.peak_activations) >= order.empty_from * order.chunks else 1.0


def titles() -> dict[str, str]:
    """Returns the titles of the offered schedules, by name."""
    return {each.name: each.title for each in RULES if each.name in OFFERED}


def most_microbatches(ranks: int, chunks: int) -> int:
    """Returns the most microbatches that are replayed: whole rounds of the ranks, at least two."""
    return max(2, REPLAYED // (3 * ranks * max(2, chunks)) // ranks) * ranks


def chunks_of(question: ScheduleQuestion, known: ScheduleRule) -> int:
    """Returns the chunks per rank of a schedule: the requested number if it is free."""
    return chunks_for(known, question.chunks)


def _replay_inputs(question: ScheduleQuestion, known: ScheduleRule) -> tuple[int, dict[str, Any], int | None]:
    """Return a schedule's chunks, its durations by stage and its group."""
    chunks = chunks_of(question, known)
    stages = question.ranks * (1 if known.placement is StagePlacement.BIDIRECTIONAL else chunks)
    times: dict[str, Any] = {}
    if question.own:
        times = _own_times(question, chunks)
        if not known.pairs:
            del times["FB"]
        return chunks, times, question.group if known.grouped else None
    for kind, whole in (("F", question.forward), ("B", question.input_gradient), ("W", question.weight_gradient)):
        each = [whole / chunks] * stages
        each[-1] += question.uneven * whole
        times[kind] = each if question.uneven else whole / chunks
    if known.pairs and question.hidden:
        if question.uneven:
            both = (sum(kinds) for kinds in zip(times["F"], times["B"], times["W"], strict=True))
            times["FB"] = [(1.0 - question.hidden) * each for each in both]
        else:
            times["FB"] = (1.0 - question.hidden) * (times["F"] + times["B"] + times["W"])
    return chunks, times, question.group if known.grouped else None


def _own_times(question: ScheduleQuestion, chunks: int) -> dict[str, Any]:
    """Return durations by stage of a model with a number of chunks per rank."""
    each = question.forward, question.input_gradient, question.weight_gradient
    forward, first, second = (question.uneven * seconds for seconds in each)
    return cut_times(cut_for(question.own, chunks), shown=1.0 - question.hidden, last=(forward, first, second))


def schedule_question(question: ScheduleQuestion, name: str) -> ScheduleReplayQuestion:
    """Return the replay of one schedule, as commands and JSON ask for it.

    Args:
        question: numbers shared by all schedules.
        name: name of the schedule.
    """
    known = rule(name)
    chunks, times, group = _replay_inputs(question, known)
    seconds = {kind: list(each) if isinstance(each, list) else [each] for kind, each in times.items()}
    return ScheduleReplayQuestion(
        schedule=name,
        stages=question.ranks,
        microbatches=question.microbatches,
        chunks=chunks,
        forward_s=seconds["F"],
        input_gradient_s=seconds["B"],
        weight_gradient_s=seconds["W"],
        pair_s=seconds.get("FB"),
        send_mode="block" if question.mode == "block" else "overlap",
        send_time_s=question.send_time,
        group=group,
        memory_limit=question.memory * chunks if known.limited and question.memory is not None else None,
    )


def replay_schedule(question: ScheduleQuestion, name: str) -> Replay:
    """Return the replay of a schedule. One that plans its order by durations plans with the means of unequal stages.

    Raises: ScheduleError if it does not exist for these numbers.
    """
    known, asked = rule(name), schedule_question(question, name)
    if not (known.timed and question.own):
        return find_schedule_replay(asked)
    return replay_stages(
        known,
        times=_replay_inputs(question, known)[1],
        apart=True,
        stages=asked.stages,
        microbatches=asked.microbatches,
        chunks=asked.chunks,
        sends={"mode": asked.send_mode, "c": asked.send_time_s},
        group=asked.group,
        memory_limit=asked.memory_limit,
    )


_AS_TEXT: Final[dict[Any, Any]] = {ScheduleQuestion: repr}
"""Hash questions by their text: Streamlit's hash of their parts took a fifth of a run of the page."""


@remembered(96, hash_funcs=_AS_TEXT, copied=False)
def find_outcome(question: ScheduleQuestion, name: str) -> ScheduleOutcome:
    """Returns the result of a schedule, cached."""
    return _compute_outcome(question, name)


def _compute_outcome(question: ScheduleQuestion, name: str) -> ScheduleOutcome:
    known = rule(name)
    try:
        found = replay_schedule(question, name)
    except ScheduleError as problem:
        return ScheduleOutcome(name, known, None, str(problem))
    repeated = max(question.wanted, question.microbatches) / question.microbatches
    rest, busy = _remaining_time(question, name, found)
    made = ScheduleOutcome(
        name, known, found, span=question.span, rest=rest, rest_busy=busy, repeated=repeated, besides=question.besides
    )
    if question.memory is not None and made.peak > question.memory + 1e-9:
        told = f"It holds {made.peak:.4g} activations of a rank's share; {question.memory:.4g} are allowed."
        return replace(made, reason=told, too_much=True)
    return made


def _remaining_time(question: ScheduleQuestion, name: str, found: Replay) -> tuple[float, float]:
    """Return (the time, the mean time in which ranks work) of the microbatches that are not replayed [s].

    Both are extrapolated from the last replayed rounds.
    """
    more = question.wanted - question.microbatches
    if more <= 0:
        return 0.0, 0.0
    # After the fill all rounds take equally long.
    fewer = 2 * question.ranks if question.microbatches >= 4 * question.ranks else question.ranks
    try:
        before = replay_schedule(replace(question, microbatches=question.microbatches - fewer), name)
    except ScheduleError:
        each = found.busy / question.microbatches
        return more * float(np.max(each)), more * float(np.mean(each))
    share = more / fewer
    return share * (found.makespan - before.makespan), share * float(np.mean(found.busy) - np.mean(before.busy))


@remembered(4, hash_funcs=_AS_TEXT, copied=False)
def find_outcomes(question: ScheduleQuestion) -> tuple[ScheduleOutcome, ...]:
    """Returns the result of every schedule, the fastest first, then unusable ones; cached."""
    found = [find_outcome(question, name) for name in OFFERED]
    return tuple(sorted(found, key=lambda each: (not each.runs, each.took if each.found else 0.0)))


@remembered(64, hash_funcs=_AS_TEXT, copied=False)
def drawn_replay(question: ScheduleQuestion, name: str) -> tuple[Replay, int]:
    """Returns a replay short enough to draw, and the number of microbatches that it leaves out.

    Raises: ScheduleError if the schedule does not exist for these numbers.
    """
    known = rule(name)
    chunks, _, group = _replay_inputs(question, known)
    shape = shape_of(known, question.ranks, question.microbatches, chunks, group=group)
    kept = kept_microbatches(known, shape, DRAWN)
    return replay_schedule(replace(question, microbatches=kept), name), question.microbatches - kept


def curve_values(question: ScheduleQuestion, which: str) -> list[float]:
    """Returns the values along a slider at which schedules are compared."""
    if which == "microbatches":
        p = question.ranks
        most = max(8 * p, question.microbatches)
        found = {p, 2 * p, 3 * p, 4 * p, 6 * p, 8 * p, question.microbatches, 12 * p if most > 8 * p else p, most}
        most = most_microbatches(p, question.chunks)
        return sorted(float(each) for each in found if each <= most)
    return [round(each, 4) for each in np.linspace(0.0, 1.0, VALUES)]


def plans_along(question: ScheduleQuestion) -> bool:
    """Returns whether planned orders, which differ at each value of a slider, are computed at all of them."""
    return question.ranks * question.microbatches <= PLANNED


@remembered(64, hash_funcs=_AS_TEXT, copied=False)
def compare_along(question: ScheduleQuestion, which: str) -> pd.DataFrame:
    """Returns the makespan, or longest span, of every schedule along a slider: `name`, `value`, `makespan` [s], `share`
    of work in it.

    Schedules are left out if they do not run, or hold more than allowed.
    """
    question = _without_rest(question)
    values = curve_values(question, which)
    parts = []
    for name in OFFERED:
        known = rule(name)
        if known.timed and not plans_along(question):
            continue
        if which == "microbatches" or known.timed:
            made = _one_by_one(question, name, which, values)
        elif find_outcome(question, name).runs:
            made = _replay_together(question, known, which, values)
        else:  # neither order nor memory depends on the times
            continue
        if len(made):
            parts.append(made.assign(name=name))
    columns = ["name", "value", "makespan", "share"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def _change_question(question: ScheduleQuestion, which: str, value: float) -> ScheduleQuestion:
    if which == "microbatches":
        return replace(question, microbatches=int(value))
    return replace(question, send=value) if which == "send" else replace(question, uneven=value)


def _without_rest(question: ScheduleQuestion) -> ScheduleQuestion:
    """Return the question with the replayed microbatches alone, which curves compare."""
    return replace(question, wanted=0, besides=0.0)


def _one_by_one(question: ScheduleQuestion, name: str, which: str, values: list[float]) -> pd.DataFrame:
    rows = []
    for value in values:
        there = _change_question(question, which, value)
        made = _compute_outcome(there, name)
        if made.runs and made.found is not None:
            rows.append((value, made.took, _step_work(there) / made.took))
    return pd.DataFrame(rows, columns=["value", "makespan", "share"])


def _step_work(question: ScheduleQuestion) -> float:
    """Return the work of a step, shared equally by the ranks [s]."""
    return question.ideal * (1.0 + question.uneven / question.ranks)


def _replay_together(question: ScheduleQuestion, known: ScheduleRule, which: str, values: list[float]) -> pd.DataFrame:
    """Return the makespans along a slider that does not change the order: one replay with all durations."""
    several = [_change_question(question, which, value) for value in values]
    asked = [_replay_inputs(each, known) for each in several]
    chunks, _, group = asked[0]
    stages = question.ranks * (1 if known.placement is StagePlacement.BIDIRECTIONAL else chunks)
    times = {
        kind: np.stack([np.broadcast_to(np.asarray(each[kind], dtype=np.float64), (stages,)) for _, each, _ in asked])
        for kind in asked[0][1]
    }
    sends = {"mode": question.mode, "c": np.array([each.send_time for each in several])}
    made: Many = replay_many(
        known.name,
        stages=question.ranks,
        microbatches=question.microbatches,
        chunks=chunks,
        times=times,
        sends=sends,
        group=group,
    )
    work = np.array([_step_work(each) for each in several])
    took = made.longest_span if question.span else made.makespan
    return pd.DataFrame({"value": values, "makespan": took, "share": work / took})
