"""Ranges of figures from servers of models that were left out of the fit.

The class of a deployment is its engine, the generation of its GPU, the kind of its model and its batch. The most
special class with enough servers counts; with too few of any, there is no range.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

import pandas as pd

from engine.cost_models.calibrated import generation_of
from engine.serving.shapes import pattern_of
from hardware import System
from models import Model

__all__ = ["ANY", "BATCHES", "SHARE", "FigureRange", "band_of", "figure_ranges"]

SHARE: Final = 0.8
"""Share of comparable servers inside a range."""
ANY: Final = "any"
"""Word for classes that leave a property open."""
BATCHES: Final = ((8, "1-8"), (64, "9-64"), (2**40, "65+"))
"""Bands of batches, each with its end."""
FALLBACKS: Final = (
    ("engine", "generation", "kind", "batch"),
    ("engine", "generation", "kind"),
    ("engine", "kind"),
    ("generation", "kind"),
    ("kind",),
    (),
)
"""Properties that comparable servers share; the first of these with enough servers counts."""


class FigureRange(NamedTuple):
    """Range of a figure: measured servers of `described` are between low and high times the prediction in `SHARE` of
    the cases."""

    low: float
    high: float
    rows: int
    models: int
    described: str


def band_of(batch: float) -> str:
    """Returns the band of a batch per replica.

    Args:
        batch: requests.
    """
    return next(name for end, name in BATCHES if batch <= end)


@cache
def _factors() -> Mapping[tuple[str, ...], tuple[float, int, int]]:
    text = files("engine.serving").joinpath("errors.csv")
    with text.open(encoding="utf-8") as file:
        table = pd.read_csv(file, dtype={"batch": str})
    keys = table[["figure", "engine", "generation", "kind", "batch"]].itertuples(index=False, name=None)
    values = table[["factor", "rows", "models"]].itertuples(index=False, name=None)
    return dict(zip(keys, values, strict=True))


def figure_ranges(model: Model, system: System, row: Mapping[str, Any]) -> dict[str, FigureRange]:
    """Returns the ranges of the figures of a deployment that were measured, by name; none for a generation without
    measured servers.

    Args:
        model, system: of the deployment.
        row: its fields; a batch of None for servers of any.
    """
    generation = generation_of(system)
    if generation not in {key[2] for key in _factors()}:
        return {}
    engine = str(row["engine"])
    properties = {
        "engine": engine if engine != "generic" else ANY,
        "generation": generation,
        "kind": "experts" if pattern_of(model).is_routed else "dense",
        "batch": ANY if row["batch"] is None else band_of(float(row["batch"])),
    }
    found = {}
    for figure in ("time_to_first_token", "time_per_output_token", "tokens_per_s"):
        for shared in FALLBACKS:
            key = tuple(properties[name] if name in shared else ANY for name in properties)
            if (figure, *key) in _factors():
                factor, rows, models = _factors()[(figure, *key)]
                words = [each for each in key if each != ANY]
                described = ", ".join(words) or "all"
                found[figure] = FigureRange(1.0 / factor, float(factor), int(rows), int(models), described)
                break
    for name in ("tokens_per_s_per_processor", "requests_per_s"):
        if "tokens_per_s" in found:
            found[name] = found["tokens_per_s"]
    if "time_per_output_token" in found:
        found["tokens_per_s_per_user"] = found["time_per_output_token"]
    return found
