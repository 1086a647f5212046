"""What the page asks of the planner, remembered."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pandas as pd

from dashboard.compat.caches import remembered
from dashboard.link.catalogue import system_of
from dashboard.pages.intra_operator.inputs import OWN, Question, system_question
from engine.planners.contract import PlanError
from engine.planners.intra_operator import IntraOperatorPlan, mesh_of, search
from engine.planners.intra_operator.layer_graphs import LayerGraph
from engine.planners.intra_operator.library import library_layers
from engine.planners.intra_operator.names import vector_name
from engine.planners.intra_operator.parallel_blocks import BlockList, layer_blocks
from engine.planners.intra_operator.suites import suite_layers

__all__ = ["SWEEPS", "kind_blocks", "layers_of", "limited", "swept", "systems_table", "whole_plan"]

NO_LIMIT: Final = 1e20
"""More memory than any plan takes [bytes]."""
SWEEPS: Final = {"batch": "Batch", "layers": "Layers", "devices": "Devices", "memory": "Memory"}
BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
DEPTHS: Final = (1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 128)
DEVICES: Final = (2, 4, 8, 16, 32, 64)
MOST_POINTS: Final = 400


def layers_of(asked: Question) -> list[LayerGraph]:
    """Returns the layers of the model that is asked about, from the first."""
    if isinstance(asked.model, str):
        return suite_layers(asked.model, batch=asked.batch, layers=asked.layers)
    return library_layers(asked.model, batch=asked.batch, layers=asked.layers)[1]


def kind_blocks(asked: Question) -> dict[str, BlockList]:
    """Returns the ParallelBlocks of every different layer by its name."""
    return {each.name: layer_blocks(each) for each in layers_of(asked)}


@remembered(48)
def _searched(key: str, limit: float, _asked: Question) -> IntraOperatorPlan:
    return search(
        _asked.model, _asked.mesh, memory_limit=limit, batch=_asked.batch, layers=_asked.layers,
        element_bytes=_asked.element_bytes, state_bytes=_asked.state_bytes, zero=_asked.zero,
    )  # fmt: skip


def whole_plan(asked: Question) -> IntraOperatorPlan:
    """Returns the search without a limit of memory."""
    return _searched(asked.key, NO_LIMIT, asked)


def limited(asked: Question, limit: float | None) -> IntraOperatorPlan:
    """Returns the search under a limit of memory [bytes]; None is none."""
    if limit is None:
        return replace(whole_plan(asked), memory_limit=None)
    return _searched(asked.key, limit, asked)


@remembered(24)
def _swept(key: str, over: str, limit: float, _asked: Question) -> pd.DataFrame:
    rows: list[dict[str, object]] = []
    if over == "memory":
        return _over_memory(_asked)
    for value in {"batch": BATCHES, "layers": DEPTHS, "devices": DEVICES}[over]:
        rows += _point(_asked, over, value, limit)
    return pd.DataFrame(rows, columns=["value", "name", "solution", "rate", "seconds", "memory"])


def _point(asked: Question, over: str, value: int, limit: float) -> list[dict[str, object]]:
    """The best plan and the named solutions at one value; none where nothing runs or fits."""
    if over == "devices":
        if value > _most_devices(asked):
            return []
        changed = replace(asked, mesh=mesh_of({**asked.mesh.document(), "devices": value}))
    else:
        changed = replace(asked, batch=value) if over == "batch" else replace(asked, layers=value)
    try:
        found = _search(changed, limit)
    except PlanError:
        return []  # groups of tokens that the batch does not fill, devices that divide nothing
    number = changed.mesh.devices
    named = [
        {"value": value, "name": row["solution"], "solution": row["solution"],
         "rate": found.tflop / row["seconds"] / number, "seconds": row["seconds"], "memory": row["memory"]}
        for row in found.named.to_dict("records") if row["fits"]
    ]  # fmt: skip
    best = found.chosen
    if best is None:
        return named
    return [{"value": value, "name": "best", "solution": best.solution, "rate": found.tflops / number,
             "seconds": best.seconds, "memory": best.memory}, *named]  # fmt: skip


def _most_devices(asked: Question) -> int:
    return 64 if asked.system_id == OWN else system_of(asked.system_id).networks[0].size


def _search(asked: Question, limit: float) -> IntraOperatorPlan:
    return search(
        asked.model, asked.mesh, memory_limit=limit, batch=asked.batch, layers=asked.layers,
        element_bytes=asked.element_bytes, state_bytes=asked.state_bytes, zero=asked.zero,
    )  # fmt: skip


def _over_memory(asked: Question) -> pd.DataFrame:
    """The frontier as a curve over the limit [GiB]; a plan of several kinds of vectors is mixed."""
    found = whole_plan(asked)
    frontier = found.frontier
    names = [each.name for each in layers_of(asked)]
    step = max(1, len(frontier) // MOST_POINTS)
    rows = [
        {"value": row["memory"] / 2**30, "name": "best",
         "solution": vector_name([one for each in row["vectors"] for one in each], names),
         "rate": found.tflop / row["seconds"] / asked.mesh.devices, "seconds": row["seconds"],
         "memory": row["memory"]}
        for row in frontier.iloc[::step].to_dict("records")
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["value", "name", "solution", "rate", "seconds", "memory"])


def swept(asked: Question, over: str, limit: float | None) -> pd.DataFrame:
    """Returns the rate of a device along a parameter, of the best plan and of the named solutions.

    Args:
        asked: what everything else is.
        over: a key of `SWEEPS`.
        limit: of the memory of a device [bytes]; None is none.

    Returns:
        value, name ("best" or a solution), solution, rate [TFLOP/s], seconds, memory [bytes].
    """
    return _swept(f"{asked.key} {asked.system_id}", over, NO_LIMIT if limit is None else limit, asked)


@remembered(24)
def _systems_table(key: str, names: tuple[str, ...], _asked: Question) -> pd.DataFrame:
    rows = []
    for name in names:
        try:
            asked = system_question(_asked, name)
            found = _search(asked, asked.mesh.memory or NO_LIMIT)
        except ValueError as problem:
            rows.append({"system": name, "label": name, "devices": 0, "datatype": "", "rate": None, "seconds": None,
                         "solution": "", "memory": None, "reason": str(problem)})  # fmt: skip
            continue
        best = found.chosen
        rows.append({
            "system": name, "label": asked.system.partition(",")[0], "devices": asked.mesh.devices,
            "datatype": asked.datatype,
            "rate": None if best is None else found.tflops / asked.mesh.devices,
            "seconds": None if best is None else best.seconds, "solution": "" if best is None else best.solution,
            "memory": None if best is None else best.memory, "reason": found.infeasible,
        })  # fmt: skip
    return pd.DataFrame(rows)


def systems_table(asked: Question, names: tuple[str, ...]) -> pd.DataFrame:
    """Returns the best plan of the same model on other systems: label, devices, datatype of products, rate [TFLOP/s
    of a device], seconds, solution, memory [bytes], reason why there is none."""
    return _systems_table(asked.key, names, asked)
