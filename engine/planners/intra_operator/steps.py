"""Costs of a training step with one strategy vector for every layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from engine.planners.contract import PlanError
from engine.planners.intra_operator.costs.recomputation import RECOMPUTES
from engine.planners.intra_operator.layer_costs import FIRST, LayerCosts, Vector, Widths
from engine.planners.intra_operator.layer_graphs import LayerGraph
from engine.planners.intra_operator.library import any_mesh, library_layers
from engine.planners.intra_operator.mesh import Mesh
from engine.planners.intra_operator.named_models import named_models
from engine.planners.intra_operator.names import vector_name
from engine.planners.intra_operator.uniform import arithmetic_seconds, collectives_of, costs_of
from models.loader import ModelLike

__all__ = ["StepCosts", "evaluate_vectors", "layers_of", "positive", "step_of", "widths_of"]

DEEPEST: Final = 256
"""Most layers that the search takes. Source: stated by us."""
MOST_STEPS: Final = 10**6
"""Most microbatches whose gradients are added up. Source: stated by us."""


@dataclass(frozen=True, slots=True)
class StepCosts:
    """One vector for every layer: its name, the seconds of a step, of computation and of collectives, volume [bytes]
    and seconds by collective, memory of a device [bytes]."""

    vectors: tuple[Vector, ...]
    solution: str
    seconds: float
    compute_seconds: float
    communication_seconds: float
    volumes: Mapping[str, float]
    collective_seconds: Mapping[str, float]
    memory: float

    @property
    def volume(self) -> float:
        """Returns the volume of all collectives [bytes]."""
        return sum(self.volumes.values())

    def document(self) -> dict[str, Any]:
        """Returns it as JSON."""
        return {
            "vectors": [list(each) for each in self.vectors],
            "solution": self.solution,
            "seconds": self.seconds,
            "compute_seconds": self.compute_seconds,
            "communication_seconds": self.communication_seconds,
            "volumes": dict(self.volumes),
            "collective_seconds": dict(self.collective_seconds),
            "volume": self.volume,
            "memory": self.memory,
        }


def layers_of(
    model: ModelLike, *, batch: int, layers: int | None = None, accumulation: int = 1
) -> tuple[str, list[LayerGraph], tuple[str, ...]]:
    """Return the name of a registered model or one of the library, its layers from the first for one microbatch, and
    its simplifications.

    Args:
        model: of the library, by name, path or itself; or registered by name, such as "gpt F".
        batch: sequences of a step.
        layers: how many; the model's where None.
        accumulation: microbatches of a step.

    Raises:
        PlanError: unknown model, or a number out of range.
        models.ModelFileError: unknown or invalid model.
    """
    notes: tuple[str, ...] = ()
    if accumulation > 1 and isinstance(batch, int) and not isinstance(batch, bool):
        if batch % accumulation:
            raise PlanError(f"A batch of {batch:,} sequences is no multiple of {accumulation:,} microbatches.")
        batch //= accumulation
    named = named_models(model)
    if named is not None and isinstance(model, str):
        graphs = named.layers(model, batch=batch, layers=named.depth(model) if layers is None else layers)
        name = model
    else:
        name, graphs, notes = library_layers(model, batch=batch, layers=layers)
    if len(graphs) > DEEPEST:
        raise PlanError(f"{len(graphs):,} layers are more than the search takes; at most {DEEPEST}.")
    return name, graphs, notes


def widths_of(
    model: ModelLike,
    *,
    element_bytes: float | None = None,
    state_bytes: float = 16.0,
    zero: bool = False,
    keep_scores: bool | None = None,
    fsdp: bool = False,
    sequence_parallel: bool | None = None,
    gradient_bytes: float | None = None,
    recompute: str = "none",
    accumulation: int = 1,
) -> Widths:
    """Returns the widths of a model, from the arguments of `search`.

    Args:
        model: registered by name, or of the library.
        element_bytes: width of an element [bytes]; where None, 2, or that of a registered family.
        state_bytes: of a parameter with its gradient and optimizer state [bytes].
        zero: whether these are split where the parameter is not (ZeRO).
        keep_scores: whether scores of attention are kept; where None, not for library models.
        fsdp: whether parameters are split there, too.
        sequence_parallel: whether what rows give is split by tokens; where None, for library models.
        gradient_bytes: width of an element of the gradients that are added up [bytes]; that of any where None.
        recompute: what the backward pass computes again: "none", "selective" (attention) or "full".
        accumulation: microbatches of a step, whose gradients are added up.

    Raises:
        PlanError: a number is out of range.
    """
    if recompute not in RECOMPUTES:
        raise PlanError(f"recompute {str(recompute)[:40]!r} must be {', '.join(RECOMPUTES[:-1])} or {RECOMPUTES[-1]}.")
    if isinstance(accumulation, bool) or not isinstance(accumulation, int) or not 1 <= accumulation <= MOST_STEPS:
        raise PlanError(f"accumulation {str(accumulation)[:40]!r} is no whole number from 1 to {MOST_STEPS:,}.")
    named = named_models(model)
    usual = 2.0 if named is None else named.element_bytes
    width = usual if element_bytes is None else positive("element_bytes", element_bytes)
    state = positive("state_bytes", state_bytes)
    if state < width:
        raise PlanError(f"state_bytes {state:g} is less than the {width:g} bytes of the parameter itself.")
    usual_kept, usual_scattered = (False, True) if named is None else (named.keeps_scores, named.is_sequence_parallel)
    kept = usual_kept if keep_scores is None else bool(keep_scores)
    scattered = usual_scattered if sequence_parallel is None else bool(sequence_parallel)
    gradient = 0.0 if gradient_bytes is None else positive("gradient_bytes", gradient_bytes)
    return Widths(width, state, bool(zero), kept, bool(fsdp), scattered, gradient, recompute, accumulation)


def evaluate_vectors(
    model: ModelLike,
    mesh: Mesh | Mapping[str, Any],
    vectors: Sequence[Vector],
    *,
    batch: int = 16,
    layers: int | None = None,
    **counted: Any,
) -> StepCosts:
    """Returns the costs of a step with given vectors, as `search` reports them for its chosen ones.

    Args:
        model: of the library, by name, path or itself; or registered by name, such as "gpt F".
        mesh: of one axis or two, or its document.
        vectors: one for each layer.
        batch: sequences.
        layers: how many; the model's where None.
        counted: arguments of `widths_of`.

    Raises:
        PlanError: unknown model, invalid mesh, or a vector that the layers do not have.
        models.ModelFileError: unknown or invalid model.
    """
    machine, widths = any_mesh(mesh), widths_of(model, **counted)
    _, graphs, _ = layers_of(model, batch=batch, layers=layers, accumulation=widths.accumulation)
    if isinstance(vectors, str) or not isinstance(vectors, Sequence) or len(vectors) != len(graphs):
        raise PlanError(f"The vectors are not one for each of {len(graphs):,} layers.")
    asked = [_plain_vector(each) for each in vectors]
    return step_of(costs_of(graphs, machine, widths), [each.name for each in graphs], machine, asked, widths)


def _plain_vector(vector: Any) -> Vector:
    """Returns a vector as tables have it, lists of JSON as tuples."""
    if isinstance(vector, str) or not isinstance(vector, Sequence):
        raise PlanError(f"The vector {str(vector)[:60]!r} is no list of strategies.")
    return tuple(tuple(each) if isinstance(each, list) else each for each in vector)


def positive(name: str, value: object) -> float:
    """Returns a number of bytes.

    Args:
        name: of the argument.
        value: that was given.

    Raises:
        PlanError: it is no number more than 0.
    """
    right = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e30
    if not right or not isinstance(value, (int, float)):
        raise PlanError(f"{name} {str(value)[:40]!r} is no number of bytes more than 0.")
    return float(value)


def step_of(
    kinds: Mapping[str, LayerCosts], order: Sequence[str], mesh: Mesh, vectors: Sequence[Vector], widths: Widths
) -> StepCosts:
    """Returns the costs of a step with given vectors.

    Args:
        kinds: from `costs_of`.
        order: names of the layers, from the first.
        mesh: that shares them.
        vectors: one for each layer.
        widths: bytes of elements and parameters, stored tensors and sharding.

    Raises:
        PlanError: a vector that the layer's costs do not list.
    """
    places = {name: {vector: at for at, vector in enumerate(each.vectors)} for name, each in kinds.items()}
    first = kinds[order[0]]
    volumes, counts = np.zeros(first.volumes.shape[-1]), np.zeros(first.counts.shape[-1])
    memory, working, kernels, state = 0.0, 0.0, 0.0, FIRST
    for name, vector in zip(order, vectors, strict=True):
        if vector not in places[name]:
            listed = len(places[name]) < kinds[name].total
            why = "is not among those that are listed" if listed else "is none that it has"
            raise PlanError(f"The vector {str(vector)[:60]} of layer {name} {why}.")
        costs, at = kinds[name], places[name][vector]
        volumes = volumes + costs.volumes[state, at]
        counts = counts + costs.counts[state, at]
        kernels += float(costs.kernels[state, at])
        memory += float(costs.memory[state, at])
        # Kept tensors of all layers add up; working tensors live one layer at a time.
        working = max(working, float(costs.working[state, at]))
        state = int(costs.gives[at])
    seconds = mesh.seconds(volumes, counts)
    compute = kernels if mesh.system is not None else arithmetic_seconds(kinds, order, mesh)
    return StepCosts(
        tuple(vectors),
        vector_name(vectors, order, widths),
        compute + float(seconds.sum()),
        compute,
        float(seconds.sum()),
        {name: float(value) for name, value in collectives_of(volumes, widths).items()},
        {name: float(value) for name, value in collectives_of(seconds, widths).items()},
        memory + working,
    )
