"""Roofline of the layers: rate reached against operations per byte, under the roofs of the processor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

from dashboard.charts.elements.drawing import Drawing
from dashboard.charts.elements.palette import TIME_KINDS, Palette, palette
from dashboard.charts.elements.template import Chart, base, empty, note
from dashboard.words.numbers import format_value, plain, scale_for
from engine.cost_models.account import Roofs

HEIGHT: Final = 430
STAGES: Final = (("fw", "forward"), ("agrad", "backward, activations"), ("wgrad", "backward, weights"))
_LARGEST: Final = 24
_SMALLEST: Final = 6


_APART: Final = 3.0
"""Least ratio of the two roofs' rates; below it, marks are near the lower roof, whose name moves aside."""

_ROOM_FOR_NAME: Final = 0.36
"""Share of the axis that the name of the slope takes where the window is narrow."""


def roofline(layers: pd.DataFrame, roofs: Roofs, mode: str = "light", *, height: int = HEIGHT) -> Chart:
    """Draws one mark per layer and pass that computes anything; its area grows with the time it takes.

    layers: columns label, engine, and for each stage of `STAGES` `{stage}_flops` [FLOP], `{stage}_mem_accessed`
    [bytes] and `{stage}_processing_time` [s], as `engine.cost_models.account.BlockAccount` has them.
    """
    colours = palette(mode)
    marks = points(layers)
    if not marks:
        return empty(colours, height, "No layer computes anything.")
    figure = base(colours, height)
    lowest = min(mark["intensity"] for mark in marks)
    highest = max(max(mark["intensity"] for mark in marks), roofs.matrix / roofs.bandwidth)
    # The slope of the memory belongs to the picture, also where nothing comes near it.
    left, right = min(lowest / 2.5, roofs.lower / roofs.bandwidth / 8), highest * 3
    _draw_roofs(figure, roofs, left, right, colours)
    longest = max(mark["seconds"] for mark in marks)
    kinds = {kind.key: kind for kind in TIME_KINDS}
    looks: Mapping[str, tuple[str | None, str]] = {
        "fw": (kinds["forward"].colour(colours), "circle"),
        "agrad": (kinds["backward"].colour(colours), "circle"),
        "wgrad": (kinds["backward"].colour(colours), "circle-open"),
    }
    for stage, name in STAGES:
        chosen = [mark for mark in marks if mark["stage"] == stage]
        colour, symbol = looks[stage]
        figure.draw(
            "scatter",
            x=[mark["intensity"] for mark in chosen],
            y=[mark["rate"] / 1e12 for mark in chosen],
            mode="markers",
            name=name,
            marker={
                "size": [max(_SMALLEST, _LARGEST * math.sqrt(mark["seconds"] / longest)) for mark in chosen],
                "color": colour,
                "symbol": symbol,
                "opacity": 0.9,
                "line": {"color": colour if symbol.endswith("open") else colours.background, "width": 1.5},
            },
            hovertext=[_layer_hover_text(mark, name) for mark in chosen],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    bottom = min(min(mark["rate"] for mark in marks) / 1e12, roofs.bandwidth * left / 1e12)
    figure.update_xaxes(
        type="log",
        title="Arithmetic intensity, FLOP/B",
        range=[math.log10(left), math.log10(right)],
        dtick=1,
        tickformat=",~g",
    )
    figure.update_yaxes(
        type="log",
        title="Rate reached, TFLOP/s",
        showgrid=True,
        dtick=1,
        tickformat=",~g",
        range=[math.log10(bottom / 2), math.log10(roofs.matrix / 1e12 * 4)],
    )
    figure.update_layout(showlegend=True, margin={"t": 28})
    return Chart(figure, _summarize_roofline(marks, roofs))


def points(layers: pd.DataFrame) -> list[dict[str, Any]]:
    """Returns one mark per layer and pass: label, engine, stage, seconds [s], intensity [FLOP/byte], rate [FLOP/s]."""
    found = []
    of_stages = [f"{stage}_{what}" for stage, _ in STAGES for what in ("flops", "mem_accessed", "processing_time")]
    for row in layers[["label", "engine", *of_stages]].to_dict("records"):
        for stage, _ in STAGES:
            flops, moved = float(row[f"{stage}_flops"]), float(row[f"{stage}_mem_accessed"])
            seconds = float(row[f"{stage}_processing_time"])
            if flops > 0 and moved > 0 and seconds > 0:
                found.append(
                    {
                        "label": row["label"],
                        "engine": row["engine"],
                        "stage": stage,
                        "seconds": seconds,
                        "intensity": flops / moved,
                        "rate": flops / seconds,
                    }
                )
    return found


def _draw_roofs(figure: Drawing, roofs: Roofs, left: float, right: float, colours: Palette) -> None:
    """The slope of the memory and the two flat roofs, each named on its line."""
    close = roofs.matrix < _APART * roofs.lower
    for peak, name, dash in zip((roofs.matrix, roofs.lower), roofs.names, ("solid", "dash"), strict=True):
        knee = peak / roofs.bandwidth
        figure.draw(
            "scatter",
            x=[knee, right],
            y=[peak / 1e12] * 2,
            mode="lines",
            hoverinfo="skip",
            showlegend=False,
            line={"color": colours.muted, "width": 1.3, "dash": dash},
        )
        note(
            figure,
            f"{name} {plain(peak / 1e12)} TFLOP/s",
            colours,
            x=math.log10(right),
            y=math.log10(peak / 1e12),
            xanchor="right",
            yanchor="bottom",
            yshift=_LARGEST / 2 if close == (dash == "dash") else 0,
            colour=colours.text,
        )
    knee = roofs.matrix / roofs.bandwidth
    figure.draw(
        "scatter",
        x=[left, knee],
        y=[roofs.bandwidth * left / 1e12, roofs.matrix / 1e12],
        mode="lines",
        hoverinfo="skip",
        showlegend=False,
        line={"color": colours.muted, "width": 1.3},
    )
    scale = scale_for("offload_mem_bw_req", [roofs.bandwidth])
    # In the middle of the slope, but not so far left that a phone would have it over the names of the axis.
    end = max(math.sqrt(left * roofs.lower / roofs.bandwidth), left * (right / left) ** _ROOM_FOR_NAME)
    note(
        figure,
        f"HBM {scale.number(roofs.bandwidth)}{scale.suffix}",
        colours,
        x=math.log10(end),
        y=math.log10(roofs.bandwidth * end / 1e12),
        xanchor="right",
        yanchor="bottom",
        colour=colours.text,
    )


def _layer_hover_text(mark: Mapping[str, Any], name: str) -> str:
    return (
        f"<b>{mark['label']} · {name}</b><br>{plain(mark['rate'] / 1e12)} TFLOP/s on the {mark['engine']} unit<br>"
        f"{plain(mark['intensity'])} FLOP/B · {format_value('total_time', mark['seconds'])}"
    )


def _summarize_roofline(marks: list[dict[str, Any]], roofs: Roofs) -> str:
    total = sum(mark["seconds"] for mark in marks)
    on_matrix = [mark for mark in marks if mark["engine"] == "matrix"]
    if not on_matrix:
        return "No layer runs on the matrix unit."
    best = max(on_matrix, key=lambda mark: mark["rate"])
    share = sum(mark["seconds"] for mark in on_matrix) / total
    part = f"{share * 100:.0f} % of the arithmetic time is on the matrix unit; "
    return (
        f"{part if len(on_matrix) < len(marks) else ''}{best['label']} comes closest to its roof with "
        f"{plain(best['rate'] / 1e12)} of {plain(roofs.matrix / 1e12)} TFLOP/s."
    )
