"""A plan of reinforcement learning on one page: figures, phases, memory, measured runs; for the page and as HTML."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from functools import partial
from html import escape
from typing import Any

import pandas as pd

from dashboard.charts.elements.markup import Tile, figure_strip
from dashboard.charts.elements.template import Chart
from dashboard.charts.plans.post_training import MeasuredMark, step_by_split
from dashboard.charts.plans.post_training_pools import pools_over_time
from dashboard.files.exports import version
from dashboard.files.report import drawn, page, whole
from dashboard.files.report_parts import Figure
from dashboard.files.run_plan_report import table_markup
from dashboard.words.amounts import format_large
from dashboard.words.numbers import ABSENT, percent, plain
from engine.questions.documents.post_training import MODE_WORDS, PHASE_WORDS, PostTrainingQuestion

__all__ = [
    "build_post_training_report",
    "describe_best",
    "measured_marks",
    "memory_rows",
    "nearest_rows",
    "phase_rows",
    "post_training_tiles",
]


def describe_best(best: Mapping[str, Any]) -> str:
    """Return a mode and its GPUs: "One step off: 128 GPUs train, 64 generate".

    Args:
        best: a mode of the answer to `plan_post_training`.
    """
    words = MODE_WORDS[best["mode"]]
    if best["mode"] == "colocated":
        return f"{words}: {best['gpus_train']:,} shared GPUs"
    return f"{words}: {best['gpus_train']:,} GPUs train, {best['gpus_rollout']:,} generate"


def _between(figure: Mapping[str, float]) -> str:
    return f"{plain(figure['low'])} to {plain(figure['high'])}"


def post_training_tiles(question: PostTrainingQuestion, best: Mapping[str, Any]) -> list[Tile]:
    """Return the headline figures of a mode.

    Args:
        question: as it was asked.
        best: a mode of its answer.
    """
    deployment, usd = best["deployment"], best["usd"]
    waiting, side = max((best["idle_training"], "training"), (best["idle_rollout"], "rollout"))
    unit, parts = ("days", 1.0) if best["days"]["value"] >= 1.0 else ("hours", 24.0)
    time = {name: parts * value for name, value in best["days"].items()}
    tiles = [
        Tile("Step", f"{plain(best['step_s']['value'])} s", _between(best["step_s"]), formula=_step_formula(best)),
        Tile(
            "Tokens per GPU",
            f"{plain(best['tokens_per_s_per_gpu'])} tokens/s",
            f"training {best['layout']}",
            formula="Prompts and responses of all samples / step / all GPUs.",
        ),
        Tile(
            "Tail ratio",
            f"{best['tail_ratio']:.2f}",
            "rollout over its time at full batches",
            formula="Time of a rollout that drains / time if every slot decoded to the end.",
        ),
        Tile("Idle share", percent(waiting, 0), f"{side} GPUs wait"),
        Tile(
            "Rollout",
            f"{deployment['replicas']:,} × TP {deployment['tensor_par']}",
            f"{deployment['batch']:,} requests each at once",
        ),
        Tile(
            "Time",
            f"{plain(time['value'])} {unit}",
            f"{question.steps:,} steps: {_between(time)}",
            formula=f"{question.steps:,} steps × {plain(best['step_s']['value'])} s / {86_400 / parts:,.0f} s.",
        ),
    ]
    if usd is None:
        return [*tiles, Tile("Cost", ABSENT, "no price recorded: enter one")]
    ends = f"{format_large(usd['low'])} to {format_large(usd['high'])}"
    return [*tiles, Tile("Cost", f"{format_large(usd['value'])} USD", ends)]


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
    return " + ".join(f"{PHASE_WORDS[name].lower()} {plain(value)} s" for name, value in seconds.items())


def phase_rows(best: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the phases of the best step of each mode, in words.

    Args:
        best: modes of the answer to `plan_post_training`.
    """
    rows: dict[str, dict[str, Any]] = {}
    for each in best:
        for phase in each["phases"]:
            row = rows.setdefault(phase["name"], {"Phase": PHASE_WORDS[phase["name"]]})
            row[MODE_WORDS[each["mode"]]] = f"{plain(phase['seconds']['value'])} ({_between(phase['seconds'])})"
    whole = {
        MODE_WORDS[each["mode"]]: f"{plain(each['step_s']['value'])} ({_between(each['step_s'])})" for each in best
    }
    return [*(rows[name] for name in PHASE_WORDS if name in rows), {"Phase": "Step", **whole}]


