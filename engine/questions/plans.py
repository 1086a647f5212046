"""Verbs about plans: the best plan at every size, and operators split over a mesh."""

from __future__ import annotations

from typing import Annotated, Any

import pandas as pd
from pydantic import Field

import engine.reproductions  # noqa: F401 - adds the models of Alpa's suites to those known by name
from engine.planners.intra_operator import (
    IntraOperatorPlan,
    Mesh,
    mesh_of,
    search,
    sharding_annotations,
    system_mesh,
)
from engine.planners.intra_operator.named_models import named_models
from engine.questions.bounds import Context
from engine.questions.documents.operators import OperatorsQuestion, network_rates
from engine.questions.plain import plain
from engine.questions.scenario_documents import found_model, found_system
from engine.questions.verb import Document, QuestionError, Verb
from hardware import GIB
from models import Model
from models.documents import Whole

__all__ = [
    "PLAN_OPERATORS",
    "find_operator_plan",
    "operators_document",
    "planned_sizes",
    "question_mesh",
    "question_model",
]

MOST_PROCS = 4_096
Gpus = Annotated[int, Whole(1, MOST_PROCS)]
Batch = Annotated[int, Whole(1, 10**6)]


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
    if isinstance(asked.model, str) and named_models(asked.model) is not None:
        return asked.model
    return found_model(asked.model)


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


PLAN_OPERATORS = Verb(
    "plan_operators",
    "Plan operators",
    "Splits the contractions inside layers over one network or two (CFP, Alpa), the best under a memory limit.",
    OperatorsQuestion,
    OperatorsAnswer,
    _answer_operators,
)
