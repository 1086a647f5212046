"""Latencies of replicas under load, with percentiles, from queues in closed form.

A request waits three times before its first token: for a place among the requests that a replica serves at once, for
the pass that is running when it comes, and for prompts that share its pass or fill the passes before. Then it shares
every step with the requests in flight, whose number follows from Little's law and varies.

Users who think between requests are between a closed load and an open one: without a pause the requests in flight are
as many as the users, and with long pauses requests come independently of each other. Latencies are weighted by the
share of a user's time that is spent waiting for answers, and requests per second follow from Little's law.

Nothing here is measured, but means under a closed load come from `engine.serving.load`, which was; the waits of an open
load and all percentiles are modelled, and compared with a simulation in the tests.

References: [1] Takagi 1986, Analysis of Polling Systems (one gated queue with a switch-over time, the decode step);
[2] Allen 1990, Probability, Statistics, and Queueing Theory, section 5.3 (G/G/c by Erlang's C); [3] Whitt 1993,
Production and Operations Management 2 (peakedness, Hayward's approximation); [4] Kimura 1994, J. Appl. Prob. 31
(Cosmetatos's waiting of M/D/c).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from scipy.special import gammainc, gammaincc, gammaincinv, gammaln

from engine.executions.arrays import Floats
from engine.serving.arrivals import ServiceLoad
from engine.serving.profiles import ReplicaProfile, ReplicaTimes

__all__ = [
    "LEVELS",
    "LatencyCheck",
    "LatencyFigure",
    "LatencyLimits",
    "LoadedReplicas",
    "RareWait",
    "erlang_wait",
    "largest_load",
    "loaded_replicas",
    "most_open_rate",
    "open_counterpart",
    "others_within",
    "users_in_flight",
    "whole_request",
]

LEVELS: Final[Mapping[str, float | None]] = {"mean": None, "p50": 0.5, "p90": 0.9, "p99": 0.99}
"""Statistics of a latency: its mean and percentiles."""
HALVINGS: Final = 26
"""Halvings of the interval in which the largest load is looked for; the load is exact to 1e-7 of its bound."""
MOST_WAITING: Final = 64.0
"""Requests per place that a closed load may have, as the bound of a search []. Source: stated by us."""
MOST_BUSY: Final = 0.97
"""Largest share of the saturating rate at which the open load of thinking users is evaluated; beyond, they queue as in
a closed load []. Source: stated by us."""
SCANNED: Final = np.linspace(0.0, 1.0, 40).tolist()
"""Places between `SCANNED_FROM` and one and a half times the requests of a replica, on a scale of logarithms, at which
limits of thinking users are looked at."""
SCANNED_FROM: Final = 0.5
"""Requests in flight from which on limits are looked at."""
STEPS_TO_USERS: Final = 40
"""Halvings of the interval in which the requests in flight of thinking users are looked for."""
TINY: Final = 1e-30
"""Least number that others are divided by. Source: stated by us."""
MOST_SHARE: Final = 0.98
"""Largest share of the time that prompts take, and of the residence that grows with others, that formulas are evaluated
at. Source: stated by us."""


class RareWait(NamedTuple):
    """A wait that happens with a chance [] and is exponential then, with a mean [s] [rows]."""

    chance: Floats
    mean: Floats


@dataclass(frozen=True, slots=True)
class LatencyFigure:
    """A latency of requests [rows]: mean [s] and variance [s^2] without the rare wait, the least that it can be [s],
    and the wait for a place, which most requests do not have."""

    usual: Floats
    variance: Floats
    least: Floats
    wait: RareWait

    @property
    def mean(self) -> Floats:
        """Mean of all requests [s]."""
        return self.usual + self.wait.chance * self.wait.mean

    def level(self, name: str) -> Floats:
        """Returns the mean or a percentile [s].

        Percentiles follow a gamma distribution of the usual mean and variance above the least, or of the
        exponential wait after the usual mean, whichever is longer.

        Args:
            name: one of `LEVELS`.
        """
        share = LEVELS[name]
        if share is None:
            return self.mean
        over = np.maximum(self.usual - self.least, 0.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            shape = over * over / np.maximum(self.variance, TINY)
            # Beyond, the distribution is as narrow as a point for all that is shown.
            value = np.where(shape > 1e8, over, gammaincinv(np.clip(shape, 1e-8, 1e8), share) * over / shape)
            waited = self.usual + self.wait.mean * np.log(np.maximum(self.wait.chance / (1.0 - share), TINY))
        value = self.least + np.where(over > 0, value, 0.0)
        value = np.where(self.wait.chance > 1.0 - share, np.maximum(value, waited), value)
        return np.asarray(np.where(np.isfinite(self.usual), value, np.inf))


class LatencyCheck(NamedTuple):
    """One limit: its code, the latency of `LoadedReplicas` that it is on, the statistic of `LEVELS`, the limit [s],
    None for none, and the place of its factor in the limits' room."""

    code: str
    figure: str
    level: str
    limit: float | None
    place: int


