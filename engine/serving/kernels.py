"""Seconds of the kernels that an engine runs in a step, by kind: products, experts, attention, all-reduces.

Every kind has one closed form: a start, memory traffic at a share of the bandwidth, matrix operations at a share of the
peak, joined smoothly, so that times never fall with rows, and never rise with rates. Shares and starts are fitted to
measured kernels per generation and datatype (`engine.serving.constants`); the few numbers that all of them share are
below.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.executions.arrays import Floats

__all__ = [
    "Device",
    "ExpertRates",
    "ExpertWork",
    "KernelRates",
    "ReduceRates",
    "attend_context",
    "attend_latent_context",
    "attend_latent_prompt",
    "attend_prompt",
    "multiply",
    "reduce_messages",
    "run_experts",
]

TILE = 128.0
"""Edge of a tile of a result that one multiprocessor computes at a time [elements]. Source: as in training."""
WAVE = 0.35
"""Share of a wave of tiles that the last, partly filled one costs in products [dimensionless]. Source: chosen on 22,462
measured products of A100, H100 and B200."""
MOST_WAVES = 5.0
"""Most waves that a partly filled one counts as in products [dimensionless]. Source: as for `WAVE`."""
DEPTH = 300.0
"""Inner dimension that prologue and epilogue of a product cost [elements]. Source: as for `WAVE`."""
EXPERT_WAVE, MOST_EXPERT_WAVES = 5.0, 7.0
"""The same as `WAVE` and `MOST_WAVES` in launches over experts [dimensionless]. Source: chosen on 20,655 measured
launches over experts of A100, H100 and B200."""
EXPERT_ROWS = 10.0
"""Least rows that the tiles of an expert compute [rows]. Source: as for `EXPERT_WAVE`."""
EXPERT_IDLE = 0.5
"""Traffic of a launch over experts that idle multiprocessors add [dimensionless]. Source: as for `EXPERT_WAVE`."""
IMBALANCE = 0.25
"""Computing that uneven routing adds [dimensionless]. Source: as for `EXPERT_WAVE`, tokens drawn with a power law."""
GATHERED_BYTES = 8.0
"""Bytes per element of a token that each of its experts moves: gathered and scattered, in 16 bits [bytes]. Source:
count of reads and writes."""
QUERY_ROWS = 32.0
"""Least query heads that a key head computes with while decoding [heads]. Source: chosen on 14,015 measured kernels of
decode attention of A100, H100 and B200."""
CONTEXT_SPLIT = 256.0
"""Tokens of the context that one multiprocessor reads [tokens]. Source: as for `QUERY_ROWS`."""
CONTEXT_IDLE = 0.02
"""Time of decode attention that idle multiprocessors add [dimensionless]. Source: as for `QUERY_ROWS`."""
QUERY_TILE = 128.0
"""Queries of a block of the prefill kernel [tokens]. Source: Dao 2023, section 3.2."""
PROMPT_WAVE, MOST_PROMPT_WAVES = 0.5, 4.0
"""The same as `WAVE` and `MOST_WAVES` in prefill attention [dimensionless]. Source: as in training."""


LEAST_TIME = 1e-30
"""Least time that others are compared with, for passes without such work [s]. Source: stated by us."""


class Device(NamedTuple):
    """Accelerator as kernels see it: peaks [FLOP/s], memory bandwidth [bytes/s], multiprocessors."""

    matrix: Floats
    memory: Floats
    multiprocessors: Floats


class KernelRates(NamedTuple):
    """Rates of one kind of kernel, arrays [rows] or numbers: start [s], shares of memory bandwidth and of the matrix
    peak [dimensionless], and terms of some kinds.

    Products have passes over their inputs to quantise them, and rows of a tile that are computed in any case; decode
    attention seconds per doubling of the context [s], and passes over the results of parts of a context; its latent
    kernels compute a least number of heads.
    """

    start: Floats
    memory: Floats
    matrix: Floats
    quantise: Floats = np.zeros(())
    rows: Floats = np.ones(())
    doubling: Floats = np.zeros(())
    joined: Floats = np.zeros(())
    heads: Floats = np.zeros(())


class ExpertRates(NamedTuple):
    """Rates of a launch over experts: start [s], seconds per doubling of the tokens [s], shares of memory bandwidth and
    of the matrix peak [dimensionless]."""

    start: Floats
    doubling: Floats
    memory: Floats
    matrix: Floats


class ReduceRates(NamedTuple):
    """Rates of an engine's all-reduce: start [s], seconds per other rank [s], shares of the link's rate in one step and
    in two [dimensionless], and start of the second step [s]."""

    start: Floats
    rank: Floats
    one_step: Floats
    two_steps: Floats
    second: Floats


def _join(memory: Floats, compute: Floats) -> Floats:
    """Return the smooth maximum of two times [s]: the fourth root of the sum of fourth powers."""
    largest = np.maximum(memory, compute)
    ratio = np.minimum(memory, compute) / np.maximum(largest, LEAST_TIME)
    squared = ratio * ratio
    return largest * np.sqrt(np.sqrt(1.0 + squared * squared))


def multiply(
    m: Floats, n: Floats, k: Floats, weight_bytes: Floats | float, device: Device, rates: KernelRates
) -> Floats:
    """Returns the seconds of a product [m, k] x [k, n] with its weights read once [s]; broadcasts.

    Args:
        m, n, k: rows, outputs and inputs [elements].
        weight_bytes: of a weight [bytes].
        device: where it runs.
        rates: of products in the datatype.
    """
    # t = t0 + q 2 m k / BW + join((w n k + 2 m (n + k)) / (e BW), 2 m n k / (c F) waves depth).
    memory = (weight_bytes * n * k + 2.0 * m * (n + k)) / (rates.memory * device.memory)
    waves = np.maximum(m / TILE, 1.0) * np.ceil(n / TILE) / device.multiprocessors
    compute = 2.0 * np.maximum(m, rates.rows) * n * k / (rates.matrix * device.matrix)
    compute = compute * np.minimum(1.0 + WAVE / waves, 1.0 + MOST_WAVES) * (1.0 + DEPTH / k)
    return rates.start + rates.quantise * 2.0 * m * k / device.memory + _join(memory, compute)


class ExpertWork(NamedTuple):
    """Experts on a processor and their tokens: tokens of the group, experts in all and per token, ranks that experts
    are spread over, input width and local width of an expert [elements], matrices of an expert (3 with a gate)."""

    tokens: Floats
    experts: Floats
    chosen: Floats
    spread: Floats
    hidden: Floats
    width: Floats
    matrices: Floats | float = 3.0


def run_experts(
    work: ExpertWork,
    weight_bytes: Floats | float,
    device: Device,
    rates: ExpertRates,
    imbalance: Floats | float = IMBALANCE,
) -> Floats:
    """Returns the seconds of one fused launch over the experts that are visited: both products, activation, gathering
    and scattering [s]; broadcasts.

    Args:
        work: experts and tokens.
        weight_bytes: of a weight [bytes].
        device: where it runs.
        rates: of launches over experts in the datatype.
        imbalance: computing that uneven routing adds [dimensionless].
    """
    # 1 - (1 - k/E)^N of the experts are visited by N tokens, each by N k / (E visited).
    visited = 1.0 - (1.0 - work.chosen / work.experts) ** work.tokens
    touched = np.maximum(work.experts / work.spread * visited, 1.0)
    each = work.tokens * work.chosen / work.experts / visited
    up = (work.matrices - 1.0) * work.width
    weights = work.matrices * work.hidden * work.width
    idle = 1.0 + EXPERT_IDLE * device.multiprocessors / (touched * up / TILE + 1.0)
    memory = touched * weights * weight_bytes / (rates.memory * device.memory) * idle
    waves = touched * np.maximum(each / TILE, 1.0) * np.ceil(up / TILE) / device.multiprocessors
    compute = touched * 2.0 * np.maximum(each, EXPERT_ROWS) * weights / (rates.matrix * device.matrix)
    compute = compute * np.minimum(1.0 + EXPERT_WAVE / waves, 1.0 + MOST_EXPERT_WAVES) * (1.0 + imbalance)
    moved = GATHERED_BYTES * work.tokens * work.chosen / work.spread * work.hidden / device.memory
    start = rates.start + rates.doubling * np.log2(1.0 + work.tokens / 64.0)
    return start + np.sqrt(memory * memory + compute * compute) + moved


def attend_context(
    requests: Floats,
    context: Floats,
    heads: Floats,
    key_heads: Floats,
    widths: tuple[Floats, Floats],
    cache_bytes: Floats | float,
    device: Device,
    rates: KernelRates,
) -> Floats:
    """Returns the seconds in which one token of every request attends to its context [s]; broadcasts.

    Args:
        requests: of the pass.
        context: tokens that each attends to [tokens].
        heads, key_heads: on one processor.
        widths: of a key and of a value head [elements].
        cache_bytes: of an element of the cache [bytes].
        device: where it runs, with the matrix peak in 16 bits.
        rates: of decode attention with such a cache.
    """
    both = widths[0] + widths[1]
    idle = _spread_contexts(requests * key_heads, context, device)
    memory = requests * context * key_heads * both * cache_bytes / (rates.memory * device.memory) * idle
    # 2 (d_k + d_v) operations per score; queries of one key head are padded to a tile.
    rows = key_heads * np.maximum(heads / key_heads, QUERY_ROWS)
    compute = 2.0 * requests * context * rows * both / (rates.matrix * device.matrix) * idle
    joined = rates.joined * 4.0 * requests * heads * widths[1] / device.memory
    return rates.start + rates.doubling * np.log2(1.0 + context / 128.0) + _join(memory, compute) + joined


def attend_latent_context(
    requests: Floats,
    context: Floats,
    heads: Floats,
    rank: Floats,
    rope: Floats,
    cache_bytes: Floats | float,
    device: Device,
    rates: KernelRates,
) -> Floats:
    """Returns the same for latent attention, whose heads share one compressed key [s]; broadcasts.

    Args:
        requests: of the pass.
        context: tokens that each attends to [tokens].
        heads: on one processor.
        rank, rope: elements of the compressed vector, and of the rotated key.
        cache_bytes: of an element of the cache [bytes].
        device: where it runs, with the matrix peak in 16 bits.
        rates: of latent decode attention with such a cache.
    """
    idle = _spread_contexts(requests, context, device)
    memory = requests * context * (rank + rope) * cache_bytes / (rates.memory * device.memory) * idle
    # Scores over rank + rope columns, values over rank; kernels compute all their heads, whatever TP leaves of them.
    rows = np.maximum(heads, rates.heads)
    compute = 2.0 * requests * context * rows * (2.0 * rank + rope) / (rates.matrix * device.matrix) * idle
    joined = rates.joined * 4.0 * requests * heads * rank / device.memory
    return rates.start + rates.doubling * np.log2(1.0 + context / 128.0) + _join(memory, compute) + joined


def _spread_contexts(units: Floats, context: Floats, device: Device) -> Floats:
    """Return how much longer few caches take than enough to keep all multiprocessors busy [dimensionless]."""
    # A pass may have no request that decodes.
    spread = np.maximum(units, 1.0) * np.maximum(context / CONTEXT_SPLIT, 1.0)
    return np.asarray(1.0 + CONTEXT_IDLE * device.multiprocessors / spread)


def attend_prompt(
    prompts: Floats,
    tokens: Floats,
    scores: Floats,
    heads: Floats,
    key_heads: Floats,
    widths: tuple[Floats, Floats],
    cache_bytes: Floats | float,
    device: Device,
    rates: KernelRates,
) -> Floats:
    """Returns the seconds of attention among the tokens of prompts, with writing the cache [s]; broadcasts.

    Args:
        prompts: of the pass.
        tokens: of each [tokens].
        scores: pairs of tokens per prompt and head that causal mask and window leave.
        heads, key_heads: on one processor.
        widths: of a key and of a value head [elements].
        cache_bytes: of an element of the cache [bytes].
        device: where it runs, with the matrix peak in 16 bits.
        rates: of prefill attention.
    """
    both = widths[0] + widths[1]
    # Queries, keys, values and results in 16 bits, and the cache written.
    moved = prompts * tokens * (2.0 * (heads + key_heads) + cache_bytes * key_heads) * both
    waves = heads * prompts * np.maximum(tokens / QUERY_TILE, 1.0) / device.multiprocessors
    compute = 2.0 * prompts * scores * heads * both / (rates.matrix * device.matrix)
    compute = compute * np.minimum(1.0 + PROMPT_WAVE / waves, 1.0 + MOST_PROMPT_WAVES)
    return rates.start + _join(moved / (rates.memory * device.memory), compute)


def attend_latent_prompt(
    prompts: Floats,
    tokens: Floats,
    scores: Floats,
    heads: Floats,
    widths: tuple[Floats, Floats],
    device: Device,
    rates: KernelRates,
) -> Floats:
    """Returns the seconds of attention among the tokens of prompts whose keys were expanded from a latent [s].

    Args:
        prompts: of the pass.
        tokens: of each that are computed [tokens].
        scores: pairs of tokens per prompt that the causal mask leaves.
        heads: on one processor.
        widths: of a key and of a value head [elements].
        device: where it runs, with the matrix peak in 16 bits.
        rates: of latent prefill attention.
    """
    return attend_prompt(prompts, tokens, scores, heads, heads, widths, 0.0, device, rates)


def reduce_messages(size: Floats, ranks: Floats, link: Floats | float, rates: ReduceRates) -> Floats:
    """Returns the seconds of an engine's all-reduce inside a switched domain [s]; broadcasts.

    Small messages are sent whole to every rank, large ones scattered and gathered.

    Args:
        size: of the buffer [bytes].
        ranks: of the group.
        link: rate of a rank's links in one direction [bytes/s].
        rates: of the kernels.
    """
    # a0 + a1 (n - 1) + min((n - 1) M / (e1 link), 2 (n - 1)/n M / (e2 link) + b).
    others = ranks - 1.0
    one = others * size / (rates.one_step * link)
    two = 2.0 * others / ranks * size / (rates.two_steps * link) + rates.second
    return np.where(ranks > 1.0, rates.start + rates.rank * others + np.minimum(one, two), 0.0)
