"""Stage layouts: how a model's blocks are cut into pipeline stages, as one of five rules or as explicit numbers.

A layout is a rule by its name; `first_7`, `last_6` or `first_7_last_6`, the blocks of the first and the last stage, of
which the others share the rest evenly; or a list as Megatron-LM writes it, such as `Et*3|(tt|)*29m|L`: `E` the
embedding, `t` a block, `m` a prediction layer, `L` the loss, `|` between the stages of the model in the order in which
a token passes them, `*n` repetition of a letter or of a group in parentheses. Commas and spaces in it mean nothing.

Source: Megatron-LM, `core/transformer/pipeline_parallel_layer_layout.py`, and the options that README names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Final

from models.documents import did_you_mean, shown

__all__ = [
    "BALANCED",
    "BOTH_COUNTED",
    "EMBEDDING_COUNTED",
    "EVEN",
    "LAYOUTS",
    "LOSS_COUNTED",
    "StageLayout",
    "StageLayoutError",
    "canonical",
    "layout_of_word",
    "list_of_layers",
]

LAYOUTS: Final = ("even", "embedding_counted", "loss_counted", "both_counted", "balanced")
"""The rules by name; a rule is a position here."""
EVEN, EMBEDDING_COUNTED, LOSS_COUNTED, BOTH_COUNTED, BALANCED = range(len(LAYOUTS))

LONGEST: Final = 2000
"""Characters of a list at most."""
MOST_LAYERS: Final = 20_000
"""Layers and bars of a list at most, repetitions written out."""

_ENDS: Final = re.compile(r"first_([1-9][0-9]{0,5})(?:_last_([1-9][0-9]{0,5}))?|last_([1-9][0-9]{0,5})")
_GROUP: Final = re.compile(r"\(([^()]*)\)(?:\*([0-9]{1,5}))?")
_REPEATED: Final = re.compile(r"([EtmL|])\*([0-9]{1,5})")
_LETTERS: Final = re.compile(r"[EtmL|]*")
_SLOT: Final = re.compile(r"(E?)(t*)(m*)(L?)")


class StageLayoutError(ValueError):
    """Invalid stage layout; the message has the reason and a valid form."""


@dataclass(frozen=True, slots=True)
class StageLayout:
    """Stage layout that was read from a word.

    `rule` is a position in `LAYOUTS`, -1 for explicit numbers. Those are `first` and `last`, the blocks of the two end
    stages (None: an even share), or `layers`, the blocks of every stage of the model [stages of the model] (empty
    without a list); `predictions` are the prediction layers of every stage [stages of the model].
    """

    word: str
    rule: int = -1
    first: int | None = None
    last: int | None = None
    layers: tuple[int, ...] = ()
    predictions: tuple[int, ...] = ()


@lru_cache(maxsize=4096)
def layout_of_word(text: str) -> StageLayout:
    """Return a stage layout in its canonical form, which equal layouts share.

    Args:
        text: a rule by name, `first_7_last_6`, or a list as Megatron-LM writes it.

    Raises `StageLayoutError`.
    """
    if text in LAYOUTS:
        return StageLayout(text, LAYOUTS.index(text))
    ends = _ENDS.fullmatch(text)
    if ends is not None:
        first, last = ends[1], ends[2] or ends[3]
        return StageLayout(text, first=int(first) if first else None, last=int(last) if last else None)
    if "|" not in text and "E" not in text:
        raise StageLayoutError(
            f"{shown(text)} is no stage layout{did_you_mean(text, LAYOUTS)}; it is one of {', '.join(LAYOUTS)}, the "
            "blocks of the ends, such as first_7_last_6, or a list, such as Et*3|(tt|)*29m|L."
        )
    slots = _parse_slots(text)
    layers, predictions = (tuple(each.count(letter) for each in slots) for letter in "tm")
    return StageLayout(_join_slots(slots), layers=layers, predictions=predictions)


def canonical(text: str) -> str:
    """Returns a stage layout in the one form that equal layouts share.

    Args:
        text: as for `layout_of_word`.

    Raises `StageLayoutError`.
    """
    return layout_of_word(text).word


def list_of_layers(layers: Sequence[int], predictions: Sequence[int] = ()) -> str:
    """Return a list of layers in Megatron-LM's notation, embedding first and loss last.

    Args:
        layers: blocks of every stage of the model, in the order in which a token passes them [stages of the model].
        predictions: prediction layers of every stage of the model [stages of the model]; empty without prediction
            layers.
    """
    slots = ["t" * number for number in layers]
    if predictions:
        slots = [slot + "m" * number for slot, number in zip(slots, predictions, strict=True)]
    slots[0] = f"E{slots[0]}"
    slots[-1] = f"{slots[-1]}L"
    return _join_slots(slots)


def _parse_slots(text: str) -> list[str]:
    """The letters of every stage of the model, repetitions written out."""
    if len(text) > LONGEST:
        raise StageLayoutError(f"A list of layers has {LONGEST:,} characters at most, not {len(text):,}.")
    letters = _expand_repetitions(text, _GROUP, re.sub(r"[,\s]", "", text))
    letters = _expand_repetitions(text, _REPEATED, letters)
    if not _LETTERS.fullmatch(letters):
        wrong = _LETTERS.sub("", letters, count=1)[:1]
        raise StageLayoutError(
            f"The list of layers {shown(text)} cannot be read at {shown(wrong)}: it has the letters E, t, m and L, | "
            "between stages, and *n behind a letter or behind parentheses, which do not stand in each other."
        )
    slots = letters.split("|")
    if (letters.count("E"), letters.count("L"), letters[:1], letters[-1:]) != (1, 1, "E", "L"):
        raise StageLayoutError(
            f"The list of layers {shown(text)} must begin with the embedding, E, and end with the loss, L, once each."
        )
    if not all(_SLOT.fullmatch(slot) for slot in slots) or "t" in letters.partition("m")[2]:
        raise StageLayoutError(f"The list of layers {shown(text)} has a block, t, behind a prediction layer, m.")
    return slots


def _expand_repetitions(text: str, pattern: re.Pattern[str], letters: str) -> str:
    """Return the letters with repeated patterns expanded."""

    def several(found: re.Match[str]) -> str:
        times = int(found[2] or 1)
        if times * len(found[1]) > MOST_LAYERS:
            raise StageLayoutError(f"The list of layers {shown(text)} has more than {MOST_LAYERS:,} layers.")
        return found[1] * times

    made = pattern.sub(several, letters)
    if len(made) > MOST_LAYERS:
        raise StageLayoutError(f"The list of layers {shown(text)} has more than {MOST_LAYERS:,} layers.")
    return made


def _join_slots(slots: list[str]) -> str:
    """Slots as one text, what repeats written once."""
    parts = []
    for slot, alike in groupby(slots[:-1]):
        number = len(list(alike))
        parts.append(f"({_shorten_slot(slot)}|)*{number}" if number > 1 else f"{_shorten_slot(slot)}|")
    return "".join([*parts, _shorten_slot(slots[-1])])


def _shorten_slot(slot: str) -> str:
    """One slot: letters that follow each other as a number of them, where that is shorter."""
    runs = ((letter, len(list(alike))) for letter, alike in groupby(slot))
    return "".join(f"{letter}*{number}" if number > 2 else letter * number for letter, number in runs)
