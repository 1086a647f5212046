"""Designs of a co-design study: two figures with the front, all choices in parallel, and two choices as a map."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from dashboard.charts.elements.drawing import Drawing
from dashboard.charts.elements.palette import SCENARIOS, Palette, palette
from dashboard.charts.elements.template import TICK_SIZE, Chart, base, empty, log_ticks
from dashboard.charts.what_if.codesign_choices import HEIGHT, refused_and_allowed, sample_designs
from dashboard.words.numbers import counted, plain
from engine.codesign import Quantity

__all__ = ["Limit", "best_of_choice", "design_words", "designs_scatter", "written"]

_LOGARITHMIC: Final = 20.0
"""Largest over smallest value from which an axis is logarithmic."""


NEAR: Final = 3.0
"""Factor between the allowed designs and a constraint up to which an axis reaches it; beyond, a note points to it."""


_ARROWS: Final = {"x": "\N{LEFTWARDS ARROW}\N{RIGHTWARDS ARROW}", "y": "\N{DOWNWARDS ARROW}\N{UPWARDS ARROW}"}


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound of a constraint: the quantity's name, its value, the bound in words, and whether it is an upper one."""

    name: str
    value: float
    words: str
    is_upper: bool


def design_words(designs: pd.DataFrame, names: Mapping[str, str], figures: Sequence[Quantity]) -> list[str]:
    """Returns the hover text of every design.

    Args:
        designs: rows of `engine.codesign.Results.designs`.
        names: labels of the choices in the text, by column.
        figures: quantities in the text.
    """
    lines = []
    for row in designs.to_dict("records"):
        chosen = "<br>".join(f"{label} {written(row[name])}" for name, label in names.items())
        told = "<br>".join(f"{one.label} {plain(float(row[one.name]), 4)} {one.unit}" for one in figures)
        lines.append(f"<b>Design {row['design']}</b><br>{chosen}<br>{told}")
    return lines


def written(value: Any) -> str:
    """Returns the value of a choice as text."""
    return plain(float(value), 4) if isinstance(value, int | float) else str(value)


