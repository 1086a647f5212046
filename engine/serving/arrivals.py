"""Load of a service: requests that arrive at a rate, or users with one request each, and how their lengths vary."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from engine.serving.evaluation import WorkloadError
from models.documents import shown

__all__ = ["RequestTrace", "ServiceLoad", "read_trace"]

PROMPT_NAMES: Final = ("prompt", "ContextTokens", "input_tokens")
"""Names of the column with prompt tokens; the second is that of Azure's traces (AzurePublicDataset)."""
OUTPUT_NAMES: Final = ("output", "GeneratedTokens", "output_tokens")
TIME_NAMES: Final = ("arrival_s", "TIMESTAMP")
"""Names of the column with arrivals: seconds, or dates with times."""
LARGEST: Final = 2**30
"""Most tokens of a length [tokens]. Source: stated by us."""


@dataclass(frozen=True, slots=True)
class ServiceLoad:
    """Load of all replicas together: open with `request_rate` [1/s], or closed with `users`, each of whom waits for the
    answer to a request, thinks for `think_s` on average [s], and sends the next.

    Coefficients of variation (standard deviation over mean) of the times between arrivals, of the prompts and of the
    outputs []: arrivals of 1 are Poisson's, of 0 regular, above 1 bursts.
    """

    request_rate: float | None = None
    users: float | None = None
    arrival_cv: float = 1.0
    prompt_cv: float = 0.0
    output_cv: float = 0.0
    think_s: float = 0.0

    def __post_init__(self) -> None:
        """Raise `WorkloadError` for a load that is neither open nor closed, or for a number out of range."""
        if (self.request_rate is None) == (self.users is None):
            raise WorkloadError("A load has either request_rate, requests per second, or users; give one of them.")
        for name, least, most in (
            ("request_rate", 1e-6, 1e9),
            ("users", 1e-6, 1e9),
            ("arrival_cv", 0.0, 100.0),
            ("prompt_cv", 0.0, 10.0),
            ("output_cv", 0.0, 10.0),
            ("think_s", 0.0, 86_400.0),
        ):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise WorkloadError(f"{name} is {shown(value)}; it must be a number from {least:g} to {most:,.0f}.")
        if self.think_s and self.users is None:
            raise WorkloadError("think_s is the pause of users between requests; give users, or leave think_s out.")

    @property
    def amount(self) -> float:
        """Requests per second, or users."""
        found = self.request_rate if self.users is None else self.users
        assert found is not None
        return float(found)

    @property
    def is_open(self) -> bool:
        """True if requests arrive at a rate, however long others take."""
        return self.users is None


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """Moments of a trace of requests: mean lengths [tokens] with their coefficients of variation, and arrivals per
    second with theirs; None without times."""

    prompt: int
    output: int
    prompt_cv: float
    output_cv: float
    request_rate: float | None
    arrival_cv: float | None
    requests: int


def read_trace(text: str, name: str = "The trace") -> RequestTrace:
    """Return the moments of a trace of requests.

    Args:
        text: CSV with a header. Columns prompt and output [tokens], and optional arrival_s [s]; or ContextTokens,
            GeneratedTokens and TIMESTAMP, as in Azure's traces. Other columns are left out.
        name: of the file, for messages.

    Raises `WorkloadError` with one sentence for a missing column, a value that is no length, or times that go back.
    """
    try:
        table = pd.read_csv(io.StringIO(text))
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeError):
        raise WorkloadError(f"{name} is no CSV table; it needs a header with prompt and output.") from None
    prompt, output = (_read_lengths(table, names, name) for names in (PROMPT_NAMES, OUTPUT_NAMES))
    rate, spread = _read_arrivals(table, name)
    return RequestTrace(
        max(round(float(prompt.mean())), 1),
        max(round(float(output.mean())), 1),
        float(prompt.std() / prompt.mean()),
        float(output.std() / output.mean()),
        rate,
        spread,
        len(table),
    )


def _read_lengths(table: pd.DataFrame, names: tuple[str, ...], name: str) -> npt.NDArray[np.float64]:
    found = next((each for each in names if each in table), None)
    if found is None:
        columns = ", ".join(map(str, table.columns[:8]))
        raise WorkloadError(f"{name} has no column {' or '.join(names)}; its columns are {columns}.")
    if not len(table):
        raise WorkloadError(f"{name} has no requests; it needs a row for each.")
    values = pd.to_numeric(table[found], errors="coerce").to_numpy(np.float64)
    wrong = np.flatnonzero(~((values >= 1) & (values <= LARGEST)))
    if len(wrong):
        value = shown(str(table[found].iloc[wrong[0]]))
        raise WorkloadError(
            f"{name}, row {wrong[0] + 1:,}: {found} is {value}; it must be from 1 to {LARGEST:,} tokens."
        )
    return values


def _read_arrivals(table: pd.DataFrame, name: str) -> tuple[float | None, float | None]:
    """Return arrivals per second and their coefficient of variation; None without times or with one request."""
    found = next((each for each in TIME_NAMES if each in table), None)
    if found is None or len(table) < 2:
        return None, None
    if found == TIME_NAMES[0]:
        times = pd.to_numeric(table[found], errors="coerce").to_numpy(np.float64)
    else:
        dates = pd.to_datetime(table[found], errors="coerce", format="ISO8601")
        times = (dates - dates.iloc[0]).dt.total_seconds().to_numpy(np.float64)
    wrong = np.flatnonzero(~np.isfinite(times))
    if len(wrong):
        value = shown(str(table[found].iloc[wrong[0]]))
        raise WorkloadError(f"{name}, row {wrong[0] + 1:,}: {found} is {value}, which is no time of arrival.")
    gaps = np.diff(times)
    back = np.flatnonzero(gaps < 0)
    if len(back):
        raise WorkloadError(
            f"{name}, row {back[0] + 2:,} arrives before row {back[0] + 1:,}; sort the requests by {found}."
        )
    mean = float(gaps.mean())
    if not math.isfinite(mean) or mean <= 0:
        raise WorkloadError(f"{name}: all requests arrive at once; leave {found} out and give a rate.")
    return 1.0 / mean, float(gaps.std() / mean)
