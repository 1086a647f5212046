"""Failures and checkpoints: how often to write one, and how long a run then takes.

A run computes for an interval tau, writes a checkpoint for delta, and repeats. Any failure stops all of it, costs a
restart R and everything since the last checkpoint; failures come at random with a mean time M between them, also while
writing and restarting. All times are in one unit; every argument may be a number or an array.

Sources: J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17 (1974) 530; J. T. Daly,
"A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22 (2006) 303.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.economics.quantities import Quantity

__all__ = ["Parts", "daly_interval", "expected_seconds", "split_expected_time", "young_interval"]


def young_interval(write: Quantity, mtbf: Quantity) -> Quantity:
    """Returns the computing time between checkpoints that loses least, to first order: sqrt(2 delta M). Young 1974.

    Args:
        write: time to write a checkpoint, delta [s].
        mtbf: mean time between failures of the whole system, M [s].
    """
    root: Quantity = np.sqrt(2.0 * write * mtbf)
    return root


def daly_interval(write: Quantity, mtbf: Quantity) -> Quantity:
    """Returns the computing time between checkpoints that loses least, to higher order. Daly 2006, equation 37.

    sqrt(2 delta M) (1 + sqrt(delta / 2M) / 3 + delta / 18M) - delta for delta < 2M, else M.

    Args:
        write: time to write a checkpoint, delta [s].
        mtbf: mean time between failures of the whole system, M [s].
    """
    # delta / 2M; delta / 18M is a ninth of it.
    ratio = write / (2.0 * mtbf)
    higher = young_interval(write, mtbf) * (1.0 + np.sqrt(ratio) / 3.0 + ratio / 9.0) - write
    early = ratio < 1.0
    chosen: Quantity = early * higher + (1 - early) * mtbf
    return chosen


def expected_seconds(
    compute: Quantity, interval: Quantity, write: Quantity, restart: Quantity, mtbf: Quantity
) -> Quantity:
    """Returns the expected time of a run that needs `compute` without failures or checkpoints.

    M exp(R/M) (exp((tau + delta)/M) - 1) compute / tau: Daly 2006, equation 20. `interval` must be above 0. Infinite
    where an interval is so much longer than the time between failures that the run would never end.

    Args:
        compute: time without failures or checkpoints [s].
        interval: computing time between checkpoints, tau [s]; above 0.
        write: time to write a checkpoint, delta [s].
        restart: time to come back after a failure, R [s].
        mtbf: mean time between failures of the whole system, M [s].
    """
    with np.errstate(over="ignore"):
        # Daly 2006, eq. 20.
        total: Quantity = mtbf * np.exp(restart / mtbf) * np.expm1((interval + write) / mtbf) * compute / interval
    return total


class Parts(NamedTuple):
    """Parts of the expected time of a run; the four add up to it."""

    compute: float
    """Computing that counts."""
    writing: float
    """Writing checkpoints that count."""
    restarting: float
    """Restarting, repeated where it failed."""
    lost: float
    """Computing and writing that a failure threw away."""
    failures: float
    """Expected number of failures."""


def split_expected_time(compute: float, interval: float, write: float, restart: float, mtbf: float) -> Parts:
    """Return the parts of the expected time of a run.

    Failures strike at all times alike, so there are total / M of them; each begins a restart that the next may cut
    short, which takes M (1 - exp(-R/M)) on average (mean of an exponential variable cut off at R).

    Args:
        compute: time without failures or checkpoints [s].
        interval: computing time between checkpoints, tau [s]; above 0.
        write: time to write a checkpoint, delta [s].
        restart: time to come back after a failure, R [s].
        mtbf: mean time between failures of the whole system, M [s].
    """
    total = float(expected_seconds(compute, interval, write, restart, mtbf))
    # One checkpoint per interval of useful computing.
    writing = compute / interval * write
    # Expected failures of a Poisson process over the whole run.
    failures = total / mtbf
    # M (1 - exp(-R/M)) each.
    restarting = failures * mtbf * -float(np.expm1(-restart / mtbf))
    # Differences of nearly equal sums may come out a rounding error below nothing.
    return Parts(compute, writing, restarting, max(0.0, total - compute - writing - restarting), failures)
