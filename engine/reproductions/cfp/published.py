"""Published measurements of these searches, for comparison with computed figures.

Source: CFP, README: "gpt F", batch 16, two layers on four A100, one row per strategy vector; and the runs of three
searches with their throughput of all devices together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = ["MEASURED_ON", "MEASURED_VECTORS", "RUNS", "MeasuredVector", "PublishedRun"]


@dataclass(frozen=True, slots=True)
class MeasuredVector:
    """One vector as it was measured: volume of collectives [bytes], seconds of collectives and of computation (None
    where not published), seconds of a step."""

    vector: tuple[int, ...]
    volume: float
    communication_seconds: float | None
    compute_seconds: float | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """One published run: who planned it, of which model, on how many devices, the least seconds of a step; three
    measured steps [s], and the memory of a device [GiB], None where not published."""

    system: str
    model: str
    batch: int
    layers: int
    devices: int | None
    """None where not published; the mixture of experts is printed under a check that asks for four."""
    seconds: float
    vectors: tuple[tuple[int, ...], ...]
    """One per layer; empty where not published."""
    times: tuple[float, ...]
    memory_gib: float | None = None


MEASURED_ON: Final[Mapping[str, str | int]] = MappingProxyType(
    {"model": "gpt F", "batch": 16, "layers": 2, "devices": 4}
)
MEASURED_VECTORS: Final = (
    MeasuredVector((0, 0, 0, 0), 1.63084e10, 0.789642, 0.12948, 0.91666341),
    MeasuredVector((0, 0, 0, 1), 1.23822e10, 2.10805, 0.138838, 2.2975955),
    MeasuredVector((0, 0, 0, 2), 5.23488e9, 0.333084, 0.118085, 0.44925261),
    MeasuredVector((0, 0, 1, 0), 1.60068e10, None, None, None),
)
"""The vector of the last row is inferred from its volume."""
RUNS: Final = (
    PublishedRun("CFP", "gpt F", 24, 2, 4, 0.29200369, ((1, 1, 1, 1),) * 2, (0.29200369, 0.29214811, 0.29259733), 11.5),
    PublishedRun(
        "CFP",
        "moe E",
        64,
        4,
        4,
        0.44744757,
        ((1, 1, 1, 0), (1, 1, 1, 1)) * 2,
        (0.44787622, 0.44809792, 0.44744757),
        20.5,
    ),
    PublishedRun("Alpa", "gpt F", 24, 2, 8, 0.37616382, (), (0.37685599, 0.37689264, 0.37616382)),
)
