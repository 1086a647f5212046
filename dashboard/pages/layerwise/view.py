"""The Layer-wise page: the plan on its devices, work and memory of its stages, and the other candidates."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.plans.layer_plan import MOST_DRAWN, device_grid, plan_curves, stage_memory_bars, stage_timeline
from dashboard.jobs.layer_plans import LayerPlanJob, Planned
from dashboard.jobs.server import server
from dashboard.link import page_links, state
from dashboard.link.fields import LinkField
from dashboard.pages.layerwise.inputs import LayerwiseInputs, draw_inputs, parse_inputs
from dashboard.pages.layerwise.link import LayerwiseLink
from dashboard.pages.layerwise.own_plan import own_plan
from dashboard.widgets.chart import show
from dashboard.widgets.clicks import was_clicked
from dashboard.widgets.file_download import draw_download
from dashboard.widgets.job_card import found_soon
from dashboard.widgets.tables import height_of
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted, format_value, percent, plain
from engine.planners.layerwise import LayerwisePlan
from engine.planners.layerwise.library_models import scenario_of
from engine.planners.layerwise.profiles.tables import csv_text
from engine.planners.layerwise.strategy import graph_text, strategy_text
from engine.planners.layerwise.tabulated import candidates_table, layers_table, stages_table
from engine.planners.layerwise.timeline import PipelineTimeline, plan_timeline
from engine.questions.documents.layers import LayersQuestion
from engine.questions.scenario_documents import found_model, found_system

__all__ = ["LayerwiseView", "parse", "render"]

_BASIS = "Modelled from the times of the profile's layers; no plan was run."


@dataclass(frozen=True, slots=True)
class LayerwiseView:
    """All that the link says of the page."""

    mode: str
    """The theme: "light" or "dark"."""
    question: LayersQuestion | None
    link: LayerwiseLink
    fields: Mapping[str, LinkField]
    problem: str = ""
    """Reason if the link holds no question."""


def parse() -> LayerwiseView:
    """Parse the page's part of the link."""
    try:
        question, link, fields = parse_inputs()
    except ValueError as problem:
        return LayerwiseView(state.theme_mode(), None, LayerwiseLink(), {}, str(problem))
    return LayerwiseView(state.theme_mode(), question, link, fields)


def render(view: LayerwiseView) -> None:
    """Draws the page."""
    if view.question is None:
        st.error(literal(view.problem), icon=":material/error:")
        return
    try:
        asked = draw_inputs(view.question, view.link, view.fields)
    except ValueError as problem:
        st.error(literal(str(problem)), icon=":material/error:")
        return
    if asked is None:
        return
    found = _find_plan(asked)
    if found is None:
        return
    plan = found.plan
    st.html(markup.figure_strip(_plan_tiles(found), _BASIS))
    for note in (*plan.notes, *([asked.note] if asked.note else [])):
        st.caption(literal(note))
    left, right = st.columns([1.25, 1], gap="medium")
    with left.container(border=True, gap="xsmall", height="stretch"):
        words = "each device with the number of its stage"
        st.html(markup.head("Stages on devices", words))
        chart = device_grid(*_stages_and_machines(plan), view.mode)
        show(chart, "layerwise_devices")
        st.caption(literal(chart.alt))
        st.html(markup.head("Stages", "layers are half-open ranges; times of one microbatch"))
        stages = stages_table(plan)
        st.dataframe(
            stages,
            hide_index=True,
            height=height_of(len(stages), 320),
            key="layerwise_stages",
            alt="Every stage with its layers, devices, times, output and memory.",
        )
    with right.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Memory of a device", "parameters with optimizer, and activations in flight"))
        states = (plan.problem.optimizer * stages["parameters [GB]"]).tolist()
        chart = stage_memory_bars(states, stages["memory [GB]"].tolist(), stages["of [GB]"].tolist(), view.mode)
        show(chart, "layerwise_memory")
        st.caption(literal(chart.alt))
        if found.told:
            st.html(markup.head("Next to the cost model", "the same model and GPUs by all executions"))
            for line in found.told:
                st.caption(literal(line))
        _draw_exports(found)
        _as_execution(found, asked)
    with st.container(border=True, gap="xsmall"):
        drawn = plan_timeline(plan, MOST_DRAWN)
        some = min(plan.microbatches, MOST_DRAWN)
        which = f"{some} of {plan.microbatches:,} microbatches" if some < plan.microbatches else "all microbatches"
        st.html(markup.head("Timeline of the stages", f"{which}; early backward scheduling; then the all-reduce"))
        chart = stage_timeline(_list_passes(drawn), drawn.step_seconds, view.mode)
        show(chart, "layerwise_timeline")
        st.caption(literal(chart.alt))
    _draw_tables(found, view.mode)


