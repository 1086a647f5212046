"""Verb about measured servers: a deployment next to results of one's own benchmarks and to the nearest servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import pandas as pd
from pydantic import Field

import hardware
from engine.questions.bounds import Context
from engine.questions.documents.serving import ServersQuestion
from engine.questions.plain import plain
from engine.questions.scenario_documents import found_model, found_system
from engine.questions.serving import RangeRow, load_factors
from engine.questions.verb import Document, QuestionError, Row, Verb
from engine.serving import Assumptions, EngineFactors, evaluate, figure_ranges, not_represented
from engine.serving.uncertainty import SHARE
from engine.validation.serving.benchmark_files import ServingBenchmark, read_benchmarks
from engine.validation.serving.comparison import (
    COMPARED,
    BenchmarkComparison,
    FigureVerdict,
    compare_benchmark,
    deployment_fields,
    measure_factors,
)
from engine.validation.serving.nearest_servers import (
    SERVER_SOURCE,
    SERVER_WEIGHTS,
    ServerSetting,
    find_nearest_servers,
)
from engine.validation.serving.operations import GPUS
from engine.validation.serving.servers import MODELS
from hardware import Calibration, System
from models import Model

__all__ = ["COMPARE_SERVERS", "SERVERS_NOTE", "ComparedServers", "compare_servers", "list_nearest_servers"]

SERVERS_NOTE: Final = (
    f"The constants were fitted to the listed servers, so unseen servers differ more. Ranges hold {SHARE:.0%} of "
    "servers of models that were left out of the fit."
)


class FigureComparison(Document):
    """A figure as predicted and as measured, in seconds or tokens/s."""

    predicted: float
    measured: float
    ratio: float = Field(description="Measured over predicted.")
    low: float | None = Field(description="Least figure of the range of comparable servers; null without any.")
    high: float | None
    verdict: FigureVerdict


class BenchmarkRow(Document):
    """A result of a benchmark against the prediction of its deployment."""

    label: str = Field(description="File, and place in it.")
    tool: str
    model: str = Field(description="As the file names it; empty where it does not.")
    requests: float = Field(description="Completed requests.")
    in_flight: float = Field(description="Mean number of requests in flight.")
    requests_per_slot: float | None = Field(description="Requests sent per request in flight; null with arrival times.")
    deployment: Row = Field(description="Deployment with all figures.")
    figures: dict[str, FigureComparison] = Field(description="By name; empty where the deployment does not run.")
    ranges: dict[str, RangeRow] = Field(description="Comparable servers, by figure.")
    remarks: list[str]


class MeasuredServer(Document):
    """A measured server with its prediction and its distance from the deployment."""

    model: str = Field(description="As the source names it.")
    library_model: str
    gpu: str = Field(description="System of the library.")
    engine: Literal["vllm", "sglang", "trtllm"]
    engine_version: str | None
    date: str | None = Field(description="Day of the measurement.")
    tensor_par: int
    expert_par: int
    replicas: int
    batch: int = Field(description="Requests in flight per replica.")
    weight_bits: int
    kv_bits: int
    attention_bits: int
    compute_bits: int
    prompt: int
    output: int
    measured: dict[str, float] = Field(description="By figure; output is of all replicas.")
    predicted: dict[str, float]
    difference: dict[str, float] = Field(description="Measured over predicted, less 1.")
    distance: float
    parts: dict[str, float] = Field(description="Contribution of each part to the distance.")


class ServersAnswer(Document):
    """A deployment, results of benchmarks of it, and the measured servers that are nearest."""

    model: str
    system: str
    not_represented: list[str] = Field(description="Parts of the model that the figures leave out or approximate.")
    deployment: Row = Field(description="The deployment with all figures; the first result's with results.")
    ranges: dict[str, RangeRow] = Field(description="Comparable servers, by figure; empty where none was measured.")
    factors: str | None = Field(description="Sentence that names the factors in the predictions; null without.")
    results: list[BenchmarkRow]
    calibration: dict[str, Any] | None = Field(
        description="Factors measured by the results, for `factors` of `find_deployments`; null without usable results."
    )
    nearest: list[MeasuredServer]
    weights: dict[str, float] = Field(description="Weight of each part of the distance.")
    source: str = Field(description="Source of the measured servers.")
    note: str


@dataclass(frozen=True)
class ComparedServers:
    """A deployment next to results of benchmarks and measured servers."""

    model: Model
    system: System
    row: Mapping[str, Any]
    """The deployment with all figures by name; the first result's with results."""
    factors: EngineFactors | None
    compared: Sequence[BenchmarkComparison]
    calibration: Calibration | None
    """Factors measured by the results."""
    nearest: Sequence[Mapping[str, Any]]
    """Fields of `MeasuredServer`."""

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        runs = self.row["status"] == "ok"
        found = {
            "model": self.model.name,
            "system": self.system.name,
            "not_represented": list(not_represented(self.model)),
            "deployment": dict(self.row),
            "ranges": _list_ranges(figure_ranges(self.model, self.system, self.row)) if runs else {},
            "factors": None if self.factors is None else self.factors.describe(),
            "results": [_describe_comparison(each) for each in self.compared],
            "calibration": None if self.calibration is None else hardware.calibration_document(self.calibration),
            "nearest": list(self.nearest),
            "weights": dict(SERVER_WEIGHTS),
            "source": SERVER_SOURCE,
            "note": SERVERS_NOTE,
        }
        return {name: plain(value) for name, value in found.items()}


