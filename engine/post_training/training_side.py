"""Times of the training side of a step: updates of packed samples, and forward passes for log-probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.post_training.lengths import LengthLaw, expected_bins

__all__ = ["PackedBatch", "TrainingTimes", "forward_pass_time", "packed_batch", "training_times"]

PRODUCTS: Final = 3.0
"""Forward passes that a step's arithmetic is worth: forward, gradients of inputs and of weights. Source: a count."""
RECOMPUTED: Final = 4.0
"""The same with full recomputation, which runs the forward pass twice."""


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """Samples of one optimizer step, packed: `bins` of `size` tokens, of which a share `fill` is tokens of samples."""

    samples: int
    size: int
    bins: float
    fill: float


@dataclass(frozen=True, slots=True)
class TrainingTimes:
    """Times of one optimizer step on the execution that trains [s]: the update, and one forward pass of its samples."""

    update_s: float
    forward_s: float


def packed_batch(prompt: float, law: LengthLaw, samples: int, size: int) -> PackedBatch:
    """Return the samples of an optimizer step, packed.

    Args:
        prompt: tokens in front of every response.
        law: of the lengths of responses.
        samples: of an optimizer step.
        size: of a bin [tokens].

    Raises `LengthError` where a sample is longer than a bin.
    """
    bins = max(expected_bins(prompt, law, samples, size), 1.0)
    return PackedBatch(samples, size, bins, samples * (prompt + law.mean) / (bins * size))


def forward_pass_time(row: Mapping[str, Any]) -> float:
    """Return the forward pass of the batch of an execution [s].

    A step without its optimizer and the exposed exchange of gradients is forward and backward, three forward passes'
    worth of products, or four where all blocks are recomputed.

    Args:
        row: fields and statistics of a training execution.
    """
    passes = RECOMPUTED if row["activation_recompute"] == "full" else PRODUCTS
    return float(row["total_time"] - row["optim_step_time"] - row["dp_comm_exposed_time"]) / passes


def training_times(row: Mapping[str, Any], batch: PackedBatch) -> TrainingTimes:
    """Return the times of an optimizer step.

    The batch of the execution may be smaller than the bins, by at most its data parallel degree: more gradients are
    then accumulated at the same rate. Packs are as long as their samples, so that only real tokens are computed; behind
    a pipeline they are padded to one size, which its stages exchange.

    Args:
        row: fields and statistics of the execution, whose sequences are bins.
        batch: samples of an optimizer step.
    """
    repeats = batch.bins / float(row["batch_size"])
    share = 1.0 if int(row["pipeline_par"]) > 1 else batch.fill
    return TrainingTimes(float(row["total_time"]) * repeats * share, forward_pass_time(row) * repeats * share)
