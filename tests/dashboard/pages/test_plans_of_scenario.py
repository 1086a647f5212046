"""Pages of plans open with the scenario that the reader comes with; links to published settings stay as they are."""

from __future__ import annotations

from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.link import scenario_parameters
from engine import Scenario

SCENARIO = Scenario.of("llama-3-8B", "a100_80g_sxm", num_procs=16, max_batch_size=32, datatype="bfloat16")


def parsed(page: str, link: dict[str, str]) -> Any:
    """The view of a page."""

    def script(page: str, views: list) -> None:  # type: ignore[type-arg]
        from dashboard.pages import registry

        views.append(registry.page(page).view().parse())

    views: list[Any] = []
    app = AppTest.from_function(script, default_timeout=60, kwargs={"page": page, "views": views})
    app.session_state["_url"] = link
    app.run()
    assert not app.exception
    return views[0]


def values(page: str, link: dict[str, str]) -> dict[str, Any]:
    view = parsed(page, link)
    fields = view.part.fields if page == "elastic" else view.fields
    return {name: field.value for name, field in fields.items()}


@pytest.mark.parametrize("page", ["layerwise", "intra_operator", "elastic"])
def test_model_and_system_are_those_of_the_scenario(page: str) -> None:
    shown = values(page, scenario_parameters.parameters_of(SCENARIO))
    assert (shown["model"], shown["system"]) == ("llama-3-8B", "a100_80g_sxm")
    if page != "intra_operator":
        assert shown["global_batch"] == 32
        assert shown["gpus" if page == "layerwise" else "most_gpus"] == 16


@pytest.mark.parametrize(
    ("page", "link"),
    [
        ("layerwise", {}),
        ("layerwise", {"layerwise_profile": "vgg19"}),
        ("intra_operator", {}),
        ("intra_operator", {"intra_operator_suite": "gpt A"}),
    ],
)
def test_published_settings_stay_where_they_are_asked_for_or_nothing_else_is(page: str, link: dict[str, str]) -> None:
    scenario = scenario_parameters.parameters_of(SCENARIO) if link else {}
    assert "model" not in values(page, {**scenario, **link})
