"""Rules about the project as a whole: its commands, its files, its dependencies."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
_CHAPTERS = sorted((ROOT / "dashboard" / "guide").glob("*.md"))
GUIDE = "\n".join(path.read_text(encoding="utf-8") for path in _CHAPTERS)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PINS = ("serve", "test", "lint", "measure")
"""Lists of pinned versions in `.ci`, each of which includes the one before it."""

DEPENDENCIES = {
    "streamlit",
    "plotly",
    "pandas",
    "numpy",
    "duckdb",
    "pydantic",
    "pyarrow",
    "typer",
    "scipy",
    "pyyaml",
    "tree-sitter",
    "tree-sitter-bash",
    "xlsxwriter",
    "ijson",
}
MODULES = {"pyyaml": "yaml", "tree-sitter": "tree_sitter", "tree-sitter-bash": "tree_sitter_bash"}
"""What is imported where it is not called as the package is."""
OPTIONAL = {"engine/measure/": "measure", "engine/codesign/": "cluster", "engine/cli/mcp_server.py": "mcp"}
"""Extras by the places that may import what they bring."""
TOP_LEVEL = {
    "pyproject.toml",
    "app.py",
    "dashboard",
    "engine",
    "hardware",
    "models",
    "tests",
    "static",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
}


@cache
def tracked() -> list[Path]:
    """The files of the project: tracked ones, and those that are about to be."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone: which files belong to the project is not known")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def commands() -> list[str]:
    """The lines of the shell blocks of the README."""
    return [line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.strip().splitlines()]


def test_the_readme_has_the_two_commands():
    first, second = commands()[:2]
    setup = (
        "python3 -m venv .venv && .venv/bin/pip install -q --require-hashes -r .ci/{}.txt && "
        ".venv/bin/pip install -q --no-deps --no-build-isolation -e . && "
    )
    assert first == setup.format("serve") + ".venv/bin/shardscape serve"
    assert second == setup.format("test") + ".venv/bin/pytest -n 2"


def test_the_check_runs_the_readme_s_test_command():
    check = ROOT / ".ci" / "run"
    assert commands()[1] in [line.strip() for line in check.read_text(encoding="utf-8").splitlines()]
    assert check.stat().st_mode & 0o111, ".ci/run must be executable"
    subprocess.run(["bash", "-n", str(check)], check=True)


def test_files_that_readme_and_guide_name_exist():
    named = re.findall(r'(?:src|srcset)="([^":]+)"', README)
    named += re.findall(r"`((?:engine|tests|static|\.ci)/[\w./]*)`", README + GUIDE)
    assert ".github/screenshots/explore.png" in named
    for name in named:
        path = ROOT / name
        assert path.exists() or path.with_suffix(".py").exists(), name


def test_commands_that_readme_and_guide_name_exist():
    from engine.cli.command_table import COMMANDS

    known = set(COMMANDS)
    named = set(re.findall(r"shardscape ([a-z][\w-]*)", README + GUIDE))
    assert named == known


def test_the_top_level_holds_nothing_else():
    names = {path.relative_to(ROOT).parts[0] for path in tracked()}
    assert {name for name in names if not name.startswith(".")} <= TOP_LEVEL


def test_no_file_tells_where_it_was_made():
    """No registry address, no path of a developer's machine."""
    # Put together here, so that this file does not contain them.
    forbidden = re.compile(
        r"|".join(
            [
                r"(?<![\w./])/" + r"(?:home|root|Users|work|workspace|mnt)/\w",
                "--index" + "-url",
                "--find" + "-links",
                "//pypi" + r"\.",
                r"files\.python" + "hosted",
                r"\.\./" + "shared",
            ]
        )
    )
    found = []
    for path in tracked():
        if path.suffix in (".woff2", ".parquet", ".png", ".gz", ".zip", ".sqlite"):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if match := forbidden.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {match[0]}")
    assert not found


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def test_dependencies_are_the_agreed_ones_and_bounded():
    required = PROJECT["project"]["dependencies"]
    assert {_name(requirement) for requirement in required} == DEPENDENCIES
    extras = [one for group in PROJECT["project"]["optional-dependencies"].values() for one in group]
    for requirement in [*required, *extras, *PROJECT["build-system"]["requires"]]:
        assert re.fullmatch(r"[\w-]+>=[\d.]+,<[\d.]+", requirement), requirement


def pinned_in(name: str) -> dict[str, int]:
    """The versions in a list of `.ci`, each with the number of its hashes."""
    found: dict[str, int] = {}
    lines = (ROOT / ".ci" / f"{name}.txt").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    for line in lines:
        if line.startswith(("#", "-r ")):
            continue
        pin = re.fullmatch(r"([\w.-]+==[\w.]+)( ; [^#]+?)?((?: +--hash=sha256:[0-9a-f]{64})*) *", line)
        assert pin, line
        assert pin[1] not in found, line
        found[pin[1]] = pin[3].count("--hash")
    return found