def _find_plan(asked: LayerwiseInputs) -> Planned | None:
    """Return the plan; None while its job runs, or if there is no plan, which its card shows."""
    shared, watcher = server(), state.watcher()
    key = hashlib.sha256(asked.question.model_dump_json().encode()).hexdigest()
    job = shared.board.post(LayerPlanJob(shared.layer_plans, key, asked.question, asked.about), watcher)
    return found_soon(job, LayerPlanJob, watcher, lambda one: one.planned)


def _stages_and_machines(plan: LayerwisePlan) -> tuple[list[tuple[int, ...]], list[tuple[str, int]]]:
    """Return the devices of each stage, and kind and number of devices of each machine, as `device_grid` takes them.

    Machines of one device are drawn together as far as the closest network joins them.
    """
    cluster = plan.problem.cluster
    machines = [("" if cluster.uniform else each.kind, each.devices) for each in cluster.machines]
    if cluster.levels and len(machines) == cluster.size:
        wide, size = min(level.devices for level in cluster.levels), cluster.size
        machines = [("", min(wide, size - first)) for first in range(0, size, wide)]
    return [stage.devices for stage in plan.stages], machines


def _list_passes(found: PipelineTimeline) -> pd.DataFrame:
    """Return the passes of compute stages as `stage_timeline` takes them; between any two is a transfer."""
    rows: list[tuple[int, str, int, float, float]] = []
    for stage, work in enumerate(found.works[::2]):
        for kind, took, ends in (
            ("forward", work.forward, found.forward_end[2 * stage]),
            ("backward", work.backward, found.backward_end[2 * stage]),
        ):
            rows += [(stage, kind, number, float(end) - took, took) for number, end in enumerate(ends)]
        if work.reduce:
            rows.append((stage, "reduce", -1, float(found.backward_end[2 * stage, -1]), work.reduce))
    return pd.DataFrame(rows, columns=["stage", "kind", "microbatch", "start", "took"])


def _plan_tiles(found: Planned) -> list[markup.Tile]:
    plan = found.plan
    figures = {each.name: each.value for each in plan.figures}
    step = figures["step_time"]
    stages = counted(len(plan.stages), "stage")
    tiles = [
        markup.Tile("Speedup", plain(plan.speedup, 4), f"over one device; {stages}"),
        markup.Tile("Step", format_value("total_time", step), f"{plan.microbatches:,} microbatches"),
        markup.Tile("Throughput", f"{plain(figures['sample_rate'], 4)} samples/s"),
    ]
    reduce = figures.get("exposed_reduce", figures.get("ending", 0.0)) / step
    fill = figures.get("fill", figures.get("warmup", 0.0)) / step
    first, second = ("Fill", "All-reduce") if "fill" in figures else ("Warm-up", "Ending")
    tiles.append(markup.Tile(first, percent(fill), "of the step"))
    tiles.append(markup.Tile(second, percent(reduce), "of the step, exposed"))
    baselines = plan.baselines
    if baselines is not None and found.model is None:
        told = "worse" if baselines.best > plan.speedup else ""
        tiles.append(markup.Tile("Data parallel", plain(baselines.best, 4), "speedup, best overlap", told))
    if found.flat is not None:
        tiles.append(markup.Tile("Flat cluster", plain(found.flat, 4), "speedup, each device alone"))
    return tiles


