"""Inputs of the Intra-operator page, which are part of the link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import streamlit as st

from dashboard.compat.types import Place
from dashboard.link import state
from dashboard.link.catalogue import model_of, named_system, system_of, systems
from dashboard.link.fields import LinkField, LinkReader
from dashboard.pages.intra_operator.link import LIKE, PAGE_NAME, IntraOperatorLink
from dashboard.widgets.link_fields import draw_choice, draw_decimal, draw_segments, draw_switch, draw_whole
from dashboard.words.scenarios import system_name, system_titles
from engine.planners.intra_operator import IntraOperatorPlan, Mesh, search
from engine.questions.documents.operators import OperatorsQuestion, OuterAxis
from engine.questions.plans import planned_sizes, question_mesh, question_model
from engine.reproductions.alpa.suite_models import GPT, LLAMA, MOE, suite_depth
from models import Model, datatypes
from models import plain_names as model_names

__all__ = [
    "OWN",
    "IntraOperatorInputs",
    "draw_inputs",
    "parse_inputs",
    "planned",
    "system_question",
]

OWN: Final = "measured"
"""A system outside the library: rates as entered, by default from CFP's measured runs."""
CAPACITY: Final = 40e9
"""Memory of the A100 on which CFP measured [bytes]."""
WIDTHS: Final = {4.0: "FP32", 2.0: "16 bit"}
CASES: Final = {"gpt": (16, 2), "moe": (64, 4), "llama": (32, 4)}
"""CFP's batch and number of layers, by family."""
GONE: Final = ("intra_operator_layers", "intra_operator_limit", "intra_operator_layer")
"""Parameters that are reset when another model is chosen."""


@dataclass(frozen=True)
class IntraOperatorInputs:
    """The page's question with its labels."""

    question: OperatorsQuestion
    title: str
    """Title of the model."""
    system_id: str
    system: str
    """Title of the system."""
    depth: int
    """Layers of the whole model."""

    @cached_property
    def mesh(self) -> Mesh:
        """Devices of the question. Raises the errors of building a mesh."""
        found = question_mesh(self.question)
        return replace(found, memory=CAPACITY) if self.question.system is None else found

    @cached_property
    def model(self) -> str | Model:
        """Name of a published model, or a model of the library."""
        return question_model(self.question)

    @property
    def batch(self) -> int:
        """Sequences of a step."""
        return self.question.batch

    @property
    def layers(self) -> int:
        """Layers of the question."""
        return self.depth if self.question.layers is None else self.question.layers

    @property
    def key(self) -> str:
        """Equal for equal questions."""
        return self.question.model_dump_json()

    @property
    def published(self) -> bool:
        """True for a published model."""
        return isinstance(self.model, str)


def parse_inputs() -> tuple[IntraOperatorInputs, IntraOperatorLink, Mapping[str, LinkField]]:
    """Parse the link: the question with its labels, the page's other parameters, and all fields by name.

    Model and system start as the scenario's, if there is one whose products can be split. Raises
    `engine.planners.contract.PlanError`, and the errors of loading a model or a system.
    """
    asked, page = LinkReader(OperatorsQuestion, PAGE_NAME), LinkReader(IntraOperatorLink, PAGE_NAME)
    known = {name: model_of(name).title or name for name in model_names()}
    follows = state.has_scenario() and not state.has_parameter(f"{PAGE_NAME}_suite")
    scenario = state.current_scenario() if follows else None
    if scenario is not None and scenario.model.name not in known:
        scenario = None
    is_published = page.read("source", default="published" if scenario is None else "library") == "published"
    if is_published:
        model = page.read("suite", options={name: _suite_title(name) for name in _suite_names()})
        title, depth = page.fields["suite"].options[model].partition(" ·")[0], suite_depth(model)
        batch, layers = CASES[model.partition(" ")[0]]
    else:
        model = asked.read("model", default="llama-3-8B" if scenario is None else scenario.model.name, options=known)
        title, depth = known[model], model_of(model).architecture_or_assumed().layers
        batch, layers = 8, depth
    machines = {OWN: "A100 as CFP measured it", **system_titles({each: system_of(each) for each in systems()})}
    start = "h100_80g_sxm"
    if scenario is not None and scenario.system.name in machines:
        start = scenario.system.name
    system = asked.read("system", default=OWN if is_published else start, options=machines)
    near = 8 if system == OWN else system_of(system).node_size
    asked.read("devices", default=min(4 if system == OWN else 8, near))
    asked.read("batch", default=batch)
    asked.read("layers", default=min(layers, depth), most=depth)
    outer = _parse_rates(asked, page) if system == OWN else None
    if system != OWN:
        there = system_of(system).offered_datatypes
        labels = {each: datatypes.label_of(each) for each in there}
        asked.read("datatype", default=_first_datatype(there), options=labels)
    asked.read("element_bytes", default=4.0 if is_published else 2.0, options=WIDTHS)
    asked.read("state_bytes")
    asked.read("sequence_parallel", default=not is_published)
    asked.read("recompute")
    asked.read("accumulation", most=10**4)
    asked.read("memory_limit_gib")
    sharded = page.read("sharded")
    for name in ("sweeps", "beside", "shown", "over", "result", "layer"):
        page.read(name)
    page.read("like", pattern=LIKE)
    exchange = asked.fields.get("all_to_all_gb_per_s")
    question = asked.build(
        model=model,
        all_to_all_gb_per_s=None if exchange is None or exchange.value == exchange.default else exchange.value,
        system=None if system == OWN else named_system(system),
        tiers=1 if system == OWN else 2,
        outer=outer,
        zero=sharded == "zero",
        fsdp=sharded == "fsdp",
    )
    inputs = IntraOperatorInputs(question, title, system, machines[system], depth)
    return inputs, page.build(), {**asked.fields, **page.fields}


