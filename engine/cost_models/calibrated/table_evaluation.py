"""Evaluating a table of executions with the calibrated cost model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from engine.columns import ALL_FIELDS, EXTENSIONS, by_name, statistics_of
from engine.columns.recompute_modules import MODULES
from engine.cost_models.calibrated.case_building import model_shapes
from engine.cost_models.calibrated.fields import (
    DATATYPES,
    Fields,
    case_of_fields,
    check,
    defaults,
    read,
    undivided_sizes,
)
from engine.cost_models.calibrated.physics.communication.networks import farthest
from engine.cost_models.calibrated.physics.communication.sharding import exchange_passes
from engine.cost_models.calibrated.physics.inputs import Case, Floats, ModelShapes
from engine.cost_models.calibrated.physics.layers.head import end_shares
from engine.cost_models.calibrated.physics.memory import (
    StageMemory,
    activation_bytes,
    block_weight_bytes,
    of_largest,
    stage_memories,
)
from engine.cost_models.calibrated.physics.offload import RESERVE, tiers, with_state
from engine.cost_models.calibrated.physics.parameters import Parameters
from engine.cost_models.calibrated.physics.pipeline.layouts import pattern_of, problem_of
from engine.cost_models.calibrated.physics.pipeline.stage_times import block_level, offloaded_flow, pipeline_flow
from engine.cost_models.calibrated.physics.pipeline.stages import fewest_held
from engine.cost_models.calibrated.physics.step import pipeline_level, straggling, update_level
from engine.cost_models.calibrated.space import CalibratedSpace
from engine.cost_models.calibrated.step_figures import flow_part, step_part, with_exchange
from engine.executions import reasons
from engine.executions.arrays import Flags, ReasonNumbers
from engine.executions.codes import OFFLOADS
from engine.executions.field_values import objects
from engine.executions.outcome import given_words, outcome_table, running_row, words_array
from engine.executions.sentences import excesses, network_subjects
from engine.executions.work_sizes import work_sizes
from hardware import GIB, System
from models import Model
from models.token_flops import token_flops

__all__ = ["calibrated_row", "evaluate_calibrated", "link_rate", "perfect_seconds"]


GIGA, TERA = 1e9, 1e12
"""Units of system documents in base units: GB/s, TFLOP/s."""

OTHER_WORDS = {
    "stage_layout": ", the blocks of the ends, such as first_7_last_6, or a list, such as Et*3|(tt|)*29m|L",
    "selective_recompute": f", or modules joined by + out of {', '.join(MODULES)}",
}
"""Other values of open fields than their choices, in words."""


def perfect_seconds(model: Model, system: System, datatype: str, *, training: bool = True) -> float:
    """Returns the seconds per sample that the model's arithmetic would take one processor at its peak [s].

    Attention is counted in full (see `models.token_flops`), so that `total_efficiency` is the usual model-FLOP
    utilisation.

    Args:
        model: the model that is trained.
        system: the system that it runs on.
        datatype: name of a datatype that the system has a matrix rate of.
        training: False for a forward pass alone.
    """
    return token_flops(model).model(training=training) * model.tokens_per_sample / (system.peak_tflops(datatype) * TERA)


def link_rate(system: System, p: Parameters) -> float:
    """Return the sustained rate of the link to the second memory tier, per direction [bytes/s]; 0 without one.

    Args:
        system: any system.
        p: parameters of a calibration.
    """
    return system.mem2.bandwidth_gb_per_s * GIGA * p.scale_out if system.mem2.capacity_gib > 0 else 0.0


def evaluate_calibrated(model: Model, system: System, table: pd.DataFrame, p: Parameters) -> pd.DataFrame:
    """Return every statistic of every execution of a table; see `engine.evaluate`.

    Missing extensions are added with their defaults. Statistics of Calculon's layers, some of the 96, are not a number
    here.

    Args:
        model: the model that is trained.
        system: the system that it runs on.
        table: executions, one row each, with the 23 fields and any extensions as columns.
        p: parameters of a calibration.

    Raises:
        engine.ExecutionTableError: it is not a table, lacks one of the 23 columns or repeats a column.
    """
    found, reason, malformed, gaps = read(model, system, table)
    values, needs = _evaluate_rows(model, system, found, reason, p)
    given = _given_fields(system, table, found, gaps)

    def quantities(chosen: npt.NDArray[np.intp], code: str) -> dict[str, Any]:
        return _reason_quantities(model, system, given, found, needs, chosen, code)

    return outcome_table(given, statistics_of("calibrated"), reason, malformed, values, quantities)


def calibrated_row(space: CalibratedSpace, number: int, p: Parameters) -> dict[str, Any] | None:
    """Returns the row that `evaluate_calibrated` has of an execution of a space that runs; None of one that does not.

    Reading a table takes longer than all arithmetic of a row, and what a space numbers is well formed.

    Args:
        space: the space.
        number: id of the execution.
        p: parameters of a calibration.
    """
    found, reason = space.fields([number]), np.zeros(1, np.int16)
    check(space.model, space.system, found, reason)
    values, _ = _evaluate_rows(space.model, space.system, found, reason, p, space.capacities)
    if reason[0] != reasons.FITS:
        return None
    return running_row(space.row(number), statistics_of("calibrated"), values[:, 0])


def _evaluate_rows(
    model: Model,
    system: System,
    found: Fields,
    reason: ReasonNumbers,
    p: Parameters,
    capacities: tuple[float, float] | None = None,
) -> tuple[Floats, Floats]:
    """Return the statistics of the rows that break no rule [statistics, rows], not a number elsewhere, and their
    required memory [tiers, rows] [bytes]; marks the reason of rows that do not fit into the capacities, the
    system's where None [bytes]."""
    columns = statistics_of("calibrated")
    values = np.empty((len(columns), len(reason)))
    needs = np.zeros((2, len(reason)))
    if capacities is None:
        capacities = (system.mem1.capacity_gib * GIB, system.mem2.capacity_gib * GIB)
    rows = np.flatnonzero(reason == reasons.FITS)
    together = work_sizes().rows_tabulated
    for start in range(0, len(rows), together):
        here: Any = rows[start : start + together]
        if len(rows) == len(reason):  # a part of all rows is several times quicker to read and write than chosen ones
            here = slice(start, start + len(here))
        part = {name: array[here] for name, array in found.items()}
        # A single replica has nobody to share with: whatever its stage of ZeRO, it holds everything.
        part["zero_stage"] = np.where(part["data_par"] * part["context_par"] > 1, part["zero_stage"], 0)
        case = case_of_fields(model, system, part)
        figures = _row_statistics(model, system, part, case, p)
        need = (figures["proc_mem_tier1_cap_req"], figures["proc_mem_tier2_cap_req"])
        needs[0, here], needs[1, here] = need
        over = [tier > capacity for tier, capacity in zip(need, capacities, strict=True)]
        numbers = [reasons.number_of(code) for code in ("memory_tier1", "memory_tier2")]
        reason[here] = np.where(over[0], numbers[0], np.where(over[1], numbers[1], reasons.FITS))
        for position, column in enumerate(columns):
            values[position, here] = figures.get(column.name, np.nan)
    values[:, reason != reasons.FITS] = np.nan
    return values, needs


