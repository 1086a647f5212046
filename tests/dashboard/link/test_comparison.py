"""A comparison as one file: it says the same elsewhere, and whatever else a file holds ends in one sentence."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

import hardware
import models
from dashboard.link import document_validation, scenario_parameters, vocabulary
from dashboard.link.comparison import VIEW, Comparison
from dashboard.link.document_validation import MOST_BYTES, Refused
from dashboard.queries import compared_scenarios
from dashboard.queries.compared_scenarios import Member
from dashboard.widgets import compared_scenarios as compare_scenarios
from dashboard.widgets import share
from dashboard.widgets.compared_scenarios import SLOTS
from engine import Scenario, whatif
from tests.dashboard.page_runs import SMALL, page_alone, plainly
from tests.dashboard.server import Place, own_server
from tests.texts import any_text

EVIL = "<script>alert(1)</script> ![x](http://evil.example/)"
SEEN = {"compare_metric": "total_time", "compare_domain": "from zero", "compare_pair": "BC", "cell": "2x4"}


def first() -> Scenario:
    return Scenario.of("gpt3-13B", "h100_80g_nvl8", **SMALL)


def own(name: str = EVIL) -> Scenario:
    """A scenario on a system that no library knows."""
    system = hardware.load("a100_80g_sxm").model_copy(update={"name": name, "title": name, "derived_from": ""})
    return Scenario.of("llama-3-70B", system, num_procs=64, max_batch_size=64, datatype="bfloat16")


def link() -> dict[str, str]:
    """What a link to the page has beside A."""
    return {
        **SEEN,
        "compare_b": "~hbm_bandwidth:6144",
        "compare_c": urlencode(scenario_parameters.parameters_of(own())),
        "map_x": "another page's",
    }


def compared() -> Comparison:
    found = share.compared(first(), "compare", link())
    assert found is not None
    return found


def document() -> dict[str, Any]:
    return copy.deepcopy(compared().to_document())


def read(content: Any) -> Comparison:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    found = document_validation.read(data, "sent.json")
    assert isinstance(found, Comparison)
    return found


def test_a_file_says_what_the_link_said() -> None:
    found = read(document())
    assert found.scenarios == (first(), whatif.changed(first(), {"hbm_bandwidth": 6144}), own())
    assert found.view == SEEN
    there = compare_scenarios.parameters_of(found)
    assert there == {name: text for name, text in link().items() if name != "map_x"}
    members = compare_scenarios.members_of(found)
    assert [member.letter for member in members] == ["A", "B", "C"]
    assert [compared_scenarios.told(member, first())[0].partition(" ")[0] for member in members[1:]] == ["A", "Llama"]


@given(
    capacity=st.floats(1, 1e6),
    seq=st.integers(1, 100_000),
    procs=st.sampled_from([8, 16, 24]),
    title=any_text(min_size=1, max_size=60).filter(lambda text: text.isprintable()),
    four=st.booleans(),
)
def test_any_comparison_survives_the_way_into_a_file_and_back(
    capacity: float, seq: int, procs: int, title: str, four: bool
) -> None:
    system = hardware.edited(hardware.load("h100_80g_nvl8"), {"mem1.capacity_gib": capacity}, name=title)
    model = models.edited(models.load("llama-3-70B"), {"seq_size": seq}, name=title, title=title)
    sizes: dict[str, Any] = {"num_procs": procs, "max_batch_size": 32, "datatype": "float16"}
    others = [Scenario.of(model, "h100_80g_sxm", **sizes), own(title)]
    sent = Comparison((Scenario.of("gpt3-13B", system, **sizes), *others[: 1 + four]))
    found = read(sent.to_document())
    assert found == sent
    # ... and on through the link that the page is opened with.
    parameters = compare_scenarios.parameters_of(found)
    first_again = scenario_parameters.read_scenario(scenario_parameters.parameters_of(found.scenarios[0])).scenario
    assert share.compared(first_again, "compare", parameters) == sent


def test_only_the_page_that_compares_has_such_a_file() -> None:
    assert share.compared(first(), "pareto", link()) is None
    assert share.compared(first(), "compare", SEEN) is None
    assert share.compared(first(), "compare", None) is None


def test_the_view_is_what_the_page_reads_and_no_other() -> None:
    own_names = {name for name in vocabulary.WORDS if name.startswith("compare_")} - set(SLOTS)
    assert set(VIEW) == own_names | {"cell", "id", "figures"}


def test_scenarios_of_one_name_are_told_apart_by_their_edits() -> None:
    def told(scenario: Scenario) -> tuple[str, str]:
        return compared_scenarios.told(Member("B", "compare_b", scenario, {}), first())

    plain = told(first())
    name, more = told(whatif.changed(first(), {"hbm_bandwidth": 6144.0}))
    assert name == plain[0]
    assert plainly(more.removeprefix(plain[1])) == " · HBM bandwidth 3,072 → 6,144 GB/s"
    changes = {"hbm_bandwidth": 6144.0, "hbm_capacity": 160.0, "net1_bandwidth": 100.0, "net0_bandwidth": 900.0}
    assert told(whatif.changed(first(), changes))[1].endswith(" · 2 more edits")


def test_a_changed_scenario_holds_where_its_description_does_not() -> None:
    """What differs from A is told in words only if it gives the very scenario that the file holds."""
    wrong = document()
    wrong["changes"] = {"B": {"hbm_bandwidth": 9999.0}, "C": {"nothing": 1.0}}
    there = compare_scenarios.parameters_of(read(wrong))
    b = scenario_parameters.read_scenario(dict([pair.split("=") for pair in there["compare_b"].split("&")]))
    assert b.scenario == whatif.changed(first(), {"hbm_bandwidth": 6144})
    assert there["compare_c"] == link()["compare_c"]


def scenario(**changes: Any) -> dict[str, Any]:
    return {**first().to_document(), **changes}


def nested(depth: int) -> Any:
    return json.loads("[" * depth + "]" * depth)


def with_scenarios(*each: Any) -> dict[str, Any]:
    return {"format": "shardscape-comparison/1", "scenarios": list(each)}


BAD: dict[str, tuple[Any, str]] = {
    "five": (with_scenarios(*[scenario()] * 5), "has 5 entries; it must have at most 4"),
    "one": (with_scenarios(scenario()), "has 1 entries; it must have at least 2"),
    "none": (with_scenarios(), "has 0 entries; it must have at least 2"),
    "no list": ({"format": "shardscape-comparison/1", "scenarios": scenario()}, "a list of 2 to 4 scenarios"),
    "nothing": ({"format": "shardscape-comparison/1"}, "'scenarios' is missing"),
    "a comparison inside": (with_scenarios(scenario(), with_scenarios(scenario(), scenario())), "scenario B"),
    "newer": ({**with_scenarios(scenario(), scenario()), "format": "shardscape-comparison/2"}, "newer Shardscape"),
    "newer scenario": (with_scenarios(scenario(), scenario(format="shardscape-scenario/2")), "newer Shardscape"),
    "other format": ({"format": "shardscape-comparisons/1"}, "shardscape-comparison,"),
    "numbers": (with_scenarios(1, 2), "scenario A"),
    "unknown key": ({**with_scenarios(scenario(), scenario()), "evil": 1}, "evil"),
    "view of lists": ({**with_scenarios(scenario(), scenario()), "view": {"cell": [1]}}, "view.cell"),
    "view of others": ({**with_scenarios(scenario(), scenario()), "view": {"compare_b": "~procs:8"}}, "compare_b"),
    "long view": ({**with_scenarios(scenario(), scenario()), "view": {"id": "1" * 201}}, "view.id"),
    "changes of nobody": ({**with_scenarios(scenario(), scenario()), "changes": {"C": {"procs": 8}}}, "A to B only"),
    "changes of A": ({**with_scenarios(scenario(), scenario()), "changes": {"A": {"procs": 8}}}, "changes.A"),
    "huge change": ({**with_scenarios(scenario(), scenario()), "changes": {"B": {"procs": 10**400}}}, "changes.B"),
    "huge number": (with_scenarios(scenario(), scenario(num_procs=10**30)), "scenario B"),
    "batches": (
        with_scenarios(
            scenario(), scenario(max_batch_size=2**31 - 1, limits={"batch_size": {"min": 1, "max": 2**31 - 1}})
        ),
        "batch sizes",
    ),
    "script": (with_scenarios(scenario(), scenario(datatype="<script>")), "<script>"),
    "deep": (with_scenarios(scenario(), scenario(limits=nested(400))), "deep"),
    "deeper than python": (b'{"format": "shardscape-comparison/1", "scenarios": ' + b"[" * 100_000, "nested"),
    "many values": (with_scenarios(scenario(), scenario(limits={"tensor_par": [1] * 60_000})), "values"),
    "many digits": (b'{"format": "shardscape-comparison/1", "scenarios": ' + b"9" * 90_000 + b"}", "digits"),
    "not a number": (b'{"format": "shardscape-comparison/1", "scenarios": NaN}', "NaN"),
    "large": (b" " * 50_000_000, f"{MOST_BYTES:,}"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_in_one_sentence(name: str) -> None:
    content, word = BAD[name]
    with pytest.raises(Refused) as refusal:
        read(content)
    text = str(refusal.value)
    assert word in text
    assert len(text) <= 500
    assert "\n" not in text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | any_text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


@given(key=st.sampled_from(["format", "scenarios", "changes", "view", "B", "cell"]), value=json_values)
def test_any_value_in_any_key_is_read_or_refused(key: str, value: Any) -> None:
    content = document()
    place = content["changes"] if key == "B" else content["view"] if key == "cell" else content
    place[key] = value
    refusal = ""
    try:
        compare_scenarios.parameters_of(read(content))
    except Refused as problem:
        refusal = str(problem)
    assert len(refusal) <= 500


def too_full_curve() -> list[list[float]]:
    """A thousand steps of an efficiency, none like another, so that packing shortens them little."""
    return [
        [1e6 - step * 999.0 + (step * 0.7391) % 1, 0.9 - step * 7e-4 - (step * 0.3713) % 1e-4] for step in range(1_000)
    ]


def too_full() -> Scenario:
    """A scenario that is more than a link carries."""
    raw = hardware.to_document(hardware.load("h100_80g_nvl8"))
    for tier in ("mem1", "mem2"):
        raw[tier]["mb_efficiency"] = [*too_full_curve()[:-1], [0, 0.05]]
    return Scenario.of("gpt3-13B", hardware.load_document({**raw, "name": "full"}, "full"), **SMALL)


def test_what_no_page_can_carry_is_refused_instead_of_replaced() -> None:
    whole = Comparison((first(), too_full()))
    with pytest.raises(Refused, match="too long for the address of a page"):
        compare_scenarios.parameters_of(read(whole.to_document()))
    assert scenario_parameters.carried(first()) == first()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with own_server(tmp_path) as found:
        yield found


def page(link: dict[str, str] | None = None) -> AppTest:
    app = page_alone("scenarios")
    app.session_state["_url"] = dict(link or {})
    app.session_state["_pages"] = {"compare": "the page Compare"}
    return app.run()


def opened(app: AppTest, content: Any) -> AppTest:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    app.file_uploader[0].set_value(("sent.json", data, "application/json")).run()
    assert not app.exception
    return app


def test_a_file_opens_the_page_with_what_it_holds_alone(place: Place) -> None:
    before = {"compare_d": "~procs:8", "compare_pair": "AD", "whatif_changes": "procs:8"}
    app = opened(page(before), document())
    told = " ".join(str(element.value) for element in (*app.markdown, *app.caption))
    assert "**A** · GPT\\-3 13B" in told
    assert "**B** · A with HBM bandwidth" in told
    assert "\\<script\\>" in told
    assert "<script>alert" not in told
    with patch("streamlit.switch_page") as switched:
        app.button(key="scenarios_open_file").click().run()
    assert not app.exception
    assert switched.call_args.args[0] == "the page Compare"
    assert switched.call_args.kwargs["query_params"] == {
        **{name: text for name, text in link().items() if name != "map_x"},
        **scenario_parameters.parameters_of(first()),
    }
    assert not set(before) & set(app.session_state["_url"])  # neither what was compared before, nor its what-if


@pytest.mark.parametrize("name", ["five", "a comparison inside", "newer", "script"])
def test_a_bad_file_leaves_the_page_as_it_is(place: Place, name: str) -> None:
    before = {"compare_b": "~procs:8"}
    app = opened(page(before), BAD[name][0])
    assert len(app.error) == 1
    assert not [button for button in app.button if button.key == "scenarios_open_file"]
    assert app.session_state["_url"] == before


@pytest.mark.parametrize("whole", [False, True])
def test_a_scenario_that_no_page_can_carry_cannot_be_opened(place: Place, whole: bool) -> None:
    content = Comparison((first(), too_full())).to_document() if whole else too_full().to_document()
    app = opened(page(), content)
    assert "too long for the address of a page" in app.error[0].value
    assert not [button for button in app.button if button.key == "scenarios_open_file"]


def test_a_saved_comparison_has_its_file(place: Place) -> None:
    place.files.keep("Both", first(), "compare", link())
    place.files.keep("Alone", first(), "compare", SEEN)
    keys = [
        [button.key for button in page({"scenarios_pick": each.ident}).get("download_button")]
        for each in place.files.saved()
    ]
    shown = {
        each.title: "scenarios_comparison_file" in found for each, found in zip(place.files.saved(), keys, strict=True)
    }
    assert shown == {"Both": True, "Alone": False}


def test_a_saved_comparison_keeps_systems_that_take_much_room(place: Place) -> None:
    raw = hardware.to_document(hardware.load("h100_80g_nvl8"))
    raw["mem1"]["mb_efficiency"] = [*too_full_curve()[:300], [0, 0.05]]
    large = Scenario.of("gpt3-13B", hardware.load_document({**raw, "name": "large"}, "large"), **SMALL)
    text = urlencode(scenario_parameters.parameters_of(large))
    assert len(text) > 4_000
    place.files.keep("Both", first(), "compare", {"compare_b": text})
    saved = place.files.saved()[0]
    found = share.compared(saved.scenario, saved.page, saved.view)
    assert found is not None
    assert found.scenarios == (first(), large)


def test_a_link_that_is_too_long_names_the_file_of_all() -> None:
    def script() -> None:
        from dashboard.widgets.share import offer_link
        from tests.dashboard.link.test_comparison import compared

        offer_link("x" * 9_000, 2, compared())

    told = AppTest.from_function(script, default_timeout=30).run().caption[0].value
    assert "comparison file" in told
    assert "all 3 scenarios" in told
    assert "does not contain" not in told


def test_the_library_says_which_page_opens_it(place: Place) -> None:
    app = page_alone("library").run()
    opened(app, document())
    assert any("comparison of scenarios; the Scenarios page opens it" in element.value for element in app.info)
