"""The Post-train page: reinforcement learning, with the step of each mode, phases and memory; or fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.plans.post_training import MeasuredMark, step_by_split
from dashboard.charts.plans.post_training_pools import pools_over_time
from dashboard.charts.plans.response_lengths import lengths_with_tail
from dashboard.jobs.post_training import PostTrainingJob
from dashboard.jobs.server import server
from dashboard.link import state
from dashboard.link.fields import LinkField, LinkReader
from dashboard.pages.post_training.changes import draw_changes
from dashboard.pages.post_training.inputs import RefusedInputsError, draw_inputs, parse_inputs
from dashboard.pages.post_training.launch_file import draw_launch_card, draw_own_file
from dashboard.pages.post_training.link import PAGE_NAME, PostTrainingLink
from dashboard.pages.post_training.tuning import FineTuningView, parse_tuning, render_tuning
from dashboard.widgets.chart import show
from dashboard.widgets.file_download import draw_download
from dashboard.widgets.job_card import found_soon
from dashboard.widgets.link_fields import draw_segments
from dashboard.widgets.tables import height_of
from dashboard.words.amounts import format_large
from dashboard.words.markdown import literal
from dashboard.words.numbers import ABSENT, percent, plain
from engine.post_training.lengths import LengthLaw
from engine.questions.documents.post_training import MODE_WORDS, PostTrainingQuestion

__all__ = ["PostTrainingView", "parse", "render"]

PHASES: Final = {
    "rollout": "Rollout",
    "reward": "Reward and tools",
    "judge": "Judge",
    "teacher": "Teacher",
    "log_probs": "Log-probabilities",
    "update": "Update",
    "other": "Other",
    "switch": "Switch",
    "synchronisation": "Synchronisation",
    "host": "Host, per GPU",
}
"""Phases on screen."""


@dataclass(frozen=True, slots=True)
class PostTrainingView:
    """All that the link says of the page."""

    mode: str
    """The theme: "light" or "dark"."""
    question: PostTrainingQuestion | None
    fields: Mapping[str, LinkField]
    problem: str = ""
    """Reason if the link holds no question."""
    part: LinkField | None = None
    """Reinforcement learning, or fine-tuning."""
    tuning: FineTuningView | None = None
    """All that the link says of fine-tuning, if that is shown."""


def parse() -> PostTrainingView:
    """Parse the page's part of the link."""
    page = LinkReader(PostTrainingLink, PAGE_NAME)
    page.read("part")
    part = page.fields["part"]
    if part.value == "tuning":
        return PostTrainingView(state.theme_mode(), None, {}, part=part, tuning=parse_tuning())
    try:
        question, fields = parse_inputs()
    except RefusedInputsError as problem:
        return PostTrainingView(state.theme_mode(), None, problem.fields, str(problem), part)
    except ValueError as problem:
        return PostTrainingView(state.theme_mode(), None, {}, str(problem), part)
    return PostTrainingView(state.theme_mode(), question, fields, part=part)


def render(view: PostTrainingView) -> None:
    """Draw the page."""
    if view.part is not None:
        draw_segments(view.part)
    if view.tuning is not None:
        render_tuning(view.tuning)
        return
    question = view.question
    if question is None:
        if view.fields:
            draw_inputs(view.fields)
        st.error(literal(view.problem), icon=":material/error:")
        return
    draw_inputs(view.fields)
    draw_own_file(view.fields)
    title = view.fields["model"].options[view.fields["model"].value]
    shared, watcher = server(), state.watcher()
    job = shared.board.post(PostTrainingJob(shared.post_training_plans, question, title), watcher)
    answer = found_soon(job, PostTrainingJob, watcher, lambda one: one.answer)
    if answer is not None:
        _draw_answer(view, question, answer)


