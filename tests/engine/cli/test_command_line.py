"""The command line as its users meet it: output, exit codes, files; what goes wrong has a file of its own."""

from __future__ import annotations

import io
import json
import os
import sys
from functools import cache

import pandas as pd
import pytest
import typer

import engine
from engine.cli.command_table import COMMANDS
from engine.cli.commands import serve
from engine.cli.limits import parse_limits
from engine.cli.main import EXIT_CODES, app
from engine.cli.output import ExitCode, as_json, format_quantity, text_table, write_line
from engine.cli.progress import ExplorationLine
from engine.columns import FIELDS, OUTCOME, STATISTICS, by_name, rates_beside
from engine.economics import derived_of
from engine.executions.limits import LimitError
from tests import reference

SMALL = ("explore", "gpt3-13B", "h100_80g_nvl8", "--procs", "8", "--max-batch", "8", "--datatype", "float16")
SMALL_ARGUMENTS = {"num_procs": 8, "max_batch_size": 8, "datatype": "float16"}
NAMES = [column.name for column in FIELDS]


@pytest.fixture(scope="module")
def golden():
    return reference.golden()[NAMES].head(60)


@cache
def _explored():
    """What the small exploration finds, for all who only read it."""
    return engine.explore("gpt3-13B", "h100_80g_nvl8", **SMALL_ARGUMENTS)


@pytest.fixture
def one_execution(tmp_path):
    """A Calculon execution file that runs on its own systems."""
    path = tmp_path / "execution.json"
    path.write_text(json.dumps(_running_execution()), encoding="utf-8")
    return path


def _running_execution():
    found = _explored().best
    return {name: found[name] for name in NAMES}


def test_the_version_is_that_of_the_package(shardscape, monkeypatch, tmp_path):
    metadata = tmp_path / "shardscape-7.8.9.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: shardscape\nVersion: 7.8.9\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert shardscape("--version") == (0, "shardscape 7.8.9\n", "")


def test_explore_as_json(shardscape):
    code, out, _ = shardscape(*SMALL, "--top", 3, "--json")
    document = json.loads(out)
    expected = _explored()
    assert code == 0
    assert document["total"] == expected.total
    assert document["feasible"] == expected.feasible
    assert document["infeasible_by_reason"] == expected.infeasible_by_reason
    assert document["feasible"] + sum(document["infeasible_by_reason"].values()) == document["total"]
    assert document["best"]["id"] == expected.best["id"]
    assert document["best"]["sample_rate"] == expected.best["sample_rate"]
    assert set(document["best"]) >= {*NAMES, *(column.name for column in STATISTICS)}
    assert [row["id"] for row in document["top"]] == expected.top(3)["id"].tolist()
    assert document["top"][0] == document["best"]
    assert document["seconds"] > 0
    assert document["executions_per_second"] == pytest.approx(document["total"] / document["seconds"])
    assert document["from_store"] is False


def test_explore_as_text(shardscape):
    code, out, err = shardscape(*SMALL, "--top", 2)
    assert code == 0
    assert err == ""  # no progress where there is no terminal
    assert "feasible" in out
    assert "step [s]" in out
    assert "HBM [GiB]" in out
    assert "TP net NVLink" in out
    found = _explored()
    assert format_quantity(by_name("sample_rate"), found.best["sample_rate"]) in out
    derived = derived_of(found.scenario)
    names = rates_beside(found.scenario.flop_convention)
    assert set(names) <= set(derived)
    for name in names:
        assert format_quantity(by_name(name), derived[name].of(found.best["sample_rate"])) in out


def test_explore_with_limits_by_another_metric(shardscape):
    arguments = ("--limit", "tensor_par=2,4", "--limit", "microbatch_size=..2", "--by", "proc_mem_tier1_cap_req")
    code, out, _ = shardscape(*SMALL, *arguments, "--top", 5, "--json")
    document = json.loads(out)
    limits = {"tensor_par": [2, 4], "microbatch_size": {"max": 2}}
    expected = engine.explore("gpt3-13B", "h100_80g_nvl8", **SMALL_ARGUMENTS, limits=limits)
    assert code == 0
    assert document["total"] == expected.total
    assert {row["tensor_par"] for row in document["top"]} <= {2, 4}
    needs = [row["proc_mem_tier1_cap_req"] for row in document["top"]]
    assert needs == sorted(needs)
    assert needs == expected.top(5, "proc_mem_tier1_cap_req")["proc_mem_tier1_cap_req"].tolist()


