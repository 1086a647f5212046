"""Rates, times and amounts of a training run; every argument may be a number or an array, which broadcast."""

from __future__ import annotations

from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "HFU_FORMULA",
    "MFU_FORMULA",
    "Quantity",
    "energy_kwh",
    "processor_hours",
    "seconds_for_tokens",
    "tokens_per_second",
    "tokens_per_second_at",
    "utilisation",
]

Quantity = TypeVar("Quantity", float, NDArray[np.float64])

HOUR: Final = 3600.0
"""Seconds of an hour [s/h]."""
JOULES_PER_KWH: Final = 3.6e6
"""Joules of a kilowatt-hour [J/kWh]."""

MFU_FORMULA: Final = "throughput · model FLOP per sample ÷ (GPUs · peak matrix FLOP/s of one GPU)"
"""Source: Chowdhery et al. (PaLM, arXiv:2204.02311), appendix B."""

HFU_FORMULA: Final = "as MFU, with recomputed arithmetic counted"
"""Source: Korthikanti et al. (arXiv:2205.05198), section 6.3."""


def tokens_per_second(tokens_per_step: Quantity, step_s: Quantity) -> Quantity:
    """Returns the rate of the whole system [tokens/s] from the tokens of a step and its time [s].

    Args:
        tokens_per_step: of the whole system [tokens].
        step_s: time of a step [s].
    """
    return tokens_per_step / step_s


def tokens_per_second_at(flops_per_token: Quantity, num_procs: Quantity, flops_per_s: Quantity) -> Quantity:
    """Return the rate of the whole system [tokens/s] from the FLOP rate of a processor and the FLOP per token.

    With 8 FLOP per parameter, forward, backward and full recompute, `seconds_for_tokens` of it is equation 4 of
    Narayanan et al. (arXiv:2104.04473), 8 T P / (n X).

    Args:
        flops_per_token: work of a token [FLOP/token].
        num_procs: processors of the system.
        flops_per_s: rate that every processor reaches [FLOP/s].
    """
    return num_procs * flops_per_s / flops_per_token


def utilisation(flops_per_token: Quantity, tokens_per_s: Quantity, num_procs: Quantity, peak: Quantity) -> Quantity:
    """Returns the share of the peak, 0 to 1: rate [tokens/s] times work [FLOP/token] over processors times their peak
    [FLOP/s].

    Model-FLOP utilisation with `TokenFlops.model`, hardware-FLOP utilisation with `TokenFlops.hardware`.

    Args:
        flops_per_token: work of a token [FLOP/token].
        tokens_per_s: rate of the whole system [tokens/s].
        num_procs: processors of the system.
        peak: highest rate of a processor [FLOP/s].
    """
    return flops_per_token * tokens_per_s / (num_procs * peak)


def seconds_for_tokens(tokens: Quantity, tokens_per_s: Quantity) -> Quantity:
    """Return the time to train a number of tokens without a failure [s].

    Args:
        tokens: to train on [tokens].
        tokens_per_s: rate of the whole system [tokens/s].
    """
    return tokens / tokens_per_s


def processor_hours(num_procs: Quantity, seconds: Quantity) -> Quantity:
    """Returns the processor-hours of processors that are held for a time [s].

    Args:
        num_procs: processors of the system.
        seconds: time for which processors are held [s].
    """
    return num_procs * seconds / HOUR


def energy_kwh(num_procs: Quantity, seconds: Quantity, power_w: Quantity, share: Quantity, pue: Quantity) -> Quantity:
    """Returns the energy [kWh] of processors over a time [s].

    Args:
        num_procs: processors of the system.
        seconds: time for which processors are held [s].
        power_w: power that a processor is designed for [W].
        share: average draw of a processor with its share of the server, over `power_w`.
        pue: draw of the building over that of its computers.
    """
    return num_procs * seconds * power_w * share * pue / JOULES_PER_KWH
