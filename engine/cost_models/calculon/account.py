"""Account of an execution by Calculon: layers, networks, formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import pandas as pd

from engine.columns import FIELDS, Column
from engine.cost_models.account import (
    BlockAccount,
    ExecutionAccount,
    ExecutionCommunication,
    LinkTime,
    ModelStage,
    RankGroup,
    Roofs,
    Shown,
    StagePart,
)
from engine.cost_models.calculon.formula_table import EXPRESSIONS
from engine.cost_models.calculon.formulas import formula
from engine.cost_models.calculon.layer_table import layer_table_of
from engine.cost_models.calculon.physics.rates import rates
from engine.cost_models.chunk_times import chunk_times, microbatches_of
from engine.cost_models.formulas import Expression, Untold
from engine.executions.layer_splits import LayerSplitError
from engine.executions.rules import most_blocks
from hardware import System
from models import Model

__all__ = ["CalculonAccount", "named", "placement"]

_BLOCKS: Final = {"AttnBlock": "Attention", "MlpBlock": "MLP"}
LAYER_WORDS: Final = {
    "Fork": "Fork",
    "LayerNorm": "LayerNorm",
    "F": "All-gather or copy",
    "G": "Reduce-scatter or all-reduce",
    "Multihead_Fork": "QKV fork",
    "Query": "Query",
    "Key": "Key",
    "Value": "Value",
    "QKV": "QKV",
    "QKV_AG": "QKV, gathering",
    "Multihead_Key_Query": "QKᵀ",
    "Multihead_SoftMax": "Softmax",
    "Multihead_DropOut": "Dropout of the scores",
    "Multihead_Attn": "Scores × V",
    "MLP": "Projection",
    "MLP_RS": "Projection, scattering",
    "DropOut": "Dropout",
    "Residual": "Residual",
    "Mlp1": "Linear 1",
    "Mlp1_AG": "Linear 1, gathering",
    "GeLU": "GeLU",
    "Mlp2": "Linear 2",
    "Mlp2_RS": "Linear 2, scattering",
}
"""Layer of Calculon's block -> what people call it."""
_TRAFFIC: Final = (
    ("TP", "TP", "tp_comm_link_time", "tp_comm_exposed_time", "tensor_par"),
    ("TP repeated", "TP", "recomm_link_time", "recomm_exposed_time", "tensor_par"),
    ("PP", "PP", "pp_comm_link_time", "pp_comm_exposed_time", "pipeline_par"),
    ("DP", "DP", "dp_comm_link_time", "dp_comm_exposed_time", "data_par"),
)
"""Kinds of communication, their groups, the statistics with their times, and the degree."""


def _layer_column(
    name: str,
    label: str,
    short: str,
    unit: str,
    shown_as: str,
    size: float,
    description: str,
    decimals: int = 1,
    dtype: Literal["float64", "str"] = "float64",
) -> Shown:
    column = Column(name, label, short, unit, "statistic", dtype, "Layer", None, description)
    return Shown(column, shown_as, size, decimals)


LAYER_COLUMNS: Final = (
    _layer_column("block", "Block", "Block", "", "", 1.0, "Half of the block: attention or feed-forward.", dtype="str"),
    _layer_column("label", "Layer", "Layer", "", "", 1.0, "Kind of layer.", dtype="str"),
    _layer_column("fw_time", "Forward time", "fw", "s", "µs", 1e-6, "Forward time of the layer, one microbatch."),
    _layer_column(
        "bw_time", "Backward time", "bw", "s", "µs", 1e-6, "Backward time: gradients of inputs and of weights."
    ),
    _layer_column(
        "share",
        "Share of block",
        "share of block",
        "fraction",
        "%",
        0.01,
        "Share of the forward and backward time of the block.",
    ),
    _layer_column("fw_flops", "Work", "work", "FLOP", "GFLOP", 1e9, "Forward operations."),
    _layer_column(
        "fw_mem_accessed", "Memory traffic", "traffic", "bytes", "MiB", 2.0**20, "Forward memory traffic.", 0
    ),
    _layer_column(
        "fw_arithmetic_intensity",
        "Arithmetic intensity",
        "intensity",
        "FLOP/byte",
        "FLOP/B",
        1.0,
        "Forward operations per byte of memory traffic.",
        0,
    ),
    _layer_column(
        "bound",
        "Bound by",
        "bound by",
        "",
        "",
        1.0,
        "Limit of the forward pass: compute, memory or network.",
        dtype="str",
    ),
    _layer_column("weight", "Weights", "weights", "bytes", "MiB", 2.0**20, "Weights of the layer on one GPU."),
    _layer_column(
        "activation", "Activations", "act.", "bytes", "MiB", 2.0**20, "Activations of the layer for one microbatch."
    ),
    _layer_column(
        "tp_exposed",
        "TP exposed",
        "TP exp.",
        "s",
        "µs",
        1e-6,
        "Exposed tensor-parallel communication, forward and backward, in a base block.",
    ),
)
"""Columns shown for a layer, in the order of the table."""


