"""The Compare page: two to four scenarios side by side, on equal axes, with their differences and the effects."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.elements.advice import rows_table
from dashboard.charts.elements.colour_scale import ramp_for
from dashboard.charts.elements.palette import MEMORY_KINDS, kinds_of
from dashboard.charts.execution.memory_bars import aligned_memory
from dashboard.charts.explored.degree_map import degree_map
from dashboard.charts.explored.difference import aligned_steps, difference_map
from dashboard.files import comparison_tables
from dashboard.files.comparison_tables import Side, best_table, differing, sides_of
from dashboard.link import state
from dashboard.link.fields import LinkField, LinkReader
from dashboard.link.figures import FiguresView, parse_figures
from dashboard.pages.compare.link import PAGE_NAME, CompareLink
from dashboard.queries import accuracy
from dashboard.queries.compared_scenarios import Member, told
from dashboard.queries.economics import Metric, common_metrics, days_for, metrics, mfu_label, utilisation
from dashboard.queries.economics import told as economics_told
from dashboard.queries.explorations import cells_of
from dashboard.queries.nearest_fit import short_of
from dashboard.widgets import launch, recommended
from dashboard.widgets.chart import show
from dashboard.widgets.compared_scenarios import explored, members, put, remove
from dashboard.widgets.file_download import draw_download
from dashboard.widgets.hardware_changes import reset
from dashboard.widgets.link_fields import draw_choice, draw_segments
from dashboard.widgets.scenario_adder import opener, parse_whatif, suggestions
from dashboard.widgets.share import file_name
from dashboard.widgets.window import is_narrow
from dashboard.words.differences import gain_tone
from dashboard.words.executions import differences as choices_that_differ
from dashboard.words.markdown import literal
from dashboard.words.numbers import ABSENT, days, format_value, percent, relative, scale_for
from engine.executions.execution_names import execution_name
from hardware import GIB

__all__ = ["CompareView", "parse", "render"]

_LEGEND: Final = (
    '<div class="ss-legend"><span>Each cell: {which} setting with this TP and PP{unit}.</span>{colours}'
    f"<span>★ {{star}} of the scenario</span>{{may_fit}}<span>{markup.NOT_FITTING}</span>"
    "<span>· no execution</span></div>"
)


@dataclass(frozen=True, slots=True)
class CompareView:
    """All that the link says of the page."""

    mode: str
    """The theme: "light" or "dark"."""
    members: tuple[Member, ...]
    """The scenarios side by side, A first."""
    problems: tuple[str, ...]
    """A sentence per scenario in the link that cannot be read."""
    figures: FiguresView
    """Choice of the execution that is compared."""
    link: CompareLink
    fields: Mapping[str, LinkField]
    changes: Mapping[str, float]
    """Changes of the What-if page."""

    def metric_of(self, side: Side) -> Metric:
        """Return the metric for one scenario: tokens and peaks differ between scenarios."""
        return metrics(side.scenario)[self.link.metric]


def parse() -> CompareView:
    """Parse the page's part of the link."""
    found, problems = members()
    page = LinkReader(CompareLink, PAGE_NAME)
    if len(found) > 1:
        letters = [member.letter for member in found]
        pairs = {f"{a}{b}": f"{b} against {a}" for a, b in combinations(letters, 2)}
        offered = common_metrics(member.scenario for member in found)
        page.read(
            "metric", default=next(iter(offered)), options={key: each.column.label for key, each in offered.items()}
        )
        page.read("domain")
        page.read("pair", default=next(iter(pairs)), options=pairs)
    changes = parse_whatif(found[0].scenario)
    return CompareView(
        state.theme_mode(),
        tuple(found),
        tuple(problems),
        parse_figures(),
        page.build(),
        page.fields,
        changes,
    )


