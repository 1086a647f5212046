"""Parts of queries over stored rows, built so that no text of a user ever becomes SQL.

Names of columns come only from the register and values travel only as parameters.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from engine import columns
from engine.store.errors import StoreError

STORED: Final = {column.name: column for column in (*columns.STORED_OF_ANY, *columns.SHARES)}
"""Columns for queries of rows, by name. Rows of a cost model without some of them answer neutral values; shares of the
step time are computed when they are asked for."""

ASKABLE: Final = {column.name: column for column in (*columns.STATISTICS, *columns.EXTENSION_STATISTICS)} | STORED
"""Columns for queries of rows after missing ones were added (`engine.store.added_columns`)."""

_COMPARISONS: Final = frozenset({"=", "!=", "<", "<=", ">", ">="})

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "in", "not in", "any of"]
Direction = Literal["ascending", "descending"]


class StoreCondition(NamedTuple):
    """One condition on a stored column; several hold together."""

    column: str
    operator: Operator
    value: Any
    """A number, text or truth value; for "in" and "not in" a sequence of them; for "any of" groups of conditions, of
    which at least one must hold as a whole (the column is then any of theirs)."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns that it reads."""
        if self.operator != "any of":
            return [self.column]
        return [name for group in self.value for one in group for name in StoreCondition(*one).columns]


@dataclass(frozen=True, slots=True)
class RowSource:
    """Location of an exploration's rows."""

    scan: str
    """SQL source of the rows: a table, or shards given as parameter `files`."""
    stored: Mapping[str, str]
    """SQL of every column of `STORED`, by name."""
    files: list[str] | None = None
    beside: bool = True
    """True if added columns are in separate files; else they are in the table."""

    def clause(self, names: Iterable[str], added: Sequence[str]) -> str:
        """Returns the FROM clause with some of the columns and the id: naming all of them takes DuckDB longer than to
        read a hundred thousand rows. Added ones are read from the files of the parameters `added_0`, ..."""
        chosen = [self.stored[name] for name in dict.fromkeys(["id", *names])]
        scans = [f"{self.scan} AS stored"]
        if self.beside:  # in the order of the rows, so that no key has to be looked up
            scans += [f"read_parquet($added_{number}) AS added_{number}" for number in range(len(added))]
        return f"(SELECT {', '.join([*chosen, *map(quote_identifier, added)])} FROM {' POSITIONAL JOIN '.join(scans)})"


class Query:
    """The FROM and WHERE part of a query, with its parameters."""

    def __init__(self, source: RowSource, where: Sequence[StoreCondition] = (), names: Iterable[str] = ()) -> None:
        """`names` are the columns that the query asks for in addition to the columns of its conditions."""
        self.parameters: dict[str, Any] = {} if source.files is None else {"files": source.files}
        wanted = [StoreCondition(*condition) for condition in where]
        conditions = [self._condition(condition) for condition in wanted]
        used = dict.fromkeys([*(name for condition in wanted for name in condition.columns), *names])
        self.added = [name for name in used if name not in STORED]
        """Columns that are not stored."""
        rows = source.clause((name for name in used if name in STORED), self.added)
        self.rows = f"{rows} WHERE {' AND '.join(conditions)}" if conditions else rows

    def _condition(self, condition: StoreCondition) -> str:
        """Return the SQL of one condition and add its values to the parameters."""
        if condition.operator == "any of":
            groups = [" AND ".join(self._condition(StoreCondition(*one)) for one in group) for group in condition.value]
            return f"({' OR '.join(f'({group})' for group in groups)})" if groups else "false"
        column = askable_column(condition.column)
        several = condition.operator in ("in", "not in")
        if not several and condition.operator not in _COMPARISONS:
            raise StoreError(
                f"The condition on {column.name} has the operator {condition.operator!r}: "
                "=, !=, <, <=, >, >=, in and not in are accepted."
            )
        values = list(condition.value) if several and _is_sequence(condition.value) else [condition.value]
        if several and not values:
            return "false" if condition.operator == "in" else "true"
        places = []
        for value in values:
            name = f"value_{len(self.parameters)}"
            self.parameters[name] = _check_value(column, condition.operator, value)
            places.append(f"${name}")
        right = f"({', '.join(places)})" if several else places[0]
        return f"{quote_identifier(column.name)} {condition.operator.upper()} {right}"


def source_of_shards(cost_model: str, files: list[str], there: Collection[str] | None = None) -> RowSource:
    """Returns how shards are read, with the types of a table of rows.

    Args:
        cost_model: whose columns they have.
        files: paths of the shards, in order.
        there: as for `source_of_table`.
    """
    selected = {
        column.name: _neutral_column(column)
        if _is_missing(column, there)
        else f"CAST({quote_identifier(column.name)} AS {columns.duckdb_type(column)}) "
        f"AS {quote_identifier(column.name)}"
        if column.choices
        else quote_identifier(column.name)
        for column in columns.stored_of(cost_model)
    }
    return RowSource("read_parquet($files)", selected | _build_missing_columns(cost_model), files)


