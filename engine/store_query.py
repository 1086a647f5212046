"""Questions to the stored rows of one exploration: counts, best rows, pages, groups, densities, exports.

Names of columns come only from the register and values only as parameters, so no text of a user ever becomes SQL.
Where rows with all their columns are wanted, their ids are found first and the other columns are read for those ids only:
several times faster than sorting whole rows.
"""

import os
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from engine import columns
from engine.store_database import Database
from engine.store_errors import StoreError, explain

SCHEMA: Final[pa.Schema] = columns.headline_schema()
_STORED: Final = {column.name: column for column in columns.STORED}
_COMPARISONS: Final = frozenset({"=", "!=", "<", "<=", ">", ">="})
_ROWS_PER_BATCH: Final = 65_536

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "in", "not in"]
Direction = Literal["ascending", "descending"]


class Condition(NamedTuple):
    """One condition on a stored column; several hold together."""

    column: str
    operator: Operator
    value: Any
    """A number, text or truth value; for "in" and "not in" a sequence of them."""


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
    """The rows of one complete exploration. Any number of threads may ask at once."""

    def __init__(self, database: Database, source: str, files: list[str] | None, active: set[Any]) -> None:
        """`source` is the FROM clause, which reads `files` where the rows are in shards."""
        self._database = database
        self._source = source
        self._files = files
        self._active: weakref.WeakSet[Any] = weakref.WeakSet()
        self._everyone = active

    def count(self, where: Sequence[Condition] = ()) -> int:
        """Return the number of rows that meet all conditions."""
        query = _Query(self._source, self._files, where)
        return int(self._table(f"SELECT count(*) AS n FROM {query.rows}", query)["n"][0].as_py())

    def top(
        self,
        k: int,
        by: str = "sample_rate",
        *,
        where: Sequence[Condition] = (),
        names: Sequence[str] | None = None,
    ) -> pa.Table:
        """Return the best `k` rows by a column, best first; of equal ones the first enumerated comes first.

        Best is what the register says, or the highest value where it does not say.
        """
        column = _column(by)
        direction: Direction = "ascending" if column.better == "lower" else "descending"
        return self.page(0, k, order_by=((by, direction),), where=where, names=names)

    def page(
        self,
        offset: int,
        limit: int,
        *,
        order_by: Sequence[tuple[str, Direction]] = (),
        where: Sequence[Condition] = (),
        names: Sequence[str] | None = None,
    ) -> pa.Table:
        """Return up to `limit` rows after the first `offset`, sorted; equal ones, and all by default, in enumeration order.

        Values that are not a number come last in either direction.
        """
        query = _Query(self._source, self._files, where)
        text = f"SELECT id FROM {query.rows} ORDER BY {_ordering(order_by)} LIMIT $limit OFFSET $offset"
        query.parameters |= {"limit": _whole(limit, "limit"), "offset": _whole(offset, "offset")}
        return self.fetch(self._table(text, query)["id"].to_pylist(), names)

    def fetch(self, ids: Sequence[int] | np.ndarray, names: Sequence[str] | None = None) -> pa.Table:
        """Return the rows with these ids in this order. Raises StoreError for an id that is not a stored row."""
        wanted = pa.array(np.asarray(ids, dtype=np.int64))
        chosen = _names(names)
        query = _Query(self._source, self._files)
        query.parameters["ids"] = wanted.to_pylist()
        found = self._table(f"SELECT {_selection(['id', *chosen])} FROM {query.rows} WHERE id = ANY($ids)", query)
        positions = pc.index_in(wanted, found["id"].combine_chunks())
        if positions.null_count:
            missing = wanted.filter(positions.is_null())[0]
            raise StoreError(f"Execution {missing} is not a stored row: ids of feasible executions are accepted.")
        return found.take(positions).select(chosen)

    def table(self, names: Sequence[str] | None = None, *, where: Sequence[Condition] = ()) -> pa.Table:
        """Return whole columns of the rows that meet all conditions, in enumeration order."""
        query = _Query(self._source, self._files, where)
        return self._table(f"SELECT {_selection(_names(names))} FROM {query.rows}", query)

    def best_by(self, groups: Sequence[str], metric: str, *, where: Sequence[Condition] = ()) -> pa.Table:
        """Return, per distinct combination of the group columns, its number of `rows`, best `value` and first best `id`."""
        column = _column(metric)
        query = _Query(self._source, self._files, where)
        best = "min" if column.better == "lower" else "max"
        keys = ", ".join(_quoted(name) for name in _names(groups))
        value = _quoted(column.name)
        text = (
            f"WITH chosen AS (SELECT {keys}, id, {value} AS value FROM {query.rows}), "
            f"best AS (SELECT {keys}, count(*) AS rows, {best}(value) FILTER (NOT isnan(value::DOUBLE)) AS value "
            f"FROM chosen GROUP BY {keys}) "
            f"SELECT {keys}, rows, value, min(id) AS id FROM best JOIN chosen USING ({keys}, value) "
            f"GROUP BY {keys}, rows, value ORDER BY {keys}"
        )
        return self._table(text, query)

    def value_range(self, name: str, *, where: Sequence[Condition] = ()) -> tuple[float, float] | None:
        """Return the lowest and highest finite value of a numeric column; None when there is none."""
        value = _numeric(name)
        query = _Query(self._source, self._files, where)
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
        where: Sequence[Condition] = (),
    ) -> Histogram:
        """Count rows in a grid over two numeric columns, by default over the range of their finite values.

        Bins include their lower bound; the last one includes its upper bound too.
        """
        if any(not 1 <= _whole(number, "bins") <= 4096 for number in bins):
            raise StoreError(f"A histogram cannot have {bins[0]} x {bins[1]} bins: between 1 and 4096 each way are accepted.")
        edges = []
        for name, given, number in ((x, x_range, bins[0]), (y, y_range, bins[1])):
            low, high = given or self.value_range(name, where=where) or (0.0, 1.0)
            if not (np.isfinite(low) and np.isfinite(high) and low <= high):
                raise StoreError(f"The range of {name} cannot be {low} to {high}: two finite numbers in order are accepted.")
            if low == high:  # one value: a bin around it
                low, high = low - (abs(low) / 2 or 0.5), high + (abs(high) / 2 or 0.5)
            edges.append(np.linspace(low, high, number + 1))
        query = _Query(self._source, self._files, where)
        for axis, (bounds, number) in {"x": (edges[0], bins[0]), "y": (edges[1], bins[1])}.items():
            query.parameters |= {
                f"{axis}_low": float(bounds[0]),
                f"{axis}_high": float(bounds[-1]),
                f"{axis}_bins": int(number),
            }
        cell = "CAST(least(floor(({0} - ${0}_low) / (${0}_high - ${0}_low) * ${0}_bins), ${0}_bins - 1) AS INTEGER) AS {0}_bin"
        inside = "{0} >= ${0}_low AND {0} <= ${0}_high"
        text = (
            f"SELECT {cell.format('x')}, {cell.format('y')}, count(*) AS n "
            f"FROM (SELECT {_numeric(x)} AS x, {_numeric(y)} AS y FROM {query.rows}) "
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
        where: Sequence[Condition] = (),
        order_by: Sequence[tuple[str, Direction]] = (),
    ) -> int:
        """Write rows to a `.csv` or `.parquet` file, replacing it; return their number.

        The file appears only when it is whole. Rows stream through: memory holds some batches, not the table (a sort
        by `order_by` spills to disk beside the store).
        """
        target = Path(path)
        if target.suffix.lower() not in (".csv", ".parquet"):
            raise StoreError(f"The export {target} needs a name ending in .csv or .parquet.")
        query = _Query(self._source, self._files, where)
        text = f"SELECT {_selection(_names(names))} FROM {query.rows}"
        if order_by:
            text += f" ORDER BY {_ordering(order_by)}"
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        try:
            with self._database.cursor(self._members()) as cursor:
                reader = cursor.sql(text, params=query.parameters).to_arrow_reader(_ROWS_PER_BATCH)
                written = _write(temporary, reader)
            os.replace(temporary, target)
        except (duckdb.Error, OSError, pa.ArrowException) as error:
            raise explain(error, target) from error
        finally:
            temporary.unlink(missing_ok=True)
        return written

    def interrupt(self) -> None:
        """Cancel the queries now running through this object; they raise StoreInterruptedError."""
        for cursor in list(self._active):
            cursor.interrupt()

    def _members(self) -> "_Members":
        return _Members((self._active, self._everyone))

    def _table(self, text: str, query: "_Query") -> pa.Table:
        """Run a query and return its result with stored columns in their stored types."""
        with self._database.cursor(self._members()) as cursor:
            result = cursor.sql(text, params=query.parameters).to_arrow_table()
        return _as_stored(result)
