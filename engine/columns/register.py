"""Register of all fields and results: name, unit, description, type, grouping and the better direction.

Table definitions (`schemas`), labels, units, tooltips, exports and help derive from here, so a column is described
exactly once.
Names and order follow Calculon's execution files and statistics, so that its files can be read like ours.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal

from engine.columns.derived import DERIVED_ROWS, FITS
from engine.columns.fields import CHOICE_LABELS, EXTENSION_ROWS, FIELD_ROWS, GROUPS, NETWORKS, SCENARIO, FieldRow
from engine.columns.open_words import OpenWords
from engine.columns.recompute_modules import word_of_modules
from engine.columns.rules import FieldCondition, holds
from engine.columns.stage_layouts import LAYOUTS, canonical
from engine.columns.statistics import EXTENSION_STATISTIC_ROWS, SHARE_ROWS, STATISTIC_ROWS, StatisticRow
from models.documents import near_matches, shown

if TYPE_CHECKING:
    import pandas as pd

UNITS: Final[frozenset[str]] = frozenset({"", "s", "bytes", "FLOP", "bytes/s", "samples/s", "fraction"})
"""Every unit a column may have: "" is a count, a flag or a text; "fraction" lies between 0 and 1 and is shown in %."""


class UnknownColumn(ValueError):  # noqa: N818 - reads as a sentence where it is raised, and callers know it by this name
    """Unknown name of a column."""


@dataclass(frozen=True, slots=True)
class Column:
    """One field of an execution or one result about it."""

    name: str
    """Calculon's name, such as "tensor_par"."""
    label: str
    """Name on screen, such as "Tensor parallel"."""
    short: str
    """Name in a table header, such as "TP"."""
    unit: str
    """One of `UNITS`."""
    kind: Literal["identifier", "field", "outcome", "statistic"]
    dtype: Literal["int64", "float64", "bool", "str"]
    """Type in data frames that the engine returns; storage may be narrower (`arrow_type`)."""
    group: str
    """Heading under which choosers list the column."""
    better: Literal["higher", "lower"] | None
    """Direction of improvement; None if neither is better in general."""
    description: str
    """One or two sentences."""
    choices: tuple[str, ...] = ()
    """Accepted values of a text field in enumeration order; empty where any text or number may appear. See `open`."""
    headline: bool = False
    """True if the value is stored for every feasible execution."""
    default: int | bool | str | None = None
    """Value of a field that an execution does not give, and the only value that a space tries unless its cost model
    tries more. None for fields that every execution gives."""
    applies: tuple[FieldCondition, ...] = ()
    """Conditions under which the field has an effect: all must hold; see `applies`."""
    after: str = ""
    """Name of the field behind which lists show this one, where that is not its place in the register."""
    numbers: tuple[int, ...] = ()
    """Accepted values of a number field that has few; empty where they depend on model and system."""
    open: OpenWords | None = field(default=None, compare=False)
    """Words of a text field beyond its choices, where others follow a grammar; None where there are no others."""

    @property
    def words(self) -> tuple[str, ...]:
        """Words of a text field by the positions that arrays hold, the choices first."""
        return self.choices if self.open is None else self.open.words

    def position(self, word: str) -> int:
        """Returns the position of a word among the words of a text field, -1 for an unknown word.

        Args:
            word: any text.
        """
        if self.open is None:
            return self.choices.index(word) if word in self.choices else -1
        try:
            return self.open.position(word)
        except ValueError:
            return -1

    def rank(self, word: str) -> tuple[int, str]:
        """Returns where lists show a word of a text field, to sort by: choices in their order, then others by letters.

        Args:
            word: of the field.
        """
        return (self.choices.index(word) if word in self.choices else len(self.choices), word)

    @property
    def of_scenario(self) -> bool:
        """Return whether the field is chosen for a whole scenario and not varied."""
        return self.group == SCENARIO

    @property
    def of_network(self) -> bool:
        """Return whether the values are positions of networks, 0 being the innermost."""
        return self.group == NETWORKS and self.dtype == "int64"

    @property
    def least(self) -> int:
        """Smallest value of a number field: networks, and numbers that are 0 by default, count from 0; others from
        1."""
        return min(self.numbers) if self.numbers else 0 if self.of_network or self.default == 0 else 1


ID: Final = Column(
    name="id",
    label="Execution id",
    short="id",
    unit="",
    kind="identifier",
    dtype="int64",
    group="Result",
    better=None,
    description="Position of the execution in the enumeration of its space, counted from 0.",
)


