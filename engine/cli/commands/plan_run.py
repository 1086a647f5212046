"""The command `plan run`: how many GPUs of which system train a model, in one phase or several, by a deadline or within
a budget."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from pydantic import ValidationError

from engine.cli.options import JsonOption
from engine.cli.output import ExitCode, as_json, text_table, write_line
from engine.cli.progress import ProgressReport
from engine.cli.question_options import UnfinishedQuestion, asks, build_question, name_options, read_named
from engine.questions.documents.cost import PlanRunQuestion, SystemOffer
from engine.questions.errors import QuestionError
from engine.questions.fields import FieldKind, question_fields
from models.documents import DocumentError, read_json, sentence

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


@asks(
    PlanRunQuestion,
    arguments=("model",),
    readers={"systems": read_offer},
    optional=("systems", "max_batch_size"),
)
def plan_training(
    asked: UnfinishedQuestion[PlanRunQuestion],
    csv: Annotated[bool, typer.Option("--csv", help="Print sizes, or the phases of the plan, as CSV.")] = False,
    json: JsonOption = False,
) -> None:
    """Plan a training run: how many GPUs of which system, layout, days, cost, energy, failures.

    MODEL may be a file with a whole question instead: phases in their order (pretrain, sft, lora, rl, serve), of which
    each gets its own number of GPUs. Options then replace values of the file.

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
      shardscape plan run life.json --days 100

    \b
    A file with phases:
      {"model": "llama-3-8B", "systems": [{"system": "h100_80g_sxm", "most_procs": 64}], "max_batch_size": 512,
       "deadline_days": 30, "phases": [{"kind": "pretrain", "tokens": 1e12},
         {"kind": "sft", "tokens": 1e9, "lengths": {"mean": 800, "cap": 4096}},
         {"kind": "rl", "prompts": 128, "response": {"mean": 1500, "cap": 4096}, "steps": 300},
         {"kind": "serve", "prompt": 1024, "output": 256, "rate": 20}]}

    \b
    JSON: model, system, chosen (num_procs, layout, days, usd, mwh, failures, goodput, each with low and high),
    recommended (its execution), systems (curve, knee, less_waste, refused, obstacle), units, seconds. With phases:
    chain (chosen with its phases and services, systems with fronts and curves, changes, relaxation).

    Exit code 1 when nothing reaches the goal.
    """
    import time

    from engine.questions.bounds import Context
    from engine.questions.run_plans import find_phased_plan, find_run_plan, phased_plan_document, run_plan_document

    start = time.perf_counter()
    if csv and json:
        raise QuestionError("Give --csv or --json, not both.")
    question = _read_question(asked)
    document: dict[str, Any]
    with ProgressReport("planning") as report, name_options(PlanRunQuestion):
        context = Context(tell=report)
        if question.phases is None:
            found = find_run_plan(question, context=context)
            document = run_plan_document(question, found)
            is_found = found.run is not None
        else:
            document = phased_plan_document(find_phased_plan(question, context=context))
            is_found = document["chain"]["chosen"] is not None
    if json:
        write_line(as_json({**document, "seconds": time.perf_counter() - start}))
    elif csv:
        write_line(_csv_table(document).rstrip("\n"))
    elif question.phases is None:
        _print_plan(found)
    else:
        _print_chain(document["chain"])
    if not is_found:
        raise typer.Exit(ExitCode.NOTHING)


def _read_question(asked: UnfinishedQuestion[PlanRunQuestion]) -> PlanRunQuestion:
    """Return the question of a file with phases, with options in place of its values, or that of the options."""
    said = asked.said
    file = Path(str(said["model"]))
    found: Any = read_json(file, "plan", DocumentError) if file.suffix == ".json" and file.is_file() else None
    if not isinstance(found, dict) or "phases" not in found:
        missing = [
            option for option, name in (("--system", "systems"), ("--max-batch", "max_batch_size")) if not said[name]
        ]
        if missing and file.suffix == ".json" and not file.is_file():
            raise QuestionError(f"{file.name[:80]} is no file; give one with phases, or a model.")
        if missing:
            raise QuestionError(f"Missing {' and '.join(missing)}; or give a file with phases in place of the model.")
        return asked.finish()
    fields = question_fields(PlanRunQuestion)
    try:
        PlanRunQuestion.model_validate(found)
    except ValidationError as problem:
        raise QuestionError(sentence(problem, PlanRunQuestion, str(file))) from None
    given = {name for name, value in said.items() if name != "model" and value not in (None, [], fields[name].default)}
    return asked.finish(**{name: value for name, value in found.items() if name not in given})


def _csv_table(document: Mapping[str, Any]) -> str:
    """Return the phases and services of a plan, or the sizes of all systems, as CSV."""
    import pandas as pd

    def flat(row: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
        cells: dict[str, Any] = {}
        for name in names:
            value = row.get(name)
            if isinstance(value, Mapping):
                cells |= {name: value["value"], f"{name}_low": value["low"], f"{name}_high": value["high"]}
            else:
                cells[name] = value
        return cells

    chain = document.get("chain")
    names: tuple[str, ...]
    if chain is None:
        names = ("num_procs", "days", "usd", "mwh", "gpu_hours", "failures", "goodput", "layout")
        rows = [
            {"system": system["system"], **flat(run, names)}
            for system in document["systems"]
            for run in system["curve"]
        ]
        return str(pd.DataFrame(rows).to_csv(index=False))
    chosen = chain["chosen"]
    names = ("name", "kind", "num_procs", "start_day", "days", "usd", "mwh", "failures", "layout")
    rows = [{"system": chain["system"], **flat(each, names)} for each in (chosen or {"phases": []})["phases"]]
    for each in (chosen or {"services": []})["services"]:
        row = flat({**each, "kind": "serve"}, ("name", "kind", "num_procs", "days", "layout"))
        rows.append({"system": chain["system"], **row})
    columns = None if rows else ["system", *names]
    return str(pd.DataFrame(rows, columns=columns).to_csv(index=False))


def _print_chain(chain: Mapping[str, Any]) -> None:
    chosen = chain["chosen"]
    if chosen is not None:
        write_line(f"{chosen['num_procs']:,} x {chain['system']}")
        for label, value, unit in (
            ("Days", chosen["days"], "days"),
            ("Cost", chosen["usd"], "USD"),
            ("GPU-hours", chosen["gpu_hours"], "h"),
            ("Energy", chosen["mwh"], "MWh"),
            ("Failures expected", chosen["failures"], ""),
        ):
            write_line(f"  {label}: {f'{_row_words(value)} {unit}'.rstrip() if value is not None else '-'}")
        write_line(f"  Spare GPUs: {chosen['spares']:,}, not in the cost")
        for label, name in (("Deadline", "deadline"), ("Budget", "budget")):
            if chosen[name]:
                write_line(f"  {label}: {chosen[name]}")
        rows = [
            (
                each["name"],
                f"{each['num_procs']:,}",
                _format_number(each["start_day"]),
                _row_words(each["days"]),
                "-" if each["usd"] is None else _row_words(each["usd"]),
                _format_number(each["failures"]),
                each["layout"],
            )
            for each in chosen["phases"]
        ]
        write_line(text_table(("phase", "GPUs", "from day", "days", "USD", "failures", "layout"), rows, left=(0, 6)))
        for each in chosen["services"]:
            daily = each["usd_per_day"]
            cost = "-" if daily is None else " to ".join(map(_format_number, daily))
            when = "afterwards" if each["when"] == "after" else "meanwhile"
            gpus = _counted(each["num_procs"], "GPU")
            write_line(f"{each['name']}, {when}: {gpus}, {each['layout']}; {cost} USD per day")
    for each in chain["systems"]:
        front = each["front"]
        said = each["obstacle"] or f"{_counted(each['front_size'], 'chain')} on the front of days and cost"
        write_line(f"{each['system']}: {said}")
        if front and each["chosen"] is not None:
            ends = [front[0], front[-1]] if len(front) > 1 else front
            for end in ends:
                usd = "-" if end["usd"] is None else f"{_format_number(end['usd']['value'])} USD"
                sizes = ", ".join(f"{size:,}" for size in end["sizes"])
                write_line(f"  {_format_number(end['days']['value'])} days, {usd} on {sizes} GPUs")
    for each in chain["changes"]:
        if each["days"] is None:
            write_line(f"{each['words']}: still nothing holds")
            continue
        usd = "-" if each["usd"] is None else f"{_format_number(each['usd'])} USD"
        write_line(f"{each['words']}: {_format_number(each['days'])} days, {usd}")
    for text in (chain["relaxation"], chain["basis"], *chain["not_modelled"]):
        if text:
            write_line(text)


def _counted(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _row_words(figure: Any) -> str:
    """Return a figure of an answer with its interval, where it has one."""
    if not isinstance(figure, Mapping):
        return _format_number(figure)
    if figure["low"] is None or figure["high"] is None:
        return _format_number(figure["value"])
    return f"{_format_number(figure['value'])} ({_format_number(figure['low'])} to {_format_number(figure['high'])})"


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
