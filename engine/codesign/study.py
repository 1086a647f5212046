"""Studies as documents: reading, checking and writing them, and the key of all that their results depend on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pydantic import ValidationError

import hardware
import models
from engine.codesign.checks import check_study
from engine.codesign.checksums import CHECKSUM
from engine.codesign.costs import filled_in
from engine.codesign.design_space import DesignSpace
from engine.codesign.errors import StudyError
from engine.codesign.schema import FORMAT, NEW_COST_ITEMS, StudyDocument
from models.documents import check_format, parse_json, read_json, sentence, shown

__all__ = ["Study"]


class Study(DesignSpace):
    """A checked study. Make one with `from_document`, `read` or `from_json`.

    `models`, `systems` and `calibration` are the ones named in the document. A search depends on nothing else, so a
    worker that reads the study's document does the same work as any other.
    """

    @classmethod
    def from_document(cls, document: Any, where: str = "the study", *, files: bool = False) -> Study:
        """Returns the study of a parsed JSON document; `where` names it in messages.

        Args:
            document: a parsed JSON value of any kind.
            where: name of the document in messages.
            files: whether models, systems and a calibration may be given as paths of files.

        Raises `StudyError`, `models.ModelFileError`, `hardware.SystemFileError` or `hardware.CalibrationFileError`.
        """
        if not isinstance(document, Mapping):
            raise StudyError(f"{where} is {shown(document)}; a study must be an object with named keys.")
        check_format(document, where, FORMAT, "study", StudyError)
        try:
            said = StudyDocument.model_validate(
                {key: value for key, value in document.items() if key not in ("format", CHECKSUM)}
            )
        except ValidationError as problem:
            raise StudyError(sentence(problem, StudyDocument, where, by_alias=True)) from None
        found = cls(
            document=said.model_copy(update={"costs": filled_in(said.costs, where)}),
            models=tuple(
                _load_entity(each.model, models.load, models.load_document, f"{where}, models[{number}]", files)
                for number, each in enumerate(said.models)
            ),
            systems=tuple(
                _load_entity(each, hardware.load, hardware.load_document, f"{where}, systems[{number}]", files)
                for number, each in enumerate(said.systems)
            ),
            calibration=None
            if said.calibration is None
            else _load_entity(
                said.calibration,
                hardware.load_calibration,
                hardware.load_calibration_document,
                f"{where}, calibration",
                files,
            ),
        )
        check_study(found, where)
        return found

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Study:
        """Returns the study of a JSON file. Raises as `from_document` does."""
        where = shown(os.fspath(path))[1:-1]
        return cls.from_document(read_json(path, "study", StudyError), where, files=True)

    @classmethod
    def from_json(cls, content: bytes, where: str = "the study") -> Study:
        """Returns the study of JSON text, UTF-8. Raises as `from_document` does."""
        return cls.from_document(parse_json(content, where, "study", StudyError), where)

    def to_document(self) -> dict[str, Any]:
        """Returns the study as a JSON document that holds its models, systems and calibration whole."""
        said = self.document.model_dump(mode="json", by_alias=True, exclude_none=True)
        said["models"] = [
            {"model": models.to_document(model), "weight": each.weight}
            for model, each in zip(self.models, self.document.models, strict=True)
        ]
        said["systems"] = [hardware.to_document(system) for system in self.systems]
        if self.calibration is not None:
            said["calibration"] = hardware.calibration_document(self.calibration)
        return {"format": FORMAT, **said}

    @cached_property
    def key(self) -> str:
        """Hash of all that the rows of the study depend on, and of nothing else.

        Prices and questions do not count, so that one folder answers them however they change; unless bounds skip
        designs, which depends on them.
        """
        said = self.document.model_dump(mode="json", by_alias=True)
        product = {
            name: said[name]
            for name in ("edits", "follow", "sizes", "datatypes", "batches", "evaluate", "statistics", "prune")
        }
        for items in (said["costs"]["usd"], said["costs"]["watts"]):
            for name in NEW_COST_ITEMS:
                if items[name] in ([], [0.0, 0.0]):
                    del items[name]
        asked = ("costs", "objectives", "constraints", "tokens") if self.document.prune else ()
        weights = [each.weight for each in self.document.models] if self.document.prune else []
        content = {
            **product,
            **{name: said[name] for name in asked},
            "weights": weights,
            "limits": dict(self.limits(0)),
            "scenarios": [
                [self.scenario(model, system, 0, 0, 0).key for system in range(len(self.systems))]
                for model in range(len(self.models))
            ],
        }
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def __reduce__(self) -> tuple[Any, ...]:
        return Study.from_document, (self.to_document(),)


def _load_entity(given: Any, by_name: Any, by_document: Any, where: str, files: bool) -> Any:
    if isinstance(given, str) and not files and (given.endswith(".json") or os.sep in given):
        raise StudyError(f"{where} is the path {shown(given)}; put the document itself there.")
    return by_name(given) if isinstance(given, str) else by_document(given, where)
