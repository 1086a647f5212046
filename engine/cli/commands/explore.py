"""The command `explore`: every execution of a space, with progress, limits, a store and an export."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.cli.asked_scenario import write_error, write_framework_cost, write_reasons, write_scenario, write_stages
from engine.cli.options import JsonOption
from engine.cli.output import ExitCode, as_json, executions_table, format_rate, write_line
from engine.cli.progress import ExplorationLine
from engine.cli.question_options import asks
from engine.questions.documents.explorations import ExploreQuestion

if TYPE_CHECKING:
    import pandas as pd

    from engine import Exploration, Scenario

__all__ = ["explore_space"]


@asks(ExploreQuestion, arguments=("model", "system"), leave_out=("statistics",), flatten="scenario")
def explore_space(
    asked: ExploreQuestion,
    store: Annotated[
        Path | None,
        typer.Option("--store", metavar="FILE", readable=False, help="Result store (.duckdb), made if it is missing."),
    ] = None,
    json: JsonOption = False,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE", help="Write every feasible execution (.csv or .parquet)."),
    ] = None,
) -> None:
    """Evaluate every execution of a model on a number of GPUs.

    With --store, results are kept and the same scenario is never evaluated twice.

    \b
    Limits:
      --limit tensor_par=1,2,4,8        one of these
      --limit pipeline_par=2..16        a range; either end may be left out
      --limit weight_offload=off        a flag: on or off
      --limit batch_size=256,512        these batches instead of the largest
      --limit attention_type=multihead,multiquery
      --limit uneven_pipelines=on       pipelines that do not divide the blocks, too
      --limit memory_excess=14          memory up to 14 % above the capacity: it may fit
      --limit context_par=1,2,4         a field of the cost model calibrated
      --framework torchtitan            what a training framework runs; --limit framework=torchtitan elsewhere

    \b
    Examples:
      shardscape explore gpt3-175B h100_80g_nvl8 --procs 512 --max-batch 512 --datatype float16 --store results.duckdb
      shardscape explore gpt3-13B h100_80g_nvl8 --procs 32 --max-batch 32 --datatype float8 --top 3 --json
      shardscape explore gpt3-13B a100_80g --procs 64 --max-batch 64 --datatype float16 --by proc_mem_tier1_cap_req
      shardscape explore llama-3-70B h100_80g_sxm --procs 64 --max-batch 128 --datatype bfloat16 --limit launch=graphs

    \b
    JSON with a framework: framework_cost (sentence, sample_rate, sample_rate_of_any, slowdown, obstacles: what the
    fastest of any framework has that this one does not run).

    \b
    JSON: model, system, num_procs, max_batch_size, datatype, limits, cost_model, calibration (its name),
    not_represented (of the model), model_document (null for a model of the library), total,
    feasible, may_fit (how many exceed a capacity, within the limit memory_excess), infeasible_by_reason (a number
    per reason), best (the highest sample rate: fields and statistics,
    and fit: fits, may not fit or may fit, where the error of predicted memory is known),
    step_time_interval (of that: low, high [s], the share of comparable measured runs between them, rows, sources, runs,
    held_of_sources_left_out, few_sources; null where no runs tell), not_measured (what no measured run had of what that
    rests on), top (a list of such), seconds, executions_per_second, from_store, cells (with --cells). Times are in
    seconds and sizes in bytes; null stands for an infinite requirement, and for what the cost model does not have.

    Exit code 1 when nothing is feasible.
    """
    import engine
    from engine.questions.explorations import check_headline
    from engine.questions.framework_costs import searchable_scenario
    from engine.recommendation import table_with_fit, with_fit
    from engine.store import Store

    scenario, by = searchable_scenario(asked.scenario), asked.by
    check_headline(scenario, by)
    if export is not None:
        _check_export(export)
    opened = None
    if store is not None:
        opened = Store(store)
        for sentence in opened.losses:
            write_line(sentence, stream=sys.stderr)
    line = ExplorationLine(sys.stderr)
    start = time.perf_counter()
    with _Interruptible() as cancel:
        try:
            found = engine.explore_scenario(scenario, store=opened, progress=line, cancel=cancel)
        except engine.ExplorationCancelled:
            line.clear()
            write_line("Interrupted; nothing was stored.", stream=sys.stderr)
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        finally:
            line.clear()
    again = not line.calls
    seconds = found.timings.get("explore", 0.0) if again else time.perf_counter() - start
    best_rows = with_fit(scenario, found.top(asked.top, by)) if asked.top and found.feasible else None
    if json:
        write_line(as_json(_exploration_document(found, asked, best_rows, seconds, again)))
    else:
        _print_exploration(found, best_rows, by, seconds, again)
    if export is not None:
        rows = found.rows.export(export, complete=partial(table_with_fit, scenario))
        write_line(f"{rows:,} executions are in {export}.", stream=sys.stderr)
    if not found.feasible:
        raise typer.Exit(ExitCode.NOTHING)


def _check_export(path: Path) -> None:
    """Says so before exploring where the export could only fail after it."""
    from engine.executions.files import WRITABLE, TableFileError, TableWriteError

    if path.suffix.lower() not in WRITABLE:
        raise TableFileError(f"{path} cannot be written; its name must end in {' or '.join(WRITABLE)}.")
    if path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
        raise TableWriteError(f"{path} cannot be written; name a file in a folder that exists and may be written to.")


class _Interruptible:
    """Turns the first Ctrl-C into an event, so that work stops at a place where nothing is left half done."""

    def __enter__(self) -> threading.Event:
        event = threading.Event()

        def stop(number: int, frame: FrameType | None) -> None:
            event.set()
            signal.signal(signal.SIGINT, signal.default_int_handler)

        self._before: Any = None
        with suppress(ValueError):  # only the main thread may, and only it is interrupted
            self._before = signal.signal(signal.SIGINT, stop)
        return event

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)


def _exploration_document(
    found: Exploration, asked: ExploreQuestion, best: pd.DataFrame | None, seconds: float, again: bool
) -> dict[str, Any]:
    from engine.questions.explorations import cell_rows, exploration_document

    return {
        **exploration_document(found),
        "best": None if found.best is None else _row_with_fit(found.scenario, found.best),
        "top": [] if best is None else best.to_dict("records"),
        "seconds": seconds,
        "executions_per_second": found.total / seconds if seconds > 0 else None,
        "from_store": again,
        **({"cells": cell_rows(found, asked.by)} if asked.cells else {}),
    }


def _row_with_fit(scenario: Scenario, row: dict[str, Any]) -> dict[str, Any]:
    """Return an execution with its fit into memory behind its outcome, where that is known."""
    import pandas as pd

    from engine.recommendation import with_fit

    table = with_fit(scenario, pd.DataFrame([row]))
    return {str(name): row.get(str(name), table[name].iloc[0]) for name in table}


def _print_exploration(found: Exploration, best: pd.DataFrame | None, by: str, seconds: float, again: bool) -> None:
    from engine.columns import by_name
    from engine.economics import derived_columns

    write_scenario(found.scenario)
    speed = f"{seconds:.2f} s, {format_rate(found.total / seconds)}" if seconds > 0 else "0 s"
    may = f", {found.may_fit:,} of those only may fit" if found.may_fit else ""
    write_line(
        f"{found.total:,} executions, {found.feasible:,} of them feasible{may} "
        f"({'remembered; evaluated in ' if again else ''}{speed})"
    )
    write_reasons(found.infeasible_by_reason)
    if best is not None and len(best):
        write_line()
        write_line(f"Best by {by_name(by).label.lower()}" if len(best) > 1 else f"Best {by_name(by).label.lower()}")
        write_line(
            executions_table(
                best, derived_columns(found.scenario, best), found.scenario.system, found.scenario.flop_convention
            )
        )
        write_stages(found.scenario, best.iloc[0].to_dict())
        write_error(found.scenario, best.iloc[0].to_dict())
    elif not found.total:
        write_line("No execution is within the limits.")
    elif not found.feasible:
        write_line()
        write_line("Nothing is feasible: more memory, more GPUs or fewer limits would be needed.")
    write_framework_cost(found.scenario)
