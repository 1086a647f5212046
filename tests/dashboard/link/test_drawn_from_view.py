"""A page is drawn from its parsed view: drawn twice from one view, with an empty session between, it is the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn
from unittest.mock import patch

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.link import state
from dashboard.link.scenario_parameters import parameters_of
from dashboard.link.text_encoding import folded
from tests.dashboard.page_runs import elements, exploration

READERS = ("url_value", "current_scenario", "selected_cell", "selected_id", "own_id", "link_parameters")
"""Functions of `dashboard.link.state` that read the link."""

SMALL_FLEET = {
    "pools": [{"system": "h100_80g_sxm", "num_procs": 8, "spare_nodes": 0}],
    "jobs": [{"model": "llama-3-8B", "max_batch_size": 64, "limits": {"tensor_par": 1, "context_par": 1}}],
}
LINKS: Mapping[str, Mapping[str, str]] = {
    "explore": {"metric": "mfu", "map_domain": "zero", "cell": "2x4", "recommended_headroom": "20"},
    "pareto": {"pareto_x": "total_time", "pareto_yscale": "log", "pareto_columns": "on", "pareto_z": "mfu"},
    "results": {"results_sort": "total_time", "results_size": "250", "cell": "2x4", "id": "4000"},
    "execution": {"execution_b": "cell", "execution_figure": "mfu", "execution_run_mtbf_h": "70000", "id": "4000"},
    "memory": {"cell": "2x4"},
    "compare": {"compare_b": "procs=8"},
    "schedules": {"schedules_ranks": "2", "schedules_microbatches": "5"},
    "calibrate": {},
    "validation": {},
    "serving": {},
    "day": {"day_peak": "90", "day_most": "2", "day_reserved": "1.5", "day_engine": "vllm"},
    "fleet": {"fleet_example": "own", "fleet_own": folded(json.dumps(SMALL_FLEET)), "fleet_figures_of": "fastest"},
    "post_training": {"post_training_procs": "16", "post_training_mode": "colocated", "post_training_cap": "2000"},
    "post_training of a data set": {"post_training_kind": "tuning", "post_training_rank": "64"},
    "layerwise": {"layerwise_mode": "released"},
    "papers": {},
    "library": {"library_kind": "systems", "library_item": "a100_80g"},
    "scenarios": {"scenarios_kind": "saved"},
    "guide": {"chapter": "glossary"},
    "intra_operator": {
        "intra_operator_suite": "gpt A",
        "intra_operator_layers": "1",
        "intra_operator_shown": "all",
        "intra_operator_recompute": "full",
    },
    "elastic": {"elastic_card": "roberta", "elastic_rule": "n/g, g, 1", "elastic_beside": "vit", "elastic_every": "on"},
    "codesign": {"codesign_study": "offload_capacity_and_bandwidth"},
    "whatif": {"whatif_changes": "hbm_bandwidth:6144", "whatif_around": "whatif", "whatif_one": "matrix"},
}
"""A link to each page that is drawn from its view alone, with values other than the defaults. Words behind its name
tell several links to one page apart."""
EXPLORED = ("explore", "pareto", "results", "execution", "memory")
"""Pages about an exploration."""
RUNNING = ("whatif", "codesign")
"""Pages whose jobs find more between the two drawings: points of a study, times of a design."""


def _parse_and_draw(page: str, needed: list, views: list) -> None:  # type: ignore[type-arg]
    from dashboard.pages import registry

    module = registry.page(page).view()
    views.append(module.parse(*needed))
    module.render(views[0])


def _draw(page: str, views: list) -> None:  # type: ignore[type-arg]
    from dashboard.pages import registry

    registry.page(page).view().render(views[0])


@contextmanager
def unreadable_link() -> Iterator[None]:
    """Have every read of the link raise."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("The page reads the link while it is drawn.")

    with patch.multiple(state, **dict.fromkeys(READERS, refuse)):
        yield


def drawn(app: AppTest) -> list[tuple[str, str]]:
    """Return the elements of a page with their contents, in order."""
    assert not app.exception, [error.value for error in app.exception]
    told = [(each.type, str(getattr(each, "proto", ""))) for each in elements(app)]
    random = r"\$\$ID-[0-9a-f]+|(?<=_id: \")[0-9a-f]+|(?<=uuid: \")[0-9a-f]+"  # of script, files and styles
    return [(kind, re.sub(random, "", text)) for kind, text in told]


@pytest.mark.parametrize("named", LINKS)
def test_a_page_is_drawn_from_its_view_alone(named: str) -> None:
    page, found = named.partition(" ")[0], exploration()
    needed, views = [found] if page in EXPLORED else [], list[Any]()
    first = AppTest.from_function(
        _parse_and_draw, default_timeout=120, kwargs={"page": page, "needed": needed, "views": views}
    )
    first.session_state["_url"] = parameters_of(found.scenario) | LINKS[named]
    first.run()
    drawings = []
    for _ in range(2):  # a session of its own each; what the page had to compute is there by now
        again = AppTest.from_function(_draw, default_timeout=120, kwargs={"page": page, "views": views})
        with unreadable_link():
            again.run()
        drawings.append(drawn(again))
    assert page in RUNNING or drawings[0] == drawings[1]
    assert len(drawn(first)) > 5
    assert len(drawings[0]) > 5
