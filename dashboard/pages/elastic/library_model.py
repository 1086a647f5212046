"""A library model under changing resources: best execution at every size, moved data, and lost nodes."""

from __future__ import annotations

import math
import re
from typing import Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.plans.elastic import model_phases_steps, resource_curve
from dashboard.jobs.elastic_plans import ModelCurves, ModelCurvesQuestion
from dashboard.link import state
from dashboard.link.catalogue import model_of, system_of, systems, usable_models
from dashboard.pages.elastic.answers import answered
from dashboard.pages.elastic.bases import scenario_on
from dashboard.pages.elastic.tables import downloads, worded
from dashboard.queries.accuracy import basis, rate_error
from dashboard.widgets.chart import show
from dashboard.widgets.controls import choose, given, key_for
from dashboard.widgets.link_numbers import whole_in_link
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted, plain
from dashboard.words.scenarios import system_titles
from dashboard.words.waiting import span
from engine import Scenario
from engine.planners.contract import PlanError
from engine.planners.elastic import Phase
from engine.planners.elastic.placements import placements_filling
from engine.planners.elastic.plan_names import with_plan_titles
from engine.planners.elastic.resource_curve import KEEP_SMALLER

__all__ = ["asked_system", "library_model"]

MOST_GPUS: Final = 2_048
MOST_PHASES: Final = 24
_STEPS: Final = re.compile(r"[\d@., ;]{1,300}")
_STEP: Final = re.compile(r"(\d{1,7}(?:\.\d{1,3})?)@(\d{1,7})")
_WAYS: Final = {
    "spares": "Use spare nodes",
    "shrink": "Continue with fewer nodes",
    "wait": "Wait for the repair",
}
_CURVE: Final = {
    "gpus": "GPUs",
    "raw_best": "samples/s",
    "error": "error",
    "gain": "gain, samples/s per GPU",
    "raw_plan": "plan",
    "iteration_s": "iteration, s",
    "memory_gib": "memory, GiB",
    "weights_gib": "weights, GiB",
    "optimizer_gib": "optimizer, GiB",
    "moves_gib": "a GPU receives, GiB",
    "moves_s": "in at least, s",
    "chosen": "other choices",
}
_FAILURE: Final = {
    "way": "way",
    "samples": "samples",
    "throughput": "samples/s",
    "pause_s": "downtime, s",
    "plan": "plan",
    "moves_gib": "a GPU receives, GiB",
    "checkpoint_gib": "from a checkpoint, GiB",
}
_PHASES: Final = {
    "phase": "phase",
    "gpus": "GPUs",
    "plan": "plan",
    "throughput": "samples/s",
    "moves_gib": "a GPU receives, GiB",
    "paused_s": "downtime, s",
    "samples": "samples",
    "chosen": "other choices",
}


def asked_system() -> str:
    """Draws the choice of a system and returns its name."""
    machines = system_titles({name: system_of(name) for name in systems()})
    return choose("System", machines, "elastic_system", default="h100_80g_sxm", width=190)


