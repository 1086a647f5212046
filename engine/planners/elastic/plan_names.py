"""Names of plans: three digits for pipeline, tensor and data parallelism, such as 244, or words, such as
zero-offload+gc.

The artifact has several vocabularies for one plan; here each plan has one name, and all of them are understood.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pandas as pd

from engine.executions.execution_names import execution_name
from engine.planners.contract import PlanError
from engine.planners.elastic.placements import gpus_on_nodes
from models.documents import shown

__all__ = [
    "DATA_PARALLEL",
    "OFFLOAD",
    "PLAIN",
    "PLAN_COLUMNS",
    "TITLES",
    "WORDS",
    "ZERO_DP",
    "PlanName",
    "degrees_text",
    "parse_plan",
    "plan_title",
    "plan_titles",
    "with_plan_titles",
]

PLAIN: Final = 0
"""Kind of a plan without ZeRO. Source: the artifact's numbers."""
OFFLOAD: Final = 1
"""Kind of ZeRO-Offload. Source: the artifact's numbers."""
ZERO_DP: Final = 2
"""Kinds of the data-parallel family: plain, ZeRO-Offload, and ZeRO-DP, which is ZeRO stage 2."""

WORDS: Final = {PLAIN: "dp", OFFLOAD: "zero-offload", ZERO_DP: "zero-dp"}
"""Words for kinds of plans in plan names, commands, files and links."""

TITLES: Final = {PLAIN: "DP", OFFLOAD: "ZeRO-Offload", ZERO_DP: "ZeRO-DP"}
"""Titles of kinds of plans on screen."""


@dataclass(frozen=True, slots=True)
class PlanName:
    """A plan without its GPUs. The data-parallel family has `zero` and `recompute`; all others have degrees, and `zero`
    None."""

    pp: int = 1
    tp: int = 1
    dp: int = 1
    zero: int | None = None
    recompute: bool = False

    def __deepcopy__(self, memo: object) -> PlanName:
        """Returns the immutable object itself: Pandas copies the `attrs` of a table for each of its columns."""
        return self

    @property
    def family(self) -> str:
        """Returns `DP` for the data-parallel family, else `3D`."""
        return "3D" if self.zero is None else "DP"

    @property
    def text(self) -> str:
        """Returns the name: 244, or zero-offload+gc."""
        if self.zero is None:
            return degrees_text(self.pp, self.tp, self.dp)
        return f"{WORDS[self.zero]}+{'gc' if self.recompute else 'ga'}"

    @property
    def title(self) -> str:
        """Returns the plan as people read it: "TP 4 × PP 2 × DP 4", or ZeRO-Offload+GC; GC recomputes, GA accumulates
        gradients."""
        if self.zero is None:
            return execution_name({"tensor_par": self.tp, "pipeline_par": self.pp, "data_par": self.dp})
        return f"{TITLES[self.zero]}+{'GC' if self.recompute else 'GA'}"

    @property
    def strategy(self) -> tuple[str | int, ...]:
        """Returns the plan in the artifact's own form: (2, 4, 4), or (DP, gc, zero-offload)."""
        if self.zero is None:
            return (self.pp, self.tp, self.dp)
        return ("DP", "gc" if self.recompute else "ga", "" if self.zero == PLAIN else WORDS[self.zero])


DATA_PARALLEL: Final = tuple(
    PlanName(zero=zero, recompute=recompute) for recompute in (False, True) for zero in (OFFLOAD, ZERO_DP, PLAIN)
)
"""The data-parallel family in the order in which the artifact tries it: among equal plans the first one wins."""


@lru_cache(maxsize=4_096)
def plan_title(name: str, gpus: int | None = None) -> str:
    """Returns a plan's title: "TP 4 × PP 2 × DP 4" for 244, "ZeRO-Offload+GC" for zero-offload+gc.

    Text that is not a plan's name, and ambiguous digits, are returned unchanged.

    Args:
        name: as `PlanName.text` writes it.
        gpus: of the plan, by which more than three digits are read.
    """
    try:
        return parse_plan(name, gpus).title
    except PlanError:
        return name


PLAN_COLUMNS: Final = frozenset(
    {"plan", "raw_plan", "stored_plan", "requested_plan", "best_plan", "best_measured", "best_predicted"}
)
"""Columns that have names of plans."""


