"""Constants of serving: starts and rates of kernels by generation and datatype, and terms of engines.

They are the calibration "serving" of the hardware library, where each has its source and the range that fits as well.
`python -m engine.validation.serving fit` fits them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from engine.cost_models.calibrated import GENERATIONS
from hardware import Calibration, load_calibration

__all__ = [
    "CACHES",
    "ENGINES",
    "FORMATS",
    "RATES",
    "UNITS",
    "EngineTerms",
    "ServingConstants",
    "library_constants",
]

ENGINES: Final = ("generic", "vllm", "sglang", "trtllm")
"""Serving engines; "generic" is the mean of the others."""
FORMATS: Final = ("bfloat16", "float8", "float8_block", "float4", "weights_only", "float4_by_8")
"""Datatypes of products: 16 bits; 8 bits with one scale, or with one per block; 4 bits with scales; narrow weights in
products of 16 bits; weights of 4 bits in products of 8."""
CACHES: Final = ("bfloat16", "float8")
"""Datatypes of the KV cache with kernels of their own; one of 4 bits is read by the kernels for 8."""
RATES: Final[Mapping[str, tuple[str, ...]]] = {
    "product": ("start", "quantise", "memory", "matrix", "rows"),
    "experts": ("start", "doubling", "memory", "matrix"),
    "decode": ("start", "memory", "matrix", "doubling", "joined"),
    "latent_decode": ("start", "memory", "matrix", "doubling", "joined", "heads"),
    "prefill": ("start", "memory", "matrix"),
    "latent_prefill": ("start", "memory", "matrix"),
    "all_reduce": ("start", "rank", "one_step", "two_steps", "second"),
}
"""Rates of every kind of kernel."""
UNITS: Final[Mapping[str, str]] = {
    "start": "s",
    "doubling": "s",
    "rank": "s",
    "second": "s",
    "heads": "heads",
    "rows": "rows",
    "first_token": "s",
    "prefill_pass": "s",
    "prefill_layer": "s",
    "step": "s",
    "step_layer": "s",
    "sequence": "s",
}
"""Units of rates and terms; the others are shares."""
SUBSTITUTES: Final[Mapping[str, tuple[str, ...]]] = {
    "float8": ("weights_only", "bfloat16"),
    "float8_block": ("float8", "weights_only", "bfloat16"),
    "float4": ("weights_only", "bfloat16"),
    "weights_only": ("bfloat16",),
    "float4_by_8": ("float8_block", "float8", "bfloat16"),
}
"""Datatypes whose kernels are taken where a generation has no measured ones, in this order."""
UNMEASURED: Final = "hopper"
"""Generation whose kernels are taken for one without measured kernels; its figures are not calibrated."""


class EngineTerms(NamedTuple):
    """Times that an engine adds to its kernels."""

    starts: float
    """Factor on the starts of all kernels of a decode step []; below 1 where they overlap."""
    first_token: float
    """Request and reply, tokens of text, first schedule [s]."""
    prefill_pass: float
    """Host time that a prefill pass adds [s]."""
    prefill_layer: float
    """The same per block [s]."""
    step: float
    """Scheduling and sampling of a step [s]."""
    step_layer: float
    """Time per block that a step adds [s]."""
    sequence: float
    """Scheduling and sampling per request and step [s]."""
    waiting: float
    """Share of the prefills of the other requests that a request waits for before its first token in a steady load
    []."""
    mixed: float
    """1 where prompts share passes with requests that generate, 0 where they have passes of their own []."""


@dataclass(frozen=True)
class ServingConstants:
    """Constants by name, such as "product.hopper.float8.start" and "engine.vllm.waiting"."""

    values: Mapping[str, float]

    @classmethod
    def of(cls, calibration: Calibration) -> ServingConstants:
        """Returns the constants of a calibration of serving.

        Args:
            calibration: with the names above.

        Raises KeyError for a calibration without them, when one is asked for.
        """
        return cls({name: each.value for name, each in calibration.parameters.items()})

    def engine(self, name: str) -> EngineTerms:
        """Returns the terms of an engine.

        Args:
            name: one of `ENGINES`.
        """
        return EngineTerms(**{term: self.values[f"engine.{name}.{term}"] for term in EngineTerms._fields})

    def table(self, kind: str, generation: int, names: tuple[str, ...]) -> dict[str, Any]:
        """Returns the rates of a kind of kernel on a generation, arrays over datatypes.

        Args:
            kind: one of `RATES`.
            generation: position in `GENERATIONS`.
            names: datatypes, of `FORMATS` or `CACHES`.
        """
        chip = GENERATIONS[generation]
        rows = [self.rates(kind, chip, name) for name in names]
        return {rate: np.array([row[rate] for row in rows]) for rate in RATES[kind]}

    def rates(self, kind: str, chip: str, name: str) -> dict[str, float]:
        """Returns the rates of one kind, generation and datatype, or of the ones that are taken for it.

        Args:
            kind: one of `RATES`.
            chip: generation.
            name: datatype, of `FORMATS` or `CACHES`.
        """
        row = self._measured(kind, chip, name)
        return {rate: self.values[f"{row}.{rate}"] for rate in RATES[kind]}

    def _measured(self, kind: str, chip: str, name: str) -> str:
        for generation in (chip, UNMEASURED):
            for each in (name, *SUBSTITUTES.get(name, ("bfloat16",)), "all"):
                if f"{kind}.{generation}.{each}.start" in self.values:
                    return f"{kind}.{generation}.{each}"
        raise KeyError(f"{kind}.{chip}.{name}")


@cache
def library_constants() -> ServingConstants:
    """Returns the constants of the library's calibration "serving"."""
    return ServingConstants.of(load_calibration("serving"))
