"""Conditions, branches and loops of a script.

A branch counts if the script takes it without input from outside. If files, programs or arguments decide, all branches
run and their variables are merged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from engine.launch.shell.branches import mark_default, merge_values
from engine.launch.shell.expansion import ScriptSpot
from engine.launch.shell.state import Variable
from engine.launch.shell.syntax import STATEMENTS, Node, children_of
from engine.launch.shell.values import Array, Segment, Value, has_hole, text_of
from engine.launch.shell.walk import RAN, Outcome, ScriptEndError, ScriptWalk
from engine.launch.shell.words import COMMAND_ENDS, split_words

__all__ = ["ControlFlow"]

_ARGUMENT_TESTS: Final = frozenset({"test_command", "list", "negated_command", "compound_statement", "command"})
"""Conditions that arguments of the script may decide."""


class ControlFlow(ScriptWalk):
    """Runs lists, conditions, branches and loops."""

    def run_list(self, node: Node) -> Outcome:
        """Run commands joined by `&&` and `||`; return the outcome of the last."""
        chain: list[tuple[str, Node]] = []
        while node.type == "list" and len(node.children) >= 3:
            parts = [each for each in node.children if each.type not in ("comment", "\n")]
            chain.append((parts[1].type, parts[-1]))
            node = parts[0]
        outcome = self.run_statement(node)
        condition = node
        default = self._without_arguments([node]) if outcome is None else None
        for sign, right in reversed(chain):
            self.state.work.spend(2)
            if right.type not in STATEMENTS:
                continue
            if outcome is None or (outcome == RAN and sign == "||"):
                outcome = self._run_open_branches(
                    [partial(self.run_statement, right)],
                    [self._shown_text([condition])],
                    self.spot_of(right),
                    False,
                    None if default is None else 0 if default == (sign == "&&") else -1,
                )
                default = default if default == (sign == "||") else None
            elif (outcome is False) == (sign == "||"):
                outcome = self.run_statement(right)
                default = self._without_arguments([right]) if outcome is None else None
            condition = right if right.type == "test_command" else condition
        return outcome

    def _without_arguments(self, tests: Sequence[Node]) -> bool | None:
        """Return the outcome of a condition for a script without arguments, None if arguments do not decide it."""
        if self.state.has_no_arguments or any(each.type not in _ARGUMENT_TESTS for each in tests):
            return None
        self.state.has_no_arguments = True
        try:
            outcome: Outcome = None
            for test in tests:
                outcome = self.run_statement(test)
        finally:
            self.state.has_no_arguments = False
        return outcome if isinstance(outcome, bool) else None

    def _run_open_branches(
        self,
        bodies: Sequence[Callable[[], object]],
        conditions: Sequence[str],
        spot: ScriptSpot,
        is_exhaustive: bool,
        default: int | None = None,
    ) -> Outcome:
        """Run branches of which the taken one is unknown, and merge their variables.

        Args:
            bodies: branches, in their order.
            conditions: text of each condition.
            spot: place of the statement.
            is_exhaustive: whether one of the branches is certainly taken.
            default: number of the branch that runs without arguments, -1 for no branch; None if arguments do not
                decide.
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
            except ScriptEndError:
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
                    value = mark_default(value, name)
            else:
                value = merge_values(self.state, name, candidates, spot.line, spot.file)
            if value is not None:
                self.state.put(name, value)
        if names or any(len(each.words) > 3 for each in self.script.calls[calls:]):
            noted = self.script.open_conditions if default is None else self.script.argument_conditions
            noted |= dict.fromkeys(each for each in conditions if each)
        return None

    def run_if(self, node: Node) -> None:
        """Run the branch of an `if` that is taken, or all that may be taken."""
        clauses: list[tuple[list[Node], list[Node]]] = [([], [])]
        is_condition = True
        for child in children_of(node):
            if child.type in ("elif_clause", "else_clause"):
                clauses.append(self._split_clause(child))
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
                    outcome = self.run_statement(test) if test.type in STATEMENTS else None
                outcome = None if outcome == RAN else outcome
            if outcome is False:
                continue
            run = partial(self._run_all, body)
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
            conditions.append(self._shown_text(tests))
        if bodies:
            self._run_open_branches(bodies, conditions, self.spot_of(node), is_exhaustive, default)

    @staticmethod
    def _split_clause(node: Node) -> tuple[list[Node], list[Node]]:
        tests: list[Node] = []
        body: list[Node] = []
        is_condition = node.type == "elif_clause"
        for child in children_of(node):
            if child.type == "then":
                is_condition = False
            elif child.type not in ("elif", "else", ";", "\n", "comment"):
                (tests if is_condition else body).append(child)
        return tests, body

    def _shown_text(self, nodes: Sequence[Node]) -> str:
        text = self.source.text(nodes[0].start_byte, min(nodes[-1].end_byte, nodes[0].start_byte + 400))
        return self.state.holes.shown(" ".join(text.split()))[:100]

    def _run_all(self, nodes: Sequence[Node]) -> None:
        for each in nodes:
            if each.type in STATEMENTS:
                self.run_statement(each)
            elif each.type == "ERROR":
                self.run_statements(each)

    def run_case(self, node: Node) -> None:
        """Run the branch of a `case` that is taken, or all that may be taken."""
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
                raw = self.raw_word(child)
                subject = self.expander.operand(self.expander.pieces(raw.text), raw.spot)
                text = self.conditions.known_text(subject)
                self.state.has_no_arguments, before = True, self.state.has_no_arguments
                without = self.conditions.known_text(subject)
                self.state.has_no_arguments = before
                shown = f"case {self.state.holes.shown(raw.text)[:80]}"
            elif child.type == "case_item":
                patterns = [
                    self.raw_word(each)
                    for place, each in enumerate(child.children)
                    if child.field_name_for_child(place) == "value"
                ]
                matches = True if falls_through else self.conditions.matches_any(text, patterns)
                falls_through = False
                if matches is False:
                    continue
                body = [
                    each
                    for place, each in enumerate(child.children)
                    if child.field_name_for_child(place) is None and each.type in STATEMENTS
                ]
                falls_through = any(each.type == ";&" for each in child.children)
                run = partial(self._run_all, body)
                if matches is True and not bodies:
                    self.nesting += 1
                    run()
                    self.nesting -= 1
                    if falls_through:
                        continue
                    return
                if default == -1:
                    matches_without = self.conditions.matches_any(without, patterns)
                    default = None if matches_without is None else len(bodies) if matches_without else -1
                bodies.append(run)
                if matches is True:
                    is_exhaustive = True
                    break
        if bodies:
            default = None if without is None else default
            self._run_open_branches(bodies, [shown], self.spot_of(node), is_exhaustive, default)

    def run_test(self, node: Node) -> bool | None:
        """Return whether `[ ... ]`, `[[ ... ]]` or `(( ... ))` holds, None if that is open."""
        is_double = node.children[0].type == "[["
        if node.children[0].type == "((":
            number = self.expander.number(self.text_inside(node, "((", "))"), self.spot_of(node))
            return None if number is None else number != 0
        text = self.text_inside(node, "[[", "]]") if is_double else self.text_inside(node, "[", "]")
        spot = self.spot_of(node)
        return self.conditions.evaluate_words([(raw, spot) for _, raw in split_words(text)], is_double)

    def run_for(self, node: Node) -> None:
        """Run the body of a `for` or `select` loop."""
        spot = self.spot_of(node)
        body = next((each for each in node.children if each.type in ("do_group", "compound_statement")), None)
        if body is None:
            self.run_statements(node)
            return
        run = partial(self.run_statement, body)
        if node.type == "c_style_for_statement":
            header = self.source.text(node.start_byte, body.start_byte)
            for name in dict.fromkeys(re.findall(r"([A-Za-z_]\w*)\s*(?:=[^=]|\+\+|--)", header)):
                self.state.put(name, self.state.hole(f"${name}", spot.line, spot.file))
            self._run_repeated(run, spot)
            return
        name = ""
        values: list[Value] | None = None
        for place, child in enumerate(node.children):
            field = node.field_name_for_child(place)
            if field == "variable":
                name = self.source.text(child.start_byte, child.end_byte)
            elif child.type == "in":
                values = self._list_values(child.end_byte, body.start_byte, child.end_point.row)
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
        self._run_repeated(run, spot)

    def _list_values(self, start: int, end: int, row: int) -> list[Value]:
        """Return the words of a `for` list."""
        text = self.source.text(start, end)
        spot = self.source.spot(start, row)
        found: list[Value] = []
        rows, seen = 0, 0
        for place, raw in split_words(text):
            rows += text.count("\n", seen, place)
            seen = place
            if raw not in COMMAND_ENDS:
                at = spot._replace(line=spot.at(rows))
                found += self.expander.fields(self.expander.pieces(raw), at)
        return found

    def run_while(self, node: Node) -> None:
        """Run the body of a `while` or `until` loop if it may run."""
        parts = [each for each in children_of(node) if each.type not in ("while", "until", ";", "\n", "comment")]
        tests, body = parts[:-1], parts[-1:]
        is_until = node.children[0].type == "until"
        spot = self.spot_of(node)
        outcome: Outcome = None
        for test in tests:
            outcome = self.run_statement(test) if test.type in STATEMENTS else None
        if isinstance(outcome, bool) and outcome is is_until:
            return
        run = partial(self._run_all, [*tests, *body])
        if isinstance(outcome, bool):
            self._run_repeated(run, spot)
        else:
            condition = self._shown_text(tests) if tests else ""
            without = self._without_arguments(tests)
            default = None if without is None else -1 if without is is_until else 0
            self._run_open_branches([partial(self._run_repeated, run, spot)], [condition], spot, False, default)

    def _run_repeated(self, run: Callable[[], object], spot: ScriptSpot) -> None:
        """Run the body of a loop that may run several times: variables that it changes get no value."""
        self.nesting += 1
        calls = len(self.script.calls)
        self.state.begin()
        try:
            run()
        except ScriptEndError:
            pass
        finally:
            after = self.state.rollback()
            self.nesting -= 1
        changed = {
            name: value
            for name, value in after.items()
            if name in self.state.variables and not _is_equal(self.state.variables[name], value)
        }
        del self.script.calls[calls:]
        for name, value in changed.items():
            self.state.put(name, self._changing_value(name, self.state.variables[name], value, spot))
        self.nesting += 1
        try:
            run()
        except ScriptEndError:
            pass
        finally:
            self.nesting -= 1

    def _changing_value(self, name: str, before: Variable, after: Variable | None, spot: ScriptSpot) -> Variable:
        """Return the value of a variable at the beginning of any round of a loop."""
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


def _is_equal(left: Variable, right: Variable | None) -> bool:
    if isinstance(left, tuple) and isinstance(right, tuple):
        return text_of(left) == text_of(right)
    if isinstance(left, Array) and isinstance(right, Array):
        return [*map(text_of, left.items.values())] == [*map(text_of, right.items.values())]
    return False
