"""Measured runs of fine-tuning that are nearest to a question."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from functools import cache
from typing import Any, Final

import models
from engine.validation.fine_tuning import fine_tuning_runs

__all__ = ["nearest_runs"]

NAMES: Final = (
    *("framework", "version", "model_key", "system", "gpus", "method", "lora_rank", "precision", "seq_len"),
    *("global_batch", "step_s", "tokens_per_s_per_gpu", "peak_gib", "outcome", "source"),
)
"""Columns of a measured run that are returned."""


@cache
def _size_of(model: str) -> float:
    return float(models.parameter_counts(models.load(model)).total)


def nearest_runs(
    *, parameters: float, system: str, datatype: str, gpus: int, seq_size: int, method: str, most: int = 4
) -> list[dict[str, Any]]:
    """Return the measured runs nearest to a question, nearest first.

    Distance adds the logarithms of the ratios of model size and sequence, and half of that of GPUs, by which the rate
    of a GPU changes less. Another system, another datatype, and another choice between all weights and adapters count
    like a factor of e. Source: stated by us. Of runs that differ in the version of the framework only, one is kept.

    Args:
        parameters: of the model.
        system: name in the library.
        datatype: of the matrix arithmetic.
        gpus: that it runs on.
        seq_size: tokens of a sequence.
        method: full, lora or qlora.
        most: runs to return.
    """
    rows = fine_tuning_runs()
    tuned = "full" if method == "full" else "lora"
    found = []
    for row in rows.to_dict("records"):
        length = row["seq_len"] if math.isfinite(row["seq_len"]) else float(seq_size)
        sizes = (_size_of(row["model_key"]) / parameters, length / seq_size)
        distance = sum(abs(math.log(each)) for each in sizes) + abs(math.log(row["gpus"] / gpus)) / 2.0
        distance += (row["system"] != system) + (row["precision"] != datatype) + (row["method"] != tuned)
        found.append((distance, row))
    found.sort(key=lambda each: each[0])
    kept: dict[tuple[Any, ...], Mapping[Hashable, Any]] = {}
    for _, row in found:
        alike = tuple(row[name] for name in ("framework", "model_key", "system", "gpus", "method", "precision"))
        kept.setdefault(alike, row)
    numbers = ("lora_rank", "tokens_per_s_per_gpu")
    return [
        {name: float(row[name] or "nan") if name in numbers else row[name] for name in NAMES}
        for row in list(kept.values())[:most]
    ]
