"""Simulation of one replica with continuous batching, pass by pass, that latencies in closed form are compared with."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class SimulatedReplica:
    """A replica: seconds of a decode step and of the prompt of one request by requests that decode, from 0; requests at
    once; prompts of one pass; True if prompts share passes with requests that decode; request and reply [s]."""

    step: list[float]
    added: list[float]
    most: int
    per_pass: int
    is_mixed: bool
    fixed: float


@dataclass(frozen=True)
class SimulatedRequests:
    """Latencies of requests in the order of their arrival [s], requests in flight on average, and per second [1/s]."""

    first_token: npt.NDArray[np.float64]
    per_token: npt.NDArray[np.float64]
    request: npt.NDArray[np.float64]
    in_flight: float
    rate: float


def simulate_replica(
    replica: SimulatedReplica,
    arrivals: npt.NDArray[np.float64],
    outputs: npt.NDArray[np.int64],
    works: npt.NDArray[np.float64],
    users: int | None = None,
    thinks: npt.NDArray[np.float64] | None = None,
) -> SimulatedRequests:
    """Run requests through a replica until all have ended; the first fifth of them is left out of the results.

    Every pass takes in as many prompts as wait, up to its limits, and lasts for a step and these prompts; engines that
    do not mix run prompts alone, before the next step.

    Args:
        replica: that serves them.
        arrivals: times, ascending [s]; under a closed load without meaning.
        outputs: tokens of each.
        works: prompt of each over the mean.
        users: who send the next request when their last has ended; None for an open load.
        thinks: pause of its user before each request [s]; none by default.
    """
    count = len(outputs)
    came = arrivals.copy()
    first, last = np.zeros(count), np.zeros(count)
    pauses = np.zeros(count) if thinks is None else thinks
    waiting: deque[int] = deque()
    # Requests of users who think, by the time at which they come.
    coming = [(float(pauses[each]), each) for each in range(users or 0)]
    heapify(coming)
    upcoming, now, busy_requests = users or 0, 0.0, 0.0
    # Requests that decode by the round in which they end; a round is a step of all of them.
    decoding: list[tuple[int, int]] = []
    rounds = 0
    while True:
        while users is None and upcoming < count and arrivals[upcoming] <= now:
            waiting.append(upcoming)
            upcoming += 1
        while coming and coming[0][0] <= now:
            time, each = heappop(coming)
            came[each] = time
            waiting.append(each)
        if not waiting and not decoding:
            if coming:
                now = coming[0][0]
                continue
            if upcoming >= count:
                break
            now = float(arrivals[upcoming])
            continue
        begun = [waiting.popleft() for _ in range(min(len(waiting), replica.per_pass, replica.most - len(decoding)))]
        # A mixed pass takes a step, also where nothing else decodes.
        has_step = replica.is_mixed or not begun
        lasts = sum(works[each] for each in begun) * replica.added[max(len(decoding), 1)]
        lasts += replica.step[max(len(decoding), 1)] if has_step else 0.0
        busy_requests += (len(decoding) + len(begun)) * lasts
        now += lasts
        rounds += has_step
        for each in begun:
            first[each] = now
            heappush(decoding, (rounds + int(outputs[each]) - 1, each))
        while decoding and decoding[0][0] <= rounds:
            last[heappop(decoding)[1]] = now
            if users is not None and upcoming < count:
                heappush(coming, (now + float(pauses[upcoming]), upcoming))
                upcoming += 1
    start = count // 5
    stop = count if users is None else count - users
    kept = slice(start, stop)
    waited, whole = (first - came)[kept] + replica.fixed, (last - came)[kept] + replica.fixed
    later = np.maximum(outputs[kept] - 1, 1)
    rate = (stop - start) / float(np.ptp(np.sort(last)[kept]))
    return SimulatedRequests(waited, (last - first)[kept] / later, whole, busy_requests / now, rate)
