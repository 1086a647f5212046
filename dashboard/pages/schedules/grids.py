"""Every mix of data, horizontal and pipeline parallelism, by DistIR's simulator, for its models or the scenario's."""

from __future__ import annotations

import json
from typing import Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.schedules.gantt import gantt
from dashboard.charts.schedules.parallelism_grid import (
    envelope_scatter,
    memory_scatter,
    simulated_overlay,
    speedup_curves,
)
from dashboard.pages.schedules.grid_inputs import SCENARIO, GridInputs
from dashboard.queries.parallelism_grids import curves, grid_of
from dashboard.widgets.chart import show
from dashboard.widgets.file_download import draw_download
from dashboard.widgets.link_fields import draw_choice, draw_decimal, draw_segments, draw_switch, draw_whole
from dashboard.widgets.tables import height_of
from dashboard.widgets.window import is_narrow
from dashboard.words.markdown import literal
from dashboard.words.numbers import count, counted, format_value, percent, plain
from engine.questions.distir import grid_constants
from engine.reproductions.distir.simulator import (
    REVISIONS,
    ConfigurationError,
    agreement,
    envelopes,
    fit_steps,
    measured_steps,
    overlay,
    pareto,
    timeline,
    top_configurations,
)
from engine.reproductions.distir.simulator.calibration import MEASURED_CONSTANTS
from engine.simulate.schedule import WORK, Schedule
from hardware import GIB

__all__ = ["render"]

MOST_ITEMS: Final = 10_000
"""Most stages times microbatches for which a step is drawn."""
_LABELS: Final = {
    "not_whole": "not a whole number",
    "layers_not_divisible": "P does not divide the layers",
    "batch_not_divisible": "microbatches do not divide the batch",
    "too_many_microbatches": "fewer samples than microbatches",
    "width_not_divisible": "H does not divide the width",
    "memory": "too much memory",
    "odd_layers": "odd number of layers",
    "too_large": "too large to count",
}


def render(asked: GridInputs, mode: str) -> None:
    """Draw inputs, answers, both figures, memory by style, the best, and measured next to simulated steps.

    Args:
        asked: the parsed inputs.
        mode: "light" or "dark".
    """
    _draw_inputs(asked)
    try:
        table = grid_of(asked.question)
        lines_of = curves(asked.question)
    except ConfigurationError as problem:
        st.error(literal(str(problem)), icon=":material/error:")
        return
    runs = table[table["reason"] == ""]
    st.html(markup.figure_strip(_grid_tiles(table, runs, asked), _describe_basis(asked.link.revision)))
    left, right = st.columns([1, 1], gap="medium")
    with left.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("How each scales alone", "against one device, weights in place"))
        draw_segments(asked.fields["kind"])
        kind = asked.link.kind
        label = "batch" if kind == "data" else "m"
        name = "Data parallelism" if kind == "data" else "Pipeline parallelism"
        chart = speedup_curves(lines_of[lines_of["kind"] == kind], mode, label=label, width=name)
        show(chart, "schedules_grid_curves")
        st.caption(literal(chart.alt))
    with right.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("How every mix scales", "against one device; lines are one kind alone"))
        chart = envelope_scatter(runs, envelopes(table), mode)
        show(chart, "schedules_grid_envelopes")
        st.caption(literal(chart.alt))
    left, right = st.columns([1, 1], gap="medium")
    front = pareto(runs) if len(runs) else runs
    with left.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("What memory buys", "by style: data (D), horizontal (T), pipeline (P)"))
        chart = memory_scatter(runs, front, mode)
        show(chart, "schedules_grid_memory")
        st.caption(literal(chart.alt))
    with right.container(border=True, gap="xsmall", height="stretch"):
        _draw_measured(asked, mode)
    if len(runs):
        with st.container(border=True, gap="xsmall"):
            _draw_step(runs.sort_values("throughput").iloc[-1], asked, mode)
    with st.container(border=True, gap="xsmall"):
        _draw_fastest(table, runs)


