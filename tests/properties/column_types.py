"""Columns of every type that pandas and Arrow have, with the plain Python values that they hold."""

from __future__ import annotations

import datetime
import enum
import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

NAN, INF = float("nan"), float("inf")
DAY = datetime.datetime(2024, 2, 3, 4, 5, 6)


class Count(enum.IntEnum):
    TWO = 2


class Unfriendly:
    """Cannot be hashed, compared or printed."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    def __hash__(self) -> int:
        raise RuntimeError("no hash")

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def meaning(kind: str, cell: Any) -> Any:
    """What a cell means in a field of a kind: a plain int, bool or str; None where it means nothing there."""
    if isinstance(cell, np.generic) and not isinstance(cell, np.timedelta64 | np.datetime64):
        cell = float(cell) if isinstance(cell, np.floating) else cell.item()
    if kind == "str":
        return cell if isinstance(cell, str) else None
    if isinstance(cell, bool):
        return cell if kind == "bool" else None
    if (isinstance(cell, float) and not math.isfinite(cell)) or (isinstance(cell, Decimal) and not cell.is_finite()):
        return None
    if not isinstance(cell, int | float | Decimal | Fraction) or cell != int(cell):
        return None
    if kind == "bool":
        return bool(cell) if cell in (0, 1) else None
    return int(cell) if abs(cell) < 2**31 else None


def is_empty(cell: Any) -> bool:
    """Whether a cell stands for no value at all."""
    if cell is None or cell is pd.NA or cell is pd.NaT:
        return True
    if isinstance(cell, Decimal):
        return cell.is_nan()
    return isinstance(cell, float | complex | np.number | np.datetime64) and bool(cell != cell)


def _arrow(cells: list[Any], kind: pa.DataType) -> pd.Series[Any]:
    return pd.Series(pd.arrays.ArrowExtensionArray(pa.array(cells, kind)))


def columns(number: int, word: str) -> Iterator[tuple[str, list[Any], pd.Series[Any]]]:
    """(name, cells as plain Python values, the column) of every type."""
    whole = [number, 1, 0, number]
    gaps: list[Any] = [number, None, 1, 0]
    fractions = [float(number), number + 0.5, NAN, 1.0]
    truths: list[Any] = [True, False, True, False]
    words: list[Any] = [word, "unheard-of", "2", word]

    for width in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        yield width, whole, pd.Series(whole, dtype=width)
        nullable = width.replace("i", "I").replace("uI", "UI")
        yield nullable, gaps, pd.Series(gaps, dtype=nullable)
        yield f"arrow {width}", gaps, _arrow(gaps, getattr(pa, width)())
    large = [2**64 - 1, number, 2**63, 2**31]
    yield "uint64 beyond int64", large, pd.Series(large, dtype="uint64")
    yield "UInt64 beyond int64", large, pd.Series(large, dtype="UInt64")
    yield "arrow uint64 beyond int64", large, _arrow(large, pa.uint64())
    for width in ("float16", "float32", "float64", "longdouble"):
        yield width, [*fractions, INF, -INF], pd.Series(np.array([*fractions, INF, -INF], width))
    hair = np.longdouble(number) + np.finfo(np.longdouble).eps * 4
    if hair != number:
        yield "a hair above", [Fraction(1, 3)], pd.Series(np.array([hair]))
    for width in ("Float32", "Float64"):
        yield width, [*fractions[:2], None, INF], pd.Series([*fractions[:2], None, INF], dtype=width)
    for width in ("float16", "float32", "float64"):
        found = [np.dtype(width).type(cell) for cell in fractions] if width == "float16" else fractions
        yield f"arrow {width}", [*fractions, None], _arrow([*found, None], getattr(pa, width)())
    exact = [Decimal(number), Decimal(number) + Decimal("0.5"), None, Decimal("1.00")]
    for kind in (pa.decimal32(8, 2), pa.decimal64(9, 2), pa.decimal128(20, 2), pa.decimal256(60, 2)):
        yield f"arrow {kind}", exact, _arrow(exact, kind)

    yield "bool", truths, pd.Series(truths)
    yield "boolean", [*truths[:3], None], pd.Series([*truths[:3], None], dtype="boolean")
    yield "arrow bool", [*truths[:3], None], _arrow([*truths[:3], None], pa.bool_())

    for kind in ("str", "string[python]", "string[pyarrow]", object):
        yield f"{kind} of words", [*words, None], pd.Series([*words, None], dtype=kind)
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        yield f"arrow {kind}", [*words, None], _arrow([*words, None], kind)
    for kind in (pa.binary(), pa.large_binary(), pa.binary(2)):
        yield f"arrow {kind}", [b"ab", None], _arrow([b"ab", None], kind)
    yield (
        "arrow dictionary of numbers",
        [number, None, 1],
        pd.Series(pd.arrays.ArrowExtensionArray(pa.array([number, None, 1]).dictionary_encode())),
    )

    for name, cells in {"numbers": gaps, "fractions": fractions, "truths": truths, "words": [*words, None]}.items():
        yield f"category of {name}", cells, pd.Series(pd.Categorical(cells))
    several = [True, number + 1, word]
    yield (
        "category of a mixture",
        several,
        pd.Series(pd.Categorical(several, categories=pd.Index(several, dtype=object))),
    )

    yield "sparse numbers", whole, pd.Series(pd.arrays.SparseArray(whole))
    yield "sparse fractions", fractions, pd.Series(pd.arrays.SparseArray(fractions))
    yield "sparse truths", truths, pd.Series(pd.arrays.SparseArray(truths))

    days = pd.to_datetime(pd.Series([DAY, None]))
    yield "datetime", [DAY, None], days
    yield "datetime with zone", [DAY, None], days.dt.tz_localize("UTC")
    yield "datetime of a number", [DAY], pd.Series(np.array([number], "datetime64[s]"))
    yield "timedelta", [DAY], pd.Series(np.array([number], "timedelta64[s]"))
    yield "period", [DAY, None], days.dt.to_period("D")
    yield "interval", [DAY, DAY], pd.Series(pd.interval_range(0, 2))
    for kind in (pa.timestamp("s"), pa.timestamp("us", "UTC"), pa.date32(), pa.date64()):
        yield f"arrow {kind}", [DAY, None], _arrow([DAY, None], kind)
    for kind in (pa.time32("s"), pa.duration("s"), pa.time64("us")):
        yield (
            f"arrow {kind}",
            [DAY, None],
            _arrow([None, None], pa.int64())
            if kind is None
            else pd.Series(
                pd.arrays.ArrowExtensionArray(
                    pa.array([number, None], pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
                )
            ),
        )
    nested: list[tuple[pa.DataType, list[Any]]] = [
        (pa.list_(pa.int64()), [[number], None, []]),
        (pa.large_list(pa.int64()), [[number], None]),
        (pa.list_(pa.int64(), 1), [[number], None]),
        (pa.struct([("a", pa.int64())]), [{"a": number}, None]),
        (pa.map_(pa.string(), pa.int64()), [[("a", number)], None]),
    ]
    for kind, values in nested:
        yield f"arrow {kind}", [None if cell is None else object() for cell in values], _arrow(values, kind)
    yield "arrow null", [None, None], _arrow([None, None], pa.null())
    for width in ("complex64", "complex128"):
        yield width, [complex(number), 1j], pd.Series(np.array([number, 1j], width))

    mixture: list[Any] = [
        None,
        NAN,
        pd.NA,
        pd.NaT,
        INF,
        -INF,
        True,
        False,
        np.True_,
        number,
        float(number),
        number + 0.5,
        1,
        0,
        1.0,
        0.0,
        Count.TWO,
        2**31,
        -(2**31),
        2**64,
        10**400,
        10**5000,
        -(10**5000),
        1e300,
        np.int8(number),
        np.uint64(2**64 - 1),
        np.float16(number),
        np.float16(2.5),
        np.float32(NAN),
        np.longdouble(1),
        np.timedelta64(number, "s"),
        np.timedelta64(number),
        np.datetime64(number, "s"),
        np.datetime64("NaT"),
        np.timedelta64("NaT"),
        np.str_(word),
        np.bytes_(b"2"),
        np.complex128(number),
        Decimal(number),
        Decimal("1.5"),
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("Infinity"),
        Decimal("1E+9999"),
        Decimal("1E-9999"),
        Fraction(number),
        Fraction(1, 3),
        complex(number),
        complex(NAN),
        word,
        "unheard-of",
        str(number),
        "true",
        "",
        " ",
        "\ud800",
        "a\nb",
        "x" * 10_000,
        b"2",
        bytearray(b"2"),
        (),
        (number,),
        [number],
        {},
        {number},
        frozenset(),
        np.array([number]),
        np.array(number),
        np.array([]),
        pd.Series([number]),
        pd.Timestamp(0),
        pd.Timedelta(number),
        pd.Interval(0, 1),
        pd.Period("2024"),
        datetime.date(2024, 1, 1),
        pa.scalar(number),
        object(),
        int,
        Unfriendly(),
        lambda: number,
        range(number),
    ]
    column = np.empty(len(mixture), object)
    for row, cell in enumerate(mixture):
        column[row] = cell
    yield "objects", mixture, pd.Series(column)
