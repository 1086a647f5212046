"""Inputs of the grid of parallelisms, which are part of the link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dashboard.link.fields import LinkField, LinkReader
from dashboard.pages.schedules.link import GRID_NAME, GridLink
from dashboard.queries.parallelism_grids import machine_of, stack_of
from engine import Scenario
from engine.questions.documents.distir import DistIRQuestion
from engine.reproductions.distir.simulator import MODEL_SIZES

__all__ = ["SCENARIO", "GridInputs", "parse_grid"]

SCENARIO: Final = "scenario"
"""The scenario's model, among DistIR's sizes."""
_BANDWIDTH: Final = {"R1": 200.0, "R2": 4800.0, "R3": 25.0}
"""Bandwidth in DistIR's own runs at each revision [Gbps]."""
_DEVICES: Final[Mapping[Any, str]] = {2**power: str(2**power) for power in range(1, 8)}


@dataclass(frozen=True)
class GridInputs:
    """The page's question about the grid, with its labels."""

    question: DistIRQuestion
    layers: int
    width: int
    bandwidth_gbps: float
    model_name: str
    """Title of the scenario's model."""
    link: GridLink
    fields: Mapping[str, LinkField]


def parse_grid(scenario: Scenario) -> GridInputs:
    """Parse the link: one model and batch on up to a number of devices.

    Args:
        scenario: scenario whose model and GPU can be asked about.
    """
    page, asked = LinkReader(GridLink, GRID_NAME), LinkReader(DistIRQuestion, GRID_NAME)
    layers, width = stack_of(scenario)
    model_name = scenario.model.title or scenario.model.name
    names = {name: f"{name}: {size.layers} × {size.width:,}" for name, size in MODEL_SIZES.items()}
    model = page.read("model", options={**names, SCENARIO: f"{model_name}, as {layers:,} × {width:,}"})
    if model != SCENARIO:
        layers, width = MODEL_SIZES[model].layers, MODEL_SIZES[model].width
    revision = page.read("revision")
    constants = machine_of(scenario) if page.read("machine") == "system" else {}
    bandwidth = asked.read("bandwidth_gbps", default=constants.get("bandwidth_gbps", _BANDWIDTH[revision]))
    asked.read("memory_limit_gib")
    page.read("devices", options=_DEVICES)
    for name in ("batch", "kind"):
        page.read(name)
    page.read("fit", options={"own": "Its authors’", "fit": f"Fitted to them, {revision}"})
    filtered = revision == "R3" or asked.read("filtered")
    link = page.build()
    question = asked.build(
        models=["euromlsys21" if model == SCENARIO else model],
        layers=layers,
        width=width,
        batches=[link.batch],
        devices=[2**power for power in range(link.devices.bit_length())],
        revision=revision,
        filtered=filtered,
        constants={**constants, "revision": revision},
    )
    return GridInputs(question, layers, width, bandwidth, model_name, link, {**asked.fields, **page.fields})
