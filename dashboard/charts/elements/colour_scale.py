"""From a value to a place on the "how good" ramp, and back to the ticks of its colour bar.

The ramp runs from 0 (worst shown) to 1 (best). For metrics where lower is better it is reversed, so that the strongest
colour is good either way.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dashboard.charts.elements.palette import Palette
from dashboard.charts.elements.template import TICK_SIZE, finite, nice_steps, tick_texts
from dashboard.words.numbers import Scale, plain

Domain = Literal["near best", "from zero", "logarithmic"]
"""near best: 40 to 100 % of the best (or up to 2.5 times the best where lower is better); from zero: the whole range
with zero; logarithmic: all values, equal ratios get equal distances."""

_LEAST_SHARE = 0.4
_FEWEST, _MOST = 3, 8
"""Ticks of a logarithmic bar."""


@dataclass(frozen=True, slots=True)
class Ramp:
    """A mapping of values to positions 0 (worst) to 1 (best)."""

    good: float
    """Value at position 1."""
    bad: float
    """Value at position 0; values beyond it are clipped."""
    logarithmic: bool
    near_best: bool

    def position(self, value: float) -> float:
        """Returns the position of a value; infinite values sit at the bad end."""
        if math.isinf(value):
            return 0.0
        if self.good == self.bad:
            return 1.0
        good, bad = self.good, self.bad
        if self.logarithmic:
            if value <= 0:
                return 0.0 if good > bad else 1.0
            value, good, bad = math.log(value), math.log(good), math.log(bad)
        return min(max((value - bad) / (good - bad), 0.0), 1.0)

    def ticks(self, scale: Scale) -> tuple[list[float], list[str], str]:
        """Returns tick positions, their texts and the title of the colour bar."""
        if self.good == self.bad:
            return [1.0], [scale.number(self.good)], scale.unit
        if self.near_best:
            if self.good > self.bad:
                shares = [0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
                texts = [f"{share * 100:.0f}" for share in shares]
                texts[0] = "≤ 40"
                return [self.position(share * self.good) for share in shares], texts, "% of best"
            ratios = [1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5]
            texts = [f"{ratio:g}" for ratio in ratios]
            texts[-1] = "≥ 2.5"
            return [self.position(ratio * self.good) for ratio in ratios], texts, "× best"
        low, high = sorted((self.bad / scale.factor, self.good / scale.factor))
        if self.logarithmic:
            values, texts = _logarithmic_ticks(low, high)
        else:
            values = nice_steps(low, high)
            texts = [plain(value) for value in values]
        return [self.position(value * scale.factor) for value in values], texts, scale.unit

    def ends(self, scale: Scale) -> tuple[str, str, str]:
        """Return the values of the worst and the best colour, and their unit: "≤ 40", "100", "% of best"."""
        if self.near_best and self.good != self.bad:
            _, texts, title = self.ticks(scale)
            worst, best = (texts[0], texts[-1]) if self.good > self.bad else (texts[-1], texts[0])
            return worst, best, title
        return scale.number(self.bad), scale.number(self.good), scale.unit


def _logarithmic_ticks(low: float, high: float) -> tuple[list[float], list[str]]:
    """Return ticks of a logarithmic bar and their texts: 1, 2, 5 and their tenfolds where these are neither many nor
    few, powers of ten over more decades, round numbers at equal steps over less than one."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 5), (1,)):
        values = [factor * 10.0**power for power in powers for factor in factors]
        values = [value for value in values if low <= value <= high]
        if _FEWEST <= len(values) <= _MOST:
            break
    if len(values) >= _FEWEST:
        values = values[:: -(-len(values) // _MOST)]
        return values, [plain(value, 1) for value in values]
    steps = tick_texts(low, high, fewest=_FEWEST)
    return steps["tickvals"], steps["ticktext"]


def ramp_for(values: Sequence[float], *, lower_is_better: bool, domain: Domain) -> Ramp:
    """Returns the ramp for a set of values; NaN and infinities do not count.

    Where the best is zero or negative, ratios to it mean nothing and the whole range is shown instead.
    """
    known = finite(values)
    if not known:
        return Ramp(1.0, 1.0, False, False)
    best, worst = (min(known), max(known)) if lower_is_better else (max(known), min(known))
    if domain == "logarithmic" and min(known) > 0:
        return Ramp(best, worst, True, False)
    if domain == "near best" and best > 0:
        return Ramp(best, best / _LEAST_SHARE if lower_is_better else best * _LEAST_SHARE, False, True)
    if lower_is_better:
        return Ramp(min(best, 0.0), worst, False, False)
    return Ramp(best, min(worst, 0.0), False, False)


def colour_bar(ramp: Ramp, scale: Scale, colours: Palette, **more: Any) -> dict[str, Any]:
    """Returns the Plotly colour bar of a ramp."""
    positions, texts, title = ramp.ticks(scale)
    return {
        "thickness": 8,
        "outlinewidth": 0,
        "len": 0.98,
        "xpad": 8,
        "ypad": 0,
        "tickvals": positions,
        "ticktext": texts,
        "tickfont": {"size": TICK_SIZE, "color": colours.muted},
        "title": {"text": title, "side": "right", "font": {"size": TICK_SIZE, "color": colours.muted}},
        **more,
    }
