"""Parameters of the Explore page in links, declared once."""

from __future__ import annotations

from typing import Annotated, Literal

from engine.questions.fields import Asked
from engine.questions.verb import Document

__all__ = ["ExploreLink", "MapLink"]


class ExploreLink(Document):
    """Parameters of the page with names of their own."""

    metric: Annotated[str, Asked("Metric")] = "sample_rate"
    download: Annotated[Literal["all", "cell"], Asked("Choice of executions to download")] = "all"


class MapLink(Document):
    """Parameters of the map."""

    x: Annotated[str, Asked("Axis across")] = "pipeline_par"
    y: Annotated[str, Asked("Axis up")] = "tensor_par"
    facet: Annotated[str, Asked("Field with a map per value")] = "none"
    at: Annotated[str, Asked("Cell")] = ""
    domain: Annotated[
        Literal["near", "zero", "log"],
        Asked("Colours", words={"near": "40 to 100 % of the best", "zero": "from zero", "log": "logarithmic"}),
    ] = "near"
    table: Annotated[bool, Asked("Switch to a table")] = False
