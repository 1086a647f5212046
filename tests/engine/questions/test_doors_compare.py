"""Comparisons asked through Python, the command, JSON and the page: the same figures to the last digit."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from jsonschema import Draft202012Validator

import engine
from dashboard.files import comparison_tables
from dashboard.files.comparison_tables import sides_of
from dashboard.queries.economics import metrics
from dashboard.words.numbers import format_value, percent, relative
from engine import ExplorationCancelled, whatif
from engine.questions import VERBS, Bounds, Context, QuestionError, answer
from engine.questions.documents.explorations import FiguresQuestion
from tests.dashboard.page_runs import exploration, explored_by_server, html, run

Run = Callable[..., tuple[int, str, str]]


def test_every_door_has_the_same_best_executions(shardscape: Run, tmp_path: Path) -> None:
    first = exploration().scenario
    second = whatif.changed(first, {"hbm_bandwidth": 6144, "hbm_capacity": 40})
    scenarios = (first, second)
    documents = [each.to_document() for each in scenarios]
    question = {"scenarios": documents, "recommend": True, "statistics": ["all"], "figures_of": "fastest"}
    Draft202012Validator(VERBS["compare"].question_schema()).validate(question)
    found = answer("compare", question)
    Draft202012Validator(VERBS["compare"].answer_schema()).validate(json.loads(json.dumps(found)))
    rates = [float(engine.best_of(each).top["sample_rate"].iloc[0]) for each in scenarios]
    assert [each["best"]["sample_rate"] for each in found["scenarios"]] == rates
    assert [each["gain"] for each in found["scenarios"]] == [0.0, rates[1] / rates[0] - 1]
    fields = {each["field"]: each["values"] for each in found["differences"]}
    assert fields["system.mem1.capacity_gib"] == [first.system.mem1.capacity_gib, 40.0]
    assert fields["system.mem1.bandwidth_gb_per_s"] == [first.system.mem1.bandwidth_gb_per_s, 6144.0]
    (advice,) = (answer("recommend", {"scenario": documents[1], "statistics": ["all"]}),)
    assert found["scenarios"][1]["recommended"] == advice["recommended"]

    paths = [tmp_path / f"{each}.json" for each in "ab"]
    for path, document in zip(paths, documents, strict=True):
        path.write_text(json.dumps(document), encoding="utf-8")
    code, out, _ = shardscape("compare", *paths, "--recommend", "--figures-of", "fastest", "--json")
    assert code == 0
    plain = answer("compare", {**question, "statistics": None})
    assert {**json.loads(out), "seconds": 0} == {**plain, "seconds": 0}
    assert "system.mem1.capacity_gib" in shardscape("compare", *paths)[1]

    link = {"compare_b": "~hbm_bandwidth:6144;hbm_capacity:40", "figures": "fastest"}
    text = html(run("compare", exploration(), link))
    for each, rate in zip(found["scenarios"], rates, strict=True):
        assert f"{each['letter']} · throughput {format_value('sample_rate', rate)}" in text
        assert f"{each['letter']} · MFU, full {percent(each['figures']['mfu'])}" in text
    assert f"{relative(rates[1], rates[0])} against A" in text
    packed = comparison_tables.archive_tables(
        sides_of("AB", [explored_by_server(each) for each in scenarios], FiguresQuestion(figures_of="fastest")),
        metrics(first)["mfu"],
    )
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        table = pd.read_csv(archive.open("best.csv"))
    (rate_column,) = [name for name in table if name.startswith("sample_rate")]
    (mfu_column,) = [name for name in table if name == "mfu [fraction]"]
    assert table[rate_column].tolist() == rates
    assert len(engine.best_of(first).tied) > 1  # of equal ones every door has the simplest
    fields = [name for name in found["scenarios"][0]["best"] if name in table and name != rate_column]
    assert len(fields) >= 23
    for name in fields:
        assert table[name].tolist() == [each["best"][name] for each in found["scenarios"]], name
    assert table[mfu_column].tolist() == [each["figures"]["mfu"] for each in found["scenarios"]]


def test_bounds_hold_and_refusals_are_sentences(shardscape: Run, tmp_path: Path) -> None:
    document = exploration().scenario.to_document()
    both = {"scenarios": [document, document]}
    assert answer("compare", both)["differences"] == []
    with pytest.raises(QuestionError, match="up to 10 are searched"):
        answer("compare", both, Context(Bounds(largest_space=10)))
    with pytest.raises(ExplorationCancelled):
        answer("compare", both, Context(stops=lambda: True))
    shares: list[float] = []
    answer("compare", both, Context(tell=lambda share, doing: shares.append(share)))
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    for wrong in ([document], [document] * 5, [document, {}], [document, "a"]):
        with pytest.raises(ValueError, match="scenarios") as problem:
            answer("compare", {"scenarios": wrong})
        assert "\n" not in str(problem.value)
    path = tmp_path / "a.json"
    path.write_text("[]", encoding="utf-8")
    for arguments in ([path, path], [tmp_path / "none.json", path]):
        code, out, err = shardscape("compare", *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
