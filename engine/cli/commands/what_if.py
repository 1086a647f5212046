"""The command `what-if`: a change of hardware, model or size with the space searched again; worth of each part."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from engine.cli.options import JsonOption
from engine.cli.output import ExitCode, as_json, write_line
from engine.cli.progress import ProgressReport
from engine.cli.question_options import UnfinishedQuestion, asks
from engine.cli.text_tables import write_table
from engine.questions.documents.changes import (
    HardwareSensitivityQuestion,
    ParametersQuestion,
    WhatIfQuestion,
)
from engine.questions.verb import QuestionError

__all__ = ["change_scenario"]


@asks(WhatIfQuestion, arguments=("model", "system"), leave_out=("changes",), flatten="scenario")
@asks(HardwareSensitivityQuestion, leave_out=("scenario",))
def change_scenario(
    asked: UnfinishedQuestion[WhatIfQuestion],
    parts: UnfinishedQuestion[HardwareSensitivityQuestion],
    change: Annotated[
        list[str] | None,
        typer.Option("--change", metavar="NAME=VALUE", help="A new value of a parameter; repeatable."),
    ] = None,
    parameters: Annotated[
        bool, typer.Option("--list", help="List the parameters that can be changed, and search nothing.")
    ] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print the table as CSV.")] = False,
    json: JsonOption = False,
) -> None:
    """Change hardware, model or size and search the whole space again: the gain, and the best execution then.

    Without a change: the gain from each part of the hardware and the model, multiplied by factors one at a time. The
    scenario is given as for `best`.

    \b
    Examples:
      shardscape what-if llama-3-8B h100_80g_sxm --procs 8 --max-batch 64 --datatype bfloat16 --list
      shardscape what-if llama-3-8B h100_80g_sxm --procs 8 --max-batch 64 --datatype bfloat16 --change hbm_capacity=120
      shardscape what-if --scenario scenario.json --factors 0.5,2 --parameters hbm_bandwidth,net1_bandwidth --csv

    Exit code 1 when nothing runs after the change.
    """
    from engine.questions.bounds import Bounds, Context
    from engine.questions.changes import LIST_PARAMETERS, SENSITIVITY, WHAT_IF

    if csv and json:
        raise QuestionError("Give --csv or --json, not both.")
    scenario = asked.said["scenario"]
    with ProgressReport("searching") as report:
        context = Context(Bounds(largest_space=2**62), report)
        if parameters:
            question = UnfinishedQuestion(ParametersQuestion, {"scenario": scenario}).finish()
            found, table = LIST_PARAMETERS.run(question, context), "parameters"
        elif change:
            found, table = WHAT_IF.run(asked.finish(changes=_parse_changes(change)), context), "executions"
        else:
            found, table = SENSITIVITY.run(parts.finish(scenario=scenario), context), "gains"
    if json:
        write_line(as_json(found))
    else:
        _print_answer(found, table, csv=csv)
    if table == "executions" and found["best"] is None:
        raise typer.Exit(ExitCode.NOTHING)


def _parse_changes(texts: list[str]) -> dict[str, float]:
    """Return values by parameter from texts such as "hbm_bandwidth=6700"."""
    found = {}
    for each in texts:
        name, _, number = each.partition("=")
        try:
            found[name.strip()] = float(number)
        except ValueError:
            raise QuestionError(f"--change {each[:60]!r} must be NAME=VALUE, such as hbm_bandwidth=6700.") from None
    return found


def _print_answer(found: dict[str, Any], table: str, *, csv: bool) -> None:
    import pandas as pd

    if table != "executions":
        rows = pd.DataFrame(found[table])
        write_table(rows if csv else rows.drop(columns="description", errors="ignore"), json=False, csv=csv)
        return
    names = {"base": "best before", "best": "best after", "kept": "best before, kept"}
    rows = pd.DataFrame([{"execution": words, **found[name]} for name, words in names.items() if found[name]])
    if csv:
        write_table(rows, json=False, csv=True)
        return
    changes = ", ".join(f"{name} {value:g}" for name, value in found["changes"].items())
    if found["best"] is None:
        write_line(f"With {changes} none of {found['total']:,} executions runs.")
    else:
        gains = [
            f"{words} {gain:+.2%}"
            for words, gain in (("search again", found["gain"]), ("the old best kept", found["kept_gain"]))
            if gain is not None
        ]
        write_line(f"Throughput with {changes}: {', '.join(gains) or 'nothing ran before'}.")
    write_table(rows[[name for name in SHOWN if name in rows]], json=False, csv=False)


SHOWN = (
    "execution",
    "tensor_par",
    "pipeline_par",
    "data_par",
    "microbatch_size",
    "activation_recompute",
    "total_time",
    "sample_rate",
    "proc_mem_tier1_cap_req",
)
"""Fields of an execution that the text shows."""
