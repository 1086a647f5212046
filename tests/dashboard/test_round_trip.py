"""What leaves the dashboard or the command line comes back as the same result: every export is read and evaluated."""

from __future__ import annotations

import functools
import gzip
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import engine
import hardware
import models
from dashboard import export
from dashboard.execution_files import execution_json, for_calculon
from dashboard.serving_inputs import Inputs
from dashboard.serving_table import _file as serving_file
from dashboard.whatif_studies import studies
from engine import Exploration, Scenario, serving, whatif
from engine.cli.main import app
from engine.columns import fields_of, stored_of
from engine.cost_models.calibrated.placement import networks_of
from engine.executions.files import read_executions
from tests.dashboard.pages import run
from tests.dashboard.test_whatif import settled

NETWORKS = ("tensor_par_net", "pipeline_par_net", "data_par_net")
ASKED = {"num_procs": 16, "max_batch_size": 16, "datatype": "bfloat16"}
LIMITS: dict[str, Any] = {"microbatch_size": [1, 2], "activation_recompute": ["none", "full"], "zero_stage": [0, 1, 3],
                          "tensor_par_comm_type": ["ar", "rs_ag"], "pipeline_par": [1, 2, 4]}  # fmt: skip


@functools.cache
def explored(cost_model: str) -> Exploration:
    """A model that both cost models know, on two domains of a system whose ranks go over both of its networks."""
    limits = LIMITS if cost_model == "calibrated" else {**LIMITS, "zero_stage": None}
    return engine.explore(
        "llama-3-8B", "h100_80g_sxm", **ASKED, cost_model=cost_model,
        limits={name: limit for name, limit in limits.items() if limit is not None},
    )  # fmt: skip


BOTH = pytest.mark.parametrize("cost_model", ["calculon", "calibrated"])


