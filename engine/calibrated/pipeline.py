"""Pipelines whose stages are not equal: the slowest stage sets the pace, the others fill and drain."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.calibrated.inputs import Case, Floats
from engine.calibrated.networks import rate_over
from engine.calibrated.parameters import Parameters
from engine.calibrated.rates import Rates

__all__ = ["Blocks", "blocks_per_stage", "bubble", "dense_blocks_per_stage", "message_time", "passes", "pipeline_time"]


class Blocks(NamedTuple):
    """Blocks on the first, a middle and the last stage (equal without a pipeline)."""

    first: Floats
    middle: Floats
    last: Floats


def blocks_per_stage(case: Case) -> Blocks:
    """How blocks are spread where they do not divide evenly.

    Where blocks + 2 divide, frameworks count embedding and loss as layers, so the first and last stage hold one less.
    Otherwise the middle stages take the remainder.
    """
    blocks, stages = case.model.num_blocks, case.layout.pipeline_par
    slots = stages * case.layout.pipeline_interleaving
    even = np.mod(blocks, slots) == 0
    counted = ~even & (np.mod(blocks + 2.0, slots) == 0)
    middle = np.where(counted, (blocks + 2.0) / stages, np.ceil(blocks / stages))
    ends = np.where(counted, middle - 1.0, np.floor(blocks / stages))
    alone = stages == 1
    return Blocks(*(np.where(alone, blocks, value) for value in (ends, middle, ends)))


def dense_blocks_per_stage(case: Case, blocks: Blocks) -> Blocks:
    """How many of them are dense: all without experts; with experts the leading ones, on the first stage."""
    model, alone = case.model, case.layout.pipeline_par == 1
    routed = model.experts > 0
    leading = np.where(routed, model.dense_blocks, model.num_blocks)
    found = (
        np.minimum(leading, blocks.first),
        np.where(routed, 0.0, blocks.middle),
        np.where(routed, 0.0, blocks.last),
    )
    return Blocks(*(np.where(alone, leading, value) for value in found))


def message_time(case: Case, rates: Rates, p: Parameters) -> Floats:
    """Seconds of one message of activations between neighbouring stages [s]; 0 without a pipeline.

    Some neighbours are as far apart as any ranks: on either side of what the outermost network in use connects.
    """
    layout = case.layout
    split = np.where(case.software.split_messages > 0, layout.tensor_par, 1.0)
    rate = rate_over(case.processors, case.accelerator, rates)
    time = 2.0 * case.tokens * case.model.hidden / split / rate + p.latency
    return np.where(layout.pipeline_par > 1, time, 0.0)


def pipeline_time(case: Case, slowest: Floats, total: Floats, message: Floats) -> Floats:
    """Seconds of all microbatches through the pipeline [s]: t = n max_i x_i + `bubble` + 2 (p - 1) message.

    Args:
        slowest: seconds per microbatch of the slowest stage, forward and backward. total: the sum over stages [s].
        message: seconds of one message between stages [s].
    """
    hops = case.layout.pipeline_par - 1.0
    return case.microbatches * slowest + bubble(case, slowest, total) + hops * 2.0 * message


def bubble(case: Case, slowest: Floats, total: Floats) -> Floats:
    """Seconds for which the slowest stage waits for others [s]: (sum_i x_i - max_i x_i) / v + r max_i x_i (v - 1) / v.

    The first part fills and drains the pipeline. In the second r microbatches are missing for n to be whole groups of
    p: an interleaved schedule sends a group through all stages before its next chunk, and a group that lacks some
    waits as if they were there, at every chunk but the last (Narayanan et al., arXiv:2104.04473, section 2.2, ask for
    whole groups; Calculon charges the same). Arguments as of `pipeline_time`.
    """
    chunks = case.layout.pipeline_interleaving
    return np.asarray((total - slowest) / chunks + _missing(case) * slowest * (1.0 - 1.0 / chunks))


def passes(case: Case) -> Floats:
    """Microbatches through a stage on the critical path, with those that filling and `bubble` stand for."""
    layout, chunks = case.layout, case.layout.pipeline_interleaving
    fill = (layout.pipeline_par - 1.0) / chunks
    return np.asarray(case.microbatches + fill + _missing(case) * (1.0 - 1.0 / chunks))


def _missing(case: Case) -> Floats:
    """Microbatches that the last group of as many as there are stages lacks."""
    return np.asarray(np.mod(-case.microbatches, case.layout.pipeline_par))
