"""The segment map of a model: its sequence of layers, and of which earlier one each is a repetition.

CFP profiles every different segment once. Its log numbers contractions by "ParallelBlocks sequence: (0, 8) mapped to
(0, 8)"; there a layer of nine contractions counts eight and one of six counts six, and so it is printed here beside
the exact numbers. Source: CFP (published README), analysis pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import pandas as pd

from engine.planners.intra_operator.layer_graphs import LayerGraph
from engine.planners.intra_operator.parallel_blocks import layer_blocks
from engine.planners.intra_operator.steps import layers_of
from models.loader import ModelLike

__all__ = ["segment_map", "segments_of"]

MASKED: Final = "experts"
"""The layer of masks, whose last contraction the log does not count."""


def segment_map(model: ModelLike, *, batch: int = 16, layers: int | None = None) -> pd.DataFrame:
    """Returns the segments of a model, one per layer.

    Args:
        model: of the library, by name, path or itself; or registered by name, such as "gpt F".
        batch: sequences.
        layers: how many; the model's where None.

    Returns:
        One row per layer: segment, layer (its kind), start and stop (a half-open range of the model's contractions),
        template (which different segment it is, from 0), repeats (whether an earlier one is the same), blocks (their
        names), space (strategies of every block), vectors (how many), printed and printed_as (the interval of CFP's
        log, and that of the first segment of the kind).

    Raises:
        PlanError: unknown model, or a number out of range.
        models.ModelFileError: unknown or invalid model.
    """
    return segments_of(layers_of(model, batch=batch, layers=layers)[1])


def segments_of(graphs: Sequence[LayerGraph]) -> pd.DataFrame:
    """Returns the segments of layers; see `segment_map`.

    Args:
        graphs: the layers, from the first.
    """
    rows = []
    templates: dict[str, tuple[int, tuple[int, int]]] = {}
    start = printed = 0
    for number, graph in enumerate(graphs):
        stop = start + len(graph.contractions)
        end = printed + len(graph.contractions) - (graph.name == MASKED and not graph.visits)
        repeats = graph.name in templates
        template, first = templates.setdefault(graph.name, (len(templates), (printed, end)))
        blocks = layer_blocks(graph)
        space = tuple(each.space for each in blocks)
        rows.append(
            {
                "segment": number,
                "layer": graph.name,
                "start": start,
                "stop": stop,
                "template": template,
                "repeats": repeats,
                "blocks": tuple(each.name for each in blocks),
                "space": space,
                "vectors": math.prod(space),
                "printed": (printed, end),
                "printed_as": first,
            }
        )
        start, printed = stop, end
    return pd.DataFrame(rows)
