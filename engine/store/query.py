"""Questions to the stored rows of one exploration: counts, best rows, pages, groups, densities, exports.

Where many sorted rows with many columns are wanted, their ids are found first and the other columns are read for those
ids only: several times faster than sorting whole rows. For the first few it is the other way round.
"""

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from engine import columns
from engine.store.added_columns import Added, AddedWriter
from engine.store.catalogue import catalogued
from engine.store.conditions import (
    ASKABLE,
    STORED,
    Direction,
    Query,
    RowSource,
    StoreCondition,
    askable_column,
    askable_names,
    numeric_column,
    order_list,
    quote_identifier,
    select_list,
    whole_number,
)
from engine.store.database import Database
from engine.store.errors import (
    StoreAccessError,
    StoreError,
    StoreInterruptedError,
    StoreMemoryError,
    explain,
    has_no_room,
)
from engine.store.shards import Shards

SCHEMA: Final[pa.Schema] = columns.schema_of(ASKABLE.values())
"""Types and units of the columns for queries of rows."""
_ROWS_PER_BATCH: Final = 65_536
_FIRST_ROWS: Final = 1000
_FEW_COLUMNS: Final = 16
"""Largest number of columns for which first rows are read in one go, also under conditions. Of 1.25 M rows the best 60
of a cell take 12 to 32 ms instead of 26 to 47, more with each column; the best 60 of all take 17 to 40 ms instead of
33 to 50, but with 24 columns 10 ms more than in two steps, and with all columns the 60 after the first 5000 take six
times as long.
"""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Number of rows in each bin of two columns."""

    x_edges: np.ndarray
    """Bounds of the bins along x, in the unit of the column; shape [bins of x + 1]."""
    y_edges: np.ndarray
    """Bounds of the bins along y; shape [bins of y + 1]."""
    counts: np.ndarray
    """Rows per bin, int64; shape [bins of x, bins of y]."""
    outside: int
    """Rows that meet the conditions but lie outside the bounds or are not finite."""


class Rows:
    """The rows of one complete exploration. Any number of threads may ask at once.

    Every method may be asked for stored columns, and for statistics that are not stored once `adding` has added them;
    until then it raises NotEvaluatedError.
    """

    def __init__(
        self,
        database: Database,
        source: RowSource,
        active: set[duckdb.DuckDBPyConnection],
        cost_model: str,
        added: Added,
        key: str,
        shards: Shards | None = None,
        opened: object = None,
    ) -> None:
        """`added` holds the added columns of the rows, under `key`. `opened` is what keeps the database open."""
        self._database = database
        self._cost_model = cost_model
        self._source = source
        self._added, self._key = added, key
        self._shards, self._opened = shards, opened
        self._active: set[duckdb.DuckDBPyConnection] = set()
        self._everyone = active

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return the columns that must be added before a query of them."""
        unstored = [askable_column(name).name for name in names if name not in STORED]
        return self._added.missing(self._key, unstored) if unstored else []

    def check_room(self, names: Sequence[str], rows: int) -> None:
        """Raise TooManyValuesError if columns for that many rows cannot be added at once."""
        self._added.check_room([name for name in names if name not in STORED], rows)

    def adding(self, names: Sequence[str]) -> contextlib.AbstractContextManager[AddedWriter]:
        """Add columns that are not stored, in the order of `table`; existing ones are replaced.

        They may give way to others that are added later: the least lately read first. See `Added.writing`.
        """
        for name in names:
            if askable_column(name).name in STORED:
                raise StoreError(f"The column {name} is stored: there is nothing to add.")
        return self._added.writing(self._key, list(dict.fromkeys(names)), self.count())

    def count(self, where: Sequence[StoreCondition] = ()) -> int:
        """Returns the number of rows that meet all conditions."""
        query = Query(self._source, where)
        return int(self._table(f"SELECT count(*) AS n FROM {query.rows}", query)["n"][0].as_py())

    def top(
        self,
        k: int,
        by: str = "sample_rate",
        *,
        where: Sequence[StoreCondition] = (),
        names: Sequence[str] | None = None,
    ) -> pa.Table:
        """Return the best `k` rows by a column, best first, equal ones by id.

        Best is what the register says, or the highest value where it does not say.
        """
        column = askable_column(by)
        direction: Direction = "ascending" if column.better == "lower" else "descending"
        return self.page(0, k, order_by=((by, direction),), where=where, names=names)

    def page(
        self,
        offset: int,
        limit: int,
        *,
        order_by: Sequence[tuple[str, Direction]] = (),
        where: Sequence[StoreCondition] = (),
        names: Sequence[str] | None = None,
    ) -> pa.Table:
        """Returns up to `limit` rows after the first `offset`, sorted.

        Equal ones, and all by default, come by ascending id; values that are not a number come last.
        """
        chosen = askable_names(names, self._cost_model)
        part = {"limit": whole_number(limit, "limit"), "offset": whole_number(offset, "offset")}
        at_once = sum(part.values()) <= _FIRST_ROWS and (bool(where) or len(chosen) <= _FEW_COLUMNS)
        wanted = chosen if at_once else ["id"]
        query = Query(self._source, where, [*(name for name, _ in order_by), *wanted])
        query.parameters |= part
        order = order_list(order_by)
        text = f"SELECT {select_list(wanted)} FROM {query.rows} ORDER BY {order} LIMIT $limit OFFSET $offset"
        found = self._table(text, query)
        return found if at_once else self.fetch(found["id"].to_pylist(), chosen)

    def fetch(self, ids: Sequence[int] | np.ndarray, names: Sequence[str] | None = None) -> pa.Table:
        """Returns the rows with these ids in this order. Raises StoreError for an id that is not a stored row."""
        wanted = pa.array(np.asarray(ids, dtype=np.int64))
        chosen = askable_names(names, self._cost_model)
        query = Query(self._source, names=chosen)
        query.parameters["ids"] = wanted.to_pylist()
        found = self._table(f"SELECT {select_list(['id', *chosen])} FROM {query.rows} WHERE id = ANY($ids)", query)
        positions = pc.index_in(wanted, found["id"].combine_chunks())
        if positions.null_count:
            missing = wanted.filter(positions.is_null())[0]
            raise StoreError(f"Execution {missing} is not a stored row: ids of feasible executions are accepted.")
        return found.take(positions).select(chosen)

    def table(self, names: Sequence[str] | None = None, *, where: Sequence[StoreCondition] = ()) -> pa.Table:
        """Returns the whole columns of the rows that meet all conditions, in the order in which they were appended.

        That order is the same every time but not that of the ids: an exploration appends rows as it evaluates them.
        """
        chosen = askable_names(names, self._cost_model)
        query = Query(self._source, where, chosen)
        return self._table(f"SELECT {select_list(chosen)} FROM {query.rows}", query)

    def best_by(self, groups: Sequence[str], metric: str, *, where: Sequence[StoreCondition] = ()) -> pa.Table:
        """Returns, per combination of the group columns, its number of `rows`, best `value` and lowest `id` with it."""
        column, fields = askable_column(metric), askable_names(groups, self._cost_model)
        query = Query(self._source, where, [metric, *fields])
        best = "min" if column.better == "lower" else "max"
        keys = ", ".join(map(quote_identifier, fields))
        value = quote_identifier(column.name)
        text = (
            f"WITH chosen AS (SELECT {keys}, id, {value} AS value FROM {query.rows}), "
            f"best AS (SELECT {keys}, count(*) AS rows, {best}(value) FILTER (NOT isnan(value::DOUBLE)) AS value "
            f"FROM chosen GROUP BY {keys}) "
            f"SELECT {keys}, rows, value, min(id) AS id FROM best JOIN chosen USING ({keys}, value) "
            f"GROUP BY {keys}, rows, value ORDER BY {keys}"
        )
        return self._table(text, query)

    def value_range(self, name: str, *, where: Sequence[StoreCondition] = ()) -> tuple[float, float] | None:
        """Return the lowest and highest finite value of a numeric column; None without finite values."""
        value = numeric_column(name)
        query = Query(self._source, where, [name])
        text = f"SELECT min(v) AS low, max(v) AS high FROM (SELECT {value} AS v FROM {query.rows}) WHERE isfinite(v)"
        row = self._table(text, query).to_pylist()[0]
        return None if row["low"] is None else (row["low"], row["high"])

    def histogram(
        self,
        x: str,
        y: str,
        *,
        bins: tuple[int, int] = (256, 256),
        x_range: tuple[float, float] | None = None,
        y_range: tuple[float, float] | None = None,
        where: Sequence[StoreCondition] = (),
    ) -> Histogram:
        """Counts rows in a grid over two numeric columns, by default over the range of their finite values.

        Bins include their lower bound; the last one includes its upper bound too.
        """
        if any(not 1 <= whole_number(number, "bins") <= 4096 for number in bins):
            raise StoreError(f"A histogram cannot have {bins[0]} x {bins[1]} bins: 1 to 4096 each way are accepted.")
        edges = []
        for name, given, number in ((x, x_range, bins[0]), (y, y_range, bins[1])):
            low, high = given or self.value_range(name, where=where) or (0.0, 1.0)
            if not (np.isfinite(low) and np.isfinite(high) and low <= high):
                raise StoreError(f"The range of {name} cannot be {low} to {high}: give finite numbers in order.")
            if low == high:  # one value: a bin around it
                low, high = low - (abs(low) / 2 or 0.5), high + (abs(high) / 2 or 0.5)
            edges.append(np.linspace(low, high, number + 1))
        query = Query(self._source, where, [x, y])
        for axis, (bounds, number) in {"x": (edges[0], bins[0]), "y": (edges[1], bins[1])}.items():
            query.parameters |= {
                f"{axis}_low": float(bounds[0]),
                f"{axis}_high": float(bounds[-1]),
                f"{axis}_bins": int(number),
            }
        share = "({0} - ${0}_low) / (${0}_high - ${0}_low)"
        cell = f"CAST(least(floor({share} * ${{0}}_bins), ${{0}}_bins - 1) AS INTEGER) AS {{0}}_bin"
        inside = "{0} >= ${0}_low AND {0} <= ${0}_high"
        text = (
            f"SELECT {cell.format('x')}, {cell.format('y')}, count(*) AS n "
            f"FROM (SELECT {numeric_column(x)} AS x, {numeric_column(y)} AS y FROM {query.rows}) "
            f"WHERE {inside.format('x')} AND {inside.format('y')} GROUP BY ALL"
        )
        cells = self._table(text, query)
        counts = np.zeros(bins, dtype=np.int64)
        counts[cells["x_bin"].to_numpy(), cells["y_bin"].to_numpy()] = cells["n"].to_numpy()
        return Histogram(edges[0], edges[1], counts, self.count(where) - int(counts.sum()))

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        names: Sequence[str] | None = None,
        where: Sequence[StoreCondition] = (),
        order_by: Sequence[tuple[str, Direction]] = (),
        complete: Callable[[pa.Table], pa.Table] = lambda batch: batch,
    ) -> int:
        """Writes rows to a `.csv` or `.parquet` file, replacing it; returns their number.

        They come by `order_by`, equal ones by ascending id, or else in the order in which they were appended. The file
        appears only when it is whole. Rows stream through: memory holds some batches, not the table (a sort by
        `order_by` spills to disk beside the store).

        Args:
            path: of the file.
            names: of the columns; None for all that the cost model stores.
            where, order_by: conditions of the rows, and their order.
            complete: adds columns of the register to each batch of rows, the same to all.
        """
        target = Path(path)
        if target.suffix.lower() not in (".csv", ".parquet"):
            raise StoreError(f"The export {target} needs a name ending in .csv or .parquet.")
        if not target.parent.is_dir():
            raise StoreAccessError(f"The folder {target.parent} for the export {target.name} is missing: create it.")
        chosen = askable_names(names, self._cost_model)
        query = Query(self._source, where, [*chosen, *(name for name, _ in order_by)])
        text = f"SELECT {select_list(chosen)} FROM {query.rows}"
        if order_by:
            text += f" ORDER BY {order_list(order_by)}"
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        try:
            room = self._database.room_to_sort() if order_by else contextlib.nullcontext()
            with self._reading(query), room, self._database.cursor(self._active, self._everyone) as cursor:
                reader = cursor.sql(text, params=query.parameters).to_arrow_reader(_ROWS_PER_BATCH)
                try:
                    written = _write_rows(temporary, reader, complete)
                except OSError as error:
                    if has_no_room(error):  # there, not where the store is
                        raise explain(error, target) from error
                    raise
            os.replace(temporary, target)
        except (duckdb.Error, OSError, pa.ArrowException) as error:
            raise explain(error, target) from error
        finally:
            temporary.unlink(missing_ok=True)
        return written

    def interrupt(self) -> None:
        """Cancels the queries now running through this object; they raise StoreInterruptedError."""
        interrupt_all(self._active)

    def _table(self, text: str, query: "Query") -> pa.Table:
        """Run a query and return its result with stored columns in their stored types."""

        def answer() -> pa.Table:
            with self._reading(query), self._database.cursor(self._active, self._everyone) as cursor:
                return cursor.sql(text, params=query.parameters).to_arrow_table()

        try:
            return as_stored(answer())
        except StoreMemoryError:  # few do: a page deep in a sorted table, or several large ones at once
            with self._database.room_to_sort():
                return as_stored(answer())

    @contextlib.contextmanager
    def _reading(self, query: "Query") -> Iterator[None]:
        """Give a query the added columns, and attribute its failure to a damaged file, if any."""
        if not query.added:
            with self._naming_damage():
                yield
            return
        with self._added.reading(self._key, query.added) as places:
            if self._source.beside:
                query.parameters |= {f"added_{number}": place for number, place in enumerate(places)}
            try:
                with self._naming_damage():
                    yield
            except StoreInterruptedError:
                raise
            except StoreError:
                self._added.discard_unreadable(self._key, query.added)
                raise

    @contextlib.contextmanager
    def _naming_damage(self) -> Iterator[None]:
        """Verify the shards; attribute a failed query to the damaged one, or to the removal of the exploration."""
        try:
            if self._shards is not None:
                self._shards.verify()
            yield
        except StoreInterruptedError:
            raise
        except StoreError:
            if self._key:
                catalogued(self._database, self._key)  # raises when it has been removed, or lost its rows
            if self._shards is not None:
                self._shards.name_unreadable()
            raise


