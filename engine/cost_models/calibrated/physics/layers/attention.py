"""Time of the attention core (scores, softmax, weighted values) by generation of its kernel.

Fused kernels keep the scores on chip: their time is matrix operations plus one exponential per score. Causal masks
halve both, and context parallelism shares them evenly (load-balanced halves). Without fusion the scores go through
memory.

Sources: rates of FlashAttention 1, 2, 3 as shares of peak from Dao et al. 2022, Dao 2023, Shah et al. 2024 (about .35,
.60 and .60-.75); multi-function units: 16 exponentials per multiprocessor and clock (CUDA programming guide).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.cost_models.calibrated.physics.case_cache import once_per_case
from engine.cost_models.calibrated.physics.inputs import (
    ATTENTION_KERNELS,
    GENERATIONS,
    Accelerators,
    Case,
    Floats,
)
from engine.cost_models.calibrated.physics.layers.gemm import KernelWork, LinearLayer, MatrixUnit, gemm
from engine.cost_models.calibrated.physics.layers.rates import SustainedRates, maturity, power_factor
from engine.cost_models.calibrated.physics.parameters import Parameters

__all__ = ["Core", "attention_core", "core_work", "fused_rate", "kernel_rate", "window_factor"]

SCORE_BYTES_FORWARD = 9.0
"""Bytes per score that unfused softmax, mask and dropout move forward [bytes]. Source: count of the kernels' reads and
writes, taken from the calibration study on 1,147 measured rows."""
SCORE_BYTES_BACKWARD = 11.0
"""The same backward [bytes]. Source: as for `SCORE_BYTES_FORWARD`."""
BACKWARD_PRODUCTS = 2.5
"""Matrix operations of a fused backward pass relative to the forward pass [dimensionless]: five products instead of
two. Source: Dao et al. 2022, the backward pass of FlashAttention."""
BACKWARD_OVERHEAD = 1.1
"""Ratio of a fused backward pass to the time of its products [dimensionless]. Source: the calibration study on 1,147
measured rows; stated, not fitted."""
MOST_FUSED = 0.75
"""Share of the peak that fused attention reaches where power does not limit the clock [dimensionless]. Source: Shah et
al. 2024."""
UNIT_EDGES = {"tpu v4": 128.0, "tpu v5e": 128.0, "tpu v5p": 128.0, "tpu v6e": 256.0, "tpu7x": 256.0}
"""Rows and columns of one systolic matrix unit by generation [elements], which narrower heads fill in part only; others
have tiles smaller than a head. Source: docs.cloud.google.com/tpu/docs/system-architecture-tpu-vm, multiply-accumulators
of a matrix unit."""
TAIL = 0.5
"""Share of a wave of blocks that the last, partly filled wave costs [dimensionless]. Source: the calibration study on
1,147 measured rows; stated, not fitted."""
LONGEST_TAIL = 4.0
"""Most waves that one partly filled wave counts as [dimensionless]. Source: the calibration study on 1,147 measured
rows; stated, not fitted."""


_EDGES = np.array([UNIT_EDGES.get(name, 1.0) for name in GENERATIONS])


class Core(NamedTuple):
    """Seconds of the attention core of one block and microbatch [s]."""

    forward: Floats
    backward: Floats


@once_per_case
def window_factor(case: Case) -> Floats:
    """Returns the share of the causal scores that remain where a block looks back over a window only [rows]
    [dimensionless].

    Of the s^2 / 2 causal scores of s tokens a window of w that moves along leaves w s - w^2 / 2, which is
    2 w / s - (w / s)^2 of them, and chunks of w tokens leave w s / 2, which is w / s. 1 where there is no window.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    model = case.model
    share = np.minimum(model.window / model.seq_size, 1.0)
    return np.where(model.window > 0, np.where(model.window_chunked > 0, share, share * (2.0 - share)), 1.0)


