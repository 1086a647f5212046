"""Glossary for a first-time reader: words and their meaning."""

from __future__ import annotations

from typing import Final

from engine import Scenario, launch
from engine.columns import applies, by_name, choices_of

__all__ = ["WORDS", "flags", "words"]


_NAMES: Final = (
    "tensor_par",
    "pipeline_par",
    "data_par",
    "microbatch_size",
    "activation_recompute",
    "pipeline_interleaving",
    "tensor_par_comm_type",
)
_FURTHER: Final = ("expert_par", "context_par", "zero_stage", "optimizer_sharding")
"""Fields explained if the cost model has them and they follow from nothing else."""
WORDS: Final = (
    ("Feasible", "an execution that this system can run: it fits both memories and the networks."),
    ("HBM, host memory", "the memory of a GPU itself, and that of the computer around it, to which can be offloaded."),
    ("Exposed", "time that the GPUs spend waiting for a transfer; the rest of it hides behind computing."),
    ("Bubble", "time in which stages of the pipeline have nothing to do while it fills and drains."),
    (
        "Network tier",
        "a network that links a group of GPUs, such as NVLink or InfiniBand; in files tiers have "
        "numbers, and 0 is the innermost and fastest.",
    ),
)
"""Words that are no columns of the register, with their meanings."""


def words(scenario: Scenario) -> list[tuple[str, str, str]]:
    """Returns (word, its short form or "", meaning) for a first-time reader."""
    there = {column.name for column in choices_of(scenario.cost_model) if applies(column, scenario.facts)}
    columns = [by_name(name) for name in (*_NAMES, *_FURTHER) if name in there]
    return [
        *((column.label, column.short, column.description) for column in columns),
        *((word, "", meaning) for word, meaning in WORDS),
    ]


def flags(scenario: Scenario, framework: str) -> dict[str, str]:
    """Returns, by word, the flags of a training framework that set a choice; words that it has none for are absent.

    framework: name of it, one of `engine.launch.FRAMEWORKS`.
    """
    terms = launch.FRAMEWORKS[framework].terms
    there = choices_of(scenario.cost_model)
    return {column.label: terms[column.name] for column in there if column.name in terms}
