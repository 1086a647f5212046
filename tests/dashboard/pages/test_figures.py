"""One choice, recommended or fastest, decides whose figures every page, command and answer shows; what speaks against
that execution goes with them, and no map waits for the recommendation."""

from __future__ import annotations

import functools
import html as markup
import json
import re
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest
from typer.testing import CliRunner

from dashboard.files import report
from dashboard.link.figures import FiguresLink
from dashboard.queries.accuracy import doubts
from dashboard.queries.figures import WORKING
from dashboard.queries.recommendation import begin_advice, workers
from dashboard.queries.tie_breaking import best_of
from dashboard.words.numbers import format_value
from engine import Exploration, Scenario, codesign, explore_scenario
from engine.cli.main import app as commands
from engine.executions.execution_names import execution_name
from engine.questions import answer
from engine.questions.documents.comparison import CompareQuestion
from engine.questions.documents.cost import PlanRunQuestion
from engine.questions.documents.explorations import BestQuestion, ExploreQuestion, FiguresQuestion
from engine.questions.fields import question_fields
from engine.recommendation import recommend, shown_sizes
from tests.dashboard.page_runs import again, figure, html, plainly, run
from tests.dashboard.server import own_server

CHOICES = ("recommended", "fastest")
ONE_NAME = {"HBM per GPU": "HBM", "HBM needed": "HBM"}
"""Labels of one figure on several pages."""
STATISTICS = {"Step time": "total_time", "Throughput": "sample_rate", "HBM": "proc_mem_tier1_cap_req"}


@functools.cache
def explored() -> Exploration:
    """Llama 3 8B on 8 H100: the fastest may not fit, the recommended one does."""
    return explore_scenario(
        Scenario.of(
            "llama-3-8B",
            "h100_80g_sxm",
            num_procs=8,
            max_batch_size=32,
            datatype="bfloat16",
            limits={"tensor_par": [1, 2], "weight_offload": [False]},
        )
    )


OPTIONS = ["llama-3-8B", "h100_80g_sxm", "--procs", "8", "--max-batch", "32", "--datatype", "bfloat16"]
OPTIONS += ["--limit", "tensor_par=1,2", "--limit", "weight_offload=off", "--json"]


@functools.cache
def expected(choice: str) -> dict[str, Any]:
    """The execution of a choice, by the engine alone."""
    found = recommend(explored()).execution if choice == "recommended" else best_of(explored())
    assert found is not None
    return dict(explored().evaluate_ids([int(found["id"])]).iloc[0])


@functools.cache
def told_by(page: str, choice: str) -> str:
    """All HTML of a page, without tags and entities."""
    other = {"compare_b": "~hbm_bandwidth:6144"} if page == "compare" else {}
    link = {"figures": choice} if choice != "recommended" else {}
    return plainly(markup.unescape(html(run(page, explored(), {**link, **other}))))


def tiles_of(page: str, choice: str) -> Mapping[str, str]:
    """Headline figures of a page by label."""
    labels = "|".join((*ONE_NAME, *STATISTICS, "MFU, causal", "1 T tokens take", "Host memory"))
    found = re.findall(rf'aria-label="(?:A · )?({labels}|throughput) ([^",]*)', told_by(page, choice))
    tiles = {}
    for label, value in found:
        label = label[:1].upper() + label[1:]
        tiles.setdefault(ONE_NAME.get(label, label), value)
    return tiles


