"""Door of the What-if page: the scenario, the changes and the choices of the studies in the link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dashboard.link import state
from dashboard.link.catalogue import list_model_titles
from dashboard.link.fields import LinkField, LinkReader
from dashboard.link.figures import FiguresView, parse_figures
from dashboard.pages.whatif.link import NAME, PAGE_NAME, RANGE, WhatIfLink
from dashboard.widgets.hardware_changes import parse_changes
from engine import Scenario
from engine.questions.changes import change_question
from engine.questions.documents.changes import WhatIfQuestion
from engine.whatif import size_range

__all__ = ["COARSE", "FINE", "WhatIfView", "parse", "parse_ends"]

FINE: Final = 20
COARSE: Final = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 4.0)
"""Values of a coarse axis, as multiples of the base: some of a slider's, so that a what-if is one of the cells."""


@dataclass(frozen=True)
class WhatIfView:
    """All that the link says of the page."""

    scenario: Scenario
    changes: Mapping[str, float]
    """New values by parameter of the scenario."""
    problems: tuple[str, ...]
    """Sentences about changes that are impossible."""
    link: WhatIfLink
    fields: Mapping[str, LinkField]
    ends: tuple[int, int, int] | None
    """First size, last size and step of a range; None for likely sizes."""
    mode: str
    """The theme: "light" or "dark"."""
    figures: FiguresView
    """Choice of the execution whose figures are shown."""

    @cached_property
    def question(self) -> WhatIfQuestion:
        """Question for the effect of the changes."""
        return change_question(self.scenario, self.changes, self.figures.question)

    @cached_property
    def base_question(self) -> WhatIfQuestion:
        """Question for the best without a change."""
        return change_question(self.scenario, {}, self.figures.question)


def parse() -> WhatIfView:
    """Parse the page's part of the link."""
    scenario, reader = state.current_scenario(), LinkReader(WhatIfLink, PAGE_NAME)
    changes, problems = parse_changes(scenario)
    for name in ("input", "around", "step", "batch", "size_show"):
        reader.read(name)
    reader.read("grid", options={"coarse": f"{len(COARSE)} × {len(COARSE)}", "fine": f"{FINE} × {FINE}"})
    titles = list_model_titles()
    reader.read("table_models", options={name: each for name, each in titles.items() if name != scenario.model.name})
    sizes = size_range(scenario, max(1, scenario.num_procs // 16), scenario.num_procs * 16)
    reader.read("table_sizes", options={each: f"{each:,}" for each in sizes if each != scenario.num_procs})
    for name in ("one", "x", "y"):
        reader.read(name, pattern=NAME)
    return WhatIfView(
        scenario, changes, problems, reader.build(), reader.fields, parse_ends(), state.theme_mode(), parse_figures()
    )


def parse_ends() -> tuple[int, int, int] | None:
    """Parse the range of sizes: first size, last size and step; None for likely sizes."""
    found = RANGE.fullmatch(state.url_value("whatif_range", "", RANGE))
    if found is None:
        return None
    low, high, step = map(int, found.groups())
    return low, high, step
