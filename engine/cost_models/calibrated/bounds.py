"""Upper bounds of sample rates in a calibrated plan: the pipeline, and the update with what of its exchange must show.

Offloading can only add to that: what it adds to the window that an exchange hides behind, it adds to the step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.cost_models.calibrated.physics.sharding import exposed_exchange
from engine.cost_models.calibrated.rows.prepared_rows import CalibratedPlan
from engine.cost_models.calibrated.rows.schedule_points import case_at
from engine.executions.arrays import Ints

__all__ = ["CalibratedCandidates", "calibrated_bounds", "calibrated_candidates"]


@dataclass(slots=True)
class CalibratedCandidates:
    """Rows that share a bound, each an array [candidates]: group, place and time mode as in
    `engine.cost_models.calculon.prepared_rows`; their cell, and where their pipeline is in the plan's table."""

    group: Ints
    place: Ints
    time: Ints
    cell: Ints
    flow: Ints


def calibrated_candidates(plan: CalibratedPlan) -> CalibratedCandidates:
    """The candidates of everything that fits."""
    place, time = np.nonzero(plan.flow_row >= 0)
    return CalibratedCandidates(
        np.zeros(len(time), np.int64), place, time, plan.sites.cell[place], plan.flow_row[place, time]
    )


def calibrated_bounds(plan: CalibratedPlan, rows: CalibratedCandidates) -> npt.NDArray[np.float64]:
    """The sample rate that no execution of a candidate exceeds [samples/s] [candidates], up to rounding."""
    modes, sites = plan.modes, len(plan.sites.cell)
    once = (plan.once.optimizer + plan.once.tied).reshape(sites, -1)
    exchange = plan.once.exchange.reshape(sites, -1)
    together = np.zeros((len(modes.time_modes["launch"]), once.shape[1]), bool)
    together[modes.time, modes.optimizer] = True
    running, stretched = plan.running[rows.flow], 1.0 + plan.straggling[rows.place]
    # The slowest stage's computation is no longer than the whole pipeline over its microbatches.
    passes = case_at(plan.space, plan.layout.site, {}).microbatches * plan.layout.site["pipeline_interleaving"]
    window = running / np.broadcast_to(passes, (sites,))[rows.place]
    rest = np.full(len(rows.place), np.inf)
    overlapped = np.ones(())
    for update in range(once.shape[1]):
        shown = exposed_exchange(exchange[rows.place, update], overlapped, window, plan.parameters)
        seconds = shown * stretched + once[rows.place, update]
        rest = np.minimum(rest, np.where(together[rows.time, update], seconds, np.inf))
    return np.asarray(plan.layout.batch[rows.place] / (running * stretched + rest + plan.parameters.step_constant))
