"""The command `simulate distir`."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from engine.cli.output import ExitCode
from tests.engine.reproductions.test_distir import GOLDEN


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    from engine.cli.main import main

    with pytest.raises(SystemExit) as ended:
        main(["simulate", "distir", *arguments])
    told = capsys.readouterr()
    return int(ended.value.code or 0), told.out, told.err


SMALL = ("--layers", "8", "--width", "512", "--batch", "64", "--devices", "1,2,4")


def test_top_trace_table_and_resume(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    store, out, trace = (str(tmp_path / name) for name in ("results.duckdb", "grid.csv", "trace.json"))
    asked = (*SMALL, "--memory-limit", "0.01", "--store", store, "--json")
    code, text, _ = run(capsys, *asked, "--out", out, "--trace", trace)
    assert code == 0
    document = json.loads(text)
    table = pd.read_csv(out, keep_default_na=False)
    assert len(table) == document["total"]
    assert (table["reason"] == "memory").sum() == document["rejected_by_reason"]["memory"]
    assert document["rows"][0]["throughput"] == max(row["throughput"] for row in document["rows"])
    assert {"name", "ph", "ts", "dur", "pid", "tid"} == set(json.loads(Path(trace).read_text())[0])
    assert run(capsys, *asked)[1] == text
    assert "D/T" in run(capsys, *SMALL, "--top", "50")[1]


def test_figures_are_the_notebooks(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--revision", "R1", "--bandwidth", "200", "--show", "figure-3", "--json", "--batch", "512,4096")
    code, text, _ = run(capsys, *asked)
    assert code == 0
    rows = pd.DataFrame(json.loads(text)["rows"])
    for kind, name, series in (("data", "dp_results", 512), ("pipeline", "pp_results", 8)):
        mine = rows[(rows["kind"] == kind) & (rows["series"] == series)]
        assert mine["speedup"].tolist() == pytest.approx(GOLDEN["R1"][name][str(series)], rel=1e-9)
    code, text, _ = run(
        capsys, "--show", "figure-4", "--revision", "R1", "--bandwidth", "200", "--devices", "1,2", "--json"
    )
    assert {row["strategy"] for row in json.loads(text)["rows"]} == {"D", "H", "P", "D=H"}
    assert "0.9273" in run(capsys, "--show", "measured")[1]


def test_figures_imply_their_settings(capsys: pytest.CaptureFixture[str]) -> None:
    """The paper's figures without an option; what is asked for otherwise is said not to be the paper's."""
    code, text, said = run(capsys, "--show", "figure-3", "--json")
    assert code == 0
    rows = pd.DataFrame(json.loads(text)["rows"])
    for kind, name in (("data", "dp_results"), ("pipeline", "pp_results")):
        for series, speedups in GOLDEN["R1"][name].items():
            mine = rows[(rows["kind"] == kind) & (rows["series"] == int(series))]
            assert mine["speedup"].tolist() == pytest.approx(speedups, rel=1e-9)
    assert "--revision R1, --bandwidth 200" in said
    assert "not the paper's" not in said
    code, text, said = run(capsys, "--show", "figure-4", "--json")
    assert (code, json.loads(text)["total"]) == (0, 111)  # the rows of the published grid
    assert "--revision EuroMLSys21" in said
    _, text, said = run(capsys, "--show", "figure-3", "--revision", "R3", "--json")
    assert json.loads(text)["revision"] == "R3"
    assert said.strip().endswith("--revision are not the paper's.")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--layers", "0"), "layers is 0"),
        (("--batch", "x"), "--batch, entry 1, is 'x'"),
        (("--devices", "3"), "3 devices"),
        (("--revision", "R7"), "no revision"),
        (("--bandwidth", "nan"), "--bandwidth is nan"),
        (("--memory-limit", "-1"), "--memory-limit is -1"),
        (("--model", "llama"), "no size"),
        (("--microbatches", "R2"), "no rule"),
        (("--constants", "missing.json"), "There is no file missing.json"),
        (("--fit", "a.csv", "--constants", "b.json"), "two sources"),
        (("--out", "grid.txt"), "must end in"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, error = run(capsys, *arguments)
    assert code == ExitCode.INPUT
    assert said in error
    assert "Traceback" not in error


def test_nothing_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = run(capsys, *SMALL, "--memory-limit", "0.000001")
    assert code == ExitCode.NOTHING
    assert "memory" in text
