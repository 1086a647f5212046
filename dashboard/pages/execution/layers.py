"""The layers of one block: table and roofline."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.roofline import Roofs, roofline
from dashboard.widgets.controls import show
from dashboard.words.executions import microbatches
from dashboard.words.numbers import counted, format_value
from engine import Exploration, LayerError, operations
from engine.columns import FIELDS
from engine.cost_models.calculon.rates import rates
from engine.cost_models.calibrated.physics.operations import bound

__all__ = ["layers", "named"]

_BLOCKS: Final = {"AttnBlock": "Attention", "MlpBlock": "MLP"}
_WORDS: Final = {
    "Fork": "Fork", "LayerNorm": "LayerNorm", "F": "All-gather or copy", "G": "Reduce-scatter or all-reduce",
    "Multihead_Fork": "QKV fork", "Query": "Query", "Key": "Key", "Value": "Value", "QKV": "QKV",
    "QKV_AG": "QKV, gathering",
    "Multihead_Key_Query": "QKᵀ", "Multihead_SoftMax": "Softmax", "Multihead_DropOut": "Dropout of the scores",
    "Multihead_Attn": "Scores × V", "MLP": "Projection", "MLP_RS": "Projection, scattering", "DropOut": "Dropout",
    "Residual": "Residual", "Mlp1": "Linear 1", "Mlp1_AG": "Linear 1, gathering", "GeLU": "GeLU", "Mlp2": "Linear 2",
    "Mlp2_RS": "Linear 2, scattering",
}  # fmt: skip
_MEBI: Final = 2.0**20


def named(layers: pd.DataFrame) -> pd.DataFrame:
    """The layer table with two columns for people in front: `block` and `label`."""
    split = [name.partition("_")[::2] for name in layers["name"]]
    words = [_WORDS.get(rest, rest.replace("_", " ")) for _, rest in split]
    blocks = [_BLOCKS.get(block, block) for block, _ in split]
    return pd.concat([pd.DataFrame({"block": blocks, "label": words}, index=layers.index), layers], axis=1)


@st.cache_data(show_spinner=False, max_entries=64)
def _layers(_exploration: Exploration, key: str, row: dict[str, Any]) -> pd.DataFrame | str:
    """The named layer table, or the reason why there is none."""
    fields = {column.name: row[column.name] for column in FIELDS}
    try:
        scenario = _exploration.scenario
        return named(operations(scenario.model, scenario.system, fields, cost_model=scenario.cost_model))
    except LayerError as problem:
        return str(problem)


def layers(exploration: Exploration, row: dict[str, Any], mode: str) -> None:
    """Table and roofline side by side."""
    found = _layers(exploration, exploration.key, row)
    left, right = st.columns([1.45, 1], gap="medium")
    count = -(-exploration.scenario.model.num_blocks // int(row["pipeline_par"]))
    per_chunk = count // int(row["pipeline_interleaving"])
    number = counted(microbatches(row), "microbatch")
    scope = f"one microbatch on one GPU; {counted(count, 'block')}, {per_chunk} per chunk, {number}"
    with left.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Layers of one block", scope))
        if isinstance(found, str):
            st.caption(found)
        else:
            _table(exploration, row, found)
    with right.container(border=True, gap="xsmall", height="stretch"):
        system, datatype = exploration.scenario.system, str(row["datatype"])
        st.html(markup.head("Roofline", f"one GPU, {format_value('datatype', datatype)}; area is time"))
        if not isinstance(found, str):
            rate = rates(system, datatype)
            roofs = Roofs(rate.matrix.peak, rate.vector.peak, system.mem1.bandwidth_gb_per_s * 1e9)
            show(roofline(found, roofs, mode), "execution_roofline")
            if system.processing_mode == "no_overlap":
                st.caption("This system adds the times of arithmetic and memory, so layers stay below both roofs.")


def _table(exploration: Exploration, row: dict[str, Any], found: pd.DataFrame) -> None:
    system, datatype = exploration.scenario.system, str(row["datatype"])
    rate = rates(system, datatype)
    forward = found["fw_processing_time"]
    backward = found["agrad_processing_time"] + found["wgrad_processing_time"]
    exposed = found["baseblock_fw_tp_comm_time_exposed"] + found["baseblock_bw_tp_comm_time_exposed"]
    whole = float((forward + backward).sum()) or 1.0
    limits = []
    for one in found.to_dict("records"):
        if one["fw_flops"] <= 0:
            limits.append("network" if one["fw_processing_time"] > 0 else "–")
            continue
        peak = rate.matrix.peak if one["engine"] == "matrix" else rate.vector.peak
        limits.append(bound(one["fw_arithmetic_intensity"], peak, system.mem1.bandwidth_gb_per_s * 1e9))
    shown = pd.DataFrame(
        {
            "Block": found["block"],
            "Layer": found["label"],
            "fw, µs": forward * 1e6,
            "bw, µs": backward * 1e6,
            "share": (forward + backward) / whole * 100,
            "GFLOP": found["fw_flops"] / 1e9,
            "MiB": found["fw_mem_accessed"] / _MEBI,
            "FLOP/B": found["fw_arithmetic_intensity"],
            "bound by": limits,
            "weights, MiB": found["weight"] / _MEBI,
            "act., MiB": found["activation"] / _MEBI,
            "TP exp., µs": exposed * 1e6,
        }
    )
    number = st.column_config.NumberColumn
    st.dataframe(
        shown, hide_index=True, height=38 + 28 * len(shown), row_height=28, key="execution_layers",
        alt=f"The {len(shown)} layers of a block with their times, operations, bytes and what bounds them",
        column_config={
            "Block": st.column_config.TextColumn(width=68),
            "Layer": st.column_config.TextColumn(width=146),
            "fw, µs": number(format="%,.1f", width=60, help="Forward time of the layer, one microbatch."),
            "bw, µs": number(format="%,.1f", width=60, help="Backward time: gradients of inputs and of weights."),
            "share": st.column_config.ProgressColumn(
                "share of block", format="%.1f %%", min_value=0, max_value=float(shown["share"].max()), width=98,
                help="Share of the forward and backward time of the block.",
            ),
            "GFLOP": number(format="%,.1f", width=62, help="Forward operations."),
            "MiB": number(format="%,.0f", width=48, help="Forward memory traffic."),
            "FLOP/B": number(format="%,.0f", width=62, help="Forward operations per byte of memory traffic."),
            "bound by": st.column_config.TextColumn(width=74, help="The roof that the forward pass would meet first."),
            "weights, MiB": number(format="%,.1f", width=88, help="Weights of the layer on one GPU."),
            "act., MiB": number(format="%,.1f", width=74, help="Activations of the layer for one microbatch."),
            "TP exp., µs": number(format="%,.1f", width=88, help="Tensor-parallel communication that nothing hides, "
                                  "forward and backward, in a base block."),
        },
    )  # fmt: skip
