"""Rows of large explorations as Parquet shards: recorded before they are made, verified before they are used.

Neither DuckDB nor the format notices a flipped bit: it gives other numbers. So the record of an exploration has a
checksum of each shard, and a process verifies a shard when it is first used, and again once the file has changed.
"""

import contextlib
import errno
import io
import json
import os
import shutil
import stat
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from engine import columns
from engine.executions.work_sizes import work_sizes
from engine.store import text as store_text
from engine.store.creation import flush_to_disk
from engine.store.errors import ADVICE, StoreCorruptError, StoreError, explain
from engine.store.files import StoreFiles, is_name

_MAGIC: Final = b"PAR1"
_PIECE: Final = 1 << 20
"""Bytes of a shard that are read, or sent to the system, together."""
# Dictionaries for everything but the id and the statistics, whose values hardly repeat: looking each one up doubles the
# time to write. Measured on 1.25 M rows: lz4 0.4 s, 47 MB; zstd 0.6 s, 34 MB, and its queries take 1.5 times as long.
_OPTIONS: Final[dict[str, Any]] = {
    "compression": "lz4",
    "use_dictionary": [column.name for column in columns.ALL_FIELDS if column.dtype != "bool"],
}


Verified = dict[Path, tuple[tuple[int, ...], str | None]]
"""Shards that were read to the end, as they were then (see `_file_state`), and what was wrong with each."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One Parquet file of an exploration, as its record describes it."""

    name: str
    """Path relative to the folder of the store."""
    bytes: int
    rows: int
    checksum: int | None = None
    """CRC-32 of the file; None for one that was written before there were checksums.

    Measured on one core: 1.4 GB/s, as SHA-256 with instructions of its own for it and three times as fast as without.
    """


class _ChecksummedFile(io.FileIO):
    """A file that keeps a checksum of its input: the bytes that reach the disk may differ."""

    checksum = 0

    def write(self, content: Any, /) -> int:
        self.checksum = zlib.crc32(content, self.checksum)
        written, view = 0, memoryview(content).cast("B")
        while written < len(view):
            written += super().write(view[written:]) or 0
        return written


class _SumOfWhatIsWritten(io.BufferedWriter):
    """A new file with such a checksum. Parquet is written some kilobytes at a time, and summed by the megabyte."""

    def __init__(self, path: Path) -> None:
        """Raises FileExistsError where there is such a file."""
        self._sum = _ChecksummedFile(path, "xb")
        super().__init__(self._sum, _PIECE)

    @property
    def checksum(self) -> int:
        """The CRC-32 of all that has been written."""
        self.flush()
        return self._sum.checksum


class RowGroups:
    """Rows as they come, in pieces of a row group."""

    def __init__(self, rows_per_group: int) -> None:
        self._size = rows_per_group
        self._pending: list[pa.Table] = []
        self._rows = 0

    def full(self, rows: pa.Table) -> list[pa.Table]:
        """Add rows; return the tables that fill row groups."""
        self._pending.append(rows)
        self._rows += rows.num_rows
        if self._rows < self._size:
            return []
        table = pa.concat_tables(self._pending)
        whole = self._rows - self._rows % self._size
        self._pending, self._rows = [table.slice(whole)], self._rows - whole
        return [table.slice(first, self._size) for first in range(0, whole, self._size)]

    def rest(self) -> list[pa.Table]:
        """Return the remaining rows, which fill no row group."""
        left = [pa.concat_tables(self._pending)] if self._rows else []
        self._pending, self._rows = [], 0
        return left


class ShardFile:
    """One shard that is being written: for the exploration that it is of, or for one that takes it, perhaps in another
    process."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, and FileExistsError where there is such a file."""
        self.path = path
        self.rows = 0
        """Number of appended rows."""
        self._file = _SumOfWhatIsWritten(path)
        self._writer: pq.ParquetWriter | None = None

    def append(self, rows: pa.Table) -> None:
        """Appends one row group, with the columns of the register. Raises OSError and `pyarrow.ArrowException`."""
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._file, rows.schema, **_OPTIONS)
        self._writer.write_table(rows, row_group_size=work_sizes().rows_of_group)
        self.rows += rows.num_rows

    def close(self) -> int:
        """Ends the file, without waiting for the disk; returns the checksum of what was written. Raises as `append`."""
        assert self._writer is not None
        self._writer.close()
        with self._file:
            return self._file.checksum

    def discard(self) -> None:
        """Close the file regardless of its content."""
        if self._writer is not None:
            with contextlib.suppress(OSError, pa.ArrowException):  # closing writes a footer, which a full disk refuses
                self._writer.close()
        with contextlib.suppress(OSError):
            self._file.close()


