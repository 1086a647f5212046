"""A library model under changing resources: best execution at every size, moved data, and lost nodes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.plans.elastic import model_phases_steps, resource_curve
from dashboard.link import state
from dashboard.link.catalogue import model_of, named_model, named_system, system_of, systems, usable_models
from dashboard.link.fields import LinkField, LinkReader
from dashboard.link.figures import parse_figures
from dashboard.pages.elastic.answers import answer_later
from dashboard.pages.elastic.bases import scenario_on
from dashboard.pages.elastic.link import MOST_GPUS, PAGE_NAME, STEPS_TEXT, ElasticLink
from dashboard.pages.elastic.tables import downloads, worded
from dashboard.queries.accuracy import basis, rate_error
from dashboard.widgets.chart import show
from dashboard.widgets.figures import draw_doubts
from dashboard.widgets.link_fields import draw_choice, draw_decimal, draw_text, draw_whole
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted, format_value, gibibytes, plain
from dashboard.words.scenarios import system_titles
from dashboard.words.waiting import span
from engine import Scenario
from engine.executions.execution_names import execution_name
from engine.planners.contract import PlanError
from engine.planners.elastic.placements import placement_text, placements_filling
from engine.planners.elastic.plan_names import with_plan_titles
from engine.planners.elastic.resource_curve import KEEP_SMALLER
from engine.questions.documents.elastic import ElasticQuestion, PhaseDocument
from engine.questions.elastic_models import ElasticPlans
from engine.recommendation import FIGURES_OF
from hardware import System
from models import Model

__all__ = ["ModelView", "draw_model", "parse_model", "parse_scenario", "parse_system"]

MOST_PHASES: Final = 24
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


@dataclass(frozen=True, slots=True)
class ModelView:
    """Part of the link about a library model."""

    mode: str
    fields: Mapping[str, LinkField]
    model: Model
    system: System
    question: ElasticQuestion | None
    problem: str = ""
    """Sentence about phases that are not understood."""

    @property
    def most(self) -> int:
        """Returns the most GPUs that the job may get."""
        return int(self.fields["most_gpus"].value)


def parse_system(reader: LinkReader[Any], start: str = "h100_80g_sxm") -> str:
    """Parse the name of a system. reader: of a question with a system. start: the system without the parameter."""
    machines = system_titles({name: system_of(name) for name in systems()})
    return str(reader.read("system", default=start, options=machines))


def parse_scenario() -> Scenario | None:
    """Return the scenario of the link if it can be planned here: of a model and a system in the lists, which has the
    datatype of plans."""
    if not state.has_scenario():
        return None
    scenario = state.current_scenario()
    known = scenario.model.name in usable_models() and scenario.system.name in systems()
    return scenario if known and scenario.system.has_rate("bfloat16") else None


def parse_model(mode: str) -> ModelView:
    """Parse this part of the link; model, system, GPUs and batch start as the scenario's. mode: "light" or "dark"."""
    page, asked = LinkReader(ElasticLink, PAGE_NAME), LinkReader(ElasticQuestion, PAGE_NAME)
    known = {name: model_of(name).title or name for name in usable_models()}
    start = ("llama-3-8B", "h100_80g_sxm", 64, 64)
    now = parse_scenario()
    if now is not None:
        start = (now.model.name, now.system.name, now.max_batch_size, min(now.num_procs, MOST_GPUS))
    name = asked.read("model", default=start[0], options=known)
    machine = parse_system(asked, start[1])
    system = system_of(machine)
    size = system.node_size
    batch = asked.read("global_batch", default=start[2])
    gpus = page.read("most_gpus", default=start[3])
    lost = asked.read("lost_nodes", default=1, most=64)
    asked.read("spare_nodes", default=1, options={number: str(number) for number in range(9)})
    asked.read("repair_s", most=100_000)
    default = f"480@{gpus}, 60@{gpus - size * lost}, 480@{gpus}" if gpus > size * lost else f"480@{gpus}"
    text = page.read("steps", default=default, pattern=STEPS_TEXT)
    nodes = max(math.ceil(gpus / size), 1)
    stride = size * max(math.ceil(nodes / 16), 1)
    sizes = {2**power for power in range(12) if 2**power <= gpus} | {*range(stride, gpus + 1, stride), gpus}
    question, problem = None, ""
    try:
        question = asked.build(
            model=named_model(name),
            system=named_system(machine),
            global_batch=batch,
            gpus=sorted(sizes),
            phases=_read_phases(text, size),
            **parse_figures().question.model_dump(),
        )
    except ValueError as error:
        problem = str(error)
    return ModelView(mode, {**page.fields, **asked.fields}, model_of(name), system, question, problem)


