"""The Results page shows, filters, sorts, pages and exports what the engine holds."""

import gc
import gzip
import io
import json
import math
import threading
import time
import zipfile
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import IO, Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine
import hardware
from dashboard.files import exports
from dashboard.files.excel import write_excel
from dashboard.files.growing_file import Abandoned, GrowingFile
from dashboard.pages.results.queries import load_page, place_of
from dashboard.queries.economics import Metric, utilisation
from dashboard.queries.filters import FILTERABLE, Filter, conditions, parse, text
from dashboard.words.numbers import count
from engine import WorkSizes, working_in
from engine.columns import FIELDS, STATISTICS, by_name, stored_of
from engine.recommendation import fit_bounds_of, recommend, with_fit
from engine.store import StoreCondition
from tests.dashboard.page_runs import again, exploration, html, plainly, run
from tests.dashboard.pages.test_calibrated_pages import dense
from tests.texts import any_text

HBM = "proc_mem_tier1_cap_req"


@st.composite
def filters(draw: st.DrawFn) -> list[Filter]:
    names = draw(st.lists(st.sampled_from(sorted(FILTERABLE)), unique=True, max_size=5))
    found = []
    for name in names:
        column = FILTERABLE[name]
        if column.dtype == "bool":
            values: Any = draw(st.lists(st.booleans(), min_size=1, max_size=2, unique=True))
            found.append(Filter(column, tuple(values)))
        elif column.dtype == "str":
            choices = column.choices or ("float8", "float16", "bfloat16", "float32")
            values = draw(st.lists(st.sampled_from(choices), min_size=1, unique=True))
            found.append(Filter(column, tuple(values)))
        else:
            low, high = (draw(st.none() | st.floats(allow_nan=False, allow_infinity=False)) for _ in "ab")
            if low is not None or high is not None:
                found.append(Filter(column, low=low, high=high))
    return found


@given(filters())
def test_filters_survive_a_link(given_filters: list[Filter]) -> None:
    found, problems = parse(text(given_filters))
    assert found == given_filters
    assert problems == []
    assert all(one.words.startswith(one.column.label) for one in given_filters)


@given(any_text(max_size=200))
def test_no_link_breaks_the_filters(link: str) -> None:
    found, problems = parse(link)
    assert all(isinstance(one, Filter) for one in found)
    assert all(len(problem) < 400 for problem in problems)


@pytest.mark.parametrize(
    "link", ["tensor_par:x", "nothing:1", "sample_rate:1", "total_time:..", "total_time:nan..1", "fused_activation:1"]
)
def test_what_cannot_be_read_is_left_out_and_said(link: str) -> None:
    found, problems = parse(f"{link};pipeline_par:2")
    assert [one.column.name for one in found] == ["pipeline_par"]
    assert len(problems) == 1


def test_the_table_is_the_best_executions() -> None:
    found = exploration("none")
    page = run("results", found)
    shown = page.dataframe[0].value
    assert shown["id"].tolist() == found.top(100)["id"].tolist()
    assert shown["sample_rate"].tolist() == pytest.approx(found.top(100)["sample_rate"].tolist())
    assert f"All {found.feasible:,} feasible executions" in html(page)


def test_filters_sort_and_page_of_a_link() -> None:
    found = exploration("none")
    link = {
        "results_where": "activation_recompute:full;microbatch_size:..2",
        "results_sort": HBM,
        "results_order": "worst",
        "results_page": "2",
        "cell": "2x2",
    }
    page = run("results", found, link)
    where = [
        StoreCondition("activation_recompute", "=", "full"),
        StoreCondition("microbatch_size", "<=", 2),
        StoreCondition("tensor_par", "=", 2),
        StoreCondition("pipeline_par", "=", 2),
    ]
    expected = found.rows.page(100, 100, order_by=((HBM, "descending"),), where=where, names=["id"])
    assert page.dataframe[0].value["id"].tolist() == expected["id"].to_pylist()
    page.button(key="results_drop_activation_recompute").click()
    page = again(page, found)
    assert found.rows.count(where[1:]) > found.rows.count(where)
    assert f"{found.rows.count(where[1:]):,} of" in html(page)
    assert page.session_state["_url"].get("results_page") is None
    page.button(key="results_clear").click()
    assert f"All {found.feasible:,} feasible" in html(again(page, found))


