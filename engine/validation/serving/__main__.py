"""Commands of the validation of serving, on a folder of measured kernels and servers.

python -m engine.validation.serving fit --data FOLDER [--save]     fit all constants, every model left out in turn
python -m engine.validation.serving report --data FOLDER           errors of kernels and servers with the library's
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd

from engine.serving.constants import ENGINES, EngineTerms, ServingConstants, library_constants
from engine.validation.serving.document import described_value, serving_calibration, write_calibration
from engine.validation.serving.held_out import engine_terms, error_table, fit_errors, held_out_errors
from engine.validation.serving.operations import fit_operations, kernel_tables
from engine.validation.serving.servers import log_errors, read_servers

SERVERS = "inferencex_agg.parquet"


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return its exit status.

    Args:
        arguments: arguments of the command line; the program's own if None.
    """
    parser = argparse.ArgumentParser(prog="python -m engine.validation.serving")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, words in (("fit", "fit all constants"), ("report", "print errors of the library's constants")):
        command = commands.add_parser(name, help=words)
        command.add_argument("--data", type=Path, required=True, help="folder with the tables")
        if name == "fit":
            command.add_argument("--save", action="store_true", help="write constants and errors into the library")
    chosen = parser.parse_args(arguments)
    if not (chosen.data / SERVERS).is_file():
        parser.error(f"{chosen.data} has no {SERVERS}; name the folder with the measured tables.")
    if chosen.command == "fit":
        _fit(chosen.data, chosen.save)
    else:
        _report(chosen.data)
    return 0


def _fit(folder: Path, save: bool) -> None:
    operations = fit_operations(folder)
    for fit in operations:
        print(f"{fit.kind} {fit.generation} {fit.name}: {_words(fit.errors)}")
    # Kernels alone; terms of engines are fitted with them.
    none = {name: described_value(name, 1.0, "stated", "to be fitted", None) for name in EngineTerms._fields}
    kernels = ServingConstants.of(serving_calibration(operations, dict.fromkeys(ENGINES, none)))
    engines, times = engine_terms(read_servers(folder / SERVERS), kernels)
    errors = held_out_errors(times)
    print_errors(errors)
    if save:
        write_calibration(serving_calibration(operations, engines, fit_errors(errors)))
        error_table(errors).to_csv(str(files("engine.serving").joinpath("errors.csv")), index=False)


def _report(folder: Path) -> None:
    constants = library_constants()
    for table in kernel_tables(folder):
        values = constants.rates(table.kind, table.generation, table.name)
        print(f"{table.kind} {table.gpu} {table.name}: {_words(np.expm1(table.log_errors(values)))}")
    servers = read_servers(folder / SERVERS)
    print_errors(servers.rows[["gpu", "engine", "model"]].join(log_errors(servers)))


def _words(errors: Iterable[float]) -> str:
    share = 100.0 * np.asarray(errors)
    return f"{len(share):,} rows, median {np.median(np.abs(share)):.1f} %, bias {np.median(share):+.1f} %"


def print_errors(errors: pd.DataFrame) -> None:
    """Print the errors of servers, of all and by GPU, engine and model.

    Args:
        errors: log(predicted / measured) of ttft, tpot and output.
    """
    groups: list[tuple[str, pd.DataFrame]] = [("all servers", errors)]
    groups += [(str(engine), some) for engine, some in errors.groupby("engine")]
    groups += [(" ".join(map(str, key)), some) for key, some in errors.groupby(["gpu", "engine", "model"])]
    for described, some in groups:
        each = "; ".join(f"{name} {_words(np.expm1(some[name]))}" for name in ("tpot", "output", "ttft"))
        print(f"{described}: {each}")


if __name__ == "__main__":
    raise SystemExit(main())
