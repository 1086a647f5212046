"""A workload of jobs on a cluster over time: completion, GPUs in use and the queue under each policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.plans.elastic_sharing import cluster_over_time
from dashboard.link.catalogue import model_of, named_model, named_system, system_of, usable_models
from dashboard.link.fields import LinkField, LinkReader
from dashboard.pages.elastic.answers import answer_later
from dashboard.pages.elastic.bases import of_models
from dashboard.pages.elastic.library_model import parse_system
from dashboard.pages.elastic.link import OWN, PAGE_NAME, WorkloadLink
from dashboard.pages.elastic.tables import downloads, worded
from dashboard.widgets.chart import show
from dashboard.widgets.link_fields import draw_choice, draw_segments, draw_whole
from dashboard.widgets.own_table import KEPT, NO_TABLE, OwnTable, draw_own_table, parse_own_table
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted, plain
from engine.planners.contract import PlanError
from engine.planners.elastic.cluster import asked_models, policy_titles, summaries, workload_from
from engine.questions.documents.elastic import WorkloadReplayQuestion
from models import Model
from models.documents import did_you_mean

__all__ = ["WorkloadView", "draw_workload", "parse_workload"]

MOST_MEGABYTES: Final = 2
PAUSES: Final = {260.0: "260 s", 0.0: "none", 60.0: "1 minute", 600.0: "10 minutes", 1800.0: "30 minutes"}
_SUMMARY: Final = {
    "policy": "policy",
    "avg_jct_s": "mean completion, s",
    "median_jct_s": "median, s",
    "p90_jct_s": "90 %, s",
    "makespan_s": "makespan, s",
    "mean_gpus_used": "GPUs in use",
    "mean_pending": "jobs waiting",
    "total_restarts": "changes",
    "guaranteed_avg_jct_s": "guaranteed, s",
    "best_effort_avg_jct_s": "best effort, s",
}
_JOBS: Final = {
    "name": "job",
    "application": "model",
    "submission_s": "submitted, s",
    "requested_gpus": "GPUs asked for",
    "requested_plan": "plan asked for",
    "is_sla": "guaranteed",
    "first_alloc_seen_s": "started, s",
    "jct_s": "completion, s",
    "n_placements": "placements",
    "paused_s": "downtime, s",
    "gpu_s": "GPU-seconds",
}


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """Part of the link about a workload of jobs on a cluster."""

    mode: str
    fields: Mapping[str, LinkField]
    own: OwnTable
    question: WorkloadReplayQuestion | None
    """None until the user's own workload is uploaded, or with a problem."""
    models: Mapping[str, tuple[Model, int]]
    """Library models that the workload names, with their batches."""
    problem: str = ""
    """Sentence about a workload that is not understood."""


def parse_workload(mode: str) -> WorkloadView:
    """Parse this part of the link. mode: "light" or "dark"."""
    page, asked = LinkReader(WorkloadLink, PAGE_NAME), LinkReader(WorkloadReplayQuestion, PAGE_NAME)
    name, nodes, each = page.read("workload"), page.read("nodes"), page.read("node")
    asked.read("pause_s", options=PAUSES)
    titles = policy_titles()
    page.read("policy", default=next(iter(titles)), options=titles)
    own = parse_own_table("elastic_own_workload", "workload", workload_from) if name == OWN else NO_TABLE
    text = own.text if name == OWN else name
    models: dict[str, tuple[Model, int]] = {}
    question, problem = None, own.problem
    try:
        if text is not None:
            models = asked_models(workload_from(text), _library_model)
            system = named_system(parse_system(asked)) if models else None
            question = asked.build(
                workload=text,
                cluster=f"{nodes}x{each}",
                policies=list(titles),
                system=system,
                models={model.name: named_model(model.name) for model, _ in models.values()},
            )
    except ValueError as error:
        problem = str(error)
    return WorkloadView(mode, {**page.fields, **asked.fields}, own, question, models, problem)


