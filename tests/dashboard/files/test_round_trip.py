"""What leaves the dashboard or the command line comes back as the same result: every export is read and evaluated."""

from __future__ import annotations

import ast
import functools
import gzip
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import engine
import hardware
import models
from dashboard.files import exports
from dashboard.files.execution_files import execution_json, for_reference
from dashboard.jobs.server import studies
from dashboard.pages.library.view import _draw_downloads
from dashboard.pages.serving.tables import deployments_file
from engine import Exploration, Scenario, serving, whatif
from engine.columns import by_name, fields_of, stored_of
from engine.cost_models.calculon.cost_model import CALCULON
from engine.cost_models.calibrated.placement import networks_of
from engine.executions.files import read_executions
from tests.dashboard.page_runs import run
from tests.dashboard.pages.test_whatif import studied

NETWORKS = ("tensor_par_net", "pipeline_par_net", "data_par_net")
ASKED = {"num_procs": 16, "max_batch_size": 16, "datatype": "bfloat16"}
LIMITS: dict[str, Any] = {
    "microbatch_size": 1,
    "tensor_par": [2, 8, 16],
    "activation_recompute": ["none", "full"],
    "zero_stage": [0, 1, 3],
    "tensor_par_comm_type": ["ar", "rs_ag"],
    "pipeline_par": [1, 2, 4],
    "optimizer_offload": False,
}
FEWER: dict[str, Any] = {"zero_stage": None, "tensor_par_overlap": "none", "data_par_overlap": True}
"""More of the limits where there are more executions."""


@functools.cache
def explored(cost_model: str) -> Exploration:
    """A model that both cost models know, on two domains of a system whose ranks go over both of its networks."""
    limits = LIMITS if cost_model == "calibrated" else {**LIMITS, **FEWER}
    return engine.explore(
        "llama-3-8B",
        "h100_80g_sxm",
        **ASKED,
        cost_model=cost_model,
        limits={name: limit for name, limit in limits.items() if limit is not None},
    )


BOTH = pytest.mark.parametrize("cost_model", ["calculon", "calibrated"])


def comes_back(scenario: Scenario, rows: pd.DataFrame, others: Sequence[Mapping[str, Any]] = ()) -> pd.DataFrame:
    """Evaluates the rows of a file again, every figure of which must be what it was; returns others, evaluated with
    them."""
    rows = rows.rename(columns=lambda name: str(name).partition(" [")[0]).reset_index(drop=True)
    fields = [column.name for column in fields_of(scenario.cost_model)]
    asked = pd.concat([rows[fields], pd.DataFrame(others)[fields]]) if others else rows[fields]
    found = scenario.evaluate(asked.reset_index(drop=True))
    found, also = found.iloc[: len(rows)], found.iloc[len(rows) :]
    assert set(found["status"]) == {"ok"}
    if scenario.cost_model == "calibrated":
        for name, placed in networks_of(scenario.system, rows).items():
            assert rows[name].tolist() == placed.tolist()
    names = [name for name in rows if name in found]
    figures = [name for name in names if found[name].dtype.kind == "f"]
    np.testing.assert_allclose(rows[figures].to_numpy(float), found[figures].to_numpy(), rtol=1e-12, equal_nan=True)
    for name in set(names).difference(figures):
        told = ["" if value != value else str(value) for value in rows[name]]  # CSV has nothing for an empty text
        assert told == list(map(str, found[name])), name
    return also


def names_of(cost_model: str) -> list[str]:
    return [column.name for column in stored_of(cost_model)]


def opened(kind: str, data: bytes, key: str = "executions") -> tuple[dict[str, Any], pd.DataFrame]:
    """(account, rows) of a file of the dashboard."""
    if kind == "csv":
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            return json.loads(packed.read("about.json")), pd.read_csv(packed.open(f"{key}.csv"))
    if kind == "json":
        text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        document = json.loads(text)
        return document["about"], pd.DataFrame(document[key])
    if kind == "excel":
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            rows, facts = (_sheet(packed.read(f"xl/worksheets/sheet{number}.xml")) for number in (1, 2))
        account = {name: text for name, text in facts if name == "scenario"}
        return {"scenario": json.loads(account["scenario"])}, pd.DataFrame(rows[1:], columns=rows[0])
    table = pq.read_table(io.BytesIO(data))
    return json.loads(table.schema.metadata[b"shardscape"]), table.to_pandas()