def _parse_rates(asked: LinkReader[OperatorsQuestion], page: LinkReader[IntraOperatorLink]) -> OuterAxis | None:
    """Parse the rates of devices outside the library; return the outer axis of their mesh, if it has one."""
    asked.read("matrix_rate_tflops")
    asked.read("all_to_all_gb_per_s", default=asked.read("bandwidth_gb_per_s"))
    asked.read("alpha_s")
    groups, bandwidth = page.read("groups"), page.read("outer_bandwidth")
    return OuterAxis(devices=groups, bandwidth_gb_per_s=bandwidth) if groups > 1 else None


def draw_inputs(fields: Mapping[str, LinkField], depth: int, place: Place) -> None:
    """Draw the inputs.

    Args:
        fields: of the page by name.
        depth: layers of the whole model.
        place: where rates and memory are.
    """
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        draw_segments(fields["source"], resets=(*GONE, "intra_operator_system"))
        draw_choice(fields["model" if "model" in fields else "suite"], label="Model", width=230, resets=GONE)
        draw_choice(fields["system"], width=230, resets=("intra_operator_limit", "intra_operator_type"))
        draw_whole(fields["devices"])
        draw_whole(fields["batch"])
        draw_whole(fields["layers"], help=f"The model has {depth}.")
    with place.popover("Rates and memory", icon=":material/tune:", help="Rates of devices, bytes of a parameter."):
        if "datatype" in fields:
            draw_choice(fields["datatype"])
        for name in ("matrix_rate_tflops", "bandwidth_gb_per_s", "all_to_all_gb_per_s", "alpha_s"):
            if name in fields:
                draw_decimal(fields[name])
        if "groups" in fields:
            draw_whole(fields["groups"])
            if fields["groups"].value > 1:
                draw_decimal(fields["outer_bandwidth"])
        draw_choice(fields["element_bytes"])
        draw_decimal(fields["state_bytes"])
        draw_choice(fields["sharded"])
        draw_switch(fields["sequence_parallel"])
        draw_choice(fields["recompute"])
        draw_whole(fields["accumulation"])


def system_question(asked: IntraOperatorInputs, system: str) -> IntraOperatorInputs:
    """Return the same question about another system, on at most as many devices as a node has.

    Products keep their datatype; they are in BF16 if the system lacks it or if rates were entered. A question on more
    devices than a node has keeps its number of devices.

    Raises the errors of building the mesh.
    """
    found = system_of(system)
    wanted, near = asked.mesh.devices, found.node_size
    devices = wanted if asked.mesh.outer is not None or wanted <= near else near
    datatype = _first_datatype(found.offered_datatypes, "" if asked.system_id == OWN else asked.question.datatype)
    other = {"system": named_system(system), "tiers": 2, "devices": devices, "datatype": datatype, "outer": None}
    question = asked.question.model_copy(update=other)
    return IntraOperatorInputs(question, asked.title, system, system_name(found), asked.depth)


def _first_datatype(there: tuple[str, ...], wanted: str = "") -> str:
    order = [wanted, "bfloat16", "float16", *there]
    return next(each for each in order if each in there)


def planned(asked: IntraOperatorInputs, limit: float) -> IntraOperatorPlan:
    """Return the plan found by the search.

    limit: memory of a device [bytes]. Raises `engine.planners.contract.PlanError`.
    """
    return search(asked.model, asked.mesh, memory_limit=limit, **planned_sizes(asked.question))


def _suite_names() -> list[str]:
    return [*(f"gpt {each}" for each in GPT), *(f"moe {each}" for each in MOE), "llama"]


def _suite_title(name: str) -> str:
    family, _, letter = name.partition(" ")
    if family == "llama":
        return f"LLaMA · {LLAMA[1]} wide, {LLAMA[2]} layers"
    if family == "gpt":
        return f"GPT {letter} · {GPT[letter][1]} wide, {GPT[letter][2]} layers"
    return f"MoE {letter} · {MOE[letter][1]} wide, {MOE[letter][5]} experts"
