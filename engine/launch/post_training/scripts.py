"""Shell scripts that start reinforcement learning: the command of a program in them, and commands in lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from engine.launch.contract import Origin, UnknownValue
from engine.launch.shell import Word, read_script

__all__ = ["ScriptCommand", "find_command", "plain_value", "quote_value", "value_of_word"]

_SAFE: Final = re.compile(r"[A-Za-z0-9_.,:/=+@%-]+")
_ARGUMENTS: Final = re.compile(r"\$\{?[@*]")
"""All arguments of the script: none if it is read without a call."""


@dataclass
class ScriptCommand:
    """Command of a script that starts a program."""

    program: str
    words: Sequence[Word]
    """Words behind the program's name."""
    remarks: list[str] = field(default_factory=list)
    flags: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)

    def hide(self, word: Word) -> bool:
        """Note a word that is not at hand and may hold any key; return False for another word.

        Args:
            word: any.
        """
        if not word.unknown or word.text:
            return False
        if all(_ARGUMENTS.match(each) for each in word.unknown):
            return True  # the script's own arguments: it is read without any
        value = UnknownValue(" ".join(word.unknown)[:160], word.line, word.file)
        self.flags[value.expression] = value
        return True

    def put(self, key: str, value: Any, word: Word) -> None:
        """Store a key with its line; the last one of a key counts.

        Args:
            key: name of it.
            value: of it.
            word: that states it.
        """
        self.flags[key] = value
        told = f"{key} (the script's default of {word.defaults[0]})" if word.defaults else key
        self.origins[key] = Origin("stated", told[:200], word.file, word.line)


def find_command(text: str, name: str, is_program: Callable[[str], bool]) -> ScriptCommand | None:
    """Return the command of a script that starts a program, the longest of several; None without one.

    Args:
        text: of the script.
        name: of the file.
        is_program: returns whether a word is the program.
    """
    script = read_script(text, name)
    found: list[tuple[str, Sequence[Word]]] = []
    for call in script.calls:
        place = next((at for at, word in enumerate(call.words) if is_program(word.text)), None)
        if place is not None and len(call.words) > place + 1:
            found.append((call.words[place].text, call.words[place + 1 :]))
    if not found:
        return None
    program, words = max(found, key=lambda each: len(each[1]))
    made = ScriptCommand(program, words, [str(each) for each in script.missing_files])
    if len(found) > 1:
        made.remarks.append("The script starts several runs; the one with most words is read.")
    return made


def value_of_word(word: Word, text: str) -> Any:
    """Return the value in a word; a path keeps its end where only its beginning is not known.

    Args:
        word: that holds it.
        text: the part of it that is the value.
    """
    if not word.unknown:
        return text
    if "/" in text and text.rstrip("/").rpartition("/")[2]:
        return text
    return UnknownValue(" ".join(word.unknown)[:160], word.line, word.file)


def plain_value(value: Any) -> Any:
    """Return a word as None, a truth value or a number where it is one."""
    if not isinstance(value, str):
        return value
    word = value.strip().lower()
    if word in ("null", "none", ""):
        return None
    if word in ("true", "false"):
        return word == "true"
    return value


def quote_value(value: Any) -> str:
    """Return a value as a shell has it."""
    if value is None:
        return "null"
    if isinstance(value, list | tuple):
        value = "[" + ",".join(str(each) for each in value) + "]"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if _SAFE.fullmatch(text) or text.startswith('"${'):
        return text
    return "'" + text.replace("'", "") + "'"


def command_lines(start: str, words: Iterable[str]) -> list[str]:
    """Return a command in lines that a shell joins.

    Args:
        start: program and first words.
        words: the others, a line each.
    """
    lines = [start, *(f"    {word}" for word in words)]
    return [f"{line} \\" for line in lines[:-1]] + [lines[-1]]


def known_values(
    values: Mapping[str, Any], keys: Mapping[str, str], hidden: Any, defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """Return values by Megatron's argument for the keys of a framework; absent ones are the words that are not at hand,
    or the framework's default, if any.

    Args:
        values: by key.
        keys: by argument.
        hidden: words that are not at hand and may hold any key; None without.
        defaults: by key.
    """
    found = {}
    for name, key in keys.items():
        value = plain_value(values[key]) if key in values else hidden or defaults.get(key)
        if value is not None:
            found[name] = value
    return found
