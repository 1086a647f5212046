"""Speedup over devices, a whole grid of D x H x P with its envelopes, its memory by style, and measured steps.

The figures of DistIR (Santhanam et al., EuroMLSys 2021, figures 3 and 4), a scatter that its scripts draw, an overlay.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from dashboard.charts.elements.drawing import Drawing
from dashboard.charts.elements.palette import SCENARIOS, Palette, palette
from dashboard.charts.elements.template import Chart, base, draw_diagonal, empty, log_ticks, noted
from dashboard.words.numbers import counted, format_value, percent, plain
from hardware import GIB

__all__ = ["envelope_scatter", "memory_scatter", "simulated_overlay", "speedup_curves"]

HEIGHT: Final = 340
DASHES: Final = ("solid", "dash", "dot", "dashdot")
SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up")
ENVELOPES: Final[Mapping[str, str]] = {
    "D": "data (D)",
    "H": "horizontal (H)",
    "P": "pipeline (P), best m",
    "D=H": "as many D as H",
}
STYLES: Final[Mapping[str, tuple[int | None, str]]] = {
    "Base": (None, "x-thin"),
    "D": (0, "circle"),
    "T": (1, "square"),
    "P": (2, "diamond"),
    "D/T": (0, "square-open"),
    "T/P": (1, "diamond-open"),
    "D/P": (2, "circle-open"),
    "D/T/P": (3, "star"),
}
"""Style -> number of its colour, None for that of notes, and its mark: no two have the same mark."""


def speedup_curves(table: pd.DataFrame, mode: str = "light", *, label: str, width: str) -> Chart:
    """Draws one curve per series over the number of devices (figure 3).

    Args:
        table: series, devices, speedup.
        mode: the theme.
        label: what a series is, such as "batch".
        width: what the curves show, for the finding.
    """
    colours = palette(mode)
    known = table[table["speedup"].notna()]
    if not len(known):
        return empty(colours, HEIGHT, "Nothing here runs on any of these numbers of devices.")
    figure = base(colours, HEIGHT)
    names = sorted(known["series"].unique())
    most = float(known["speedup"].max())
    for number, (name, own) in enumerate(known.sort_values("devices").groupby("series", sort=True)):
        colour = colours.ramp(0.35 + 0.65 * (number + 1) / len(names))
        figure.draw(
            "scatter",
            x=own["devices"],
            y=own["speedup"],
            mode="lines+markers",
            name=f"{label} {plain(float(str(name)))}",
            line={"color": colour, "width": 2, "dash": DASHES[number % 4]},
            marker={"symbol": SYMBOLS[number % 4], "size": 7, "color": colour},
            hovertemplate=f"<b>{label} {name}</b><br>%{{x}} devices: %{{y:.3g}} times as fast<extra></extra>",
        )
    _draw_ideal_line(figure, sorted(known["devices"].unique()), most, colours)
    _device_axis(figure, sorted(known["devices"].unique()))
    figure.update_yaxes(range=[0, 1.12 * most], showgrid=True, title="speedup", nticks=6)
    figure.update_layout(showlegend=True, margin={"t": 44})
    top = known.sort_values("speedup").iloc[-1]
    return Chart(
        figure,
        f"{width}: at most {plain(float(top['speedup']))} times as fast as one device, with {label} "
        f"{plain(float(top['series']))} on {counted(int(top['devices']), 'device')}.",
    )


def _draw_ideal_line(figure: Drawing, devices: Sequence[int], most: float, colours: Palette) -> None:
    """Return the line of linear speedup within the plot."""
    figure.draw(
        "scatter",
        x=devices,
        y=devices,
        mode="lines",
        line={"color": colours.muted, "width": 1, "dash": "dot"},
        hoverinfo="skip",
        showlegend=False,
    )
    inside = [number for number in devices if number <= most]
    if inside:
        figure.notes.append(
            noted("ideal", colours, x=math.log10(inside[-1]), y=inside[-1], xanchor="right", yanchor="bottom")
        )


def _device_axis(figure: Drawing, devices: Sequence[int]) -> None:
    first, last = math.log10(devices[0]), math.log10(devices[-1])
    pad = 0.1 * (last - first) or 0.1
    figure.update_xaxes(
        type="log",
        tickvals=list(devices),
        ticktext=[f"{number:,}" for number in devices],
        title="devices",
        range=[first - 0.5 * pad, last + pad],
    )


def envelope_scatter(table: pd.DataFrame, lines: pd.DataFrame, mode: str = "light") -> Chart:
    """Draws every configuration, and the best of each kind of parallelism alone (figure 4).

    Args:
        table: devices, speedup, D, H, P, m of the feasible configurations.
        lines: strategy, devices, speedup, m.
        mode: the theme.
    """
    colours = palette(mode)
    known = table[table["speedup"].notna()]
    if not len(known):
        return empty(colours, HEIGHT, "No configuration runs, or the one on one device does not.")
    figure = base(colours, HEIGHT)
    figure.draw(
        "scatter",
        x=known["devices"],
        y=known["speedup"],
        mode="markers",
        name=f"all {len(known):,}",
        marker={"size": 5, "color": colours.muted, "opacity": 0.35},
        hovertext=[_configuration_name(row) for row in _row_records(known)],
        hovertemplate="%{hovertext}<br>%{y:.3g} times as fast<extra></extra>",
    )
    for number, (name, label) in enumerate(ENVELOPES.items()):
        own = lines[lines["strategy"] == name].sort_values("devices")
        if len(own) < 2:
            continue
        colour = SCENARIOS[colours.mode][number]
        figure.draw(
            "scatter",
            x=own["devices"],
            y=own["speedup"],
            mode="lines+markers+text" if name == "P" else "lines+markers",
            name=label,
            text=[f"m {m}" if name == "P" and m > 1 else "" for m in own["m"]],
            textposition=["bottom right"] * (len(own) - 1) + ["bottom left"],
            textfont={"size": 11, "color": colours.text},
            line={"color": colour, "width": 2, "dash": DASHES[number]},
            marker={"symbol": SYMBOLS[number], "size": 8, "color": colour},
            hovertext=[_configuration_name(row) for row in _row_records(own)],
            hovertemplate="%{hovertext}<br>%{y:.3g} times as fast<extra></extra>",
        )
    devices = sorted(known["devices"].unique())
    _draw_ideal_line(figure, devices, float(known["speedup"].max()), colours)
    _device_axis(figure, devices)
    figure.update_yaxes(range=[0, 1.12 * float(known["speedup"].max())], showgrid=True, title="speedup", nticks=6)
    figure.update_layout(showlegend=True, margin={"t": 62})
    return Chart(figure, _summarize_speedups(known, lines))


def _summarize_speedups(known: pd.DataFrame, lines: pd.DataFrame) -> str:
    best = known.sort_values("speedup").iloc[-1]
    told = (
        f"The fastest is {_configuration_name(best.to_dict())} with {plain(float(best['speedup']))} times one device."
    )
    pipelines = lines[(lines["strategy"] == "P") & (lines["devices"] > 1)]
    known_m = known[(known["D"] == 1) & (known["H"] == 1)].groupby("devices")["m"].max()
    fewer = [row for row in _row_records(pipelines) if row["m"] < known_m.get(row["devices"], 0)]
    if fewer:
        each = ", ".join(f"{row['m']:,} on {row['devices']:,}" for row in fewer)
        told += f" The best number of microbatches of a pipeline is not the largest tried: {each} devices."
    return told


def memory_scatter(table: pd.DataFrame, front: pd.DataFrame, mode: str = "light") -> Chart:
    """Draws throughput against peak memory by style, with the frontier.

    Args:
        table: style, throughput [samples/s], peak_memory [bytes], D, H, P, m of the feasible configurations.
        front: the Pareto-optimal rows among them.
        mode: the theme.
    """
    colours = palette(mode)
    if not len(table):
        return empty(colours, HEIGHT, "No configuration runs within the limits.")
    figure = base(colours, HEIGHT)
    edge = front.sort_values("peak_memory")
    figure.draw(
        "scatter",
        x=edge["peak_memory"] / GIB,
        y=edge["throughput"],
        mode="lines",
        name="frontier",
        line={"color": colours.accent, "width": 2, "shape": "hv"},
        hoverinfo="skip",
    )
    for name, (number, symbol) in STYLES.items():
        own = table[table["style"] == name]
        if not len(own):
            continue
        colour = colours.muted if number is None else SCENARIOS[colours.mode][number]
        figure.draw(
            "scatter",
            x=own["peak_memory"] / GIB,
            y=own["throughput"],
            mode="markers",
            name=f"{name} ({len(own):,})",
            marker={
                "symbol": symbol,
                "size": 8,
                "color": colour,
                "opacity": 0.8,
                "line": {"width": 2 if name == "Base" else 1.2, "color": colour},
            },
            hovertext=[_configuration_name(row) for row in _row_records(own)],
            hovertemplate="%{hovertext}<br>%{y:.4g} samples/s, %{x:.3g} GiB<extra></extra>",
        )
    figure.update_xaxes(
        type="log", title="peak memory of a device, GiB", showgrid=True, **_logarithmic_axis(table["peak_memory"] / GIB)
    )
    figure.update_yaxes(type="log", title="samples/s", showgrid=True, **_logarithmic_axis(table["throughput"]))
    figure.update_layout(showlegend=True, margin={"t": 62})
    fast, lean = edge.iloc[-1], edge.iloc[0]
    if len(edge) == 1:
        alone = f"{plain(float(fast['throughput']))} samples/s in {plain(float(fast['peak_memory']) / GIB)} GiB"
        return Chart(figure, f"{_configuration_name(fast.to_dict())} beats all {len(table):,} in both: {alone}.")
    return Chart(
        figure,
        f"{counted(len(front), 'configuration')} of {len(table):,} are on the frontier: from "
        f"{_configuration_name(fast.to_dict())} with {plain(float(fast['throughput']))} "
        f"samples/s in {plain(float(fast['peak_memory']) / GIB)} GiB to "
        f"{_configuration_name(lean.to_dict())} with {plain(float(lean['throughput']))} in "
        f"{plain(float(lean['peak_memory']) / GIB)} GiB.",
    )


def simulated_overlay(table: pd.DataFrame, agreement: pd.DataFrame, mode: str = "light") -> Chart:
    """Draws simulated against measured steps, by number of devices.

    Args:
        table: D, seconds, simulated [s].
        agreement: devices, pearson, spearman, mean_absolute_percentage_error [%], median_ratio.
        mode: the theme.
    """
    colours = palette(mode)
    figure = base(colours, HEIGHT)
    times = pd.concat([table["seconds"], table["simulated"]])
    low, high = float(times.min()) / 1.4 * 1e3, float(times.max()) * 1.4 * 1e3
    draw_diagonal(figure, low, high, colours)
    for number, (devices, own) in enumerate(table.groupby("D", sort=True)):
        colour = SCENARIOS[colours.mode][number % 4]
        figure.draw(
            "scatter",
            x=1e3 * own["seconds"],
            y=1e3 * own["simulated"],
            mode="markers",
            name=counted(int(str(devices)), "device"),
            marker={"symbol": SYMBOLS[number % 4], "size": 7, "color": colour, "opacity": 0.85},
            hovertext=[
                f"{row['layers']} layers of {row['width']:,}, batch {row['batch']:,}" for row in _row_records(own)
            ],
            hovertemplate="%{hovertext}<br>measured %{x:.4g} ms, simulated %{y:.4g} ms<extra></extra>",
        )
    for update, name in ((figure.update_xaxes, "measured"), (figure.update_yaxes, "simulated")):
        update(
            type="log",
            range=[math.log10(low), math.log10(high)],
            title=f"step, {name}, ms",
            showgrid=True,
            **log_ticks(low, high),
        )
    figure.update_layout(showlegend=True, margin={"t": 44})
    told = [
        f"on {row['devices']} simulated over measured is {plain(float(row['median_ratio']))} in the median, mean "
        f"absolute error {percent(float(row['mean_absolute_percentage_error']) / 100)}"
        for row in _row_records(agreement)
        if row["devices"] != "all"
    ]
    whole = agreement[agreement["devices"] == "all"].iloc[0]
    return Chart(
        figure,
        f"{counted(len(table), 'measured step')}, longest {format_value('total_time', float(table['seconds'].max()))}: "
        f"Pearson {whole['pearson']:.3f} and Spearman {whole['spearman']:.3f} of throughput; {'; '.join(told)}.",
    )


def _row_records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _configuration_name(row: Mapping[Any, Any]) -> str:
    """Return the name of a configuration."""
    return f"D {row['D']} × H {row['H']} × P {row['P']}, m {row['m']}"


def _logarithmic_axis(values: pd.Series) -> dict[str, Any]:
    low, high = float(values.min()) / 1.3, float(values.max()) * 1.3
    return {"range": [math.log10(low), math.log10(high)], **log_ticks(low, high)}
