"""The Scenarios page lists what was saved and explored; kept files are written whole and read with care."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qsl

import pytest
from streamlit.testing.v1 import AppTest

import hardware
import models
from dashboard.jobs.explored_scenarios import age, best_of, entries, searched, size
from dashboard.link import scenario_parameters
from dashboard.link.document_validation import Refused
from dashboard.link.own_run import execution_from_text
from dashboard.link.own_studies import document_of, unpacked_study
from dashboard.link.user_files import MOST_FILES, UserFiles
from dashboard.pages.scenarios import launch_file
from dashboard.shell.search import everything
from dashboard.widgets import share
from dashboard.words import scenarios
from engine import Scenario, codesign, launch
from engine.cost_models.registry import COST_MODELS
from engine.executions.execution_names import execution_name
from engine.questions.documents.executions import StandingQuestion
from engine.questions.standings import find_standing
from tests.dashboard.page_runs import SMALL, html, page_alone
from tests.dashboard.server import Place, own_server

SMALL_STUDY = {
    "format": codesign.FORMAT,
    "models": ["gpt3-13B"],
    "systems": ["h100_80g_nvl8"],
    "edits": [{"parameter": "hbm_capacity", "values": [20, 40, 80]}],
    "sizes": [8],
    "datatypes": ["float16"],
    "batches": [16],
    "cost_model": "calculon",
    "costs": {"preset": "h100_2024"},
}
LIMITS = {"tensor_par": [4], "pipeline_par": [1, 2]}


def small(**more: Any) -> Scenario:
    return Scenario.of("gpt3-13B", "h100_80g_nvl8", **{**SMALL, "limits": LIMITS, **more})


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with own_server(tmp_path) as found:
        yield found


def explored(place: Place, scenario: Scenario) -> None:
    job = place.explorations.request(scenario)
    assert job.wait(60)
    assert job.state == "done", job.problem


def page(link: dict[str, str] | None = None) -> AppTest:
    app = page_alone("scenarios")
    app.session_state["_url"] = dict(link or {})
    app.session_state["_pages"] = {"compare": "the page Compare"}
    app.run()
    assert not app.exception, [error.value for error in app.exception]
    return app


def test_entries_join_what_was_saved_with_what_was_explored(place: Place) -> None:
    one, two, three = small(), small(num_procs=32), small(num_procs=64)
    explored(place, one)
    explored(place, two)
    ident = place.files.keep("Mine", one, "pareto", {"pareto_x": "total_time"})
    place.files.keep("Not explored", three)
    found = {entry.title: entry for entry in entries(place.files, place.explorations)}
    assert found["Mine"].record is not None
    assert found["Mine"].ident == ident
    assert found["Not explored"].record is None
    assert sum(entry.saved is None for entry in found.values()) == 1
    best = best_of(found["Mine"], place.explorations)
    truth = place.explorations.request(one).exploration
    assert truth is not None
    assert best is not None
    assert truth.best is not None
    assert (best.total, best.feasible, best.rate) == (truth.total, truth.feasible, truth.best["sample_rate"])
    assert best.name == execution_name(truth.best)
    place.explorations.forget(one.key)
    fresh = next(entry for entry in entries(place.files, place.explorations) if entry.title == "Mine")
    assert fresh.job is None
    assert best_of(fresh, place.explorations) == best
    assert best_of(found["Not explored"], place.explorations) is None
    assert [entry.title for entry in searched(found.values(), "mine 13b")] == ["Mine"]


def test_saving_renaming_copying_and_deleting(tmp_path: Path) -> None:
    files = UserFiles(tmp_path / "x.user")
    scenario = small()
    ident = files.keep("  A   title ", scenario, "pareto", {"pareto_x": "total_time", "BAD NAME": "x"})
    assert [(saved.title, saved.page, dict(saved.view)) for saved in UserFiles(tmp_path / "x.user").saved()] == [
        ("A title", "pareto", {"pareto_x": "total_time"})
    ]
    files.rename(ident, "<script>alert(1)</script>")
    copy = files.duplicate(ident)
    saved = {each.ident: each for each in files.saved()}
    assert saved[copy].title == "<script>alert(1)</script> (copy)"
    assert saved[copy].scenario == saved[ident].scenario == scenario
    files.forget(ident)
    assert [each.ident for each in files.saved()] == [copy]
    for action in (
        lambda: files.rename(ident, "x"),
        lambda: files.forget(ident),
        lambda: files.duplicate("../../x"),
        lambda: files.rename(copy, ""),
        lambda: files.rename(copy, "x" * 121),
    ):
        with pytest.raises(Refused):
            action()
    assert not [path for path in (tmp_path / "x.user").rglob("*") if path.is_file() and path.suffix != ".json"]


@pytest.mark.parametrize("name", ["../../evil", "/etc/passwd", "a\\b", "con", "x" * 120, "ünï", "<b>", "a/b.json"])
def test_names_never_become_paths(tmp_path: Path, name: str) -> None:
    files = UserFiles(tmp_path / "deep" / "x.user")
    files.keep_model(models.load("gpt3-13B").model_copy(update={"name": name}))
    files.keep_system(hardware.edited(hardware.load("a100_80g"), {"mem1.capacity_gib": 96.0}, name=name))
    assert set(files.models()) == set(files.systems()) == {name}
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) == 2
    assert all(path.parent.parent == tmp_path / "deep" / "x.user" for path in written)
    files.drop_model(name)
    files.drop_system(name)
    assert not files.models()
    assert not files.systems()


def test_library_names_are_taken_and_numbers_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = UserFiles(tmp_path)
    with pytest.raises(Refused, match="another name"):
        files.keep_model(models.load("gpt3-13B"))
    with pytest.raises(Refused, match="another name"):
        files.keep_system(hardware.load("a100_80g_sxm@50g"))
    assert MOST_FILES >= 100
    monkeypatch.setattr("dashboard.link.user_files.MOST_FILES", 2)
    files.keep("a", small())
    files.keep("b", small())
    with pytest.raises(Refused, match="limit"):
        files.keep("c", small())
    with pytest.raises(Refused, match="keeps nothing"):
        UserFiles(None).keep("a", small())


def test_damaged_and_foreign_files_are_named_and_left_alone(tmp_path: Path) -> None:
    files = UserFiles(tmp_path)
    ident = files.keep("good", small())
    folder = tmp_path / "scenarios"
    document = json.loads((folder / f"{ident}.json").read_text())
    bad = {
        "0" * 16: b"{",
        "1" * 16: b"[1]",
        "2" * 16: json.dumps({**document, "format": "shardscape-saved/9"}).encode(),
        "3" * 16: json.dumps({**document, "scenario": {}}).encode(),
        "4" * 16: b"\xff" * 10,
        "5" * 16: b" " * 2_000_000,
        "6" * 16: json.dumps({**document, "title": 5}).encode(),
    }
    for name, content in bad.items():
        (folder / f"{name}.json").write_bytes(content)
    (folder / "notes.txt").write_text("not ours")
    (folder / ("7" * 16 + ".json")).symlink_to("/etc/passwd")
    assert [saved.title for saved in files.saved()] == ["good"]
    assert len(files.problems) == len(bad)
    assert all(len(problem) <= 400 for problem in files.problems)


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Refused, match="could not be saved"):
        UserFiles(tmp_path / "file" / "x").keep("a", small())


def test_the_page_without_anything(place: Place) -> None:
    assert "Nothing here yet" in page().info[0].value


def test_the_page_lists_and_shows(place: Place) -> None:
    explored(place, small())
    ident = place.files.keep("**Bold** <script>", small(), "pareto")
    place.files.keep("Not explored", small(num_procs=64))
    app = page({"scenarios_pick": ident})
    table = app.dataframe[0].value
    assert table["Title"].tolist() == ["Not explored", "**Bold** <script>"]
    truth = place.explorations.request(small()).exploration
    assert truth is not None
    assert truth.best is not None
    assert table["samples/s"].tolist()[1] == truth.best["sample_rate"]
    assert "&lt;script&gt;" in html(app)
    assert "<script>" not in html(app)
    app.text_input(key="scenarios_search").set_value("nothing like it").run()
    assert "None of the 2 entries" in app.info[0].value


def test_results_of_an_older_cost_model_are_named_as_such(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    explored(place, small())
    place.explorations.forget(small().key)
    monkeypatch.setattr(type(COST_MODELS["calculon"]), "version", "calculon-0.1.0/later")
    app = page()
    assert app.dataframe[0].value["Fastest"].tolist() == ["outdated"]
    assert any("older version of the cost model" in warning.value for warning in app.warning)


def test_copies_of_copies_are_numbered(tmp_path: Path) -> None:
    files = UserFiles(tmp_path / "x.user")
    ident = files.keep("A", small())
    titles = []
    for _ in range(4):
        ident = files.duplicate(ident)
        titles.append(next(saved.title for saved in files.saved() if saved.ident == ident))
    assert titles == ["A (copy)", "A (copy 2)", "A (copy 3)", "A (copy 4)"]
    long = files.keep("x" * 120, small())
    assert [len(files.title_of_copy(each.title)) for each in files.saved() if each.ident == long] == [120]
    assert files.title_of_copy("B (copy 7)") == "B (copy)"


def test_the_buttons_of_the_page(place: Place) -> None:
    explored(place, small())
    key = small().key
    app = page({"scenarios_pick": key})
    app.text_input(key=f"scenarios_title_{key}").set_value("Kept")
    app.button(key="scenarios_rename").click().run()
    assert [saved.title for saved in place.files.saved()] == ["Kept"]
    app.button(key="scenarios_duplicate").click().run()
    assert sorted(saved.title for saved in place.files.saved()) == ["Kept", "Kept (copy)"]
    app.button(key="scenarios_forget").click().run()
    assert [saved.title for saved in place.files.saved()] == ["Kept"]
    app.button(key="scenarios_delete").click().run()
    assert not app.exception
    assert place.explorations.store is not None
    assert place.explorations.store.records() == []
    assert [saved.title for saved in place.files.saved()] == ["Kept"]


def test_two_are_listed_side_by_side(place: Place) -> None:
    one, two = place.files.keep("First", small()), place.files.keep("Second", small(num_procs=64))
    app = page({"scenarios_pick": f"{one}.{two}"})
    assert "2 scenarios" in html(app)
    assert "First" in html(app)
    assert "Second" in html(app)


def test_compare_opens_the_picked_scenarios_and_forgets_those_before(place: Place) -> None:
    picked = [small(), small(num_procs=64), small(num_procs=128)]
    idents = [place.files.keep(f"No. {number}", each) for number, each in enumerate(picked)]
    app = page({"scenarios_pick": ".".join(idents)})
    app.session_state["_url"]["compare_b"] = app.session_state["_url"]["compare_d"] = "~procs:8"
    with patch("streamlit.switch_page") as switched:
        app.button(key="scenarios_compare").click().run()
    assert not app.exception
    assert switched.call_args[0][0] == "the page Compare"
    link = dict(app.session_state["_url"])
    assert scenario_parameters.read_scenario(link).scenario == picked[0]
    assert "compare_d" not in link
    others = [
        scenario_parameters.read_scenario(dict(parse_qsl(link[slot]))).scenario for slot in ("compare_b", "compare_c")
    ]
    assert others == picked[1:]
    assert switched.call_args[1]["query_params"] == {name: link[name] for name in link if name != "scenarios_pick"}


def test_the_browser_learns_what_is_opened_with_the_page_that_shows_it(place: Place) -> None:
    """Told before it, the list with another scenario's link would be steps of Back of their own."""
    view = {"cell": "2x2", "compare_b": "~procs:128", "compare_domain": "logarithmic"}
    ident = place.files.keep("View", small(), "compare", view)
    app = page({"scenarios_pick": ident})
    app.session_state["_url"]["pareto_x"] = "mfu"
    before = dict(app.query_params)
    with patch("streamlit.switch_page") as switched:
        app.button(key="scenarios_open").click().run()
    assert not app.exception
    assert switched.call_args[0][0] == "the page Compare"
    assert switched.call_args[1]["query_params"] == {**scenario_parameters.parameters_of(small()), **view}
    assert dict(app.query_params) == before
    assert "pareto_x" not in app.session_state["_url"]