_OPEN: Final = {
    "stage_layout": OpenWords(LAYOUTS, canonical),
    "selective_recompute": OpenWords(
        next(row.choices for row in EXTENSION_ROWS if row.name == "selective_recompute"), word_of_modules
    ),
}
"""Fields with more words than their choices."""


def _build_field_column(row: FieldRow) -> Column:
    return Column(
        row.name,
        row.label,
        row.short,
        "",
        "field",
        row.dtype,
        row.group,
        None,
        row.description,
        row.choices,
        default=row.default,
        applies=row.applies,
        after=row.after,
        numbers=row.numbers,
        open=_OPEN.get(row.name),
    )


FIELDS: Final[tuple[Column, ...]] = tuple(map(_build_field_column, FIELD_ROWS))
"""The 23 fields that make up one execution of Calculon's."""

EXTENSIONS: Final[tuple[Column, ...]] = tuple(map(_build_field_column, EXTENSION_ROWS))
"""Fields of the calibrated cost model in addition to Calculon's 23."""

ALL_FIELDS: Final[tuple[Column, ...]] = (*FIELDS, *EXTENSIONS)
"""Every field that some cost model has."""

NEUTRAL_EXTENSIONS: Final = {column.name: column.default for column in EXTENSIONS}
"""Values of the extension fields in an execution that lacks them."""


def outcome_columns(status: str, reason: str, reason_text: str) -> tuple[Column, ...]:
    """Return the columns of an outcome: status, reason and reason in words.

    Args:
        status, reason, reason_text: descriptions of the three.
    """
    rows = (
        ("status", "Status", "status", status, ("ok", "infeasible", "invalid")),
        ("reason", "Reason", "reason", reason, ()),
        ("reason_text", "Reason in words", "why", reason_text, ()),
    )
    return tuple(
        Column(name, label, short, "", "outcome", "str", "Outcome", None, description, choices)
        for name, label, short, description, choices in rows
    )


def statistic_columns(rows: Iterable[StatisticRow]) -> tuple[Column, ...]:
    """Return the columns of statistics.

    Args:
        rows: statistics as they are declared.
    """
    return tuple(
        Column(
            row.name,
            row.label,
            row.short,
            row.unit,
            "statistic",
            "float64",
            row.group,
            row.better,
            row.description,
            headline=row.headline,
        )
        for row in rows
    )


OUTCOME: Final = outcome_columns(
    "Whether the execution runs (ok), is well formed but cannot run on this system (infeasible), or makes no sense "
    "as written (invalid).",
    "Stable code of the first rule that the execution breaks; empty when it runs.",
    "Sentence with the numbers that make the execution infeasible or invalid; empty when it runs.",
)
"""Status, reason and reason in words of an execution."""

STATISTICS: Final = statistic_columns(STATISTIC_ROWS)
"""The 96 results of an execution that runs."""

EXTENSION_STATISTICS: Final = statistic_columns(EXTENSION_STATISTIC_ROWS)
"""Results of the calibrated cost model in addition to Calculon's 96."""

HEADLINE: Final[tuple[Column, ...]] = tuple(column for column in STATISTICS if column.headline)
"""The statistics stored for every feasible execution, in the order of `STATISTICS`."""

ALL: Final[tuple[Column, ...]] = (ID, *ALL_FIELDS, *OUTCOME, *STATISTICS, *EXTENSION_STATISTICS)
"""Every column, in the order in which a complete table shows them."""

HEADLINE_OF_ANY: Final[tuple[Column, ...]] = (*HEADLINE, *(each for each in EXTENSION_STATISTICS if each.headline))
"""The statistics that some cost model stores for every feasible execution."""

STORED_OF_ANY: Final[tuple[Column, ...]] = (ID, *ALL_FIELDS, *HEADLINE_OF_ANY)
"""Columns that stored rows of any cost model have; `stored_of` returns the columns of one cost model."""

SHARES: Final[tuple[Column, ...]] = tuple(
    Column(name, label, short, "fraction", "statistic", "float64", "Result", "lower", description)
    for name, label, short, _, description in SHARE_ROWS
)
"""Shares of the step time. Stored rows answer them as if they had them; they are no results of an execution's own."""

DERIVED: Final = statistic_columns(DERIVED_ROWS)
"""Figures that follow from the throughput by one factor of the scenario (`engine.economics.derived`). Their units may
be others than `UNITS`."""

