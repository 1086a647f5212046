"""Pipeline layouts of Megatron-Core: how many chunks a text or list names.

Source: megatron/core/transformer/pipeline_parallel_layer_layout.py; `|` parts chunks, `*n` repeats a letter or a
bracketed group, letters are E (embedding), t (block), m (prediction layer) and L (loss), commas are decoration.
"""

from __future__ import annotations

import re
from typing import Any, Final

__all__ = ["layout_chunks", "layout_stages"]

MOST_CHUNKS: Final = 100_000
_GROUP: Final = re.compile(r"\(([^()]{0,10000})\)\*(\d{1,5})|\(([^()]{0,10000})\)")
_LETTER: Final = re.compile(r"([A-Za-z|])\*(\d{1,5})")


def layout_stages(layout: Any) -> list[str] | None:
    """Returns the chunks of a layout in the order of the pipeline, each as its letters; None where it is none.

    Args:
        layout: a text such as "Et*2|(t*2|)*34,t*3|tL", or a list of lists of names.
    """
    if isinstance(layout, list | tuple):
        if len(layout) > MOST_CHUNKS or not all(isinstance(each, list | tuple) for each in layout):
            return None
        letters = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
        return ["".join(letters.get(str(name), "?") for name in each) for each in layout]
    text = re.sub(r"[\s,]", "", str(layout))
    if len(text) > MOST_CHUNKS:
        return None
    for _ in range(8):
        group = _GROUP.search(text)
        if group is None:
            break
        inner = group[1] if group[1] is not None else group[3]
        times = int(group[2] or 1)
        inner = _LETTER.sub(lambda found: found[1] * min(int(found[2]), MOST_CHUNKS), inner)
        if len(inner) * times > MOST_CHUNKS:
            return None
        text = text[: group.start()] + inner * times + text[group.end() :]
    if sum(int(found[2]) for found in _LETTER.finditer(text)) > MOST_CHUNKS:
        return None
    text = _LETTER.sub(lambda found: found[1] * int(found[2]), text)
    if not re.fullmatch(r"[EtmL|]+", text):
        return None
    return text.split("|")


def layout_chunks(layout: Any) -> int | None:
    """Returns how many chunks a layout names, None where it is none.

    Args:
        layout: as `layout_stages` takes it.
    """
    stages = layout_stages(layout)
    return None if stages is None else len(stages)
