"""Questions about other hardware: one change with the space optimised again, and the value of each part."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from engine.executions.table import LARGEST
from engine.questions.documents.explorations import FiguresQuestion, ScenarioQuestion
from engine.questions.fields import Asked
from engine.questions.plain import Statistics
from engine.questions.scenario_documents import ScenarioDocument
from engine.questions.verb import Document
from models.documents import Accepts, Number, Whole

__all__ = ["HardwareSensitivityQuestion", "ParametersQuestion", "WhatIfQuestion"]

MOST_MODELS: Final = 16
MOST_COUNTS: Final = 32

Changes = Annotated[
    dict[str, int | float | str],
    Accepts("an object with numbers or texts such as '+1 TB/s' by name"),
    Asked("Changes", option="change", metavar="NAME=VALUE"),
]


class ParametersQuestion(Document):
    """Question for the parameters of a scenario that can be changed."""

    scenario: ScenarioDocument


class WhatIfQuestion(FiguresQuestion, ScenarioQuestion):
    """Question for the effect of a change."""

    changes: Changes = Field(
        max_length=20,
        description="Changes by parameter: a new value in the parameter's unit, or text: an amount '+1 TB/s' or "
        "'+32 GB', a share '+10 %', a factor 'x2'. `list_parameters` has the parameters, such as hbm_bandwidth, "
        "net0_size, net1_bandwidth, hbm_capacity, procs, batch, sequence. Without any: the execution as it is.",
    )
    each_alone: Annotated[bool, Asked("Each change alone", option="each-alone")] = Field(
        default=False, description="Also a table: each change alone, and all together."
    )
    models: Annotated[list[str], Asked("Other models", metavar="NAME")] = Field(
        default=[],
        max_length=MOST_MODELS,
        description="Models of the library that the table also has, with the largest batch of the scenario.",
    )
    counts: Annotated[list[Annotated[int, Whole(1, LARGEST)]], Asked("Other sizes", option="sizes", metavar="N")] = (
        Field(
            default=[],
            max_length=MOST_COUNTS,
            description="Numbers of processors that the table also has, with the largest batch of the scenario.",
        )
    )
    statistics: Statistics = None


class HardwareSensitivityQuestion(Document):
    """Question for the value of each part of the hardware."""

    scenario: ScenarioDocument
    factors: Annotated[list[Annotated[float, Number(0.01, 100)]], Asked("Factors")] = Field(
        default=[0.9, 1.1],
        min_length=1,
        max_length=4,
        description="Without a change: each parameter is multiplied by these, one at a time; whole numbers of the "
        "hardware, such as the size of NVLink, are halved and doubled. Gains are of the fastest executions.",
    )
    names: Annotated[list[str] | None, Asked("Parameters", option="parameters", metavar="NAME")] = Field(
        default=None, max_length=40, description="Parameters that are multiplied; all of system and model by default."
    )
