"""Table 2 and figures 7 to 9 of Rubick."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

import pandas as pd

from engine.planners.elastic.over_time import timeline
from engine.planners.elastic.splits import split
from engine.reproductions.papers import Paper, PaperFigure, SettingsLink
from engine.reproductions.rubick.losses import losses, parity
from engine.reproductions.rubick.table_2 import NOTES, table_2, table_2_models

__all__ = ["PAPER"]

FOLDER: Final = Path(__file__).parent / "data"
_SOURCE: Final = "AlibabaPAI/reconfigurable-dl-scheduler @80e8524 (Apache-2.0)"
_ERRORS: Final = {"avg_pct": "mean error", "max_pct": "largest error"}
_WAYS: Final = {"equal": "equal shares", "greedy": "Rubick"}
_LOSSES: Final = {"mean": "mean", "max": "largest", "last": "last"}


@cache
def _load_published() -> pd.Series[float]:
    """Return published values by place, subject, variant and quantity."""
    table = pd.read_csv(FOLDER / "published.csv", keep_default_na=False)
    return table.set_index(["place", "subject", "variant", "quantity"])["published"]


def _with_published(rows: list[dict[str, object]], place: str, keys: list[tuple[str, str, str]]) -> pd.DataFrame:
    published = _load_published()
    return pd.DataFrame(rows).assign(published=[published.get((place, *key), float("nan")) for key in keys])


def error_table() -> pd.DataFrame:
    """Return mean and largest errors of predictions by model and plan [%]: table 2."""
    rows, keys = list[dict[str, object]](), list[tuple[str, str, str]]()
    for row in table_2().to_dict("records"):
        for column, quantity in _ERRORS.items():
            title = table_2_models()[row["model"]].title
            rows.append({"model_and_plan": f"{title}, {row['plan']}", "quantity": quantity, "ours": row[column]})
            keys.append((row["model"], row["plan"], quantity))
    return _with_published(rows, "table 2", keys)


def strategy_times() -> pd.DataFrame:
    """Return the iteration of each strategy in each phase where its plan runs [s]: figure 7."""
    table = timeline().table.dropna(subset=["iteration_s"])
    rows: list[dict[str, object]] = [
        {
            "phase": f"{row['placement']}, {row['cpu_threads']} threads",
            "strategy": "Rubick" if row["strategy"] == "Morphling" else row["strategy"],
            "ours": row["iteration_s"],
        }
        for row in table.to_dict("records")
    ]
    keys = [
        (f"{row['placement']}/{row['cpu_threads']}thr", str(row["strategy"]), "iteration")
        for row in table.to_dict("records")
    ]
    return _with_published(rows, "figure 7", keys)


def job_speeds() -> pd.DataFrame:
    """Return the normalised throughput of two jobs on four GPUs, by scheduler: figure 8."""
    table = split(["roberta", "t5_3B"], 4).table
    table = table[table["way"].isin(_WAYS)]
    rows: list[dict[str, object]] = [
        {"scheduler": _WAYS[row["way"]], "job": row["job"], "ours": row["normalised"]}
        for row in table.to_dict("records")
    ]
    keys = [(row["job"], row["way"], "normalised throughput") for row in table.to_dict("records")]
    return _with_published(rows, "figure 8", keys)


def loss_parity() -> pd.DataFrame:
    """Return differences of each run's loss from that of plan 181: figure 9."""
    table = parity(losses()).set_index("run").drop(index="181")
    rows: list[dict[str, object]] = []
    keys = []
    for run, values in table.iterrows():
        for column, quantity in _LOSSES.items():
            name = "181, another seed" if run == "181_seed" else str(run)
            rows.append({"run": name, "quantity": f"{quantity} difference", "ours": float(values[column])})
            keys.append((str(run), "", quantity))
    return _with_published(rows, "figure 9", keys)


PAPER: Final = Paper(
    name="rubick",
    title="Rubick: Exploiting Job Reconfigurability for Deep Learning Cluster Scheduling",
    authors="Zhang et al.",
    year=2025,
    venue="MLSys",
    url="https://github.com/AlibabaPAI/reconfigurable-dl-scheduler",
    figures=(
        PaperFigure(
            name="table-2",
            title="Table 2",
            summary="Mean and largest error of predicted iterations, by model and plan.",
            unit="%",
            source=f"{_SOURCE}, text of the notebooks",
            compute=error_table,
            horizontal="model_and_plan",
            link=SettingsLink("elastic", {"elastic_show": "fit"}),
            note=" ".join(NOTES),
        ),
        PaperFigure(
            name="figure-7",
            title="Figure 7",
            summary="Iteration of LLaMA-2-7B through five phases of fewer resources, by strategy.",
            unit="s",
            source=f"{_SOURCE}, Figure7.md",
            compute=strategy_times,
            horizontal="phase",
            link=SettingsLink("elastic", {"elastic_show": "job", "elastic_card": "llama7_bsz16"}),
            note="The strategy chooses a plan for each phase; times of plans are measured.",
        ),
        PaperFigure(
            name="figure-8",
            title="Figure 8",
            summary="Two jobs share four GPUs: throughput relative to four GPUs alone, by scheduler.",
            unit="",
            source=f"{_SOURCE}, Figure8.md, two decimals",
            compute=job_speeds,
            horizontal="scheduler",
            link=SettingsLink("elastic", {"elastic_show": "several"}),
        ),
        PaperFigure(
            name="figure-9",
            title="Figure 9",
            summary="Difference of the training loss under other plans, and with another seed, from plan 181.",
            unit="",
            source=f"{_SOURCE}, loss measurements, means of 25 minibatches",
            compute=loss_parity,
            horizontal="run",
            link=SettingsLink("elastic", {"elastic_show": "losses"}),
        ),
    ),
)
