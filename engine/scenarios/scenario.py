"""Scenarios: a model, a system and the limits of a space, as one self-contained document."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pandas as pd

import hardware
import models
from engine.columns import ALL_FIELDS, EXPERTS, SECOND_TIER, cost_model_in
from engine.cost_models.contract import CostModel, CostModelError
from engine.cost_models.registry import COST_MODELS, chosen_cost_model
from engine.executions.frameworks.registry import ANY
from engine.executions.limits import FRAMEWORK, LimitError, capacity_factor, framework_limit, normalise, permits
from engine.scenarios.dispatch import evaluate
from engine.space.space import Space, SpaceError, checked_size
from hardware import Calibration, System, SystemLike, system_of
from models import Model, ModelLike, ModelTuning, dimensions, model_of, tuned
from models.documents import OR_A_FILE, DocumentError, check_format, shown
from models.token_flops import CONVENTIONS, Convention

__all__ = ["FORMAT", "Scenario", "ScenarioError", "load_entity"]

Entity = TypeVar("Entity", Model, System, Calibration)
FORMAT = "shardscape-scenario/1"

_KEYS = ("format", "model", "system", "num_procs", "max_batch_size", "datatype", "limits")
_TUNING = tuple(ModelTuning.model_fields)
_OPTIONAL = ("cost_model", "calibration", "attention", "framework", *_TUNING)
_MOST_KNOWN = 256
"""Executions of which a scenario remembers what was not measured."""
_FIELD_NAMES = frozenset(column.name for column in ALL_FIELDS)


class ScenarioError(DocumentError):
    """An unreadable scenario document; the message names the key and the accepted values."""


@dataclass(frozen=True)
class Scenario:
    """Subject of an exploration, with its cost model. `limits` are normalised (see `engine.executions.limits`).

    `calibration` None is the library's, where the cost model takes one. `attention` is how MFU and TFLOP/s count
    it, None as the cost model does; no result depends on it. The framework that is to run the executions is among the
    limits, unless any may.
    """

    model: Model
    system: System
    num_procs: int
    max_batch_size: int
    datatype: str
    limits: Mapping[str, Any] = field(default_factory=dict, hash=False)
    cost_model: str = field(default_factory=lambda: cost_model_in({}))
    calibration: Calibration | None = None
    attention: Convention | None = None

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
        attention: Convention | None = None,
        framework: str | None = None,
    ) -> Scenario:
        """Returns a scenario from a model and system by name, path or object; the cost model as for `engine.explore`.

        Raises `models.ModelFileError`, `hardware.SystemFileError`, `engine.executions.limits.LimitError`, or
        `engine.space.space.SpaceError` for a size that none has, or `engine.CostModelError`; how they go together is
        checked when its space is made.
        """
        if not isinstance(datatype, str):
            raise SpaceError(f"The datatype is {shown(datatype)}; it must be a text such as float16.")
        if attention is not None and attention not in tuple(CONVENTIONS):
            raise SpaceError(f"attention is {shown(attention)}; it must be {' or '.join(CONVENTIONS)}.")
        found = system_of(system)
        name = chosen_cost_model(cost_model, found, calibration).name
        if framework is not None and isinstance(limits, Mapping | None):
            stated = (limits or {}).get(FRAMEWORK, framework)
            if stated not in (framework, [framework]):
                raise LimitError(f"The framework is '{framework}', but a limit says {shown(stated)}; give one of them.")
            limits = {**(limits or {}), **framework_limit(framework, name)}
        return cls(
            model_of(model),
            found,
            checked_size("num_procs", num_procs),
            checked_size("max_batch_size", max_batch_size),
            datatype,
            normalise(limits, name),
            name,
            calibration,
            attention,
        )

    @cached_property
    def space(self) -> Space:
        """The space of the scenario. Raises `engine.space.space.SpaceError`."""
        return self._cost_model.space(
            self.model,
            self.system,
            num_procs=self.num_procs,
            max_batch_size=self.max_batch_size,
            datatype=self.datatype,
            limits=self.limits,
            calibration=self.calibration,
        )

    @cached_property
    def facts(self) -> Mapping[str, float]:
        """Return the facts of a scenario that rules of the register use, see `engine.columns.applies`: the number of
        routed experts and the capacity of the second memory tier [GiB]."""
        return {EXPERTS: float(dimensions(self.model).experts), SECOND_TIER: self.system.mem2.capacity_gib}

    @property
    def framework(self) -> str:
        """Training framework that is to run the executions; `any` without one."""
        return str(self.limits.get(FRAMEWORK, ANY))

    @property
    def field_limits(self) -> dict[str, Any]:
        """Limits without the framework."""
        return {name: limit for name, limit in self.limits.items() if name != FRAMEWORK}

    @property
    def trains(self) -> bool:
        """True if executions are training steps; False where limits leave forward passes alone."""
        return bool(permits(self.limits, "training")(True))

    @property
    def physics(self) -> str:
        """The version of the cost model, with the calibration where it has one."""
        version, used = self._cost_model.version, self.calibration_name
        return version if used is None else f"{version}, {used}"

    @property
    def used_calibration(self) -> Calibration:
        """The calibration whose values the cost model uses. Raises `engine.CostModelError` where it takes none."""
        used = self._cost_model.calibration(self.calibration)
        if used is None:
            raise CostModelError(f"The cost model {self.cost_model} takes no calibration.")
        return used

    @property
    def calibration_name(self) -> str | None:
        """The name of the calibration whose values the cost model uses; None where it takes none."""
        return self.used_calibration.name if self._cost_model.takes_calibration else None

    @property
    def flop_convention(self) -> Convention:
        """Convention of attention in figures of utilisation: the scenario's, or else that of its cost model."""
        return self.attention or self._cost_model.flop_convention

    @property
    def _cost_model(self) -> CostModel:
        return COST_MODELS[self.cost_model]

    def evaluate(self, executions: pd.DataFrame) -> pd.DataFrame:
        """Returns every statistic of executions, by the scenario's cost model; see `engine.evaluate`.

        Executions above a capacity by no more than the limit `memory_excess` run.
        """
        settings: dict[str, Any] = {"cost_model": self.cost_model, "calibration": self.calibration}
        found = evaluate(self.model, self.system, executions, **settings)
        over = np.flatnonzero(found["reason"].isin(("memory_tier1", "memory_tier2")).to_numpy())
        factor = capacity_factor(self.limits)
        if factor == 1.0 or not len(over):
            return found
        wide = evaluate(self.model, _with_capacities(self.system, factor), executions.iloc[over], **settings)
        fits = np.flatnonzero((wide["status"] == "ok").to_numpy())
        place = np.arange(len(found))
        place[over[fits]] = len(found) + fits
        both = pd.concat([found, wide], ignore_index=True).take(place)
        both.index, both.attrs = found.index, found.attrs
        return both

    def row(self, number: int, space: Space | None = None) -> dict[str, Any]:
        """Return the fields and every statistic of one execution by name.

        The values, in the units of their columns, equal the row of `evaluate` for the execution, in a fraction
        of the time.

        Args:
            number: id of the execution.
            space: an existing space like the scenario's, so that it is not enumerated again.

        Raises `SpaceError` if the scenario has no space, or no execution has that id.
        """
        return self._cost_model.row(self.space if space is None else space, number, self.calibration)

    def not_measured(self, execution: Mapping[Any, Any]) -> tuple[str, ...]:
        """Return the properties of an execution that no measured run had, in words."""
        fields = {name: value for name, value in execution.items() if name in _FIELD_NAMES}
        key = repr(fields)
        found = self._not_measured.get(key)
        if found is None:
            if len(self._not_measured) >= _MOST_KNOWN:
                self._not_measured.clear()
            found = self._not_measured[key] = self.not_measured_of_rows(pd.DataFrame([fields]))[0]
        return found

    @cached_property
    def _not_measured(self) -> dict[str, tuple[str, ...]]:
        """Unmeasured settings of executions by their fields: a page asks for the same one next to every figure."""
        return {}

    def not_measured_of_rows(self, executions: pd.DataFrame) -> list[tuple[str, ...]]:
        """Returns `not_measured` of every one of some executions."""
        return self._cost_model.not_measured(self.model, self.system, executions)

    @cached_property
    def key(self) -> str:
        """Hash of everything that results depend on, and of nothing else: names and sources do not count."""
        content = {
            "physics": self._cost_model.version,
            **self._cost_model.depends_on(self.model, self.system, self.calibration),
            **self._cost_model.datatype_depends_on(self.system, self.datatype),
            "num_procs": self.num_procs,
            "max_batch_size": self.max_batch_size,
            "datatype": self.datatype,
            "limits": dict(self.limits),
        }
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def to_document(self) -> dict[str, Any]:
        """Returns the scenario as a JSON document that contains its model, system and calibration whole."""
        further: dict[str, Any] = {} if self.cost_model == cost_model_in({}) else {"cost_model": self.cost_model}
        if self.calibration is not None:
            further["calibration"] = hardware.calibration_document(self.calibration)
        if self.attention is not None:
            further["attention"] = self.attention
        if self.framework != ANY:
            further["framework"] = self.framework
        return further | {
            "format": FORMAT,
            "model": models.to_document(self.model),
            "system": hardware.to_document(self.system),
            "num_procs": self.num_procs,
            "max_batch_size": self.max_batch_size,
            "datatype": self.datatype,
            "limits": self.field_limits,
        }

    @classmethod
    def from_document(cls, document: Any, where: str = "the scenario") -> Scenario:
        """Returns the scenario of a parsed JSON document; `where` names it in messages.

        Its model, system and calibration are whole documents, or names of the library; never paths, as documents come
        from anywhere. Raises `ScenarioError`, `models.ModelFileError`, `hardware.SystemFileError` or
        `hardware.CalibrationFileError`.
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
        model = load_entity(document["model"], f"{where}, model", models.load, models.load_document)
        model = tuned(model, {name: document[name] for name in _TUNING if document.get(name) is not None})
        system = load_entity(document["system"], f"{where}, system", hardware.load, hardware.load_document)
        calibration = document.get("calibration")
        if calibration is not None:
            by_name, whole = hardware.load_calibration, hardware.load_calibration_document
            calibration = load_entity(calibration, f"{where}, calibration", by_name, whole)
            for each in COST_MODELS.values():
                each.calibration(calibration)
        name = cost_model_in(document) if "cost_model" not in document else document["cost_model"]
        try:
            return cls.of(
                model,
                system,
                **{key: document[key] for key in _KEYS[3:]},
                cost_model=name,
                calibration=calibration,
                attention=document.get("attention"),
                framework=document.get("framework"),
            )
        except (CostModelError, LimitError, SpaceError) as problem:
            raise ScenarioError(f"{where}: {problem}") from None


def _with_capacities(system: System, factor: float) -> System:
    """Return the system with so many times the capacity of both tiers of memory."""
    tiers = {name: getattr(system, name) for name in ("mem1", "mem2")}
    return system.model_copy(
        update={
            name: memory.model_copy(update={"capacity_gib": memory.capacity_gib * factor})
            for name, memory in tiers.items()
        }
    )


def load_entity(
    given: Any, where: str, by_name: Callable[[str], Entity], whole: Callable[[Any, str], Entity]
) -> Entity:
    """Return an entity of the library by its name, or an entity from a whole document.

    Args:
        given: the name or the document; no path, as documents come from anywhere.
        where: name of the document in messages.
        by_name: loads from the library.
        whole: makes it from a parsed document and its name.

    Raises `ScenarioError` for a path, and what the two functions raise.
    """
    if not isinstance(given, str):
        return whole(given, where)
    if any(mark in given for mark in "/\\") or given.endswith(".json"):
        raise ScenarioError(f"{where} is {shown(given)}, a path; it must be a name of the library or a whole document.")
    try:
        return by_name(given)
    except DocumentError as unknown:
        raise type(unknown)(str(unknown).replace(OR_A_FILE, "")) from None
