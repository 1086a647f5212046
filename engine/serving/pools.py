"""Disaggregated services: prefill and decode in pools of their own, on the fewest GPUs that hold limits under a load.

Every pair of a prefill and a decode deployment is bounded from below by the GPUs that each pool needs on its own; pairs
are evaluated in the order of that bound until none can be smaller than the best. Both pools hold the cache in the same
bits, and have one engine where their limits name none of their own.

Users send fewer requests, the slower their answers are: bounds then count the requests of the slowest answers that the
limits allow.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.executions.arrays import Floats
from engine.exploration.run import ExplorationCancelled
from engine.serving.arrivals import ServiceLoad
from engine.serving.assumptions import Assumptions
from engine.serving.deployments import Deployments
from engine.serving.evaluation import WorkloadError, subject_of
from engine.serving.factors import EngineFactors
from engine.serving.figures import HOUR, MILLION, ServingSubject
from engine.serving.pool_latencies import (
    HALVINGS,
    CacheTransfer,
    LoadedPools,
    PrefillProfile,
    cache_transfers,
    decode_profiles,
    largest_pool_rate,
    loaded_pools,
    loaded_prefill,
    prefill_profiles,
)
from engine.serving.pool_users import (
    RequestCycle,
    UsersOfPools,
    largest_decode_rate,
    loaded_pools_of_users,
    prefill_of_users,
    request_cycle,
)
from engine.serving.profiles import ReplicaProfile
from engine.serving.queueing import LatencyLimits, loaded_replicas, most_open_rate, open_counterpart
from engine.serving.services import (
    ServiceSizing,
    deployment_table,
    latency_columns,
    limits_of,
    runnable_deployments,
    unit_sizes,
)
from hardware import System, SystemLike
from models import Model, ModelLike
from models.documents import shown

__all__ = ["PoolService", "PoolSizing", "compare_services", "link_bandwidth", "size_pools"]

MORE: Final = 16
"""Decode deployments that are tried beyond the least of a pair. Source: stated by us."""
FINE: Final = 64
"""Decode deployments of the least of a pair of which one is a step, for users. Source: stated by us."""
PAIRS: Final = 128
"""Pairs that are evaluated together."""
TIES: Final = 512
"""Pairs with as many GPUs as the best, among which the most headroom is looked for. Source: stated by us."""
USERS_HALVINGS: Final = 12
"""Halvings of the interval in which the most users are looked for, whose latencies take longer to compute."""
POOLS: Final = ("prefill", "decode")


class PoolService(NamedTuple):
    """A disaggregated service: fields of both pools with the number of their deployments, and figures of both."""

    prefill: dict[str, Any]
    decode: dict[str, Any]
    figures: dict[str, float]

    @property
    def gpus(self) -> int:
        """GPUs of both pools."""
        return int(self.figures["gpus"])


@dataclass(frozen=True)
class PoolSizing:
    """Disaggregated services that hold the limits, best first, and the numbers of deployments and pairs.

    `least_per_rate` is a bound of the GPUs per request and second, or per user, at large loads: of the best prefill and
    the best decode deployment, without what both take together.
    """

    model: Model
    systems: tuple[System, System]
    load: ServiceLoad
    limits: LatencyLimits
    services: tuple[PoolService, ...]
    tried: tuple[int, int]
    """Prefill and decode deployments that run."""
    pairs: int
    """Pairs that hold the cache in the same bits, with the same engine."""
    evaluated: int
    """Pairs whose latencies were computed; the bound ruled out the others."""
    least_per_rate: float
    bandwidth: float
    """Rate of the link of a GPU between pools [bytes/s]."""
    obstacle: str
    seconds: float
    factors: EngineFactors | None = None
    """Measured factors on the latencies of engines; None for none."""

    @property
    def best(self) -> PoolService | None:
        """The service with the fewest GPUs, of these the one with the most headroom; None where none holds."""
        return self.services[0] if self.services else None


@dataclass(frozen=True)
class _PoolCandidates:
    """A pool's candidates [rows]: deployments, requests at once of a replica, GPUs and largest rate of a deployment."""

    subject: ServingSubject
    d: Deployments
    most: Floats
    size: Floats
    rate: Floats
    """Requests per second of a deployment, with all of its replicas [1/s]."""

    def take(self, index: npt.NDArray[np.intp]) -> _PoolCandidates:
        return _PoolCandidates(self.subject, self.d.take(index), self.most[index], self.size[index], self.rate[index])