def render(view: CompareView) -> None:
    """Draws the page."""
    found = list(view.members)
    for problem in view.problems:
        st.warning(literal(problem), icon=":material/link_off:")
    _draw_cards(found, view.changes)
    if len(found) == 1:
        st.info(
            "Add one to three scenarios with the button above: variants of this one, the what-if, or saved ones. "
            "They are shown side by side, on the same axes and colours.",
            icon=":material/compare:",
        )
        suggestions(found[0].scenario)
        return
    explorations = explored(found)
    recommended.require_figures(explorations, PAGE_NAME, view.figures)
    sides = sides_of([member.letter for member in found], explorations, view.figures.question)
    st.html(markup.figure_strip(_headline_tiles(sides), _describe_basis(sides)) + _doubts_of_sides(sides))
    with st.container(border=True, gap="xsmall"):
        _draw_differences(sides)
    _draw_maps(view, sides)
    with st.container(border=True, gap="xsmall"):
        _draw_memory(sides, view.mode)
    left, right = st.columns([1.2 if len(sides) < 4 else 1, 1], gap="medium")  # a column of the table per scenario
    with left.container(border=True, gap="xsmall", height="stretch"):
        _draw_difference_map(view, sides)
    with right.container(border=True, gap="xsmall", height="stretch"):
        _draw_best(view, sides)
    with st.container(border=True, gap="xsmall"):
        _draw_steps(sides, view.mode)


def _draw_cards(found: list[Member], changes: Mapping[str, float]) -> None:
    """Draw a card per scenario, and the button that adds another. changes: of the What-if page."""
    columns = st.columns(len(found) + (1 if len(found) < 4 else 0), gap="small")
    for member, column in zip(found, columns, strict=False):
        name, more = told(member, found[0].scenario)
        with column.container(border=True, gap=None, height="stretch"):
            st.markdown(f"**{member.letter}** · {literal(name)}")
            st.caption(literal(more))
            if member.slot:
                with st.container(horizontal=True, gap="small"):
                    st.button(
                        "Make it A",
                        key=f"compare_open_{member.slot}",
                        type="tertiary",
                        on_click=_make_current,
                        args=(member, found),
                        icon=":material/swap_horiz:",
                        help="It becomes the scenario of all pages and changes places with A.",
                    )
                    st.button(
                        "Remove",
                        key=f"compare_remove_{member.slot}",
                        type="tertiary",
                        on_click=_remove_member,
                        args=(member,),
                        icon=":material/close:",
                    )
    if len(found) < 4:
        with columns[-1]:
            opener(found[0].scenario, changes)


def _remove_member(member: Member) -> None:
    remove(member.slot, ["compare_pair"])  # the following ones move up by a letter


def _make_current(member: Member, found: list[Member]) -> None:
    """Make a scenario the current one, A. Scenarios stored as changes to A keep their content."""
    with state.one_step():
        put([found[0].scenario if other is member else other.scenario for other in found[1:]])
        reset()
        state.set_scenario(member.scenario)


def _doubts_of_sides(sides: list[Side]) -> str:
    """Return what speaks against the compared executions as HTML; empty for most."""
    told = []
    for side in sides:
        if side.shown is not None:
            sentences = (*filter(None, [side.shown.remark]), *accuracy.doubts(side.scenario, side.shown.execution))
            told += [f"{side.letter}: {each}" for each in sentences]
    return markup.doubts_line(told) if told else ""