class LatencyLimits(NamedTuple):
    """Longest first token, time per output token and whole request [s]; None for none; the statistic of `LEVELS` that
    they hold for; factors on the three latencies that leave room for their error, numbers or [rows]; and limits on the
    means of the first two besides [s]."""

    first_token: float | None = None
    per_token: float | None = None
    request: float | None = None
    level: str = "mean"
    room: tuple[Floats | float, Floats | float, Floats | float] = (1.0, 1.0, 1.0)
    mean_first_token: float | None = None
    mean_per_token: float | None = None

    def checks(self) -> tuple[LatencyCheck, ...]:
        """Return all limits in the order of the numbers of `LoadedReplicas.missed`."""
        return (
            LatencyCheck("first_token", "first_token", self.level, self.first_token, 0),
            LatencyCheck("per_token", "per_token", self.level, self.per_token, 1),
            LatencyCheck("request", "request", self.level, self.request, 2),
            LatencyCheck("mean_first_token", "first_token", "mean", self.mean_first_token, 0),
            LatencyCheck("mean_per_token", "per_token", "mean", self.mean_per_token, 1),
        )


class PassWait(NamedTuple):
    """Wait for passes [rows]: mean [s], variance [s^2], the part of the mean for prompts that share the own pass [s];
    and the share of the time that prompts need []."""

    mean: Floats
    variance: Floats
    shared: Floats
    used: Floats


@dataclass(frozen=True, slots=True)
class LoadedReplicas:
    """Replicas under load, arrays [rows]: requests per second and in flight per replica, requests that wait for a place
    among them; share of the places and of the passes that is busy, whichever is more []; latencies."""

    rate: Floats
    in_flight: Floats
    busy: Floats
    first_token: LatencyFigure
    per_token: LatencyFigure
    request: LatencyFigure

    def missed(self, limits: LatencyLimits) -> Floats:
        """Returns the first limit that is missed: 1 first token, 2 per token, 3 request, 4 mean first token, 5 mean per
        token; 0 for none [rows].

        Args:
            limits: latencies and their statistic.
        """
        found = np.where(self.busy < 1.0, 0, 1)
        for number, check in enumerate(limits.checks(), 1):
            if check.limit is not None:
                values = limits.room[check.place] * getattr(self, check.figure).level(check.level)
                found = np.where((found == 0) & (values > check.limit), number, found)
        return found


def loaded_replicas(profile: ReplicaProfile, load: ServiceLoad, amount: Floats, replicas: Floats) -> LoadedReplicas:
    """Returns replicas under their share of a load [rows].

    Args:
        profile: of the replicas.
        load: kind of load and spread of lengths.
        amount: requests per second, or users, of one replica [rows].
        replicas: among which requests are drawn at random [rows].
    """
    if load.is_open:
        return _open_load(profile, load, amount, replicas)
    return _thinking_load(profile, load, amount) if load.think_s else _closed_load(profile, load, amount)


