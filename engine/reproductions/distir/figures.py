"""Figures 3 and 4 of DistIR, the measured steps of its notebook, and GPT-2 inference."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pandas as pd

from engine.reproductions.distir.gpt2 import GPT_SIZES, NOT_COUNTED, gpt2_grid
from engine.reproductions.distir.simulator import envelopes, grid, measured_steps, over_devices, overlay, with_speedup
from engine.reproductions.papers import Paper, PaperFigure, SettingsLink

__all__ = ["NOTEBOOK", "PAPER", "PUBLISHED_GRID"]

FOLDER: Final = Path(__file__).parent / "data"
PUBLISHED_GRID: Final = FOLDER / "published_grid.csv"
NOTEBOOK: Final = {
    "width": 4096,
    "layers": 64,
    "batch": 4096,
    "devices": (2, 4, 8, 16, 32),
    "batches": (512, 1024, 2048, 4096),
    "microbatches": (4, 8, 16, 32),
}
"""Settings of the notebook's figures."""
BANDWIDTH_GBPS: Final = 200.0
"""Bandwidth between devices in figures 3 and 4, in R1's units [Gbps]."""
ONE_DEVICE: Final = 3725.9179555393866
"""Throughput of the published grid on one device, to which its speedups refer [samples/s]."""
SERIES: Final = {"data": "data parallel, batch", "pipeline": "pipeline, microbatches"}
KINDS: Final = {"D": "data", "H": "horizontal", "P": "pipeline", "D=H": "data = horizontal"}
MIXES: Final = {"data": (1, 0, 0), "horizontal": (0, 1, 0), "pipeline": (0, 0, 1)}
"""Kind of parallelism of GPT-2 inference -> share of the devices' exponent in D, H, P."""


def scaling_speedups() -> pd.DataFrame:
    """Return speedups of data and pipeline parallelism alone, by revision R1: figure 3."""
    published = pd.read_csv(FOLDER / "figure_3.csv").set_index(["kind", "series", "devices"])["published"]
    sizes = {name: NOTEBOOK[name] for name in ("width", "layers", "batch", "devices", "batches", "microbatches")}
    table = over_devices(revision="R1", bandwidth_gbps=BANDWIDTH_GBPS, **sizes)  # type: ignore[arg-type]
    return pd.DataFrame(
        [
            {
                "devices": row["devices"],
                "series": f"{SERIES[row['kind']]} {row['series']:,}",
                "ours": row["speedup"],
                "published": published.loc[(row["kind"], row["series"], row["devices"])],
            }
            for row in table.to_dict("records")
        ]
    )


def strategy_speedups() -> pd.DataFrame:
    """Return the best speedup of each strategy, and that of the published grid: figure 4."""
    rows = pd.read_csv(PUBLISHED_GRID).set_axis(["D", "H", "P", "m", "throughput"], axis=1)
    known = envelopes(with_speedup(rows, ONE_DEVICE)).set_index(["strategy", "devices"])["speedup"]
    degrees = rows.drop(columns="throughput")
    table = grid(degrees, revision="EuroMLSys21", width=8192, layers=64, batch=8192, bandwidth_gbps=BANDWIDTH_GBPS)
    return pd.DataFrame(
        [
            {
                "devices": row["devices"],
                "strategy": KINDS[row["strategy"]],
                "ours": row["speedup"],
                "published": known.loc[(row["strategy"], row["devices"])],
            }
            for row in envelopes(with_speedup(table, ONE_DEVICE)).to_dict("records")
        ]
    )


def step_times() -> pd.DataFrame:
    """Return simulated steps of data parallelism against the 81 measured ones of the notebook [ms]."""
    table = overlay(measured_steps()).sort_values(["D", "seconds"], kind="stable")
    return pd.DataFrame(
        {
            "measured_ms": 1e3 * table["seconds"],
            "GPUs": table["D"],
            "layers": table["layers"],
            "batch": table["batch"],
            "width": table["width"],
            "ours": 1e3 * table["simulated"],
            "published": 1e3 * table["seconds"],
        }
    ).reset_index(drop=True)


def gpt2_latencies() -> pd.DataFrame:
    """Return the latency of GPT-3 XL by kind of parallelism and number of devices, at R3 [s]."""
    rows = []
    for kind, (data, horizontal, pipeline) in MIXES.items():
        for power in range(1, 5):
            degrees = {"D": 2 ** (power * data), "H": 2 ** (power * horizontal), "P": 2 ** (power * pipeline)}
            count = 4 if pipeline else 1
            found = gpt2_grid([degrees | {"m": count}], size=GPT_SIZES["gpt3-xl"], batch=64, bandwidth_gbps=25)
            rows.append({"devices": 2**power, "parallelism": kind, "ours": float(found["latency"].iloc[0])})
    return pd.DataFrame(rows)


def _grid_settings(model: str, batch: int) -> SettingsLink:
    return SettingsLink(
        "schedules",
        {
            "schedules_show": "grid",
            "schedules_grid_model": model,
            "schedules_grid_revision": "R1",
            "schedules_grid_batch": str(batch),
        },
    )


_SOURCE: Final = "microsoft/dist-ir (MIT)"

PAPER: Final = Paper(
    name="distir",
    title="DistIR: An Intermediate Representation for Optimizing Distributed Neural Networks",
    authors="Santhanam et al.",
    year=2021,
    venue="EuroMLSys",
    url="https://arxiv.org/abs/2111.05426",
    figures=(
        PaperFigure(
            name="figure-3",
            title="Figure 3",
            summary="Speedup of data and of pipeline parallelism alone, by number of devices.",
            unit="",
            source=f"{_SOURCE}, notebook at 3386edc, computed by its own simulator",
            compute=scaling_speedups,
            horizontal="devices",
            link=_grid_settings("notebook", 4096),
        ),
        PaperFigure(
            name="figure-4",
            title="Figure 4",
            summary="Best speedup of each kind of parallelism, by number of devices.",
            unit="",
            source=f"{_SOURCE}, grid published with the paper",
            compute=strategy_speedups,
            horizontal="devices",
            link=_grid_settings("euromlsys21", 8192),
            note="The published grid comes from code older than revision R1, which the page offers.",
        ),
        PaperFigure(
            name="measured-steps",
            title="Notebook, measured steps",
            summary="Simulated against 81 measured steps of data parallelism on PCIe; diamonds are the measured ones.",
            unit="ms",
            source=f"{_SOURCE}, notebook at 83d7fc3",
            compute=step_times,
            horizontal="measured_ms",
            details=("layers", "batch", "width"),
            link=_grid_settings("notebook", 4096),
            note="With the constants of the notebook: steps on two and four GPUs are simulated far too short.",
        ),
        PaperFigure(
            name="gpt-2",
            title="GPT-2 inference",
            summary="Latency of GPT-3 XL, batch 64, by kind of parallelism and number of devices.",
            unit="s",
            source="none; DistIR publishes no latencies for these settings",
            compute=gpt2_latencies,
            horizontal="devices",
            link=_grid_settings("notebook", 4096),
            note=NOT_COUNTED,
        ),
    ),
)
