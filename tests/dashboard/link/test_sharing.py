"""Links and files carry whole scenarios; whatever else is in them ends in one sentence and harms nothing."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

import hardware
import models
from dashboard.link import document_validation, packed_scenarios, scenario_parameters, text_encoding
from dashboard.link.document_validation import Refused
from dashboard.link.packed_scenarios import packed, unpacked
from engine import Scenario
from engine.executions.frameworks.registry import FRAMEWORK_WORDS
from engine.executions.limits import FRAMEWORK, options_of
from engine.launch import with_framework
from tests.texts import any_text

SIZES: dict[str, Any] = {"num_procs": 64, "max_batch_size": 64, "datatype": "float16"}
HOSTILE = ("<script>alert(1)</script>", "![x](http://evil.example/)", "a/../../etc/passwd", "\u202ename", "x" * 200)


def scenario(model: Any = "gpt3-13B", system: Any = "h100_80g_nvl8", **more: Any) -> Scenario:
    return Scenario.of(model, system, **{**SIZES, **more})


def folded(document: Any) -> str:
    """A packed text of anything at all."""
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    press = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_DEFAULT_STRATEGY, packed_scenarios._PRESET)
    return text_encoding.VERSION + base64.urlsafe_b64encode(press.compress(text) + press.flush()).decode().rstrip("=")


systems = st.builds(
    lambda name, capacity, bandwidth, size, rate, title, whole: (
        lambda made: made.model_copy(update={"derived_from": "", "changes": ()}) if whole else made
    )(
        hardware.edited(
            hardware.load(name),
            {
                "mem1.capacity_gib": capacity,
                "networks.0.bandwidth_gb_per_s": bandwidth,
                "networks.0.size": size,
                "matrix.float16.tflops": rate,
                "mem1.mb_efficiency": [[10, 0.8], [0, 0.5]],
            },
            name=title,
            title=title,
        )
    ),
    st.sampled_from(["h100_80g_nvl8", "a100_80g", "h200_141g_sxm", "mi300x_192g"]),
    st.floats(1, 1e6),
    st.floats(1, 1e6),
    st.integers(1, 4096),
    st.floats(1, 1e5),
    any_text(min_size=1, max_size=60).filter(lambda text: text.isprintable()),
    st.booleans(),
)
shapes = st.builds(
    lambda name, seq, title: models.edited(models.load(name), {"seq_size": seq}, name=title),
    st.sampled_from(["llama-3-70B", "megatron-1T", "gemma-2-27B"]),
    st.integers(1, 100_000),
    any_text(min_size=1, max_size=60).filter(lambda text: text.isprintable()),
)
limits = st.fixed_dictionaries(
    {},
    optional={
        "tensor_par": st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, unique=True),
        "pipeline_par": st.builds(
            lambda low, more: {"min": low, "max": low + more}, st.integers(0, 99), st.integers(0, 9)
        ),
        "weight_offload": st.booleans(),
        "activation_recompute": st.sampled_from(["none", "attn_only", "full"]),
    },
)


@given(
    model=shapes | st.sampled_from(["gpt3-13B", "llama-3-70B"]),
    system=systems | st.just("a100_80g_sxm@50g"),
    limit=limits,
    framework=st.sampled_from(FRAMEWORK_WORDS),
)
def test_a_link_gives_the_scenario_again_to_a_server_that_never_saw_it(
    model: Any, system: Any, limit: Any, framework: str
) -> None:
    sent = scenario(model, system, limits=limit)
    if FRAMEWORK in options_of(sent.cost_model):
        sent = with_framework(sent, framework)
    parameters = scenario_parameters.parameters_of(sent)
    assert all(len(value) < 2_000 for value in parameters.values())
    received = scenario_parameters.read_scenario(parameters)
    assert received.problems == ()
    assert received.scenario == sent
    assert received.scenario.key == sent.key
    assert unpacked(packed(sent)).scenario == sent


def test_library_names_make_short_links_and_everything_else_is_packed() -> None:
    assert set(scenario_parameters.parameters_of(scenario())) == {"model", "system", "procs", "batch", "type"}
    own = hardware.edited(hardware.load("h100_80g_nvl8"), {"mem1.capacity_gib": 120.0})
    link = scenario_parameters.parameters_of(scenario(system=own))
    assert set(link) == {"scenario"}
    assert len(link["scenario"]) < 200
    # A copy under the name of a library system is not taken for it.
    false = hardware.load("h100_80g_nvl8").model_copy(update={"mem1": own.mem1})
    read = scenario_parameters.read_scenario(scenario_parameters.parameters_of(scenario(system=false))).scenario
    assert read.system.mem1.capacity_gib == 120


def test_a_link_that_is_too_long_says_so_and_offers_the_file() -> None:
    def script(length: int) -> None:
        from dashboard.widgets.share import offer_link

        offer_link("x" * length)

    fits = AppTest.from_function(script, kwargs={"length": 2_000}).run()
    assert fits.code[0].value == "x" * 2_000
    too_long = AppTest.from_function(script, kwargs={"length": 2_001}).run()
    assert not too_long.code
    assert "2,001 characters" in too_long.caption[0].value
    assert "file" in too_long.caption[0].value


@pytest.mark.parametrize(
    ("beside", "told"), [(0, None), (1, "the one scenario next to it"), (3, "the 3 scenarios next to it")]
)
def test_a_file_says_which_scenarios_of_a_long_link_it_does_not_hold(beside: int, told: str | None) -> None:
    def script(beside: int) -> None:
        from dashboard.widgets.share import offer_link

        offer_link("x" * 9_000, beside)

    page = AppTest.from_function(script, kwargs={"beside": beside}).run()
    assert not page.exception
    assert ("does not contain" in page.caption[0].value) is (told is not None)
    assert (told or "") in page.caption[0].value


def test_a_changed_library_is_noticed() -> None:
    document = {
        "format": "shardscape-scenario/1",
        "key": "00000000",
        "model": {"of": "gpt3-13B"},
        "system": {"of": "h100_80g_nvl8"},
        **SIZES,
        "limits": {},
    }
    reading = scenario_parameters.read_scenario({"scenario": folded(document)})
    assert reading.scenario == scenario()
    assert "another version" in reading.problems[0]


def complete(**changes: Any) -> dict[str, Any]:
    return {**scenario().to_document(), **changes}


def nested(depth: int) -> Any:
    return json.loads("[" * depth + "]" * depth)


BAD_DOCUMENTS: dict[str, tuple[Any, str]] = {
    "not an object": ([1], "damaged"),
    "nothing": ({}, "format"),
    "newer": (complete(format="shardscape-scenario/2"), "newer"),
    "deep": (complete(limits=nested(400)), "deep"),
    "deep format": ({"format": nested(900)}, "deep"),
    "deeper than python": (b"[" * 100_000, "nested"),
    "many digits": (b'{"format": ' + b"9" * 100_000 + b"}", "digits"),
    "huge processors": (complete(num_procs=10**30), "num_procs"),
    "negative batch": (complete(max_batch_size=-1), "max_batch_size"),
    "infinite": (b'{"num_procs": 1e999, "format": "shardscape-scenario/1"}', ""),
    "not a number": (b'{"num_procs": NaN}', "NaN"),
    "twice": (b'{"format": 1, "format": 2}', "twice"),
    "batches": (complete(max_batch_size=2**31 - 1, limits={"batch_size": {"min": 1, "max": 2**31 - 1}}), "batch sizes"),
    "unknown key": (complete(evil=1), "evil"),
    "unknown limit": (complete(limits={"<script>": 1}), "limit"),
    "library path": (complete(system={"of": "/etc/passwd"}), "not a name"),
    "library parent": (complete(model={"of": "../x.json"}), "not a name"),
    "library unknown": (complete(model={"of": "gpt9"}), "no model named"),
    "edit nowhere": (complete(system={"of": "a100_80g", "name": "a", "title": "", "set": {"__class__.x": 1}}), "field"),
    "edit badly": (complete(system={"of": "a100_80g", "name": "a", "title": "", "set": {"mem1": 1}}), "mem1"),
    "edit without": (complete(system={"of": "a100_80g", "set": []}), "cannot be read"),
    "datatype": (complete(datatype="float99"), "float99"),
    "many values": (complete(limits={"tensor_par": [1] * 60_000}), "values"),
}


@pytest.mark.parametrize("name", BAD_DOCUMENTS)
def test_a_bad_scenario_in_a_link_is_refused_in_a_sentence(name: str) -> None:
    document, word = BAD_DOCUMENTS[name]
    with pytest.raises(Refused) as refusal:
        unpacked(folded(document))
    text = str(refusal.value)
    assert word in text
    assert len(text) <= 400
    assert "\n" not in text
    reading = scenario_parameters.read_scenario({"scenario": folded(document)})
    assert reading.scenario.model.name == scenario_parameters.DEFAULT["model"]
    assert text in reading.problems[0]


@pytest.mark.parametrize("name", [name for name in BAD_DOCUMENTS if name not in ("not an object",)])
def test_a_bad_scenario_file_is_refused_in_a_sentence(name: str) -> None:
    document, _ = BAD_DOCUMENTS[name]
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    with pytest.raises(Refused) as refusal:
        document_validation.read(content, "<script>alert(1)</script>.json")
    assert len(str(refusal.value)) <= 400


def test_bombs_and_fragments_are_refused() -> None:
    bomb = folded(b" " * 60_000_000)
    cut = folded(scenario().to_document())[:-20]
    for text, word in (
        (bomb, ""),
        (cut, "damaged"),
        ("", "damaged"),
        ("1", "damaged"),
        ("1!!", "damaged"),
        ("é", "damaged"),
        ("2abcdef", "newer"),
        ("eNqrVg", "damaged"),
        ("1" + "A" * 50_000, "50,001"),
        (folded(b" " * 2_000_000), "1,000,000 bytes"),
    ):
        with pytest.raises(Refused, match=word or "characters"):
            unpacked(text)


def test_a_space_of_a_million_million_executions_is_named_but_not_explored() -> None:
    from dashboard.jobs.explorations import Explorations
    from dashboard.settings import Settings

    huge = models.load_document(
        {
            "format": "shardscape-model/1",
            "name": "huge",
            "seq_size": 720720,
            "hidden": 720720,
            "feedforward": 1000,
            "attn_heads": 5040,
            "attn_size": 128,
            "num_blocks": 5040,
        }
    )
    system = hardware.load("h100_80g_nvl8")
    tiers = system.model_copy(update={"name": "tiers", "networks": system.networks * 4})
    sent = scenario(huge, tiers, num_procs=36756720, max_batch_size=735134400, limits={"uneven_pipelines": True})
    reading = scenario_parameters.read_scenario(scenario_parameters.parameters_of(sent))
    assert reading.scenario == sent
    assert sent.space.total > 1e12
    runner = Explorations(Settings(store=None))
    try:
        job = runner.request(reading.scenario)
        assert job.state == "failed"
        assert "explores up to" in job.problem
    finally:
        runner.close()


@pytest.mark.parametrize("name", scenario_parameters.NAMES)
@settings(max_examples=settings().max_examples // 3)
@given(text=any_text(max_size=300))
def test_any_text_is_read_or_refused(name: str, text: str) -> None:
    reading = scenario_parameters.read_scenario({name: text})
    assert isinstance(reading.scenario, Scenario)
    assert all(len(problem) < 600 for problem in reading.problems)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | any_text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


def read_or_refused(read: Callable[[], Any]) -> None:
    """Whatever is read, or one sentence says why not; nothing else is raised."""
    refusal = ""
    try:
        read()
    except Refused as problem:
        refusal = str(problem)
    assert len(refusal) <= 400


@given(key=st.sampled_from(sorted(complete())), value=json_values)
def test_any_value_in_any_key_is_read_or_refused(key: str, value: Any) -> None:
    short = {"of": "a100_80g", "name": "a", "title": "", "set": value}
    for content in (complete(**{key: value}), complete(system=short)):
        read_or_refused(lambda content=content: unpacked(folded(content)))  # type: ignore[misc]


@given(
    path=st.sampled_from(
        [
            "mem1",
            "mem1.capacity_gib",
            "networks",
            "networks.0.operations",
            "matrix.float16",
            "matrix",
            "processing_mode",
            "notes",
            "assumptions",
            "changes",
            "derived_from",
            "name",
        ]
    ),
    value=json_values,
)
def test_any_edit_is_read_or_refused(path: str, value: Any) -> None:
    content = complete(system={"of": "a100_80g", "name": "a", "title": "", "set": {path: value}})
    read_or_refused(lambda: unpacked(folded(content)))


@given(st.binary(max_size=400) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_file_is_read_or_refused(content: bytes) -> None:
    read_or_refused(lambda: document_validation.read(content, "some file.json"))


def test_files_of_every_kind_are_recognised() -> None:
    model, system = models.load("gpt3-13B"), hardware.load("h100_80g_nvl8")
    config = {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
    }
    cases: list[tuple[Any, Any]] = [
        (models.to_document(model), model),
        (hardware.to_document(system), system),
        (scenario().to_document(), scenario()),
    ]
    for document, expected in cases:
        assert document_validation.read(json.dumps(document).encode(), "a.json") == expected
    calculon = document_validation.read(json.dumps(hardware.to_calculon(system)).encode(), "mine.json")
    assert isinstance(calculon, hardware.System)
    assert (calculon.name, calculon.mem1) == ("mine", system.mem1)
    shape = document_validation.read(json.dumps(models.to_calculon(model)).encode(), "mine.json")
    assert isinstance(shape, models.Model)
    assert shape.hidden == model.hidden
    imported = document_validation.read(json.dumps(config).encode(), "config.json")
    assert isinstance(imported, models.Model)
    assert imported.hidden == 4096
    assert imported.not_represented