@pytest.mark.parametrize("choice", CHOICES)
def test_every_page_and_command_has_one_number_and_one_name_for_one_execution(choice: str) -> None:
    row, pages = expected(choice), ("explore", "execution", "memory", "compare", "whatif")
    tiles = {page: tiles_of(page, choice) for page in pages}
    shared = 0
    for label in {label for each in tiles.values() for label in each}:
        values = {page: each[label] for page, each in tiles.items() if label in each}
        assert len(set(values.values())) == 1, (label, values)
        shared += len(values) > 1
        if label in STATISTICS:
            assert set(values.values()) == {plainly(format_value(STATISTICS[label], row[STATISTICS[label]]))}
    assert shared >= 4
    assert all(execution_name(row) in told_by(page, choice) for page in pages)
    results = run("results", explored(), {"figures": choice})
    line = plainly(next(each.value for each in results.markdown if each.value.startswith(f"**{choice.capitalize()}")))
    assert execution_name(row) in line
    assert all(plainly(format_value(name, row[name])) in line for name in ("total_time", "sample_rate"))
    front = run("pareto", explored(), {"figures": choice})
    [star] = [each for each in figure(front, "pareto_plot")["data"] if each.get("name") == choice.capitalize()]
    assert star["y"] == pytest.approx([row["sample_rate"]])
    assert any(f"the {choice} execution, {execution_name(row)}" in each.value for each in front.caption)
    question = {"scenario": explored().scenario.to_document(), "figures_of": choice, "statistics": ["all"]}
    both = {**question, "scenarios": [question["scenario"]] * 2}
    both.pop("scenario")
    told = CliRunner().invoke(commands, ["best", *OPTIONS, "--figures-of", choice]).stdout
    answers = [
        answer("best", question)["shown"],
        answer("explore", question)["shown"],
        answer("compare", both)["scenarios"][1]["shown"],
        json.loads(told)["shown"],
        json.loads(CliRunner().invoke(commands, ["explore", *OPTIONS, "--figures-of", choice]).stdout)["shown"],
    ]
    changed = answer("what_if", {**question, "changes": {}})
    answers += [changed["shown"], changed["shown_before"]]
    for each in answers:
        assert (each["figures_of"], each["execution"]["id"]) == (choice, row["id"])
        for name in STATISTICS.values():
            assert each["execution"][name] == row[name]


@pytest.mark.parametrize("choice", CHOICES)
def test_what_ranks_by_the_fastest_shows_the_same_execution_of_one_point(choice: str) -> None:
    row, scenario = expected(choice), explored().scenario
    limits = dict(scenario.limits)
    study = {
        "format": codesign.FORMAT,
        "name": "one design",
        "models": ["llama-3-8B"],
        "systems": ["h100_80g_sxm"],
        "sizes": [8],
        "datatypes": ["bfloat16"],
        "batches": [32],
        "costs": {"preset": "h100_2024"},
        "limits": limits,
    }
    designs = answer("codesign", {"study": study, "figures_of": choice, "objectives": ["tokens_per_s"]})
    elastic = answer(
        "plan_elastic",
        {
            "model": "llama-3-8B",
            "system": "h100_80g_sxm",
            "global_batch": 32,
            "gpus": [8],
            "limits": limits,
            "figures_of": choice,
        },
    )
    for shown in (designs["shown"]["llama-3-8B"], elastic["shown"]):
        assert shown["figures_of"] == choice
        assert execution_name(shown["execution"]) == execution_name(row)
        assert all(shown["execution"][name] == row[name] for name in STATISTICS.values())
    [point] = shown_sizes(scenario, [8], "kept", choice)  # type: ignore[arg-type]
    assert (point.rate, point.efficiency) == (row["sample_rate"], row["total_efficiency"])
    assert designs["best"]["samples_per_s"] == elastic["sizes"][0]["raw_best"] == expected("fastest")["sample_rate"]


def test_what_speaks_against_an_execution_goes_with_its_figures() -> None:
    scenario, row = explored().scenario, expected("fastest")
    sentences = [plainly(each) for each in doubts(scenario, row)]
    assert any(each.startswith("May not fit") for each in sentences)
    assert not doubts(scenario, expected("recommended"))
    for page in ("explore", "execution", "memory", "compare", "whatif", "results"):
        assert all(each in told_by(page, "fastest") for each in sentences), page
    shown = answer("best", {"scenario": scenario.to_document(), "figures_of": "fastest"})["shown"]
    assert shown["execution"]["fit"] == "may not fit"
    assert shown["not_measured"] == list(scenario.not_measured(row))
    offloading = next(
        each
        for each in explored().evaluate_ids(range(0, explored().total, 997)).to_dict("records")
        if each["status"] == "ok" and scenario.not_measured(each)
    )
    [*_, last] = doubts(scenario, offloading)
    assert last == f"No measured run has: {', '.join(scenario.not_measured(offloading))}."


