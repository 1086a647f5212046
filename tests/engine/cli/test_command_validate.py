"""`shardscape validate`: the packaged runs, files of one's own, and one sentence for whatever is no file of runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from engine import validation
from engine.validation.accepted import TOLERANCE, stored_predictions

Answer = tuple[int, str, str]


@pytest.fixture(scope="module")
def some(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame]:
    """A file with every twenty-third of the packaged runs, and how far off the engine and Calculon are for them."""
    path = tmp_path_factory.mktemp("some") / "runs.csv"
    published().iloc[::23].to_csv(path, index=False)
    runs = validation.read_runs(path)
    return path, validation.error_table(runs.table, validation.validate(runs, calculon=True))


Command = Callable[..., Answer]


@pytest.fixture
def command(shardscape: Command) -> Command:
    return partial(shardscape, "validate")


def published() -> pd.DataFrame:
    with files("engine.validation").joinpath("data", "runs.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file, dtype=str, keep_default_na=False)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_predictions_of_the_packaged_runs_are_the_accepted_ones(command: Command, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"predictions{suffix}"
    code, out, err = command("--out", path)
    assert code == 0
    found = (
        pd.read_csv(path, keep_default_na=False, na_values={"predicted_step_time_s": [""]})
        if suffix == ".csv"
        else pd.read_parquet(path)
    )
    stored = stored_predictions()
    assert list(found.columns) == [*validation.OUT_COLUMNS, "reason_text"]
    assert found["id"].tolist() == stored["id"].tolist()
    assert found["status"].tolist() == stored["status"].tolist()
    np.testing.assert_allclose(found["predicted_step_time_s"], stored["predicted_step_time_s"], rtol=TOLERANCE)
    assert found.loc[found["status"] == "unsupported", "reason_text"].str.len().min() > 10
    assert f"{len(stored):,} rows are in" in err
    predicted = int((stored["status"] == "predicted").sum())
    assert f"{len(stored):,} runs of the package: {predicted:,} predicted" in out
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_json_has_the_errors_of_the_engine_and_calculons_beside(
    command: Command, some: tuple[Path, pd.DataFrame]
) -> None:
    path, expected = some
    code, out, _ = command("--json", "--calculon", "--runs", path)
    document = json.loads(out)
    assert code == 0
    assert document["rows"] == len(published().iloc[::23])
    assert document["predicted"] + sum(document["unsupported_by_reason"].values()) == document["rows"]
    assert [row["name"] for row in document["errors"]] == expected["name"].tolist()
    for name in ("mean", "median", "p90", "bias", "within_10", "calculon_mean"):
        given = [np.nan if row[name] is None else row[name] for row in document["errors"]]
        np.testing.assert_allclose(given, expected[name], rtol=1e-12)


def test_errors_by_release_are_those_stored(command: Command, some: tuple[Path, pd.DataFrame]) -> None:
    _, out, _ = command()
    releases = validation.stored_releases()
    for date, rows in releases.groupby("date"):
        dense = rows[rows["name"] == "published runs, dense"].iloc[0]
        (line,) = [line for line in out.splitlines() if line.startswith(str(date))]
        assert f"{dense['mean']:.1f} ({dense['sources']:.1f})" in line
    _, out, _ = command("--json", "--runs", some[0])
    assert json.loads(out)["releases"] == []


def test_the_printed_table_has_every_source_and_hardware(command: Command, some: tuple[Path, pd.DataFrame]) -> None:
    path, table = some
    _, out, _ = command("--calculon", "--runs", path)
    lines = out.splitlines()
    for row in table[table["kind"] == "source and hardware"].to_dict("records"):
        (line,) = [line for line in lines if line.startswith(f"{row['name']}  ")]
        cells = line[len(row["name"]) :].split()
        assert cells[:3] == [f"{row['rows']:,.0f}", f"{row['mean']:,.1f}", f"{row['median']:,.1f}"]
    assert "Calc. mean" in out
    assert "missing_field" in out


def test_runs_of_ones_own_with_bad_rows(command: Command, tmp_path: Path) -> None:
    table = published().head(4).copy()
    table.loc[1, "tp"] = "many"
    table.loc[2, "hardware"] = "Abacus\x1b[31m"
    table.loc[3, "step_time_s"] = "-3"
    path = tmp_path / "own.csv"
    table.to_csv(path, index=False)
    code, out, _ = command("--runs", path, "--out", tmp_path / "own-out.csv")
    found = pd.read_csv(tmp_path / "own-out.csv", keep_default_na=False)
    assert code == 0
    assert found["status"].tolist() == ["predicted", "unsupported", "unsupported", "unsupported"]
    assert found["reason"].tolist() == ["", "bad_value", "unknown_hardware", "bad_value"]
    assert "tp is 'many'" in found.loc[1, "reason_text"]
    assert "\x1b" not in out


def test_runs_without_measured_times_are_predicted_and_have_no_errors(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "plans.csv"
    published().head(2).drop(columns=["step_time_s", "tokens_per_s_per_gpu"]).to_csv(path, index=False)
    code, out, _ = command("--runs", path)
    assert code == 0
    assert "no errors" in out


def test_nothing_that_can_be_predicted_is_exit_code_1(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "none.csv"
    published().head(2).assign(hardware="Abacus").to_csv(path, index=False)
    code, out, _ = command("--runs", path)
    assert code == 1
    assert "unknown_hardware" in out
    published().head(0).to_csv(path, index=False)
    assert command("--runs", path)[0] == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.csv", b""),
        ("other.csv", b"a,b\n1,2\n"),
        ("ragged.csv", b"hardware,hidden,layers\n1,2,3,4,5,6\n1\n1,2,3,4,5,6,7,8,9\n"),
        ("binary.csv", bytes(range(256)) * 20),
        ("latin.csv", "hardware,hidden,layers\nü,1,2\n".encode("latin-1")),
        ("quote.csv", b'hardware,hidden,layers\n"A100,1,2\n'),
    ],
)
def test_a_file_that_is_no_table_of_runs_is_one_sentence(
    command: Command, tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    code, out, err = command("--runs", path)
    assert code == 2
    assert out == ""
    assert name.removesuffix(".csv") in err
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert len(err) < 400


def test_missing_files_folders_and_pipes(command: Command, tmp_path: Path) -> None:
    assert command("--runs", tmp_path / "absent.csv")[0] == 2
    code, _, err = command("--runs", tmp_path)
    assert code == 2
    assert "is a folder" in err
    os.mkfifo(tmp_path / "pipe.csv")
    assert command("--runs", tmp_path / "pipe.csv")[0] == 2  # and does not wait for a writer


def test_what_cannot_be_written_is_known_before_predicting(command: Command, tmp_path: Path) -> None:
    assert command("--out", tmp_path / "predictions.txt")[0] == 2
    code, out, err = command("--out", tmp_path / "absent" / "predictions.csv")
    assert code == 3
    assert out == ""
    assert "cannot be written" in err