def test_explore_remembers_in_a_store(shardscape, tmp_path):
    store = tmp_path / "results.duckdb"
    first = json.loads(shardscape(*SMALL, "--store", store, "--json")[1])
    again = json.loads(shardscape(*SMALL, "--store", store, "--json")[1])
    assert first["from_store"] is False
    assert again["from_store"] is True
    timing = ("seconds", "executions_per_second", "from_store")
    assert {k: v for k, v in first.items() if k not in timing} == {k: v for k, v in again.items() if k not in timing}


@pytest.mark.parametrize(("suffix", "read"), [("csv", pd.read_csv), ("parquet", pd.read_parquet)])
def test_explore_exports_every_feasible_execution(shardscape, tmp_path, suffix, read):
    path = tmp_path / f"rows.{suffix}"
    few = ("--limit", "tensor_par=2", "--limit", "weight_offload=off")
    code, _, err = shardscape(*SMALL, *few, "--top", 1, "--export", path)
    assert code == 0
    assert str(path) in err
    limits = {"tensor_par": 2, "weight_offload": False}
    expected = engine.explore("gpt3-13B", "h100_80g_nvl8", **SMALL_ARGUMENTS, limits=limits)
    assert len(read(path)) == expected.feasible


def test_nothing_feasible_is_told_and_has_its_exit_code(shardscape):
    arguments = ("--procs", 1, "--max-batch", 1, "--datatype", "float16")
    code, out, _ = shardscape("explore", "gpt3-175B", "h100_80g_nvl8", *arguments)
    assert code == ExitCode.NOTHING
    assert "Nothing is feasible" in out
    code, out, _ = shardscape("explore", "gpt3-175B", "h100_80g_nvl8", *arguments, "--json")
    assert code == ExitCode.NOTHING
    assert json.loads(out)["best"] is None


def test_limits_that_leave_nothing(shardscape):
    code, out, _ = shardscape(*SMALL, "--limit", "tensor_par=64")
    assert code == ExitCode.NOTHING
    assert "No execution is within the limits." in out


def test_evaluate_names_the_folder_that_is_missing(shardscape, tmp_path, golden):
    golden.to_csv(tmp_path / "in.csv", index=False)
    target = tmp_path / "nowhere" / "out.csv"
    code, out, err = shardscape("evaluate", "gpt3-13B", "a100_80g", tmp_path / "in.csv", "--out", target)
    assert (code, out) == (3, "")
    assert err == f"{target} cannot be written; the folder {target.parent} is missing.\n"


@pytest.mark.parametrize("given", ["csv", "parquet", "json"])
@pytest.mark.parametrize("wanted", ["csv", "parquet"])
def test_evaluate_files(shardscape, tmp_path, golden, given, wanted):
    source, target = tmp_path / f"in.{given}", tmp_path / f"out.{wanted}"
    {
        "csv": lambda: golden.to_csv(source, index=False),
        "parquet": lambda: golden.to_parquet(source),
        "json": lambda: golden.to_json(source, orient="records"),
    }[given]()
    code, out, err = shardscape("evaluate", "gpt3-13B", "a100_80g", source, "--out", target)
    assert (code, out) == (0, "")
    found = pd.read_csv(target) if wanted == "csv" else pd.read_parquet(target)
    expected = engine.evaluate("gpt3-13B", "a100_80g", golden.reset_index(drop=True))
    assert f"{(expected['status'] == 'ok').sum()} run" in err
    assert list(found) == [column.name for column in (*FIELDS, *OUTCOME, *STATISTICS)]
    for text in ("status", "reason", "reason_text"):
        assert found[text].fillna("").tolist() == expected[text].tolist()
    statistics = [column.name for column in STATISTICS]
    pd.testing.assert_frame_equal(found[statistics], expected[statistics], check_exact=True, check_dtype=False)
    pd.testing.assert_frame_equal(found[NAMES], expected[NAMES], check_dtype=False)


