"""Users' files on a server: own models, systems, calibrations and model cards, saved scenarios and co-design studies,
next to the store.

results.duckdb the store results.user/ models/ systems/ calibrations/ cards/ scenarios/ studies/, one JSON document per
file

A file is written next to its place and then moved there, so that no reader ever sees half of one. File names are made
from a hash; no user's text becomes part of a path. Everything here is shared by all users of the server.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, cast

import streamlit as st

import hardware
import models
from dashboard.link.document_validation import (
    LONGEST_TITLE,
    PROBLEMS,
    Refused,
    checked_title,
    parse,
    scenario_of,
    sentence,
)
from dashboard.link.own_studies import SavedStudy, kept_document, saved_study_of
from dashboard.link.packed_scenarios import LONGEST
from dashboard.settings import settings_from
from engine import Scenario
from engine.codesign import Study
from hardware import Calibration, System
from models import Model
from models.documents import shown

__all__ = ["LONGEST_TITLE", "MOST_FILES", "Saved", "UserFiles", "user_files"]

MOST_FILES: Final = 1_000
"""Files of one kind that are kept and read."""
SAVED_FORMAT: Final = "shardscape-saved/1"

_IDENT: Final = re.compile(r"[0-9a-f]{16}")
_PARAMETER: Final = re.compile(r"[a-z][a-z0-9_]{0,40}")
_LONGEST_VALUE: Final = LONGEST + 100
"""Characters of a parameter of a view: it may be a packed scenario, with what that is called."""

Entity = TypeVar("Entity")


@dataclass(frozen=True, slots=True)
class Saved:
    """A scenario that a user saved under a title."""

    title: str
    scenario: Scenario
    saved_at: float
    """When it was saved first [s since 1970]."""
    page: str = ""
    """Page it was saved from; empty for the first."""
    view: Mapping[str, str] = field(default_factory=dict)
    """Parameters of the link beside the scenario: metric, axes, filters, selection."""
    ident: str = ""


class UserFiles:
    """The files of a server. Methods may be called from any thread; they raise `Refused` with a sentence."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` is made when the first file is; None where nothing can be kept."""
        self.folder = folder
        self._models = _Kind(self._at("models"), _read_model)
        self._systems = _Kind(self._at("systems"), _read_system)
        self._calibrations = _Kind(self._at("calibrations"), _read_calibration)
        self._cards = _Kind(self._at("cards"), _read_card)
        self._saved = _Kind(self._at("scenarios"), _read_saved)
        self._studies = _Kind(self._at("studies"), saved_study_of)

    def _at(self, name: str) -> Path | None:
        return None if self.folder is None else self.folder / name

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence per file that could not be read."""
        kinds = self._models, self._systems, self._calibrations, self._cards, self._saved, self._studies
        return tuple(problem for kind in kinds for problem in kind.problems())

    def models(self) -> dict[str, Model]:
        """Own models by name."""
        return {model.name: model for model in self._models.all().values()}

    def systems(self) -> dict[str, System]:
        """Own systems by name."""
        return {system.name: system for system in self._systems.all().values()}

    def calibrations(self) -> dict[str, Calibration]:
        """Own calibrations by name."""
        return {found.name: found for found in self._calibrations.all().values()}

    def cards(self) -> dict[str, Mapping[str, Any]]:
        """Documents of own model cards by name, as `keep_card` got them."""
        return {str(found.get("card", found)["name"]): found for found in self._cards.all().values()}

    def saved(self) -> list[Saved]:
        """Saved scenarios, newest first."""
        found = [replace(each, ident=ident) for ident, each in self._saved.all().items()]
        return sorted(found, key=lambda each: (-each.saved_at, each.ident))

    def studies(self) -> list[SavedStudy]:
        """Kept co-design studies, newest first."""
        found = [replace(each, ident=ident) for ident, each in self._studies.all().items()]
        return sorted(found, key=lambda each: (-each.saved_at, each.ident))

    def study(self, ident: str) -> SavedStudy:
        """Returns a kept co-design study."""
        found = self._studies.all().get(ident)
        if found is None:
            raise Refused("This study is gone; somebody else may have deleted it.")
        return replace(found, ident=ident)

    def keep_study(self, title: str, study: Study) -> str:
        """Keeps a co-design study under a title; returns its ident."""
        ident = secrets.token_hex(8)
        self._studies.write(ident, kept_document(SavedStudy(checked_title(title), study, time.time())))
        return ident

    def rename_study(self, ident: str, title: str) -> None:
        """Gives a kept study another title."""
        self._studies.write(ident, kept_document(replace(self.study(ident), title=checked_title(title))))

    def drop_study(self, ident: str) -> None:
        """Deletes a kept study; the points that it found stay."""
        self.study(ident)
        self._studies.delete(ident)

    def keep_model(self, model: Model) -> None:
        """Keeps a model under its name, in place of an own one of that name. The library's names are taken."""
        _check_free(model.name, models.names(), "model")
        self._models.write(_name_hash(model.name), models.to_document(model))

    def keep_system(self, system: System) -> None:
        """Keeps a system under its name, in place of an own one of that name. The library's names are taken."""
        _check_free(system.name, hardware.names(with_variants=True), "system")
        self._systems.write(_name_hash(system.name), hardware.to_document(system))

    def keep_calibration(self, calibration: Calibration) -> None:
        """Keeps a calibration under its name, in place of an own one of that name. The library's names are taken."""
        _check_free(calibration.name, hardware.calibration_names(), "calibration")
        self._calibrations.write(_name_hash(calibration.name), hardware.calibration_document(calibration))

    def keep_card(self, name: str, document: Mapping[str, Any], taken: Collection[str]) -> None:
        """Keeps a model card under its name, in place of an own one of that name. The library's names are taken."""
        _check_free(name, taken, "model card")
        self._cards.write(_name_hash(name), document)

    def drop_model(self, name: str) -> None:
        """Deletes an own model."""
        self._models.delete(_name_hash(name))

    def drop_system(self, name: str) -> None:
        """Deletes an own system."""
        self._systems.delete(_name_hash(name))

    def drop_card(self, name: str) -> None:
        """Deletes an own model card."""
        self._cards.delete(_name_hash(name))

    def keep(self, title: str, scenario: Scenario, page: str = "", view: Mapping[str, str] | None = None) -> str:
        """Saves a scenario under a title; returns its ident."""
        ident = secrets.token_hex(8)
        return self._put(Saved(checked_title(title), scenario, time.time(), page, dict(view or {}), ident))

    def rename(self, ident: str, title: str) -> None:
        """Gives a saved scenario another title."""
        self._put(replace(self._one(ident), title=checked_title(title)))

    def duplicate(self, ident: str) -> str:
        """Saves a second copy of a saved scenario; returns its ident."""
        one = self._one(ident)
        title = self.title_of_copy(one.title)
        return self._put(replace(one, title=title, saved_at=time.time(), ident=secrets.token_hex(8)))

    def title_of_copy(self, title: str) -> str:
        """Returns what a copy of a scenario of that title is called: "A (copy)", "A (copy 2)", the first that is
        free."""
        taken = {each.title for each in self.saved()} | {each.title for each in self.studies()}
        whole = re.sub(r" \(copy(?: \d+)?\)$", "", title)
        endings = (" (copy)", *(f" (copy {number})" for number in range(2, len(taken) + 3)))
        titles = (f"{whole[: LONGEST_TITLE - len(ending)]}{ending}" for ending in endings)
        return next(each for each in titles if each not in taken)

    def forget(self, ident: str) -> None:
        """Deletes a saved scenario; its results stay in the store."""
        self._one(ident)
        self._saved.delete(ident)

    def _one(self, ident: str) -> Saved:
        found = self._saved.all().get(ident)
        if found is None:
            raise Refused("This saved scenario is gone; somebody else may have deleted it.")
        return replace(found, ident=ident)

    def _put(self, saved: Saved) -> str:
        document = {
            "format": SAVED_FORMAT,
            "title": saved.title,
            "saved_at": saved.saved_at,
            "page": saved.page,
            "view": dict(saved.view),
            "scenario": saved.scenario.to_document(),
        }
        self._saved.write(saved.ident, document)
        return saved.ident


