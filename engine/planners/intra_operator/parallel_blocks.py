"""ParallelBlocks of a layer: groups of contractions that one choice of strategy settles.

Every contraction with a weight opens a block. Three rules, derived from labels, join others to it:

1. A contraction without a weight follows the block that its left operand comes from: a split passes through the
   operations between without communication, where the split label stays a major one and is not reduced or scanned over.
2. Contractions with weights on the same tensor are one block, as queries, keys and values are.
3. Contractions with weights that share a batch dimension, as the two products of an expert do, are one block.

4. A contraction with a weight joins the block before it where the results of both meet in a contraction without one, as
   queries, and keys and values expanded from a latent, do.
5. A contraction that the layer names as joined, as the second product of shared experts, joins the block before it.

Each member, and each of its two gradients, has a *plan*: for every strategy of the block its own. A member that cannot
be split as the block is takes the split of the first strategy that reaches it.

Source: CFP (published README and figures), sections on ParallelBlocks. There the second and third rule are tables per
number of contractions; the blocks and plans that it prints come out of the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from engine.planners.intra_operator.contractions import Contraction, ShardingStrategy, backward, plan_table, strategies
from engine.planners.intra_operator.layer_graphs import Between, LayerGraph

__all__ = ["BlockList", "BlockMember", "ParallelBlock", "layer_blocks"]

ONE_AXIS: Final = (1, 2)
"""A mesh of one axis; how many devices it has does not change which strategies there are."""


@dataclass(frozen=True, slots=True)
class BlockMember:
    """A contraction of a block: the label that it is split along for every strategy of the block, and the plans, each
    from the block's strategy to the own one, of itself and of both its gradients."""

    contraction: Contraction
    labels: tuple[str, ...]
    plan: tuple[int, ...]
    gradients: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class ParallelBlock:
    """Contractions that one strategy settles. The first is its root, whose strategies are the block's."""

    name: str
    layer: str
    members: tuple[BlockMember, ...]
    between: tuple[Between, ...]
    sizes: Mapping[str, int] = field(repr=False)

    @property
    def root(self) -> Contraction:
        """Returns the contraction that opens the block."""
        return self.members[0].contraction

    @property
    def contractions(self) -> tuple[str, ...]:
        """Returns the names of its contractions."""
        return tuple(each.contraction.name for each in self.members)

    @property
    def labels(self) -> tuple[str, ...]:
        """Returns the label that each strategy on one axis splits."""
        return tuple(dim[0] for dim in self.root.splits)

    @cached_property
    def strategies(self) -> tuple[ShardingStrategy, ...]:
        """Returns the strategies on a mesh of one axis."""
        return strategies(self.root, ONE_AXIS)

    @property
    def space(self) -> int:
        """Returns the number of strategies on a mesh of one axis."""
        return len(self.strategies)

    @property
    def plans(self) -> dict[str, tuple[int, ...]]:
        """Returns the plan of every member and of its gradients by name: `fc1`, `fc1.wgrad`, `fc1.dgrad`; where a
        product has no weight, `qk.dq` and `qk.dk`."""
        found: dict[str, tuple[int, ...]] = {}
        for member in self.members:
            found[member.contraction.name] = member.plan
            found.update(member.gradients)
        return found


class BlockList(tuple[ParallelBlock, ...]):
    """The ParallelBlocks of a model, in the order of its different layers."""

    __slots__ = ()

    @property
    def spaces(self) -> dict[str, list[int]]:
        """Returns the number of strategies of every block, by the name of the layer."""
        found: dict[str, list[int]] = {}
        for block in self:
            found.setdefault(block.layer, []).append(block.space)
        return found


def layer_blocks(graph: LayerGraph) -> BlockList:
    """Returns the ParallelBlocks of a layer.

    Args:
        graph: its contractions and what lies between them.
    """
    groups: list[list[Contraction]] = []
    for each in graph.contractions:
        home = _find_group(each, groups, graph)
        if home is None:
            groups.append([each])
        else:
            home.append(each)
    return BlockList(_build_block(graph, group) for group in groups)


def _find_group(
    contraction: Contraction, groups: Sequence[list[Contraction]], graph: LayerGraph
) -> list[Contraction] | None:
    """The group that a contraction joins; None where it opens one."""
    between = graph.between
    if contraction.weight is None:
        return next((group for group in groups if contraction.left.name in _made_tensors(group, between)), None)
    last = groups[-1] if groups else None
    if last is None:
        return None
    root = last[0]
    same = contraction.left.name == root.left.name and not contraction.left.weight
    batched = bool(set(contraction.batch) & set(root.batch)) and root.weight is not None
    joined = contraction.name in graph.joined or _results_meet(last, contraction, graph)
    return last if same or batched or joined else None


def _results_meet(group: Sequence[Contraction], contraction: Contraction, graph: LayerGraph) -> bool:
    """Returns whether a contraction without a weight combines a result of a group and a result of a later
    contraction."""
    ahead, behind = _made_tensors(group, graph.between), _made_tensors([contraction], graph.between)
    products = [each for each in graph.contractions if each.weight is None]
    return any(each.left.name in ahead - behind and each.right.name in behind - ahead for each in products)


def _made_tensors(group: Sequence[Contraction], between: Sequence[Between]) -> set[str]:
    """Returns the names of the tensors that a group and the operations behind its contractions make."""
    names = {each.name for each in group}
    return {each.out.name for each in group} | {one for each in between if each.after in names for one in each.makes}


def _build_block(graph: LayerGraph, group: Sequence[Contraction]) -> ParallelBlock:
    root = group[0]
    lying = tuple(each for each in graph.between if each.after in {one.name for one in group})
    members = []
    for each in group:
        labels = tuple(_follow_labels(root, each, group, lying))
        gradients = tuple((_gradient_name(each, one.name), plan_table(root, one, labels)) for one in backward(each))
        members.append(BlockMember(each, labels, plan_table(root, each, labels), gradients))
    return ParallelBlock("+".join(one.name for one in group), graph.name, tuple(members), lying, graph.sizes)


def _gradient_name(contraction: Contraction, tensor: str) -> str:
    weight = contraction.weight
    if weight is None:
        return f"{contraction.name}.{tensor}"
    return f"{contraction.name}.{'wgrad' if tensor == 'd' + weight.name else 'dgrad'}"


def _follow_labels(
    root: Contraction, member: Contraction, group: Sequence[Contraction], lying: Iterable[Between]
) -> Iterable[str]:
    """The label that a member is split along for every strategy of the root."""
    names = [each.name for each in group]
    before = set(names[: names.index(member.name)])
    lost = {label for each in lying if each.after in before for label in each.over}
    reached = [_image_label(root, member, dim[0], lost) for dim in root.splits]
    fallback = next(label for label in reached if label is not None)
    if member.weight is not None:  # its own dimension of the same kind, as one latent for another
        return (own[0] if label is None else label for label, own in zip(reached, member.splits, strict=False))
    return (fallback if label is None else label for label in reached)


def _image_label(root: Contraction, member: Contraction, label: str, lost: set[str]) -> str | None:
    """The label if a split along it passes from the root to a member without communication, else None."""
    if member.name == root.name:
        return label
    if member.weight is None and (label in lost or not root.out.has(label)):
        return None
    return None if member.split_by(label) is None else label
