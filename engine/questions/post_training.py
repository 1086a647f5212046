"""Verb about post-training: the best way to run reinforcement learning on a number of GPUs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from pydantic import Field

from engine.executions.execution_names import execution_name
from engine.post_training.constants import library_constants
from engine.post_training.iteration import MODES, IterationStep, IterationWork
from engine.post_training.lengths import LengthError, LengthLaw
from engine.post_training.measured import nearest_rows
from engine.post_training.memory_phases import tightest_phase
from engine.post_training.search import (
    Judge,
    ModeStep,
    PostTrainingGoal,
    PostTrainingPlan,
    Speculation,
    find_post_training,
    split_unit,
)
from engine.questions.bounds import Context
from engine.questions.documents.post_training import PostTrainingQuestion
from engine.questions.plain import plain
from engine.questions.post_training_changes import find_changes
from engine.questions.scenario_documents import found_model, found_system
from engine.questions.verb import Document, QuestionError, Row, Verb
from hardware import GIB
from models import Model
from models.documents import did_you_mean, shown

__all__ = [
    "BASIS",
    "JUDGE_BESIDE",
    "PLAN_POST_TRAINING",
    "PostTraining",
    "find_asked_post_training",
    "longest_sequence",
    "post_training_document",
    "post_training_goal",
]

DAY: Final = 86_400.0
"""Seconds of a day [s]."""
JUDGE_TOKENS: Final = 256
"""Answer of a judge where none is asked for [tokens]. Source: stated by us; a short verdict with reasons."""
JUDGE_BESIDE: Final = (
    "`own_gpus` of the judge are besides all others, and a plan of several jobs or phases does not count them; leave "
    "it out, and the judge runs on the GPUs of the rollout."
)
"""Reason why plans that give out GPUs take no judge on GPUs of its own."""
MOST_SAMPLES: Final = 2**31 - 1
"""Samples of a step at most; a global batch is counted in as many bits."""
DRAFTED: Final = 3
"""Tokens drafted per step where none are asked for. Source: stated by us; SkyRL's run accepts 3.3 with as many or one
more."""
DRAFT_COST: Final = 0.1
"""Time of drafting over a plain step []. Source: stated by us; one layer of some tens, run once per drafted token."""
HOURS: Final = 24.0
"""Hours of a day [h]."""
STALENESS: Final = 8
"""Staleness of asynchronous modes where none is asked for [steps]. Source: NeMo-RL's recipe of 30B on 192 GPUs."""
SIZES: Final = (0.25, 0.5, 1.0, 2.0)
"""Multiples of the GPUs at which modes are compared."""
BASIS: Final = (
    "Figures rest on 44 steps of NeMo-RL without tools, on H100 and GB200; response lengths are yours to give, and "
    "decide the answer."
)
"""Basis of all figures, wherever they are shown."""
TRAINING_PHASES: Final = ("log_probs", "teacher", "update", "other")


class StepFigure(Document):
    """Figure with its interval."""

    value: float
    low: float
    high: float


class PhaseRow(Document):
    """Phase of a step."""

    name: str = Field(
        description="rollout, reward, judge, log_probs, teacher, update, other, switch or synchronisation."
    )
    seconds: StepFigure = Field(description="[s]")
    gpus: int = Field(description="GPUs that it runs on.")


class MemoryRow(Document):
    """Memory of one GPU in a phase, or of the host per GPU."""

    phase: str
    gib: float = Field(description="Needs [GiB].")
    has: float = Field(description="Capacity, or the share that the phase may use [GiB].")
    parts: dict[str, float] = Field(description="Parts of the needs [GiB].")


