"""Public functions have docstrings, which list every argument by name. `tests/test_words.py` counts first words."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
BEGINNING = re.compile(r'^def [^_].*?(?:^    """.*?"""$|\Z)', re.DOTALL | re.MULTILINE)
"""Of a public function, up to its docstring, or, where it has none, on to the next one: parsing all else takes long."""
ROOMS = ("dashboard", "engine", "hardware", "models")
COMMANDS = "engine/cli"
"""Texts of the command line, which tell people what to do."""
FAMILIES = "models/hugging_face"
"""Importers by family of models, of which each says what is particular to its family."""
ARGUMENTS = (
    "engine/calibrate/",
    "engine/codesign/",
    "engine/columns/",
    "engine/cost_models/",
    "engine/economics/",
    "engine/executions/",
    "engine/exploration/",
    "engine/measure/",
    "engine/planners/",
    "engine/fine_tuning/",
    "engine/lifetime/",
    "engine/post_training/",
    "engine/questions/",
    "engine/scenarios/",
    "engine/serving/",
    "engine/simulate/",
    "engine/space/",
    "engine/store/",
    "engine/validation/",
    "engine/whatif/",
    "hardware/",
    "models/",
)
"""Rooms whose public functions say what each of their arguments is."""


@cache
def text_of(file: Path) -> str:
    """What a file says."""
    return file.read_text(encoding="utf-8")


@cache
def functions() -> dict[str, tuple[str, set[str]]]:
    """The docstring and the arguments of each public function of a module, by place."""
    found = {}
    for file in sorted(file for top in ROOMS for file in (ROOT / top).rglob("*.py")):
        place = file.relative_to(ROOT).as_posix()
        if place.startswith((COMMANDS, FAMILIES)):
            continue
        for node in ast.parse("\n".join(BEGINNING.findall(text_of(file)))).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                listed = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                found[f"{place}:{node.name}"] = (ast.get_docstring(node) or "", {each.arg for each in listed})
    return found


def told(text: str) -> set[str]:
    """The arguments that a docstring has in its list."""
    listed = text.partition("Args:\n")[2]
    lines = [line for line in listed.split("\n\n")[0].split("\n") if re.match(r"    \w", line)]
    return {name for line in lines for name in re.split(r",\s*", line.partition(":")[0].strip())}


def test_public_functions_have_docstrings() -> None:
    assert [place for place, (text, _) in functions().items() if not text] == []


def test_docstrings_say_what_each_argument_is() -> None:
    untold = {}
    for place, (text, asked) in functions().items():
        if place.startswith(ARGUMENTS) and (missing := asked - told(text)):
            untold[place] = missing
    assert untold == {}


def test_what_texts_say_is_elsewhere_is_there() -> None:
    """Modules that docstrings, formulas on screen, the guide and README name."""
    texts = [file for top in ROOMS for kind in ("py", "md") for file in (ROOT / top).rglob(f"*.{kind}")]
    gone = set()
    for file in (*texts, ROOT / "README.md"):
        text = text_of(file)
        for name in set(re.findall(rf"\b(?:{'|'.join(ROOMS)})(?:\.[a-z_]\w*)+", text)):
            found, *rest = name.split(".")
            place = ROOT / found
            while rest and ((place / rest[0]).is_dir() or (place / f"{rest[0]}.py").is_file()):
                place /= rest.pop(0)
            module = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
            if place.parent != ROOT and rest and not re.search(rf"\b{rest[0]}\b", text_of(module)):
                gone.add((file.name, name))
        for name in re.findall(rf"(?<![\w/.])(?:{'|'.join(ROOMS)}|tests)/[\w./-]+\.(?:py|md|csv)\b", text):
            if not (ROOT / name).is_file():
                gone.add((file.name, name))
    assert gone == set()
