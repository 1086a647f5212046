"""Sustained rates of an accelerator by a calibration, rate by rate, with the provenance of each figure.

The figures are the ones that the formulas use (`engine.cost_models.calibrated.physics.layers.rates`); this module only
explains them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from engine.cost_models.calibrated.measured import measured_kinds, precision_words
from engine.cost_models.calibrated.physics.formats import SCALED
from engine.cost_models.calibrated.physics.inputs import ATTENTION_KERNELS, Accelerators
from engine.cost_models.calibrated.physics.layers.attention import fused_rate
from engine.cost_models.calibrated.physics.layers.rates import SustainedRates, sustained_rates
from engine.cost_models.calibrated.physics.parameters import (
    POWER_REFERENCES,
    SUSTAINED,
    library_calibration,
    parameters_of,
)
from engine.cost_models.calibrated.systems import accelerator_of, calibrated, fastest_attention, generation_of
from engine.cost_models.contract import MODELLED, PROVENANCES, SustainedRate
from hardware import Calibration, FitError, System, network_names
from models import datatypes

__all__ = ["accelerator_error", "effective_rates"]

POWER = "power_exponent"
"""Parameter that scales the rates of one accelerator to others of its generation; it is mentioned in words but does not
count as provenance."""
BITS = {"matrix, 16 bits": 16, "matrix, 8 bits": 8, "matrix, 4 bits": 4}
"""Bits of the rates whose measured runs are identified by precision."""


def effective_rates(
    system: System, calibration: Calibration | None = None, *, age_years: float = np.inf
) -> tuple[SustainedRate, ...]:
    """Returns the sustained matrix, attention, memory and network rates of a system [FLOP/s, bytes/s].

    Args:
        system: any system; one without an `accelerator` counts as of a generation without measurements.
        calibration: whose values; the library's where None.
        age_years: age of the software since the generation shipped [years]; mature where not given.

    Returns:
        Rates of 16, 8 and 4 bits where the accelerator has such a peak, of fused attention, of memory, and of the
        networks [FLOP/s, bytes/s].

    Raises:
        hardware.CalibrationFileError: the calibration lacks a value.
    """
    chosen = calibration or library_calibration()
    p = parameters_of(chosen)
    facts = Accelerators.of(accelerator_of(system))
    rates = sustained_rates(facts, np.asarray(age_years), p)
    generation = generation_of(system)
    matrix: tuple[str, ...] = (SUSTAINED[generation],)
    if generation in POWER_REFERENCES:
        matrix += (POWER,)
    blackwell = generation == "blackwell"
    eight = (*matrix, "eight_bit_blackwell" if blackwell else "eight_bit")
    kernel = fastest_attention(system)
    attention = fused_rate(facts, np.asarray(float(ATTENTION_KERNELS.index(kernel))), np.asarray(age_years), p)
    every = (
        ("matrix, 16 bits", "FLOP/s", facts.flops16, rates.matrix16, matrix),
        ("matrix, 8 bits", "FLOP/s", facts.flops8, rates.matrix8, eight),
        ("matrix, 4 bits", "FLOP/s", facts.flops4, rates.matrix4, eight),
        ("matrix in fused attention", "FLOP/s", facts.flops16, attention, ("attention", *matrix[1:])),
        ("memory", "bytes/s", facts.memory_bandwidth, rates.memory, ("memory",)),
        *(
            (name, "bytes/s", peak, sustained, (share,))
            for name, peak, sustained, share in zip(
                network_names(system),
                facts.network_bandwidths,
                rates.networks,
                ("scale_up", *["scale_out"] * system.tiers),
                strict=False,
            )
        ),
    )
    found = []
    for name, unit, peak, sustained, used in every:
        if peak <= 0:
            continue
        provenance = _rate_provenance(system, chosen, used, BITS.get(name))
        basis = _describe_basis(system, chosen, used, provenance)
        found.append(SustainedRate(name, unit, float(peak), float(sustained), used, provenance, basis))
    narrow = [place for place, each in enumerate(found) if each.name.startswith("matrix, ")]
    scaled = _scaled_rates(system, chosen, facts, rates, eight)
    return (*found[: narrow[-1] + 1], *scaled, *found[narrow[-1] + 1 :])


def _scaled_rates(
    system: System, calibration: Calibration, facts: Accelerators, rates: SustainedRates, used: tuple[str, ...]
) -> Iterator[SustainedRate]:
    """Yield the sustained rates of the formats with scales that the system computes in."""
    values = ", ".join(f"{name} {calibration.parameters[name].value:g}" for name in used)
    for each, peak, rate in zip(SCALED, facts.scaled_peaks, rates.scaled, strict=True):
        if peak <= 0:
            continue
        if each.measured_as:
            bits = datatypes.named(each.measured_as).bits
            provenance = _rate_provenance(system, calibration, used, bits)
            basis = _describe_basis(system, calibration, used, provenance)
        else:
            provenance, basis = MODELLED, f"{values}; no run in {each.label} was measured"
        if each.sustained is not None:
            other = datatypes.named(each.sustained.datatype).label
            basis = f"{values}; at most {each.sustained.ratio:g} times {other}: {each.sustained.source}"
        yield SustainedRate(f"matrix, {each.label}", "FLOP/s", float(peak), float(rate), used, provenance, basis)


def accelerator_error(system: System, calibration: Calibration | None = None) -> FitError | None:
    """Returns the error of the calibration on runs of this very accelerator; None where it states none.

    Args:
        system: any system.
        calibration: whose errors; the library's where None.
    """
    name = system.accelerator.name if system.accelerator is not None else ""
    errors = (calibration or library_calibration()).errors
    return next((error for error in errors if name and error.accelerator == name), None)


def _rate_provenance(system: System, calibration: Calibration, used: tuple[str, ...], bits: int | None) -> str:
    # What other generations were fitted on says nothing about this one, unless the calibration was made on it.
    if not calibrated(system) and calibration.system != system.name:
        return MODELLED
    # A product is as well founded as the least of its factors.
    kinds = {calibration.parameters[name].kind for name in used if name != POWER}
    found = next(kind for kind in reversed(PROVENANCES) if kind in kinds)
    if found == "fitted" and bits is not None and not calibration.system and not _was_measured(system, bits):
        return "stated"
    return found


def _was_measured(system: System, bits: int) -> bool:
    """Return whether runs in a precision were measured on the system's generation."""
    return precision_words(bits, generation_of(system)) in measured_kinds()


def _describe_basis(system: System, calibration: Calibration, used: tuple[str, ...], provenance: str) -> str:
    values = ", ".join(f"{name} {calibration.parameters[name].value:g}" for name in used)
    if provenance == MODELLED:
        return f"{values}; no run of this generation was measured"
    if provenance != "fitted":
        stated = [name for name in used if calibration.parameters[name].kind == provenance and name != POWER]
        fitted = [name for name in used if calibration.parameters[name].kind == "fitted"]
        first = f"{fitted[0]} is fitted, the rest is not: " if fitted and stated else ""
        return f"{values}; {first}{calibration.parameters[(stated or used)[-1]].source}"
    error = accelerator_error(system, calibration)
    if error is None:
        return f"{values}; fitted on runs of other accelerators of its generation, scaled by power per peak rate"
    held = "held out" if error.held_out else "fitted"
    return (
        f"{values}; {error.rows} runs of this accelerator among those fitted on, "
        f"mean error of their step times {error.mean_absolute_percent:g} % ({held})"
    )