def source_of_table(
    table: str, cost_model: str, *, there: Collection[str] | None = None, beside: bool = True
) -> RowSource:
    """Returns how a table of rows is read.

    Args:
        table: its name, as in SQL.
        cost_model: whose columns it has.
        there: the columns that it has, where it may be of a version that knew fewer fields: what executions have where
            none is given stands for those.
        beside: whether added columns are in files beside it.
    """
    selected = {
        column.name: _neutral_column(column) if _is_missing(column, there) else quote_identifier(column.name)
        for column in columns.stored_of(cost_model)
    }
    return RowSource(table, selected | _build_missing_columns(cost_model), beside=beside)


def _build_missing_columns(cost_model: str) -> dict[str, str]:
    """SQL of the columns that rows of a cost model do not have, by name, so that every question can be asked of every
    row."""
    there = {column.name for column in columns.stored_of(cost_model)}
    found = {}
    for column in STORED.values():
        if column in columns.SHARES:
            parts = " + ".join(map(quote_identifier, columns.parts_of(column.name, cost_model)))
            found[column.name] = f"({parts}) / {quote_identifier('total_time')} AS {quote_identifier(column.name)}"
        elif column.name not in there:
            found[column.name] = _neutral_column(column)
    return found


def _is_missing(column: columns.Column, there: Collection[str] | None) -> bool:
    """Return True if rows lack a field beyond the 23."""
    return there is not None and column.name not in there and column.name in columns.NEUTRAL_EXTENSIONS


def _neutral_column(column: columns.Column) -> str:
    return f"{columns.duckdb_neutral(column)} AS {quote_identifier(column.name)}"


def askable_column(name: str) -> columns.Column:
    """Return a column for queries of rows.

    Raises UnknownColumn for an unknown name, and StoreError for a column that rows do not have.

    Args:
        name: of the column.
    """
    column = columns.by_name(name)
    if name not in ASKABLE:
        raise StoreError(f"The column {name} is no figure of a stored row: fields and statistics can be asked for.")
    return column


def askable_names(names: Sequence[str] | None, cost_model: str) -> list[str]:
    """Returns the names of columns, checked, each once. Raises StoreError, and UnknownColumn.

    Args:
        names: which columns; None for all that the cost model stores.
        cost_model: whose rows they are.
    """
    if names is None:
        return [column.name for column in columns.stored_of(cost_model)]
    if isinstance(names, str) or not names:
        raise StoreError(f"The column names {names!r} are not usable: give a list of at least one name.")
    return list(dict.fromkeys(askable_column(name).name for name in names))


def numeric_column(name: str) -> str:
    """Returns a column's values as SQL of type DOUBLE. Raises StoreError for a text column.

    Args:
        name: of the column.
    """
    column = askable_column(name)
    if column.dtype == "str":
        raise StoreError(f"The column {name} holds text: a numeric column is needed here.")
    return f"CAST({quote_identifier(name)} AS DOUBLE)"


def quote_identifier(name: str) -> str:
    """Returns a register name as an SQL identifier.

    Args:
        name: of a column of the register.
    """
    return '"' + name.replace('"', '""') + '"'


def select_list(names: Sequence[str]) -> str:
    """Returns the column names as an SQL list without repetitions.

    Args:
        names: of columns of the register.
    """
    return ", ".join(quote_identifier(name) for name in dict.fromkeys(names))


def order_list(order_by: Sequence[tuple[str, Direction]]) -> str:
    """Returns an ORDER BY list that ends with the id, so that every order is total and repeatable.

    Args:
        order_by: names of columns with the direction of each, the most important first.
    """
    terms = []
    for name, direction in order_by:
        column = askable_column(name)
        if direction not in ("ascending", "descending"):
            raise StoreError(f"The direction {direction!r} of {name} is unknown: use ascending or descending.")
        if column.dtype == "float64":
            terms.append(f"isnan({quote_identifier(name)})")
        terms.append(f"{quote_identifier(name)} {'ASC' if direction == 'ascending' else 'DESC'}")
    return ", ".join([*terms, "id"])


def whole_number(value: object, what: str) -> int:
    """Returns a whole number that is not negative. Raises StoreError for anything else.

    Args:
        value: what was given.
        what: how the message calls it.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < 2**63:
        raise StoreError(f"The {what} cannot be {value!r}: a whole number of at least 0 is accepted.")
    return int(value)


def _is_sequence(value: object) -> bool:
    return isinstance(value, Sequence | np.ndarray | set | frozenset) and not isinstance(value, str | bytes)


def _check_value(column: columns.Column, operator: str, value: object) -> bool | int | float | str:
    """Return a condition's value as a plain Python value of the column's kind; raises StoreError when it is not one."""
    plain = value.item() if isinstance(value, np.generic) else value
    ordered = operator not in ("=", "!=", "in", "not in")
    if column.dtype == "bool" and isinstance(plain, bool) and not ordered:
        return plain
    if column.dtype == "str" and isinstance(plain, str) and not ordered:
        return plain
    if column.dtype in ("int64", "float64") and isinstance(plain, int | float) and not isinstance(plain, bool):
        if plain != plain or (isinstance(plain, int) and abs(plain) >= 2**63):
            raise StoreError(f"The condition on {column.name} has the value {plain!r}: a 64-bit number is accepted.")
        return plain
    kind = {"bool": "true or false, with = or !=,", "str": "a text, with = or !=,"}.get(column.dtype, "a number")
    raise StoreError(f"The condition {column.name} {operator} {str(value)[:80]!r} is not usable: {kind} is accepted.")
