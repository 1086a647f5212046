"""Fields that results depend on, of one scenario, and those in which several scenarios differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import hardware
import models
from engine.cost_models.registry import cost_model_of
from engine.scenarios.scenario import Scenario

__all__ = ["scenario_differences", "scenario_fields"]

_SILENT: Final = ("params_published_b", "params_active_published_b", "rope_theta", "max_seq", "positions")
"""Parts of an architecture that no result depends on."""
_PHYSICS: Final = ("matrix", "vector", "mem1", "mem2", "processing_mode", "networks")
"""Parts of a system that results depend on."""


def scenario_differences(scenarios: Sequence[Scenario]) -> list[tuple[str, list[Any]]]:
    """Return (path, value in each scenario) of every field that is not the same in all; None where one lacks it.

    Args:
        scenarios: compared ones.
    """
    exact = all(cost_model_of(scenario).flop_recipe == "block" for scenario in scenarios)
    tables = [dict(scenario_fields(scenario, is_block_enough=exact)) for scenario in scenarios]
    found = []
    for path in dict.fromkeys(path for table in tables for path in table):
        values = [table.get(path) for table in tables]
        if any(value != values[0] for value in values):
            found.append((path, values))
    return found


def scenario_fields(scenario: Scenario, *, is_block_enough: bool) -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of everything that results depend on, such as ("system.mem1.capacity_gib", 80.0).

    Args:
        scenario: whose fields they are.
        is_block_enough: whether all compared cost models know a model by the six numbers of its block alone.
    """
    model, system = scenario.model, scenario.system
    yield "model", model.name
    yield "system", system.name
    for name in ("num_procs", "max_batch_size", "datatype", "cost_model"):
        yield name, getattr(scenario, name)
    if scenario.calibration is not None:
        yield "calibration", scenario.calibration.name
    yield "executions", scenario.space.total
    yield "model.seq_size", model.seq_size
    if model.block is not None and (is_block_enough or model.architecture is None):
        for key, value in models.to_calculon(model).items():
            yield f"model.block.{key}", value
    elif model.layers is not None:
        yield "model.layers.pattern", model.layers.describe()
        yield "model.layers.hidden", model.layers.hidden
        yield "model.layers.vocab", model.layers.vocab
        yield "model.layers.parameters", model.parameters
    else:
        for path, value in _document_leaves(models.to_document(model)["architecture"]):
            if path not in _SILENT:
                yield f"model.architecture.{path}", value
    document = hardware.to_document(system)
    rate = system.rate_name(scenario.datatype)
    for path, value in _document_leaves({key: document[key] for key in _PHYSICS}):
        part, _, rest = path.partition(".")
        # Rates of other datatypes than the scenario's have no effect.
        if part not in ("matrix", "vector") or rest.partition(".")[0] == rate:
            yield f"system.{path}", value
    if not is_block_enough and system.accelerator is not None and system.accelerator.tdp_w:
        yield "system.accelerator.tdp_w", system.accelerator.tdp_w
    for name, limit in scenario.limits.items():
        yield f"limits.{name}", limit


def _document_leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of a document by its path; tables of efficiency as one."""
    if isinstance(value, Mapping):
        for key, child in value.items():
            yield from _document_leaves(child, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        for index, child in enumerate(value):
            yield from _document_leaves(child, f"{path}.{index}")
    else:
        yield path, value
