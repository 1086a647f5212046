"""Schemas of columns for Arrow and DuckDB, from the register."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from engine.columns.register import NEUTRAL_EXTENSIONS, Column, stored_of

__all__ = ["arrow_type", "ddl", "duckdb_neutral", "duckdb_type", "headline_schema", "schema_of"]

_NEUTRAL_BY_OTHERS: Final = {"schedule": "CASE WHEN pipeline_interleaving > 1 THEN 'interleaved' ELSE '1f1b' END"}
"""SQL expressions for extensions whose neutral value depends on another field."""


def arrow_type(column: Column) -> pa.DataType:
    """Returns the Arrow type in which a column is stored.

    Fields are 32-bit integers because the largest of them, the number of GPUs, stays far below 2**31; they must be
    widened before they are multiplied. The id counts executions and needs 64 bits.

    Args:
        column: one that the register has.
    """
    if column.dtype == "int64":
        return pa.int64() if column.kind == "identifier" else pa.int32()
    if column.dtype == "float64":
        return pa.float64()
    if column.dtype == "bool":
        return pa.bool_()
    return pa.dictionary(pa.int8(), pa.string()) if column.name != "reason_text" else pa.string()


def duckdb_type(column: Column) -> str:
    """Returns the DuckDB type in which a column is stored; closed sets of choices become an ENUM in their order.

    Args:
        column: one that the register has.
    """
    if column.dtype == "int64":
        return "BIGINT" if column.kind == "identifier" else "INTEGER"
    if column.dtype == "float64":
        return "DOUBLE"
    if column.dtype == "bool":
        return "BOOLEAN"
    if column.choices and column.open is None:
        return f"ENUM ({', '.join(_quote_sql(choice, chr(39)) for choice in column.choices)})"
    return "VARCHAR"


def duckdb_neutral(column: Column) -> str:
    """Returns the SQL of what rows have in a column that they do not have, in its type.

    Args:
        column: one that the register has.
    """
    value = NEUTRAL_EXTENSIONS.get(column.name, 0.0)
    text = _NEUTRAL_BY_OTHERS.get(column.name, f"'{value}'" if isinstance(value, str) else str(value))
    return f"CAST({text} AS {duckdb_type(column)})"


def headline_schema(cost_model: str) -> pa.Schema:
    """Returns the Arrow schema of a stored row: id, the fields and the headline statistics of the cost model.

    Every field of the schema carries its unit and label as metadata, so that an exported Parquet file explains itself.

    Args:
        cost_model: name of a cost model that has been declared.
    """
    return schema_of(stored_of(cost_model))


def schema_of(chosen: Iterable[Column]) -> pa.Schema:
    """Return the Arrow schema of stored columns.

    Args:
        chosen: columns in the order in which the schema has them.
    """
    return pa.schema(
        [
            pa.field(
                column.name, arrow_type(column), nullable=False, metadata={"unit": column.unit, "label": column.label}
            )
            for column in chosen
        ]
    )


def ddl(table_name: str, cost_model: str) -> str:
    """Returns the CREATE TABLE statement for stored rows of a cost model.

    `table_name` may be any text; it is quoted as an identifier.

    Args:
        table_name: of the table that is made; it is quoted as an identifier.
        cost_model: name of a cost model that has been declared.
    """
    stored = stored_of(cost_model)
    lines = ",\n".join(f"    {_quote_sql(column.name, chr(34))} {duckdb_type(column)} NOT NULL" for column in stored)
    return f"CREATE TABLE {_quote_sql(table_name, chr(34))} (\n{lines}\n)"


def _quote_sql(text: str, mark: str) -> str:
    """Return SQL text in quotation marks, doubling any mark inside."""
    return f"{mark}{text.replace(mark, mark * 2)}{mark}"
