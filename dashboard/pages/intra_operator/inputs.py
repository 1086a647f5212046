"""Inputs of the Intra-operator page, which are part of the link."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import streamlit as st

from dashboard.compat.types import Place
from dashboard.link import state
from dashboard.link.catalogue import model_of, system_of, systems
from dashboard.widgets.controls import choose, given, key_for, segments, switch
from dashboard.widgets.link_numbers import DECIMAL, whole_in_link
from dashboard.words.scenarios import system_name, system_titles
from engine.planners.intra_operator import IntraOperatorPlan, Mesh, mesh_of, search, system_mesh
from engine.planners.intra_operator.suites import GPT, LLAMA, MOE, suite_depth
from hardware import names as hardware_names
from models import Model
from models import names as model_names

__all__ = ["OWN", "IntraOperatorInputs", "counted_as", "on_system", "planned", "question", "system_question"]

SOURCES: Final = {"published": "Published model", "library": "Library model"}
OWN: Final = "measured"
"""A system outside the library: rates as entered, by default from CFP's measured runs."""
RATE: Final = 83.8
BANDWIDTH: Final = 20.65
CAPACITY: Final = 40e9
OUTER: Final = 5.0
"""Default bandwidth between groups [GB/s]."""
WIDTHS: Final = {"4": "FP32", "2": "16 bit"}
SHARDED: Final = {"none": "nothing", "zero": "gradients, optimizer state (ZeRO)", "fsdp": "weights, too (FSDP)"}
RECOMPUTE: Final = {"none": "nothing", "selective": "attention", "full": "the whole forward pass"}
CASES: Final = {"gpt": (16, 2), "moe": (64, 4), "llama": (32, 4)}
"""CFP's batch and number of layers, by family."""
GONE: Final = ("intra_operator_layers", "intra_operator_limit", "intra_operator_layer")
"""Parameters that are reset when another model is chosen."""
MOST_DEVICES: Final = 4096
TYPES: Final = {"bfloat16": "BF16", "float16": "FP16", "float8": "FP8", "float4": "FP4", "float32": "FP32"}


@dataclass(frozen=True)
class IntraOperatorInputs:
    """A question of the page. `model` is a published name or a library model; `title` and `system` are labels."""

    model: str | Model
    title: str
    system_id: str
    system: str
    datatype: str
    mesh: Mesh
    batch: int
    layers: int
    depth: int
    """Layers of the whole model."""
    element_bytes: float
    state_bytes: float
    sharded: str
    """A key of `SHARDED`."""
    sequence: bool
    recompute: str = "none"
    """A key of `RECOMPUTE`."""
    accumulation: int = 1
    """Microbatches of a step."""

    @property
    def key(self) -> str:
        """Equal for equal questions."""
        model = self.model if isinstance(self.model, str) else self.model.model_dump_json()
        return repr(
            (
                model,
                self.mesh,
                self.batch,
                self.layers,
                self.element_bytes,
                self.state_bytes,
                self.sharded,
                self.sequence,
                self.recompute,
                self.accumulation,
            )
        )

    @property
    def published(self) -> bool:
        """True for a published model."""
        return isinstance(self.model, str)


def question(place: Place) -> IntraOperatorInputs:
    """Draws the inputs, with rates and memory in their own place; returns the question.

    Raises `engine.planners.contract.PlanError`, and the errors of loading a model or a system.
    """
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        source = segments("Model from", SOURCES, "intra_operator_from", gone=(*GONE, "intra_operator_system"))
        model: str | Model
        if source == "published":
            titles = {name: _suite_title(name) for name in _suite_names()}
            model = choose("Model", titles, "intra_operator_suite", default="gpt F", width=230, gone=GONE)
            title, depth = titles[model].partition(" ·")[0], suite_depth(model)
            batch, layers = CASES[model.partition(" ")[0]]
        else:
            known = {name: model_of(name).title or name for name in model_names()}
            name = choose("Model", known, "intra_operator_model", default="llama-3-8B", width=230, gone=GONE)
            model = model_of(name)
            title, depth = known[name], model.architecture_or_assumed().layers
            batch, layers = 8, depth
        machines = {OWN: "A100 as CFP measured it", **system_titles({each: system_of(each) for each in systems()})}
        first = OWN if source == "published" else "h100_80g_sxm"
        chosen = choose(
            "System",
            machines,
            "intra_operator_system",
            default=first,
            width=230,
            gone=("intra_operator_limit", "intra_operator_type"),
        )
        near = 8 if chosen == OWN else system_of(chosen).node_size
        devices = whole_in_link(
            "intra_operator_devices",
            "Devices",
            min(4 if chosen == OWN else 8, near),
            MOST_DEVICES,
            "Devices that share every layer; those of several networks are a mesh of two axes.",
        )
        size = whole_in_link("intra_operator_batch", "Batch", batch, 10**6, "Sequences of a step.")
        layers = whole_in_link("intra_operator_layers", "Layers", min(layers, depth), depth, f"The model has {depth}.")
    with place.popover("Rates and memory", icon=":material/tune:", help="Rates of devices, bytes of a parameter."):
        mesh, datatype = _ask_mesh(chosen, devices)
        width = choose(
            "Width of an element", WIDTHS, "intra_operator_width", default="4" if source == "published" else "2"
        )
        kept = _decimal_field("Bytes of a parameter", "state", 16.0, "With its gradient and its optimizer state.")
        sharded = choose("Split over devices where a weight is whole", SHARDED, "intra_operator_sharded")
        sequence = switch(
            "Sequence parallel",
            "intra_operator_sequence",
            default=source == "library",
            help="What rows of a weight give is split by tokens: a reduce-scatter in place of an all-reduce.",
        )
        recompute = choose("Computed again in the backward pass", RECOMPUTE, "intra_operator_recompute")
        parts = whole_in_link(
            "intra_operator_microbatches",
            "Microbatches",
            1,
            10**4,
            "Of a step, one after the other; their gradients are added up and exchanged once.",
        )
    return IntraOperatorInputs(
        model,
        title,
        chosen,
        machines[chosen],
        datatype,
        mesh,
        size,
        layers,
        depth,
        float(width),
        kept,
        sharded,
        sequence,
        recompute,
        parts,
    )


