"""The Library page shows every value with its source, and edits copies that the engine computes with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

import engine
import hardware
import models
from dashboard.charts.execution.efficiency_curve import efficiency_curve
from dashboard.files.execution_files import execution_json
from dashboard.link.document_validation import Refused, read
from dashboard.pages.library.editor import copy_of, table_from_text
from dashboard.pages.library.listing import items, searched
from dashboard.queries.document_fields import fields_of, marks_of, value_at
from dashboard.queries.document_sheets import changes_in_words, not_represented, representation, sheet
from dashboard.queries.scenario_edits import scenario_with
from engine import Scenario
from tests.dashboard.page_runs import SMALL, html, page_alone, plainly, plots
from tests.dashboard.server import Place, own_server

EVIL = "<script>alert(1)</script>"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with own_server(tmp_path) as found:
        yield found


def page(link: dict[str, str] | None = None) -> AppTest:
    app = page_alone("library")
    app.session_state["_url"] = dict(link or {})
    return checked(app.run())


def checked(app: AppTest) -> AppTest:
    assert not app.exception, [error.value for error in app.exception]
    return app


def everything() -> list[Any]:
    return [
        *(models.load(name) for name in models.names()),
        *(hardware.load(name) for name in hardware.names(with_variants=True)),
    ]


def test_every_entry_of_the_library_has_a_sheet() -> None:
    for thing in everything():
        shown = fields_of(thing)
        assert len({field.path for field in shown}) == len(shown)
        text = sheet(thing)
        assert all(field.label.split()[0] not in ("Ffn", "Kv", "Q", "Nope") for field in shown)
        assert text.count("<tr>") == len(shown) + text.count("<table")
        assert not_represented(thing, "calculon")
        assert not_represented(thing, "calibrated")
        for field in shown:
            assert value_at(thing, field.path) is not None or field.optional, field.path


def test_what_is_not_represented_is_told_of_each_cost_model() -> None:
    """The calibrated one reads heads of keys and values, gates and the vocabulary; the exact one experts not at all."""
    dense = {scope: told for _, scope, told in representation(models.load("llama-3.1-70B"))}
    assert list(dense) == ["in the calculon cost model", "in the calibrated cost model"]
    for word in ("Grouped-query", "LM head", "gated MLP"):
        assert word in " ".join(dense["in the calculon cost model"])
        assert word not in " ".join(dense["in the calibrated cost model"])
    mixture = representation(models.load("deepseek-v3"))
    assert [scope for _, scope, _ in mixture] == ["in the calibrated cost model"]
    assert "multi-token prediction" in " ".join(mixture[0][2])
    assert "cannot represent" not in " ".join(mixture[0][2])
    board = {scope: told for _, scope, told in representation(hardware.load("h100_80g_sxm"))}
    assert "clock and multiprocessors" in " ".join(board["in the calculon cost model"])
    assert "clock" not in " ".join(board["in the calibrated cost model"])
    assert "Efficiencies and latencies" in " ".join(board["in the calibrated cost model"])


def test_every_mark_of_a_system_is_on_its_sheet() -> None:
    for name in hardware.names(with_variants=True):
        system = hardware.load(name)
        marks = marks_of(system)
        known = {field.path for field in fields_of(system)}
        for path, _, basis in system.assumed_values():
            below = [field for field in known if field == path or field.startswith(f"{path}.")]
            for field in below:
                assert any(mark.kind == "assumed" and mark.text == basis for mark in marks[field]), (name, field)


def test_names_in_a_sheet_are_text() -> None:
    system = hardware.edited(hardware.load("a100_80g"), {"networks.0.size": 4}, name=EVIL, title=EVIL)
    again = hardware.edited(system.model_copy(update={"derived_from": EVIL}), {"networks.0.size": 2}, name="x")
    assert EVIL not in sheet(again)
    assert "&lt;script&gt;" in sheet(again)


@pytest.mark.parametrize("name", ["gpt3-13B", "llama-3-70B", "gpt3-175B", "deepseek-v3", "gpt-oss-120B"])
def test_models_can_be_edited_field_by_field(name: str) -> None:
    model = models.load(name)
    done = 0
    for field in fields_of(model):
        if not field.editable or field.kind not in ("whole", "switch"):
            continue
        old = value_at(model, field.path)
        new = (not old) if field.kind == "switch" else old * 2 or 1
        try:
            copied = copy_of(model, {field.path: new}, "mine", "Mine")
        except Refused:  # twice the value does not go with the others
            continue
        done += 1
        assert value_at(copied, field.path) == new
        assert copied.derived_from == model.name
        assert any(mark.kind == "changed" for mark in marks_of(copied)[field.path])
    assert done >= 5


def test_a_block_number_changes_its_architecture_too() -> None:
    model = models.load("gpt3-175B")
    copied = copy_of(model, {"num_blocks": 48, "attn_heads": 48, "attn_size": 256}, "half", "Half")
    assert isinstance(copied, models.Model)
    assert copied.architecture is not None
    assert (copied.architecture.layers, copied.architecture.heads, copied.architecture.kv_heads) == (48, 48, 48)
    assert copied.num_blocks == 48


def test_systems_can_be_edited_and_are_computed_with() -> None:
    system = hardware.load("h100_80g_nvl8")
    changes = {"mem1.capacity_gib": 40.0, "mem1.mb_efficiency": table_from_text("10: 0.8, 0: 0.5", "HBM")}
    copied = copy_of(system, changes, "less", "Less")
    assert isinstance(copied, hardware.System)
    assert copied.mem1.mb_efficiency == ((10.0, 0.8), (0.0, 0.5))
    assert changes_in_words(copied) == [
        "HBM capacity 80 → 40 GiB",
        "HBM efficiency 100: 0.9, 10: 0.75, 1: 0.6, 0: 0.3 → 10: 0.8, 0: 0.5",
    ]
    limits = {"tensor_par": [4], "pipeline_par": [1, 2]}
    before = engine.explore("gpt3-13B", system, **SMALL, limits=limits)
    after = engine.explore("gpt3-13B", copied, **SMALL, limits=limits)
    assert after.feasible < before.feasible


@pytest.mark.parametrize("text", ["", "1", "1: 2: 3", "a: 0.5", "0.5", ":", "1:, 2:3", "1 0.5"])
def test_tables_that_cannot_be_read_say_how(text: str) -> None:
    with pytest.raises(Refused, match="such as 128"):
        table_from_text(text, "HBM efficiency")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("mem1.capacity_gib", -1.0),
        ("mem1.capacity_gib", 0.0),
        ("networks.0.size", 0),
        ("networks.0.efficiency", 1.5),
        ("mem1.mb_efficiency", ((1.0, 0.5),)),
        ("networks.9.size", 1),
    ],
)
def test_impossible_values_are_refused(path: str, value: Any) -> None:
    with pytest.raises(Refused):
        copy_of(hardware.load("h100_80g_nvl8"), {path: value}, "x", "")


def test_using_something_keeps_what_still_applies() -> None:
    now = Scenario.of(
        "gpt3-13B",
        "h100_80g_nvl8",
        num_procs=16,
        max_batch_size=32,
        datatype="float8",
        limits={"tensor_par": [4], "tensor_par_net": [0]},
    )
    then = scenario_with(now, hardware.load("v100_32g_sxm"))
    assert then.datatype in then.system.matrix
    assert set(then.limits) == {"tensor_par"}
    assert scenario_with(now, models.load("gpt3-175B")).limits == now.limits
    # Experts are beyond Calculon's block, so the cost model changes with the model.
    assert scenario_with(now, models.load("deepseek-v3")).cost_model == "calibrated"


def test_curves_are_the_tables() -> None:
    chart = efficiency_curve(
        [
            ("matrix float16", ((128, 0.95), (16, 0.9), (1, 0.6), (0, 0.1))),
            ("matrix float8", ((128, 0.95), (16, 0.9), (1, 0.6), (0, 0.1))),
            ("vector float16", ((0, 0.5),)),
        ],
        "GFLOP",
    )
    first, second = chart.figure.data
    assert first.name == "matrix float16, float8"
    assert list(zip(first.x, first.y, strict=True)) == [(0.1, 0.1), (1, 0.6), (16, 0.9), (128, 0.95), (10_000, 0.95)]
    assert list(second.y) == [0.5, 0.5]
    assert "95 %" in plainly(chart.alt)
    # As the engine reads it: the first listed threshold that a size reaches, whatever the order.
    odd = efficiency_curve([("odd", ((1, 0.3), (10, 0.9), (0, 0.1)))], "MB").figure.data[0]
    assert list(odd.y) == [0.1, 0.3, 0.3, 0.3]
    assert efficiency_curve([(EVIL, ((0, 1.0),))], "MB").figure.data[0].name.count("<") == 0


def test_the_list_can_be_searched(place: Place) -> None:
    found = items("systems")
    assert len(found) == len(hardware.names(with_variants=True))
    assert {item.name for item in searched(found, "HOPPER 80")} >= {"h100_80g_sxm", "h800_80g_sxm"}
    assert searched(found, "no such thing") == []
    place.files.keep_system(copy_of(hardware.load("a100_80g"), {"networks.0.size": 4}, "mine", ""))  # type: ignore[arg-type]
    assert [item.name for item in searched(items("systems"), "own") if item.own] == ["mine"]


def test_the_one_in_the_scenario_is_listed_first(place: Place) -> None:
    usual = [item.name for item in items("models")]
    assert usual[0] != "gpt3-175B"
    assert [item.name for item in items("models", "gpt3-175B")] == sorted(usual, key=lambda name: name != "gpt3-175B")
    assert [item.name for item in items("models", "of another library")] == usual
    assert page().dataframe[0].value["Name"].iloc[0] == "Llama 3.1 70B"  # of what a first visit opens on


def test_the_page_shows_the_item_of_the_link(place: Place) -> None:
    app = page({"library_kind": "systems", "library_item": "h200_141g_sxm"})
    text = html(app)
    assert "NVIDIA H200" in text
    assert "assumed" in text
    assert "140.4" in text
    assert len(plots(app)) == 2
    app = page({"library_item": "deepseek-v3"})
    assert not app.button(key="library_use").disabled
    assert any("calibrated cost model" in caption.value for caption in app.caption)
    app = page({"library_item": "no such model"})
    assert "Llama 3.1 70B" in html(app)


def test_editing_on_the_page(place: Place) -> None:
    app = page({"library_kind": "systems", "library_item": "h100_80g_nvl8"})
    checked(app.button(key="library_edit").click().run())
    assert app.button(key="library_use_copy").disabled
    checked(app.number_input(key="library_value_mem1.capacity_gib").set_value(-5.0).run())
    assert "HBM capacity" in app.error[0].value
    assert app.button(key="library_keep_copy").disabled
    checked(app.number_input(key="library_value_mem1.capacity_gib").set_value(96.0).run())
    assert "1 value will differ" in app.success[0].value
    checked(app.number_input(key="library_value_networks.0.latency_s").set_value(5.0).run())
    checked(app.text_input(key="library_value__name").set_value("mine").run())
    checked(app.button(key="library_keep_copy").click().run())
    kept = place.files.systems()["mine"]
    assert (kept.mem1.capacity_gib, kept.networks[0].latency_s) == (96.0, 5e-06)
    assert {change.field for change in kept.changes} == {"mem1.capacity_gib", "networks.0.latency_s"}
    assert kept.derived_from == "h100_80g_nvl8"
    assert "own" in html(app)
    checked(app.button(key="library_delete").click().run())
    assert place.files.systems() == {}


def upload(app: AppTest, name: str, content: bytes) -> AppTest:
    return checked(app.file_uploader[0].set_value((name, content, "application/json")).run())


def test_faults_are_told_in_the_words_of_the_page(place: Place) -> None:
    app = page({"library_kind": "systems", "library_item": "h100_80g_nvl8"})
    checked(app.button(key="library_edit").click().run())
    for path, value, words in (
        ("mem1.capacity_gib", -5.0, "HBM capacity (Memory, HBM) is -5.0"),
        ("networks.1.efficiency", 2.0, "Efficiency (Network: InfiniBand) is 2.0"),
        ("networks.0.latency_s", -1.0, "Latency (Network: NVLink, there latency_s) is -1e-06"),
    ):
        field = app.number_input(key=f"library_value_{path}")
        before = field.value
        checked(field.set_value(value).run())
        assert words in app.error[0].value.replace("\\", "")
        checked(app.number_input(key=f"library_value_{path}").set_value(before).run())
        assert not app.error
    for name in ("matrix.float8", "matrix.float16"):  # both are told at once
        app.text_input(key=f"library_value_{name}.gflops_efficiency").set_value("half")
    checked(app.run())
    assert "Matrix efficiency, FP8" in app.error[0].value
    assert "Matrix efficiency, FP16" in app.error[0].value


def test_an_execution_is_not_taken_for_a_model() -> None:
    row = engine.explore("gpt3-13B", "h100_80g_nvl8", **SMALL, limits={"tensor_par": 4, "pipeline_par": 1}).best
    with pytest.raises(Refused, match=r"^a\.json is an execution, not a model, .*; `shardscape evaluate` reads it"):
        read(execution_json(dict(row or {}), "calculon").encode(), "a.json")


def test_uploading(place: Place) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "rms_norm_eps": 1e-5,
    }
    app = upload(page(), "my_llama.json", json.dumps(config).encode())
    assert "Grouped-query attention" in html(app)
    checked(app.button(key="library_keep_upload").click().run())
    assert place.files.models()["my_llama"].hidden == 4096
    hybrid = {
        "model_type": "mamba2",
        "hidden_size": 2560,
        "num_hidden_layers": 64,
        "vocab_size": 50288,
        "tie_word_embeddings": True,
        "num_heads": 80,
        "head_dim": 64,
        "state_size": 128,
        "n_groups": 1,
        "conv_kernel": 4,
    }
    app = upload(page(), "mine.json", json.dumps(hybrid).encode())
    assert "2.7" in html(app)  # billion parameters, published
    assert "64 Mamba-2" in html(app)
    checked(app.button(key="library_keep_upload").click().run())
    assert place.files.models()["mine"].parameters == 2_702_599_680
    calculon = json.dumps(hardware.to_calculon(hardware.load("a100_80g"))).encode()
    app = upload(page(), "cluster.json", calculon)
    checked(app.button(key="library_keep_upload").click().run())
    assert place.files.systems()["cluster"].mem1 == hardware.load("a100_80g").mem1
    for content, word in (
        (b"{", "JSON"),
        (b"[]", "object"),
        (b'{"model_type": "rwkv"}', "not among the families"),
        (b'{"matrix": 1}', "key"),
        (b'{"num_blocks": 4}', "hidden"),
        (b"[" * 50_000, "nested"),
    ):
        app = upload(page(), f"{EVIL}.json", content)
        assert word in app.error[0].value.replace("\\", "")
        assert EVIL not in app.error[0].value
    app = upload(page(), "config.json", json.dumps(Scenario.of("gpt3-13B", "a100_80g", **SMALL).to_document()).encode())
    assert "Scenarios page" in app.info[0].value


def test_a_server_that_keeps_nothing_still_edits() -> None:
    with own_server(None):
        app = page({"library_kind": "systems", "library_item": "a100_80g"})
        checked(app.button(key="library_edit").click().run())
        checked(app.number_input(key="library_value_mem1.capacity_gib").set_value(96.0).run())
        assert app.button(key="library_keep_copy").disabled
        assert not app.button(key="library_use_copy").disabled