def test_studies_are_kept_like_scenarios(place: Place) -> None:
    document = {**SMALL_STUDY, "name": "Memory"}
    study = codesign.Study.from_document(document)
    ident = place.files.keep_study("  Memory <b>  study ", study)
    place.files.keep("A scenario", small())
    again = UserFiles(place.files.folder).study(ident)
    assert (again.title, again.study.key, again.study.document) == ("Memory <b> study", study.key, study.document)
    listed = entries(place.files, place.explorations)
    assert [entry.title for entry in searched(listed, "study gpt3-13b memory")] == ["Memory <b> study"]
    (one,) = (each for each in everything() if each.kind == "co-design study")
    assert (one.name, one.page) == ("Memory <b> study", "codesign")
    assert page({"scenarios_kind": "studies"}).dataframe[0].value["Title"].tolist() == ["Memory <b> study"]
    app = page({"scenarios_pick": ident})
    app.session_state["_pages"] = {"codesign": "the page Co-design"}
    app.text_input(key=f"scenarios_title_{ident}").set_value("Renamed")
    app.button(key="scenarios_rename").click().run()
    app.button(key="scenarios_duplicate").click().run()
    assert sorted(each.title for each in place.files.studies()) == ["Renamed", "Renamed (copy)"]
    copy = app.session_state["_url"]["scenarios_pick"]
    app.button(key="scenarios_forget").click().run()
    assert [each.ident for each in place.files.studies()] == [ident] != [copy]
    app = page({"scenarios_pick": ident})
    app.session_state["_pages"] = {"codesign": "the page Co-design"}
    file = document_of(study)
    with patch("streamlit.switch_page") as switched:
        app.button(key="scenarios_open").click().run()
        app.file_uploader[0].set_value(("sent.json", file.encode(), "application/json")).run()
        app.button(key="scenarios_open_file").click().run()
    assert not app.exception
    opened, sent = (call[1]["query_params"] for call in switched.call_args_list)
    assert opened["codesign_study"] == f"kept-{ident}"
    assert unpacked_study(sent["codesign_own"]).document == study.document
    with pytest.raises(Refused, match="gone"):
        place.files.drop_study(copy)
    folder = Path(str(place.files.folder)) / "studies"
    wrong = {"format": "shardscape-saved-study/1", "title": "x", "saved_at": 1, "study": {**document, "sizes": []}}
    (folder / ("0" * 16 + ".json")).write_text(json.dumps(wrong))
    assert len(place.files.studies()) == 1
    assert "sizes" in place.files.problems[0]


