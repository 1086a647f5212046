"""Laws of response lengths with long tails, and the packing of sequences into bins.

A response is as long as a draw of a lognormal law, but never longer than the cap at which the engine stops it. The mean
is that of the capped lengths, which frameworks print; the coefficient of variation is that of the law before the cap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from engine.executions.arrays import Floats

__all__ = ["LengthError", "LengthLaw", "expected_bins", "packing_efficiency"]

POINTS: Final = 513
"""Points of the grid on which survival is tabulated; integrals of smooth laws are then exact to 1e-4 of the mean.
Source: measured against 4,097 points."""
STEADY: Final = 1e-6
"""Coefficient of variation below which all lengths are equal []. Source: stated by us; shorter than a token."""
UNREACHED: Final = 60.0
"""Largest |log| of the ratio of median and cap that is searched []. Source: stated by us."""
DRAWS: Final = 4_096
"""Lengths of which the packing is computed, spread evenly over the law. Source: stated by us."""


class LengthError(ValueError):
    """Lengths that no response can have; the message is one sentence."""


@dataclass(frozen=True, eq=False)
class LengthLaw:
    """Law of the lengths of responses: `survival` P(length > x) at `tokens` x, ascending from 0 to the cap [tokens]."""

    tokens: Floats
    survival: Floats

    @classmethod
    def lognormal(cls, mean: float, cap: float, cv: float = 1.0) -> LengthLaw:
        """Return the capped lognormal law with a mean.

        Args:
            mean: of the capped lengths [tokens].
            cap: longest response [tokens].
            cv: coefficient of variation of the lengths without a cap [].

        Raises `LengthError` for a mean above the cap, or a number out of range.
        """
        if not 0.0 < mean <= cap < math.inf:
            raise LengthError(f"The mean response is {mean:,.6g} tokens; it must be above 0 and at most {cap:,.6g}.")
        if not 0.0 <= cv <= 10.0:
            raise LengthError(f"The coefficient of variation is {cv:g}; it must be from 0 to 10.")
        if cv < STEADY or mean > cap * (1.0 - STEADY):
            return cls(np.array([0.0, mean, mean]), np.array([1.0, 1.0, 0.0]))
        sigma = math.sqrt(math.log1p(cv * cv))

        def excess(mu: float) -> float:
            # E min(L, C) of a lognormal law: exp(mu + s^2/2) N(d - s) + C (1 - N(d)), d = (ln C - mu) / s.
            d = (math.log(cap) - mu) / sigma
            return math.exp(mu + sigma * sigma / 2.0) * float(ndtr(d - sigma)) + cap * float(ndtr(-d)) - mean

        mu = float(brentq(excess, math.log(mean) - UNREACHED, math.log(cap) + UNREACHED))
        # Half of the points are quantiles, so that a narrow law is resolved; the others are spread evenly.
        chances = np.linspace(0.0, 1.0, POINTS // 2 + 2)[1:-1]
        quantiles = np.exp(mu + sigma * ndtri(chances))
        tokens = np.unique(np.concatenate([np.linspace(0.0, cap, POINTS), quantiles[quantiles < cap]]))
        survival = np.ones(len(tokens))
        survival[1:] = ndtr(-(np.log(tokens[1:]) - mu) / sigma)
        # The cap is reached by all that would be longer: survival drops to 0 there.
        return cls(np.append(tokens, cap), np.append(survival, 0.0))

    @classmethod
    def histogram(cls, lengths: Sequence[float]) -> LengthLaw:
        """Return the law of measured lengths, every one as likely as the others.

        Args:
            lengths: of responses [tokens].

        Raises `LengthError` without lengths, or for one that is not positive and finite.
        """
        values = np.asarray(lengths, np.float64)
        if not values.size or not np.all(np.isfinite(values)) or values.min() <= 0:
            raise LengthError("The lengths must be one or more positive numbers of tokens.")
        steps, counts = np.unique(values, return_counts=True)
        left = 1.0 - np.cumsum(counts) / values.size
        before = np.concatenate([[1.0], left[:-1]])
        tokens = np.concatenate([[0.0], np.repeat(steps, 2)])
        survival = np.concatenate([[1.0], np.stack([before, left], axis=1).ravel()])
        return cls(tokens, np.maximum(survival, 0.0))

    @cached_property
    def cap(self) -> float:
        """Longest response [tokens]."""
        return float(self.tokens[-1])

    @cached_property
    def mean(self) -> float:
        """Mean length [tokens]."""
        return self._moment(1)

    @cached_property
    def second_moment(self) -> float:
        """Mean of the squared length [tokens^2]."""
        return self._moment(2)

    @cached_property
    def cv2(self) -> float:
        """Squared coefficient of variation of the capped lengths []."""
        return max(self.second_moment / self.mean**2 - 1.0, 0.0)

    def contexts(self, prompt: float) -> tuple[float, float]:
        """Return mean and standard deviation of the tokens in the cache summed over the steps of a response,
        w = p L + L^2 / 2 [tokens^2].

        Args:
            prompt: tokens of the prompt p.
        """
        mean = prompt * self.mean + self.second_moment / 2.0
        # E w^2 = p^2 E L^2 + p E L^3 + E L^4 / 4
        square = prompt**2 * self.second_moment + prompt * self._moment(3) + self._moment(4) / 4.0
        return mean, math.sqrt(max(square - mean * mean, 0.0))

    @cached_property
    def residual(self) -> Floats:
        """Survival of the rest of a response at a random time of a full engine: the integral of survival from x on,
        divided by the mean [points] (equilibrium law of a renewal process, Cox 1962, section 5.2)."""
        pieces = np.diff(self.tokens) * (self.survival[1:] + self.survival[:-1]) / 2.0
        return np.concatenate([np.cumsum(pieces[::-1])[::-1], [0.0]]) / self.mean

    def quantiles(self, chances: Floats) -> Floats:
        """Return the lengths that a share of the responses stays below [tokens].

        Args:
            chances: shares from 0 to 1.
        """
        below = 1.0 - self.survival
        return np.interp(chances, below, self.tokens)

    def first(self, launched: float) -> tuple[LengthLaw, LengthLaw]:
        """Return the laws of all and of the kept responses where more are launched than kept: the first to end are
        kept, the others are stopped with them.

        Of responses that start together the last kept one has the length that a share 1 / launched stays below.

        Args:
            launched: responses per kept one, at least 1.
        """
        dropped = 1.0 - 1.0 / launched
        stop = float(self.quantiles(np.array([1.0 - dropped]))[0])
        before = self.tokens < stop
        if stop < self.cap:
            tokens = np.concatenate([self.tokens[before], [stop, stop]])
            survival = np.concatenate([self.survival[before], [dropped, 0.0]])
        else:
            tokens, survival = self.tokens, self.survival
        kept = np.maximum(survival - dropped, 0.0) / (1.0 - dropped)
        return LengthLaw(tokens, survival), LengthLaw(tokens, kept)

    def _moment(self, power: int) -> float:
        # E L^k = integral of k x^(k - 1) S(x); between two points survival is a line, Simpson's rule is exact to k = 3.
        x, s = self.tokens, self.survival
        middle, half = (x[1:] + x[:-1]) / 2.0, (s[1:] + s[:-1]) / 2.0
        ends = x ** (power - 1) * s
        total = np.diff(x) * (ends[1:] + ends[:-1] + 4.0 * middle ** (power - 1) * half) / 6.0
        return float(power * np.sum(total))


def expected_bins(prompt: float, law: LengthLaw, samples: int, size: int) -> float:
    """Return the bins of `size` tokens that samples fill when packed first-fit by decreasing length.

    The lengths are spread evenly over the law; of many samples as many are packed as `DRAWS`, and the result is scaled.

    Args:
        prompt: tokens in front of every response.
        law: of the lengths of responses.
        samples: to be packed.
        size: of a bin [tokens], at least the longest sample.

    Raises `LengthError` where a sample is longer than a bin.
    """
    if prompt + law.cap > size:
        raise LengthError(
            f"The longest sample has {prompt + law.cap:,.0f} tokens, more than the {size:,} that it is packed to."
        )
    number = min(samples, DRAWS)
    lengths = np.sort(prompt + law.quantiles((np.arange(number) + 0.5) / number))[::-1]
    room = np.zeros(number)
    used = 0
    for length in lengths:
        fits = np.flatnonzero(room[:used] >= length)
        if len(fits):
            room[fits[0]] -= length
        else:
            room[used] = size - length
            used += 1
    return used * samples / number


def packing_efficiency(prompt: float, law: LengthLaw, samples: int, size: int) -> float:
    """Return the share of packed tokens that are tokens of samples, above 0 and at most 1.

    Args:
        prompt, law, samples, size: as for `expected_bins`.
    """
    return samples * (prompt + law.mean) / (expected_bins(prompt, law, samples, size) * size)
