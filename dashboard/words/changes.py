"""Changes of numbers of a scenario: as text of the link, as values of sliders, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dashboard.words.numbers import plain, with_unit
from engine import Scenario, whatif
from engine.whatif import Parameter

__all__ = ["FACTORS", "described", "in_words", "options", "slider_label", "text_of", "told_value"]


FACTORS: Final = (0.25, 1 / 3, 0.4, 0.5, 0.6, 0.75, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)
"""Steps of a slider, as multiples of the base."""
_DOUBLINGS: Final = (-4, 4)


def text_of(changes: Mapping[str, float]) -> str:
    """Returns the changes as the link carries them."""
    return ";".join(f"{name}:{value:.10g}" for name, value in changes.items())


def options(which: Parameter, value: float) -> list[float]:
    """Returns the values of a slider, `value` among them."""
    if which.discrete:
        low, high = _DOUBLINGS
        steps = [which.value * 2.0**step for step in range(low, high + 1)]
        found = [step for step in steps if step == int(step) and step >= 1]
    else:
        found = [which.value if factor == 1 else float(f"{which.value * factor:.4g}") for factor in FACTORS]
    if which.can_be_off:
        found.append(0.0)
    return sorted({*found, value})


def told_value(which: Parameter, value: float) -> str:
    """Returns a value with its unit: "100 GiB", "3.07 TB/s", "off"."""
    if value == 0 and which.can_be_off:
        return "off"
    if which.unit == "GB/s" and value >= 1000:
        return with_unit(plain(value / 1000), "TB/s")
    if which.unit == "GiB" and value >= 1024:
        return with_unit(plain(value / 1024), "TiB")
    if which.unit == "TFLOP/s" and value >= 10_000:
        return with_unit(plain(value / 1000), "PFLOP/s")
    unit = which.unit.removesuffix("s") if value == 1 and which.unit == "GPUs" else which.unit
    return with_unit(f"{value:,.0f}" if which.discrete and value == round(value) else plain(value), unit)


def in_words(which: Parameter, value: float) -> str:
    """Returns a value with what multiple of the base it is: "100 GiB ×1.25"."""
    told = told_value(which, value)
    if value in (which.value, 0) or which.value == 0:
        return told
    return f"{told} ×{value / which.value:.3g}"


def described(scenario: Scenario, changes: Mapping[str, float]) -> list[str]:
    """Returns each change in words: "HBM capacity 100 GiB ×1.25", "256 GPUs ×0.5"."""
    words = []
    for name, value in changes.items():
        which = whatif.parameter(scenario, name)
        told = in_words(which, value)
        words.append(told if which.label == which.unit else f"{which.label} {told}")
    return words


def slider_label(which: Parameter, value: float) -> str:
    """Returns the label of a slider: the name, stressed when changed, and the base.

    What reads pages aloud gets it as it is written here, so colours are the style sheet's matter.
    """
    name = f"**{which.label}**" if value != which.value else which.label
    return f"{name} · base {told_value(which, which.value)}"
