"""Error of figures of a co-design study's designs: the intervals of single executions, for a mix of models too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from dashboard.compat.caches import remembered
from dashboard.queries.accuracy import basis, beside, error_of, founded, label_of, span
from dashboard.words.scenarios import system_name
from engine import Scenario
from engine.codesign import Quantity, Results
from engine.validation.uncertainty import memory_interval_of

__all__ = ["MOST_TOLD", "basis_of", "error_told", "optimum"]

MOST_TOLD: Final = 60
"""Designs of a table with error intervals: each needs its best execution."""


def optimum(found: Results, design: int, model: int) -> tuple[Scenario, dict[str, object]] | None:
    """Returns a design's scenario for one of the models with the fields of its best execution; None where none runs or
    the design was skipped.

    Args:
        found: the points of the study.
        design: its number.
        model: place of the model in the study.
    """
    point = design * len(found.study.models) + model
    row = found.rows[found.rows["point"] == point]
    if not len(row) or row["status"].iloc[0] != "ok":
        return None
    scenario = found.scenario(point)
    return scenario, dict(scenario.space.table([int(row["id"].iloc[0])]).iloc[0])


def error_told(found: Results, design: int, quantity: Quantity, of: str) -> str:
    """Returns how far a figure of a design may be off, in few words; empty where it follows from inputs alone, and for
    a cost model that claims no measured run.

    A mix takes the time that each of its models takes, so its interval has all of theirs at the same end.

    Args:
        found: the points of the study.
        design: its number.
        quantity: the figure.
        of: the mix, or the name of a model.
    """
    return _error_words(
        found.study.key,
        tuple(each.weight for each in found.study.document.models),
        design,
        quantity.name,
        of,
        found,
        quantity,
    )


@remembered(entries=8_192)
def _error_words(
    study: str, weights: tuple[float, ...], design: int, name: str, of: str, _found: Results, _quantity: Quantity
) -> str:
    models = [model.name for model in _found.study.models]
    which = [models.index(of)] if of in models else range(len(models))
    there = [one for model in which if (one := optimum(_found, design, model)) is not None]
    if not there or any(label_of(scenario) == "exact" for scenario, _ in there):
        return ""
    rests_on = _quantity.rests_on
    if rests_on & {"memory", "host memory"}:
        held = [memory_interval_of(scenario) for scenario, _ in there]
        lows, highs = [each.low for each in held if each], [each.high for each in held if each]
        return span(min(lows), max(highs)) if len(lows) == len(held) else ""
    if not rests_on & {"rate", "step"}:
        return ""
    falls = "step" in rests_on or _quantity.better == "lower"
    if len(there) == 1:
        return founded(*there[0], "time" if falls else "rate")["error"]
    errors = [error_of(*one) for one in there]
    if any(error is None for error in errors):
        return next((words for one in there if (words := beside(*one))), "")
    join: Callable[[list[float]], float] = max if "step" in rests_on else sum
    took = [_time_weight(_found, design, model, "step" in rests_on) for model in which]
    known = [error.most for error in errors if error is not None]
    low = join([each * one.low for each, one in zip(took, known, strict=True)]) / join(took)
    high = join([each * one.high for each, one in zip(took, known, strict=True)]) / join(took)
    return span(low, high) if falls else span(1.0 / high, 1.0 / low)


def _time_weight(found: Results, design: int, model: int, step: bool) -> float:
    """Return the time of a model's step [s], or its share of the time of a token of the mix, in any unit."""
    row = found.rows[found.rows["point"] == design * len(found.study.models) + model].iloc[0]
    if step:
        return float(row["batch_size"] / row["samples_per_s"])
    length = float(found.study.sample_lengths(np.array([design]))[0, model])
    return found.study.document.models[model].weight / (float(row["samples_per_s"]) * length)


def basis_of(found: Results, designs: Iterable[int], of: str) -> str:
    """Return the basis of the designs' figures once, by system and model if these differ.

    Args:
        found: the points of the study.
        designs: numbers of some of them.
        of: the mix, or the name of a model.
    """
    models = [model.name for model in found.study.models]
    which = [models.index(of)] if of in models else range(len(models))
    said: dict[str, list[str]] = {}
    seen = set()
    for design in designs:
        for model in which:
            one = optimum(found, design, model)
            if one is None or (told := (one[0].system.name, model)) in seen:
                continue
            seen.add(told)
            scenario, execution = one
            name = f"{scenario.model.title or scenario.model.name} on {system_name(scenario.system)}"
            said.setdefault(basis(scenario, execution), []).append(name)
    if len(said) < 2:
        return next(iter(said), "")
    return " ".join(f"{', '.join(dict.fromkeys(names))}: {words}" for words, names in said.items())
