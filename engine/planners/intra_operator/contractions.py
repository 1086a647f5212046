"""Tensor contractions by the labels of their dimensions: their possible splits, and the splits of their gradients.

A dimension is a tuple of labels, the major one first: the tokens of a layer are `("b", "s")`, sequences by positions. A
strategy says which dimension every mesh axis splits; of a merged dimension that is its major label. Everything else
about a strategy follows from labels: the gradients of a contraction are contractions of the same dimensions, so that a
split of the forward pass names a split of both, and one that lands on a contracted dimension leaves partial sums, an
all-reduce.

Source: Alpa (Zheng et al., OSDI 2022), section 4, for the strategies and their names; CFP for the plan tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Final

__all__ = ["Contraction", "Dim", "Operand", "ShardingStrategy", "backward", "plan_table", "strategies"]

Dim = tuple[str, ...]
"""Labels of one dimension, the major one first."""

GRADIENT: Final = "d"


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor of a contraction: its name, its dimensions, and whether it is a weight."""

    name: str
    dims: tuple[Dim, ...]
    weight: bool = False

    def elements(self, sizes: Mapping[str, int]) -> int:
        """Returns how many elements it has.

        Args:
            sizes: of every label [elements].
        """
        return math.prod(sizes[label] for dim in self.dims for label in dim)

    def has(self, label: str) -> bool:
        """Returns whether a label is the major one of a dimension, so that the tensor can be split along it.

        Args:
            label: of a dimension.
        """
        return any(dim[0] == label for dim in self.dims)


@dataclass(frozen=True, slots=True)
class Contraction:
    """A product of two tensors, summed over the dimensions that the result has not."""

    name: str
    left: Operand
    right: Operand
    out: Operand

    @property
    def batch(self) -> tuple[Dim, ...]:
        """Returns the dimensions that all three tensors have."""
        return tuple(dim for dim in self.left.dims if dim in self.right.dims and dim in self.out.dims)

    @property
    def contracted(self) -> tuple[Dim, ...]:
        """Returns the dimensions that are summed over."""
        return tuple(dim for dim in self.left.dims if dim in self.right.dims and dim not in self.out.dims)

    @property
    def rows(self) -> tuple[Dim, ...]:
        """Returns the dimensions of the result that come from the left tensor alone."""
        return tuple(dim for dim in self.left.dims if dim not in self.right.dims)

    @property
    def columns(self) -> tuple[Dim, ...]:
        """Returns the dimensions of the result that come from the right tensor alone."""
        return tuple(dim for dim in self.right.dims if dim not in self.left.dims)

    @property
    def splits(self) -> tuple[Dim, ...]:
        """Returns the dimensions along which it can be split, in the order of strategies on one axis: columns, rows,
        the contracted dimension, every batch dimension."""
        return (*self.columns[:1], *self.rows[:1], *self.contracted[:1], *self.batch)

    @property
    def weight(self) -> Operand | None:
        """Returns the tensor that is a weight, or None."""
        return next((each for each in (self.left, self.right) if each.weight), None)

    def flop(self, sizes: Mapping[str, int]) -> float:
        """Returns the arithmetic operations of the forward pass [FLOP].

        Args:
            sizes: of every label [elements].
        """
        labels = {label for each in (self.left, self.right) for dim in each.dims for label in dim}
        # 2 FLOP for each combination of the labels of both factors.
        return 2.0 * math.prod(sizes[label] for label in labels)

    def split_by(self, label: str) -> Dim | None:
        """Returns the dimension that a split of a label splits; None where the label is no major one.

        Args:
            label: of a dimension.
        """
        return next((dim for each in (self.left, self.right) for dim in each.dims if dim[0] == label), None)


@dataclass(frozen=True, slots=True)
class ShardingStrategy:
    """One way to split a contraction: the dimension of every mesh axis, None where an axis has one device; the axes
    over which partial sums are all-reduced."""

    id: int
    name: str
    splits: tuple[Dim | None, ...]
    all_reduce: tuple[int, ...]