def _sheet(content: bytes) -> list[list[Any]]:
    """The cells of a sheet as a spreadsheet takes them: truths, numbers and texts."""
    space = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
    kinds: dict[str | None, Any] = {
        "b": lambda text: text == "1",
        None: lambda text: float(text or "nan"),
        "inlineStr": str,
    }
    rows = [
        {_column(cell.get("r", "")): kinds[cell.get("t")]("".join(cell.itertext())) for cell in row}
        for row in ElementTree.fromstring(content).iter(f"{space}row")
    ]
    # Cells without a value are left out of a sheet.
    return [[row.get(place, float("nan")) for place in range(len(rows[0]))] for row in rows]


def _column(reference: str) -> int:
    """The number of the column of a cell such as "AB12", counted from 0."""
    number = 0
    for letter in reference.rstrip("0123456789"):
        number = 26 * number + ord(letter) - ord("A") + 1
    return number - 1


@BOTH
@pytest.mark.parametrize("kind", exports.FORMATS)
def test_tables_of_executions_come_back(cost_model: str, kind: str) -> None:
    found = explored(cost_model)
    wide = [*names_of(cost_model), "act_space", "weight_space"]
    for names in (names_of(cost_model), wide) if kind == "parquet" else (wide,):
        target = io.BytesIO()
        exports.of_rows(found, kind, names=names)(target)
        about, rows = opened(kind, target.getvalue())
        assert len(rows) == found.feasible > 50
        comes_back(Scenario.from_document(about["scenario"]), rows.head(200))
    front = found.frontier("proc_mem_tier1_cap_req", "sample_rate")
    frame = found.evaluate_ids(front["id"].to_numpy())[names_of(cost_model)]
    about, rows = opened(kind, exports.of_frame(found, frame, kind, "the frontier")())
    comes_back(Scenario.from_document(about["scenario"]), rows)


@BOTH
def test_the_file_of_an_execution_comes_back(cost_model: str, tmp_path: Path) -> None:
    found = explored(cost_model)
    path = tmp_path / "execution.json"
    for row in found.top(60).iloc[::7].to_dict("records"):
        path.write_text(execution_json(row, cost_model))
        (table,) = read_executions(path)
        assert found.scenario.evaluate(table)["total_time"].tolist() == [row["total_time"]]


def test_networks_are_those_of_the_placement_wherever_executions_are_told() -> None:
    """Stored rows, evaluated ones, the best and those of a store agree, and Calculon finds that networks reach."""
    found = explored("calibrated")
    stored = found.rows.page(0, 10**6, names=["id", *NETWORKS, "tensor_par", "context_par", "data_par"]).to_pandas()
    again = found.evaluate_ids(stored["id"].to_numpy())
    assert stored[list(NETWORKS)].to_numpy().tolist() == again[list(NETWORKS)].to_numpy().tolist()
    assert (stored[list(NETWORKS)].nunique() == 2).all()
    outside = stored["tensor_par"] * stored["context_par"] * stored["data_par"] > 8
    assert (stored["data_par_net"] == (outside & (stored["data_par"] > 1))).all()
    seen = engine.evaluate(found.scenario.model, found.scenario.system, again, cost_model="calculon")
    assert not set(seen["reason"]) & {"network_too_small", "network_not_filled", "network_does_not_exist"}
    limited = engine.explore(
        "llama-3-8B", "h100_80g_sxm", **ASKED, cost_model="calibrated", limits={**LIMITS, "data_par_net": 0}
    )
    assert limited.feasible == int((stored["data_par_net"] == 0).sum())


