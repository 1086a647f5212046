"""Every way an execution can be invalid or infeasible, declared in `reasons.csv`.

`infeasible` is what the reference model rejects with its own error: a well-formed execution that this system
cannot run. `invalid` is an execution that is not well formed: the reference dies on it, or silently misreads it.

The position in `REASONS` is the order of checking: the first that applies is the one reported. It is also the
small integer that arrays carry (0 is "no reason": the execution is fine).

Source: order and wording of the checks in Calculon 0.1.0 (commit caa4b11), `Llm.Execution.__init__`, `Llm.compile`
and `Llm._check_mem_caps`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import pyarrow as pa

from engine.columns.tables import read_table
from engine.executions.sentences import filled, pieces

__all__ = [
    "BY_CODE",
    "FITS",
    "REASONS",
    "Reason",
    "code_of",
    "number_of",
    "placeholders",
    "read_reasons",
    "sentence",
]


@dataclass(frozen=True, slots=True)
class Reason:
    """One way of failing.

    `code` is stable and meant for programs. `label` is what a chart prints. `template` is the sentence for one
    execution: `{name}` is a number or word of that execution (a field, or one of the quantities that the check used).
    """

    code: str
    status: Literal["infeasible", "invalid"]
    label: str
    template: str


def read_reasons(package: str) -> tuple[Reason, ...]:
    """Return the reasons of a package, declared in its `reasons.csv`, in the order of checking.

    Args:
        package: package that the table is in.
    """
    return tuple(
        Reason(row["code"], cast(Literal["infeasible", "invalid"], row["status"]), row["label"], row["template"])
        for row in read_table(package, "reasons.csv")
    )


FITS = 0
"""Reason number of an execution that nothing is wrong with."""

REASONS = read_reasons("engine.executions")
"""Reasons in the order of checking: malformed values, which the reference does not look at, come first; then the
assertions of its constructor, in their order. Rows keep their positions, since stores refer to reasons by position."""

BY_CODE: Mapping[str, Reason] = {reason.code: reason for reason in REASONS}
_NUMBERS: Mapping[str, int] = {reason.code: position for position, reason in enumerate(REASONS, start=1)}


def number_of(code: str) -> int:
    """Return the number of a reason code in arrays; 0 means "nothing is wrong". Raises KeyError.

    Args:
        code: one of `REASONS`.
    """
    return _NUMBERS[code]


def code_of(number: int) -> str:
    """Returns the stable code of a reason number, "" for 0.

    Args:
        number: from an array.
    """
    return "" if number == FITS else REASONS[number - 1].code


def sentence(code: str, quantities: Mapping[str, Any], rows: int) -> pa.Array:
    """Returns the sentences of `rows` executions that share one reason; see `engine.executions.sentences.filled`.

    Args:
        code: one of `REASONS`.
        quantities: one value for all, or an array [rows], by placeholder.
        rows: how many executions [count].
    """
    return filled(BY_CODE[code].template, quantities, rows)


def placeholders(code: str) -> list[str]:
    """Returns what the sentence of a reason is filled with.

    Args:
        code: one of `REASONS`.
    """
    return [name for _, name in pieces(BY_CODE[code].template) if name is not None]
