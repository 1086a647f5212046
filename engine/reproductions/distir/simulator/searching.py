"""Searching all configurations of a number of devices: enumeration, a memory limit, the best, the frontier.

Source of the rules and model sizes: `examples/grid_search.py` and `mlp_grid_search.py` of microsoft/dist-ir; a Pareto
frontier is not there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.exploration.frontier import frontier
from engine.reproductions.distir.simulator.configurations import size, style
from engine.reproductions.distir.simulator.errors import ConfigurationError
from engine.reproductions.distir.simulator.evaluation import grid
from engine.reproductions.distir.simulator.records import Records

__all__ = [
    "LARGEST_SEARCH",
    "MODEL_SIZES",
    "RULES",
    "STYLES",
    "ModelSize",
    "configurations",
    "pareto",
    "search",
    "top_configurations",
]

STYLES: Final = ("Base", "D", "T", "P", "D/T", "T/P", "D/P", "D/T/P")
"""Combinations of parallelism, as DistIR's plots call them."""

RULES: Final = ("all", "R1", "R3")
"""Rules for a pipeline's microbatch counts: every power of two up to a replica's samples; the counts of R1's script;
R3's 2 to 128."""

LARGEST_SEARCH: Final = 200_000
"""Configurations that a search evaluates at most."""
LARGEST_WORLD: Final = 2**20
"""Most devices of a search. Source: stated by us."""


@dataclass(frozen=True, slots=True)
class ModelSize:
    """A multilayer perceptron: weights and their width."""

    layers: int
    width: int


MODEL_SIZES: Final[Mapping[str, ModelSize]] = {
    "mlp-xs": ModelSize(8, 512),
    "mlp-small": ModelSize(16, 8_192),
    "mlp-medium": ModelSize(64, 16_384),
    "mlp-large": ModelSize(96, 32_768),
    "notebook": ModelSize(64, 4_096),
    "euromlsys21": ModelSize(64, 8_192),
}
"""Model sizes by name: R3's, the notebook's and the published grid's."""


def _list_microbatch_counts(rule: str, share: int) -> Iterator[int]:
    """Microbatch counts of a pipeline for a replica's samples."""
    if rule == "R1":
        powers = range(1, math.floor(math.log2(share) / 2)) if share > 0 else range(0)
    elif rule == "R3":
        powers = range(1, 8)
    else:
        powers = range(max(share.bit_length(), 1))
    for power in powers:
        if 2**power <= share:
            yield 2**power


