"""A script of the shell gone through from its first line to its last, without running anything.

Of `if` and `case` the branch counts that the script takes where nothing is given from outside. Where files, programs or
arguments decide, all branches are gone through and merged, and `Script.open_conditions` says so. Loops over several
values leave their variable open. What a command gets in quotes or as input (`bash -c`, `eval`, `<<EOF`) is gone through
as a script of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from engine.launch.contract import LaunchError
from engine.launch.shell import slurm
from engine.launch.shell.branches import marked, merged, words_of
from engine.launch.shell.conditions import Operand, holds
from engine.launch.shell.expansion import Expander, Spot
from engine.launch.shell.inputs import Input
from engine.launch.shell.patterns import Pattern
from engine.launch.shell.script import Call, MissingFile, Script
from engine.launch.shell.source import Raw, Source
from engine.launch.shell.state import State, Variable
from engine.launch.shell.syntax import Node, children_of, first_fault, parse
from engine.launch.shell.values import Array, Segment, Value, Word, has_hole, text_of, without_holes
from engine.launch.shell.words import split_words

__all__ = ["read_script"]

DEEPEST: Final = 40
"""Statements within statements, and scripts within scripts together."""
MOST_SCRIPTS: Final = 100
"""Texts that are gone through because they may be commands."""
MOST_RECURSION: Final = 3
"""How often a function calls itself: which call is the last one is a matter of files and programs."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNED: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[([^\]\n]{0,200})\])?(\+?)=(.*)", re.DOTALL)
_DECLARING: Final = frozenset({"export", "declare", "local", "readonly", "typeset"})
_SHELLS: Final = frozenset({"bash", "sh", "zsh", "dash", "ksh"})
_RUNNING: Final = _SHELLS | {"sbatch", "srun", "salloc", "ssh", "qsub", "at"}
"""Programs that run what they get as input."""
_KEYWORDS: Final = frozenset(
    {"then", "else", "elif", "do", "done", "fi", "if", "while", "until", "esac", "in", "{", "}", "!", "time", ";;"}
)
_ENDS: Final = frozenset({"\n", ";", "&", "|", "&&", "||", "(", ")", ";;"})
_REDIRECTION: Final = re.compile(r"[0-9]*(?:<<<|<<-?|<&|<>|>>|>&|>\||<|>)|&>>?")
_ENVIRONMENTS: Final = re.compile(
    r"(?:.*/)?(?:activate|conda\.sh|mamba\.sh|\.bashrc|\.bash_profile|\.profile|profile|bashrc|setvars\.sh|modules?\.sh|"
    r"init/(?:ba)?sh|lmod\.sh)$"
)
"""Files that set up programs, not settings: variables that nothing else sets are not taken to come from them."""
_RAN: Final = "ran"
"""Outcome of a command that is taken to succeed."""
Outcome = bool | str | None
"""True, False, None where it is open, `_RAN`."""


