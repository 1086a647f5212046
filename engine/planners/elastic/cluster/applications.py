"""Scheduler's view of a model: its batch, the throughput that gains refer to, and its speed on placements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from engine.planners.contract import PlanError
from engine.planners.elastic.best import CardLike
from engine.planners.elastic.cards import ModelCard, card_names, load_card
from engine.planners.elastic.cluster.speeds import MeasuredRun, MeasuredSpeeds, rotated
from engine.planners.elastic.measured import Measurements, measurement_names, measurements_of
from engine.planners.elastic.placements import gpus_on_nodes

__all__ = ["Application", "application", "applications"]


@dataclass(frozen=True)
class Application:
    """One model, as schedulers see it.

    `batch` is the global batch [samples] and `baseline` the throughput [samples/s] by which gains of different models
    are compared. `card` is the model's card, None for models of the library.
    """

    name: str
    batch: float
    baseline: float
    speeds: MeasuredSpeeds
    card: ModelCard | None = None


def application(card: CardLike, measured: Measurements | str | None = None) -> Application:
    """Return a scheduler's view of a model: its card and its measured speeds.

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
    fastest = known.global_batch / min(run.seconds for run in speeds.runs)
    return Application(known.name, float(known.global_batch), known.baseline_throughput or fastest, speeds, known)


@lru_cache(maxsize=1)
def applications() -> Mapping[str, Application]:
    """Returns the models that have a card and measurements, by name, including the models of the published replays."""
    measured = set(measurement_names())
    return {name: application(name) for name in card_names() if name in measured}