def test_the_page_begins_again_with_another_table_and_comes_back_with_the_former() -> None:
    found = exploration("none")
    link = {"results_where": "activation_recompute:full", "results_page": "3"}
    page = run("results", found, link)
    expected = page.dataframe[0].value["id"].tolist()
    page.get_by_key("_results_order").set_value("worst")  # type: ignore[union-attr]
    page = again(page, found)
    assert "results_page" not in page.session_state["_url"]
    page.session_state["_url"] = dict(link)  # as the browser's Back does
    page = again(page, found)
    assert page.dataframe[0].value["id"].tolist() == expected
    page.session_state["_url"] = {**link, "cell": "2x2"}  # another cell was selected elsewhere
    page = again(page, found)
    assert "results_page" not in page.session_state["_url"]


def test_picking_a_row_does_not_change_the_table_it_is_in() -> None:
    found = exploration("none")
    page = run("results", found, {"cell": "2x2", "results_cell": "2x2", "id": str(int(found.top(1)["id"].iloc[0]))})
    assert f"All {found.feasible:,} feasible" in html(page)
    page = run("results", found, {"cell": "2x2", "results_cell": "4x2"})
    assert set(page.dataframe[0].value["tensor_par"]) == {2}


def test_applying_a_filter() -> None:
    found = exploration("none")
    page = run("results", found, opened=["filter"])
    page.button_group(key="_explore_pick_activation_recompute").set_value(["none"])
    page = again(page, found)
    assert set(page.dataframe[0].value["activation_recompute"]) == {"none"}
    assert page.session_state["_url"]["results_where"] == "activation_recompute:none"


def test_an_empty_filter_names_the_way_out() -> None:
    found = exploration("none")
    page = run("results", found, {"results_where": "total_time:..1e-9;tensor_par:2"})
    assert any("No execution meets" in element.value for element in page.markdown)
    left = found.rows.count([StoreCondition("tensor_par", "=", 2)])
    assert page.button(key="explore_without_total_time").label.endswith(f"{left:,} executions")
    page.button(key="explore_relax_total_time").click()
    assert len(again(page, found).dataframe[0].value)


def test_all_statistics_on_demand() -> None:
    found = exploration("none")
    page = run("results", found)
    page.button(key="results_all_columns").click()
    page = again(page, found)
    shown = page.dataframe[0].value
    assert set(shown.columns) >= {column.name for column in STATISTICS}
    expected = found.top(100)
    for name in ("block_fw_flops", "weight_space", "dp_comm_link_time"):
        ratio = shown[name] / expected[name]
        assert ratio.dropna().max() == pytest.approx(ratio.dropna().min())


WHERE = [
    StoreCondition("tensor_par", "=", 4),
    StoreCondition("activation_recompute", "=", "none"),
    StoreCondition("microbatch_size", ">=", 16),
]
"""Some thousand executions: every format is written and read whole."""
NAMES = ["id", "tensor_par", "activation_recompute", "optimizer_sharding", "sample_rate", "offload_mem_bw_req"]


def expected_rows(names: list[str]) -> pd.DataFrame:
    found = exploration("none")
    ids = found.rows.page(0, 10**7, order_by=(("sample_rate", "descending"),), where=WHERE, names=["id"])["id"]
    return found.evaluate_ids(ids.to_numpy())[names].reset_index(drop=True)


def build(kind: str, names: list[str], *, large: bool | None = None) -> Any:
    found = exploration("none")
    order = (("sample_rate", "descending"),)
    selection = ["TP 4", "no recompute"]
    write = exports.of_rows(found, kind, names=names, where=WHERE, order_by=order, selection=selection, large=large)
    with working_in(WorkSizes(rows_with_statistics=4_000)):  # several, as of many rows
        return io.BytesIO(b"".join(GrowingFile(write).pieces()))


def same(frame: pd.DataFrame, expected: pd.DataFrame) -> None:
    assert len(frame) == len(expected)
    for name in expected.columns:
        if expected[name].dtype.kind == "f":
            assert np.allclose(frame[name].to_numpy(float), expected[name].to_numpy(), rtol=1e-12, equal_nan=True)
        else:
            assert frame[name].tolist() == expected[name].tolist()


@pytest.mark.parametrize("names", [NAMES, [*NAMES, "block_fw_flops", "weight_space"]])
def test_parquet_holds_exactly_what_the_filter_selects(names: list[str]) -> None:
    with build("parquet", names) as file:
        table = pq.read_table(pa.BufferReader(file.read()))
    same(table.to_pandas(), expected_rows(names))
    assert table.schema.field("sample_rate").metadata[b"unit"] == b"samples/s"
    account = json.loads(table.schema.metadata[b"shardscape"])
    assert account["selection"] == ["TP 4", "no recompute"]
    assert account["scenario"]["num_procs"] == 16
    assert account["cost_model"]


