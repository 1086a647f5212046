"""Plans as tables: their stages, their candidates, the layers of a profile."""

from __future__ import annotations

import pandas as pd

from engine.planners.layerwise.profiles.profile import LayerProfile
from engine.planners.layerwise.result import LayerwisePlan
from engine.planners.layerwise.sweep import stages_text

__all__ = ["candidates_table", "layers_table", "stages_table"]


def stages_table(plan: LayerwisePlan) -> pd.DataFrame:
    """Returns one row per stage: half-open range of layers, devices, and the stage's figures in milliseconds and GB.

    Args:
        plan: one that `solve` returned.
    """
    rows = []
    for number, stage in enumerate(plan.stages, start=1):
        figures = {each.name: each.value for each in stage.figures}
        rows.append(
            {
                "stage": number,
                "layers": f"{stage.start}-{stage.stop}",
                "replicas": len(stage.devices),
                "devices": devices_text(stage.devices),
                "forward [ms]": figures["forward_time"] * 1e3,
                "backward [ms]": figures["backward_time"] * 1e3,
                "all-reduce [ms]": figures["reduce_time"] * 1e3,
                "hands on [MB]": figures["cut_bytes"] / 1e6,
                "parameters [GB]": figures["parameters"] / 1e9,
                "memory [GB]": figures["memory"] / 1e9,
                "of [GB]": figures["memory_room"] / 1e9,
                "recompute": "yes" if stage.recompute else "no",
            }
        )
    return pd.DataFrame(rows)


def candidates_table(plan: LayerwisePlan) -> pd.DataFrame:
    """Returns one row per candidate, the best first: its search, its speedup, stages, and the reason why it was not
    chosen.

    Args:
        plan: one that `solve` returned.
    """
    rows = [
        {
            "found by": each.name,
            "speedup": each.value,
            "pipelines": each.copies,
            "stages": stages_text(each),
            "why not": each.reason,
        }
        for each in plan.candidates
    ]
    return pd.DataFrame(rows, columns=["found by", "speedup", "pipelines", "stages", "why not"])


def layers_table(profile: LayerProfile) -> pd.DataFrame:
    """Returns one row per layer, in milliseconds and MB.

    Args:
        profile: times and sizes of layers, in order.
    """
    rows = [
        {
            "layer": layer.id,
            "name": layer.name,
            "forward [ms]": layer.forward * 1e3,
            "backward [ms]": layer.backward * 1e3,
            "hands on [MB]": layer.activation / 1e6,
            "keeps [MB]": layer.stored / 1e6,
            "parameters [MB]": layer.parameters / 1e6,
        }
        for layer in profile.layers
    ]
    return pd.DataFrame(rows)


def devices_text(devices: tuple[int, ...]) -> str:
    """Returns devices as ranges, such as "0-7, 9".

    Args:
        devices: numbers of devices, in ascending order.
    """
    parts, first = [], None
    for at, device in enumerate(devices):
        first = device if first is None else first
        if at + 1 == len(devices) or devices[at + 1] != device + 1:
            parts.append(str(first) if first == device else f"{first}-{device}")
            first = None
    return ", ".join(parts)
