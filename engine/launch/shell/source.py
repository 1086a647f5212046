"""Text of a script under parsing, and its lines in the file."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from engine.launch.shell.expansion import ScriptSpot
from engine.launch.shell.inputs import HereDocument, take_inputs
from engine.launch.shell.syntax import Node
from engine.launch.shell.values import Value

__all__ = ["Raw", "ScriptSource"]


@dataclass(frozen=True, slots=True)
class Raw:
    """A word as written, with its place."""

    text: str
    spot: ScriptSpot


@dataclass(frozen=True, slots=True)
class ScriptSource:
    """Text under parsing and its origin."""

    data: bytes
    name: str
    starts: tuple[int, ...] = ()
    """Places at which segments of a value begin; empty for a file."""
    segments: Value = ()
    inputs: tuple[HereDocument, ...] = ()
    """Here-documents, in their order; `data` is without them."""
    whole: bytes = b""
    """The text with its here-documents."""

    @classmethod
    def of(cls, data: bytes, name: str, segments: Value = ()) -> ScriptSource:
        """Returns a text ready to be parsed."""
        starts: list[int] = []
        place = 0
        for segment in segments:
            starts.append(place)
            place += len(segment.text.encode("utf-8", "replace"))
        rest, inputs = take_inputs(data)
        return cls(rest, name, tuple(starts), segments, tuple(inputs), data)

    def inputs_of(self, node: Node) -> list[HereDocument]:
        """Returns the here-documents of a command: their operators are within it, or the next thing behind it."""
        if not self.inputs:
            return []
        found: list[HereDocument] = []
        first = bisect_left(self.inputs, node.start_byte, key=lambda each: each.place)
        for each in self.inputs[first : first + 20]:
            if each.place >= node.end_byte and self.data[node.end_byte : each.place].strip(b" \t"):
                break
            found.append(each)
        return found

    def spot(self, place: int, row: int) -> ScriptSpot:
        """Returns where a place of the text was written."""
        if not self.segments:
            return ScriptSpot(row + 1, self.name)
        segment = self.segments[max(0, bisect_right(self.starts, place) - 1)]
        return ScriptSpot(segment.line, segment.file, counts_rows=False)

    def text(self, start: int, end: int) -> str:
        """Returns a part of the text."""
        return self.data[start:end].decode("utf-8", "replace")