def _list_ranges(ranges: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {**each._asdict(), "share": SHARE} for name, each in ranges.items()}


def _describe_comparison(each: BenchmarkComparison) -> dict[str, Any]:
    own = each.benchmark
    return {
        "label": own.label,
        "tool": own.tool,
        "model": own.model,
        "requests": own.requests,
        "in_flight": own.in_flight,
        "requests_per_slot": own.requests_per_slot,
        "deployment": dict(each.row),
        "figures": {name: {**figure._asdict(), "ratio": figure.ratio} for name, figure in each.figures.items()},
        "ranges": _list_ranges({name: each.ranges[name] for name in COMPARED if name in each.ranges}),
        "remarks": list(own.remarks),
    }


def compare_servers(asked: ServersQuestion) -> ComparedServers:
    """Return the answer to a question as objects.

    Args:
        asked: the question.

    Raises `QuestionError` for a deployment without a needed field, `BenchmarkFileError` for a result that cannot be
    read, `engine.serving.FactorError`, `engine.serving.DeploymentTableError`, and the errors of loading model, system
    and factors.
    """
    model, system = found_model(asked.model), found_system(asked.system)
    assumptions = None if asked.memory_share is None else Assumptions(reserve_share=1.0 - asked.memory_share)
    factors = load_factors(asked.factors, system)
    benchmarks = [each for name, text in asked.results.items() for each in read_benchmarks(text, name)]
    compared = [
        compare_benchmark(model, system, asked.deployment, each, assumptions=assumptions, factors=factors)
        for each in benchmarks
    ]
    row = compared[0].row if compared else _evaluate_deployment(asked, model, system, assumptions, factors)
    calibration = None
    if benchmarks:
        calibration = measure_factors(
            model,
            system,
            compared if factors is None else _compare_again(asked, model, system, benchmarks, assumptions),
            name=asked.name,
        )
    nearest = list_nearest_servers(model, system, row, asked.nearest)
    return ComparedServers(model, system, row, factors, compared, calibration, nearest)


def _compare_again(
    asked: ServersQuestion,
    model: Model,
    system: System,
    benchmarks: Sequence[ServingBenchmark],
    assumptions: Assumptions | None,
) -> list[BenchmarkComparison]:
    """Return the results against predictions without factors, which factors are measured on."""
    return [compare_benchmark(model, system, asked.deployment, each, assumptions=assumptions) for each in benchmarks]


def _evaluate_deployment(
    asked: ServersQuestion,
    model: Model,
    system: System,
    assumptions: Assumptions | None,
    factors: EngineFactors | None,
) -> dict[str, Any]:
    fields = deployment_fields(asked.deployment)
    missing = [name for name in ("tensor_par", "batch", "prompt", "output") if name not in fields]
    if missing:
        raise QuestionError(
            f"`deployment` has no {', '.join(missing)}; state them, or give a result of a benchmark, which has batch, "
            "prompt and output."
        )
    table = pd.DataFrame([fields])
    (row,) = evaluate(model, system, table, assumptions=assumptions, factors=factors).to_dict("records")
    return {str(name): value for name, value in row.items()}


def list_nearest_servers(model: Model, system: System, row: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """Return the measured servers that are nearest to a deployment, with the fields of `MeasuredServer`.

    Args:
        model: the served one.
        system: with the GPUs.
        row: fields of the deployment by name.
        count: how many to list at most.
    """
    if count == 0 or row["reason"] in _INVALID:
        return []
    found = find_nearest_servers(ServerSetting.of(model, system, row), count)
    listed = []
    copied = [name for name in MeasuredServer.model_fields if name in found.rows and name not in ("gpu", "output")]
    for place, server in enumerate(found.rows.to_dict("records")):
        replicas = server["replicas"]
        measured = {
            "time_to_first_token": 1e-3 * server["ttft_ms"],
            "time_per_output_token": 1e-3 * server["tpot_ms"],
            "tokens_per_s": replicas * server["measured_output"],
        }
        predicted = {
            "time_to_first_token": 1e-3 * server["predicted_ttft_ms"],
            "time_per_output_token": 1e-3 * server["predicted_tpot_ms"],
            "tokens_per_s": replicas * server["predicted_output"],
        }
        listed.append(
            {
                **{name: server[name] for name in copied},
                "output": server["output"],
                "library_model": MODELS[server["model"]],
                "gpu": GPUS[server["gpu"]],
                "date": server["date"],
                "measured": measured,
                "predicted": predicted,
                "difference": {name: measured[name] / predicted[name] - 1.0 for name in measured},
                "distance": float(found.distances[place]),
                "parts": found.parts.iloc[place].to_dict(),
            }
        )
    return [dict(plain(each)) for each in listed]


_INVALID: Final = ("not_positive", "unknown_bits")
"""Reasons of deployments that have no distance from others."""


def _answer_servers(asked: ServersQuestion, context: Context) -> dict[str, Any]:
    return compare_servers(asked).document()


COMPARE_SERVERS = Verb(
    "compare_servers",
    "Compare with measured servers",
    "Compares a deployment with results of your own benchmarks, says what is inside the error, measures a factor per "
    "engine, and lists the nearest measured servers.",
    ServersQuestion,
    ServersAnswer,
    _answer_servers,
)
