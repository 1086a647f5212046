"""A report of a comparison: all of its scenarios in one HTML file that opens offline, on equal axes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from html import escape

import pandas as pd

from dashboard.charts.elements.markup import figure_strip, legend, map_legend
from dashboard.charts.elements.palette import MEMORY_KINDS, kinds_of
from dashboard.charts.elements.template import Chart
from dashboard.charts.execution.memory_bars import aligned_memory
from dashboard.charts.explored.degree_map import degree_map
from dashboard.charts.explored.difference import aligned_steps
from dashboard.files.comparison_tables import Side, best_table, differing, sides_of
from dashboard.files.report import drawn, list_assumptions, page, sentence, subjects, whole
from dashboard.files.report_parts import Figure, key_figures
from dashboard.link.comparison import LETTERS, Comparison
from dashboard.link.figures import PARAMETER
from dashboard.queries.accuracy import basis
from dashboard.queries.compared_scenarios import Member, told
from dashboard.queries.economics import metrics
from dashboard.queries.explorations import cells_of
from dashboard.queries.nearest_fit import how_far
from dashboard.words.numbers import scale_for
from dashboard.words.scenarios import name_of
from engine import Exploration
from engine.columns import Column
from engine.questions.documents.explorations import FiguresQuestion
from engine.recommendation import FiguresOf
from hardware import GIB

__all__ = ["build"]


def build(comparison: Comparison, explorations: Sequence[Exploration], address: str = "") -> bytes:
    """Returns the report of a comparison as a UTF-8 HTML document.

    explorations: of its scenarios, in their order. address: link to the comparison, printed as text.
    """
    figures_of: FiguresOf = "fastest" if comparison.view.get(PARAMETER) == "fastest" else "recommended"
    sides = sides_of(LETTERS[: len(explorations)], explorations, FiguresQuestion(figures_of=figures_of))
    first = sides[0].scenario
    words = {
        side.letter: told(Member(side.letter, "", side.scenario, comparison.changes.get(side.letter, {})), first)
        for side in sides
    }
    names = {letter: name for letter, (name, _) in words.items()}
    metric = {side.letter: metrics(side.scenario)["sample_rate"] for side in sides}
    tables = {side.letter: cells_of(side.exploration, metric[side.letter]) for side in sides}
    every = pd.concat(tables.values(), ignore_index=True)
    among = [float(value) for value in every["value"]]
    axes = sorted(set(every["tensor_par"].astype(int))), sorted(set(every["pipeline_par"].astype(int)))
    known = [(side, side.best) for side in sides if side.best is not None]
    figures = []
    if known:
        kinds = {kind.key for side, _ in known for kind in kinds_of(MEMORY_KINDS, side.scenario.cost_model)}
        sizes = [
            (side.scenario.system.mem1.capacity_gib * GIB, side.scenario.system.mem2.capacity_gib * GIB)
            for side, _ in known
        ]
        figures += [
            Figure(
                "time",
                "Where the time goes",
                "a step of each execution compared, on equal axes",
                lambda mode: aligned_steps([best for _, best in known], [side.letter for side, _ in known], mode),
            ),
            Figure(
                "memory",
                "Where the memory goes",
                "of each execution compared, per GPU at its peak, on equal axes",
                lambda mode: aligned_memory([(side.letter, best) for side, best in known], sizes, mode),
                legend(kind for kind in MEMORY_KINDS if kind.key in kinds),
            ),
        ]
    for side in sides:
        column = metric[side.letter].column
        figures.append(
            Figure(
                f"map-{side.letter}",
                f"{side.letter}: the whole space",
                "the fastest execution of every pair of degrees",
                partial(_draw_map, tables[side.letter], column, axes, among),
                map_legend(
                    side.scenario.num_procs, scale_for(column, among).unit, fastest=True, runs=side.best is not None
                ),
            )
        )
    sections, data = drawn(figures)
    heads = "".join(
        f"<section><h2>{side.letter}: {escape(names[side.letter])}</h2>"
        f'<p class="muted">{escape(words[side.letter][1])}</p><p>{escape(sentence(side.scenario))}</p>'
        f"{figure_strip(key_figures(side.exploration, side.best, _role_of(side)), basis(side.scenario, side.best))}"
        f"{_how_far(side)}</section>"
        for side in sides
    )
    rest = "".join(
        f"<h2>{side.letter}: {escape(names[side.letter])}</h2>{subjects(side.scenario)}"
        f"<h3>Assumptions and versions</h3><ul>{list_assumptions(side.exploration, side.best)}</ul>"
        for side in sides
    )
    name = " against ".join(dict.fromkeys(name_of(side.scenario) for side in sides))
    body = (
        f"<h1>{escape(name)}</h1>{heads}<h2>What differs</h2>{_table_markup(differing(sides))}"
        f"<h2>Executions compared</h2>{_table_markup(best_table(sides))}<h2>Figures</h2>{sections}{rest}"
        f"{whole('comparison', comparison.to_document(), address)}"
    )
    return page(name, body, data).encode("utf-8", "replace")


def _role_of(side: Side) -> FiguresOf:
    """Return the role of the execution that is compared."""
    return "fastest" if side.shown is None else side.shown.figures_of


def _how_far(side: Side) -> str:
    """Return how far an infeasible scenario is from running; empty for others."""
    return "" if side.best is not None else f"<p>{escape(how_far(side.exploration).replace('**', ''))}</p>"


def _draw_map(
    cells: pd.DataFrame, column: Column, axes: tuple[list[int], list[int]], among: list[float], mode: str
) -> Chart:
    return degree_map(cells, column, mode, axes=axes, among=among)


def _table_markup(frame: pd.DataFrame) -> str:
    heads = "".join(f"<th>{escape(str(name))}</th>" for name in frame.columns)
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in frame.itertuples(index=False)
    )
    return (
        f'<div class="wide"><table class="ss-rows"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
    )
