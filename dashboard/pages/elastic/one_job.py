"""One job of a model card: through phases of different resources, along one resource, and every plan of a phase."""

from __future__ import annotations

import math
import re
from typing import Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.elements.template import Chart
from dashboard.charts.plans.elastic import resource_curve, throughput_over_time
from dashboard.charts.plans.elastic_overlays import overlaid_sensitivities
from dashboard.compat.caches import remembered
from dashboard.link import state
from dashboard.link.named_things import NAMES, joined, separate
from dashboard.pages.elastic.bases import of_cards
from dashboard.pages.elastic.cards import ChosenCard, ask_for_card, card_of, card_titles, chosen_card
from dashboard.pages.elastic.tables import downloads, worded
from dashboard.widgets.chart import show
from dashboard.widgets.controls import choose, given, key_for, segments, switch
from dashboard.widgets.tables import height_of
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted, percent, plain
from engine.planners import elastic
from engine.planners.contract import PlanError
from engine.planners.elastic.placements import placements_filling
from engine.planners.elastic.plan_names import plan_titles, with_plan_titles
from engine.planners.elastic.resource_curve import KEEP_SMALLER
from engine.planners.elastic.strategies import STATIC, own_strategy

__all__ = ["VARIANTS", "one_job"]

_EXAMPLE: Final = "30@8888x2, 30@4444x2, 30@4x2, 30@1x2, 30@1x4"
_MOST_TEXT: Final = re.compile(r"[\d@xb., ;]{1,400}")
_RULE_TEXT: Final = re.compile(r"[\w\-+*/, ]{1,60}", re.ASCII)
_MOST_BESIDE: Final = 6
_PHASE: Final = re.compile(r"(\d{1,7}(?:\.\d{1,3})?)@([0-8]{1,64})x(\d{1,3})(?:b(\d{1,6}(?:\.\d{1,3})?))?")
_OVER: Final = {"gpus": "GPUs", "cpu_threads": "CPU threads per GPU", "bandwidth": "Bandwidth"}
_LABELS: Final = {"gpus": "GPUs", "cpu_threads": "CPU threads per GPU", "bandwidth": "bandwidth limit [0: NVLink]"}
VARIANTS: Final = {"artifact": "As published", "physical": "Calibrated"}
_PAUSES: Final = {"0": "none", "60": "1 minute", "260": "260 s", "600": "10 minutes"}
_BASES: Final = {"measured": "Measured", "predicted": "Predicted"}
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


def one_job(mode: str) -> None:
    """Draws one job of a model card through phases of different resources.

    Args:
        mode: "light" or "dark".

    Raises `engine.planners.contract.PlanError` for input that cannot be read.
    """
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        chosen = chosen_card()
        variant = segments("Performance model", VARIANTS, "elastic_variant")
        pause = choose(
            "Pause at a change",
            _PAUSES,
            "elastic_pause",
            width=140,
            help="Time without work whenever the plan or the GPUs change.",
        )
        text = _phases_field()
        known = chosen is not None and (chosen.trace or (chosen.key == "llama7_bsz16" and text == _EXAMPLE))
        basis = segments("Times", _BASES, "elastic_basis", default="measured" if known else "predicted")
    if chosen is None:
        ask_for_card()
        return
    phases = _parse_phases(text)
    rule, wrong = _own_rule()
    found = _compute_timeline(chosen, text, variant, float(pause), basis, rule)
    st.html(markup.figure_strip(_strategy_tiles(found), of_cards([chosen], variant, basis == "measured")))
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
        _rule_field(wrong)
    with right.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Along one resource", "predicted; the plan that wins at every value"))
        over = segments("Resource", _OVER, "elastic_over")
        around = _largest_phase(phases)
        measured = _measured_on(found, phases, over, around, chosen.card.global_batch)
        _draw_curve(chosen, over, variant, around, measured, mode)
        _draw_other_cards(chosen, over, variant, around, mode)
    with st.container(border=True, gap="xsmall"):
        _draw_plans(chosen, variant, phases)
    _timeline_table(found, chart)