class _PoolPairs(NamedTuple):
    """Positions in both pools [pairs], and the least weight and numbers of deployments [pairs]."""

    prefill: npt.NDArray[np.intp]
    decode: npt.NDArray[np.intp]
    bound: Floats
    counts: tuple[Floats, Floats]


@dataclass(frozen=True)
class _PairSearch:
    """Everything that latencies of pairs are computed from."""

    load: ServiceLoad
    limits: LatencyLimits
    prefill: _PoolCandidates
    decode: _PoolCandidates
    profiles: tuple[PrefillProfile, ReplicaProfile]
    bandwidth: float
    most_rate: Floats
    """Largest open rate of replicas that decode, as `most_open_rate` returns it; empty under an open load [rows]."""
    cycle: Floats
    """Longest time of a user from request to request, by decode deployment; 1 under an open load [rows] [s]."""

    def transfers(self, p: npt.NDArray[np.intp], d: npt.NDArray[np.intp]) -> CacheTransfer:
        first, second = self.prefill, self.decode
        return cache_transfers((first.subject, first.d.take(p)), (second.subject, second.d.take(d)), self.bandwidth)

    def evaluate(
        self,
        rows: tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]],
        transfer: CacheTransfer,
        counts: tuple[Floats, Floats],
        amount: Floats | float,
    ) -> LoadedPools:
        p, d = rows
        first, second = self.profiles[0].take(p), self.profiles[1].take(d)
        replicas = counts[0] * self.prefill.d.replicas[p], counts[1] * self.decode.d.replicas[d]
        if self.load.is_open:
            return loaded_pools(first, second, transfer, self.load, (amount / replicas[0], amount / replicas[1]))
        shared = UsersOfPools(np.broadcast_to(np.float64(amount), replicas[0].shape), *replicas)
        return loaded_pools_of_users(first, second, transfer, self.load, shared, self.most_rate[d])


def link_bandwidth(systems: tuple[System, System], gb_per_s: float | None = None) -> float:
    """Returns the rate of the link of a GPU between pools, one way [bytes/s]: the outermost network of the slower
    system at its efficiency, unless it is given.

    Args:
        systems: of the prefill and the decode pool.
        gb_per_s: stated rate [1e9 bytes/s].

    Raises `WorkloadError` for a rate out of range.
    """
    if gb_per_s is not None:
        if isinstance(gb_per_s, bool) or not isinstance(gb_per_s, int | float) or not 1e-3 <= gb_per_s <= 1e6:
            raise WorkloadError(f"transfer_gb_per_s is {shown(gb_per_s)}; it must be from 0.001 to 1,000,000 GB/s.")
        return 1e9 * float(gb_per_s)
    outer = [system.network_spanning(system.reach) for system in systems]
    return 1e9 * min(network.bandwidth_gb_per_s * network.efficiency for network in outer)


