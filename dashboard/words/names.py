"""What cells, executions and labels are called."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from engine.columns import Column, choice_label

__all__ = ["CALLED_BY", "FIXED", "FIXED_MEANS", "degrees", "execution_name", "in_sentence", "named_value"]


FIXED: Final = "fixed layout"
"""The execution that was best before a change, kept as it is."""
FIXED_MEANS: Final = "The execution that was best before the change, kept as it is."

CALLED_BY: Final = ("id", "tensor_par", "pipeline_par", "data_par")
"""What `execution_name` asks of an execution."""


def degrees(tensor: Any, pipeline: Any, data: Any = None) -> str:
    """Returns the name of a cell or of an execution's degrees: "TP 8 × PP 4 × DP 48"."""
    parts = [f"TP {int(tensor):,}", f"PP {int(pipeline):,}"]
    if data is not None and not (isinstance(data, float) and math.isnan(data)):
        parts.append(f"DP {int(data):,}")
    return " × ".join(parts)


def execution_name(row: Mapping[Any, Any]) -> str:
    """Returns the degrees of an execution if the row has them, else its id."""
    if "tensor_par" in row and "pipeline_par" in row:
        return degrees(row["tensor_par"], row["pipeline_par"], row.get("data_par"))
    return f"Execution {int(row['id']):,}" if "id" in row else "Execution"


def in_sentence(label: str) -> str:
    """Returns a label as it reads inside a sentence: "step time", but "HBM needed" and "TP comm., exposed"."""
    return label if label[1:2].isupper() else label[:1].lower() + label[1:]


def named_value(column: Column, value: Any, networks: Sequence[str] = ()) -> str:
    """Returns a field's value as it is written on an axis or in a name: "1,024", "full", "InfiniBand".

    networks: what the system's networks are called, innermost first, which then stand for their numbers.
    """
    numbers_only = column.dtype == "int64" and not (networks and column.of_network)
    return f"{value:,}" if numbers_only else choice_label(column, value, networks)
