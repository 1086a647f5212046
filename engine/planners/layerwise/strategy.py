"""Plans as files for training frameworks: JSON, Megatron's layout string, and a graph."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from engine.columns.stage_layouts import list_of_layers
from engine.planners.contract import PlanError
from engine.planners.layerwise.result import LayerwisePlan

__all__ = [
    "BLOCK",
    "EMBEDDING",
    "HEAD",
    "PREDICTION",
    "graph_text",
    "megatron_layout",
    "strategy",
    "strategy_text",
    "user_stages",
]

EMBEDDING: Final = "embedding"
BLOCK: Final = "block"
PREDICTION: Final = "prediction"
HEAD: Final = "head"
"""Names of layers in a profile of a library model: the embedding, `block 0` and on, `prediction 0` and on where such
layers are trained, and the head."""


def strategy(plan: LayerwisePlan) -> dict[str, Any]:
    """Returns a plan as a document: half-open ranges of layers with their names, replicas and devices of each stage.

    Args:
        plan: one that `solve` returned.
    """
    profile = plan.problem.profile
    found = []
    for stage in plan.stages:
        layers = plan.layers(stage)
        found.append(
            {
                "start": stage.start,
                "end": stage.stop,
                "replicas": len(stage.devices),
                "devices": list(stage.devices),
                "recompute": stage.recompute,
                "layers": [profile.layers[at].id for at in layers],
            }
        )
    return {
        "planner": plan.planner,
        "version": plan.version,
        "mode": plan.problem.mode,
        "profile": profile.name,
        "global_batch": plan.problem.global_batch,
        "microbatch": plan.problem.microbatch,
        "pipelines": plan.copies,
        "cluster": plan.problem.cluster.document(),
        "figures": {each.name: each.value for each in plan.figures},
        "stages": found,
        "pipeline_model_parallel_layout": megatron_layout(plan),
        "notes": list(plan.notes),
    }


def strategy_text(plan: LayerwisePlan) -> str:
    """Returns `strategy` as JSON.

    Args:
        plan: one that `solve` returned.
    """
    return json.dumps(strategy(plan), indent=1)


def megatron_layout(plan: LayerwisePlan) -> str | None:
    """Returns Megatron-LM's `--pipeline-model-parallel-layout`: `E` the embedding, `t` a block, `m` a layer for
    multi-token prediction, `L` the loss, `|` between stages.

    None for profiles whose layers are not a library transformer's.

    Args:
        plan: one that `solve` returned.
    """
    layers = plan.problem.profile.layers
    letters = [_layout_letter(layer.id) for layer in layers]
    if None in letters or letters.count("E") != 1 or letters.count("L") != 1:
        return None
    inside = [[letters[at] for at in plan.layers(stage)] for stage in plan.stages]
    return list_of_layers([each.count("t") for each in inside], [each.count("m") for each in inside])


def _layout_letter(name: str) -> str | None:
    if name.startswith(BLOCK):
        return "t"
    if name.startswith(PREDICTION):
        return "m"
    return {EMBEDDING: "E", HEAD: "L"}.get(name)


COLOURS: Final = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f")


def graph_text(plan: LayerwisePlan) -> str:
    """Returns the layers as a graph in GraphViz's language, coloured by stage.

    Args:
        plan: one that `solve` returned.
    """
    profile = plan.problem.profile
    of = {at: number for number, stage in enumerate(plan.stages) for at in plan.layers(stage)}
    lines = ["digraph plan {", "  node [shape=box, style=filled, fontname=sans];"]
    for at, layer in enumerate(profile.layers):
        label = json.dumps(f"{layer.name[:40]}\n{layer.time * 1e3:.3g} ms")
        lines.append(f'  n{at} [label={label}, fillcolor="{COLOURS[of.get(at, 0) % len(COLOURS)]}"];')
    lines += [f"  n{a} -> n{b};" for a, b in profile.edges]
    return "\n".join([*lines, "}", ""])


def user_stages(document: Any, devices: int, states: int) -> list[tuple[int, int, tuple[int, ...]]]:
    """Returns a user's stages: a document as `strategy` makes it, or its list of stages.

    Args:
        document: parsed JSON: a mapping with `stages`, or their list.
        devices: of the cluster, numbered from 0.
        states: of the profile, which the stages must cover.

    Raises `engine.planners.contract.PlanError` naming the stage at fault.
    """
    listed = document.get("stages") if isinstance(document, Mapping) else document
    if not isinstance(listed, list) or not listed:
        raise PlanError('A plan is a list of stages such as [{"start": 0, "end": 12, "devices": [0, 1]}].')
    found: list[tuple[int, int, tuple[int, ...]]] = []
    expected, taken = 0, set[int]()
    for number, stage in enumerate(listed, start=1):
        if not isinstance(stage, Mapping) or not {"start", "end", "devices"} <= set(stage):
            raise PlanError(f"Stage {number} needs start, end and devices.")
        start, end, group = stage["start"], stage["end"], stage["devices"]
        if not all(isinstance(each, int) and not isinstance(each, bool) for each in (start, end)):
            raise PlanError(f"Stage {number}: start and end are whole numbers.")
        if start != expected or not start < end <= states:
            raise PlanError(f"Stage {number} must begin at {expected} and end behind it, at {states} at most.")
        if not isinstance(group, list) or not group or not all(isinstance(each, int) for each in group):
            raise PlanError(f"Stage {number}: devices is a list of their numbers.")
        wrong = [each for each in group if not 0 <= each < devices or each in taken]
        if wrong or len(set(group)) < len(group):
            raise PlanError(f"Stage {number}: device {wrong[0] if wrong else group[0]} is not there or taken already.")
        taken |= set(group)
        expected = end
        found.append((start, end, tuple(sorted(group))))
    if expected != states:
        raise PlanError(f"The stages end at {expected}, but there are {states} states.")
    return found