def _given_fields(system: System, table: pd.DataFrame, found: Fields, gaps: Mapping[str, Flags]) -> pd.DataFrame:
    """Return the fields as given, missing extensions filled with their defaults."""
    names = [column.name for column in ALL_FIELDS]
    filled = [column for column in EXTENSIONS if column.name in gaps or column.name not in table.columns]
    if not filled:
        return table[names]
    added = defaults(system, found)
    columns: dict[str, Any] = {}
    for column in filled:
        default: Any = added[column.name]
        if column.choices:
            default = pd.array(np.array(column.words, object)[default], dtype="str")
        default = pd.Series(default, index=table.index)
        if column.name in gaps:
            # Not every type of column can hold what a default is.
            values = np.where(gaps[column.name], objects(default), objects(table[column.name]))
            default = pd.Series(values, index=table.index, dtype=object)
            with suppress(UnicodeEncodeError):  # half a character is no text to pandas
                default = default.infer_objects()
        columns[column.name] = default
    kept = table[[name for name in names if name not in columns]]
    return pd.concat([kept, pd.DataFrame(columns, index=table.index)], axis=1)[names]


def _row_statistics(model: Model, system: System, part: Fields, case: Case, p: Parameters) -> dict[str, Floats]:
    """Return every statistic of this cost model, for rows that break no rule."""
    level = block_level(case, p)
    flow, once = pipeline_flow(case, level, p), update_level(case, p)
    stages = stage_memories(case)
    flags = [part[name].astype(np.float64) for name in OFFLOADS]
    offloads = dict(zip(("weights", "activations", "state"), flags, strict=True))
    kept, held, rate = activation_bytes(case), block_weight_bytes(case), link_rate(system, p)
    moved = None
    if rate:
        added = offloaded_flow(
            case,
            level,
            flow,
            rate=rate,
            weights=[flags[0] * each for each in held],
            activations=[flags[1] * each for each in kept.kept],
        )
        state = flags[2] * np.maximum.reduce([stage.state() for stage in stages])
        moved = with_state(
            added.forward,
            added.backward,
            added.slowest,
            added.bandwidth,
            state=state,
            rate=rate,
            optimizer=once.optimizer,
        )
    batch = part["batch_size"].astype(np.float64)
    datatype = part["datatype"]
    each = np.array([perfect_seconds(model, system, name) if system.has_rate(name) else np.nan for name in DATATYPES])
    flops = token_flops(model)
    useful: Floats = np.asarray(flops.model())
    perfect = each[datatype] * batch / part["num_procs"]
    if case.forward_only is not None:
        useful = np.where(case.forward_only, flops.model(training=False), useful)
        perfect = perfect * useful / flops.model()
    part_of_flow = flow_part(pipeline_level(case, level, p, flow), end_shares(case))
    step = step_part(part_of_flow, once, moved, exchange_passes(case), perfect)
    exchanged = with_exchange(
        step,
        once.exchange,
        case.software.overlap_data,
        straggling=straggling(case, p),
        batch=batch,
        perfect=perfect,
        p=p,
    )
    first, second = tiers(stages, **offloads)
    # The parts are those of the stage that needs most of the first tier, as it is with what is offloaded.
    sizes = [tiers([stage], **offloads)[0] for stage in stages]
    memory = {
        item.name: of_largest(sizes, [getattr(stage, item.name) for stage in stages]) for item in fields(StageMemory)
    }
    full = part["activation_recompute"] == 0
    moved_state = memory["movable"]
    kept_here = memory["activations"] * (1.0 - memory["movable_kept"])
    heaviest = level.heaviest
    block, gathers = level.kinds[heaviest], flow.gathers[heaviest]
    block_time, block_kept = block.forward + gathers.forward, kept.kept[heaviest.size]
    block_weights = held[heaviest.size]
    return {
        **step.metrics,
        **exchanged,
        "proc_mem_tier1_cap_req": first,
        "proc_mem_tier2_cap_req": second,
        "weight_space": memory["weights"],
        "weight_grad_space": memory["gradients"],
        "optimizer_space": memory["optimizer"],
        "act_space": np.where(full, memory["working"], memory["activations"] + memory["working"]),
        "act_checkpoint_size": np.where(full, memory["activations"], 0.0),
        "act_grad_space": np.zeros(len(batch)),
        "weight_space_with_offload": memory["weights"] - memory["block_weights"] * moved_state,
        "weight_grad_space_with_offload": memory["gradients"] * (1.0 - moved_state),
        "optimizer_space_with_offload": memory["optimizer"] * (1.0 - moved_state),
        "act_space_with_offload": memory["working"] + np.where(full, 0.0, kept_here),
        "act_checkpoint_size_with_offload": np.where(full, kept_here, 0.0),
        "logit_space": memory["logits"],
        "temporary_space": memory["temporaries"],
        "reserve_space": np.full(len(batch), RESERVE),
        "block_weight_space": block_weights,
        "block_act_storage_space": block_kept,
        "block_fw_time": block_time,
        "dp_comm_link_time": once.exchange,
        "act_offload_bw_req": block_kept / block_time,
        "weight_offload_bw_req": block_weights / block_time,
        "useful_flops": np.asarray(useful * model.tokens_per_sample * batch / part["num_procs"]),
    }


