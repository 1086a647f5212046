"""Choice of the parameters to fit to a few measured runs, with their priors and the information that the runs give.

A prior is a normal distribution of the parameter's logarithm around the value of the calibration that a fit starts
from. Its width is how much the value differs between sites: fitted to one source of published runs at a time, the
matrix rates came out 10 % apart (standard deviation), other parameters further, as far as the runs determined them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.cost_models.calibrated import SUSTAINED, Case, Parameters, generation_of, step_times
from engine.executions.arrays import Floats
from hardware import System
from models.documents import DocumentError, shown

__all__ = [
    "FEWEST",
    "MOST",
    "Adjustable",
    "CalibrateError",
    "adjustable",
    "checked_names",
    "influence",
    "suggest_names",
]

FEWEST, MOST = 3, 6
"""Number of parameters in an automatic choice; a user may choose at most the larger number."""
CONFIGURATIONS_EACH = 2
"""Different configurations that each parameter beyond the first three needs. Source: stated by us."""
NOTICEABLE = 0.005
"""Least change of step times [fraction] by one prior width that makes a parameter worth fitting. Source: stated by
us."""
STEP = 1e-3
"""Step of the logarithm of a parameter by which its influence is differentiated. Source: stated by us."""


class CalibrateError(DocumentError):
    """Runs, parameters or a calibration that a fit cannot be made with; one sentence."""


@dataclass(frozen=True, slots=True)
class Adjustable:
    """A parameter of `engine.cost_models.calibrated.Parameters` that a calibration by users may move."""

    name: str
    label: str
    unit: str
    """"" for a share."""
    spread: float
    """Width of its prior [standard deviation of the logarithm]."""
    meaning: str


_RATE = "Share of the 16-bit matrix peak that long products sustain"
_KNOWN = (
    Adjustable("sustained_ampere", "Matrix rate", "", 0.10, _RATE),
    Adjustable("sustained_hopper", "Matrix rate", "", 0.10, _RATE),
    Adjustable("sustained_blackwell", "Matrix rate", "", 0.10, _RATE),
    Adjustable("sustained_cdna", "Matrix rate", "", 0.20, _RATE),
    Adjustable("sustained_tpu", "Matrix rate", "", 0.10, _RATE),
    Adjustable("sustained_tpu_wide", "Matrix rate", "", 0.10, _RATE),
    Adjustable("sustained_other", "Matrix rate", "", 0.40, _RATE + "; nothing was measured on this generation yet"),
    Adjustable("attention", "Attention rate", "", 0.15, "Share of the 16-bit peak that fused attention sustains"),
    Adjustable("launch", "Host time per kernel", "s", 0.30, "What small kernels wait for: the host and its software"),
    Adjustable("eight_bit", "8-bit rate", "", 0.10, "8-bit rate over its peak, relative to 16 bits"),
    Adjustable("eight_bit_blackwell", "8-bit rate", "", 0.10, "8-bit rate over its peak, relative to 16 bits"),
    Adjustable("scale_up", "Scale-up network", "", 0.15, "Share of the link rate inside a domain, such as NVLink"),
    Adjustable("scale_out", "Scale-out network", "", 0.20, "Share of the link rate between domains"),
    Adjustable("exchange_host", "Token exchange in a host", "", 0.30, "All-to-all share of the scale-up rate"),
    Adjustable("exchange_rack", "Token exchange in a rack", "", 0.30, "All-to-all share in a rack-wide domain"),
    Adjustable("exchange_network", "Token exchange between hosts", "", 0.30, "All-to-all share of the network's rate"),
    Adjustable("overlap_data", "Data-parallel overlap", "", 0.20, "Share of data-parallel traffic that is hidden"),
    Adjustable("overlap_tensor", "Tensor-parallel overlap", "", 0.20, "Share of tensor-parallel traffic hidden"),
    Adjustable("memory", "Memory bandwidth", "", 0.08, "Share of the memory bandwidth that kernels reach"),
    Adjustable("straggler", "Stragglers", "", 0.70, "Slowness per doubling of processors above 8"),
    Adjustable("step_constant", "Fixed per step", "s", 0.70, "Host work once per step"),
)


def adjustable(system: System, start: Parameters) -> dict[str, Adjustable]:
    """Returns the parameters that runs on a system may move, by name; rates of other generations are left out.

    Args:
        system: the system that runs were measured on.
        start: parameters that a fit starts from.
    """
    generation = generation_of(system)
    found = {}
    for one in _KNOWN:
        eight = {"eight_bit": generation != "blackwell", "eight_bit_blackwell": generation == "blackwell"}
        of_another = one.name in SUSTAINED.values() and one.name != SUSTAINED[generation]
        wanted = not of_another and eight.get(one.name, True)
        # A value of 0 has no logarithm: such a term was switched off by the calibration that a fit starts from.
        if wanted and getattr(start, one.name) > 0:
            found[one.name] = one
    return found


def influence(case: Case, start: Parameters, offered: dict[str, Adjustable]) -> dict[str, float]:
    """Returns how far one prior width of each parameter moves the predicted step times [fraction], largest first.

    Root mean square over the rows of |d log(step) / d log(parameter)| times the width of the prior.

    Args:
        case: measured configurations [rows].
        start: parameters that a fit starts from.
        offered: parameters that may move, by name.
    """
    case = case.remembering()
    here = np.log(step_times(case, start).step)

    def moved(one: Adjustable) -> float:
        # Downwards: shares end at 1.
        nearby = start.model_copy(update={one.name: getattr(start, one.name) * np.exp(-STEP)})
        slope: Floats = (np.log(step_times(case, nearby).step) - here) / STEP
        return float(np.sqrt(np.mean(slope**2)) * one.spread)

    found = {name: moved(one) for name, one in offered.items()}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def suggest_names(found: dict[str, float], configurations: int) -> tuple[str, ...]:
    """Return the names to fit in an automatic choice: the parameters that the runs determine best.

    Args:
        found: what `influence` returned.
        configurations: how many different ones were measured.
    """
    most = min(MOST, max(FEWEST, configurations // CONFIGURATIONS_EACH))
    chosen = [name for name, size in found.items() if size >= NOTICEABLE][:most]
    return tuple(chosen or list(found)[:1])


def checked_names(names: Sequence[str], offered: dict[str, Adjustable]) -> tuple[str, ...]:
    """Return the names of parameters to fit, each once.

    Args:
        names: names of parameters, as given by the user.
        offered: parameters that may move, by name.

    Raises `CalibrateError` where one cannot be fitted, or there are too few or too many.
    """
    given = tuple(dict.fromkeys(names))
    unknown = [name for name in given if name not in offered]
    if unknown:
        raise CalibrateError(
            f"{shown(unknown[0])} is no parameter that runs on this system can be fitted with; "
            f"there are {', '.join(offered)}."
        )
    if not 1 <= len(given) <= MOST:
        raise CalibrateError(f"{len(given)} parameters are to be fitted; choose 1 to {MOST}.")
    return given
