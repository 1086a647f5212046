"""The Validation page shows what the engine predicts and measures, filters it, and takes strangers' files apart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.charts.accuracy.measured import MAX_MARKS, PARTS, measured, shown_marks, step_parts
from dashboard.charts.accuracy.residuals import residuals
from dashboard.link.document_validation import Refused
from dashboard.pages import registry
from dashboard.pages.validation import queries as validation_data
from dashboard.pages.validation.queries import EVERY, Filters
from dashboard.pages.validation.view import FIELDS
from engine import validation
from engine.validation.error_tables import source_family
from tests.dashboard.page_runs import figure, html, page_alone, plainly


@pytest.fixture(scope="module")
def expected() -> tuple[pd.DataFrame, pd.DataFrame]:
    """The package's runs and the engine's predictions for them."""
    runs = validation.library_runs()
    return runs.table, validation.validate(runs)


def run(link: Mapping[str, str] | None = None) -> AppTest:
    app = page_alone("validation")
    app.session_state["_url"] = dict(link or {})
    app.run()
    assert not app.exception, [error.value for error in app.exception]
    return app


def published(rows: int) -> pd.DataFrame:
    with files("engine.validation").joinpath("data", "runs.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file, dtype=str, keep_default_na=False).head(rows)


def content(table: pd.DataFrame) -> bytes:
    return table.to_csv(index=False).encode()


def marks(drawn: dict[str, Any]) -> pd.DataFrame:
    """Row, measured and predicted of every mark of the scatter."""
    traces = [trace for trace in drawn["data"] if trace.get("customdata")]
    return pd.DataFrame(
        [
            (point[0], x, y)
            for trace in traces
            for point, x, y in zip(trace["customdata"], trace["x"], trace["y"], strict=True)
        ],
        columns=["row", "measured", "predicted"],
    ).sort_values("row")


def errors_of(page: AppTest) -> pd.DataFrame:
    """The table of errors per source and accelerator."""
    (found,) = [table.value for table in page.dataframe if "within_10" in table.value]
    return found


def test_the_page_is_in_the_navigation_and_about_no_scenario() -> None:
    (entry,) = [entry for entry in registry.PAGES if entry.name == "validation"]
    assert not entry.about_scenario


def test_tiles_and_table_are_the_engines_figures(expected: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    table, predictions = expected
    page = run()
    (everything,) = validation.error_table(table, predictions).query("name == 'all rows'").to_dict("records")
    text = plainly(html(page))
    assert f"Runs counted {everything['rows']:,.0f}," in text
    assert f"Mean error, calibrated {everything['mean']:.1f} %" in text
    assert f"Median error {everything['median']:.1f} %" in text
    assert f"Within 10 % {everything['within_10']:.1f} %" in text
    assert f"Not supported {int((predictions['status'] != 'predicted').sum()):,}" in text
    shown = errors_of(page).set_index("name")
    engine_table = validation.error_table(table, predictions).query("kind == 'source and hardware'")
    for row in engine_table.to_dict("records"):
        for name in ("rows", "mean", "median", "p90", "bias", "within_10"):
            assert shown.loc[row["name"], name] == pytest.approx(row[name], rel=1e-3, abs=1e-3)
    assert shown["calculon_mean"].notna().sum() > 20


def test_marks_are_measured_and_predicted_times(expected: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    _, predictions = expected
    drawn = marks(figure(run(), "validation_plot"))
    rows = predictions.iloc[drawn["row"].to_numpy() - 1]
    np.testing.assert_allclose(drawn["measured"], rows["measured_step_time_s"], rtol=1e-9)
    np.testing.assert_allclose(drawn["predicted"], rows["predicted_step_time_s"], rtol=1e-9)
    assert len(drawn) <= MAX_MARKS


def test_errors_by_release_are_drawn_for_the_packages_runs_alone() -> None:
    releases = validation.stored_releases()
    drawn = figure(run(), "validation_releases_chart")["data"]
    dense = releases[releases["name"] == "published runs, dense"]
    assert drawn[0]["y"] == dense["mean"].tolist()
    assert drawn[1]["y"] == dense["sources"].tolist()
    assert len(drawn) == 8
    with pytest.raises(KeyError):
        figure(run({"validation_hardware": "B200"}), "validation_releases_chart")


def test_filters_leave_what_they_name(expected: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    table, predictions = expected
    page = run({"validation_source": "MosaicML llm-foundry", "validation_hardware": "H100-80GB-SXM"})
    drawn = marks(figure(page, "validation_plot"))
    rows = table.iloc[drawn["row"].to_numpy() - 1]
    assert set(rows["hardware"]) == {"H100-80GB-SXM"}
    assert rows["source"].str.startswith("MosaicML").all()
    error = predictions["error"].iloc[drawn["row"].to_numpy() - 1].abs()
    assert f"Mean error, calibrated {100 * error.mean():.1f} %" in plainly(html(page))
    assert errors_of(page)["name"].tolist() == ["MosaicML llm-foundry, H100-80GB-SXM"]
    family = run({"validation_family": "moe"})
    shown = errors_of(family)
    assert int(shown.loc[shown["name"] == "All rows", "rows"].iloc[0]) == len(marks(figure(family, "validation_plot")))
    nothing = run({"validation_source": "MT-NLG", "validation_hardware": "B200"})
    assert nothing.info[0].value.replace("\\", "") == "No run has source MT-NLG and accelerator B200 at once."
    nothing.button(key="validation_hardware_any").click()
    nothing.run()
    assert len(marks(figure(nothing, "validation_plot"))) == 3


def test_worst_runs_come_first_and_a_chosen_run_shows_its_parts(expected: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    _, predictions = expected
    page = run()
    shown = page.dataframe(key="validation_worst").value
    sizes = shown["error"].abs().to_numpy()
    assert (np.diff(sizes) <= 1e-9).all()
    same = (predictions["measured_step_time_s"] == shown["measured"].iloc[3]) & (
        predictions["predicted_step_time_s"] == shown["predicted"].iloc[3]
    )
    position = int(np.flatnonzero(same.to_numpy())[0])
    chosen = run({"validation_run": str(position + 1)})
    bars = figure(chosen, "validation_parts")["data"][0]["x"]
    parts = validation.breakdown().iloc[position]
    assert bars[0] == pytest.approx(predictions["measured_step_time_s"].iloc[position])
    assert bars[1] == pytest.approx(parts["step"])
    assert sum(bars[2:]) == pytest.approx(parts["step"], rel=0.01)  # parts too small to draw are left out
    assert "measured runs of" in " ".join(caption.value for caption in chosen.caption)


@pytest.mark.parametrize("field", FIELDS)
def test_residuals_of_every_field(field: str, expected: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    checked = validation_data.load_packaged_runs()
    rows = validation_data.counted_rows(checked, Filters())
    chart = residuals(rows, validation_data.field_values(rows, field), FIELDS[field])
    made = chart.figure
    drawn = [trace for trace in made.data if trace.customdata is not None]
    known = validation_data.field_values(rows, field).notna()
    assert sum(len(trace.x) for trace in drawn) == known.sum()
    shown = {int(point[0]): y for trace in drawn for point, y in zip(trace.customdata, trace.y, strict=True)}
    for row in list(shown)[::97]:
        error = 100 * expected[1]["error"].iloc[row - 1]
        assert shown[row] == pytest.approx(error) or abs(error) > abs(shown[row])
    counts = sum(int(note.text.split("<br>")[1].replace(",", "")) for note in made.layout.annotations)
    assert counts == known.sum()


def test_more_marks_than_may_be_drawn_keep_the_worst() -> None:
    size = 5_000
    rows = pd.DataFrame(
        {
            "row": range(1, size + 1),
            "id": "a",
            "model": "m",
            "hardware": "h",
            "measured_step_time_s": np.linspace(1, 9, size),
            "predicted_step_time_s": np.linspace(1, 10, size),
        }
    )
    rows["error"] = rows["predicted_step_time_s"] / rows["measured_step_time_s"] - 1
    shown = shown_marks(rows)
    assert len(shown) <= MAX_MARKS
    worst = rows["error"].abs().nlargest(500).index
    assert worst.isin(shown.index).all()
    drawn = sum(len(trace.x) for trace in measured(rows).figure.data if trace.customdata is not None)
    assert drawn == len(shown)


def test_names_from_a_file_cannot_write_html() -> None:
    rows = pd.DataFrame(
        {
            "row": [1],
            "id": ["a"],
            "model": ["<img src=x>"],
            "hardware": ["<b>"],
            "measured_step_time_s": [1.0],
            "predicted_step_time_s": [1.1],
            "error": [0.1],
        }
    )
    for drawn in (measured(rows), residuals(rows, pd.Series(["<i>x"]), "Framework")):
        assert "<img" not in drawn.figure.to_json()
        assert "<i>x" not in json.loads(drawn.figure.to_json())["layout"]["xaxis"].get("ticktext", [])


def test_a_run_without_time_has_no_bar_for_it() -> None:
    parts = {"step": 2.0, **dict.fromkeys(PARTS, 0.0), "linear": 1.5, "optimizer": 0.5}
    bars = step_parts(parts, float("nan")).figure.data[0]
    assert list(bars.x) == [2.0, 1.5, 0.5]
    assert "Linear layers" in step_parts(parts, 2.5).alt
    told = [plainly(note.text) for note in step_parts(parts, 2.5).figure.layout.annotations]
    assert told == ["2.50 s", "2 s", "1.50 s · 75.0 %", "500 ms · 25.0 %"]  # shares of the predicted step, of its parts


def test_an_upload_is_predicted_as_the_engine_does_and_bad_rows_are_told_by_row() -> None:
    table = published(6).copy()
    table.loc[2, "tp"] = "many"
    table.loc[4, "step_time_s"] = "-1"
    checked = validation_data.load_uploaded_runs(content(table), "mine.csv")
    wanted = validation.validate(table)
    np.testing.assert_allclose(checked.rows["predicted_step_time_s"], wanted["predicted_step_time_s"])
    gone = validation_data.unsupported_rows(checked, Filters())
    assert gone["row"].tolist() == [3, 5]
    assert "tp is 'many'" in gone["reason_text"].iloc[0]
    assert not checked.is_packaged
    errors = validation_data.error_rows(checked, checked.key, Filters(), True)
    assert errors["calculon_mean"].notna().any()
    page = run()
    page.file_uploader[0].set_value(("mine.csv", content(table), "text/csv")).run()
    assert "Row 3" in page.warning[0].value.replace("\\", "")
    assert "Runs counted 4," in html(page)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "is empty"),
        (b"a,b\n1,2\n", "no table of runs"),
        (b"\xff\xfe\x00", "not text in UTF-8"),
        (b"hardware,hidden,layers\n", "no run"),
        (b"hardware,hidden,layers\n1,2,3\n1,2,3,4,5\n", "cannot be read as CSV"),
        (b"hardware,hidden,layers\n" + b"A100,1,2\n" * 5_001, "more than 5,000"),
        (b",".join(b"hardware,hidden,layers".split(b",") + [b"c%d" % i for i in range(400)]) + b"\n1\n", "columns"),
        (b"x" * 2_000_001, "MB"),
    ],
)
def test_uploads_that_are_no_runs_are_refused_in_one_sentence(data: bytes, told: str) -> None:
    with pytest.raises(Refused, match=told) as refused:
        validation_data.load_uploaded_runs(data, "file.csv")
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500


def test_links_full_of_nonsense_show_everything() -> None:
    page = run({"validation_source": "x", "validation_field": "y", "validation_run": "9" * 6, "validation_family": "%"})
    assert len(marks(figure(page, "validation_plot"))) == len(
        validation_data.counted_rows(validation_data.load_packaged_runs(), Filters(EVERY, EVERY, EVERY))
    )


def test_a_source_is_named_without_its_release_or_paper() -> None:
    said = pd.Series(
        ["dgxc-benchmarking v25.02", "README (mcore r0.8)", "MegaScale (NSDI24, 2402.15627)", "SC21", "a (b, c)"]
    )
    assert source_family(said).tolist() == ["dgxc-benchmarking", "README (mcore r0.8)", "MegaScale", "SC21", "a (b, c)"]
