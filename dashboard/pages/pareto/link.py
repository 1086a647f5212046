"""Parameters of the Pareto page in links, declared once."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from engine.questions.fields import Asked
from engine.questions.verb import Document

__all__ = ["ParetoLink"]

Scale = Literal["linear", "log"]
Better = Literal["lower", "higher"]
_SCALES = {"linear": "linear", "log": "log"}
_BETTER = {"lower": "less", "higher": "more"}
"""Less is the default: the figures without a direction in the register are operations, which take time."""


class ParetoLink(Document):
    """Figures along the axes, their scales and directions, and switches."""

    x: Annotated[str, Asked("Axis across")] = "proc_mem_tier1_cap_req"
    y: Annotated[str, Asked("Axis up")] = "sample_rate"
    z: Annotated[str, Asked("Third figure")] = "none"
    xscale: Annotated[Scale, Asked("Scale across", words=_SCALES)] = "linear"
    yscale: Annotated[Scale, Asked("Scale up", words=_SCALES)] = "linear"
    xbetter: Annotated[Better, Asked("Direction across", words=_BETTER)] = "lower"
    ybetter: Annotated[Better, Asked("Direction up", words=_BETTER)] = "lower"
    zbetter: Annotated[Better, Asked("Direction of the third figure", words=_BETTER)] = "lower"
    close: Annotated[bool, Asked("Switch for close executions")] = Field(
        default=False, description="Leave out executions far from the frontier."
    )
    columns: Annotated[bool, Asked("Switch for all columns")] = Field(
        default=False,
        description="Adds columns with equal values and all stored results. Downloads always have them.",
    )
