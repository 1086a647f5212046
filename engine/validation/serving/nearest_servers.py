"""Measured servers of the package, and the nearest of them to a deployment.

The package has 1,214 servers of InferenceX as ai-dynamo/aiconfigurator@095f58a51c copies them
(aic-core/src/aiconfigurator_core/systems/silicon_sample.csv, Apache-2.0), with the lengths as drawn. The constants of
serving were fitted to them.

The distance is a sum over parts, of which the earlier weigh more (`SERVER_WEIGHTS`): kind of model, hardware, model
size, engine, bits, layout, requests per replica, lengths. Sizes, bits, requests, lengths and degrees count in
doublings, |log2(a / b)|. Servers at the same distance are in the order of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from typing import Any, Final

import numpy as np
import pandas as pd

import hardware
import models
from engine.cost_models.calibrated import generation_of
from engine.executions.arrays import Floats
from engine.serving.shapes import pattern_of
from engine.validation.nearest import hardware_distances
from engine.validation.serving.operations import GPUS
from engine.validation.serving.servers import MODELS, ServerTable, predict_servers, read_servers
from hardware import System
from models import Model
from models.token_flops import token_flops

__all__ = [
    "SERVER_SOURCE",
    "SERVER_WEIGHTS",
    "NearestServers",
    "ServerSetting",
    "count_server_errors",
    "find_nearest_servers",
    "library_servers",
    "predicted_servers",
]

SERVER_SOURCE: Final = (
    "InferenceX, as ai-dynamo/aiconfigurator@095f58a51c copies it (Apache-2.0): "
    "aic-core/src/aiconfigurator_core/systems/silicon_sample.csv"
)
SERVER_WEIGHTS: Final[Mapping[str, float]] = {
    "kind": 16.0,
    "hardware": 8.0,
    "size": 4.0,
    "engine": 2.0,
    "bits": 1.0,
    "layout": 0.5,
    "batch": 0.25,
    "lengths": 0.125,
}
"""Part of the distance -> its weight, the most important first: each is twice the next. Source: stated by us."""
_BITS: Final = ("weight_bits", "kv_bits", "attention_bits", "compute_bits")
_DEGREES: Final = ("tensor_par", "pipeline_par", "expert_par", "replicas")


@dataclass(frozen=True, slots=True)
class ServerSetting:
    """Properties of a deployment by which measured servers are compared."""

    is_routed: bool
    """True for a model with experts."""
    accelerator: str
    """Maker's name, such as "H100-80GB-SXM"; empty where unknown."""
    generation: str
    size: float
    """Weights of products that a token passes, LM head included."""
    engine: str
    """"generic" is as near to one engine as to another."""
    fields: Mapping[str, float]
    """Bits, degrees, batch, prompt and output by name."""

    @classmethod
    def of(cls, model: Model, system: System, row: Mapping[str, Any]) -> ServerSetting:
        """Return the setting of a deployment.

        Args:
            model: the served one.
            system: with the GPUs.
            row: all fields of the deployment by name, such as `engine.serving.evaluate` returns them.
        """
        names = (*_BITS, *_DEGREES, "batch", "prompt", "output")
        return cls(
            pattern_of(model).is_routed,
            "" if system.accelerator is None else system.accelerator.name,
            generation_of(system),
            _passed_weights(model),
            str(row["engine"]),
            {name: float(row[name]) for name in names},
        )


@dataclass(frozen=True, slots=True)
class NearestServers:
    """Measured servers in the order of their distance."""

    rows: pd.DataFrame
    """Servers with measured and predicted figures, see `predicted_servers` [rows]."""
    distances: Floats
    """Distance of each [rows]."""
    parts: pd.DataFrame
    """Contribution of each part to the distance, by the names of `SERVER_WEIGHTS` [rows]."""


def _passed_weights(model: Model) -> float:
    """Two FLOP per weight of a product."""
    flops = token_flops(model)
    return (flops.weights + flops.head) / 2.0


@cache
def library_servers() -> ServerTable:
    """Return the measured servers of the package."""
    with as_file(files("engine.validation.serving").joinpath("servers.csv")) as path:
        return read_servers(path)


