"""Tables of single results next to the explorations: one row per key, stored once and looked up.

For grids that do not explore a scenario, whose rows are evaluated one by one and looked up by their inputs. The
file stays a store: such tables are named differently from tables of the catalogue and of rows.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import duckdb
import pyarrow as pa

from engine.store.creation import COLUMNS_OF_TABLE
from engine.store.errors import StoreError

if TYPE_CHECKING:
    from engine.store.database import Database

__all__ = ["KeyedTable"]

NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,40}", re.IGNORECASE)
KEY: Final = "key"
SQL: Final[Mapping[pa.DataType, str]] = {pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.string(): "VARCHAR"}


class KeyedTable:
    """One such table of a store. Made by `Store.keyed`; its methods may be called from any thread."""

    def __init__(self, database: Database, name: str, schema: pa.Schema, *, read_only: bool) -> None:
        """Open the table `keyed_<name>` with a column `key` and the columns of `schema` (int64, float64, string).

        Raises StoreError for a name or a type that no column can have, and for a table of other columns.
        """
        for each in (name, *schema.names):
            if not NAME.fullmatch(each) or each == KEY:
                raise StoreError(f"{each[:60]!r} cannot name a table or a column of results.")
        unknown = [field.name for field in schema if field.type not in SQL]
        if unknown:
            raise StoreError(f"The column {unknown[0]} has a type that results cannot have.")
        self._database, self._read_only = database, read_only
        self._table = f'"keyed_{name}"'
        self._schema = pa.schema([pa.field(KEY, pa.string()), *schema])
        self._exists = self._checked(name)

    def _checked(self, name: str) -> bool:
        """Return True if the table exists; raise for a table with other columns."""
        found: list[str] = []
        with self._database.cursor() as cursor, contextlib.suppress(duckdb.CatalogException):
            found = [column for column, _ in cursor.execute(COLUMNS_OF_TABLE, {"table": f"keyed_{name}"}).fetchall()]
        if found and found != self._schema.names:
            raise StoreError(
                f"The store {self._database.path} has results of another version in {self._table}: name another file."
            )
        return bool(found)

    def find(self, keys: Sequence[str]) -> pa.Table:
        """Return the rows of the present keys, unordered."""
        if not self._exists or not keys:
            return self._schema.empty_table()
        with self._database.cursor() as cursor:
            cursor.register("wanted", pa.table({KEY: pa.array(keys, pa.string())}))
            found = cursor.sql(f"SELECT t.* FROM {self._table} t SEMI JOIN wanted USING ({KEY})").to_arrow_table()
            cursor.unregister("wanted")
        return found.cast(self._schema)

    def put(self, rows: pa.Table) -> None:
        """Insert rows; a present key keeps its old row. All of them are kept, or none.

        Raises StoreError where the store is open for reading only, and for other columns.
        """
        if self._read_only:
            raise StoreError(f"The store {self._database.path} is open for reading only: open it for writing.")
        if rows.schema.names != self._schema.names:
            raise StoreError(f"Results for {self._table} have other columns than {', '.join(self._schema.names)}.")
        columns = ", ".join(
            f'"{field.name}" {SQL[field.type]}{" PRIMARY KEY" if field.name == KEY else ""}' for field in self._schema
        )
        with self._database.transaction() as cursor:
            cursor.execute(f"CREATE TABLE IF NOT EXISTS {self._table} ({columns})")
            cursor.register("fresh", rows.cast(self._schema))
            cursor.execute(f"INSERT OR IGNORE INTO {self._table} SELECT * FROM fresh").fetchall()
            cursor.unregister("fresh")
        self._exists = True

    def __len__(self) -> int:
        if not self._exists:
            return 0
        with self._database.cursor() as cursor:
            return int(cursor.execute(f"SELECT count(*) FROM {self._table}").fetchall()[0][0])
