"""Simple commands of a script: words with variables filled in, functions, included files, scripts in quotes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from engine.launch.shell import slurm
from engine.launch.shell.assignments import ASSIGNMENT
from engine.launch.shell.expansion import ScriptSpot
from engine.launch.shell.inputs import HereDocument
from engine.launch.shell.script import Call, MissingFile
from engine.launch.shell.source import Raw, ScriptSource
from engine.launch.shell.syntax import Node
from engine.launch.shell.values import Segment, Value, Word, has_hole, text_of, without_holes, without_start
from engine.launch.shell.walk import DEEPEST, RAN, Outcome, ScriptEndError, ScriptWalk
from engine.launch.shell.words import COMMAND_ENDS, split_words

__all__ = ["Commands"]

MOST_SCRIPTS: Final = 100
"""Largest number of texts that are read because they may be commands."""
MOST_RECURSION: Final = 3
"""Largest number of nested calls of a function by itself: files and programs decide which call is the last."""
_DECLARING: Final = frozenset({"export", "declare", "local", "readonly", "typeset"})
_SHELLS: Final = frozenset({"bash", "sh", "zsh", "dash", "ksh"})
_RUNNING: Final = _SHELLS | {"sbatch", "srun", "salloc", "ssh", "qsub", "at"}
"""Programs that run their input."""
_KEYWORDS: Final = frozenset(
    {"then", "else", "elif", "do", "done", "fi", "if", "while", "until", "esac", "in", "{", "}", "!", "time", ";;"}
)
_REDIRECTION: Final = re.compile(r"[0-9]*(?:<<<|<<-?|<&|<>|>>|>&|>\||<|>)|&>>?")
_ENVIRONMENTS: Final = re.compile(
    r"(?:.*/)?(?:activate|conda\.sh|mamba\.sh|\.bashrc|\.bash_profile|\.profile|profile|bashrc|setvars\.sh|modules?\.sh|"
    r"init/(?:ba)?sh|lmod\.sh)$"
)
"""Files that set up programs, not settings: they are assumed to set no variable of the script."""
_COPIED: Final = re.compile(
    r"(?:(?:export|local|declare|readonly|typeset)\s+(?:-\w+\s+)*)?([A-Za-z_]\w*)(\+?)=\"?\$\(\s*(?:/bin/)?cat[\s-]*"
    r"(?:\|\s*(?:xargs|tr\s+(?:-s\s+)?(?:'\\n'|\"\\n\")\s+(?:' '|\" \")))?\s*\)\"?\s*"
)
"""A here-document that becomes a variable: A=$(cat <<EOF ...), with its lines joined or not."""


class Commands(ScriptWalk):
    """Runs simple commands, and texts that commands run as scripts."""

    def run_words(self, start: int, end: int, row: int, *, skips_keywords: bool = False) -> Outcome:
        """Run the simple commands of a text; return the outcome of the last."""
        text = self.source.text(start, end)
        self.state.work.spend(8 + len(text) // 4)
        words: list[Raw] = []
        outcome: Outcome = RAN
        rows, seen, place_in_bytes, counted = row, 0, start, 0
        is_plain = text.isascii()
        for place, raw in split_words(text):
            self.state.work.spend(2)
            rows += text.count("\n", seen, place)
            seen = place
            if raw in COMMAND_ENDS:
                outcome = self.run_simple(words) if words else outcome
                words = []
            elif words or not skips_keywords or raw not in _KEYWORDS:
                if not is_plain and self.source.segments:
                    place_in_bytes += len(text[counted:place].encode("utf-8", "replace"))
                    counted = place
                at = start + place if is_plain else place_in_bytes
                words.append(Raw(raw, self.source.spot(at, rows)))
        return self.run_simple(words) if words else outcome

    def run_command(self, node: Node) -> Outcome:
        """Run the commands of a node, then the here-documents that they get as input."""
        inputs = self.source.inputs_of(node)
        if inputs and (copied := _COPIED.fullmatch(self.source.text(node.start_byte, node.end_byte))):
            held = self.state.variables.get(copied[1]) if copied[2] else None
            value = self._here_document_value(inputs[0])
            self.state.put(copied[1], (*held, *value) if isinstance(held, tuple) else value)
            return True
        before = len(self.script.calls)
        self.input_use = None
        outcome = self.run_words(node.start_byte, node.end_byte, node.start_point.row)
        for each in inputs:
            if self.input_use is None:
                self._run_here_document(each, [call.words for call in self.script.calls[before : before + 1]])
            elif self.input_use.name:
                value = self._here_document_value(each, joins_lines=self.input_use.joins_lines)
                self.state.put(self.input_use.name, value)
        return outcome

    def run_simple(self, words: Sequence[Raw]) -> Outcome:
        """Run a simple command: its assignments, then the command after them."""
        if not words:
            return RAN
        self.state.work.spend(10)
        place = 0
        while place < len(words) and ASSIGNMENT.match(words[place].text) is not None:
            place += 1
        if place == len(words):
            for each in words:
                self.assignments.assign_variable(each, is_exported=False)
            return True
        first = words[place].text
        if first in _DECLARING:
            self.assignments.declare_variables(words[place:], first)
            return True
        if first in ("[", "[[", "test"):
            rest = [(each.text, each.spot) for each in words[place + 1 :] if each.text not in ("]", "]]")]
            return self.conditions.evaluate_words(rest, first == "[[")
        prefixes: dict[str, Value] = {}
        for each in words[:place]:
            match = ASSIGNMENT.match(each.text)
            if match is not None:
                value = self.expander.value(self.expander.pieces(match[4]), each.spot)
                prefixes[match[1]] = value
                if not has_hole(text_of(value)):
                    self.script.exported[match[1]] = text_of(value)
        fields: list[Value] = []
        spots: list[ScriptSpot] = []
        for each in _without_redirections(words[place:]):
            given = self.expander.fields(self.expander.pieces(each.text), each.spot)
            fields += given
            spots += [each.spot] * len(given)
        if not fields:
            return RAN
        self.state.work.add_words(len(fields))
        return self._run_named(fields, spots, prefixes)

    def _run_named(self, fields: list[Value], spots: list[ScriptSpot], prefixes: Mapping[str, Value]) -> Outcome:
        """Run a command with its variables filled in, by its first word."""
        name = text_of(fields[0])
        spot = spots[0]
        if name in ("true", ":"):
            return True
        if name == "false":
            return False
        if name in ("source", "."):
            self._include_file(fields[1:], spot)
        elif name == "unset":
            for each in fields[1:]:
                self.state.remove(text_of(each))
        elif name == "shift":
            self._shift_arguments(fields[1:])
        elif name == "set":
            texts = [text_of(each) for each in fields]
            if "--" in texts:
                self.state.arguments = tuple(fields[texts.index("--") + 1 :])
        elif name == "getopts" and self.state.has_no_arguments:
            return False
        elif name in ("read", "mapfile", "readarray", "getopts"):
            self.input_use = self.assignments.read_names(name, fields[1:], spot)
            return None
        elif name == "printf" and len(fields) > 2 and text_of(fields[1]) == "-v":
            target = text_of(fields[2])
            self.state.put(target, self.state.hole(f"${target}", spot.line, spot.file))
        elif name == "let":
            outcome: Outcome = None
            for each in fields[1:]:
                number = self.expander.number(text_of(each), spot)
                outcome = None if number is None else number != 0
            return outcome
        elif name in ("exit", "return", "break", "continue"):
            if name == "exit" and not self.nesting:
                raise ScriptEndError
        elif name == "eval":
            self.run_nested(_join_with_spaces(fields[1:]), self.frame.wrappers, is_isolated=False)
        elif name in self.functions:
            self._call_function(name, tuple(fields[1:]))
            return None
        else:
            self._record_call(fields, spots, prefixes)
        return RAN

    def _record_call(self, fields: list[Value], spots: list[ScriptSpot], prefixes: Mapping[str, Value]) -> None:
        words = [self.state.holes.word(value, spot.line, spot.file) for value, spot in zip(fields, spots, strict=True)]
        frame = self.frame
        directives = frame.directives or {}
        self.script.calls.append(Call(words, frame.wrappers, directives, frame.is_open, frame.is_held))
        texts = [text_of(each) for each in fields]
        inner = _script_place(texts)
        if inner is not None and inner < len(fields):
            self.run_nested(fields[inner], (*frame.wrappers, words[: inner + 1]), arguments=tuple(fields[inner + 2 :]))
        else:
            for text, value in zip(texts, fields, strict=True):
                if any(sign in text for sign in " \n") and "--" in text:
                    self.run_held(_without_wrap(value), (*frame.wrappers, words))

    def _include_file(self, fields: Sequence[Value], spot: ScriptSpot) -> None:
        if not fields:
            return
        shown = self.state.holes.shown(text_of(fields[0]))
        name = shown.removeprefix("./")
        text = self.files.get(name)
        if text is not None and not has_hole(text_of(fields[0])):
            source = ScriptSource.of(without_holes(text).encode("utf-8", "replace"), name)
            arguments = self.state.arguments
            if len(fields) > 1:
                self.state.arguments = tuple(fields[1:])
            self.state.work.spend(10 + len(text) // 4)
            self.run_within(source, partial(self.run_text, source))
            self.state.arguments = arguments
            return
        if self.frame.is_held:
            return
        self.state.missing_files.append(MissingFile(shown[:200], spot.line))
        if not _ENVIRONMENTS.fullmatch(shown):
            self.state.may_be_set_elsewhere = True

    def _shift_arguments(self, fields: Sequence[Value]) -> None:
        if self.state.arguments is None:
            return
        text = text_of(fields[0]) if fields else "1"
        self.state.arguments = self.state.arguments[int(text) :] if re.fullmatch(r"\d{1,6}", text) else None

    def define_function(self, node: Node) -> None:
        """Store the body of a function."""
        name = next(
            (
                self.source.text(each.start_byte, each.end_byte)
                for place, each in enumerate(node.children)
                if node.field_name_for_child(place) == "name"
            ),
            "",
        )
        body = next(
            (each for place, each in enumerate(node.children) if node.field_name_for_child(place) == "body"), None
        )
        if body is not None:
            self.functions[name] = (body, self.source)

    def _call_function(self, name: str, arguments: tuple[Value, ...]) -> None:
        body, source = self.functions[name]
        self.called.add(name)
        if self.active.count(name) >= MOST_RECURSION:
            return
        before = self.state.arguments
        self.state.arguments = arguments
        self.nesting += 1
        try:
            self.active.append(name)
            self.run_within(source, partial(self.run_statement, body))
        finally:
            self.active.pop()
            self.nesting -= 1
            self.state.arguments = before

    def _run_here_document(self, given: HereDocument, wrappers: list[list[Word]]) -> None:
        """Run a here-document, which often is a script."""
        self.scripts += 1
        if self.scripts > MOST_SCRIPTS:
            return
        value = self._here_document_value(given)
        directives = {**(self.frame.directives or {}), **slurm.read_directives(text_of(value), self.source.name, value)}
        is_held = not any(_program_name(word.text) in _RUNNING for words in wrappers for word in words)
        self.run_nested(value, (*self.frame.wrappers, *wrappers), directives=directives, is_held=is_held)

    def _here_document_value(self, given: HereDocument, *, joins_lines: bool = False) -> Value:
        """Return the text of a here-document.

        Args:
            given: its place in the script.
            joins_lines: whether a backslash joins a line to the next one although the limiter is quoted.
        """
        text = self.source.whole[given.start : given.end].decode("utf-8", "replace")
        spot = self.source.spot(given.start, given.row)
        if given.strips_tabs:
            text = re.sub(r"^\t+", "", text, flags=re.MULTILINE)
        if not given.is_quoted:
            return self.expander.text_value(text, spot)
        lines = text.splitlines(keepends=True)
        self.state.work.spend(len(lines))
        if joins_lines:
            lines = [line.removesuffix("\\\n") for line in lines]
        return tuple(Segment(line, spot.at(row), spot.file) for row, line in enumerate(lines))

    def run_held(self, value: Value, wrappers: tuple[list[Word], ...]) -> None:
        """Run a text that may be a command but that no command here runs."""
        self.scripts += 1
        if self.scripts > MOST_SCRIPTS or self.depth > DEEPEST // 2:
            return
        self.run_nested(value, wrappers, is_held=True)

    def run_nested(
        self,
        value: Value,
        wrappers: tuple[list[Word], ...],
        *,
        is_held: bool = False,
        is_isolated: bool = True,
        arguments: tuple[Value, ...] | None = None,
        directives: Mapping[str, Word] | None = None,
    ) -> None:
        """Run a value as a script."""
        data = text_of(value).encode("utf-8", "replace")
        self.state.work.copy(len(data))
        self.state.work.spend(10 + len(data) // 4)
        source = ScriptSource.of(data, self.source.name, value)
        before, before_arguments = self.frame, self.state.arguments
        self.frame = replace(
            before, wrappers=wrappers, is_held=before.is_held or is_held, directives=directives or before.directives
        )
        if arguments is not None:
            self.state.arguments = arguments

        def body() -> None:
            options: dict[str, Word] = dict(directives or {})
            for words in wrappers:
                options |= slurm.options_of(words)
            if directives or len(options):
                self.set_slurm_variables({**(self.frame.directives or {}), **options})
            self.run_within(source, partial(self.run_text, source))

        try:
            if is_isolated:
                self.run_isolated(body)
            else:
                body()
        finally:
            self.frame, self.state.arguments = before, before_arguments


def _program_name(text: str) -> str:
    return text.rpartition("/")[2]


def _script_place(texts: Sequence[str]) -> int | None:
    """Return the index of the word behind `-c` of a shell, None without one."""
    for place, text in enumerate(texts):
        if _program_name(text) in _SHELLS:
            for at in range(place + 1, len(texts)):
                if re.fullmatch(r"-[a-z]*c", texts[at]):
                    return at + 1
                if not texts[at].startswith("-") and texts[at] != "pipefail":
                    break
    return None


def _without_wrap(value: Value) -> Value:
    return without_start(value, len("--wrap=")) if text_of(value).startswith("--wrap=") else value


def _join_with_spaces(values: Sequence[Value]) -> Value:
    found: list[Segment] = []
    for value in values:
        if found:
            found.append(found[-1]._replace(text=" "))
        found += value
    return tuple(found)


def _without_redirections(words: Sequence[Raw]) -> Iterator[Raw]:
    skip = False
    for word in words:
        if _REDIRECTION.fullmatch(word.text):
            skip = True
        elif skip:
            skip = False
        else:
            yield word
