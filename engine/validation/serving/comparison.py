"""Results of benchmarks of one's own servers against the predictions, and factors per engine made of them."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pandas as pd

from engine.serving import FIELDS, FIGURES, Assumptions, evaluate, figure_ranges
from engine.serving.constants import ENGINES
from engine.serving.factors import FACTOR_FIGURES, EngineFactors
from engine.serving.uncertainty import FigureRange
from engine.validation.serving.benchmark_files import BenchmarkFileError, ServingBenchmark
from hardware import Calibration, CalibrationFileError, System, load_calibration_document
from models import Model
from models.documents import did_you_mean, shown

__all__ = [
    "COMPARED",
    "BenchmarkComparison",
    "ComparedFigure",
    "FigureVerdict",
    "compare_benchmark",
    "deployment_fields",
    "measure_factors",
]

COMPARED: Final = ("time_to_first_token", "time_per_output_token", "tokens_per_s")
"""Figures that are compared."""
OUTCOME: Final = ("id", "status", "reason", "reason_text", "factors")
"""Values of a row of deployments that are neither fields nor figures."""

FigureVerdict = Literal["as expected", "slower than expected", "faster than expected", "no interval"]


class ComparedFigure(NamedTuple):
    """A figure as predicted and as measured; low and high are the ends of the range of comparable servers, None where
    none were measured."""

    predicted: float
    measured: float
    low: float | None
    high: float | None
    verdict: FigureVerdict

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured / self.predicted


@dataclass(frozen=True)
class BenchmarkComparison:
    """A result of a benchmark against the prediction of its deployment."""

    benchmark: ServingBenchmark
    row: Mapping[str, Any]
    """The deployment: fields, status, reason and all figures by name."""
    figures: Mapping[str, ComparedFigure]
    """By name, of `COMPARED`; empty for a deployment that does not run."""
    ranges: Mapping[str, FigureRange]
    """Ranges of comparable servers."""


def compare_benchmark(
    model: Model,
    system: System,
    deployment: Mapping[str, Any],
    benchmark: ServingBenchmark,
    *,
    assumptions: Assumptions | None = None,
    factors: EngineFactors | None = None,
) -> BenchmarkComparison:
    """Return a result of a benchmark against the prediction of its deployment.

    Prompt and output are the means of the result, and the batch the requests in flight over the replicas.

    Args:
        model: the served one.
        system: with the GPUs.
        deployment: its other fields by name; tensor_par is required, pipeline_par is 1 where left out.
        benchmark: the result.
        assumptions: about memory; the usual ones where None.
        factors: on the predicted latencies; none where None.

    Raises `BenchmarkFileError` for a field that no deployment has, and `engine.serving.DeploymentTableError`.
    """
    fields = deployment_fields(deployment)
    fields |= _load_fields(fields, benchmark)
    found = evaluate(
        model,
        system,
        pd.DataFrame([fields]),
        assumptions=assumptions,
        requests_per_slot=benchmark.requests_per_slot,
        factors=factors,
    )
    row = {str(name): value for name, value in found.iloc[0].items()}
    if row["status"] != "ok":
        return BenchmarkComparison(benchmark, row, {}, {})
    ranges = figure_ranges(model, system, row)
    measured = {
        "time_to_first_token": benchmark.time_to_first_token,
        "time_per_output_token": benchmark.time_per_output_token,
        "tokens_per_s": benchmark.tokens_per_s,
    }
    figures = {name: _compare_figure(name, float(row[name]), measured[name], ranges.get(name)) for name in COMPARED}
    return BenchmarkComparison(benchmark, row, figures, ranges)


def deployment_fields(deployment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields in a row of deployments, without its figures and outcome.

    Args:
        deployment: values by name.

    Raises `BenchmarkFileError` for a name that no row has.
    """
    names = [column.name for column in FIELDS]
    known = {*names, *(column.name for column in FIGURES), *OUTCOME}
    unknown = next((name for name in deployment if name not in known), None)
    if unknown is not None:
        raise BenchmarkFileError(f"There is no field {shown(unknown)} of deployments{did_you_mean(unknown, names)}.")
    return {"pipeline_par": 1, **{name: value for name, value in deployment.items() if name in names}}


