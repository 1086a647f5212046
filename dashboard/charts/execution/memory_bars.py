"""Memory stacked by kind, one panel per tier, against the capacity line.

Bars that need more than the capacity are drawn past the line, so that the overshoot can be seen.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import pandas as pd

from dashboard.charts.elements.drawing import Drawing
from dashboard.charts.elements.palette import MEMORY_KINDS, Kind, Palette, palette
from dashboard.charts.elements.template import Chart, base, draw_capacity, empty, noted, style_axes, trace
from dashboard.words.names import cell_name, in_sentence
from dashboard.words.numbers import UNLIMITED, Scale, format_value, gibibytes, percent, scale_for

_UNIT: Final = "proc_mem_tier1_cap_req"
"""Any column in bytes; it sets unit and formatting."""
_LABEL_SHARE: Final = 0.09
"""A piece prints its number when it is wider than this share of the axis."""

_TOTAL_AT: Final = 66
_SHARE_AT: Final = 116
"""Right edges of the two columns of numbers [px right of the plot]."""

COLUMNS: Final = (
    "weight_offload",
    "activations_offload",
    "optimizer_offload",
    "activation_recompute",
    "training",
    "weight_space",
    "optimizer_space",
    "weight_grad_space",
    "act_space",
    "act_checkpoint_size",
    "act_grad_space",
    "weight_space_with_offload",
    "optimizer_space_with_offload",
    "weight_grad_space_with_offload",
    "act_space_with_offload",
    "act_checkpoint_size_with_offload",
    "block_weight_space",
    "block_weight_grad_space",
    "proc_mem_tier2_cap_req",
)
"""Fields and statistics that `tier_pieces` reads from one execution."""

Pieces = dict[str, float]
"""Bytes by key of `MEMORY_KINDS`, in the order of the stack."""


class MemoryBar(NamedTuple):
    """One bar: its name at the left, and its pieces [bytes] by key of `MEMORY_KINDS`."""

    label: str
    pieces: Mapping[str, float]
    custom: Sequence[Any] = ()
    """Customdata that a click on the bar reports."""
    capacity: float | None = None
    """Capacity of the bar's own tier [bytes] if bars of one panel belong to different systems; None for the panel's."""


def tier_pieces(execution: Mapping[Any, Any]) -> tuple[Pieces, Pieces]:
    """Splits one execution's memory by kind into the GPU's own memory (tier 1) and host memory (tier 2) [bytes].

    Without offload everything is in tier 1. Offloaded tensors are in tier 2, and tier 1 keeps the blocks in transit.
    The pieces of a tier sum to `proc_mem_tier1_cap_req` and `proc_mem_tier2_cap_req`. Source: memory accounting of
    Calculon 0.1.0, `Llm._check_mem_caps` and the `*_with_offload` statistics; logits, temporaries and reserve are not
    parts of every cost model.
    """

    def size(name: str) -> float:
        value = execution.get(name)
        return 0.0 if value is None or pd.isna(value) else float(value)

    first = {kind.key: size(kind.statistics[0]) for kind in MEMORY_KINDS}
    second = dict.fromkeys(first, 0.0)
    if bool(execution["weight_offload"]):
        second["weights"] = first["weights"]
        first["weights"] = size("weight_space_with_offload")
    if bool(execution["activations_offload"]):
        moved = "checkpoints" if execution["activation_recompute"] == "full" else "activations"
        second[moved] = first[moved]
        first["activations"] = size("act_space_with_offload")
        first["checkpoints"] = size("act_checkpoint_size_with_offload") if moved == "checkpoints" else 0.0
    calibrated = size("reserve_space") > 0
    if bool(execution["optimizer_offload"]):
        blocks = round(size("weight_space") / size("block_weight_space"))
        gradients = first["weight_gradients"] if calibrated else size("block_weight_grad_space") * blocks
        second["weight_gradients"] = gradients
        second["optimizer"] = first["optimizer"]
        first["weight_gradients"] = size("weight_grad_space_with_offload")
        first["optimizer"] = size("optimizer_space_with_offload")
    if calibrated:
        _fill_second(second, size("proc_mem_tier2_cap_req"), execution)
    return first, second


def _fill_second(second: Pieces, need: float, execution: Mapping[Any, Any]) -> None:
    """Scale the offloaded pieces of a calibrated execution to the sum of the second tier [bytes].

    The statistics by kind belong to the stage that fills the first tier; if another stage fills the second, its state
    is a like share of weights, gradients and optimizer, and its kept activations are the rest.
    """
    held = sum(second.values())
    if bool(execution["activations_offload"]):
        moved = "checkpoints" if execution["activation_recompute"] == "full" else "activations"
        second[moved] = max(0.0, need - held + second[moved])
        held = sum(second.values())
    if held > 0:
        second.update({key: value * need / held for key, value in second.items()})


def memory_bars(
    executions: Sequence[tuple[str, Mapping[Any, Any]]],
    capacities: tuple[float, float],
    mode: str = "light",
    *,
    names: tuple[str, str] = ("HBM", "Host"),
) -> Chart:
    """Draws the memory of one or a few executions, one panel per tier that is used.

    executions: (label, row) pairs; a row has the columns `COLUMNS`. A single label may be empty.
    capacities: of tier 1 and tier 2 [bytes]; 0 where there is no second tier, infinity where it is not limited.
    """
    colours = palette(mode)
    if not executions:
        return empty(colours, 120, "No execution selected.")
    split = [(label, tier_pieces(row)) for label, row in executions]
    panels = []
    for tier in (0, 1):
        bars = [MemoryBar(label, pieces[tier]) for label, pieces in split]
        if tier == 0 or any(sum(bar.pieces.values()) > 0 for bar in bars):
            panels.append((names[tier], capacities[tier], bars))
    return _draw_panels(panels, colours)


def aligned_memory(
    executions: Sequence[tuple[str, Mapping[Any, Any]]], capacities: Sequence[tuple[float, float]], mode: str = "light"
) -> Chart:
    """Draws the memory of executions on different systems on the same scale, one panel per tier that is used.

    executions: (label, row) pairs as in `memory_bars`. capacities: of tier 1 and tier 2 of each one's system [bytes].
    """
    colours = palette(mode)
    if not executions:
        return empty(colours, 120, "Nothing fits in any of them.")
    split = [(label, tier_pieces(row)) for label, row in executions]
    panels = []
    for tier, name in enumerate(("HBM", "Host")):
        own = [capacity[tier] for capacity in capacities]
        bars = [MemoryBar(label, pieces[tier], capacity=size) for (label, pieces), size in zip(split, own, strict=True)]
        if tier == 0 or any(sum(bar.pieces.values()) > 0 for bar in bars):
            panels.append((name, max(own), bars))
    return _draw_panels(panels, colours, row_height=34)


def memory_rows(
    rows: pd.DataFrame,
    capacity: float,
    mode: str = "light",
    *,
    tier: int = 1,
    name: str = "HBM",
) -> Chart:
    """Draws the memory of many executions in one tier, one thin bar each, in the order of the rows (first on top).

    rows: one execution per row, the columns `COLUMNS` with tensor_par, pipeline_par and optionally id; for example the
    best execution of every cell. capacity [bytes]. Bars carry customdata (tensor_par, pipeline_par, id).
    """
    colours = palette(mode)
    if not len(rows):
        return empty(colours, 120, "No execution fits.")
    bars = [
        MemoryBar(
            cell_name(row["tensor_par"], row["pipeline_par"]),
            tier_pieces(row)[tier - 1],
            (int(row["tensor_par"]), int(row["pipeline_par"]), int(row.get("id", -1))),
        )
        for row in rows.to_dict("records")
    ]
    return _draw_panels([(name, capacity, bars)], colours, row_height=24)


def _draw_panels(panels: list[tuple[str, float, list[MemoryBar]]], colours: Palette, row_height: int = 46) -> Chart:
    """Draw one panel under the other, each with its own horizontal axis."""
    head, foot, gap = 24, 22, 18
    sizes = [head + row_height * len(bars) + foot for _, _, bars in panels]
    height = sum(sizes) + gap * (len(panels) - 1) + 8
    figure = base(colours, height)
    findings, notes = [], list[dict[str, Any]]()
    top = height - 8
    for index, (name, capacity, bars) in enumerate(panels):
        suffix = "" if index == 0 else str(index + 1)
        bottom = top - sizes[index]
        plot = [(bottom + foot) / (height - 8), (top - head) / (height - 8)]
        figure.update_layout(
            {f"yaxis{suffix}": {"domain": plot, "anchor": f"x{suffix}"}, f"xaxis{suffix}": {"anchor": f"y{suffix}"}}
        )
        notes += _draw_panel(figure, suffix, name, capacity, bars, colours, row_height)
        findings.append(_summarize_panel(name, capacity, bars))
        top = bottom - gap
    style_axes(figure, colours)
    figure.update_layout(
        barmode="stack", bargap=0, uniformtext={"mode": False}, margin={"l": 16, "r": _SHARE_AT + 2}, annotations=notes
    )
    figure.update_yaxes(tickfont={"size": 12, "color": colours.text})
    return Chart(figure, " ".join(findings), rows=True)


def _draw_panel(
    figure: Drawing,
    suffix: str,
    name: str,
    capacity: float,
    bars: list[MemoryBar],
    colours: Palette,
    row_height: int,
) -> list[dict[str, Any]]:
    """Draw the bars and the capacity line of one tier; returns its totals as annotations."""
    notes = []
    totals = [sum(bar.pieces.values()) for bar in bars]
    bounded = 0 < capacity < UNLIMITED
    longest = max(*totals, capacity * 0.98 if bounded else 0.0, 1.0)
    scale = scale_for(_UNIT, [capacity if bounded else longest])
    reach = max(capacity * 1.06 if bounded else 0.0, max(totals) * 1.02, 1.0)
    rows = list(range(len(bars) - 1, -1, -1))
    own = [capacity if bar.capacity is None else bar.capacity for bar in bars]
    for kind in MEMORY_KINDS:
        sizes = [float(bar.pieces.get(kind.key, 0.0)) for bar in bars]
        if not any(sizes):
            continue
        figure.add_trace(
            _kind_trace(
                kind, sizes, rows, totals, bars, scale, reach, colours, suffix, 0.6 if row_height > 30 else 0.72
            )
        )
    axis: dict[str, Any] = {"xref": f"x{suffix}", "yref": f"y{suffix}"}
    column: dict[str, Any] = {"x": 1, "xref": "paper", "xanchor": "right", "yref": axis["yref"], "font_size": 12}
    for row, total, size in zip(rows, totals, own, strict=True):
        tone = colours.worse if bounded and total > size else colours.text
        told = f"<b>{format_value(_UNIT, total)}</b>"
        notes.append(noted(told, colours, y=row, xshift=_TOTAL_AT, colour=tone, **column))
        if bounded and size > 0:
            notes.append(noted(percent(total / size, 0), colours, y=row, xshift=_SHARE_AT, colour=tone, **column))
    if bounded and len(set(own)) > 1:
        for row, size in zip(rows, own, strict=True):
            figure.add_shape(
                type="line",
                x0=size / scale.factor,
                x1=size / scale.factor,
                y0=row - 0.42,
                y1=row + 0.42,
                layer="above",
                line={"color": colours.worse, "width": 2},
                **axis,
            )
        told = ", ".join(f"{bar.label} {gibibytes(size)}" for bar, size in zip(bars, own, strict=True))
        notes.append(
            noted(
                f"{name} {told}",
                colours,
                x=1,
                xref="paper",
                y=len(bars) - 0.5,
                yref=axis["yref"],
                yanchor="bottom",
                yshift=1,
                xanchor="right",
                colour=colours.worse,
            )
        )
    elif bounded:
        place = capacity / scale.factor
        side = "right" if place > 0.25 * reach / scale.factor else "left"
        text = f"{name} {gibibytes(capacity)}"
        notes.append(draw_capacity(figure, place, len(bars), text, colours, side, **axis))
    figure.update_layout(
        {
            f"xaxis{suffix}": {
                "range": [0, reach / scale.factor],
                "ticksuffix": scale.suffix,
                "nticks": 6,
                "tickformat": ",~g",
            },
            f"yaxis{suffix}": {
                "range": [-0.5, len(bars) - 0.5],
                "tickvals": rows,
                "ticktext": [bar.label for bar in bars],
            },
        }
    )
    return notes


def _kind_trace(
    kind: Kind,
    sizes: list[float],
    rows: list[int],
    totals: list[float],
    bars: list[MemoryBar],
    scale: Scale,
    reach: float,
    colours: Palette,
    suffix: str,
    thickness: float,
) -> dict[str, Any]:
    """Return the pieces of one kind over all bars of a panel."""
    hovers = [
        "<br>".join(
            part
            for part in (
                f"<b>{bar.label}</b>" if bar.label else "",
                f"{kind.name} {format_value(_UNIT, size)}",
                f"{percent(size / total)} of {format_value(_UNIT, total)}" if total else "",
            )
            if part
        )
        for bar, size, total in zip(bars, sizes, totals, strict=True)
    ]
    return trace(
        "bar",
        x=[size / scale.factor for size in sizes],
        y=rows,
        orientation="h",
        width=thickness,
        name=kind.name,
        xaxis=f"x{suffix}",
        yaxis=f"y{suffix}",
        marker={"color": kind.colour(colours), "line": {"color": colours.background, "width": 1}},
        text=[scale.number(size) if size > _LABEL_SHARE * reach else "" for size in sizes],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        constraintext="none",
        insidetextfont={"color": kind.label(colours), "size": 11},
        hovertext=hovers,
        hovertemplate="%{hovertext}<extra></extra>",
        customdata=[list(bar.custom) for bar in bars],
    )


def _summarize_panel(name: str, capacity: float, bars: list[MemoryBar]) -> str:
    totals = [sum(bar.pieces.values()) for bar in bars]
    bounded = 0 < capacity < UNLIMITED
    if len(bars) > 4:
        over = sum(total > capacity for total in totals) if bounded else 0
        return (
            f"{name} of {len(bars)} executions: from {format_value(_UNIT, min(totals))} to "
            f"{format_value(_UNIT, max(totals))}; {over} need more than {gibibytes(capacity)}."
        )
    sentences = []
    for bar, total in zip(bars, totals, strict=True):
        own = capacity if bar.capacity is None else bar.capacity
        largest = max(MEMORY_KINDS, key=lambda kind: bar.pieces.get(kind.key, 0.0))
        of = f" of {gibibytes(own)}" if bounded else ""
        excess = f", {gibibytes(total - own)} too much" if bounded and total > own else ""
        most = f", most of it {in_sentence(largest.name)}" if total else ""
        sentences.append(f"{name}{' ' + bar.label if bar.label else ''}: {gibibytes(total)}{of}{excess}{most}.")
    return " ".join(sentences)