def test_without_a_store_the_page_lists_what_is_in_memory() -> None:
    with own_server(None) as place:
        explored(place, small())
        table = page().dataframe[0].value
        assert table["Size"].tolist() == ["in memory"]


def test_opening_a_file(place: Place) -> None:
    from streamlit.testing.v1.element_tree import Button

    app = page()
    upload = app.file_uploader[0]
    upload.set_value(("sent.json", json.dumps(small().to_document()).encode(), "application/json")).run()
    assert any(isinstance(button, Button) and button.key == "scenarios_open_file" for button in app.button)
    upload = app.file_uploader[0]
    upload.set_value(("sent.json", b'{"format": "shardscape-scenario/2"}', "application/json")).run()
    assert "newer" in app.error[0].value
    assert not app.exception
    # A config.json of Hugging Face is a model: it is told, and opens in place of the scenario's.
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
    }
    now = Scenario.of("gpt3-13B", "h100_80g_sxm", num_procs=16, max_batch_size=32, datatype="bfloat16")
    app = page(scenario_parameters.parameters_of(now))
    app.text_area(key="scenarios_pasted").set_value(json.dumps(config)).run()
    app.file_uploader[0].set_value(("config.json", json.dumps(config).encode(), "application/json")).run()
    assert not app.error
    assert any("llama-3-8B of the library has the same shape" in each.value.replace("\\", "") for each in app.caption)
    app.session_state["_pages"] = {"explore": "the page Explore"}
    opened: list[dict[str, str]] = []
    with patch("streamlit.switch_page", lambda _, query_params: opened.append(query_params)):
        app.button(key="scenarios_open_file").click().run()
    model = scenario_parameters.read_scenario(opened[0]).scenario.model
    assert (model.architecture_or_assumed().kv_heads, model.seq_size) == (8, 8192)


