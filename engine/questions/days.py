"""Verb about a day of a service: replicas that follow a demand, their cost and energy, reserved and on demand."""

from __future__ import annotations

import math
from typing import Any, Final, Literal

from pydantic import Field

from engine.economics import RunInputs, energy_kwh
from engine.planners.contract import Cancel, Progress, never, unheard
from engine.questions.bounds import Context
from engine.questions.documents.days import DayQuestion
from engine.questions.plain import plain
from engine.questions.scenario_documents import found_model, found_system
from engine.questions.services import asked_limits
from engine.questions.serving import list_ineffective, load_factors, serving_assumptions
from engine.questions.verb import Document, QuestionError, Row, Verb
from engine.serving import FIELDS, ServiceLoad, not_represented, size_service
from engine.serving.days import DayDemand, DayRules, ServedDay, ServingDays, find_days, read_demand, shape_demand
from engine.serving.space import MOST_PROCESSORS
from hardware import System

__all__ = ["DAY_UNITS", "ENERGY_BASIS", "PLAN_DAY", "day_document", "day_energy", "day_row", "find_asked_day"]

HOUR: Final = 3600.0
SIZED_RATE: Final = 1.0
"""Load of the service whose deployments are compared [1/s]; what each holds within the limits is the same at any."""
DAY_UNITS: Final = {
    "replica_hours": "h",
    "gpu_hours": "h",
    "break_even_h": "h",
    "usd": "USD",
    "usd_on_demand": "USD",
    "usd_all_reserved": "USD",
    "usd_constant": "USD",
    "usd_per_million_tokens": "USD",
    "output_tokens": "tokens",
    "energy_kwh": "kWh",
    "capacity": "requests/s",
}
"""Units of the figures of a day."""
ENERGY_BASIS: Final = "Energy is an upper estimate: GPUs draw their design power whenever they are paid."
"""Basis of `energy_kwh`, wherever the figure is shown."""
_DEPLOYMENT: Final = tuple(column.name for column in FIELDS)


class DayAnswer(Document):
    """A day of the cheapest deployment, and of the best deployments of other sizes."""

    model: str
    system: str
    prompt: int = Field(description="[tokens]")
    output: int = Field(description="[tokens]")
    held_at: str
    factors: str | None = Field(
        description="Sentence that names the measured factors on the latencies; null without factors."
    )
    kind: Literal["modelled"] = Field(description="No service over a day was measured.")
    not_represented: list[str] = Field(description="Parts of the model that the figures leave out or approximate.")
    ineffective: list[str] = Field(description="A sentence for each stated term that changes nothing.")
    peak_rate: float = Field(description="Highest demand [1/s].")
    price_usd_per_h: float | None = Field(description="Of a GPU on demand [USD/h]; null if unknown.")
    reserved_usd_per_h: float | None = Field(description="Of a reserved GPU, paid all day [USD/h].")
    best: Row | None = Field(
        description="Fewest requests beyond the limits, of these the lowest cost (GPU-hours without a price): the "
        "deployment, its `capacity` within the limits, replicas, hours, cost and energy of the day; null if no "
        f"deployment holds the limits. {ENERGY_BASIS}"
    )
    top: list[Row] = Field(description=f"Best deployment of each number of GPUs, the best first. {ENERGY_BASIS}")
    hours: list[Row] = Field(
        description="Best day over time: from `time` [h] until the next row; `replicas` are paid, `ready` ones serve."
    )
    obstacle: str = Field(description="Why there is no day; empty if there is one.")
    units: dict[str, str] = Field(description="Units of figures by name.")