def system_question(asked: IntraOperatorInputs, system: str) -> IntraOperatorInputs:
    """Returns the same question about another system, on at most as many devices as its first network joins.

    Products keep their datatype; they are in BF16 if the system lacks it or if rates were entered. A question on more
    devices than one network joins keeps its number of devices.

    Raises the errors of building the mesh.
    """
    found = system_of(system)
    wanted, near = asked.mesh.devices, found.node_size
    devices = wanted if asked.mesh.outer is not None or wanted <= near else near
    datatype = _first_datatype(list(found.matrix), "" if asked.system_id == OWN else asked.datatype)
    mesh = on_system(system, devices, datatype)
    return replace(asked, system_id=system, system=system_name(found), datatype=datatype, mesh=mesh)


def _first_datatype(there: list[str], wanted: str = "") -> str:
    order = [wanted, "bfloat16", "float16", *there]
    return next(each for each in order if each in there)


def _ask_mesh(chosen: str, devices: int) -> tuple[Mesh, str]:
    if chosen != OWN:
        found = system_of(chosen)
        there = [each for each in TYPES if each in found.matrix] or list(found.matrix)
        datatype = choose(
            "Datatype of products",
            {each: TYPES.get(each, each) for each in there},
            "intra_operator_type",
            default=_first_datatype(there),
        )
        return on_system(chosen, devices, datatype), datatype
    rate = _decimal_field("Matrix rate, TFLOP/s", "rate", RATE, "Sustained rate of a device.")
    bandwidth = _decimal_field("Bandwidth, GB/s", "bandwidth", BANDWIDTH, "Sent by a device in a ring.")
    exchange = _decimal_field("All-to-all, GB/s", "exchange", bandwidth, "The same in an all-to-all.")
    alpha = _decimal_field("Time of a collective, µs", "alpha", 0.0, "Besides its bytes.")
    document: dict[str, Any] = {
        "devices": devices,
        "matrix_rate": rate * 1e12,
        "bandwidth": bandwidth * 1e9,
        "memory": CAPACITY,
    }
    if exchange != bandwidth:
        document["all_to_all_bandwidth"] = exchange * 1e9
    if alpha:
        document["alpha"] = alpha * 1e-6
    groups = whole_in_link(
        "intra_operator_groups",
        "Groups of devices",
        1,
        MOST_DEVICES,
        "With more than one the mesh has two axes, as nodes and the devices of each.",
    )
    if groups > 1:
        between = _decimal_field(
            "Bandwidth between groups, GB/s", "outer", OUTER, "Sent by a device in a ring of groups."
        )
        document["outer"] = {"devices": groups, "bandwidth": between * 1e9}
    return mesh_of(document), "float32"


def on_system(name: str, devices: int, datatype: str) -> Mesh:
    """Returns the devices of a system as a mesh, of two axes if its first network joins fewer.

    Raises the errors of loading a system and of `engine.planners.intra_operator.system_mesh`.
    """
    known = name if name in hardware_names() else system_of(name)
    return system_mesh(known, devices, datatype=datatype, tiers=2)


def planned(asked: IntraOperatorInputs, limit: float) -> IntraOperatorPlan:
    """Returns the plan found by the search.

    limit: memory of a device [bytes]. Raises `engine.planners.contract.PlanError`.
    """
    return search(
        asked.model, asked.mesh, memory_limit=limit, batch=asked.batch, layers=asked.layers, **counted_as(asked)
    )


def counted_as(asked: IntraOperatorInputs) -> dict[str, Any]:
    """Returns the sizes of elements and parameters, as keywords of the planner."""
    return {
        "element_bytes": asked.element_bytes,
        "state_bytes": asked.state_bytes,
        "zero": asked.sharded == "zero",
        "fsdp": asked.sharded == "fsdp",
        "sequence_parallel": asked.sequence,
        "recompute": asked.recompute,
        "accumulation": asked.accumulation,
    }


def _suite_names() -> list[str]:
    return [*(f"gpt {each}" for each in GPT), *(f"moe {each}" for each in MOE), "llama"]


def _suite_title(name: str) -> str:
    family, _, letter = name.partition(" ")
    if family == "llama":
        return f"LLaMA · {LLAMA[1]} wide, {LLAMA[2]} layers"
    if family == "gpt":
        return f"GPT {letter} · {GPT[letter][1]} wide, {GPT[letter][2]} layers"
    return f"MoE {letter} · {MOE[letter][1]} wide, {MOE[letter][5]} experts"


def _decimal_field(label: str, name: str, default: float, help: str) -> float:
    parameter = f"intra_operator_{name}"
    text = state.url_value(parameter, "", DECIMAL)
    value = float(text) if text else default
    key = key_for(f"_{parameter}", value)

    def changed() -> None:
        new = given(key)
        same = not new or abs(new - default) < 1e-9
        state.set_url_value(parameter, None if same else f"{new:.4f}".rstrip("0").rstrip("."))

    st.number_input(
        label,
        min_value=0.0 if default == 0 else 0.0001,
        max_value=9_999_999.0,
        value=value,
        step=1.0,
        key=key,
        on_change=changed,
        help=help,
        format="%g",
    )
    return value