def _open_load(profile: ReplicaProfile, load: ServiceLoad, rate: Floats, replicas: Floats) -> LoadedReplicas:
    # Of arrivals with c^2, every n-th at random has 1 + (c^2 - 1) / n.
    arrivals = 1.0 + (load.arrival_cv**2 - 1.0) / replicas
    # Peakedness: variance over mean of the requests in flight, without feedback; a request meets so many of its burst.
    peaked = np.maximum(1.0 + (arrivals - 1.0) / (1.0 + load.output_cv**2), 0.0)
    later, longer = np.maximum(profile.output - 1.0, 0.0), np.zeros_like(rate)
    for _ in range(2):
        served = profile.requests_served(rate, np.maximum(peaked, 1.0), longer)
        times = profile.at(served)
        free = 1.0 - np.minimum(rate * times.added, MOST_SHARE)
        passes = _wait_for_pass(profile, times, rate, arrivals, load.prompt_cv)
        # Prompts that come during the own pass take its steps; they bring others: rho / (1 - rho) of what that pass is
        # longer than the mean.
        own = np.maximum(times.alone - profile.fixed + passes.shared - profile.mixed * times.step / free, 0.0)
        longer = np.where(later > 0, (1.0 - free) / free * own, 0.0)
    # Prompts of others take their share of the time between tokens.
    each = times.step / free + longer / np.maximum(later, 1.0)
    residence = times.alone + later * each
    # More requests in flight stay longer, so that their number varies more: 1 / (1 - d log residence / d log n).
    slope = profile.step_slope(served) / free
    steady = 1.0 - np.minimum(rate * later * slope, MOST_SHARE)
    used = rate * residence / profile.most
    waits = _wait_for_place(profile.most, used, residence, arrivals, steady, load)
    busy = np.maximum(used, passes.used)
    # Lengths of prompts vary the own passes; requests in flight the own step and half of the one before.
    own, others = times.alone - profile.fixed, rate * residence * peaked / steady
    first = LatencyFigure(
        np.where(busy < 1.0, times.alone + passes.mean, np.inf),
        passes.variance + (own * load.prompt_cv) ** 2 + (1.5 * slope) ** 2 * others,
        times.alone - own * min(load.prompt_cv, 1.0),
        waits,
    )
    # A request sees the mean of the others over its residence: two thirds of their variance if these stay as long.
    varied = slope**2 * others * (1.0 - steady / 3.0)
    # Prompts that begin during its steps, in number and length.
    begun = rate * later * each * (np.maximum(arrivals, 0.0) + load.prompt_cv**2)
    varied = varied + begun * (times.added / np.maximum(later, 1.0) / free) ** 2
    none = RareWait(np.zeros_like(rate), np.zeros_like(rate))
    per_token = LatencyFigure(np.where(busy < 1.0, each, np.inf), varied, np.zeros_like(rate), none)
    in_flight = np.minimum(rate * residence, profile.most)
    return LoadedReplicas(rate, in_flight, busy, first, per_token, whole_request(first, per_token, later, load))


def _closed_load(profile: ReplicaProfile, load: ServiceLoad, users: Floats) -> LoadedReplicas:
    served = np.clip(users, 1.0, profile.most)
    times, later = profile.at(served), np.maximum(profile.output - 1.0, 0.0)
    residence = times.alone + times.waited + later * times.per_token
    # Those without a place wait until it is their turn: (users / places - 1) residences.
    queue = np.maximum(users / profile.most - 1.0, 0.0) * residence
    rate = np.minimum(users, served) / residence
    own = times.alone - profile.fixed
    none = RareWait(np.zeros_like(users), np.zeros_like(users))
    behind = np.maximum(times.waited - times.step / 2.0, 0.0)
    first = LatencyFigure(
        times.alone + times.waited + queue,
        # A step that runs is uniformly over; prefills of others come by chance; lengths vary.
        times.step**2 / 12.0 + times.added * behind + (own * load.prompt_cv) ** 2 + (queue * load.output_cv) ** 2,
        times.alone - own * min(load.prompt_cv, 1.0),
        none,
    )
    begun = rate * later * times.per_token * (load.output_cv**2 + load.prompt_cv**2)
    varied = begun * (times.added / np.maximum(later, 1.0)) ** 2
    per_token = LatencyFigure(times.per_token, varied, np.zeros_like(rate), none)
    busy = np.minimum(served / profile.most, 1.0 - 1e-9)
    return LoadedReplicas(
        rate, np.minimum(users, served), busy, first, per_token, whole_request(first, per_token, later, load)
    )


