"""Plans as sharding annotations: which mesh axes split which dimension of every weight and activation.

Two styles say the same: JAX's PartitionSpec has an entry per dimension of the tensor, the mesh axes that split it or
None; PyTorch's DTensor placements have one per mesh axis, Shard(dimension) or Replicate(). Where a contraction leaves
parts of sums, the annotation is that behind the collective that adds them up, which is named. Heads of keys and values
that are fewer than the devices are repeated, and are annotated as replicated.

Sources: JAX, "Distributed arrays and automatic parallelization" (jax.sharding.PartitionSpec); PyTorch,
torch.distributed.tensor (placement types).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import pandas as pd

from engine.planners.contract import PlanError
from engine.planners.intra_operator.contractions import Contraction, Dim, Operand
from engine.planners.intra_operator.costs.options import SPLIT_TOKENS, Widths, repeated_heads
from engine.planners.intra_operator.layer_costs import Vector
from engine.planners.intra_operator.layer_graphs import LayerGraph
from engine.planners.intra_operator.parallel_blocks import BlockMember, ParallelBlock, layer_blocks
from engine.planners.intra_operator.search import IntraOperatorPlan

__all__ = ["sharding_annotations"]

AXIS_NAMES: Final = {1: ("model",), 2: ("data", "model")}
TOKENS: Final = (("b", "s"), ("g", "t"), ("g", "c"))
COLUMNS: Final = (
    "layers",
    "layer",
    "contraction",
    "tensor",
    "kind",
    "dims",
    "shape",
    "partition_spec",
    "placements",
    "collective",
)
CALLED: Final = {
    "b": "batch",
    "s": "sequence",
    "z": "keys",
    "h": "hidden",
    "a": "heads",
    "r": "queries of a head",
    "d": "head",
    "f": "ffn",
    "e": "experts",
    "g": "groups",
    "t": "tokens",
    "c": "places",
    "n": "visits",
    "x": "qkv",
    "latent_q": "query latent",
    "latent_kv": "key-value latent",
    "rope": "rotated key",
    "wide": "key and value",
    "value": "value head",
    "shared": "shared ffn",
    "o": "out",
}


@dataclass(frozen=True, slots=True)
class _Placed:
    """Dimension that every mesh axis splits, None for none."""

    dims: tuple[Dim, ...]
    split: tuple[int | None, ...]

    def spec(self, names: Sequence[str]) -> str:
        entries = []
        for dim in range(len(self.dims)):
            axes = [repr(names[axis]) for axis, at in enumerate(self.split) if at == dim]
            entries.append("None" if not axes else axes[0] if len(axes) == 1 else f"({', '.join(axes)})")
        return f"P({', '.join(entries)})"

    def placements(self) -> str:
        return f"[{', '.join('Replicate()' if at is None else f'Shard({at})' for at in self.split)}]"


def sharding_annotations(
    plan: IntraOperatorPlan,
    *,
    vectors: Sequence[Vector] | None = None,
    axis_names: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Returns the sharding of every weight, and of each contraction's input and output.

    Args:
        plan: from `search`.
        vectors: of all layers; the chosen ones where None.
        axis_names: of the mesh axes, the outer one first; "model", or "data" and "model", where None.

    Returns:
        One row per tensor, layers with equal vectors together: layers ("0-3"), layer (its kind), contraction, tensor,
        kind ("weight", "input" or "output"), dims, shape [elements], partition_spec, placements, collective (what adds
        up the parts that a contraction leaves; else empty).

    Raises:
        PlanError: no plan fits, or names or vectors are not as many as axes or layers.
    """
    names = tuple(AXIS_NAMES[len(plan.mesh.shape)] if axis_names is None else map(str, axis_names))
    if len(names) != len(plan.mesh.shape) or len(set(names)) != len(names) or not all(map(str.isidentifier, names)):
        raise PlanError(f"axis_names {', '.join(names)[:60]!r} are not {len(plan.mesh.shape)} different identifiers.")
    if vectors is None:
        if plan.chosen is None:
            raise PlanError(plan.infeasible)
        vectors = plan.chosen.vectors
    if isinstance(vectors, str) or not isinstance(vectors, Sequence) or len(vectors) != len(plan.layers):
        number = len(vectors) if isinstance(vectors, Sequence) else 1
        raise PlanError(f"{number:,} vectors are not one for each of {len(plan.layers):,} layers.")
    rows: list[dict[str, Any]] = []
    kinds = {each.name: each for each in plan.layers}
    at = 0
    for (name, vector), run in groupby(zip((each.name for each in plan.layers), vectors, strict=True)):
        number = len(list(run))
        which = str(at) if number == 1 else f"{at}-{at + number - 1}"
        at += number
        found = _layer_rows(kinds[name], vector, plan.widths, names, plan.mesh.shape)
        rows.extend({"layers": which, "layer": name, **row} for row in found)
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _layer_rows(
    graph: LayerGraph, vector: Vector, widths: Widths, names: Sequence[str], mesh: Sequence[int]
) -> Iterator[dict[str, Any]]:
    blocks = layer_blocks(graph)
    if not isinstance(vector, (tuple, list)) or len(vector) != len(blocks):
        raise PlanError(f"The vector {str(vector)[:60]} is not one strategy for each of {len(blocks)} blocks.")
    for block, chosen in zip(blocks, vector, strict=True):
        strategies = tuple(chosen) if isinstance(chosen, (tuple, list)) else (chosen,)
        right = all(isinstance(each, int) and 0 <= each < block.space for each in strategies)
        if not right or len(strategies) != len(mesh):
            raise PlanError(
                f"The strategy {str(chosen)[:40]} of {block.name} is none of 0 to {block.space - 1} for each axis."
            )
        for member in block.members:
            yield from _member_rows(graph, block, member, strategies, widths, names, mesh)


