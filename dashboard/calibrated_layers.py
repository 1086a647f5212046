"""The operations of one block by the calibrated cost model: table and roofline."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts import markup
from dashboard.charts.roofline import Roofs, bound, roofline
from dashboard.controls import segments, show
from dashboard.format import ABSENT, counted, format_value
from dashboard.wording import microbatches
from engine import Exploration, Scenario
from engine.calibrated import Case, model_shapes, parameters_of
from engine.calibrated.fields import case_of_fields, read
from engine.calibrated.operations import STAGES, Limits, block_operations, limits
from engine.columns import fields_of

__all__ = ["case_of_row", "layers", "named"]

_WORDS: Final = {
    "norms": "Norms, residuals", "casts": "Casts", "query_key_value": "QKV", "query_down": "Query, down",
    "query_up": "Query, up", "key_value_down": "Key and value, down", "key_value_up": "Key and value, up",
    "attention_core": "Attention core", "attention_output": "Projection", "context_ring": "CP ring",
    "feedforward_up": "MLP, linear 1", "feedforward_down": "MLP, linear 2", "activation": "Activation",
    "experts_up": "Experts, linear 1", "experts_down": "Experts, linear 2", "shared_up": "Shared, linear 1",
    "shared_down": "Shared, linear 2", "permutation": "Permutation", "expert_exchange": "EP exchange",
    "tensor_exchange": "TP exchange",
}  # fmt: skip
_BLOCKS: Final = {"experts": "With experts", "dense": "Dense"}
_MEBI: Final = 2.0**20


def case_of_row(scenario: Scenario, row: dict[str, Any]) -> Case:
    """What the cost model reads of one execution."""
    table = pd.DataFrame([{column.name: row[column.name] for column in fields_of("calibrated")}])
    found, _, _ = read(scenario.model, scenario.system, table)
    return case_of_fields(scenario.model, scenario.system, found)


def named(operations: pd.DataFrame) -> pd.DataFrame:
    """The operations with a column for people in front: `label`."""
    words = [_WORDS[name] for name in operations["name"]]
    return pd.concat([pd.DataFrame({"label": words}, index=operations.index), operations], axis=1)


@st.cache_data(show_spinner=False, max_entries=64)
def _operations(_scenario: Scenario, key: str, row: dict[str, Any], experts: bool) -> tuple[pd.DataFrame, Limits]:
    case, values = case_of_row(_scenario, row), parameters_of(_scenario.used_calibration)
    return named(block_operations(case, values, experts=experts)), limits(case, values)


def layers(exploration: Exploration, row: dict[str, Any], mode: str) -> None:
    """Table and roofline side by side."""
    scenario = exploration.scenario
    shapes = model_shapes(scenario.model)
    left, right = st.columns([1.45, 1], gap="medium")
    with left.container(border=True, gap="xsmall", height="stretch"):
        number = counted(microbatches(row), "microbatch")
        st.html(markup.head("Operations of one block", f"on one GPU, for one of {number}"))
        experts = bool(shapes.experts > 0)
        if experts and shapes.dense_blocks > 0:
            experts = segments("Block", _BLOCKS, "execution_block") == "experts"
        found, most = _operations(scenario, scenario.key, row, experts)
        _table(found, most)
        st.caption(
            "Without what the backward pass computes again and without waiting for kernel launches. Communication "
            "counts with what nothing hides of it. Formulas: `engine.calibrated`, in gemm, attention, elementwise, "
            "experts and collectives."
        )
    with right.container(border=True, gap="xsmall", height="stretch"):
        datatype = format_value("datatype", str(row["datatype"]))
        st.html(markup.head("Roofline", f"linear layers on one GPU, {datatype}; area is time"))
        roofs = Roofs(most.peak, most.sustained, most.memory_peak, ("peak", "sustained"))
        show(roofline(found, roofs, mode), "execution_roofline")
        if str(row["attention_kernel"]) != "unfused":
            st.caption(
                "The fused attention core keeps its scores on chip, so it has no bytes to be drawn at. All else that "
                "is not in the plot is traffic of memory or network."
            )


def _table(found: pd.DataFrame, most: Limits) -> None:
    forward = found["fw_processing_time"]
    backward = found["agrad_processing_time"] + found["wgrad_processing_time"]
    whole = float((forward + backward).sum()) or 1.0
    flops = found[[f"{stage}_flops" for stage in STAGES]].sum(axis=1)
    moved = found[[f"{stage}_mem_accessed" for stage in STAGES]].sum(axis=1)
    reached = (flops / (forward + backward)).where(flops > 0)
    intensity = (found["fw_flops"] / found["fw_mem_accessed"]).where((flops > 0) & (moved > 0))
    limit = [
        engine if engine != "matrix"
        else "compute" if pd.isna(ratio) else bound(ratio, most.sustained, most.memory_sustained)
        for engine, ratio in zip(found["engine"], intensity, strict=True)
    ]  # fmt: skip
    shown = pd.DataFrame(
        {
            "Operation": found["label"],
            "fw, µs": forward * 1e6,
            "bw, µs": backward * 1e6,
            "share": (forward + backward) / whole * 100,
            "GFLOP": (flops / 1e9).where(flops > 0),
            "MiB": (moved / _MEBI).where(moved > 0),
            "FLOP/B": intensity,
            "TFLOP/s": reached / 1e12,
            "bound by": limit,
        }
    )
    number = st.column_config.NumberColumn
    times = "%,.0f" if max(forward.max(), backward.max()) > 1e-3 else "%,.1f"
    st.dataframe(
        shown, hide_index=True, height=38 + 28 * len(shown), row_height=28, key="execution_layers", placeholder=ABSENT,
        alt=f"The {len(shown)} operations of a block with their times, work, bytes and what bounds them",
        column_config={
            "Operation": st.column_config.TextColumn(width=142),
            "fw, µs": number(format=times, width=62, help="Forward time, one microbatch."),
            "bw, µs": number(format=times, width=62, help="Backward time: gradients of inputs and of weights."),
            "share": st.column_config.ProgressColumn(
                "share of block", format="%.1f %%", min_value=0, max_value=float(shown["share"].max()), width=96,
                help="Share of the forward and backward time of the block.",
            ),
            "GFLOP": number(format="%,.0f", width=60, help="Arithmetic operations, forward and backward."),
            "MiB": number(format="%,.0f", width=58, help="Memory traffic, forward and backward."),
            "FLOP/B": number(format="%,.0f", width=62, help="Operations per byte of memory traffic, forward."),
            "TFLOP/s": number(format="%,.0f", width=66, help="Rate reached, forward and backward."),
            "bound by": st.column_config.TextColumn(
                width=72, help="The sustained roof that the forward pass meets first."
            ),
        },
    )  # fmt: skip
