"""Layers: which are alike, and the ParallelBlocks of each kind with their strategies and plan tables."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import groupby, pairwise
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.plans.layer_blocks import segment_map
from dashboard.link.fields import LinkField
from dashboard.widgets.chart import show
from dashboard.widgets.file_download import draw_download
from dashboard.widgets.link_fields import draw_segments
from dashboard.widgets.tables import height_of
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted
from engine.planners.intra_operator import (
    BlockList,
    IntraOperatorPlan,
    ParallelBlock,
    StepCosts,
    Vector,
    sharding_annotations,
)
from engine.planners.intra_operator.contractions import Contraction, backward
from engine.planners.intra_operator.parallel_blocks import layer_blocks
from engine.planners.intra_operator.segments import segments_of

__all__ = ["chosen_words", "draw_layers", "plans_frame", "strategies_frame"]

LABELS: Final = {
    "b": "sequences",
    "s": "positions",
    "h": "hidden",
    "a": "heads",
    "f": "MLP width",
    "e": "experts",
    "g": "groups",
    "t": "tokens of a group",
    "c": "places",
    "d": "head width",
    "z": "key positions",
    "r": "query heads",
    "n": "visits",
    "latent_q": "query latent",
    "latent_kv": "key-value latent",
    "rope": "rotated key",
    "wide": "key and value",
    "value": "value head",
    "shared": "shared width",
}
"""Labels of dimensions in words."""
RAISED: Final = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def chosen_words(plan: IntraOperatorPlan, chosen: StepCosts) -> str:
    """Returns the plan of every block, equal layers together."""
    kinds = _blocks_by_kind(plan)
    pairs = [(graph.name, vector) for graph, vector in zip(plan.layers, chosen.vectors, strict=True)]
    order = list(dict.fromkeys(pairs))
    parts = []
    for pair in order[:3]:
        at = [number for number, each in enumerate(pairs, 1) if each == pair]
        which = "all layers" if len(at) == len(pairs) else f"layer {at[0]}" if len(at) == 1 else _describe_layers(at)
        parts.append(f"{which}: {_vector_words(kinds[pair[0]], pair[1])}")
    more = f"; {counted(len(order) - 3, 'more kind')} of layers" if len(order) > 3 else ""
    text = "; ".join(parts) + more
    return f"{text[:1].upper()}{text[1:]}."


def _blocks_by_kind(plan: IntraOperatorPlan) -> dict[str, BlockList]:
    """Return the blocks of every different layer by its name."""
    return {name: layer_blocks(graph) for name, graph in {each.name: each for each in plan.layers}.items()}


def _describe_layers(at: list[int]) -> str:
    """Return numbers of layers in words: "layers 1 to 4", "every second layer from 1 to 7", "5 layers from 2 on"."""
    apart = {after - before for before, after in pairwise(at)}
    if apart == {1}:
        return f"layers {at[0]} to {at[-1]}"
    return f"every second layer from {at[0]} to {at[-1]}" if apart == {2} else f"{len(at)} layers from {at[0]} on"


def _vector_words(blocks: Iterable[ParallelBlock], vector: Vector) -> str:
    """Return the split of each block; blocks with the same split together."""
    split = [(_describe_split(block, chosen), block) for block, chosen in zip(blocks, vector, strict=True)]
    parts = []
    for words, several in groupby(split, lambda each: each[0]):
        names = [block.root.name for _, block in several]
        parts.append(f"{', '.join(names)} by {words}")
    return ", ".join(parts)


def _describe_split(block: ParallelBlock, chosen: Any) -> str:
    """Return the dimension that a strategy of a block splits; with two mesh axes, the dimensions of both."""
    labels = [block.labels[each] for each in (chosen if isinstance(chosen, tuple) else (chosen,))]
    words = [LABELS.get(each, each) for each in labels]
    return words[0] if len(set(words)) == 1 else f"{words[0]} outside and {words[1]} inside"


def draw_layers(plan: IntraOperatorPlan, layer: LinkField, mode: str) -> None:
    """Draws the segments, the blocks, and the plan as sharding annotations."""
    graphs, kinds, chosen = plan.layers, _blocks_by_kind(plan), plan.chosen
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("Segments", "layers of one kind are one segment; strategies chosen of its blocks"))
        names = [each.name for each in graphs]
        table = segments_of(graphs)
        chart = segment_map(table, None if chosen is None else chosen.vectors, mode)
        show(chart, "intra_operator_segments")
        axes = len(plan.mesh.shape)
        spaces = {name: [block.space**axes for block in blocks] for name, blocks in kinds.items()}
        joint = " × ".join(f"{math.prod(each):,}{_format_exponent(names.count(name))}" for name, each in spaces.items())
        st.caption(
            literal(
                f"{chart.alt} Strategies of the blocks: {' and '.join(str(each) for each in spaces.values())}. "
                f"{sum(map(math.prod, spaces.values())):,} vectors are evaluated instead of {joint}."
                + (f" As CFP prints it: {_segments_text(table)}." if len(names) <= 8 else "")
            )
        )
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("ParallelBlocks", "one choice of strategy settles all contractions of a block"))
        layer = layer.among({name: name for name in kinds})
        draw_segments(layer)
        blocks = kinds[layer.value]
        left, right = st.columns([1, 1.25], gap="medium")
        strategies = strategies_frame(blocks)
        left.dataframe(
            strategies,
            hide_index=True,
            height=height_of(len(strategies), 520),
            key="intra_operator_blocks",
            alt="Every block with its strategies, what each splits and its name.",
            column_config={"strategy": st.column_config.NumberColumn(width=66)},
        )
        plans = plans_frame(blocks)
        right.dataframe(
            plans,
            hide_index=True,
            height=height_of(len(plans), 520),
            placeholder="–",
            key="intra_operator_plans",
            alt="The strategy of every contraction and gradient for each strategy of its block.",
        )
        right.caption(
            "Plan tables: for each strategy of the block, the strategy of every contraction and gradient, and the "
            "dimension that it splits. If that dimension is summed over, an all-reduce follows."
            + (
                " On two axes every axis has a strategy of its own: 12 is 1 outside and 2 inside."
                if len(plan.mesh.shape) > 1
                else ""
            )
        )
        if chosen is not None:
            _draw_annotations(plan)


def _draw_annotations(plan: IntraOperatorPlan) -> None:
    """Draw the sharding of every weight and activation, as a table and a download."""
    with st.expander("Sharding annotations of the chosen plan"):
        table = sharding_annotations(plan)
        shown = table.drop(columns=["shape"])
        st.dataframe(
            shown,
            hide_index=True,
            height=height_of(len(shown), 420),
            key="intra_operator_annotations",
            alt="Every weight and activation with the mesh axes that split it.",
        )
        st.caption(
            "P(…) is JAX’s PartitionSpec, with an entry for each dimension; placements are PyTorch’s for DTensor, one "
            "for each mesh axis. The collective sums partial results of a contraction."
        )
        draw_download(
            "Annotations (CSV)",
            lambda: table.to_csv(index=False),
            "annotations.csv",
            "text/csv",
            key="intra_operator_annotations.csv",
        )


def _segments_text(segments: pd.DataFrame) -> str:
    """Return the sequence of segments as in a log: intervals of contractions, with the interval that each repeats."""
    pairs = zip(segments["printed"], segments["printed_as"], strict=True)
    return ", ".join(f"{own} as {first}" for own, first in pairs)


def _format_exponent(number: int) -> str:
    return "" if number == 1 else str(number).translate(RAISED)


def strategies_frame(blocks: Iterable[ParallelBlock]) -> pd.DataFrame:
    """Returns the strategies of every block: its number, the split dimension, and Alpa's name."""
    return pd.DataFrame(
        [
            {
                "block": ", ".join(block.contractions),
                "strategy": strategy.id,
                "splits": LABELS.get(label, label),
                "name": strategy.name,
            }
            for block in blocks
            for strategy, label in zip(block.strategies, block.labels, strict=True)
        ]
    )


def plans_frame(blocks: Iterable[ParallelBlock]) -> pd.DataFrame:
    """Returns the plan of every contraction and gradient: its strategy and split, for each strategy of the block."""
    rows = []
    for block in blocks:
        for member in block.members:
            gradients = zip(member.gradients, backward(member.contraction), strict=True)
            for name, plan, of in (
                (member.contraction.name, member.plan, member.contraction),
                *((name, plan, of) for (name, plan), of in gradients),
            ):
                cells = {f"strategy {number}": _contraction_split(of, own) for number, own in enumerate(plan)}
                rows.append({"contraction": name, "plan": ",".join(map(str, plan)), **cells})
    return pd.DataFrame(rows)


def _contraction_split(contraction: Contraction, strategy: int) -> str:
    dim = contraction.splits[strategy]
    return LABELS.get(dim[0], dim[0]) + (", all-reduce" if dim in contraction.contracted else "")
