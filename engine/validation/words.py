"""Words of a row as the cost model understands them: accelerators, precisions, recomputation policies.

Sources write the same thing in many ways; what a word leaves open is said as an assumption of the row.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

import hardware
from engine.columns.recompute_modules import RecomputeModulesError, modules_of_word
from engine.cost_models.calibrated import RECOMPUTES, system_named
from hardware import System
from models import datatypes
from models.token_flops import Convention

__all__ = [
    "DRIVER_MEMORY",
    "PRECISIONS",
    "RecomputePolicy",
    "accelerator_named",
    "convention_of",
    "datatype_of",
    "is_hardware_rate",
    "recompute_of",
]

PRECISIONS = {
    each.name: "|".join(each.words["runs"])
    for each in sorted(datatypes.for_products(16), key=lambda each: each.bits)
    if "runs" in each.words
}
"""Words for the datatype of the linear layers; the narrowest that is named counts ("bf16 + fp8" is FP8)."""
DRIVER_MEMORY = r"nvidia-smi|GB max on nodes"
"""Pattern of the column `mem_kind` of runs whose memory was read from the driver, which counts more than tensors."""
SAME_POLICY = {
    "false": "none",
    "no": "none",
    "off": "none",
    "0": "none",
    "true": "full",
    "yes": "full",
    "uniform": "full",
    "block": "full",
    "attn_only": "selective",
    "attention": "selective",
    "modules": "modules",
}
"""Other words for recomputation policies, as the options of frameworks have them."""
POLICY_PATTERNS = (
    (r"selective_layer", "half"),
    (r"selective_op", "operators"),
    (r".*save_qkv_out", "save_projections"),
    (r".*save_dot_only", "save_dots"),
    # MaxText's minimal saves products without a batch dimension (its layers/decoders.py): all but the attention core.
    (r"(?:other:)?minimal$", "save_dots"),
)
"""Policies by a pattern at the beginning of their words, the first that matches."""
FULL_OF_SOME = r"full: ?(\d+) ?layers"


def datatype_of(text: str) -> datatypes.Datatype | None:
    """Return the datatype of the linear layers for the words of a precision; None for words without one.

    Args:
        text: words from a user or a publication.
    """
    lowered = text.lower()
    found = (name for name, words in PRECISIONS.items() if re.search(rf"(?<![a-z])(?:{words})(?!\d)", lowered))
    name = next(found, None)
    return None if name is None else datatypes.named(name)


def convention_of(text: str) -> Convention | None:
    """Return how a printed TFLOP/s counts attention; None for words that name neither or both conventions.

    Args:
        text: words such as "causal", "model, full attention" or "hardware causal".
    """
    words = re.sub(r"full (?:activation )?recomput\w*", " ", text.lower())
    is_causal, is_full = (re.search(rf"\b{word}\b", words) is not None for word in ("causal", "full"))
    return None if is_causal == is_full else "causal" if is_causal else "full"


def is_hardware_rate(text: str) -> bool:
    """Return True if the words of a printed TFLOP/s say that recomputed arithmetic counts.

    Args:
        text: words such as "hardware causal".
    """
    return re.search(r"\bhardware|\bhfu\b", text.lower()) is not None


class RecomputePolicy(NamedTuple):
    """Recomputation in a row's words: one of `RECOMPUTES`, the share of the blocks that it repeats [dimensionless], and
    the modules that it repeats where they are named."""

    kind: str
    share: float = 1.0
    modules: tuple[str, ...] = ()


def recompute_of(text: str, layers: float) -> RecomputePolicy | None:
    """Return the recomputation that words name; None for words without a policy.

    Args:
        text: words from a user or a publication.
        layers: blocks of the model.
    """
    word = SAME_POLICY.get(text.lower(), text.lower())
    if part := re.match(FULL_OF_SOME, word):
        return RecomputePolicy("full", min(float(part[1]) / layers, 1.0) if layers > 0 else 1.0)
    kind = next((kind for pattern, kind in POLICY_PATTERNS if re.match(pattern, word)), word)
    if kind in RECOMPUTES and kind != "by_module":
        return RecomputePolicy(kind)
    try:
        modules = modules_of_word(word.removeprefix("modules:"))
    except RecomputeModulesError:
        return None
    return RecomputePolicy("selective") if modules == ("core_attn",) else RecomputePolicy("by_module", 1.0, modules)


def accelerator_named(text: str) -> tuple[System, str] | None:
    """Return the library's system for an accelerator in any spelling, and the assumption made ("" without one).

    "NVIDIA H100 80GB HBM3" names the chip and its memory; where several boards remain, the SXM one with most memory
    counts. None if no board of the library has that chip, memory and form, or if several chips are named.

    Args:
        text: words from a user or a publication.
    """
    if exact := system_named(text):
        return exact, ""
    spaced = _normalise_words(text)
    fitting = [system for name, system in _list_boards() if _is_match(spaced, name)]
    chips = {_find_chip(system.accelerator.name) for system in fitting if system.accelerator is not None}
    if len(chips) != 1:
        return None
    chosen = max(fitting, key=lambda system: ("sxm" in system.name, system.mem1.capacity_gib))
    assert chosen.accelerator is not None
    return chosen, f"hardware taken as {chosen.accelerator.name}"


@cache
def _list_boards() -> tuple[tuple[str, System], ...]:
    """Accelerators of the library by the maker's name, without Calculon's restatements of them."""
    systems = [hardware.load(name) for name in hardware.names()]
    names = {system.accelerator.name: system for system in systems if system.accelerator is not None}
    return tuple((name, system_named(name) or system) for name, system in names.items())


def _normalise_words(text: str) -> str:
    """Words in lower case with single spaces, a count such as that of "8xH100" left out."""
    return re.sub(r"\b\d+ ?x ?(?=[a-z])", "", re.sub(r"[^a-z0-9]+", " ", text.lower())).strip()


def _find_chip(name: str) -> str:
    """The word with a digit that begins a maker's name: "H100-80GB-SXM" is an h100, "TPU-v5e" a v5e."""
    return next((word for word in _normalise_words(name).split() if re.search(r"\d", word)), _normalise_words(name))


def _is_match(text: str, name: str) -> bool:
    """Return True if words name the chip of a board, and memory and form in the words, if any, are the board's."""
    board = _normalise_words(name)
    if _find_chip(name) not in text.split():
        return False
    sizes, wanted = (set(re.findall(r"(\d+) ?gi?b\b", each)) for each in (board, text))
    forms = set(re.findall(r"\b(?:pcie|nvl)\b", text))
    return (not wanted or not sizes or bool(wanted & sizes)) and all(form in board for form in forms)
