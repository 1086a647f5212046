"""Question of a search: a model, a system, the work of a step, and what may be chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import models
from engine.post_training.constants import FrameworkTerms, PostTrainingConstants, library_constants
from engine.post_training.iteration import MODES, IterationWork
from engine.post_training.rollout import Speculation
from engine.post_training.training_side import PackedBatch, packed_batch
from hardware import System
from models import Model

__all__ = ["Judge", "PostTrainingGoal"]


@dataclass(frozen=True, eq=False)
class Judge:
    """Model that scores every response: it reads prompt and response and writes `tokens`, on `gpus` of its own or,
    where None, on the GPUs of the rollout after it."""

    model: Model
    tokens: int
    gpus: int | None = None


@dataclass(frozen=True, eq=False)
class PostTrainingGoal:
    """Question of a search: model, system, work of a step, and what may be chosen."""

    model: Model
    system: System
    num_procs: int
    work: IterationWork
    pack_to: int
    modes: tuple[str, ...] = MODES
    staleness: int = 8
    split: tuple[int, int] | None = None
    """GPUs that train and GPUs that generate; chosen where None."""
    datatype: str = "bfloat16"
    training_limits: Mapping[str, Any] = field(default_factory=dict)
    rollout_bits: int = 16
    rollout_tensor_par: tuple[int, ...] = ()
    """Tensor-parallel degrees of a replica; all that divide the model's heads where empty."""
    memory_share: float | None = None
    max_sequences: int = 256
    synchronisation: str = "broadcast"
    framework: str = "nemo-rl"
    release: str | None = None
    software: float | None = None
    """Factor of one's own software; the release's where None."""
    judge: Judge | None = None
    teacher: Model | None = None
    """Model whose log-probabilities the responses are trained on; a forward pass on the GPUs that train."""
    speculation: Speculation | None = None
    is_helping: bool = False
    """True if GPUs that train generate too once their update is done, in modes with two pools."""
    constants: PostTrainingConstants = field(default_factory=library_constants)

    @cached_property
    def terms(self) -> FrameworkTerms:
        """Terms of the framework."""
        accelerator = self.system.accelerator
        generation = "" if accelerator is None else accelerator.generation
        terms = self.constants.framework(self.framework, self.release, generation)
        return terms if self.software is None else replace(terms, software=self.software)

    @cached_property
    def parameters(self) -> float:
        """Parameters of the model."""
        return float(models.parameter_counts(self.model).total)

    @property
    def weight_bytes(self) -> float:
        """Weights as training sends them, in 16 bits [bytes]."""
        return 2.0 * self.parameters

    @property
    def gpus_in_all(self) -> int:
        """GPUs of both sides, and of a judge on GPUs of its own."""
        return self.num_procs + (self.judge.gpus or 0 if self.judge is not None else 0)

    @cached_property
    def packed(self) -> PackedBatch:
        """Samples of an optimizer step, packed."""
        samples = self.work.samples // self.work.updates
        return packed_batch(self.work.prompt, self.work.law, samples, self.pack_to)
