"""The commands that list, show and check models and systems."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.cli.options import JsonOption
from engine.cli.output import ExitCode, as_json, text_table, write_line

if TYPE_CHECKING:
    import hardware

__all__ = ["models_app", "systems_app"]

Names = Annotated[list[str], typer.Argument(metavar="FILE...", help="JSON files, in our format or Calculon's.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Library name, or path of a JSON file.")]

models_app = typer.Typer(help="Models: list the library, show one, check files.", no_args_is_help=True)
systems_app = typer.Typer(help="Systems: list the library, show one, check files.", no_args_is_help=True)


@models_app.command("list")
def list_models(json: JsonOption = False) -> None:
    """Models of the library, with their size and whether the calculon cost model can represent them."""
    import models
    from engine.questions.library_rows import model_row

    rows = [model_row(models.load(name)) for name in models.names()]
    if json:
        write_line(as_json(rows))
        return
    headers = ("name", "title", "parameters", "sequence", "blocks", "hidden")
    write_line(text_table(headers, [[_format_cell(row[name]) for name in headers] for row in rows], left=(0, 1)))
    if not all(row["explorable"] for row in rows):
        write_line(
            "\nModels without a number of blocks (experts, latent attention, layers in a pattern) are not for the "
            "calculon cost model."
        )


@systems_app.command("list")
def list_systems(json: JsonOption = False) -> None:
    """Systems of the library, with peak rates, memory and networks."""
    import hardware
    from engine.questions.library_rows import system_row

    rows = [system_row(hardware.load(name)) for name in hardware.names()]
    if json:
        write_line(as_json(rows))
        return
    headers = ("name", "title", "datatypes", "memory [GiB]", "[GB/s]", "host [GiB]", "network sizes", "assumed")
    cells = [
        [
            row["name"],
            row["title"],
            ", ".join(row["datatypes"]),
            _format_cell(row["mem1_gib"]),
            _format_cell(row["mem1_gb_per_s"]),
            _format_cell(row["mem2_gib"]),
            " / ".join(map(str, row["network_sizes"])),
            _format_cell(row["assumed_values"]),
        ]
        for row in rows
    ]
    write_line(text_table(headers, cells, left=(0, 1, 2)))


@models_app.command("show")
def show_model(name: Name, json: JsonOption = False) -> None:
    """One model: its numbers, their source, and what the calculon cost model leaves out of it."""
    import models

    model = models.load(name)
    if json:
        write_line(as_json(models.to_document(model)))
        return
    document = models.to_document(model)
    if model.layers is not None:
        document["layers"] = model.layers.describe()
    if model.tower is not None:
        document["tower"] = model.tower.describe()
    _print_document(document)
    counts = model.counts
    if counts is not None:
        write_line(f"parameters: {counts.total:,}; {counts.active:,} of them pass a token")
        if counts.tower:
            write_line(f"parameters of the tower for images: {counts.tower:,}")
        write_line(
            f"kept of a sequence in bfloat16: {counts.cache_bytes_per_token:,.0f} bytes per token, "
            f"{counts.window_bytes_per_sequence:,.0f} bytes inside full windows, "
            f"{counts.state_bytes_per_sequence:,} bytes of states"
        )
    if model.block is not None and model.architecture is not None:
        write_line("block, as evaluated:")
        _print_document(model.block.model_dump(), "  ")
    for sentence in model.not_represented:
        write_line(f"not represented: {sentence}")
    for sentence in models.unrepresented(model):
        write_line(f"not represented by any cost model: {sentence}")


@systems_app.command("show")
def show_system(name: Name, json: JsonOption = False) -> None:
    """One system: its numbers with units, their source, and every assumed value with its basis."""
    import hardware

    system = hardware.load(name)
    if json:
        write_line(as_json(hardware.to_document(system)))
        return
    document = hardware.to_document(system)
    document.pop("assumptions", None)
    _print_document(document)
    if assumed := system.assumed_values():
        write_line("assumed, not read from a datasheet:")
        for path, value, basis in assumed:
            write_line(f"  {path} = {_format_cell(value)}: {basis}")
    from engine.cost_models.registry import COST_MODELS

    _say_ignored(system)
    for cost_model in COST_MODELS.values():
        rates = cost_model.sustained_rates(system, None)
        if rates:
            write_line(f"sustained by the {cost_model.name} cost model:")
        for rate in rates:
            write_line(f"  {rate.name}: {rate.sustained:.4g} {rate.unit}, {rate.share:.0%} of {rate.peak:.4g}")
            write_line(f"    {rate.provenance}: {rate.basis}")


@models_app.command("check")
def check_models(files: Names) -> None:
    """Check model files; exit code 2 when one of them cannot be used."""
    import models

    _check_files(files, models.load, "model")


@systems_app.command("check")
def check_systems(files: Names) -> None:
    """Check system files; exit code 2 when one of them cannot be used."""
    import hardware
    from engine.cost_models.registry import chosen_cost_model

    def usable(file: str) -> hardware.System:
        system = hardware.load(file)
        chosen_cost_model(None, system)
        return system

    _check_files(files, usable, "system", _say_ignored)


def _say_ignored(system: hardware.System) -> None:
    """Print the values of a system that change no figure, by cost model."""
    from engine.cost_models.registry import COST_MODELS, ignored_paths

    for cost_model in COST_MODELS.values():
        if paths := ignored_paths(system, cost_model):
            write_line(f"without effect in the {cost_model.name} cost model: {', '.join(paths)}")


def _check_files(
    files: list[str], load: Callable[[str], Any], noun: str, say: Callable[[Any], None] | None = None
) -> None:
    from engine import CostModelError
    from models.documents import DocumentError

    failed = False
    for file in files:
        try:
            found = load(file)
        except (CostModelError, DocumentError) as error:
            failed = True
            write_line(f"{file}: {error}" if file not in str(error) else str(error))
        else:
            write_line(f"{file}: a {noun}, {found.title or found.name}")
            if say is not None:
                say(found)
    if failed:
        raise typer.Exit(ExitCode.INPUT)


def _format_cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.6g}" if isinstance(value, float) else str(value)


def _print_document(document: Any, indent: str = "") -> None:
    """A JSON document as indented lines; short lists on one line."""
    for key, value in document.items():
        if isinstance(value, dict):
            write_line(f"{indent}{key}:")
            _print_document(value, indent + "  ")
        elif isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
            for position, each in enumerate(value):
                write_line(f"{indent}{key}[{position}]:")
                _print_document(each, indent + "  ")
        elif value not in (None, "", []):
            write_line(
                f"{indent}{key}: {', '.join(map(str, value)) if isinstance(value, list) else _format_cell(value)}"
            )