def with_plan_titles(table: pd.DataFrame) -> pd.DataFrame:
    """Returns a table with all its plans as people read them, see `plan_titles`.

    Args:
        table: with any of `PLAN_COLUMNS`.
    """
    return table.assign(**{name: plan_titles(table, name) for name in table.columns if name in PLAN_COLUMNS})


def plan_titles(table: pd.DataFrame, column: str) -> list[str]:
    """Returns the plans of a table as people read them, by `plan_title`.

    Args:
        table: with the plans' names in `column`, and where it has them `gpus` or the `placement` of each row.
        column: of the names.
    """
    gpus: list[int | None] = [None] * len(table)
    if "gpus" in table and not column.startswith("stored"):
        gpus = [None if each != each else int(each) for each in table["gpus"]]
    elif "stored_gpus" in table and column.startswith("stored"):
        gpus = [None if each != each else int(each) for each in table["stored_gpus"]]
    elif "placement" in table:
        gpus = [sum(gpus_on_nodes(each)) if isinstance(each, str) and each else None for each in table["placement"]]
    return [
        plan_title(name, number) if isinstance(name, str) else name
        for name, number in zip(table[column], gpus, strict=True)
    ]


@lru_cache(maxsize=4_096)
def degrees_text(pp: int, tp: int, dp: int) -> str:
    """Returns the name of a plan with degrees: digits where they can be read back for as many GPUs, else with dashes.

    Args:
        pp, tp, dp: pipeline, tensor and data parallel degrees.
    """
    text = f"{pp}{tp}{dp}"
    return text if len(_split_digits(text, pp * tp * dp)) == 1 else f"{pp}-{tp}-{dp}"


def _split_digits(digits: str, gpus: int | None) -> list[tuple[int, int, int]]:
    """Returns every way to read digits as three degrees whose product is the number of GPUs."""
    found = []
    for first in range(1, len(digits) - 1):
        for second in range(first + 1, len(digits)):
            parts = digits[:first], digits[first:second], digits[second:]
            if all(part[0] != "0" for part in parts):
                degrees = int(parts[0]), int(parts[1]), int(parts[2])
                if gpus is None or degrees[0] * degrees[1] * degrees[2] == gpus:
                    found.append(degrees)
    return found


def parse_plan(text: object, gpus: int | None = None) -> PlanName:
    """Returns the plan of a name in any of the artifact's notations.

    `ga`, `dp` and `DP+ga` are data parallelism, `gc` the same with recomputation, `zero-dp` and `zero-offload` stand
    alone or with `+ga` or `+gc`; `tp+ga` is tensor parallelism over all GPUs, `pp+ga` a pipeline of all.

    Args:
        text: such as 244, 2-4-4, zero-offload+gc or tp+ga.
        gpus: of the job, to read ambiguous digits.

    Raises `engine.planners.contract.PlanError` for text that is not a plan.
    """
    name = str(text).strip().lower() if isinstance(text, str | int) else ""
    if re.fullmatch(r"[0-9]{3,12}", name, re.ASCII):
        splits = _split_digits(name, None if len(name) == 3 else gpus)
        if len(splits) == 1:
            return PlanName(*splits[0])
        if splits and gpus is None:
            raise PlanError(f"The plan {shown(name)} can be read in several ways; write degrees with dashes: 2-1-16.")
    if match := re.fullmatch(r"([0-9]{1,6})-([0-9]{1,6})-([0-9]{1,6})", name, re.ASCII):
        degrees = int(match[1]), int(match[2]), int(match[3])
        if min(degrees) >= 1:
            return PlanName(*degrees)
    words = [word for word in name.split("+") if word]
    recompute = "gc" in words
    kinds = [word for word in words if word not in ("ga", "gc")]
    if len(kinds) == 2 and kinds[0] == "dp":
        kinds = kinds[1:]
    if words and kinds in ([], ["dp"], ["zero-dp"], ["zero-offload"]):
        zero = {"zero-dp": ZERO_DP, "zero-offload": OFFLOAD}.get("".join(kinds), PLAIN)
        return PlanName(zero=zero, recompute=recompute)
    if kinds in (["tp"], ["pp"]) and not recompute:
        if gpus is None:
            raise PlanError(f"The plan {shown(name)} says no degree; say on how many GPUs it runs.")
        return PlanName(tp=gpus) if kinds == ["tp"] else PlanName(pp=gpus)
    raise PlanError(
        f"{shown(text)} is no plan; write degrees of pipeline, tensor and data parallelism, such as 244 or 2-1-16, or "
        "dp, zero-dp or zero-offload with +ga or +gc."
    )