@pytest.mark.parametrize("large", [False, True])
def test_csv_holds_exactly_what_the_filter_selects(large: bool) -> None:
    file = build("csv", NAMES, large=large)
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        account = json.loads(archive.read("about.json"))
        table = pyarrow.csv.read_csv(pa.BufferReader(archive.read("executions.csv")))
    assert table.column_names[4] == "sample_rate [samples/s]"
    assert [column["name"] for column in account["columns"]] == NAMES
    same(table.rename_columns(NAMES).to_pandas(), expected_rows(NAMES))


def test_json_holds_exactly_what_the_filter_selects() -> None:
    with build("json", NAMES) as file:
        document = json.loads(gzip.decompress(file.read()))
    frame = pd.DataFrame(document["executions"])
    frame["offload_mem_bw_req"] = [float(value) for value in frame["offload_mem_bw_req"]]
    same(frame, expected_rows(NAMES))
    assert document["about"]["format"] == "shardscape-executions/1"


@pytest.mark.parametrize("large", [False, True])
def test_excel_holds_exactly_what_the_filter_selects(large: bool) -> None:
    space = {"m": "http://schemas.openxmlformats.org/spreadsheetml/2006/main"}
    file = build("excel", NAMES, large=large)
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        parts = {name: ElementTree.fromstring(archive.read(name)) for name in archive.namelist()}
        sheet = parts["xl/worksheets/sheet1.xml"]
        second = archive.read("xl/worksheets/sheet2.xml").decode()
    rows = [["".join(cell.itertext()) for cell in row] for row in sheet.iterfind(".//m:row", space)]
    assert rows[0][4] == "sample_rate [samples/s]"
    expected = expected_rows(NAMES)
    assert len(rows) == len(expected) + 1
    assert float(rows[1][4]) == expected["sample_rate"].iloc[0]
    assert rows[1][2] == "none"
    assert "gpt3-13B" in second
    facts = [
        ["".join(cell.itertext()) for cell in row]
        for row in parts["xl/worksheets/sheet2.xml"].iterfind(".//m:row", space)
    ]
    assert [text for name, text in facts if name == "selection"] == ["TP 4", "no recompute"]


