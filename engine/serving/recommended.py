"""Recommends a deployment: the simplest with an output per GPU inside the error of the best, and room in the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.executions.arrays import Ints
from engine.serving.exploration import BEST_BY, ServingExploration
from engine.serving.uncertainty import FigureRange, figure_ranges
from models.documents import shown

__all__ = [
    "CACHE_ROOM",
    "COMPARISON_ERROR",
    "DeploymentRecommendation",
    "RejectedDeployment",
    "count_options",
    "deployment_name",
    "deployment_options",
    "recommend_deployment",
]

CACHE_ROOM: Final = 0.1
"""Share of the requests at once by which the cache has room for more. Source: stated by us, as the headroom of training
without measured runs (`engine.recommendation.UNTOLD_HEADROOM`)."""
COMPARISON_ERROR: Final = 0.16
"""Error of a comparison of the output per GPU of two deployments []. Source: 80 % of 1,273 pairs of measured servers of
`engine/validation/serving/servers.csv` have a ratio of outputs within this share of the predicted one: same GPU,
engine, model, precision and lengths, another layout, predicted outputs within 35 %
(tests/engine/serving/test_recommended.py)."""
LISTED: Final = 10
"""Rejected deployments with a reason. Source: stated by us."""

_LAYOUT: Final = ("tensor_par", "pipeline_par", "expert_par", "replicas")
_BITS: Final = ("weight_bits", "kv_bits", "attention_bits", "compute_bits")
_LATENCIES: Final = ("time_to_first_token", "time_per_output_token")


@dataclass(frozen=True, slots=True)
class RejectedDeployment:
    """Best deployment of another layout and precision, and why it is not recommended."""

    row: Mapping[str, Any]
    reason: str


@dataclass(frozen=True, slots=True)
class DeploymentRecommendation:
    """The recommended deployment next to the one with the most output per GPU."""

    row: Mapping[str, Any] | None
    """Recommended deployment with all figures; None if nothing runs."""
    error: float
    """Share of the output per GPU that is too close to call."""
    cache_room: float
    """Share of the requests at once by which the cache must have room for more."""
    has_room: bool
    """False if no deployment within the limits has so much room, which then does not count."""
    close: int
    """Deployments too close to call."""
    behind: float
    """Share of the output per GPU by which it is below the best."""
    options: tuple[str, ...]
    """Options that it needs beyond one GPU with 16 bits, in words."""
    rejected: tuple[RejectedDeployment, ...]
    ranges: Mapping[str, FigureRange]
    """Ranges of its measured figures."""
    at_risk: tuple[str, ...]
    """Latencies whose limit is missed at the upper end of their range."""

    @property
    def reason(self) -> str:
        """Return why it is recommended in a sentence or two; "" if nothing runs."""
        if self.row is None:
            return ""
        error = f"{100 * self.error:.0f} %"
        if self.close == 1:
            text = f"Most output per GPU; no other deployment comes within the error of {error}."
        elif self.behind < 0.0005:
            text = f"Most output per GPU, and fewest options of {self.close:,} deployments inside the error of {error}."
        else:
            text = (
                f"{100 * self.behind:.1f} % less output per GPU than the best, inside the error of {error}; fewest "
                f"options of {self.close:,} such deployments."
            )
        if self.has_room:
            text += f" The cache has room for {100 * cache_room_of(self.row):,.0f} % more requests."
        else:
            text += (
                f" No deployment has room in its cache for {100 * self.cache_room:,.0f} % more requests; requests that "
                "grow longer may wait."
            )
        return text


def deployment_name(row: Mapping[Any, Any]) -> str:
    """Return a deployment in words: "2 replicas of TP 4 × PP 1, batch 64".

    Args:
        row: its fields.
    """
    number = int(row["replicas"])
    degrees = f"TP {int(row['tensor_par'])} × PP {int(row['pipeline_par'])}"
    if int(row["expert_par"]) > 1:
        degrees += f" × EP {int(row['expert_par'])}"
    return f"{number:,} replica{'s' if number != 1 else ''} of {degrees}, batch {int(row['batch']):,}"


def cache_room_of(row: Mapping[str, Any]) -> float:
    """Return the share of its batch that a deployment's cache could take in addition.

    Args:
        row: with `batch` and `largest_batch`.
    """
    return float(row["largest_batch"]) / float(row["batch"]) - 1.0


def _has_room(deployments: Any, cache_room: float) -> Any:
    """Return whether the cache of a row, or of each row of a table, takes a share of its requests in addition."""
    # Batches are whole: one request more than fits is no rounding error.
    return deployments["largest_batch"] >= deployments["batch"] * (1.0 + cache_room) - 1e-9


def deployment_options(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the options that a deployment needs beyond one GPU per replica with 16 bits, in words by field.

    CUDA graphs are the engines' default and no option; neither is the engine itself.

    Args:
        row: its fields.
    """
    found = {
        name: f"{label} {int(row[name])}"
        for name, label in (("tensor_par", "TP"), ("pipeline_par", "PP"), ("expert_par", "EP"))
        if int(row[name]) > 1
    }
    weights = int(row["weight_bits"])
    plain_bits = {"weight_bits": 16, "kv_bits": 16, "attention_bits": weights, "compute_bits": weights}
    labels = {
        "weight_bits": "weights",
        "kv_bits": "KV cache",
        "attention_bits": "attention",
        "compute_bits": "products",
    }
    found |= {name: f"{labels[name]} in {int(row[name])} bits" for name in _BITS if int(row[name]) != plain_bits[name]}
    if str(row["launch"]) != "graphs":
        found["launch"] = {"eager": "kernels one by one", "compiled": "compiled kernels"}[str(row["launch"])]
    return found


