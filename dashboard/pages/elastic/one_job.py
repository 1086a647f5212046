"""One job of a model card: through phases of different resources, along one resource, and every plan of a phase."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.elements.template import Chart
from dashboard.charts.plans.elastic import resource_curve, throughput_over_time
from dashboard.charts.plans.elastic_overlays import overlaid_sensitivities
from dashboard.link import state
from dashboard.link.fields import LinkField, LinkReader
from dashboard.link.named_things import NAMES, joined, separate
from dashboard.pages.elastic.answers import find_curve, find_plans, find_timeline
from dashboard.pages.elastic.bases import of_cards
from dashboard.pages.elastic.cards import (
    CardView,
    ChosenCard,
    ask_for_card,
    card_titles,
    draw_card,
    find_card,
    parse_card,
)
from dashboard.pages.elastic.link import PAGE_NAME, PHASES_TEXT, RULE_TEXT, ElasticLink
from dashboard.pages.elastic.tables import downloads, worded
from dashboard.widgets.chart import show
from dashboard.widgets.controls import given, key_for
from dashboard.widgets.link_fields import draw_choice, draw_segments, draw_switch, draw_text
from dashboard.widgets.tables import height_of
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted, plain
from engine.columns.percentages import format_percent
from engine.planners import elastic
from engine.planners.contract import PlanError
from engine.planners.elastic.placements import placements_filling
from engine.planners.elastic.plan_names import plan_titles, with_plan_titles
from engine.planners.elastic.resource_curve import KEEP_SMALLER
from engine.planners.elastic.strategies import STATIC, own_strategy
from engine.questions.documents.elastic import (
    CardQuestion,
    CurveQuestion,
    PhaseDocument,
    PhasesQuestion,
    ResourceLimit,
)

__all__ = ["JobView", "draw_job", "parse_job"]

_MOST_BESIDE: Final = 6
_PHASE: Final = re.compile(r"(\d{1,7}(?:\.\d{1,3})?)@([0-8]{1,64})x(\d{1,3})(?:b(\d{1,6}(?:\.\d{1,3})?))?")
_LABELS: Final = {"gpus": "GPUs", "cpu_threads": "CPU threads per GPU", "bandwidth": "bandwidth limit [0: NVLink]"}
_PAUSES: Final = {0.0: "none", 60.0: "1 minute", 260.0: "260 s", 600.0: "10 minutes"}
_COLUMNS: Final = {
    "plan": "plan",
    "feasible": "runs",
    "throughput": "samples/s",
    "iteration_ms": "iteration, ms",
    "memory_gib": "memory, GiB",
    "reason": "why not",
    "forward_ms": "forward, ms",
    "backward_ms": "backward, ms",
    "synchronisation_ms": "gradients, ms",
    "tensor_ms": "tensor parallel, ms",
    "pipeline_ms": "pipeline, ms",
    "to_host_ms": "to the host, ms",
    "optimizer_ms": "optimizer, ms",
    "to_gpu_ms": "to the GPU, ms",
    "constant_ms": "constant, ms",
}


_GAINS: Final = {
    "raw_best": "samples/s",
    "raw_plan": "winner",
    "stored_best": "best up to here",
    "gain": "gain of the last unit",
    "slope": "of the next, over the first",
}


@dataclass(frozen=True, slots=True)
class JobView:
    """Part of the link about one job of a model card."""

    mode: str
    fields: Mapping[str, LinkField]
    card: CardView
    phases: tuple[PhaseDocument, ...]
    question: PhasesQuestion | None
    """None without a card, or with a problem."""
    others: Mapping[str, str]
    """Titles of cards to compare with, by name."""
    beside: tuple[ChosenCard, ...]
    """Cards that are compared with."""
    beside_names: tuple[str, ...]
    wrong_rule: str = ""
    """Sentence about a static strategy that is not understood."""
    problem: str = ""
    """Sentence about phases that are not understood."""


def parse_job(mode: str) -> JobView:
    """Parse this part of the link. mode: "light" or "dark"."""
    page, asked = LinkReader(ElasticLink, PAGE_NAME), LinkReader(PhasesQuestion, PAGE_NAME)
    curve, plans = LinkReader(CurveQuestion, PAGE_NAME), LinkReader(CardQuestion, PAGE_NAME)
    card = parse_card()
    asked.read("variant")
    asked.read("pause_s", default=0.0, options=_PAUSES)
    text = page.read("phases", pattern=PHASES_TEXT)
    rule, wrong = _read_rule(page.read("rule", pattern=RULE_TEXT))
    chosen, example = card.chosen, page.fields["phases"].default
    is_known = chosen is not None and bool(chosen.trace or (chosen.key == "llama7_bsz16" and text == example))
    asked.read("basis", default="measured" if is_known else "predicted")
    curve.read("over")
    plans.read("every_plan")
    others = card_titles()
    names = tuple(name for name in separate(page.read("beside", pattern=NAMES)) if name in others)[:_MOST_BESIDE]
    beside = tuple(each for name in names if (each := find_card(name, card.own)) is not None)
    phases: tuple[PhaseDocument, ...] = ()
    problem, question = "", None
    try:
        phases = _read_phases(text)
        if titles := _phase_titles(phases):
            page.read("phase", default=next(iter(titles)), options=titles)
        if chosen is not None:
            strategies = [*STATIC, *([rule] if rule else [])]
            question = asked.build(**chosen.arguments, phases=list(phases), strategies=strategies)
    except ValueError as error:
        problem = str(error)
    fields = {**page.fields, **asked.fields, **curve.fields, **plans.fields}
    return JobView(mode, fields, card, phases, question, others, beside, names, wrong, problem)


def draw_job(view: JobView) -> None:
    """Draw one job of a model card through phases of different resources.

    Raises `engine.planners.contract.PlanError` for input that cannot be read.
    """
    mode, fields, asked, chosen = view.mode, view.fields, view.question, view.card.chosen
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        draw_card(view.card)
        draw_segments(fields["variant"])
        draw_choice(
            fields["pause_s"],
            label="Pause at a change",
            width=140,
            help="Time without work whenever the plan or the GPUs change.",
        )
        draw_text(fields["phases"], label="Phases: minutes @ GPUs on nodes x threads", most=400, width=345)
        draw_segments(fields["basis"])
    if chosen is None:
        ask_for_card()
        return
    if asked is None:
        raise PlanError(view.problem)
    found, basis = find_timeline(asked), asked.basis
    st.html(markup.figure_strip(_strategy_tiles(found), of_cards([chosen], asked.variant, basis == "measured")))
    unmeasured = found.table["measured_s"].isna() & found.table["predicted_s"].notna()
    if basis == "measured" and unmeasured.any():
        count = f"{int(unmeasured.sum())} of {len(found.table)} times"
        st.markdown(f"{count} were never measured and count as not running.")
    if (found.summary()["gain"] < 0).any():
        kept = "The planner keeps to the card’s table of allowed plans; static strategies do not."
        slower = "A static strategy was measured faster than what the planner’s predictions pick."
        st.markdown(slower if basis == "measured" else kept)
    left, right = st.columns([1.25, 1], gap="medium")
    with left.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Throughput while resources change", f"{found.basis} times; GPUs on each node above"))
        lines = {str(name): found.steps(name) for name in found.table["strategy"].unique()}
        means = {str(row["strategy"]): float(row["mean"]) for row in found.summary().to_dict("records")}
        chart = throughput_over_time(found.table, lines, means, mode)
        show(chart, "elastic_timeline")
        st.markdown(literal(chart.alt))
        draw_text(
            fields["rule"], label="A static strategy of yours: PP, TP, DP", most=60, width=330, placeholder="n/g, g, 1"
        )
        if view.wrong_rule:
            st.warning(literal(view.wrong_rule), icon=":material/error:")
    with right.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Along one resource", "predicted; the best plan at each value"))
        draw_segments(fields["over"])
        _draw_curve(view, chosen, asked, found)
        _draw_other_cards(view, chosen, asked)
    with st.container(border=True, gap="xsmall"):
        _draw_plans(view, chosen, asked)
    _timeline_table(found, chart)


def _read_rule(text: str) -> tuple[str, str]:
    """Return (rule of the user's static strategy, or empty; error in it, or empty)."""
    if text:
        try:
            own_strategy(text)
        except PlanError as problem:
            return "", str(problem)
    return text, ""


def _read_phases(text: str) -> tuple[PhaseDocument, ...]:
    """Return phases from their text.

    Raises `engine.planners.contract.PlanError` naming the phase at fault.
    """
    found = []
    for part in re.split(r"[,;]", text):
        matched = _PHASE.fullmatch(part.strip())
        if matched is None:
            raise PlanError(
                f"The phase {part.strip()!r} must be minutes, @, the GPUs on each node, x, and CPU threads per GPU, "
                "such as 30@8888x2, and where wanted b with a bandwidth, such as 30@8888x2b12.5."
            )
        minutes, nodes, threads, bandwidth = matched.groups()
        if not float(minutes):
            raise PlanError(f"The phase {part.strip()!r} takes no time; give minutes above 0.")
        found.append(
            PhaseDocument(
                placement=nodes if nodes.strip("0") else "0",
                cpu_threads=int(threads),
                bandwidth=float(bandwidth or 0),
                duration_s=60 * float(minutes),
            )
        )
    return tuple(found)


def _nodes_of(phase: PhaseDocument) -> tuple[int, ...]:
    """Return the GPUs on each node of a phase; none without GPUs."""
    return tuple(map(int, phase.placement)) if phase.placement != "0" else ()


def _largest_phase(phases: Sequence[PhaseDocument]) -> PhaseDocument | None:
    """Return the phase with most GPUs, whose other resources the curve keeps; None if no phase has a GPU."""
    most = max(phases, key=lambda phase: sum(_nodes_of(phase)))
    return most if _nodes_of(most) else None


def _curve_question(card: ChosenCard, over: Any, variant: Any, around: PhaseDocument | None) -> CurveQuestion:
    """Return the question for the best throughput along one resource, with the other resources of a phase."""
    given = card.arguments["card"]
    if around is None:
        return CurveQuestion(card=given, over=over, variant=variant)
    return CurveQuestion(
        card=given,
        over=over,
        variant=variant,
        cpu_threads=around.cpu_threads,
        bandwidth=around.bandwidth,
        gpus_per_node=max(_nodes_of(around)) if over == "gpus" else None,
        placement=None if over == "gpus" else around.placement,
    )


def _strategy_tiles(found: elastic.Timeline) -> list[markup.Tile]:
    """Return the mean throughput of each strategy, the planner's first."""
    tiles = []
    for place, row in enumerate(found.summary().to_dict("records")):
        if place == 0:
            context = f"mean; {counted(int(found.table['phase'].nunique()), 'phase')}"
        else:
            how = "more" if row["gain"] >= 0 else "less"
            context = f"the planner {format_percent(abs(row['gain']))} {how}" if row["mean"] else "runs nothing"
        tiles.append(markup.Tile(str(row["strategy"]), f"{plain(row['mean'], 4)} samples/s", context))
    return tiles


def _measured_on(
    found: elastic.Timeline, phases: Sequence[PhaseDocument], over: str, around: PhaseDocument | None, batch: int
) -> pd.DataFrame:
    """Return the measured throughput of the planner's plan in the phases that differ from `around` in one resource
    only.

    Columns `over` and `measured` [samples/s].
    """
    rows = found.table[found.table["strategy"] == found.table["strategy"].iloc[0]].to_dict("records")
    points = []
    for phase, row in zip(phases, rows, strict=True):
        placed = _nodes_of(phase)
        if around is None or not placed or math.isnan(row["measured_s"]):
            continue
        at = {"gpus": sum(placed), "cpu_threads": phase.cpu_threads, "bandwidth": phase.bandwidth}
        kept = [name for name in ("cpu_threads", "bandwidth") if name != over]
        same, most = all(getattr(phase, name) == getattr(around, name) for name in kept), _nodes_of(around)
        nodes = placements_filling(sum(placed), max(most)) if over == "gpus" else most
        if same and placed == nodes:
            points.append((at[over], batch / row["measured_s"]))
    return pd.DataFrame(list(dict.fromkeys(points)), columns=[over, "measured"])


def _draw_curve(view: JobView, chosen: ChosenCard, asked: PhasesQuestion, found: elastic.Timeline) -> None:
    """Draw the best throughput along one resource."""
    over, around = view.fields["over"].value, _largest_phase(view.phases)
    measured = _measured_on(found, view.phases, over, around, chosen.card.global_batch)
    try:
        curve = find_curve(_curve_question(chosen, over, asked.variant, around))
    except PlanError as problem:
        st.markdown(literal(str(problem)))
        return
    chart = resource_curve(with_plan_titles(curve), over, _LABELS[over], view.mode, measured, tolerance=KEEP_SMALLER)
    show(chart, "elastic_curve")
    st.markdown(literal(chart.alt))
    with st.expander("Gain of each added unit"):
        worded(curve, {over: _LABELS[over], **_GAINS}, "elastic_gains", "Best plan and gain at every value.")


def _draw_other_cards(view: JobView, chosen: ChosenCard, asked: PhasesQuestion) -> None:
    """Draw the curves of other chosen cards over this card's."""
    titles, value, over = view.others, list(view.beside_names), view.fields["over"].value
    key = key_for("_elastic_beside", value)

    def changed() -> None:
        state.set_url_value("elastic_beside", joined(given(key)) or None)

    st.multiselect(
        "Compare with",
        list(titles),
        value,
        format_func=lambda name: titles[name],
        key=key,
        on_change=changed,
        max_selections=_MOST_BESIDE,
        placeholder="Other cards",
        help="Gain of each job from more of the resource.",
    )
    if not value:
        return
    curves, absent = {}, []
    for card in (chosen, *view.beside):
        called = card.card.title or card.card.name
        try:
            question = _curve_question(card, over, asked.variant, _largest_phase(view.phases))
            curves[called if called not in curves else f"{called} (2)"] = find_curve(question)
        except PlanError as problem:
            absent.append(f"{called}: {problem}")
    if curves:
        titled = {name: with_plan_titles(each) for name, each in curves.items()}
        chart = overlaid_sensitivities(titled, over, _LABELS[over], view.mode)
        show(chart, "elastic_overlaid")
        st.markdown(literal(chart.alt))
        rows = [table.assign(job=name) for name, table in curves.items()]
        downloads({"Curves": pd.concat(rows, ignore_index=True)}, "elastic_overlaid", {"Curves": chart})
    for sentence in absent:
        st.markdown(literal(sentence))


def _phase_titles(phases: Sequence[PhaseDocument]) -> dict[str, str]:
    """Return titles of the phases with GPUs, by their numbers from 1 on."""
    return {
        str(number): f"{number}: {phase.placement}, {counted(phase.cpu_threads, 'thread')}"
        + (f", bandwidth {phase.bandwidth:g}" if phase.bandwidth else "")
        for number, phase in enumerate(phases, 1)
        if _nodes_of(phase)
    }


def _draw_plans(view: JobView, chosen: ChosenCard, asked: PhasesQuestion) -> None:
    """Draw every plan in one of the phases, with the reasons against it."""
    st.html(markup.head("Every plan of a phase", "fastest first, with reasons against the others"))
    if "phase" not in view.fields:
        st.markdown("No phase has a GPU.")
        return
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        draw_choice(view.fields["phase"], width=230)
        draw_switch(view.fields["every_plan"], help="Also plans that the card’s table does not allow there.")
    phase = view.phases[int(view.fields["phase"].value) - 1]
    limit = ResourceLimit(placement=phase.placement, cpu_threads=phase.cpu_threads, bandwidth=phase.bandwidth)
    try:
        table = find_plans(
            CardQuestion(
                card=chosen.arguments["card"],
                limits=[limit],
                variant=asked.variant,
                every_plan=view.fields["every_plan"].value,
            )
        )
    except PlanError as problem:
        st.markdown(literal(str(problem)))
        return
    # Leave out parts that no plan has.
    kept = [name for name in _COLUMNS if table[name].dtype.kind != "f" or (table[name].fillna(0) != 0).any()]
    named = table.assign(gpus=sum(_nodes_of(phase)))
    shown = table[kept].assign(plan=plan_titles(named, "plan")).rename(columns=_COLUMNS).round(2)
    shown.attrs.clear()  # metadata for the engine only
    st.dataframe(
        shown,
        hide_index=True,
        height=height_of(len(shown), 360),
        key="elastic_plans",
        placeholder="–",
        alt="Every plan of the phase, with throughput, iteration time and the reason for which it is not chosen.",
    )


def _timeline_table(found: elastic.Timeline, chart: Chart) -> None:
    """Draw the timeline as a table, and both as downloads."""
    table = found.table.drop(columns=["paused_s"])
    table.attrs.clear()
    with st.expander("As table"):
        st.dataframe(
            table.assign(plan=plan_titles(table, "plan")),
            hide_index=True,
            height=height_of(len(table), 400),
            key="elastic_table",
            placeholder="–",
            alt="Every strategy in every phase: plan, iteration time and throughput, predicted and measured.",
        )
    downloads({"Timeline": table, "Means": found.summary()}, "elastic", {"Timeline": chart})