def test_calculon_gets_the_same_execution_or_a_sentence() -> None:
    found = explored("calibrated")
    every = found.top(found.feasible)
    outcomes = set()
    for row in every.iloc[:: max(1, len(every) // 30)].to_dict("records"):
        made = for_reference(found.scenario, row, CALCULON)
        outcomes.add(made.text is not None)
        if int(row["context_par"]) > 1 or int(row["zero_stage"]) > 1:
            assert made.text is None
            assert "does not support" in made.sentence
            continue
        if made.text is None:
            assert "refuses this execution" in made.sentence
            continue
        table = pd.DataFrame([json.loads(made.text)])
        (outcome,) = engine.evaluate(found.scenario.model, found.scenario.system, table, cost_model="calculon").to_dict(
            "records"
        )
        assert outcome["status"] == "ok" or outcome["reason"].startswith("memory")
        assert ("it runs" in made.sentence) == (outcome["status"] == "ok")
    assert outcomes == {True, False}
    experts = engine.Scenario.of("mixtral-8x7B", "h100_80g_sxm", **ASKED, cost_model="calibrated")
    assert "cannot represent" in for_reference(experts, every.iloc[0].to_dict(), CALCULON).sentence


@pytest.fixture
def _own_studies() -> Iterator[None]:
    yield
    studies().close()


@BOTH
@pytest.mark.usefixtures("_own_studies")
def test_the_files_of_the_studies_come_back(cost_model: str) -> None:
    found = explored(cost_model)
    with patch("streamlit.download_button") as button:
        studied(found=found)
    with zipfile.ZipFile(io.BytesIO(button.call_args.kwargs["data"]())) as packed:
        about = json.loads(packed.read("about.json"))
        tables = {name: pd.read_csv(packed.open(name)) for name in about["files"]}
    scenario, seen = Scenario.from_document(about["scenario"]), 0
    assert set(tables) >= {"parameters.csv", "sweep.csv", "sweep_two.csv"}
    kept = f"fixed_layout_{exports.heading(by_name('sample_rate'))}"
    for name, table in tables.items():
        every = max(1, len(table) // 6)  # a table of two parameters has the values of both early and late
        for row in table.dropna(subset=["tensor_par"]).iloc[::every].to_dict("records"):
            if name == "parameters.csv":
                changes = {row["parameter"]: row["value"]}
            else:
                known = {which.name: exports.heading(which) for which in whatif.parameters(scenario)}
                changes = {which: row[head] for which, head in known.items() if head in row}
            other = whatif.changed(scenario, changes)
            fixed = [about["fixed_layouts"][name]] if kept in row and row[kept] == row[kept] else []
            same = comes_back(other, pd.DataFrame([row]), fixed)
            seen += 1
            if fixed:
                np.testing.assert_allclose(row[kept], same["sample_rate"], rtol=1e-12)
    assert seen > 20


@BOTH
def test_the_system_file_of_a_change_comes_back(cost_model: str) -> None:
    """A system with everything changed that can be, taken away and opened again, does what the page said of it."""
    found = explored(cost_model)
    doubled = {which.name: 2 * which.value for which in whatif.parameters(found.scenario) if which.value > 0}
    wanted = {name: to for name, to in doubled.items() if whatif.system_changes(found.scenario, {name: to})}
    assert len(wanted) > 5
    changes = ";".join(f"{name}:{value!r}" for name, value in wanted.items())
    with patch("streamlit.download_button") as button:
        run("whatif", found, {"whatif_changes": changes})
    (made,) = (call.args[1] for call in button.call_args_list if call.kwargs["key"] == "whatif_download")
    system = hardware.load_document(json.loads(made), "system.json")
    scenario = found.scenario
    again = Scenario.of(scenario.model, system, **ASKED, limits=scenario.limits, cost_model=cost_model)
    answer = whatif.reoptimise(scenario, wanted)
    assert answer.best is not None
    (rate,) = again.evaluate(pd.DataFrame([answer.best]))["sample_rate"]
    assert rate == answer.best["sample_rate"]


_HERE, _CALIBRATE = "dashboard/files/test_round_trip", "engine/calibrate/test_"
COMES_BACK = {
    "pages/calibrate/use 'calibrate_download'": (
        f"{_CALIBRATE}document",
        "a_document_reads_back_and_has_the_fitted_values",
    ),
    "pages/serving/measured_servers 'serving_factors'": (
        "engine/questions/test_doors_servers",
        "a_factor_is_the_mean_of_the_results_and_no_other_engines",
    ),
    "pages/day/view 'day_hours'": ("engine/questions/test_doors_day", "the_day_as_csv_is_a_demand_again"),
    "pages/fleet/view 'fleet_hours'": ("dashboard/pages/test_fleet", "files_of_a_plan_come_back"),
    "pages/fleet/view 'fleet_json'": ("dashboard/pages/test_fleet", "files_of_a_plan_come_back"),
    "pages/fleet/view 'fleet_report'": (
        "dashboard/files/test_plan_reports",
        "the_report_of_a_fleet_has_every_stage_and_the_fleet_again",
    ),
    "pages/post_training/view 'post_training_report'": (
        "dashboard/files/test_plan_reports",
        "the_report_of_a_step_has_its_figures_and_the_question_again",
    ),
    "pages/post_training/view 'post_training_splits'": (
        "engine/questions/test_doors_post_training",
        "the_command_says_the_same",
    ),
    "pages/plan_run/view 'plan_run_report'": (
        "engine/questions/test_doors_plan_run",
        "command_page_and_report_say_the_same",
    ),
    "pages/plan_run/phases_view 'plan_run_phases_report'": (
        "engine/questions/test_doors_run_phases",
        "command_report_and_json_say_the_same",
    ),
    "pages/plan_run/phases_view 'plan_run_question'": (
        "engine/questions/test_doors_run_phases",
        "command_report_and_json_say_the_same",
    ),
    "pages/calibrate/view 'calibrate_template'": (
        f"{_CALIBRATE}reading",
        "the_template_has_what_the_mapping_needs_and_reads_back",
    ),
    "pages/codesign/studies 'codesign_save'": ("dashboard/pages/test_codesign", "files_of_a_study_come_back"),
    "pages/codesign/studies 'codesign_share_file'": ("dashboard/pages/test_codesign", "files_of_a_study_come_back"),
    "pages/codesign/downloads 'codesign_report'": ("dashboard/pages/test_codesign", "files_of_a_study_come_back"),
    "pages/codesign/downloads 'codesign_study_json'": ("dashboard/pages/test_codesign", "files_of_a_study_come_back"),
    "pages/codesign/downloads f'codesign_{part}_{kind}'": (
        "dashboard/pages/test_codesign",
        "files_of_a_study_come_back",
    ),
    "pages/compare/view 'compare_tables'": (
        "dashboard/pages/test_compare_files",
        "the_tables_of_a_comparison_come_back",
    ),
    "files/downloads key": (_HERE, "tables_of_executions_come_back"),
    "widgets/file_download key": ("dashboard/pages/test_elastic", "files_of_a_plan_come_back"),
    "pages/elastic/cards 'elastic_card_json'": ("dashboard/pages/test_elastic", "files_of_a_plan_come_back"),
    "pages/elastic/cards 'elastic_both_json'": ("dashboard/pages/test_elastic", "cards_in_links_and_files_are_checked"),
    "pages/elastic/cards 'elastic_trace_csv'": ("dashboard/pages/test_elastic", "files_of_a_plan_come_back"),
    "pages/elastic/tables f'elastic_{file}'": ("dashboard/pages/test_elastic", "files_of_a_plan_come_back"),
    "pages/execution/view f'execution_json_download{suffix}'": (_HERE, "the_file_of_an_execution_comes_back"),
    "pages/explore/download f'download_{kind}'": (_HERE, "tables_of_executions_come_back"),
    "pages/intra_operator/layers 'intra_operator_annotations.csv'": (
        "dashboard/pages/test_intra_operator",
        "files_of_a_plan_come_back",
    ),
    "pages/intra_operator/tables f'intra_operator_{name}'": (
        "dashboard/pages/test_intra_operator",
        "files_of_a_plan_come_back",
    ),
    "pages/layerwise/view f'layerwise_{name}'": ("dashboard/pages/test_layerwise", "files_of_a_plan_come_back"),
    "pages/layerwise/view 'layerwise_batches.csv'": ("dashboard/pages/test_layerwise", "files_of_a_plan_come_back"),
    "pages/library/view 'library_calculon'": (_HERE, "files_of_the_library_come_back"),
    "pages/library/view 'library_file'": (_HERE, "files_of_the_library_come_back"),
    "pages/papers/view 'papers_csv'": ("dashboard/pages/test_papers", "the_table_of_a_figure_comes_back"),
    "pages/pareto/table f'pareto_download_{kind}'": (_HERE, "tables_of_executions_come_back"),
    "pages/results/view f'results_export_{kind}'": (_HERE, "tables_of_executions_come_back"),
    "pages/scenarios/studies 'scenarios_study_file'": (
        "dashboard/pages/test_scenarios",
        "studies_are_kept_like_scenarios",
    ),
    "pages/scenarios/view 'scenarios_file'": ("dashboard/pages/test_scenarios", "opening_a_file"),
    "pages/scenarios/view 'scenarios_report'": (
        "dashboard/files/test_report",
        "the_report_holds_the_figures_of_the_engine",
    ),
    "pages/schedules/grids 'schedules_grid_csv'": (
        "dashboard/pages/test_parallelism_grid",
        "files_of_a_grid_come_back",
    ),
    "pages/schedules/grids 'schedules_grid_trace'": (
        "dashboard/pages/test_parallelism_grid",
        "files_of_a_grid_come_back",
    ),
    "pages/schedules/view f'schedules_{letter}_{name}'": (
        "dashboard/pages/test_schedules",
        "files_of_a_schedule_come_back",
    ),
    "pages/serving/recommended 'serving_report'": (
        "dashboard/pages/test_serving",
        "the_report_has_the_figures_of_the_page",
    ),
    "pages/serving/tables f'serving_download_{kind}'": (_HERE, "deployments_come_back"),
    "widgets/launch f'{key}_download_{number}'": ("engine/launch/test_round_trip", "what_is_written_reads_back"),
    "widgets/share key": ("dashboard/pages/test_scenarios", "opening_a_file"),
    "widgets/share 'share_report'": ("dashboard/files/test_report", "the_report_holds_the_figures_of_the_engine"),
    "pages/whatif/studies 'whatif_studies_file'": (_HERE, "the_files_of_the_studies_come_back"),
    "pages/whatif/sliders 'whatif_download'": (_HERE, "the_system_file_of_a_change_comes_back"),
}
"""What every download of the pages is read again by: module and key of the button; file and name of the test."""


def test_every_download_of_the_pages_is_read_again() -> None:
    """Downloads are found in the code of the pages, so that a new one needs a test as well."""
    root, found = Path(__file__).parents[3], set()
    for path in (root / "dashboard").rglob("*.py"):
        text = path.read_text("utf-8")
        if "download" not in text:
            continue
        for call in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)):
            named = ast.unparse(call.func)
            if named.endswith(".download_button") or named in ("downloads.button", "draw_download"):
                (key,) = (ast.unparse(one.value) for one in call.keywords if one.arg == "key")
                found.add(f"{path.relative_to(root / 'dashboard').with_suffix('')} {key}")
    assert found == set(COMES_BACK)
    for file, test in COMES_BACK.values():
        assert f"\ndef test_{test}(" in (root / "tests" / f"{file}.py").read_text("utf-8"), test


def test_files_of_the_library_come_back() -> None:
    """Both files of every model and system that have one are the same to the cost models that read them."""
    for thing in (*map(models.load, models.names()), *map(hardware.load, hardware.names())):
        with patch("streamlit.download_button") as shown:
            _draw_downloads(thing)
        files = {call.kwargs["key"]: json.loads(call.args[1]) for call in shown.call_args_list}
        package: Any = models if isinstance(thing, models.Model) else hardware
        again = package.load_document(files["library_file"], thing.name)
        assert again == thing
        if "library_calculon" in files:
            again = package.load_document(files["library_calculon"], thing.name)
            assert package.to_calculon(again) == package.to_calculon(thing)


Command = Callable[..., tuple[int, str, str]]


def told_by(shardscape: Command, *arguments: object) -> str:
    """What a command prints."""
    code, told, problem = shardscape(*arguments)
    assert code == 0, problem
    return told


@BOTH
def test_the_command_line_s_results_come_back(cost_model: str, tmp_path: Path, shardscape: Command) -> None:
    scenario = explored(cost_model).scenario
    space = (
        "llama-3-8B",
        "h100_80g_sxm",
        "--procs",
        "16",
        "--max-batch",
        "16",
        "--datatype",
        "bfloat16",
        "--cost-model",
        cost_model,
        "--limit",
        "microbatch_size=1",
        "--limit",
        "tensor_par=4",
        "--limit",
        "pipeline_par=2",
        "--limit",
        "activation_recompute=none",
        "--limit",
        "optimizer_offload=false",
        *(("--limit", "tensor_par_overlap=none") if cost_model == "calculon" else ()),
    )
    for command in ("explore", "best"):
        document = json.loads(told_by(shardscape, command, *space, "--json", "--top", "20"))
        rows = pd.DataFrame(document["top"])
        comes_back(scenario, rows[[name for name in rows if name not in ("status", "reason", "reason_text")]])
    for suffix in ("csv", "parquet"):
        path, out = tmp_path / f"rows.{suffix}", tmp_path / f"out.{suffix}"
        told_by(shardscape, "explore", *space, "--export", str(path))
        told_by(shardscape, "evaluate", *space[:2], str(path), "--out", str(out), "--cost-model", cost_model)
        for file in (path, out):
            comes_back(scenario, pd.read_csv(file) if suffix == "csv" else pd.read_parquet(file))


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_deployments_come_back(kind: str) -> None:
    """Also with a calibration of one's own, price and limits on latency: the file has all that it takes."""
    document = {**hardware.calibration_document(hardware.load_calibration("global")), "name": "ours"}
    document["parameters"]["latency"]["value"] *= 2
    ours = hardware.load_calibration_document(document, "ours")
    asked: dict[str, Any] = {"num_procs": 8, "prompt": 1000, "output": 100}
    more: dict[str, Any] = {"time_to_first_token": 5.0, "time_per_output_token": 0.05, "price": 2.5}
    found = serving.explore("llama-3-8B", "h100_80g_sxm", **asked, **more, calibration=ours)
    about, rows = opened(kind, deployments_file(found, kind), "deployments")
    same_deployments(about, rows.rename(columns=lambda name: str(name).partition(" [")[0]), found.table)


def same_deployments(about: Mapping[str, Any], rows: pd.DataFrame, expected: pd.DataFrame) -> None:
    again = serving.evaluate(
        models.load_document(about["model"]),
        hardware.load_document(about["system"]),
        rows,
        calibration=hardware.load_calibration_document(about["calibration"], "the file"),
        **{name: about[name] for name in ("time_to_first_token", "time_per_output_token", "price")},
    )
    assert len(rows) == len(expected) > 50
    for name in expected.columns:
        if name in again and expected[name].dtype.kind == "f":
            np.testing.assert_allclose(rows[name].to_numpy(float), again[name], rtol=1e-13, equal_nan=True)


def test_the_command_line_s_deployments_come_back(tmp_path: Path, shardscape: Command) -> None:
    asked: tuple[str, ...] = ("inference", "llama-3-8B", "h100_80g_sxm", "--num-procs", "8", "--prompt", "1000")
    asked += ("--output", "100", "--ttft", "none", "--tpot", "none")
    found = serving.explore("llama-3-8B", "h100_80g_sxm", num_procs=8, prompt=1000, output=100)
    about = {
        "model": models.to_document(found.model),
        "system": hardware.to_document(found.system),
        "calibration": hardware.calibration_document(hardware.load_calibration("global")),
        "time_to_first_token": None,
        "time_per_output_token": None,
        "price": None,
    }
    for suffix in ("csv", "parquet"):
        path = tmp_path / f"deployments.{suffix}"
        told_by(shardscape, *asked, "--export", str(path))
        same_deployments(about, pd.read_csv(path) if suffix == "csv" else pd.read_parquet(path), found.table)
