"""Columns added to stored rows later: statistics that an exploration did not store, evaluated afterwards.

They are stored next to the rows, in their order, and a query that names one reads both. They are a cache: missing ones
are evaluated again. So the least recently read give way to others, they end with the process that wrote them, and
neither shards nor catalogue refer to them.
"""

import contextlib
import shutil
import threading
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from engine import columns
from engine.executions.arrays import Floats
from engine.executions.work_sizes import work_sizes
from engine.store.errors import NotEvaluatedError, StoreAccessError, StoreError, TooManyValuesError, explain
from engine.store.files import StoreFiles

SUFFIX: Final = ".added"
"""Suffix after the key in the folder name of an exploration's added columns."""

VALUE: Final = 8
"""Size of a value [bytes]."""

_Column = tuple[str, str]


class AddedWriter(ABC):
    """Takes the values of added columns in the order of the rows; they can be read when its `with` block has ended."""

    def __init__(self, names: Sequence[str], rows: int) -> None:
        self.names, self.rows = tuple(names), rows
        self.done = 0
        """Rows appended so far."""

    def append(self, values: Mapping[str, Floats]) -> None:
        """Adds the values of the next rows, an array per name."""
        number = len(values[self.names[0]])
        if self.done + number > self.rows or any(len(values[name]) != number for name in self.names):
            raise StoreError(f"Columns are added to {self.rows} rows: as many values of each are accepted.")
        self._put(values)
        self.done += number

    def take(self, folder: Path) -> None:
        """Adds the values of all rows from the files that `ColumnFiles` has written into a folder, and takes them away.

        Raises StoreError when they do not have as many values, or cannot be read.
        """
        try:
            if self.done or any(pq.read_metadata(folder / file_of(name)).num_rows != self.rows for name in self.names):
                raise StoreError(f"Columns are added to {self.rows} rows: as many values of each are accepted.")
            self._take(folder)
        except (OSError, pa.ArrowException) as error:
            raise explain(error, folder) from error
        self.done = self.rows

    @abstractmethod
    def _put(self, values: Mapping[str, Floats]) -> None: ...

    @abstractmethod
    def _take(self, folder: Path) -> None: ...


def file_of(name: str) -> str:
    """Returns the name of the file of a column.

    Args:
        name: of the column.
    """
    return f"{name}.parquet"


