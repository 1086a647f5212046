"""The command `codesign`: runs a study of many designs into a folder, and prints its results."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.options import JsonOption
from engine.cli.output import ExitCode, as_json, write_line
from engine.cli.question_options import asks
from engine.cli.text_tables import write_table
from engine.questions.documents.codesign import DesignsQuestion

if TYPE_CHECKING:
    import pandas as pd

    from engine.codesign import Progress, Results, Study
    from engine.questions.design_pairs import DesignPair
    from engine.questions.designs import DesignFindings

__all__ = ["run_codesign"]

SHOWN = 20
"""Designs that a table prints."""

SAID_EVERY = 10.0
"""Time between two lines of progress where standard error is no terminal [s]."""


@asks(DesignsQuestion)
def run_codesign(
    asked: DesignsQuestion,
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
      shardscape codesign results --beside 12,40
      shardscape codesign results --check
    """
    from engine.codesign import StudyCancelled, StudyError, estimate, ready_names, results, run, time_points
    from engine.codesign.executors import workers_at
    from engine.codesign.reading import nothing_yet
    from engine.exploration.workers import cores
    from engine.questions.designs import find_designs

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
        _report_answers(find_designs(results(study), asked), csv=csv, json=json)
        return
    given, place = _study_and_place(study, folder)
    find_designs(nothing_yet(given), asked)  # questions that cannot be answered are refused before the computation
    if asked.sensitivity is not None:
        given.design(asked.sensitivity)
    there = None if cluster is None else workers_at(cluster)
    _print_message("Timing a few points of each model.")
    expected = estimate(given, (workers or cores()) if there is None else max(1, there), time_points(given))
    if dry:
        write_line(as_json(asdict(expected)) if json else expected.sentence)
        return
    _print_message(expected.sentence)
    if there == 0:
        _print_message(f"No worker has joined the scheduler at {cluster} yet; the study begins when one does.")
    line = _Line()
    try:
        done = run(
            given,
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
    _report_answers(find_designs(results(place), asked), csv=csv, json=json)


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


def _report_answers(findings: DesignFindings, *, csv: bool, json: bool) -> None:
    """Print the best design per budget, the front, what binds, and what more of everything is worth to a design.

    Raises `StudyError` for a design that does not run once all else is printed."""
    import pandas as pd

    from engine.codesign import StudyError
    from engine.questions.designs import designs_document, find_pair, find_worth

    found, asked, refused = findings.results, findings.asked, None
    columns = found.designs(asked.of, asked.at).columns
    alone = pd.DataFrame([findings.best] if findings.best is not None else [], columns=columns)
    if json:
        more = None
        try:
            more = find_worth(findings)
        except StudyError as problem:
            refused = problem
        write_line(as_json(designs_document(findings, more)))
    elif csv:
        write_table(alone if findings.front is None else findings.front, json=False, csv=True)
    else:
        _print_estimate(findings, alone)
        _print_shown(findings)
        if (pair := find_pair(findings)) is not None:
            _print_pair(pair)
        if (more := find_worth(findings)) is not None:
            write_line(f"\nWhere one more dollar goes from design {asked.sensitivity:,}")
            write_table(more.drop(columns="label"), json=False, csv=False)
    if refused is not None:
        raise refused
    if findings.best is None:
        raise typer.Exit(ExitCode.NOTHING)


def _print_estimate(told: DesignFindings, alone: pd.DataFrame) -> None:
    from engine.codesign.estimates import counted

    found = told.results
    if not found.complete:
        write_line(f"{len(found.rows):,} of {found.study.points:,} points are there; answers are about those.\n")
    problems = found.rows[found.rows["status"] == "problem"]
    if len(problems):
        write_line(f"{counted(len(problems), 'point')} cannot be, such as: {problems['problem'].iloc[0]}\n")
    if told.best is None:
        runs = (found.designs(told.asked.of, told.asked.at)["status"] == "ok").any()
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


def _print_shown(told: DesignFindings) -> None:
    """Print the executions of the best design whose figures are asked for."""
    from engine.executions.execution_names import execution_name
    from engine.questions.design_pairs import shown_sides

    if told.best is None:
        return
    write_line("\nDesigns are ranked by their fastest executions.")
    for name, side in shown_sides(told.results, int(str(told.best["design"])), told.asked).items():
        if side is not None:
            row = side.shown.execution
            remark = f" {side.shown.remark}" if side.shown.remark else ""
            write_line(
                f"{side.shown.figures_of.capitalize()} of the best design, {name}: {execution_name(row)}, "
                f"{row['sample_rate']:,.4g} samples/s, step {row['total_time']:,.4g} s.{remark}"
            )


def _print_pair(pair: DesignPair) -> None:
    import pandas as pd

    from engine.questions.design_pairs import find_terms

    write_line(f"\nDesign {pair.one:,} and design {pair.other:,}")
    for table, nothing in (
        (pd.concat([pair.choices, pair.quantities]).drop(columns="label"), "The designs do not differ."),
        (pair.prices, "No item differs in price."),
    ):
        if len(table):
            write_table(table, json=False, csv=False)
        else:
            write_line(nothing)
    for name, (one, other) in pair.sides.items():
        if one is None or other is None:
            write_line(f"{name} does not run on one of the designs.")
            continue
        write_line(f"\nTimes of the step that differ, {one.shown.figures_of} execution of {name} [s]")
        write_table(pd.DataFrame(find_terms(one, other)), json=False, csv=False)


def _print_binding(told: DesignFindings) -> None:
    report = told.binding
    assert report is not None
    among = "searched designs" if told.results.study.document.prune else "designs"
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
