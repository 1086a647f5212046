"""Upper bounds of the sample rates of calibrated rows: the pipeline, and the update with the part of its exchange that
must be exposed.

Offloading only lengthens the step: it also lengthens the window that hides an exchange, but by no more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.cost_models.calibrated.physics.communication.sharding import exposed_exchange
from engine.cost_models.calibrated.physics.step import whole_step
from engine.cost_models.calibrated.rows.prepared_rows import CalibratedRows
from engine.cost_models.calibrated.rows.schedule_points import case_at
from engine.executions.arrays import Ints

__all__ = ["CalibratedCandidates", "calibrated_bounds", "calibrated_candidates"]


@dataclass(slots=True)
class CalibratedCandidates:
    """Rows that share a bound, each an array [candidates]: group, place and time mode as in
    `engine.cost_models.calculon.rows.prepared_rows`; their cell, and where their pipeline is in the prepared table."""

    group: Ints
    place: Ints
    time: Ints
    cell: Ints
    flow: Ints


def calibrated_candidates(prepared: CalibratedRows) -> CalibratedCandidates:
    """Returns the candidates of everything that fits.

    Args:
        prepared: rows of the cells.
    """
    place, time = np.nonzero(prepared.flow_row >= 0)
    return CalibratedCandidates(
        np.zeros(len(time), np.int64), place, time, prepared.points.cell[place], prepared.flow_row[place, time]
    )


def calibrated_bounds(prepared: CalibratedRows, rows: CalibratedCandidates) -> npt.NDArray[np.float64]:
    """Returns the sample rate that no execution of a candidate exceeds [samples/s] [candidates], up to rounding.

    Args:
        prepared: rows of the cells.
        rows: candidates among them.
    """
    modes, points = prepared.modes, len(prepared.points.cell)
    once = (prepared.once.optimizer + prepared.once.tied).reshape(points, -1)
    exchange = prepared.once.exchange.reshape(points, -1)
    together = np.zeros((len(modes.time_modes["launch"]), once.shape[1]), bool)
    together[modes.time, modes.optimizer] = True
    running, share = prepared.running[rows.flow], prepared.straggling[rows.place]
    # The slowest stage's computation is no longer than the whole pipeline over its microbatches.
    microbatches = case_at(prepared.space, prepared.row_table.point, {}).microbatches
    window = running * np.broadcast_to(prepared.passes / microbatches, (points,))[rows.place]
    least = np.full(len(rows.place), np.inf)
    overlapped = np.ones(())
    for update in range(once.shape[1]):
        shown = exposed_exchange(exchange[rows.place, update], overlapped, window, prepared.parameters)
        whole = whole_step(running, share, prepared.parameters, once[rows.place, update], exchange=shown)
        least = np.minimum(least, np.where(together[rows.time, update], whole.seconds, np.inf))
    return np.asarray(prepared.row_table.batch[rows.place] / least)