def interrupt_all(active: set[duckdb.DuckDBPyConnection]) -> None:
    """Cancel the queries that these cursors are running.

    Args:
        active: cursors of running queries.
    """
    for cursor in list(active):
        with contextlib.suppress(duckdb.Error):  # one that has just finished
            cursor.interrupt()


def as_stored(result: pa.Table) -> pa.Table:
    """Returns a query's result with the register's types and units on every column of rows.

    Args:
        result: as DuckDB gave it.
    """
    arrays, fields = [], []
    for name, array in zip(result.column_names, result.columns, strict=True):
        column = ASKABLE.get(name)
        if column is None:
            arrays.append(array)
            fields.append(result.schema.field(name))
            continue
        fields.append(SCHEMA.field(name))
        target = fields[-1].type
        if not pa.types.is_dictionary(target):
            array = array.cast(target)
        elif not pa.types.is_dictionary(array.type):
            array = array.dictionary_encode().cast(target)
        elif array.type != target:  # codes of DuckDB's ENUM, whose type is unsigned
            chunks = [pa.DictionaryArray.from_arrays(c.indices.cast(pa.int8()), c.dictionary) for c in array.chunks]
            array = pa.chunked_array(chunks, type=target)
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _write_rows(path: Path, reader: pa.RecordBatchReader, complete: Callable[[pa.Table], pa.Table]) -> int:
    """Write completed batches to a CSV or Parquet file, by the suffix of `path`; return the number of rows."""
    written = 0
    schema = complete(as_stored(reader.schema.empty_table())).schema
    as_text = ".csv." in path.name.lower()
    if as_text:  # Arrow's CSV writer takes plain text only
        schema = pa.schema([f.with_type(pa.string()) if pa.types.is_dictionary(f.type) else f for f in schema])
        writer = pyarrow.csv.CSVWriter(path, schema, write_options=pyarrow.csv.WriteOptions(quoting_style="needed"))
    else:
        writer = pq.ParquetWriter(path, schema, compression="zstd")
    with writer:
        for batch in reader:
            table = complete(as_stored(pa.Table.from_batches([batch])))
            writer.write_table(table.cast(schema) if as_text else table)
            written += batch.num_rows
    return written