def _load_fields(fields: Mapping[str, Any], benchmark: ServingBenchmark) -> dict[str, int]:
    """Return batch, prompt and output of a result."""
    replicas = fields.get("replicas", 1)
    if isinstance(replicas, bool) or not isinstance(replicas, Real) or not float(replicas) >= 1:
        raise BenchmarkFileError(f"replicas is {shown(replicas)}; it must be a whole number from 1.")
    return {
        "batch": max(math.ceil(benchmark.in_flight / float(replicas) - 1e-9), 1),
        "prompt": max(round(benchmark.prompt), 1),
        "output": max(round(benchmark.output), 2),
    }


def _compare_figure(name: str, predicted: float, measured: float, within: FigureRange | None) -> ComparedFigure:
    if within is None:
        return ComparedFigure(predicted, measured, None, None, "no interval")
    low, high = predicted * within.low, predicted * within.high
    verdict: FigureVerdict = "as expected"
    if not low <= measured <= high:
        is_slower = (measured > high) != (name == "tokens_per_s")
        verdict = "slower than expected" if is_slower else "faster than expected"
    return ComparedFigure(predicted, measured, low, high, verdict)


def measure_factors(
    model: Model, system: System, compared: Sequence[BenchmarkComparison], *, name: str = "", date: str | None = None
) -> Calibration | None:
    """Return the factors of each engine as a calibration: geometric means of measured over predicted.

    Results of deployments that do not run, and with speculative decoding, do not count. None where no result counts.

    Args:
        model: the served one.
        system: that the results were measured on.
        compared: results against predictions without factors.
        name: of the calibration; made of the system's where empty.
        date: of the calibration; today's where None.

    Raises `BenchmarkFileError` for a name that no calibration can have.
    """
    used = [each for each in compared if each.figures and each.benchmark.can_calibrate]
    if not used:
        return None
    parameters: dict[str, Any] = {}
    errors: list[dict[str, Any]] = []
    for engine in ENGINES:
        some = [each for each in used if each.row["engine"] == engine]
        for figure in FACTOR_FIGURES if some else ():
            logs = np.log([each.figures[figure].ratio for each in some])
            value = math.exp(float(logs.mean()))
            parameters[f"factor.{engine}.{figure}"] = {
                "value": _round(value),
                "kind": "measured",
                "source": f"measured over predicted, geometric mean of {_count_results(len(some))}; low and high: the "
                "least and the greatest",
                "low": min(_round(math.exp(float(logs.min()))), _round(value)),
                "high": max(_round(math.exp(float(logs.max()))), _round(value)),
            }
            words = f"{engine}, {figure}"
            errors.append(_describe_error(-logs, f"{words}: the results, without the factor", held_out=True))
            if len(logs) > 1:
                # A result's factor without it is the mean of the others.
                others = (logs.sum() - logs) / (len(logs) - 1)
                described = f"{words}: each result, with the factor of the others"
                errors.append(_describe_error(others - logs, described, held_out=True))
    labels = ", ".join(f"{each.benchmark.label} ({each.benchmark.tool})" for each in used)
    content = {
        "format": "shardscape-calibration/1",
        "name": " ".join(name.split()) or f"{system.name} servers",
        "title": f"{system.title or system.name}: {_count_results(len(used))} of own servers",
        "subject": "serving",
        "system": system.name,
        "fitted_on": f"{_count_results(len(used))} with {model.name}: {labels}"[:2_000],
        "date": date or datetime.date.today().isoformat(),
        "errors": errors,
        "parameters": parameters,
        "notes": ["Factors on latencies predicted with the library's constants of serving."],
        "derived_from": "serving",
    }
    try:
        return load_calibration_document(content, "the calibration")
    except CalibrationFileError as problem:
        raise BenchmarkFileError(str(problem)) from None


def _count_results(number: int) -> str:
    return "1 result" if number == 1 else f"{number:,} results"


def _round(value: float) -> float:
    return float(f"{value:.5g}")


def _describe_error(logs: Any, described: str, *, held_out: bool) -> dict[str, Any]:
    """Return an error of a calibration of log(predicted / measured)."""
    share = 100.0 * np.expm1(logs)
    return {
        "rows": len(share),
        "described": described,
        "held_out": held_out,
        "mean_absolute_percent": round(float(np.mean(np.abs(share))), 2),
        "median_absolute_percent": round(float(np.median(np.abs(share))), 2),
        "bias_percent": round(float(np.median(share)), 2),
    }