FIT: Final = Column(
    "fit",
    "Memory fit",
    "fit",
    "",
    "outcome",
    "str",
    "Result",
    None,
    "Predicted memory against the capacity: below it by more than the error of predictions (fits) or by less (may not "
    "fit), above it by less (may fit) or by more (does not fit).",
    FITS,
)
"""Fit into memory, the worse of both tiers, which follows from the required memory (`engine.recommendation.fits`)."""

_SHARED: Final[dict[str, tuple[str, ...]]] = {name: parts for name, _, _, parts, _ in SHARE_ROWS}
_BY_NAME: Final[dict[str, Column]] = {column.name: column for column in (*ALL, *SHARES, *DERIVED, FIT)}


@dataclass(frozen=True, slots=True)
class ColumnSet:
    """Columns of executions under a cost model: `fields`, `statistics`, and `undefined`, the statistics that are never
    a number. Two kinds of fields are no choice: `implied` ones follow from other fields, the model or the system, and
    `not_read` ones change no figure. `unnamed`: documents that name no cost model mean this one."""

    fields: tuple[Column, ...]
    statistics: tuple[Column, ...]
    undefined: frozenset[str] = frozenset()
    implied: frozenset[str] = frozenset()
    not_read: frozenset[str] = frozenset()
    unnamed: bool = False

    @property
    def headline(self) -> tuple[Column, ...]:
        """The statistics that are stored for every feasible execution."""
        return tuple(column for column in self.statistics if column.headline)

    @property
    def stored(self) -> tuple[Column, ...]:
        """The columns of a stored row, in order."""
        return (ID, *self.fields, *self.headline)


_SETS: Final[dict[str, ColumnSet]] = {}
"""Declared columns of each cost model, by its name."""
_DECLARED_BY: Final = "engine.cost_models.registry"
"""Module whose import declares the sets. It is loaded by name: a store that is opened alone needs them, too."""


def _declared_sets() -> Mapping[str, ColumnSet]:
    """Return the sets of columns by the name of their cost model."""
    if _DECLARED_BY not in sys.modules:
        import_module(_DECLARED_BY)
    return _SETS


def declare(cost_model: str, columns: ColumnSet) -> None:
    """Makes known which columns a cost model has.

    Args:
        cost_model: name under which the columns are asked for afterwards.
        columns: its fields, statistics and which of them are stored.
    """
    _SETS[cost_model] = columns


def undeclare(cost_model: str) -> None:
    """Forgets the columns of a cost model.

    Args:
        cost_model: name of a cost model that has been declared.

    Raises KeyError for a cost model that has not been declared.
    """
    del _SETS[cost_model]


def cost_model_in(document: Any) -> str:
    """Returns the cost model that the document of a scenario names; those from before there were several name none.

    Args:
        document: of a scenario, parsed; anything that is no mapping counts as one without a name.
    """
    unnamed = next(name for name, columns in _declared_sets().items() if columns.unnamed)
    return str(document.get("cost_model", unnamed)) if isinstance(document, Mapping) else unnamed


def cost_models_with(name: str) -> list[str]:
    """Returns the cost models whose executions have a field.

    Args:
        name: of a field of executions.
    """
    return [each for each, columns in _declared_sets().items() if name in (column.name for column in columns.fields)]


def _set_of(cost_model: str) -> ColumnSet:
    found = _declared_sets().get(cost_model)
    if found is None:
        known = ", ".join(_declared_sets())
        raise UnknownColumn(f"There is no cost model {shown(cost_model)} that has columns: there are {known}.")
    return found


def fields_of(cost_model: str) -> tuple[Column, ...]:
    """Returns the fields of an execution under a cost model.

    Args:
        cost_model: name of a cost model that has been declared.

    Raises UnknownColumn for a cost model that has not been declared.
    """
    return _set_of(cost_model).fields


def choices_of(cost_model: str) -> tuple[Column, ...]:
    """Returns the fields that are a choice under a cost model, in the order in which lists show them.

    Args:
        cost_model: name of a cost model that has been declared.

    Raises UnknownColumn for a cost model that has not been declared.
    """
    found = _set_of(cost_model)
    settled = found.implied | found.not_read
    return in_order(column for column in found.fields if not column.of_scenario and column.name not in settled)


def in_order(fields: Iterable[Column]) -> tuple[Column, ...]:
    """Returns the fields by group, each behind the field that it belongs to where that is of the same group.

    Args:
        fields: of executions, in any order.
    """
    placed: list[Column] = []
    for column in fields:
        names = [each.name for each in placed]
        placed.insert(names.index(column.after) + 1 if column.after in names else len(placed), column)
    return tuple(sorted(placed, key=lambda column: GROUPS.index(column.group)))