def _draw_answer(view: PostTrainingView, question: PostTrainingQuestion, answer: Mapping[str, Any]) -> None:
    reasons = " ".join(f"**{MODE_WORDS[mode]}**: {literal(text)}" for mode, text in answer["reasons"].items())
    if not answer["best"]:
        change = f" Smallest change that fits: {literal(answer['change'])}." if answer["change"] else ""
        st.warning(f"**Nothing runs.** {reasons}{change}", icon=":material/block:")
        _draw_nearest(answer)
        return
    best = answer["best"][0]
    st.html(markup.head(_describe_best(best), f"{answer['samples']:,} samples a step; modelled"))
    st.html(markup.figure_strip(_tiles(question, best), answer["basis"]))
    if reasons:
        st.caption(reasons)
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("Step against the split", "each point the best execution and deployment of its sides"))
        marks = _measured_marks(answer)
        show(
            step_by_split(answer["curve"], answer["num_procs"], MODE_WORDS, marks, mode=view.mode),
            "post_training_curve",
        )
        draw_download(
            "Splits as CSV",
            lambda: pd.DataFrame(answer["curve"]).to_csv(index=False),
            "splits.csv",
            "text/csv",
            key="post_training_splits",
            help="Step by mode, GPUs that train and GPUs that generate.",
        )
    wide, narrow = st.columns((2, 1), gap="medium")
    with wide, st.container(border=True, gap="xsmall"):
        st.html(markup.head("One step", f"{MODE_WORDS[best['mode']]}; idle time is hatched"))
        show(pools_over_time(best, PHASES, mode=view.mode), "post_training_pools")
    with narrow, st.container(border=True, gap="xsmall"):
        st.html(markup.head("Response lengths", "share that still runs after so many tokens"))
        said = question.response
        assert said.mean is not None
        assert said.cap is not None
        law = LengthLaw.lognormal(said.mean, said.cap, said.cv)
        show(lengths_with_tail(law.tokens, law.survival, law.mean, mode=view.mode), "post_training_lengths")
    draw_changes(
        view.fields, answer, f"{_describe_best(best)}; each against the step above. Apply may find another split"
    )
    left, right = st.columns(2, gap="medium")
    with left, st.container(border=True, gap="xsmall"):
        st.html(markup.head("Phases", "seconds of a step, from low to high"))
        _draw_table(_phase_rows(answer["best"]), "post_training_phases", "Phases of a step by mode.")
    with right, st.container(border=True, gap="xsmall"):
        st.html(markup.head("Memory", f"{MODE_WORDS[best['mode']]}; {PHASES[best['binds']].lower()} binds"))
        _draw_table(_memory_rows(best), "post_training_memory", "Memory of a GPU by phase.")
    draw_launch_card(question, best)
    _draw_nearest(answer)


def _describe_best(best: Mapping[str, Any]) -> str:
    words = MODE_WORDS[best["mode"]]
    if best["mode"] == "colocated":
        return f"{words}: {best['gpus_train']:,} shared GPUs"
    return f"{words}: {best['gpus_train']:,} GPUs train, {best['gpus_rollout']:,} generate"


def _between(figure: Mapping[str, float]) -> str:
    return f"{plain(figure['low'])} to {plain(figure['high'])}"


def _tiles(question: PostTrainingQuestion, best: Mapping[str, Any]) -> list[markup.Tile]:
    """Return the headline figures of a mode."""
    deployment, usd = best["deployment"], best["usd"]
    waiting, side = max((best["idle_training"], "training"), (best["idle_rollout"], "rollout"))
    unit, parts = ("days", 1.0) if best["days"]["value"] >= 1.0 else ("hours", 24.0)
    time = {name: parts * value for name, value in best["days"].items()}
    tiles = [
        markup.Tile(
            "Step", f"{plain(best['step_s']['value'])} s", _between(best["step_s"]), formula=_step_formula(best)
        ),
        markup.Tile(
            "Tokens per GPU",
            f"{plain(best['tokens_per_s_per_gpu'])} tokens/s",
            f"training {best['layout']}",
            formula="Prompts and responses of all samples / step / all GPUs.",
        ),
        markup.Tile(
            "Tail ratio",
            f"{best['tail_ratio']:.2f}",
            "rollout over its time at full batches",
            formula="Time of a rollout that drains / time if every slot decoded to the end.",
        ),
        markup.Tile("Idle share", percent(waiting, 0), f"{side} GPUs wait"),
        markup.Tile(
            "Rollout",
            f"{deployment['replicas']:,} × TP {deployment['tensor_par']}",
            f"{deployment['batch']:,} requests each at once",
        ),
        markup.Tile(
            "Time",
            f"{plain(time['value'])} {unit}",
            f"{question.steps:,} steps: {_between(time)}",
            formula=f"{question.steps:,} steps × {plain(best['step_s']['value'])} s / {86_400 / parts:,.0f} s.",
        ),
    ]
    if usd is None:
        return [*tiles, markup.Tile("Cost", ABSENT, "no price recorded: enter one")]
    ends = f"{format_large(usd['low'])} to {format_large(usd['high'])}"
    return [*tiles, markup.Tile("Cost", f"{format_large(usd['value'])} USD", ends)]