def test_evaluate_one_of_calculons_files(shardscape, one_execution):
    code, out, err = shardscape("evaluate", "gpt3-13B", "h100_80g_nvl8", one_execution)
    expected = engine.evaluate("gpt3-13B", "h100_80g_nvl8", pd.DataFrame([_running_execution()])).iloc[0]
    assert code == 0
    assert err.startswith("1 execution in ")
    for column in STATISTICS:
        assert column.label in out
        assert format_quantity(column, expected[column.name]) in out


def test_a_wrong_cell_spoils_its_own_row_only(shardscape, tmp_path):
    rows = pd.DataFrame([_running_execution()] * 4).astype(object)
    rows.loc[1, "weight_offload"] = "perhaps"
    rows.loc[2, "tensor_par"] = "four"
    rows.loc[3, "datatype"] = ""
    source, target = tmp_path / "in.csv", tmp_path / "out.parquet"
    rows.to_csv(source, index=False)
    code, _, err = shardscape("evaluate", "gpt3-13B", "h100_80g_nvl8", source, "--out", target)
    found = pd.read_parquet(target)
    assert code == 0
    assert found["status"].tolist() == ["ok", "invalid", "invalid", "invalid"]
    assert "perhaps" in found["reason_text"][1]
    assert "four" in found["reason_text"][2]
    assert "datatype has no value" in found["reason_text"][3]
    assert pd.isna(found["weight_offload"][1])
    assert err.startswith("4 executions in ")
    assert "1 run, 0 are infeasible, 3 are invalid" in err


def test_evaluate_without_a_row_that_runs(shardscape, tmp_path):
    source = tmp_path / "in.csv"
    source.write_text(",".join(NAMES) + "\n", encoding="utf-8")
    code, _, err = shardscape("evaluate", "gpt3-13B", "h100_80g_nvl8", source)
    assert code == ExitCode.NOTHING
    assert err.startswith("0 executions")


def test_results_in_pieces_are_the_results_in_one(shardscape, tmp_path, golden):
    source = tmp_path / "in.parquet"
    golden.to_parquet(source)
    shardscape("evaluate", "gpt3-13B", "a100_80g", source, "--out", tmp_path / "one.parquet")
    with engine.working_in(engine.WorkSizes(rows_of_file=7)):
        shardscape("evaluate", "gpt3-13B", "a100_80g", source, "--out", tmp_path / "many.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "one.parquet"), pd.read_parquet(tmp_path / "many.parquet"))


def test_layers(shardscape, one_execution):
    code, out, _ = shardscape("layers", "gpt3-13B", "h100_80g_nvl8", one_execution, "--json")
    expected = engine.operations("gpt3-13B", "h100_80g_nvl8", _running_execution(), cost_model="calculon")
    assert code == 0
    assert [row["name"] for row in json.loads(out)] == expected["name"].tolist()
    assert [row["fw_flops"] for row in json.loads(out)] == expected["fw_flops"].tolist()
    code, out, _ = shardscape("layers", "gpt3-13B", "h100_80g_nvl8", one_execution)
    assert code == 0
    assert all(name in out for name in expected["name"])


def test_layers_of_an_execution_that_cannot_run(shardscape, tmp_path):
    path = tmp_path / "execution.json"
    path.write_text(json.dumps({**_running_execution(), "batch_size": 7}), encoding="utf-8")
    code, out, err = shardscape("layers", "gpt3-13B", "h100_80g_nvl8", path)
    assert (code, out) == (ExitCode.NOTHING, "")
    assert "batch_size" in err


@pytest.mark.parametrize(("noun", "name"), [("models", "gpt3-175B"), ("systems", "h100_80g_nvl8")])
def test_libraries(shardscape, noun, name):
    code, out, _ = shardscape(noun, "list")
    assert code == 0
    assert name in out
    listed = json.loads(shardscape(noun, "list", "--json")[1])
    assert name in [row["name"] for row in listed]
    code, out, _ = shardscape(noun, "show", name)
    assert code == 0
    assert "source" in out
    assert json.loads(shardscape(noun, "show", name, "--json")[1])["name"] == name


def test_check_tells_every_file(shardscape, tmp_path):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(reference.models()["gpt3-13B"]), encoding="utf-8")
    bad.write_text(json.dumps({**reference.models()["gpt3-13B"], "hiden": 1}), encoding="utf-8")
    assert shardscape("models", "check", good)[0] == 0
    code, out, _ = shardscape("models", "check", bad, good)
    assert code == ExitCode.INPUT
    assert "'hiden'" in out
    assert f"{good}: a model" in out
    assert shardscape("systems", "check", good)[0] == ExitCode.INPUT


