"""The pages that there are, in the order of the navigation."""

from __future__ import annotations

from typing import Final, NamedTuple

from dashboard.link.page_paths import START

__all__ = ["PAGES", "Entry"]


class Entry(NamedTuple):
    """A page of the navigation; its script is `dashboard/pages/<name>/script.py`, its address `/<name>`."""

    name: str
    title: str
    help: str
    about_scenario: bool = True
    """Whether the scenario sentence stands above it."""


PAGES: Final = (
    Entry(START, "Explore", "Every execution of one model on one system, as a map of tensor by pipeline parallel."),
    Entry("execution", "Execution", "Everything about one execution: time, memory, schedule, layers, networks."),
    Entry("whatif", "What-if", "Change the hardware or the model and see which execution is best then."),
    Entry("memory", "Memory", "Where the memory goes, tier by tier, and what would fit if."),
    Entry("pareto", "Pareto", "The executions that no other beats in two or three figures at once."),
    Entry("serving", "Serving", "The best way to serve a model: latency, throughput, memory and cost.", False),
    Entry("compare", "Compare", "Scenarios side by side: what differs and what it changes."),
    Entry("results", "Results", "All executions as a table: filter, sort, export."),
    Entry("validation", "Validation", "Predicted against measured training runs: how accurate, and where not.", False),
    Entry("calibrate", "Calibrate", "Fit the calibrated model to measured runs of your own cluster.", False),
    Entry("library", "Library", "Models and systems with the source of every number; edit copies.", False),
    Entry("scenarios", "Scenarios", "What was explored before: reopen, share, delete.", False),
)
"""The pages there may be, in order; one appears in the navigation once its script exists. The first is the default."""
_BY_PATH: Final[dict[str, Entry]] = {"" if entry is PAGES[0] else entry.name: entry for entry in PAGES}
