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


DATATYPE: Mapping[str, Edit] = {
    "models/datatypes/register.py": behind(
        "REGISTER: Final[tuple[Datatype, ...]] = (\n",
        """    Datatype(
        "float6",
        "FP6",
        bits=6,
        source="Made up.",
        scale_bits=8,
        block=16,
        rates_of=("float8",),
        generations=("hopper",),
        words={"maxtext": ("te_mxfp6",)},
    ),
""",
    ),
}
"""A datatype: its entry."""


STATISTIC: Mapping[str, Edit] = {
    "engine/columns/statistics.csv": behind(
        "name,label,short,unit,group,better,extension,headline,of_layers,description\n",
        "gather_link_time,Weight gathers on the links,gather link,s,Time on the links,lower,yes,yes,,"
        "Time of one step lost to gathering sharded weights.\n",
    ),
    "engine/cost_models/calibrated/step_figures.py": behind(
        '        "fw_time": flow.fw_time,\n', '        "gather_link_time": flow.gathers,\n'
    ),
}
"""A statistic: what it is, and where it is computed."""

FIELD: Mapping[str, Edit] = {
    "engine/columns/fields.csv": behind(
        "name,label,short,dtype,group,choices,numbers,default,applies,after,extension,description\n",
        "swift_host,Swift host,swift,bool,Software,,,no,,,yes,Whether the host launches kernels in half the time.\n",
    ),
    f"{PHYSICS}/inputs.py": behind("    moment_bytes: Floats\n", "    swift_host: Floats\n"),
    f"{PHYSICS}/layers/launch.py": instead(
        "    return p.launch * np.where(",
        "    host = np.where(case.software.swift_host > 0, 0.5, 1.0)\n    return host * p.launch * np.where(",
    ),
}
"""A field: what it is, what the physics reads, and the formula that reads it."""

ACCELERATOR: Mapping[str, Edit] = {"hardware/library/grown_80g.json": accelerator}


PAGE = {
    "dashboard/pages/grown/__init__.py": '''"""A page that there is not."""

from dashboard.pages.contract import NavigationGroup, Needs, Page

PAGE = Page(
    name="grown", title="Grown", group=NavigationGroup.DECIDE, help="Shows that it is there.", needs=Needs.SCENARIO,
    parameters={"grown_by": "growth"}, guide="quick-start",
)
''',
    "dashboard/pages/grown/view.py": '''"""Draws it."""

import streamlit as st


def parse() -> str:
    return "It has grown."


def render(view: str) -> None:
    st.markdown(view)
''',
}
"""A page: one package."""

REGISTRY = "engine/cost_models/registry.py"
COST_MODEL: Mapping[str, Edit] = {
    REGISTRY: behind(
        '"engine.cost_models.calculon.cost_model:CALCULON",\n', '    "engine.cost_models.toy.cost_model:TOY",\n'
    ),
}
"""A cost model beside its package, which is the toy of the tests: the line that says where it is."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages to which a statistic, a field, an accelerator, a datatype, a page and a cost model are
    added."""
    target = tmp_path_factory.mktemp("grown")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, target / name)  # with what is compiled, which holds for what stays as it is
    for path, source in PAGE.items():
        (target / path).parent.mkdir(exist_ok=True)
        (target / path).write_text(source, encoding="utf-8")
    package = target / "engine/cost_models/toy"
    package.mkdir()
    for file in (ROOT / "tests/toy").glob("*.py"):
        source = "" if file.name == "__init__.py" else file.read_text(encoding="utf-8")
        (package / file.name).write_text(
            source.replace("tests.toy", "engine.cost_models.toy").replace(
                "from tests import toy", "from engine.cost_models import toy"
            ),
            encoding="utf-8",
        )
    for path, edit in (STATISTIC | FIELD | ACCELERATOR | DATATYPE | COST_MODEL).items():
        file = target / path
        file.write_text(edit(file.read_text(encoding="utf-8") if file.exists() else ""), encoding="utf-8")
    return target


def test_what_one_touches_to_add_a_thing_and_that_it_shows(copy: Path) -> None:
    assert (len(STATISTIC), len(FIELD), len(ACCELERATOR), len(DATATYPE), len(COST_MODEL)) == (2, 3, 1, 1, 1)
    assert len({Path(path).parent for path in PAGE}) == 1
    before, after = ((root / REGISTRY).read_text(encoding="utf-8").splitlines() for root in (ROOT, copy))
    assert len(after) - len(before) == 1
    found = subprocess.run(
        [sys.executable, "-P", str(Path(__file__).with_name("grown.py")), str(copy)],
        cwd=copy,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(copy)},
    )
    assert found.returncode == 0, found.stderr[-4000:]
