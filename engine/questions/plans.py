"""Verbs about plans: layers divided into stages, the best plan at every size, operators split over a mesh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import Field

from engine.planners.intra_operator import (
    IntraOperatorPlan,
    Mesh,
    mesh_of,
    search,
    sharding_annotations,
    system_mesh,
)
from engine.planners.intra_operator.suites import is_suite
from engine.planners.layerwise import LayerwisePlan, LayerwiseProblem, solve
from engine.planners.layerwise.cluster import PRESETS, cluster_of
from engine.planners.layerwise.library_models import plan_model
from engine.planners.layerwise.problem import checked
from engine.planners.layerwise.profiles.examples import example, examples
from engine.planners.layerwise.profiles.reading import profile_text
from engine.planners.layerwise.strategy import strategy
from engine.planners.layerwise.sweep import stages_text
from engine.questions.bounds import Context
from engine.questions.documents.operators import OperatorsQuestion, network_rates
from engine.questions.plain import plain
from engine.questions.scenario_documents import found_model, found_system
from engine.questions.verb import Document, Named, QuestionError, Row, Verb
from hardware import GIB
from models import Model
from models.documents import Number, Text, Whole, shown

__all__ = [
    "PLAN_LAYERS",
    "PLAN_OPERATORS",
    "find_operator_plan",
    "operators_document",
    "planned_sizes",
    "question_mesh",
    "question_model",
]

MOST_PROCS = 4_096
LONGEST_PROFILE = 500_000
Gpus = Annotated[int, Whole(1, MOST_PROCS)]
Batch = Annotated[int, Whole(1, 10**6)]


class SystemShare(Document):
    """GPUs of one kind."""

    system: Named = Field(description="System: a name that `list_systems` has, or a whole system document.")
    num_procs: Gpus = Field(description="How many of its GPUs there are.")


class LayersQuestion(Document):
    """Question for a division of layers among devices: a library model on systems, or a profile of layers on a
    cluster."""

    global_batch: Batch = Field(description="Samples of a step.")
    model: Named | None = Field(default=None, description="Model, with `systems`; or null, with `profile`.")
    systems: list[SystemShare] | None = Field(
        default=None, min_length=1, max_length=8, description="Of a model: one system, or several as one cluster."
    )
    tensor_par: Gpus = Field(default=1, description="Of a model: GPUs that share every layer, one device of the plan.")
    datatype: str = Field(default="bfloat16", description="Of a model.")
    profile: Annotated[str, Text(LONGEST_PROFILE, shortest=1)] | None = Field(
        default=None,
        description="Profile of layers: the name of an example or the text of a profile (TorchGraph, CSV or JSON). "
        f"Examples are {', '.join(each.name for each in examples())}.",
    )
    profile_batch: Annotated[float, Number(1e-6, 1e9)] | None = Field(
        default=None, description="Batch at which the profile was taken, where it does not say."
    )
    cluster: str | None = Field(
        default=None, description=f"Of a profile: a cluster of the DAPPLE paper, {', '.join(PRESETS)}; A by default."
    )
    machines: list[Gpus] | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        description="Of a profile, instead: where device numbers end; [8, 16] are two machines of eight.",
    )
    microbatch: Batch = Field(default=1, description="Of a profile: microbatch [samples].")
    mode: Literal["paper", "released"] = Field(
        default="paper", description="Of a profile: the paper's latency, or the searches of HPGO 0.9.2."
    )


class LayerCandidate(Document):
    """A way to divide the layers that was looked at."""

    found_by: str
    speedup: float | None = Field(description="Over one device; null where it cannot run.")
    stages: str
    why_not: str = Field(description="Why it is not the answer; empty for the answer.")


class LayersAnswer(Document):
    """A plan of layers."""

    speedup: float = Field(description="Over one device.")
    step_time: float = Field(description="[s]")
    sample_rate: float = Field(description="[samples/s]")
    microbatches: int
    strategy: dict[str, Any] = Field(description="Stages with layers, replicas and devices, and all figures.")
    execution: Row | None = Field(
        description="The plan as an execution for `evaluate` and `export_launch`; null where it is none."
    )
    candidates: list[LayerCandidate]
    notes: list[str]


class OperatorsAnswer(Document):
    """Strategy vectors, and the best of all layers."""

    model: str
    mesh: dict[str, Any]
    memory_limit: float | None = Field(description="[bytes]")
    tflop: float = Field(description="Of a step, all devices together.")
    chosen: dict[str, Any] | None = Field(description="The best vectors of all layers; null where nothing fits.")
    infeasible: str = Field(description="Why nothing fits; empty where something does.")
    frontier: list[dict[str, Any]] = Field(description="Least time for rising memory, at most a thousand points of it.")
    frontier_points: int = Field(description="How many there are.")
    exactness: str = Field(description="Whether the frontier has all points, or by how much plans may be slower.")
    vectors: list[dict[str, Any]] = Field(
        description="Vectors that every layer takes alike: 0 splits columns, 1 tokens, 2 rows of a weight, 3 experts; "
        "on two axes a block has two, outside and inside."
    )
    annotations: list[dict[str, Any]] | None = Field(
        default=None, description="Mesh axes of each dimension, in the style of JAX and of PyTorch, where asked for."
    )
    notes: list[str]


def _answer_layers(asked: LayersQuestion, context: Context) -> dict[str, Any]:
    if (asked.model is None) == (asked.profile is None) or (asked.model is None) != (asked.systems is None):
        raise QuestionError("Give a model with its systems, or a profile.")
    execution: Mapping[str, Any] | None = None
    if asked.model is None:
        plan = _of_profile(asked, context)
    else:
        systems = [(found_system(each.system), each.num_procs) for each in asked.systems or ()]
        made = plan_model(
            found_model(asked.model),
            systems,
            global_batch=asked.global_batch,
            tensor_par=asked.tensor_par,
            datatype=asked.datatype,
        )
        plan, execution = made.plan, made.execution
    return {
        "speedup": plan.speedup,
        "step_time": plan.figure("step_time").value,
        "sample_rate": plan.figure("sample_rate").value,
        "microbatches": plan.microbatches,
        "strategy": plain(strategy(plan)),
        "execution": None if execution is None else plain(execution),
        "candidates": [
            {"found_by": each.name, "speedup": plain(each.value), "stages": stages_text(each), "why_not": each.reason}
            for each in plan.candidates
        ],
        "notes": list(plan.notes),
    }


def _of_profile(asked: LayersQuestion, context: Context) -> LayerwisePlan:
    assert asked.profile is not None
    known = any(each.name == asked.profile for each in examples())
    written = "\n" in asked.profile or asked.profile.lstrip().startswith("{")
    if not known and not written:
        raise QuestionError(
            f"profile is {shown(asked.profile)}; it must be the text of a profile or one of the examples "
            f"{', '.join(each.name for each in examples())}."
        )
    profile = example(asked.profile) if known else profile_text(asked.profile)
    taken = profile.batch if asked.profile_batch is None else asked.profile_batch
    if taken is None:
        raise QuestionError("The profile does not say at which batch it was taken; give profile_batch.")
    if asked.machines and asked.cluster:
        raise QuestionError("Give machines or a cluster, not both.")
    if asked.machines:
        cluster = cluster_of(asked.machines)
    elif (asked.cluster or "A") in PRESETS:
        cluster = PRESETS[asked.cluster or "A"]
    else:
        raise QuestionError(f"There is no cluster {shown(asked.cluster)}; there are {', '.join(PRESETS)}.")
    problem = LayerwiseProblem(profile, taken, asked.global_batch, cluster, asked.microbatch, asked.mode)
    return solve(checked(problem), progress=context.tell, cancel=context.stops)


def _answer_operators(asked: OperatorsQuestion, context: Context) -> dict[str, Any]:
    found = find_operator_plan(asked)
    best = found.vectors.sort_values(["fits", "seconds"], ascending=[False, True], kind="stable").head(asked.top)
    document = operators_document(found, best)
    if asked.annotations and found.chosen is not None:
        document["annotations"] = sharding_annotations(found).to_dict("records")
    return {name: plain(value) for name, value in document.items()}


def question_mesh(asked: OperatorsQuestion) -> Mesh:
    """Return the mesh of devices that a question is about.

    Args:
        asked: the question.

    Raises `QuestionError` if a system and an outer axis are given, and the errors of loading the system.
    """
    if asked.system is not None:
        if asked.outer is not None:
            raise QuestionError("Give a system with tiers, or an outer axis, not both.")
        return system_mesh(found_system(asked.system), asked.devices, datatype=asked.datatype, tiers=asked.tiers)
    if asked.tiers != 1:
        raise QuestionError("tiers are those of a system; without one give the outer axis.")
    mesh: dict[str, Any] = {
        "devices": asked.devices,
        "matrix_rate": asked.matrix_rate_tflops * 1e12,
        **network_rates(asked.bandwidth_gb_per_s, asked.all_to_all_gb_per_s, asked.alpha_s),
    }
    if asked.outer is not None:
        mesh["outer"] = asked.outer.rates()
    return mesh_of(mesh)


def question_model(asked: OperatorsQuestion) -> str | Model:
    """Return the model that a question is about: the name of a published one, or a model of the library.

    Args:
        asked: the question.

    Raises the errors of loading the model.
    """
    return asked.model if isinstance(asked.model, str) and is_suite(asked.model) else found_model(asked.model)


def planned_sizes(asked: OperatorsQuestion) -> dict[str, Any]:
    """Return the sizes and the sharding of a question, as keywords of `engine.planners.intra_operator.search`.

    Args:
        asked: the question.
    """
    return {
        name: getattr(asked, name)
        for name in (
            "batch",
            "layers",
            "element_bytes",
            "state_bytes",
            "zero",
            "fsdp",
            "sequence_parallel",
            "gradient_bytes",
            "recompute",
            "accumulation",
        )
    }


def find_operator_plan(asked: OperatorsQuestion) -> IntraOperatorPlan:
    """Return the plan of a question about operators, with every vector.

    Args:
        asked: the question.

    Raises `QuestionError`, `engine.planners.contract.PlanError`, and the errors of loading model and system.
    """
    limit = None if asked.memory_limit_gib is None else asked.memory_limit_gib * GIB
    return search(question_model(asked), question_mesh(asked), memory_limit=limit, **planned_sizes(asked))


def operators_document(found: IntraOperatorPlan, vectors: pd.DataFrame) -> dict[str, Any]:
    """Return the result of a search of operators as a document.

    Args:
        found: result of the search.
        vectors: vectors to list [rows].
    """
    return {
        "model": found.model,
        "mesh": found.mesh.document(),
        "memory_limit": found.memory_limit,
        "tflop": found.tflop,
        "chosen": None if found.chosen is None else found.chosen.document(),
        "infeasible": found.infeasible,
        "frontier": found.some_of_frontier().to_dict("records"),
        "frontier_points": len(found.frontier),
        "exactness": found.exactness,
        "vectors": vectors.to_dict("records"),
        "notes": list(found.notes),
    }


PLAN_LAYERS = Verb(
    "plan_layers",
    "Plan layers",
    "Divides layers into pipeline stages with replicas on devices (DAPPLE), also over GPUs of several kinds.",
    LayersQuestion,
    LayersAnswer,
    _answer_layers,
)
PLAN_OPERATORS = Verb(
    "plan_operators",
    "Plan operators",
    "Splits the contractions inside layers over one network or two (CFP, Alpa), the best under a memory limit.",
    OperatorsQuestion,
    OperatorsAnswer,
    _answer_operators,
)
