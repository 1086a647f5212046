"""Contract of a page: navigation, link words and onward links follow from the packages that the registry lists."""

from __future__ import annotations

import pkgutil
import re
import subprocess
import sys
from dataclasses import fields, is_dataclass
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest

import dashboard.pages
from dashboard.link import page_links, scenario_parameters, state, vocabulary
from dashboard.pages import registry
from dashboard.pages.contract import NavigationGroup, Needs, Page
from dashboard.pages.registry import PAGES
from engine.questions import documents
from engine.questions.fields import question_fields
from engine.questions.verb import Document

FOLDER = Path(dashboard.pages.__file__).parent
OF_ALL = {*scenario_parameters.NAMES, "cell", "id", "own", "figures", "tokens", *state.OWN_RUN}
"""Parameters of the link that every page carries on."""
READ = re.compile(rf"""["']((?:metric|download|(?:map|{"|".join(each.name for each in PAGES)})_\w+))["']""")
"""A name in the code that looks like a page's parameter."""


def test_every_package_is_a_page_and_every_page_a_package() -> None:
    packages = {each.name for each in pkgutil.iter_modules([str(FOLDER)]) if each.ispkg}
    assert packages == {each.name for each in PAGES}
    assert len(packages) == len(PAGES)


def test_groups_come_in_their_order_and_each_once() -> None:
    sections = registry.sections()
    assert list(sections) == list(NavigationGroup)
    assert tuple(page for pages in sections.values() for page in pages) == PAGES


def test_pages_are_found_by_name_and_the_first_by_the_address_of_the_root() -> None:
    assert all(registry.page(each.name) is each for each in PAGES)
    assert registry.page("") is PAGES[0]
    assert PAGES[0].name == page_links.START
    with pytest.raises(KeyError):
        registry.page("no such page")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_parses_its_link_into_a_frozen_view_and_draws_that(page: Page) -> None:
    view = page.view()
    made = signature(view.parse)
    assert len(made.parameters) == (1 if page.needs is Needs.EXPLORATION else 0)
    assert made.return_annotation.endswith("View")
    assert list(signature(view.render).parameters) == ["view"]
    kind = getattr(view, made.return_annotation)
    assert is_dataclass(kind)
    assert kind.__dataclass_params__.frozen
    assert fields(kind)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_a_title_and_a_sentence_of_help(page: Page) -> None:
    assert page.title
    assert page.help.endswith(".")
    assert 40 < len(page.help) < 120


def test_every_parameter_has_one_owner_and_words() -> None:
    owned = [name for each in PAGES for name in each.parameters]
    assert len(owned) == len(set(owned))
    assert set(vocabulary.WORDS) == {*owned, *OF_ALL}
    assert all(each.parameters.values() for each in PAGES)
    with pytest.raises(ValueError, match="two owners: metric"):
        vocabulary.learn({"metric": "another"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_no_parameter_that_nobody_owns(page: Page) -> None:
    """Keys of widgets look alike, so only what the package hands to the link counts."""
    handed = re.compile(r"(?:url_value|set_url_value|complain|segments|choose|switch|whole_number)\((.*?)\)", re.DOTALL)
    named = set()
    for path in sorted((FOLDER / page.name).glob("*.py")):
        for call in handed.findall(path.read_text(encoding="utf-8")):
            named |= {name for name in READ.findall(call) if not name.endswith(("_table", "_map"))}
    assert named <= set(vocabulary.WORDS), named - set(vocabulary.WORDS)


def test_every_owned_parameter_is_read_somewhere() -> None:
    code = "\n".join(
        path.read_text(encoding="utf-8") for path in sorted(FOLDER.parent.rglob("*.py")) if path.name != "__init__.py"
    )
    declared = {f"{each.name}_" for each in PAGES if (FOLDER / each.name / "link.py").exists()}  # read by its document
    prefixes = set(re.findall(r'f"(\w+_)\{', code)) | declared
    unread = [
        name
        for each in PAGES
        for name in each.parameters
        if f'"{name}"' not in code and not any(name.startswith(prefix) for prefix in prefixes)
    ]
    declared = {
        field.parameter
        for document in declared_documents()
        for field in question_fields(document).values()
        if f'"{field.name}"' in code or f"in {document.__name__}.model_fields" in code
    }
    assert [name for name in unread if name not in declared and name.partition("_")[2] not in declared] == []


def declared_documents() -> set[type[Document]]:
    """Return the documents that declare parameters of pages: questions, and what pages show."""
    names = [f"dashboard.pages.{each.name}.link" for each in PAGES if (FOLDER / each.name / "link.py").exists()]
    names += [f"{documents.__name__}.{each.name}" for each in pkgutil.iter_modules(documents.__path__)]
    values = [value for name in names for value in vars(import_module(name)).values()]
    return {value for value in values if isinstance(value, type) and issubclass(value, Document)}


def test_the_registry_imports_no_pages_code() -> None:
    """A server's first page does not wait for the code of all others."""
    program = (
        "import sys; import dashboard.pages.registry; "
        "print([name for name in sys.modules if name.startswith('dashboard.pages.') and name.count('.') > 2 "
        "and not name.endswith('.link')])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=FOLDER)
    assert found.stdout.strip() == "[]"
