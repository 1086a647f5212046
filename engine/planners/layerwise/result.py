"""Result of the layer-wise planner: stages, candidates and the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.planners.contract import Alternative, Plan, Stage
from engine.planners.layerwise.baselines import DataParallel
from engine.planners.layerwise.problem import LayerwiseProblem
from engine.planners.layerwise.profiles.states import States

__all__ = ["Candidate", "LayerStage", "LayerwisePlan"]


@dataclass(frozen=True, slots=True)
class LayerStage(Stage):
    """Consecutive states of a profile on some devices; the states of a chain are its layers.

    `start` to `stop` is half-open. `end` is the same, but of the last stage it is the last state itself in mode
    `released`, which prints it so. `units` are devices of one copy of the pipeline; `recompute` says that activations
    are computed again.
    """

    end: int = 0
    units: int = 1
    recompute: bool = False


@dataclass(frozen=True, slots=True)
class Candidate(Alternative):
    """Candidate plan. `value` is its speedup over one device, None where it cannot run; `copies` says how many
    pipelines run side by side."""

    stages: Sequence[LayerStage] = ()
    copies: int = 1

    @property
    def speedup(self) -> float | None:
        """Returns the speedup against one device with memory for everything [dimensionless]; None where it cannot
        run."""
        return self.value


@dataclass(frozen=True)
class LayerwisePlan(Plan):
    """A plan of layers: the best of `candidates`, the other ones of which are its `alternatives`.

    `states` are the profile's at the batch of a step; stages are ranges of them. `microbatches` is the number per copy
    of the pipeline.
    """

    problem: LayerwiseProblem
    stages: Sequence[LayerStage]
    candidates: tuple[Candidate, ...] = ()
    copies: int = 1
    microbatches: int = 1
    states: States | None = None
    baselines: DataParallel | None = None

    @property
    def speedup(self) -> float:
        """Returns the speedup against one device that runs the whole batch, with memory no limit there
        [dimensionless]."""
        return self.figure("speedup").value

    def layers(self, stage: LayerStage) -> tuple[int, ...]:
        """Returns the positions of a stage's layers in the profile."""
        assert self.states is not None
        return self.states.layers(stage.start, stage.stop)