def _draw_exports(found: Planned) -> None:
    plan = found.plan
    layout = None if found.model is None else found.model.layout
    if layout:
        st.caption("Megatron’s layout of stages")
        st.code(f"--pipeline-model-parallel-layout '{layout}'", language=None, wrap_lines=True)
    with st.popover("Export", icon=":material/download:", help="The strategy, its picture, tables, the profile."):
        for label, name, mime, content in (
            ("Strategy (JSON)", "strategy.json", "application/json", lambda: strategy_text(plan)),
            ("Graph coloured by stage (DOT)", "plan.dot", "text/vnd.graphviz", lambda: graph_text(plan)),
            (
                "Stages on devices (picture, HTML)",
                "devices.html",
                "text/html",
                lambda: device_grid(*_stages_and_machines(plan)).figure.to_html(include_plotlyjs=True),
            ),
            ("Candidates (CSV)", "candidates.csv", "text/csv", lambda: candidates_table(plan).to_csv(index=False)),
            ("Profile (CSV)", "profile.csv", "text/csv", lambda: csv_text(plan.problem.profile)),
        ):
            draw_download(
                label,
                content,
                name,
                mime,
                key=f"layerwise_{name}",
            )
        batches = found.batches
        if batches is not None:
            draw_download(
                "All batches (CSV)",
                lambda: batches.to_csv(index=False),
                "batches.csv",
                "text/csv",
                key="layerwise_batches.csv",
            )


def _as_execution(found: Planned, asked: LayerwiseInputs) -> None:
    """Draw a button that opens the plan's degrees and stages as a scenario, if they are an execution."""
    made, of = found.model, asked.question
    if made is None or made.execution is None or of.model is None or not of.systems:
        return
    if not page_links.exists("execution"):
        return
    if was_clicked(
        "Open as an execution",
        icon=":material/open_in_full:",
        key="layerwise_execution",
        help="The best execution with these degrees and stages, by the cost model.",
    ):
        scenario = scenario_of(made, found_model(of.model), found_system(of.systems[0].system))
        parameters = state.before_switching(lambda: state.open_scenario(scenario))
        st.switch_page(page_links.target("execution"), query_params=parameters)


def _draw_tables(found: Planned, mode: str) -> None:
    plan = found.plan
    sweeps = (
        ("All batches", "batches", found.batches, plan.problem.global_batch),
        ("Fewer devices", "sizes", found.devices, plan.problem.cluster.size),
    )
    drawn = [(title, name, rows, here) for title, name, rows, here in sweeps if rows is not None]
    for place, (title, name, rows, here) in zip(st.columns(len(drawn) or 1, gap="medium"), drawn, strict=False):
        with place.container(border=True, gap="xsmall"):
            st.html(markup.head(title, "released searches and data parallelism, each by its own model"))
            chart = plan_curves(rows, here, mode)
            show(chart, f"layerwise_{name}")
            st.caption(literal(chart.alt))
    left, right = st.columns([1.25, 1], gap="medium")
    with left.container(border=True, gap="xsmall"):
        candidates = candidates_table(plan)
        running = int(candidates["speedup"].notna().sum())
        st.html(markup.head("All candidates", f"{running} of {len(candidates)} run, the best first"))
        st.dataframe(
            candidates,
            hide_index=True,
            height=height_of(len(candidates), 420),
            placeholder="–",
            key="layerwise_candidates",
            alt="Every candidate with its speedup, stages and why it is not the answer.",
        )
        own_plan(plan)
    with right.container(border=True, gap="xsmall"):
        layers = layers_table(plan.problem.profile)
        st.html(markup.head("Layers", f"{len(layers)}, at the profile’s batch of {plan.problem.profile_batch:g}"))
        st.dataframe(
            layers,
            hide_index=True,
            height=height_of(len(layers), 420),
            key="layerwise_layers",
            alt="Every layer with its times and sizes.",
        )
        if plan.problem.profile.source:
            st.caption(literal(plan.problem.profile.source))
