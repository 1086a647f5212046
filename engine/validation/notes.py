"""Facts about training software that the notes of measured runs state, and facts that they deny.

"tp-comm-overlap" states a fact, "no CUDA graphs" and "overlap_grad_reduce off" deny one. Each fact that is read is
named among the assumptions of its row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from engine.validation.texts import Texts, compile_finder

__all__ = ["COMPILED", "NOTED_FACTS", "NotedFact", "apply_notes", "remark", "stating", "tensors_on_host"]

_BEFORE = (
    r"(?:\b(?:no|not|non|without|never|neither|nor|disabl\w+|lacks?|lacking|minus|instead of|rather than|except)\b"
    r"|\ball but\b|\bw/o\b)[-_\s:]*(?:(?!with\b|but\b|and\b)[\w/+-]+\s+){0,3}$"
)
_AFTER = (
    r"^(?:[^\[\].;]*\])?(?:\w*['\"])?\s*(?:=|:|\(|is\b|was\b|were\b|are\b|set to\b|turned\b)?\s*['\"]?"
    r"(?:(?:off|false|none|disabled|unused|deactivated|not|never)\b|no\s*(?:$|[.;,)])|0(?![.\d]))"
)
_CLAUSE = re.compile(r"[.;,(\[\n](?=\s|$)|[\n(]")
Rows = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class NotedFact:
    """A fact that notes state or deny: its name in words, the pattern to find it, and values of software facts."""

    words: str
    pattern: str
    stated: Mapping[str, float | str]
    denied: Mapping[str, float | str] = field(default_factory=dict)


NOTED_FACTS: tuple[NotedFact, ...] = (
    NotedFact(
        "overlap of the gradient exchange",
        r"overlap[-_ ]grad[-_ ]reduce|fused_adam with overlap|overlap of (?:DP|data[- ]parallel) all-reduce",
        {"overlap_data": 1.0},
        {"overlap_data": 0.0},
    ),
    NotedFact(
        "overlap of tensor-parallel communication",
        r"tp[-_]comm[-_]overlap|async[ -]?tp\b",
        {"overlap_tensor": 1.0},
        {"overlap_tensor": 0.0},
    ),
    NotedFact("overlap of the expert exchange", r"A2A overlap", {"overlap_expert": 1.0}, {"overlap_expert": 0.0}),
    NotedFact("DeepEP", r"\bdeepep\b", {"token_dispatcher": "deepep"}),
    NotedFact("HybridEP", r"\bhybridep\b", {"token_dispatcher": "hybridep"}),
    NotedFact("Ulysses", r"\bUlysses\b", {"context_par_comm": "a2a"}),
    NotedFact("FlashAttention", r"flash[ -]?attention", {}, {"attention_kernel": "unfused"}),
    # Composer's DEFAULT mixed precision gathers 32-bit weights and casts them.
    NotedFact("32-bit gathers with casts", r"MP mode DEFAULT", {"gather_bytes": 4.0, "gather_cast_bytes": 6.0}),
    NotedFact(
        "CUDA graphs of attention",
        r"CUDA[- ]graphs?(?:(?!except|but )[^.;])*\battn\b|\bpartial CUDA[- ]graphs?",
        {"launch": "partial_graphs"},
    ),
    NotedFact(
        "CUDA graphs of the iteration",
        r"CUDA[- ]graphs?[^.;]*\bfull[-_ ]iteration\b|\bfull[- ]iteration CUDA[- ]graphs?",
        {"launch": "graphs"},
    ),
    NotedFact("launches that block", r"CUDA_LAUNCH_BLOCKING", {"launch": "blocking"}),
)
"""Facts in the order in which they are applied: of two that are stated, the later one counts."""
_ON_HOST = r"\boffload(?:ed|ing)?\b[^.;]*\bhost\b"
COMPILED = r"\b(?:torch\.)?compiled?\b"
"""Pattern of compilation, which counts for PyTorch alone."""
_GRAPHS = r"CUDA[- ]graphs?"


def stating(texts: Texts, pattern: str) -> tuple[Rows, Rows]:
    """Return the rows whose text states a pattern, and the rows that only deny it [rows].

    Args:
        texts: of the rows.
        pattern: a regular expression; case is ignored.
    """
    found = [_judge(text, pattern) for text in texts.different]
    return texts.each((each is True for each in found), np.bool_), texts.each(
        (each is False for each in found), np.bool_
    )


def tensors_on_host(table: pd.DataFrame) -> Rows:
    """Return the runs whose notes put some saved tensors on the host, in a way that no field of a run states [rows].

    Args:
        table: runs with their `notes` [rows].
    """
    return stating(Texts(table["notes"]), _ON_HOST)[0]


def _judge(text: str, pattern: str) -> bool | None:
    """Return True where a text states a pattern, False where it only denies it, None where it does not mention it."""
    place, mentioned = 0, False
    find = re.compile(pattern, re.IGNORECASE)
    while match := find.search(text, place):
        mentioned, place = True, max(match.end(), place + 1)
        start = max((end.end() for end in _CLAUSE.finditer(text, 0, match.start())), default=0)
        is_denied = compile_finder(_BEFORE)(text[start : match.start()]) or compile_finder(_AFTER)(text[match.end() :])
        if not is_denied:
            return True
    return False if mentioned else None


def apply_notes(facts: dict[str, npt.NDArray[Any]], notes: Texts, remarks: list[list[str]]) -> None:
    """Set software facts to what notes state or deny, in place, and name each among the remarks of its row.

    Args:
        facts: values by name of a software fact [rows].
        notes: of the rows.
        remarks: sentences about each row; extended here.
    """
    for noted in NOTED_FACTS:
        stated, denied = stating(notes, noted.pattern)
        for rows, values, before in ((stated, noted.stated, ""), (denied, noted.denied, "no ")):
            for name, value in values.items():
                facts[name][rows] = value
            if values:
                remark(remarks, rows, f"read from notes: {before}{noted.words}")
    graphs, _ = stating(notes, _GRAPHS)
    read = np.isin(facts["launch"].astype(str), ("graphs", "partial_graphs"))
    remark(remarks, graphs & ~read, "CUDA graphs in notes not read: neither of attention nor of the iteration")


def remark(remarks: list[list[str]], rows: Rows, text: str) -> None:
    """Add a remark to rows.

    Args:
        remarks: sentences about each row.
        rows: which of them [rows].
        text: of the remark.
    """
    for row in np.flatnonzero(rows):
        remarks[row].append(text)
