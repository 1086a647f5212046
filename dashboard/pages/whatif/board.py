"""Shared state of the cards of the What-if page: the scenario, the changes, and the requested studies."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, Literal

import streamlit as st

from dashboard.charts.elements.template import Chart
from dashboard.jobs.server import explorations, studies
from dashboard.jobs.studies import StudyJob
from dashboard.link import state
from dashboard.pages.whatif.answer import answer
from dashboard.queries.nearest_fit import remedies
from dashboard.widgets.hardware_changes import current
from dashboard.widgets.window import is_narrow
from dashboard.words.changes import options
from engine import Scenario, SpaceError, whatif
from engine.whatif import PointSequence

__all__ = [
    "AROUND",
    "BATCHES",
    "COARSE",
    "FACTORS",
    "FINE",
    "GRIDS",
    "RANGE",
    "REACH",
    "STEPS",
    "AskedSizes",
    "WhatIfBoard",
    "asked_sizes",
]

AROUND: Final = {"base": "Vary the original", "whatif": "Vary my changes"}
STEPS: Final = {"10": "±10 %", "25": "±25 %", "2": "÷2 ×2"}
FACTORS: Final = {"10": (0.9, 1.1), "25": (0.75, 1.25), "2": (0.5, 2.0)}
FINE: Final = 20
COARSE: Final = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 4.0)
"""Values of a coarse axis, as multiples of the base: some of a slider's, so that a what-if is one of the cells."""
GRIDS: Final = {"coarse": f"{len(COARSE)} × {len(COARSE)}", "fine": f"{FINE} × {FINE}"}
REACH: Final = 4.0


class WhatIfBoard:
    """Shared state of the four cards: the scenario, the changes, the choices, and the studies."""

    def __init__(self, again: Callable[[], None]) -> None:
        self.scenario = state.current_scenario()
        self.changes, _ = current(self.scenario)
        self.answer = answer(self.scenario, self.changes)
        self.every = {which.name: which for which in whatif.parameters(self.scenario)}
        self.names = {name: which.label for name, which in self.every.items() if which.value > 0}
        self.mode, self.narrow = state.theme_mode(), is_narrow()
        self.again = again
        self.around = self.changes if state.url_value("whatif_around", "base", AROUND) == "whatif" else {}
        nets = [name for name in self.names if name.startswith("net") and name.endswith("_bandwidth")]
        self.defaults = {"whatif_one": nets[-1], "whatif_x": nets[-1], "whatif_y": "hbm_capacity"}
        if (self.answer.best if self.around else self.answer.base) is None:
            centre = whatif.changed(self.scenario, self.around)
            # Remedies first, then the resources that are most often too small.
            helping = [remedy.name for remedy in remedies(centre, centre.key)] + ["hbm_capacity", "procs"]
            if "host_capacity" in self.names:
                helping.insert(-1, "host_capacity")
            first, second, *_ = dict.fromkeys(name for name in helping if name in self.names)
            self.defaults = {"whatif_one": first, "whatif_x": first, "whatif_y": second}
        self.one, self.x, self.y = (
            state.url_value(name, default, self.names) for name, default in self.defaults.items()
        )
        self.step = state.url_value("whatif_step", "10", STEPS)
        self.grid = state.url_value("whatif_grid", "coarse", GRIDS)
        self.tornado, self.sweep, self.two, self.sizes = self._runs()

    @property
    def base_rate(self) -> float:
        """Best throughput of the base [samples/s]; 0 if nothing runs."""
        return float(self.answer.base["sample_rate"]) if self.answer.base is not None else 0.0

    @property
    def rate(self) -> float:
        """Best throughput of the what-if [samples/s]; NaN if nothing runs."""
        return float(self.answer.best["sample_rate"]) if self.answer.best is not None else math.nan

    @property
    def centre_rate(self) -> float:
        """Best throughput at the centre of the studies [samples/s]."""
        return self.rate if self.around else self.base_rate

    @property
    def pending(self) -> bool:
        """True if a study is still running."""
        every = (self.tornado, self.sweep, self.two, self.sizes)
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
            return [which.value if factor == 1 else float(f"{which.value * factor:.4g}") for factor in COARSE]
        # An even count has no middle: the base replaces the value next to it.
        ratios = [REACH ** (2 * index / (FINE - 1) - 1) for index in range(FINE)]
        values = [float(f"{which.value * ratio:.4g}") for ratio in ratios]
        values[FINE // 2] = which.value
        return values

    def _runs(self) -> tuple[StudyJob, StudyJob, StudyJob | None, StudyJob | None]:
        scenario, around = self.scenario, dict(self.around)
        centre = whatif.changed(scenario, around)
        self.asked = sizes = asked_sizes(centre)
        one, x, y, largest = self.one, self.x, self.y, explorations().settings.largest_space
        made = studies().made
        along = [value for value in options(self.every[one], self.every[one].value) if value > 0]
        two = None
        if x != y:
            xs, ys = self.values(x), self.values(y)
            two = self._run(
                "two", [x, y, xs, ys], lambda: made("sweep_two", scenario, x, xs, y, ys, around, largest=largest)
            )
        factors = FACTORS[self.step]
        return (
            self._run("tornado", factors, lambda: made("sensitivity", centre, factors, largest=largest)),
            self._run("sweep", [one, along], lambda: made("sweep", scenario, one, along, around, largest=largest)),
            two,
            None
            if sizes.problem
            else self._run(
                "sizes", sizes.key, lambda: made("sizes", centre, sizes.counts, sizes.batch, largest=largest)
            ),
        )

    def _run(self, name: str, what: Any, make: Callable[[], PointSequence[Any]]) -> StudyJob:
        """Return the study called `name` with the inputs `what`."""
        key = json.dumps([self.scenario.key, name, what, dict(self.around)], sort_keys=True)
        return studies().request(key, make)


BATCHES: Final = {"kept": "Batch kept", "scaled": "Batch grows too"}
RANGE: Final = "whatif_range"
"""Link parameter of a range of sizes: "8..1024:8", from 8 to 1,024 in steps of 8; without it the sizes are likely ones.
"""
_PATTERN: Final = re.compile(r"(\d{1,12})\.\.(\d{1,12}):(\d{1,12})")


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


def asked_sizes(centre: Scenario) -> AskedSizes:
    """Returns the sizes in the link, around a scenario."""
    batch: Any = state.url_value("whatif_batch", "kept", BATCHES)
    ends = _asked_ends()
    if ends is None:
        return AskedSizes(whatif.size_range(centre, max(1, centre.num_procs // 16), centre.num_procs * 16), batch)
    low, high, step = ends
    try:
        return AskedSizes(whatif.sizes_between(low, high, step), batch, (low, high, step))
    except (SpaceError, whatif.ChangeError) as problem:
        return AskedSizes([], batch, (low, high, step), str(problem))


def _asked_ends() -> tuple[int, int, int] | None:
    """Return (from, to, step) of the link; None for likely sizes."""
    found = _PATTERN.fullmatch(state.url_value(RANGE, "", _PATTERN))
    if found is None:
        return None
    low, high, step = map(int, found.groups())
    return low, high, step
