"""Reasons for infeasible executions: one hatched bar per reason."""

from collections.abc import Mapping
from typing import Final

from dashboard.charts.elements.palette import palette
from dashboard.charts.elements.template import Chart, empty, noted, written
from dashboard.words.names import in_sentence
from dashboard.words.numbers import count, percent
from engine.executions import reasons as known_reasons

_ROW: Final = 41


def reasons(
    counts: Mapping[str, int],
    mode: str = "light",
    *,
    labels: Mapping[str, str] | None = None,
    limit: int = 8,
) -> Chart:
    """Draws how many executions each reason rules out, the most frequent first.

    counts: executions by reason code. labels: text by code; without it the texts of `engine.executions.reasons`.
    Reasons beyond `limit` are summed into one last bar.
    """
    colours = palette(mode)
    ordered = sorted(((code, int(number)) for code, number in counts.items() if number > 0), key=lambda item: -item[1])
    if not ordered:
        return empty(colours, 60, "Every execution fits.")
    total = sum(number for _, number in ordered)
    rows = [(label_of(code, labels), number) for code, number in ordered]
    if len(rows) > limit:
        rest = rows[limit - 1 :]
        rows = [*rows[: limit - 1], (f"{len(rest)} other reasons", sum(number for _, number in rest))]
    places = list(range(len(rows) - 1, -1, -1))
    largest = max(number for _, number in rows)
    bars = {
        "type": "bar",
        "x": [number for _, number in rows],
        "y": places,
        "orientation": "h",
        "width": 0.58,
        "marker": {"color": colours.panel, "line": {"color": colours.grid, "width": 1}, "pattern": colours.hatch()},
        "hovertext": [
            f"<b>{label}</b><br>{number:,} executions<br>{percent(number / total)} of those that do not fit"
            for label, number in rows
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }
    layout = {
        "margin": {"r": 58},
        "annotations": [
            noted(count(number), colours, x=number, y=place, xanchor="left", xshift=3)
            for (_, number), place in zip(rows, places, strict=True)
        ],
        "xaxis": {"visible": False, "range": [0, largest]},
        "yaxis": {
            "tickvals": places,
            "ticktext": [label for label, _ in rows],
            "range": [-0.5, len(rows) - 0.5],
            "tickfont": {"size": 12, "color": colours.text},
        },
    }
    first = rows[0]
    return Chart(
        written(colours, 12 + _ROW * len(rows), [bars], layout),
        f"{count(total)} executions do not fit; the most frequent reason is {in_sentence(first[0])}, "
        f"{count(first[1])} of them ({percent(first[1] / total, 0)}).",
    )


def label_of(code: str, labels: Mapping[str, str] | None = None) -> str:
    """Returns the text of a reason code; an unknown code reads as its own words."""
    if labels is not None and code in labels:
        return labels[code]
    reason = known_reasons.BY_CODE.get(code)
    return reason.label if reason is not None else code.replace("_", " ").capitalize()
