"""Figures that are not stored, in a real browser: progress, Stop, and a link that shows them in a fresh one."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from dashboard.words.numbers import ABSENT, scale_for
from engine import explore
from engine.columns import by_name
from tests.browser.conftest import SMALL, open_at

CARD = "[class*=st-key-job_evaluation]"
MAP = ".st-key-explore_pairs .barlayer .point path"


def test_progress_can_be_stopped_and_what_is_there_is_there_for_all(page: Page, stranger: Page, server: str) -> None:
    large = "model=gpt3-175B&system=h100_80g_nvl8&procs=512&batch=512&type=float16"
    link = f"{server}/?{large}&metric=act_space&results_where=optimizer_space:..2e10"
    open_at(page, link)
    card = page.locator(CARD)
    expect(card).to_contain_text("Evaluating optimizer state and activations")
    expect(card).to_contain_text("per second")
    expect(card).to_contain_text("left")
    card.get_by_role("button", name="Stop").click()
    told = page.locator("[data-testid=stAlert]").filter(has_text="Stopped before")
    expect(told).to_contain_text("nothing was kept")
    page.get_by_role("button", name="Start again").click()
    expect(page.locator(MAP).first).to_be_visible()
    expect(card).to_have_count(0)
    open_at(stranger, link)
    expect(stranger.locator(MAP).first).to_be_visible()
    assert stranger.locator(CARD).count() == 0
    expect(stranger.locator(".st-key-explore_filters")).to_contain_text("Optimizer state ≤ 18.6")


def test_a_link_shows_what_the_engine_finds(page: Page, server: str) -> None:
    limits = {"tensor_par": [1, 2, 4], "pipeline_par": [1, 2, 4], "microbatch_size": [1]}
    found = explore("gpt3-13B", "h100_80g_nvl8", num_procs=16, max_batch_size=32, datatype="float16", limits=limits)
    every = found.evaluate_ids(found.rows.table(["id"])["id"].to_numpy())
    bound = float(every["weight_space"].median())
    chosen = every[every["weight_space"] <= bound]
    best = chosen.groupby(["tensor_par", "pipeline_par"])["act_space"].min()
    link = f"{SMALL}&limits=microbatch_size:1;tensor_par:1,2,4;pipeline_par:1,2,4"
    open_at(page, f"{server}/?{link}&metric=act_space&results_where=weight_space:..{bound!r}")
    expect(page.locator(MAP).first).to_be_visible()
    expect(page.locator(".st-key-explore_filters")).to_contain_text(f"{len(chosen):,} of")
    drawn = {text.strip() for text in page.locator(".st-key-explore_pairs .scatterlayer text").all_text_contents()}
    scale = scale_for(by_name("act_space"), best.tolist())
    assert drawn - {ABSENT, ""} == {scale.number(value) for value in best}
    open_at(page, f"{server}/results?{link}&results_where=weight_space:..{bound!r}&results_sort=act_space")
    expect(page.locator("[data-testid=stDataFrame] canvas").first).to_be_visible()
    expect(page.get_by_text(f"{len(chosen):,} of").first).to_be_visible()