def _phases_field() -> str:
    """Draws the field of the phases; returns its text."""
    value = state.url_value("elastic_phases", _EXAMPLE, _MOST_TEXT)
    key = key_for("_elastic_phases", value)

    def changed() -> None:
        new = str(given(key)).strip()
        state.set_url_value("elastic_phases", None if new in ("", _EXAMPLE) else new)

    st.text_input(
        "Phases: minutes @ GPUs on nodes x threads",
        value,
        key=key,
        on_change=changed,
        max_chars=400,
        width=345,
        help="Separated by commas. 30@8888x2 is half an hour on four nodes with eight GPUs each and two CPU "
        "threads per GPU; 5@0x1 is five minutes without any GPU. b12.5 behind it limits the bandwidth between nodes, "
        "in GB/s of a GPU by the calibrated model; as published any limit is 2 MiB/ms.",
    )
    return value


def _own_rule() -> tuple[str, str]:
    """Return (rule of the user's static strategy, or empty; error in it, or empty)."""
    text = state.url_value("elastic_rule", "", _RULE_TEXT)
    if text:
        try:
            own_strategy(text)
        except PlanError as problem:
            return "", str(problem)
    return text, ""


def _rule_field(wrong: str) -> None:
    """Draw the field of the rule, and its error."""
    value = state.url_value("elastic_rule", "", _RULE_TEXT)
    key = key_for("_elastic_rule", value)

    def changed() -> None:
        state.set_url_value("elastic_rule", str(given(key)).strip() or None)

    st.text_input(
        "A static strategy of yours: PP, TP, DP",
        value,
        key=key,
        on_change=changed,
        max_chars=60,
        width=330,
        placeholder="n/g, g, 1",
        help="n is all GPUs, g those of a node, w nodes: n/g, g, 1 is tensor parallelism "
        "inside nodes and a pipeline across them. Or one plan for all phases, such as zero-dp+ga.",
    )
    if wrong:
        st.warning(literal(wrong), icon=":material/error:")


def _parse_phases(text: str) -> list[elastic.Phase]:
    """Returns phases from their text.

    Raises: PlanError naming the phase at fault.
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
        placed = () if not nodes.strip("0") else tuple(int(digit) for digit in nodes)
        found.append(elastic.Phase(60 * float(minutes), placed, int(threads), float(bandwidth or 0)))
    return found


@remembered(32)
def _compute_timeline(
    chosen: ChosenCard, phases: str, variant: str, pause: float, basis: str, rule: str
) -> elastic.Timeline:
    """Return the job's timeline through the phases."""
    return elastic.timeline(
        chosen.card,
        _parse_phases(phases),
        strategies=[*STATIC, *([rule] if rule else [])],
        measured=chosen.measured,
        variant=variant,
        pause_s=pause,
        basis=basis,
    )


def _largest_phase(phases: list[elastic.Phase]) -> elastic.Phase | None:
    """Return the phase with most GPUs, whose other resources the curve keeps; None if no phase has a GPU."""
    most = max(phases, key=lambda phase: sum(phase.nodes))
    return most if most.nodes else None


@remembered(32)
def _resource_curve(chosen: ChosenCard, over: str, variant: str, around: elastic.Phase | None) -> pd.DataFrame:
    """Return the best throughput along one resource, with the other resources of a phase."""
    if around is None:
        return elastic.curve(chosen.card, over=over, variant=variant)
    placed = {"gpus_per_node": max(around.nodes)} if over == "gpus" else {"placement": around.nodes}
    return elastic.curve(
        chosen.card, over=over, variant=variant, cpu_threads=around.cpu_threads, bandwidth=around.bandwidth, **placed
    )


@remembered(32)
def _plans_under_limit(
    chosen: ChosenCard, variant: str, placement: str, threads: int, bandwidth: float, every: bool
) -> pd.DataFrame:
    """Return every plan under one limit."""
    return elastic.plans_table(
        chosen.card,
        placement=placement,
        cpu_threads=threads,
        bandwidth=bandwidth,
        variant=variant,
        restricted=False if every else None,
    )


def _strategy_tiles(found: elastic.Timeline) -> list[markup.Tile]:
    """Return the mean throughput of each strategy, the planner's first."""
    tiles = []
    for place, row in enumerate(found.summary().to_dict("records")):
        if place == 0:
            context = f"mean; {counted(int(found.table['phase'].nunique()), 'phase')}"
        else:
            how = "more" if row["gain"] >= 0 else "less"
            context = f"the planner {percent(abs(row['gain']), 1)} {how}" if row["mean"] else "runs nothing"
        tiles.append(markup.Tile(str(row["strategy"]), f"{plain(row['mean'], 4)} samples/s", context))
    return tiles


