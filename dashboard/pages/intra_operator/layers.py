"""The layers: which are alike, and the ParallelBlocks of each kind with their strategies and plan tables."""

from __future__ import annotations

from typing import Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.layer_blocks import segment_map
from dashboard.pages.intra_operator.inputs import Question
from dashboard.pages.intra_operator.queries import kind_blocks, layers_of
from dashboard.widgets.chart import show
from dashboard.widgets.controls import segments
from dashboard.widgets.tables import height_of
from dashboard.words.markdown import literal
from engine.planners.intra_operator import Chosen, ParallelBlock

__all__ = ["draw_layers", "plans_frame", "strategies_frame"]

LABELS: Final = {
    "b": "sequences", "s": "positions", "h": "hidden", "a": "heads", "f": "MLP width", "e": "experts", "g": "groups",
    "t": "tokens of a group", "c": "places", "d": "head width", "z": "key positions", "r": "query heads",
}  # fmt: skip


def draw_layers(asked: Question, chosen: Chosen | None, mode: str) -> None:
    """Draws the segments and the blocks."""
    graphs = layers_of(asked)
    kinds = kind_blocks(asked)
    left, right = st.columns([1, 1.35], gap="medium")
    with left.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Segments", "layers of one kind are searched once; the strategies chosen of each block"))
        names = [each.name for each in graphs]
        dots = {each.name: len(each.contractions) for each in graphs}
        chart = segment_map(names, dots, None if chosen is None else chosen.vectors, mode)
        show(chart, "intra_operator_segments")
        spaces = [[block.space for block in blocks] for blocks in kinds.values()]
        programs = sum(_product(each) for each in spaces)
        st.markdown(literal(
            f"{chart.alt} Strategies of the blocks: {' and '.join(str(each) for each in spaces)}, so that "
            f"{programs:,} vectors are valued in place of {_power([_product(s) for s in spaces], names, list(kinds))}."
        ))  # fmt: skip
    with right.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("ParallelBlocks", "one choice of strategy settles all contractions of a block"))
        kind = segments("Kind of layer", {name: name for name in kinds}, "intra_operator_layer")
        blocks = kinds[kind]
        strategies = strategies_frame(blocks)
        st.dataframe(strategies, hide_index=True, height=height_of(len(strategies), 500), key="intra_operator_blocks",
                     alt="Every block with its strategies, what each splits and its name.")  # fmt: skip
        plans = plans_frame(blocks)
        st.dataframe(
            plans, hide_index=True, height=height_of(len(plans), 500), placeholder="–", key="intra_operator_plans",
            alt="The strategy of every contraction and gradient for each strategy of its block.",
        )  # fmt: skip


def strategies_frame(blocks: tuple[ParallelBlock, ...]) -> pd.DataFrame:
    """Returns the strategies of every block: its number, what is split, the name by Alpa."""
    return pd.DataFrame([
        {"block": ", ".join(block.contractions), "strategy": strategy.id,
         "splits": LABELS.get(label, label), "name": strategy.name}
        for block in blocks for strategy, label in zip(block.strategies, block.labels, strict=True)
    ])  # fmt: skip


def plans_frame(blocks: tuple[ParallelBlock, ...]) -> pd.DataFrame:
    """Returns the plan of every contraction and gradient: its strategy for each of the block's."""
    return pd.DataFrame([
        {"contraction": name, "plan": ", ".join(map(str, plan)),
         **{f"for {number}": plan[number] if number < len(plan) else None for number in range(4)}}
        for block in blocks for name, plan in block.plans.items()
    ])  # fmt: skip


def _product(numbers: list[int]) -> int:
    found = 1
    for each in numbers:
        found *= each
    return found


def _power(sizes: list[int], names: list[str], kinds: list[str]) -> str:
    return " × ".join(f"{size:,}^{names.count(kind)}" for size, kind in zip(sizes, kinds, strict=True))
