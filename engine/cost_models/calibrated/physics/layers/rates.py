"""Sustained rates of an accelerator: what long kernels reach in training, not the datasheet.

The matrix rate is the 16-bit peak times a fraction per generation, scaled with the power available per peak FLOP/s:
processors throttle their clock at the power limit, so the same chip at 500 W or with a higher peak at nearly the same
power sustains a smaller fraction. Exponent fitted over five accelerators of two generations.

Source: the calibration study on 1,147 measured rows; the maturity of software, runs of NVIDIA's frameworks on H100 from
2024 to 2026.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from engine.cost_models.calibrated.physics.formats import PLAIN, SCALED
from engine.cost_models.calibrated.physics.inputs import GENERATIONS, Accelerators, Floats, Layout
from engine.cost_models.calibrated.physics.parameters import POWER_REFERENCES, SUSTAINED, Parameters

__all__ = ["SustainedRates", "maturity", "power_factor", "sustained_rates"]

MOST_SUSTAINED = 0.9
"""Share of the peak that long products reach where power does not limit the clock [dimensionless]: the scaling with
power ends here. Source: stated by us, looking at cuBLAS on chips whose matrix units were cut down, such as the H20."""
FOUR_BIT_GAIN = next(each.sustained.ratio for each in SCALED if each.name == "nvfp4" and each.sustained is not None)
"""Rate of long products in 4 bits over that in 8 bits, at most [dimensionless]: all measured runs in 4 bits are in
NVFP4. Source: the register of datatypes."""


@dataclass(frozen=True, slots=True)
class SustainedRates:
    """Sustained rates, arrays [rows]: matrix [FLOP/s] in 16, 8 and 4 bits and in each format of `formats.SCALED`;
    memory [bytes/s]; networks [bytes/s], the innermost first and none slower than one further out."""

    matrix16: Floats
    matrix8: Floats
    matrix4: Floats
    memory: Floats
    networks: tuple[Floats, ...]
    scaled: tuple[Floats, ...] = ()

    def linear(self, bits: Floats) -> Floats:
        """Returns the matrix rate of linear layers in a plain datatype [rows] [FLOP/s].

        Args:
            bits: width of their factors: 16, 8 or 4 [rows] [bits].
        """
        return np.where(bits == 16, self.matrix16, np.where(bits == 8, self.matrix8, self.matrix4))

    def linear_of(self, layout: Layout) -> Floats:
        """Returns the matrix rate of the linear layers in their format [rows] [FLOP/s].

        Args:
            layout: formats of the linear layers [rows].
        """
        found = self.linear(layout.linear_bits)
        if np.any(layout.linear_format > 0):
            for place, rate in enumerate(self.scaled, start=1):
                found = np.where(layout.linear_format == place, rate, found)
        return found


def power_factor(accelerator: Accelerators, p: Parameters) -> Floats:
    """Returns (power per peak FLOP/s relative to the generation's reference) to the power exponent [rows]
    [dimensionless].

    1 where the power is not known (not a number) or the generation has no reference.

    Args:
        accelerator: published figures of the accelerators [rows].
        p: parameters of a calibration.
    """
    references = [getattr(p, POWER_REFERENCES[name]) if name in POWER_REFERENCES else np.nan for name in GENERATIONS]
    reference = np.array(references)[accelerator.generation.astype(int)]
    # ((P / F) / (P_ref / F_ref))^gamma: watts per peak FLOP/s against the generation's reference.
    ratio = accelerator.power / accelerator.flops16 / reference
    return np.where(np.isfinite(ratio) & (ratio > 0), ratio, 1.0) ** p.power_exponent


def maturity(age_years: Floats, p: Parameters) -> Floats:
    """Returns the share of the mature matrix rate that software reaches, 1 from `mature_years` on [rows]
    [dimensionless].

    Kernels for a new generation get better over its first years.

    Args:
        age_years: age of the software since the generation shipped [years].
        p: parameters of a calibration.
    """
    # 1 / (1 + i max(0, y_mature - y)): linear slowness per missing year.
    return 1.0 / (1.0 + p.immaturity * np.clip(p.mature_years - age_years, 0.0, None))


def sustained_rates(accelerator: Accelerators, age_years: Floats, p: Parameters) -> SustainedRates:
    """Returns the sustained rates of every row [rows] [FLOP/s, bytes/s].

    A precision without a peak runs at the rate of the next wider one.

    The innermost network sustains `scale_up` of its rate, all others `scale_out`. Ranks that share a network also share
    the outer networks, so traffic takes an outer one if that is faster.

    Args:
        accelerator: published figures of the accelerators [rows].
        age_years: age of the software since the generation shipped [years].
        p: parameters of a calibration.
    """
    generation = accelerator.generation.astype(int)
    fraction = np.array([getattr(p, SUSTAINED[name]) for name in GENERATIONS])[generation]
    fraction = np.minimum(fraction * power_factor(accelerator, p), MOST_SUSTAINED) * maturity(age_years, p)
    blackwell = generation == GENERATIONS.index("blackwell")
    eight = np.where(blackwell, p.eight_bit_blackwell, p.eight_bit)
    matrix16 = accelerator.flops16 * fraction
    matrix8 = np.where(accelerator.flops8 > 0, accelerator.flops8 * fraction * eight, matrix16)
    # A second halving of the width loses the same share again, and gains no more than runs show.
    four = np.minimum(accelerator.flops4 * fraction * eight**2, FOUR_BIT_GAIN * matrix8)
    matrix4 = np.where(accelerator.flops4 > 0, four, matrix8)
    plain = {16.0: matrix16, 8.0: matrix8, 4.0: matrix4}
    scaled = []
    for each, peak in zip(SCALED, accelerator.scaled_peaks, strict=False):
        rate = peak * fraction * eight**each.halvings
        if each.halvings >= 2:
            rate = np.minimum(rate, FOUR_BIT_GAIN * matrix8)
        if each.sustained is not None:
            rate = np.minimum(rate, each.sustained.ratio * plain[PLAIN[each.sustained.datatype]])
        # Where the accelerator does not compute in the format, rows are refused; the rate only has to be a number.
        scaled.append(np.where(peak > 0, rate, matrix16))
    return SustainedRates(
        matrix16,
        matrix8,
        matrix4,
        accelerator.memory_bandwidth * p.memory,
        _network_rates(accelerator, p),
        tuple(scaled),
    )


def _network_rates(accelerator: Accelerators, p: Parameters) -> tuple[Floats, ...]:
    inner, *outer = accelerator.network_bandwidths
    sustained = [inner * p.scale_up, *(each * p.scale_out for each in outer)]
    # From the outermost inwards, since traffic of an inner network may take an outer one.
    return tuple(accumulate(reversed(sustained), np.maximum))[::-1]