def _headline_tiles(sides: list[Side]) -> list[markup.Tile]:
    tiles = []
    first = sides[0].best
    for side in sides:
        best = side.best
        if best is None:
            tiles.append(markup.Tile(f"{side.letter} · throughput", ABSENT, "nothing fits", "worse"))
            continue
        rate = float(best["sample_rate"])
        context, tone = execution_name(best), ""
        if side is not sides[0] and first is not None:
            gain = rate / float(first["sample_rate"]) - 1
            context = f"{relative(rate, first['sample_rate'])} against A · {execution_name(best)}"
            tone = gain_tone(gain)
            if accuracy.is_tied(side.scenario, best, first) and accuracy.is_tied(sides[0].scenario, first, best):
                context, tone = f"{context}: tied", ""
        founded = accuracy.founded(side.scenario, best, "rate")
        tiles.append(
            markup.Tile(f"{side.letter} · throughput", format_value("sample_rate", rate), context, tone, **founded)
        )
        tiles.append(
            markup.Tile(
                f"{side.letter} · {mfu_label(sides[0].scenario)}",
                # All in A's convention, so that they can be compared.
                percent(utilisation(side.scenario, rate, convention=sides[0].scenario.flop_convention)),
                f"1 T tokens in {days(days_for(side.scenario, rate))}",
                **founded,
            )
        )
        tiles.append(
            markup.Tile(
                f"{side.letter} · 1 T tokens cost",
                economics_told(side.scenario, "usd", rate),
                f"{economics_told(side.scenario, 'energy', rate)} · "
                f"{economics_told(side.scenario, 'tokens_per_usd', rate)}",
            )
        )
    return tiles


def _describe_basis(sides: list[Side]) -> str:
    """Return the basis of the figures; scenarios with the same basis share a sentence."""
    told: dict[str, list[str]] = {}
    for side in sides:
        told.setdefault(accuracy.basis(side.scenario, side.best), []).append(side.letter)
    return next(iter(told)) if len(told) == 1 else " ".join(f"{', '.join(who)}: {text}" for text, who in told.items())


def _draw_differences(sides: list[Side]) -> None:
    table = differing(sides)
    st.html(markup.head("What differs", "fields that results depend on"))
    if not len(table):
        st.caption("Nothing: all scenarios are the same.")
        return
    st.html(_table_markup(table))


def _table_markup(table: pd.DataFrame) -> str:
    """Return a table whose columns are all in sight at any width: its words go on in the next line."""
    rows = table.astype(str).to_numpy().tolist()
    return rows_table(list(table.columns), rows, texts=range(len(table.columns)), wraps=True)


def _draw_maps(view: CompareView, sides: list[Side]) -> None:
    """Draw the maps of all scenarios on the same axes and colours."""
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        st.html(markup.head("Best of every cell", "same axes, same colours"))
        st.space("stretch")
        draw_choice(view.fields["metric"], help="", width=260)
        draw_segments(view.fields["domain"])
    metric, domain = view.metric_of(sides[0]), view.link.domain
    tables = [cells_of(side.exploration, view.metric_of(side)) for side in sides]
    every = pd.concat(tables, ignore_index=True)
    axes = sorted(set(every["tensor_par"].astype(int))), sorted(set(every["pipeline_par"].astype(int)))
    among = [float(value) for value in every["value"]]
    with st.container(key=f"compare_maps_{len(sides)}"):
        columns = st.columns(len(sides), gap="small")
    for side, table, column in zip(sides, tables, columns, strict=True):
        with column.container(border=True, gap=None):
            st.html(markup.head(side.letter, execution_name(side.best) if side.best is not None else _why_not(side)))
            chart = degree_map(
                table,
                metric.column,
                view.mode,
                domain=domain,
                height=90 + 34 * len(axes[0]),
                axes=axes,
                among=among,
                bar=False,
                narrow=is_narrow(),
            )
            show(chart, f"compare_map_{side.letter}")
    st.html(_map_legend(metric, among, domain, may_fit=bool(every["may_fit"].any())))


def _why_not(side: Side) -> str:
    """Return in a few words why a scenario has no best execution."""
    short = short_of(side.exploration)
    return f"nothing fits: the nearest lacks {short}" if short else "nothing runs"


