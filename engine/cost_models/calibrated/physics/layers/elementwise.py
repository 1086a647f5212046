"""Traffic of everything that is not a product: norms, residuals, positions, activations, casts.

These kernels are bound by memory, so their time is bytes over the sustained bandwidth. Counts are bytes per element of
the tensors they pass over, summed over the kernels of a Megatron-style fused block.

Source: the calibration study on 1,147 measured rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine.cost_models.calibrated.physics.inputs import ATTENTION_KERNELS, LAUNCHES, Case, Floats
from engine.cost_models.calibrated.physics.layers.rates import SustainedRates
from engine.cost_models.calibrated.physics.parameters import Parameters

__all__ = ["ElementBytes", "Traffic", "activated", "activation", "cast", "cast_products", "casts", "normed", "norms"]

NORM_FORWARD = 22.0
"""Bytes per residual element forward [bytes]: two norms, two residual additions, bias, dropout. Source: count of the
kernels' reads and writes, taken from the calibration study on 1,147 measured rows."""
NORM_BACKWARD = 28.0
"""The same backward [bytes]. Source: as for `NORM_FORWARD`."""
BLOCK_SUBLAYERS = 2.0
"""Additions to the residual stream in the block that `NORM_FORWARD` and the kernels of norms are counted for
[dimensionless]: after attention and after the feed-forward layer. Source: as for `NORM_FORWARD`."""
POSITION_FUSED = 4.0
"""Bytes per query or key element for rotary positions and layout changes [bytes]. Source: as for `NORM_FORWARD`."""
POSITION_UNFUSED = 6.0
"""The same where attention is not fused [bytes]. Source: as for `NORM_FORWARD`."""
ACTIVATION_FORWARD = (4.0, 6.0)
"""Bytes per feed-forward element of the activation function, plain and gated [bytes]. Source: as for `NORM_FORWARD`."""
ACTIVATION_BACKWARD = (6.0, 10.0)
"""The same backward [bytes]. Source: as for `NORM_FORWARD`."""
CAST = 4.0
"""Bytes per element cast to a plain datatype [bytes]: 2 read, 1 written, 1 for the transposed copy. Source: count of
reads and writes, taken from the calibration study on 1,147 measured rows."""
CAST_READ, CAST_COPIES = 2.0, 2.0
"""Bytes read and copies written per element cast to a format with scales [bytes, dimensionless]. Source: same count;
scales along rows and along columns differ, so the transposed copy is quantised on its own."""


class Traffic(NamedTuple):
    """Seconds of memory traffic of one block and microbatch [s]."""

    forward: Floats
    backward: Floats


class ElementBytes(NamedTuple):
    """Bytes that the same moves [bytes]."""

    forward: Floats
    backward: Floats


def normed(case: Case, p: Parameters, sublayers: float = 2.0, attentions: Sequence[Case] | None = None) -> ElementBytes:
    """Returns the traffic of norms, residuals and positions of one block, forward and backward [rows] [bytes].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        p: parameters of a calibration.
        sublayers: additions to the residual stream in the block.
        attentions: cases whose model has the sizes of an attention layer, for each in the block; the one of `case`
            where None.
    """
    software = case.software
    # Norms and residual run on each rank's part of the sequence, rotary positions on its own heads.
    residual = case.split_tokens * case.model.hidden
    per_position = np.where(
        software.attention_kernel == ATTENTION_KERNELS.index("unfused"), POSITION_UNFUSED, POSITION_FUSED
    )
    positions: Floats = np.zeros(())
    for each in [case] if attentions is None else attentions:
        heads = each.model.attn_heads + each.key_value_heads
        positions = positions + case.tokens * heads * each.model.attn_size / case.layout.tensor_par
    compiled = software.launch == LAUNCHES.index("compiled")
    factor = framework_factor(case, p) * np.where(compiled, p.compiled_elementwise, 1.0)
    share = sublayers / BLOCK_SUBLAYERS
    forward = factor * (share * NORM_FORWARD * residual + per_position * positions)
    backward = factor * (share * NORM_BACKWARD * residual + per_position * positions)
    return ElementBytes(forward, backward)


