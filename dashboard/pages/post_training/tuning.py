"""Fine-tuning on the Post-train page: methods side by side, memory, packing, measured runs, launch and command."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.elements.palette import MEMORY_KINDS
from dashboard.charts.plans.fine_tuning import time_over_gpus
from dashboard.jobs.fine_tuning import FineTuningJob
from dashboard.jobs.server import server
from dashboard.link import state
from dashboard.link.fields import LinkField
from dashboard.pages.post_training.tuning_inputs import draw_tuning_inputs, parse_tuning_inputs
from dashboard.widgets import launch
from dashboard.widgets.chart import show
from dashboard.widgets.job_card import found_soon
from dashboard.widgets.tables import height_of
from dashboard.words.amounts import format_duration, format_large, format_tokens
from dashboard.words.executions import recomputed
from dashboard.words.markdown import literal
from dashboard.words.numbers import ABSENT, percent, plain
from engine.fine_tuning.search import scenario_of
from engine.questions.documents.fine_tuning import TUNING_WORDS, FineTuningQuestion
from engine.questions.fields import question_fields
from engine.questions.fine_tuning import fine_tuning_goal
from hardware import GIB

__all__ = ["FineTuningView", "parse_tuning", "render_tuning"]

HOUR: Final = 3600.0
"""Seconds of an hour [s]."""
KINDS: Final = {"gradients": "weight_gradients"}
"""Parts of the memory whose kind in charts has another name."""


@dataclass(frozen=True, slots=True)
class FineTuningView:
    """All that the link says of fine-tuning."""

    mode: str
    """The theme: "light" or "dark"."""
    question: FineTuningQuestion | None
    fields: Mapping[str, LinkField]
    problem: str = ""
    """Reason if the link holds no question."""


def parse_tuning() -> FineTuningView:
    """Parse the part of the link about fine-tuning."""
    try:
        question, fields = parse_tuning_inputs()
    except ValueError as problem:
        return FineTuningView(state.theme_mode(), None, {}, str(problem))
    return FineTuningView(state.theme_mode(), question, fields)


def render_tuning(view: FineTuningView) -> None:
    """Draw the page's part about fine-tuning.

    Args:
        view: of the link.
    """
    question = view.question
    if question is None:
        st.error(literal(view.problem), icon=":material/error:")
        return
    draw_tuning_inputs(view.fields)
    title = view.fields["model"].options[view.fields["model"].value]
    shared, watcher = server(), state.watcher()
    job = shared.board.post(FineTuningJob(shared.fine_tuning_plans, question, title), watcher)
    answer = found_soon(job, FineTuningJob, watcher, lambda one: one.answer)
    if answer is not None:
        _draw_answer(view.mode, question, answer)


def _draw_answer(mode: str, question: FineTuningQuestion, answer: Mapping[str, Any]) -> None:
    rows = answer["methods"]
    fitting = [row for row in rows if row["execution"]]
    best = next((row for row in rows if row["method"] == answer["method"]), fitting[0] if fitting else None)
    if best is None:
        st.warning(f"**Nothing fits.** {_reasons(rows)}", icon=":material/block:")
    else:
        words = TUNING_WORDS[best["method"]]
        scope = f"{format_tokens(answer['tokens'])} in {answer['steps']:,} steps; modelled"
        st.html(markup.head(f"Fastest: {words} on {best['num_procs']:,} GPUs", scope))
        st.html(markup.figure_strip(_tiles(answer, best), answer["basis"]))
        if reasons := _reasons(rows):
            st.caption(reasons)
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("Methods", "each the fastest execution, proven"))
        _draw_table(_method_rows(rows), "fine_tuning_methods", "Figures of each method.")
    if answer["sizes"]:
        with st.container(border=True, gap="xsmall"):
            st.html(markup.head("Time over GPUs", "each point the fastest execution"))
            show(time_over_gpus(answer["sizes"], TUNING_WORDS, mode=mode), "fine_tuning_sizes")
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("Memory of a GPU", "of the fullest"))
        for row in fitting:
            pieces = {KINDS.get(name, name): value * GIB for name, value in row["memory_parts"].items()}
            st.html(markup.memory_bar(pieces, row["capacity_gib"] * GIB, TUNING_WORDS[row["method"]]))
        st.html(markup.legend(kind for kind in MEMORY_KINDS if kind.key != "activation_gradients"))
    _draw_nearest(answer)
    if best is not None:
        goal = fine_tuning_goal(question)
        scenario = scenario_of(goal, best["method"], best["num_procs"])
        launch.card(scenario, best["execution"], "fine_tuning_launch")
    command = _command_of(question)
    if command:
        with st.container(border=True, gap="xsmall"):
            st.html(markup.head("Command", "prints the same figures"))
            st.code(command, language=None, wrap_lines=True)


def _reasons(rows: list[dict[str, Any]]) -> str:
    return " ".join(
        f"**{TUNING_WORDS[row['method']]}**: {literal(row['reason'])}"
        + (f" Smallest change that fits: {literal(row['change'])}." if row["change"] else "")
        for row in rows
        if row["reason"]
    )


def _tiles(answer: Mapping[str, Any], best: Mapping[str, Any]) -> list[markup.Tile]:
    """Return the headline figures of the fastest method."""
    tiles = []
    if best["hours"] is not None:
        tiles.append(
            markup.Tile("Time", format_duration(best["hours"]["value"] * HOUR), _duration_range(best["hours"]))
        )
        per_gpu = plain(best["tokens_per_s_per_gpu"])
        tiles.append(
            markup.Tile("Rate", f"{format_large(best['tokens_per_s'])} tokens/s", f"{per_gpu} tokens/s per GPU")
        )
    fewest = best["fewest_gpus"]
    tiles += [
        markup.Tile("Memory", f"{best['memory_gib']:,.1f} GiB", f"of {best['capacity_gib']:,.1f} GiB: {best['fit']}"),
        markup.Tile("Fewest GPUs", ABSENT if fewest is None else f"{fewest:,}", _safe_words(best["safe_gpus"])),
        markup.Tile(
            "Packing",
            percent(answer["packing"], 0),
            f"{plain(answer['samples_per_pack'])} samples in {answer['pack_to']:,} tokens",
            formula="Tokens of samples / tokens of the sequences that they are packed into.",
        ),
    ]
    usd = best["usd"]
    if usd is None:
        return [*tiles, markup.Tile("Cost", ABSENT, "no price recorded: enter one")] if best["hours"] else tiles
    return [*tiles, markup.Tile("Cost", f"{format_large(usd['value'])} USD", _usd_range(usd))]


def _safe_words(safe: int | None) -> str:
    return "that hold it" if safe is None else f"{safe:,} to be safe from errors of memory"


def _duration_range(hours: Mapping[str, float | None]) -> str:
    low, high = hours["low"], hours["high"]
    if low is None or high is None:
        return "no comparable run was measured"
    return f"{format_duration(low * HOUR)} to {format_duration(high * HOUR)}"


def _usd_range(usd: Mapping[str, float]) -> str:
    return f"{format_large(usd['low'])} to {format_large(usd['high'])}"


def _method_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each figure, with a column for each method."""
    figures: dict[str, Callable[[dict[str, Any]], str]] = {
        "GPUs": lambda row: f"{row['num_procs']:,}",
        "Fit": lambda row: row["fit"],
        "Memory, GiB": lambda row: ABSENT if row["memory_gib"] is None else f"{row['memory_gib']:,.1f}",
        "Fewest GPUs": lambda row: ABSENT if row["fewest_gpus"] is None else f"{row['fewest_gpus']:,}",
        "Fewest GPUs, safe": lambda row: ABSENT if row["safe_gpus"] is None else f"{row['safe_gpus']:,}",
        "Tokens/s": lambda row: ABSENT if row["tokens_per_s"] is None else format_large(row["tokens_per_s"]),
        "Step": lambda row: ABSENT if row["step_s"] is None else format_duration(row["step_s"]["value"]),
        "Time": lambda row: ABSENT if row["hours"] is None else format_duration(row["hours"]["value"] * HOUR),
        "Time range": lambda row: ABSENT if row["hours"] is None else _duration_range(row["hours"]),
        "Cost, USD": lambda row: ABSENT if row["usd"] is None else format_large(row["usd"]["value"]),
        "Cost range, USD": lambda row: ABSENT if row["usd"] is None else _usd_range(row["usd"]),
        "Layout": lambda row: row["layout"] or ABSENT,
        "Microbatch": lambda row: f"{row['execution']['microbatch_size']:,}" if row["execution"] else ABSENT,
        "ZeRO stage": lambda row: str(row["execution"]["zero_stage"]) if row["execution"] else ABSENT,
        "Recompute": lambda row: recomputed(row["execution"], brief=True) if row["execution"] else ABSENT,
    }
    return [
        {"Figure": name, **{TUNING_WORDS[row["method"]]: value(row) for row in rows}} for name, value in figures.items()
    ]