class ShardWriter:
    """Writer of the shards of one exploration. The store removes the remains of an incomplete one."""

    def __init__(self, files: StoreFiles, key: str) -> None:
        self._files = files
        self._folder = files.make_folder(key)
        self._shards: list[Shard] = []
        self._file: ShardFile | None = None
        self._begun = 0

    def write(self, rows: pa.Table) -> None:
        """Appends one row group."""
        try:
            if self._file is None:
                self._claim()
                self._file = ShardFile(self._path())
            self._file.append(rows)
            if self._file.rows >= work_sizes().groups_of_shard * work_sizes().rows_of_group:
                self._close_shard()
        except (OSError, pa.ArrowException) as error:
            raise explain(error, self._path()) from error

    def take(self, path: Path, rows: int, checksum: int) -> None:
        """Append a whole `ShardFile` that was written elsewhere, by moving it."""
        try:
            self._close_shard()
            self._claim()
            shutil.move(path, self._path())
            self._add(rows, checksum)
        except (OSError, pa.ArrowException) as error:
            raise explain(error, self._path()) from error

    def publish(self) -> list[Shard]:
        """Flush everything to disk; return the shards."""
        try:
            self._close_shard()
            flush_to_disk(self._files.folder / self._folder)
            flush_to_disk(self._files.folder)
        except (OSError, pa.ArrowException) as error:
            raise explain(error, self._path()) from error
        return self._shards

    def discard(self) -> None:
        """Removes every trace, published or not. What cannot be removed now is swept when the store is next opened."""
        if self._file is not None:
            self._file.discard()
            self._file = None
        with contextlib.suppress(StoreError):
            self._files.remove([f"{self._folder}/", *self.names()])

    def _claim(self) -> None:
        """Record the name of the next shard before it is made; a foreign file must not be removed."""
        name = self._name(self._begun)
        if os.path.lexists(self._files.folder / name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self._files.folder / name))
        self._files.claim([name])
        self._begun += 1

    def names(self) -> list[str]:
        """Return the shards that were begun, by name in the folder of the store."""
        return [self._name(number) for number in range(self._begun)]

    def _name(self, number: int) -> str:
        return f"{self._folder}/{number:05d}.parquet"

    def _path(self) -> Path:
        return self._files.folder / self._name(max(0, self._begun - 1))

    def _close_shard(self) -> None:
        if self._file is not None:
            self._add(self._file.rows, self._file.close())
            self._file = None

    def _add(self, rows: int, checksum: int) -> None:
        """Takes note of a shard that is complete."""
        flush_to_disk(self._path())
        self._shards.append(Shard(self._name(self._begun - 1), self._path().stat().st_size, rows, checksum))


def to_json(shards: Iterable[Shard]) -> str:
    """Returns the list of shards as the record keeps it.

    Args:
        shards: in the order of their rows.
    """
    return json.dumps([asdict(shard) for shard in shards])


def from_json(key: str, text: object) -> list[Shard]:
    """Return the list of shards from the record of an exploration. Raises ValueError for invalid text.

    Args:
        key: of the exploration.
        text: text of the record.
    """
    try:
        shards = [Shard(**entry) for entry in store_text.list_of(text)]
    except TypeError:
        raise ValueError("is not a list of shards") from None
    # Before there were checksums, names were those in the folder of the exploration.
    shards = [
        replace(shard, name=f"{key}/{shard.name}") if isinstance(shard.name, str) and "/" not in shard.name else shard
        for shard in shards
    ]
    for shard in shards:
        for number in (shard.bytes, shard.rows, shard.checksum or 0):
            store_text.number_of(number)
        if not is_name(shard.name):
            raise ValueError("names a shard that is not in its folder")
    return shards


