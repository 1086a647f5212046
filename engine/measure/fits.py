"""From timings to the quantities that the calibrated model's formulas hold: each formula turned round.

The formulas themselves stay where they are (`engine.cost_models.calibrated`) and are called as they are. Most are of
the form a / value + b in the parameter looked for, so that two evaluations give a and b and the value follows exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.cost_models.calibrated import (
    ATTENTION_KERNELS,
    SIZES,
    Accelerators,
    Case,
    Layout,
    MatrixUnit,
    ModelShapes,
    Parameters,
    Software,
    attention_core,
    block_launches,
    collective,
    gemm,
    network_tiers,
    sustained_rates,
)
from engine.executions.arrays import Floats
from engine.measure.samples import Attention, ExchangeSample, Product
from models import datatypes

__all__ = [
    "ExchangeFit",
    "ProductFit",
    "attention_seconds",
    "attention_shares",
    "block_kernels",
    "exchange_seconds",
    "fit_exchanges",
    "fit_products",
    "product_rates",
    "product_seconds",
    "solve_reciprocal",
    "weighted_median",
]

NARROWEST_RESULT: Final = 2.0
"""Bytes of an element of a result, at least. Source: torch._scaled_mm writes products of FP8 in 16 bits."""
OVERHEAD: Final = 3.0
"""Products that take less than this many launches are left out: their time is the host's. Source: stated by us."""
FOR_SHAPE: Final = 6
"""Fewest products that determine waves and depth. Source: stated by us."""
WORTH: Final = 2.0 / 3.0
"""Waves and depth are replaced where their scatter falls to this part or below. Source: stated by us."""
NOISE: Final = 0.02
"""Scatter of rates [log] that is not worth explaining. Source: stated by us."""
LOW_SHARE: Final = 0.01
"""Share of the peak at which attention is evaluated: high ones are capped by the formula. Source: stated by us."""
AGREEING: Final = 0.1
"""Scatter [log] above which timings are too noisy to take waves and depth from. Source: stated by us."""
WAVES: Final = (0.0, 3.0)
"""Waves lost per product that are tried [waves]; the library's calibration has 0.6. Source: stated by us."""
DEPTHS: Final = (0.0, 1500.0)
"""Inner dimensions lost per product that are tried [elements]; the library's calibration has 300. Source: stated by
us."""
GRID: Final = 13
"""Values of each that are tried together. Source: stated by us."""
REFINEMENTS: Final = 8
"""Times that the range is halved around the best point. Source: stated by us."""


def solve_reciprocal(predict: Callable[[float], Floats], measured: Floats, at: float = 1.0) -> Floats:
    """Returns the value at which predict(value) = a / value + b is the measured time, element by element.

    `at` and its half are where the formula is evaluated; it must have this form there. Not a number where no positive
    value gives the measured time.

    Args:
        predict: time at a value [s], elements as in `measured`; must have the form a / value + b.
        measured: times [s].
        at: value at which, and at whose half, the formula is evaluated.
    """
    once = predict(at)
    # a / (at / 2) - a / at = a / at; then value = a / (measured - b).
    step = predict(at / 2.0) - once
    with np.errstate(divide="ignore", invalid="ignore"):
        value = at * step / (measured - (once - step))
    return np.where(value > 0, value, np.nan)


def weighted_median(values: Floats, weights: Floats) -> float:
    """Returns the value at which half of the weight is reached; with two halves of equal weight, the mean of both
    ends.

    Args:
        values: numbers in any order [values].
        weights: of each value, 0 or more [values].
    """
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / np.sum(weights)
    low = order[int(np.searchsorted(reached, 0.5 - 1e-12))]
    high = order[min(int(np.searchsorted(reached, 0.5 + 1e-12)), len(order) - 1)]
    return float(0.5 * (values[low] + values[high]))


@dataclass(frozen=True, slots=True)
class ProductFit:
    """Sustained rate of long products [FLOP/s] with quartiles over the shapes, waves and depth lost per product.

    `shaped` says whether waves and depth were determined here; `used` products entered.
    """

    rate: float
    low: float
    high: float
    wave: float
    depth: float
    shaped: bool
    used: tuple[Product, ...]


