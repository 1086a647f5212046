"""Results from a folder, as far as they are there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from engine.codesign.answers import Results
from engine.codesign.errors import FolderError
from engine.codesign.folder import ResultFolder
from engine.codesign.points import row_schema
from engine.codesign.study import Study
from models.documents import shown

__all__ = ["best_per_budget", "front", "nothing_yet", "results"]

ATTEMPTS: Final = 4
"""How often parts are listed again that were merged while they were read."""


def results(folder: str | os.PathLike[str]) -> Results:
    """Returns the results in a folder, as far as they are there. Raises `FolderError` where there are none.

    Args:
        folder: a folder or an fsspec URL, as given to `run`.
    """
    place = ResultFolder(folder)
    content = place.study()
    if content is None:
        raise FolderError(f"{shown(place.place)} holds no study; run one there first.")
    study = Study.from_json(content, f"study.json in {shown(place.place)}")
    tables = _tables(place, study)
    # Parts of an earlier version have fewer columns of explorations.
    whole = pa.concat_tables(tables, promote_options="default") if tables else row_schema(study).empty_table()
    listed = whole.unify_dictionaries().to_pandas()
    # Parts of runs that ended may overlap: what is in both is equal, and counts once.
    once = listed.drop_duplicates("point").sort_values("point", kind="stable").reset_index(drop=True)
    return Results(study, once)


def nothing_yet(study: Study) -> Results:
    """Returns the results of a study of which nothing is computed: it says which questions have answers at all.

    Args:
        study: the study.
    """
    return Results(study, row_schema(study).empty_table().to_pandas())


def _tables(place: ResultFolder, study: Study) -> list[pa.Table]:
    """The rows of all parts."""
    for _ in range(ATTEMPTS):
        try:
            return [_rows(place, study, name) for _, _, name in place.parts()]
        except FileNotFoundError:  # a run has ended meanwhile, and made one part of several
            continue
    raise FolderError(f"The parts in {shown(place.place)} keep changing; ask again.")


def _rows(place: ResultFolder, study: Study, name: str) -> pa.Table:
    rows, key = place.rows(name)
    if key != study.key.encode():
        raise FolderError(
            f"{shown(name)} in {shown(place.place)} is of another study; remove it and run the study again."
        )
    return rows


def front(
    found: Results | str | os.PathLike[str], objectives: Sequence[str] | None = None, **asked: Any
) -> pd.DataFrame:
    """Returns the Pareto front of results, or of those in a folder; see `Results.front`.

    Args:
        found: results, or their folder.
        objectives: names of quantities; None for the study's.
        **asked: as for `Results.front`.
    """
    return (found if isinstance(found, Results) else results(found)).front(objectives, **asked)


def best_per_budget(
    found: Results | str | os.PathLike[str], budgets: Sequence[float] | None = None, **asked: Any
) -> pd.DataFrame:
    """Returns the best design per budget of results, or of those in a folder; see `Results.best_per_budget`.

    Args:
        found: results, or their folder.
        budgets: bounds of what a design may cost; None for every one that matters.
        **asked: as for `Results.best_per_budget`.
    """
    return (found if isinstance(found, Results) else results(found)).best_per_budget(budgets, **asked)