def _map_legend(metric: Metric, among: list[float], domain: Any, *, may_fit: bool) -> str:
    """Return the legend of all maps: content of the cells and meaning of the colours."""
    scale = scale_for(metric.column, among)
    ramp = ramp_for(among, lower_is_better=metric.column.better == "lower", domain=domain)
    known = any(math.isfinite(value) for value in among)
    return _LEGEND.format(
        which="the fastest" if (is_fastest := metric.ranked_by == "sample_rate") else "the best",
        star="fastest" if is_fastest else "best",
        unit=markup.in_unit(scale.unit),
        colours=markup.ramp(*ramp.ends(scale)) if known else "",
        may_fit=f"<span>{markup.MAY_FIT}</span>" if may_fit else "",
    )


def _draw_difference_map(view: CompareView, sides: list[Side]) -> None:
    """Draw one scenario against another, cell by cell."""
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.html(markup.head("Where it is better", "best of every cell"))
        st.space("stretch")
        draw_segments(view.fields["pair"])
    first, second = (side for side in sides if side.letter in view.link.pair)
    metric = view.metric_of(first)
    tables = [cells_of(side.exploration, view.metric_of(side)) for side in (first, second)]
    chart = difference_map(tables[0], tables[1], metric.column, view.mode, names=(first.letter, second.letter))
    show(chart, "compare_difference")
    st.caption(
        f"{metric.column.label}: percentage by which {second.letter} is better or worse; hatched where only one "
        "of them, or none, runs."
    )


def _draw_best(view: CompareView, sides: list[Side]) -> None:
    """Draw the compared execution of each scenario: results, and the choices in which they differ."""
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.html(markup.head("Executions compared", "choices that are the same in all are left out"))
        st.space("stretch")
        draw_download(
            "Tables",
            lambda: comparison_tables.archive_tables(sides, view.metric_of(sides[0])),
            file_name(sides[0].scenario, "_compared.csv.zip"),
            "application/zip",
            key="compare_tables",
            help="What differs, the executions compared and the best of every cell: CSV files in a zip archive, with "
            "every scenario whole.",
        )
    with st.container(horizontal=True, gap="small"):
        for side in sides:
            if side.best is not None:
                launch.popover(side.scenario, side.best, f"compare_launch_{side.letter}", label=f"Launch {side.letter}")
    st.html(_table_markup(best_table(sides)))


def _draw_memory(sides: list[Side], mode: str) -> None:
    """Draw the memory of the best executions on one scale, tier by tier."""
    known = [(side, side.best) for side in sides if side.best is not None]
    st.html(markup.head("Where the memory goes", "of each execution compared, per GPU at its peak, on equal axes"))
    if not known:
        st.caption("Nothing fits in any of them.")
        return
    sizes = [
        (side.scenario.system.mem1.capacity_gib * GIB, side.scenario.system.mem2.capacity_gib * GIB)
        for side, _ in known
    ]
    show(aligned_memory([(side.letter, best) for side, best in known], sizes, mode), "compare_memory")
    told_apart = {kind.key for side, _ in known for kind in kinds_of(MEMORY_KINDS, side.scenario.cost_model)}
    st.html(markup.legend(kind for kind in MEMORY_KINDS if kind.key in told_apart))


def _draw_steps(sides: list[Side], mode: str) -> None:
    """Draw the steps of the best executions on one axis."""
    known = [(side.letter, side.best) for side in sides if side.best is not None]
    st.html(markup.head("Where the time goes", "a step of each execution compared, on equal axes"))
    if not known:
        st.caption("Nothing fits in any of them.")
        return
    rows = [best for _, best in known]
    show(aligned_steps(rows, [letter for letter, _ in known], mode, narrow=is_narrow()), "compare_steps")
    batches = {int(row["batch_size"]) for row in rows}
    if len(batches) > 1:
        sizes = ", ".join(f"{letter} {int(row['batch_size']):,}" for letter, row in known)
        st.caption(f"The steps hold different numbers of sequences: {sizes}.")
    for letter, row in known[1:]:
        changed = choices_that_differ(known[0][1], row)
        if changed:
            st.html(markup.chips((f"{letter}: {label}", f"{old} → {new}") for label, old, new in changed))
