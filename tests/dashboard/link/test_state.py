"""What the URL says survives switching pages and comes back from a link; limits read as they were written."""

from __future__ import annotations

import re
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from dashboard.link import scenario_parameters, state
from dashboard.words.markdown import literal
from engine import Scenario
from engine.executions.limits import normalise
from tests.texts import any_text


def script() -> None:
    """Stands in for `app.py`: one run of a page of a given path."""
    import streamlit as st

    from dashboard.link import state

    page = st.session_state.get("page", "")
    state.begin(page)
    action = st.session_state.pop("action", None)
    if action:
        getattr(state, action[0])(*action[1:])
    st.session_state["seen"] = {
        "model": state.current_scenario().model.name,
        "cell": state.selected_cell(),
        "id": state.selected_id(),
        "axis": state.url_value("pareto_x", "a", ("a", "b")),
        "problems": state.problems(),
    }


def started(**parameters: str) -> AppTest:
    app = AppTest.from_function(script, default_timeout=30)
    for name, value in parameters.items():
        app.query_params[name] = value
    return run(app)


def run(app: AppTest, action: tuple[Any, ...] | None = None, page: str | None = None) -> AppTest:
    if action:
        app.session_state["action"] = action
    if page is not None:
        app.session_state["page"] = page
    app.run()
    assert not app.exception, [error.value for error in app.exception]
    return app


def seen(app: AppTest) -> dict[str, Any]:
    found: dict[str, Any] = app.session_state["seen"]
    return found


def test_a_link_is_taken_over() -> None:
    app = started(model="gpt3-13B", procs="16", batch="32", cell="4x2", id="17", pareto_x="b")
    assert seen(app) == {"model": "gpt3-13B", "cell": (4, 2), "id": 17, "axis": "b", "problems": ()}


def test_switching_pages_keeps_scenario_and_selection() -> None:
    app = started(model="gpt3-13B", procs="16", batch="32", cell="4x2")
    run(app, ("set_url_value", "pareto_x", "b"))
    app.query_params.clear()  # as the browser does when a page is switched
    run(app, page="memory")
    assert seen(app)["model"] == "gpt3-13B"
    assert seen(app)["cell"] == (4, 2)
    assert seen(app)["axis"] == "b"
    assert app.query_params["model"] == "gpt3-13B"
    assert app.query_params["cell"] == "4x2"


def test_going_back_in_the_browser_wins_over_the_session() -> None:
    app = started(model="gpt3-13B", procs="16", batch="32")
    app.query_params["model"] = "gpt3-6.7B"
    assert seen(run(app))["model"] == "gpt3-6.7B"


def test_selecting_an_execution_selects_its_cell() -> None:
    app = started(model="gpt3-13B", system="h100_80g_nvl8", procs="16", batch="32", type="float16")
    scenario = Scenario.of("gpt3-13B", "h100_80g_nvl8", num_procs=16, max_batch_size=32, datatype="float16")
    row = scenario.space.table([12_345]).iloc[0]
    run(app, ("select", 12_345))
    assert seen(app)["id"] == 12_345
    assert seen(app)["cell"] == (row["tensor_par"], row["pipeline_par"])
    run(app, ("select_cell", 2, 2))
    assert (seen(app)["id"], seen(app)["cell"]) == (None, (2, 2))
    run(app, ("reset_selection",))
    assert (seen(app)["id"], seen(app)["cell"]) == (None, None)
    assert "cell" not in app.query_params


def test_another_scenario_forgets_the_execution() -> None:
    app = started(model="gpt3-13B", procs="16", batch="32", id="17", cell="4x2")
    other = Scenario.of("gpt3-6.7B", "h100_80g_nvl8", num_procs=16, max_batch_size=32, datatype="float16")
    run(app, ("set_scenario", other))
    assert seen(app)["model"] == "gpt3-6.7B"
    assert seen(app)["id"] is None


