"""Constants of post-training per framework, from the library's calibration "post_training"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from hardware import CalibratedValue, Calibration, load_calibration

__all__ = ["FRAMEWORKS", "SYNCHRONISATIONS", "FrameworkTerms", "PostTrainingConstants", "library_constants"]

FRAMEWORKS: Final = ("nemo-rl", "verl")
"""Frameworks with constants."""
SYNCHRONISATIONS: Final = ("plain", "buckets", "broadcast", "shards")
"""Ways to bring weights to the rollout: tensor by tensor, in buckets, one broadcast, or shards by RDMA."""


@dataclass(frozen=True, slots=True)
class FrameworkTerms:
    """Terms of a framework: factors on the computed times, and times that it adds."""

    rollout: float
    """Factor on a rollout []: sampling with log-probabilities, host work, eager kernels."""
    training: float
    """Factor on updates and forward passes []."""
    fixed_s: float
    """Time of a step besides its phases [s]: data, advantages, logging."""
    switch_s_per_gb: float
    """Time of a colocated step per GB of weights [s/GB]: copies to the engine, optimizer to the host and back."""
    asynchronous: float
    """Factor on the time per sample of a rollout whose slots are never empty []."""
    software: float = 1.0
    """Factor of a release on a generation of GPUs, or of one's own step, on the whole step []."""
    helping: float = 1.0
    """Share of a replica's rate that GPUs reach which train and then help to generate []."""


@dataclass(frozen=True)
class PostTrainingConstants:
    """Constants by name, such as "nemo-rl.rollout" and "interval.colocated"."""

    calibration: Calibration

    def value(self, name: str) -> float:
        """Return a constant.

        Args:
            name: such as "nemo-rl.rollout".

        Raises `KeyError` for an unknown name.
        """
        return self.calibration.parameters[name].value

    def framework(self, name: str, release: str | None = None, generation: str = "") -> FrameworkTerms:
        """Return the terms of a framework.

        Args:
            name: one of `FRAMEWORKS`.
            release: with a factor of its own, see `releases`; the newest where None.
            generation: of the GPUs, such as "blackwell"; a release has another factor on each that was measured.

        Raises `KeyError` for an unknown framework or release.
        """
        known = self.releases(name)
        newest = known[-1] if known else None
        chosen = release or newest
        return FrameworkTerms(
            rollout=self.value(f"{name}.rollout"),
            training=self.value(f"{name}.training"),
            fixed_s=self.value(f"{name}.fixed"),
            switch_s_per_gb=self.value(f"{name}.switch"),
            asynchronous=self.value(f"{name}.asynchronous"),
            software=1.0 if chosen is None else self._software(name, chosen, generation),
            helping=self.value(f"{name}.helping"),
        )

    def _software(self, name: str, release: str, generation: str) -> float:
        known = self.calibration.parameters
        first, later = f"{name}.generation.{generation}.{release}", f"{name}.generation.{generation}"
        own = next((known[each].value for each in (first, later) if each in known), 1.0)
        return self.value(f"{name}.release.{release}") * own

    def releases(self, name: str) -> list[str]:
        """Return the releases of a framework that have a factor, oldest first.

        Args:
            name: one of `FRAMEWORKS`.
        """
        start = f"{name}.release."
        return sorted(each.removeprefix(start) for each in self.calibration.parameters if each.startswith(start))

    def sources(self) -> Mapping[str, CalibratedValue]:
        """Return every constant with its range and source."""
        return self.calibration.parameters


@cache
def library_constants() -> PostTrainingConstants:
    """Return the constants of the library."""
    return PostTrainingConstants(load_calibration("post_training"))
