"""The command `plan fleet`: who gets which GPUs of a fleet in which hour."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from engine.cli.options import JsonOption
from engine.cli.output import ExitCode, as_json, text_table, write_line
from engine.cli.progress import ProgressReport
from engine.cli.question_options import UnfinishedQuestion, asks, name_options
from engine.questions.documents.fleet import FleetQuestion
from engine.questions.errors import QuestionError
from engine.questions.fields import question_fields
from models.documents import DocumentError, read_json, shown

__all__ = ["plan_fleet_hours"]

VALUES: Final = {
    "progress": "Jobs train at {:.1%} of their speed alone on the fleet",
    "days": "The last job is done in {:,.4g} days",
    "usd": "GPUs in use cost {:,.0f} USD",
}
"""The objective's value in words."""


@asks(FleetQuestion)
def plan_fleet_hours(
    asked: UnfinishedQuestion[FleetQuestion],
    file: Annotated[
        Path,
        typer.Argument(metavar="FLEET.json", help="Pools, jobs and services, as the question plan_fleet has them."),
    ],
    csv: Annotated[bool, typer.Option("--csv", help="Print who has how many GPUs by hour as CSV.")] = False,
    json: JsonOption = False,
) -> None:
    """Plan a fleet: which job and which service gets which GPUs in which hour of a day or a week.

    Services have as many replicas as their demand needs within limits on latencies, jobs hold their deadlines, and
    the rest makes the objective best, proven so. A job or service with `after` waits for another job; then the plan
    has stages. A job with `post_training` is reinforcement learning. Options replace values of the file.

    \b
    Example of a file:
      {"pools": [{"system": "h100_80g_sxm", "num_procs": 256}],
       "jobs": [{"model": "llama-3-8B", "max_batch_size": 512, "tokens": 1e12, "deadline_days": 30},
                {"model": "llama-3-8B", "name": "at night", "max_batch_size": 256, "elastic": true}],
       "services": [{"model": "llama-3-70B", "prompt": 1024, "output": 256, "peak_rate": 40}]}

    \b
    Examples:
      shardscape plan fleet fleet.json
      shardscape plan fleet fleet.json --why
      shardscape plan fleet fleet.json --objective usd --json

    \b
    JSON is the answer to the question plan_fleet: value and bound of the objective, pools with GPUs in use by hour,
    jobs (size by hour, days), services (replicas by hour, unserved demand), stages and chain where jobs wait for
    others (`after`), missed deadlines, baselines, changes, refused.

    Exit code 1 when demand or a deadline is not held.
    """
    import time

    from engine.fleet.documents import list_hours
    from engine.questions.bounds import Context
    from engine.questions.fleets import find_fleet_plan, fleet_document

    start = time.perf_counter()
    if csv and json:
        raise QuestionError("Give --csv or --json, not both.")
    question = asked.finish(**_merge(file, asked))
    with ProgressReport("planning") as report, name_options(FleetQuestion):
        document = fleet_document(find_fleet_plan(question, context=Context(tell=report)))
    if json:
        write_line(as_json({**document, "seconds": time.perf_counter() - start}))
    elif csv:
        write_line(list_hours(document).to_csv(index=False).rstrip("\n"))
    else:
        _print_fleet(document)
    if not document["holds"]:
        raise typer.Exit(ExitCode.NOTHING)


def _merge(file: Path, asked: UnfinishedQuestion[FleetQuestion]) -> dict[str, Any]:
    """Return the values of a file that no option gives."""
    found = read_json(file, "fleet", DocumentError)
    if not isinstance(found, dict):
        raise QuestionError(f"{file} has {shown(found)}; it must be a JSON object with pools, jobs and services.")
    fields = question_fields(FleetQuestion)
    given = {name for name, value in asked.said.items() if name in fields and value not in (None, fields[name].default)}
    return {name: value for name, value in found.items() if name not in given}


