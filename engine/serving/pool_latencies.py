"""Latencies of disaggregated prefill and decode: two pools of replicas, and the transfer of the KV cache between them.

A request waits for a prefill replica, passes through it, sends its cache over the network, and waits for a place and
for the step that runs in a decode replica, which then shows it the first token. Prompts hold up no steps.

No pair of pools under an open load was measured: all of this is modelled, and compared with a simulation in the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from engine.executions.arrays import Floats
from engine.serving.arrivals import ServiceLoad
from engine.serving.deployments import Deployments
from engine.serving.figures import ServingSubject, computed_prompt, grouped, memory_of, pass_times
from engine.serving.profiles import ReplicaProfile, ReplicaTimes, replica_profiles
from engine.serving.queueing import (
    LatencyFigure,
    LoadedReplicas,
    RareWait,
    erlang_wait,
    loaded_replicas,
    others_within,
    whole_request,
)

__all__ = [
    "CacheTransfer",
    "LoadedPools",
    "PrefillProfile",
    "cache_transfers",
    "decode_profiles",
    "largest_pool_rate",
    "loaded_pools",
    "loaded_prefill",
    "prefill_profiles",
]

ROUNDS = 20
"""Rounds of the fixed point of the length of a pass; it contracts by the share of time that prompts take."""
HALVINGS = 26
"""Halvings of the interval in which the largest rate is looked for."""
MOST_USED = 0.999
"""Share of a pool's time up to which waiting is evaluated []. Source: stated by us."""


@dataclass(frozen=True, slots=True)
class PrefillProfile:
    """Passes of replicas that only prefill [rows]: a pass of n prompts takes the slowest stage `start` + n `each` [s],
    with at most `most` prompts; `fixed` of a request, with the way through the other stages [s]."""

    start: Floats
    each: Floats
    most: Floats
    fixed: Floats

    def take(self, index: npt.NDArray[np.intp]) -> PrefillProfile:
        """Returns the rows at `index`."""
        return PrefillProfile(*(getattr(self, each.name)[index] for each in fields(self)))

    @property
    def largest_rate(self) -> Floats:
        """Requests per second of full passes [rows] [1/s]."""
        return self.most / (self.start + self.most * self.each)


@dataclass(frozen=True, slots=True)
class CacheTransfer:
    """Cache of a prompt on its way between pools [rows]: bytes that the busiest GPU of either replica moves, the time
    of these without a queue [s], and GPU time of one request on a link of the prefill and of the decode replica [s]."""

    bytes_per_gpu: Floats
    time: Floats
    sent: Floats
    received: Floats


@dataclass(frozen=True, slots=True)
class LoadedPools:
    """Pairs of pools under load [rows]: latencies of requests as one service, time of a transfer with its queue [s],
    and the busy shares of prefill replicas, decode replicas and links []."""

    latencies: LoadedReplicas
    transfer: Floats
    prefill_busy: Floats
    decode_busy: Floats
    link_busy: Floats


def prefill_profiles(subject: ServingSubject, d: Deployments, most: Floats) -> PrefillProfile:
    """Returns the profiles of replicas that only prefill, with the measured factors of their engines on first tokens.

    Args:
        subject: model, system and assumptions.
        d: deployments that run [rows].
        most: prompts whose cache fits the memory of a replica [rows].
    """
    blocks, chunk = float(len(subject.pattern.blocks)), float(subject.assumptions.prefill_chunk)
    most = np.clip(np.floor(chunk / computed_prompt(subject, d)), 1.0, np.maximum(most, 1.0))
    start, each, fixed = (np.zeros(len(d)) for _ in range(3))
    for index in grouped(d):
        part, full = d.take(index), most[index]
        terms = subject.engine(part)
        host = terms.prefill_pass + terms.prefill_layer * blocks
        one, through = _prefill_pass(subject, part, np.ones(len(part)), host)
        several, _ = _prefill_pass(subject, part, full, host)
        # Linear between one prompt and a full pass.
        more = np.where(full > 1, (several - one) / np.maximum(full - 1.0, 1.0), one)
        factor = subject.latency_factors(part).time_to_first_token
        each[index] = factor * np.minimum(more, one)
        start[index] = factor * one - each[index]
        fixed[index] = factor * (terms.first_token + through)
    return PrefillProfile(start, each, most, fixed)


