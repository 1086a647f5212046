"""Scheduler's view of a model: its speed on placements, its curve over the GPUs of a node, and its table of
placements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from engine.planners.contract import PlanError
from engine.planners.elastic.best import CardLike
from engine.planners.elastic.cards import card_names, load_card
from engine.planners.elastic.cluster.gpu_curve import CurvePoint, gpu_curve
from engine.planners.elastic.cluster.speeds import MeasuredRun, MeasuredSpeeds, rotated
from engine.planners.elastic.measured import Measurements, measurement_names, measurements_of
from engine.planners.elastic.placements import gpus_on_nodes

__all__ = ["Application", "application", "applications"]


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


def application(card: CardLike, measured: Measurements | str | None = None) -> Application:
    """Returns a scheduler's view of a model: the curve and the tables of its card, and its measured speeds.

    Args:
        card: a model card, a document of one, a name of the library, or the path of a file.
        measured: its measurements, or the name of a trace; that of the card where None.

    Raises `engine.planners.contract.PlanError` where the card is not understood or nothing was measured of it.
    """
    known = load_card(card)
    found = measurements_of(known.name, measured)
    runs = () if found is None else found.table[found.table["runnable"]].to_dict("records")
    if not len(runs):
        raise PlanError(f"No run of {known.name} was measured; a replay needs its measurements.")
    speeds = MeasuredSpeeds(
        tuple(
            MeasuredRun(str(run["exec_plan"]), rotated(gpus_on_nodes(run["placement"])), float(run["iteration_s"]))
            for run in runs
        )
    )
    curve = gpu_curve(known)
    fastest = known.global_batch / min(run.seconds for run in speeds.runs)
    return Application(
        known.name,
        float(known.global_batch),
        known.baseline_throughput or fastest,
        curve,
        tuple(known.placements_of_gpus.items()),
        known.plan_of_placement,
        speeds,
    )


@lru_cache(maxsize=1)
def applications() -> Mapping[str, Application]:
    """Returns the models that have a card and measurements, by name, including the models of the published replays."""
    measured = set(measurement_names())
    return {name: application(name) for name in card_names() if name in measured}