def product_seconds(products: Sequence[Product], rate: float, memory: float, sms: float, p: Parameters) -> Floats:
    """Returns the model's time of products at a matrix rate [FLOP/s] and memory bandwidth [bytes/s] [s].

    Args:
        products: timings of matrix products.
        rate: of the matrix units [FLOP/s].
        memory: bandwidth [bytes/s].
        sms: multiprocessors, as the model counts them.
        p: parameters of the cost model.
    """
    m, n, k = (np.array([getattr(each, name) for each in products], np.float64) for name in ("m", "n", "k"))
    into = np.array([datatypes.named(each.datatype).num_bytes for each in products])
    out = np.maximum(into, NARROWEST_RESULT)
    unit = MatrixUnit(np.asarray(rate), np.asarray(memory), np.asarray(sms), p)
    return gemm(m, n, k, unit, in_bytes=into, out_bytes=out)


def product_rates(products: Sequence[Product], sms: float, p: Parameters) -> Floats:
    """Returns the matrix rate [FLOP/s] at which the model gives each product the time that was measured.

    Args:
        products: timings of matrix products.
        sms: multiprocessors, as the model counts them.
        p: parameters of the cost model.
    """
    measured = np.array([each.time.seconds for each in products])
    # The scale keeps both evaluations far above the start of the kernel, which is part of b.
    scale = max(each.rate for each in products)
    return scale * solve_reciprocal(lambda rate: product_seconds(products, rate * scale, np.inf, sms, p), measured)


def fit_products(
    products: Sequence[Product], memory: float, sms: float, p: Parameters, *, launch: float = 0.0, shape: bool = True
) -> ProductFit | None:
    """Returns the rate that products of one datatype sustain; None where none of them is bound by the matrix units.

    Args:
        products: timings.
        memory: bandwidth [bytes/s]; products that mostly wait for it say nothing and are left out.
        sms: multiprocessors, as the model counts them.
        p: where waves, depth and the kernel's start come from.
        launch: host time per operator [s].
        shape: whether waves and depth may be determined as well.
    """
    usable = tuple(
        each
        for each in products
        if each.time.seconds > OVERHEAD * launch
        and product_seconds([each], math.inf, memory, sms, p)[0] - p.kernel_start < 0.5 * each.time.seconds
        and each.time.seconds > OVERHEAD * p.kernel_start
    )
    if not usable:
        return None
    wave, depth, shaped = p.wave, p.depth, False
    if shape and len(usable) >= FOR_SHAPE and len({each.k for each in usable}) >= 3:
        found = _better_shape(usable, sms, p)
        if found is not None:
            (wave, depth), shaped = found, True
    rates = product_rates(usable, sms, _replace_shape(p, wave, depth))
    # Large products make up the time of a step, so they count for more.
    weights = np.sqrt([each.operations for each in usable])
    low, high = np.quantile(rates, [0.25, 0.75])
    rate = weighted_median(rates, weights)
    return ProductFit(rate, min(float(low), rate), max(float(high), rate), wave, depth, shaped, usable)


def _replace_shape(p: Parameters, wave: float | Floats, depth: float | Floats) -> Parameters:
    """Parameters with other waves and depth; of many at once, each [points, 1], times and rates are [points,
    products]."""
    return p.model_copy(update={"wave": wave, "depth": depth})


def _rate_scatter(products: Sequence[Product], sms: float, p: Parameters) -> float:
    """Mean deviation of the rates of all shapes from their median [log]: 0 where the formula explains all."""
    return float(_rate_scatters(products, sms, p))


def _rate_scatters(products: Sequence[Product], sms: float, p: Parameters) -> Floats:
    """`_rate_scatter` of all waves and depths of `p` [points]."""
    logs = np.log(product_rates(products, sms, p))
    with np.errstate(invalid="ignore"):
        found = np.mean(np.abs(logs - np.median(logs, axis=-1, keepdims=True)), axis=-1)
    return np.where(np.isfinite(logs).all(axis=-1), found, math.inf)


