"""The Explore page in a real browser: clicking, switching, links, downloads, hostile links."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Page, Route, expect

from dashboard.words.numbers import format_value
from engine import Exploration, explore
from engine.columns import stored_of
from engine.recommendation import recommend
from engine.store import StoreCondition
from tests.browser.conftest import SMALL, go_to, open_at, settled

Visit = Callable[..., Page]
LIMITED = f"{SMALL}&limits=microbatch_size:1;tensor_par:1,2,4;pipeline_par:1,2,4"


@pytest.fixture(scope="module")
def direct() -> Exploration:
    """The scenario of `LIMITED`, explored without the application."""
    limits = {"tensor_par": [1, 2, 4], "pipeline_par": [1, 2, 4], "microbatch_size": [1]}
    return explore("gpt3-13B", "h100_80g_nvl8", num_procs=16, max_batch_size=32, datatype="float16", limits=limits)


def panel_title(page: Page) -> str:
    return page.locator(".st-key-panel .ss-head").first.inner_text()


def click_cell(page: Page, number: int) -> None:
    """Clicks the cell of that position in the map. The pointer has to rest on it first, as a person's does."""
    box = page.locator(".st-key-explore_map .barlayer .point path").nth(number).bounding_box()
    assert box is not None
    page.wait_for_timeout(400)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=3)
    page.wait_for_timeout(400)
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def test_the_default_page_shows_the_map_of_llama_on_512_h100s_and_hostile_links_do_with_one_message(
    page: Page, server: str
) -> None:
    page.goto(server)
    expect(page.locator(".st-key-bar_end")).to_contain_text("378,108 executions")
    cells = page.locator(".st-key-explore_map .barlayer .point path")
    expect(cells).to_have_count(43)  # pairs whose product 512 holds
    expect(page.locator("[data-testid=stAlert]")).to_have_count(0)
    script = quote("<img src=x onerror=\"document.title='taken'\">![x](http://127.0.0.1:1/x.png)")
    query = f"model={script}&procs=99999999999999999999&limits={quote('tensor_par:1;;evil:2')}&cell={script}"
    open_at(page, f"{server}/?{query}")
    expect(page.locator("[data-testid=stAlert]")).to_have_count(1)
    expect(page.locator(".st-key-sentence")).to_contain_text("Llama 3.1 70B")
    expect(cells.first).to_be_visible()
    expect(page.locator(".st-key-panel .ss-facts").first).to_be_visible()
    assert page.title() != "taken"
    assert page.locator("[data-testid=stAlert] img").count() == 0


def test_a_clicked_cell_and_metric_change_panel_map_and_table_and_a_link_restores_them_elsewhere(
    visit: Visit, stranger: Page, server: str, direct: Exploration
) -> None:
    page = visit(LIMITED)
    cells = direct.by_cell()
    best = cells.sort_values("value", ascending=False).iloc[0]
    other = int((cells["tensor_par"] != best["tensor_par"]).argmax())
    row = cells.iloc[other]
    title = f"TP {row['tensor_par']} × PP {row['pipeline_par']} × DP {row['data_par']}"
    assert panel_title(page) != title
    click_cell(page, other)
    expect(page.locator(".st-key-panel .ss-head").first).to_have_text(title)
    cell = [StoreCondition(name, "=", int(row[name])) for name in ("tensor_par", "pipeline_par")]
    advised = recommend(direct, where=cell).execution
    assert advised is not None
    step = format_value("total_time", advised["total_time"])
    expect(page.locator(".st-key-panel .ss-facts").first).to_contain_text(step)
    page.wait_for_url(f"**cell={row['tensor_par']}x{row['pipeline_par']}**")

    page.locator(".st-key-explore_toolbar").get_by_text("Step time", exact=True).click()
    page.wait_for_url("**metric=total_time**")
    fastest = direct.by_cell("total_time")["value"].min()
    number = format_value("total_time", fastest).split()[0]  # in the map without its unit
    expect(page.locator(".st-key-explore_map .scatterlayer text").filter(has_text=number).first).to_be_visible()
    settled(page)
    page.get_by_role("button", name="View", exact=True).locator("visible=true").click()
    page.get_by_text("As table", exact=True).click()
    expect(page.locator(".st-key-explore_cells [data-testid=stDataFrame]")).to_be_visible()
    page.wait_for_url("**map_table=on**")
    page.keyboard.press("Escape")
    settled(page)

    page.get_by_role("button", name="Share", exact=True).locator("visible=true").click()
    link = page.locator("[data-testid=stCode] code").first.inner_text().replace("\n", "").strip()
    assert link.startswith(server)
    open_at(stranger, link)
    expect(stranger.locator(".st-key-panel .ss-head").first).to_have_text(title)
    expect(stranger.locator(".st-key-sentence")).to_contain_text("GPT-3 13B")
    expect(stranger.get_by_role("radio", name="Step time")).to_be_checked()
    expect(stranger.locator(".st-key-explore_cells [data-testid=stDataFrame]")).to_be_visible()

    page.keyboard.press("Escape")
    settled(page)
    go_to(page, "memory")
    expect(page.locator(".st-key-sentence")).to_contain_text("GPT-3 13B")
    page.wait_for_url(f"**/memory?**cell={row['tensor_par']}x{row['pipeline_par']}**")