def configurations(devices: Sequence[int], *, batch: int, rule: str = "all") -> pd.DataFrame:
    """Returns all D, H, P, m for the numbers of devices: powers of two that multiply to them.

    Args:
        devices: numbers of devices, powers of two.
        batch: samples of a step.
        rule: which microbatch counts are tried; see `RULES`.

    Raises ConfigurationError for a number of devices that is no power of two, and for an unknown rule.
    """
    if rule not in RULES:
        raise ConfigurationError(f"{str(rule)[:40]!r} is no rule for microbatches; there are {', '.join(RULES)}.")
    rows = []
    for number in devices:
        whole = isinstance(number, int | np.integer) and not isinstance(number, bool) and 1 <= number <= LARGEST_WORLD
        if not whole or number & (number - 1):
            raise ConfigurationError(
                f"{str(number)[:40]} devices: DistIR's grid is of powers of two from 1 to {LARGEST_WORLD:,}."
            )
        exponent = int(number).bit_length() - 1
        for d in range(exponent + 1):
            for h in range(exponent - d + 1):
                stages = 2 ** (exponent - d - h)
                counts = _list_microbatch_counts(rule, batch // 2**d) if stages > 1 else (1,)
                rows += [(2**d, 2**h, stages, m) for m in counts]
    return pd.DataFrame(rows, columns=["D", "H", "P", "m"]).drop_duplicates(ignore_index=True)


def search(
    sizes: Mapping[str, ModelSize],
    *,
    devices: Sequence[int],
    batches: Sequence[int],
    revision: str,
    bandwidth_gbps: float,
    memory_limit: float | None = None,
    rule: str = "all",
    records: Records | None = None,
    report_progress: Callable[[int, int], bool] | None = None,
    **constants: Any,
) -> pd.DataFrame:
    """Return every configuration of every model size and batch; infeasible ones with their reason.

    Args:
        sizes: models by name.
        devices: numbers of devices.
        batches: samples of a step.
        revision: of DistIR.
        bandwidth_gbps: between devices.
        memory_limit: of a device [bytes].
        rule: which microbatch counts are tried.
        records: store of earlier results by configuration; stored ones are not evaluated again, new ones are added.
        report_progress: called with (done, all) after each model and batch; False ends the search with the results so
            far.
        constants: other arguments of `grid`.

    Returns a DataFrame with model, layers, width, batch, devices, style, D, H, P, m and the columns of `grid`.

    Raises ConfigurationError for input that `grid` refuses and for more than `LARGEST_SEARCH` configurations.
    """
    tables = []
    for name, chosen in sizes.items():
        for batch in batches:
            table = configurations(devices, batch=size("batch", batch), rule=rule)
            tables.append(
                table.assign(
                    model=str(name),
                    layers=size("layers", chosen.layers),
                    width=size("width", chosen.width),
                    batch=size("batch", batch),
                )
            )
    everything = sum(len(table) for table in tables)
    if everything > LARGEST_SEARCH:
        raise ConfigurationError(
            f"These are {everything:,} configurations; a search has at most {LARGEST_SEARCH:,}: ask for fewer sizes, "
            "batches or devices."
        )
    found, done = [], 0
    for table in tables:
        found.append(_evaluate_table(table, revision, bandwidth_gbps, memory_limit, records, constants))
        done += len(table)
        if report_progress is not None and report_progress(done, everything) is False:
            break
    if not found:
        return pd.DataFrame()
    result = pd.concat(found, ignore_index=True)
    degrees = zip(result["D"], result["H"], result["P"], strict=True)
    result.insert(0, "style", [style(*each) for each in degrees])
    result.insert(0, "devices", result["D"] * result["H"] * result["P"])
    first = ["model", "layers", "width", "batch"]
    return result[[*first, *(column for column in result.columns if column not in first)]]


def _evaluate_table(
    table: pd.DataFrame,
    revision: str,
    bandwidth_gbps: float,
    memory_limit: float | None,
    records: Records | None,
    constants: Mapping[str, Any],
) -> pd.DataFrame:
    first = table.iloc[0]
    sizes: dict[str, Any] = {name: int(first[name]) for name in ("width", "layers", "batch")}
    if records is None:
        return grid(
            table, revision=revision, bandwidth_gbps=bandwidth_gbps, memory_limit=memory_limit, **sizes, **constants
        )
    about = {"revision": revision, "bandwidth_gbps": float(bandwidth_gbps), **sizes, **constants}
    known = records.find(table, about)
    fresh = table[~known.index.to_series().reindex(table.index).notna()] if len(known) else table
    if len(fresh):
        new = grid(fresh, revision=revision, bandwidth_gbps=bandwidth_gbps, **sizes, **constants).set_index(fresh.index)
        records.add(new, about)
        known = pd.concat([known, new]) if len(known) else new
    result = known.loc[table.index].reset_index(drop=True)
    return apply_memory_limit(result, memory_limit)


def apply_memory_limit(table: pd.DataFrame, memory_limit: float | None) -> pd.DataFrame:
    """Returns a grid under a memory limit [bytes]: configurations that need more get that as their reason.

    Args:
        table: a grid, as `grid` returns it.
        memory_limit: of a device [bytes]; None for none.
    """
    if memory_limit is None:
        return table
    over = (table["reason"] == "") & (table["peak_memory"] > memory_limit)
    texts = [
        f"needs {int(need):,} bytes, more than the limit of {int(memory_limit):,} bytes."
        for need in table.loc[over, "peak_memory"]
    ]
    result = table.copy()
    result.loc[over, "status"], result.loc[over, "reason"] = "infeasible", "memory"
    result.loc[over, "reason_text"] = texts
    return result


def top_configurations(table: pd.DataFrame, k: int = 10) -> pd.DataFrame:
    """Return the k feasible configurations with the highest throughput per model and batch.

    Args:
        table: a grid, as `grid` returns it.
        k: how many of each model and batch.
    """
    runs = table[table["reason"] == ""].sort_values("throughput", ascending=False, kind="stable")
    groups = [name for name in ("model", "batch") if name in runs]
    return (runs.groupby(groups, sort=False).head(k) if groups else runs.head(k)).reset_index(drop=True)


def pareto(table: pd.DataFrame) -> pd.DataFrame:
    """Returns the configurations that no other beats in both throughput and peak memory, most throughput first.

    Args:
        table: a grid, as `grid` returns it.
    """
    runs = table[table["reason"] == ""]
    axes = [runs["throughput"].to_numpy(np.float64), runs["peak_memory"].to_numpy(np.float64)]
    return runs.iloc[frontier(axes, ("higher", "lower"))].reset_index(drop=True)
