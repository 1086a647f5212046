"""Upper bounds of sample rates in a calibrated plan: the pipeline alone, with the shortest update.

Offloading, the exchange of gradients and waiting for it can only add to that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.calibrated.plan import CalibratedPlan

__all__ = ["CalibratedCandidates", "calibrated_bounds", "calibrated_candidates"]

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class CalibratedCandidates:
    """Rows that share a bound, each an array [candidates]: group, place and time mode as in `engine.plan`; their cell,
    and where their pipeline is in the plan's table."""

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
    once = (plan.once.optimizer + plan.once.tied).reshape(len(plan.sites.cell), -1).min(axis=1)
    running = plan.running[rows.flow] * (1.0 + plan.straggling[rows.place])
    return np.asarray(plan.layout.batch[rows.place] / (running + once[rows.place] + plan.parameters.step_constant))
