"""A model with adapters, and forward passes alone, are drawn by the pages that evaluate executions."""

from __future__ import annotations

import functools
import re
from typing import Any

import pytest

import engine
import models
from engine import Exploration
from tests.dashboard.page_runs import BRIEF, html, run

PLAIN = {"weight_offload": False, "activations_offload": False, "optimizer_offload": False}


@functools.cache
def explored(is_forward: bool) -> Exploration:
    """Llama 3 8B on 8 H100: with adapters of rank 16, or a forward pass alone."""
    model = models.load("llama-3-8B")
    tuned = model if is_forward else models.tuned(model, {"adapter_rank": 16, "frozen_weight_bits": 4})
    limits: dict[str, Any] = {**PLAIN, "pipeline_par": [1, 2], "context_par": 1, "expert_par": 1}
    return engine.explore(
        tuned,
        "h100_80g_sxm",
        num_procs=8,
        max_batch_size=16,
        datatype="bfloat16",
        limits={**limits, "training": False} if is_forward else limits,
        cost_model="calibrated",
    )


@pytest.mark.parametrize("page", ["explore", "execution", "memory", "results"])
@pytest.mark.parametrize("is_forward", [False, True], ids=["adapters", "forward"])
def test_pages_draw_it(page: str, is_forward: bool) -> None:
    app = run(page, explored(is_forward), BRIEF)
    kinds = ("markdown", "caption", "warning", "error", "info", "code")
    shown = "\n".join([html(app), *(str(element.value) for kind in kinds for element in app.get(kind))])
    assert not app.exception
    assert not re.search(r"(?i)(?<![a-z])(nan|inf)(?![a-z])", shown)
    if page == "execution" and not is_forward:
        assert "Adapters" in shown or "adapters" in shown
