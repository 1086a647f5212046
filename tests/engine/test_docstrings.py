"""Docstrings of public functions are sentences with the function as their subject: "Returns the rows that ..."."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERB = re.compile(r"[A-Z][a-z]+s[,:]?")
NOUNS = {
    "Activations", "Blocks", "Bytes", "Chunks", "Devices", "Executions", "Fields", "Figures", "Kernels", "Layers",
    "Messages", "Microbatches", "Names", "Norms", "Operations", "Parameters", "Pipelines", "Processors", "Progress",
    "Rows", "Samples", "Seconds", "Shares", "Stages", "This", "Tiers", "Values", "Weights",
}  # fmt: skip
"""Words that end like a verb, but would begin half a sentence."""
ROOMS = ("dashboard", "engine", "hardware", "models")
COMMANDS = "engine/cli"
"""Texts of the command line, which tell people what to do."""
FAMILIES = "models/hugging_face"
"""Importers by family of models, of which each says what is particular to its family."""
LATER = (
    "dashboard/charts/gantt", "dashboard/pages/execution/detail", "engine/cost_models/calibrated", "engine/planners",
)  # fmt: skip
"""Rooms that do not keep to it yet."""


def functions() -> dict[str, str]:
    """The docstrings of public functions of modules, by place."""
    found = {}
    for file in sorted(file for top in ROOMS for file in (ROOT / top).rglob("*.py")):
        place = file.relative_to(ROOT).as_posix()
        if place.startswith((COMMANDS, FAMILIES, *LATER)):
            continue
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                found[f"{place}:{node.name}"] = ast.get_docstring(node) or "nothing"
    return found


def test_docstrings_begin_with_a_verb() -> None:
    strange = {
        place: text.split("\n")[0]
        for place, text in functions().items()
        if not VERB.fullmatch(first := text.split()[0]) or first in NOUNS
    }
    assert strange == {}
