"""Inputs of a training run's figures other than its speed, with unit, default and source."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from hardware import System
from models.documents import shown

__all__ = ["INPUTS", "DerivedError", "RunInput", "RunInputs"]


class DerivedError(ValueError):
    """A figure cannot be derived; the message is one sentence that names the input and the accepted values."""


@dataclass(frozen=True, slots=True)
class RunInput:
    """One number that a person may change."""

    name: str
    label: str
    unit: str
    default: float | None
    """None if the system states it."""
    low: float
    high: float
    description: str
    source: str
    """Source of the default."""

    def accepts(self, value: object) -> bool:
        """Return whether a value is a number within the bounds."""
        return isinstance(value, int | float) and not isinstance(value, bool) and self.low <= value <= self.high


_LLAMA_GPUS, _LLAMA_DAYS, _LLAMA_INTERRUPTIONS = 16_384, 54, 419
"""Unexpected interruptions of the pre-training of Llama 3 405B: GPUs, days, interruptions. Source: arXiv:2407.21783,
section 3.3.4."""

INPUTS: Final[dict[str, RunInput]] = {
    one.name: one
    for one in (
        RunInput(
            "tokens",
            "Tokens to train",
            "tokens",
            1e12,
            1.0,
            1e18,
            "Length of the training run.",
            "a round number",
        ),
        RunInput(
            "usd_low",
            "Price from",
            "USD/processor-hour",
            None,
            0.0,
            1e6,
            "Lowest price of one processor for an hour.",
            "range of cloud prices recorded with the system",
        ),
        RunInput(
            "usd_high",
            "Price to",
            "USD/processor-hour",
            None,
            0.0,
            1e6,
            "Highest price of one processor for an hour.",
            "range of cloud prices recorded with the system",
        ),
        RunInput(
            "power_w",
            "Design power",
            "W",
            None,
            1e-3,
            1e6,
            "Power that one processor is designed for (TDP).",
            "datasheet value of the system",
        ),
        RunInput(
            "power_share",
            "Server power / GPU power",
            "",
            1.5,
            0.01,
            10.0,
            "Average draw of a processor with its share of the server, over the processor's design power.",
            "8.4 kW at most of a server with eight H100 of 700 W in training (arXiv:2412.08602)",
        ),
        RunInput(
            "pue",
            "Power usage effectiveness",
            "",
            1.1,
            1.0,
            10.0,
            "Draw of the building, cooling included, over that of its computers.",
            "assumed; Patterson et al. (arXiv:2104.10350) give 1.1 for large data centres",
        ),
        RunInput(
            "mtbf_h",
            "Time between failures, per processor",
            "h",
            float(round(_LLAMA_GPUS * _LLAMA_DAYS * 24 / _LLAMA_INTERRUPTIONS)),
            1e-3,
            1e12,
            "Mean time between interruptions of the run, times the processors that it uses.",
            f"Llama 3 405B: {_LLAMA_GPUS:,} GPUs · {_LLAMA_DAYS} days ÷ {_LLAMA_INTERRUPTIONS} unexpected "
            "interruptions (arXiv:2407.21783, section 3.3.4)",
        ),
        RunInput(
            "bytes_per_parameter",
            "Checkpoint per parameter",
            "bytes",
            14.0,
            1e-3,
            1e3,
            "Bytes of a checkpoint per parameter of the model.",
            "16-bit weight, and 32-bit weight and two moments of Adam: 2 + 3 · 4",
        ),
        RunInput(
            "storage_gb_per_s",
            "Storage bandwidth per processor",
            "GB/s",
            round(2000 / 24_000, 3),
            1e-6,
            1e6,
            "Rate at which a processor's part of a checkpoint is written while the run waits.",
            "Llama 3: 2 TB/s sustained for a cluster of 24,000 GPUs (arXiv:2407.21783, section 3.3.1)",
        ),
        RunInput(
            "restart_s",
            "Restart",
            "s",
            600.0,
            0.0,
            1e7,
            "Time from a failure until the run computes again: noticing, replacing, starting, reading the checkpoint.",
            "assumed; the examples of Daly 2006 take ten minutes",
        ),
        RunInput(
            "interval_s",
            "Checkpoint interval",
            "s",
            None,
            1e-3,
            1e10,
            "Computing time between two checkpoints.",
            "the optimum (Daly 2006, equation 37)",
        ),
    )
}
"""Inputs by name, in the order of the form."""


def _default_value(name: str) -> float:
    value = INPUTS[name].default
    assert value is not None, "only inputs that the system does not give have a default of their own"
    return value


@dataclass(frozen=True, slots=True)
class RunInputs:
    """Inputs of a training run; see `INPUTS` for meaning, unit and source of each.

    `None` for a price or a power means unknown: figures that need it are left out; for the interval, the optimum is
    used. Raises `DerivedError`, naming field, value and accepted values.
    """

    tokens: float = _default_value("tokens")
    usd_low: float | None = None
    usd_high: float | None = None
    power_w: float | None = None
    power_share: float = _default_value("power_share")
    pue: float = _default_value("pue")
    mtbf_h: float = _default_value("mtbf_h")
    bytes_per_parameter: float = _default_value("bytes_per_parameter")
    storage_gb_per_s: float = _default_value("storage_gb_per_s")
    restart_s: float = _default_value("restart_s")
    interval_s: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            _check_value(INPUTS[field.name], getattr(self, field.name), optional=INPUTS[field.name].default is None)
        if (self.usd_low is None) != (self.usd_high is None):
            raise DerivedError("usd_low and usd_high go together; give both, equal where there is one price.")
        if self.usd_low is not None and self.usd_high is not None and self.usd_low > self.usd_high:
            raise DerivedError(
                f"usd_low is {self.usd_low:g} and usd_high {self.usd_high:g}; usd_low must be at most usd_high."
            )

    @property
    def usd_middle(self) -> float | None:
        """The price half-way between the lowest and the highest [USD/processor-hour]; `None` without a price."""
        return None if self.usd_low is None or self.usd_high is None else (self.usd_low + self.usd_high) / 2.0

    @classmethod
    def of(cls, system: System, **values: Any) -> RunInputs:
        """Returns the inputs for a system: its price and power where it has them, `values` before everything else.

        A value of `None` counts as not given. Raises `DerivedError`.
        """
        unknown = sorted(set(values) - set(INPUTS))
        if unknown:
            raise DerivedError(f"There is no input {shown(unknown[0])}; there are {', '.join(INPUTS)}.")
        known: dict[str, Any] = {}
        facts = system.accelerator
        if facts is not None and facts.usd_per_h is not None:
            known["usd_low"], known["usd_high"] = min(facts.usd_per_h), max(facts.usd_per_h)
        if facts is not None and facts.tdp_w is not None:
            known["power_w"] = facts.tdp_w
        return cls(**{**known, **{name: value for name, value in values.items() if value is not None}})


def _check_value(one: RunInput, value: Any, *, optional: bool) -> None:
    if value is None and optional:
        return
    if not one.accepts(value):
        unit = f" [{one.unit}]" if one.unit else ""
        raise DerivedError(f"{one.name} is {shown(value)}; it must be a number from {one.low:g} to {one.high:g}{unit}.")
