"""Entries of the Scenarios page: saved scenarios and co-design studies, and explorations in the store or in memory."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from dashboard.compat.caches import remembered
from dashboard.jobs.explorations import ExplorationJob, Explorations
from dashboard.link.document_validation import Refused, scenario_of
from dashboard.link.own_studies import SavedStudy
from dashboard.link.user_files import Saved, UserFiles
from dashboard.words.numbers import plain
from dashboard.words.scenarios import name_of, sentence_of
from dashboard.words.studies import told_of
from engine import Exploration, Scenario
from engine.executions.execution_names import execution_name
from engine.exploration.run import from_store
from engine.store import Record, Store, StoreError

__all__ = ["OUTDATED", "BestExecution", "Entry", "age", "best_of", "entries", "searched", "size"]


OUTDATED: Final = (
    "Explored with an older version of the cost model, whose results are no longer shown. Open explores it again; "
    "Delete frees its space."
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the page: a saved scenario, an exploration, or both; or a kept co-design study."""

    ident: str
    """Ident of a saved scenario or study, else the key of the exploration."""
    title: str
    scenario: Scenario | None
    """None for a study, and where the store's record cannot be read any more."""
    saved: Saved | None = None
    record: Record | None = None
    job: ExplorationJob | None = None
    problem: str = ""
    study: SavedStudy | None = None

    @property
    def key(self) -> str:
        """Content hash of the scenario."""
        if self.record is not None:
            return self.record.key
        return self.scenario.key if self.scenario is not None else ""

    @property
    def seconds(self) -> float:
        """Time of saving, else of the exploration [s since 1970]; 0 for an exploration in memory only."""
        kept = self.saved or self.study
        if kept is not None:
            return kept.saved_at
        return self.record.created_at.timestamp() if self.record is not None else 0.0


@dataclass(frozen=True, slots=True)
class BestExecution:
    """Result of an exploration: its size and its best execution."""

    total: int
    feasible: int
    rate: float | None
    """Highest throughput [samples/s]; None where nothing runs."""
    name: str = ""
    """Degrees of that execution, as `execution_name` writes them."""
    id: int = -1


def entries(files: UserFiles, explorations: Explorations) -> list[Entry]:
    """Returns everything there is to list: saved scenarios first, then studies, then explorations, each newest
    first."""
    records = {record.key: record for record in _stored_records(explorations.store)}
    jobs = {job.key: job for job in explorations.jobs() if not (job.ended and job.exploration is None)}
    found, shown = [], set()
    for saved in files.saved():
        key = saved.scenario.key
        shown.add(key)
        found.append(Entry(saved.ident, saved.title, saved.scenario, saved, records.get(key), jobs.get(key)))
    found += [Entry(each.ident, each.title, None, study=each) for each in files.studies()]
    for job in reversed(jobs.values()):
        if job.key not in shown and job.key not in records:
            shown.add(job.key)
            found.append(Entry(job.key, name_of(job.scenario), job.scenario, job=job))
    for record in records.values():
        if record.key in shown:
            continue
        try:
            scenario = _stored_scenario(json.dumps(record.scenario))
        except Refused as refusal:
            problem = record.damage or str(refusal)
            found.append(Entry(record.key, f"Exploration {record.key[:8]}", None, record=record, problem=problem))
        else:
            problem = record.damage or ("" if scenario.key == record.key else OUTDATED)
            found.append(Entry(record.key, name_of(scenario), scenario, None, record, jobs.get(record.key), problem))
    return found


def _stored_records(store: Store | None) -> list[Record]:
    if store is None:
        return []
    try:
        return store.records()
    except StoreError:
        return []


@lru_cache(maxsize=1_024)
def _stored_scenario(text: str) -> Scenario:
    return scenario_of(json.loads(text), "The stored scenario")


def searched(found: Iterable[Entry], text: str) -> list[Entry]:
    """Returns the entries whose title, model or system contain every word of a search."""
    words = text.lower().split()

    def content(entry: Entry) -> str:
        if entry.study is not None:
            study = entry.study.study
            things = [
                *(f"{each.name} {each.title}" for each in study.models),
                *(f"{each.name} {each.title}" for each in study.systems),
            ]
            return " ".join((entry.title, told_of(study), *things)).lower()
        names = () if entry.scenario is None else (entry.scenario.model.name, entry.scenario.system.name)
        more = "" if entry.scenario is None else f"{name_of(entry.scenario)} {sentence_of(entry.scenario)}"
        return " ".join((entry.title, more, *names)).lower()

    return [entry for entry in found if all(word in content(entry) for word in words)]


def best_of(entry: Entry, explorations: Explorations) -> BestExecution | None:
    """Returns the best of an entry's exploration; None where it was not explored, or its results cannot be read."""
    job = entry.job
    if job is not None and job.exploration is not None:
        return _best_of(job.exploration)
    if entry.record is None or entry.scenario is None or entry.problem or explorations.store is None:
        return None
    found = _stored_best(explorations.store, entry.scenario, entry.key)
    return None if found is None else BestExecution(**found)


@remembered(2_048)
def _stored_best(_store: Store, _scenario: Scenario, key: str) -> dict[str, Any] | None:
    try:
        found = from_store(_scenario, _store)
    except (StoreError, KeyError, ValueError):
        return None
    if found is None:
        return None
    best = _best_of(found)
    return {"total": best.total, "feasible": best.feasible, "rate": best.rate, "name": best.name, "id": best.id}


def _best_of(exploration: Exploration) -> BestExecution:
    found = exploration.reductions.best()
    if found is None:
        return BestExecution(exploration.total, exploration.feasible, None)
    row = exploration.scenario.space.table([found[0]]).iloc[0]
    return BestExecution(exploration.total, exploration.feasible, found[1], execution_name(row.to_dict()), found[0])


def age(seconds: float, now: float | None = None) -> str:
    """Returns how long ago a time [s since 1970] was: "just now", "12 min", "3 h", "5 days"."""
    passed = max(0.0, (time.time() if now is None else now) - seconds)
    if passed < 60:
        return "just now"
    for unit, length, last in (("min", 60, 60), ("h", 3_600, 48), ("days", 86_400, 730)):
        if passed < last * length:
            return f"{int(passed // length):,} {unit} ago"
    return f"{passed / 31_557_600:.0f} years ago"


def size(number: int | None) -> str:
    """Returns room that results take [bytes], decimal as disks are sold: "12.3 MB"."""
    if number is None:
        return "–"
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= factor:
            return f"{plain(number / factor)} {unit}"
    return f"{number:,} B"
