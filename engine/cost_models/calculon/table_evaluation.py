"""Evaluating executions: every statistic of every row of a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from engine.columns import FIELDS, STATISTICS
from engine.cost_models.calculon.feasibility import check_against, tier_use
from engine.cost_models.calculon.physics.block import BlockTable, block_table
from engine.cost_models.calculon.physics.block_keys import BlockKeys
from engine.cost_models.calculon.physics.memory import BlockSizes, MemoryByKind, memory_use, tiers
from engine.cost_models.calculon.physics.optimizer import OptimizerTable, optimizer_table
from engine.cost_models.calculon.physics.pipeline import PipelineShape, stages
from engine.cost_models.calculon.physics.rates import SystemRates, network_rates, rates
from engine.cost_models.calculon.physics.statistics import statistics
from engine.cost_models.calculon.space import CalculonSpace
from engine.executions import reasons
from engine.executions.arrays import Floats, ReasonNumbers, distinct, take
from engine.executions.codes import FULL, NETWORKS, NO_OVERLAP
from engine.executions.outcome import given_words, outcome_table, running_row, words_array
from engine.executions.rules import most_blocks
from engine.executions.sentences import excesses, network_subjects
from engine.executions.table import DATATYPES, FIELD_NAMES, Executions, check_fields, parse
from hardware import GIB, System
from models import Model

__all__ = ["CHUNK", "block_sizes", "calculon_row", "evaluate_calculon"]


CHUNK = 8192
"""Rows evaluated at a time: small enough for intermediate arrays to stay in cache."""


def evaluate_calculon(model: Model, system: System, executions: pd.DataFrame) -> pd.DataFrame:
    """Returns every statistic of every execution, as `engine.evaluate` returns them.

    Args:
        model: what runs.
        system: where it runs.
        executions: a table with the 23 fields [rows].
    """
    e, reason, malformed = parse(executions)
    check_fields(e, reason)
    check_against(model, system, e, reason)
    values = np.full((len(STATISTICS), len(e)), np.nan)
    memory: dict[str, Floats] = {"tier1": np.zeros(len(e)), "tier2": np.zeros(len(e))}
    for position, name in enumerate(DATATYPES):
        rows = np.flatnonzero((reason == reasons.FITS) & (e.datatype == position))
        if len(rows):
            _evaluate_datatype(model, system, name, e, rows, reason, values, memory)

    def quantities(here: npt.NDArray[np.intp], code: str) -> dict[str, Any]:
        part = {name: array[here] for name, array in memory.items()}
        return _reason_quantities(model, system, executions, here, take(e, here), code, part)

    given = executions[list(FIELD_NAMES)]
    return outcome_table(given, STATISTICS, reason, malformed, values, quantities)


def calculon_row(space: CalculonSpace, number: int) -> dict[str, Any] | None:
    """Returns the row that `evaluate_calculon` has of an execution of a space that runs; None of one that does not.

    Reading a table takes longer than all arithmetic of a row, and what a space numbers is well formed.

    Args:
        space: the space.
        number: id of the execution.
    """
    rows, reason = np.zeros(1, np.intp), np.zeros(1, np.int16)
    values, memory = np.full((len(STATISTICS), 1), np.nan), {"tier1": np.zeros(1), "tier2": np.zeros(1)}
    e = space.decode([number])
    check_against(space.model, space.system, e, reason)
    if reason[0] == reasons.FITS:
        _evaluate_datatype(space.model, space.system, space.datatype, e, rows, reason, values, memory)
    return None if reason[0] != reasons.FITS else running_row(space.row(number), STATISTICS, values[:, 0])


def _evaluate_datatype(
    model: Model,
    system: System,
    datatype: str,
    e: Executions,
    rows: npt.NDArray[np.intp],
    reason: ReasonNumbers,
    values: Floats,
    memory: dict[str, Floats],
) -> None:
    """Fills statistics and memory reasons of the rows of one datatype."""
    rate, width = rates(system, datatype), DATATYPES[datatype]
    part = e if len(rows) == len(e) else take(e, rows)
    key_first, key_of = distinct(
        part.tensor_par,
        part.tensor_par_net,
        part.microbatch_size,
        part.fused_activation,
        part.attention_type,
        part.activation_recompute,
        part.tensor_par_comm_type,
        part.tensor_par_overlap,
        part.seq_par_ag_redo,
        part.training,
    )
    keys = BlockKeys(*(getattr(part, name)[key_first] for name in BlockKeys.__dataclass_fields__))
    blocks = block_table(model, rate, keys, width)
    sharding = np.where(part.optimizer_sharding, part.data_par, 1)
    overlapped = part.tensor_par_overlap != NO_OVERLAP
    optimizer_first, optimizer_of = distinct(part.tensor_par, part.attention_type, overlapped, sharding, part.training)
    optimizers = optimizer_table(
        model,
        rate,
        tensor_par=part.tensor_par[optimizer_first],
        attention_type=part.attention_type[optimizer_first],
        overlapped=overlapped[optimizer_first],
        sharding=sharding[optimizer_first],
        training=part.training[optimizer_first],
        element_bytes=width,
    )
    for start in range(0, len(rows), CHUNK):
        here = slice(start, start + CHUNK)
        _evaluate_chunk(
            model,
            rate,
            take(part, here),
            rows[here],
            take(blocks, key_of[here]),
            take(optimizers, optimizer_of[here]),
            reason,
            values,
            memory,
        )


def block_sizes(block: BlockTable, optimizer: OptimizerTable | None) -> BlockSizes:
    """Returns what one block holds, from the two block-level tables; without an optimizer its part stays empty.

    Args:
        block: figures of blocks, each [keys].
        optimizer: the optimizer's step on them, each [keys]; None without an optimizer.
    """
    none = np.zeros(0)
    return BlockSizes(
        weights=block.weights,
        act_working=block.act_working,
        act_storage=block.act_storage,
        act_checkpoint=block.act_checkpoint,
        act_grads=block.act_grads,
        weight_grads=none if optimizer is None else optimizer.weight_grads,
        weight_grads_unsharded=block.weight_grads_unsharded,
        optimizer=none if optimizer is None else optimizer.state,
    )


def _evaluate_chunk(
    model: Model,
    rate: SystemRates,
    e: Executions,
    rows: npt.NDArray[np.intp],
    block: BlockTable,
    optimizer: OptimizerTable,
    reason: ReasonNumbers,
    values: Floats,
    memory: dict[str, Floats],
) -> None:
    microbatches = e.batch_size // e.data_par // e.microbatch_size
    s: PipelineShape = stages(
        model.num_blocks,
        e.pipeline_par.astype(np.float64),
        e.pipeline_interleaving.astype(np.float64),
        microbatches.astype(np.float64),
    )
    full = e.activation_recompute == FULL
    use: MemoryByKind = memory_use(s, block_sizes(block, optimizer), full, e.training)
    first, second = tiers(use, full, e.weight_offload, e.activations_offload, e.optimizer_offload)
    memory["tier1"][rows] = first
    memory["tier2"][rows] = second
    over_first, over_second = first > rate.capacity, second > rate.second_capacity
    if over_first.any() or over_second.any():
        chunk_reason = np.where(
            over_first,
            reasons.number_of("memory_tier1"),
            np.where(over_second, reasons.number_of("memory_tier2"), reasons.FITS),
        )
        reason[rows] = chunk_reason
        fits = np.flatnonzero(~(over_first | over_second))
        if not len(fits):
            return
        rows, e, block, optimizer = rows[fits], take(e, fits), take(block, fits), take(optimizer, fits)
        s, use, first, second = take(s, fits), take(use, fits), first[fits], second[fits]
    figures = statistics(rate, e, s, block, optimizer, use, first, second)
    contiguous = len(rows) == int(rows[-1]) - int(rows[0]) + 1
    target: Any = slice(int(rows[0]), int(rows[-1]) + 1) if contiguous else rows
    for position, column in enumerate(STATISTICS):
        values[position, target] = figures[column.name]


def _reason_quantities(
    model: Model,
    system: System,
    table: pd.DataFrame,
    rows: npt.NDArray[np.intp],
    e: Executions,
    code: str,
    memory: dict[str, Floats],
) -> dict[str, Any]:
    """Return the values of the placeholders of a reason's sentence, for `rows` of the table: executions `e`, of one
    reason."""
    data_par, pipeline_par = np.maximum(e.data_par, 1), np.maximum(e.pipeline_par, 1)
    sources: dict[str, Callable[[], Any]] = {
        "product": lambda: _write_whole_numbers(e.tensor_par.astype(object) * e.pipeline_par * e.data_par),
        "local_batch": lambda: e.batch_size // data_par,
        "blocks_per_proc": lambda: most_blocks(model.num_blocks, pipeline_par),
        "batch_seq": lambda: e.microbatch_size * model.seq_size,
        "hidden": lambda: model.hidden,
        "feedforward": lambda: model.feedforward,
        "attn_heads": lambda: model.attn_heads,
        "accepted": lambda: ", ".join(system.matrix),
        "last_tier": lambda: system.tiers - 1,
    }
    for column in FIELDS:
        field = table[column.name] if column.dtype == "str" else getattr(e, column.name)
        sources[column.name] = (
            (lambda words: lambda: given_words(words, rows))(field)
            if column.dtype == "str"
            else ((lambda numbers: lambda: numbers)(field))
        )
    found = {name: sources[name]() for name in reasons.placeholders(code) if name in sources}
    if code == "network_does_not_exist":
        found |= _missing_network(e, system.tiers)
    if code in ("network_too_small", "network_not_filled"):
        found |= _network_use(system, e, code)
    for tier, name in (("tier1", "mem1"), ("tier2", "mem2")):
        if code == f"memory_{tier}":
            found |= excesses(memory[tier] / GIB, getattr(system, name).capacity_gib)
    return found


def _write_whole_numbers(numbers: npt.NDArray[Any]) -> pa.Array:
    return pa.array([f"{number:,}" for number in numbers.tolist()], pa.string())


def _missing_network(e: Executions, tiers_there: int) -> dict[str, Any]:
    which = np.full(len(e), len(NETWORKS) - 1)
    value = e.data_par_net.copy()
    for position in (1, 0):
        net = getattr(e, NETWORKS[position])
        outside = (net < 0) | (net >= tiers_there)
        which[outside] = position
        value[outside] = net[outside]
    return {"field": words_array(which, list(NETWORKS)), "value": value}


def _network_use(system: System, e: Executions, code: str) -> dict[str, Any]:
    """The network, its size and what would share it, for rows whose network assignment fails."""
    networks = network_rates(system)
    degrees = (e.tensor_par, e.pipeline_par, e.data_par)
    nets = (e.tensor_par_net, e.pipeline_par_net, e.data_par_net)
    tier_of, used_of = np.zeros(len(e), np.int64), np.zeros(len(e), np.int64)
    for tier in reversed(range(len(networks.size))):
        used, any_used = tier_use(tier, degrees, nets)
        if code == "network_too_small":
            fails = any_used & (used > networks.size[tier])
        else:
            fails = any_used & networks.must_be_filled[tier] & (networks.size[tier] % np.maximum(used, 1) != 0)
        tier_of[fails], used_of[fails] = tier, used[fails]
    return {"network": words_array(tier_of, network_subjects(system)), "size": networks.size[tier_of], "used": used_of}
