"""Formulas of the calibrated cost model with the numbers put in.

What follows from other figures is an expression over them and over the parts of the step
(`engine.cost_models.calibrated.physics.step`); the parts themselves are computed in arrays of kernels and collectives,
each in the module that has its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from engine.columns import EXTENSION_STATISTICS, STATISTICS, by_name
from engine.cost_models.calibrated.physics.layers.head import FORWARD_SHARE
from engine.cost_models.formulas import Expression, Symbol, Untold, symbol_of_column, symbols_in
from hardware import System
from models import Model
from models.token_flops import token_flops

__all__ = ["EXPRESSIONS", "formula"]

_SECONDS: Final = by_name("total_time")
_TIMES: Final = tuple(
    column.name for column in (*STATISTICS, *EXTENSION_STATISTICS) if column.headline and column.group == "Time"
)
_WORK: Final = "(fw_time + bw_time + optim_step_time)"


def _first_tier_text(row: Mapping[Any, Any]) -> str:
    """Return the expression of the first tier's memory: each kind, or the resident blocks of an offloaded kind."""
    full = row["activation_recompute"] == "full"
    state = row["optimizer_offload"]

    def name(kind: str, offloaded: Any) -> str:
        return f"{kind}_with_offload" if offloaded else kind

    parts = [
        name("weight_space", row["weight_offload"]),
        name("weight_grad_space", state),
        name("optimizer_space", state),
        name("act_space", row["activations_offload"]),
    ]
    if full:
        parts.append(name("act_checkpoint_size", row["activations_offload"]))
    return " + ".join([*parts, "logit_space", "temporary_space", "reserve_space"])


EXPRESSIONS: Final[Mapping[str, tuple[str | Callable[[Mapping[Any, Any]], str], str]]] = {
    "total_time": (" + ".join(_TIMES), "step"),
    "sample_rate": ("batch_size / total_time", "figures"),
    "total_efficiency": ("useful_flops / matrix_peak / total_time", "figures"),
    "compute_efficiency": (f"useful_flops / matrix_peak / {_WORK}", "figures"),
    "system_efficiency": (f"{_WORK} / total_time", "figures"),
    "useful_flops": ("token_flops * sequence * batch_size / num_procs", "figures"),
    "bw_time": ("linear + attention + elementwise + launch + ends - fw_time", "figures"),
    "recompute_time": ("recompute - recomm_exposed_time", "figures"),
    "overhead_time": ("straggler + fixed", "step"),
    "dp_comm_exposed_time": ("data_exposed + gather_exposed + tied", "figures"),
    "proc_mem_tier1_cap_req": (_first_tier_text, "offload"),
    "act_offload_bw_req": ("block_act_storage_space / block_fw_time", "evaluate"),
    "weight_offload_bw_req": ("block_weight_space / block_fw_time", "evaluate"),
}
"""Figure -> expression over figures and parts of the step (or how to make it for an execution), and where it is."""

_MEANING: Final = {
    "linear": "linear layers of all blocks, forward and backward",
    "attention": "attention of all blocks",
    "elementwise": "element-wise work of all blocks",
    "launch": "exposed kernel launches",
    "ends": f"embedding, head and loss; {FORWARD_SHARE:.2g} of it forward, half with frozen weights",
    "recompute": "repeated work with its collectives",
    "straggler": "waiting for the slowest of many GPUs",
    "fixed": "host work per step",
    "data_exposed": "exposed exchange of gradients",
    "gather_exposed": "exposed gathers of sharded weights",
    "tied": "exchange of tied embeddings",
}
_ELSEWHERE: Final = {
    "optim_step_time": "Memory traffic of the update of what a GPU holds; see "
    "engine.cost_models.calibrated.physics.optimizer.",
    "tp_comm_exposed_time": "Collectives of all microbatches on the slowest stage, less what overlaps with "
    "computation; a collective takes its volume over the rate and a latency on every network that its group spans. See "
    "engine.cost_models.calibrated.physics.communication.collectives.",
    "cp_comm_exposed_time": "The ring of keys and values of all microbatches, less what attention hides; see "
    "engine.cost_models.calibrated.physics.communication.context_parallel.",
    "ep_comm_exposed_time": "Dispatch and return of the tokens of all microbatches, less what overlaps; see "
    "engine.cost_models.calibrated.physics.communication.expert_exchange.",
    "pp_comm_exposed_time": "Messages between stages that stages wait for; see "
    "engine.cost_models.calibrated.physics.pipeline.",
    "fw_time": "Forward share of linear layers, attention, element-wise work and launches of the slowest stage, and a "
    "third of embedding and head; see engine.cost_models.calibrated.physics.layers.block.",
    "bubble_time": "Sum of what all stages take for a microbatch, less the slowest, divided by the interleaving; with "
    "interleaving, also the waiting of a last group of fewer microbatches than stages; see "
    "engine.cost_models.calibrated.physics.pipeline.",
}


def formula(
    name: str, row: Mapping[Any, Any], model: Model, system: System, parts: Mapping[str, float], physics: str
) -> Expression | Untold:
    """Return the expression of a figure of an execution, or a sentence on its computation.

    Args:
        name: name of a statistic.
        row: fields and statistics of the execution by name, in the register's base units.
        model: the model that is trained.
        system: the system that it runs on.
        parts: parts of the step by name [s].
        physics: cost model and calibration in words.
    """
    found = EXPRESSIONS.get(name)
    if found is None:
        return Untold(_explain_computation(name))
    given, module = found
    text = given if isinstance(given, str) else given(row)
    symbols = {one: _build_symbol(one, row, model, system, parts) for one in symbols_in(text)}
    if name == "total_time":  # parts of no length say nothing
        text = _drop_summands(text, {one for one, symbol in symbols.items() if symbol.value == 0.0})
        symbols = {one: symbol for one, symbol in symbols.items() if one in text.split()}
    return Expression(text, symbols, f"engine.cost_models.calibrated.physics.{module}, with the values of {physics}")


def _explain_computation(name: str) -> str:
    """Return a sentence on the computation of a figure without an expression."""
    kind = "memory" if by_name(name).unit == "bytes" else "step"
    return _ELSEWHERE.get(
        name,
        f"This figure is computed for every kind of work or stage at once; see "
        f"engine.cost_models.calibrated.physics.{kind}.",
    )


def _drop_summands(text: str, names: set[str]) -> str:
    """Return a sum without the summands of these names."""
    kept = [part for part in text.split(" + ") if part not in names]
    return " + ".join(kept) or text


def _build_symbol(
    name: str, row: Mapping[Any, Any], model: Model, system: System, parts: Mapping[str, float]
) -> Symbol:
    if name in _MEANING:
        return Symbol(parts[name], _MEANING[name], _SECONDS)
    if name == "matrix_peak":
        return Symbol(system.peak_tflops(str(row["datatype"])) * 1e12, "peak of the matrix unit [FLOP/s]")
    if name == "token_flops":
        return Symbol(token_flops(model).model(), "model FLOP per token, attention in full")
    if name == "sequence":
        return Symbol(float(model.seq_size), "tokens of a sequence")
    return symbol_of_column(name, row)