class Shards:
    """The shards of one stored exploration, verified before they are read."""

    def __init__(self, folder: Path, shards: list[Shard], verified: Verified) -> None:
        self._paths = [(folder / shard.name, shard) for shard in shards]
        self._verified = verified

    @property
    def files(self) -> list[str]:
        """Return the paths of the shards."""
        return [str(path) for path, _ in self._paths]

    def columns(self) -> set[str] | None:
        """Return the columns of the shards; None if they cannot be read, which `verify` explains."""
        try:
            return set(pq.read_schema(self._paths[0][0]).names) if self._paths else set()
        except (OSError, pa.ArrowException):  # removed since by who deleted the exploration, or damaged
            return None

    def damage(self) -> str | None:
        """Return a sentence naming the first shard that is missing, cut short, overwritten or known to be damaged.

        None if all look whole. Uses sizes and earlier verification: a few system calls per shard.
        """
        found = (_visible_damage(path, shard, self._verified) for path, shard in self._paths)
        return next((f"{said}: {ADVICE}" for said in found if said), None)

    def verify(self) -> None:
        """Raises StoreCorruptError for the first that is not what was written, down to the last bit.

        Each is read to the end once in the life of a process, and again when the file has changed since.
        """
        for path, shard in self._paths:
            said = damage_inside(path, shard, self._verified)
            if said is not None:
                raise StoreCorruptError(f"{said}: {ADVICE}")

    def name_unreadable(self) -> None:
        """Raises StoreCorruptError for the first that cannot be read to its end.

        For use after a query has failed, because a reader's complaint about damage often names no file.
        """
        for path, shard in self._paths:
            said = find_undecodable(path, shard)
            if said is not None:
                raise StoreCorruptError(f"{said}: {ADVICE}")


def damage_inside(path: Path, shard: Shard, verified: Verified) -> str | None:
    """Return a sentence about damage to a shard, down to the last bit; None if it is intact.

    Args:
        path: of the file.
        shard: its entry in the record.
        verified: earlier results of verification; extended here.
    """
    said = _visible_damage(path, shard, verified)
    try:
        state = _file_state(path)
        if said is None and shard.checksum is not None and verified.get(path, ((), None))[0] != state:
            if _compute_checksum(path) != shard.checksum:
                said = f"The shard {path} is damaged (it is not what was written)"
            verified[path] = (state, said)
    except OSError as error:
        said = said or f"The shard {path} cannot be read ({error.strerror})"
    return said


def with_checksum(folder: Path, shard: Shard) -> Shard:
    """Return a shard with the checksum of its present content. Raises a StoreError if it cannot be read.

    Args:
        folder: of the store.
        shard: its entry in the record.
    """
    path = folder / shard.name
    try:
        return shard if shard.checksum is not None else replace(shard, checksum=_compute_checksum(path))
    except OSError as error:
        raise explain(error, path) from error


def find_undecodable(path: Path, shard: Shard) -> str | None:
    """Return a sentence about damage to a shard without a checksum; None if it can be read to its end.

    Args:
        path: of the file.
        shard: its entry in the record.
    """
    try:
        with pq.ParquetFile(path) as file:
            rows = sum(file.read_row_group(group).num_rows for group in range(file.num_row_groups))
    except (OSError, ValueError, pa.ArrowException) as error:
        reason = str(error).split("\n", 1)[0].rstrip(".")
        return f"The shard {path} is damaged ({reason})"
    return None if rows == shard.rows else f"The shard {path} is damaged ({rows:,} rows of {shard.rows:,} are left)"


def _visible_damage(path: Path, shard: Shard, verified: Verified) -> str | None:
    try:
        state = _file_state(path)
        if state[0] != shard.bytes:
            return f"The shard {path} has {state[0]} bytes where {shard.bytes} were written"
        known, sentence = verified.get(path, ((), None))
        if known == state:
            return sentence
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
            file.seek(max(0, state[0] - len(_MAGIC)))
            tail = file.read()
    except FileNotFoundError:
        return f"The shard {path} is missing"
    except OSError as error:
        return f"The shard {path} cannot be read ({error.strerror})"
    return None if head == tail == _MAGIC else f"The shard {path} is not the Parquet file that was written"


def _file_state(path: Path) -> tuple[int, ...]:
    """Return values that change with a file, its size first. Raises OSError for anything but a file."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is a link, or no file")
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev


def _compute_checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            checksum = zlib.crc32(piece, checksum)
    return checksum
