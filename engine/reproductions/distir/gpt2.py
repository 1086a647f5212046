"""GPT-2 inference of R3 under data, horizontal and pipeline parallelism, as far as its description goes.

Described and counted: the partition (D scatters the prompts; H cuts queries, keys, values and the first matrix of the
MLP by columns, both projections by rows, with an all-reduce after each; P deals the blocks, and the head as one more,
in contiguous runs), the matrix products with their biases, attention's two products, the head, and Sends of
activations.

Not described: the list of all other operations, which is in a file of the ONNX model zoo (norms, activation function,
softmax, reshapes, casts), their launches and memory, and the order of allocations. So latency here is a lower bound and
weights are not the peak of memory.

Source: `dist_ir/transforms/gpt2_dhp_transform.py` and `examples/gpt2_grid_search.py` of microsoft/dist-ir.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.executions.arrays import Floats, Ints
from engine.reproductions.distir.simulator.configurations import LARGEST_PIPELINE, is_group, read
from engine.reproductions.distir.simulator.cost_models import DistIRCostModel
from engine.reproductions.distir.simulator.errors import ConfigurationError
from engine.reproductions.distir.simulator.evaluation import cost_model, positive

__all__ = ["GPT_SIZES", "NOT_COUNTED", "GPTSize", "gpt2_grid"]

VOCABULARY: Final = 50_257
"""Tokens of GPT-2's vocabulary. Source: Radford et al. 2019."""
POSITIONS: Final = 1_024
"""Positions of its second embedding. Source: Radford et al. 2019."""
LARGEST_ITEMS: Final = 2**17
"""Stages times microbatches that are simulated at most."""
PROMPT: Final = 8
"""Tokens of the sentence with which DistIR fills every prompt."""

NOT_COUNTED: Final = (
    "Norms, activation functions, softmax, reshapes and casts, and memory of activations: DistIR takes them from an "
    "ONNX file which its description does not give. Latency is a lower bound."
)
"""Effects that `gpt2_grid` leaves out, in a sentence."""


@dataclass(frozen=True, slots=True)
class GPTSize:
    """A GPT-2: blocks, heads and width."""

    layers: int
    heads: int
    width: int


GPT_SIZES: Final[Mapping[str, GPTSize]] = {
    "gpt2": GPTSize(12, 12, 768),
    "gpt2-medium": GPTSize(24, 16, 1024),
    "gpt2-large": GPTSize(36, 20, 1280),
    "gpt2-xl": GPTSize(48, 25, 1600),
    "gpt3": GPTSize(12, 12, 768),
    "gpt3-medium": GPTSize(24, 16, 1024),
    "gpt3-large": GPTSize(24, 16, 1536),
    "gpt3-xl": GPTSize(24, 16, 2048),
    "gpt3-2.7B": GPTSize(32, 32, 2560),
    "gpt3-6.7B": GPTSize(32, 32, 4096),
    "gpt3-13B": GPTSize(40, 40, 5120),
    "gpt3-175B": GPTSize(96, 96, 12288),
}
"""R3's sizes by name."""

REASONS: Final[Mapping[str, str]] = {
    "not_whole": "D, H, P and m must each be a whole number of at least 1.",
    "no_such_group": "D {D}, H {H}, P {P}, m {m}: each must be a power of two.",
    "batch_too_small": "D {D} exceeds the batch of {batch}.",
    "microbatches_without_stages": "m {m} and P {P}: there is more than one microbatch exactly where there are stages.",
    "too_many_microbatches": "m {m} exceeds the {share} prompts of a replica (batch {batch} over D {D}).",
    "batch_not_divisible": "D {D} x m {m} does not divide the batch of {batch}.",
    "heads": "H {H} exceeds the {heads} heads.",
    "heads_not_divisible": "H {H} does not divide the {heads} heads.",
    "too_long": f"P {{P}} x m {{m}} is more than the {LARGEST_ITEMS:,} items that are simulated.",
    "too_many_stages": f"P {{P}} is more than the blocks and the head, or than {LARGEST_PIPELINE} stages.",
}


