"""The state of going through a script, and how statements are run within another text or apart from the rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from engine.launch.contract import LaunchError
from engine.launch.shell import slurm
from engine.launch.shell.assignments import InputUse, VariableAssignments
from engine.launch.shell.conditions import Conditions
from engine.launch.shell.expansion import Expander, ScriptSpot
from engine.launch.shell.script import Script
from engine.launch.shell.source import Raw, ScriptSource
from engine.launch.shell.state import State
from engine.launch.shell.syntax import Node, first_fault, parse
from engine.launch.shell.values import Segment, Word

__all__ = ["DEEPEST", "RAN", "Frame", "Outcome", "ScriptEndError", "ScriptWalk"]

DEEPEST: Final = 40
"""Statements within statements, and scripts within scripts together."""
RAN: Final = "ran"
"""Outcome of a command that is assumed to succeed."""
Outcome = bool | str | None
"""True, False, `RAN`; None if it is open."""


class ScriptEndError(Exception):
    """The script ends."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Context of the statements that run: commands around them, Slurm options, open conditions."""

    wrappers: tuple[list[Word], ...] = ()
    directives: Mapping[str, Word] | None = None
    is_open: bool = False
    is_held: bool = False


class ScriptWalk(ABC):
    """State of one pass through a script, shared by its commands and its control flow."""

    def __init__(self, name: str, files: Mapping[str, str]) -> None:
        self.state = State()
        self.expander = Expander(self.state)
        self.script = Script()
        self.assignments = VariableAssignments(self.state, self.expander)
        self.conditions = Conditions(self.state, self.expander)
        self.name = name
        self.files = files
        self.functions: dict[str, tuple[Node, ScriptSource]] = {}
        self.called: set[str] = set()
        self.active: list[str] = []
        """Functions that are running."""
        self.frame = Frame()
        self.source = ScriptSource(b"", name)
        self.depth = 0
        self.nesting = 0
        """Number of conditions and loops around the current statement."""
        self.scripts = 0
        self.input_use: InputUse | None = None
        """Use of input by the last `read`; None if another command gets it."""

    @abstractmethod
    def run_statement(self, node: Node) -> Outcome:
        """Run a statement; return its outcome."""

    @abstractmethod
    def run_statements(self, node: Node) -> None:
        """Run the children of a node in order."""

    def run_text(self, source: ScriptSource, *, is_file: bool = False) -> None:
        """Parse a text and run its statements."""
        root = parse(source.data)
        if is_file and root.has_error:
            self.script.not_understood.append(first_fault(root))
        self.run_statements(root)

    def set_slurm_variables(self, options: Mapping[str, Word]) -> None:
        """Set the variables that Slurm sets for options."""
        for name, word in slurm.slurm_variables(options).items():
            self.state.put(name, (Segment(word.text, word.line, word.file),))

    def run_isolated(self, run: Callable[[], object]) -> None:
        """Run statements and discard the variables that they set."""
        self.state.begin()
        self.nesting += 1
        try:
            run()
        except ScriptEndError:
            pass
        finally:
            self.nesting -= 1
            self.state.rollback()

    def run_within(self, source: ScriptSource, run: Callable[[], object]) -> None:
        """Run statements of another text. Raises `LaunchError` if texts are nested too deep."""
        before = self.source
        self.source = source
        self.depth += 1
        if self.depth > DEEPEST:
            raise LaunchError(f"The script nests commands more than {DEEPEST} deep; give the command that it starts.")
        try:
            run()
        finally:
            self.source = before
            self.depth -= 1

    def spot_of(self, node: Node) -> ScriptSpot:
        """Return the place of a node."""
        return self.source.spot(node.start_byte, node.start_point.row)

    def raw_word(self, node: Node) -> Raw:
        """Return a node as a word with its place."""
        return Raw(self.source.text(node.start_byte, node.end_byte), self.spot_of(node))

    def text_inside(self, node: Node, opening: str, closing: str) -> str:
        """Return the text of a node between an opening and a closing sign."""
        return self.source.text(node.start_byte, node.end_byte).removeprefix(opening).removesuffix(closing)
