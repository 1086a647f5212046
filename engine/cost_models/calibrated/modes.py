"""Modes of the calibrated cost model: combinations of all that is a choice of method, listed for each kind of cell.

Combinations are counted before they are listed, so that wide limits are refused in a sentence, not in memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.columns import EXTENSIONS, by_name, called
from engine.cost_models.calibrated.fields import FULLY_SHARDED, zero_rules
from engine.executions.codes import OFFLOADS
from engine.executions.limits import LimitError
from engine.executions.rules import mode_rules
from engine.space.space import MODE_FIELDS, Modes

__all__ = ["FIELDS_OF_A_MODE", "FURTHER_DEGREES", "PIPELINE", "REPLICAS", "TENSOR", "list_modes"]

FURTHER_DEGREES = ("context_par", "expert_par", "expert_tensor_par")
"""Extensions that cells tell apart, not modes."""

FIELDS_OF_A_MODE: tuple[str, ...] = (
    *MODE_FIELDS,
    *(column.name for column in EXTENSIONS if column.name not in (*FURTHER_DEGREES, "schedule", "stage_layout")),
)
TENSOR, PIPELINE, REPLICAS = 4, 2, 1
"""Bits of a cell's kind."""

OF_EXPERTS = ("token_dispatcher", "dispatch_datatype", "expert_imbalance")
"""Extensions that matter to models with experts only."""

JOINT_FIELDS = FIELDS_OF_A_MODE[: FIELDS_OF_A_MODE.index("attention_kernel") + 1]
"""Fields whose values exclude each other. The others go with every combination of these, which come first in a mode."""
MOST_COMBINATIONS = 2**23
"""Most combinations of the joint fields that are looked through [modes]: some 400 MB. Source: stated by us."""
MOST_MODES = 2**20
"""Most modes of cells of a kind [modes]: some 200 MB. Source: stated by us."""
MOST_SHARED = 2**17
"""Most combinations of values whose modes are kept for the next space [combinations]: 20 times those without limits.
Source: stated by us."""


def list_modes(values: tuple[tuple[Any, ...], ...], offload: tuple[bool, ...], kind: int, experts: bool) -> Modes:
    """Return all valid and distinct combinations of the values of `FIELDS_OF_A_MODE`, for cells of a kind.

    Spaces of the same few values share their modes, and what the search derives from them; many are not kept.

    Args:
        values: allowed values of every field.
        offload: allowed values of the offload fields.
        kind: bits of the cells' kind.
        experts: True if the model has experts.

    Raises `LimitError` where the limits allow more than memory should hold.
    """
    few = math.prod(map(len, values)) <= MOST_SHARED
    return (_share_modes if few else _build_modes)(values, offload, kind, experts)


def _build_modes(values: tuple[tuple[Any, ...], ...], offload: tuple[bool, ...], kind: int, experts: bool) -> Modes:
    given = dict(zip(FIELDS_OF_A_MODE, values, strict=True))
    for name in OFFLOADS:
        given[name] = tuple(value for value in given[name] if value in offload)
    joint = {name: given[name] for name in JOINT_FIELDS}
    _refuse_excess(joint, 1, MOST_COMBINATIONS)
    kept = _join_fields(tuple(joint.values()), kind)
    free = {name: each for name, each in given.items() if name not in joint}
    fixed: dict[str, Any] = {"pipeline_overlap": False} if not kind & PIPELINE else {}
    if not experts:
        fixed |= {"expert_overlap": False} | {name: by_name(name).default for name in OF_EXPERTS}
    for name, only in fixed.items():
        free[name] = tuple(value for value in free[name] if value == only)
    found = len(kept["training"])
    _refuse_excess(free, found, MOST_MODES)
    places = np.indices([len(each) for each in free.values()]).reshape(len(free), -1)
    columns = {name: np.repeat(array, places.shape[1]) for name, array in kept.items()}
    for (name, each), place in zip(free.items(), places, strict=True):
        array = _field_array(name, each)
        columns[name] = np.tile((array if array.dtype == bool else array.astype(np.int64))[place], found)
    columns["fully_sharded"] = columns["zero_stage"] == FULLY_SHARDED
    return Modes(columns)


_share_modes = lru_cache(maxsize=256)(_build_modes)


def _refuse_excess(values: Mapping[str, Sequence[Any]], times: int, most: int) -> None:
    """Raise `LimitError` where values of fields have more combinations than are held, and name the widest fields.

    Args:
        values: the allowed values of each field.
        times: combinations of other fields that each of these goes with.
        most: combinations that are held.
    """
    if times * math.prod(map(len, values.values())) <= most:
        return
    widest = [called(name) for name in sorted(values, key=lambda name: -len(values[name]))[:3]]
    raise LimitError(
        f"The limits allow over {most:,} combinations of fields other than parallel degrees and batch sizes; "
        f"allow fewer values of {', '.join(widest[:-1])} or {widest[-1]}."
    )


def _field_array(name: str, values: Sequence[Any]) -> npt.NDArray[Any]:
    """Return values of a field as an array [values]: truth, positions of words in their choices, other numbers."""
    column = by_name(name)
    numbers = [column.position(value) for value in values] if column.choices else values
    return np.array(numbers, bool if column.dtype == "bool" else np.int16)  # half of them are let go at once


def _join_fields(values: tuple[tuple[Any, ...], ...], kind: int) -> dict[str, npt.NDArray[Any]]:
    """Return the combinations of the values of `JOINT_FIELDS` that go together, by field [combinations]."""
    tensor, pipeline, replicas = bool(kind & TENSOR), bool(kind & PIPELINE), bool(kind & REPLICAS)
    places = np.indices([len(each) for each in values], np.int16).reshape(len(values), -1)
    columns = {
        name: _field_array(name, each)[place] for name, each, place in zip(JOINT_FIELDS, values, places, strict=True)
    }

    def word(name: str, choice: str) -> npt.NDArray[np.bool_]:
        return np.asarray(columns[name] == by_name(name).choices.index(choice))

    stage, comm = columns["zero_stage"], columns["tensor_par_comm_type"]
    selective, attention = word("activation_recompute", "attn_only"), word("selective_recompute", "attention")
    kinds_of_comm = values[JOINT_FIELDS.index("tensor_par_comm_type")]
    first_comm = by_name("tensor_par_comm_type").choices.index(kinds_of_comm[0]) if kinds_of_comm else -1
    split = word("tensor_par_comm_type", "p2p_rs_ag")
    plain_too = "ar" in kinds_of_comm
    single_replica = np.array(not replicas)
    broken = [
        *mode_rules(columns, single_tensor=np.array(not tensor), single_data=single_replica).values(),
        *zero_rules(columns, single_replica=single_replica, pipelined=np.array(pipeline)).values(),
    ]
    valid = (
        ~np.logical_or.reduce(broken)
        # Gathers of sharded weights are always overlapped; a forward pass alone has no setting for it.
        & ((stage < FULLY_SHARDED) | columns["data_par_overlap"] | ~columns["training"])
        # Without a group the kinds of communication are one, and without a pipeline so are two of them.
        & (tensor | (comm == first_comm))
        & (np.bool_(pipeline or not tensor or not plain_too) | ~split)
        & np.where(selective, ~attention | word("attention_kernel", "unfused"), attention)
        & ~(columns["activations_offload"] & word("activation_recompute", "full"))
        & ((columns["recompute_blocks"] == 0) | word("activation_recompute", "full"))
    )
    kept = {name: array[valid] for name, array in columns.items()}
    return {name: array if array.dtype == bool else array.astype(np.int64) for name, array in kept.items()}
