"""Texts of the calibrated cost model, and its operations as tables to print."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

from engine.cost_models.account import Shown
from engine.cost_models.calibrated.case_building import model_shapes
from engine.cost_models.calibrated.operation_columns import OPERATION_COLUMNS
from engine.cost_models.calibrated.physics.layers.operations import BLOCKS
from engine.cost_models.calibrated.physics.layers.views import modelled_layers
from engine.cost_models.calibrated.space import COVERED
from engine.cost_models.words import CostModelWords, Sheet
from hardware import System
from models import Model
from models.unrepresented import unrepresented

__all__ = ["WORDS"]

_NOT_IN_OPERATIONS: Final = (
    "Without recomputation and without waiting for kernel launches; of communication, the exposed part."
)


_MODELLED_LAYERS: Final = (
    "Layers of {}: time and memory are modelled from operations, bytes and launches; no run of the validation has such "
    "layers."
)


def _print_operations(table: pd.DataFrame) -> list[Sheet]:
    kinds = table["block"].unique().tolist()
    texts = [position for position, each in enumerate(OPERATION_COLUMNS) if each.column.dtype == "str"]
    headers = [f"{each.column.short} [{each.unit}]" if each.unit else each.column.short for each in OPERATION_COLUMNS]
    sheets = []
    for kind in kinds:
        operations = table[table["block"] == kind]
        rows = [[_write_cell(each, row) for each in OPERATION_COLUMNS] for row in operations.to_dict("records")]
        forward, backward = (float(operations[name].sum()) * 1e6 for name in ("fw_time", "bw_time"))
        below = [f"Together {forward:,.1f} µs forward, {backward:,.1f} µs backward.", ""]
        if kind == kinds[-1]:
            below.append(_NOT_IN_OPERATIONS)
        heading = f"{BLOCKS.get(kind, kind)}:" if len(kinds) > 1 else ""
        sheets.append(Sheet(heading, headers, rows, texts, below))
    return sheets


def _write_cell(each: Shown, row: Mapping[Any, Any]) -> str:
    value = row[each.column.name]
    if each.column.dtype == "str":
        return str(value)
    return "-" if math.isnan(value) else f"{value / each.size:,.1f}"


def _list_neglected(thing: Model | System) -> tuple[str, ...]:
    if isinstance(thing, System):
        return (
            "Efficiencies and latencies of the description are not read; those of a calibration are.",
            "Groups are placed evenly on the fewest networks that hold them; the rest of a network stays idle. "
            "`must_be_filled` has no effect.",
            "Contention between collectives, network topology within a tier, storage and failures are not modelled.",
        )
    if thing.layers is not None:
        return _neglected_of_pattern(thing)
    found = thing.architecture
    if found is None:
        return ("The model is known by six numbers only: plain attention, no gate in its MLP, no vocabulary.",)
    remarks = ["Biases and the weights of norms are not counted."]
    if found.qk_norm:
        remarks.append("Normalising queries and keys is not counted.")
    if found.norms_per_block > 2:
        remarks.append(f"{found.norms_per_block} norms per block are counted as 2.")
    if found.parallel_residual:
        remarks.append("Attention and MLP, parallel in the published block, are counted one after the other.")
    if found.positions == "learned":
        remarks.append(f"The embedding of {found.max_seq:,} positions is not counted.")
    if found.positions == "relative":
        remarks.append("Relative positions, with a projection of their own in every block, are not counted.")
    if modelled := modelled_layers(model_shapes(thing).pattern):
        remarks.append(_MODELLED_LAYERS.format(" and ".join(modelled)))
    if found.experts is not None:
        remarks.append(
            "Experts are visited evenly unless Expert load says how much the busiest rank has; dropped tokens are not "
            "modelled."
        )
    return (*remarks, *unrepresented(thing))


def _neglected_of_pattern(model: Model) -> tuple[str, ...]:
    """Return sentences on what the cost model leaves out of a model with a pattern of layers."""
    assert model.layers is not None
    remarks = ["Biases and the weights of norms are not counted."]
    if modelled := modelled_layers(model.layers):
        remarks.append(_MODELLED_LAYERS.format(" and ".join(modelled)))
    if any(block.additions for block in model.layers.blocks):
        remarks.append("Work on the residual stream besides norms and additions is counted by its products only.")
    return (*remarks, *unrepresented(model))


WORDS: Final = CostModelWords(
    title="calibrated",
    summary="predicts measured runs",
    description=(
        "**calibrated** takes kernel rates, launch costs, networks and overlap as measured training runs show them, "
        "and knows grouped queries, experts, context and expert parallelism, ZeRO and selective recompute. The page "
        "Validation shows how far it is off."
    ),
    covered=COVERED,
    sheets=_print_operations,
    neglected=_list_neglected,
)
