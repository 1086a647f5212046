"""Arguments of Megatron-Core as values by destination, from any source, and their defaults.

Megatron-LM's flags, Megatron-Bridge's keys and printed arguments of logs all become `Arguments`, so that the same rules
turn them into an execution.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.launch.contract import UnknownValue
from engine.launch.megatron.flag_effects import MODEL, effect_of
from engine.launch.megatron.parser import flags_of
from engine.launch.report import Report, parse_flag, parse_integer

__all__ = ["LM", "MEGATRON_DEEPSPEED", "Arguments", "Dialect", "hidden_areas"]

_OF_THE_MODEL: Final = frozenset({"MODEL", "MOE", "ARCH", "NETWORK", "GPT", "LLAMA", "MIXTRAL", "QWEN", "DEEPSEEK"})
_OF_NOTHING: Final = frozenset(
    {
        "DATA",
        "DATASET",
        "LOG",
        "LOGGING",
        "OUTPUT",
        "EVAL",
        "SAVE",
        "LOAD",
        "CKPT",
        "CHECKPOINT",
        "TOKENIZER",
        "WANDB",
        "TENSORBOARD",
        "PROFILE",
        "PROFILING",
        "TRACE",
        "PATH",
    }
)
_WORDS: Final = re.compile(r"[A-Za-z]+")


@dataclass(frozen=True, slots=True)
class Dialect:
    """Differences between the programs that use Megatron-Core."""

    name: str
    needs_group_flag: bool
    """True if a number of query groups counts only together with its flag."""
    assumes_precision: str
    """Datatype of arithmetic by default."""
    assumes_model: bool
    """True if absent values of the model are the defaults, False if other sources give them."""
    overlap_needs_sequence_parallel: bool
    """True if tensor overlap is switched off without sequence parallelism, False if it is refused."""
    wide_gradients: bool
    """True if gradients are exchanged in 32 bits by default with FP16 arithmetic; with BF16 they always are."""
    expert_defaults: tuple[int, int] = (2, 1)
    """Experts that a token visits, and every how many layers there are some, where nothing is said."""
    overlaps_gradients: bool = False
    """True if the exchange of gradients is overlapped by default."""


LM: Final = Dialect("Megatron-LM", True, "float32", True, False, False)


MEGATRON_DEEPSPEED: Final = Dialect("Megatron-DeepSpeed", True, "float32", True, False, False, (1, 2))
"""Defaults of deepspeedai/Megatron-DeepSpeed, megatron/arguments.py: --topk 1, --expert-interval 2."""


def hidden_areas(expression: str) -> tuple[str, ...]:
    """Returns which flags words that are not at hand may hold, by the name of their variable: "model" for the model's
    shape, "execution" for everything else that is read.

    Args:
        expression: such as "${MODEL_ARGS[@]}" or "--use-checkpoint-args".
    """
    words = {each.upper() for each in _WORDS.findall(expression)}
    if words & _OF_THE_MODEL and "PARALLEL" not in words:
        return (MODEL,)
    if words & _OF_NOTHING:
        return ()
    if "PARALLEL" in words:
        return ("execution",)
    return (MODEL, "execution")


class Arguments(Mapping[str, Any]):
    """Values by destination; absent ones have the parser's default.

    Asking for a value that is not known raises the signal of `engine.launch.report`. Without a report, as for a
    configuration that is written, nothing is watched.
    """

    def __init__(
        self,
        said: Mapping[str, Any],
        dialect: Dialect,
        names: Mapping[str, str] | None = None,
        report: Report | None = None,
        hidden: Mapping[str, UnknownValue] | None = None,
    ) -> None:
        """Store the values.

        Args:
            said: values by destination, `UnknownValue` for values from outside.
            dialect: differences of the program.
            names: names of arguments in the source, by destination.
            report: records the values that are read.
            hidden: missing words that may set absent arguments, by area.
        """
        self._said = dict(said)
        self.dialect = dialect
        self._names = names or {}
        self._report = report
        takes_defaults = report is not None and report.asked.takes_defaults
        self._hidden = {} if takes_defaults else dict(hidden or {})
        self.asked: set[str] = set()

    @property
    def stated(self) -> Mapping[str, Any]:
        """Values by destination, without defaults; looking at them does not count as reading them."""
        return self._said

    @property
    def names(self) -> Mapping[str, str]:
        """Names of arguments in the source, by destination."""
        return self._names

    def __getitem__(self, destination: str) -> Any:
        value = self.given(destination)
        if value is not None or destination in self._said:
            return value
        flag = flags_of().get(destination)
        return None if flag is None else flag.default

    def __iter__(self) -> Iterator[str]:
        return iter(self._said)

    def __len__(self) -> int:
        return len(self._said)

    def __contains__(self, destination: object) -> bool:
        return destination in self._said

    def given(self, destination: str) -> Any:
        """Return the value that was given, None without one, regardless of the default."""
        self.asked.add(destination)
        value = self._said.get(destination)
        if self._report is None:
            return value
        unknown = value if isinstance(value, UnknownValue) else None
        if isinstance(value, list | tuple):
            unknown = next((each for each in value if isinstance(each, UnknownValue)), None)
        if unknown is not None:
            raise self._report.unknown(self.name(destination), unknown)
        if destination not in self._said and self._hidden:
            area = effect_of(destination).area
            if area in self._hidden:
                raise self._report.unknown(self._hidden[area].expression, self._hidden[area])
        self._report.saw_flag(self.name(destination), destination in self._said)
        return value

    def name(self, destination: str) -> str:
        """Return the name of an argument in the source."""
        if destination in self._names:
            return self._names[destination]
        flag = flags_of().get(destination)
        return flag.name if flag is not None else "--" + destination.replace("_", "-")

    def has_overlap(self, name: str) -> bool:
        """Return whether an overlap of gradients is on; the dialect decides if nothing is said.

        Args:
            name: destination of its switch.
        """
        return self.dialect.overlaps_gradients if self.given(name) is None else self.on(name)

    def note_if_given(self, report: Report, name: str, otherwise: tuple[Any, ...] = ()) -> None:
        """Report an argument as not modelled, if it has a value.

        Args:
            report: takes note of it.
            name: destination of the argument.
            otherwise: values that change nothing.
        """
        value = self.given(name)
        if value and value not in otherwise:
            report.not_modelled(self.name(name))

    def on(self, destination: str) -> bool:
        """Return whether a switch is on. Raises `LaunchError` for an invalid value."""
        return parse_flag(self[destination], self.name(destination))

    def number(self, destination: str, otherwise: int | None = None, least: int = 1) -> int:
        """Return a whole number, `otherwise` without one. Raises `LaunchError` for an invalid value."""
        value = self[destination]
        if value is None and otherwise is not None:
            return otherwise
        return parse_integer(value, self.name(destination), least)

    def word(self, destination: str) -> str:
        """Return a word in lower case, empty without one; enumerations without their name."""
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
