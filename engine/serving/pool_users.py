"""Latencies of disaggregated prefill and decode under a closed load: users who wait for answers and think in between.

Users of the whole service are shared evenly among the replicas of either pool. To a replica, its users think while they
are elsewhere: in the other pool, between both, or truly thinking. Requests per second follow from Little's law,

    users = requests per second x (prefill + transfer + decode + think time).

Decode replicas are as in `engine.serving.queueing` under users who think. In a prefill replica, a request meets the
others as if one user fewer sent them (Schweitzer 1979, after the arrival theorem of Reiser and Lavenberg 1980), and
their number varies as of users who are there with a chance, by 1 less that chance.

No service with pools was measured under users: all of this is modelled, and compared with a simulation in the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from engine.executions.arrays import Floats
from engine.serving.arrivals import ServiceLoad
from engine.serving.pool_latencies import CacheTransfer, LoadedPools, PrefillProfile, loaded_prefill
from engine.serving.profiles import ReplicaProfile
from engine.serving.queueing import (
    LatencyFigure,
    LatencyLimits,
    LoadedReplicas,
    most_open_rate,
    open_counterpart,
    users_in_flight,
    whole_request,
)

__all__ = [
    "RequestCycle",
    "UsersOfPools",
    "largest_decode_rate",
    "loaded_pools_of_users",
    "prefill_of_users",
    "request_cycle",
]

LONGEST_WAIT: Final = 86_400.0
"""Longest first token that a search reckons with where none is limited [s]. Source: stated by us."""
ABOVE_MEDIAN: Final = 4.0
"""Most that a mean is over the median: gamma distributions of a shape of 0.3 or more []. Source: stated by us."""
FOREVER: Final = 1e12
"""Time in a pool with more load than it serves [s]."""
HALVINGS: Final = 24
"""Halvings of the interval in which the requests in flight are looked for."""
STEPS: Final = 14
"""Steps to the requests in flight of a pair of pools."""
MOST_MISSED: Final = 1e-3
"""Share of the users that these steps may miss []. Source: stated by us."""
MOST_QUEUED: Final = 64.0
"""Requests per place of a decode replica, as the bound of a search []. Source: stated by us."""


class UsersOfPools(NamedTuple):
    """Users of pairs of pools [rows]: of the whole service, and the replicas of both pools among whom they are."""

    users: Floats
    prefills: Floats
    decodes: Floats


class RequestCycle(NamedTuple):
    """Times between a user's requests within limits [s]: the longest mean time to a first token, the longest mean time
    from request to request by decode replica [rows], and the largest share of it that a prefill pool can take []."""

    first: float
    longest: Floats
    most_share: float


@dataclass(frozen=True, slots=True)
class _PrefillVisit:
    """A request in the prefill pool and on its way to the other [rows]: latency, transfer and both busy shares."""

    first: LatencyFigure
    moved: Floats
    waited: Floats
    used: Floats
    link_busy: Floats

    @property
    def time(self) -> Floats:
        """Mean time until the decode pool has the request [rows] [s]."""
        return self.first.usual + self.moved


def prefill_of_users(
    profile: PrefillProfile, load: ServiceLoad, rate: Floats, users: Floats, most_share: Floats | float = 0.0
) -> tuple[LatencyFigure, Floats]:
    """Return the time that requests of users spend in replicas that only prefill, and the busy share of these [rows].

    Args:
        profile: of the replicas.
        load: spread of prompts.
        rate: requests per second of a replica [rows].
        users: of a replica, at least 1 [rows].
        most_share: largest share of their time that users spend here, for bounds of a search; all by default.
    """
    calm = open_counterpart(load)
    found, _ = loaded_prefill(profile, calm, rate * (1.0 - 1.0 / np.maximum(users, 1.0)))
    used = rate / profile.largest_rate
    share = np.clip(rate * found.usual / np.maximum(users, 1.0), most_share, 1.0)
    own = (profile.each * load.prompt_cv) ** 2
    varied = own + np.maximum(found.variance - own, 0.0) * (1.0 - share)
    return replace(found, usual=np.where(used < 1.0, found.usual, np.inf), variance=varied), used


def request_cycle(decode: ReplicaProfile, load: ServiceLoad, limits: LatencyLimits) -> RequestCycle:
    """Return the longest times between the requests of a user that limits on latencies allow.

    Args:
        decode: profiles of the replicas that decode.
        load: closed one.
        limits: latencies and their statistic.
    """
    most = ABOVE_MEDIAN if limits.level == "p50" else 1.0
    ends = [most * each for each in (limits.first_token, limits.request) if each is not None]
    first = min([*ends, *([] if limits.mean_first_token is None else [limits.mean_first_token]), LONGEST_WAIT])
    slowest = decode.at(decode.most).step
    if limits.per_token is not None:
        slowest = np.minimum(slowest, most * limits.per_token)
    if limits.mean_per_token is not None:
        slowest = np.minimum(slowest, limits.mean_per_token)
    later = np.maximum(decode.output - 1.0, 0.0)
    longest = first + later * slowest
    if limits.request is not None:
        longest = np.minimum(longest, most * limits.request)
    fastest = later * decode.at(np.ones_like(later)).step
    shares = first / (first + fastest + load.think_s)
    return RequestCycle(first, longest + load.think_s, float(shares.max(initial=0.0)))


def largest_decode_rate(profile: ReplicaProfile, load: ServiceLoad, limits: LatencyLimits) -> Floats:
    """Return the most requests per second of a decode replica within limits, with users who are nowhere else but
    thinking, 0 where none is [rows] [1/s]: no fewer than with a prefill pool.

    Args:
        profile: of the replicas.
        load: closed one.
        limits: latencies and their statistic.
    """
    calm = open_counterpart(load)
    most_rate = most_open_rate(profile, calm)
    low, high = np.zeros_like(profile.most), MOST_QUEUED * profile.most
    least = users_in_flight(profile, load, calm, most_rate, 1e-9 * high)[1].missed(limits) == 0
    rate = np.zeros_like(low)
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        found = users_in_flight(profile, load, calm, most_rate, middle)[1]
        holds = found.missed(limits) == 0
        rate = np.where(holds, np.maximum(rate, found.rate), rate)
        low, high = np.where(holds, middle, low), np.where(holds, high, middle)
    return np.where(least, rate, 0.0)


def loaded_pools_of_users(
    prefill: PrefillProfile,
    decode: ReplicaProfile,
    transfer: CacheTransfer,
    load: ServiceLoad,
    shared: UsersOfPools,
    most_rate: Floats | None = None,
) -> LoadedPools:
    """Return pairs of pools under a closed load [rows].

    Args:
        prefill, decode: profiles of the replicas.
        transfer: of the cache between them.
        load: think time and spread of lengths.
        shared: users, and the replicas of both pools.
        most_rate: of the decode replicas, as `most_open_rate` returns it [rows] [1/s]; computed where None.
    """
    calm = open_counterpart(load)
    most_rate = most_open_rate(decode, calm) if most_rate is None else most_rate
    here, there = shared.users / shared.prefills, shared.users / shared.decodes

    def visit(rate: Floats) -> _PrefillVisit:
        sent = rate * shared.decodes / shared.prefills
        first, used = prefill_of_users(prefill, load, sent, here)
        link_busy = np.maximum(sent * transfer.sent, rate * transfer.received)
        # M/D/1 on the busier end, with one user fewer.
        inside = np.minimum(link_busy, 1.0) * (1.0 - 1.0 / np.maximum(np.minimum(here, there), 2.0))
        waited = inside / (1.0 - inside) * transfer.time / 2.0
        return _PrefillVisit(first, np.where(link_busy < 1.0, transfer.time + waited, np.inf), waited, used, link_busy)

    def pause(rate: Floats) -> Floats:
        return np.minimum(visit(rate).time, FOREVER) + load.think_s

    def count_users(in_flight: Floats) -> Floats:
        return users_in_flight(decode, load, calm, most_rate, in_flight, pause)[0]

    low = np.maximum(_solve_in_flight(count_users, there, np.minimum(there, MOST_QUEUED * decode.most)), 1e-9)
    users, found = users_in_flight(decode, load, calm, most_rate, low, pause)
    before = visit(found.rate)
    # Where a pool is busy all the time, the other users queue for it; else they are less than a step misses.
    is_full = there - users > MOST_MISSED * there
    queued = np.where(is_full, (there - users) / found.rate, 0.0)
    shown = LatencyFigure(
        before.first.usual + before.moved + found.first_token.usual + queued,
        before.first.variance + found.first_token.variance + before.waited**2 + (transfer.time * load.prompt_cv) ** 2,
        before.first.least + transfer.time * (1.0 - min(load.prompt_cv, 1.0)) + found.first_token.least,
        found.first_token.wait,
    )
    request = whole_request(shown, found.per_token, np.maximum(decode.output - 1.0, 0.0), load)
    busy = np.maximum(np.maximum(before.used, found.busy), before.link_busy)
    rate = there / (request.mean + load.think_s)
    latencies = LoadedReplicas(rate, found.in_flight, busy, shown, found.per_token, request)
    return LoadedPools(latencies, before.moved, before.used, found.busy, before.link_busy)


def _solve_in_flight(count_users: Callable[[Floats], Floats], users: Floats, high: Floats) -> Floats:
    """Return the most requests in flight that no more than so many users have [rows].

    Args:
        count_users: returns the users of requests in flight, with which they rise [rows].
        users: wanted [rows].
        high: bound of the requests in flight [rows].
    """
    # False position on users / (users + wanted) - 1/2, which is finite everywhere; the value of an end that stays is
    # halved (Illinois algorithm: Dowell and Jarratt 1971, BIT 11), and every fourth step halves the interval.
    low, below, above = np.zeros_like(high), np.full_like(high, -0.5), np.full_like(high, 0.5)
    last = np.zeros_like(high)
    for step in range(STEPS):
        share = 0.5 if step % 4 == 3 else np.clip(below / (below - above), 1e-3, 1.0 - 1e-3)
        middle = low + share * (high - low)
        found = count_users(middle)
        over = found / (found + users) - 0.5
        side = np.sign(over)
        is_same = side == last
        below = np.where(side < 0, over, np.where(is_same, below / 2.0, below))
        above = np.where(side < 0, np.where(is_same, above / 2.0, above), over)
        low, high, last = np.where(side < 0, middle, low), np.where(side < 0, high, middle), side
    return low