def _draw_inputs(asked: GridInputs) -> None:
    """Draw the inputs of the grid."""
    fields = asked.fields
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        draw_choice(fields["model"], label="Model, layers × width", width=250)
        draw_choice(fields["revision"], label="DistIR", width=150)
        draw_choice(fields["machine"], width=190)
        draw_choice(fields["devices"], width=104)
        draw_whole(fields["batch"])
        draw_decimal(fields["bandwidth_gbps"], help="In the units of the revision.")
        draw_decimal(fields["memory_limit_gib"], help="Of a device; empty for no limit.")
    if "filtered" in fields:
        draw_switch(
            fields["filtered"],
            help="Assumes that weights are on their devices. Otherwise one replica pays for sending them, as in the "
            "paper’s figure, which makes two replicas more than twice as fast.",
        )
    if asked.link.model == SCENARIO:
        st.caption(
            literal(
                f"{asked.model_name} as {asked.layers:,} square weights of {asked.width:,}: as many as a token passes, "
                "without embedding, attention’s products, norms and head; rows are tokens."
            )
        )


def _grid_tiles(table: pd.DataFrame, runs: pd.DataFrame, asked: GridInputs) -> list[markup.Tile]:
    """Return the grid's answers."""
    size = f"{asked.layers:,} layers of {asked.width:,}"
    tiles = [
        markup.Tile("Configurations that run", f"{count(len(runs))} of {count(len(table))}", _main_rejection(table))
    ]
    if not len(runs):
        return [*tiles, markup.Tile("Model", counted(asked.link.batch, "row"), size)]
    best, lean = runs.sort_values("throughput").iloc[-1], runs.sort_values("peak_memory").iloc[0]
    pipelines = runs[(runs["style"] == "P")]
    tiles = [
        markup.Tile(
            "Fastest",
            "D{D} × H{H} × P{P}".format_map(best),
            f"m {best['m']}, {format_value('total_time', best['latency'])} a step",
        ),
        markup.Tile("Speedup", plain(float(best["speedup"])), f"on {counted(int(best['devices']), 'device')}"),
        markup.Tile("Throughput", f"{plain(float(best['throughput']))} /s", "rows"),
        markup.Tile("Its peak memory", f"{plain(float(best['peak_memory']) / GIB)} GiB", "of the fullest device"),
        markup.Tile("Least memory", f"{plain(float(lean['peak_memory']) / GIB)} GiB", _describe_degrees(lean)),
        *tiles,
    ]
    if len(pipelines):
        own = pipelines.sort_values("throughput").iloc[-1]
        largest = int(pipelines.loc[pipelines["P"] == own["P"], "m"].max())
        tiles.append(markup.Tile("Best pipeline alone", f"P {own['P']}, m {own['m']}", f"m up to {largest:,} tried"))
    return tiles


def _describe_basis(revision: str) -> str:
    """Return the basis of the grid's figures: the grid was not measured, steps of data parallelism were."""
    table = overlay(measured_steps(), fit_steps(measured_steps(), revision))
    everything = agreement(table).iloc[-1]
    off = percent(everything["mean_absolute_percentage_error"] / 100)
    return (
        f"Modelled: simulated by DistIR, revision {revision}; nothing of this grid was measured, so no error is "
        f"given. The {count(int(everything['rows']))} measured steps of data parallelism are {off} off in the mean, "
        "with constants fitted to them."
    )


def _describe_degrees(row: pd.Series) -> str:
    return f"{row['D']} × {row['H']} × {row['P']}, m {row['m']}"


def _main_rejection(table: pd.DataFrame) -> str:
    """Return the commonest reason for which a configuration does not run."""
    found = table.loc[table["reason"] != "", "reason"].value_counts()
    if not len(found):
        return "none rejected"
    name = str(found.index[0])
    return f"{count(int(found.iloc[0]))}: {_LABELS.get(name, name)}"


def _draw_measured(asked: GridInputs, mode: str) -> None:
    """Draw 81 published measured steps, and the same steps simulated."""
    st.html(markup.head("Measured and simulated", "81 steps of data parallelism, PCIe, FP32"))
    draw_segments(asked.fields["fit"])
    constants = MEASURED_CONSTANTS if asked.link.fit == "own" else fit_steps(measured_steps(), asked.link.revision)
    table = overlay(measured_steps(), constants)
    found = agreement(table)
    chart = simulated_overlay(table, found, mode)
    show(chart, "schedules_grid_measured")
    st.html(
        markup.facts(
            [
                *(
                    (
                        f"{row['devices']} GPUs" if row["devices"] != "1" else "1 GPU",
                        f"{percent(row['mean_absolute_percentage_error'] / 100)} off, median "
                        f"×{plain(row['median_ratio'])}",
                    )
                    for row in found.to_dict("records")
                    if row["devices"] != "all"
                ),
                ("Pearson", f"{found['pearson'].iloc[-1]:.3f}"),
                ("Spearman", f"{found['spearman'].iloc[-1]:.3f}"),
                ("FLOP/s", plain(constants.flops or REVISIONS[constants.revision].flops)),
                ("Gbps", plain(constants.bandwidth_gbps) if constants.bandwidth_gbps else "not determined"),
            ]
        )
    )