def size_pools(
    model: ModelLike,
    system: SystemLike,
    *,
    load: ServiceLoad,
    prompt: int,
    output: int,
    prefill_system: SystemLike | None = None,
    most_procs: int = 4096,
    limits: Mapping[str, Any] | None = None,
    prefill_limits: Mapping[str, Any] | None = None,
    transfer_gb_per_s: float | None = None,
    time_to_first_token: float | None = None,
    time_per_output_token: float | None = None,
    request_latency: float | None = None,
    level: str = "p99",
    mean_time_to_first_token: float | None = None,
    mean_time_per_output_token: float | None = None,
    price: float | None = None,
    assumptions: Assumptions | None = None,
    factors: EngineFactors | None = None,
    top: int = 10,
    progress: Callable[[float, str], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> PoolSizing:
    """Finds the disaggregated services that hold limits on latencies under a load, on the fewest GPUs; with two systems
    of known prices, at the lowest cost.

    Args:
        model, system: name, path or object; the system of the decode pool.
        load: of the whole service.
        prompt, output: mean tokens of a request; at least 2 of output, since the first one ends a prefill.
        prefill_system: of the prefill pool; the same where None.
        most_procs: most GPUs of both pools.
        limits: allowed values of fields of both pools, as of `size_service`.
        prefill_limits: limits on the prefill pool where they differ, by field.
        transfer_gb_per_s: rate of a GPU's link between the pools; by default that of the outermost network.
        time_to_first_token, time_per_output_token, request_latency: limits [s]; None for none.
        level: statistic that they hold for, one of `engine.serving.queueing.LEVELS`.
        mean_time_to_first_token, mean_time_per_output_token: limits on the means besides [s]; None for none.
        price: of a GPU of `system` [USD/h]; the recorded price where None. A `prefill_system` has its recorded price.
        assumptions: the usual ones where None.
        factors: on the latencies of engines, measured on servers of one of the systems, whose pool alone has them;
            none where None.
        top: services to return.
        progress: called with the share that is done, 0 to 1, and the current step in words.
        cancel: returns whether to stop.

    Raises:
        ServingLimitError, WorkloadError: an invalid argument. engine.ExplorationCancelled: `cancel` returned True.
    """
    begun = time.perf_counter()
    bounds = limits_of(
        time_to_first_token,
        time_per_output_token,
        request_latency,
        level,
        mean_first_token=mean_time_to_first_token,
        mean_per_token=mean_time_per_output_token,
    )
    if output < 2:
        raise WorkloadError("Requests of one output token never decode; give an output of 2 or more for two pools.")
    # Only the pool that prefills looks prompts up in host memory.
    reloads = assumptions is not None and assumptions.host_hit_share > 0
    later = replace(assumptions, host_hit_share=0.0) if assumptions is not None and reloads else assumptions
    decoder = replace(subject_of(model, system, price=price, assumptions=later), output_cv=float(load.output_cv))
    decoder = _with_factors(decoder, factors)
    prefiller = decoder
    if prefill_system is not None:
        prefiller = _with_factors(subject_of(decoder.model, prefill_system, assumptions=assumptions), factors)
    elif reloads:
        prefiller = replace(
            subject_of(model, system, price=price, assumptions=assumptions, factors=factors),
            output_cv=decoder.output_cv,
        )
    bandwidth = link_bandwidth((prefiller.system, decoder.system), transfer_gb_per_s)
    given, own = dict(limits or {}), dict(prefill_limits or {})
    # Replicas share requests at random, so that regular arrivals are Poisson's for each.
    careful = replace(load, arrival_cv=max(load.arrival_cv, 1.0))

    def tell(share: float, words: str) -> None:
        if cancel is not None and cancel():
            raise ExplorationCancelled
        if progress is not None:
            progress(share, words)

    tell(0.0, "decode deployments")
    decode, decode_profile, cycle = _decode_pool(decoder, prompt, output, given, careful, bounds, most_procs)
    tell(0.2, "prefill deployments")
    # Requests at once are a matter of decoding, unless prefill has a limit of its own.
    shared = {name: value for name, value in given.items() if name != "batch"}
    prefill, prefill_profile = _prefill_pool(prefiller, prompt, {**shared, **own}, careful, bounds, most_procs, cycle)
    tried = len(prefill.d), len(decode.d)
    runs = prefill.rate > 0, decode.rate > 0
    obstacle = _explain_obstacle(prefill, decode, bounds)
    kept = np.flatnonzero(runs[0]), np.flatnonzero(runs[1])
    prefill, decode = prefill.take(kept[0]), decode.take(kept[1])
    weights = (prefiller.price, decoder.price)
    if not all(math.isfinite(each) and each > 0 for each in weights):
        weights = (1.0, 1.0)
    weights = (weights[0] / weights[1], 1.0)
    profiles = prefill_profile.take(kept[0]), decode_profile.take(kept[1])
    most_rate, longest = np.zeros(0), np.ones(len(decode.d))
    if cycle is not None:
        most_rate, longest = most_open_rate(profiles[1], open_counterpart(careful)), cycle.longest[kept[1]]
    search = _PairSearch(careful, bounds, prefill, decode, profiles, bandwidth, most_rate, longest)
    tell(0.4, "pairs of pools")
    pairs = _bound_pairs(search, load.amount, weights, is_one_engine="engine" not in own)
    found, evaluated = _best_pairs(search, load.amount, pairs, weights, most_procs, tell)
    services = tuple(_services_of(search, load, found, weights, (prefiller, decoder), max(top, 1)))
    if not services and not obstacle:
        obstacle = f"No pair of pools holds the limits on {most_procs:,} GPUs or fewer."
    least = math.inf
    if len(pairs.prefill):
        p, d = pairs.prefill, pairs.decode
        each = weights[0] * prefill.size[p] / prefill.rate[p] + decode.size[d] / decode.rate[d]
        least = float(np.min(each / search.cycle[d]))
    return PoolSizing(
        decoder.model,
        (prefiller.system, decoder.system),
        load,
        bounds,
        services[:top] if top else services[:1],
        tried,
        len(pairs.prefill),
        evaluated,
        least,
        bandwidth,
        "" if services else obstacle,
        time.perf_counter() - begun,
        factors,
    )


def _with_factors(subject: ServingSubject, factors: EngineFactors | None) -> ServingSubject:
    """Return the subject with the measured factors, if they are of its system."""
    return subject if factors is None or factors.system != subject.system.name else replace(subject, factors=factors)


def _decode_pool(
    subject: ServingSubject,
    prompt: int,
    output: int,
    limits: Mapping[str, Any],
    load: ServiceLoad,
    bounds: LatencyLimits,
    most_procs: int,
) -> tuple[_PoolCandidates, ReplicaProfile, RequestCycle | None]:
    """Return the pool that decodes, and under a closed load the times between the requests of a user."""
    d, most = runnable_deployments(subject, unit_sizes(None, most_procs), prompt, output, limits)
    profile = decode_profiles(subject, d, most)

    def holds(rate: Floats) -> npt.NDArray[np.bool_]:
        found = loaded_replicas(profile, load, rate, np.ones_like(rate))
        return np.asarray(found.missed(bounds) == 0)

    if load.is_open:
        cycle, rate = None, largest_pool_rate(profile.largest_rate(), holds)
    else:
        cycle, rate = request_cycle(profile, load, bounds), largest_decode_rate(profile, load, bounds)
    size = d.tensor_par * d.pipeline_par * d.replicas
    return _PoolCandidates(subject, d, most, size, rate * d.replicas), profile, cycle


def _prefill_pool(
    subject: ServingSubject,
    prompt: int,
    limits: Mapping[str, Any],
    load: ServiceLoad,
    bounds: LatencyLimits,
    most_procs: int,
    cycle: RequestCycle | None,
) -> tuple[_PoolCandidates, PrefillProfile]:
    d, most = runnable_deployments(subject, unit_sizes(None, most_procs), prompt, 1, limits)
    profile = prefill_profiles(subject, d, most)
    ends = [each for each in (bounds.first_token, bounds.request) if each is not None]
    limit = min(ends) if ends else math.inf
    mean = math.inf if bounds.mean_first_token is None else bounds.mean_first_token

    def holds(rate: Floats) -> npt.NDArray[np.bool_]:
        if cycle is None or not len(cycle.longest):
            first, used = loaded_prefill(profile, load, rate)
        else:
            # Little's law for the users of a replica; the fewest, who hinder each other least.
            users = rate * cycle.longest.min()
            first, used = prefill_of_users(profile, load, rate, users, cycle.most_share)
        return np.asarray((used < 1.0) & (first.level(bounds.level) <= limit) & (first.mean <= mean))

    rate = largest_pool_rate(profile.largest_rate, holds) * d.replicas
    return _PoolCandidates(subject, d, most, d.tensor_par * d.pipeline_par * d.replicas, rate), profile


def _explain_obstacle(prefill: _PoolCandidates, decode: _PoolCandidates, bounds: LatencyLimits) -> str:
    """Return a sentence on the pool that holds no load; "" if both do."""
    for name, pool in zip(POOLS, (prefill, decode), strict=True):
        if not len(pool.d):
            return f"No {name} deployment runs within the limits on fields and the memory."
        if not np.any(pool.rate > 0):
            has_pace = bounds.per_token is not None or bounds.mean_per_token is not None
            late = "time per token" if name == "decode" and has_pace else "first token"
            return f"No {name} deployment holds the limit on the {late}, even without load."
    return ""


def _bound_pairs(
    search: _PairSearch, amount: float, weights: tuple[float, float], *, is_one_engine: bool
) -> _PoolPairs:
    """Return the pairs of deployments that can exchange caches, smallest bound first."""
    p, d = search.prefill, search.decode
    # The fewest requests per second of so many users; of an open load, its requests per second.
    rates = amount / search.cycle
    decodes = np.maximum(np.ceil(rates / d.rate * (1.0 - 1e-9)), 1.0)
    prefills = np.maximum(np.ceil(rates[None] / p.rate[:, None] * (1.0 - 1e-9)), 1.0)
    fits = p.d.kv_bits[:, None] == d.d.kv_bits[None]
    if is_one_engine:
        fits &= p.d.engine[:, None] == d.d.engine[None]
    first, second = np.nonzero(fits)
    counts = prefills[first, second], decodes[second]
    bound = weights[0] * counts[0] * p.size[first] + weights[1] * counts[1] * d.size[second]
    # Of equal bounds, few deployments and stages first.
    order = np.lexsort((p.d.pipeline_par[first] + d.d.pipeline_par[second], bound))
    first, second = first[order], second[order]
    return _PoolPairs(first, second, bound[order], (counts[0][order], counts[1][order]))


class _HeldPairs(NamedTuple):
    """Pairs that hold the limits: positions, deployments of each pool, and weight [pairs]."""

    prefill: npt.NDArray[np.intp]
    decode: npt.NDArray[np.intp]
    counts: tuple[Floats, Floats]
    weight: Floats


def _best_pairs(
    search: _PairSearch,
    amount: float,
    pairs: _PoolPairs,
    weights: tuple[float, float],
    most_procs: int,
    tell: Callable[[float, str], None],
) -> tuple[_HeldPairs, int]:
    """Return the pairs that hold the limits, of those whose bound is no larger than the best's weight; and how many
    were evaluated."""
    best, evaluated, ties = math.inf, 0, 0
    parts: list[_HeldPairs] = []
    start = 0
    while start < len(pairs.bound) and pairs.bound[start] <= best and ties < TIES:
        stop = min(start + PAIRS, int(np.searchsorted(pairs.bound, best, side="right")))
        tell(0.4 + 0.5 * start / len(pairs.bound), f"{len(pairs.bound):,} pairs of pools")
        part = _fewest_deployments(search, amount, pairs, np.arange(start, stop), weights, most_procs, best)
        evaluated += stop - start
        if len(part.weight):
            parts.append(part)
            best = min(best, float(part.weight.min()))
            ties = sum(int(np.sum(each.weight <= best * (1 + 1e-9))) for each in parts)
        start = stop
    if not parts:
        none = np.zeros(0, np.intp)
        return _HeldPairs(none, none, (np.zeros(0), np.zeros(0)), np.zeros(0)), evaluated
    return (
        _HeldPairs(
            np.concatenate([each.prefill for each in parts]),
            np.concatenate([each.decode for each in parts]),
            (np.concatenate([each.counts[0] for each in parts]), np.concatenate([each.counts[1] for each in parts])),
            np.concatenate([each.weight for each in parts]),
        ),
        evaluated,
    )


def _fewest_deployments(
    search: _PairSearch,
    amount: float,
    pairs: _PoolPairs,
    places: npt.NDArray[np.intp],
    weights: tuple[float, float],
    most_procs: int,
    best: float,
) -> _HeldPairs:
    """Return the fewest deployments of each pair that hold the limits and weigh no more than the best."""
    rows = pairs.prefill[places], pairs.decode[places]
    least = pairs.counts[0][places], pairs.counts[1][places]
    # The bound of many users is some percent low: look further in larger steps, and then between the last two.
    steps = np.ones(len(places)) if search.load.is_open else np.ceil(least[1] / FINE)
    found = _fewest_in_steps(search, amount, rows, least, steps, weights, most_procs, best)
    if not len(found.weight) or np.all(steps == 1):
        return found
    pair_of = {pair: place for place, pair in enumerate(zip(*(each.tolist() for each in rows), strict=True))}
    index = np.array([pair_of[pair] for pair in zip(found.prefill.tolist(), found.decode.tolist(), strict=True)])
    closer = np.maximum(found.counts[1] - steps[index] + 1.0, least[1][index])
    finer = np.ceil(steps[index] / MORE)
    bounds = least[0][index], closer
    finest = _fewest_in_steps(
        search, amount, (found.prefill, found.decode), bounds, finer, weights, most_procs, float(found.weight.max())
    )
    joined = _HeldPairs(
        np.concatenate([found.prefill, finest.prefill]),
        np.concatenate([found.decode, finest.decode]),
        (
            np.concatenate([found.counts[0], finest.counts[0]]),
            np.concatenate([found.counts[1], finest.counts[1]]),
        ),
        np.concatenate([found.weight, finest.weight]),
    )
    order = np.lexsort((joined.weight, joined.decode, joined.prefill))
    keys = joined.prefill[order] * (int(joined.decode.max()) + 1) + joined.decode[order]
    order = order[np.unique(keys, return_index=True)[1]]
    counts = joined.counts[0][order], joined.counts[1][order]
    return _HeldPairs(joined.prefill[order], joined.decode[order], counts, joined.weight[order])


def _fewest_in_steps(
    search: _PairSearch,
    amount: float,
    rows: tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]],
    least: tuple[Floats, Floats],
    steps: Floats,
    weights: tuple[float, float],
    most_procs: int,
    best: float,
) -> _HeldPairs:
    """Return the fewest deployments of each pair, with numbers of decode deployments from the least on in steps, that
    hold the limits and weigh no more than the best."""
    p, d = rows
    sizes = search.prefill.size[p], search.decode.size[d]
    transfer = search.transfers(p, d)
    # One row per pair and number of decode deployments.
    row, more = (each.ravel() for each in np.indices((len(p), MORE + 1)))
    decodes = least[1][row] + more * steps[row]
    # Prefill deployments that the GPUs left over, and the best weight, allow.
    left = (most_procs - decodes * sizes[1][row]) / sizes[0][row]
    lighter = (best - weights[1] * decodes * sizes[1][row]) / (weights[0] * sizes[0][row])
    high = np.floor(np.minimum(left, lighter) * (1.0 + 1e-12))
    kept = high >= least[0][row]
    row, decodes, high = row[kept], decodes[kept], high[kept]
    low = least[0][row] - 1.0

    def holds(where: npt.NDArray[np.bool_] | npt.NDArray[np.intp], prefills: Floats) -> npt.NDArray[np.bool_]:
        chosen = row[where]
        moved = CacheTransfer(*(getattr(transfer, name)[chosen] for name in CacheTransfer.__slots__))
        found = search.evaluate((p[chosen], d[chosen]), moved, (prefills, decodes[where]), amount)
        return np.asarray(found.latencies.missed(search.limits) == 0)

    # The fewest prefill deployments by number of decode deployments: latencies fall with both.
    right = holds(np.arange(len(row)), high) if len(row) else np.zeros(0, bool)
    row, decodes, high, low = row[right], decodes[right], high[right], low[right]
    first = True
    while len(row) and np.any(high - low > 1):
        open_rows = np.flatnonzero(high - low > 1)
        # Mostly the least number holds.
        middle = low[open_rows] + 1.0 if first else np.floor((low[open_rows] + high[open_rows]) / 2.0)
        good = holds(open_rows, middle)
        high[open_rows] = np.where(good, middle, high[open_rows])
        low[open_rows] = np.where(good, low[open_rows], middle)
        first = False
    weight = weights[0] * high * sizes[0][row] + weights[1] * decodes * sizes[1][row]
    order = np.lexsort((decodes, weight, row))
    order = order[np.unique(row[order], return_index=True)[1]]
    row = row[order]
    return _HeldPairs(p[row], d[row], (high[order], decodes[order]), weight[order])


