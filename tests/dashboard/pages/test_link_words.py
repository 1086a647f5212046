"""What a link asks for and does not get is told, on every page and in words; what it asks for rightly is kept."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import NumberInput

from tests.dashboard.page_runs import ROOT, exploration, run

SMALL = {
    "model": "gpt3-13B",
    "procs": "16",
    "batch": "32",
    "type": "float16",
    "limits": "weight_offload:off;activations_offload:off;optimizer_offload:off",
}


def told(page: AppTest) -> dict[str, str]:
    """What a page complains of, by parameter."""
    kept = page.session_state
    return dict(kept["_url_problems"]) if "_url_problems" in kept else {}


WRONG = [
    ("explore", "metric", "foo", "The link's metric cannot be 'foo' here; it may be sample_rate, "),
    ("explore", "map_x", "tensor", "The link's axis across (map_x) cannot be 'tensor' here; did you mean"),
    ("explore", "map_facet", "5", "Showing none instead."),
    (
        "explore",
        "results_where",
        "foo:1;tensor_par:x",
        "no field or result 'foo' to filter by; the filter is left out. The filter 'tensor_par:x' cannot be read",
    ),
    ("explore", "map_table", "maybe", "cannot be 'maybe' here; it must be on or off. Showing off instead."),
    ("results", "results_sort", "speed", "The link's column to sort by (results_sort) cannot be 'speed' here"),
    ("results", "results_order", "up", "it must be best or worst. Showing best instead."),
    ("results", "results_size", "7", "it must be 100, 250 or 1000"),
    ("results", "results_page", "999999", "The link's page 999,999 does not exist; there are"),
    ("results", "results_columns", "id,wrong", "The link's columns name wrong, which do not exist; left out."),
    ("results", "results_where", "<b>", "The link's filters (results_where) cannot be '<b>' here. It is left"),
    ("execution", "execution_b", "999999999", "execution B 999,999,999 does not exist; ids run from 0 to"),
    ("execution", "execution_figure", "x", "The link's figure of the formula (execution_figure) cannot be 'x'"),
    ("memory", "memory_tier", "tape", "The link's memory (memory_tier) cannot be 'tape' here; it must be"),
    ("pareto", "pareto_x", "tensor", "The link's axis across (pareto_x) cannot be 'tensor'"),
    ("whatif", "whatif_step", "11", "The link's step of a change (whatif_step) cannot be '11' here"),
    ("serving", "serving_procs", "9999999", "The link's number of GPUs is 9,999,999; it must be at most"),
    ("serving", "serving_id", "999999999", "The link's deployment 999,999,999 does not exist; ids run from 0 to"),
    ("serving", "serving_model", "gpt5", "The link's model (serving_model) cannot be 'gpt5' here; did you mean"),
    ("validation", "validation_run", "999999", "The link's run 999999 does not exist; there are"),
    ("validation", "validation_field", "x", "The link's field (validation_field) cannot be 'x'"),
    ("calibrate", "calibrate_base", "x", "The link's base (calibrate_base) cannot be 'x'"),
    ("library", "library_item", "gpt-175B", "The link's entry 'gpt-175B' is not in the library; did you mean"),
    ("library", "library_kind", "x", "it must be models or systems. Showing models instead."),
    ("scenarios", "scenarios_kind", "x", "The link's kind (scenarios_kind) cannot be 'x'"),
]
"""Page, parameter, value that cannot be, and what is said of it."""


@pytest.mark.parametrize("page", dict.fromkeys(page for page, *_ in WRONG))
def test_a_value_that_cannot_be_is_told(page: str) -> None:
    """Each by itself, also where a link has several."""
    wrong = {name: (value, said) for on, name, value, said in WRONG if on == page}
    found = told(run(page, exploration(), {name: value for name, (value, _) in wrong.items()}))
    assert set(found) == set(wrong)
    for name, (_, said) in wrong.items():
        assert said in found[name]


def test_an_entry_of_the_other_list_of_the_library_is_no_mistake() -> None:
    assert not told(run("library", exploration(), {"library_kind": "systems", "library_item": "gpt3-175B"}))


def opened(**link: str) -> AppTest:
    """The whole app from a link."""
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    for name, value in {**SMALL, **link}.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception, [error.value for error in app.exception]
    return app


def box(app: AppTest) -> str:
    """What stands in the box above the page, without the marks that keep text from being formatted."""
    found = [warning.value for warning in app.warning if warning.icon == ":material/link_off:"]
    return "\n".join(found).replace("\\", "")


def test_cells_and_names_that_there_are_not_are_told_and_the_rest_is_kept() -> None:
    app = opened(cell="99x99", axes="tensor_par", facet="x", filter="y", metric="total_time", procs="-1")
    said = box(app)
    assert "The link's number of GPUs is -1" in said
    assert "The link's cell TP 99 × PP 99 does not exist; TP goes up to" in said
    assert "The link's 'axes' is unknown here and ignored; did you mean map_x or map_y." in said
    assert "did you mean map_facet" in said
    assert "did you mean results_where" in said
    assert app.query_params["model"] == "gpt3-13B"
    assert app.query_params["metric"] == "total_time"


def test_a_cell_that_another_scenario_does_not_have_is_given_up_without_a_word() -> None:
    app = opened(cell="4x4")
    assert not box(app)
    app.number_input(key="sentence_procs").set_value(8).run()
    assert not app.exception
    assert "cell" not in app.query_params
    assert not box(app)


def procs(app: AppTest) -> NumberInput:
    """The field for the number of GPUs, which is another one where the scenario has another than was put in."""
    return next(field for field in app.number_input if str(field.key).startswith("sentence_procs"))


def test_a_number_of_gpus_between_two_is_the_nearest() -> None:
    app = opened()
    for given, shown in ((7.6, 8), (8.5, 9), (16.4, 16)):
        procs(app).set_value(given).run()
        assert not app.exception
        assert str(shown) in app.query_params["procs"]
        assert procs(app).value == shown


def test_the_box_goes_when_what_it_tells_of_is_put_right() -> None:
    app = opened(metric="foo")
    assert "cannot be 'foo'" in box(app)
    app.segmented_control(key="_metric").set_value("total_time").run()
    assert not app.exception
    assert not box(app)
