"""A whole comparison as one document: its scenarios in order, and the view of the page that compares them.

{"format": "shardscape-comparison/1", "scenarios": [A, B, ...], "changes": {"B": {"hbm_bandwidth": 6144.0}}, "view":
{"compare_metric": "total_time"}}

Every scenario is whole, in the form of `engine.Scenario`, so that the document means the same everywhere. `changes`
lists the scenarios that the page describes by their differences from A; the scenario itself is decisive.
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
"""Letters of the scenarios, in order; also the largest number of scenarios."""

_LONGEST_VALUE: Final = 200
"""Longest value of a view's parameter [characters]; real ones have some twenty."""

_Parameter = Annotated[str | None, Text(_LONGEST_VALUE, shortest=1)]
_Changes = Annotated[
    dict[Annotated[str, Text(40, shortest=1)], Annotated[float, Number(0, 1e30)]],
    Field(min_length=1, max_length=40),
    Accepts('changes to A such as {"procs": 64}'),
]


class ComparisonError(DocumentError):
    """An unreadable comparison document; the message names the key and the accepted values."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class _Others(_Strict):
    """Differences of scenarios from A."""

    B: _Changes | None = None
    C: _Changes | None = None
    D: _Changes | None = None


class _View(_Strict):
    """Parameters of the compare page's link besides the scenarios; the page checks the values."""

    compare_metric: _Parameter = None
    compare_domain: _Parameter = None
    compare_pair: _Parameter = None
    cell: _Parameter = None
    id: _Parameter = None
    figures: _Parameter = None


class _Document(_Strict):
    scenarios: Annotated[list[Any], Accepts("a list of 2 to 4 scenarios"), Field(min_length=2, max_length=len(LETTERS))]
    changes: _Others = _Others()
    view: _View = _View()


VIEW: Final = tuple(_View.model_fields)
"""Parameters of a link to the page that are kept."""


@dataclass(frozen=True)
class Comparison:
    """Two to four scenarios to be seen side by side."""

    scenarios: tuple[Scenario, ...]
    changes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Letter of a scenario -> its differences from A, for scenarios that are described by them."""
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