class ModeRow(Document):
    """Best step of a mode."""

    mode: Literal["colocated", "one_step_off", "asynchronous"]
    gpus_train: int
    gpus_rollout: int
    step_s: StepFigure = Field(description="[s]")
    phases: list[PhaseRow]
    idle_training: float = Field(description="Share of the step that the training GPUs wait.")
    idle_rollout: float = Field(description="Share of the step that the rollout GPUs wait.")
    tail_ratio: float = Field(description="Time of a rollout that drains over the time at full batches.")
    staleness_mean: float = Field(description="Mean age of a sample [steps].")
    tokens_per_s_per_gpu: float = Field(description="Prompt and response tokens of all samples, over all GPUs.")
    days: StepFigure = Field(description="All steps; failures are not counted.")
    usd: StepFigure | None = Field(description="All GPUs for these days; null without a price.")
    memory: list[MemoryRow]
    binds: str = Field(description="Phase with the largest share of its memory in use.")
    layout: str = Field(description="Layout of the training execution.")
    execution: Row
    deployment: Row = Field(description="Rollout: degrees, replicas, and requests of a replica at once (batch).")
    judge: Row | None = Field(description="Deployment of the judge; null without one.")


class StepChangeRow(Document):
    """Step with one change of the question."""

    change: str
    fields: dict[str, Any] = Field(description="New values by path of the question's fields.")
    step_s: float | None = Field(description="[s]; null where it does not run.")
    ratio: float | None = Field(description="Over the step without the change.")


class PostTrainingAnswer(Document):
    """Best way of each mode to run reinforcement learning."""

    model: str
    system: str
    num_procs: int
    samples: int = Field(description="Responses of a step.")
    kind: Literal["modelled"] = "modelled"
    basis: str
    mode: str | None = Field(description="Fastest mode; null if nothing runs.")
    best: list[ModeRow] = Field(description="Best step of each mode, the fastest first.")
    curve: list[Row] = Field(description="Step by mode and split; null where nothing trains.")
    splits: int = Field(
        description="Splits of all modes, at most 96 of each; those that were not evaluated are proven no better."
    )
    evaluated: int
    sizes: list[Row] = Field(description="Step by mode at other numbers of GPUs, where asked for.")
    crossing: str = Field(description="Sizes from which on a split is faster than shared GPUs, where asked for.")
    changes: list[StepChangeRow] = Field(
        description="Single changes in the fastest mode, at its split unless GPUs move, the fastest first; where asked "
        "for."
    )
    nearest: list[Row] = Field(description="Measured runs nearest to the question, with their source.")
    reasons: dict[str, str] = Field(description="Why a mode has no step.")
    change: str = Field(description="Smallest of some changes with which something runs; empty where something does.")
    software: float = Field(description="Factor of the release, or of your own step, on the whole step.")
    units: dict[str, str]


@dataclass(frozen=True, eq=False)
class PostTraining:
    """Answer to a question before it is a document: the plan, plans at other sizes, and the half-width of intervals."""

    asked: PostTrainingQuestion
    plan: PostTrainingPlan
    sizes: Mapping[int, PostTrainingPlan]
    changes: Sequence[Mapping[str, Any]] = ()

    def half_width(self, name: str) -> float:
        """Return the half-width of the logarithmic interval of a mode, or of "rollout" or "training" [].

        Args:
            name: of a mode or a part of the step.
        """
        own = self.asked.measured_step_s is not None and name in MODES
        return self.plan.goal.constants.value("interval.own" if own else f"interval.{name}")


def find_asked_post_training(asked: PostTrainingQuestion, context: Context | None = None) -> PostTraining:
    """Return the plan of a question.

    Args:
        asked: the question.
        context: progress and cancelling.

    Raises `QuestionError` with a sentence for a question that contradicts itself, the errors of loading model and
    system, and `engine.ExplorationCancelled`.
    """
    context = context or Context()
    goal = post_training_goal(asked)
    if asked.measured_step_s is not None:
        goal = _with_own_software(asked, goal)
    plan = find_post_training(goal, progress=context.tell, cancel=context.stops)
    sizes = {goal.num_procs: plan}
    if asked.sizes:
        unit = split_unit(goal.system)
        for factor in SIZES:
            gpus = max(round(goal.num_procs * factor / unit), 1) * unit
            if gpus not in sizes:
                other = replace(goal, num_procs=gpus, split=None)
                sizes[gpus] = find_post_training(other, cancel=context.stops, with_change=False, evaluate_all=0)
    changes = find_changes(asked, plan, post_training_goal, context.stops) if asked.changes else ()
    return PostTraining(asked, plan, dict(sorted(sizes.items())) if asked.sizes else {}, changes)