def _step_formula(best: Mapping[str, Any]) -> str:
    """Return the step as a sum, or as the longer of two sides, with numbers."""
    seconds = {row["name"]: row["seconds"]["value"] for row in best["phases"]}
    if best["mode"] == "colocated":
        return f"{_sum_of(seconds)} = {plain(best['step_s']['value'])} s."
    sync = seconds.pop("synchronisation", 0.0)
    trained = {name: value for name, value in seconds.items() if name in ("log_probs", "teacher", "update", "other")}
    rolled = {name: value for name, value in seconds.items() if name not in trained}
    if best["mode"] == "asynchronous":
        return f"The longer of {_sum_of(rolled)} and {_sum_of({**trained, 'synchronisation': sync})}."
    return f"The longer of {_sum_of(rolled)} and {_sum_of(trained)}, plus synchronisation {plain(sync)} s."


def _sum_of(seconds: Mapping[str, float]) -> str:
    return " + ".join(f"{PHASES[name].lower()} {plain(value)} s" for name, value in seconds.items())


def _phase_rows(best: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for each in best:
        for phase in each["phases"]:
            row = rows.setdefault(phase["name"], {"Phase": PHASES[phase["name"]]})
            row[MODE_WORDS[each["mode"]]] = f"{plain(phase['seconds']['value'])} ({_between(phase['seconds'])})"
    whole = {
        MODE_WORDS[each["mode"]]: f"{plain(each['step_s']['value'])} ({_between(each['step_s'])})" for each in best
    }
    return [*(rows[name] for name in PHASES if name in rows), {"Phase": "Step", **whole}]


def _memory_rows(best: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "Phase": PHASES[row["phase"]],
            "Needs, GiB": f"{row['gib']:,.1f}",
            "Has, GiB": f"{row['has']:,.1f}",
            "Parts, GiB": ", ".join(f"{name} {value:,.1f}" for name, value in row["parts"].items()),
        }
        for row in best["memory"]
    ]


def _measured_name(row: Mapping[str, Any]) -> str:
    return f"{row['framework']} {row['version']}, {row['model']}"


def _measured_marks(answer: Mapping[str, Any]) -> list[MeasuredMark]:
    """Return the nearest measured runs on the same system and number of GPUs, in two pools."""
    return [
        MeasuredMark(row["gpus_train"], row["step_s"], _measured_name(row))
        for row in answer["nearest"]
        if row["system"] == answer["system"]
        and row["mode"] != "colocated"
        and row["gpus_train"] + row["gpus_rollout"] == answer["num_procs"]
    ]


def _draw_nearest(answer: Mapping[str, Any]) -> None:
    rows = [
        {
            "Run": _measured_name(row),
            "System": row["system"],
            "Mode": "Colocated" if row["mode"] == "colocated" else f"Split, staleness {row['staleness']:g}",
            "GPUs train:generate": f"{row['gpus_train']:,.0f} shared"
            if row["mode"] == "colocated"
            else f"{row['gpus_train']:,.0f}:{row['gpus_rollout']:,.0f}",
            "Samples": f"{row['samples_per_step']:,.0f}",
            "Mean response": f"{row['mean_response']:,.0f}",
            "Step, s": f"{row['step_s']:,.4g}",
            "Source": row["source"],
        }
        for row in answer["nearest"]
    ]
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("Nearest measured runs", "is my speed normal?"))
        _draw_table(rows, "post_training_nearest", "Measured runs nearest to the question.")


def _draw_table(rows: list[dict[str, Any]], key: str, alt: str) -> None:
    st.dataframe(
        pd.DataFrame(rows), hide_index=True, height=height_of(len(rows), 400), placeholder=ABSENT, key=key, alt=alt
    )