def _services_of(
    search: _PairSearch,
    load: ServiceLoad,
    found: _HeldPairs,
    weights: tuple[float, float],
    subjects: tuple[ServingSubject, ServingSubject],
    top: int,
) -> list[PoolService]:
    """Return the services of pairs with their figures, the lightest first, of equal weight the most headroom."""
    if not len(found.weight):
        return []
    order = np.argsort(found.weight, kind="stable")
    tied = int(np.sum(found.weight[order] <= found.weight[order[0]] * (1 + 1e-9)))
    order = order[: max(min(tied, TIES), top)]
    p, d = found.prefill[order], found.decode[order]
    counts = found.counts[0][order], found.counts[1][order]
    transfer = search.transfers(p, d)
    high = np.minimum(counts[0] * search.prefill.rate[p], counts[1] * search.decode.rate[d]) * search.cycle[d]

    def holds(amount: Floats) -> npt.NDArray[np.bool_]:
        each = search.evaluate((p, d), transfer, counts, amount)
        return np.asarray(each.latencies.missed(search.limits) == 0)

    most = largest_pool_rate(high, holds, HALVINGS if load.is_open else USERS_HALVINGS)
    if not load.is_open:
        # They hold the load itself, however coarse the interval is.
        most = np.maximum(most, load.amount)
    loaded = search.evaluate((p, d), transfer, counts, load.amount)
    sizes = counts[0] * search.prefill.size[p], counts[1] * search.decode.size[d]
    gpus = sizes[0] + sizes[1]
    cost = subjects[0].price * sizes[0] + subjects[1].price * sizes[1]
    output = search.profiles[1].output[d]
    each = loaded.latencies
    rate = each.rate * counts[1] * search.decode.d.replicas[d]
    columns = {
        "gpus": gpus,
        "served_rate": rate,
        "served_tokens": rate * output,
        "in_flight": each.in_flight,
        "most_load": most,
        "headroom": most / load.amount,
        "prefill_busy": loaded.prefill_busy,
        "decode_busy": loaded.decode_busy,
        "link_busy": loaded.link_busy,
        "transfer_bytes": transfer.bytes_per_gpu,
        "transfer_time": loaded.transfer,
        **latency_columns(each),
        "cost_per_h": cost,
        "cost_per_million_served": cost / HOUR / (rate * output) * MILLION,
    }
    ranked = np.lexsort(
        (search.prefill.d.pipeline_par[p] + search.decode.d.pipeline_par[d], -np.round(columns["headroom"], 3), gpus)
    )
    if weights[0] != 1.0:
        ranked = np.lexsort((-np.round(columns["headroom"], 3), cost))
    tables = (
        deployment_table(search.prefill.d.take(p), search.profiles[0].most[p]),
        deployment_table(search.decode.d.take(d), search.profiles[1].most[d]),
    )
    services: list[PoolService] = []
    seen: set[tuple[Any, ...]] = set()
    for place in ranked.tolist():
        rows = []
        for table, number, subject in zip(tables, counts, subjects, strict=True):
            fields = table.iloc[[place]].to_dict("records")[0]
            count = {"deployments": int(number[place]), "system": subject.system.name}
            rows.append({**count, **{str(name): value for name, value in fields.items()}})
        # A pool that prefills generates the first token only; the request is the same.
        rows[0]["output"] = rows[1]["output"]
        figures = {name: float(values[place]) for name, values in columns.items()}
        # The launch of prefill passes changes nothing where kernels are long.
        key = (
            tuple(value for name, value in rows[0].items() if name not in ("launch", "batch")),
            tuple(rows[1].values()),
        )
        if key in seen:
            continue
        seen.add(key)
        if len(services) == top:
            break
        services.append(PoolService(rows[0], rows[1], figures))
    return services