def _better_shape(products: Sequence[Product], sms: float, p: Parameters) -> tuple[float, float] | None:
    """Return waves and depth that explain the rates clearly better than the values of `p`; None if no values do."""
    before = _rate_scatter(products, sms, p)
    if before <= NOISE:
        return None
    # Nothing lost at all is the simplest law, and what processors without tiles show.
    flat = _rate_scatter(products, sms, _replace_shape(p, 0.0, 0.0))
    if flat <= NOISE:
        return (0.0, 0.0)
    best = _fit_shape(products, sms, p)
    # At the upper end of the grid it is noise that was explained, or another law.
    inside = best[0] < WAVES[1] and best[1] < DEPTHS[1]
    if inside and _rate_scatter(products, sms, _replace_shape(p, *best)) <= min(WORTH * min(before, flat), AGREEING):
        return best
    return (0.0, 0.0) if flat <= WORTH * before else None


def _fit_shape(products: Sequence[Product], sms: float, p: Parameters) -> tuple[float, float]:
    """Waves and depth that make the rates of all shapes agree best: a grid, refined around its best point."""
    (low_w, high_w), (low_d, high_d) = WAVES, DEPTHS
    best = (p.wave, p.depth)
    for _ in range(REFINEMENTS):
        points = list(product(np.linspace(low_w, high_w, GRID).tolist(), np.linspace(low_d, high_d, GRID).tolist()))
        # All points of the grid at once; then the range is halved around the best.
        waves, depths = np.array(points).T[:, :, None]
        best = points[int(np.argmin(_rate_scatters(products, sms, _replace_shape(p, waves, depths))))]
        wide_w, wide_d = (high_w - low_w) / 4.0, (high_d - low_d) / 4.0
        low_w, high_w = max(best[0] - wide_w, WAVES[0]), min(best[0] + wide_w, WAVES[1])
        low_d, high_d = max(best[1] - wide_d, DEPTHS[0]), min(best[1] + wide_d, DEPTHS[1])
    return best


def _attention_case(attentions: Sequence[Attention], accelerator: Accelerators) -> Case:
    column = {
        name: np.array([getattr(each, name) for each in attentions], np.float64)
        for name in ("heads", "head_size", "batch", "sequence")
    }
    kernels = np.array([ATTENTION_KERNELS.index(each.kernel) for each in attentions], np.float64)
    shapes = dict.fromkeys(SIZES, 0.0)
    layout = dict.fromkeys(Layout.__dataclass_fields__, 1.0)
    software = dict.fromkeys(Software.__dataclass_fields__, 0.0)
    model = {
        "attn_heads": column["heads"],
        "attn_size": column["head_size"],
        "value_size": column["head_size"],
        "seq_size": column["sequence"],
    }
    return Case(
        ModelShapes.of({**shapes, **model}),
        accelerator,
        Layout.of({**layout, "microbatch_size": column["batch"]}),
        Software.of({**software, "attention_kernel": kernels, "age_years": math.inf}),
    )


def attention_seconds(attentions: Sequence[Attention], accelerator: Accelerators, p: Parameters) -> Floats:
    """Returns the model's time of forward and backward pass together [s].

    Args:
        attentions: timings of attention, forward and with backward.
        accelerator: the device, as the cost model reads it.
        p: parameters of the cost model.
    """
    case = _attention_case(attentions, accelerator)
    core = attention_core(case, sustained_rates(accelerator, case.software.age_years, p), p)
    return core.forward + core.backward


def attention_shares(
    attentions: Sequence[Attention], accelerator: Accelerators, p: Parameters, name: str = "attention"
) -> Floats:
    """Return the value of `attention` (or `foreign_kernel`) at which the model's forward and backward take the measured
    times.

    Args:
        attentions: timings of attention, forward and with backward.
        accelerator: the device, as the cost model reads it.
        p: parameters of the cost model.
        name: of the parameter to find, "attention" or "foreign_kernel".
    """
    measured = np.array([each.both.seconds for each in attentions])
    return solve_reciprocal(
        lambda value: attention_seconds(attentions, accelerator, p.model_copy(update={name: value})),
        measured,
        at=LOW_SHARE,
    )


