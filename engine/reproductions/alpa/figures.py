"""The model suites of Alpa, and the objectives that the tests of its solver expect."""

from __future__ import annotations

from typing import Final

import pandas as pd

from engine.reproductions.alpa.solver import AlpaMesh, linear_chain
from engine.reproductions.alpa.suites import BILLIONS, suite_parameters
from engine.reproductions.papers import Paper, PaperFigure, SettingsLink

__all__ = ["CHAINS", "PAPER", "solver_objectives"]

FLOAT_BYTES: Final = 4

CHAINS: Final = (
    *(("model parallel", *each) for each in ((128, 1024, 2, (4, 1)), (128, 1024, 12, (4, 1)), (32, 256, 6, (1, 4)))),
    *(("data parallel", *each) for each in ((1024, 128, 2, (4, 1)), (1024, 128, 12, (1, 4)), (256, 32, 6, (4, 1)))),
    *(("both", *each) for each in ((1024, 128, 2, (4, 8)), (1024, 128, 4, (8, 4)), (1024, 128, 4, (3, 4)))),
)
"""Solution that a test expects, batch, hidden size, layers, mesh."""


def suite_sizes() -> pd.DataFrame:
    """Return the parameters of each model of the suites [billions], and the number that it is named after."""
    return pd.DataFrame(
        [
            {
                "model": f"{family} {letter}",
                "ours": suite_parameters(f"{family} {letter}") / 1e9,
                "published": billions,
            }
            for family, names in BILLIONS.items()
            for letter, billions in zip("ABCDEFGHI", names, strict=True)
        ]
    )


def solver_objectives() -> pd.DataFrame:
    """Return the least cost of chains of linear layers by dynamic programming, and the cost that a test expects."""
    rows = []
    for solution, batch, hidden, layers, shape in CHAINS:
        mesh = AlpaMesh(shape, beta=(1.0, 0.01 if solution == "both" else 1.0))
        found = linear_chain(mesh, batch=batch, widths=[hidden] * (layers + 1))
        rows.append(
            {
                "chain": f"{layers} x {hidden}, batch {batch}, mesh {shape[0]} x {shape[1]}",
                "solution": solution,
                "ours": found.cost,
                "published": _expected_cost(mesh, solution, batch, hidden, layers),
            }
        )
    return pd.DataFrame(rows)


def _expected_cost(mesh: AlpaMesh, solution: str, batch: int, hidden: int, layers: int) -> float:
    """Return the objective that Alpa's tests expect: all-reduces of activations, of weights, or of both."""
    first, second = mesh.shape
    if solution == "both":
        weights = layers * mesh.all_reduce_cost(hidden**2 * FLOAT_BYTES / second, 0)
        return weights + (layers - 1) * mesh.all_reduce_cost(batch * hidden * FLOAT_BYTES / first, 1)
    axis = 0 if first > second else 1
    if solution == "model parallel":
        return (layers - 1) * mesh.all_reduce_cost(batch * hidden * FLOAT_BYTES, axis)
    return layers * mesh.all_reduce_cost(hidden**2 * FLOAT_BYTES, axis)


PAPER: Final = Paper(
    name="alpa",
    title="Alpa: Automating Inter- and Intra-Operator Parallelism for Distributed Deep Learning",
    authors="Zheng et al.",
    year=2022,
    venue="OSDI",
    url="https://arxiv.org/abs/2201.12023",
    figures=(
        PaperFigure(
            name="suites",
            title="Model suites",
            summary="Parameters of the GPT and mixture-of-experts models, against the sizes that they are named after.",
            unit="billions",
            source="alpa b8078a9f, suite_manual_gpt.py and suite_manual_moe.py (Apache-2.0), names rounded",
            compute=suite_sizes,
            horizontal="model",
            link=SettingsLink("intra_operator", {"intra_operator_suite": "moe E"}),
        ),
        PaperFigure(
            name="solver-tests",
            title="Solver tests",
            summary="Least cost of chains of linear layers, against what the tests of Alpa's solver expect.",
            unit="",
            source="alpa b8078a9f, test_solver_mlp.py and test_mlp.py (Apache-2.0); expectations by Alpa's formulas",
            compute=solver_objectives,
            horizontal="chain",
            link=SettingsLink("intra_operator", {"intra_operator_suite": "gpt A"}),
            note="Without biases and penalties the sums are exact; Alpa's tests allow 0.1 %.",
        ),
    ),
)
