"""Systems of the hardware library as the calibrated cost model reads them."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import hardware
from engine.cost_models.calibrated.physics.formats import SCALED
from engine.cost_models.calibrated.physics.inputs import GENERATIONS, MODELLED_GENERATIONS
from hardware import USUAL_EXPONENTIALS, System

__all__ = ["accelerator_of", "calibrated", "fastest_attention", "system_named"]

GIGA, TERA, GIB = 1e9, 1e12, 2.0**30
"""Units of system documents in base units: GB/s, TFLOP/s, GiB."""


def system_named(name: str) -> System | None:
    """Return the library's system of an accelerator's published name or of a library name; None for an unknown name.

    Args:
        name: published name ("H100-80GB-SXM") or library name.
    """
    library = _library_systems()
    return library.get(name.strip().lower())


@cache
def _library_systems() -> dict[str, System]:
    systems = [hardware.load(name) for name in hardware.names()]
    found = {system.name.lower(): system for system in systems}
    for system in systems:
        # Systems restated from Calculon describe the same chips with fewer datatypes.
        if system.accelerator is not None and {"float32", "bfloat16"} & set(system.matrix):
            found.setdefault(system.accelerator.name.lower(), system)
    return found


def calibrated(system: System) -> bool:
    """Return whether kernel rates were fitted to runs on the system's generation.

    Args:
        system: any system.
    """
    return generation_of(system) not in MODELLED_GENERATIONS


def generation_of(system: System) -> str:
    """Returns the generation that the kernel rates of a system are taken from, one of `GENERATIONS`.

    Args:
        system: any system; one without an `accelerator` is of generation "other".
    """
    accelerator = system.accelerator
    name = accelerator.generation if accelerator is not None else ""
    return name if name in GENERATIONS else "other"


def fastest_attention(system: System) -> str:
    """Returns the fastest attention kernel for a system's generation.

    It is one of `engine.cost_models.calibrated.physics.inputs.ATTENTION_KERNELS`. No kernel written for Ampere is
    faster than FlashAttention 2. Accelerators without fused attention have the unfused one.

    Args:
        system: any system.
    """
    if system.accelerator is not None and not system.accelerator.fused_attention:
        return "unfused"
    return "flash2" if generation_of(system) == "ampere" else "native"


def accelerator_of(system: System) -> dict[str, Any]:
    """Returns the fields of `engine.cost_models.calibrated.physics.inputs.Accelerators` for a system, in their base
    units.

    They are numbers, and tuples of them for networks. Where multiprocessors or clock are not published, their terms
    (waves, exponentials) vanish.

    Args:
        system: any system.
    """
    facts = system.accelerator
    peak = {name: engine.tflops * TERA for name, engine in system.matrix.items()}
    wide = peak.get("bfloat16") or peak.get("float16") or max(peak.values())
    known = facts is not None and facts.multiprocessors is not None and facts.clock_ghz is not None
    return {
        "flops16": wide,
        "flops8": peak.get("float8", 0.0),
        "flops4": peak.get("float4", 0.0),
        "scaled_peaks": tuple(system.peak_tflops(each.name) * TERA for each in SCALED),
        "memory_bandwidth": system.mem1.bandwidth_gb_per_s * GIGA,
        "capacity": system.mem1.capacity_gib * GIB,
        "power": facts.tdp_w if facts is not None and facts.tdp_w is not None else math.nan,
        "generation": float(GENERATIONS.index(generation_of(system))),
        "multiprocessors": float(facts.multiprocessors or 1) if facts is not None and known else 1.0,
        "clock": float(facts.clock_ghz or 1.0) * GIGA if facts is not None and known else math.inf,
        "exponentials": float(facts.exponentials_per_clock if facts is not None else USUAL_EXPONENTIALS),
        "network_sizes": tuple(map(float, system.reaches)),
        "network_bandwidths": tuple(network.bandwidth_gb_per_s * GIGA for network in system.networks),
    }