def compare_services(aggregated: ServiceSizing, pools: PoolSizing) -> tuple[str | None, str]:
    """Returns the better of two services, "aggregated", "disaggregated" or None where no service holds, and why in one
    or two sentences.

    Args:
        aggregated: services whose replicas prefill and decode.
        pools: disaggregated ones for the same load and limits.
    """
    one, two = aggregated.best, pools.best
    if one is None and two is None:
        return None, "Neither an aggregated service nor a pair of pools holds the limits."
    if two is None:
        return "aggregated", f"Aggregated wins: no pair of pools holds the limits. {pools.obstacle}".strip()
    if one is None:
        return "disaggregated", "Pools win: no aggregated service holds the limits."
    costs = float(one["cost_per_h"]), two.figures["cost_per_h"]
    by_cost = pools.systems[0] != pools.systems[1] and all(map(math.isfinite, costs))
    values = costs if by_cost else (float(one["gpus"]), float(two.gpus))
    words = [f"{value:,.2f} USD/h" if by_cost else f"{value:,.0f} GPUs" for value in values]
    least = float(aggregated.least_per_rate)
    pair = pools.least_per_rate
    trend = ""
    if math.isfinite(least) and math.isfinite(pair) and not by_cost:
        unit = "request/s" if pools.load.is_open else "user"
        cheaper = "pools need at least" if pair < least else "pools need no fewer:"
        trend = (
            f" At large loads, aggregated needs {least:,.3g} GPUs per {unit} and {cheaper} {pair:,.3g}"
            f"{' or more' if pair >= least else ''}."
        )
    if values[1] < values[0]:
        return "disaggregated", f"Pools win with {words[1]} against {words[0]} of aggregated.{trend}"
    if values[1] > values[0]:
        return "aggregated", f"Aggregated wins with {words[0]} against {words[1]} of pools.{trend}"
    return "aggregated", f"Both take {words[0]}; aggregated is simpler.{trend}"