def post_training_goal(asked: PostTrainingQuestion) -> PostTrainingGoal:
    """Return the goal of a question, without a search; its factor of the software is the release's.

    Args:
        asked: the question.

    Raises `QuestionError` with a sentence for a question that contradicts itself, and the errors of loading models and
    system.
    """
    is_pooled = asked.mode not in ("any", "colocated")
    if asked.measured_step_s is not None and (asked.mode == "any" or (is_pooled and asked.split is None)):
        raise QuestionError("`measured_step_s` needs the `mode` that was measured, and its `split` if it has one.")
    if asked.measured_step_s is not None and asked.software is not None:
        raise QuestionError("`software` and `measured_step_s` set the same factor; give one of them.")
    return _goal_of(asked)


def _with_own_software(asked: PostTrainingQuestion, goal: PostTrainingGoal) -> PostTrainingGoal:
    """Return a goal whose factor of the software makes the predicted step the measured one."""
    plain_plan = find_post_training(replace(goal, software=1.0), with_change=False)
    found = plain_plan.best.get(asked.mode)
    if found is None:
        return goal
    assert asked.measured_step_s is not None
    return replace(goal, software=asked.measured_step_s / found.step.seconds)


def longest_sequence(model: Model) -> int | None:
    """Return the tokens for which a model has positions; None if it does not say.

    Args:
        model: any model.
    """
    return None if model.architecture is None else model.architecture.max_seq


def _goal_of(asked: PostTrainingQuestion) -> PostTrainingGoal:
    model, system = found_model(asked.model), found_system(asked.system)
    law = _law_of(asked)
    samples = asked.prompts * asked.group
    if samples > MOST_SAMPLES:
        raise QuestionError(
            f"A step has {samples:,} samples, `prompts` times `group`; it must have at most {MOST_SAMPLES:,}."
        )
    longest = asked.prompt_tokens + math.ceil(law.cap)
    most = longest_sequence(model)
    if most is not None and longest > most:
        raise QuestionError(
            f"Prompt and longest response have {longest:,} tokens; {model.title or model.name} has positions for "
            f"{most:,}."
        )
    if samples % asked.updates:
        raise QuestionError(f"`updates` must divide the {samples:,} samples of a step; {asked.updates:,} does not.")
    pack_to = longest if asked.pack_to is None else asked.pack_to
    if pack_to < longest:
        raise QuestionError(f"`pack_to` is {pack_to:,}; the longest prompt and response have {longest:,} tokens.")
    if asked.staleness is not None and asked.mode in ("colocated", "one_step_off"):
        raise QuestionError(
            f"`staleness` is for asynchronous mode; samples of {asked.mode} are "
            f"{'of the same step' if asked.mode == 'colocated' else 'one step old'}."
        )
    if asked.pass_rate is not None and asked.method != "dapo":
        raise QuestionError(f"`pass_rate` is for DAPO, which throws groups away; {asked.method.upper()} keeps all.")
    _check_split(asked, split_unit(system))
    if asked.helping and asked.mode == "colocated":
        raise QuestionError("`helping` is for modes with two pools; colocated generates on all GPUs already.")
    releases = library_constants().releases(asked.framework)
    if asked.release is not None and asked.release not in releases:
        known = ", ".join(releases) or "none"
        raise QuestionError(
            f"{asked.framework} has no release {shown(asked.release)}{did_you_mean(asked.release, releases)}; with a "
            f"factor: {known}."
        )
    old = asked.updates > 1 if asked.old_log_probs is None else asked.old_log_probs
    reference = asked.method != "dapo" if asked.reference is None else asked.reference
    if not system.has_rate(asked.training.train_datatype):
        raise QuestionError(
            f"{system.title or system.name} does not compute in {shown(asked.training.train_datatype)}."
        )
    if asked.launched > 1.0 and asked.mode == "asynchronous":
        raise QuestionError("`launched` is for modes that wait for the longest response; asynchronous does not.")
    launched, kept = law.first(asked.launched) if asked.launched > 1.0 else (None, law)
    work = IterationWork(
        samples,
        asked.group,
        float(asked.prompt_tokens),
        kept,
        asked.updates,
        int(old) + int(reference),
        has_critic=asked.method == "ppo",
        rounds=_rounds_of(asked),
        reward_s=asked.reward_s,
        tool_s=asked.tool_s,
        launched=asked.launched,
        launched_law=launched,
    )
    return PostTrainingGoal(
        model,
        system,
        asked.num_procs,
        work,
        pack_to,
        modes=_modes_of(asked),
        staleness=asked.staleness or STALENESS,
        split=None if asked.split is None else (asked.split[0], asked.split[1]),
        datatype=asked.training.train_datatype,
        training_limits=asked.training.limits,
        rollout_bits=8 if asked.rollout.datatype == "float8" else 16,
        rollout_tensor_par=tuple(asked.rollout.tensor_par or ()),
        memory_share=asked.rollout.memory_share,
        max_sequences=asked.rollout.max_sequences,
        synchronisation=asked.synchronisation,
        framework=asked.framework,
        release=asked.release,
        software=asked.software,
        judge=_judge_of(asked, longest),
        teacher=_teacher_of(asked, model, pack_to),
        speculation=_speculation_of(asked),
        is_helping=asked.helping,
    )


