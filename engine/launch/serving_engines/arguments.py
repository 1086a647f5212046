"""Arguments of serving engines as data: names, kinds, short names and former names of one released version."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Final, Literal

from models.documents import near_matches

__all__ = ["ArgumentKind", "ArgumentSnapshot", "snapshot_of"]

ArgumentKind = Literal["flag", "integer", "number", "word", "words", "json"]
_SNAPSHOTS: Final = ("vllm", "sglang", "trtllm", "trtllm_yaml", "dynamo_vllm", "dynamo_sglang", "dynamo_trtllm")


@dataclass(frozen=True)
class ArgumentSnapshot:
    """Arguments that one version of a program accepts; names have no leading dashes."""

    version: str
    source: str
    kinds: Mapping[str, ArgumentKind]
    aliases: Mapping[str, str]
    """Full name by short name."""
    deprecated: Mapping[str, str] = field(default_factory=dict)
    """New name by name that is still accepted."""
    gone: Mapping[str, str] = field(default_factory=dict)
    """New name by name of an earlier version; empty where nothing replaces it."""

    def resolve(self, name: str) -> str | None:
        """Return the full name of an argument; None for an unknown or ambiguous one.

        Args:
            name: without dashes in front; may be an alias or, as `argparse` allows, a beginning of one name only.
        """
        if name in self.kinds:
            return name
        if name in self.aliases:
            return self.aliases[name]
        if name in self.gone or len(name) < 2:
            return None
        longer = {full for full in self.kinds if full.startswith(name)}
        longer |= {full for short, full in self.aliases.items() if short.startswith(name)}
        return longer.pop() if len(longer) == 1 else None

    def nearest(self, name: str) -> str | None:
        """Return the accepted name that is most like an unknown one; None where none is alike."""
        near = near_matches(name, [*self.kinds, *self.aliases])
        return near[0] if near else None

    def with_others(self, other: ArgumentSnapshot) -> ArgumentSnapshot:
        """Return the arguments of a program that also accepts another one's.

        Args:
            other: the engine behind a wrapper; names of the wrapper count first.
        """
        return ArgumentSnapshot(
            self.version,
            self.source,
            {**other.kinds, **self.kinds},
            {**other.aliases, **self.aliases},
            {**other.deprecated, **self.deprecated},
            {**other.gone, **self.gone},
        )


@cache
def snapshot_of(name: str) -> ArgumentSnapshot:
    """Return the arguments of a program.

    Args:
        name: `vllm`, `sglang`, `trtllm` (command line), `trtllm_yaml`, or `dynamo_` and an engine for its worker.

    Raises `KeyError` for another name.
    """
    if name not in _SNAPSHOTS:
        raise KeyError(name)
    text = (files(__package__) / "snapshots" / f"{name}.json").read_text("utf-8")
    found = json.loads(text)
    made = ArgumentSnapshot(
        found["version"],
        found["source"],
        found["arguments"],
        found["aliases"],
        found.get("deprecated", {}),
        found["gone"],
    )
    if name in ("dynamo_vllm", "dynamo_sglang"):
        return made.with_others(snapshot_of(name.removeprefix("dynamo_")))
    return made
