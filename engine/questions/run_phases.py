"""Plans of runs in phases: pre-training, fine-tuning, reinforcement learning and serving on one system."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

from pydantic import Field

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
    PhaseSize,
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
from engine.questions.plain import plain
from engine.questions.post_training import find_asked_post_training, post_training_goal
from engine.questions.scenario_documents import found_model
from engine.questions.verb import Document, QuestionError, Row
from engine.recommendation.training_plans import PricedSystem, RunFigure, closer_sizes
from engine.scenarios.scenario import Scenario
from engine.serving import ServiceLoad, size_service
from hardware import System
from models import Model

__all__ = ["ChainPlan", "OfferedChains", "PhasedRunRow", "ServedPhase", "chain_document", "find_chain_plan", "verdict"]

Search = Callable[[Scenario], Mapping[str, Any] | None]
TRAINING: Final = (PretrainPhase, TuningPhase, LoraPhase, ReinforcementPhase)
METHODS_OF: Final = {"sft": "full", "lora": "lora"}
"""Methods of fine-tuning by kind of phase."""
BEYOND: Final = 2
"""Multiple of GPUs that are given up to which sizes are tried. Source: stated by us."""
MOST_FRONT: Final = 60
"""Chains of a front that an answer lists."""
NOT_MODELLED: Final = (
    "All phases run on one system, one after another; a phase begins when the one before is done.",
    "Sizes between those that were tried are left out; limits and fronts are proven over sizes that were tried.",
    "Deployments of services do not fail, and data, evaluation and people take no time.",
)
"""Parts that a plan in phases leaves out."""
BASIS: Final = (
    "Intervals of phases come from measured runs and add up in squares; the number of failures varies as Poisson's law."
)


class PhaseFigureRow(Document):
    """Figure with its interval."""

    value: float
    low: float | None = Field(description="10 % quantile; null where the error is unknown.")
    high: float | None = Field(description="90 % quantile.")


class PhasePlanRow(Document):
    """Training phase in a plan."""

    name: str
    kind: Literal["pretrain", "sft", "lora", "rl"]
    num_procs: int
    start_day: float
    days: PhaseFigureRow = Field(description="Failures and checkpoints included.")
    usd: PhaseFigureRow | None = Field(description="Its share of the cost; null without a price.")
    mwh: float | None
    failures: float
    layout: str
    execution: Row = Field(description="Training execution, as `export_launch` takes it.")
    rollout: Row | None = Field(description="Of reinforcement learning: mode, GPUs of both sides, step, deployment.")


class PhaseServiceRow(Document):
    """Service in a plan."""

    name: str
    model: str
    when: Literal["after", "meanwhile"]
    num_procs: int
    replicas: int
    layout: str
    rate: float = Field(description="Requests served [1/s].")
    days: float | None = Field(description="Days that count in the cost; null for none.")
    usd_per_day: list[float] | None = Field(description="Lowest and highest; null without a price.")
    deployment: Row


class ChainFrontRow(Document):
    """Chain on the front."""

    sizes: list[int] = Field(description="GPUs of each phase.")
    num_procs: int = Field(description="GPUs held throughout where they are held, else the most.")
    days: PhaseFigureRow
    usd: PhaseFigureRow | None
    gpu_hours: PhaseFigureRow
    mwh: float | None
    failures: float
    misses: list[Literal["deadline_days", "budget_usd"]]


class ChainRow(ChainFrontRow):
    """Chosen chain."""

    deadline: str = Field(description="kept, kept at 90 %, or by how much it is missed; empty without one.")
    budget: str
    phases: list[PhasePlanRow]
    services: list[PhaseServiceRow]


class PhaseCurveRow(Document):
    """Sizes of a phase."""

    name: str
    sizes: list[Row] = Field(description="GPUs, days with low and high, failures, mwh, layout.")
    refused: dict[str, str] = Field(description="Sizes at which it does not run, with the reason.")


class SystemChainsRow(Document):
    """Chains on one system."""

    system: str
    terms: Literal["rent", "reserve", "buy"]
    usd_per_gpu_hour: list[float] | None
    is_held: bool = Field(description="Whether the GPUs are held, and paid, from the first phase to the last.")
    chosen: ChainRow | None
    front: list[ChainFrontRow] = Field(description="Days against cost, the shortest first; at most 61.")
    front_size: int
    curves: list[PhaseCurveRow]
    obstacle: str
    relaxation: str = Field(description="Least change with which limits hold; empty with a choice.")


class ChainChangeRow(Document):
    """Limits that are moved."""

    words: str
    days: float | None
    usd: float | None
    gain: float | None = Field(description="By which cost [USD], or days without a deadline, get less.")
    holds: bool


class PhasedRunRow(Document):
    """Plan of phases."""

    model: str
    system: str | None
    chosen: ChainRow | None
    systems: list[SystemChainsRow]
    changes: list[ChainChangeRow] = Field(
        description="A day more, 10 % more budget and a node more, alone and, where it brings more, together."
    )
    relaxation: str
    basis: str
    not_modelled: list[str]


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
    asked: PlanRunQuestion, offers: Sequence[PricedSystem], search: Search, context: Context
) -> ChainPlan:
    """Return the plan of a question with phases.

    Args:
        asked: the question.
        offers: its systems.
        search: returns the execution to run of a scenario.
        context: bounds, progress and cancelling.

    Raises `QuestionError`, the errors of loading models and systems, and `engine.ExplorationCancelled`.
    """
    names = _check(asked)
    planners = [_OfferPlanner(asked, offer, names, search, context) for offer in offers]
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


class _OfferPlanner:
    """Plan of phases on one system."""

    def __init__(
        self, asked: PlanRunQuestion, offer: PricedSystem, names: Sequence[str], search: Search, context: Context
    ) -> None:
        self.asked, self.offer, self.search, self.context = asked, offer, search, context
        self.phases = list(zip(asked.phases or (), names, strict=True))
        self.trained = [(phase, name) for phase, name in self.phases if not isinstance(phase, ServePhase)]
        assumptions = {name: getattr(asked, name) for name in RunAssumptionsQuestion.model_fields}
        self.inputs = RunInputs.of(offer.system, **offer.hourly(), **assumptions)
        self.goal = ChainGoal(asked.deadline_days, asked.budget_usd, asked.num_procs, asked.room_for_error)
        self.curves: list[PhaseCurve] = []
        self.softwares: dict[int, float] = {}

    def plan(self, tell: Callable[[float, str], None]) -> OfferedChains:
        """Return the chains on the system."""
        services, obstacle = self._size_services(tell)
        share = ServiceShare(
            sum(each.gpus for each in services if each.phase.when == "meanwhile"),
            sum(each.gpus * each.phase.days for each in services if each.phase.when == "after"),
        )
        if not obstacle and self.offer.usd_per_kwh > 0.0 and self.inputs.power_w is None:
            obstacle = "No power is recorded, so electricity has no cost; leave usd_per_kwh out."
        if obstacle:
            nothing = ChainsOnSystem((), self._terms(), self.goal, share, 0, (), None, obstacle, None, None)
            return OfferedChains(self.offer, nothing, services)
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
        return OfferedChains(self.offer, found, services)

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
        self.context.bounds.searchable(scenario)  # refuse a datatype or limit before the first size is searched
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
            goal = self._tuning(phase)
            inputs = replace(self.inputs, tokens=float(goal.steps))
            parameters = float(parameter_count(goal.model))
            kind = phase.kind
            return curve_of_steps(
                name, kind, sizes, lambda gpus: self._tune(goal, kind, gpus), parameters, inputs, tell, stops
            )
        inputs = replace(self.inputs, tokens=phase.tokens)
        return curve_of_training(
            name, phase.kind, sizes, lambda gpus: self._scenario(phase, gpus), self.search, inputs, tell, stops
        )

    def _scenario(self, phase: PretrainPhase, gpus: int) -> Scenario:
        asked = self.asked
        return Scenario.of(
            found_model(asked.model),
            self.offer.system,
            num_procs=gpus,
            max_batch_size=phase.max_batch_size or asked.max_batch_size,
            datatype=asked.datatype,
            limits={**asked.limits, **phase.limits},
            cost_model=asked.cost_model,
        )

    def _step(self, phase: Any, gpus: int) -> StepFound | str:
        """Return the fastest step on so many GPUs, or the reason why none runs."""
        goal = post_training_goal(self._question(phase, gpus))
        is_own = phase.measured_step_s is not None
        if is_own:
            goal = replace(goal, software=self._software(phase))
        found = find_post_training(goal, cancel=self.context.stops, with_change=False, evaluate_all=0)
        best = found.chosen
        if best is None:
            return " ".join(dict.fromkeys(found.reasons.values()))
        half = goal.constants.value("interval.own" if is_own else f"interval.{best.step.mode}")
        return StepFound(best.step.seconds, math.exp(-half), math.exp(half), _step_words(best), best)

    def _tuning(self, phase: Any) -> FineTuningGoal:
        """Return the goal of a phase of fine-tuning, as `plan_fine_tuning` has it."""
        said = {
            name: getattr(phase, name) for name in FineTuningQuestion.model_fields if name in type(phase).model_fields
        }
        samples = phase.samples
        if samples is None:
            mean = phase.lengths.mean
            if mean is None:
                mean = sum(phase.lengths.lengths or (1.0,)) / len(phase.lengths.lengths or (1.0,))
            samples = max(round(phase.tokens / mean), 1)
        return fine_tuning_goal(
            FineTuningQuestion(
                **{**said, "samples": samples, "method": METHODS_OF[phase.kind]},
                model=self.asked.model,
                system=_document_of(self.offer.system),
            )
        )

    def _tune(self, goal: FineTuningGoal, kind: str, gpus: int) -> StepFound | str:
        """Return the fastest step of fine-tuning on so many GPUs, or the reason why none runs."""
        found = plan_method(goal, METHODS_OF[kind], gpus)
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
            **{**said, **more, "model": self.asked.model, "system": _document_of(self.offer.system), "num_procs": gpus}
        )


def _document_of(system: System) -> Any:
    import hardware

    return hardware.to_document(system)


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


LIMITS_OF: Final = {"days": "deadline_days", "usd": "budget_usd"}


def verdict(figure: RunFigure, limit: float | None, unit: str) -> str:
    """Return whether a limit is kept: at the value, at the 90 % quantile, or missed by how much; empty without one.

    Args:
        figure: with its interval.
        limit: in the figure's unit; None for none.
        unit: of both.
    """
    if limit is None:
        return ""
    if figure.value > limit * (1 + 1e-9):
        return f"missed by {figure.value - limit:,.3g} {unit}"
    return "kept at 90 %" if figure.high is not None and figure.high <= limit else "kept"


def describe_relaxation(chains: ChainsOnSystem) -> str:
    """Return the least change with which the limits hold, in a sentence; empty with a choice or where none does.

    Args:
        chains: on a system.
    """
    goal = chains.goal
    said = []
    if chains.days_needed is not None and goal.deadline_days is not None and chains.days_needed > goal.deadline_days:
        said.append(f"a deadline of {_rounded_up(chains.days_needed)} days")
    if chains.usd_needed is not None and goal.budget_usd is not None and chains.usd_needed > goal.budget_usd:
        said.append(f"a budget of {_rounded_up(chains.usd_needed)} USD")
    return f"Least change that holds: {' or '.join(said)}." if said else ""


def _rounded_up(value: float) -> str:
    """Return a number with four significant digits, rounded upwards, so that the limit holds."""
    digits = 3 - math.floor(math.log10(value))
    factor = 10.0**digits
    return f"{math.ceil(value * factor * (1 - 1e-12)) / factor:,.{max(digits, 0)}f}"


def _figure_row(figure: RunFigure | None) -> dict[str, float | None] | None:
    return None if figure is None else {"value": figure.value, "low": figure.low, "high": figure.high}


def _front_row(chain: Chain) -> dict[str, Any]:
    return {
        "sizes": [size.gpus for size in chain.sizes],
        "num_procs": chain.held,
        "days": _figure_row(chain.days),
        "usd": _figure_row(chain.usd),
        "gpu_hours": _figure_row(chain.gpu_hours),
        "mwh": chain.mwh,
        "failures": chain.failures,
        "misses": [LIMITS_OF[name] for name in chain.misses],
    }


def _chain_row(found: OfferedChains) -> dict[str, Any] | None:
    chain, chains = found.chains.chosen, found.chains
    if chain is None:
        return None
    start, phases = 0.0, []
    for curve, size in zip(chains.curves, chain.sizes, strict=True):
        phases.append(_phase_row(curve, size, start, chain, chains.terms))
        start += size.days.value
    return {
        **_front_row(chain),
        "deadline": verdict(chain.days, chains.goal.deadline_days, "days"),
        "budget": "" if chain.usd is None else verdict(chain.usd, chains.goal.budget_usd, "USD"),
        "phases": phases,
        "services": [_service_row(each, chain, chains.terms) for each in found.services],
    }


def _phase_row(curve: PhaseCurve, size: PhaseSize, start: float, chain: Chain, terms: ChainTerms) -> dict[str, Any]:
    usd = None
    plain_terms = replace(terms, reserved_days=0.0)
    if terms.usd_low is not None and terms.usd_high is not None and terms.usd_middle is not None:
        ends = (size.days.low or size.days.value, size.days.value, size.days.high or size.days.value)
        low, value, high = (
            float(plain_terms.cost(price, days, size.gpus * days * 24.0, chain.held, ServiceShare()))
            for price, days in zip((terms.usd_low, terms.usd_middle, terms.usd_high), ends, strict=True)
        )
        usd = {"value": value, "low": low, "high": high}
    row, execution, rollout = size.row, size.row, None
    if isinstance(row, ModeStep):
        execution = row.execution
        rollout = {
            "mode": row.step.mode,
            "gpus_train": row.gpus_train,
            "gpus_rollout": row.gpus_rollout,
            "step_s": row.step.seconds,
            **{f"rollout_{name}": plain(value) for name, value in row.deployment.items()},
        }
    return {
        "name": curve.name,
        "kind": curve.kind,
        "num_procs": size.gpus,
        "start_day": start,
        "days": _figure_row(size.days),
        "usd": usd,
        "mwh": size.mwh,
        "failures": size.failures,
        "layout": size.layout,
        "execution": {str(name): plain(value) for name, value in execution.items()},
        "rollout": rollout,
    }


def _service_row(served: ServedPhase, chain: Chain, terms: ChainTerms) -> dict[str, Any]:
    best, phase = served.best, served.phase
    prices = None if terms.usd_low is None or terms.usd_high is None else (terms.usd_low, terms.usd_high)
    days = chain.days.value if phase.when == "meanwhile" else (phase.days or None)
    return {
        "name": served.name,
        "model": served.model.name,
        "when": phase.when,
        "num_procs": served.gpus,
        "replicas": int(best["deployments"]) * int(best.get("replicas", 1)),
        "layout": execution_name(best) or "1 GPU",
        "rate": float(best["served_rate"]),
        "days": days,
        "usd_per_day": None
        if prices is None
        else [24.0 * served.gpus * (price + terms.power_usd_per_h) for price in prices],
        "deployment": {str(name): plain(value) for name, value in best.items()},
    }


def _system_row(found: OfferedChains) -> dict[str, Any]:
    chains = found.chains
    prices = None if chains.terms.usd_low is None else [chains.terms.usd_low, chains.terms.usd_high]
    return {
        "system": found.offer.system.name,
        "terms": found.offer.terms,
        "usd_per_gpu_hour": prices,
        "is_held": chains.terms.is_held,
        "chosen": _chain_row(found),
        "front": [_front_row(each) for each in thinned_front(chains)],
        "front_size": len(chains.front),
        "curves": [
            {
                "name": curve.name,
                "sizes": [
                    {
                        "num_procs": size.gpus,
                        "days": size.days.value,
                        "days_low": size.days.low,
                        "days_high": size.days.high,
                        "failures": size.failures,
                        "mwh": size.mwh,
                        "layout": size.layout,
                    }
                    for size in curve.sizes
                ],
                "refused": {str(gpus): reason for gpus, reason in curve.refused.items()},
            }
            for curve in chains.curves
        ],
        "obstacle": chains.obstacle,
        "relaxation": describe_relaxation(chains),
    }


def thinned_front(chains: ChainsOnSystem) -> list[Chain]:
    """Return the chains of a front that are listed: its ends, the chosen one, and others evenly by number.

    Args:
        chains: on a system.
    """
    count, chosen = len(chains.front), chains.chosen
    places = set(range(count))
    if count > MOST_FRONT:
        places = {round(each * (count - 1) / (MOST_FRONT - 1)) for each in range(MOST_FRONT)}
    found = [chains.front[place] for place in sorted(places)]
    if chosen is not None and not any(each.sizes == chosen.sizes and each.held == chosen.held for each in found):
        found = sorted([*found, chosen], key=lambda each: each.days.value)
    return found


def chain_document(found: ChainPlan) -> dict[str, Any]:
    """Return a plan of phases as JSON has it.

    Args:
        found: the plan.
    """
    chosen = found.chosen
    relaxations = [
        f"{each.offer.system.name}: {said}" for each in found.systems if (said := describe_relaxation(each.chains))
    ]
    return {
        "model": found_model(found.asked.model).name,
        "system": None if chosen is None else chosen.offer.system.name,
        "chosen": None if chosen is None else _chain_row(chosen),
        "systems": [_system_row(each) for each in found.systems],
        "changes": [
            {"words": each.words, "days": each.days, "usd": each.usd, "gain": each.gain, "holds": each.holds}
            for each in found.changes
        ],
        "relaxation": "" if chosen is not None else " ".join(relaxations),
        "basis": BASIS,
        "not_modelled": list(NOT_MODELLED),
    }
