"""Checks of a study before any point is computed."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from engine.codesign.costs import bill
from engine.codesign.design_space import MOST_POINTS, DesignSpace
from engine.codesign.errors import StudyError
from engine.codesign.quantities import MEMORY, QUANTITIES, quantity
from engine.codesign.schema import MIX, Edit, Follow
from engine.columns import statistics_of
from engine.cost_models.contract import CostModelError
from engine.cost_models.registry import named
from engine.executions.limits import LimitError
from engine.scenarios.scenario import Scenario
from engine.space.space import SpaceError
from engine.whatif.parameters import ChangeError, changed, parameters
from hardware import SystemFileError
from models import ModelFileError
from models.datatypes import explain_refusal
from models.documents import did_you_mean, shown

__all__ = ["check_study"]

MOST_COMBINATIONS = 256
"""Most (model, system, datatype) combinations whose parameters are checked; above it the first ones."""

MOST_PRICED = 10_000
"""Most designs whose prices are checked; above it an even sample of this size."""

RUNS = {"procs": "sizes", "batch": "batches"}
"""Parameters with a separate list in a study."""


def check_study(study: DesignSpace, where: str) -> None:
    """Raises `StudyError` for the first thing that keeps a study from being run.

    Args:
        study: the study.
        where: its name in messages.
    """
    try:
        _check_names(study)
        _check_datatypes(study)
        _check_counts(study)
        _check_edits(study)
        _check_statistics(study)
        _check_constraints(study)
        _check_prices(study)
    except (StudyError, CostModelError, LimitError, SpaceError) as problem:
        raise StudyError(f"{where}: {problem}") from None


def _list_combinations(study: DesignSpace) -> Iterator[tuple[int, int, int]]:
    every = (
        (model, system, datatype)
        for model in range(len(study.models))
        for system in range(len(study.systems))
        for datatype in range(len(study.document.datatypes))
    )
    for _, found in zip(range(MOST_COMBINATIONS), every, strict=False):
        yield found


def _check_names(study: DesignSpace) -> None:
    """Answers call models by their names, and the mix by its own."""
    names = [each.name for each in study.models]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise StudyError(f"Two of the models are called {shown(twice)}; each must be there once, by a name of its own.")
    again = next((each for place, each in enumerate(study.systems) if each in study.systems[:place]), None)
    if again is not None:
        raise StudyError(f"The system {shown(again.name)} is there twice, and would be counted twice; name it once.")
    if any(each.name == MIX for each in study.models):
        raise StudyError(f"A model is called {shown(MIX)}, which is what all models together are called; rename it.")


def _check_datatypes(study: DesignSpace) -> None:
    for number, system in enumerate(study.systems):
        cost_model = named(study.cost_model(number))
        for name in study.document.datatypes:
            if not system.has_rate(name):
                raise StudyError(explain_refusal(name, system.offered_datatypes, system.name))
            if name not in cost_model.datatypes:
                raise StudyError(explain_refusal(name, cost_model.datatypes, f"The cost model {cost_model.name}"))
        for model in study.models:
            if problem := cost_model.unsupported(model):
                raise StudyError(" ".join(problem))
    study.scenario(0, 0, 0, 0, 0)  # limits and cost model


def _check_edits(study: DesignSpace) -> None:
    said = study.document
    changing = [name for edit in said.edits for name in edit.names]
    following = [each.parameter for each in said.follow]
    for name in (*changing, *following):
        if name in RUNS:
            raise StudyError(f"{name!r} cannot be an edit; give its values as {RUNS[name]}.")
    twice = next((name for name in (*changing, *following) if (*changing, *following).count(name) > 1), None)
    if twice is not None:
        raise StudyError(f"{twice!r} is changed twice; each parameter has one edit, or follows one.")
    for each in said.follow:
        if each.follows not in changing:
            raise StudyError(f"{each.parameter!r} follows {each.follows!r}, which no edit changes; name one that does.")
    for model, system, datatype in _list_combinations(study):
        scenario = study.scenario(model, system, datatype, 0, 0)
        there = {each.name: each for each in parameters(scenario)}
        for name in (*changing, *following):
            if name not in there:
                hint = did_you_mean(name, list(there)) or f"; there are {', '.join(there)}"
                raise StudyError(f"{scenario.system.name} has no What-if parameter {name!r}{hint}.")
        for each in said.follow:
            edit = next(edit for edit in said.edits if each.follows in edit.names)
            if min(row[edit.names.index(each.follows)] for row in edit.rows) <= 0 or there[each.follows].value <= 0:
                raise StudyError(f"{each.parameter!r} follows {each.follows!r}, which must be above 0 everywhere.")
        for name in following:
            if there[name].discrete:
                raise StudyError(f"{name!r} is a whole number, so it cannot follow another parameter; edit it instead.")
        for edit in said.edits:
            _check_values(scenario, edit)
        for each in said.follow:
            _check_followed(study, scenario, each)


def _check_followed(study: DesignSpace, scenario: Scenario, follow: Follow) -> None:
    """Looks at what a parameter becomes at the ends of the one that it follows."""
    edit = next(edit for edit in study.document.edits if follow.follows in edit.names)
    place = edit.names.index(follow.follows)
    own = {each.name: each.value for each in parameters(scenario)}
    values = [row[place] * (own[follow.follows] if edit.relative else 1.0) for row in edit.rows]
    for value in (min(values), max(values)):
        followed = own[follow.parameter] * (value / own[follow.follows]) ** follow.exponent
        _check_change(scenario, follow.parameter, followed, f"{follow.parameter!r}, which follows {follow.follows!r}")


def _check_change(scenario: Scenario, name: str, value: float, what: str) -> None:
    try:
        changed(scenario, {name: value})
    except (ChangeError, SystemFileError, ModelFileError) as problem:
        raise StudyError(f"{what}: {problem}") from None


def _check_values(scenario: Scenario, edit: Edit) -> None:
    """Looks at the ends of an edit's values; those between are as good, but for whole numbers."""
    there = {each.name: each for each in parameters(scenario)}
    for place, name in enumerate(edit.names):
        own = there[name].value
        values = [row[place] * (own if edit.relative else 1.0) for row in edit.rows]
        if there[name].discrete:
            value = next((value for value in values if value != int(value)), None)
            if value is not None:
                raise StudyError(f"{name!r} would be {value:g}; it must be a whole number of {there[name].unit}.")
        for value in (min(values), max(values)):
            _check_change(scenario, name, value, f"the edit of {name!r}")


