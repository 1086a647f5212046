"""The engine against Calculon's figures: which executions run, why the others do not, and 96 statistics each."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import engine
from engine.executions import reasons
from tests import reference

FIELDS = reference.golden_fields()
STATISTICS = reference.golden_statistics()
TOLERANCE = 1e-9


@pytest.fixture(scope="module")
def evaluated() -> tuple[pd.DataFrame, pd.DataFrame]:
    """(expected, found) frames with equal rows, all models and systems after each other."""
    expected, found = [], []
    for names, rows in reference.golden().groupby(["model", "system"], sort=True):
        model, system = map(str, names)
        expected.append(rows)
        found.append(engine.evaluate(model, system, rows[FIELDS]))
    return pd.concat(expected, ignore_index=True), pd.concat(found, ignore_index=True)


def test_sample_covers_every_kind_of_outcome(evaluated: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    expected, _ = evaluated
    assert len(expected) == 1500
    assert expected["status"].value_counts().to_dict() == {"ok": 1018, "infeasible": 146, "invalid": 336}
    assert set(expected["reason"]) == {"", *reference.REASON_OF_LINE.values()}


def test_rows_keep_their_fields_and_order(evaluated: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    expected, found = evaluated
    assert list(found.columns) == [*FIELDS, "status", "reason", "reason_text", *STATISTICS]
    for name in FIELDS:
        assert found[name].astype(object).tolist() == expected[name].astype(object).tolist()


@pytest.mark.parametrize("column", ["status", "reason"])
def test_outcome(evaluated: tuple[pd.DataFrame, pd.DataFrame], column: str) -> None:
    expected, found = evaluated
    wrong = found[column].astype(str).to_numpy() != expected[column].to_numpy()
    comparison = expected.loc[wrong, ["model", "system", *FIELDS, column, "error_text"]].assign(
        found=found.loc[wrong, column]
    )
    assert comparison.empty, comparison.head(5).T.to_string()


def test_every_refusal_has_a_sentence(evaluated: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    _, found = evaluated
    refused = found["status"] != "ok"
    assert (found.loc[~refused, "reason_text"].astype(str) == "").all()
    texts = found.loc[refused, "reason_text"].astype(str)
    assert texts.str.match(r"^[A-Za-z].{10,}[.]$").all(), texts[~texts.str.match(r"^[A-Za-z].{10,}[.]$")].head()
    assert not texts.str.contains(r"[{}]|nan|None", regex=True).any()


@pytest.mark.parametrize(
    "field", ["datatype", "attention_type", "activation_recompute", "tensor_par_comm_type", "tensor_par_overlap"]
)
def test_sentence_quotes_the_word_that_is_not_known(evaluated: tuple[pd.DataFrame, pd.DataFrame], field: str) -> None:
    expected, found = evaluated
    code = "unknown_recompute" if field == "activation_recompute" else f"unknown_{field}"
    rows = expected["reason"] == code
    assert rows.sum() >= 10
    for word, sentence in zip(expected.loc[rows, field], found.loc[rows, "reason_text"], strict=True):
        assert field in sentence
        assert word in sentence


def test_every_reason_expected_here_is_declared() -> None:
    for code in reference.REASON_OF_LINE.values():
        assert code in reasons.BY_CODE


@pytest.mark.parametrize("name", STATISTICS)
def test_statistic(evaluated: tuple[pd.DataFrame, pd.DataFrame], name: str) -> None:
    expected, found = evaluated
    runs = (expected["status"] == "ok").to_numpy()
    want = expected.loc[runs, name].to_numpy(float)
    got = found.loc[runs, name].to_numpy(float)
    assert np.array_equal(np.isnan(got), np.isnan(want))
    with np.errstate(invalid="ignore"):
        far = ~(np.abs(got - want) <= TOLERANCE * np.abs(want)) & ~np.isnan(want)
    worst = expected.loc[runs].loc[far, ["model", "system", *FIELDS]].assign(expected=want[far], found=got[far])
    assert worst.empty, f"{int(far.sum())} of {len(want)} rows differ; {worst.head(3).T.to_string()}"


def test_statistics_are_equal_to_the_last_bit(evaluated: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    expected, found = evaluated
    runs = (expected["status"] == "ok").to_numpy()
    want = expected.loc[runs, STATISTICS].to_numpy(float)
    got = found.loc[runs, STATISTICS].to_numpy(float)
    equal = (got == want) | (np.isnan(got) & np.isnan(want))
    # Calculon adds the optimizer's operations layer by layer to the others, the engine as one sum: the last bit differs
    summed_otherwise = [STATISTICS.index(name) for name in ("useful_flops", "compute_efficiency", "total_efficiency")]
    equal[:, summed_otherwise] |= np.isclose(got, want, rtol=4e-16, atol=0)[:, summed_otherwise]
    differing = dict(zip(STATISTICS, (~equal).sum(axis=0).tolist(), strict=True))
    assert equal.all(), f"{equal.mean():.4%} equal; { ({name: n for name, n in differing.items() if n}) }"


def test_what_does_not_run_has_no_times(evaluated: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    _, found = evaluated
    refused = found["status"] != "ok"
    assert found.loc[refused, ["total_time", "sample_rate", "total_efficiency"]].isna().all(axis=None)
