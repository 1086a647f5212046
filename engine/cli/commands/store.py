"""The command `store check`: reads a whole store, and repairs or drops damaged or lost data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.cli.options import JsonOption
from engine.cli.output import ExitCode, as_json, write_line

if TYPE_CHECKING:
    from engine.exploration.store_check import Finding
    from engine.store import Store

__all__ = ["store_app"]

store_app = typer.Typer(help="Result stores: check one, repair or drop what is damaged.", no_args_is_help=True)


@store_app.callback()
def describe_stores() -> None:
    """Result stores: check one, repair or drop damaged data."""


@store_app.command("check")
def check_store(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Result store (.duckdb).", readable=False)],
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Explore again what is damaged or lost; add checksums where there are none."),
    ] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Remove what is damaged, and forget what is lost.")] = False,
    json: JsonOption = False,
) -> None:
    """Read everything in a result store and compare it with its checksums; each finding is a sentence.

    Without options the store is only read. Files beside it that are not its own are named and left alone.

    \b
    Examples:
      shardscape store check results.duckdb
      shardscape store check results.duckdb --repair

    \b
    JSON: store, explorations (their number), findings (kind: damaged, lost, unprotected or note; key, sentence, done:
    what was done about it, null for nothing).

    Exit code 3 when something is damaged or lost and stays so.
    """
    from engine.exploration.store_check import check_store
    from engine.store import Store

    if repair and drop:
        raise typer.BadParameter("either --repair or --drop.")
    found: list[dict[str, Any]] = []
    with Store(file, read_only=not (repair or drop), rebuild=repair or drop) as store:
        for finding in list(check_store(store)):
            done, problem = _dealt_with(store, finding, repair=repair, drop=drop)
            found.append({"kind": finding.kind, "key": finding.key, "sentence": finding.sentence, "done": done})
            if not json:
                write_line(" ".join(part for part in (finding.sentence, done, problem) if part))
        number = len(store.records())
    open_still = [one for one in found if one["kind"] in ("damaged", "lost") and one["done"] is None]
    if json:
        write_line(as_json({"store": str(store.path), "explorations": number, "findings": found}))
    elif not any(one["kind"] in ("damaged", "lost") for one in found):
        write_line(
            f"{number:,} explorations are as they were stored." if number != 1 else "1 exploration is as it was stored."
        )
    elif open_still and not (repair or drop):
        write_line("--repair explores again what is damaged or lost, --drop removes and forgets it.")
    if open_still:
        raise typer.Exit(ExitCode.STORE)


def _dealt_with(store: Store, finding: Finding, *, repair: bool, drop: bool) -> tuple[str | None, str]:
    """Return a sentence on the repair of a finding, and the reason if it failed."""
    from engine.exploration import store_check

    if drop and finding.kind in ("damaged", "lost"):
        store_check.drop_exploration(store, finding)
        return ("It was removed." if finding.kind == "damaged" else "It is forgotten."), ""
    if repair and finding.kind == "unprotected":
        store_check.add_checksums(store, finding)
        return "They have checksums now.", ""
    if repair and finding.kind in ("damaged", "lost"):
        problem = _explored_again(store, finding)
        return (None, problem) if problem else ("It was explored again.", "")
    return None, ""


def _explored_again(store: Store, finding: Finding) -> str:
    """Explore damaged or lost data again; return the reason if that fails."""
    from engine import Scenario, explore_scenario
    from engine.exploration import store_check

    try:
        scenario = Scenario.from_document(finding.scenario)
        if scenario.key != finding.key:
            return "This version would give other results, so it was left as it is: --drop removes it."
    except ValueError as problem:
        return f"It cannot be explored again ({str(problem).rstrip('.')}): --drop removes it."
    if finding.kind == "damaged":
        store_check.give_way(store, finding)
    explore_scenario(scenario, store=store)
    return ""
