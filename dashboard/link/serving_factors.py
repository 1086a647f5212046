"""Factors of one's own servers as links have them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from engine.serving import EngineFactors

__all__ = ["FACTORS_TEXT", "factors_document", "factors_text"]

_ENGINE: Final = r"(?:generic|vllm|sglang|trtllm)~\d{1,3}(?:\.\d{1,4})?~\d{1,3}(?:\.\d{1,4})?"
FACTORS_TEXT: Final = re.compile(rf"{_ENGINE}(?:~{_ENGINE}){{0,3}}~~\d{{4}}-[01]\d-[0-3]\d~.{{1,255}}")
"""Factors in links: engine, factor of the first token and per token; then day and system of the measurement."""


def factors_text(own: EngineFactors, date: str) -> str:
    """Return measured factors as links have them.

    Args:
        own: the factors.
        date: day of their measurement, such as 2026-11-20.
    """
    engines = (
        f"{name}~{each.time_to_first_token:.4f}~{each.time_per_output_token:.4f}" for name, each in own.engines.items()
    )
    return f"{'~'.join(engines)}~~{date}~{own.system}"


def factors_document(text: str) -> dict[str, Any]:
    """Return the calibration of factors in a link, as a document.

    Args:
        text: that `FACTORS_TEXT` matches.
    """
    engines, _, rest = text.partition("~~")
    date, _, system = rest.partition("~")
    words = engines.split("~")
    parameters = {
        f"factor.{words[place]}.{figure}": {"value": float(words[place + more]), "kind": "measured", "source": "a link"}
        for place in range(0, len(words), 3)
        for more, figure in ((1, "time_to_first_token"), (2, "time_per_output_token"))
    }
    return {
        "format": "shardscape-calibration/1",
        "name": f"own servers, {date}",
        "subject": "serving",
        "system": system,
        "fitted_on": "results of own servers, read on the page Serving",
        "date": date,
        "parameters": parameters,
    }
