"""The command `plan elastic fit`: the seven parameters from profiled runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.commands.plan_elastic.options import CsvOption, JsonOption
from engine.cli.commands.plan_elastic.tables import write_plans
from engine.cli.output import write_line
from engine.cli.progress import ProgressReport

if TYPE_CHECKING:
    from engine.planners.elastic.cards import Environment, PerformanceParameters
    from engine.planners.elastic.measured.profiles import Profile

__all__ = ["fit_card"]


def fit_card(
    profile: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="Profile of the library, or CSV; see the guide for its columns.")
    ],
    data: Annotated[
        str | None, typer.Option("--data", metavar="FILE", help="Second file of the artifact's two; PROFILE is config.")
    ] = None,
    pcie: Annotated[float | None, typer.Option("--pcie", metavar="B", help="GPU to host [MiB/ms].")] = None,
    nvlink: Annotated[float | None, typer.Option("--nvlink", metavar="B", help="Inside the node [MiB/ms].")] = None,
    starts: Annotated[int, typer.Option("--starts", metavar="K", help="Starts of the search.")] = 12,
    card: Annotated[
        str | None, typer.Option("--card", metavar="CARD", help="Write this card with what was fitted, to --out.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Where to write it.")] = None,
    hold_out: Annotated[bool, typer.Option("--hold-out", help="Also leave out each run in turn.")] = False,
    csv: CsvOption = False,
    json: JsonOption = False,
) -> None:
    """Fits the seven parameters to profiled runs of one node, with bounds, from many starts.

    \b
    Examples:
      shardscape plan elastic fit gpt2
      shardscape plan elastic fit config.csv --data data.csv --pcie 8 --nvlink 50 --hold-out
    """
    from engine.cli.output import as_json
    from engine.planners.elastic.fitting import fit_parameters, held_out

    runs, environment = _load_profile(profile, data, pcie, nvlink)
    with ProgressReport("fitting"):
        found = fit_parameters(runs, environment, starts=starts)
    _write_card(card, out, found.parameters, environment)
    with ProgressReport("fitting with each run left out"):
        left_out = held_out(runs, environment, starts=min(starts, 4)) if hold_out else None
    if json:
        document = {
            "performance": found.parameters.model_dump(),
            "objective": found.objective,
            "at_bound": found.at_bound,
            "unused": found.unused,
            "warnings": [*runs.notes, *found.warnings],
            "runs": found.table.to_dict("records"),
            **({} if left_out is None else {"held_out": left_out.to_dict("records")}),
        }
        write_line(as_json(document))
        return
    if csv:
        write_plans(found.table if left_out is None else left_out, json=False, csv=True)
        return
    write_line(f"Objective {found.objective:.6f}; starts reached {', '.join(f'{each:.4f}' for each in found.starts)}.")
    write_line(", ".join(f"{name} {value:.6g}" for name, value in found.parameters.model_dump().items()))
    write_plans(found.table, json=False, csv=False)
    if left_out is not None:
        write_line("\nErrors of the iteration with the run in the fit and with it left out:")
        write_plans(left_out, json=False, csv=False)
    for note in (*runs.notes, *found.warnings):
        write_line(note)


def _write_card(
    card: str | None, out: Path | None, parameters: PerformanceParameters, environment: Environment
) -> None:
    """Writes a card with fitted parameters and the bandwidths that they were fitted with."""
    from engine.planners.contract import PlanError
    from engine.planners.elastic.cards import changed_card, load_card, save_card

    if (card is None) != (out is None):
        raise PlanError("Give --card and --out together: a card, and where to write it with what was fitted.")
    if card is not None and out is not None:
        changes = {"performance": parameters.model_dump(), "environment": environment.model_dump()}
        save_card(changed_card(load_card(card), changes, name=out.stem), out)


def _load_profile(name: str, data: str | None, pcie: float | None, nvlink: float | None) -> tuple[Profile, Environment]:
    from engine.planners.contract import PlanError
    from engine.planners.elastic.cards import Environment
    from engine.planners.elastic.measured.profiles import joined_profile, profile_names, profile_of, profile_table
    from engine.reproductions.rubick.table_2 import table_2_models

    if data is None and name in profile_names():
        runs, known = profile_of(name), table_2_models()[name].environment
    else:
        runs = profile_table(Path(name)) if data is None else joined_profile(Path(name), Path(data))
        if pcie is None or nvlink is None:
            raise PlanError("Give --pcie and --nvlink, the bandwidths of the node in MiB/ms.")
        known = None
    from engine.planners.elastic.limits import checked_bandwidth

    for given in (pcie, nvlink):
        if given is not None and not checked_bandwidth(given):
            raise PlanError("Bandwidths of a fit are above 0.")
    own = {"pcie": pcie, "nvlink": nvlink}
    base = {} if known is None else known.model_dump()
    return runs, Environment(**{**base, **{name: value for name, value in own.items() if value is not None}})
