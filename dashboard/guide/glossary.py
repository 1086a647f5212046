"""The glossary: every field and headline figure of the register, with what the frameworks call it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from engine.columns import ALL_FIELDS, HEADLINE_OF_ANY, Column

__all__ = ["glossary"]


def glossary() -> str:
    """Returns the chapter in Markdown: fields by group, then figures, each with its name in files and its meaning."""
    fields = groupby(sorted(ALL_FIELDS, key=lambda column: column.group), lambda column: column.group)
    parts = [
        "# Glossary\n",
        "Every choice of an execution and every headline figure, as the register of columns describes them: the word "
        "on the pages, the name in files, links and commands, the unit, and what it means.\n",
        *(f"## {group}\n\n{_column_entries(columns)}\n" for group, columns in fields),
        f"## Figures\n\n{_column_entries(HEADLINE_OF_ANY)}\n",
    ]
    return "\n".join(parts)


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
