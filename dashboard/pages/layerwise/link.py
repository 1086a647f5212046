"""Parameters of the Layer-wise page in links besides its question, declared once."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from engine.questions.fields import Asked
from engine.questions.verb import Document
from models.documents import Whole

__all__ = ["PAGE_NAME", "LayerwiseLink"]

PAGE_NAME: Final = "layerwise"


class LayerwiseLink(Document):
    """Parameters of the page besides its question: how layers, GPUs and cluster are given."""

    source: Annotated[
        Literal["example", "model", "file"],
        Asked(
            "Layers from",
            parameter="from",
            words={"example": "Example", "model": "Library model", "file": "Own profile"},
        ),
    ] = "example"
    system: Annotated[str, Asked("System")] = "h100_80g_sxm"
    second: Annotated[str, Asked("Second system")] = Field(
        default="none", description="A second kind of GPU in the same cluster, as many again."
    )
    gpus: Annotated[int, Whole(1, 4096), Asked("Number of GPUs")] = Field(default=64, description="Of each system.")
    machine_count: Annotated[int, Whole(1, 256), Asked("Machines", parameter="machines")] = Field(
        default=2, description="Machines of the cluster."
    )
    devices: Annotated[int, Whole(1, 64), Asked("Devices of each")] = Field(
        default=8, description="Devices of a machine."
    )
