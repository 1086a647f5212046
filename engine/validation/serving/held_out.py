"""Terms of all engines, and errors of servers of models that were left out of the fit of their engine's terms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, Final

import numpy as np
import pandas as pd

import hardware
from engine.cost_models.calibrated import generation_of
from engine.serving.constants import EngineTerms, ServingConstants
from engine.serving.shapes import pattern_of
from engine.serving.uncertainty import ANY, BATCHES, SHARE, band_of
from engine.validation.serving.document import described_value
from engine.validation.serving.operations import GPUS
from engine.validation.serving.servers import MODELS, ServerTable, ServerTimes, fit_engine, server_times
from hardware import CalibratedValue, FitError
from models import load

__all__ = ["FITTED", "engine_terms", "error_table", "fit_errors", "held_out_errors", "mean_terms", "stated_terms"]

FITTED: Final = ("first_token", "prefill_layer", "step_layer", "waiting")
"""Terms that are fitted for each engine; more predict no better where a model is left out."""
STATED: Final[Mapping[str, float]] = {"starts": 0.5, "prefill_pass": 1e-3, "step": 0.4e-3, "sequence": 6e-6}
"""Terms that engines share, stated: chosen once on all servers, and of little effect where the others are fitted."""
MIXED: Final[Mapping[str, float]] = {"vllm": 1.0, "sglang": 0.0, "trtllm": 1.0}
"""True where prompts share passes with requests that generate. Source: defaults of vLLM's chunked prefill and of
TensorRT-LLM's inflight batching; SGLang runs prefill passes of their own unless --enable-mixed-chunk is set."""
LEAST_ROWS, LEAST_MODELS = 15, 2
"""Servers and models that an interval needs."""
FIGURES: Final = {"ttft": "time_to_first_token", "tpot": "time_per_output_token", "output": "tokens_per_s"}
"""Figure of deployments of each error."""


def stated_terms(engine: str) -> dict[str, float]:
    """Return the terms of an engine that are not fitted.

    Args:
        engine: its name.
    """
    return {**STATED, "mixed": MIXED[engine]}


def engine_terms(
    servers: ServerTable, constants: ServingConstants
) -> tuple[dict[str, dict[str, CalibratedValue]], dict[str, ServerTimes]]:
    """Return the terms of every engine with their ranges, and the times that they were fitted with.

    Args:
        servers: measured ones.
        constants: whose kernels count.
    """
    found: dict[str, dict[str, CalibratedValue]] = {}
    times = {}
    for engine in MIXED:
        times[engine] = server_times(servers, constants, engine, mixed=MIXED[engine])
        terms = fit_engine(times[engine], FITTED, stated_terms(engine))
        left_out = [one for _, one in _left_out_terms(times[engine], engine)]
        found[engine] = {name: _described(name, terms, engine, times[engine], left_out) for name in terms._fields}
    found["generic"] = mean_terms(found)
    return found, times


def _described(
    name: str, terms: EngineTerms, engine: str, times: ServerTimes, left_out: list[EngineTerms]
) -> CalibratedValue:
    value = float(getattr(terms, name))
    if name not in FITTED:
        source = "defaults of the engine's scheduler" if name == "mixed" else "stated by us, chosen once on all servers"
        return described_value(name, value, "stated", source, (value, value))
    others = [float(getattr(each, name)) for each in left_out]
    source = (
        f"{len(times.rows):,} servers of {times.rows['model'].nunique()} models on InferenceX, as "
        "ai-dynamo/aiconfigurator@095f58a51c has them (Apache-2.0); low and high: each model left out"
    )
    return described_value(name, value, "fitted", source, (min(others), max(others)))


def mean_terms(engines: Mapping[str, Mapping[str, CalibratedValue]]) -> dict[str, CalibratedValue]:
    """Return the terms of an engine that is not named: the mean of the others.

    Args:
        engines: terms by engine.
    """
    found = {}
    for name in EngineTerms._fields:
        values = [terms[name].value for terms in engines.values()]
        found[name] = described_value(
            name, float(np.mean(values)), "stated", f"mean of {', '.join(engines)}", (min(values), max(values))
        )
    return found


