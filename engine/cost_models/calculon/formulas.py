"""Formulas of Calculon with the values of their symbols, from the execution, model and system.

Source: Calculon 0.1.0, `llm.py`, in the functions named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from engine.columns import by_name
from engine.cost_models.calculon.formula_table import LAYER_SUMS, expression
from engine.cost_models.calculon.physics.data_parallel import block_exchange
from engine.cost_models.calculon.physics.rates import rates
from engine.cost_models.chunk_times import chunk_times
from engine.cost_models.formulas import Expression, Symbol, Untold, symbol_of_column, symbols_in
from engine.executions.rules import most_blocks
from hardware import System
from models import Model

__all__ = ["formula", "formula_symbols"]

_SOURCE: Final = "Source: Calculon 0.1.0, llm.py, _compute_block_stats."
_LIKE_SECONDS: Final = by_name("total_time")
_LIKE_BYTES: Final = by_name("weight_space")


def formula(name: str, row: Mapping[Any, Any], model: Model, system: System) -> Expression | Untold:
    """Returns the expression of a statistic for a feasible execution, or how the block's layers give it.

    Args:
        name: the statistic.
        row: the execution's fields and statistics by name.
        model: what runs.
        system: where it runs.
    """
    found = expression(name, row)
    if found is None:
        summed = LAYER_SUMS.get(name)
        if summed is not None:
            return Untold(
                f"The layers are in the table above, each with its own figure. {_SOURCE}",
                f"sum over the layers of {summed}",
            )
        return Untold(
            "This figure is put together layer by layer, each layer by its own rule, so one expression cannot tell "
            f"it; see the table of layers. {_SOURCE}"
        )
    text, source = found
    known = formula_symbols(row, model, system)
    return Expression(text, {one: known.get(one) or symbol_of_column(one, row) for one in symbols_in(text)}, source)


def formula_symbols(row: Mapping[Any, Any], model: Model, system: System) -> dict[str, Symbol]:
    """Return the symbols of formulas that are not figures of the register, for one feasible execution.

    Args:
        row: the execution's fields and statistics by name.
        model: what runs.
        system: where it runs.
    """
    rate = rates(system, str(row["datatype"]))
    pipeline, chunks = int(row["pipeline_par"]), int(row["pipeline_interleaving"])
    microbatches = int(row["batch_size"]) // int(row["data_par"]) // int(row["microbatch_size"])
    blocks = most_blocks(model.num_blocks, pipeline)
    base = blocks // chunks - 1
    training = bool(row["training"])
    net = np.asarray(int(row["pipeline_par_net"]))
    sent = [float(row[f"block_{way}_pp_size"]) for way in ("fw", "bw")]
    moves = [float(rate.networks.seconds(net, "p2p", np.asarray(size), np.asarray(2.0))) for size in sent]
    over = microbatches % pipeline
    held = float(min(microbatches, pipeline)) * (1 + (pipeline - 1) / (chunks * pipeline) if chunks > 1 else 1)
    result = {
        "blocks": Symbol(blocks, "blocks on a GPU: the model's blocks divided by the stages, rounded up"),
        "microbatches": Symbol(microbatches, "microbatches of a replica in one step"),
        "base_blocks": Symbol(base, "blocks of a chunk besides its last, whose output leaves the stage"),
        "edges": Symbol(microbatches * chunks, "microbatches times chunks"),
        "transfers": Symbol(microbatches * chunks if pipeline > 1 else 0, "transfers between stages, each way"),
        "forward_transfer": Symbol(moves[0], "time to hand one microbatch to the next stage", _LIKE_SECONDS),
        "backward_transfer": Symbol(moves[1] * training, "time to hand its gradients back", _LIKE_SECONDS),
        "held": Symbol(held, "microbatches whose activations a stage holds at once, in stages' worth"),
        "matrix_peak": Symbol(rate.matrix.peak, "peak of the matrix unit [FLOP/s]"),
        "extra_chunks": Symbol(
            (chunks - 1) * (pipeline - over) if over else 0,
            "chunks of waiting because the microbatches do not fill the last group",
        ),
    }
    return result | _offload_symbols(row, rate, moves, training) | _chunk_symbols(row, model, system, moves)


def _offload_symbols(row: Mapping[Any, Any], rate: Any, moves: list[float], training: bool) -> dict[str, Symbol]:
    """Return the symbols of offloading: traffic, time available to hide it, and exposed time."""
    full = row["activation_recompute"] == "full"
    kept = float(row["block_act_checkpoint_size" if full else "block_act_storage_space"])
    flags = [float(bool(row[f"{name}_offload"])) for name in ("weight", "activations", "optimizer")]
    weights, state = float(row["block_weight_space"]), float(row["block_optimizer_space"])
    # Forward the larger transfer counts, backward their sum: `_get_fw_offload_size`, `_get_bw_offload_size`.
    forward = max(flags[0] * weights, flags[1] * kept)
    backward = (flags[0] * weights + flags[1] * kept + flags[2] * state) * training
    times = [float(rate.second_memory.seconds(np.asarray(moved))) for moved in (forward, backward)]
    times[1] *= training
    passes = {
        "forward": (
            float(row["block_fw_time"]),
            "fw_tp",
            moves[0],
            times[0],
            float(row["block_fw_mem_time"]),
        ),
        "backward": (
            sum(float(row[f"block_{name}_time"]) for name in ("re", "agrad", "wgrad")),
            "agrad_tp",
            moves[1],
            times[1],
            float(row["block_agrad_mem_time"]) + float(row["block_wgrad_mem_time"]),
        ),
    }
    found = {
        "kept_activations": Symbol(kept, "what one block keeps of a microbatch for the backward pass", _LIKE_BYTES),
        "forward_moved": Symbol(forward, "bytes one block moves to host memory and back, forward", _LIKE_BYTES),
        "backward_moved": Symbol(backward, "bytes one block moves to host memory and back, backward", _LIKE_BYTES),
    }
    for name, (work, stage, move, moving, memory) in passes.items():
        ends = []
        for end, extra in (("base", 0.0), ("edge", move)):
            again = float(row[f"{end}block_recomm_time_exposed"]) if name == "backward" else 0.0
            whole = work + again + float(row[f"{end}block_{stage}_time_exposed"]) + extra
            ends.append(whole)
            found[f"{name}_wait_{end}"] = Symbol(
                max(0.0, moving + memory - whole), f"time a {end} block waits for host memory, {name}", _LIKE_SECONDS
            )
        found[f"{name}_window"] = Symbol(
            min(ends) - memory, f"time of a block's {name} pass that is free of memory traffic", _LIKE_SECONDS
        )
    return found


def _chunk_symbols(row: Mapping[Any, Any], model: Model, system: System, moves: list[float]) -> dict[str, Symbol]:
    """Return the symbols of one chunk of the schedule and of its gradient exchange."""
    times = chunk_times(row, model.num_blocks)
    chunk = times.forward + times.backward if row["training"] else times.forward + moves[1]
    pipeline = int(row["pipeline_par"])
    chunks, extra = int(row["pipeline_interleaving"]), 0
    over = int(row["batch_size"]) // int(row["data_par"]) // int(row["microbatch_size"]) % pipeline
    if over:
        extra = (chunks - 1) * (pipeline - over)
    missing = ((pipeline - 1 + extra) * chunk - float(row["bubble_time"])) if times.short_stages else 0.0
    result = {
        "chunk_time": Symbol(chunk, "forward and backward of one chunk with all that is exposed", _LIKE_SECONDS),
        "missing_time": Symbol(missing, "what the stages with a block less save", _LIKE_SECONDS),
    }
    return result | _exchange_symbols(row, model, system, moves)


def _exchange_symbols(row: Mapping[Any, Any], model: Model, system: System, moves: list[float]) -> dict[str, Symbol]:
    """Return the symbols of one block's gradient exchange and of the part that the backward pass does not hide.

    Source: Calculon 0.1.0, `llm.py` `_compute_batch_stats`.
    """
    data, sharded = int(row["data_par"]), bool(row["optimizer_sharding"])
    if data == 1 or not row["training"]:
        return {"block_exchange": Symbol(0.0, "time to exchange the gradients of one block", _LIKE_SECONDS)}
    networks = rates(system, str(row["datatype"])).networks
    tier = int(row["data_par_net"])
    net, size, members = np.asarray(tier), np.asarray(float(row["block_dp_size"])), np.asarray(float(data))
    exchange = float(block_exchange(networks, net, size, members, np.asarray(sharded)))

    def total(kind: str, *stages: str) -> float:
        return sum(float(row[f"block_{stage}_{kind}time"]) for stage in stages)

    pipeline, chunks = int(row["pipeline_par"]), int(row["pipeline_interleaving"])
    microbatches = int(row["batch_size"]) // data // int(row["microbatch_size"])
    per_chunk = most_blocks(model.num_blocks, pipeline) // chunks
    base, busy = per_chunk - 1, system.network_at(tier).processor_usage
    edges, work = microbatches * chunks, ("agrad", "wgrad", "re")
    waits = _offload_symbols(row, rates(system, str(row["datatype"])), moves, training=True)
    # Without sharding the optimizer of a block may run while the next one is exchanged, its memory time excepted.
    optimizer = 0.0 if sharded else total("", "optim") - total("mem_", "optim")
    compute = total("flops_", *work) + (0.0 if sharded else total("flops_", "optim"))
    blocks, windows = [], []
    for end, extra in (("base", 0.0), ("edge", moves[1])):
        block = total("", *work) + float(row[f"{end}block_recomm_time_exposed"]) + extra
        block += float(row[f"{end}block_agrad_tp_time_exposed"]) + waits[f"backward_wait_{end}"].value
        blocks.append(block)
        shared = tier == int(row["tensor_par_net"])
        # The exchange waits for tensor-parallel traffic on the same network.
        link = float(row[f"{end}block_recomm_time"]) + float(row[f"{end}block_agrad_tp_time"]) if shared else 0.0
        windows.append(block - total("mem_", *work) + optimizer - link)
    window = base * windows[0] + windows[1]
    of_chunk = per_chunk * exchange
    met = 0.0
    if tier == int(row["pipeline_par_net"]) and chunks > 1:
        # No more transfers collide with the exchange than microbatches are in the last round of the pipeline.
        most = microbatches % pipeline or pipeline
        met = min((of_chunk // (base * blocks[0] + blocks[1])), most) if edges else 0.0
    # A chunk hides behind p microbatches of the next one; if hidden, only the compute that the network takes shows.
    open_chunk = of_chunk - (pipeline * window - met * moves[1]) + pipeline * per_chunk * compute * busy
    further = (chunks - 1) * (open_chunk if open_chunk > 0 else of_chunk * busy)
    # The last chunk hides all blocks but one (mean of base and edge) and one transfer.
    left = window - moves[1] - sum(blocks) / 2 + optimizer if base > 0 else 0.0
    open_tail = base * exchange + (compute * busy - left)
    tail = open_tail if open_tail > 0 else base * exchange * busy
    return {
        "block_exchange": Symbol(exchange, "time to exchange the gradients of one block", _LIKE_SECONDS),
        "chunks_not_hidden": Symbol(
            further, "exchange of all chunks but the last that the backward pass does not hide", _LIKE_SECONDS
        ),
        "tail_not_hidden": Symbol(tail, "exchange of the last chunk that nothing hides", _LIKE_SECONDS),
    }
