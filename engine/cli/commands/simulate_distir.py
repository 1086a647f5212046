"""The command `simulate distir`: DistIR's grid of data, horizontal and pipeline parallelism, its figures, its fits."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from engine.cli.options import JsonOption
from engine.cli.output import ExitCode, as_json, text_table, write_line
from engine.cli.progress import ProgressReport
from engine.cli.table_files import check_export, write_table_file
from hardware import GIB

if TYPE_CHECKING:
    import pandas as pd

    from engine.simulate.distir import Constants

__all__ = ["simulate_distir"]

USUAL: Final = {
    "model": "notebook",
    "batch": "4096",
    "devices": "1,2,4,8,16,32",
    "revision": "R3",
    "microbatches": "all",
}
"""Settings where no option says otherwise."""
FIGURES: Final[Mapping[str, Mapping[str, Any]]] = {
    "figure-3": {
        "model": "notebook",
        "batch": "512,1024,2048,4096",
        "devices": "2,4,8,16,32",
        "revision": "R1",
        "bandwidth": 200.0,
        "microbatches": "4,8,16,32",
    },
    "figure-4": {
        "model": "euromlsys21",
        "batch": "8192",
        "devices": "1,2,4,8,16",
        "revision": "EuroMLSys21",
        "bandwidth": 200.0,
        "microbatches": "R1",
    },
}
"""Settings of the published figures. Source: the notebook of microsoft/dist-ir at 3386edc, and the published grid."""
SHOWN: Final = ("style", "D", "H", "P", "m", "latency", "throughput", "peak_memory")
HEADERS: Final = ("style", "D", "H", "P", "m", "step [s]", "samples/s", "peak [GiB]")


class Show(StrEnum):
    """Results to print."""

    TOP = "top"
    PARETO = "pareto"
    FIGURE_3 = "figure-3"
    FIGURE_4 = "figure-4"
    MEASURED = "measured"


def simulate_distir(
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="NAME,...", help="Sizes: mlp-xs, mlp-small, ...; see below. [notebook]"),
    ] = None,
    layers: Annotated[int | None, typer.Option("--layers", metavar="N", help="Weights, instead of the size's.")] = None,
    width: Annotated[int | None, typer.Option("--width", metavar="N", help="Their width, likewise.")] = None,
    batches: Annotated[str | None, typer.Option("--batch", metavar="B,...", help="Samples of a step. [4096]")] = None,
    devices: Annotated[
        str | None, typer.Option("--devices", metavar="N,...", help="Numbers of devices. [1,2,4,8,16,32]")
    ] = None,
    revision: Annotated[
        str | None, typer.Option("--revision", metavar="R", help="R1, R2, R3, or EuroMLSys21. [R3]")
    ] = None,
    bandwidth: Annotated[
        float | None, typer.Option("--bandwidth", metavar="GBPS", help="Between devices; the constants', or 25.")
    ] = None,
    filtered: Annotated[
        bool, typer.Option("--filtered", help="Count steps with weights in place; R3 always does.")
    ] = False,
    memory_limit: Annotated[
        float | None, typer.Option("--memory-limit", metavar="GIB", help="Memory of a device [GiB].")
    ] = None,
    microbatches: Annotated[
        str | None,
        typer.Option("--microbatches", metavar="RULE", help="all, R1 or R3; or numbers, for figure-3. [all]"),
    ] = None,
    show: Annotated[Show, typer.Option("--show", help="What is printed.")] = Show.TOP,
    top: Annotated[int, typer.Option("--top", metavar="K", min=1, max=10_000, help="Best of each batch.")] = 10,
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
    from engine.simulate import distir as simulator

    if out is not None:
        check_export(out)
    figure = FIGURES.get(show.value, {})
    settings = {**USUAL, **figure}
    options = {"model": model, "batch": batches, "devices": devices, "revision": revision, "microbatches": microbatches}
    model, batches, devices, revision, microbatches = (
        settings[name] if value is None else value for name, value in options.items()
    )
    chosen = _load_constants(constants, fit, revision)
    if bandwidth is None:
        bandwidth = chosen.bandwidth_gbps or figure.get("bandwidth", 25.0)
    if figure:
        own = {**options, "bandwidth": bandwidth}
        _say_settings(show, {name: own[name] or value for name, value in figure.items()}, chosen.revision)
    document: dict[str, Any] = {
        "revision": chosen.revision,
        "constants": chosen.model_dump(exclude_none=True),
        "bandwidth_gbps": bandwidth,
    }
    if show is Show.MEASURED:
        _compare_measurements(chosen if (constants or fit) else None, fit, document, json)
        return
    sizes = {name: _network_size(name, layers, width) for name in model.split(",")}
    size = next(iter(sizes.values()))
    samples, numbers = _parse_integers("--batch", batches), _parse_integers("--devices", devices)
    if show is Show.FIGURE_3:
        counts = _parse_integers("--microbatches", microbatches)
        with ProgressReport("simulating the figure"):
            table = simulator.over_devices(
                revision=chosen.revision,
                width=size.width,
                layers=size.layers,
                batch=max(samples),
                batches=samples,
                microbatches=counts,
                devices=[number for number in numbers if number > 1],
                bandwidth_gbps=bandwidth,
                **chosen.arguments(),
            )
        _print_table(table, ["kind", "series", "devices", "speedup", "reason"], document, json)
        _export_table(table, out)
        return
    with ProgressReport("simulating configurations"):
        table = _search_configurations(
            sizes, samples, numbers, bandwidth, chosen, memory_limit, microbatches, filtered, store
        )
    runs = table[table["reason"] == ""]
    rejected = table.loc[table["reason"] != "", "reason"].value_counts()
    document |= {"total": len(table), "feasible": len(runs), "rejected_by_reason": rejected.to_dict()}
    if not json:
        shapes = ", ".join(f"{each.layers} layers of width {each.width:,}" for each in sizes.values())
        write_line(
            f"{shapes}; {chosen.revision}, {bandwidth:g} Gbps: {len(table):,} configurations, {len(runs):,} of them run"
        )
        if len(rejected):
            write_line(
                text_table(("rejected because", "configurations"), [(str(k), f"{n:,}") for k, n in rejected.items()])
            )
    if show is Show.FIGURE_4:
        first = table[(table["batch"] == samples[0]) & (table["model"] == next(iter(sizes)))]
        lines = simulator.envelopes(simulator.with_speedup(first))
        _print_table(lines, ["strategy", "devices", "D", "H", "P", "m", "speedup"], document, json)
    else:
        best = simulator.top_configurations(table, top) if show is Show.TOP else simulator.pareto(table)
        asked = [name for name, several in (("model", sizes), ("batch", samples)) if len(several) > 1]
        _print_table(best, [*asked, *SHOWN], document, json)
    _export_table(table, out)
    if trace is not None and len(runs):
        _write_trace(runs.sort_values("throughput").iloc[-1], trace, chosen, bandwidth, filtered)
    if not len(runs):
        raise typer.Exit(ExitCode.NOTHING)


def _say_settings(show: Show, settings: Mapping[str, Any], revision: str) -> None:
    """The settings of a figure, and which of them are not the paper's."""
    given = {**settings, "revision": revision}
    words = ", ".join(
        f"--{name} {value:g}" if isinstance(value, float) else f"--{name} {value}" for name, value in given.items()
    )
    changed = [f"--{name}" for name, value in given.items() if value != FIGURES[show.value][name]]
    tail = f" {' and '.join(changed)} are not the paper's." if changed else ""
    write_line(f"Settings of {show.value.replace('-', ' ')}: {words}.{tail}", stream=sys.stderr)


