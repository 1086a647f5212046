"""Shared state of the cards of the What-if page: the scenario, the changes, and the requested studies."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import streamlit as st

from dashboard.charts.elements.template import Chart
from dashboard.jobs.server import explorations, studies
from dashboard.jobs.studies import StudyJob
from dashboard.link.catalogue import model_of
from dashboard.pages.whatif import inputs
from dashboard.pages.whatif.answer import answer
from dashboard.pages.whatif.inputs import FINE, WhatIfView
from dashboard.queries.nearest_fit import remedies
from dashboard.widgets.window import is_narrow
from dashboard.words.changes import options
from engine import Scenario, SpaceError, whatif
from engine.questions.changes import recommendation_limits
from engine.whatif import Answer, PointSequence

__all__ = ["FACTORS", "REACH", "AskedSizes", "WhatIfBoard", "asked_sizes"]

FACTORS: Final = {"10": (0.9, 1.1), "25": (0.75, 1.25), "2": (0.5, 2.0)}
REACH: Final = 4.0


class WhatIfBoard:
    """Shared state of the four cards: the scenario, the changes, the choices, and the studies."""

    def __init__(self, view: WhatIfView, again: Callable[[], None]) -> None:
        self.view, self.again = view, again
        self.scenario, self.changes = view.scenario, view.changes
        self.answer = answer(view.question)
        self.every = {which.name: which for which in whatif.parameters(self.scenario)}
        self.names = {name: which.label for name, which in self.every.items() if which.value > 0}
        self.mode, self.narrow = view.mode, is_narrow()
        self.around = self.changes if view.link.around == "whatif" else {}
        nets = [name for name in self.names if name.startswith("net") and name.endswith("_bandwidth")]
        defaults = {"one": nets[-1], "x": nets[-1], "y": "hbm_capacity"}
        if (self.fastest.best if self.around else self.fastest.base) is None:
            centre = whatif.changed(self.scenario, self.around)
            # Remedies first, then the resources that are most often too small.
            helping = [remedy.name for remedy in remedies(centre, centre.key)] + ["hbm_capacity", "procs"]
            if "host_capacity" in self.names:
                helping.insert(-1, "host_capacity")
            first, second, *_ = dict.fromkeys(name for name in helping if name in self.names)
            defaults = {"one": first, "x": first, "y": second}
        self.fields = {
            name: replace(view.fields[name], default=default).among(self.names) for name, default in defaults.items()
        }
        self.one, self.x, self.y = (str(field.value) for field in self.fields.values())
        self.step, self.grid = view.link.step, view.link.grid
        self.tornado, self.sweep, self.two, self.sizes, self.table = self._runs()

    @property
    def fastest(self) -> Answer:
        """Answer of the fastest executions, which the studies compare."""
        return self.answer.of_fastest

    @property
    def base_rate(self) -> float:
        """Best throughput of the base [samples/s]; 0 if nothing runs."""
        return float(self.fastest.base["sample_rate"]) if self.fastest.base is not None else 0.0

    @property
    def rate(self) -> float:
        """Best throughput of the what-if [samples/s]; NaN if nothing runs."""
        return float(self.fastest.best["sample_rate"]) if self.fastest.best is not None else math.nan

    @property
    def centre_rate(self) -> float:
        """Best throughput at the centre of the studies [samples/s]."""
        return self.rate if self.around else self.base_rate

    @property
    def pending(self) -> bool:
        """True if a study is still running."""
        every = (self.tornado, self.sweep, self.two, self.sizes, self.table)
        return any(run is not None and not run.ended for run in every)

    def chart(self, run: StudyJob, shown: Hashable, make: Callable[[], Chart]) -> Chart:
        """Returns a chart of a study's points, drawn again only when these or `shown` have changed."""
        kind = json.loads(run.key)[1]
        token = (run.key, len(run.found), self.mode, self.narrow, shown)
        drawn = st.session_state.setdefault("_whatif_drawn", {})
        if kind not in drawn or drawn[kind][0] != token:
            drawn[kind] = token, make()
        chart: Chart = drawn[kind][1]
        return chart

    def now(self, name: str) -> float:
        """Returns the value of a parameter in the what-if."""
        return self.changes.get(name, whatif.otherwise(self.scenario, self.changes, name))

    def values(self, name: str) -> list[float]:
        """Returns the values of a parameter on an axis of the sweep over two."""
        which = self.every[name]
        if which.discrete:
            return whatif.values_around(which, reach=REACH)
        if self.grid == "coarse":
            return [which.value if factor == 1 else float(f"{which.value * factor:.4g}") for factor in inputs.COARSE]
        # An even count has no middle: the base replaces the value next to it.
        ratios = [REACH ** (2 * index / (FINE - 1) - 1) for index in range(FINE)]
        values = [float(f"{which.value * ratio:.4g}") for ratio in ratios]
        values[FINE // 2] = which.value
        return values

    def _runs(self) -> tuple[StudyJob, StudyJob, StudyJob | None, StudyJob | None, StudyJob | None]:
        scenario, around = self.scenario, dict(self.around)
        centre = whatif.changed(scenario, around)
        self.asked = sizes = asked_sizes(self.view, centre)
        one, x, y, largest = self.one, self.x, self.y, explorations().settings.largest_space
        made = studies().made
        asked = self.view.figures.question
        figures = asked.figures_of, recommendation_limits(asked)
        along = [value for value in options(self.every[one], self.every[one].value) if value > 0]
        two = None
        if x != y:
            xs, ys = self.values(x), self.values(y)
            two = self._run(
                "two", [x, y, xs, ys], lambda: made("sweep_two", scenario, x, xs, y, ys, around, largest=largest)
            )
        factors = FACTORS[self.step]
        models, counts = self.view.link.table_models, self.view.link.table_sizes
        table = None
        if len(self.changes) > 1 or (self.changes and (models or counts)):
            changes, others = dict(self.changes), [model_of(name) for name in models]
            table = self._run(
                "table",
                [changes, models, counts, *figures],
                lambda: made("change_table", scenario, changes, others, counts, *figures, largest=largest),
            )
        return (
            self._run("tornado", factors, lambda: made("sensitivity", centre, factors, largest=largest)),
            self._run("sweep", [one, along], lambda: made("sweep", scenario, one, along, around, largest=largest)),
            two,
            None
            if sizes.problem
            else self._run(
                "sizes",
                [*sizes.key, *figures],
                lambda: made("shown_sizes", centre, sizes.counts, sizes.batch, *figures, largest=largest),
            ),
            table,
        )

    def _run(self, name: str, what: Any, make: Callable[[], PointSequence[Any]]) -> StudyJob:
        """Return the study called `name` with the inputs `what`."""
        key = json.dumps([self.scenario.key, name, what, dict(self.around)], sort_keys=True)
        return studies().request(key, make)


@dataclass(frozen=True, slots=True)
class AskedSizes:
    """Sizes of a sweep. `ends` are (from, to, step) of a range, None for likely sizes."""

    counts: list[int]
    batch: Literal["kept", "scaled"]
    ends: tuple[int, int, int] | None = None
    problem: str = ""

    @property
    def key(self) -> list[Any]:
        """Equal for equal sweeps."""
        return [self.counts if self.ends is None else list(self.ends), self.batch]


def asked_sizes(view: WhatIfView, centre: Scenario) -> AskedSizes:
    """Returns the sizes of the view, around a scenario."""
    batch, ends = view.link.batch, view.ends
    if ends is None:
        return AskedSizes(whatif.size_range(centre, max(1, centre.num_procs // 16), centre.num_procs * 16), batch)
    low, high, step = ends
    try:
        return AskedSizes(whatif.sizes_between(low, high, step), batch, (low, high, step))
    except (SpaceError, whatif.ChangeError) as problem:
        return AskedSizes([], batch, (low, high, step), str(problem))
