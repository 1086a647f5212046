"""The best plan under each limit: the artifact's predictions and picks, reasons of the other plans, model cards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from engine.planners.contract import PlanError
from engine.planners.elastic import best_plan, card_names, load_card, plans_table, save_card
from engine.planners.elastic.accuracy import against_measured, by_class, ranking
from engine.planners.elastic.cards import CardError, changed_card, load_card_document, to_document

FOLDER = Path(__file__).parents[2] / "reference" / "elastic"
GOLDEN: dict[str, Any] = json.loads((FOLDER / "artifact.json").read_text())


def test_every_prediction_of_figure_7() -> None:
    wanted = pd.read_csv(FOLDER / "figure_7_predictions.csv", dtype={"placement": str, "plan": str})
    assert len(wanted) == 30
    for row in wanted.itertuples():
        threads = 2 if pd.isna(row.cpu_threads) else int(row.cpu_threads)
        table = plans_table("llama7_bsz16", placement=row.placement, cpu_threads=threads, restricted=False)
        found = table.set_index("plan").loc[row.plan]
        assert found["iteration_ms"] == pytest.approx(row.pred_iter_ms, rel=1e-12)
        assert found["throughput"] == pytest.approx(row.pred_throughput, rel=1e-12)
        assert (found["family"], found["gpus"]) == (row.family[:2], row.gpus)


def test_picks_follow_the_table_of_allowed_plans() -> None:
    """The model alone picks others than the measured best; the card's table is what secures the answer."""
    for placement, plan in GOLDEN["figure_7"]["picks"]:
        found = best_plan("llama7_bsz16", placement=placement, cpu_threads=2)
        assert found.plan == plan
        parts = [each.value for each in found.figures if each.name not in ("throughput", "iteration")]
        assert sum(parts) == pytest.approx(found.iteration_ms / 1e3, rel=1e-12)
    for placement, wanted in GOLDEN["figure_7"]["unrestricted"].items():
        found = best_plan("llama7_bsz16", placement=int(placement), cpu_threads=2, restricted=False)
        assert found.plan == wanted["best"] != wanted["best_measured"]
        table = found.table.set_index("plan")["iteration_ms"]
        for plan, value in wanted["plans"].items():
            assert table[plan] == pytest.approx(value, rel=1e-12)


def test_how_well_the_formulas_order_what_was_measured() -> None:
    table = against_measured("llama7_bsz16", families=("3D",))
    found = ranking(table).set_index("placement")
    for placement, wanted in GOLDEN["figure_7"]["unrestricted"].items():
        row = found.loc[placement]
        assert row["best_measured"] == wanted["best_measured"]
        assert wanted["spearman"] is None or row["spearman"] == pytest.approx(wanted["spearman"])
    classes = by_class(table).set_index("plan_class")
    assert classes["cases"].to_dict() == {"DP+TP+PP": 9, "TP+PP": 4}


def test_every_other_plan_has_a_reason() -> None:
    found = best_plan("llama7_bsz16", placement=[4, 4, 4, 4], cpu_threads=2)
    assert found.strategy == (4, 4, 1)
    assert [(stage.start, stage.stop, len(stage.devices)) for stage in found.stages] == [
        (0, 8, 4),
        (8, 16, 4),
        (16, 24, 4),
        (24, 32, 4),
    ]
    table = found.table.set_index("plan")
    assert table["reason"].iloc[0] == ""
    assert (table["reason"].iloc[1:] != "").all()
    assert table.loc["281", "reason"] == "8 tensor parallel ranks are more than the 4 GPUs of a node"
    assert table.loc["dp+ga", "reason"] == "the card rules dp+ga out: it gives it no sample on a GPU"
    assert table.loc["1116", "reason"] == "the card allows it on no placement"
    assert set(found.runners_up["plan"]) | set(found.rejected["plan"]) == set(table.index) - {"441"}
    one = best_plan("roberta", placement="8").table.set_index("plan")
    assert one.loc["181", "reason"] == "the model is not run with tensor or pipeline parallelism"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"placement": "80"}, "no placement"),
        ({"placement": "abc"}, "no placement"),
        ({"placement": []}, "no placement"),
        ({"placement": "9" * 5000}, "at most"),
        ({"placement": True}, "no placement"),
        ({"cpu_threads": 0}, "whole number from 1"),
        ({"bandwidth": float("nan")}, "bandwidth"),
        ({"variant": "artefact"}, "did you mean 'artifact'"),
        ({"model_card": "llama8"}, "did you mean"),
        ({"model_card": {"name": "x"}}, "missing"),
        ({"placement": "55"}, "16 samples do not divide among 10 GPUs"),
    ],
)
def test_bad_input_is_told_in_a_sentence(change: dict[str, Any], told: str) -> None:
    asked: dict[str, Any] = {"model_card": "llama7_bsz16", "placement": "8888", "cpu_threads": 2, **change}
    with pytest.raises(PlanError, match=told) as error:
        best_plan(asked.pop("model_card"), **asked)
    assert "\n" not in str(error.value)
    assert str(error.value).endswith(".")


def test_cards_are_documents(tmp_path: Path) -> None:
    for name in card_names():
        card = load_card(name)
        assert load_card_document(to_document(card)) == card
        assert "Apache-2.0" in card.source
    edited = changed_card(load_card("llama7"), {"performance.k_bwd": 2.5, "global_batch": 16}, name="mine")
    save_card(edited, tmp_path / "mine.json")
    assert load_card(tmp_path / "mine.json") == edited
    with pytest.raises(CardError, match=r"performance.k_bwd"):
        changed_card(edited, {"performance.k_bwd": -1})
    document = {**to_document(edited), "forward": 3}
    with pytest.raises(CardError, match="unknown key"):
        load_card_document(document)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("allowed_plans", {"abc": ["8"]}),
        ("allowed_plans", {"244": ["80"]}),
        ("allowed_plans", {"244": 3}),
        ("placements_of_gpus", {"x": ["8"]}),
        ("plan_of_placement", {"8": "q"}),
        ("recompute", ["half"]),
        ("global_batch", 2.5),
        ("layers", 10**9),
        ("sequence", True),
    ],
)
def test_bad_cards_name_the_field(key: str, value: Any) -> None:
    with pytest.raises(CardError, match=rf"card.json: '{key}") as error:
        load_card_document({**to_document(load_card("llama7")), key: value}, "card.json")
    assert "\n" not in str(error.value)


def test_cards_with_the_keys_of_the_artifact_are_read() -> None:
    theirs = {
        "params_M": 10,
        "forward_ms_1gpu": 5,
        "global_batch": 8,
        "hidden": 64,
        "layers": 2,
        "seq": 16,
        "env": {"B_pcie": 1, "B_nvlink": 2},
        "perf": load_card("vit").performance.model_dump(),
        "max_dp_atom_bsz": {"DP": {"gc": 0, "other": 8}},
        "avail_placement": {"221": [4]},
        "gpu_to_placements": {"4": [4]},
        "placements_to_plan": {"4": "221"},
    }
    card = load_card_document({"small": theirs, "other": theirs}, "file.json", "small")
    assert (card.name, card.allowed_plans["221"], card.placements_of_gpus) == ("small", ("4",), {4: ("4",)})
    assert best_plan(theirs, placement=4).table.set_index("plan").loc["221", "feasible"]
    with pytest.raises(CardError, match="give the name"):
        load_card_document({"small": theirs, "other": theirs}, "file.json")
