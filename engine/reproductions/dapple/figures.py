"""Plans of HPGO 0.9.2 on two clusters of 16 devices."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

import pandas as pd

from engine.planners.layerwise import plan
from engine.planners.layerwise.profiles.examples import example, examples
from engine.reproductions.dapple.simulator import released_timeline
from engine.reproductions.papers import Paper, PaperFigure, SettingsLink

__all__ = ["PAPER", "load_released"]

FOLDER: Final = Path(__file__).parent / "data"
DEVICES: Final = 16


@cache
def load_released() -> list[dict[str, Any]]:
    """Return the plans of the wheel: profile, batches, machines, microbatch, speedup and stages."""
    found: list[dict[str, Any]] = json.loads((FOLDER / "released_plans.json").read_text(encoding="utf-8"))
    return found


def plan_speedups(machines: int) -> pd.DataFrame:
    """Return speedups of plans on 16 devices, as planned and as HPGO's simulator replays them.

    Args:
        machines: with equal shares of the 16 devices.
    """
    titles = {each.name: each.title for each in examples()}
    rows = []
    for row in load_released():
        if row["machines"][-1] != DEVICES or len(row["machines"]) != machines:
            continue
        found = plan(
            example(row["profile"]),
            profile_batch=row["profile_batch"],
            global_batch=row["global_batch"],
            machines=row["machines"],
            microbatch=row["microbatch"],
        )
        assert found.states is not None
        label = {"plan": f"{titles[row['profile']]}, {row['global_batch']:,}"}
        rows.append({**label, "speedup": "planned", "ours": found.speedup, "published": row["speedup"]})
        replayed = found.states.total / released_timeline(found).step_seconds
        rows.append({**label, "speedup": "replayed", "ours": replayed, "published": float("nan")})
    return pd.DataFrame(rows)


def _settings(cluster: str) -> SettingsLink:
    parameters = {"layerwise_profile": "bert_48", "layerwise_batch": "64", "layerwise_mode": "released"}
    return SettingsLink("layerwise", parameters | {"layerwise_cluster": cluster})


_SOURCE: Final = "Wheel of HPGO 0.9.2 (BSD 3-Clause), run on its own profiles"
_NOTE: Final = "HPGO publishes planned speedups only; replayed ones come from the recurrences of its simulator."

PAPER: Final = Paper(
    name="dapple",
    title="DAPPLE: A Pipelined Data Parallel Approach for Training Large Models",
    authors="Fan et al.",
    year=2021,
    venue="PPoPP",
    url="https://arxiv.org/abs/2007.01045",
    figures=(
        PaperFigure(
            name="plans-2x8",
            title="Plans on 2 x 8",
            summary="Speedup of the best plan on two machines of eight devices, by model and batch.",
            unit="",
            source=_SOURCE,
            compute=lambda: plan_speedups(2),
            horizontal="plan",
            link=_settings("A"),
            note=_NOTE,
        ),
        PaperFigure(
            name="plans-16x1",
            title="Plans on 16 x 1",
            summary="Speedup of the best plan on 16 machines of one device, by model and batch.",
            unit="",
            source=_SOURCE,
            compute=lambda: plan_speedups(DEVICES),
            horizontal="plan",
            link=_settings("B"),
            note=_NOTE,
        ),
    ),
)