def find_asked_day(asked: DayQuestion, *, progress: Progress = unheard, cancel: Cancel = never) -> ServingDays:
    """Return the days of a question.

    Args:
        asked: the question.
        progress: called with the share that is done and the current step.
        cancel: returns whether to stop.

    Raises `QuestionError` for a question without a demand or with two, and as `size_asked_service` does.
    """
    demand = _asked_demand(asked)
    system = found_system(asked.system)
    sizing = size_service(
        found_model(asked.model),
        system,
        load=ServiceLoad(SIZED_RATE, None, asked.arrival_cv, asked.prompt_cv, asked.output_cv),
        prompt=asked.prompt,
        output=asked.output,
        most_procs=MOST_PROCESSORS,
        limits=asked.limits,
        **asked_limits(asked),
        room_for_error=asked.room_for_error,
        price=asked.price_usd_per_h,
        assumptions=serving_assumptions(asked),
        factors=load_factors(asked.factors, system),
        progress=progress,
        cancel=cancel,
    )
    price = _price_of(asked, sizing.system)
    rules = DayRules(
        asked.start_up_s,
        asked.scale_down_s,
        asked.least_replicas,
        asked.most_replicas,
        asked.most_procs,
        math.nan if price is None else price,
        asked.reserved_usd_per_h,
    )
    return find_days(demand, rules, sizing)


def _asked_demand(asked: DayQuestion) -> DayDemand:
    if (asked.peak_rate is None) == (asked.demand is None):
        raise QuestionError("A day needs a demand: give either `peak_rate` or `demand`.")
    if asked.demand is not None:
        return read_demand(asked.demand)
    assert asked.peak_rate is not None
    return shape_demand(asked.peak_rate, asked.trough_share, asked.peak_hour)


def _price_of(asked: DayQuestion, system: System) -> float | None:
    """Return the price of a GPU on demand: the asked one, or the middle of the recorded ones."""
    return asked.price_usd_per_h if asked.price_usd_per_h is not None else RunInputs.of(system).usd_middle


def day_energy(found: ServingDays, day: ServedDay) -> float | None:
    """Return the energy of a day at the design power of its GPUs, servers included [kWh]; None without a power.

    Args:
        found: days of a question.
        day: one of them.
    """
    inputs = RunInputs.of(found.sizing.system)
    if inputs.power_w is None:
        return None
    hours = day.size * day.replica_hours
    return float(energy_kwh(hours, HOUR, inputs.power_w, inputs.power_share, inputs.pue))


def day_row(found: ServingDays, day: ServedDay) -> dict[str, Any]:
    """Return a day as a row: the deployment, its capacity, and the figures of the day.

    Args:
        found: days of a question.
        day: one of them.
    """
    fields = {name: day.row[name] for name in _DEPLOYMENT}
    figures = {**day.figures(), "energy_kwh": day_energy(found, day)}
    return {"gpus_per_replica": day.size, **fields, "capacity": day.capacity, **figures}


def day_document(asked: DayQuestion, found: ServingDays) -> dict[str, Any]:
    """Return the answer to a question as JSON has it.

    Args:
        asked: the question.
        found: its days.
    """
    rows = [day_row(found, day) for day in found.days]
    price = found.rules.price
    document = {
        "model": found.sizing.model.name,
        "system": found.sizing.system.name,
        "prompt": asked.prompt,
        "output": asked.output,
        "held_at": asked.held_at,
        "factors": None if found.sizing.factors is None else found.sizing.factors.describe(),
        "kind": "modelled",
        "not_represented": list(not_represented(found.sizing.model)),
        "ineffective": list_ineffective(asked),
        "peak_rate": found.demand.peak,
        "price_usd_per_h": price if math.isfinite(price) else None,
        "reserved_usd_per_h": asked.reserved_usd_per_h,
        "best": rows[0] if rows else None,
        "top": rows,
        "hours": found.hours.to_dict("records"),
        "obstacle": found.obstacle,
        "units": {
            **{column.name: column.unit for column in FIELDS if column.unit},
            **DAY_UNITS,
            "time": "h",
            "requests_per_second": "1/s",
            "served_per_second": "1/s",
        },
    }
    return {name: plain(value) for name, value in document.items()}


def _answer_day(asked: DayQuestion, context: Context) -> dict[str, Any]:
    return day_document(asked, find_asked_day(asked, progress=context.tell, cancel=context.stops))


PLAN_DAY = Verb(
    "plan_day",
    "Plan a day of a service",
    "Finds the cheapest deployment whose replicas follow a demand over a day within limits on latencies, with hours, "
    "cost per million tokens, energy, unserved demand, and the replicas to reserve.",
    DayQuestion,
    DayAnswer,
    _answer_day,
)
