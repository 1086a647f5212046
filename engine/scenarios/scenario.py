"""Scenarios: a model, a system and the limits of a space, as one self-contained document."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import pandas as pd

import hardware
import models
from engine.columns import stored_of
from engine.cost_models.calculon.evaluation import evaluate
from engine.cost_models.calibrated import accelerator_of, library_calibration, model_shapes, parameters_of
from engine.cost_models.names import PHYSICS, CostModelError, chosen_cost_model
from engine.cost_models.registry import space_of
from engine.executions.limits import LimitError, normalise
from engine.scenarios.inputs import ModelLike, SystemLike, model_of, system_of
from engine.space.space import Space, SpaceError, checked_size
from hardware import Calibration, System
from models import Model
from models.documents import DocumentError, check_format, shown
from models.token_flops import token_flops

__all__ = ["FORMAT", "Scenario", "ScenarioError"]

FORMAT = "shardscape-scenario/1"

_KEYS = ("format", "model", "system", "num_procs", "max_batch_size", "datatype", "limits")
_OPTIONAL = ("cost_model", "calibration")


class ScenarioError(DocumentError):
    """A scenario document that cannot be read; the message names the key and what is accepted."""


@dataclass(frozen=True)
class Scenario:
    """What an exploration explores, and with which cost model. `limits` are normalised (see
    `engine.executions.limits`).

    `calibration` None is the library's, for the calibrated cost model.
    """

    model: Model
    system: System
    num_procs: int
    max_batch_size: int
    datatype: str
    limits: Mapping[str, Any] = field(default_factory=dict, hash=False)
    cost_model: str = "calculon"
    calibration: Calibration | None = None

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
        cost_model: str | None = None,
        calibration: Calibration | None = None,
    ) -> Scenario:
        """A scenario from a model and system by name, path or object; the cost model as for `engine.explore`.

        Raises `models.ModelFileError`, `hardware.SystemFileError`, `engine.executions.limits.LimitError`, or
        `engine.space.space.SpaceError` for a size that none has, or `engine.CostModelError`; how they go together is
        checked when its space is made.
        """
        if not isinstance(datatype, str):
            raise SpaceError(f"The datatype is {shown(datatype)}; it must be a text such as float16.")
        found = system_of(system)
        name = chosen_cost_model(cost_model, found, calibration)
        return cls(
            model_of(model),
            found,
            checked_size("num_procs", num_procs),
            checked_size("max_batch_size", max_batch_size),
            datatype,
            normalise(limits, name),
            name,
            calibration,
        )

    @cached_property
    def space(self) -> Space:
        """The space of the scenario. Raises `engine.space.space.SpaceError`."""
        return space_of(
            self.cost_model,
            self.model,
            self.system,
            num_procs=self.num_procs,
            max_batch_size=self.max_batch_size,
            datatype=self.datatype,
            limits=self.limits,
            calibration=self.calibration,
        )

    @property
    def physics(self) -> str:
        """The version of the cost model, with the calibration where it has one."""
        version = PHYSICS[self.cost_model]
        return version if self.cost_model == "calculon" else f"{version}, {self.used_calibration.name}"

    @property
    def used_calibration(self) -> Calibration:
        """The calibration whose values the calibrated cost model uses."""
        return self.calibration or library_calibration()

    def evaluate(self, executions: pd.DataFrame) -> pd.DataFrame:
        """Every statistic of executions, by the scenario's cost model; see `engine.evaluate`."""
        return evaluate(
            self.model, self.system, executions, cost_model=self.cost_model, calibration=self.calibration
        )

    @cached_property
    def key(self) -> str:
        """Hash of everything that results depend on, and of nothing else: names and sources do not count."""
        content = {
            "physics": PHYSICS[self.cost_model],
            **self._shapes(),
            "num_procs": self.num_procs,
            "max_batch_size": self.max_batch_size,
            "datatype": self.datatype,
            "limits": dict(self.limits),
        }
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def _shapes(self) -> dict[str, Any]:
        """What the cost model reads of model, system and calibration."""
        if self.cost_model == "calculon":
            return {"model": models.to_calculon(self.model), "system": hardware.to_calculon(self.system)}
        memory = (self.system.mem1, self.system.mem2)
        shapes = model_shapes(self.model)
        return {
            "model": {item.name: float(getattr(shapes, item.name)) for item in fields(shapes)},
            "flops": token_flops(self.model).model(),
            # As text, because some are infinite or not known.
            "system": {name: repr(value) for name, value in accelerator_of(self.system).items()},
            "matrix": {name: engine.tflops for name, engine in self.system.matrix.items()},
            "memory": [[tier.capacity_gib, tier.bandwidth_gb_per_s] for tier in memory],
            # Rows kept before a field was added cannot answer for it.
            "columns": [column.name for column in stored_of(self.cost_model)],
            "calibration": parameters_of(self.used_calibration).model_dump(),
        }

    def to_document(self) -> dict[str, Any]:
        """The scenario as a JSON document that contains its model, system and calibration whole."""
        further: dict[str, Any] = {} if self.cost_model == "calculon" else {"cost_model": self.cost_model}
        if self.calibration is not None:
            further["calibration"] = hardware.calibration_document(self.calibration)
        return further | {
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

        Raises `ScenarioError`, `models.ModelFileError`, `hardware.SystemFileError` or `hardware.CalibrationFileError`.
        """
        if not isinstance(document, Mapping):
            raise ScenarioError(f"{where} must be a JSON object, not {type(document).__name__}.")
        check_format(document, where, FORMAT, "scenario", ScenarioError)
        unknown = sorted(shown(key) for key in document if key not in (*_KEYS, *_OPTIONAL))
        missing = [key for key in _KEYS if key not in document]
        if unknown or missing:
            more = f" and {len(unknown) - 3:,} more" if len(unknown) > 3 else ""
            keys = "key" if len(unknown) == 1 else "keys"
            wrong = f"unknown {keys} {', '.join(unknown[:3])}{more}" if unknown else f"no {', '.join(missing)}"
            raise ScenarioError(f"{where} has {wrong}; its keys are {', '.join((*_KEYS, *_OPTIONAL))}.")
        model = models.load_document(document["model"], f"{where}, model")
        system = hardware.load_document(document["system"], f"{where}, system")
        calibration = None
        if document.get("calibration") is not None:
            calibration = hardware.load_calibration_document(document["calibration"], f"{where}, calibration")
            parameters_of(calibration)
        # Documents from before there were two cost models name none.
        name = document.get("cost_model", "calculon")
        try:
            return cls.of(
                model, system, **{key: document[key] for key in _KEYS[3:]}, cost_model=name, calibration=calibration
            )
        except (CostModelError, LimitError, SpaceError) as problem:
            raise ScenarioError(f"{where}: {problem}") from None
