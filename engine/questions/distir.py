"""Verb about DistIR's grid: configurations of a multilayer perceptron, the paper's figures, fits to measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
from pydantic import Field

from engine.exploration.run import ExplorationCancelled
from engine.questions.bounds import Context
from engine.questions.documents.distir import MOST_ENTRIES, DistIRQuestion
from engine.questions.plain import plain
from engine.questions.verb import Document, QuestionError, Row, Verb
from engine.reproductions.distir.simulator import (
    MODEL_SIZES,
    Constants,
    ModelSize,
    Records,
    agreement,
    envelopes,
    fit_kernels,
    fit_steps,
    load_constants,
    measured_steps,
    over_devices,
    overlay,
    pareto,
    parse_measured,
    search,
    top_configurations,
    with_speedup,
)
from engine.reproductions.distir.simulator.calibration import MEASURED_CONSTANTS
from engine.reproductions.distir.simulator.cost_models import revision_of
from hardware import GIB

__all__ = [
    "FIGURE_SETTINGS",
    "SIMULATE_DISTIR",
    "DistIRGrid",
    "fill_settings",
    "find_distir_grid",
    "grid_bandwidth",
    "grid_constants",
    "network_sizes",
]

USUAL: Final[Mapping[str, Any]] = {
    "models": ["notebook"],
    "batches": [4096],
    "devices": [1, 2, 4, 8, 16, 32],
    "revision": "R3",
    "microbatches": "all",
}
"""Settings of a question that does not say otherwise."""
FIGURE_SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "figure-3": {
        "models": ["notebook"],
        "batches": [512, 1024, 2048, 4096],
        "devices": [2, 4, 8, 16, 32],
        "revision": "R1",
        "bandwidth_gbps": 200.0,
        "microbatches": "4,8,16,32",
    },
    "figure-4": {
        "models": ["euromlsys21"],
        "batches": [8192],
        "devices": [1, 2, 4, 8, 16],
        "revision": "EuroMLSys21",
        "bandwidth_gbps": 200.0,
        "microbatches": "R1",
    },
}
"""Settings of the published figures. Source: the notebook of microsoft/dist-ir at 3386edc, and the published grid."""
USUAL_BANDWIDTH: Final = 25.0
"""Bandwidth between devices in R3's own runs [Gbps]."""


@dataclass(frozen=True)
class DistIRGrid:
    """Simulated configurations, and the rows of an answer among them."""

    settings: DistIRQuestion
    """The question with all defaults filled in."""
    constants: Constants
    bandwidth_gbps: float
    sizes: Mapping[str, ModelSize]
    """Models by name."""
    table: pd.DataFrame
    """All configurations; the rows themselves for figure-3 and measured steps."""
    rows: pd.DataFrame
    is_search: bool
    """True if the table is a search of all configurations."""

    @property
    def feasible(self) -> pd.DataFrame:
        """Configurations that can run within the limits."""
        return self.table[self.table["reason"] == ""]

    @property
    def rejected_by_reason(self) -> dict[str, int]:
        """Number of configurations that cannot run, by reason, the most frequent first."""
        reasons = self.table.loc[self.table["reason"] != "", "reason"]
        return {str(reason): int(number) for reason, number in reasons.value_counts().items()}

    def document(self) -> dict[str, Any]:
        """Return the grid as JSON has it; totals only of a search."""
        searched = {
            "total": len(self.table),
            "feasible": len(self.feasible) if self.is_search else 0,
            "rejected_by_reason": self.rejected_by_reason if self.is_search else {},
        }
        return {
            "revision": self.constants.revision,
            "constants": self.constants.model_dump(exclude_none=True),
            "bandwidth_gbps": self.bandwidth_gbps,
            **(searched if self.is_search else {}),
            "rows": self.rows.to_dict("records"),
        }


class DistIRAnswer(Document):
    """Configurations by DistIR. Times are in seconds, sizes in bytes."""

    revision: str
    constants: dict[str, Any] = Field(description="Constants of the machine; those left out are the revision's.")
    bandwidth_gbps: float = Field(description="[Gbps]")
    total: int | None = Field(default=None, description="Configurations; null for figure-3 and measured steps.")
    feasible: int | None = Field(default=None, description="Configurations that run within the limits.")
    rejected_by_reason: dict[str, int] | None = None
    rows: list[Row]


def fill_settings(asked: DistIRQuestion) -> DistIRQuestion:
    """Return the question with its defaults filled in: usual settings, or settings of a published figure.

    Args:
        asked: the question.
    """
    defaults = {**USUAL, **FIGURE_SETTINGS.get(asked.show, {})}
    given = {name: getattr(asked, name) for name in USUAL}
    return asked.model_copy(update={name: defaults[name] if each is None else each for name, each in given.items()})


def grid_constants(asked: DistIRQuestion) -> Constants:
    """Return the constants of the machine: as given, fitted to measurements, or the revision's.

    Args:
        asked: the question, its defaults filled in.

    Raises `QuestionError` for two sources, and `ConfigurationError` of DistIR's simulator for invalid ones.
    """
    revision = revision_of(asked.revision or USUAL["revision"]).name
    if asked.constants is not None and asked.measurements is not None:
        raise QuestionError("Constants and measurements are two sources of the same; give one of them.")
    if asked.measurements is not None:
        kind, table = parse_measured(asked.measurements)
        return fit_steps(table, revision) if kind == "steps" else fit_kernels(table)
    return Constants(revision=revision) if asked.constants is None else load_constants(asked.constants)