def _judge_of(asked: PostTrainingQuestion, longest: int) -> Judge | None:
    said = asked.judge
    if said.scored_by is None:
        given = "own_gpus" if said.own_gpus is not None else "answer_tokens" if said.answer_tokens is not None else ""
        if given:
            raise QuestionError(f"`{given}` needs a judge: give `scored_by`, the model that scores the responses.")
        return None
    model = found_model(said.scored_by)
    tokens = said.answer_tokens or JUDGE_TOKENS
    most = longest_sequence(model)
    if most is not None and longest + tokens > most:
        raise QuestionError(
            f"The judge reads and writes {longest + tokens:,} tokens; {model.title or model.name} has positions for "
            f"{most:,}."
        )
    return Judge(model, tokens, said.own_gpus)


def _teacher_of(asked: PostTrainingQuestion, student: Model, pack_to: int) -> Model | None:
    if asked.teacher is None:
        return None
    teacher = found_model(asked.teacher)
    most = longest_sequence(teacher)
    if most is not None and pack_to > most:
        raise QuestionError(
            f"Packs have {pack_to:,} tokens; the teacher {teacher.title or teacher.name} has positions for {most:,}."
        )
    own, other = (None if each.architecture is None else each.architecture.vocab for each in (student, teacher))
    if own is not None and other is not None and own != other:
        raise QuestionError(
            f"The teacher {teacher.title or teacher.name} has {other:,} tokens in its vocabulary, the model {own:,}; "
            "log-probabilities need the same."
        )
    return teacher


def _speculation_of(asked: PostTrainingQuestion) -> Speculation | None:
    said = asked.speculation
    if said.accepted is None:
        given = "drafted" if said.drafted is not None else "draft_cost" if said.draft_cost is not None else ""
        if given:
            raise QuestionError(f"`{given}` needs `accepted`, the tokens that a step of speculation gains.")
        return None
    drafted = said.drafted or max(DRAFTED, math.ceil(said.accepted) - 1)
    if said.accepted > drafted + 1:
        raise QuestionError(
            f"`accepted` is {said.accepted:g}; with {drafted:,} drafted tokens a step gains at most {drafted + 1:,}."
        )
    return Speculation(said.accepted, drafted, DRAFT_COST if said.draft_cost is None else said.draft_cost)


def _law_of(asked: PostTrainingQuestion) -> LengthLaw:
    said = asked.response
    try:
        if said.lengths is not None:
            if said.mean is not None or said.cap is not None:
                raise QuestionError("`response` has either lengths, or mean and cap.")
            return LengthLaw.histogram(said.lengths)
        if said.mean is None or said.cap is None:
            raise QuestionError("`response` needs mean and cap, or lengths.")
        return LengthLaw.lognormal(said.mean, said.cap, said.cv)
    except LengthError as problem:
        raise QuestionError(f"`response`: {problem}") from None


