"""Inputs of the Layer-wise page, which are part of the link."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import streamlit as st

from dashboard.link import state
from dashboard.link.catalogue import model_of, named_model, named_system, system_of, systems
from dashboard.link.document_validation import Refused
from dashboard.link.fields import LinkField, LinkReader
from dashboard.pages.layerwise.link import PAGE_NAME, LayerwiseLink
from dashboard.widgets.link_fields import draw_choice, draw_decimal, draw_segments, draw_whole
from dashboard.widgets.upload import file_field, read_file
from dashboard.words.scenarios import system_titles
from engine import Scenario
from engine.planners.contract import PlanError
from engine.planners.layerwise.cluster import PRESETS
from engine.planners.layerwise.profiles.examples import examples
from engine.planners.layerwise.profiles.profile import LayerProfile
from engine.planners.layerwise.profiles.reading import profile_text
from engine.questions.documents.layers import LayersQuestion, SystemShare
from engine.questions.layer_plans import layers_problem
from models import dimensions
from models import plain_names as model_names

__all__ = ["LayerwiseInputs", "draw_inputs", "parse_inputs"]

CLUSTERS: Final = {**{name: f"Cluster {name}" for name in PRESETS}, "own": "Own cluster"}
MOST_PLANNED: Final = 1_024
"""Devices of an own cluster that are planned."""
MOST_GPUS: Final = 4_096
"""GPUs of one system that are planned."""
MOST_MEGABYTES: Final = 4
NONE: Final = "none"
FILE_BATCH: Final = 64
"""Samples of a step of an own profile."""
RATES: Final = ("inside_gb_per_s", "all_reduce_gb_per_s", "transfer_gb_per_s", "memory_gb")


@dataclass(frozen=True)
class LayerwiseInputs:
    """A question of the page."""

    question: LayersQuestion
    about: str
    """Description of the question, for its card."""
    note: str
    """Remarks on the layers."""


def parse_inputs() -> tuple[LayersQuestion, LayerwiseLink, Mapping[str, LinkField]]:
    """Parse the link: the question, the page's other parameters, and all fields by name.

    Model, system, GPUs and batch start as the scenario's, if there is one whose layers can be planned. An own profile
    is not in the link: its question lacks the profile. Raises the errors of loading models and systems.
    """
    asked, page = LinkReader(LayersQuestion, PAGE_NAME), LinkReader(LayerwiseLink, PAGE_NAME)
    source = page.read("source", default="example" if _parse_scenario() is None else "model")
    if source == "model":
        return _parse_model_question(asked, page)
    batch, taken = FILE_BATCH, None
    if source == "example":
        known = {each.name: each for each in examples()}
        chosen = known[
            asked.read("profile", default="bert_48", options={name: each.title for name, each in known.items()})
        ]
        batch, taken = chosen.global_batch, chosen.batch
    else:
        asked.read("profile_batch")
    asked.read("global_batch", default=batch)
    asked.read("microbatch")
    name = asked.read("cluster", default="A", options=CLUSTERS)
    start = PRESETS.get(name, PRESETS["A"])
    machines = None
    if name == "own":
        count, devices = page.read("machine_count"), page.read("devices")
        if count * devices <= MOST_PLANNED:  # otherwise the inputs are drawn with the reason
            machines = [devices * number for number in range(1, count + 1)]
    # Empty fields would be unclear here: they show the values of the cluster.
    given = dict(zip(RATES, (start.inside, start.all_reduce, start.transfer, start.machines[0].memory), strict=True))
    rates = {each: asked.read(each, default=value / 1e9) for each, value in given.items()}
    asked.read("optimizer")
    asked.read("mode", default="paper")
    question = asked.build(
        cluster=None if name == "own" else name,
        machines=machines,
        **{each: None if rate == given[each] / 1e9 else rate for each, rate in rates.items()},
        **({} if taken is None else {"profile_batch": taken}),
    )
    return question, page.build(), {**asked.fields, **page.fields}


def _parse_scenario() -> Scenario | None:
    """Return the scenario of the link if it can be planned here: a model of plain layers, on a system that has the
    datatype of plans."""
    if not state.has_scenario() or state.has_parameter(f"{PAGE_NAME}_profile"):
        return None
    scenario = state.current_scenario()
    can_plan = scenario.model.name in model_names() and scenario.system.has_rate("bfloat16")
    return scenario if can_plan else None


def _parse_model_question(
    asked: LinkReader[LayersQuestion], page: LinkReader[LayerwiseLink]
) -> tuple[LayersQuestion, LayerwiseLink, Mapping[str, LinkField]]:
    library = {name: model_of(name).title or name for name in model_names()}
    machines = system_titles({name: system_of(name) for name in systems()})
    start = ("llama-3-70B", "h100_80g_sxm", 64, 128)
    scenario = _parse_scenario()
    if scenario is not None:
        system = scenario.system.name if scenario.system.name in machines else start[1]
        start = (scenario.model.name, system, min(scenario.num_procs, MOST_GPUS), scenario.max_batch_size)
    model = asked.read("model", default=start[0], options=library)
    shares = [
        page.read("system", default=start[1], options=machines),
        page.read("second", options={NONE: "none", **machines}),
    ]
    gpus = page.read("gpus", default=start[2])
    # A device of the plan is a group of tensor parallel GPUs, as many as divide the GPUs and the layers.
    sizes = dimensions(model_of(model))
    asked.read("tensor_par", default=math.gcd(8, gpus, sizes.hidden, sizes.attn_heads), most=64)
    asked.read("global_batch", default=start[3])
    question = asked.build(
        model=named_model(model),
        systems=[SystemShare(system=named_system(each), num_procs=gpus) for each in shares if each != NONE],
    )
    return question, page.build(), {**asked.fields, **page.fields}


def draw_inputs(
    question: LayersQuestion, link: LayerwiseLink, fields: Mapping[str, LinkField]
) -> LayerwiseInputs | None:
    """Draw the inputs and return the question with its labels; None until a file is uploaded.

    Args:
        question: of the link; without the profile where it is uploaded.
        link: the page's other parameters.
        fields: of the page by name.

    Raises `engine.planners.contract.PlanError`.
    """
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        draw_segments(fields["source"])
        if link.source == "model":
            return _draw_model_inputs(question, fields)
        profile, note = None, ""
        if link.source == "example":
            draw_choice(fields["profile"], help="", width=190, resets=("layerwise_batch",))
            note = next(each.note for each in examples() if each.name == question.profile)
        else:
            uploaded = _upload_profile()
            if uploaded is None:
                return None
            profile, text = uploaded
            taken = fields["profile_batch"].with_default(float(int(profile.batch or 1)))
            draw_decimal(taken, help="Batch of the measured profile.", width=104)
            question = question.model_copy(
                update={"profile": text, "profile_name": profile.name, "profile_batch": taken.value}
            )
        draw_whole(fields["global_batch"])
        draw_whole(fields["microbatch"], help="Samples of a microbatch of one pipeline.")
        _draw_cluster(fields)
        draw_segments(fields["mode"])
    if "machine_count" in fields and link.machine_count * link.devices > MOST_PLANNED:
        raise PlanError(
            f"{link.machine_count} machines of {link.devices} are more than the {MOST_PLANNED:,} devices that are "
            "planned."
        )
    problem = layers_problem(question, profile)
    about = f"{problem.profile.name} on {problem.cluster.size} devices, batch {question.global_batch:,}"
    return LayerwiseInputs(question, about, note)


def _draw_model_inputs(question: LayersQuestion, fields: Mapping[str, LinkField]) -> LayerwiseInputs:
    draw_choice(fields["model"], help="", width=210)
    draw_choice(fields["system"], width=210)
    draw_choice(fields["second"], width=190)
    draw_whole(fields["gpus"], label="GPUs")
    draw_whole(fields["tensor_par"], help="GPUs that share every layer; one device of the plan.")
    draw_whole(fields["global_batch"], help="Sequences of a step.")
    gpus = sum(each.num_procs for each in question.systems or ())
    title = fields["model"].options[fields["model"].value]
    return LayerwiseInputs(question, f"{title} on {gpus} GPUs, batch {question.global_batch:,}", "")


def _draw_cluster(fields: Mapping[str, LinkField]) -> None:
    with st.popover("Cluster", icon=":material/dns:", help="Machines, their devices, networks and memory."):
        draw_choice(fields["cluster"], help="", resets=("layerwise_machines", "layerwise_devices"))
        if "machine_count" in fields:
            draw_whole(fields["machine_count"])
            draw_whole(fields["devices"])
        else:
            st.caption(f"{PRESETS[fields['cluster'].value].name}.")
        for name, help in zip(
            RATES, ("Of a device’s link.", "Sustained.", "Sustained.", "Of each device."), strict=True
        ):
            draw_decimal(fields[name], help=help)
        draw_decimal(
            fields["optimizer"], help="Parameters, gradients and optimizer states in multiples of the parameters."
        )


def _upload_profile() -> tuple[LayerProfile, str] | None:
    """Draw the field for a profile; return it with its text."""
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
        return read_file(_read_profile, file.getvalue(), file.name)
    except Refused as problem:
        raise PlanError(str(problem)) from None


def _read_profile(content: bytes, name: str) -> tuple[LayerProfile, str]:
    text = content.decode("utf-8-sig")
    return profile_text(text, name=name), text
