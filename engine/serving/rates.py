"""Rates of the kernels of a pass, row by row: datatypes of its layers, and constants of the generation.

An 8-bit checkpoint of a model with experts has scales per block, as all that are published do; that of a dense model
has one scale per matrix. Weights alone in few bits are multiplied in 16.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.cost_models.calibrated import GENERATIONS, Accelerators
from engine.executions.arrays import Floats, Ints
from engine.serving.constants import CACHES, FORMATS, ServingConstants
from engine.serving.deployments import Deployments
from engine.serving.kernels import Device, ExpertRates, KernelRates, ReduceRates
from models import datatypes

__all__ = ["PassRates", "ProductUnit", "bytes_per_weight", "formats_of", "is_calibrated", "pass_rates"]

MOST_FOUR_BIT = 4.0
"""Largest matrix rate of 4-bit products over that of 16 bits []. Source: products of 4 bits measured on B300 and GB300,
whose peaks are half as high again as on B200 and GB200 and which are no faster."""
UNFUSED = 0.2
"""Share of the quantisation of inputs that the norm or activation before does not do []. Source: stated by us; the
measured kernels quantise on their own, engines fuse most of it."""
WIDE_BYTES = 2.0
"""Bytes per weight of router and LM head, for every precision of the linear layers. Source: stated by us."""


@dataclass(frozen=True, slots=True)
class ProductUnit:
    """Device and formats of products: device, rates of their datatype, and bytes per weight."""

    device: Device
    rates: KernelRates
    weight_bytes: Floats


@dataclass(frozen=True, slots=True)
class PassRates:
    """Rates of all kernels of a pass, arrays [rows]: products around attention, of feed-forward layers and in 16 bits;
    experts; attention; and all-reduces, None where no kernel was measured on such links."""

    attention: ProductUnit
    feedforward: ProductUnit
    wide: ProductUnit
    experts: ExpertRates
    expert_device: Device
    expert_bytes: Floats
    decode: KernelRates
    latent_decode: KernelRates
    prefill: KernelRates
    latent_prefill: KernelRates
    all_reduce: ReduceRates | None


def is_calibrated(accelerator: Accelerators) -> bool:
    """Returns whether kernels of the accelerator's generation were measured.

    Args:
        accelerator: one of the library's.
    """
    return GENERATIONS[int(accelerator.generation)] != "other"


def bytes_per_weight(bits: Floats, four_bits: float) -> Floats:
    """Returns the bytes per weight of linear layers [rows] [bytes].

    Args:
        bits: 16, 8 or 4 [rows].
        four_bits: bits per weight of 4-bit formats with their scales.
    """
    return np.where(bits == 4, four_bits / 8.0, bits / 8.0)


def formats_of(weight_bits: Floats, compute_bits: Floats, accelerator: Accelerators, *, has_block_scales: bool) -> Ints:
    """Returns the datatype of products, positions in `FORMATS` [rows].

    Args:
        weight_bits: of the weights [rows].
        compute_bits: of the products [rows]; 16 where the accelerator has no such rate.
        accelerator: with its peaks.
        has_block_scales: whether 8-bit weights have a scale per block.
    """
    computed = computed_bits(compute_bits, accelerator)
    eight = FORMATS.index("float8_block" if has_block_scales else "float8")
    return np.select(
        [computed == 4, (computed == 8) & (weight_bits == 4), computed == 8, weight_bits < 16],
        [FORMATS.index("float4"), FORMATS.index("float4_by_8"), eight, FORMATS.index("weights_only")],
        FORMATS.index("bfloat16"),
    ).astype(np.int64)


def computed_bits(bits: Floats, accelerator: Accelerators) -> Floats:
    """Returns the precision that products run in: the one asked for where the system has it, else 16 bits [rows].

    Args:
        bits: 16, 8 or 4 [rows].
        accelerator: with its peaks.
    """
    eight, four = float(accelerator.flops8) > 0, float(accelerator.flops4) > 0
    return np.where(((bits == 8) & eight) | ((bits == 4) & four), bits, 16.0)


def _peaks(accelerator: Accelerators) -> npt.NDArray[np.float64]:
    """Matrix peak of every datatype of `FORMATS` [FLOP/s]."""
    wide, eight = float(accelerator.flops16), float(accelerator.flops8) or float(accelerator.flops16)
    four = min(float(accelerator.flops4), MOST_FOUR_BIT * wide) or eight
    return np.array([wide, eight, eight, four, wide, eight])


def pass_rates(
    d: Deployments,
    accelerator: Accelerators,
    constants: ServingConstants,
    starts: float,
    *,
    has_block_scales: bool,
    four_bits: float | None = None,
) -> PassRates:
    """Returns the rates of the kernels of a pass.

    Args:
        d: deployments [rows].
        accelerator: where they run.
        constants: of serving.
        starts: factor on the start of every kernel.
        has_block_scales: whether 8-bit weights have a scale per block.
        four_bits: bits per weight of 4-bit formats; MXFP4's where None.
    """
    generation, peaks = int(accelerator.generation), _peaks(accelerator)
    narrow = four_bits or datatypes.named("mxfp4").weight_bits

    def rates(kind: str, names: tuple[str, ...], places: Ints | None) -> KernelRates:
        found = constants.table(kind, generation, names)
        found["start"] = found["start"] * starts
        return KernelRates(**{name: values[0 if places is None else places] for name, values in found.items()})

    def unit(bits: Floats, computed: Floats) -> ProductUnit:
        places = formats_of(bits, computed, accelerator, has_block_scales=has_block_scales)
        device = Device(peaks[places], accelerator.memory_bandwidth, accelerator.multiprocessors)
        found = rates("product", FORMATS, places)
        found = found._replace(quantise=UNFUSED * found.quantise)
        return ProductUnit(device, found, bytes_per_weight(bits, narrow))

    wide = Device(np.asarray(peaks[0]), accelerator.memory_bandwidth, accelerator.multiprocessors)
    expert_places = formats_of(d.weight_bits, d.compute_bits, accelerator, has_block_scales=has_block_scales)
    found = constants.table("experts", generation, FORMATS)
    found["start"], found["doubling"] = found["start"] * starts, found["doubling"] * starts
    cache_places = np.where(d.kv_bits == 16, 0, 1)
    reduce = None
    if is_calibrated(accelerator):
        values = constants.table("all_reduce", generation, ("all",))
        values["start"] = values["start"] * starts
        reduce = ReduceRates(**{name: each[0] for name, each in values.items()})
    attention = np.where(d.attention_bits == d.weight_bits, d.compute_bits, d.attention_bits)
    return PassRates(
        unit(d.attention_bits, attention),
        unit(d.weight_bits, d.compute_bits),
        ProductUnit(wide, rates("product", FORMATS[:1], None), np.asarray(WIDE_BYTES)),
        ExpertRates(**{name: values[expert_places] for name, values in found.items()}),
        Device(peaks[expert_places], accelerator.memory_bandwidth, accelerator.multiprocessors),
        bytes_per_weight(d.weight_bits, narrow),
        rates("decode", CACHES, cache_places),
        rates("latent_decode", CACHES, cache_places),
        rates("prefill", ("all",), None),
        rates("latent_prefill", ("all",), None),
        reduce,
    )
