"""Shipped studies: the co-design questions of Calculon's authors, ready to run."""

from __future__ import annotations

from importlib import resources

from engine.codesign.errors import StudyError
from engine.codesign.study import Study
from models.documents import did_you_mean

__all__ = ["ready_names", "ready_study"]


def ready_names() -> list[str]:
    """Return the names of the shipped studies, in alphabetical order."""
    folder = resources.files("engine.codesign") / "ready"
    return sorted(file.name.removesuffix(".json") for file in folder.iterdir() if file.name.endswith(".json"))


def ready_study(name: str) -> Study:
    """Return a shipped study. Raises `StudyError` naming those there are.

    Args:
        name: one of `ready_names`.
    """
    if name not in ready_names():
        there, near = ", ".join(ready_names()), did_you_mean(name, ready_names())
        raise StudyError(f"There is no ready study {name!r}{near}; there are {there}.")
    content = (resources.files("engine.codesign") / "ready" / f"{name}.json").read_bytes()
    return Study.from_json(content, f"the ready study {name}")