def _print_fleet(document: Mapping[str, Any]) -> None:
    value = document["value"]
    said = "A job makes no progress" if value is None else VALUES[document["objective"]].format(value)
    write_line(f"{said}. {document['proof']}")
    until = "until the last job is done" if document["stages"] else f"in {document['hours']} hours"
    if document["usd"] is not None and document["objective"] != "usd":
        write_line(f"GPUs in use cost {document['usd']:,.0f} USD {until}.")
    if document["stages"]:
        _print_chain(document)
    else:
        _print_hours(document)
    for sentence in document["missed"]:
        write_line(sentence)
    for name, reason in document["refused"].items():
        write_line(f"{name}: {reason}")
    if document["baselines"]:
        write_line("Simpler plans:")
    for each in document["baselines"]:
        said = "none" if each["value"] is None else f"{each['value']:,.4g}"
        write_line(f"  {each['words']}: {said}{'' if each['holds'] else ', does not hold all demand and deadlines'}")
    if document["changes"]:
        write_line("Changes, the largest gain first:")
    for each in document["changes"]:
        gain = "-" if each["gain"] is None else f"{each['gain']:+,.4g}"
        write_line(f"  {each['words']}: {gain}{'' if each['holds'] else ', does not hold all demand and deadlines'}")
    for sentence in document["not_modelled"]:
        write_line(sentence)


def _print_chain(document: Mapping[str, Any]) -> None:
    """Print when each job starts and ends, and the GPUs of each stage."""
    from engine.fleet.documents import list_holders

    def tell_day(day: float | None) -> str:
        return "never" if day is None else f"{day:,.4g}"

    rows = []
    for each in document["chain"]:
        end = "goes on" if each["is_service"] or each["tokens"] is None else tell_day(each["end_days"])
        deadline = "" if each["deadline_days"] is None else f"{each['deadline_days']:,g}"
        late = "LATE" if each["is_late"] else ""
        rows.append([each["name"], tell_day(each["start_days"]), end, deadline, late])
    write_line(text_table(["", "from day", "to day", "deadline", ""], rows, left=(0, 4)))
    rows = []
    for number, stage in enumerate(document["stages"], 1):
        days = "on" if stage["days"] is None else f"{stage['start_days'] + stage['days']:,.4g}"
        for name, held in list_holders(stage):
            for pool_name, gpus in held.items():
                if any(gpus):
                    least, most = min(gpus), max(gpus)
                    used = f"{least:,}" if least == most else f"{least:,} to {most:,}"
                    rows.append([f"{number}", f"{stage['start_days']:,.4g} to {days}", name, pool_name, used])
    write_line(text_table(["stage", "days", "", "system", "GPUs"], rows, left=(1, 2, 3)))


def _print_hours(document: Mapping[str, Any]) -> None:
    from engine.fleet.documents import list_holders

    for pool in document["pools"]:
        spares = f", {pool['spares']:,} of them spare" if pool["spares"] else ""
        write_line(f"{pool['gpus']:,} x {pool['name']}{spares}: {min(pool['used']):,} to {max(pool['used']):,} in use")
    rows = []
    for name, held in list_holders(document):
        for pool_name, gpus in held.items():
            if any(gpus):
                least, most = min(gpus), max(gpus)
                rows.append([name, pool_name, f"{least:,}" if least == most else f"{least:,} to {most:,}"])
    write_line(text_table(["", "system", "GPUs"], rows, left=(0, 1)))
    for job in document["jobs"]:
        until = "" if job["days"] is None else f", done in {job['days']:,.4g} days"
        deadline = "" if job["deadline_days"] is None else f" (deadline {job['deadline_days']:,g})"
        late = "; LATE" if job["is_late"] else ""
        write_line(f"{job['name']}: {job['tokens_per_s']:,.0f} tokens/s{until}{deadline}{late}")
    for service in document["services"]:
        short = sum(service["unserved"]) / (sum(service["demand"]) or 1.0)
        told = f"{short:.2%} of the demand is NOT SERVED" if short else "all demand is served"
        write_line(f"{service['name']}: {told}")