class _Kind(Generic[Entity]):
    """A folder of documents of one kind, read again only when a file has changed."""

    def __init__(self, folder: Path | None, convert: Callable[[Any, str], Entity]) -> None:
        self._folder, self._convert = folder, convert
        self._lock = threading.Lock()
        self._read: dict[str, tuple[tuple[int, int], Entity | str]] = {}

    def all(self) -> dict[str, Entity]:
        """Returns what the folder holds, by ident; files that cannot be read are left out."""
        return {ident: found for ident, (_, found) in self._scan().items() if not isinstance(found, str)}

    def problems(self) -> tuple[str, ...]:
        return tuple(found for _, found in self._scan().values() if isinstance(found, str))

    def _scan(self) -> dict[str, tuple[tuple[int, int], Entity | str]]:
        with self._lock:
            now: dict[str, tuple[tuple[int, int], Entity | str]] = {}
            for path, mark in self._files():
                known = self._read.get(path.stem)
                now[path.stem] = known if known is not None and known[0] == mark else (mark, self._load(path))
            self._read = now
            return now

    def _files(self) -> list[tuple[Path, tuple[int, int]]]:
        if self._folder is None:
            return []
        found = []
        with contextlib.suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                name, dot, suffix = entry.name.partition(".")
                if dot and suffix == "json" and _IDENT.fullmatch(name) and entry.is_file(follow_symlinks=False):
                    state = entry.stat(follow_symlinks=False)
                    found.append((Path(entry.path), (state.st_mtime_ns, state.st_size)))
        return sorted(found)[:MOST_FILES]

    def _load(self, path: Path) -> Entity | str:
        where = f"{path.parent.name}/{path.name}"
        try:
            return self._convert(parse(path.read_bytes(), where, "document"), where)
        except (Refused, *PROBLEMS) as problem:
            return sentence(problem)
        except OSError as problem:
            return sentence(f"{where} cannot be read: {problem.strerror or problem}")

    def write(self, ident: str, document: Mapping[str, Any]) -> None:
        """Writes a file whole or not at all."""
        if self._folder is None:
            raise Refused(
                "This server keeps nothing, because it has no folder to write to. Download the file instead, or start "
                "the server with SHARDSCAPE_STORE naming a file in a folder of its own."
            )
        files = self._files()
        if len(files) >= MOST_FILES and all(path.stem != ident for path, _ in files):
            raise Refused(f"This server keeps {MOST_FILES:,} {self._folder.name}, its limit; delete some first.")
        text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            number, name = tempfile.mkstemp(dir=self._folder, prefix=".new-", suffix=".part")
            try:
                with os.fdopen(number, "w", encoding="utf-8", errors="replace") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(name, self._folder / f"{ident}.json")
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise
        except OSError as problem:
            raise Refused(sentence(f"It could not be saved: {problem.strerror or problem}")) from None

    def delete(self, ident: str) -> None:
        if self._folder is None or _IDENT.fullmatch(ident) is None:
            return
        try:
            (self._folder / f"{ident}.json").unlink(missing_ok=True)
        except OSError as problem:
            raise Refused(sentence(f"It could not be deleted: {problem.strerror or problem}")) from None