def _member_rows(
    graph: LayerGraph,
    block: ParallelBlock,
    member: BlockMember,
    strategies: Sequence[int],
    widths: Widths,
    names: Sequence[str],
    mesh: Sequence[int],
) -> Iterator[dict[str, Any]]:
    each = member.contraction
    labels = [member.labels[one] for one in strategies]
    # A split of a contracted dimension leaves partial sums, which a collective adds up.
    summed = {dim[0] for dim in each.contracted}
    collectives = []
    for axis, label in enumerate(labels):
        if label in summed:
            called = "reduce-scatter" if _is_scattered(block, each, widths) else "all-reduce"
            collectives.append(f"{called} over {names[axis]}")
    for operand, kind in ((each.left, "input"), (each.right, "input"), (each.out, "output")):
        weight = operand.weight
        dims = operand.dims if weight else tuple(_expand_dims(operand))
        split = [next((at for at, dim in enumerate(dims) if dim[0] == label), None) for label in labels]
        if weight and widths.fsdp:
            split = [0 if one == SPLIT_TOKENS else at for one, at in zip(strategies, split, strict=True)]
        if each.name in ("k", "v") or operand.name in ("k", "v"):
            parts = math.prod(devices for label, devices in zip(labels, mesh, strict=True) if label == "a")
            # With fewer key and value heads than parts, each head is repeated on several devices rather than split.
            if repeated_heads(graph.sizes, parts):
                split = [None if label == "a" else at for label, at in zip(labels, split, strict=True)]
        if kind == "output":
            split = [
                _split_dim_behind(dims, block, each, widths) if label in summed else at
                for label, at in zip(labels, split, strict=True)
            ]
        placed = _Placed(dims, tuple(split))
        yield {
            "contraction": each.name,
            "tensor": operand.name,
            "kind": "weight" if weight else kind,
            "dims": ", ".join(" x ".join(CALLED.get(label, label) for label in dim) for dim in dims),
            "shape": tuple(_dim_size(dim, graph.sizes) for dim in dims),
            "partition_spec": placed.spec(names),
            "placements": placed.placements(),
            "collective": ", ".join(collectives) if kind == "output" else "",
        }


def _is_scattered(block: ParallelBlock, contraction: Contraction, widths: Widths) -> bool:
    """Returns whether the sum is split by tokens, or by heads behind queries, keys and values."""
    return widths.sequence and not (_is_hidden(block, contraction))


def _is_hidden(block: ParallelBlock, contraction: Contraction) -> bool:
    """Returns whether a result is a hidden tensor between two products of one block."""
    weighted = [each.contraction for each in block.members if each.contraction.weight is not None]
    fused = "e" in block.sizes and any(each.name.endswith("down") for each in weighted) and len(weighted) > 1
    return fused and contraction.name != weighted[-1].name


def _split_dim_behind(
    dims: Sequence[Dim], block: ParallelBlock, contraction: Contraction, widths: Widths
) -> int | None:
    """Returns the dimension that an axis splits behind the collective that added up its parts, or None."""
    if any(member.contraction.name == "qk" for member in block.members):
        return len(dims) - 1
    if not _is_scattered(block, contraction, widths):
        return None
    return next((at for at, dim in enumerate(dims) if dim[0] in ("s", "t", "n", "c")), 0)


def _expand_dims(operand: Operand) -> Iterator[Dim]:
    """Yields the dimensions of an activation as programs have them: tokens are sequences by positions."""
    for dim in operand.dims:
        if dim in TOKENS:
            yield from ((label,) for label in dim)
        else:
            yield dim


def _dim_size(dim: Dim, sizes: Mapping[str, int]) -> int:
    found = 1
    for label in dim:
        found *= sizes[label]
    return found
