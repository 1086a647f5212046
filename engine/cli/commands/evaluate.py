"""The command `evaluate`: figures of executions that a file lists."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from engine.cli.asked_scenario import write_unrepresented
from engine.cli.options import EXTENSION_NAMES
from engine.cli.output import (
    ExitCode,
    evaluated_by,
    executions_table,
    format_rate,
    statistics_list,
    write_line,
)
from engine.cli.progress import ProgressReport
from engine.cli.question_options import asks
from engine.questions.documents.executions import ExecutionFiguresQuestion

if TYPE_CHECKING:
    import pandas as pd

    from engine.questions.evaluation_settings import EvaluationSetting
    from models.token_flops import Convention

__all__ = ["evaluate_executions"]

ROWS_PRINTED: Final = 20


@asks(ExecutionFiguresQuestion, arguments=("model", "system"))
def evaluate_executions(
    asked: ExecutionFiguresQuestion,
    executions: Annotated[
        Path,
        typer.Argument(
            metavar="EXECUTIONS",
            help="Table with the 23 fields: .csv, .parquet or .json. The cost model calibrated also reads "
            f"{EXTENSION_NAMES} where the table has them.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Results with all statistics: .csv or .parquet.")
    ] = None,
) -> None:
    """Evaluate executions that a file lists.

    A JSON file holds one execution, as Calculon's files do, or a list of them. Every row comes back in its place, with
    its status, the reason where it cannot run, and all statistics of the cost model. Without --out, the first 20 are
    printed; a single one with all its statistics.

    \b
    Examples:
      shardscape evaluate gpt3-175B a100_80g execution.json
      shardscape evaluate my-model.json h100_80g_nvl8 executions.csv --out results.parquet
      shardscape evaluate llama-3-70B h100_80g_sxm executions.csv --calibration ours.json --out results.parquet

    Exit code 1 when none of the executions can run.
    """
    from engine.executions.files import ResultWriter, read_executions
    from engine.questions.evaluation_settings import load_evaluation_setting

    by = _FileEvaluation(load_evaluation_setting(asked), asked.attention)
    name, calibration = by.setting.cost_model.name, by.setting.calibration_name
    counts = dict.fromkeys(("ok", "infeasible", "invalid"), 0)
    start = time.perf_counter()
    if out is None:
        first: pd.DataFrame | None = None
        with ProgressReport("evaluating") as report:
            for results in by.evaluated(read_executions(executions), counts):
                first = results.head(ROWS_PRINTED) if first is None else first
                report(0.0, _evaluated_text(counts, start))
        assert first is not None, "a file has at least one table, if only an empty one"
        _print_results(by, first, sum(counts.values()))
    else:
        with ResultWriter(out, name, calibration) as writer, ProgressReport("evaluating") as report:
            for results in by.evaluated(read_executions(executions), counts):
                writer.write(results)
                report(0.0, _evaluated_text(counts, start))
    total, seconds = sum(counts.values()), time.perf_counter() - start
    listed = "1 execution" if total == 1 else f"{total:,} executions"
    write_line(
        f"{listed} in {seconds:.2f} s: {counts['ok']:,} run, {counts['infeasible']:,} are infeasible, "
        f"{counts['invalid']:,} are invalid ({evaluated_by(name, calibration)}).",
        stream=sys.stderr,
    )
    write_unrepresented(by.setting.model, sys.stderr)
    if by.unread:
        write_line(f"The cost model {name} does not read {', '.join(by.unread)}.", stream=sys.stderr)
    if not counts["ok"]:
        raise typer.Exit(ExitCode.NOTHING)


def _evaluated_text(counts: Mapping[str, int], start: float) -> str:
    """Return the number of executions evaluated so far; the total is unknown before the end of the file."""
    done = sum(counts.values())
    return f"{done:,} executions, {format_rate(done / max(time.perf_counter() - start, 1e-9))}"


class _FileEvaluation:
    """Evaluation of the tables of a file. `unread` are the fields of the tables that the cost model does not have."""

    def __init__(self, setting: EvaluationSetting, attention: Convention | None) -> None:
        self.setting, self.attention = setting, attention
        self.unread: list[str] = []

    @property
    def convention(self) -> Convention:
        """Convention of attention in figures of utilisation."""
        return self.attention or self.setting.cost_model.flop_convention

    def evaluated(self, tables: Iterable[pd.DataFrame], counts: dict[str, int]) -> Iterator[pd.DataFrame]:
        """Results of table after table; `counts` is kept up to date."""
        from engine.columns import fields_of
        from engine.questions.executions import evaluate_in

        read = {column.name for column in fields_of(self.setting.cost_model.name)}
        for table in tables:
            self.unread = [str(name) for name in table.columns if name not in read]
            results = evaluate_in(self.setting, table)
            for status, count in results["status"].value_counts().items():
                counts[str(status)] += int(count)
            yield results

    def fit_sentence(self, results: pd.DataFrame) -> str:
        """Return the sentence about the only one of some results, if it may fit; otherwise ""."""
        from engine.recommendation import add_fits, describe_fit

        model, system, name = self.setting.model, self.setting.system, self.setting.cost_model.name
        found = add_fits(model, system, results, results, cost_model=name, calibration=self.setting.calibration)
        return describe_fit(model, system, found["fit"].iloc[0])

    def beside(self, results: pd.DataFrame) -> pd.DataFrame:
        """Return figures derived from throughputs of executions that run; sizes and datatypes may differ."""
        import pandas as pd

        import engine
        from engine.economics import derived_columns

        found: list[pd.DataFrame] = []
        for _, part in results.groupby(["num_procs", "datatype"]):
            scenario = engine.Scenario.of(
                self.setting.model,
                self.setting.system,
                num_procs=int(part["num_procs"].iloc[0]),
                max_batch_size=int(part["batch_size"].max()),
                datatype=str(part["datatype"].iloc[0]),
                cost_model=self.setting.cost_model.name,
                calibration=self.setting.calibration,
                attention=self.attention,
            )
            found.append(derived_columns(scenario, part))
        return pd.concat(found)


def _table_records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _print_results(by: _FileEvaluation, first: pd.DataFrame, total: int) -> None:
    if total == 1:
        row = _table_records(first)[0]
        if row["status"] == "ok":
            write_line(executions_table(first, by.beside(first), by.setting.system, by.convention))
            write_line()
            write_line(statistics_list(row))
        else:
            write_line(f"{row['status']}: {row['reason_text']} {by.fit_sentence(first)}".rstrip())
        return
    runs = first[first["status"] == "ok"]
    if len(runs):
        write_line(executions_table(runs, by.beside(runs), by.setting.system, by.convention))
    others = first[first["status"] != "ok"]
    for position, row in zip(others.index, _table_records(others), strict=True):
        write_line(f"row {position}: {row['status']}: {row['reason_text']}")
    if total > len(first):
        write_line(f"... {total - len(first):,} more; --out FILE writes all of them.")
