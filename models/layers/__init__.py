"""Kinds of layers: one file per kind, with its products, weights and cached state.

A model is an embedding, a pattern of blocks, and a head; a block is a list of mixers and feedforward layers. Nothing
outside this package and the importers names a kind.
"""

from models.layers.contract import (
    Activation,
    LaunchWords,
    LayerKind,
    MixingWork,
    Product,
    Routing,
    SequenceState,
    SoftmaxShape,
)
from models.layers.counts import ParameterCounts, pattern_counts
from models.layers.pattern import Block, LayerPattern, Run, block_of_letter, block_titles, runs_of

__all__ = [
    "Activation",
    "Block",
    "LaunchWords",
    "LayerKind",
    "LayerPattern",
    "MixingWork",
    "ParameterCounts",
    "Product",
    "Routing",
    "Run",
    "SequenceState",
    "SoftmaxShape",
    "block_of_letter",
    "block_titles",
    "pattern_counts",
    "runs_of",
]