def draw_model(view: ModelView) -> None:
    """Draw a library model: curve, movement, lost nodes and phases.

    Raises `engine.planners.contract.PlanError` for phases that are not understood.
    """
    _draw_inputs(view.fields)
    asked, mode = view.question, view.mode
    if asked is None:
        raise PlanError(view.problem)
    about = f"{view.model.title or view.model.name}, batch {asked.global_batch:,}, up to {view.most:,} GPUs"
    found = answer_later(asked, "Best plan at every size", about)
    if not isinstance(found, ElasticPlans) or found.phases is None:
        return
    scenario = scenario_on(view.model, view.system, view.most, asked.global_batch)
    curve = found.curve.assign(error=_throughput_errors(found.curve, scenario))
    st.html(markup.figure_strip(_curve_tiles(curve, found, view, asked), basis(scenario, None, ranges=True)))
    left, right = st.columns([1.25, 1], gap="medium")
    with left.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Best throughput over GPUs", "proven optimum of all executions at every size"))
        titled = with_plan_titles(found.curve)
        chart = resource_curve(titled, "gpus", "GPUs", mode, tolerance=KEEP_SMALLER)
        show(chart, "elastic_model_curve")
        st.markdown(literal(chart.alt))
        _draw_shown(found)
    with right.container(border=True, gap="xsmall", height="stretch"):
        _draw_failure(found, view, asked)
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
    downloads(tables if found.recovery is None else {**tables, "Lost nodes": found.recovery}, "elastic_model")


def _draw_shown(found: ElasticPlans) -> None:
    """Draw the execution at the largest size whose figures all pages show."""
    if found.shown is None or found.scenario is None:
        return
    row, gpus = found.shown.execution, found.scenario.num_procs
    st.html(
        markup.facts(
            [
                (f"{FIGURES_OF[found.shown.figures_of]} at {counted(gpus, 'GPU')}", execution_name(row)),
                ("Step time", format_value("total_time", row["total_time"])),
                ("Throughput", format_value("sample_rate", row["sample_rate"])),
                ("HBM", gibibytes(row["proc_mem_tier1_cap_req"])),
            ]
        )
    )
    draw_doubts(found.scenario, row, found.shown.remark)
    st.caption("Plans of every size are the fastest; the execution above follows Figures of.")


def _throughput_errors(curve: pd.DataFrame, scenario: Scenario) -> list[str]:
    """Return the error of the throughput at every size, in a few words."""
    return [
        rate_error(scenario, [each for each in str(told).split("; ") if each]) if runs else ""
        for told, runs in zip(curve["not_measured"], curve["raw_best"].notna(), strict=True)
    ]


def _draw_inputs(fields: Mapping[str, LinkField]) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        draw_choice(fields["model"], help="", width=180)
        draw_choice(fields["system"], help="", width=190)
        draw_whole(fields["global_batch"], help="Samples of a step, the same at every size.")
        draw_whole(fields["most_gpus"])
        draw_whole(fields["lost_nodes"], help="Nodes that fail at once.")
        draw_choice(fields["spare_nodes"], width=110)
        draw_decimal(fields["repair_s"], width=110)
        draw_text(fields["steps"], label="Phases: minutes @ GPUs", most=300, width=215)


def _read_phases(text: str, size: int) -> list[PhaseDocument]:
    """Return phases from their text, on nodes of a size [GPUs].

    Raises `engine.planners.contract.PlanError` naming the phase at fault.
    """
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
        gpus = int(matched[2])
        placement = placement_text(placements_filling(gpus, size)) if gpus else "0"
        found.append(PhaseDocument(placement=placement, duration_s=60 * float(matched[1])))
    return found


def _curve_tiles(
    curve: pd.DataFrame, found: ElasticPlans, view: ModelView, asked: ElasticQuestion
) -> list[markup.Tile]:
    runs = curve[curve["raw_best"].notna()]
    if not len(runs):
        return [markup.Tile("Runs", "nowhere", f"up to {counted(view.most, 'GPU')} with batch {asked.global_batch:,}")]
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
    if found.recovery is not None:
        way = str(found.recovery["way"].iloc[0])
        told = f"{counted(asked.lost_nodes or 0, 'node')} lost, repaired in {span(asked.repair_s)}"
        tiles.append(markup.Tile("Best response", _WAYS[way], told))
    return tiles


def _draw_failure(found: ElasticPlans, view: ModelView, asked: ElasticQuestion) -> None:
    """Draw the ways to continue when nodes are lost."""
    told = f"{counted(asked.lost_nodes or 0, 'node')} of {view.most:,} GPUs lost, {counted(asked.spare_nodes, 'spare')}"
    st.html(markup.head("When nodes are lost", told))
    if found.recovery is None:
        st.markdown(literal(found.no_recovery))
        return
    table = found.recovery.assign(way=[_WAYS[way] for way in found.recovery["way"]])
    worded(table, _FAILURE, "elastic_model_failure", "Each way to continue with its throughput, downtime and samples.")
    best, *others = found.recovery.to_dict("records")
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
