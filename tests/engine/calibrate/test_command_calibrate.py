"""The command `calibrate`: what it prints and writes, and how it ends."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hardware
from engine import Scenario, calibrate
from engine.cost_models.calibrated import parameters, parameters_of
from tests.engine.calibrate.runs import LAYOUTS, LLAMA, checked, plans, timed
from tests.engine.calibrate.test_reading import megatron

TRUTH = parameters().model_copy(update={"sustained_hopper": 0.60})


@pytest.fixture
def command(shardscape: Any) -> Any:
    return partial(shardscape, "calibrate")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "runs.csv"
    timed(plans(), TRUTH).to_csv(path, index=False)
    return path


def test_the_template_is_printed_and_read(command: Any, tmp_path: Path) -> None:
    code, out, _ = command("--template")
    assert code == 0
    assert out == calibrate.template()
    (tmp_path / "t.csv").write_text(out)
    code, out, _ = command(tmp_path / "t.csv", "--system", "h100_80g_sxm")
    assert code == 1
    assert "example row" in out


def test_it_prints_the_fit_and_writes_the_calibration(command: Any, runs: Path, tmp_path: Path) -> None:
    out_file = tmp_path / "ours.json"
    options = ("--parameters", "sustained_hopper, launch", "--name", "ours", "--out", out_file)
    code, out, err = command(runs, "--system", "h100_80g_sxm", *options)
    assert (code, err) == (0, "")
    expected = calibrate.calibrate(checked(timed(plans(), TRUTH)), ["sustained_hopper", "launch"])
    assert f"{expected.after.sustained_hopper:.4g}" in out
    assert f"{expected.errors_before['mean']:.1f}" in out
    assert expected.verdict in out
    found = hardware.load_calibration(out_file)
    assert found.name == "ours"
    assert parameters_of(found).launch == pytest.approx(expected.after.launch, rel=1e-4)
    code, out, _ = command(runs, "--system", "h100_80g_sxm", "--from", out_file, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["calibration"]["derived_from"] == "ours"
    assert document["accepted"] == document["rows"] == len(plans())


def test_logs_and_gaps(command: Any, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(megatron([4_300.0] * 10).replace("new size", "size now"))
    code, out, _ = command(log, "--system", "h100_80g_sxm")
    assert code == 1
    assert "Not given: vocab." in out
    code, out, _ = command(log, "--system", "h100_80g_sxm", "--set", "vocab=128256")
    assert code == 0
    assert "1 of 1 runs used" in out
    assert "too few" in out


def test_bad_rows_are_listed_by_row(command: Any, tmp_path: Path) -> None:
    table = timed(plans(), TRUTH).astype(object)
    table.loc[3, "step_time_s"] = -2
    table.loc[5, "num_gpus"] = 12
    path = tmp_path / "runs.csv"
    table.to_csv(path, index=False)
    code, out, _ = command(path, "--system", "h100_80g_sxm", "--json", "--parameters", "sustained_hopper")
    document = json.loads(out)
    assert code == 0
    assert [(row["row"], row["reason"]) for row in document["refused"]] == [
        ("row 4", "bad_value"),
        ("row 6", "impossible_product"),
    ]
    assert document["calibration"]["fitted_on"].startswith("22 runs")


def test_a_scenario_is_ranked_again(command: Any, runs: Path, tmp_path: Path) -> None:
    path = tmp_path / "scenario.json"
    scenario = Scenario.of("gpt3-13B", "h100_80g_sxm", num_procs=8, max_batch_size=16, datatype="bfloat16")
    path.write_text(json.dumps(scenario.to_document()))
    asked = (runs, "--system", "h100_80g_sxm", "--parameters", "sustained_hopper", "--scenario", path)
    code, out, _ = command(*asked, "--json")
    ranking = json.loads(out)["ranking"]
    assert code == 0
    rates = [row["rate_after"] for row in ranking["best"]]
    assert rates == sorted(rates, reverse=True)
    assert -1 <= ranking["tau"] <= 1
    code, out, _ = command(*asked)
    assert "Kendall's tau" in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--system", "h100_80g_sxm"), "RUNS is missing"),
        (("RUNS", "--system", "abacus"), "abacus"),
        (("RUNS", "--system", "h100_80g_sxm", "--parameters", "speed"), "'speed' is no parameter"),
        (("RUNS", "--system", "h100_80g_sxm", "--from", "nobody"), "nobody"),
        (("RUNS", "--system", "h100_80g_sxm", "--set", "wheels=4"), "gives no field"),
        (("none.csv", "--system", "h100_80g_sxm"), "none.csv does not exist"),
        (("RUNS", "--system", "h100_80g_sxm", "--name", "x" * 300), "name"),
    ],
)
def test_what_is_not_understood_is_one_sentence(
    command: Any, runs: Path, arguments: tuple[str, ...], told: str
) -> None:
    code, out, err = command(*(runs if word == "RUNS" else word for word in arguments))
    assert code == 2
    assert out == ""
    assert told in err
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1


def test_a_missing_system_is_a_usage_error(command: Any, runs: Path) -> None:
    for arguments in ((), (runs,)):
        code, out, err = command(*arguments)
        assert (code, out) == (2, "")
        assert "Missing option '--system'" in err


def test_where_nothing_can_be_written_it_says_so_before_fitting(command: Any, runs: Path, tmp_path: Path) -> None:
    code, _, err = command(runs, "--system", "h100_80g_sxm", "--out", tmp_path / "none" / "x.json")
    assert code == 3
    assert "cannot be written" in err


def test_one_run_is_enough_to_say_how_little_it_tells(command: Any, tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    timed(plans((LLAMA,), LAYOUTS[:1]), TRUTH).to_csv(path, index=False)
    code, out, _ = command(path, "--system", "h100_80g_sxm")
    assert code == 0
    assert "1 configuration of 1 model is too few" in out
