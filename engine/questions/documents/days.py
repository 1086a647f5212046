"""Question about a day of a service: demand over 24 hours, and rules for the replicas that follow it."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from engine.questions.documents.serving import Limit, LoadedModel
from engine.questions.fields import Asked
from models.documents import Number, Text, Whole

__all__ = ["DayQuestion"]

LONGEST_DEMAND: Final = 200_000
"""Characters, as in `engine.serving.days`."""
Seconds = Annotated[float, Number(0, 86_400)]


class DayQuestion(LoadedModel):
    """Question for the cheapest deployment that serves a demand over a day, with replicas that follow it."""

    peak_rate: Annotated[
        Annotated[float, Number(1e-6, 1e9)] | None, Asked("Peak", "requests/s", option="peak", parameter="peak")
    ] = Field(default=None, description="Highest demand of a day that rises and falls once. Give it or `demand`.")
    trough_share: Annotated[float, Number(0, 1), Asked("Trough over peak", option="trough", parameter="trough")] = (
        Field(default=0.3, description="Lowest demand as a share of the peak, 12 hours away from it.")
    )
    peak_hour: Annotated[float, Number(0, 24), Asked("Hour of the peak", "h", parameter="hour")] = Field(
        default=14.0, description="Time of the highest demand."
    )
    demand: Annotated[
        Annotated[str, Text(LONGEST_DEMAND, shortest=1)] | None, Asked("Demand as CSV", option_help="")
    ] = Field(
        default=None,
        description="CSV with columns time (hours, or 13:30) and requests_per_second, at most 1,440 rows; a row counts "
        "until the next. Instead of `peak_rate`.",
    )
    mean_first_token_s: Annotated[
        Limit | None, Asked("Mean first token", "s", option="mean-ttft", parameter="mean_ttft", parameter_unit="ms")
    ] = Field(default=None, description="Limit on the mean time to first token besides the others; none by default.")
    mean_per_token_s: Annotated[
        Limit | None, Asked("Mean per token", "s", option="mean-tpot", parameter="mean_tpot", parameter_unit="ms")
    ] = Field(default=None, description="Limit on the mean time per output token besides the others; none by default.")
    start_up_s: Annotated[Seconds, Asked("Start-up", "s")] = Field(
        default=300.0, description="Time from the start of a replica until it serves; paid."
    )
    scale_down_s: Annotated[Seconds, Asked("Scale-down delay", "s", option="scale-down", parameter="down")] = Field(
        default=300.0,
        description="Time for which a replica stays after it was last needed; 300 s is the default of Kubernetes.",
    )
    least_replicas: Annotated[int, Whole(0, 2**20), Asked("Least replicas", parameter="least")] = Field(
        default=1, description="Replicas that always run."
    )
    most_replicas: Annotated[Annotated[int, Whole(1, 2**20)] | None, Asked("Most replicas", parameter="most")] = Field(
        default=None, description="Replicas at once; demand beyond them is not served. No bound by default."
    )
    most_procs: Annotated[int, Whole(1, 2**20), Asked("Most GPUs")] = Field(
        default=4096, description="Most GPUs at once; demand beyond them is not served."
    )
    reserved_usd_per_h: Annotated[
        Annotated[float, Number(0, 1e6)] | None,
        Asked("Reserved price", "USD/h", option="reserved", parameter="reserved"),
    ] = Field(
        default=None,
        description="Price of a reserved GPU, which is paid all day; nothing is reserved by default. "
        "`price_usd_per_h` is the price on demand.",
    )
