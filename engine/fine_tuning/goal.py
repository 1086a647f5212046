"""Questions about fine-tuning: model, system, data set, packing, batch and methods."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np

import models
from engine.post_training.lengths import LengthLaw
from hardware import System
from models import Model, ModelTuning, PackedSamples

__all__ = ["METHODS", "DataSet", "FineTuningError", "FineTuningGoal", "longest_sequence", "usual_pack_length"]

METHODS: Final = ("full", "lora", "qlora")
"""All weights; adapters on frozen weights of 16 bits; adapters on frozen weights of 4 bits."""
QUANTISED_BITS: Final = 4
"""Width of the frozen weights of QLoRA [bits]. Source: Dettmers et al. 2023 (arXiv:2305.14314), section 3."""
LENGTHS: Final = 256
"""Lengths that stand for a law in the packing. Source: measured on nine laws; the efficiency is within 0.6 % of that of
4,096 lengths."""
PACK_STEP: Final = 256
"""Tokens of which the usual pack length is a multiple, so that degrees of parallelism divide it. Source: stated by
us."""


class FineTuningError(ValueError):
    """A question that contradicts itself; the message is one sentence."""


@dataclass(frozen=True, eq=False)
class DataSet:
    """Number and lengths of the samples of a data set."""

    samples: int
    law: LengthLaw
    """Law of the lengths of samples, prompt and answer together [tokens]."""

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Whole lengths spread evenly over the law [tokens]; of at most `LENGTHS` samples."""
        number = min(self.samples, LENGTHS)
        spread = self.law.quantiles((np.arange(number) + 0.5) / number)
        most = math.floor(self.law.cap)
        return tuple(int(each) for each in np.clip(np.rint(spread), 1, max(most, 1)))

    @property
    def tokens(self) -> float:
        """Tokens of all samples."""
        return self.samples * self.law.mean


def longest_sequence(model: Model) -> int | None:
    """Return the tokens for which a model has positions; None if it does not say.

    Args:
        model: any model.
    """
    if model.architecture is not None:
        return model.architecture.max_seq
    return None if model.layers is None else model.layers.max_seq


def usual_pack_length(data: DataSet, model: Model) -> int:
    """Return the pack length where none is asked for: the longest sample, rounded up, within the model's positions.

    Args:
        data: the data set.
        model: that is tuned.
    """
    longest = math.ceil(data.law.cap)
    rounded = -(-longest // PACK_STEP) * PACK_STEP
    most = longest_sequence(model)
    return rounded if most is None or rounded <= most else longest


@dataclass(frozen=True, eq=False)
class FineTuningGoal:
    """Question of a search: model, system, data set, and what may be chosen.

    Raises `FineTuningError` for numbers that contradict each other, and `models.ModelFileError` for adapters that the
    model cannot have.
    """

    model: Model
    system: System
    num_procs: int | None
    """GPUs; None for the fewest on which each method fits."""
    data: DataSet
    pack_to: int
    """Tokens of a sequence, which samples are packed into."""
    batch: int = 32
    """Packs of an optimizer step."""
    epochs: float = 1.0
    """Passes over the data set."""
    methods: tuple[str, ...] = METHODS
    adapter_rank: int = 16
    adapter_targets: str = "all_linear"
    loss_chunk: int = 0
    datatype: str = "bfloat16"
    limits: Mapping[str, Any] = field(default_factory=dict)
    """Limits of executions, on top of the usual ones."""
    headroom: float = 0.0
    """Memory that stays free, as a share of the predicted memory []."""
    price_usd_per_h: tuple[float, float] | None = None
    """Lowest and highest price of a GPU and hour [USD/h]; the recorded ones where None."""

    def __post_init__(self) -> None:
        longest = math.ceil(self.data.law.cap)
        if self.data.samples < 1:
            raise FineTuningError(f"The data set has {self.data.samples:,} samples; it must have at least 1.")
        if set(self.methods) - {"full"}:
            models.tuned(self.model, self._adapters)  # raises for adapters that the model cannot have
        positions = longest_sequence(self.model)
        title = self.model.title or self.model.name
        if positions is not None and longest > positions:
            raise FineTuningError(
                f"The longest sample has {longest:,} tokens; {title} has positions for {positions:,}."
            )
        if self.pack_to < longest:
            raise FineTuningError(f"`pack_to` is {self.pack_to:,}; the longest sample has {longest:,} tokens.")
        if positions is not None and self.pack_to > positions:
            raise FineTuningError(f"`pack_to` is {self.pack_to:,}; {title} has positions for {positions:,}.")
        if self.batch > self.packs:
            raise FineTuningError(
                f"`batch` is {self.batch:,} packs; the data set fills {self.packs:,} of {self.pack_to:,} tokens."
            )

    @cached_property
    def packing(self) -> PackedSamples:
        """Packing of the samples, first fit by decreasing length."""
        return self.tuned("full").packing

    @property
    def _adapters(self) -> dict[str, Any]:
        return {
            **ModelTuning().model_dump(),
            "adapter_rank": self.adapter_rank,
            "adapter_targets": self.adapter_targets,
        }

    @property
    def packs(self) -> int:
        """Packs that the data set fills."""
        lengths = self.data.lengths
        mean = sum(lengths) / len(lengths)
        return max(math.ceil(self.data.samples * mean / (self.packing.fill * self.pack_to) - 1e-9), 1)

    @property
    def steps(self) -> int:
        """Optimizer steps of the run."""
        return max(math.ceil(self.packs * self.epochs / self.batch - 1e-9), 1)

    def tuned(self, method: str) -> Model:
        """Return the model as a method tunes it, with sequences of packed samples.

        Args:
            method: one of `METHODS`.
        """
        tuning = ModelTuning().model_dump() if method == "full" else self._adapters
        tuning |= {"sample_lengths": self.data.lengths, "loss_chunk": self.loss_chunk}
        if method == "qlora":
            tuning["frozen_weight_bits"] = QUANTISED_BITS
        return models.tuned(models.edited(self.model, {"seq_size": self.pack_to}), tuning)