def _prefill_pass(subject: ServingSubject, d: Deployments, prompts: Floats, host: float) -> tuple[Floats, Floats]:
    """Return the time that some prompts take the slowest stage, and their way through the others [s]."""
    # With one output token, B - 1 others share the pass and none decodes.
    times, _ = pass_times(subject, replace(d, output=np.ones(len(d)), batch=prompts + 1.0))
    return times.chunks * (times.pass_stage + host), np.maximum(times.pass_through - times.pass_stage, 0.0)


def decode_profiles(subject: ServingSubject, d: Deployments, most: Floats) -> ReplicaProfile:
    """Returns the profiles of replicas that only decode: no prompt takes time of theirs.

    Args:
        subject: model, system and assumptions.
        d: deployments that run [rows].
        most: requests that a replica decodes at once [rows].
    """
    found = replica_profiles(subject, d, most)
    step, none = found.times.step, np.zeros(len(d))
    zeros = np.zeros_like(step)
    # With others in flight, a request that comes waits for half of a step.
    waited = np.where(np.arange(step.shape[1]) > 0, step / 2.0, 0.0)
    times = ReplicaTimes(step, step, zeros, zeros, waited, np.ones_like(step))
    return ReplicaProfile(times, found.most, found.output, np.full(len(d), 4096.0), none, none)


def cache_transfers(
    prefill: tuple[ServingSubject, Deployments], decode: tuple[ServingSubject, Deployments], bandwidth: float
) -> CacheTransfer:
    """Returns the transfers of a prompt's cache from replicas of one pool to the other pool's [rows].

    Every GPU has a link of its own. A GPU that decodes receives what it holds of the cache, heads and latents that
    ranks repeat included; those that prefill share the sending.

    Args:
        prefill, decode: subject and deployments of the pools [rows].
        bandwidth: of a GPU's link between pools, one way [bytes/s].
    """
    (_, p), (subject, d) = prefill, decode
    held = np.zeros(len(d))
    # A cache of the prompt alone, of one request.
    alone = replace(d, batch=np.ones(len(d)), output=np.zeros(len(d)))
    for index in grouped(alone):
        held[index] = memory_of(subject, alone.take(index)).kv_cache
    ranks = d.tensor_par * d.pipeline_par
    sent = held * ranks / (p.tensor_par * p.pipeline_par)
    busiest = np.maximum(held, sent)
    return CacheTransfer(busiest, busiest / bandwidth, sent / bandwidth, held / bandwidth)


