"""A workload of jobs on a cluster over time: completion, GPUs in use and the queue under each policy."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.plans.elastic_sharing import cluster_over_time
from dashboard.jobs.elastic_plans import ReplayQuestion
from dashboard.link.catalogue import model_of, system_of, usable_models
from dashboard.pages.elastic.answers import answered
from dashboard.pages.elastic.bases import of_models
from dashboard.pages.elastic.library_model import asked_system
from dashboard.pages.elastic.tables import downloads, worded
from dashboard.widgets.chart import show
from dashboard.widgets.controls import choose, segments
from dashboard.widgets.link_numbers import whole_in_link
from dashboard.widgets.own_table import KEPT, own_table
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted, plain
from engine.planners.contract import PlanError
from engine.planners.elastic.cluster import asked_models, policy_titles, summaries, workload_from
from models import Model
from models.documents import did_you_mean

__all__ = ["workload"]

OWN: Final = "own"
ANY_SYSTEM: Final = "h100_80g_sxm"
"""System of workloads without library models, which do not use it."""
MOST_MEGABYTES: Final = 2
MOST_NODES: Final = 128
MOST_NODE: Final = 9
WORKLOADS: Final = {
    "base": "406 jobs, base",
    "mt": "406 jobs, half guaranteed",
    "bp": "406 jobs, best plans asked for",
    "naive": "10 jobs",
    "today": "16 jobs of today’s models",
    OWN: "My workload",
}
PAUSES: Final = {"260": "260 s", "0": "none", "60": "1 minute", "600": "10 minutes", "1800": "30 minutes"}
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


def workload(mode: str) -> None:
    """Draws the replay of a workload.

    Args:
        mode: "light" or "dark".

    Raises `engine.planners.contract.PlanError` for input that cannot be read.
    """
    titles = policy_titles()
    asked = _ask_replay(tuple(titles))
    if asked is None:
        return
    told = hashlib.sha256(asked.workload.encode()).hexdigest()
    about = f"{len(asked.policies)} policies on {asked.cluster} GPUs"
    models = [(name, model.model_dump_json(), batch) for name, (model, batch) in asked.models.items()]
    described = (
        "replay",
        told,
        asked.cluster,
        asked.policies,
        asked.pause,
        models,
        models and asked.system.model_dump_json(),
    )
    answer = answered(asked, described, "Replaying", about)
    if not isinstance(answer, Mapping):
        return
    found = answer
    table = summaries(found)
    basis = "Simulated with throughputs of the published model cards; no replay was measured, so no error is given."
    if asked.models:
        times = of_models(asked.models.values(), asked.system, next(iter(found.values())).cluster.gpus)
        basis = f"Simulated; no replay was measured. Times of models of the library: {times}"
    st.html(markup.figure_strip(_policy_tiles(table, titles), basis))
    for name, result in found.items():
        for note in result.notes:
            st.markdown(literal(f"{titles[name]}: {note}"))
    policy = segments("Policy", titles, "elastic_policy")
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


def _ask_replay(policies: tuple[str, ...]) -> ReplayQuestion | None:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        name = choose("Workload", WORKLOADS, "elastic_workload", width=230)
        nodes = whole_in_link("elastic_nodes", "Nodes", 8, MOST_NODES, "Of the cluster.")
        each = whole_in_link("elastic_node", "GPUs of each", 8, MOST_NODE, "Of a node.")
        pause = choose(
            "Pause at a change",
            PAUSES,
            "elastic_stop",
            width=140,
            help="Downtime at start and at each reconfiguration.",
        )
        text = _upload_workload() if name == OWN else name
        models = {} if text is None else asked_models(workload_from(text), _library_model)
        system = system_of(asked_system() if models else ANY_SYSTEM)
    if text is None:
        st.info("Upload a workload of jobs, or take a published one.", icon=":material/upload_file:")
        return None
    return ReplayQuestion(text, f"{nodes}x{each}", models, system, policies, float(pause))


def _library_model(name: str) -> Model:
    """Return the library model of that name; the name is never opened as a path."""
    known = usable_models()
    if name not in known:
        raise PlanError(f"There is no model {name[:60]!r} in the library{did_you_mean(name, known)}.")
    return model_of(name)


def _upload_workload() -> str | None:
    with st.popover("Workload", icon=":material/upload_file:", help="A workload of your own jobs."):
        st.markdown(
            "CSV with a row per job: `name`, `submission_time` in seconds, `application` (a model card, or a model of "
            "the library with its batch such as `llama-3-8B*64`), `num_gpus` and `exec_plan` that it asks for, `steps` "
            "or `duration` in seconds, and `is_sla`, 1 for guaranteed jobs; at most "
            f"{MOST_MEGABYTES} MB. {KEPT}"
        )
        return own_table("Workload (CSV)", "elastic_own_workload", "workload", MOST_MEGABYTES, workload_from)


def _policy_tiles(table: pd.DataFrame, titles: Mapping[str, str]) -> list[markup.Tile]:
    tiles = []
    for row in table.to_dict("records"):
        told = f"{plain(row['makespan_s'] / 3600, 3)} h in all, {counted(int(row['total_restarts']), 'change')}"
        tiles.append(markup.Tile(titles[row["policy"]], f"{plain(row['avg_jct_s'] / 60, 3)} min", told))
    return tiles
