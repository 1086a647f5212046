"""Single kernels and collectives of a system, for callers that compose their own steps.

Every time comes from a formula in `physics`, with the sustained rates of the system and mature software.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.cost_models.calibrated.case_building import shaped_case
from engine.cost_models.calibrated.physics.communication.collectives import collective, network_tiers
from engine.cost_models.calibrated.physics.communication.networks import LARGEST_HOST
from engine.cost_models.calibrated.physics.inputs import SIZES, Floats, ModelShapes
from engine.cost_models.calibrated.physics.layers.attention import attention_core
from engine.cost_models.calibrated.physics.layers.elementwise import (
    ACTIVATION_BACKWARD,
    ACTIVATION_FORWARD,
    NORM_BACKWARD,
    NORM_FORWARD,
)
from engine.cost_models.calibrated.physics.layers.gemm import LinearLayer, MatrixUnit
from engine.cost_models.calibrated.physics.layers.rates import sustained_rates
from engine.cost_models.calibrated.physics.layers.recompute import SHARES
from engine.cost_models.calibrated.physics.memory import LOGIT
from engine.cost_models.calibrated.physics.offload import RESERVE
from engine.cost_models.calibrated.physics.parameters import Parameters
from hardware import System

__all__ = ["CalibratedKernelTimes"]


class CalibratedKernelTimes:
    """Times of kernels and collectives of one system by a calibration; see `engine.cost_models.contract.KernelTimes`.

    Args:
        system: the system.
        datatype: datatype of the matrix arithmetic, one of `formats.DATATYPES`.
        p: parameters of a calibration.
    """

    reserve: Final = RESERVE
    logit_bytes: Final = LOGIT

    def __init__(self, system: System, datatype: str, p: Parameters) -> None:
        self.p = p
        self.system = system
        nothing = ModelShapes.of(dict.fromkeys(SIZES, 0.0))
        one = dict.fromkeys(("tensor_par", "pipeline_par", "data_par", "microbatch_size", "batch_size"), 1.0)
        case = shaped_case(nothing, system, {**one, "datatype": datatype})
        self.accelerator = case.accelerator
        self.rates = sustained_rates(self.accelerator, np.asarray(np.inf), p)
        self.bits = float(case.layout.linear_bits)
        rate = self.rates.linear_of(case.layout)
        self.unit = MatrixUnit(rate, self.rates.memory, self.accelerator.multiprocessors, p)

    def product(
        self, m: Floats | float, n: Floats | float, k: Floats | float, count: Floats | float = 1.0
    ) -> tuple[Floats, Floats, Floats]:
        """Returns the seconds of products [m, k] x [k, n] [s]: results, gradients of the left and of the right factor.

        Args:
            m, n, k: rows, columns and inner dimension [elements].
            count: products, as of several experts, each with a start and last wave of its own.
        """
        rows, columns, inner, number = (np.asarray(each, np.float64) for each in (m, n, k, count))
        layer = LinearLayer(rows, columns, inner, number, together=False, in_bytes=self.bits / 8.0)
        slower = layer.slower(self.p)
        forward, left, right = layer.products(self.unit)
        return forward * slower, left * slower, right * slower

    def attention(
        self,
        sequences: Floats | float,
        heads: Floats | float,
        length: int,
        key_size: int,
        value_size: int,
        window: int | None = None,
    ) -> tuple[Floats, Floats]:
        """Returns the seconds of the core of attention behind a causal mask, forward and backward [s].

        Args:
            sequences: on the processor.
            heads: of queries on the processor.
            length: of a sequence [tokens].
            key_size, value_size: width of a head of keys and of values [elements].
            window: tokens that are looked back at; everything where None.
        """
        sizes = {"attn_heads": heads, "seq_size": length, "attn_size": key_size, "value_size": value_size}
        values = {**dict.fromkeys(SIZES, 0.0), **sizes, "window": window or 0}
        one = dict.fromkeys(("tensor_par", "pipeline_par", "data_par"), 1.0)
        case = shaped_case(
            ModelShapes.of(values), self.system, {**one, "microbatch_size": sequences, "batch_size": sequences}
        )
        core = attention_core(case, self.rates, self.p, windowed=window is not None)
        return core.forward, core.backward

    def norm(self, elements: Floats | float) -> tuple[Floats, Floats]:
        """Returns the seconds of a norm with its residual addition, forward and backward [s].

        Args:
            elements: of the residual stream on the processor [elements].
        """
        # The block's bytes and starts count two norms.
        size, start = np.asarray(elements, np.float64) / 2.0, 3.0 * self.p.kernel_start
        return NORM_FORWARD * size / self.rates.memory + start, NORM_BACKWARD * size / self.rates.memory + start

    def activation(self, elements: Floats | float, *, gated: bool) -> tuple[Floats, Floats]:
        """Returns the seconds of an activation function, forward and backward [s].

        Args:
            elements: results on the processor [elements].
            gated: whether it multiplies two branches.
        """
        size, start = np.asarray(elements, np.float64) / self.rates.memory, 2.0 * self.p.kernel_start
        return ACTIVATION_FORWARD[gated] * size + start, ACTIVATION_BACKWARD[gated] * size + start

    def recomputed(self, kind: str) -> tuple[float, float, float, float, float]:
        """Returns which shares of a forward pass are done again: products of weights, attention, norms and activation
        functions, collectives of the residual stream, exchanges between experts [dimensionless].

        Args:
            kind: of recomputation, one of `physics.recompute.SHARES`. Fused attention has its scores made again by its
                own backward pass, so that selective recomputation adds nothing.
        """
        linear, attention, elementwise, tensor, experts = SHARES[kind]
        return linear, 0.0 if kind == "selective" else attention, elementwise, tensor, experts

    def collective(self, size: Floats | float, ranks: int, stride: int, *, passes: float) -> Floats:
        """Returns the seconds of a collective [s].

        Args:
            size: bytes of the full buffer [bytes].
            ranks: processors that take part.
            stride: distance between neighbouring ones [processors].
            passes: 1 for an all-gather or reduce-scatter, 2 for an all-reduce.
        """
        tiers = network_tiers(np.asarray(float(ranks)), float(stride), self.accelerator, self.rates)
        return collective(np.asarray(size, np.float64), tiers, self.p, passes=passes)

    def exchange(self, size: Floats | float, ranks: int, stride: int) -> Floats:
        """Return the seconds of an all-to-all, in which every processor sends each other one an equal part of its
        buffer [s].

        Uses the efficiencies of the token exchange between experts.

        Args:
            size: buffer that is spread over the ranks [bytes].
            ranks: processors that take part.
            stride: distance between neighbouring ones [processors].
        """
        if ranks < 2:
            return np.zeros(np.shape(size))
        rack = max(self.p.exchange_rack, self.p.exchange_host)
        inside = np.where(self.accelerator.domain > LARGEST_HOST, rack, self.p.exchange_host)
        held = np.asarray(size, np.float64) / ranks
        tiers = network_tiers(np.asarray(float(ranks)), float(stride), self.accelerator, self.rates)
        below: Floats = np.ones(())
        left: Floats = np.asarray(self.p.latency)
        for number, tier in enumerate(tiers):
            # Of what a rank holds, this share is for ranks of the same network of this tier but not of the tier below.
            reached = below * tier.ranks
            share = (reached - below) / ranks
            left = left + held * share / (tier.bandwidth * (inside if number == 0 else self.p.exchange_network))
            below = reached
        return left
