"""Figures 1 and 7 and Table 5 of Korthikanti et al."""

from __future__ import annotations

from typing import Final

import pandas as pd

import models
from engine.reproductions.korthikanti.predictions import load_executions, predicted_values
from engine.reproductions.papers import Paper, PaperFigure, SettingsLink

__all__ = ["MODES", "PAPER", "execution_link", "value_table"]

MODES: Final = {
    "none": "none",
    "seq": "none, sequence parallel",
    "sel": "selective",
    "seqsel": "selective, sequence parallel",
    "full": "full",
}
"""Mode in the data -> recomputation in words."""
_FREE: Final = ("num_procs", "batch_size", "datatype", "training", "data_par", "data_par_net")
"""Fields without a limit: the scenario determines them, and one replica uses no network."""


def value_table(place: str, column: str = "published", scale: float = 1.0) -> pd.DataFrame:
    """Return model, recomputation, quantity, ours and published values of one figure.

    Args:
        place: "figure 1", "figure 7" or "table 5".
        column: of the data to compare with, "published" or "calculon".
        scale: factor of all values, 100 for percent.
    """
    rows = predicted_values().query("published_in == @place")
    table = pd.DataFrame(
        {
            "model": [models.load(name).title for name in rows["model"]],
            "recomputation": [MODES[mode] for mode in rows["mode"]],
            "quantity": list(rows["quantity"]),
            "ours": scale * rows["predicted"].to_numpy(),
            "published": scale * rows[column].to_numpy(),
        }
    )
    return table if table["quantity"].nunique() > 1 else table.drop(columns="quantity")


def execution_link(model: str, mode: str, system: str) -> SettingsLink:
    """Return the link to one of the executions: a scenario whose limits leave that one only."""
    execution = load_executions()[model, mode]
    limits = ";".join(
        f"{name}:{'on' if value is True else 'off' if value is False else value}"
        for name, value in execution.items()
        if name not in _FREE
    )
    return SettingsLink(
        "execution",
        {
            "model": model,
            "system": system,
            "procs": str(execution["num_procs"]),
            "batch": str(execution["batch_size"]),
            "type": str(execution["datatype"]),
            "cost": "calculon",
            "limits": limits,
        },
    )


_SOURCE: Final = "arXiv:2205.05198, as Calculon's authors read it (validation files of Calculon 0.1.0, caa4b11)"

PAPER: Final = Paper(
    name="korthikanti",
    title="Reducing Activation Recomputation in Large Transformer Models",
    authors="Korthikanti et al.",
    year=2023,
    venue="MLSys",
    url="https://arxiv.org/abs/2205.05198",
    figures=(
        PaperFigure(
            name="figure-1",
            title="Figure 1",
            summary="Memory of a GPU for parameters with optimizer state and for activations, with and without "
            "selective recomputation.",
            unit="GiB",
            source=_SOURCE,
            compute=lambda: value_table("figure 1"),
            horizontal="model",
            link=execution_link("gpt3-175B", "seqsel", "a100_80e"),
        ),
        PaperFigure(
            name="figure-7",
            title="Figure 7",
            summary="Activation memory as a share of that without recomputation, for each way to save it.",
            unit="%",
            source=_SOURCE,
            compute=lambda: value_table("figure 7", scale=100.0),
            horizontal="model",
            link=execution_link("gpt3-175B", "sel", "a100_80e"),
            note="Calculon keeps less with selective recomputation alone, and more with full recomputation.",
        ),
        PaperFigure(
            name="table-5",
            title="Table 5",
            summary="Time of a batch with full recomputation, and with selective recomputation and sequence "
            "parallelism.",
            unit="s",
            source=_SOURCE,
            compute=lambda: value_table("table 5"),
            horizontal="model",
            link=execution_link("gpt3-175B", "seqsel", "a100_80g"),
        ),
    ),
)
