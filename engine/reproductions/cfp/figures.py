"""The performance test and the communication volume test that CFP's README prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pandas as pd

from engine.planners.intra_operator import evaluate_vectors, search
from engine.reproductions.cfp.candidates import run_time_candidates
from engine.reproductions.cfp.comparison import published_volumes
from engine.reproductions.cfp.operations import tflop_count
from engine.reproductions.cfp.published import MEASURED_ON, MEASURED_VECTORS, RUNS
from engine.reproductions.papers import Paper, PaperFigure, SettingsLink

__all__ = ["PAPER"]

RATES: Final[Mapping[str, float]] = {
    "devices": 4,
    # Published volume over seconds of collectives of the vector 0,0,0,0: 16.3084 GB in 0.789642 s.
    "bandwidth": 20.65e9,
    # Operations of gpt F, batch 16, two layers, over the seconds of computation of the vector 0,0,0,2.
    "matrix_rate": 83.8e12,
}
"""Rates of CFP's four A100, from its volume test [bytes/s, FLOP/s]."""
PRINTED_TFLOPS: Final = (203.33177455599028, 118.31206101529366, 157.54991020463305)
"""Throughput of the runs in `published.RUNS`, as printed [TFLOP/s]."""


def _vector_name(vector: tuple[int, ...]) -> str:
    return ",".join(map(str, vector))


def run_throughputs() -> pd.DataFrame:
    """Return the throughput of each published run [TFLOP/s]: our operations over its measured seconds."""
    return pd.DataFrame(
        [
            {
                "run": f"{each.system}, {each.model}, batch {each.batch}",
                "ours": tflop_count(each.model, batch=each.batch, layers=each.layers) / each.times[0],
                "published": printed,
            }
            for each, printed in zip(RUNS, PRINTED_TFLOPS, strict=True)
        ]
    )


def run_seconds() -> pd.DataFrame:
    """Return predicted and measured seconds of a step with the published plans on four devices."""
    rows = []
    for each in RUNS:
        if each.vectors and each.devices == RATES["devices"]:
            step = evaluate_vectors(each.model, RATES, each.vectors, batch=each.batch, layers=each.layers)
            rows.append({"run": f"{each.model}, batch {each.batch}", "ours": step.seconds, "published": each.seconds})
    return pd.DataFrame(rows)


def candidate_seconds() -> pd.DataFrame:
    """Return predicted seconds of the plans that CFP runs for gpt F, with its measured step for equal plans."""
    (run,) = (each for each in RUNS if each.vectors and each.model == "gpt F")
    found = run_time_candidates(search(run.model, RATES, batch=run.batch, layers=run.layers))
    return pd.DataFrame(
        {
            "candidate": found["candidate"],
            "ours": found["seconds"],
            "published": [run.seconds if vectors == run.vectors else float("nan") for vectors in found["vectors"]],
        }
    )


def strategy_seconds() -> pd.DataFrame:
    """Return predicted and measured seconds of strategy vectors, the same in both layers of gpt F."""
    model, batch, layers = str(MEASURED_ON["model"]), int(MEASURED_ON["batch"]), int(MEASURED_ON["layers"])
    rows = []
    for each in MEASURED_VECTORS:
        if each.seconds is not None:
            step = evaluate_vectors(model, RATES, (each.vector,) * layers, batch=batch, layers=layers)
            rows.append({"vector": _vector_name(each.vector), "ours": step.seconds, "published": each.seconds})
    return pd.DataFrame(rows)


def strategy_volumes() -> pd.DataFrame:
    """Return counted and published communication volumes of strategy vectors [GB]."""
    found = published_volumes()
    return pd.DataFrame(
        {
            "vector": [_vector_name(each) for each in found["vector"]],
            "ours": found["counted_volume"] / 1e9,
            "published": found["published_volume"] / 1e9,
        }
    )


def _settings(model: str, batch: int, layers: int) -> SettingsLink:
    return SettingsLink(
        "intra_operator",
        {
            "intra_operator_suite": model,
            "intra_operator_batch": str(batch),
            "intra_operator_layers": str(layers),
            "intra_operator_devices": "4",
        },
    )


_SOURCE: Final = "README of github.com/huwf1220/ptp_parallel @6474c684 (Apache-2.0)"

PAPER: Final = Paper(
    name="cfp",
    title="CFP: Low-overhead Profiling-based Intra-operator Parallelism Generation by Preserving Communication-Free "
    "Structures",
    authors="Hu et al.",
    year=2025,
    venue="arXiv",
    url="https://arxiv.org/abs/2504.00598",
    figures=(
        PaperFigure(
            name="performance-test",
            title="Performance test",
            summary="Time of a step with the plans that CFP chose, on four A100.",
            unit="s",
            source=_SOURCE,
            compute=run_seconds,
            horizontal="run",
            link=_settings("moe E", 64, 4),
            note="Rates come from the volume test; nothing is fitted to these runs.",
        ),
        PaperFigure(
            name="throughput",
            title="Performance test, TFLOP/s",
            summary="Throughput of CFP and Alpa: counted operations over the measured time of a step.",
            unit="TFLOP/s",
            source=_SOURCE,
            compute=run_throughputs,
            horizontal="run",
            link=_settings("gpt F", 24, 2),
        ),
        PaperFigure(
            name="candidates",
            title="Run-time candidates",
            summary="Time of a step with each plan that CFP runs before it decides, for gpt F.",
            unit="s",
            source=f"{_SOURCE}; only the chosen plan's time is printed",
            compute=candidate_seconds,
            horizontal="candidate",
            link=_settings("gpt F", 24, 2),
        ),
        PaperFigure(
            name="strategies",
            title="Volume test, seconds",
            summary="Time of a step of gpt F with three strategy vectors, on four A100.",
            unit="s",
            source=_SOURCE,
            compute=strategy_seconds,
            horizontal="vector",
            link=_settings("gpt F", 16, 2),
            note="The all-to-all of vector 0,0,0,1 was far slower per byte than other collectives; equal here.",
        ),
        PaperFigure(
            name="volume-test",
            title="Communication volume test",
            summary="Bytes that collectives move in a step of gpt F, by strategy vector.",
            unit="GB",
            source=f"{_SOURCE}; the last vector is inferred from its volume",
            compute=strategy_volumes,
            horizontal="vector",
            link=_settings("gpt F", 16, 2),
            note="CFP's branch of Alpa reshards more between elementwise operations, which is not modelled.",
        ),
    ),
)
