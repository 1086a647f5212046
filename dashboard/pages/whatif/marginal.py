"""Worth of more of one parameter: its gain per unit, and the price increase that cancels the gain."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import streamlit as st

from dashboard.charts.elements.advice import rows_table
from dashboard.charts.what_if.tornado import Swing
from dashboard.pages.whatif.board import WhatIfBoard
from dashboard.queries import accuracy
from dashboard.words.differences import is_change
from dashboard.words.numbers import ABSENT, percent, plain, signed_percent
from engine.economics import RunInputs
from engine.whatif import Parameter

__all__ = ["Marginal", "draw", "marginal_gains"]


DOUBLED: Final = 2.0
"""Factor of whole numbers, such as the number of GPUs that NVLink links."""
_WITHIN: Final = "≈"
"""Marks a gain below the error."""


class Marginal(NamedTuple):
    """Gain from more of a parameter, with the whole space searched again."""

    label: str
    more: float
    """Added amount [unit of the parameter]."""
    unit: str
    gain: float
    """New over old throughput, less 1."""
    worth: float
    """Price increase of a GPU-hour at which a token costs the same [USD]; NaN without a price."""

    @property
    def step(self) -> float:
        """Round amount for the gain per unit: a power of ten not above `more`."""
        return float(10.0 ** math.floor(math.log10(self.more)))

    @property
    def per_step(self) -> float:
        """Gain per `step`, assuming linear scaling."""
        return self.gain * self.step / self.more


def marginal_gains(
    parameters: Iterable[Parameter], swings: Sequence[Swing], factor: float, price: float | None
) -> list[Marginal]:
    """Returns the gain from more of each parameter of the hardware, the largest first.

    parameters: all parameters. swings: effect of each. factor: by which it was raised. price: of a GPU-hour [USD]; None
    if not recorded.
    """
    gains = {swing.name: swing.up for swing in swings}
    found = []
    for which in parameters:
        gain, more = gains.get(which.name), which.value * ((DOUBLED if which.discrete else factor) - 1.0)
        if which.about != "system" or gain is None or not math.isfinite(gain) or not more > 0.0:
            continue
        worth = math.nan if price is None else price * gain
        found.append(Marginal(which.label, more, which.unit, gain, worth))
    return sorted(found, key=lambda one: -one.gain)


def draw(board: WhatIfBoard, swings: Sequence[Swing], factor: float) -> None:
    """Draws the table; gains below the error are marked in place: a narrow card has no room for a column."""
    price = RunInputs.of(board.scenario.system).usd_middle
    rows = marginal_gains(board.every.values(), swings, factor, price)
    if not rows:
        return
    best = board.fastest.best if board.around else board.fastest.base
    error = None if best is None else accuracy.error_of(board.scenario, best)
    with st.expander("What a unit is worth", key="whatif_marginal"):
        st.html(
            rows_table(
                ("Parameter", "Gain", "Per unit", "Worth, USD/h"),
                [
                    (
                        one.label,
                        f"{_WITHIN}\u00a0"
                        * (error is not None and is_change(one.gain, 1.0) and abs(one.gain) < error.width)
                        + signed_percent(one.gain),
                        f"{_format_small_gain(one.per_step)} per {_amount_name(one)}",
                        ABSENT if math.isnan(one.worth) else f"{one.worth:+.3f}".replace("-", "\u2212"),
                    )
                    for one in rows
                ],
                texts=(0,),
            )
        )
        told = (
            ""
            if price is None
            else (f" Worth: the increase of the GPU-hour price of {plain(price)} USD at which a token costs the same.")
        )
        within = (
            ""
            if error is None
            else (
                f" {_WITHIN} marks a gain below {percent(error.width)}, the error of one prediction. Predictions for "
                "the same GPUs have similar errors, so their order is more certain."
            )
        )
        st.markdown(f":small[Gain per unit assumes linear scaling.{told}{within}]")


def _amount_name(one: Marginal) -> str:
    """Return the amount that the gain per unit is for: "GB/s", "10 GiB", "GPU"."""
    return (
        one.unit.removesuffix("s" if one.unit == "GPUs" else "") if one.step == 1 else f"{plain(one.step)} {one.unit}"
    )


def _format_small_gain(gain: float) -> str:
    """Return a small gain with two digits, in percent, with its sign."""
    return f"{gain * 100:+.2g}\u00a0%".replace("-", "\u2212")