class _ExitError(Exception):
    """The script ends."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """What surrounds the statements that are gone through."""

    wrappers: tuple[list[Word], ...] = ()
    directives: Mapping[str, Word] | None = None
    is_open: bool = False
    is_held: bool = False


_COPIED: Final = re.compile(
    r"(?:(?:export|local|declare|readonly|typeset)\s+(?:-\w+\s+)*)?([A-Za-z_]\w*)(\+?)=\"?\$\(\s*(?:/bin/)?cat[\s-]*"
    r"(?:\|\s*(?:xargs|tr\s+(?:-s\s+)?(?:'\\n'|\"\\n\")\s+(?:' '|\" \")))?\s*\)\"?\s*"
)
"""A here-document that becomes a variable: A=$(cat <<EOF ...), with its lines joined or not."""


class _InputReading(NamedTuple):
    """What `read` and its kin do with a here-document."""

    name: str
    """Variable that takes all of it; empty where it is divided among several or read line by line."""
    joins_lines: bool


class _Evaluator:
    def __init__(self, name: str, files: Mapping[str, str]) -> None:
        self.state = State()
        self.expander = Expander(self.state)
        self.script = Script()
        self.name = name
        self.files = files
        self.functions: dict[str, tuple[Node, Source]] = {}
        self.called: set[str] = set()
        self.active: list[str] = []
        """Functions that are being gone through."""
        self.frame = _Frame()
        self.source = Source(b"", name)
        self.depth = 0
        self.nesting = 0
        """Conditions and loops around a statement."""
        self.scripts = 0
        self.reading: _InputReading | None = None

    # Scripts and texts

    def read(self, text: str) -> Script:
        text = without_holes(text)
        self.script.directives = slurm.directives(text, self.name)
        self._set_slurm(self.script.directives)
        self.frame = _Frame(directives=self.script.directives)
        self.source = Source.of(text.encode("utf-8", "replace"), self.name)
        with suppress(_ExitError):
            self._parsed(self.source, is_file=True)
        self._uncalled()
        self._held_in_variables()
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

    def _parsed(self, source: Source, *, is_file: bool = False) -> None:
        root = parse(source.data)
        if is_file and root.has_error:
            self.script.not_understood.append(first_fault(root))
        self._statements(root)

    def _set_slurm(self, options: Mapping[str, Word]) -> None:
        for name, word in slurm.variables(options).items():
            self.state.put(name, (Segment(word.text, word.line, word.file),))

    def _uncalled(self) -> None:
        """Goes through functions that nothing in the script calls by name."""
        for name, (body, source) in list(self.functions.items()):
            if name not in self.called:
                self.called.add(name)
                self._isolated(partial(self._within, source, partial(self._run, body)))

    def _held_in_variables(self) -> None:
        """Goes through variables that hold commands which nothing runs here."""
        for value in list(self.state.variables.values()):
            if not isinstance(value, tuple) or "--" not in (text := text_of(value)):
                continue
            if text.lstrip().startswith("-"):  # flags of a command that is elsewhere
                words = [self.state.holes.word(each, value[0].line, value[0].file) for each in words_of(value)]
                self.state.work.add_words(len(words))
                self.script.calls.append(Call(words, (), self.script.directives, is_held=True))
            else:
                self._held(value, ())

    def _held(self, value: Value, wrappers: tuple[list[Word], ...]) -> None:
        self.scripts += 1
        if self.scripts > MOST_SCRIPTS or self.depth > DEEPEST // 2:
            return
        self._nested(value, wrappers, is_held=True)

    def _nested(
        self, value: Value, wrappers: tuple[list[Word], ...], *, is_held: bool = False, is_isolated: bool = True,
        arguments: tuple[Value, ...] | None = None, directives: Mapping[str, Word] | None = None,
    ) -> None:  # fmt: skip
        """Goes through a value as a script."""
        data = text_of(value).encode("utf-8", "replace")
        self.state.work.copy(len(data))
        self.state.work.spend(10 + len(data) // 4)
        source = Source.of(data, self.source.name, value)
        before, before_arguments = self.frame, self.state.arguments
        self.frame = replace(before, wrappers=wrappers, is_held=before.is_held or is_held,
                             directives=directives or before.directives)  # fmt: skip
        if arguments is not None:
            self.state.arguments = arguments

        def body() -> None:
            options: dict[str, Word] = dict(directives or {})
            for words in wrappers:
                options |= slurm.options_of(words)
            if directives or len(options):
                self._set_slurm({**(self.frame.directives or {}), **options})
            self._within(source, partial(self._parsed, source))

        try:
            if is_isolated:
                self._isolated(body)
            else:
                body()
        finally:
            self.frame, self.state.arguments = before, before_arguments

    def _isolated(self, run: Callable[[], object]) -> None:
        """Goes through statements whose variables are lost afterwards."""
        self.state.begin()
        self.nesting += 1
        try:
            run()
        except _ExitError:
            pass
        finally:
            self.nesting -= 1
            self.state.rollback()

    def _within(self, source: Source, run: Callable[[], object]) -> None:
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

    # Statements

    def _statements(self, node: Node) -> None:
        """Goes through the children of a node in order."""
        loose: list[Node] = []
        for child in children_of(node):
            if child.type in _STATEMENTS:
                self._loose(loose)
                self._run(child)
            elif child.type not in ("comment", "\n", ";", "&", "heredoc_body", "heredoc_end", "{", "}", "(", ")", "do",
                                    "done", ";;"):  # fmt: skip
                loose.append(child)
            elif child.type in ("\n", ";"):
                self._loose(loose)
        self._loose(loose)

    def _loose(self, nodes: list[Node]) -> None:
        """Reads the words of what is no statement."""
        if not nodes:
            return
        first, last = nodes[0], nodes[-1]
        nodes.clear()
        self._unparsed(first.start_byte, last.end_byte, first.start_point.row)

    def _unparsed(self, start: int, end: int, row: int) -> None:
        """Reads text that is no shell syntax word by word."""
        self._words(start, end, row, skips_keywords=True)

    def _words(self, start: int, end: int, row: int, *, skips_keywords: bool = False) -> Outcome:
        """Goes through the commands of a text without compound ones; returns the outcome of the last."""
        text = self.source.text(start, end)
        self.state.work.spend(8 + len(text) // 4)
        words: list[Raw] = []
        outcome: Outcome = _RAN
        rows, seen, place_in_bytes, counted = row, 0, start, 0
        is_plain = text.isascii()
        for place, raw in split_words(text):
            self.state.work.spend(2)
            rows += text.count("\n", seen, place)
            seen = place
            if raw in _ENDS:
                outcome = self._simple(words) if words else outcome
                words = []
            elif words or not skips_keywords or raw not in _KEYWORDS:
                if not is_plain and self.source.segments:
                    place_in_bytes += len(text[counted:place].encode("utf-8", "replace"))
                    counted = place
                at = start + place if is_plain else place_in_bytes
                words.append(Raw(raw, self.source.spot(at, rows)))
        return self._simple(words) if words else outcome

    def _run(self, node: Node) -> Outcome:
        """Goes through a statement; returns its outcome."""
        self.state.work.spend(12)
        self.depth += 1
        if self.depth > DEEPEST:
            line = self.source.spot(node.start_byte, node.start_point.row).line
            raise LaunchError(
                f"Line {line} of the script is nested more than {DEEPEST} deep; give the command that it starts."
            )
        try:
            return self._dispatch(node)
        finally:
            self.depth -= 1

    def _dispatch(self, node: Node) -> Outcome:
        kind = node.type
        found: Outcome = _RAN
        if kind in _SIMPLE:
            found = self._command(node)
        elif kind == "test_command":
            found = self._test(node)
        elif kind == "list":
            found = self._list(node)
        elif kind == "negated_command":
            inner = [self._run(each) for each in node.children if each.type in _STATEMENTS]
            found = not inner[0] if inner and isinstance(inner[0], bool) else None
        elif kind == "pipeline":
            for each in children_of(node):
                if each.type in _STATEMENTS:
                    self._isolated(partial(self._run, each))
                elif each.type == "ERROR":
                    self._isolated(partial(self._statements, each))
        elif kind == "compound_statement" and node.children and node.children[0].type == "((":
            number = self.expander.number(self._inside(node, "((", "))"), self._spot(node))
            found = None if number is None else number != 0
        elif kind == "subshell":
            self._isolated(partial(self._statements, node))
        elif kind == "redirected_statement":
            found = self._redirected(node)
        elif kind == "if_statement":
            self._if(node)
        elif kind == "case_statement":
            self._case(node)
        elif kind in ("for_statement", "c_style_for_statement"):
            self._for(node)
        elif kind == "while_statement":
            self._while(node)
        elif kind == "function_definition":
            self._define(node)
        else:
            self._statements(node)
        return found

    def _spot(self, node: Node) -> Spot:
        return self.source.spot(node.start_byte, node.start_point.row)

    def _raw(self, node: Node) -> Raw:
        return Raw(self.source.text(node.start_byte, node.end_byte), self._spot(node))

    def _inside(self, node: Node, opening: str, closing: str) -> str:
        return self.source.text(node.start_byte, node.end_byte).removeprefix(opening).removesuffix(closing)

    def _list(self, node: Node) -> Outcome:
        chain: list[tuple[str, Node]] = []
        while node.type == "list" and len(node.children) >= 3:
            parts = [each for each in node.children if each.type not in ("comment", "\n")]
            chain.append((parts[1].type, parts[-1]))
            node = parts[0]
        outcome = self._run(node)
        condition = node
        default = self._without_arguments([node]) if outcome is None else None
        for sign, right in reversed(chain):
            self.state.work.spend(2)
            if right.type not in _STATEMENTS:
                continue
            if outcome is None or (outcome == _RAN and sign == "||"):
                outcome = self._open_branches(
                    [partial(self._run, right)],
                    [self._shown(condition)],
                    self._spot(right),
                    False,
                    None if default is None else 0 if default == (sign == "&&") else -1,
                )
                default = default if default == (sign == "||") else None
            elif (outcome is False) == (sign == "||"):
                outcome = self._run(right)
                default = self._without_arguments([right]) if outcome is None else None
            condition = right if right.type == "test_command" else condition
        return outcome

    def _without_arguments(self, tests: Sequence[Node]) -> bool | None:
        """Returns the outcome of a condition if the script has no arguments, None where they do not decide."""
        if self.state.has_no_arguments or any(each.type not in _TESTS for each in tests):
            return None
        self.state.has_no_arguments = True
        try:
            outcome: Outcome = None
            for test in tests:
                outcome = self._run(test)
        finally:
            self.state.has_no_arguments = False
        return outcome if isinstance(outcome, bool) else None

    def _shown(self, node: Node) -> str:
        text = self.source.text(node.start_byte, min(node.end_byte, node.start_byte + 400))
        return self.state.holes.shown(" ".join(text.split()))[:100]

    def _open_branches(
        self,
        bodies: Sequence[Callable[[], object]],
        conditions: Sequence[str],
        spot: Spot,
        is_exhaustive: bool,
        default: int | None = None,
    ) -> Outcome:
        """Goes through branches of which nobody knows the one that is taken, and merge their variables.

        Args:
            bodies: branches, in their order.
            conditions: as the script has them.
            spot: of the statement.
            is_exhaustive: whether one of the branches is surely taken.
            default: number of the branch without arguments of the script, -1 for none of them; None where arguments do
                not decide.
        """
        results: list[dict[str, Variable | None]] = [] if is_exhaustive else [{}]
        before = self.frame
        calls = len(self.script.calls)
        self.frame = replace(before, is_open=True)
        self.nesting += 1
        for body in bodies:
            self.state.begin()
            try:
                body()
            except _ExitError:
                pass
            finally:
                results.append(self.state.rollback())
        self.nesting -= 1
        self.frame = before
        names = dict.fromkeys(name for each in results for name in each)
        for name in names:
            now = self.state.variables.get(name)
            self.state.work.spend(len(results))
            candidates = [each.get(name, now) for each in results]
            if default is not None:
                value = candidates[default if is_exhaustive else default + 1]
                if any(value != each for each in candidates):
                    value = marked(value, name)
            else:
                value = merged(self.state, name, candidates, spot.line, spot.file)
            if value is not None:
                self.state.put(name, value)
        if names or any(len(each.words) > 3 for each in self.script.calls[calls:]):
            noted = self.script.open_conditions if default is None else self.script.argument_conditions
            noted |= dict.fromkeys(each for each in conditions if each)
        return None

    def _if(self, node: Node) -> None:
        clauses: list[tuple[list[Node], list[Node]]] = [([], [])]
        is_condition = True
        for child in children_of(node):
            if child.type in ("elif_clause", "else_clause"):
                clauses.append(self._clause(child))
            elif child.type == "then":
                is_condition = False
            elif child.type not in ("if", "fi", ";", "\n", "comment"):
                clauses[0][0 if is_condition else 1].append(child)
        bodies: list[Callable[[], object]] = []
        conditions: list[str] = []
        is_exhaustive = False
        default: int | None = -1
        for tests, body in clauses:
            outcome: Outcome = True
            if tests:
                for test in tests:
                    outcome = self._run(test) if test.type in _STATEMENTS else None
                outcome = None if outcome == _RAN else outcome
            if outcome is False:
                continue
            run = partial(self._all, body)
            if outcome is True and not bodies:
                self.nesting += 1
                run()
                self.nesting -= 1
                return
            if default == -1:
                without = True if outcome is True else self._without_arguments(tests)
                default = None if without is None else len(bodies) if without else -1
            bodies.append(run)
            if outcome is True:
                is_exhaustive = True
                break
            conditions.append(self._between(tests))
        if bodies:
            self._open_branches(bodies, conditions, self._spot(node), is_exhaustive, default)

    @staticmethod
    def _clause(node: Node) -> tuple[list[Node], list[Node]]:
        tests: list[Node] = []
        body: list[Node] = []
        is_condition = node.type == "elif_clause"
        for child in children_of(node):
            if child.type == "then":
                is_condition = False
            elif child.type not in ("elif", "else", ";", "\n", "comment"):
                (tests if is_condition else body).append(child)
        return tests, body

    def _between(self, nodes: Sequence[Node]) -> str:
        text = self.source.text(nodes[0].start_byte, min(nodes[-1].end_byte, nodes[0].start_byte + 400))
        return self.state.holes.shown(" ".join(text.split()))[:100]

    def _all(self, nodes: Sequence[Node]) -> None:
        for each in nodes:
            if each.type in _STATEMENTS:
                self._run(each)
            elif each.type == "ERROR":
                self._statements(each)

    def _case(self, node: Node) -> None:
        subject: list[tuple[str, bool]] | None = None
        text: str | None = None
        is_subject = True
        bodies: list[Callable[[], object]] = []
        shown = ""
        is_exhaustive = False
        falls_through = False
        default: int | None = -1
        without: str | None = None
        for child in children_of(node):
            if child.type == "in":
                is_subject = False
            elif is_subject and child.type not in ("case", "\n", "comment"):
                raw = self._raw(child)
                subject = self.expander.operand(self.expander.pieces(raw.text), raw.spot)
                text = self._known(subject)
                self.state.has_no_arguments, before = True, self.state.has_no_arguments
                without = self._known(subject)
                self.state.has_no_arguments = before
                shown = f"case {self.state.holes.shown(raw.text)[:80]}"
            elif child.type == "case_item":
                patterns = [each for place, each in enumerate(child.children)
                            if child.field_name_for_child(place) == "value"]  # fmt: skip
                matches = True if falls_through else self._matches(text, patterns)
                falls_through = False
                if matches is False:
                    continue
                body = [
                    each
                    for place, each in enumerate(child.children)
                    if child.field_name_for_child(place) is None and each.type in _STATEMENTS
                ]
                falls_through = any(each.type == ";&" for each in child.children)
                run = partial(self._all, body)
                if matches is True and not bodies:
                    self.nesting += 1
                    run()
                    self.nesting -= 1
                    if falls_through:
                        continue
                    return
                if default == -1:
                    matches_without = self._matches(without, patterns)
                    default = None if matches_without is None else len(bodies) if matches_without else -1
                bodies.append(run)
                if matches is True:
                    is_exhaustive = True
                    break
        if bodies:
            default = None if without is None else default
            self._open_branches(bodies, [shown], self._spot(node), is_exhaustive, default)

    def _matches(self, text: str | None, patterns: Sequence[Node]) -> bool | None:
        outcome: bool | None = False
        for each in patterns:
            raw = self._raw(each)
            pieces = self.expander.operand(self.expander.pieces(raw.text), raw.spot)
            pattern = Pattern(pieces)
            if [part for part, _ in pieces] == ["*"]:
                return True
            if text is None or any(has_hole(part) for part, _ in pieces) or not pattern.can_match(text):
                outcome = None
            elif pattern.matches(text):
                return True
        return outcome

    def _known(self, pieces: Sequence[tuple[str, bool]]) -> str | None:
        """Returns the text of a condition's word, variables of the environment being empty; None where it is open."""
        text = "".join(part for part, _ in pieces)
        if not has_hole(text):
            return text
        for hole in self.state.holes.within(text):
            if hole.name:
                self.state.outside[hole.name] = None
            elif not (hole.is_argument and self.state.has_no_arguments):
                return None
        return self.state.holes.without_any(text)

    def _test(self, node: Node) -> bool | None:
        """Returns whether `[ ... ]` or `[[ ... ]]` holds, None where that is open."""
        is_double = node.children[0].type == "[["
        if node.children[0].type == "((":
            number = self.expander.number(self._inside(node, "((", "))"), self._spot(node))
            return None if number is None else number != 0
        text = self._inside(node, "[[", "]]") if is_double else self._inside(node, "[", "]")
        spot = self._spot(node)
        return self._condition([(raw, spot) for _, raw in split_words(text)], is_double)

    def _condition(self, words: Sequence[tuple[str, Spot]], is_double: bool) -> bool | None:
        operands: list[Operand | str] = []
        self.state.work.spend(5 * len(words))
        for raw, spot in words:
            is_first = not operands or isinstance(operands[-1], str)
            if raw in ("&&", "||", "(", ")") or (raw == "!" and is_first):
                operands.append(raw)
            elif raw in ("\\(", "\\)"):
                operands.append(raw[1])
            elif raw in ("-a", "-o") and not is_first and not is_double:
                operands.append("&&" if raw == "-a" else "||")
            elif raw != "\n":
                pieces = self.expander.operand(self.expander.pieces(raw), spot)
                operands.append((pieces, self._known(pieces)))
        return holds(operands, is_double)

    # Loops

    def _for(self, node: Node) -> None:
        spot = self._spot(node)
        body = next((each for each in node.children if each.type in ("do_group", "compound_statement")), None)
        if body is None:
            self._statements(node)
            return
        run = partial(self._run, body)
        if node.type == "c_style_for_statement":
            header = self.source.text(node.start_byte, body.start_byte)
            for name in dict.fromkeys(re.findall(r"([A-Za-z_]\w*)\s*(?:=[^=]|\+\+|--)", header)):
                self.state.put(name, self.state.hole(f"${name}", spot.line, spot.file))
            self._repeat(run, spot)
            return
        name = ""
        values: list[Value] | None = None
        for place, child in enumerate(node.children):
            field = node.field_name_for_child(place)
            if field == "variable":
                name = self.source.text(child.start_byte, child.end_byte)
            elif child.type == "in":
                values = self._listed(child.end_byte, body.start_byte, child.end_point.row)
        if values is None and self.state.arguments is not None:
            values = list(self.state.arguments)
        is_select = any(each.type == "select" for each in node.children[:1])
        if values is not None and len(values) == 1 and not is_select and not has_hole(text_of(values[0])):
            self.state.put(name, values[0])
            self.nesting += 1
            run()
            self.nesting -= 1
            return
        if values is not None and not values and not is_select:
            return
        shown = [self.state.holes.shown(text_of(each))[:20] for each in (values or [])[:5]]
        shown = [*shown[:4], "..."] if len(shown) > 4 else shown
        expression = f"${name} ({', '.join(shown)})" if len(shown) > 1 else f"${name}"
        self.state.put(name, self.state.hole(expression, spot.line, spot.file))
        self._repeat(run, spot)

    def _listed(self, start: int, end: int, row: int) -> list[Value]:
        """Returns the words of a list."""
        text = self.source.text(start, end)
        spot = self.source.spot(start, row)
        found: list[Value] = []
        rows, seen = 0, 0
        for place, raw in split_words(text):
            rows += text.count("\n", seen, place)
            seen = place
            if raw not in _ENDS:
                at = spot._replace(line=spot.at(rows))
                found += self.expander.fields(self.expander.pieces(raw), at)
        return found

    def _while(self, node: Node) -> None:
        parts = [each for each in children_of(node) if each.type not in ("while", "until", ";", "\n", "comment")]
        tests, body = parts[:-1], parts[-1:]
        is_until = node.children[0].type == "until"
        spot = self._spot(node)
        outcome: Outcome = None
        for test in tests:
            outcome = self._run(test) if test.type in _STATEMENTS else None
        if isinstance(outcome, bool) and outcome is is_until:
            return
        run = partial(self._all, [*tests, *body])
        if isinstance(outcome, bool):
            self._repeat(run, spot)
        else:
            condition = self._between(tests) if tests else ""
            without = self._without_arguments(tests)
            default = None if without is None else -1 if without is is_until else 0
            self._open_branches([partial(self._repeat, run, spot)], [condition], spot, False, default)

    def _repeat(self, run: Callable[[], object], spot: Spot) -> None:
        """Goes through the body of a loop that may run several times: what it changes each time has no value."""
        self.nesting += 1
        calls = len(self.script.calls)
        self.state.begin()
        try:
            run()
        except _ExitError:
            pass
        finally:
            after = self.state.rollback()
            self.nesting -= 1
        changed = {name: value for name, value in after.items()
                   if name in self.state.variables and not _equal(self.state.variables[name], value)}  # fmt: skip
        del self.script.calls[calls:]
        for name, value in changed.items():
            self.state.put(name, self._changing(name, self.state.variables[name], value, spot))
        self.nesting += 1
        try:
            run()
        except _ExitError:
            pass
        finally:
            self.nesting -= 1

    def _changing(self, name: str, before: Variable, after: Variable | None, spot: Spot) -> Variable:
        """Returns what a variable is at the beginning of any round of a loop."""
        hole = self.state.hole(f"${name} (changes in the loop on line {spot.line})", spot.line, spot.file)
        if isinstance(before, Array) or isinstance(after, Array):
            if isinstance(before, Array):
                number = max([each for each in before.items if isinstance(each, int)], default=-1) + 1
                return Array({**before.items, number: hole}, before.is_map)
            return Array({0: hole})
        first, second = text_of(before), text_of(after or ())
        if second.startswith(first) and (" " in second[len(first) :] or len(first) > 40):
            return (*before, Segment(" ", spot.line, spot.file), *hole)
        if second.endswith(first) and first and " " in second:
            return (*hole, Segment(" ", spot.line, spot.file), *before)
        return hole

    # Functions

    def _define(self, node: Node) -> None:
        name = next((self.source.text(each.start_byte, each.end_byte) for place, each in enumerate(node.children)
                     if node.field_name_for_child(place) == "name"), "")  # fmt: skip
        body = next((each for place, each in enumerate(node.children)
                     if node.field_name_for_child(place) == "body"), None)  # fmt: skip
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
            self._within(source, partial(self._run, body))
        finally:
            self.active.pop()
            self.nesting -= 1
            self.state.arguments = before

    # Commands

    def _redirected(self, node: Node) -> Outcome:
        outcome: Outcome = _RAN
        for place, child in enumerate(node.children):
            if node.field_name_for_child(place) == "body":
                outcome = self._run(child)
            elif child.type == "ERROR":
                self._statements(child)
        return outcome

    def _input(self, given: Input, wrappers: list[list[Word]]) -> None:
        """Goes through a here-document, which often is a script."""
        self.scripts += 1
        if self.scripts > MOST_SCRIPTS:
            return
        value = self._input_value(given)
        directives = {**(self.frame.directives or {}), **slurm.directives(text_of(value), self.source.name, value)}
        is_held = not any(_base(word.text) in _RUNNING for words in wrappers for word in words)
        self._nested(value, (*self.frame.wrappers, *wrappers), directives=directives, is_held=is_held)

    def _input_value(self, given: Input, *, joins_lines: bool = False) -> Value:
        """Returns the text of a here-document.

        Args:
            given: where it is.
            joins_lines: whether a backslash joins a line to the next one although its limiter is quoted.
        """
        text = self.source.whole[given.start : given.end].decode("utf-8", "replace")
        spot = self.source.spot(given.start, given.row)
        if given.strips_tabs:
            text = re.sub(r"^\t+", "", text, flags=re.MULTILINE)
        if given.is_quoted:
            lines = text.splitlines(keepends=True)
            self.state.work.spend(len(lines))
            if joins_lines:
                lines = [line.removesuffix("\\\n") for line in lines]
            return tuple(Segment(line, spot.at(row), spot.file) for row, line in enumerate(lines))
        return self.expander.text_value(text, spot)

    def _command(self, node: Node) -> Outcome:
        inputs = self.source.inputs_of(node)
        if inputs and (copied := _COPIED.fullmatch(self.source.text(node.start_byte, node.end_byte))):
            held = self.state.variables.get(copied[1]) if copied[2] else None
            value = self._input_value(inputs[0])
            self.state.put(copied[1], (*held, *value) if isinstance(held, tuple) else value)
            return True
        before = len(self.script.calls)
        self.reading = None
        outcome = self._words(node.start_byte, node.end_byte, node.start_point.row)
        for each in inputs:
            if self.reading is None:
                self._input(each, [call.words for call in self.script.calls[before : before + 1]])
            elif self.reading.name:
                self.state.put(self.reading.name, self._input_value(each, joins_lines=self.reading.joins_lines))
        return outcome

    def _simple(self, words: Sequence[Raw]) -> Outcome:
        """Goes through a command that is no compound: assignments, and what follows them."""
        if not words:
            return _RAN
        self.state.work.spend(10)
        place = 0
        while place < len(words) and _ASSIGNED.match(words[place].text) is not None:
            place += 1
        if place == len(words):
            for each in words:
                self._assign(each, is_exported=False)
            return True
        first = words[place].text
        if first in _DECLARING:
            self._declare(words[place:], first)
            return True
        if first in ("[", "[[", "test"):
            rest = [(each.text, each.spot) for each in words[place + 1 :] if each.text not in ("]", "]]")]
            return self._condition(rest, first == "[[")
        prefixes: dict[str, Value] = {}
        for each in words[:place]:
            match = _ASSIGNED.match(each.text)
            if match is not None:
                value = self.expander.value(self.expander.pieces(match[4]), each.spot)
                prefixes[match[1]] = value
                if not has_hole(text_of(value)):
                    self.script.exported[match[1]] = text_of(value)
        fields: list[Value] = []
        spots: list[Spot] = []
        for each in _without_redirections(words[place:]):
            given = self.expander.fields(self.expander.pieces(each.text), each.spot)
            fields += given
            spots += [each.spot] * len(given)
        if not fields:
            return _RAN
        self.state.work.add_words(len(fields))
        return self._named(fields, spots, prefixes)

    def _named(self, fields: list[Value], spots: list[Spot], prefixes: Mapping[str, Value]) -> Outcome:
        """Goes through a command whose words are known; the first says what it does."""
        name = text_of(fields[0])
        spot = spots[0]
        if name in ("true", ":"):
            return True
        if name == "false":
            return False
        if name in ("source", "."):
            self._include(fields[1:], spot)
        elif name == "unset":
            for each in fields[1:]:
                self.state.remove(text_of(each))
        elif name == "shift":
            self._shift(fields[1:])
        elif name == "set":
            texts = [text_of(each) for each in fields]
            if "--" in texts:
                self.state.arguments = tuple(fields[texts.index("--") + 1 :])
        elif name == "getopts" and self.state.has_no_arguments:
            return False
        elif name in ("read", "mapfile", "readarray", "getopts"):
            self._read_names(name, fields[1:], spot)
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
                raise _ExitError
        elif name == "eval":
            self._nested(_spaced(fields[1:]), self.frame.wrappers, is_isolated=False)
        elif name in self.functions:
            self._call_function(name, tuple(fields[1:]))
            return None
        else:
            self._record(fields, spots, prefixes)
        return _RAN

    def _record(self, fields: list[Value], spots: list[Spot], prefixes: Mapping[str, Value]) -> None:
        words = [self.state.holes.word(value, spot.line, spot.file) for value, spot in zip(fields, spots, strict=True)]
        frame = self.frame
        directives = frame.directives or {}
        self.script.calls.append(Call(words, frame.wrappers, directives, frame.is_open, frame.is_held))
        texts = [text_of(each) for each in fields]
        inner = _command_in(texts)
        if inner is not None and inner < len(fields):
            self._nested(fields[inner], (*frame.wrappers, words[: inner + 1]), arguments=tuple(fields[inner + 2 :]))
        else:
            for text, value in zip(texts, fields, strict=True):
                if any(sign in text for sign in " \n") and "--" in text:
                    self._held(_after_wrap(value), (*frame.wrappers, words))

    def _include(self, fields: Sequence[Value], spot: Spot) -> None:
        if not fields:
            return
        shown = self.state.holes.shown(text_of(fields[0]))
        name = shown.removeprefix("./")
        text = self.files.get(name)
        if text is not None and not has_hole(text_of(fields[0])):
            source = Source.of(without_holes(text).encode("utf-8", "replace"), name)
            arguments = self.state.arguments
            if len(fields) > 1:
                self.state.arguments = tuple(fields[1:])
            self.state.work.spend(10 + len(text) // 4)
            self._within(source, partial(self._parsed, source))
            self.state.arguments = arguments
            return
        if self.frame.is_held:
            return
        self.state.missing_files.append(MissingFile(shown[:200], spot.line))
        if not _ENVIRONMENTS.fullmatch(shown):
            self.state.may_be_set_elsewhere = True

    def _shift(self, fields: Sequence[Value]) -> None:
        if self.state.arguments is None:
            return
        text = text_of(fields[0]) if fields else "1"
        self.state.arguments = self.state.arguments[int(text) :] if re.fullmatch(r"\d{1,6}", text) else None

    def _read_names(self, command: str, fields: Sequence[Value], spot: Spot) -> None:
        texts = [text_of(each) for each in fields]
        names = [each for each in texts if _NAME.fullmatch(each)]
        if command == "getopts":
            names = names[-1:] if len(names) > 1 or (texts and not _NAME.fullmatch(texts[0])) else texts[1:2]
        options = "".join(each[1:] for each in texts if each.startswith("-"))
        reads_all = command == "read" and "-a" not in texts and "d" in options and "" in texts
        self.reading = _InputReading(names[0] if reads_all and len(names) == 1 else "", "r" not in options)
        for name in names or (["MAPFILE"] if command != "read" else ["REPLY"]):
            hole = self.state.hole(f"${name}", spot.line, spot.file, is_argument=command == "getopts")
            self.state.put(name, Array({0: hole}) if command in ("mapfile", "readarray") or "-a" in texts else hole)

    def _declare(self, words: Sequence[Raw], how: str) -> None:
        options = "".join(each.text[1:] for each in words[1:] if each.text.startswith("-"))
        is_exported = how == "export" or "x" in options
        for each in words[1:]:
            if each.text.startswith("-"):
                continue
            if _ASSIGNED.match(each.text) is not None:
                self._assign(each, is_exported=is_exported, is_map="A" in options, is_number="i" in options)
            elif _NAME.fullmatch(each.text):
                if is_exported:
                    self.state.exported[each.text] = None
                elif ("A" in options or "a" in options) and each.text not in self.state.variables:
                    self.state.put(each.text, Array({}, "A" in options))
                elif how == "local":
                    self.state.remove(each.text)
            elif "$" in each.text:
                for value in self.expander.fields(self.expander.pieces(each.text), each.spot):
                    text = text_of(value)
                    name, equals, _ = text.partition("=")
                    if equals and _NAME.fullmatch(name):
                        self._set(name, _after(value, len(name) + 1), is_exported)

    def _assign(self, word: Raw, *, is_exported: bool, is_map: bool = False, is_number: bool = False) -> None:
        found = _ASSIGNED.match(word.text)
        if found is None:
            return
        name, index, more, text = found[1], found[2], found[3], found[4]
        before = self.state.variables.get(name)
        if index is None and text.startswith("("):
            array = before if isinstance(before, Array) else Array({0: before} if before is not None and more else {})
            self.state.put(name, self._array(text, word.spot, array if more else Array({}, array.is_map or is_map)))
            return
        spot = word.spot
        value = self.expander.value(self.expander.pieces(text), spot)
        if index is not None:
            array = before if isinstance(before, Array) else Array({} if before is None else {0: before}, is_map)
            key = self.expander.key(index, array, spot)
            if key is not None:
                old = array.items.get(key, ()) if more else ()
                self.state.put(name, Array({**array.items, key: (*old, *value)}, array.is_map))
            else:
                self.state.put(name, Array({0: self.state.hole(f"${{{name}[@]}}", spot.line, spot.file)}))
            return
        if is_number and not more:
            number = self.expander.number(text_of(value), spot)
            value = (self.state.hole(f"${name}", spot.line, spot.file) if number is None
                     else (Segment(str(number), spot.line, spot.file),))  # fmt: skip
        if more and before is None:
            value = (*self._elsewhere(name, spot), *value)
        if more and isinstance(before, Array):
            self.state.put(name, Array({**before.items, 0: (*before.items.get(0, ()), *value)}, before.is_map))
            return
        if more and isinstance(before, tuple):
            self.state.work.copy(64 * len(before))
            value = (*before, *value)
        self._set(name, value, is_exported)

    def _elsewhere(self, name: str, spot: Spot) -> Value:
        """Returns what a variable may already hold that nothing in the script set before."""
        return self.state.hole(f"${name}", spot.line, spot.file) if self.state.may_be_set_elsewhere else ()

    def _set(self, name: str, value: Value, is_exported: bool) -> None:
        self.state.put(name, value)
        if is_exported:
            self.state.exported[name] = None

    def _array(self, text: str, spot: Spot, before: Array) -> Array:
        items = dict(before.items)
        self.state.work.spend(len(items) + len(text) // 4)
        following = max([each for each in items if isinstance(each, int)], default=-1) + 1
        inside = text[1:-1] if text.endswith(")") else text[1:]
        rows, seen = 0, 0
        for place, raw in split_words(inside):
            if raw in _ENDS:
                continue
            rows += inside.count("\n", seen, place)
            seen = place
            at = spot._replace(line=spot.at(rows))
            keyed = re.match(r"\[([^\]\n]{0,200})\]=(.*)", raw, re.DOTALL)
            if keyed is not None:
                key = self.expander.key(keyed[1], Array({}, before.is_map), at)
                if key is not None:
                    items[key] = self.expander.value(self.expander.pieces(keyed[2]), at)
                    following = key + 1 if isinstance(key, int) else following
                continue
            for value in self.expander.fields(self.expander.pieces(raw), at):
                items[following] = value
                following += 1
        return Array(items, before.is_map)


_TESTS: Final = frozenset({"test_command", "list", "negated_command", "compound_statement", "command"})
"""Conditions that arguments of the script may decide."""
_SIMPLE: Final = frozenset(
    {"command", "declaration_command", "unset_command", "variable_assignment", "variable_assignments"}
)
_STATEMENTS: Final = _SIMPLE | {
    "test_command", "list", "negated_command", "pipeline", "compound_statement", "subshell", "redirected_statement",
    "if_statement", "case_statement", "for_statement", "c_style_for_statement", "while_statement",
    "function_definition", "do_group", "program", "ERROR",
}  # fmt: skip


def _equal(left: Variable, right: Variable | None) -> bool:
    if isinstance(left, tuple) and isinstance(right, tuple):
        return text_of(left) == text_of(right)
    if isinstance(left, Array) and isinstance(right, Array):
        return [*map(text_of, left.items.values())] == [*map(text_of, right.items.values())]
    return False


def _base(text: str) -> str:
    return text.rpartition("/")[2]


def _command_in(texts: Sequence[str]) -> int | None:
    """Returns the place of the script that a command gives a shell behind `-c`."""
    for place, text in enumerate(texts):
        if _base(text) in _SHELLS:
            for at in range(place + 1, len(texts)):
                if re.fullmatch(r"-[a-z]*c", texts[at]):
                    return at + 1
                if not texts[at].startswith("-") and texts[at] != "pipefail":
                    break
    return None


def _after(value: Value, length: int) -> Value:
    found: list[Segment] = []
    for each in value:
        cut = min(length, len(each.text))
        length -= cut
        if each.text[cut:]:
            found.append(each._replace(text=each.text[cut:]))
    return tuple(found)


def _after_wrap(value: Value) -> Value:
    return _after(value, len("--wrap=")) if text_of(value).startswith("--wrap=") else value


def _spaced(values: Sequence[Value]) -> Value:
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


def read_script(text: str, name: str = "", files: Mapping[str, str] | None = None) -> Script:
    """Returns the commands and variables of a script of the shell.

    Args:
        text: of the script.
        name: of its file.
        files: texts of other files by the name with which the script sources them; all others are not at hand.

    Raises `LaunchError` for a script that takes more work, text or depth than launch scripts do.
    """
    return _Evaluator(name, files or {}).read(text)
