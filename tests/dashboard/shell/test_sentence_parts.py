"""Parts of the sentence: each is in the link and comes back from it, also when several change one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.link.figures import FiguresLink
from dashboard.link.scenario_parameters import read_scenario
from engine import Scenario

START = {"model": "llama-3.1-70B", "system": "h100_80g_sxm", "procs": "64", "batch": "128", "type": "bfloat16"}
SCRIPT = """
from dashboard.link import state
from dashboard.link.figures import parse_figures
from dashboard.link.shared import parse_shared
from dashboard.shell.scenario import sentence

state.begin("")
sentence.show(parse_shared().scenario, parse_figures())
"""


def opened(link: Mapping[str, Any]) -> AppTest:
    app = AppTest.from_string(SCRIPT, default_timeout=30)
    for name, value in link.items():
        app.query_params[name] = value
    return ran(app)


def ran(app: AppTest) -> AppTest:
    app.run()
    assert not app.exception, [error.value for error in app.exception]
    return app


def link_of(app: AppTest) -> dict[str, str]:
    return {
        name: value[0] if isinstance(value, list) else str(value) for name, value in app.session_state["_url"].items()
    }


def words(app: AppTest) -> str:
    """The sentence as it reads: names of its slots."""
    return " ".join(str(block.proto.popover.label) for block in app.get("popover"))


def typed(app: AppTest, name: str, value: float) -> AppTest:
    key = next(each.key for each in app.number_input if str(each.key).partition("~")[0] == f"sentence_{name}")
    app.number_input(key=key).set_value(float(value))
    return ran(app)


def chosen(app: AppTest, value: str) -> AppTest:
    way = next(each for each in app.get("button_group") if str(each.key).partition("~")[0] == "sentence_batch_way")
    way.set_value(value)
    return ran(app)


PARTS: Mapping[str, tuple[Callable[[AppTest], AppTest], Callable[[Scenario, Mapping[str, str]], object], object]] = {
    "GPUs": (lambda app: typed(app, "procs", 96), lambda found, link: found.num_procs, 96),
    "sequences": (lambda app: typed(app, "batch", 130), lambda found, link: found.max_batch_size, 130),
    "tokens per sequence": (
        lambda app: typed(app, "sequence", 32_768),
        lambda found, link: (found.model.seq_size, found.model.title, found.model.derived_from),
        (32_768, "Llama 3.1 70B", "llama-3.1-70B"),
    ),
    "exact batch": (lambda app: chosen(app, "exact"), lambda found, link: found.field_limits, {"batch_size": [128]}),
    "GPUs per node": (
        lambda app: typed(app, "node", 4),
        lambda found, link: (found.system.node_size, [cell.batch_size for cell in found.space.cells] != []),
        (4, True),
    ),
    "tokens to train": (lambda app: typed(app, "tokens", 15_000), lambda found, link: link["tokens"], "15000"),
}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_the_sentence_is_in_the_link_and_comes_back_from_it(part: str) -> None:
    change, value, expected = PARTS[part]
    app = change(opened(START))
    link = link_of(app)
    reading = read_scenario(link)
    assert not reading.problems
    assert value(reading.scenario, link) == expected
    again = opened(link)
    assert words(again) == words(app)
    assert words(again) != words(opened(START))


def test_parts_changed_one_after_the_other_all_hold_and_can_be_taken_back() -> None:
    app = opened(START)
    for part in PARTS:
        app = PARTS[part][0](app)
    link = link_of(app)
    found = read_scenario(link).scenario
    assert (found.num_procs, found.max_batch_size, found.model.seq_size) == (96, 130, 32_768)
    assert (found.system.node_size, found.field_limits, link["tokens"]) == (4, {"batch_size": [130]}, "15000")
    app = typed(app, "batch", 128)  # an exact batch stays exact
    assert read_scenario(link_of(app)).scenario.field_limits == {"batch_size": [128]}
    for name, value in (("procs", 64), ("sequence", 8_192), ("node", 8), ("tokens", 1_000)):
        app = typed(app, name, value)
    app = chosen(app, "most")
    link = link_of(app)
    start = read_scenario(START).scenario
    assert read_scenario(link).scenario == start
    assert set(link) <= {*START, "cost"}
    assert words(app) == words(opened(START))


def test_suggested_gpus_fill_racks_of_72() -> None:
    app = opened({**START, "system": "gb200_186g_nvl72", "procs": "144"})
    pills = next(each for each in app.get("button_group") if str(each.key).startswith("sentence_procs_pick"))
    numbers = [int(option.content.replace(",", "")) for option in pills.proto.options]
    assert 72 in numbers
    assert all(number % 72 == 0 for number in numbers)


def test_tokens_are_declared_once() -> None:
    assert FiguresLink().tokens == 1_000.0