def _load_constants(document: Path | None, measured: Path | None, revision: str) -> Constants:
    """Return the constants of a file, constants fitted to measurements, or the revision's."""
    from engine.simulate.distir import (
        ConfigurationError,
        Constants,
        fit_kernels,
        fit_steps,
        load_constants,
        read_measured,
    )
    from engine.simulate.distir.cost_models import revision_of

    revision_of(revision)
    if document is not None and measured is not None:
        raise ConfigurationError("--constants and --fit are two sources of the same; give one of them.")
    if measured is not None:
        kind, table = read_measured(measured)
        return fit_steps(table, revision) if kind == "steps" else fit_kernels(table)
    return Constants(revision=revision) if document is None else load_constants(document)


def _network_size(model: str, layers: int | None, width: int | None) -> Any:
    from engine.simulate.distir import MODEL_SIZES, ConfigurationError, ModelSize

    if model not in MODEL_SIZES:
        raise ConfigurationError(f"{model[:60]!r} is no size; there are {', '.join(MODEL_SIZES)}.")
    named = MODEL_SIZES[model]
    return ModelSize(named.layers if layers is None else layers, named.width if width is None else width)


def _parse_integers(option: str, text: str) -> list[int]:
    """Whole numbers with commas."""
    from engine.simulate.distir import ConfigurationError

    try:
        found = [int(each) for each in text.split(",")]
    except ValueError:
        found = []
    if not found or len(found) > 64:
        raise ConfigurationError(f"{option} must be up to 64 whole numbers with commas, and is {text[:40]!r}.")
    return found