def _draw_nearest(answer: Mapping[str, Any]) -> None:
    rows = [
        {
            "Run": f"{row['framework']} {row['version']}, {row['model_key']}",
            "Method": TUNING_WORDS[row["method"]] + (f", rank {row['lora_rank']:,.0f}" if row["lora_rank"] else ""),
            "System": row["system"],
            "GPUs": f"{row['gpus']:,.0f}",
            "Datatype": row["precision"],
            "Sequence": ABSENT if row["seq_len"] is None else f"{row['seq_len']:,.0f}",
            "Tokens/s per GPU": ABSENT
            if row["tokens_per_s_per_gpu"] is None
            else f"{row['tokens_per_s_per_gpu']:,.0f}",
            "Peak, GiB": ABSENT if row["peak_gib"] is None else f"{row['peak_gib']:,.1f}",
            "Outcome": row["outcome"],
            "Source": row["source"],
        }
        for row in answer["nearest"]
    ]
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("Nearest measured runs", "is my speed normal?"))
        _draw_table(rows, "fine_tuning_nearest", "Measured runs nearest to the question.")


def _command_of(question: FineTuningQuestion) -> str:
    """Return the command that asks the same; empty for a model or system of one's own, which the command reads from a
    file."""
    if not isinstance(question.model, str) or not isinstance(question.system, str):
        return ""
    words = ["shardscape", "plan", "fine-tuning", question.model, question.system]
    lengths = question.lengths
    for name, field in question_fields(FineTuningQuestion).items():
        value = getattr(question, name)
        if name == "lengths":
            spread = f":{lengths.cv:g}" if lengths.cv != 1.0 else ""
            words += [f"--{field.option}", f"{lengths.mean:g}:{lengths.cap}{spread}"]
        elif name not in ("format", "model", "system", "limits") and value != field.default:
            words.append(f"--{field.option}")
            if value is not True:
                words.append(f"{value:g}" if isinstance(value, float) else str(value))
    return shlex.join(words)


def _draw_table(rows: list[dict[str, Any]], key: str, alt: str) -> None:
    st.dataframe(
        pd.DataFrame(rows), hide_index=True, height=height_of(len(rows), 600), placeholder=ABSENT, key=key, alt=alt
    )