def test_opening_a_launch_script(place: Place) -> None:
    """It is placed on the current system, and opens as a scenario with its execution selected."""
    written = launch.write(
        {
            "tensor_par": 2,
            "pipeline_par": 2,
            "data_par": 4,
            "batch_size": 32,
            "microbatch_size": 1,
            "tensor_par_comm_type": "rs_ag",
            "optimizer_sharding": True,
            "data_par_overlap": True,
        },
        "llama-3-8B",
        framework="megatron",
    )
    now = Scenario.of("gpt3-13B", "h100_80g_sxm", num_procs=16, max_batch_size=32, datatype="bfloat16")
    app = page(scenario_parameters.parameters_of(now))
    app.file_uploader[0].set_value(("train.sh", written.text.encode(), "text/plain")).run()
    assert not app.exception
    told = " ".join(each.value for each in (*app.markdown, *app.caption, *app.warning)).replace("\\", "")
    assert "llama-3-8B · 16 GPUs" in told
    execution = launch.evaluable(launch.read_text(written.text, "train.sh"))
    stands = find_standing(
        StandingQuestion(execution=execution, model="llama-3-8B", system="h100_80g_sxm", cost_model=now.cost_model)
    )
    assert stands.steps
    assert stands.faster is not None
    for flags in launch.flag_changes(stands, framework="megatron"):
        assert all(each.flag in told for each in flags)
    link = launch_file.link_parameters(stands, "megatron")
    opened = scenario_parameters.read_scenario(link).scenario
    assert (opened.model.name, opened.num_procs, opened.max_batch_size) == ("llama-3-8B", 16, 32)
    assert link["cell"] == "2x2"
    (row,) = opened.space.table([int(link["id"])]).to_dict("records")
    assert row["tensor_par_comm_type"] == "rs_ag"
    assert link["own"] == link["id"]
    assert execution.items() <= execution_from_text(link["run"]).items()
    assert link["run_from"] == "megatron"
    assert f"place {stands.faster + 1:,} of {stands.feasible:,} that run" in told
    app.file_uploader[0].set_value(("train.sh", b"echo nothing here", "text/plain")).run()
    assert "is no launch configuration" in app.error[0].value


