"""A whole comparison as one document: its scenarios in order, and the view of the page that compares them.

    {"format": "shardscape-comparison/1", "scenarios": [A, B, ...], "changes": {"B": {"hbm_bandwidth": 6144.0}},
     "view": {"compare_metric": "total_time"}}

Every scenario is whole, as `engine.Scenario` writes it, so that the document means the same wherever it is opened.
`changes` says of which of them the page tells by what differs from A; the scenario itself holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from engine import Scenario
from models.documents import Accepts, DocumentError, Number, Text, load_versioned

__all__ = ["FORMAT", "LETTERS", "VIEW", "Comparison", "ComparisonError"]

FORMAT: Final = "shardscape-comparison/1"
LETTERS: Final = "ABCD"
"""What the scenarios are called, in order; there are at most that many."""

_LONGEST_VALUE: Final = 200
"""Characters of a parameter of the view; those that mean anything have some twenty."""

_Parameter = Annotated[str | None, Text(_LONGEST_VALUE, shortest=1)]
_Changes = Annotated[
    dict[Annotated[str, Text(40, shortest=1)], Annotated[float, Number(0, 1e30)]],
    Field(min_length=1, max_length=40), Accepts("changes to A such as {\"procs\": 64}"),
]  # fmt: skip


class ComparisonError(DocumentError):
    """A comparison document that cannot be read; the message names the key and what is accepted."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class _Others(_Strict):
    """What makes scenarios differ from A."""

    B: _Changes | None = None
    C: _Changes | None = None
    D: _Changes | None = None


class _View(_Strict):
    """What the page reads from a link beside the scenarios; what the values may be it knows itself."""

    compare_metric: _Parameter = None
    compare_domain: _Parameter = None
    compare_pair: _Parameter = None
    cell: _Parameter = None
    id: _Parameter = None


class _Document(_Strict):
    scenarios: Annotated[
        list[Any], Accepts("a list of 2 to 4 scenarios"), Field(min_length=2, max_length=len(LETTERS))
    ]  # fmt: skip
    changes: _Others = _Others()
    view: _View = _View()


VIEW: Final = tuple(_View.model_fields)
"""Parameters of a link to the page that are kept."""


@dataclass(frozen=True)
class Comparison:
    """Two to four scenarios to be seen side by side."""

    scenarios: tuple[Scenario, ...]
    changes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Letter of a scenario -> what makes it differ from A, where that is how it is told of."""
    view: Mapping[str, str] = field(default_factory=dict)
    """Parameters of the link beside the scenarios: metric, colours, pair, selection."""

    def to_document(self) -> dict[str, Any]:
        """Returns the comparison as a JSON document that contains its scenarios whole."""
        return {
            "format": FORMAT,
            "scenarios": [scenario.to_document() for scenario in self.scenarios],
            "changes": {letter: dict(changes) for letter, changes in self.changes.items()},
            "view": {name: self.view[name] for name in VIEW if 0 < len(self.view.get(name, "")) <= _LONGEST_VALUE},
        }

    @classmethod
    def from_document(cls, document: Any, where: str = "the comparison") -> Comparison:
        """Returns the comparison of a parsed JSON document; `where` names it in messages.

        Raises `ComparisonError`, or what `engine.Scenario.from_document` raises.
        """
        found = load_versioned(document, where, FORMAT, "comparison", _Document, ComparisonError)
        scenarios = tuple(
            Scenario.from_document(each, f"{where}, scenario {letter}")
            for letter, each in zip(LETTERS, found.scenarios, strict=False)
        )
        changes = found.changes.model_dump(exclude_none=True)
        for letter in changes:
            if letter not in LETTERS[: len(scenarios)]:
                raise ComparisonError(
                    f"{where} has changes of scenario {letter}, but scenarios {LETTERS[0]} to "
                    f"{LETTERS[len(scenarios) - 1]} only."
                )
        return cls(scenarios, changes, found.view.model_dump(exclude_none=True))
