"""Answers about runs in phases: the chosen chain, fronts by system, what binds, and the least change that holds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final, Literal

from pydantic import Field

from engine.executions.execution_names import execution_name
from engine.fleet import spare_nodes
from engine.lifetime import Chain, ChainsOnSystem, ChainTerms, PhaseCurve, PhaseSize, ServiceShare
from engine.post_training.search import ModeStep
from engine.questions.plain import plain
from engine.questions.post_training import BASIS as REINFORCEMENT_BASIS
from engine.questions.run_phases import ChainPlan, OfferedChains, ServedPhase
from engine.questions.scenario_documents import found_model
from engine.questions.verb import Document, Row
from engine.recommendation.training_plans import RunFigure

__all__ = ["PhasedRunRow", "chain_document", "verdict"]

REPAIR_H: Final = 24.0
"""Time until a failed node is back [h]. Source: stated by us, as for fleets."""
HOURS: Final = 24.0
"""Hours of a day [h]."""
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
    spares: int = Field(
        description="GPUs of spare nodes that suffice in 99 % of cases, with repairs of 24 h; not in the cost."
    )
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
    gain: float | None = Field(description="Cost [USD] that it saves; days without a deadline, or with `num_procs`.")
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
        "spares": _count_spares(found, chain),
        "phases": phases,
        "services": [_service_row(each, chain, chains.terms) for each in found.services],
    }


def _count_spares(found: OfferedChains, chain: Chain) -> int:
    node = min(found.offer.system.node_size, chain.held)
    return node * spare_nodes(chain.held, node, found.mtbf_h, REPAIR_H)


def _phase_row(curve: PhaseCurve, size: PhaseSize, start: float, chain: Chain, terms: ChainTerms) -> dict[str, Any]:
    usd = None
    plain_terms = replace(terms, reserved_days=0.0)
    if terms.usd_low is not None and terms.usd_high is not None and terms.usd_middle is not None:
        ends = (size.days.low or size.days.value, size.days.value, size.days.high or size.days.value)
        low, value, high = (
            float(plain_terms.cost(price, days, size.gpus * days * HOURS, chain.held, ServiceShare()))
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
        else [HOURS * served.gpus * (price + terms.power_usd_per_h) for price in prices],
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


def _describe_basis(found: ChainPlan) -> str:
    """Return sentences on the intervals: phases whose error is unknown, and the runs that RL rests on."""
    said = [BASIS]
    if found.chosen is not None and found.chain is not None:
        pairs = zip(found.chosen.chains.curves, found.chain.sizes, strict=True)
        unknown = [curve.name for curve, size in pairs if size.days.low is None]
        if unknown:
            said.append(f"The error of {' and '.join(unknown)} is unknown: too few runs of this kind were measured.")
    if any(phase.kind == "rl" for phase in found.asked.phases or ()):
        said.append(f"Reinforcement learning: {REINFORCEMENT_BASIS[0].lower()}{REINFORCEMENT_BASIS[1:]}")
    return " ".join(said)


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
        "basis": _describe_basis(found),
        "not_modelled": list(NOT_MODELLED),
    }