def applies(column: Column | str, known: Mapping[Any, Any] | pd.DataFrame) -> Any:
    """Return whether a field has an effect, by its rule and the known values of an execution.

    Args:
        column: the field or its name.
        known: fields of an execution, or columns [rows] of a table of them; also under `engine.columns.rules.EXPERTS`
            and `SECOND_TIER` where there are any, so that a scenario alone can be tested. Missing values forbid
            nothing.

    Returns a truth, or an array of them [rows]. Raises UnknownColumn.
    """
    return holds((by_name(column) if isinstance(column, str) else column).applies, known)


def statistics_of(cost_model: str) -> tuple[Column, ...]:
    """Returns the results of an execution under a cost model; some may be undefined, see `defined_of`.

    Args:
        cost_model: name of a cost model that has been declared.

    Raises UnknownColumn for a cost model that has not been declared.
    """
    return _set_of(cost_model).statistics


def defined_of(cost_model: str) -> tuple[Column, ...]:
    """Returns the results that are a number in executions that run under a cost model.

    Args:
        cost_model: name of a cost model that has been declared.

    Raises UnknownColumn for a cost model that has not been declared.
    """
    found = _set_of(cost_model)
    return tuple(column for column in found.statistics if column.name not in found.undefined)


def headline_of(cost_model: str) -> tuple[Column, ...]:
    """Returns the statistics stored for every feasible execution under a cost model.

    Args:
        cost_model: name of a cost model that has been declared.

    Raises UnknownColumn for a cost model that has not been declared.
    """
    return _set_of(cost_model).headline


def stored_of(cost_model: str) -> tuple[Column, ...]:
    """Returns the columns of a stored row under a cost model, in order.

    Args:
        cost_model: name of a cost model that has been declared.

    Raises UnknownColumn for a cost model that has not been declared.
    """
    return _set_of(cost_model).stored


def parts_of(share: str, cost_model: str) -> tuple[str, ...]:
    """Return the names of the times whose sum is divided by the step time to give one of `SHARES`, limited to the cost
    model's statistics.

    Args:
        share: one of `SHARES`.
        cost_model: name of a cost model that has been declared.
    """
    there = {column.name for column in headline_of(cost_model)}
    return tuple(name for name in _SHARED[share] if name in there)


def value_of(name: str, figures: Any) -> Any:
    """Returns the value of a column, of one of `SHARES` too, in an execution (a mapping) or a table of them (a data
    frame).

    Args:
        name: of a column or of one of `SHARES`.
        figures: columns by name: a value each [unit of the column], or arrays [rows].
    """
    if name not in _SHARED:
        return figures[name]
    return sum(figures[part] for part in _SHARED[name] if part in figures) / figures["total_time"]


def by_name(name: str) -> Column:
    """Return the column called `name`.

    Args:
        name: name of a column in files and tables.

    Raises UnknownColumn, suggesting names of similar spelling, for an unknown name.
    """
    column = _BY_NAME.get(name) if isinstance(name, str) else None
    if column is None:
        near = near_matches(name, tuple(_BY_NAME)) if isinstance(name, str) else []
        hint = f"did you mean {' or '.join(near)}?" if near else "engine.columns lists every column."
        raise UnknownColumn(f"There is no column {shown(name)}: {hint}")
    return column


def called(name: str) -> str:
    """Returns what a message calls a column, for readers of pages and of files: "Tensor parallel (tensor_par)".

    Args:
        name: of a column, as files and tables have it.

    Raises UnknownColumn where there is no such column.
    """
    return f"{by_name(name).label} ({name})"


def choice_label(column: Column | str, value: object, networks: Sequence[str] = ()) -> str:
    """Return the text of a field's value on screen, such as "RS+AG" for "rs_ag" and "on" for True.

    Values without a text of their own come back as they are, but for numbers of blocks in a stage layout.

    Args:
        column: a field, or its name.
        value: of the field, as executions have it.
        networks: what the networks of the system are called, innermost first (`hardware.network_names`), which then
            stand for the numbers of fields that say which network carries something.

    Raises UnknownColumn for an unknown column name.
    """
    column = by_name(column) if isinstance(column, str) else column
    if column.dtype == "bool" and value in (True, False):
        return "on" if value else "off"
    if networks and column.of_network and str(value).isdecimal() and int(str(value)) < len(networks):
        return networks[int(str(value))]
    found = CHOICE_LABELS.get(column.name, {}).get(str(value), str(value))
    # Numbers in a stage layout read as numbers: "first 7 last 6".
    return found.replace("_", " ") if column.name == "stage_layout" else found