def norms(
    case: Case,
    rates: SustainedRates,
    p: Parameters,
    sublayers: float = 2.0,
    attentions: Sequence[Case] | None = None,
) -> Traffic:
    """Returns the seconds of norms, residuals and positions of one block, forward and backward [rows] [s].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
        p: parameters of a calibration.
        sublayers, attentions: as for `normed`.
    """
    moved, share = normed(case, p, sublayers, attentions), sublayers / BLOCK_SUBLAYERS
    # Kernels of norms, residuals and positions forward and backward: count for a Megatron-style block, taken from the
    # calibration study on 1,147 measured rows.
    return Traffic(
        moved.forward / rates.memory + share * 6.0 * p.kernel_start,
        moved.backward / rates.memory + share * 8.0 * p.kernel_start,
    )


def activated(case: Case, width: Floats, rows: Floats, p: Parameters) -> ElementBytes:
    """Returns the traffic of the activation function, forward and backward [rows] [bytes].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        width: outputs of the activation per token [elements].
        rows: tokens [tokens].
        p: parameters of a calibration.
    """
    gated = case.model.gated > 0
    elements = framework_factor(case, p) * rows * width
    return ElementBytes(
        np.where(gated, ACTIVATION_FORWARD[1], ACTIVATION_FORWARD[0]) * elements,
        np.where(gated, ACTIVATION_BACKWARD[1], ACTIVATION_BACKWARD[0]) * elements,
    )


def activation(case: Case, width: Floats, rows: Floats, rates: SustainedRates, p: Parameters) -> Traffic:
    """Returns the seconds of the activation function, forward and backward [rows] [s].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        width: outputs of the activation per token [elements].
        rows: tokens [tokens].
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
        p: parameters of a calibration.
    """
    moved = activated(case, width, rows, p)
    return Traffic(
        moved.forward / rates.memory + 2.0 * p.kernel_start, moved.backward / rates.memory + 2.0 * p.kernel_start
    )


def casts(case: Case, width: Floats, rates: SustainedRates) -> Traffic:
    """Returns the seconds of casting inputs and gradients of the linear layers to 8 or 4 bits [rows] [s]; 0 at 16 bits.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        width: as for `cast` [elements].
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
    """
    moved = cast(case, width)
    return Traffic(moved.forward / rates.memory, moved.backward / rates.memory)


def cast(case: Case, width: Floats) -> ElementBytes:
    """Returns the traffic of casting inputs and gradients of linear layers to 8 or 4 bits [rows] [bytes]; 0 at 16 bits.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        width: width of the feed-forward layer per token on the tensor-parallel group [elements].
    """
    model, layout = case.model, case.layout
    low = layout.linear_bits < 16
    # Inputs of the four products: both norms' outputs, the attention's output and the activation's.
    inputs = (
        2.0 * model.hidden * case.split_tokens
        + (model.attn_heads * model.value_size + width) * case.tokens / layout.tensor_par
    )
    # Gradients of their outputs: output and down projection, query-key-value and up projection.
    gradients = (
        2.0 * model.hidden * case.split_tokens
        + ((model.attn_heads + 2.0 * case.key_value_heads) * model.attn_size + width * (1.0 + model.gated))
        * case.tokens
        / layout.tensor_par
    )
    moved = _cast_bytes(case)
    return ElementBytes(np.where(low, moved * inputs, 0.0), np.where(low, moved * gradients, 0.0))


def cast_products(case: Case, sublayers: float, inputs: Floats, outputs: Floats) -> ElementBytes:
    """Return the traffic of casts around some products, as `cast` [rows] [bytes].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        sublayers: additions to the residual stream in the block, each with an input and an output of the hidden width.
        inputs, outputs: further elements that enter and leave products on one tensor-parallel rank [elements per
            token] [rows].
    """
    residual = sublayers * case.model.hidden * case.split_tokens
    each = np.where(case.layout.linear_bits < 16, _cast_bytes(case), 0.0)
    return ElementBytes(each * (residual + inputs * case.tokens), each * (residual + outputs * case.tokens))


def _cast_bytes(case: Case) -> Floats:
    """Return the bytes that a cast moves per element [rows] [bytes]."""
    scaled = CAST_READ + CAST_COPIES * case.layout.linear_bits / 8.0
    return np.where(case.layout.linear_format > 0, scaled, CAST)


def framework_factor(case: Case, p: Parameters) -> Floats:
    """Returns the traffic relative to fused kernels where a framework runs plain operators [rows] [dimensionless].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        p: parameters of a calibration.
    """
    levels = np.array([1.0, p.unfused_elementwise, p.plain_elementwise])
    return np.asarray(levels[case.software.unfused_elementwise.astype(int)])
