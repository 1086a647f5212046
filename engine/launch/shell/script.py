"""Contents of a shell script with its variables filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.launch.shell.values import Word

__all__ = ["Call", "MissingFile", "Script"]


@dataclass(frozen=True, slots=True)
class MissingFile:
    """A file that `source` or `.` includes and that is not at hand."""

    name: str
    line: int

    def __str__(self) -> str:
        return f"{self.name}, sourced on line {self.line}, is not at hand: what it sets is unknown."


@dataclass(frozen=True, slots=True)
class Call:
    """A command, and the commands in whose quotes or input it was found, the outermost first."""

    words: list[Word]
    wrappers: tuple[list[Word], ...] = ()
    directives: Mapping[str, Word] = field(default_factory=dict)
    """Options of `#SBATCH` lines that apply to it, by name with underscores."""
    is_open: bool = False
    """True if it runs under conditions that nothing decides."""
    is_held: bool = False
    """True if it was only found as text: in a variable, or as a word of a command that may not run it."""


@dataclass
class Script:
    """Contents of a script: its commands with variables filled in, and its variables at the end."""

    calls: list[Call] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    """Known variables; partly known ones are absent."""
    exported: dict[str, str] = field(default_factory=dict)
    missing_files: list[MissingFile] = field(default_factory=list)
    directives: dict[str, Word] = field(default_factory=dict)
    """Options of the script's own `#SBATCH` lines."""
    outside: dict[str, None] = field(default_factory=dict)
    """Variables that conditions ask for and nothing in the script sets; they count as empty."""
    open_conditions: dict[str, None] = field(default_factory=dict)
    """Conditions that nothing decides and something depends on."""
    argument_conditions: dict[str, None] = field(default_factory=dict)
    """Conditions that the script's arguments decide; values are those without any argument."""
    not_understood: list[int] = field(default_factory=list)
    """Lines that are no shell syntax; their words are read one by one."""
    work: int = 0
    """Units of work that reading took."""

    @property
    def commands(self) -> list[list[Word]]:
        """Returns the words of every command."""
        return [each.words for each in self.calls]
