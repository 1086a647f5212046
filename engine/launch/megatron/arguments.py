"""The arguments of Megatron-Core as values by destination, whoever states them, and what they are where nobody does.

Megatron-LM's flags, Megatron-Bridge's keys and printed arguments of logs all end up as `Arguments`; the rules that turn
them into an execution are the same then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.launch.megatron.parser import flags_of
from engine.launch.report import truth, whole

__all__ = ["LM", "Arguments", "Dialect"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the programs around Megatron-Core do differently."""

    name: str
    needs_group_flag: bool
    """Whether a number of query groups counts only beside the flag for them."""
    assumes_precision: str
    """What arithmetic is in where nothing is said."""
    assumes_model: bool
    """Whether what is not said of the model is the default, or comes from elsewhere."""
    overlap_needs_sequence_parallel: bool
    """Whether tensor overlap is switched off without sequence parallelism, rather than refused."""
    gradients_in_32_bits: bool
    """Whether gradients are exchanged in 32 bits where nothing is said and arithmetic is in BF16."""


LM: Final = Dialect("Megatron-LM", True, "float32", True, False, True)


class Arguments(Mapping[str, Any]):
    """Values by destination; absent ones have the parser's default. `said` are those that were given."""

    def __init__(self, said: Mapping[str, Any], dialect: Dialect, names: Mapping[str, str] | None = None) -> None:
        self.said = dict(said)
        self.dialect = dialect
        self._names = names or {}

    def __getitem__(self, destination: str) -> Any:
        if destination in self.said:
            return self.said[destination]
        flag = flags_of().get(destination)
        return None if flag is None else flag.default

    def __iter__(self) -> Iterator[str]:
        return iter(self.said)

    def __len__(self) -> int:
        return len(self.said)

    def name(self, destination: str) -> str:
        """Returns an argument as whoever wrote it calls it."""
        if destination in self._names:
            return self._names[destination]
        flag = flags_of().get(destination)
        return flag.name if flag is not None else "--" + destination.replace("_", "-")

    def on(self, destination: str) -> bool:
        """Returns whether a switch is on. Raises `LaunchError` for what is none."""
        return truth(self[destination], self.name(destination))

    def number(self, destination: str, otherwise: int | None = None, least: int = 1) -> int:
        """Returns a whole number, `otherwise` where there is none. Raises `LaunchError` for what is none."""
        value = self[destination]
        if value is None and otherwise is not None:
            return otherwise
        return whole(value, self.name(destination), least)

    def word(self, destination: str) -> str:
        """Returns a word in lower case, empty where there is none; enumerations without their name."""
        value = self[destination]
        found = "" if value is None else str(value).strip().lower().rpartition(".")[2]
        return "" if found in ("none", "null") else found

    def words(self, destination: str) -> list[str]:
        """Returns a list of words, from a list or a text with spaces, commas or brackets."""
        value = self[destination]
        if value is None:
            return []
        items = value if isinstance(value, list | tuple) else str(value).strip("[]() ").replace(",", " ").split()
        return [str(each).strip("'\" ").lower() for each in items if str(each).strip("'\" ")]
