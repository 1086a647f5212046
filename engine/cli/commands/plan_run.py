"""The command `plan run`: how many GPUs of which system train a model by a deadline or within a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import typer

from engine.cli.options import JsonOption
from engine.cli.output import ExitCode, as_json, text_table, write_line
from engine.cli.progress import ProgressReport
from engine.cli.question_options import asks, build_question, name_options, read_named
from engine.questions.documents.cost import PlanRunQuestion, SystemOffer
from engine.questions.errors import QuestionError
from engine.questions.fields import FieldKind, question_fields

if TYPE_CHECKING:
    from engine.recommendation.training_plans import RunFigure, RunPlan, SizedRun, SystemRuns

__all__ = ["plan_training", "read_offer"]

COLUMNS: Final = ("days", "usd", "mwh", "gpu_hours", "failures", "goodput")


def read_offer(text: str) -> SystemOffer:
    """Return the system and price of a text such as h100_80g_sxm,terms=buy,usd_low=30000.

    Args:
        text: name or file of the system, then fields of a `SystemOffer` with values.

    Raises `QuestionError` with a sentence that names the field.
    """
    name, *entries = (each.strip() for each in text.split(","))
    fields = {each: field for each, field in question_fields(SystemOffer).items() if each != "system"}
    said: dict[str, Any] = {"system": read_named(name, "system")}
    for entry in entries:
        field, _, value = entry.partition("=")
        if field not in fields:
            raise QuestionError(f"--system: {field[:40]!r} is no field of a price; there are {', '.join(fields)}.")
        if fields[field].kind is FieldKind.CHOICE or fields[field].choices:
            said[field] = value
            continue
        try:
            said[field] = int(value) if fields[field].kind is FieldKind.WHOLE else float(value)
        except ValueError:
            raise QuestionError(f"--system: {field} is {value[:40]!r}; it must be a number.") from None
    return build_question(SystemOffer, said)


@asks(PlanRunQuestion, arguments=("model",), readers={"systems": read_offer})
def plan_training(asked: PlanRunQuestion, json: JsonOption = False) -> None:
    """Plan a training run: how many GPUs of which system, layout, days, cost, energy, failures.

    Give two or more of --tokens, --days, --budget and --procs. With a deadline the fewest GPUs of each system count,
    and the cheapest system; with a budget alone the shortest run; without tokens the longest training. Each size is
    the recommended execution, as `recommend` finds it, and its cost, as `cost` computes it.

    \b
    Examples:
      shardscape plan run llama-3.1-70B --system h100_80g_sxm --system h200_141g_sxm --tokens 2e12 --days 60
        --max-batch 1024
      shardscape plan run llama-3-8B --system h100_80g_sxm,usd_low=2,usd_high=3 --tokens 1e12 --budget 500000
        --max-batch 512
      shardscape plan run llama-3-8B --system b200_180g_sxm,terms=buy,usd_low=45000 --days 30 --procs 256
        --max-batch 512 --json > plan.json
      shardscape export plan.json --to megatron

    \b
    JSON: model, system, chosen (num_procs, layout, days, usd, mwh, failures, goodput, each with low and high),
    recommended (its execution), systems (curve, knee, less_waste, refused, obstacle), units, seconds.

    Exit code 1 when nothing reaches the goal.
    """
    import time

    from engine.questions.bounds import Context
    from engine.questions.run_plans import find_run_plan, run_plan_document

    start = time.perf_counter()
    with ProgressReport("planning") as report, name_options(PlanRunQuestion):
        found = find_run_plan(asked, context=Context(tell=report))
    if json:
        write_line(as_json({**run_plan_document(asked, found), "seconds": time.perf_counter() - start}))
    else:
        _print_plan(found)
    if found.run is None:
        raise typer.Exit(ExitCode.NOTHING)


def _print_plan(found: RunPlan) -> None:
    from engine.cost_models.words import told_not_measured

    run = found.run
    if run is not None and found.chosen is not None:
        write_line(f"{run.num_procs:,} x {_title(found.chosen)}: {_layout(run)}")
        for label, name, unit in (
            ("Wall-clock time", "days", "days"),
            ("Cost", "usd", "USD"),
            ("Energy", "mwh", "MWh"),
            ("GPU-hours", "gpu_hours", "h"),
            ("Failures expected", "failures", ""),
            ("Goodput", "goodput", ""),
        ):
            figure = run.figures.get(name)
            value = "no price or power recorded" if figure is None else f"{_with_interval(figure)} {unit}".rstrip()
            write_line(f"  {label}: {value}")
        write_line(f"  Tokens: {run.run.inputs.tokens:.4g}")
        if run.outlay_usd is not None:
            power = "counted" if found.chosen.offer.usd_per_kwh > 0 else "not counted"
            low, high = map(_format_number, run.outlay_usd)
            write_line(f"  All GPUs cost {low} to {high} USD; the run pays its share. Electricity is {power}.")
        if run.interval is None:
            unknown = run.not_measured
            reason = told_not_measured(unknown) if unknown else "Too few runs of this kind were measured."
            write_line(f"  The error of the time is unknown. {reason}")
        else:
            write_line(f"  Intervals: {run.interval.share:.0%} of {run.interval.rests_on}; prices from low to high.")
    for each in found.systems:
        write_line()
        write_line(f"{_title(each)}{'' if each.chosen else f': {each.obstacle}'}")
        if each.runs:
            write_line(_curve_table(each))
        if each.thrifty:
            sizes = ", ".join(f"{run.num_procs:,} ({_saving(each, run)})" for run in each.thrifty)
            write_line(f"Fewer GPU-hours: {sizes}")


def _title(runs: SystemRuns) -> str:
    system = runs.offer.system
    words = {"rent": "", "reserve": ", reserved", "buy": ", bought"}[runs.offer.terms]
    return f"{system.title or system.name}{words}"


def _layout(run: SizedRun) -> str:
    from engine.questions.run_plans import layout_words

    return layout_words(run)


def _saving(runs: SystemRuns, run: SizedRun) -> str:
    assert runs.chosen is not None
    return f"{1 - run.hours_per_token / runs.chosen.hours_per_token:.1%} fewer"


def _with_interval(figure: RunFigure) -> str:
    if figure.low is None or figure.high is None:
        return _format_number(figure.value)
    return f"{_format_number(figure.value)} ({_format_number(figure.low)} to {_format_number(figure.high)})"


def _format_number(value: float) -> str:
    """Return four significant digits, the rest of a large number as zeros: 872,700."""
    rounded = float(f"{value:.4g}")
    return f"{rounded:,.0f}" if rounded >= 1000 else f"{rounded:g}"


def _curve_table(runs: SystemRuns) -> str:
    rows = []
    for run in runs.runs:
        marks = [
            word
            for word, other in (("chosen", runs.chosen), ("knee", runs.knee))
            if other is not None and other.num_procs == run.num_procs
        ]
        cells = [_format_number(run.figures[name].value) if name in run.figures else "-" for name in COLUMNS]
        missed = ["too slow" if "days" in run.misses else "", "too dear" if "usd" in run.misses else ""]
        rows.append((f"{run.num_procs:,}", *cells, _layout(run), ", ".join(filter(None, [*marks, *missed]))))
    header = ("GPUs", "days", "USD", "MWh", "GPU-hours", "failures", "goodput", "layout", "")
    return text_table(header, rows, left=(7, 8))
