"""Table of changes: each alone, and all together, for several models and numbers of processors at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from engine.executions.execution_names import execution_name
from engine.recommendation.changes import RecommendationLimits, ShownChange, reoptimise_shown
from engine.recommendation.shown import FiguresOf
from engine.scenarios.scenario import Scenario
from engine.whatif import Choice, PointSequence
from engine.whatif.amounts import parse_amounts
from engine.whatif.parameters import ChangeError, parameter
from engine.whatif.search import INF, first_enumerated, searchable
from models import Model, ModelLike
from models.loader import model_of

__all__ = ["MOST_ROWS", "TOGETHER", "TabulatedChange", "change_table"]

TOGETHER: Final = "All together"
MOST_ROWS: Final = 200
"""Rows of one table; each is a search of a whole space."""
NAN: Final = float("nan")


@dataclass(frozen=True, slots=True)
class TabulatedChange:
    """Effect of one change, or of all together, for one model on one number of processors.

    `parameters`: what changes, by name; `label` the same in words. Throughputs are [samples/s] of the executions whose
    figures are shown, before and after; NaN where nothing runs. `gain`: relative gain [fraction], `kept_gain` that of
    the execution before left as it is, `fastest_gain` that of the fastest executions. `execution`: name of the one
    after. `remark`: why it is not of the role that was asked for. `problem`: why there is no such scenario.
    """

    model: str
    num_procs: int
    parameters: tuple[str, ...]
    label: str
    before: float = NAN
    after: float = NAN
    gain: float = NAN
    kept_gain: float = NAN
    fastest_gain: float = NAN
    execution: str = ""
    figures_of: FiguresOf = "fastest"
    remark: str = ""
    problem: str = ""


def change_table(
    scenario: Scenario,
    changes: Mapping[str, float | str],
    models: Sequence[ModelLike] = (),
    counts: Sequence[int] = (),
    figures_of: FiguresOf = "recommended",
    limits: RecommendationLimits = RecommendationLimits(),  # noqa: B008 - immutable
    choose: Choice = first_enumerated,
    largest: float = INF,
) -> PointSequence[TabulatedChange]:
    """Return the rows of a table of changes, model by model and size by size, each found on demand.

    Amounts and factors are of the scenario's own values. The largest batch is the scenario's everywhere.

    Args:
        scenario: the scenario before any change; its model and number of processors come first.
        changes: values by name of `engine.whatif.parameters`, or text such as "+1 TB/s".
        models: other models, by name, path or object.
        counts: other numbers of processors.
        figures_of: execution whose figures are shown.
        limits: terms of the recommendation.
        choose: which of several executions that tie is the fastest.
        largest: executions of a space above which a row is not searched and has this as its `problem` [count].

    Raises `engine.whatif.ChangeError` without a change, for an invalid one, and for a table of more than `MOST_ROWS`.
    """
    if not changes:
        raise ChangeError("A table needs at least one change, such as hbm_bandwidth=+1 TB/s.")
    parse_amounts(scenario, changes)  # refuses what cannot be, before anything is searched
    alone = [(name,) for name in changes]
    sets = alone if len(alone) == 1 else [*alone, tuple(changes)]
    every = {each.name: each for each in (scenario.model, *map(model_of, models))}
    sizes = list(dict.fromkeys((scenario.num_procs, *counts)))
    cases = [(model, size, names) for model in every.values() for size in sizes for names in sets]
    if len(cases) > MOST_ROWS:
        raise ChangeError(f"The table would have {len(cases):,} rows; {MOST_ROWS} are the most. Leave some out.")

    def after(done: int) -> Iterator[TabulatedChange]:
        for model, size, names in cases[done:]:
            row = TabulatedChange(model.name, size, names, _label(scenario, changes, names))
            try:
                here = searchable(_case(scenario, model, size), largest)
                found = reoptimise_shown(
                    here, parse_amounts(here, {name: changes[name] for name in names}), figures_of, limits, choose
                )
            except ValueError as problem:  # every refusal of models, hardware and engine is one
                yield replace(row, problem=str(problem))
                continue
            yield _filled(row, found)

    return PointSequence(len(cases), after)


def _case(scenario: Scenario, model: Model, size: int) -> Scenario:
    """Return the scenario with another model and number of processors; itself where they are its own."""
    if model is scenario.model and size == scenario.num_procs:
        return scenario
    return replace(scenario, model=model, num_procs=size)


def _label(scenario: Scenario, changes: Mapping[str, float | str], names: Sequence[str]) -> str:
    if len(names) > 1:
        return TOGETHER
    which, value = parameter(scenario, names[0]), changes[names[0]]
    return f"{which.label} {value.strip()}" if isinstance(value, str) else f"{which.label} {value:,g} {which.unit}"


def _filled(row: TabulatedChange, found: ShownChange) -> TabulatedChange:
    """Return the row with its figures."""
    rates = [NAN if one is None else float(one["sample_rate"]) for one in (found.base, found.best)]
    return replace(
        row,
        before=rates[0],
        after=rates[1],
        gain=found.gain,
        kept_gain=found.kept_gain,
        fastest_gain=found.of_fastest.gain,
        execution="" if found.best is None else execution_name(found.best),
        figures_of=found.figures_of,
        remark=found.remark or found.base_remark,
        problem="" if found.best is not None else "Nothing runs after the change.",
    )