def test_what_a_plain_archive_may_not_hold_is_known_before() -> None:
    """The bound is never below what rows take: here of the widest that there are."""
    found = exploration("none")
    names = [column.name for column in (*FIELDS, *STATISTICS)]
    for kind, inside in (("csv", "executions.csv"), ("excel", "xl/worksheets/sheet1.xml")):
        with zipfile.ZipFile(build(kind, names)) as archive:
            size = archive.getinfo(inside).file_size
        rows = found.rows.count(WHERE)
        most = zipfile.ZIP64_LIMIT * rows // size + 1  # so many rows like these pass the limit
        assert exports.is_large(kind, most, names)
        assert not exports.is_large(kind, most // 5, names)
    assert not exports.is_large("parquet", 10**12, names)


def test_the_share_that_is_written_is_told() -> None:
    found = exploration("none")
    heard: list[float] = []
    with working_in(WorkSizes(rows_with_statistics=1000)):
        exports.of_rows(found, "parquet", names=NAMES, where=WHERE, tell=heard.append)(io.BytesIO())
    number = found.rows.count(WHERE)
    assert len(heard) >= number / 1000 > 3
    assert all(0 < later - earlier <= 1000.5 / number for earlier, later in pairwise([0.0, *heard]))
    assert heard[-1] == 1.0


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("kind", exports.FORMATS)
def test_a_file_given_up_leaves_nothing_behind(
    kind: str, large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    stops = threading.Event()
    ended: list[BaseException] = []

    def told(share: float) -> None:
        assert stops.wait(20)

    def write(target: IO[bytes]) -> None:
        try:
            exports.of_rows(exploration("none"), kind, names=NAMES, where=WHERE, tell=told, large=large)(target)
        except BaseException as problem:
            ended.append(problem)
            raise

    gc.disable()  # else it may happen to clear up what is left
    try:
        with working_in(WorkSizes(rows_with_statistics=500)):
            file = GrowingFile(write)
            until = time.monotonic() + 20
            while not list(tmp_path.glob("*/rows.parquet")) and time.monotonic() < until:
                time.sleep(0.005)
            assert list(tmp_path.glob("*/rows.parquet"))
            file.leave()
            stops.set()
            while not (ended and not list(tmp_path.iterdir())) and time.monotonic() < until:
                time.sleep(0.005)
        assert not list(tmp_path.iterdir())
        assert isinstance(ended[0], Abandoned)
    finally:
        gc.enable()


def test_excel_texts_are_never_formulas(tmp_path: Any) -> None:
    with open(tmp_path / "x.xlsx", "wb") as file:
        table = pa.table({"a": ["=1+1"], "b": ['<&"'], "c": [math.inf], "d": [None], "e": [True]})
        write_excel(file, [table], ["a", "b", "c", "d", "e"], {"k": "v" * 70_000})
    with zipfile.ZipFile(tmp_path / "x.xlsx") as archive:
        sheet = archive.read("xl/worksheets/sheet1.xml").decode()
    assert "<f>" not in sheet
    assert "&lt;&amp;" in sheet
    assert ' t="b"><v>1</v></c>' in sheet


def test_every_stored_column_can_be_filtered_by() -> None:
    found = exploration("none")
    row = found.rows.top(1).to_pylist()[0]
    for column in stored_of("calculon"):
        value = row[column.name]
        word = column.dtype in ("bool", "str")
        one = Filter(column, (value,)) if word else Filter(column, low=float(value), high=float(value))
        assert found.rows.count(conditions([one])) >= 1, column.name


@pytest.mark.parametrize(
    ("by", "order"), [("sample_rate", "best"), ("total_time", "worst"), ("tensor_par", "best"), ("id", "best")]
)
@pytest.mark.parametrize("where", [(), (("pipeline_par", "=", 1),)])
def test_the_shown_execution_is_on_the_row_that_its_line_names(by: str, order: str, where: tuple[Any, ...]) -> None:
    found = exploration()
    for execution in found.rows.page(40, 3, where=list(where), names=["id"])["id"].to_pylist():
        place = place_of(found, found.key, where, by, order, execution)
        assert place is not None
        page = load_page(found, found.key, where, by, order, place // 100 + 1, 100, ("sample_rate",))
        assert page["id"].iloc[place % 100] == execution


def test_one_click_selects_the_recommended_execution_and_turns_to_its_row() -> None:
    app = run("results", exploration(), {"results_order": "worst"})
    app.button(key="results_select_shown").click()
    app = again(app, exploration())
    own = recommend(exploration()).execution
    assert own is not None
    assert app.session_state["_url"]["id"] == str(own["id"])
    assert own["id"] in app.dataframe[0].value.iloc[:, 0].tolist()
    assert any(each.value.startswith("**Recommended**") for each in app.markdown)


def test_neither_end_of_a_field_is_called_best() -> None:
    found = exploration("none")
    for by, words, ids in (
        (
            "tensor_par",
            "lowest first by tensor parallel",
            found.rows.page(0, 100, order_by=(("tensor_par", "ascending"),), names=["id"]),
        ),
        ("activation_recompute", "in order by recompute", None),
        ("total_time", "best first by step time", None),
    ):
        page = run("results", found, {"results_sort": by})
        assert words in html(page)
        if ids is not None:
            assert page.dataframe[0].value["id"].tolist() == ids["id"].to_pylist()
    page = run("results", found, {"results_sort": "pipeline_par", "results_order": "worst"})
    assert "highest first by pipeline parallel" in html(page)
    assert page.dataframe[0].value["pipeline_par"].tolist() == [8] * 100


def test_what_is_recomputed_is_told_only_where_something_is() -> None:
    page = run("results", dense(), {"results_size": "1000"})
    shown = page.dataframe[0].value
    selective = shown["activation_recompute"] == "selective"
    assert selective.any()
    assert not selective.all()
    assert shown.loc[selective, "selective_recompute"].notna().all()
    assert shown.loc[~selective, "selective_recompute"].isna().all()


def test_what_of_the_rows_was_never_measured_is_told() -> None:
    found = engine.explore(
        "llama-3.1-8B",
        "h100_80g_sxm",
        num_procs=8,
        max_batch_size=16,
        datatype="bfloat16",
        limits={"pipeline_par": [1, 2], "microbatch_size": 1},
    )
    page = run("results", found)
    said = plainly(" ".join(each.value for each in page.caption)).replace("\\", "")
    best = found.rows.page(0, 100, order_by=(("sample_rate", "descending"),), names=["id"]).to_pylist()
    rows = found.evaluate_ids([row["id"] for row in best]).to_dict("records")
    numbers = Counter(things for row in rows for things in found.scenario.not_measured(row))
    assert 0 < max(numbers.values()) <= len(rows)
    for things, number in numbers.items():
        assert f"{things} ({number:,} of these 100 rows)" in said
    assert "Never measured" not in " ".join(each.value for each in run("results", exploration("none")).caption)


def test_what_the_table_is_sorted_by_is_shown() -> None:
    page = run("results", exploration("none"), {"results_sort": "offload_mem_bw_req"})
    columns = list(page.dataframe[0].value.columns)
    assert columns[:5] == ["id", "tensor_par", "pipeline_par", "data_par", "offload_mem_bw_req"]
    page = run("results", exploration("none"), {"results_sort": "total_time"})
    assert "offload_mem_bw_req" not in page.dataframe[0].value.columns


def test_several_ranges_of_another_page_are_carried_over_and_can_be_added_to() -> None:
    found = exploration("none")
    best = utilisation(found.scenario, found.best["sample_rate"])  # type: ignore[index]
    link = f"mfu:{best / 2!r}..{best * 0.9!r};proc_mem_tier1_cap_req:..{30 * 2.0**30!r};microbatch_size:2..8"
    page = run("results", found, {"results_where": link}, opened=["filter"])
    rows = found.rows.table(["id", "sample_rate", "proc_mem_tier1_cap_req", "microbatch_size"]).to_pandas()
    mfu = rows["sample_rate"] * utilisation(found.scenario, 1.0)
    mine = rows[
        mfu.between(best / 2, best * 0.9)
        & (rows["proc_mem_tier1_cap_req"] <= 30 * 2**30)
        & rows["microbatch_size"].between(2, 8)
    ]
    assert 0 < len(mine) < found.feasible
    assert f"{count(len(mine))} of {count(found.feasible)} feasible executions" in html(page)
    best_first = mine.sort_values(["sample_rate", "id"], ascending=[False, True])
    assert page.dataframe[0].value["id"].tolist() == best_first["id"].head(100).tolist()
    rows_shown = page.multiselect(key="_explore_ranges")
    rows_shown.set_value([*rows_shown.value, "tokens_per_gpu"])
    page = again(page, found)
    page.number_input(key="_explore_low_tokens_per_gpu").set_value(1.0)
    page = again(page, found)
    assert page.session_state["_url"]["results_where"].startswith(f"{link};tokens_per_gpu:")


def test_a_filter_on_an_inverse_figure_turns_its_ends() -> None:
    metric = Metric("usd", replace(by_name("total_time"), name="usd"), "sample_rate", 600.0, inverse=True)
    filters, problems = parse("usd:2.0..6.0", {"usd": metric})
    assert not problems
    assert filters[0].conditions == [
        StoreCondition("sample_rate", ">=", 100.0),
        StoreCondition("sample_rate", "<=", 300.0),
    ]
    assert filters[0].figures(100.0, 300.0) == (2.0, 6.0)
    assert parse("usd:0.0..", {"usd": metric})[0][0].conditions == [StoreCondition("sample_rate", "<=", math.inf)]


def test_results_show_filter_and_export_the_fit() -> None:
    """The column and the files say the fit of each row, and the filter of the link keeps the rows that have it."""
    system = hardware.load("h100_80g_sxm")
    small = system.mem1.model_copy(update={"capacity_gib": 30.0})
    found = engine.explore(
        "llama-3-8B",
        system.model_copy(update={"mem1": small}),
        num_procs=8,
        max_batch_size=8,
        datatype="bfloat16",
        limits={"context_par": 1, "selective_recompute": "modules", "memory_excess": 13},
    )
    fits = with_fit(found.scenario, found.rows.table().to_pandas())["fit"]
    for words in (("may fit",), ("may not fit", "may fit")):
        number = int(fits.isin(words).sum())
        link = f"fit:{','.join(word.replace(' ', '_') for word in words)}"
        app = run("results", found, {"results_where": link}, opened=["filter"])
        shown = app.dataframe[0].value
        assert set(shown["fit"]) <= set(words)
        assert f"{count(number)} of {count(found.feasible)} feasible executions" in plainly(html(app))
        one, problems = parse(link, bounds=fit_bounds_of(found.scenario))
        assert (problems, text(one)) == ([], link)
        counts = fits[fits.isin(words)].value_counts().to_dict()
        for kind in ("parquet", "csv", "excel"):
            target = io.BytesIO()
            exports.of_rows(found, kind, names=("id", "fit", "sample_rate"), where=conditions(one))(target)
            if kind == "parquet":
                assert pd.read_parquet(target)["fit"].value_counts().to_dict() == counts
                continue
            with zipfile.ZipFile(target) as packed:
                sheet = packed.read("executions.csv" if kind == "csv" else "xl/worksheets/sheet1.xml").decode()
            assert {word: sheet.count(word) for word in words} == counts
    # Elsewhere there is no such filter, and a link that has it says so.
    assert "fit" in parse("fit:may_fit")[1][0]
    assert "fits, may_not_fit, may_fit" in parse("fit:perhaps", bounds=fit_bounds_of(found.scenario))[1][0]
