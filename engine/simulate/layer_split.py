"""How frameworks cut a model's layers into the stages of a pipeline, refused as schedules are.

Source: the rules of `engine.executions.layer_splits`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from engine.executions import layer_splits
from engine.simulate.schedules.contract import ScheduleError

__all__ = ["even_split", "megatron_split", "torchtitan_split"]

P = ParamSpec("P")


def _refusing(rule: Callable[P, list[int]]) -> Callable[P, list[int]]:
    """The rule, which raises ScheduleError."""

    @wraps(rule)
    def split(*args: P.args, **kwargs: P.kwargs) -> list[int]:
        try:
            return rule(*args, **kwargs)
        except layer_splits.LayerSplitError as error:
            raise ScheduleError(str(error)) from error

    return split


even_split = _refusing(layer_splits.even_split)
megatron_split = _refusing(layer_splits.megatron_split)
torchtitan_split = _refusing(layer_splits.torchtitan_split)
