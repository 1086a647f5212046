"""Measured operations: sizes for accelerators and for CPUs, the full run and the quick one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["MeasurementPlan", "plan"]

QUICK_SECONDS: Final = 8.0
"""Length of a quick measurement [s]. Source: stated by us."""
FULL_SECONDS: Final = 120.0
"""Length of a full measurement [s]. Source: stated by us."""


@dataclass(frozen=True, slots=True)
class MeasurementPlan:
    """Sizes, smallest first, and the time for each kind of benchmark.

    `products` are (m, n, k); `attentions` (batch, sequence) with `heads` of `head_size`; `transfers` bytes moved;
    `exchanges` bytes of the full buffer. `seconds` is for everything; `shares` of it for each kind.
    """

    products: tuple[tuple[int, int, int], ...]
    attentions: tuple[tuple[int, int], ...]
    heads: int
    head_size: int
    transfers: tuple[int, ...]
    exchanges: tuple[int, ...]
    seconds: float

    @property
    def shares(self) -> dict[str, float]:
        """Share of the time for each kind; where a kind is not measured, its share is not used."""
        return {"transfers": 0.15, "launches": 0.1, "products": 0.4, "attentions": 0.2, "exchanges": 0.15}


def plan(kind: str, *, quick: bool, seconds: float | None = None) -> MeasurementPlan:
    """Return the operations to measure on a device of a kind ("cpu", "cuda", "rocm").

    Products are squares, shallow ones (small k, for `depth`) and ones of few tiles (for `wave`), as transformer
    layers have them.

    Args:
        kind: of the device, "cpu", "cuda" or "rocm".
        quick: if true, fewer and smaller operations are measured.
        seconds: for all of it [s]; chosen by `quick` if None.
    """
    time = seconds if seconds is not None else QUICK_SECONDS if quick else FULL_SECONDS
    if kind == "cpu":
        return _plan_cpu(quick, time)
    return _plan_accelerator(quick, time)


def _plan_cpu(quick: bool, seconds: float) -> MeasurementPlan:
    products = [(128, 128, 128), (512, 512, 64), (256, 256, 256), (512, 512, 128), (512, 512, 512), (1024, 1024, 1024)]
    if not quick:
        products += [(1024, 1024, 128), (256, 2048, 1024), (128, 4096, 1024), (1024, 1024, 256), (2048, 2048, 2048)]
    return MeasurementPlan(
        products=_sort_products(products),
        attentions=((1, 256), (1, 512)) if quick else ((4, 256), (2, 512), (1, 1024), (1, 2048)),
        heads=4,
        head_size=64,
        transfers=(1_000_000, 10_000_000, 100_000_000) if quick else (1_000_000, 10_000_000, 100_000_000, 400_000_000),
        exchanges=(2**12, 2**18, 2**22) if quick else (2**12, 2**15, 2**18, 2**21, 2**24),
        seconds=seconds,
    )


def _plan_accelerator(quick: bool, seconds: float) -> MeasurementPlan:
    products = [(2048, 2048, 2048), (4096, 4096, 1024), (4096, 4096, 4096), (8192, 8192, 8192)]
    if not quick:
        products += [(1024, 1024, 1024), (8192, 8192, 512), (8192, 8192, 1024), (8192, 8192, 2048), (2048, 8192, 8192)]
        products += [(8192, 1024, 8192), (8192, 28672, 8192), (1024, 8192, 8192), (16384, 16384, 8192)]
    return MeasurementPlan(
        products=_sort_products(products),
        attentions=((4, 4096), (2, 8192)) if quick else ((16, 1024), (8, 2048), (4, 4096), (2, 8192), (1, 16384)),
        heads=16,
        head_size=128,
        transfers=(10**7, 10**8, 10**9) if quick else (10**6, 10**7, 10**8, 10**9, 2 * 10**9),
        exchanges=(2**12, 2**20, 2**26) if quick else (2**12, 2**16, 2**20, 2**23, 2**26, 2**29),
        seconds=seconds,
    )


def _sort_products(products: list[tuple[int, int, int]]) -> tuple[tuple[int, int, int], ...]:
    return tuple(sorted(products, key=lambda size: size[0] * size[1] * size[2]))
