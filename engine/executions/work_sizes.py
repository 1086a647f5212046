"""Sizes of the pieces in which the engine works: smaller ones need less memory, larger ones less time.

No result depends on them. They hold for the whole process, for a while or from now on:

    with engine.working_in(engine.WorkSizes(points_explored=512, rows_evaluated=1024)):
        engine.explore(...)
    engine.set_work_sizes(engine.WorkSizes(largest_in_memory=2_000_000))
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Final

__all__ = ["WorkSizes", "set_work_sizes", "work_sizes", "working_in"]


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkSizes:
    """Sizes of pieces of work.

    Raises:
        ValueError: a size is below its least.
    """

    points_explored: int = 4096
    """(cell, interleaving, microbatch) combinations that an exploration prepares together: some tens of MiB."""
    points_searched: int = 32_768
    """Schedule points of a space that one search by bounds looks at together: half a second's work. The best of them
    rules out most of the others, so that such a search takes about as long as one of everything at once."""
    points_kept: int = 65_536
    """Schedule points that are kept together for searches of the same space with other rates."""
    points_fitted: int = 1024
    """Schedule points whose memory is computed together: a few MiB, which stay in cache."""
    points_bounded: int = 16_384
    """Schedule points whose own bounds are computed together."""
    modes_bounded: int = 262_144
    """(schedule point, block mode) pairs whose bounds are computed together."""
    first_points: int = 64
    """Most promising schedule points that are examined first."""
    first_rows: int = 48
    """Executions evaluated before bounds are compared with anything."""
    bounds_followed: int = 8192
    """Bounds followed up together, best first."""
    rows_evaluated: int = 8192
    """Rows evaluated together: intermediate arrays stay in cache (measured: 7 times faster than whole arrays)."""
    rows_tabulated: int = 16_384
    """Rows of the calibrated cost model's tables computed together: intermediate arrays stay in cache."""
    rows_with_statistics: int = 32_768
    """Rows evaluated together with all statistics, for added columns and exports: about 50 MiB."""
    rows_of_file: int = 100_000
    """Rows of a file of executions read and evaluated together: about 200 MiB with all statistics."""
    rows_of_group: int = 65_536
    """Rows per Parquet row group of the store. Measured on 5 M rows: 32 k finds the best 200 rows twice as fast as
    122 k but reads whole columns 30 % slower; this lies between."""
    groups_of_shard: int = 16
    """Row groups per file of the store, about 40 MB."""
    groups_of_transfer: int = 8
    """Row groups per file that a worker hands over, about 100 MB in memory."""
    largest_in_memory: int = 20_000_000
    """Feasible executions that are kept in memory without a store: about 3 GiB."""
    columns_added_in_memory: int = 8
    """Columns that are added to rows in memory, which hold about 25 as wide."""
    bytes_of_added_columns: int = 5 << 29
    """Largest size of the added columns of one store [bytes], and of columns added at once before compression: all 77
    of `calculon` for 4.3 million rows. On disk those take 10 bytes per row."""
    database_mib: int = 128
    """Memory limit of DuckDB [MiB]: without one it takes most of the machine over time, for tables that it could read
    again at hardly any cost."""
    sorting_mib: int = 384
    """Additional memory while it sorts many rows [MiB]. Larger sorts spill to disk next to the file, but a sort of
    3.7 M rows fails with 128 MiB."""
    bytes_of_fits: int = 32 * 2**20
    """Size of cached answers to which schedule points fit, in addition to the latest capacities [bytes]."""
    seconds_between_reports: float = 0.1
    """Least time between two reports of progress [s]."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in ("bytes_of_fits", "seconds_between_reports", "sorting_mib") else 1
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
                raise ValueError(f"{field.name} is {value!r}; it must be a number of at least {least}.")


_CURRENT: Final = [WorkSizes()]
"""Sizes in force, the latest last."""


def work_sizes() -> WorkSizes:
    """Return the sizes in force."""
    return _CURRENT[-1]


def set_work_sizes(sizes: WorkSizes) -> None:
    """Work in pieces of other sizes from now on: to the end of the process, or of a surrounding `working_in`.

    Args:
        sizes: the sizes that replace those in force.
    """
    _CURRENT[-1] = sizes


@contextmanager
def working_in(sizes: WorkSizes) -> Iterator[None]:
    """Work in pieces of other sizes for as long as the block lasts, in all threads of the process.

    Args:
        sizes: the sizes inside the block; those before hold again after it.
    """
    _CURRENT.append(sizes)
    try:
        yield
    finally:
        _CURRENT.pop()