def _reason_quantities(
    model: Model,
    system: System,
    given: pd.DataFrame,
    found: Fields,
    needs: Floats,
    rows: npt.NDArray[np.intp],
    code: str,
) -> dict[str, Any]:
    """Return the values of the placeholders of a reason's sentence, for the rows of one reason."""
    shapes = model_shapes(model)
    f = {name: array[rows] for name, array in found.items()}
    result: dict[str, Any] = {
        "expert_ranks": f["tensor_par"] * f["context_par"] * f["data_par"],
        "local_batch": f["batch_size"] // np.maximum(f["data_par"], 1),
        "blocks_per_proc": _fewest_blocks(shapes, f, code),
        "batch_seq": f["microbatch_size"] * model.seq_size,
        "microbatches": f["batch_size"] // np.maximum(f["data_par"] * f["microbatch_size"], 1),
        "accepted": ", ".join(name for name in DATATYPES if system.has_rate(name)),
        "seq_size": model.seq_size,
        **{name: int(getattr(shapes, name)) for name in ("hidden", "feedforward", "attn_heads", "key_value_heads")},
        **{name: int(getattr(shapes, name)) for name in ("num_blocks", "experts")},
    }
    for column in ALL_FIELDS:
        if column.dtype == "str":
            result[column.name] = given_words(given[column.name], rows)
        else:
            result[column.name] = f[column.name]
    if code == "network_too_small":
        size = farthest(system)
        tier = max(place for place, network in enumerate(system.networks) if network.size == size)
        result |= {"network": network_subjects(system)[tier], "size": size, "used": f["num_procs"]}
    for tier, (name, memory) in enumerate((("memory_tier1", system.mem1), ("memory_tier2", system.mem2))):
        if code == name:
            result |= excesses(needs[tier, rows] / GIB, memory.capacity_gib)
    if "product" in reasons.placeholders(code):
        # As Python's numbers: four degrees may exceed 64 bits.
        factors = (f[name].astype(object) for name in ("tensor_par", "pipeline_par", "data_par", "context_par"))
        products: Any = math.prod(factors)
        result["product"] = [f"{number:,}" for number in products]
    if code.startswith("layer_not_divisible"):
        result["tensor_context"] = f["tensor_par"] * f["context_par"]
        degrees = zip(f["tensor_par"].tolist(), f["context_par"].tolist(), strict=True)
        result["undivided_sizes"] = pa.array([undivided_sizes(shapes, code, *each) for each in degrees], pa.string())
    if code == "layout_not_of_blocks":
        result["layout_problem"] = _layout_problems(shapes, f)
    if code in ("unknown_word", "extension_not_positive"):
        result |= _first_fault(given, f, rows, code)
    return {name: result[name] for name in reasons.placeholders(code)}


