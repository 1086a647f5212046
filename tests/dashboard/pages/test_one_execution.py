"""A space of a single execution is told in the singular, and its choices with what they mean."""

from __future__ import annotations

import re

import pytest

import engine
from dashboard.charts.elements.markup import chips
from dashboard.words.executions import choices
from engine import Exploration
from engine.columns import by_name
from tests.dashboard.page_runs import html, run

LIMITS = {
    "activation_recompute": "full",
    "tensor_par_comm_type": "ar",
    "weight_offload": True,
    "activations_offload": False,
    "optimizer_offload": True,
    "seq_par_ag_redo": False,
    "tensor_par_overlap": "none",
    "optimizer_sharding": False,
    "data_par_overlap": False,
}


@pytest.fixture(scope="module")
def single() -> Exploration:
    """GPT-3 6.7B on one GPU, with everything decided."""
    found = engine.explore(
        "gpt3-6.7B", "h100_80g_nvl8", num_procs=1, max_batch_size=1, datatype="float16", limits=LIMITS
    )
    assert (found.total, found.feasible) == (1, 1)
    return found


@pytest.mark.parametrize("page", ["explore", "execution", "memory", "pareto", "results", "whatif"])
def test_one_execution_is_not_several(single: Exploration, page: str) -> None:
    shown = run(page, single)
    told = " ".join([html(shown), *(str(each.value) for each in (*shown.markdown, *shown.caption))])
    plain = re.sub(r"<[^>]*>|\*", " ", re.sub(r"<style.*?</style>", "", told, flags=re.DOTALL))
    assert not re.search(r"(?<![\d.,])1 (executions|cells|GPUs|sequences|microbatches|stages)\b", plain)


def test_results_name_the_one_execution(single: Exploration) -> None:
    assert "The one feasible execution" in html(run("results", single))


def test_chips_say_what_they_mean(single: Exploration) -> None:
    assert single.best is not None
    facts = choices(single.best, single.scenario.system)
    assert dict(facts)["microbatches"] == "1 × 1 sequence"
    assert "interleaving" not in dict(facts)  # there is no pipeline
    assert f'title="{by_name("activation_recompute").description}"' in chips(facts)
    assert chips([("TP · DP network", "8 GPUs, 450 GB/s")]).count("title=") == 1
    assert 'title="' not in chips([("<b>", "x")])
