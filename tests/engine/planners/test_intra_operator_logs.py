"""Published logs read, set beside predictions and fitted; plans printed in the same forms and read again."""

import io
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from engine.planners.contract import PlanError
from engine.planners.intra_operator import fit_rates, measured_points, measured_points_of, overlay, search
from engine.reproductions.cfp.text_forms import TEXT_FORMS, log_text

REFERENCE = Path(__file__).parents[2] / "reference" / "cfp"
A100: dict[str, Any] = {"devices": 4, "bandwidth": 20.65e9, "matrix_rate": 83.8e12}


def test_a_published_search_is_read() -> None:
    found = measured_points(REFERENCE / "gpt_f_24.log")
    cfp, alpa = found.to_dict("records")
    assert (cfp["system"], cfp["model"], cfp["batch"], cfp["layers"], cfp["devices"]) == ("CFP", "gpt F", 24, 2, 4)
    assert (cfp["vector"], cfp["times"]) == ((1,) * 8, (0.29200369, 0.29214811, 0.29259733))
    assert cfp["memory"] == 11.5 * 2**30
    assert cfp["tflop"] / cfp["times"][0] == pytest.approx(203.33177455599028, rel=1e-7)
    assert (alpa["system"], alpa["devices"], alpa["vector"]) == ("Alpa", 8, None)
    assert alpa["tflop"] / alpa["times"][0] == pytest.approx(157.54991020463305, rel=1e-7)


def test_a_published_profile_is_read() -> None:
    found = measured_points(REFERENCE / "moe_profile_search.log")
    assert list(found["kind"]) == ["segment"] * 5 + ["searched"]
    assert list(found["segment"][:5]) == [0, 0, 0, 0, 1]
    assert found["vector"][3] == (0, 0, 0, 3)
    assert found["seconds"][3] == 1.0750094254811604
    beside = overlay(found, A100, model="moe E", batch=64, layers=4)
    searched = beside.iloc[5]
    # Rates are those of gpt F; nothing is fitted to the mixture of experts.
    assert searched["predicted_seconds"] == pytest.approx(0.4658, abs=5e-4)
    assert abs(searched["error"]) < 0.05


def test_rates_of_the_specification_are_fitted_to_its_points() -> None:
    found = measured_points(REFERENCE / "gpt_f_16_enumeration.log")
    assert list(found["volume"]) == [1.63084e10, 1.23822e10, 5.23488e9, 1.60068e10]
    assert found["vector"][3] is None  # the published excerpt ends before it
    first, third = found.iloc[[0]], found.iloc[[2]]
    ring = fit_rates(first, published_volumes=True)
    assert ring.bandwidth == pytest.approx(20.65e9, rel=5e-4)
    compute = fit_rates(third, published_volumes=True)
    assert compute.matrix_rate == pytest.approx(83.8e12, rel=5e-4)
    mesh = {**A100, "bandwidth": ring.bandwidth, "matrix_rate": compute.matrix_rate}
    beside = overlay(measured_points(REFERENCE / "gpt_f_24.log"), mesh)
    assert beside["predicted_seconds"][0] == pytest.approx(0.2941, abs=5e-5)
    assert round(beside["error"][0], 3) == 0.006  # + 0.6 % of the specification
    assert pd.isna(beside["predicted_seconds"][1])
    every = fit_rates(found)  # an all-to-all of its own, as seconds per byte ask for
    assert every.all_to_all_bandwidth is not None
    assert every.bandwidth is not None
    assert every.all_to_all_bandwidth < every.bandwidth / 3.5


@pytest.mark.parametrize("whole", [False, True])
def test_rates_are_found_again_in_what_they_predicted(whole: bool) -> None:
    mesh = {**A100, "all_to_all_bandwidth": 6e9}
    points = measured_points_of(log_text(search("gpt F", mesh, batch=16, layers=2), "enumeration"))
    assert (len(points), set(points["devices"])) == (81, {4})
    if whole:
        points[["compute_seconds", "communication_seconds"]] = float("nan")
    found = fit_rates(points)
    rates = (found.matrix_rate, found.bandwidth, found.all_to_all_bandwidth)
    assert rates == pytest.approx((83.8e12, 20.65e9, 6e9), rel=1e-5)  # printed to six digits
    assert found.mesh({**A100, "memory": 1e10}).memory == 1e10


def test_printed_forms_are_read_as_what_was_printed() -> None:
    plan = search("moe E", A100, batch=64, layers=4)
    assert plan.chosen is not None
    profile = measured_points_of(log_text(plan, "profile"))
    assert profile.groupby("segment").size().to_dict() == {0: 108, 1: 81}
    searched = measured_points_of(log_text(plan)).iloc[0]
    assert searched["vector"] == sum(plan.chosen.vectors, ())
    assert searched["seconds"] == pytest.approx(plan.chosen.seconds, abs=1e-8)
    analysis = log_text(plan, "analysis").splitlines()
    published = (REFERENCE / "moe_profile_search.log").read_text().splitlines()[:4]
    assert analysis[-4:] == published
    assert analysis[analysis.index("    out.wgrad") + 1] == "    Plan: 0, 2, 1, "  # as published for dot.3
    assert set(TEXT_FORMS) == {"analysis", "profile", "search", "enumeration"}
    published_profile = (REFERENCE / "moe_profile_search.log").read_text()
    for line in ("NUM SEGMENT is 4", "segment PB search space: [3, 3, 3, 4]", "RUN AutoSharding FOR SEGMENT 1"):
        assert line in published_profile
        assert line in log_text(plan, "profile")