def library_model(mode: str) -> None:
    """Draws a library model: curve, movement, lost nodes and phases.

    Args:
        mode: "light" or "dark".

    Raises `engine.planners.contract.PlanError`, and the errors of loading a model or a system.
    """
    asked = _ask_curves()
    about = f"{asked.model.title or asked.model.name}, batch {asked.batch:,}, up to {max(asked.sizes):,} GPUs"
    described = (
        "model",
        asked.model.model_dump_json(),
        asked.system.model_dump_json(),
        asked.batch,
        asked.sizes,
        asked.lost,
        asked.spares,
        asked.repair_s,
        asked.phases,
    )
    found = answered(asked, described, "Best plan at every size", about)
    if not isinstance(found, ModelCurves):
        return
    scenario = scenario_on(asked.model, asked.system, max(asked.sizes), asked.batch)
    curve = found.curve.assign(error=_throughput_errors(found.curve, scenario))
    st.html(markup.figure_strip(_curve_tiles(curve, found, asked), basis(scenario, None, ranges=True)))
    left, right = st.columns([1.25, 1], gap="medium")
    with left.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Best throughput over GPUs", "proven optimum of all executions at every size"))
        titled = with_plan_titles(found.curve)
        chart = resource_curve(titled, "gpus", "GPUs", mode, tolerance=KEEP_SMALLER)
        show(chart, "elastic_model_curve")
        st.markdown(literal(chart.alt))
    with right.container(border=True, gap="xsmall", height="stretch"):
        _draw_failure(found, asked)
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("Plan and moved data per size", "per GPU; from the last smaller size"))
        worded(curve, _CURVE, "elastic_model_sizes", "Every size with its plan, memory and what has to move.")
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("Through phases", "a restart of 260 s and the movement at every change"))
        chart = model_phases_steps(found.phases, mode)
        show(chart, "elastic_model_phases")
        st.markdown(literal(chart.alt))
        worded(found.phases, _PHASES, "elastic_model_phase_table", "Every phase with its plan and its samples.")
    tables = {"Sizes": curve, "Phases": found.phases}
    downloads(tables if found.failure is None else {**tables, "Lost nodes": found.failure}, "elastic_model")


def _throughput_errors(curve: pd.DataFrame, scenario: Scenario) -> list[str]:
    """Return the error of the throughput at every size, in a few words."""
    return [
        rate_error(scenario, [each for each in str(told).split("; ") if each]) if runs else ""
        for told, runs in zip(curve["not_measured"], curve["raw_best"].notna(), strict=True)
    ]


def _ask_curves() -> ModelCurvesQuestion:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        known = {name: model_of(name).title or name for name in usable_models()}
        model = choose("Model", known, "elastic_model", default="llama-3-8B", width=180)
        system = system_of(asked_system())
        size = system.node_size
        batch = whole_in_link("elastic_batch", "Global batch", 64, 10**6, "Samples of a step, the same at every size.")
        gpus = whole_in_link("elastic_gpus", "GPUs", 64, MOST_GPUS, "The most that the job may get.")
        lost = whole_in_link("elastic_lost", "Lost nodes", 1, 64, "Nodes that fail at once.")
        spares = _choose_count("elastic_spares", "Spare nodes", 1, "Idle nodes kept in reserve.")
        repair = whole_in_link("elastic_repair", "Repair, min", 60, 100_000, "Until lost nodes are back.")
        steps = _steps_field(gpus, size * lost)
    nodes = max(math.ceil(gpus / size), 1)
    stride = size * max(math.ceil(nodes / 16), 1)
    sizes = {2**power for power in range(12) if 2**power <= gpus} | {*range(stride, gpus + 1, stride), gpus}
    return ModelCurvesQuestion(
        model_of(model), system, batch, tuple(sorted(sizes)), lost, spares, 60.0 * repair, _parse_phases(steps, size)
    )


def _choose_count(parameter: str, label: str, default: int, help: str) -> int:
    """Draw the choice of a small number, from 0 to 8; return it."""
    return int(
        choose(
            label,
            {str(number): str(number) for number in range(9)},
            parameter,
            default=str(default),
            width=110,
            help=help,
        )
    )


def _steps_field(gpus: int, lost: int) -> str:
    """Draws the field of the phases; returns its text."""
    default = f"480@{gpus}, 60@{gpus - lost}, 480@{gpus}" if gpus > lost else f"480@{gpus}"
    value = state.url_value("elastic_steps", default, _STEPS)
    key = key_for("_elastic_steps", value)

    def changed() -> None:
        new = str(given(key)).strip()
        state.set_url_value("elastic_steps", None if new in ("", default) else new)

    st.text_input(
        "Phases: minutes @ GPUs",
        value,
        key=key,
        on_change=changed,
        max_chars=300,
        width=215,
        help="Separated by commas. 60@56 is an hour on 56 GPUs, 5@0 five minutes without any.",
    )
    return value


