"""The command `codesign`: runs a study of many designs into a folder, and prints its results."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import typer

from engine.cli.options import JsonOption
from engine.cli.output import ExitCode, as_json, write_line
from engine.cli.text_tables import write_table

if TYPE_CHECKING:
    import pandas as pd

    from engine.codesign import BindingReport, Progress, Results, Study
    from engine.codesign.answers import At

__all__ = ["run_codesign"]

SHOWN = 20
"""Designs that a table prints."""

SAID_EVERY = 10.0
"""Time between two lines of progress where standard error is no terminal [s]."""


def run_codesign(
    study: Annotated[
        str, typer.Argument(metavar="STUDY.json", help="A study, a ready one by name, or a folder of results.")
    ],
    folder: Annotated[
        str | None, typer.Option("--folder", metavar="FOLDER|URL", help="Where results go; else beside the study.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", min=1, help="Processes on this machine; all its cores.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="ADDRESS", help="Scheduler of a Dask cluster that runs it.")
    ] = None,
    task_seconds: Annotated[
        float, typer.Option("--task-seconds", metavar="S", help="Time of one task; more for thousands of workers.")
    ] = 1.0,
    dry: Annotated[
        bool, typer.Option("--count", help="Time a few points, say counts and the range of the time, and stop.")
    ] = False,
    objective: Annotated[
        list[str] | None, typer.Option("--objective", metavar="NAME", help="Two or three for the front; the study's.")
    ] = None,
    budget: Annotated[
        list[float] | None,
        typer.Option("--budget", metavar="X", help="Best design for each; every budget that matters otherwise."),
    ] = None,
    of: Annotated[str, typer.Option("--of", metavar="mix|MODEL", help="Whose answers.")] = "mix",
    at: Annotated[
        Literal["low", "middle", "high"], typer.Option("--at", help="Which end of the ranges of prices counts.")
    ] = "middle",
    sensitivity: Annotated[
        int | None, typer.Option("--sensitivity", metavar="DESIGN", help="Tell where one more dollar goes, too.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Verify the checksums of a folder of results, and compute nothing.")
    ] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print the front as CSV.")] = False,
    json: JsonOption = False,
) -> None:
    """Run a study of many designs of a machine, each point one proven optimum, and print the best ones.

    Counts and the range of the time come first, from a few points of each model that are timed. The study and its
    folder are the whole state: after any interruption the same command continues. A folder alone shows
    its results without running anything.

    \b
    Examples:
      shardscape codesign study.json --count
      shardscape codesign study.json --folder results --workers 2
      shardscape codesign study.json --folder s3://bucket/study --cluster tcp://10.0.0.1:8786
      shardscape codesign offload_capacity_and_bandwidth --folder offload
      shardscape codesign results --objective tokens_per_s --objective watts --csv
      shardscape codesign results --check
    """
    from engine.codesign import StudyCancelled, StudyError, estimate, ready_names, results, run, time_points
    from engine.codesign.executors import workers_at
    from engine.codesign.reading import nothing_yet
    from engine.exploration.workers import cores

    if csv and json:
        raise StudyError("Give --csv or --json, not both.")
    if check:
        if folder or cluster or workers or dry or csv:
            raise StudyError("--check verifies a folder of results; of the other options it takes --json only.")
        _check_folder(study, json=json)
        return
    if study not in ready_names() and _is_folder(study):
        if folder or cluster or workers or dry:
            raise StudyError(f"{study} is a folder of results; --folder, --cluster, --workers and --count run studies.")
        _report_answers(_collect_answers(results(study), objective, budget, of, at), sensitivity, csv=csv, json=json)
        return
    asked, place = _study_and_place(study, folder)
    _collect_answers(
        nothing_yet(asked), objective, budget, of, at
    )  # what cannot be answered is told before it is computed
    if sensitivity is not None:
        asked.design(sensitivity)
    there = None if cluster is None else workers_at(cluster)
    _print_message("Timing a few points of each model.")
    expected = estimate(asked, (workers or cores()) if there is None else max(1, there), time_points(asked))
    if dry:
        write_line(as_json(asdict(expected)) if json else expected.sentence)
        return
    _print_message(expected.sentence)
    if there == 0:
        _print_message(f"No worker has joined the scheduler at {cluster} yet; the study begins when one does.")
    line = _Line()
    try:
        done = run(
            asked,
            place,
            client=cluster,
            workers=workers,
            progress=line,
            task_seconds=task_seconds,
            point_seconds=expected.point_seconds,
        )
    except StudyCancelled:
        raise KeyboardInterrupt from None
    finally:
        line.clear()
    _print_message(_of_run(done, place))
    _report_answers(_collect_answers(results(place), objective, budget, of, at), sensitivity, csv=csv, json=json)


def _check_folder(folder: str, *, json: bool) -> None:
    """Prints the state of a folder's files; exit code 3 where one is damaged."""
    from engine.codesign import StudyError, check_folder

    if not _is_folder(folder):
        raise StudyError(f"{folder} is no folder of results; --check takes the folder that a study was run into.")
    found = check_folder(folder)
    if json:
        write_line(as_json(found.as_json()))
    else:
        write_line(found.sentence)
        for problem in found.problems.values():
            write_line(problem)
        if found.total:
            write_line(f"{found.points:,} of {found.total:,} points can be read.")
    if not found.is_sound:
        raise typer.Exit(ExitCode.STORE)


