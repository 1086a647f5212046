"""From an answer to a launch and back, in a real browser: the card's file starts what is shown, and opens as it was."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, expect

from dashboard.words.executions import placed
from engine import Scenario, best_of, launch
from tests.browser.conftest import choose_from, open_at, settled

SCENARIO = Scenario.of(
    "llama-3-8B",
    "h100_80g_sxm",
    num_procs=8,
    max_batch_size=32,
    datatype="bfloat16",
    limits={"tensor_par": [1, 2], "pipeline_par": [1, 2]},
)
QUERY = "model=llama-3-8B&system=h100_80g_sxm&procs=8&batch=32&type=bfloat16&limits=pipeline_par:1,2;tensor_par:1,2"


def chosen(page: Page, framework: str) -> None:
    """Chooses a framework on the card."""
    box = page.locator(".st-key-execution_launch_framework").get_by_role("combobox")
    choose_from(box, page.get_by_role("option", name=framework, exact=True))
    settled(page)


def test_the_card_has_a_file_that_opens_as_the_execution_shown(page: Page, server: str, tmp_path: Path) -> None:
    open_at(page, f"{server}/execution?{QUERY}")
    card = page.locator(".st-key-execution_launch_card")
    expect(card.get_by_test_id("stCode")).to_contain_text("torchrun")
    best = best_of(SCENARIO)
    chosen(page, "torchtitan")
    expect(card.get_by_test_id("stCode").first).to_contain_text("torchtitan.train")
    chosen(page, "Megatron-LM")
    expect(card.get_by_test_id("stCode")).to_contain_text(f"--tensor-model-parallel-size {best['tensor_par']}")
    expect(card).to_contain_text("Set, but without effect on the prediction")
    with page.expect_download() as download:
        card.get_by_role("button", name="Download", exact=False).click()
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    said = launch.read(file)
    assert (launch.named_shape(said.model), said.num_procs, said.unread) == ("llama-3-8B", 8, ())
    stands = launch.standing(said.execution, "llama-3-8B", "h100_80g_sxm", limits=SCENARIO.limits)
    assert stands.runs

    open_at(page, f"{server}/scenarios?{QUERY}")
    settled(page)
    page.get_by_test_id("stPopoverButton").filter(has_text="Open a file").locator("visible=true").first.click()
    page.locator("[data-testid=stFileUploaderDropzoneInput]").set_input_files(file)
    expect(page.get_by_text("llama-3-8B · 8 GPUs")).to_be_visible()
    assert stands.faster is not None
    assert stands.feasible is not None
    expect(page.get_by_text(placed(stands.faster, stands.feasible))).to_be_visible()
    page.get_by_role("button", name="Open it").click()
    panel = page.locator(".st-key-own_run")
    expect(panel).to_contain_text(placed(stands.faster, stands.feasible))
    settled(page)
    page.get_by_text("Explore").first.click()
    page.get_by_role("link", name="Memory").first.click()
    expect(page.get_by_text("Where the memory goes")).to_be_visible()
    expect(panel).to_contain_text("Megatron-LM")
    assert "run_from=megatron" in page.url
    panel.get_by_role("button", name="Forget it").click()
    expect(panel).to_have_count(0)