def block_kernels(accelerator: Accelerators) -> tuple[float, float]:
    """Returns the kernels that the model counts for a dense block with fused attention on one processor, forward and
    backward.

    Args:
        accelerator: the device, as the cost model reads it.
    """
    one = Attention.model_construct(kernel="native", heads=1, head_size=1, batch=1, sequence=1)
    case = _attention_case([one], accelerator)
    layout = {name: getattr(case.layout, name) for name in Layout.__dataclass_fields__}
    whole = Case(case.model, accelerator, Layout.of({**layout, "linear_bits": 16.0}), case.software)
    forward, backward = block_launches(whole)
    return float(np.ravel(forward)[0]), float(np.ravel(backward)[0])


@dataclass(frozen=True, slots=True)
class ExchangeFit:
    """Share of the scale-up rate that collectives reach, and their base latency [s]."""

    scale_up: float
    latency: float


def exchange_seconds(exchanges: Sequence[ExchangeSample], accelerator: Accelerators, p: Parameters) -> Floats:
    """Returns the model's time of collectives inside the scale-up domain [s].

    Args:
        exchanges: timings of collectives.
        accelerator: the device, as the cost model reads it.
        p: parameters of the cost model.
    """
    rates = sustained_rates(accelerator, np.asarray(math.inf), p)
    found = []
    for each in exchanges:
        tiers = network_tiers(np.asarray(float(each.ranks)), 1.0, accelerator, rates)
        found.append(float(collective(np.asarray(float(each.size)), tiers, p, passes=each.passes)))
    return np.array(found)


def fit_exchanges(exchanges: Sequence[ExchangeSample], accelerator: Accelerators, p: Parameters) -> ExchangeFit | None:
    """Returns the rate and latency that explain the collectives best, by relative error; None where the rate does not
    show.

    The time is a / scale_up + b latency. Robust: what deviates by more than others counts less.

    Args:
        exchanges: timings of collectives.
        accelerator: the device, as the cost model reads it.
        p: parameters of the cost model.
    """
    if not exchanges:
        return None
    measured = np.array([each.time.seconds for each in exchanges])
    volume = exchange_seconds(exchanges, accelerator, p.model_copy(update={"scale_up": 1.0, "latency": 0.0}))
    hops = exchange_seconds(exchanges, accelerator, p.model_copy(update={"scale_up": 1.0, "latency": 1.0})) - volume
    # t = volume / eta + hops alpha is linear in 1 / eta and alpha.
    inverse, latency = _fit_nonnegative(np.column_stack([volume, hops]), measured)
    if inverse <= 0:
        return None
    return ExchangeFit(1.0 / inverse, latency)


def _fit_nonnegative(columns: Floats, target: Floats) -> tuple[float, float]:
    """Two factors, none below 0, with the least absolute relative deviations (by reweighted least squares)."""
    weights: npt.NDArray[np.float64] = 1.0 / target**2
    best = np.zeros(2)
    for _ in range(50):
        scaled = np.sqrt(weights)[:, None] * columns
        aim = np.sqrt(weights) * target
        tried = []
        for chosen in ([0, 1], [0], [1]):
            factors = np.zeros(2)
            factors[chosen] = np.linalg.lstsq(scaled[:, chosen], aim, rcond=None)[0]
            if (factors >= 0).all():
                tried.append((float(np.sum((scaled @ factors - aim) ** 2)), factors))
        best = min(tried, key=lambda each: each[0])[1] if tried else best
        # Least absolute relative deviations: weights 1 / |deviation|, bounded where a timing is met exactly.
        deviation = np.abs(columns @ best / target - 1.0)
        weights = 1.0 / target**2 / np.maximum(deviation, 1e-3)
    return float(best[0]), float(best[1])
