"""Names of strategy vectors in the terms of the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import groupby, product
from typing import Any, Final

from engine.planners.intra_operator.costs.options import Widths

__all__ = [
    "DATA_PARALLEL",
    "EXPERT_PARALLEL",
    "FSDP",
    "MEGATRON",
    "MIXED",
    "SEQUENCE_PARALLEL",
    "described",
    "named_vectors",
    "vector_name",
    "vector_names",
]

DATA_PARALLEL: Final = "data parallel"
FSDP: Final = "fully sharded data parallel (FSDP)"
MEGATRON: Final = "Megatron tensor parallel"
SEQUENCE_PARALLEL: Final = "Megatron tensor and sequence parallel"
EXPERT_PARALLEL: Final = "data and expert parallel"
EXPERT_TENSOR: Final = "tensor and expert parallel"
MIXED: Final = "mixed"
DENSE: Final[dict[tuple[int, ...], str]] = {(1, 1, 1, 1): "data", (0, 2, 0, 2): "tensor"}
"""Shoeybi et al. 2019 split columns, then rows, in attention and in the MLP."""
GROUPED: Final[dict[tuple[int, ...], str]] = {(1, 1, 1, 1): "data", (1, 1, 1, 3): "expert"}
"""Lepikhin et al. 2021 split experts."""


def vector_name(vectors: Sequence[Any], layers: Sequence[str], widths: Widths | None = None) -> str:
    """Returns the name of strategy vectors, "mixed" where they have none.

    Args:
        vectors: one for each layer: a strategy per block, or on two mesh axes one per block and axis.
        layers: names of the layers.
        widths: whether gradients are split with the weights (FSDP), or results by tokens (sequence parallelism).
    """
    return _solution_name([_layer_kinds(vector, layer) for vector, layer in zip(vectors, layers, strict=True)], widths)


def vector_names(layers: Mapping[str, tuple[Sequence[Any], Sequence[int]]], widths: Widths | None = None) -> list[str]:
    """Returns the names of many plans, each as `vector_name` gives it, which looks once at layers that do the same.

    Args:
        layers: by the name of a layer, its vectors and which of them every plan takes.
        widths: as for `vector_name`.
    """
    done = []
    for layer, (vectors, rows) in layers.items():
        known = {row: _layer_kinds(vectors[row], layer) for row in set(rows)}
        done.append([known[row] for row in rows])
    together = list(zip(*done, strict=True))
    names = {each: _solution_name(each, widths) for each in set(together)}
    return [names[each] for each in together]


def described(vectors: Sequence[Any], layers: Sequence[str], widths: Widths | None = None) -> list[str]:
    """Returns sentences on the parallelism of layers, equal vectors together, attention and MLP or experts apart.

    Args:
        vectors: one for each layer.
        layers: names of the layers.
        widths: as for `vector_name`.
    """
    found = []
    for (vector, layer), run in groupby(zip(vectors, layers, strict=True)):
        number = len(list(run))
        axes = len(vector[0]) if isinstance(vector[0], tuple) else 1
        parts: dict[str, list[str]] = {}
        for axis in range(axes):
            one = [each[axis] if isinstance(each, tuple) else each for each in vector]
            for part, called in _part_kinds(one, layer, widths).items():
                parts.setdefault(part, []).append(called)
        told = [
            f"{part} {each[0] if len(set(each)) == 1 else f'{each[0]} outside and {each[1]} inside'}"
            for part, each in parts.items()
        ]
        found.append(f"{number} {'layer' if number == 1 else 'layers'} ({layer}): {'; '.join(told)}.")
    return found


def _part_kinds(vector: Sequence[int], layer: str, widths: Widths | None) -> dict[str, str]:
    """Returns the kind of parallelism of each part of a layer along one axis."""
    tensor = "tensor parallel" if widths is None or not widths.sequence else "tensor and sequence parallel"
    pairs: dict[tuple[int, ...], str] = {(1, 1): "data parallel", (0, 2): tensor}
    experts = {0: tensor, 1: "data parallel", 3: "expert parallel"}
    if layer.startswith("experts"):
        shared = vector[-1:] if "shared" in layer else ()
        ahead, routed = vector[: len(vector) - len(shared) - 2], vector[len(vector) - len(shared) - 1]
        found = {"attention": pairs.get(tuple(ahead[-2:]), MIXED), "experts": experts.get(routed, MIXED)}
        return found | ({"shared experts": experts.get(shared[0], MIXED)} if shared else {})
    return {"attention": pairs.get(tuple(vector[-4:-2]), MIXED), "MLP": pairs.get(tuple(vector[-2:]), MIXED)}


def named_vectors(layer: str, spaces: Sequence[int], axes: int) -> list[tuple[tuple[int, ...], ...]]:
    """Returns the vectors of a layer that have a name along every mesh axis: for each block a strategy of every axis.

    Args:
        layer: its name.
        spaces: strategies of every block on one axis.
        axes: of the mesh.
    """
    named = [each for each in product(*map(range, spaces)) if _axis_kind(each, layer) != MIXED]
    return [tuple(zip(*each, strict=True)) for each in product(named, repeat=axes)]


def _solution_name(kinds: Sequence[tuple[str, ...]], widths: Widths | None) -> str:
    """Returns the name of a plan from the kind of all layers along every axis."""
    named = [_axis_name(each, widths) for each in zip(*kinds, strict=True)]
    if MIXED in named:
        return MIXED
    return named[0] if len(set(named)) == 1 else f"{named[0]} outside, {named[1]} inside"


def _axis_name(kinds: Sequence[str], widths: Widths | None) -> str:
    """The name of the parallelism of all layers along one axis."""
    found = set(kinds)
    whole = FSDP if widths is not None and widths.fsdp else DATA_PARALLEL
    tensor = SEQUENCE_PARALLEL if widths is not None and widths.sequence else MEGATRON
    if found == {"data"}:
        return whole
    if found == {"tensor"}:
        return tensor
    if found in ({"data", "expert"}, {"expert"}):
        return EXPERT_PARALLEL if whole == DATA_PARALLEL else f"{FSDP} and expert parallel"
    if found in ({"tensor", "tensor expert"}, {"tensor expert"}):
        return EXPERT_TENSOR if widths is None or not widths.sequence else f"{SEQUENCE_PARALLEL}, experts split"
    return MIXED


def _layer_kinds(vector: Sequence[Any], layer: str) -> tuple[str, ...]:
    """Returns the kind of parallelism of a layer along every axis."""
    if not isinstance(vector[0], tuple):
        return (_axis_kind(tuple(vector), layer),)
    return tuple(_axis_kind(one, layer) for one in zip(*vector, strict=True))


@lru_cache(4096)
def _axis_kind(found: tuple[int, ...], layer: str) -> str:
    """Returns the kind of parallelism of a layer along one axis: data, tensor, expert, tensor expert, or mixed.

    A layer of sorted experts, with or without shared ones, is known by its attention and its experts; the router and
    the compressions of latent attention may be split by tokens under tensor parallelism, as Megatron does it.
    """
    if layer.startswith("experts") and len(found) == 4:
        return GROUPED.get(found, _routed_kind(found[:2], found[2:]))
    if layer.startswith("experts"):
        shared = 1 if len(found) in (5, 6) and "shared" in layer else 0
        end = len(found) - shared
        return _routed_kind(found[: end - 2], found[end - 2 :])
    if len(found) == 5:  # the compressions of latent attention come first
        return DENSE.get(found[1:], "mixed") if found[0] == 1 else "mixed"
    return DENSE.get(found, "mixed")


def _routed_kind(attention: Sequence[int], rest: Sequence[int]) -> str:
    router, experts, *shared = rest
    core = tuple(attention[-2:])
    ahead = tuple(attention[:-2])
    if router != 1 or any(each != 1 for each in ahead):
        return "mixed"
    if core == (1, 1) and all(each == 1 for each in shared):
        return {1: "data", 3: "expert"}.get(experts, "mixed")
    if core == (0, 2) and all(each in (0, 1) for each in shared):
        return {0: "tensor", 3: "tensor expert"}.get(experts, "mixed")
    return "mixed"
