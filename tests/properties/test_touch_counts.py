"""How many files one touches to add a thing, proven by adding one of each to a copy of the tree."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("engine", "dashboard", "hardware", "models")
PHYSICS = "engine/cost_models/calibrated/physics"

Edit = Callable[[str], str]


def behind(anchor: str, more: str) -> Edit:
    """Returns the edit that puts text behind an anchor which stands in a file once."""

    def edit(source: str) -> str:
        assert source.count(anchor) == 1, f"{anchor!r} stands there {source.count(anchor)} times"
        return source.replace(anchor, anchor + more)

    return edit


def instead(anchor: str, other: str) -> Edit:
    """Returns the edit that replaces an anchor which stands in a file once."""

    def edit(source: str) -> str:
        assert source.count(anchor) == 1, f"{anchor!r} stands there {source.count(anchor)} times"
        return source.replace(anchor, other)

    return edit


def accelerator(_: str) -> str:
    """Returns the description of a processor that there is not."""
    known = json.loads((ROOT / "hardware/library/h100_80g_sxm.json").read_text(encoding="utf-8"))
    known |= {"name": "grown_80g", "title": "Made up"}
    known["matrix"]["bfloat16"]["tflops"] = 1234
    return json.dumps(known)


STATISTIC: Mapping[str, Edit] = {
    "engine/columns/statistics.py": behind(
        "EXTENSION_STATISTIC_ROWS: Final[tuple[StatisticRow, ...]] = (\n",
        '    ("gather_link_time", "Weight gathers on the links", "gather link", "s", _LINK_TIME, "lower",\n'
        '     "Time of one step lost to gathering sharded weights."),\n',
    ),
    "engine/cost_models/calibrated/figures.py": behind(
        '        "fw_time": flow.fw_time,\n', '        "gather_link_time": flow.gathers,\n'
    ),
}
"""A statistic: what it is, and where it is computed."""

FIELD: Mapping[str, Edit] = {
    "engine/columns/fields.py": behind(
        "EXTENSION_ROWS: Final[tuple[FieldRow, ...]] = (\n",
        '    FieldRow("swift_host", "Swift host", "swift", "bool", _SOFTWARE, (),\n'
        '     "Whether the host launches kernels in half the time.", default=False),\n',
    ),
    f"{PHYSICS}/inputs.py": behind("    moment_bytes: Floats\n", "    swift_host: Floats\n"),
    f"{PHYSICS}/launch.py": instead(
        "    return p.launch * np.where(",
        "    host = np.where(case.software.swift_host > 0, 0.5, 1.0)\n    return host * p.launch * np.where(",
    ),
}
"""A field: what it is, what the physics reads, and the formula that reads it."""

ACCELERATOR: Mapping[str, Edit] = {"hardware/library/grown_80g.json": accelerator}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages to which a statistic, a field and an accelerator are added."""
    target = tmp_path_factory.mktemp("grown")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path, edit in (STATISTIC | FIELD | ACCELERATOR).items():
        file = target / path
        file.write_text(edit(file.read_text(encoding="utf-8") if file.exists() else ""), encoding="utf-8")
    return target


def test_a_statistic_is_two_files_a_field_three_and_an_accelerator_one(copy: Path) -> None:
    assert (len(STATISTIC), len(FIELD), len(ACCELERATOR)) == (2, 3, 1)
    found = subprocess.run(
        [sys.executable, "-P", str(Path(__file__).with_name("grown.py")), str(copy)], cwd=copy, check=False,
        capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": str(copy)},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-4000:]
