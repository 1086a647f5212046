"""Arguments and options that several commands share, each worded once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from engine.columns.fields import EXTENSION_ROWS
from engine.cost_models.registry import COST_MODELS

__all__ = [
    "EXTENSION_NAMES",
    "CalibrationOption",
    "CostModelOption",
    "DatatypeOption",
    "JsonOption",
    "LimitOption",
    "MaxBatchOption",
    "ModelArgument",
    "ModelOrNone",
    "ProcsOption",
    "ScenarioOption",
    "SystemArgument",
    "SystemOrNone",
]

ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="Library name or JSON file of the model.")]
SystemArgument = Annotated[str, typer.Argument(metavar="SYSTEM", help="Library name or JSON file of the system.")]
ModelOrNone = Annotated[
    str | None, typer.Argument(metavar="MODEL", show_default=False, help="Library name or JSON file of the model.")
]
SystemOrNone = Annotated[
    str | None, typer.Argument(metavar="SYSTEM", show_default=False, help="Library name or JSON file of the system.")
]

EXTENSION_NAMES: Final = ", ".join(row[0] for row in EXTENSION_ROWS)
"""The fields that only the calibrated cost model has, for help."""

ProcsOption = Annotated[
    int | None, typer.Option("--procs", metavar="N", help="Processors; every execution uses all of them.")
]
MaxBatchOption = Annotated[
    int | None,
    typer.Option("--max-batch", metavar="B", help="Largest batch [samples]; each DP uses its largest multiple."),
]
DatatypeOption = Annotated[
    str | None, typer.Option("--datatype", metavar="D", help="Datatype, such as float16 or float8.")
]
ScenarioOption = Annotated[
    Path | None,
    typer.Option(
        "--scenario", metavar="FILE", help="A saved scenario, for all of these; what is given besides replaces it."
    ),
]
LimitOption = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="FIELD=VALUES",
        help=f"What a field may be; see above. May be repeated. The cost model calibrated has further fields: "
        f"{EXTENSION_NAMES}.",
    ),
]
CostModelOption = Annotated[
    str | None,
    typer.Option(
        "--cost-model",
        metavar="|".join(COST_MODELS),
        help="calibrated predicts measured runs, calculon is exact against Calculon; by default calibrated, but "
        "calculon for systems that are Calculon's own descriptions.",
    ),
]
CalibrationOption = Annotated[
    str | None,
    typer.Option(
        "--calibration", metavar="FILE|NAME", help="Values for the cost model calibrated; the library's by default."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
