"""Parameters of the Calibrate page in links, declared once."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import Field

from engine.questions.fields import Asked
from engine.questions.verb import Document

__all__ = ["NAMES", "PAGE_NAME", "CalibrateLink"]

PAGE_NAME: Final = "calibrate"
NAMES: Final = re.compile(r"[a-z0-9_]+(?:-[a-z0-9_]+){0,5}")
"""Names of up to six parameters."""


class CalibrateLink(Document):
    """Parameters of the page: the runs, the fit, and the ranking of the scenario."""

    example: Annotated[str, Asked("Example")] = ""
    system: Annotated[str, Asked("System of the runs")] = ""
    base: Annotated[str, Asked("Base")] = Field(
        default="global", description="Starting values of the fit; it changes them only if the runs demand it."
    )
    parameters: Annotated[str, Asked("Parameters to fit")] = Field(
        default="", description="Parameters to fit (1 to 6). Empty: the best-determined three to six."
    )
    rank: Annotated[bool, Asked("Rank its executions again")] = Field(
        default=False, description="Finds the best executions by both calibrations. Takes seconds for large spaces."
    )
