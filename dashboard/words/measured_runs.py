"""Sentences for the table words of measured runs."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["assumed", "noted"]

_ASSUMED: Final = {
    "cp 1": "no context parallel",
    "gated_mlp False": "an MLP without a gate",
    "gbs / (dp x mbs) rounded": "a whole number of microbatches",
    "moe_dense_layers 0": "experts in every block",
    "moe_shared 0": "no shared experts",
    "recompute none": "no recompute",
    "seq_parallel tp > 1": "sequence parallel where TP is above 1",
    "tied_embeddings False": "embeddings not tied",
    "vpp 1": "no interleaving",
    "zero_stage 1": "ZeRO stage 1",
}
"""Assumptions of `engine.validation` about unstated fields of a run: words in tables of runs -> words in sentences."""
_LIST: Final = re.compile(r"/?\[(['\"][^\[\]]*['\"])\]")


def assumed(text: str) -> str:
    """Returns what was assumed for a run: "no recompute, ZeRO stage 1"."""
    return ", ".join(_ASSUMED.get(part, part) for part in text.split("; "))


def noted(text: str, most: int) -> str:
    """Returns a note of a run of at most `most` characters, its lists as words: "graphs (attn, mamba)"."""
    plain = _LIST.sub(lambda found: " (" + found[1].replace("'", "").replace('"', "") + ")", text).strip()
    if len(plain) <= most:
        return plain
    return plain[:most].rsplit(" ", 1)[0].rstrip(" ,;.:") + " …"
