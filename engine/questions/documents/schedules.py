"""Questions about pipeline schedules: replays of a schedule, and of an execution's pipeline."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from engine.questions.documents.explorations import ScenarioQuestion
from engine.questions.fields import Asked
from engine.questions.verb import Document, Execution
from models.documents import Number, Text, Whole

__all__ = ["ExecutionReplayQuestion", "ScheduleListQuestion", "ScheduleReplayQuestion"]

MOST = 2**31 - 1
Seconds = Annotated[float, Number(0, 1e9)]

Microbatches = Annotated[int, Whole(1, MOST)]
Chunks = Annotated[int, Whole(1, MOST)]
SendMode = Annotated[
    Literal["none", "overlap", "block"],
    Asked("Sends", parameter="mode", words={"overlap": "Sends overlap", "block": "Sends block"}),
    Field(description="A send takes no time (none), overlaps with work, or blocks its rank."),
]
Group = Annotated[
    Annotated[int, Whole(1, MOST)] | None,
    Asked("Group of microbatches"),
    Field(description="Microbatches that pass a chunk before the next one's turn, of interleaved schedules."),
]
MemoryLimit = Annotated[
    Annotated[float, Number(1e-9, 1e9)] | None,
    Asked("Activations at most"),
    Field(description="Activations that a rank of a planned schedule may hold, in chunks of microbatches."),
]
Actions = Annotated[bool, Field(description="Give every action with its rank, stage, microbatch, start and end.")]


class ScheduleListQuestion(Document):
    """Question for all pipeline schedules; it has no fields."""


class ScheduleReplayQuestion(Document):
    """Question for the replay of a pipeline schedule with given durations."""

    schedule: Annotated[str | None, Asked("Schedule")] = Field(
        default=None, description="Name of a schedule, such as 1f1b or zb-h1; or null, with `order`."
    )
    order: list[Annotated[str, Text(5_000_000)]] | None = Field(
        default=None,
        min_length=1,
        max_length=100_000,
        description='Instead of a schedule: the actions of every rank, such as ["F0 F1 BW0 BW1", "F0 BW0 F1 BW1"].',
    )
    stages: Annotated[int, Whole(1, MOST), Asked("Ranks", parameter="ranks")] = Field(
        description="Ranks of the pipeline, P."
    )
    microbatches: Annotated[Microbatches, Asked("Microbatches")] = Field(
        description="Microbatches of one replica in a step, M."
    )
    chunks: Annotated[Chunks, Asked("Chunks")] = Field(
        default=1, description="Pieces of the model per rank, of schedules that leave it open."
    )
    forward_s: Annotated[list[Seconds], Asked("Forward", "s")] = Field(
        default=[1.0], min_length=1, description="Forward of a chunk; one number, or one per stage of the model [s]."
    )
    input_gradient_s: Annotated[list[Seconds], Asked("Input gradient", "s")] = Field(
        default=[1.0], min_length=1, description="Gradient of a chunk's input, likewise [s]."
    )
    weight_gradient_s: Annotated[list[Seconds], Asked("Weight gradient", "s")] = Field(
        default=[1.0], min_length=1, description="Gradient of a chunk's weights, likewise [s]."
    )
    pair_s: Annotated[list[Seconds] | None, Asked("Overlapped pair", "s")] = Field(
        default=None,
        min_length=1,
        description="A forward and a backward that overlap, likewise; their sum by default [s].",
    )
    send_mode: SendMode = "overlap"
    send_time_s: Annotated[Seconds, Asked("Send time", "s")] = Field(default=0.0, description="Time of a send [s].")
    group: Group = None
    memory_limit: MemoryLimit = None
    placement: Literal["loop", "v", "bidir"] | None = Field(
        default=None, description="Of an order: stages on ranks in a loop (the default), as a V, or from both ends."
    )
    actions: Actions = False


class ExecutionReplayQuestion(ScenarioQuestion):
    """Question for the replay of an execution's pipeline with the stages of its model."""

    execution: Execution | None = Field(
        default=None, description="Values by field name; null for the scenario's best execution with a pipeline."
    )
    id: Annotated[Annotated[int, Whole(0, 2**62)] | None, Asked("Execution id")] = Field(
        default=None, description="Number of the execution in the scenario's space, instead."
    )
    schedule: Annotated[str | None, Asked("Schedule")] = Field(
        default=None, description="Name of a schedule, such as 1f1b or zb-h1; the execution's own by default."
    )
    microbatches: Annotated[Microbatches | None, Asked("Microbatches")] = Field(
        default=None, description="Microbatches of one replica in a step; the execution's own by default."
    )
    chunks: Annotated[Chunks | None, Asked("Chunks")] = Field(
        default=None, description="Pieces of the model per rank; the execution's own by default."
    )
    stage_layout: Annotated[str | None, Asked("Stage layout", option="layout", parameter="layout")] = Field(
        default=None, description="How blocks are cut into stages; the execution's stage_layout by default."
    )
    send_mode: SendMode = "overlap"
    group: Group = None
    memory_limit: MemoryLimit = None
    actions: Actions = False

    def engine_arguments(self) -> dict[str, Any]:
        """Return the choices as keywords of `engine.simulate.execution_stages.replay_execution`."""
        return {
            "microbatches": self.microbatches,
            "chunks": self.chunks,
            "send_mode": self.send_mode,
            "group": self.group,
            "memory_limit": self.memory_limit,
        }
