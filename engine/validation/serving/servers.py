"""Servers measured under load, their predictions, and the terms of engines fitted to them.

A table has the columns of `inferencex_agg` as ai-dynamo/aiconfigurator's copy of InferenceX (Apache-2.0) has them:
gpu, engine, model, the fields of a deployment, ttft_ms and tpot_ms. Every client kept `batch x replicas` requests in
flight and sent ten per slot, all at once at first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import least_squares

from engine.serving.constants import EngineTerms, ServingConstants
from engine.serving.deployments import Deployments, deployments_of
from engine.serving.evaluation import subject_of
from engine.serving.figures import ServingSubject, figures, grouped, pass_times
from engine.serving.load import PassTimes, load_latencies
from engine.validation.serving.operations import GPUS

__all__ = [
    "BURST",
    "MODELS",
    "TERMS",
    "ServerTable",
    "ServerTimes",
    "fit_engine",
    "log_errors",
    "predict_servers",
    "read_servers",
    "server_table",
    "server_times",
]

Floats = npt.NDArray[np.float64]

MODELS: Final[Mapping[str, str]] = {
    "deepseek-ai/DeepSeek-R1": "deepseek-v3",
    "deepseek-ai/DeepSeek-V3": "deepseek-v3",
    "zhipuai/GLM-5": "glm-5",
    "zai-org/GLM-5": "glm-5",
    "meta-llama/Llama-3.1-70B": "llama-3.1-70B",
    "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8B",
    "openai/gpt-oss-120b": "gpt-oss-120B",
    "MiniMaxAI/MiniMax-M2.5": "minimax-M2.5",
    "moonshotai/Kimi-K2.5": "kimi-k2.5",
    "Qwen/Qwen3-235B-A22B-FP8": "qwen3-235B-A22B",
}
"""Model of the library of each model in the table."""
BURST: Final = 10.0
"""Requests that the client sends per request in flight. Source: InferenceX's benchmark, --num-prompts 10 x CONC."""
FIELDS: Final = (
    "tensor_par",
    "expert_par",
    "replicas",
    "batch",
    "weight_bits",
    "kv_bits",
    "attention_bits",
    "compute_bits",
    "engine",
    "prompt",
    "output",
)
TERMS: Final[Mapping[str, tuple[float, float, float]]] = {
    "starts": (1.0, 0.3, 2.0),
    "first_token": (0.03, 0.005, 0.4),
    "prefill_pass": (5e-3, 1e-4, 0.1),
    "prefill_layer": (2e-5, 1e-6, 5e-4),
    "step": (5e-4, 1e-5, 5e-3),
    "step_layer": (5e-6, 1e-7, 6e-5),
    "sequence": (8e-6, 1e-7, 5e-5),
    "waiting": (0.05, 1e-3, 0.5),
}
"""First value of each term in a fit, and its bounds."""


@dataclass(frozen=True)
class ServerTable:
    """Measured servers [rows], with the subject and rows of each model and GPU."""

    rows: pd.DataFrame
    groups: tuple[tuple[ServingSubject, npt.NDArray[np.intp]], ...]


def read_servers(path: Path) -> ServerTable:
    """Return the measured servers of a file that are to be used.

    Args:
        path: a Parquet or CSV file.
    """
    table = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    if "use" in table:
        table = table[table["use"] == "yes"]
    return server_table(table)


def server_table(table: pd.DataFrame) -> ServerTable:
    """Return measured servers of models and GPUs that the library has.

    Args:
        table: one server per row.
    """
    table = table[table["model"].isin(MODELS) & table["gpu"].isin(GPUS)].reset_index(drop=True)
    table["measured_output"] = (
        1e3 * table["batch"] * table["output"] / (table["ttft_ms"] + (table["output"] - 1.0) * table["tpot_ms"])
    )
    groups = []
    for key, index in table.groupby(["gpu", "model"]).indices.items():
        gpu, model = str(key[0]), str(key[1])  # type: ignore[index]  # keys of two columns are pairs
        subject = subject_of(MODELS[model], GPUS[gpu], requests_per_slot=BURST)
        groups.append((subject, np.asarray(index, np.intp)))
    return ServerTable(table, tuple(groups))


def predict_servers(servers: ServerTable, constants: ServingConstants | None = None) -> pd.DataFrame:
    """Return the predicted ttft_ms, tpot_ms, output per replica [tokens/s] and largest batch of each server.

    Args:
        servers: measured ones.
        constants: of serving; the library's where None.
    """
    found = {name: np.full(len(servers.rows), np.nan) for name in ("ttft_ms", "tpot_ms", "predicted_output", "largest")}
    for subject, index in servers.groups:
        if constants is not None:
            subject = replace(subject, constants=constants)
        d = _deployments(servers, index)
        for some in grouped(d):
            got = figures(subject, d.take(some))
            there = index[some]
            found["ttft_ms"][there] = 1e3 * got["time_to_first_token"]
            found["tpot_ms"][there] = 1e3 * got["time_per_output_token"]
            found["predicted_output"][there] = got["tokens_per_s"] / servers.rows["replicas"].to_numpy()[there]
            found["largest"][there] = got["largest_batch"]
    return pd.DataFrame(found)


