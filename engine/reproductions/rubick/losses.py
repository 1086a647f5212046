"""Training losses of one model under several plans, and their differences: figure 9, or a table of the user's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pandas as pd

from engine.planners.elastic.measured.csv_rows import MeasurementError, csv_rows, csv_text, number
from models.documents import shown

__all__ = ["loss_differences", "losses", "parity"]

FOLDER: Final = Path(__file__).parent / "data"
LONGEST_NAME: Final = 100
"""Characters of the column of a run at most."""


def losses(source: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Returns mean losses of LLaMA-2-7B under several plans, one row per 25 minibatches, or the losses of another file.

    Columns: `minibatch`, the last one of the mean, and one per run, named by its plan: 181, 241, 421, 811, and 181_seed
    with another seed.

    Args:
        source: CSV with a column `minibatch` and one `loss_<run>` per run; the artifact's where None.

    Raises `engine.planners.elastic.measured.MeasurementError` naming row and field.
    """
    text, where = csv_text(FOLDER / "fig9_loss_avg25.csv" if source is None else source)
    rows = []
    for line, row in csv_rows(text, where, ("minibatch",)):
        runs = [name for name in row if name.startswith("loss_")]
        if not runs:
            raise MeasurementError(f"{where} has no column of losses; name them loss_181 and the like.")
        if taken := [name for name in runs if name in ("loss_", "loss_minibatch")]:
            raise MeasurementError(f"{where} has the column {taken[0]!r}, which names no run; name it as loss_181.")
        if long := [name for name in runs if len(name) > LONGEST_NAME]:
            raise MeasurementError(f"{where} has the column {shown(long[0])}; it may have {LONGEST_NAME} characters.")
        told = {name.removeprefix("loss_"): number(row, name, f"{where}, line {line}", low=-1e30) for name in runs}
        rows.append({"minibatch": int(number(row, "minibatch", f"{where}, line {line}")), **told})
    if not rows:
        raise MeasurementError(f"{where} has no rows.")
    return pd.DataFrame(rows)


def loss_differences(table: pd.DataFrame, against: str = "181") -> pd.DataFrame:
    """Returns by how much each run's loss differs from that of one run, without sign.

    Args:
        table: of `losses`.
        against: the run to compare with.

    Raises `engine.planners.elastic.measured.MeasurementError` where there is no such run.
    """
    if against not in table.columns or against == "minibatch":
        runs = ", ".join(str(name) for name in table.columns if name != "minibatch")
        raise MeasurementError(f"There are no losses of {against!r}; there are those of {runs}.")
    others = [name for name in table.columns if name != "minibatch"]
    return pd.DataFrame(
        {"minibatch": table["minibatch"], **{run: (table[run] - table[against]).abs() for run in others}}
    )


def parity(table: pd.DataFrame, against: str = "181") -> pd.DataFrame:
    """Returns one row per run: mean, largest and last difference of its loss from that of one run.

    Args:
        table: of `losses`.
        against: the run to compare with.
    """
    found = loss_differences(table, against).drop(columns="minibatch")
    means, largest = found.mean().to_numpy(), found.max().to_numpy()
    return pd.DataFrame({"run": found.columns, "mean": means, "max": largest, "last": found.iloc[-1].to_numpy()})
