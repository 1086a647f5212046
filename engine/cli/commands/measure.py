"""The command `measure`: microbenchmarks of this machine, as a system and a calibration of it."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from engine.cli.output import as_json, text_table, write_line
from engine.cli.progress import ProgressReport
from engine.cli.question_options import asks
from engine.cli.table_files import write_document
from engine.questions.documents.measurements import MeasurementQuestion

if TYPE_CHECKING:
    from engine.measure import MeasurementProgress, Samples
    from hardware import CalibratedValue, Calibration, System

__all__ = ["measure_machine"]

SUFFIXES: Final = ("system", "calibration", "samples")
"""The files that are written: NAME.system.json and so on."""


@asks(MeasurementQuestion)
def measure_machine(
    asked: MeasurementQuestion,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where the files are written.")] = Path(),
    samples: Annotated[
        Path | None,
        typer.Option("--samples", metavar="FILE", help="Work from these timings of an earlier run; measure nothing."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON with all three documents.")] = False,
) -> None:
    """Measure this machine's accelerator: matrix products, attention, memory, collectives, launches.

    Needs PyTorch (the extra `measure`), a build for the accelerator. Nothing else should run on the machine meanwhile.

    \b
    Written to FOLDER:
      NAME.system.json       the machine, for every command and page that takes a SYSTEM; what was measured is noted,
                             the rest is SYSTEM's (--like) or marked as assumed
      NAME.calibration.json  parameters of the calibrated cost model that the timings determine, each with its source;
                             the others keep the library's values
      NAME.samples.json      the timings themselves, for --samples

    Without --like the peaks are the highest rates seen. With it they stay the datasheet's, which is better where the
    library has the accelerator.

    \b
    Examples:
      shardscape measure --quick --out measured
      shardscape measure --like h100_80g_sxm --name our_h100
      shardscape measure --samples our_h100.samples.json --like h200_141g_sxm --name our_h200

    Interrupted, it ends the processes that it started and writes nothing.
    """
    import hardware
    from engine.measure import load_samples, measured_calibration, measured_system, samples_document
    from engine.measure.system_document import resembling
    from engine.questions.scenario_documents import found_system

    _check_folder(out)
    parent = None if asked.like is None else found_system(asked.like)
    if asked.name is not None:
        _check_name(asked.name)
    started = time.perf_counter()
    found = load_samples(samples) if samples is not None else _measure_device(asked)
    took = None if samples is not None else time.perf_counter() - started
    called = asked.name or _name_of(found.device.name)
    system = measured_system(found, parent, called)
    calibration = measured_calibration(found, system, called)
    documents: dict[str, Any] = {
        "system": hardware.to_document(system),
        "calibration": hardware.calibration_document(calibration),
        "samples": samples_document(found),
    }
    paths = [out / f"{called}.{suffix}.json" for suffix in SUFFIXES]
    for path, suffix in zip(paths, SUFFIXES, strict=True):
        write_document(documents[suffix], path)
    if json:
        write_line(as_json({**documents, "files": [str(path) for path in paths]}))
    else:
        _print_samples(found, system, calibration, took)
    write_line(f"Written: {', '.join(str(path) for path in paths)}.", stream=sys.stderr)
    if asked.like is None and (names := resembling(found)):
        known = " or ".join(names)
        write_line(f"The library knows this accelerator: --like {known} keeps its datasheet.", stream=sys.stderr)


def _measure_device(asked: MeasurementQuestion) -> Samples:
    """Return the timings of this machine's benchmarks."""
    from engine.measure import measure as run

    with ProgressReport("measuring") as report:

        def tell(progress: MeasurementProgress) -> None:
            report(progress.done / progress.total, f"{progress.what}, about {progress.seconds_left:.0f} s to measure")

        return run(
            device=asked.device,
            quick=asked.quick,
            seconds=asked.seconds,
            ranks=asked.ranks,
            threads=asked.threads,
            progress=tell,
        )


def _check_name(name: str) -> None:
    from engine.measure import MeasureError

    # It becomes the name of files, and what a system's name is looked up by.
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", name):
        raise MeasureError(
            f"--name cannot be {name[:60]!r}; it has up to 100 letters, digits, '_', '.' and '-', and does not begin "
            "with a mark."
        )


def _name_of(device: str) -> str:
    words = re.findall(r"[a-z0-9]+", device.lower())
    return "_".join([*words, "measured"])[:100] if words else "measured"


def _check_folder(folder: Path) -> None:
    """Says so before measuring where writing could only fail after it."""
    from engine.executions.files import TableWriteError

    if not folder.is_dir():
        raise TableWriteError(f"{folder} is no folder that exists; name one for the measured documents.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise TableWriteError(f"{folder} cannot be written to; name another folder for the measured documents.")


def _format_range(value: CalibratedValue) -> str:
    if value.low is None or value.high is None or value.low == value.high:
        return "-"
    return f"{value.low:.4g} .. {value.high:.4g}"


def _print_samples(samples: Samples, system: System, calibration: Calibration, took: float | None) -> None:
    import hardware

    library = hardware.load_calibration(calibration.derived_from).parameters
    spent = "" if took is None else f" in {took:.0f} s"
    write_line(
        f"{samples.device.name} measured{spent} ({samples.device.software}, {samples.device.date}) as {system.name}."
    )
    write_line()
    measured = {key: value for key, value in calibration.parameters.items() if value.kind == "measured"}
    rows = [
        (
            key,
            f"{value.value:.4g}",
            _format_range(value),
            value.unit or "-",
            f"{library[key].value:.4g}",
            value.source.removeprefix("Measured: ").split(",", 1)[0],
        )
        for key, value in measured.items()
    ]
    write_line(text_table(("parameter", "measured", "range", "unit", "library", "from"), rows, left=(0, 5)))
    write_line()
    errors = [
        (error.described, f"{error.rows}", f"{error.mean_absolute_percent:.1f}", f"{error.bias_percent or 0.0:.1f}")
        for error in calibration.errors
    ]
    write_line(text_table(("formulas against these timings [%]", "rows", "mean", "bias"), errors))
    write_line()
    for note in calibration.notes:
        write_line(note)
