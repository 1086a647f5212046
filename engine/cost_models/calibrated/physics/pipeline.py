"""Pipelines whose stages are not equal: the slowest stage sets the pace, the others fill and drain.

Sources: the steady state and its ends, the calibration study on 1,147 measured rows; interleaving, Narayanan et al.
2021 (arXiv:2104.04473, section 2.2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.cost_models.calibrated.physics.inputs import Case, Floats
from engine.cost_models.calibrated.physics.networks import rate_over
from engine.cost_models.calibrated.physics.parameters import Parameters
from engine.cost_models.calibrated.physics.rates import Rates

__all__ = ["Passes", "message_time", "messages_time", "passes"]


def message_time(case: Case, rates: Rates, p: Parameters) -> Floats:
    """Seconds of one message of activations between neighbouring stages [s]; 0 without a pipeline.

    Some neighbours are as far apart as any ranks: on either side of what the outermost network in use connects.
    """
    layout = case.layout
    split = np.where(case.software.split_messages > 0, layout.tensor_par, 1.0)
    rate = rate_over(case.processors, case.accelerator, rates)
    time = 2.0 * case.tokens * case.model.hidden / split / rate + p.latency
    return np.where(layout.pipeline_par > 1, time, 0.0)


class Passes(NamedTuple):
    """How often the slowest stage and the sum over all stages are on the critical path; `steady` of the former in the
    steady state, arrays [rows]."""

    slowest: Floats
    total: Floats
    steady: Floats

    def seconds(self, slowest: Floats, total: Floats) -> Floats:
        """Seconds of all microbatches through the pipeline without messages [s].

        Args:
            slowest: seconds per microbatch of the slowest stage, forward and backward. total: the sum over stages [s].
        """
        return self.slowest * slowest + self.total * total

    def bubble(self, slowest: Floats, total: Floats) -> Floats:
        """Seconds of that for which the slowest stage waits for others [s]; arguments as of `seconds`."""
        return (self.slowest - self.steady) * slowest + self.total * total


def passes(case: Case) -> Passes:
    """The critical path of every row: n max_i x_i + (sum_i x_i - max_i x_i) / v + r max_i x_i (v - 1) / v seconds.

    The slowest stage runs n microbatches; the second part fills and drains the pipeline. In the third r microbatches
    are missing for n to be whole groups of p: an interleaved schedule sends a group through all stages before its next
    chunk, and a group that lacks some waits as if they were there, at every chunk but the last (Narayanan et al.,
    arXiv:2104.04473, section 2.2, ask for whole groups; Calculon charges the same). Neither a slower stage nor a larger
    sum ever makes it shorter.
    """
    microbatches, each = case.microbatches, 1.0 / case.layout.pipeline_interleaving
    missing = np.mod(-microbatches, case.layout.pipeline_par)
    return Passes(microbatches - each + missing * (1.0 - each), each, microbatches)


def messages_time(case: Case, message: Floats) -> Floats:
    """Seconds of the messages that fill and drain the pipeline [s]: 2 (p - 1) of `message` [s]."""
    return (case.layout.pipeline_par - 1.0) * 2.0 * message