def stepping() -> None:
    """One run that changes the link in several calls, some of them inside others; counts what the browser is told."""
    from unittest.mock import patch

    import streamlit as st
    from streamlit.runtime.state.query_params_proxy import QueryParamsProxy

    from dashboard.link import state
    from engine import Scenario

    state.begin("")
    told: list[dict[str, str]] = []
    with patch.object(QueryParamsProxy, "from_dict", lambda self, values: told.append(dict(values))):
        try:
            with state.one_step():
                other = {"num_procs": 16, "max_batch_size": 32, "datatype": "float16"}
                state.set_scenario(Scenario.of("gpt3-6.7B", "h100_80g_nvl8", **other))
                with state.one_step():
                    state.set_url_value("pareto_x", "b")
                    assert state.url_value("pareto_x", "a", ("a", "b")) == "b"
                state.select_cell(4, 2)
                assert not told
                raise RuntimeError
        except RuntimeError:
            state.set_url_value("pareto_y", "c")
    st.session_state["told"] = told


def test_what_one_click_changes_is_one_step_even_where_it_fails_midway() -> None:
    app = run(AppTest.from_function(stepping, default_timeout=30))
    both, after = app.session_state["told"]
    assert {name: both[name] for name in ("model", "pareto_x", "cell")} == {
        "model": "gpt3-6.7B",
        "pareto_x": "b",
        "cell": "4x2",
    }
    assert after == {**both, "pareto_y": "c"}


def test_opening_a_scenario_with_its_view_is_one_step() -> None:
    other = Scenario.of("gpt3-6.7B", "h100_80g_nvl8", num_procs=16, max_batch_size=32, datatype="float16")
    app = started(model="gpt3-13B", procs="16", batch="32", id="17", cell="4x2", pareto_x="b")
    seen_by_browser: list[set[str]] = []
    tell = state._tell
    with patch.object(state, "_tell", lambda: (seen_by_browser.append(set(state.st.session_state["_url"])), tell())):
        run(app, ("open_scenario", other, {"cell": "2x2", "memory_tier": "host"}))
    assert len(seen_by_browser) == 1
    assert seen(app)["cell"] == (2, 2)
    assert seen(app)["axis"] == "a"
    assert "pareto_x" not in app.query_params


def test_a_problem_is_told_until_it_is_mended() -> None:
    app = started(pareto_x="nonsense")
    assert seen(app)["axis"] == "a"
    assert any("pareto_x" in problem for problem in seen(app)["problems"])
    run(app, ("set_url_value", "pareto_x", "b"))
    assert seen(app)["problems"] == ()


def test_what_was_wrong_with_the_link_is_forgotten_with_it() -> None:
    app = started(calibrate_base="x")
    run(app, ("complain", "calibrate_base", "The link's base cannot be 'x' here."))
    assert seen(app)["problems"] == ("The link's base cannot be 'x' here.",)
    app.query_params["calibrate_base"] = "y"  # the browser went back
    assert seen(run(app))["problems"] == ()


values = st.integers(1, 10_000)
numbers = st.one_of(
    values,
    st.lists(values, min_size=1, max_size=5),
    st.tuples(values, values).map(lambda ends: {"min": min(ends), "max": max(ends)}),
)
switches = st.one_of(st.booleans(), st.just([True, False]))
limits = st.fixed_dictionaries(
    {},
    optional={
        "tensor_par": numbers,
        "microbatch_size": numbers,
        "weight_offload": switches,
        "activation_recompute": st.lists(st.sampled_from(["full", "attn_only", "none"]), min_size=1, unique=True),
        "tensor_par_overlap": st.sampled_from(["none", "ring", "pipe"]),
        "uneven_pipelines": st.booleans(),
    },
)


@given(limits)
def test_limits_read_as_they_were_written(given_limits: dict[str, Any]) -> None:
    normal = normalise(given_limits, "calculon")
    assert scenario_parameters.limits_from_text(scenario_parameters.limits_to_text(normal), "calculon") == normal