def gpt2_grid(
    rows: pd.DataFrame | Iterable[Mapping[str, Any]],
    *,
    size: GPTSize,
    batch: int,
    bandwidth_gbps: float,
    prompt: int = PROMPT,
    **constants: Any,
) -> pd.DataFrame:
    """Returns the table with `latency` [s], `throughput` [prompts/s] and `weights` of the fullest device [bytes].

    Latency is a lower bound, throughput an upper one: see `NOT_COUNTED`.

    Args:
        rows: columns D, H, P, m.
        size: of the model.
        batch: prompts, over all replicas.
        bandwidth_gbps: between devices [Gbps].
        prompt: tokens of each.
        constants: flops, dram_bandwidth, launch_overhead, allreduce, datatype_bytes, as for `grid`.

    Raises ConfigurationError for invalid tables, sizes and rates.
    """
    model, bandwidth = cost_model("R3", **constants), positive("bandwidth_gbps", bandwidth_gbps)
    for name, number in (("batch", batch), ("prompt", prompt), *((n, getattr(size, n)) for n in size.__slots__)):
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= 2**31:
            raise ConfigurationError(f"{name} is {str(number)[:40]}; it must be a whole number of at least 1.")
    if size.width % size.heads:
        raise ConfigurationError(f"{size.heads} heads do not divide the width of {size.width:,}.")
    table, degrees = read(rows)
    codes = _find_reasons(degrees, size, batch)
    latency, weights = np.full(len(table), np.nan), np.full(len(table), np.nan)
    for row in np.flatnonzero(codes == "").tolist():
        d, h, p, m = (int(degrees[name][row]) for name in ("D", "H", "P", "m"))
        latency[row], weights[row] = _simulate_configuration(model, size, batch // d // m, prompt, h, p, m, bandwidth)
    result = table.assign(latency=latency, throughput=batch / latency, weights=weights)
    result["status"] = np.where(codes == "", "ok", "invalid")
    result["reason"] = pd.Series(codes, dtype="str", index=result.index)
    numbers = [
        {name: int(degrees[name][row]) for name in degrees} | {"batch": batch, "heads": size.heads}
        for row in range(len(table))
    ]
    texts = [
        REASONS[code].format(**row, share=batch // max(row["D"], 1)) if code else ""
        for code, row in zip(codes, numbers, strict=True)
    ]
    result["reason_text"] = pd.Series(texts, dtype="str", index=result.index)
    return result


def _find_reasons(degrees: dict[str, Ints], size: GPTSize, batch: int) -> Any:
    """Return the code of the first of DistIR's rules that each row breaks, checked in DistIR's order."""
    D, H, P, m = (np.maximum(degrees[name], 1) for name in ("D", "H", "P", "m"))  # noqa: N806 - DistIR's letters
    broken = (
        ("not_whole", np.minimum.reduce(list(degrees.values())) < 1),
        ("no_such_group", ~(is_group(D) & is_group(H) & is_group(P) & (m & (m - 1) == 0))),
        ("batch_too_small", batch < D),
        ("microbatches_without_stages", (m > 1) != (P > 1)),
        ("too_many_microbatches", m > batch // D),
        ("batch_not_divisible", (batch % D != 0) | (batch // D % m != 0)),
        ("heads", size.heads < H),
        ("heads_not_divisible", size.heads % H != 0),
        ("too_long", LARGEST_ITEMS // np.minimum(m, LARGEST_ITEMS) < P),
        ("too_many_stages", min(size.layers + 1, LARGEST_PIPELINE) < P),
    )
    codes = np.full(len(D), "", object)
    for code, where in reversed(broken):
        codes[where] = code
    return codes


def _simulate_configuration(
    model: DistIRCostModel,
    size: GPTSize,
    prompts: int,
    prompt: int,
    shards: int,
    stages: int,
    microbatches: int,
    bandwidth_gbps: float,
) -> tuple[float, float]:
    """Latency [s] and the most weights on a device [bytes] of one configuration."""
    block, head = (
        _block_time(model, size, prompts, prompt, shards, bandwidth_gbps),
        _head_time(model, size, prompts, prompt),
    )
    runs = size.layers + 1
    counts = np.array([runs // stages + (stage < runs % stages) for stage in range(stages)])
    times = counts * block
    times[-1] += head - block
    width, element = size.width, model.datatype_bytes
    of_block = (12.0 * width * width + 7.0 * width) / shards + 6.0 * width
    of_stage = counts * of_block
    of_stage[-1] += VOCABULARY * width - of_block
    of_stage[0] += (VOCABULARY if stages > 1 else 0.0) * width + POSITIONS * width
    send = _op_time(lambda elements: model.send(elements, bandwidth_gbps), prompts * prompt * width)
    return _forward_only(times, send, stages, microbatches), element * float(of_stage.max())


def _op_time(cost: Callable[..., Floats], *numbers: float) -> float:
    """The cost of one op [s], from a formula for arrays."""
    return float(cost(*(np.full(1, number, np.float64) for number in numbers))[0])


def _gemm_time(model: DistIRCostModel, rows: float, inner: float, columns: float) -> float:
    """A product with its bias: the product, and adding two operands."""
    return _op_time(model.matmul, rows, inner, columns) + _op_time(lambda n: model.elementwise(n, 2), rows * columns)


def _block_time(
    model: DistIRCostModel, size: GPTSize, prompts: int, prompt: int, shards: int, bandwidth_gbps: float
) -> float:
    """The products and all-reduces of one block [s]."""
    rows, width, part = prompts * prompt, size.width, size.width / shards
    heads, inner = prompts * size.heads / shards, size.width / size.heads
    reduced = _op_time(lambda elements, group: model.all_reduce(elements, group, bandwidth_gbps), rows * width, shards)
    # A batch of products: one op with the operands of all heads.
    scores = _op_time(model.matmul, heads * prompt, inner, prompt)
    values = _op_time(model.matmul, heads * prompt, prompt, inner)
    return (
        _gemm_time(model, rows, width, 3 * part)
        + scores
        + values
        + _gemm_time(model, rows, part, width)
        + reduced
        + _gemm_time(model, rows, width, 4 * part)
        + _gemm_time(model, rows, 4 * part, width)
        + reduced
    )


def _head_time(model: DistIRCostModel, size: GPTSize, prompts: int, prompt: int) -> float:
    """The product with the vocabulary [s], which no shard shares."""
    return _op_time(model.matmul, prompts * prompt, size.width, VOCABULARY)


def _forward_only(times: Floats, send: float, stages: int, microbatches: int) -> float:
    """The clock of the last stage when all microbatches have passed; Sends block both ends, in the order of stages."""
    t = np.zeros(stages)

    def take_items(first: int, last: int) -> None:
        for stage in range(first, last + 1):
            t[stage] += times[stage]
        for stage in range(first, min(last, stages - 2) + 1):
            t[stage] = t[stage + 1] = max(t[stage], t[stage + 1]) + send

    for step in range(microbatches + stages - 1):
        take_items(max(0, step - microbatches + 1), min(step, stages - 1))
    return float(t.max())
