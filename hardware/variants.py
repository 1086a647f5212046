"""Other interconnects of library systems: each is a few changes to a system, kept in one file for all of them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import resources
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hardware.editing import SystemFileError, edited
from hardware.schema import Line, Lines, System
from models.documents import Text, parse_json, sentence

SEPARATOR = "@"


class SystemVariant(BaseModel):
    """Variant of a system: its changes and their source."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    title: Annotated[str, Text(200, shortest=1)]
    """The whole title of the variant."""
    source: Annotated[str, Text(2_000, shortest=1)]
    """Source of the changed values."""
    changes: Annotated[dict[str, Any], Field(min_length=1, max_length=50)]
    """New values by path."""
    unverified_fields: Lines = ()
    """Changed values that were not seen in the source."""
    notes: Annotated[tuple[Line, ...], Field(strict=False, max_length=20)] = ()

    def of(self, system: System, name: str) -> System:
        """Returns the variant of a system. Raises `SystemFileError` where a change does not fit it."""
        changed = edited(system, self.changes, name=name, title=self.title)
        values = {
            "source": f"{system.source}; {', '.join(self.changes)}: {self.source}",
            "unverified_fields": (*changed.unverified_fields, *self.unverified_fields),
            "notes": (*changed.notes, *self.notes),
        }
        return changed.model_copy(update=values)


@functools.cache
def variants() -> Mapping[str, Mapping[str, SystemVariant]]:
    """Returns all variants of library systems, by system and by the part of the name after the @."""
    file = resources.files("hardware") / "variants.json"
    content = parse_json(file.read_bytes(), file.name, "variant", SystemFileError)
    assert isinstance(content, dict)
    try:
        return {
            system: {short: SystemVariant.model_validate(each) for short, each in entries.items()}
            for system, entries in content.items()
        }
    except ValidationError as problem:
        raise SystemFileError(sentence(problem, SystemVariant, file.name)) from None