def _measured_on(
    found: elastic.Timeline, phases: list[elastic.Phase], over: str, around: elastic.Phase | None, batch: int
) -> pd.DataFrame:
    """Return the measured throughput of the planner's plan in the phases that differ from `around` in one resource
    only.

    Columns `over` and `measured` [samples/s].
    """
    rows = found.table[found.table["strategy"] == found.table["strategy"].iloc[0]].to_dict("records")
    points = []
    for phase, row in zip(phases, rows, strict=True):
        if around is None or not phase.nodes or math.isnan(row["measured_s"]):
            continue
        at = {"gpus": sum(phase.nodes), "cpu_threads": phase.cpu_threads, "bandwidth": phase.bandwidth}
        kept = [name for name in ("cpu_threads", "bandwidth") if name != over]
        same = all(getattr(phase, name) == getattr(around, name) for name in kept)
        nodes = placements_filling(int(sum(phase.nodes)), int(max(around.nodes))) if over == "gpus" else around.nodes
        if same and phase.nodes == nodes:
            points.append((at[over], batch / row["measured_s"]))
    return pd.DataFrame(list(dict.fromkeys(points)), columns=[over, "measured"])


def _draw_curve(
    chosen: ChosenCard, over: str, variant: str, around: elastic.Phase | None, measured: pd.DataFrame, mode: str
) -> None:
    """Draw the best throughput along one resource."""
    try:
        curve = _resource_curve(chosen, over, variant, around)
    except PlanError as problem:
        st.markdown(literal(str(problem)))
        return
    chart = resource_curve(with_plan_titles(curve), over, _LABELS[over], mode, measured, tolerance=KEEP_SMALLER)
    show(chart, "elastic_curve")
    st.markdown(literal(chart.alt))
    with st.expander("Gain of each added unit"):
        worded(curve, {over: _LABELS[over], **_GAINS}, "elastic_gains", "Best plan and gain at every value.")


def _draw_other_cards(chosen: ChosenCard, over: str, variant: str, around: elastic.Phase | None, mode: str) -> None:
    """Draw the curves of other chosen cards over this card's."""
    titles = card_titles()
    asked = state.url_value("elastic_beside", "", NAMES)
    value = [name for name in separate(asked) if name in titles][:_MOST_BESIDE]
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
    for card in (chosen, *(each for name in value if (each := card_of(name)) is not None)):
        called = card.card.title or card.card.name
        try:
            curves[called if called not in curves else f"{called} (2)"] = _resource_curve(card, over, variant, around)
        except PlanError as problem:
            absent.append(f"{called}: {problem}")
    if curves:
        titled = {name: with_plan_titles(each) for name, each in curves.items()}
        chart = overlaid_sensitivities(titled, over, _LABELS[over], mode)
        show(chart, "elastic_overlaid")
        st.markdown(literal(chart.alt))
        rows = [table.assign(job=name) for name, table in curves.items()]
        downloads({"Curves": pd.concat(rows, ignore_index=True)}, "elastic_overlaid", {"Curves": chart})
    for sentence in absent:
        st.markdown(literal(sentence))


def _draw_plans(chosen: ChosenCard, variant: str, phases: list[elastic.Phase]) -> None:
    """Draw every plan in one of the phases, with the reasons against it."""
    names = {
        str(number): f"{number}: {''.join(map(str, phase.nodes))}, {counted(phase.cpu_threads, 'thread')}"
        + (f", bandwidth {phase.bandwidth:g}" if phase.bandwidth else "")
        for number, phase in enumerate(phases, 1)
        if phase.nodes
    }
    st.html(markup.head("Every plan of a phase", "fastest first, with reasons against the others"))
    if not names:
        st.markdown("No phase has a GPU.")
        return
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        phase = phases[int(choose("Phase", names, "elastic_phase", width=230)) - 1]
        every = switch("Every plan", "elastic_every", help="Also plans that the card’s table does not allow there.")
    try:
        table = _plans_under_limit(
            chosen, variant, "".join(map(str, phase.nodes)), phase.cpu_threads, phase.bandwidth, every
        )
    except PlanError as problem:
        st.markdown(literal(str(problem)))
        return
    # Leave out parts that no plan has.
    kept = [name for name in _COLUMNS if table[name].dtype.kind != "f" or (table[name].fillna(0) != 0).any()]
    named = table.assign(gpus=sum(phase.nodes))
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
