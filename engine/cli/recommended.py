"""Output of the recommended execution, mechanisms of the fastest, reasons against others; and of the shown one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.cli.output import format_quantity, text_table, unit_of, write_line
from engine.columns.percentages import format_percent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine import Scenario
    from engine.recommendation import Recommendation, ShownExecution

__all__ = ["write_recommendation", "write_shown", "write_shown_doubts"]


def write_shown(scenario: Scenario, found: ShownExecution) -> None:
    """Print the execution whose figures count, and what speaks against it."""
    import pandas as pd

    from engine.cli.output import executions_table
    from engine.economics import derived_columns
    from engine.recommendation import FIGURES_OF

    table = pd.DataFrame([dict(found.execution)])
    write_line()
    write_line(FIGURES_OF[found.figures_of])
    write_line(executions_table(table, derived_columns(scenario, table), scenario.system, scenario.flop_convention))
    write_shown_doubts(scenario, found)


def write_shown_doubts(scenario: Scenario, found: ShownExecution, before: str = "") -> None:
    """Print that an execution may not fit, rests on something never measured, or is not the one asked for.

    before: beginning of each line.
    """
    from engine.cost_models.words import told_not_measured

    if found.remark:
        write_line(f"{before}{found.remark}")
    if found.execution.get("fit") in ("may not fit", "may fit"):
        write_line(f"{before}It {found.execution['fit']}, within the error of predicted memory.")
    if unknown := scenario.not_measured(found.execution):
        write_line(f"{before}{told_not_measured(unknown)}")


def write_recommendation(found: Recommendation) -> None:
    """Prints the recommendation."""
    terms, own = found.terms, found.execution
    write_line()
    if own is None:
        write_line("Recommended: nothing. Every execution that runs offloads, comes too near to capacity, or rests on")
        write_line(
            "something that was never measured; --headroom, --allow-offload and --allow-unmeasured say what may."
        )
        return
    from engine.recommendation import mechanisms_of

    basis = "" if terms.time is None else f", half the width of the interval of {terms.time.rests_on}"
    room = "" if terms.memory is None else f", the error of memory in {terms.memory.rests_on}"
    write_line(f"Recommended: the simplest of {found.close:,} that are too close to call")
    write_line(_candidates_table(found, [own], [""]))
    write_line(f"It takes {', '.join(mechanisms_of(own).values()) or 'nothing beyond data parallelism'}.")
    write_line(f"Too close to call: within {format_percent(terms.error)}{basis}.")
    write_line(f"Memory kept free: {format_percent(terms.headroom)} of what is predicted{room}.")
    if found.waived:
        write_line(f"Never measured, whatever the execution: {', '.join(found.waived)}.")
    if not found.is_fastest and found.difference is not None:
        write_line(f"The fastest is {format_percent(found.difference)} faster: {found.why}.")
    if found.advice:
        write_line(found.advice)
    if found.contenders:
        write_line()
        write_line("The best of different layouts, and why each is not recommended")
        rows = [one.execution for one in found.contenders]
        write_line(_candidates_table(found, rows, [one.reason or "recommended" for one in found.contenders]))


def _candidates_table(found: Recommendation, rows: list[Mapping[str, Any]], reasons: list[str]) -> str:
    """Return executions as text: layout, speed, memory, and a reason each."""
    import pandas as pd

    from engine.columns import by_name, rates_beside
    from engine.economics import derived_columns

    beside = derived_columns(found.scenario, pd.DataFrame({"sample_rate": [row["sample_rate"] for row in rows]}))
    rows = [
        {**row, **{str(name): value for name, value in more.items()}}
        for row, more in zip(rows, beside.to_dict("records"), strict=True)
    ]
    names = [
        "id",
        "tensor_par",
        "pipeline_par",
        "data_par",
        "context_par",
        "expert_par",
        "microbatch_size",
        "pipeline_interleaving",
        "sample_rate",
        *rates_beside(found.scenario.flop_convention)[:2],
        "total_time",
        "proc_mem_tier1_cap_req",
    ]
    columns = [by_name(name) for name in names if name in rows[0]]
    header = [
        column.short + (f" [{unit_of(column)}]" if column.unit not in ("", "samples/s") else "") for column in columns
    ]
    cells = [[format_quantity(column, row[column.name]) for column in columns] for row in rows]
    if any(reasons):
        header.append("why not")
        cells = [[*row, reason] for row, reason in zip(cells, reasons, strict=True)]
    return text_table(header, cells, left=(0, len(columns)))
