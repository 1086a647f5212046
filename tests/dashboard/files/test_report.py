"""A report holds the engine's figures, loads nothing, and lets no text become markup."""

from __future__ import annotations

import json
import re
from html import unescape
from html.parser import HTMLParser

import pytest

import engine
import hardware
from dashboard.compat import plotly_figures
from dashboard.files import report
from dashboard.files.report_parts import top_table
from dashboard.words.numbers import SPACE, format_value, gibibytes
from engine import Scenario
from engine.columns import by_name, fields_of
from engine.executions.execution_names import execution_name
from engine.questions.documents.explorations import FiguresQuestion
from tests.dashboard.page_runs import SMALL, exploration

EVIL = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>"


class Page(HTMLParser):
    """The elements of a page, with their attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open.append(dict(attrs).get("id") or tag)

    def handle_endtag(self, tag: str) -> None:
        if self._open:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open[-1]] = self.texts.get(self._open[-1], "") + data


def without_library(content: bytes) -> str:
    text = content.decode()
    library = plotly_figures.javascript(plotly_figures.CARTESIAN)
    assert text.count(library) == 1
    return text.replace(library, "")


def test_the_report_holds_the_figures_of_the_engine() -> None:
    found = exploration()
    best = found.best
    assert best is not None
    text = without_library(report.build(found, asked=FiguresQuestion(figures_of="fastest")))
    page = Page(text)
    plain = unescape(text)
    assert execution_name(best) in plain
    for name in ("sample_rate", "total_time"):
        number, _, unit = format_value(name, best[name]).partition(SPACE)
        assert f'{number} <span class="ss-unit">{unit}' in text
    assert f"{found.total:,}" in plain
    document = json.loads(page.texts["scenario"])
    assert Scenario.from_document(document) == found.scenario
    figures = json.loads(page.texts["figures"])
    assert set(figures) >= {"map", "time", "memory", "choices", "frontier", "reasons", "compute", "traffic"}
    places = {attributes.get("id") for _, attributes in page.elements}
    assert {f"figure-{key}" for key in figures} <= places
    cells = found.by_cell()
    drawn = [
        point[2]
        for trace in figures["map"]["light"]["data"]
        for point in trace.get("customdata") or []
        if len(point) > 2
    ]
    assert {int(number) for number in cells.loc[cells["feasible"] > 0, "id"]} <= {int(number) for number in drawn}
    top = found.top(20)
    assert all(f"<td>{int(number):,}</td>" in text for number in top["id"])
    assert by_name("sample_rate").short in text


def test_the_report_tells_what_its_own_cost_model_leaves_out() -> None:
    small = {"num_procs": 8, "max_batch_size": 8, "limits": {"tensor_par": [8], "microbatch_size": [1]}}
    texts = {}
    for cost_model in ("calculon", "calibrated"):
        found = engine.explore("llama-3.1-8B", "h100_80g_sxm", datatype="bfloat16", cost_model=cost_model, **small)
        texts[cost_model] = unescape(without_library(report.build(found)))
    assert "Grouped-query attention: 8 key/value heads are counted as 32" in texts["calculon"]
    assert "Grouped-query" not in texts["calibrated"]
    assert "neither time nor memory" not in texts["calibrated"]
    assert "Biases and the weights of norms are not counted." in texts["calibrated"]


@pytest.mark.parametrize(("cost_model", "other"), [("calculon", "context_par"), ("calibrated", "optimizer_sharding")])
def test_the_report_says_what_its_words_mean(cost_model: str, other: str) -> None:
    found = engine.explore(
        "gpt3-1.3B", "h100_80g_nvl8", num_procs=4, max_batch_size=4, datatype="float16", cost_model=cost_model
    )
    page = unescape(without_library(report.build(found)))
    for name in ("tensor_par", "pipeline_par", "data_par", "activation_recompute"):
        column = by_name(name)
        assert f"<b>{column.label}</b> ({column.short}): {column.description}" in page
    assert by_name(other).description not in page


def test_the_report_loads_nothing() -> None:
    page = Page(without_library(report.build(exploration(), "https://example.org/?model=x")))
    for tag, attributes in page.elements:
        assert not {"src", "href", "srcset", "action", "data"} & attributes.keys(), (tag, attributes)
        assert tag not in ("link", "iframe", "object", "embed", "form", "base", "img")
        assert not any(name.startswith("on") for name in attributes)
    style = "".join(page.texts.get("style", ""))
    assert style.count("url(") == style.count('url("data:font/woff2;base64,') == 1  # the font that it brings
    assert "@import" not in style
    policy = next(each["content"] for tag, each in page.elements if each.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "unsafe-eval" not in policy
    assert "script-src 'sha256-" in policy


@pytest.mark.parametrize("cost_model", ["calculon", "calibrated"])
def test_the_table_of_the_best_has_every_choice_in_which_they_differ(cost_model: str) -> None:
    found = (
        exploration()
        if cost_model == "calculon"
        else engine.explore("gpt3-13B", "h100_80g_nvl8", **SMALL, cost_model="calibrated")
    )
    text = top_table(found)
    heads = re.findall(r"<th [^>]*>([^<]*)</th>", text)
    top = found.top(20)
    told_otherwise = {"optimizer_sharding", "selective_recompute", "tensor_par_net", "pipeline_par_net", "data_par_net"}
    for column in fields_of(cost_model):
        if cost_model == "calibrated" and column.name in told_otherwise:
            continue
        if top[column.name].nunique() > 1:
            assert column.short in heads
        elif not column.name.endswith("_par"):
            assert column.short not in heads
    rows = [re.findall(r"<td>([^<]*)</td>", line) for line in text.split("<tr>")[2:]]
    assert {len(row) for row in rows} == {len(heads)}
    place = heads.index("HBM, GiB")
    assert [float(row[place]) for row in rows] == pytest.approx(
        [need / 2**30 for need in top["proc_mem_tier1_cap_req"]], abs=0.05
    )
    assert len({len(row[place].partition(".")[2]) for row in rows}) == 1  # digits that align


def evil_exploration() -> engine.Exploration:
    system = hardware.edited(
        hardware.load("h100_80g_nvl8"), {"mem1.capacity_gib": 96.0, "source": EVIL}, name=EVIL, title=EVIL
    )
    return engine.explore("gpt3-13B", system, **SMALL, limits={"tensor_par": [4], "pipeline_par": [1, 2]})


def test_no_text_becomes_markup() -> None:
    found = evil_exploration()
    text = without_library(report.build(found, f"http://x/?{EVIL}", EVIL))
    assert "<img" not in text
    assert "<script>alert" not in text
    page = Page(text)
    assert sum(tag == "script" for tag, _ in page.elements) == 4
    assert Scenario.from_document(json.loads(page.texts["scenario"])) == found.scenario


def test_a_space_in_which_nothing_fits_has_a_report_too() -> None:
    found = exploration("hopeless")
    text = without_library(report.build(found))
    assert "<b>Nothing fits.</b>" in text
    cells = found.by_cell()
    nearest = cells.loc[cells["shortfall_bytes"].idxmin()]
    assert f"{gibibytes(nearest['shortfall_hbm_bytes'])} too much" in text
    assert "**" not in text.partition("<h2>Figures</h2>")[0]
    assert re.search(r"What would make it run: .*(GPUs instead of|Lift all limits)", text)
    figures = json.loads(Page(text).texts["figures"])
    assert "map" in figures
    assert "reasons" in figures
    assert "time" not in figures