def _left_out_terms(times: ServerTimes, engine: str) -> Iterator[tuple[Any, EngineTerms]]:
    """Yield, for each model, which rows have it and the terms fitted without them."""
    for model in sorted(set(times.rows["model"])):
        there = (times.rows["model"] == model).to_numpy()
        if there.all():
            continue
        yield there, fit_engine(times.only(~there), FITTED, stated_terms(engine))


def held_out_errors(times: Mapping[str, ServerTimes]) -> pd.DataFrame:
    """Return log(predicted / measured) of every server, with the terms of its engine fitted without its model, and the
    class of the server: generation, engine, kind of model and batch.

    Args:
        times: of the servers of each engine.
    """
    found = []
    for engine, some in times.items():
        for there, terms in _left_out_terms(some, engine):
            left = some.only(there)
            per_token, first_token = left.log_errors(terms)
            rows = left.rows
            later = rows["output"].to_numpy(np.float64) - 1.0
            first, each = rows["ttft_ms"].to_numpy(), rows["tpot_ms"].to_numpy()
            predicted = np.exp(first_token) * first + later * np.exp(per_token) * each
            output = np.log((first + later * each) / predicted)
            found.append(
                pd.DataFrame(
                    {
                        "gpu": rows["gpu"],
                        "engine": engine,
                        "model": rows["model"],
                        "generation": [generation_of(hardware.load(GPUS[gpu])) for gpu in rows["gpu"]],
                        "kind": [kind_of(model) for model in rows["model"]],
                        "batch": [band_of(batch) for batch in rows["batch"]],
                        "ttft": first_token,
                        "tpot": per_token,
                        "output": output,
                    }
                )
            )
    return pd.concat(found).sort_index()


def kind_of(model: str) -> str:
    """Return "experts" for a model of the table with experts, else "dense".

    Args:
        model: name in the table.
    """
    return "experts" if pattern_of(load(MODELS[model])).is_routed else "dense"


def error_table(errors: pd.DataFrame) -> pd.DataFrame:
    """Return the range of measured over predicted of `SHARE` of held-out servers, by figure and class of servers.

    Args:
        errors: of `held_out_errors`.
    """
    found = []
    engines = [ANY, *sorted(set(errors["engine"]))]
    generations, kinds = [ANY, *sorted(set(errors["generation"]))], [ANY, *sorted(set(errors["kind"]))]
    bands = [ANY, *(name for _, name in BATCHES)]
    for engine, generation, kind, batch in product(engines, generations, kinds, bands):
        some = errors
        for column, value in (("engine", engine), ("generation", generation), ("kind", kind), ("batch", batch)):
            if value != ANY:
                some = some[some[column] == value]
        if len(some) < LEAST_ROWS or some["model"].nunique() < LEAST_MODELS:
            continue
        for error, figure in FIGURES.items():
            # Of n errors the ceil((n + 1) share)-th smallest (Vovk et al. 2005).
            sorted_errors = np.sort(some[error].abs().to_numpy())
            place = min(math.ceil((len(some) + 1) * SHARE), len(some)) - 1
            width = math.exp(float(sorted_errors[place]))
            row = (figure, engine, generation, kind, batch, round(width, 4), len(some), some["model"].nunique())
            found.append(row)
    columns = ["figure", "engine", "generation", "kind", "batch", "factor", "rows", "models"]
    return pd.DataFrame(found, columns=columns)


def fit_errors(errors: pd.DataFrame) -> list[FitError]:
    """Return the errors of held-out servers by figure, and by GPU and engine, as a calibration states them.

    Args:
        errors: of `held_out_errors`.
    """
    groups: list[tuple[str, pd.DataFrame]] = [("all servers", errors)]
    groups += [(f"{gpu}, {engine}", some) for (gpu, engine), some in errors.groupby(["gpu", "engine"])]
    words = {"ttft": "time to first token", "tpot": "time per output token", "output": "output"}
    found = []
    for described, some in groups:
        for error, word in words.items():
            share = 100.0 * np.expm1(some[error].to_numpy())
            found.append(
                FitError.model_validate(
                    {
                        "rows": len(some),
                        "described": f"{described}: {word}, every model left out in turn",
                        "held_out": True,
                        "mean_absolute_percent": round(float(np.mean(np.abs(share))), 2),
                        "median_absolute_percent": round(float(np.median(np.abs(share))), 2),
                        "bias_percent": round(float(np.median(share)), 2),
                    }
                )
            )
    return found