def designs_scatter(
    designs: pd.DataFrame,
    front: Sequence[int],
    across: Quantity,
    up: Quantity,
    words: Sequence[str],
    chosen: int | None,
    mode: str = "light",
    stretches: Mapping[str, tuple[float, float]] | None = None,
    limits: Sequence[Limit] = (),
) -> Chart:
    """Draws every allowed design as a point, the front as a line of larger points, and refused designs as crosses.

    Axes show the allowed designs and the constraints near them; refused designs may lie outside.

    Args:
        designs: rows of `engine.codesign.Results.designs`; points carry customdata (design,). A column `refused` says
            which constraints refuse a design, empty for allowed ones.
        front: numbers of the Pareto-optimal designs.
        across, up: quantities of the axes.
        words: hover text of each design, as long as `designs`.
        chosen: number of the selected design.
        mode: the theme.
        stretches: of the axes, which are framed; designs that are not `kept`, if there is such a column, are faint.
        limits: bounds of the constraints; bounds on a quantity of an axis are drawn as lines.
    """
    colours = palette(mode)
    told = designs.assign(words=list(words))
    runs = told[(told["status"] == "ok") & np.isfinite(told[[across.name, up.name]].to_numpy(float)).all(axis=1)]
    if not len(runs):
        return empty(colours, HEIGHT, "No design that is there runs.")
    refused, allowed = refused_and_allowed(runs)
    on = allowed["design"].isin(list(front))
    best, others = allowed[on].sort_values(across.name), sample_designs(allowed[~on])
    shades = SCENARIOS[colours.mode]
    figure = base(colours, HEIGHT)
    hover = "%{hovertext}<extra></extra>"
    _draw_refused(figure, refused, across.name, up.name, colours)
    figure.draw(
        "scatter",
        x=others[across.name],
        y=others[up.name],
        mode="markers",
        name="beaten",
        hovertext=others["words"],
        hovertemplate=hover,
        customdata=others[["design"]],
        marker={"size": 5, "color": colours.muted, "opacity": _point_opacity(others, 0.55)},
    )
    figure.draw(
        "scatter",
        x=best[across.name],
        y=best[up.name],
        mode="lines+markers",
        name="front",
        hovertext=best["words"],
        hovertemplate=hover,
        customdata=best[["design"]],
        line={"color": shades[0], "width": 1.4},
        marker={"size": 8, "color": shades[0], "opacity": _point_opacity(best, 1.0)},
    )
    _draw_stretch_ends(figure, across.name, up.name, stretches or {}, colours)
    here = runs[runs["design"] == chosen]
    if len(here):
        figure.draw(
            "scatter",
            x=here[across.name],
            y=here[up.name],
            mode="markers",
            name="chosen",
            hoverinfo="skip",
            marker={"size": 15, "symbol": "circle-open", "color": colours.text, "line": {"width": 2}},
        )
    shown = allowed if len(allowed) else runs
    logarithmic_axes = set()
    for name, axis, update in ((across, "x", figure.update_xaxes), (up, "y", figure.update_yaxes)):
        values = shown[name.name].to_numpy(float)
        low, high = float(values.min()), float(values.max())
        bounds = [each.value for each in limits if each.name == name.name]
        low, high = _include_near_bounds(low, high, bounds)
        logarithmic = low > 0 and high > _LOGARITHMIC * low
        logarithmic_axes |= {axis} if logarithmic else set()
        update(
            title=_quantity_title(name),
            showgrid=True,
            **({"type": "log", **log_ticks(low, high)} if logarithmic else {}),
        )
        if len(refused) or bounds:
            update(range=_pad_range(low, high, logarithmic, from_zero=axis == "y"), autorange=False)
        elif not logarithmic and axis == "y":
            update(rangemode="tozero")
    _draw_limits(figure, across.name, up.name, limits, colours, logarithmic_axes)
    _note_outside(figure, refused, across.name, up.name, colours)
    figure.update_layout(showlegend=True, margin={"t": 30, "b": 40})
    kept_out = f"; {counted(len(refused), 'design')} refused by constraints" if len(refused) else ""
    if not len(best):
        return Chart(figure, f"{up.label} against {across.label.lower()}: no design meets all constraints{kept_out}.")
    top = best.iloc[-1 if up.better == "higher" else 0]
    return Chart(
        figure,
        f"{up.label} against {across.label.lower()} of {counted(len(allowed), 'design')}: {len(best):,} on the front, "
        f"up to {plain(float(top[up.name]), 4)} {up.unit} at {plain(float(top[across.name]), 4)} "
        f"{across.unit}{kept_out}.",
    )


