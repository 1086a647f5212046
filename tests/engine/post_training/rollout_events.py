"""Simulation of a rollout by events, independent of the closed form: every response ends at its own step."""

from __future__ import annotations

import heapq

import numpy as np

from engine.post_training.rollout import DecodeSteps


def simulate(
    steps: DecodeSteps, lengths: np.ndarray, *, prompt: float, replicas: int, slots: int, group: int = 1
) -> float:
    """Return the seconds until the last response ends; replicas take the next sample of one queue when a slot frees."""
    queue = list(np.maximum(np.rint(lengths), 1.0))[::-1]
    active: list[list[list[float]]] = [[] for _ in range(replicas)]
    # The first samples are dealt one by one, as a router does that counts requests.
    while queue and any(len(each) < slots for each in active):
        for each in active:
            if queue and len(each) < slots:
                each.append([queue.pop(), prompt])
    clock = [len(each) * steps.prefill / group for each in active]
    heap = [(time, place) for place, time in enumerate(clock) if active[place]]
    for place, (time, number) in enumerate(heap):
        heap[place] = (time + _advance(steps, active[number]), number)
    heapq.heapify(heap)
    end = 0.0
    while heap:
        time, number = heapq.heappop(heap)
        here = [each for each in active[number] if each[0] > 0.0]
        while queue and len(here) < slots:
            here.append([queue.pop(), prompt])
            time += steps.prefill / group
        active[number] = here
        if here:
            heapq.heappush(heap, (time + _advance(steps, here), number))
        end = max(end, time)
    return end


def _advance(steps: DecodeSteps, requests: list[list[float]]) -> float:
    """Decode until the first of some requests ends; return the seconds, the sum of its steps."""
    count = min(each[0] for each in requests)
    contexts = sum(each[1] for each in requests)
    number = len(requests)
    for each in requests:
        each[0] -= count
        each[1] += count
    # Contexts grow by one token per request and step.
    return count * float(steps.at(number)) + steps.per_context * (
        count * contexts + number * count * (count + 1.0) / 2.0
    )
