"""Rates of kernels, fitted to measured ones by kind, generation and datatype.

The fastest kernel of each shape counts: engines tune and choose. A folder of tables has the columns of
ai-dynamo/aiconfigurator's measurements (Apache-2.0): `ops_gemm`, `ops_moe`, `ops_attention_decode`,
`ops_attention_prefill`, `ops_mla_decode`, `ops_mla_prefill` and `ops_allreduce_custom`, each with `gpu` and
`latency_us`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import least_squares

import hardware
from engine.cost_models.calibrated import Accelerators, accelerator_of, generation_of
from engine.serving.constants import RATES
from engine.serving.kernels import (
    Device,
    ExpertRates,
    ExpertWork,
    KernelRates,
    ReduceRates,
    attend_context,
    attend_latent_context,
    attend_latent_prompt,
    attend_prompt,
    multiply,
    reduce_messages,
    run_experts,
)
from models import datatypes

__all__ = ["GPUS", "KernelTable", "OperationFit", "fit_operations", "kernel_tables"]

Floats = npt.NDArray[np.float64]

GPUS: Final[Mapping[str, str]] = {
    "a100_sxm": "a100_80g_sxm",
    "h100_sxm": "h100_80g_sxm",
    "h200_sxm": "h200_141g_sxm",
    "b200_sxm": "b200_180g_sxm",
    "b300_sxm": "b300_270g_sxm",
    "gb200": "gb200_186g_nvl72",
    "gb300": "gb300_279g_nvl72",
}
"""System of the library of each GPU in the tables."""
PRODUCT_FORMATS: Final[Mapping[str, str]] = {
    "bfloat16": "bfloat16",
    "fp8": "float8",
    "fp8_static": "float8",
    "fp8_block": "float8_block",
    "nvfp4": "float4",
}
EXPERT_FORMATS: Final[Mapping[str, str]] = {
    "bfloat16": "bfloat16",
    "fp8": "float8",
    "fp8_block": "float8_block",
    "nvfp4": "float4",
    "int4_wo": "weights_only",
    "w4a16_mxfp4": "weights_only",
    "w4a8_mxfp4_mxfp8": "float4_by_8",
}
"""Datatype in the tables -> datatype here."""
WEIGHT_BITS: Final[Mapping[str, float]] = {
    "bfloat16": 16.0,
    "float8": 8.0,
    "float8_block": 8.0,
    "float4": datatypes.named("nvfp4").weight_bits,
    "weights_only": datatypes.named("mxfp4").weight_bits,
    "float4_by_8": datatypes.named("mxfp4").weight_bits,
}
COMPUTED: Final[Mapping[str, int]] = {"float8": 8, "float8_block": 8, "float4": 4, "float4_by_8": 8}
IMBALANCES: Final[Mapping[str, float]] = {"balanced": 0.0, "power_law_1.01": 0.18, "power_law_1.2": 0.25}
"""Computing that the routing of the tables adds. Source: medians of the same launch without and with it."""
MICRO: Final = 1e-6
STARTS: Final[Mapping[str, tuple[float, float, float]]] = {
    "start": (6e-6, 0.3e-6, 60e-6),
    "quantise": (1.0, 0.04, 8.0),
    "memory": (0.7, 0.05, 0.95),
    "matrix": (0.5, 0.02, 1.4),
    "doubling": (1e-6, 0.02e-6, 15e-6),
    "joined": (4.0, 0.1, 15.0),
    "heads": (60.0, 4.0, 160.0),
    "rows": (64.0, 8.0, 160.0),
    "rank": (0.12e-6, 0.01e-6, 1e-6),
    "one_step": (0.5, 0.1, 1.5),
    "two_steps": (0.6, 0.1, 1.0),
    "second": (5e-6, 0.1e-6, 30e-6),
}
"""First value of each rate in a fit, and its bounds."""
SCALE: Final = 0.1
"""Deviation from which errors count less than squared []: kernels of one shape differ by as much."""


@dataclass(frozen=True)
class KernelTable:
    """Measured kernels of one kind, GPU and datatype: seconds [rows], and the prediction for values of the rates."""

    kind: str
    gpu: str
    name: str
    measured: Floats
    predict: Callable[[Mapping[str, float]], Floats]

    @property
    def generation(self) -> str:
        """Generation of the GPU."""
        return generation_of(hardware.load(GPUS[self.gpu]))

    def log_errors(self, values: Mapping[str, float]) -> Floats:
        """Return log(predicted / measured) [rows]."""
        return np.log(self.predict(values) / self.measured)


@dataclass(frozen=True)
class OperationFit:
    """Fitted rates of one kind, generation and datatype, with the range of each that fits as well."""

    kind: str
    generation: str
    name: str
    values: Mapping[str, float]
    ranges: Mapping[str, tuple[float, float]]
    errors: Floats
    """Predicted over measured, less 1 [rows]."""


def _accelerator(gpu: str) -> Accelerators:
    return Accelerators.of(accelerator_of(hardware.load(GPUS[gpu])))


def _device(gpu: str, bits: int) -> Device:
    a = _accelerator(gpu)
    wide, eight = float(a.flops16), float(a.flops8) or float(a.flops16)
    peak = {16: wide, 8: eight, 4: min(float(a.flops4), 4.0 * wide) or eight}[bits]
    return Device(np.asarray(peak), a.memory_bandwidth, a.multiprocessors)


MOST_SLOWER = 1.5
"""Time of a kernel over that of the fastest at the median of shared shapes, above which its measurements are left out
[dimensionless]. Source: stated by us; kernels that engines choose are within 1.3 of each other."""
LEAST_SHARED = 20
"""Least shapes that kernels are compared at. Source: stated by us."""


def _fastest(rows: pd.DataFrame, shape: list[str]) -> pd.DataFrame:
    """Return the fastest kernel of every shape, without kernels that engines would not choose: kernels slower
    than others by `MOST_SLOWER` at the median of the shapes that others were measured at, too."""
    while True:
        best = rows.sort_values("latency_us", kind="stable").drop_duplicates(shape)
        whose = rows.groupby(["engine", "kernel_source"], dropna=False).ngroup()
        each = rows.assign(whose=whose).groupby([*shape, "whose"], dropna=False)["latency_us"].min().reset_index()
        shapes = each.groupby(shape, dropna=False)["latency_us"]
        each = each[shapes.transform("size") > 1].assign(slower=each["latency_us"] / shapes.transform("min"))
        slower = each.groupby("whose")["slower"].agg(["median", "size"])
        slower = slower[(slower["size"] >= LEAST_SHARED) & (slower["median"] > MOST_SLOWER)]
        if not len(slower):
            return best
        rows = rows[whose != slower["median"].idxmax()]


def _columns(rows: pd.DataFrame, *names: str) -> list[Floats]:
    return [rows[name].to_numpy(np.float64) for name in names]


def _kernel_rates(values: Mapping[str, float]) -> KernelRates:
    return KernelRates(**{name: np.asarray(value) for name, value in values.items()})


def kernel_tables(folder: Path) -> Iterator[KernelTable]:
    """Yield the measured kernels of a folder of tables, by kind, GPU and datatype.

    Args:
        folder: with the tables.
    """
    readers = {
        "ops_gemm": _products,
        "ops_moe": _experts,
        "ops_attention_decode": _decode,
        "ops_mla_decode": _latent_decode,
        "ops_attention_prefill": _prefill,
        "ops_mla_prefill": _latent_prefill,
        "ops_allreduce_custom": _all_reduces,
    }
    for name, read in readers.items():
        table = pd.read_parquet(folder / f"{name}.parquet")
        for gpu in sorted(set(table["gpu"]) & set(GPUS)):
            yield from read(table[table["gpu"] == gpu], gpu)


def _by_format(rows: pd.DataFrame, column: str, formats: Mapping[str, str]) -> Iterator[tuple[str, pd.DataFrame]]:
    names = rows[column].map(formats)
    for name in sorted(set(names.dropna())):
        yield str(name), rows[names == name]


def _products(rows: pd.DataFrame, gpu: str) -> Iterator[KernelTable]:
    for name, some in _by_format(rows, "gemm_dtype", PRODUCT_FORMATS):
        best = _fastest(some, ["m", "n", "k"])
        m, n, k, seconds = _columns(best, "m", "n", "k", "latency_us")
        device, weight = _device(gpu, COMPUTED.get(name, 16)), WEIGHT_BITS[name] / 8.0

        def predict(
            values: Mapping[str, float],
            shape: tuple[Floats, Floats, Floats] = (m, n, k),
            weight: float = weight,
            device: Device = device,
        ) -> Floats:
            return multiply(*shape, weight, device, _kernel_rates(values))

        yield KernelTable("product", gpu, name, MICRO * seconds, predict)


def _experts(rows: pd.DataFrame, gpu: str) -> Iterator[KernelTable]:
    if generation_of(hardware.load(GPUS[gpu])) == "hopper":
        # The kernels measured for narrow weights on Hopper take longer than whole layers of measured servers; those
        # run no slower than the kernels for 16 bits, which are taken with narrow weights.
        rows = rows[rows["moe_dtype"].map(EXPERT_FORMATS) != "weights_only"]
    shape = ["num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size"]
    for name, some in _by_format(rows, "moe_dtype", EXPERT_FORMATS):
        best = _fastest(some, [*shape, "distribution"])
        tokens, hidden, width, chosen, experts, sliced, spread, seconds = _columns(best, *shape, "latency_us")
        work = ExpertWork(tokens, experts, chosen, spread, hidden, width / sliced)
        device, weight = _device(gpu, COMPUTED.get(name, 16)), WEIGHT_BITS[name] / 8.0
        uneven: Floats = np.asarray(best["distribution"].map(IMBALANCES), np.float64)

        def predict(
            values: Mapping[str, float],
            work: ExpertWork = work,
            weight: float = weight,
            device: Device = device,
            uneven: Floats = uneven,
        ) -> Floats:
            rates = ExpertRates(**{rate: np.asarray(value) for rate, value in values.items()})
            return run_experts(work, weight, device, rates, uneven)

        yield KernelTable("experts", gpu, name, MICRO * seconds, predict)


CACHE_FORMATS: Final[Mapping[str, str]] = {"bfloat16": "bfloat16", "fp8": "float8"}


def _decode(rows: pd.DataFrame, gpu: str) -> Iterator[KernelTable]:
    rows = rows.assign(window_size=rows["window_size"].fillna(0))
    for name, some in _by_format(rows, "kv_cache_dtype", CACHE_FORMATS):
        shape = ["batch_size", "num_heads", "num_key_value_heads", "head_dim", "step", "window_size"]
        best = _fastest(some, shape)
        requests, heads, keys, width, step, window, seconds = _columns(best, *shape, "latency_us")
        context = np.where(window > 0, np.minimum(step + 1.0, window), step + 1.0)
        device, cache = _device(gpu, 16), WEIGHT_BITS[name] / 8.0

        def predict(
            values: Mapping[str, float],
            shape: tuple[Floats, Floats, Floats, Floats] = (requests, context, heads, keys),
            width: Floats = width,
            cache: float = cache,
            device: Device = device,
        ) -> Floats:
            return attend_context(*shape, (width, width), cache, device, _kernel_rates(values))

        yield KernelTable("decode", gpu, name, MICRO * seconds, predict)


def _latent_decode(rows: pd.DataFrame, gpu: str) -> Iterator[KernelTable]:
    # Rows with several new tokens extend a prompt.
    for name, some in _by_format(rows[rows["isl"] == 1], "kv_cache_dtype", CACHE_FORMATS):
        best = _fastest(some, ["batch_size", "num_heads", "step"])
        requests, heads, step, seconds = _columns(best, "batch_size", "num_heads", "step", "latency_us")
        device, cache = _device(gpu, 16), WEIGHT_BITS[name] / 8.0

        def predict(
            values: Mapping[str, float],
            shape: tuple[Floats, Floats, Floats] = (requests, step + 1.0, heads),
            cache: float = cache,
            device: Device = device,
        ) -> Floats:
            # DeepSeek-V3: 512 elements of the latent and 64 of the rotated key.
            rank, rope = np.asarray(512.0), np.asarray(64.0)
            return attend_latent_context(*shape, rank, rope, cache, device, _kernel_rates(values))

        yield KernelTable("latent_decode", gpu, name, MICRO * seconds, predict)


def _prefill(rows: pd.DataFrame, gpu: str) -> Iterator[KernelTable]:
    rows = rows.assign(window_size=rows["window_size"].fillna(0))
    shape = ["batch_size", "num_heads", "num_key_value_heads", "head_dim", "isl", "window_size"]
    best = _fastest(rows, [*shape, "kv_cache_dtype"])
    prompts, heads, keys, width, tokens, window, seconds = _columns(best, *shape, "latency_us")
    seen = np.where(window > 0, np.minimum(window, tokens), tokens)
    scores = seen * tokens - 0.5 * seen * seen
    cache = np.where(best["kv_cache_dtype"] == "fp8", 1.0, 2.0)
    device = _device(gpu, 16)

    def predict(values: Mapping[str, float]) -> Floats:
        rates = _kernel_rates(values)
        return attend_prompt(prompts, tokens, scores, heads, keys, (width, width), cache, device, rates)

    yield KernelTable("prefill", gpu, "all", MICRO * seconds, predict)


def _latent_prefill(rows: pd.DataFrame, gpu: str) -> Iterator[KernelTable]:
    # Rows with a datatype of products are whole modules.
    best = _fastest(rows[rows["gemm_type"].isna()], ["batch_size", "num_heads", "isl"])
    prompts, heads, tokens, seconds = _columns(best, "batch_size", "num_heads", "isl", "latency_us")
    device = _device(gpu, 16)

    def predict(values: Mapping[str, float]) -> Floats:
        # DeepSeek-V3: keys of 192 elements, values of 128.
        widths = np.asarray(192.0), np.asarray(128.0)
        return attend_latent_prompt(
            prompts, tokens, 0.5 * tokens * tokens, heads, widths, device, _kernel_rates(values)
        )

    yield KernelTable("latent_prefill", gpu, "all", MICRO * seconds, predict)


def _all_reduces(rows: pd.DataFrame, gpu: str) -> Iterator[KernelTable]:
    captured = rows[~rows["kernel_source"].str.contains("eager")]
    best = _fastest(captured, ["num_gpus", "message_size"])
    ranks, elements, seconds = _columns(best, "num_gpus", "message_size", "latency_us")
    link = _accelerator(gpu).network_bandwidths[0]

    def predict(values: Mapping[str, float]) -> Floats:
        rates = ReduceRates(**{name: np.asarray(value) for name, value in values.items()})
        return reduce_messages(2.0 * elements, ranks, link, rates)

    yield KernelTable("all_reduce", gpu, "all", MICRO * seconds, predict)


def fit_operations(folder: Path) -> list[OperationFit]:
    """Return the rates of every kind, generation and datatype that a folder has kernels of.

    Args:
        folder: with the tables.
    """
    tables: dict[tuple[str, str, str], list[KernelTable]] = {}
    for table in kernel_tables(folder):
        tables.setdefault((table.kind, table.generation, table.name), []).append(table)
    return [_fit(*key, some) for key, some in tables.items()]


def _fit(kind: str, generation: str, name: str, tables: list[KernelTable]) -> OperationFit:
    names = RATES[kind]
    first, low, high = (np.array([STARTS[each][place] for each in names]) for place in range(3))

    def errors(logs: Floats) -> Floats:
        values: dict[str, Any] = dict(zip(names, np.exp(logs), strict=True))
        return np.concatenate([table.log_errors(values) for table in tables])

    found = least_squares(errors, np.log(first), bounds=(np.log(low), np.log(high)), loss="soft_l1", f_scale=SCALE)
    values = np.exp(found.x)

    def loss(logs: Floats) -> float:
        squared = (errors(logs) / SCALE) ** 2
        return float(np.sum(2.0 * (np.sqrt(1.0 + squared) - 1.0)))

    limit = loss(found.x) * (1.0 + AS_GOOD)
    ranges = {}
    for place, rate in enumerate(names):
        ends = [_farthest(loss, found.x, place, np.log(end[place]), limit) for end in (low, high)]
        ranges[rate] = (min(float(np.exp(ends[0])), values[place]), max(float(np.exp(ends[1])), values[place]))
    fitted = {rate: float(value) for rate, value in zip(names, values, strict=True)}
    return OperationFit(kind, generation, name, fitted, ranges, np.expm1(errors(found.x)))


AS_GOOD: Final = 0.02
"""Share by which the loss of a fit may grow at the ends of a range."""


def _farthest(loss: Callable[[Floats], float], best: Floats, place: int, end: float, limit: float) -> float:
    """Return the value of one logarithm farthest towards an end whose loss stays within a limit, others unchanged."""
    inside, outside = float(best[place]), float(end)
    trial = best.copy()
    for _ in range(12):
        middle = (inside + outside) / 2.0
        trial[place] = middle
        inside, outside = (middle, outside) if loss(trial) <= limit else (inside, middle)
    return inside
