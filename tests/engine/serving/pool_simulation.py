"""Simulation of prefill and decode pools under users who think, that latencies in closed form are compared with."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class SimulatedPools:
    """Pools of equal replicas: seconds that a pass takes besides its prompts, of a prompt, and prompts of a pass; of a
    transfer; of a decode step by requests that decode, from 0; requests at once; and the replicas of both pools."""

    start: float
    each: float
    per_pass: int
    transfer: float
    step: list[float]
    most: int
    prefills: int
    decodes: int


@dataclass(frozen=True)
class SimulatedUsers:
    """Latencies of requests [s], requests per second [1/s], and requests in flight of a decode replica."""

    first_token: npt.NDArray[np.float64]
    per_token: npt.NDArray[np.float64]
    request: npt.NDArray[np.float64]
    rate: float
    in_flight: float


@dataclass
class _Replica:
    waiting: deque[int] = field(default_factory=deque)
    is_running: bool = False
    rounds: int = 0
    decoding: list[tuple[int, int]] = field(default_factory=list)


def simulate_pools(
    pools: SimulatedPools,
    users: int,
    think: float,
    outputs: npt.NDArray[np.int64],
    works: npt.NDArray[np.float64],
) -> SimulatedUsers:
    """Run users, each with the same replicas, until all requests have ended; the first and last fifths are left out.

    Args:
        pools: that serve them.
        users: who send the next request when their last has ended and they have thought.
        think: mean pause [s].
        outputs: tokens of each request.
        works: prompt of each over the mean.
    """
    random = np.random.default_rng(7)
    count = len(outputs)
    pauses = random.exponential(think, count) if think else np.zeros(count)
    owner, came, first, last = np.zeros(count, np.int64), np.zeros(count), np.zeros(count), np.zeros(count)
    prefills, decodes = ([_Replica() for _ in range(number)] for number in (pools.prefills, pools.decodes))
    # Time, what happens, the request or replica, and the requests that end.
    events: list[tuple[float, int, int, list[int]]] = []
    sent, busy = 0, 0.0

    def send(user: int, now: float) -> None:
        nonlocal sent
        if sent < count:
            owner[sent], came[sent] = user, now + pauses[sent]
            heappush(events, (float(came[sent]), 0, sent, []))
            sent += 1

    def start_pass(place: int, now: float) -> None:
        replica = prefills[place]
        if replica.is_running or not replica.waiting:
            return
        taken = [replica.waiting.popleft() for _ in range(min(len(replica.waiting), pools.per_pass))]
        replica.is_running = True
        heappush(events, (now + pools.start + pools.each * float(works[taken].sum()), 1, place, taken))

    def start_step(place: int, now: float) -> None:
        nonlocal busy
        replica = decodes[place]
        if replica.is_running:
            return
        while replica.waiting and len(replica.decoding) < pools.most:
            each = replica.waiting.popleft()
            first[each] = now
            heappush(replica.decoding, (replica.rounds + int(outputs[each]) - 1, each))
        if replica.decoding:
            replica.is_running = True
            lasts = pools.step[len(replica.decoding)]
            busy += lasts * len(replica.decoding)
            heappush(events, (now + lasts, 3, place, []))

    for user in range(users):
        send(user, 0.0)
    now = 0.0
    while events:
        now, kind, place, taken = heappop(events)
        if kind == 0:
            replica = int(owner[place]) % pools.prefills
            prefills[replica].waiting.append(place)
            start_pass(replica, now)
        elif kind == 1:
            prefills[place].is_running = False
            for each in taken:
                heappush(events, (now + pools.transfer, 2, each, []))
            start_pass(place, now)
        elif kind == 2:
            replica = int(owner[place]) % pools.decodes
            decodes[replica].waiting.append(place)
            start_step(replica, now)
        else:
            replica_at = decodes[place]
            replica_at.is_running = False
            replica_at.rounds += 1
            while replica_at.decoding and replica_at.decoding[0][0] <= replica_at.rounds:
                each = heappop(replica_at.decoding)[1]
                last[each] = now
                send(int(owner[each]), now)
            start_step(place, now)
    kept = slice(count // 5, count - count // 5)
    later = np.maximum(outputs[kept] - 1, 1)
    rate = (kept.stop - kept.start) / float(np.ptp(np.sort(last)[kept]))
    return SimulatedUsers(
        (first - came)[kept],
        (last - first)[kept] / later,
        (last - came)[kept],
        rate,
        busy / now / pools.decodes,
    )