def _rounds_of(asked: PostTrainingQuestion) -> float:
    """Return the rollouts per kept group: all right or all wrong ones are generated again."""
    q, n = asked.pass_rate, asked.group
    if q is None:
        return 1.0
    kept = 1.0 - q**n - (1.0 - q) ** n
    if kept < 1e-3:
        raise QuestionError(
            f"With `pass_rate` {q:g} and {n:,} responses per prompt DAPO keeps {kept:.2g} of the groups; it must keep "
            "at least 0.001."
        )
    return 1.0 / kept


def _modes_of(asked: PostTrainingQuestion) -> tuple[str, ...]:
    if asked.mode != "any":
        return (asked.mode,)
    modes = MODES if asked.split is None else MODES[1:]
    # Asynchronous rollouts wait for no response: nothing is launched in vain.
    return modes if asked.launched == 1.0 else tuple(each for each in modes if each != "asynchronous")


def _left_out_reasons(found: PostTraining) -> dict[str, str]:
    """Return why modes were not searched although any was asked for."""
    reasons = {}
    if found.asked.mode == "any" and found.asked.launched > 1.0:
        reasons["asynchronous"] = "Not searched: an asynchronous rollout waits for no response."
    if found.asked.mode == "any" and found.asked.split is not None:
        reasons["colocated"] = "Not searched: colocated shares all GPUs and has no split."
    return reasons


def _check_split(asked: PostTrainingQuestion, unit: int) -> None:
    if asked.split is None:
        return
    if asked.mode == "colocated":
        raise QuestionError("`split` is for modes with two pools; colocated shares all GPUs.")
    train, rollout = asked.split
    if train + rollout != asked.num_procs:
        raise QuestionError(f"`split` has {train + rollout:,} GPUs; it must have all {asked.num_procs:,}.")
    if asked.num_procs > unit and (train % unit or rollout % unit):
        raise QuestionError(f"`split` must be whole nodes of {unit} GPUs; {train:,}:{rollout:,} is not.")


def post_training_document(found: PostTraining) -> dict[str, Any]:
    """Return the answer to a question as JSON has it.

    Args:
        found: plan of the question.
    """
    plan, goal = found.plan, found.plan.goal
    best = sorted(plan.best.values(), key=lambda each: each.step.seconds)
    nearest = nearest_rows(
        parameters=goal.parameters,
        system=goal.system.name,
        gpus=goal.num_procs,
        is_colocated=bool(best) and best[0].step.mode == "colocated",
        response=goal.work.law.mean,
        samples=goal.work.samples,
    )
    return {
        "model": goal.model.name,
        "system": goal.system.name,
        "num_procs": goal.num_procs,
        "samples": goal.work.samples,
        "kind": "modelled",
        "basis": BASIS,
        "mode": best[0].step.mode if best else None,
        "best": [_mode_row(found, each) for each in best],
        "curve": [
            {
                "mode": each.mode,
                "gpus_train": each.gpus_train,
                "gpus_rollout": each.gpus_rollout,
                "step_s": each.seconds,
            }
            for each in plan.curve
        ],
        "splits": plan.splits,
        "evaluated": plan.evaluated,
        "sizes": _size_rows(found),
        "crossing": _describe_crossing(found),
        "changes": [dict(each) for each in found.changes],
        "nearest": [{name: plain(value) for name, value in row.items()} for row in nearest],
        "reasons": {**_left_out_reasons(found), **plan.reasons},
        "change": plan.change,
        "software": goal.terms.software,
        "units": {"step_s": "s", "seconds": "s", "days": "days", "usd": "USD", "gib": "GiB", "has": "GiB"},
    }


def _spread(value: float, half: float) -> dict[str, float]:
    return {"value": value, "low": value * math.exp(-half), "high": value * math.exp(half)}


