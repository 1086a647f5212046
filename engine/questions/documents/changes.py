"""Questions about other hardware: one change with the space optimised again, and the value of each part."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from engine.questions.fields import Asked
from engine.questions.plain import Statistics
from engine.questions.scenario_documents import ScenarioDocument
from engine.questions.verb import Document
from models.documents import Accepts, Number

__all__ = ["HardwareSensitivityQuestion", "ParametersQuestion", "WhatIfQuestion"]

Changes = Annotated[
    dict[str, int | float],
    Accepts("an object with numbers by name"),
    Asked("Changes", option="change", metavar="NAME=VALUE"),
]


class ParametersQuestion(Document):
    """Question for the parameters of a scenario that can be changed."""

    scenario: ScenarioDocument


class WhatIfQuestion(Document):
    """Question for the effect of a change."""

    scenario: ScenarioDocument
    changes: Changes = Field(
        max_length=20,
        description="New values by parameter, in the parameter's unit; `list_parameters` has them, such as "
        "hbm_bandwidth, net1_bandwidth, hbm_capacity, procs, batch, sequence. Without any: the best as it is.",
    )
    statistics: Statistics = None


class HardwareSensitivityQuestion(Document):
    """Question for the value of each part of the hardware."""

    scenario: ScenarioDocument
    factors: Annotated[list[Annotated[float, Number(0.01, 100)]], Asked("Factors")] = Field(
        default=[0.9, 1.1],
        min_length=1,
        max_length=4,
        description="Without a change: each parameter is multiplied by these, one at a time.",
    )
    names: Annotated[list[str] | None, Asked("Parameters", option="parameters", metavar="NAME")] = Field(
        default=None, max_length=40, description="Parameters that are multiplied; all of system and model by default."
    )
