"""Predictions of the surface and of measured runs: of the present code, of a file, and as accepted in the package."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd

from engine.cost_models.calibrated import parameters
from engine.validation.accepted import stored_predictions
from engine.validation.mapping import Mapped
from engine.validation.predict import predict_runs
from engine.validation.regression.evaluation import OUTCOME_COLUMNS, RUN_COLUMNS, predict_parts
from engine.validation.regression.surface import SurfacePart, differing_fields

__all__ = [
    "KEY",
    "SURFACE_FILE",
    "GateError",
    "GatePredictions",
    "accepted_predictions",
    "identify",
    "predict_now",
    "read_predictions",
    "write_predictions",
    "write_surface",
]

SURFACE_FILE = Path(str(files("engine.validation").joinpath("data", "surface.csv.gz")))
"""Accepted predictions of the surface."""
KEY = ("model", "seq_size", "system", "execution")
"""Columns that identify an execution across revisions."""
MEASURED = "measured run"
"""System of the rows of a file that are measured runs; `execution` is then the id of the run."""
DIGITS = "%.6g"
MOST_BYTES = 20_000_000
"""Largest file of predictions that is read [bytes]."""


class GateError(ValueError):
    """A revision or a file of predictions that cannot be read; one sentence."""


@dataclass(frozen=True)
class GatePredictions:
    """Predictions of one revision.

    `surface`: `KEY` and `OUTCOME_COLUMNS` [executions]. `runs`: `RUN_COLUMNS` [measured runs].
    """

    surface: pd.DataFrame
    runs: pd.DataFrame


def identify(parts: Sequence[SurfacePart]) -> pd.DataFrame:
    """Return the columns of `KEY` of all executions of a surface, in order.

    Args:
        parts: what `build_surface` returned.
    """
    rows = [
        (part.model, part.seq_size, part.system, differing_fields(one)) for part in parts for one in part.executions
    ]
    return pd.DataFrame(rows, columns=list(KEY))


def predict_now(
    parts: Sequence[SurfacePart], mapped: Mapped, progress: Callable[[float], None] | None = None
) -> GatePredictions:
    """Return the predictions of the present code.

    Args:
        parts: what `build_surface` returned.
        mapped: measured runs as the cost model reads them.
        progress: called with the share that is done.
    """

    def report(done: int) -> None:
        if progress is not None:
            progress(done / len(parts))

    found = predict_parts([asdict(part) for part in parts], report)
    surface = pd.concat([identify(parts), pd.DataFrame(found, columns=list(OUTCOME_COLUMNS))], axis=1)
    return GatePredictions(surface, predict_runs(mapped, parameters())[list(RUN_COLUMNS)])


def accepted_predictions() -> GatePredictions:
    """Return the accepted predictions of the package."""
    return GatePredictions(read_predictions(SURFACE_FILE).surface, stored_predictions())


def write_surface(surface: pd.DataFrame, path: Path = SURFACE_FILE) -> None:
    """Write predictions of the surface as a compressed CSV file, the same bytes for the same predictions.

    Args:
        surface: `KEY` and `OUTCOME_COLUMNS` [executions].
        path: where to.
    """
    text = surface.to_csv(index=False, float_format=DIGITS, lineterminator="\n")
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def write_predictions(predictions: GatePredictions, path: Path) -> None:
    """Write predictions of the surface and of measured runs as one compressed CSV file.

    Args:
        predictions: of one revision.
        path: where to.
    """
    runs = predictions.runs
    reason = runs["reason"].where(runs["status"] != "predicted", "ok")
    rows: dict[str, Any] = {"model": "", "seq_size": 0, "system": MEASURED, "execution": runs["id"], "outcome": reason}
    rows |= {"seconds": runs["predicted_step_time_s"], "gib": runs["predicted_mem_gib"]}
    write_surface(pd.concat([predictions.surface, pd.DataFrame(rows)], ignore_index=True), path)


def read_predictions(path: Path) -> GatePredictions:
    """Return the predictions of a file that `write_predictions` wrote.

    Args:
        path: of the file.

    Raises:
        GateError: the file cannot be read or is not such a file.
    """
    try:
        with gzip.open(path) as file:
            content = file.read(MOST_BYTES + 1)
        table = pd.read_csv(
            io.BytesIO(content[:MOST_BYTES]), keep_default_na=False, na_values={"seconds": [""], "gib": [""]}
        )
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise GateError(f"{path} is no file of predictions, as gate --store writes them: {error}.") from None
    if list(table.columns) != [*KEY, *OUTCOME_COLUMNS] or len(content) > MOST_BYTES:
        raise GateError(f"{path} is no file of predictions: its columns must be {', '.join((*KEY, *OUTCOME_COLUMNS))}.")
    measured = table["system"] == MEASURED
    found = table[measured]
    is_ok = found["outcome"] == "ok"
    runs = pd.DataFrame(
        {
            "id": found["execution"],
            "status": is_ok.map({True: "predicted", False: "unsupported"}),
            "reason": found["outcome"].where(~is_ok, ""),
            "predicted_step_time_s": found["seconds"],
            "predicted_mem_gib": found["gib"],
        }
    )
    return GatePredictions(table[~measured].reset_index(drop=True), runs.reset_index(drop=True))