def _draw_script(script: str, link: dict[str, str], found: dict[str, str]) -> None:
    from dashboard.link.figures import parse_figures
    from dashboard.link.scenario_parameters import read_scenario
    from tests.dashboard.pages.test_scenarios import launch_file

    reading = launch_file.reading_of("train.sh", script.encode(), can_be_document=False)
    assert reading is not None
    now = read_scenario(link).scenario
    found.update(launch_file.draw("train.sh", script.encode(), reading, now, parse_figures().question) or {})


def test_opening_a_launch_script_keeps_the_limits_and_asks_for_the_gpus(place: Place) -> None:
    """Limits, framework and cost model of the session hold for the run's scenario; the script's GPUs are first."""
    degrees = {"tensor_par": 2, "pipeline_par": 2, "data_par": 4, "batch_size": 32, "microbatch_size": 1}
    written = launch.write(degrees, "llama-3-8B", framework="megatron").text
    now = Scenario.of(
        "gpt3-13B",
        "h100_80g_sxm",
        num_procs=8,
        max_batch_size=16,
        datatype="bfloat16",
        limits={"optimizer_offload": False, "tensor_par": [1, 2]},
        framework="megatron",
    )
    found: dict[str, str] = {}
    script = written.replace("\n", "\n#SBATCH --gres=gpu:a100:8\n", 1)
    link = scenario_parameters.parameters_of(now)
    app = AppTest.from_function(
        _draw_script, default_timeout=60, kwargs={"script": script, "link": link, "found": found}
    )
    app.run()
    assert not app.exception
    assert app.selectbox(key="launch_gpu_type").value == "a100_80g_sxm"
    app.selectbox(key="launch_gpu_type").set_value("h200_141g_sxm").run()
    opened = scenario_parameters.read_scenario(found).scenario
    assert (opened.system.name, opened.num_procs, opened.max_batch_size) == ("h200_141g_sxm", 16, 32)
    assert (opened.field_limits, opened.framework) == (now.field_limits, "megatron")
    assert found["id"] == found["own"]


