"""What people see are titles: no name of the library where there is a title, on any page and in any report."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from html import unescape
from pathlib import Path

import pytest
from google.protobuf.message import Message
from streamlit.testing.v1 import AppTest

import engine
import hardware
import models
from dashboard.files import comparison_report, report
from dashboard.link.vocabulary import WORDS
from dashboard.pages import registry
from dashboard.pages.calibrate import view as calibrate_view
from dashboard.pages.library import upload as library_upload
from dashboard.pages.scenarios import upload as scenarios_open
from dashboard.pages.validation import view as validation_view
from engine import Exploration
from tests.dashboard.files.test_report import without_library
from tests.dashboard.page_runs import ROOT, elements, html, plainly, run
from tests.dashboard.pages.test_compare_files import compared
from tests.dashboard.pages.test_library import Place, page, place, upload

__all__ = ["place"]
PAGES = (
    "explore",
    "execution",
    "whatif",
    "memory",
    "pareto",
    "compare",
    "results",
    "scenarios",
    "library",
    "serving",
    "validation",
    "calibrate",
)
UNSEEN = {"id", "form_id", "key", "user_key", "url", "href", "page_script_hash"}


@cache
def names() -> re.Pattern[str]:
    """The names of all models and systems that have a title; not within a path, which only a source has."""
    every = [(name, models.load(name)) for name in models.names()]
    every += [(name, hardware.load(name)) for name in hardware.names(with_variants=True)]  # type: ignore[misc]
    found = sorted((name for name, thing in every if thing.title not in ("", name)), key=len, reverse=True)
    return re.compile(rf"(?<![\w./-])({'|'.join(map(re.escape, found))})(?![\w/-])")


@cache
def found() -> Exploration:
    return engine.explore(
        "llama-3-8B",
        "h100_80g_sxm",
        num_procs=16,
        max_batch_size=16,
        datatype="bfloat16",
        limits={"microbatch_size": 1, "activation_recompute": "none"},
    )


def texts(app: AppTest) -> Iterator[str]:
    """Everything that a page says: words, tables, charts, and what can be chosen; not code, which is to be copied."""

    def of(message: Message) -> Iterator[str]:
        for field, value in message.ListFields():
            one = isinstance(value, str | bytes | Message) or not hasattr(value, "__iter__")
            for each in [value] if one else value:
                if isinstance(each, Message):
                    yield from of(each)
                elif isinstance(each, str) and field.name not in UNSEEN:
                    yield each

    for node in elements(app):
        if node.type == "arrow_data_frame":
            yield from (str(value) for name in node.value for value in node.value[name])
        elif node.type != "code" and isinstance(getattr(node, "proto", None), Message):
            yield from of(node.proto)


@cache
def drawn(name: str) -> list[str]:
    """Return the texts of a page as it opens."""
    link = {"compare_b": "~procs:32"} if name == "compare" else {}
    return list(texts(run(name, found(), link)))


@pytest.mark.parametrize("name", PAGES)
def test_pages_show_titles(name: str) -> None:
    said = [text for text in drawn(name) if not text.startswith("In commands: ")]
    assert sum(map(len, said)) > 500
    shown = {match.group(1): text[:200] for text in said for match in names().finditer(text)}
    assert not shown


def test_every_parameter_that_a_page_reads_has_words() -> None:
    parameters = {parameter for name in PAGES for parameter in registry.page(name).parameters}
    assert {"metric", "map_x", "results_where", "pareto_x", "serving_procs"} <= parameters
    assert parameters <= set(WORDS)


def test_reports_show_titles() -> None:
    comparison, explorations = compared()
    for content in (*(report.build(each) for each in explorations), comparison_report.build(comparison, explorations)):
        text = re.sub(r"<pre.*?</pre>", "", unescape(without_library(content)), flags=re.DOTALL)
        assert not {match.group(1) for match in names().finditer(text)}


LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}


@pytest.mark.parametrize(
    ("file", "more", "expected"),
    [
        ("config.json", {}, "Llama 8.03B"),
        ("config (1).json", {}, "Llama 8.03B"),
        ("config-2.json", {}, "Llama 8.03B"),
        ("config.json", {"_name_or_path": "meta-llama/Llama-3.1-8B/"}, "Llama-3.1-8B"),
        ("config.json", {"_name_or_path": "./"}, "Llama 8.03B"),
        ("mine.json", {}, "mine"),
    ],
)
def test_an_uploaded_config_is_called_by_what_it_is(
    place: Place, file: str, more: dict[str, str], expected: str
) -> None:
    app = upload(page(), file, json.dumps({**LLAMA, **more}).encode())
    (name,) = [each for each in app.text_input if each.label == "Name of the model"]
    assert name.value == expected
    assert "<span>parameters</span><b>8.03" in html(app).replace("\u00a0", " ")
    assert any("longest context, 131,072 tokens" in plainly(each.value) for each in app.caption)


def test_the_sequence_of_an_upload_is_chosen(place: Place) -> None:
    app = upload(page(), "config.json", json.dumps(LLAMA).encode())
    (field,) = [each for each in app.number_input if "equence" in each.label]
    assert field.value == 4096
    field.set_value(32768.0)
    app.run()
    app.button(key="library_keep_upload").click().run()
    kept = place.files.models()["Llama 8.03B"]
    assert kept.seq_size == kept.require_block().seq_size == 32768
    assert kept.seq_size_basis == "Chosen when the model was imported."
    (field,) = [each for each in app.number_input if "equence" in each.label]
    field.set_value(1e12)
    app.run()
    assert "67,108,864" in app.error[0].value
    assert not app.exception


def test_limits_on_uploads_are_those_of_the_guide() -> None:
    told = " ".join((Path(ROOT) / "dashboard" / "guide" / "running-a-server.md").read_text().split())
    sentence = re.search(r"Uploads are limited.*?;", told)
    assert sentence is not None
    sizes = [library_upload.MOST_MEGABYTES, validation_view.MOST_MEGABYTES, calibrate_view.MOST_MEGABYTES]
    assert [int(size) for size in re.findall(r"(\d+) MB", sentence.group(0))] == sizes
    assert scenarios_open.MOST_MEGABYTES == library_upload.MOST_MEGABYTES
