"""Parameters of the Validation page in links, declared once."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from engine.questions.fields import Asked
from engine.questions.verb import Document
from models.documents import Whole

__all__ = ["FIELDS", "PAGE_NAME", "ValidationLink"]

PAGE_NAME: Final = "validation"
FIELDS: Final = {
    "num_gpus": "GPUs",
    "tp": "Tensor parallel",
    "pp": "Pipeline parallel",
    "dp": "Data parallel",
    "cp": "Context parallel",
    "ep": "Expert parallel",
    "vpp": "Interleaving",
    "mbs": "Microbatch",
    "gbs": "Batch",
    "hidden": "Hidden size",
    "layers": "Blocks",
    "heads": "Attention heads",
    "seq_len": "Sequence length",
    "moe_experts": "Experts",
    "year": "Date",
    "measured_step_time_s": "Measured step time, s",
    "hardware": "Accelerator",
    "family": "Family",
    "framework": "Framework",
    "software_rule": "Software rule",
    "dtype": "Datatype",
    "recompute": "Recompute",
    "attn": "Attention",
}
"""Fields of runs that errors are drawn against."""


class ValidationLink(Document):
    """Parameters of the page: filters of the runs, and the displayed results."""

    source: Annotated[str, Asked("Source")] = ""
    hardware: Annotated[str, Asked("Accelerator")] = ""
    family: Annotated[str, Asked("Family")] = ""
    run: Annotated[Annotated[int, Whole(1, 9_999_999)] | None, Asked("Run")] = None
    errors: Annotated[
        Literal["time", "memory"], Asked("Kind of errors", words={"time": "Step time", "memory": "Memory"})
    ] = "time"
    reference: Annotated[bool, Asked("Calculon's too", parameter="calculon")] = Field(
        default=False, description="Takes some seconds the first time."
    )
    field: Annotated[str, Asked("Field")] = "num_gpus"
