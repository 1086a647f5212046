"""Inputs of the Layer-wise page, which are part of the link."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Final

import streamlit as st

from dashboard.jobs.layer_plans import ModelQuestion
from dashboard.link import state
from dashboard.link.catalogue import model_of, system_of, systems
from dashboard.link.document_validation import Refused
from dashboard.widgets.controls import choose, given, key_for, segments
from dashboard.widgets.link_numbers import DECIMAL, whole_in_link
from dashboard.widgets.upload import file_field, read_file
from dashboard.words.scenarios import system_titles
from engine.planners.contract import PlanError
from engine.planners.layerwise import LayerwiseProblem
from engine.planners.layerwise.cluster import PRESETS, MachineCluster, hierarchical
from engine.planners.layerwise.problem import checked
from engine.planners.layerwise.profiles.examples import ProfileExample, example, examples
from engine.planners.layerwise.profiles.profile import LayerProfile
from engine.planners.layerwise.profiles.reading import profile_text
from models import names as model_names

__all__ = ["LayerwiseInputs", "question"]

SOURCES: Final = {"example": "Example", "model": "Library model", "file": "Own profile"}
MODES: Final = {"paper": "Paper’s latency", "released": "Released"}
CLUSTERS: Final = {**{name: f"Cluster {name}" for name in PRESETS}, "own": "Own cluster"}
MOST_MEGABYTES: Final = 4
NONE: Final = "none"


@dataclass(frozen=True)
class LayerwiseInputs:
    """A question of the page. `key` identifies it, `about` describes it, `note` is about the layers."""

    asked: LayerwiseProblem | ModelQuestion
    key: str
    about: str
    note: str


def question() -> LayerwiseInputs | None:
    """Draws the inputs and returns the question; None until a file is uploaded.

    Raises `engine.planners.contract.PlanError`, and the errors of loading a model or a system.
    """
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        source = segments("Layers from", SOURCES, "layerwise_from")
        if source == "model":
            return _model_question()
        if source == "example":
            chosen, profile = _choose_example()
            batch, taken = chosen.global_batch, chosen.batch
            note = chosen.note
        else:
            found = _upload_profile()
            if found is None:
                return None
            profile, batch, note = found, 64, ""
            taken = _whole_field("Profile batch", "taken", int(found.batch or 1), 10**6, "Samples it was measured at.")
        global_batch = _whole_field("Global batch", "batch", batch, 10**6, "Samples of a step.")
        microbatch = _whole_field("Microbatch", "microbatch", 1, 10**6, "Samples of a microbatch of one pipeline.")
        cluster, optimizer = _ask_cluster()
        mode = segments("Search", MODES, "layerwise_mode")
    problem = checked(LayerwiseProblem(profile, taken, global_batch, cluster, microbatch, mode, optimizer))
    key = hashlib.sha256(repr(problem.document()).encode()).hexdigest()
    return LayerwiseInputs(problem, key, f"{profile.name} on {cluster.size} devices, batch {global_batch:,}", note)


def _choose_example() -> tuple[ProfileExample, LayerProfile]:
    known = {each.name: each for each in examples()}
    name = choose(
        "Profile",
        {name: each.title for name, each in known.items()},
        "layerwise_profile",
        default="bert_48",
        width=190,
        gone=("layerwise_batch",),
    )
    return known[name], example(name)


def _upload_profile() -> LayerProfile | None:
    with st.popover("Profile", icon=":material/upload_file:", help="A profile of your own layers."):
        st.caption(
            "TorchGraph text of PipeDream’s profiler, or CSV or JSON with layer, forward_s, backward_s, "
            f"activation_bytes and parameter_bytes, up to {MOST_MEGABYTES} MB. It stays on this server while this page "
            "is open."
        )
        file = file_field("Layer profile", ["txt", "csv", "json"], "layerwise_upload", MOST_MEGABYTES)
    if file is None:
        st.info("Upload a profile of layers, or take an example.", icon=":material/upload_file:")
        return None
    try:
        return read_file(_parse_profile, file.getvalue(), file.name)
    except Refused as problem:
        raise PlanError(str(problem)) from None


def _parse_profile(content: bytes, name: str) -> LayerProfile:
    return profile_text(content.decode("utf-8-sig"), name=name)


def _model_question() -> LayerwiseInputs:
    library = {name: model_of(name).title or name for name in model_names()}
    model = choose("Model", library, "layerwise_model", default="llama-3-70B", width=210)
    machines = system_titles({name: system_of(name) for name in systems()})
    system = choose("System", machines, "layerwise_system", default="h100_80g_sxm", width=210)
    second = choose(
        "Second system",
        {NONE: "none", **machines},
        "layerwise_second",
        default=NONE,
        width=190,
        help="A second kind of GPU in the same cluster, as many again.",
    )
    gpus = _whole_field("GPUs", "gpus", 64, 4096, "Of each system.")
    tensor = _whole_field("Tensor parallel", "tensor", 8, 64, "GPUs that share every layer; one device of the plan.")
    batch = _whole_field("Global batch", "batch", 128, 10**6, "Sequences of a step.")
    parts = [(system_of(system), gpus)] + ([(system_of(second), gpus)] if second != NONE else [])
    asked = ModelQuestion(model_of(model), tuple(parts), batch, tensor)
    described = (asked.model.model_dump_json(), [(s.model_dump_json(), n) for s, n in parts], batch, tensor)
    key = hashlib.sha256(repr(described).encode()).hexdigest()
    return LayerwiseInputs(asked, key, f"{library[model]} on {gpus * len(parts)} GPUs, batch {batch:,}", "")


def _ask_cluster() -> tuple[MachineCluster, float]:
    """Draw the choice of a cluster; return it and the optimizer's factor."""
    with st.popover("Cluster", icon=":material/dns:", help="Machines, their devices, networks and memory."):
        name = choose(
            "Cluster", CLUSTERS, "layerwise_cluster", default="A", gone=("layerwise_machines", "layerwise_devices")
        )
        start = PRESETS.get(name, PRESETS["A"])
        if name == "own":
            machines = _whole_field("Machines", "machines", 2, 256, "Machines of the cluster.")
            devices = _whole_field("Devices of each", "devices", 8, 64, "Devices of a machine.")
            if machines * devices > 1024:
                raise PlanError(f"{machines} machines of {devices} are more than the 1,024 devices that are planned.")
            start = hierarchical(machines, devices)
        else:
            st.caption(f"{start.name}.")
        inside = _decimal_field("Inside a machine, GB/s", "inside", start.inside / 1e9, "Of a device’s link.")
        reduce = _decimal_field("All-reduce between machines, GB/s", "reduce", start.all_reduce / 1e9, "Sustained.")
        transfer = _decimal_field("Transfers between machines, GB/s", "transfer", start.transfer / 1e9, "Sustained.")
        memory = _decimal_field("Memory of a device, GB", "memory", start.machines[0].memory / 1e9, "Of each device.")
        optimizer = _decimal_field(
            "Parameters with optimizer",
            "optimizer",
            1.0,
            "Parameters, gradients and optimizer states in multiples of the parameters.",
        )
    made = tuple(replace(machine, memory=memory * 1e9) for machine in start.machines)
    return (
        replace(start, machines=made, inside=inside * 1e9, all_reduce=reduce * 1e9, transfer=transfer * 1e9),
        optimizer,
    )


def _whole_field(label: str, name: str, default: int, most: int, help: str) -> int:
    return whole_in_link(f"layerwise_{name}", label, default, most, help)


def _decimal_field(label: str, name: str, default: float, help: str) -> float:
    parameter = f"layerwise_{name}"
    text = state.url_value(parameter, "", DECIMAL)
    value = float(text) if text else default
    key = key_for(f"_{parameter}", value)

    def changed() -> None:
        new = given(key)
        same = not new or abs(new - default) < 1e-9
        state.set_url_value(parameter, None if same else f"{new:.4f}".rstrip("0").rstrip("."))

    st.number_input(
        label,
        min_value=0.0001,
        max_value=9_999_999.0,
        value=value,
        step=1.0,
        key=key,
        on_change=changed,
        help=help,
        format="%g",
    )
    return value
