"""Measured runs of people and examples, and the calibrations fitted to them, computed once per content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import streamlit as st

import hardware
from dashboard.compat.caches import remembered
from dashboard.link.document_validation import Refused, sentence
from dashboard.link.user_files import user_files
from dashboard.widgets.upload import read_file
from engine import calibrate
from engine.calibrate import (
    CalibrateError,
    CalibrationOutcome,
    CheckedRuns,
    MeasuredRuns,
    calibrated,
    parameters_of,
    system_named,
)
from engine.validation.error_tables import source_family
from engine.validation.reading import Runs, library_runs
from engine.validation.selection import defective, headline
from hardware import Calibration, System

__all__ = [
    "MOST_BYTES",
    "ExampleRuns",
    "PreparedRuns",
    "bases",
    "examples",
    "outcome_of",
    "prepared_example",
    "prepared_upload",
    "systems",
]

MOST_BYTES: Final = 10_000_000
"""Largest upload, all files together [bytes]."""
FEWEST_EXAMPLES: Final = 4
"""Runs that an example set has at least."""


@dataclass(frozen=True, slots=True)
class ExampleRuns:
    """Published runs of one source on one accelerator."""

    label: str
    system: str
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PreparedRuns:
    """Checked runs with the calibration to start from. Shared by sessions: never change its tables. `key` identifies
    the content.
    """

    key: str
    checked: CheckedRuns
    base: Calibration
    is_example: bool


@remembered(1)
def examples() -> dict[str, ExampleRuns]:
    """Return the sets of published runs that can be calibrated with, by key."""
    table = library_runs().table
    family = source_family(table["source"])
    keep = headline(table) & ~defective(table)
    found: dict[str, ExampleRuns] = {}
    for (source, accelerator), group in table[keep].groupby([family[keep], table["hardware"][keep]], sort=True):
        system = system_named(str(accelerator))
        if system is not None and calibrated(system) and len(group) >= FEWEST_EXAMPLES:
            key = hashlib.sha256(f"{source}|{accelerator}".encode()).hexdigest()[:8]
            label = f"{source}, {accelerator} ({len(group):,})"
            found[key] = ExampleRuns(label, system.name, tuple(int(row) for row in group.index))
    return dict(sorted(found.items(), key=lambda item: ("torchtitan" not in item[1].label, item[1].label)))


def systems() -> dict[str, System]:
    """Return the systems that runs may come from, by name: the library's systems with an accelerator, and kept ones."""
    library = {name: hardware.load(name) for name in hardware.names()}
    known = {name: system for name, system in library.items() if system.accelerator is not None}
    return known | dict(sorted(user_files().systems().items()))


def bases() -> dict[str, Calibration]:
    """Return the calibrations that a fit may start from, by name: the library's, and kept ones."""
    return {"global": hardware.load_calibration("global")} | user_files().calibrations()


def prepared_example(key: str, base: Calibration) -> PreparedRuns:
    """Returns the runs of an example."""
    return _prepare_example(key, _calibration_digest(base), base)


@st.cache_resource(show_spinner=False, max_entries=24)
def _prepare_example(key: str, mark: str, _base: Calibration) -> PreparedRuns:
    example, runs = examples()[key], library_runs()
    index = np.array(example.rows)
    taken = Runs(runs.table.iloc[index].reset_index(drop=True), runs.faults[index])
    labels = tuple(f"row {row + 1}" for row in range(len(index)))
    checked = calibrate.check(
        MeasuredRuns(taken, labels, ("",) * len(index)), hardware.load(example.system), parameters_of(_base)
    )
    return PreparedRuns(f"{key}-{mark}", checked, _base, True)


def prepared_upload(
    contents: Mapping[str, bytes], system: System, given: Mapping[str, str], base: Calibration
) -> PreparedRuns:
    """Returns the runs of uploaded files. Raises `Refused` with one sentence."""
    size = sum(map(len, contents.values()))
    if size > MOST_BYTES:
        raise Refused(f"The files have {size / 1e6:,.1f} MB; up to {MOST_BYTES / 1e6:,.0f} MB are read at once.")
    digest = hashlib.sha256()
    for name, content in contents.items():
        digest.update(f"{len(name)} {name} {len(content)} ".encode("utf-8", "replace") + content)
    digest.update(json.dumps([hardware.to_document(system), dict(given)], sort_keys=True).encode())
    try:
        return _prepare_upload(
            digest.hexdigest()[:16], _calibration_digest(base), dict(contents), system, dict(given), base
        )
    except CalibrateError as problem:
        raise Refused(sentence(problem)) from None


@st.cache_resource(show_spinner="Reading the runs", max_entries=12)
def _prepare_upload(
    key: str, mark: str, _contents: dict[str, bytes], _system: System, _given: dict[str, str], _base: Calibration
) -> PreparedRuns:
    measured = read_file(calibrate.read_contents, _contents, _given)
    return PreparedRuns(f"{key}-{mark}", calibrate.check(measured, _system, parameters_of(_base)), _base, False)


def _calibration_digest(base: Calibration) -> str:
    """Return a digest of a calibration's content: calibrations may share a name."""
    document = json.dumps(hardware.calibration_document(base), sort_keys=True)
    return hashlib.sha256(document.encode()).hexdigest()[:12]


def outcome_of(prepared: PreparedRuns, names: tuple[str, ...] | None) -> CalibrationOutcome:
    """Returns the fit of the named parameters, or of the suggested ones. Raises `Refused` with one sentence."""
    try:
        return _fit_parameters(prepared.key, names, prepared)
    except (CalibrateError, hardware.CalibrationFileError) as problem:
        raise Refused(sentence(problem)) from None


@st.cache_resource(show_spinner="Fitting the parameters", max_entries=48)
def _fit_parameters(key: str, names: tuple[str, ...] | None, _prepared: PreparedRuns) -> CalibrationOutcome:
    return calibrate.calibrate(_prepared.checked, names, _prepared.base)
