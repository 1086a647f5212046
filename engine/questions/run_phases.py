"""Plans of runs in phases: pre-training, fine-tuning, reinforcement learning and serving on one system."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import hardware
from engine.economics import RunInputs, parameter_count
from engine.executions.execution_names import execution_name
from engine.fine_tuning import FineTuningGoal, plan_method
from engine.lifetime import (
    Chain,
    ChainChange,
    ChainGoal,
    ChainsOnSystem,
    ChainTerms,
    PhaseCurve,
    ServiceShare,
    StepFound,
    chains_on_system,
    curve_of_steps,
    curve_of_training,
    explain_chains,
    least_gpus,
    phase_sizes,
)
from engine.post_training.search import ModeStep, find_post_training
from engine.questions.bounds import Context
from engine.questions.documents.cost import PlanRunQuestion, RunAssumptionsQuestion
from engine.questions.documents.fine_tuning import FineTuningQuestion
from engine.questions.documents.post_training import PostTrainingQuestion
from engine.questions.documents.run_phases import (
    PHASE_WORDS,
    LoraPhase,
    PretrainPhase,
    ReinforcementPhase,
    ServePhase,
    TuningPhase,
)
from engine.questions.fine_tuning import fine_tuning_goal
from engine.questions.post_training import JUDGE_BESIDE, find_asked_post_training, post_training_goal
from engine.questions.scenario_documents import found_model
from engine.questions.verb import QuestionError
from engine.recommendation.training_plans import PricedSystem, closer_sizes
from engine.scenarios.scenario import Scenario
from engine.serving import ServiceLoad, size_service
from hardware import System
from models import Model

__all__ = ["ChainPlan", "OfferedChains", "ServedPhase", "Steps", "find_chain_plan", "pretrain_scenario"]

Search = Callable[[Scenario], Mapping[str, Any] | None]
Steps = MutableMapping[str, StepFound | str]
"""Steps of fine-tuning and of reinforcement learning, or reasons for missing ones, by question."""
MOST_SAMPLES: Final = 10**12
"""Samples of a data set at most, as `plan_fine_tuning` takes them."""
TRAINING: Final = (PretrainPhase, TuningPhase, LoraPhase, ReinforcementPhase)
METHODS_OF: Final = {"sft": "full", "lora": "lora"}
"""Methods of fine-tuning by kind of phase."""
BEYOND: Final = 2
"""Multiple of GPUs that are given up to which sizes are tried. Source: stated by us."""


class ServedPhase(NamedTuple):
    """Service of a plan: its phase, name, model, and the best service."""

    phase: ServePhase
    name: str
    model: Model
    best: Mapping[str, Any]

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return int(self.best["gpus"])


@dataclass(frozen=True, eq=False)
class OfferedChains:
    """Chains on one system that can be had."""

    offer: PricedSystem
    chains: ChainsOnSystem
    services: tuple[ServedPhase, ...]
    mtbf_h: float
    """Time between failures of one GPU [h]."""


@dataclass(frozen=True, eq=False)
class ChainPlan:
    """Plan of phases: chains by system, the best system, and what binds."""

    asked: PlanRunQuestion
    systems: tuple[OfferedChains, ...]
    chosen: OfferedChains | None
    changes: tuple[ChainChange, ...]

    @property
    def chain(self) -> Chain | None:
        """The planned chain; None if nothing reaches the goal."""
        return None if self.chosen is None else self.chosen.chains.chosen


def find_chain_plan(
    asked: PlanRunQuestion,
    offers: Sequence[PricedSystem],
    search: Search,
    context: Context,
    steps: Steps | None = None,
) -> ChainPlan:
    """Return the plan of a question with phases.

    Args:
        asked: the question.
        offers: its systems.
        search: returns the execution to run of a scenario.
        context: bounds, progress and cancelling.
        steps: remembers steps from plan to plan; None to search all of them.

    Raises `QuestionError`, the errors of loading models and systems, and `engine.ExplorationCancelled`.
    """
    names, known = _check(asked), {} if steps is None else steps
    planners = [_OfferPlanner(asked, offer, names, search, context, known) for offer in offers]
    for planner in planners:
        planner.check()
    found = []
    for number, planner in enumerate(planners):

        def tell(share: float, doing: str, before: int = number) -> None:
            context.tell((before + share) / len(planners), doing)

        found.append(planner.plan(tell))
    able = [place for place, each in enumerate(found) if each.chains.chosen is not None]
    best = min(able, key=lambda place: _rank(found[place]), default=None)
    nearest = best if best is not None else _nearest(found)
    changes = [] if nearest is None else explain_chains(found[nearest].chains, planners[nearest].grow)
    return ChainPlan(asked, tuple(found), None if best is None else found[best], tuple(changes))


def _check(asked: PlanRunQuestion) -> list[str]:
    """Return the names of the phases; raise `QuestionError` for phases that contradict each other."""
    phases = asked.phases or []
    if asked.tokens is not None:
        raise QuestionError("Give either `tokens` or `phases`; a phase of kind pretrain has tokens of its own.")
    if asked.deadline_days is None and asked.budget_usd is None and asked.num_procs is None:
        raise QuestionError("A plan of phases needs one of `deadline_days`, `budget_usd` and `num_procs`.")
    if not any(isinstance(phase, TRAINING) for phase in phases):
        raise QuestionError("No phase trains; give one of kind pretrain, sft, lora or rl, or ask `size_service`.")
    names: list[str] = []
    for phase in phases:
        name = phase.name or PHASE_WORDS[phase.kind]
        names.append(name if name not in names else f"{name} ({sum(each.startswith(name) for each in names) + 1})")
    last_after: str | None = None
    last_tuned: str | None = None
    for phase, name in zip(phases, names, strict=True):
        if isinstance(phase, ServePhase):
            _check_service(phase, name)
            last_after = name if phase.when == "after" and phase.model is None else last_after
            continue
        if last_after is not None:
            raise QuestionError(
                f"{last_after} comes before {name}, which trains what it serves; put it last, or serve meanwhile."
            )
        if isinstance(phase, PretrainPhase) and last_tuned is not None:
            raise QuestionError(f"{name} comes after {last_tuned}; pre-training comes first.")
        last_tuned = last_tuned if isinstance(phase, PretrainPhase) else name
        if isinstance(phase, TuningPhase | LoraPhase) and (phase.tokens is None) == (phase.samples is None):
            raise QuestionError(f"{name} needs the size of its data set: give either `tokens` or `samples`.")
        if isinstance(phase, ReinforcementPhase) and (phase.measured_step_s is None) != (phase.measured_procs is None):
            raise QuestionError(f"{name}: give `measured_step_s` and `measured_procs` together, or neither.")
    return names


def _check_service(phase: ServePhase, name: str) -> None:
    if (phase.rate is None) == (phase.users is None):
        raise QuestionError(f"{name} needs a load: give either `rate`, in requests per second, or `users`.")
    if phase.think_s and phase.users is None:
        raise QuestionError(f"{name}: `think_s` is the pause of users; give `users`, or leave it out.")
    if phase.days and phase.when == "meanwhile":
        raise QuestionError(f"{name}: `days` is for serving afterwards; meanwhile lasts as long as the phases.")


def _rank(found: OfferedChains) -> tuple[float, ...]:
    """Return the sort key of a system: shortest without a deadline, else cheapest, priced ones first."""
    chain = found.chains.chosen
    assert chain is not None
    days, usd = chain.days.value, chain.usd
    if found.chains.goal.is_shortest and found.chains.goal.num_procs is None:
        return (days,)
    return (math.inf, chain.gpu_hours.value) if usd is None else (usd.value, days)


def _nearest(found: Sequence[OfferedChains]) -> int | None:
    """Return the position of the system whose shortest chain takes the fewest days; None if nothing runs."""
    able = [place for place, each in enumerate(found) if each.chains.front]
    return min(able, key=lambda place: found[place].chains.front[0].days.value, default=None)


def pretrain_scenario(asked: PlanRunQuestion, phase: PretrainPhase, system: System, gpus: int) -> Scenario:
    """Return the scenario of pre-training on so many GPUs.

    Args:
        asked: the question.
        phase: one of its phases.
        system: one of its systems.
        gpus: of the phase.
    """
    return Scenario.of(
        found_model(asked.model),
        system,
        num_procs=gpus,
        max_batch_size=phase.max_batch_size or asked.max_batch_size,
        datatype=asked.datatype,
        limits={**asked.limits, **phase.limits},
        cost_model=asked.cost_model,
    )


class _OfferPlanner:
    """Plan of phases on one system."""

    def __init__(
        self,
        asked: PlanRunQuestion,
        offer: PricedSystem,
        names: Sequence[str],
        search: Search,
        context: Context,
        steps: Steps,
    ) -> None:
        self.asked, self.offer, self.search, self.context, self.steps = asked, offer, search, context, steps
        self.phases = list(zip(asked.phases or (), names, strict=True))
        self.trained = [(phase, name) for phase, name in self.phases if not isinstance(phase, ServePhase)]
        assumptions = {name: getattr(asked, name) for name in RunAssumptionsQuestion.model_fields}
        self.inputs = RunInputs.of(offer.system, **offer.hourly(), **assumptions)
        self.goal = ChainGoal(asked.deadline_days, asked.budget_usd, asked.num_procs, asked.room_for_error)
        self.curves: list[PhaseCurve] = []
        self.softwares: dict[int, float] = {}

    def check(self) -> None:
        """Raise `QuestionError`, with the phase's name, for a phase that contradicts itself: before any search."""
        node = self.offer.system.node_size
        for phase, name in self.trained:
            try:
                if isinstance(phase, ReinforcementPhase):
                    if dict(phase)["judge"].own_gpus is not None:
                        raise QuestionError(JUDGE_BESIDE)
                    post_training_goal(self._question(phase, node))
                elif isinstance(phase, PretrainPhase):
                    self.context.bounds.searchable(self._scenario(phase, node))
                else:
                    fine_tuning_goal(self._tuning(phase))
            except QuestionError as problem:
                raise QuestionError(f"{name}: {problem}") from None

    def plan(self, tell: Callable[[float, str], None]) -> OfferedChains:
        """Return the chains on the system."""
        services, obstacle = self._size_services(tell)
        share = ServiceShare(
            sum(each.gpus for each in services if each.phase.when == "meanwhile"),
            sum(each.gpus * each.phase.days for each in services if each.phase.when == "after"),
        )
        if not obstacle and self.offer.usd_per_kwh > 0.0 and self.inputs.power_w is None:
            obstacle = "No power is recorded, so electricity has no cost; leave usd_per_kwh out."
        if not obstacle and share.beside >= self.offer.most_procs:
            obstacle = f"Serving takes {share.beside:,} of {self.offer.most_procs:,} GPUs; none is left to train."
        if obstacle:
            nothing = ChainsOnSystem((), self._terms(), self.goal, share, 0, (), None, obstacle, None, None)
            return OfferedChains(self.offer, nothing, services, self.inputs.mtbf_h)
        most = max(self.offer.most_procs - share.beside, 1)
        if self.goal.num_procs is not None:  # a little beyond, to show what more would bring
            most = min(most, BEYOND * self.goal.num_procs)
        for place, (phase, name) in enumerate(self.trained):

            def tell_size(share: float, doing: str, before: int = place) -> None:
                tell((before + share) / (len(self.trained) + 1), f"{self.offer.system.name}: {doing}")

            self.curves.append(self._curve(phase, name, self._sizes(phase, most), tell_size))
        found = self._solve(share)
        if found.chosen is not None and self.goal.num_procs is None:
            for place, size in enumerate(found.chosen.sizes):
                tried = [each.gpus for each in self.curves[place].sizes]
                closer = closer_sizes(self.offer.system.node_size, size.gpus, tried, most)
                self._add_sizes(place, [each for each in closer if each not in tried])
            found = self._solve(share)
        return OfferedChains(self.offer, found, services, self.inputs.mtbf_h)

    def grow(self) -> tuple[list[PhaseCurve], int]:
        """Return the curves with a node more than is available, and the GPUs then available."""
        node, most = self.offer.system.node_size, self.offer.most_procs
        most = self.goal.num_procs or most
        wider = []
        for (phase, name), curve in zip(self.trained, self.curves, strict=True):
            largest = max((size.gpus for size in curve.sizes), default=0)
            # Where more GPUs than are tried bring nothing, neither does a node more.
            more = self._curve(phase, name, [most + node]) if 2 * largest > most else None
            wider.append(curve if more is None else _merged(curve, more))
        return wider, self.offer.most_procs + node

    def _solve(self, share: ServiceShare) -> ChainsOnSystem:
        return chains_on_system(self.curves, self._terms(), self.goal, most=self.offer.most_procs, service=share)

    def _terms(self) -> ChainTerms:
        inputs, offer = self.inputs, self.offer
        watts = (inputs.power_w or 0.0) * inputs.power_share * inputs.pue
        return ChainTerms(
            inputs.usd_low,
            inputs.usd_high,
            offer.usd_per_kwh * watts / 1e3,
            offer.terms != "rent",
            offer.reserved_days if offer.terms == "reserve" else 0.0,
        )

    def _size_services(self, tell: Callable[[float, str], None]) -> tuple[tuple[ServedPhase, ...], str]:
        found: list[ServedPhase] = []
        for phase, name in self.phases:
            if not isinstance(phase, ServePhase):
                continue
            model = found_model(self.asked.model if phase.model is None else phase.model)
            load = (
                ServiceLoad(request_rate=phase.rate)
                if phase.users is None
                else ServiceLoad(users=phase.users, think_s=phase.think_s)
            )
            sizing = size_service(
                model,
                self.offer.system,
                load=load,
                prompt=phase.prompt,
                output=phase.output,
                most_procs=self.offer.most_procs,
                limits=phase.limits,
                time_to_first_token=phase.time_to_first_token_s,
                time_per_output_token=phase.time_per_output_token_s,
                level=phase.held_at,
                progress=lambda share, doing: tell(0.0, doing),
                cancel=self.context.stops,
            )
            if sizing.best is None:
                reason = sizing.obstacle or "no deployment holds its limits on the GPUs available."
                return tuple(found), f"{name}: {reason}"
            found.append(ServedPhase(phase, name, model, sizing.best))
        return tuple(found), ""

    def _sizes(self, phase: Any, most: int) -> list[int]:
        node = self.offer.system.node_size
        if not isinstance(phase, PretrainPhase):
            is_short = any(isinstance(each, PretrainPhase) for each, _ in self.trained)
            return self._with_given(phase_sizes(node, 1.0, most, is_short=is_short))
        scenario = self._scenario(phase, node)
        least = least_gpus(
            scenario,
            phase.tokens,
            self.goal.deadline_days,
            is_offloaded=self.asked.offload or self.asked.figures_of == "fastest",
        )
        return self._with_given(phase_sizes(node, least, most))

    def _with_given(self, sizes: list[int]) -> list[int]:
        """Return sizes with the GPUs that are given."""
        given = self.goal.num_procs
        return sizes if given is None or given > self.offer.most_procs else sorted({*sizes, given})

    def _add_sizes(self, place: int, sizes: Sequence[int]) -> None:
        if sizes:
            phase, name = self.trained[place]
            self.curves[place] = _merged(self.curves[place], self._curve(phase, name, sizes))

    def _curve(
        self,
        phase: Any,
        name: str,
        sizes: Sequence[int],
        tell: Callable[[float, str], None] = lambda share, doing: None,
    ) -> PhaseCurve:
        stops = self.context.stops
        if isinstance(phase, ReinforcementPhase):
            inputs = replace(self.inputs, tokens=float(phase.steps))
            parameters = float(parameter_count(found_model(self.asked.model)))
            return curve_of_steps(
                name, phase.kind, sizes, lambda gpus: self._step(phase, gpus), parameters, inputs, tell, stops
            )
        if not isinstance(phase, PretrainPhase):
            question = self._tuning(phase)
            goal = fine_tuning_goal(question)
            inputs = replace(self.inputs, tokens=float(goal.steps))
            parameters = float(parameter_count(goal.model))
            return curve_of_steps(
                name,
                phase.kind,
                sizes,
                lambda gpus: self._tune(question, goal, gpus),
                parameters,
                inputs,
                tell,
                stops,
            )
        inputs = replace(self.inputs, tokens=phase.tokens)
        return curve_of_training(
            name, phase.kind, sizes, lambda gpus: self._scenario(phase, gpus), self.search, inputs, tell, stops
        )

    def _scenario(self, phase: PretrainPhase, gpus: int) -> Scenario:
        return pretrain_scenario(self.asked, phase, self.offer.system, gpus)

    def _step(self, phase: Any, gpus: int) -> StepFound | str:
        """Return the fastest step on so many GPUs, or the reason why none runs."""
        question = self._question(phase, gpus)
        is_own = phase.measured_step_s is not None
        software = self._software(phase) if is_own else None
        key = f"{question.model_dump_json()}, {software}"
        if key not in self.steps:
            self.steps[key] = self._find_step(question, software)
        return self.steps[key]

    def _find_step(self, question: PostTrainingQuestion, software: float | None) -> StepFound | str:
        goal = post_training_goal(question)
        is_own = software is not None
        if is_own:
            goal = replace(goal, software=software)
        found = find_post_training(goal, cancel=self.context.stops, with_change=False, evaluate_all=0)
        best = found.chosen
        if best is None:
            return " ".join(dict.fromkeys(found.reasons.values()))
        half = goal.constants.value("interval.own" if is_own else f"interval.{best.step.mode}")
        return StepFound(best.step.seconds, math.exp(-half), math.exp(half), _step_words(best), best)

    def _tuning(self, phase: Any) -> FineTuningQuestion:
        """Return the question of a phase of fine-tuning, as `plan_fine_tuning` has it."""
        said = {
            name: getattr(phase, name) for name in FineTuningQuestion.model_fields if name in type(phase).model_fields
        }
        samples = phase.samples
        if samples is None:
            mean = phase.lengths.mean
            if mean is None:
                mean = sum(phase.lengths.lengths or (1.0,)) / len(phase.lengths.lengths or (1.0,))
            samples = max(round(phase.tokens / mean), 1)
            if samples > MOST_SAMPLES:
                raise QuestionError(
                    f"{phase.tokens:,.4g} tokens are {samples:,.4g} samples; a data set has at most {MOST_SAMPLES:,}."
                )
        return FineTuningQuestion(
            **{**said, "samples": samples, "method": METHODS_OF[phase.kind]},
            model=self.asked.model,
            system=hardware.to_document(self.offer.system),
        )

    def _tune(self, question: FineTuningQuestion, goal: FineTuningGoal, gpus: int) -> StepFound | str:
        """Return the fastest step of fine-tuning on so many GPUs, or the reason why none runs."""
        key = f"{question.model_dump_json()}, {gpus}"
        if key not in self.steps:
            self.steps[key] = self._find_tuning(goal, question.method, gpus)
        return self.steps[key]

    @staticmethod
    def _find_tuning(goal: FineTuningGoal, method: str, gpus: int) -> StepFound | str:
        found = plan_method(goal, method, gpus)
        if found.seconds is None:
            return found.reason
        low, high = (None, None) if found.interval is None else (found.interval.low, found.interval.high)
        return StepFound(found.seconds / goal.steps, low, high, execution_name(found.row), found.row)

    def _software(self, phase: Any) -> float:
        """Return the factor of one's own software, from a step measured on some number of GPUs."""
        if id(phase) not in self.softwares:
            asked = self._question(phase, phase.measured_procs, measured_step_s=phase.measured_step_s)
            self.softwares[id(phase)] = find_asked_post_training(asked).plan.goal.terms.software
        return self.softwares[id(phase)]

    def _question(self, phase: Any, gpus: int, **more: Any) -> PostTrainingQuestion:
        said = {
            name: getattr(phase, name)
            for name in PostTrainingQuestion.model_fields
            if name in type(phase).model_fields and name != "measured_step_s"
        }
        return PostTrainingQuestion(
            **{
                **said,
                **more,
                "model": self.asked.model,
                "system": hardware.to_document(self.offer.system),
                "num_procs": gpus,
            }
        )


def _step_words(step: ModeStep) -> str:
    mode = step.step.mode
    if mode == "colocated":
        return f"colocated, {execution_name(step.execution)}"
    return f"{mode.replace('_', ' ')}, {step.gpus_train:,} train and {step.gpus_rollout:,} generate"


def _merged(first: PhaseCurve, second: PhaseCurve) -> PhaseCurve:
    sizes = {each.gpus: each for each in (*first.sizes, *second.sizes)}
    return replace(
        first, sizes=tuple(sizes[gpus] for gpus in sorted(sizes)), refused={**first.refused, **second.refused}
    )
