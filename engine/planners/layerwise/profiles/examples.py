"""Example profiles that come with the planner; see `data/README.md`."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from engine.planners.layerwise.profiles.profile import LayerProfile, ProfileError
from engine.planners.layerwise.profiles.reading import profile_from

__all__ = ["ProfileExample", "example", "examples"]

FOLDER: Final = Path(__file__).parent / "data"
SOURCE: Final = "LER0ever/HPGO 0.9.2, profiles (BSD 3-Clause)"


@dataclass(frozen=True, slots=True)
class ProfileExample:
    """A profile of the package: its name, title, the batch at which it was taken, the batch of a step that its authors
    planned [samples], and remarks on its figures."""

    name: str
    title: str
    batch: float
    global_batch: int
    note: str


@lru_cache(maxsize=1)
def examples() -> tuple[ProfileExample, ...]:
    """Returns all examples, the best known first."""
    with (FOLDER / "profiles.csv").open(newline="", encoding="utf-8") as file:
        return tuple(
            ProfileExample(row["name"], row["title"], float(row["batch"]), int(row["global_batch"]), row["note"] or "")
            for row in csv.DictReader(file)
        )


@lru_cache(maxsize=32)
def example(name: str) -> LayerProfile:
    """Returns the example of a name, at its batch.

    Args:
        name: of an example that the package has.

    Raises `engine.planners.layerwise.profiles.profile.ProfileError` for an unknown name.
    """
    for each in examples():
        if each.name == name:
            found = profile_from(FOLDER / f"{name}.txt", each.batch)
            return LayerProfile(found.name, found.layers, found.edges, each.batch, SOURCE)
    listed = ", ".join(each.name for each in examples())
    raise ProfileError(f"There is no example {name[:60]!r}; examples are {listed}.")
