"""The command `simulate distir`: DistIR's grid of data, horizontal and pipeline parallelism, its figures, its fits."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from engine.cli.options import JsonOption
from engine.cli.output import ExitCode, as_json, text_table, write_line
from engine.cli.progress import ProgressReport
from engine.cli.question_options import asks
from engine.cli.table_files import check_export, write_table_file
from engine.questions.documents.distir import DistIRQuestion
from engine.questions.verb import QuestionError
from hardware import GIB
from models.documents import DocumentError, read_json

if TYPE_CHECKING:
    import pandas as pd

    from engine.questions.distir import DistIRGrid

__all__ = ["simulate_distir"]

SHOWN: Final = ("style", "D", "H", "P", "m", "latency", "throughput", "peak_memory")
HEADERS: Final = ("style", "D", "H", "P", "m", "step [s]", "samples/s", "peak [GiB]")
FIGURE_COLUMNS: Final = {
    "figure-3": ("kind", "series", "devices", "speedup", "reason"),
    "figure-4": ("strategy", "devices", "D", "H", "P", "m", "speedup"),
}
SETTING_OPTIONS: Final = {
    "models": "model",
    "batches": "batch",
    "devices": "devices",
    "revision": "revision",
    "bandwidth_gbps": "bandwidth",
    "microbatches": "microbatches",
}
"""Options of a figure's settings by field."""


