"""The glossary: every field and headline figure of the register, with what the frameworks call it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from engine.columns import ALL_FIELDS, HEADLINE_OF_ANY, Column

__all__ = ["glossary", "terms"]

_FIGURES: Final = "Figures"
"""Heading of the figures, after the headings of groups of fields."""


def glossary() -> str:
    """Returns the chapter in Markdown: fields by group, then figures, each with its name in files and its meaning."""
    fields = groupby(sorted(ALL_FIELDS, key=lambda column: column.group), lambda column: column.group)
    parts = [
        "# Glossary\n",
        "Every choice of an execution and every headline figure, as the register of columns describes them: the word "
        "on the pages, the name in files, links and commands, the unit, and what it means.\n",
        *(f"## {group}\n\n{_column_entries(columns)}\n" for group, columns in fields),
        f"## {_FIGURES}\n\n{_column_entries(HEADLINE_OF_ANY)}\n",
    ]
    return "\n".join(parts)


def terms() -> list[tuple[str, str]]:
    """Returns the terms of the glossary with their short forms, each with the heading that it is under."""
    found = [(column, column.group) for column in ALL_FIELDS] + [(column, _FIGURES) for column in HEADLINE_OF_ANY]
    return [
        (column.label if column.short == column.label else f"{column.label} ({column.short})", heading)
        for column, heading in found
    ]


def _column_entries(columns: Iterable[Column]) -> str:
    """One item per column."""
    return "\n".join(
        f"- **{column.label}** `{column.name}`{f' [{column.unit}]' if column.unit else ''}: {column.description}"
        f"{_listed_choices(column)}"
        for column in columns
    )


def _listed_choices(column: Column) -> str:
    """Return the choices of a column that has some."""
    return f" One of {', '.join(f'`{choice}`' for choice in column.choices)}." if column.choices else ""
