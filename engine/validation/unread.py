"""Words of enumerated columns that change nothing, named among the assumptions of their row.

A column with a list of words reads each of them as itself. A near-miss of a word, or a word without an effect in
the cost model, is no error: the row is predicted without it, and says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache, partial

import numpy as np
import pandas as pd

from engine.validation.checks import Findings
from engine.validation.notes import Rows
from engine.validation.sites import rate_per_processor, states_domain
from engine.validation.software import find_rule, release_year
from engine.validation.words import DRIVER_MEMORY, PRECISIONS

__all__ = ["CHOICES", "FAMILIES", "name_unread_words", "unread_part"]

FAMILIES = frozenset(
    {
        "dense_megatron",
        "dense_fsdp",
        "dense_dp",
        "dense_longseq",
        "dense_sft",
        "dense_zerobubble",
        "dense_zero_offload",
        "hybrid_mamba",
        "memory_only",
        "moe",
        "moe_zerobubble",
        "tpu_fsdp",
    }
)
"""Words of the column `family`. A word without an effect only describes what other columns say."""
CHOICES: Mapping[str, frozenset[str]] = {
    "family": FAMILIES,
    "split": frozenset({"calibration", "aux", "heldout"}),
    "completeness": frozenset({"full", "near", "partial"}),
    "status": frozenset({"ok", "oom"}),
}
"""Words of columns that hold exactly one."""
_ATTENTION = (
    r"(?:multi[- ]?head |grouped[- ]query |multi[- ]query )?(?:full |causal |softmax )*attention|multi[- ]?head"
    r"|mha|gqa|mqa|grouped[- ]query|multi[- ]query|(?:multi[- ]?head )?latent(?: attention)?|mla|full|causal"
    r"|(?:q_lora|kv_lora|nope|rope|v)\d+|alternating|(?:sliding[- _]?window|swa)(?:[- _]?attention)?[ =:]*\d*"
)
"""Words of the column `attn`."""
_TENSORS, _DRIVER = r"\b(?:max|peak|reserved|allocated|analytical)|max_", r"nvidia|smi|driver|node"
"""Words of the column `mem_kind` for memory of tensors, and for memory that a driver counts."""
_NO_RATE = "single node|not stated"
"""Words of the column `scaleout` without a rate."""
_SEPARATORS = r"[\s,;/+&()\[\]]+"
MOST_SHOWN = 40
"""Characters of an unread word that are shown."""


def name_unread_words(table: pd.DataFrame, found: Findings, interleaved: Rows) -> None:
    """Name unread words of enumerated columns among the assumptions of each row.

    Args:
        table: typed runs [rows].
        found: reasons and assumptions by row; extended here.
        interleaved: rows whose stages have several chunks [rows].
    """
    is_measured = np.isfinite(table["mem_gib"].to_numpy(np.float64))
    for column in (*CHOICES, *_UNREAD):
        known = cache(partial(unread_part, column))
        for row, cell in enumerate(table[column]):
            if (left := known(str(cell))) and (column != "mem_kind" or is_measured[row]):
                found.assumed[row].append(_sentence(column, left))
    for row, (framework, source, date) in enumerate(
        zip(table["framework"], table["source"], table["date"], strict=True)
    ):
        if str(framework) and find_rule(f"{framework} | {source}") is None:
            found.assumed[row].append(_sentence("framework", str(framework)))
        if str(date) and np.isnan(release_year(str(framework), str(date))):
            found.assumed[row].append(_sentence("date", str(date)))
    _name_pipeline_words(table, found, interleaved)


def unread_part(column: str, text: str) -> str:
    """Return the part of a cell that is not read; "" where all is.

    Args:
        column: one of the enumerated columns that this module looks at.
        text: of the cell.
    """
    if not text:
        return ""
    return ("" if text in CHOICES[column] else text) if column in CHOICES else _UNREAD[column](text)


def _sentence(column: str, word: str) -> str:
    shown = " ".join(word.replace(";", ",").split())
    return f"{column} {shown[:MOST_SHOWN]!r} not read"


def _unread_network(text: str) -> str:
    # 8 stands for any number of processors in a host: the rate is asked for only to see whether there is one.
    is_read = rate_per_processor(text, 8.0) is not None or re.search(_NO_RATE, text, re.IGNORECASE)
    return "" if is_read else text


def _unread_memory(text: str) -> str:
    of_tensors = re.search(_TENSORS, text, re.IGNORECASE) and not re.search(_DRIVER, text, re.IGNORECASE)
    return "" if of_tensors or re.search(DRIVER_MEMORY, text) else text


def _unread_attention(text: str) -> str:
    left = re.sub(rf"(?<![\w-])(?:{_ATTENTION})(?![\w-])", " ", text, flags=re.IGNORECASE)
    return " ".join(_list_words(left))


def _unread_precision(text: str) -> str:
    words = "|".join(PRECISIONS.values())
    return " ".join(word for word in _list_words(text) if not re.fullmatch(words, word, re.IGNORECASE))


def _list_words(text: str) -> list[str]:
    """Return the words of a cell, without signs that stand alone."""
    return [word for word in re.split(_SEPARATORS, text) if re.search(r"\w", word)]


def _unread_domain(text: str) -> str:
    return "" if states_domain(text) else text


_UNREAD: Mapping[str, Callable[[str], str]] = {
    "attn": _unread_attention,
    "dtype": _unread_precision,
    "scaleup": _unread_domain,
    "scaleout": _unread_network,
    "mem_kind": _unread_memory,
}
"""Functions that return the unread part of a cell, by column."""


def _name_pipeline_words(table: pd.DataFrame, found: Findings, interleaved: Rows) -> None:
    """Name schedules and layouts of runs without a pipeline, and schedules that the chunks of stages contradict."""
    stages = table["pp"].to_numpy(np.float64)
    for row, (schedule, layout) in enumerate(zip(table["schedule"], table["layout"], strict=True)):
        word = str(schedule).strip().lower()
        alone = not stages[row] > 1
        plain = "interleaved" if interleaved[row] else "1f1b"
        if word in ("1f1b", "interleaved") and word != plain and not alone:
            found.assumed[row].append(f"schedule {word} read as {plain}, which vpp means")
        if word not in ("", "1f1b") and alone:
            found.assumed[row].append(_sentence("schedule", word) + ": pp is 1")
        if str(layout).strip() and alone:
            found.assumed[row].append(_sentence("layout", str(layout).strip()) + ": pp is 1")