def _is_folder(study: str) -> bool:
    return "://" in study or Path(study).is_dir()


def _study_and_place(study: str, folder: str | None) -> tuple[Study, str]:
    """The study and where its results go."""
    from engine.codesign import Study, ready_names, ready_study

    if study in ready_names():
        return ready_study(study), folder or f"{study}.results"
    return Study.read(study), folder or str(Path(study).with_suffix("")) + ".results"


def _print_message(text: str) -> None:
    """Print a message for the user, apart from standard output."""
    write_line(text, stream=sys.stderr)


def _of_run(done: Progress, place: str) -> str:
    from engine.codesign.estimates import counted

    ran = done.done - done.before
    if not ran:
        return f"All {done.total:,} points were there, in {place}."
    there = f"; {done.before:,} were there" if done.before else ""
    skipped = f", {done.skipped:,} of them proven to lose without a search" if done.skipped else ""
    return (
        f"{counted(ran, 'point')}{skipped} in {done.seconds:,.1f} s, {done.rate:,.1f} a second, as "
        f"{counted(done.tasks, 'task')} and {done.bytes / 1e6:,.2f} MB in {place}{there}."
    )


class _Line:
    """Progress of a study: one line that is updated on a terminal; elsewhere an occasional line."""

    def __init__(self) -> None:
        self._shown, self._gone, self._said = sys.stderr.isatty(), False, 0.0

    def __call__(self, progress: Progress) -> None:
        from engine.codesign.running import GONE_SECONDS

        gone = progress.waiting > 0
        if gone and not self._gone:
            self.clear()
            _print_message(
                f"All workers of the cluster are gone; the run ends if none joins within {GONE_SECONDS:.0f} s."
            )
        self._gone = gone
        if self._shown:
            sys.stderr.write(f"\r\x1b[K{_progress_words(progress)}")
            sys.stderr.flush()
        elif progress.seconds - self._said >= SAID_EVERY and progress.done < progress.total:
            self._said = progress.seconds
            _print_message(_progress_words(progress))

    def clear(self) -> None:
        """Removes the line."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _progress_words(progress: Progress) -> str:
    from engine.codesign.estimates import duration

    share, left = progress.done / progress.total, progress.seconds_left
    return (
        f"{share:4.0%}  {progress.done:,} of {progress.total:,} points  {progress.rate:,.3g}/s"
        f"{f'  {duration(left)} left' if left < 1e9 else ''}"
    )


@dataclass(frozen=True, slots=True)
class _Answers:
    """Queries of results and their answers: `best` is the best design of all, None without one."""

    found: Results
    objectives: list[str]
    of: str
    at: At
    budget: str
    """Bounded figures; empty without a bound."""
    objective: str
    best: dict[str, object] | None
    per_budget: pd.DataFrame | None
    front: pd.DataFrame | None
    binding: BindingReport | None


def _collect_answers(
    found: Results, objectives: list[str] | None, budgets: list[float] | None, of: str, at: At
) -> _Answers:
    """The answers of results. Raises `StudyError` for what cannot be asked."""
    from engine.codesign import StudyError, bill
    from engine.codesign.quantities import quantity

    asked = objectives or list(found.study.document.objectives)
    lower = next((name for name in asked if quantity(name).better == "lower"), "")
    if not lower and found.answers("usd") and not bill(found.study, np.zeros(1, np.int64))["usd_low"].isna().any():
        lower = "usd"
    upper = next((name for name in asked if name != lower), asked[0])
    if upper == lower:
        lower = ""
    if budgets and not lower:
        raise StudyError(f"--budget bounds what is lower the better, beside {upper}; give that as an --objective too.")
    return _Answers(
        found,
        asked,
        of,
        at,
        lower,
        upper,
        best=found.best(upper, of=of, at=at),
        per_budget=found.best_per_budget(budgets, budget=lower, objective=upper, of=of, at=at) if lower else None,
        front=found.front(asked, of=of, at=at) if len(asked) > 1 else None,
        binding=found.binding_report(upper, of=of, at=at) if found.study.document.constraints else None,
    )


def _report_answers(told: _Answers, design: int | None, *, csv: bool, json: bool) -> None:
    """Prints the best design per budget, the front, what binds, and what more of everything is worth to a design.

    Raises `StudyError` for a design that does not run once all else is printed."""
    import pandas as pd

    from engine.codesign import StudyError, sensitivity, unpriced

    found, refused = told.found, None

    def worth() -> pd.DataFrame | None:
        return None if design is None else sensitivity(found, design, objective=told.objective, of=told.of, at=told.at)

    alone = pd.DataFrame([told.best] if told.best is not None else [], columns=found.designs(told.of, told.at).columns)
    if json:
        more = None
        try:
            more = worth()
        except StudyError as problem:
            refused = problem
        write_line(
            as_json(
                {
                    "study": found.study.document.name,
                    "key": found.study.key,
                    "complete": found.complete,
                    "points": len(found.rows),
                    "of": told.of,
                    "at": told.at,
                    "best": told.best,
                    "unpriced": {"usd": unpriced(found.study), "watts": unpriced(found.study, "watts")},
                    "best_per_budget": _table_records(told.per_budget),
                    "front": _table_records(told.front),
                    "binding": None if told.binding is None else _table_records(told.binding.table),
                    "constraints": None if told.binding is None else told.binding.as_json(),
                    "sensitivity": _table_records(more),
                }
            )
        )
    elif csv:
        write_table(alone if told.front is None else told.front, json=False, csv=True)
    else:
        _print_estimate(told, alone)
        if (more := worth()) is not None:
            write_line(f"\nWhere one more dollar goes from design {design:,}")
            write_table(more.drop(columns="label"), json=False, csv=False)
    if refused is not None:
        raise refused
    if told.best is None:
        raise typer.Exit(ExitCode.NOTHING)


def _print_estimate(told: _Answers, alone: pd.DataFrame) -> None:
    from engine.codesign.estimates import counted

    found = told.found
    if not found.complete:
        write_line(f"{len(found.rows):,} of {found.study.points:,} points are there; answers are about those.\n")
    problems = found.rows[found.rows["status"] == "problem"]
    if len(problems):
        write_line(f"{counted(len(problems), 'point')} cannot be, such as: {problems['problem'].iloc[0]}\n")
    if told.best is None:
        runs = (found.designs(told.of, told.at)["status"] == "ok").any()
        write_line("No design meets all constraints." if runs else "No design runs.")
    elif told.per_budget is not None:
        write_line(f"Best {told.objective} per budget of {told.budget}")
        _design_table(found, told.per_budget.tail(SHOWN), ["budget", told.objective])
    else:
        write_line(f"Best {told.objective}")
        _design_table(found, alone, [told.objective])
    if told.front is not None and len(told.front):
        if free := found.unpriced(told.objectives):
            write_line(f"\n{free}")
        write_line(f"\nDesigns that none beats in {', '.join(told.objectives)}: {len(told.front):,}")
        _design_table(found, told.front.head(SHOWN), told.objectives)
    if told.binding is not None:
        _print_binding(told)


def _print_binding(told: _Answers) -> None:
    report = told.binding
    assert report is not None
    among = "searched designs" if told.found.study.document.prune else "designs"
    write_line(
        f"\nConstraints: {report.allowed:,} of {report.running:,} {among} that run are allowed, "
        f"{report.refused:,} refused."
    )
    write_table(report.table, json=False, csv=False)

    def reached(value: float, gain: float, design: int | None) -> str:
        return f"{told.objective} {value:,.6g}{'' if gain != gain else f' ({gain:+.1%})'}, design {design:,}"

    if not report.smallest_set:
        write_line("No constraint binds: lifting all of them gives no better design.")
        return
    lifted = " and ".join(report.smallest_set_words)
    value = reached(report.smallest_set_value, report.smallest_set_gain, report.smallest_set_design)
    alone = " No smaller set gives a better design." if len(report.smallest_set) > 1 else ""
    write_line(f"Smallest binding set: {lifted}. Without it: {value}.{alone}")
    value = reached(report.without_all, report.without_all_gain, report.without_all_design)
    write_line(f"Without all constraints: {value}.")


def _design_table(found: Results, table: pd.DataFrame, figures: list[str]) -> None:
    chosen = ["design", *(name for name in found.choices if name != "design" and found.choices[name].nunique() > 1)]
    shown = list(dict.fromkeys([*(name for name in figures if name == "budget"), *chosen, *figures]))
    write_table(table[shown], json=False, csv=False)


def _table_records(table: pd.DataFrame | None) -> list[dict[str, object]] | None:
    return None if table is None else [dict(row) for row in table.to_dict("records")]  # type: ignore[arg-type]
