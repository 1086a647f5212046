"""Times of the training side of a step: updates of packed samples, and forward passes for log-probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from engine.post_training.lengths import LengthLaw, expected_bins
from engine.recommendation.fits import without_capacity
from engine.scenarios.dispatch import evaluate_forward
from hardware import System
from models import Model

__all__ = ["ForwardPass", "PackedBatch", "TrainingTimes", "forward_pass", "packed_batch", "training_times"]

TOGETHER: Final = 64
"""Optimizer steps whose samples one forward pass computes at most: with more, the filling of a pipeline no longer
counts. Source: stated by us."""
PARTS: Final[Mapping[str, str]] = {
    "weights": "weight_space",
    "logits": "logit_space",
    "temporaries": "temporary_space",
    "reserve": "reserve_space",
}
"""Parts of the memory of a forward pass besides activations, and their statistics."""


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """Forward pass of an execution's batch: `seconds`, and the memory of a GPU by part [bytes]."""

    seconds: float
    memory: Mapping[str, float]


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


def forward_pass(model: Model, system: System, row: Mapping[str, Any], updates: int = 1) -> ForwardPass:
    """Return the forward pass of an execution's batch, one of `updates` batches that are computed one after the other.

    A pass of all samples of a step fills its pipeline once, not once per optimizer step.

    Args:
        model: with the sequence of the execution.
        system: that trains; its capacity is not read.
        row: fields of the training execution.
        updates: optimizer steps whose samples one pass computes.

    Raises `ValueError` with the reason where the forward pass cannot run.
    """
    together = min(updates, TOGETHER)
    batch = {**row, "batch_size": int(row["batch_size"]) * together}
    found = evaluate_forward(model, without_capacity(system), pd.DataFrame([batch])).iloc[0]
    if found["status"] != "ok":
        raise ValueError(f"The forward pass of the execution cannot run: {found['reason_text']}")
    parts = {words: float(found[name]) for words, name in PARTS.items()}
    parts["activations"] = max(float(found["proc_mem_tier1_cap_req"]) - sum(parts.values()), 0.0)
    return ForwardPass(float(found["total_time"]) / together, parts)


def training_times(row: Mapping[str, Any], batch: PackedBatch, forward: ForwardPass) -> TrainingTimes:
    """Return the times of an optimizer step.

    The batch of the execution may be smaller than the bins, by at most its data parallel degree: more gradients are
    then accumulated at the same rate. Packs are as long as their samples, so that only real tokens are computed; behind
    a pipeline they are padded to one size, which its stages exchange.

    Args:
        row: fields and statistics of the execution, whose sequences are bins.
        batch: samples of an optimizer step.
        forward: forward pass of the execution's batch.
    """
    repeats = batch.bins / float(row["batch_size"])
    share = 1.0 if int(row["pipeline_par"]) > 1 else batch.fill
    return TrainingTimes(float(row["total_time"]) * repeats * share, forward.seconds * repeats * share)
