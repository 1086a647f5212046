"""Factors on the predicted latencies of an engine, measured on servers of one's own.

They are a calibration with the subject "serving" and parameters such as "factor.vllm.time_per_output_token", each
measured over predicted with the library's constants. `engine.validation.serving.comparison` makes them of result files
of benchmarks. Output, cost and energy follow from the latencies; parts of a step and memory keep their values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from engine.serving.constants import ENGINES
from hardware import Calibration, System

__all__ = ["FACTOR_FIGURES", "EngineFactors", "FactorError", "LatencyFactors"]

FACTOR_FIGURES: Final = ("time_to_first_token", "time_per_output_token")
"""Figures that have a factor; all others that depend on time follow from them."""


class FactorError(ValueError):
    """A calibration without factors of engines, or with factors of another system; one sentence."""


class LatencyFactors(NamedTuple):
    """Measured over predicted."""

    time_to_first_token: float = 1.0
    time_per_output_token: float = 1.0


@dataclass(frozen=True)
class EngineFactors:
    """Factors of a calibration by engine."""

    name: str
    """Name of the calibration."""
    system: str
    """Name of the system that they were measured on."""
    fitted_on: str
    engines: Mapping[str, LatencyFactors]

    @classmethod
    def of(cls, calibration: Calibration, system: System) -> EngineFactors:
        """Return the factors of a calibration.

        Args:
            calibration: with parameters such as "factor.vllm.time_per_output_token".
            system: that the predictions are of.

        Raises `FactorError` for a calibration without such parameters, and for another system's.
        """
        found: dict[str, dict[str, float]] = {}
        for name, each in calibration.parameters.items():
            kind, _, rest = name.partition(".")
            engine, _, figure = rest.partition(".")
            if calibration.subject != "serving" or kind != "factor":
                continue
            if engine not in ENGINES or figure not in FACTOR_FIGURES or not 0.01 <= each.value <= 100.0:
                raise FactorError(
                    f"Calibration {calibration.name!r} has {name} = {each.value:g}; a factor is from 0.01 to 100, for "
                    f"one of {', '.join(ENGINES)} and one of {', '.join(FACTOR_FIGURES)}."
                )
            found.setdefault(engine, {})[figure] = each.value
        if not found:
            raise FactorError(
                f"Calibration {calibration.name!r} has no factors of engines; make one of your benchmark results with "
                "`shardscape servers --out`."
            )
        if calibration.system != system.name:
            raise FactorError(
                f"Calibration {calibration.name!r} was measured on {calibration.system or 'an unnamed system'}, not on "
                f"{system.name}."
            )
        engines = {engine: LatencyFactors(**values) for engine, values in found.items()}
        return cls(calibration.name, calibration.system, calibration.fitted_on, engines)

    def find(self, engine: str) -> LatencyFactors:
        """Return the factors of an engine; 1 for one that was not measured.

        Args:
            engine: one of `ENGINES`.
        """
        return self.engines.get(engine, LatencyFactors())

    def describe(self) -> str:
        """Return a sentence that names the factors and their origin."""
        each = "; ".join(
            f"{engine}: first token × {factors.time_to_first_token:.3g}, per token × "
            f"{factors.time_per_output_token:.3g}"
            for engine, factors in self.engines.items()
        )
        return f"Latencies have the measured factors of {self.name!r} ({each}); other engines have none."
