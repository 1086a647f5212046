"""Scenarios: a model, a system and the limits of a space, as one self-contained document."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import hardware
import models
from engine.inputs import ModelLike, SystemLike, model_of, system_of
from engine.limits import LimitError, normalise
from engine.space import Space, SpaceError, checked_size
from hardware import System
from models import Model
from models.documents import DocumentError, check_format, shown

__all__ = ["FORMAT", "PHYSICS", "Scenario", "ScenarioError"]

FORMAT = "shardscape-scenario/1"

PHYSICS = "calculon-0.1.0/1"
"""Which cost model results come from. Raised whenever a formula changes, so that stored results are not reused."""

_KEYS = ("format", "model", "system", "num_procs", "max_batch_size", "datatype", "limits")


class ScenarioError(DocumentError):
    """A scenario document that cannot be read; the message names the key and what is accepted."""


@dataclass(frozen=True)
class Scenario:
    """What an exploration explores. `limits` are normalised (see `engine.limits`)."""

    model: Model
    system: System
    num_procs: int
    max_batch_size: int
    datatype: str
    limits: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @classmethod
    def of(
        cls,
        model: ModelLike,
        system: SystemLike,
        *,
        num_procs: int,
        max_batch_size: int,
        datatype: str,
        limits: Mapping[str, Any] | None = None,
    ) -> Scenario:
        """A scenario from a model and system by name, path or object.

        Raises `models.ModelFileError`, `hardware.SystemFileError`, `engine.limits.LimitError`, or
        `engine.space.SpaceError` for a size that none has; how they go together is checked when its space is made.
        """
        if not isinstance(datatype, str):
            raise SpaceError(f"datatype is {shown(datatype)}; it must be a text such as float16.")
        return cls(
            model_of(model),
            system_of(system),
            checked_size("num_procs", num_procs),
            checked_size("max_batch_size", max_batch_size),
            datatype,
            normalise(limits),
        )

    @cached_property
    def space(self) -> Space:
        """The space of the scenario. Raises `engine.space.SpaceError`."""
        return Space(
            self.model,
            self.system,
            num_procs=self.num_procs,
            max_batch_size=self.max_batch_size,
            datatype=self.datatype,
            limits=self.limits,
        )

    @cached_property
    def key(self) -> str:
        """Hash of everything that results depend on, and of nothing else: names and sources do not count."""
        content = {
            "physics": PHYSICS,
            "model": models.to_calculon(self.model),
            "system": hardware.to_calculon(self.system),
            "num_procs": self.num_procs,
            "max_batch_size": self.max_batch_size,
            "datatype": self.datatype,
            "limits": dict(self.limits),
        }
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def to_document(self) -> dict[str, Any]:
        """The scenario as a JSON document that contains its model and system whole."""
        return {
            "format": FORMAT,
            "model": models.to_document(self.model),
            "system": hardware.to_document(self.system),
            "num_procs": self.num_procs,
            "max_batch_size": self.max_batch_size,
            "datatype": self.datatype,
            "limits": dict(self.limits),
        }

    @classmethod
    def from_document(cls, document: Any, where: str = "the scenario") -> Scenario:
        """The scenario of a parsed JSON document; `where` names it in messages.

        Raises `ScenarioError`, `models.ModelFileError` or `hardware.SystemFileError`.
        """
        if not isinstance(document, Mapping):
            raise ScenarioError(f"{where} must be a JSON object, not {type(document).__name__}.")
        check_format(document, where, FORMAT, "scenario", ScenarioError)
        unknown = sorted(shown(key) for key in document if key not in _KEYS)
        missing = [key for key in _KEYS if key not in document]
        if unknown or missing:
            more = f" and {len(unknown) - 3:,} more" if len(unknown) > 3 else ""
            wrong = f"unknown keys {', '.join(unknown[:3])}{more}" if unknown else f"no {', '.join(missing)}"
            raise ScenarioError(f"{where} has {wrong}; its keys are {', '.join(_KEYS)}.")
        model = models.load_document(document["model"], f"{where}, model")
        system = hardware.load_document(document["system"], f"{where}, system")
        try:
            return cls.of(model, system, **{name: document[name] for name in _KEYS[3:]})
        except (LimitError, SpaceError) as problem:
            raise ScenarioError(f"{where}: {problem}") from None
