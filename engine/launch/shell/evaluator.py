"""A shell script read from its first line to its last, without running anything.

Of `if` and `case` the branch counts that the script takes without input from outside. If files, programs or arguments
decide, all branches are read and merged, and `Script.open_conditions` lists the conditions. Loops over several
values leave their variable open. Texts that a command gets in quotes or as input (`bash -c`, `eval`, `<<EOF`) are read
as scripts of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from engine.launch.contract import LaunchError
from engine.launch.shell import slurm
from engine.launch.shell.branches import words_of
from engine.launch.shell.commands import Commands
from engine.launch.shell.control_flow import ControlFlow
from engine.launch.shell.script import Call, Script
from engine.launch.shell.source import ScriptSource
from engine.launch.shell.syntax import SIMPLE_STATEMENTS, STATEMENTS, Node, children_of
from engine.launch.shell.values import has_hole, text_of, without_holes
from engine.launch.shell.walk import DEEPEST, RAN, Frame, Outcome, ScriptEndError

__all__ = ["read_script"]


class ScriptEvaluator(Commands, ControlFlow):
    """Reads a whole script: dispatches statements and collects commands and variables."""

    def read_text(self, text: str) -> Script:
        """Return the commands and variables of a script."""
        text = without_holes(text)
        self.script.directives = slurm.read_directives(text, self.name)
        self.set_slurm_variables(self.script.directives)
        self.frame = Frame(directives=self.script.directives)
        self.source = ScriptSource.of(text.encode("utf-8", "replace"), self.name)
        with suppress(ScriptEndError):
            self.run_text(self.source, is_file=True)
        self._run_uncalled_functions()
        self._run_held_variables()
        for name, value in self.state.variables.items():
            if isinstance(value, tuple) and not has_hole(known := text_of(value)):
                self.script.variables[name] = known
        for name in self.state.exported:
            if name in self.script.variables:
                self.script.exported.setdefault(name, self.script.variables[name])
        self.script.missing_files = self.state.missing_files
        self.script.outside = self.state.outside
        self.script.work = self.state.work.done
        return self.script

    def _run_uncalled_functions(self) -> None:
        """Run functions that the script never calls by name."""
        for name, (body, source) in list(self.functions.items()):
            if name not in self.called:
                self.called.add(name)
                self.run_isolated(partial(self.run_within, source, partial(self.run_statement, body)))

    def _run_held_variables(self) -> None:
        """Run variables that hold commands which the script itself does not run."""
        for value in list(self.state.variables.values()):
            if not isinstance(value, tuple) or "--" not in (text := text_of(value)):
                continue
            if text.lstrip().startswith("-"):  # flags of a command in another file
                words = [self.state.holes.word(each, value[0].line, value[0].file) for each in words_of(value)]
                self.state.work.add_words(len(words))
                self.script.calls.append(Call(words, (), self.script.directives, is_held=True))
            else:
                self.run_held(value, ())

    def run_statements(self, node: Node) -> None:
        """Run the children of a node in order."""
        loose: list[Node] = []
        for child in children_of(node):
            if child.type in STATEMENTS:
                self._run_loose(loose)
                self.run_statement(child)
            elif child.type not in (
                "comment",
                "\n",
                ";",
                "&",
                "heredoc_body",
                "heredoc_end",
                "{",
                "}",
                "(",
                ")",
                "do",
                "done",
                ";;",
            ):
                loose.append(child)
            elif child.type in ("\n", ";"):
                self._run_loose(loose)
        self._run_loose(loose)

    def _run_loose(self, nodes: list[Node]) -> None:
        """Run the words of nodes that are not statements."""
        if not nodes:
            return
        first, last = nodes[0], nodes[-1]
        nodes.clear()
        self._run_unparsed(first.start_byte, last.end_byte, first.start_point.row)

    def _run_unparsed(self, start: int, end: int, row: int) -> None:
        """Run text that is not valid shell syntax word by word."""
        self.run_words(start, end, row, skips_keywords=True)

    def run_statement(self, node: Node) -> Outcome:
        """Run a statement; return its outcome."""
        self.state.work.spend(12)
        self.depth += 1
        if self.depth > DEEPEST:
            line = self.source.spot(node.start_byte, node.start_point.row).line
            raise LaunchError(
                f"Line {line} of the script is nested more than {DEEPEST} deep; give the command that it starts."
            )
        try:
            return self._run_by_kind(node)
        finally:
            self.depth -= 1

    def _run_by_kind(self, node: Node) -> Outcome:
        kind = node.type
        found: Outcome = RAN
        if kind in SIMPLE_STATEMENTS:
            found = self.run_command(node)
        elif kind == "test_command":
            found = self.run_test(node)
        elif kind == "list":
            found = self.run_list(node)
        elif kind == "negated_command":
            inner = [self.run_statement(each) for each in node.children if each.type in STATEMENTS]
            found = not inner[0] if inner and isinstance(inner[0], bool) else None
        elif kind == "pipeline":
            for each in children_of(node):
                if each.type in STATEMENTS:
                    self.run_isolated(partial(self.run_statement, each))
                elif each.type == "ERROR":
                    self.run_isolated(partial(self.run_statements, each))
        elif kind == "compound_statement" and node.children and node.children[0].type == "((":
            number = self.expander.number(self.text_inside(node, "((", "))"), self.spot_of(node))
            found = None if number is None else number != 0
        elif kind == "subshell":
            self.run_isolated(partial(self.run_statements, node))
        elif kind == "redirected_statement":
            found = self._run_redirected(node)
        elif kind == "if_statement":
            self.run_if(node)
        elif kind == "case_statement":
            self.run_case(node)
        elif kind in ("for_statement", "c_style_for_statement"):
            self.run_for(node)
        elif kind == "while_statement":
            self.run_while(node)
        elif kind == "function_definition":
            self.define_function(node)
        else:
            self.run_statements(node)
        return found

    def _run_redirected(self, node: Node) -> Outcome:
        outcome: Outcome = RAN
        for place, child in enumerate(node.children):
            if node.field_name_for_child(place) == "body":
                outcome = self.run_statement(child)
            elif child.type == "ERROR":
                self.run_statements(child)
        return outcome


def read_script(text: str, name: str = "", files: Mapping[str, str] | None = None) -> Script:
    """Return the commands and variables of a shell script.

    Args:
        text: script.
        name: file name, shown in messages.
        files: texts of other files by the name with which the script sources them; all others are missing.

    Raises `LaunchError` for a script that takes more work, text or depth than launch scripts do.
    """
    return ScriptEvaluator(name, files or {}).read_text(text)