class Added(ABC):
    """The added columns of several explorations, by key and name. Any number of threads may use it at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[_Column, int] = OrderedDict()  # bytes of each, the least lately read first
        self._read: Counter[_Column] = Counter()  # queries that read it now
        self._removals: Counter[str] = Counter()

    @property
    @abstractmethod
    def most(self) -> int:
        """Return the largest size of stored columns [bytes]."""

    @property
    def bytes(self) -> int:
        """Return the size of the stored columns [bytes]."""
        with self._lock:
            return sum(self._kept.values())

    def missing(self, key: str, names: Sequence[str]) -> list[str]:
        """Return the names without a stored column, once each."""
        with self._lock:
            return [name for name in dict.fromkeys(names) if (key, name) not in self._kept]

    def check_room(self, names: Sequence[str], rows: int) -> None:
        """Raise TooManyValuesError for more columns than can be added at once."""
        if VALUE * rows * len(set(names)) > self.most:
            raise TooManyValuesError(rows, len(set(names)), self.most // VALUE)

    @contextlib.contextmanager
    def reading(self, key: str, names: Sequence[str]) -> Iterator[list[str]]:
        """Gives where columns are, and keeps them there meanwhile. Raises NotEvaluatedError for any that is not."""
        wanted = [(key, name) for name in names]
        with self._lock:
            missing = [name for key, name in wanted if (key, name) not in self._kept]
            if missing:
                raise NotEvaluatedError(missing)
            for column in wanted:
                self._kept.move_to_end(column)
            self._read.update(wanted)
            places = [self._place(*column) for column in wanted]
        try:
            yield places
        finally:
            with self._lock:
                self._read.subtract(wanted)

    @contextlib.contextmanager
    def writing(self, key: str, names: Sequence[str], rows: int) -> Iterator[AddedWriter]:
        """Add columns for a number of rows: all of them if the block ends without error and every row has a value, else
        none.

        Raises TooManyValuesError; StoreError when the exploration was removed meanwhile or rows are missing.
        """
        self.check_room(names, rows)
        with self._lock:
            removals = self._removals[key]
        with self._writer(key, names, rows) as writer:
            yield writer
            if writer.done != rows:
                raise StoreError(f"Columns of {rows} rows are not complete with {writer.done} values.")
            with self._lock:
                if self._removals[key] != removals:
                    raise StoreError(f"Exploration {key} was removed while columns were added to it.")
                sizes = self._finish(writer)
                self._make_room(sum(sizes.values()))
                self._publish(key, writer)
                for name in writer.names:
                    self._kept[key, name] = sizes[name]
                    self._kept.move_to_end((key, name))

    def forget(self, key: str, names: Sequence[str] | None = None) -> None:
        """Remove columns of an exploration, all by default; columns being added to it then fail."""
        with self._lock:
            if names is None:
                self._removals[key] += 1
            for column in [one for one in self._kept if one[0] == key and (names is None or one[1] in names)]:
                del self._kept[column]
                self._drop(*column)

    def discard_unreadable(self, key: str, names: Sequence[str]) -> None:
        """Looks at columns that a query failed on; removes damaged ones and raises NotEvaluatedError for them."""
        damaged = [name for name in names if not self._readable(key, name)]
        if damaged:
            self.forget(key, damaged)
            raise NotEvaluatedError(damaged)

    def _make_room(self, size: int) -> None:
        """Remove the least recently read columns until more bytes have room, except columns being read."""
        for column in [one for one in self._kept if not self._read[one]]:
            if sum(self._kept.values()) + size <= self.most:
                return
            del self._kept[column]
            self._drop(*column)

    @abstractmethod
    def _writer(self, key: str, names: Sequence[str], rows: int) -> contextlib.AbstractContextManager[AddedWriter]: ...

    @abstractmethod
    def _finish(self, writer: AddedWriter) -> Mapping[str, int]:
        """End what was written; returns the size of each column [bytes]."""

    @abstractmethod
    def _publish(self, key: str, writer: AddedWriter) -> None:
        """Move the written files to their place (`_place`)."""

    @abstractmethod
    def _place(self, key: str, name: str) -> str:
        """Return the location at which queries find a column."""

    @abstractmethod
    def _drop(self, key: str, name: str) -> None: ...

    def _readable(self, key: str, name: str) -> bool:
        del key, name
        return True


class AddedFiles(Added):
    """Columns added to the rows of a store: a Parquet file each, in folders `<key>.added` next to the shards."""

    def __init__(self, files: StoreFiles, *, read_only: bool) -> None:
        super().__init__()
        self._files, self._read_only = files, read_only
        self._names: dict[_Column, str] = {}
        self._replaced: list[str] = []  # files that a query may still read

    @property
    def most(self) -> int:
        """Return the largest size of stored columns [bytes]."""
        return work_sizes().bytes_of_added_columns

    def close(self) -> None:
        """Removes everything that was added."""
        with contextlib.suppress(StoreError):  # swept when the store is next opened
            if self._names or self._replaced:
                self._files.remove([*self._names.values(), *self._replaced])
        self._names.clear()
        self._kept.clear()

    @contextlib.contextmanager
    def _writer(self, key: str, names: Sequence[str], rows: int) -> Iterator["ColumnFiles"]:
        folder = self._files.folder
        if self._read_only:
            raise StoreAccessError(
                f"The store of {folder} is open for reading only: open it for writing to evaluate more columns."
            )
        mine = self._files.make_folder(f"{key}{SUFFIX}")
        writer = ColumnFiles(folder / mine, names, rows)
        try:
            self._files.claim([f"{mine}/{writer.path(name).name}" for name in writer.names])
            yield writer
        finally:
            writer.close()
            with self._lock:
                published = set(self._names.values())
            files = [f"{mine}/{writer.path(name).name}" for name in writer.names]
            with contextlib.suppress(StoreError):
                self._files.remove([file for file in files if file not in published])

    def _finish(self, writer: AddedWriter) -> Mapping[str, int]:
        assert isinstance(writer, ColumnFiles)
        try:
            writer.finish()
            return {name: writer.path(name).stat().st_size for name in writer.names}
        except (OSError, pa.ArrowException) as error:
            raise explain(error, self._files.folder) from error

    def _publish(self, key: str, writer: AddedWriter) -> None:
        assert isinstance(writer, ColumnFiles)
        for name in writer.names:
            if (key, name) in self._names:
                self._replaced.append(self._names[key, name])
            self._names[key, name] = writer.path(name).relative_to(self._files.folder).as_posix()

    def _place(self, key: str, name: str) -> str:
        return str(self._files.folder / self._names[key, name])

    def _drop(self, key: str, name: str) -> None:
        with contextlib.suppress(StoreError):  # swept when the store is next opened
            self._files.remove([self._names.pop((key, name))])

    def _readable(self, key: str, name: str) -> bool:
        try:
            pq.read_table(self._place(key, name))
        except (KeyError, OSError, ValueError, pa.ArrowException):
            return False
        return True


class ColumnFiles(AddedWriter):
    """Writes a Parquet file per column into a folder; they are complete when its `with` block has ended well."""

    def __init__(self, folder: Path, names: Sequence[str], rows: int) -> None:
        super().__init__(names, rows)
        self._folder = folder
        self._files: dict[str, pq.ParquetWriter] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, problem: object, *_: object) -> None:
        try:
            if problem is None:
                self.finish()
        except (OSError, pa.ArrowException) as error:
            raise explain(error, self._folder) from error
        finally:
            self.close()

    def path(self, name: str) -> Path:
        """Return the path of a column's file until it is published."""
        return self._folder / file_of(name)

    def finish(self) -> None:
        """Writes what a file ends with; raises what pyarrow raises."""
        if not self.rows:
            self._put({name: np.empty(0) for name in self.names})
        while self._files:
            self._files.popitem()[1].close()

    def close(self) -> None:
        """Lets go of files that will not be published."""
        with contextlib.suppress(OSError, pa.ArrowException):  # closing writes a footer, which a full disk refuses
            self.finish()

    def _put(self, values: Mapping[str, Floats]) -> None:
        try:
            for name in self.names:
                schema = columns.schema_of([columns.by_name(name)])
                if name not in self._files:
                    # Figures of a block repeat in thousands of rows; the others are found not to and written plain.
                    self._files[name] = pq.ParquetWriter(self.path(name), schema, compression="lz4")
                self._files[name].write_table(pa.table([pa.array(values[name], pa.float64())], schema=schema))
        except (OSError, pa.ArrowException) as error:
            raise explain(error, self._folder) from error

    def _take(self, folder: Path) -> None:
        for name in self.names:
            shutil.move(folder / file_of(name), self.path(name))


