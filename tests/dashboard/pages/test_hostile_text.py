"""Text that others wrote stays text: whatever names, titles and sources say, no page reads it as Markdown or markup."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.message import Message
from streamlit.testing.v1 import AppTest

import hardware
import models
from dashboard.link import scenario_parameters
from dashboard.pages.registry import PAGES
from dashboard.words.markdown import literal
from engine import Scenario
from tests.dashboard.page_runs import BRIEF, FEW, ROOT, SMALL, visit
from tests.dashboard.server import own_server

EVIL = "Zq*b* <i>x</i> :red[y] https://evil.example www.evil.example me@evil.example :material/bug: -> z"
PLAIN = {"code.code_text", "html.body", "selectbox.options", "text_input.default"}
"""Fields in which Streamlit does not look for Markdown; HTML is looked at by itself."""
_READ = re.compile(r"(?<!\\)\*b|<i>|(?<!\\):red|://|www\\?\.|me@evil|:material|(?:^|\s)\\?-\\?>")
"""What Streamlit would make something of, some of it only after Markdown has taken backslashes away."""


def evil(cost_model: str) -> Scenario:
    """A model on a system of which every text is hostile."""
    texts = {"name": EVIL, "title": EVIL, "source": EVIL, "notes": (EVIL,)}
    model = models.load("gpt3-13B").model_copy(update={**texts, "family": EVIL, "seq_size_basis": EVIL})
    system = hardware.load("h100_80g_nvl8" if cost_model == "calculon" else "h100_80g_sxm")
    return Scenario.of(model, system.model_copy(update=texts), **SMALL, limits={**FEW, "microbatch_size": [1, 2]})


def texts(message: Message, path: str) -> Iterator[tuple[str, str]]:
    """Every text of a message with the names of the fields that lead to it."""
    for field, value in message.ListFields():
        for each in value if field.is_repeated else [value]:
            if isinstance(each, Message):
                yield from texts(each, f"{path}.{field.name}")
            elif isinstance(each, str):
                yield f"{path}.{field.name}", each


@pytest.mark.parametrize("cost_model", ["calculon", "calibrated"])
def test_no_page_reads_text_of_others_as_markdown(cost_model: str, tmp_path: Path) -> None:
    shown, read = [], []
    pages = PAGES if cost_model == "calibrated" else [entry for entry in PAGES if entry.about_scenario]
    with own_server(tmp_path) as place:
        scenario = evil(cost_model)
        assert place.explorations.request(scenario).wait(60)
        place.files.keep(EVIL, scenario)
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
        app.query_params.update({**scenario_parameters.parameters_of(scenario), **BRIEF})
        for entry in pages:
            app.run() if entry is PAGES[0] else visit(app, entry.name)
            assert not app.exception
            place.server.board.rest()
            for element in app.main:
                proto = getattr(element, "proto", None)
                for field, text in texts(proto, element.type) if isinstance(proto, Message) else ():
                    if "Zq" not in text:
                        continue
                    shown.append(entry.name)
                    if "<i>" in text if field == "html.body" else field not in PLAIN and _READ.search(text):
                        read.append((entry.name, field, text[max(0, text.index("Zq") - 40) :][:200]))
    assert read == []
    assert {"explore", "execution"} <= set(shown)
    assert {"calibrate", "library", "scenarios"} <= set(shown) or pages is not PAGES
    assert not _READ.search(literal(EVIL))