@cache
def predicted_servers() -> pd.DataFrame:
    """Return the measured servers of the package with predictions by the library's constants.

    Columns: as in the file; `measured_output`, output per replica [tokens/s]; `predicted_ttft_ms`,
    `predicted_tpot_ms`, `predicted_output`; `ttft`, `tpot`, `output_error`, measured over predicted, less 1.
    """
    servers = library_servers()
    rows, predicted = servers.rows, predict_servers(servers)
    return rows.assign(
        predicted_ttft_ms=predicted["ttft_ms"],
        predicted_tpot_ms=predicted["tpot_ms"],
        predicted_output=predicted["predicted_output"],
        ttft=rows["ttft_ms"] / predicted["ttft_ms"] - 1.0,
        tpot=rows["tpot_ms"] / predicted["tpot_ms"] - 1.0,
        output_error=rows["measured_output"] / predicted["predicted_output"] - 1.0,
    )


def count_server_errors() -> pd.DataFrame:
    """Return the errors of the predicted figures of the measured servers, by GPU, engine and model [rows].

    Columns: gpu, engine, model; servers; for each of ttft, tpot and output, `<figure>_median`, the median of
    |predicted / measured - 1|, and `<figure>_bias`, the median of predicted / measured - 1. The constants were fitted
    to these servers.
    """
    table = predicted_servers()
    errors = {"ttft": "ttft", "tpot": "tpot", "output": "output_error"}
    shares = {name: 1.0 / (1.0 + table[column]) - 1.0 for name, column in errors.items()}
    columns = {f"{name}_bias": share for name, share in shares.items()}
    columns |= {f"{name}_median": share.abs() for name, share in shares.items()}
    keys = ["gpu", "engine", "model"]
    groups = table[keys].assign(**columns).groupby(keys)
    found = groups.median().assign(servers=groups.size()).reset_index()
    return found[[*keys, "servers", *(f"{name}_{kind}" for name in errors for kind in ("median", "bias"))]]


@cache
def _library_settings() -> pd.DataFrame:
    """Return what `ServerSetting` has of each measured server, one column each [rows]."""
    rows = library_servers().rows
    boards = {gpu: hardware.load(GPUS[gpu]) for gpu in set(rows["gpu"])}
    networks = {name: models.load(MODELS[name]) for name in set(rows["model"])}
    sizes = {name: _passed_weights(model) for name, model in networks.items()}
    routed = {name: pattern_of(model).is_routed for name, model in networks.items()}
    names = {gpu: "" if board.accelerator is None else board.accelerator.name for gpu, board in boards.items()}
    generations = {gpu: generation_of(board) for gpu, board in boards.items()}
    return rows[[*_BITS, "tensor_par", "expert_par", "replicas", "batch", "prompt", "output", "engine"]].assign(
        pipeline_par=1,
        size=rows["model"].map(sizes),
        is_routed=rows["model"].map(routed),
        accelerator=rows["gpu"].map(names),
        generation=rows["gpu"].map(generations),
    )


def find_nearest_servers(setting: ServerSetting, count: int) -> NearestServers:
    """Return the measured servers that are nearest to a deployment, the nearest first.

    Args:
        setting: of the deployment.
        count: how many to return at most.
    """
    servers = _library_settings()

    def doublings(*names: str) -> Floats:
        apart = [np.abs(np.log2(servers[name].to_numpy(np.float64) / setting.fields[name])) for name in names]
        return np.asarray(np.sum(apart, axis=0), np.float64)

    found = {
        "kind": (servers["is_routed"] != setting.is_routed).to_numpy(np.float64),
        "hardware": hardware_distances(
            setting.accelerator, setting.generation, servers["accelerator"], servers["generation"]
        ),
        "size": np.abs(np.log2(servers["size"].to_numpy(np.float64) / setting.size)),
        "engine": ((servers["engine"] != setting.engine) & (setting.engine != "generic")).to_numpy(np.float64),
        "bits": doublings(*_BITS),
        "layout": doublings(*_DEGREES),
        "batch": doublings("batch"),
        "lengths": doublings("prompt", "output"),
    }
    parts = pd.DataFrame({name: weight * found[name] for name, weight in SERVER_WEIGHTS.items()})
    # Sums of the same numbers may differ in their last digit.
    total = parts.to_numpy(np.float64).sum(axis=1).round(9)
    order = np.argsort(total, kind="stable")[:count]
    rows = predicted_servers().iloc[order].reset_index(drop=True)
    return NearestServers(rows, total[order], parts.iloc[order].reset_index(drop=True))