def best_of_choice(
    designs: pd.DataFrame,
    skipped: pd.DataFrame,
    choice: tuple[str, str],
    up: Quantity,
    chosen: int | None,
    mode: str = "light",
    stretches: Mapping[str, tuple[float, float]] | None = None,
    limits: Sequence[Limit] = (),
) -> Chart:
    """Draws one figure of every design over one of its choices: the best allowed one at each value larger, refused
    designs as crosses, and the bound of skipped designs.

    No line joins the best found: if designs were skipped, a better one may be among them.

    Args:
        designs: rows of `engine.codesign.Results.designs` with their hover text `words`; points carry customdata
            (design,).
        skipped: the rows of `Results.skipped`, alike.
        choice: a column and its label.
        up: the figure.
        chosen: number of the selected design.
        mode: the theme.
        stretches: of the axes, which are framed; designs that are not `kept`, if there is such a column, are faint.
        limits: bounds of the constraints; bounds on the figure are drawn as lines.
    """
    colours = palette(mode)
    runs = designs[designs["status"] == "ok"]
    if not len(runs) or choice[0] not in runs:
        return empty(colours, HEIGHT, "No design that is there runs." if len(designs) else "No design is there yet.")
    higher = up.better == "higher"
    name, numbers = choice[0], runs[choice[0]].dtype.kind in "ifu"
    refused, allowed = refused_and_allowed(runs)
    best = allowed.sort_values(up.name, ascending=not higher, kind="stable").drop_duplicates(name).sort_values(name)
    others = allowed.drop(best.index)
    beaten = f"skipped, bound {'below' if higher else 'above'} the best"
    hover = "%{hovertext}<extra></extra>"
    figure = base(colours, HEIGHT)
    _draw_refused(figure, refused, name, up.name, colours)
    marks: tuple[tuple[pd.DataFrame, str, dict[str, Any]], ...] = (
        (others, "found", {"size": 5, "color": colours.muted, "opacity": 0.55}),
        (skipped, beaten, {"size": 8, "symbol": "diamond-open", "color": colours.muted, "line": {"width": 1.2}}),
        (best, "best found", {"size": 9, "color": SCENARIOS[colours.mode][0]}),
    )
    for table, called, marker in marks:
        table = sample_designs(table)
        if len(table):
            told = [f"{words}<br>at most: not searched" if called == beaten else words for words in table["words"]]
            figure.draw(
                "scatter",
                x=table[name],
                y=table[up.name],
                mode="markers",
                name=called,
                hovertext=told,
                hovertemplate=hover,
                customdata=table[["design"]],
                marker=marker | {"opacity": _point_opacity(table, marker.get("opacity", 1.0))},
            )
    _draw_stretch_ends(figure, name if numbers else "", up.name, stretches or {}, colours)
    here = pd.concat([runs, skipped])
    here = here[here["design"] == chosen]
    if len(here):
        figure.draw(
            "scatter",
            x=here[name],
            y=here[up.name],
            mode="markers",
            name="chosen",
            hoverinfo="skip",
            marker={"size": 15, "symbol": "circle-open", "color": colours.text, "line": {"width": 2}},
        )
    low, high = (float(edge) for edge in (runs[name].min(), runs[name].max())) if numbers else (0.0, 0.0)
    scale = {"type": "log", **log_ticks(low, high)} if low > 0 and high > _LOGARITHMIC * low else {}
    figure.update_xaxes(title=choice[1], showgrid=numbers, **(scale if numbers else {"type": "category"}))
    figure.update_yaxes(title=_quantity_title(up), showgrid=True, rangemode="tozero")
    bounds = [each.value for each in limits if each.name == up.name]
    if (len(refused) or bounds) and len(allowed):
        edges = _include_near_bounds(float(allowed[up.name].min()), float(allowed[up.name].max()), bounds)
        figure.update_yaxes(range=_pad_range(*edges, False, from_zero=True), autorange=False)
    _draw_limits(figure, "", up.name, limits, colours)
    figure.update_layout(showlegend=True, margin={"t": 30, "b": 40})
    if not len(best):
        return Chart(figure, f"{up.label} over {choice[1]}: no design meets all constraints.")
    top = best.sort_values(up.name, ascending=not higher, kind="stable").iloc[0]
    left_out = f"; {counted(len(skipped), 'design')} ruled out by bounds" if len(skipped) else ""
    return Chart(
        figure,
        f"{up.label} over {choice[1]} of {counted(len(allowed), 'design')}: the best has "
        f"{plain(float(top[up.name]), 4)} {up.unit} at {written(top[name])}{left_out}.",
    )


def _draw_refused(figure: Drawing, refused: pd.DataFrame, across: str, up: str, colours: Palette) -> None:
    refused = sample_designs(refused)
    if not len(refused):
        return
    told = [f"{words}<br>Refused by {by}" for words, by in zip(refused["words"], refused["refused"], strict=True)]
    figure.draw(
        "scatter",
        x=refused[across],
        y=refused[up],
        mode="markers",
        name="refused",
        hovertext=told,
        hovertemplate="%{hovertext}<extra></extra>",
        customdata=refused[["design"]],
        marker={
            "size": 6,
            "symbol": "x-thin",
            "opacity": _point_opacity(refused, 0.7),
            "line": {"width": 1.2, "color": colours.worse},
        },
    )


