"""The command `what-if`: a change of hardware, model or size with the space searched again; worth of each part."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

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

_VALUE: Final = re.compile(r"\d+(\.\d+)?([eE][-+]?\d{1,3})?")
"""A new value; with a sign it would be an amount."""


@asks(WhatIfQuestion, arguments=("model", "system"), leave_out=("changes",), flatten="scenario")
@asks(HardwareSensitivityQuestion, leave_out=("scenario",))
def change_scenario(
    asked: UnfinishedQuestion[WhatIfQuestion],
    parts: UnfinishedQuestion[HardwareSensitivityQuestion],
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--change",
            metavar="NAME=CHANGE",
            help="A new value of a parameter, an amount such as '+1 TB/s', a share '+10 %' or a factor x2; repeatable.",
        ),
    ] = None,
    parameters: Annotated[
        bool, typer.Option("--list", help="List the parameters that can be changed, and search nothing.")
    ] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print the table as CSV.")] = False,
    json: JsonOption = False,
) -> None:
    """Change hardware, model or size and search the whole space again: the gain, and the best execution then.

    Figures are of the recommended execution before and after, or of the fastest with --figures-of fastest. Several
    changes, --models or --sizes with --each-alone: a table of each change alone, and all together. Without a change:
    the gain of the fastest execution from each part of the hardware and the model, multiplied by factors one at a
    time. The scenario is given as for `best`.

    \b
    Examples:
      shardscape what-if llama-3-8B h100_80g_sxm --procs 8 --max-batch 64 --datatype bfloat16 --list
      shardscape what-if llama-3-8B h100_80g_sxm --procs 8 --max-batch 64 --datatype bfloat16 --change hbm_capacity=120
      shardscape what-if --scenario scenario.json --change "hbm_bandwidth=+1 TB/s" --change net0_size=x2 --each-alone
      shardscape what-if --scenario scenario.json --change "hbm_capacity=+32 GB" --models llama-3-70B --sizes 64,512
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


def _parse_changes(texts: list[str]) -> dict[str, float | str]:
    """Return changes by parameter from texts such as "hbm_bandwidth=6700" or "hbm_bandwidth=+1 TB/s"."""
    found: dict[str, float | str] = {}
    for each in texts:
        name, _, change = each.partition("=")
        if not change.strip():
            raise QuestionError(
                f"--change {each[:60]!r} must be NAME=CHANGE, such as hbm_bandwidth=6700 or 'hbm_bandwidth=+1 TB/s'."
            )
        change = change.strip()
        found[name.strip()] = float(change) if _VALUE.fullmatch(change) else change
    return found


def _print_answer(found: dict[str, Any], table: str, *, csv: bool) -> None:
    import pandas as pd

    if table == "executions" and found["table"]:
        _print_table(found["table"], csv=csv)
        return
    if table != "executions":
        if table == "gains" and not csv:
            write_line("Gains of the fastest execution: a recommended one may change within the error.")
        rows = pd.DataFrame(found[table])
        write_table(rows if csv else rows.drop(columns="description", errors="ignore"), json=False, csv=csv)
        return
    role, role_before = (found[each]["figures_of"] if found[each] else "best" for each in ("shown", "shown_before"))
    names = {"base": f"{role_before} before", "best": f"{role} after", "kept": f"{role_before} before, kept"}
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
            for words, gain in ((f"{role} again", found["gain"]), ("the one before kept", found["kept_gain"]))
            if gain is not None
        ]
        write_line(f"Throughput with {changes}: {', '.join(gains) or 'nothing ran before'}.")
        for sentence in filter(None, (found["explanation"], found["shown"]["remark"])):
            write_line(sentence)
    write_table(rows[[name for name in SHOWN if name in rows]], json=False, csv=False)


def _print_table(rows: list[dict[str, Any]], *, csv: bool) -> None:
    """Print each change alone and all together."""
    import pandas as pd

    table = pd.DataFrame(rows).assign(parameters=[" ".join(row["parameters"]) for row in rows])
    if not csv:
        hidden = ["parameters", "figures_of", *(name for name in ("remark", "problem") if not any(table[name]))]
        table = table.drop(columns=hidden)
    write_table(table, json=False, csv=csv)


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