def _draw_step(best: pd.Series, asked: GridInputs, mode: str) -> None:
    """Draw the step of the fastest configuration: its lanes, and the time of each stage."""
    st.html(markup.head("A step of the fastest", f"{_describe_degrees(best)}; stages of one replica and shard"))
    if best["P"] * best["m"] > MOST_ITEMS:
        st.caption(f"Its {2 * int(best['P']) * int(best['m']):,} items are too many for a picture.")
        return
    degrees = {name: int(best[name]) for name in ("D", "H", "P", "m")}
    constants = grid_constants(asked.question)
    found = timeline(
        revision=constants.revision,
        **degrees,
        width=asked.width,
        layers=asked.layers,
        batch=asked.link.batch,
        bandwidth_gbps=asked.bandwidth_gbps,
        filtered=asked.question.filtered,
        **constants.arguments(),
    )
    tasks = found.items.assign(
        kind=found.items["kind"].map({"f": WORK["F"], "b": WORK["BW"]}), chunk=0, pair=-1, microbatch=found.items["mb"]
    )
    lanes = Schedule(
        stages=degrees["P"],
        chunks=1,
        microbatches=degrees["m"],
        tasks=tasks,
        step_time=found.latency,
        title="greedy 1F1B",
    )
    show(gantt(lanes, mode, zoom=True, narrow=is_narrow()), "schedules_grid_lanes")
    st.caption("Light is forward, dark backward with its all-reduces; hatched is sending and waiting.")
    shares = found.stages[["compute", "exchange", "send", "waiting"]].mean() / found.latency
    names = {"compute": "computes", "exchange": "all-reduces", "send": "sends", "waiting": "waits"}
    st.html(
        markup.facts(
            [
                *((label, percent(float(shares[name]))) for name, label in names.items()),
                (
                    "peak of first and last stage",
                    " · ".join(f"{plain(float(found.stages['peak_memory'].iloc[end]) / GIB)} GiB" for end in (0, -1)),
                ),
            ]
        )
    )
    draw_download(
        "Events for Chrome’s trace viewer",
        lambda: json.dumps(found.chrome_trace()),
        "distir.trace.json",
        "application/json",
        key="schedules_grid_trace",
    )


def _draw_fastest(table: pd.DataFrame, runs: pd.DataFrame) -> None:
    """Draw the fastest as a table, and all as a download."""
    shown = top_configurations(runs, 50)
    head, file = st.columns([4, 1], vertical_alignment="center")
    with head:
        st.html(markup.head("The fastest", f"{len(shown)} of {len(runs):,} that run"))
    with file:
        draw_download(
            "All as CSV",
            lambda: table.to_csv(index=False),
            "grid.csv",
            "text/csv",
            key="schedules_grid_csv",
            help="Every configuration, with the reason if it does not run.",
        )
    number = st.column_config.NumberColumn
    columns = ["style", "devices", "D", "H", "P", "m"]
    st.dataframe(
        shown[columns].assign(
            step=shown["latency"] * 1e3,
            rate=shown["throughput"],
            peak=shown["peak_memory"] / GIB,
            speedup=shown["speedup"],
        ),
        hide_index=True,
        height=height_of(len(shown), 360),
        key="schedules_grid_table",
        placeholder="–",
        alt="The fastest configurations with their degrees, step, throughput, peak memory and speedup.",
        column_config={
            "style": st.column_config.TextColumn("Style", width=80, help="D data, T horizontal, P pipeline."),
            "devices": number("Devices", width=80),
            "D": number("D", width=56, help="Replicas."),
            "H": number("H", width=56, help="Horizontal shards of every weight."),
            "P": number("P", width=56, help="Pipeline stages."),
            "m": number("m", width=64, help="Microbatches."),
            "step": number("Step [ms]", format="%.4g", width=90),
            "rate": number("Rows/s", format="%.4g", width=90),
            "peak": number("Peak [GiB]", format="%.4g", width=90),
            "speedup": number("Speedup", format="%.4g", width=80),
        },
    )
