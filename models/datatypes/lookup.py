"""Datatypes of the register by name, by use and by the words of programs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from models.datatypes.entry import Datatype
from models.datatypes.register import PROGRAMS, REGISTER

__all__ = [
    "UnknownDatatypeError",
    "explain_refusal",
    "for_products",
    "is_known",
    "label_of",
    "named",
    "names",
    "spelled",
    "word_for",
    "words_of_program",
]


class UnknownDatatypeError(KeyError):
    """Datatype that the register does not have; the message says which there are."""

    def __str__(self) -> str:
        return str(self.args[0])


@cache
def _by_name() -> dict[str, Datatype]:
    return {each.name: each for each in REGISTER}


def names() -> tuple[str, ...]:
    """Return the names of all datatypes, in the order of the register."""
    return tuple(_by_name())


def is_known(name: object) -> bool:
    """Return whether the register has a datatype of this name.

    Args:
        name: a name, or anything else.
    """
    return isinstance(name, str) and name in _by_name()


def named(name: str) -> Datatype:
    """Return the datatype of a name.

    Args:
        name: as executions and systems have it.

    Raises:
        UnknownDatatypeError: the register does not have it.
    """
    found = _by_name().get(name)
    if found is None:
        raise UnknownDatatypeError(f"The datatype {str(name)[:60]!r} is unknown; there are {', '.join(names())}.")
    return found


def label_of(name: str) -> str:
    """Return the text of a datatype on screen; the name itself where the register does not have it.

    Args:
        name: any name.
    """
    found = _by_name().get(name)
    return name if found is None else found.label


@cache
def for_products(most_bits: int = 64, *, program: str = "") -> tuple[Datatype, ...]:
    """Return the datatypes of matrix products, in the order of the register.

    Args:
        most_bits: widest element [bits].
        program: one of `PROGRAMS` that has a word for them; any where empty.
    """
    return tuple(
        each
        for each in REGISTER
        if each.is_for_products and each.bits <= most_bits and (not program or program in each.words)
    )


@cache
def _spellings(program: str) -> dict[str, Datatype]:
    if program not in PROGRAMS:
        raise ValueError(f"{program[:60]!r} is no program with words for datatypes; there are {', '.join(PROGRAMS)}.")
    return {word.lower(): each for each in REGISTER for word in each.words.get(program, ())}


def spelled(program: str, word: str) -> Datatype | None:
    """Return the datatype that a program means by a word; None for a word that it does not have.

    Args:
        program: one of `PROGRAMS`.
        word: in any case.
    """
    return _spellings(program).get(word.strip().lower())


def words_of_program(program: str) -> tuple[str, ...]:
    """Return all words that a program has for datatypes, in lower case.

    Args:
        program: one of `PROGRAMS`.
    """
    return tuple(_spellings(program))


def word_for(program: str, name: str) -> str | None:
    """Return the word that a program takes for a datatype; None where it cannot use the datatype.

    Args:
        program: one of `PROGRAMS`.
        name: of a datatype.

    Raises:
        UnknownDatatypeError: the register does not have it.
    """
    _spellings(program)
    words = named(name).words.get(program, ())
    return words[0] if words else None


def explain_refusal(name: object, accepted: Iterable[str], subject: str) -> str:
    """Return the sentence that says why a datatype is refused and what would be right.

    Args:
        name: the datatype asked for, of any type.
        accepted: names of datatypes that are accepted.
        subject: who refuses, such as "The cost model calibrated".
    """
    there = ", ".join(accepted)
    if not is_known(name):
        return f"The datatype {str(name)[:60]!r} is unknown; it must be one of {there}."
    found = named(str(name))
    if not found.is_for_products:
        return f"{found.name} stores weights only, and products widen them first; the datatype must be one of {there}."
    return f"{subject} does not compute in {found.name!r}; it has {there}."