@given(st.dictionaries(st.sampled_from([*scenario_parameters.NAMES, "cell", "id", "own"]), any_text(max_size=80)))
def test_no_link_breaks_anything(parameters: dict[str, str]) -> None:
    found = scenario_parameters.read_scenario(parameters)
    assert found.scenario.space.total >= 0
    assert all(problem.endswith((".", "…")) and "\n" not in problem for problem in found.problems)


@pytest.mark.parametrize(
    ("link", "said"),
    [
        (
            {"procs": "-1"},
            "The link's number of GPUs is -1; it must be a whole number from 1 to 2,147,483,647. Showing 512 instead.",
        ),
        (
            {"batch": "many"},
            "The link's batch is many; it must be a whole number from 1 to 2,147,483,647. Showing 1024 instead.",
        ),
        (
            {"type": "fp8"},
            "The link's datatype is fp8, but NVIDIA H100 80 GB SXM, 8 per NVLink domain has rates for "
            "FP8 (float8) and FP16 (float16) and BF16 (bfloat16) and FP32 (float32) and FP8 block (float8_block). "
            "Showing BF16 instead.",
        ),
        (
            {"system": "h100_80g_nvl8", "type": "bfloat16"},
            "The link's datatype is bfloat16, but H100 80 GB, 8 per NVLink domain (Calculon) has rates for "
            "FP8 (float8) and FP16 (float16) and FP8 block (float8_block). Showing FP16 instead.",
        ),
        (
            {"model": "gpt3-175b"},
            "The link's model gpt3-175b is not in the library; did you mean 'gpt3-175B' or "
            "'gpt3-175B-maxtext' or 'opt-175B'. Showing Llama 3.1 70B instead.",
        ),
        (
            {"limits": "pipelines:2"},
            "The link limits pipelines, which is no choice of an execution; did you mean 'pipeline_par'",
        ),
        (
            {"limits": "tensor_par:x"},
            "Tensor parallel (tensor_par) cannot be 'x'; it is a whole number from 1 to "
            "2,147,483,647. This limit is left out.",
        ),
    ],
)
def test_a_wrong_link_is_told_in_the_words_of_the_pages(link: dict[str, str], said: str) -> None:
    (problem,) = scenario_parameters.read_scenario(link).problems
    assert problem.startswith(said)


def test_of_several_limits_only_those_that_cannot_be_read_are_left_out() -> None:
    limits = "tensor_par:1,2;weight_offload:maybe;pipeline_par:..4;a:1;b:1;c:1"
    found = scenario_parameters.read_scenario({"limits": limits})
    assert found.scenario.limits == {"pipeline_par": {"min": 0, "max": 4}, "tensor_par": [1, 2]}
    assert [problem.split()[0] for problem in found.problems] == ["Offload", "The", "The", "1"]


@pytest.mark.parametrize("limits", [{}, {"tensor_par": [1, 2], "batch_size": {"min": 8, "max": 16}}])
def test_a_link_leads_to_the_same_scenario(limits: dict[str, Any]) -> None:
    scenario = Scenario.of("gpt3-13B", "a100_80g", num_procs=16, max_batch_size=32, datatype="float16", limits=limits)
    found = scenario_parameters.read_scenario(scenario_parameters.parameters_of(scenario))
    assert found.problems == ()
    assert found.scenario.key == scenario.key


def test_markdown_in_foreign_text_is_shown_as_it_is() -> None:
    text = "![x](http://evil.example/x.png) <b>bold</b> $x$ :red[y] `code` [a](javascript:b)"
    assert all(piece not in literal(text) for piece in ("![", "](", "<b>", "$x$", ":red[", "`code`"))


def test_icons_and_smileys_in_foreign_text_are_shown_as_it_is() -> None:
    # What Streamlit's pages look for once Markdown has taken the escapes away.
    shown = literal("a :material/bug: and :+1: at 12:30").replace("\\", "")
    assert re.search(r":material/\w+:|:[\w+-]+:", shown) is None
    assert shown.replace("\u2060", "") == "a :material/bug: and :+1: at 12:30"