# Everything a person can get wrong: the exit code, and a word that the one sentence must contain.
def test_help_gives_examples_and_exit_codes(shardscape):
    code, out, _ = shardscape("--help")
    assert code == 0
    assert "shardscape explore gpt3-175B h100_80g_nvl8" in out
    for exit_code in ExitCode:
        assert f"  {exit_code.value} " in out
        assert f"  {exit_code.value} " in EXIT_CODES
    for command in ("explore", "evaluate", "layers", "serve"):
        assert "shardscape " + command in shardscape(command, "--help")[1]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], {}),
        (["tensor_par=4"], {"tensor_par": [4]}),
        (["tensor_par=1, 2,4"], {"tensor_par": [1, 2, 4]}),
        (["pipeline_par=2..16"], {"pipeline_par": {"min": 2, "max": 16}}),
        (["pipeline_par=..16"], {"pipeline_par": {"max": 16}}),
        (["pipeline_par=2.."], {"pipeline_par": {"min": 2}}),
        (["weight_offload=off", "training=TRUE"], {"weight_offload": [False], "training": [True]}),
        (["activation_recompute=none,full"], {"activation_recompute": ["none", "full"]}),
        (["uneven_pipelines=on"], {"uneven_pipelines": True}),
    ],
)
def test_limits_are_parsed(texts, expected):
    assert parse_limits(texts) == expected


@pytest.mark.parametrize(
    "text",
    [
        "tensor_par",
        "=1",
        "tensor_par=",
        "tensor_par=..",
        "tensor_par=1..2..3",
        "tensor_par=1_0",
        "tensor_par=-1",
        "tensor_par=1.5",
        "tensor_par=" + "9" * 5000,
        "weight_offload=maybe",
        "tensor_par=1,,2",
    ],
)
def test_limits_that_are_not_understood(text):
    with pytest.raises(LimitError, match=r"\.$"):
        parse_limits([text])


def test_two_limits_on_one_field():
    with pytest.raises(LimitError, match="two limits on tensor_par"):
        parse_limits(["tensor_par=1", "tensor_par=2"])


def test_json_has_no_infinity():
    assert json.loads(as_json({"a": float("inf"), "b": [float("nan"), 1.5]})) == {"a": None, "b": [None, 1.5]}


def test_tables_align_and_show_control_characters(capsys):
    assert text_table(("name", "n"), [("a", "1"), ("bcdef", "20")]) == "name    n\na       1\nbcdef  20"
    write_line("a\x1b[31mb")
    assert capsys.readouterr().out == "a\\x1b[31mb\n"


def test_quantities_have_four_digits_in_the_printed_unit():
    assert format_quantity(by_name("proc_mem_tier1_cap_req"), 1.5 * 2**30) == "1.500"
    assert format_quantity(by_name("total_efficiency"), 0.63314) == "63.31"
    assert format_quantity(by_name("total_time"), float("inf")) == "inf"
    assert format_quantity(by_name("total_time"), float("nan")) == "-"
    assert format_quantity(by_name("total_time"), 1.234e-9) == "1.234e-09"


