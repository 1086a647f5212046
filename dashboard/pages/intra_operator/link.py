"""Parameters of the Intra-operator page in links, declared once."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import Field

from engine.questions.documents.operators import MOST_DEVICES
from engine.questions.fields import Asked
from engine.questions.verb import Document
from models.documents import Number, Whole

__all__ = ["LIKE", "PAGE_NAME", "IntraOperatorLink"]

PAGE_NAME: Final = "intra_operator"
LIKE: Final = re.compile(r"((\d{1,2}|\*)(,(\d{1,2}|\*)){0,31})?")
"""A pattern of vectors: strategies or stars."""


class IntraOperatorLink(Document):
    """Parameters of the page besides its question: forms of its inputs, and display options of the plan."""

    source: Annotated[
        Literal["published", "library"],
        Asked("Model from", parameter="from", words={"published": "Published model", "library": "Library model"}),
    ] = "published"
    suite: Annotated[str, Asked("Published model")] = "gpt F"
    sharded: Annotated[
        Literal["none", "zero", "fsdp"],
        Asked(
            "Split across devices",
            words={"none": "nothing", "zero": "gradients, optimizer state (ZeRO)", "fsdp": "weights, too (FSDP)"},
        ),
    ] = "none"
    groups: Annotated[int, Whole(1, MOST_DEVICES), Asked("Groups of devices")] = Field(
        default=1, description="With more than one the mesh has two axes, as nodes and the devices of each."
    )
    outer_bandwidth: Annotated[
        float, Number(1e-6, 1e9), Asked("Bandwidth between groups", "GB/s", parameter="outer")
    ] = Field(default=5.0, description="Sent by a device in a ring of groups.")
    sweeps: Annotated[bool, Asked("Sweeps")] = False
    beside: Annotated[bool, Asked("Look through all executions")] = False
    shown: Annotated[
        Literal["fits", "all", "named"],
        Asked("Vectors", words={"fits": "Fitting", "all": "All", "named": "Named"}),
    ] = "fits"
    like: Annotated[str, Asked("Pattern of vectors")] = Field(
        default="", description="Strategies of the blocks in order; * stands for any."
    )
    layer: Annotated[str, Asked("Kind of layer")] = ""
    over: Annotated[
        Literal["batch", "layers", "devices", "memory"],
        Asked("Along", words={"batch": "Batch", "layers": "Layers", "devices": "Devices", "memory": "Memory"}),
    ] = "batch"
    result: Annotated[
        Literal["rate", "seconds", "memory"],
        Asked("Show", words={"rate": "TFLOP/s", "seconds": "Step", "memory": "GiB"}),
    ] = "rate"
    log: Annotated[str, Asked("Measured points")] = ""
