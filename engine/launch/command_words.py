"""Words of a command as flags with values, each with the line that states it; parts from outside are unknown.

Commands of the frameworks have flags (`--name value`, `--name=value`, bare `--name`), assignments (`key=value`)
or both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.launch.contract import FileContents, Origin, UnknownValue
from engine.launch.launchers import launch_of
from engine.launch.shell import Word

__all__ = ["CommandLaunch", "CommandWords", "launch_in"]

_COUNTS: Final = re.compile(
    r"--?(nnodes|nodes|num_nodes|nproc[_-]per[_-]node|num_gpus|gpus|ntasks|num_processes|np|N|n)\b"
)
"""Options of launchers with the number of GPUs, nodes or processes."""
_ARGUMENTS: Final = re.compile(r"\$\{?[@*]")
"""All arguments of the script: none if it is read without a call."""


@dataclass(frozen=True)
class CommandLaunch:
    """Command that starts a program, with the options of its launcher and its script."""

    words: tuple[Word, ...]
    gpus: int | None
    gpus_origin: Origin | None
    environment: Mapping[str, str]
    missing_files: tuple[str, ...]
    remarks: tuple[str, ...]

    def found(
        self, flags: Mapping[str, Any], words: CommandWords, *, remarks: Iterable[str] = (), is_certain: bool = True
    ) -> FileContents:
        """Return the contents of the command.

        Args:
            flags: values by flag.
            words: words that the flags come from.
            remarks: more remarks, after the launcher's.
            is_certain: whether the command can belong to no other framework.
        """
        origins = dict(words.origins)
        if self.gpus_origin is not None:
            origins["gpus"] = self.gpus_origin
        told = (*self.missing_files, *self.remarks, *remarks)
        return FileContents(
            flags, self.gpus, self.environment, tuple(words.unread), tuple(dict.fromkeys(told)), origins, is_certain
        )


def launch_in(text: str, marks: Iterable[str], name: str) -> CommandLaunch | None:
    """Returns the command of a script that has most words beginning like one of `marks`, None where none has.

    Args:
        text: of the script or command line.
        marks: beginnings of words that the framework's commands have.
        name: of the file.
    """
    launch = launch_of(text, tuple(marks), name)
    if launch is None:
        return None
    origin = _unknown_gpus(launch.before)
    if launch.gpus is not None:
        origin = Origin("stated", launch.gpus_origin, name, launch.gpus_line)
    missing = tuple(str(each) for each in launch.missing_files)
    return CommandLaunch(launch.words, launch.gpus, origin, launch.environment, missing, launch.remarks)


def _unknown_gpus(words: Sequence[Word]) -> Origin | None:
    """The option of a launcher that takes the number of GPUs or nodes from outside, None without one."""
    for place, word in enumerate(words):
        option = word.text if "=" in word.text or place == 0 else words[place - 1].text
        if word.unknown and _COUNTS.match(option):
            named = f"{option.partition('=')[0]} {word.unknown[0]}"
            return Origin("unknown", named[:160], word.file, word.line)
    return None


class CommandWords:
    """Words behind a program's name, read one after another."""

    def __init__(self, words: Iterable[Word]) -> None:
        """Takes the words."""
        given = list(words)
        self._words = [word for word in given if not _is_arguments(word)]
        self._place = 0
        self.unread: list[str] = []
        for word in given:
            if _is_arguments(word):
                self.unread.append(f"What {word.unknown[0]} adds comes from outside; the script is read without it.")
        self.origins: dict[str, Origin] = {}
        self._hidden: dict[str, UnknownValue] = {}

    def flags(self, takes: Callable[[str], tuple[bool, bool]]) -> dict[str, Any]:
        """Returns values by flag, of words such as `--name value`; words that are not at hand by their expression.

        Args:
            takes: returns whether a flag takes a value, and whether it takes several.
        """
        found: dict[str, Any] = {}
        while (word := self.next()) is not None:
            if not word.text.startswith("--"):
                if not self.hide(word):
                    self.unread.append(f"{word.text[:80]} stands behind no flag.")
                continue
            name, equals, text = word.text.partition("=")
            if equals:
                found[name] = self.value(word, text, name)
                continue
            takes_value, takes_many = takes(name)
            values = self.values_behind()
            self.origins[name] = _flag_origin(name, word, values[:1] if takes_value else [])
            kept = values if takes_many else values[:1] if takes_value else []
            for each in values[len(kept) :]:
                if self.hide(each):
                    continue
                told = (
                    f"is a second value of {name}." if takes_value else f"stands behind {name}, which takes no value."
                )
                self.unread.append(f"{each.text[:80]} {told}")
            items = [self.value(each, each.text) for each in kept]
            found[name] = True if not items else items if takes_many else items[0]
        return {**found, **self.hidden()}

    def next(self) -> Word | None:
        """Returns the next word, None behind the last one."""
        if self._place >= len(self._words):
            return None
        self._place += 1
        return self._words[self._place - 1]

    def peek(self) -> Word | None:
        """Returns the next word and leaves it there."""
        return self._words[self._place] if self._place < len(self._words) else None

    def values_behind(self, is_flag: Callable[[Word], bool] = lambda word: word.text.startswith("--")) -> list[Word]:
        """Returns the words up to the next flag.

        Args:
            is_flag: returns whether a word is one.
        """
        found = []
        while (word := self.peek()) is not None and not is_flag(word):
            found.append(word)
            self._place += 1
        return found

    def value(self, word: Word, text: str, name: str = "") -> str | UnknownValue:
        """Returns a value, unknown where a part of its word is taken from outside.

        Args:
            word: that it is of.
            text: of the value.
            name: of the flag in the same word, empty where that is another one.
        """
        if name:
            self.origins[name] = _flag_origin(name, word, [word])
        if not word.unknown:
            return text
        return UnknownValue(" ".join(word.unknown)[:160], word.line, word.file)

    def hide(self, word: Word) -> bool:
        """Notes a word that is not at hand and may hold any flags; returns False for a word that is known.

        Args:
            word: any.
        """
        if not word.unknown or word.text:
            return False
        value = UnknownValue(" ".join(word.unknown)[:160], word.line, word.file)
        self._hidden[value.expression] = value
        return True

    def hidden(self) -> dict[str, UnknownValue]:
        """Returns the words that are not at hand, by their expression."""
        return dict(self._hidden)


def _flag_origin(name: str, word: Word, values: Sequence[Word]) -> Origin:
    """Return the origin of a flag, with the expression whose default in the script its value is."""
    defaults = ", ".join(dict.fromkeys(each for value in values for each in value.defaults))
    words = f"{name} (the script's default of {defaults})" if defaults else name
    return Origin("stated", words[:200], word.file, word.line)


def _is_arguments(word: Word) -> bool:
    return bool(word.unknown) and not word.text and all(_ARGUMENTS.match(each) for each in word.unknown)
