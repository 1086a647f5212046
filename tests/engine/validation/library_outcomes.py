"""The library's runs as the cost model reads and predicts them, once for all tests that only look at them."""

from functools import cache

import pandas as pd

from engine.validation import library_runs, validate
from engine.validation.mapping import Mapped, map_runs


@cache
def mapped() -> Mapped:
    """The runs as executions on their systems."""
    return map_runs(library_runs())


@cache
def outcomes() -> pd.DataFrame:
    """What is predicted of every run."""
    return validate(library_runs())
