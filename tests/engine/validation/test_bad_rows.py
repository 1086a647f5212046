"""Any table is read; bad rows are reported one by one, with a reason, and never end in a traceback."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.validation import OUT_COLUMNS, REASONS, RunsFileError, error_table, read_runs, validate
from tests.engine.validation.library_outcomes import outcomes
from tests.engine.validation.runs import GOOD, table


def outcome(**change: Any) -> tuple[str, str, str]:
    found = validate(table(change)).iloc[0]
    return found["status"], found["reason"], found["reason_text"]


def test_a_good_row_is_predicted() -> None:
    found = validate(table())
    assert list(found.columns[: len(OUT_COLUMNS)]) == list(OUT_COLUMNS)
    row = found.iloc[0]
    assert (row["status"], row["reason"]) == ("predicted", "")
    assert row["predicted_tokens_per_s_per_gpu"] == pytest.approx(256 * 8192 / 64 / row["predicted_step_time_s"])
    assert row["error"] == pytest.approx(row["predicted_step_time_s"] / 3.0 - 1)
    assert 10 < row["predicted_mem_gib"] < 80


@pytest.mark.parametrize(
    ("change", "reason", "says"),
    [
        ({"hidden": None}, "missing_field", "hidden"),
        ({"dtype": ""}, "missing_field", "dtype"),
        ({"hardware": ""}, "missing_field", "hardware"),
        ({"step_time_s": -1.0}, "bad_value", "step_time_s is -1.0; a measurement must be above 0"),
        ({"step_time_s": "fast"}, "bad_value", "not a number"),
        ({"step_time_s": 3000.0}, "implausible_measurement", "units"),
        ({"step_time_s": 0.003}, "implausible_measurement", "peak"),
        ({"tp": 0}, "bad_value", "tp"),
        ({"layers": 31.5}, "bad_value", "whole number"),
        ({"hidden": "inf"}, "bad_value", "not a number"),
        ({"num_gpus": 128}, "impossible_product", "tp x pp x dp x cp = 64 but num_gpus = 128"),
        ({"tp": 3, "num_gpus": 96}, "impossible_split", "heads"),
        ({"gbs": 8}, "impossible_split", "gbs"),
        ({"layers": 1}, "impossible_split", "stages"),
        ({"moe_experts": 6, "ep": 4, "moe_ffn": 512, "moe_topk": 2}, "impossible_split", "moe_experts"),
        ({"moe_experts": 8, "ep": 4}, "missing_field", "moe_ffn"),
        ({"gated_mlp": "perhaps"}, "bad_value", "True or False"),
        ({"hardware": "Abacus"}, "unknown_hardware", "Abacus"),
        ({"hardware": "TPU-v5e"}, "hardware_not_calibrated", "TPU-v5e"),
        ({"dtype": "int3"}, "unknown_precision", "int3"),
        ({"recompute": "other:magic"}, "unknown_recompute", "magic"),
        ({"family": "hybrid_mamba"}, "not_a_transformer", "state-space"),
        ({"family": "dense_zerobubble"}, "schedule_not_modelled", "Zero-bubble"),
        ({"family": "dense_zero_offload"}, "offload_not_modelled", "offload"),
        ({"notes": "CPU activation/weight offloading of 20 layers (recipe)."}, "offload_not_modelled", "some layers"),
        ({"launch": "warp"}, "bad_value", "launch is 'warp'; it must be one of eager"),
        ({"overlap_data": "nearly"}, "bad_value", "overlap_data"),
        ({"gather_efficiency": 0}, "bad_value", "above 0"),
    ],
)
def test_bad_rows_say_why(change: dict[str, Any], reason: str, says: str) -> None:
    status, found, text = outcome(**change)
    assert (status, found) == ("unsupported", reason)
    assert says in text
    assert reason in REASONS


def test_a_bad_row_leaves_the_others_alone() -> None:
    both = validate(table({"hidden": "x"}, {}, {"tp": -1}, {"hardware": "Abacus"}))
    assert both["status"].tolist() == ["unsupported", "predicted", "unsupported", "unsupported"]
    alone = validate(table())
    assert both["predicted_step_time_s"][1] == alone["predicted_step_time_s"][0]
    assert both["predicted_step_time_s"].isna().tolist() == [True, False, True, True]


def test_predictions_need_no_measurement() -> None:
    with_time, without = validate(table()), validate(table(drop=("step_time_s",)))
    assert without["predicted_step_time_s"][0] == with_time["predicted_step_time_s"][0]
    assert np.isnan(without["measured_step_time_s"][0])


def test_tokens_per_second_stand_in_for_a_step_time() -> None:
    found = validate(table({"step_time_s": None, "tokens_per_s_per_gpu": 10000}))
    assert found["measured_step_time_s"][0] == pytest.approx(256 * 8192 / 64 / 10000)


def test_what_a_row_leaves_open_is_listed() -> None:
    found = validate(table(drop=("cp", "vpp", "recompute", "zero_stage", "seq_parallel"))).iloc[0]
    assert found["status"] == "predicted"
    for word in ("cp 1", "vpp 1", "recompute none", "zero_stage 1", "seq_parallel tp > 1"):
        assert word in found["assumptions"]


def test_data_parallelism_follows_from_the_processors() -> None:
    given_dp, derived = validate(table()), validate(table({"dp": None}))
    assert derived["predicted_step_time_s"][0] == given_dp["predicted_step_time_s"][0]
    assert outcome(dp=None, num_gpus=None)[1] == "missing_field"
    assert outcome(dp=None, num_gpus=63)[1] == "impossible_product"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"a,b\n1,2\n", "must have at least hardware"),
        (b"\xff\xfe\x00bad.", "not text in UTF-8"),
        (b'a,b\n1,2,3,4\n"open', "cannot be read as CSV"),
    ],
)
def test_files_that_are_no_table_of_runs(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_bytes(content)
    with pytest.raises(RunsFileError, match=says) as problem:
        read_runs(path)
    assert "\n" not in str(problem.value)


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    with pytest.raises(RunsFileError, match="does not exist"):
        read_runs(tmp_path / "none.csv")
    with pytest.raises(RunsFileError, match="is a folder"):
        read_runs(tmp_path)


def test_a_file_gives_what_the_table_gives(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    table({}, {"tp": 4, "dp": 8}).to_csv(path, index=False)
    pd.testing.assert_frame_equal(validate(path), validate(table({}, {"tp": 4, "dp": 8})))


def test_vtrain_tables_are_recognised_with_or_without_times(tmp_path: Path) -> None:
    text = (files("engine.validation") / "data" / "vtrain_multi_node.csv").read_text()
    path = tmp_path / "multi_node.csv"
    path.write_text(text)
    with_times = validate(path)
    assert (with_times["status"] == "predicted").all()
    assert with_times["measured_step_time_s"][0] == pytest.approx(21.8904)
    pd.read_csv(path).drop(columns="iteration time (ms)").to_csv(path, index=False)
    without = validate(path)
    assert without["measured_step_time_s"].isna().all()
    assert without["predicted_step_time_s"].tolist() == with_times["predicted_step_time_s"].tolist()
    assert (error_table(read_runs(path).table, without)["rows"] == 0).all()


def test_an_empty_table_gives_an_empty_table() -> None:
    assert len(validate(table().iloc[:0])) == 0


JUNK = st.sampled_from(
    ["", "nan", "-1", "0", "1e400", "1e8", "0.5", "three", "None", "True", "[1]", "-inf", "7", "1;2", "64", "999999999"]
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from([*GOOD, "moe_experts", "ep", "attn", "scaleout", "launch", "notes"]), JUNK, max_size=4
        ),
        min_size=1,
        max_size=4,
    )
)
def test_junk_never_raises(changes: list[dict[str, str]]) -> None:
    found = validate(table(*changes))
    assert len(found) == len(changes)
    assert set(found["status"]) <= {"predicted", "unsupported"}
    predicted = found["status"] == "predicted"
    assert (found.loc[predicted, "predicted_step_time_s"] > 0).all()
    assert np.isfinite(found.loc[predicted, "predicted_step_time_s"].to_numpy(float)).all()
    assert (found.loc[~predicted, "reason_text"] != "").all()


def test_every_row_of_the_package_has_an_outcome() -> None:
    found = outcomes()
    assert len(found) == 914 + 102 + 663 + 47
    assert found["id"].is_unique
    assert set(found["reason"]) <= set(REASONS)
    assert (found["status"] == "predicted").sum() >= 1475