def _mode_row(found: PostTraining, best: ModeStep) -> dict[str, Any]:
    goal, step = found.plan.goal, best.step
    half = found.half_width(step.mode)
    days = found.asked.steps * step.seconds / DAY
    tokens = goal.work.samples * (goal.work.prompt + goal.work.law.mean)
    return {
        "mode": step.mode,
        "gpus_train": best.gpus_train,
        "gpus_rollout": best.gpus_rollout,
        "step_s": _spread(step.seconds, half),
        "phases": _phase_rows(found, best, step),
        "idle_training": step.idle_training,
        "idle_rollout": step.idle_rollout,
        "tail_ratio": step.tail_ratio,
        "staleness_mean": step.staleness,
        "tokens_per_s_per_gpu": tokens / step.seconds / goal.gpus_in_all,
        "days": _spread(days, half),
        "usd": _usd_of(found, days, half),
        "memory": [
            {
                "phase": each.phase,
                "gib": each.needs / GIB,
                "has": each.has / GIB,
                "parts": {name: value / GIB for name, value in each.parts.items() if value},
            }
            for each in best.memory
        ],
        "binds": tightest_phase(best.memory).phase,
        "layout": execution_name(best.execution),
        "execution": {str(name): plain(value) for name, value in best.execution.items()},
        "deployment": {str(name): plain(value) for name, value in best.deployment.items()},
        "judge": None if best.judge is None else {str(name): plain(value) for name, value in best.judge.items()},
    }


def _phase_rows(found: PostTraining, best: ModeStep, step: IterationStep) -> list[dict[str, Any]]:
    goal = found.plan.goal
    gpus = {"rollout": best.gpus_rollout, "training": best.gpus_train, "all": goal.num_procs}
    gpus["judge"] = goal.gpus_in_all - goal.num_procs
    return [
        {
            "name": each.name,
            "seconds": _spread(
                each.seconds, found.half_width("training" if each.name in TRAINING_PHASES else "rollout")
            ),
            "gpus": gpus[each.pool],
        }
        for each in step.phases
        if each.seconds
    ]


def _usd_of(found: PostTraining, days: float, half: float) -> dict[str, float] | None:
    goal, price = found.plan.goal, found.asked.price_usd_per_h
    prices = (price, price) if price is not None else _recorded_prices(goal)
    if prices is None:
        return None
    hours = days * HOURS * goal.gpus_in_all
    low, high = prices
    return {
        "value": hours * (low + high) / 2.0,
        "low": hours * low * math.exp(-half),
        "high": hours * high * math.exp(half),
    }


def _recorded_prices(goal: PostTrainingGoal) -> tuple[float, float] | None:
    accelerator = goal.system.accelerator
    return None if accelerator is None else accelerator.usd_per_h


def _size_rows(found: PostTraining) -> list[dict[str, Any]]:
    return [
        {
            "num_procs": gpus,
            **{f"{mode}_s": plan.best[mode].step.seconds if mode in plan.best else None for mode in plan.goal.modes},
        }
        for gpus, plan in found.sizes.items()
    ]


def _describe_crossing(found: PostTraining) -> str:
    """Return from which number of GPUs on a split with samples one step old is faster than shared GPUs."""
    both = {
        gpus: plan.best["one_step_off"].step.seconds < plan.best["colocated"].step.seconds
        for gpus, plan in found.sizes.items()
        if "one_step_off" in plan.best and "colocated" in plan.best
    }
    if len(both) < 2:
        return ""
    sizes = list(both)
    if all(both.values()) or not any(both.values()):
        faster = "One step off" if all(both.values()) else "Colocated"
        return f"{faster} is faster at {sizes[0]:,} to {sizes[-1]:,} GPUs."
    first = next((gpus for gpus in sizes if all(both[each] for each in sizes if each >= gpus)), None)
    if first is None:
        return f"Between {sizes[0]:,} and {sizes[-1]:,} GPUs neither mode is always faster."
    before = max(each for each in sizes if each < first)
    return f"Colocated is faster up to {before:,} GPUs, one step off from {first:,} GPUs on."


def _answer_post_training(asked: PostTrainingQuestion, context: Context) -> dict[str, Any]:
    return post_training_document(find_asked_post_training(asked, context))


PLAN_POST_TRAINING = Verb(
    "plan_post_training",
    "Plan reinforcement learning",
    "Finds how to run reinforcement learning of a model on a number of GPUs: shared or split between rollout and "
    "training, how many for each, execution and deployment, step by phase with intervals, memory by phase, idle "
    "shares, days, cost, and the nearest measured runs.",
    PostTrainingQuestion,
    PostTrainingAnswer,
    _answer_post_training,
)