class CalculonAccount(ExecutionAccount):
    """See `engine.cost_models.account.ExecutionAccount`."""

    expressions = EXPRESSIONS.keys()

    def __init__(self, model: Model, system: System, execution: Mapping[str, Any]) -> None:
        """execution: fields and statistics."""
        self._model, self._system, self._row = model, system, execution

    def communication(self) -> ExecutionCommunication:
        """See `Account.communication`."""
        row, times = self._row, []
        for name, group, link, exposed, degree in _TRAFFIC:
            both = float(row[link]), float(row[exposed])
            if int(row[degree]) > 1 and (name == group or max(both) > 0):
                times.append(LinkTime(name, group, *both))
        return ExecutionCommunication(
            placement(row),
            times,
            "A placement that agrees with the tiers of this execution; the model knows tiers and degrees only, so any "
            "other with the same tiers takes the same time.",
        )

    def block(self) -> BlockAccount:
        """See `Account.block`."""
        row, system = self._row, self._system
        rate, bandwidth = rates(system, str(row["datatype"])), system.mem1.bandwidth_gb_per_s * 1e9
        layers = named(layer_table_of(self._model, system, {column.name: row[column.name] for column in FIELDS}))
        blocks = most_blocks(self._model.num_blocks, int(row["pipeline_par"]))
        per_chunk, number = blocks // int(row["pipeline_interleaving"]), microbatches_of(row)
        adds = system.processing_mode == "no_overlap"
        return BlockAccount(
            title="Layers of one block",
            scope=f"one microbatch on one GPU; {blocks:,} block{'s' * (blocks != 1)}, {per_chunk} per chunk, "
            f"{number:,} microbatch{'es' * (number != 1)}",
            kinds={"all": "Every block"},
            tables={"all": _summarise_layers(layers, rate.matrix.peak, rate.vector.peak, bandwidth)},
            columns=LAYER_COLUMNS,
            note="",
            roofs=Roofs(rate.matrix.peak, rate.vector.peak, bandwidth),
            roofs_scope="one GPU",
            roofs_note="This system adds the times of arithmetic and memory, so layers stay below both roofs."
            if adds
            else "",
        )

    def model_stages(self, ranks: int, chunks: int, layout: str | None = None) -> Sequence[ModelStage]:
        """See `Account.model_stages`: blocks alike, with what their transfers show; the last ranks have one less."""
        if layout not in (None, "even"):
            raise LayerSplitError("Calculon cuts blocks as evenly as they divide, and knows no other stage layout")
        blocks, slots = self._model.num_blocks, ranks * chunks
        if slots > blocks:
            raise LayerSplitError(f"{blocks} blocks are too few for {slots} stages of the model")
        row = self._row
        times = chunk_times(row, blocks)
        own = most_blocks(blocks, int(row["pipeline_par"])) // int(row["pipeline_interleaving"])
        forward, backward = times.forward / own, times.backward / own
        least, more = divmod(blocks, slots)
        return [
            ModelStage(
                number * forward,
                number * backward / 2,
                number * backward / 2,
                number * (forward + backward),
                (StagePart("blocks", number, number * (forward + backward)),),
            )
            for number in [least + 1] * more + [least] * (slots - more)
        ]

    def formula(self, name: str) -> Expression | Untold:
        """See `Account.formula`."""
        return formula(name, self._row, self._model, self._system)


def named(layers: pd.DataFrame) -> pd.DataFrame:
    """Returns the layer table with two columns for people in front: `block` and `label`.

    Args:
        layers: table of `layer_table_of`, one row per layer.
    """
    split = [name.partition("_")[::2] for name in layers["name"]]
    words = [LAYER_WORDS.get(rest, rest.replace("_", " ")) for _, rest in split]
    blocks = [_BLOCKS.get(block, block) for block, _ in split]
    return pd.concat([pd.DataFrame({"block": blocks, "label": words}, index=layers.index), layers], axis=1)


def _summarise_layers(layers: pd.DataFrame, matrix: float, vector: float, bandwidth: float) -> pd.DataFrame:
    """Return the layers with the values of `LAYER_COLUMNS`. matrix, vector: peak rates [FLOP/s]; bandwidth: memory
    bandwidth [bytes/s]."""
    forward = layers["fw_processing_time"]
    backward = layers["agrad_processing_time"] + layers["wgrad_processing_time"]
    limits = []
    for one in layers.to_dict("records"):
        if one["fw_flops"] <= 0:
            limits.append("network" if one["fw_processing_time"] > 0 else "–")
            continue
        peak = matrix if one["engine"] == "matrix" else vector
        limits.append("compute" if one["fw_arithmetic_intensity"] * bandwidth >= peak else "memory")
    return layers.assign(
        fw_time=forward,
        bw_time=backward,
        share=(forward + backward) / (float((forward + backward).sum()) or 1.0),
        bound=limits,
        tp_exposed=layers["baseblock_fw_tp_comm_time_exposed"] + layers["baseblock_bw_tp_comm_time_exposed"],
    )


def placement(execution: Mapping[Any, Any]) -> list[RankGroup]:
    """Returns a placement that agrees with the network tiers: parallelism on inner tiers has neighbouring GPUs.

    Within a tier tensor parallelism is innermost, then pipeline, then data. The cost model knows tiers and degrees
    only, so any placement with the same tiers costs the same. GPU 0 is on the first stage of its pipeline, which hands
    on to the next stage and, when interleaved, gets back from the last.

    Args:
        execution: its fields by name.
    """
    order = sorted(
        (
            ("TP", int(execution["tensor_par"]), int(execution["tensor_par_net"])),
            ("PP", int(execution["pipeline_par"]), int(execution["pipeline_par_net"])),
            ("DP", int(execution["data_par"]), int(execution["data_par_net"])),
        ),
        key=lambda one: one[2],
    )
    groups, stride = [], 1
    for name, degree, tier in order:
        members = tuple(stride * number for number in range(degree))
        if name == "PP" and degree > 1:
            last = (members[-1],) if int(execution["pipeline_interleaving"]) > 1 and degree > 2 else ()
            members = (0, members[1], *last)
        groups.append(RankGroup(name, degree, (tier,), members))
        stride *= degree
    names = ["TP", "PP", "DP"]
    return sorted(groups, key=lambda group: names.index(group.name))
