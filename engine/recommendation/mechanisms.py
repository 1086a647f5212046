"""Mechanisms of an execution beyond plain data parallelism, and their number.

A mechanism is a field that differs from its plain option and makes a difference: a degree above 1, recomputation, an
overlap, an offload. Each needs a setting of the framework and can fail, so of two executions the one with fewer is
simpler. Fields of the scenario, network tiers and kernels do not count: everything shares them. Nor do a sharded
optimizer, sequence parallelism and the overlap of the gradient exchange: recipes of Megatron-LM, NeMo, torchtitan,
DeepSpeed and MaxText set them as a rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.columns import applies, by_name, choice_label
from engine.executions.arrays import Flags, Ints

__all__ = ["PLAIN", "mechanisms", "mechanisms_of", "more_than", "number_of_mechanisms"]

PLAIN: Final[Mapping[str, tuple[Any, ...]]] = {
    "tensor_par": (1,),
    "pipeline_par": (1,),
    "context_par": (1,),
    "expert_par": (1,),
    "expert_tensor_par": (1,),
    "pipeline_interleaving": (1,),
    "schedule": ("1f1b", "interleaved"),
    "stage_layout": ("even",),
    "zero_stage": (0, 1),
    "activation_recompute": ("none",),
    "tensor_par_overlap": ("none",),
    "seq_par_ag_redo": (False,),
    "expert_overlap": (False,),
    "pipeline_overlap": (False,),
    "gradient_datatype": ("float32",),
    "optimizer_datatype": ("float32",),
    "fp8_param_gather": (False,),
    "token_dispatcher": ("all_to_all",),
    "dispatch_datatype": ("bfloat16",),
    "context_par_comm": ("p2p",),
    "weight_offload": (False,),
    "activations_offload": (False,),
    "optimizer_offload": (False,),
}
"""Fields that may be mechanisms -> their plain options. The interleaved schedule is part of interleaving, the first
stage of ZeRO is a sharded optimizer, and the choice of selective recomputation is not a second mechanism."""


def mechanisms(executions: pd.DataFrame) -> dict[str, Flags]:
    """Returns which executions have which mechanism, by name of field [rows].

    Args:
        executions: a table with fields as columns; fields that it lacks count as plain.
    """
    found = {}
    for name, plain in PLAIN.items():
        if name in executions:
            values = executions[name].to_numpy()
            differs = np.logical_and.reduce([values != option for option in plain])
            found[name] = np.asarray(differs & applies(name, executions), bool)
    return found


def number_of_mechanisms(executions: pd.DataFrame) -> Ints:
    """Returns how many mechanisms each execution has [rows].

    Args:
        executions: as `mechanisms` takes them.
    """
    every = list(mechanisms(executions).values())
    return np.sum(every, axis=0, dtype=np.int64) if every else np.zeros(len(executions), np.int64)


def mechanisms_of(execution: Mapping[Any, Any]) -> dict[str, str]:
    """Returns the mechanisms of one execution: name of field -> words, such as "interleaving 4".

    Args:
        execution: its fields by name.
    """
    known = {name: execution[name] for name in execution if name in PLAIN or name == "data_par"}
    return {
        name: _mechanism_words(name, known[name])
        for name, plain in PLAIN.items()
        if name in known and known[name] not in plain and applies(name, known)
    }


def more_than(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> tuple[str, ...]:
    """Returns the mechanisms, in words, that one execution has and another has not.

    Args:
        one: fields by name.
        other: of the other.
    """
    theirs = mechanisms_of(other)
    return tuple(words for name, words in mechanisms_of(one).items() if name not in theirs)


def _mechanism_words(name: str, value: Any) -> str:
    column = by_name(name)
    label = column.label
    if label[1:3].islower():  # no abbreviation
        label = label[:1].lower() + label[1:]
    return label if column.dtype == "bool" else f"{label} {choice_label(column, value)}"
