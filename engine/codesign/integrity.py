"""Integrity of the files of a results folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from engine.codesign.checksums import FileState
from engine.codesign.errors import FolderError
from engine.codesign.folder import STUDY, ResultFolder
from engine.codesign.reading import part_rows, study_in

__all__ = ["FolderCheck", "check_folder"]


@dataclass(frozen=True, slots=True)
class FolderCheck:
    """State of every file of a results folder; `problems` describes the damage of each damaged file."""

    place: str
    files: dict[str, FileState]
    problems: dict[str, str]
    points: int
    """Points in undamaged parts; a point that two parts hold counts twice until they are merged."""
    total: int
    """Points of the study; 0 where the study itself is damaged."""

    @property
    def is_sound(self) -> bool:
        """Return True if no file is damaged; files without a checksum count as undamaged if they can be read."""
        return not self.problems

    @property
    def sentence(self) -> str:
        """The result in words."""
        states = list(self.files.values())
        counts = [
            f"{states.count(state):,} {words}"
            for state, words in (
                ("verified", "verified by checksum"),
                ("no checksum", "readable but without a checksum, as earlier versions write them"),
                ("damaged", "damaged"),
            )
            if state in states
        ]
        return f"{len(states):,} file{'s' if len(states) != 1 else ''}: {', '.join(counts)}."

    def as_json(self) -> dict[str, Any]:
        """Returns the result as a JSON document."""
        return {
            "folder": self.place,
            "sound": self.is_sound,
            "files": self.files,
            "problems": self.problems,
            "points": self.points,
            "total": self.total,
        }


def check_folder(folder: str | os.PathLike[str]) -> FolderCheck:
    """Returns the state of every file of a results folder. Nothing is changed.

    Args:
        folder: a folder or an fsspec URL, as given to `run`.

    Raises `FolderError` where there is no study, or the folder cannot be read at all.
    """
    place = ResultFolder(folder)
    files: dict[str, FileState] = {STUDY: place.study_state()}
    problems: dict[str, str] = {}
    study = None
    try:
        content = place.study()
        study = None if content is None else study_in(content, place)
    except FolderError as problem:
        files[STUDY], problems[STUDY] = "damaged", str(problem)
    points = 0
    for first, count, name in place.parts():
        files[name] = place.part_state(name)
        try:
            points += len(place.rows(name)[0] if study is None else part_rows(place, study, name, first, count))
        except FolderError as problem:
            files[name], problems[name] = "damaged", str(problem)
    return FolderCheck(place.place, files, problems, points, 0 if study is None else study.points)
