"""Communication volume of every strategy vector, the same in all layers, by collective."""

from __future__ import annotations

import pandas as pd

from engine.planners.intra_operator.layer_costs import Widths
from engine.planners.intra_operator.mesh import COLLECTIVES, mesh_of
from engine.planners.intra_operator.uniform import uniform_vectors
from engine.reproductions.alpa.suite_models import suite_layers

__all__ = ["vector_volumes"]


def vector_volumes(model: str, *, batch: int, layers: int, devices: int, element_bytes: int = 4) -> pd.DataFrame:
    """Returns the volume of every strategy vector, the same in all layers, by collective [bytes].

    Args:
        model: of the suites, such as "gpt F".
        batch: sequences.
        layers: how many.
        devices: on the one axis.
        element_bytes: width of an element [bytes].

    Returns:
        One row per vector: vector, all_reduce, all_gather, all_to_all, volume.

    Raises:
        PlanError: there is no such model.
    """
    found = suite_layers(model, batch=batch, layers=layers)
    mesh = mesh_of({"devices": devices, "matrix_rate": 1.0, "bandwidth": 1.0})
    table = uniform_vectors(found, mesh, Widths(float(element_bytes)))
    return table[["vector", *(name for name in COLLECTIVES if name in table), "volume"]]
