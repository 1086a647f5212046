"""Values of variables after branches of which the taken one is unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.launch.shell.state import State, Variable
from engine.launch.shell.values import Array, Segment, Value, has_hole, text_of

__all__ = ["mark_default", "merge_values", "words_of"]

MOST_SHOWN: Final = 4
"""Values that an expression without a value lists."""
SHORTEST_OF_MANY: Final = 200
"""Characters from which a value is shortened where several are listed."""


def merge_values(
    state: State, name: str, candidates: Sequence[Variable | None], line: int, file: str
) -> Variable | None:
    """Return the value of a variable after open branches, None if no branch sets it.

    One value in all branches is that value. Where branches only add, the longest counts. Of an argument of the script
    and a known value, the known one is the script's default. Words that the branches share are kept, values of a flag
    that differ have no value, and so has any other text that differs.

    Args:
        state: state of the script.
        name: name of the variable.
        candidates: its value after each branch, in their order; None if unset.
        line: line of the branches.
        file: file of the branches.
    """
    if any(isinstance(each, tuple) for each in candidates):
        candidates = [None if isinstance(each, Array) and not each.items else each for each in candidates]
    given = [each for each in candidates if each is not None]
    if not given:
        return None
    if any(isinstance(each, Array) for each in given):
        return _merged_arrays(state, name, given, line, file)
    values = [each for each in given if isinstance(each, tuple)]
    texts = [text_of(each) for each in values]
    distinct = list(dict.fromkeys(texts))
    state.work.copy(sum(map(len, texts)))
    if len(distinct) == 1:
        if len(given) == len(candidates) or _is_flags(distinct[0]) or has_hole(distinct[0]) or not distinct[0]:
            return values[0]
        return _open_value(state, name, [*distinct, None], line, file)
    known = [each for each in distinct if not _needs_arguments(state, each)]
    if len(known) == 1 and len(known) < len(distinct):
        value = values[texts.index(known[0])]
        return _mark_segments(value, name)
    longest = max(distinct, key=len)
    if (
        longest
        and all(longest.startswith(each) for each in distinct)
        and (_is_flags(longest) or " " in longest.strip())
    ):
        return values[texts.index(longest)]
    if all(_is_flags(each) for each in distinct if each):
        words = [words_of(value) for value in values if text_of(value)]
        return _join_words(_merged_words(state, words, line, file))
    return _open_value(state, name, [*distinct, *([None] if len(given) < len(candidates) else [])], line, file)


def mark_default(value: Variable | None, name: str) -> Variable | None:
    """Returns a value as the script's default: its arguments may give another one.

    Args:
        value: of the variable.
        name: of the variable.
    """
    if isinstance(value, Array):
        return Array({key: _mark_segments(each, name) for key, each in value.items.items()}, value.is_map)
    return None if value is None else _mark_segments(value, name)


def _mark_segments(value: Value, name: str) -> Value:
    return tuple(each if each.default else each._replace(default=f"${name}") for each in value)


def _merged_arrays(state: State, name: str, given: Sequence[Variable], line: int, file: str) -> Variable:
    arrays = [each if isinstance(each, Array) else Array({0: each}) for each in given]
    lists = [list(each.items.values()) for each in arrays]
    state.work.spend(sum(map(len, lists)))
    longest = max(range(len(lists)), key=lambda place: len(lists[place]))
    texts = [[text_of(value) for value in each] for each in lists]
    if all(each == texts[longest][: len(each)] for each in texts):
        return arrays[longest]
    if any(each.is_map for each in arrays):
        keys = dict.fromkeys(key for each in arrays for key in each.items)
        items = {
            key: merge_values(state, f"{name}[{key}]", [each.items.get(key) for each in arrays], line, file)
            for key in keys
        }
        return Array({key: value for key, value in items.items() if isinstance(value, tuple)}, is_map=True)
    if all(any(text.startswith("-") for text in each) for each in texts if each):
        words = [[word for value in each for word in (words_of(value) or [value])] for each in lists if each]
        return Array(dict(enumerate(_merged_words(state, words, line, file))))
    if len({len(each) for each in lists}) == 1:
        merged_items = [
            merge_values(state, f"{name}[{place}]", items, line, file)
            for place, items in enumerate(zip(*lists, strict=True))
        ]
        return Array({place: value for place, value in enumerate(merged_items) if isinstance(value, tuple)})
    return Array({0: _open_value(state, f"{name}[@]", [" ".join(each) for each in texts], line, file)})


def _is_flags(text: str) -> bool:
    return text.lstrip().startswith("-")


def _needs_arguments(state: State, text: str) -> bool:
    return any(each.is_argument for each in state.holes.within(text))


def _open_value(state: State, name: str, texts: Sequence[str | None], line: int, file: str) -> Value:
    shown = [
        "not set" if text is None else repr("") if not text else state.holes.shown(text)[:SHORTEST_OF_MANY]
        for text in texts
    ]
    if len(shown) > MOST_SHOWN:
        shown = [*shown[:MOST_SHOWN], "..."]
    return state.hole(f"${name} ({' or '.join(shown)})", line, file)


def words_of(value: Value) -> list[Value]:
    """Returns the words of a text that is split at white space.

    Args:
        value: with its lines.
    """
    words: list[list[Segment]] = []
    is_new = True
    for segment in value:
        text = segment.text
        for place, part in enumerate(text.split()):
            if is_new or place or text[0].isspace():
                words.append([])
            words[-1].append(segment._replace(text=part))
            is_new = False
        if text and text[-1].isspace():
            is_new = True
    return [tuple(each) for each in words]


def _join_words(words: Sequence[Value]) -> Value:
    found: list[Segment] = []
    for word in words:
        if found and word:
            found.append(Segment(" ", word[0].line, word[0].file))
        found += word
    return tuple(found)


def _flags_of(words: Sequence[Value]) -> dict[str, list[int]]:
    """Returns the places of the words behind each flag; of `--flag=value` the place of the word itself."""
    found: dict[str, list[int]] = {}
    flag = ""
    for place, word in enumerate(words):
        text = text_of(word)
        name, equals, _ = text.partition("=")
        if text.startswith("-"):
            flag = name
            found[flag] = [place] if equals else []
        elif flag:
            found[flag].append(place)
    return found


def _merged_words(state: State, candidates: Sequence[Sequence[Value]], line: int, file: str) -> list[Value]:
    """Returns the words of the last branch, without a value where a flag of another branch has another one."""
    last = list(candidates[-1])
    flags = _flags_of(last)
    state.work.spend(4 * sum(map(len, candidates)))
    for words in candidates[:-1]:
        for flag, places in _flags_of(words).items():
            mine = flags.get(flag)
            if not mine or len(mine) != len(places):
                continue
            for own, other in zip(mine, places, strict=True):
                first, second = text_of(words[other]), text_of(last[own])
                if first != second:
                    shown = f"{_without_flag(first, flag)} or {_without_flag(second, flag)}"
                    hole = state.hole(state.holes.shown(shown), line, file)
                    beginning = (Segment(f"{flag}=", line, file),) if second.startswith(f"{flag}=") else ()
                    last[own] = (*beginning, *hole)
    return last


def _without_flag(text: str, flag: str) -> str:
    return text.removeprefix(f"{flag}=")
