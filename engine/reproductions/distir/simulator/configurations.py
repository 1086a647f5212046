"""Tables of configurations D, H, P, m: how they are read, and why one cannot run.

D replicas share the batch (data parallel), H shards share every weight (horizontal, as in Megatron-LM), P stages hold
consecutive layers (pipeline), and every replica's batch is cut into m microbatches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.executions.arrays import Flags, Floats, Ints
from engine.reproductions.distir.simulator.cost_models import LARGEST_GROUP
from engine.reproductions.distir.simulator.errors import ConfigurationError

__all__ = ["DEGREES", "LARGEST", "REASONS", "ConfigurationError", "Configurations", "read", "reasons", "style"]

DEGREES: Final = ("D", "H", "P", "m")
SIZES: Final = ("width", "layers", "batch")
LARGEST: Final[Mapping[str, int]] = {"width": 2**24, "layers": 100_000, "batch": 2**40}
"""Largest sizes that are read."""
LARGEST_DEGREE: Final = 2**40
"""Largest degree of parallelism that is read. Source: stated by us."""
LARGEST_PIPELINE: Final = 256
"""Stages of a pipeline that is simulated at most."""


@dataclass(frozen=True, slots=True)
class Configurations:
    """Degrees and sizes, one per row [rows]."""

    D: Ints
    H: Ints
    P: Ints
    m: Ints
    width: Ints
    layers: Ints
    batch: Ints

    def __len__(self) -> int:
        return len(self.D)

    def at(self, rows: Ints) -> Configurations:
        """Returns the configurations at some positions."""
        return Configurations(*(getattr(self, name)[rows] for name in (*DEGREES, *SIZES)))


REASONS: Final[Mapping[str, str]] = {
    "not_whole": "D, H, P and m must each be a whole number of at least 1.",
    "no_such_group": f"D {{D}} and H {{H}}: collectives have a cost for 2, 4, 8, ... {LARGEST_GROUP:,} devices only.",
    "layers_not_divisible": "P {P} does not divide the {layers} layers.",
    "too_many_microbatches": "m {m} exceeds the {share} samples of a replica (batch {batch} over D {D}).",
    "batch_not_divisible": "D {D} x m {m} does not divide the batch of {batch}.",
    "microbatches_without_stages": "m {m} needs a pipeline: with P 1 there is one microbatch.",
    "width_not_divisible": "H {H} does not divide the width of {width}.",
    "odd_layers": "H {H} needs an even number of layers, not {layers}: columns and rows of weights are cut in turns.",
    "too_many_stages": f"P {{P}} is more than the {LARGEST_PIPELINE} stages that are simulated.",
    "too_large": "{layers} layers of width {width} with a batch of {batch} are more bytes than 64 bits can count.",
    "memory": "needs {need} bytes, more than the limit of {limit} bytes.",
}
"""Code -> sentence with the row's numbers. The first that applies, in this order, is the row's."""


def read(rows: pd.DataFrame | Iterable[Mapping[str, Any]]) -> tuple[pd.DataFrame, dict[str, Ints]]:
    """Return the table with a fresh index, and its degrees as whole numbers; 0 stands for an invalid degree.

    Args:
        rows: columns D, H, P and m; others are kept as they are.

    Raises ConfigurationError for anything but a table, and for a table that lacks a column or has one twice.
    """
    if isinstance(rows, pd.DataFrame):
        table = rows.reset_index(drop=True).copy()
    else:
        given = list(rows) if isinstance(rows, Iterable) and not isinstance(rows, str | bytes | Mapping) else None
        if given is None or not all(isinstance(row, Mapping) for row in given):
            raise ConfigurationError("Configurations are a DataFrame or a list of mappings with D, H, P and m.")
        table = pd.DataFrame(given, columns=None if given else list(DEGREES))
    lacking = [name for name in DEGREES if name not in table.columns]
    if lacking:
        raise ConfigurationError(f"The table of configurations lacks {', '.join(lacking)}; it needs D, H, P, m.")
    if not table.columns.is_unique:
        raise ConfigurationError("The table of configurations has two columns of one name.")
    degrees = {}
    for name in DEGREES:
        values = np.asarray(pd.to_numeric(table[name], errors="coerce"), np.float64)
        whole = np.isfinite(values) & (values == np.floor(values)) & (values >= 1) & (values <= LARGEST_DEGREE)
        degrees[name] = np.where(whole, values, 0).astype(np.int64)
    return table, degrees


def size(name: str, value: Any) -> int:
    """Returns a size of the model as a whole number.

    Args:
        name: of the number, for messages.
        value: the value to check, of any type.

    Raises ConfigurationError if it is not a whole number, or too large.
    """
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    whole = whole or (isinstance(value, float | np.floating) and np.isfinite(value) and float(value).is_integer())
    if not whole or not 1 <= int(value) <= LARGEST[name]:
        raise ConfigurationError(f"{name} is {str(value)[:40]}; it must be a whole number from 1 to {LARGEST[name]:,}.")
    return int(value)


def _bytes_at_most(c: Configurations) -> Floats:
    """More than any configuration keeps [bytes]: weights and gradients, all activations, inputs, gathered outputs."""
    width, layers, batch = (np.asarray(getattr(c, name), np.float64) for name in SIZES)
    most: Floats = 8.0 * (4.0 * layers * width**2 + (2.0 * layers + 10.0) * batch * width)
    return most


def is_group(degree: Ints) -> Flags:
    """Returns whether collectives have a cost for groups of each size.

    Args:
        degree: devices of a group [rows].
    """
    known: Flags = (degree & (degree - 1) == 0) & (degree <= LARGEST_GROUP)
    return known


def reasons(c: Configurations) -> list[str]:
    """Returns per row the code of the first rule that the configuration breaks, empty for none [rows].

    Args:
        c: degrees and sizes of configurations [rows].
    """
    one = np.ones(len(c), np.int64)
    D, H, P, m = (np.maximum(degree, one) for degree in (c.D, c.H, c.P, c.m))  # noqa: N806 - DistIR's letters
    broken = (
        ("not_whole", np.minimum.reduce([c.D, c.H, c.P, c.m]) < 1),
        ("no_such_group", ~(is_group(D) & is_group(H))),
        ("layers_not_divisible", c.layers % P != 0),
        ("too_many_microbatches", m > c.batch // D),
        ("batch_not_divisible", (c.batch % D != 0) | (c.batch // D % m != 0)),
        ("microbatches_without_stages", (P == 1) & (m > 1)),
        ("width_not_divisible", c.width % H != 0),
        ("odd_layers", (H > 1) & (c.layers % 2 != 0)),
        ("too_large", _bytes_at_most(c) >= 2.0**62),
        ("too_many_stages", P > LARGEST_PIPELINE),
    )
    found = np.full(len(c), "", object)
    for code, where in reversed(broken):
        found[where] = code
    return [str(code) for code in found]


def sentence(code: str, row: Mapping[str, Any]) -> str:
    """Returns the sentence of a reason with the row's numbers in it; empty for no reason.

    Args:
        code: of a reason; empty for none.
        row: numbers of the configuration, by name of column.
    """
    if not code:
        return ""
    numbers = {name: f"{value:,}" if isinstance(value, int) else value for name, value in row.items()}
    return REASONS[code].format(**numbers)


def style(D: int, H: int, P: int) -> str:  # noqa: N803 - DistIR's letters
    """Returns the name of a combination: Base, D, T, P, D/T, T/P, D/P or D/T/P. T is horizontal, as DistIR plots it.

    Args:
        D: replicas.
        H: horizontal shards.
        P: stages.
    """
    return "/".join(letter for letter, degree in (("D", D), ("T", H), ("P", P)) if degree > 1) or "Base"
