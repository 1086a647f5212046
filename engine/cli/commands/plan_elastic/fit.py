"""The command `plan elastic fit`: the seven parameters from profiled runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.commands.plan_elastic.options import CsvOption, JsonOption, read_profile
from engine.cli.commands.plan_elastic.tables import write_plans
from engine.cli.output import as_json, write_line
from engine.cli.progress import ProgressReport
from engine.cli.question_options import asks
from engine.questions.documents.elastic import ProfileFitQuestion

if TYPE_CHECKING:
    from engine.planners.elastic.cards import Environment, PerformanceParameters

__all__ = ["fit_card"]


@asks(ProfileFitQuestion, arguments=("profile",), readers={"profile": read_profile, "data": read_profile})
def fit_card(
    asked: ProfileFitQuestion,
    card: Annotated[
        str | None, typer.Option("--card", metavar="CARD", help="Write this card with what was fitted, to --out.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Where to write it.")] = None,
    csv: CsvOption = False,
    json: JsonOption = False,
) -> None:
    """Fits the seven parameters to profiled runs of one node, with bounds, from many starts.

    \b
    Examples:
      shardscape plan elastic fit gpt2
      shardscape plan elastic fit config.csv --data data.csv --pcie 8 --nvlink 50 --hold-out
    """
    from engine.questions.elastic_fits import find_environment, fit_profile

    with ProgressReport("fitting") as report:
        found = fit_profile(asked, report)
    fit, left_out = found.fit, found.held_out
    _write_card(card, out, fit.parameters, find_environment(asked))
    if json:
        write_line(as_json(found.document()))
        return
    if csv:
        write_plans(fit.table if left_out is None else left_out, json=False, csv=True)
        return
    write_line(f"Objective {fit.objective:.6f}; starts reached {', '.join(f'{each:.4f}' for each in fit.starts)}.")
    write_line(", ".join(f"{name} {value:.6g}" for name, value in fit.parameters.model_dump().items()))
    write_plans(fit.table, json=False, csv=False)
    if left_out is not None:
        write_line("\nErrors of the iteration with the run in the fit and with it left out:")
        write_plans(left_out, json=False, csv=False)
    for note in (*found.notes, *fit.warnings):
        write_line(note)


def _write_card(
    card: str | None, out: Path | None, parameters: PerformanceParameters, environment: Environment
) -> None:
    """Write a card with fitted parameters and the bandwidths that they were fitted with."""
    from engine.planners.contract import PlanError
    from engine.planners.elastic.cards import changed_card, load_card, save_card

    if (card is None) != (out is None):
        raise PlanError("Give --card and --out together: a card, and where to write it with what was fitted.")
    if card is not None and out is not None:
        changes = {"performance": parameters.model_dump(), "environment": environment.model_dump()}
        save_card(changed_card(load_card(card), changes, name=out.stem), out)
