"""Names of cells, executions and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from engine.columns import Column, choice_label
from engine.executions.execution_names import DEGREES, execution_name

__all__ = ["CALLED_BY", "FIXED", "FIXED_MEANS", "cell_name", "in_sentence", "name_or_id", "named_value"]


FIXED: Final = "fixed layout"
"""The execution that was best before a change, unchanged."""
FIXED_MEANS: Final = "The best execution before the change, not re-optimised."

CALLED_BY: Final = ("id", *DEGREES)
"""Fields that `name_or_id` reads."""


def cell_name(tensor: Any, pipeline: Any) -> str:
    """Returns the name of a cell of the map: "TP 8 × PP 4"."""
    return execution_name({"tensor_par": tensor, "pipeline_par": pipeline})


def name_or_id(row: Mapping[Any, Any]) -> str:
    """Returns the degrees of an execution if the row has them, else its id."""
    if "tensor_par" in row and "pipeline_par" in row:
        return execution_name(row)
    return f"Execution {int(row['id']):,}" if "id" in row else "Execution"


def in_sentence(label: str) -> str:
    """Returns a label as it reads inside a sentence: "step time", but "HBM needed" and "LoRA tokens"."""
    begins_with_name = any(sign.isupper() for sign in label.partition(" ")[0][1:])
    return label if begins_with_name else label[:1].lower() + label[1:]


def named_value(column: Column, value: Any, networks: Sequence[str] = ()) -> str:
    """Return a field's value in the form of axes and names: "1,024", "full", "InfiniBand".

    networks: what the system's networks are called, innermost first, which then stand for their numbers.
    """
    numbers_only = column.dtype == "int64" and not (networks and column.of_network)
    return f"{value:,}" if numbers_only else choice_label(column, value, networks)
