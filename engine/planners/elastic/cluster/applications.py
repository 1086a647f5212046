"""What a scheduler knows of a model: its speed on placements, its curve over the GPUs of a node, and its table of
placements."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from engine.planners.elastic.cluster.gpu_curve import CurvePoint, gpu_curve
from engine.planners.elastic.cluster.speeds import Measured, MeasuredSpeeds, rotated

__all__ = ["Application", "applications"]

FOLDER: Final = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Application:
    """One model, as schedulers see it.

    `batch` is the global batch [samples] and `baseline` the throughput [samples/s] by which gains of different models
    are compared. `curve` has one point for each number of GPUs of a node, from none; `table` lists GPUs with their
    placements, in the order in which they are tried, and is empty for models that stay on one node; `plans` has the
    plan of each placement of the table.
    """

    name: str
    batch: float
    baseline: float
    curve: tuple[CurvePoint, ...]
    table: tuple[tuple[int, tuple[str, ...]], ...]
    plans: Mapping[str, str]
    speeds: MeasuredSpeeds

    @property
    def large(self) -> bool:
        """Returns whether the model is placed by its table."""
        return bool(self.table)

    def point(self, gpus: int) -> CurvePoint:
        """Returns the point of the curve for a number of GPUs; beyond the curve nothing runs.

        Args:
            gpus: of a node, or of several.
        """
        return self.curve[gpus] if 0 <= gpus < len(self.curve) else CurvePoint(-1.0, "", gpus)


@lru_cache(maxsize=1)
def applications() -> Mapping[str, Application]:
    """Returns the seven models of the published replays, by name."""
    cards = json.loads((FOLDER / "models.json").read_text(encoding="utf-8"))
    return {name: _application(name, card) for name, card in cards.items()}


def _application(name: str, card: Mapping[str, Any]) -> Application:
    with (FOLDER / f"trace_{name}.csv").open(newline="", encoding="utf-8-sig") as file:
        runs = [
            Measured(row["exec_plan"], rotated(map(int, row["placement"])), float(row["iter_time"]))
            for row in csv.DictReader(file)
        ]
    return Application(
        name,
        float(card["global_batch"]),
        float(card["orig_tpt"]),
        gpu_curve(name, card),
        tuple((int(gpus), tuple(placements)) for gpus, placements in card["gpu_to_placements"].items()),
        dict(card["placements_to_plan"]),
        MeasuredSpeeds(tuple(runs)),
    )