def _search_configurations(
    sizes: dict[str, Any],
    batches: Sequence[int],
    devices: Sequence[int],
    bandwidth: float,
    constants: Constants,
    memory_limit: float | None,
    rule: str,
    filtered: bool,
    store: Path | None,
) -> pd.DataFrame:
    """Every configuration, from the store where it has it."""
    from contextlib import ExitStack

    from engine.simulate.distir import Records, search
    from engine.store import Store

    with ExitStack() as stack:
        records = None if store is None else Records(stack.enter_context(Store(store)))
        limit = None if memory_limit is None else memory_limit * GIB
        return search(
            sizes,
            devices=devices,
            batches=batches,
            revision=constants.revision,
            bandwidth_gbps=bandwidth,
            memory_limit=limit,
            rule=rule,
            records=records,
            filtered=filtered,
            **constants.arguments(),
        )


def _print_table(table: pd.DataFrame, columns: Sequence[str], document: dict[str, Any], json: bool) -> None:
    if json:
        write_line(as_json(document | {"rows": table.to_dict("records")}))
        return
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


def _compare_measurements(constants: Constants | None, file: Path | None, document: dict[str, Any], json: bool) -> None:
    """Print measured and simulated steps of a file, or of the notebook's 81 runs."""
    from engine.simulate.distir import agreement, measured_steps, overlay, read_measured
    from engine.simulate.distir.calibration import MEASURED_CONSTANTS

    kind, table = ("steps", measured_steps()) if file is None else read_measured(file)
    if kind == "kernels":
        table = measured_steps()
    used = MEASURED_CONSTANTS if constants is None else constants
    found = agreement(overlay(table, used))
    document |= {"revision": used.revision, "constants": used.model_dump(exclude_none=True)}
    if not json:
        told = ", ".join(
            f"{name} {value:.6g}"
            for name, value in used.model_dump(exclude_none=True).items()
            if isinstance(value, float)
        )
        write_line(f"{used.revision}: {told}")
    _print_table(found, list(found.columns), document, json)


def _export_table(table: pd.DataFrame, path: Path | None) -> None:
    if path is not None:
        write_table_file(table, path)
        write_line(f"{len(table):,} configurations are in {path}.", stream=sys.stderr)


def _write_trace(best: pd.Series, path: Path, constants: Constants, bandwidth: float, filtered: bool) -> None:
    from engine.simulate.distir import timeline

    degrees = {name: int(best[name]) for name in ("D", "H", "P", "m", "width", "layers", "batch")}
    found = timeline(
        revision=constants.revision, bandwidth_gbps=bandwidth, filtered=filtered, **degrees, **constants.arguments()
    )
    from engine.executions.files import TableWriteError

    try:
        path.write_text(as_json(found.chrome_trace()), encoding="utf-8")
    except OSError as error:
        raise TableWriteError(f"{path} cannot be written: {error.strerror or error}.") from error
    write_line(f"{path} is written.", stream=sys.stderr)