def memory_rows(best: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the memory of a GPU in each phase, in words.

    Args:
        best: a mode of the answer to `plan_post_training`.
    """
    return [
        {
            "Phase": PHASE_WORDS[row["phase"]],
            "Needs, GiB": f"{row['gib']:,.1f}",
            "Has, GiB": f"{row['has']:,.1f}",
            "Parts, GiB": ", ".join(f"{name} {value:,.1f}" for name, value in row["parts"].items()),
        }
        for row in best["memory"]
    ]


def _measured_name(row: Mapping[str, Any]) -> str:
    return f"{row['framework']} {row['version']}, {row['model']}"


def measured_marks(answer: Mapping[str, Any]) -> list[MeasuredMark]:
    """Return the nearest measured runs on the same system and number of GPUs, in two pools.

    Args:
        answer: to `plan_post_training`.
    """
    return [
        MeasuredMark(row["gpus_train"], row["step_s"], _measured_name(row))
        for row in answer["nearest"]
        if row["system"] == answer["system"]
        and row["mode"] != "colocated"
        and row["gpus_train"] + row["gpus_rollout"] == answer["num_procs"]
    ]


def nearest_rows(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the measured runs nearest to the question, in words.

    Args:
        answer: to `plan_post_training`.
    """
    return [
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


def build_post_training_report(
    asked: PostTrainingQuestion, answer: Mapping[str, Any], title: str, address: str = ""
) -> bytes:
    """Return the report of a plan as a UTF-8 HTML document that opens offline.

    Args:
        asked: the question.
        answer: to it, with a mode that runs.
        title: of the model.
        address: link to the plan, printed as text.
    """
    best = answer["best"][0]
    name = f"Reinforcement learning: {title} on {answer['num_procs']:,} GPUs"
    places, data = drawn(
        [
            Figure(
                "split", "Step against the split", "each point the best of its sides", partial(_draw_splits, answer)
            ),
            Figure(
                "pools", "One step", f"{MODE_WORDS[best['mode']]}; idle time is hatched", partial(_draw_pools, best)
            ),
        ]
    )
    tables = "".join(
        f"<h2>{heading}</h2>{table_markup(pd.DataFrame(rows).fillna(ABSENT))}"
        for heading, rows in (
            ("Phases: seconds of a step, from low to high", phase_rows(answer["best"])),
            (f"Memory of a GPU, {MODE_WORDS[best['mode']].lower()}", memory_rows(best)),
            ("Nearest measured runs", nearest_rows(answer)),
        )
        if rows
    )
    reasons = "".join(
        f"<p>{escape(MODE_WORDS[mode])}: {escape(reason)}</p>" for mode, reason in answer["reasons"].items()
    )
    document = asked.model_dump(mode="json", exclude_defaults=True)
    made = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    body = (
        f"<h1>{escape(name)}</h1><p>{escape(describe_best(best))}; {answer['samples']:,} samples a step.</p>"
        f"{figure_strip(post_training_tiles(asked, best), answer['basis'])}{reasons}{places}{tables}"
        f"<p>Shardscape {escape(version())}, {made}.</p>"
        f"{whole('question', document, address, 'as a question of the verb plan_post_training')}"
    )
    return page(name, body, data).encode("utf-8", "replace")


def _draw_splits(answer: Mapping[str, Any], mode: str) -> Chart:
    return step_by_split(answer["curve"], answer["num_procs"], MODE_WORDS, measured_marks(answer), mode=mode)


def _draw_pools(best: Mapping[str, Any], mode: str) -> Chart:
    return pools_over_time(best, PHASE_WORDS, mode=mode)