def test_what_a_launch_script_leaves_open_is_asked_for(place: Place) -> None:
    """Nothing is evaluated before the fields are filled in, and then as if the script said it."""
    written = launch.write(
        {
            "tensor_par": 2,
            "pipeline_par": 2,
            "data_par": 4,
            "batch_size": 32,
            "microbatch_size": 1,
            "tensor_par_comm_type": "rs_ag",
            "optimizer_sharding": True,
            "data_par_overlap": True,
        },
        "llama-3-8B",
        framework="megatron",
    ).text
    text = written.replace("--tensor-model-parallel-size 2", "--tensor-model-parallel-size $TP")
    now = Scenario.of("gpt3-13B", "h100_80g_sxm", num_procs=16, max_batch_size=32, datatype="bfloat16")
    app = page(scenario_parameters.parameters_of(now))
    app.file_uploader[0].set_value(("train.sh", text.encode(), "text/plain")).run()
    told = " ".join(each.value for each in (*app.markdown, *app.caption, *app.warning)).replace("\\", "")
    assert "Tensor parallel (tensor_par): --tensor-model-parallel-size $TP (line" in told
    assert "leaves open what a prediction needs" in app.warning[0].value
    assert "that run" not in told
    app.number_input(key="launch_state_tensor_par").set_value(2).run()
    assert not app.exception
    told = " ".join(each.value for each in (*app.markdown, *app.caption)).replace("\\", "")
    stands = launch.standing(
        launch.read_text(written, "train.sh").execution, "llama-3-8B", now.system, cost_model=now.cost_model
    )
    assert stands.faster is not None
    assert f"place {stands.faster + 1:,} of {stands.feasible:,} that run" in told


def test_pasting_a_configuration(place: Place) -> None:
    """Text is read as a file is; what has no end of its own is known by what stands in it."""
    now = Scenario.of("gpt3-13B", "h100_80g_sxm", num_procs=16, max_batch_size=32, datatype="bfloat16")
    toml = (
        "# for 16 GPUs\n[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nlocal_batch_size = 2\nseq_len = 8192\n"
        "[parallelism]\ntensor_parallel_degree = 2\n[activation_checkpoint]\nmode = 'full'\n"
    )
    app = page(scenario_parameters.parameters_of(now))
    app.text_area(key="scenarios_pasted").set_value(toml).run()
    assert not app.exception
    told = " ".join(each.value for each in (*app.markdown, *app.caption)).replace("\\", "")
    assert "**torchtitan**" in told
    assert "16 GPUs" in told
    assert "Attention kernel (attention_kernel)" in told
    assert app.button(key="scenarios_open_file").label == "Open it"
    app.text_area(key="scenarios_pasted").set_value("nothing of the kind").run()
    assert app.error[0].value.startswith("The pasted text is no launch configuration")


def test_a_report_names_what_it_was_asked_for_and_not_its_equal_by_another_name(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = small()
    explored(place, first)
    other = replace(first, model=models.edited(first.model, {}, name="ours", title="Our own name"))
    assert other.key == first.key
    built: list[bytes] = []
    monkeypatch.setattr(
        "streamlit.download_button",
        lambda label, data, *_, **__: built.append(data()) if label == "Report" else None,
    )
    place.files.keep("mine", other)
    page()
    share._report(other, None)
    assert built
    assert all(b"Our own name" in each for each in built)


def test_ages_and_sizes() -> None:
    assert [age(0, now) for now in (5, 150, 7_300, 200_000, 70_000_000)] == [
        "just now",
        "2 min ago",
        "2 h ago",
        "2 days ago",
        "2 years ago",
    ]
    assert [size(number) for number in (None, 12, 1_500, 12_300_000, 4_200_000_000)] == [
        "–",
        "12 B",
        "1.50 kB",
        "12.3 MB",
        "4.20 GB",
    ]
    assert scenarios.sentence_of(small()) == "FP16 · batch 32 · 2 limits · exact"
