"""Plans under changing resources: throughput over time by strategy, and over one resource by the plan that wins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from dashboard.charts.elements.drawing import vertical_band
from dashboard.charts.elements.palette import SCENARIOS, Palette, palette
from dashboard.charts.elements.template import LEGEND_BELOW, Chart, base, empty, log_ticks, noted
from dashboard.words.numbers import counted, plain

__all__ = ["measured_and_predicted", "model_phases_steps", "resource_curve", "throughput_over_time"]

HEIGHT: Final = 360
MOST_PLANS: Final = 12
"""Plans that a curve names; the hover text names the others."""
_DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


def throughput_over_time(
    table: pd.DataFrame,
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    means: Mapping[str, float],
    mode: str = "light",
) -> Chart:
    """Draw the throughput of every strategy as steps over the phases; the planner's first and highlighted.

    Args:
        table: `strategy`, `start_s`, `end_s` and `placement` of every strategy and phase.
        lines: times [s] and throughputs [samples/s] of each strategy.
        means: mean throughput of each strategy [samples/s].
        mode: the theme.
    """
    colours = palette(mode)
    figure = base(colours, HEIGHT)
    for place, (name, (times, rates)) in enumerate(lines.items()):
        figure.draw(
            "scatter",
            x=[time / 60 for time in times],
            y=rates,
            mode="lines",
            name=name,
            line={
                "color": SCENARIOS[colours.mode][place] if place < 4 else colours.muted,
                "width": 2.8 if place == 0 else 1.6,
                "dash": _DASHES[place % len(_DASHES)],
            },
            hovertemplate=f"<b>{name}</b><br>%{{x:.4g}} min: %{{y:.4g}} samples/s<extra></extra>",
        )
    phases = table[table["strategy"] == next(iter(lines))].to_dict("records")
    end = phases[-1]["end_s"] / 60
    shapes, notes = _phase_shapes(phases, end, colours)
    figure.update_xaxes(title="time [min]", range=[0, end])
    figure.update_yaxes(title="throughput [samples/s]", rangemode="tozero", showgrid=True)
    figure.update_layout(
        showlegend=True,
        legend=LEGEND_BELOW,
        margin={"t": 34, "b": 104},
        shapes=shapes,
        annotations=notes,
    )
    told = "; ".join(f"{name}: {plain(mean, 3)}" for name, mean in means.items())
    span = f"{plain(end, 3)} minutes in {counted(len(phases), 'phase')}"
    return Chart(figure, f"Throughput over {span}. Mean, samples/s: {told}.")


def _phase_shapes(phases: list[dict[Any, Any]], end: float, colours: Palette) -> tuple[list[dict[str, Any]], list[Any]]:
    """Returns backgrounds of every second phase, and placements of phases that are wide enough for the text."""
    shapes: list[dict[str, Any]] = []
    notes = []
    for place, phase in enumerate(phases):
        start, stop = phase["start_s"] / 60, phase["end_s"] / 60
        if place % 2:
            shapes.append(vertical_band(start, stop, colours.panel))
        if stop - start > 0.12 * end:
            notes.append(
                noted(
                    str(phase["placement"]) or "none",
                    colours,
                    x=(start + stop) / 2,
                    y=1.01,
                    yref="paper",
                    yanchor="bottom",
                )
            )
    return shapes, notes


def resource_curve(
    curve: pd.DataFrame,
    over: str,
    label: str,
    mode: str = "light",
    measured: pd.DataFrame | None = None,
    *,
    tolerance: float,
) -> Chart:
    """Draws the best throughput along one resource, each point in the colour of the plan that wins there. Points below
    the throughput of a smaller amount of the resource, and all plans but the last dozen, are faint.

    Args:
        curve: as `engine.planners.elastic.curve` returns it, with plans as people read them.
        over: the column of the resource.
        label: what the resource is called, with its unit.
        mode: the theme.
        measured: what was measured along the same resource, columns `over` and `measured` [samples/s].
        tolerance: share of the throughput of a smaller amount within which a point counts as reaching it.
    """
    colours = palette(mode)
    runs = curve[curve["raw_best"].notna()]
    if not len(runs):
        return empty(colours, HEIGHT, "No plan runs anywhere along this resource.")
    figure = base(colours, HEIGHT)
    figure.draw(
        "scatter",
        x=curve[over],
        y=curve["stored_best"],
        mode="lines",
        name="best up to here",
        hoverinfo="skip",
        line={"color": colours.muted, "width": 1, "shape": "hv"},
    )
    shades = SCENARIOS[colours.mode]
    ahead = runs["raw_best"] >= runs["stored_best"] * (1 - tolerance)
    plans = list(dict.fromkeys(runs.loc[ahead, "raw_plan"]))[-MOST_PLANS:]
    named = ahead & runs["raw_plan"].isin(plans)
    groups = [(str(plan), runs[named & (runs["raw_plan"] == plan)]) for plan in plans]
    if not named.all():
        rest = runs[~named]
        figure.draw(
            "scatter",
            x=rest[over],
            y=rest["raw_best"],
            mode="markers",
            name="others",
            marker={"size": 5, "color": colours.muted},
            customdata=rest[["raw_plan"]],
            hovertemplate=f"<b>%{{customdata[0]}}</b><br>{label} %{{x}}: %{{y:.4g}} samples/s<extra></extra>",
        )
    for place, (plan, own) in enumerate(groups):
        figure.draw(
            "scatter",
            x=own[over],
            y=own["raw_best"],
            mode="markers",
            name=plan,
            marker={"size": 8, "color": shades[place % len(shades)], "symbol": place % 8},
            customdata=own[["gain"]],
            hovertemplate=f"<b>{plan}</b><br>{label} %{{x}}: %{{y:.4g}} samples/s, "
            "%{customdata[0]:+.3g} by the last<extra></extra>",
        )
    seen = ""
    if measured is not None and len(measured):
        figure.draw(
            "scatter",
            x=measured[over],
            y=measured["measured"],
            mode="markers",
            name="measured",
            marker={
                "size": 11,
                "color": colours.text,
                "symbol": "x-thin",
                "line": {"width": 2, "color": colours.text},
            },
            hovertemplate=f"<b>measured</b><br>{label} %{{x}}: %{{y:.4g}} samples/s<extra></extra>",
        )
        top = measured.sort_values("measured", kind="stable").iloc[-1]
        seen = f" Measured: {plain(float(top['measured']), 4)} samples/s at {top[over]:g}."
    figure.update_xaxes(title=label, nticks=10)
    figure.update_yaxes(title="throughput [samples/s]", rangemode="tozero", showgrid=True)
    figure.update_layout(showlegend=True, legend=LEGEND_BELOW, margin={"t": 16, "b": 104})
    best = runs.sort_values("raw_best", kind="stable").iloc[-1]
    gains = curve["gain"].iloc[1:].dropna()
    step = f" Largest gain of one step: {plain(float(gains.max()), 3)} samples/s." if len(gains) else ""
    most = plain(float(best["raw_best"]), 4) if math.isfinite(best["raw_best"]) else "none"
    found = f"Best predicted: {most} samples/s with {best['raw_plan']} ({label}: {best[over]:g})."
    return Chart(figure, f"{found}{seen}{step}")


def model_phases_steps(phases: pd.DataFrame, mode: str = "light") -> Chart:
    """Draw a library model's throughput over its phases, without the downtime after a change.

    Args:
        phases: as `engine.planners.elastic.model_phases` returns them.
        mode: the theme.
    """
    colours = palette(mode)
    figure = base(colours, 300)
    hours: list[float] = []
    rates: list[float] = []
    for row in phases.to_dict("records"):
        start, end, paused = (float(row[name]) / 3600 for name in ("start_s", "end_s", "paused_s"))
        if paused:
            hours += [start, start + paused]
            rates += [0.0, 0.0]
        hours += [start + paused, end]
        rates += [float(row["throughput"])] * 2
    figure.draw(
        "scatter",
        x=hours,
        y=rates,
        mode="lines",
        line={"color": SCENARIOS[colours.mode][0], "width": 2.4},
        hovertemplate="%{x:.3g} h: %{y:.4g} samples/s<extra></extra>",
    )
    end = float(phases["end_s"].iloc[-1]) / 3600
    shapes, notes = _phase_shapes(
        [
            {**row, "start_s": row["start_s"] / 60, "end_s": row["end_s"] / 60, "placement": f"{row['gpus']} GPUs"}
            for row in phases.to_dict("records")
        ],
        end,
        colours,
    )
    figure.update_xaxes(title="time [h]", range=[0, end])
    figure.update_yaxes(title="throughput [samples/s]", rangemode="tozero", showgrid=True)
    figure.update_layout(margin={"t": 34}, shapes=shapes, annotations=notes)
    samples, still = float(phases["samples"].sum()), float(phases["paused_s"].sum())
    told = f"{counted(round(samples), 'sample')} in {plain(end, 3)} h, {plain(still, 3)} s of it downtime"
    return Chart(figure, f"Throughput over {counted(len(phases), 'phase')}: {told}.")


def measured_and_predicted(rows: Mapping[str, pd.DataFrame], mode: str = "light") -> Chart:
    """Draws predicted against measured iterations, a mark per run, by the variant of the performance model.

    Args:
        rows: of `engine.planners.elastic.accuracy.against_measured` with plans as people read them, by the name
            of the variant.
        mode: the theme.
    """
    colours = palette(mode)
    known = {name: each.dropna(subset=["measured_ms", "predicted_ms"]) for name, each in rows.items()}
    every = [
        float(value) / 1e3
        for each in known.values()
        for name in ("measured_ms", "predicted_ms")
        for value in each[name]
    ]
    if not every:
        return empty(colours, HEIGHT, "No measured run can be predicted.")
    figure = base(colours, HEIGHT)
    low, high = min(every) / 1.2, max(every) * 1.2
    figure.draw(
        "scatter",
        x=[low, high],
        y=[low, high],
        mode="lines",
        name="equal",
        hoverinfo="skip",
        line={"color": colours.muted, "width": 1, "dash": "dot"},
    )
    told = []
    for place, (title, each) in enumerate(known.items()):
        figure.draw(
            "scatter",
            x=each["measured_ms"] / 1e3,
            y=each["predicted_ms"] / 1e3,
            mode="markers",
            name=title,
            marker={
                "size": 7,
                "color": SCENARIOS[colours.mode][place],
                "symbol": ("circle", "diamond")[place % 2],
                "opacity": 0.75,
            },
            customdata=each[["plan", "placement", "error_pct"]].to_numpy(),
            hovertemplate=f"<b>{title}: %{{customdata[0]}} on %{{customdata[1]}}</b><br>measured %{{x:.4g}} s, "
            "predicted %{y:.4g} s, %{customdata[2]:+.1f} %<extra></extra>",
        )
        error = each["error_pct"].abs()
        if len(error):
            told.append(f"{title} {plain(float(error.mean()), 3)} %, at most {plain(float(error.max()), 3)} %")
    for update, name in ((figure.update_xaxes, "measured"), (figure.update_yaxes, "predicted")):
        update(
            title=f"{name} iteration [s]",
            type="log",
            range=[math.log10(low), math.log10(high)],
            showgrid=True,
            **log_ticks(low, high),
        )
    figure.update_layout(showlegend=True, legend=LEGEND_BELOW, margin={"t": 16, "b": 104})
    runs = counted(max(len(each) for each in known.values()), "run")
    return Chart(figure, f"Mean error without sign of {runs}: {'; '.join(told)}.")