def draw_workload(view: WorkloadView) -> None:
    """Draw the replay of a workload.

    Raises `engine.planners.contract.PlanError` for input that cannot be read.
    """
    titles, mode, asked = policy_titles(), view.mode, view.question
    _draw_inputs(view.fields)
    if view.problem:
        raise PlanError(view.problem)
    if asked is None:
        st.info("Upload a workload of jobs, or take a published one.", icon=":material/upload_file:")
        return
    about = f"{len(titles)} policies on {asked.cluster} GPUs"
    found = answer_later(asked, "Replaying", about)
    if not isinstance(found, Mapping):
        return
    table = summaries(found)
    basis = "Simulated with throughputs of the published model cards; no replay was measured, so no error is given."
    if view.models:
        system = system_of(view.fields["system"].value)
        times = of_models(view.models.values(), system, next(iter(found.values())).cluster.gpus)
        basis = f"Simulated; no replay was measured. Times of models of the library: {times}"
    st.html(markup.figure_strip(_policy_tiles(table, titles), basis))
    for name, result in found.items():
        for note in result.notes:
            st.markdown(literal(f"{titles[name]}: {note}"))
    draw_segments(view.fields["policy"])
    policy = view.fields["policy"].value
    lines = {titles[name]: result.utilisation for name, result in found.items()}
    gpus = next(iter(found.values())).cluster.gpus
    columns = (
        ("gpus_allocated", "GPUs in use", f"of {gpus}", float(gpus), "elastic_used"),
        ("pending_jobs", "Jobs that wait", "submitted and without GPUs", None, "elastic_queue"),
    )
    for place, (column, title, scope, most, key) in zip(st.columns(2, gap="medium"), columns, strict=True):
        with place.container(border=True, gap="xsmall", height="stretch"):
            st.html(markup.head(title, scope))
            chart = cluster_over_time(lines, column, title, titles[policy], most, mode)
            show(chart, key)
            st.markdown(literal(chart.alt))
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("Policies side by side", "completion is from submission to the end"))
        shown = table.assign(policy=[titles[name] for name in table["policy"]]).dropna(axis="columns", how="all")
        worded(shown, _SUMMARY, "elastic_policies", "Every policy with its completion times, use and changes.")
    chosen = found[policy]
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("Every job", f"under: {titles[policy]}"))
        worded(chosen.jobs, _JOBS, "elastic_replayed", "Every job with its times of submission, start and completion.")
    tables = {"Policies": table, "Jobs": chosen.jobs, "Rounds": chosen.utilisation, "Changes": chosen.placements}
    downloads(tables, f"elastic_{policy}")


def _draw_inputs(fields: Mapping[str, LinkField]) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        draw_choice(fields["workload"], width=230)
        draw_whole(fields["nodes"])
        draw_whole(fields["node"])
        draw_choice(fields["pause_s"], label="Pause at a change", width=140)
        if fields["workload"].value == OWN:
            _draw_upload()
        if "system" in fields:
            draw_choice(fields["system"], help="", width=190)


def _library_model(name: str) -> Model:
    """Return the library model of that name; the name is never opened as a path."""
    known = usable_models()
    if name not in known:
        raise PlanError(f"There is no model {name[:60]!r} in the library{did_you_mean(name, known)}.")
    return model_of(name)


def _draw_upload() -> None:
    with st.popover("Workload", icon=":material/upload_file:", help="A workload of your own jobs."):
        st.markdown(
            "CSV with a row per job: `name`, `submission_time` in seconds, `application` (a model card, or a model of "
            "the library with its batch such as `llama-3-8B*64`), `num_gpus` and `exec_plan` that it asks for, `steps` "
            "or `duration` in seconds, and `is_sla`, 1 for guaranteed jobs; at most "
            f"{MOST_MEGABYTES} MB. {KEPT}"
        )
        draw_own_table("Workload (CSV)", "elastic_own_workload", MOST_MEGABYTES, workload_from)


def _policy_tiles(table: pd.DataFrame, titles: Mapping[str, str]) -> list[markup.Tile]:
    tiles = []
    for row in table.to_dict("records"):
        told = f"{plain(row['makespan_s'] / 3600, 3)} h in all, {counted(int(row['total_restarts']), 'change')}"
        tiles.append(markup.Tile(titles[row["policy"]], f"{plain(row['avg_jct_s'] / 60, 3)} min", told))
    return tiles