class AddedArrays(Added):
    """Columns added to the rows of an exploration in memory, given back with it."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self._rows = max(1, rows)
        self._arrays: dict[_Column, Floats] = {}

    def onto(self, table: pa.Table) -> pa.Table:
        """Returns the rows with the columns that were added to them."""
        with self._lock:
            for (_, name), values in self._arrays.items():
                table = table.append_column(columns.schema_of([columns.by_name(name)]).field(0), pa.array(values))
        return table

    @property
    def most(self) -> int:
        """Return the largest size of stored columns [bytes]."""
        return work_sizes().columns_added_in_memory * VALUE * self._rows

    @contextlib.contextmanager
    def _writer(self, key: str, names: Sequence[str], rows: int) -> Iterator["_ArrayWriter"]:
        yield _ArrayWriter(names, rows)

    def _finish(self, writer: AddedWriter) -> Mapping[str, int]:
        return dict.fromkeys(writer.names, VALUE * writer.rows)

    def _publish(self, key: str, writer: AddedWriter) -> None:
        assert isinstance(writer, _ArrayWriter)
        self._arrays |= {(key, name): values for name, values in writer.arrays.items()}

    def _place(self, key: str, name: str) -> str:
        return name

    def _drop(self, key: str, name: str) -> None:
        del self._arrays[key, name]


class _ArrayWriter(AddedWriter):
    """Fills an array per column."""

    def __init__(self, names: Sequence[str], rows: int) -> None:
        super().__init__(names, rows)
        self.arrays = {name: np.empty(rows) for name in self.names}

    def _put(self, values: Mapping[str, Floats]) -> None:
        for name, array in self.arrays.items():
            array[self.done : self.done + len(values[name])] = values[name]

    def _take(self, folder: Path) -> None:
        for name in self.names:
            self.arrays[name][:] = pq.read_table(folder / file_of(name))[name].to_numpy()