def test_a_map_is_there_while_the_recommendation_is_worked_out() -> None:
    free, link = threading.Event(), {"recommended_headroom": "3"}
    best = format_value("sample_rate", expected("fastest")["sample_rate"])
    with own_server(None, PATIENCE=0):
        busy = [workers.submit(free.wait, 60) for _ in range(2)]
        try:
            app = run("explore", explored(), link)
            assert figure(app, "explore_map")["data"]
            assert "The recommendation is being worked out." in html(app)
            assert 'aria-label="Throughput –' in html(app)
            assert "TP 2 × PP 1" in html(run("explore", explored(), {**link, "cell": "2x1"}))  # a click is answered
            fast = run("explore", explored(), {**link, "figures": "fastest"})
            assert f'aria-label="Throughput {best}' in html(fast)
        finally:
            free.set()
        assert all(each.result() for each in busy)
        found = begin_advice(explored(), FiguresQuestion(headroom=0.03)).result().execution
        again(app, explored())
    assert found is not None
    value = format_value("total_time", found["total_time"])
    assert f'aria-label="Step time {value}' in html(app)
    assert "being worked out" not in html(app)


def test_no_page_keeps_a_reader_waiting_for_the_recommendation() -> None:
    free, link = threading.Event(), {"recommended_headroom": "4", "compare_b": "~hbm_bandwidth:6144"}
    pages = ("execution", "memory", "compare", "pareto", "explore")
    with own_server(None, PATIENCE=0):
        until, ready = time.monotonic() + 60, ""
        while "B · throughput" not in ready and time.monotonic() < until:  # B is explored meanwhile
            ready = html(run("compare", explored(), {**link, "figures": "fastest"}))
        busy = [workers.submit(free.wait, 60) for _ in range(2)]
        link["recommended_headroom"] = "5"
        try:
            for page in pages:
                app = run(page, explored(), link)
                captions = " ".join(each.value for each in app.caption)
                assert WORKING in html(app) + captions, page
                offered = [each.label for each in app.button] + [
                    one for each in app.button_group for one in each.options
                ]
                assert {"Show the fastest", "Fastest"} & set(offered), page
                fast = run(page, explored(), {**link, "figures": "fastest"})
                assert execution_name(expected("fastest")) in html(fast) + " ".join(each.value for each in fast.caption)
        finally:
            free.set()
        assert all(each.result() for each in busy)


def test_the_recommended_of_a_cell_is_the_best_choice_within_it() -> None:
    for cell in ("1x1", "2x1", "2x2"):
        tensor, pipeline = map(int, cell.split("x"))
        where = [("tensor_par", "=", tensor), ("pipeline_par", "=", pipeline)]
        here = recommend(explored(), where=where).execution
        of_all = expected("recommended")
        if (of_all["tensor_par"], of_all["pipeline_par"]) == (tensor, pipeline):
            here = of_all
        assert here is not None
        assert (here["tensor_par"], here["pipeline_par"]) == (tensor, pipeline)
        step = plainly(format_value("total_time", here["total_time"]))
        assert f"<b>{step}</b>" in plainly(html(run("explore", explored(), {"cell": cell})))
        assert f'aria-label="Step time {step}' in plainly(html(run("execution", explored(), {"cell": cell})))


@pytest.mark.parametrize("choice", CHOICES)
def test_the_report_of_a_scenario_has_the_figures_of_its_pages(choice: str) -> None:
    text = report.build(explored(), asked=FiguresQuestion(figures_of=choice)).decode()
    told = plainly(markup.unescape(re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)))
    row, labels = expected(choice), tiles_of("execution", choice)
    assert f'aria-label="Step time {labels["Step time"]}' in told
    assert f'aria-label="HBM per GPU {labels["HBM"]}' in told
    assert f'aria-label="Throughput {plainly(format_value("sample_rate", row["sample_rate"]))}' in told
    assert f"The {choice} execution" in told
    assert f"<td>{execution_name(row)}</td>" in told
    for each in doubts(explored().scenario, row):
        assert plainly(each) in told
    assert ("May not fit" in told) == (choice == "fastest")


def test_all_questions_and_links_have_the_same_choice() -> None:
    for document in (BestQuestion, ExploreQuestion, CompareQuestion, PlanRunQuestion):
        field = question_fields(document)["figures_of"]
        assert (tuple(field.choices), field.default, field.label) == (CHOICES, "recommended", "Figures of")
    assert question_fields(FiguresLink)["figures"].default == "recommended"
    unknown = run("explore", explored(), {"figures": "slowest"})
    assert tiles_of("explore", "recommended")["Step time"] in plainly(html(unknown))