def kernel_rate(case: Case, p: Parameters) -> Floats:
    """Returns the sustained matrix rate inside the fused kernel of every row [rows] [FLOP/s].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        p: parameters of a calibration.
    """
    accelerator = case.accelerator
    rate = fused_rate(accelerator, case.software.attention_kernel, case.software.age_years, p)
    edge = _EDGES[accelerator.generation.astype(int)]
    if not np.any(edge > 1.0):
        return rate
    # Of a unit of k_u x k_u, heads of k < k_u columns use k / k_u.
    filled = np.minimum(case.model.attn_size, case.model.value_size) / edge
    return np.asarray(np.minimum(rate, accelerator.flops16 * np.minimum(filled, 1.0)))


def fused_rate(accelerator: Accelerators, kernel: Floats, age_years: Floats, p: Parameters) -> Floats:
    """Returns the sustained matrix rate inside a fused kernel [rows] [FLOP/s].

    A kernel of an earlier generation runs on a newer chip without its instructions (`foreign_kernel`).

    Args:
        accelerator: published figures of the accelerators [rows].
        kernel: positions in `ATTENTION_KERNELS`.
        age_years: age of the software since the generation shipped [years].
        p: parameters of a calibration.
    """
    newer = accelerator.generation != GENERATIONS.index("ampere")
    first = kernel == ATTENTION_KERNELS.index("flash1")
    second = kernel == ATTENTION_KERNELS.index("flash2")
    factor = np.where(first, p.flash1, 1.0) * np.where((first | second) & newer, p.foreign_kernel, 1.0)
    # peak x share x power factor, at most what the best kernel is known to reach.
    sustained = np.minimum(p.attention * power_factor(accelerator, p), MOST_FUSED) * maturity(age_years, p)
    return np.asarray(accelerator.flops16 * sustained * factor)


def attention_core(case: Case, rates: SustainedRates, p: Parameters, *, windowed: bool = False) -> Core:
    """Returns the seconds that the attention core of one block and microbatch takes on one processor [rows] [s].

    Without fusion every score is computed, and those outside the window are masked.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
        p: parameters of a calibration.
        windowed: whether the block looks back over the model's window only.
    """
    fused = _fused_core(case, p, windowed)
    unfused_rows = case.software.attention_kernel == ATTENTION_KERNELS.index("unfused")
    if not np.any(unfused_rows):
        return fused
    unfused = _unfused_core(case, rates, p)
    return Core(*(np.where(unfused_rows, slow, fast) for slow, fast in zip(unfused, fused, strict=True)))


def _fused_core(case: Case, p: Parameters, windowed: bool) -> Core:
    model, layout, accelerator = case.model, case.layout, case.accelerator
    heads = model.attn_heads / layout.tensor_par
    scores = causal_scores(case, windowed=windowed)
    operations = _score_operations(case, scores)
    # One exponential per score, on special-function units that run next to the matrix units.
    units = accelerator.multiprocessors * accelerator.exponentials * accelerator.clock
    exponentials = p.exponentials * scores / units
    # One thread block per head, sample and 128 queries: parallel over the sequence (Dao 2023, section 3.2).
    waves = (
        heads
        * layout.microbatch_size
        * np.ceil(model.seq_size / (128.0 * layout.context_par))
        / accelerator.multiprocessors
    )
    # The last wave is partly filled: a smooth 1 + 0.5 / w in place of ceil(w) / w.
    tail = 1.0 + TAIL * np.minimum(1.0 / waves, LONGEST_TAIL)
    rate = kernel_rate(case, p)
    forward = (operations / rate + exponentials) * tail + p.kernel_start
    backward = BACKWARD_OVERHEAD * (BACKWARD_PRODUCTS * operations / rate + exponentials) * tail + 2.0 * p.kernel_start
    return Core(forward, backward)