def count_options(table: pd.DataFrame) -> Ints:
    """Return the number of options of each deployment, see `deployment_options` [rows].

    Args:
        table: deployments with their fields [rows].
    """
    columns = {name: table[name].to_numpy() for name in (*_LAYOUT[:3], *_BITS)}
    weights = columns["weight_bits"]
    differs = [columns[name] > 1 for name in _LAYOUT[:3]]
    differs += [columns["weight_bits"] != 16, columns["kv_bits"] != 16]
    differs += [columns["attention_bits"] != weights, columns["compute_bits"] != weights]
    differs.append(table["launch"].astype(str).to_numpy() != "graphs")
    return np.asarray(np.sum(differs, axis=0), np.int64)


def recommend_deployment(found: ServingExploration, cache_room: float = CACHE_ROOM) -> DeploymentRecommendation:
    """Return the deployment to run: of those within the error of the most output per GPU, the one with the fewest
    options; of these the one with the fewest GPUs per replica, and then the most output.

    Only deployments within the limits count whose cache has room for more requests than they serve at once. If none
    has, all count.

    Args:
        found: all deployments within the limits.
        cache_room: share of the requests at once for which the cache has room in addition, 0 to 10.

    Raises `ValueError` for a share out of range.
    """
    if isinstance(cache_room, bool) or not isinstance(cache_room, int | float) or not 0 <= cache_room <= 10:
        raise ValueError(f"cache_room is {shown(cache_room)}; it must be a share from 0 to 10, such as 0.1.")
    table, error = found.table, COMPARISON_ERROR
    if not len(table):
        return DeploymentRecommendation(None, error, float(cache_room), False, 0, 0.0, (), (), {}, ())
    roomy = _has_room(table, cache_room)
    has_room = bool(roomy.any())
    allowed = table[roomy] if has_room else table
    output = allowed[BEST_BY].to_numpy(np.float64)
    best = float(output.max())
    near = allowed[output >= best / (1.0 + error)]
    order = np.lexsort(
        (
            near["id"].to_numpy(),
            -near[BEST_BY].to_numpy(),
            (near["tensor_par"] * near["pipeline_par"]).to_numpy(),
            count_options(near),
        )
    )
    row = _full_row(found, int(near["id"].iloc[int(order[0])]))
    ranges = figure_ranges(found.model, found.system, row)
    limits = {name: getattr(found, name) for name in _LATENCIES}
    at_risk = tuple(
        name
        for name, limit in limits.items()
        if limit is not None and name in ranges and float(row[name]) * ranges[name].high > limit
    )
    rejected = _rejected_deployments(table, row, cache_room if has_room else 0.0)
    options = tuple(deployment_options(row).values())
    behind = 1.0 - float(row[BEST_BY]) / best
    return DeploymentRecommendation(
        row, error, float(cache_room), has_room, len(near), behind, options, rejected, ranges, at_risk
    )


def _full_row(found: ServingExploration, number: int) -> dict[str, Any]:
    """Return a deployment with every figure."""
    return {str(name): value for name, value in found.evaluate_ids([number]).iloc[0].items()}


def _rejected_deployments(
    table: pd.DataFrame, row: Mapping[str, Any], cache_room: float
) -> tuple[RejectedDeployment, ...]:
    """Return the best of each other layout and precision, most output first, and why it is not recommended."""
    settings = [*_LAYOUT, *_BITS, "launch", "engine"]
    # Of each layout, first the batches that leave room.
    apart = table.assign(roomy=_has_room(table, cache_room)).sort_values(
        ["roomy", BEST_BY], ascending=False, kind="stable"
    )
    apart = apart.drop_duplicates(settings).sort_values(BEST_BY, ascending=False, kind="stable")
    own = [row[name] for name in settings]
    others = [each for each in apart.head(LISTED + 1).to_dict("records") if [each[name] for name in settings] != own]
    names = list(table)
    return tuple(
        RejectedDeployment({str(name): each[name] for name in names}, _reason(each, row, cache_room))
        for each in others[:LISTED]
    )


def _reason(other: Mapping[Any, Any], row: Mapping[str, Any], cache_room: float) -> str:
    """Return why a deployment is not the recommended one."""
    ratio = float(other[BEST_BY]) / float(row[BEST_BY])
    theirs, own = deployment_options(other), deployment_options(row)
    more = [words for name, words in theirs.items() if own.get(name) != words]
    apart = f"{100 * abs(ratio - 1.0):.1f} % {'more' if ratio >= 1 else 'less'} output"
    if not _has_room(other, cache_room):
        room = max(cache_room_of(other), 0.0)
        return f"{apart}, but the cache has room for {100 * room:.0f} % more requests only"
    if ratio < 1:
        return apart + (f", and needs {', '.join(more)}" if len(theirs) > len(own) and more else "")
    return f"{apart}, inside the error, but needs {', '.join(more) if more else 'more GPUs per replica'}"
