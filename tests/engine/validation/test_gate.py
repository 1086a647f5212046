"""The regression gate: its sample of the support surface, what it compares, and when it fails."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hardware
import models
from engine.columns import ALL_FIELDS
from engine.cost_models.calibrated import CALIBRATED
from engine.validation.__main__ import main
from engine.validation.reading import library_runs
from engine.validation.regression.comparison import (
    LOST_PREDICTIONS,
    RUNS_REFUSED,
    compare_errors,
    compare_executions,
    count_gone,
    find_worse_groups,
    summarize_changes,
)
from engine.validation.regression.evaluation import predict_measured_runs, predict_parts
from engine.validation.regression.predictions import (
    KEY,
    SURFACE_FILE,
    GateError,
    GatePredictions,
    accepted_predictions,
    identify,
    predict_now,
    read_predictions,
    write_predictions,
)
from engine.validation.regression.revisions import RevisionPredictor
from engine.validation.regression.surface import (
    LAYOUTS,
    SurfacePart,
    build_surface,
    differing_fields,
    generation_title,
    layer_titles,
)
from tests.engine.validation.library_outcomes import mapped

ROOT = Path(__file__).parents[3]


@cache
def surface() -> list[SurfacePart]:
    return build_surface()


@cache
def predicted() -> tuple[list[SurfacePart], GatePredictions]:
    """A small part of the surface and all measured runs, predicted."""
    parts = surface()[::40]
    return parts, predict_now(parts, mapped())


def test_the_surface_covers_models_systems_layouts_and_fields() -> None:
    parts = surface()
    assert {part.model for part in parts} == set(models.names())
    assert {part.system for part in parts} == set(hardware.names())
    assert {part.layout for part in parts} == set(LAYOUTS)
    settled = {"num_procs", "data_par", "batch_size", "training", "optimizer_sharding", "attention_type"}
    choices = {column.name for column in ALL_FIELDS} - CALIBRATED.columns.not_read - settled
    assert {change for part in parts for change in part.changes} == choices | {""}
    for column in ALL_FIELDS:
        if column.choices and column.name in choices:
            tried = {execution.get(column.name) for part in parts for execution in part.executions}
            assert set(column.choices) <= tried, column.name
    kinds = {title for part in parts for title in layer_titles(models.load(part.model))}
    generations = {generation_title(hardware.load(part.system)) for part in parts}
    assert len(kinds) > 15
    assert {"ampere", "hopper", "blackwell", "cdna3", "tpu v5p"} <= generations
    keys = identify(parts)
    assert not keys.duplicated().any()
    assert SURFACE_FILE.stat().st_size < 300_000


def test_most_of_the_surface_runs_and_is_predicted_alike_twice() -> None:
    parts, now = predicted()
    assert (now.surface["outcome"] == "ok").mean() > 0.5
    assert now.surface.loc[now.surface["outcome"] == "ok", "seconds"].gt(0).all()
    again = predict_parts([part.__dict__ for part in parts])
    pd.testing.assert_frame_equal(now.surface[["outcome", "seconds", "gib"]], pd.DataFrame(again))


def test_an_execution_keeps_its_name_when_fields_are_added() -> None:
    execution = surface()[0].executions[0]
    assert differing_fields(execution) == differing_fields({**execution, "fused_activation": True})
    assert differing_fields(execution) != differing_fields({**execution, "new_field": 2})


def test_a_field_or_model_that_a_revision_lacks_is_new_and_no_change() -> None:
    part = surface()[0]
    executions = [part.executions[0], {**part.executions[0], "spin": 3}]
    outcomes = predict_parts([{**part.__dict__, "executions": executions}, {**part.__dict__, "model": "no such model"}])
    assert [each["outcome"] for each in outcomes[:3]] == ["ok", "unknown_field", "unknown_model_or_system"]


def test_changes_are_found_by_group() -> None:
    parts, now = predicted()
    before = now.surface.copy()
    runs = np.flatnonzero(before["outcome"] == "ok")
    before.loc[runs[0], "seconds"] *= 2.0
    before.loc[runs[1], "gib"] *= 1.1
    before.loc[runs[2], "outcome"] = "memory_tier1"
    before = before.drop(index=runs[3])
    table = summarize_changes(parts, compare_executions(before, now.surface)).set_index("group")
    row = table.loc["all executions"]
    assert (row["executions"], row["new"], row["outcomes"], row["changed"]) == (len(now.surface), 1, 1, 2)
    assert row["largest"] == pytest.approx(-50.0)
    assert row["memory"] == pytest.approx(-100 / 11)
    assert row["median"] == pytest.approx(0.0)
    assert len(table[table["changed"] > 0]) < len(table)


def test_errors_are_compared_on_runs_that_both_predict() -> None:
    _, now = predicted()
    before = now.runs.copy()
    rows = np.flatnonzero(before["status"] == "predicted")
    errors = compare_errors(mapped(), GatePredictions(now.surface, before), now).set_index("group")
    assert (errors["before"] == errors["after"]).all()
    assert find_worse_groups(errors.reset_index(), 0.0, {}) == []
    assert errors.loc["memory, published runs", "runs"] > 70
    assert 0 < errors.loc["memory, published runs", "after"] < 30
    assert 0 < errors.loc[RUNS_REFUSED, "after"] < 30
    # Half of all runs get 20 % slower: dense and experts alike.
    changed = now.runs.copy()
    changed.loc[rows[::2], "predicted_step_time_s"] *= 1.2
    worse = compare_errors(mapped(), now, GatePredictions(now.surface, changed))
    found = find_worse_groups(worse, 0.3, {})
    assert "published runs, dense" in [each.group for each in found]
    assert "memory, published runs" not in [each.group for each in found]
    # The rows that the command prints state the growth. Once it is accepted, another growth needs other rows.
    stated = {each.group: each.up_to for each in found}
    assert find_worse_groups(worse, 0.3, stated) == []
    again = worse.assign(before=worse["after"], after=worse["after"] + 1.0)
    assert {each.group for each in find_worse_groups(again, 0.3, stated)} >= set(stated)
    # Losing a prediction is no improvement, whatever the error was.
    lost = now.runs.copy()
    lost.loc[lost["id"].str.startswith("sc21"), ["status", "reason"]] = ["unsupported", "bad_value"]
    fewer = compare_errors(mapped(), now, GatePredictions(now.surface, lost))
    (only,) = find_worse_groups(fewer, 100.0, {})
    assert only.group == LOST_PREDICTIONS
    assert find_worse_groups(fewer, 100.0, {LOST_PREDICTIONS: only.up_to}) == []
    assert len(find_worse_groups(fewer, 100.0, {LOST_PREDICTIONS: only.up_to - 1.0})) == 1


def test_executions_that_only_the_earlier_revision_has_are_counted() -> None:
    _, now = predicted()
    assert count_gone(now.surface, now.surface) == 0
    assert count_gone(now.surface, now.surface.iloc[3:]) == 3
    never_known = now.surface.assign(outcome="unknown_field")
    assert count_gone(never_known, now.surface.iloc[3:]) == 0


def test_runs_in_words_that_a_revision_lacks_are_predicted_from_its_own_table(tmp_path: Path) -> None:
    table = library_runs().table
    first = table["id"].iloc[0]
    path = tmp_path / "later.csv"
    table.iloc[:20].assign(token_dispatcher=["carrier_pigeon"] + [""] * 19).to_csv(path, index=False)
    found = predict_measured_runs(path).set_index("id")
    own = predicted()[1].runs.set_index("id")
    assert list(found.index) == table["id"].iloc[:20].tolist()
    assert own.loc[first, "status"] == found.loc[first, "status"] == "predicted"
    np.testing.assert_allclose(found["predicted_step_time_s"], own.loc[found.index, "predicted_step_time_s"], rtol=1e-9)


def test_a_file_holds_what_was_written_and_the_same_bytes(tmp_path: Path) -> None:
    _, now = predicted()
    first, second = tmp_path / "first.csv.gz", tmp_path / "second.csv.gz"
    write_predictions(now, first)
    write_predictions(now, second)
    assert first.read_bytes() == second.read_bytes()
    found = read_predictions(first)
    pd.testing.assert_frame_equal(found.surface, now.surface, rtol=1e-5, check_dtype=False)
    assert found.runs["id"].tolist() == now.runs["id"].tolist()
    assert found.runs["reason"].tolist() == now.runs["reason"].tolist()


def test_the_accepted_surface_is_the_present_one() -> None:
    """A few executions stand for all; `gate` compares the rest."""
    _, now = predicted()
    accepted = accepted_predictions().surface
    changes = compare_executions(accepted, now.surface)
    assert not changes["is_new"].any(), "run `python -m engine.validation refresh`"
    assert not changes["has_changed"].any() | changes["has_other_outcome"].any(), "run the same"
    assert list(accepted.columns) == [*KEY, "outcome", "seconds", "gib"]


@pytest.mark.parametrize("content", [b"", b"id,status\n1,2\n", b"\x1f\x8b\x08\x00broken"])
def test_files_that_are_no_predictions_are_refused(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.csv.gz"
    path.write_bytes(content)
    with pytest.raises(GateError, match="no file of predictions"):
        read_predictions(path)
    assert main(["gate", "--against", str(path)]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("row", ["dense,,why", "dense,-1,why", "dense,many,why", "dense,1,", "dense,1,REASON"])
def test_stated_errors_need_a_group_a_number_and_a_reason(
    tmp_path: Path, row: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "allowed.csv"
    path.write_text(f"group,up_to,why\n{row}\n", encoding="utf-8")
    assert main(["gate", "--allowed", str(path)]) == 2
    assert "each row needs a group" in capsys.readouterr().err


def test_a_revision_of_a_clone_is_predicted_and_what_git_does_not_know_is_refused() -> None:
    if subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], check=False, capture_output=True).returncode:
        pytest.skip("not a clone")
    parts, now = predicted()
    with pytest.raises(GateError, match="no such revision"):
        RevisionPredictor("no/such/revision", parts, library_runs())
    few = parts[:2]
    with RevisionPredictor("HEAD", few, library_runs()) as predictor:
        found = predictor.wait()
    assert len(found.surface) == sum(len(part.executions) for part in few)
    assert found.runs["id"].tolist() == now.runs["id"].tolist()
    assert np.isfinite(found.runs["predicted_step_time_s"]).sum() > 1_000


def test_the_command_explains_itself() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "engine.validation", "gate", "--help"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert "--against" in done.stdout
    assert "--store" in done.stdout
