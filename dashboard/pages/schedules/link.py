"""Parameters of the Schedules page in links, declared once."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from engine.questions.fields import Asked
from engine.questions.verb import Document
from models.documents import Number, Whole

__all__ = ["GRID_NAME", "PAGE_NAME", "GridLink", "SchedulesLink"]

PAGE_NAME: Final = "schedules"
GRID_NAME: Final = "schedules_grid"
"""Begins the parameters of the grid."""

Milliseconds = Annotated[float, Number(1e-4, 1e7)]
Percent = Annotated[int, Whole(0, 100)]


class SchedulesLink(Document):
    """Parameters of the page besides the replay's numbers. A share of the model is that of one rank."""

    show: Annotated[
        Literal["schedules", "grid"],
        Asked("Subject", words={"schedules": "Schedules", "grid": "Every mix of D × H × P"}),
    ] = "schedules"
    source: Annotated[
        Literal["scenario", "numbers"],
        Asked(
            "Source of the times",
            parameter="from",
            words={"scenario": "Scenario’s execution", "numbers": "Plain numbers"},
        ),
    ] = "scenario"
    a: Annotated[str, Asked("Schedule A")] = "1f1b"
    b: Annotated[str, Asked("Schedule B")] = "zbv"
    group: Annotated[Annotated[float, Number(1, 1e7)] | None, Asked("Group of microbatches")] = Field(
        default=None, description="Of interleaved schedules; as many as ranks."
    )
    memory: Annotated[Annotated[float, Number(1e-4, 1e7)] | None, Asked("Activations at most")] = Field(
        default=None, description="Of a rank's whole share for one microbatch; empty for any number."
    )
    forward: Annotated[Milliseconds, Asked("Forward", "ms")] = Field(
        default=1.0, description="Of a rank's whole share for one microbatch."
    )
    input: Annotated[Milliseconds, Asked("Input gradient", "ms")] = Field(default=1.0, description="Likewise.")
    weight: Annotated[Milliseconds, Asked("Weight gradient", "ms")] = Field(default=1.0, description="Likewise.")
    counted: Annotated[
        Literal["step", "span"], Asked("Counted as a step", words={"step": "Whole step", "span": "Longest span"})
    ] = "step"
    cut: Annotated[
        Literal["own", "equal"],
        Asked("Stages", parameter="stages", words={"own": "Model’s stages", "equal": "Equal stages"}),
    ] = "own"
    send: Annotated[Percent, Asked("Send time, % of a forward")] = Field(
        default=5, description="Share of a rank's forward for one microbatch. A send starts when the result is ready."
    )
    uneven: Annotated[Percent, Asked("Last stage heavier, %")] = Field(
        default=0, description="Extra time for head or loss, as a share of a rank's time."
    )
    pair: Annotated[Percent, Asked("Overlapped pairs hide, %")] = Field(
        default=0, description="Share of an overlapped forward-backward pair that is hidden."
    )
    along: Annotated[
        Literal["send", "uneven", "microbatches"],
        Asked("Along", words={"send": "Send time", "uneven": "Imbalance", "microbatches": "Microbatches"}),
    ] = "send"
    path: Annotated[bool, Asked("Critical path")] = Field(
        default=False, description="Frames a chain of work and sends that takes the whole step."
    )


class GridLink(Document):
    """Parameters of the grid of parallelisms besides its question."""

    model: Annotated[str, Asked("Model of the grid")] = "euromlsys21"
    revision: Annotated[
        Literal["R3", "R1", "R2"],
        Asked("Revision of DistIR", words={"R3": "R3, the last", "R1": "R1, the notebook’s", "R2": "R2, units mended"}),
    ] = "R3"
    machine: Annotated[
        Literal["own", "system"],
        Asked("Machine", words={"own": "DistIR’s constants", "system": "The scenario’s GPU, peaks"}),
    ] = "own"
    devices: Annotated[int, Whole(2, 128), Asked("Devices up to")] = 16
    batch: Annotated[int, Whole(1, 2**22), Asked("Batch, rows")] = Field(
        default=8192, description="Rows of a step: samples, or tokens of sequences."
    )
    kind: Annotated[Literal["data", "pipeline"], Asked("Kind", words={"data": "Data", "pipeline": "Pipeline"})] = "data"
    fit: Annotated[Literal["own", "fit"], Asked("Constants")] = "own"