def grid_bandwidth(settings: DistIRQuestion, constants: Constants) -> float:
    """Return the bandwidth between devices [Gbps]: the question's, the constants', or that of the published figure.

    Args:
        settings: the question, its defaults filled in.
        constants: constants of its machine.
    """
    usual: float = FIGURE_SETTINGS.get(settings.show, {}).get("bandwidth_gbps", USUAL_BANDWIDTH)
    return settings.bandwidth_gbps or constants.bandwidth_gbps or usual


def network_sizes(settings: DistIRQuestion) -> dict[str, ModelSize]:
    """Return the models of a question by name.

    Args:
        settings: the question, its defaults filled in.

    Raises `QuestionError` for an unknown size.
    """
    sizes = {}
    for name in settings.models or ():
        if name not in MODEL_SIZES:
            raise QuestionError(f"{name[:60]!r} is no size; there are {', '.join(MODEL_SIZES)}.")
        named = MODEL_SIZES[name]
        sizes[name] = ModelSize(settings.layers or named.layers, settings.width or named.width)
    return sizes


def find_distir_grid(
    asked: DistIRQuestion, *, records: Records | None = None, context: Context | None = None
) -> DistIRGrid:
    """Return the configurations of a question about DistIR's grid.

    Args:
        asked: the question.
        records: earlier results of a store, which are not simulated again; new ones are added.
        context: progress and cancellation.

    Raises `QuestionError`, `ConfigurationError` of DistIR's simulator for numbers that it refuses, and
    `engine.ExplorationCancelled`.
    """
    settings = fill_settings(asked)
    constants = grid_constants(settings)
    bandwidth = grid_bandwidth(settings, constants)
    if settings.show == "measured":
        return _compare_measured(settings, constants, bandwidth)
    sizes = network_sizes(settings)
    batches, devices = list(settings.batches or ()), list(settings.devices or ())
    if settings.show == "figure-3":
        size = next(iter(sizes.values()))
        table = over_devices(
            revision=constants.revision,
            width=size.width,
            layers=size.layers,
            batch=max(batches),
            batches=batches,
            microbatches=_parse_counts(settings.microbatches or ""),
            devices=[number for number in devices if number > 1],
            bandwidth_gbps=bandwidth,
            **constants.arguments(),
        )
        return DistIRGrid(settings, constants, bandwidth, sizes, table, table, is_search=False)

    def report(done: int, everything: int) -> bool:
        if context is None:
            return True
        context.tell(done / everything, f"{done:,} of {everything:,} configurations")
        if context.stops():
            raise ExplorationCancelled("The simulation was cancelled.")
        return True

    table = search(
        sizes,
        devices=devices,
        batches=batches,
        revision=constants.revision,
        bandwidth_gbps=bandwidth,
        memory_limit=None if settings.memory_limit_gib is None else settings.memory_limit_gib * GIB,
        rule=settings.microbatches or "all",
        records=records,
        report_progress=report,
        filtered=settings.filtered,
        **constants.arguments(),
    )
    rows = _answer_rows(settings, table)
    return DistIRGrid(settings, constants, bandwidth, sizes, table, rows, is_search=True)


def _answer_rows(settings: DistIRQuestion, table: pd.DataFrame) -> pd.DataFrame:
    if settings.show == "figure-4":
        first = (table["batch"] == table["batch"].iloc[0]) & (table["model"] == table["model"].iloc[0])
        return envelopes(with_speedup(table[first]))
    return top_configurations(table, settings.top) if settings.show == "top" else pareto(table)


def _compare_measured(settings: DistIRQuestion, constants: Constants, bandwidth: float) -> DistIRGrid:
    """Return how simulated steps agree with measured ones: of the question, or the notebook's 81 runs."""
    given = None if settings.measurements is None else parse_measured(settings.measurements)
    steps = given[1] if given is not None and given[0] == "steps" else measured_steps()
    has_own = settings.constants is not None or settings.measurements is not None
    used = constants if has_own else MEASURED_CONSTANTS
    found = agreement(overlay(steps, used))
    return DistIRGrid(settings, used, bandwidth, {}, found, found, is_search=False)


def _parse_counts(text: str) -> list[int]:
    """Return numbers of microbatches of a text with commas."""
    try:
        found = [int(each) for each in text.split(",")]
    except ValueError:
        found = []
    if not found or len(found) > MOST_ENTRIES:
        raise QuestionError(
            f"microbatches of figure-3 is {text[:40]!r}; it must be up to {MOST_ENTRIES} whole numbers with commas."
        )
    return found


def _answer(asked: DistIRQuestion, context: Context) -> dict[str, Any]:
    return {name: plain(value) for name, value in find_distir_grid(asked, context=context).document().items()}


SIMULATE_DISTIR = Verb(
    "simulate_distir",
    "Simulate DistIR's grid",
    "Simulates a multilayer perceptron under data, horizontal and pipeline parallelism as DistIR does.",
    DistIRQuestion,
    DistIRAnswer,
    _answer,
)
