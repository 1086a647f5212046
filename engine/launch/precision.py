"""Datatypes in the words of frameworks, from the register `models.datatypes`."""

from __future__ import annotations

from typing import Any

from engine.launch.contract import LaunchError
from engine.launch.report import OPEN, Report
from models import datatypes
from models.datatypes import Datatype

__all__ = ["datatype_for", "read_word"]


def read_word(report: Report, program: str, name: str, word: str) -> Any:
    """Return the datatype that a framework means by a word; `OPEN`, with a remark, for a word that means no other.

    Args:
        report: takes the remark.
        program: one of `models.datatypes.PROGRAMS`.
        name: the setting, as the file calls it.
        word: its value.
    """
    found = datatypes.spelled(program, word)
    if found is not None and found.is_for_products:
        return found.name
    known = ", ".join(datatypes.words_of_program(program))
    report.remark(f"{name} {word[:40]} is no datatype known here, so the datatype is left open; known are {known}.")
    return OPEN


def datatype_for(program: str, title: str, name: str) -> Datatype:
    """Return the datatype that a configuration is written in.

    Args:
        program: one of `models.datatypes.PROGRAMS`.
        title: name of the framework.
        name: datatype of the execution.

    Raises:
        LaunchError: the framework has no word for it; one sentence with the datatypes that it has.
    """
    if datatypes.is_known(name) and datatypes.word_for(program, name):
        return datatypes.named(name)
    accepted = [each.name for each in datatypes.for_products(program=program)]
    raise LaunchError(f"{title} does not train in {name}; it has {', '.join(accepted)}.")
