"""Patterns of layers in Megatron-LM's letters: parsed, checked, and split into the stages of a pipeline.

Source: megatron/core/models/hybrid/hybrid_layer_allocation.py and megatron/training/arguments.py, core 0.19 and 0.20.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final, NamedTuple

from engine.launch.contract import LaunchError
from models.documents import shown

__all__ = ["DELTA_NETS", "PATTERNS", "SPARSE", "VARIANT", "HybridPattern", "parse_hybrid_pattern", "split_into_stages"]

PATTERNS: Final = ("hybrid_layer_pattern", "hybrid_override_pattern")
"""Arguments that state a pattern; the second is deprecated."""
VARIANT: Final = "experimental_attention_variant"
"""Argument that replaces attention in some layers of a GPT model."""
DELTA_NETS: Final = ("gated_delta_net", "gdn")
"""Values of it for gated delta nets; the second is newer."""
SPARSE: Final = "dsa"
"""Value of it for latent attention with an indexer in all layers."""
_LETTERS: Final = frozenset("MG*D+-E")
MOST_LAYERS: Final = 20_000
"""Layers at most, as in lists of layers by stage (`engine.columns.stage_layouts`)."""


class HybridPattern(NamedTuple):
    """Letters of the layers."""

    segments: tuple[str, ...]
    """Letters of every stage of the model; all in one for a pattern that marks none."""
    predictions: str
    """Letters of one depth of multi-token prediction."""
    depths: int


def parse_hybrid_pattern(text: Any, name: str) -> HybridPattern:
    """Return the layers of a pattern such as "M-M*-|M-M*-" or "M*M*/MM/MM".

    Args:
        text: value of the flag.
        name: of the flag, for messages.

    Raises `LaunchError` for one that Megatron-LM refuses.
    """
    pattern = str(text).strip()
    main, *depths = pattern.split("/")
    strange = next((each for each in main.replace("|", "") + "".join(depths) if each not in _LETTERS), None)
    if strange is not None:
        raise LaunchError(
            f"{name} has {shown(strange)}; its letters are M, G, *, D, +, - and E, with | between stages and / before "
            "prediction layers."
        )
    if "*" in main and ("D" in main or "+" in main):
        raise LaunchError(
            f"{name} has * and {'D' if 'D' in main else '+'}; Megatron-LM runs ordinary or latent attention in a "
            "model, not both."
        )
    if not 1 <= len(main.replace("|", "")) <= MOST_LAYERS:
        raise LaunchError(f"{name} has {len(main.replace('|', '')):,} layers; it must have from 1 to {MOST_LAYERS:,}.")
    if len(set(depths)) > 1:
        other = next(each for each in depths if each != depths[0])
        raise LaunchError(
            f"{name} has unlike prediction layers, {shown(depths[0])} and {shown(other)}; they must be the same."
        )
    return HybridPattern(tuple(main.split("|")), depths[0] if depths else "", len(depths))


def split_into_stages(pattern: HybridPattern, pipeline: int, first: int | None, last: int | None) -> tuple[str, ...]:
    """Return the letters of every stage of the model; a pattern without marks is divided evenly, or left in one
    part if it cannot be.

    Args:
        pattern: of the layers.
        pipeline: ranks of the pipeline.
        first: layers of the first stage, if stated.
        last: layers of the last stage, if stated.
    """
    if len(pattern.segments) > 1 or pipeline == 1:
        return pattern.segments
    letters = pattern.segments[0]
    ends = [each for each in (first, last) if each is not None]
    middle, rest = pipeline - len(ends), len(letters) - sum(ends)
    if rest < 0 or (rest % middle if middle > 0 else rest):
        return pattern.segments
    sizes = [rest // middle] * middle if middle > 0 else []
    sizes = [*([first] if first is not None else []), *sizes, *([last] if last is not None else [])]
    places = [sum(sizes[:number]) for number in range(len(sizes) + 1)]
    return tuple(letters[start:end] for start, end in pairwise(places))
