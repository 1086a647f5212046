"""A deployment for pages and reports: tiles, choices, curves and tables of words, all from the engine's figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

import hardware
from dashboard.charts.elements.advice import ExecutionSide
from dashboard.charts.elements.markup import Tile
from dashboard.link.catalogue import system_of
from dashboard.words.numbers import ABSENT, count, format_value, gibibytes, percent, plain, signed_percent
from dashboard.words.serving import WORDS, bits_words
from engine.economics import RunInputs
from engine.exploration.frontier import frontier
from engine.serving import (
    ChangedDeployment,
    DeploymentComparison,
    DeploymentRecommendation,
    EngineFactors,
    FigureRange,
    ServingExploration,
    by_name,
    deployment_name,
    figure_ranges,
)
from engine.serving.exploration import AXES, BEST_BY
from engine.serving.recommended import cache_room_of
from engine.serving.uncertainty import SHARE

__all__ = [
    "BASIS",
    "basis_of",
    "change_rows",
    "chips",
    "comparison_rows",
    "curves",
    "deployment_tiles",
    "origin_words",
    "per_degree",
    "price_placeholder",
    "recommended_sides",
    "refused_part",
    "token_factor",
]

BASIS: Final = (
    "Modelled with constants fitted to measured kernels and servers. Ranges hold most servers of models that were left "
    "out of the fit."
)
_COMPARED: Final = (
    BEST_BY,
    "tokens_per_s",
    "tokens_per_s_per_user",
    "time_to_first_token",
    "time_per_output_token",
    "request_latency",
    "memory_total",
    "memory_capacity",
    "largest_batch",
    "cost_per_million_tokens",
    "energy_per_token",
)
"""Figures of a comparison."""


def _format_figure(row: Mapping[str, Any], name: str) -> str:
    return format_value(by_name(name), row[name])


def basis_of(factors: EngineFactors | None, basis: str = BASIS) -> str:
    """Return the basis of figures, with the measured factors, if there are any.

    Args:
        factors: on the latencies of engines.
        basis: of the figures without factors.
    """
    return basis if factors is None else f"{basis} {factors.describe()}"


def token_factor(factors: EngineFactors | None, row: Mapping[Any, Any]) -> float:
    """Return the measured factor on the time per token of a deployment; 1 without one.

    Args:
        factors: on the latencies of engines.
        row: fields of the deployment.
    """
    return 1.0 if factors is None else factors.find(str(row["engine"])).time_per_output_token


def origin_words(factors: EngineFactors | None) -> str:
    """Return the origin of figures in a word or two.

    Args:
        factors: on the latencies of engines.
    """
    return "modelled" if factors is None else "modelled, adjusted by your servers"


def chips(row: Mapping[Any, Any]) -> list[tuple[str, str]]:
    """Return the choices of a deployment as label and value.

    Args:
        row: its fields and figures.
    """
    return [
        ("weights", f"{int(row['weight_bits'])} bits"),
        ("KV cache", f"{int(row['kv_bits'])} bits"),
        ("launch", WORDS[str(row["launch"])]),
        ("engine", WORDS[str(row["engine"])]),
        ("requests at once", f"{int(row['batch']) * int(row['replicas']):,}"),
        ("room in cache", f"{percent(cache_room_of(row), 0)} more"),
        ("KV per token", _format_figure(row, "kv_bytes_per_token")),
    ]


def curves(found: ServingExploration) -> pd.DataFrame:
    """Return the frontier of every tensor-parallel degree, as `serving_frontier` needs it.

    Args:
        found: all deployments.
    """
    parts = []
    for _, part in found.table.groupby("tensor_par", sort=True):
        axes = [part[name].to_numpy(np.float64) for name in AXES]
        parts.append(part.iloc[frontier(axes, ["higher", "higher"])])
    if not parts:
        return pd.DataFrame(columns=["id", "title", "tensor_par", "on_frontier", *AXES])
    rows = pd.concat(parts)
    rows = rows.assign(on_frontier=rows["id"].isin(set(found.frontier["id"])))
    return rows.assign(title=[deployment_name(row) for row in rows.to_dict("records")])


def refused_part(found: ServingExploration) -> pd.DataFrame:
    """Return the deployments that a limit keeps from the frontier, as `serving_frontier` needs them.

    Args:
        found: all deployments.
    """
    rows = found.refused
    return rows.assign(title=[deployment_name(row) for row in rows.to_dict("records")])


def per_degree(found: ServingExploration) -> pd.DataFrame:
    """Return the deployment with the most output per GPU of every tensor-parallel degree, as `serving_memory` needs it.

    Args:
        found: all deployments.
    """
    table = found.table.sort_values(BEST_BY, ascending=False, kind="stable").drop_duplicates("tensor_par")
    table = table.sort_values("tensor_par", kind="stable")
    labels = [
        f"TP {row['tensor_par']} × PP {row['pipeline_par']}, batch {int(row['batch']):,}"
        for row in table.to_dict("records")
    ]
    return table.assign(label=labels)


def deployment_tiles(found: ServingExploration, row: Mapping[str, Any]) -> list[Tile]:
    """Return the headline figures of a deployment, each with its range.

    Args:
        found: all deployments, with the limits.
        row: the deployment with all figures.
    """
    recorded = "at the price given" if found.price is not None else "at the recorded price"
    if pd.isna(row["cost_per_million_tokens"]):
        recorded = "no price is recorded"
    ranges = figure_ranges(found.model, found.system, row)
    formula = {name: by_name(str(name)).description for name in row if name not in ("reason", "status")}
    for name, each in ranges.items():
        formula[name] += (
            f" {SHARE:.0%} of {each.rows:,} comparable measured servers ({each.described}) are between {each.low:.2f} "
            f"and {each.high:.2f} times the figure."
        )

    def tile(label: str, name: str, words: str) -> Tile:
        return Tile(label, _format_figure(row, name), words, formula=formula[name])

    def ranged(label: str, name: str, words: str) -> Tile:
        return tile(label, name, _describe_range(row, ranges, name, words))

    def limited(label: str, name: str, limit: float | None, free: str) -> Tile:
        return ranged(label, name, free if limit is None else f"limit {format_value(by_name(name), limit)}")

    return [
        ranged("Output per GPU", BEST_BY, "every replica full"),
        ranged("Output per user", "tokens_per_s_per_user", "while it generates"),
        limited("Time to first token", "time_to_first_token", found.time_to_first_token, "no queue"),
        limited("Time per output token", "time_per_output_token", found.time_per_output_token, "no limit"),
        tile("Cost per million tokens", "cost_per_million_tokens", recorded),
        tile("Energy per token", "energy_per_token", "board power"),
        Tile(
            "HBM needed",
            gibibytes(row["memory_total"]),
            f"{percent(row['memory_total'] / row['memory_capacity'], 0)} of {gibibytes(row['memory_capacity'])}",
            formula=formula["memory_total"],
        ),
        Tile("Deployments that run", f"{found.feasible:,}", f"of {count(found.total)}"),
    ]


def _describe_range(row: Mapping[str, Any], ranges: Mapping[str, FigureRange], name: str, words: str) -> str:
    """Return the words below a figure, with its range where servers like it were measured."""
    if name not in ranges:
        return f"{words}; error unknown"
    low, high = (format_value(by_name(name), row[name] * factor) for factor in (ranges[name].low, ranges[name].high))
    return f"{low} to {high}; {words}"


def recommended_sides(
    found: ServingExploration, advice: DeploymentRecommendation, shown: int | None = None
) -> list[ExecutionSide]:
    """Return the recommended deployment next to the one with the most output per GPU.

    Args:
        found: all deployments.
        advice: the recommendation.
        shown: id of the deployment that the page shows.
    """
    own, best = advice.row, found.best
    if own is None or best is None:
        return []
    note = advice.reason
    if advice.at_risk:
        names = " and ".join(by_name(name).label.lower() for name in advice.at_risk)
        note += f" At the upper end of its range, {names} {'miss' if len(advice.at_risk) > 1 else 'misses'} the limit."
    is_best = int(own["id"]) == int(best["id"])
    sides = [_side("Recommended, and most output per GPU" if is_best else "Recommended", own, note, shown)]
    if not is_best:
        why = next((each.reason for each in advice.rejected if int(each.row["id"]) == int(best["id"])), "")
        if not why:
            room = max(cache_room_of(best), 0.0)
            why = f"its cache has room for {percent(room, 0)} more requests only"
        sides.append(_side("Most output per GPU", best, why, shown))
    return sides


def _side(name: str, row: Mapping[str, Any], note: str, shown: int | None) -> ExecutionSide:
    first, each = (_format_figure(row, one) for one in ("time_to_first_token", "time_per_output_token"))
    memory = f"{gibibytes(row['memory_total'])} of {gibibytes(row['memory_capacity'])} HBM"
    bits = bits_words(row)
    return ExecutionSide(
        f"{name} · shown" if shown == int(row["id"]) else name,
        deployment_name(row),
        f"{_format_figure(row, BEST_BY)} per GPU",
        f"{bits[:1].upper()}{bits[1:]}; first token {first}, {each} per token, {memory}",
        note,
    )


def change_rows(
    found: ServingExploration, advice: DeploymentRecommendation, changed: tuple[ChangedDeployment, ...]
) -> list[dict[str, str]]:
    """Return the recommended deployment now and after each change, in words.

    Args:
        found: all deployments.
        advice: the recommendation now.
        changed: those after changes.
    """
    rows = [_change_row("As asked", advice.row, "")]
    return rows + [_change_row(each.words, each.recommendation.row, each.verdict) for each in changed]


def _change_row(words: str, row: Mapping[str, Any] | None, verdict: str) -> dict[str, str]:
    def figure(name: str) -> str:
        return ABSENT if row is None else _format_figure(row, name)

    return {
        "Change": words,
        "Effect": verdict,
        "Recommended": ABSENT if row is None else deployment_name(row),
        "Bits": ABSENT if row is None else f"{int(row['weight_bits'])}, KV {int(row['kv_bits'])}",
        "Output": figure("tokens_per_s"),
        "Per GPU": figure(BEST_BY),
        "First token": figure("time_to_first_token"),
        "Per token": figure("time_per_output_token"),
        "Cost per M": figure("cost_per_million_tokens"),
    }


def comparison_rows(compared: DeploymentComparison) -> list[tuple[str, str, str, str]]:
    """Return the settings that differ and the figures of two deployments: label, first, second, difference.

    Args:
        compared: two deployments.
    """
    rows = []
    for name, values in compared.differs.items():
        one, other = (WORDS.get(str(value), str(value)) for value in values)
        rows.append((by_name(name).label, one, other, ""))
    for name in _COMPARED:
        ratio = compared.ratios.get(name)
        change = ABSENT if ratio is None else signed_percent(ratio - 1.0)
        rows.append(
            (by_name(name).label, _format_figure(compared.one, name), _format_figure(compared.other, name), change)
        )
    return rows


def price_placeholder(system: str) -> str:
    """Return the text of an empty field of a price: the recorded price of a GPU in USD/h, or "none recorded".

    Args:
        system: name in the library.
    """
    try:
        price = RunInputs.of(system_of(system)).usd_middle
    except hardware.SystemFileError:
        price = None
    return "none recorded" if price is None else f"{plain(price)} recorded"
