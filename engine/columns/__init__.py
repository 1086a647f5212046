"""The register of every field and every result; labels, units, tables, exports and help derive from it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from engine.columns.derived import FITS, MFU_OF, TFLOPS_OF, Fit, rates_beside
from engine.columns.fields import GROUPS
from engine.columns.register import (
    ALL,
    ALL_FIELDS,
    DERIVED,
    EXTENSION_STATISTICS,
    EXTENSIONS,
    FIELDS,
    FIT,
    HEADLINE,
    HEADLINE_OF_ANY,
    ID,
    NEUTRAL_EXTENSIONS,
    OUTCOME,
    SHARES,
    STATISTICS,
    STORED_OF_ANY,
    UNITS,
    Column,
    ColumnSet,
    UnknownColumn,
    applies,
    by_name,
    called,
    choice_label,
    choices_of,
    cost_model_in,
    cost_models_with,
    declare,
    defined_of,
    fields_of,
    headline_of,
    in_order,
    parts_of,
    statistics_of,
    stored_of,
    undeclare,
    value_of,
)
from engine.columns.rules import EXPERTS, SECOND_TIER
from engine.columns.statistics import HEADLINE_NAMES, OF_LAYERS

if TYPE_CHECKING:
    from engine.columns.schemas import arrow_type, ddl, duckdb_neutral, duckdb_type, headline_schema, schema_of

__all__ = [
    "ALL",
    "ALL_FIELDS",
    "DERIVED",
    "EXPERTS",
    "EXTENSIONS",
    "EXTENSION_STATISTICS",
    "FIELDS",
    "FIT",
    "FITS",
    "GROUPS",
    "HEADLINE",
    "HEADLINE_NAMES",
    "HEADLINE_OF_ANY",
    "ID",
    "MFU_OF",
    "NEUTRAL_EXTENSIONS",
    "OF_LAYERS",
    "OUTCOME",
    "SECOND_TIER",
    "SHARES",
    "STATISTICS",
    "STORED_OF_ANY",
    "TFLOPS_OF",
    "UNITS",
    "Column",
    "ColumnSet",
    "Fit",
    "UnknownColumn",
    "applies",
    "arrow_type",
    "by_name",
    "called",
    "choice_label",
    "choices_of",
    "cost_model_in",
    "cost_models_with",
    "ddl",
    "declare",
    "defined_of",
    "duckdb_neutral",
    "duckdb_type",
    "fields_of",
    "headline_of",
    "headline_schema",
    "in_order",
    "parts_of",
    "rates_beside",
    "schema_of",
    "statistics_of",
    "stored_of",
    "undeclare",
    "value_of",
]

_OF_SCHEMAS = ("arrow_type", "ddl", "duckdb_neutral", "duckdb_type", "headline_schema", "schema_of")
"""Names that need Arrow, which takes long to load."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Return a name of `schemas` when it is first used."""
        if name not in _OF_SCHEMAS:
            raise AttributeError(f"module 'engine.columns' has no attribute {name!r}")
        globals()[name] = found = getattr(import_module("engine.columns.schemas"), name)
        return found
