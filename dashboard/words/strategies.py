"""Strategy vectors as text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

__all__ = ["matches", "short_solution", "short_vector", "vector_text"]

_SHORT: Final = (
    ("fully sharded data parallel (FSDP)", "FSDP"),
    ("Megatron tensor and sequence parallel, experts split", "Megatron + EP"),
    ("Megatron tensor and sequence parallel", "Megatron + SP"),
    ("Megatron tensor parallel", "Megatron"),
    ("data and expert parallel", "data + EP"),
    ("tensor and expert parallel", "tensor + EP"),
    (" and expert parallel", " + EP"),
    ("data parallel", "data"),
    (" outside, ", " × "),
    (" inside", ""),
)
"""Words of a solution's name -> shorter ones."""


def vector_text(vector: Sequence[Any]) -> str:
    """Returns the strategies of the blocks with commas; on two mesh axes both of each, as 10.

    vector: whole numbers, or one for every axis.
    """
    return ",".join("".join(map(str, each)) if isinstance(each, tuple) else str(each) for each in vector)


def short_vector(vector: Sequence[Any], most: int = 16) -> str:
    """Returns a vector as text, strategies that follow each other counted where it is longer than `most`: 11×9,13."""
    text = vector_text(vector)
    if len(text) <= most:
        return text
    runs = ((one, len(list(several))) for one, several in groupby(text.split(",")))
    return ",".join(one if number == 1 else f"{one}×{number}" for one, number in runs)


def short_solution(name: str, most: int = 0) -> str:
    """Return the name of a solution as the label of a bar: outer and inner mesh axis with a cross.

    most: length up to which a name stays as it is.
    """
    if len(name) <= most:
        return name
    for words, shorter in _SHORT:
        name = name.replace(words, shorter)
    return name


def matches(text: str, pattern: str) -> bool:
    """Return whether a vector matches the beginning of a pattern: strategies with commas, a star for any, empty for
    all."""
    wanted, there = [each for each in pattern.split(",") if each], text.split(",")
    return len(wanted) <= len(there) and all(each in ("*", own) for each, own in zip(wanted, there, strict=False))