def comes_back(scenario: Scenario, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of a file, evaluated again; every figure that the file has must be what it was."""
    rows = rows.rename(columns=lambda name: str(name).partition(" [")[0]).reset_index(drop=True)
    found = scenario.evaluate(rows[[column.name for column in fields_of(scenario.cost_model)]])
    assert set(found["status"]) == {"ok"}
    if scenario.cost_model == "calibrated":
        for name, placed in networks_of(scenario.system, rows).items():
            assert rows[name].tolist() == placed.tolist()
    for name in [name for name in rows if name in found]:
        if found[name].dtype.kind == "f":
            np.testing.assert_allclose(rows[name].to_numpy(float), found[name], rtol=1e-12, equal_nan=True)
        else:
            told = ["" if value != value else str(value) for value in rows[name]]  # CSV has nothing for an empty text
            assert told == found[name].astype(str).tolist()
    return rows


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
    table = pq.read_table(io.BytesIO(data))
    return json.loads(table.schema.metadata[b"shardscape"]), table.to_pandas()


@BOTH
@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_tables_of_executions_come_back(cost_model: str, kind: str) -> None:
    found = explored(cost_model)
    for names in (names_of(cost_model), [*names_of(cost_model), "act_space", "weight_space"]):
        target = io.BytesIO()
        export.of_rows(found, kind, names=names)(target)
        about, rows = opened(kind, target.getvalue())
        assert len(rows) == found.feasible > 50
        comes_back(Scenario.from_document(about["scenario"]), rows.head(200))
    front = found.frontier("proc_mem_tier1_cap_req", "sample_rate")
    frame = found.evaluate_ids(front["id"].to_numpy())[names_of(cost_model)]
    about, rows = opened(kind, export.of_frame(found, frame, kind, "the frontier")())
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
    limited = engine.explore("llama-3-8B", "h100_80g_sxm", **ASKED, cost_model="calibrated",
                             limits={**LIMITS, "data_par_net": 0})  # fmt: skip
    assert limited.feasible == int((stored["data_par_net"] == 0).sum())


def test_calculon_gets_the_same_execution_or_a_sentence() -> None:
    found = explored("calibrated")
    every = found.top(found.feasible)
    outcomes = set()
    for row in every.iloc[:: max(1, len(every) // 60)].to_dict("records"):
        made = for_calculon(found.scenario, row)
        outcomes.add(made.text is not None)
        if int(row["context_par"]) > 1 or int(row["zero_stage"]) > 1:
            assert made.text is None
            assert "does not have" in made.sentence
            continue
        if made.text is None:
            assert "refuses this execution" in made.sentence
            continue
        table = pd.DataFrame([json.loads(made.text)])
        (outcome,) = engine.evaluate(
            found.scenario.model, found.scenario.system, table, cost_model="calculon"
        ).to_dict("records")
        assert outcome["status"] == "ok" or outcome["reason"].startswith("memory")
        assert ("it runs" in made.sentence) == (outcome["status"] == "ok")
    assert outcomes == {True, False}
    experts = engine.Scenario.of("mixtral-8x7B", "h100_80g_sxm", **ASKED, cost_model="calibrated")
    assert "no words for" in for_calculon(experts, every.iloc[0].to_dict()).sentence


@pytest.fixture
def _no_studies() -> Iterator[None]:
    yield
    studies.clear()


@BOTH
@pytest.mark.usefixtures("_no_studies")
def test_the_files_of_the_studies_come_back(cost_model: str) -> None:
    found = explored(cost_model)
    settled(run("whatif", found))
    with patch("dashboard.whatif_cards.st.download_button") as button:
        run("whatif", found)
    with zipfile.ZipFile(io.BytesIO(button.call_args.kwargs["data"]())) as packed:
        about = json.loads(packed.read("about.json"))
        tables = {name: pd.read_csv(packed.open(name)) for name in about["files"]}
    scenario, seen = Scenario.from_document(about["scenario"]), 0
    for name, table in tables.items():
        for row in table.dropna(subset=["tensor_par"]).to_dict("records"):
            if name == "parameters.csv":
                changes = {row["parameter"]: row["value"]}
            else:
                known = {which.name: export.heading(which) for which in whatif.parameters(scenario)}
                changes = {which: row[head] for which, head in known.items() if head in row}
            back = comes_back(whatif.changed(scenario, changes), pd.DataFrame([row]))
            seen += len(back)
    assert seen > 30


def told_by(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@BOTH
def test_the_command_line_s_results_come_back(cost_model: str, tmp_path: Path) -> None:
    scenario = explored(cost_model).scenario
    space = ("llama-3-8B", "h100_80g_sxm", "--procs", "16", "--max-batch", "16", "--datatype", "bfloat16",
             "--cost-model", cost_model, "--limit", "microbatch_size=1",
             "--limit", "activation_recompute=none")  # fmt: skip
    for command in ("explore", "best"):
        document = json.loads(told_by(command, *space, "--json", "--top", "20"))
        rows = pd.DataFrame(document["top"])
        comes_back(scenario, rows[[name for name in rows if name not in ("status", "reason", "reason_text")]])
    for suffix in ("csv", "parquet"):
        path, out = tmp_path / f"rows.{suffix}", tmp_path / f"out.{suffix}"
        told_by("explore", *space, "--export", str(path))
        told_by("evaluate", *space[:2], str(path), "--out", str(out), "--cost-model", cost_model)
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
    question = Inputs(found.model, found.system, *asked.values(), 5.0, 0.05, 2.5, {})
    about, rows = opened(kind, serving_file(question, found, kind), "deployments")
    same_deployments(about, rows.rename(columns=lambda name: str(name).partition(" [")[0]), found.table)


def same_deployments(about: Mapping[str, Any], rows: pd.DataFrame, expected: pd.DataFrame) -> None:
    again = serving.evaluate(
        models.load_document(about["model"]), hardware.load_document(about["system"]), rows,
        calibration=hardware.load_calibration_document(about["calibration"], "the file"),
        **{name: about[name] for name in ("time_to_first_token", "time_per_output_token", "price")},
    )  # fmt: skip
    assert len(rows) == len(expected) > 50
    for name in expected.columns:
        if name in again and expected[name].dtype.kind == "f":
            np.testing.assert_allclose(rows[name].to_numpy(float), again[name], rtol=1e-13, equal_nan=True)


def test_the_command_line_s_deployments_come_back(tmp_path: Path) -> None:
    asked = ("inference", "llama-3-8B", "h100_80g_sxm", "--num-procs", "8", "--prompt", "1000", "--output", "100")
    found = serving.explore("llama-3-8B", "h100_80g_sxm", num_procs=8, prompt=1000, output=100)
    about = {"model": models.to_document(found.model), "system": hardware.to_document(found.system),
             "calibration": hardware.calibration_document(hardware.load_calibration("global")),
             "time_to_first_token": None, "time_per_output_token": None, "price": None}  # fmt: skip
    for suffix in ("csv", "parquet"):
        path = tmp_path / f"deployments.{suffix}"
        told_by(*asked, "--export", str(path))
        same_deployments(about, pd.read_csv(path) if suffix == "csv" else pd.read_parquet(path), found.table)