def test_every_dependency_is_pinned_with_hashes():
    lists = {name: pinned_in(name) for name in PINS}
    for name, before in zip(PINS, (None, *PINS), strict=False):
        text = (ROOT / ".ci" / f"{name}.txt").read_text(encoding="utf-8")
        assert re.findall(r"^-r (.*)$", text, re.MULTILINE) == ([f"{before}.txt"] if before else [])
        assert all(lists[name].values()), f"hashes are missing in {name}.txt"
    (torch,) = pinned_in("torch")
    pins = [pin for each in lists.values() for pin in each]
    assert len({_name(pin) for pin in pins}) == len(pins)  # one version of each, in one list
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = {
        "serve": [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]],
        "test": [*extras["test"], *extras["mcp"], *extras["cluster"]],
        "lint": extras["lint"],
        "measure": [],
    }
    there: set[str] = set()
    for name in PINS:
        there |= {_name(pin) for pin in lists[name]}
        assert {_name(requirement) for requirement in wanted[name]} <= there, name
    assert [_name(one) for one in extras["measure"]] == [_name(torch)]


@cache
def imports_of(path: Path) -> set[str]:
    """What a module imports, wherever it does so: names of top-level packages."""
    found: set[str] = set()
    left: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while left:
        # An import is a statement, and stands in what holds statements: expressions need no look.
        for node in ast.iter_child_nodes(left.pop()):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.split(".")[0])
            elif isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
                left.append(node)
    return found


@cache
def imported(package: str) -> set[str]:
    """What the modules of a package, or one module at the top, import: names of top-level packages."""
    modules = [path for path in tracked() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] == package]
    assert modules, package
    return set().union(*map(imports_of, modules))


def test_the_installed_packages_import_only_the_agreed_dependencies():
    """A package that only happens to be there, brought by another one, may be gone with its next version."""
    ours = ("engine", "models", "hardware", "dashboard", "app.py")
    found = set().union(*map(imported, ours))
    # pydantic_core is part of pydantic's own interface, starlette of Streamlit's; _typeshed is for type checkers only
    allowed = {*DEPENDENCIES, *MODULES.values(), *ours, *sys.stdlib_module_names}
    allowed |= {"pydantic_core", "starlette", "_typeshed"}
    extras = PROJECT["project"]["optional-dependencies"]
    optional = {place: {_name(each) for each in extras[extra]} for place, extra in OPTIONAL.items()}
    assert found <= allowed.union(*optional.values())
    for path in tracked():
        name = path.relative_to(ROOT).as_posix()
        if path.suffix == ".py" and name.split("/")[0] in ours:
            for place, names in optional.items():
                assert not imports_of(path) & names or name.startswith(place), name


@pytest.mark.parametrize(
    ("package", "allowed"), [("models", set()), ("hardware", {"models"}), ("engine", {"models", "hardware"})]
)
def test_imports_go_one_way(package, allowed):
    """Models and hardware know nothing of the engine, and the engine nothing of the dashboard."""
    ours = {"engine", "models", "hardware", "dashboard", "tests", "app", "shardscape"}
    assert imported(package) & ours <= {package, *allowed}


def test_the_wheel_takes_what_serving_needs():
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert set(wheel["packages"]) == {"engine", "models", "hardware", "dashboard"}
    for source, target in wheel["force-include"].items():
        assert (ROOT / source).exists(), source
        assert target.startswith("shardscape/")
    assert {"app.py", ".streamlit/config.toml", "static"} <= set(wheel["force-include"])


def test_the_licence_is_apache_2():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert PROJECT["project"]["license"] == "Apache-2.0"


def test_the_readme_says_what_every_room_is_for():
    """Every package of the layout is listed, and nothing is listed that is not there."""
    layout = README.split("## Layout of the code")[1].split("## Development")[0]
    for top in ("dashboard", "engine"):
        there = {path.parent.name for path in (ROOT / top).glob("*/__init__.py")}
        listed = layout.split(f"    {top}/")[1].split("\n    " + ("engine/" if top == "dashboard" else "hardware/"))[0]
        assert set(re.findall(r"\b([a-z_]+)/ ", listed)) == there


ARRAYS = {"duckdb", "numpy", "pandas", "pyarrow", "pydantic"}
"""Libraries that take most of the time of a start."""
EVERY_COMMAND = "from engine.cli.command_table import COMMANDS; [each.load() for each in COMMANDS.values()]"


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        ("import engine", {"streamlit"} | ARRAYS),
        ("import engine; engine.best", {"engine.launch", "streamlit"}),
        ("import engine.cli.main", {"engine.launch", "streamlit"} | ARRAYS),
        ("import engine.cli.commands.serve", {"engine.columns", "streamlit"} | ARRAYS),
        ("import engine.cli.commands.library, engine.questions.library_rows", {"duckdb", "pandas", "pyarrow"}),
        (EVERY_COMMAND, {"engine.launch", "streamlit"}),
        ("import engine.launch, engine.questions", {"streamlit"}),
        ("import engine, engine.cli.main, dashboard.pages.registry", set()),
    ],
)
def test_libraries_that_few_need_are_imported_when_they_are_used(code: str, unwanted: set[str]):
    """Starting a command or the dashboard takes no time for libraries that it does not use."""
    code += "; import sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "engine" in loaded.split()
    libraries = {"scipy", "xlsxwriter", "tree_sitter", "tree_sitter_bash", "yaml"}
    assert not (libraries | unwanted) & set(loaded.split())