def _check_counts(study: DesignSpace) -> None:
    said = study.document
    edited = math.prod(len(edit.rows) for edit in said.edits)
    others = len(study.systems) * len(said.sizes) * len(said.datatypes) * len(said.batches)
    points = len(study.models) * others * edited
    if points > MOST_POINTS:
        axes = {
            "models": len(study.models),
            "systems": len(study.systems),
            "sizes": len(said.sizes),
            "datatypes": len(said.datatypes),
            "batches": len(said.batches),
            **{f"values of {' and '.join(edit.names)}": len(edit.rows) for edit in said.edits},
        }
        longest = sorted(axes.items(), key=lambda item: -item[1])[:3]
        longest_axes = ", ".join(f"{count:,} {name}" for name, count in longest)
        raise StudyError(
            f"The product has {points:,} points, and {MOST_POINTS:,} at most can be run; take fewer of its "
            f"{longest_axes}."
        )


def _check_statistics(study: DesignSpace) -> None:
    for name in study.document.statistics:
        for system in range(len(study.systems)):
            there = [column.name for column in statistics_of(study.cost_model(system))]
            if name not in there:
                hint = did_you_mean(name, there) or f"; there are {', '.join(there[:8])} and more"
                raise StudyError(f"The cost model {study.cost_model(system)} has no statistic {name!r}{hint}.")


def _check_constraints(study: DesignSpace) -> None:
    said = study.document
    for name in (*said.objectives, *(each.quantity for each in said.constraints)):
        quantity(name)
        if name in MEMORY and MEMORY[name] not in said.statistics:
            raise StudyError(f"{name} rests on a statistic that is not kept; add {MEMORY[name]} to the statistics.")
    lowest: dict[str, float] = {}
    highest: dict[str, float] = {}
    for each in said.constraints:
        low, high = each.at_least, each.at_most
        lowest[each.quantity] = max(lowest.get(each.quantity, -math.inf), -math.inf if low is None else low)
        highest[each.quantity] = min(highest.get(each.quantity, math.inf), math.inf if high is None else high)
        if lowest[each.quantity] > highest[each.quantity]:
            raise StudyError(
                f"The constraints on {each.quantity} contradict each other: at least {lowest[each.quantity]:g} and at "
                f"most {highest[each.quantity]:g}; no design can meet both."
            )
    sizes = said.sizes
    for end, bound, wrong in (
        ("at most", highest.get("processors", math.inf), min(sizes) > highest.get("processors", math.inf)),
        ("at least", lowest.get("processors", -math.inf), max(sizes) < lowest.get("processors", -math.inf)),
    ):
        if wrong:
            raise StudyError(
                f"processors must be {end} {bound:g}, but the sizes go from {min(sizes):,} to {max(sizes):,}; no "
                "design can meet that."
            )


def _check_prices(study: DesignSpace) -> None:
    """Check that the bases of the questions have a value above 0 that the constraints allow."""
    said = study.document
    asked = [*said.objectives, *(each.quantity for each in said.constraints)]
    needed = {basic for name in asked for basic in QUANTITIES[name].rests_on} & {"usd", "watts", "usd_per_h"}
    remedy = {
        "usd": "give costs.usd.processor, or name a preset of costs",
        "watts": "give costs.watts.processor, or name a preset of costs",
        "usd_per_h": "give costs.usd_per_processor_hour",
    }
    words = {"usd": "price", "watts": "power", "usd_per_h": "rent"}
    numbers = np.unique(np.linspace(0, study.designs - 1, min(study.designs, MOST_PRICED)).astype(np.int64))
    every = bill(study, numbers)
    systems = study.positions(numbers)["system"]
    for basic in sorted(needed):
        lows, highs = every[f"{basic}_low"].to_numpy(), every[f"{basic}_high"].to_numpy()
        for number, system in enumerate(study.systems):
            mine = lows[systems == number]
            if np.isnan(mine).any():
                raise StudyError(f"Nothing says the {words[basic]} of {system.name}; {remedy[basic]}.")
            if (mine <= 0).any():
                raise StudyError(
                    f"The {words[basic]} of a design with {system.name} would be 0, so everything per {words[basic]} "
                    f"would be infinite; {remedy[basic]} above 0."
                )
        if len(numbers) < study.designs:
            continue
        for each in said.constraints:
            least, most = each.at_least or -math.inf, math.inf if each.at_most is None else each.at_most
            if each.quantity == basic and not ((lows <= most) & (highs >= least)).any():
                raise StudyError(
                    f"{basic} must be {f'at most {most:g}' if lows.min() > most else f'at least {least:g}'}, but the "
                    f"designs have from {lows.min():g} to {highs.max():g}; no design can meet that."
                )
