"""Variables of a script while it is gone through, with a way back out of branches and subshells."""

from __future__ import annotations

from typing import Final

from engine.launch.shell.script import MissingFile
from engine.launch.shell.values import Array, Hole, Holes, ScriptWork, Segment, Value, length_of

__all__ = ["State", "Variable"]

Variable = Value | Array
_ALWAYS_OPEN: Final = frozenset(
    {
        "?",
        "$",
        "!",
        "-",
        "0",
        "RANDOM",
        "SECONDS",
        "PWD",
        "OLDPWD",
        "HOME",
        "HOSTNAME",
        "USER",
        "UID",
        "LINENO",
        "BASH_SOURCE",
        "PPID",
        "EPOCHSECONDS",
        "FUNCNAME",
        "OPTARG",
        "OPTIND",
        "REPLY",
        "PATH",
        "PIPESTATUS",
    }
)
"""Variables that the shell sets itself."""


class State:
    """Variables and arguments of a script, and their open values."""

    def __init__(self) -> None:
        self.variables: dict[str, Variable] = {}
        self.exported: dict[str, None] = {}
        self.arguments: tuple[Value, ...] | None = None
        """Arguments of the script or function; None if unknown."""
        self.holes = Holes()
        self.work = ScriptWork()
        self.outside: dict[str, None] = {}
        self.missing_files: list[MissingFile] = []
        self.may_be_set_elsewhere = False
        """True if a missing file may set variables that nothing else sets."""
        self.has_no_arguments = False
        """True while a condition is evaluated for a script without arguments."""
        self._journals: list[dict[str, Variable | None]] = []

    def put(self, name: str, value: Variable) -> None:
        """Sets a variable."""
        before = self.variables.get(name)
        self.work.spend(1 + (len(value.items) if isinstance(value, Array) else len(value)))
        self.work.hold(length_of(value) - length_of(before))
        self._note(name, before)
        self.variables[name] = value

    def remove(self, name: str) -> None:
        """Unsets a variable: it is known to have no value, as an array without items."""
        self.put(name, Array({}))

    def _note(self, name: str, before: Variable | None) -> None:
        if self._journals:
            self._journals[-1].setdefault(name, before)

    def begin(self) -> None:
        """Begins a branch or a subshell that `rollback` ends."""
        self._journals.append({})

    def rollback(self) -> dict[str, Variable | None]:
        """Undoes what was set since `begin`; returns the variables that were set, with their last values."""
        journal = self._journals.pop()
        values = {name: self.variables.get(name) for name in journal}
        for name, before in journal.items():
            self.work.spend(1)
            self.work.hold(length_of(before) - length_of(values[name]))
            if before is None:
                self.variables.pop(name, None)
            else:
                self.variables[name] = before
        return values

    def hole(self, expression: str, line: int, file: str, name: str = "", *, is_argument: bool = False) -> Value:
        """Returns an expression without a value.

        Args:
            expression: as the script has it.
            line: where it stands.
            file: where it stands.
            name: of the variable, where the environment may set it.
            is_argument: whether the script's arguments set it.
        """
        return (Segment(self.holes.sign(Hole(" ".join(expression.split()), name, is_argument)), line, file),)

    def unset(self, expression: str, name: str, line: int, file: str) -> Value:
        """Returns a variable that nothing in the script sets."""
        if (name.isdecimal() and name != "0") or name in ("@", "*", "#", "OPTARG", "OPTIND"):
            return self.hole(expression, line, file, is_argument=True)
        if name in _ALWAYS_OPEN or self.may_be_set_elsewhere:
            return self.hole(expression, line, file)
        return self.hole(expression, line, file, name)

    def is_nothing(self, text: str) -> bool:
        """Return whether a text is only an argument or an environment variable, both empty unless given."""
        if len(text) != 1:
            return False
        holes = self.holes.within(text)
        return bool(holes) and (holes[0].is_argument or bool(holes[0].name))