def test_tables_are_read_as_logs_are() -> None:
    table = "vector;seconds;devices;volume\n0,2,0,2;0.5;4;1e9\n[1, 1, 1, 1];inf;;\n"
    found = measured_points_of(table)
    assert list(found["vector"]) == [(0, 2, 0, 2), (1, 1, 1, 1)]
    assert list(found["seconds"]) == [0.5, float("inf")]
    again = measured_points_of('[{"vector": [0, 2, 0, 2], "seconds": 0.5, "layers": 2}]')
    assert (again["vector"][0], again["layers"][0]) == ((0, 2, 0, 2), 2)
    beside = overlay(found, A100, model="gpt F", batch=16, layers=2)
    assert beside["solution"][0] == "Megatron tensor parallel"


SEGMENT = "SegmentIdx: 0 ParallelBlock Strategy: [0, 0, 0, 0] avgcost: 0.5 mem_cost(GB): 1.0\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SEGMENT.replace("0.5", "fast"), "line 1, avgcost: 'fast' is no number"),
        (SEGMENT.replace("0, 0, 0, 0", "0, x"), "line 1, ParallelBlock Strategy: 'x' is no whole number"),
        ("segment PB search space: [3, 3, 3, 3]\n" + SEGMENT.replace("0, 0, 0, 0", "0, 0, 0, 3"), "line 2: strategy 3"),
        ("segment PB search space: [3, 3]\n" + SEGMENT, "line 2: the vector has 4 strategies, its search space 2"),
        ("Comm Volume: 1e9\nComm Overhead: -1\n", "line 2, Comm Overhead: '-1' is no number of 0 or more"),
        ("sval [0, 0] 0.5\n", "line 1: sval is followed by a vector"),
        ("searched training cost: 0.5\n", "line 1: a searched training cost is"),
        ('vector,seconds\n"0,2",soon\n', "row 1, seconds: 'soon' is no number"),
        ('vector,seconds\n"0,a",1\n', "row 1, vector: 'a' is no whole number"),
        ('[{"vector": [0], "seconds": 1}, {"vector": [0]}]', "row 2 has no seconds"),
        ('[{"vector": [0], "seconds": 1, "kind": "guess"}]', "row 1: kind 'guess'"),
        ("[1, 2", "is no JSON"),
        ("hello", "has no measured points"),
    ],
)
def test_a_wrong_line_or_row_is_told_with_its_field(text: str, words: str) -> None:
    with pytest.raises(PlanError) as told:
        measured_points_of(text, "runs.log")
    assert words in str(told.value)
    assert str(told.value).startswith("runs.log")


@pytest.mark.parametrize(
    ("vector", "words"),
    [("0,2,0", "Line 1: the vector has 3 strategies; the 2 layers have 8 blocks."), ("0,2,0,5", "Line 1: The vector")],
)
def test_a_vector_of_another_model_is_told(vector: str, words: str) -> None:
    points = measured_points_of(f'vector,seconds\n"{vector}",0.5\n')
    with pytest.raises(PlanError) as told:
        overlay(points, A100, model="gpt F", batch=16, layers=2)
    assert str(told.value).startswith(words)
    with pytest.raises(PlanError, match="Line 1 does not say which model"):
        overlay(points, A100)
    with pytest.raises(PlanError, match="on how many devices"):
        fit_rates(points, model="gpt F", batch=16, layers=2)


def test_the_command_prints_forms_and_sets_measured_points_beside(shardscape: Any, tmp_path: Path) -> None:
    ask = ("plan", "operators", "gpt F", "--devices", 4, "--batch", 24, "--layers", 2)
    code, out, _ = shardscape(*ask, "--form", "search")
    assert (code, out.splitlines()[1]) == (0, f"searched ParallelBlock Strategies solution: {[1] * 8}")
    sixteen = ("plan", "operators", "gpt F", "--devices", 4, "--batch", 16, "--layers", 2, "--csv")
    code, out, told = shardscape(*sixteen, "--measured", REFERENCE / "gpt_f_16_enumeration.log", "--fit")
    assert (code, "Fitted bandwidth [GB/s]: 13.572" in told) == (0, True)
    assert len(pd.read_csv(io.StringIO(out))) == 4
    code, out, _ = shardscape(*ask, "--segments", "--csv")
    assert list(pd.read_csv(io.StringIO(out))["template"]) == [0, 0]
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("vector,seconds\n0,soon\n")
    code, _, told = shardscape(*ask, "--measured", wrong)
    assert (code, "row 1, seconds: 'soon' is no number of 0 or more." in told) == (2, True)
    code, _, told = shardscape(*ask, "--measured", tmp_path / "none.log")
    assert (code, "does not exist" in told) == (2, True)
    code, _, told = shardscape(*ask, "--form", "haiku")
    assert (code, "no text form 'haiku'" in told) == (2, True)