def strategies(contraction: Contraction, mesh: Sequence[int]) -> tuple[ShardingStrategy, ...]:
    """Returns the strategies of a contraction on a mesh of two axes, of which one may have a single device.

    On one axis there is one for each dimension; on two the axes split different dimensions.

    Args:
        contraction: to split.
        mesh: devices along both axes.
    """
    first, second = mesh
    found: list[ShardingStrategy] = []
    if first > 1 and second > 1:
        for pair in permutations(contraction.splits, 2):
            found.append(_build_strategy(len(found), contraction, pair))
        return tuple(found)
    axis = 0 if first > 1 else 1
    for dim in contraction.splits:
        found.append(_build_strategy(len(found), contraction, (dim, None) if axis == 0 else (None, dim)))
    return tuple(found)


def _build_strategy(number: int, contraction: Contraction, splits: tuple[Dim | None, ...]) -> ShardingStrategy:
    reduced = tuple(axis for axis, dim in enumerate(splits) if dim in contraction.contracted)
    return ShardingStrategy(number, _strategy_name(contraction, splits), splits, reduced)


def _strategy_name(contraction: Contraction, splits: tuple[Dim | None, ...]) -> str:
    """Returns Alpa's name of a strategy: the split dimensions of result, left and right, and their axes."""
    on = {dim: axis for axis, dim in enumerate(splits) if dim is not None}
    rows, columns = contraction.rows[:1], contraction.columns[:1]
    inner = contraction.contracted[:1]
    row, column, depth = (on.get(dims[0]) if dims else None for dims in (rows, columns, inner))
    batches = [(at, on[dim]) for at, dim in enumerate(contraction.batch) if dim in on]
    if batches:
        named = [f"b{at}" for at, _ in batches]
        rest = [(kind, axis) for kind, axis in (("i", row), ("j", column), ("k", depth)) if axis is not None]
        axes = ",".join(str(axis) for _, axis in (*batches, *rest))
        plain = "S" + "".join(named)
        if not rest:
            return f"{plain} = {plain} x {plain} @ {{{axes}}}"
        (kind, axis), *_ = rest
        if kind == "k":
            return f"{plain}R = {plain}Sk x {plain}Sk @ {{{axes}}} (allreduce @ {axis})"
        sides = (f"{plain}S", f"{plain}R") if kind == "i" else (f"{plain}R", f"{plain}S")
        return f"{plain}S{kind} = {sides[0]} x {sides[1]} @ {{{axes}}}"
    if depth is None:
        first = row if row is not None else 1 - (column or 0)
        second = column if column is not None else 1 - (row or 0)
        return f"SS = SR x RS @ {{{first},{second}}}"
    if row is not None:
        return f"SR = SS x SR @ {{{row},{depth}}} (allreduce @ {depth})"
    other = column if column is not None else 1 - depth
    return f"RS = RS x SS @ {{{depth},{other}}} (allreduce @ {depth})"


def backward(contraction: Contraction) -> tuple[Contraction, Contraction]:
    """Returns the contractions of the gradients of the right and of the left tensor.

    Of Y = X W these are dW, which sums over the rows, and dX, which sums over the columns.

    Args:
        contraction: of the forward pass.
    """
    gradient = Operand(GRADIENT + contraction.out.name, contraction.out.dims)
    right = Operand(GRADIENT + contraction.right.name, contraction.right.dims)
    left = Operand(GRADIENT + contraction.left.name, contraction.left.dims)
    return (
        Contraction(right.name, Operand(contraction.left.name, contraction.left.dims), gradient, right),
        Contraction(left.name, gradient, Operand(contraction.right.name, contraction.right.dims), left),
    )


def plan_table(forward: Contraction, other: Contraction, labels: Sequence[str | None] = ()) -> tuple[int, ...]:
    """Returns the strategy of another contraction that belongs to each strategy of a first one, by their labels.

    Args:
        forward: whose strategies on one axis number the table.
        other: whose strategies it holds.
        labels: the label that the other one is split along for each strategy of the first; its own where empty.

    Raises:
        LookupError: the other one cannot be split along a label.
    """
    asked = list(labels) or [dim[0] for dim in forward.splits]
    found: list[int] = []
    for label in asked:
        at = next((at for at, dim in enumerate(other.splits) if dim[0] == label), None)
        if at is None:
            raise LookupError(f"{other.name} has no dimension {label!r} to split along.")
        found.append(at)
    return tuple(found)