@asks(DistIRQuestion, leave_out=("constants", "measurements"))
def simulate_distir(
    asked: DistIRQuestion,
    constants: Annotated[
        Path | None, typer.Option("--constants", metavar="FILE", help="A machine's constants (JSON); R3's otherwise.")
    ] = None,
    fit: Annotated[
        Path | None, typer.Option("--fit", metavar="FILE", help="Fit the constants to measurements (CSV) first.")
    ] = None,
    store: Annotated[
        Path | None, typer.Option("--store", metavar="FILE", help="Keep results there, and take those that are.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write every configuration (.csv or .parquet).")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Write the best step for Chrome's trace viewer.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Simulate DistIR's multilayer perceptron under data (D), horizontal (H) and pipeline (P) parallelism.

    Three revisions of DistIR's simulator, with its own quirks: R1 is the notebook's, R2 mends units, R3 is the last.
    Configurations that cannot run, or need more memory than the limit, are kept with their reason. The figures come
    with the settings of the paper, which are printed; options change them.

    \b
    Sizes: mlp-xs (8 x 512), mlp-small (16 x 8192), mlp-medium (64 x 16384), mlp-large (96 x 32768), notebook
    (64 x 4096), euromlsys21 (64 x 8192): layers x width.

    \b
    Examples:
      shardscape simulate distir --model mlp-small --batch 8192 --memory-limit 4
      shardscape simulate distir --show figure-3
      shardscape simulate distir --show figure-4 --revision R1
      shardscape simulate distir --show measured
      shardscape simulate distir --fit measured.csv --show measured

    \b
    Measurements: a CSV of steps (world_size, num_layers, batch_size, hidden_dim, real_ms) or of single operations
    (op, devices, rows, inner, columns, seconds; op is matmul, send or allreduce).

    \b
    JSON: revision, constants, total, feasible, rejected_by_reason, and rows, the printed rows. Times are in
    seconds, sizes in bytes.

    Exit code 1 when nothing runs within the limits.
    """
    if out is not None:
        check_export(out)
    if constants is not None and fit is not None:
        raise QuestionError("--constants and --fit are two sources of the same; give one of them.")
    asked = asked.model_copy(update=_read_machine(constants, fit))
    with ProgressReport("simulating configurations") as progress:
        found = _find_grid(asked, store, progress)
    if found.settings.show in FIGURE_COLUMNS:
        _write_settings(asked, found)
    if json:
        write_line(as_json(found.document()))
    else:
        _print_grid(found)
    if asked.show != "measured" and out is not None:
        write_table_file(found.table, out)
        write_line(f"{len(found.table):,} configurations are in {out}.", stream=sys.stderr)
    if not found.is_search:
        return
    if trace is not None and len(found.feasible):
        _write_trace(found, trace)
    if not len(found.feasible):
        raise typer.Exit(ExitCode.NOTHING)


def _read_machine(constants: Path | None, fit: Path | None) -> dict[str, Any]:
    """Return the fields of the question that files give."""
    from engine.reproductions.distir.simulator.calibration import read_text_file

    if constants is not None:
        document = read_json(constants, "set of constants", DocumentError)
        if not isinstance(document, dict):
            raise QuestionError(f"{constants} holds no constants; it must be a JSON object.")
        return {"constants": document}
    return {} if fit is None else {"measurements": read_text_file(fit)}


def _find_grid(asked: DistIRQuestion, store: Path | None, progress: ProgressReport) -> DistIRGrid:
    """Return the grid, from the store where it has configurations."""
    from engine.questions.bounds import Context
    from engine.questions.distir import find_distir_grid
    from engine.reproductions.distir.simulator import Records
    from engine.store import Store

    with ExitStack() as stack:
        records = None if store is None else Records(stack.enter_context(Store(store)))
        return find_distir_grid(asked, records=records, context=Context(tell=progress))


def _write_settings(asked: DistIRQuestion, found: DistIRGrid) -> None:
    """Print the settings of a figure, and which of them are not the paper's."""
    from engine.questions.distir import FIGURE_SETTINGS

    published = FIGURE_SETTINGS[asked.show]
    given = {name: getattr(found.settings, name) for name in SETTING_OPTIONS}
    given |= {"revision": found.constants.revision, "bandwidth_gbps": found.bandwidth_gbps}
    words = ", ".join(f"--{SETTING_OPTIONS[name]} {_option_text(value)}" for name, value in given.items())
    changed = [f"--{SETTING_OPTIONS[name]}" for name, value in given.items() if value != published[name]]
    tail = f" {' and '.join(changed)} are not the paper's." if changed else ""
    write_line(f"Settings of {asked.show.replace('-', ' ')}: {words}.{tail}", stream=sys.stderr)


def _option_text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _print_grid(found: DistIRGrid) -> None:
    """Print the rows of the answer; of a search its totals, of measured steps their constants first."""
    show = found.settings.show
    if show == "measured":
        values = found.constants.model_dump(exclude_none=True).items()
        named = ", ".join(f"{name} {value:.6g}" for name, value in values if isinstance(value, float))
        write_line(f"{found.constants.revision}: {named}")
        _print_table(found.rows, list(found.rows.columns))
        return
    if found.is_search:
        shapes = ", ".join(f"{each.layers} layers of width {each.width:,}" for each in found.sizes.values())
        write_line(
            f"{shapes}; {found.constants.revision}, {found.bandwidth_gbps:g} Gbps: {len(found.table):,} "
            f"configurations, {len(found.feasible):,} of them run"
        )
        if rejected := found.rejected_by_reason:
            rows = [(reason, f"{number:,}") for reason, number in rejected.items()]
            write_line(text_table(("rejected because", "configurations"), rows))
    several = {"model": found.sizes, "batch": found.settings.batches or ()}
    apart = [name for name, each in several.items() if len(each) > 1]
    _print_table(found.rows, FIGURE_COLUMNS.get(show, (*apart, *SHOWN)))


def _print_table(table: pd.DataFrame, columns: Sequence[str]) -> None:
    headers = [dict(zip(SHOWN, HEADERS, strict=True)).get(name, name) for name in columns]
    lines = [[_format_cell(name, row[name]) for name in columns] for row in table.to_dict("records")]
    write_line()
    write_line(text_table(headers, lines, left=(0,)))


def _format_cell(name: str, value: Any) -> str:
    """Return a value with four digits; memory in GiB; empty text without a value."""
    if isinstance(value, float):
        value = value / GIB if name == "peak_memory" else value
        return "-" if value != value else f"{value:.4g}"
    return str(value)


def _write_trace(found: DistIRGrid, path: Path) -> None:
    """Write the events of the fastest configuration's step."""
    from engine.executions.files import TableWriteError
    from engine.reproductions.distir.simulator import timeline

    best = found.feasible.sort_values("throughput").iloc[-1]
    degrees = {name: int(best[name]) for name in ("D", "H", "P", "m", "width", "layers", "batch")}
    events = timeline(
        revision=found.constants.revision,
        bandwidth_gbps=found.bandwidth_gbps,
        filtered=found.settings.filtered,
        **degrees,
        **found.constants.arguments(),
    )
    try:
        path.write_text(as_json(events.chrome_trace()), encoding="utf-8")
    except OSError as error:
        raise TableWriteError(f"{path} cannot be written: {error.strerror or error}.") from error
    write_line(f"{path} is written.", stream=sys.stderr)