def causal_scores(case: Case, *, windowed: bool = False) -> Floats:
    """Returns how many scores one processor computes of one block and microbatch behind a causal mask [rows]
    [elements].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        windowed: whether the block looks back over the model's window only.
    """
    model, layout = case.model, case.layout
    heads = model.attn_heads / layout.tensor_par
    # The causal half of s^2 scores per head; context parallelism shares them evenly.
    scores = 0.5 * model.seq_size**2 / layout.context_par * heads * layout.microbatch_size
    if model.tuning is not None and model.tuning.square_share != 1.0:
        # Tokens attend within their sample: the sum of squared lengths in place of s^2.
        scores = scores * model.tuning.square_share
    return scores * window_factor(case) if windowed else scores


def _score_operations(case: Case, scores: Floats) -> Floats:
    """Return the operations of the forward pass for a number of scores: products with keys and with values [FLOP]."""
    # 2 FLOP per score and column: q k^T with d_k columns, p v with d_v.
    return 2.0 * scores * (case.model.attn_size + case.model.value_size)


@once_per_case
def _score_products(case: Case) -> tuple[LinearLayer, LinearLayer]:
    """Return the products of queries with keys and of scores with values, of all heads, for scores that pass through
    memory; masked ones included."""
    model, layout = case.model, case.layout
    count = model.attn_heads * layout.microbatch_size / layout.tensor_par
    rows, columns = model.seq_size / layout.context_par, model.seq_size
    return LinearLayer(rows, columns, model.attn_size, count), LinearLayer(rows, model.value_size, columns, count)


def core_work(case: Case, *, windowed: bool = False) -> tuple[KernelWork, KernelWork]:
    """Returns what the attention core of one block and microbatch does, forward and backward [rows] [FLOP, bytes].

    A fused kernel keeps the scores on chip and is never bound by memory: its traffic counts as 0.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        windowed: whether the block looks back over the model's window only.
    """
    operations = _score_operations(case, causal_scores(case, windowed=windowed))
    none = np.zeros(())
    # Backward, the scores are computed again in addition to four products: 2.5 times the two forward.
    fused = KernelWork(operations, none), KernelWork(BACKWARD_PRODUCTS * operations, none)
    unfused_rows = case.software.attention_kernel == ATTENTION_KERNELS.index("unfused")
    if not np.any(unfused_rows):
        return fused
    layers = _score_products(case)
    scored, valued = (layer.works()[0] for layer in layers)
    elements = layers[0].m * layers[0].n * layers[0].count
    found = []
    for fast, products, score_bytes in zip(fused, (1.0, 2.0), (SCORE_BYTES_FORWARD, SCORE_BYTES_BACKWARD), strict=True):
        operations_there = products * (scored.operations + valued.operations)
        moved = products * (scored.moved + valued.moved) + score_bytes * elements
        found.append(
            KernelWork(
                np.where(unfused_rows, operations_there, fast.operations), np.where(unfused_rows, moved, fast.moved)
            )
        )
    return found[0], found[1]


def _unfused_core(case: Case, rates: SustainedRates, p: Parameters) -> Core:
    model = case.model
    unit = MatrixUnit(rates.matrix16, rates.memory, case.accelerator.multiprocessors, p)
    scored, valued = _score_products(case)
    # q k^T and p v over all s^2 scores: masked ones are computed too.
    products = gemm(scored.m, scored.n, scored.k, unit, count=scored.count)
    products = products + gemm(valued.m, valued.n, valued.k, unit, count=valued.count)
    elements = scored.m * scored.n * scored.count
    # Head sizes that are no multiple of 8 elements miss the 16-byte alignment that tensor cores want.
    again = np.where(np.mod(model.attn_size, 8.0) != 0, 2.5, 2.0)
    forward = products + SCORE_BYTES_FORWARD * elements / rates.memory + 2.0 * p.kernel_start
    backward = again * products + SCORE_BYTES_BACKWARD * elements / rates.memory + 3.0 * p.kernel_start
    return Core(forward, backward)