def test_progress_is_drawn_on_a_terminal_only(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")  # wherever the tests run: a line ends where the terminal does
    monkeypatch.setenv("TERM", "xterm")

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    progress = engine.Progress(done=500_000, total=1_000_000, feasible=10, seconds=0.5)
    terminal, pipe = Terminal(), io.StringIO()
    ExplorationLine(terminal)(progress)
    ExplorationLine(pipe)(progress)
    assert pipe.getvalue() == ""
    assert "50%" in terminal.getvalue()
    assert "1 M executions/s" in terminal.getvalue()
    assert "0.5 s left" in terminal.getvalue()


def test_serve_starts_streamlit_on_the_application(shardscape, monkeypatch, tmp_path):
    started = []
    monkeypatch.setattr("os.execv", lambda program, command: started.append((program, command)))
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.delenv(serve.STORE_VARIABLE, raising=False)
    monkeypatch.setenv("MALLOC_ARENA_MAX", "")
    monkeypatch.delenv("MALLOC_ARENA_MAX")
    store = tmp_path / "results.duckdb"
    code, _, _ = shardscape("serve", "--port", 8600, "--address", "127.0.0.1", "--store", store)
    assert code == 0
    ((program, command),) = started
    assert program == sys.executable
    assert command[1:5] == ["-P", "-m", "dashboard", "run"]
    assert command[5] == str(serve.application_folder() / "app.py")
    assert command[6:] == ["--server.port=8600", "--server.address=127.0.0.1"]
    assert os.environ.pop(serve.STORE_VARIABLE) == str(store.resolve())
    assert store.exists()
    assert os.environ["MALLOC_ARENA_MAX"] == "2"
    monkeypatch.setenv("MALLOC_ARENA_MAX", "5")  # an operator's own number
    assert shardscape("serve", "--no-browser")[0] == 0
    assert os.environ["MALLOC_ARENA_MAX"] == "5"


def test_serve_opens_a_browser_where_there_is_a_display(monkeypatch, tmp_path):
    monkeypatch.setenv("DISPLAY", ":0")
    opening = serve.server_command(tmp_path, port=None, address=None, browser=True)
    assert "--server.headless=false" in opening
    assert "--server.showEmailPrompt=false" in opening  # or it would wait for an answer
    silent = serve.server_command(tmp_path, port=None, address=None, browser=False)
    assert "--server.headless=false" not in silent


def test_a_saved_scenario_is_asked_like_its_words(shardscape, tmp_path):
    saved = tmp_path / "scenario.json"
    scenario = engine.Scenario.of("gpt3-13B", "h100_80g_nvl8", **SMALL_ARGUMENTS, limits={"tensor_par": [2, 4]})
    saved.write_text(json.dumps(scenario.to_document()), encoding="utf-8")
    words = ("best", *SMALL[1:], "--limit", "tensor_par=2,4", "--json")
    expected = json.loads(shardscape(*words)[1])
    found = json.loads(shardscape("best", "--scenario", saved, "--json")[1])
    assert {**found, "seconds": 0} == {**expected, "seconds": 0}
    changed = ("explore", "--scenario", saved, "--procs", 4, "--limit", "pipeline_par=1", "--json")
    more = json.loads(shardscape(*changed)[1])
    assert (more["num_procs"], more["limits"]) == (4, {"pipeline_par": [1], "tensor_par": [2, 4]})
    saved.write_text(json.dumps({"model": "gpt3-13B", "system": "h100_80g_nvl8", **SMALL_ARGUMENTS}), encoding="utf-8")
    typed = json.loads(shardscape("best", "--scenario", saved, "--limit", "tensor_par=2,4", "--json")[1])
    assert typed["top"] == expected["top"]
    code, _, told = shardscape("best", "gpt3-13B", "--procs", 8)
    assert code == 2
    assert told == (
        "Without SYSTEM, --max-batch, --datatype there is no scenario; give all of them, or a saved "
        "scenario with --scenario FILE.\n"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_listed_with_the_line_of_its_own_help(name):
    group = typer.main.get_command(app)
    context = typer.Context(group)
    listed, loaded = group.commands[name], group.get_command(context, name)
    assert listed.get_short_help_str(200) == loaded.get_short_help_str(200)
    assert group.list_commands(context) == list(COMMANDS)
