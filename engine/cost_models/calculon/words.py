"""Texts of the exact cost model, and its layers as a table to print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pandas as pd

from engine.cost_models.words import CostModelWords, Sheet
from hardware import System
from models import Model

__all__ = ["WORDS"]


def _print_layers(layers: pd.DataFrame) -> list[Sheet]:
    stages = ("fw", "agrad", "wgrad")
    headers = ["layer", "engine"]
    for stage in stages:
        headers += [f"{stage} [GFLOP]", f"{stage} [us]"]
    headers += ["weights [MB]", "activations [MB]"]
    rows = []
    for layer in layers.to_dict("records"):
        cells = [str(layer["name"]), str(layer["engine"])]
        for stage in stages:
            cells += [f"{layer[f'{stage}_flops'] / 1e9:,.3f}", f"{layer[f'{stage}_processing_time'] * 1e6:,.1f}"]
        rows.append([*cells, f"{layer['weight'] / 1e6:,.2f}", f"{layer['activation'] / 1e6:,.2f}"])
    return [Sheet("", headers, rows, (0, 1))]


def _list_neglected(thing: Model | System) -> Sequence[str]:
    if isinstance(thing, Model):
        return thing.not_represented
    powered = thing.accelerator is not None and thing.accelerator.tdp_w is not None
    unread = ("Power, price, clock and multiprocessors are recorded, but enter no time.",) if powered else ()
    return (
        *unread,
        "Contention between collectives, network topology within a tier, host processors, storage and failures are "
        "not modelled.",
    )


WORDS: Final = CostModelWords(
    title="exact as Calculon 0.1.0",
    summary="exact against Calculon 0.1.0",
    description=(
        "**calculon** computes what Calculon 0.1.0 computes, to the last digit, with the efficiencies of its system "
        "files. Models are six numbers there."
    ),
    operations="layers",
    sheets=_print_layers,
    neglected=_list_neglected,
)