def _draw_limits(
    figure: Drawing,
    across: str,
    up: str,
    limits: Sequence[Limit],
    colours: Palette,
    logarithmic: Collection[str] = (),
) -> None:
    """Draws the constraints on the quantities of the axes as lines with their words. Notes on a logarithmic axis stand
    at the logarithm of a value, lines at the value."""
    line = {"color": colours.worse, "width": 1.5, "dash": "dash"}
    for each in limits:
        note = {
            "text": each.words,
            "showarrow": False,
            "font": {"size": TICK_SIZE, "color": colours.worse},
            "yanchor": "bottom",
        }
        for name, axis, add in ((across, "x", figure.add_vline), (up, "y", figure.add_hline)):
            if each.name != name:
                continue
            ends = figure.layout[f"{axis}axis"].get("range")
            place = _axis_position(each.value, axis in logarithmic)
            if ends and not ends[0] <= place <= ends[1]:
                beyond = place > ends[1]
                note["text"] = f"{each.words} {_ARROWS[axis][beyond]}"
                place = ends[beyond]
            else:
                add(each.value, line=line)
            # Words stand on the side of the refused designs, and within the plot where the line is outside of it.
            inwards = bool(ends) and place in ends
            if axis == "x":
                side = "left" if each.is_upper != inwards else "right"
                note |= {"x": place, "xref": "x", "xanchor": side, "y": 0.02, "yref": "paper", "textangle": -90}
            else:
                side = "bottom" if each.is_upper != inwards else "top"
                note |= {"x": 0.01, "xref": "paper", "xanchor": "left", "y": place, "yref": "y", "yanchor": side}
            figure.notes.append(note)


def _axis_position(value: float, logarithmic: bool) -> float:
    return math.log10(value) if logarithmic and value > 0 else value


def _note_outside(figure: Drawing, refused: pd.DataFrame, across: str, up: str, colours: Palette) -> None:
    """Says how many refused designs lie outside of the axes."""
    inside = np.ones(len(refused), bool)
    for name, axis in ((across, "xaxis"), (up, "yaxis")):
        low, high = figure.layout[axis].get("range", (-math.inf, math.inf))
        values = refused[name].to_numpy(float)
        with np.errstate(divide="ignore", invalid="ignore"):
            placed = np.log10(values) if figure.layout[axis].get("type") == "log" else values
        inside &= (placed >= low) & (placed <= high)
    if outside := int((~inside).sum()):
        figure.notes.append(
            {
                "text": f"{counted(outside, 'refused design')} outside of the axes",
                "showarrow": False,
                "font": {"size": TICK_SIZE, "color": colours.muted},
                "xref": "paper",
                "x": 0.01,
                "xanchor": "left",
                "yref": "paper",
                "y": 0.01,
                "yanchor": "bottom",
            }
        )


def _include_near_bounds(low: float, high: float, bounds: Sequence[float]) -> tuple[float, float]:
    """The ends of an axis with the constraints that are near."""
    near = [each for each in bounds if low / NEAR <= each <= high * NEAR]  # every quantity is above 0
    return min([low, *near]), max([high, *near])


def _pad_range(low: float, high: float, logarithmic: bool, from_zero: bool) -> list[float]:
    if logarithmic:
        more = 0.05 * math.log10(high / low)
        return [math.log10(low) - more, math.log10(high) + more]
    more = 0.05 * ((high - low) or abs(high) or 1.0)
    return [0.0 if from_zero and low >= 0 else low - more, high + more]


def _point_opacity(table: pd.DataFrame, usual: float) -> Any:
    return np.where(table["kept"], usual, 0.3 * usual) if "kept" in table else usual


def _draw_stretch_ends(
    figure: Drawing, across: str, up: str, stretches: Mapping[str, tuple[float, float]], colours: Palette
) -> None:
    """Draws lines at the ends of the kept stretches of a scatter's axes."""
    for name, add in ((across, figure.add_vline), (up, figure.add_hline)):
        for end in stretches.get(name, ()):
            if math.isfinite(end):
                add(end, line={"color": colours.text, "width": 1, "dash": "dot"}, opacity=0.6)


def _quantity_title(quantity: Quantity) -> str:
    return f"{quantity.label} [{quantity.unit}]" if quantity.unit else quantity.label
