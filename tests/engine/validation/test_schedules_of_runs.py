"""Schedules and groups of experts that measured runs name."""

from __future__ import annotations

import pandas as pd
import pytest

from engine import validation


def _predicted(**changes: str) -> pd.Series:
    table = validation.library_runs().table
    row = table[table["id"] == "deepseekv3-h800"].copy()
    for name, value in changes.items():
        row[name] = value
    return validation.validate(row).iloc[0]


def test_published_step_of_deepseek_v3_is_a_predicted_run() -> None:
    """19.926 s and at most 80 GB (arXiv:2505.09343, table 4); a tenth too quick, which stays said.

    The output of SwiGLU is computed again besides norms and up-projections (arXiv:2412.19437, sections 3.2.3, 3.3.3).
    """
    published = "modules:layernorm+moe_act+mla_up_proj"
    found = _predicted(recompute=published)
    assert found["status"] == "predicted"
    assert found["measured_step_time_s"] == 19.926
    assert found["error"] == pytest.approx(-0.11, abs=0.01)
    assert _predicted(recompute=published, mtp_layers="0")["error"] == pytest.approx(-0.20, abs=0.01)
    assert found["predicted_mem_gib"] < 79.6


def test_a_named_schedule_and_groups_count() -> None:
    paired = _predicted()["predicted_step_time_s"]
    assert _predicted(schedule="1F1B")["predicted_step_time_s"] > 1.2 * paired, "nothing hides the exchange"
    free = _predicted(schedule="1f1b", moe_groups="1", moe_groups_per_token="1")
    assert free["predicted_step_time_s"] > _predicted(schedule="1f1b")["predicted_step_time_s"]
    unknown = _predicted(schedule="spiral")
    assert unknown["reason"] == "schedule_not_modelled"
    assert "dualpipe" in unknown["reason_text"]


def test_megatron_bridges_layouts_are_those_of_its_recipe_and_count() -> None:
    """61 blocks on 8 stages: 8 on each, and 5 with loss and prediction layer on the last (`recipes/deepseek`)."""
    table = validation.library_runs().table
    runs = table[table["framework"].str.startswith("Megatron-Bridge") & (table["model"] == "DeepSeekV3")]
    assert len(runs) == 6
    assert (runs["layout"] != "").all()
    row = runs[runs["id"] == "mb26.06-pre-DeepSeekV3-B300-mxfp8-256"]

    def predicted(layout: str) -> pd.Series:
        return validation.validate(row.assign(layout=layout)).iloc[0]

    listed, ends = validation.validate(row).iloc[0], predicted("first_8_last_5")
    assert listed["predicted_step_time_s"] == ends["predicted_step_time_s"]
    assert predicted("Et*2|(t*9|)*6t*5mL")["predicted_step_time_s"] > listed["predicted_step_time_s"]
    assert predicted("Et*8|(t*8|)*5t*5mL")["reason"] == "impossible_split"
    assert predicted("Et*8|(t*8|)*6t*4mL")["reason"] == "impossible_split"
    assert "lists 0 prediction layers" in predicted("Et*8|(t*8|)*6t*5L")["reason_text"]
    # The recipe trains one (`cfg.model.mtp_num_layers = 1`), and one run says that it goes without.
    assert runs["mtp_layers"].tolist() == [1, 1, 1, 1, 1, 0]
    assert predicted("spiral")["reason"] == "bad_value"