def _thinking_load(profile: ReplicaProfile, load: ServiceLoad, users: Floats) -> LoadedReplicas:
    """Return replicas whose users think between requests."""
    calm = open_counterpart(load)
    most_rate = most_open_rate(profile, calm)
    # Users rise with the requests in flight, and are at least as many.
    low, high = np.zeros_like(users), users
    for _ in range(STEPS_TO_USERS):
        middle = (low + high) / 2.0
        fewer = users_in_flight(profile, load, calm, most_rate, middle)[0] < users
        low, high = np.where(fewer, middle, low), np.where(fewer, high, middle)
    found = users_in_flight(profile, load, calm, most_rate, high)[1]
    # Little's law for all users, who wait or think: x = N / (R + Z).
    return replace(found, rate=users / (found.request.mean + load.think_s))


def open_counterpart(load: ServiceLoad) -> ServiceLoad:
    """Return the open load that users make who think for so long that their requests are independent.

    Args:
        load: closed one.
    """
    return replace(load, request_rate=1.0, users=None, arrival_cv=1.0, think_s=0.0)


def most_open_rate(profile: ReplicaProfile, calm: ServiceLoad) -> Floats:
    """Return the largest rate at which the open load of thinking users is evaluated [rows] [1/s].

    Args:
        profile: of the replicas.
        calm: as `open_counterpart` returns it.
    """
    one, high = np.ones_like(profile.most), profile.largest_rate()
    low = 1e-9 * high
    for _ in range(HALVINGS // 2):
        middle = (low + high) / 2.0
        is_stable = _open_load(profile, calm, middle, one).busy < 1.0
        low, high = np.where(is_stable, middle, low), np.where(is_stable, high, middle)
    return MOST_BUSY * low


def users_in_flight(
    profile: ReplicaProfile,
    load: ServiceLoad,
    calm: ServiceLoad,
    most_rate: Floats,
    in_flight: Floats,
    pause: Callable[[Floats], Floats] | None = None,
) -> tuple[Floats, LoadedReplicas]:
    """Return the users of a replica [rows], and their latencies, from the requests in flight of a closed load with the
    same rate [rows].

    Args:
        profile: of the replicas.
        load: closed one.
        calm: as `open_counterpart` returns it.
        most_rate: as `most_open_rate` returns it [rows] [1/s].
        in_flight: of the closed load [rows].
        pause: returns how long users are elsewhere between requests, at requests per second of a replica [rows] [s];
            they think for `load.think_s` by default.
    """
    closed = _closed_load(profile, load, in_flight)
    opened = _open_load(profile, calm, np.minimum(closed.rate, most_rate), np.ones_like(in_flight))
    waits, alone = closed.request.mean, opened.request.mean
    think = np.full_like(in_flight, load.think_s) if pause is None else pause(closed.rate)
    # R = p R_closed + (1 - p) R_open, where p = R / (R + Z) is the share of a user's time that waits for answers:
    # R^2 + (Z - R_closed) R - Z R_open = 0.
    half = (waits - think) / 2.0
    root = np.sqrt(half * half + think * alone)
    # The larger root, without cancellation where users mostly think.
    answer = np.where(half > 0, half + root, think * alone / np.maximum(root - half, TINY))
    share = answer / (answer + think)

    def mix(first: Floats, second: Floats) -> Floats:
        return np.asarray(share * first + (1.0 - share) * second)

    def mix_figures(first: LatencyFigure, second: LatencyFigure) -> LatencyFigure:
        # A closed load has no rare wait.
        wait = RareWait((1.0 - share) * second.wait.chance, second.wait.mean)
        return LatencyFigure(
            mix(first.usual, second.usual),
            mix(first.variance, second.variance),
            mix(first.least, second.least),
            wait,
        )

    found = LoadedReplicas(
        closed.rate,
        mix(closed.in_flight, opened.in_flight),
        mix(closed.busy, opened.busy),
        mix_figures(closed.first_token, opened.first_token),
        mix_figures(closed.per_token, opened.per_token),
        mix_figures(closed.request, opened.request),
    )
    return closed.rate * (answer + think), found


def whole_request(first: LatencyFigure, per_token: LatencyFigure, later: Floats, load: ServiceLoad) -> LatencyFigure:
    """Return the time from a request to its last token.

    Args:
        first, per_token: its first token and the others.
        later: tokens after the first on average [rows].
        load: spread of lengths.
    """
    # Of one token there is no time between tokens, whatever it would be.
    mean = first.usual + np.multiply(later, per_token.usual, out=np.zeros_like(later), where=later > 0)
    with np.errstate(invalid="ignore"):
        lengths = (per_token.usual * (later + 1.0) * load.output_cv) ** 2
    variance = first.variance + later * later * per_token.variance + np.where(np.isfinite(mean), lengths, 0.0)
    return LatencyFigure(mean, variance, np.zeros_like(mean), first.wait)


def erlang_wait(places: Floats, used: Floats) -> Floats:
    """Return the chance that all places are taken [rows] [].

    Args:
        places: c, also fractions.
        used: share of them in use, below 1.
    """
    # Erlang's C from his B = e^-a a^c / Gamma(c + 1) / Q(c + 1, a), a = c u.
    offered = np.maximum(places * used, TINY)
    below = np.maximum(gammaincc(places + 1.0, offered), TINY)
    lost = np.exp(places * np.log(offered) - offered - gammaln(places + 1.0)) / below
    return np.asarray(np.clip(lost / (1.0 - used * (1.0 - lost)), 0.0, 1.0))


def _wait_for_place(
    places: Floats, used: Floats, residence: Floats, arrivals: Floats, steady: Floats, load: ServiceLoad
) -> RareWait:
    """Return the wait for a place among the requests that are served at once."""
    # Allen and Cunneen: W = C(c, u) R / (c (1 - u)) (ca^2 + cs^2) / 2. Where the number in flight varies more than
    # Poisson's by 1 / steady, as with so many fewer places (Hayward).
    inside, fewer = np.clip(used, 0.0, 1.0 - 1e-9), places * steady
    spread = (np.maximum(arrivals, 0.0) + load.output_cv**2) / 2.0
    # Residences of one length wait longer than half of exponential ones (Cosmetatos).
    root = np.maximum(np.sqrt(4.0 + 5.0 * fewer) - 2.0, 0.0)
    equal = (1.0 - inside) * np.maximum(fewer - 1.0, 0.0) * root / (16.0 * np.maximum(inside, 0.05) * fewer)
    spread = spread + max(1.0 - load.output_cv**2, 0.0) * equal / 2.0
    return RareWait(erlang_wait(fewer, inside), residence / fewer / (1.0 - inside) * spread)


def others_within(window: Floats, rate: Floats, arrivals: Floats) -> Floats:
    """Return the other requests that come within a window around the arrival of one [requests].

    Args:
        window: around it [s].
        rate: of arrivals [1/s].
        arrivals: squared coefficient of variation of the times between them [dimensionless].
    """
    # Renewal function of gamma gaps over half the window, twice: a chain of gaps shorter than it, at most the
    # asymptote x + (c^2 - 1) / 2. With Poisson's arrivals this is rate x window.
    half, squared = rate * window / 2.0, np.maximum(arrivals, 1e-3)
    near = np.minimum(gammainc(1.0 / squared, half / squared), 1.0 - 1e-9)
    return np.asarray(2.0 * np.maximum(np.minimum(near / (1.0 - near), half + (squared - 1.0) / 2.0), 0.0))


def _wait_for_pass(
    profile: ReplicaProfile, times: ReplicaTimes, rate: Floats, arrivals: Floats, prompt_cv: float
) -> PassWait:
    """Return the wait for passes that run and for prompts of others."""
    step, added, most = times.step, times.added, profile.per_pass
    # Time of a prompt in full passes; where engines mix, each also takes a step.
    each = added + profile.mixed * step / most
    used = rate * each
    prefilled, inside = (np.clip(value, 0.0, 1.0 - 1e-9) for value in (rate * added, used))
    # A pass lasts as long as the prompts that came during the last one take: T = step + added N(T), whose mean is
    # step / (1 - rho), and whose variance is mean(N) added^2 spread / (1 - rho^2); no longer than full ones.
    full = step + most * added
    mean = np.minimum(step / (1.0 - prefilled), full)
    bursts = 1.0 + others_within(mean, rate, arrivals) - rate * mean
    spread = np.maximum(bursts, 0.0) + prompt_cv**2
    varied = rate * mean * (added * added) * spread / (1.0 - prefilled * prefilled)
    varied = np.minimum(varied, (full - step) ** 2 / 4.0)
    # Requests come in long passes more often: E[T^2] / E[T]; variance as of gamma distributed T.
    met, met_varied = mean + varied / mean, varied + (varied / mean) ** 2
    # With one prompt per pass, waiting for passes of prompts is the queue's below.
    several = 1.0 - 1.0 / most
    met, met_varied = step + (np.minimum(met, full) - step) * several, met_varied * several
    # Prompts of others in the own pass; the mean pass of a full batch has `together` already.
    others = np.clip(others_within(met, rate, arrivals) - (times.together - 1.0), 0.0, most - 1.0)
    # W = T (U + rho) + prompts by chance, U uniform from 0 to 1.
    before = met / 2.0 + others * added
    varied = met_varied * ((0.5 + prefilled) ** 2 + 1.0 / 12.0) + met * met / 12.0 + others * added * added * spread
    # Beyond full passes, for one of `most` places in each, as above.
    chance = erlang_wait(most, inside)
    served = (added * prompt_cv / np.maximum(each, TINY)) ** 2
    queued = each / (1.0 - inside) * (np.maximum(arrivals, 0.0) + served) / 2.0
    mean, squared = chance * queued, 2.0 * chance * queued**2
    return PassWait(before + mean, varied + squared - mean * mean, others * added, used)


def largest_load(profile: ReplicaProfile, load: ServiceLoad, limits: LatencyLimits) -> tuple[Floats, Floats]:
    """Returns the most load of a replica within limits, requests per second or users, 0 if none is [rows]; and the
    limit that the least load misses, as `LoadedReplicas.missed` has it [rows].

    Arrivals more regular than Poisson's count as Poisson's: replicas share them at random.

    Args:
        profile: of the replicas.
        load: kind of load and spread of lengths.
        limits: latencies and their statistic.
    """
    one = np.ones_like(profile.most)
    careful = replace(load, arrival_cv=max(load.arrival_cv, 1.0))
    if load.think_s:
        return _largest_thinking_load(profile, careful, limits)
    high = profile.largest_rate() if load.is_open else MOST_WAITING * profile.most
    low, fixed = np.zeros_like(high), one if load.is_open else np.minimum(one, high)
    least = loaded_replicas(profile, careful, 1e-9 * high if load.is_open else fixed, one).missed(limits)
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        holds = loaded_replicas(profile, careful, middle, one).missed(limits) == 0
        low, high = np.where(holds, middle, low), np.where(holds, high, middle)
    return np.where(least == 0, low, 0.0), least


def _largest_thinking_load(profile: ReplicaProfile, load: ServiceLoad, limits: LatencyLimits) -> tuple[Floats, Floats]:
    """Return the most users of a replica, and the missed limit, as `largest_load` does."""
    calm = open_counterpart(load)
    most_rate = most_open_rate(profile, calm)
    low, high = np.zeros_like(profile.most), MOST_WAITING * profile.most
    least = users_in_flight(profile, load, calm, most_rate, 1e-9 * high)[1].missed(limits)
    # Percentiles of the open load rise steeply towards saturation, and those of the closed load, which follow, are
    # lower: look for the first users who break a limit, not for any.
    scanned = [SCANNED_FROM * (1.5 * profile.most / SCANNED_FROM) ** share for share in SCANNED]
    scanned_users = []
    for middle in scanned:
        users, found = users_in_flight(profile, load, calm, most_rate, middle)
        scanned_users.append(users)
        # Of several changes, the first one counts.
        is_first = high > 1.5 * profile.most
        holds = found.missed(limits) == 0
        low, high = np.where(is_first & holds, middle, low), np.where(is_first & ~holds, middle, high)
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        holds = users_in_flight(profile, load, calm, most_rate, middle)[1].missed(limits) == 0
        low, high = np.where(holds, middle, low), np.where(holds, high, middle)
    users = users_in_flight(profile, load, calm, most_rate, np.maximum(low, 1e-9))[0]
    # The rate can fall with more requests in flight, so that as many users could have more of them: no more users than
    # any number of requests that breaks a limit has.
    for middle, others in zip(scanned, scanned_users, strict=True):
        users = np.where(middle > low, np.minimum(users, others), users)
    return np.where((least == 0) & (low > 0), users, 0.0), least