def loaded_prefill(profile: PrefillProfile, load: ServiceLoad, rate: Floats) -> tuple[LatencyFigure, Floats]:
    """Returns the time that requests spend in replicas that only prefill, and the busy share of these [rows].

    Args:
        profile: of the replicas.
        load: spread of arrivals and prompts.
        rate: requests per second of a replica [rows].
    """
    a, b, most = profile.start, profile.each, profile.most
    arrivals = np.full_like(rate, load.arrival_cv**2)
    used = rate / profile.largest_rate
    inside = np.minimum(used, MOST_USED)
    slow = inside * profile.largest_rate
    # T = a + b n. The next pass has the N = rate x T prompts that came meanwhile, or the first that comes after.
    passes = a + b
    for _ in range(ROUNDS):
        came = slow * passes
        passes = a + b * np.minimum(came + np.exp(-came), most)
    came = slow * passes
    busy = passes / (passes + np.exp(-came) / np.maximum(slow, 1e-30))
    bursts = np.maximum(1.0 + others_within(passes, slow, arrivals) - came, 0.0)
    prompts_busy, full = np.minimum(slow * b, MOST_USED), (most - 1.0) ** 2 * b * b / 4.0
    varied = b * b * came * (bursts + load.prompt_cv**2)
    # A request meets E[T^2] / E[T]: half of it is left on average, and the prompts of the rest share the own pass.
    # Long passes follow long ones, var T = b^2 N spread / (1 - rho^2), until idle times part them: between both.
    root = np.sqrt(1.0 - prompts_busy**2)
    met = np.minimum(passes + np.minimum(varied / root, full) / passes, a + b * most)
    others = np.minimum(others_within(met, slow, arrivals), most - 1.0)
    several = 1.0 - 1.0 / most
    mean = several * busy * (met / 2.0 + b * others)
    shared = b * others / np.maximum(met, 1e-30)
    varied = np.minimum(varied / root**2, full)
    uniform = (met * met + 2.0 * varied) * (1.0 / 3.0 + shared + shared * shared)
    squared = several * busy * (uniform + b * b * others * bursts)
    # Beyond full passes, a queue with `most` places in each, as of a replica that also decodes.
    each = 1.0 / profile.largest_rate
    chance = erlang_wait(most, inside)
    served = (b * load.prompt_cv * profile.largest_rate) ** 2
    queued = each / (1.0 - inside) * (np.maximum(arrivals, 0.0) + served) / 2.0
    mean, squared = mean + chance * queued, squared + 2.0 * chance * queued * queued
    # Of a burst, (c^2 - 1) / 2 prompts are before one on average, as of M^X/G/1.
    ahead = b * np.maximum(arrivals - 1.0, 0.0) / 2.0 / (1.0 - prompts_busy)
    extra = np.maximum(ahead - mean, 0.0)
    mean, squared = mean + extra, squared + 2.0 * extra * extra
    own = a + b
    least = profile.fixed + own - b * min(load.prompt_cv, 1.0)
    variance = np.maximum(squared - mean * mean, 0.0) + (b * load.prompt_cv) ** 2
    usual = np.where(used < 1.0, profile.fixed + own + mean, np.inf)
    none = RareWait(np.zeros_like(rate), np.zeros_like(rate))
    return LatencyFigure(usual, variance, least, none), used


def loaded_pools(
    prefill: PrefillProfile,
    decode: ReplicaProfile,
    transfer: CacheTransfer,
    load: ServiceLoad,
    rates: tuple[Floats, Floats],
) -> LoadedPools:
    """Returns pairs of pools under an open load [rows].

    Args:
        prefill, decode: profiles of the replicas.
        transfer: of the cache between them.
        load: spread of arrivals and lengths.
        rates: requests per second of a prefill replica and of a decode replica [rows].
    """
    first, prefill_busy = loaded_prefill(prefill, load, rates[0])
    one = np.ones_like(rates[0])
    found = loaded_replicas(decode, load, rates[1], one)
    link_busy = np.maximum(rates[0] * transfer.sent, rates[1] * transfer.received)
    inside = np.minimum(link_busy, MOST_USED)
    # M/D/1 on the busier end: W = rho / (1 - rho) x time / 2.
    waited = inside / (1.0 - inside) * transfer.time / 2.0 * max(load.arrival_cv**2, 0.0)
    moved = np.where(link_busy < 1.0, transfer.time + waited, np.inf)
    shown = LatencyFigure(
        first.usual + moved + found.first_token.usual,
        first.variance + found.first_token.variance + waited * waited + (transfer.time * load.prompt_cv) ** 2,
        first.least + transfer.time * (1.0 - min(load.prompt_cv, 1.0)) + found.first_token.least,
        found.first_token.wait,
    )
    later = np.maximum(decode.output - 1.0, 0.0)
    request = whole_request(shown, found.per_token, later, load)
    busy = np.maximum(np.maximum(prefill_busy, found.busy), link_busy)
    latencies = LoadedReplicas(rates[1], found.in_flight, busy, shown, found.per_token, request)
    return LoadedPools(latencies, moved, prefill_busy, found.busy, link_busy)


def largest_pool_rate(
    high: Floats, holds: Callable[[Floats], npt.NDArray[np.bool_]], halvings: int = HALVINGS
) -> Floats:
    """Returns the largest load at which a condition holds, 0 where it does at none: requests per second, or users
    [rows].

    Args:
        high: bound of the load [rows].
        holds: returns the rows in which it holds at some loads; once false, false for all higher ones.
        halvings: of the interval.
    """
    low, top = np.zeros_like(high), high
    least = holds(1e-9 * high)
    for _ in range(halvings):
        middle = (low + top) / 2.0
        right = holds(middle)
        low, top = np.where(right, middle, low), np.where(right, top, middle)
    return np.where(least, low, 0.0)
