"""Registry of schedules by name.

from engine.simulate.schedules.registry import NAMES, rule

rule("zb-h1").title    # "ZB-H1"; rule("ZB1P") is the same
"""

from __future__ import annotations

from typing import Final

from engine.simulate.schedules import (
    automatic,
    automatic_v,
    chimera,
    dualpipe,
    greedy,
    interleaved,
    one_chunk,
    v_shaped,
    zero_bubble,
)
from engine.simulate.schedules.contract import ScheduleError, ScheduleRule

__all__ = ["NAMES", "RULES", "rule"]

RULES: Final[tuple[ScheduleRule, ...]] = (
    *one_chunk.RULES,
    *greedy.RULES,
    *interleaved.RULES,
    *zero_bubble.RULES,
    *automatic.RULES,
    *v_shaped.RULES,
    *automatic_v.RULES,
    *dualpipe.RULES,
    *chimera.RULES,
)

_BY_NAME: Final = {each.name: each for each in RULES}

NAMES: Final = tuple(_BY_NAME)

_OTHER_NAMES: Final = {
    "pipedream-flush": "1f1b",
    "interleaved-1f1b": "interleaved",
    "interleaved1f1b": "interleaved",
    "loopedbfs": "looped-bfs",
    "breadth-first": "looped-bfs",
    "bfs": "looped-bfs",
    "zb1p": "zb-h1",
    "zbh1": "zb-h1",
    "zb2p": "zb-h2",
    "zbh2": "zb-h2",
    "zb-v": "zbv",
    "zbvzerobubble": "zbv",
    "interleavedzerobubble": "interleaved-zb",
    "vhalf": "v-half",
    "vmin": "v-min",
    "v1f1b": "v-1f1b",
    "dualpipe-v": "dualpipev",
    "distir": "distir-1f1b",
    "calculon": "calculon-1f1b",
    "greedy-1f1b": "distir-1f1b",
    "ep-overlap": "interleaved-ep-overlap",
    "combined-1f1b": "interleaved-ep-overlap",
    "zb-v-auto": "zbv-auto",
}
"""Names in other programs, without capitals and with hyphens."""


def rule(name: str) -> ScheduleRule:
    """Return the schedule with a name, including names that other programs use.

    Args:
        name: of a schedule, in any letter case; spaces and underscores stand for hyphens.

    Raises: ScheduleError if no schedule has the name.
    """
    asked = str(name).strip().lower().replace("_", "-").replace(" ", "-")
    found = _BY_NAME.get(_OTHER_NAMES.get(asked, asked))
    if found is None:
        raise ScheduleError(f"There is no schedule {str(name)[:60]!r}; there are {', '.join(NAMES)}.")
    return found
