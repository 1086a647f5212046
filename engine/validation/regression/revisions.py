"""Predictions by another revision of the code, taken from the repository into a temporary folder."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

import pandas as pd

import engine
from engine.validation.reading import NUMBERS, TRUTHS, Runs
from engine.validation.regression import evaluation
from engine.validation.regression.predictions import GateError, GatePredictions, identify
from engine.validation.regression.surface import SurfacePart

__all__ = ["ROOT", "RevisionPredictor"]

ROOT = Path(engine.__file__).resolve().parent.parent
PACKAGES = ("engine", "models", "hardware")
ERRORS = "errors.txt"


class RevisionPredictor:
    """Predictions by a revision, computed in a process of its own while this one does other work.

    Use it in a `with` statement, at whose end the process and its folder are gone.

    Args:
        revision: anything that git resolves to a commit, such as "HEAD^" or "v0.1.0".
        parts: what `build_surface` returned.
        runs: measured runs.

    Raises:
        GateError: git is missing, this is no clone, or there is no such revision.
    """

    def __init__(self, revision: str, parts: Sequence[SurfacePart], runs: Runs) -> None:
        self._revision, self._parts = revision, parts
        commit = _run_git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        archive = _run_git("archive", commit.decode().strip(), "--", *PACKAGES)
        self._folder = Path(tempfile.mkdtemp(prefix="shardscape-gate-"))
        root, questions, table = (self._folder / name for name in ("revision", "questions.json", "measured.csv"))
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(root, filter="data")
        questions.write_text(json.dumps([asdict(part) for part in parts]), encoding="utf-8")
        _write_runs(runs, table)
        # -P keeps the folder of the script out of the path, so that the revision's own modules are found.
        command = [sys.executable, "-P", str(evaluation.__file__), *map(str, (root, questions, table, self._folder))]
        environment = os.environ | {"PYTHONPATH": str(root)}
        with (self._folder / ERRORS).open("wb") as errors:
            self._process = subprocess.Popen(
                command, cwd=root, env=environment, stdout=subprocess.DEVNULL, stderr=errors
            )

    def __enter__(self) -> RevisionPredictor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def wait(self) -> GatePredictions:
        """Return the predictions.

        Raises:
            GateError: the revision cannot predict; the message has the last line of its error.
        """
        if self._process.wait():
            errors = (self._folder / ERRORS).read_text(encoding="utf-8", errors="replace")
            last = next(iter(errors.strip().splitlines()[-1:]), "no message")
            raise GateError(f"Revision {self._revision} cannot predict the surface: {last}")
        numbers = {name: [""] for name in ("seconds", "gib", "predicted_step_time_s", "predicted_mem_gib")}
        surface, runs = (
            pd.read_csv(self._folder / name, keep_default_na=False, na_values=numbers)
            for name in (evaluation.SURFACE_FILE, evaluation.RUN_FILE)
        )
        return GatePredictions(pd.concat([identify(self._parts), surface], axis=1), runs)


def _run_git(*arguments: str) -> bytes:
    if shutil.which("git") is None:
        raise GateError("git is not installed; give a file that gate --store wrote instead of a revision.")
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], check=False, capture_output=True)
    if done.returncode:
        message = done.stderr.decode(errors="replace").strip().splitlines()
        why = message[-1] if message else f"{arguments[-1].removesuffix('^{commit}')!r} is no revision here"
        raise GateError(f"git finds no such revision in {ROOT.name}: {why}.")
    return done.stdout


def _write_runs(runs: Runs, path: Path) -> None:
    """Write measured runs so that any revision reads the same values; unreadable cells stay empty."""
    table = runs.table.copy()
    for name in (*NUMBERS, *TRUTHS):
        table[name] = [("" if value != value else f"{value:.17g}") for value in table[name]]
    table.to_csv(path, index=False)
