"""Parameters of the page A day of service in links besides its question, declared once."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from engine.questions.fields import Asked
from engine.questions.verb import Document

__all__ = ["ASKED_FIELDS", "PAGE_NAME", "TABLE_PARAMETER", "DayLink"]

PAGE_NAME: Final = "day"
TABLE_PARAMETER: Final = f"{PAGE_NAME}_table"
ASKED_FIELDS: Final = (
    "model",
    "system",
    "prompt",
    "output",
    "time_to_first_token_s",
    "time_per_output_token_s",
    "held_at",
    "mean_first_token_s",
    "mean_per_token_s",
    "peak_rate",
    "trough_share",
    "peak_hour",
    "start_up_s",
    "scale_down_s",
    "least_replicas",
    "most_replicas",
    "most_procs",
    "price_usd_per_h",
    "reserved_usd_per_h",
    "arrival_cv",
    "prompt_cv",
    "output_cv",
    "room_for_error",
    "memory_share",
    "prefix_hit_rate",
)
"""Fields of a `DayQuestion` that the page reads."""


class DayLink(Document):
    """Parameters of the page besides its question: source of the demand, precisions and engines to try."""

    source: Annotated[
        Literal["shape", "file"], Asked("Demand", words={"shape": "Peak and trough", "file": "CSV file"})
    ] = "shape"
    table: Annotated[str, Asked("Demand as CSV")] = Field(
        default="", description="Columns time (hours, or 13:30) and requests_per_second; a row counts until the next."
    )
    weight_bits: Annotated[list[int], Asked("Weight bits")] = Field(default_factory=list)
    kv_bits: Annotated[list[int], Asked("KV cache bits")] = Field(default_factory=list)
    engine: Annotated[list[str], Asked("Engine")] = Field(default_factory=list)