def _fewest_blocks(shapes: ModelShapes, f: Fields, code: str) -> Any:
    """Return the blocks of the stage with the fewest, for the rows of one reason."""
    if code != "offload_needs_three_blocks":
        return 0
    return fewest_held(shapes, f["pipeline_par"], f["pipeline_interleaving"], f["schedule"], f["stage_layout"])


def _layout_problems(shapes: ModelShapes, f: Fields) -> pa.Array:
    """Return the reason why the stage layout of each row does not cut the blocks of the model."""
    pattern = pattern_of(shapes)
    keys = zip(*(f[name].tolist() for name in ("pipeline_par", "pipeline_interleaving", "stage_layout")), strict=True)
    return pa.array([problem_of(pattern, *key) for key in keys], pa.string())


def _first_fault(given: pd.DataFrame, f: Fields, rows: npt.NDArray[np.intp], code: str) -> dict[str, Any]:
    """Return field, value and accepted values of the first faulty field of each row."""
    if code == "unknown_word":
        names = ["datatype", *(column.name for column in EXTENSIONS if column.choices)]
        wrong = np.array([f[name] < 0 for name in names])
    else:
        names = ["context_par", "expert_par", "expert_tensor_par"]
        wrong = np.array([f[name] < 1 for name in names])
    which = np.argmax(wrong, axis=0)
    accepted = [", ".join(DATATYPES if name == "datatype" else by_name(name).choices) for name in names]
    accepted = [words + OTHER_WORDS.get(name, "") for words, name in zip(accepted, names, strict=True)]
    values = [given_words(given[name], rows).to_pylist() for name in names]
    return {
        "field": words_array(which, names),
        "value": pa.array([values[field][row] for row, field in enumerate(which.tolist())], pa.string()),
        "accepted": words_array(which, accepted),
    }
