"""Every figure of every paper, from Python and the command: values, published points, deviations, errors."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from engine.reproductions import PAPERS, Paper, PaperFigure

Answer = tuple[int, str, str]
FIGURES = [
    pytest.param(paper, figure, id=f"{paper.name}.{figure.name}")
    for paper in PAPERS.values()
    for figure in paper.figures
]


@pytest.mark.parametrize(("paper", "figure"), FIGURES)
def test_a_figure_has_our_values_and_states_its_deviation(paper: Paper, figure: PaperFigure) -> None:
    table = figure.compare_values()
    assert list(table.columns[-3:]) == ["ours", "published", "deviation_percent"]
    labels = list(table.columns[:-3])
    assert figure.horizontal in labels
    assert not table.duplicated(labels).any()
    assert np.isfinite(table["ours"]).all()
    known = table[table["published"].notna() & (table["published"] != 0)]
    assert len(known) or figure.source.startswith("none; ")
    assert known["ours"].to_numpy() == pytest.approx(
        (known["published"] * (1 + known["deviation_percent"] / 100)).to_numpy(), rel=1e-9
    )
    assert figure.source
    assert figure.title


def test_names_exist_once_and_suit_files_and_links() -> None:
    for paper in PAPERS.values():
        names = [each.name for each in paper.figures]
        assert len(set(names)) == len(names) > 0
        assert all(part.replace("-", "").isalnum() for part in (paper.name, *names))


def test_the_command_lists_papers_and_figures_and_writes_a_figure(
    shardscape: Callable[..., Answer], tmp_path: Path
) -> None:
    code, out, _ = shardscape("papers", "--json")
    assert (code, [each["name"] for each in json.loads(out)]) == (0, list(PAPERS))
    code, out, told = shardscape("papers", "korthikanti")
    assert code == 0
    assert "Table 5" in out
    assert "MLSys 2023" in told
    code, out, told = shardscape("papers", "korthikanti", "table-5", "--csv")
    assert (code, "Published values" in told) == (0, False)
    expected = next(each for each in PAPERS["korthikanti"].figures if each.name == "table-5").compare_values()
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(out)), expected, check_dtype=False)
    path = tmp_path / "table.csv"
    assert shardscape("papers", "korthikanti", "table-5", "--out", path)[0] == 0
    pd.testing.assert_frame_equal(pd.read_csv(path), expected, check_dtype=False)
    code, out, _ = shardscape("papers", "korthikanti", "table-5", "--json")
    assert len(json.loads(out)["rows"]) == 8


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("kortikanti",), "did you mean 'korthikanti'"),
        (("korthikanti", "tabel-5"), "did you mean 'table-5'"),
        (("--out", "table.csv"), "name a paper and a figure"),
        (("korthikanti", "table-5", "--out", "table.xlsx"), "its name must end in"),
    ],
)
def test_a_wrong_name_is_answered_in_a_sentence(
    shardscape: Callable[..., Answer], arguments: tuple[str, ...], sentence: str
) -> None:
    code, out, told = shardscape("papers", *arguments)
    assert (code, out) == (2, "")
    assert sentence in told
    assert "Traceback" not in told
