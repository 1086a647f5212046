"""Isaev et al., "Calculon: a Methodology and Tool for High-Level Codesign of Systems and Large Language Models".

The program's own validation: what Calculon 0.1.0 prints for the runs of Korthikanti et al.
"""

from typing import Final

from engine.reproductions.korthikanti.figures import execution_link, value_table
from engine.reproductions.papers import Paper, PaperFigure

__all__ = ["PAPER"]

_SOURCE: Final = "Output of Calculon 0.1.0 (caa4b11) on its validation files, two decimals"

PAPER: Final = Paper(
    name="calculon",
    title="Calculon: a Methodology and Tool for High-Level Codesign of Systems and Large Language Models",
    authors="Isaev et al.",
    year=2023,
    venue="SC",
    url="https://doi.org/10.1145/3581784.3607102",
    figures=(
        PaperFigure(
            name="validation-fig1",
            title="Validation fig1",
            summary="Memory that Calculon predicts for the models of Korthikanti et al., Figure 1.",
            unit="GiB",
            source=_SOURCE,
            compute=lambda: value_table("figure 1", "calculon"),
            horizontal="model",
            link=execution_link("gpt3-175B", "none", "a100_80e"),
        ),
        PaperFigure(
            name="validation-fig7",
            title="Validation fig7",
            summary="Share of activation memory that Calculon predicts for Korthikanti et al., Figure 7.",
            unit="%",
            source=_SOURCE,
            compute=lambda: value_table("figure 7", "calculon", 100.0),
            horizontal="model",
            link=execution_link("gpt3-175B", "sel", "a100_80e"),
        ),
        PaperFigure(
            name="validation-tab5",
            title="Validation tab5",
            summary="Batch times that Calculon predicts for Korthikanti et al., Table 5.",
            unit="s",
            source=_SOURCE,
            compute=lambda: value_table("table 5", "calculon"),
            horizontal="model",
            link=execution_link("gpt3-175B", "full", "a100_80g"),
        ),
    ),
)
