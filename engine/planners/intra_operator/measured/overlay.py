"""Comparison of measured and predicted points, and bandwidths and matrix rate fitted to them.

The seconds of computation of a point are operations / (devices x rate), the seconds of its collectives the sum over
kinds of volume / bandwidth; where only the whole step was measured, both together. The unknowns 1 / rate and 1 /
bandwidth enter linearly, so that the best ones that are not negative come from linear least squares over every set of
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.executions.arrays import Floats
from engine.planners.contract import PlanError
from engine.planners.intra_operator.layer_costs import LayerCosts, Vector
from engine.planners.intra_operator.layer_graphs import LayerGraph
from engine.planners.intra_operator.library import any_mesh
from engine.planners.intra_operator.mesh import Mesh, mesh_of
from engine.planners.intra_operator.steps import StepCosts, layers_of, step_of, widths_of
from engine.planners.intra_operator.uniform import costs_of, step_flop

__all__ = ["FittedRates", "fit_rates", "overlay"]

UNKNOWN: Final = ("matrix_rate", "bandwidth", "all_to_all_bandwidth")
PREDICTED: Final = ("seconds", "compute_seconds", "communication_seconds", "volume", "memory")


@dataclass(frozen=True)
class FittedRates:
    """Rates that fit measured points best: of a device's products [FLOP/s], of a ring and of an all-to-all [bytes/s],
    None where the points do not determine one; `points` are the fitted points, and `notes` caveats."""

    matrix_rate: float | None
    bandwidth: float | None
    all_to_all_bandwidth: float | None
    points: pd.DataFrame
    notes: tuple[str, ...]

    def mesh(self, mesh: Mesh | Mapping[str, Any]) -> Mesh:
        """Return a mesh with the fitted rates in place of its own.

        Args:
            mesh: of one axis, or its document.
        """
        found = {name: value for name in UNKNOWN if (value := getattr(self, name)) is not None}
        return replace(mesh_of(mesh), **found)


class _Steps:
    """Predicted steps of points, with costs of layers made once."""

    def __init__(self, asked: Mapping[str, Any], counted: Mapping[str, Any]) -> None:
        self.asked, self.counted = asked, counted
        self.known: dict[tuple[Any, ...], tuple[list[LayerGraph], dict[str, LayerCosts]]] = {}

    def of(self, point: Mapping[str, Any], mesh: Mesh) -> tuple[StepCosts, float] | None:
        """Returns the costs of a point's step, and its operations on one device [FLOP]; None where its vector is not
        known."""
        if point["vector"] is None:
            return None
        where = f"Line {point['line']}"
        model, batch, layers = (self._field(point, name, where) for name in ("model", "batch", "layers"))
        key = (str(model), batch, layers, mesh.devices)
        widths = widths_of(model, **self.counted)
        if key not in self.known:
            _, graphs, _ = layers_of(model, batch=batch, layers=layers, accumulation=widths.accumulation)
            self.known[key] = graphs, costs_of(graphs, mesh, widths)
        graphs, kinds = self.known[key]
        order = [each.name for each in graphs]
        if point["kind"] == "segment":
            order = _layers_of_segment(order, point, where)
        vectors = _split_vector(point["vector"], order, kinds, where)
        try:
            found = step_of(kinds, order, mesh, vectors, widths)
        except PlanError as error:
            raise PlanError(f"{where}: {error}") from None
        flop = step_flop(kinds, order) + sum(kinds[name].again_flop for name in order)
        return found, flop / mesh.devices

    def _field(self, point: Mapping[str, Any], name: str, where: str) -> Any:
        value = self.asked.get(name)
        value = point[name] if value is None else value
        if value is None or (isinstance(value, float) and np.isnan(value)):
            raise PlanError(f"{where} does not say which {name} it is of; give {name}.")
        return value if name == "model" else int(value)

    def devices(self, point: Mapping[str, Any], mesh: Mesh) -> Mesh:
        """Return the mesh with the devices of a point, if the point states them."""
        given = point["devices"]
        return mesh if given is None or given != given else replace(mesh, devices=int(given))


def _layers_of_segment(order: Sequence[str], point: Mapping[str, Any], where: str) -> list[str]:
    kinds = list(dict.fromkeys(order))
    at = point["segment"]
    if at is None or at != at or not 0 <= int(at) < len(kinds):
        raise PlanError(f"{where}: segment {at} is none of the {len(kinds)} different ones.")
    return [kinds[int(at)]]


def _split_vector(
    vector: Sequence[int], order: Sequence[str], kinds: Mapping[str, LayerCosts], where: str
) -> list[Vector]:
    """Splits a printed vector into one for each layer: it lists all layers, or each different layer once."""
    blocks = {name: len(kinds[name].options) for name in order}
    different = list(dict.fromkeys(order))
    for names in (order, different):
        if len(vector) == sum(blocks[name] for name in names):
            parts: list[Vector] = []
            at = 0
            for name in names:
                parts.append(tuple(vector[at : at + blocks[name]]))
                at += blocks[name]
            return parts if names is order else [parts[different.index(name)] for name in order]
    needed = sum(blocks[name] for name in order)
    raise PlanError(f"{where}: the vector has {len(vector)} strategies; the {len(order)} layers have {needed} blocks.")


def overlay(
    points: pd.DataFrame,
    mesh: Mesh | Mapping[str, Any],
    *,
    model: str | None = None,
    batch: int | None = None,
    layers: int | None = None,
    **counted: Any,
) -> pd.DataFrame:
    """Returns measured points with their predictions.

    Args:
        points: from `measured_points`.
        mesh: of one axis, or its document; a point's own number of devices replaces the mesh's.
        model, batch, layers: of all points, in place of their own.
        counted: arguments of `widths_of`.

    Returns:
        The points with predicted_seconds, predicted_compute_seconds, predicted_communication_seconds,
        predicted_volume, predicted_memory, solution, and error (predicted over measured seconds, less 1); not numbers
        where a point has no vector.

    Raises:
        PlanError: a point does not name its model, or the model does not have its vector.
    """
    machine = _one_axis(mesh)
    steps = _Steps({"model": model, "batch": batch, "layers": layers}, counted)
    rows = []
    for point in _point_records(points):
        found = steps.of(point, steps.devices(point, machine))
        if found is None:
            rows.append({**{f"predicted_{name}": np.nan for name in PREDICTED}, "solution": "", "error": np.nan})
            continue
        step, _ = found
        seconds = point["seconds"]
        rows.append(
            {
                **{f"predicted_{name}": float(getattr(step, name)) for name in PREDICTED},
                "solution": step.solution,
                "error": step.seconds / seconds - 1.0 if np.isfinite(seconds) and seconds > 0 else np.nan,
            }
        )
    return pd.concat([points.reset_index(drop=True), pd.DataFrame(rows)], axis=1)


def fit_rates(
    points: pd.DataFrame,
    *,
    devices: int | None = None,
    model: str | None = None,
    batch: int | None = None,
    layers: int | None = None,
    published_volumes: bool = False,
    **counted: Any,
) -> FittedRates:
    """Returns the matrix rate and bandwidths that fit measured points best, by least squares of their seconds.

    Args:
        points: from `measured_points`.
        devices: of points that do not say how many.
        model, batch, layers: of all points, in place of their own.
        published_volumes: whether collectives moved the volume that a point prints, over one bandwidth, and not the
            volumes that are counted here, over one for rings and one for all-to-alls.
        counted: arguments of `widths_of`.

    Raises:
        PlanError: a point does not name its model, or no point determines a rate.
    """
    steps = _Steps({"model": model, "batch": batch, "layers": layers}, counted)
    plain = mesh_of({"devices": devices or 1, "matrix_rate": 1.0, "bandwidth": 1.0})
    rows: list[tuple[float, float, float]] = []
    measured: list[float] = []
    notes: list[str] = []
    used: list[dict[str, Any]] = []
    for point in _point_records(points):
        if devices is None and (point["devices"] is None or point["devices"] != point["devices"]):
            raise PlanError(f"Line {point['line']} does not say on how many devices it ran; give devices.")
        found = steps.of(point, steps.devices(point, plain))
        if found is None:
            continue
        step, flop = found
        moved = (sum(step.volumes.values()) - step.volumes["all_to_all"], step.volumes["all_to_all"])
        if published_volumes:
            moved = (point["volume"], 0.0)
        before = len(rows)
        # Linear in the inverse rates: seconds = FLOP / rate + ring bytes / bandwidth + all-to-all bytes / bandwidth.
        for name, row in (("compute_seconds", (flop, 0.0, 0.0)), ("communication_seconds", (0.0, *moved))):
            if np.isfinite(point[name]) and not np.isnan(sum(row)):
                rows.append(row)
                measured.append(point[name])
        # Seconds of the whole step serve only where its parts were not measured: else they would count twice.
        if before == len(rows) and np.isfinite(point["seconds"]) and not np.isnan(sum(moved)):
            rows.append((flop, *moved))
            measured.append(point["seconds"])
        if before < len(rows):
            used.append(dict(point))
    if not rows:
        raise PlanError("No measured point has a vector and seconds from which a rate could be told.")
    values = _nonnegative_least_squares(np.array(rows), np.array(measured))
    rates = {name: float(1.0 / value) if value > 0 else None for name, value in zip(UNKNOWN, values, strict=True)}
    for name, value in rates.items():
        column = UNKNOWN.index(name)
        if value is None and any(row[column] > 0 for row in rows):
            notes.append(f"The points want no time for {name.replace('_', ' ')}: it is not told by them.")
    if len(rows) <= sum(value is not None for value in rates.values()):
        notes.append("There are no more points than rates: the fit says nothing of its error.")
    return FittedRates(**rates, points=pd.DataFrame(used), notes=tuple(notes))


def _nonnegative_least_squares(matrix: Floats, values: Floats) -> Floats:
    """Returns the nonnegative least-squares solution, by trying all sets of columns."""
    best, least = np.zeros(matrix.shape[1]), float((values**2).sum())
    columns = [at for at in range(matrix.shape[1]) if np.any(matrix[:, at] > 0)]
    scale = np.maximum(np.abs(matrix).max(axis=0), 1e-300)
    for number in range(1, len(columns) + 1):
        for chosen in combinations(columns, number):
            at = list(chosen)
            solved, _, rank, _ = np.linalg.lstsq(matrix[:, at] / scale[at], values, rcond=None)
            if rank < number or np.any(solved <= 0):
                continue
            left = float(((matrix[:, at] / scale[at] @ solved - values) ** 2).sum())
            if left < least * (1.0 - 1e-12):
                best, least = np.zeros(matrix.shape[1]), left
                best[at] = solved / scale[at]
    return best


def _one_axis(mesh: Mesh | Mapping[str, Any]) -> Mesh:
    found = any_mesh(mesh)
    if found.outer is not None:
        raise PlanError("Measured points are of a mesh of one axis; leave the outer axis.")
    return found


def _point_records(points: pd.DataFrame) -> list[dict[str, Any]]:
    """Returns rows as dictionaries with their own values; pandas represents an absent one by None or NaN."""
    return [{str(name): value for name, value in row.items()} for row in points.to_dict("records")]