def _parse_phases(text: str, size: int) -> tuple[Phase, ...]:
    parts = re.split(r"[,;]", text)
    if len(parts) > MOST_PHASES:
        raise PlanError(f"There are {len(parts)} phases; give at most {MOST_PHASES}.")
    found = []
    for part in parts:
        matched = _STEP.fullmatch(part.strip())
        if matched is None or int(matched[2]) > MOST_GPUS or not 0 < float(matched[1]) <= 1e6:
            raise PlanError(
                f"The phase {part.strip()!r} must be minutes above 0, @, and GPUs up to {MOST_GPUS:,}, such as 60@56."
            )
        found.append(Phase(60 * float(matched[1]), placements_filling(int(matched[2]), size)))
    return tuple(found)


def _curve_tiles(curve: pd.DataFrame, found: ModelCurves, asked: ModelCurvesQuestion) -> list[markup.Tile]:
    runs = curve[curve["raw_best"].notna()]
    if not len(runs):
        return [markup.Tile("Runs", "nowhere", f"up to {counted(max(asked.sizes), 'GPU')} with batch {asked.batch:,}")]
    best, first = runs.sort_values("raw_best", kind="stable").iloc[-1], runs.iloc[0]
    tiles = [
        markup.Tile(
            "Most",
            f"{plain(best['raw_best'], 4)} samples/s",
            f"{counted(int(best['gpus']), 'GPU')}",
            error=best["error"],
        ),
        markup.Tile(
            "Fewest GPUs", f"{int(first['gpus']):,}", f"{plain(first['raw_best'], 3)} samples/s", error=first["error"]
        ),
        markup.Tile(
            "Gain per GPU",
            f"{plain(runs['gain'].iloc[-1], 3)} samples/s",
            f"at {counted(int(runs['gpus'].iloc[-1]), 'GPU')}",
        ),
    ]
    moved = runs.dropna(subset=["moves_s"])
    if len(moved):
        most = moved.sort_values("moves_s", kind="stable").iloc[-1]
        told = f"a GPU gets {plain(most['moves_gib'], 3)} GiB, to {int(most['gpus']):,} GPUs"
        tiles.append(markup.Tile("Longest move", f"{plain(most['moves_s'], 3)} s", told))
    if found.failure is not None:
        way = str(found.failure["way"].iloc[0])
        told = f"{counted(asked.lost, 'node')} lost, repaired in {span(asked.repair_s)}"
        tiles.append(markup.Tile("Best response", _WAYS[way], told))
    return tiles


def _draw_failure(found: ModelCurves, asked: ModelCurvesQuestion) -> None:
    """Draw the ways to continue when nodes are lost."""
    told = f"{counted(asked.lost, 'node')} of {max(asked.sizes):,} GPUs lost, {counted(asked.spares, 'spare')}"
    st.html(markup.head("When nodes are lost", told))
    if found.failure is None:
        st.markdown(literal(found.why_not))
        return
    table = found.failure.assign(way=[_WAYS[way] for way in found.failure["way"]])
    worded(table, _FAILURE, "elastic_model_failure", "Each way to continue with its throughput, downtime and samples.")
    best, *others = found.failure.to_dict("records")
    samples, time = plain(best["samples"], 3), span(asked.repair_s)
    sentence = f"{_WAYS[best['way']]}: {samples} samples in {time}"
    if others:
        second = max(others, key=lambda row: float(row["samples"]))
        more = best["samples"] / second["samples"] - 1 if second["samples"] else math.inf
        if more < 100:  # a larger ratio says only that the alternative hardly works
            other = _WAYS[second["way"]].lower()
            sentence += f", {plain(100 * more, 2)} % more than the next best ({other})"
    st.markdown(literal(sentence + "."))
    changed = best["plan"] != found.curve["raw_plan"].iloc[-1] and best["way"] == "shrink"
    if changed:
        st.markdown(literal(f"The plan becomes {best['plan']}: {best['chosen'] or 'nothing else changes'}."))
