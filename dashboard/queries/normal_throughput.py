"""Throughput of an execution next to measured runs, remembered per execution and measurement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from dashboard.compat.caches import remembered
from engine import Exploration
from engine.questions.nearest_runs import MeasuredRate, normal_throughput
from models.token_flops import Convention

__all__ = ["find_normal_throughput"]


def find_normal_throughput(
    exploration: Exploration, row: Mapping[str, Any], value: float | None, kind: str, nearest: int
) -> dict[str, Any]:
    """Return the answer to the question normal for an execution, as JSON has it.

    Args:
        exploration: that the execution is of.
        row: the execution with its statistics.
        value: measured figure; None without one.
        kind: its unit, a choice of `dashboard.link.measured.MeasuredLink`.
        nearest: how many measured runs to list.

    Raises `engine.questions.QuestionError` for a figure beyond the GPUs' peak.
    """
    scenario = exploration.scenario
    accelerator = scenario.system.accelerator  # its name is no part of the key
    names = (scenario.model.name, scenario.system.name, "" if accelerator is None else accelerator.name)
    return _find_normal_throughput(
        exploration, row, f"{exploration.key} {row['id']} {names} {scenario.attention}", value, kind, nearest
    )


@remembered(256)
def _find_normal_throughput(
    _exploration: Exploration, _row: Mapping[str, Any], key: str, value: float | None, kind: str, nearest: int
) -> dict[str, Any]:
    measured = None
    memory = value if kind == "memory" else None
    if value is not None and kind != "memory":
        if kind == "step":
            measured = MeasuredRate("step_time_s", value)
        elif kind == "tokens":
            measured = MeasuredRate("tokens_per_s", value * _exploration.scenario.num_procs)
        else:
            measured = MeasuredRate("tflops", value, cast(Convention, kind))
    return normal_throughput(
        _exploration.scenario, _row, measured=measured, memory_gib=memory, nearest=nearest
    ).document()