def log_errors(servers: ServerTable, constants: ServingConstants | None = None) -> pd.DataFrame:
    """Return log(predicted / measured) of time to the first token, time per output token and output [rows].

    Args:
        servers: measured ones.
        constants: of serving; the library's where None.
    """
    predicted, rows = predict_servers(servers, constants), servers.rows
    return pd.DataFrame(
        {
            "ttft": np.log(predicted["ttft_ms"] / rows["ttft_ms"]),
            "tpot": np.log(predicted["tpot_ms"] / rows["tpot_ms"]),
            "output": np.log(predicted["predicted_output"] / rows["measured_output"]),
        }
    )


@dataclass(frozen=True)
class ServerTimes:
    """Times of the passes of servers of one engine, without and with the starts of kernels [rows] [s], of which those
    in between are linear; and the rows that they belong to."""

    rows: pd.DataFrame
    without: PassTimes
    starts: PassTimes
    blocks: Floats

    def log_errors(self, terms: EngineTerms) -> tuple[Floats, Floats]:
        """Return log(predicted / measured) of the time per output token and to the first token [rows]."""
        times = PassTimes(*(a + terms.starts * (b - a) for a, b in zip(self.without, self.starts, strict=True)))
        batch, output = self.rows["batch"].to_numpy(np.float64), self.rows["output"].to_numpy(np.float64)
        found = load_latencies(times, terms, batch, output, self.blocks, BURST)  # type: ignore[arg-type]
        per_token = np.log(1e3 * found.per_token / self.rows["tpot_ms"].to_numpy())
        return per_token, np.log(1e3 * found.first_token / self.rows["ttft_ms"].to_numpy())

    def only(self, kept: npt.NDArray[np.bool_]) -> ServerTimes:
        """Return the servers that are kept."""
        first, second = (PassTimes(*(each[kept] for each in times)) for times in (self.without, self.starts))
        return ServerTimes(self.rows[kept], first, second, self.blocks[kept])


def server_times(servers: ServerTable, constants: ServingConstants, engine: str, *, mixed: float) -> ServerTimes:
    """Return the times of the passes of an engine's servers.

    Args:
        servers: of any engines.
        constants: of serving, whose kernels count.
        engine: its name.
        mixed: 1 where prompts share passes with requests that generate.
    """
    names = PassTimes._fields
    found = [{name: np.full(len(servers.rows), np.nan) for name in names} for _ in range(2)]
    blocks = np.full(len(servers.rows), np.nan)
    for place, starts in enumerate((0.0, 1.0)):
        terms = {f"engine.{engine}.starts": starts, f"engine.{engine}.mixed": mixed}
        changed = ServingConstants({**constants.values, **terms})
        for subject, index in servers.groups:
            index = index[(servers.rows.loc[index, "engine"] == engine).to_numpy()]
            if not len(index):
                continue
            there = replace(subject, constants=changed)
            times, _ = pass_times(there, _deployments(servers, index))
            for name, value in zip(names, times, strict=True):
                found[place][name][index] = value
            blocks[index] = len(subject.pattern.blocks)
    kept = np.isfinite(blocks)
    first, second = (PassTimes(*(each[name][kept] for name in names)) for each in found)
    return ServerTimes(servers.rows[kept], first, second, blocks[kept])


def _deployments(servers: ServerTable, index: npt.NDArray[np.intp]) -> Deployments:
    return deployments_of(servers.rows.loc[index, list(FIELDS)].assign(pipeline_par=1, launch="graphs"))


def fit_engine(
    servers: ServerTimes, fitted: Sequence[str], fixed: Mapping[str, float], *, first_token_weight: float = 0.5
) -> EngineTerms:
    """Return the terms of an engine, fitted to its servers.

    Args:
        servers: of that engine.
        fitted: names of the terms to fit, of `TERMS`.
        fixed: values of the others.
        first_token_weight: of errors of the first token; errors of the time per output token have weight 1.
    """
    first, low, high = (np.log([TERMS[name][place] for name in fitted]) for place in range(3))

    def terms(logs: Floats) -> EngineTerms:
        return EngineTerms(**{**fixed, **dict(zip(fitted, np.exp(logs).tolist(), strict=True))})

    # Every model on a GPU has the same say, however often it was measured.
    number = servers.rows.groupby(["gpu", "model"])["tpot_ms"].transform("size").to_numpy(np.float64)
    weights = (number.mean() / number) ** 0.5

    def errors(logs: Floats) -> Any:
        per_token, first_token = servers.log_errors(terms(logs))
        return np.concatenate([weights * per_token, first_token_weight * weights * first_token])

    best = least_squares(errors, first, bounds=(low, high), loss="soft_l1", f_scale=0.1)
    return terms(best.x)
