"""Result store: one DuckDB file, with Parquet next to it, that keeps every exploration."""

from engine.store.catalogue import Record
from engine.store.conditions import StoreCondition
from engine.store.errors import (
    NotEvaluatedError,
    StoreAccessError,
    StoreCorruptError,
    StoreError,
    StoreInterruptedError,
    StoreLockedError,
    StoreLossWarning,
    StoreMemoryError,
    StoreVersionError,
    StoreWriteError,
    TooManyValuesError,
)
from engine.store.keyed import KeyedTable
from engine.store.query import Histogram, Rows
from engine.store.result_store import Store
from engine.store.writer import Writer

__all__ = [
    "Histogram",
    "KeyedTable",
    "NotEvaluatedError",
    "Record",
    "Rows",
    "Store",
    "StoreAccessError",
    "StoreCondition",
    "StoreCorruptError",
    "StoreError",
    "StoreInterruptedError",
    "StoreLockedError",
    "StoreLossWarning",
    "StoreMemoryError",
    "StoreVersionError",
    "StoreWriteError",
    "TooManyValuesError",
    "Writer",
]
