"""The answer of a scenario, which needs no exploration: headline figures of the execution to run."""

from __future__ import annotations

from dashboard.charts.elements.markup import Tile, figure_strip
from dashboard.compat.types import Place
from dashboard.queries import accuracy
from dashboard.queries.economics import (
    days_for,
    flops_formula,
    flops_told,
    mfu_formula,
    mfu_label,
    told,
    utilisation,
)
from dashboard.widgets.figures import doubts_markup
from dashboard.widgets.window import is_narrow
from dashboard.words.amounts import format_tokens
from dashboard.words.numbers import ABSENT, counted, days, format_value, percent, share_of
from engine import Scenario
from engine.columns import by_name
from engine.executions.execution_names import execution_name
from engine.recommendation import FIGURES_OF, ShownExecution
from hardware import GIB

__all__ = ["NAMES_OF_SPACE", "AnswerSlot", "answer_tiles", "draw_answer", "draw_tiles", "execution_tile_names"]

NAMES_OF_SPACE = ("Feasible", "As good as the best")
"""Labels of the figures about the whole space."""
_ABOVE = 3
"""Figures above the map in a narrow window: one row of them."""


def execution_tile_names(scenario: Scenario, tokens: float) -> tuple[str, ...]:
    """Returns the labels of the figures of an execution. tokens: of the training run."""
    return ("Throughput", mfu_label(scenario), "Step time", f"{format_tokens(tokens)} take", "HBM per GPU")


def answer_tiles(scenario: Scenario, shown: ShownExecution, tokens: float, tied: int = 0) -> list[Tile]:
    """Returns the headline figures of an execution.

    Args:
        scenario: of the execution.
        shown: the execution.
        tokens: of the training run.
        tied: number of executions of exactly its throughput, including it; 0 if not known.
    """
    best = shown.execution
    rate, training = float(best["sample_rate"]), bool(best["training"])
    peak = scenario.system.peak_tflops(scenario.datatype) * 1e12
    capacity = scenario.system.mem1.capacity_gib * GIB
    memory = float(best["proc_mem_tier1_cap_req"])
    throughput, mfu, step, run, hbm = execution_tile_names(scenario, tokens)
    times = tokens / 1e12
    return [
        Tile(
            throughput,
            format_value("sample_rate", rate),
            f"{told(scenario, 'tokens_per_gpu', rate)} per GPU{f' · {tied:,} tied' if tied > 1 else ''}",
            formula="batch ÷ step time. Of executions that tie exactly the simplest is shown: the fewest offloads, "
            "then the least overlap, recompute, sharding and interleaving.",
        ),
        Tile(
            mfu,
            percent(utilisation(scenario, rate, training)),
            f"{flops_told(scenario, rate)} per GPU",
            formula=f"{mfu_formula(scenario)} Peak {format_value('useful_flops', peak)}/s; "
            f"model FLOP per sample = {flops_formula(scenario)}. "
            f"Total efficiency: {by_name('total_efficiency').description}",
        ),
        Tile(
            step,
            format_value("total_time", best["total_time"]),
            counted(int(best["batch_size"]), "sequence"),
            formula=by_name("total_time").description,
        ),
        Tile(
            run,
            days(days_for(scenario, rate, tokens)),
            f"{told(scenario, 'usd', rate, times)} · {told(scenario, 'energy', rate, times)}",
            formula="tokens ÷ (throughput · sequence length), without failures; cost at the middle of the prices "
            "recorded for the system, energy at its design power.",
        ),
        Tile(
            hbm,
            format_value("proc_mem_tier1_cap_req", memory),
            share_of(memory, capacity),
            formula=by_name("proc_mem_tier1_cap_req").description,
        ),
    ]


class AnswerSlot:
    """Place of the headline figures, which a run of a page may draw twice: the later replaces the earlier in place."""

    def __init__(self, place: Place) -> None:
        """place: container that has nothing else."""
        self.place = place
        self._drawn: Place | None = None

    def html(self, markup: str) -> None:
        """Draw the figures."""
        self._drawn = (self._drawn or self.place).html(markup)


def draw_tiles(
    slot: AnswerSlot,
    scenario: Scenario,
    shown: ShownExecution,
    fastest: float,
    tiles: list[Tile],
    of_space: list[Tile],
) -> list[Tile]:
    """Draws headline figures with the name of the execution; returns those to draw below the map of a narrow window.

    Args:
        slot: where they are drawn.
        scenario: of the execution.
        shown: the execution.
        fastest: throughput of the fastest [samples/s].
        tiles: figures of the execution.
        of_space: figures of the whole space.
    """
    best = shown.execution
    marked = accuracy.marked([*tiles, *of_space], scenario, best)
    first = _ABOVE if is_narrow() else len(marked)
    strip = figure_strip(marked[:first], f"{_name_shown(shown, fastest)} {accuracy.basis(scenario, best)}")
    slot.html(strip + doubts_markup(scenario, best, shown.remark))
    return marked[first:]


def draw_answer(slot: AnswerSlot, scenario: Scenario, shown: ShownExecution, fastest: float, tokens: float) -> None:
    """Draws the answer while the space is still explored: figures of the execution, and room for figures of the space.

    Args:
        slot: where it is drawn.
        scenario: of the execution.
        shown: the execution.
        fastest: throughput of the fastest [samples/s].
        tokens: of the training run.
    """
    waiting = [Tile(name, ABSENT, "being counted") for name in NAMES_OF_SPACE]
    draw_tiles(slot, scenario, shown, fastest, answer_tiles(scenario, shown, tokens), waiting)


def _name_shown(shown: ShownExecution, fastest: float) -> str:
    """Return whose figures are shown: "Recommended: TP 8 × PP 2; the fastest is 4.2 % faster."."""
    name = f"{FIGURES_OF[shown.figures_of]}: {execution_name(shown.execution)}"
    lead = fastest / float(shown.execution["sample_rate"]) - 1.0
    return f"{name}; the fastest is {percent(lead)} faster." if lead > 0 else f"{name}."
