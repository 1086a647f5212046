"""Time of a rollout: many responses with a long tail on replicas of a serving engine.

A decode step takes s(b, contexts) = a(b) + c x (sum of the contexts of b requests), tabulated from
`engine.serving`. While every slot has a request a replica decodes at its full batch; at the end fewer and fewer are
left, and the longest decides. `makespan` is the closed form of that; tests compare it with a simulation of events.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
from scipy.special import ndtri

from engine.executions.arrays import Floats
from engine.post_training.lengths import LengthLaw
from engine.serving.deployments import Deployments
from engine.serving.figures import ServingSubject, figures, memory_of

__all__ = ["DecodeSteps", "Makespan", "Speculation", "decode_steps", "makespan", "rollout_rate", "slots_of"]

BATCHES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 96.0, 128.0, 192.0, 256.0, 384.0, 512.0, 768.0, 1024.0)
"""Requests of a replica at which steps are tabulated. Source: stated by us."""


WAVE_POINTS: Final = 385
"""Points up to the cap at which a second wave is tabulated. Source: stated by us."""
GENERATIONS: Final = 3
"""Times that a slot is refilled by responses of the second wave itself. Source: stated by us; a fourth changes less
than 0.1 % of a makespan."""


@dataclass(frozen=True, eq=False)
class DecodeSteps:
    """Decode steps of one replica: `fixed` a(b) [s] at `batches` b, `per_context` c [s per token in the cache].

    `prefill` of one prompt when many are computed together [s].
    """

    batches: Floats
    fixed: Floats
    per_context: float
    prefill: float = 0.0

    def at(self, batch: Floats | float) -> Floats:
        """Return the part of a step that does not depend on contexts, a(b) [s].

        Args:
            batch: requests in the step, at least 1.
        """
        return np.asarray(np.interp(batch, self.batches, self.fixed))

    def step(self, batch: float, context: float) -> float:
        """Return a decode step of requests with one context [s].

        Args:
            batch: requests.
            context: tokens in the cache of each.
        """
        return float(self.at(batch)) + self.per_context * batch * context

    def scaled(self, factor: float) -> DecodeSteps:
        """Return steps that take a multiple of the time.

        Args:
            factor: on all times.
        """
        return replace(
            self, fixed=self.fixed * factor, per_context=self.per_context * factor, prefill=self.prefill * factor
        )


class Makespan(NamedTuple):
    """Rollout of all samples: `seconds` in all, of which `prefill`; `full_rate_s` is the time if every slot decoded to
    the end [s]."""

    seconds: float
    prefill_s: float
    full_rate_s: float

    @property
    def tail_ratio(self) -> float:
        """Time over the time at the rate of full batches, at least 1 for a law with a tail []."""
        return self.seconds / self.full_rate_s


@dataclass(frozen=True, slots=True)
class Speculation:
    """Speculative decoding: each step proposes `drafted` tokens of a request, keeps `accepted` (one more than were
    right, on average), and drafting takes a share `cost` of a plain step."""

    accepted: float
    drafted: int
    cost: float

    def applied(self, steps: DecodeSteps) -> DecodeSteps:
        """Return the time per token of a request instead of per step.

        A step verifies drafted + 1 tokens of every request, as long as a plain step of so many times the requests;
        each cache is read once for all of them. Leviathan et al. 2023 (arXiv:2211.17192), theorem 3.8, with the
        verification at its own time.

        Args:
            steps: plain ones, tabulated up to drafted + 1 times the requests.
        """
        batches = steps.batches[steps.batches * (self.drafted + 1) <= steps.batches[-1] * (1.0 + 1e-9)]
        fixed = steps.at(batches * (self.drafted + 1)) + self.cost * steps.at(batches)
        return DecodeSteps(batches, fixed / self.accepted, steps.per_context / self.accepted, steps.prefill)


def decode_steps(
    subject: ServingSubject,
    row: Deployments,
    law: LengthLaw,
    prompt: float,
    most: float,
    speculation: Speculation | None = None,
) -> DecodeSteps:
    """Return the decode steps of a deployment, tabulated over batches; with speculation per token of a request.

    Args:
        subject: model, system and assumptions of serving.
        row: one deployment [1]; its batch, prompt and output are not read.
        law: of the lengths of responses.
        prompt: tokens of a prompt.
        most: largest batch of a replica.
        speculation: of the engine.
    """
    if speculation is not None:
        wide = decode_steps(subject, row, law, prompt, most * (speculation.drafted + 1))
        # The slots themselves are a point of the table.
        points = np.unique([*wide.batches, most])
        return speculation.applied(replace(wide, batches=points, fixed=wide.at(points)))
    batches = np.array([*(each for each in BATCHES if each < most), most])
    near, far = np.maximum(prompt, 1.0), np.maximum(prompt + law.cap, prompt + 2.0)

    def spread(context: float) -> Deployments:
        size = len(batches)
        columns: dict[str, Any] = {name: np.full(size, getattr(row, name)[0]) for name in row.__slots__}
        columns |= {"batch": batches, "prompt": np.full(size, context), "output": np.full(size, 2.0)}
        return Deployments(**columns)

    # The context of a row is its prompt and half of its output of two tokens.
    first, second = (figures(subject, spread(context))["decode_step_time"] for context in (near, far))
    slope = np.maximum(second - first, 0.0) / (far - near) / batches
    fixed = np.maximum(first - slope * batches * (near + 1.0), 0.0)
    # Contexts count most where the batch is large; small batches keep their time at the mean context.
    per_context = float(slope[-1])
    middle = prompt + law.second_moment / (2.0 * law.mean)
    fixed = fixed + (slope - per_context) * batches * middle
    one = replace(spread(near), batch=np.full(len(batches), min(most, 64.0)))
    prefill = float(figures(subject, one)["prefill_time"][0])
    return DecodeSteps(batches, np.maximum.accumulate(np.maximum(fixed, 1e-9)), per_context, prefill)


def slots_of(subject: ServingSubject, row: Deployments, law: LengthLaw, prompt: float, most: int) -> int:
    """Return the requests that a replica decodes at once: as the cache holds at their mean length, at most `most`.

    Engines preempt requests when the cache is full and do not reserve the cap; the mean length decides.

    Args:
        subject: model, system and assumptions of serving.
        row: one deployment [1].
        law: of the lengths of responses.
        prompt: tokens of a prompt.
        most: limit of the engine on requests at once.
    """
    sized = replace(row, batch=np.ones(1), prompt=np.array([max(prompt, 1.0)]), output=np.array([law.mean]))
    return int(min(memory_of(subject, sized).largest_batch[0], most))


def makespan(
    steps: DecodeSteps,
    law: LengthLaw,
    *,
    prompt: float,
    samples: int,
    replicas: int,
    slots: int,
    group: int = 1,
) -> Makespan:
    """Return the time in which replicas generate all samples, from the first prompt to the last response.

    With n samples per replica and B slots: one wave (n <= B) decodes with the unfinished ones, n S(x), until the
    longest of all ends. With f = (n - B) / B up to 1 a second wave starts as slots become free. More waves keep the
    slots full for m (f + (1 - c2) / 2) steps, m the mean and c2 the squared coefficient of variation, and then drain:
    the rest of each slot has the equilibrium law Se. The contexts of all samples are read once per step: c n E w,
    w = p L + L^2 / 2, and the replica with the most of them waits longest (kappa, expected maximum of normal draws,
    Blom 1958).

    Args:
        steps: of a replica.
        law: of the lengths of responses.
        prompt: tokens of a prompt.
        samples: in all.
        replicas: of the deployment.
        slots: requests of a replica at once.
        group: samples that share a prompt, which is computed once.
    """
    number = min(replicas, samples)
    n = samples / number
    contexts, spread = law.contexts(prompt)
    kappa = float(ndtri((number - 0.375) / (number + 0.25))) if number > 1 else 0.0
    batch = min(float(slots), n)
    rounds = max(0.0, n - slots) / slots
    drained = batch * number
    full = 0.0
    if rounds >= 1.0:
        full = law.mean * (rounds + (1.0 - law.cv2) / 2.0) * float(steps.at(slots))
        tokens, left, longest = law.tokens, law.residual, _survival_of_longest(law.residual, drained)
    elif rounds:
        tokens, left, late = _second_wave(law, rounds)
        longest = 1.0 - (1.0 - _survival_of_longest(late[0], drained)) * (
            1.0 - _survival_of_longest(late[1], rounds * drained)
        )
    else:
        tokens, left, longest = law.tokens, law.survival, _survival_of_longest(law.survival, drained)
    tail = float(np.trapezoid(longest * steps.at(np.maximum(1.0, batch * left)), tokens))
    balance = math.sqrt(batch) * spread * kappa * (1.0 - min(rounds, 1.0) / 2.0)
    prefill = n * steps.prefill / group
    seconds = full + tail + steps.per_context * (n * contexts + balance) + prefill
    # Every step with a full batch: n m / B steps.
    ideal = n * law.mean / batch * float(steps.at(batch)) + steps.per_context * n * contexts + prefill
    return Makespan(seconds, prefill, ideal)


def _second_wave(law: LengthLaw, share: float) -> tuple[Floats, Floats, tuple[Floats, Floats]]:
    """Return steps, the share of slots in use at each, and the survival of responses of the first and second wave.

    The second wave has so many responses for each slot. They start when slots become free, so that a response of it
    ends after the sum of two lengths or more.
    """
    half = np.linspace(0.0, law.cap, WAVE_POINTS)
    survival = np.interp(half, law.tokens, law.survival)
    survival[-1] = 0.0  # the cap is reached by all
    # Starts of the second wave: ends of the first and of the second itself, until so many have started.
    ends = np.minimum(1.0 - survival, share)
    for _ in range(GENERATIONS):
        again = np.convolve(np.diff(ends, prepend=0.0), 1.0 - survival)[: len(half)]
        ends = np.minimum(1.0 - survival + again, share)
    starts = np.diff(ends, prepend=0.0)
    second = np.convolve(starts, survival)
    started = np.concatenate([ends, np.full(len(half) - 1, share)])
    first = np.concatenate([survival, np.zeros(len(half) - 1)])
    alive = (second + share - started) / share
    return np.linspace(0.0, 2.0 * law.cap, 2 * WAVE_POINTS - 1), first + second, (first, np.clip(alive, 0.0, 1.0))


def rollout_rate(
    steps: DecodeSteps, law: LengthLaw, *, prompt: float, replicas: int, slots: int, group: int = 1
) -> float:
    """Return the samples per second of replicas whose slots are never empty, as in asynchronous modes.

    Args:
        steps, law, prompt, replicas, slots, group: as for `makespan`.
    """
    context = prompt + law.second_moment / (2.0 * law.mean)
    seconds = law.mean * steps.step(slots, context) / slots + steps.prefill / group
    return replicas / seconds


def _survival_of_longest(survival: Floats, number: float) -> Floats:
    """Return the chance that the longest of so many is longer than x: 1 - (1 - S)^k."""
    return np.asarray(-np.expm1(number * np.log1p(-np.minimum(survival, 1.0 - 1e-15))))
