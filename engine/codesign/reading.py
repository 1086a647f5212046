"""Results of a study from a folder, as far as computed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from engine.codesign.answers import Results
from engine.codesign.errors import FolderError
from engine.codesign.folder import ResultFolder
from engine.codesign.points import EXPLORED, STATUSES, row_schema
from engine.codesign.study import Study
from models.documents import shown

__all__ = ["best_per_budget", "front", "nothing_yet", "part_rows", "results", "study_in"]

ATTEMPTS: Final = 4
"""Number of times that parts are listed again if they were merged during reading."""


def results(folder: str | os.PathLike[str]) -> Results:
    """Return the results in a folder, as far as they are computed. Raises `FolderError` for a folder without a study.

    Args:
        folder: a folder or an fsspec URL, as given to `run`.
    """
    place = ResultFolder(folder)
    content = place.study()
    if content is None:
        raise FolderError(f"{shown(place.place)} holds no study; run one there first.")
    study = study_in(content, place)
    tables = _read_tables(place, study)
    # Parts of an earlier version have fewer columns of explorations.
    whole = pa.concat_tables(tables, promote_options="default") if tables else row_schema(study).empty_table()
    listed = whole.unify_dictionaries().to_pandas()
    # Parts of runs that ended may overlap: points in both are equal, and count once.
    once = listed.drop_duplicates("point").sort_values("point", kind="stable").reset_index(drop=True)
    return Results(study, once)


def nothing_yet(study: Study) -> Results:
    """Return the results of a study without computed points, for the questions that the study allows.

    Args:
        study: the study.
    """
    return Results(study, row_schema(study).empty_table().to_pandas())


def _read_tables(place: ResultFolder, study: Study) -> list[pa.Table]:
    """The rows of all parts."""
    for _ in range(ATTEMPTS):
        try:
            return [part_rows(place, study, name, first, count) for first, count, name in place.parts()]
        except FileNotFoundError:  # a run has ended meanwhile, and made one part of several
            continue
    raise FolderError(f"The parts in {shown(place.place)} keep changing; ask again.")


def study_in(content: bytes, place: ResultFolder) -> Study:
    """Returns the study of a folder. Raises `FolderError` for a text that is no study.

    Args:
        content: the text of the study, as the folder has it.
        place: the folder.
    """
    try:
        return Study.from_json(content, f"study.json in {shown(place.place)}")
    except (ValueError, RecursionError) as problem:  # of the study, its models, its systems or its calibration
        raise FolderError(str(problem)) from None


def part_rows(place: ResultFolder, study: Study, name: str, first: int, count: int) -> pa.Table:
    """Returns the rows of a part. Raises `FolderError` for a part of another study, with other columns, or with other
    points than its name says.

    Args:
        place: the folder.
        study: its study.
        name: of the part.
        first: first place of the study's order that it holds.
        count: how many places.
    """
    rows, key = place.rows(name)
    if key != study.key.encode():
        raise FolderError(
            f"{shown(name)} in {shown(place.place)} is of another study; remove it and run the study again."
        )
    known = row_schema(study)
    there = {field.name: field.type for field in rows.schema}
    # Parts of an earlier version have fewer columns of explorations.
    wrong = next((each.name for each in known if each.name not in EXPLORED and each.name not in there), None) or next(
        (name for name, kind in there.items() if name not in known.names or kind != _type_of(known, name)), None
    )
    if wrong is not None or len(there) < len(rows.schema):
        raise place.damage(name, f"its column {shown(wrong or 'point')} is missing, unknown or of another kind")
    designs = study.designs_before(min(first + count, study.places)) - study.designs_before(min(first, study.places))
    points = rows["point"].to_numpy()
    status = rows["status"].cast(pa.string())
    if (
        len(rows) != designs * len(study.models)
        or len(np.unique(points)) < len(points)
        or (len(points) and not 0 <= points.min() <= points.max() < study.points)
        or not pc.all(pc.is_in(status, pa.array(STATUSES)), min_count=0).as_py()
        or rows.filter(pc.equal(status, "ok"))["samples_per_s"].null_count
    ):
        raise place.damage(name, "its rows are not those of its points")
    return rows


def _type_of(known: pa.Schema, name: str) -> pa.DataType:
    found = known.field(name).type
    # Parquet keeps no width of the numbers of a dictionary.
    return pa.dictionary(pa.int32(), found.value_type) if pa.types.is_dictionary(found) else found


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