def _check_free(name: str, taken: Collection[str], noun: str) -> None:
    if name in taken:
        raise Refused(f"The library has a {noun} named {shown(name)}; give the copy another name.")
    checked_title(name)


def _name_hash(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:16]


def _read_card(document: Any, where: str) -> Mapping[str, Any]:
    """Return the document of a model card, if it has a name; planners check the rest when it is used."""
    card = document.get("card", document) if isinstance(document, Mapping) else None
    if not isinstance(card, Mapping) or not isinstance(card.get("name"), str):
        raise Refused(f"{where} is no model card: it has no name.")
    return cast(Mapping[str, Any], document)


def _read_model(document: Any, where: str) -> Model:
    return models.load_document(document, where)


def _read_system(document: Any, where: str) -> System:
    return hardware.load_document(document, where)


def _read_calibration(document: Any, where: str) -> Calibration:
    return hardware.load_calibration_document(document, where)


def _read_saved(document: Any, where: str) -> Saved:
    if not isinstance(document, Mapping) or document.get("format") != SAVED_FORMAT:
        given = document.get("format") if isinstance(document, Mapping) else document
        raise Refused(sentence(f"{where} has the format {shown(given)}; this version reads {SAVED_FORMAT}"))
    title, saved_at = document.get("title"), document.get("saved_at")
    page, view = document.get("page", ""), document.get("view", {})
    if not isinstance(title, str) or isinstance(saved_at, bool) or not isinstance(saved_at, int | float):
        raise Refused(f"{where} lacks a title or the time it was saved at.")
    if not isinstance(page, str) or not isinstance(view, Mapping):
        raise Refused(f"{where} has a page or view that cannot be read.")
    good = {
        name: value
        for name, value in view.items()
        if _PARAMETER.fullmatch(name) and isinstance(value, str) and len(value) <= _LONGEST_VALUE
    }
    scenario = scenario_of(document.get("scenario"), where)
    return Saved(checked_title(title), scenario, float(saved_at), page[:40], good)


@st.cache_resource(show_spinner=False, max_entries=1)
def user_files() -> UserFiles:
    """Returns own models and systems, and saved scenarios: files beside the store."""
    store = settings_from(os.environ).store
    return UserFiles(None if store is None else store.with_suffix(".user"))