PICTURE = """() => {
  const place = document.querySelector(".st-key-map_place"), from = place?.getBoundingClientRect();
  const boxes = [...document.querySelectorAll(".ss-still i[style*='%;height']")];
  if (!boxes.length) return null;
  window.firstPlace = place;
  const said = [...document.querySelectorAll(".ss-still span")].map((each) => each.innerText);
  const inside = (box) => {
    const b = box.getBoundingClientRect();
    return [b.x - from.x, b.y - from.y, b.width, b.height];
  };
  return {boxes: boxes.map(inside), said};
}"""
"""The picture in the place of the map: its boxes from the place's corner on, and its words; remembers the place."""


def test_until_the_map_is_drawn_a_picture_shows_the_same_in_its_place(page: Page, server: str) -> None:
    held: list[Route] = []
    page.route("**/plotly/*.js", lambda route: held.append(route))
    page.goto(
        f"{server}/?{LIMITED}", wait_until="domcontentloaded"
    )  # the page may ask for the held file before it loads
    # All at once, as the picture goes when the rest of the page comes.
    picture = page.wait_for_function(PICTURE).json_value()
    page.wait_for_selector(".st-key-panel .ss-facts")
    shape = "box => { const b = box.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; }"
    for _ in range(100):
        if held:
            break
        page.wait_for_timeout(50)
    assert held
    assert not page.locator(".main-svg").count()
    settled(page)
    place = page.locator(".st-key-map_place").evaluate(shape)
    for route in held:
        route.continue_()
    page.wait_for_selector(".st-key-explore_map .barlayer path")
    cells = page.locator(".st-key-explore_map .barlayer path")
    assert page.locator(".st-key-map_place").evaluate(shape) == place
    assert not page.locator(".ss-still").is_visible()
    for left, top, *size in cells.evaluate_all(f"boxes => boxes.map({shape})"):
        cell = [left - place[0], top - place[1], *size]
        assert any(all(abs(a - b) < 1.5 for a, b in zip(cell, box, strict=True)) for box in picture["boxes"])
    drawn = page.locator(".st-key-explore_map text").all_text_contents()
    assert sorted(picture["said"]) == sorted(text for text in drawn if text)
    expect(page.get_by_text("Cost of each choice")).to_be_visible()
    settled(page)
    assert page.evaluate("firstPlace.isConnected"), "the map is another one once the whole page is drawn"
    assert page.locator(".st-key-map_place").evaluate(shape) == place, "what comes later moves the map under a pointer"


def test_choosing_another_model_explores_it(visit: Visit) -> None:
    page = visit(LIMITED)
    settled(page)
    page.locator(".st-key-sentence [data-testid=stPopover]").first.locator("button >> visible=true").click()
    page.get_by_role("combobox", name="Model").click()
    page.get_by_role("combobox", name="Model").fill("GPT-3 6.7B")
    page.get_by_role("option", name="GPT-3 6.7B", exact=True).click()
    expect(page.locator(".st-key-sentence")).to_contain_text("GPT-3 6.7B")
    page.wait_for_url("**model=gpt3-6.7B**")
    assert page.locator("[data-testid=stException]").count() == 0


def test_downloads_hold_what_the_engine_found(visit: Visit, direct: Exploration, tmp_path: Path) -> None:
    page = visit(LIMITED)
    page.get_by_role("button", name="Download", exact=True).locator("visible=true").click()
    with page.expect_download() as parquet:
        page.get_by_test_id("stPopoverBody").get_by_role("link", name="Parquet").click()
    path = tmp_path / "executions.parquet"
    parquet.value.save_as(path)
    table = pq.read_table(path)
    assert table.column_names == [column.name for column in stored_of("calculon")]
    own = direct.rows.table()
    assert table.num_rows == own.num_rows == direct.feasible
    for name in ("id", "tensor_par", "total_time", "sample_rate", "proc_mem_tier1_cap_req"):
        assert table[name].to_pylist() == own[name].to_pylist()
    assert table.schema.field("total_time").metadata[b"unit"] == b"s"

    with page.expect_download() as packed:
        page.get_by_test_id("stPopoverBody").get_by_role("link", name="CSV").click()
    archive = tmp_path / "executions.zip"
    packed.value.save_as(archive)
    with zipfile.ZipFile(archive) as content, content.open("executions.csv") as file:
        rows = csv.reader(io.TextIOWrapper(file, encoding="utf-8"))
        heads = next(rows)
        first = next(rows)
        assert sum(1 for _ in rows) + 1 == direct.feasible
    assert "total_time [s]" in heads
    assert float(first[heads.index("total_time [s]")]) == own["total_time"][0].as_py()
