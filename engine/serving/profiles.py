"""Times of a replica by the requests that it serves at once, from which its latencies under any load follow."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.executions.arrays import Floats
from engine.serving.deployments import Deployments
from engine.serving.figures import ServingSubject, computed_prompt, grouped, pass_times
from engine.serving.load import load_latencies

__all__ = ["MOST_REQUESTS", "ReplicaProfile", "ReplicaTimes", "replica_profiles"]

MOST_REQUESTS: Final = 4096
"""Most requests that a replica serves at once. Source: stated by us."""
POINTS: Final[Floats] = np.asarray(2.0 ** np.arange(13), np.float64)
"""Requests at once that are computed: 1, 2, 4, ... 4096; between them, times are linear."""


@dataclass(frozen=True, slots=True)
class ReplicaTimes:
    """Times at a number of requests in flight [rows] [s].

    `step` of a decode step, over the tokens that it gives a request; `per_token` between tokens of one; `added` by
    the prompt of one request to the steps of others; `alone` of a first token that waits for no other; `waited` for the
    prefills of others before it, with half a step, under a closed load; `together` prompts of a pass [requests].
    """

    step: Floats
    per_token: Floats
    added: Floats
    alone: Floats
    waited: Floats
    together: Floats

    def take(self, index: npt.NDArray[np.intp]) -> ReplicaTimes:
        """Returns the rows at `index`."""
        return ReplicaTimes(*(getattr(self, each.name)[index] for each in fields(self)))


@dataclass(frozen=True, slots=True)
class ReplicaProfile:
    """Times at every number of `POINTS` [rows, points] [s], and constants of the replicas [rows].

    `most` requests at once; `output` tokens of a request; `per_pass`, most prompts of one prefill pass; `fixed`, time
    of request and reply [s]; `mixed`, 1 where prompts share passes with requests that generate.
    """

    times: ReplicaTimes
    most: Floats
    output: Floats
    per_pass: Floats
    fixed: Floats
    mixed: Floats

    def take(self, index: npt.NDArray[np.intp]) -> ReplicaProfile:
        """Returns the rows at `index`."""
        rest = (getattr(self, each.name)[index] for each in fields(self)[1:])
        return ReplicaProfile(self.times.take(index), *rest)

    def at(self, requests: Floats) -> ReplicaTimes:
        """Returns the times at some requests in flight, from 1 to 4,096 [rows].

        Args:
            requests: in flight [rows].
        """
        place = np.clip(np.floor(np.log2(requests)).astype(np.intp), 0, len(POINTS) - 2)
        share = (requests - POINTS[place]) / (POINTS[place + 1] - POINTS[place])
        rows = np.arange(len(place))

        def between(values: Floats) -> Floats:
            low = values[rows, place]
            return np.asarray(low + share * (values[rows, place + 1] - low))

        return ReplicaTimes(*(between(getattr(self.times, each.name)) for each in fields(ReplicaTimes)))

    def step_slope(self, requests: Floats) -> Floats:
        """Returns what one more request adds to a decode step [rows] [s].

        Args:
            requests: in flight [rows].
        """
        place = np.clip(np.floor(np.log2(requests)).astype(np.intp), 0, len(POINTS) - 2)
        rows, steps = np.arange(len(place)), self.times.step
        longer = steps[rows, place + 1] - steps[rows, place]
        return np.asarray(np.maximum(longer, 0.0) / (POINTS[place + 1] - POINTS[place]))

    def requests_served(self, rate: Floats, others: Floats | float, longer: Floats | float = 0.0) -> Floats:
        """Returns the requests that share a replica with one that generates, itself included, at a rate [rows].

        By Little's law these are rate x residence and `others`; no more than `most`.

        Args:
            rate: requests per second and replica [rows].
            others: requests in flight at a rate of nearly 0 [rows]: 1, itself, under Poisson's arrivals.
            longer: what a request takes beyond its own passes and its steps [rows] [s].
        """
        others = np.broadcast_to(others, rate.shape)[:, None]
        rates = np.maximum.accumulate(self._rates_of(np.maximum(POINTS - others, 0.0), longer), axis=1)
        place = np.clip(np.sum(rates <= rate[:, None], axis=1) - 1, 0, len(POINTS) - 2)
        rows = np.arange(len(place))
        low, high = rates[rows, place], rates[rows, place + 1]
        share = np.clip((rate - low) / np.maximum(high - low, 1e-30), 0.0, 1.0)
        found = POINTS[place] + share * (POINTS[place + 1] - POINTS[place])
        return np.asarray(np.clip(found, np.minimum(others[:, 0], self.most), self.most))

    def largest_rate(self) -> Floats:
        """Returns the rate at which all places are busy all the time [rows] [1/s]."""
        times, later, most = self.at(self.most), np.maximum(self.output - 1.0, 0.0), self.most
        return _solve_rate(most, times.alone, later * times.step, times.added)

    def _rates_of(self, residents: Floats, longer: Floats | float) -> Floats:
        """Return the rates at which so many requests are in flight at every point [rows, points] [1/s]."""
        times, later = self.times, np.maximum(self.output - 1.0, 0.0)[:, None]
        alone = times.alone + np.broadcast_to(longer, self.output.shape)[:, None]
        return _solve_rate(residents, alone, later * times.step, times.added)


def _solve_rate(residents: Floats, alone: Floats, steps: Floats, added: Floats) -> Floats:
    """Return the rate at which so many requests are in flight [1/s]."""
    # n = x (alone + steps / (1 - x added)), solved for the rate x: the smaller root.
    half = alone + steps + residents * added
    return np.asarray(2.0 * residents / (half + np.sqrt(np.maximum(half**2 - 4.0 * alone * added * residents, 0.0))))


def replica_profiles(subject: ServingSubject, d: Deployments, most: Floats) -> ReplicaProfile:
    """Returns the profiles of the replicas of deployments, with the measured factors of their engines.

    Args:
        subject: model, system, price and assumptions.
        d: deployments that run [rows]; their batch has no effect.
        most: requests that a replica serves at once [rows].
    """
    blocks, chunk = float(len(subject.pattern.blocks)), float(subject.assumptions.prefill_chunk)
    # Points beyond the one after `most` are never looked at.
    needed = np.concatenate([np.ones((len(d), 1), bool), most[:, None] > POINTS[:-1]], axis=1)
    rows, places = np.nonzero(needed)
    every = replace(d.take(rows), batch=POINTS[places])
    values = np.zeros((len(fields(ReplicaTimes)), len(d), len(POINTS)))
    fixed, mixed = np.zeros(len(d)), np.zeros(len(d))
    for index in grouped(every):
        part = every.take(index)
        terms = subject.engine(part)
        fixed[rows[index]], mixed[rows[index]] = terms.first_token, terms.mixed
        times, _ = pass_times(subject, part)
        found = load_latencies(times, terms, part.batch, part.output, blocks, None)
        waited = found.first_token - found.alone
        # What a prompt adds to the steps of others is part of their time per token.
        first, each = subject.latency_factors(part)
        fixed[rows[index]] *= first
        values[:, rows[index], places[index]] = np.broadcast_arrays(
            each * found.step / times.gained,
            each * found.per_token,
            each * found.added,
            first * found.alone,
            first * waited,
            times.together,
        )
    for place in range(1, len(POINTS)):
        values[..., place] = np.where(needed[:, place], values[..., place], values[..., place - 1])
    per_pass = np.maximum(np.floor(chunk / computed_prompt(subject, d)), 1.0)
    return ReplicaProfile(ReplicaTimes(*values), np.minimum(most, MOST_REQUESTS), d.output, per_pass, fixed, mixed)
